//! A run: an immutable file of rows sorted by hash. Opening and reading; writing is in `writer.rs`.
//!
//! ```text
//! ┌──────────┬────────┬───┬────────┬─────────────────────┬─────────────────┬──────────────┬─────────┐
//! │ head     │ page 0 │ … │ page n │ first hash of each  │ offset of each  │ words of the │ trailer │
//! │ 32 bytes │        │   │        │ page, u64           │ page and end    │ filter, u64  │ 14 u64  │
//! └──────────┴────────┴───┴────────┴─────────────────────┴─────────────────┴──────────────┴─────────┘
//! ```
//!
//! The head says what the file is; the trailer counts, and holds a checksum over the checksums of all pages
//! and one of what lies between pages and trailer. So the checksum of the trailer stands for the whole file.
//! Rows of one hash may go on in the next page; the highest bit of that page's offset says so.

use std::fs::File;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::ColdError;
use super::filter::{OpenFilter, RunFilter};
use super::page::Page;
use super::place::{Place, SharedMine};
use super::ranges::Ranges;
use super::system::{self, Advice, advise, begin_writing};
use crate::checksum::Checksum;

/// First bytes of a run.
pub(crate) const MAGIC: [u8; 8] = *b"TIDECOLD";
/// Version of the layout.
pub(crate) const VERSION: u32 = 1;
/// Bytes before the first page.
pub(crate) const HEAD: usize = 32;
/// Numbers in the trailer.
pub(crate) const TRAILER: usize = 14;
/// Marks the offset of a page whose first rows have the hash of the last row of the page before.
pub(crate) const CONTINUES: u64 = 1 << 63;
/// Bytes whose absence from the cache is asked for at once, and of these, bytes that are read at once.
const FETCH_BYTES: u64 = 4 << 20;
const READ_BYTES: u64 = 256 << 10;

/// Numbers of a run that stand in its trailer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Rows, deletions included.
    pub rows: u64,
    /// Rows that are deletions.
    pub deletions: u64,
    pub first: u64,
    pub last: u64,
    /// Runs with a greater number hold newer versions.
    pub sequence: u64,
}

/// A run that is open.
pub(crate) struct Run {
    /// Where the store has it.
    pub path: PathBuf,
    /// Where it was opened: what messages name.
    opened: PathBuf,
    pub name: String,
    pub file: Arc<File>,
    pub counts: Counts,
    /// Size of the file.
    pub bytes: u64,
    /// The checksum of the trailer.
    pub checksum: u64,
    index: Arc<Index>,
    filter: OpenFilter,
    /// Rows that count, if not all of them do.
    pub keep: Option<Keep>,
    /// Whether the file is known to be safe on disk.
    pub synced: AtomicBool,
}

/// Where the pages of a run are.
struct Index {
    /// The first hash of each page.
    firsts: Vec<u64>,
    /// Where each begins, and where the last one ends.
    offsets: Vec<u64>,
    /// Pages by hash, about.
    density: f64,
}

/// Which rows of a run count.
#[derive(Clone)]
pub(crate) struct Keep {
    pub ranges: Ranges,
    pub mine: SharedMine,
}

/// What a run is made of when it has been written.
pub(crate) struct Written {
    pub path: PathBuf,
    pub name: String,
    pub file: File,
    pub counts: Counts,
    pub bytes: u64,
    pub checksum: u64,
    pub firsts: Vec<u64>,
    pub offsets: Vec<u64>,
    pub filter: RunFilter,
    pub synced: bool,
}

impl From<Written> for Run {
    fn from(w: Written) -> Self {
        let Written { path, name, file, counts, bytes, checksum, firsts, offsets, filter, synced } = w;
        advise(&file, 0, 0, Advice::Random);
        let opened = path.clone();
        let words = offsets.last().map_or(0, |footer| footer + 8 * (firsts.len() + offsets.len()) as u64);
        let filter = OpenFilter::new(filter, words);
        let density = firsts.len() as f64 / ((counts.last - counts.first) as f64 + 1.0);
        let (file, index) = (Arc::new(file), Arc::new(Index { firsts, offsets, density }));
        Run { path, opened, name, file, counts, bytes, checksum, index, filter, keep: None, synced: AtomicBool::new(synced) }
    }
}

