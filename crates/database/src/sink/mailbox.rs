//! Rows on their way to a connection: filled by the writer, emptied by the thread that owns the connection.
//!
//! While a batch is being written the next one gathers here, so batches grow with the load by
//! themselves: at a low rate a row waits for nobody, at a high one batches are as large as the bounds
//! allow. Who wants other batches says so with options.
//!
//! Where rows come much faster than they can be written, and so many are there that writing them takes long anyway,
//! upserts wait a little for more (a [fraction](GATHER_SHARE) of that time): sorted among more rows, each costs fewer
//! pages of the table.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidemill_block::Block;
use tidemill_connect::{Committable, ConnectError};

use super::batch;

/// How often who waits looks whether the job is being stopped.
pub(super) const CANCEL_CHECK: Duration = Duration::from_millis(50);
/// A batch that has been under way for so long is worth a word.
const SLOW: Duration = Duration::from_secs(30);
/// Rows of a batch when only bytes bound it: tiny rows have overheads that bytes do not show.
const ROWS_MAX: usize = 1 << 21;

/// Bytes from which on a batch may wait for more: enough for a second of writing or more, so that a job that keeps up
/// with its source never does.
const GATHER_BYTES: usize = 16 << 20;
/// It waits for such a part of the time that writing it will take, and no longer than [`GATHER_MAX`].
const GATHER_SHARE: f64 = 0.125;
const GATHER_MAX: Duration = Duration::from_secs(2);
/// Rows have come so many times as fast as they are written.
const GATHER_TIMES: f64 = 2.0;
/// Nothing more comes if nothing has for so long.
const GATHER_QUIET: Duration = Duration::from_millis(50);
/// How often who waits for more looks.
const GATHER_LOOK: Duration = Duration::from_millis(10);
/// Bytes of a batch from which on it tells how fast rows are written: of a smaller one most of the time is the commit's.
const PACE_BYTES: usize = 64 << 10;

/// Where checkpoints wait for what is written, a batch is no larger than what is written in so many seconds, or than so
/// many bytes if that is more.
const AWAITED_S: f64 = 10.0;
const AWAITED_BYTES: usize = 64 << 20;
/// And so many times as large as the one that told how fast, at the most: of a small one pages are in memory that a large one
/// would have to read.
const AWAITED_TIMES: usize = 2;

/// When rows are handed on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The most rows of a batch, if the user says.
    pub rows: Option<usize>,
    /// The most bytes of a batch.
    pub bytes: usize,
    /// How long rows wait for more, if the user says.
    pub interval: Option<Duration>,
    /// Large batches wait for more, unless the user says otherwise.
    pub gather: bool,
    /// Checkpoints wait for what is written.
    pub awaited: bool,
    /// Batches that have more rows have a multiple of so many, and the rest waits for the next one, unless the user says
    /// otherwise.
    pub row_group: Option<usize>,
}

/// Rows and questions for a connection. See the module.
pub(super) struct Mailbox {
    state: Mutex<State>,
    changed: Condvar,
    limits: Limits,
    /// The table's name in messages.
    owner: String,
}

#[derive(Default)]
struct State {
    blocks: Vec<Block>,
    rows: usize,
    bytes: usize,
    /// When the first of the rows came, and the last.
    since: Option<Instant>,
    newest: Option<Instant>,
    /// The batch that is being written: since when, and its bytes.
    written: Option<(Instant, usize)>,
    /// Since when the connection has nothing to do.
    idle: Option<Instant>,
    /// How fast the newest batch was written that was large enough to tell, bytes a second.
    pace: Option<f64>,
    /// The bytes of that batch.
    paced: usize,
    /// What is there is to be handed on, whatever the limits say.
    flush: bool,
    /// Who waits for everything to be safe.
    prepare: Option<Sender<Vec<Committable>>>,
    closed: bool,
    /// It was said that a batch takes long.
    told: bool,
    /// Why nobody takes anything any more.
    failure: Option<String>,
}

