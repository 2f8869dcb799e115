//! What a MySQL or MariaDB server says, sorted by what can be done about it.
//!
//! Codes are those of the servers' own lists of messages. A code that is not listed here is
//! [`DbErrorKind::Fatal`]: repeating what nobody understands helps nobody.

use std::error::Error as _;
use std::io;

use ::mysql::{DriverError, Error};

use crate::driver::{DbError, DbErrorKind};

/// Name or password are wrong, or the account may not come in this way.
pub(super) const ACCESS_DENIED: u16 = 1045;
/// No such table.
pub(super) const NO_SUCH_TABLE: u16 = 1146;
/// Statement-based replication refuses writes at the isolation level READ COMMITTED.
pub(super) const STATEMENT_REPLICATION: u16 = 1665;

/// The longest piece of a value that a message shows, characters.
const SHOWN_CHARS_MAX: usize = 64;

/// `text`, cut after [`SHOWN_CHARS_MAX`] characters.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_string(),
    }
}

/// The server's code in an error, if it comes from the server.
pub(super) fn code(error: &Error) -> Option<u16> {
    match error {
        Error::MySqlError(e) => Some(e.code),
        _ => None,
    }
}

/// Whether the server refuses `LOAD DATA LOCAL INFILE`: not allowed (1148, MySQL to 8.0), loading local data is
/// disabled (3948, MySQL 8), not allowed because server or client has disabled it (4166, MariaDB).
pub(super) fn local_infile_is_off(error: &Error) -> bool {
    matches!(code(error), Some(1148 | 3948 | 4166))
}

/// Whether a file of the binary log ends within an event. The code is one for all that goes wrong with reading the log.
pub(super) fn is_cut_log(error: &Error) -> bool {
    matches!(error, Error::MySqlError(e) if e.code == 1236 && e.message.contains("truncated in the middle of event"))
}

/// Whether temporary tables cannot be made: no right to (1044, 1142, 1227), not within a transaction under global transaction
/// ids (1787), or not without a primary key (3750), which ours has none of, since keys may come several times.
pub(super) fn no_temporary_tables(error: &Error) -> bool {
    matches!(code(error), Some(1044 | 1142 | 1227 | 1787 | 3750))
}

/// An error while `doing` something, with its kind. Holds what the server said, which is never the password.
pub(super) fn db_error(doing: &str, error: &Error) -> DbError {
    match error {
        Error::MySqlError(e) => {
            let advice = advice(e.code).map(|text| format!("; {text}")).unwrap_or_default();
            let message = e.message.trim_end_matches('.');
            DbError::new(kind_of(e.code), format!("{doing}: {message} (error {}){advice}", e.code))
        }
        Error::IoError(e) => io_error(doing, e),
        // The client keeps the type of this error to itself: its cause and its text tell what it is.
        Error::CodecError(e) => match e.source().and_then(|cause| cause.downcast_ref::<io::Error>()) {
            Some(cause) => io_error(doing, cause),
            None if e.to_string().contains("max_allowed_packet") => {
                DbError::data(format!("{doing}: a row or statement is larger than the server's max_allowed_packet; raise it there"))
            }
            None => DbError::connection(format!("{doing}: {e}")),
        },
        Error::DriverError(e) => driver_error(doing, e),
        Error::TlsError(e) => DbError::fatal(format!("{doing}: TLS: {e}")),
        Error::UrlError(e) => DbError::fatal(format!("{doing}: {e}")),
        Error::FromValueError(_) | Error::FromRowError(_) => {
            DbError::fatal(format!("{doing}: the server answered with values of another type than asked for"))
        }
    }
}

fn io_error(doing: &str, error: &io::Error) -> DbError {
    match error.kind() {
        // rustls reports a certificate that it does not trust, and a peer that speaks no TLS, in this way.
        io::ErrorKind::InvalidData => {
            DbError::fatal(format!("{doing}: {error}; 'ssl-ca' names a file with an authority to trust, 'ssl-mode' what is checked"))
        }
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => DbError::connection(format!("{doing}: the server did not answer in time")),
        _ => DbError::connection(format!("{doing}: {error}")),
    }
}

fn driver_error(doing: &str, error: &DriverError) -> DbError {
    let text = match error {
        DriverError::CouldNotConnect(Some((address, why, _))) => return DbError::connection(format!("{doing}: {address}: {why}")),
        DriverError::ConnectTimeout | DriverError::Timeout => {
            return DbError::connection(format!("{doing}: the server did not answer in time"));
        }
        DriverError::CouldNotConnect(None)
        | DriverError::PacketOutOfSync
        | DriverError::UnexpectedPacket
        | DriverError::SetupError
        | DriverError::PoisonedPoolMutex => return DbError::connection(format!("{doing}: {error}")),
        DriverError::PacketTooLarge => return DbError::data(format!("{doing}: {error}")),
        DriverError::TlsNotSupported => "the server has no TLS; 'ssl-mode' = prefer does without it".to_string(),
        other => other.to_string(),
    };
    DbError::fatal(format!("{doing}: {text}"))
}

