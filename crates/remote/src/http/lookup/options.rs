//! Options of the connector `http` for tables that are looked up. Address, headers and certificates are
//! those of a sink.

use std::time::Duration;

use tidemill_connect::ConnectError;
use tidemill_format::options::{ByteSize, OptionSet, RawOptions};
use tidemill_format::{option_enum, options};

option_enum! {
    /// What a lookup's request is.
    pub enum LookupMethod {
        /// The keys stand in the address.
        Get = "GET",
        /// The keys stand in the body, or in the address, too.
        Post = "POST",
        /// As POST.
        Put = "PUT",
    }
}

options! {
    /// Options of the connector `http` for lookups.
    pub struct HttpLookupOptions {
        /// Lookup: the request's method. `{column}` in `url` stands for the key asked for. Keys that do
        /// not stand there are added as `?column=key` by GET, and are the body of POST and PUT.
        ours "lookup.method" => method: LookupMethod = LookupMethod::Get;
        /// Lookup: the body of POST and PUT, in which `{column}` stands for the key as JSON. By default
        /// an object of the keys, an array of such objects if `lookup.batch-size` is more than 1.
        ours "lookup.body" => body: Option<String>;
        /// Lookup: where the rows stand in the answer, as in `$.data.items` or `$[0].user`; an object is
        /// one row, an array of objects several; what is missing or null is no match.
        ours "lookup.json-path" => json_path: Option<String>;
        /// Lookup: the most keys in a request of POST or PUT. The rows of the answer must then bring
        /// their keys.
        ours "lookup.batch-size" => batch_size: usize = 1usize;
        /// Lookup: how many connections a shard may have; more requests than these wait.
        ours "lookup.max-connections" => connections_max: usize = 1000usize;
        /// Lookup: how long a connection may take to come about.
        ours "lookup.connect-timeout" => connect_timeout: Duration = Duration::from_secs(10);
        /// Lookup: the largest answer; a larger one is an error.
        ours "lookup.max-response-size" => response_max: ByteSize = ByteSize(4 << 20);
    }
}

/// The most keys in a request.
const BATCH_LIMIT: usize = 8192;
/// The most connections of a shard: more than an address has ports for.
const CONNECTIONS_LIMIT: usize = 60_000;
/// The largest answer that may be allowed: a decoder's positions have 32 bits, and answers are decoded
/// several at once.
const RESPONSE_LIMIT: u64 = 256 << 20;

impl HttpLookupOptions {
    /// The options of a table.
    ///
    /// # Errors
    /// Names the option and what is wrong with it.
    pub fn checked(raw: &mut RawOptions) -> Result<Self, ConnectError> {
        let options = HttpLookupOptions::take(raw)?;
        let wrong = |name: &str, why: String| Err(ConnectError::new(format!("{}: option '{name}': {why}", raw.owner())));
        if options.method == LookupMethod::Get {
            if options.body.is_some() {
                return wrong("lookup.body", "GET has no body; write 'lookup.method' = 'POST'".into());
            }
            if options.batch_size != 1 {
                return wrong("lookup.batch-size", "GET asks for one key; write 'lookup.method' = 'POST'".into());
            }
        }
        if options.body.is_some() && options.batch_size != 1 {
            return wrong("lookup.batch-size", "a body of your own ('lookup.body') asks for one key".into());
        }
        if !(1..=BATCH_LIMIT).contains(&options.batch_size) {
            return wrong("lookup.batch-size", format!("expected 1 to {BATCH_LIMIT}"));
        }
        if !(1..=CONNECTIONS_LIMIT).contains(&options.connections_max) {
            return wrong("lookup.max-connections", format!("expected 1 to {CONNECTIONS_LIMIT}"));
        }
        if options.connect_timeout.is_zero() {
            return wrong("lookup.connect-timeout", "expected more than nothing".into());
        }
        if !(1..=RESPONSE_LIMIT).contains(&options.response_max.0) {
            return wrong("lookup.max-response-size", "expected 1 byte to 256 mb".into());
        }
        Ok(options)
    }
}