impl State {
    /// Whether a batch takes very long, which nobody was told of yet.
    fn is_slow(&self) -> bool {
        !self.told && self.failure.is_none() && self.written.is_some_and(|(since, _)| since.elapsed() >= SLOW)
    }

    /// Whether the rows that are there had better wait for more.
    fn gathers(&self, now: Instant) -> bool {
        let (Some(pace), Some(since), Some(newest), Some(idle)) = (self.pace, self.since, self.newest, self.idle) else { return false };
        let bytes = self.bytes as f64;
        let wait = Duration::from_secs_f64((bytes / pace * GATHER_SHARE).min(GATHER_MAX.as_secs_f64()));
        let arriving = bytes / now.saturating_duration_since(since).as_secs_f64().max(1e-6);
        self.bytes >= GATHER_BYTES
            && arriving > GATHER_TIMES * pace
            && now.saturating_duration_since(newest) < GATHER_QUIET
            && now.saturating_duration_since(idle) < wait
    }
}

/// What a connection is to do.
pub(super) struct Work {
    /// Rows to write; may be none.
    pub blocks: Vec<Block>,
    /// Everything that came before is to be made safe, and this is who waits for it.
    pub prepare: Option<Sender<Vec<Committable>>>,
}

impl Mailbox {
    pub fn new(limits: Limits) -> Self {
        Mailbox { state: Mutex::default(), changed: Condvar::new(), limits, owner: "the table".into() }
    }

