//! Opening a session: addresses, TLS, what is set before anything else is said.

use std::collections::HashMap;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Duration;

use ::mysql::prelude::Queryable;
use ::mysql::{Conn, DriverError, Error, Opts, OptsBuilder, SslOpts};
use tidemill_format::options::Secret;

use super::error::{ACCESS_DENIED, code, db_error};
use crate::driver::DbError;
use crate::url::{SslMode, Url};

const PORT: u16 = 3306;

/// Idle connections are probed after so long, every so often, so many times: a server that is gone is noticed
/// within a minute or so, however long statements may take.
const KEEPALIVE_MS: u32 = 30_000;
#[cfg(target_os = "linux")]
const PROBE_S: u32 = 10;
#[cfg(target_os = "linux")]
const PROBES: u32 = 3;
/// Data that was sent and not acknowledged for so long means the same, ms.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_MS: u32 = 60_000;

/// Prepared statements kept for each connection: lookups of some sizes, a few queries.
const STATEMENTS_KEPT: usize = 32;

/// What a session is set to. UTC and UTF-8, so that times and text are what the job has. Strict, so that values
/// are refused rather than changed; 0 is 0, not the next number; there are no dates with zeros. Warnings are
/// counted, notes too. A server that waits for us to read on is to be patient: a job may be held up.
const SESSION: &[&str] = &[
    "SET NAMES utf8mb4",
    "SET time_zone = '+00:00', autocommit = 1, sql_notes = 1, max_error_count = 64, sql_safe_updates = 0, net_write_timeout = 86400, \
     sql_mode = 'STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO'",
    // No locks on gaps between keys, over which writers of neighbouring keys would wait for each other.
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
];

/// How a server is reached.
pub(super) struct Settings {
    host: String,
    port: u16,
    socket: Option<String>,
    database: String,
    user: Option<String>,
    password: Option<Secret>,
    ssl_mode: SslMode,
    ssl_ca: Option<PathBuf>,
    /// Whether `LOAD DATA LOCAL INFILE` is to be used.
    pub local_infile: bool,
}

impl Settings {
    /// Of a URL. Beside TLS it may say `socket` (a path), and `local-infile` or `allowLoadLocalInfile`; other
    /// parameters are for other drivers.
    ///
    /// # Errors
    /// A parameter with a value that makes no sense.
    pub fn of(url: &Url) -> Result<Self, DbError> {
        let flag = |name: &str| match url.parameter(name).map(str::to_ascii_lowercase).as_deref() {
            None => Ok(None),
            Some("true" | "1" | "on") => Ok(Some(true)),
            Some("false" | "0" | "off") => Ok(Some(false)),
            Some(_) => Err(DbError::fatal(format!("option 'url': {}: expected true or false", url.shown(name)))),
        };
        let mut ssl_mode = url.ssl_mode().map_err(|why| DbError::fatal(format!("option 'url': {why}")))?;
        // As the drivers of Java have it.
        if url.parameter("ssl-mode").is_none() && flag("useSSL")? == Some(false) {
            ssl_mode = SslMode::Disable;
        }
        let local_infile = flag("local-infile")?.or(flag("allowLoadLocalInfile")?).unwrap_or(true);
        Ok(Settings {
            // The client wants IPv6 addresses in brackets.
            host: if url.host.contains(':') { format!("[{}]", url.host) } else { url.host.clone() },
            port: url.port.unwrap_or(PORT),
            socket: url.parameter("socket").map(str::to_string),
            database: url.database.clone(),
            user: url.user.clone(),
            password: url.password.clone(),
            ssl_mode,
            ssl_ca: url.ssl_ca(),
            local_infile,
        })
    }