/// The head of a run of rows of this form.
pub(crate) fn head(place: &Place) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(&MAGIC);
    head[8..12].copy_from_slice(&VERSION.to_le_bytes());
    head[12..16].copy_from_slice(&(place.keys as u32).to_le_bytes());
    head[16..24].copy_from_slice(&place.fingerprint.to_le_bytes());
    let sum = Checksum::of(&head[..24]);
    head[24..].copy_from_slice(&sum.to_le_bytes());
    head
}

fn read_exact(file: &File, path: &Path, what: &str, into: &mut [u8], offset: u64) -> Result<(), ColdError> {
    file.read_exact_at(into, offset).map_err(|e| match e.kind() {
        ErrorKind::UnexpectedEof => ColdError::damaged(path, format!("{what} is cut off")),
        _ => ColdError::io(&format!("reading {what} of the state file"), path, &e),
    })
}

fn u64s(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().expect("eight bytes"))).collect()
}

impl Run {
    /// Opens a run: reads all but its pages. `expected`: its size and checksum, as told when it was written.
    ///
    /// # Errors
    /// A file that cannot be read, is damaged, or is of another version or other rows.
    pub fn open(place: &Place, path: PathBuf, name: String, expected: Option<(u64, &str)>) -> Result<Self, ColdError> {
        let opened = File::open(&path).and_then(|file| file.metadata().map(|meta| (file, meta.len())));
        let (file, bytes) = opened.map_err(|e| ColdError::io("opening the state file", &path, &e))?;
        let damaged = |what: String| ColdError::damaged(&path, what);
        let mut start = [0; HEAD];
        read_exact(&file, &path, "the head", &mut start, 0)?;
        if start[..8] != MAGIC {
            return Err(damaged("it does not begin as a file of state does".into()));
        }
        let version = u32::from_le_bytes(start[8..12].try_into().expect("four bytes"));
        if version != VERSION {
            let what = format!("it was written by another version (layout {version}, this one reads {VERSION})");
            return Err(ColdError::foreign(&path, what));
        }
        if Checksum::of(&start[..24]).to_le_bytes() != start[24..] {
            return Err(damaged("the checksum of its head does not agree".into()));
        }
        if start != head(place) {
            return Err(ColdError::foreign(&path, "it holds other columns than the operator keeps now (has the query changed?)"));
        }
        if let Some((size, _)) = expected.filter(|(size, _)| *size != bytes) {
            return Err(damaged(format!("it has {bytes} bytes and should have {size}")));
        }
        if bytes < (HEAD + TRAILER * 8) as u64 {
            return Err(damaged("it is cut off".into()));
        }
        let mut end = [0; TRAILER * 8];
        read_exact(&file, &path, "the trailer", &mut end, bytes - (TRAILER * 8) as u64)?;
        let checksum = Checksum::of(&end[..(TRAILER - 1) * 8]);
        if checksum.to_le_bytes() != end[(TRAILER - 1) * 8..] {
            return Err(damaged("the checksum of its trailer does not agree; it may be cut off".into()));
        }
        if expected.is_some_and(|(_, sum)| sum != format!("{checksum:016x}")) {
            return Err(damaged("it is not the file that the checkpoint named: the checksums differ".into()));
        }
        let numbers = u64s(&end);
        let [footer, pages, words, rows, deletions, first, last, sequence, base, shift, scale, _content, body_sum, ..] = numbers[..] else {
            unreachable!("a trailer has {TRAILER} numbers")
        };
        let body_bytes = (bytes - (TRAILER * 8) as u64).saturating_sub(footer);
        if body_bytes != (pages * 2 + 1 + words) * 8 {
            return Err(damaged("the sizes in its trailer do not agree".into()));
        }
        let mut body = vec![0; body_bytes as usize];
        read_exact(&file, &path, "the index", &mut body, footer)?;
        if Checksum::of(&body) != body_sum {
            return Err(damaged("the checksum of its index does not agree".into()));
        }
        let (firsts, rest) = body.split_at(pages as usize * 8);
        let (offsets, words) = rest.split_at((pages as usize + 1) * 8);
        let counts = Counts { rows, deletions, first, last, sequence };
        let filter = RunFilter::from_parts(u64s(words), [base, shift, scale]);
        let (firsts, offsets) = (u64s(firsts), u64s(offsets));
        Ok(Run::from(Written { path, name, file, counts, bytes, checksum, firsts, offsets, filter, synced: true }))
    }