/// What can be done about the error with this code.
pub(super) fn kind_of(code: u16) -> DbErrorKind {
    match code {
        // Lock wait timeout, deadlock, record changed since the snapshot, table definition changed since then,
        // the statement's time is up, a certification conflict of a cluster, and what READ COMMITTED meets
        // under statement-based replication (the session has been set back by then).
        1205 | 1213 | 1020 | 1412 | 1614 | 1969 | 3024 | 3101 | STATEMENT_REPLICATION => DbErrorKind::Retry,
        // Too many connections (of all, of this user), out of threads, shutting down, network, not part of a
        // cluster's majority, killed, idle for too long.
        1040
        | 1203
        | 1226
        | 1041
        | 1135
        | 1053
        | 1077..=1079
        | 1080
        | 1152
        | 1156..=1161
        | 1184
        | 1047
        | 1317
        | 1927
        | 2002
        | 2003
        | 2006
        | 2013
        | 2055
        | 3169
        | 4031 => DbErrorKind::Connection,
        // NULL, duplicates (key, unique, of a list), foreign keys, ranges, truncation, wrong values, too long,
        // no default, row or packet too large, no partition, CHECK, JSON, a trigger's SIGNAL.
        1048
        | 1022
        | 1062
        | 1169
        | 1586
        | 1859
        | 1216
        | 1217
        | 1451
        | 1452
        | 1264
        | 1265
        | 1292
        | 1366
        | 1367
        | 1411
        | 1406
        | 1690
        | 1263
        | 1261
        | 1262
        | 1364
        | 1138
        | 1118
        | 1153
        | 1301
        | 1526
        | 1748
        | 3819
        | 4025
        | 3140..=3158
        | 1644
        | 1467 => DbErrorKind::Data,
        _ => DbErrorKind::Fatal,
    }
}

/// What to do about an error that is not plain.
fn advice(code: u16) -> Option<&'static str> {
    Some(match code {
        1044 | ACCESS_DENIED | 1698 => "see 'username' and 'password', and what the account may do",
        1049 => "create the database, or correct it in 'url'",
        NO_SUCH_TABLE => "create the table, or set 'sink.create-table' = 'true'",
        1054 => "the table's columns are not those of the job (was it changed meanwhile?)",
        1142 | 1143 | 1227 | 1370 => "grant the account this right",
        1290 | 1792 | 1836 | 3032 => "the server, or the transaction, may only read",
        1021 | 1114 | 1030 | 3 | 28 | 1026 => "is the server's disk full?",
        1040 | 1203 | 1226 => "fewer 'sink.connections' and 'lookup.connections', or more on the server (max_connections)",
        3159 => "the server wants TLS: 'ssl-mode' = require",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::mysql::MySqlError;

    #[test]
    fn codes_have_kinds() {
        use DbErrorKind::*;
        for (code, kind) in [
            (1213, Retry),
            (1205, Retry),
            (1062, Data),
            (1406, Data),
            (1264, Data),
            (1048, Data),
            (4025, Data),
            (1045, Fatal),
            (1146, Fatal),
            (1290, Fatal),
            (1114, Fatal),
            (1021, Fatal),
            (1064, Fatal),
            (2006, Connection),
            (2013, Connection),
            (1040, Connection),
            (1053, Connection),
            (1927, Connection),
        ] {
            assert_eq!(kind_of(code), kind, "{code}");
        }
    }

    #[test]
    fn messages_say_what_was_done_and_what_to_do() {
        let server = Error::MySqlError(MySqlError { state: "28000".into(), code: 1045, message: "Access denied for user 'u'@'h'".into() });
        let error = db_error("connecting to mysql://h/d", &server);
        assert_eq!(error.kind, DbErrorKind::Fatal);
        assert_eq!(
            error.message,
            "connecting to mysql://h/d: Access denied for user 'u'@'h' (error 1045); see 'username' and 'password', and what the account \
             may do"
        );
        let lost = db_error("committing", &Error::IoError(io::Error::new(io::ErrorKind::BrokenPipe, "server disconnected")));
        assert_eq!(lost, DbError::connection("committing: server disconnected"));
    }

    #[test]
    fn long_values_are_cut() {
        assert_eq!(shortened("short"), "short");
        assert_eq!(shortened(&"ä".repeat(70)), format!("{}…", "ä".repeat(64)));
    }
}
