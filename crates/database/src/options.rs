//! The options of the connector `jdbc`, as users write them.

use std::time::Duration;

use tidemill_connect::ConnectError;
use tidemill_format::options::{ByteSize, RawOptions, Secret};
use tidemill_format::{option_enum, options};

option_enum! {
    /// What a sink promises.
    pub enum Guarantee {
        /// Rows may be written twice after a failure.
        AtLeastOnce = "at-least-once",
        /// Every row is in the table once, whatever happens.
        ExactlyOnce = "exactly-once",
    }
}

option_enum! {
    /// What happens to a row that the database refuses.
    pub enum OnRefused {
        /// The job fails and names the row.
        Fail = "fail",
        /// The row is counted and passed over.
        Skip = "skip",
        /// The row goes to a file.
        DeadLetter = "dead-letter",
    }
}

options! {
    /// What every table of a database has.
    pub struct CommonOptions {
        /// Where the database is: `jdbc:sqlite:PATH`, `jdbc:postgresql://host:port/database`, `jdbc:mysql://…`,
        /// `jdbc:mariadb://…`, `jdbc:duckdb:PATH`, `jdbc:sqlserver://host:port;databaseName=…`,
        /// `jdbc:oracle:thin:@//host:port/service`, `jdbc:odbc:Driver={…};Server=…` or `jdbc:odbc:DSN=…`; `jdbc:` may be left out.
        /// `?ssl-mode=` says how far TLS goes: `disable`, `prefer`, `require`, `verify-full`.
        flink "url" => url: Secret;
        /// The table in the database, with its schema if need be (`public.events`).
        flink "table-name" => table: String;
        /// The user; goes before one in the URL.
        flink "username" => username: Option<String>;
        /// The password; goes before one in the URL. It is never shown.
        flink "password" => password: Option<Secret>;
        /// Accepted for Flink's sake; the URL says which driver is used.
        flink "driver" => driver: Option<String>;
        /// How long a database that cannot be reached is tried again, with growing pauses.
        flink "connection.max-retry-timeout" => retry_timeout: Duration = Duration::from_secs(60);
        /// How long one attempt to connect may take.
        ours "connection.timeout" => connect_timeout: Duration = Duration::from_secs(10);
    }
}

options! {
    /// Of tables that are read.
    pub struct ScanOptions {
        /// A column of whole numbers, dates or timestamps by which the table is divided for reading in parallel.
        flink "scan.partition.column" => partition_column: Option<String>;
        /// Into how many parts; by default as many as the job has shards.
        flink "scan.partition.num" => partition_num: Option<usize>;
        /// The smallest value of the column; rows below it are not read. By default the database is asked.
        flink "scan.partition.lower-bound" => lower_bound: Option<String>;
        /// The largest value of the column; rows above it are not read. By default the database is asked.
        flink "scan.partition.upper-bound" => upper_bound: Option<String>;
        /// Rows handed over at once; 0 leaves it to the connector.
        flink "scan.fetch-size" => fetch_size: usize = 0usize;
        /// Accepted for Flink's sake; results are always read as they arrive.
        flink "scan.auto-commit" => auto_commit: Option<bool>;
        /// A column that grows with every row (a number, a timestamp): the table is read again and again from its
        /// largest value so far on, and never ends.
        ours "scan.poll.column" => poll_column: Option<String>;
        /// How long after a reading that found nothing the table is asked again.
        ours "scan.poll.interval" => poll_interval: Duration = Duration::from_secs(1);
    }
}

options! {
    /// Of tables that are written.
    pub struct SinkOptions {
        /// The most rows of a batch, and of a transaction unless it is a checkpoint's. By default
        /// whatever came while the batch before was written.
        flink "sink.buffer-flush.max-rows" => max_rows: Option<usize>;
        /// The most bytes of a connection's batch. By default 32 MB of rows that are appended and 256 MB of upserts, divided by
        /// connections (but 64 MB for each); less where memory is limited, and with a state directory no more upserts than are
        /// written in ten seconds, or 64 MB.
        ours "sink.buffer-flush.max-bytes" => max_bytes: Option<ByteSize>;
        /// How long rows wait for more to come with them while there is input. By default they do not, but for 16 MB of upserts and
        /// more that come twice as fast as they are written: those wait for an eighth of the time that writing them takes, two
        /// seconds at most.
        flink "sink.buffer-flush.interval" => interval: Option<Duration>;
        /// How often a transaction is tried again after a deadlock, a lock timeout or a serialization failure.
        flink "sink.max-retries" => max_retries: u32 = 10u32;
        /// Whether the table is created if it is not there.
        ours "sink.create-table" => create_table: bool = false;
        /// `exactly-once` or `at-least-once`, for rows that are appended; by default `exactly-once` with a state
        /// directory. With a primary key rows are upserts, for which it makes no difference.
        ours "sink.delivery-guarantee" => guarantee: Option<Guarantee>;
        /// Connections of each writer. Rows of one key go through the same. SQLite has one; upserts of MySQL and MariaDB
        /// have up to seven further ones for large batches.
        ours "sink.connections" => connections: usize = 1usize;
        /// What happens to a row that the database refuses (a unique key, a value too long or out of range): `fail`
        /// names it, `skip` counts it, `dead-letter` writes it to a file.
        ours "sink.on-error" => on_error: OnRefused = OnRefused::Fail;
        /// The file that gets refused rows: a JSON object a line.
        ours "sink.dead-letter" => dead_letter: Option<String>;
    }
}

