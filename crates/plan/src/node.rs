//! Logical nodes of ours: what streams need and DataFusion's plans lack.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion_common::{Column, DFSchema, DFSchemaRef, Result, TableReference, plan_err};
use datafusion_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore};

/// Marks a column as event time and says how far behind the newest event the watermark runs.
///
/// In a batch plan it is left out.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct WatermarkNode {
    /// What is marked.
    pub input: LogicalPlan,
    /// The event-time column.
    pub column: Expr,
    /// The watermark strategy.
    pub strategy: Expr,
}

impl WatermarkNode {
    /// Marks `column` of `input`.
    pub fn new(input: LogicalPlan, column: Expr, strategy: Expr) -> Self {
        WatermarkNode { input, column, strategy }
    }
}

impl PartialOrd for WatermarkNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.input.partial_cmp(&other.input)
    }
}

impl fmt::Debug for WatermarkNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_for_explain(f)
    }
}

impl UserDefinedLogicalNodeCore for WatermarkNode {
    fn name(&self) -> &str {
        "Watermark"
    }
    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }
    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }
    fn expressions(&self) -> Vec<Expr> {
        vec![self.column.clone(), self.strategy.clone()]
    }
    /// A filter below would change which events advance the watermark.
    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        self.input.schema().fields().iter().map(|f| f.name().clone()).collect()
    }
    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watermark: {} AS {}", self.column, self.strategy)
    }
    fn with_exprs_and_inputs(&self, mut exprs: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        let strategy = exprs.pop().expect("two expressions");
        let column = exprs.pop().expect("two expressions");
        Ok(WatermarkNode { input: inputs.pop().expect("one input"), column, strategy })
    }
    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let mut needed = output_columns.to_vec();
        for expression in [&self.column, &self.strategy] {
            for column in expression.column_refs() {
                needed.push(self.input.schema().index_of_column(column).ok()?);
            }
        }
        needed.sort_unstable();
        needed.dedup();
        Some(vec![needed])
    }
}

/// The windows of a window table function; all times in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WindowKind {
    /// Windows of `size`, end to end.
    Tumble {
        /// Length.
        size: i64,
        /// Shift of all windows against the epoch.
        offset: i64,
    },
    /// Windows of `size`, one every `slide`.
    Hop {
        /// Distance between starts.
        slide: i64,
        /// Length, a multiple of `slide`.
        size: i64,
        /// Shift of all windows against the epoch.
        offset: i64,
    },
    /// Windows that begin every `size` and grow by `step`.
    Cumulate {
        /// Growth, divides `size`.
        step: i64,
        /// Greatest length.
        size: i64,
        /// Shift of all windows against the epoch.
        offset: i64,
    },
    /// Windows that end when nothing came for `gap`.
    Session {
        /// The silence that ends a session.
        gap: i64,
    },
}

impl WindowKind {
    /// The windows (start, end) that hold time `t`, ascending by end. Not for sessions, whose
    /// windows depend on the other events.
    pub fn windows_of(self, t: i64, mut each: impl FnMut(i64, i64)) {
        match self {
            WindowKind::Tumble { size, offset } => {
                let start = t - (t - offset).rem_euclid(size);
                each(start, start + size);
            }
            WindowKind::Hop { slide, size, offset } => {
                let last = t - (t - offset).rem_euclid(slide);
                let mut start = last - size + slide;
                while start <= last {
                    each(start, start + size);
                    start += slide;
                }
            }
            WindowKind::Cumulate { step, size, offset } => {
                let start = t - (t - offset).rem_euclid(size);
                let mut end = start + ((t - start) / step + 1) * step;
                while end <= start + size {
                    each(start, end);
                    end += step;
                }
            }
            WindowKind::Session { .. } => unreachable!("sessions are not assigned by time alone"),
        }
    }
}

/// Names of the columns that a window table function adds.
pub const WINDOW_COLUMNS: [&str; 3] = ["window_start", "window_end", "window_time"];

/// A window table function: its input with `window_start`, `window_end` and `window_time` added.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct WindowNode {
    /// The rows.
    pub input: LogicalPlan,
    /// Which windows.
    pub kind: WindowKind,
    /// The time column.
    pub time: Expr,
    /// Session keys; empty for the other kinds.
    pub partition_by: Vec<Expr>,
    schema: DFSchemaRef,
}

