//! Options of the connector `http`.

use std::time::Duration;

use tidemill_connect::ConnectError;
use tidemill_connect::listeners::check_exposed;
use tidemill_format::options::{ByteSize, OptionSet, RawOptions};
use tidemill_format::{option_enum, options};

option_enum! {
    /// When a request is answered.
    pub enum Answer {
        /// When its rows wait for the job.
        Queued = "queued",
        /// When a checkpoint that covers its rows is committed.
        Commit = "commit",
    }
}

option_enum! {
    /// What a sink's requests ask for.
    pub enum Verb {
        /// The usual.
        Post = "POST",
        /// For servers that want it.
        Put = "PUT",
        /// For servers that want it.
        Patch = "PATCH",
    }
}

options! {
    /// Options of the connector `http`.
    pub struct HttpOptions {
        /// Source: the address to listen on (0.0.0.0 for all). Tables with other paths may share it.
        ours "hostname" => hostname: String = "127.0.0.1";
        /// Source: the TCP port to listen on. A source needs it.
        ours "port" => port: Option<u16>;
        /// Source: the path to which rows of the table are sent.
        ours "path" => path: String = "/";
        /// Source: the token that a request must bring (`Authorization: Bearer …`). Sink and lookup: the
        /// token to send.
        ours "token" => token: Option<String>;
        /// Source: when a request is answered: `queued`, when its rows wait for the job (202), or
        /// `commit`, when a checkpoint that covers them is committed (200). A request may ask for the
        /// one or the other by `?wait=queued` or `?wait=commit`.
        ours "answer" => answer: Answer = Answer::Queued;
        /// Source: the largest body, unpacked; a larger one is answered with 413.
        ours "max-body-size" => body_max: ByteSize = ByteSize(64 << 20);
        /// Source: how many bytes of bodies may wait for the job.
        ours "queue.bytes" => queue: ByteSize = ByteSize(64 << 20);
        /// Source: how long a request waits for room in the queue before it is answered with 503.
        ours "queue.timeout" => queue_timeout: Duration = Duration::from_secs(5);
        /// Source: how long a request may take to arrive, and how long an idle connection is kept.
        ours "request.timeout" => request_timeout: Duration = Duration::from_secs(30);
        /// Source: listens even where other machines reach it. Nothing is encrypted, the token neither,
        /// and whoever reaches the port can send rows.
        ours "listen.insecure" => insecure: bool = false;
        /// Source: how many peers may be connected at once; others are turned away.
        ours "listener.max-connections" => connections_max: usize = 256usize;
        /// Sink: where to send rows, `http://…` or `https://…`. Lookup: where to ask; `{column}` stands for
        /// the key asked for, as in `http://host/users/{id}`. Both need it.
        ours "url" => url: Option<String>;
        /// Sink: the request's method.
        ours "method" => method: Verb = Verb::Post;
        /// Sink and lookup: further headers, also one by one as `http.header.NAME`; or as in `X-Key: abc; Accept: */*`; `;;` stands for a `;` within a
        /// value. A `Content-Type` given here replaces that of the format.
        ours "headers" => headers: Option<String>;
        /// Sink: the most rows in a request.
        ours "batch.rows" => batch_rows: usize = 1000usize;
        /// Sink: a request is sent when its body has about this size.
        ours "batch.bytes" => batch_bytes: ByteSize = ByteSize(1 << 20);
        /// Sink: how long rows wait for others to fill their request; by default no longer than the
        /// job has more of them at hand. Checkpoints don't wait for it.
        ours "linger" => linger: Duration = Duration::ZERO;
        /// Sink: how many requests each writer may have on their way. With more than 1 they may
        /// arrive out of order.
        ours "requests.parallel" => parallel: usize = 1usize;
        /// Sink and lookup: how long a request may take until its answer. A lookup's further attempts
        /// must all fit into `lookup.timeout`.
        ours "timeout" => timeout: Duration = Duration::from_secs(30);
        /// Sink: how often to send a request again when nobody answers, or with 408, 429 or 5xx.
        /// Other refusals end the job at once.
        ours "retry.attempts" => retry_attempts: u32 = 10u32;
        /// Sink: how long to wait before the first further attempt; it doubles with each, and half of
        /// it is left to chance. `Retry-After` of an answer makes it longer.
        ours "retry.backoff" => backoff: Duration = Duration::from_millis(200);
        /// Sink: the longest wait between attempts.
        ours "retry.backoff-max" => backoff_max: Duration = Duration::from_secs(30);
        /// Sink and lookup: a file of PEM certificates that the server's must go back to. By default those that
        /// the system trusts.
        ours "ca-file" => ca_file: Option<String>;
    }
}

/// The largest body that may be allowed: a decoder's positions have 32 bits.
const BODY_BYTES_LIMIT: u64 = 1 << 30;
/// The largest queue: its room is counted in 32 bits.
const QUEUE_BYTES_LIMIT: u64 = u32::MAX as u64;
/// The most connections: more than a process has ports for.
const CONNECTIONS_LIMIT: usize = 1_000_000;
/// The most requests of a writer on their way.
const PARALLEL_LIMIT: usize = 64;

