//! What can be wrong with an archive.

use std::fmt;
use std::io;

/// Why an archive, or a member, was not read. The text names the member and the fault, but not the
/// archive: whoever opened it knows its path.
#[derive(Debug)]
pub enum ArchiveError {
    /// Reading what lies below failed: a disk, a network, or the decompression around a tar.
    Io(io::Error),
    /// The archive stops before its end.
    Cut(String),
    /// What it says is not so: checksums, lengths, places.
    Damaged(String),
    /// It is made to do harm, or looks like it: names that lead outside, members that share bytes, bombs.
    Refused(String),
    /// It is sound, but needs what is not there: a password, a method of compression, seeking.
    Unsupported(String),
}

impl fmt::Display for ArchiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArchiveError::Io(e) => e.fmt(f),
            ArchiveError::Cut(text) | ArchiveError::Damaged(text) | ArchiveError::Refused(text) | ArchiveError::Unsupported(text) => {
                f.write_str(text)
            }
        }
    }
}

impl std::error::Error for ArchiveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ArchiveError::Io(e) => e.source(),
            _ => None,
        }
    }
}

impl From<io::Error> for ArchiveError {
    fn from(e: io::Error) -> Self {
        ArchiveError::Io(e)
    }
}

impl From<ArchiveError> for io::Error {
    fn from(e: ArchiveError) -> Self {
        let kind = match e {
            ArchiveError::Io(e) => return e,
            ArchiveError::Cut(_) => io::ErrorKind::UnexpectedEof,
            ArchiveError::Damaged(_) | ArchiveError::Refused(_) => io::ErrorKind::InvalidData,
            ArchiveError::Unsupported(_) => io::ErrorKind::Unsupported,
        };
        io::Error::new(kind, e)
    }
}
