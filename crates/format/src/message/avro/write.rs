//! Batches to Avro messages.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow_avro::schema::{FingerprintStrategy, SCHEMA_METADATA_KEY};
use arrow_avro::writer::format::{AvroBinaryFormat, AvroSoeFormat};
use arrow_avro::writer::{Encoder, WriterBuilder};
use tidemill_block::Block;

use super::{AvroOptions, ConfluentOptions, schema_json};
use crate::FormatError;
use crate::message::{MessageBuffer, MessageEncoder, SchemaRegistry};
use crate::types::plain_type;

/// The columns as Avro's writer takes them, with the schema that they are written by.
pub(crate) struct Written {
    /// Plain types; its metadata has the Avro schema.
    pub schema: SchemaRef,
    /// The Avro schema.
    pub json: String,
}

impl Written {
    /// # Errors
    /// A column whose type or name Avro lacks.
    pub fn new(schema: &SchemaRef, legacy: bool) -> Result<Self, FormatError> {
        let fields: Vec<Field> = schema.fields().iter().map(|f| Field::new(f.name(), plain_type(f.data_type()), f.is_nullable())).collect();
        let plain = Schema::new(fields);
        let json = schema_json(&Arc::new(plain.clone()), legacy)?;
        let metadata = [(SCHEMA_METADATA_KEY.to_string(), json.clone())].into_iter().collect();
        Ok(Written { schema: Arc::new(plain.with_metadata(metadata)), json })
    }

    /// A batch of these columns.
    ///
    /// # Errors
    /// None that rows of the schema can cause.
    pub fn batch(&self, batch: &RecordBatch) -> Result<RecordBatch, FormatError> {
        let columns = batch
            .columns()
            .iter()
            .zip(self.schema.fields())
            .map(|(array, field)| if array.data_type() == field.data_type() { Ok(array.clone()) } else { cast(array, field.data_type()) })
            .collect::<Result<Vec<ArrayRef>, _>>()?;
        Ok(RecordBatch::try_new(self.schema.clone(), columns)?)
    }
}

/// Where a schema is registered before the first row.
struct Subject {
    name: Option<String>,
    registry: Option<Arc<dyn SchemaRegistry>>,
}

/// Writes each row as a message.
pub(in crate::message) struct AvroEncoder {
    written: Written,
    /// Made when it is known under which id the schema is registered.
    encoder: Option<Encoder>,
    subject: Option<Subject>,
}

impl AvroEncoder {
    /// Messages of the schema that the table has.
    ///
    /// # Errors
    /// A column whose type or name Avro lacks.
    pub fn plain(options: &AvroOptions, schema: &SchemaRef) -> Result<Self, FormatError> {
        let written = Written::new(schema, options.timestamp_mapping_legacy)?;
        let encoder = WriterBuilder::new(written.schema.as_ref().clone()).build_encoder::<AvroBinaryFormat>().map_err(cannot)?;
        Ok(AvroEncoder { written, encoder: Some(encoder), subject: None })
    }

    /// Messages with the id of their schema in front, which is registered before the first row.
    ///
    /// # Errors
    /// A column whose type or name Avro lacks.
    pub fn confluent(
        options: &ConfluentOptions,
        registry: Option<Arc<dyn SchemaRegistry>>,
        schema: &SchemaRef,
    ) -> Result<Self, FormatError> {
        let written = Written::new(schema, options.timestamp_mapping_legacy)?;
        let subject = Subject { name: options.subject.clone(), registry };
        Ok(AvroEncoder { written, encoder: None, subject: Some(subject) })
    }

    /// The encoder, its schema registered.
    fn ready(&mut self) -> Result<&mut Encoder, FormatError> {
        if self.encoder.is_none() {
            let Some(Subject { name, registry }) = &self.subject else { unreachable!("without a subject the encoder is there") };
            let name = name.as_deref().ok_or_else(|| FormatError::option("option 'avro-confluent.subject' is required here"))?;
            let registry = registry.as_ref().ok_or_else(|| FormatError::data("internal error: no schema registry was given"))?;
            let id = registry
                .register(name, &self.written.json)
                .map_err(|e| FormatError::data(format!("registering the Avro schema of the table as subject '{name}': {e}")))?;
            let builder = WriterBuilder::new(self.written.schema.as_ref().clone()).with_fingerprint_strategy(FingerprintStrategy::Id(id));
            self.encoder = Some(builder.build_encoder::<AvroSoeFormat>().map_err(cannot)?);
        }
        Ok(self.encoder.as_mut().expect("made above"))
    }
}

fn cannot(e: arrow_avro::errors::AvroError) -> FormatError {
    FormatError::data(format!("writing Avro: {e}"))
}

impl MessageEncoder for AvroEncoder {
    fn encode(&mut self, block: &Block, out: &mut MessageBuffer) -> Result<(), FormatError> {
        let batch = self.written.batch(&block.batch)?;
        let encoder = self.ready()?;
        encoder.encode(&batch).map_err(cannot)?;
        let rows = encoder.flush();
        let from = out.bytes.len();
        out.bytes.extend_from_slice(rows.bytes());
        out.ends.extend(rows.offsets()[1..].iter().map(|end| from + end));
        Ok(())
    }
}
