//! Batches of peers, made plain where their columns have dictionaries or their bodies are compressed. A few bytes may stand
//! for many, so what becomes of them is bounded before memory is taken for it.
//!
//! Dictionaries are copied out of the bodies in which they come, so that a small one keeps no large message, and are kept as
//! they are from batch to batch. In the columns that are built indices stand in their place.

use std::fmt;

use arrow::array::{Array, ArrayRef, new_empty_array};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::ipc;

use super::build::Columns;
use super::dictionary::Dictionary;
use super::held::Held;
use super::layout::Layout;
use super::malformed;
use crate::FormatError;

/// What a batch, or all dictionaries together, may become unless more is borne, bytes.
pub(super) const BYTES_MAX: u64 = 64 << 20;

/// The columns of one peer as they travel.
pub(super) struct Packed {
    /// With indices in place of dictionaries.
    columns: Columns,
    /// With values in place of dictionaries.
    plain: SchemaRef,
    bytes_max: u64,
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packed({} bytes at most)", self.bytes_max)
    }
}

impl Packed {
    /// Of what a schema says, which has dictionaries of whole columns alone.
    pub fn new(mut held: Held) -> Self {
        let wanted = vec![true; held.schema.fields().len()];
        let plain = with_types(&held.schema, |_, value| value);
        held.schema = with_types(&held.schema, |key, _| key);
        let mut packed = Packed { columns: Columns::new(held, wanted, false), plain, bytes_max: 0 };
        packed.limit(BYTES_MAX);
        packed
    }

    /// Bounds what becomes of a batch, and of all dictionaries together, bytes.
    pub fn limit(&mut self, bytes_max: u64) {
        self.bytes_max = bytes_max;
        self.columns.limit(bytes_max);
    }

    /// Whether there are dictionaries.
    pub fn has_dictionaries(&self) -> bool {
        self.columns.needs_dictionaries()
    }

    /// The columns as they come out: values in place of dictionaries.
    pub fn plain_schema(&self) -> SchemaRef {
        self.plain.clone()
    }

    /// The columns of a batch, and its rows.
    ///
    /// # Errors
    /// What is wrong with it, or that too much would become of it.
    pub fn batch(&mut self, batch: &ipc::RecordBatch<'_>, body: &Buffer) -> Result<(Vec<ArrayRef>, usize), FormatError> {
        let layout = self.columns.layout(batch, body.len() as u64)?;
        // What lies where its values may not is copied, so that a body would take its own length once more for each that points to it.
        // Nobody writes such.
        if bytes_of_parts(&layout) > body.len() as u64 {
            return Err(malformed("its buffers overlap"));
        }
        let buffers = layout.buffers.iter().map(|part| body.slice_with_length(part.start as usize, (part.end - part.start) as usize));
        let mut columns = self.columns.build(&layout, buffers.collect())?;
        let mut left = self.bytes_max;
        for (at, (column, field)) in columns.iter_mut().zip(self.plain.fields()).enumerate() {
            if let [id] = self.columns.held.ids(at) {
                let values = self.values(*id, column, field.data_type(), &mut left);
                *column = values.map_err(|why| malformed(format!("column '{}': {why}", field.name())))?;
            }
        }
        Ok((columns, layout.rows))
    }

    /// The values of a dictionary to which `keys` point; `left` bytes are borne, and fewer behind it.
    fn values(&self, id: i64, keys: &ArrayRef, data_type: &DataType, left: &mut u64) -> Result<ArrayRef, String> {
        match self.columns.dictionary_of(id) {
            Some(dictionary) => dictionary.plain(keys.as_ref(), left),
            // Where all values are NULL a writer may leave the dictionary out.
            None if keys.null_count() == keys.len() => Dictionary::new(new_empty_array(data_type)).plain(keys.as_ref(), left),
            None => Err(format!("its dictionary ({id}) has not come before its values")),
        }
    }

    /// Takes a dictionary.
    ///
    /// # Errors
    /// As [`Packed::batch`].
    pub fn dictionary(&mut self, dictionary: &ipc::DictionaryBatch<'_>, body: &Buffer) -> Result<(), FormatError> {
        // All columns are wanted, so there is a layout.
        let Some(layout) = self.columns.dictionary_layout(dictionary, body.len() as u64)? else { return Ok(()) };
        let (id, delta) = (dictionary.id(), dictionary.isDelta());
        if !delta {
            self.columns.forget(id);
        }
        // Parts may overlap, so together they may be longer than the body.
        self.bear(self.columns.dictionary_bytes().saturating_add(bytes_of_parts(&layout)))?;
        let buffers = copied(body, &layout);
        self.columns.dictionary(id, delta, &layout, buffers)?;
        self.bear(self.columns.dictionary_bytes())
    }

    /// Whether so many bytes of dictionaries are borne.
    fn bear(&self, bytes: u64) -> Result<(), FormatError> {
        if bytes <= self.bytes_max {
            return Ok(());
        }
        Err(malformed(format!(
            "its dictionaries take {bytes} bytes, and all of a connection may take no more than one message, which is {}; send the values \
             in place of dictionaries, or begin anew",
            self.bytes_max
        )))
    }
}

/// The columns, with what `choose` makes of the types of a dictionary's indices and values in place of each dictionary.
fn with_types(schema: &SchemaRef, choose: impl Fn(DataType, DataType) -> DataType) -> SchemaRef {
    let field = |field: &FieldRef| match field.data_type() {
        DataType::Dictionary(key, value) => {
            Field::new(field.name(), choose(key.as_ref().clone(), value.as_ref().clone()), field.is_nullable()).into()
        }
        _ => field.clone(),
    };
    Schema::new_with_metadata(schema.fields().iter().map(field).collect::<Vec<_>>(), schema.metadata().clone()).into()
}

/// Bytes of all parts of a body that a layout lists.
fn bytes_of_parts(layout: &Layout) -> u64 {
    layout.buffers.iter().fold(0, |sum: u64, part| sum.saturating_add(part.end - part.start))
}

/// The parts of a body that a layout lists, each in memory of its own.
fn copied(body: &Buffer, layout: &Layout) -> Vec<Buffer> {
    layout.buffers.iter().map(|part| Buffer::from(&body[part.start as usize..part.end as usize])).collect()
}
