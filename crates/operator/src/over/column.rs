//! Values of rows that are in some frame.
//!
//! A row has a place, a number. Frames of time append rows and forget the oldest, so places follow
//! each other and wrap around; frames of rows give places again. Either way values lie in chunks,
//! so that memory grows and shrinks with the rows and nothing is copied to make room.

use std::collections::VecDeque;

use arrow::buffer::NullBuffer;

/// Rows in a chunk.
const CHUNK: usize = 4096;

/// Values of rows that follow each other in a block.
#[derive(Default)]
pub(crate) struct Lane<T> {
    pub values: Vec<T>,
    /// Which are not NULL; empty means all.
    pub valid: Vec<bool>,
}

impl<T: Default> Lane<T> {
    pub fn new(values: Vec<T>) -> Self {
        Lane { values, valid: Vec::new() }
    }

    pub fn with_capacity(rows: usize) -> Self {
        Lane::new(Vec::with_capacity(rows))
    }

    #[inline]
    pub fn is_valid(&self, row: usize) -> bool {
        self.valid.is_empty() || self.valid[row]
    }

    #[inline]
    pub fn push(&mut self, value: Option<T>) {
        match value {
            Some(value) => {
                self.values.push(value);
                if !self.valid.is_empty() {
                    self.valid.push(true);
                }
            }
            None => {
                if self.valid.is_empty() {
                    self.valid.resize(self.values.len(), true);
                }
                self.values.push(T::default());
                self.valid.push(false);
            }
        }
    }

    /// The marks as Arrow has them, taken out.
    pub fn take_nulls(&mut self) -> Option<NullBuffer> {
        let valid = std::mem::take(&mut self.valid);
        (!valid.is_empty()).then(|| NullBuffer::from(valid))
    }
}

struct Chunk<T> {
    values: Vec<T>,
    /// Empty as long as all are valid.
    valid: Vec<bool>,
}

/// Values by place.
pub(crate) struct Column<T> {
    chunks: VecDeque<Chunk<T>>,
    /// The place of the first value of the first chunk.
    start: u32,
}

impl<T: Clone + Default> Column<T> {
    pub fn new() -> Self {
        Column { chunks: VecDeque::new(), start: 0 }
    }

    #[inline]
    fn locate(&self, place: u32) -> (usize, usize) {
        let offset = place.wrapping_sub(self.start) as usize;
        (offset / CHUNK, offset % CHUNK)
    }

    /// The value at a place; `None` if it is NULL.
    #[inline]
    pub fn at(&self, place: u32) -> Option<&T> {
        let (chunk, offset) = self.locate(place);
        let chunk = &self.chunks[chunk];
        (chunk.valid.is_empty() || chunk.valid[offset]).then(|| &chunk.values[offset])
    }

    /// The values of the chunk that holds `place`, from there on.
    #[inline]
    pub fn rest(&self, place: u32) -> &[T] {
        let (chunk, offset) = self.locate(place);
        match self.chunks.get(chunk) {
            Some(chunk) => &chunk.values[offset..],
            None => &[],
        }
    }

    /// Appends values; no marks means that all are valid.
    pub fn append(&mut self, mut values: &[T], mut valid: &[bool]) {
        while !values.is_empty() {
            if self.chunks.back().is_none_or(|c| c.values.len() == CHUNK) {
                self.chunks.push_back(Chunk { values: Vec::new(), valid: Vec::new() });
            }
            let chunk = self.chunks.back_mut().expect("pushed above");
            let old = chunk.values.len();
            let rows = values.len().min(CHUNK - old);
            // Small chunks grow by doubling, others are made whole at once, never larger.
            if chunk.values.capacity() < old + rows && old + rows > CHUNK / 4 {
                chunk.values.reserve_exact(CHUNK - old);
            }
            chunk.values.extend_from_slice(&values[..rows]);
            if !valid.is_empty() {
                if chunk.valid.is_empty() && valid[..rows].contains(&false) {
                    chunk.valid.resize(old, true);
                    chunk.valid.extend_from_slice(&valid[..rows]);
                } else if !chunk.valid.is_empty() {
                    chunk.valid.extend_from_slice(&valid[..rows]);
                }
                valid = &valid[rows..];
            } else if !chunk.valid.is_empty() {
                chunk.valid.resize(old + rows, true);
            }
            values = &values[rows..];
        }
    }

    /// Puts a value at a place that was given before, or at the next one.
    pub fn put(&mut self, place: u32, value: T, is_valid: bool) {
        let (chunk, offset) = self.locate(place);
        if self.chunks.get(chunk).is_none_or(|c| c.values.len() == offset) {
            self.append(&[value], if is_valid { &[] } else { &[false] });
            return;
        }
        let chunk = &mut self.chunks[chunk];
        chunk.values[offset] = value;
        if !is_valid && chunk.valid.is_empty() {
            chunk.valid.resize(chunk.values.len(), true);
        }
        if !chunk.valid.is_empty() {
            chunk.valid[offset] = is_valid;
        }
    }

