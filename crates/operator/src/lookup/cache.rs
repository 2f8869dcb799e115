//! What was asked and what came of it: a number for each key that is under way or kept, the rows found, and
//! which of them are kept for later rows.
//!
//! An *ask* is one look-up of one key. All rows that want a key while it is under way share the ask; so do
//! later ones if answers are kept. An ask lives until no row waits for it and it is no longer kept; its rows
//! lie in columns by number. Kept answers are linked by when they were last used; those that are too many or
//! too old go. Not here: when keys are asked, and in what order rows leave.

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType;
use tidemill_state::{KeyTable, Slots};

use crate::OperatorError;
use crate::call::Found;
use crate::join::store::{NO_ROW, RowStore, column_data};

/// In place of an ask's number: nothing is asked, since a key that is NULL has no match; or no ask.
pub(super) const NO_ASK: u32 = u32::MAX;

/// Which answers are kept, and for how long.
#[derive(Clone, Debug)]
pub struct CacheSpec {
    /// The most rows; a key for which there is nothing counts as one.
    pub rows_max: Option<usize>,
    /// How long after they came, ns.
    pub after_write_ns: Option<u64>,
    /// How long after they were last used, ns.
    pub after_access_ns: Option<u64>,
    /// Keys for which there is nothing are kept, too.
    pub missing: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    /// Yet to be answered.
    Open,
    /// Answered. If it has a slot, it is kept.
    Ready,
}

struct Ask {
    state: State,
    /// Where its key stands in the table, [`NO_ASK`] if a later row of the key is to ask anew.
    slot: u32,
    /// Rows that wait for it or for their turn to leave.
    pins: u32,
    /// Attempts after nothing was found.
    misses: u32,
    /// The first row of the answer, and how many there are.
    first: u32,
    rows: u32,
    // Of those kept: neighbours by last use, and when they came and were used, ns.
    newer: u32,
    older: u32,
    written_ns: u64,
    used_ns: u64,
}

/// All asks.
pub(super) struct Asks {
    table: KeyTable,
    /// The ask of each slot.
    by_slot: Vec<u32>,
    asks: Vec<Ask>,
    free: Vec<u32>,
    found: RowStore,
    /// For each row found the next one of the same ask.
    next: Vec<u32>,
    types: Vec<DataType>,
    cache: Option<CacheSpec>,
    newest: u32,
    oldest: u32,
    /// Rows kept, as [`CacheSpec::rows_max`] counts them.
    kept: usize,
    scratch: Slots,
    ids: Vec<u32>,
    /// Rows that asked, and those of them that no call was begun for.
    pub asked: u64,
    pub hits: u64,
}

impl Asks {
    /// No asks yet, of keys of these types, for rows of those.
    ///
    /// # Errors
    /// Types that cannot be keys.
    pub fn new(key_types: Vec<DataType>, types: Vec<DataType>, cache: Option<CacheSpec>) -> Result<Self, OperatorError> {
        Ok(Asks {
            table: KeyTable::new(key_types)?,
            by_slot: Vec::new(),
            asks: Vec::new(),
            free: Vec::new(),
            found: RowStore::new(types.clone()),
            next: Vec::new(),
            types,
            cache,
            newest: NO_ASK,
            oldest: NO_ASK,
            kept: 0,
            scratch: Slots::default(),
            ids: Vec::new(),
            asked: 0,
            hits: 0,
        })
    }

