//! A connection to a broker on which answers are read as they come: numbers from a small buffer, records straight into the
//! memory where they stay.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::access::Access;
use crate::transaction::wire::{Body, Broker};

/// Bytes of the small buffer.
const BUFFER_BYTES: usize = 16 << 10;
/// Memory for records grows in these steps, so that a length alone takes none.
const STEP_BYTES: usize = 1 << 20;

/// A connection.
pub struct Link {
    /// What comes.
    pub answer: Answer<TcpStream>,
    correlation: i32,
}

impl Link {
    /// Connects to `host:port`, and logs in if that is wanted. An answer that takes longer than `patience` is an error.
    ///
    /// # Errors
    /// What failed, with the address.
    pub fn connect(address: &str, access: &Access, patience: Duration) -> Result<Self, String> {
        Self::over(Broker::connect(address, access)?, patience)
    }

    /// Goes on with a connection.
    ///
    /// # Errors
    /// It is encrypted; its options cannot be set.
    pub fn over(broker: Broker, patience: Duration) -> Result<Self, String> {
        let (stream, place) = broker.into_socket()?;
        stream.set_read_timeout(Some(patience)).map_err(|e| format!("{place}: {e}"))?;
        Ok(Link { answer: Answer::new(stream, place), correlation: 0 })
    }

    /// The connection once more, for another thread to close.
    pub fn handle(&self) -> Option<TcpStream> {
        self.answer.reader.try_clone().ok()
    }

    /// Sends a request, and waits for the beginning of its answer.
    ///
    /// # Errors
    /// The connection's.
    pub fn ask(&mut self, key: i16, version: i16, client: &str, body: Body) -> Result<&mut Answer<TcpStream>, String> {
        // What nobody read of the answer before is none of this one's.
        self.answer.skip_rest()?;
        self.correlation = self.correlation.wrapping_add(1);
        let head = Body::default().i16(key).i16(version).i32(self.correlation).text(client).0;
        let length = u32::try_from(head.len() + body.0.len()).expect("requests are short");
        let request = [&length.to_be_bytes()[..], &head, &body.0].concat();
        self.answer.reader.write_all(&request).map_err(|e| failed(&e, &self.answer.place))?;
        self.answer.begin()?;
        if self.answer.i32()? != self.correlation {
            return Err(format!("{}: an answer to another request", self.answer.place));
        }
        Ok(&mut self.answer)
    }
}

/// An answer that is read as it comes.
pub struct Answer<R> {
    reader: R,
    buffer: Box<[u8]>,
    /// What of the buffer was not read yet.
    from: usize,
    to: usize,
    /// Bytes of the answer to come.
    left: usize,
    place: String,
}

impl<R: Read> Answer<R> {
    /// What comes from `place`.
    pub fn new(reader: R, place: String) -> Self {
        Answer { reader, buffer: vec![0; BUFFER_BYTES].into_boxed_slice(), from: 0, to: 0, left: 0, place }
    }

    /// Where it comes from.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Waits for an answer.
    ///
    /// # Errors
    /// The connection's.
    pub fn begin(&mut self) -> Result<(), String> {
        self.left = 4;
        let length = self.i32()?;
        match usize::try_from(length) {
            Ok(length) if length >= 4 => self.left = length,
            _ => return Err(format!("{}: an answer of {length} bytes; is this a broker, and its port one without TLS?", self.place)),
        }
        Ok(())
    }

    /// Exactly so many bytes of the answer.
    fn exact(&mut self, out: &mut [u8]) -> Result<(), String> {
        if out.len() > self.left {
            return Err(format!("{}: an answer that breaks off", self.place));
        }
        self.left -= out.len();
        let mut at = 0;
        while at < out.len() {
            if self.from < self.to {
                let count = (self.to - self.from).min(out.len() - at);
                out[at..at + count].copy_from_slice(&self.buffer[self.from..self.from + count]);
                self.from += count;
                at += count;
            } else if out.len() - at >= self.buffer.len() {
                at += some(&mut self.reader, &mut out[at..], &self.place)?;
            } else {
                (self.from, self.to) = (0, 0);
                self.to = some(&mut self.reader, &mut self.buffer, &self.place)?;
            }
        }
        Ok(())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut bytes = [0; N];
        self.exact(&mut bytes)?;
        Ok(bytes)
    }

    /// 8 bits.
    ///
    /// # Errors
    /// The connection's, and an answer that breaks off; so for all that follow.
    pub fn i8(&mut self) -> Result<i8, String> {
        self.array().map(i8::from_be_bytes)
    }

    /// 16 bits.
    ///
    /// # Errors
    /// As [`Answer::i8`].
    pub fn i16(&mut self) -> Result<i16, String> {
        self.array().map(i16::from_be_bytes)
    }

    /// 32 bits.
    ///
    /// # Errors
    /// As [`Answer::i8`].
    pub fn i32(&mut self) -> Result<i32, String> {
        self.array().map(i32::from_be_bytes)
    }

