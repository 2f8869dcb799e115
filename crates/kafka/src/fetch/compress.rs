//! The records of a compressed batch: gzip, snappy (as Java frames it, and bare), lz4 frames, zstd.

use std::io::Read;

use flate2::bufread::MultiGzDecoder;
use lz4_flex::frame::FrameDecoder;

/// The most that a batch may become, bytes. Producers make batches of a megabyte or so; what would be more than this was
/// made to do harm.
pub const BATCH_BYTES_MAX: usize = 256 << 20;

/// How Java's producers begin what they compress with snappy: this, and two numbers of 32 bits, then blocks with their
/// lengths in front.
const FRAMED: &[u8] = b"\x82SNAPPY\0";
/// Bytes in front of the first block.
const FRAMED_HEAD_BYTES: usize = 16;
/// Bytes that a byte of snappy becomes at most: a copy of 64 takes 3.
const SNAPPY_FACTOR: usize = 32;

/// How the records of a batch are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// Not at all.
    None,
    /// gzip.
    Gzip,
    /// Snappy.
    Snappy,
    /// lz4, in frames.
    Lz4,
    /// Zstandard.
    Zstd,
}

impl Codec {
    /// By the attributes of a batch; none if nobody knows it.
    pub fn of(attributes: i16) -> Option<Self> {
        Some(match attributes & 7 {
            0 => Codec::None,
            1 => Codec::Gzip,
            2 => Codec::Snappy,
            3 => Codec::Lz4,
            4 => Codec::Zstd,
            _ => return None,
        })
    }

    /// Appends what `input` holds to `out`, at most `limit` bytes.
    ///
    /// # Errors
    /// It is damaged, or more than `limit` bytes. What was appended by then stays.
    pub fn decompress(self, input: &[u8], out: &mut Vec<u8>, limit: usize) -> Result<(), String> {
        match self {
            Codec::None if input.len() > limit => Err(too_much(limit)),
            Codec::None => {
                out.extend_from_slice(input);
                Ok(())
            }
            Codec::Gzip => all(MultiGzDecoder::new(input), "gzip", out, limit),
            Codec::Lz4 => all(FrameDecoder::new(input), "lz4", out, limit),
            Codec::Zstd => {
                let decoder = zstd::stream::read::Decoder::with_buffer(input).map_err(|e| format!("zstd: {e}"))?;
                all(decoder, "zstd", out, limit)
            }
            Codec::Snappy => match input.strip_prefix(FRAMED) {
                None => snappy(input, out, limit),
                Some(_) => {
                    let from = out.len();
                    let mut rest = input.get(FRAMED_HEAD_BYTES..).ok_or_else(broken)?;
                    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
                        let (block, next) = behind.split_at_checked(u32::from_be_bytes(*length) as usize).ok_or_else(broken)?;
                        snappy(block, out, limit - (out.len() - from))?;
                        rest = next;
                    }
                    if rest.is_empty() { Ok(()) } else { Err(broken()) }
                }
            },
        }
    }
}

#[cold]
fn too_much(limit: usize) -> String {
    format!("the batch has more than {} MB of records", limit >> 20)
}

#[cold]
fn broken() -> String {
    "snappy: it breaks off".into()
}

fn all(decoder: impl Read, name: &str, out: &mut Vec<u8>, limit: usize) -> Result<(), String> {
    // One more, to tell the end from the limit.
    let got = decoder.take(limit as u64 + 1).read_to_end(out).map_err(|e| format!("{name}: {e}"))?;
    if got > limit { Err(too_much(limit)) } else { Ok(()) }
}

fn snappy(block: &[u8], out: &mut Vec<u8>, limit: usize) -> Result<(), String> {
    let wrong = |e: snap::Error| format!("snappy: {e}");
    let length = snap::raw::decompress_len(block).map_err(wrong)?;
    if length > limit {
        return Err(too_much(limit));
    }
    // The length is what the block says of itself: no memory for more than can come of it.
    if length > block.len().saturating_mul(SNAPPY_FACTOR) {
        return Err(broken());
    }
    let from = out.len();
    out.resize(from + length, 0);
    let got = snap::raw::Decoder::new().decompress(block, &mut out[from..]).map_err(wrong)?;
    out.truncate(from + got);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn decompressed(codec: Codec, input: &[u8], limit: usize) -> Result<Vec<u8>, String> {
        let mut out = b"before".to_vec();
        codec.decompress(input, &mut out, limit)?;
        assert_eq!(&out[..6], b"before");
        Ok(out.split_off(6))
    }

    #[test]
    fn each_gives_back_what_went_in() {
        let text = b"trade,".repeat(5_000);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&text).unwrap();
        let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
        lz4.write_all(&text).unwrap();
        let bare = snap::raw::Encoder::new().compress_vec(&text).unwrap();
        let mut framed = [FRAMED, &[0, 0, 0, 1, 0, 0, 0, 1]].concat();
        for part in text.chunks(7_000) {
            let block = snap::raw::Encoder::new().compress_vec(part).unwrap();
            framed.extend((block.len() as u32).to_be_bytes());
            framed.extend(block);
        }
        let cases = [
            (Codec::None, text.clone()),
            (Codec::Gzip, gzip.finish().unwrap()),
            (Codec::Lz4, lz4.finish().unwrap()),
            (Codec::Zstd, zstd::encode_all(&text[..], 1).unwrap()),
            (Codec::Snappy, bare),
            (Codec::Snappy, framed),
        ];
        for (codec, input) in cases {
            assert_eq!(decompressed(codec, &input, text.len()).unwrap(), text, "{codec:?}");
            assert!(decompressed(codec, &input, text.len() - 1).is_err(), "{codec:?}: more than the limit");
            if codec != Codec::None {
                let cut = decompressed(codec, &input[..input.len() / 2], text.len());
                assert!(cut.is_err() || cut.unwrap().len() < text.len(), "{codec:?}: cut");
            }
        }
    }

    #[test]
    fn a_length_that_cannot_be_takes_no_memory() {
        // 128 MB, of 5 bytes.
        assert!(decompressed(Codec::Snappy, &[0x80, 0x80, 0x80, 0x40, 0], BATCH_BYTES_MAX).unwrap_err().contains("breaks off"));
        assert!(decompressed(Codec::Snappy, &[FRAMED, &[0; 8], &[0xff, 0xff, 0xff, 0xff, 1]].concat(), 9).is_err());
    }
}
