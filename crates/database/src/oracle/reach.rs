//! How a session begins: somebody answers, and it is a listener of Oracle's; then the driver connects and logs in.
//!
//! The driver waits for ever for who is silent, and panics at what is no packet of its protocol (TNS). So the listener is
//! asked first whether it is there, in the way that the vendor's `tnsping` does, and all of it happens on a thread of its
//! own, which is left behind when time is up: with its socket, until the other side closes that.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use oracledb::{Config, Connection};

use super::Settings;
use super::error::db_error;
use crate::driver::DbError;

/// Bytes of a packet's header.
const HEADER_BYTES: usize = 8;
/// Where what is asked stands in a packet that connects.
const DATA_AT: usize = 74;
/// What the listener is asked: for nothing but an answer.
const QUESTION: &[u8] = b"(CONNECT_DATA=(COMMAND=ping))";
/// The types of packets that answer one that connects: accepted, refused, to be asked elsewhere, to be asked again.
const ANSWERS: [u8; 4] = [2, 4, 5, 11];
/// The type of a packet that connects.
const CONNECT: u8 = 1;

/// Connects and logs in, in at most `timeout`.
///
/// # Errors
/// Nobody answers in time, or not as Oracle does, or the server says no; never with the password.
pub(super) fn connect(settings: &Settings, timeout: Duration) -> Result<Connection, DbError> {
    let timeout = timeout.max(Duration::from_millis(1));
    let doing = match &settings.address {
        Some((host, port)) => format!("connecting to {host}:{port}"),
        None => "connecting".to_string(),
    };
    let (sender, receiver) = sync_channel(1);
    let (theirs, what) = (settings.clone(), doing.clone());
    let started = thread::Builder::new().name("tidemill-oracle".into()).spawn(move || {
        // Nobody waits for it any more if time is up; a session that was made ends here then.
        let _ = sender.send(open(&theirs, &what, timeout));
    });
    started.map_err(|e| DbError::fatal(format!("{doing}: starting a thread: {e}")))?;
    match receiver.recv_timeout(timeout) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => Err(DbError::connection(format!("{doing}: the server did not answer in time"))),
        Err(RecvTimeoutError::Disconnected) => {
            Err(DbError::fatal(format!("{doing}: what answers there is no Oracle database, or one that the driver does not understand")))
        }
    }
}

fn open(settings: &Settings, doing: &str, timeout: Duration) -> Result<Connection, DbError> {
    if let Some((host, port)) = settings.address.as_ref().filter(|_| !settings.tls) {
        ask(host, *port, Instant::now() + timeout).map_err(|why| why.at(doing))?;
    }
    if settings.tls {
        // The driver asks for the process's provider. Whoever came first has set the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let config = config(settings, timeout).map_err(|e| db_error(doing, &e))?;
    oracledb::connect(config).map_err(|e| db_error(doing, &e))
}

fn config(settings: &Settings, timeout: Duration) -> Result<Config, oracledb::Error> {
    let mut config = Config::default()
        .set_credentials(&settings.user, settings.password.reveal())
        .set_transport_connect_timeout(Some(timeout))
        .set_program("tidemill")?;
    if let Some(wallet) = &settings.wallet {
        config = config.set_wallet_location(wallet.as_str());
    }
    config.set_connect_string(&settings.descriptor)
}

/// Sees to it that a listener is there.
fn ask(host: &str, port: u16, deadline: Instant) -> Result<(), DbError> {
    let failed = |e: io::Error| match e.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => DbError::connection("the server did not answer in time"),
        _ => DbError::connection(e.to_string()),
    };
    let mut socket = reach(host, port, deadline).map_err(failed)?;
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    socket.set_read_timeout(Some(left)).map_err(failed)?;
    socket.set_write_timeout(Some(left)).map_err(failed)?;
    socket.write_all(&question()).map_err(failed)?;
    let mut header = [0; HEADER_BYTES];
    let mut have = 0;
    while have < HEADER_BYTES {
        match socket.read(&mut header[have..]) {
            Ok(0) => break,
            Ok(read) => have += read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => break,
            Err(e) => return Err(failed(e)),
        }
    }
    match have {
        // Some that are no listeners themselves pass on what they know only; the driver will see.
        0 => Ok(()),
        HEADER_BYTES if is_answer(header) => Ok(()),
        _ => Err(DbError::fatal(
            "what answers there is no Oracle listener; check host and port in 'url', and whether it wants TLS (tcps://host:port/service)",
        )),
    }
}

/// A connected socket; all addresses of the host are tried.
fn reach(host: &str, port: u16, deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(socket) => return Ok(socket),
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// Whether it is the header of an answer.
fn is_answer(header: [u8; HEADER_BYTES]) -> bool {
    let length = usize::from(u16::from_be_bytes([header[0], header[1]]));
    length >= HEADER_BYTES && ANSWERS.contains(&header[4])
}

/// The packet that asks: versions, sizes, where the question stands, the question.
fn question() -> Vec<u8> {
    const VERSION: u16 = 319;
    const VERSION_MIN: u16 = 300;
    const UNIT_BYTES: u16 = 8192;
    let length = (DATA_AT + QUESTION.len()) as u16;
    let mut packet = Vec::with_capacity(length.into());
    let words = [VERSION, VERSION_MIN, 1, UNIT_BYTES, UNIT_BYTES, 0x4F98, 0, 1, QUESTION.len() as u16, DATA_AT as u16];
    packet.extend_from_slice(&length.to_be_bytes());
    packet.extend_from_slice(&[0, 0, CONNECT, 0, 0, 0]);
    packet.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    packet.resize(DATA_AT, 0);
    packet.extend_from_slice(QUESTION);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_says_where_it_stands() {
        let packet = question();
        assert_eq!(packet[..HEADER_BYTES], [0, packet.len() as u8, 0, 0, CONNECT, 0, 0, 0]);
        assert_eq!(packet[24..28], [0, QUESTION.len() as u8, 0, DATA_AT as u8]);
        assert_eq!(&packet[DATA_AT..], QUESTION);
    }

    #[test]
    fn answers_are_told_from_others() {
        let answers = [[0, 99, 0, 0, 4, 0, 0, 0], [0, 8, 0, 0, 11, 0, 0, 0], *b"HTTP/1.1", *b"SSH-2.0-", [0, 0, 0, 0, 4, 0, 0, 0]];
        assert_eq!(answers.map(is_answer), [true, true, false, false, false]);
    }
}