    /// The asks of `rows` rows with these keys, none of them NULL, one for each row; appended to `asks`.
    /// Those that are new, and are to be asked, are appended to `fresh`.
    ///
    /// # Errors
    /// None that keys of the declared types can cause.
    pub fn intern(
        &mut self,
        keys: &[ArrayRef],
        rows: usize,
        now_ns: u64,
        asks: &mut Vec<u32>,
        fresh: &mut Vec<u32>,
    ) -> Result<(), OperatorError> {
        let mut found = std::mem::take(&mut self.scratch);
        self.table.intern(keys, rows, &mut found)?;
        self.by_slot.resize(self.table.capacity(), NO_ASK);
        let before = fresh.len();
        for slot in &found.slots {
            let mut ask = self.by_slot[*slot as usize];
            if ask != NO_ASK && self.asks[ask as usize].state == State::Ready {
                if self.expired(ask, now_ns) {
                    // The slot is the new ask's.
                    self.unlink(ask);
                    self.asks[ask as usize].slot = NO_ASK;
                    self.drop_unless_wanted(ask);
                    ask = NO_ASK;
                } else {
                    self.use_again(ask, now_ns);
                }
            }
            if ask == NO_ASK {
                ask = self.create(*slot);
                self.by_slot[*slot as usize] = ask;
                fresh.push(ask);
            }
            self.asks[ask as usize].pins += 1;
            asks.push(ask);
        }
        self.asked += rows as u64;
        self.hits += (rows - (fresh.len() - before)) as u64;
        self.scratch = found;
        Ok(())
    }

    fn create(&mut self, slot: u32) -> u32 {
        let ask = Ask {
            state: State::Open,
            slot,
            pins: 0,
            misses: 0,
            first: NO_ROW,
            rows: 0,
            newer: NO_ASK,
            older: NO_ASK,
            written_ns: 0,
            used_ns: 0,
        };
        match self.free.pop() {
            Some(number) => {
                self.asks[number as usize] = ask;
                number
            }
            None => {
                self.asks.push(ask);
                self.asks.len() as u32 - 1
            }
        }
    }

    /// The keys of open asks as columns.
    ///
    /// # Errors
    /// None that asks of this table can cause.
    pub fn keys(&self, asks: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        let slots: Vec<u32> = asks.iter().map(|a| self.asks[*a as usize].slot).collect();
        Ok(self.table.keys(&slots)?)
    }

    /// Whether the rows that wait for it may leave.
    #[inline]
    pub fn is_ready(&self, ask: u32) -> bool {
        ask == NO_ASK || self.asks[ask as usize].state == State::Ready
    }

    /// Takes in the rows found for open asks. Nothing is settled by that: see [`Asks::settle`].
    ///
    /// # Errors
    /// An answer of another shape than was asked for.
    pub fn take_in(&mut self, asks: &[u32], found: &Found) -> Result<(), OperatorError> {
        let rows = found.rows.num_rows();
        let fits = found.rows.num_columns() == self.types.len()
            && found.rows.columns().iter().zip(&self.types).all(|(c, t)| c.data_type() == t)
            && found.origins.len() == rows
            && found.origins.iter().all(|o| (*o as usize) < asks.len());
        if !fits {
            return Err(OperatorError::new(format!(
                "internal error: {} keys were asked for columns {:?}, and the answer has {rows} rows of {:?}",
                asks.len(),
                self.types,
                found.rows.columns().iter().map(|c| c.data_type()).collect::<Vec<_>>()
            )));
        }
        if rows == 0 {
            return Ok(());
        }
        self.ids.clear();
        let picks: Vec<u32> = (0..rows as u32).collect();
        self.found.insert(&column_data(found.rows.columns()), &picks, &mut self.ids)?;
        self.next.resize(self.found.capacity(), NO_ROW);
        // Backwards, so that each row is put in front of those behind it.
        for (id, origin) in self.ids.iter().zip(&found.origins).rev() {
            let ask = &mut self.asks[asks[*origin as usize] as usize];
            self.next[*id as usize] = std::mem::replace(&mut ask.first, *id);
            ask.rows += 1;
        }
        Ok(())
    }

    /// Whether anything was found for an ask.
    pub fn has_rows(&self, ask: u32) -> bool {
        self.asks[ask as usize].rows > 0
    }

    /// Counts another attempt for an ask that found nothing; how many it has had.
    pub fn missed(&mut self, ask: u32) -> u32 {
        let ask = &mut self.asks[ask as usize];
        ask.misses += 1;
        ask.misses
    }

    /// An ask is answered: rows may leave with it. `keep` is false if the answer is none, since it failed.
    pub fn settle(&mut self, ask: u32, now_ns: u64, keep: bool) {
        let it = &mut self.asks[ask as usize];
        assert!(it.state == State::Open, "an ask is answered once");
        it.state = State::Ready;
        (it.written_ns, it.used_ns) = (now_ns, now_ns);
        if keep && self.cache.as_ref().is_some_and(|c| c.missing || it.rows > 0) {
            self.kept += weight(it);
            self.link(ask);
        } else {
            self.detach(ask);
            self.drop_unless_wanted(ask);
        }
    }

