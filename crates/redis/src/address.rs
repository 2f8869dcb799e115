//! Where a server is and who asks: the option 'url' and its companions. User and password are in no message.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tidemill_connect::ConnectError;
use tidemill_connect::certificates::trusted;
use tidemill_format::options::Secret;

use crate::options::CommonOptions;

/// The port of servers that have no other.
const PORT: u16 = 6379;
const EXPECTED: &str = "expected redis://host:port/database, rediss:// for an encrypted connection, or unix:///path";

/// How connections are encrypted.
#[derive(Clone)]
pub struct Tls {
    /// What is trusted.
    pub config: Arc<ClientConfig>,
    /// Whom the certificate must name.
    pub name: ServerName<'static>,
}

/// Where a server listens.
#[derive(Clone)]
pub enum Place {
    /// On a port.
    Tcp {
        /// A name or an address, IPv6 without its brackets.
        host: String,
        /// The TCP port.
        port: u16,
        /// Where the connection is encrypted.
        tls: Option<Tls>,
    },
    /// At a socket of this machine.
    Unix(PathBuf),
}

/// A server, and as whom to talk to it.
#[derive(Clone)]
pub struct Address {
    /// Where it listens.
    pub place: Place,
    /// The user, if it is not the default one.
    pub username: Option<String>,
    /// Its password.
    pub password: Option<Secret>,
    /// The database.
    pub database: u32,
    /// How long an attempt to connect may take, and a start in all.
    pub timeout: Duration,
}

/// What a URL says.
#[derive(Debug, Default, PartialEq)]
struct Parts {
    tls: bool,
    host: String,
    port: u16,
    socket: Option<PathBuf>,
    username: Option<String>,
    password: Option<String>,
    database: Option<u32>,
}

impl Address {
    /// The server that these options name.
    ///
    /// # Errors
    /// Names the option and what is wrong with it, without what it says.
    pub fn of(options: &CommonOptions) -> Result<Self, ConnectError> {
        let wrong = |name: &str, why: &str| ConnectError::new(format!("option '{name}': {why}"));
        let parts = parse(options.url.reveal().trim()).map_err(|why| wrong("url", &why))?;
        let twice = |name| wrong(name, "'url' says it, too; leave one out");
        if parts.username.is_some() && options.username.is_some() {
            return Err(twice("username"));
        }
        if parts.password.is_some() && options.password.is_some() {
            return Err(twice("password"));
        }
        if parts.database.is_some() && options.database.is_some() {
            return Err(twice("database"));
        }
        if options.ca_file.is_some() && !parts.tls {
            return Err(wrong("ca-file", "certificates are of use with rediss:// only"));
        }
        if options.connect_timeout.is_zero() {
            return Err(wrong("connect.timeout", "expected more than nothing"));
        }
        let username = parts.username.or_else(|| options.username.clone()).filter(|name| !name.is_empty());
        let password = parts.password.map(Secret::new).or_else(|| options.password.clone()).filter(|p| !p.reveal().is_empty());
        if username.is_some() && password.is_none() {
            return Err(wrong("password", "a user needs one"));
        }
        let place = match parts.socket {
            Some(path) => Place::Unix(path),
            None => {
                let tls = if parts.tls { Some(tls(&parts.host, options.ca_file.as_deref().map(Path::new))?) } else { None };
                Place::Tcp { host: parts.host, port: parts.port, tls }
            }
        };
        let database = parts.database.or(options.database).unwrap_or(0);
        Ok(Address { place, username, password, database, timeout: options.connect_timeout })
    }

    /// What messages call it.
    pub fn name(&self) -> String {
        match &self.place {
            Place::Tcp { host, port, .. } if host.contains(':') => format!("Redis at [{host}]:{port}"),
            Place::Tcp { host, port, .. } => format!("Redis at {host}:{port}"),
            Place::Unix(path) => format!("Redis at {}", path.display()),
        }
    }
}

/// Reads a URL. What it returns as an error has nothing of the user or the password.
fn parse(url: &str) -> Result<Parts, String> {
    let expected = || EXPECTED.to_string();
    let (scheme, rest) = url.split_once("://").ok_or_else(expected)?;
    if rest.contains(['?', '#']) {
        return Err(format!("parameters behind '?' or '#' are not used, there are options for them; {EXPECTED}"));
    }
    let mut parts = Parts::default();
    match scheme.to_ascii_lowercase().as_str() {
        "redis" => {}
        "rediss" => parts.tls = true,
        "unix" | "redis+unix" => {
            let path = decode(rest).filter(|path| path.starts_with('/')).ok_or_else(expected)?;
            return Ok(Parts { socket: Some(path.into()), ..parts });
        }
        _ => return Err(expected()),
    }
    // A password may have slashes in it that nobody has encoded.
    let (user, rest) = rest.rsplit_once('@').map_or((None, rest), |(user, rest)| (Some(user), rest));
    if let Some(user) = user {
        let (name, password) = user.split_once(':').map_or((user, None), |(name, password)| (name, Some(password)));
        let decoded = |text| decode(text).ok_or_else(|| "user or password is not well encoded: expected %XX, UTF-8".to_string());
        parts.username = Some(decoded(name)?).filter(|name| !name.is_empty());
        parts.password = password.map(decoded).transpose()?;
    }
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    (parts.host, parts.port) = host_and_port(authority)?;
    if !path.is_empty() {
        parts.database = Some(path.parse().map_err(|_| format!("'{path}' is no number of a database; {EXPECTED}"))?);
    }
    Ok(parts)
}

