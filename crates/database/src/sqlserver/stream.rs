//! The bytes of a session: a socket, plain or encrypted, in blocking reads and writes.
//!
//! The client is written for asynchronous streams and any of them. Here every read and write waits by itself, so
//! that nothing the client does is ever pending: [`wait`] drives it on the thread that calls, without a runtime.
//! The stream knows where TDS packets and messages end ([MS-TDS] 2.2.3.1) and sends whole messages, or large
//! pieces of them.
//!
//! What is under the client belongs to `bulk`, too, between two of its requests: a [`Pipe`] has two ends on one
//! [`Wire`].

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use futures::io::{AsyncRead, AsyncWrite};
use rustls::ClientConnection;

/// Bytes of a packet's header.
pub(super) const HEADER_BYTES: usize = 8;
/// The bit of a packet's status that ends a message.
pub(super) const END_OF_MESSAGE: u8 = 1;
/// The type of packets before the login; the handshake of TLS is wrapped in them.
pub(super) const PRELOGIN: u8 = 0x12;
/// The type of what the server answers.
pub(super) const ANSWER: u8 = 0x04;
/// The size of packets until something else is agreed upon.
pub(super) const PACKET_BYTES: usize = 4096;
/// Bytes after which a part of a message is sent.
const PIECE_BYTES: usize = 64 << 10;
/// The longest answer that is kept as a whole: those to logins and bulk loads have a few hundred bytes.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// What the client's greeting gets for an answer, a packet: a version, and that there is nothing to encrypt. The
/// real greeting is over by then.
const GREETED: [u8; 26] = [ANSWER, END_OF_MESSAGE, 0, 26, 0, 0, 1, 0, 0, 0, 11, 0, 6, 1, 0, 17, 0, 1, 0xFF, 12, 0, 0, 0, 0, 0, 2];

/// Drives what only waits within its reads and writes.
pub(super) fn wait<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        // Nothing is pending for long: the client yields at most for fairness.
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return done;
        }
    }
}

/// A socket, with the wrapping of TLS's handshake while that lasts.
pub(super) struct Link {
    pub socket: TcpStream,
    /// Bytes go in packets of type [`PRELOGIN`].
    pub wrapped: bool,
    /// Bytes of the packet that is being read.
    left: usize,
    /// Bytes to go into packets.
    out: Vec<u8>,
    /// When the login must be over.
    pub deadline: Option<Instant>,
}

impl Link {
    pub fn new(socket: TcpStream, deadline: Instant) -> Self {
        Link { socket, wrapped: false, left: 0, out: Vec::new(), deadline: Some(deadline) }
    }

    /// Lets the next read or write take as long as there is time.
    fn limit(&self) -> io::Result<()> {
        let Some(deadline) = self.deadline else { return Ok(()) };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.set_read_timeout(Some(left))?;
        self.socket.set_write_timeout(Some(left))
    }

    /// Lets reads and writes take as long as they take.
    pub fn unlimited(&mut self) -> io::Result<()> {
        self.deadline = None;
        self.socket.set_read_timeout(None)?;
        self.socket.set_write_timeout(None)
    }
}

impl Read for Link {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.limit()?;
        if !self.wrapped {
            return self.socket.read(buffer);
        }
        if self.left == 0 {
            let mut header = [0; HEADER_BYTES];
            self.socket.read_exact(&mut header)?;
            let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
            self.left = length.saturating_sub(HEADER_BYTES);
            if !matches!(header[0], PRELOGIN | ANSWER) || self.left == 0 {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the server breaks the handshake of TLS off"));
            }
        }
        let most = self.left.min(buffer.len());
        let read = self.socket.read(&mut buffer[..most])?;
        self.left -= read;
        Ok(read)
    }
}

