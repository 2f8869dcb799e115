//! Lookup joins: `JOIN t FOR SYSTEM_TIME AS OF o.pt ON …`, where `o.pt` is processing time.
//!
//! [`LookupJoinNode`] is the logical node: the table is not read but asked for the keys of each row.
//! [`is_processing_time`] tells a column of processing time, `pt AS PROCTIME()` in a table, from any other
//! time, through whatever passes it on. Not here: how tables are asked, and the operator.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::Field;
use datafusion_common::{DFSchema, DFSchemaRef, Result, TableReference, plan_err};
use datafusion_expr::{Distinct, Expr, ExprSchemable, JoinType, LogicalPlan, TableSource, UserDefinedLogicalNodeCore};

use crate::catalog::{CatalogTable, RawTable, Table};
use crate::node::{WatermarkNode, WindowNode, as_column};
use crate::temporal::TemporalJoinNode;

/// What the hint `LOOKUP` of a query says of a join; `None` leaves it to the options of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LookupHint {
    /// `'async'`: rows go on being read while lookups are under way.
    pub asynchronous: Option<bool>,
    /// `'output-mode'`: rows of a partition come out in the order in which they came in (`ordered`), or all as answers arrive
    /// (`allow_unordered`).
    pub ordered: Option<bool>,
    /// `'capacity'`: lookups under way in a shard, at least 1.
    pub capacity: Option<usize>,
    /// `'timeout'`: how long a lookup may take in all, more than nothing.
    pub timeout: Option<Duration>,
    /// `'retry-predicate' = 'lookup_miss'`: asks again for keys for which there is nothing.
    pub retry_miss: Option<RetryMiss>,
    /// `'shuffle'`: whether rows of one key shall be looked up by one shard.
    pub shuffle: Option<bool>,
}

/// When to ask again for a key for which there was nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RetryMiss {
    /// `'fixed-delay'`: how long to wait between attempts.
    pub delay: Duration,
    /// `'max-attempts'`: how often to ask, the first time included, at least 1.
    pub attempts: u32,
}

impl fmt::Display for LookupHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.asynchronous.map(|on| format!("'async'='{on}'")));
        parts.extend(self.ordered.map(|on| format!("'output-mode'='{}'", if on { "ordered" } else { "allow_unordered" })));
        parts.extend(self.capacity.map(|n| format!("'capacity'='{n}'")));
        parts.extend(self.timeout.map(|d| format!("'timeout'='{} ms'", d.as_millis())));
        parts.extend(self.retry_miss.map(|r| {
            format!("'retry-predicate'='lookup_miss', 'fixed-delay'='{} ms', 'max-attempts'='{}'", r.delay.as_millis(), r.attempts)
        }));
        parts.extend(self.shuffle.map(|on| format!("'shuffle'='{on}'")));
        f.write_str(&parts.join(", "))
    }
}

/// Joins each row with the rows that a table gives for its keys when it is asked.
#[derive(Clone)]
pub struct LookupJoinNode {
    /// The rows.
    pub input: LogicalPlan,
    /// The table that is asked.
    pub table: Arc<Table>,
    /// What the table is called in the query.
    pub alias: TableReference,
    /// What it is asked for, at least one key: an expression over `input` and the name of the physical
    /// column that it must equal, of the column's type. A row one of whose keys is NULL has no match, and
    /// need not be asked for.
    pub keys: Vec<(Expr, String)>,
    /// What else must hold for a match, over the columns of this node; types coerced. Only LEFT joins have
    /// one, conditions of INNER joins are filters above.
    pub residual: Option<Expr>,
    /// Whether rows without a match stay, with NULL for the columns of the table.
    pub left: bool,
    /// What the query says about how to ask.
    pub hint: LookupHint,
    /// The names of the table's physical columns in `schema`.
    names: Vec<String>,
    schema: DFSchemaRef,
}