impl WindowNode {
    /// Windows over `input` by its column `time`.
    ///
    /// # Errors
    /// `time` is not a timestamp.
    pub fn try_new(input: LogicalPlan, kind: WindowKind, time: Expr, partition_by: Vec<Expr>) -> Result<Self> {
        let Expr::Column(column) = &time else { return plan_err!("DESCRIPTOR takes a column, not {time}") };
        let time_type = input.schema().field(input.schema().index_of_column(column)?).data_type().clone();
        let DataType::Timestamp(..) = time_type else {
            return plan_err!(
                "the time column '{}' of a window must be a TIMESTAMP(3) or TIMESTAMP_LTZ(3), it is {time_type}",
                column.name
            );
        };
        let schema = Arc::new(Self::schema_of(&input, &time_type)?);
        Ok(WindowNode { input, kind, time, partition_by, schema })
    }

    /// Start and end are TIMESTAMP, without a zone even for a TIMESTAMP_LTZ column, as in Flink;
    /// `window_time` keeps the time column's type.
    fn schema_of(input: &LogicalPlan, time_type: &DataType) -> Result<DFSchema> {
        let DataType::Timestamp(unit, _) = time_type else { unreachable!("checked by try_new") };
        let mut fields: Vec<(Option<TableReference>, Arc<Field>)> = input.schema().iter().map(|(q, f)| (q.cloned(), f.clone())).collect();
        for name in WINDOW_COLUMNS {
            let data_type = if name == "window_time" { time_type.clone() } else { DataType::Timestamp(*unit, None) };
            fields.push((None, Arc::new(Field::new(name, data_type, false))));
        }
        DFSchema::new_with_metadata(fields, input.schema().metadata().clone())
    }

    /// Index of the time column in the input.
    ///
    /// # Errors
    /// None in a plan that was built by [`WindowNode::try_new`].
    pub fn time_index(&self) -> Result<usize> {
        let Expr::Column(column) = &self.time else { return plan_err!("the time column of a window is {}", self.time) };
        self.input.schema().index_of_column(column)
    }
}

impl PartialOrd for WindowNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.kind.partial_cmp(&other.kind)
    }
}

impl fmt::Debug for WindowNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_for_explain(f)
    }
}

impl UserDefinedLogicalNodeCore for WindowNode {
    fn name(&self) -> &str {
        "Window"
    }
    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }
    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }
    fn expressions(&self) -> Vec<Expr> {
        std::iter::once(self.time.clone()).chain(self.partition_by.iter().cloned()).collect()
    }
    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        match self.kind {
            // Which rows are there decides what a session is.
            WindowKind::Session { .. } => self.schema.fields().iter().map(|f| f.name().clone()).collect(),
            _ => WINDOW_COLUMNS.iter().map(|s| s.to_string()).collect(),
        }
    }
    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Window: {:?} ON {}", self.kind, self.time)?;
        if !self.partition_by.is_empty() {
            let keys: Vec<String> = self.partition_by.iter().map(ToString::to_string).collect();
            write!(f, " PARTITION BY {}", keys.join(", "))?;
        }
        Ok(())
    }
    fn with_exprs_and_inputs(&self, mut exprs: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        let partition_by = exprs.split_off(1);
        WindowNode::try_new(inputs.pop().expect("one input"), self.kind, exprs.pop().expect("the time column"), partition_by)
    }
    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let width = self.input.schema().fields().len();
        let mut needed: Vec<usize> = output_columns.iter().copied().filter(|c| *c < width).collect();
        for expression in self.expressions() {
            for column in expression.column_refs() {
                needed.push(self.input.schema().index_of_column(column).ok()?);
            }
        }
        needed.sort_unstable();
        needed.dedup();
        Some(vec![needed])
    }
}

/// The column that `expression` is, if it is nothing else.
pub fn as_column(expression: &Expr) -> Option<&Column> {
    match expression {
        Expr::Column(column) => Some(column),
        Expr::Alias(alias) => as_column(&alias.expr),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kind: WindowKind, t: i64, expect: &[(i64, i64)]) {
        let mut found = Vec::new();
        kind.windows_of(t, |s, e| found.push((s, e)));
        assert_eq!(found, expect, "windows of {t}");
    }

    #[test]
    fn windows_hold_their_time() {
        check(WindowKind::Tumble { size: 10, offset: 0 }, 19, &[(10, 20)]);
        check(WindowKind::Tumble { size: 10, offset: 3 }, 12, &[(3, 13)]);
        check(WindowKind::Tumble { size: 10, offset: 0 }, -1, &[(-10, 0)]);
        check(WindowKind::Hop { slide: 5, size: 10, offset: 0 }, 12, &[(5, 15), (10, 20)]);
        check(WindowKind::Hop { slide: 5, size: 5, offset: 0 }, 5, &[(5, 10)]);
        check(WindowKind::Cumulate { step: 2, size: 6, offset: 0 }, 8, &[(6, 10), (6, 12)]);
        check(WindowKind::Cumulate { step: 2, size: 6, offset: 0 }, 6, &[(6, 8), (6, 10), (6, 12)]);
    }
}
