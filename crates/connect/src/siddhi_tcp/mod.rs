//! The connector `siddhi-tcp`: Siddhi's TCP transport with its binary mapping, byte for byte, in both
//! directions, so that Siddhi's own sinks and sources talk to jobs unchanged.
//!
//! Nothing is acknowledged on this wire, so nothing can be asked for again: a restart goes on with
//! what arrives then, and what was in flight when a connection broke is lost.
//!
//! **Who decodes.** A thread for each connection reads into one large buffer, finds the frames in it,
//! and makes the batches itself; the worker gets finished columns through a bounded queue, at once when
//! nothing more waits in the socket. So no byte is copied between threads, decoding runs beside the
//! operators where there is a core for it, and one connection can carry channels of tables that different
//! workers, or different jobs, read. But each hand-over wakes a thread, which costs more than the work on a
//! small frame. So a connection that brings little, for one channel, is lent to the reader of that channel,
//! whose worker waits for the socket while it sleeps; it goes back to its thread when there is much to do, or
//! anything but frames of that channel.
//!
//! - [`frame`]: finding frames in bytes cut anywhere
//! - [`decode`], [`encode`]: events to columns and back
//! - [`listener`]: the listener that all tables of an address share
//! - [`connection`]: from the bytes of a connection to batches; [`channel`]: from there to a reader;
//!   [`lent`]: the same without a hand-over
//! - [`source`], [`sink`]: the two directions

mod channel;
mod connection;
pub mod decode;
mod encode;
pub mod frame;
mod lent;
mod listener;
mod pace;
mod sink;
mod source;

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use arrow::datatypes::{DataType, Field, SchemaRef, TimeUnit};
use tidemill_format::options::{ByteSize, OptionSet, RawOptions};
use tidemill_format::types::type_name;
use tidemill_format::{option_enum, options};

use crate::listeners::check_exposed;
use crate::registry::Connector;
use crate::{ConnectError, Sink, Source};

pub use listener::unknown_channels;

/// The connector.
pub static CONNECTOR: Connector = Connector {
    name: "siddhi-tcp",
    help: "Siddhi's TCP transport with its binary mapping. A source listens for Siddhi's sinks (all tables of one address share a \
           listener), a sink connects to Siddhi's sources. Columns: INT, BIGINT, FLOAT, DOUBLE, BOOLEAN, STRING, and TIMESTAMP(3) as \
           milliseconds; a NULL string and an empty one look the same on the wire, and are read as NULL unless the column is NOT \
           NULL. Metadata columns of a source: `timestamp` TIMESTAMP_LTZ(3), the time that the sender gave the event, and `frame-end` \
           BOOLEAN, whether it is the last of its frame. Nothing is acknowledged: what is in flight when a connection breaks or a job \
           stops is lost.",
    specs: SiddhiOptions::specs,
    takes_format: false,
    source: Some(make_source),
    sink: Some(make_sink),
    lookup: None,
};

/// The largest frame that may be asked for, bytes: with the next one behind it in the buffer, offsets
/// of strings still fit into 32 bits.
const FRAME_BYTES_LIMIT: u64 = 512 << 20;
/// The largest buffer of a connection, bytes.
const RECEIVE_BYTES_LIMIT: u64 = 256 << 20;
/// The most events that a frame of ours may be asked to hold.
const FRAME_EVENTS_LIMIT: usize = 1 << 20;

option_enum! {
    /// What a NULL becomes in a column for which the wire has none.
    pub enum NullValues {
        /// An error that names the column.
        Fail = "fail",
        /// 0, false, 1970-01-01.
        Zero = "zero",
    }
}

option_enum! {
    /// What becomes of frames for a channel that no table reads.
    pub enum UnknownChannels {
        /// They are counted by channel, and passed over.
        Count = "count",
        /// They are bad records of this table.
        BadRecord = "bad-record",
    }
}

