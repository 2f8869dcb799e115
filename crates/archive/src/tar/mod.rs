//! Tar archives, from front to back: ustar, GNU's and POSIX's (pax) extensions for long names and sizes.
//! `header.rs` reads the blocks before members.

mod header;

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidemill_format::compression::{self, Compression};

use self::header::{BLOCK_BYTES, Header, Pax};
use crate::input::{INPUT_BYTES, Input};
use crate::names::{self, Seen};
use crate::zip::Place;
use crate::{ArchiveError, Limits, Member};

/// The longest extended header, bytes: paths are in it, but also attributes that nobody here asks for.
const PAX_BYTES_MAX: u64 = 1 << 20;

/// Goes through a tar archive.
pub(crate) struct TarWalk {
    input: Input<Box<dyn Read + Send>>,
    /// Bytes read of the compressed archive; `None`: it is not compressed.
    packed: Option<Arc<AtomicU64>>,
    limits: Limits,
    seen: Seen,
    entries: u64,
    name: String,
    /// Bytes of the current member that were not read, and what fills its last block.
    left: u64,
    padding: u64,
    ended: bool,
}

/// Counts what a decompressor reads.
struct Counted {
    inner: Box<dyn Read + Send>,
    bytes: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.bytes.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

impl TarWalk {
    /// Walks through `input` after decompressing it.
    ///
    /// # Errors
    /// The decompressor cannot be set up (memory).
    pub fn new(input: Box<dyn Read + Send>, compression: Compression, limits: Limits) -> io::Result<TarWalk> {
        let (input, packed) = match compression {
            Compression::None => (input, None),
            compression => {
                let bytes = Arc::new(AtomicU64::new(0));
                let counted = Counted { inner: input, bytes: Arc::clone(&bytes) };
                (compression::reader(Box::new(counted), compression)?, Some(bytes))
            }
        };
        Ok(TarWalk {
            input: Input::new(input, 0, INPUT_BYTES),
            packed,
            limits,
            seen: Seen::default(),
            entries: 0,
            name: String::new(),
            left: 0,
            padding: 0,
            ended: false,
        })
    }

    /// Reads the current member; 0 at its end, or if there is none.
    pub fn read(&mut self, buf: &mut [u8]) -> Result<usize, ArchiveError> {
        let n = usize::try_from(self.left).unwrap_or(usize::MAX).min(buf.len());
        if n == 0 {
            return Ok(0);
        }
        let got = self.input.read(&mut buf[..n])?;
        if got == 0 {
            return Err(self.cut());
        }
        self.left -= got as u64;
        self.check_ratio()?;
        Ok(got)
    }

    /// The next file; what is left of the current one is gone over.
    pub fn next(&mut self) -> Result<Option<Member>, ArchiveError> {
        if self.ended {
            return Ok(None);
        }
        self.skip(self.left + self.padding)?;
        (self.left, self.padding) = (0, 0);
        // What extended headers say of the file behind them.
        let (mut long_name, mut pax) = (None, Pax::default());
        loop {
            let at = self.input.at();
            let mut block = [0; BLOCK_BYTES];
            if !self.input.exact(&mut block)? {
                return Err(match at {
                    0 => ArchiveError::Damaged("this is no tar archive: it is too short".to_string()),
                    _ => ArchiveError::Cut(format!(
                        "the archive is cut short: it ends at byte {}, without the empty block that ends a tar",
                        self.input.at()
                    )),
                });
            }
            self.check_ratio()?;
            if block.iter().all(|b| *b == 0) {
                self.finish()?;
                self.ended = true;
                return Ok(None);
            }
            let header = Header::parse(&block, at)?;
            self.entries += 1;
            self.limits.check_count(self.entries)?;
            match header.kind {
                b'x' | b'X' => {
                    let bytes = self.extension(header.size, PAX_BYTES_MAX, "an extended header")?;
                    pax.read(&bytes, at)?;
                }
                // Says something of all that follow, which must be neither names nor lengths to make sense.
                b'g' => {
                    self.extension(header.size, PAX_BYTES_MAX, "an extended header")?;
                }
                b'L' => {
                    let bytes = self.extension(header.size, self.limits.name_bytes_max as u64 + 1, "a long name")?;
                    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
                    long_name = Some(bytes[..end].to_vec());
                }
                b'K' => {
                    self.extension(header.size, PAX_BYTES_MAX, "a long link name")?;
                }
                // Links, devices, folders, pipes: they have no data, whatever their size says.
                b'1'..=b'6' => (long_name, pax) = (None, Pax::default()),
                // A volume's label, a list of what a folder held.
                b'V' | b'D' => {
                    self.skip(padded(pax.size.unwrap_or(header.size))?)?;
                    (long_name, pax) = (None, Pax::default());
                }
                b'0' | b'7' | 0 => {
                    let raw = pax.path.take().or(long_name.take()).unwrap_or(header.name);
                    let size = pax.size.unwrap_or(header.size);
                    let sparse = std::mem::take(&mut pax).sparse;
                    if sparse {
                        return Err(sparse_file(&raw));
                    }
                    let name = names::checked(&raw, false, &self.limits)?;
                    // Before ustar, folders were files whose names end in a slash.
                    if raw.ends_with(b"/") {
                        self.skip(padded(size)?)?;
                        continue;
                    }
                    self.seen.add(&name)?;
                    self.left = size;
                    self.padding = padded(size)? - size;
                    self.name.clone_from(&name);
                    let index = self.entries as usize - 1;
                    return Ok(Some(Member { name, index, size, packed: size, sized: true, place: Place::default() }));
                }
                b'S' => return Err(sparse_file(&header.name)),
                b'M' => {
                    return Err(ArchiveError::Unsupported("the archive is one of several volumes: join them first".to_string()));
                }
                kind => {
                    return Err(ArchiveError::Unsupported(format!(
                        "the archive has an entry of the unknown kind '{}' at byte {at}",
                        (kind as char).escape_default()
                    )));
                }
            }
        }
    }

