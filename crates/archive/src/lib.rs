//! Archives as streams of members: zip and tar, nothing of which is ever written to disk.
//!
//! There are two ways in. [`zip_directory`] and [`zip_member`] want to read anywhere ([`ReadAt`]): the
//! directory at the end of a zip says where its members lie, and each is read on its own, several at once if
//! somebody wishes. [`Walk`] reads from front to back, so that members come out of a zip or tar while it is
//! still being downloaded.
//!
//! Archives come from strangers. Lengths, counts, places and names are checked before they are used,
//! memory is bounded whatever an archive claims, and a member that was read to its end has the length and
//! the checksum that it should have. What is refused, and why, says [`ArchiveError`].
//!
//! What does not live here: streams that hold one file alone (`tidemill_format::compression`), and
//! where the bytes come from.

mod container;
mod error;
mod glob;
mod input;
mod limits;
mod names;
mod tar;
mod unpack;
mod walk;
mod zip;

pub use container::{Container, container};
pub use error::ArchiveError;
pub use glob::matches;
pub use input::{LocalFile, ReadAt};
pub use limits::Limits;
pub use walk::Walk;
pub use zip::{zip_directory, zip_member};

/// A file in an archive. Directories, links and devices are none.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name with its folders, `/` between them; a `./` before it is left out.
    pub name: String,
    /// Its number among all entries of the archive, folders and links counted, in the order of the zip's
    /// directory, or of appearance when read from front to back.
    pub index: usize,
    /// Its length unpacked, bytes; 0 where that shows only at its end ([`Member::size_known`]).
    pub size: u64,
    /// Its length in the archive, bytes; 0 where that shows only at its end.
    pub packed: u64,
    sized: bool,
    place: zip::Place,
}

impl Member {
    /// Whether `size` and `packed` are known: always but for members of a zip that was written without
    /// seeking and is read from front to back.
    pub fn size_known(&self) -> bool {
        self.sized
    }
}

#[cfg(test)]
mod tests;