    /// The next row of the key asks anew.
    fn detach(&mut self, ask: u32) {
        let slot = std::mem::replace(&mut self.asks[ask as usize].slot, NO_ASK);
        self.by_slot[slot as usize] = NO_ASK;
        self.table.remove(slot);
    }

    fn drop_unless_wanted(&mut self, ask: u32) {
        let it = &mut self.asks[ask as usize];
        if it.pins > 0 || it.slot != NO_ASK {
            return;
        }
        it.state = State::Free;
        let mut row = it.first;
        while row != NO_ROW {
            self.found.remove(row);
            row = std::mem::replace(&mut self.next[row as usize], NO_ROW);
        }
        self.free.push(ask);
    }

    /// A row has left.
    #[inline]
    pub fn unpin(&mut self, ask: u32) {
        if ask == NO_ASK {
            return;
        }
        self.asks[ask as usize].pins -= 1;
        if self.asks[ask as usize].pins == 0 {
            self.drop_unless_wanted(ask);
        }
    }

    // ---- what is kept --------------------------------------------------------------------------

    fn expired(&self, ask: u32, now_ns: u64) -> bool {
        let Some(cache) = &self.cache else { return true };
        let it = &self.asks[ask as usize];
        let past = |since: u64, ttl: Option<u64>| ttl.is_some_and(|t| now_ns.saturating_sub(since) >= t);
        past(it.written_ns, cache.after_write_ns) || past(it.used_ns, cache.after_access_ns)
    }

    /// Makes it the one that was used last.
    fn link(&mut self, ask: u32) {
        let newest = std::mem::replace(&mut self.newest, ask);
        let it = &mut self.asks[ask as usize];
        (it.newer, it.older) = (NO_ASK, newest);
        match newest {
            NO_ASK => self.oldest = ask,
            newest => self.asks[newest as usize].newer = ask,
        }
    }

    fn take_out(&mut self, ask: u32) {
        let (newer, older) = (self.asks[ask as usize].newer, self.asks[ask as usize].older);
        match newer {
            NO_ASK => self.newest = older,
            newer => self.asks[newer as usize].older = older,
        }
        match older {
            NO_ASK => self.oldest = newer,
            older => self.asks[older as usize].newer = newer,
        }
    }

    /// Keeps it no longer; its slot is the caller's to see to.
    fn unlink(&mut self, ask: u32) {
        self.take_out(ask);
        self.kept -= weight(&self.asks[ask as usize]);
    }

    fn use_again(&mut self, ask: u32, now_ns: u64) {
        self.asks[ask as usize].used_ns = now_ns;
        if self.newest != ask {
            self.take_out(ask);
            self.link(ask);
        }
    }

    /// Lets go of kept answers that are too many or too old. Not to be called between [`Asks::intern`] and
    /// the end of work on its block.
    pub fn trim(&mut self, now_ns: u64) {
        let rows_max = self.cache.as_ref().and_then(|c| c.rows_max).unwrap_or(usize::MAX);
        while self.oldest != NO_ASK && (self.kept > rows_max || self.expired(self.oldest, now_ns)) {
            let ask = self.oldest;
            self.unlink(ask);
            self.detach(ask);
            self.drop_unless_wanted(ask);
        }
    }

    // ---- the rows found ------------------------------------------------------------------------

    /// The rows found for an ask.
    #[inline]
    pub fn rows(&self, ask: u32) -> Rows<'_> {
        let first = if ask == NO_ASK { NO_ROW } else { self.asks[ask as usize].first };
        Rows { next: &self.next, row: first }
    }

    /// Where the rows found lie.
    pub fn found(&self) -> &RowStore {
        &self.found
    }

    /// Answers kept.
    pub fn len(&self) -> usize {
        self.asks.len() - self.free.len()
    }

    /// Bytes.
    pub fn memory(&self) -> usize {
        self.table.memory()
            + self.found.memory()
            + self.asks.capacity() * size_of::<Ask>()
            + (self.by_slot.capacity() + self.next.capacity() + self.free.capacity()) * 4
    }
}

