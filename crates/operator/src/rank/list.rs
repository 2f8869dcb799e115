//! Rows of one key in order: a sorted sequence in chunks, so that entering and leaving cost little
//! however long it is. How rows compare is the caller's affair.

/// A chunk that grows beyond this is cut in two.
const CHUNK_MAX: usize = 512;

/// A row: its number, and the head of its sort key for comparisons, most of which that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub head: u64,
    pub id: u32,
}

/// Where a row stands or would stand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    chunk: usize,
    at: usize,
}

/// Rows in order. Short lists, which are the most, lie in one vector.
#[derive(Default)]
pub(super) struct SortedList {
    first: Vec<Item>,
    /// The chunks behind the first; none of them is empty.
    more: Vec<Vec<Item>>,
    len: usize,
}

impl SortedList {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn chunk(&self, chunk: usize) -> &Vec<Item> {
        if chunk == 0 { &self.first } else { &self.more[chunk - 1] }
    }

    fn chunk_mut(&mut self, chunk: usize) -> &mut Vec<Item> {
        if chunk == 0 { &mut self.first } else { &mut self.more[chunk - 1] }
    }

    /// The first place whose row does not come `before`; `before` holds for a beginning of the list.
    pub fn find(&self, before: impl Fn(Item) -> bool) -> Place {
        let chunk = self.more.partition_point(|c| before(c[0]));
        Place { chunk, at: self.chunk(chunk).partition_point(|i| before(*i)) }
    }

    /// How many rows stand before a place, or some number above `limit` if there are more than that.
    pub fn position(&self, place: Place, limit: usize) -> usize {
        let mut before = place.at;
        for chunk in 0..place.chunk {
            before += self.chunk(chunk).len();
            if before > limit {
                break;
            }
        }
        before
    }

    /// The row at a place; `None` behind the last.
    pub fn at(&self, place: Place) -> Option<Item> {
        let here = self.chunk(place.chunk).get(place.at);
        here.or_else(|| self.more.get(place.chunk).map(|next| &next[0])).copied()
    }

    pub fn insert(&mut self, place: Place, item: Item) {
        self.len += 1;
        let chunk = self.chunk_mut(place.chunk);
        chunk.insert(place.at, item);
        if chunk.len() > CHUNK_MAX {
            let tail = chunk.split_off(CHUNK_MAX / 2);
            self.more.insert(place.chunk, tail);
        }
    }

    /// Adds a row behind the last.
    pub fn push(&mut self, item: Item) {
        let chunk = self.more.len();
        let at = self.chunk(chunk).len();
        self.insert(Place { chunk, at }, item);
    }

    /// Takes the row at a place out.
    ///
    /// # Panics
    /// If there is none.
    pub fn remove(&mut self, place: Place) -> Item {
        let Place { chunk, at } = if place.at < self.chunk(place.chunk).len() { place } else { Place { chunk: place.chunk + 1, at: 0 } };
        self.len -= 1;
        let rows = self.chunk_mut(chunk);
        let item = rows.remove(at);
        let left = rows.len();
        if left == 0 {
            if chunk > 0 {
                self.more.remove(chunk - 1);
            } else if !self.more.is_empty() {
                self.first = self.more.remove(0);
            }
        } else if chunk > 0 && left + self.chunk(chunk - 1).len() <= CHUNK_MAX / 2 {
            let rows = self.more.remove(chunk - 1);
            self.chunk_mut(chunk - 1).extend(rows);
        } else if chunk < self.more.len() && left + self.more[chunk].len() <= CHUNK_MAX / 2 {
            let rows = self.more.remove(chunk);
            self.chunk_mut(chunk).extend(rows);
        }
        item
    }

    pub fn last(&self) -> Option<Item> {
        self.chunk(self.more.len()).last().copied()
    }

    /// Takes the last row out.
    pub fn pop(&mut self) -> Option<Item> {
        let item = self.chunk_mut(self.more.len()).pop()?;
        self.len -= 1;
        if self.more.last().is_some_and(Vec::is_empty) {
            self.more.pop();
        }
        Some(item)
    }

    /// The row that has `position` rows before it.
    pub fn nth(&self, position: usize) -> Option<Item> {
        self.rows_from(position).next()
    }

    /// The rows in order from the one on that has `position` rows before it.
    pub fn rows_from(&self, position: usize) -> impl Iterator<Item = Item> + '_ {
        let (mut chunk, mut at) = (0, position);
        while chunk < self.more.len() && at >= self.chunk(chunk).len() {
            at -= self.chunk(chunk).len();
            chunk += 1;
        }
        let here = self.chunk(chunk).get(at..).unwrap_or_default();
        here.iter().chain(self.more.iter().skip(chunk).flatten()).copied()
    }

    /// The rows in order.
    pub fn iter(&self) -> impl Iterator<Item = Item> + '_ {
        self.rows_from(0)
    }
}

#[cfg(test)]
mod tests;
