//! Where a database is: the option 'url', with user and password, which are never shown.
//!
//! `jdbc:sqlite:/data/events.db`, `jdbc:postgresql://host:5432/database?ssl-mode=require`,
//! `jdbc:mysql://…`, `jdbc:mariadb://…`, `jdbc:duckdb:/data/events.duckdb`; `jdbc:` may be left out. Names and values may be
//! percent-encoded. SQL Server has a form of its own, `jdbc:sqlserver://host:1433;databaseName=events;…`, Oracle even several
//! (`oracle.rs`), and behind `jdbc:odbc:` stands a connection string as ODBC has it.
//! What parameters mean is the drivers' business, all but TLS.

mod oracle;

use std::fmt;
use std::path::PathBuf;

use tidemill_format::options::Secret;

/// Which database a URL is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// A file of SQLite.
    Sqlite,
    /// PostgreSQL, and what speaks its protocol.
    Postgres,
    /// MySQL.
    MySql,
    /// MariaDB.
    MariaDb,
    /// A file of DuckDB.
    DuckDb,
    /// Microsoft SQL Server, and what speaks its protocol.
    SqlServer,
    /// Oracle.
    Oracle,
    /// Whatever an ODBC driver is for.
    Odbc,
}

/// How far TLS goes: the parameter `ssl-mode` (`sslmode` and `sslMode` are the same).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SslMode {
    /// Never.
    Disable,
    /// If the server can; whoever it is.
    Prefer,
    /// Always; whoever the server is.
    Require,
    /// Always, with a certificate for the host that a known authority has signed.
    VerifyFull,
}

/// A URL, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Which database.
    pub scheme: Scheme,
    /// The host; empty for files. An IPv6 address without its brackets.
    pub host: String,
    /// The port, if one is given.
    pub port: Option<u16>,
    /// The name of the database, or the path of the file; of ODBC what may be shown of the connection string. May be empty.
    pub database: String,
    /// The user: of the option 'username', else of the URL.
    pub user: Option<String>,
    /// The password: of the option 'password', else of the URL.
    pub password: Option<Secret>,
    /// What stands behind `?`, in order, or in the connection string; passwords are taken out.
    pub parameters: Vec<(String, String)>,
    /// From this one of them on they stand behind a password that nothing encloses: of one with the sign between parameters in it,
    /// they are the rest. Then neither name nor value is shown.
    doubtful: usize,
}

impl Url {
    pub(crate) fn empty(scheme: Scheme) -> Self {
        let (host, database) = (String::new(), String::new());
        Url { scheme, host, port: None, database, user: None, password: None, parameters: Vec::new(), doubtful: usize::MAX }
    }

