//! Any other database, by its ODBC driver; the driver manager (unixODBC) is loaded if it is installed, nothing is built in.
//!
//! Rows go in as arrays of parameters, a column each, bound where they lie or filled up to one width; a driver that takes
//! no arrays gets them row by row. Results come in blocks of bound columns, long values piece by piece. Databases whose
//! ways are known (PostgreSQL, MySQL and MariaDB, SQL Server, Oracle, Db2, SQLite) get the upserts, types and locks that
//! they have; others SQL's standard, with an update and, for rows that it does not find, an insert.
//!
//! - [`string`]: connection strings; [`system`]: which database it is, and its statements; [`dialect`]: types, locks
//! - [`ffi`]: the driver manager; [`connection`], [`table`], [`rewrite`], [`error`]: what the crate asks of a store
//! - [`column`]: the database's types; [`encode`], [`read`]: columns into them, and back
//!
//! What it promises after a crash: what was committed is there. Everything is one transaction of the database.

mod column;
mod connection;
mod dialect;
mod encode;
mod error;
mod ffi;
mod read;
mod rewrite;
pub(crate) mod string;
mod system;
mod table;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tidemill_format::options::Secret;

use self::connection::OdbcConnection;
use self::error::without;
use self::system::System;
use crate::driver::{Connection, DbError, Dialect, Driver};
use crate::url::Url;

/// How long a database is waited for that nobody knows by its driver's name, to find out which one it is.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);

/// The driver for a connection string.
///
/// # Errors
/// None: the manager is loaded with the first connection.
pub(crate) fn driver(url: &Url) -> Result<Arc<dyn Driver>, DbError> {
    Ok(Arc::new(OdbcDriver {
        attributes: url.parameters.clone(),
        user: url.user.clone(),
        password: url.password.clone(),
        named: OnceLock::new(),
        known: OnceLock::new(),
    }))
}

/// How a database is reached. No `Debug`: it holds the password.
struct OdbcDriver {
    attributes: Vec<(String, String)>,
    user: Option<String>,
    password: Option<Secret>,
    /// What the driver's name says of the database, once it was looked for.
    named: OnceLock<Option<System>>,
    /// What the database says of itself.
    known: OnceLock<System>,
}

impl OdbcDriver {
    /// Which database it is, by the name of its driver or of the data source's.
    fn guess(&self) -> Option<System> {
        *self.named.get_or_init(|| {
            if let Some(driver) = string::attribute(&self.attributes, "driver") {
                return System::guess(&driver);
            }
            let source = string::attribute(&self.attributes, "dsn")?;
            let driver = ffi::driver_of(ffi::library().ok()?, &source)?;
            System::guess(&driver)
        })
    }

    /// Which database it is; one whose driver has a name that says nothing is asked.
    fn system(&self) -> System {
        let known = self.known.get().copied().or_else(|| self.guess());
        known.unwrap_or_else(|| match self.open(ASK_TIMEOUT) {
            Ok(connection) => connection.system(),
            // It will be asked again.
            Err(_) => System::Standard,
        })
    }

    fn open(&self, timeout: Duration) -> Result<OdbcConnection, DbError> {
        let api = ffi::library().map_err(DbError::fatal)?;
        let guess = self.guess();
        let mut attributes = self.attributes.clone();
        if let Some(system) = guess {
            for (name, value) in system.attributes(&self.attributes) {
                attributes.retain(|(other, _)| !other.eq_ignore_ascii_case(&name));
                attributes.push((name, value));
            }
        }
        let whole = string::whole(&attributes, self.user.as_deref(), self.password.as_ref());
        let opened = OdbcConnection::open(api, &whole, guess, timeout).map_err(|e| without(e, self.password.as_ref()))?;
        // All connections say the same.
        let _ = self.known.set(opened.system());
        Ok(opened)
    }
}

impl Driver for OdbcDriver {
    fn name(&self) -> &'static str {
        "ODBC"
    }

    fn dialect(&self) -> &'static dyn Dialect {
        dialect::dialect(self.system())
    }

    fn connect(&self, timeout: Duration) -> Result<Box<dyn Connection>, DbError> {
        Ok(Box::new(self.open(timeout)?))
    }

    fn parallel_writers(&self) -> bool {
        self.guess() != Some(System::Sqlite)
    }

    fn identity(&self) -> String {
        string::shown(&self.attributes)
    }
}
