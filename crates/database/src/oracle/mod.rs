//! Oracle, through the vendor's driver `oracledb`, which needs no library of theirs.
//!
//! - [`reach`]: how a session begins; who answers is asked first, since the driver panics at what is no Oracle
//! - [`connection`]: a session, its transaction, what is known of tables
//! - [`bind`]: rows go in by array binding: one statement, the values of many rows in one message
//! - [`statement`]: appended rows are an `INSERT`, upserts a `MERGE` from the parameters, with an `UPDATE` behind it where
//!   texts or bytes are too long for that
//! - [`types`], [`encode`], [`read`]: columns into the types of the table, and back; [`charset`]: what a database's text
//!   cannot hold
//! - [`dialect`], [`error`]: how SQL is written, and which errors are worth another attempt
//!
//! What it promises after a crash: what was committed is there. Everything is one transaction of the server at the
//! isolation level READ COMMITTED; the table of marks is locked row by row.

mod bind;
mod charset;
mod connection;
mod dialect;
mod encode;
mod error;
mod reach;
mod read;
mod statement;
#[cfg(test)]
mod tests;
mod types;

use std::sync::Arc;
use std::time::Duration;

use tidemill_format::options::Secret;

use self::connection::OracleConnection;
use self::dialect::OracleDialect;
use crate::driver::{Connection, DbError, Dialect, Driver};
use crate::url::{SslMode, Url};

/// The port, if the URL has none.
const PORT: u16 = 1521;

/// Parameters of the URL that are used.
const KNOWN: &[&str] = &["emptytext", "names", "oracle.jdbc.readtimeout", "protocol", "server", "sid", "sslmode", "walletlocation"];

/// Parameters of the vendor's JDBC driver that are about how that driver works, and change no result.
const IGNORED: &[&str] = &[
    "defaultrowprefetch",
    "oracle.jdbc.implicitstatementcachesize",
    "oracle.net.connecttimeout",
    "oracle.net.disableoob",
    "oracle.net.outboundconnecttimeout",
    "usefetchsizewithlongcolumn",
];

/// The driver for a URL of Oracle.
///
/// # Errors
/// A parameter that is not known, no user, no password.
pub(crate) fn driver(url: &Url) -> Result<Arc<dyn Driver>, DbError> {
    Ok(Arc::new(Oracle(Settings::of(url)?)))
}

/// What becomes of empty texts and bytes, which Oracle does not tell from NULL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Empty {
    /// The row is refused.
    Refused,
    /// They are NULL.
    Null,
}

/// How a server is reached. No `Debug`: it holds the password.
#[derive(Clone)]
struct Settings {
    /// Host and port, where they are known: not of a descriptor.
    address: Option<(String, u16)>,
    /// Everything goes through TLS.
    tls: bool,
    /// How the driver is told where the database is.
    descriptor: String,
    user: String,
    password: Secret,
    /// A directory with certificates of authorities, and of the client.
    wallet: Option<String>,
    /// How long a call may take; without it as long as it takes.
    call_timeout: Option<Duration>,
    empty: Empty,
    dialect: &'static OracleDialect,
}

