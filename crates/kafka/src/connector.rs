//! The entries of the registry: from a table's options to its source or sink.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock};

use arrow::datatypes::{Schema, SchemaRef};
use tidemill_connect::registry::Connector;
use tidemill_connect::{ConnectError, Sink, Source};
use tidemill_format::options::{OptionSet, OptionSpec, RawOptions};

use crate::group::Members;
use crate::layout::{KeyOptions, Layout};
use crate::metadata::{WRITABLE, Written};
use crate::options::{Assignment, Bounded, CommonOptions, Guarantee, Partitioner, PlainOptions, ScanOptions, SinkOptions, UpsertOptions};
use crate::partitions::Topics;
use crate::properties::Connection;
use crate::sink::KafkaSink;
use crate::source::KafkaSource;
use crate::start::{self, Bound};
use crate::transaction::Transactions;
use crate::upsert::Buffering;

/// What stands between the names of columns that the table tells its connector.
const BETWEEN: char = '\u{1f}';

/// The connector `kafka`.
pub static KAFKA: Connector = Connector {
    name: "kafka",
    help: "Reads and writes topics of Kafka. A restart goes on at the offsets of the checkpoint; a sink is at-least-once, or exactly-once \
           through transactions. Keys and values have formats of their own ('key.format', 'value.format'): json, csv, raw, avro, \
           avro-confluent, debezium-json and others.",
    specs: plain_specs,
    takes_format: true,
    source: Some(plain_source),
    sink: Some(plain_sink),
    lookup: None,
};

/// The connector `upsert-kafka`.
pub static UPSERT_KAFKA: Connector = Connector {
    name: "upsert-kafka",
    help: "A topic as a table with a primary key: the newest message of a key is its row, one without a value deletes it. Read from its \
           beginning; written as upserts.",
    specs: upsert_specs,
    takes_format: true,
    source: Some(upsert_source),
    sink: Some(upsert_sink),
    lookup: None,
};

fn plain_specs() -> Vec<OptionSpec> {
    [CommonOptions::specs(), PlainOptions::specs(), ScanOptions::specs(), SinkOptions::specs()].concat()
}

fn upsert_specs() -> Vec<OptionSpec> {
    [CommonOptions::specs(), ScanOptions::specs(), SinkOptions::specs(), UpsertOptions::specs()].concat()
}

/// What only the table knows and not its options.
struct Facts {
    primary_key: Vec<String>,
    /// Writable metadata: the connector's key and the column.
    metadata: Vec<(String, String)>,
}

impl Facts {
    fn take(raw: &mut RawOptions) -> Self {
        let mut facts = Facts { primary_key: Vec::new(), metadata: Vec::new() };
        for (name, value) in raw.take_prefixed("#") {
            match name.strip_prefix("metadata.") {
                Some(key) => facts.metadata.push((key.to_string(), value)),
                None => facts.primary_key = value.split(BETWEEN).filter(|n| !n.is_empty()).map(str::to_string).collect(),
            }
        }
        facts
    }

    /// The columns that a message's key and value hold, and those that are its metadata.
    fn divide(&self, schema: &SchemaRef, owner: &str) -> Result<(SchemaRef, Vec<usize>, Written), ConnectError> {
        let mut written = Written::default();
        let mut physical = Vec::new();
        for (index, field) in schema.fields().iter().enumerate() {
            match self.metadata.iter().find(|(_, column)| column == field.name()) {
                None => physical.push(index),
                Some((key, _)) if key == "timestamp" => written.timestamp = Some(index),
                Some((key, _)) if key == "headers" => written.headers = Some(index),
                Some((key, column)) => {
                    return Err(ConnectError::new(format!(
                        "{owner}: column '{column}': the metadata '{key}' cannot be written, only {} can; declare it VIRTUAL",
                        WRITABLE.join(" and ")
                    )));
                }
            }
        }
        written.check(schema).map_err(|why| ConnectError::new(format!("{owner}: {why}")))?;
        let fields: Vec<_> = physical.iter().map(|i| schema.fields()[*i].clone()).collect();
        Ok((Arc::new(Schema::new(fields)), physical, written))
    }
}

