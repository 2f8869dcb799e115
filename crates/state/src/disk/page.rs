//! A page: some rows of a run, the unit of reading and of checksums.
//!
//! ```text
//! ┌──────────┬──────┬───────┬────────────┬───────────────┬─────────────┐
//! │ checksum │ rows │ bytes │ row bytes  │ hash of each  │ end of each │
//! │ u64      │ u32  │ u32   │ …          │ row, u64      │ row, u32    │
//! └──────────┴──────┴───────┴────────────┴───────────────┴─────────────┘
//! ```
//!
//! Numbers are little-endian. `bytes` is the size of the whole page. Ends count from the first row byte; the
//! highest bit is set where the row is the key of a deletion. The checksum covers all behind it and where the
//! page lies in its file, so a page that came to another place is found, too.

use crate::checksum::Checksum;
use crate::hash::mix;

/// Bytes before the first row.
const HEAD: usize = 16;
/// Bytes a row needs beside its own.
pub(crate) const ROW_EXTRA: usize = 12;
/// Marks the end of a row that is a deletion.
const DELETED: u32 = 1 << 31;
/// Longest row.
pub(crate) const ROW_BYTES_MAX: usize = i32::MAX as usize - (1 << 20);

/// A page in the making, at the end of a buffer that nobody else writes to meanwhile.
#[derive(Default)]
pub(crate) struct PageBuilder {
    /// Where it begins in the buffer.
    start: usize,
    hashes: Vec<u64>,
    ends: Vec<u32>,
}

impl PageBuilder {
    /// Whether there is no row in it.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Where it begins in the buffer, if there is a row in it.
    pub fn start(&self) -> usize {
        self.start
    }

    /// Bytes of the page if it ended now.
    pub fn bytes(&self, out: &[u8]) -> usize {
        if self.is_empty() { HEAD } else { out.len() - self.start + self.hashes.len() * ROW_EXTRA }
    }

    /// First and last hash.
    pub fn span(&self) -> Option<(u64, u64)> {
        Some((*self.hashes.first()?, *self.hashes.last()?))
    }

    /// Appends a row.
    #[inline]
    pub fn push(&mut self, hash: u64, row: &[u8], deleted: bool, out: &mut Vec<u8>) {
        if self.hashes.is_empty() {
            self.start = out.len();
            out.extend_from_slice(&[0; HEAD]);
        }
        out.extend_from_slice(row);
        self.hashes.push(hash);
        self.ends.push((out.len() - self.start - HEAD) as u32 | if deleted { DELETED } else { 0 });
    }

    /// Ends the page, whose file offset is `offset`, and begins anew. Returns its checksum.
    pub fn finish(&mut self, offset: u64, out: &mut Vec<u8>) -> u64 {
        self.hashes.iter().for_each(|h| out.extend_from_slice(&h.to_le_bytes()));
        self.ends.iter().for_each(|e| out.extend_from_slice(&e.to_le_bytes()));
        let page = &mut out[self.start..];
        let bytes = page.len() as u32;
        page[8..12].copy_from_slice(&(self.hashes.len() as u32).to_le_bytes());
        page[12..16].copy_from_slice(&bytes.to_le_bytes());
        let sum = checksum(page, offset);
        page[..8].copy_from_slice(&sum.to_le_bytes());
        self.hashes.clear();
        self.ends.clear();
        sum
    }
}

fn checksum(page: &[u8], offset: u64) -> u64 {
    Checksum::of(&page[8..]) ^ mix(offset.wrapping_add(1))
}

/// A page that was read.
#[derive(Clone, Copy)]
pub(crate) struct Page<'a> {
    rows: &'a [u8],
    hashes: &'a [u8],
    ends: &'a [u8],
}

impl<'a> Page<'a> {
    /// A page that lies at `offset` of its file, checked.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(bytes: &'a [u8], offset: u64) -> Result<Self, &'static str> {
        if bytes.len() < HEAD {
            return Err("it is cut off");
        }
        if checksum(bytes, offset).to_le_bytes() != bytes[..8] {
            return Err("its checksum does not agree");
        }
        Ok(Page::view(bytes))
    }

    /// A page that was checked before.
    #[inline]
    pub fn view(bytes: &'a [u8]) -> Self {
        let rows = u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes")) as usize;
        let (head, ends) = bytes.split_at(bytes.len() - rows * 4);
        let (head, hashes) = head.split_at(head.len() - rows * 8);
        Page { rows: &head[HEAD..], hashes, ends }
    }

    /// Number of rows.
    #[inline]
    pub fn len(&self) -> usize {
        self.ends.len() / 4
    }

    /// The hash of a row.
    #[inline]
    pub fn hash(&self, row: usize) -> u64 {
        u64::from_le_bytes(self.hashes[row * 8..row * 8 + 8].try_into().expect("eight bytes"))
    }

    #[inline]
    fn end(&self, row: usize) -> u32 {
        u32::from_le_bytes(self.ends[row * 4..row * 4 + 4].try_into().expect("four bytes"))
    }

    /// A row, and whether it is a deletion: then it is the key only.
    #[inline]
    pub fn row(&self, row: usize) -> (&'a [u8], bool) {
        let start = if row == 0 { 0 } else { self.end(row - 1) & !DELETED };
        let end = self.end(row);
        (&self.rows[start as usize..(end & !DELETED) as usize], end & DELETED != 0)
    }

    /// The first row whose hash is not less.
    pub fn find(&self, hash: u64) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            if self.hash(middle) < hash { low = middle + 1 } else { high = middle }
        }
        low
    }
}

#[cfg(test)]
mod tests;
