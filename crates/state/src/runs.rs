//! What a checkpoint knows of state that left memory: files, and the hashes of the keys for which they were kept.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::disk::StateFile;

/// Hashes from one to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HashRange {
    /// The lowest.
    pub from: u64,
    /// The highest.
    pub to: u64,
}

impl HashRange {
    /// All hashes.
    pub const ALL: HashRange = HashRange { from: 0, to: u64::MAX };

    /// The hashes of the keys that `shard` of `shards` owns, as [`crate::hash::shard`] says.
    pub fn of_shard(shard: usize, shards: usize) -> Self {
        let first = |shard: usize| ((shard as u128) << 64).div_ceil(shards as u128);
        HashRange { from: first(shard) as u64, to: (first(shard + 1) - 1) as u64 }
    }

    /// Whether a hash is one of them.
    #[inline]
    pub fn contains(self, hash: u64) -> bool {
        (self.from..=self.to).contains(&hash)
    }

    /// Whether some hash is in both.
    pub fn overlaps(self, other: HashRange) -> bool {
        self.from <= other.to && other.from <= self.to
    }
}

/// The files of one store: what a shard of an operator had on disk at a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateRuns {
    /// The hashes of the keys that the shard owned.
    pub hashes: HashRange,
    /// The files. Shards may share some, after they were divided anew.
    pub files: Vec<StateFile>,
}

/// Makes `to` another name of the file `from`, or a copy where the two lie on different file systems or
/// theirs has no hard links; whether it is a copy, which may not be safe on disk. A file that is there already is the
/// same one: names are given once.
pub(crate) fn link(from: &Path, to: &Path) -> Result<bool, std::io::Error> {
    match fs::hard_link(from, to) {
        Ok(()) => Ok(false),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(e) if e.kind() == ErrorKind::NotFound => Err(e),
        Err(_) => fs::copy(from, to).map(|_| true),
    }
}

#[cfg(test)]
mod tests;
