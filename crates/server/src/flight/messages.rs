//! The messages of a publisher's call, read from the body of its request.
//!
//! The gRPC library would gather a message in one buffer, make room behind it by moving it to another, and leave the values at an
//! odd place, from where Arrow's reader moves each column once more. Here the bytes of a message are put where they belong as they
//! come, while they are in the cache: the values, once, into memory that is aligned as Arrow wants it, and whatever else the
//! message has beside each other for prost. All else of the call (answers, errors, trailers) stays with the library, which gets a
//! request without a body.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use arrow::buffer::{Buffer, MutableBuffer};
use arrow_flight::{FlightData, FlightDescriptor};
use axum::body::{Body, HttpBody};
use axum::extract::Request;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message as _;
use prost::encoding::encode_varint;
use tidemill_block::clock::now_ns;
use tonic::{Code, Status};

/// The end of the path of a request whose body is set aside.
const METHOD: &str = "/DoPut";
/// What gRPC writes before each message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;
/// The number of the field of a message in which its values stand.
const BODY_FIELD: u64 = 1000;
/// A number takes no more bytes.
const NUMBER_BYTES_MAX: u32 = 10;

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

/// What a publisher sends.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Message {
    /// In the first message: the stream, and who publishes.
    pub descriptor: Option<FlightDescriptor>,
    /// Says what the message is and where the columns lie; empty if there is metadata alone.
    pub header: Bytes,
    /// Ours to read.
    pub metadata: Bytes,
    /// The values, aligned.
    pub body: Buffer,
    /// When the last of its bytes came, by [`now_ns`].
    pub arrival_ns: u64,
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
}

impl Messages {
    /// Of a request's body; a message of more than `bytes_max` is an error.
    pub fn new(source: Body, bytes_max: usize) -> Self {
        Messages { source, rest: Bytes::new(), came_ns: now_ns(), parser: Parser::new(bytes_max), ended: false }
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
                return Poll::Ready(Ok(Some(Message { arrival_ns: self.came_ns, ..message })));
            }
            if self.ended {
                return Poll::Ready(Ok(None));
            }
            match ready!(Pin::new(&mut self.source).poll_frame(context)) {
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
}

fn wrong(why: &str) -> Status {
    Status::internal(format!("a message cannot be read: {why}"))
}

/// Where in a message the next byte stands.
#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    /// In what is before it, of which so many bytes have come.
    Prefix(usize),
    /// In the key of a field.
    Key,
    /// In a field that is a number.
    Number,
    /// In the length of a field.
    Length { body: bool },
    /// In a field of which so many bytes have not come.
    Field(usize),
    /// In the values, of which so many bytes have not come.
    Body(usize),
}

/// Takes messages out of bytes that are cut anywhere.
#[derive(Debug)]
struct Parser {
    bytes_max: usize,
    at: At,
    prefix: [u8; PREFIX_BYTES],
    /// Bytes of the message that have not come.
    left: usize,
    /// The number that is being read, and how many of its bytes have come.
    number: u64,
    digits: u32,
    /// All fields but the values, as a message of their own.
    fields: BytesMut,
    body: MutableBuffer,
}

impl Parser {
    fn new(bytes_max: usize) -> Self {
        let (fields, body) = (BytesMut::new(), MutableBuffer::default());
        Parser { bytes_max, at: At::Prefix(0), prefix: [0; PREFIX_BYTES], left: 0, number: 0, digits: 0, fields, body }
    }

    /// Whether no part of a message has come.
    fn is_between(&self) -> bool {
        self.at == At::Prefix(0)
    }

