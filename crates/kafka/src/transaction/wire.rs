//! The few requests of Kafka's protocol that ending a transaction takes which another process began:
//! librdkafka has no call for that. Written by the protocol's published message definitions, in the
//! oldest versions that brokers from 0.11 to 4 have in common.
//!
//! Encryption and logging in are those of [`crate::access`].

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::access::{Access, Login, Stream};

/// The largest answer that is read, bytes: of many thousand transactions.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Requests by their keys.
const METADATA: i16 = 3;
const FIND_COORDINATOR: i16 = 10;
const SASL_HANDSHAKE: i16 = 17;
const API_VERSIONS: i16 = 18;
const INIT_PRODUCER_ID: i16 = 22;
const END_TXN: i16 = 26;
const SASL_AUTHENTICATE: i16 = 36;
const LIST_TRANSACTIONS: i16 = 66;

/// Errors of brokers by their codes.
pub mod code {
    /// None.
    pub const NONE: i16 = 0;
    /// The coordinator is reading its log.
    pub const COORDINATOR_LOADING: i16 = 14;
    /// There is no coordinator at the moment.
    pub const COORDINATOR_NOT_AVAILABLE: i16 = 15;
    /// It has moved.
    pub const NOT_COORDINATOR: i16 = 16;
    /// The epoch is an older one.
    pub const INVALID_PRODUCER_EPOCH: i16 = 47;
    /// There is no such transaction under way.
    pub const INVALID_TXN_STATE: i16 = 48;
    /// The producer is not known.
    pub const INVALID_PRODUCER_ID_MAPPING: i16 = 49;
    /// The transaction before is still being ended.
    pub const CONCURRENT_TRANSACTIONS: i16 = 51;
    /// The user has no right to the id.
    pub const TRANSACTIONAL_ID_AUTHORIZATION_FAILED: i16 = 53;
    /// As the epoch being an older one.
    pub const PRODUCER_FENCED: i16 = 90;

    /// Whether to try again in a moment.
    pub fn passing(code: i16) -> bool {
        matches!(code, COORDINATOR_LOADING | COORDINATOR_NOT_AVAILABLE | NOT_COORDINATOR | CONCURRENT_TRANSACTIONS)
    }
}

/// A connection to a broker.
pub struct Broker {
    stream: Stream,
    place: String,
    correlation: i32,
}

/// A transaction as a broker lists it.
#[derive(Debug, PartialEq, Eq)]
pub struct Listed {
    /// The transactional id.
    pub id: String,
    /// `Ongoing`, `CompleteCommit`, …
    pub state: String,
}

