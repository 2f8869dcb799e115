//! A replication connection: its way in, its commands, and the stream of changes.
//!
//! The library that other sessions use knows no replication connections; of its lower half, `postgres-protocol`, this
//! takes the messages of the way in and how passwords are proved. The protocol is that of PostgreSQL's manual
//! ("Streaming Replication Protocol").
//!
//! Passwords are proved without a binding to the certificate: `verify-full` is what says that the server is the right one.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use postgres_protocol::authentication::{md5_hash, sasl};
use postgres_protocol::message::frontend;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tidemill_format::options::Secret;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;

use super::super::{KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_RETRIES, error};
use crate::driver::{DbError, DbErrorKind};

/// Bytes that are read at once, if there are as many.
const READ_BYTES: usize = 128 << 10;
/// How often the server is told how far its log may be forgotten, and that we are there.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// Seconds from 1970 to 2000, where PostgreSQL's time begins.
const EPOCH_SECONDS: u64 = 946_684_800;

/// A socket, encrypted or not.
trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// How a server is reached. No `Debug`: it holds the password.
#[derive(Clone)]
pub(super) struct Target {
    pub host: String,
    pub port: u16,
    pub user: String,
    pub password: Option<Secret>,
    pub database: String,
    /// How to encrypt, and whether that must be.
    pub tls: Option<(Arc<ClientConfig>, bool)>,
}

/// A replication connection.
pub(super) struct Link {
    io: Box<dyn Duplex>,
    /// What has arrived and was not yet taken.
    input: BytesMut,
}

/// What the stream says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A transaction that was committed at this place.
    Begin { at: u64 },
    /// Its end; the log goes on there.
    Commit { end: u64 },
    /// A message between.
    Data(Bytes),
    /// Everything before this place has been sent.
    Reached(u64),
}

fn lost(doing: &str, e: &io::Error) -> DbError {
    // A certificate that does not fit will not fit the next time.
    let kind = if e.kind() == io::ErrorKind::InvalidData { DbErrorKind::Fatal } else { DbErrorKind::Connection };
    DbError::new(kind, format!("{doing}: {e}"))
}

fn strange(what: &str) -> DbError {
    DbError::connection(format!("the server answers with {what}"))
}

/// What the server refused: the fields of an error.
fn refused(payload: &[u8]) -> DbError {
    let (mut code, mut message, mut more) = (String::new(), String::new(), String::new());
    let mut rest = payload;
    while let Some((kind, tail)) = rest.split_first().filter(|(kind, _)| **kind != 0) {
        let end = memchr::memchr(0, tail).unwrap_or(tail.len());
        let text = String::from_utf8_lossy(&tail[..end]).into_owned();
        match kind {
            b'C' => code = text,
            b'M' => message = text,
            b'D' | b'H' => more = format!("{more}; {}", text.replace('\n', " ")),
            _ => {}
        }
        rest = tail.get(end + 1..).unwrap_or_default();
    }
    let kind = match code.as_str() {
        // The slot is still in use, by a connection that has just broken.
        "55006" => DbErrorKind::Connection,
        code => error::kind(code, &message),
    };
    let advice = match code.as_str() {
        "28P01" => "; check 'username' and 'password'",
        "28000" | "42501" => "; the user needs the attribute REPLICATION, and pg_hba.conf must let it in",
        "53400" => "; raise max_replication_slots and max_wal_senders of the server",
        _ => "",
    };
    DbError::new(kind, format!("{message} (SQLSTATE {code}){more}{advice}"))
}

