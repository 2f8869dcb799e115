//! What the planner gives the operator: a [`tidemill_plan::pattern::PatternSpec`] with its expressions
//! bound to columns.

use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, SchemaRef};
use tidemill_plan::pattern::{AfterMatchSkip, Bounds, Contiguity, End, Pattern, RowsPerMatch};

use crate::aggregate::AggregateCall;
use crate::map::Expr;

/// A pattern to be matched. Build one per shard; expressions are shared.
#[derive(Clone)]
pub struct PatternMatchSpec {
    /// The input's columns.
    pub input: SchemaRef,
    /// The output's columns.
    pub schema: SchemaRef,
    /// Index of the event-time column in the input.
    pub time: usize,
    /// What orders rows of the same time: input columns behind the time in `ORDER BY`.
    pub order: Vec<(usize, SortOptions)>,
    /// Rows come in order of time unless they are late: with nothing else to order them by they are taken
    /// when they come.
    pub in_order: bool,
    /// `PARTITION BY`, over the input.
    pub keys: Vec<Expr>,
    /// Their types.
    pub key_types: Vec<DataType>,
    /// The column that says which input a row came from (BIGINT), if several streams were merged.
    pub input_column: Option<usize>,
    /// The pattern variables.
    pub symbols: Vec<MatchSymbol>,
    /// The pattern.
    pub pattern: Pattern,
    /// Whether other rows may lie between.
    pub contiguity: Contiguity,
    /// Whether matching goes on after the first match of a partition.
    pub every: bool,
    /// Where the search goes on.
    pub skip: AfterMatchSkip,
    /// All rows of a match lie less than so many ms behind its first.
    pub within_ms: Option<i64>,
    /// What is put out for a match.
    pub rows: RowsPerMatch,
    /// The navigations; those of conditions have `running` set.
    pub navigations: Vec<MatchNavigation>,
    /// The output's columns, over the extended schema.
    pub output: Vec<Expr>,
    /// How much a partition may keep.
    pub bounds: Bounds,
}

/// A pattern variable, its condition bound.
#[derive(Clone)]
pub struct MatchSymbol {
    /// Its name.
    pub name: Arc<str>,
    /// Which input its rows come from.
    pub input: usize,
    /// The conjuncts without navigations, over the input's columns. All must hold.
    pub simple: Vec<Expr>,
    /// The conjuncts with navigations, over the extended schema. All must hold.
    pub looking: Vec<Expr>,
}

/// A navigation, its argument bound to the input's columns.
#[derive(Clone)]
pub struct MatchNavigation {
    /// How.
    pub kind: MatchNavigationKind,
    /// Only rows mapped to one of these symbols count; `None`: all rows of the match.
    pub symbols: Option<Vec<usize>>,
    /// Only rows up to the current one count.
    pub running: bool,
    /// The type of the value.
    pub data_type: DataType,
}

/// How a value is looked up; see [`tidemill_plan::pattern::NavigationKind`].
#[derive(Clone)]
pub enum MatchNavigationKind {
    /// An expression over the row that is found.
    Value {
        /// The expression, over the input's columns.
        argument: Expr,
        /// Counted from here.
        end: End,
        /// So many rows inwards.
        offset: usize,
        /// Then so many rows on in the partition.
        shift: i64,
    },
    /// The name of the symbol that the row is mapped to.
    Classifier {
        /// Counted from here.
        end: End,
        /// So many rows inwards.
        offset: usize,
        /// Then so many rows on in the partition.
        shift: i64,
    },
    /// An aggregate over the rows that count; its arguments are over the input's columns.
    Aggregate(AggregateCall),
    /// The number of the match.
    MatchNumber,
}
