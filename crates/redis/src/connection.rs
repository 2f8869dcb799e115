//! One connection to a server: dialled, logged in, and what its answers mean to who waits for them.

use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustls::{ClientConnection, StreamOwned};
use tidemill_connect::ConnectError;
use tidemill_connect::socket::alive;

use crate::address::{Address, Place};
use crate::resp::{self, Head, Reply};

/// How long a server may be silent that owes an answer, or takes no bytes: then it counts as gone.
pub const SILENCE: Duration = Duration::from_secs(30);
/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;
/// Errors of servers that may not last: they load their data, are becoming replicas or masters, or are full of clients.
const PASSING: [&str; 8] =
    ["LOADING", "MASTERDOWN", "READONLY", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "ERR max number of clients"];

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The server is away or not ready; another attempt may do it.
    Away(String),
    /// The same would come of another attempt.
    Refused(String),
}

impl Trouble {
    /// What an error of a server means.
    pub fn of_answer(text: &str) -> Self {
        if PASSING.iter().any(|code| text.starts_with(code)) {
            return Trouble::Away(format!("the server answers: {text}"));
        }
        let hint = match text.split(' ').next().unwrap_or_default() {
            "WRONGPASS" => "; check 'username' and 'password'",
            "NOAUTH" => "; set 'password'",
            "NOPERM" => "; the user needs the right to this command and key (ACL)",
            "WRONGTYPE" => "; the key holds something else than a stream",
            "OOM" => "; raise the server's maxmemory, or have the stream trimmed ('sink.max-length', 'sink.retention')",
            "MOVED" | "ASK" | "CROSSSLOT" => "; clusters are not supported: name a server that has the stream and is in none",
            _ => "",
        };
        Trouble::Refused(format!("the server answers: {text}{hint}"))
    }

    /// What an error of a connection means.
    fn of_io(doing: &str, error: &io::Error) -> Self {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Trouble::Away(format!("{doing}: the server does not answer")),
            ErrorKind::UnexpectedEof => Trouble::Away(format!("{doing}: the server has closed the connection")),
            // A certificate that does not fit, and what is no Redis, are the same the next time.
            ErrorKind::InvalidData => Trouble::Refused(format!("{doing}: {error}")),
            _ => Trouble::Away(format!("{doing}: {error}")),
        }
    }

    /// What went wrong.
    pub fn why(&self) -> &str {
        match self {
            Trouble::Away(why) | Trouble::Refused(why) => why,
        }
    }
}

/// An answer of an unexpected kind.
pub fn unexpected(command: &str, reply: &Reply) -> Trouble {
    let shown: String = format!("{reply:?}").chars().take(100).collect();
    Trouble::Refused(format!("{command}: an answer that is none: {shown}"))
}

/// The bytes of a connection.
enum Transport {
    Tcp(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
    Unix(UnixStream),
}

impl Read for Transport {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Transport::Tcp(stream) => stream.read(buffer),
            Transport::Tls(stream) => stream.read(buffer),
            Transport::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Transport {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Transport::Tcp(stream) => stream.write(bytes),
            Transport::Tls(stream) => stream.write(bytes),
            Transport::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Transport::Tcp(stream) => stream.flush(),
            Transport::Tls(stream) => stream.flush(),
            Transport::Unix(stream) => stream.flush(),
        }
    }
}

/// Cuts a connection that another thread waits at.
pub enum Cutter {
    /// Over TCP, encrypted or not.
    Tcp(TcpStream),
    /// Of this machine.
    Unix(UnixStream),
}

