//! The sinks: blocks become messages, and messages go to a producer, with what was promised of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{BooleanArray, RecordBatch};
use tidemill_block::{Block, RowKind};
use tidemill_connect::{Committable, ConnectError, Sink, SinkContext, Writer, WriterStats};
use tidemill_format::message::{MessageBuffer, MessageEncoder};
use tidemill_format::options::ByteSize;

use crate::layout::{Layout, Part};
use crate::metadata::{Headers, Times, Written};
use crate::options::{Guarantee, LostTransactions, Partitioner};
use crate::producer::Producer;
use crate::properties::Connection;
use crate::route::Route;
use crate::transaction::{Transactional, Transactions, commit_left_over};
use crate::upsert::{Buffering, UpsertWriter};

/// What is written, and how.
pub struct KafkaSink {
    /// The cluster.
    pub connection: Connection,
    /// The topic.
    pub topic: String,
    /// Key and value.
    pub layout: Layout,
    /// Columns of the table that are a message's metadata.
    pub written: Written,
    /// Which partition messages go to.
    pub partitioner: Partitioner,
    /// What is promised.
    pub guarantee: Guarantee,
    /// What a writer may hold.
    pub queue: ByteSize,
    /// What to do about transactions that brokers have given up.
    pub lost: LostTransactions,
    /// With `exactly-once`.
    pub transactions: Option<Arc<Transactions>>,
    /// Of `upsert-kafka`.
    pub upsert: Option<Buffering>,
    /// The job was asked to stop: nobody waits for brokers that are away for long any more.
    pub stopping: Arc<AtomicBool>,
}

impl Sink for KafkaSink {
    fn accepts_updates(&self) -> bool {
        self.upsert.is_some() || self.layout.value.format.changelog()
    }

    fn wants_update_before(&self) -> bool {
        self.upsert.is_none()
    }

    fn by_key(&self) -> bool {
        self.upsert.is_some()
    }

    fn own_thread(&self) -> bool {
        true
    }

    fn writer(&self, context: SinkContext) -> Result<Box<dyn Writer>, ConnectError> {
        let (outlet, partitions) = match &self.transactions {
            Some(transactions) => (Outlet::Transactions { of: transactions.clone(), open: None }, None),
            None => {
                let producer = Producer::new(&self.connection, &self.connection.producer(self.queue), &self.topic)?;
                let partitions = producer.connect(self.connection.timeout, None)?;
                (Outlet::Plain { producer: Box::new(producer), flushes: self.guarantee == Guarantee::AtLeastOnce }, Some(partitions))
            }
        };
        let partitions = match (partitions, self.partitioner) {
            (Some(partitions), _) => partitions,
            (None, Partitioner::Default) => 1,
            // Producers of transactions come and go; the topic is asked for its partitions by one of its own.
            (None, _) => {
                let producer = Producer::new(&self.connection, &self.connection.producer(self.queue), &self.topic)?;
                producer.connect(self.connection.timeout, None)?
            }
        };
        let writer = MessageWriter {
            key: self.layout.key.as_ref().map(Encoded::new).transpose()?,
            value: Encoded::new(&self.layout.value)?,
            written: self.written,
            route: Route::of(self.partitioner, context.shard, partitions),
            outlet,
            cancelled: context.cancelled,
            stopping: self.stopping.clone(),
            bytes: 0,
        };
        match self.upsert {
            Some(buffering) => Ok(Box::new(UpsertWriter::new(writer, buffering, context.schema)?)),
            None => Ok(Box::new(writer)),
        }
    }

    fn commit(&self, committables: &[Committable]) -> Result<(), ConnectError> {
        match &self.transactions {
            Some(transactions) => transactions.commit(committables),
            None => Ok(()),
        }
    }

    fn stopping(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    fn recover(&self, committables: &[Committable], _run_id: &str) -> Result<(), ConnectError> {
        match &self.transactions {
            Some(transactions) => transactions.recover(committables),
            // The table wrote in transactions when the checkpoint was taken.
            None => commit_left_over(&self.connection, committables, self.lost),
        }
    }
}

/// A part of messages being encoded.
struct Encoded {
    encoder: Box<dyn MessageEncoder>,
    part: Part,
    buffer: MessageBuffer,
}

impl Encoded {
    fn new(part: &Part) -> Result<Self, ConnectError> {
        Ok(Encoded { encoder: part.format.encoder(&part.schema)?, part: part.clone(), buffer: MessageBuffer::default() })
    }