impl LookupJoinNode {
    /// A lookup join. The columns of `input` come first, then all physical columns of the table, qualified
    /// with `alias`. A column whose name `input` has, too, gets another one: rules that move filters know
    /// columns by their names only, and what the input can filter must be filtered before it costs a lookup.
    ///
    /// # Errors
    /// No key, a key for a column that is not there or of another type.
    pub fn try_new(
        input: LogicalPlan,
        table: Arc<Table>,
        alias: TableReference,
        keys: Vec<(Expr, String)>,
        left: bool,
        hint: LookupHint,
    ) -> Result<Self> {
        let mut taken: HashSet<String> = input.schema().fields().iter().map(|f| f.name().clone()).collect();
        let mut names = Vec::new();
        for field in table.physical_schema().fields() {
            let mut name = field.name().clone();
            while !taken.insert(name.clone()) {
                name.push('\'');
            }
            names.push(name);
        }
        Self::with_names(input, table, alias, keys, None, left, hint, names)
    }

    /// The same join with a condition over its own columns.
    #[must_use]
    pub fn with_residual(mut self, residual: Option<Expr>) -> Self {
        self.residual = residual;
        self
    }

    fn with_names(
        input: LogicalPlan,
        table: Arc<Table>,
        alias: TableReference,
        keys: Vec<(Expr, String)>,
        residual: Option<Expr>,
        left: bool,
        hint: LookupHint,
        names: Vec<String>,
    ) -> Result<Self> {
        if keys.is_empty() {
            return plan_err!("a lookup join needs a column of {} that is equal to something", table.name);
        }
        let physical = table.physical_schema();
        for (key, column) in &keys {
            let Some((_, field)) = physical.column_with_name(column) else {
                return plan_err!("table {} has no physical column {column}", table.name);
            };
            let given = key.get_type(input.schema())?;
            if given != *field.data_type() {
                return plan_err!("the key {column} of table {} is {}, what it is asked for is {given}", table.name, field.data_type());
            }
        }
        let mut fields: Vec<(Option<TableReference>, Arc<Field>)> = input.schema().iter().map(|(q, f)| (q.cloned(), f.clone())).collect();
        for (field, name) in physical.fields().iter().zip(&names) {
            let field = field.as_ref().clone().with_name(name).with_nullable(left || field.is_nullable());
            fields.push((Some(alias.clone()), Arc::new(field)));
        }
        let schema = Arc::new(DFSchema::new_with_metadata(fields, input.schema().metadata().clone())?);
        Ok(LookupJoinNode { input, table, alias, keys, residual, left, hint, names, schema })
    }

    /// How many columns come from the input.
    pub fn width(&self) -> usize {
        self.input.schema().fields().len()
    }
}

impl PartialEq for LookupJoinNode {
    fn eq(&self, other: &Self) -> bool {
        self.input == other.input
            && self.table == other.table
            && self.alias == other.alias
            && self.keys == other.keys
            && self.residual == other.residual
            && self.left == other.left
            && self.hint == other.hint
            && self.names == other.names
    }
}

impl Eq for LookupJoinNode {}

impl Hash for LookupJoinNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.input.hash(state);
        self.table.name.hash(state);
        self.alias.hash(state);
        self.keys.hash(state);
        self.residual.hash(state);
        self.left.hash(state);
        self.hint.hash(state);
    }
}

impl PartialOrd for LookupJoinNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.input.partial_cmp(&other.input)
    }
}

impl fmt::Debug for LookupJoinNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_for_explain(f)
    }
}

