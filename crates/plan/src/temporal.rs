//! Temporal joins: `JOIN t FOR SYSTEM_TIME AS OF a.rt ON …`.
//!
//! [`TemporalJoinNode`] is the logical node, [`as_of`] the call that stands for the clause in a join's
//! condition between parsing and planning, [`versioned`] finds out which rows of a plan are versions of
//! what: the key and the time come from a table's PRIMARY KEY and WATERMARK, or from a view that keeps
//! the newest row of a key. Not here: how it is executed.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, LazyLock};

use arrow::datatypes::DataType;
use datafusion_common::{Column, DFSchemaRef, DataFusionError, Result, ScalarValue, plan_err};
use datafusion_expr::expr::WindowFunction;
use datafusion_expr::{
    BinaryExpr, ColumnarValue, Expr, Extension, JoinType, LogicalPlan, Operator, Projection, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, SubqueryAlias, UserDefinedLogicalNodeCore, Volatility, WindowFunctionDefinition, build_join_schema, lit,
};

use crate::catalog::RawTable;
use crate::node::{WatermarkNode, as_column};

/// The name of the call [`as_of`].
pub const AS_OF: &str = "__as_of";

/// A call `__as_of(time, start, end)` in the condition of a join says that its right side is meant as of
/// `time`, and where in the script that is written (bytes). The planner takes it out again; it is never
/// evaluated.
pub fn as_of() -> Arc<ScalarUDF> {
    static CALL: LazyLock<Arc<ScalarUDF>> =
        LazyLock::new(|| Arc::new(ScalarUDF::new_from_impl(AsOf { signature: Signature::variadic_any(Volatility::Volatile) })));
    CALL.clone()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct AsOf {
    signature: Signature,
}

impl ScalarUDFImpl for AsOf {
    fn name(&self) -> &str {
        AS_OF
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }
    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        plan_err!("FOR SYSTEM_TIME AS OF cannot be used here; it belongs behind the table of a JOIN")
    }
}

/// Joins each row of the left side with the version of its key that was valid at the row's time.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TemporalJoinNode {
    /// The rows.
    pub left: LogicalPlan,
    /// The versions.
    pub right: LogicalPlan,
    /// INNER or LEFT.
    pub join_type: JoinType,
    /// The column of `left` with the time at which a version must be valid.
    pub time: Expr,
    /// The column of `right` with the time from which a version is valid.
    pub version: Expr,
    /// The columns of `right` that say what a row is a version of.
    pub key: Vec<Expr>,
    /// The condition, over both sides.
    pub condition: Expr,
    schema: DFSchemaRef,
}

impl TemporalJoinNode {
    /// A join of `left` with the versions `right`.
    ///
    /// # Errors
    /// Times of different types, columns that are not there, a join that is neither INNER nor LEFT.
    pub fn try_new(
        left: LogicalPlan,
        right: LogicalPlan,
        join_type: JoinType,
        time: Expr,
        version: Expr,
        key: Vec<Expr>,
        condition: Expr,
    ) -> Result<Self> {
        if !matches!(join_type, JoinType::Inner | JoinType::Left) {
            return plan_err!("a temporal join (FOR SYSTEM_TIME AS OF) is an INNER or a LEFT JOIN");
        }
        let schema = Arc::new(build_join_schema(left.schema(), right.schema(), &join_type)?);
        let node = TemporalJoinNode { left, right, join_type, time, version, key, condition, schema };
        let types = [(node.time_index()?, node.left.schema()), (node.version_index()?, node.right.schema())]
            .map(|(index, schema)| schema.field(index).data_type().clone());
        if types[0] != types[1] {
            return plan_err!(
                "FOR SYSTEM_TIME AS OF {}: the times of both sides must be of one type, they are {} and {}",
                node.time,
                types[0],
                types[1]
            );
        }
        Ok(node)
    }

    /// Index of the time in `left`.
    ///
    /// # Errors
    /// It is not a column.
    pub fn time_index(&self) -> Result<usize> {
        index(&self.time, self.left.schema())
    }