    /// Encodes this part of all rows.
    fn encode(&mut self, block: &Block) -> Result<(), ConnectError> {
        self.buffer.clear();
        let columns = self.part.columns.iter().map(|i| block.column(*i).clone()).collect();
        let batch = RecordBatch::try_new(self.part.schema.clone(), columns);
        let batch = batch.map_err(|e| ConnectError::new(format!("making messages of rows: {e}")))?;
        self.encoder.encode(&block.with_batch(batch), &mut self.buffer)?;
        if self.buffer.ends.len() == block.rows() {
            return Ok(());
        }
        let (rows, messages) = (block.rows(), self.buffer.ends.len());
        Err(ConnectError::new(format!("internal error: {messages} messages of {rows} rows by format '{}'", self.part.format.name())))
    }
}

/// Where messages go.
enum Outlet {
    Plain { producer: Box<Producer>, flushes: bool },
    Transactions { of: Arc<Transactions>, open: Option<Box<Transactional>> },
}

impl Outlet {
    /// What messages go through; a transaction is opened if none is, which waits for brokers as [`Transactions::begin`] says.
    fn producer(&mut self, cancelled: &AtomicBool, stopping: &AtomicBool) -> Result<&mut Producer, ConnectError> {
        match self {
            Outlet::Plain { producer, .. } => Ok(producer),
            Outlet::Transactions { of, open } => {
                if open.is_none() {
                    *open = Some(Box::new(of.begin(cancelled, stopping)?));
                }
                Ok(open.as_mut().expect("opened above").producer())
            }
        }
    }
}

/// Writes a message for each row.
pub struct MessageWriter {
    key: Option<Encoded>,
    value: Encoded,
    written: Written,
    route: Route,
    outlet: Outlet,
    cancelled: Arc<AtomicBool>,
    stopping: Arc<AtomicBool>,
    bytes: u64,
}

impl MessageWriter {
    /// The key of each row.
    ///
    /// # Errors
    /// A value that the format cannot express.
    pub fn keys(&mut self, block: &Block) -> Result<&MessageBuffer, ConnectError> {
        let key = self.key.as_mut().ok_or_else(|| ConnectError::new("internal error: rows without keys"))?;
        key.encode(block)?;
        Ok(&key.buffer)
    }

    /// Writes the newest state of each row's key: its value, or nothing if the row is deleted.
    ///
    /// # Errors
    /// As [`Writer::write`].
    pub fn write_upserts(&mut self, block: &Block) -> Result<(), ConnectError> {
        if block.rows() == 0 {
            return Ok(());
        }
        self.keys(block)?;
        let deleted = |row: usize| block.kind(row) == RowKind::Delete;
        if (0..block.rows()).any(deleted) {
            let mask: BooleanArray = (0..block.rows()).map(|row| Some(!deleted(row))).collect();
            let kept = block.filter(&mask).map_err(|e| ConnectError::new(format!("making messages of rows: {e}")))?;
            self.value.encode(&kept)?;
        } else {
            self.value.encode(block)?;
        }
        let keys = self.key.as_ref().expect("encoded above");
        let mut values = self.value.buffer.iter();
        let messages = keys.buffer.iter().enumerate().map(|(row, key)| (key, if deleted(row) { None } else { values.next() }));
        let route = &mut self.route;
        self.bytes += (keys.buffer.bytes.len() + self.value.buffer.bytes.len()) as u64;
        let messages = messages.map(|(key, value)| (Some(key), value, route.next()));
        self.outlet.producer(&self.cancelled, &self.stopping)?.send(messages, &self.cancelled)
    }

    /// Writes a message for each row with its own time and headers.
    fn write_with_metadata(&mut self, block: &Block) -> Result<(), ConnectError> {
        let times = self.written.timestamp.map(|i| Times::of(block.column(i))).transpose()?;
        let headers = self.written.headers.map(|i| Headers::of(block.column(i))).transpose()?;
        let producer = self.outlet.producer(&self.cancelled, &self.stopping)?;
        let mut keys = self.key.as_ref().map(|k| k.buffer.iter());
        for (row, value) in self.value.buffer.iter().enumerate() {
            let key = keys.as_mut().and_then(Iterator::next);
            let time = times.as_ref().and_then(|t| t.get(row));
            let headers = headers.as_ref().map(|h| h.get(row));
            producer.send_one((key, Some(value), self.route.next()), time, headers, &self.cancelled)?;
        }
        producer.serve()
    }
}

impl Writer for MessageWriter {
    fn write(&mut self, block: &Block) -> Result<(), ConnectError> {
        if block.rows() == 0 {
            return Ok(());
        }
        if let Some(key) = &mut self.key {
            key.encode(block)?;
        }
        self.value.encode(block)?;
        self.bytes += (self.value.buffer.bytes.len() + self.key.as_ref().map_or(0, |k| k.buffer.bytes.len())) as u64;
        if self.written != Written::default() {
            return self.write_with_metadata(block);
        }
        let producer = self.outlet.producer(&self.cancelled, &self.stopping)?;
        let route = &mut self.route;
        let values = self.value.buffer.iter();
        match &self.key {
            Some(key) => {
                let messages = key.buffer.iter().zip(values).map(|(key, value)| (Some(key), Some(value), route.next()));
                producer.send(messages, &self.cancelled)
            }
            None => producer.send(values.map(|value| (None, Some(value), route.next())), &self.cancelled),
        }
    }

    fn flush(&mut self) -> Result<(), ConnectError> {
        // librdkafka sends what it has within 'linger.ms'; here failures are heard of.
        match &mut self.outlet {
            Outlet::Plain { producer, .. } => producer.serve(),
            Outlet::Transactions { of, open } => {
                of.hear();
                open.as_mut().map_or(Ok(()), |transaction| transaction.producer().serve())
            }
        }
    }

    fn prepare(&mut self, last: bool) -> Result<Vec<Committable>, ConnectError> {
        match &mut self.outlet {
            // Even without a promise nothing is thrown away that can be sent.
            Outlet::Plain { producer, flushes } if *flushes || last => {
                producer.flush(&self.cancelled)?;
                Ok(Vec::new())
            }
            Outlet::Plain { producer, .. } => producer.serve().map(|()| Vec::new()),
            Outlet::Transactions { of, open } => match open.take() {
                Some(transaction) => Ok(vec![of.prepare(*transaction, &self.cancelled)?]),
                None => Ok(Vec::new()),
            },
        }
    }

    fn stats(&self) -> WriterStats {
        WriterStats { bytes: self.bytes }
    }
}
