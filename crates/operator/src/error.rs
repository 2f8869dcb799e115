//! What can go wrong in an operator.

use std::fmt;

use arrow::error::ArrowError;
use datafusion_common::DataFusionError;
use tidemill_plan::message;
use tidemill_state::disk::ColdError;

/// An error while computing. The runtime adds which operator of which job it was.
#[derive(Debug)]
pub struct OperatorError {
    message: String,
}

impl OperatorError {
    /// An error with this message.
    pub fn new(message: impl Into<String>) -> Self {
        OperatorError { message: message.into() }
    }
}

impl fmt::Display for OperatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for OperatorError {}

impl From<ArrowError> for OperatorError {
    fn from(e: ArrowError) -> Self {
        OperatorError { message: message::of_arrow(&e) }
    }
}

impl From<DataFusionError> for OperatorError {
    fn from(e: DataFusionError) -> Self {
        OperatorError { message: message::of(&e) }
    }
}

impl From<ColdError> for OperatorError {
    fn from(e: ColdError) -> Self {
        OperatorError { message: e.to_string() }
    }
}
