//! What can go wrong in a connector.

use std::fmt;

use tidemill_format::FormatError;

/// An error of a connector. The message says what was being done, on what, and, where there is
/// something, what to do about it. Errors about a table's options begin with the table; to those of
/// running sources and sinks the runtime adds it.
#[derive(Debug)]
pub struct ConnectError {
    message: String,
}

impl ConnectError {
    /// An error with a complete message.
    pub fn new(message: impl Into<String>) -> Self {
        ConnectError { message: message.into() }
    }

    /// An I/O error with what was being done, such as `reading '/data/trades.csv'`.
    pub fn io(doing: impl fmt::Display, error: &std::io::Error) -> Self {
        let hint = match error.raw_os_error() {
            Some(libc::ENOSPC) => "; free some space on that disk and run the job again",
            Some(libc::EACCES | libc::EPERM) => "; check the permissions of the file and of its directories",
            Some(libc::EMFILE) => "; raise the limit of open files (ulimit -n)",
            _ => "",
        };
        ConnectError { message: format!("{doing}: {error}{hint}") }
    }

    /// The same error with the place where it happened in front.
    pub fn at(self, place: impl fmt::Display) -> Self {
        ConnectError { message: format!("{place}: {}", self.message) }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ConnectError {}

impl From<FormatError> for ConnectError {
    fn from(e: FormatError) -> Self {
        ConnectError { message: e.to_string() }
    }
}
