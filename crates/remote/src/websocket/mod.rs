//! The connector `websocket`: rows as messages of text, from a server that we call, from peers that call
//! us, and to a server.
//!
//! Nothing sent over a WebSocket can be asked for again: a restart goes on with what comes then, and a
//! sink is at-least-once up to the kernel's buffers and at-most-once beyond them.
//!
//! - [`connect`]: calling a server, plain or encrypted
//! - [`inflow`]: messages of a connection become bytes for the reader of the connector `socket`
//! - [`frames`]: whether something has come in part
//! - [`source`], [`sink`]: the two directions

mod connect;
mod frames;
mod inflow;
mod sink;
mod source;

use std::time::Duration;

use arrow::datatypes::SchemaRef;
use tidemill_connect::listeners::check_exposed;
use tidemill_connect::registry::Connector;
use tidemill_connect::socket::Mode;
use tidemill_connect::stdio::required_format;
use tidemill_connect::{ConnectError, Sink, Source};
use tidemill_format::options;
use tidemill_format::options::{ByteSize, OptionSet, RawOptions};
use tungstenite::protocol::WebSocketConfig;

use connect::Target;

/// The connector.
pub static CONNECTOR: Connector = Connector {
    name: "websocket",
    help: "Reads messages of text or bytes, each one or several records (JSON lines, a JSON array, CSV), from a WebSocket server or from \
           all peers that connect; or sends each row as a message to a server. What went over a WebSocket cannot be asked for again: after \
           a restart a source goes on with what comes then, and a sink may have lost or repeated what was in flight when its peer left.",
    specs: WebSocketOptions::specs,
    takes_format: true,
    source: Some(make_source),
    sink: Some(make_sink),
    lookup: None,
};

options! {
    /// Options of the connector `websocket`.
    pub struct WebSocketOptions {
        /// `client` calls a server. `listener`, for sources, takes the rows of all peers that connect.
        ours "mode" => mode: Mode = Mode::Client;
        /// `client`: the server, `ws://host:port/path`, or `wss://…` for an encrypted connection.
        ours "url" => url: Option<String>;
        /// `client`: further headers of the first request, as in `Origin: https://h; X-Key: abc`;
        /// `;;` stands for a `;` within a value.
        ours "headers" => headers: Option<String>;
        /// `client`: the token to send (`Authorization: Bearer …`). `listener`: the token that peers
        /// must bring. Without one no peer is taken that names an `Origin` other than this machine, as pages of
        /// others do in a browser, unless `listen.insecure` lets other machines in.
        ours "token" => token: Option<String>;
        /// `client`: a message to send after connecting, such as what to subscribe to.
        ours "subscribe-message" => subscribe_message: Option<String>;
        /// `client`: a file of PEM certificates that the server's must go back to. By default those
        /// that the system trusts.
        ours "ca-file" => ca_file: Option<String>;
        /// How long a peer may take to connect and to agree on the protocol.
        ours "connect-timeout" => connect_timeout: Duration = Duration::from_secs(10);
        /// After how long without a word a peer is asked whether it is there; if it says nothing for
        /// as long again, the connection counts as broken. `0 s` for never.
        ours "ping.interval" => ping_interval: Duration = Duration::from_secs(30);
        /// `client`: how often to try again when the server does not answer or goes away. With 0 a
        /// source ends when its server closes the connection, and a sink fails.
        ours "reconnect.attempts" => reconnect_attempts: u32 = 0u32;
        /// `client`: how long to wait before each further attempt.
        ours "reconnect.backoff" => reconnect_backoff: Duration = Duration::from_secs(1);
        /// `listener`: the address to listen on (0.0.0.0 for all).
        ours "hostname" => hostname: String = "127.0.0.1";
        /// `listener`: the TCP port to listen on.
        ours "port" => port: Option<u16>;
        /// `listener`: the path that peers must ask for.
        ours "path" => path: String = "/";
        /// `listener`: listens even where other machines reach it. Nothing is encrypted, the token neither,
        /// and whoever reaches the port can send rows.
        ours "listen.insecure" => insecure: bool = false;
        /// `listener`: how many peers may be connected at once; others are turned away.
        ours "listener.max-connections" => connections_max: usize = 256usize;
        /// Source: the longest message. A peer that sends a longer one is cut off.
        ours "max-message-size" => message_max: ByteSize = ByteSize(16 << 20);
        /// Sink: how much may wait for the server; then the job waits.
        ours "sink.queue" => sink_queue: ByteSize = ByteSize(4 << 20);
    }
}

