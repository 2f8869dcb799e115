//! The options of the connector, in groups: those of both directions, those of reading and those of writing.

use std::time::Duration;

use tidemill_format::options::{ByteSize, Secret};
use tidemill_format::{option_enum, options};

option_enum! {
    /// Where a scan begins that no checkpoint continues.
    pub enum Startup {
        /// At the oldest entry that is still there.
        Earliest = "earliest",
        /// Behind the newest entry there is at the start.
        Latest = "latest",
        /// Behind a given entry.
        Id = "id",
        /// At the first entry of a time or later.
        Timestamp = "timestamp",
    }
}

option_enum! {
    /// Where a scan ends.
    pub enum Bounded {
        /// Nowhere.
        Unbounded = "unbounded",
        /// Before what is added after the start.
        Latest = "latest",
    }
}

option_enum! {
    /// What happens where entries are gone before they were read.
    pub enum LostEntries {
        /// The job fails and says how many.
        Fail = "fail",
        /// It is told, and reading goes on with what is there.
        Ignore = "ignore",
    }
}

option_enum! {
    /// What is promised of entries.
    pub enum Guarantee {
        /// A checkpoint waits until the server has them; after a crash some may be added again.
        AtLeastOnce = "at-least-once",
        /// They are added with their checkpoint, once.
        ExactlyOnce = "exactly-once",
    }
}

options! {
    /// Options of both directions.
    pub struct CommonOptions {
        /// The server: `redis://host:port/database`, `rediss://…` for an encrypted connection, `unix:///path` for a socket
        /// of this machine. User and password may stand in it, as in `redis://user:password@host`; they are never shown.
        ours "url" => url: Secret;
        /// The user; without one the server's default user.
        ours "username" => username: Option<String>;
        /// The password. It is never shown.
        ours "password" => password: Option<Secret>;
        /// The number of the database, if 'url' does not say it; 0 by default.
        ours "database" => database: Option<u32>;
        /// With `rediss://`: a file of PEM certificates that the server's must go back to. By default those that the system
        /// trusts.
        ours "ca-file" => ca_file: Option<String>;
        /// How long a start may wait for the server. Afterwards outages are borne.
        ours "connect.timeout" => connect_timeout: Duration = Duration::from_secs(10);
        /// The key of the stream. A source may name several, separated by `;`.
        ours "stream" => stream: String;
        /// With 'value.format' or 'format': the field of an entry that holds the message, `value` by default. Without a format
        /// each column is the field of its name, in the text forms of CSV (BYTES in base64); a field that is missing is NULL.
        ours "value.field" => value_field: Option<String>;
    }
}

options! {
    /// Options of reading.
    pub struct ScanOptions {
        /// Source: where to begin, unless a checkpoint says it.
        ours "scan.startup.mode" => startup: Startup = Startup::Earliest;
        /// With `id`: the entry behind which reading begins, as in `1526919030474-55`.
        ours "scan.startup.id" => startup_id: Option<String>;
        /// With `timestamp`: milliseconds since 1970.
        ours "scan.startup.timestamp-millis" => startup_ms: Option<u64>;
        /// Source: where to end: nowhere, or behind the newest entry there is at the start.
        ours "scan.bounded.mode" => bounded: Bounded = Bounded::Unbounded;
        /// Source: what to do where entries were trimmed away or deleted before they were read, or the stream was deleted
        /// and created anew. A server before Redis 7 does not count entries; there it is not noticed.
        ours "scan.lost-entries" => lost: LostEntries = LostEntries::Fail;
        /// Source: how many entries are asked for at once.
        ours "scan.batch" => batch: usize = 1_000usize;
        /// Source: how many bytes of entries of each stream are fetched ahead.
        ours "scan.prefetch" => prefetch: ByteSize = ByteSize(4 << 20);
    }
}

options! {
    /// Options of writing.
    pub struct SinkOptions {
        /// Sink: what is promised of the entries. `exactly-once` needs a state directory; entries are added when their
        /// checkpoint is safe, with a mark under a key that begins with `tidemill:`. It holds as far as the server keeps
        /// what it has confirmed.
        ours "sink.delivery-guarantee" => guarantee: Guarantee = Guarantee::AtLeastOnce;
        /// Sink: about how many entries the stream keeps; the oldest are trimmed away (`MAXLEN ~`).
        ours "sink.max-length" => length_max: Option<u64>;
        /// Sink: about how long the stream keeps entries; older ones are trimmed away (`MINID ~`).
        ours "sink.retention" => retention: Option<Duration>;
        /// Sink: how many bytes a writer may hold that the server has not confirmed; then the job waits.
        ours "sink.queue" => queue: ByteSize = ByteSize(16 << 20);
    }
}
