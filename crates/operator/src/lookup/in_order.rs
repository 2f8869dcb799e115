//! Rows that leave in the order in which they came, those of each partition for themselves: one that waits for a slow answer, or has
//! many rows to ask for, does not hold the others back.
//!
//! A block of no partition may hold rows of any: all rows before it leave first, and those behind it wait for it. So rows are in
//! *sections*: those of any number of partitions, or those of none, by turns. Rows of the first section leave, of each of its
//! partitions by a *lane*. A lane is found by the ask of its first row, so that an answer costs the same however many there are, and is
//! gone with its last row: a source may have a partition for each of its files.

use std::collections::{HashMap, VecDeque};

use tidemill_block::Block;

use super::cache::Asks;
use super::order::{Order, Piece, bytes};
use super::stretches::Stretches;
use crate::OperatorError;

/// No lane.
const NONE: u32 = u32::MAX;
/// Room for so many lanes is kept when no rows wait.
const LANES_KEPT: usize = 16;

struct Line {
    block: Block,
    asks: Vec<u32>,
    /// Rows before this one have left.
    from: usize,
    bytes: usize,
    /// The stretch that its rows are in.
    stretch: u64,
}

/// Rows of a partition, or of none, within a section.
struct Lane {
    partition: Option<u32>,
    /// Empty only where the lane is free.
    lines: VecDeque<Line>,
    /// Larger than that of lanes that were there before.
    since: u64,
    /// The next one that waits for the same ask.
    next: u32,
}

/// Rows that wait for all those of the section before it.
#[derive(Default)]
struct Section {
    /// It has rows of no partition, in one lane.
    mixed: bool,
    /// By partition; there are some, but in the only section.
    lanes: HashMap<Option<u32>, u32>,
}

/// Rows of a partition leave in the order in which they came.
pub(super) struct InOrder {
    /// The oldest first; there is always one.
    sections: VecDeque<Section>,
    /// Those of all sections.
    lanes: Vec<Lane>,
    free: Vec<u32>,
    /// How many lanes there have been.
    seen: u64,
    /// For each ask the first of the lanes whose first row waits for it. All lanes of the first section wait so, or are ready.
    heads: Vec<u32>,
    /// Lanes of the first section whose first row may leave.
    ready: VecDeque<u32>,
    stretches: Stretches<()>,
    rows: usize,
    bytes: usize,
}

impl InOrder {
    pub fn new() -> Self {
        InOrder {
            sections: VecDeque::from([Section::default()]),
            lanes: Vec::new(),
            free: Vec::new(),
            seen: 0,
            heads: Vec::new(),
            ready: VecDeque::new(),
            stretches: Stretches::new(),
            rows: 0,
            bytes: 0,
        }
    }

    /// The lanes of a section, in the order in which they came.
    fn lanes_of(&self, section: &Section) -> Vec<u32> {
        let mut lanes: Vec<u32> = section.lanes.values().copied().collect();
        lanes.sort_unstable_by_key(|lane| self.lanes[*lane as usize].since);
        lanes
    }

    /// Adds a lane to the last section.
    fn add(&mut self, partition: Option<u32>, line: Line) -> u32 {
        self.seen += 1;
        let lane = Lane { partition, lines: VecDeque::from([line]), since: self.seen, next: NONE };
        let number = match self.free.pop() {
            Some(number) => {
                self.lanes[number as usize] = lane;
                number
            }
            None => {
                self.lanes.push(lane);
                self.lanes.len() as u32 - 1
            }
        };
        self.sections.back_mut().expect("there is always one").lanes.insert(partition, number);
        number
    }

    /// A lane of the first section is ready, or waits for the answer of its first row.
    fn list(&mut self, number: u32, known: &Asks) {
        let lane = &mut self.lanes[number as usize];
        let line = lane.lines.front().expect("a lane in use has rows");
        let ask = line.asks[line.from];
        if known.is_ready(ask) {
            self.ready.push_back(number);
            return;
        }
        if self.heads.len() <= ask as usize {
            self.heads.resize(ask as usize + 1, NONE);
        }
        lane.next = std::mem::replace(&mut self.heads[ask as usize], number);
    }

