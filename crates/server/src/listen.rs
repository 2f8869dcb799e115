//! Connections: accepting them up to a bound, TLS, timeouts, HTTP/1.1 and HTTP/2 on one port, and the
//! graceful end.
//!
//! A connection is a task. It is closed when the TLS handshake, the first bytes of HTTP or the first request do not come in
//! time, over HTTP/2 when a PING stays unanswered, and when its peer takes nothing of what it is sent ([`outflow`]);
//! what runs over HTTP/1.1 for long (WebSocket, event streams) is kept alive by those who serve it. Which request
//! goes where is not decided here.

mod outflow;

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, Request};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tidemill_connect::socket::alive;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tower::Service;

use self::outflow::Outflow;
use crate::ServeError;
use crate::auth::Tokens;
use crate::limits::*;
use crate::state::{AppState, Counts};
use crate::tls::Tls;

/// Connections that the kernel may hold until we accept them: a burst of reconnecting subscribers.
const BACKLOG: u32 = 4096;

/// How often the wish to stop, the token file and the certificate are looked at.
const TICK: Duration = Duration::from_millis(50);

/// How many peers at once are told that there are too many; beyond that the connection is just closed.
const TURNED_AWAY_AT_ONCE: usize = 64;

/// HTTP/2 begins with so many bytes; whoever has sent them speaks HTTP.
const PREFACE_BYTES: u64 = 24;

/// Everything that a connection needs.
pub struct Listening {
    pub state: Arc<AppState>,
    pub router: Router,
    pub tls: Option<Arc<Tls>>,
    pub tokens: Option<Arc<Tokens>>,
    /// Becomes true when connections shall end.
    pub ending: watch::Sender<bool>,
}

/// A listener on the address.
///
/// # Errors
/// The address cannot be had.
pub fn bind(address: SocketAddr) -> Result<TcpListener, ServeError> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let bound = socket.and_then(|socket| {
        // Connections of a server that was just stopped linger; they are no reason to wait a minute.
        socket.set_reuseaddr(true)?;
        // HTTP/1.1 has no pings: without probes a connection whose peer's machine is gone would stay for hours.
        alive::keep_alive(&socket)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    });
    bound.map_err(|e| {
        let help = match e.kind() {
            io::ErrorKind::AddrInUse => "; another process listens there: stop it, or choose another port with --listen",
            io::ErrorKind::PermissionDenied => "; ports below 1024 need a privilege",
            io::ErrorKind::AddrNotAvailable => "; the address is none of this machine's",
            _ => "",
        };
        ServeError::Failed(format!("listening on {address}: {e}{help}"))
    })
}

/// Accepts connections until `stopped` says so; gives back those that still run.
pub async fn accept(listener: TcpListener, listening: Arc<Listening>, stopped: impl Fn() -> bool) -> JoinSet<()> {
    let mut connections = JoinSet::new();
    let mut turned_away = JoinSet::new();
    let room = Arc::new(Semaphore::new(listening.state.limits.connections.min(Semaphore::MAX_PERMITS)));
    let builder = Arc::new(builder());
    let mut tick = tokio::time::interval(TICK);
    let mut ticks = 0u64;
    while !stopped() {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = tick.tick() => {
                while connections.try_join_next().is_some() {}
                while turned_away.try_join_next().is_some() {}
                ticks += 1;
                if ticks.is_multiple_of(20) {
                    look_at_files(&listening);
                }
                continue;
            }
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            // The peer was gone before we looked.
            Err(e) if matches!(e.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) => continue,
            // Most likely too many open files: connections that end make room.
            Err(e) => {
                crate::log(format_args!("accepting a connection: {e}"));
                sleep(Duration::from_millis(500)).await;
                continue;
            }
        };
        let counts = &listening.state.counts;
        Counts::add(&counts.accepted);
        // Blocks are written whole; waiting for more only adds latency.
        let _ = stream.set_nodelay(true);
        let Ok(permit) = room.clone().try_acquire_owned() else {
            Counts::add(&counts.refused);
            if listening.tls.is_none() && turned_away.len() < TURNED_AWAY_AT_ONCE {
                turned_away.spawn(turn_away(stream, listening.state.limits.connections));
            }
            continue;
        };
        let (listening, builder) = (listening.clone(), builder.clone());
        connections.spawn(async move {
            let _open = Open::new(listening.state.clone());
            connection(stream, peer, &listening, &builder).await;
            drop(permit);
        });
    }
    connections
}

/// Asks all connections to finish what they do, and drops those that do not.
pub async fn end(mut connections: JoinSet<()>, ending: &watch::Sender<bool>) {
    ending.send_replace(true);
    let all = async { while connections.join_next().await.is_some() {} };
    let _ = timeout(END_TIMEOUT, all).await;
    connections.shutdown().await;
}

