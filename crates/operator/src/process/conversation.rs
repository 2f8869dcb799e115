//! How an operator talks to a function that is a process of its own.

use arrow::array::RecordBatch;

use crate::{OperatorError, Wake};

/// The columns that stand beside those of the rows in a conversation about a table.
///
/// `$control` (BINARY) is the last column of what is asked. It is NULL in rows; where it is not, the message
/// is no rows but a word, a space and what belongs to it: `watermark 1700000000000`, `checkpoint`,
/// `restore …`.
pub const CONTROL: &str = "$control";
/// `$state` (BINARY) is the last column of the answers of a function that keeps state. It is NULL in rows,
/// and holds the state in the answer to a `checkpoint`.
pub const STATE: &str = "$state";

/// What a process says of itself before its first answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handshake {
    /// It wants to be told watermarks, and answers them.
    pub watermarks: bool,
    /// Whether it keeps state between messages that a checkpoint must hold.
    pub state: StateKind,
}

/// The state of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StateKind {
    /// None that matters.
    #[default]
    None,
    /// Bytes for each key: they find their process again at another parallelism.
    Keyed,
    /// Bytes for all that the process has seen: it can be gone on with at the same parallelism only.
    Opaque,
}

/// A conversation with one process: each message gets one answer, in order.
pub trait Conversation: Send {
    /// Told once, before all else: how to ask for a look at the answers.
    fn attach(&mut self, wake: Wake);

    /// Starts the process, if that has not been done.
    ///
    /// # Errors
    /// It cannot be started.
    fn start(&mut self) -> Result<(), OperatorError>;

    /// What the process has said of itself; `None` as long as it has not, unless `wait` is given.
    ///
    /// # Errors
    /// It has ended, took too long, speaks another protocol, or gives other columns than were declared.
    fn handshake(&mut self, wait: bool) -> Result<Option<Handshake>, OperatorError>;

    /// Whether nothing more is to be asked for now: as much as may be is under way.
    fn full(&self) -> bool;

    /// Sends a message; never waits.
    ///
    /// # Errors
    /// As [`Conversation::handshake`].
    fn ask(&mut self, message: RecordBatch) -> Result<(), OperatorError>;

    /// The next answer; `None` if it is not there yet, unless `wait` is given.
    ///
    /// # Errors
    /// As [`Conversation::handshake`]; what it says cannot be read.
    fn answer(&mut self, wait: bool) -> Result<Option<RecordBatch>, OperatorError>;

    /// Says that nothing more will be asked; called when all is answered. Whether the process has ended.
    ///
    /// # Errors
    /// It has ended with an error, or does not end.
    fn finish(&mut self) -> Result<bool, OperatorError>;

    /// Bytes of messages and answers that are under way.
    fn memory(&self) -> usize;
}
