//! The rows of each key in front of a sink that knows one row a key, where the query may have several: the newest is
//! shown, and when it goes away the one before it is shown again, as Flink's `SinkUpsertMaterializer` does.
//!
//! The newest is the one that came last. All columns together are found in a table of their own, so that a row is taken
//! back without a look at the others of its key, of which there may be many. What does not live here: which sinks need
//! this, and the best rows of a key by some order ([`crate::rank`]).

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};
use tidemill_block::{Block, RowKind};
use tidemill_state::{KeyTable, SlotVec, Slots, StateTable};

use crate::{Operator, OperatorError, OperatorStats, Output};

/// In place of a slot or a row: there is none.
const NONE: u32 = u32::MAX;

/// So many rows make a table of a snapshot: few enough that their texts fit a column. Rows of one key stay together.
const SNAPSHOT_ROWS: usize = 1 << 18;

/// Shows the newest row of each key. Emits one change a key and block, and no `-U`.
pub struct UpsertMaterialize {
    schema: SchemaRef,
    /// The columns that are the key.
    key: Vec<usize>,
    keys: KeyTable,
    /// All columns, the key among them: contents are of one key. They stand here once, however many rows have them.
    contents: KeyTable,
    rows: Rows,
    key_slots: Slots,
    content_slots: Slots,
    /// The keys of the block, in the order in which they come.
    touched: Vec<Touch>,
    /// By slot of the key, within a block: where it stands in `touched`, or [`NONE`].
    marks: SlotVec<u32>,
    /// Contents that may have lost their last row in this block.
    left: Vec<u32>,
    /// Rows to be taken back that are not there.
    unknown: u64,
}

/// A key that a block touches.
struct Touch {
    slot: u32,
    /// The contents that were shown before the block.
    before: u32,
    /// Contents that were taken back when the key had no rows.
    passed: u32,
}

/// Rows by number.
#[derive(Default)]
struct Rows {
    rows: SlotVec<Row>,
    free: Vec<u32>,
    /// By slot of the key: its newest row.
    of_key: SlotVec<u32>,
    /// By slot of the contents: the newest row that has them.
    of_contents: SlotVec<u32>,
}

#[derive(Clone, Copy)]
struct Row {
    contents: u32,
    /// The neighbours among the rows of the key.
    older: u32,
    newer: u32,
    /// The next older row with the same contents.
    twin: u32,
}

impl Rows {
    fn make_room(&mut self, keys: usize, contents: usize) {
        self.of_key.resize(keys, NONE);
        self.of_contents.resize(contents, NONE);
    }

    /// The contents of the newest row of a key; [`NONE`] if it has no rows.
    #[inline]
    fn shown(&self, slot: u32) -> u32 {
        match self.of_key[slot as usize] {
            NONE => NONE,
            row => self.rows[row as usize].contents,
        }
    }

    /// Adds a row behind the others of its key.
    fn add(&mut self, slot: u32, contents: u32) {
        let number = self.free.pop().unwrap_or(self.rows.len() as u32);
        let older = std::mem::replace(&mut self.of_key[slot as usize], number);
        let twin = std::mem::replace(&mut self.of_contents[contents as usize], number);
        if older != NONE {
            self.rows[older as usize].newer = number;
        }
        let row = Row { contents, older, newer: NONE, twin };
        if number as usize == self.rows.len() {
            self.rows.push(row);
        } else {
            self.rows[number as usize] = row;
        }
    }

    /// Takes out the newest row with these contents, which are of this key; whether there was one.
    fn remove(&mut self, slot: u32, contents: u32) -> bool {
        let number = self.of_contents[contents as usize];
        if number == NONE {
            return false;
        }
        let Row { older, newer, twin, .. } = self.rows[number as usize];
        self.of_contents[contents as usize] = twin;
        if older != NONE {
            self.rows[older as usize].newer = newer;
        }
        if newer == NONE {
            self.of_key[slot as usize] = older;
        } else {
            self.rows[newer as usize].older = older;
        }
        self.free.push(number);
        true
    }

    /// Adds the contents of the rows of a key to `out`, oldest first.
    fn list(&self, slot: u32, out: &mut Vec<u32>) {
        let from = out.len();
        let mut number = self.of_key[slot as usize];
        while number != NONE {
            let row = self.rows[number as usize];
            out.push(row.contents);
            number = row.older;
        }
        out[from..].reverse();
    }

    fn len(&self) -> usize {
        self.rows.len() - self.free.len()
    }

    fn memory(&self) -> usize {
        self.rows.memory() + self.free.capacity() * 4 + self.of_key.memory() + self.of_contents.memory()
    }
}

impl UpsertMaterialize {
    /// For rows of `schema`, which is the schema of what comes out, too. `key`: the columns by which the sink knows them.
    ///
    /// # Errors
    /// A type that cannot be a key or kept.
    pub fn new(schema: SchemaRef, key: Vec<usize>) -> Result<Self, OperatorError> {
        let types: Vec<DataType> = schema.fields().iter().map(|field| field.data_type().clone()).collect();
        Ok(UpsertMaterialize {
            keys: KeyTable::new(key.iter().map(|at| types[*at].clone()).collect())?,
            contents: KeyTable::new(types)?,
            rows: Rows::default(),
            key_slots: Slots::default(),
            content_slots: Slots::default(),
            touched: Vec::new(),
            marks: SlotVec::new(),
            left: Vec::new(),
            unknown: 0,
            schema,
            key,
        })
    }

