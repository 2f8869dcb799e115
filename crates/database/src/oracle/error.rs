//! What Oracle says, sorted by what can be done about it.
//!
//! Numbers are those of the vendor's list of `ORA-` messages. One that is not listed here is [`DbErrorKind::Fatal`]:
//! repeating what nobody understands helps nobody.

use oracledb::{Error, ErrorKind};

use crate::driver::{DbError, DbErrorKind};

/// Characters of a value or a statement that a message shows.
const SHOWN_CHARS_MAX: usize = 80;
/// There is no table or view of this name, or none that the user may see.
pub(super) const NO_SUCH_TABLE: usize = 942;

/// `text`, cut after [`SHOWN_CHARS_MAX`] characters.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_string(),
    }
}

/// What can be done about the error with this number.
pub(super) fn kind_of(number: usize) -> DbErrorKind {
    match number {
        // A resource that others hold, deadlock, serialization, a snapshot too old, a package or an object that was changed
        // or is being changed, a lock on another database's row, a lock that was waited for long enough, a call that was
        // interrupted.
        51 | 54 | 60 | 1013 | 1555 | 2049 | 4020 | 4021 | 4061 | 4068 | 8176 | 8177 | 12860 | 14403 | 30006 => DbErrorKind::Retry,
        // Too many sessions or processes, killed, not logged on, starting, shutting down, not there, ended while idle, the
        // end of the file on the channel, and what a listener says that does not reach its database.
        18
        | 20
        | 28
        | 1012
        | 1033
        | 1034
        | 1041
        | 1089
        | 1090
        | 1092
        | 2391
        | 2396
        | 2399
        | 3113
        | 3114
        | 3135
        | 3136
        | 12500..=12609
        | 25402
        | 25408
        | 45 => DbErrorKind::Connection,
        // Unique keys, NULL, lengths, ranges, conversions of numbers and dates, CHECK and foreign keys, a row that no
        // partition takes or that would change its own, values of JSON, what triggers raise.
        1 | 1400 | 1401 | 1407 | 1426 | 1438 | 1461 | 1465 | 1476 | 1483 | 1489 | 1722 => DbErrorKind::Data,
        1801..=1899 => DbErrorKind::Data,
        2290 | 2291 | 2292 | 6502 | 12899 | 14400 | 14402 | 22835 | 40441 | 40478 | 40587 => DbErrorKind::Data,
        20000..=20999 => DbErrorKind::Data,
        _ => DbErrorKind::Fatal,
    }
}

/// What to do about it, where that is not in the message.
fn advice(number: usize) -> Option<&'static str> {
    Some(match number {
        942 => "create the table, or let the job do it with 'sink.create-table' = 'true'; the user needs the right to see it",
        904 => {
            "names of tables and columns are in upper case there unless they were created in quotes; for such names=exact in 'url' keeps \
             them as they are written"
        }
        932 => "a CLOB or BLOB is not compared; make the column VARCHAR2 or RAW",
        1017 | 28000 | 28001 => "check 'username' and 'password', and whether the account is open",
        1031 | 1045 | 1950 | 41900 => "the user lacks a right",
        1536 | 1652..=1655 | 1658 | 1688 | 1691 | 1692 | 30036 => "the disk, or the user's share of it, is full",
        12505 => "check the SID in 'url'",
        12514 => "check the service in 'url'; a database that has just been started takes a minute to be known",
        16000 | 1456 => "the database is read-only",
        32795 | 54013 | 54017 => "the database makes this column's values itself; leave it out of the job's table",
        _ => return None,
    })
}

/// An error that the server, or its listener, has sent.
pub(super) fn server_error(doing: &str, number: usize, message: &str) -> DbError {
    let advice = advice(number).map(|text| format!("; {text}")).unwrap_or_default();
    // From version 23 on a line with an address for help stands behind it.
    let lines: Vec<&str> = message.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("Help:")).collect();
    DbError::new(kind_of(number), format!("{doing}: {}{advice}", lines.join(" ")))
}

/// An error while `doing` something, with its kind. Holds what the server said, which is never the password.
pub(super) fn db_error(doing: &str, error: &Error) -> DbError {
    match error.kind() {
        ErrorKind::DbError(e) => server_error(doing, e.code(), e.message()),
        ErrorKind::InvalidServiceName(_, service, ..) => {
            server_error(doing, 12514, &format!("ORA-12514: the listener does not know the service '{service}'"))
        }
        ErrorKind::InvalidSid(_, sid, ..) => server_error(doing, 12505, &format!("ORA-12505: the listener does not know the SID '{sid}'")),
        ErrorKind::ListenerRefusedConnection(_, _, _, number) => {
            server_error(doing, *number, &format!("ORA-{number:05}: the listener refuses the connection"))
        }
        ErrorKind::CallTimeoutExceeded => DbError::connection(format!("{doing}: the server did not answer in time")),
        ErrorKind::DeadConnection | ErrorKind::NotConnected | ErrorKind::UnableToRecover | ErrorKind::OutOfData => {
            DbError::connection(format!("{doing}: the server has closed the connection"))
        }
        ErrorKind::TlsOperation => DbError::fatal(format!(
            "{doing}: {error}; wallet-location in 'url' names a directory whose ewallet.pem has the authority to trust"
        )),
        ErrorKind::ServerVersionNotSupported => DbError::fatal(format!("{doing}: the server is older than version 12.1")),
        ErrorKind::StreamOperation | ErrorKind::LockPoisoned | ErrorKind::UnexpectedRefuse(_) => {
            DbError::connection(format!("{doing}: {error}"))
        }
        _ => DbError::fatal(format!("{doing}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_sorted() {
        #[track_caller]
        fn check(numbers: &[usize], expect: DbErrorKind) {
            for number in numbers {
                assert_eq!(kind_of(*number), expect, "{number}");
            }
        }
        check(&[54, 60, 1013, 1555, 8177, 30006], DbErrorKind::Retry);
        check(&[28, 1033, 1034, 3113, 3135, 12514, 12528, 12541], DbErrorKind::Connection);
        check(&[1, 1400, 1438, 1461, 1722, 1861, 2290, 2291, 12899, 14400, 20001], DbErrorKind::Data);
        check(&[904, 932, 942, 1017, 1031, 1653, 16000, 28000, 32795], DbErrorKind::Fatal);
    }

    #[test]
    fn errors_say_what_to_do() {
        let message =
            "ORA-01017: invalid credential or not authorized; logon denied\nHelp: https://docs.oracle.com/error-help/db/ora-01017/\n";
        assert_eq!(
            server_error("logging in", 1017, message),
            DbError::fatal(
                "logging in: ORA-01017: invalid credential or not authorized; logon denied; check 'username' and 'password', and whether \
                 the account is open"
            )
        );
        assert_eq!(server_error("x", 12899, "ORA-12899: too large"), DbError::data("x: ORA-12899: too large"));
    }
}