impl Link {
    /// Connects as a replica of the database.
    ///
    /// # Errors
    /// Nobody answers, or the server says no.
    pub async fn connect(target: &Target) -> Result<Self, DbError> {
        let doing = "making a replication connection";
        let io: Box<dyn Duplex> = if target.host.starts_with('/') {
            let path = format!("{}/.s.PGSQL.{}", target.host, target.port);
            Box::new(UnixStream::connect(path).await.map_err(|e| lost(doing, &e))?)
        } else {
            let tcp = TcpStream::connect((target.host.as_str(), target.port)).await.map_err(|e| lost(doing, &e))?;
            let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL).with_retries(KEEPALIVE_RETRIES);
            let set = tcp.set_nodelay(true).and_then(|()| SockRef::from(&tcp).set_tcp_keepalive(&keepalive));
            set.map_err(|e| lost(doing, &e))?;
            encrypted(tcp, target).await?
        };
        let mut link = Link { io, input: BytesMut::with_capacity(READ_BYTES) };
        let mut out = BytesMut::new();
        let parameters = [
            ("user", target.user.as_str()),
            ("database", target.database.as_str()),
            ("replication", "database"),
            ("client_encoding", "UTF8"),
            ("application_name", "tidemill"),
            // The server takes its time over large transactions.
            ("options", "-c statement_timeout=0 -c lock_timeout=0"),
        ];
        frontend::startup_message(parameters, &mut out).map_err(|e| lost(doing, &e))?;
        link.send(&out).await?;
        link.authenticate(target).await?;
        loop {
            match link.frame().await? {
                (b'Z', _) => return Ok(link),
                (b'E', payload) => return Err(refused(&payload)),
                // Its settings, the number of its process, notices.
                _ => {}
            }
        }
    }

    async fn authenticate(&mut self, target: &Target) -> Result<(), DbError> {
        let doing = "logging in";
        let password =
            || target.password.as_ref().ok_or_else(|| DbError::fatal("the server asks for a password; give one with 'password'"));
        let mut scram: Option<sasl::ScramSha256> = None;
        loop {
            let payload = match self.frame().await? {
                (b'R', payload) => payload,
                (b'E', payload) => return Err(refused(&payload)),
                (b'N' | b'v', _) => continue,
                (tag, _) => return Err(strange(&format!("a message {tag:#04x} where it was to ask for a password"))),
            };
            let Some((kind, rest)) = payload.split_first_chunk::<4>() else { return Err(strange("a message that is cut short")) };
            let mut out = BytesMut::new();
            match i32::from_be_bytes(*kind) {
                0 => return Ok(()),
                3 => frontend::password_message(password()?.reveal().as_bytes(), &mut out).map_err(|e| lost(doing, &e))?,
                5 => {
                    let salt = *rest.first_chunk::<4>().ok_or_else(|| strange("a message that is cut short"))?;
                    let hash = md5_hash(target.user.as_bytes(), password()?.reveal().as_bytes(), salt);
                    frontend::password_message(hash.as_bytes(), &mut out).map_err(|e| lost(doing, &e))?;
                }
                10 => {
                    if !rest.split(|b| *b == 0).any(|name| name == sasl::SCRAM_SHA_256.as_bytes()) {
                        return Err(DbError::fatal(
                            "the server asks for a password in a way that is not known here; it takes SCRAM-SHA-256",
                        ));
                    }
                    let proof = sasl::ScramSha256::new(password()?.reveal().as_bytes(), sasl::ChannelBinding::unsupported());
                    frontend::sasl_initial_response(sasl::SCRAM_SHA_256, proof.message(), &mut out).map_err(|e| lost(doing, &e))?;
                    scram = Some(proof);
                }
                kind @ (11 | 12) => {
                    let proof = scram.as_mut().ok_or_else(|| strange("the end of a login that did not begin"))?;
                    if kind == 12 {
                        proof
                            .finish(rest)
                            .map_err(|e| DbError::fatal(format!("{doing}: the server does not know the password itself: {e}")))?;
                        continue;
                    }
                    proof.update(rest).map_err(|e| DbError::fatal(format!("{doing}: {e}")))?;
                    frontend::sasl_response(proof.message(), &mut out).map_err(|e| lost(doing, &e))?;
                }
                _ => return Err(DbError::fatal("the server asks for a login of a kind that is not known here; it takes passwords")),
            }
            self.send(&out).await?;
        }
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), DbError> {
        let sent = async {
            self.io.write_all(bytes).await?;
            self.io.flush().await
        };
        sent.await.map_err(|e| lost("writing to the server", &e))
    }

    /// The next message, if it is there as a whole: its tag and what is in it.
    fn ready(&mut self) -> Result<Option<(u8, Bytes)>, DbError> {
        let Some((tag, length)) = head(&self.input)? else { return Ok(None) };
        if self.input.len() <= length {
            self.input.reserve(length + 1 - self.input.len());
            return Ok(None);
        }
        let mut message = self.input.split_to(length + 1).freeze();
        message.advance(5);
        Ok(Some((tag, message)))
    }

    /// The next message. May be dropped and asked again; nothing is lost.
    async fn frame(&mut self) -> Result<(u8, Bytes), DbError> {
        loop {
            if let Some(message) = self.ready()? {
                return Ok(message);
            }
            self.input.reserve(READ_BYTES);
            let read = self.io.read_buf(&mut self.input).await.map_err(|e| lost("reading from the server", &e))?;
            if read == 0 {
                return Err(DbError::connection("the server has closed the connection"));
            }
        }
    }

    /// Runs a command; its rows as text.
    ///
    /// # Errors
    /// Of the server.
    pub async fn query(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>, DbError> {
        let mut out = BytesMut::new();
        frontend::query(sql, &mut out).map_err(|e| lost("writing a command", &e))?;
        self.send(&out).await?;
        let (mut rows, mut error) = (Vec::new(), None);
        loop {
            match self.frame().await? {
                (b'D', payload) => rows.push(row(&payload).map_err(|why| strange(&format!("a row that {why}")))?),
                (b'E', payload) => error = error.or(Some(refused(&payload))),
                (b'Z', _) => return error.map_or(Ok(rows), Err),
                _ => {}
            }
        }
    }

    /// Begins the stream of changes.
    ///
    /// # Errors
    /// The server says no.
    pub async fn start(&mut self, sql: &str) -> Result<(), DbError> {
        let mut out = BytesMut::new();
        frontend::query(sql, &mut out).map_err(|e| lost("writing a command", &e))?;
        self.send(&out).await?;
        loop {
            match self.frame().await? {
                (b'W', _) => return Ok(()),
                (b'E', payload) => return Err(refused(&payload)),
                (b'Z', _) => return Err(strange("no stream of changes")),
                _ => {}
            }
        }
    }

    /// Hands the stream on, and tells the server meanwhile that we are there and how far its log may be forgotten: also while
    /// who takes the stream takes its time.
    pub async fn pump(mut self, to: mpsc::Sender<Result<Vec<Event>, DbError>>, committed: Arc<AtomicU64>) {
        if let Err(error) = self.hand_on(&to, &committed).await {
            // Whoever has gone needs no error.
            let _ = to.send(Err(error)).await;
        }
    }

    async fn hand_on(&mut self, to: &mpsc::Sender<Result<Vec<Event>, DbError>>, committed: &AtomicU64) -> Result<(), DbError> {
        let mut told: Option<Instant> = None;
        loop {
            if told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
                self.tell(committed).await?;
                told = Some(Instant::now());
            }
            let frame = tokio::select! {
                frame = tokio::time::timeout(TELL_EVERY, self.frame()) => frame,
                () = to.closed() => return Ok(()),
            };
            let Ok(frame) = frame else { continue };
            // With it what else has arrived; an error comes behind what was there before it.
            let (mut events, mut bytes, mut asked, mut next) = (Vec::new(), 0, false, frame.map(Some));
            let failed = loop {
                let (tag, payload) = match next {
                    Ok(Some(frame)) => frame,
                    Ok(None) => break None,
                    Err(error) => break Some(error),
                };
                bytes += payload.len();
                match (tag, payload) {
                    (b'd', payload) => match event(payload) {
                        Ok((event, wants)) => {
                            asked |= wants;
                            events.push(event);
                        }
                        Err(why) => break Some(strange(&format!("a message of the stream that {why}"))),
                    },
                    (b'E', payload) => break Some(refused(&payload)),
                    (b'c' | b'C' | b'Z', _) => break Some(DbError::connection("the server has ended the stream of changes")),
                    _ => {}
                }
                next = if bytes < READ_BYTES { self.ready() } else { Ok(None) };
            };
            if asked {
                self.tell(committed).await?;
                told = Some(Instant::now());
            }
            loop {
                match tokio::time::timeout(TELL_EVERY, to.reserve()).await {
                    Ok(Ok(place)) => {
                        place.send(Ok(events));
                        break;
                    }
                    Ok(Err(_)) => return Ok(()),
                    Err(_) => {
                        self.tell(committed).await?;
                        told = Some(Instant::now());
                    }
                }
            }
            if let Some(error) = failed {
                return Err(error);
            }
        }
    }

    /// Tells the server how far its log may be forgotten.
    async fn tell(&mut self, committed: &AtomicU64) -> Result<(), DbError> {
        let message = status(committed.load(Ordering::Relaxed));
        self.send(&message).await
    }
}

