//! The packets of MQTT 5 as they lie on the wire: those that a client sends are written, those that it gets are read.
//!
//! A packet is one byte for its kind and flags, the length of what follows in one to four bytes of seven bits each, and
//! a body. Texts and binary values begin with their length in 16 bits; all numbers have their highest byte first. Properties
//! have a length for all of them and an identifier each, which says of what type it is.

use std::fmt;
use std::ops::Range;

use crate::options::Quality;

/// The longest body that a length of four bytes can tell.
pub const BODY_BYTES_MAX: usize = (1 << 28) - 1;

/// What stands before a body at most: the kind, and the length.
pub const HEAD_BYTES_MAX: usize = 5;

const SESSION_EXPIRY: u8 = 0x11;
const RECEIVE_MAXIMUM: u8 = 0x21;
const REASON_STRING: u8 = 0x1f;
const MAXIMUM_QOS: u8 = 0x24;
const RETAIN_AVAILABLE: u8 = 0x25;
const MAXIMUM_PACKET: u8 = 0x27;
const SERVER_KEEP_ALIVE: u8 = 0x13;

/// Of a subscription: what is retained is sent if there was no such one before.
const RETAINED_IF_NEW: u8 = 1 << 4;

/// Bytes that are no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(&'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Where a packet lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its kind and flags.
    pub first: u8,
    /// Where its body begins.
    pub from: usize,
    /// The length of its body.
    pub length: usize,
}

/// The packet that begins `bytes`; none if more bytes are needed to tell.
///
/// # Errors
/// A length that never ends.
pub fn head(bytes: &[u8]) -> Result<Option<Head>, Malformed> {
    let Some(first) = bytes.first() else { return Ok(None) };
    let mut length = 0;
    for (at, byte) in bytes.iter().skip(1).take(4).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Ok(Some(Head { first: *first, from: at + 2, length }));
        }
    }
    if bytes.len() > 4 { Err(Malformed("a length of more than four bytes")) } else { Ok(None) }
}

/// What a broker says of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// It has a session under the client's id.
    pub session_present: bool,
    /// Below 0x80 the connection is made.
    pub reason: u8,
    /// What it says to that.
    pub said: String,
    /// How many messages of quality 1 it takes before it has acknowledged them.
    pub receive_max: u16,
    /// The highest quality that it takes.
    pub quality_max: u8,
    /// Whether it retains messages.
    pub retains: bool,
    /// The longest packet that it takes.
    pub packet_max: Option<u32>,
    /// How long it bears silence, seconds, if not as long as was asked for.
    pub keep_alive_s: Option<u16>,
}

/// A message, whose parts lie at these places of its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    /// Its topic, in UTF-8.
    pub topic: Range<usize>,
    /// Where the payload begins, which is the rest.
    pub payload: usize,
    /// Of quality 1: what it is acknowledged by.
    pub id: Option<u16>,
    /// It may have been sent before.
    pub again: bool,
    /// It was retained before there was the subscription.
    pub retained: bool,
}

/// A packet that a client may get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// The answer to CONNECT.
    Accepted(Accepted),
    /// A message.
    Publish(Publish),
    /// A message of ours has come; or a reason from 0x80 why not.
    Acknowledged { id: u16, reason: u8, said: String },
    /// A reason for each filter: the quality granted, or from 0x80 why not.
    Subscribed { reasons: Vec<u8>, said: String },
    /// The answer to a ping.
    Pong,
    /// The broker ends the connection.
    Disconnect { reason: u8, said: String },
}

/// Reads a packet: its first byte, and its body or, of a message, as much of it as has topic and properties.
///
/// # Errors
/// It is none, or one that a client does not get.
pub fn read(first: u8, body: &[u8]) -> Result<Packet, Malformed> {
    let mut fields = Fields { bytes: body, at: 0 };
    match first >> 4 {
        2 => accepted(&mut fields).map(Packet::Accepted),
        3 => publish(first, &mut fields).map(Packet::Publish),
        4 => {
            let id = fields.u16()?;
            let (reason, said) = fields.outcome()?;
            Ok(Packet::Acknowledged { id, reason, said })
        }
        9 => {
            fields.u16()?;
            let mut said = String::new();
            fields.properties(|id, value| note(id, value, &mut said))?;
            Ok(Packet::Subscribed { reasons: fields.rest().to_vec(), said })
        }
        13 => Ok(Packet::Pong),
        14 => {
            let (reason, said) = fields.outcome()?;
            Ok(Packet::Disconnect { reason, said })
        }
        _ => Err(Malformed("a packet that no client asks for")),
    }
}

