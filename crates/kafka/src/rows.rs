//! Messages to rows: key and value are decoded apart and put together again column by column.
//!
//! Where every message is one good row, which is nearly always, the decoders' columns are used as they
//! are. Otherwise (tombstones, bad messages, formats with several rows a message) each row is described
//! by the numbers of its message and of its rows in value and key, and columns are gathered by these.

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array, make_array};
use arrow::compute::{concat, take};
use arrow::datatypes::{DataType, SchemaRef};
use tidemill_block::{RowKind, clock};
use tidemill_connect::{ConnectError, ReadRequest, Rows};
use tidemill_format::BadRecord;
use tidemill_format::message::{MessageDecoder, Messages};

use crate::layout::{Layout, Part};
use crate::metadata::Metadata;
use crate::taken::{Message as _, Taken};

/// Makes rows of messages.
pub struct RowMaker {
    schema: SchemaRef,
    key: Option<Box<dyn MessageDecoder>>,
    value: Box<dyn MessageDecoder>,
    metadata: Metadata,
    /// A null value deletes the row of its key.
    upsert: bool,
    /// The columns wanted: from the key or not, and which of the decoder's.
    columns: Vec<(bool, usize)>,
}

/// A row to be put together.
#[derive(Clone, Copy)]
struct Line {
    message: u32,
    value: Option<u32>,
    key: Option<u32>,
    kind: RowKind,
}

impl RowMaker {
    /// For a request.
    ///
    /// # Errors
    /// A column that a format cannot read, or metadata that messages do not have.
    pub fn new(layout: &Layout, request: &ReadRequest, upsert: bool) -> Result<Self, ConnectError> {
        let (mut of_key, mut of_value, mut columns) = (Vec::new(), Vec::new(), Vec::new());
        let place = |part: &Part, index: usize| part.columns.iter().position(|c| *c == index);
        for wanted in &request.projection {
            let key = layout.key.as_ref().and_then(|part| place(part, *wanted));
            // A tombstone has its key only; otherwise the value is preferred, as in Flink.
            match (key, place(&layout.value, *wanted)) {
                (Some(at), _) if upsert => push(&mut columns, &mut of_key, true, at),
                (_, Some(at)) => push(&mut columns, &mut of_value, false, at),
                (Some(at), None) => push(&mut columns, &mut of_key, true, at),
                (None, None) => return Err(ConnectError::new("internal error: a column that is neither in key nor in value")),
            }
        }
        let decoded = |part: &Part, wanted: &[usize]| part.format.decoder(&part.schema, wanted);
        let key = match &layout.key {
            Some(part) if upsert || !of_key.is_empty() => Some(decoded(part, &of_key)?),
            _ => None,
        };
        let value = decoded(&layout.value, &of_value)?;
        Ok(RowMaker { schema: request.schema(), key, value, metadata: Metadata::of(request)?, upsert, columns })
    }

    /// The rows of those messages of a batch that have these numbers, in order.
    ///
    /// # Errors
    /// What is no fault of a message.
    pub fn make<T: Taken>(&mut self, batch: &T, numbers: &[u32]) -> Result<Rows, ConnectError> {
        let arrival_ns = clock::now_ns();
        let mut tombstones = Vec::new();
        let bytes = match self.upsert {
            true => self.push_upserts(batch, numbers, &mut tombstones),
            false => batch.push(numbers, &mut *self.value, self.key.as_deref_mut()),
        };
        let values = self.value.take()?;
        let keys = self.key.as_mut().map(|decoder| decoder.take()).transpose()?;
        let simple = |m: &Messages| m.origins.is_none() && m.bad.is_empty();
        if tombstones.is_empty() && simple(&values) && keys.as_ref().is_none_or(simple) {
            return self.straight(batch, numbers, values, keys, arrival_ns, bytes as u64);
        }
        let (lines, bad) = self.lines(numbers.len() as u32, &values, keys.as_ref(), &tombstones);
        let mut rows = self.gathered(batch, numbers, &lines, &values, keys.as_ref(), arrival_ns)?;
        rows.bytes = bytes as u64;
        for (message, reason) in bad {
            let entry = batch.get(numbers[message as usize] as usize);
            let raw = entry.value().or(entry.key()).unwrap_or_default().to_vec();
            rows.bad.push(BadRecord { record: entry.offset() as u64, offset: 0, reason, raw });
            rows.places.push(format!("{}:{}@{}", entry.topic(), entry.partition(), entry.offset()));
        }
        Ok(rows)
    }

