//! A server of the tests' own: it speaks as much of TDS as the driver does (PRELOGIN, LOGIN7, batches, calls of
//! `sp_executesql`, bulk loads), keeps what it was told, and answers as a test has it.
//!
//! It follows [MS-TDS] where it reads, so that what it understands is well formed: lengths of packets, headers of
//! requests, columns and rows of a bulk load to their last byte.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Bytes of a packet that the server grants, whatever is asked for.
const PACKET_BYTES: usize = 600;

/// What is answered to a statement or a bulk load.
pub enum Reply {
    /// These tokens, and an end.
    Tokens(Vec<u8>),
    /// The connection is closed.
    Gone,
}

/// Nothing went wrong.
pub fn done() -> Reply {
    Reply::Tokens(Vec::new())
}

/// An error.
pub fn error(number: u32, message: &str) -> Reply {
    Reply::Tokens(error_token(number, message))
}

/// A result: columns by name and type ([`types`]), then the bytes of all values of all rows.
pub fn result(columns: &[(&str, &[u8])], rows: &[&[u8]]) -> Reply {
    let mut out = vec![0x81];
    out.extend_from_slice(&(columns.len() as u16).to_le_bytes());
    for (name, r#type) in columns {
        // A user's type; flags: may be NULL, may be written.
        out.extend_from_slice(&[0, 0, 0, 0, 9, 0]);
        out.extend_from_slice(r#type);
        out.push(name.encode_utf16().count() as u8);
        out.extend(utf16(name));
    }
    for row in rows {
        out.push(0xD1);
        out.extend_from_slice(row);
    }
    Reply::Tokens(out)
}

/// Descriptions of types.
pub mod types {
    pub const INT: &[u8] = &[0x26, 4];
    pub const NVARCHAR_50: &[u8] = &[0xE7, 100, 0, 9, 4, 0xD0, 0, 52];
    pub const VARCHAR_9: &[u8] = &[0xA7, 9, 0, 9, 4, 0xD0, 0, 52];
    pub const MONEY: &[u8] = &[0x6E, 8];
    pub const DATETIME2_7: &[u8] = &[0x2A, 7];
}

/// The tokens of several replies.
pub fn both(first: Reply, second: Reply) -> Reply {
    match (first, second) {
        (Reply::Tokens(first), Reply::Tokens(second)) => Reply::Tokens([first, second].concat()),
        _ => Reply::Gone,
    }
}

/// Says that the transaction was rolled back.
pub fn rolled_back() -> Reply {
    Reply::Tokens(sized(0xE3, &[10, 0, 8, 1, 0, 0, 0, 0, 0, 0, 0]))
}

/// The server. It lives as long as the process of the tests.
pub struct Server {
    pub address: SocketAddr,
    told: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Starts one that answers by `script`; bulk loads ask it for `bulk`.
    pub fn start(script: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let (kept, script) = (told.clone(), Arc::new(script));
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let (told, script) = (kept.clone(), script.clone());
                std::thread::spawn(move || {
                    let mut session = Session { socket: socket.unwrap(), told };
                    // The client may go at any time.
                    let _ = session.serve(&*script);
                });
            }
        });
        Server { address, told }
    }

    /// What it was told since the last time it was asked.
    pub fn told(&self) -> Vec<String> {
        std::mem::take(&mut *self.told.lock().unwrap())
    }
}

struct Session {
    socket: TcpStream,
    told: Arc<Mutex<Vec<String>>>,
}

