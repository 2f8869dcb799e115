//! The threads of a store: one writes full buffers and makes the files of checkpoints safe, one merges runs and makes filters, and one
//! reads the files of a checkpoint ahead of the rows that will be wanted, after a restart.
//!
//! They share a [`State`] behind one lock, which nobody holds while touching a disk. What they cannot do they leave
//! there as an error for the next call of the store; after that has been told, they try again.

mod fetch;
mod pace;
#[cfg(test)]
mod tests;
mod tidy;
mod tiers;
mod write;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::buffer::Buffer;
use super::error::ColdError;
use super::filter::StoreFilter;
use super::list::StateFile;
use super::place::Place;
use super::run::Run;
use crate::removal;
use tiers::Recent;

/// With more runs the store waits for merges: while one of some GB goes on, nobody merges the small ones that come.
const RUNS_MAX: usize = 256;
/// By how much the threads that merge and read ahead stand back behind those that work on rows.
const NICE_MERGE: i32 = 10;
/// Rows between two looks at whether the store is ending.
const STOP_ROWS: u32 = 4096;
/// Keys for which the first filter is made.
pub(crate) const FILTER_KEYS_MIN: usize = 256 << 10;

/// The runs of a store, the oldest first.
pub(crate) type Runs = Arc<Vec<Arc<Run>>>;

/// What the threads and the store have in common.
pub(crate) struct Shared {
    pub place: Place,
    state: Mutex<State>,
    changed: Condvar,
    /// The store is ending.
    stop: AtomicBool,
    /// There are checkpoints: merged runs are safe on disk before they count, others are begun to be.
    pub durable: AtomicBool,
}

pub(crate) struct State {
    pub runs: Runs,
    /// The buffer that is being written.
    pub frozen: Option<Arc<Buffer>>,
    /// One that was written and can be used again.
    pub spare: Option<Buffer>,
    /// That of the newest run.
    pub sequence: u64,
    /// All that is in the store; none before the first one is complete.
    pub filter: Option<Arc<StoreFilter>>,
    pub growth: Growth,
    /// Before so many rows have come it is not tried again to make the filter larger.
    pub grows_from: u64,
    pub files: Files,
    /// How often files were asked for.
    pub asked: u64,
    /// Files that the last checkpoint named; they stay.
    pub listed: Vec<PathBuf>,
    recent: Recent,
    error: Option<ColdError>,
    write_failed: bool,
    merge_failed: bool,
    merging: bool,
    /// What the store began with is being read into the system's cache, or waits for that.
    pub fetching: bool,
    /// So many bytes of it.
    fetched: u64,
    /// With so many runs what a thread is at is in a hurry.
    hurried_from: usize,
    /// Bytes of all buffers that were written.
    arrived: u64,
    /// A thread ended that should not have.
    dead: bool,
}

/// How a filter, or larger parts of it, come about.
pub(crate) enum Growth {
    None,
    /// The parts that are full are to be larger; without a filter, one is wanted. So many rows are in the buffer.
    Wanted(usize),
    /// They are there. The store has to enter what comes from now on, and what it has in memory.
    Offered(Arc<StoreFilter>),
    /// The store does. What was there before is to be entered.
    Scan(Arc<StoreFilter>, Runs, Option<Arc<Buffer>>),
    /// That is being entered.
    Scanning,
}

/// The files of a checkpoint.
pub(crate) enum Files {
    None,
    /// What is in runs now is to be made safe, and listed, for the n-th time.
    Wanted(u64),
    /// It is.
    Written(Vec<StateFile>),
}