    /// How much of it counts, about: 0 to 1.
    pub fn part(&self) -> f64 {
        self.keep.as_ref().map_or(1.0, |keep| keep.ranges.part_of(self.counts.first, self.counts.last))
    }

    /// Number of pages.
    pub fn pages(&self) -> usize {
        self.index.firsts.len()
    }

    /// The first hash of a page.
    #[inline]
    pub fn first(&self, page: usize) -> u64 {
        self.index.firsts[page]
    }

    /// Where a page begins in the file; that of the number of pages is where the last one ends.
    #[inline]
    pub fn offset(&self, page: usize) -> u64 {
        self.index.offsets[page] & !CONTINUES
    }

    /// Whether rows of a hash may be here and count.
    #[inline]
    pub fn may_have(&self, hash: u64) -> bool {
        hash >= self.counts.first && hash <= self.counts.last && self.filter.has(hash, &self.file) && self.keeps(hash)
    }

    /// Whether rows of a hash count if they are here.
    #[inline]
    pub fn keeps(&self, hash: u64) -> bool {
        self.keep.as_ref().is_none_or(|k| k.ranges.contains(hash) && (k.mine)(hash))
    }

    /// The pages on which rows of a hash between the first and the last are. `from`: where to begin; what the last
    /// call left there serves for hashes that are not less.
    pub fn pages_of(&self, hash: u64, from: &mut usize) -> Range<usize> {
        let Index { firsts, offsets, .. } = &*self.index;
        let at = self.reach(hash, *from);
        *from = at;
        let begins = firsts.get(at) == Some(&hash);
        let start = if begins && offsets[at] & CONTINUES == 0 { at } else { at.saturating_sub(1) };
        let more = firsts[at..].iter().take_while(|first| **first == hash).count();
        start..(at + more).max(start + 1)
    }

    /// The first page from `from` on that does not begin with a lesser hash. Hashes are spread evenly, so it is looked for near
    /// where it ought to be.
    fn reach(&self, hash: u64, from: usize) -> usize {
        let Index { firsts, density, .. } = &*self.index;
        let pages = firsts.len();
        if from >= pages {
            return pages;
        }
        let guess = ((hash.saturating_sub(self.counts.first) as f64 * density) as usize).clamp(from, pages - 1);
        let mut step = 4;
        let (mut low, mut high);
        if firsts[guess] < hash {
            (low, high) = (guess + 1, guess + step);
            while high < pages && firsts[high] < hash {
                low = high + 1;
                step *= 2;
                high += step;
            }
            high = high.min(pages);
        } else {
            (low, high) = (guess.saturating_sub(step).max(from), guess);
            while low > from && firsts[low] >= hash {
                high = low;
                step *= 2;
                low = low.saturating_sub(step).max(from);
            }
        }
        low + firsts[low..high].partition_point(|first| *first < hash)
    }

    /// The last page with which rows may begin whose hashes are not `before` something, as lesser ones are.
    pub fn page_of(&self, before: impl Fn(u64) -> bool) -> usize {
        self.index.firsts.partition_point(|first| before(*first)).saturating_sub(1)
    }

    /// The same run with less memory for its filter; `None` if there is none.
    pub fn lighter(&self) -> Option<Self> {
        let filter = self.filter.lighter()?;
        let synced = AtomicBool::new(self.synced.load(Ordering::Acquire));
        let (path, opened, name) = (self.path.clone(), self.opened.clone(), self.name.clone());
        let (file, index, keep) = (self.file.clone(), self.index.clone(), self.keep.clone());
        Some(Run { path, opened, name, file, index, filter, keep, synced, ..*self })
    }

