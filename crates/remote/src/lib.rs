//! Connectors and clients that reach other processes: Arrow Flight in both directions, and the loop
//! that publishes any other connector's rows.
//!
//! Everything here offers plain interfaces that block or are polled; tokio runs behind them, in one
//! small runtime that all clients of the process share ([`runtime`]). What does not live here: the
//! server side of the protocol, and anything that writes to the terminal; what a user should know
//! while a client goes on trying goes by [`tidemill_connect::notice`].
//!
//! - [`url`] reads `flight://host:port/stream`
//! - [`flight`]: the connector `flight`, the publisher and the subscriber it is made of
//! - [`http`], [`websocket`]: the connectors of these names
//! - [`adapter`]: rows of any connector, published exactly once

pub mod adapter;
#[cfg(test)]
mod fixture;
pub mod flight;
mod headers;
pub mod http;
mod lines;
pub mod runtime;
pub mod url;
pub mod websocket;

use tidemill_connect::registry::{self, Connector};

/// The connectors of this crate, in order of name.
static CONNECTORS: &[&Connector] = &[&flight::CONNECTOR, &http::CONNECTOR, &websocket::CONNECTOR];

/// Adds the connectors of this crate to the registry; once, at the start of the process.
pub fn register() {
    registry::extend(CONNECTORS);
}
