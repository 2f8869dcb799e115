//! Where the bytes of a file come from: anything that can be read at any place.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::SasError;

/// A file that can be read anywhere, by several readers at once.
pub trait Pages: Send + Sync {
    /// Reads up to `buf.len()` bytes from byte `at` on; 0 only at the end of the file.
    ///
    /// # Errors
    /// Reading failed.
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<usize>;

    /// Length, bytes.
    fn size(&self) -> u64;
}

/// A local file.
pub struct LocalPages {
    file: File,
    size: u64,
}

impl LocalPages {
    /// The file as it is now: what is appended later is not seen.
    ///
    /// # Errors
    /// Its length cannot be found.
    pub fn new(file: File) -> io::Result<Self> {
        let size = file.metadata()?.len();
        Ok(LocalPages { file, size })
    }
}

impl Pages for LocalPages {
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(buf, at)
    }

    fn size(&self) -> u64 {
        self.size
    }
}

impl Pages for Vec<u8> {
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(at).ok().and_then(|at| self.get(at..)).unwrap_or_default();
        let length = rest.len().min(buf.len());
        buf[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }

    fn size(&self) -> u64 {
        self.len() as u64
    }
}

/// Fills `buf` from byte `at` on, or as much of it as the file has; gives how much that is.
pub(crate) fn fill(pages: &dyn Pages, at: u64, buf: &mut [u8]) -> Result<usize, SasError> {
    let mut done = 0;
    while done < buf.len() {
        match pages.read_at(at + done as u64, &mut buf[done..]) {
            Ok(0) => break,
            Ok(length) => done += length,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(done)
}

/// Fills all of `buf`; `what` names it in the error if the file ends before.
pub(crate) fn fill_all(pages: &dyn Pages, at: u64, buf: &mut [u8], what: &str) -> Result<(), SasError> {
    let want = buf.len();
    let got = fill(pages, at, buf)?;
    if got < want {
        return Err(SasError::data(format!(
            "the file is cut short: {what} is {want} bytes from byte {at} on, but it ends at byte {}",
            at + got as u64
        )));
    }
    Ok(())
}