impl Broker {
    /// Connects to `host:port` and logs in.
    ///
    /// # Errors
    /// What failed, with the address.
    pub fn connect(address: &str, access: &Access) -> Result<Self, String> {
        let wrong = |e: std::io::Error| format!("{address}: {e}");
        let timeout = access.timeout.clamp(Duration::from_secs(1), Duration::from_secs(30));
        let mut failure = format!("{address}: the host has no address");
        for one in address.to_socket_addrs().map_err(wrong)? {
            match TcpStream::connect_timeout(&one, timeout) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(timeout)).and_then(|()| stream.set_write_timeout(Some(timeout))).map_err(wrong)?;
                    stream.set_nodelay(true).map_err(wrong)?;
                    let stream = access.over(stream, address)?;
                    let mut broker = Broker { stream, place: address.to_string(), correlation: 0 };
                    if let Some(login) = access.login() {
                        broker.log_in(login)?;
                    }
                    return Ok(broker);
                }
                Err(e) => failure = wrong(e),
            }
        }
        Err(failure)
    }

    /// Connects to any of the servers, again and again until `deadline`.
    ///
    /// # Errors
    /// None answers; the text has the last failure.
    pub fn any(servers: &str, access: &Access, deadline: Instant) -> Result<Self, String> {
        loop {
            let mut failure = "no server is named".to_string();
            for server in servers.split(',').map(str::trim).filter(|s| !s.is_empty()) {
                // Without a port it is Kafka's; a protocol in front is ours already.
                let server = server.rsplit_once("://").map_or(server, |(_, rest)| rest);
                let address = if server.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
                    server.to_string()
                } else {
                    format!("{server}:9092")
                };
                match Broker::connect(&address, access) {
                    Ok(broker) => return Ok(broker),
                    Err(e) => failure = e,
                }
            }
            if Instant::now() >= deadline {
                return Err(failure);
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// The connection, for other requests than these, and the place it leads to.
    ///
    /// # Errors
    /// It is encrypted.
    pub fn into_socket(self) -> Result<(TcpStream, String), String> {
        match self.stream {
            Stream::Plain(stream) => Ok((stream, self.place)),
            Stream::Encrypted(_) => Err(format!("{}: what is encrypted is read with librdkafka", self.place)),
        }
    }

    fn log_in(&mut self, login: &Login) -> Result<(), String> {
        let mechanism = login.mechanism();
        let mut answer = self.ask(SASL_HANDSHAKE, 1, Body::default().text(mechanism))?;
        if answer.i16()? != code::NONE {
            return Err(format!("{}: the broker does not know SASL/{mechanism}", self.place));
        }
        let place = self.place.clone();
        login.talk(|token| self.authenticate(token)).map_err(|why| format!("{place}: logging in as '{}': {why}", login.user()))
    }

    /// The broker's answer to a token.
    fn authenticate(&mut self, token: &[u8]) -> Result<Vec<u8>, String> {
        let mut answer = self.ask(SASL_AUTHENTICATE, 0, Body::default().bytes(token))?;
        let code = answer.i16()?;
        let why = answer.nullable()?;
        if code != code::NONE {
            return Err(why.unwrap_or_else(|| format!("error {code} of the broker")));
        }
        let length = usize::try_from(answer.i32()?).unwrap_or(0);
        answer.take(length).map(<[u8]>::to_vec)
    }

    /// The address of the broker that is responsible for a transactional id.
    ///
    /// # Errors
    /// The outer one is the connection's; the inner one is the broker's code.
    pub fn coordinator(&mut self, id: &str) -> Result<Result<String, i16>, String> {
        const TRANSACTION: i8 = 1;
        let mut answer = self.ask(FIND_COORDINATOR, 1, Body::default().text(id).i8(TRANSACTION))?;
        let _throttled = answer.i32()?;
        let code = answer.i16()?;
        let _why = answer.nullable()?;
        let _node = answer.i32()?;
        // Null where there is none.
        let host = answer.nullable()?.unwrap_or_default();
        let port = answer.i32()?;
        Ok(if code == code::NONE { Ok(format!("{host}:{port}")) } else { Err(code) })
    }

    /// Commits a transaction that its producer has left; the broker's code.
    ///
    /// # Errors
    /// The connection's.
    pub fn commit(&mut self, id: &str, producer: i64, epoch: i16) -> Result<i16, String> {
        const COMMIT: i8 = 1;
        let mut answer = self.ask(END_TXN, 1, Body::default().text(id).i64(producer).i16(epoch).i8(COMMIT))?;
        let _throttled = answer.i32()?;
        answer.i16()
    }

    /// Takes an id over, which aborts its open transaction and cuts off its producer; the broker's code.
    ///
    /// # Errors
    /// The connection's.
    pub fn take_over(&mut self, id: &str, timeout_ms: i32) -> Result<i16, String> {
        let mut answer = self.ask(INIT_PRODUCER_ID, 1, Body::default().text(id).i32(timeout_ms))?;
        let _throttled = answer.i32()?;
        answer.i16()
    }

    /// The addresses of all brokers.
    ///
    /// # Errors
    /// The connection's.
    pub fn brokers(&mut self) -> Result<Vec<String>, String> {
        // An empty list of topics: none of them is wanted.
        let mut answer = self.ask(METADATA, 1, Body::default().i32(0))?;
        let count = answer.i32()?;
        let mut found = Vec::new();
        for _ in 0..count {
            let _node = answer.i32()?;
            let host = answer.text()?;
            let port = answer.i32()?;
            let _rack = answer.nullable()?;
            found.push(format!("{host}:{port}"));
        }
        Ok(found)
    }

    /// The transactions that this broker is responsible for; none if it is too old to list them.
    ///
    /// # Errors
    /// The outer one is the connection's; the inner one is the broker's code.
    pub fn transactions(&mut self) -> Result<Result<Vec<Listed>, i16>, String> {
        if !self.knows(LIST_TRANSACTIONS)? {
            return Ok(Ok(Vec::new()));
        }
        // Two empty filters, in the form that has lengths one more than they are; no tags.
        let mut answer = self.send(LIST_TRANSACTIONS, 0, true, &[1, 1, 0])?;
        answer.tags()?;
        let _throttled = answer.i32()?;
        let code = answer.i16()?;
        if code != code::NONE {
            return Ok(Err(code));
        }
        for _ in 1..answer.varint()? {
            let _unknown = answer.compact()?;
        }
        let mut found = Vec::new();
        for _ in 1..answer.varint()? {
            let id = answer.compact()?;
            let _producer = answer.take(8)?;
            let state = answer.compact()?;
            answer.tags()?;
            found.push(Listed { id, state });
        }
        Ok(Ok(found))
    }

    fn knows(&mut self, request: i16) -> Result<bool, String> {
        let mut answer = self.ask(API_VERSIONS, 0, Body::default())?;
        if answer.i16()? != code::NONE {
            return Ok(false);
        }
        let count = answer.i32()?;
        for _ in 0..count {
            let (key, min, _max) = (answer.i16()?, answer.i16()?, answer.i16()?);
            if key == request {
                return Ok(min <= 0);
            }
        }
        Ok(false)
    }

    fn ask(&mut self, key: i16, version: i16, body: Body) -> Result<Answer, String> {
        self.send(key, version, false, &body.0)
    }

    /// Sends a request and reads its answer. `tagged`: the header has tags, as those of newer requests.
    fn send(&mut self, key: i16, version: i16, tagged: bool, body: &[u8]) -> Result<Answer, String> {
        self.correlation += 1;
        let mut request = Body::default().i16(key).i16(version).i32(self.correlation).text("tidemill").0;
        if tagged {
            request.push(0);
        }
        request.extend_from_slice(body);
        let length = u32::try_from(request.len()).expect("requests are short");
        let place = self.place.clone();
        let wrong = |e: std::io::Error| format!("{place}: {e}");
        self.stream.write_all(&[&length.to_be_bytes()[..], &request].concat()).map_err(wrong)?;
        self.stream.flush().map_err(wrong)?;
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).map_err(wrong)?;
        let length = u32::from_be_bytes(length) as usize;
        if !(4..=ANSWER_BYTES_MAX).contains(&length) {
            return Err(format!("{place}: an answer of {length} bytes; is this a broker, and its port one without TLS?"));
        }
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).map_err(wrong)?;
        let mut answer = Answer { bytes, at: 0, place };
        if answer.i32()? != self.correlation {
            return Err(format!("{}: an answer to another request", self.place));
        }
        Ok(answer)
    }
}