    /// Index of the version's time in `right`.
    ///
    /// # Errors
    /// It is not a column.
    pub fn version_index(&self) -> Result<usize> {
        index(&self.version, self.right.schema())
    }

    /// Indices of the key in `right`.
    ///
    /// # Errors
    /// Not all are columns.
    pub fn key_indices(&self) -> Result<Vec<usize>> {
        self.key.iter().map(|k| index(k, self.right.schema())).collect()
    }
}

fn index(expression: &Expr, schema: &DFSchemaRef) -> Result<usize> {
    match as_column(expression) {
        Some(column) => schema.index_of_column(column),
        None => plan_err!("FOR SYSTEM_TIME AS OF takes an event-time column of the left side, not {expression}"),
    }
}

impl PartialOrd for TemporalJoinNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.left.partial_cmp(&other.left)
    }
}

impl fmt::Debug for TemporalJoinNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_for_explain(f)
    }
}

impl UserDefinedLogicalNodeCore for TemporalJoinNode {
    fn name(&self) -> &str {
        "TemporalJoin"
    }
    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.left, &self.right]
    }
    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }
    fn expressions(&self) -> Vec<Expr> {
        [&self.time, &self.version, &self.condition].into_iter().chain(&self.key).cloned().collect()
    }
    /// A filter must not reach the versions: one that is filtered out would leave the one before valid.
    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        self.schema.fields().iter().map(|f| f.name().clone()).collect()
    }
    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key: Vec<String> = self.key.iter().map(ToString::to_string).collect();
        write!(
            f,
            "TemporalJoin: {} ON {} AS OF {} IN versions BY {} FROM {}",
            self.join_type,
            self.condition,
            self.time,
            key.join(", "),
            self.version
        )
    }
    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        // Rewriting rules put the old name over what they changed; names do not matter here.
        let mut exprs = exprs.into_iter().map(Expr::unalias);
        let mut next = || exprs.next().expect("time, version and condition");
        let (time, version, condition) = (next(), next(), next());
        let right = inputs.pop().expect("two inputs");
        let left = inputs.pop().expect("two inputs");
        TemporalJoinNode::try_new(left, right, self.join_type, time, version, exprs.collect(), condition)
    }
    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let width = self.left.schema().fields().len();
        let (mut left, mut right): (Vec<usize>, Vec<usize>) = output_columns.iter().partition(|c| **c < width);
        right.iter_mut().for_each(|c| *c -= width);
        for expression in self.expressions() {
            for column in expression.column_refs() {
                match self.left.schema().maybe_index_of_column(column) {
                    Some(index) => left.push(index),
                    None => right.push(self.right.schema().maybe_index_of_column(column)?),
                }
            }
        }
        for needed in [&mut left, &mut right] {
            needed.sort_unstable();
            needed.dedup();
        }
        Some(vec![left, right])
    }
}

/// A plan whose rows are versions.
pub struct Versioned {
    /// The plan. In the place of a view that keeps the newest row of a key stand all of its rows: they
    /// are the versions.
    pub plan: LogicalPlan,
    /// The columns that say what a row is a version of.
    pub key: Vec<usize>,
    /// The column that says from when it is valid.
    pub time: usize,
}

/// The rows of a plan as versions: those of a table with PRIMARY KEY and WATERMARK, also through views
/// that pass key and time on, or of a view of the form `SELECT … FROM (SELECT …, ROW_NUMBER() OVER
/// (PARTITION BY key ORDER BY rt DESC) AS n FROM …) WHERE n = 1`.
///
/// # Errors
/// What it lacks, as the end of a sentence that begins with what was to be joined.
pub fn versioned(plan: &LogicalPlan) -> Result<Versioned, String> {
    let found = find(plan)?;
    match found.time {
        Some(time) => Ok(Versioned { plan: found.plan, key: found.key, time }),
        None => Err("has no WATERMARK: the time from which a version is valid must be event time".into()),
    }
}

