//! The connector `datagen`: a source that makes its rows up.
//!
//! What row i holds is a function of the seed and of i alone: the same at every block size and
//! parallelism, and after every restart. (Times "now" are the exception, unless `start-time` is
//! given.) So a split is any subset of the row numbers: with n splits, every n-th chunk of rows.

mod columns;
mod counter;
mod random;
mod reader;
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
use crate::{ConnectError, Reader, ReaderContext, Source, Split};
use columns::{Clock, Column, FieldOptions};
use counter::Stripe;

/// The connector.
pub static CONNECTOR: Connector = Connector {
    name: "datagen",
    help: "Makes rows up: random numbers and texts, sequences, or the trades of a stock exchange. The same seed gives the same rows.",
    specs,
    takes_format: false,
    source: Some(source),
    sink: None,
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

/// Rows in a chunk, if there are several splits and no rate that asks for less.
const CHUNK_ROWS_MAX: u64 = 1024;
/// With a rate, a chunk is at most a hundredth of a second of rows, so that the splits take turns
/// quickly and none of them lags behind in event time.
const CHUNKS_PER_SECOND: u64 = 100;

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
    Ok(Box::new(Datagen::new(schema, raw)?))
}

/// The source.
struct Datagen {
    columns: Vec<Column>,
    rows: Option<u64>,
    rate: u64,
}

impl Datagen {
    fn new(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Self, ConnectError> {
        let options = DatagenOptions::take(raw)?;
        let owner = raw.owner().to_string();
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
        Ok(Datagen { columns, rows, rate: options.rows_per_second })
    }

    fn chunk_rows(&self, splits: u64) -> u64 {
        match self.rate {
            _ if splits == 1 => CHUNK_ROWS_MAX,
            0 => CHUNK_ROWS_MAX,
            rate => (rate / CHUNKS_PER_SECOND).clamp(1, CHUNK_ROWS_MAX),
        }
    }
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

impl Source for Datagen {
    fn bounded(&self) -> bool {
        self.rows.is_some()
    }

    fn splits(&self, parallelism: usize) -> Result<Vec<Split>, ConnectError> {
        let of = parallelism.max(1) as u64;
        let chunk = self.chunk_rows(of);
        Ok((0..of).map(|index| Split::new(stripe_id(Stripe { index, of, chunk }))).collect())
    }

    fn open(&self, split: &Split, context: ReaderContext) -> Result<Box<dyn Reader>, ConnectError> {
        let stripe = parse_stripe(&split.id).ok_or_else(|| {
            ConnectError::new(format!("datagen has no split '{}'; its splits are called 'stripe 0/4x1024' and so on", split.id))
        })?;
        if let Some((key, _)) = context.request.metadata.first() {
            return Err(ConnectError::new(format!("datagen has no metadata column '{key}'; it has none at all")));
        }
        Ok(Box::new(reader::StripeReader::new(&self.columns, stripe, self.rows, self.rate, split.position.as_ref(), context)?))
    }

    fn rows_hint(&self) -> Option<usize> {
        self.rows.and_then(|rows| usize::try_from(rows).ok())
    }
}

/// The id says everything about the stripe, so that a restored split is read as it was begun, even
/// at another parallelism: `stripe 0/4x1024` is the first of four with chunks of 1,024 rows.
fn stripe_id(stripe: Stripe) -> String {
    format!("stripe {}/{}x{}", stripe.index, stripe.of, stripe.chunk)
}

fn parse_stripe(id: &str) -> Option<Stripe> {
    let (index, rest) = id.strip_prefix("stripe ")?.split_once('/')?;
    let (of, chunk) = rest.split_once('x')?;
    let stripe = Stripe { index: index.parse().ok()?, of: of.parse().ok()?, chunk: chunk.parse().ok()? };
    (stripe.index < stripe.of && stripe.chunk > 0).then_some(stripe)
}

#[cfg(test)]
mod tests;