impl Write for Link {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.wrapped {
            self.out.extend_from_slice(bytes);
            return Ok(bytes.len());
        }
        self.limit()?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        let out = std::mem::take(&mut self.out);
        let mut parts = out.chunks(PACKET_BYTES - HEADER_BYTES).peekable();
        while let Some(part) = parts.next() {
            self.limit()?;
            let status = if parts.peek().is_none() { END_OF_MESSAGE } else { 0 };
            self.socket.write_all(&[&header(PRELOGIN, status, part.len(), 1)[..], part].concat())?;
        }
        self.socket.flush()
    }
}

/// The header of a packet with so many bytes behind it.
pub(super) fn header(kind: u8, status: u8, bytes: usize, number: u8) -> [u8; HEADER_BYTES] {
    let [high, low] = ((bytes + HEADER_BYTES) as u16).to_be_bytes();
    [kind, status, high, low, 0, 0, number, 0]
}

/// Follows where messages end in a run of bytes.
#[derive(Default)]
struct Packets {
    header: [u8; HEADER_BYTES],
    /// Bytes of the header so far.
    have: usize,
    /// Bytes of the packet to come.
    left: usize,
}

impl Packets {
    /// How many of `bytes` belong to the message under way, and whether it ends with them.
    fn take(&mut self, bytes: &[u8]) -> (usize, bool) {
        let mut at = 0;
        while at < bytes.len() {
            if self.have < HEADER_BYTES {
                self.header[self.have] = bytes[at];
                self.have += 1;
                at += 1;
                if self.have == HEADER_BYTES {
                    let length = u16::from_be_bytes([self.header[2], self.header[3]]);
                    self.left = usize::from(length).saturating_sub(HEADER_BYTES);
                }
            } else {
                let most = self.left.min(bytes.len() - at);
                self.left -= most;
                at += most;
            }
            if self.have == HEADER_BYTES && self.left == 0 {
                self.have = 0;
                if self.header[1] & END_OF_MESSAGE != 0 {
                    return (at, true);
                }
            }
        }
        (at, false)
    }
}

/// How far a session has come.
enum State {
    /// The client greets, and gets [`GREETED`].
    Greeting,
    /// The client logs in.
    Login,
    /// The server answers, and the answer is kept.
    Answer(Packets),
    Open,
}

/// See the module.
pub(super) struct Wire {
    link: Link,
    tls: Option<ClientConnection>,
    /// Encryption ends with the login.
    only_login: bool,
    state: State,
    outgoing: Packets,
    out: Vec<u8>,
    /// What the client reads before anything from the socket.
    answer: &'static [u8],
    /// The server's answer to the login, packets and all.
    login_answer: Vec<u8>,
}

impl Wire {
    /// Over a link on which the greeting is done. `only_login`: encryption ends with the login.
    pub fn new(link: Link, tls: Option<ClientConnection>, only_login: bool) -> Self {
        let (outgoing, out) = (Packets::default(), Vec::new());
        Wire { link, tls, only_login, state: State::Greeting, outgoing, out, answer: &[], login_answer: Vec::new() }
    }

    /// Ends the time of the login; what the server answered to it, without the headers of packets.
    ///
    /// # Errors
    /// Of the socket.
    pub fn logged_in(&mut self) -> io::Result<Vec<u8>> {
        self.state = State::Open;
        self.link.unlimited()?;
        let (packets, mut payload) = (std::mem::take(&mut self.login_answer), Vec::new());
        let mut rest = packets.as_slice();
        while rest.len() >= HEADER_BYTES {
            let length = usize::from(u16::from_be_bytes([rest[2], rest[3]])).clamp(HEADER_BYTES, rest.len());
            payload.extend_from_slice(&rest[HEADER_BYTES..length]);
            rest = &rest[length..];
        }
        Ok(payload)
    }