impl Cutter {
    /// Ends the connection: whoever reads from it or writes to it is told so.
    pub fn cut(&self) {
        // It may be gone already.
        let _ = match self {
            Cutter::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Cutter::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

/// A connection that is logged in.
pub struct Connection {
    stream: BufReader<Transport>,
}

impl Connection {
    /// Connects and logs in.
    ///
    /// # Errors
    /// The server does not answer, or refuses.
    pub fn open(address: &Address) -> Result<Self, Trouble> {
        let transport = dial(address).map_err(|e| Trouble::of_io("connecting", &e))?;
        let mut connection = Connection { stream: BufReader::with_capacity(READ_BYTES, transport) };
        if let Some(password) = &address.password {
            let password = password.reveal().as_bytes();
            match &address.username {
                Some(name) => connection.ask(&[b"AUTH", name.as_bytes(), password])?,
                None => connection.ask(&[b"AUTH", password])?,
            };
        }
        if address.database != 0 {
            connection.ask(&[b"SELECT", address.database.to_string().as_bytes()])?;
        }
        // A server that wants a password says so to the first command; who may not send this one is logged in.
        match connection.ask(&[b"PING"]) {
            Err(Trouble::Refused(why)) if why.contains("NOPERM") => {}
            other => drop(other?),
        }
        connection.silence(SILENCE).map_err(|e| Trouble::of_io("connecting", &e))?;
        Ok(connection)
    }

    /// How long the server may be silent from now on.
    fn silence(&self, longest: Duration) -> io::Result<()> {
        match self.stream.get_ref() {
            Transport::Tcp(stream) => stream.set_read_timeout(Some(longest)),
            Transport::Tls(stream) => stream.sock.set_read_timeout(Some(longest)),
            Transport::Unix(stream) => stream.set_read_timeout(Some(longest)),
        }
    }

    /// What cuts it.
    ///
    /// # Errors
    /// The system has no more descriptors.
    pub fn cutter(&self) -> Result<Cutter, Trouble> {
        let cutter = match self.stream.get_ref() {
            Transport::Tcp(stream) => stream.try_clone().map(Cutter::Tcp),
            Transport::Tls(stream) => stream.sock.try_clone().map(Cutter::Tcp),
            Transport::Unix(stream) => stream.try_clone().map(Cutter::Unix),
        };
        cutter.map_err(|e| Trouble::of_io("connecting", &e))
    }

    /// Sends commands.
    ///
    /// # Errors
    /// The connection broke.
    pub fn send(&mut self, commands: &[u8]) -> Result<(), Trouble> {
        let stream = self.stream.get_mut();
        stream.write_all(commands).and_then(|()| stream.flush()).map_err(|e| Trouble::of_io("sending", &e))
    }

    /// Waits for an answer, which may be an error of the server.
    ///
    /// # Errors
    /// The connection broke.
    pub fn receive(&mut self) -> Result<Reply, Trouble> {
        resp::read_reply(&mut self.stream).map_err(|e| Trouble::of_io("waiting for an answer", &e))
    }

    /// Waits for the beginning of an answer.
    ///
    /// # Errors
    /// The connection broke.
    pub fn receive_head(&mut self) -> Result<Head, Trouble> {
        resp::read_head(&mut self.stream).map_err(|e| Trouble::of_io("waiting for an answer", &e))
    }

    /// Appends the bytes behind a [`Head::Bulk`].
    ///
    /// # Errors
    /// The connection broke.
    pub fn receive_bulk(&mut self, length: usize, out: &mut Vec<u8>) -> Result<(), Trouble> {
        resp::read_bulk(&mut self.stream, length, out).map_err(|e| Trouble::of_io("waiting for an answer", &e))
    }

    /// Whether more has arrived than was read.
    pub fn has_more(&self) -> bool {
        !self.stream.buffer().is_empty()
    }

    /// Sends a command and waits for its answer.
    ///
    /// # Errors
    /// The connection broke; the server answers with an error.
    pub fn ask(&mut self, parts: &[&[u8]]) -> Result<Reply, Trouble> {
        self.send(&resp::whole(parts))?;
        match self.receive()? {
            Reply::Error(text) => Err(Trouble::of_answer(&text)),
            reply => Ok(reply),
        }
    }
}

/// A connection on which nothing was said yet.
fn dial(address: &Address) -> io::Result<Transport> {
    let (host, port, tls) = match &address.place {
        Place::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(address.timeout))?;
            stream.set_write_timeout(Some(SILENCE))?;
            return Ok(Transport::Unix(stream));
        }
        Place::Tcp { host, port, tls } => (host.as_str(), *port, tls),
    };
    let mut last = io::Error::new(ErrorKind::NotFound, "the host has no address");
    for address_of_host in (host, port).to_socket_addrs()? {
        let stream = match TcpStream::connect_timeout(&address_of_host, address.timeout) {
            Ok(stream) => stream,
            Err(e) => {
                last = e;
                continue;
            }
        };
        // Entries are small and somebody waits for them.
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(address.timeout))?;
        stream.set_write_timeout(Some(SILENCE))?;
        alive::keep_alive(&stream)?;
        return Ok(match tls {
            None => Transport::Tcp(stream),
            Some(tls) => {
                let connection = ClientConnection::new(tls.config.clone(), tls.name.clone());
                let connection = connection.map_err(|e| io::Error::new(ErrorKind::InvalidData, e))?;
                Transport::Tls(Box::new(StreamOwned::new(connection, stream)))
            }
        });
    }
    Err(last)
}

/// Names the server in what went wrong.
pub fn named(address: &Address, trouble: &Trouble) -> ConnectError {
    ConnectError::new(format!("{}: {}", address.name(), trouble.why()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_servers_pass_or_last() {
        for passing in ["LOADING Redis is loading the dataset in memory", "READONLY You can't write against a read only replica."] {
            assert!(matches!(Trouble::of_answer(passing), Trouble::Away(why) if why.contains(passing)), "{passing}");
        }
        for (lasting, hint) in [
            ("WRONGPASS invalid username-password pair or user is disabled.", "'username' and 'password'"),
            ("NOAUTH Authentication required.", "set 'password'"),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", "something else than a stream"),
            ("MOVED 3999 127.0.0.1:6381", "clusters are not supported"),
            ("ERR unknown command", ""),
        ] {
            let trouble = Trouble::of_answer(lasting);
            assert!(matches!(&trouble, Trouble::Refused(why) if why.contains(lasting) && why.contains(hint)), "{trouble:?}");
        }
    }
}
