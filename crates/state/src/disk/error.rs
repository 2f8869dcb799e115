//! What goes wrong with state on disk, as a sentence a user can act on.

use std::fmt;
use std::io::{Error, ErrorKind};
use std::path::Path;

use arrow::error::ArrowError;

/// What to do about a file that cannot be read.
const BEGIN_ANEW: &str = "run once with --fresh, or remove the state directory, to start from the beginning";

/// What went wrong with state on disk; the message is complete.
#[derive(Clone, Debug)]
pub struct ColdError(String);

impl ColdError {
    /// An error with this message.
    pub fn new(message: impl Into<String>) -> Self {
        ColdError(message.into())
    }

    /// An operation of the file system failed: `doing` is what was done to `path`.
    pub(crate) fn io(doing: &str, path: &Path, error: &Error) -> Self {
        let hint = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                "; free some space on that disk, or give the job another --state-dir: what is in files already is whole"
            }
            ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => {
                "; make the directory writable for this user, or give the job another --state-dir"
            }
            ErrorKind::NotFound => "; has the directory been removed while the job ran?",
            // EMFILE, ENFILE
            _ if matches!(error.raw_os_error(), Some(23 | 24)) => "; raise the limit of open files (ulimit -n)",
            _ => "",
        };
        ColdError(format!("{doing} '{}': {error}{hint}", path.display()))
    }

    /// A file holds what was never written to it.
    pub(crate) fn damaged(path: &Path, what: impl fmt::Display) -> Self {
        ColdError(format!("reading the state file '{}': it is damaged ({what}); restore it from a backup, or {BEGIN_ANEW}", path.display()))
    }

    /// A whole file that this program, or this job, cannot read.
    pub(crate) fn foreign(path: &Path, what: impl fmt::Display) -> Self {
        ColdError(format!("reading the state file '{}': {what}; {BEGIN_ANEW}", path.display()))
    }
}

impl fmt::Display for ColdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ColdError {}

impl From<ArrowError> for ColdError {
    fn from(error: ArrowError) -> Self {
        ColdError(format!("turning state into rows on disk or back: {error}"))
    }
}