options! {
    /// Of tables that are looked up.
    pub struct AskOptions {
        /// Connections of each shard of a lookup join.
        ours "lookup.connections" => connections: usize = 2usize;
    }
}

/// The most connections of a writer or a lookup.
const CONNECTIONS_MAX: usize = 64;
/// The most parts of a scan.
const PARTITIONS_MAX: usize = 10_000;

fn wrong<T>(raw: &RawOptions, name: &str, why: impl std::fmt::Display) -> Result<T, ConnectError> {
    Err(ConnectError::new(format!("{}: option '{name}': {why}", raw.owner())))
}

impl CommonOptions {
    /// Checks what the types do not say.
    ///
    /// # Errors
    /// Names the option.
    pub fn check(&self, raw: &RawOptions) -> Result<(), ConnectError> {
        if self.table.trim().is_empty() {
            return wrong(raw, "table-name", "expected the name of a table");
        }
        if self.connect_timeout.is_zero() {
            return wrong(raw, "connection.timeout", "expected more than nothing");
        }
        Ok(())
    }
}

impl ScanOptions {
    /// Checks what the types do not say.
    ///
    /// # Errors
    /// Names the option.
    pub fn check(&self, raw: &RawOptions) -> Result<(), ConnectError> {
        let of_partitions = [
            ("scan.partition.num", self.partition_num.is_some()),
            ("scan.partition.lower-bound", self.lower_bound.is_some()),
            ("scan.partition.upper-bound", self.upper_bound.is_some()),
        ];
        if self.partition_column.is_none()
            && let Some((name, _)) = of_partitions.iter().find(|(_, given)| *given)
        {
            return wrong(raw, name, "it needs 'scan.partition.column'");
        }
        if self.partition_num.is_some_and(|n| !(1..=PARTITIONS_MAX).contains(&n)) {
            return wrong(raw, "scan.partition.num", format_args!("expected 1 to {PARTITIONS_MAX}"));
        }
        if self.partition_column.is_some() && self.poll_column.is_some() {
            return wrong(raw, "scan.partition.column", "a table that is polled ('scan.poll.column') is not divided");
        }
        if self.poll_interval.is_zero() {
            return wrong(raw, "scan.poll.interval", "expected more than nothing");
        }
        Ok(())
    }
}

impl SinkOptions {
    /// Checks what the types do not say.
    ///
    /// # Errors
    /// Names the option.
    pub fn check(&self, raw: &RawOptions) -> Result<(), ConnectError> {
        if self.max_rows == Some(0) {
            return wrong(raw, "sink.buffer-flush.max-rows", "at least 1 is needed; leave it out to let the sink find out");
        }
        if self.max_bytes.is_some_and(|b| !(1 << 10..=1 << 31).contains(&b.0)) {
            return wrong(raw, "sink.buffer-flush.max-bytes", "expected 1 kb to 2 gb");
        }
        if !(1..=CONNECTIONS_MAX).contains(&self.connections) {
            return wrong(raw, "sink.connections", format_args!("expected 1 to {CONNECTIONS_MAX}"));
        }
        match (self.on_error, &self.dead_letter) {
            (OnRefused::DeadLetter, None) => wrong(raw, "sink.on-error", "'dead-letter' needs 'sink.dead-letter' = '<path of a file>'"),
            (OnRefused::Fail | OnRefused::Skip, Some(_)) => {
                wrong(raw, "sink.dead-letter", "it is of use with 'sink.on-error' = 'dead-letter' only")
            }
            _ => Ok(()),
        }
    }
}

impl AskOptions {
    /// Checks what the types do not say.
    ///
    /// # Errors
    /// Names the option.
    pub fn check(&self, raw: &RawOptions) -> Result<(), ConnectError> {
        if !(1..=CONNECTIONS_MAX).contains(&self.connections) {
            return wrong(raw, "lookup.connections", format_args!("expected 1 to {CONNECTIONS_MAX}"));
        }
        Ok(())
    }
}