    fn options(&self, timeout: Duration, tls: bool) -> Opts {
        let ssl = SslOpts::default()
            .with_root_cert_path(self.ssl_ca.clone())
            .with_danger_accept_invalid_certs(self.ssl_mode != SslMode::VerifyFull);
        let options = OptsBuilder::new()
            .ip_or_hostname(Some(self.host.clone()))
            .tcp_port(self.port)
            .socket(self.socket.clone())
            .prefer_socket(false)
            .user(self.user.clone())
            .pass(self.password.as_ref().map(|p| p.reveal().to_string()))
            .db_name(Some(self.database.clone()).filter(|d| !d.is_empty()))
            .ssl_opts(tls.then_some(ssl))
            .tcp_connect_timeout(Some(timeout))
            .read_timeout(Some(timeout))
            .write_timeout(Some(timeout))
            .tcp_keepalive_time_ms(Some(KEEPALIVE_MS))
            .stmt_cache_size(STATEMENTS_KEPT)
            .connect_attrs(Some(HashMap::from([("program_name", "tidemill")])));
        #[cfg(target_os = "linux")]
        let options = options
            .tcp_keepalive_probe_interval_secs(Some(PROBE_S))
            .tcp_keepalive_probe_count(Some(PROBES))
            .tcp_user_timeout_ms(Some(UNACKNOWLEDGED_MS));
        options.into()
    }
}

/// A session.
pub(super) struct Opened {
    /// The client's connection.
    pub conn: Conn,
    /// The same socket once more: to end it from outside of a result that nobody reads on.
    pub socket: TcpStream,
    /// Whether `INSERT … VALUES … AS new` is known (MySQL 8.0.19), where `VALUES(column)` is deprecated.
    pub row_alias: bool,
}

/// Opens a session; waits at most `timeout` for each answer until it is there, and for as long as statements
/// take from then on.
///
/// # Errors
/// Of the network, of the server; never with the password.
pub(super) fn open(settings: &Settings, timeout: Duration) -> Result<Opened, DbError> {
    let timeout = timeout.max(Duration::from_millis(1));
    let tls = settings.ssl_mode != SslMode::Disable;
    if tls {
        // The client asks for the process's provider. Whoever came first has set the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let failed = |e: Error| {
        let mut failed = db_error("connecting", &e);
        if !tls && code(&e) == Some(ACCESS_DENIED) {
            // A server says no more than this to an account that may only come with TLS.
            failed.message.push_str("; or the server wants TLS: 'ssl-mode' = require");
        }
        failed
    };
    let mut conn = match Conn::new(settings.options(timeout, tls)) {
        Err(Error::DriverError(DriverError::TlsNotSupported)) if settings.ssl_mode == SslMode::Prefer => {
            Conn::new(settings.options(timeout, false)).map_err(failed)?
        }
        result => result.map_err(failed)?,
    };
    for statement in SESSION {
        conn.query_drop(statement).map_err(|e| db_error("setting the session up", &e))?;
    }
    let version: String = conn.query_first("SELECT VERSION()").map_err(failed)?.unwrap_or_default();
    let socket = same_socket(&conn).map_err(|e| DbError::connection(format!("connecting: {e}")))?;
    Ok(Opened { row_alias: has_row_alias(&version), conn, socket })
}

/// The socket of a connection, without a limit on how long an answer may take.
fn same_socket(conn: &Conn) -> std::io::Result<TcpStream> {
    // SAFETY: the descriptor is open, since it belongs to `conn`, which is borrowed for longer than `fd` lives.
    // The client shows its socket in no other way, and has no way to change its timeouts.
    let fd = unsafe { BorrowedFd::borrow_raw(conn.as_raw_fd()) };
    // A local socket serves as well: what is used of it is common to all.
    let socket = TcpStream::from(fd.try_clone_to_owned()?);
    socket.set_read_timeout(None)?;
    socket.set_write_timeout(None)?;
    Ok(socket)
}

fn has_row_alias(version: &str) -> bool {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    !version.contains("MariaDB") && (next(), next(), next()) >= (8, 0, 19)
}

#[cfg(test)]
mod tests;
