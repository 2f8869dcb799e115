//! The messages of a publisher's call, read from the body of its request.
//!
//! The gRPC library would gather a message in one buffer, make room behind it by moving it to another, and leave the values at an
//! odd place, from where Arrow's reader moves each column once more. Here the bytes of a message are put where they belong as they
//! come ([`super::parser`]). All else of the call (answers, errors, trailers) stays with the library, which gets a request without
//! a body.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use bytes::Bytes;
use tonic::{Code, Status};

use super::parser::{Message, Parser, wrong};

/// The end of the path of a request whose body is set aside.
const METHOD: &str = "/DoPut";

/// The body of a request, on its way around the gRPC library.
#[derive(Clone)]
pub(super) struct SetAside(Arc<Mutex<Option<Body>>>);

impl SetAside {
    /// The body; `None` if it was taken before.
    pub fn take(&self) -> Option<Body> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Sets the body of a publisher's request aside.
pub(super) async fn set_aside(request: Request) -> Request {
    if !request.uri().path().ends_with(METHOD) {
        return request;
    }
    let (mut parts, body) = request.into_parts();
    parts.extensions.insert(SetAside(Arc::new(Mutex::new(Some(body)))));
    Request::from_parts(parts, Body::empty())
}

/// The messages of one call.
pub(super) struct Messages {
    source: Body,
    /// What has come and was not looked at.
    rest: Bytes,
    parser: Parser,
    ended: bool,
}

impl Messages {
    /// Of a request's body; a message of more than `bytes_max` is an error.
    pub fn new(source: Body, bytes_max: usize) -> Self {
        Messages { source, rest: Bytes::new(), parser: Parser::new(bytes_max), ended: false }
    }

    /// The next message, once it is there whole; `None` when the publisher has sent all, or is gone. May be dropped and
    /// asked again.
    ///
    /// # Errors
    /// A message that cannot be read or is too large; a call that broke.
    pub async fn message(&mut self) -> Result<Option<Message>, Status> {
        poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Message>, Status>> {
        loop {
            if let Some(message) = self.parser.take(&mut self.rest)? {
                return Poll::Ready(Ok(Some(message)));
            }
            if self.ended {
                return Poll::Ready(Ok(None));
            }
            match ready!(Pin::new(&mut self.source).poll_frame(context)) {
                // Trailers say nothing.
                Some(Ok(frame)) => self.rest = frame.into_data().unwrap_or_default(),
                Some(Err(e)) => {
                    self.ended = true;
                    let status = Status::from_error(Box::new(e));
                    return Poll::Ready(if status.code() == Code::Cancelled { Ok(None) } else { Err(status) });
                }
                None => {
                    self.ended = true;
                    let whole = self.parser.is_between();
                    return Poll::Ready(if whole { Ok(None) } else { Err(wrong("the call ended within it")) });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