/// The longest message that may be allowed.
const MESSAGE_BYTES_LIMIT: u64 = 1 << 30;
/// How much of a connection is read at once, bytes.
const READ_BYTES: usize = 64 << 10;

impl WebSocketOptions {
    fn checked(raw: &mut RawOptions) -> Result<Self, ConnectError> {
        let options = WebSocketOptions::take(raw)?;
        let wrong = |name, why: String| Err(ConnectError::new(format!("{}: option '{name}': {why}", raw.owner())));
        match options.mode {
            Mode::Client if options.url.is_none() => {
                return Err(ConnectError::new(format!("{}: option 'url' is required, or 'mode' = 'listener'", raw.owner())));
            }
            Mode::Client if options.port.is_some() => return wrong("port", "a client has its port in 'url'".into()),
            Mode::Listener if options.port.is_none() => {
                return Err(ConnectError::new(format!("{}: option 'port' is required with 'mode' = 'listener'", raw.owner())));
            }
            Mode::Listener if options.url.is_some() => {
                return wrong("url", "a listener has no 'url' but 'hostname', 'port' and 'path'".into());
            }
            _ => {}
        }
        if options.mode == Mode::Listener {
            check_exposed(&options.hostname, options.port.unwrap_or_default(), options.insecure).map_err(|e| e.at(raw.owner()))?;
        }
        if !options.path.starts_with('/') {
            return wrong("path", format!("expected a path such as '/trades', not '{}'", options.path));
        }
        if options.connections_max == 0 {
            return wrong("listener.max-connections", "at least 1 is needed".into());
        }
        if options.connect_timeout.is_zero() {
            return wrong("connect-timeout", "expected more than nothing".into());
        }
        if !(1..=MESSAGE_BYTES_LIMIT).contains(&options.message_max.0) {
            return wrong("max-message-size", "expected 1 byte to 1 gb".into());
        }
        if options.sink_queue.0 == 0 || options.sink_queue.0 > 1 << 32 {
            return wrong("sink.queue", "expected 1 byte to 4 gb".into());
        }
        if options.token.as_ref().is_some_and(|token| token.trim().is_empty()) {
            return wrong("token", "expected a token".into());
        }
        Ok(options)
    }

    /// The address of a listener, for messages.
    fn place(&self) -> String {
        format!("{}:{}{}", self.hostname, self.port.unwrap_or_default(), self.path)
    }

    fn ping(&self) -> Option<Duration> {
        Some(self.ping_interval).filter(|interval| !interval.is_zero())
    }

    fn config(&self, write_buffer: usize) -> WebSocketConfig {
        let message_max = Some(self.message_max.0 as usize);
        WebSocketConfig::default()
            .read_buffer_size(READ_BYTES)
            .write_buffer_size(write_buffer)
            .max_message_size(message_max)
            .max_frame_size(message_max)
    }
}

fn make_source(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Source>, ConnectError> {
    let options = WebSocketOptions::checked(raw)?;
    let format = required_format(raw)?;
    // So that a column that cannot be read is found now.
    format.decoder(schema, &[]).map_err(|e| ConnectError::from(e).at(raw.owner()))?;
    let target = match options.mode {
        Mode::Client => Some(Target::new(&options, 0).map_err(|e| e.at(raw.owner()))?.into()),
        Mode::Listener => None,
    };
    Ok(Box::new(source::WebSocketSource { options, format, target }))
}

fn make_sink(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Sink>, ConnectError> {
    let options = WebSocketOptions::checked(raw)?;
    if options.mode == Mode::Listener {
        return Err(ConnectError::new(format!("{}: option 'mode': a sink can only be a client; give it a 'url'", raw.owner())));
    }
    let format = required_format(raw)?;
    format.encoder(schema).map_err(|e| ConnectError::from(e).at(raw.owner()))?;
    let target = Target::new(&options, sink::BUFFER_BYTES).map_err(|e| e.at(raw.owner()))?;
    Ok(Box::new(sink::WebSocketSink { options, format, target: target.into() }))
}

#[cfg(test)]
mod tests;
