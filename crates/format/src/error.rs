//! What can go wrong between bytes and rows.

use std::fmt;

/// An error of a format, a codec or an option.
#[derive(Debug)]
pub enum FormatError {
    /// An option is unknown, missing or ill-formed. The text is complete.
    Option(String),
    /// The data are not what the format prescribes. The text says what and where in the data.
    Data(String),
    /// The schema has something that the format cannot express.
    Unsupported(String),
    /// Reading or writing failed below the format.
    Io(std::io::Error),
}

impl FormatError {
    /// An error about an option.
    pub fn option(message: impl Into<String>) -> Self {
        FormatError::Option(message.into())
    }

    /// An error about the data.
    pub fn data(message: impl Into<String>) -> Self {
        FormatError::Data(message.into())
    }

    /// An error about something the format lacks.
    pub fn unsupported(message: impl Into<String>) -> Self {
        FormatError::Unsupported(message.into())
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FormatError::Option(m) | FormatError::Data(m) | FormatError::Unsupported(m) => f.write_str(m),
            FormatError::Io(e) => write!(f, "{e}"),
        }
    }
}

impl std::error::Error for FormatError {}

impl From<std::io::Error> for FormatError {
    fn from(e: std::io::Error) -> Self {
        FormatError::Io(e)
    }
}

impl From<arrow::error::ArrowError> for FormatError {
    fn from(e: arrow::error::ArrowError) -> Self {
        FormatError::Data(e.to_string())
    }
}
