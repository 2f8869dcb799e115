//! Runs jobs: plans them into graphs of operators, runs the graphs on workers, takes checkpoints,
//! measures; or hands bounded jobs to DataFusion.
//!
//! The way through: [`script::Script`] reads a job file, [`physical`] turns each logical plan into a
//! part of one graph, [`job`] coordinates the [`worker`]s that run it, [`batch`] runs the
//! alternative. What does not live here: operators, formats, connectors, the command line.

pub mod batch;
mod connector;
pub mod copy;
mod describe;
mod error;
pub mod job;
mod local;
mod memory;
pub mod metrics;
pub mod parallel;
pub mod physical;
mod place;
pub mod process;
pub mod reference;
mod row_bytes;
pub mod script;
pub mod settings;
mod worker;

pub use datafusion_expr::LogicalPlan;
pub use error::JobError;
pub use job::{Job, JobOptions, Stop};
pub use settings::Settings;
pub use worker::{at_rest, when_short};
