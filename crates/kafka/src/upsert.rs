//! The sink of `upsert-kafka`: the newest state of each key, deletions as null values. With a buffer, of
//! several changes of one key only the last is written.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arrow::array::{BooleanArray, UInt32Array};
use arrow::datatypes::SchemaRef;
use tidemill_block::{Block, RowKind};
use tidemill_connect::{Committable, ConnectError, Writer, WriterStats};

use crate::sink::MessageWriter;

/// Changes kept where only a time bounds the buffer.
const ROWS_MAX: usize = 1 << 20;

/// How changes are kept.
#[derive(Clone, Copy, Debug)]
pub struct Buffering {
    /// How many at most; 0 for as many as time allows.
    pub rows: usize,
    /// How long at most; zero for as long as their number allows.
    pub interval: Duration,
}

impl Buffering {
    /// Whether any are kept.
    fn keeps(self) -> bool {
        self.rows > 0 || !self.interval.is_zero()
    }
}

/// Writes upserts.
pub struct UpsertWriter {
    shared: Arc<Shared>,
    buffering: Buffering,
    timer: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    /// Tells the timer that the writer is gone.
    gone: Condvar,
}

struct State {
    writer: MessageWriter,
    schema: SchemaRef,
    blocks: Vec<Block>,
    rows: usize,
    /// When the oldest of them came.
    since: Option<Instant>,
    /// What the timer met with.
    failure: Option<ConnectError>,
    over: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UpsertWriter {
    /// A writer over that of messages.
    ///
    /// # Errors
    /// No thread for the interval.
    pub fn new(writer: MessageWriter, buffering: Buffering, schema: SchemaRef) -> Result<Self, ConnectError> {
        let state = State { writer, schema, blocks: Vec::new(), rows: 0, since: None, failure: None, over: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), gone: Condvar::new() });
        let timer = if buffering.interval.is_zero() {
            None
        } else {
            let (shared, interval) = (shared.clone(), buffering.interval);
            let thread = std::thread::Builder::new().name("kafka-upsert".into()).spawn(move || watch(&shared, interval));
            Some(thread.map_err(|e| ConnectError::new(format!("starting a thread for Kafka: {e}")))?)
        };
        Ok(UpsertWriter { shared, buffering, timer })
    }

    /// The state, unless the timer has met with an error.
    fn state(&self) -> Result<MutexGuard<'_, State>, ConnectError> {
        let mut state = self.shared.state();
        match state.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(state),
        }
    }
}

/// Writes what has been kept for long enough, also where nothing more comes.
fn watch(shared: &Shared, interval: Duration) {
    let mut state = shared.state();
    while !state.over {
        let wait = state.since.map_or(interval, |since| interval.saturating_sub(since.elapsed()));
        if wait.is_zero() {
            if let Err(e) = state.empty() {
                state.failure = Some(e);
                return;
            }
            continue;
        }
        state = shared.gone.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
    }
}

impl State {
    /// Writes what is kept.
    fn empty(&mut self) -> Result<(), ConnectError> {
        self.since = None;
        self.rows = 0;
        if self.blocks.is_empty() {
            return Ok(());
        }
        let wrong = |e: arrow::error::ArrowError| ConnectError::new(format!("putting changes together: {e}"));
        let all = Block::concat(&self.schema, &std::mem::take(&mut self.blocks)).map_err(wrong)?;
        let last = newest(self.writer.keys(&all)?.iter());
        let all = if last.len() == all.rows() { all } else { all.take(&UInt32Array::from(last)).map_err(wrong)? };
        self.writer.write_upserts(&all)
    }
}

/// The row of the last change of each key, in order.
fn newest<'a>(keys: impl Iterator<Item = &'a [u8]>) -> Vec<u32> {
    let mut last: HashMap<&[u8], u32> = HashMap::new();
    for (row, key) in keys.enumerate() {
        last.insert(key, row as u32);
    }
    let mut rows: Vec<u32> = last.into_values().collect();
    rows.sort_unstable();
    rows
}

/// Without the content that an update replaces: its key's newest content follows.
fn without_before(block: &Block) -> Result<Block, ConnectError> {
    if !block.kinds.as_ref().is_some_and(|kinds| kinds.contains(&RowKind::UpdateBefore)) {
        return Ok(block.clone());
    }
    let mask: BooleanArray = (0..block.rows()).map(|row| Some(block.kind(row) != RowKind::UpdateBefore)).collect();
    block.filter(&mask).map_err(|e| ConnectError::new(format!("making messages of rows: {e}")))
}

impl Writer for UpsertWriter {
    fn write(&mut self, block: &Block) -> Result<(), ConnectError> {
        let block = without_before(block)?;
        let mut state = self.state()?;
        if !self.buffering.keeps() {
            return state.writer.write_upserts(&block);
        }
        if block.rows() == 0 {
            return Ok(());
        }
        state.since.get_or_insert_with(Instant::now);
        state.rows += block.rows();
        state.blocks.push(block);
        let most = if self.buffering.rows == 0 { ROWS_MAX } else { self.buffering.rows };
        if state.rows >= most { state.empty() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), ConnectError> {
        self.state()?.writer.flush()
    }

    fn prepare(&mut self, last: bool) -> Result<Vec<Committable>, ConnectError> {
        let mut state = self.state()?;
        state.empty()?;
        state.writer.prepare(last)
    }

    fn stats(&self) -> WriterStats {
        self.shared.state().writer.stats()
    }
}

impl Drop for UpsertWriter {
    fn drop(&mut self) {
        self.shared.state().over = true;
        self.shared.gone.notify_all();
        if let Some(timer) = self.timer.take() {
            let _ = timer.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_change_of_a_key_counts() {
        let check = |keys: &[&str], expect: &[u32]| assert_eq!(newest(keys.iter().map(|k| k.as_bytes())), expect, "{keys:?}");
        check(&[], &[]);
        check(&["a", "b", "a", "c", "b"], &[2, 3, 4]);
        check(&["a", "b"], &[0, 1]);
    }
}
