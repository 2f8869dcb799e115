//! Messages to rows: what they say is decoded, and what is known of them beside goes into metadata columns.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Int32Array, RecordBatch, RecordBatchOptions, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, SchemaRef};
use tidemill_connect::{ConnectError, ReadRequest, Rows};
use tidemill_format::BadRecord;
use tidemill_format::message::{MessageDecoder, MessageFormat, Place};

use crate::inbox::{Entry, Parcel};

/// The key of the metadata column that a sink can write, too.
pub const TOPIC: &str = "topic";

/// The keys and types of the metadata columns.
pub fn metadata_columns() -> Vec<(&'static str, DataType)> {
    vec![(TOPIC, DataType::Utf8), ("qos", DataType::Int32), ("retained", DataType::Boolean)]
}

#[derive(Clone, Copy)]
enum Key {
    Topic,
    Quality,
    Retained,
}

/// Makes rows of messages.
pub struct RowMaker {
    schema: SchemaRef,
    decoder: Box<dyn MessageDecoder>,
    /// A message without content is no row; otherwise it is an empty value.
    empty_is_null: bool,
    metadata: Vec<(Key, FieldRef)>,
    places: Vec<Place>,
    /// The entry of each of them.
    numbers: Vec<u32>,
}

impl RowMaker {
    /// For a request.
    ///
    /// # Errors
    /// A column that the format cannot read, or metadata that messages do not have.
    pub fn new(format: &MessageFormat, request: &ReadRequest) -> Result<Self, ConnectError> {
        let metadata = request.metadata.iter().map(|(key, field)| {
            let key = match key.as_str() {
                TOPIC => Key::Topic,
                "qos" => Key::Quality,
                "retained" => Key::Retained,
                other => return Err(ConnectError::new(format!("messages of MQTT have no metadata column '{other}'"))),
            };
            Ok((key, field.clone()))
        });
        Ok(RowMaker {
            schema: request.schema(),
            decoder: format.decoder(&request.physical, &request.projection)?,
            empty_is_null: format.name() != "raw",
            metadata: metadata.collect::<Result<_, _>>()?,
            places: Vec::new(),
            numbers: Vec::new(),
        })
    }

    /// The rows of the messages `from` to `to` of a parcel.
    ///
    /// # Errors
    /// What is no fault of a message.
    pub fn make(&mut self, parcel: &Parcel, from: usize, to: usize) -> Result<Rows, ConnectError> {
        let entries = &parcel.entries[from..to];
        self.places.clear();
        self.numbers.clear();
        for (number, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.cut.is_none()) {
            let null = self.empty_is_null && entry.payload.length == 0;
            self.places.push(if null { Place { from: 0, length: -1 } } else { entry.payload });
            self.numbers.push(number as u32);
        }
        self.decoder.push_all(&parcel.bytes, &self.places);
        let messages = self.decoder.take()?;
        let rows = messages.batch.num_rows();
        let mut columns: Vec<ArrayRef> = messages.batch.columns().to_vec();
        for (key, field) in &self.metadata {
            let entry_of = |row: usize| {
                let message = messages.origins.as_ref().map_or(row, |origins| origins[row] as usize);
                &entries[self.numbers[message] as usize]
            };
            columns.push(metadata(*key, field, (0..rows).map(entry_of), &parcel.bytes)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map_err(|e| ConnectError::new(format!("putting together the rows of messages: {e}")))?;
        let bytes: u64 = entries.iter().map(|entry| entry.payload.length as u64).sum();
        let mut made = Rows::good(batch, parcel.arrival_ns, bytes);
        made.kinds = messages.kinds;
        let long = entries.iter().enumerate().filter_map(|(number, entry)| {
            let why = format!("a message of {} bytes is longer than 'max-message-size'", entry.cut?);
            Some((number, why))
        });
        let mut bad: Vec<(usize, String)> =
            messages.bad.into_iter().map(|(message, why)| (self.numbers[message as usize] as usize, why)).chain(long).collect();
        bad.sort_by_key(|(number, _)| *number);
        for (number, reason) in bad {
            let entry = &entries[number];
            let record = parcel.first + (from + number) as u64;
            let raw = entry.payload.of(&parcel.bytes).unwrap_or_default().to_vec();
            made.bad.push(BadRecord { record, offset: 0, reason, raw });
            made.places.push(format!("{} message {record}", topic(entry, &parcel.bytes)));
        }
        Ok(made)
    }
}

/// The topic of a message, which was found to be UTF-8 when it came.
fn topic<'a>(entry: &Entry, bytes: &'a [u8]) -> &'a str {
    entry.topic.of(bytes).and_then(|topic| std::str::from_utf8(topic).ok()).unwrap_or_default()
}

