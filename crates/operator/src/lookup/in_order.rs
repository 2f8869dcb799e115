//! Rows that leave in the order in which they came, those of each partition for themselves: one that waits for a slow answer, or has
//! many rows to ask for, does not hold the others back. Rows that came by no partition, or by several, are as of one.

use std::collections::{HashMap, VecDeque};

use tidemill_block::{Block, NO_WATERMARK};

use super::cache::Asks;
use super::order::{Order, Piece, bytes};
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

/// The rows between two watermarks.
#[derive(Default)]
struct Stretch {
    /// How many of them wait.
    rows: usize,
    /// The watermark behind it; the last one has none yet.
    watermark: Option<i64>,
}

/// Rows of a partition leave in the order in which they came.
pub(super) struct InOrder {
    /// By partition, in the order in which those were first seen.
    lines: Vec<VecDeque<Line>>,
    numbers: HashMap<Option<u32>, usize>,
    /// The partition that is looked at next.
    turn: usize,
    stretches: VecDeque<Stretch>,
    /// The number of the first of them.
    first: u64,
    rows: usize,
    reached: i64,
    bytes: usize,
}

impl InOrder {
    pub fn new() -> Self {
        InOrder {
            lines: Vec::new(),
            numbers: HashMap::new(),
            turn: 0,
            stretches: VecDeque::from([Stretch::default()]),
            first: 0,
            rows: 0,
            reached: NO_WATERMARK,
            bytes: 0,
        }
    }

    /// So many rows of a stretch have left.
    fn left(&mut self, stretch: u64, rows: usize) {
        self.rows -= rows;
        self.stretches[(stretch - self.first) as usize].rows -= rows;
        while let Some(Stretch { rows: 0, watermark: Some(watermark) }) = self.stretches.front() {
            self.reached = *watermark;
            self.stretches.pop_front();
            self.first += 1;
        }
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
        let last = self.stretches.back_mut().expect("there is always one");
        last.rows += block.rows();
        let stretch = self.first + self.stretches.len() as u64 - 1;
        self.lines[number].push_back(Line { block, asks, from: 0, bytes, stretch });
    }

    fn answered(&mut self, _ask: u32) {}

    fn watermark(&mut self, watermark: i64) {
        let last = self.stretches.len() - 1;
        match (self.stretches[last].rows, last) {
            (0, 0) => self.reached = watermark,
            (0, _) => self.stretches[last - 1].watermark = Some(watermark),
            _ => {
                self.stretches[last].watermark = Some(watermark);
                self.stretches.push_back(Stretch::default());
            }
        }
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
        self.reached
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
