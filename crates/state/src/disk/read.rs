//! Reading rows by their hashes.
//!
//! The hashes of a call are sorted once. Then the pages are found in the index of every run, the newest first, for those that
//! its filter does not refuse; neighbours are read by one call to the kernel, and in a page the hash is searched. Where a disk
//! has to be waited for, the kernel is told which pages come next, of other runs too, so that they are read side by side. A key that was found in a newer run hides older versions. All runs are asked, though
//! the first answer is nearly always the only key: two keys may have one hash.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::ArrayRef;

use super::ColdStore;
use super::error::ColdError;
use super::place::Place;
use super::run::Run;
use super::system::{Advice, advise};

/// Pages that are read though nobody asked for them, between two that somebody did.
const GAP_PAGES: usize = 1;
/// Bytes read at once.
const READ_BYTES: u64 = 256 << 10;
/// A read that takes longer, and longer than memory would, came from a disk; then the kernel is told what comes.
const DISK_NS: u128 = 50_000;
/// How many of the pages to come it is told.
const AHEAD: usize = 64;
/// Memory for rows that is kept from one call to the next.
const KEPT_BYTES: usize = 16 << 20;
/// No further row.
const NONE: u32 = u32::MAX;

/// Memory that calls use again.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Hashes asked for, sorted, each once.
    asked: Vec<u64>,
    /// Where to look.
    wanted: Vec<Wanted>,
    bytes: Vec<u8>,
    found: Found,
}

/// A page on which a row may be.
#[derive(Clone, Copy)]
struct Wanted {
    /// The run, by its place among those asked.
    run: u32,
    page: u32,
    /// Which of the hashes asked for.
    number: u32,
}

/// Rows that were found.
#[derive(Default)]
struct Found {
    /// The first row of each hash asked for.
    heads: Vec<u32>,
    rows: Vec<Row>,
    arena: Vec<u8>,
}

struct Row {
    /// The next one of the same hash.
    next: u32,
    start: usize,
    end: usize,
    deleted: bool,
}

impl Found {
    /// Takes a row of a hash unless a newer version of its key is there.
    fn add(&mut self, place: &Place, asked: usize, row: &[u8], deleted: bool) {
        let key = place.codec.key(row);
        let mut at = self.heads[asked];
        while at != NONE {
            let known = &self.rows[at as usize];
            if place.codec.key(&self.arena[known.start..known.end]) == key {
                return;
            }
            at = known.next;
        }
        let start = self.arena.len();
        self.arena.extend_from_slice(row);
        let number = self.rows.len() as u32;
        self.rows.push(Row { next: self.heads[asked], start, end: self.arena.len(), deleted });
        self.heads[asked] = number;
    }
}

impl Scratch {
    fn memory(&self) -> usize {
        self.asked.capacity() * 8 + self.wanted.capacity() * size_of::<Wanted>() + self.bytes.capacity() + self.found.arena.capacity()
    }