/// The body of a request being written.
#[derive(Default)]
pub struct Body(pub Vec<u8>);

impl Body {
    /// A number of 8 bits.
    pub fn i8(mut self, n: i8) -> Self {
        self.0.push(n as u8);
        self
    }
    /// A number of 16 bits.
    pub fn i16(mut self, n: i16) -> Self {
        self.0.extend_from_slice(&n.to_be_bytes());
        self
    }
    /// A number of 32 bits.
    pub fn i32(mut self, n: i32) -> Self {
        self.0.extend_from_slice(&n.to_be_bytes());
        self
    }
    /// A number of 64 bits.
    pub fn i64(mut self, n: i64) -> Self {
        self.0.extend_from_slice(&n.to_be_bytes());
        self
    }
    /// With its length in front, 16 bits.
    pub fn text(mut self, text: &str) -> Self {
        let length = i16::try_from(text.len()).unwrap_or(i16::MAX);
        self = self.i16(length);
        self.0.extend_from_slice(&text.as_bytes()[..length as usize]);
        self
    }
    /// With their length in front, 32 bits.
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self = self.i32(bytes.len() as i32);
        self.0.extend_from_slice(bytes);
        self
    }
}

/// An answer being read.
struct Answer {
    bytes: Vec<u8>,
    at: usize,
    place: String,
}

impl Answer {
    fn take(&mut self, count: usize) -> Result<&[u8], String> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or_else(|| format!("{}: an answer that breaks off", self.place))?;
        let piece = &self.bytes[self.at..end];
        self.at = end;
        Ok(piece)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        Ok(self.take(N)?.try_into().expect("as many as were asked for"))
    }

    fn i16(&mut self) -> Result<i16, String> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    fn i32(&mut self) -> Result<i32, String> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    fn string(&mut self, length: usize) -> Result<String, String> {
        Ok(String::from_utf8_lossy(self.take(length)?).into_owned())
    }

    fn nullable(&mut self) -> Result<Option<String>, String> {
        match self.i16()? {
            length if length < 0 => Ok(None),
            length => self.string(length as usize).map(Some),
        }
    }

    fn text(&mut self) -> Result<String, String> {
        Ok(self.nullable()?.unwrap_or_default())
    }

    /// A number in groups of seven bits, the lowest first.
    fn varint(&mut self) -> Result<u32, String> {
        let mut value = 0;
        for shift in (0..32).step_by(7) {
            let byte = self.array::<1>()?[0];
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(format!("{}: a number that does not end", self.place))
    }

    /// A text with its length plus one in front.
    fn compact(&mut self) -> Result<String, String> {
        match self.varint()? {
            0 => Ok(String::new()),
            length => self.string(length as usize - 1),
        }
    }

    fn tags(&mut self) -> Result<(), String> {
        for _ in 0..self.varint()? {
            let _tag = self.varint()?;
            let length = self.varint()?;
            self.take(length as usize)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(bytes: &[u8]) -> Answer {
        Answer { bytes: bytes.to_vec(), at: 0, place: "here".into() }
    }

    #[test]
    fn requests_are_bytes_of_the_protocol() {
        let body = Body::default().text("ab").i64(5).i16(1).i8(1).0;
        assert_eq!(body, [0, 2, b'a', b'b', 0, 0, 0, 0, 0, 0, 0, 5, 0, 1, 1]);
        assert_eq!(Body::default().bytes(b"x").0, [0, 0, 0, 1, b'x']);
    }

    #[test]
    fn answers_are_read_and_never_past_their_end() {
        assert_eq!(answer(&[0xff, 0xff]).nullable(), Ok(None));
        assert_eq!(answer(&[0, 2, b'a', b'b']).nullable(), Ok(Some("ab".into())));
        assert_eq!(answer(&[0xac, 0x02]).varint(), Ok(300));
        assert_eq!(answer(&[3, b'a', b'b']).compact(), Ok("ab".into()));
        assert!(answer(&[1, 0, 2, 9, 9]).tags().is_ok());
        assert!(answer(&[0, 5, b'a']).nullable().unwrap_err().contains("breaks off"));
        assert!(answer(&[0xff; 6]).varint().is_err());
    }
}