/// Encrypts a connection if that is wanted.
async fn encrypted(mut tcp: TcpStream, target: &Target) -> Result<Box<dyn Duplex>, DbError> {
    let doing = "encrypting a replication connection";
    let Some((config, must)) = &target.tls else { return Ok(Box::new(tcp)) };
    let mut out = BytesMut::new();
    frontend::ssl_request(&mut out);
    tcp.write_all(&out).await.map_err(|e| lost(doing, &e))?;
    // Nothing but this byte: what follows it is encrypted.
    let answer = tcp.read_u8().await.map_err(|e| lost(doing, &e))?;
    match (answer, must) {
        (b'S', _) => {}
        (b'N', false) => return Ok(Box::new(tcp)),
        (b'N', true) => return Err(DbError::fatal("the server does not encrypt connections; 'ssl-mode' = 'prefer' does without")),
        _ => return Err(strange("something else than whether it encrypts")),
    }
    let name = ServerName::try_from(target.host.clone()).map_err(|e| DbError::fatal(format!("{doing}: '{}': {e}", target.host)))?;
    let stream = TlsConnector::from(config.clone()).connect(name, tcp).await.map_err(|e| lost(doing, &e))?;
    Ok(Box::new(stream))
}

/// Tag and length of the message that `input` begins with; the length counts itself and not the tag.
fn head(input: &[u8]) -> Result<Option<(u8, usize)>, DbError> {
    let Some((tag, rest)) = input.split_first() else { return Ok(None) };
    let Some(length) = rest.first_chunk::<4>() else { return Ok(None) };
    match usize::try_from(i32::from_be_bytes(*length)) {
        Ok(length) if length >= 4 => Ok(Some((*tag, length))),
        _ => Err(strange("a message without a length")),
    }
}

