//! Queues between workers, what goes into which, and the signals that wake them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use arrow::array::UInt32Array;
use datafusion_common::DataFusionError;
use tidemill_block::Block;
use tidemill_operator::OperatorError;
use tidemill_operator::map::Expr;
use tidemill_state::hash;

/// What flows along an edge.
#[derive(Clone, Debug)]
pub(crate) enum Element {
    Block(Block),
    /// Event time has come so far, ms.
    Watermark(i64),
    /// Nothing comes at the moment (true), so do not wait for this input's watermark.
    Idle(bool),
    /// A checkpoint passes.
    Barrier(u64),
}

/// Bytes that may wait in one queue before its sender holds back: some tens of full blocks.
pub(crate) const QUEUE_BYTES_MAX: usize = 8 << 20;

/// The queue from one worker to another along one edge.
#[derive(Default)]
pub(crate) struct Queue {
    elements: Mutex<VecDeque<Element>>,
    waiting: AtomicUsize,
    bytes: AtomicUsize,
    /// The receiver does not read for now.
    held: AtomicBool,
}

impl Queue {
    pub fn push(&self, element: Element) {
        if let Element::Block(block) = &element {
            self.bytes.fetch_add(block.memory(), Ordering::Relaxed);
        }
        self.elements.lock().expect("no panic while held").push_back(element);
        self.waiting.fetch_add(1, Ordering::Release);
    }

    pub fn pop(&self) -> Option<Element> {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return None;
        }
        let element = self.elements.lock().expect("no panic while held").pop_front()?;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        if let Element::Block(block) = &element {
            self.bytes.fetch_sub(block.memory(), Ordering::Relaxed);
        }
        Some(element)
    }

    pub fn has_room(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) < QUEUE_BYTES_MAX && !self.held.load(Ordering::Relaxed)
    }

    /// Says whether the sender shall hold back whatever room there is.
    pub fn hold(&self, held: bool) {
        self.held.store(held, Ordering::Relaxed);
    }
}

/// Wakes a parked worker.
#[derive(Default)]
pub(crate) struct Signal {
    thread: OnceLock<Thread>,
    raised: AtomicBool,
}

impl Signal {
    /// Called once by the worker itself.
    pub fn adopt(&self) {
        let _ = self.thread.set(std::thread::current());
    }

    pub fn raise(&self) {
        if !self.raised.swap(true, Ordering::AcqRel)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Sleeps until raised, at most `timeout`.
    pub fn wait(&self, timeout: Duration) {
        if !self.raised.swap(false, Ordering::AcqRel) {
            std::thread::park_timeout(timeout);
            self.raised.store(false, Ordering::Release);
        }
    }
}

/// Divides rows among shards by the hash of their key.
pub(crate) fn scatter(block: &Block, keys: &[Expr], pending: &mut [Vec<Block>]) -> Result<(), OperatorError> {
    let rows = block.rows();
    let columns = keys.iter().map(|k| k.evaluate(&block.batch)?.into_array(rows)).collect::<Result<Vec<_>, DataFusionError>>()?;
    let mut hashes = Vec::new();
    hash::rows(&columns, rows, &mut hashes)?;
    let mut picks: Vec<Vec<u32>> = vec![Vec::with_capacity(rows / pending.len() + 16); pending.len()];
    for (row, hash) in hashes.iter().enumerate() {
        picks[hash::shard(*hash, pending.len())].push(row as u32);
    }
    for (shard, picked) in picks.into_iter().enumerate() {
        if picked.len() == rows {
            pending[shard].push(block.clone().in_no_partition());
        } else if !picked.is_empty() {
            pending[shard].push(block.take(&UInt32Array::from(picked))?.in_no_partition());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use datafusion_physical_expr::expressions::Column;

    use super::*;

    /// Rows of a split that were divided by a key belong to the key's shard, also after a restart.
    #[test]
    fn rows_divided_by_a_key_are_of_no_split() {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..100));
        let block = Block::inserts(RecordBatch::try_from_iter([("k", column)]).unwrap(), 0).in_partition(5);
        let key: Expr = Arc::new(Column::new("k", 0));
        for shards in [1, 3] {
            let mut pending = vec![Vec::new(); shards];
            scatter(&block, std::slice::from_ref(&key), &mut pending).unwrap();
            let parts: Vec<&Block> = pending.iter().flatten().collect();
            assert_eq!(parts.iter().map(|b| b.rows()).sum::<usize>(), 100);
            assert!(parts.iter().all(|b| b.partition().is_none()));
        }
    }
}