    /// Reads the data of an extension, at most so many bytes.
    fn extension(&mut self, size: u64, bytes_max: u64, what: &str) -> Result<Vec<u8>, ArchiveError> {
        let at = self.input.at();
        if size > bytes_max {
            return Err(ArchiveError::Refused(format!(
                "the archive has {what} of {size} bytes at byte {at}; at most {bytes_max} are read"
            )));
        }
        let mut bytes = vec![0; size as usize];
        if !self.input.exact(&mut bytes)? {
            return Err(self.cut());
        }
        self.skip(padded(size)? - size)?;
        Ok(bytes)
    }

    fn skip(&mut self, bytes: u64) -> Result<(), ArchiveError> {
        // In pieces, so that a bomb is noticed on the way.
        let mut left = bytes;
        while left > 0 {
            let now = left.min(INPUT_BYTES as u64);
            if !self.input.skip(now)? {
                return Err(self.cut());
            }
            left -= now;
            self.check_ratio()?;
        }
        Ok(())
    }

    /// Reads on to the end of the input, where compression has its checksum; there must be nothing but zeros.
    fn finish(&mut self) -> Result<(), ArchiveError> {
        loop {
            let at = self.input.at();
            let rest = self.input.fill()?;
            if rest.is_empty() {
                return Ok(());
            }
            if let Some(first) = rest.iter().position(|b| *b != 0) {
                let at = at + first as u64;
                return Err(ArchiveError::Damaged(format!(
                    "something follows the end of the archive, at byte {at}: are these several archives?"
                )));
            }
            let bytes = rest.len();
            self.input.consume(bytes);
            self.check_ratio()?;
        }
    }

    fn check_ratio(&self) -> Result<(), ArchiveError> {
        match &self.packed {
            None => Ok(()),
            Some(packed) => self.limits.check_ratio(self.input.at(), packed.load(Ordering::Relaxed), || "the archive".to_string()),
        }
    }

    #[cold]
    fn cut(&self) -> ArchiveError {
        let at = self.input.at();
        match self.left {
            0 => ArchiveError::Cut(format!("the archive is cut short: it ends at byte {at}")),
            _ => ArchiveError::Cut(format!("the member '{}' is cut short: the archive ends at byte {at}", self.name)),
        }
    }
}

/// A length with what fills its last block.
fn padded(size: u64) -> Result<u64, ArchiveError> {
    size.checked_next_multiple_of(BLOCK_BYTES as u64)
        .ok_or_else(|| ArchiveError::Damaged(format!("the archive has a member of {size} bytes, which is more than there can be")))
}

fn sparse_file(name: &[u8]) -> ArchiveError {
    let name = String::from_utf8_lossy(name);
    ArchiveError::Unsupported(format!(
        "the member '{name}' is a sparse file, whose holes are not in the archive: make it without `--sparse`"
    ))
}