fn accepted(fields: &mut Fields<'_>) -> Result<Accepted, Malformed> {
    let flags = fields.u8()?;
    let mut accepted = Accepted {
        session_present: flags & 1 != 0,
        reason: fields.u8()?,
        said: String::new(),
        receive_max: u16::MAX,
        quality_max: 2,
        retains: true,
        packet_max: None,
        keep_alive_s: None,
    };
    // A broker of MQTT 3 answers in its own words, without properties.
    if fields.is_empty() {
        return Ok(accepted);
    }
    let mut said = String::new();
    fields.properties(|id, value| match (id, value) {
        (RECEIVE_MAXIMUM, Value::Number(n)) => accepted.receive_max = (n as u16).max(1),
        (MAXIMUM_QOS, Value::Number(n)) => accepted.quality_max = n as u8,
        (RETAIN_AVAILABLE, Value::Number(n)) => accepted.retains = n != 0,
        (MAXIMUM_PACKET, Value::Number(n)) => accepted.packet_max = Some(n),
        (SERVER_KEEP_ALIVE, Value::Number(n)) => accepted.keep_alive_s = Some(n as u16),
        (id, value) => note(id, value, &mut said),
    })?;
    accepted.said = said;
    Ok(accepted)
}

fn publish(first: u8, fields: &mut Fields<'_>) -> Result<Publish, Malformed> {
    let topic = fields.text()?;
    let quality = (first >> 1) & 3;
    if topic.is_empty() {
        return Err(Malformed("a message without a topic"));
    }
    if quality > 1 {
        return Err(Malformed("a message of a quality that was not asked for"));
    }
    let topic = fields.at - topic.len()..fields.at;
    let id = if quality == 1 { Some(fields.u16()?) } else { None };
    fields.properties(|_, _| {})?;
    Ok(Publish { topic, payload: fields.at, id, again: first & 8 != 0, retained: first & 1 != 0 })
}

/// Keeps what a broker says to a reason.
fn note(id: u8, value: Value<'_>, said: &mut String) {
    if let (REASON_STRING, Value::Text(text)) = (id, value) {
        text.clone_into(said);
    }
}

/// The value of a property, as far as anybody here wants it.
enum Value<'a> {
    Number(u32),
    Text(&'a str),
    Other,
}

/// Reads the fields of a body, one after the other.
struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let taken = self.rest().get(..length).ok_or(Malformed("a packet that ends too early"))?;
        self.at += length;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        let bytes = self.take(4)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn length(&mut self) -> Result<usize, Malformed> {
        let mut length = 0;
        for shift in [0, 7, 14, 21] {
            let byte = self.u8()?;
            length |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(length);
            }
        }
        Err(Malformed("a length of more than four bytes"))
    }

    fn binary(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.u16()?;
        self.take(usize::from(length))
    }

    fn text(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.binary()?).map_err(|_| Malformed("a text that is not valid UTF-8"))
    }

    /// Calls `each` with every property.
    fn properties(&mut self, mut each: impl FnMut(u8, Value<'a>)) -> Result<(), Malformed> {
        let length = self.length()?;
        let mut own = Fields { bytes: self.take(length)?, at: 0 };
        while !own.is_empty() {
            let id = own.u8()?;
            let value = match id {
                0x01 | 0x17 | 0x19 | MAXIMUM_QOS | RETAIN_AVAILABLE | 0x28 | 0x29 | 0x2a => Value::Number(own.u8()?.into()),
                SERVER_KEEP_ALIVE | RECEIVE_MAXIMUM | 0x22 | 0x23 => Value::Number(own.u16()?.into()),
                0x02 | SESSION_EXPIRY | 0x18 | MAXIMUM_PACKET => Value::Number(own.u32()?),
                0x03 | 0x08 | 0x12 | 0x15 | 0x1a | 0x1c | REASON_STRING => Value::Text(own.text()?),
                0x09 | 0x16 => {
                    own.binary()?;
                    Value::Other
                }
                0x0b => {
                    own.length()?;
                    Value::Other
                }
                0x26 => {
                    own.binary()?;
                    own.binary()?;
                    Value::Other
                }
                _ => return Err(Malformed("a property that is not known")),
            };
            each(id, value);
        }
        Ok(())
    }

    /// A reason with its properties, which both may be left out.
    fn outcome(&mut self) -> Result<(u8, String), Malformed> {
        let mut said = String::new();
        let reason = if self.is_empty() { 0 } else { self.u8()? };
        if !self.is_empty() {
            self.properties(|id, value| note(id, value, &mut said))?;
        }
        Ok((reason, said))
    }
}

