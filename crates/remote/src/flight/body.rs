//! The body of a publisher's request: messages as gRPC frames them, without a copy of their values.
//!
//! The gRPC library would copy each message into a buffer of its own before it goes out. Here values go to the HTTP/2 library as
//! they are; it writes them in one call to the system with the little that stands before them. Small messages are still gathered.
//! Everything else of the call is the gRPC library's, whose request gets this body ([`Publishing`]).

use std::pin::Pin;
use std::task::{Context, Poll};

use arrow_flight::FlightData;
use bytes::{BufMut, Bytes, BytesMut};
use futures::Stream;
use hyper::body::{Body, Frame};
use hyper::{Request, Response};
use prost::Message;
use prost::encoding::{encode_varint, encoded_len_varint};
use tonic::Status;
use tonic::codegen::Service;
use tonic::transport::Channel;

/// The key of the field in which values stand: 1000, of a length that is said.
const VALUES_KEY: u64 = (1000 << 3) | 2;
/// Fewer bytes of values are copied: a call to the system costs as much as copying some ten KB.
const VALUES_BYTES_MIN: usize = 16 << 10;
/// Messages that are copied go out together, about so many bytes at a time.
const GATHERED_BYTES: usize = 32 << 10;
/// The HTTP/2 library keeps pieces that are shorter than 256 bytes, and writes them with the next that is longer.
const PIECE_BYTES_MAX: usize = 255;
/// What stands before values is cut into such pieces if it is no longer than this; else it is worth a call.
const PIECES_BYTES_MAX: usize = 4 * PIECE_BYTES_MAX;

/// The messages of a stream, as a body.
pub(super) struct MessageBody<S> {
    messages: S,
    /// Messages that are copied, and what stands before values that are not.
    gathered: BytesMut,
    /// What goes out next, and the values that go out behind it.
    head: Bytes,
    values: Bytes,
    ended: bool,
}

impl<S> MessageBody<S> {
    pub fn new(messages: S) -> Self {
        MessageBody { messages, gathered: BytesMut::new(), head: Bytes::new(), values: Bytes::new(), ended: false }
    }

    /// Puts a message behind those that are gathered; gives its values, unless they were copied, too.
    fn gather(&mut self, mut message: FlightData) -> Result<Bytes, Status> {
        let values = std::mem::take(&mut message.data_body);
        let length = values.len() as u64;
        let around = if length == 0 { 0 } else { encoded_len_varint(VALUES_KEY) + encoded_len_varint(length) };
        let all = u32::try_from(message.encoded_len() + around + values.len());
        let all = all.map_err(|_| Status::resource_exhausted("a row of more than 4 GB cannot be sent"))?;
        let out = &mut self.gathered;
        // It is not compressed.
        out.put_u8(0);
        out.put_u32(all);
        message.encode(out).expect("the buffer grows");
        if length > 0 {
            encode_varint(VALUES_KEY, out);
            encode_varint(length, out);
        }
        if values.len() >= VALUES_BYTES_MIN {
            return Ok(values);
        }
        out.put_slice(&values);
        Ok(Bytes::new())
    }

    /// The next piece of what is ready.
    fn piece(&mut self) -> Option<Bytes> {
        if self.head.is_empty() {
            return (!self.values.is_empty()).then(|| std::mem::take(&mut self.values));
        }
        let cut = !self.values.is_empty() && self.head.len() <= PIECES_BYTES_MAX;
        let length = if cut { self.head.len().min(PIECE_BYTES_MAX) } else { self.head.len() };
        Some(self.head.split_to(length))
    }
}

impl<S: Stream<Item = FlightData> + Unpin> Body for MessageBody<S> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        loop {
            if let Some(piece) = this.piece() {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            if this.ended {
                return Poll::Ready(None);
            }
            match Pin::new(&mut this.messages).poll_next(context) {
                Poll::Ready(Some(message)) => {
                    this.values = match this.gather(message) {
                        Ok(values) => values,
                        Err(status) => return Poll::Ready(Some(Err(status))),
                    };
                    if this.values.is_empty() && this.gathered.len() < GATHERED_BYTES {
                        continue;
                    }
                }
                Poll::Ready(None) => this.ended = true,
                Poll::Pending if this.gathered.is_empty() => return Poll::Pending,
                Poll::Pending => {}
            }
            this.head = this.gathered.split().freeze();
        }
    }
}

/// A channel whose next request has the given body in place of the one that the gRPC library makes.
pub(super) struct Publishing {
    channel: Channel,
    body: Option<tonic::body::Body>,
}

impl Publishing {
    /// For one call, whose messages are these.
    pub fn new<S: Stream<Item = FlightData> + Send + Unpin + 'static>(channel: Channel, messages: S) -> Self {
        Publishing { channel, body: Some(tonic::body::Body::new(MessageBody::new(messages))) }
    }
}

impl Service<Request<tonic::body::Body>> for Publishing {
    type Response = Response<tonic::body::Body>;
    type Error = tonic::transport::Error;
    type Future = <Channel as Service<Request<tonic::body::Body>>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::poll_ready(&mut self.channel, context)
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        let (parts, made) = request.into_parts();
        Service::call(&mut self.channel, Request::from_parts(parts, self.body.take().unwrap_or(made)))
    }
}

#[cfg(test)]
mod tests;
