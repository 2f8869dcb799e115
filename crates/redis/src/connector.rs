//! The entry of the registry: from a table's options to its source or sink.

use std::sync::OnceLock;

use arrow::datatypes::SchemaRef;
use tidemill_connect::registry::Connector;
use tidemill_connect::{ConnectError, ReadRequest, Sink, Source};
use tidemill_format::message::MessageFormat;
use tidemill_format::options::{ByteSize, OptionSet, OptionSpec, RawOptions};

use crate::address::Address;
use crate::entries::{EntryEncoder, Trim};
use crate::id::EntryId;
use crate::options::{Bounded, CommonOptions, ScanOptions, SinkOptions, Startup};
use crate::rows::{Layout, RowMaker};
use crate::sink::{RedisSink, check_columns};
use crate::source::{RedisSource, Start};

/// The connector `redis-streams`.
pub static REDIS_STREAMS: Connector = Connector {
    name: "redis-streams",
    help: "Reads and writes streams of Redis. A restart goes on behind the entry of the checkpoint; a sink is at-least-once, or \
           exactly-once. Each column is a field of an entry, or one field holds a message in a format ('value.format'): json, csv, raw, \
           avro, debezium-json and others.",
    specs,
    takes_format: true,
    source: Some(source),
    sink: Some(sink),
    lookup: None,
};

/// The field that holds a message, if the options do not say it.
const VALUE_FIELD: &str = "value";
/// The most entries that may be asked for at once.
const BATCH_MAX: usize = 1_000_000;

fn specs() -> Vec<OptionSpec> {
    [CommonOptions::specs(), ScanOptions::specs(), SinkOptions::specs()].concat()
}

/// All options of a table.
struct Taken {
    owner: String,
    address: Address,
    streams: Vec<String>,
    layout: Layout,
    scan: ScanOptions,
    sink: SinkOptions,
    /// A column that is metadata and not virtual, so that it would be written.
    written: Option<String>,
}

impl Taken {
    fn take(raw: &mut RawOptions) -> Result<Self, ConnectError> {
        let owner = raw.owner().to_string();
        let wrong = |why: String| ConnectError::new(format!("{owner}: {why}"));
        // What only the table knows.
        let facts = raw.take_prefixed("#");
        let written = facts.into_iter().find(|(name, _)| name.starts_with("metadata.")).map(|(_, column)| column);
        let common = CommonOptions::take(raw)?;
        let (scan, sink) = (ScanOptions::take(raw)?, SinkOptions::take(raw)?);
        let address = Address::of(&common).map_err(|e| e.at(&owner))?;
        let mut streams: Vec<String> = Vec::new();
        for name in common.stream.split(';').map(str::trim).filter(|name| !name.is_empty()) {
            if !streams.iter().any(|known| known == name) {
                streams.push(name.to_string());
            }
        }
        if streams.is_empty() {
            return Err(wrong("option 'stream': expected the key of a stream".into()));
        }
        if !(1..=BATCH_MAX).contains(&scan.batch) {
            return Err(wrong(format!("option 'scan.batch': expected 1 to {BATCH_MAX}")));
        }
        for (name, ByteSize(size)) in [("scan.prefetch", scan.prefetch), ("sink.queue", sink.queue)] {
            if !(1 << 10..=1 << 30).contains(&size) {
                return Err(wrong(format!("option '{name}': expected 1 kb to 1 gb")));
            }
        }
        let layout = layout(&common, raw)?;
        Ok(Taken { owner, address, streams, layout, scan, sink, written })
    }
}

fn layout(common: &CommonOptions, raw: &mut RawOptions) -> Result<Layout, ConnectError> {
    let owner = raw.owner().to_string();
    let wrong = |why: &str| ConnectError::new(format!("{owner}: {why}"));
    let format = match (MessageFormat::take(raw, "value.")?, MessageFormat::take(raw, "")?) {
        (Some(_), Some(_)) => return Err(wrong("options 'format' and 'value.format' mean the same: give one of them")),
        (format, None) | (None, format) => format,
    };
    match format {
        None if common.value_field.is_some() => Err(wrong("option 'value.field' needs 'value.format'")),
        None => Ok(Layout::Fields),
        Some(format) if format.registry_options().is_some() => {
            Err(wrong("format 'avro-confluent' needs a schema registry, which only 'connector' = 'kafka' asks; use 'avro'"))
        }
        Some(format) => {
            let field = common.value_field.clone().unwrap_or_else(|| VALUE_FIELD.to_string());
            Ok(Layout::Message { field, format })
        }
    }
}