    /// Adds bytes to what is to be sent, and sends it if it is much.
    ///
    /// # Errors
    /// Of the socket.
    pub fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.extend_from_slice(bytes);
        if self.out.len() >= PIECE_BYTES { self.send() } else { Ok(()) }
    }

    /// Sends what there is.
    ///
    /// # Errors
    /// Of the socket.
    pub fn send(&mut self) -> io::Result<()> {
        match &mut self.tls {
            Some(tls) => {
                let mut stream = rustls::Stream::new(tls, &mut self.link);
                stream.write_all(&self.out)?;
                stream.flush()?;
            }
            None => {
                self.link.write_all(&self.out)?;
                self.link.flush()?;
            }
        }
        self.out.clear();
        Ok(())
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.answer.is_empty() {
            return self.answer.read(buffer);
        }
        let read = match &mut self.tls {
            Some(tls) => rustls::Stream::new(tls, &mut self.link).read(buffer)?,
            None => self.link.read(buffer)?,
        };
        if let State::Answer(packets) = &mut self.state {
            let (taken, ended) = packets.take(&buffer[..read]);
            self.login_answer.extend_from_slice(&buffer[..taken]);
            if ended || self.login_answer.len() > MESSAGE_BYTES_MAX {
                self.state = State::Open;
            }
        }
        Ok(read)
    }

    fn read_exact(&mut self, mut buffer: &mut [u8]) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.read(buffer)? {
                0 => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server has closed the connection")),
                read => buffer = &mut buffer[read..],
            }
        }
        Ok(())
    }

    /// The payload of the next message from the server.
    ///
    /// # Errors
    /// Of the socket; a message longer than any that is awaited.
    pub fn message(&mut self) -> io::Result<Vec<u8>> {
        let mut payload = Vec::new();
        loop {
            let mut header = [0; HEADER_BYTES];
            self.read_exact(&mut header)?;
            let length = usize::from(u16::from_be_bytes([header[2], header[3]])).saturating_sub(HEADER_BYTES);
            let from = payload.len();
            payload.resize(from + length, 0);
            self.read_exact(&mut payload[from..])?;
            if header[1] & END_OF_MESSAGE != 0 {
                return Ok(payload);
            }
            if payload.len() > MESSAGE_BYTES_MAX {
                return Err(io::Error::other("the server's answer has no end"));
            }
        }
    }

    /// Takes bytes of the client's; how many.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (taken, ended) = self.outgoing.take(bytes);
        if !matches!(self.state, State::Greeting) {
            self.put(&bytes[..taken])?;
        }
        if !ended {
            return Ok(taken);
        }
        match self.state {
            State::Greeting => {
                self.answer = &GREETED;
                self.state = State::Login;
            }
            State::Login => {
                self.send()?;
                if self.only_login {
                    self.tls = None;
                }
                self.state = State::Answer(Packets::default());
            }
            State::Answer(_) | State::Open => self.send()?,
        }
        Ok(taken)
    }
}

/// One end on a [`Wire`].
#[derive(Clone)]
pub(super) struct Pipe(Arc<Mutex<Wire>>);

impl Pipe {
    pub fn new(wire: Wire) -> Self {
        Pipe(Arc::new(Mutex::new(wire)))
    }

    pub fn wire(&self) -> MutexGuard<'_, Wire> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsyncRead for Pipe {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(self.wire().read(buffer))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(self.wire().write(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A message is sent when it is complete.
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_end_where_their_packets_say() {
        let packet = |status: u8, bytes: &[u8]| [&header(1, status, bytes.len(), 0)[..], bytes].concat();
        let bytes = [packet(0, b"abc"), packet(1, b"de"), packet(1, b"")].concat();
        for piece in [1, 3, 8, 100] {
            let (mut packets, mut ends, mut at) = (Packets::default(), Vec::new(), 0);
            while at < bytes.len() {
                let (taken, ended) = packets.take(&bytes[at..bytes.len().min(at + piece)]);
                at += taken;
                if ended {
                    ends.push(at);
                }
            }
            assert_eq!(ends, [21, 29], "in pieces of {piece}");
        }
    }
}