    /// Takes the next message from the front of `bytes`; `None` when they are used up before it is whole.
    fn take(&mut self, bytes: &mut Bytes) -> Result<Option<Message>, Status> {
        loop {
            if self.left == 0 && !matches!(self.at, At::Prefix(_)) {
                return self.finish().map(Some);
            }
            if bytes.is_empty() {
                return Ok(None);
            }
            match self.at {
                At::Prefix(have) => self.prefix(have, bytes)?,
                At::Key => {
                    if let Some(key) = self.number(bytes)? {
                        self.at = self.begin(key)?;
                    }
                }
                At::Number => {
                    if let Some(number) = self.number(bytes)? {
                        encode_varint(number, &mut self.fields);
                        self.at = At::Key;
                    }
                }
                At::Length { body } => {
                    if let Some(length) = self.number(bytes)? {
                        let length = usize::try_from(length).ok().filter(|length| *length <= self.left);
                        let length = length.ok_or_else(|| wrong("a field is longer than it"))?;
                        if body {
                            // One that stands there twice counts as it stands last.
                            self.body = MutableBuffer::with_capacity(length);
                            self.at = At::Body(length);
                        } else {
                            encode_varint(length as u64, &mut self.fields);
                            self.at = At::Field(length);
                        }
                    }
                }
                At::Field(0) | At::Body(0) => self.at = At::Key,
                At::Field(left) => {
                    let part = left.min(bytes.len());
                    self.fields.put_slice(&bytes[..part]);
                    self.pass(part, bytes)?;
                    self.at = At::Field(left - part);
                }
                At::Body(left) => {
                    let part = left.min(bytes.len());
                    self.body.extend_from_slice(&bytes[..part]);
                    self.pass(part, bytes)?;
                    self.at = At::Body(left - part);
                }
            }
        }
    }

    /// Counts bytes of the message that were used.
    fn pass(&mut self, used: usize, bytes: &mut Bytes) -> Result<(), Status> {
        self.left = self.left.checked_sub(used).ok_or_else(|| wrong("a field is longer than it"))?;
        bytes.advance(used);
        Ok(())
    }

    fn prefix(&mut self, have: usize, bytes: &mut Bytes) -> Result<(), Status> {
        let part = (PREFIX_BYTES - have).min(bytes.len());
        bytes.copy_to_slice(&mut self.prefix[have..have + part]);
        if have + part < PREFIX_BYTES {
            self.at = At::Prefix(have + part);
            return Ok(());
        }
        let [compressed, length @ ..] = self.prefix;
        let length = u32::from_be_bytes(length) as usize;
        match compressed {
            0 => {}
            1 => return Err(wrong("it is compressed, and the call does not say how")),
            _ => return Err(wrong("it begins with a byte that gRPC does not know")),
        }
        if length > self.bytes_max {
            return Err(Status::out_of_range(format!("a message of {length} bytes, at most {} are taken", self.bytes_max)));
        }
        (self.left, self.at) = (length, At::Key);
        Ok(())
    }

    /// Reads on in a number; gives it when it is whole.
    fn number(&mut self, bytes: &mut Bytes) -> Result<Option<u64>, Status> {
        while self.left > 0 && !bytes.is_empty() {
            let byte = bytes[0];
            self.pass(1, bytes)?;
            if self.digits + 1 == NUMBER_BYTES_MAX && byte > 1 {
                return Err(wrong("a number is too large"));
            }
            self.number |= u64::from(byte & 0x7f) << (7 * self.digits);
            self.digits += 1;
            if byte < 0x80 {
                self.digits = 0;
                return Ok(Some(std::mem::take(&mut self.number)));
            }
        }
        Ok(None)
    }

    /// What follows the key of a field.
    fn begin(&mut self, key: u64) -> Result<At, Status> {
        let (field, kind) = (key >> 3, key & 7);
        if (field, kind) == (BODY_FIELD, 2) {
            return Ok(At::Length { body: true });
        }
        encode_varint(key, &mut self.fields);
        match kind {
            0 => Ok(At::Number),
            1 => Ok(At::Field(8)),
            2 => Ok(At::Length { body: false }),
            5 => Ok(At::Field(4)),
            _ => Err(wrong("a field is of a kind that Flight has not")),
        }
    }

    /// The message is whole.
    fn finish(&mut self) -> Result<Message, Status> {
        let within = match self.at {
            At::Key => self.digits > 0,
            At::Field(left) | At::Body(left) => left > 0,
            At::Prefix(_) | At::Number | At::Length { .. } => true,
        };
        if within {
            return Err(wrong("it ends within a field"));
        }
        self.at = At::Prefix(0);
        let fields = FlightData::decode(self.fields.split().freeze()).map_err(|e| wrong(&e.to_string()))?;
        let body = std::mem::take(&mut self.body).into();
        let (descriptor, header, metadata) = (fields.flight_descriptor, fields.data_header, fields.app_metadata);
        Ok(Message { descriptor, header, metadata, body, arrival_ns: 0 })
    }
}

#[cfg(test)]
mod tests;