/// A row of a result.
fn row(mut data: &[u8]) -> Result<Vec<Option<String>>, String> {
    let cut = || "is cut short".to_string();
    let count = data.try_get_i16().map_err(|_| cut())?;
    let mut row = Vec::new();
    for _ in 0..count {
        let length = data.try_get_i32().map_err(|_| cut())?;
        row.push(match usize::try_from(length) {
            Err(_) => None,
            Ok(length) => {
                let (field, rest) = data.split_at_checked(length).ok_or_else(cut)?;
                data = rest;
                Some(String::from_utf8_lossy(field).into_owned())
            }
        });
    }
    Ok(row)
}

/// What a message of the stream says, and whether the server wants an answer at once.
fn event(mut payload: Bytes) -> Result<(Event, bool), String> {
    let cut = |_| "is cut short".to_string();
    match payload.try_get_u8().map_err(cut)? {
        b'k' => {
            let (end, _time, asked) =
                (payload.try_get_u64().map_err(cut)?, payload.try_get_i64().map_err(cut)?, payload.try_get_u8().map_err(cut)?);
            Ok((Event::Reached(end), asked != 0))
        }
        b'w' => {
            // Where it begins, where the log ends, when it was sent.
            if payload.len() < 24 {
                return Err("is cut short".into());
            }
            payload.advance(24);
            Ok((message(payload)?, false))
        }
        other => Err(format!("is of kind {other:#04x}, which is not known")),
    }
}