    /// Takes a URL apart.
    ///
    /// # Errors
    /// Says what is wrong, without showing the URL.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let text = strip(text, "jdbc:").unwrap_or(text);
        let Some((scheme, rest)) = text.split_once(':') else {
            return Err("expected sqlite:PATH, postgresql://…, mysql://…, mariadb://…, duckdb:PATH, sqlserver://…, oracle:thin:@//… or \
                 odbc:Driver={…};…, with or without jdbc: before it"
                .into());
        };
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "sqlite" => Scheme::Sqlite,
            "postgresql" | "postgres" => Scheme::Postgres,
            "mysql" => Scheme::MySql,
            "mariadb" => Scheme::MariaDb,
            "duckdb" => Scheme::DuckDb,
            "sqlserver" => Scheme::SqlServer,
            "oracle" => Scheme::Oracle,
            "odbc" => Scheme::Odbc,
            _ => {
                // What stands there may be anything, a password too.
                return Err(
                    "there is no driver for such a database; those there are: sqlite, postgresql, mysql, mariadb, duckdb, sqlserver, \
                     oracle, odbc"
                        .into(),
                );
            }
        };
        match scheme {
            Scheme::Sqlite | Scheme::DuckDb => return Self::file(scheme, rest),
            Scheme::SqlServer => return Self::sql_server(rest),
            Scheme::Oracle => return Self::oracle(rest),
            Scheme::Odbc => return Self::odbc(rest),
            _ => {}
        }
        let rest = rest.strip_prefix("//").ok_or("expected // and the host behind the name of the database system")?;
        let (place, query) = rest.split_once('?').map_or((rest, None), |(place, query)| (place, Some(query)));
        let (authority, database) = place.split_once('/').unwrap_or((place, ""));
        let (login, address) = authority.rsplit_once('@').map_or((None, authority), |(login, address)| (Some(login), address));
        let (host, port) = host_and_port(address)?;
        let mut url = Url { host, port, database: decode(database)?, ..Url::empty(scheme) };
        if let Some(login) = login {
            let (user, password) = login.split_once(':').map_or((login, None), |(user, password)| (user, Some(password)));
            url.user = Some(decode(user)?);
            url.password = password.map(decode).transpose()?.map(Secret::new);
        }
        url.take_parameters(query.unwrap_or(""))?;
        if url.database.contains('/') {
            return Err("the name of a database has no '/'".into());
        }
        url.ssl_mode()?;
        Ok(url)
    }

    fn file(scheme: Scheme, rest: &str) -> Result<Self, String> {
        let (path, query) = rest.split_once('?').map_or((rest, ""), |(path, query)| (path, query));
        // sqlite:///data/x.db and sqlite:/data/x.db are the same file.
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.is_empty() || path == ":memory:" || (scheme == Scheme::DuckDb && path.starts_with(":memory:")) {
            return Err("expected the path of a file (a database in memory would be gone with its connection)".into());
        }
        let mut url = Url { database: path.to_string(), ..Url::empty(scheme) };
        url.take_parameters(query)?;
        Ok(url)
    }

    /// `//host:port;name=value;…`, as the vendor's own driver has it; a value in braces may hold semicolons.
    fn sql_server(rest: &str) -> Result<Self, String> {
        let rest = rest.strip_prefix("//").ok_or("expected // and the host behind the name of the database system")?;
        let (address, properties) = rest.split_once(';').unwrap_or((rest, ""));
        let mut url = Url::empty(Scheme::SqlServer);
        let (mut server, mut port) = (address.to_string(), None);
        let mut rest = properties;
        loop {
            rest = rest.trim_start_matches([';', ' ']);
            if rest.is_empty() {
                break;
            }
            let (name, behind) = rest.split_once('=').ok_or("a property behind ';' has no '='; write name=value")?;
            let enclosed = behind.starts_with('{');
            let (value, behind) = property_value(behind)?;
            rest = behind;
            let name = name.trim();
            match name.to_ascii_lowercase().as_str() {
                "databasename" | "database" => url.database = value,
                "user" | "username" => url.user = Some(value),
                "password" => {
                    url.password = Some(Secret::new(value));
                    url.doubtful = if enclosed { url.doubtful } else { url.doubtful.min(url.parameters.len()) };
                }
                "servername" | "server" if address.is_empty() => server = value,
                "portnumber" | "port" => port = Some(value),
                _ => url.parameters.push((name.to_string(), value)),
            }
        }
        if server.contains('\\') || url.parameter("instance-name").is_some() {
            return Err("a named instance is reached by its port; write sqlserver://host:port".into());
        }
        if server.contains(['/', '?', '@', '&', '=']) {
            // What stands there may be a password.
            return Err("the host is written sqlserver://host:port, and all else behind it: ;databaseName=…;user=…;password=…".into());
        }
        if let Some(port) = port.filter(|_| !server.contains(':')) {
            server = format!("{server}:{port}");
        }
        (url.host, url.port) = host_and_port(&server)?;
        Ok(url)
    }

    /// A connection string, whose values stay as they stand there.
    fn odbc(rest: &str) -> Result<Self, String> {
        let taken = crate::odbc::string::take(rest)?;
        Ok(Url {
            database: crate::odbc::string::shown(&taken.attributes),
            user: taken.user,
            password: taken.password,
            parameters: taken.attributes,
            ..Url::empty(Scheme::Odbc)
        })
    }

    /// Takes what stands behind the question mark.
    fn take_parameters(&mut self, query: &str) -> Result<(), String> {
        for pair in query.split('&').filter(|p| !p.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode(name)?, decode(value)?);
            match name.to_ascii_lowercase().as_str() {
                "user" => self.user = Some(value),
                "password" => {
                    self.password = Some(Secret::new(value));
                    self.doubtful = self.doubtful.min(self.parameters.len());
                }
                _ => self.parameters.push((name, value)),
            }
        }
        Ok(())
    }

    /// A parameter as a message about its name shows it.
    pub fn named(&self, index: usize) -> String {
        let hint = match self.scheme {
            Scheme::SqlServer => "a password with ';' in it stands in braces: password={…}",
            _ => "an '&' in a password is written %26",
        };
        match self.parameters.get(index) {
            Some((name, _)) if index < self.doubtful => format!("'{name}'"),
            _ => format!("behind the password ({hint})"),
        }
    }

    /// A parameter as a message about its value shows it: `name=value`, or the name alone.
    pub fn shown(&self, name: &str) -> String {
        match self.find(name) {
            Some(index) if index < self.doubtful => format!("{name}={}", self.parameters[index].1),
            _ => name.to_string(),
        }
    }

    /// The value of a parameter, if it is there; names are compared without case, `-` and `_`.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.find(name).map(|index| self.parameters[index].1.as_str())
    }

    fn find(&self, name: &str) -> Option<usize> {
        let plain = |name: &str| name.chars().filter(|c| !matches!(c, '-' | '_')).collect::<String>().to_ascii_lowercase();
        let name = plain(name);
        self.parameters.iter().rposition(|(n, _)| plain(n) == name)
    }

    /// How far TLS goes; `prefer` if nothing is said.
    ///
    /// # Errors
    /// A mode that there is not.
    pub fn ssl_mode(&self) -> Result<SslMode, String> {
        match self.parameter("ssl-mode").map(str::to_ascii_lowercase).as_deref() {
            None | Some("prefer" | "preferred" | "allow") => Ok(SslMode::Prefer),
            Some("disable" | "disabled") => Ok(SslMode::Disable),
            Some("require" | "required" | "trust") => Ok(SslMode::Require),
            Some("verify-full" | "verify-identity" | "verify_identity") => Ok(SslMode::VerifyFull),
            Some(_) => Err(format!("{}: expected disable, prefer, require or verify-full", self.shown("ssl-mode"))),
        }
    }

    /// A file with the certificates of authorities that are trusted beside the system's (`ssl-ca`, or
    /// PostgreSQL's `sslrootcert`).
    pub fn ssl_ca(&self) -> Option<PathBuf> {
        self.parameter("ssl-ca").or_else(|| self.parameter("sslrootcert")).map(PathBuf::from)
    }
}