/// What an answer counts in the cache.
fn weight(ask: &Ask) -> usize {
    ask.rows.max(1) as usize
}

/// The numbers of an ask's rows, in the order of the answer.
pub(super) struct Rows<'a> {
    next: &'a [u32],
    row: u32,
}

impl Iterator for Rows<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        if self.row == NO_ROW {
            return None;
        }
        let row = self.row;
        self.row = self.next[row as usize];
        Some(row)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, RecordBatch};

    use super::*;

    fn asks(rows_max: usize, after_write_ns: u64) -> Asks {
        let cache = CacheSpec { rows_max: Some(rows_max), after_write_ns: Some(after_write_ns), after_access_ns: None, missing: true };
        Asks::new(vec![DataType::Int64], vec![DataType::Int64], Some(cache)).unwrap()
    }

    /// Asks for keys, answers new ones by the key times ten, and lets all rows leave; which were new.
    fn pass(asks: &mut Asks, keys: &[i64], now_ns: u64) -> Vec<i64> {
        let column: ArrayRef = Arc::new(Int64Array::from(keys.to_vec()));
        let (mut numbers, mut fresh) = (Vec::new(), Vec::new());
        asks.intern(&[column], keys.len(), now_ns, &mut numbers, &mut fresh).unwrap();
        let of_fresh = |asks: &Asks| asks.keys(&fresh).unwrap().remove(0);
        let new: Vec<i64> = if fresh.is_empty() { Vec::new() } else { ints(&of_fresh(asks)) };
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(new.iter().map(|k| k * 10)));
        let rows = RecordBatch::try_from_iter([("v", values)]).unwrap();
        asks.take_in(&fresh, &Found { rows, origins: (0..new.len() as u32).collect() }).unwrap();
        fresh.iter().for_each(|ask| asks.settle(*ask, now_ns, true));
        let ids: Vec<u32> = numbers.iter().flat_map(|ask| asks.rows(*ask)).collect();
        let expect: Vec<i64> = keys.iter().map(|k| k * 10).collect();
        assert_eq!(ints(&asks.found().take_column(0, &ids).unwrap()), expect);
        numbers.iter().for_each(|ask| asks.unpin(*ask));
        asks.trim(now_ns);
        new
    }

    fn ints(column: &ArrayRef) -> Vec<i64> {
        use arrow::array::AsArray;
        column.as_primitive::<arrow::datatypes::Int64Type>().values().to_vec()
    }

    #[test]
    fn the_one_not_used_for_longest_goes() {
        let mut asks = asks(2, 1000);
        assert_eq!(pass(&mut asks, &[1, 2, 1], 0), [1, 2]);
        assert!(pass(&mut asks, &[1], 1).is_empty());
        assert_eq!(pass(&mut asks, &[3], 2), [3], "puts 2 out");
        assert!(pass(&mut asks, &[1, 3], 3).is_empty());
        assert_eq!(pass(&mut asks, &[2], 4), [2]);
        assert_eq!((asks.len(), asks.kept, asks.asked, asks.hits), (2, 2, 8, 4));
    }

    #[test]
    fn old_ones_are_asked_again() {
        let mut asks = asks(100, 10);
        assert_eq!(pass(&mut asks, &[1, 2], 0), [1, 2]);
        assert!(pass(&mut asks, &[2, 1], 9).is_empty());
        assert_eq!(pass(&mut asks, &[1], 10), [1]);
        assert!(pass(&mut asks, &[1], 19).is_empty());
        asks.trim(20);
        assert_eq!((asks.len(), asks.kept, asks.table.len()), (0, 0, 0));
    }

    #[test]
    fn without_a_cache_nothing_stays() {
        let mut asks = Asks::new(vec![DataType::Int64], vec![DataType::Int64], None).unwrap();
        assert_eq!(pass(&mut asks, &[1, 2, 1], 0), [1, 2]);
        assert_eq!(pass(&mut asks, &[1], 0), [1]);
        assert_eq!((asks.len(), asks.found.len(), asks.table.len()), (0, 0, 0));
    }
}
