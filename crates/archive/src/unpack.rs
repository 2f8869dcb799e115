//! One member of a zip, from packed bytes to bytes that were checked. The loop that all ways through a zip
//! share: input as it lies in the buffer, output straight into the caller's.

use std::io::Read;

use crc32fast::Hasher;
use flate2::{Decompress, FlushDecompress};
use liblzma::stream::{Action, Stream};
use zstd::stream::raw::Operation;

use crate::input::Input;
use crate::{ArchiveError, Limits};

/// What decompressing xz may allocate, bytes.
const XZ_MEMORY_BYTES_MAX: u64 = 256 << 20;

/// Methods of compression, by the numbers that zip gives them.
pub(crate) const STORED: u16 = 0;
pub(crate) const DEFLATE: u16 = 8;
pub(crate) const BZIP2: u16 = 12;
pub(crate) const ZSTD: u16 = 93;
pub(crate) const XZ: u16 = 95;

enum Engine {
    Stored,
    Deflate(Decompress),
    Bzip2(bzip2::Decompress),
    Xz(Stream),
    Zstd(zstd::stream::raw::Decoder<'static>),
}

/// What one call of an engine did, bytes; `ended`: the compressed stream is over.
struct Step {
    used: usize,
    made: usize,
    ended: bool,
}

impl Engine {
    fn new(method: u16, name: &str) -> Result<Engine, ArchiveError> {
        Ok(match method {
            STORED => Engine::Stored,
            DEFLATE => Engine::Deflate(Decompress::new(false)),
            BZIP2 => Engine::Bzip2(bzip2::Decompress::new(false)),
            ZSTD => Engine::Zstd(zstd::stream::raw::Decoder::new()?),
            XZ => Engine::Xz(Stream::new_stream_decoder(XZ_MEMORY_BYTES_MAX, 0).map_err(std::io::Error::from)?),
            _ => {
                let known = match method {
                    1 => " (shrink)",
                    2..=5 => " (reduce)",
                    6 => " (implode)",
                    9 => " (deflate64)",
                    14 => " (LZMA)",
                    97 => " (WavPack)",
                    98 => " (PPMd)",
                    _ => "",
                };
                return Err(ArchiveError::Unsupported(format!(
                    "the member '{name}' is compressed by method {method}{known}; stored, deflate, bzip2, xz and zstd are read"
                )));
            }
        })
    }

    fn step(&mut self, input: &[u8], out: &mut [u8]) -> Result<Step, String> {
        match self {
            // The one method that needs no step: `Unpack::copy` reads past it.
            Engine::Stored => {
                let n = input.len().min(out.len());
                out[..n].copy_from_slice(&input[..n]);
                Ok(Step { used: n, made: n, ended: false })
            }
            Engine::Deflate(inflate) => {
                let (used, made) = (inflate.total_in(), inflate.total_out());
                let status = inflate.decompress(input, out, FlushDecompress::None).map_err(|e| e.to_string())?;
                let (used, made) = (inflate.total_in() - used, inflate.total_out() - made);
                Ok(Step { used: used as usize, made: made as usize, ended: status == flate2::Status::StreamEnd })
            }
            Engine::Bzip2(stream) => {
                let (used, made) = (stream.total_in(), stream.total_out());
                let status = stream.decompress(input, out).map_err(|e| e.to_string())?;
                let (used, made) = (stream.total_in() - used, stream.total_out() - made);
                Ok(Step { used: used as usize, made: made as usize, ended: status == bzip2::Status::StreamEnd })
            }
            Engine::Xz(stream) => {
                let (used, made) = (stream.total_in(), stream.total_out());
                let status = stream.process(input, out, Action::Run).map_err(|e| e.to_string())?;
                let (used, made) = (stream.total_in() - used, stream.total_out() - made);
                Ok(Step { used: used as usize, made: made as usize, ended: status == liblzma::stream::Status::StreamEnd })
            }
            Engine::Zstd(decoder) => {
                let status = decoder.run_on_buffers(input, out).map_err(|e| e.to_string())?;
                Ok(Step { used: status.bytes_read, made: status.bytes_written, ended: status.remaining == 0 })
            }
        }
    }
}

/// What is known of a member before it is read.
pub(crate) struct Expect {
    pub method: u16,
    /// Its length in the archive; `None`: where the compressed stream ends.
    pub packed: Option<u64>,
    /// Its length unpacked; `None`: it follows behind the member.
    pub size: Option<u64>,
    /// Its checksum unpacked; `None`: as above.
    pub crc: Option<u32>,
}

/// What a member has turned out to be.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub packed: u64,
    pub size: u64,
    pub crc: u32,
}

/// A member that is being read.
pub(crate) struct Unpack {
    engine: Engine,
    name: String,
    /// Packed bytes not yet read.
    left: Option<u64>,
    size: Option<u64>,
    crc_told: Option<u32>,
    used: u64,
    made: u64,
    crc: Hasher,
    limits: Limits,
    done: bool,
}

