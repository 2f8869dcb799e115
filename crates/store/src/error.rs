//! What can go wrong with a store. The messages of clients, with what to do about it, are in `explain`.

use std::error::Error;
use std::fmt;
use std::io;

/// What went wrong, for code that does something about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// There is no such bucket or object (404).
    NotFound,
    /// No credentials, wrong ones, or no right to do this (401, 403).
    Denied,
    /// Too many requests (429), also after repetitions.
    Busy,
    /// The server failed (5xx), also after repetitions.
    Server,
    /// The server was not reached, or the connection broke, also after repetitions.
    Network,
    /// The object is not the one that was listed (ETag, size).
    Changed,
    /// The object is there already; somebody else holds the lock.
    Exists,
    /// Anything else: a wrong URL or option, an answer that makes no sense.
    Other,
}

/// An error of a store: what was being done, on what, what the server said, and what to do.
#[derive(Clone, Debug)]
pub struct StoreError {
    kind: Kind,
    message: String,
}

impl StoreError {
    /// An error with a complete message.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        StoreError { kind, message: message.into() }
    }

    /// What went wrong.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The same error with the place where it happened in front.
    pub fn at(self, place: impl fmt::Display) -> Self {
        StoreError { kind: self.kind, message: format!("{place}: {}", self.message) }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for StoreError {}

impl From<StoreError> for io::Error {
    fn from(e: StoreError) -> Self {
        let kind = match e.kind {
            Kind::NotFound => io::ErrorKind::NotFound,
            Kind::Denied => io::ErrorKind::PermissionDenied,
            Kind::Exists => io::ErrorKind::AlreadyExists,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, e)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_errors_of_reading_and_writing() {
        let error = io::Error::from(StoreError::new(Kind::NotFound, "x").at("y"));
        assert_eq!((error.kind(), error.to_string().as_str()), (io::ErrorKind::NotFound, "y: x"));
    }
}
