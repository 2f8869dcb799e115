//! Where the bytes of archives come from: files that can be read anywhere, and a buffer over them.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// How much is read at once, bytes: the round trip to a disk or a bucket is paid once for so many.
pub(crate) const INPUT_BYTES: usize = 256 << 10;

/// Bytes that can be read anywhere: a local file, an object in a bucket.
pub trait ReadAt: Send + Sync {
    /// How many there are.
    fn size(&self) -> u64;

    /// Reads from the offset `at` into `buf`, and says how many bytes came: fewer than `buf` holds only if that
    /// suits, and none only at the end.
    ///
    /// # Errors
    /// Reading failed.
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<usize>;
}

/// A file of this machine; its length is what it was when it was opened.
#[derive(Debug)]
pub struct LocalFile {
    file: File,
    size: u64,
}

impl LocalFile {
    /// Reads this file.
    ///
    /// # Errors
    /// Its length cannot be asked for.
    pub fn new(file: File) -> io::Result<LocalFile> {
        let size = file.metadata()?.len();
        Ok(LocalFile { file, size })
    }
}

impl ReadAt for LocalFile {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.file.read_at(buf, at) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }
}

/// An archive in memory.
impl ReadAt for Vec<u8> {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<usize> {
        let from = usize::try_from(at).unwrap_or(usize::MAX).min(self.len());
        let n = buf.len().min(self.len() - from);
        buf[..n].copy_from_slice(&self[from..from + n]);
        Ok(n)
    }
}

/// Part of a file, read from its front.
pub(crate) struct Section {
    pub file: Arc<dyn ReadAt>,
    pub at: u64,
    pub end: u64,
}

impl Read for Section {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX).min(buf.len());
        if n == 0 {
            return Ok(0);
        }
        let got = self.file.read_at(self.at, &mut buf[..n])?;
        self.at += got as u64;
        Ok(got)
    }
}

/// A buffer that knows its offset and can look ahead.
pub(crate) struct Input<R> {
    inner: R,
    buf: Box<[u8]>,
    start: usize,
    end: usize,
    at: u64,
}

impl<R: Read> Input<R> {
    /// Over `inner`, whose first byte has the offset `at`; `capacity` bytes are read at once, and one can look
    /// so far ahead.
    pub fn new(inner: R, at: u64, capacity: usize) -> Self {
        Input { inner, buf: vec![0; capacity].into_boxed_slice(), start: 0, end: 0, at }
    }

    /// The offset of the next byte.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// What is read from.
    pub fn inner(&mut self) -> &mut R {
        &mut self.inner
    }

    /// What is at hand, after reading if nothing is; empty at the end.
    pub fn fill(&mut self) -> io::Result<&[u8]> {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
            self.end = read(&mut self.inner, &mut self.buf)?;
        }
        Ok(&self.buf[self.start..self.end])
    }

    /// Takes `n` bytes of what [`Input::fill`] gave.
    pub fn consume(&mut self, n: usize) {
        assert!(n <= self.end - self.start, "more bytes taken than are at hand");
        self.start += n;
        self.at += n as u64;
    }

    /// The next `n` bytes without taking them; fewer at the end alone. `n` is at most the capacity.
    pub fn peek(&mut self, n: usize) -> io::Result<&[u8]> {
        assert!(n <= self.buf.len(), "looking further ahead than the buffer reaches");
        if self.end - self.start < n {
            self.buf.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            while self.end < n {
                match read(&mut self.inner, &mut self.buf[self.end..])? {
                    0 => break,
                    got => self.end += got,
                }
            }
        }
        let there = n.min(self.end - self.start);
        Ok(&self.buf[self.start..self.start + there])
    }

    /// Reads into `out` whatever is at hand; past the buffer if that is empty and `out` no smaller.
    pub fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.start == self.end && out.len() >= self.buf.len() {
            let got = read(&mut self.inner, out)?;
            self.at += got as u64;
            return Ok(got);
        }
        let there = self.fill()?;
        let n = there.len().min(out.len());
        out[..n].copy_from_slice(&there[..n]);
        self.consume(n);
        Ok(n)
    }

    /// Fills `out`; `false`: the input ends before.
    pub fn exact(&mut self, out: &mut [u8]) -> io::Result<bool> {
        let mut filled = 0;
        while filled < out.len() {
            match self.read(&mut out[filled..])? {
                0 => return Ok(false),
                n => filled += n,
            }
        }
        Ok(true)
    }

    /// Goes over `n` bytes; `false`: the input ends before.
    pub fn skip(&mut self, n: u64) -> io::Result<bool> {
        let mut left = n;
        while left > 0 {
            let there = self.fill()?.len();
            if there == 0 {
                return Ok(false);
            }
            let now = usize::try_from(left).unwrap_or(usize::MAX).min(there);
            self.consume(now);
            left -= now as u64;
        }
        Ok(true)
    }
}

/// Reads, again if a signal came between.
fn read(inner: &mut impl Read, buf: &mut [u8]) -> io::Result<usize> {
    loop {
        match inner.read(buf) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}
