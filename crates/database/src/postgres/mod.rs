//! PostgreSQL, and servers that speak its protocol: the driver.
//!
//! Rows go in by `COPY` in binary, made straight from Arrow's columns; upserts through a temporary table and
//! one `INSERT … ON CONFLICT`; deletes and look-ups take their keys as arrays, scans come out by `COPY`.
//!
//! - [`connection`]: a session, its transaction, prepared statements
//! - [`table`]: what the catalog says about a table, and the statements for it
//! - [`types`]: which types there are; [`prepare`], [`encode`]: columns into them; [`decode`]: and back
//! - [`numeric`], [`wire`]: numbers in binary
//! - `replication` (a feature): changes of tables
//! - [`error`]: which errors are worth another attempt; [`tls`]: encryption
//!
//! What is asked of the server: version 12 or later, and that a session keeps its server process (a pooler
//! that hands it on between transactions would lose temporary tables and prepared statements).

mod connection;
mod decode;
mod encode;
mod error;
mod numeric;
mod prepare;
#[cfg(feature = "cdc")]
pub(crate) mod replication;
mod table;
#[cfg(test)]
mod tests;
pub(crate) mod tls;
mod types;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::SslMode as Encryption;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::driver::{Connection, DbError, Dialect, Driver};
use crate::url::{SslMode, Url};
use types::PostgresDialect;

/// The port, if the URL has none.
const PORT: u16 = 5432;

/// A server that says nothing for this long is asked whether it is still there…
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// …again after so long…
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// …and given up after so many questions.
const KEEPALIVE_RETRIES: u32 = 3;
/// Bytes that nobody acknowledges for this long are a broken connection.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(60);

/// Parameters of the URL that are used.
const KNOWN: &[&str] = &["sslmode", "sslca", "sslrootcert", "ssl", "options", "applicationname", "currentschema"];

/// Parameters of PostgreSQL's JDBC driver that are about how that driver works, and change no result.
const IGNORED: &[&str] = &[
    "adaptivefetch",
    "autosave",
    "binarytransfer",
    "defaultrowfetchsize",
    "loggerlevel",
    "logintimeout",
    "preparethreshold",
    "rewritebatchedinserts",
    "sockettimeout",
    "tcpkeepalive",
];

/// The driver for a URL of PostgreSQL.
///
/// # Errors
/// A parameter that is not known, an impossible `ssl-mode`, no certificates.
pub(crate) fn driver(url: &Url) -> Result<Arc<dyn Driver>, DbError> {
    let at = |why: String| DbError::fatal(why).at("option 'url'");
    for (index, (name, _)) in url.parameters.iter().enumerate() {
        let plain: String = name.chars().filter(|c| !matches!(c, '-' | '_')).collect::<String>().to_ascii_lowercase();
        if !KNOWN.contains(&plain.as_str()) && !IGNORED.contains(&plain.as_str()) {
            return Err(at(format!(
                "the parameter {} is not known; there are ssl-mode, ssl-ca, application-name, current-schema and options \
                 (such as options=-c%20lock_timeout%3D10s)",
                url.named(index)
            )));
        }
    }
    // JDBC's ssl=true is what libpq calls verify-full.
    let asked = url.parameter("ssl").is_some_and(|v| v.is_empty() || v.eq_ignore_ascii_case("true"));
    let mode = if asked && url.parameter("ssl-mode").is_none() { SslMode::VerifyFull } else { url.ssl_mode().map_err(at)? };
    // A socket of the file system is not encrypted.
    let local = url.host.starts_with('/');
    let encryption = match mode {
        SslMode::Disable => Encryption::Disable,
        SslMode::Prefer if local => Encryption::Disable,
        SslMode::Prefer => Encryption::Prefer,
        SslMode::Require | SslMode::VerifyFull => Encryption::Require,
    };
    let mut config = Config::new();
    config.host(&url.host).port(url.port.unwrap_or(PORT)).ssl_mode(encryption);
    config.application_name(url.parameter("application-name").unwrap_or("tidemill"));
    config.keepalives(true).keepalives_idle(KEEPALIVE_IDLE).keepalives_interval(KEEPALIVE_INTERVAL);
    config.keepalives_retries(KEEPALIVE_RETRIES).tcp_user_timeout(UNACKNOWLEDGED_MAX);
    if !url.database.is_empty() {
        config.dbname(&url.database);
    }
    if let Some(user) = &url.user {
        config.user(user);
    }
    if let Some(password) = &url.password {
        config.password(password.reveal());
    }
    if let Some(options) = url.parameter("options") {
        config.options(options);
    }
    let tls = tls::connector(mode == SslMode::VerifyFull, url.ssl_ca().as_deref())?;
    let schemas = url.parameter("current-schema").map(|names| names.split(',').map(|n| types::quote_part(n.trim())).collect::<Vec<_>>());
    Ok(Arc::new(Postgres { config, tls, schemas: schemas.map(|s| s.join(", ")), place: format!("PostgreSQL at {url}") }))
}

/// How to reach a database. No `Debug`: the configuration holds the password.
struct Postgres {
    config: Config,
    tls: MakeRustlsConnect,
    /// Where tables are looked for, as SQL.
    schemas: Option<String>,
    place: String,
}

impl Driver for Postgres {
    fn name(&self) -> &'static str {
        "PostgreSQL"
    }

    fn dialect(&self) -> &'static dyn Dialect {
        &PostgresDialect
    }

    fn connect(&self, timeout: Duration) -> Result<Box<dyn Connection>, DbError> {
        // What the server makes of text, and text of values, must not depend on its settings.
        let mut setup = String::from(
            "SET TimeZone = 'UTC'; SET DateStyle = 'ISO, YMD'; SET IntervalStyle = 'postgres'; SET extra_float_digits = 1; \
             SET bytea_output = 'hex'; SET standard_conforming_strings = on; SET client_min_messages = warning",
        );
        if let Some(schemas) = &self.schemas {
            setup.push_str("; SET search_path = ");
            setup.push_str(schemas);
        }
        let connection = connection::PostgresConnection::open(&self.config, self.tls.clone(), &setup, timeout, &self.place)?;
        Ok(Box::new(connection))
    }
}
