//! Named streams of this process: what jobs read from and write to publishers and subscribers.
//!
//! A table `WITH ('connector' = 'stream')` is a stream of the [`Hub`]. Read by a job it is an *inlet*:
//! publishers put rows into it. Written by a job it is an *outlet*: subscribers get its rows, as they
//! are computed (`live`) or when a checkpoint has made them safe (`exactly-once`).
//!
//! There are threads and locks here and nothing async: publishers and subscribers never wait, they are
//! woken. Who they are (Flight, HTTP, WebSocket) is the server's business, and so are tokens and
//! encodings. Wakers are called with locks held: they must only notify, and never call back.
//!
//! - [`hub`], [`stream`]: finding streams, what both sides of one have in common
//! - [`connector`]: the connector `stream`: options, source, sink
//! - [`inlet`], [`publisher`], [`fit`]: rows on their way into a job
//! - [`outlet`], [`subscriber`], [`delivery`]: rows on their way out of one
//! - [`contents`]: what the rows of a stream add up to; [`log`]: rows kept until they are acknowledged

mod connector;
mod contents;
mod delivery;
mod error;
mod fit;
mod hub;
mod inlet;
mod log;
mod outlet;
mod publisher;
mod stream;
mod subscriber;

pub use connector::{CONNECTOR, DeliveryMode, InletChanges, SnapshotMode, StreamOptions};
pub use delivery::{Delivery, Received};
pub use error::{HubError, Refusal};
pub use hub::Hub;
pub use publisher::{Incoming, Publisher, Sent};
pub use stream::{From, Mark, OutletInfo, ROW_KIND, Slow, Stream, StreamStats, SubscribeRequest};
pub use subscriber::Subscriber;

/// Adds the connector `stream` to the registry.
pub fn register() {
    static CONNECTORS: &[&tidemill_connect::registry::Connector] = &[&CONNECTOR];
    tidemill_connect::registry::extend(CONNECTORS);
}

#[cfg(test)]
mod tests;
