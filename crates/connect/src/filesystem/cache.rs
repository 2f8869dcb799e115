//! The system's page cache: how much of a file it holds, and how it is treated while a file is read once from
//! front to back.
//!
//! Some MB ahead of where is read, a [`Track`] looks what the cache holds: what is missing the system is asked to
//! fetch, and, if so wished, what was missing is given back when it was read, so that reading much flushes nobody
//! else's pages. The same look says how many bytes came from the cache and how many from the disk ([`bytes_read`]).
//! What does not live here: which file is read next ([`super::queue`]).

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::ops::{Range, RangeInclusive};
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidemill_archive::ReadAt;

use super::page;

/// How far ahead of what is read the system is asked to fetch: some ms of a fast disk, and as much as a distant one
/// gives in the time that it takes to answer. Also how much is looked at, and given back, at once.
pub(super) const AHEAD_BYTES: u64 = 4 << 20;
/// Looks end at multiples of this, so that whole pages are given back (all page sizes divide it).
const LOOK_ALIGN: u64 = 64 << 10;
/// With `auto`, what is read once leaves the cache if there is more of it than this share of the memory: less does
/// not flush what others have there, and is often read again.
const MEMORY_SHARE: u64 = 8;

tidemill_format::option_enum! {
    /// What becomes of the page cache when files are read.
    pub enum PageCache {
        /// Files larger than an eighth of the memory, all together, leave the cache as they were found.
        Auto = "auto",
        /// What is read stays in the cache, as the system has it.
        Keep = "keep",
        /// What was not in the cache does not stay there.
        Drop = "drop",
    }
}

impl PageCache {
    /// Whether what was not in the cache is given back, if `bytes` are read in all.
    pub(super) fn gives_back(self, bytes: u64) -> bool {
        match self {
            PageCache::Auto => bytes > page::memory_bytes() / MEMORY_SHARE,
            PageCache::Keep => false,
            PageCache::Drop => true,
        }
    }
}

/// How much of a file is in the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Residency {
    /// Bytes of the file.
    pub bytes: u64,
    /// Of them those in the cache, in whole pages but for the last.
    pub cached: u64,
}

impl Residency {
    /// Whether some of the file is not in the cache.
    pub(super) fn cold(self) -> bool {
        self.cached < self.bytes
    }
}

/// Looks how much of a file is in the page cache, by `cachestat(2)` or else by `mincore(2)`.
///
/// # Errors
/// The system does not say: it is none of Linux, or the file is neither the caller's nor may he write to it.
pub fn residency(file: &File) -> io::Result<Residency> {
    let bytes = file.metadata()?.len();
    Ok(Residency { bytes, cached: page::cached(file, 0, bytes)? })
}

/// Of parts larger than this only samples are looked at, bytes: a look at all of a file takes 5 to 15 ms a GB, which is a tenth of the
/// time in which it is read from the cache.
const SAMPLED_MIN: u64 = 1 << 20;
const SAMPLE_BYTES: u64 = 64 << 10;
/// Samples of a part, of which the first is its beginning and the last its end: so many, or about one for each MB.
const SAMPLES: RangeInclusive<u64> = 4..=64;

/// About how many bytes of a part of a file are in the page cache: all or none if that is so of each of some samples. If they differ, all of
/// it is looked at.
///
/// # Errors
/// As [`residency`].
pub(super) fn cached(file: &File, from: u64, length: u64) -> io::Result<u64> {
    if length > SAMPLED_MIN {
        let samples = (length >> 20).clamp(*SAMPLES.start(), *SAMPLES.end());
        let part = length / samples;
        let (last, mut found) = (length - SAMPLE_BYTES, 0);
        for sample in 0..samples {
            // Somewhere in its part, lest all fall into the same column of row groups of one length (Fibonacci hashing).
            let within = ((from + sample).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16) % (part - SAMPLE_BYTES);
            let at = match sample {
                0 => 0,
                _ if sample == samples - 1 => last,
                _ => sample * part + within,
            };
            found += page::cached(file, from + at, SAMPLE_BYTES)?;
            // Whether they differ can be known early.
            if found != 0 && found < (sample + 1) * SAMPLE_BYTES {
                return page::cached(file, from, length);
            }
        }
        return Ok(if found == 0 { 0 } else { length });
    }
    page::cached(file, from, length)
}

