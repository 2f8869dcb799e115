//! How a job looks from outside.

use std::collections::BTreeMap;

use serde::Serialize;
use tidemill_runtime::metrics::NodeReport;

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Nobody wants it to run.
    Stopped,
    /// It is being planned, and its checkpoint read.
    Starting,
    /// It runs.
    Running,
    /// It takes its last checkpoint.
    Stopping,
    /// All its input was read.
    Finished,
    /// It ended with an error; with a time for another try if one is to come.
    Failed,
}

impl State {
    /// All of them, for metrics.
    pub const ALL: [State; 6] = [State::Stopped, State::Starting, State::Running, State::Stopping, State::Finished, State::Failed];

    /// The name in answers and metrics.
    pub fn name(self) -> &'static str {
        match self {
            State::Stopped => "stopped",
            State::Starting => "starting",
            State::Running => "running",
            State::Stopping => "stopping",
            State::Finished => "finished",
            State::Failed => "failed",
        }
    }
}

/// How far a job is, since its last start.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct ProgressView {
    /// Seconds since the start.
    pub elapsed_s: f64,
    /// Rows read.
    pub rows_in: u64,
    /// Rows written.
    pub rows_out: u64,
    /// Lowest watermark of the sinks, milliseconds since 1970.
    pub watermark: Option<i64>,
    /// Rows that were late or could not be read.
    pub dropped: u64,
}

/// A job as `GET /v1/jobs` shows it.
#[derive(Clone, Debug, Serialize)]
pub struct JobView {
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub state: State,
    /// The last error as a terminal would show it, with its place in the text; also while the job runs again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How long until it is tried again, if it failed and is to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_in_ms: Option<u64>,
    /// How often it was tried again after a failure, since somebody started it.
    pub restarts: u64,
    /// When the current run began, or the last one did, milliseconds since 1970.
    pub started_ms: Option<u64>,
    /// How far it is.
    pub progress: ProgressView,
    /// Settings given with the job.
    pub settings: BTreeMap<String, String>,
    /// The text; not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sql: Option<String>,
    /// Its sources, operators and sinks; not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<NodeReport>>,
}
