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
use futures::future::BoxFuture;
use tidemill_block::clock::now_ns;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Sleep, sleep};
use tonic::{Code, Status};

use super::parser::{Message, Parser, wrong};
use crate::limits::BODY_SILENCE;
use crate::room::Room;

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
    /// When that came: messages behind one that the job keeps waiting came no later than it.
    came_ns: u64,
    parser: Parser,
    ended: bool,
    /// For the message that comes, and the one that was given last until it is settled.
    room: Room,
    /// What is missing of it, which is waited for.
    more: Option<BoxFuture<'static, OwnedSemaphorePermit>>,
    /// How long nothing more of a message has come.
    silence: Option<Pin<Box<Sleep>>>,
}

impl Messages {
    /// Of a request's body; a message of more than `bytes_max` is an error. While there is no room for one, it is not read.
    pub fn new(source: Body, bytes_max: usize, room: Room) -> Self {
        let (rest, parser) = (Bytes::new(), Parser::new(bytes_max));
        Messages { source, rest, came_ns: now_ns(), parser, ended: false, room, more: None, silence: None }
    }

    /// The stream that they are for.
    pub fn of_stream(&mut self, stream: &str) {
        self.room.of_stream(stream);
    }

    /// The message that was given last is no longer held by anybody. To be said before the next is asked for.
    pub fn settle(&mut self) {
        self.room.empty();
    }

    /// Messages of up to so many bytes are taken from now on. To be said between two messages.
    pub fn allow(&mut self, bytes_max: usize) {
        self.parser.allow(bytes_max);
    }

    /// The next message, once it is there whole; `None` when the publisher has sent all, or is gone. May be dropped and
    /// asked again.
    ///
    /// # Errors
    /// A message that cannot be read or is too large, or in whose middle nothing comes for long; a call that broke.
    pub async fn message(&mut self) -> Result<Option<Message>, Status> {
        poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Message>, Status>> {
        loop {
            if let Some(more) = &mut self.more {
                let more = ready!(more.as_mut().poll(context));
                self.more = None;
                self.room.keep(more);
            }
            if let Some(bytes) = self.parser.announced(&mut self.rest)?
                && !self.room.try_grow(bytes)
            {
                // For all of it at once: who waits holds nothing.
                self.more = Some(self.room.more(bytes));
                continue;
            }
            if let Some(message) = self.parser.take(&mut self.rest)? {
                return Poll::Ready(Ok(Some(Message { arrival_ns: self.came_ns, ..message })));
            }
            if self.ended {
                return Poll::Ready(Ok(None));
            }
            let Poll::Ready(frame) = Pin::new(&mut self.source).poll_frame(context) else {
                return self.listen(context);
            };
            self.silence = None;
            match frame {
                // Trailers say nothing.
                Some(Ok(frame)) => (self.rest, self.came_ns) = (frame.into_data().unwrap_or_default(), now_ns()),
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

    /// Nothing has come: waits for more, in the middle of a message not for ever, since it holds room.
    fn listen(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Message>, Status>> {
        if self.parser.is_between() {
            return Poll::Pending;
        }
        let silence = self.silence.get_or_insert_with(|| Box::pin(sleep(BODY_SILENCE)));
        ready!(silence.as_mut().poll(context));
        self.ended = true;
        Poll::Ready(Err(Status::unavailable(format!("nothing more of a message has come for {} seconds", BODY_SILENCE.as_secs()))))
    }
}

#[cfg(test)]
mod tests;
