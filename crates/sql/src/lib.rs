//! The SQL front end: script text to statements, and statements to logical plans.
//!
//! The statement layer lives here: [`parse_script`] turns a script in Flink's dialect into [`ast`],
//! [`dialect`] teaches sqlparser what Flink writes differently, [`types`] maps column types, and
//! [`diagnostic`] makes errors that point at the text. Planning lives here too: a [`Session`] holds
//! the catalog and turns statements into an [`Outcome`], by way of `query` (queries and expressions).
//! Both go over sqlparser's trees with `walk`.
//! What does not live here: operators, connectors, or anything that reads a file.

pub mod ast;
pub mod diagnostic;
pub mod dialect;
pub mod parse;
mod query;
pub mod session;
pub mod types;
mod walk;

pub use diagnostic::{LineIndex, Span, SqlError};
pub use parse::{Finder, parse_script, window_call};
pub use session::{Described, FileRequest, FileResolver, InsertPlan, LookupResolver, Outcome, Session};