/// About how much of a file is in the page cache, see [`cached`].
///
/// # Errors
/// As [`residency`].
pub(super) fn about(file: &File) -> io::Result<Residency> {
    let bytes = file.metadata()?.len();
    Ok(Residency { bytes, cached: cached(file, 0, bytes)? })
}

/// Where the bytes came from that sources of files have read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Origins {
    /// Bytes that were in the page cache, as samples of large parts told.
    pub cache: u64,
    /// Bytes that had to come from the disk, or of which the system does not say.
    pub disk: u64,
    /// Bytes received from object stores and web servers.
    pub network: u64,
}

impl Origins {
    /// What was read since `earlier`.
    pub fn since(self, earlier: Origins) -> Origins {
        Origins {
            cache: self.cache.saturating_sub(earlier.cache),
            disk: self.disk.saturating_sub(earlier.disk),
            network: self.network.saturating_sub(earlier.network),
        }
    }
}

static CACHE: AtomicU64 = AtomicU64::new(0);
static DISK: AtomicU64 = AtomicU64::new(0);

/// What this process has read so far.
pub fn bytes_read() -> Origins {
    let network = tidemill_store::network_bytes();
    Origins { cache: CACHE.load(Ordering::Relaxed), disk: DISK.load(Ordering::Relaxed), network }
}

/// For how long readers of files have waited, those that wait at once added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// For what was not in the page cache. Pages of mapped files do not count: who waits for them knows nothing of it.
    pub disk: Duration,
    /// For object stores and web servers.
    pub network: Duration,
}

static WAITED_NS: AtomicU64 = AtomicU64::new(0);

/// For how long readers of this process have waited so far.
pub fn waits() -> Waits {
    Waits { disk: Duration::from_nanos(WAITED_NS.load(Ordering::Relaxed)), network: tidemill_store::network_waited() }
}

/// The memory of the machine, bytes; 0 if it does not say.
pub fn machine_memory() -> u64 {
    page::memory_bytes()
}

/// Reads, and notes how long that took, if it is from the disk.
pub(super) fn timed<T>(from_disk: bool, read: impl FnOnce() -> T) -> T {
    if !from_disk {
        return read();
    }
    let begun = Instant::now();
    let done = read();
    WAITED_NS.fetch_add(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    done
}

/// The share `cached` of `bytes` that `part` of them has.
fn share(part: u64, cached: u64, bytes: u64) -> u64 {
    (u128::from(part) * u128::from(cached.min(bytes)) / u128::from(bytes.max(1))) as u64
}

/// Counts bytes that were read, of which so many were in the cache.
fn count(bytes: u64, cached: u64) {
    CACHE.fetch_add(cached, Ordering::Relaxed);
    DISK.fetch_add(bytes - cached, Ordering::Relaxed);
}

/// Counts bytes read somewhere in a file that was found in the cache to this degree.
pub(super) fn count_share(bytes: u64, of: Residency) {
    count(bytes, share(bytes, of.cached, of.bytes));
}

/// What the cache held of the beginning of a file before this process asked for any of it: later looks would see
/// what was fetched meanwhile for another reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prior {
    /// Where the part ends that was looked at, bytes.
    pub end: u64,
    /// How many bytes of it were in the cache.
    pub cached: u64,
}

/// How a file is to be treated while a part of it is read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Care {
    /// Whether what was not in the cache is given back.
    pub give_back: bool,
    pub prior: Option<Prior>,
}

impl Care {
    /// About how much of a file of `size` bytes the cache held, by what was seen before or else by a look at it.
    pub fn found(&self, file: &File, size: u64) -> Residency {
        match self.prior {
            Some(prior) if prior.end == size => Residency { bytes: size, cached: prior.cached },
            _ => about(file).unwrap_or(Residency { bytes: size, cached: 0 }),
        }
    }
}

/// A stretch of the file that was looked at and not yet read to its end.
struct Stretch {
    from: u64,
    to: u64,
    cached: u64,
    give_back: bool,
}

/// Looks ahead of, and cleans up behind, somebody who reads a file from front to back.
pub(super) struct Track {
    care: Care,
    /// What is looked at ends here, and never will go beyond the second.
    looked: u64,
    end: u64,
    /// What was read ends here.
    read: u64,
    /// The bytes given back last.
    given: Range<u64>,
    stretches: VecDeque<Stretch>,
}

