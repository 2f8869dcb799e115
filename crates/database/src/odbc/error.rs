//! What drivers say, sorted by what can be done about it.
//!
//! SQLSTATEs are those of the standard and of ODBC's reference (appendix A), and PostgreSQL's own; where a driver has
//! nothing better than `HY000`, the database's number is asked. What is not listed here is
//! [`DbErrorKind::Fatal`]: repeating what nobody understands helps nobody.

use tidemill_format::options::Secret;

use super::ffi::{Failure, Record};
use super::system::System;
use crate::driver::{DbError, DbErrorKind};

/// Records of an error that a message shows.
const RECORDS_SHOWN: usize = 2;
/// Characters of a statement that a message shows.
const SHOWN_CHARS_MAX: usize = 80;
/// What PostgreSQL's driver puts behind every message.
const NOISE: &[&str] = &["Error while executing the query", "No query has been executed with that handle"];
/// What PostgreSQL says when it refuses a connection that it may take later; libpq tells no state then.
const PASSING: &[&str] =
    &["starting up", "shutting down", "too many clients", "remaining connection slots", "recovery mode", "not yet accepting"];

/// `text`, cut after [`SHOWN_CHARS_MAX`] characters.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_string(),
    }
}

/// The records that say what is wrong: warnings come with them.
fn told(failure: &Failure) -> Vec<&Record> {
    let errors: Vec<&Record> = failure.0.iter().filter(|r| !r.state.starts_with("01") && !r.state.starts_with("00")).collect();
    if errors.is_empty() { failure.0.iter().collect() } else { errors }
}

/// What can be done about a failure.
pub(super) fn kind_of(failure: &Failure, system: System) -> DbErrorKind {
    told(failure).first().map_or(DbErrorKind::Fatal, |record| record_kind(record, system))
}

fn record_kind(record: &Record, system: System) -> DbErrorKind {
    use DbErrorKind::*;
    let (state, native) = (record.state.as_str(), record.native);
    // Numbers come first: their drivers' states are coarse.
    match (system, native) {
        // Lock wait timeout, deadlock, the record or table changed since the snapshot, the statement's time is up.
        (System::MySql, 1205 | 1213 | 1020 | 1412 | 1614 | 1969 | 3024) => return Retry,
        // Nobody there, gone, lost; shutting down, too many connections, killed.
        (System::MySql, 2002 | 2003 | 2006 | 2013 | 2055 | 1040 | 1203 | 1226 | 1053 | 1317 | 1927 | 4031) => return Connection,
        // No default, wrong value, CHECK, truncation, a trigger's SIGNAL.
        (System::MySql, 1364 | 1366 | 4025 | 3819 | 1265 | 1264 | 1406 | 1644) => return Data,
        // Deadlock, lock timeout, conflicts of snapshots.
        (System::SqlServer, 1205 | 1222 | 3960 | 41302 | 41305 | 41325) => return Retry,
        (System::SqlServer, 2628 | 8152 | 8114 | 8115 | 220 | 50000..) => return Data,
        // Deadlock, serialization, busy, wait timeout.
        (System::Oracle, 60 | 8177 | 54 | 30006) => return Retry,
        // No listener or service, starting, stopping, killed, lost.
        (System::Oracle, 28 | 1012 | 1033 | 1034 | 1089 | 1090 | 1092 | 3113 | 3114 | 3135 | 12514 | 12528 | 12537 | 12541 | 12543) => {
            return Connection;
        }
        // Unique, NULL, foreign keys, CHECK, too long, too large, no number, no date.
        (System::Oracle, 1 | 1400 | 1407 | 2290 | 2291 | 2292 | 12899 | 1401 | 1438 | 1426 | 1722 | 1847 | 1861) => return Data,
        // Busy, locked; a constraint.
        (System::Sqlite, 5 | 6) => return Retry,
        (System::Sqlite, 19) => return Data,
        _ => {}
    }
    match state {
        "08001" if record.message.contains("FATAL") && !PASSING.iter().any(|text| record.message.contains(text)) => Fatal,
        // Shut down, starting up, out of connections, cut off for idling; a connection's time is up; the outcome is unknown.
        "57P01" | "57P02" | "57P03" | "57P05" | "25P03" | "25P04" | "53300" | "40003" | "HYT01" => Connection,
        // Lock timeouts, cancelled statements; what failed before; a statement's time is up; cached plans.
        "55P03" | "55006" | "57014" | "57033" | "53200" | "25P02" | "HYT00" => Retry,
        "0A000" if record.message.contains("cached plan") => Retry,
        "40002" | "21000" | "54000" | "P0001" | "P0004" => Data,
        _ => match state.get(..2) {
            Some("08") => Connection,
            Some("40") => Retry,
            Some("22" | "23" | "44") => Data,
            _ => Fatal,
        },
    }
}

