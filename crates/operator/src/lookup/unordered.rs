//! Rows that leave as answers come, those before a watermark before those behind it, as Flink's `allow_unordered` has it.

use std::collections::{HashMap, VecDeque};

use arrow::array::UInt32Array;
use tidemill_block::Block;

use super::cache::{Asks, NO_ASK};
use super::order::{Order, Piece, bytes};
use super::stretches::Stretches;
use crate::OperatorError;

/// In place of the ask of a row that has left.
const GONE: u32 = NO_ASK - 1;
/// No link.
const NONE: u32 = u32::MAX;

struct Crowd {
    block: Block,
    asks: Vec<u32>,
    /// Rows that may leave.
    ready: Vec<u32>,
    /// Rows that have not left.
    left: usize,
    stretch: u64,
    bytes: usize,
}

/// A row that waits for an ask.
struct Link {
    block: u64,
    row: u32,
    next: u32,
}

/// Rows leave as answers come, those before a watermark before those behind it.
pub(super) struct Unordered {
    blocks: HashMap<u64, Crowd>,
    /// The number of the next block.
    number: u64,
    /// For each ask the first of the rows that wait for it.
    heads: Vec<u32>,
    links: Vec<Link>,
    free: Vec<u32>,
    /// With the blocks that have rows that may leave once their stretch's turn has come.
    stretches: Stretches<VecDeque<u64>>,
    rows: usize,
    bytes: usize,
}

impl Unordered {
    pub fn new() -> Self {
        Unordered {
            blocks: HashMap::new(),
            number: 0,
            heads: Vec::new(),
            links: Vec::new(),
            free: Vec::new(),
            stretches: Stretches::new(),
            rows: 0,
            bytes: 0,
        }
    }

    fn link(&mut self, ask: u32, block: u64, row: u32) {
        if self.heads.len() <= ask as usize {
            self.heads.resize(ask as usize + 1, NONE);
        }
        let link = Link { block, row, next: self.heads[ask as usize] };
        self.heads[ask as usize] = match self.free.pop() {
            Some(number) => {
                self.links[number as usize] = link;
                number
            }
            None => {
                self.links.push(link);
                self.links.len() as u32 - 1
            }
        };
    }
}

impl Order for Unordered {
    fn push(&mut self, block: Block, asks: Vec<u32>, known: &Asks) {
        let number = self.number;
        self.number += 1;
        let mut ready = Vec::new();
        for (row, ask) in asks.iter().enumerate() {
            if known.is_ready(*ask) {
                ready.push(row as u32);
            } else {
                self.link(*ask, number, row as u32);
            }
        }
        let stretch = self.stretches.enter(asks.len());
        if !ready.is_empty() {
            self.stretches.of(stretch).kept.push_back(number);
        }
        let bytes = bytes(&block);
        self.bytes += bytes;
        self.rows += asks.len();
        self.blocks.insert(number, Crowd { left: asks.len(), block, asks, ready, stretch, bytes });
    }

    fn answered(&mut self, ask: u32) {
        let Some(head) = self.heads.get_mut(ask as usize) else { return };
        let mut at = std::mem::replace(head, NONE);
        while at != NONE {
            let Link { block, row, next } = self.links[at as usize];
            self.free.push(at);
            at = next;
            let crowd = self.blocks.get_mut(&block).expect("blocks with rows that wait are there");
            if crowd.ready.is_empty() {
                self.stretches.of(crowd.stretch).kept.push_back(block);
            }
            crowd.ready.push(row);
        }
    }

    fn watermark(&mut self, watermark: i64) {
        self.stretches.watermark(watermark);
    }

    fn next(&mut self, _known: &Asks, rows_max: usize) -> Result<Vec<Piece>, OperatorError> {
        let mut pieces = Vec::new();
        let mut rows = 0;
        loop {
            let stretch = self.stretches.front();
            while rows < rows_max
                && let Some(number) = stretch.kept.pop_front()
            {
                let crowd = self.blocks.get_mut(&number).expect("as long as it has rows");
                let mut ready = std::mem::take(&mut crowd.ready);
                ready.sort_unstable();
                rows += ready.len();
                stretch.rows -= ready.len();
                self.rows -= ready.len();
                crowd.left -= ready.len();
                let whole = ready.len() == crowd.asks.len();
                if crowd.left > 0 {
                    let asks = ready.iter().map(|r| std::mem::replace(&mut crowd.asks[*r as usize], GONE)).collect();
                    pieces.push(Piece { block: crowd.block.take(&UInt32Array::from(ready))?, asks });
                    continue;
                }
                let crowd = self.blocks.remove(&number).expect("found above");
                self.bytes -= crowd.bytes;
                if whole {
                    pieces.push(Piece { block: crowd.block, asks: crowd.asks });
                } else {
                    let asks = ready.iter().map(|r| crowd.asks[*r as usize]).collect();
                    pieces.push(Piece { block: crowd.block.take(&UInt32Array::from(ready))?, asks });
                }
            }
            if !self.stretches.advance() {
                return Ok(pieces);
            }
        }
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
        self.bytes + (self.heads.capacity() + self.free.capacity()) * 4 + self.links.capacity() * size_of::<Link>()
    }

    fn all(&self) -> Result<Vec<Block>, OperatorError> {
        let mut numbers: Vec<u64> = self.blocks.keys().copied().collect();
        numbers.sort_unstable();
        let waiting = |number: &u64| {
            let crowd = &self.blocks[number];
            let rows: Vec<u32> = (0..crowd.asks.len() as u32).filter(|r| crowd.asks[*r as usize] != GONE).collect();
            if rows.len() == crowd.asks.len() { Ok(crowd.block.clone()) } else { Ok(crowd.block.take(&UInt32Array::from(rows))?) }
        };
        numbers.iter().map(waiting).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There is a head for each answer that is kept: were they counted, a large cache would leave no room for
    /// rows, for ever.
    #[test]
    fn what_finds_rows_is_not_rows_that_wait() {
        let mut order = Unordered::new();
        order.heads = vec![NONE; 1000];
        assert_eq!((order.rows(), order.bytes()), (0, 0));
        assert!(order.memory() >= 4000);
    }
}