    /// All rows of a lane of the first section have left.
    fn remove(&mut self, number: u32, known: &Asks) {
        let lane = &mut self.lanes[number as usize];
        lane.lines = VecDeque::new();
        self.sections[0].lanes.remove(&lane.partition);
        self.free.push(number);
        if self.rows == 0 {
            // However many there were at once.
            self.lanes.clear();
            self.lanes.shrink_to(LANES_KEPT);
            self.free.clear();
            self.free.shrink_to(LANES_KEPT);
            self.ready.shrink_to(LANES_KEPT);
            self.sections.shrink_to(LANES_KEPT);
            self.sections[0].lanes.shrink_to(LANES_KEPT);
        } else if self.sections[0].lanes.is_empty() {
            self.sections.pop_front();
            for lane in self.lanes_of(&self.sections[0]) {
                self.list(lane, known);
            }
        }
    }

    /// So many rows of a stretch have left.
    fn left(&mut self, stretch: u64, rows: usize) {
        self.rows -= rows;
        self.stretches.of(stretch).rows -= rows;
        while self.stretches.advance() {}
    }

    /// Rows of a lane that may leave.
    fn of_lane(&mut self, number: u32, known: &Asks, rows_max: usize) -> Vec<Piece> {
        let number = number as usize;
        let mut pieces = Vec::new();
        let mut rows = 0;
        while rows < rows_max
            && let Some(line) = self.lanes[number].lines.front_mut()
        {
            let waiting = &line.asks[line.from..];
            let ready = waiting.iter().take(rows_max - rows).take_while(|ask| known.is_ready(**ask)).count();
            if ready == 0 {
                break;
            }
            rows += ready;
            let stretch = line.stretch;
            if ready == waiting.len() {
                let line = self.lanes[number].lines.pop_front().expect("looked at above");
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
    fn push(&mut self, block: Block, asks: Vec<u32>, known: &Asks) {
        let partition = block.partition();
        let last = self.sections.back_mut().expect("there is always one");
        if last.lanes.is_empty() {
            last.mixed = partition.is_none();
        } else if last.mixed != partition.is_none() {
            self.sections.push_back(Section { mixed: partition.is_none(), lanes: HashMap::new() });
        }
        let bytes = bytes(&block) + size_of::<Line>() - size_of::<Block>();
        self.bytes += bytes;
        self.rows += block.rows();
        let stretch = self.stretches.enter(block.rows());
        let line = Line { block, asks, from: 0, bytes, stretch };
        let lane = self.sections.back().and_then(|last| last.lanes.get(&partition)).copied();
        if let Some(lane) = lane {
            self.lanes[lane as usize].lines.push_back(line);
            return;
        }
        let lane = self.add(partition, line);
        if self.sections.len() == 1 {
            self.list(lane, known);
        }
    }

    fn answered(&mut self, ask: u32) {
        let Some(head) = self.heads.get_mut(ask as usize) else { return };
        let mut at = std::mem::replace(head, NONE);
        while at != NONE {
            self.ready.push_back(at);
            at = std::mem::replace(&mut self.lanes[at as usize].next, NONE);
        }
    }

    fn watermark(&mut self, watermark: i64) {
        self.stretches.watermark(watermark);
    }

    /// Those of one lane at a time, lest rows of several partitions become a block of none.
    fn next(&mut self, known: &Asks, rows_max: usize) -> Result<Vec<Piece>, OperatorError> {
        while let Some(lane) = self.ready.pop_front() {
            let pieces = self.of_lane(lane, known, rows_max);
            if self.lanes[lane as usize].lines.is_empty() {
                self.remove(lane, known);
            } else {
                self.list(lane, known);
            }
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
        let of_section = |s: &Section| size_of::<Section>() + s.lanes.capacity() * size_of::<(Option<u32>, u32)>();
        let numbers = (self.free.capacity() + self.heads.capacity() + self.ready.capacity()) * size_of::<u32>();
        self.bytes + self.lanes.capacity() * size_of::<Lane>() + numbers + self.sections.iter().map(of_section).sum::<usize>()
    }

    fn all(&self) -> Result<Vec<Block>, OperatorError> {
        let lanes = self.sections.iter().flat_map(|section| self.lanes_of(section));
        let lines = lanes.flat_map(|lane| &self.lanes[lane as usize].lines);
        Ok(lines.map(|l| l.block.slice(l.from, l.block.rows() - l.from)).collect())
    }
}
