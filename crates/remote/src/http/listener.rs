//! The listener that all tables of an address share, in whatever job they are: the first opens it, the
//! last closes it. What its requests do is in [`super::serve`].

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use crossbeam_channel::{Receiver, Sender, bounded};
use tidemill_connect::{ConnectError, listeners as refused};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, Sleep, sleep};

use super::inbox::Inbox;
use super::serve;
use crate::runtime;

/// A pause after accepting has failed (no free file descriptor), so that it does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long to wait for the port to be free again; it takes a moment, but nobody shall hang here.
const CLOSE_WAIT: Duration = Duration::from_secs(5);

/// Every open listener of the process.
static LISTENERS: Mutex<BTreeMap<SocketAddr, Listener>> = Mutex::new(BTreeMap::new());

fn listeners() -> MutexGuard<'static, BTreeMap<SocketAddr, Listener>> {
    LISTENERS.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Listener {
    shared: Arc<Shared>,
    /// Tables.
    users: usize,
    connections_max: usize,
    /// Ends it.
    stop: oneshot::Sender<()>,
    /// Disconnected when the port is free.
    closed: Receiver<()>,
}

/// What a listener's requests share with its tables.
pub struct Shared {
    address: SocketAddr,
    /// By path.
    tables: RwLock<BTreeMap<String, Arc<Inbox>>>,
    /// For further connections.
    room: Arc<Semaphore>,
    /// How long a connection may be silent, ms.
    idle_ms: AtomicU64,
}

impl Shared {
    /// The table that reads this path.
    pub fn table(&self, path: &str) -> Option<Arc<Inbox>> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner).get(path).cloned()
    }

    /// Counts a request that was refused.
    pub fn count_refused(&self) {
        refused::refused(self.address);
    }
}

/// The use of a listener by one table.
pub struct Lease {
    address: SocketAddr,
    path: String,
    shared: Arc<Shared>,
}

/// Lets a table have the requests to its path at an address, where a listener is opened if there is
/// none, on `socket` if it is given.
///
/// # Errors
/// The address is taken by somebody else or not ours; another table has the path.
pub fn lease(address: SocketAddr, inbox: Arc<Inbox>, socket: Option<TcpListener>) -> Result<Lease, ConnectError> {
    let path = inbox.options.path.clone();
    let mut all = listeners();
    let listener = match all.entry(address) {
        Entry::Occupied(running) => {
            let running = running.into_mut();
            running.take_on(address, inbox)?;
            running
        }
        Entry::Vacant(none) => {
            let socket = socket.map_or_else(|| TcpListener::bind(address), Ok);
            let listener = socket
                .and_then(|socket| start(socket, inbox))
                .map_err(|e| ConnectError::new(format!("listening on {address}: {e}; choose another 'port' or 'hostname'")))?;
            none.insert(listener?)
        }
    };
    listener.users += 1;
    Ok(Lease { address, path, shared: listener.shared.clone() })
}

impl Listener {
    /// Gives a further table its path.
    fn take_on(&mut self, address: SocketAddr, inbox: Arc<Inbox>) -> Result<(), ConnectError> {
        let options = &inbox.options;
        let path = options.path.clone();
        let mut tables = self.shared.tables.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = tables.get(&path) {
            return Err(ConnectError::new(format!(
                "the path '{path}' of {address} is read by {} already; a path has one reader, so choose another 'path' or 'port'",
                other.owner
            )));
        }
        // Which table a connection is for is known only when it speaks: the most generous one counts.
        self.shared.idle_ms.fetch_max(idle_ms(&inbox), Ordering::Relaxed);
        let more = options.connections_max.saturating_sub(self.connections_max);
        self.shared.room.add_permits(more);
        self.connections_max += more;
        tables.insert(path, inbox);
        Ok(())
    }
}

/// How long a connection for this table may be silent, ms.
fn idle_ms(inbox: &Inbox) -> u64 {
    inbox.options.request_timeout.as_millis().max(1) as u64
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut all = listeners();
        self.shared.tables.write().unwrap_or_else(PoisonError::into_inner).remove(&self.path);
        let Some(listener) = all.get_mut(&self.address) else { return };
        listener.users -= 1;
        if listener.users == 0
            && let Some(Listener { stop, closed, .. }) = all.remove(&self.address)
        {
            // Requests on their way are still answered; the port is free at once.
            let _ = stop.send(());
            let _ = closed.recv_timeout(CLOSE_WAIT);
        }
    }
}