impl UserDefinedLogicalNodeCore for LookupJoinNode {
    fn name(&self) -> &str {
        "LookupJoin"
    }
    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }
    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }
    /// The keys. The further condition is not among them: it is over other columns than the input's.
    fn expressions(&self) -> Vec<Expr> {
        self.keys.iter().map(|(key, _)| key.clone()).collect()
    }
    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        self.names.iter().cloned().collect()
    }
    /// Complete: parts of a job with the same text become one operator.
    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<String> = self.keys.iter().map(|(key, column)| format!("{column} = {key}")).collect();
        let kind = if self.left { JoinType::Left } else { JoinType::Inner };
        write!(f, "LookupJoin: {kind} {}", self.table.name)?;
        if self.alias.table() != self.table.name {
            write!(f, " AS {}", self.alias)?;
        }
        write!(f, " ON {}", keys.join(", "))?;
        if let Some(residual) = &self.residual {
            write!(f, " AND {residual}")?;
        }
        if self.hint != LookupHint::default() {
            write!(f, " LOOKUP({})", self.hint)?;
        }
        Ok(())
    }
    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        // Rewriting rules put the old name over what they changed; names do not matter here.
        let keys = exprs.into_iter().map(Expr::unalias).zip(&self.keys).map(|(key, (_, column))| (key, column.clone())).collect();
        let input = inputs.pop().expect("one input");
        let (table, alias, residual) = (self.table.clone(), self.alias.clone(), self.residual.clone());
        Self::with_names(input, table, alias, keys, residual, self.left, self.hint.clone(), self.names.clone())
    }
    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let input = self.input.schema();
        let mut needed: Vec<usize> = output_columns.iter().copied().filter(|c| *c < self.width()).collect();
        for expression in self.keys.iter().map(|(key, _)| key).chain(&self.residual) {
            needed.extend(expression.column_refs().into_iter().filter_map(|c| input.maybe_index_of_column(c)));
        }
        needed.sort_unstable();
        needed.dedup();
        Some(vec![needed])
    }
}

/// Whether an expression is the call `PROCTIME()`.
pub fn is_proctime_call(expression: &Expr) -> bool {
    match expression {
        Expr::ScalarFunction(call) => call.func.name() == "proctime",
        Expr::Alias(alias) => is_proctime_call(&alias.expr),
        _ => false,
    }
}

/// Whether an expression over the columns of `plan` is processing time: `PROCTIME()`, or a column that a
/// table computes so (`pt AS PROCTIME()`) and that was passed on since as it is.
pub fn is_processing_time(expression: &Expr, plan: &LogicalPlan) -> bool {
    match as_column(expression) {
        Some(column) => plan.schema().maybe_index_of_column(column).is_some_and(|index| is_processing_column(plan, index)),
        None => is_proctime_call(expression),
    }
}

/// Whether column `index` of `plan` is processing time.
pub fn is_processing_column(plan: &LogicalPlan, index: usize) -> bool {
    let width = |input: &LogicalPlan| input.schema().fields().len();
    match plan {
        LogicalPlan::Projection(projection) => {
            projection.expr.get(index).is_some_and(|expression| is_processing_time(expression, &projection.input))
        }
        LogicalPlan::SubqueryAlias(alias) => is_processing_column(&alias.input, index),
        LogicalPlan::Filter(filter) => is_processing_column(&filter.input, index),
        LogicalPlan::Sort(sort) => is_processing_column(&sort.input, index),
        LogicalPlan::Limit(limit) => is_processing_column(&limit.input, index),
        LogicalPlan::Distinct(Distinct::All(input)) => is_processing_column(input, index),
        LogicalPlan::Window(window) => index < width(&window.input) && is_processing_column(&window.input, index),
        LogicalPlan::Union(union) => union.inputs.iter().all(|input| is_processing_column(input, index)),
        LogicalPlan::Join(join) => {
            let left = width(&join.left);
            match join.join_type {
                JoinType::Inner => {
                    if index < left {
                        is_processing_column(&join.left, index)
                    } else {
                        is_processing_column(&join.right, index - left)
                    }
                }
                JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
                    index < left && is_processing_column(&join.left, index)
                }
                JoinType::Right => index >= left && is_processing_column(&join.right, index - left),
                _ => false,
            }
        }
        LogicalPlan::TableScan(scan) => {
            let index = scan.projection.as_ref().map_or(Some(index), |columns| columns.get(index).copied());
            let Some(index) = index else { return false };
            // What a connector reads is not computed; a view stands for its plan.
            match (scan.source.downcast_ref::<RawTable>(), scan.source.downcast_ref::<CatalogTable>()) {
                (None, Some(view)) => view.get_logical_plan().is_some_and(|plan| is_processing_column(&plan, index)),
                _ => false,
            }
        }
        LogicalPlan::Extension(extension) => {
            let node = extension.node.as_any();
            if let Some(node) = node.downcast_ref::<WatermarkNode>() {
                // With a watermark it is event time.
                return !is_column(&node.column, &node.input, index) && is_processing_column(&node.input, index);
            }
            let input = if let Some(lookup) = node.downcast_ref::<LookupJoinNode>() {
                &lookup.input
            } else if let Some(window) = node.downcast_ref::<WindowNode>() {
                &window.input
            } else if let Some(temporal) = node.downcast_ref::<TemporalJoinNode>() {
                &temporal.left
            } else {
                return false;
            };
            index < width(input) && is_processing_column(input, index)
        }
        _ => false,
    }
}