fn host_and_port(authority: &str) -> Result<(String, u16), String> {
    // What stands there may be a password whose '@' was forgotten.
    let port = |text: &str| match text.parse::<u16>() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err("what stands behind the ':' is no port; expected 1 to 65535".to_string()),
    };
    if let Some(v6) = authority.strip_prefix('[') {
        let (host, rest) = v6.split_once(']').ok_or_else(|| EXPECTED.to_string())?;
        return match rest.strip_prefix(':') {
            Some(text) => Ok((host.to_string(), port(text)?)),
            None if rest.is_empty() => Ok((host.to_string(), PORT)),
            None => Err(EXPECTED.to_string()),
        };
    }
    let (host, number) = authority.split_once(':').map_or((authority, Ok(PORT)), |(host, text)| (host, port(text)));
    if host.is_empty() {
        return Err(format!("the host is missing; {EXPECTED}"));
    }
    Ok((host.to_string(), number?))
}

/// `%XX` replaced; `None` if the text is not well encoded.
fn decode(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || rest.next().and_then(|b| char::from(b).to_digit(16));
            let (high, low) = (digit()?, digit()?);
            out.push((high * 16 + low) as u8);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}

/// How connections to a host are encrypted.
fn tls(host: &str, file: Option<&Path>) -> Result<Tls, ConnectError> {
    let name = ServerName::try_from(host.to_string());
    let name = name.map_err(|_| ConnectError::new(format!("option 'url': '{host}' is no name of a host")))?;
    let pem = trusted(file, "ca-file")?;
    let mut roots = RootCertStore::empty();
    // A file of many may hold some of a kind that is not known here.
    let (added, _) = roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok));
    if added == 0 {
        return Err(ConnectError::new("no certificate to trust can be read; name a file of certificates in PEM form with 'ca-file'"));
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| ConnectError::new(format!("preparing encrypted connections: {e}")))?;
    Ok(Tls { config: Arc::new(builder.with_root_certificates(roots).with_no_client_auth()), name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let parts = |host: &str, port| Parts { host: host.into(), port, ..Parts::default() };
        assert_eq!(parse("redis://localhost").unwrap(), parts("localhost", 6379));
        assert_eq!(parse("REDIS://10.0.0.7:7000/").unwrap(), parts("10.0.0.7", 7000));
        assert_eq!(parse("redis://[::1]:7000/3").unwrap(), Parts { database: Some(3), ..parts("::1", 7000) });
        assert_eq!(parse("rediss://[::1]").unwrap(), Parts { tls: true, ..parts("::1", 6379) });
        let secret = Parts { password: Some("ge/h@im".into()), ..parts("h", 6379) };
        assert_eq!(parse("redis://:ge/h%40im@h").unwrap(), secret);
        assert_eq!(parse("redis://anna:ge%2Fh@im@h").unwrap(), Parts { username: Some("anna".into()), ..secret });
        let socket = Parts { socket: Some("/run/redis.sock".into()), ..Parts::default() };
        assert_eq!(parse("unix:///run/redis.sock").unwrap(), socket);
        assert_eq!(parse("redis+unix:///run/redis.sock").unwrap(), socket);
    }

    #[test]
    fn errors_say_what_is_wrong_and_nothing_secret() {
        for (url, part) in [
            ("localhost:6379", "expected redis://"),
            ("http://geheim@localhost", "expected redis://"),
            ("redis://u:geheim@", "the host is missing"),
            ("redis://u:geheim@h:0", "is no port"),
            ("redis://u:geheim@h:70000", "is no port"),
            ("redis://u:geheim", "is no port"),
            ("redis://u:geheim@h/orders", "'orders' is no number of a database"),
            ("redis://u:geheim%4@h", "not well encoded"),
            ("redis://h?db=3", "parameters behind '?'"),
            ("unix://run/redis.sock", "expected redis://"),
        ] {
            let error = parse(url).unwrap_err();
            assert!(error.contains(part) && !error.contains("geheim"), "{url}: {error}");
        }
    }
}
