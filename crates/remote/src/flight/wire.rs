//! Between batches and Flight messages.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::buffer::Buffer;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::reader::{RecordBatchDecoder, read_dictionary};
use arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use arrow::ipc::{MessageHeader, root_as_message};
use arrow_flight::{FlightData, SchemaAsIpc};
use tidemill_connect::ConnectError;

/// Messages from this size on reuse the length of the one before them: growing a buffer copies it.
const LARGE_BYTES: usize = 16 << 10;

/// Makes messages of batches.
pub struct Encoder {
    options: IpcWriteOptions,
    generator: IpcDataGenerator,
    tracker: DictionaryTracker,
    context: IpcWriteContext,
}

impl Encoder {
    /// An encoder for one stream.
    pub fn new() -> Self {
        Encoder {
            options: IpcWriteOptions::default(),
            generator: IpcDataGenerator::default(),
            tracker: DictionaryTracker::new(false),
            context: IpcWriteContext::default(),
        }
    }

    /// The message that says which columns follow.
    pub fn schema(&self, schema: &Schema) -> FlightData {
        SchemaAsIpc::new(schema, &self.options).into()
    }

    /// The message of a batch; `bytes` is its size, about.
    ///
    /// # Errors
    /// A column that is no plain one.
    pub fn encode(&mut self, batch: &RecordBatch, bytes: usize) -> Result<FlightData, ConnectError> {
        self.context.set_reserve_scratch(bytes >= LARGE_BYTES);
        let encoded = self.generator.encode(batch, &mut self.tracker, &self.options, &mut self.context);
        let (dictionaries, mut encoded) = encoded.map_err(|e| ConnectError::new(format!("encoding rows to publish them: {e}")))?;
        if !dictionaries.is_empty() {
            return Err(ConnectError::new("encoding rows to publish them: columns with dictionaries are not published; cast them first"));
        }
        // The buffer was reserved after the last message: a small one must not keep the memory of a large one.
        if encoded.arrow_data.capacity() > 2 * encoded.arrow_data.len() + LARGE_BYTES {
            encoded.arrow_data.shrink_to_fit();
        }
        Ok(encoded.into())
    }
}

/// Makes batches of messages.
pub struct Decoder {
    schema: SchemaRef,
    dictionaries: HashMap<i64, ArrayRef>,
}

impl Decoder {
    /// A decoder for what follows this schema.
    pub fn new(schema: SchemaRef) -> Self {
        Decoder { schema, dictionaries: HashMap::new() }
    }

    /// The batch of a message; `None` if it holds none.
    ///
    /// # Errors
    /// What is wrong with the message.
    pub fn decode(&mut self, data: FlightData) -> Result<Option<RecordBatch>, ArrowError> {
        if data.data_header.is_empty() {
            return Ok(None);
        }
        let message = root_as_message(&data.data_header).map_err(|e| ArrowError::IpcError(format!("the header cannot be read: {e}")))?;
        // Columns that happen to lie well are used in place, the others are copied one by one.
        let body = Buffer::from(data.data_body);
        if let Some(batch) = message.header_as_record_batch() {
            let version = message.version();
            let decoder = RecordBatchDecoder::try_new(&body, batch, self.schema.clone(), &self.dictionaries, &version)?;
            return decoder.read_record_batch().map(Some);
        }
        if let Some(dictionary) = message.header_as_dictionary_batch() {
            read_dictionary(&body, dictionary, &self.schema, &mut self.dictionaries, &message.version())?;
            return Ok(None);
        }
        match message.header_type() {
            MessageHeader::NONE => Ok(None),
            MessageHeader::Schema => Err(ArrowError::IpcError("a second schema in one stream".into())),
            other => Err(ArrowError::IpcError(format!("a message that is no rows: {}", other.variant_name().unwrap_or("unknown")))),
        }
    }
}

/// The schema in a stream's first message; `None` if it holds none.
///
/// # Errors
/// What is wrong with the message.
pub fn schema(data: &FlightData) -> Result<Option<SchemaRef>, ArrowError> {
    if data.data_header.is_empty() {
        return Ok(None);
    }
    Schema::try_from(data).map(|schema| Some(Arc::new(schema)))
}

/// How many rows a message holds, without decoding them; 0 if it holds none, or cannot be read.
pub fn rows(data: &FlightData) -> usize {
    let message = root_as_message(&data.data_header).ok();
    message.and_then(|m| m.header_as_record_batch()).map_or(0, |batch| usize::try_from(batch.length()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int32Array, StringArray};
    use arrow::datatypes::{DataType, Field};

    fn batch(rows: i32) -> RecordBatch {
        let numbers = Arc::new(Int32Array::from_iter((0..rows).map(|n| (n % 3 > 0).then_some(n)))) as ArrayRef;
        let texts = Arc::new(StringArray::from_iter_values((0..rows).map(|n| format!("text {n}")))) as ArrayRef;
        let schema = Schema::new(vec![Field::new("n", DataType::Int32, true), Field::new("t", DataType::Utf8, false)]);
        RecordBatch::try_new(Arc::new(schema), vec![numbers, texts]).unwrap()
    }

    #[test]
    fn batches_come_back() {
        let mut encoder = Encoder::new();
        let first = encoder.schema(&batch(0).schema());
        let mut decoder = Decoder::new(schema(&first).unwrap().unwrap());
        for rows in [1, 0, 20_000, 1, 3] {
            let batch = batch(rows);
            let message = encoder.encode(&batch, super::super::blocks::bytes(&batch)).unwrap();
            assert_eq!(super::rows(&message), rows as usize);
            assert_eq!(decoder.decode(message).unwrap().unwrap(), batch);
        }
        // A slice travels without its neighbours.
        let slice = batch(20_000).slice(19_990, 10);
        let message = encoder.encode(&slice, super::super::blocks::bytes(&slice)).unwrap();
        assert!(message.data_body.len() < 2_000, "{}", message.data_body.len());
        assert_eq!(decoder.decode(message).unwrap().unwrap(), slice);
    }

    #[test]
    fn what_is_no_batch_is_told_apart() {
        let encoder = Encoder::new();
        let mut decoder = Decoder::new(batch(0).schema());
        assert!(decoder.decode(FlightData::new()).unwrap().is_none());
        assert!(decoder.decode(encoder.schema(&batch(0).schema())).unwrap_err().to_string().contains("second schema"));
        assert!(decoder.decode(FlightData::new().with_data_header(vec![1, 2, 3])).is_err());
        assert!(schema(&FlightData::new()).unwrap().is_none());
        assert_eq!((super::rows(&FlightData::new()), super::rows(&encoder.schema(&batch(0).schema()))), (0, 0));
    }
}