/// How a connection is asked for.
#[derive(Clone, Debug)]
pub struct Connect<'a> {
    /// The name of the session.
    pub client_id: &'a str,
    /// Forgets a session that the broker may have.
    pub clean_start: bool,
    /// How long it keeps the session when the connection is gone, seconds.
    pub expiry_s: u32,
    /// How many messages of quality 1 it may send that are not acknowledged.
    pub receive_max: u16,
    /// How long it bears silence, seconds.
    pub keep_alive_s: u16,
    /// Who asks.
    pub username: Option<&'a str>,
    /// By what it is believed.
    pub password: Option<&'a str>,
}

/// CONNECT.
pub fn connect(out: &mut Vec<u8>, connect: &Connect<'_>) {
    let mut body = Vec::new();
    put_binary(&mut body, b"MQTT");
    let flag = |on: bool, bit: u8| if on { bit } else { 0 };
    body.push(5);
    body.push(flag(connect.clean_start, 0x02) | flag(connect.username.is_some(), 0x80) | flag(connect.password.is_some(), 0x40));
    body.extend(connect.keep_alive_s.to_be_bytes());
    // The length of both properties.
    body.push(8);
    body.push(SESSION_EXPIRY);
    body.extend(connect.expiry_s.to_be_bytes());
    body.push(RECEIVE_MAXIMUM);
    body.extend(connect.receive_max.to_be_bytes());
    put_binary(&mut body, connect.client_id.as_bytes());
    for text in connect.username.iter().chain(&connect.password) {
        put_binary(&mut body, text.as_bytes());
    }
    put(out, 0x10, &body);
}

/// SUBSCRIBE to all filters at once.
pub fn subscribe(out: &mut Vec<u8>, id: u16, filters: &[String], quality: Quality) {
    let mut body = Vec::new();
    body.extend(id.to_be_bytes());
    body.push(0);
    for filter in filters {
        put_binary(&mut body, filter.as_bytes());
        body.push(quality.number() | RETAINED_IF_NEW);
    }
    put(out, 0x82, &body);
}

/// PUBLISH; with an id of quality 1. How many bytes it has behind its head.
pub fn message(out: &mut Vec<u8>, topic: &str, id: Option<u16>, retain: bool, payload: &[u8]) -> usize {
    let (quality, id_bytes) = if id.is_some() { (2, 2) } else { (0, 0) };
    let length = 2 + topic.len() + id_bytes + 1 + payload.len();
    out.reserve(length + 5);
    out.push(0x30 | quality | u8::from(retain));
    put_length(out, length);
    put_binary(out, topic.as_bytes());
    if let Some(id) = id {
        out.extend(id.to_be_bytes());
    }
    out.push(0);
    out.extend_from_slice(payload);
    length
}

/// PUBACK.
pub fn acknowledge(out: &mut Vec<u8>, id: u16) {
    let [high, low] = id.to_be_bytes();
    out.extend([0x40, 2, high, low]);
}

/// PINGREQ.
pub const PING: &[u8] = &[0xc0, 0];

/// DISCONNECT in good order; the session stays as long as was agreed.
pub const GOODBYE: &[u8] = &[0xe0, 0];

fn put(out: &mut Vec<u8>, first: u8, body: &[u8]) {
    out.push(first);
    put_length(out, body.len());
    out.extend_from_slice(body);
}