    /// The same for a table of this name in messages.
    #[must_use]
    pub fn of(mut self, owner: &str) -> Self {
        self.owner = owner.into();
        self
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says, once, that a batch takes very long: for a lock a database may wait without an end, and without a word.
    pub fn tell_if_slow(&self) {
        let mut state = self.lock();
        if state.is_slow() {
            state.told = true;
            drop(state);
            tidemill_connect::notice(&format!(
                "{}: a batch of rows has been under way for {} s; perhaps another session has locked some of the table's, or the \
                 server has too much to do",
                self.owner,
                SLOW.as_secs()
            ));
        }
    }

    /// The most bytes of the batch that gathers.
    fn bytes_max(&self, state: &State) -> usize {
        let told = || ((state.pace.unwrap_or(0.0) * AWAITED_S) as usize).min(state.paced.saturating_mul(AWAITED_TIMES));
        let soon = || AWAITED_BYTES.max(told());
        if self.limits.awaited { self.limits.bytes.min(soon()) } else { self.limits.bytes }
    }

    /// Gives rows to the connection; waits while there is no room.
    ///
    /// # Errors
    /// The connection has failed, or the job is being stopped.
    pub fn push(&self, block: Block, cancelled: &AtomicBool) -> Result<(), ConnectError> {
        let bytes = batch::bytes(&block.batch);
        let rows_max = self.limits.rows.unwrap_or(ROWS_MAX);
        let mut state = self.lock();
        while state.failure.is_none() && state.rows > 0 && (state.bytes + bytes > self.bytes_max(&state) || state.rows >= rows_max) {
            if cancelled.load(Ordering::Relaxed) {
                return Err(ConnectError::new("the job is being stopped"));
            }
            if state.rows < rows_max && !state.flush {
                // It is full by its bytes: who waits for a number of rows or a time would wait for this one too.
                state.flush = true;
                self.changed.notify_all();
            }
            drop(self.changed.wait_timeout(state, CANCEL_CHECK).unwrap_or_else(PoisonError::into_inner));
            self.tell_if_slow();
            state = self.lock();
        }
        if let Some(failure) = &state.failure {
            return Err(ConnectError::new(failure.clone()));
        }
        let now = Instant::now();
        state.since.get_or_insert(now);
        state.newest = Some(now);
        state.rows += block.rows();
        state.bytes += bytes;
        state.blocks.push(block);
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// What is there shall be handed on.
    ///
    /// # Errors
    /// The connection has failed.
    pub fn flush(&self) -> Result<(), ConnectError> {
        let mut state = self.lock();
        state.flush |= state.rows > 0;
        let failure = state.failure.clone();
        drop(state);
        self.changed.notify_all();
        failure.map_or(Ok(()), |failure| Err(ConnectError::new(failure)))
    }

    /// Everything shall be made safe; `done` is told, or dropped if that fails.
    pub fn prepare(&self, done: Sender<Vec<Committable>>) {
        let mut state = self.lock();
        if state.failure.is_none() {
            state.prepare = Some(done);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Why the connection does nothing any more.
    pub fn failure(&self) -> ConnectError {
        let reason = self.lock().failure.clone();
        ConnectError::new(reason.unwrap_or_else(|| "internal error: the thread of a connection has ended; its message is above".into()))
    }

    /// Nothing follows, and what is there is not wanted any more.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// For the connection: it has failed.
    pub fn fail(&self, reason: String) {
        let mut state = self.lock();
        state.failure.get_or_insert(reason);
        state.blocks = Vec::new();
        state.prepare = None;
        drop(state);
        self.changed.notify_all();
    }

    /// For the connection: what is to be done next. Waits for it; `None` at the end.
    pub fn take(&self) -> Option<Work> {
        let mut state = self.lock();
        let idle = Instant::now();
        state.idle = Some(idle);
        if let Some((since, bytes)) = state.written.take()
            && bytes >= PACE_BYTES
        {
            state.pace = Some(bytes as f64 / (idle - since).as_secs_f64().max(1e-6));
            state.paced = bytes;
        }
        loop {
            if state.closed || state.failure.is_some() {
                return None;
            }
            if let Some(work) = self.due(&mut state) {
                drop(state);
                self.changed.notify_all();
                return Some(work);
            }
            let patience = match (self.limits.interval, state.since) {
                (Some(interval), Some(since)) => interval.saturating_sub(since.elapsed()).max(Duration::from_millis(1)),
                (None, Some(_)) if self.limits.gather && self.limits.rows.is_none() => GATHER_LOOK,
                _ => Duration::from_secs(3600),
            };
            state = self.changed.wait_timeout(state, patience).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn due(&self, state: &mut State) -> Option<Work> {
        if state.rows == 0 {
            return state.prepare.take().map(|done| Work { blocks: Vec::new(), prepare: Some(done) });
        }
        let limits = &self.limits;
        let full = state.rows >= limits.rows.unwrap_or(ROWS_MAX) || state.bytes >= self.bytes_max(state);
        let aged = match (limits.rows, limits.interval) {
            (_, Some(interval)) => state.since.is_some_and(|since| since.elapsed() >= interval),
            (None, None) => !(limits.gather && state.gathers(Instant::now())),
            (Some(_), None) => false,
        };
        if !(full || aged || state.flush || state.prepare.is_some()) {
            return None;
        }
        let all_bytes = state.bytes;
        let mut blocks = std::mem::take(&mut state.blocks);
        let (mut rows, mut kept) = (0, Vec::new());
        let groups = || limits.row_group.map(|size| state.rows / size * size).filter(|rows| *rows > 0);
        let most = limits.rows.or_else(groups);
        if let Some(max) = most.filter(|max| *max < state.rows) {
            let all = std::mem::take(&mut blocks);
            for block in all {
                let room = (max - rows).min(block.rows());
                if room > 0 {
                    blocks.push(block.slice(0, room));
                    rows += room;
                }
                if room < block.rows() {
                    kept.push(block.slice(room, block.rows() - room));
                }
            }
        }
        state.rows = kept.iter().map(Block::rows).sum();
        state.bytes = kept.iter().map(|block| batch::bytes(&block.batch)).sum();
        state.blocks = kept;
        state.written = Some((Instant::now(), all_bytes - state.bytes.min(all_bytes)));
        if state.rows == 0 {
            state.flush = false;
            state.since = None;
        }
        let prepare = if state.rows == 0 { state.prepare.take() } else { None };
        Some(Work { blocks, prepare })
    }
}

#[cfg(test)]
mod tests;
