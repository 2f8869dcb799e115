//! The metadata columns of messages: topic, partition, offset, timestamp, headers and more. Those that a
//! sink can write are `timestamp` and `headers`.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BinaryBuilder, Int32Array, Int64Array, MapArray, StringArray, StringBuilder, StructArray,
    TimestampMillisecondArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, SchemaRef, TimeUnit};
use tidemill_connect::{ConnectError, ReadRequest};

use crate::taken::{Message, Taken};

/// Keys that a sink can write.
pub const WRITABLE: &[&str] = &["timestamp", "headers"];

/// The keys and types of the columns.
pub fn columns() -> Vec<(&'static str, DataType)> {
    vec![
        ("topic", DataType::Utf8),
        ("partition", DataType::Int32),
        ("offset", DataType::Int64),
        ("timestamp", DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()))),
        ("timestamp-type", DataType::Utf8),
        ("headers", headers_type()),
        ("leader-epoch", DataType::Int32),
    ]
}

/// MAP<STRING, BYTES>.
fn headers_type() -> DataType {
    let entries = Fields::from(vec![Field::new("keys", DataType::Utf8, false), Field::new("values", DataType::Binary, true)]);
    DataType::Map(Arc::new(Field::new("entries", DataType::Struct(entries), false)), false)
}

#[derive(Clone, Copy)]
enum Key {
    Topic,
    Partition,
    Offset,
    Timestamp,
    TimestampType,
    Headers,
    LeaderEpoch,
}

/// The metadata columns that a request wants.
pub struct Metadata {
    wanted: Vec<(Key, FieldRef)>,
}

impl Metadata {
    /// Those of `request`.
    ///
    /// # Errors
    /// A key that messages do not have.
    pub fn of(request: &ReadRequest) -> Result<Self, ConnectError> {
        let wanted = request.metadata.iter().map(|(key, field)| {
            let key = match key.as_str() {
                "topic" => Key::Topic,
                "partition" => Key::Partition,
                "offset" => Key::Offset,
                "timestamp" => Key::Timestamp,
                "timestamp-type" => Key::TimestampType,
                "headers" => Key::Headers,
                "leader-epoch" => Key::LeaderEpoch,
                other => {
                    let known: Vec<_> = columns().into_iter().map(|(key, _)| key).collect();
                    return Err(ConnectError::new(format!(
                        "messages of Kafka have no metadata column '{other}'; there are: {}",
                        known.join(", ")
                    )));
                }
            };
            Ok((key, field.clone()))
        });
        Ok(Metadata { wanted: wanted.collect::<Result<_, _>>()? })
    }

    /// Whether none is wanted.
    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// The columns, with a row for each of these messages.
    ///
    /// # Errors
    /// A declared type that the value cannot be turned into.
    pub fn arrays<T: Taken>(&self, batch: &T, messages: &[u32]) -> Result<Vec<ArrayRef>, ConnectError> {
        let entries = move || messages.iter().map(move |i| batch.get(*i as usize));
        let mut arrays = Vec::with_capacity(self.wanted.len());
        for (key, field) in &self.wanted {
            let array: ArrayRef = match key {
                Key::Topic => Arc::new(StringArray::from_iter_values(entries().map(|e| e.topic()))),
                Key::Partition => Arc::new(Int32Array::from_iter_values(entries().map(|e| e.partition()))),
                Key::Offset => Arc::new(Int64Array::from_iter_values(entries().map(|e| e.offset()))),
                Key::Timestamp => Arc::new(TimestampMillisecondArray::from_iter(entries().map(|e| e.timestamp().0)).with_timezone("UTC")),
                Key::TimestampType => Arc::new(StringArray::from_iter_values(entries().map(|e| e.timestamp().1))),
                Key::LeaderEpoch => Arc::new(Int32Array::from_iter(entries().map(|e| e.leader_epoch()))),
                Key::Headers => headers(entries(), field.data_type())?,
            };
            let doing = |e: arrow::error::ArrowError| ConnectError::new(format!("metadata column '{}': {e}", field.name()));
            arrays.push(if array.data_type() == field.data_type() { array } else { cast(&array, field.data_type()).map_err(doing)? });
        }
        Ok(arrays)
    }
}

/// Whether a type is that of headers, whatever the names within.
fn holds_headers(data_type: &DataType) -> bool {
    let DataType::Map(entries, _) = data_type else { return false };
    let DataType::Struct(pair) = entries.data_type() else { return false };
    pair.len() == 2 && *pair[0].data_type() == DataType::Utf8 && *pair[1].data_type() == DataType::Binary && pair[1].is_nullable()
}