    /// Finds the slots of rows.
    fn intern(&mut self, batch: &RecordBatch) -> Result<(), OperatorError> {
        let keys: Vec<ArrayRef> = self.key.iter().map(|at| batch.column(*at).clone()).collect();
        self.keys.intern(&keys, batch.num_rows(), &mut self.key_slots)?;
        self.contents.intern(batch.columns(), batch.num_rows(), &mut self.content_slots)?;
        self.rows.make_room(self.keys.capacity(), self.contents.capacity());
        self.marks.resize(self.keys.capacity(), NONE);
        Ok(())
    }

    /// What is known of a key in this block.
    fn touch(&mut self, slot: u32) -> &mut Touch {
        let mark = &mut self.marks[slot as usize];
        if *mark == NONE {
            *mark = self.touched.len() as u32;
            self.touched.push(Touch { slot, before: self.rows.shown(slot), passed: NONE });
        }
        &mut self.touched[*mark as usize]
    }

    /// Emits what the block changes of what is shown.
    fn emit(&self, arrival_ns: u64, out: &mut Output) -> Result<(), OperatorError> {
        let (mut kinds, mut contents) = (Vec::new(), Vec::new());
        for touch in &self.touched {
            let (kind, shown) = match (touch.before, self.rows.shown(touch.slot)) {
                (NONE, NONE) if touch.passed == NONE => continue,
                (NONE, NONE) => (RowKind::Delete, touch.passed),
                (NONE, after) => (RowKind::Insert, after),
                (before, NONE) => (RowKind::Delete, before),
                (before, after) if before == after => continue,
                (_, after) => (RowKind::UpdateAfter, after),
            };
            kinds.push(kind);
            contents.push(shown);
        }
        if kinds.is_empty() {
            return Ok(());
        }
        let batch = RecordBatch::try_new(self.schema.clone(), self.contents.keys(&contents)?)?;
        out.emit(if kinds.iter().all(|kind| *kind == RowKind::Insert) {
            Block::inserts(batch, arrival_ns)
        } else {
            Block::changelog(batch, kinds.into(), arrival_ns)
        });
        Ok(())
    }

    /// Forgets the keys and contents that have no rows. Those that leave are emitted before.
    fn settle(&mut self) {
        for touch in self.touched.drain(..) {
            self.marks[touch.slot as usize] = NONE;
            if self.rows.shown(touch.slot) == NONE {
                self.keys.remove(touch.slot);
            }
        }
        self.left.sort_unstable();
        self.left.dedup();
        for contents in self.left.drain(..) {
            if self.rows.of_contents[contents as usize] == NONE {
                self.contents.remove(contents);
            }
        }
    }
}

impl Operator for UpsertMaterialize {
    fn name(&self) -> &'static str {
        "UpsertMaterialize"
    }

    fn on_block(&mut self, _input: usize, block: Block, out: &mut Output) -> Result<(), OperatorError> {
        self.intern(&block.batch)?;
        for row in 0..block.rows() {
            let (slot, contents) = (self.key_slots.slots[row], self.content_slots.slots[row]);
            self.touch(slot);
            if block.kind(row).adds() {
                self.rows.add(slot, contents);
                continue;
            }
            self.left.push(contents);
            if self.rows.remove(slot, contents) {
                continue;
            }
            if self.rows.shown(slot) == NONE {
                // The sink may have the row of a time when nothing was kept in front of it. To delete what is not there does
                // no harm.
                self.touch(slot).passed = contents;
            } else {
                self.unknown += 1;
            }
        }
        self.emit(block.arrival_ns, out)?;
        self.settle();
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Vec<StateTable>, OperatorError> {
        let (mut tables, mut hashes, mut contents) = (Vec::new(), Vec::new(), Vec::new());
        let slots = self.keys.slots();
        for (nth, slot) in slots.iter().enumerate() {
            self.rows.list(*slot, &mut contents);
            hashes.resize(contents.len(), self.keys.hash(*slot));
            if contents.len() >= SNAPSHOT_ROWS || nth + 1 == slots.len() {
                let name = if tables.is_empty() { "rows".to_string() } else { format!("rows {}", tables.len()) };
                tables.push(StateTable::keyed(name, std::mem::take(&mut hashes), self.contents.keys(&contents)?)?);
                contents.clear();
            }
        }
        Ok(tables)
    }

    fn restore(&mut self, tables: Vec<StateTable>) -> Result<(), OperatorError> {
        for table in tables {
            self.intern(&RecordBatch::try_new(self.schema.clone(), table.columns().to_vec())?)?;
            for (slot, contents) in self.key_slots.slots.iter().zip(&self.content_slots.slots) {
                // They come in the order in which they arrived.
                self.rows.add(*slot, *contents);
            }
        }
        Ok(())
    }

    fn stats(&self) -> OperatorStats {
        let tables = self.keys.memory() + self.contents.memory();
        let block = self.touched.capacity() * size_of::<Touch>() + self.marks.memory() + self.left.capacity() * 4;
        let memory = (tables + self.rows.memory() + block) as u64;
        OperatorStats { entries: self.rows.len() as u64, memory, unknown_rows: self.unknown, ..OperatorStats::default() }
    }
}

#[cfg(test)]
mod tests;
