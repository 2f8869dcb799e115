//! The thread that merges runs and makes filters.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::pace::{PACED_BYTES, RUNS_WAITING, TURN_POLL, Turn, bytes, is_large};
use super::{FILTER_KEYS_MIN, Growth, NICE_MERGE, Runs, STOP_ROWS, Shared, State, discard};
use crate::disk::buffer::Buffer;
use crate::disk::error::ColdError;
use crate::disk::filter::StoreFilter;
use crate::disk::merge::{Cursor, RunCursor};
use crate::disk::place::Place;
use crate::disk::run::Run;
use crate::disk::system::{self, Advice, advise};
use crate::disk::writer::Plan;

/// A filter that has no memory to grow is looked at again when this part of the store's rows has come.
const GROWTH_TRIED: u64 = 16;

pub(super) enum Task {
    Filter { grown: Option<Arc<StoreFilter>>, runs: Runs, buffered: usize },
    Scan { filter: Arc<StoreFilter>, runs: Runs, frozen: Option<Arc<Buffer>>, paced: bool },
    Lighten(Arc<Run>),
    Merge { runs: Vec<Arc<Run>>, bottom: bool },
}

impl Shared {
    /// What was read out of the system's cache is to be read out of it afterwards: of a large run the first pages may have had
    /// to go before the last were written, and rows would wait for the disk, each for itself.
    fn merge_runs(&self, runs: &[Arc<Run>], bottom: bool) -> Result<Option<Run>, ColdError> {
        let cached = is_large(runs) && runs.iter().all(|run| run.is_cached());
        let pace = (bytes(runs) >= PACED_BYTES).then(|| self.pace());
        let plan = Plan {
            rows: runs.iter().map(|run| run.counts.rows as usize).sum(),
            first: runs.iter().map(|run| run.counts.first).min().unwrap_or(0),
            last: runs.iter().map(|run| run.counts.last).max().unwrap_or(0),
            sequence: runs.last().map_or(0, |run| run.counts.sequence),
            sync: self.durable.load(Ordering::Relaxed),
        };
        let cursors = runs.iter().rev().filter_map(|run| Cursor::run(run).transpose()).collect::<Result<Vec<_>, _>>()?;
        let merged = self.write(cursors, plan, bottom, pace)?;
        let go_on = || !self.stopped() && !self.lock().is_piled();
        merged.iter().filter(|_| cached).for_each(|run| run.fetch(go_on));
        Ok(merged)
    }

    /// A filter of all that these runs and as many rows again as are `buffered` have, or larger parts for one that is full.
    fn new_filter(&self, old: Option<&StoreFilter>, runs: &Runs, buffered: usize) -> Option<StoreFilter> {
        let limit = self.place.filter_memory();
        if let Some(old) = old {
            let (first, last) = self.place.bounds;
            let in_part = |run: &Arc<Run>, part: usize| {
                let end = run.page_of(|hash| old.part_of(hash) <= part && hash <= last) + 1;
                let pages = end - run.page_of(|hash| old.part_of(hash) < part || hash < first).min(end);
                pages as f64 * run.counts.rows as f64 / run.pages() as f64
            };
            return old.growth(|part| buffered + runs.iter().map(|run| in_part(run, part)).sum::<f64>() as usize, limit);
        }
        let rows = buffered + runs.iter().map(|run| run.counts.rows as f64 * run.part()).sum::<f64>() as usize;
        let mut keys = (rows + rows / 4).max(FILTER_KEYS_MIN);
        keys = keys.min((limit / StoreFilter::bytes(1 << 10)).saturating_mul(1 << 10)).max(FILTER_KEYS_MIN);
        let (first, last) = self.place.bounds;
        Some(StoreFilter::new(keys, first, last))
    }

