//! What can go wrong with a job.

use std::fmt;

use tidemill_sql::SqlError;

/// An error that ends a job, complete with what was being done and on what.
#[derive(Debug)]
pub enum JobError {
    /// The SQL is wrong; it can point at the text.
    Sql(Box<SqlError>),
    /// An option or a setting is wrong.
    Usage(String),
    /// The job failed while it ran.
    Failed(String),
}

impl JobError {
    /// A failure at run time.
    pub fn failed(message: impl fmt::Display) -> Self {
        JobError::Failed(message.to_string())
    }
    /// A wrong option.
    pub fn usage(message: impl fmt::Display) -> Self {
        JobError::Usage(message.to_string())
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobError::Sql(e) => write!(f, "{e}"),
            JobError::Usage(m) | JobError::Failed(m) => f.write_str(m),
        }
    }
}

impl std::error::Error for JobError {}

impl From<SqlError> for JobError {
    fn from(e: SqlError) -> Self {
        JobError::Sql(Box::new(e))
    }
}

impl From<datafusion_common::DataFusionError> for JobError {
    fn from(e: datafusion_common::DataFusionError) -> Self {
        JobError::Failed(e.strip_backtrace())
    }
}

impl From<tidemill_connect::ConnectError> for JobError {
    fn from(e: tidemill_connect::ConnectError) -> Self {
        JobError::Failed(e.to_string())
    }
}

impl From<tidemill_format::FormatError> for JobError {
    fn from(e: tidemill_format::FormatError) -> Self {
        JobError::Usage(e.to_string())
    }
}

impl From<tidemill_state::checkpoint::CheckpointError> for JobError {
    fn from(e: tidemill_state::checkpoint::CheckpointError) -> Self {
        JobError::Failed(e.to_string())
    }
}
