//! Zip archives.
//!
//! ```text
//! local header, name, extra fields, data [, descriptor]      for each member
//! directory: a central header for each member
//! [zip64 end, zip64 locator]
//! end: where the directory lies, a comment
//! ```
//!
//! `records.rs` reads headers, `directory.rs` finds and checks the directory, `member.rs` reads a member where it
//! lies, `walk.rs` goes through all of it from front to back. After the specification that is called APPNOTE
//! (6.3.10), and what writers in use make of it.

mod directory;
mod member;
mod records;
mod walk;

pub use directory::zip_directory;
pub use member::zip_member;
pub(crate) use walk::ZipWalk;

use crate::ArchiveError;

/// Where a member lies, and how it is packed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    /// The offset of its local header.
    offset: u64,
    /// Where the next member or the directory begins; 0 of members that were met on a walk, or of a tar.
    limit: u64,
    method: u16,
    crc: u32,
}

/// The flag of members that are encrypted.
const ENCRYPTED: u16 = 1;
/// The flag of members whose lengths and checksum follow behind them.
const DESCRIPTOR: u16 = 1 << 3;
/// The flag of patches of other files.
const PATCH: u16 = 1 << 5;
/// Flags of stronger encryption: of members, of the directory.
const STRONG: u16 = (1 << 6) | (1 << 13);
/// The flag of names that are UTF-8.
const UTF8: u16 = 1 << 11;
/// The method that stands for AES.
const AES: u16 = 99;

/// Refuses members that cannot be read whatever comes: encrypted ones, and patches.
fn check_flags(flags: u16, method: u16, name: &str) -> Result<(), ArchiveError> {
    if flags & (ENCRYPTED | STRONG) > 0 || method == AES {
        return Err(ArchiveError::Unsupported(format!(
            "the member '{name}' is encrypted, and there is no way to give a password: unpack the archive first"
        )));
    }
    if flags & PATCH > 0 {
        return Err(ArchiveError::Unsupported(format!("the member '{name}' is a patch of another file, not a file")));
    }
    Ok(())
}
