//! The bodies of answers over HTTP/2 of which a peer takes nothing for too long.
//!
//! Such a peer answers pings, and its socket takes what its other calls are sent, so nothing else finds it out
//! ([`crate::listen`]): it keeps the window of one call shut. The rest of the body is then never asked for, and would keep its
//! subscription and what that has ready for ever. Here the body is dropped; its call is reset when the peer opens the window.
//! Publishers are let be: see [`has_bound`].

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::Version;
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use crate::state::{AppState, Counts};

/// How often within the bound a body is looked at.
const LOOKS: u32 = 8;

/// Bounds how long a peer may take nothing of an answer over HTTP/2.
pub(crate) async fn bound(State(state): State<Arc<AppState>>, request: Request, next: Next) -> Response {
    let bounded = has_bound(request.version(), request.uri().path());
    let answer = next.run(request).await;
    // What is there whole is handed over at once.
    if !bounded || answer.body().size_hint().exact().is_some() {
        return answer;
    }
    answer.map(|body| Body::new(Bounded::new(body, state.limits.untaken, state.counts.clone())))
}

/// Whether an answer is bounded. That to a publisher over Flight is not: acknowledgements need not be read, and loops that only
/// write leave them until the window is shut. It holds no more than a few of them and no rows, and ends with what is published.
fn has_bound(version: Version, path: &str) -> bool {
    version == Version::HTTP_2 && !path.ends_with("/DoPut")
}

/// A body that is dropped when its next piece is not asked for in time.
struct Bounded(Arc<Mutex<Held>>);

struct Held {
    /// `None` when it was dropped.
    body: Option<Body>,
    /// When the last piece was given, of which a part may still wait for its peer; `None` if it waits for the next one itself.
    given: Option<Instant>,
}

fn lock(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bounded {
    /// Must be called within the runtime.
    fn new(body: Body, untaken: Duration, counts: Arc<Counts>) -> Self {
        let held = Arc::new(Mutex::new(Held { body: Some(body), given: Some(Instant::now()) }));
        let watched = Arc::downgrade(&held);
        Handle::current().spawn(async move {
            loop {
                sleep(untaken / LOOKS).await;
                let Some(held) = watched.upgrade() else { return };
                if let Some(body) = overdue(&held, untaken) {
                    drop(body);
                    Counts::add(&counts.broken);
                    return;
                }
            }
        });
        Bounded(held)
    }
}

/// The body, if its peer has taken nothing for so long.
fn overdue(held: &Mutex<Held>, untaken: Duration) -> Option<Body> {
    let mut held = lock(held);
    if held.given?.elapsed() < untaken { None } else { held.body.take() }
}

impl HttpBody for Bounded {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut held = lock(&self.0);
        held.given = None;
        let Some(body) = &mut held.body else {
            return Poll::Ready(Some(Err(axum::Error::new(io::Error::from(io::ErrorKind::TimedOut)))));
        };
        let frame = Pin::new(body).poll_frame(context);
        if frame.is_ready() {
            held.given = Some(Instant::now());
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        lock(&self.0).body.as_ref().is_some_and(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        lock(&self.0).body.as_ref().map(HttpBody::size_hint).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::Ordering;

    use futures::{StreamExt, stream};
    use tokio::time::timeout;

    use super::*;
    use crate::streams::fixture::until;

    const UNTAKEN: Duration = Duration::from_millis(300);

    /// A publisher that did not read its acknowledgements was cut off when they had filled the window.
    #[test]
    fn who_publishes_need_not_read() {
        let flight = |method: &str| has_bound(Version::HTTP_2, &format!("/arrow.flight.protocol.FlightService/{method}"));
        assert!(flight("DoGet") && flight("DoExchange") && !flight("DoPut"));
        assert!(has_bound(Version::HTTP_2, "/v1/streams/s/events") && !has_bound(Version::HTTP_11, "/v1/streams/s/events"));
    }

    /// Two pieces, and then silence. It holds `guard`.
    fn body(guard: Arc<()>, counts: &Arc<Counts>) -> Body {
        let pieces = stream::iter([Ok::<_, Infallible>("a"), Ok("b")]).chain(stream::pending());
        let pieces = pieces.inspect(move |_| assert!(Arc::strong_count(&guard) > 0));
        Body::new(Bounded::new(Body::from_stream(pieces), UNTAKEN, counts.clone()))
    }

    #[tokio::test]
    async fn a_body_that_nobody_takes_is_dropped() {
        let (guard, counts) = (Arc::new(()), Arc::new(Counts::default()));
        let mut pieces = body(guard.clone(), &counts).into_data_stream();
        assert_eq!(pieces.next().await.unwrap().unwrap(), "a");
        until(|| (Arc::strong_count(&guard) == 1).then_some(())).await;
        assert!(pieces.next().await.unwrap().is_err());
        until(|| (counts.broken.load(Ordering::Relaxed) == 1).then_some(())).await;
    }

    #[tokio::test]
    async fn one_that_has_nothing_to_give_stays() {
        let (guard, counts) = (Arc::new(()), Arc::new(Counts::default()));
        let mut pieces = body(guard.clone(), &counts).into_data_stream();
        for piece in ["a", "b"] {
            assert_eq!(pieces.next().await.unwrap().unwrap(), piece);
        }
        assert!(timeout(3 * UNTAKEN, pieces.next()).await.is_err());
        assert_eq!((Arc::strong_count(&guard), counts.broken.load(Ordering::Relaxed)), (2, 0));
    }
}
