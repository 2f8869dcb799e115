//! The connector `stream`: its options, the source of an inlet, the sink of an outlet.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;
use tidemill_block::Block;
use tidemill_connect::registry::Connector;
use tidemill_connect::{
    Changelog, Committable, ConnectError, Reader, ReaderContext, Sink, SinkContext, Source, Split, Writer, WriterStats,
};
use tidemill_format::options::{ByteSize, OptionSet, RawOptions};
use tidemill_format::{option_enum, options};

use crate::contents::{Contents, Shelf};
use crate::hub::Hub;
use crate::inlet::{InletReader, metadata_columns};
use crate::log::{Log, LogWriter, Prepared};
use crate::outlet::{Outlet, OutletParts};
use crate::stream::{OutletInfo, ROW_KIND, Stream};

/// The connector.
pub static CONNECTOR: Connector = Connector {
    name: "stream",
    help: "A named stream of `tidemill serve`: read by a job, clients publish into it; written by a job, clients subscribe to it. Every view of a served \
           job that is not TEMPORARY is such a stream, too.",
    specs: StreamOptions::specs,
    takes_format: false,
    source: Some(make_source),
    sink: Some(make_sink),
    lookup: None,
};

option_enum! {
    /// When rows reach subscribers.
    #[derive(serde::Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum DeliveryMode {
        /// As they are computed.
        Live = "live",
        /// When the checkpoint that covers them is safe, from a log.
        ExactlyOnce = "exactly-once",
    }
}

option_enum! {
    /// Whether the current contents are kept.
    pub enum SnapshotMode {
        /// They are not.
        False = "false",
        /// They are.
        True = "true",
        /// They are if rows are updated.
        Updating = "updating",
    }
}

option_enum! {
    /// What publishers may say of their rows.
    pub enum InletChanges {
        /// Every row is a new one.
        Refuse = "refuse",
        /// Rows are inserted, updated and deleted, and every change is there.
        All = "all",
        /// Rows replace each other by the table's primary key.
        Upsert = "upsert",
    }
}

options! {
    /// Options of the connector `stream`.
    pub struct StreamOptions {
        /// The stream's name; by default the table's.
        ours "stream.name" => name: String;
        /// Written: `live` hands rows to subscribers as they are computed; after a crash some may come
        /// again, and who was not there has missed them. `exactly-once` writes rows to a log in the
        /// server's state directory and hands them over when the checkpoint that covers them is safe;
        /// subscribers acknowledge rows, and go on by their offset.
        ours "stream.delivery" => delivery: DeliveryMode = DeliveryMode::Live;
        /// Written: keeps the rows that new, updated and deleted ones add up to, so that subscribers may
        /// begin with them. `updating` does so only if the query updates its rows.
        ours "stream.snapshot" => snapshot: SnapshotMode = SnapshotMode::False;
        /// How much may wait: published rows for the job, and rows for each subscriber that asks for no
        /// other bound.
        ours "stream.queue-bytes" => queue_bytes: ByteSize = ByteSize(8 << 20);
        /// Written `exactly-once`: how much of the log is kept that every subscriber has acknowledged.
        ours "stream.retention-bytes" => retention_bytes: ByteSize = ByteSize(1 << 30);
        /// Read: what publishers may say of their rows in a column `row_kind` TINYINT (0 +I, 1 -U, 2 +U, 3 -D),
        /// which the table does not declare. `refuse`: rows are new ones. `all`: rows are inserted, updated and
        /// deleted, and every change is there. `upsert`: a +I or +U replaces the row of its PRIMARY KEY, and a -D
        /// need have no other columns. Who leaves the column out sends new rows.
        ours "stream.changes" => changes: InletChanges = InletChanges::Refuse;
        /// Written: columns by which subscribers may tell rows apart, with commas; by default those of
        /// the table's PRIMARY KEY.
        ours "stream.primary-key" => primary_key: Option<String>;
    }
}