impl Settings {
    /// Of a URL.
    ///
    /// # Errors
    /// See [`driver`].
    fn of(url: &Url) -> Result<Self, DbError> {
        let at = |why: String| DbError::fatal(why).at("option 'url'");
        for (index, (name, _)) in url.parameters.iter().enumerate() {
            let plain: String = name.chars().filter(|c| !matches!(c, '-' | '_')).collect::<String>().to_ascii_lowercase();
            if !KNOWN.contains(&plain.as_str()) && !IGNORED.contains(&plain.as_str()) {
                return Err(at(format!(
                    "the parameter {} is not known; there are ssl-mode, wallet-location, oracle.jdbc.ReadTimeout, empty-text and names",
                    url.named(index)
                )));
            }
        }
        let choice = |name: &str, first: &str, second: &str| match url.parameter(name).map(str::to_ascii_lowercase) {
            None => Ok(false),
            Some(given) if given == first => Ok(false),
            Some(given) if given == second => Ok(true),
            Some(_) => Err(at(format!("{}: expected {first} or {second}", url.shown(name)))),
        };
        let empty = if choice("empty-text", "error", "null")? { Empty::Null } else { Empty::Refused };
        let dialect = dialect::dialect(choice("names", "upper", "exact")?);
        let read_timeout = "oracle.jdbc.ReadTimeout";
        let call_timeout = match url.parameter(read_timeout) {
            None | Some("0") => None,
            Some(ms) => {
                let ms = ms.parse().map_err(|_| at(format!("{}: expected a number of milliseconds", url.shown(read_timeout))))?;
                Some(Duration::from_millis(ms))
            }
        };
        let Some(user) = url.user.clone() else {
            return Err(DbError::fatal("Oracle wants a login; set 'username' and 'password'"));
        };
        let password = url.password.clone().unwrap_or_default();
        if password.reveal().is_empty() {
            return Err(DbError::fatal("Oracle wants a password; set 'password'"));
        }
        let tls = tls(url).map_err(at)?;
        let (address, descriptor) = match url.host.is_empty() {
            true => (None, url.database.clone()),
            false => {
                let port = url.port.unwrap_or(PORT);
                (Some((url.host.clone(), port)), descriptor(url, port, tls).map_err(at)?)
            }
        };
        let wallet = url.parameter("wallet-location").map(str::to_string);
        Ok(Settings { address, tls, descriptor, user, password, wallet, call_timeout, empty, dialect })
    }
}

/// Whether everything goes through TLS.
fn tls(url: &Url) -> Result<bool, String> {
    let tcps = match url.host.is_empty() {
        // Nothing is sent in clear by a descriptor that has an address with TLS.
        true => url.database.to_ascii_lowercase().replace(' ', "").contains("(protocol=tcps)"),
        false => url.parameter("protocol") == Some("tcps"),
    };
    if url.parameter("ssl-mode").is_none() {
        return Ok(tcps);
    }
    match (url.ssl_mode()?, tcps) {
        (SslMode::Disable, true) => Err("ssl-mode=disable rules out the protocol tcps".into()),
        (SslMode::Disable, false) => Ok(false),
        (SslMode::VerifyFull, false) if url.host.is_empty() => {
            Err("ssl-mode=verify-full wants a descriptor with (PROTOCOL=tcps) in each address".into())
        }
        (SslMode::VerifyFull, _) => Ok(true),
        (SslMode::Prefer | SslMode::Require, _) => {
            Err("of Oracle ssl-mode is disable or verify-full: with TLS the server's certificate is always checked".into())
        }
    }
}

/// Where the database is, as the driver takes it. Without a delay, it would sleep for a second after every failure.
fn descriptor(url: &Url, port: u16, tls: bool) -> Result<String, String> {
    let protocol = if tls { "tcps" } else { "tcp" };
    let kind = if url.parameter("sid").is_some() { "SID" } else { "SERVICE_NAME" };
    let server = match url.parameter("server").map(str::to_ascii_lowercase) {
        None => String::new(),
        Some(server) if ["dedicated", "pooled", "shared"].contains(&server.as_str()) => format!("(SERVER={server})"),
        Some(_) => return Err("behind the service stands dedicated, pooled, shared, or nothing".into()),
    };
    Ok(format!(
        "(DESCRIPTION=(RETRY_DELAY=0)(ADDRESS=(PROTOCOL={protocol})(HOST={})(PORT={port}))(CONNECT_DATA=({kind}={}){server}))",
        url.host, url.database
    ))
}

struct Oracle(Settings);

impl Driver for Oracle {
    fn name(&self) -> &'static str {
        "Oracle"
    }

    fn dialect(&self) -> &'static dyn Dialect {
        self.0.dialect
    }

    fn connect(&self, timeout: Duration) -> Result<Box<dyn Connection>, DbError> {
        Ok(Box::new(OracleConnection::open(&self.0, timeout)?))
    }
}