options! {
    /// Options of the connector `siddhi-tcp`.
    pub struct SiddhiOptions {
        /// Source: the address to listen on (0.0.0.0 for all). Sink: the host to connect to.
        ours "hostname" => hostname: String = "127.0.0.1";
        /// The TCP port. Tables that name the same address share its listener: the first opens it, the
        /// last closes it.
        ours "port" => port: u16 = 9892u16;
        /// The channel id: `context` of Siddhi's source, the path in the `url` of its sink. By default the
        /// name of the table. An address has one table for each channel.
        ours "channel" => channel: Option<String>;
        /// Source: the largest frame, with everything in it. A connection with a larger one is closed.
        ours "max-frame-size" => frame_max: ByteSize = ByteSize(64 << 20);
        /// Source: how much of a connection that keeps sending is read at once.
        ours "receive-buffer" => receive_buffer: ByteSize = ByteSize(512 << 10);
        /// Source: how much may wait for the job, in bytes of frames; then connections are not read.
        ours "source.queue" => source_queue: ByteSize = ByteSize(4 << 20);
        /// Source: listens even where other machines reach it. Nothing is encrypted, and whoever reaches the port can
        /// send rows.
        ours "listen.insecure" => insecure: bool = false;
        /// Source: how many connections there may be at once; others are turned away. The table that
        /// opens the listener decides.
        ours "listener.max-connections" => connections_max: usize = 10_000usize;
        /// Source: after how long without a byte a connection is closed; by default never. Peers whose machine
        /// or network is gone are found by probes in any case. The table that opens the listener decides.
        ours "idle.timeout" => idle_timeout: Option<Duration>;
        /// Source: what becomes of frames for a channel that no table reads: `count` counts them by
        /// channel and passes over them, with `bad-record` they are bad records of this table (see
        /// 'on-error').
        ours "unknown-channels" => unknown_channels: UnknownChannels = UnknownChannels::Count;
        /// Source: a BIGINT column that holds the publisher's monotonic clock in nanoseconds
        /// (CLOCK_MONOTONIC; System.nanoTime in Java), of a publisher on the same machine. Latency is
        /// then measured from there, and not from the socket, by the first event of a block; frames more
        /// than 50 µs apart are blocks of their own, unless the column stands behind a STRING.
        ours "arrival.column" => arrival_column: Option<String>;
        /// Sink: events a frame. A frame is sent with fewer when no more rows are at hand.
        ours "frame.events" => frame_events: usize = 1024usize;
        /// Sink: what a NULL becomes in a column that is not STRING: `fail` names the column, `zero`
        /// writes 0.
        ours "null-values" => null_values: NullValues = NullValues::Fail;
        /// Sink: the column (TIMESTAMP(3), TIMESTAMP_LTZ(3) or BIGINT of milliseconds) that gives the events
        /// their timestamps. It is written as a value, too. Without it this is the time of writing.
        ours "timestamp.column" => timestamp_column: Option<String>;
        /// Sink: how often to try again when the server does not answer or goes away. With 0 the job fails.
        ours "reconnect.attempts" => reconnect_attempts: u32 = 0u32;
        /// Sink: how long to wait before each further attempt.
        ours "reconnect.backoff" => reconnect_backoff: Duration = Duration::from_secs(1);
    }
}

impl SiddhiOptions {
    /// The options and the channel id.
    fn checked(raw: &mut RawOptions) -> Result<(Self, String), ConnectError> {
        let options = SiddhiOptions::take(raw)?;
        let wrong = |name, why: String| Err(ConnectError::new(format!("{}: option '{name}': {why}", raw.owner())));
        let sizes = [
            ("max-frame-size", options.frame_max, 1 << 10, FRAME_BYTES_LIMIT),
            ("receive-buffer", options.receive_buffer, 1 << 10, RECEIVE_BYTES_LIMIT),
            ("source.queue", options.source_queue, 1, 1 << 40),
        ];
        for (name, size, least, most) in sizes {
            if !(least..=most).contains(&size.0) {
                return wrong(name, format!("expected {least} to {most} bytes"));
            }
        }
        if options.connections_max == 0 {
            return wrong("listener.max-connections", "at least 1 is needed".into());
        }
        if options.idle_timeout.is_some_and(|limit| limit.is_zero()) {
            return wrong("idle.timeout", "expected more than nothing; leave it out for never".into());
        }
        if !(1..=FRAME_EVENTS_LIMIT).contains(&options.frame_events) {
            return wrong("frame.events", format!("expected 1 to {FRAME_EVENTS_LIMIT} events"));
        }
        let table = raw.owner().strip_prefix("table '").and_then(|rest| rest.strip_suffix('\''));
        match options.channel.clone().or(table.map(String::from)) {
            Some(channel) if !channel.is_empty() => Ok((options, channel)),
            Some(_) => wrong("channel", "a channel id has at least one character".into()),
            None => wrong("channel", "it is required here, where there is no table to be named after".into()),
        }
    }

