//! User tasks: operators whose work is somebody else's code.
//!
//! Code of the embedding program is a [`ProcessFunction`] ([`function`]): blocks in, blocks out, with state
//! by key ([`states`]), timers ([`timers`]) and calls to something outside ([`asks`]); [`native`] is the
//! operator that runs it, [`per_row`] a layer for those who would rather see one row at a time. A function
//! that is a process of its own is talked to through a [`Conversation`]: [`call`] is the operator of a
//! function of values, [`table`] that of a function of tables. Not here: how a process is started, and the
//! bytes that go to and from it; operators know no threads.

pub mod asks;
pub mod call;
mod control;
pub mod conversation;
pub mod function;
pub mod native;
pub mod per_row;
pub mod states;
pub mod table;
mod timers;

pub use asks::{Answer, AskOptions};
pub use call::{ProcessCall, ProcessCallSpec};
pub use conversation::{Conversation, Handshake, StateKind};
pub use datafusion_common::ScalarValue;
pub use function::{Context, ProcessFactory, ProcessFunction, Rows, Setup, Timers, factory};
pub use native::{NativeSpec, ProcessNative};
pub use per_row::{KeyContext, PerRow, Row, RowFunction};
pub use states::{MapState, StateValue, ValueState};
pub use table::{ProcessTable, ProcessTableSpec, answer_schema};

#[cfg(test)]
mod tests;
