//! What a job means, independent of how it is executed: the catalog of tables, Flink's functions,
//! and the logical nodes that DataFusion lacks (window table functions, watermarks).
//!
//! Architecture invariant: nothing here does I/O; front ends depend on this crate and this crate on
//! none of them.

pub mod catalog;
pub mod exact;
pub mod float_sum;
pub mod function;
pub mod narrow;
pub mod node;
pub mod optimize;

pub use catalog::{Column, ColumnKind, Table, WatermarkSpec};
pub use node::{WatermarkNode, WindowKind, WindowNode};
