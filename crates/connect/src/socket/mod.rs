//! The connector `socket`: rows as text over TCP, as a client or as a listener, in both directions.
//!
//! Nothing sent over a plain socket can be asked for again: a restart goes on with what arrives
//! then, and a sink is at-least-once up to the kernel's buffers and at-most-once beyond them.
//!
//! - [`intake`]: what threads have read becomes rows (also used by `stdin`)
//! - [`feed`]: the bytes of one peer become rows
//! - [`peer`]: connecting, accepting, and stopping threads that wait for a peer
//! - [`alive`]: whether a peer is still there
//! - [`room`]: memory that the connections of a listener share
//! - [`queue`]: bytes on their way to a peer
//! - [`source`], [`sink`]: the two directions

pub mod alive;
pub mod feed;
pub mod intake;
pub mod peer;
mod queue;
pub mod room;
mod sink;
mod source;

use std::time::Duration;

use arrow::datatypes::SchemaRef;
use tidemill_format::options::{ByteSize, OptionSet, RawOptions};
use tidemill_format::{RECORD_BYTES_MAX, option_enum, options};

use crate::listeners::check_exposed;
use crate::registry::Connector;
use crate::stdio::text_format;
use crate::{ConnectError, Sink, Source};

/// The connector.
pub static CONNECTOR: Connector = Connector {
    name: "socket",
    help: "Reads or writes rows as text over TCP. What went over a socket cannot be asked for again: after a restart a source goes on with what arrives \
           then, and a sink may have lost or repeated what was in flight when a peer went away.",
    specs: SocketOptions::specs,
    takes_format: true,
    source: Some(make_source),
    sink: Some(make_sink),
    lookup: None,
};

option_enum! {
    /// Who calls whom.
    pub enum Mode {
        /// We connect.
        Client = "client",
        /// Peers connect to us.
        Listener = "listener",
    }
}

options! {
    /// Options of the connector `socket`.
    pub struct SocketOptions {
        /// The host to connect to, or the address to listen on (0.0.0.0 for all).
        ours "hostname" => hostname: String = "localhost";
        /// The TCP port.
        ours "port" => port: u16;
        /// `client` connects to a peer. `listener` waits for peers: a source takes the rows of all
        /// of them, a sink sends every row to each of them and waits while there is none.
        ours "mode" => mode: Mode = Mode::Client;
        /// `client`: how often to try again when the peer does not answer or goes away. With 0 a
        /// source ends when its peer closes the connection, and a sink fails.
        ours "reconnect.attempts" => reconnect_attempts: u32 = 0u32;
        /// `client`: how long to wait before each further attempt.
        ours "reconnect.backoff" => reconnect_backoff: Duration = Duration::from_secs(1);
        /// `listener`: listens even where other machines reach it. Nothing is encrypted, and whoever reaches the port can
        /// send rows, or gets them.
        ours "listen.insecure" => insecure: bool = false;
        /// `listener`: how many peers may be connected at once; others are turned away.
        ours "listener.max-connections" => connections_max: usize = 256usize;
        /// `listener`, source: after how long without a byte a peer is cut off; by default never. Peers whose
        /// machine or network is gone are found by probes in any case.
        ours "idle.timeout" => idle_timeout: Option<Duration>;
        /// Source: the longest record. A peer that sends a longer one is cut off.
        ours "max-record-size" => record_max: ByteSize = ByteSize(16 << 20);
        /// Sink: how much may wait for each peer; then the job waits.
        ours "sink.queue" => sink_queue: ByteSize = ByteSize(4 << 20);
    }
}

impl SocketOptions {
    fn checked(raw: &mut RawOptions) -> Result<Self, ConnectError> {
        let options = SocketOptions::take(raw)?;
        let wrong = |name, why: String| Err(ConnectError::new(format!("{}: option '{name}': {why}", raw.owner())));
        if options.connections_max == 0 {
            return wrong("listener.max-connections", "at least 1 is needed".into());
        }
        if !(1..=RECORD_BYTES_MAX as u64).contains(&options.record_max.0) {
            return wrong("max-record-size", format!("expected 1 to {RECORD_BYTES_MAX} bytes"));
        }
        if options.idle_timeout.is_some_and(|limit| limit.is_zero()) {
            return wrong("idle.timeout", "expected more than nothing; leave it out for never".into());
        }
        if options.sink_queue.0 == 0 || options.sink_queue.0 > 1 << 32 {
            return wrong("sink.queue", "expected 1 byte to 4 gb".into());
        }
        Ok(options)
    }

    /// As [`SocketOptions::checked`]; a listener is not exposed unless that is wanted.
    fn checked_address(raw: &mut RawOptions) -> Result<Self, ConnectError> {
        let options = SocketOptions::checked(raw)?;
        if options.mode == Mode::Listener {
            check_exposed(&options.hostname, options.port, options.insecure).map_err(|e| e.at(raw.owner()))?;
        }
        Ok(options)
    }

    /// `host:port`, for messages.
    fn place(&self) -> String {
        format!("{}:{}", self.hostname, self.port)
    }
}

fn make_source(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Source>, ConnectError> {
    let options = SocketOptions::checked_address(raw)?;
    let format = text_format(raw)?;
    // So that a column that cannot be read is found now.
    format.decoder(schema, &[]).map_err(|e| ConnectError::from(e).at(raw.owner()))?;
    Ok(Box::new(source::SocketSource { options, format }))
}

fn make_sink(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Sink>, ConnectError> {
    let options = SocketOptions::checked_address(raw)?;
    let format = text_format(raw)?;
    format.encoder(schema).map_err(|e| ConnectError::from(e).at(raw.owner()))?;
    Ok(Box::new(sink::SocketSink { options, format }))
}

#[cfg(test)]
mod tests;