/// Whether a table that is to be looked at is not there.
pub(super) fn no_such_table(failure: &Failure) -> bool {
    told(failure).iter().any(|record| {
        matches!(record.state.as_str(), "42S02" | "42P01" | "S0002")
            || matches!(record.native, 942 | -204) && record.state != "08001"
            || record.message.contains("no such table")
    })
}

/// Whether a table that is to be created is there.
pub(super) fn table_is_there(failure: &Failure) -> bool {
    told(failure).iter().any(|record| {
        matches!(record.state.as_str(), "42S01" | "42P07" | "S0001" | "42710")
            || matches!(record.native, 955 | 2714 | -601)
            || record.message.contains("already exists")
    })
}

/// What to do about it, where that is not in the message.
fn advice(record: &Record) -> &'static str {
    match record.state.as_str() {
        "IM002" => "a driver is named by Driver={…} in 'url', a data source by DSN=…; `odbcinst -q -d` and `-q -s` list those there are",
        "IM003" | "01000" if record.message.contains("open lib") => {
            "the driver is not installed (Debian: odbc-postgresql, odbc-mariadb, tdsodbc …); `odbcinst -q -d` lists those there are"
        }
        "28000" | "28P01" => "check 'username' and 'password'",
        "42S02" | "42P01" => "create the table, or let the job do it with 'sink.create-table' = 'true'",
        "42P10" => "an upsert needs a primary key or unique constraint on exactly the columns of the job's PRIMARY KEY",
        "42501" => "the user lacks a right",
        "25006" => "the database or the user is read-only",
        "53100" => "the server's disk is full",
        "53300" => "raise the connections of the server, or use fewer with 'sink.connections'",
        _ => "",
    }
}

/// What was said, in a line.
fn describe(failure: &Failure) -> String {
    let mut parts: Vec<String> = Vec::new();
    for record in told(failure).into_iter().take(RECORDS_SHOWN) {
        let lines = record.message.lines().map(|line| line.trim().trim_end_matches(';'));
        let text: Vec<&str> = lines.filter(|line| !line.is_empty() && !NOISE.contains(line)).collect();
        let native = if matches!(record.native, -1..=1) { String::new() } else { format!(", error {}", record.native) };
        let advice = Some(advice(record)).filter(|a| !a.is_empty()).map(|a| format!("; {a}")).unwrap_or_default();
        parts.push(format!("{} (SQLSTATE {}{native}){advice}", text.join("; ").trim_end_matches('.'), record.state));
    }
    parts.join("; ")
}

/// A failure while `doing` something, with its kind.
pub(super) fn db_error(doing: &str, failure: &Failure, system: System) -> DbError {
    DbError::new(kind_of(failure, system), format!("{doing}: {}", describe(failure)))
}

/// The same without the password, should a driver repeat it.
pub(super) fn without(error: DbError, password: Option<&Secret>) -> DbError {
    match password.map(Secret::reveal).filter(|password| !password.is_empty() && error.message.contains(password)) {
        Some(password) => DbError { kind: error.kind, message: error.message.replace(password, "***") },
        None => error,
    }
}

#[cfg(test)]
mod tests;
