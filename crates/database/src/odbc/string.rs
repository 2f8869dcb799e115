//! Connection strings, `Driver={PostgreSQL Unicode};Server=db;Database=events`: taken apart, and put together again with the
//! login. A value in braces may hold semicolons; `}}` is a brace there.

use tidemill_format::options::Secret;

/// Keywords whose values may be shown: they say where the database is. Of all others nobody knows whether they are
/// secrets.
const SHOWN: &[&str] = &["driver", "dsn", "filedsn", "server", "servername", "host", "hostname", "port", "database", "dbname", "db", "dbq"];

/// A connection string without the login.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Keywords and values, these as they stand there, braces included.
    pub attributes: Vec<(String, String)>,
    pub user: Option<String>,
    pub password: Option<Secret>,
}

/// Takes a connection string apart.
///
/// # Errors
/// Says what is wrong, without showing anything of it.
pub(crate) fn take(text: &str) -> Result<Taken, String> {
    let mut taken = Taken { attributes: Vec::new(), user: None, password: None };
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([';', ' ']);
        if rest.is_empty() {
            break;
        }
        let (keyword, behind) = rest.split_once('=').ok_or("a part of the connection string has no '='; write Keyword=value;…")?;
        let (value, behind) = value(behind.trim_start())?;
        rest = behind;
        let keyword = keyword.trim();
        match keyword.to_ascii_lowercase().as_str() {
            "uid" | "user" | "username" => taken.user = Some(plain(value)),
            "pwd" | "password" => taken.password = Some(Secret::new(plain(value))),
            _ => taken.attributes.push((keyword.to_string(), value.to_string())),
        }
    }
    let names = |name: &str| taken.attributes.iter().any(|(keyword, value)| keyword.eq_ignore_ascii_case(name) && !value.is_empty());
    if !["driver", "dsn", "filedsn"].iter().any(|name| names(name)) {
        return Err("expected a connection string: odbc:Driver={name of the driver};Server=…;Database=… or odbc:DSN=name".into());
    }
    Ok(taken)
}

/// A value as it stands there, and what follows it.
fn value(text: &str) -> Result<(&str, &str), String> {
    if !text.starts_with('{') {
        let (value, behind) = text.split_once(';').unwrap_or((text, ""));
        return Ok((value.trim_end(), behind));
    }
    let bytes = text.as_bytes();
    let mut at = 1;
    loop {
        match bytes.get(at) {
            None => return Err("the '}' behind a value in braces is missing".into()),
            Some(b'}') if bytes.get(at + 1) == Some(&b'}') => at += 2,
            Some(b'}') => break,
            Some(_) => at += 1,
        }
    }
    let (value, behind) = text.split_at(at + 1);
    let behind = behind.trim_start();
    match behind.strip_prefix(';') {
        Some(behind) => Ok((value, behind)),
        None if behind.is_empty() => Ok((value, "")),
        None => Err("expected ';' behind a value in braces".into()),
    }
}

/// A value without its braces.
pub(super) fn plain(value: &str) -> String {
    match value.strip_prefix('{').and_then(|inner| inner.strip_suffix('}')) {
        Some(inner) => inner.replace("}}", "}"),
        None => value.to_string(),
    }
}

/// A value as it stands in a connection string.
fn braced(value: &str) -> String {
    let special = value.contains(|c: char| "[]{}(),;?*=!@".contains(c)) || value.trim() != value;
    if special { format!("{{{}}}", value.replace('}', "}}")) } else { value.to_string() }
}

/// The connection string of attributes and login.
pub(super) fn whole(attributes: &[(String, String)], user: Option<&str>, password: Option<&Secret>) -> String {
    let mut text = String::new();
    let mut add = |keyword: &str, value: &str| {
        text.push_str(keyword);
        text.push('=');
        text.push_str(value);
        text.push(';');
    };
    attributes.iter().for_each(|(keyword, value)| add(keyword, value));
    if let Some(user) = user {
        add("UID", &braced(user));
    }
    if let Some(password) = password {
        add("PWD", &braced(password.reveal()));
    }
    text
}

/// The value of an attribute, without braces.
pub(super) fn attribute(attributes: &[(String, String)], name: &str) -> Option<String> {
    attributes.iter().find(|(keyword, _)| keyword.eq_ignore_ascii_case(name)).map(|(_, value)| plain(value))
}

/// What may be shown of attributes.
pub(crate) fn shown(attributes: &[(String, String)]) -> String {
    let known = |keyword: &str| SHOWN.iter().any(|name| name.eq_ignore_ascii_case(keyword));
    let parts: Vec<String> = attributes.iter().filter(|(k, _)| known(k)).map(|(keyword, value)| format!("{keyword}={value}")).collect();
    parts.join(";")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_taken_apart_and_put_together() {
        let taken = take("Driver={PostgreSQL Unicode}; Server = db;Port=5432;UID=u;Pwd={a;b}}c};SSLKey=hidden").unwrap();
        assert_eq!(taken.user.as_deref(), Some("u"));
        assert_eq!(taken.password.as_ref().map(Secret::reveal), Some("a;b}c"));
        assert_eq!(shown(&taken.attributes), "Driver={PostgreSQL Unicode};Server=db;Port=5432");
        assert_eq!(attribute(&taken.attributes, "driver").as_deref(), Some("PostgreSQL Unicode"));
        let whole = whole(&taken.attributes, taken.user.as_deref(), taken.password.as_ref());
        assert_eq!(whole, "Driver={PostgreSQL Unicode};Server=db;Port=5432;SSLKey=hidden;UID=u;PWD={a;b}}c};");
        assert_eq!(take(&whole).unwrap(), taken);
    }

    #[test]
    fn a_source_needs_nothing_else() {
        let taken = take("DSN=events").unwrap();
        assert_eq!(whole(&taken.attributes, None, None), "DSN=events;");
        assert_eq!(whole(&taken.attributes, Some("a b"), Some(&Secret::new("x=y"))), "DSN=events;UID=a b;PWD={x=y};");
    }

    #[test]
    fn mistakes_are_named_without_the_string() {
        for text in ["", "hidden", "Server=hidden", "Driver=;PWD=hidden", "Driver={hidden", "Driver={a}hidden;", "Driver={a};PWD={hidden"] {
            let error = take(text).unwrap_err();
            assert!(!error.contains("hidden"), "{text}: {error}");
        }
    }
}
