//! Avro messages to batches: of one schema, derived from the table (`avro`), or each with the id of its
//! writer's schema in front (`avro-confluent`).

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array};
use arrow::compute::{concat_batches, filter_record_batch, take_record_batch};
use arrow::datatypes::{Schema, SchemaRef};
use arrow_avro::errors::AvroError;
use arrow_avro::reader::{Decoder, ReaderBuilder};
use arrow_avro::schema::{AvroSchema, Fingerprint, FingerprintAlgorithm, SchemaStore};

use super::{AvroOptions, adapt, names, schema_json};
use crate::FormatError;
use crate::message::{BYTES_MAX, MessageDecoder, Messages, SchemaRegistry, too_many_bytes};
use crate::types::type_name;

/// What Avro's decoder wants in front of each record; all records of a decoder are of one schema.
const FRAME: [u8; 5] = [0; 5];
/// The decoder never calls a batch full: it is taken out when the messages are.
const ROWS_MAX: usize = u32::MAX as usize;
/// Ids remembered that no schema has: rubbish in place of an id must not fill the memory.
const UNKNOWN_MAX: usize = 1 << 16;
/// The id of the table's own schema, for messages without an id.
const OWN: u32 = 0;

/// Decodes records of one writer's schema into columns of the table.
struct Writer {
    json: String,
    /// The columns wanted.
    schema: SchemaRef,
    decoder: Decoder,
    /// For each column wanted which column of the decoder it is; `None` if the writer has no such field.
    columns: Vec<Option<usize>>,
    /// Only the fields wanted are decoded.
    projected: bool,
}

/// Good rows of a writer and their messages.
type Decoded = (RecordBatch, Vec<u32>);

impl Writer {
    fn new(json: String, schema: SchemaRef) -> Result<Self, FormatError> {
        let fields = names(&json)?;
        let wanted: Vec<Option<usize>> = schema.fields().iter().map(|f| fields.iter().position(|n| n == f.name())).collect();
        let present: Vec<usize> = wanted.iter().flatten().copied().collect();
        // A field left out may have held the type that another refers to; then all are decoded.
        let (decoder, projected) = match decoder(&json, Some(present)) {
            Ok(decoder) => (decoder, true),
            Err(_) => (decoder(&json, None)?, false),
        };
        let columns = if projected {
            let mut next = 0..;
            wanted.iter().map(|field| field.and_then(|_| next.next())).collect()
        } else {
            wanted
        };
        Ok(Writer { json, schema, decoder, columns, projected })
    }

    fn renew(&mut self) -> Result<(), FormatError> {
        let present = self
            .projected
            .then(|| names(&self.json))
            .transpose()?
            .map(|fields| self.schema.fields().iter().filter_map(|f| fields.iter().position(|n| n == f.name())).collect());
        self.decoder = decoder(&self.json, present)?;
        Ok(())
    }

    /// Takes a record. After an error the decoder holds half of it: [`Writer::renew`].
    #[inline]
    fn push(&mut self, body: &[u8]) -> Result<(), String> {
        if body.is_empty() {
            return Err("the message is empty".into());
        }
        let wrong = |e: AvroError| format!("the message does not fit its Avro schema: {e}");
        let room = self.decoder.capacity();
        self.decoder.decode(&FRAME).map_err(wrong)?;
        let taken = self.decoder.decode(body).map_err(wrong)?;
        match (taken, room - self.decoder.capacity()) {
            (n, 1) if n == body.len() => Ok(()),
            (_, 0) => Err("the message does not fit its Avro schema: it ends too early".into()),
            _ => Err("the message does not fit its Avro schema: bytes follow the record".into()),
        }
    }

    /// The rows of the messages `bodies`; the bad ones go to `bad`.
    fn decode(&mut self, bytes: &[u8], bodies: &[(u32, Range<usize>)], bad: &mut Vec<(u32, String)>) -> Result<Decoded, FormatError> {
        let (mut batches, mut messages) = (Vec::new(), Vec::with_capacity(bodies.len()));
        let mut begin = 0;
        for (at, (message, body)) in bodies.iter().enumerate() {
            let Err(reason) = self.push(&bytes[body.clone()]) else { continue };
            // What was decoded before it is decoded again, since the decoder cannot take a half record back.
            self.renew()?;
            for (_, good) in &bodies[begin..at] {
                self.push(&bytes[good.clone()]).map_err(FormatError::data)?;
            }
            messages.extend(bodies[begin..at].iter().map(|(message, _)| *message));
            batches.extend(self.flush()?);
            bad.push((*message, reason));
            begin = at + 1;
        }
        messages.extend(bodies[begin..].iter().map(|(message, _)| *message));
        batches.extend(self.flush()?);
        let batch = match batches.as_slice() {
            [one] => one.clone(),
            many => concat_batches(&self.decoder.schema(), many)?,
        };
        assert_eq!(batch.num_rows(), messages.len(), "a row for each good message");
        self.adapted(&batch, messages, bad)
    }