    /// Gives messages to the decoders. Where tombstones delete, they are not the value format's affair.
    fn push_upserts<T: Taken>(&mut self, batch: &T, numbers: &[u32], tombstones: &mut Vec<u32>) -> usize {
        let mut bytes = 0;
        for (i, number) in numbers.iter().enumerate() {
            let message = batch.get(*number as usize);
            let (key, value) = (message.key(), message.value());
            bytes += key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len);
            if let Some(decoder) = &mut self.key {
                decoder.push(key);
            }
            match value {
                None => tombstones.push(i as u32),
                value => self.value.push(value),
            }
        }
        bytes
    }

    /// Every message is a row.
    fn straight<T: Taken>(
        &self,
        batch: &T,
        numbers: &[u32],
        values: Messages,
        keys: Option<Messages>,
        arrival_ns: u64,
        bytes: u64,
    ) -> Result<Rows, ConnectError> {
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        for (of_key, index) in &self.columns {
            let source = if *of_key { &keys.as_ref().expect("decoded, since a column is of it").batch } else { &values.batch };
            columns.push(source.column(*index).clone());
        }
        if !self.metadata.is_empty() {
            columns.extend(self.metadata.arrays(batch, numbers)?);
        }
        let mut rows = Rows::good(self.batch(columns, numbers.len())?, arrival_ns, bytes);
        rows.kinds = values.kinds;
        Ok(rows)
    }

    /// The rows in order of their messages, and the bad messages.
    fn lines(&self, messages: u32, values: &Messages, keys: Option<&Messages>, tombstones: &[u32]) -> (Vec<Line>, Vec<(u32, String)>) {
        // The number of a message among those that the value's decoder got, and back.
        let pushed: Vec<u32> = match tombstones {
            [] => (0..messages).collect(),
            gone => (0..messages).filter(|m| gone.binary_search(m).is_err()).collect(),
        };
        let mut reasons: Vec<(u32, String)> = values.bad.iter().map(|(m, why)| (pushed[*m as usize], why.clone())).collect();
        let mut key_rows: Vec<Option<u32>> = vec![None; if keys.is_some() { messages as usize } else { 0 }];
        let mut key_bad = vec![false; key_rows.len()];
        if let Some(keys) = keys {
            for row in 0..keys.batch.num_rows() as u32 {
                let message = keys.origins.as_ref().map_or(row, |o| o[row as usize]);
                key_rows[message as usize] = Some(row);
            }
            for (message, why) in &keys.bad {
                key_bad[*message as usize] = true;
                reasons.push((*message, format!("key: {why}")));
            }
        }
        let needs_key = self.columns.iter().enumerate().any(|(at, (of_key, _))| *of_key && !self.schema.field(at).is_nullable());
        let mut lines: Vec<Line> = Vec::with_capacity(messages as usize);
        let mut without_key = Vec::new();
        let mut add = |message: u32, value: Option<u32>, kind: RowKind| {
            let key = match keys {
                None => None,
                Some(_) if key_bad[message as usize] => return,
                Some(_) => key_rows[message as usize],
            };
            if keys.is_some() && key.is_none() && (self.upsert || needs_key) {
                without_key.push(message);
                return;
            }
            lines.push(Line { message, value, key, kind });
        };
        let mut gone = tombstones.iter().copied().peekable();
        for row in 0..values.batch.num_rows() as u32 {
            let message = pushed[values.origins.as_ref().map_or(row, |o| o[row as usize]) as usize];
            while let Some(deleted) = gone.next_if(|t| *t < message) {
                add(deleted, None, RowKind::Delete);
            }
            add(message, Some(row), values.kinds.as_ref().map_or(RowKind::Insert, |k| k[row as usize]));
        }
        for deleted in gone {
            add(deleted, None, RowKind::Delete);
        }
        without_key.dedup();
        reasons.extend(without_key.into_iter().map(|m| (m, "the message has no key".to_string())));
        reasons.sort();
        reasons.dedup_by_key(|(message, _)| *message);
        (lines, reasons)
    }

    /// The rows that these lines describe.
    fn gathered<T: Taken>(
        &self,
        batch: &T,
        numbers: &[u32],
        lines: &[Line],
        values: &Messages,
        keys: Option<&Messages>,
        arrival_ns: u64,
    ) -> Result<Rows, ConnectError> {
        let value_rows: UInt32Array = lines.iter().map(|l| l.value).collect();
        let key_rows: UInt32Array = lines.iter().map(|l| l.key).collect();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        for (at, (of_key, index)) in self.columns.iter().enumerate() {
            let (source, rows) = match (of_key, keys) {
                (true, Some(keys)) => (keys.batch.column(*index), &key_rows),
                _ => (values.batch.column(*index), &value_rows),
            };
            columns.push(gather(source, rows, self.schema.field(at).is_nullable())?);
        }
        if !self.metadata.is_empty() {
            let messages: Vec<u32> = lines.iter().map(|l| numbers[l.message as usize]).collect();
            columns.extend(self.metadata.arrays(batch, &messages)?);
        }
        let mut rows = Rows::good(self.batch(columns, lines.len())?, arrival_ns, 0);
        rows.kinds = lines.iter().any(|l| l.kind != RowKind::Insert).then(|| lines.iter().map(|l| l.kind).collect());
        Ok(rows)
    }

    fn batch(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, ConnectError> {
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &RecordBatchOptions::new().with_row_count(Some(rows)))
            .map_err(|e| ConnectError::new(format!("putting together the rows of messages: {e}")))
    }
}