    /// Enters the hashes of runs and a buffer into the parts of a filter; `false` if the store ended before.
    fn scan(&self, filter: &StoreFilter, runs: &Runs, frozen: Option<&Buffer>, paced: bool) -> Result<bool, ColdError> {
        let mut pace = paced.then(|| self.pace());
        let row_bytes = bytes(runs) / runs.iter().map(|run| run.counts.rows).sum::<u64>().max(1);
        if let Some(buffer) = frozen {
            filter.insert(buffer.hashes());
            filter.deleted(buffer.deletions());
        }
        let (first, last) = self.place.bounds;
        let mut hashes = Vec::with_capacity(STOP_ROWS as usize);
        let mut deleted = Vec::new();
        let which = filter.which();
        for (run, parts) in runs.iter().flat_map(|run| which.iter().map(move |parts| (run, parts))) {
            let page = run.page_of(|hash| filter.part_of(hash) < *parts.start() || hash < first);
            let Some(mut cursor) = RunCursor::new(run.clone(), page, last)? else { continue };
            let mut more = true;
            while more {
                hashes.clear();
                deleted.clear();
                while more && hashes.len() < STOP_ROWS as usize {
                    let hash = cursor.hash();
                    let part = filter.part_of(hash);
                    if part > *parts.end() {
                        more = false;
                        break;
                    }
                    if part >= *parts.start() {
                        hashes.push(hash);
                        deleted.extend(cursor.is_deletion().then_some(hash));
                    }
                    more = cursor.advance()?;
                }
                filter.insert(&hashes);
                filter.deleted(deleted.iter().copied());
                self.rest_if_due(&mut pace, hashes.len() as u64 * row_bytes);
                if self.stopped() {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// What a merge made takes the place of what it was made of.
    fn replace(&self, old: &[Arc<Run>], new: Option<Run>) {
        let mut state = self.lock();
        state.exchange(old, new);
        let (kept, removed): (Vec<_>, Vec<_>) = old.iter().partition(|run| state.listed.contains(&run.path));
        // A file takes a while to remove if it is large.
        drop(state);
        // The last checkpoint needs these; nobody reads them before the next one, unless a restart does: after a crash in between a flow
        // waited for seconds for rows that the disk gave one by one. Where something else would have to go for them, they go.
        if !kept.is_empty() && system::is_full() {
            kept.into_iter().for_each(|run| advise(&run.file, 0, 0, Advice::Done));
        }
        removed.into_iter().for_each(|run| discard(run));
        self.place.counters.compactions.fetch_add(1, Ordering::Relaxed);
    }
}

impl State {
    /// Puts a run in the place of neighbours; only the thread that merges does.
    fn exchange(&mut self, old: &[Arc<Run>], new: Option<Run>) {
        let mut runs = self.runs.to_vec();
        let at = runs.iter().position(|run| Arc::ptr_eq(run, &old[0])).expect("only one thread removes runs");
        drop(runs.splice(at..at + old.len(), new.map(Arc::new)));
        self.runs = Arc::new(runs);
    }

    /// What the thread is to do next.
    pub(super) fn task(&mut self, place: &Place, turn: &mut Turn) -> Option<Task> {
        // What is read for filters and merges would be read twice, and in no order.
        if self.fetching && !self.is_piled() {
            return self.heavy(place).map(|run| Task::Lighten(run.clone()));
        }
        match std::mem::replace(&mut self.growth, Growth::None) {
            Growth::Wanted(buffered) => {
                self.growth = Growth::Wanted(buffered);
                let buffered = buffered + self.frozen.as_ref().map_or(0, |buffer| buffer.len());
                return Some(Task::Filter { grown: self.filter.clone(), runs: self.runs.clone(), buffered });
            }
            Growth::Scan(filter, runs, frozen) => {
                self.growth = Growth::Scanning;
                self.hurried_from = self.runs.len() + RUNS_WAITING;
                // The first one after a restart reads all that there is; later ones read a part, and are waited for.
                let counting: f64 = runs.iter().map(|run| run.bytes as f64 * run.part()).sum();
                let paced = self.filter.is_none() && counting >= PACED_BYTES as f64;
                return Some(Task::Scan { filter, runs, frozen, paced });
            }
            other => self.growth = other,
        }
        if let Some(run) = self.heavy(place) {
            return Some(Task::Lighten(run.clone()));
        }
        if self.merge_failed {
            return None;
        }
        let range = self.mergeable()?;
        if is_large(&self.runs[range.clone()]) && !self.is_piled() && !turn.take() {
            return None;
        }
        self.merging = true;
        self.hurried_from = self.runs.len() + RUNS_WAITING;
        Some(Task::Merge { bottom: range.start == 0, runs: self.runs[range].to_vec() })
    }
}

/// The thread that merges runs and makes filters.
pub(super) fn tidy(shared: &Shared) {
    system::step_back(NICE_MERGE);
    loop {
        let mut turn = Turn::default();
        let task = {
            let mut state = shared.lock();
            loop {
                if shared.stopped() {
                    return;
                }
                turn.missed = false;
                if let Some(task) = state.task(&shared.place, &mut turn) {
                    break task;
                }
                state = if turn.missed { shared.wait_for(state, TURN_POLL) } else { shared.wait(state) };
            }
        };
        let mut failed = None;
        match task {
            Task::Filter { grown, runs, buffered } => {
                let filter = shared.new_filter(grown.as_deref(), &runs, buffered).map(Arc::new);
                let mut state = shared.lock();
                if filter.is_none() {
                    let rows = runs.iter().map(|run| run.counts.rows).sum::<u64>().max(FILTER_KEYS_MIN as u64);
                    state.grows_from = shared.place.counters.rows.load(Ordering::Relaxed) + rows / GROWTH_TRIED;
                }
                state.growth = filter.map_or(Growth::None, Growth::Offered);
            }
            Task::Scan { filter, runs, frozen, paced } => match shared.scan(&filter, &runs, frozen.as_deref(), paced) {
                Ok(true) => {
                    let mut state = shared.lock();
                    let whole = state.filter.as_ref().map(|old| Arc::new(old.with(&filter)));
                    state.filter = Some(whole.unwrap_or(filter));
                    state.growth = Growth::None;
                }
                Ok(false) => return,
                Err(error) => {
                    shared.lock().growth = Growth::None;
                    failed = Some(error);
                }
            },
            Task::Lighten(run) => {
                if let Some(light) = run.lighter() {
                    shared.lock().exchange(&[run], Some(light));
                }
            }
            Task::Merge { runs, bottom } => match shared.merge_runs(&runs, bottom) {
                Ok(run) if shared.stopped() => {
                    run.iter().for_each(discard);
                    return;
                }
                Ok(run) => shared.replace(&runs, run),
                Err(error) => failed = Some(error),
            },
        }
        drop(turn);
        let mut state = shared.lock();
        state.merging = false;
        if let Some(error) = failed {
            state.error = Some(error);
            state.merge_failed = true;
        }
        drop(state);
        shared.changed();
    }
}
