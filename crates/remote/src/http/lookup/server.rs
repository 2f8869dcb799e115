//! The other side: where it is, what requests look like, what answers mean.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use hyper::body::{Body, Bytes, Frame, SizeHint};
use tidemill_connect::Failure;

use super::super::post::{RETRY_AFTER_MAX, retry_after};
use super::tls::Tls;

/// So much of an answer stands in messages, bytes.
const SHOWN_BYTES: usize = 200;

/// A server and how it is asked.
pub(super) struct Server {
    /// A name or an address, IPv6 without its brackets.
    pub host: String,
    pub port: u16,
    pub tls: Option<Tls>,
    pub method: Method,
    /// Those of every request, `Host` included.
    pub headers: HeaderMap,
    pub connect_timeout: Duration,
    /// How long a request may take until its answer is there.
    pub timeout: Duration,
    pub response_max: usize,
    pub connections_max: usize,
}

/// A request that is to be made.
#[derive(Debug)]
pub(super) struct Job {
    pub call: u64,
    /// Path and query.
    pub target: Bytes,
    pub body: Bytes,
    /// It failed already on a connection that the server had closed.
    pub again: bool,
}

/// What came of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The answer's body, not empty.
    Body(Vec<u8>),
    /// There is nothing for the key.
    Nothing,
    Failed(Failure),
    /// It was given up.
    Cancelled,
}

impl Server {
    /// The request of a job.
    ///
    /// # Errors
    /// The address is none.
    pub fn request(&self, job: &Job) -> Result<Request<Once>, Failure> {
        let uri = Uri::from_maybe_shared(job.target.clone()).map_err(|e| Failure::lasting(format!("internal error: the address: {e}")))?;
        let mut request = Request::new(Once(Some(job.body.clone()).filter(|b| !b.is_empty())));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = self.headers.clone();
        Ok(request)
    }
}

/// What an answer means.
pub(super) fn meaning(status: StatusCode, headers: &HeaderMap, body: Vec<u8>) -> Outcome {
    let said = || {
        let shown = &body[..body.len().min(SHOWN_BYTES)];
        let text = String::from_utf8_lossy(shown).trim().to_string();
        if text.is_empty() { format!("the server answers {status}") } else { format!("the server answers {status}: {text}") }
    };
    match status.as_u16() {
        204 | 404 => Outcome::Nothing,
        200..=299 if body.trim_ascii().is_empty() => Outcome::Nothing,
        200..=299 => Outcome::Body(body),
        300..=399 => Outcome::Failed(Failure::lasting(format!("{}; redirects are not followed, put the right address into 'url'", said()))),
        408 | 429 | 500..=599 => {
            let after = retry_after(headers).map(|after| after.min(RETRY_AFTER_MAX));
            Outcome::Failed(Failure { after, ..Failure::passing(said()) })
        }
        _ => Outcome::Failed(Failure::lasting(said())),
    }
}

/// The headers of every request.
pub(super) fn headers(own: HeaderMap, authority: &str, json: bool, bodies: bool) -> Result<HeaderMap, String> {
    let mut headers = own;
    let host = HeaderValue::from_str(authority).map_err(|_| format!("the host '{authority}' cannot be sent"))?;
    headers.entry(header::HOST).or_insert(host);
    headers.entry(header::USER_AGENT).or_insert(HeaderValue::from_static(concat!("tidemill/", env!("CARGO_PKG_VERSION"))));
    if json {
        headers.entry(header::ACCEPT).or_insert(HeaderValue::from_static("application/json"));
    }
    if bodies {
        headers.entry(header::CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
    }
    Ok(headers)
}

/// A body of one piece, or none.
pub(super) struct Once(Option<Bytes>);

impl Body for Once {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_answers_mean() {
        let of = |status: u16, body: &str| meaning(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), body.as_bytes().to_vec());
        assert_eq!(of(200, "{}"), Outcome::Body(b"{}".to_vec()));
        for (status, body) in [(204, ""), (200, " \n"), (404, "no such user")] {
            assert_eq!(of(status, body), Outcome::Nothing);
        }
        for status in [408, 429, 500, 503] {
            let Outcome::Failed(failure) = of(status, "busy") else { panic!("{status}") };
            assert!(failure.retry && failure.after.is_none() && failure.reason.ends_with(": busy"), "{failure:?}");
        }
        for status in [301, 400, 401, 410, 422] {
            let Outcome::Failed(failure) = of(status, &"x".repeat(1000)) else { panic!("{status}") };
            assert!(!failure.retry && failure.reason.len() < 320, "{failure:?}");
        }
        let wait = HeaderMap::from_iter([(header::RETRY_AFTER, HeaderValue::from_static("7"))]);
        let Outcome::Failed(failure) = meaning(StatusCode::TOO_MANY_REQUESTS, &wait, Vec::new()) else { panic!("no failure") };
        assert_eq!(failure.after, Some(Duration::from_secs(7)));
    }
}