impl StreamOptions {
    pub(crate) fn checked(raw: &mut RawOptions) -> Result<Self, ConnectError> {
        let options = StreamOptions::take(raw)?;
        let wrong = |name: &str, why: &str| Err(ConnectError::new(format!("{}: option '{name}': {why}", raw.owner())));
        if options.name.is_empty() || directory_name(&options.name).len() > 200 {
            return wrong("stream.name", "expected 1 to 200 letters, digits and the like (others count three times)");
        }
        if options.queue_bytes.0 == 0 || options.queue_bytes.0 > 1 << 40 {
            return wrong("stream.queue-bytes", "expected 1 byte to 1 tb");
        }
        Ok(options)
    }

    fn keys(&self) -> Vec<String> {
        let keys = self.primary_key.as_deref().unwrap_or_default().split(',');
        keys.map(|k| k.trim().to_string()).filter(|k| !k.is_empty()).collect()
    }
}

fn make_source(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Source>, ConnectError> {
    let options = StreamOptions::checked(raw)?;
    if options.changes != InletChanges::Refuse && schema.field_with_name(ROW_KIND).is_ok() {
        return Err(ConnectError::new(format!(
            "{}: with 'stream.changes' publishers say in '{ROW_KIND}' what their rows do, so the table can have no column of this name",
            raw.owner()
        )));
    }
    Ok(Box::new(StreamSource::new(Hub::global(), options)))
}

fn make_sink(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Sink>, ConnectError> {
    let options = StreamOptions::checked(raw)?;
    if let Some(key) = options.keys().iter().find(|k| schema.field_with_name(k).is_err()) {
        return Err(ConnectError::new(format!("{}: option 'stream.primary-key': there is no column '{key}'", raw.owner())));
    }
    Ok(Box::new(StreamSink::new(Hub::global(), options, schema.clone())))
}

/// A name as a directory: what is no letter, digit, `_` or `-` is written `%` and two hex digits.
pub(crate) fn directory_name(name: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    name.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02x}") }).collect()
}

/// A stream read.
pub(crate) struct StreamSource {
    hub: &'static Hub,
    options: StreamOptions,
    /// What was opened: the stream, and the number that it gave to this run.
    open: Mutex<Option<(Arc<Stream>, u64)>>,
}

impl StreamSource {
    pub fn new(hub: &'static Hub, options: StreamOptions) -> Self {
        StreamSource { hub, options, open: Mutex::new(None) }
    }

    fn opened(&self) -> Option<(Arc<Stream>, u64)> {
        self.open.lock().expect("no panic while held").clone()
    }
}

impl Source for StreamSource {
    fn bounded(&self) -> bool {
        false
    }

    fn splits(&self, _parallelism: usize) -> Result<Vec<Split>, ConnectError> {
        self.hub.serving()?;
        Ok(vec![Split::new("inlet")])
    }

    fn open(&self, split: &Split, context: ReaderContext) -> Result<Box<dyn Reader>, ConnectError> {
        self.hub.serving()?;
        let stream = self.hub.enter(&self.options.name);
        let (changes, bound) = (self.options.changes != InletChanges::Refuse, self.options.queue_bytes.0);
        let reader = InletReader::open(stream.clone(), split.position.as_ref(), context, bound, changes)?;
        *self.open.lock().expect("no panic while held") = Some((stream, reader.run()));
        Ok(Box::new(reader))
    }

    fn changelog(&self) -> Changelog {
        match self.options.changes {
            InletChanges::Refuse => Changelog::Append,
            InletChanges::All => Changelog::All,
            InletChanges::Upsert => Changelog::Upsert,
        }
    }

    fn one_split(&self) -> bool {
        true
    }

    fn metadata_columns(&self) -> Vec<(&'static str, DataType)> {
        metadata_columns()
    }

    fn committed(&self, positions: &[serde_json::Value]) {
        let sequence = positions.iter().filter_map(|p| p.get("sequence")?.as_u64()).max();
        if let (Some(sequence), Some((stream, run))) = (sequence, self.opened()) {
            stream.inlet.committed(run, sequence);
        }
    }

    fn wants_checkpoint(&self) -> bool {
        self.opened().is_some_and(|(stream, run)| stream.inlet.wants_checkpoint(run))
    }
}

/// A stream written.
pub(crate) struct StreamSink {
    hub: &'static Hub,
    options: StreamOptions,
    columns: SchemaRef,
    updating: AtomicBool,
    store: Mutex<Store>,
}

/// What the sink keeps on disk, and who writes.
#[derive(Default)]
struct Store {
    recovered: bool,
    log: Option<Arc<Log>>,
    shelf: Option<Arc<Shelf>>,
    /// Contents of the checkpoint, until the writer has them.
    restored: Vec<RecordBatch>,
    outlet: Option<Arc<Outlet>>,
}

impl StreamSink {
    pub fn new(hub: &'static Hub, options: StreamOptions, columns: SchemaRef) -> Self {
        StreamSink { hub, options, columns, updating: AtomicBool::new(false), store: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn snapshot(&self) -> bool {
        match self.options.snapshot {
            SnapshotMode::False => false,
            SnapshotMode::True => true,
            SnapshotMode::Updating => self.updating.load(Ordering::Relaxed),
        }
    }

    fn logs(&self) -> bool {
        self.options.delivery == DeliveryMode::ExactlyOnce
    }

    fn info(&self) -> OutletInfo {
        OutletInfo {
            updating: self.updating.load(Ordering::Relaxed),
            delivery: self.options.delivery,
            snapshot: self.snapshot(),
            primary_key: self.options.keys(),
        }
    }

    /// Where the stream is kept on disk.
    fn directory(&self) -> Result<Option<PathBuf>, ConnectError> {
        Ok(self.hub.serving()?.directory_of(&self.options.name))
    }

    fn recover_into(&self, store: &mut Store, prepared: &[Prepared]) -> Result<(), ConnectError> {
        let directory = self.directory()?;
        *store = Store { recovered: true, ..Store::default() };
        if !self.logs() && !self.snapshot() {
            return Ok(());
        }
        let name = &self.options.name;
        // What lies there may be another job's, and that still runs.
        self.hub.enter(name).unwritten(|| Ok(()))?;
        let Some(directory) = directory else {
            return match self.logs() {
                true => Err(ConnectError::new(format!(
                    "stream '{name}': 'stream.delivery' = 'exactly-once' needs a directory for its log; start the server with --state-dir"
                ))),
                // The job keeps no state either: both begin anew.
                false => Ok(()),
            };
        };
        if self.logs() {
            let wire = crate::delivery::wire_schema(&self.columns, self.updating.load(Ordering::Relaxed));
            let sizes = (self.options.retention_bytes.0, self.options.queue_bytes.0);
            store.log = Some(Arc::new(Log::recover(name, &directory, wire, sizes, prepared)?));
        }
        if self.snapshot() {
            let committed = prepared.iter().find_map(|p| p.contents.clone());
            let (shelf, restored) = Shelf::recover(name, directory, &self.columns, committed)?;
            store.shelf = Some(Arc::new(shelf));
            store.restored = restored;
        }
        Ok(())
    }

    fn parse(&self, committables: &[Committable]) -> Result<Vec<Prepared>, ConnectError> {
        let one = |c: &Committable| {
            serde_json::from_value(c.clone()).map_err(|e| {
                ConnectError::new(format!("the checkpoint has {c} for stream '{}', which is no part of a stream: {e}", self.options.name))
            })
        };
        committables.iter().map(one).collect()
    }
}

impl Sink for StreamSink {
    fn accepts_updates(&self) -> bool {
        true
    }

    fn expect_updates(&self, updating: bool) {
        self.updating.store(updating, Ordering::Relaxed);
    }

    fn parallelism(&self) -> Option<usize> {
        // Rows get numbers, or contents belong to a moment: that needs one order.
        (self.logs() || self.snapshot()).then_some(1)
    }

    fn own_thread(&self) -> bool {
        self.logs() || self.snapshot()
    }

    fn writer(&self, context: SinkContext) -> Result<Box<dyn Writer>, ConnectError> {
        let stream = self.hub.enter(&self.options.name);
        let mut store = self.lock();
        if !store.recovered {
            self.recover_into(&mut store, &[])?;
        }
        let info = self.info();
        if info.updating && self.columns.field_with_name(ROW_KIND).is_ok() {
            return Err(ConnectError::new(format!(
                "stream '{}' has a column '{ROW_KIND}', which subscribers of an updating stream get for the kinds of its rows; give the column another name",
                stream.name()
            )));
        }
        let wrong =
            |e: ArrowError| ConnectError::new(format!("keeping the contents of stream '{}' ('stream.snapshot'): {e}", self.options.name));
        let mut contents = None;
        if info.snapshot {
            let mut restored = Contents::new(self.columns.clone()).map_err(wrong)?;
            for batch in std::mem::take(&mut store.restored) {
                restored.restore(&batch).map_err(wrong)?;
            }
            contents = Some(restored);
        }
        let outlet = Outlet::new(
            &stream,
            OutletParts {
                run: context.run_id.clone(),
                info,
                columns: self.columns.clone(),
                queue_bytes: self.options.queue_bytes.0,
                log: store.log.clone(),
                shelf: store.shelf.clone(),
                contents,
            },
        );
        let outlet = stream.attach(outlet)?;
        store.outlet = Some(outlet.clone());
        let log = store.log.clone().map(|log| LogWriter::new(log, &context.run_id));
        Ok(Box::new(StreamWriter { stream, outlet, log, cancelled: context.cancelled, bytes: 0 }))
    }

    fn commit(&self, committables: &[Committable]) -> Result<(), ConnectError> {
        let store = self.lock();
        for prepared in self.parse(committables)? {
            if let Some(log) = &store.log {
                log.commit(&prepared)?;
            }
            if let Some(outlet) = &store.outlet {
                outlet.commit_contents(&prepared)?;
            }
        }
        if let (Some(outlet), false) = (&store.outlet, committables.is_empty()) {
            outlet.notify();
        }
        Ok(())
    }

    fn finished(&self) {
        if let Some(outlet) = &self.lock().outlet {
            outlet.finish();
        }
    }

    fn stopping(&self) {
        if let Some(outlet) = &self.lock().outlet {
            outlet.stopping();
        }
    }

    fn recover(&self, committables: &[Committable], _run_id: &str) -> Result<(), ConnectError> {
        let prepared = self.parse(committables)?;
        self.recover_into(&mut self.lock(), &prepared)
    }
}

/// Writes the rows of one shard.
struct StreamWriter {
    stream: Arc<Stream>,
    outlet: Arc<Outlet>,
    log: Option<LogWriter>,
    cancelled: Arc<AtomicBool>,
    bytes: u64,
}

impl Writer for StreamWriter {
    fn write(&mut self, block: &Block) -> Result<(), ConnectError> {
        if block.rows() == 0 {
            return Ok(());
        }
        match &mut self.log {
            None => self.bytes += self.outlet.publish(block, &self.cancelled)?,
            Some(log) => {
                self.outlet.keep(block)?;
                log.write(self.outlet.wire_batch(block)?, block.arrival_ns)?;
                self.bytes = log.bytes();
            }
        }
        Ok(())
    }

    fn prepare(&mut self, _last: bool) -> Result<Vec<Committable>, ConnectError> {
        let mut prepared = match &mut self.log {
            Some(log) => log.prepare()?,
            None => Prepared::default(),
        };
        prepared.contents = self.outlet.shelve()?;
        if self.log.is_none() && prepared.contents.is_none() {
            return Ok(Vec::new());
        }
        Ok(vec![serde_json::to_value(prepared).expect("plain data")])
    }

    fn stats(&self) -> WriterStats {
        WriterStats { bytes: self.bytes }
    }
}

impl Drop for StreamWriter {
    fn drop(&mut self) {
        self.stream.detach(&self.outlet);
    }
}
