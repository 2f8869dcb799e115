//! MySQL and MariaDB, through the blocking client `mysql`.
//!
//! - Many rows go in by `LOAD DATA LOCAL INFILE`, encoded from the columns while the server reads ([`load`]);
//!   where the server has switched that off, by lists of `VALUES`, which is said once.
//! - Upserts of many rows go into a temporary table and from there into the table in one statement, sorted by
//!   key; fewer by `INSERT … ON DUPLICATE KEY UPDATE` ([`merge`]). Deletes likewise.
//! - Strict mode, and [`check`]: what the server would change is refused. `LOAD DATA LOCAL` makes warnings of
//!   what other statements refuse, so that warnings are errors here.
//! - Sessions speak UTF-8 (4 bytes) and UTC. Results come in the binary protocol ([`read`]).
//! - Changes of tables come from the binary log (`binlog`, a feature).
//!
//! What it promises after a crash is up to the engine of the tables: InnoDB's are safe, MyISAM's know no
//! transactions, which the sink is told ([`Connection::without_transactions`]).

#[cfg(feature = "cdc")]
pub(crate) mod binlog;
mod check;
mod connection;
mod dialect;
mod encode;
mod error;
mod load;
mod lookup;
mod merge;
pub(crate) mod nested;
mod open;
mod read;
mod table;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dialect::MysqlDialect;
use open::Settings;
pub(crate) use table::engine_sql;

use crate::driver::{Connection, DbError, Dialect, Driver};
use crate::url::{Scheme, Url};

/// Bytes of upserts that are committed together: their temporary table takes no more than a small part of the 128 MB of
/// pages that InnoDB has as it is installed, and so do locks, some 100 bytes for a page, of rows that have a page each.
const PART_BYTES: usize = 16 << 20;
/// The same of parts that [`PARTS_AT_ONCE`] connections write.
const PART_BYTES_BESIDE: usize = 2 << 20;
/// Connections that write parts of a batch. A statement waits for each page that it needs, so that several have the disk and the
/// processors busy: of a million updates all over ten million rows one connection writes 56,000 a second, four 105,000, eight 130,000.
const PARTS_AT_ONCE: usize = 8;

/// The driver for a URL.
///
/// # Errors
/// A parameter of the URL that makes no sense.
pub(crate) fn driver(url: &Url) -> Result<Arc<dyn Driver>, DbError> {
    let settings = Settings::of(url)?;
    let abilities = Abilities { local_infile: AtomicBool::new(settings.local_infile), temporary_tables: AtomicBool::new(true) };
    let name = if url.scheme == Scheme::MariaDb { "MariaDB" } else { "MySQL" };
    Ok(Arc::new(MysqlDriver { name, settings, abilities: Arc::new(abilities) }))
}

/// What the server has been found to allow, for all connections of a table.
struct Abilities {
    local_infile: AtomicBool,
    temporary_tables: AtomicBool,
}

impl Abilities {
    fn local_infile(&self) -> bool {
        self.local_infile.load(Ordering::Relaxed)
    }

    fn temporary_tables(&self) -> bool {
        self.temporary_tables.load(Ordering::Relaxed)
    }

    /// Notes that loading from the client is off, and says so the first time.
    fn no_local_infile(&self) {
        if self.local_infile.swap(false, Ordering::Relaxed) {
            tidemill_connect::notice(
                "MySQL: the server does not allow LOAD DATA LOCAL INFILE (local_infile is off); \
                 rows go in by INSERT statements, which takes a little longer",
            );
        }
    }

    /// Notes that temporary tables cannot be made, and says so the first time.
    fn no_temporary_tables(&self, why: &str) {
        if self.temporary_tables.swap(false, Ordering::Relaxed) {
            tidemill_connect::notice(&format!("MySQL: {why}; rows are updated and deleted by lists of values, which takes longer"));
        }
    }
}

struct MysqlDriver {
    name: &'static str,
    settings: Settings,
    abilities: Arc<Abilities>,
}

impl Driver for MysqlDriver {
    fn name(&self) -> &'static str {
        self.name
    }

    fn dialect(&self) -> &'static dyn Dialect {
        &MysqlDialect
    }

    fn connect(&self, timeout: Duration) -> Result<Box<dyn Connection>, DbError> {
        let opened = open::open(&self.settings, timeout)?;
        Ok(Box::new(connection::MysqlConnection::new(opened, self.abilities.clone())))
    }

    fn part_bytes(&self) -> usize {
        PART_BYTES
    }

    fn parts_at_once(&self) -> usize {
        PARTS_AT_ONCE
    }

    fn part_bytes_beside(&self) -> usize {
        PART_BYTES_BESIDE
    }
}
