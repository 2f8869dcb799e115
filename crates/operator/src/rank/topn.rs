//! Top-N: the rows of each key whose rank is wanted, as a changelog.
//!
//! As in Flink, every row that changes the table emits what it changes: with the rank among the columns
//! an update of each rank that shifts, without it the row that leaves (`-D`) and the row that enters
//! (`+I`). Folded, a block emits the difference between before and after it; `RANK` and `DENSE_RANK`,
//! where one row may shift many others, always do.

use arrow::array::RecordBatch;
use tidemill_block::{Block, RowKind};
use tidemill_state::StateTable;

use super::board::{Board, Offer};
use super::{RankFunction, RankSpec, Ties};
use crate::{Operator, OperatorError, OperatorStats, Output};

/// Changes are passed on when there are so many, so that shifting ranks don't fill the memory.
const CHANGES_MAX: usize = 1 << 16;

/// Keeps the best rows of each key.
pub struct TopN {
    spec: RankSpec,
    fold: bool,
    update_before: bool,
    board: Board,
    changes: Changes,
    /// Slots that may have lost their last row in this block.
    emptied: Vec<u32>,
    touched: Touched,
    /// Scratch: rows whose ranks shift.
    shifted: Vec<u32>,
    arrival_ns: u64,
    /// Rows to be taken back that are not there.
    unknown: u64,
}

/// What is to be emitted: rows by number.
#[derive(Default)]
struct Changes {
    kinds: Vec<RowKind>,
    ids: Vec<u32>,
    ranks: Vec<u64>,
}

/// The slots that a block touches, and what of them was to be seen before it.
#[derive(Default)]
struct Touched {
    /// By slot: the number of the last block that touched it.
    marks: Vec<u64>,
    block: u64,
    /// Slots, and where their rows end among `before`.
    slots: Vec<(u32, usize)>,
    before: Vec<(u32, u64)>,
    after: Vec<(u32, u64)>,
    /// By number of a row: a mark, and its rank before.
    seen: Vec<(u64, u64)>,
    tick: u64,
}

impl Changes {
    fn push(&mut self, kind: RowKind, id: u32, rank: u64) {
        self.kinds.push(kind);
        self.ids.push(id);
        self.ranks.push(rank);
    }
}

impl TopN {
    /// Ranks by `spec`. `fold`: one change a rank and block. `update_before`: `-U` rows are wanted.
    ///
    /// # Errors
    /// A type that cannot be a key, sorted by, or kept.
    pub fn new(spec: RankSpec, fold: bool, update_before: bool) -> Result<Self, OperatorError> {
        assert!(0 < spec.from && spec.from <= spec.to, "ranks count from one");
        assert!(!spec.retracts || spec.ties == Ties::Contents, "a row that is taken back is known by its columns");
        Ok(TopN {
            board: Board::new(&spec)?,
            fold: fold || spec.function != RankFunction::RowNumber,
            update_before,
            changes: Changes::default(),
            emptied: Vec::new(),
            touched: Touched::default(),
            shifted: Vec::new(),
            arrival_ns: 0,
            unknown: 0,
            spec,
        })
    }

    /// The places whose rows are wanted, counted from 0.
    fn wanted(&self) -> (usize, usize) {
        ((self.spec.from - 1) as usize, self.spec.to as usize)
    }

    fn update(&mut self, was: u32, is: u32, rank: u64) {
        if !self.board.same(was, is) {
            if self.update_before {
                self.changes.push(RowKind::UpdateBefore, was, rank);
            }
            self.changes.push(RowKind::UpdateAfter, is, rank);
        }
    }

    /// A row has entered at `position`, or (`!enters`) is about to leave from there: the rows behind it shift.
    fn shifts(&mut self, slot: u32, position: usize, enters: bool) {
        let (first, end) = self.wanted();
        let from = position.max(first);
        let list = self.board.list(slot);
        if from >= list.len().min(end) {
            return;
        }
        if !self.spec.rank_column {
            let (here, beyond) = (list.nth(from).map(|item| item.id), list.nth(end).map(|item| item.id));
            let (leaves, comes) = if enters { (beyond, here) } else { (here, beyond) };
            self.exchange(leaves, comes);
            return;
        }
        let mut shifted = std::mem::take(&mut self.shifted);
        shifted.extend(list.rows_from(from).take(end - from + 1).map(|item| item.id));
        for (rank, pair) in (from as u64 + 1..).zip(shifted.windows(2)) {
            let (was, is) = if enters { (pair[1], pair[0]) } else { (pair[0], pair[1]) };
            self.update(was, is, rank);
        }
        if let Some(last) = shifted.last().filter(|_| shifted.len() <= end - from) {
            let kind = if enters { RowKind::Insert } else { RowKind::Delete };
            self.changes.push(kind, *last, (from + shifted.len()) as u64);
        }
        shifted.clear();
        self.shifted = shifted;
    }

