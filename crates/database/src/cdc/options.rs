//! The options of the connectors `postgres-cdc` and `mysql-cdc`, as users write them: those of Flink's connectors of
//! these names.

use std::time::Duration;

use tidemill_connect::ConnectError;
use tidemill_format::options::{RawOptions, Secret};
use tidemill_format::{option_enum, options};

option_enum! {
    /// Where reading begins.
    pub enum Startup {
        /// With the rows of the table, then with what changes.
        Initial = "initial",
        /// With what changes from now on.
        Latest = "latest-offset",
        /// With the oldest change that the server still has.
        Earliest = "earliest-offset",
        /// With what the replication slot has not yet given.
        Committed = "committed-offset",
    }
}

option_enum! {
    /// What changes say.
    pub enum Mode {
        /// Old rows and new ones.
        All = "all",
        /// New rows, and keys of those that are gone.
        Upsert = "upsert",
    }
}

option_enum! {
    /// How PostgreSQL writes changes.
    pub enum Plugin {
        /// The plugin that comes with PostgreSQL.
        PgOutput = "pgoutput",
    }
}

options! {
    /// Of `postgres-cdc`.
    pub struct PostgresOptions {
        /// The server.
        flink "hostname" => hostname: String;
        /// Its port.
        flink "port" => port: u16 = 5432u16;
        /// The user, who has the attribute REPLICATION and may read the table.
        flink "username" => username: String;
        /// The password. It is never shown.
        flink "password" => password: Option<Secret>;
        /// The database.
        flink "database-name" => database: String;
        /// The schema of the table.
        flink "schema-name" => schema: String = "public";
        /// The table.
        flink "table-name" => table: String;
        /// The replication slot of this table of this job, which is made if it is not there: small letters, digits and `_`. The
        /// server keeps its log for it until the slot is dropped.
        flink "slot.name" => slot: String;
        /// `pgoutput`, which comes with PostgreSQL.
        flink "decoding.plugin.name" => plugin: Plugin = Plugin::PgOutput;
        /// Where reading begins: `initial` (the rows of the table, then its changes), `latest-offset`, `committed-offset` (what
        /// the slot has not yet given).
        flink "scan.startup.mode" => startup: Startup = Startup::Initial;
        /// `all` gives old rows with new ones, for which the table needs `REPLICA IDENTITY FULL`; `upsert` gives new rows only and
        /// needs a PRIMARY KEY.
        flink "changelog-mode" => mode: Mode = Mode::All;
        /// The publication. By default `tidemill_` and the name of the slot; it is made for the table if it is not there.
        flink "debezium.publication.name" => publication: Option<String>;
        /// Rows of the table handed over at once.
        flink "scan.snapshot.fetch.size" => fetch_size: usize = 8192usize;
        /// Accepted for Flink's sake; the table is always read without locks, and resumed by key.
        flink "scan.incremental.snapshot.enabled" => incremental: Option<bool>;
        /// How long one attempt to connect may take.
        flink "connect.timeout" => connect_timeout: Duration = Duration::from_secs(30);
        /// How long a database that cannot be reached is tried again, with growing pauses.
        ours "connection.max-retry-timeout" => retry_timeout: Duration = Duration::from_secs(60);
        /// How far TLS goes: `disable`, `prefer`, `require`, `verify-full`.
        ours "ssl-mode" => ssl_mode: Option<String>;
        /// A file with the certificates of authorities that are trusted.
        ours "ssl-ca" => ssl_ca: Option<String>;
    }
}

