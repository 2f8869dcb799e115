//! Archives that can only be read forwards, of either kind.

use std::io::{self, Read};

use crate::tar::TarWalk;
use crate::zip::ZipWalk;
use crate::{ArchiveError, Container, Limits, Member};

/// Member after member of an archive that comes from a pipe, a socket, a decompressor: [`Walk::next`] goes to the next
/// one, reading gives its bytes and 0 at its end.
///
/// Members come in the order in which they lie. What the archive says at its end is checked there: only when
/// [`Walk::next`] has returned `None` is it certain that nothing was missing. Of a zip, what is skipped is not unpacked, if
/// its length is known.
pub struct Walk {
    inner: Inner,
    failed: bool,
}

enum Inner {
    Zip(ZipWalk),
    Tar(TarWalk),
    /// The decompressor could not be set up.
    Failed(Option<io::Error>),
}

impl Walk {
    /// Walks through `input`, the bytes of the archive as they are; the compression of a tar is undone here.
    pub fn new(input: Box<dyn Read + Send>, container: Container, limits: Limits) -> Walk {
        let inner = match container {
            Container::Zip => Inner::Zip(ZipWalk::new(input, limits)),
            Container::Tar(compression) => match TarWalk::new(input, compression, limits) {
                Ok(walk) => Inner::Tar(walk),
                Err(e) => Inner::Failed(Some(e)),
            },
        };
        Walk { inner, failed: false }
    }

    /// Goes to the next file, over what is left of the current one; `None`: the archive was whole, and is over.
    ///
    /// # Errors
    /// The archive is damaged, cut short or refused, or reading it failed. Nothing can be read after that.
    #[expect(clippy::should_implement_trait, reason = "an iterator would have to give members up before the next one is read")]
    pub fn next(&mut self) -> Result<Option<Member>, ArchiveError> {
        self.guard(|inner| match inner {
            Inner::Zip(walk) => walk.next(),
            Inner::Tar(walk) => walk.next(),
            Inner::Failed(e) => Err(e.take().map_or_else(stopped, ArchiveError::Io)),
        })
    }

    /// Does nothing more after an error, so that no member seems to end well that did not.
    fn guard<T>(&mut self, run: impl FnOnce(&mut Inner) -> Result<T, ArchiveError>) -> Result<T, ArchiveError> {
        if self.failed {
            return Err(stopped());
        }
        let done = run(&mut self.inner);
        self.failed = done.is_err();
        done
    }
}

impl Read for Walk {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let done = self.guard(|inner| match inner {
            Inner::Zip(walk) => walk.read(buf),
            Inner::Tar(walk) => walk.read(buf),
            Inner::Failed(_) => Ok(0),
        });
        done.map_err(io::Error::from)
    }
}

fn stopped() -> ArchiveError {
    ArchiveError::Damaged("reading the archive stopped at an error before".to_string())
}
