//! The threads of a store: one writes full buffers and makes the files of checkpoints safe, one merges runs and makes filters, and one
//! reads the files of a checkpoint ahead of the rows that will be wanted, after a restart.
//!
//! They share a [`State`] behind one lock, which nobody holds while touching a disk. What they cannot do they leave
//! there as an error for the next call of the store; after that has been told, they try again.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::buffer::Buffer;
use super::error::ColdError;
use super::filter::StoreFilter;
use super::list::{self, StateFile};
use super::merge::{Cursor, RunCursor, merge};
use super::place::Place;
use super::run::Run;
use super::system::{self, Advice, advise};
use super::writer::{Plan, RunWriter};
use crate::removal;

/// Runs of about one size that are merged into one.
const FAN_IN: usize = 8;
/// The same where nearly all rows are of new keys, which the store's filter refuses without a look at any run: then
/// many runs cost nobody anything, and fewer merges halve what is written of a large store.
const FAN_IN_NEW: usize = MERGE_MAX;
/// Nearly all: for one hash that is read, at least so many rows are written.
const NEW_ROWS: u64 = 8;
/// Rows after which what was read and written before counts half.
const RECENT_ROWS: u64 = 1 << 20;
/// Most runs merged at once; each has a buffer of 256 KB.
const MERGE_MAX: usize = 32;
/// With more runs the store waits for merges: while one of some GB goes on, nobody merges the small ones that come.
const RUNS_MAX: usize = 256;
/// With so many runs some are merged, whatever their sizes.
const RUNS_PILED: usize = 64;
/// Size of the runs of the lowest tier; those of each further one are `FAN_IN` times as large.
const TIER_BYTES: u64 = 64 << 10;
/// By how much the thread that merges stands back behind those that work on rows.
const NICE_MERGE: i32 = 10;
/// And the one that writes, for which a checkpoint waits, and the rows only if a further buffer is full before it is done.
const NICE_WRITE: i32 = 5;
/// A filter that has no memory to grow is looked at again when this part of the store's rows has come.
const GROWTH_TRIED: u64 = 16;
/// Smaller stores are not merged for their hidden rows.
const GARBAGE_ROWS_MIN: u64 = 100_000;
/// Merges of so many bytes are large. They go one after the other, whatever stores of the process they are for, unless runs have
/// piled up: two at once hold twice as much of the system's cache with what was read and what was written, and are hardly faster
/// where the disk or the number of processors is the bound.
const LARGE_BYTES: u64 = 1 << 30;
/// Whose turn it is.
static LARGE: Mutex<()> = Mutex::new(());
/// The store whose files are being fetched; one after the other, so that the flow has a processor left.
static FETCHING: Mutex<()> = Mutex::new(());
/// Bytes that the stores there are have fetched.
static FETCHED: AtomicU64 = AtomicU64::new(0);
/// Stores fetch no more than this part, as its divisor, of the memory that can be had: what is fetched next would make it go again.
const FETCH_DIVISOR: u64 = 2;
/// Merges of so many bytes can wait, and so can the first filter of so many after a restart: they rest between pieces of work. To be
/// nice is not enough: where a group of processes, or a whole machine, has a quota of processor time, what is taken in spare moments
/// is what the flow then stands still for.
const PACED_BYTES: u64 = 128 << 20;
/// They rest so many times as long as they work.
const REST: u32 = 2;
/// They do not rest once so many runs have come since they began.
const RUNS_WAITING: usize = 32;
/// Nor while so many times what has come since then is more than what they have read and `COMING_BYTES`: a row is merged some three
/// times, so merges that rest would fall behind, and rows be looked for in more runs.
const COMING_TIMES: u64 = 4;
const COMING_BYTES: u64 = 256 << 20;
/// They rest after so many bytes, or `STOP_ROWS`: work of a millisecond or two.
const REST_BYTES: usize = 1 << 20;
/// How often a store whose turn it is not looks again.
const TURN_POLL: Duration = Duration::from_millis(100);
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

/// What the store was used for of late.
#[derive(Default)]
struct Recent {
    /// Rows that were written.
    rows: u64,
    /// Hashes that were read.
    reads: u64,
    /// Those that the counter of reads had when rows were counted last.
    counted: u64,
}

