//! Rows published into a stream: each parallel writer is a publisher of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{Int8Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use tidemill_block::{Block, RowKind};
use tidemill_connect::{Committable, ConnectError, Sink, SinkContext, Waker, Writer, WriterStats};

use super::blocks::Gather;
use super::client::{Client, ROW_KIND};
use super::options::{Changes, FlightOptions};
use super::publisher::{Publisher, PublisherOptions};

/// The sink.
pub(super) struct FlightSink {
    pub options: FlightOptions,
    /// Shared by the writers.
    pub client: Client,
    /// What rows do is published, too.
    pub updating: AtomicBool,
}

impl Sink for FlightSink {
    fn accepts_updates(&self) -> bool {
        self.options.changes == Changes::Apply
    }

    fn expect_updates(&self, updating: bool) {
        self.updating.store(updating, Ordering::Relaxed);
    }

    /// Of several publishers nobody knows whose rows come first.
    fn parallelism(&self) -> Option<usize> {
        self.updating.load(Ordering::Relaxed).then_some(1)
    }

    /// A checkpoint waits for the server, operators need not.
    fn own_thread(&self) -> bool {
        true
    }

    fn writer(&self, context: SinkContext) -> Result<Box<dyn Writer>, ConnectError> {
        let name = self.options.publisher.as_deref().unwrap_or(&context.run_id);
        let options = PublisherOptions {
            id: format!("{name}-{}", context.shard),
            keep: true,
            projected: false,
            window: self.options.window.0 as usize,
            reconnect: self.options.reconnect(),
        };
        let kinds = self.updating.load(Ordering::Relaxed).then(|| with_kinds(&context.schema));
        let schema = kinds.clone().unwrap_or_else(|| context.schema.clone());
        let publisher = Publisher::start(self.client.clone(), schema, options, Waker::noop())?;
        Ok(Box::new(FlightWriter {
            publisher,
            kinds,
            connected: false,
            gather: Gather::new(self.options.block_rows.map(|n| n as usize)),
            cancelled: context.cancelled,
        }))
    }
}

/// The columns with one more that says what each row does.
pub(crate) fn with_kinds(columns: &SchemaRef) -> SchemaRef {
    let mut fields = columns.fields().to_vec();
    fields.push(Arc::new(Field::new(ROW_KIND, DataType::Int8, false)));
    Arc::new(Schema::new(fields))
}

/// Rows with what they do, for `schema`, which [`with_kinds`] made; without kinds all are new ones.
///
/// # Errors
/// Columns that are not those of the schema.
pub(crate) fn coded(batch: &RecordBatch, kinds: Option<&[RowKind]>, schema: &SchemaRef) -> Result<RecordBatch, ConnectError> {
    let codes: Int8Array = match kinds {
        Some(kinds) => kinds.iter().map(|kind| *kind as i8).collect::<Vec<_>>().into(),
        None => vec![RowKind::Insert as i8; batch.num_rows()].into(),
    };
    let mut columns = batch.columns().to_vec();
    columns.push(Arc::new(codes));
    RecordBatch::try_new(schema.clone(), columns).map_err(|e| ConnectError::new(format!("publishing what rows do: {e}")))
}

struct FlightWriter {
    publisher: Publisher,
    /// The columns that travel, if one of them says what rows do.
    kinds: Option<SchemaRef>,
    /// The server has answered: rows can be numbered.
    connected: bool,
    gather: Gather,
    cancelled: Arc<AtomicBool>,
}

impl FlightWriter {
    fn send(&mut self, all: bool) -> Result<(), ConnectError> {
        while let Some(batch) = self.gather.next(all)? {
            if !self.connected {
                self.publisher.handshake(&self.cancelled)?;
                self.connected = true;
            }
            self.publisher.send(&batch, &self.cancelled)?;
        }
        Ok(())
    }
}

impl Writer for FlightWriter {
    fn write(&mut self, block: &Block) -> Result<(), ConnectError> {
        self.gather.push(match &self.kinds {
            Some(schema) => coded(&block.batch, block.kinds.as_deref(), schema)?,
            None => block.batch.clone(),
        });
        self.send(false)
    }

    fn flush(&mut self) -> Result<(), ConnectError> {
        self.send(true)
    }

    fn prepare(&mut self, last: bool) -> Result<Vec<Committable>, ConnectError> {
        self.send(true)?;
        if self.connected {
            if last {
                self.publisher.close(&self.cancelled)?;
            } else {
                self.publisher.drain(&self.cancelled)?;
            }
        }
        Ok(Vec::new())
    }

    fn stats(&self) -> WriterStats {
        WriterStats { bytes: self.publisher.sent().bytes }
    }
}