options! {
    /// Of `mysql-cdc`.
    pub struct MysqlOptions {
        /// The server, MySQL or MariaDB.
        flink "hostname" => hostname: String;
        /// Its port.
        flink "port" => port: u16 = 3306u16;
        /// The user, who has the rights SELECT and LOCK TABLES on the table, REPLICATION SLAVE and REPLICATION CLIENT (in MariaDB BINLOG
        /// MONITOR).
        flink "username" => username: String;
        /// The password. It is never shown.
        flink "password" => password: Option<Secret>;
        /// The database.
        flink "database-name" => database: String;
        /// The table.
        flink "table-name" => table: String;
        /// A number that no other replica of the server has, or a range, of which the first is taken. By default one at random.
        flink "server-id" => server_id: Option<String>;
        /// Accepted for Flink's sake; TIMESTAMP columns are points in time, TIMESTAMP_LTZ.
        flink "server-time-zone" => time_zone: Option<String>;
        /// Where reading begins: `initial` (the rows of the table, then its changes), `latest-offset`, `earliest-offset` (the oldest
        /// change that the server still has).
        flink "scan.startup.mode" => startup: Startup = Startup::Initial;
        /// Rows of the table handed over at once.
        flink "scan.snapshot.fetch.size" => fetch_size: usize = 8192usize;
        /// Accepted for Flink's sake; the table is always read in one transaction, and resumed by key.
        flink "scan.incremental.snapshot.enabled" => incremental: Option<bool>;
        /// How long one attempt to connect may take, and how long the table's lock is waited for when reading begins.
        flink "connect.timeout" => connect_timeout: Duration = Duration::from_secs(30);
        /// How long a database that cannot be reached is tried again, with growing pauses.
        ours "connection.max-retry-timeout" => retry_timeout: Duration = Duration::from_secs(60);
        /// How far TLS goes: `disable`, `prefer`, `require`, `verify-full`.
        ours "ssl-mode" => ssl_mode: Option<String>;
        /// A file with the certificates of authorities that are trusted.
        ours "ssl-ca" => ssl_ca: Option<String>;
    }
}

fn wrong<T>(raw: &RawOptions, name: &str, why: impl std::fmt::Display) -> Result<T, ConnectError> {
    Err(ConnectError::new(format!("{}: option '{name}': {why}", raw.owner())))
}

/// Checks that a name is there.
fn named(raw: &RawOptions, options: &[(&str, &str)]) -> Result<(), ConnectError> {
    match options.iter().find(|(_, value)| value.trim().is_empty()) {
        Some((name, _)) => wrong(raw, name, "expected a name"),
        None => Ok(()),
    }
}

impl PostgresOptions {
    /// Checks what the types do not say.
    ///
    /// # Errors
    /// Names the option.
    pub fn check(&self, raw: &RawOptions, keyed: bool) -> Result<(), ConnectError> {
        named(raw, &[("hostname", &self.hostname), ("table-name", &self.table), ("database-name", &self.database)])?;
        let of_slot = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if self.slot.len() > 63 || !self.slot.chars().all(of_slot) || !self.slot.starts_with(|c: char| !c.is_ascii_digit()) {
            return wrong(raw, "slot.name", "expected 1 to 63 small letters, digits and '_', not a digit first");
        }
        if self.startup == Startup::Earliest {
            return wrong(
                raw,
                "scan.startup.mode",
                "PostgreSQL keeps no log from before its slot; expected initial, latest-offset or committed-offset",
            );
        }
        if self.mode == Mode::Upsert && !keyed {
            return wrong(raw, "changelog-mode", "'upsert' needs PRIMARY KEY (…) NOT ENFORCED");
        }
        sizes(raw, self.fetch_size, self.connect_timeout)
    }

    /// The name of the publication.
    pub fn publication_name(&self) -> String {
        self.publication.clone().filter(|p| !p.is_empty()).unwrap_or_else(|| format!("tidemill_{}", self.slot))
    }
}

impl MysqlOptions {
    /// Checks what the types do not say; the number of the replica.
    ///
    /// # Errors
    /// Names the option.
    pub fn check(&self, raw: &RawOptions) -> Result<Option<u32>, ConnectError> {
        named(raw, &[("hostname", &self.hostname), ("table-name", &self.table), ("database-name", &self.database)])?;
        if self.startup == Startup::Committed {
            return wrong(raw, "scan.startup.mode", "MySQL has no slots; expected initial, latest-offset or earliest-offset");
        }
        sizes(raw, self.fetch_size, self.connect_timeout)?;
        let Some(text) = &self.server_id else { return Ok(None) };
        let first = text.split('-').next().unwrap_or_default().trim();
        match first.parse() {
            Ok(id) if id > 0 => Ok(Some(id)),
            _ => wrong(raw, "server-id", "expected a number from 1 to 4294967295, or a range such as 5400-5408"),
        }
    }
}

fn sizes(raw: &RawOptions, fetch_size: usize, connect_timeout: Duration) -> Result<(), ConnectError> {
    if !(1..=1_000_000).contains(&fetch_size) {
        return wrong(raw, "scan.snapshot.fetch.size", "expected 1 to 1000000");
    }
    if connect_timeout.is_zero() {
        return wrong(raw, "connect.timeout", "expected more than nothing");
    }
    Ok(())
}
