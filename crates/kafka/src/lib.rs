//! The connectors `kafka` and `upsert-kafka`, source and sink, over librdkafka, and for reading over connections of our own.
//!
//! What they promise after a crash. A source goes on exactly where the checkpoint says: a split is a
//! partition, its position the next offset. A sink is at-least-once, or exactly-once through
//! transactions that are committed when a checkpoint is safe ([`transaction`] says how). What does not
//! live here: the formats of keys and values (crate `format`), and what becomes of upserts (plans).
//!
//! - [`options`], [`properties`]: what users write, and what librdkafka is told
//! - [`access`]: encryption and logging in of connections of our own
//! - [`client`], [`outage`]: what every client has: errors, outages, logs
//! - [`consumer`], [`partitions`], [`start`], [`topic_id`]: one consumer a source, where its partitions begin and end
//! - [`queue`]: messages of a partition in batches, without a cost for each; [`prefetch`]: how many wait in the client
//! - [`fetch`]: reading without librdkafka; [`taken`] is what messages of both are to everybody else
//! - [`layout`], [`rows`], [`metadata`]: messages to rows and back to columns of key and value
//! - [`source`], [`reader`], [`group`]: the source; `group` is for processes that share a topic
//! - [`producer`], [`sink`], [`route`], [`upsert`]: the sinks
//! - [`transaction`]: what makes a sink exactly-once
//! - [`registry`]: the schema registry of `avro-confluent`

mod access;
mod client;
mod connector;
mod consumer;
pub mod fetch;
mod group;
mod layout;
mod metadata;
pub mod options;
mod outage;
mod partitions;
mod position;
mod prefetch;
mod producer;
mod properties;
mod queue;
mod reader;
mod registry;
mod route;
mod rows;
mod sink;
mod source;
mod start;
mod taken;
mod topic_id;
mod transaction;
mod upsert;

#[cfg(test)]
mod tests;

pub use connector::{KAFKA, UPSERT_KAFKA};
use tidemill_connect::registry::{Connector, extend};

/// The connectors of this crate, in order of name.
static CONNECTORS: &[&Connector] = &[&KAFKA, &UPSERT_KAFKA];

/// Adds the connectors of this crate to the registry; once, at the start of the process.
pub fn register() {
    extend(CONNECTORS);
}