/// Where a scan begins.
fn start(options: &ScanOptions) -> Result<Start, String> {
    let alone = |given: bool, name: &str, mode: &str| match given {
        true => Err(format!("option '{name}' needs 'scan.startup.mode' = '{mode}'")),
        false => Ok(()),
    };
    if options.startup != Startup::Id {
        alone(options.startup_id.is_some(), "scan.startup.id", "id")?;
    }
    if options.startup != Startup::Timestamp {
        alone(options.startup_ms.is_some(), "scan.startup.timestamp-millis", "timestamp")?;
    }
    match options.startup {
        Startup::Earliest => Ok(Start::Earliest),
        Startup::Latest => Ok(Start::Latest),
        Startup::Id => {
            let text = options.startup_id.as_deref().ok_or("option 'scan.startup.id' is required")?;
            let id = EntryId::parse(text.trim());
            id.map(Start::After).ok_or_else(|| format!("option 'scan.startup.id' = '{text}': expected an ID such as '1526919030474-55'"))
        }
        Startup::Timestamp => {
            let ms = options.startup_ms.ok_or("option 'scan.startup.timestamp-millis' is required")?;
            Ok(Start::After(EntryId::before(ms)))
        }
    }
}

/// How much of the stream is kept.
fn trim(options: &SinkOptions) -> Result<Trim, String> {
    match (options.length_max, options.retention) {
        (Some(_), Some(_)) => Err("options 'sink.max-length' and 'sink.retention' exclude each other: Redis trims by one of them".into()),
        (Some(0), None) => Err("option 'sink.max-length': expected 1 at least".into()),
        (Some(length), None) => Ok(Trim::Length(length)),
        (None, Some(age)) if age.is_zero() => Err("option 'sink.retention': expected more than nothing".into()),
        (None, Some(age)) => Ok(Trim::Age(age)),
        (None, None) => Ok(Trim::Never),
    }
}

fn source(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Source>, ConnectError> {
    let taken = Taken::take(raw)?;
    let owner = taken.owner.as_str();
    let start = start(&taken.scan).map_err(|why| ConnectError::new(format!("{owner}: {why}")))?;
    // So that a column that cannot be read is found now.
    let all = ReadRequest::all(schema.clone());
    RowMaker::new(&taken.streams[0], &taken.layout, &all).map_err(|e| e.at(owner))?;
    Ok(Box::new(RedisSource {
        address: taken.address,
        streams: taken.streams,
        layout: taken.layout,
        start,
        bounded: taken.scan.bounded == Bounded::Latest,
        lost: taken.scan.lost,
        batch: taken.scan.batch,
        prefetch: taken.scan.prefetch.0 as usize,
        memory: OnceLock::new(),
    }))
}

fn sink(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Sink>, ConnectError> {
    let taken = Taken::take(raw)?;
    let owner = taken.owner.clone();
    let wrong = |why: String| ConnectError::new(format!("{owner}: {why}"));
    // So that companions are checked here, too.
    start(&taken.scan).map_err(wrong)?;
    let trim = trim(&taken.sink).map_err(wrong)?;
    if let Some(column) = &taken.written {
        return Err(wrong(format!("column '{column}': the server makes keys, IDs and timestamps of entries; declare it VIRTUAL")));
    }
    let [stream] = taken.streams.as_slice() else {
        return Err(wrong("a table that is written needs one stream ('stream')".into()));
    };
    check_columns(schema.fields().len(), &taken.layout, taken.sink.guarantee).map_err(wrong)?;
    EntryEncoder::new(&taken.layout, schema).map_err(|e| e.at(&owner))?;
    let (guarantee, queue) = (taken.sink.guarantee, taken.sink.queue.0 as usize);
    Ok(Box::new(RedisSink::new(taken.owner, taken.address, stream.clone(), taken.layout, trim, guarantee, queue)))
}