impl Unpack {
    pub fn new(name: &str, expect: &Expect, limits: &Limits) -> Result<Unpack, ArchiveError> {
        let engine = Engine::new(expect.method, name)?;
        if matches!(engine, Engine::Stored) && expect.packed.is_none() {
            return Err(ArchiveError::Unsupported(format!(
                "the member '{name}' is stored and does not say how long it is before its end, so its end cannot be known when \
                 the archive is read from front to back: read it from where it can be sought (a file, an object store), or make \
                 the archive anew"
            )));
        }
        Ok(Unpack {
            engine,
            name: name.to_string(),
            left: expect.packed,
            size: expect.size,
            crc_told: expect.crc,
            used: 0,
            made: 0,
            crc: Hasher::new(),
            limits: *limits,
            done: false,
        })
    }

    /// Whether the member is over, and what was known of it has been found to be so.
    pub fn done(&self) -> bool {
        self.done
    }

    /// Packed bytes that were not read, where their number is known.
    pub fn left(&self) -> Option<u64> {
        self.left
    }

    /// What was found; of the whole member once it is [`Unpack::done`].
    pub fn found(&self) -> Found {
        Found { packed: self.used, size: self.made, crc: self.crc.clone().finalize() }
    }

    /// Reads into `buf`; 0 at the end alone (or if `buf` holds nothing).
    pub fn read<R: Read>(&mut self, input: &mut Input<R>, buf: &mut [u8]) -> Result<usize, ArchiveError> {
        if self.done || buf.is_empty() {
            return Ok(0);
        }
        let made = match self.engine {
            Engine::Stored => self.copy(input, buf)?,
            _ => self.decompress(input, buf)?,
        };
        self.crc.update(&buf[..made]);
        self.made += made as u64;
        self.check()?;
        Ok(made)
    }

    fn copy<R: Read>(&mut self, input: &mut Input<R>, buf: &mut [u8]) -> Result<usize, ArchiveError> {
        let left = self.left.unwrap_or(0);
        let n = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        let got = if n > 0 { input.read(&mut buf[..n])? } else { 0 };
        if got == 0 && left > 0 {
            return Err(self.cut());
        }
        self.used += got as u64;
        self.left = Some(left - got as u64);
        self.done = self.left == Some(0);
        Ok(got)
    }

    fn decompress<R: Read>(&mut self, input: &mut Input<R>, buf: &mut [u8]) -> Result<usize, ArchiveError> {
        loop {
            // At the end of the member nothing more is asked for: the input may be a slow network.
            let packed: &[u8] = match self.left {
                Some(0) => &[],
                Some(left) => {
                    let there = input.fill()?;
                    &there[..there.len().min(usize::try_from(left).unwrap_or(usize::MAX))]
                }
                None => input.fill()?,
            };
            let offered = packed.len();
            let step = match self.engine.step(packed, buf) {
                Ok(step) => step,
                Err(why) => return Err(self.damaged(&why)),
            };
            input.consume(step.used);
            self.used += step.used as u64;
            if let Some(left) = &mut self.left {
                *left -= step.used as u64;
            }
            if step.ended {
                match self.left {
                    // Frames of zstd may follow one another.
                    Some(left) if left > 0 => {
                        if !matches!(self.engine, Engine::Zstd(_)) {
                            return Err(self.damaged(&format!("{left} bytes lie behind the end of its data")));
                        }
                    }
                    _ => self.done = true,
                }
            }
            if step.made > 0 || self.done {
                return Ok(step.made);
            }
            if step.used == 0 {
                return Err(if offered == 0 { self.cut() } else { self.damaged("its data make no sense") });
            }
        }
    }

    /// Holds what came out so far against what is known of the member.
    fn check(&self) -> Result<(), ArchiveError> {
        self.limits.check_ratio(self.made, self.used, || format!("the member '{}'", self.name))?;
        match self.size {
            Some(size) if self.made > size => Err(self.damaged(&format!("it is longer than the {size} bytes that the archive says"))),
            Some(size) if self.done && self.made < size => {
                Err(self.damaged(&format!("it has {} bytes, the archive says {size}", self.made)))
            }
            _ => self.crc_told.filter(|_| self.done).map_or(Ok(()), |crc| self.check_crc(crc)),
        }
    }

    /// Compares the checksum of the whole with what the archive says.
    pub fn check_crc(&self, crc: u32) -> Result<(), ArchiveError> {
        match self.found().crc {
            found if found == crc => Ok(()),
            found => Err(self.damaged(&format!("its checksum (CRC-32) is {found:08x}, the archive says {crc:08x}"))),
        }
    }

    #[cold]
    pub fn damaged(&self, why: &str) -> ArchiveError {
        ArchiveError::Damaged(format!("the member '{}' is damaged, after {} unpacked bytes: {why}", self.name, self.made))
    }

    #[cold]
    fn cut(&self) -> ArchiveError {
        // With a known length the data may end before it without a word.
        let what = match self.left {
            Some(0) => "its data stop",
            _ => "the archive ends",
        };
        ArchiveError::Cut(format!("the member '{}' is cut short: {what} after {} unpacked bytes of it", self.name, self.made))
    }
}
