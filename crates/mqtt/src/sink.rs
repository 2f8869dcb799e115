//! The sink: a message a row, and a checkpoint when the broker has them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use arrow::array::{Array, AsArray, RecordBatch, StringArray};
use arrow::datatypes::SchemaRef;
use tidemill_block::Block;
use tidemill_connect::socket::peer::{Peers, StopOnDrop, spawn};
use tidemill_connect::{Committable, ConnectError, Sink, SinkContext, Writer, WriterStats};
use tidemill_format::message::{MessageBuffer, MessageEncoder, MessageFormat};

use crate::line::{End, Line, Terms};
use crate::options::MqttOptions;
use crate::source::some_client_id;
use crate::target::{Target, Wanted};
use crate::topic::check_name;

/// How often a connection on which nothing is written is looked after.
const TEND_INTERVAL: Duration = Duration::from_millis(250);

/// What the messages of a table are made of.
#[derive(Clone)]
pub struct Layout {
    /// How they are written.
    pub format: MessageFormat,
    /// The columns in them.
    pub schema: SchemaRef,
    /// Which of the table's columns these are.
    pub columns: Vec<usize>,
    /// Where they go.
    pub route: Route,
}

/// Where messages go.
#[derive(Clone, Debug)]
pub enum Route {
    /// To one topic.
    Fixed(Arc<str>),
    /// To that which this column of the table says.
    Column(usize),
}

/// The sink.
pub struct MqttSink {
    options: MqttOptions,
    target: Arc<Target>,
    layout: Layout,
    stopping: Arc<AtomicBool>,
}

impl MqttSink {
    /// A sink of these messages.
    pub fn new(options: MqttOptions, target: Target, layout: Layout) -> Self {
        MqttSink { options, target: Arc::new(target), layout, stopping: Arc::default() }
    }

    /// The name of a writer's session.
    fn client_id(&self, context: &SinkContext) -> String {
        match &self.options.client_id {
            Some(id) if context.shards > 1 => format!("{id}-{}", context.shard),
            Some(id) => id.clone(),
            None => some_client_id(),
        }
    }
}

impl Sink for MqttSink {
    fn accepts_updates(&self) -> bool {
        self.layout.format.changelog()
    }

    fn own_thread(&self) -> bool {
        true
    }

    fn stopping(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    fn writer(&self, context: SinkContext) -> Result<Box<dyn Writer>, ConnectError> {
        let options = &self.options;
        let peers = Arc::new(Peers::default());
        // What is not acknowledged this process knows itself: the broker has to keep nothing.
        let wanted = Wanted { client_id: self.client_id(&context), clean_start: true, expiry_s: 0, receive_max: u16::MAX };
        let terms = Terms { quality: options.quality, retain: options.retain, queue: options.queue.0 };
        let end = End { cancelled: context.cancelled, stopping: self.stopping.clone() };
        let guard = StopOnDrop(peers.clone());
        let line = Arc::new(Mutex::new(Line::connect(self.target.clone(), peers.clone(), wanted, terms, end)?));
        let tended = line.clone();
        spawn("tidemill-mqtt", move || {
            while peers.pause(TEND_INTERVAL) {
                match tended.try_lock() {
                    Ok(mut line) => line.tend(),
                    Err(TryLockError::Poisoned(_)) => return,
                    // Who writes looks after it.
                    Err(TryLockError::WouldBlock) => {}
                }
            }
        })?;
        let layout = self.layout.clone();
        Ok(Box::new(MqttWriter {
            encoder: layout.format.encoder(&layout.schema)?,
            layout,
            buffer: MessageBuffer::default(),
            line,
            bytes: 0,
            _guard: guard,
        }))
    }
}

/// Writes a message for each row.
struct MqttWriter {
    encoder: Box<dyn MessageEncoder>,
    layout: Layout,
    buffer: MessageBuffer,
    line: Arc<Mutex<Line>>,
    bytes: u64,
    /// Ends the thread that looks after the connection.
    _guard: StopOnDrop,
}

impl MqttWriter {
    /// Encodes all rows.
    fn encode(&mut self, block: &Block) -> Result<(), ConnectError> {
        self.buffer.clear();
        let columns = self.layout.columns.iter().map(|i| block.column(*i).clone()).collect();
        let batch = RecordBatch::try_new(self.layout.schema.clone(), columns);
        let batch = batch.map_err(|e| ConnectError::new(format!("making messages of rows: {e}")))?;
        self.encoder.encode(&block.with_batch(batch), &mut self.buffer)?;
        self.bytes += self.buffer.bytes.len() as u64;
        Ok(())
    }
}

fn lock(line: &Mutex<Line>) -> MutexGuard<'_, Line> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The topic of a row; `last` is that of the row before, which is often the same.
fn topic_of(column: &StringArray, row: usize, last: &mut Option<Arc<str>>) -> Result<Arc<str>, ConnectError> {
    if column.is_null(row) {
        return Err(ConnectError::new("writing a message: its topic, a metadata column, is NULL"));
    }
    let name = column.value(row);
    if let Some(known) = last
        && **known == *name
    {
        return Ok(known.clone());
    }
    check_name(name).map_err(|why| ConnectError::new(format!("writing a message to the topic '{name}': {why}")))?;
    Ok(last.insert(Arc::from(name)).clone())
}

impl Writer for MqttWriter {
    fn write(&mut self, block: &Block) -> Result<(), ConnectError> {
        if block.rows() == 0 {
            return Ok(());
        }
        self.encode(block)?;
        let mut line = lock(&self.line);
        match &self.layout.route {
            Route::Fixed(topic) => {
                for payload in self.buffer.iter() {
                    line.push(topic, payload)?;
                }
            }
            Route::Column(index) => {
                let column = block.column(*index).as_string::<i32>();
                let mut last = None;
                for (row, payload) in self.buffer.iter().enumerate() {
                    line.push(&topic_of(column, row, &mut last)?, payload)?;
                }
            }
        }
        line.turn(None)
    }

    fn flush(&mut self) -> Result<(), ConnectError> {
        lock(&self.line).drain(false)
    }

    fn prepare(&mut self, last: bool) -> Result<Vec<Committable>, ConnectError> {
        let mut line = lock(&self.line);
        line.drain(true)?;
        if last {
            line.goodbye();
        }
        Ok(Vec::new())
    }

    fn stats(&self) -> WriterStats {
        WriterStats { bytes: self.bytes }
    }
}
