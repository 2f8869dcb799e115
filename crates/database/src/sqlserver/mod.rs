//! Microsoft SQL Server, through the client `tiberius`.
//!
//! - [`stream`], [`greeting`]: bytes, encryption, and how a session begins; the login, statements and results are the
//!   client's
//! - [`connection`]: a session, its transaction, what is known of tables
//! - [`bulk`]: rows go in by `INSERT BULK`, written straight from the columns between two requests of the client
//! - [`statement`]: upserts of many rows go through a temporary table and one `MERGE`, deletes through one and a
//!   `DELETE … JOIN`; a few rows travel as parameters
//! - [`types`], [`encode`], [`read`]: columns into the types of the table, and back
//! - [`dialect`], [`error`]: how SQL is written, and which errors are worth another attempt
//!
//! What it promises after a crash: what was committed is there. Everything is one transaction of the server at the
//! isolation level READ COMMITTED; the table of marks is locked row by row.

mod bulk;
mod connection;
mod dialect;
mod encode;
mod error;
mod greeting;
mod read;
mod statement;
mod stream;
#[cfg(test)]
mod tests;
mod types;

use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use tidemill_format::options::Secret;

use self::connection::SqlServerConnection;
use self::dialect::SqlServerDialect;
use self::greeting::Encryption;
use crate::driver::{Connection, DbError, Dialect, Driver};
use crate::url::{SslMode, Url};

/// The port, if the URL has none.
const PORT: u16 = 1433;

/// Parameters of the URL that are used.
const KNOWN: &[&str] = &[
    "applicationintent",
    "applicationname",
    "authentication",
    "encrypt",
    "hostnameincertificate",
    "integratedsecurity",
    "sslca",
    "sslmode",
    "trustservercertificate",
];

/// Parameters of the vendor's JDBC driver that are about how that driver works, and change no result.
const IGNORED: &[&str] = &[
    "disablestatementpooling",
    "lastupdatecount",
    "logintimeout",
    "multisubnetfailover",
    "packetsize",
    "responsebuffering",
    "selectmethod",
    "sendstringparametersasunicode",
    "sockettimeout",
    "statementpoolingcachesize",
    "transparentnetworkipresolution",
    "usebulkcopyforbatchinsert",
    "workstationid",
];

/// The driver for a URL of SQL Server.
///
/// # Errors
/// A parameter that is not known, no user, no certificates to trust.
pub(crate) fn driver(url: &Url) -> Result<Arc<dyn Driver>, DbError> {
    Ok(Arc::new(SqlServer(Settings::of(url)?)))
}

/// How a server is reached. No `Debug`: it holds the password.
struct Settings {
    host: String,
    port: u16,
    database: String,
    user: String,
    password: Secret,
    application: String,
    read_only: bool,
    encryption: Encryption,
    tls: Arc<ClientConfig>,
    /// The name that the server's certificate must have.
    certificate_name: String,
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
                    "the property {} is not known; there are databaseName, encrypt, trustServerCertificate, hostNameInCertificate, \
                     ssl-ca, applicationName and applicationIntent",
                    url.named(index)
                )));
            }
        }
        let by_name =
            url.parameter("authentication").is_none_or(|a| ["sqlpassword", "notspecified"].contains(&a.to_ascii_lowercase().as_str()));
        if !by_name || flag(url, "integratedSecurity").map_err(at)? == Some(true) {
            return Err(at("SQL Server is reached with a name and a password; other ways to log in are not built in".into()));
        }
        let (encryption, verify) = encryption(url).map_err(at)?;
        let Some(user) = url.user.clone() else {
            return Err(DbError::fatal("SQL Server wants a login; set 'username' and 'password'"));
        };
        Ok(Settings {
            host: url.host.clone(),
            port: url.port.unwrap_or(PORT),
            database: url.database.clone(),
            user,
            password: url.password.clone().unwrap_or_default(),
            application: url.parameter("applicationName").unwrap_or("tidemill").to_string(),
            read_only: url.parameter("applicationIntent").is_some_and(|intent| intent.eq_ignore_ascii_case("ReadOnly")),
            encryption,
            tls: greeting::tls_config(verify, url.ssl_ca().as_deref())?,
            certificate_name: url.parameter("hostNameInCertificate").unwrap_or(&url.host).to_string(),
        })
    }
}

/// How far encryption goes, and whether the server's certificate is checked: as `encrypt` and
/// `trustServerCertificate` say, with the defaults of the vendor's drivers, or as `ssl-mode` of the other stores.
fn encryption(url: &Url) -> Result<(Encryption, bool), String> {
    if url.parameter("ssl-mode").is_some() {
        return Ok(match url.ssl_mode()? {
            SslMode::Disable => (Encryption::Never, false),
            SslMode::Prefer => (Encryption::Prefer, false),
            SslMode::Require => (Encryption::Require, false),
            SslMode::VerifyFull => (Encryption::Require, true),
        });
    }
    let encrypt = match url.parameter("encrypt").map(str::to_ascii_lowercase).as_deref() {
        None | Some("true" | "yes" | "mandatory") => true,
        Some("false" | "no" | "optional") => false,
        Some("strict") => return Err("encrypt=strict (TDS 8.0) is not built in; encrypt=true encrypts everything, too".into()),
        Some(_) => return Err(format!("{}: expected true or false", url.shown("encrypt"))),
    };
    let trust = flag(url, "trustServerCertificate")?.unwrap_or(false);
    Ok(if encrypt { (Encryption::Require, !trust) } else { (Encryption::Login, false) })
}

fn flag(url: &Url, name: &str) -> Result<Option<bool>, String> {
    match url.parameter(name).map(str::to_ascii_lowercase).as_deref() {
        None => Ok(None),
        Some("true" | "yes") => Ok(Some(true)),
        Some("false" | "no") => Ok(Some(false)),
        Some(_) => Err(format!("{}: expected true or false", url.shown(name))),
    }
}

struct SqlServer(Settings);

impl Driver for SqlServer {
    fn name(&self) -> &'static str {
        "SQL Server"
    }

    fn dialect(&self) -> &'static dyn Dialect {
        &SqlServerDialect
    }

    fn connect(&self, timeout: Duration) -> Result<Box<dyn Connection>, DbError> {
        Ok(Box::new(SqlServerConnection::open(&self.0, timeout)?))
    }
}