fn put_length(out: &mut Vec<u8>, mut length: usize) {
    while length > 0x7f {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
}

/// A text or binary value, whose length was checked before.
fn put_binary(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u16).to_be_bytes());
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_one_to_four_bytes() {
        for length in [0, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, BODY_BYTES_MAX] {
            let mut out = vec![0x30];
            put_length(&mut out, length);
            assert_eq!(head(&out), Ok(Some(Head { first: 0x30, from: out.len(), length })));
            assert_eq!(head(&out[..out.len() - 1]), Ok(None));
        }
        assert!(head(&[0x30, 0x80, 0x80, 0x80, 0x80]).is_err());
    }

    #[test]
    fn a_message_there_and_back() {
        for (id, retain) in [(None, false), (Some(258), true)] {
            let mut out = Vec::new();
            let length = message(&mut out, "a/ü", id, retain, b"payload");
            let found = head(&out).unwrap().unwrap();
            assert_eq!((found.length, found.from + length), (length, out.len()));
            let body = &out[found.from..];
            let Ok(Packet::Publish(read)) = read(found.first, body) else { panic!("a message") };
            assert_eq!((&body[read.topic.clone()], &body[read.payload..]), ("a/ü".as_bytes(), &b"payload"[..]));
            assert_eq!((read.id, read.retained, read.again), (id, retain, false));
        }
    }

    #[test]
    fn what_is_no_packet() {
        assert!(read(0x34, &[0, 1, b'a', 0, 1, 0]).is_err(), "quality 2");
        assert!(read(0x30, &[0, 0, 0]).is_err(), "no topic");
        assert!(read(0x30, &[0, 1, 0xff, 0]).is_err(), "no UTF-8");
        assert!(read(0x30, &[0, 9, b'a']).is_err(), "too short");
        assert!(read(0x20, &[0, 0, 2, 0x7f, 0]).is_err(), "an unknown property");
        assert!(read(0x10, &[]).is_err(), "of clients");
    }

    #[test]
    fn what_a_broker_says_of_a_connection() {
        let Ok(Packet::Accepted(plain)) = read(0x20, &[1, 0, 0]) else { panic!("accepted") };
        assert!(plain.session_present && plain.retains && plain.receive_max == u16::MAX && plain.packet_max.is_none());
        let properties =
            [0x21, 0, 20, 0x24, 0, 0x25, 0, 0x27, 0, 0, 1, 0, 0x13, 0, 9, 0x1f, 0, 2, b'n', b'o', 0x26, 0, 1, b'k', 0, 1, b'v'];
        let body = [&[0, 0x87, properties.len() as u8][..], &properties].concat();
        let Ok(Packet::Accepted(full)) = read(0x20, &body) else { panic!("accepted") };
        assert_eq!((full.reason, full.said.as_str(), full.receive_max, full.quality_max), (0x87, "no", 20, 0));
        assert_eq!((full.retains, full.packet_max, full.keep_alive_s), (false, Some(256), Some(9)));
        // MQTT 3.1.1: it does not know this version.
        assert!(matches!(read(0x20, &[0, 1]), Ok(Packet::Accepted(old)) if old.reason == 1));
    }

    #[test]
    fn answers_may_leave_out_what_is_usual() {
        assert_eq!(read(0x40, &[1, 2]), Ok(Packet::Acknowledged { id: 258, reason: 0, said: String::new() }));
        assert_eq!(read(0x40, &[0, 1, 0x10]), Ok(Packet::Acknowledged { id: 1, reason: 0x10, said: String::new() }));
        let said = "x".to_string();
        assert_eq!(read(0x40, &[0, 1, 0x97, 4, 0x1f, 0, 1, b'x']), Ok(Packet::Acknowledged { id: 1, reason: 0x97, said }));
        assert_eq!(read(0x90, &[0, 1, 0, 1, 0x87]), Ok(Packet::Subscribed { reasons: vec![1, 0x87], said: String::new() }));
        assert_eq!(read(0xe0, &[]), Ok(Packet::Disconnect { reason: 0, said: String::new() }));
        assert_eq!(read(0xd0, &[]), Ok(Packet::Pong));
    }

    #[test]
    fn a_connection_is_asked_for() {
        let mut out = Vec::new();
        let password = Some("p");
        let asked =
            Connect { client_id: "id", clean_start: true, expiry_s: 1, receive_max: 2, keep_alive_s: 3, username: Some("u"), password };
        connect(&mut out, &asked);
        let head = [0x10, 29, 0, 4, b'M', b'Q', b'T', b'T', 5, 0xc2, 0, 3, 8, 0x11, 0, 0, 0, 1, 0x21, 0, 2];
        assert_eq!(out, [&head[..], &[0, 2, b'i', b'd', 0, 1, b'u', 0, 1, b'p']].concat());
        out.clear();
        subscribe(&mut out, 1, &["a/#".to_string()], Quality::AtLeastOnce);
        assert_eq!(out, [0x82, 9, 0, 1, 0, 0, 3, b'a', b'/', b'#', 0x11]);
    }
}