fn is_column(expression: &Expr, plan: &LogicalPlan, index: usize) -> bool {
    as_column(expression).and_then(|c| plan.schema().maybe_index_of_column(c)) == Some(index)
}

/// The physical columns of a table in the words of a query that refers to it, and what it asks of its rows.
#[derive(Clone, Debug)]
pub struct Referred {
    /// The table.
    pub table: Arc<Table>,
    /// Each column of the plan over the table's physical columns, which have no qualifier.
    pub columns: Vec<Expr>,
    /// What must hold for its rows, over the same.
    pub filters: Vec<Expr>,
}

/// The table behind a plan that only renames, computes and filters its columns: a declared table, or a view
/// of that kind.
///
/// # Errors
/// Why it cannot be asked for keys, as the end of a sentence that begins with its name.
pub fn referred(plan: &LogicalPlan) -> Result<Referred, String> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            if let Some(raw) = scan.source.downcast_ref::<RawTable>() {
                let columns = plan.schema().fields().iter().map(|f| datafusion_expr::ident(f.name())).collect();
                return Ok(Referred { table: raw.table.clone(), columns, filters: Vec::new() });
            }
            match scan.source.downcast_ref::<CatalogTable>().and_then(TableSource::get_logical_plan) {
                Some(plan) if scan.projection.is_none() => referred(&plan),
                _ => Err("is not a declared table".into()),
            }
        }
        LogicalPlan::SubqueryAlias(alias) => referred(&alias.input),
        LogicalPlan::Projection(projection) => {
            let below = referred(&projection.input)?;
            let columns = projection.expr.iter().map(|e| below.over(e, &projection.input)).collect::<Result<_, _>>()?;
            Ok(Referred { columns, ..below })
        }
        LogicalPlan::Filter(filter) => {
            let mut below = referred(&filter.input)?;
            let predicate = below.over(&filter.predicate, &filter.input)?;
            below.filters.push(predicate);
            Ok(below)
        }
        LogicalPlan::Extension(extension) => match extension.node.as_any().downcast_ref::<WatermarkNode>() {
            Some(watermark) => referred(&watermark.input),
            None => Err("is not a table: only a table, or a view that renames and filters its columns, can be asked for keys".into()),
        },
        _ => Err("is not a table: only a table, or a view that renames and filters its columns, can be asked for keys".into()),
    }
}

impl Referred {
    /// An expression over the columns of `plan`, which are `self.columns`, over those of the table.
    ///
    /// # Errors
    /// A subquery, which would have to be asked for each row.
    pub fn over(&self, expression: &Expr, plan: &LogicalPlan) -> Result<Expr, String> {
        replace_columns(expression, &|column| plan.schema().maybe_index_of_column(column).map(|index| self.columns[index].clone()))
    }
}

/// The expression with columns replaced where `place` gives something for them; the outermost name falls away.
///
/// # Errors
/// A subquery.
pub fn replace_columns(expression: &Expr, place: &dyn Fn(&datafusion_common::Column) -> Option<Expr>) -> Result<Expr, String> {
    use datafusion_common::tree_node::{Transformed, TreeNode};
    let subquery = expression.exists(|e| Ok(matches!(e, Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_))));
    if subquery.unwrap_or(false) {
        return Err("has a subquery in its condition, which cannot be asked for each row".into());
    }
    let replaced = expression.clone().unalias().transform(|e| match &e {
        Expr::Column(column) => Ok(place(column).map_or_else(|| Transformed::no(e.clone()), Transformed::yes)),
        _ => Ok(Transformed::no(e)),
    });
    replaced.map(|r| r.data).map_err(|e| e.strip_backtrace())
}

#[cfg(test)]
mod tests;