/// What a message of the plugin says.
///
/// # Errors
/// What is wrong with it.
pub(super) fn message(payload: Bytes) -> Result<Event, String> {
    let cut = |_| "is cut short".to_string();
    match payload.first().copied() {
        Some(b'B') => Ok(Event::Begin { at: (&payload[1..]).try_get_u64().map_err(cut)? }),
        // Flags, the place of the commit, and where the log goes on.
        Some(b'C') => Ok(Event::Commit { end: payload.get(10..).unwrap_or_default().try_get_u64().map_err(cut)? }),
        Some(_) => Ok(Event::Data(payload)),
        None => Err("is empty".into()),
    }
}

/// What tells the server that the log before a place may be forgotten; 0 tells nothing but that we are there.
fn status(at: u64) -> BytesMut {
    let mut out = BytesMut::with_capacity(39);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let micros = now.saturating_sub(Duration::from_secs(EPOCH_SECONDS)).as_micros() as i64;
    out.put_u8(b'd');
    out.put_i32(38);
    out.put_u8(b'r');
    // Written, flushed, applied.
    for _ in 0..3 {
        out.put_u64(at);
    }
    out.put_i64(micros);
    // No answer is wanted.
    out.put_u8(0);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wal(data: &[u8]) -> Bytes {
        [b"w".as_slice(), &[0; 24], data].concat().into()
    }

    #[test]
    fn messages_of_the_stream() {
        let keepalive = [b"k".as_slice(), &7u64.to_be_bytes(), &[0; 8], &[1]].concat();
        assert_eq!(event(keepalive.into()), Ok((Event::Reached(7), true)));
        let begin = [b"B".as_slice(), &9u64.to_be_bytes(), &[0; 12]].concat();
        assert_eq!(event(wal(&begin)), Ok((Event::Begin { at: 9 }, false)));
        let commit = [b"C".as_slice(), &[0], &9u64.to_be_bytes(), &12u64.to_be_bytes(), &[0; 8]].concat();
        assert_eq!(event(wal(&commit)), Ok((Event::Commit { end: 12 }, false)));
        assert_eq!(event(wal(b"Ixyz")), Ok((Event::Data(Bytes::from_static(b"Ixyz")), false)));
        for wrong in [Bytes::new(), wal(b""), wal(b"B123"), wal(b"C\0\0"), Bytes::from_static(b"w123"), Bytes::from_static(b"?")] {
            assert!(event(wrong).is_err());
        }
    }

    #[test]
    fn rows_and_heads() {
        assert_eq!(row(b"\0\x02\0\0\0\x01a\xff\xff\xff\xff"), Ok(vec![Some("a".into()), None]));
        assert!(row(b"\0\x01\0\0\0\x05a").is_err());
        assert_eq!(head(b"Z\0\0\0\x05I"), Ok(Some((b'Z', 5))));
        assert_eq!(head(b"Z\0\0"), Ok(None));
        assert!(head(b"Z\0\0\0\x03").is_err());
    }

    #[test]
    fn what_is_refused_is_said() {
        let error = refused(b"SERROR\0C42501\0Mno right\0Dfirst\nsecond\0\0");
        assert_eq!(error.kind, DbErrorKind::Fatal);
        assert!(error.message.starts_with("no right (SQLSTATE 42501); first second; the user needs"), "{}", error.message);
        assert_eq!(refused(b"C55006\0Min use\0\0").kind, DbErrorKind::Connection);
    }

    #[test]
    fn the_server_is_told() {
        let told = status(0x0102);
        assert_eq!((told.len(), told[0], told[5]), (39, b'd', b'r'));
        assert_eq!(told[6..30], [[0, 0, 0, 0, 0, 0, 1, 2]; 3].concat());
    }
}