const NOT_VERSIONED: &str = "is not a versioned table: that is a table with PRIMARY KEY and WATERMARK, or a view that keeps the newest row \
    of a key by ROW_NUMBER() OVER (PARTITION BY key ORDER BY rt DESC) = 1";

struct Found {
    plan: LogicalPlan,
    key: Vec<usize>,
    time: Option<usize>,
}

fn failed(e: DataFusionError) -> String {
    e.strip_backtrace()
}

fn find(plan: &LogicalPlan) -> Result<Found, String> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            let Some(raw) = scan.source.downcast_ref::<RawTable>() else { return Err("is not a declared table".into()) };
            if raw.table.primary_key.is_empty() {
                return Err("has no PRIMARY KEY … NOT ENFORCED: it says what the rows are versions of".into());
            }
            let place = |name: &String| plan.schema().fields().iter().position(|f| f.name() == name);
            let key = raw.table.primary_key.iter().map(place).collect::<Option<Vec<_>>>();
            Ok(Found { plan: plan.clone(), key: key.ok_or("has a PRIMARY KEY that is not read from it")?, time: None })
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let found = find(&alias.input)?;
            let plan = SubqueryAlias::try_new(Arc::new(found.plan), alias.alias.clone()).map_err(failed)?;
            Ok(Found { plan: LogicalPlan::SubqueryAlias(plan), ..found })
        }
        LogicalPlan::Projection(projection) => {
            let found = find(&projection.input)?;
            let schema = projection.input.schema();
            let origin: Vec<Option<usize>> =
                projection.expr.iter().map(|e| as_column(e).and_then(|c| schema.index_of_column(c).ok())).collect();
            let place = |column: &usize| origin.iter().position(|o| *o == Some(*column));
            let key = found.key.iter().map(place).collect::<Option<Vec<_>>>();
            let key = key.ok_or("does not pass on the columns of the primary key")?;
            let time = match found.time {
                Some(time) => Some(place(&time).ok_or("does not pass on the event time")?),
                None => None,
            };
            let plan = Projection::try_new(projection.expr.clone(), Arc::new(found.plan)).map_err(failed)?;
            Ok(Found { plan: LogicalPlan::Projection(plan), key, time })
        }
        LogicalPlan::Extension(extension) => {
            let Some(watermark) = extension.node.as_any().downcast_ref::<WatermarkNode>() else {
                return Err(NOT_VERSIONED.into());
            };
            let found = find(&watermark.input)?;
            let time = index(&watermark.column, watermark.input.schema()).map_err(failed)?;
            let node = WatermarkNode::new(found.plan, watermark.column.clone(), watermark.strategy.clone());
            Ok(Found { plan: LogicalPlan::Extension(Extension { node: Arc::new(node) }), key: found.key, time: Some(time) })
        }
        LogicalPlan::Filter(filter) => {
            if let Some(newest) = newest_of_key(&filter.predicate, &filter.input)? {
                return Ok(newest);
            }
            let found = find(&filter.input)?;
            // Which keys there are may be chosen; a version left out would leave the one before valid.
            let schema = filter.input.schema();
            let of_key = filter.predicate.column_refs().iter().all(|c| schema.index_of_column(c).is_ok_and(|i| found.key.contains(&i)));
            if !of_key {
                return Err("filters its versions by other columns than the key; put the condition into the ON of the join".into());
            }
            let plan = datafusion_expr::Filter::try_new(filter.predicate.clone(), Arc::new(found.plan)).map_err(failed)?;
            Ok(Found { plan: LogicalPlan::Filter(plan), ..found })
        }
        _ => Err(NOT_VERSIONED.into()),
    }
}

/// The versions behind `n = 1` over a ROW_NUMBER by a key and a descending time.
fn newest_of_key(predicate: &Expr, input: &LogicalPlan) -> Result<Option<Found>, String> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = predicate else { return Ok(None) };
    let (column, bound) = match (as_column(left), as_column(right)) {
        (Some(column), None) => (column, number(right)),
        (None, Some(column)) if *op == Operator::Eq => (column, number(left)),
        _ => return Ok(None),
    };
    let first = matches!((op, bound), (Operator::Eq | Operator::LtEq, Some(1)) | (Operator::Lt, Some(2)));
    let Ok(index) = input.schema().index_of_column(column) else { return Ok(None) };
    if !first {
        return Ok(None);
    }
    numbered(input, index)
}

