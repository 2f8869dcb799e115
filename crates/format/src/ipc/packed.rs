//! Batches of peers whose columns have dictionaries or whose bodies are compressed, made plain. A few bytes may stand for
//! many, so what becomes of them is bounded before memory is taken for it.

use std::fmt;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::Buffer;
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::ipc;

use super::build::Columns;
use super::held::Held;
use super::layout::Layout;
use super::{malformed, reason};
use crate::FormatError;

/// What a batch, or all dictionaries together, may become unless more is borne, bytes.
pub(super) const BYTES_MAX: u64 = 64 << 20;

/// The columns of one peer as they travel.
pub(super) struct Packed {
    columns: Columns,
    bytes_max: u64,
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packed({} bytes at most)", self.bytes_max)
    }
}

impl Packed {
    /// Of what a schema says.
    pub fn new(held: Held) -> Self {
        let wanted = vec![true; held.schema.fields().len()];
        let mut packed = Packed { columns: Columns::new(held, wanted, false), bytes_max: 0 };
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
        let held = &self.columns.held.schema;
        if !self.has_dictionaries() {
            return held.clone();
        }
        let plain = |field: &FieldRef| match field.data_type() {
            DataType::Dictionary(_, value) => Field::new(field.name(), value.as_ref().clone(), field.is_nullable()).into(),
            _ => field.clone(),
        };
        Schema::new_with_metadata(held.fields().iter().map(plain).collect::<Vec<_>>(), held.metadata().clone()).into()
    }

    /// The columns of a batch, and its rows.
    ///
    /// # Errors
    /// What is wrong with it, or that too much would become of it.
    pub fn batch(&mut self, batch: &ipc::RecordBatch<'_>, body: &Buffer) -> Result<(Vec<ArrayRef>, usize), FormatError> {
        let layout = self.columns.layout(batch, body.len() as u64)?;
        let columns = self.columns.build(&layout, buffers(body, &layout))?;
        let mut left = self.bytes_max;
        let names = self.columns.held.schema.fields().iter().map(|field| field.name());
        let wrong = |name: &str, why| malformed(format!("column '{name}': {why}"));
        let values = columns.into_iter().zip(names).map(|(column, name)| plain(column, &mut left).map_err(|why| wrong(name, why)));
        Ok((values.collect::<Result<_, _>>()?, layout.rows))
    }

    /// Takes a dictionary.
    ///
    /// # Errors
    /// As [`Packed::batch`].
    pub fn dictionary(&mut self, dictionary: &ipc::DictionaryBatch<'_>, body: &Buffer) -> Result<(), FormatError> {
        // All columns are wanted, so there is a layout.
        let Some(layout) = self.columns.dictionary_layout(dictionary, body.len() as u64)? else { return Ok(()) };
        let buffers = buffers(body, &layout);
        self.columns.dictionary(dictionary.id(), dictionary.isDelta(), &layout, buffers)?;
        let bytes = self.columns.dictionary_bytes();
        if bytes > self.bytes_max {
            return Err(malformed(format!("its dictionaries take {bytes} bytes, more than the {} that are borne", self.bytes_max)));
        }
        Ok(())
    }
}

/// The parts of a body that a layout lists.
fn buffers(body: &Buffer, layout: &Layout) -> Vec<Buffer> {
    layout.buffers.iter().map(|part| body.slice_with_length(part.start as usize, (part.end - part.start) as usize)).collect()
}

/// A column with values in place of a dictionary; `left` bytes are borne, and fewer behind it.
fn plain(column: ArrayRef, left: &mut u64) -> Result<ArrayRef, String> {
    let DataType::Dictionary(..) = column.data_type() else { return Ok(column) };
    let bytes = expanded(&column)?;
    *left = left.checked_sub(bytes).ok_or_else(|| {
        format!("its values would take {bytes} bytes without the dictionary, more than is borne; send fewer rows at once")
    })?;
    let dictionary = column.as_any_dictionary();
    take(dictionary.values().as_ref(), dictionary.keys(), None).map_err(|e| reason(&e.to_string()).to_string())
}

/// The bytes of a column's values, about, if each row had its own.
fn expanded(column: &ArrayRef) -> Result<u64, String> {
    let dictionary = column.as_any_dictionary();
    let (values, rows) = (dictionary.values(), column.len() as u64);
    if values.is_empty() {
        // Then all of them are NULL.
        return Ok(rows * 8);
    }
    let offsets = |offsets: &[i32]| -> Vec<u64> { offsets.windows(2).map(|w| (w[1] - w[0]) as u64).collect() };
    let large = |offsets: &[i64]| -> Vec<u64> { offsets.windows(2).map(|w| (w[1] - w[0]) as u64).collect() };
    // The low half of a view is the length.
    let views = |views: &[u128]| -> Vec<u64> { views.iter().map(|view| u64::from(*view as u32) + 8).collect() };
    let lengths = match values.data_type() {
        DataType::Utf8 => offsets(values.as_string::<i32>().value_offsets()),
        DataType::Binary => offsets(values.as_binary::<i32>().value_offsets()),
        DataType::LargeUtf8 => large(values.as_string::<i64>().value_offsets()),
        DataType::LargeBinary => large(values.as_binary::<i64>().value_offsets()),
        DataType::Utf8View => views(&values.as_string_view().views()[..]),
        DataType::BinaryView => views(&values.as_binary_view().views()[..]),
        DataType::Boolean | DataType::Null => return Ok(rows),
        other => {
            let width = other.primitive_width().ok_or_else(|| format!("a dictionary of {other} is not taken"))?;
            return Ok(rows.saturating_mul(width as u64));
        }
    };
    // Those of NULLs may point anywhere; their lengths count all the same.
    let keys = dictionary.normalized_keys();
    Ok(keys.into_iter().fold(rows * 8, |sum, key| sum.saturating_add(lengths[key])))
}
