//! Functions that are processes of their own (`LANGUAGE PROCESS`): how they are started, talked to and ended.
//!
//! A process gets an Arrow IPC stream on its standard input and writes one to its standard output: the
//! schema first both ways, then one answer for each message, in order (docs/functions.md says it in full).
//! [`command`] reads a command line, [`child`] has the process and the threads at its ends, [`wire`] the
//! messages, [`talk`] what operators see of it. Rust functions of an embedding program are here only as
//! [`threads`], an easy way to make their calls. Not here: the operators, which are in `tidemill_operator`.

mod child;
mod command;
mod talk;
pub mod threads;
mod wire;

use std::collections::BTreeMap;
use std::time::Duration;

use tidemill_format::options::{OptionSet, OptionSpec, RawOptions};
use tidemill_format::{option_enum, options};

use crate::JobError;

pub(crate) use child::ChildSpec;
pub(crate) use command::{find, split};
pub(crate) use talk::{Talk, TalkSpec};
pub use threads::ThreadCalls;
pub(crate) use wire::ask_schema;

option_enum! {
    /// What a function of tables sees.
    pub enum Semantics {
        /// All rows of a key go to the same process, which may keep state for it; without PARTITION BY all
        /// rows go to one.
        Set = "set",
        /// Each row is by itself: rows go to any process.
        Row = "row",
    }
}

options! {
    /// The options of a function.
    pub struct FunctionOptions {
        /// The most rows in a message to the process. Fewer are sent when there are fewer.
        ours "batch.rows" => batch_rows: usize = 1024usize;
        /// How long the process may take for an answer, and to start. Then the job fails.
        ours "timeout" => timeout: Duration = Duration::from_secs(30);
        /// How many processes each shard of the job starts for a function of values.
        ours "processes" => processes: usize = 1usize;
        /// How many messages may be under way to a process at once, 8 MiB of them at most.
        ours "in-flight" => in_flight: usize = 4usize;
        /// For a function of tables: `set` brings all rows of a key to the same process, `row` any row to
        /// any process.
        ours "semantics" => semantics: Semantics = Semantics::Set;
        /// The directory in which the process is started; the job's own by default.
        ours "directory" => directory: Option<String>;
    }
}

/// The most that an option of a function may ask for, so that a slip of the pen starts no thousand
/// processes and makes no message that does not fit anywhere.
const LIMITS: [(&str, usize); 3] = [("batch.rows", 1 << 20), ("processes", 256), ("in-flight", 1024)];

impl FunctionOptions {
    /// Validates what stands in `WITH`.
    ///
    /// # Errors
    /// An unknown option, a value out of range.
    pub fn read(function: &str, options: &BTreeMap<String, String>) -> Result<Self, JobError> {
        let mut raw = RawOptions::new(format!("function '{function}'"), options.clone());
        let read = FunctionOptions::take(&mut raw)?;
        raw.finish()?;
        for ((name, most), given) in LIMITS.iter().zip([read.batch_rows, read.processes, read.in_flight]) {
            if !(1..=*most).contains(&given) {
                return Err(JobError::usage(format!("function '{function}': option '{name}' = '{given}': expected 1 to {most}")));
            }
        }
        Ok(read)
    }

    /// All of them, for the reference page.
    pub fn reference() -> Vec<OptionSpec> {
        Self::specs()
    }
}

#[cfg(test)]
mod tests;
