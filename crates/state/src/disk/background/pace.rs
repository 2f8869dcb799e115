//! When work goes on that can wait: it rests between its pieces, and what is large goes one after the other.

use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use super::{Growth, Shared, State};
use crate::disk::run::Run;
use crate::disk::system;

/// Merges of so many bytes are large. They go one after the other, whatever stores of the process they are for, unless runs have
/// piled up: two at once hold twice as much of the system's cache with what was read and what was written, and are hardly faster
/// where the disk or the number of processors is the bound.
pub(super) const LARGE_BYTES: u64 = 1 << 30;
/// Whose turn it is.
static LARGE: Mutex<()> = Mutex::new(());
/// Merges of so many bytes can wait, and so can the first filter of so many after a restart: they rest between pieces of work. To be
/// nice is not enough: where a group of processes, or a whole machine, has a quota of processor time, what is taken in spare moments
/// is what the flow then stands still for.
pub(super) const PACED_BYTES: u64 = 128 << 20;
/// They rest so many times as long as they work.
pub(super) const REST: u32 = 2;
/// They do not rest once so many runs have come since they began.
pub(super) const RUNS_WAITING: usize = 32;
/// Nor while so many times what has come since then is more than what they have read and `COMING_BYTES`: a row is merged some three
/// times, so merges that rest would fall behind, and rows be looked for in more runs.
pub(super) const COMING_TIMES: u64 = 4;
pub(super) const COMING_BYTES: u64 = 256 << 20;
/// They rest after so many bytes, or `STOP_ROWS`: work of a millisecond or two.
pub(super) const REST_BYTES: usize = 1 << 20;
/// How often a store whose turn it is not looks again.
pub(super) const TURN_POLL: Duration = Duration::from_millis(100);

/// The turn to merge much, while a thread has it.
#[derive(Default)]
pub(super) struct Turn {
    pub(super) held: Option<MutexGuard<'static, ()>>,
    /// It was somebody else's.
    pub(super) missed: bool,
}

impl Turn {
    /// Takes it; `false` if somebody else has it.
    pub(super) fn take(&mut self) -> bool {
        self.held = turn_of(&LARGE);
        self.missed = self.held.is_none();
        !self.missed
    }
}

/// A turn, unless somebody else has it. Who panicked while having it has left nothing behind.
pub(super) fn turn_of(turns: &'static Mutex<()>) -> Option<MutexGuard<'static, ()>> {
    match turns.try_lock() {
        Ok(turn) => Some(turn),
        Err(TryLockError::Poisoned(turn)) => Some(turn.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// How far work has come that can wait.
pub(super) struct Pace {
    /// Time of a processor that the thread had used after its last rest; none where the system does not tell.
    pub(super) begun: Option<Duration>,
    /// What had come when the work began, bytes.
    pub(super) arrived: u64,
    /// What was read since, bytes.
    pub(super) read: u64,
}

impl Pace {
    /// Whether it is fast enough for what has come until now.
    pub(super) fn keeps_up(&self, arrived: u64) -> bool {
        (arrived - self.arrived).saturating_mul(COMING_TIMES) <= self.read + COMING_BYTES
    }

    /// How long to rest now.
    pub(super) fn due(&self) -> Duration {
        let worked = self.begun.and_then(|begun| Some(system::processor_time()?.saturating_sub(begun)));
        worked.unwrap_or_default() * REST
    }
}

impl Shared {
    /// Rests for what was worked since the last rest, in which so many bytes were read; without a pace it does not.
    pub(super) fn rest_if_due(&self, pace: &mut Option<Pace>, bytes: u64) {
        let Some(pace) = pace else { return };
        pace.read += bytes;
        let arrived = self.lock().arrived;
        if pace.keeps_up(arrived) {
            self.rest(pace.due());
        }
        pace.begun = system::processor_time();
    }

    /// The pace of work that begins.
    pub(super) fn pace(&self) -> Pace {
        Pace { begun: system::processor_time(), arrived: self.lock().arrived, read: 0 }
    }

    /// Leaves the processor to others for so long, unless there is a hurry.
    pub(super) fn rest(&self, long: Duration) {
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
}

impl State {
    /// Whether work that could take its time must not: runs come faster than they are merged, or rows are looked for in all runs as
    /// long as there is no filter of the whole store, which waits for the work.
    pub(super) fn is_hurried(&self) -> bool {
        let awaited = self.filter.is_none() && matches!(self.growth, Growth::Wanted(_) | Growth::Scan(..));
        self.is_piled() || self.runs.len() >= self.hurried_from || awaited
    }
}

/// Bytes of all of these.
pub(super) fn bytes(runs: &[Arc<Run>]) -> u64 {
    runs.iter().map(|run| run.bytes).sum()
}

/// Whether to merge these is much work.
pub(super) fn is_large(runs: &[Arc<Run>]) -> bool {
    bytes(runs) >= LARGE_BYTES
}
