//! What can go wrong between the bytes of a SAS file and its rows.

use std::fmt;
use std::io;

/// An error of reading or writing a SAS file. The text says what was wrong and where in the file, not which
/// file it was: the caller knows.
#[derive(Debug)]
pub enum SasError {
    /// The bytes are not what the format prescribes, or a value is not what its column promises.
    Data(String),
    /// Something that this format, or this implementation of it, cannot express.
    Unsupported(String),
    /// Reading failed below the format.
    Io(io::Error),
}

impl SasError {
    /// An error about the data.
    pub fn data(message: impl Into<String>) -> Self {
        SasError::Data(message.into())
    }

    /// An error about something the format lacks.
    pub fn unsupported(message: impl Into<String>) -> Self {
        SasError::Unsupported(message.into())
    }
}

impl fmt::Display for SasError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SasError::Data(m) | SasError::Unsupported(m) => f.write_str(m),
            SasError::Io(e) => write!(f, "{e}"),
        }
    }
}

impl std::error::Error for SasError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SasError::Io(e) => Some(e),
            _ => None,
        }
    }
}

impl From<io::Error> for SasError {
    fn from(e: io::Error) -> Self {
        SasError::Io(e)
    }
}

impl From<arrow::error::ArrowError> for SasError {
    fn from(e: arrow::error::ArrowError) -> Self {
        SasError::Data(e.to_string())
    }
}
