//! The block: a batch of events in columns, the only unit that moves between operators, connectors
//! and processes.
//!
//! What lives here: [`Block`], [`RowKind`], the clock that stamps arrivals, the text form that
//! tests read and write, the text forms of single values, how many bytes rows have, and which memory is known to hold ASCII.
//! What does not: anything that knows a file, a plan or an operator.

pub mod ascii;
mod block;
mod bytes;
pub mod clock;
mod kind;
pub mod text;
pub mod value;

pub use block::{Block, NO_WATERMARK, WATERMARK_END};
pub use bytes::rows_bytes;
pub use kind::RowKind;