/// All options of a table.
struct Taken {
    facts: Facts,
    common: CommonOptions,
    connection: Connection,
    scan: ScanOptions,
    sink: SinkOptions,
}

impl Taken {
    fn take(raw: &mut RawOptions) -> Result<Self, ConnectError> {
        let facts = Facts::take(raw);
        let common = CommonOptions::take(raw)?;
        let (scan, sink) = (ScanOptions::take(raw)?, SinkOptions::take(raw)?);
        let connection = Connection::take(&common, raw)?;
        // What is fetched ahead may come to be decoded at once, and a batch holds less than 2 GB of text.
        let sizes = [("scan.prefetch", scan.prefetch, 1 << 28, "256 mb"), ("sink.queue", Some(sink.queue), 1 << 31, "2 gb")];
        for (name, size, most, shown) in sizes {
            if size.is_some_and(|size| !(1 << 10..=most).contains(&size.0)) {
                return Err(ConnectError::new(format!("{}: option '{name}': expected 1 kb to {shown}", raw.owner())));
            }
        }
        if common.connect_timeout.is_zero() {
            return Err(ConnectError::new(format!("{}: option 'connect.timeout': expected more than nothing", raw.owner())));
        }
        Ok(Taken { facts, common, connection, scan, sink })
    }

    /// How messages are laid out; `subject`: what the schemas of a registry are called after.
    fn layout(&self, schema: &SchemaRef, fields: Vec<String>, required: bool, raw: &mut RawOptions) -> Result<Layout, ConnectError> {
        let keys =
            KeyOptions { fields, prefix: self.common.key_prefix.as_deref().unwrap_or(""), include: self.common.fields_include, required };
        let topic = self.common.topic.as_deref().unwrap_or("topic");
        Layout::take(schema, &keys, topic, raw)
    }

    fn primary_key(&self, raw: &RawOptions) -> Result<Vec<String>, ConnectError> {
        match self.facts.primary_key.as_slice() {
            [] => Err(ConnectError::new(format!("{}: 'upsert-kafka' needs PRIMARY KEY (…) NOT ENFORCED", raw.owner()))),
            key => Ok(key.to_vec()),
        }
    }

    fn source(self, layout: Layout, start: Bound, group: bool, upsert: bool) -> Result<Box<dyn Source>, ConnectError> {
        let owner = self.connection.owner.clone();
        let wrong = |why: String| ConnectError::new(format!("{owner}: {why}"));
        let topics = Topics::of(self.common.topic.as_deref(), self.common.topic_pattern.as_deref()).map_err(wrong)?;
        let stop = start::stop(&self.scan).map_err(wrong)?;
        let uses_group = group || start == Bound::Group || stop == Some(Bound::Group);
        if uses_group && self.connection.group.is_none() {
            return Err(wrong(
                "reading from the offsets of a group needs 'properties.group.id'; 'scan.startup.mode' = 'earliest-offset' needs none"
                    .into(),
            ));
        }
        let several = !matches!(&topics, Topics::Named(names) if names.len() == 1);
        if several && (matches!(start, Bound::Specific(_)) || matches!(stop, Some(Bound::Specific(_)))) {
            return Err(wrong("'specific-offsets' need one topic".into()));
        }
        layout.check_readable().map_err(|e| e.at(&owner))?;
        let discovery = Some(self.scan.discovery).filter(|interval| stop.is_none() && !interval.is_zero());
        Ok(Box::new(KafkaSource {
            connection: self.connection,
            topics,
            layout,
            start,
            stop,
            discovery,
            reset: self.scan.offset_reset,
            prefetch: self.scan.prefetch,
            client: self.scan.client,
            group,
            upsert,
            memory: AtomicU64::new(0),
            consumer: Mutex::new(None),
            ahead: OnceLock::new(),
            fetcher: Mutex::new(None),
            members: Members::default(),
        }))
    }

