//! The node of a function that makes a table of a table: `f(TABLE t PARTITION BY k)`.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion_common::{DFSchema, DFSchemaRef, Result, TableReference, plan_err};
use datafusion_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore};

use super::Function;

/// The name of the column that tells the event time of what a function gave, where it was called with
/// `on_time`.
pub const ROWTIME: &str = "rowtime";

/// A function over a table. Its output: the keys of its partitions, what the function gives, and with
/// `on_time` the column [`ROWTIME`]; none has a qualifier.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ProcessTableNode {
    /// The rows.
    pub input: LogicalPlan,
    /// What is called.
    pub function: Arc<Function>,
    /// `PARTITION BY`: columns of the input.
    pub partition_by: Vec<Expr>,
    /// `on_time => DESCRIPTOR(column)`: the event-time column by which rows are brought in order.
    pub time: Option<Expr>,
    /// `uid => '…'`: names the state, whatever becomes of the plan around it.
    pub uid: Option<String>,
    schema: DFSchemaRef,
}

impl ProcessTableNode {
    /// `function` over `input`.
    ///
    /// # Errors
    /// A key or a time that is no column; two columns of the output with the same name; what the
    /// function says of its input.
    pub fn try_new(
        input: LogicalPlan,
        function: Arc<Function>,
        partition_by: Vec<Expr>,
        time: Option<Expr>,
        uid: Option<String>,
    ) -> Result<Self> {
        let column = |expression: &Expr| -> Result<Arc<Field>> {
            let Expr::Column(column) = expression else { return plan_err!("{}: {expression} is not a column", function.name) };
            Ok(input.schema().fields()[input.schema().index_of_column(column)?].clone())
        };
        let mut fields: Vec<Arc<Field>> = partition_by.iter().map(column).collect::<Result<_>>()?;
        fields.extend(function.columns(input.schema().as_arrow())?.into_iter().map(Arc::new));
        if let Some(time) = &time {
            let field = column(time)?;
            let DataType::Timestamp(..) = field.data_type() else {
                return plan_err!(
                    "{}: on_time takes a TIMESTAMP(3) or TIMESTAMP_LTZ(3); {time} is of type {}",
                    function.name,
                    field.data_type()
                );
            };
            fields.push(Arc::new(Field::new(ROWTIME, field.data_type().clone(), false)));
        }
        for (i, field) in fields.iter().enumerate() {
            if fields[..i].iter().any(|f| f.name() == field.name()) {
                return plan_err!(
                    "{}: its output would have two columns {}; it consists of the keys of PARTITION BY, the columns that the function returns, \
                     and {ROWTIME} with on_time",
                    function.name,
                    field.name()
                );
            }
        }
        let fields: Vec<(Option<TableReference>, Arc<Field>)> = fields.into_iter().map(|f| (None, f)).collect();
        let schema = Arc::new(DFSchema::new_with_metadata(fields, input.schema().metadata().clone())?);
        Ok(ProcessTableNode { input, function, partition_by, time, uid, schema })
    }

    /// Index of a column of the input.
    ///
    /// # Errors
    /// None in a plan that was built by [`ProcessTableNode::try_new`].
    pub fn input_index(&self, expression: &Expr) -> Result<usize> {
        let Expr::Column(column) = expression else { return plan_err!("{}: {expression} is not a column", self.function.name) };
        self.input.schema().index_of_column(column)
    }
}

impl PartialOrd for ProcessTableNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.input.partial_cmp(&other.input)
    }
}

impl fmt::Debug for ProcessTableNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_for_explain(f)
    }
}

impl UserDefinedLogicalNodeCore for ProcessTableNode {
    fn name(&self) -> &str {
        "ProcessTable"
    }
    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }
    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }
    fn expressions(&self) -> Vec<Expr> {
        self.partition_by.iter().cloned().chain(self.time.clone()).collect()
    }
    /// Each row may decide over what becomes of the others.
    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        self.schema.fields().iter().map(|f| f.name().clone()).collect()
    }
    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProcessTable: {}", self.function.shown())?;
        if !self.partition_by.is_empty() {
            let keys: Vec<String> = self.partition_by.iter().map(ToString::to_string).collect();
            write!(f, " PARTITION BY {}", keys.join(", "))?;
        }
        if let Some(time) = &self.time {
            write!(f, " ON {time}")?;
        }
        match &self.uid {
            Some(uid) => write!(f, " UID '{uid}'"),
            None => Ok(()),
        }
    }
    fn with_exprs_and_inputs(&self, mut exprs: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        let time = if self.time.is_some() { exprs.pop() } else { None };
        ProcessTableNode::try_new(inputs.pop().expect("one input"), self.function.clone(), exprs, time, self.uid.clone())
    }
    /// The function sees every column of its table.
    fn necessary_children_exprs(&self, _output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        Some(vec![(0..self.input.schema().fields().len()).collect()])
    }
}
