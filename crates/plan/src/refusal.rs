//! What a query asks for and cannot have: the message, and the words by which its place is found in the text. Plans
//! have no places, so that whoever has the text looks for the words.

use std::fmt;

use datafusion_common::DataFusionError;

/// A construct that is not supported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// One sentence without full stop: the construct, and the nearest thing that works.
    pub message: String,
    /// How the construct is likely written, the best first: words, signs and quoted texts with a space between each,
    /// as `NOT IN ( SELECT`.
    pub words: Vec<String>,
}

impl Refusal {
    /// A refusal of what is written like this.
    pub fn new<W: Into<String>>(message: impl fmt::Display, words: impl IntoIterator<Item = W>) -> Self {
        Refusal { message: message.to_string(), words: words.into_iter().map(Into::into).collect() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}

/// Its way through DataFusion.
impl From<Refusal> for DataFusionError {
    fn from(refusal: Refusal) -> Self {
        DataFusionError::External(Box::new(refusal))
    }
}
