//! Compressed byte streams: gzip, zstd, bzip2, xz and lz4, read and written through boxed readers and
//! writers. `lz4.rs` below has what frames of lz4 need beyond their crate. What does not live here:
//! archives, which hold several files (the crate `archive`).

use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bzip2::bufread::MultiBzDecoder;
use bzip2::write::BzEncoder;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;
use liblzma::bufread::XzDecoder;
use liblzma::stream::{CONCATENATED, Check, Stream};
use liblzma::write::XzEncoder;
use lz4_flex::frame::{BlockSize, FrameEncoder, FrameInfo};

use crate::option_enum;

mod lz4;

/// How much compressed input is read at once, bytes.
const INPUT_BYTES: usize = 256 << 10;

/// What decompressing xz may allocate, bytes: four times what `xz -9` asks for. The stream itself says
/// how much it needs, so a few hostile bytes could ask for 4 GB.
const XZ_MEMORY_BYTES_MAX: u64 = 256 << 20;

option_enum! {
    /// How a byte stream is compressed.
    pub enum Compression {
        /// Not at all.
        None = "none",
        /// gzip, one or many members.
        Gzip = "gzip",
        /// Zstandard, one or many frames.
        Zstd = "zstd",
        /// bzip2, one or many streams.
        Bzip2 = "bzip2",
        /// xz, one or many streams.
        Xz = "xz",
        /// lz4, one or many frames.
        Lz4 = "lz4",
    }
}

impl Compression {
    /// What the extension of the file name says: `.gz`, `.zst`, `.zstd`, `.bz2`, `.xz`, `.lz4`, in any case.
    pub fn from_path(path: impl AsRef<Path>) -> Self {
        let extension = path.as_ref().extension().and_then(|e| e.to_str()).unwrap_or_default();
        match extension.to_ascii_lowercase().as_str() {
            "gz" => Compression::Gzip,
            "zst" | "zstd" => Compression::Zstd,
            "bz2" => Compression::Bzip2,
            "xz" => Compression::Xz,
            "lz4" => Compression::Lz4,
            _ => Compression::None,
        }
    }

    /// The extension that a file so compressed gets, with its dot; empty without compression.
    pub fn suffix(self) -> &'static str {
        match self {
            Compression::None => "",
            Compression::Gzip => ".gz",
            Compression::Zstd => ".zst",
            Compression::Bzip2 => ".bz2",
            Compression::Xz => ".xz",
            Compression::Lz4 => ".lz4",
        }
    }

    /// The level used when none is asked for: gzip 6 (of 1 to 9), zstd 3 (of 1 to 22), bzip2 9 (of 1 to
    /// 9), xz 3 (of 0 to 9: a writer takes 32 MB, where level 6 takes 94); lz4 has no levels.
    pub fn default_level(self) -> u32 {
        match self {
            Compression::None | Compression::Lz4 => 0,
            Compression::Gzip => 6,
            Compression::Zstd | Compression::Xz => 3,
            Compression::Bzip2 => 9,
        }
    }
}

/// Reads what `inner` holds compressed. A stream that stops before its end is an error of kind
/// `UnexpectedEof` that says so; nothing is ever taken for the end of the data but the end.
///
/// # Errors
/// The decompressor cannot be set up (memory).
pub fn reader(inner: Box<dyn Read + Send>, compression: Compression) -> io::Result<Box<dyn Read + Send>> {
    if compression == Compression::None {
        return Ok(inner);
    }
    let failed = Arc::new(AtomicBool::new(false));
    let input = BufReader::with_capacity(INPUT_BYTES, Input { inner, failed: failed.clone() });
    Ok(match compression {
        // Given back above.
        Compression::None => Box::new(input),
        Compression::Gzip => Checked::boxed(MultiGzDecoder::new(input), failed, "gzip"),
        Compression::Zstd => Checked::boxed(zstd::stream::read::Decoder::with_buffer(input)?, failed, "zstd"),
        Compression::Bzip2 => Checked::boxed(MultiBzDecoder::new(input), failed, "bzip2"),
        Compression::Xz => {
            let stream = Stream::new_stream_decoder(XZ_MEMORY_BYTES_MAX, CONCATENATED)?;
            Checked::boxed(XzDecoder::new_stream(input, stream), failed, "xz")
        }
        Compression::Lz4 => Checked::boxed(lz4::Frames::new(input), failed, "lz4"),
    })
}

/// What is decompressed. It notes that reading it failed: that is not the fault of the stream.
struct Input {
    inner: Box<dyn Read + Send>,
    failed: Arc<AtomicBool>,
}

impl Read for Input {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buf).inspect_err(|e| {
            if e.kind() != io::ErrorKind::Interrupted {
                self.failed.store(true, Ordering::Relaxed);
            }
        })
    }
}

/// Says in errors what was being decompressed and how far it came.
struct Checked<R> {
    decoder: R,
    /// Whether its input could not be read: that error says itself what was wrong.
    failed: Arc<AtomicBool>,
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
            Err(e) if self.failed.load(Ordering::Relaxed) => Err(e),
            Err(e) => Err(self.explain(&e)),
        }
    }
}

impl<R: Read + Send + 'static> Checked<R> {
    fn boxed(decoder: R, failed: Arc<AtomicBool>, name: &'static str) -> Box<dyn Read + Send> {
        Box::new(Checked { decoder, failed, name, produced: 0 })
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
            _ if wants_memory(e) => format!(
                "the {name} stream needs more than {} MB to be decompressed: compress it with a smaller dictionary (xz -9 or lower)",
                XZ_MEMORY_BYTES_MAX >> 20
            ),
            _ => format!("the {name} stream is damaged after {produced} decompressed bytes, or is no {name} at all: {e}"),
        };
        io::Error::new(e.kind(), text)
    }
}

/// Whether the stream asked for more than [`XZ_MEMORY_BYTES_MAX`].
fn wants_memory(e: &io::Error) -> bool {
    let inner = e.get_ref().and_then(|e| e.downcast_ref::<liblzma::stream::Error>());
    matches!(inner, Some(liblzma::stream::Error::MemLimit))
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
        Compression::Bzip2 => Box::new(BzEncoder::new(inner, bzip2::Compression::new(level.clamp(1, 9)))),
        Compression::Xz => Box::new(XzEncoder::new_stream(inner, Stream::new_easy_encoder(level.min(9), Check::Crc64)?)),
        Compression::Lz4 => {
            // Blocks of one size whatever the size of the first write, so that the same rows give the same bytes.
            let frame = FrameInfo::new().block_size(BlockSize::Max256KB).content_checksum(true);
            Box::new(FrameEncoder::with_frame_info(frame, inner))
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

impl CompressWriter for BzEncoder<Box<dyn Write + Send>> {
    fn finish(self: Box<Self>) -> io::Result<Box<dyn Write + Send>> {
        let mut inner = BzEncoder::finish(*self)?;
        inner.flush()?;
        Ok(inner)
    }
}

impl CompressWriter for XzEncoder<Box<dyn Write + Send>> {
    fn finish(self: Box<Self>) -> io::Result<Box<dyn Write + Send>> {
        let mut inner = XzEncoder::finish(*self)?;
        inner.flush()?;
        Ok(inner)
    }
}

impl CompressWriter for FrameEncoder<Box<dyn Write + Send>> {
    fn finish(self: Box<Self>) -> io::Result<Box<dyn Write + Send>> {
        let mut inner = FrameEncoder::finish(*self)?;
        inner.flush()?;
        Ok(inner)
    }
}

#[cfg(test)]
mod tests;
