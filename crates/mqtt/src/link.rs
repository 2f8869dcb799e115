//! A connection to a broker: bytes in and out, and whether it is still there.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::packet::{Head, Malformed, PING, head};

/// How much is read at once, bytes.
pub const READ_BYTES: usize = 64 << 10;

/// The bytes of a connection, plain or encrypted.
pub trait Duplex: Read + Write + Send {}

impl<T: Read + Write + Send> Duplex for T {}

/// A connection.
pub struct Link {
    stream: Box<dyn Duplex>,
    /// The socket below it.
    tcp: TcpStream,
    /// The timeout of reads that is set now.
    timeout: Option<Duration>,
    /// What has come and was not looked at.
    received: Vec<u8>,
    /// What comes next and is part of something that is passed over, bytes.
    skip: usize,
    keep_alive: Duration,
    /// When something was last sent.
    sent: Instant,
    /// A ping was sent then, and nothing has come since.
    asked: Option<Instant>,
}

impl Link {
    /// Over `stream`, whose socket is `tcp`.
    pub fn new(stream: Box<dyn Duplex>, tcp: TcpStream, keep_alive: Duration) -> Self {
        Link { stream, tcp, timeout: None, received: Vec::new(), skip: 0, keep_alive, sent: Instant::now(), asked: None }
    }

    /// The broker bears silence for so long, and not as long as was asked for.
    pub fn set_keep_alive(&mut self, keep_alive: Duration) {
        self.keep_alive = keep_alive;
    }

    /// What has come and was not looked at.
    pub fn received(&self) -> &[u8] {
        &self.received
    }

    /// The packet at `at` of what has come; none while its head is not there.
    ///
    /// # Errors
    /// It is none.
    pub fn head(&self, at: usize) -> Result<Option<Head>, Malformed> {
        let found = head(&self.received[at..])?;
        Ok(found.map(|found| Head { from: at + found.from, ..found }))
    }

    /// Forgets the first bytes of what has come.
    pub fn drop_first(&mut self, bytes: usize) {
        self.received.drain(..bytes);
    }

    /// The first bytes of what has come, which are then forgotten.
    pub fn take_first(&mut self, bytes: usize) -> Vec<u8> {
        // What is held by somebody else shall not be much larger than what is in it.
        if bytes < self.received.capacity() / 2 {
            let taken = self.received[..bytes].to_vec();
            self.drop_first(bytes);
            return taken;
        }
        let rest = self.received.split_off(bytes);
        std::mem::replace(&mut self.received, rest)
    }

    /// Passes over that many bytes behind what has come.
    pub fn skip(&mut self, bytes: usize) {
        self.skip += bytes;
    }

    /// Reads what comes, for which it waits that long, or not at all; whether something came.
    ///
    /// # Errors
    /// The connection is broken, or its end has come.
    pub fn fill(&mut self, wait: Option<Duration>) -> io::Result<bool> {
        let from = self.received.len();
        self.received.resize(from + READ_BYTES, 0);
        let read = match wait {
            Some(wait) => self.waiting(wait).and_then(|()| self.stream.read(&mut self.received[from..])),
            None => self.at_once(from),
        };
        let came = read.as_ref().map_or(0, |came| *came);
        self.received.truncate(from + came);
        match read {
            Ok(0) => Err(io::Error::new(ErrorKind::UnexpectedEof, "the broker has closed the connection")),
            Ok(_) => {
                self.asked = None;
                let skipped = self.skip.min(came);
                self.skip -= skipped;
                self.received.drain(from..from + skipped);
                Ok(true)
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn waiting(&mut self, wait: Duration) -> io::Result<()> {
        if self.timeout != Some(wait) {
            self.tcp.set_read_timeout(Some(wait))?;
            self.timeout = Some(wait);
        }
        Ok(())
    }

    fn at_once(&mut self, from: usize) -> io::Result<usize> {
        self.tcp.set_nonblocking(true)?;
        let read = self.stream.read(&mut self.received[from..]);
        self.tcp.set_nonblocking(false)?;
        read
    }

    /// Sends bytes, whole packets.
    ///
    /// # Errors
    /// The connection is broken, or the broker takes nothing for long.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).and_then(|()| self.stream.flush()).map_err(|e| match e.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => io::Error::new(ErrorKind::TimedOut, "the broker takes no bytes"),
            _ => e,
        })?;
        self.sent = Instant::now();
        Ok(())
    }

    /// Says that we are there if nothing was said for long, and looks whether the broker is, which answers if it was asked.
    ///
    /// # Errors
    /// The broker does not answer; as [`Link::send`].
    pub fn tend(&mut self) -> io::Result<()> {
        if self.asked.is_some_and(|asked| asked.elapsed() >= self.keep_alive) {
            return Err(io::Error::new(ErrorKind::TimedOut, "the broker does not answer within 'keep-alive'"));
        }
        self.ping()
    }

    /// The same where nothing is read, so that an answer cannot be seen.
    ///
    /// # Errors
    /// As [`Link::send`].
    pub fn tend_unread(&mut self) -> io::Result<()> {
        let said = self.ping();
        self.asked = None;
        said
    }

    fn ping(&mut self) -> io::Result<()> {
        // Half of the time that the broker bears: it takes a while until it hears of us.
        if self.sent.elapsed() >= self.keep_alive / 2 {
            self.send(PING)?;
            self.asked.get_or_insert_with(Instant::now);
        }
        Ok(())
    }
}
