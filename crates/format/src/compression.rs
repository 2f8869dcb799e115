//! Compressed byte streams: gzip and zstd, read and written through boxed readers and writers.

use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;

use crate::option_enum;

/// How much compressed input is read at once, bytes.
const INPUT_BYTES: usize = 256 << 10;

option_enum! {
    /// How a byte stream is compressed.
    pub enum Compression {
        /// Not at all.
        None = "none",
        /// gzip, one or many members.
        Gzip = "gzip",
        /// Zstandard, one or many frames.
        Zstd = "zstd",
    }
}

impl Compression {
    /// What the extension of the file name says: `.gz`, `.zst`, `.zstd`, in any case.
    pub fn from_path(path: impl AsRef<Path>) -> Self {
        match path.as_ref().extension().and_then(|e| e.to_str()) {
            Some(e) if e.eq_ignore_ascii_case("gz") => Compression::Gzip,
            Some(e) if e.eq_ignore_ascii_case("zst") || e.eq_ignore_ascii_case("zstd") => Compression::Zstd,
            _ => Compression::None,
        }
    }

    /// The extension that a file so compressed gets, with its dot; empty without compression.
    pub fn suffix(self) -> &'static str {
        match self {
            Compression::None => "",
            Compression::Gzip => ".gz",
            Compression::Zstd => ".zst",
        }
    }

    /// The level used when none is asked for: gzip 6 (of 1 to 9), zstd 3 (of 1 to 22).
    pub fn default_level(self) -> u32 {
        match self {
            Compression::None => 0,
            Compression::Gzip => 6,
            Compression::Zstd => 3,
        }
    }
}

/// Reads what `inner` holds compressed. A stream that stops before its end is an error of kind
/// `UnexpectedEof` that says so; nothing is ever taken for the end of the data but the end.
///
/// # Errors
/// The decompressor cannot be set up (memory).
pub fn reader(inner: Box<dyn Read + Send>, compression: Compression) -> io::Result<Box<dyn Read + Send>> {
    Ok(match compression {
        Compression::None => inner,
        Compression::Gzip => {
            let decoder = MultiGzDecoder::new(BufReader::with_capacity(INPUT_BYTES, inner));
            Box::new(Checked { decoder, name: "gzip", produced: 0 })
        }
        Compression::Zstd => {
            let decoder = zstd::stream::read::Decoder::with_buffer(BufReader::with_capacity(INPUT_BYTES, inner))?;
            Box::new(Checked { decoder, name: "zstd", produced: 0 })
        }
    })
}

/// Says in errors what was being decompressed and how far it came.
struct Checked<R> {
    decoder: R,
    name: &'static str,
    produced: u64,
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self.decoder.read(buf) {
            Ok(n) => {
                self.produced += n as u64;
                Ok(n)
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => Err(e),
            Err(e) => Err(self.explain(&e)),
        }
    }
}

impl<R> Checked<R> {
    #[cold]
    fn explain(&self, e: &io::Error) -> io::Error {
        let (name, produced) = (self.name, self.produced);
        let text = match e.kind() {
            io::ErrorKind::UnexpectedEof => {
                format!(
                    "the {name} stream ends in the middle, after {produced} decompressed bytes: it was cut short or is still being written"
                )
            }
            _ => format!("the {name} stream is damaged after {produced} decompressed bytes, or is no {name} at all: {e}"),
        };
        io::Error::new(e.kind(), text)
    }
}

/// A writer that has something to say at the end of its data.
pub trait CompressWriter: Write + Send {
    /// Writes what is left and the end of the stream, flushes, and gives back the writer below.
    /// A stream dropped without it is incomplete.
    ///
    /// # Errors
    /// Writing failed.
    fn finish(self: Box<Self>) -> io::Result<Box<dyn Write + Send>>;
}

/// Writes to `inner` compressed, at `level` or else [`Compression::default_level`]; a level out of
/// range becomes the nearest one.
///
/// # Errors
/// The compressor cannot be set up (memory).
pub fn writer(inner: Box<dyn Write + Send>, compression: Compression, level: Option<u32>) -> io::Result<Box<dyn CompressWriter>> {
    let level = level.unwrap_or(compression.default_level());
    Ok(match compression {
        Compression::None => Box::new(Plain(inner)),
        Compression::Gzip => Box::new(GzEncoder::new(inner, flate2::Compression::new(level.clamp(1, 9)))),
        Compression::Zstd => {
            let mut encoder = zstd::stream::write::Encoder::new(inner, level.clamp(1, 22) as i32)?;
            encoder.include_checksum(true)?;
            Box::new(encoder)
        }
    })
}

struct Plain(Box<dyn Write + Send>);

impl Write for Plain {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl CompressWriter for Plain {
    fn finish(mut self: Box<Self>) -> io::Result<Box<dyn Write + Send>> {
        self.0.flush()?;
        Ok(self.0)
    }
}

impl CompressWriter for GzEncoder<Box<dyn Write + Send>> {
    fn finish(self: Box<Self>) -> io::Result<Box<dyn Write + Send>> {
        let mut inner = GzEncoder::finish(*self)?;
        inner.flush()?;
        Ok(inner)
    }
}

impl CompressWriter for zstd::stream::write::Encoder<'static, Box<dyn Write + Send>> {
    fn finish(self: Box<Self>) -> io::Result<Box<dyn Write + Send>> {
        let mut inner = zstd::stream::write::Encoder::finish(*self)?;
        inner.flush()?;
        Ok(inner)
    }
}

#[cfg(test)]
mod tests;