    /// 64 bits.
    ///
    /// # Errors
    /// As [`Answer::i8`].
    pub fn i64(&mut self) -> Result<i64, String> {
        self.array().map(i64::from_be_bytes)
    }

    /// A text; an empty one for null.
    ///
    /// # Errors
    /// As [`Answer::i8`].
    pub fn text(&mut self) -> Result<String, String> {
        let length = usize::try_from(self.i16()?).unwrap_or(0);
        let mut bytes = vec![0; length];
        self.exact(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// How many elements of at least `bytes` bytes follow; none for null.
    ///
    /// # Errors
    /// As [`Answer::i8`], and where there is less than that.
    pub fn count(&mut self, bytes: usize) -> Result<usize, String> {
        let count = usize::try_from(self.i32()?).unwrap_or(0);
        match count.checked_mul(bytes) {
            Some(all) if all <= self.left => Ok(count),
            _ => Err(format!("{}: an answer that breaks off", self.place)),
        }
    }

    /// Passes over a list of numbers of 32 bits.
    ///
    /// # Errors
    /// As [`Answer::i8`].
    pub fn skip_numbers(&mut self) -> Result<(), String> {
        for _ in 0..self.count(4)? {
            self.i32()?;
        }
        Ok(())
    }

    /// So many bytes in place of what `out` holds, whose memory is used again.
    ///
    /// # Errors
    /// As [`Answer::i8`].
    pub fn bytes(&mut self, length: usize, out: &mut Vec<u8>) -> Result<(), String> {
        out.truncate(length);
        let mut at = 0;
        while at < length {
            let end = length.min((at * 2).max(STEP_BYTES));
            if out.len() < end {
                // No more than is needed, or it would be too large to be kept.
                out.reserve_exact(end - out.len());
                out.resize(end, 0);
            }
            self.exact(&mut out[at..end])?;
            at = end;
        }
        Ok(())
    }

    fn skip_rest(&mut self) -> Result<(), String> {
        let mut waste = [0; 512];
        while self.left > 0 {
            let count = self.left.min(waste.len());
            self.exact(&mut waste[..count])?;
        }
        Ok(())
    }
}

#[cold]
fn failed(e: &std::io::Error, place: &str) -> String {
    match e.kind() {
        // What the time limit of a socket is called differs between systems.
        ErrorKind::WouldBlock | ErrorKind::TimedOut => format!("{place}: no answer in time"),
        _ => format!("{place}: {e}"),
    }
}

/// What is there, at least a byte.
fn some(reader: &mut impl Read, out: &mut [u8], place: &str) -> Result<usize, String> {
    loop {
        match reader.read(out) {
            Ok(0) => return Err(format!("{place}: the broker closed the connection")),
            Ok(count) => return Ok(count),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(failed(&e, place)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives a few bytes at a time.
    struct Trickle<'a>(&'a [u8], usize);

    impl Read for Trickle<'_> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            let count = self.1.min(out.len()).min(self.0.len());
            out[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    #[test]
    fn answers_come_in_any_pieces() {
        let large: Vec<u8> = (0..100_000u32).map(|n| n as u8).collect();
        let body = [&7i32.to_be_bytes()[..], &[0, 2, b'a', b'b', 0xff, 0xff], &large, &[9; 100]].concat();
        let mut bytes = (body.len() as i32).to_be_bytes().to_vec();
        bytes.extend(&body);
        bytes.extend([0, 0, 0, 4, 0, 0, 0, 8]);
        for piece in [1, 7, 5_000, usize::MAX] {
            let mut answer = Answer::new(Trickle(&bytes, piece), "here".into());
            answer.begin().unwrap();
            assert_eq!(answer.i32(), Ok(7));
            assert_eq!((answer.text(), answer.text()), (Ok("ab".into()), Ok(String::new())));
            let mut out = vec![1; 10];
            answer.bytes(large.len(), &mut out).unwrap();
            assert!(out == large, "{piece}");
            answer.skip_rest().unwrap();
            answer.begin().unwrap();
            assert_eq!(answer.i32(), Ok(8));
            assert!(answer.i8().unwrap_err().contains("breaks off"), "nothing of another answer");
        }
    }

    #[test]
    fn nothing_is_believed() {
        let begun = |bytes: &'static [u8]| {
            let mut answer = Answer::new(bytes, "here".into());
            answer.begin().map(|()| answer)
        };
        assert!(begun(b"\0\0\0\x01").err().unwrap().contains("without TLS"));
        assert!(begun(b"\xff\0\0\0").err().unwrap().contains("without TLS"));
        assert!(begun(b"\0").err().unwrap().contains("closed"));
        let mut answer = begun(b"\0\0\0\x08\x7f\xff\xff\xff\0\0\0\0").unwrap();
        assert!(answer.count(4).unwrap_err().contains("breaks off"));
        let mut answer = begun(b"\x70\0\0\0\0\0\0\0").unwrap();
        let mut out = Vec::new();
        assert!(answer.bytes(1 << 30, &mut out).unwrap_err().contains("closed"));
        assert!(out.len() <= STEP_BYTES, "no memory for what does not come");
    }
}
