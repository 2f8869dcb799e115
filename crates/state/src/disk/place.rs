//! What all parts of one store share: where its files are and what they are called, the form of its rows,
//! its counters.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::datatypes::DataType;

use super::error::ColdError;
use super::row::RowCodec;
use crate::hash;

/// Which hashes belong to a shard.
pub(crate) type Mine = dyn Fn(u64) -> bool + Send + Sync;

/// An owner test that is shared by the runs of a store.
pub(crate) type SharedMine = Arc<Mine>;

/// Hexadecimal digits behind the store's name in a file's: the store's life, the file's number.
const DIGITS: usize = 24;

/// See the head of the file.
pub(crate) struct Place {
    pub directory: PathBuf,
    name: String,
    /// Differs between any two stores, so that no file name is ever given twice.
    life: u64,
    next: AtomicU64,
    pub codec: RowCodec,
    /// Number of key columns.
    pub keys: usize,
    /// Tells the types of the rows.
    pub fingerprint: u64,
    /// No hash is less or greater.
    pub bounds: (u64, u64),
    /// Bytes of memory for filters and indexes.
    pub memory: usize,
    pub counters: Counters,
}

/// What happened so far.
#[derive(Default)]
pub(crate) struct Counters {
    pub reads: AtomicU64,
    pub read_bytes: AtomicU64,
    pub written_bytes: AtomicU64,
    pub filter_negatives: AtomicU64,
    pub filter_false: AtomicU64,
    pub compactions: AtomicU64,
    /// Rows that were put or deleted.
    pub rows: AtomicU64,
}

impl Place {
    /// Of rows of these types, the first `keys` of which are the key.
    ///
    /// # Errors
    /// A type that has no row form; a name that is none.
    pub fn new(directory: PathBuf, name: String, types: &[DataType], keys: usize) -> Result<Self, ColdError> {
        static STORES: AtomicU64 = AtomicU64::new(0);
        if name.is_empty() || name.contains(['/', '\0']) {
            return Err(ColdError::new(format!("internal error: '{name}' cannot begin the names of state files")));
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
        let who = u64::from(std::process::id()) << 32 | STORES.fetch_add(1, Ordering::Relaxed);
        let text: String = types.iter().map(|t| format!("{t};")).collect();
        Ok(Place {
            directory,
            name,
            life: hash::mix(now) ^ hash::mix(who),
            next: AtomicU64::new(0),
            codec: RowCodec::new(types, keys)?,
            keys,
            fingerprint: hash::bytes(format!("{keys}:{text}").as_bytes()),
            bounds: (0, u64::MAX),
            memory: usize::MAX,
            counters: Counters::default(),
        })
    }

    /// Bytes that the filter of the whole store may have.
    pub fn filter_memory(&self) -> usize {
        self.memory / 8 * 5
    }

    /// The name of a new file.
    pub fn file_name(&self, extension: &str) -> String {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        format!("{}-{:016x}{number:08x}.{extension}", self.name, self.life)
    }

    /// Whether a file of the directory is, by its name, of a store of this name, in whichever life.
    pub fn is_own(&self, file_name: &str) -> bool {
        let digits = file_name.strip_prefix(self.name.as_str()).and_then(|rest| rest.strip_prefix('-'));
        let digits = digits.and_then(|rest| rest.strip_suffix(".run").or_else(|| rest.strip_suffix(".list")));
        digits.is_some_and(|d| d.len() == DIGITS && d.bytes().all(|b| b.is_ascii_hexdigit()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_know_their_files() {
        let place = |name: &str| Place::new(PathBuf::from("/x"), name.into(), &[DataType::Int64], 1).unwrap();
        let (a, b) = (place("op-1"), place("op-1"));
        let names = [a.file_name("run"), a.file_name("run"), b.file_name("run"), b.file_name("list")];
        assert!(names.iter().all(|n| a.is_own(n)), "{names:?}");
        assert!(names.iter().enumerate().all(|(i, n)| !names[..i].contains(n)));
        let others = [place("op-12").file_name("run"), place("op-1-2").file_name("run"), place("op").file_name("run"), "op-1-.run".into()];
        assert!(others.iter().all(|n| !a.is_own(n)), "{others:?}");
        assert!(Place::new(PathBuf::new(), "a/b".into(), &[], 0).is_err());
    }
}
