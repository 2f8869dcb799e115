//! How much an archive may ask for.

use crate::ArchiveError;

/// Up to here nobody asks how well something was packed, bytes unpacked: it does no harm.
const RATIO_BYTES_MIN: u64 = 64 << 20;

/// Bounds on what an archive may ask for, against those made to exhaust who reads them.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Entries, folders counted.
    pub members_max: u64,
    /// How many bytes may come from one packed byte, looked at beyond 64 MiB unpacked. Deflate reaches
    /// 1,032 with nothing but zeros; text that means something stays below 30.
    pub ratio_max: u64,
    /// The length of a name, bytes.
    pub name_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { members_max: 1_000_000, ratio_max: 1_000, name_bytes_max: 4096 }
    }
}

impl Limits {
    /// Refuses what unpacks to `made` bytes from `used`, if that is too much; `what` says of what.
    pub(crate) fn check_ratio(&self, made: u64, used: u64, what: impl FnOnce() -> String) -> Result<(), ArchiveError> {
        if made <= RATIO_BYTES_MIN || made / self.ratio_max.max(1) <= used {
            return Ok(());
        }
        Err(ArchiveError::Refused(format!(
            "{} would unpack to more than {} times its size ({made} bytes from {used}): that is a bomb, not data",
            what(),
            self.ratio_max
        )))
    }

    /// Refuses the entry after the last one that may be.
    pub(crate) fn check_count(&self, entries: u64) -> Result<(), ArchiveError> {
        if entries <= self.members_max {
            return Ok(());
        }
        Err(ArchiveError::Refused(format!("the archive has {entries} entries or more; at most {} are read", self.members_max)))
    }
}
