//! Window Top-N and window deduplication: the best rows of each key in each window, emitted once, when
//! the watermark reaches the end of the window.

use std::collections::BTreeMap;

use arrow::array::UInt32Array;
use tidemill_block::{Block, NO_WATERMARK, WATERMARK_END};
use tidemill_state::StateTable;

use super::board::Board;
use super::{RankFunction, RankSpec};
use crate::over::times::TimeColumn;
use crate::{BLOCK_ROWS_MAX, Operator, OperatorError, OperatorStats, Output, Progress};

/// Keeps the best rows of each key in each window.
pub struct WindowTopN {
    spec: RankSpec,
    /// Index of the column with the end of the window.
    end: usize,
    /// By end of the window, ms.
    windows: BTreeMap<i64, Board>,
    emitting: Option<Emitting>,
    watermark: i64,
    arrival_ns: u64,
    late_rows: u64,
}

struct Emitting {
    board: Board,
    /// Rows and their ranks.
    rows: Vec<(u32, u64)>,
    at: usize,
}

impl WindowTopN {
    /// Ranks rows that stand in windows; the column `end` says when theirs ends. The keys of `spec`
    /// leave out the window, or have its start where several windows may end together.
    ///
    /// # Errors
    /// A type that cannot be a key, sorted by, or kept.
    pub fn new(spec: RankSpec, end: usize) -> Result<Self, OperatorError> {
        assert!(0 < spec.from && spec.from <= spec.to && !spec.retracts, "ranks count from one, rows of windows are not taken back");
        // What cannot work fails now.
        Board::new(&spec)?;
        Ok(WindowTopN { spec, end, windows: BTreeMap::new(), emitting: None, watermark: NO_WATERMARK, arrival_ns: 0, late_rows: 0 })
    }

    fn enter(&mut self, end: i64, block: &Block) -> Result<(), OperatorError> {
        let board = match self.windows.entry(end) {
            std::collections::btree_map::Entry::Occupied(e) => e.into_mut(),
            std::collections::btree_map::Entry::Vacant(e) => e.insert(Board::new(&self.spec)?),
        };
        let offer = board.offer(&self.spec, block)?;
        let numbered = self.spec.function == RankFunction::RowNumber;
        let mut slots = Vec::new();
        for (n, row) in offer.candidates.iter().enumerate() {
            if board.enter(&self.spec, &offer, n).is_some() {
                let slot = board.slot(*row);
                if numbered { board.cut(&self.spec, slot) } else { slots.push(slot) }
            }
        }
        board.store(&offer)?;
        slots.sort_unstable();
        slots.dedup();
        slots.iter().for_each(|slot| board.cut(&self.spec, *slot));
        board.settle(&mut Vec::new());
        Ok(())
    }
}

impl Operator for WindowTopN {
    fn name(&self) -> &'static str {
        "WindowTopN"
    }

    fn on_block(&mut self, _input: usize, block: Block, _out: &mut Output) -> Result<(), OperatorError> {
        if block.kinds.is_some() {
            return Err(OperatorError::new("internal error: a ranking in windows got an update"));
        }
        self.arrival_ns = self.arrival_ns.max(block.arrival_ns);
        let times = TimeColumn::of(block.column(self.end))?;
        let Some(ends) = times.all_ms() else {
            return Err(OperatorError::new(format!("the end of a window, '{}', is NULL in a row", self.spec.input.field(self.end).name())));
        };
        // A window is over when the watermark reaches its last millisecond.
        let watermark = self.watermark;
        let in_time = |row: usize| ends[row] - 1 > block.row_watermark(row).max(watermark);
        let one = ends.first().copied().filter(|first| ends.iter().all(|end| end == first));
        if let Some(end) = one
            && (0..ends.len()).all(in_time)
        {
            return self.enter(end, &block);
        }
        let mut windows: BTreeMap<i64, Vec<u32>> = BTreeMap::new();
        for (row, end) in ends.iter().enumerate() {
            if in_time(row) {
                windows.entry(*end).or_default().push(row as u32);
            } else {
                self.late_rows += 1;
            }
        }
        for (end, rows) in windows {
            let part = block.take(&UInt32Array::from(rows))?;
            self.enter(end, &part)?;
        }
        Ok(())
    }

    fn on_watermark(&mut self, watermark: i64, out: &mut Output) -> Result<Progress, OperatorError> {
        self.watermark = self.watermark.max(watermark);
        if self.emitting.is_none() {
            let due = |end: &i64| watermark == WATERMARK_END || *end - 1 <= watermark;
            let Some(first) = self.windows.first_entry().filter(|w| due(w.key())) else { return Ok(Progress::Done) };
            let board = first.remove();
            let mut rows = Vec::new();
            for slot in board.table.slots() {
                board.wanted(&self.spec, slot, &mut rows);
            }
            self.emitting = Some(Emitting { board, rows, at: 0 });
        }
        let mut emitting = self.emitting.take().expect("set above");
        let until = (emitting.at + BLOCK_ROWS_MAX).min(emitting.rows.len());
        if emitting.at < until {
            let (ids, ranks): (Vec<u32>, Vec<u64>) = emitting.rows[emitting.at..until].iter().copied().unzip();
            let batch = self.spec.batch(emitting.board.columns(&ids)?, &ranks)?;
            out.emit(Block::inserts(batch, self.arrival_ns));
        }
        emitting.at = until;
        if until < emitting.rows.len() {
            self.emitting = Some(emitting);
        }
        Ok(Progress::More)
    }

    fn snapshot(&mut self) -> Result<Vec<StateTable>, OperatorError> {
        assert!(self.emitting.is_none(), "a barrier follows a watermark only when its output has left");
        self.windows.iter().map(|(end, board)| board.save(format!("window {end}"))).collect()
    }

    fn restore(&mut self, tables: Vec<StateTable>) -> Result<(), OperatorError> {
        for table in tables {
            let end = table.name.strip_prefix("window ").and_then(|end| end.parse::<i64>().ok());
            let end = end.ok_or_else(|| {
                OperatorError::new(format!("the checkpoint has a state table '{}' that this version does not know", table.name))
            })?;
            if table.batch.num_rows() > 0 {
                let board = match self.windows.entry(end) {
                    std::collections::btree_map::Entry::Occupied(e) => e.into_mut(),
                    std::collections::btree_map::Entry::Vacant(e) => e.insert(Board::new(&self.spec)?),
                };
                board.load(&self.spec, &table)?;
            }
        }
        Ok(())
    }

    fn stats(&self) -> OperatorStats {
        let (rows, memory) = self.windows.values().fold((0, 0), |(rows, memory), b| (rows + b.rows(), memory + b.memory()));
        OperatorStats { entries: rows as u64, memory: memory as u64, late_rows: self.late_rows, ..OperatorStats::default() }
    }
}