/// The place, for messages: host, port and database, nothing else.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::Sqlite => return write!(f, "sqlite:{}", self.database),
            Scheme::DuckDb => return write!(f, "duckdb:{}", self.database),
            Scheme::Odbc => return write!(f, "odbc:{}", self.database),
            Scheme::Postgres => "postgresql",
            Scheme::MySql => "mysql",
            Scheme::MariaDb => "mariadb",
            Scheme::SqlServer => "sqlserver",
            // A descriptor is long, and may name a wallet.
            Scheme::Oracle if self.host.is_empty() => return f.write_str("oracle:(DESCRIPTION=…)"),
            Scheme::Oracle => "oracle",
        };
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        write!(f, "{scheme}://{host}")?;
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        match self.scheme {
            Scheme::SqlServer if self.database.is_empty() => Ok(()),
            Scheme::SqlServer => write!(f, ";databaseName={}", self.database),
            Scheme::Oracle if self.parameter("sid").is_some() => write!(f, ":{}", self.database),
            _ => write!(f, "/{}", self.database),
        }
    }
}

/// The text behind a prefix, whose case does not matter.
fn strip<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    text.get(..prefix.len()).filter(|begin| begin.eq_ignore_ascii_case(prefix)).map(|_| &text[prefix.len()..])
}

fn host_and_port(address: &str) -> Result<(String, Option<u16>), String> {
    if address.contains(',') {
        return Err("expected one host, not a list".into());
    }
    let (host, port) = match address.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or("the ']' behind an IPv6 address is missing")?;
            (host.to_string(), port.strip_prefix(':'))
        }
        None => {
            let (host, port) = address.split_once(':').map_or((address, None), |(host, port)| (host, Some(port)));
            (decode(host)?, port)
        }
    };
    if host.is_empty() {
        return Err("the host is missing".into());
    }
    let port = port.map(|p| p.parse::<u16>().ok().filter(|p| *p > 0).ok_or("the port is no number from 1 to 65535")).transpose()?;
    Ok((host, port))
}

/// The value of a property and what stands behind it: up to a semicolon, or in braces, where `}}` is a brace.
fn property_value(text: &str) -> Result<(String, &str), String> {
    let Some(mut rest) = text.strip_prefix('{') else {
        let (value, behind) = text.split_once(';').unwrap_or((text, ""));
        return Ok((value.trim().to_string(), behind));
    };
    let mut value = String::new();
    loop {
        let (part, behind) = rest.split_once('}').ok_or("the '}' behind a value in braces is missing")?;
        value.push_str(part);
        match behind.strip_prefix('}') {
            Some(more) => {
                value.push('}');
                rest = more;
            }
            None if behind.trim_start().is_empty() || behind.trim_start().starts_with(';') => return Ok((value, behind)),
            None => return Err("behind the '}' of a value in braces comes ';'; a '}' in the value is written twice".into()),
        }
    }
}

