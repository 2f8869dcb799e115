//! From a declared table to its source or sink: the options common to all tables, then the
//! connector's own.

use std::sync::Arc;
use std::time::Duration;

use tidemill_connect::filesystem::CUTS_SURELY;
use tidemill_connect::registry::Connector;
use tidemill_connect::{LookupOptions, LookupTable, Sink, Source, registry};
use tidemill_format::options::{OptionSet, OptionSpec, RawOptions};
use tidemill_format::{option_enum, options};
use tidemill_plan::{ColumnKind, Table};

use crate::JobError;
use crate::settings::BlockSize;

option_enum! {
    /// What happens to a record that cannot be read.
    pub enum OnError {
        /// The job fails and names the place.
        Fail = "fail",
        /// The record is counted and passed over.
        Skip = "skip",
        /// The record goes to the table that `dead-letter` names.
        DeadLetter = "dead-letter",
    }
}

options! {
    /// Options that every table has.
    pub struct TableOptions {
        /// Which connector reads or writes the table.
        flink "connector" => connector: String;
        /// Source: rows a block; overrides the job's setting. Sink: the most rows that are encoded and written at
        /// once. For `flight`, `siddhi-tcp` and `http` this is another name of `sink.block-size`, `frame.events`
        /// and `batch.rows`. By default as many as are at hand, about a thousand.
        ours "block.size" => block_size: Option<BlockSize>;
        /// Source: how long rows may be held back to fill a block of a fixed size; overrides the job's setting.
        ours "block.linger" => block_linger: Option<Duration>;
        /// In how long rows of this source shall have been worked off; overrides the job's setting.
        ours "block.latency-target" => latency_target: Option<Duration>;
        /// What happens to a record that cannot be read: `fail` names the place, `skip` counts it,
        /// `dead-letter` writes it to another table. Where a source listens for peers (`siddhi-tcp`, `http`,
        /// `websocket` and `socket` with 'mode' = 'listener') `skip` is the default: one peer's rubbish ends
        /// nobody's job.
        ours "on-error" => on_error: OnError = OnError::Fail;
        /// The table that gets unreadable records: any of the columns source STRING, place STRING,
        /// reason STRING, raw BYTES.
        ours "dead-letter" => dead_letter: Option<String>;
        /// After how long without input a split of this table no longer holds back the watermark.
        flink "scan.watermark.idle-timeout" => idle_timeout: Option<Duration>;
        /// When watermarks are emitted; accepted for Flink's sake, results do not depend on it.
        flink "scan.watermark.emit.strategy" => emit_strategy: Option<String>;
        /// Shards of this source; accepted for Flink's sake.
        flink "scan.parallelism" => scan_parallelism: Option<usize>;
        /// Shards of this sink; accepted for Flink's sake.
        flink "sink.parallelism" => sink_parallelism: Option<usize>;
    }
}

/// The options of every table, for the reference page.
pub fn common_specs() -> Vec<OptionSpec> {
    TableOptions::specs()
}

/// The name of the stream that a table is, if it is one of connector `stream`.
pub fn stream_name(table: &Table) -> Option<String> {
    let is_stream = table.options.get("connector").is_some_and(|c| c == "stream");
    is_stream.then(|| table.options.get("stream.name").unwrap_or(&table.name).clone())
}

/// The connectors that are told of primary keys and of metadata that is written.
const TOLD: [&str; 7] = ["jdbc", "kafka", "mqtt", "mysql-cdc", "postgres-cdc", "redis-streams", "upsert-kafka"];

fn raw(table: &Table) -> RawOptions {
    let mut options = table.options.clone();
    if let Some(name) = stream_name(table) {
        // What only the table knows, under the names of the connector's own options.
        options.insert("stream.name".into(), name);
        if !table.primary_key.is_empty() {
            options.entry("stream.primary-key".into()).or_insert_with(|| table.primary_key.join(","));
        }
    }
    if table.options.get("connector").is_some_and(|name| TOLD.contains(&name.as_str())) {
        // What only the table knows; no option that users write begins with #.
        options.insert("#primary-key".into(), table.primary_key.join("\u{1f}"));
        for column in &table.columns {
            if let ColumnKind::Metadata { key, is_virtual: false } = &column.kind {
                options.insert(format!("#metadata.{key}"), column.name.clone());
            }
        }
    }
    RawOptions::new(format!("table '{}'", table.name), options)
}

fn common(table: &Table, raw: &mut RawOptions) -> Result<TableOptions, JobError> {
    if table.options.is_empty() {
        return Err(JobError::usage(format!(
            "table '{}' has no WITH ('connector' = …), so it can be neither read nor written",
            table.name
        )));
    }
    let mut options = TableOptions::take(raw)?;
    // 'json.ignore-parse-errors', 'value.debezium-json.ignore-parse-errors' and the like.
    let ignores = |key: &str| key.ends_with("csv.ignore-parse-errors") || key.ends_with("json.ignore-parse-errors");
    let ignore = table.options.iter().any(|(key, value)| ignores(key) && value.trim().eq_ignore_ascii_case("true"));
    if options.on_error == OnError::Fail && ignore {
        options.on_error = OnError::Skip;
    }
    if options.on_error == OnError::DeadLetter && options.dead_letter.is_none() {
        return Err(JobError::usage(format!("table '{}': 'on-error' = 'dead-letter' needs 'dead-letter' = '<table>'", table.name)));
    }
    Ok(options)
}

