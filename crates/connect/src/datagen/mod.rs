//! The connector `datagen`: a source that makes its rows up.
//!
//! What row i holds is a function of the seed and of i alone: the same at every block size and
//! parallelism, and after every restart. (Times "now" are the exception, unless `start-time` is
//! given.) How rows are divided among splits and paced, `source.rs` and `reader.rs` say, which other
//! generators use too.

pub(crate) mod columns;
pub(crate) mod counter;
pub(crate) mod random;
pub(crate) mod reader;
pub(crate) mod source;
mod timer;
mod trades;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{SchemaRef, TimeUnit};
use tidemill_block::value;
use tidemill_format::options::{OptionSet, OptionSpec, RawOptions};
use tidemill_format::{option_enum, options};

use crate::registry::Connector;
use crate::{ConnectError, Source};
use columns::{Clock, Column, FieldOptions};
use reader::{Schedule, Steady};
use source::Generated;

/// The connector.
pub static CONNECTOR: Connector = Connector {
    name: "datagen",
    help: "Makes rows up: random numbers and texts, sequences, or the trades of a stock exchange. The same seed gives the same rows.",
    specs,
    takes_format: false,
    source: Some(source),
    sink: None,
    lookup: None,
};

option_enum! {
    /// What the rows are made of.
    pub enum Model {
        /// Each column by its own options `fields.<column>.…`.
        Fields = "fields",
        /// Stock trades, columns by name.
        Trades = "trades",
    }
}

options! {
    /// Options of the connector `datagen`, those of single columns excepted.
    pub struct DatagenOptions {
        /// Rows a second, all parallel readers together; 0 for as fast as possible.
        flink "rows-per-second" => rows_per_second: u64 = 10_000u64;
        /// How many rows there are. Without it, and without a sequence that ends, there is no end.
        flink "number-of-rows" => number_of_rows: Option<u64>;
        /// How many splits the rows are divided among, 1 to 1024, as a topic has partitions; by default one
        /// for each shard.
        ours "splits" => splits: Option<usize>;
        /// The same seed gives the same rows.
        ours "seed" => seed: u64 = 42u64;
        /// `fields`: each column as its options say. `trades`: a model of stock trades that fills
        /// columns by their names: id, symbol, currency, time, price, size, venue, buyer, seller.
        ours "generator" => generator: Model = Model::Fields;
        /// The time of the first row, as '2024-01-31 09:30:00', for columns of time that are
        /// otherwise "now" when the row is made; the following rows are 1/rows-per-second apart
        /// (1 µs if there is no rate). For `trades`, the opening of the first day, by default
        /// '2024-01-08 09:30:00'.
        ours "start-time" => start_time: Option<String>;
        /// `trades`: how many symbols are traded; the k-th is traded 1/k as often as the first.
        ours "trades.symbols" => symbols: usize = 100usize;
        /// `trades`: how much too early the time of a trade may be, so that rows are out of order.
        ours "trades.disorder" => disorder: Duration = Duration::ZERO;
    }
}

/// The most splits.
const SPLITS_LIMIT: usize = 1024;

fn specs() -> Vec<OptionSpec> {
    let field = |name, kind, default: Option<&str>, help, flink| OptionSpec { name, kind, default: default.map(String::from), help, flink };
    let mut specs = DatagenOptions::specs();
    specs.extend([
        field("fields.#.kind", "`random` `sequence`", Some("random"), "How the values of column # come about.", true),
        field(
            "fields.#.min",
            "number",
            None,
            "Random numbers: the smallest; by default that of the type, 0 for FLOAT, DOUBLE and DECIMAL.",
            true,
        ),
        field("fields.#.max", "number", None, "Random numbers: the largest; by default that of the type.", true),
        field("fields.#.length", "integer", Some("100"), "STRING and BYTES: how many characters or bytes.", true),
        field("fields.#.var-len", "boolean", Some("false"), "STRING and BYTES: whether the length is random, 1 to `length`.", true),
        field("fields.#.max-past", "duration", Some("0 s"), "Random times: how long before now at most.", true),
        field("fields.#.null-rate", "number", Some("0"), "The share of nulls, 0 to 1.", true),
        field("fields.#.start", "number", Some("0"), "Sequences: the first value; for TIMESTAMP a timestamp.", true),
        field("fields.#.end", "number", None, "Sequences: the last value, after which the source ends.", true),
        field("fields.#.step", "duration", Some("1 ms"), "Sequences of TIMESTAMP: from value to value.", false),
    ]);
    specs
}