    /// `host:port`, for messages.
    fn place(&self) -> String {
        format!("{}:{}", self.hostname, self.port)
    }

    /// The addresses that the host has.
    fn addresses(&self) -> std::io::Result<Vec<SocketAddr>> {
        (self.hostname.as_str(), self.port).to_socket_addrs().map(Iterator::collect)
    }
}

/// A type of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wire {
    Int,
    Long,
    Float,
    Double,
    Bool,
    Text,
    /// A long: milliseconds since 1970.
    Time,
}

impl Wire {
    /// How a column is written; the error says what to declare instead.
    fn of(field: &Field) -> Result<Self, String> {
        Ok(match field.data_type() {
            DataType::Int32 => Wire::Int,
            DataType::Int64 => Wire::Long,
            DataType::Float32 => Wire::Float,
            DataType::Float64 => Wire::Double,
            DataType::Boolean => Wire::Bool,
            DataType::Utf8 => Wire::Text,
            DataType::Timestamp(TimeUnit::Millisecond, _) => Wire::Time,
            other => {
                let instead = match other {
                    DataType::Int8 | DataType::Int16 => "INT",
                    DataType::Decimal128(..) => "DOUBLE or STRING",
                    DataType::Timestamp(..) => "TIMESTAMP(3), which is a long of milliseconds there,",
                    _ => "INT, BIGINT, FLOAT, DOUBLE, BOOLEAN, STRING or TIMESTAMP(3)",
                };
                let (name, given) = (field.name(), type_name(other));
                let advice = format!("declare it {instead} and convert it in the query");
                return Err(format!("column '{name}': Siddhi's binary mapping has no {given}; {advice}"));
            }
        })
    }

    /// Bytes of a value; `None` for strings.
    fn bytes(self) -> Option<usize> {
        match self {
            Wire::Bool => Some(1),
            Wire::Int | Wire::Float => Some(4),
            Wire::Long | Wire::Double | Wire::Time => Some(8),
            Wire::Text => None,
        }
    }
}

/// The index of the column that an option names, if it is of one of the types wanted.
fn column_of(schema: &SchemaRef, option: &str, name: &str, types: &str, wanted: fn(Wire) -> bool) -> Result<usize, ConnectError> {
    let found = schema.fields().iter().position(|field| field.name() == name);
    let fits = |index: &usize| Wire::of(schema.field(*index)).is_ok_and(wanted);
    found.filter(fits).ok_or_else(|| {
        let names: Vec<_> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        ConnectError::new(format!("option '{option}' = '{name}': expected a column of type {types}; the columns are: {}", names.join(", ")))
    })
}

fn make_source(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Source>, ConnectError> {
    let (options, channel) = SiddhiOptions::checked(raw)?;
    check_exposed(&options.hostname, options.port, options.insecure).map_err(|e| e.at(raw.owner()))?;
    Ok(Box::new(source::SiddhiSource::new(schema, options, channel, raw.owner()).map_err(|e| e.at(raw.owner()))?))
}

fn make_sink(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Sink>, ConnectError> {
    let (options, channel) = SiddhiOptions::checked(raw)?;
    Ok(Box::new(sink::SiddhiSink::new(schema, options, channel).map_err(|e| e.at(raw.owner()))?))
}

#[cfg(test)]
mod tests;
