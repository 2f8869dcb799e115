//! Rows between watermarks: each watermark waits until all rows that came before it have left.

use std::collections::VecDeque;

use tidemill_block::NO_WATERMARK;

/// The rows between two watermarks, and what is kept of them beside their number.
#[derive(Default)]
pub(super) struct Stretch<T> {
    /// How many of them wait.
    pub rows: usize,
    pub kept: T,
    /// The watermark behind it; the last one has none yet.
    watermark: Option<i64>,
}

/// All of them, the oldest first; there is always one.
pub(super) struct Stretches<T> {
    stretches: VecDeque<Stretch<T>>,
    /// The number of the first.
    first: u64,
    reached: i64,
}

impl<T: Default> Stretches<T> {
    pub fn new() -> Self {
        Stretches { stretches: VecDeque::from([Stretch::default()]), first: 0, reached: NO_WATERMARK }
    }

    /// So many rows come; the number of their stretch.
    pub fn enter(&mut self, rows: usize) -> u64 {
        let last = self.stretches.len() - 1;
        self.stretches[last].rows += rows;
        self.first + last as u64
    }

    /// The stretch of a number, of which rows wait.
    pub fn of(&mut self, number: u64) -> &mut Stretch<T> {
        &mut self.stretches[(number - self.first) as usize]
    }

    /// The oldest.
    pub fn front(&mut self) -> &mut Stretch<T> {
        &mut self.stretches[0]
    }

    /// A watermark has come, ms.
    pub fn watermark(&mut self, watermark: i64) {
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

    /// Passes the watermark behind the oldest stretch, if all of its rows have left; false if not.
    pub fn advance(&mut self) -> bool {
        let Stretch { rows: 0, watermark: Some(watermark), .. } = self.stretches[0] else { return false };
        self.reached = watermark;
        self.stretches.pop_front();
        self.first += 1;
        true
    }

    /// The newest watermark before which no row waits, ms.
    pub fn reached(&self) -> i64 {
        self.reached
    }
}