fn source(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Source>, ConnectError> {
    let options = DatagenOptions::take(raw)?;
    let owner = raw.owner().to_string();
    if options.splits.is_some_and(|splits| !(1..=SPLITS_LIMIT).contains(&splits)) {
        return Err(ConnectError::new(format!("{owner}: option 'splits': expected 1 to {SPLITS_LIMIT}")));
    }
    let mut fields: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for (key, text) in raw.take_prefixed("fields.") {
        // A column's name may have dots, an attribute has none.
        match key.rsplit_once('.') {
            Some((column, attribute)) => fields.entry(column.to_string()).or_default().insert(attribute.to_string(), text),
            None => return Err(ConnectError::new(format!("{owner}: option 'fields.{key}': expected 'fields.<column>.<attribute>'"))),
        };
    }
    let columns = match options.generator {
        Model::Trades => trade_columns(&options, &owner, schema, &fields)?,
        Model::Fields => field_columns(&options, &owner, schema, fields)?,
    };
    let rows = columns.iter().map(|c| c.rows).chain([options.number_of_rows]).flatten().min();
    let rate = options.rows_per_second;
    let schedule = (rate > 0).then(|| Arc::new(Steady(rate)) as Arc<dyn Schedule>);
    Ok(Box::new(Generated { connector: "datagen", columns, rows, schedule, splits: options.splits }))
}

fn start_time(options: &DatagenOptions, owner: &str, unit: TimeUnit) -> Result<Option<i64>, ConnectError> {
    let Some(text) = &options.start_time else { return Ok(None) };
    value::parse_timestamp(text.trim().as_bytes(), unit).map(Some).ok_or_else(|| {
        ConnectError::new(format!("{owner}: option 'start-time' = '{text}': expected a timestamp such as '2024-01-31 09:30:00'"))
    })
}

fn field_columns(
    options: &DatagenOptions,
    owner: &str,
    schema: &SchemaRef,
    mut fields: BTreeMap<String, BTreeMap<String, String>>,
) -> Result<Vec<Column>, ConnectError> {
    let step_ns = match options.rows_per_second {
        0 => 1_000,
        rate => (1_000_000_000 / rate) as i64,
    };
    let clock = Clock { start_ns: start_time(options, owner, TimeUnit::Nanosecond)?, step_ns };
    let mut columns = Vec::new();
    for (index, field) in schema.fields().iter().enumerate() {
        let own = FieldOptions::new(owner, field.name(), fields.remove(field.name()).unwrap_or_default());
        columns.push(columns::column(own, field, index, options.seed, clock)?);
    }
    match fields.keys().next() {
        None => Ok(columns),
        Some(unknown) => {
            let names: Vec<_> = schema.fields().iter().map(|f| f.name().as_str()).collect();
            Err(ConnectError::new(format!(
                "{owner}: options 'fields.{unknown}.…' are for no physical column of the table; those are: {}",
                names.join(", ")
            )))
        }
    }
}

fn trade_columns(
    options: &DatagenOptions,
    owner: &str,
    schema: &SchemaRef,
    fields: &BTreeMap<String, BTreeMap<String, String>>,
) -> Result<Vec<Column>, ConnectError> {
    if let Some(column) = fields.keys().next() {
        return Err(ConnectError::new(format!(
            "{owner}: options 'fields.{column}.…' have no meaning with 'generator' = 'trades'; remove them"
        )));
    }
    if !(1..=trades::SYMBOLS_MAX).contains(&options.symbols) {
        let (given, most) = (options.symbols, trades::SYMBOLS_MAX);
        return Err(ConnectError::new(format!("{owner}: option 'trades.symbols' = '{given}': expected a whole number from 1 to {most}")));
    }
    let opening_us = start_time(options, owner, TimeUnit::Microsecond)?.unwrap_or(trades::OPENING_US);
    let market = Arc::new(trades::Market::new(options.seed, options.symbols, opening_us, options.disorder));
    schema.fields().iter().map(|field| trades::column(&market, owner, field)).collect()
}

#[cfg(test)]
mod tests;
