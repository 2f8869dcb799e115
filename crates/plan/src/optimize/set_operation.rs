//! `INTERSECT` and `EXCEPT` as a node of their own.
//!
//! DataFusion plans them as semi and anti joins on all columns. That says nothing of `ALL`, under which
//! the result depends on how often each input has a row, and keeps rows that nobody needs: how often
//! either input has each is all there is to know.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use datafusion_common::tree_node::Transformed;
use datafusion_common::{Column, DFSchemaRef, JoinType, NullEquality, Result};
use datafusion_expr::logical_plan::{Extension, Projection};
use datafusion_expr::{Distinct, Expr, ExprSchemable, Join, LogicalPlan, UserDefinedLogicalNodeCore};

use crate::node::as_column;

/// Which set operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SetKind {
    /// Rows that both inputs have.
    Intersect,
    /// Each row as often as the input that has it less often.
    IntersectAll,
    /// Rows of the left input that the right one has not.
    Except,
    /// Each row as often as the left input has it more often than the right one.
    ExceptAll,
}

impl SetKind {
    /// How often the result has a row that the inputs (left, right) have so often.
    pub fn copies(self, [left, right]: [i64; 2]) -> i64 {
        match self {
            SetKind::Intersect => i64::from(left > 0 && right > 0),
            SetKind::IntersectAll => left.min(right),
            SetKind::Except => i64::from(left > 0 && right == 0),
            SetKind::ExceptAll => (left - right).max(0),
        }
    }

    /// Whether the result only ever grows if the inputs do.
    pub fn appends(self) -> bool {
        matches!(self, SetKind::Intersect | SetKind::IntersectAll)
    }
}

/// A set operation on two inputs with columns of the same types; NULLs are equal.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SetNode {
    /// The input whose columns' names the result has.
    pub left: LogicalPlan,
    /// The other one.
    pub right: LogicalPlan,
    /// Which operation.
    pub kind: SetKind,
}

impl PartialOrd for SetNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.kind.partial_cmp(&other.kind)
    }
}

impl fmt::Debug for SetNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_for_explain(f)
    }
}

impl UserDefinedLogicalNodeCore for SetNode {
    fn name(&self) -> &str {
        "SetOperation"
    }
    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.left, &self.right]
    }
    fn schema(&self) -> &DFSchemaRef {
        self.left.schema()
    }
    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }
    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SetOperation: {:?}", self.kind)
    }
    fn with_exprs_and_inputs(&self, _exprs: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        let right = inputs.pop().expect("two inputs");
        Ok(SetNode { left: inputs.pop().expect("two inputs"), right, kind: self.kind })
    }
    /// All columns: they are what is compared.
    fn necessary_children_exprs(&self, _output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let all: Vec<usize> = (0..self.left.schema().fields().len()).collect();
        Some(vec![all.clone(), all])
    }
}

/// Puts a [`SetNode`] in place of each join that is an `INTERSECT` or `EXCEPT`. Only to be called on a
/// plan as the SQL planner makes it: there no other join takes NULLs for equal.
pub(super) fn recognise(plan: LogicalPlan) -> Result<LogicalPlan> {
    let changed = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Join(join) if is_set_operation(&join) => Ok(Transformed::yes(set_operation(join)?)),
        node => Ok(Transformed::no(node)),
    })?;
    if changed.transformed { changed.data.recompute_schema() } else { Ok(changed.data) }
}

fn is_set_operation(join: &Join) -> bool {
    join.null_equality == NullEquality::NullEqualsNull
        && matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.filter.is_none()
        && join.on.len() == join.left.schema().fields().len()
        && join.on.len() == join.right.schema().fields().len()
}

fn set_operation(join: Join) -> Result<LogicalPlan> {
    let Join { left, right, on, join_type, .. } = join;
    // The rows that can come out once are those that can be told apart.
    let (left, distinct) = match left.as_ref() {
        LogicalPlan::Distinct(Distinct::All(input)) => (input.clone(), true),
        _ => (left, false),
    };
    let kind = match (join_type, distinct) {
        (JoinType::LeftSemi, true) => SetKind::Intersect,
        (JoinType::LeftSemi, false) => SetKind::IntersectAll,
        (_, true) => SetKind::Except,
        (_, false) => SetKind::ExceptAll,
    };
    let node = |left: LogicalPlan, right: LogicalPlan| LogicalPlan::Extension(Extension { node: Arc::new(SetNode { left, right, kind }) });
    let plain = on.iter().enumerate().all(|(i, (l, r))| {
        let is = |e: &Expr, schema: &DFSchemaRef| as_column(e).and_then(|c| schema.index_of_column(c).ok()) == Some(i);
        is(l, left.schema()) && is(r, right.schema())
    });
    if plain {
        return Ok(node(Arc::unwrap_or_clone(left), Arc::unwrap_or_clone(right)));
    }
    // Columns of different types are compared as a third one, and given as the left input has them.
    let name = |i: usize| format!("__set{i}");
    let (mut lefts, mut rights) = (Vec::new(), Vec::new());
    for (i, (l, r)) in on.into_iter().enumerate() {
        lefts.push(l.alias(name(i)));
        rights.push(r.alias(name(i)));
    }
    let schema = left.schema().clone();
    let common =
        node(LogicalPlan::Projection(Projection::try_new(lefts, left)?), LogicalPlan::Projection(Projection::try_new(rights, right)?));
    let mut outputs = Vec::new();
    for (i, (qualifier, field)) in schema.iter().enumerate() {
        let column = Expr::Column(Column::new_unqualified(name(i)));
        outputs.push(column.cast_to(field.data_type(), common.schema().as_ref())?.alias_qualified(qualifier.cloned(), field.name()));
    }
    Ok(LogicalPlan::Projection(Projection::try_new(outputs, Arc::new(common))?))
}
