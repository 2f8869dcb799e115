//! The connector `http`: rows that others send to us in requests, rows that we send to others, and rows
//! that we ask others for.
//!
//! What it promises. A source answers a request when its rows wait for the job, or, if asked, when a
//! checkpoint that covers them is committed; what was not answered so must be sent again after a crash,
//! and what was is never lost. A body is taken whole or not at all. A sink waits at each checkpoint for
//! the answers to all its requests, and repeats after a crash what it sent since the last one: at least
//! once. Each request has a key by which a server can tell a repeated one.
//!
//! - [`options`]: what a table may say
//! - [`listener`]: one listener for all tables of an address; [`serve`]: a request and its answer
//! - [`body`], [`ipc`]: from a body to text or rows; [`answer`]: what a sender is told
//! - [`inbox`]: from requests to the reader, and back when rows are committed
//! - [`lookup`]: tables that are asked for keys
//! - [`source`], [`sink`]: the two directions; [`batch`], [`post`]: bodies and their requests

mod answer;
mod batch;
mod body;
mod inbox;
mod ipc;
mod listener;
pub mod lookup;
mod options;
mod post;
mod serve;
mod sink;
mod source;

use arrow::datatypes::SchemaRef;
use tidemill_connect::registry::Connector;
use tidemill_connect::stdio::required_format;
use tidemill_connect::{ConnectError, Sink, Source};
use tidemill_format::options::{OptionSet, OptionSpec, RawOptions};
use tidemill_format::text::TextFormat;

use options::HttpOptions;

/// The connector.
pub static CONNECTOR: Connector = Connector {
    name: "http",
    help: "Takes rows that others POST to an address and path, or POSTs batches of rows to a URL; looked up, it asks a URL for the rows \
           of each key. `format` is `json`, `csv` or `arrow` \
           (Arrow IPC streams, which a source takes whatever its format). A source answers when the rows wait for the job, or after the \
           checkpoint that covers them; after a crash a sink repeats what it sent since the last checkpoint.",
    specs,
    takes_format: true,
    source: Some(make_source),
    sink: Some(make_sink),
    lookup: Some(lookup::make),
};

fn specs() -> Vec<OptionSpec> {
    HttpOptions::specs().into_iter().chain(lookup::specs()).collect()
}

/// How rows are written in a body.
#[derive(Clone, Debug)]
pub(crate) enum Format {
    Text(TextFormat),
    /// Nothing but Arrow IPC streams.
    Arrow,
}

impl Format {
    fn take(raw: &mut RawOptions) -> Result<Self, ConnectError> {
        match raw.peek("format") {
            Some("arrow") => {
                // Taken, so that it counts as known.
                raw.take::<String>("format")?;
                Ok(Format::Arrow)
            }
            None => Err(ConnectError::new(format!("{}: option 'format' is required; it can be json, csv or arrow", raw.owner()))),
            Some(_) => Ok(Format::Text(required_format(raw)?)),
        }
    }
}

fn make_source(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Source>, ConnectError> {
    let options = HttpOptions::checked_source(raw)?;
    let format = Format::take(raw)?;
    if let Format::Text(format) = &format {
        // So that a column that cannot be read is found now.
        format.decoder(schema, &[]).map_err(|e| ConnectError::from(e).at(raw.owner()))?;
    }
    let source = source::HttpSource::new(options, format, raw.owner()).map_err(|e| e.at(raw.owner()))?;
    Ok(Box::new(source))
}

fn make_sink(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Sink>, ConnectError> {
    let options = HttpOptions::checked_sink(raw)?;
    let format = Format::take(raw)?;
    if let Format::Text(format) = &format {
        format.encoder(schema).map_err(|e| ConnectError::from(e).at(raw.owner()))?;
    }
    let post = post::Post::new(&options, &format).map_err(|e| e.at(raw.owner()))?;
    Ok(Box::new(sink::HttpSink::new(options, format, post)))
}

#[cfg(test)]
mod sink_tests;
#[cfg(test)]
mod source_tests;
