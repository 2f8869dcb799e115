//! User functions: what a script or an embedding program has declared, and the logical nodes in which
//! they are called. A function is run by a process of its own (`LANGUAGE PROCESS`) or is code of the
//! embedding program; how, is no matter of this crate.
//!
//! [`call`] is the node of a function of values, [`table`] that of a function of tables, [`extract`] makes
//! nodes of the calls that stand in expressions.

pub mod call;
pub mod extract;
pub mod table;

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion_common::{Result, plan_err};
use datafusion_expr::{ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

pub use call::ProcessCallNode;
pub use table::ProcessTableNode;

/// Finds the columns that a function gives for an input of these columns; the error is one sentence
/// without full stop.
pub type ColumnsOf = Arc<dyn Fn(&Schema) -> Result<Vec<Field>, String> + Send + Sync>;

/// A function that a user has declared. Two are the same if they have the same name and generation.
pub struct Function {
    /// Its name as it was declared.
    pub name: String,
    /// How many functions of this name the session had before, which tells them apart.
    pub generation: u32,
    /// What it takes and gives.
    pub kind: Kind,
    /// What is run.
    pub body: Body,
}

/// What a function takes and gives.
pub enum Kind {
    /// A value for each row.
    Value {
        /// Names and types of its arguments.
        parameters: Vec<(String, DataType)>,
        /// The type of what it gives; NULL may stand in it.
        returns: DataType,
    },
    /// Rows for the rows of a table.
    Table {
        /// The columns that it gives, the keys of its partitions not among them.
        columns: Columns,
    },
}

/// The columns that a function of tables gives.
pub enum Columns {
    /// The same for every table.
    Fixed(Vec<Field>),
    /// Found when the table is known.
    Of(ColumnsOf),
}

/// What is run.
pub enum Body {
    /// A process that speaks Arrow IPC on its standard input and output.
    Command {
        /// The program and its arguments, as they were written.
        command: String,
        /// `WITH (…)`, as it was written.
        options: BTreeMap<String, String>,
    },
    /// Code of this process: what the runtime makes of it, it knows itself.
    Native(Arc<dyn Any + Send + Sync>),
}

impl Function {
    /// The columns that a function of tables gives for an input of these columns.
    ///
    /// # Errors
    /// The function says why it cannot take such an input, or it is no function of tables.
    pub fn columns(&self, input: &Schema) -> Result<Vec<Field>> {
        match &self.kind {
            Kind::Table { columns: Columns::Fixed(fields) } => Ok(fields.clone()),
            Kind::Table { columns: Columns::Of(find) } => match find(input) {
                Ok(fields) => Ok(fields),
                Err(why) => plan_err!("function {}: {why}", self.name),
            },
            Kind::Value { .. } => plan_err!("function {} gives a value, not a table", self.name),
        }
    }

    /// How plans show it. The command is not part of it: state is found again when a program has moved.
    pub fn shown(&self) -> String {
        if self.generation == 0 { self.name.clone() } else { format!("{}#{}", self.name, self.generation) }
    }

    /// The function as DataFusion's planner sees it; `None` if it gives a table.
    pub fn scalar(self: &Arc<Self>) -> Option<Arc<ScalarUDF>> {
        let Kind::Value { parameters, .. } = &self.kind else { return None };
        // Volatile: nothing may compute it at planning, move it or leave it out before its calls are nodes.
        let signature = match parameters.as_slice() {
            [] => Signature::nullary(Volatility::Volatile),
            some => Signature::exact(some.iter().map(|(_, t)| t.clone()).collect(), Volatility::Volatile),
        };
        Some(Arc::new(ScalarUDF::new_from_impl(ProcessUdf { function: self.clone(), signature })))
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, self.generation) == (&other.name, other.generation)
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.name, self.generation).hash(state);
    }
}

/// A call in an expression, between planning and [`extract`]; it is never evaluated.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ProcessUdf {
    function: Arc<Function>,
    signature: Signature,
}

impl ScalarUDFImpl for ProcessUdf {
    fn name(&self) -> &str {
        &self.function.name
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        match &self.function.kind {
            Kind::Value { returns, .. } => Ok(returns.clone()),
            Kind::Table { .. } => plan_err!("function {} gives a table, not a value", self.function.name),
        }
    }
    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        plan_err!("{}", misplaced(&self.function.name, "here"))
    }
}

/// The function that an expression is a call of, and its arguments.
fn called(expression: &Expr) -> Option<(&Arc<Function>, &[Expr])> {
    let Expr::ScalarFunction(call) = expression else { return None };
    let udf = call.func.inner().downcast_ref::<ProcessUdf>()?;
    Some((&udf.function, &call.args))
}

/// The first function of a process that an expression calls.
pub fn first_call(expression: &Expr) -> Option<Arc<Function>> {
    use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
    let mut found = None;
    let _ = expression.apply(|e| {
        Ok(match called(e) {
            Some((function, _)) => {
                found = Some(function.clone());
                TreeNodeRecursion::Stop
            }
            None => TreeNodeRecursion::Continue,
        })
    });
    found
}

/// What to say of a call that stands where no operator can be put below it.
pub fn misplaced(function: &str, place: &str) -> String {
    format!(
        "{function} is run by a process of its own, row by row in blocks: it can be called in SELECT, WHERE and HAVING, not {place}; \
         compute it first: FROM (SELECT *, {function}(…) AS x FROM t)"
    )
}

#[cfg(test)]
mod tests;