/// Resolves percent signs.
fn decode(text: &str) -> Result<String, String> {
    if !text.contains('%') {
        return Ok(text.to_string());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        if *first != b'%' {
            bytes.push(*first);
            rest = behind;
            continue;
        }
        let digits = behind.get(..2).and_then(|d| std::str::from_utf8(d).ok()).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        let byte = digits.and_then(|d| u8::from_str_radix(d, 16).ok());
        bytes.push(byte.ok_or("a '%' has no two hexadecimal digits behind it; write it as %25")?);
        rest = &behind[2..];
    }
    String::from_utf8(bytes).map_err(|_| "percent-encoded bytes are no UTF-8".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    pub(super) fn check(text: &str, shown: &str, user: Option<&str>, password: Option<&str>) {
        let url = Url::parse(text).unwrap();
        assert_eq!(url.to_string(), shown);
        assert_eq!((url.user.as_deref(), url.password.as_ref().map(Secret::reveal)), (user, password));
        let debug = format!("{url:?}");
        assert!(password.is_none_or(|p| !debug.contains(p) && !shown.contains(p)), "{debug}");
    }

    #[test]
    fn urls_are_taken_apart() {
        check("jdbc:sqlite:/data/x.db", "sqlite:/data/x.db", None, None);
        check("sqlite:x.db", "sqlite:x.db", None, None);
        check("sqlite:///data/x.db?mode=ro", "sqlite:/data/x.db", None, None);
        check("jdbc:duckdb:/data/x.duckdb?threads=2", "duckdb:/data/x.duckdb", None, None);
        check("jdbc:postgresql://db/events", "postgresql://db/events", None, None);
        check("postgres://u:p%40ss@db:5433/events?ssl-mode=require", "postgresql://db:5433/events", Some("u"), Some("p@ss"));
        check("JDBC:mysql://[::1]:3306/a%20b?user=u&password=hidden", "mysql://[::1]:3306/a b", Some("u"), Some("hidden"));
        check("jdbc:mariadb://u@h", "mariadb://h/", Some("u"), None);
        check("jdbc:sqlserver://h:1433;databaseName=d;user=u", "sqlserver://h:1433;databaseName=d", Some("u"), None);
        check("sqlserver://h;user=u;password={a;b}}c}", "sqlserver://h", Some("u"), Some("a;b}c"));
        check("sqlserver://;serverName=h;portNumber=1;DATABASE=d", "sqlserver://h:1;databaseName=d", None, None);
        check("jdbc:odbc:DSN=events;UID=u;PWD={hid;den}", "odbc:DSN=events", Some("u"), Some("hid;den"));
    }

    #[test]
    fn properties_become_parameters() {
        let url = Url::parse("jdbc:sqlserver://h;encrypt=true; trustServerCertificate = true;").unwrap();
        assert_eq!((url.parameter("encrypt"), url.parameter("trust-server-certificate")), (Some("true"), Some("true")));
    }

    /// Of `password=a;b=c` without braces a message said "the property 'b' is not known".
    #[test]
    fn what_may_be_the_rest_of_a_password_is_not_shown() {
        #[track_caller]
        fn check(text: &str, named: &str, shown: &str) {
            let url = Url::parse(text).unwrap();
            assert!(url.named(0).contains(named), "{}", url.named(0));
            assert_eq!(url.shown("b"), shown);
        }
        check("sqlserver://h;password=a;b=c", "behind the password (a password with ';'", "b");
        check("sqlserver://h;b=c;password=a", "'b'", "b=c");
        check("sqlserver://h;password={a};b=c", "'b'", "b=c");
        check("postgresql://h/d?password=a&b=c", "behind the password (an '&'", "b");
        check("postgresql://u:a@h/d?b=c", "'b'", "b=c");
    }

    #[test]
    fn parameters_are_found_however_they_are_written() {
        let url = Url::parse("postgresql://h/d?sslMode=verify-full&ssl_ca=/ca.pem&a=1&a=2").unwrap();
        assert_eq!(url.ssl_mode(), Ok(SslMode::VerifyFull));
        assert_eq!((url.ssl_ca(), url.parameter("A")), (Some(PathBuf::from("/ca.pem")), Some("2")));
    }

    #[test]
    fn mistakes_are_named_without_the_password() {
        for text in [
            "hidden",
            "hidden://u:hidden@h/d",
            "postgresql:u:hidden@h",
            "postgresql://u:hidden@/d",
            "postgresql://u:hidden@h:0/d",
            "postgresql://u:hidden%@h/d",
            "postgresql://u:hidden@h/d/hidden",
            "postgresql://u:hidden@h/d?sslmode=maybe",
            "postgresql://u:hidden@a,b/d",
            "sqlserver://h\\hidden",
            "sqlserver://u:hidden@h",
            "sqlserver://hidden@h;databaseName=d",
            "sqlserver://h/d?user=u&password=hidden",
            "sqlserver://h;password={hidden",
            "sqlserver://h;hidden",
            "sqlserver://h;password={x}hidden;encrypt=true",
            "sqlserver://h;password=x;hidden",
            "postgresql://h/d?password=x&ssl-mode=hidden",
            "sqlserver://;password=hidden",
            "odbc:hidden",
            "odbc:PWD=hidden",
            "sqlite:",
            "sqlite::memory:",
            "duckdb::memory:",
            "duckdb::memory:name",
        ] {
            let error = Url::parse(text).unwrap_err();
            assert!(!error.contains("hidden"), "{text}: {error}");
        }
    }
}
