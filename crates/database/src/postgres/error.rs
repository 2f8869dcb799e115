//! PostgreSQL's errors, sorted by what can be done about them.
//!
//! The codes are those of appendix A of PostgreSQL's manual ("PostgreSQL Error Codes").

use std::error::Error as _;
use std::io;

use tokio_postgres::Error;
use tokio_postgres::error::DbError as Refusal;

use crate::driver::{DbError, DbErrorKind};

/// What tells the kind of a client's error, which the client does not say otherwise.
const BROKEN: &[&str] = &[
    "error communicating with the server",
    "connection closed",
    "error connecting to server",
    "timeout waiting for server",
    "unexpected message from server",
];

/// The kind of an error with this code.
pub(super) fn kind(code: &str, message: &str) -> DbErrorKind {
    match code {
        // A statement in a transaction that has failed already: the first error tells more.
        "25P02" | "40001" | "40P01" | "40002" | "55P03" | "55006" | "57014" | "72000" | "53200" => DbErrorKind::Retry,
        // A prepared statement whose table has changed; values in the form of a column that has another type by now.
        "0A000" if message.starts_with("cached plan") => DbErrorKind::Retry,
        "22P03" => DbErrorKind::Retry,
        // Shut down, starting up, out of connections, cut off for idling; the outcome is unknown.
        "57P01" | "57P02" | "57P03" | "57P05" | "25P03" | "25P04" | "53300" | "40003" => DbErrorKind::Connection,
        "21000" | "54000" | "P0001" | "P0004" => DbErrorKind::Data,
        _ => match code.get(..2) {
            Some("08") => DbErrorKind::Connection,
            Some("22" | "23" | "44") => DbErrorKind::Data,
            _ => DbErrorKind::Fatal,
        },
    }
}

/// What to do about it, where that is not in the message.
fn advice(code: &str) -> &'static str {
    match code {
        "42P10" => "an upsert needs a primary key or unique constraint on exactly the columns of the job's PRIMARY KEY",
        "42P01" => "create the table, or let the job do it with 'sink.create-table' = 'true'",
        "42501" => "the user lacks a right",
        "25006" => "the server or the user is read-only",
        "53100" => "the server's disk is full",
        "53300" => "raise max_connections of the server, or use fewer with 'sink.connections'",
        "28P01" => "check 'username' and 'password'",
        "28000" => "check 'username', and whom the server lets in (pg_hba.conf), perhaps only with TLS ('ssl-mode')",
        "3D000" => "check the name of the database in 'url'",
        "428C9" => "the database makes this column's values itself; leave it out of the job's table",
        "26000" => "a pooler that hands connections on between statements cannot be used; go to the server itself",
        _ => "",
    }
}

/// What the server said, in a line.
fn describe(refusal: &Refusal) -> String {
    let mut text = format!("{} (SQLSTATE {})", refusal.message(), refusal.code().code());
    for more in [refusal.detail(), refusal.hint(), refusal.where_()].into_iter().flatten() {
        text.push_str("; ");
        text.push_str(&more.replace('\n', " "));
    }
    let advice = advice(refusal.code().code());
    if !advice.is_empty() {
        text.push_str("; ");
        text.push_str(advice);
    }
    text
}

/// An error of the client, in our words. `place` says which database.
pub(super) fn classify(error: &Error, place: &str) -> DbError {
    if let Some(refusal) = error.as_db_error() {
        return DbError::new(kind(refusal.code().code(), refusal.message()), describe(refusal)).at(place);
    }
    let mut text = error.to_string();
    let broken = BROKEN.contains(&text.as_str());
    let mut cause = error.source();
    // A certificate that does not fit will not fit the next time; a handshake that was cut off may.
    let mut cut_off = false;
    while let Some(inner) = cause {
        if let Some(io) = inner.downcast_ref::<io::Error>() {
            cut_off |= !matches!(io.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::Other);
        }
        let said = inner.to_string();
        if !text.ends_with(&said) {
            text = format!("{text}: {said}");
        }
        cause = inner.source();
    }
    let kind = if broken || cut_off { DbErrorKind::Connection } else { DbErrorKind::Fatal };
    DbError::new(kind, text).at(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(codes: &[&str], expect: DbErrorKind) {
        for code in codes {
            assert_eq!(kind(code, ""), expect, "{code}");
        }
    }

    #[test]
    fn codes_are_sorted() {
        check(&["08006", "08001", "57P01", "57P03", "53300"], DbErrorKind::Connection);
        check(&["40001", "40P01", "55P03", "57014", "25P02", "22P03"], DbErrorKind::Retry);
        check(&["23505", "23502", "22001", "22003", "22021", "22P05", "44000", "54000", "P0001"], DbErrorKind::Data);
        check(&["28P01", "3D000", "42P01", "42501", "25006", "53100", "42P10", "0A000", "XX000", ""], DbErrorKind::Fatal);
        assert_eq!(kind("0A000", "cached plan must not change result type"), DbErrorKind::Retry);
    }
}