impl Track {
    /// Of a reader that will not go beyond `end`.
    pub fn new(end: u64, care: Care) -> Self {
        Track { care, looked: 0, end, read: 0, given: 0..0, stretches: VecDeque::new() }
    }

    /// Before reading up to `want` bytes at `at`: looks that far and some way ahead, and asks for what is missing there.
    pub fn before(&mut self, file: &File, at: u64, want: usize) {
        // What is read without a look would not be counted, however much is wanted at once.
        let want = want as u64;
        if self.looked >= self.end || self.looked >= at.saturating_add(want.max(AHEAD_BYTES / 2)) {
            return;
        }
        let from = self.looked.max(at);
        let reach = at.saturating_add(want.max(AHEAD_BYTES));
        let to = if reach >= self.end { self.end } else { reach.next_multiple_of(LOOK_ALIGN).min(self.end) };
        if from >= to {
            return;
        }
        self.looked = to;
        let now = cached(file, from, to - from).ok();
        if now.is_none_or(|cached| cached < to - from) {
            page::fetch(file, from, to - from);
        }
        let found = match self.care.prior {
            Some(prior) if from < prior.end => Some(share(to - from, prior.cached, prior.end)),
            _ => now,
        };
        let give_back = self.care.give_back && found.is_some_and(|cached| cached < (to - from) / 2);
        self.stretches.push_back(Stretch { from, to, cached: found.unwrap_or(0), give_back });
    }

    /// Whether some of what is read next had to come from the disk.
    fn cold(&self) -> bool {
        self.stretches.front().is_some_and(|first| first.cached < first.to - first.from)
    }

    /// After reading up to `at`: counts, and gives back what is behind.
    pub fn after(&mut self, file: &File, at: u64) {
        while let Some(first) = self.stretches.front()
            && first.to <= at
        {
            count(first.to - first.from, first.cached);
            let (from, to, give_back) = (first.from, first.to, first.give_back);
            self.stretches.pop_front();
            if give_back {
                self.give_back(file, from, to);
            }
        }
        self.read = at;
    }

    /// The system holds pages in groups of up to some MB and gives none back but whole groups: one that lies across
    /// the end of what was given back last is gone only if that is given back once more.
    fn give_back(&mut self, file: &File, from: u64, to: u64) {
        let start = if self.given.end == from { self.given.start } else { from };
        page::give_back(file, start, to - start);
        self.given = from..to;
    }

    /// Nothing more will be read: what was read of the stretch at hand is given back.
    fn close(&mut self, file: &File) {
        if let Some(&Stretch { from, to, give_back: true, .. }) = self.stretches.front()
            && self.read > from
        {
            self.give_back(file, from, self.read.min(to));
        }
    }
}

impl Drop for Track {
    /// Counts what was read of a stretch that nobody wanted to the end.
    fn drop(&mut self) {
        if let Some(Stretch { from, to, cached, .. }) = self.stretches.front() {
            let bytes = self.read.saturating_sub(*from).min(to - from);
            count(bytes, share(bytes, *cached, to - from));
        }
    }
}

/// A file read from somewhere to somewhere, with care for the cache.
pub(super) struct Tracked {
    file: File,
    at: u64,
    end: Option<u64>,
    track: Track,
}

impl Tracked {
    /// Of a regular file of `length` bytes, from `at` up to `end`, or to wherever the file ends.
    pub fn new(file: File, length: u64, at: u64, end: Option<u64>, care: Care) -> Self {
        Tracked { file, at, end, track: Track::new(end.unwrap_or(length), care) }
    }
}

impl Read for Tracked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.end.map_or(u64::MAX, |end| end.saturating_sub(self.at));
        let want = left.min(buffer.len() as u64) as usize;
        if want == 0 {
            return Ok(0);
        }
        self.track.before(&self.file, self.at, want);
        let got = timed(self.track.cold(), || self.file.read_at(&mut buffer[..want], self.at))?;
        self.at += got as u64;
        self.track.after(&self.file, self.at);
        Ok(got)
    }
}

/// One member of an archive, read anywhere but from front to back, with care for the cache.
pub(super) struct TrackedAt {
    file: File,
    size: u64,
    care: Care,
    /// About how many bytes will be read.
    span: u64,
    /// Begins where the first read does.
    track: Mutex<Option<Track>>,
}