    /// Finds the rows of runs, the newest first; returns the bytes read.
    fn ask(&mut self, place: &Place, runs: &[Arc<Run>]) -> Result<u64, ColdError> {
        let Scratch { asked, wanted, bytes, found } = self;
        wanted.clear();
        for (at, run) in runs.iter().rev().enumerate() {
            let mut from = 0;
            for (number, hash) in asked.iter().enumerate() {
                if run.may_have(*hash) {
                    let page = |page: usize| Wanted { run: at as u32, page: page as u32, number: number as u32 };
                    wanted.extend(run.pages_of(*hash, &mut from).map(page));
                }
            }
        }
        let run_of = |wanted: &Wanted| &*runs[runs.len() - 1 - wanted.run as usize];
        let (mut at, mut total) = (0, 0);
        // So many of the wanted are known to the kernel.
        let mut told = 0;
        while at < wanted.len() {
            let run = run_of(&wanted[at]);
            let first = wanted[at].page as usize;
            let (mut last, mut end) = (first, at + 1);
            while let Some(next) = wanted.get(end).filter(|next| next.run == wanted[at].run) {
                let page = next.page as usize;
                if page > last + 1 + GAP_PAGES || run.offset(page + 1) - run.offset(first) > READ_BYTES {
                    break;
                }
                last = page;
                end += 1;
            }
            let begun = Instant::now();
            let bytes = run.read(first..last + 1, bytes)?;
            total += bytes.len() as u64;
            if begun.elapsed().as_nanos() > DISK_NS + bytes.len() as u128 / 2 {
                let ahead = wanted.len().min(end + AHEAD);
                for next in &wanted[told.clamp(end, ahead)..ahead] {
                    let (run, page) = (run_of(next), next.page as usize);
                    advise(&run.file, run.offset(page), run.offset(page + 1) - run.offset(page), Advice::Soon);
                }
                told = told.max(ahead);
            }
            let mut rest = wanted[at..end].iter().peekable();
            while let Some(next) = rest.peek() {
                let number = next.page;
                let page = run.page(number as usize, first, bytes)?;
                while let Some(next) = rest.next_if(|next| next.page == number) {
                    let wanted = asked[next.number as usize];
                    for row in (page.find(wanted)..page.len()).take_while(|row| page.hash(*row) == wanted) {
                        let (row, deleted) = page.row(row);
                        found.add(place, next.number as usize, row, deleted);
                    }
                }
            }
            at = end;
        }
        Ok(total)
    }
}

impl ColdStore {
    /// All newest versions of rows with these hashes: hashes, and columns as they were put. They stay here, too: the
    /// caller has a copy. `None`: there are none. Hashes may come in any order, and more than once.
    ///
    /// # Errors
    /// What cannot be read; a file that is damaged; what the threads of the store could not do before.
    pub fn read(&mut self, hashes: &[u64]) -> Result<Option<(Vec<u64>, Vec<ArrayRef>)>, ColdError> {
        // After a restart the first rows are read: then a filter of the whole store is begun.
        self.begin()?;
        let (runs, frozen) = {
            let state = self.shared.lock();
            (state.runs.clone(), state.frozen.clone())
        };
        let place = &self.shared.place;
        let scratch = &mut self.scratch;
        scratch.asked.clear();
        scratch.asked.extend_from_slice(hashes);
        scratch.asked.sort_unstable();
        scratch.asked.dedup();
        scratch.found.heads.clear();
        scratch.found.heads.resize(scratch.asked.len(), NONE);
        scratch.found.rows.clear();
        scratch.found.arena.clear();
        for buffer in std::iter::once(&self.active).chain(frozen.as_deref()).filter(|buffer| !buffer.is_empty()) {
            for (number, hash) in scratch.asked.iter().enumerate() {
                buffer.find(*hash).for_each(|(row, deleted)| scratch.found.add(place, number, row, deleted));
            }
        }
        let bytes = scratch.ask(place, &runs)?;
        let Scratch { asked, found, .. } = &*scratch;
        let (mut hashes, mut rows, mut missing) = (Vec::with_capacity(asked.len()), Vec::with_capacity(asked.len()), 0);
        for (hash, head) in asked.iter().zip(&found.heads) {
            let mut at = *head;
            missing += u64::from(at == NONE);
            while at != NONE {
                let row = &found.rows[at as usize];
                if !row.deleted {
                    hashes.push(*hash);
                    rows.push(&found.arena[row.start..row.end]);
                }
                at = row.next;
            }
        }
        place.counters.reads.fetch_add(asked.len() as u64, super::RELAXED);
        place.counters.read_bytes.fetch_add(bytes, super::RELAXED);
        place.counters.filter_false.fetch_add(missing, super::RELAXED);
        let columns = if hashes.is_empty() { None } else { Some(place.codec.columns(&rows)?) };
        if scratch.memory() > KEPT_BYTES {
            *scratch = Scratch::default();
        }
        Ok(columns.map(|columns| (hashes, columns)))
    }
}
