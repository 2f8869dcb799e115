//! Tidemill: events that flow and files that lie still, one job for both.
//!
//! This crate is the front door: it re-exports what a program that embeds the engine needs, and its
//! binary is the command line. [`runtime`] runs jobs, [`sql`] reads them.

pub use tidemill_block as block;
pub use tidemill_format as format;
pub use tidemill_plan as plan;
pub use tidemill_runtime as runtime;
pub use tidemill_sql as sql;