impl Shared {
    /// Of a store that begins with these runs. `listed`: files that must stay.
    pub fn new(place: Place, runs: Vec<Arc<Run>>, listed: Vec<PathBuf>) -> Self {
        let sequence = runs.last().map_or(0, |run| run.counts.sequence);
        let (first, last) = place.bounds;
        let filter = runs.is_empty().then(|| Arc::new(StoreFilter::new(FILTER_KEYS_MIN, first, last)));
        let durable = AtomicBool::new(!runs.is_empty());
        let state = State {
            runs: Arc::new(runs),
            frozen: None,
            spare: None,
            sequence,
            filter,
            growth: Growth::None,
            grows_from: 0,
            files: Files::None,
            asked: 0,
            listed,
            recent: Recent::default(),
            error: None,
            write_failed: false,
            merge_failed: false,
            merging: false,
            fetching: false,
            fetched: 0,
            hurried_from: 0,
            arrived: 0,
            dead: false,
        };
        Shared { place, state: Mutex::new(state), changed: Condvar::new(), stop: AtomicBool::new(false), durable }
    }

    /// The state, locked.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something has changed.
    pub fn wait<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something has changed, or for so long.
    fn wait_for<'a>(&'a self, state: MutexGuard<'a, State>, long: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, long).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Wakes whoever waits for a change.
    pub fn changed(&self) {
        self.changed.notify_all();
    }

    /// What a thread could not do since the last call; it tries again after this.
    ///
    /// # Errors
    /// That.
    pub fn surface(&self, state: &mut State) -> Result<(), ColdError> {
        if let Some(error) = state.error.take() {
            (state.write_failed, state.merge_failed) = (false, false);
            self.changed();
            return Err(error);
        }
        if state.dead {
            return Err(ColdError::new("internal error: a thread of the state on disk has ended; start the job again from its checkpoint"));
        }
        Ok(())
    }

    /// Starts the threads.
    ///
    /// # Errors
    /// The system's.
    pub fn start(self: &Arc<Self>) -> Result<Vec<JoinHandle<()>>, ColdError> {
        let spawn = |name: &str, body: fn(&Shared)| {
            let shared = self.clone();
            let run = move || {
                if catch_unwind(AssertUnwindSafe(|| body(&shared))).is_err() {
                    shared.lock().dead = true;
                    shared.changed();
                }
            };
            Builder::new().name(name.into()).spawn(run).map_err(|e| {
                self.end();
                ColdError::new(format!("starting a thread for the state on disk: {e}"))
            })
        };
        let begins_with_some = {
            let mut state = self.lock();
            state.fetching = !state.runs.is_empty();
            state.fetching
        };
        let mut threads = vec![spawn("cold-write", write::write_buffers)?, spawn("cold-merge", tidy::tidy)?];
        if begins_with_some {
            threads.push(spawn("cold-fetch", fetch::fetch)?);
        }
        Ok(threads)
    }

    /// Tells the threads to end.
    pub fn end(&self) {
        let state = self.lock();
        self.stop.store(true, Ordering::Relaxed);
        drop(state);
        self.changed();
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl State {
    /// Whether the threads have nothing to do.
    pub fn idle(&self, place: &Place) -> bool {
        let working = self.frozen.is_some() || self.merging || self.fetching || !matches!(self.growth, Growth::None);
        !working && self.heavy(place).is_none() && self.mergeable().is_none()
    }

    /// The run whose filter takes most memory, if filters and indexes take more than they may.
    fn heavy(&self, place: &Place) -> Option<&Arc<Run>> {
        let filter = self.filter.as_ref().map_or(0, |filter| filter.memory()).min(place.filter_memory());
        let heavy = heaviest(&self.runs, place.memory - filter)?;
        Some(&self.runs[heavy])
    }

    /// Whether there is room for a buffer to be written.
    pub fn has_room(&self) -> bool {
        self.frozen.is_none() && self.runs.len() < RUNS_MAX
    }
}

/// The run whose filter takes most memory, if they all take more than `limit` bytes.
pub(crate) fn heaviest(runs: &[Arc<Run>], limit: usize) -> Option<usize> {
    if runs.iter().map(|run| run.memory()).sum::<usize>() <= limit {
        return None;
    }
    (0..runs.len()).filter(|at| runs[*at].filter_memory() > 0).max_by_key(|at| runs[*at].filter_memory())
}

/// Removes a run that nobody needs. One that cannot be removed costs space, nothing else.
fn discard(run: &Run) {
    let _ = removal::file(&run.path);
}
