//! The connector `flight`: rows of streams of another process, over Arrow Flight.
//!
//! What it promises after a crash. A source of a stream whose delivery is exactly-once goes on with
//! the row behind the last checkpoint's, if the stream's log still has it, which a subscriber with a
//! name makes sure of. A source of a live stream goes on with what comes then. A sink waits at each
//! checkpoint until the server has made all its rows safe; rows sent after the last checkpoint are
//! sent again by the run that follows a crash, so it is at-least-once. While the process lives, a
//! broken connection neither loses nor repeats rows.
//!
//! - [`options`]: what a table may say
//! - [`client`]: address, encryption, token, what errors mean
//! - [`wire`]: batches to messages and back; [`blocks`]: how many rows a message holds; [`body`]: messages on their way out
//! - [`publisher`], [`subscriber`]: the two directions, with their reconnecting, both over [`watched`] state
//! - [`sink`], [`source`]: the connector

pub mod blocks;
mod body;
pub mod client;
pub mod options;
pub mod publisher;
mod sink;
mod source;
pub mod subscriber;
mod watched;
mod wire;

#[cfg(test)]
pub(crate) mod script;

use arrow::datatypes::{DataType, SchemaRef};
use tidemill_connect::registry::Connector;
use tidemill_connect::{ConnectError, Sink, Source};
use tidemill_format::options::{OptionSet, RawOptions};

use client::ROW_KIND;
use options::{Changes, FlightOptions};
pub(crate) use sink::{coded, with_kinds};

/// The connector.
pub static CONNECTOR: Connector = Connector {
    name: "flight",
    help: "Subscribes to a stream of a Tidemill server, or publishes into one, over Arrow Flight. A source of a stream whose delivery is \
           exactly-once goes on after a restart where its checkpoint stands; a live stream goes on with what comes then. A sink waits at \
           each checkpoint for the server's acknowledgement, and repeats after a crash what it sent since the last one.",
    specs: FlightOptions::specs,
    takes_format: false,
    source: Some(make_source),
    sink: Some(make_sink),
    lookup: None,
};

fn make_source(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Source>, ConnectError> {
    let options = FlightOptions::checked(raw)?;
    if options.changes == Changes::AsColumn && !schema.fields().iter().any(|f| f.name() == ROW_KIND && *f.data_type() == DataType::Int8) {
        return Err(ConnectError::new(format!("{}: 'changes' = 'as-column' needs a column {ROW_KIND} TINYINT", raw.owner())));
    }
    let client = options.client().map_err(|e| e.at(raw.owner()))?;
    Ok(Box::new(source::FlightSource::new(options, client)))
}

fn make_sink(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Sink>, ConnectError> {
    let options = FlightOptions::checked(raw)?;
    if options.changes == Changes::Apply && schema.field_with_name(ROW_KIND).is_ok() {
        return Err(ConnectError::new(format!(
            "{}: 'changes' = 'apply' says in {ROW_KIND} what each row does, so the table can have no column of this name",
            raw.owner()
        )));
    }
    let client = options.client().map_err(|e| e.at(raw.owner()))?;
    Ok(Box::new(sink::FlightSink { options, client, updating: Default::default() }))
}