fn number(expression: &Expr) -> Option<i64> {
    match expression {
        Expr::Literal(value, _) => match value.cast_to(&DataType::Int64) {
            Ok(ScalarValue::Int64(n)) => n,
            _ => None,
        },
        Expr::Cast(cast) => number(&cast.expr),
        Expr::Alias(alias) => number(&alias.expr),
        _ => None,
    }
}

/// The versions, if column `index` of `plan` is their number within the key, newest first. The column
/// itself becomes a 1.
fn numbered(plan: &LogicalPlan, column: usize) -> Result<Option<Found>, String> {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => {
            let Some(found) = numbered(&alias.input, column)? else { return Ok(None) };
            let plan = SubqueryAlias::try_new(Arc::new(found.plan), alias.alias.clone()).map_err(failed)?;
            Ok(Some(Found { plan: LogicalPlan::SubqueryAlias(plan), ..found }))
        }
        LogicalPlan::Projection(projection) => {
            let schema = projection.input.schema();
            let origin: Vec<Option<usize>> = projection
                .expr
                .iter()
                .map(|e| {
                    let inner = match e.clone().unalias() {
                        // The number may have been given another integer type.
                        Expr::Cast(cast) => cast.expr.as_ref().clone(),
                        other => other,
                    };
                    as_column(&inner).and_then(|c| schema.index_of_column(c).ok())
                })
                .collect();
            let Some(below) = origin[column] else { return Ok(None) };
            let Some(found) = numbered(&projection.input, below)? else { return Ok(None) };
            let plain = |e: &Expr| as_column(e).is_some();
            let place = |wanted: &usize| origin.iter().zip(&projection.expr).position(|(o, e)| *o == Some(*wanted) && plain(e));
            let key = found.key.iter().map(place).collect::<Option<Vec<_>>>().ok_or("does not pass on the columns of PARTITION BY")?;
            let time = found.time.as_ref().map(|t| place(t).ok_or("does not pass on the column of ORDER BY")).transpose()?;
            let plan = Projection::try_new(projection.expr.clone(), Arc::new(found.plan)).map_err(failed)?;
            Ok(Some(Found { plan: LogicalPlan::Projection(plan), key, time }))
        }
        LogicalPlan::Window(window) => {
            let width = window.input.schema().fields().len();
            let [function] = window.window_expr.as_slice() else { return Ok(None) };
            let Expr::WindowFunction(function) = function.clone().unalias() else { return Ok(None) };
            let WindowFunction { fun: WindowFunctionDefinition::WindowUDF(udf), params } = *function else { return Ok(None) };
            if column != width || udf.name() != "row_number" {
                return Ok(None);
            }
            let schema = window.input.schema();
            let place = |e: &Expr| as_column(e).and_then(|c| schema.index_of_column(c).ok());
            let [by] = params.order_by.as_slice() else { return Ok(None) };
            let (Some(key), Some(time), false) =
                (params.partition_by.iter().map(place).collect::<Option<Vec<_>>>(), place(&by.expr), by.asc)
            else {
                return Ok(None);
            };
            let number = window.schema.field(width);
            let one = ScalarValue::new_one(number.data_type()).map_err(failed)?;
            let columns = schema.iter().map(|(q, f)| Expr::Column(Column::from((q, f))));
            let one = lit(one).alias_qualified(window.schema.qualified_field(width).0.cloned(), number.name());
            let plan = Projection::try_new(columns.chain([one]).collect(), window.input.clone()).map_err(failed)?;
            Ok(Some(Found { plan: LogicalPlan::Projection(plan), key, time: Some(time) }))
        }
        _ => Ok(None),
    }
}
