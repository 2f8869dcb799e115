//! `MATCH_RECOGNIZE`: rows of a partition, in order of event time, matched against a pattern.
//!
//! Rows are held ([`crate::held`]) until the watermark passes them, unless they come in order, and are then taken in
//! order of time, a block at a time: [`masks`] computes for the whole block which pattern variables each row may be mapped to;
//! rows that can neither begin a match nor matter to a key with partial matches end there. For the
//! others [`run`] moves the partial matches of their key over the transitions of the [`automaton`], and [`group`] those that
//! have come to the same as one.
//! What partial matches have taken are [`chain`]s of links to rows in a [`column::RowStore`]; conditions
//! that look back are evaluated by [`navigate`] and [`scalar`]; [`output`] turns matches into rows.
//!
//! Partial matches that are over by `WITHIN` end when the watermark says so, without another row, and those
//! that wait for an absence (`not X for t`) go on ([`wait`]); the absences that matches begin with are in [`lead`]. A
//! snapshot holds the rows that partial matches refer to and where they began, and a restart leads to
//! the same partial matches, and to what these wait for, again.

mod automaton;
mod build;
mod chain;
mod column;
mod group;
mod lead;
mod live;
mod masks;
mod navigate;
mod output;
mod run;
mod scalar;
mod snapshot;
mod spec;
mod wait;

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{take, take_record_batch};
use datafusion_physical_expr::expressions::Column as Bound;
use tidemill_block::{Block, NO_WATERMARK, WATERMARK_END};
use tidemill_plan::pattern::RowsPerMatch;
use tidemill_state::{KeyTable, Slots, StateTable, hash};

use crate::held::Held;
use crate::over::times::TimeColumn;
use crate::{Operator, OperatorError, OperatorStats, Output, Progress};
use build::{Built, build};
use column::Cells;
use live::Live;
use masks::Masks;
use run::{Holding, Horizon, Key};

pub use spec::{MatchNavigation, MatchNavigationKind, MatchSymbol, PatternMatchSpec};

/// Finds the matches of a pattern.
pub struct PatternMatch {
    spec: PatternMatchSpec,
    built: Built,
    masks: Masks,
    held: Held,
    table: KeyTable,
    /// By slot.
    keys: Vec<Key>,
    live: Live,
    /// When keys are to be looked at without a row: time (ms) and slot. An entry counts if the key has
    /// noted the same time.
    timers: BinaryHeap<Reverse<(i64, u32)>>,
    /// What holds the watermark back, in the same form.
    holds: BinaryHeap<Reverse<(i64, u32)>>,
    /// What all keys hold, as of when each was last settled.
    holding: Holding,
    /// Slots that changed and have not been settled.
    touched: Vec<u32>,
    /// Slots that are left to be ended, last first.
    ending: Option<Vec<u32>>,
    watermark: i64,
    emitted_watermark: i64,
    arrival_ns: u64,
    scratch: Scratch,
}

#[derive(Default)]
struct Scratch {
    masks: Vec<u64>,
    slots: Slots,
    places: Vec<u32>,
}

/// Rows of a block.
struct Chosen {
    keys: Vec<ArrayRef>,
    /// Which rows of `keys` are chosen, ascending.
    picks: Vec<u32>,
    /// Which rows of the block these are, if `keys` has not all.
    rows: Option<Vec<u32>>,
}

/// Heaps are not compacted below so many entries.
const HEAP_MIN: usize = 1024;

impl PatternMatch {
    /// An operator for `spec`.
    ///
    /// # Errors
    /// A pattern that is too large, a navigation that is not supported.
    pub fn new(spec: PatternMatchSpec) -> Result<Self, OperatorError> {
        let built = build(&spec)?;
        Ok(PatternMatch {
            masks: Masks::new(&spec.symbols, spec.input_column),
            held: Held::new("a MATCH_RECOGNIZE", spec.input.clone(), spec.time, spec.order.clone()),
            table: KeyTable::new(spec.key_types.clone())?,
            built,
            keys: Vec::new(),
            live: Live::new(),
            timers: BinaryHeap::new(),
            holds: BinaryHeap::new(),
            holding: Holding::default(),
            touched: Vec::new(),
            ending: None,
            watermark: NO_WATERMARK,
            emitted_watermark: NO_WATERMARK,
            arrival_ns: 0,
            scratch: Scratch::default(),
            spec,
        })
    }

