//! Rows that leave in the order in which they came, those of each partition for themselves: one that waits for a slow answer, or has
//! many rows to ask for, does not hold the others back. Rows that came by no partition, or by several, are as of one.

use std::collections::{HashMap, VecDeque};

use tidemill_block::Block;

use super::cache::Asks;
use super::order::{Order, Piece, bytes};
use super::stretches::Stretches;
use crate::OperatorError;

struct Line {
    block: Block,
    asks: Vec<u32>,
    /// Rows before this one have left.
    from: usize,
    bytes: usize,
    /// The stretch that its rows are in.
    stretch: u64,
}

/// Rows of a partition leave in the order in which they came.
pub(super) struct InOrder {
    /// By partition, in the order in which those were first seen.
    lines: Vec<VecDeque<Line>>,
    numbers: HashMap<Option<u32>, usize>,
    /// The partition that is looked at next.
    turn: usize,
    stretches: Stretches<()>,
    rows: usize,
    bytes: usize,
}

impl InOrder {
    pub fn new() -> Self {
        InOrder { lines: Vec::new(), numbers: HashMap::new(), turn: 0, stretches: Stretches::new(), rows: 0, bytes: 0 }
    }

    /// So many rows of a stretch have left.
    fn left(&mut self, stretch: u64, rows: usize) {
        self.rows -= rows;
        self.stretches.of(stretch).rows -= rows;
        while self.stretches.advance() {}
    }

    /// Rows of one partition that may leave.
    fn of_partition(&mut self, number: usize, known: &Asks, rows_max: usize) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut rows = 0;
        while rows < rows_max
            && let Some(line) = self.lines[number].front_mut()
        {
            let waiting = &line.asks[line.from..];
            let ready = waiting.iter().take(rows_max - rows).take_while(|ask| known.is_ready(**ask)).count();
            if ready == 0 {
                break;
            }
            rows += ready;
            let stretch = line.stretch;
            if ready == waiting.len() {
                let line = self.lines[number].pop_front().expect("looked at above");
                self.bytes -= line.bytes;
                pieces.push(match line.from {
                    0 => Piece { block: line.block, asks: line.asks },
                    from => Piece { block: line.block.slice(from, ready), asks: line.asks[from..].to_vec() },
                });
            } else {
                pieces.push(Piece { block: line.block.slice(line.from, ready), asks: waiting[..ready].to_vec() });
                line.from += ready;
            }
            self.left(stretch, ready);
        }
        pieces
    }
}

impl Order for InOrder {
    fn push(&mut self, block: Block, asks: Vec<u32>, _known: &Asks) {
        let next = self.numbers.len();
        let number = *self.numbers.entry(block.partition()).or_insert(next);
        if number == next {
            self.lines.push(VecDeque::new());
        }
        let bytes = bytes(&block);
        self.bytes += bytes;
        self.rows += block.rows();
        let stretch = self.stretches.enter(block.rows());
        self.lines[number].push_back(Line { block, asks, from: 0, bytes, stretch });
    }

    fn answered(&mut self, _ask: u32) {}

    fn watermark(&mut self, watermark: i64) {
        self.stretches.watermark(watermark);
    }

    /// Those of one partition at a time, lest rows of several become a block of none.
    fn next(&mut self, known: &Asks, rows_max: usize) -> Result<Vec<Piece>, OperatorError> {
        for _ in 0..self.lines.len() {
            let number = self.turn % self.lines.len();
            self.turn = number + 1;
            let pieces = self.of_partition(number, known, rows_max);
            if !pieces.is_empty() {
                return Ok(pieces);
            }
        }
        Ok(Vec::new())
    }

    fn reached(&self) -> i64 {
        self.stretches.reached()
    }

    fn rows(&self) -> usize {
        self.rows
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn memory(&self) -> usize {
        self.bytes + self.lines.len() * size_of::<VecDeque<Line>>()
    }

    fn all(&self) -> Result<Vec<Block>, OperatorError> {
        Ok(self.lines.iter().flatten().map(|l| l.block.slice(l.from, l.block.rows() - l.from)).collect())
    }
}
