//! The connector `mqtt`, source and sink, over MQTT 5 and connections of our own.
//!
//! What it promises after a crash. A source of quality 1 with a client id acknowledges a message when a checkpoint holds
//! it, so that the broker's session gives again what no checkpoint has: at least once. What comes again while the process
//! lives is known ([`ledger`]) and passed over. A sink of quality 1 completes a checkpoint when the broker has acknowledged
//! every message before it: at least once. With quality 0 nothing is promised.
//!
//! Why no client library: one that is driven by an event loop reads whenever it is driven, and says that it lives only
//! when it is driven, so that a job cannot hold a broker back without being thrown out; and it does not tell on which
//! connection a message came, which an acknowledgement long afterwards has to know. What does not live here: the formats of
//! messages (crate `format`).
//!
//! - [`options`]: what users write; [`topic`]: what names and filters may be
//! - [`packet`], [`reason`]: what goes over the wire, and what codes in it mean
//! - [`target`], [`link`]: calling a broker; a connection to it
//! - [`source`], [`session`], [`inbox`], [`ledger`], [`reader`], [`rows`]: reading
//! - [`sink`], [`line`](mod@line): writing

mod connector;
mod inbox;
mod ledger;
mod line;
mod link;
pub mod options;
pub mod packet;
mod reader;
mod reason;
mod rows;
mod session;
mod sink;
mod source;
mod target;
mod topic;

#[cfg(test)]
mod tests;

pub use connector::CONNECTOR;
use tidemill_connect::registry::{Connector, extend};

/// The connectors of this crate.
static CONNECTORS: &[&Connector] = &[&CONNECTOR];

/// Adds the connector of this crate to the registry; once, at the start of the process.
pub fn register() {
    extend(CONNECTORS);
}