    fn flush(&mut self) -> Result<Option<RecordBatch>, FormatError> {
        self.decoder.flush().map_err(|e| FormatError::data(format!("decoding Avro: {e}")))
    }

    /// The columns of the table. A row with a value that its column cannot hold is bad.
    fn adapted(&self, batch: &RecordBatch, messages: Vec<u32>, bad: &mut Vec<(u32, String)>) -> Result<Decoded, FormatError> {
        let rows = batch.num_rows();
        let mut good = vec![true; rows];
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.columns.len());
        for (field, column) in self.schema.fields().iter().zip(&self.columns) {
            let Some(column) = column else {
                if !field.is_nullable() {
                    return Err(FormatError::data(format!(
                        "column '{}' is NOT NULL, but the Avro schema of the messages has no such field; declare it without NOT NULL",
                        field.name()
                    )));
                }
                arrays.push(new_null_array(field.data_type(), rows));
                continue;
            };
            let from = batch.column(*column);
            let to = adapt(field.name(), from, field.data_type())?;
            if to.null_count() > from.null_count() || (!field.is_nullable() && to.null_count() > 0) {
                for row in (0..rows).filter(|row| to.is_null(*row)) {
                    let lost = from.is_valid(row);
                    if good[row] && (lost || !field.is_nullable()) {
                        let why = if lost { "the value is not a" } else { "the value is null, but the column is NOT NULL" };
                        let data_type = if lost { format!(" {}", type_name(field.data_type())) } else { String::new() };
                        bad.push((messages[row], format!("column '{}': {why}{data_type}", field.name())));
                        good[row] = false;
                    }
                }
            }
            arrays.push(to);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        if good.iter().all(|g| *g) {
            return Ok((RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)?, messages));
        }
        // Rows are left out before the schema asks for values in all of them.
        let loose = Schema::new(self.schema.fields().iter().map(|f| f.as_ref().clone().with_nullable(true)).collect::<Vec<_>>());
        let batch = RecordBatch::try_new_with_options(Arc::new(loose), arrays, &options)?;
        let messages = messages.into_iter().zip(&good).filter(|(_, good)| **good).map(|(message, _)| message).collect::<Vec<_>>();
        let batch = filter_record_batch(&batch, &BooleanArray::from(good))?;
        let options = RecordBatchOptions::new().with_row_count(Some(messages.len()));
        Ok((RecordBatch::try_new_with_options(self.schema.clone(), batch.columns().to_vec(), &options)?, messages))
    }
}

fn decoder(json: &str, projection: Option<Vec<usize>>) -> Result<Decoder, FormatError> {
    let mut store = SchemaStore::new_with_type(FingerprintAlgorithm::Id);
    let id = store.set(Fingerprint::Id(0), AvroSchema::new(json.to_string()))?;
    let mut builder = ReaderBuilder::new().with_batch_size(ROWS_MAX).with_writer_schema_store(store).with_active_fingerprint(id);
    if let Some(projection) = projection {
        builder = builder.with_projection(projection);
    }
    builder.build_decoder().map_err(|e| FormatError::data(format!("the Avro schema {json} cannot be read: {e}")))
}

/// Decodes messages that are each an Avro record. As in Flink, a null value makes no row.
pub(in crate::message) struct AvroMessages {
    schema: SchemaRef,
    writers: HashMap<u32, Writer>,
    /// Ids that the registry does not have.
    unknown: HashSet<u32>,
    /// Whether the id of a schema stands in front of each message.
    framed: bool,
    registry: Option<Arc<dyn SchemaRegistry>>,
    /// The records pushed.
    bytes: Vec<u8>,
    /// Each record's message, the id of its schema and its place in `bytes`.
    records: Vec<(u32, u32, Range<usize>)>,
    messages: u32,
    bad: Vec<(u32, String)>,
}

impl AvroMessages {
    /// Messages of the schema that the table has.
    ///
    /// # Errors
    /// A column whose type or name Avro lacks.
    pub fn plain(options: &AvroOptions, physical: &SchemaRef, projection: &[usize]) -> Result<Self, FormatError> {
        let mut messages = Self::new(None, false, physical, projection);
        let own = schema_json(physical, options.timestamp_mapping_legacy)?;
        messages.writers.insert(OWN, Writer::new(own, messages.schema.clone())?);
        Ok(messages)
    }

    /// Messages with the id of their schema in front.
    ///
    /// # Errors
    /// A column whose type or name Avro lacks.
    pub fn confluent(registry: Option<Arc<dyn SchemaRegistry>>, physical: &SchemaRef, projection: &[usize]) -> Result<Self, FormatError> {
        schema_json(physical, true)?;
        Ok(Self::new(registry, true, physical, projection))
    }