    fn key_columns(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>, OperatorError> {
        let rows = batch.num_rows();
        self.spec.keys.iter().map(|k| Ok(k.evaluate(batch)?.into_array(rows)?)).collect()
    }

    /// The rows of a block that may concern a key: those that can begin a match, and those of keys that have partial
    /// matches or get one in this block. Their hashes go into [`Scratch::slots`]; [`Scratch::masks`] is computed.
    fn choose(&mut self, block: &Block) -> Result<Chosen, OperatorError> {
        let mut keys = self.key_columns(&block.batch)?;
        let Scratch { masks, slots: Slots { hashes, .. }, .. } = &mut self.scratch;
        let mut mattering: Option<Vec<u32>> = None;
        let mut count = block.rows();
        if let Some(matters) = self.built.matters {
            let indices: UInt32Array = (0..count as u32).filter(|r| masks[*r as usize] & matters != 0).collect::<Vec<_>>().into();
            keys = keys.iter().map(|k| take(k, &indices, None)).collect::<Result<_, _>>()?;
            count = indices.len();
            mattering = Some(indices.values().to_vec());
        }
        hash::rows(&keys, count, hashes)?;
        // A row that begins a match makes its key live for the rows behind it.
        let (mut picks, mut begun) = (Vec::new(), Vec::new());
        for (i, &hash) in hashes.iter().enumerate() {
            let row = mattering.as_ref().map_or(i, |m| m[i] as usize);
            let begins = masks[row] & self.built.begins != 0;
            if begins {
                self.live.add(hash);
                begun.push(hash);
            }
            if begins || self.live.may_be(hash) {
                picks.push(i as u32);
            }
        }
        begun.into_iter().for_each(|h| self.live.remove(h));
        picks.iter().enumerate().for_each(|(to, from)| hashes[to] = hashes[*from as usize]);
        hashes.truncate(picks.len());
        let rows = mattering.map(|m| picks.iter().map(|i| m[*i as usize]).collect());
        Ok(Chosen { keys, picks, rows })
    }

    /// Takes a block of rows that the watermark has passed, in order of time.
    fn process(&mut self, block: &Block) -> Result<(), OperatorError> {
        self.arrival_ns = self.arrival_ns.max(block.arrival_ns);
        self.built.emitter.arrival_ns = self.arrival_ns;
        self.masks.compute(block, &mut self.scratch.masks)?;
        if self.built.every_row {
            self.process_all(block)?
        } else {
            self.process_some(block)?
        }
        self.settle();
        Ok(())
    }

    /// Takes every row of a block.
    fn process_all(&mut self, block: &Block) -> Result<(), OperatorError> {
        let keys = self.key_columns(&block.batch)?;
        let Scratch { masks, slots, places } = &mut self.scratch;
        self.table.intern(&keys, block.rows(), slots)?;
        let times = TimeColumn::of(block.column(self.spec.time))?.all_ms().expect("checked when the block came");
        let columns = self.built.kept.evaluate(&block.batch)?;
        let cells: Vec<Cells> = columns.iter().map(Cells::new).collect();
        self.built.machine.rows.add(&times, masks, &cells, places)?;
        if self.keys.len() < self.table.capacity() {
            self.keys.resize_with(self.table.capacity(), Key::new);
        }
        let Built { machine, emitter, .. } = &mut self.built;
        for (&slot, &place) in slots.slots.iter().zip(places.iter()) {
            let key = &mut self.keys[slot as usize];
            if !key.listed {
                key.listed = true;
                self.touched.push(slot);
            }
            if key.done {
                machine.rows.release(place);
                continue;
            }
            key.rows.places.push_back(place);
            machine.advance(key, Horizon::OPEN, emitter)?;
        }
        Ok(())
    }

    /// Takes the rows of a block that begin a match or that a partial match waits for.
    fn process_some(&mut self, block: &Block) -> Result<(), OperatorError> {
        let Chosen { keys, picks, rows } = self.choose(block)?;
        if picks.is_empty() {
            return Ok(());
        }
        let Scratch { masks, slots, .. } = &mut self.scratch;
        self.table.intern_picked(&keys, &picks, slots)?;
        let times = TimeColumn::of(block.column(self.spec.time))?.all_ms().expect("checked when the block came");
        let rows = rows.unwrap_or(picks);
        // What is computed is computed for chosen rows only: for others it may fail.
        let whole = self.built.kept.is_columns();
        let columns = if whole {
            self.built.kept.evaluate(&block.batch)?
        } else {
            self.built.kept.evaluate(&take_record_batch(&block.batch, &UInt32Array::from(rows.clone()))?)?
        };
        let cells: Vec<Cells> = columns.iter().map(Cells::new).collect();
        if self.keys.len() < self.table.capacity() {
            self.keys.resize_with(self.table.capacity(), Key::new);
        }
        let Built { machine, emitter, begins, .. } = &mut self.built;
        for (i, (&slot, &row)) in slots.slots.iter().zip(&rows).enumerate() {
            let row = row as usize;
            let key = &mut self.keys[slot as usize];
            if !key.listed {
                key.listed = true;
                self.touched.push(slot);
            }
            // The partial matches for which the row was chosen may be over by now.
            if key.done || (masks[row] & *begins == 0 && key.is_quiet()) {
                continue;
            }
            let place = machine.rows.add_one(times[row], masks[row], &cells, if whole { row } else { i })?;
            key.rows.places.push_back(place);
            machine.advance(key, Horizon::OPEN, emitter)?;
        }
        Ok(())
    }

    /// Settles the keys that changed.
    fn settle(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        touched.drain(..).for_each(|slot| self.settle_key(slot));
        self.touched = touched;
        if self.live.is_crowded() {
            let Self { live, keys, table, .. } = self;
            live.grow(keys.iter().enumerate().filter(|(_, k)| k.counted).map(|(slot, _)| table.hash(slot as u32)));
        }
        let bound = HEAP_MIN + 4 * self.keys.len();
        if self.timers.len() > bound {
            self.timers = Self::rebuilt(&self.keys, |k| k.timer);
        }
        if self.holds.len() > bound {
            self.holds = Self::rebuilt(&self.keys, |k| k.hold);
        }
        #[cfg(test)]
        self.check_holding();
    }

    /// What was counted is what a look at all keys finds.
    #[cfg(test)]
    fn check_holding(&self) {
        let mut all = Holding::default();
        for now in self.keys.iter().map(Key::holding) {
            all = Holding { partial_matches: all.partial_matches + now.partial_matches, memory: all.memory + now.memory };
        }
        assert_eq!(self.holding, all, "a key changed and was not settled");
    }

    /// Notes what a key now waits for and holds, or forgets it if it waits for nothing.
    fn settle_key(&mut self, slot: u32) {
        self.settle_waiting(slot);
        let key = &mut self.keys[slot as usize];
        let (now, before) = (key.holding(), key.holding);
        self.holding.partial_matches = self.holding.partial_matches - before.partial_matches + now.partial_matches;
        self.holding.memory = self.holding.memory - before.memory + now.memory;
        key.holding = now;
    }

    fn settle_waiting(&mut self, slot: u32) {
        let key = &mut self.keys[slot as usize];
        key.listed = false;
        let quiet = key.is_quiet();
        if quiet == key.counted {
            key.counted = !quiet;
            let hash = self.table.hash(slot);
            if quiet { self.live.remove(hash) } else { self.live.add(hash) }
        }
        if quiet {
            let kept = (self.built.keeps_matched && key.matches > 0) || (self.built.keeps_begun && key.begun);
            if kept {
                (key.timer, key.hold) = (i64::MAX, i64::MAX);
            } else {
                // The queues of the next key at this slot need not grow anew.
                let mut fresh = Key::new();
                std::mem::swap(&mut fresh.rows.places, &mut key.rows.places);
                std::mem::swap(&mut fresh.attempts, &mut key.attempts);
                fresh.holding = key.holding;
                *key = fresh;
                self.table.remove(slot);
            }
            return;
        }
        let deadline = self.built.machine.deadline(key, i64::MIN);
        if deadline < key.timer {
            key.timer = deadline;
            self.timers.push(Reverse((deadline, slot)));
        }
        let hold = self.built.machine.holds_back(key, self.spec.rows != RowsPerMatch::One);
        if hold < key.hold {
            key.hold = hold;
            self.holds.push(Reverse((hold, slot)));
        }
    }

    fn rebuilt(keys: &[Key], of: impl Fn(&Key) -> i64) -> BinaryHeap<Reverse<(i64, u32)>> {
        keys.iter().enumerate().filter(|(_, k)| of(k) != i64::MAX).map(|(slot, k)| Reverse((of(k), slot as u32))).collect()
    }

    /// Looks at the keys whose time has come; false if there is more to do.
    fn run_timers(&mut self, watermark: i64) -> Result<bool, OperatorError> {
        let horizon = Horizon { not_before: watermark.saturating_add(1), ended: false };
        while let Some(&Reverse((deadline, slot))) = self.timers.peek() {
            if deadline > horizon.not_before {
                break;
            }
            self.timers.pop();
            let key = &mut self.keys[slot as usize];
            if key.timer != deadline {
                continue;
            }
            key.timer = i64::MAX;
            let mut waits = false;
            if self.built.machine.deadline(key, i64::MIN) <= horizon.not_before {
                self.built.machine.advance(key, horizon, &mut self.built.emitter)?;
                // What is not over now waits for a row and not for time.
                waits = self.built.machine.deadline(key, i64::MIN) <= horizon.not_before;
            }
            self.settle_key(slot);
            if waits {
                let key = &mut self.keys[slot as usize];
                key.timer = self.built.machine.deadline(key, horizon.not_before);
                if key.timer != i64::MAX {
                    self.timers.push(Reverse((key.timer, slot)));
                }
            }
            if self.built.emitter.is_full() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Ends the keys, some at a time; false if there is more to do.
    fn run_end(&mut self) -> Result<bool, OperatorError> {
        let horizon = Horizon { not_before: i64::MAX, ended: true };
        if self.ending.is_none() {
            let mut slots = self.table.slots();
            slots.reverse();
            self.ending = Some(slots);
        }
        while let Some(slot) = self.ending.as_mut().and_then(Vec::pop) {
            self.built.machine.advance(&mut self.keys[slot as usize], horizon, &mut self.built.emitter)?;
            self.settle_key(slot);
            if self.built.emitter.is_full() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The least time that a key holds the watermark back to.
    fn held_back(&mut self) -> i64 {
        let all_rows = self.spec.rows != RowsPerMatch::One;
        while let Some(&Reverse((noted, slot))) = self.holds.peek() {
            let key = &mut self.keys[slot as usize];
            if key.hold == noted {
                let now = self.built.machine.holds_back(key, all_rows);
                if now <= noted {
                    return now;
                }
                key.hold = now;
                self.holds.pop();
                if now != i64::MAX {
                    self.holds.push(Reverse((now, slot)));
                }
                continue;
            }
            self.holds.pop();
        }
        i64::MAX
    }
}

impl build::Kept {
    /// The kept columns of a batch.
    fn evaluate(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>, OperatorError> {
        let rows = batch.num_rows();
        self.expressions.iter().map(|e| Ok(e.evaluate(batch)?.into_array(rows)?)).collect()
    }

    /// Whether all of them are columns of the input as it is.
    fn is_columns(&self) -> bool {
        self.expressions.iter().all(|e| e.is::<Bound>())
    }
}

impl Operator for PatternMatch {
    fn name(&self) -> &'static str {
        "PatternMatch"
    }

    fn on_block(&mut self, _input: usize, block: Block, out: &mut Output) -> Result<(), OperatorError> {
        self.held.take_in(block)?;
        if self.spec.in_order && self.spec.order.is_empty() {
            self.held.release_all()?;
            while let Some(block) = self.held.next() {
                self.process(&block)?;
                self.built.emitter.finish()?.into_iter().for_each(|b| out.emit(b));
            }
        }
        Ok(())
    }

    fn on_watermark(&mut self, watermark: i64, out: &mut Output) -> Result<Progress, OperatorError> {
        if self.held.is_idle() && watermark > self.watermark {
            self.watermark = watermark;
            self.held.release(watermark)?;
        }
        if let Some(block) = self.held.next() {
            self.process(&block)?;
        }
        let done = match watermark {
            _ if !self.held.is_idle() => false,
            WATERMARK_END => self.run_end()?,
            _ => self.run_timers(watermark)?,
        };
        self.built.emitter.finish()?.into_iter().for_each(|b| out.emit(b));
        #[cfg(test)]
        self.check_holding();
        if !done {
            return Ok(Progress::More);
        }
        let reached = if watermark == WATERMARK_END { watermark } else { watermark.min(self.held_back().saturating_sub(1)) };
        self.emitted_watermark = self.emitted_watermark.max(reached);
        Ok(Progress::Done)
    }

    fn output_watermark(&self, watermark: i64) -> i64 {
        watermark.min(self.emitted_watermark)
    }

    fn snapshot(&mut self) -> Result<Vec<StateTable>, OperatorError> {
        assert!(self.held.is_idle(), "a barrier follows a watermark only when its output has left");
        self.save()
    }

    fn restore(&mut self, tables: Vec<StateTable>) -> Result<(), OperatorError> {
        self.load(tables)
    }

    fn stats(&self) -> OperatorStats {
        let machine = &self.built.machine;
        // Asked for many times a second: not a look at each of what may be millions of keys.
        let Holding { partial_matches: partial, memory } = self.holding;
        let heaps = (self.timers.capacity() + self.holds.capacity()) * size_of::<Reverse<(i64, u32)>>();
        let keys = self.keys.len() * size_of::<Key>() + memory;
        OperatorStats {
            entries: (self.held.rows() + machine.rows.len() + partial) as u64,
            memory: (self.held.memory()
                + machine.rows.memory()
                + machine.chains.memory()
                + self.built.emitter.memory()
                + self.table.memory()
                + self.live.memory()
                + heaps
                + keys) as u64,
            late_rows: self.held.late_rows(),
            partial_matches: partial as u64,
            dropped_matches: machine.dropped,
            ..OperatorStats::default()
        }
    }
}