    /// Gives back the memory of rows before `place`.
    pub fn forget(&mut self, place: u32) {
        while self.chunks.front().is_some_and(|c| c.values.len() == CHUNK) && place.wrapping_sub(self.start) as usize >= CHUNK {
            self.chunks.pop_front();
            self.start = self.start.wrapping_add(CHUNK as u32);
        }
    }

    /// The values of `rows` rows from `from` on, into `out`; only the marks without `values`.
    pub fn copy_run(&self, from: u32, mut rows: usize, values: bool, out: &mut Lane<T>) {
        out.values.clear();
        out.valid.clear();
        let (mut at, mut offset) = self.locate(from);
        let mut done = 0;
        while rows > 0 {
            let chunk = &self.chunks[at];
            let part = rows.min(chunk.values.len() - offset);
            if values {
                out.values.extend_from_slice(&chunk.values[offset..offset + part]);
            }
            if !chunk.valid.is_empty() {
                out.valid.resize(done, true);
                out.valid.extend_from_slice(&chunk.valid[offset..offset + part]);
            } else if !out.valid.is_empty() {
                out.valid.resize(done + part, true);
            }
            (at, offset) = (at + 1, 0);
            done += part;
            rows -= part;
        }
    }

    /// The same for any places.
    pub fn copy(&self, places: &[u32], values: bool, out: &mut Lane<T>) {
        out.values.clear();
        out.valid.clear();
        for (done, place) in places.iter().enumerate() {
            let (chunk, offset) = self.locate(*place);
            let chunk = &self.chunks[chunk];
            if values {
                out.values.push(chunk.values[offset].clone());
            }
            let is_valid = chunk.valid.is_empty() || chunk.valid[offset];
            if !is_valid && out.valid.is_empty() {
                out.valid.resize(done, true);
            }
            if !is_valid || !out.valid.is_empty() {
                out.valid.push(is_valid);
            }
        }
    }

    /// Bytes, what values themselves point to aside.
    pub fn memory(&self) -> usize {
        self.chunks.iter().map(|c| c.values.capacity() * size_of::<T>() + c.valid.capacity()).sum::<usize>()
            + self.chunks.capacity() * size_of::<Chunk<T>>()
    }

    /// How many values there are, those of forgotten rows in the first chunk included.
    pub fn rows(&self) -> usize {
        self.chunks.back().map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.values.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Appends, forgets and reads in steps of odd sizes against a plain vector.
    #[test]
    fn a_column_holds_what_was_appended() {
        let mut column = Column::new();
        // Places wrap around in the middle of the test.
        column.start = u32::MAX - 5000;
        let first = column.start;
        let mut all: Vec<Option<i64>> = Vec::new();
        let mut forgotten = 0;
        for step in 0..40_usize {
            let rows = 37 + step * 53 % 977;
            let lane: Vec<Option<i64>> = (0..rows).map(|i| (step % 3 == 0 || i % 5 != 0).then_some((all.len() + i) as i64)).collect();
            let values: Vec<i64> = lane.iter().map(|v| v.unwrap_or_default()).collect();
            let valid: Vec<bool> = lane.iter().map(Option::is_some).collect();
            column.append(&values, if step % 3 == 0 { &[] } else { &valid });
            all.extend(lane);
            forgotten = (forgotten + step * 31).min(all.len());
            column.forget(first.wrapping_add(forgotten as u32));
            let mut out = Lane::default();
            column.copy_run(first.wrapping_add(forgotten as u32), all.len() - forgotten, true, &mut out);
            let got: Vec<Option<i64>> = (0..out.values.len()).map(|i| out.is_valid(i).then(|| out.values[i])).collect();
            assert_eq!(got, all[forgotten..], "step {step}");
            let places: Vec<u32> = (forgotten..all.len()).step_by(7).map(|i| first.wrapping_add(i as u32)).collect();
            column.copy(&places, true, &mut out);
            for (i, place) in places.iter().enumerate() {
                assert_eq!(out.is_valid(i).then(|| out.values[i]), column.at(*place).copied());
            }
        }
        assert!(column.chunks.len() <= (all.len() - forgotten) / CHUNK + 2);
    }

    #[test]
    fn places_are_given_again() {
        let mut column = Column::new();
        column.put(0, 1, true);
        column.put(1, 2, false);
        column.put(0, 3, true);
        column.put(1, 4, true);
        assert_eq!((column.at(0), column.at(1)), (Some(&3), Some(&4)));
        column.put(0, 5, false);
        assert_eq!((column.at(0), column.at(1)), (None, Some(&4)));
    }
}