    /// Reads the bytes of some pages, which lie one behind the other. `scratch` is where to.
    ///
    /// # Errors
    /// What cannot be read.
    pub fn read<'a>(&self, pages: Range<usize>, scratch: &'a mut Vec<u8>) -> Result<&'a [u8], ColdError> {
        let (start, end) = (self.offset(pages.start), self.offset(pages.end));
        let bytes = (end - start) as usize;
        if scratch.len() < bytes {
            scratch.resize(bytes, 0);
        }
        let into = &mut scratch[..bytes];
        self.file.read_exact_at(into, start).map_err(|e| match e.kind() {
            ErrorKind::UnexpectedEof => ColdError::damaged(&self.opened, format!("it ends before page {}", pages.end - 1)),
            _ => ColdError::io(&format!("reading page {} of the state file", pages.start), &self.opened, &e),
        })?;
        Ok(into)
    }

    /// A page out of what [`Run::read`] gave for the pages from `first` on, checked.
    ///
    /// # Errors
    /// A page that is damaged.
    pub fn page<'a>(&self, page: usize, first: usize, bytes: &'a [u8]) -> Result<Page<'a>, ColdError> {
        let start = self.offset(first);
        let place = (self.offset(page) - start) as usize..(self.offset(page + 1) - start) as usize;
        Page::check(&bytes[place], self.offset(page))
            .map_err(|what| ColdError::damaged(&self.opened, format!("page {page} at byte {}: {what}", self.offset(page))))
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        (self.index.firsts.capacity() + self.index.offsets.capacity()) * 8 + self.filter.memory()
    }

    /// Bytes of these that the filter takes, and need not.
    pub fn filter_memory(&self) -> usize {
        self.filter.memory()
    }

    /// Has the system begin to write the file to the disk, so that there is less to wait for later.
    pub fn begin_sync(&self) {
        begin_writing(&self.file, 0, 0);
    }

    /// Whether the system's cache holds nearly all of the file.
    pub fn is_cached(&self) -> bool {
        system::cached(&self.file, 0, self.bytes).is_ok_and(|cached| cached >= self.bytes / 10 * 9)
    }

    /// Bytes of the file that the system's cache does not hold; none where that is not known.
    pub fn missing(&self) -> u64 {
        system::cached(&self.file, 0, self.bytes).map_or(0, |cached| self.bytes - cached)
    }

    /// Reads what the system's cache does not hold of the file, so that it does, for as long as `go_on` says so. It does not read
    /// more than was missing to begin with: a cache that cannot hold all of it is not made to go round. Failure changes nothing:
    /// who reads a row finds out.
    pub fn fetch(&self, go_on: impl Fn() -> bool) {
        let cached = |offset, bytes| system::cached(&self.file, offset, bytes).unwrap_or(bytes);
        let mut missing = self.missing();
        let mut buffer = vec![0; READ_BYTES as usize];
        for offset in (0..self.bytes).step_by(FETCH_BYTES as usize) {
            if missing == 0 || !go_on() {
                return;
            }
            let end = self.bytes.min(offset + FETCH_BYTES);
            let gap = end - offset - cached(offset, end - offset);
            if gap == 0 {
                continue;
            }
            missing = missing.saturating_sub(gap);
            // The kernel need not take all of it as advice.
            advise(&self.file, offset, end - offset, Advice::Soon);
            for at in (offset..end).step_by(READ_BYTES as usize) {
                let part = READ_BYTES.min(end - at) as usize;
                if self.file.read_exact_at(&mut buffer[..part], at).is_err() {
                    return;
                }
            }
        }
    }

    /// Makes sure that the file is safe on disk.
    ///
    /// # Errors
    /// The disk's.
    pub fn sync(&self) -> Result<(), ColdError> {
        if !self.synced.load(Ordering::Acquire) {
            self.file.sync_all().map_err(|e| ColdError::io("syncing the state file", &self.opened, &e))?;
            self.synced.store(true, Ordering::Release);
        }
        Ok(())
    }
}
