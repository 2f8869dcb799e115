//! A connection: comes about, makes one request after the other, and ends when the server or a fault ends
//! it, or when there is nothing to do for long.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::StatusCode;
use hyper::body::{Body, Bytes};
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use tidemill_connect::Failure;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::pool::{Pool, Seat};
use super::server::{Job, Once, Outcome, Server, meaning};
use super::threads::within;

/// How long a connection without work is kept: shorter than servers commonly do.
const IDLE_MAX: Duration = Duration::from_secs(50);
/// So much of a refusal is read; its beginning is shown.
const REFUSAL_BYTES: usize = 64 << 10;

/// Why a request has no answer.
enum Broken {
    /// The connection ended before anything of an answer came: on one that was used before, the server had
    /// likely closed it for idleness just then.
    Before(String),
    /// Anything else.
    Other(Failure),
}

/// Makes a connection and runs it to its end.
pub(super) async fn run(pool: Rc<Pool>) {
    let limit = pool.server.connect_timeout;
    let made = match within(limit, connect(&pool)).await {
        Ok(made) => made,
        Err(_) => Err(format!("no connection came about within {} ms ('lookup.connect-timeout')", limit.as_millis())),
    };
    pool.connected();
    let ended = match made {
        Ok(stream) => match pool.server.tls.clone() {
            None => work(&pool, TokioIo::new(stream)).await,
            Some(tls) => match within(limit, tls.connector.connect(tls.name, stream)).await {
                Ok(Ok(stream)) => work(&pool, TokioIo::new(stream)).await,
                Ok(Err(e)) => Err(format!("beginning encryption: {e}")),
                Err(_) => Err(format!("encryption did not begin within {} ms ('lookup.connect-timeout')", limit.as_millis())),
            },
        },
        Err(reason) => Err(reason),
    };
    match ended {
        Ok(()) => pool.left(),
        Err(reason) => pool.refused(&reason),
    }
}

async fn connect(pool: &Pool) -> Result<TcpStream, String> {
    let mut last = None;
    for address in pool.addresses().await? {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // Requests are small, and each is waited for.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(e) => last = Some(format!("connecting to {address}: {e}")),
        }
    }
    Err(last.unwrap_or_else(|| format!("the host '{}' has no address", pool.server.host)))
}

/// Makes requests over `stream` until it ends.
async fn work<T: Read + Write + Unpin + 'static>(pool: &Rc<Pool>, stream: T) -> Result<(), String> {
    let (mut sender, connection) = Builder::new().handshake::<_, Once>(stream).await.map_err(|e| format!("beginning a connection: {e}"))?;
    let mut connection = pin!(connection);
    let seat = Rc::new(Seat::default());
    let mut used = false;
    loop {
        let job = match pool.next(&seat) {
            Some(job) => job,
            None => {
                let idle = poll_fn(|context| match connection.as_mut().poll(context) {
                    Poll::Ready(_) => Poll::Ready(None),
                    Poll::Pending => seat.poll_job(context).map_or(Poll::Pending, |job| Poll::Ready(Some(job))),
                });
                match timeout(IDLE_MAX, idle).await {
                    Ok(Some(job)) => job,
                    // Closed by the server, or of no use any more.
                    Ok(None) | Err(_) => {
                        pool.leave(&seat);
                        return Ok(());
                    }
                }
            }
        };
        let mut ended = false;
        let answered = {
            let mut exchange = pin!(exchange(&mut sender, &pool.server, &job));
            let both = poll_fn(|context: &mut Context<'_>| {
                if seat.is_cancelled() {
                    return Poll::Ready(None);
                }
                seat.watch(context);
                // The connection moves the bytes that the exchange waits for.
                if !ended {
                    ended = connection.as_mut().poll(context).is_ready();
                }
                exchange.as_mut().poll(context).map(Some)
            });
            within(pool.server.timeout, both).await
        };
        match answered {
            Ok(Some(Ok((outcome, whole)))) => {
                pool.finish(job.call, outcome);
                if ended || !whole || sender.is_closed() {
                    return Ok(());
                }
            }
            Ok(Some(Err(Broken::Before(_)))) if used && !job.again => {
                pool.again(Job { again: true, ..job }, &seat);
                return Ok(());
            }
            Ok(Some(Err(Broken::Before(reason)))) => {
                pool.finish(job.call, Outcome::Failed(Failure::passing(reason)));
                return Ok(());
            }
            Ok(Some(Err(Broken::Other(failure)))) => {
                pool.finish(job.call, Outcome::Failed(failure));
                return Ok(());
            }
            // What is given up may still be answered: the connection is of no more use.
            Ok(None) => {
                pool.finish(job.call, Outcome::Cancelled);
                return Ok(());
            }
            Err(_) => {
                let reason = format!("no answer within {} ms ('timeout')", pool.server.timeout.as_millis());
                pool.finish(job.call, Outcome::Failed(Failure::passing(reason)));
                return Ok(());
            }
        }
        used = true;
    }
}

/// An error and its causes.
fn shown(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(e) = cause {
        let more = e.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = e.source();
    }
    text
}

/// Makes a request and reads its answer; whether all of it was read.
async fn exchange(sender: &mut SendRequest<Once>, server: &Server, job: &Job) -> Result<(Outcome, bool), Broken> {
    let before = |e: &hyper::Error| {
        let reason = format!("the connection ended: {}", shown(e));
        match e.is_parse() || e.is_user() {
            // What comes is no HTTP, and would not be another time.
            true => Broken::Other(Failure::lasting(format!("the answer is not HTTP/1.1: {}", shown(e)))),
            false => Broken::Before(reason),
        }
    };
    sender.ready().await.map_err(|e| before(&e))?;
    let request = server.request(job).map_err(Broken::Other)?;
    let response = sender.send_request(request).await.map_err(|e| before(&e))?;
    let (head, mut body) = response.into_parts();
    let fine = head.status.is_success();
    let most = if fine { server.response_max } else { REFUSAL_BYTES };
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let frame = frame.map_err(|e| Broken::Other(Failure::passing(format!("the answer broke off: {}", shown(&e)))))?;
        let Ok(data): Result<Bytes, _> = frame.into_data() else { continue };
        if bytes.len() + data.len() > most {
            if fine && head.status != StatusCode::NO_CONTENT {
                let reason = format!("the answer is larger than {most} bytes ('lookup.max-response-size')");
                return Err(Broken::Other(Failure::lasting(reason)));
            }
            return Ok((meaning(head.status, &head.headers, bytes), false));
        }
        bytes.extend_from_slice(&data);
    }
    Ok((meaning(head.status, &head.headers, bytes), true))
}
