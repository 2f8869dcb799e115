//! Tidemill: events that flow and files that lie still, one job for both.
//!
//! This crate is the front door: it re-exports what a program that embeds the engine needs, and its
//! binary is the command line. [`runtime`] runs jobs, [`sql`] reads them, and [`process`] is what functions
//! of tables in Rust are made with: implement [`process::ProcessFunction`] or [`process::RowFunction`] and
//! give it a name by [`runtime::script::Script::register_process`].

pub use tidemill_block as block;
pub use tidemill_format as format;
pub use tidemill_operator as operator;
pub use tidemill_operator::process;
pub use tidemill_plan as plan;
pub use tidemill_runtime as runtime;
pub use tidemill_sql as sql;
