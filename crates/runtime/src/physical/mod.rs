//! Physical plans: the graph of operators that workers run.
//!
//! [`planner`] makes it from logical plans, [`aggregate`], [`pattern`], [`process`] and [`window`] plan what their names
//! say, [`calls`] lets operators ask the tables of connectors.
//! A graph describes operators; each worker makes its own instances.

mod aggregate;
mod calls;
pub mod condition;
pub mod explain;
pub(crate) mod pattern;
mod planner;
pub(crate) mod process;
mod window;

use std::sync::{Arc, OnceLock};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use tidemill_connect::{Fetching, ReadRequest, Sink, Source};
use tidemill_operator::map::Expr;
use tidemill_operator::{Operator, OperatorError};

use crate::connector::TableOptions;
use crate::parallel::AtOnce;
use crate::parallel::readers::Readers;
use crate::settings::Settings;
use crate::worker::drift::Reached;

pub use planner::Planner;

/// Makes an operator instance.
pub type Factory = Arc<dyn Fn() -> Result<Box<dyn Operator>, OperatorError> + Send + Sync>;

/// The operators of a job and how they are connected; inputs come before their consumers.
#[derive(Default)]
pub struct Graph {
    /// The nodes; an edge refers to them by index.
    pub nodes: Vec<Node>,
}

/// A node of the graph.
pub struct Node {
    /// Stable against edits of the SQL that do not touch this part of it: names its state.
    pub id: String,
    /// For people: `Source trades`, `Over`, `Sink out`.
    pub name: String,
    /// What it does.
    pub kind: NodeKind,
    /// Where its input comes from.
    pub inputs: Vec<Edge>,
    /// What it emits.
    pub schema: SchemaRef,
    /// Runs in one shard only.
    pub single: bool,
}

/// What a node does.
pub enum NodeKind {
    /// Reads a table.
    Source(Box<SourceSpec>),
    /// Emits constant rows once.
    Values(RecordBatch),
    /// Computes.
    Operator(Factory),
    /// Passes several inputs on as one.
    Union,
    /// Writes a table.
    Sink(Box<SinkSpec>),
}

/// How rows get from one node to the next.
#[derive(Clone)]
pub enum Ship {
    /// Within the shard.
    Forward,
    /// To the shard that owns the key.
    Hash(Vec<Expr>),
    /// To the first shard.
    Single,
    /// Within the shard, and only the records that the source could not read.
    BadRecords,
}

/// An input of a node.
#[derive(Clone)]
pub struct Edge {
    /// The node that emits.
    pub from: usize,
    /// How the rows come here.
    pub ship: Ship,
}

/// A source node.
pub struct SourceSpec {
    /// The table's name.
    pub table: String,
    /// The connector's source.
    pub source: Arc<dyn Source>,
    /// The table's common options.
    pub options: TableOptions,
    /// What the readers give.
    pub request: ReadRequest,
    /// The columns emitted, over the readers' columns; `None` if they are the same.
    pub project: Option<Vec<Expr>>,
    /// Event time and watermark.
    pub watermark: Option<SourceWatermark>,
    /// The order of rows does not matter to anyone, so files may be cut into ranges.
    pub unordered: bool,
    /// The node that takes records that cannot be read: a sink.
    pub dead_letter: Option<usize>,
    /// What the workers that read it share, made by the first of them.
    pub(crate) readers: OnceLock<Option<Arc<Readers>>>,
    /// How far they are in event time, made likewise.
    pub(crate) reached: OnceLock<Arc<Reached>>,
}

impl SourceSpec {
    /// What the workers share that read the source in so many shards; nothing where there is nothing to find out.
    pub(crate) fn readers(&self, settings: &Settings, shards: usize) -> Option<Arc<Readers>> {
        // What is merged by time is open all at once.
        let at_once = if self.watermark.is_some() { AtOnce::Fixed(usize::MAX) } else { settings.read_parallel };
        let make = || match self.source.fetching() {
            Fetching::Other => None,
            fetching => Some(Readers::new(fetching, at_once, shards, settings.memory.map(|m| m.0))),
        };
        self.readers.get_or_init(make).clone()
    }

    /// How far the workers are that read the source in so many shards.
    pub(crate) fn reached(&self, shards: usize) -> Arc<Reached> {
        self.reached.get_or_init(|| Reached::new(shards)).clone()
    }
}

/// The watermark of a source.
#[derive(Clone)]
pub struct SourceWatermark {
    /// Index of the event-time column among the emitted columns.
    pub column: usize,
    /// How it follows.
    pub strategy: Strategy,
}

/// How a watermark follows the event time.
#[derive(Clone)]
pub enum Strategy {
    /// A fixed time behind, ms.
    Delay(i64),
    /// Any expression over the emitted columns.
    Expression(Expr),
}

/// A sink node.
pub struct SinkSpec {
    /// The table's name.
    pub table: String,
    /// The connector's sink.
    pub sink: Arc<dyn Sink>,
    /// The columns written.
    pub schema: SchemaRef,
    /// Names of NOT NULL columns, checked before writing.
    pub not_null: Vec<usize>,
    /// The most rows written at once; left to the engine if `None`.
    pub rows_at_once: Option<usize>,
}

#[cfg(test)]
mod tests;