impl Recent {
    /// So many rows were written; the counter of reads stands at `reads`.
    fn written(&mut self, rows: u64, reads: u64) {
        self.rows += rows;
        self.reads += reads.saturating_sub(std::mem::replace(&mut self.counted, reads));
        if self.rows > RECENT_ROWS {
            (self.rows, self.reads) = (self.rows / 2, self.reads / 2);
        }
    }

    /// Whether hardly anything was read.
    fn is_new(&self) -> bool {
        self.reads.saturating_mul(NEW_ROWS) < self.rows
    }
}

/// The files of a checkpoint.
pub(crate) enum Files {
    None,
    /// What is in runs now is to be made safe, and listed, for the n-th time.
    Wanted(u64),
    /// It is.
    Written(Vec<StateFile>),
}

/// The turn to merge much, while a thread has it.
#[derive(Default)]
struct Turn {
    held: Option<MutexGuard<'static, ()>>,
    /// It was somebody else's.
    missed: bool,
}

impl Turn {
    /// Takes it; `false` if somebody else has it.
    fn take(&mut self) -> bool {
        self.held = turn_of(&LARGE);
        self.missed = self.held.is_none();
        !self.missed
    }
}

/// A turn, unless somebody else has it. Who panicked while having it has left nothing behind.
fn turn_of(turns: &'static Mutex<()>) -> Option<MutexGuard<'static, ()>> {
    match turns.try_lock() {
        Ok(turn) => Some(turn),
        Err(TryLockError::Poisoned(turn)) => Some(turn.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// How far work has come that can wait.
struct Pace {
    /// Time of a processor that the thread had used after its last rest; none where the system does not tell.
    begun: Option<Duration>,
    /// What had come when the work began, bytes.
    arrived: u64,
    /// What was read since, bytes.
    read: u64,
}

impl Pace {
    /// Whether it is fast enough for what has come until now.
    fn keeps_up(&self, arrived: u64) -> bool {
        (arrived - self.arrived).saturating_mul(COMING_TIMES) <= self.read + COMING_BYTES
    }

    /// How long to rest now.
    fn due(&self) -> Duration {
        let worked = self.begun.and_then(|begun| Some(system::processor_time()?.saturating_sub(begun)));
        worked.unwrap_or_default() * REST
    }
}

enum Task {
    Filter { grown: Option<Arc<StoreFilter>>, runs: Runs, buffered: usize },
    Scan { filter: Arc<StoreFilter>, runs: Runs, frozen: Option<Arc<Buffer>>, paced: bool },
    Lighten(Arc<Run>),
    Merge { runs: Vec<Arc<Run>>, bottom: bool },
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
        let mut threads = vec![spawn("cold-write", write_buffers)?, spawn("cold-merge", tidy)?];
        if begins_with_some {
            threads.push(spawn("cold-fetch", |shared| {
                let _end = FetchEnd(shared);
                fetch(shared);
            })?);
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

    fn write(&self, cursors: Vec<Cursor>, plan: Plan, bottom: bool, mut pace: Option<Pace>) -> Result<Option<Run>, ColdError> {
        let mut writer = RunWriter::create(&self.place, plan, &self.stop)?;
        let (mut rows, mut bytes) = (0, 0);
        merge(&self.place, cursors, bottom, |hash, row, deleted| {
            writer.push(hash, row, deleted)?;
            rows += 1;
            bytes += row.len();
            if rows < STOP_ROWS && bytes < REST_BYTES {
                return Ok(true);
            }
            self.rest_if_due(&mut pace, bytes as u64);
            (rows, bytes) = (0, 0);
            Ok(!writer.stopped())
        })?;
        if writer.stopped() { Ok(None) } else { writer.finish() }
    }

    fn write_buffer(&self, buffer: &Buffer, sequence: u64, bottom: bool) -> Result<Option<Run>, ColdError> {
        let hashes = buffer.hashes();
        let plan = Plan {
            rows: hashes.len(),
            first: hashes.iter().copied().min().unwrap_or(0),
            last: hashes.iter().copied().max().unwrap_or(0),
            sequence,
            // The store may be waiting for room, and a checkpoint makes it safe.
            sync: false,
        };
        self.write(Cursor::buffer(buffer).into_iter().collect(), plan, bottom, None)
    }

    /// Rests for what was worked since the last rest, in which so many bytes were read; without a pace it does not.
    fn rest_if_due(&self, pace: &mut Option<Pace>, bytes: u64) {
        let Some(pace) = pace else { return };
        pace.read += bytes;
        let arrived = self.lock().arrived;
        if pace.keeps_up(arrived) {
            self.rest(pace.due());
        }
        pace.begun = system::processor_time();
    }

    /// The pace of work that begins.
    fn pace(&self) -> Pace {
        Pace { begun: system::processor_time(), arrived: self.lock().arrived, read: 0 }
    }

    /// Leaves the processor to others for so long, unless there is a hurry.
    fn rest(&self, long: Duration) {
        let until = Instant::now() + long;
        let mut state = self.lock();
        while !self.stopped() && !state.is_hurried() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.wait_for(state, left);
        }
    }

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

    /// Makes all runs safe on disk, and a list of them. They stay until the next time.
    fn list(&self) -> Result<Vec<StateFile>, ColdError> {
        let (runs, before) = {
            let mut state = self.lock();
            // From now on no merge removes them.
            let before = state.listed.clone();
            let all = state.runs.iter().map(|run| run.path.clone()).collect::<Vec<_>>();
            state.listed.extend(all);
            (state.runs.clone(), before)
        };
        for run in runs.iter().filter(|_| !self.stopped()) {
            run.sync()?;
        }
        let list = if runs.is_empty() { None } else { Some(list::write(&self.place, &runs)?) };
        let files: Vec<StateFile> = runs.iter().map(|run| list::state_file(run)).chain(list).collect();
        let mut state = self.lock();
        state.listed = files.iter().map(|file| file.path.clone()).collect();
        let needed = |path: &PathBuf| state.listed.contains(path) || state.runs.iter().any(|run| run.path == *path);
        let gone: Vec<PathBuf> = before.into_iter().filter(|path| !needed(path)).collect();
        drop(state);
        for path in gone {
            // What cannot be removed costs space, nothing else.
            let _ = removal::file(&path);
        }
        Ok(files)
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

impl Drop for Shared {
    /// What the store wanted to have in the system's cache nobody wants any more.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        FETCHED.fetch_sub(state.fetched, Ordering::Relaxed);
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

    /// Puts a run in the place of neighbours; only the thread that merges does.
    fn exchange(&mut self, old: &[Arc<Run>], new: Option<Run>) {
        let mut runs = self.runs.to_vec();
        let at = runs.iter().position(|run| Arc::ptr_eq(run, &old[0])).expect("only one thread removes runs");
        drop(runs.splice(at..at + old.len(), new.map(Arc::new)));
        self.runs = Arc::new(runs);
    }

    /// Whether there are so many runs that some must be merged before anything else.
    fn is_piled(&self) -> bool {
        self.runs.len() >= RUNS_PILED
    }

    /// Whether work that could take its time must not: runs come faster than they are merged, or rows are looked for in all runs as
    /// long as there is no filter of the whole store, which waits for the work.
    fn is_hurried(&self) -> bool {
        let awaited = self.filter.is_none() && matches!(self.growth, Growth::Wanted(_) | Growth::Scan(..));
        self.is_piled() || self.runs.len() >= self.hurried_from || awaited
    }

    /// Whether there is room for a buffer to be written.
    pub fn has_room(&self) -> bool {
        self.frozen.is_none() && self.runs.len() < RUNS_MAX
    }

    /// Runs that ought to be one: those of a tier and all newer ones, if there are many of that tier; all runs,
    /// if most of their rows are hidden or deletions.
    fn mergeable(&self) -> Option<Range<usize>> {
        let runs = self.runs.as_slice();
        let oldest = runs.first()?;
        let mut fan_in = FAN_IN;
        if let Some(filter) = &self.filter {
            let rows: u64 = runs.iter().map(|run| run.counts.rows).sum();
            // Deletions of keys that came again are counted, too, hence the second bound.
            let live = filter.live();
            let garbage = rows > GARBAGE_ROWS_MIN && rows > 3 * live.max(oldest.counts.rows / 2) && !filter.is_crowded();
            if garbage && matches!((&self.growth, runs.len()), (Growth::None, 2..=MERGE_MAX)) {
                return Some(0..runs.len());
            }
            // Rows that checkpoints write again and again are not read, but hide each other.
            if self.recent.is_new() && rows <= live + live / 4 {
                fan_in = FAN_IN_NEW;
            }
        }
        tiered(&runs.iter().map(|run| run.bytes).collect::<Vec<_>>(), fan_in)
    }

    fn task(&mut self, place: &Place, turn: &mut Turn) -> Option<Task> {
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

/// Bytes of all of these.
fn bytes(runs: &[Arc<Run>]) -> u64 {
    runs.iter().map(|run| run.bytes).sum()
}

/// Whether to merge these is much work.
fn is_large(runs: &[Arc<Run>]) -> bool {
    bytes(runs) >= LARGE_BYTES
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

/// The tier of a run of so many bytes.
fn tier(bytes: u64) -> u32 {
    (bytes / TIER_BYTES).checked_ilog(FAN_IN as u64).map_or(0, |log| log + 1)
}

/// Neighbours that ought to be one by their sizes: those of a tier and all newer ones, if there are many of that
/// tier, `fan_in` or more. Where small runs have piled up before larger ones, as checkpoints leave them while a long merge
/// goes on, no tier has many behind the last larger run; then those that cost least, or the store would wait for ever.
fn tiered(sizes: &[u64], fan_in: usize) -> Option<Range<usize>> {
    let tiers: Vec<u32> = sizes.iter().map(|bytes| tier(*bytes)).collect();
    let highest = tiers.iter().copied().max()?;
    for tier in 0..=highest {
        let start = tiers.iter().rposition(|t| *t > tier).map_or(0, |at| at + 1);
        if tiers[start..].iter().filter(|t| **t == tier).count() >= fan_in {
            return Some(start..sizes.len().min(start + MERGE_MAX));
        }
    }
    if sizes.len() < RUNS_PILED {
        return None;
    }
    let costs = sizes.windows(MERGE_MAX).map(|some| some.iter().sum::<u64>());
    let (start, _) = costs.enumerate().min_by_key(|(_, bytes)| *bytes)?;
    Some(start..start + MERGE_MAX)
}

/// The thread that writes buffers, and makes the files of a checkpoint safe.
fn write_buffers(shared: &Shared) {
    system::step_back(NICE_WRITE);
    loop {
        let (buffer, sequence, bottom) = {
            let mut state = shared.lock();
            loop {
                if shared.stopped() {
                    return;
                }
                if let Some(buffer) = state.frozen.as_ref().filter(|_| !state.write_failed) {
                    break (buffer.clone(), state.sequence + 1, state.runs.is_empty());
                }
                if let Files::Wanted(asked) = state.files
                    && state.frozen.is_none()
                {
                    drop(state);
                    let written = shared.list();
                    state = shared.lock();
                    match written {
                        // After an error elsewhere nobody wants these any more.
                        Ok(files) if matches!(state.files, Files::Wanted(now) if now == asked) => state.files = Files::Written(files),
                        Ok(_) => {}
                        Err(error) => (state.files, state.error) = (Files::None, Some(error)),
                    }
                    shared.changed();
                    continue;
                }
                state = shared.wait(state);
            }
        };
        let written = shared.write_buffer(&buffer, sequence, bottom);
        if shared.durable.load(Ordering::Relaxed) {
            written.iter().flatten().for_each(Run::begin_sync);
        }
        let rows = buffer.len() as u64;
        let reads = shared.place.counters.reads.load(Ordering::Relaxed);
        if shared.stopped() {
            written.iter().flatten().for_each(discard);
            return;
        }
        let mut state = shared.lock();
        match written {
            Ok(run) => {
                state.arrived += run.as_ref().map_or(0, |run| run.bytes);
                let mut runs = state.runs.to_vec();
                runs.extend(run.map(Arc::new));
                state.runs = Arc::new(runs);
                state.recent.written(rows, reads);
                state.sequence = sequence;
                state.frozen = None;
                // Unless somebody still reads it.
                state.spare = Arc::into_inner(buffer).map(|mut buffer| {
                    buffer.clear();
                    buffer
                });
                state.merge_failed = false;
            }
            Err(error) => {
                state.error = Some(error);
                state.write_failed = true;
            }
        }
        drop(state);
        shared.changed();
    }
}

/// Tells that there is no more to fetch, however that came about.
struct FetchEnd<'a>(&'a Shared);

impl Drop for FetchEnd<'_> {
    fn drop(&mut self) {
        self.0.lock().fetching = false;
        self.0.changed();
    }
}

/// The thread that reads what a store begins with into the system's cache: from front to end a disk gives some ten times as much as
/// by single rows, each of which waits for it. It ends with that.
fn fetch(shared: &Shared) {
    system::step_back(NICE_MERGE);
    let runs = shared.lock().runs.clone();
    let missing = || runs.iter().map(|run| run.missing()).sum::<u64>();
    if missing() == 0 {
        return;
    }
    let _turn = loop {
        if let Some(turn) = turn_of(&FETCHING) {
            break turn;
        }
        let state = shared.lock();
        if shared.stopped() {
            return;
        }
        drop(shared.wait_for(state, TURN_POLL));
    };
    let bytes = missing();
    if FETCHED.load(Ordering::Relaxed).saturating_add(bytes) > system::available() / FETCH_DIVISOR {
        return;
    }
    FETCHED.fetch_add(bytes, Ordering::Relaxed);
    shared.lock().fetched = bytes;
    for run in runs.iter() {
        run.fetch(|| !shared.stopped() && shared.lock().runs.iter().any(|now| now.name == run.name));
    }
}

/// The thread that merges runs and makes filters.
fn tidy(shared: &Shared) {
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

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array};
    use arrow::datatypes::DataType;

    use super::super::{ColdOptions, ColdStore};
    use super::*;

    /// A store that waits for merges never waits in vain, and one that is in order is left alone.
    #[test]
    fn what_is_merged() {
        let (small, large) = (1 << 10, 8 << 20);
        let eight = |sizes: &[u64]| tiered(sizes, FAN_IN);
        assert_eq!(eight(&[]), None);
        assert_eq!(eight(&[large * 64, large * 8, large, large, small, small]), None);
        assert_eq!(eight(&[&[large * 64][..], &[large; 8]].concat()), Some(1..9));
        assert_eq!(eight(&[&[large][..], &[small; 7], &[large]].concat()), None);
        assert_eq!(tiered(&[large; 31], FAN_IN_NEW), None);
        assert_eq!(tiered(&[large; 40], FAN_IN_NEW), Some(0..32));
        for (behind, fan_in) in (0..RUNS_MAX).flat_map(|behind| [(behind, FAN_IN), (behind, FAN_IN_NEW)]) {
            // Checkpoints' runs, and behind them full buffers.
            let sizes = [vec![small; RUNS_MAX - behind], vec![large; behind]].concat();
            let range = tiered(&sizes, fan_in).unwrap_or_else(|| panic!("{behind} full buffers"));
            assert!(range.len() > 1 && range.len() <= MERGE_MAX && range.end <= sizes.len(), "{range:?}");
        }
    }

    /// While somebody merges much, no other large merge is begun, but a small one, and one of many runs.
    #[test]
    fn large_merges_take_turns() {
        let dir = tempfile::tempdir().unwrap();
        let options = ColdOptions { directory: dir.path().to_path_buf(), name: "op".into(), run_bytes: 1 << 20, memory: usize::MAX };
        let mut store = ColdStore::create(options, vec![DataType::Int64], 1).unwrap();
        store.put(&[1, 2, 3], &[Arc::new(Int64Array::from(vec![1, 2, 3])) as ArrayRef]).unwrap();
        let files = store.files().unwrap();
        let file = files.iter().find(|file| file.name.ends_with(".run")).unwrap();
        let place = || Place::new(dir.path().to_path_buf(), "op".into(), &[DataType::Int64], 1).unwrap();
        let runs = |count: usize, bytes: u64| {
            let run = || {
                let mut run = Run::open(&place(), file.path.clone(), file.name.clone(), None).unwrap();
                run.bytes = bytes;
                Arc::new(run)
            };
            Shared::new(place(), (0..count).map(|_| run()).collect(), Vec::new())
        };
        let begins = |shared: &Shared, turn: &mut Turn| matches!(shared.lock().task(&shared.place, turn), Some(Task::Merge { .. }));
        let (large, small, many) = (runs(FAN_IN, LARGE_BYTES), runs(FAN_IN, 1 << 10), runs(RUNS_PILED, LARGE_BYTES));
        let mut turn = Turn::default();
        assert!(begins(&large, &mut turn) && turn.held.is_some());
        let mut other = Turn::default();
        assert!(!begins(&runs(FAN_IN, LARGE_BYTES), &mut other) && other.missed);
        for shared in [&small, &many] {
            let mut other = Turn::default();
            assert!(begins(shared, &mut other) && !other.missed);
        }
        drop(turn);
        assert!(begins(&runs(FAN_IN, LARGE_BYTES), &mut other) && other.held.is_some());
        // What a store begins with is read before, unless many runs have come meanwhile.
        [&small, &many].iter().for_each(|shared| shared.lock().fetching = true);
        assert!(!begins(&small, &mut other) && begins(&many, &mut other));
    }

    /// It does not wait for its turn to fetch, and takes nothing that it did not use.
    #[test]
    fn a_store_ends_while_another_fetches() {
        let dir = tempfile::tempdir().unwrap();
        let options = ColdOptions { directory: dir.path().to_path_buf(), name: "op".into(), run_bytes: 1 << 20, memory: usize::MAX };
        let mut store = ColdStore::create(options.clone(), vec![DataType::Int64], 1).unwrap();
        let keys: Vec<u64> = (0..10_000).collect();
        store.put(&keys, &[Arc::new(Int64Array::from_iter_values(0..10_000)) as ArrayRef]).unwrap();
        let files = store.files().unwrap();
        drop(store);
        for file in &files {
            advise(&std::fs::File::open(&file.path).unwrap(), 0, 0, Advice::Done);
        }
        let turn = FETCHING.lock().unwrap();
        let store = ColdStore::open(options, vec![DataType::Int64], 1, files, |_| true).unwrap();
        if store.shared.lock().runs.iter().all(|run| run.missing() == 0) {
            return println!("not looked at: the system does not let go of what it holds of a file, or does not say so");
        }
        assert!(store.shared.lock().fetching);
        let (ended, end) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            drop(store);
            let _ = ended.send(());
        });
        end.recv_timeout(Duration::from_secs(60)).expect("it ends");
        drop(turn);
    }

    /// A merge that can wait rests for a multiple of what it worked, but not if there is a hurry, nor when the store ends.
    #[test]
    fn merges_rest() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Shared::new(Place::new(dir.path().to_path_buf(), "op".into(), &[DataType::Int64], 1).unwrap(), Vec::new(), Vec::new());
        let (pace, before) = (shared.pace(), system::processor_time().expect("the system tells"));
        while system::processor_time().unwrap() < before + Duration::from_millis(10) {}
        let due = pace.due();
        assert!(due >= Duration::from_millis(10) * REST);
        shared.lock().hurried_from = 1;
        let before = Instant::now();
        shared.rest(due);
        assert!(before.elapsed() >= due);
        // The test would last for hours.
        let hour = Duration::from_secs(3600);
        shared.lock().hurried_from = 0;
        shared.rest(hour);
        shared.lock().hurried_from = 1;
        shared.end();
        shared.rest(hour);
    }

    #[test]
    fn merges_that_fall_behind_do_not_rest() {
        let mut pace = Pace { begun: None, arrived: 1 << 40, read: 0 };
        let keeps_up = |pace: &Pace, come: u64| pace.keeps_up((1 << 40) + come);
        assert!(keeps_up(&pace, COMING_BYTES / COMING_TIMES) && !keeps_up(&pace, COMING_BYTES / COMING_TIMES + 1));
        pace.read = 4 << 30;
        assert!(keeps_up(&pace, 1 << 30) && !keeps_up(&pace, 2 << 30));
    }

    #[test]
    fn reads_are_noticed_and_forgotten() {
        let mut recent = Recent::default();
        assert!(!recent.is_new(), "nothing is known");
        recent.written(100_000, 1_000);
        assert!(recent.is_new());
        recent.written(100_000, 101_000);
        assert!(!recent.is_new());
        (0..100).for_each(|_| recent.written(100_000, 101_000));
        assert!(recent.is_new());
    }
}
