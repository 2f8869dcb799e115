//! The node of a function that gives a value for each row: its input, and the value as one more column.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::Field;
use datafusion_common::{DFSchema, DFSchemaRef, Result, TableReference, plan_err};
use datafusion_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore};

use super::{Function, Kind};

/// Calls a function for each row of its input.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ProcessCallNode {
    /// The rows.
    pub input: LogicalPlan,
    /// What is called.
    pub function: Arc<Function>,
    /// Its arguments, of the types of its parameters.
    pub arguments: Vec<Expr>,
    /// The name of the column that its values become, the last of the output.
    pub column: String,
    schema: DFSchemaRef,
}

impl ProcessCallNode {
    /// A call of `function` for each row of `input`.
    ///
    /// # Errors
    /// A function of tables; the input has a column of that name.
    pub fn try_new(input: LogicalPlan, function: Arc<Function>, arguments: Vec<Expr>, column: String) -> Result<Self> {
        let Kind::Value { returns, .. } = &function.kind else {
            return plan_err!("function {} gives a table, not a value", function.name);
        };
        let mut fields: Vec<(Option<TableReference>, Arc<Field>)> = input.schema().iter().map(|(q, f)| (q.cloned(), f.clone())).collect();
        fields.push((None, Arc::new(Field::new(&column, returns.clone(), true))));
        let schema = Arc::new(DFSchema::new_with_metadata(fields, input.schema().metadata().clone())?);
        Ok(ProcessCallNode { input, function, arguments, column, schema })
    }
}

impl PartialOrd for ProcessCallNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.input.partial_cmp(&other.input)
    }
}

impl fmt::Debug for ProcessCallNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_for_explain(f)
    }
}

impl UserDefinedLogicalNodeCore for ProcessCallNode {
    fn name(&self) -> &str {
        "ProcessCall"
    }
    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }
    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }
    fn expressions(&self) -> Vec<Expr> {
        self.arguments.clone()
    }
    /// A filter that does not look at the value goes below: fewer rows are sent to the process.
    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        HashSet::from([self.column.clone()])
    }
    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arguments: Vec<String> = self.arguments.iter().map(ToString::to_string).collect();
        write!(f, "ProcessCall: {}({}) AS {}", self.function.shown(), arguments.join(", "), self.column)
    }
    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        ProcessCallNode::try_new(inputs.pop().expect("one input"), self.function.clone(), exprs, self.column.clone())
    }
    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let width = self.input.schema().fields().len();
        let mut needed: Vec<usize> = output_columns.iter().copied().filter(|c| *c < width).collect();
        for argument in &self.arguments {
            for column in argument.column_refs() {
                needed.push(self.input.schema().index_of_column(column).ok()?);
            }
        }
        needed.sort_unstable();
        needed.dedup();
        Some(vec![needed])
    }
}
