//! The bodies of answers over HTTP/2 of which a peer takes nothing for too long.
//!
//! Such a peer answers pings, and its socket takes what its other calls are sent, so nothing else finds it out
//! ([`crate::listen`]): it keeps the window of one call shut. The rest of the body is then never asked for, and would keep its
//! subscription and what that has ready for ever. Here the body is dropped; its call is reset when the peer opens the window.
//! Publishers are let be: see [`has_bound`].

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::Version;
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::Frame;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use crate::state::{AppState, Counts};

/// How often within the bound a body is looked at.
const LOOKS: u32 = 8;

/// The most that is handed on at once: each piece that is taken says that the peer takes something, so that one which reads slowly
/// but steadily stays, however large a message or an event is. Half a kilobyte a second is enough.
const PIECE_BYTES_MAX: usize = 64 << 10;

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
struct Bounded {
    held: Arc<Mutex<Held>>,
    /// Looks at it now and then; of no use without it.
    watch: AbortHandle,
}

struct Held {
    /// `None` when it was dropped.
    body: Option<Body>,
    /// What the body gave and is not handed on yet.
    rest: Bytes,
    /// When the last piece was given, of which a part may still wait for its peer; `None` if it waits for the next one itself.
    given: Option<Instant>,
}

impl Held {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            let Some(body) = &mut self.body else {
                return Poll::Ready(Some(Err(axum::Error::new(io::Error::from(io::ErrorKind::TimedOut)))));
            };
            match ready!(Pin::new(body).poll_frame(context)).map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => self.rest = data,
                // Trailers.
                Some(Ok(Err(frame))) => return Poll::Ready(Some(Ok(frame))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        let bytes = self.rest.len().min(PIECE_BYTES_MAX);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(bytes)))))
    }
}

fn lock(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bounded {
    /// Must be called within the runtime.
    fn new(body: Body, untaken: Duration, counts: Arc<Counts>) -> Self {
        let held = Arc::new(Mutex::new(Held { body: Some(body), rest: Bytes::new(), given: Some(Instant::now()) }));
        let watched = Arc::downgrade(&held);
        let watch = Handle::current().spawn(async move {
            let mut looks = Looks::default();
            loop {
                sleep(untaken / LOOKS).await;
                let Some(held) = watched.upgrade() else { return };
                if let Some(body) = overdue(&held, &mut looks) {
                    drop(body);
                    Counts::add(&counts.broken);
                    return;
                }
            }
        });
        Bounded { held, watch: watch.abort_handle() }
    }
}

impl Drop for Bounded {
    /// Most answers end long before the next look.
    fn drop(&mut self) {
        self.watch.abort();
    }
}

/// How often the same piece was seen to be the last one. Time alone does not say that a peer takes nothing: it goes on while the
/// process is stopped (SIGSTOP, a debugger), and then everybody would be late.
#[derive(Default)]
struct Looks {
    given: Option<Instant>,
    again: u32,
}

impl Looks {
    /// Whether the peer has taken nothing for too long.
    fn overdue(&mut self, given: Option<Instant>) -> bool {
        self.again = if given.is_some() && given == self.given { self.again + 1 } else { 0 };
        self.given = given;
        self.again >= LOOKS
    }
}

/// The body, if its peer has taken nothing for so long.
fn overdue(held: &Mutex<Held>, looks: &mut Looks) -> Option<Body> {
    let mut held = match held.try_lock() {
        Ok(held) => held,
        Err(TryLockError::Poisoned(held)) => held.into_inner(),
        // The next piece is being made.
        Err(TryLockError::WouldBlock) => {
            *looks = Looks::default();
            return None;
        }
    };
    if !looks.overdue(held.given) {
        return None;
    }
    held.rest = Bytes::new();
    held.body.take()
}

impl HttpBody for Bounded {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut held = lock(&self.held);
        held.given = None;
        let frame = held.poll(context);
        if frame.is_ready() {
            held.given = Some(Instant::now());
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        let held = lock(&self.held);
        held.rest.is_empty() && held.body.as_ref().is_some_and(HttpBody::is_end_stream)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::future::poll_fn;
    use std::sync::atomic::Ordering;

    use axum::http::{HeaderMap, HeaderName, HeaderValue};
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

    /// A body of these frames.
    struct Frames(VecDeque<Frame<Bytes>>);

    impl HttpBody for Frames {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.0.pop_front().map(Ok))
        }

        fn is_end_stream(&self) -> bool {
            self.0.is_empty()
        }
    }

    fn bounded(frames: impl IntoIterator<Item = Frame<Bytes>>) -> Bounded {
        Bounded::new(Body::new(Frames(frames.into_iter().collect())), UNTAKEN, Arc::default())
    }

    async fn next(body: &mut Bounded) -> Option<Frame<Bytes>> {
        poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await.map(Result::unwrap)
    }

    /// A message of 4 MB counted when the last of it was taken, which over a slow line took longer than the bound.
    #[tokio::test]
    async fn who_takes_a_large_piece_slowly_stays() {
        let bytes = Bytes::from(vec![7_u8; 5 * PIECE_BYTES_MAX + 1]);
        let mut body = bounded([Frame::data(bytes.clone())]);
        let mut taken: Vec<u8> = Vec::new();
        while !body.is_end_stream() {
            taken.extend_from_slice(&next(&mut body).await.unwrap().into_data().unwrap());
            sleep(UNTAKEN / 2).await;
        }
        assert!(taken == bytes, "{} bytes", taken.len());
        assert!(next(&mut body).await.is_none());
    }

    #[tokio::test]
    async fn pieces_are_small_and_trailers_follow_them() {
        let status = (HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"));
        let trailers: HeaderMap = HeaderMap::from_iter([status]);
        let large = Bytes::from(vec![7_u8; PIECE_BYTES_MAX + 1]);
        let mut body = bounded([Frame::data(large), Frame::data(Bytes::from_static(b"b")), Frame::trailers(trailers.clone())]);
        for bytes in [PIECE_BYTES_MAX, 1, 1] {
            assert_eq!(next(&mut body).await.unwrap().into_data().unwrap().len(), bytes);
        }
        assert_eq!(next(&mut body).await.unwrap().into_trailers().unwrap(), trailers);
        assert!(body.is_end_stream() && next(&mut body).await.is_none());
    }

    #[tokio::test]
    async fn nobody_looks_at_an_answer_that_is_over() {
        let body = bounded([]);
        let watch = body.watch.clone();
        drop(body);
        until(|| watch.is_finished().then_some(())).await;
    }

    /// After the process had been stopped for longer than the bound everybody was late.
    #[test]
    fn what_counts_is_how_often_the_same_piece_was_seen() {
        let long_ago = Instant::now().checked_sub(Duration::from_secs(1)).expect("the clock has run for a second");
        let mut looks = Looks::default();
        let mut seen = |given, times: u32| (0..times).filter(|_| looks.overdue(given)).count();
        assert_eq!(seen(Some(long_ago), LOOKS), 0);
        assert_eq!(seen(Some(Instant::now()), LOOKS), 0, "another piece");
        assert_eq!(seen(None, 2 * LOOKS), 0, "it is asked for");
        assert_eq!(seen(Some(long_ago), LOOKS + 1), 1);
    }
}