fn headers<'a>(entries: impl Iterator<Item = impl Message<'a>>, declared: &DataType) -> Result<ArrayRef, ConnectError> {
    let (mut names, mut values, mut lengths) = (StringBuilder::new(), BinaryBuilder::new(), Vec::new());
    for entry in entries {
        let mut count = 0;
        entry.headers(|name, value| {
            names.append_value(String::from_utf8_lossy(name));
            values.append_option(value);
            count += 1;
        });
        lengths.push(count);
    }
    let data_type = if holds_headers(declared) { declared.clone() } else { headers_type() };
    let DataType::Map(field, ordered) = data_type else { unreachable!("a map") };
    let DataType::Struct(fields) = field.data_type() else { unreachable!("a map has entries") };
    let wrong = |e: arrow::error::ArrowError| ConnectError::new(format!("metadata column 'headers': {e}"));
    let pairs: Vec<ArrayRef> = vec![Arc::new(names.finish()), Arc::new(values.finish())];
    let pairs = StructArray::try_new(fields.clone(), pairs, None).map_err(wrong)?;
    let map = MapArray::try_new(field.clone(), OffsetBuffer::from_lengths(lengths), pairs, None, ordered).map_err(wrong)?;
    Ok(Arc::new(map))
}

/// The metadata columns of a sink: indices among its columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The message's time.
    pub timestamp: Option<usize>,
    /// The message's headers.
    pub headers: Option<usize>,
}

impl Written {
    /// Checks that the columns have types that can be written.
    ///
    /// # Errors
    /// Names the column and what its type should be.
    pub fn check(&self, schema: &SchemaRef) -> Result<(), String> {
        if let Some(field) = self.timestamp.map(|i| schema.field(i))
            && !matches!(field.data_type(), DataType::Timestamp(..))
        {
            return Err(format!("column '{}' FROM 'timestamp': expected TIMESTAMP_LTZ(3) or TIMESTAMP(3)", field.name()));
        }
        if let Some(field) = self.headers.map(|i| schema.field(i))
            && !holds_headers(field.data_type())
        {
            return Err(format!("column '{}' FROM 'headers': expected MAP<STRING, BYTES>", field.name()));
        }
        Ok(())
    }
}

/// Times of messages to be written: ms, none where the column is null.
pub struct Times(TimestampMillisecondArray);

impl Times {
    /// Of a column.
    ///
    /// # Errors
    /// Not one of times.
    pub fn of(column: &ArrayRef) -> Result<Self, ConnectError> {
        let wrong = |e: arrow::error::ArrowError| ConnectError::new(format!("writing the metadata column 'timestamp': {e}"));
        let zone = if let DataType::Timestamp(_, zone) = column.data_type() { zone.clone() } else { None };
        let ms = cast(column, &DataType::Timestamp(TimeUnit::Millisecond, zone)).map_err(wrong)?;
        let ms = ms.as_any().downcast_ref::<TimestampMillisecondArray>().expect("cast to it").clone();
        Ok(Times(ms))
    }

    /// Of a row.
    #[inline]
    pub fn get(&self, row: usize) -> Option<i64> {
        self.0.is_valid(row).then(|| self.0.value(row))
    }
}

/// Headers of messages to be written.
pub struct Headers {
    map: MapArray,
    names: StringArray,
    values: BinaryArray,
}

impl Headers {
    /// Of a column that [`Written::check`] has found right.
    ///
    /// # Errors
    /// Not a map of text to bytes.
    pub fn of(column: &ArrayRef) -> Result<Self, ConnectError> {
        let wrong = || ConnectError::new("writing the metadata column 'headers': expected MAP<STRING, BYTES>");
        let map = column.as_any().downcast_ref::<MapArray>().ok_or_else(wrong)?.clone();
        let names = map.keys().as_any().downcast_ref::<StringArray>().ok_or_else(wrong)?.clone();
        let values = map.values().as_any().downcast_ref::<BinaryArray>().ok_or_else(wrong)?.clone();
        Ok(Headers { map, names, values })
    }

    /// Of a row.
    pub fn get(&self, row: usize) -> impl Iterator<Item = (&str, Option<&[u8]>)> {
        let offsets = self.map.value_offsets();
        let range = if self.map.is_null(row) { 0..0 } else { offsets[row] as usize..offsets[row + 1] as usize };
        range.map(move |i| (self.names.value(i), self.values.is_valid(i).then(|| self.values.value(i))))
    }
}
