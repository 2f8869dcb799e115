//! Calls: how an operator asks something outside for keys, without knowing whom or how.
//!
//! Whoever makes the calls implements [`Calls`]; the runtime does so for the lookups of connectors. Not
//! here: how many calls are under way at once, time limits, further attempts (see [`crate::lookup`]).

use std::time::Duration;

use arrow::array::RecordBatch;

use crate::OperatorError;

/// Asks for keys. Belongs to one operator.
pub trait Calls: Send {
    /// Starts call number `call` for the rows of `keys`, which hold no NULL. Never waits, and takes any
    /// number of calls: the operator bounds them. A number is used once.
    ///
    /// # Errors
    /// Something that no other attempt can mend.
    fn start(&mut self, call: u64, keys: &RecordBatch) -> Result<(), OperatorError>;

    /// Nothing more is started for now: what was shall be on its way.
    fn flush(&mut self) {}

    /// Forgets a call: its answer, should it come, is dropped.
    fn cancel(&mut self, call: u64);

    /// Whether all calls wait for something that is made ready once, such as a table that is read whole: the time limit of a call
    /// begins behind that.
    fn prepares(&self) -> bool {
        false
    }

    /// Moves the answers of finished calls into `into`, in any order. The operator is woken when there
    /// are some.
    fn finished(&mut self, into: &mut Vec<Answered>);
}

/// The answer to a call.
#[derive(Debug)]
pub struct Answered {
    /// The call's number.
    pub call: u64,
    /// What was found, or why nothing was.
    pub result: Result<Found, Failure>,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The rows.
    pub rows: RecordBatch,
    /// For each of them the row of the call's keys that it belongs to. Keys without a row have no match.
    pub origins: Vec<u32>,
}

/// Why a call has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What was asked, of whom, and what came of it.
    pub reason: String,
    /// Whether another attempt may go better.
    pub retry: bool,
    /// How long to wait at least before another attempt, if the other side has said so.
    pub after: Option<Duration>,
}

/// Counts of calls for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallStats {
    /// Calls under way now.
    pub in_flight: u64,
    /// Calls that may be under way at once, now.
    pub limit: u64,
    /// Calls made, further attempts included.
    pub calls: u64,
    /// Further attempts.
    pub retries: u64,
    /// Calls that failed for good, those that took too long included.
    pub failures: u64,
    /// Rows that asked for a key.
    pub asked: u64,
    /// Of them those that were answered from the cache, or by a call that was under way already.
    pub hits: u64,
}