/// Takes the options of lookups off a table that is read or written here: they are for when it is looked up.
fn pass_lookup_options(connector: &Connector, raw: &mut RawOptions) -> Result<(), JobError> {
    if connector.lookup.is_some() {
        LookupOptions::take(raw)?;
    }
    Ok(())
}

/// The table as one that is asked for keys.
pub fn lookup(table: &Table) -> Result<Arc<dyn LookupTable>, JobError> {
    let mut raw = raw(table);
    let options = common(table, &mut raw)?;
    if options.on_error != OnError::Fail {
        return Err(JobError::usage(format!(
            "table '{}': 'on-error' is of no use where the table is looked up (FOR SYSTEM_TIME AS OF a processing time): with rows left out \
             it would give wrong answers; leave it out, or see 'lookup.on-failure'",
            table.name
        )));
    }
    let connector = registry::find(&options.connector).map_err(|e| JobError::usage(format!("table '{}': {e}", table.name)))?;
    let lookup = connector.lookup(&table.physical_schema(), &mut raw).map_err(JobError::usage)?;
    raw.finish()?;
    Ok(lookup.into())
}

/// The source of a table and its common options. With `at_end` nothing of what is read counts before all of it was read without an
/// error: no row is committed before, and no query ends before.
pub fn source(table: &Table, at_end: bool) -> Result<(Arc<dyn Source>, TableOptions), JobError> {
    let mut raw = raw(table);
    let mut options = common(table, &mut raw)?;
    let connector = registry::find(&options.connector).map_err(|e| JobError::usage(format!("table '{}': {e}", table.name)))?;
    if options.connector == "filesystem" && !(at_end && options.on_error == OnError::Fail) {
        raw.or_insert(CUTS_SURELY, "true");
    }
    let source = connector.source(&table.physical_schema(), &mut raw).map_err(JobError::usage)?;
    pass_lookup_options(connector, &mut raw)?;
    raw.finish()?;
    if source.listens() && !table.options.contains_key("on-error") {
        options.on_error = OnError::Skip;
    }
    let offered = source.metadata_columns();
    for (key, field) in table.metadata() {
        // `partition.*` stands for all keys that begin so.
        let offers = |name: &str| name == key || name.strip_suffix('*').is_some_and(|begin| key.starts_with(begin));
        if !offered.iter().any(|(name, _)| offers(name)) {
            let names: Vec<_> = offered.iter().map(|(n, _)| *n).collect();
            return Err(JobError::usage(format!(
                "table '{}': connector '{}' has no metadata '{key}' for column '{}'; it has: {}",
                table.name,
                options.connector,
                field.name(),
                if names.is_empty() { "none".into() } else { names.join(", ") }
            )));
        }
    }
    Ok((source.into(), options))
}

/// The connectors that had a block size of their own before all tables did, and what it is called there.
const BLOCK_SIZES: [(&str, &str); 3] = [("flight", "sink.block-size"), ("siddhi-tcp", "frame.events"), ("http", "batch.rows")];

/// Lets `block.size` of a sink be what its connector calls it.
///
/// # Errors
/// Both are there, and differ.
fn name_block_size(options: &TableOptions, raw: &mut RawOptions) -> Result<(), JobError> {
    let (Some(BlockSize::Rows(rows)), Some((_, own))) =
        (options.block_size, BLOCK_SIZES.iter().find(|(connector, _)| *connector == options.connector))
    else {
        return Ok(());
    };
    raw.or_insert(own, rows.to_string());
    match raw.peek(own) {
        Some(given) if given.trim().replace('_', "") != rows.to_string() => Err(JobError::usage(format!(
            "{}: 'block.size' = '{rows}' and '{own}' = '{given}' are the same option; leave one out",
            raw.owner()
        ))),
        _ => Ok(()),
    }
}

/// The most rows that a sink is given at once, if the table says so.
pub(crate) fn rows_at_once(options: &TableOptions) -> Option<usize> {
    match options.block_size {
        Some(BlockSize::Rows(rows)) => Some(rows),
        Some(BlockSize::Auto) | None => None,
    }
}

/// The sink of a table and its common options.
pub fn sink(table: &Table) -> Result<(Arc<dyn Sink>, TableOptions), JobError> {
    let mut raw = raw(table);
    let options = common(table, &mut raw)?;
    name_block_size(&options, &mut raw)?;
    let connector = registry::find(&options.connector).map_err(|e| JobError::usage(format!("table '{}': {e}", table.name)))?;
    let sink = connector.sink(&table.sink_schema(), &mut raw).map_err(JobError::usage)?;
    pass_lookup_options(connector, &mut raw)?;
    raw.finish()?;
    Ok((sink.into(), options))
}