fn wrong<T>(raw: &RawOptions, name: &str, why: impl std::fmt::Display) -> Result<T, ConnectError> {
    Err(ConnectError::new(format!("{}: option '{name}': {why}", raw.owner())))
}

impl HttpOptions {
    /// The options of a source.
    ///
    /// # Errors
    /// Names the option and what is wrong with it.
    pub fn checked_source(raw: &mut RawOptions) -> Result<Self, ConnectError> {
        let options = HttpOptions::take(raw)?;
        if options.port.is_none() {
            return Err(ConnectError::new(format!("{}: option 'port' is required to read: the port to listen on", raw.owner())));
        }
        if options.url.is_some() {
            return wrong(raw, "url", "a table that is read listens on 'hostname' and 'port'; it sends nothing to a URL");
        }
        if !options.path.starts_with('/') || options.path.contains(['?', '#', ' ']) {
            return wrong(raw, "path", format_args!("expected a path such as '/trades', not '{}'", options.path));
        }
        if !(1..=BODY_BYTES_LIMIT).contains(&options.body_max.0) {
            return wrong(raw, "max-body-size", "expected 1 byte to 1 gb");
        }
        if !(1..=QUEUE_BYTES_LIMIT).contains(&options.queue.0) {
            return wrong(raw, "queue.bytes", "expected 1 byte to less than 4 gb");
        }
        if !(1..=CONNECTIONS_LIMIT).contains(&options.connections_max) {
            return wrong(raw, "listener.max-connections", format_args!("expected 1 to {CONNECTIONS_LIMIT}"));
        }
        if options.request_timeout.is_zero() {
            return wrong(raw, "request.timeout", "expected more than nothing");
        }
        check_exposed(&options.hostname, options.port.unwrap_or_default(), options.insecure).map_err(|e| e.at(raw.owner()))?;
        if options.token.as_ref().is_some_and(|token| token.trim().is_empty()) {
            return wrong(raw, "token", "expected a token; leave the option out to take rows from everybody");
        }
        Ok(options)
    }

    /// The options of a table that is looked up: where to ask, and with which headers.
    ///
    /// # Errors
    /// Names the option and what is wrong with it.
    pub fn checked_lookup(raw: &mut RawOptions) -> Result<Self, ConnectError> {
        let mut options = HttpOptions::take(raw)?;
        options.take_headers(raw)?;
        if options.url.is_none() {
            return Err(ConnectError::new(format!("{}: option 'url' is required to look rows up: where to ask for them", raw.owner())));
        }
        if options.port.is_some() {
            return wrong(raw, "port", "a table that is looked up has its port in 'url'");
        }
        if options.timeout.is_zero() {
            return wrong(raw, "timeout", "expected more than nothing");
        }
        Ok(options)
    }

    /// Takes the options `http.header.NAME` and puts them behind those of `headers`.
    fn take_headers(&mut self, raw: &mut RawOptions) -> Result<(), ConnectError> {
        for (name, value) in raw.take_prefixed("http.header.") {
            if value.contains(['\r', '\n']) || name.contains([':', ';', '\n']) {
                return Err(ConnectError::new(format!("{}: option 'http.header.{name}': expected a header of one line", raw.owner())));
            }
            let headers = self.headers.get_or_insert_default();
            headers.push('\n');
            headers.push_str(&format!("{name}: {}", value.replace(';', ";;")));
        }
        Ok(())
    }

    /// The options of a sink.
    ///
    /// # Errors
    /// Names the option and what is wrong with it.
    pub fn checked_sink(raw: &mut RawOptions) -> Result<Self, ConnectError> {
        let mut options = HttpOptions::take(raw)?;
        options.take_headers(raw)?;
        if options.url.is_none() {
            return Err(ConnectError::new(format!("{}: option 'url' is required to write: where rows are sent", raw.owner())));
        }
        if options.port.is_some() {
            return wrong(raw, "port", "a table that is written has its port in 'url'");
        }
        if options.batch_rows == 0 {
            return wrong(raw, "batch.rows", "at least 1 is needed");
        }
        if !(1..=BODY_BYTES_LIMIT).contains(&options.batch_bytes.0) {
            return wrong(raw, "batch.bytes", "expected 1 byte to 1 gb");
        }
        if !(1..=PARALLEL_LIMIT).contains(&options.parallel) {
            return wrong(raw, "requests.parallel", format_args!("expected 1 to {PARALLEL_LIMIT}"));
        }
        if options.timeout.is_zero() {
            return wrong(raw, "timeout", "expected more than nothing");
        }
        if options.backoff.is_zero() || options.backoff > options.backoff_max {
            return wrong(raw, "retry.backoff", "expected more than nothing and no more than 'retry.backoff-max'");
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests;
