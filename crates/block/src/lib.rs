//! The block: a batch of events in columns, the only unit that moves between operators, connectors
//! and processes.
//!
//! What lives here: [`Block`], [`RowKind`], the clock that stamps arrivals, the text form that
//! tests read and write, and the text forms of single values. What does not: anything that knows a
//! file, a plan or an operator.

mod block;
pub mod clock;
mod kind;
pub mod text;
pub mod value;

pub use block::{Block, NO_WATERMARK, WATERMARK_END};
pub use kind::RowKind;