/// A metadata column of the type that the table declares.
fn metadata<'a>(key: Key, field: &FieldRef, entries: impl Iterator<Item = &'a Entry>, bytes: &[u8]) -> Result<ArrayRef, ConnectError> {
    let array: ArrayRef = match key {
        Key::Topic => Arc::new(StringArray::from_iter_values(entries.map(|entry| topic(entry, bytes)))),
        Key::Quality => Arc::new(Int32Array::from_iter_values(entries.map(|entry| entry.quality.into()))),
        Key::Retained => Arc::new(entries.map(|entry| Some(entry.retained)).collect::<BooleanArray>()),
    };
    if array.data_type() == field.data_type() {
        return Ok(array);
    }
    cast(&array, field.data_type()).map_err(|e| ConnectError::new(format!("metadata column '{}': {e}", field.name())))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use arrow::array::{Array, AsArray};
    use arrow::datatypes::{Field, Int32Type, Int64Type, Schema};
    use tidemill_format::options::RawOptions;

    use super::*;

    /// A parcel whose messages are of the topic `t`.
    fn parcel(payloads: &[&str], cut: Option<usize>) -> Parcel {
        let mut parcel = Parcel { bytes: b"t".to_vec(), first: 10, ..Parcel::default() };
        for (number, payload) in payloads.iter().enumerate() {
            let place = Place { from: parcel.bytes.len() as u32, length: payload.len() as i32 };
            parcel.bytes.extend_from_slice(payload.as_bytes());
            let cut = (cut == Some(number)).then_some(4711);
            parcel.entries.push(Entry { topic: Place { from: 0, length: 1 }, payload: place, quality: 1, retained: number == 0, cut });
        }
        parcel
    }

    fn maker(format: &str, metadata: &[(&str, DataType)]) -> RowMaker {
        let mut raw = RawOptions::new("table 't'", BTreeMap::from([("format".to_string(), format.to_string())]));
        let format = MessageFormat::take(&mut raw, "").unwrap().unwrap();
        let physical: SchemaRef = match format.name() {
            "raw" => Arc::new(Schema::new(vec![Field::new("v", DataType::Utf8, true)])),
            _ => Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, true)])),
        };
        let mut request = ReadRequest::all(physical);
        request.metadata = metadata.iter().map(|(key, t)| (key.to_string(), Arc::new(Field::new(*key, t.clone(), true)))).collect();
        RowMaker::new(&format, &request).unwrap()
    }

    #[test]
    fn bad_messages_stand_beside_the_good_ones() {
        let wanted = [("topic", DataType::Utf8), ("qos", DataType::Int32), ("retained", DataType::Boolean)];
        let all = parcel(&["{\"k\":1}", "oops", "[{\"k\":2},{\"k\":3}]", "", "{\"k\"", "{\"k\":4}"], Some(4));
        let rows = maker("json", &wanted).make(&all, 0, 6).unwrap();
        assert_eq!(rows.batch.column(0).as_primitive::<Int64Type>().values(), &[1, 2, 3, 4]);
        assert!(rows.batch.column(1).as_string::<i32>().iter().all(|topic| topic == Some("t")));
        assert_eq!(rows.batch.column(2).as_primitive::<Int32Type>().values(), &[1; 4]);
        let retained: Vec<_> = rows.batch.column(3).as_boolean().iter().flatten().collect();
        assert_eq!(retained, [true, false, false, false]);
        assert_eq!(rows.places, ["t message 11", "t message 14"]);
        assert_eq!(rows.bad[0].raw, b"oops");
        assert!(rows.bad[1].reason.contains("4711 bytes"), "{}", rows.bad[1].reason);
    }

    #[test]
    fn parts_of_a_parcel() {
        let all = parcel(&["{\"k\":1}", "x", "{\"k\":2}"], None);
        let rows = maker("json", &[("retained", DataType::Utf8)]).make(&all, 1, 3).unwrap();
        assert_eq!(rows.batch.column(0).as_primitive::<Int64Type>().values(), &[2]);
        assert_eq!(rows.batch.column(1).as_string::<i32>().value(0), "false");
        assert_eq!(rows.places, ["t message 11"]);
    }

    #[test]
    fn an_empty_message_is_a_raw_value() {
        let rows = maker("raw", &[]).make(&parcel(&["", "a"], None), 0, 2).unwrap();
        let values = rows.batch.column(0).as_string::<i32>();
        assert_eq!((values.null_count(), values.value(0), values.value(1)), (0, "", "a"));
        assert_eq!(maker("json", &[]).make(&parcel(&[""], None), 0, 1).unwrap().batch.num_rows(), 0);
    }
}
