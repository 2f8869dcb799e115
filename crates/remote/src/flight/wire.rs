//! Between batches and Flight messages.

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::ipc::root_as_message;
use arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use arrow_flight::{FlightData, SchemaAsIpc};
use tidemill_connect::ConnectError;
use tidemill_format::FormatError;
use tidemill_format::ipc::BatchDecoder;

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

/// Makes batches of messages. They may come from a server of another make: [`BatchDecoder`] checks and bounds them, and of
/// dictionaries it keeps copies, not the messages in which they came.
#[derive(Debug)]
pub struct Decoder {
    batches: BatchDecoder,
}

impl Decoder {
    /// A decoder for what follows the first message of a call, which says the columns; `None` if it says none. A batch that
    /// is compressed or has dictionaries may take `bytes_max` in memory, and so may all dictionaries together.
    ///
    /// # Errors
    /// What is wrong with the message, or which column is of a type that is not taken.
    pub fn new(first: &FlightData, bytes_max: usize) -> Result<Option<Self>, FormatError> {
        if first.data_header.is_empty() {
            return Ok(None);
        }
        let batches = BatchDecoder::of_server(&first.data_header)?.unpacking(bytes_max);
        Ok(Some(Decoder { batches }))
    }

    /// The columns, with the values of dictionaries in their place.
    pub fn schema(&self) -> &SchemaRef {
        self.batches.schema()
    }

    /// The batch of a message; `None` if it holds none.
    ///
    /// # Errors
    /// What is wrong with the message, or that too much would become of it.
    pub fn decode(&mut self, data: FlightData) -> Result<Option<RecordBatch>, FormatError> {
        if data.data_header.is_empty() {
            return Ok(None);
        }
        // Columns that happen to lie well are used in place, the others are copied one by one.
        self.batches.decode(&data.data_header, &Buffer::from(data.data_body))
    }
}

/// How many rows a message holds, without decoding them; 0 if it holds none, or cannot be read.
pub fn rows(data: &FlightData) -> usize {
    let message = root_as_message(&data.data_header).ok();
    message.and_then(|m| m.header_as_record_batch()).map_or(0, |batch| usize::try_from(batch.length()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use arrow::array::{ArrayRef, AsArray, DictionaryArray, Int32Array, StringArray};
    use arrow::datatypes::{DataType, Field};
    use arrow::ipc::writer::DictionaryHandling;

    const BYTES_MAX: usize = 64 << 10;

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
        let mut decoder = Decoder::new(&first, BYTES_MAX).unwrap().unwrap();
        assert_eq!(decoder.schema(), &batch(0).schema());
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
        let mut encoder = Encoder::new();
        let mut decoder = Decoder::new(&encoder.schema(&batch(0).schema()), BYTES_MAX).unwrap().unwrap();
        assert!(decoder.decode(FlightData::new()).unwrap().is_none());
        assert!(decoder.decode(encoder.schema(&batch(0).schema())).unwrap_err().to_string().contains("second schema"));
        assert!(decoder.decode(FlightData::new().with_data_header(vec![1, 2, 3])).is_err());
        assert!(Decoder::new(&FlightData::new(), BYTES_MAX).unwrap().is_none());
        assert!(Decoder::new(&encoder.encode(&batch(1), 0).unwrap(), BYTES_MAX).is_err(), "rows are no columns");
        assert_eq!((super::rows(&FlightData::new()), super::rows(&encoder.schema(&batch(0).schema()))), (0, 0));
    }

    /// The messages of a server of another make: one column whose dictionary gets `step` words more with each batch.
    fn growing(batches: usize, step: usize) -> Vec<FlightData> {
        let options = IpcWriteOptions::default().with_dictionary_handling(DictionaryHandling::Delta);
        let (generator, mut context) = (IpcDataGenerator::default(), IpcWriteContext::default());
        let mut tracker = DictionaryTracker::new(false);
        let mut messages = Vec::new();
        for words in (1..=batches).map(|n| n * step) {
            let values = StringArray::from_iter_values((0..words).map(|n| format!("word {n}")));
            let keys = Int32Array::from(vec![Some(0), None, Some(words as i32 - 1)]);
            let column: ArrayRef = Arc::new(DictionaryArray::new(keys, Arc::new(values)));
            let batch = RecordBatch::try_from_iter_with_nullable([("word", column, true)]).unwrap();
            if messages.is_empty() {
                messages.push(generator.schema_to_bytes_with_dictionary_tracker(&batch.schema(), &mut tracker, &options).into());
            }
            let (dictionaries, rows) = generator.encode(&batch, &mut tracker, &options, &mut context).unwrap();
            messages.extend(dictionaries.into_iter().map(FlightData::from));
            messages.push(rows.into());
        }
        messages
    }

    /// What a subscriber gets of such messages; none of them may stay in memory.
    fn words(messages: Vec<FlightData>) -> Result<Vec<Vec<Option<String>>>, FormatError> {
        let mut decoder = Decoder::new(&messages[0], BYTES_MAX)?.expect("columns");
        assert_eq!(decoder.schema().field(0).data_type(), &DataType::Utf8);
        let mut words = Vec::new();
        for message in messages.into_iter().skip(1) {
            let body = message.data_body.clone();
            if let Some(batch) = decoder.decode(message)? {
                words.push(batch.column(0).as_string::<i32>().iter().map(|word| word.map(String::from)).collect());
            }
            assert!(body.is_unique(), "something of a message is kept");
        }
        Ok(words)
    }

    /// Dictionaries used to be kept as they lay in their messages, which they held in memory, and could grow for as long as
    /// the server continued them.
    #[test]
    fn dictionaries_keep_no_message_and_are_bounded() {
        let word = |n: usize| Some(format!("word {n}"));
        let expect: Vec<_> = (1..=20).map(|n| vec![word(0), None, word(n * 10 - 1)]).collect();
        assert_eq!(words(growing(20, 10)).unwrap(), expect);
        // A message has some 13 KB; it is their sum that is too much.
        let messages = growing(20, 1000);
        assert!(messages.iter().all(|message| message.data_body.len() < BYTES_MAX / 4));
        let error = words(messages).unwrap_err().to_string();
        assert!(error.contains("its dictionaries take") && error.contains("no more than one message, which is 65536"), "{error}");
    }
}