    fn exchange(&mut self, leaves: Option<u32>, enters: Option<u32>) {
        if let (Some(a), Some(b)) = (leaves, enters)
            && self.board.same(a, b)
        {
            return;
        }
        if let Some(id) = leaves {
            self.changes.push(RowKind::Delete, id, 0);
        }
        if let Some(id) = enters {
            self.changes.push(RowKind::Insert, id, 0);
        }
    }

    /// Enters and takes out rows; each emits what it changes.
    fn each_row(&mut self, block: &Block, offer: &Offer, out: &mut Output) -> Result<(), OperatorError> {
        let (_, end) = self.wanted();
        for (n, row) in offer.candidates.iter().enumerate() {
            let slot = self.board.slot(*row);
            if block.kind(*row as usize).adds() {
                let Some(place) = self.board.enter(&self.spec, offer, n) else { continue };
                let position = self.board.list(slot).position(place, end);
                self.shifts(slot, position, true);
                if !self.spec.retracts {
                    self.board.cut(&self.spec, slot);
                }
            } else if let Some(place) = self.board.find(offer, n) {
                let position = self.board.list(slot).position(place, end);
                self.shifts(slot, position, false);
                self.board.remove(slot, place);
            } else {
                // It may never have been seen, where an operator upstream forgets.
                self.unknown += 1;
            }
            if self.board.list(slot).is_empty() {
                self.emptied.push(slot);
            }
            if self.changes.kinds.len() >= CHANGES_MAX {
                self.emit(offer, out)?;
            }
        }
        self.emit(offer, out)
    }

    /// Enters and takes out rows, and emits what all of them together change.
    fn folded(&mut self, block: &Block, offer: &Offer, out: &mut Output) -> Result<(), OperatorError> {
        let numbered = self.spec.function == RankFunction::RowNumber;
        self.touched.begin(self.board.table.capacity());
        for (n, row) in offer.candidates.iter().enumerate() {
            let slot = self.board.slot(*row);
            self.touched.touch(&self.board, &self.spec, slot);
            if block.kind(*row as usize).adds() {
                if self.board.enter(&self.spec, offer, n).is_some() && numbered && !self.spec.retracts {
                    self.board.cut(&self.spec, slot);
                }
            } else if let Some(place) = self.board.find(offer, n) {
                self.board.remove(slot, place);
            } else {
                self.unknown += 1;
            }
        }
        let mut touched = std::mem::take(&mut self.touched);
        let mut from = 0;
        for (slot, until) in touched.slots.drain(..) {
            touched.after.clear();
            self.board.wanted(&self.spec, slot, &mut touched.after);
            let before = &touched.before[from..until];
            if self.spec.rank_column && numbered {
                self.by_rank(before, &touched.after);
            } else {
                touched.seen.resize(self.board.capacity(), (0, 0));
                touched.tick += 2;
                self.by_row(before, &touched.after, &mut touched.seen, touched.tick);
            }
            from = until;
            if !self.spec.retracts && !numbered {
                self.board.cut(&self.spec, slot);
            }
            if self.board.list(slot).is_empty() {
                self.emptied.push(slot);
            }
            if self.changes.kinds.len() >= CHANGES_MAX {
                self.emit(offer, out)?;
            }
        }
        self.touched = touched;
        self.emit(offer, out)
    }

    /// The difference where each rank has one row.
    fn by_rank(&mut self, before: &[(u32, u64)], after: &[(u32, u64)]) {
        let common = before.len().min(after.len());
        for ((was, rank), (is, _)) in before.iter().zip(after) {
            self.update(*was, *is, *rank);
        }
        before[common..].iter().for_each(|(id, rank)| self.changes.push(RowKind::Delete, *id, *rank));
        after[common..].iter().for_each(|(id, rank)| self.changes.push(RowKind::Insert, *id, *rank));
    }

