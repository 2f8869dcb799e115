//! Buffers that are compressed one by one. The length that stands before each is checked before memory is taken for it.

use std::io::Read;

use arrow::buffer::Buffer;
use arrow::ipc;
use lz4_flex::frame::FrameDecoder;
use zstd::bulk::Decompressor;

/// How the buffers of a batch are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codec {
    Lz4,
    Zstd,
}

/// What the wanted columns of one batch of a file may become, bytes: more than whoever compresses files writes at once.
const BATCH_BYTES_MAX: u64 = 4 << 30;
/// How many times its size a buffer may become: a block of zstd that repeats one byte gains 2^15, lz4 255.
const RATIO_MAX: u64 = 1 << 16;
/// The length before a buffer that is not compressed, since that would have made it longer.
const PLAIN: i64 = -1;
/// The bytes of that length.
const PREFIX: usize = 8;

impl Codec {
    /// What a batch says.
    ///
    /// # Errors
    /// It is none that is known.
    pub fn of(compression: &ipc::BodyCompression<'_>) -> Result<Self, String> {
        if compression.method() != ipc::BodyCompressionMethod::BUFFER {
            return Err("its body is compressed in an unknown way".to_string());
        }
        match compression.codec() {
            ipc::CompressionType::LZ4_FRAME => Ok(Codec::Lz4),
            ipc::CompressionType::ZSTD => Ok(Codec::Zstd),
            other => Err(format!("its buffers are compressed by a codec that is not known (number {})", other.0)),
        }
    }

    /// Its name, as in the option `arrow.compression`.
    pub fn name(self) -> &'static str {
        match self {
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        }
    }
}

/// Decompresses the buffers of batches.
pub(super) struct Unpacker {
    zstd: Option<Decompressor<'static>>,
    /// Bytes that the batch at hand has become.
    bytes: u64,
    /// What it may become.
    bytes_max: u64,
}

impl Default for Unpacker {
    fn default() -> Self {
        Unpacker { zstd: None, bytes: 0, bytes_max: BATCH_BYTES_MAX }
    }
}

impl Unpacker {
    /// Bounds what a batch may become, bytes.
    pub fn limit(&mut self, bytes_max: u64) {
        self.bytes_max = bytes_max;
    }

    /// A batch begins.
    pub fn begin(&mut self) {
        self.bytes = 0;
    }

    /// What a buffer holds.
    ///
    /// # Errors
    /// It is damaged, or says that it is larger than it can be.
    pub fn unpack(&mut self, codec: Codec, packed: &Buffer) -> Result<Buffer, String> {
        if packed.is_empty() {
            return Ok(packed.clone());
        }
        let prefix = packed.get(..PREFIX).and_then(|bytes| <[u8; PREFIX]>::try_from(bytes).ok());
        let length = i64::from_le_bytes(prefix.ok_or("a compressed buffer without its length")?);
        if length == PLAIN {
            return Ok(packed.slice(PREFIX));
        }
        let bytes = u64::try_from(length).map_err(|_| format!("a compressed buffer of {length} bytes"))?;
        if bytes == 0 {
            return Ok(Buffer::from_vec(Vec::<u8>::new()));
        }
        let packed = &packed[PREFIX..];
        if bytes > (packed.len() as u64).saturating_mul(RATIO_MAX) {
            return Err(format!("a buffer of {} compressed bytes is said to hold {bytes}", packed.len()));
        }
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.bytes_max {
            let why = "write batches of fewer rows, or leave them uncompressed";
            let most = match self.bytes_max {
                BATCH_BYTES_MAX => format!("{} GB", BATCH_BYTES_MAX >> 30),
                bytes => format!("{bytes} bytes"),
            };
            return Err(format!("a batch would take more than {most} when it is decompressed; {why}"));
        }
        let wanted = bytes as usize;
        let damaged = |e: std::io::Error| format!("a buffer compressed by {} is damaged: {e}", codec.name());
        let unpacked = match codec {
            Codec::Lz4 => {
                let mut out = Vec::with_capacity(wanted);
                FrameDecoder::new(packed).take(bytes + 1).read_to_end(&mut out).map_err(damaged)?;
                out
            }
            Codec::Zstd => {
                if self.zstd.is_none() {
                    self.zstd = Some(Decompressor::new().map_err(damaged)?);
                }
                let zstd = self.zstd.as_mut().expect("made above");
                zstd.decompress(packed, wanted).map_err(damaged)?
            }
        };
        if unpacked.len() != wanted {
            return Err(format!("a compressed buffer is said to hold {bytes} bytes and does not"));
        }
        Ok(Buffer::from_vec(unpacked))
    }
}