impl Session {
    fn serve(&mut self, script: &dyn Fn(&str) -> Reply) -> std::io::Result<()> {
        loop {
            let (kind, payload) = self.message()?;
            let reply = match kind {
                0x12 => {
                    // Version, encryption (there is none), end; their values.
                    let options = [0, 0, 11, 0, 6, 1, 0, 17, 0, 1, 0xFF, 16, 0, 0, 0, 0, 0, 2];
                    self.send(&options)?;
                    continue;
                }
                0x10 => self.login(&payload),
                0x01 => {
                    let headers = u32::from_le_bytes(payload[..4].try_into().unwrap()) as usize;
                    self.asked(&text(&payload[headers..]), script)
                }
                0x03 => {
                    let sql = format!("call {}", called(&payload));
                    self.asked(&sql, script)
                }
                0x07 => {
                    self.tell(&loaded(&payload));
                    script("bulk")
                }
                other => panic!("a message of type {other:#x}"),
            };
            let Reply::Tokens(mut tokens) = reply else { return Ok(()) };
            // The end of the answer: of nothing that counts rows.
            tokens.extend_from_slice(&[0xFD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            self.send(&tokens)?;
        }
    }

    fn tell(&self, what: &str) {
        self.told.lock().unwrap().push(what.to_string());
    }

    fn asked(&self, sql: &str, script: &dyn Fn(&str) -> Reply) -> Reply {
        // How a session is set up, and what collations are called, is the same everywhere.
        if !sql.starts_with("SET XACT_ABORT") && !sql.starts_with("SELECT name, collation_name") {
            self.tell(sql);
        }
        script(sql)
    }

    /// A message of the client: its type and what is in its packets.
    fn message(&mut self) -> std::io::Result<(u8, Vec<u8>)> {
        let mut payload = Vec::new();
        loop {
            let mut header = [0; 8];
            self.socket.read_exact(&mut header)?;
            let length = usize::from(u16::from_be_bytes([header[2], header[3]])) - 8;
            let (from, last) = (payload.len(), header[1] & 1 != 0);
            payload.resize(from + length, 0);
            self.socket.read_exact(&mut payload[from..])?;
            if last {
                return Ok((header[0], payload));
            }
            assert_eq!(length + 8, PACKET_BYTES, "all packets but the last are full");
        }
    }

    fn send(&mut self, payload: &[u8]) -> std::io::Result<()> {
        let mut parts = payload.chunks(PACKET_BYTES - 8).peekable();
        while let Some(part) = parts.next() {
            let [high, low] = ((part.len() + 8) as u16).to_be_bytes();
            let last = u8::from(parts.peek().is_none());
            self.socket.write_all(&[&[4, last, high, low, 0, 0, 0, 0], part].concat())?;
        }
        Ok(())
    }

    fn login(&self, payload: &[u8]) -> Reply {
        // Behind 36 bytes of fixed length: places and lengths, of the client's name, the user's, the password, ….
        let field = |n: usize| {
            let at = |i: usize| usize::from(u16::from_le_bytes([payload[i], payload[i + 1]]));
            let entry = 36 + 4 * n;
            &payload[at(entry)..at(entry) + 2 * at(entry + 2)]
        };
        let password: Vec<u8> = field(2).iter().map(|b| (b ^ 0xA5).rotate_left(4)).collect();
        let (user, password) = (text(field(1)), text(&password));
        self.tell(&format!("login {user} {password} {} {}", text(field(3)), text(field(8))));
        if password == "wrong" {
            return error(18456, &format!("Login failed for user '{user}'."));
        }
        let size = PACKET_BYTES.to_string();
        let change = [&[4, size.len() as u8][..], &utf16(&size)[..], &[4][..], &utf16("4096")[..]].concat();
        let program: Vec<u8> = utf16("test");
        let acknowledged = [&[1, 0x74, 0, 0, 4, 4][..], &program[..], &[16, 0, 0, 0][..]].concat();
        Reply::Tokens([sized(0xE3, &change), sized(0xAD, &acknowledged)].concat())
    }
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

fn text(bytes: &[u8]) -> String {
    let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
    String::from_utf16(&units).unwrap()
}

/// A token with its length.
fn sized(token: u8, body: &[u8]) -> Vec<u8> {
    [&[token][..], &(body.len() as u16).to_le_bytes()[..], body].concat()
}

fn error_token(number: u32, message: &str) -> Vec<u8> {
    let length = (message.encode_utf16().count() as u16).to_le_bytes();
    // State and severity; then server, procedure and line.
    let body = [&number.to_le_bytes()[..], &[1, 14][..], &length[..], &utf16(message)[..], &[0, 0, 1, 0, 0, 0][..]].concat();
    sized(0xAA, &body)
}

/// The statement of a call of `sp_executesql`.
fn called(payload: &[u8]) -> String {
    let headers = u32::from_le_bytes(payload[..4].try_into().unwrap()) as usize;
    let mut bytes = Bytes(&payload[headers..]);
    assert_eq!(bytes.take(6), [0xFF, 0xFF, 10, 0, 0, 0], "procedure 10 by number, without flags");
    let name = bytes.take(1)[0];
    bytes.take(2 * usize::from(name) + 1);
    assert_eq!(bytes.take(1), [0xE7], "nvarchar");
    let long = bytes.u16() == 0xFFFF;
    bytes.take(5);
    if !long {
        let length = bytes.u16();
        return text(bytes.take(length.into()));
    }
    bytes.take(8);
    let length = u32::from_le_bytes(bytes.take(4).try_into().unwrap());
    text(bytes.take(length as usize))
}

/// A bulk load as `columns: values | values`.
fn loaded(payload: &[u8]) -> String {
    let mut bytes = Bytes(payload);
    assert_eq!(bytes.take(1), [0x81]);
    let count = bytes.u16();
    let mut columns = Vec::new();
    for _ in 0..count {
        bytes.take(6);
        let kind = bytes.take(1)[0];
        match kind {
            0x26 => bytes.take(1),
            0xE7 | 0xA7 => bytes.take(7),
            other => panic!("a column of type {other:#x}"),
        };
        let name = usize::from(bytes.take(1)[0]);
        columns.push((text(bytes.take(2 * name)), kind));
    }
    let mut rows = Vec::new();
    while bytes.0.first() == Some(&0xD1) {
        bytes.take(1);
        let values = columns.iter().map(|(_, kind)| match kind {
            0x26 => {
                let length = usize::from(bytes.take(1)[0]);
                let mut number = [0; 8];
                number[..length].copy_from_slice(bytes.take(length));
                if length == 0 { "NULL".to_string() } else { i64::from_le_bytes(number).to_string() }
            }
            _ => match (bytes.u16(), kind) {
                (0xFFFF, _) => "NULL".to_string(),
                (length, 0xE7) => text(bytes.take(length.into())),
                // Windows-1252, as far as tests go.
                (length, _) => bytes.take(length.into()).iter().map(|b| char::from(*b)).collect(),
            },
        });
        rows.push(values.collect::<Vec<_>>().join(" "));
    }
    assert_eq!(bytes.take(1), [0xFD]);
    assert_eq!(bytes.0.len(), 12, "nothing comes behind the end");
    let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
    format!("bulk {}: {}", names.join(" "), rows.join(" | "))
}

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    #[track_caller]
    fn take(&mut self, n: usize) -> &'a [u8] {
        let (head, tail) = self.0.split_at(n);
        self.0 = tail;
        head
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take(2).try_into().unwrap())
    }
}