    /// The difference where a row may share its rank, or the rank is not shown. Marks rows before
    /// with `tick` - 1 and rows after with `tick`.
    fn by_row(&mut self, before: &[(u32, u64)], after: &[(u32, u64)], seen: &mut [(u64, u64)], tick: u64) {
        before.iter().for_each(|(id, rank)| seen[*id as usize] = (tick - 1, *rank));
        let entered = self.changes.kinds.len();
        for (id, rank) in after {
            let (mark, former) = seen[*id as usize];
            if mark != tick - 1 {
                self.changes.push(RowKind::Insert, *id, *rank);
            } else if self.spec.rank_column && former != *rank {
                if self.update_before {
                    self.changes.push(RowKind::UpdateBefore, *id, former);
                }
                self.changes.push(RowKind::UpdateAfter, *id, *rank);
            }
            seen[*id as usize].0 = tick;
        }
        let left = self.changes.kinds.len();
        before.iter().filter(|(id, _)| seen[*id as usize].0 != tick).for_each(|(id, rank)| self.changes.push(RowKind::Delete, *id, *rank));
        // Rows leave before others take their place.
        let count = self.changes.kinds.len() - left;
        self.changes.kinds[entered..].rotate_right(count);
        self.changes.ids[entered..].rotate_right(count);
        self.changes.ranks[entered..].rotate_right(count);
    }

    fn emit(&mut self, offer: &Offer, out: &mut Output) -> Result<(), OperatorError> {
        self.board.store(offer)?;
        let Changes { kinds, ids, ranks } = std::mem::take(&mut self.changes);
        if kinds.is_empty() {
            return Ok(());
        }
        let batch: RecordBatch = self.spec.batch(self.board.columns(&ids)?, &ranks)?;
        out.emit(if kinds.iter().all(|k| *k == RowKind::Insert) {
            Block::inserts(batch, self.arrival_ns)
        } else {
            Block::changelog(batch, kinds.into(), self.arrival_ns)
        });
        Ok(())
    }
}

impl Touched {
    fn begin(&mut self, slots: usize) {
        self.block += 1;
        self.marks.resize(slots.max(self.marks.len()), 0);
        self.slots.clear();
        self.before.clear();
    }

    /// Notes what is to be seen of a slot, if the block has not touched it before.
    fn touch(&mut self, board: &Board, spec: &RankSpec, slot: u32) {
        let mark = &mut self.marks[slot as usize];
        if *mark != self.block {
            *mark = self.block;
            board.wanted(spec, slot, &mut self.before);
            self.slots.push((slot, self.before.len()));
        }
    }
}

impl Operator for TopN {
    fn name(&self) -> &'static str {
        "TopN"
    }

    fn on_block(&mut self, _input: usize, block: Block, out: &mut Output) -> Result<(), OperatorError> {
        if block.kinds.is_some() && !self.spec.retracts {
            return Err(OperatorError::new("internal error: a ranking of new rows only got an update"));
        }
        self.arrival_ns = block.arrival_ns;
        let offer = self.board.offer(&self.spec, &block)?;
        // What a single row changes it says itself: with blocks of one row, comparing all that is to be
        // seen before and after each would cost the square of N.
        let single = offer.candidates.len() <= 1 && self.spec.function == RankFunction::RowNumber;
        if self.fold && !single {
            self.folded(&block, &offer, out)?;
        } else {
            self.each_row(&block, &offer, out)?;
        }
        self.board.settle(&mut self.emptied);
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Vec<StateTable>, OperatorError> {
        Ok(vec![self.board.save("rows")?])
    }

    fn restore(&mut self, tables: Vec<StateTable>) -> Result<(), OperatorError> {
        tables.iter().try_for_each(|table| self.board.load(&self.spec, table))
    }

    fn stats(&self) -> OperatorStats {
        let memory = self.board.memory() + self.touched.marks.capacity() * 8 + self.touched.seen.capacity() * 16;
        OperatorStats { entries: self.board.rows() as u64, memory: memory as u64, unknown_rows: self.unknown, ..OperatorStats::default() }
    }
}
