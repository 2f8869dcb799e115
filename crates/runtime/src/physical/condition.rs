//! Conditions on rows that belong to no job: what a subscriber wants to see of a stream. They are
//! planned as the `WHERE` of a query over one table, so that functions, types and errors are those of
//! jobs, and applied to one batch at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch, RecordBatchOptions};
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use datafusion_common::DataFusionError;
use datafusion_expr::LogicalPlan;
use tidemill_operator::map::Expr;
use tidemill_plan::optimize::optimize_stream;
use tidemill_plan::{Column, ColumnKind, Table};
use tidemill_sql::{Outcome, Session, SqlError};

use super::aggregate::{bind, bind_all};
use crate::JobError;

/// How deep the tree of a condition may be. It is evaluated by calls within calls, on threads with
/// small stacks; a set of values is one node (`IN`), however many they are.
const DEPTH_MAX: usize = 256;

/// What the rows are called in a condition: `price > 3` and `stream.price > 3` are the same.
const TABLE: &str = "stream";

/// A condition over the columns of a schema, ready to be applied.
#[derive(Debug)]
pub struct RowCondition {
    steps: Vec<Step>,
}

/// A node of the plan between the table and its result.
#[derive(Debug)]
enum Step {
    /// Keeps the rows for which this holds.
    Filter(Expr),
    /// Computes columns, or takes away what was computed before.
    Project(Vec<Expr>, SchemaRef),
    /// Keeps nothing: the condition can never hold.
    Nothing,
}

impl Step {
    /// Whether an expression is deeper than it may be.
    fn is_deep(&self) -> bool {
        let roots = match self {
            Step::Filter(predicate) => std::slice::from_ref(predicate),
            Step::Project(expressions, _) => expressions.as_slice(),
            Step::Nothing => &[],
        };
        let mut open: Vec<(&Expr, usize)> = roots.iter().map(|e| (e, 1)).collect();
        while let Some((expression, depth)) = open.pop() {
            if depth > DEPTH_MAX {
                return true;
            }
            open.extend(expression.children().into_iter().map(|child| (child, depth + 1)));
        }
        false
    }
}

impl RowCondition {
    /// Plans a condition, such as `price > 100 AND symbol IN ('A', 'B')`, over columns of `schema`.
    ///
    /// # Errors
    /// What is wrong with the condition, with advice where there is one; a subquery, an aggregate or
    /// anything else that one row alone cannot answer; one nested too deep.
    ///
    /// Planning needs a stack that grows with the nesting: callers bound the text, or see to the stack.
    pub fn new(schema: &SchemaRef, condition: &str) -> Result<Self, JobError> {
        let columns = schema.fields().iter().map(|f| Column {
            name: f.name().clone(),
            data_type: f.data_type().clone(),
            nullable: f.is_nullable(),
            kind: ColumnKind::Physical,
        });
        let table = Table {
            name: TABLE.to_string(),
            columns: columns.collect(),
            watermark: None,
            primary_key: Vec::new(),
            options: BTreeMap::new(),
        };
        let mut session = Session::new();
        session.register_table(table)?;
        // On a line of its own a comment at its end ends with it.
        let script = format!("SELECT * FROM `{TABLE}` WHERE (\n{condition}\n)");
        let statements = session.parse(&script)?;
        let [statement] = statements.as_slice() else { return Err(not_a_condition()) };
        let Outcome::Query(plan) = session.execute(statement)? else { return Err(not_a_condition()) };
        let plan = optimize_stream(plan, &session.config())?;
        let mut steps = Vec::new();
        gather(&plan, schema, &mut steps)?;
        if steps.iter().any(Step::is_deep) {
            let why = format!("the filter is nested more than {DEPTH_MAX} deep");
            return Err(SqlError::new(why).with_help("write `column IN (…)` instead of many conditions with OR").into());
        }
        Ok(RowCondition { steps })
    }

    /// The rows of a batch of the schema for which the condition holds.
    ///
    /// # Errors
    /// A value that the condition cannot compute with.
    pub fn keep(&self, batch: &RecordBatch) -> Result<RecordBatch, JobError> {
        self.apply(batch.clone()).map_err(JobError::from)
    }

    fn apply(&self, mut batch: RecordBatch) -> Result<RecordBatch, DataFusionError> {
        for step in &self.steps {
            let rows = batch.num_rows();
            batch = match step {
                Step::Filter(predicate) => {
                    let mask = predicate.evaluate(&batch)?.into_array(rows)?;
                    let mask = mask.as_boolean_opt().ok_or_else(|| DataFusionError::Plan("the filter is not BOOLEAN".into()))?;
                    filter_record_batch(&batch, mask)?
                }
                Step::Project(expressions, schema) => {
                    let columns = expressions.iter().map(|e| e.evaluate(&batch)?.into_array(rows)).collect::<Result<Vec<_>, _>>()?;
                    RecordBatch::try_new_with_options(schema.clone(), columns, &RecordBatchOptions::new().with_row_count(Some(rows)))?
                }
                Step::Nothing => batch.slice(0, 0),
            };
        }
        Ok(batch)
    }
}

/// The steps from the table up to this node of the plan.
fn gather(plan: &LogicalPlan, schema: &SchemaRef, steps: &mut Vec<Step>) -> Result<(), JobError> {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => gather(&alias.input, schema, steps),
        LogicalPlan::TableScan(scan) if scan.filters.is_empty() && scan.fetch.is_none() => {
            let all = 0..schema.fields().len();
            let whole = scan.projection.as_ref().is_none_or(|picks| picks.iter().copied().eq(all));
            if whole { Ok(()) } else { Err(not_a_condition()) }
        }
        LogicalPlan::Filter(filter) => {
            gather(&filter.input, schema, steps)?;
            steps.push(Step::Filter(bind(&filter.predicate, filter.input.schema())?));
            Ok(())
        }
        LogicalPlan::Projection(projection) => {
            gather(&projection.input, schema, steps)?;
            let expressions = projection.expr.iter().map(|e| e.clone().unalias()).collect::<Vec<_>>();
            let bound = bind_all(&expressions, projection.input.schema())?;
            steps.push(Step::Project(bound, Arc::new(projection.schema.as_arrow().clone())));
            Ok(())
        }
        LogicalPlan::EmptyRelation(empty) if !empty.produce_one_row => {
            steps.push(Step::Nothing);
            Ok(())
        }
        _ => Err(not_a_condition()),
    }
}

fn not_a_condition() -> JobError {
    SqlError::new("a filter is one condition on the columns of a row, without subqueries, aggregates and window functions")
        .with_help("declare a view with the query in the job and subscribe to the view")
        .into()
}

#[cfg(test)]
mod tests;
