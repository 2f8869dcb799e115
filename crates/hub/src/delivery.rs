//! Rows on their way to subscribers, shared by all of them.

use std::any::{Any, TypeId};
use std::sync::{Arc, Mutex};

use arrow::array::{Array, ArrayRef, Int8Array, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use tidemill_block::RowKind;

use crate::stream::ROW_KIND;

/// The answer to a subscriber.
#[derive(Clone, Debug)]
pub enum Received {
    /// Some rows.
    Rows(Arc<Delivery>),
    /// Nothing at the moment; the waker will be called.
    Pending,
    /// The job that writes the stream has read all of its input, and everything was handed over.
    End,
}

/// Rows for subscribers: one value however many there are.
pub struct Delivery {
    /// The columns, and `row_kind` if rows are updated.
    pub batch: RecordBatch,
    /// The number of the row after the last of these.
    pub next_offset: u64,
    /// The rows are a part of the contents with which the subscriber began.
    pub snapshot: bool,
    /// When the input that these rows come from arrived ([`tidemill_block::clock::now_ns`]); 0 if that
    /// is not known.
    pub arrival_ns: u64,
    /// Bytes in memory.
    pub(crate) bytes: u64,
    cache: Mutex<Vec<(TypeId, Arc<dyn Any + Send + Sync>)>>,
}

impl Delivery {
    pub(crate) fn new(batch: RecordBatch, next_offset: u64, snapshot: bool, arrival_ns: u64) -> Self {
        let bytes = memory(&batch);
        Delivery { batch, next_offset, snapshot, arrival_ns, bytes, cache: Mutex::default() }
    }

    /// The number of the first row.
    pub(crate) fn first(&self) -> u64 {
        self.next_offset - self.batch.num_rows() as u64
    }

    /// The rows from number `offset` on.
    pub(crate) fn tail(&self, offset: u64) -> Self {
        let skip = (offset - self.first()) as usize;
        Delivery::new(self.batch.slice(skip, self.batch.num_rows() - skip), self.next_offset, self.snapshot, self.arrival_ns)
    }

    /// So many of the rows, from the row `at` on. What is made of them is not shared.
    pub fn part(&self, at: usize, rows: usize) -> Self {
        // Rows of contents have no numbers.
        let next = if self.snapshot { self.next_offset } else { self.first() + (at + rows) as u64 };
        Delivery::new(self.batch.slice(at, rows), next, self.snapshot, self.arrival_ns)
    }

    /// What `make` makes of the rows, made once for all subscribers; others wait meanwhile. There is one
    /// value of each type: two encodings need two types. `make` must not call this again.
    pub fn cached<T: Send + Sync + 'static>(&self, make: impl FnOnce(&RecordBatch) -> T) -> Arc<T> {
        let mut cache = self.cache.lock().expect("no panic while held");
        if let Some((_, there)) = cache.iter().find(|(id, _)| *id == TypeId::of::<T>()) {
            return there.clone().downcast().expect("found by its type");
        }
        let made = Arc::new(make(&self.batch));
        cache.push((TypeId::of::<T>(), made.clone()));
        made
    }
}

impl std::fmt::Debug for Delivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Delivery({} rows before {}, snapshot: {})", self.batch.num_rows(), self.next_offset, self.snapshot)
    }
}

/// Bytes of the rows themselves, where columns may be slices of larger ones.
pub(crate) fn memory(batch: &RecordBatch) -> u64 {
    let bytes = |c: &ArrayRef| c.to_data().get_slice_memory_size().unwrap_or_else(|_| c.get_array_memory_size());
    batch.columns().iter().map(bytes).sum::<usize>() as u64
}

/// The columns that subscribers get.
pub(crate) fn wire_schema(columns: &SchemaRef, updating: bool) -> SchemaRef {
    if !updating {
        return columns.clone();
    }
    let mut fields = columns.fields().to_vec();
    fields.push(Arc::new(Field::new(ROW_KIND, DataType::Int8, false)));
    Arc::new(Schema::new(fields))
}

/// Rows with their kinds as subscribers get them; without kinds all are new.
pub(crate) fn wire_batch(
    wire: &SchemaRef,
    batch: &RecordBatch,
    kinds: Option<&[RowKind]>,
    updating: bool,
) -> Result<RecordBatch, ArrowError> {
    let mut columns = batch.columns().to_vec();
    if updating {
        let codes: Int8Array = match kinds {
            Some(kinds) => kinds.iter().map(|k| *k as i8).collect::<Vec<_>>().into(),
            None => vec![RowKind::Insert as i8; batch.num_rows()].into(),
        };
        columns.push(Arc::new(codes));
    }
    // Names within nested types may differ between a query and a table.
    let options = RecordBatchOptions::new().with_match_field_names(false).with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(wire.clone(), columns, &options)
}