/// Starts to accept connections. The first table is known before: a request that comes at once shall find it, and the
/// connection must not be taken for one that may be silent for no time at all.
fn start(socket: TcpListener, inbox: Arc<Inbox>) -> io::Result<Result<Listener, ConnectError>> {
    socket.set_nonblocking(true)?;
    let handle = match runtime::handle() {
        Ok(handle) => handle,
        Err(e) => return Ok(Err(e)),
    };
    let socket = {
        let _entered = handle.enter();
        tokio::net::TcpListener::from_std(socket)?
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let (open, closed) = bounded(0);
    let connections_max = inbox.options.connections_max;
    let idle_ms = AtomicU64::new(idle_ms(&inbox));
    let tables = RwLock::new(BTreeMap::from([(inbox.options.path.clone(), inbox)]));
    let address = socket.local_addr()?;
    let shared = Arc::new(Shared { address, tables, room: Arc::new(Semaphore::new(connections_max)), idle_ms });
    let listening = Listening { socket, shared: shared.clone(), _open: open };
    let router: Router = Router::new().fallback(serve::take).with_state(shared.clone());
    handle.spawn(async move {
        let service = router.into_make_service_with_connect_info::<Peer>();
        let serving = axum::serve(listening, service).with_graceful_shutdown(async move {
            // Whether told or forgotten.
            let _ = stopped.await;
        });
        // It ends when it is told to, and has no errors.
        let _ = serving.await;
    });
    Ok(Ok(Listener { shared, users: 0, connections_max, stop, closed }))
}

/// Accepts connections, as many at once as there is room for.
struct Listening {
    socket: tokio::net::TcpListener,
    shared: Arc<Shared>,
    /// Dropped with the socket.
    _open: Sender<()>,
}

impl axum::serve::Listener for Listening {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            match self.socket.accept().await {
                Ok((stream, address)) => {
                    // Turned away: the connection closes at once.
                    let Ok(permit) = self.shared.room.clone().try_acquire_owned() else {
                        refused::turned_away(self.shared.address);
                        continue;
                    };
                    // Answers are small and somebody waits for them.
                    let _ = stream.set_nodelay(true);
                    let idle = Duration::from_millis(self.shared.idle_ms.load(Ordering::Relaxed));
                    return (Connection::new(stream, self.shared.address, idle, permit), address);
                }
                // The peer was gone before we looked.
                Err(e) if matches!(e.kind(), ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::ConnectionRefused) => {}
                Err(_) => sleep(ACCEPT_PAUSE).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

/// Who sends a request.
#[derive(Clone, Debug)]
pub struct Peer {
    pub address: SocketAddr,
    requests: Arc<Requests>,
}

/// The requests of a connection.
#[derive(Debug, Default)]
struct Requests {
    /// Those that are being worked on.
    busy: AtomicUsize,
    /// There was one.
    any: AtomicBool,
}

impl Peer {
    /// Says that a request is being worked on, until it is dropped.
    pub fn busy(&self) -> Busy {
        self.requests.any.store(true, Ordering::Relaxed);
        self.requests.busy.fetch_add(1, Ordering::AcqRel);
        Busy(self.requests.clone())
    }
}

/// See [`Peer::busy`].
pub struct Busy(Arc<Requests>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Connected<IncomingStream<'_, Listening>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Listening>) -> Self {
        Peer { address: *stream.remote_addr(), requests: stream.io().requests.clone() }
    }
}

/// A connection that is closed when nothing comes for too long while no request is worked on: a peer
/// that is gone without a word, or never ends its request's headers. It counts as silent if it has never asked for
/// anything: who waits between requests does what is usual. How long a body may take is looked after by who reads it.
pub struct Connection {
    stream: TcpStream,
    /// What it came to.
    listener: SocketAddr,
    idle: Duration,
    requests: Arc<Requests>,
    alarm: Pin<Box<Sleep>>,
    /// The alarm counts from when somebody began to wait for bytes.
    waiting: bool,
    _room: OwnedSemaphorePermit,
}

impl Connection {
    fn new(stream: TcpStream, listener: SocketAddr, idle: Duration, room: OwnedSemaphorePermit) -> Self {
        let alarm = Box::pin(sleep(idle));
        Connection { stream, listener, idle, requests: Arc::default(), alarm, waiting: false, _room: room }
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(context, buffer) {
            this.waiting = false;
            return Poll::Ready(read);
        }
        if !this.waiting {
            this.waiting = true;
            this.alarm.as_mut().reset(Instant::now() + this.idle);
        }
        while this.alarm.as_mut().poll(context).is_ready() {
            if this.requests.busy.load(Ordering::Acquire) == 0 {
                if !this.requests.any.load(Ordering::Relaxed) {
                    refused::silent(this.listener, 1);
                }
                return Poll::Ready(Err(ErrorKind::TimedOut.into()));
            }
            this.alarm.as_mut().reset(Instant::now() + this.idle);
        }
        Poll::Pending
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }

    fn poll_write_vectored(self: Pin<&mut Self>, context: &mut Context<'_>, pieces: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
