//! What SQL Server says, sorted by what can be done about it.
//!
//! Numbers are those of the server's own list (`sys.messages`). One that is not listed here is
//! [`DbErrorKind::Fatal`]: repeating what nobody understands helps nobody.

use std::io;

use tiberius::error::Error;

use crate::driver::{DbError, DbErrorKind};

/// Characters of a value or a statement that a message shows.
const SHOWN_CHARS_MAX: usize = 80;
/// The severity from which on the server ends the connection.
const SEVERITY_OF_END: u8 = 20;
/// There is no table of this name.
pub(super) const NO_SUCH_TABLE: u32 = 208;

/// `text`, cut after [`SHOWN_CHARS_MAX`] characters.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_string(),
    }
}

/// What can be done about the error with this number.
pub(super) fn kind_of(number: u32) -> DbErrorKind {
    match number {
        // Out of locks, deadlock, lock timeout, out of memory for queries, update conflicts of snapshots and of tables
        // in memory, the table's definition changed meanwhile, or it was created by somebody else.
        1204 | 1205 | 1222 | 701 | 8645 | 8651 | 3952 | 3960 | 3961 | 41301 | 41302 | 41305 | 41325 | 41839 | 2714 => DbErrorKind::Retry,
        // Shutting down, paused, starting, recovering, being upgraded, killed; busy, moved or unavailable in a cloud; a
        // copy that takes no part now; too many sessions.
        6005 | 6006 | 17142 | 17187 | 17809 | 18401 | 596 | 921 | 922 | 976 | 978 | 983 | 988 | 4221 | 10928 | 10929 | 10936 | 40143
        | 40166 | 40197 | 40501 | 40540 | 40613 | 42108 | 42109 | 49918 | 49919 | 49920 => DbErrorKind::Connection,
        // NULL, CHECK and foreign keys, unique keys and indexes, truncation, ranges, conversions, the same row twice,
        // division by zero, rows that are too long, values that are none of the type, a trigger's own errors.
        515
        | 547
        | 2601
        | 2627
        | 2628
        | 8152
        | 220
        | 232
        | 241..=245
        | 248
        | 295
        | 296
        | 517
        | 8114
        | 8115
        | 8169
        | 8672
        | 8134
        | 511
        | 1946
        | 8023
        | 7339
        | 4863
        | 4864
        | 4867
        | 9803
        | 50000.. => DbErrorKind::Data,
        _ => DbErrorKind::Fatal,
    }
}

/// What to do about it, where that is not in the message.
fn advice(number: u32) -> Option<&'static str> {
    Some(match number {
        208 => "create the table, or let the job do it with 'sink.create-table' = 'true'",
        18456 => "check 'username' and 'password'",
        18452 | 18470 | 18486 | 18487 | 18488 => "the account cannot log in with a name and a password now",
        4060 | 911 => "check 'databaseName' in 'url', and whether the user may use it",
        229 | 230 | 262 | 297 | 1088 | 4834 => "the user lacks a right",
        544 | 8102 => "the database makes this column's values itself; leave it out of the job's table",
        271..=273 => "the database computes this column; leave it out of the job's table",
        3906 | 3908 | 978 => "the database is read-only",
        1105 | 9002 | 1101 => "the disk or the log of the server is full",
        334 => "a table with triggers cannot be written in this way",
        4891 | 4816 => "the table was changed meanwhile",
        _ => return None,
    })
}

/// An error that the server has sent.
pub(super) fn server_error(doing: &str, number: u32, severity: u8, message: &str) -> DbError {
    let kind = match kind_of(number) {
        DbErrorKind::Fatal if severity >= SEVERITY_OF_END => DbErrorKind::Connection,
        kind => kind,
    };
    let advice = advice(number).map(|text| format!("; {text}")).unwrap_or_default();
    let message = message.trim_end().trim_end_matches('.').replace(['\r', '\n'], " ");
    DbError::new(kind, format!("{doing}: {message} (error {number}){advice}"))
}

/// An error while `doing` something, with its kind. Holds what the server said, which is never the password.
pub(super) fn db_error(doing: &str, error: &Error) -> DbError {
    match error {
        Error::Server(e) => server_error(doing, e.code(), e.class(), e.message()),
        Error::Io { message, kind } => match kind {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                DbError::connection(format!("{doing}: the server did not answer in time"))
            }
            _ => DbError::connection(format!("{doing}: {message}")),
        },
        Error::Utf8 | Error::Utf16 | Error::Encoding(_) | Error::Conversion(_) => {
            DbError::fatal(format!("{doing}: a value that the server sent cannot be read: {error}"))
        }
        Error::BulkInput(why) => DbError::fatal(format!("{doing}: {why}")),
        // What was understood by neither side is over with the connection.
        other => DbError::fatal(format!("{doing}: {other}")),
    }
}

/// An error of the network or of encryption.
pub(super) fn io_error(doing: &str, error: &io::Error) -> DbError {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => DbError::connection(format!("{doing}: the server did not answer in time")),
        // rustls reports a certificate that it does not trust, and a peer that speaks no TLS, in this way.
        io::ErrorKind::InvalidData => DbError::fatal(format!(
            "{doing}: {error}; ssl-ca in 'url' names a file with an authority to trust, hostNameInCertificate the name to expect, and \
             trustServerCertificate=true takes any certificate"
        )),
        // Whoever answers there speaks another protocol.
        io::ErrorKind::InvalidInput => DbError::fatal(format!("{doing}: {error}")),
        _ => DbError::connection(format!("{doing}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_sorted() {
        #[track_caller]
        fn check(numbers: &[u32], expect: DbErrorKind) {
            for number in numbers {
                assert_eq!(kind_of(*number), expect, "{number}");
            }
        }
        check(&[1205, 1222, 3960, 2714], DbErrorKind::Retry);
        check(&[6005, 921, 18401, 40613], DbErrorKind::Connection);
        check(&[515, 547, 2601, 2627, 2628, 8152, 8115, 245, 50000, 50001], DbErrorKind::Data);
        check(&[207, 208, 229, 544, 1105, 3906, 4060, 9002, 18456], DbErrorKind::Fatal);
    }

    #[test]
    fn errors_say_what_to_do() {
        let error = server_error("logging in", 18456, 14, "Login failed for user 'u'.");
        assert_eq!(error, DbError::fatal("logging in: Login failed for user 'u' (error 18456); check 'username' and 'password'"));
        assert_eq!(server_error("x", 9999, 21, "y").kind, DbErrorKind::Connection);
        let late = Error::Io { kind: io::ErrorKind::TimedOut, message: "late".into() };
        assert_eq!(db_error("x", &late), DbError::connection("x: the server did not answer in time"));
    }
}
