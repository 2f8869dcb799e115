//! What a job means, independent of how it is executed: the catalog of tables, Flink's functions,
//! and the logical nodes that DataFusion lacks (window table functions, watermarks, row patterns).
//!
//! Architecture invariant: nothing here does I/O; front ends depend on this crate and this crate on
//! none of them.

pub mod aggregate;
pub mod catalog;
pub mod exact;
pub mod float_sum;
pub mod function;
pub mod lookup;
pub mod message;
pub mod narrow;
pub mod node;
pub mod optimize;
pub mod pattern;
pub mod pattern_node;
pub mod process;
pub mod refusal;
pub mod temporal;
mod whole_sum;

pub use catalog::{Column, ColumnKind, Table, WatermarkSpec};
pub use lookup::{LookupHint, LookupJoinNode};
pub use node::{WatermarkNode, WindowKind, WindowNode};
pub use pattern_node::PatternNode;
pub use process::{ProcessCallNode, ProcessTableNode};
pub use refusal::Refusal;