impl TrackedAt {
    /// Of a regular file of `size` bytes, about `span` of which will be read.
    pub fn new(file: File, size: u64, span: u64, care: Care) -> Self {
        TrackedAt { file, size, care, span, track: Mutex::new(None) }
    }
}

impl Drop for TrackedAt {
    /// Where a member ends is known but roughly, so the last that was looked at is seldom read to its end.
    fn drop(&mut self) {
        if let Ok(Some(track)) = self.track.get_mut() {
            track.close(&self.file);
        }
    }
}

impl ReadAt for TrackedAt {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut track = self.track.lock().expect("no panic while held");
        let track = track.get_or_insert_with(|| Track::new(self.size.min(at.saturating_add(self.span)), self.care));
        track.before(&self.file, at, buffer.len());
        let got = timed(track.cold(), || self.file.read_at(buffer, at))?;
        track.after(&self.file, at + got as u64);
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(bytes: usize) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![b'x'; bytes]).unwrap();
        file
    }

    #[test]
    fn a_file_just_written_is_in_the_cache() {
        let file = file(1_000_000);
        let found = residency(&file).unwrap();
        assert_eq!(found.bytes, 1_000_000);
        assert!(found.cached > 0 && found.cached <= 1_000_000, "{found:?}");
        // Some file systems of tests live in memory: what is mapped tells the same.
        let mapped = page::mapped(&file, 0, 1_000_000).unwrap();
        assert!(mapped > 0 && mapped <= 1_000_000, "{mapped}");
    }

    /// Parts that are alike everywhere are told by samples, others by a look at all of them.
    #[test]
    fn samples_tell_what_all_pages_do() {
        let length = 40_000_000u64;
        let file = file(length as usize);
        file.sync_all().unwrap();
        let same = |from: u64, length: u64, exact: u64| {
            let about = cached(&file, from, length).unwrap();
            assert_eq!(about, exact, "{length} bytes from {from} on");
        };
        same(0, length, length);
        same(0, 100, 100);
        same(30 << 20, 4 << 20, 4 << 20);
        // Some of the end; a file system in memory keeps it, and the rest, but then nothing differs.
        page::give_back(&file, 30 << 20, length - (30 << 20));
        same(0, length, page::cached(&file, 0, length).unwrap());
        page::give_back(&file, 0, length);
        let left = page::cached(&file, 0, length).unwrap();
        let about = cached(&file, 0, length).unwrap();
        assert!(about == left || about == 0 && left < length / 4, "{about}, {left}");
    }

    #[test]
    fn every_byte_is_read_and_counted_once() {
        let length = 10_000_000u64;
        let (file, before) = (file(length as usize), bytes_read());
        // Begun off any boundary, and with reads that grow beyond what is looked ahead.
        let (mut from, mut read) = (Tracked::new(file.try_clone().unwrap(), length, 5, None, Care::default()), Vec::new());
        from.read_to_end(&mut read).unwrap();
        assert_eq!(read.len() as u64, length - 5);
        // Other tests read meanwhile.
        let counted = bytes_read().since(before);
        assert!(counted.cache + counted.disk >= length - 5, "{counted:?}");
        let mut part = Tracked::new(file, length, 100, Some(300), Care { give_back: true, prior: Some(Prior { end: length, cached: 0 }) });
        assert_eq!(part.read_to_end(&mut Vec::new()).unwrap(), 200);
    }

    #[test]
    fn what_was_cold_is_given_back() {
        let length = 20_000_000u64;
        let file = file(length as usize);
        file.sync_all().unwrap();
        // The system keeps pages for a while that are on a processor's own lists, so not every time is the first.
        let left: Vec<u64> = (0..10)
            .map(|_| {
                let care = Care { give_back: true, prior: Some(Prior { end: length, cached: 0 }) };
                io::copy(&mut Tracked::new(file.try_clone().unwrap(), length, 0, None, care), &mut io::sink()).unwrap();
                residency(&file).unwrap().cached
            })
            .collect();
        // A file system in memory gives nothing back.
        assert!(left.iter().any(|left| *left < length / 2 || *left == length), "of {length} bytes are left {left:?}");
    }

    #[test]
    fn small_sources_stay() {
        assert!(!PageCache::Auto.gives_back(1 << 20) && !PageCache::Keep.gives_back(u64::MAX));
        assert!(PageCache::Auto.gives_back(u64::MAX) && PageCache::Drop.gives_back(0));
    }
}
