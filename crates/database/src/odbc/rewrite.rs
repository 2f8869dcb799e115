//! Statements as the crate writes them, `SELECT "a" FROM "t" WHERE "b" > ?2`, into the database's: with its quotes, and
//! parameters by position, which is all that ODBC has.

use crate::driver::DbError;

/// The quotes of a database, by what its driver says (`SQL_IDENTIFIER_QUOTE_CHAR`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quotes {
    /// Before and behind a name; the second is doubled within one.
    Pair(char, char),
    /// There are none.
    None,
}

impl Quotes {
    /// Of the driver's word.
    pub fn of(said: &str) -> Self {
        match said.chars().next() {
            Some('[') => Quotes::Pair('[', ']'),
            Some(' ') => Quotes::None,
            Some(mark) => Quotes::Pair(mark, mark),
            // It said nothing: the standard.
            None => Quotes::Pair('"', '"'),
        }
    }

    /// A name in quotes.
    ///
    /// # Errors
    /// There are no quotes, and the name needs them.
    pub fn quote(self, name: &str) -> Result<String, DbError> {
        match self {
            Quotes::Pair(open, close) => Ok(format!("{open}{}{close}", name.replace(close, &format!("{close}{close}")))),
            Quotes::None => {
                let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') && !name.starts_with(|c: char| c.is_ascii_digit());
                if plain && !name.is_empty() {
                    return Ok(name.to_string());
                }
                Err(DbError::fatal(format!("the name '{name}' needs quotes, which this database's driver has none of")))
            }
        }
    }
}

/// A statement for the driver, and which parameter, from 0, each `?` stands for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rewritten {
    pub sql: String,
    pub parameters: Vec<usize>,
}

/// Rewrites a statement. `?` without a number is the one behind the last.
///
/// # Errors
/// As [`Quotes::quote`].
pub(super) fn rewrite(sql: &str, quotes: Quotes) -> Result<Rewritten, DbError> {
    let mut out = Rewritten { sql: String::with_capacity(sql.len()), parameters: Vec::new() };
    let mut rest = sql;
    while let Some(at) = rest.find(['"', '\'', '?']) {
        let (before, behind) = rest.split_at(at);
        out.sql.push_str(before);
        let mark = &behind[..1];
        rest = &behind[1..];
        if mark == "?" {
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let next = out.parameters.last().map_or(0, |last| last + 1);
            let number = rest[..digits].parse::<usize>().map_or(next, |number| number.saturating_sub(1));
            out.sql.push('?');
            out.parameters.push(number);
            rest = &rest[digits..];
            continue;
        }
        // Up to the mark that is not doubled.
        let mut inner = String::new();
        loop {
            let (part, behind) = rest.split_once(mark).unwrap_or((rest, ""));
            inner.push_str(part);
            rest = behind;
            match rest.strip_prefix(mark) {
                Some(more) => {
                    inner.push_str(mark);
                    rest = more;
                }
                None => break,
            }
        }
        if mark == "'" {
            out.sql.push_str(&format!("'{}'", inner.replace('\'', "''")));
        } else {
            out.sql.push_str(&quotes.quote(&inner)?);
        }
    }
    out.sql.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(sql: &str, quotes: Quotes, expect: &str, parameters: &[usize]) {
        let rewritten = rewrite(sql, quotes).unwrap();
        assert_eq!((rewritten.sql.as_str(), rewritten.parameters.as_slice()), (expect, parameters));
    }

    #[test]
    fn names_get_the_databases_quotes() {
        let sql = "SELECT \"a\"\"b\", \"c`d]\" FROM \"s\".\"t\" WHERE x = 'it''s \"x\" ?'";
        check(sql, Quotes::of("\""), sql, &[]);
        check(sql, Quotes::of("`"), "SELECT `a\"b`, `c``d]` FROM `s`.`t` WHERE x = 'it''s \"x\" ?'", &[]);
        check(sql, Quotes::of("["), "SELECT [a\"b], [c`d]]] FROM [s].[t] WHERE x = 'it''s \"x\" ?'", &[]);
        check("SELECT \"a\" FROM \"t\"", Quotes::of(" "), "SELECT a FROM t", &[]);
        assert!(rewrite("SELECT \"a b\"", Quotes::None).unwrap_err().message.contains("'a b'"));
    }

    #[test]
    fn parameters_stand_where_they_are_used() {
        check("a >= ?1 AND (a > ?1 OR (a = ?1 AND b > ?2))", Quotes::None, "a >= ? AND (a > ? OR (a = ? AND b > ?))", &[0, 0, 0, 1]);
        check("VALUES (?, ?, ?)", Quotes::None, "VALUES (?, ?, ?)", &[0, 1, 2]);
    }
}
