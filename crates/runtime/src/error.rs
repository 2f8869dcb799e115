//! What can go wrong with a job.

use std::fmt;

use datafusion_common::DataFusionError;
use tidemill_plan::{Refusal, message};
use tidemill_sql::SqlError;

/// An error that ends a job, complete with what was being done and on what.
#[derive(Debug)]
pub enum JobError {
    /// The SQL is wrong; it can point at the text.
    Sql(Box<SqlError>),
    /// An option or a setting is wrong.
    Usage(String),
    /// A query asks for what is not supported; with its text at hand this becomes [`JobError::Sql`].
    Refused(Refusal),
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
    /// Something that is not supported, and how it is likely written: see [`Refusal::words`].
    pub fn refused<W: Into<String>>(words: impl IntoIterator<Item = W>, message: impl fmt::Display) -> Self {
        JobError::Refused(Refusal::new(message, words))
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobError::Sql(e) => write!(f, "{e}"),
            JobError::Usage(m) | JobError::Failed(m) => f.write_str(m),
            JobError::Refused(refusal) => write!(f, "{refusal}"),
        }
    }
}

impl std::error::Error for JobError {}

impl From<SqlError> for JobError {
    fn from(e: SqlError) -> Self {
        JobError::Sql(Box::new(e))
    }
}

/// What cannot be planned is the user's to change; the rest failed while it ran. An error of ours
/// that came through DataFusion keeps its kind.
impl From<DataFusionError> for JobError {
    fn from(e: DataFusionError) -> Self {
        let text = message::of(&e);
        match e.find_root() {
            DataFusionError::External(inner) => match inner.downcast_ref::<JobError>() {
                Some(JobError::Usage(_)) => JobError::Usage(text),
                Some(JobError::Sql(own)) => JobError::Sql(own.clone()),
                Some(JobError::Refused(own)) => JobError::Refused(own.clone()),
                _ => match (inner.downcast_ref::<SqlError>(), inner.downcast_ref::<Refusal>()) {
                    (Some(own), _) => JobError::Sql(Box::new(own.clone())),
                    (_, Some(own)) => JobError::Refused(own.clone()),
                    _ => JobError::Failed(text),
                },
            },
            DataFusionError::Plan(_) | DataFusionError::NotImplemented(_) | DataFusionError::SchemaError(..) => JobError::Usage(text),
            _ => JobError::Failed(text),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(error: DataFusionError, kind: &str, text: &str) {
        let error = DataFusionError::Context("somewhere".into(), Box::new(error));
        let error = JobError::from(error);
        let found = match error {
            JobError::Sql(_) => "sql",
            JobError::Usage(_) => "usage",
            JobError::Refused(_) => "refused",
            JobError::Failed(_) => "failed",
        };
        assert_eq!((found, error.to_string().as_str()), (kind, text));
    }

    #[test]
    fn what_comes_from_datafusion() {
        check(DataFusionError::Plan("no".into()), "usage", "no");
        check(DataFusionError::NotImplemented("no".into()), "usage", "no");
        check(DataFusionError::Execution("Arrow error: no".into()), "failed", "no");
        check(DataFusionError::External(Box::new(JobError::usage("no"))), "usage", "no");
        check(DataFusionError::External(Box::new(JobError::failed("no"))), "failed", "no");
        check(DataFusionError::External(Box::new(SqlError::new("no"))), "sql", "no");
        check(DataFusionError::External(Box::new(JobError::refused(["OVER"], "no"))), "refused", "no");
        check(Refusal::new("no", ["OVER"]).into(), "refused", "no");
    }
}
