//! The connector `redis-streams`, source and sink over streams of Redis, by a client of our own.
//!
//! What it promises after a crash. A source goes on exactly where the checkpoint says: a split is a stream, its position
//! the ID of the last entry that was read. A sink is at-least-once, or exactly-once: then entries wait in files until
//! their checkpoint is safe, and are added together with a mark that says so ([`exactly_once`] says why that is sound).
//! What does not live here: the formats of messages (crate `format`).
//!
//! Why no library. What a stream answers is a tree of short texts, of which a library makes an object each before anybody
//! may look at the first; here fields go from the socket into one buffer, and an answer is handed over as it arrives, so
//! that what waits is bounded in bytes and not in entries. The protocol beneath takes 200 lines ([`resp`]).
//!
//! - [`options`], [`address`], [`connector`]: what users write, and what is made of it
//! - [`resp`], [`connection`], [`outage`]: the protocol; one connection; what is borne and told when a server is away
//! - [`id`], [`info`], [`position`]: IDs of entries, what a server knows of a stream, and where a split stands
//! - [`source`], [`follow`], [`feed`], [`reader`], [`rows`]: a thread a stream follows it, the worker makes rows
//! - [`entries`], [`sink`], [`at_once`], [`exactly_once`], [`frames`]: rows as entries, and the two ways to add them

mod address;
mod at_once;
mod connection;
mod connector;
mod entries;
mod exactly_once;
mod feed;
mod follow;
mod frames;
mod id;
mod info;
pub mod options;
mod outage;
mod position;
mod reader;
pub mod resp;
mod rows;
mod sink;
mod source;

#[cfg(test)]
mod tests;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use connector::REDIS_STREAMS;
use tidemill_connect::registry::{Connector, extend};

/// The connectors of this crate.
static CONNECTORS: &[&Connector] = &[&REDIS_STREAMS];

/// Adds the connectors of this crate to the registry; once, at the start of the process.
pub fn register() {
    extend(CONNECTORS);
}

/// What a lock guards, whoever has panicked with it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
