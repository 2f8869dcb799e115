//! What DuckDB says, with what can be done about it.

use super::ffi::Failure;
use crate::driver::{DbError, DbErrorKind};

/// Names of `duckdb_error_type` that something is decided by, and what messages of the kind begin with.
const KINDS: [(u32, &str); 12] = [
    (1, "Out of Range Error"),
    (2, "Conversion Error"),
    (TRANSACTION, "TransactionContext Error"),
    (18, "Constraint Error"),
    (24, "Binder Error"),
    (13, "Catalog Error"),
    (IO, "IO Error"),
    (29, "INTERRUPT Error"),
    (30, "FATAL Error"),
    (31, "INTERNAL Error"),
    (32, "Invalid Input Error"),
    (MEMORY, "Out of Memory Error"),
];
const TRANSACTION: u32 = 10;
const IO: u32 = 28;
const MEMORY: u32 = 33;

/// An error of the library; `doing` says what was being done, and may be empty.
pub fn db_error(doing: &str, failure: Failure) -> DbError {
    let Failure { kind, message } = failure;
    // Where the library does not say the kind, its message begins with it.
    let told = || KINDS.iter().find(|(_, begin)| message.starts_with(begin)).map_or(0, |(kind, _)| *kind);
    let kind = if kind == 0 { told() } else { kind };
    let (class, hint) = match kind {
        IO if message.contains("set lock") => (
            DbErrorKind::Connection,
            "; another process has the file open: DuckDB lets one process write to a file, or several read it if all of them open it \
             with ?access_mode=read_only",
        ),
        IO if message.contains("No space left") => (DbErrorKind::Fatal, "; free some space on that disk and run the job again"),
        MEMORY => (DbErrorKind::Fatal, "; the URL's parameter memory_limit says how much DuckDB may use"),
        TRANSACTION | 29 => (DbErrorKind::Retry, ""),
        1 | 2 | 18 => (DbErrorKind::Data, ""),
        _ => (DbErrorKind::Fatal, ""),
    };
    let between = if doing.is_empty() { "" } else { ": " };
    DbError::new(class, format!("{doing}{between}{message}{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_of_a_kind() {
        let kind = |kind: u32, message: &str| db_error("doing", Failure { kind, message: message.into() }).kind;
        assert_eq!(kind(0, "IO Error: Could not set lock on file \"x\""), DbErrorKind::Connection);
        assert_eq!(kind(0, "TransactionContext Error: Catalog write-write conflict"), DbErrorKind::Retry);
        assert_eq!(kind(18, "Failed to append: Duplicate key"), DbErrorKind::Data);
        assert_eq!(kind(0, "Constraint Error: Duplicate key"), DbErrorKind::Data);
        assert_eq!(kind(32, "Invalid Input Error: attached in read-only mode"), DbErrorKind::Fatal);
        assert_eq!(kind(0, "Binder Error: no such column"), DbErrorKind::Fatal);
        let error = db_error("opening 'x'", Failure { kind: IO, message: "No space left on device".into() });
        assert!(error.message.starts_with("opening 'x': No space") && error.message.contains("free some space"), "{error}");
    }
}
