//! The options of the connector, and what is wrong with them.

use std::time::Duration;

use tidemill_connect::ConnectError;
use tidemill_format::options::{ByteSize, OptionSet, RawOptions};
use tidemill_format::{option_enum, options};

use crate::packet::BODY_BYTES_MAX;

option_enum! {
    /// The quality of service with which messages go over a connection.
    pub enum Quality {
        /// At most once: what is on its way when a connection breaks is lost.
        AtMostOnce = "0",
        /// At least once: what is not acknowledged is sent again.
        AtLeastOnce = "1",
    }
}

impl Quality {
    /// As packets have it.
    pub fn number(self) -> u8 {
        match self {
            Quality::AtMostOnce => 0,
            Quality::AtLeastOnce => 1,
        }
    }
}

options! {
    /// Options of the connector `mqtt`.
    pub struct MqttOptions {
        /// The broker, which speaks MQTT 5: `mqtt://host:port` (port 1883 by default), or `mqtts://…` (8883) for an encrypted
        /// connection.
        ours "url" => url: String;
        /// Source: the topics, as filters in which `+` stands for one level and `#` for all further ones; several are
        /// divided by `;`. Sink: the topic that messages go to, unless a metadata column `topic` says it row by row.
        ours "topic" => topic: Option<String>;
        /// The quality of service. `1`: at least once; `0`: at most once. Messages of quality 2 come with 1, too.
        ours "qos" => quality: Quality = Quality::AtLeastOnce;
        /// The name under which the broker keeps the session. No two clients of a broker may have the same. A source needs it to
        /// miss nothing between its runs; without it, it has a name of its own in each run. With several writers a sink adds
        /// the writer's number.
        ours "client-id" => client_id: Option<String>;
        /// Source: whether a start forgets the session that the broker has kept, with the messages in it.
        ours "clean-start" => clean_start: bool = false;
        /// Source: how long the broker keeps the session, and what comes meanwhile, when the connection is gone. Without
        /// 'client-id' it is 5 minutes at most.
        ours "session-expiry" => session_expiry: Duration = Duration::from_secs(86_400);
        /// The user, if the broker wants one.
        ours "username" => username: Option<String>;
        /// The user's password. It is never shown.
        ours "password" => password: Option<String>;
        /// `mqtts://`: a file of PEM certificates that the broker's must go back to. By default those that the system trusts.
        ours "ca-file" => ca_file: Option<String>;
        /// After how long without a word the broker counts as gone, and the job for the broker: whole seconds, 1 s to 18 h.
        ours "keep-alive" => keep_alive: Duration = Duration::from_secs(60);
        /// How long a start may wait for the broker. Afterwards outages are borne.
        ours "connect.timeout" => connect_timeout: Duration = Duration::from_secs(10);
        /// Source: how many messages of quality 1 the broker may send that no checkpoint holds. When it comes to half of them, a
        /// checkpoint is taken. Where the broker has a lower bound of its own, name that: at it, it waits for the next
        /// checkpoint.
        ours "max-inflight" => max_inflight: u16 = 65_535u16;
        /// Source: the longest message; one that is longer follows 'on-error'. 1 kb to 256 mb.
        ours "max-message-size" => message_max: ByteSize = ByteSize(16 << 20);
        /// Source: how many bytes of messages may wait for the job, 256 mb at most; then nothing is read.
        ours "scan.prefetch" => prefetch: ByteSize = ByteSize(16 << 20);
        /// Sink: whether the broker keeps the last message of each topic for those who subscribe later.
        ours "sink.retain" => retain: bool = false;
        /// Sink: how many bytes of messages a writer may hold that the broker has not acknowledged; then the job waits.
        ours "sink.queue" => queue: ByteSize = ByteSize(16 << 20);
    }
}

/// The most that 'scan.prefetch' and 'max-message-size' may be: what is decoded at once has places of 32 bits.
const BYTES_MAX: u64 = 1 << 28;

/// How long a session stays whose name nobody knows in the next run.
const NAMELESS_EXPIRY: Duration = Duration::from_secs(300);

impl MqttOptions {
    /// The options of a table, checked as far as they do not depend on what it is used for.
    ///
    /// # Errors
    /// Names the option and what is wrong with it.
    pub fn checked(raw: &mut RawOptions) -> Result<Self, ConnectError> {
        let options = MqttOptions::take(raw)?;
        let wrong = |name: &str, why: &str| Err(ConnectError::new(format!("{}: option '{name}': {why}", raw.owner())));
        let seconds = options.keep_alive.as_secs();
        if !(1..=64_800).contains(&seconds) || options.keep_alive.subsec_nanos() != 0 {
            return wrong("keep-alive", "expected whole seconds from 1 s to 18 h");
        }
        if options.connect_timeout.is_zero() {
            return wrong("connect.timeout", "expected more than nothing");
        }
        if options.max_inflight == 0 {
            return wrong("max-inflight", "expected 1 to 65535");
        }
        for (name, size) in [("max-message-size", options.message_max), ("scan.prefetch", options.prefetch)] {
            if !(1 << 10..=BYTES_MAX).contains(&size.0) {
                return wrong(name, "expected 1 kb to 256 mb");
            }
        }
        if !(1 << 10..=1 << 31).contains(&options.queue.0) {
            return wrong("sink.queue", "expected 1 kb to 2 gb");
        }
        if options.password.is_some() && options.username.is_none() {
            return wrong("password", "it needs 'username'");
        }
        for (name, text) in [("client-id", &options.client_id), ("username", &options.username), ("password", &options.password)] {
            if text.as_ref().is_some_and(|text| text.is_empty() || text.len() > usize::from(u16::MAX) || text.contains('\0')) {
                return wrong(name, "expected 1 to 65535 bytes, without the character U+0000");
            }
        }
        Ok(options)
    }

    /// How long the broker keeps the session of a source, seconds.
    pub fn expiry_s(&self) -> u32 {
        let expiry = if self.client_id.is_some() { self.session_expiry } else { self.session_expiry.min(NAMELESS_EXPIRY) };
        // The highest number stands for ever.
        u32::try_from(expiry.as_secs()).unwrap_or(u32::MAX)
    }

    /// The keep-alive time, seconds.
    pub fn keep_alive_s(&self) -> u16 {
        u16::try_from(self.keep_alive.as_secs()).unwrap_or(u16::MAX)
    }

    /// The longest body of a packet that is read whole.
    pub fn packet_max(&self) -> usize {
        (self.message_max.0 as usize).min(BODY_BYTES_MAX)
    }
}