    fn new(registry: Option<Arc<dyn SchemaRegistry>>, framed: bool, physical: &SchemaRef, projection: &[usize]) -> Self {
        AvroMessages {
            schema: Arc::new(Schema::new(projection.iter().map(|i| physical.fields()[*i].clone()).collect::<Vec<_>>())),
            writers: HashMap::new(),
            unknown: HashSet::new(),
            framed,
            registry,
            bytes: Vec::new(),
            records: Vec::new(),
            messages: 0,
            bad: Vec::new(),
        }
    }

    fn read(&mut self, message: &[u8]) -> Result<(), String> {
        let (id, body) = match (self.framed, message) {
            (false, body) => (OWN, body),
            (true, [0, a, b, c, d, body @ ..]) => (u32::from_be_bytes([*a, *b, *c, *d]), body),
            (true, _) => return Err("the message does not begin with a zero byte and the id of its schema".into()),
        };
        if self.bytes.len() + body.len() > BYTES_MAX {
            return Err(too_many_bytes());
        }
        let from = self.bytes.len();
        self.bytes.extend_from_slice(body);
        self.records.push((self.messages, id, from..self.bytes.len()));
        Ok(())
    }

    /// Makes the decoder of a schema known; whether there is such a schema.
    fn find(&mut self, id: u32) -> Result<bool, FormatError> {
        if self.writers.contains_key(&id) {
            return Ok(true);
        }
        if self.unknown.contains(&id) {
            return Ok(false);
        }
        let registry = self.registry.as_ref().ok_or_else(|| FormatError::data("internal error: no schema registry was given"))?;
        let found = registry.schema(id).map_err(|e| FormatError::data(format!("looking up the Avro schema with id {id}: {e}")))?;
        let Some(json) = found else {
            if self.unknown.len() >= UNKNOWN_MAX {
                self.unknown.clear();
            }
            self.unknown.insert(id);
            return Ok(false);
        };
        self.writers.insert(id, Writer::new(json, self.schema.clone())?);
        Ok(true)
    }

    fn decode(&mut self, records: &[(u32, u32, Range<usize>)], bad: &mut Vec<(u32, String)>) -> Result<Decoded, FormatError> {
        let mut ids: Vec<u32> = Vec::new();
        for (_, id, _) in records {
            if ids.last() != Some(id) && !ids.contains(id) {
                ids.push(*id);
            }
        }
        let mut parts: Vec<Decoded> = Vec::new();
        for id in &ids {
            let known = self.find(*id)?;
            let bodies: Vec<(u32, Range<usize>)> =
                records.iter().filter(|(_, of, _)| of == id).map(|(message, _, body)| (*message, body.clone())).collect();
            if !known {
                bad.extend(bodies.iter().map(|(message, _)| (*message, format!("the schema registry has no schema with the id {id}"))));
                continue;
            }
            let writer = self.writers.get_mut(id).expect("found above");
            parts.push(writer.decode(&self.bytes, &bodies, bad)?);
        }
        if parts.len() < 2 {
            return Ok(parts.pop().unwrap_or_else(|| (RecordBatch::new_empty(self.schema.clone()), Vec::new())));
        }
        let messages: Vec<u32> = parts.iter().flat_map(|(_, messages)| messages.iter().copied()).collect();
        let batch = concat_batches(&self.schema, parts.iter().map(|(batch, _)| batch))?;
        let mut order: Vec<u32> = (0..messages.len() as u32).collect();
        order.sort_unstable_by_key(|row| messages[*row as usize]);
        let messages = order.iter().map(|row| messages[*row as usize]).collect();
        Ok((take_record_batch(&batch, &UInt32Array::from(order))?, messages))
    }
}

impl MessageDecoder for AvroMessages {
    fn push(&mut self, message: Option<&[u8]>) {
        if let Some(message) = message
            && let Err(reason) = self.read(message)
        {
            self.bad.push((self.messages, reason));
        }
        self.messages += 1;
    }

    fn pending(&self) -> usize {
        self.messages as usize
    }

    fn take(&mut self) -> Result<Messages, FormatError> {
        let messages = std::mem::take(&mut self.messages);
        let (records, mut bad) = (std::mem::take(&mut self.records), std::mem::take(&mut self.bad));
        let decoded = self.decode(&records, &mut bad);
        self.bytes.clear();
        let (batch, origins) = decoded?;
        bad.sort_by_key(|(message, _)| *message);
        let whole = origins.len() == messages as usize;
        Ok(Messages { batch, kinds: None, origins: (!whole).then_some(origins), bad })
    }
}