    fn sink(
        self,
        layout: Layout,
        written: Written,
        partitioner: Partitioner,
        upsert: Option<Buffering>,
    ) -> Result<Box<dyn Sink>, ConnectError> {
        let owner = self.connection.owner.clone();
        let wrong = |why: String| ConnectError::new(format!("{owner}: {why}"));
        let topic = match Topics::of(self.common.topic.as_deref(), self.common.topic_pattern.as_deref()).map_err(wrong)? {
            Topics::Named(names) if names.len() == 1 => names[0].clone(),
            _ => return Err(wrong("a table that is written needs one topic ('topic')".into())),
        };
        layout.check_writable().map_err(|e| e.at(&owner))?;
        let transactions = match (self.sink.guarantee, &self.sink.prefix) {
            (Guarantee::ExactlyOnce, Some(prefix)) if !prefix.trim().is_empty() => {
                Some(Arc::new(Transactions::new(&self.connection, &topic, prefix.trim(), self.sink.queue, self.sink.lost)?))
            }
            (Guarantee::ExactlyOnce, _) => {
                return Err(wrong("'exactly-once' needs 'sink.transactional-id-prefix', which no other job may have".into()));
            }
            _ => None,
        };
        Ok(Box::new(KafkaSink {
            connection: self.connection,
            topic,
            layout,
            written,
            partitioner,
            guarantee: self.sink.guarantee,
            queue: self.sink.queue,
            lost: self.sink.lost,
            transactions,
            upsert,
            stopping: Arc::default(),
        }))
    }
}

/// The names in 'key.fields'.
fn fields(options: &PlainOptions) -> Vec<String> {
    let list = options.key_fields.as_deref().unwrap_or("");
    list.split(';').map(str::trim).filter(|n| !n.is_empty()).map(str::to_string).collect()
}

fn plain_source(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Source>, ConnectError> {
    let taken = Taken::take(raw)?;
    let options = PlainOptions::take(raw)?;
    let wrong = |why: &str| Err(ConnectError::new(format!("{}: {why}", taken.connection.owner)));
    let start = start::start(&options).map_err(|why| ConnectError::new(format!("{}: {why}", taken.connection.owner)))?;
    let group = options.assignment == Assignment::Group;
    if group && taken.scan.bounded != Bounded::Unbounded {
        return wrong("'scan.assignment' = 'group' cannot be bounded: partitions come and go");
    }
    if group && matches!(start, Bound::Timestamp(_) | Bound::Specific(_)) {
        return wrong("'scan.assignment' = 'group' begins at the offsets of the group: leave 'scan.startup.mode' out");
    }
    let layout = taken.layout(schema, fields(&options), false, raw)?;
    taken.source(layout, start, group, false)
}

fn plain_sink(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Sink>, ConnectError> {
    let taken = Taken::take(raw)?;
    let options = PlainOptions::take(raw)?;
    // So that companions are checked here, too.
    start::start(&options).map_err(|why| ConnectError::new(format!("{}: {why}", taken.connection.owner)))?;
    if options.partitioner == Partitioner::RoundRobin && options.key_fields.is_some() {
        let owner = &taken.connection.owner;
        return Err(ConnectError::new(format!("{owner}: 'sink.partitioner' = 'round-robin' is for messages without keys ('key.fields')")));
    }
    let (physical, indices, written) = taken.facts.divide(schema, &taken.connection.owner)?;
    let layout = taken.layout(&physical, fields(&options), false, raw)?.over(&indices);
    taken.sink(layout, written, options.partitioner, None)
}

fn upsert_source(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Source>, ConnectError> {
    let taken = Taken::take(raw)?;
    UpsertOptions::take(raw)?;
    let key = taken.primary_key(raw)?;
    let layout = taken.layout(schema, key, true, raw)?;
    taken.source(layout, Bound::Earliest, false, true)
}

fn upsert_sink(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Sink>, ConnectError> {
    let taken = Taken::take(raw)?;
    let options = UpsertOptions::take(raw)?;
    let key = taken.primary_key(raw)?;
    let (physical, indices, written) = taken.facts.divide(schema, &taken.connection.owner)?;
    if written != Written::default() {
        return Err(ConnectError::new(format!("{}: 'upsert-kafka' writes no metadata; declare the columns VIRTUAL", raw.owner())));
    }
    let layout = taken.layout(&physical, key, true, raw)?.over(&indices);
    taken.sink(layout, written, Partitioner::Default, Some(Buffering { rows: options.buffer_rows, interval: options.buffer_interval }))
}
