//! The protocol of Redis, version 2 (RESP2): commands are arrays of byte strings, answers are trees of five kinds. What
//! does not live here: sockets, and what answers mean.

use std::io::{self, BufRead, Error, ErrorKind, Read};

/// The longest byte string taken; the server's own bound (`proto-max-bulk-len`) is the same as it comes.
pub const BULK_BYTES_MAX: usize = 512 << 20;
/// The longest line: a number, a word, an error.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// How deep an answer may be; those that we ask for have five levels.
const DEPTH_MAX: usize = 16;

/// Begins a command of so many parts, each of which follows by [`bulk`].
pub fn command(out: &mut Vec<u8>, parts: usize) {
    head(out, b'*', parts);
}

/// A part of a command.
pub fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    head(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// A part that is a number, as text.
pub fn number(out: &mut Vec<u8>, number: u64) {
    bulk(out, number.to_string().as_bytes());
}

fn head(out: &mut Vec<u8>, kind: u8, length: usize) {
    out.push(kind);
    out.extend_from_slice(length.to_string().as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// A whole command.
pub fn whole(parts: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    command(&mut out, parts.len());
    parts.iter().for_each(|part| bulk(&mut out, part));
    out
}

/// The first line of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Head {
    /// A word, such as `OK`.
    Word(String),
    /// What went wrong.
    Error(String),
    /// A number.
    Integer(i64),
    /// So many bytes follow; none for nil.
    Bulk(Option<usize>),
    /// So many answers follow; none for nil.
    Array(Option<usize>),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A word, such as `OK`.
    Word(String),
    /// What went wrong.
    Error(String),
    /// A number.
    Integer(i64),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Several.
    Array(Vec<Reply>),
    /// Nothing.
    Nil,
}

impl Reply {
    /// The text of a word or of bytes.
    pub fn text(&self) -> Option<&str> {
        match self {
            Reply::Word(word) => Some(word),
            Reply::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }
}

fn invalid(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidData, format!("this is not the protocol of Redis: {what}"))
}

/// A line without its end.
fn line(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::with_capacity(32);
    from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    match line.as_slice() {
        [] => Err(ErrorKind::UnexpectedEof.into()),
        [.., b'\r', b'\n'] => {
            line.truncate(line.len() - 2);
            Ok(line)
        }
        _ if (line.len() as u64) < LINE_BYTES_MAX && !line.ends_with(b"\n") => Err(ErrorKind::UnexpectedEof.into()),
        _ => Err(invalid("a line without its end")),
    }
}

/// The first line of an answer.
///
/// # Errors
/// Of the connection; what came is no answer.
pub fn read_head(from: &mut impl BufRead) -> io::Result<Head> {
    let line = line(from)?;
    let Some((kind, rest)) = line.split_first() else { return Err(invalid("an empty line")) };
    let text = || String::from_utf8_lossy(rest).into_owned();
    let number = || {
        let number = std::str::from_utf8(rest).ok().and_then(|text| text.parse::<i64>().ok());
        number.ok_or_else(|| invalid(format_args!("'{}' is no number", text().escape_debug())))
    };
    let length = || match number()? {
        -1 => Ok(None),
        length => usize::try_from(length).map(Some).map_err(|_| invalid(format_args!("a length of {length}"))),
    };
    match kind {
        b'+' => Ok(Head::Word(text())),
        b'-' => Ok(Head::Error(text())),
        b':' => Ok(Head::Integer(number()?)),
        b'$' => match length()? {
            Some(length) if length > BULK_BYTES_MAX => Err(invalid(format_args!("a text of {length} bytes"))),
            length => Ok(Head::Bulk(length)),
        },
        b'*' => Ok(Head::Array(length()?)),
        _ => Err(invalid(format_args!("an answer that begins with '{}'", kind.escape_ascii()))),
    }
}

/// Appends `length` bytes behind a [`Head::Bulk`], and takes their line end.
///
/// # Errors
/// Of the connection; what came is longer.
pub fn read_bulk(from: &mut impl BufRead, length: usize, out: &mut Vec<u8>) -> io::Result<()> {
    // As it arrives: what a length says is not believed before.
    let got = from.by_ref().take(length as u64).read_to_end(out)?;
    if got < length {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let mut end = [0; 2];
    from.read_exact(&mut end)?;
    if end == *b"\r\n" { Ok(()) } else { Err(invalid("a text is longer than it says")) }
}

/// A whole answer.
///
/// # Errors
/// Of the connection; what came is no answer.
pub fn read_reply(from: &mut impl BufRead) -> io::Result<Reply> {
    read_within(from, DEPTH_MAX)
}

fn read_within(from: &mut impl BufRead, depth: usize) -> io::Result<Reply> {
    Ok(match read_head(from)? {
        Head::Word(word) => Reply::Word(word),
        Head::Error(text) => Reply::Error(text),
        Head::Integer(number) => Reply::Integer(number),
        Head::Bulk(None) | Head::Array(None) => Reply::Nil,
        Head::Bulk(Some(length)) => {
            let mut bytes = Vec::new();
            read_bulk(from, length, &mut bytes)?;
            Reply::Bytes(bytes)
        }
        Head::Array(Some(_)) if depth == 0 => return Err(invalid("arrays in arrays without end")),
        Head::Array(Some(length)) => {
            let mut all = Vec::new();
            for _ in 0..length {
                all.push(read_within(from, depth - 1)?);
            }
            Reply::Array(all)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(mut bytes: &[u8], expect: Reply) {
        assert_eq!(read_reply(&mut bytes).unwrap(), expect);
        assert!(bytes.is_empty(), "{} bytes are left", bytes.len());
    }

    #[test]
    fn answers_are_read() {
        check(b"+OK\r\n", Reply::Word("OK".into()));
        check(b"-ERR no such key\r\n", Reply::Error("ERR no such key".into()));
        check(b":-12\r\n", Reply::Integer(-12));
        check(b"$4\r\na\r\nb\r\n", Reply::Bytes(b"a\r\nb".to_vec()));
        check(b"$0\r\n\r\n", Reply::Bytes(Vec::new()));
        check(b"$-1\r\n", Reply::Nil);
        check(b"*-1\r\n", Reply::Nil);
        check(b"*2\r\n*0\r\n:1\r\n", Reply::Array(vec![Reply::Array(Vec::new()), Reply::Integer(1)]));
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        let read = |bytes: &[u8]| read_reply(&mut { bytes }).unwrap_err().kind();
        for cut in [&b""[..], b"+OK", b"$4\r\nab", b"$2\r\nab", b"*2\r\n:1\r\n"] {
            assert_eq!(read(cut), ErrorKind::UnexpectedEof, "{}", cut.escape_ascii());
        }
        let endless = b"*1\r\n".repeat(100);
        for wrong in [
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            b"\r\n",
            b"$x\r\n",
            b"*-2\r\n",
            b"$1\r\nabc",
            b"+OK\n",
            b"$999999999999\r\n",
            endless.as_slice(),
        ] {
            assert_eq!(read(wrong), ErrorKind::InvalidData, "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn commands_are_arrays_of_byte_strings() {
        assert_eq!(whole(&[b"GET", b"a key"]), b"*2\r\n$3\r\nGET\r\n$5\r\na key\r\n");
        let mut out = Vec::new();
        number(&mut out, 107);
        assert_eq!(out, b"$3\r\n107\r\n");
    }
}