fn look_at_files(listening: &Listening) {
    if let Some(tokens) = &listening.tokens {
        tokens.refresh(TOKENS_CHECK);
    }
    if let Some(tls) = &listening.tls {
        tls.refresh();
    }
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .adaptive_window(false)
        .max_frame_size(FRAME_BYTES_MAX)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .max_concurrent_streams(CALLS_PER_CONNECTION)
        .max_header_list_size(HEADER_BYTES_MAX)
        .enable_connect_protocol();
    builder
}

async fn connection(stream: TcpStream, peer: SocketAddr, listening: &Arc<Listening>, builder: &auto::Builder<TokioExecutor>) {
    let stream = Outflow::new(stream, listening.state.limits.untaken);
    let Some(tls) = &listening.tls else {
        return converse(stream, peer, listening, builder).await;
    };
    match timeout(HEADERS_TIMEOUT, tls.acceptor().accept(stream)).await {
        Ok(Ok(stream)) => converse(stream, peer, listening, builder).await,
        // A handshake that failed or did not come: the peer has been told by TLS, if it speaks it.
        Ok(Err(_)) | Err(_) => Counts::add(&listening.state.counts.broken),
    }
}

/// Speaks HTTP until one side ends.
async fn converse<S>(stream: S, peer: SocketAddr, listening: &Arc<Listening>, builder: &auto::Builder<TokioExecutor>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let heard = Arc::new(AtomicU64::new(0));
    let asked = Arc::new(AtomicBool::new(false));
    let io = TokioIo::new(Counted { stream, heard: heard.clone(), state: listening.state.clone() });
    let router = listening.router.clone();
    let service = {
        let asked = asked.clone();
        service_fn(move |mut request: Request<Incoming>| {
            asked.store(true, Ordering::Relaxed);
            request.extensions_mut().insert(ConnectInfo(peer));
            router.clone().call(request)
        })
    };
    let mut ending = listening.ending.subscribe();
    let mut ends = false;
    let mut silent = true;
    let (begun, unasked) = (Instant::now(), listening.state.limits.unasked);
    let mut deadline = pin!(sleep(HEADERS_TIMEOUT.min(unasked)));
    let mut connection = pin!(builder.serve_connection_with_upgrades(io, service));
    loop {
        tokio::select! {
            result = connection.as_mut() => {
                if result.is_err() {
                    Counts::add(&listening.state.counts.broken);
                }
                return;
            }
            () = deadline.as_mut(), if silent => {
                if asked.load(Ordering::Relaxed) {
                    silent = false;
                } else if heard.load(Ordering::Relaxed) < PREFACE_BYTES || begun.elapsed() >= unasked {
                    Counts::add(&listening.state.counts.broken);
                    return;
                } else {
                    deadline.as_mut().reset(begun + unasked);
                }
            }
            // The guard that it gives must not live across an await.
            () = async { drop(ending.wait_for(|e| *e).await) }, if !ends => {
                ends = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// Says that there are too many connections. What the peer has sent is read, else closing would throw
/// away our answer together with it.
async fn turn_away(mut stream: TcpStream, most: usize) {
    let body = serde_json::json!({
        "error": format!("the server has {most} connections already, the most that it takes"),
        "help": "try again later, or raise --max-connections",
    })
    .to_string();
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         retry-after: 1\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let exchange = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        let mut rest = [0; 4096];
        let mut left = 64usize << 10;
        while left > 0 {
            match stream.read(&mut rest).await? {
                0 => break,
                read => left = left.saturating_sub(read),
            }
        }
        io::Result::Ok(())
    };
    // A peer that does not want to hear it is gone all the same.
    let _ = timeout(Duration::from_secs(1), exchange).await;
}

/// Counts a connection as open while it lives.
struct Open(Arc<AppState>);

impl Open {
    fn new(state: Arc<AppState>) -> Self {
        state.counts.open.fetch_add(1, Ordering::Relaxed);
        Open(state)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.counts.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream whose bytes are counted.
struct Counted<S> {
    stream: S,
    /// Bytes read on this connection.
    heard: Arc<AtomicU64>,
    state: Arc<AppState>,
}

impl<S> Counted<S> {
    fn sent(&self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &result {
            self.state.counts.sent_bytes.fetch_add(*bytes as u64, Ordering::Relaxed);
        }
        result
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(context, buffer);
        let bytes = (buffer.filled().len() - before) as u64;
        if bytes > 0 {
            self.heard.fetch_add(bytes, Ordering::Relaxed);
            self.state.counts.received_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.sent(result)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, context: &mut Context<'_>, parts: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.sent(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
