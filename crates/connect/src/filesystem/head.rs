//! How a local file begins, as far as it was read: goes with the position in it, so that another file of the same name is not taken
//! for it and read from the middle on.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use serde_json::Value;

use crate::{ConnectError, stable_hash};

/// Bytes that are looked at: beyond the names of columns in most files.
const HEAD_BYTES: usize = 1024;

/// The first bytes of a file.
pub(super) struct Head {
    bytes: Vec<u8>,
    /// The file is what it is: it is compressed, and so all of the bytes count at once. Else only those that were read, for it may grow.
    whole: bool,
    /// Of how many bytes the mark was made last, and the mark.
    made: Cell<(usize, u64)>,
}

impl Head {
    /// Reads it.
    ///
    /// # Errors
    /// The system's.
    pub fn read(file: &File, whole: bool) -> io::Result<Self> {
        let bytes = first(file, HEAD_BYTES)?;
        Ok(Head { bytes, whole, made: Cell::new((usize::MAX, 0)) })
    }

    /// What stands for it in a position behind so many bytes of text.
    pub fn mark(&self, offset: u64) -> String {
        let length = if self.whole { self.bytes.len() } else { self.bytes.len().min(usize::try_from(offset).unwrap_or(usize::MAX)) };
        let (made, mut hash) = self.made.get();
        if made != length {
            hash = stable_hash(self.bytes[..length].iter().copied());
            self.made.set((length, hash));
        }
        format!("{length}:{hash:016x}")
    }
}

fn first(file: &File, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match file.read_at(&mut bytes[filled..], filled as u64) {
            Ok(0) => break,
            Ok(got) => filled += got,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Checks that a file begins as it did when `position` was taken; positions of earlier versions do not tell.
///
/// # Errors
/// It begins with something else, or cannot be read.
pub(super) fn check(file: &File, position: &Value, path: &str) -> Result<(), ConnectError> {
    let Some((length, hash)) = position["head"].as_str().and_then(|mark| mark.split_once(':')) else { return Ok(()) };
    let length = length.parse().unwrap_or(HEAD_BYTES).min(HEAD_BYTES);
    let begins = first(file, length).map_err(|e| ConnectError::io(format!("reading '{path}'"), &e))?;
    if begins.len() == length && format!("{:016x}", stable_hash(begins)) == hash {
        return Ok(());
    }
    Err(ConnectError::new(format!(
        "'{path}' begins with other bytes than when {} of it were read before: it was replaced or changed; put the file back, or have all \
         of it read: by a job without its checkpoint, by an adapter under another name (--id)",
        position["offset"]
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More at the end is the same file, another beginning is another one.
    #[test]
    fn a_file_may_grow_and_not_change() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.csv");
        let holds = |text: &str, position: &Value| {
            std::fs::write(&path, text).unwrap();
            check(&File::open(&path).unwrap(), position, "a.csv").is_ok()
        };
        std::fs::write(&path, "1,2\n3,4\n").unwrap();
        let head = Head::read(&File::open(&path).unwrap(), false).unwrap();
        let at = |offset: u64| serde_json::json!({ "offset": offset, "head": head.mark(offset) });
        assert!(holds("1,2\n3,4\n5,6\n", &at(8)) && holds("1,2\n9", &at(4)) && holds("7", &at(0)));
        assert!(!holds("1,2\n9,4\n", &at(8)) && !holds("1,2\n", &at(8)));
        let whole = Head::read(&File::open(&path).unwrap(), true).unwrap();
        assert_eq!(whole.mark(0), whole.mark(1 << 40));
        assert!(holds("other", &serde_json::json!({ "offset": 3 })), "positions of earlier versions");
    }
}
