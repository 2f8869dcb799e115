//! What a publisher or a subscriber may be told instead of an answer.

use std::fmt;

use tidemill_connect::ConnectError;

/// Why rows of a publisher were refused, as it is counted for each stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Their columns are not those of the stream, or they change rows where only new ones are taken.
    Schema,
    /// No rows can be made of their bytes.
    Malformed,
    /// NULL in a column that has none.
    Null,
    /// Rows before them are missing.
    Gap,
    /// They are more than is taken at once.
    TooLarge,
}

impl Refusal {
    /// All of them, in the order of their numbers.
    pub const ALL: [Refusal; 5] = [Refusal::Schema, Refusal::Malformed, Refusal::Null, Refusal::Gap, Refusal::TooLarge];

    /// The name that metrics give it.
    pub fn name(self) -> &'static str {
        match self {
            Refusal::Schema => "schema",
            Refusal::Malformed => "malformed",
            Refusal::Null => "null",
            Refusal::Gap => "gap",
            Refusal::TooLarge => "too_large",
        }
    }
}

/// Why rows were not taken or cannot be had. Every text is complete: it names the stream and says what
/// to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HubError {
    /// There is no stream of that name.
    NoStream(String),
    /// No running job reads the stream, so nothing can be published into it now.
    NotPublished(String),
    /// No running job writes the stream.
    NotSubscribable(String),
    /// The stream does not give what was asked for, and will not: a start, an acknowledgement, its
    /// removal.
    Refused(String),
    /// Rows that are not of the stream's columns, or that it does not take.
    Schema(String),
    /// A publisher left rows out.
    Gap {
        /// The stream.
        stream: String,
        /// The publisher's name.
        publisher: String,
        /// The number of the row that was due.
        expected: u64,
        /// The number of the first row that came.
        got: u64,
    },
    /// The job ended or restarts: connect again.
    Gone(String),
    /// Another peer took the same name. To connect again would only end that one.
    Replaced(String),
    /// The subscriber's queue ran over.
    TooSlow(String),
    /// A limit on the number of things.
    TooMany(String),
    /// Reading or writing a file failed.
    Io(String),
    /// Data that should be there or be readable are not.
    Data(String),
}

impl fmt::Display for HubError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HubError::NoStream(text)
            | HubError::NotPublished(text)
            | HubError::NotSubscribable(text)
            | HubError::Refused(text)
            | HubError::Schema(text)
            | HubError::Gone(text)
            | HubError::Replaced(text)
            | HubError::TooSlow(text)
            | HubError::TooMany(text)
            | HubError::Io(text)
            | HubError::Data(text) => f.write_str(text),
            HubError::Gap { stream, publisher, expected, got } => write!(
                f,
                "publisher '{publisher}' of stream '{stream}' sent row {got}, but row {expected} is due: rows between are missing; connect again and go on from row {expected}"
            ),
        }
    }
}

impl std::error::Error for HubError {}

/// An I/O error with what was being done and, where there is something, what to do about it.
pub(crate) fn io(doing: impl fmt::Display, error: &std::io::Error) -> HubError {
    HubError::Io(ConnectError::io(doing, error).to_string())
}

/// To the job the texts say the same.
impl From<HubError> for ConnectError {
    fn from(e: HubError) -> Self {
        ConnectError::new(e.to_string())
    }
}
