//! A worker's state at its start and at checkpoints: each worker takes back its own operators' state, all
//! workers at once, and writes what has left memory in pieces between blocks.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::BooleanArray;
use arrow::compute::filter_record_batch;
use arrow::error::ArrowError;
use tidemill_block::clock;
use tidemill_operator::lookup::WAITING;
use tidemill_operator::{MemoryShare, SnapshotFiles, SpillPlace};
use tidemill_state::checkpoint::OperatorState;
use tidemill_state::runs::{HashRange, StateRuns};
use tidemill_state::{StateTable, hash};

use super::{Body, Instance, Worker};
use crate::JobError;

/// So many times as long as on the state of a checkpoint a worker is at its rows, while there are some. A block may take a quarter of
/// what a piece of state takes: turn by turn the rows of a second came up to 130 ms late.
const ROWS_TO_STATE: u64 = 3;

/// What the operators of a job begin with.
#[derive(Default)]
pub(crate) struct Saved {
    /// Every operator's tables of the restored checkpoint, by state id.
    pub tables: HashMap<String, Vec<StateTable>>,
    /// Its files of state that had left memory, likewise.
    pub runs: BTreeMap<String, Vec<StateRuns>>,
    /// Where state goes that does not fit in memory, if it may go anywhere.
    pub local: Option<PathBuf>,
    /// What an operator that uses this may keep in memory.
    pub share: Option<Arc<MemoryShare>>,
    /// The worker that reads each split, by what stands for the split in state.
    pub places: HashMap<u64, usize>,
}

impl Saved {
    /// The rows of a table that belong to a shard. Rows that wait for a look-up go where their split is read
    /// now, so that no later row of it overtakes them.
    fn of_shard(&self, table: &StateTable, shard: usize, shards: usize) -> Result<StateTable, ArrowError> {
        if table.name != WAITING || shards == 1 {
            return table.of_shard(shard, shards);
        }
        let place = |hash: &u64| self.places.get(hash).copied().filter(|p| *p < shards);
        let mask: BooleanArray =
            table.hashes().iter().map(|h| Some(place(h).unwrap_or_else(|| hash::shard(*h, shards)) == shard)).collect();
        Ok(StateTable { name: table.name.clone(), batch: filter_record_batch(&table.batch, &mask)? })
    }
}

impl Worker {
    /// Gives the operators what the checkpoint has for this shard.
    pub(super) fn restore(&mut self) -> Result<(), JobError> {
        let Some(saved) = self.saved.take() else { return Ok(()) };
        let shared = self.shared.clone();
        for (index, node) in shared.graph.nodes.iter().enumerate() {
            let Some(Instance { body: Body::Operator(operator), .. }) = &mut self.nodes[index] else { continue };
            let shards = if node.single { 1 } else { shared.shards };
            let failed = |e: &dyn std::fmt::Display| JobError::failed(format!("restoring the state of {}: {e}", node.name));
            let hashes = HashRange::of_shard(self.shard, shards);
            if let Some(local) = saved.local.as_ref().filter(|_| operator.spills()) {
                let name: String =
                    node.name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
                operator.spill_to(SpillPlace {
                    directory: local.join(format!("{index}-{}", self.shard)),
                    name: format!("{name}-{}-{index}-{}", shared.run_id, self.shard),
                    hashes,
                    share: saved.share.clone(),
                    durable: shared.durable,
                });
            }
            if let Some(runs) = saved.runs.get(&node.id) {
                let mine = runs.iter().filter(|runs| runs.hashes.overlaps(hashes)).cloned().collect();
                operator.restore_files(mine).map_err(|e| failed(&e))?;
            }
            if let Some(tables) = saved.tables.get(&node.id) {
                let mine = tables.iter().map(|t| saved.of_shard(t, self.shard, shards)).collect::<Result<Vec<_>, _>>();
                let mine = mine.map_err(JobError::failed)?;
                operator.restore(mine).map_err(|e| failed(&e))?;
            }
        }
        Ok(())
    }

    /// Goes on with files that a checkpoint waits for; whether there was anything to do but to wait for a disk. If the worker is `busy`
    /// with rows, not before these had their part of the time.
    pub(super) fn write_state(&mut self, busy: bool) -> Result<bool, JobError> {
        if self.writing.is_empty() {
            return Ok(false);
        }
        let begin = clock::now_ns();
        if busy && begin < self.writes_from_ns {
            return Ok(false);
        }
        let mut worked = false;
        for index in std::mem::take(&mut self.writing) {
            let Some(Instance { body: Body::Operator(operator), .. }) = &mut self.nodes[index] else { continue };
            match operator.snapshot_files() {
                Ok(SnapshotFiles::Waiting) => self.writing.push(index),
                Ok(SnapshotFiles::Writing) => {
                    worked = true;
                    self.writing.push(index);
                }
                Ok(SnapshotFiles::Written(runs)) => {
                    worked = true;
                    self.saved_state(index, Vec::new(), runs);
                }
                Err(e) => return Err(self.failed(index, e)),
            }
        }
        self.send_if_complete();
        let end = clock::now_ns();
        self.writes_from_ns = end + ROWS_TO_STATE * end.saturating_sub(begin);
        Ok(worked)
    }

    /// Adds an operator's state to the worker's part of the checkpoint.
    pub(super) fn saved_state(&mut self, index: usize, tables: Vec<StateTable>, runs: Vec<StateRuns>) {
        if !tables.is_empty() || !runs.is_empty() {
            let operator = self.shared.graph.nodes[index].id.clone();
            let snapshot = self.snapshot.as_mut().expect("state is written for a checkpoint that has begun");
            snapshot.operators.push(OperatorState { operator, tables, runs });
        }
    }

    /// Sends the worker's part of the checkpoint if every node has passed the barrier and all is written.
    pub(super) fn send_if_complete(&mut self) {
        if self.remaining_barriers == 0 && self.writing.is_empty() {
            self.send_snapshot();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, UInt32Array};
    use tidemill_operator::lookup::split_hash;

    use super::*;

    #[test]
    fn rows_that_wait_go_where_their_split_is_read() {
        // Splits 0 to 7 are read in turn, 8 by nobody any more.
        let saved = Saved { places: (0..8).map(|p| (split_hash(p), p as usize % 3)).collect(), ..Saved::default() };
        let splits: ArrayRef = Arc::new(UInt32Array::from_iter_values(0..9));
        let table = StateTable::keyed(WAITING, (0..9).map(split_hash).collect(), vec![splits]).unwrap();
        let mut gone = 0;
        for shard in 0..3 {
            let mine = saved.of_shard(&table, shard, 3).unwrap();
            let known: Vec<u64> = mine.hashes().iter().copied().filter(|h| *h != split_hash(8)).collect();
            assert_eq!(known, (0..8).filter(|p| *p as usize % 3 == shard).map(split_hash).collect::<Vec<_>>());
            gone += mine.hashes().len() - known.len();
        }
        assert_eq!(gone, 1, "somebody has it");
        assert_eq!(saved.of_shard(&table, 0, 1).unwrap().hashes().len(), 9);
    }
}
