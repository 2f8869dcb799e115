//! Takes a publisher's messages out of the bytes of its call, which are cut anywhere.
//!
//! The bytes of a message are put where they belong as they come, while they are in the cache: the values, once, into memory that
//! is aligned as Arrow wants it, and whatever else the message has beside each other for prost. What does not live here: where the
//! bytes come from ([`super::messages`]). The file stands alone, so that it can be fuzzed without a server (`fuzz/fuzz_targets`).

use arrow::buffer::{Buffer, MutableBuffer};
use arrow_flight::{FlightData, FlightDescriptor};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message as _;
use prost::encoding::encode_varint;
use tonic::Status;

/// What gRPC writes before each message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;
/// The number of the field of a message in which its values stand.
const BODY_FIELD: u64 = 1000;
/// Memory for so much of the values is set aside before they are there, bytes; it grows with them.
const BODY_BYTES_AHEAD: usize = 1 << 20;
/// A number takes no more bytes.
const NUMBER_BYTES_MAX: u32 = 10;

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
    /// When the last of its bytes came ([`tidemill_block::clock::now_ns`]), for who reads them from a connection; 0 here.
    pub arrival_ns: u64,
}

/// What a publisher is told of bytes that are no message.
pub(super) fn wrong(why: &str) -> Status {
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
pub(super) struct Parser {
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
    /// A message of more than `bytes_max` is an error.
    pub fn new(bytes_max: usize) -> Self {
        let (fields, body) = (BytesMut::new(), MutableBuffer::default());
        Parser { bytes_max, at: At::Prefix(0), prefix: [0; PREFIX_BYTES], left: 0, number: 0, digits: 0, fields, body }
    }

    /// Takes messages of up to so many bytes from now on.
    pub fn allow(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// Whether no part of a message has come.
    pub fn is_between(&self) -> bool {
        self.at == At::Prefix(0)
    }

    /// Reads as far as the length of the next message. Gives how many of its bytes have not come, once that is known: there is to
    /// be room for them before [`Parser::take`].
    ///
    /// # Errors
    /// As [`Parser::take`].
    pub fn announced(&mut self, bytes: &mut Bytes) -> Result<Option<usize>, Status> {
        while let At::Prefix(have) = self.at {
            if bytes.is_empty() {
                return Ok(None);
            }
            self.prefix(have, bytes)?;
        }
        Ok(Some(self.left))
    }

    /// Takes the next message from the front of `bytes`; `None` when they are used up before it is whole.
    ///
    /// # Errors
    /// A message that cannot be read or is too large; nothing behind it can be read then.
    pub fn take(&mut self, bytes: &mut Bytes) -> Result<Option<Message>, Status> {
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
                            // One that stands there twice counts as it stands last. What a length says is not believed before.
                            self.body = MutableBuffer::with_capacity(length.min(BODY_BYTES_AHEAD));
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
            1 => self.fixed(8),
            2 => Ok(At::Length { body: false }),
            5 => self.fixed(4),
            _ => Err(wrong("a field is of a kind that Flight has not")),
        }
    }

    /// A field of so many bytes, whose key says it.
    fn fixed(&self, bytes: usize) -> Result<At, Status> {
        // Here, so that the error is the same wherever the bytes are cut.
        if bytes > self.left { Err(wrong("it ends within a field")) } else { Ok(At::Field(bytes)) }
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