/// Wants column `at` of a part; `true` for that of the key.
fn push(columns: &mut Vec<(bool, usize)>, part: &mut Vec<usize>, of_key: bool, at: usize) {
    columns.push((of_key, part.len()));
    part.push(at);
}

/// The values at these rows. Where there is no row and no NULL may stand (a deletion tells its key only),
/// the type's own zero does, which nobody reads.
fn gather(source: &ArrayRef, rows: &UInt32Array, nullable: bool) -> Result<ArrayRef, ConnectError> {
    let wrong = |e: arrow::error::ArrowError| ConnectError::new(format!("putting together the rows of messages: {e}"));
    if nullable || rows.null_count() == 0 {
        return take(source, rows, None).map_err(wrong);
    }
    let with_zero = concat(&[source.as_ref(), zero(source.data_type())?.as_ref()]).map_err(wrong)?;
    let last = source.len() as u32;
    let rows: UInt32Array = rows.iter().map(|row| row.unwrap_or(last)).map(Some).collect();
    take(&with_zero, &rows, None).map_err(wrong)
}

/// One value of a type: 0, an empty text, an empty list.
fn zero(data_type: &DataType) -> Result<ArrayRef, ConnectError> {
    let null = arrow::array::ArrayData::new_null(data_type, 1);
    let value = null.into_builder().nulls(None).build();
    let value = value.map_err(|e| ConnectError::new(format!("a value of type {data_type} for a deleted row: {e}")))?;
    Ok(make_array(value))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, StringArray};

    use super::*;

    #[test]
    fn deleted_rows_have_zeros_where_null_may_not_stand() {
        let source: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
        let rows = UInt32Array::from(vec![Some(1), None, Some(0)]);
        let got = gather(&source, &rows, false).unwrap();
        assert_eq!(got.as_ref(), &StringArray::from(vec!["b", "", "a"]) as &dyn Array);
        let got = gather(&source, &rows, true).unwrap();
        assert_eq!(got.as_ref(), &StringArray::from(vec![Some("b"), None, Some("a")]) as &dyn Array);
        let source: ArrayRef = Arc::new(Int64Array::from(vec![7]));
        let got = gather(&source, &UInt32Array::from(vec![None, Some(0)]), false).unwrap();
        assert_eq!(got.as_ref(), &Int64Array::from(vec![0, 7]) as &dyn Array);
    }
}
