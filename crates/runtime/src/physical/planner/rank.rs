//! Plans rankings: a filter that bounds `ROW_NUMBER`, `RANK` or `DENSE_RANK`, as `WHERE`, `QUALIFY`, or
//! `ORDER BY … LIMIT` leave it. In windows it is a window Top-N, by event time a deduplication, else a
//! Top-N. Numbering without a bound is `OVER`'s.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion_common::{Column, DFSchema, ScalarValue};
use datafusion_expr::expr::{BinaryExpr, WindowFunction};
use datafusion_expr::expr_rewriter::replace_col;
use datafusion_expr::utils::{conjunction, split_conjunction};
use datafusion_expr::{
    Expr as Logical, ExprSchemable, Filter, LogicalPlan, Operator as BinaryOperator, Projection, SortExpr, Window, WindowFunctionDefinition,
};
use tidemill_operator::Operator;
use tidemill_operator::map::Expr;
use tidemill_operator::rank::dedup::KeepFirst;
use tidemill_operator::rank::keep_last::KeepLast;
use tidemill_operator::rank::topn::TopN;
use tidemill_operator::rank::window_topn::WindowTopN;
use tidemill_operator::rank::{RankFunction, RankSpec, Ties};
use tidemill_plan::node::as_column;
use tidemill_plan::{WindowKind, WindowNode};
use tidemill_state::hash;

use super::{Bounds, Planner, Rel, Wanted};
use crate::JobError;
use crate::physical::aggregate::{bind, bind_all};
use crate::physical::{Factory, NodeKind, Ship};

/// A bounded ranking in a logical plan.
pub(super) struct Ranking<'p> {
    pub(super) window: &'p Window,
    pub(super) call: &'p WindowFunction,
    function: RankFunction,
    ranks: Range,
    /// What else the filter asks.
    rest: Option<Logical>,
}

/// Ranks that a condition lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    from: i128,
    to: i128,
    /// All of them pass; else the condition must still be looked at.
    exact: bool,
}

const ANY: Range = Range { from: 1, to: i128::MAX, exact: true };

/// What is to be ranked, bound to the columns of the input.
pub(super) struct Top {
    /// Identifies the ranking in the job, for the id of its state.
    pub id: String,
    pub keys: Vec<Expr>,
    pub key_types: Vec<DataType>,
    pub order: Vec<(Expr, SortOptions)>,
    pub order_types: Vec<DataType>,
    pub function: RankFunction,
    pub from: u64,
    pub to: u64,
    /// The rank is emitted under the last name of `schema`.
    pub rank_column: bool,
    pub schema: SchemaRef,
}

impl Planner<'_> {
    /// Plans a filter if it bounds a rank.
    pub(super) fn rank(&mut self, plan: &LogicalPlan, filter: &Filter, wanted: Wanted) -> Result<Option<Rel>, JobError> {
        if let Some(ranking) = Ranking::find(filter) {
            return self.ranking(plan, filter, &ranking, true, wanted);
        }
        match filter.input.as_ref() {
            LogicalPlan::Projection(projection) => match below(filter, projection)? {
                Some(swapped) => self.rel(&swapped, wanted).map(Some),
                None => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// Plans what is below a projection if it is a ranking whose rank the projection leaves out: then
    /// ranks that shift are no updates. The result lacks the column of the rank, the last.
    pub(super) fn rank_unseen(&mut self, projection: &Projection, wanted: Wanted) -> Result<Option<Rel>, JobError> {
        let mut plan = projection.input.as_ref();
        while let LogicalPlan::SubqueryAlias(alias) = plan {
            plan = &alias.input;
        }
        let LogicalPlan::Filter(filter) = plan else { return Ok(None) };
        let Some(ranking) = Ranking::find(filter) else { return Ok(None) };
        if ranking.is_seen(filter, projection) {
            return Ok(None);
        }
        let key = (format!("{}\nwithout its rank", self.text(plan)), wanted);
        if let Some(rel) = self.planned.get(&key) {
            return Ok(Some(rel.clone()));
        }
        let rel = self.ranking(plan, filter, &ranking, false, wanted)?;
        if let Some(rel) = &rel {
            if self.graph.nodes[rel.node].id.is_empty() {
                self.graph.nodes[rel.node].id = format!("filter:{:016x}", hash::bytes(key.0.as_bytes()));
            }
            self.planned.insert(key, rel.clone());
        }
        Ok(rel)
    }

    fn ranking(
        &mut self,
        plan: &LogicalPlan,
        filter: &Filter,
        ranking: &Ranking<'_>,
        rank_column: bool,
        wanted: Wanted,
    ) -> Result<Option<Rel>, JobError> {
        let Ranking { window, call, function, ranks, rest } = ranking;
        let (below, params) = (&window.input, &call.params);
        let width = below.schema().fields().len();
        if width == 0 {
            return Ok(None);
        }
        let all: SchemaRef = Arc::new(window.schema.as_arrow().clone());
        let schema = if rank_column { all } else { Arc::new(all.project(&(0..width).collect::<Vec<_>>()).map_err(JobError::failed)?) };
        if ranks.to < ranks.from {
            return self.values(RecordBatch::new_empty(schema)).map(Some);
        }
        let all_changes = Wanted { fold: wanted.fold, update_before: true, paired: false };
        let first_only = (ranks.from, ranks.to) == (1, 1);
        let best = if first_only { self.best_pairs(below, &params.partition_by, &params.order_by[0], all_changes)? } else { None };
        let input = match best {
            Some(input) => input,
            None => self.rel(below, all_changes)?,
        };
        let (order, order_types) = bind_order(&params.order_by, below.schema())?;
        let keys = bind_all(&params.partition_by, below.schema())?;
        let text = format!("{rank_column} {}", self.text(plan));
        let mut top = Top {
            id: format!("{:016x}", hash::bytes(text.as_bytes())),
            key_types: types(&keys, below.schema())?,
            keys,
            order,
            order_types,
            function: *function,
            from: ranks.from as u64,
            to: ranks.to.min(i64::MAX as i128) as u64,
            rank_column,
            schema,
        };
        let by_time = match params.order_by.as_slice() {
            [by] if *function == RankFunction::RowNumber && (top.from, top.to) == (1, 1) && !input.updating => {
                let column = as_column(&by.expr).and_then(|c| below.schema().index_of_column(c).ok());
                column.filter(|c| input.time[*c]).map(|column| (column, by.asc))
            }
            _ => None,
        };
        let partition: Vec<Option<usize>> =
            params.partition_by.iter().map(|e| as_column(e).and_then(|c| below.schema().index_of_column(c).ok())).collect();
        let below_rest = if rest.is_some() { wanted.whole_updates() } else { wanted };
        let rel = match (windows(below, &partition, &input), by_time) {
            (Some(found), _) => {
                // Windows that end together are the same, unless they are sessions.
                let start = (!matches!(found.bounds.kind, WindowKind::Session { .. })).then_some(found.bounds.start);
                let kept: Vec<usize> = (0..partition.len())
                    .filter(|i| partition[*i].is_none_or(|c| c != found.bounds.end && Some(c) != start && !found.again.contains(&c)))
                    .collect();
                top.keys = kept.iter().map(|i| top.keys[*i].clone()).collect();
                top.key_types = kept.iter().map(|i| top.key_types[*i].clone()).collect();
                self.window_top(top, &input, &found, matches!(by_time, Some((_, false))))?
            }
            (None, Some((column, asc))) => self.deduplicate(top, &input, column, asc, below_rest)?,
            (None, None) => self.top(top, &input, below_rest)?,
        };
        let Some(rest) = rest else { return Ok(Some(rel)) };
        let node = self.filtered(&rel, bind(rest, filter.input.schema())?, wanted)?;
        Ok(Some(Rel { node, ..rel }))
    }

    /// Plans a Top-N: its result is updated.
    pub(super) fn top(&mut self, top: Top, input: &Rel, wanted: Wanted) -> Result<Rel, JobError> {
        let id = format!("topn:{}", top.id);
        let retracts = input.updating;
        let ties = if retracts || !self.in_source_order(input.node) { Ties::Contents } else { Ties::First };
        let (spec, ship) = self.rank_spec(top, input, ties, retracts);
        let declared = spec.schema.clone();
        let (single, time) = (spec.keys.is_empty(), times(&spec, &input.time));
        let factory: Factory =
            Arc::new(move || Ok(Box::new(TopN::new(spec.clone(), wanted.fold, wanted.update_before)?) as Box<dyn Operator>));
        let node = self.operator("TopN", id, input, ship, declared, factory)?;
        Ok(Rel { node, time, updating: true, single, window: None })
    }

    /// Plans a ranking in windows: each leaves once, when it ends.
    fn window_top(&mut self, top: Top, input: &Rel, found: &InWindows, last: bool) -> Result<Rel, JobError> {
        let id = format!("windowtopn:{}", top.id);
        let ties = match self.in_source_order(input.node) {
            false => Ties::Contents,
            true if last => Ties::Last,
            true => Ties::First,
        };
        let (spec, ship) = self.rank_spec(top, input, ties, false);
        let declared = spec.schema.clone();
        let single = spec.keys.is_empty();
        let time = times(&spec, found.time.as_ref().unwrap_or(&input.time));
        let end = found.bounds.end;
        let factory: Factory = Arc::new(move || Ok(Box::new(WindowTopN::new(spec.clone(), end)?) as Box<dyn Operator>));
        let node = self.operator("WindowTopN", id, input, ship, declared, factory)?;
        Ok(Rel { node, time, updating: false, single, window: Some(found.bounds) })
    }

    /// Plans the choice of one row a key by event time: the first (append-only) or the last.
    fn deduplicate(&mut self, top: Top, input: &Rel, column: usize, first: bool, wanted: Wanted) -> Result<Rel, JobError> {
        let id = format!("deduplicate:{}", top.id);
        let ties = match self.in_source_order(input.node) {
            false => Ties::Contents,
            true if first => Ties::First,
            true => Ties::Last,
        };
        let (spec, ship) = self.rank_spec(top, input, ties, false);
        let declared = spec.schema.clone();
        let (single, time) = (spec.keys.is_empty(), times(&spec, &input.time));
        let factory: Factory = Arc::new(move || {
            Ok(match first {
                true => Box::new(KeepFirst::new(spec.clone(), column)?) as Box<dyn Operator>,
                false => Box::new(KeepLast::new(spec.clone(), column, wanted.fold, wanted.update_before)?),
            })
        });
        let node = self.operator("Deduplicate", id, input, ship, declared, factory)?;
        Ok(Rel { node, time, updating: !first, single, window: None })
    }

    fn rank_spec(&self, top: Top, input: &Rel, ties: Ties, retracts: bool) -> (RankSpec, Ship) {
        let ship = if top.keys.is_empty() { Ship::Single } else { Ship::Hash(top.keys.clone()) };
        let Top { keys, key_types, order, order_types, function, from, to, rank_column, schema, .. } = top;
        let input = self.schema(input.node);
        (RankSpec { keys, key_types, order, order_types, function, from, to, ties, retracts, rank_column, input, schema }, ship)
    }

    /// Whether rows come in the order in which a source gave them: nothing above it changes the shard.
    fn in_source_order(&self, node: usize) -> bool {
        let node = &self.graph.nodes[node];
        match &node.kind {
            NodeKind::Source(_) | NodeKind::Values(_) => true,
            NodeKind::Operator(_) => {
                matches!(node.name.as_str(), "Map" | "Filter" | "WindowAssign")
                    && node.inputs.iter().all(|edge| matches!(edge.ship, Ship::Forward) && self.in_source_order(edge.from))
            }
            NodeKind::Union | NodeKind::Sink(_) => false,
        }
    }
}

/// Binds `ORDER BY`: expressions, how they sort, their types.
pub(super) fn bind_order(order: &[SortExpr], schema: &DFSchema) -> Result<(Vec<(Expr, SortOptions)>, Vec<DataType>), JobError> {
    let options = |by: &SortExpr| SortOptions { descending: !by.asc, nulls_first: by.nulls_first };
    let bound = order.iter().map(|by| Ok((bind(&by.expr, schema)?, options(by)))).collect::<Result<_, JobError>>()?;
    let types = order.iter().map(|by| Ok(by.expr.get_type(schema)?)).collect::<Result<_, JobError>>()?;
    Ok((bound, types))
}

fn types(expressions: &[Expr], schema: &DFSchema) -> Result<Vec<DataType>, JobError> {
    expressions.iter().map(|e| Ok(e.data_type(schema.as_arrow())?)).collect()
}

/// Which columns remain event time; the rank is none.
fn times(spec: &RankSpec, input: &[bool]) -> Vec<bool> {
    let mut time = input.to_vec();
    time.resize(spec.schema.fields().len(), false);
    time
}

/// Windows whose rows are ranked.
struct InWindows {
    bounds: Bounds,
    /// Other columns that repeat a bound.
    again: Vec<usize>,
    /// The columns that are event time when a window has ended, if they are others than before: of
    /// rows that waited for that end, only the window's own time is.
    time: Option<Vec<bool>>,
}

/// The windows that rows of `plan` stand in, if both bounds are among the columns `partition`.
fn windows(plan: &LogicalPlan, partition: &[Option<usize>], input: &Rel) -> Option<InWindows> {
    if input.updating {
        return None;
    }
    let has = |column: &usize| partition.contains(&Some(*column));
    let origins: Vec<Option<(usize, WindowKind)>> = (0..plan.schema().fields().len()).map(|i| window_column(plan, i)).collect();
    let find = |which: usize| (0..origins.len()).filter(has).find(|i| origins[*i].is_some_and(|(w, _)| w == which));
    if let (Some(start), Some(end)) = (find(0), find(1)) {
        let (_, kind) = origins[end]?;
        let again = (0..origins.len()).filter(|i| origins[*i].is_some_and(|(which, _)| which < 2)).collect();
        let time = origins.iter().map(|o| o.is_some_and(|(which, _)| which == 2)).collect();
        return Some(InWindows { bounds: Bounds { start, end, kind }, again, time: Some(time) });
    }
    let bounds = input.window.filter(|w| has(&w.start) && has(&w.end))?;
    Some(InWindows { bounds, again: Vec::new(), time: None })
}

/// Which column of a window table function (0, 1, 2: start, end, time) a column of its rows is.
fn window_column(plan: &LogicalPlan, column: usize) -> Option<(usize, WindowKind)> {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => window_column(&alias.input, column),
        LogicalPlan::Filter(filter) => window_column(&filter.input, column),
        LogicalPlan::Projection(projection) => {
            let below = as_column(projection.expr.get(column)?)?;
            window_column(&projection.input, projection.input.schema().index_of_column(below).ok()?)
        }
        LogicalPlan::Extension(extension) => {
            let node = extension.node.as_any().downcast_ref::<WindowNode>()?;
            Some((column.checked_sub(node.input.schema().fields().len())?, node.kind))
        }
        _ => None,
    }
}

/// A projection on a bound of a rank, without the projection that the optimiser puts below the bound where
/// the ranking needs columns that nobody else does: only then does it show whether the rank is left out.
pub(super) fn upon_ranking(projection: &Projection) -> Result<Option<LogicalPlan>, JobError> {
    let mut plan = projection.input.as_ref();
    while let LogicalPlan::SubqueryAlias(alias) = plan {
        plan = &alias.input;
    }
    let LogicalPlan::Filter(filter) = plan else { return Ok(None) };
    let LogicalPlan::Projection(inner) = filter.input.as_ref() else { return Ok(None) };
    let Some(LogicalPlan::Projection(inner)) = below(filter, inner)? else { return Ok(None) };
    let mut names: HashMap<Column, Column> = HashMap::new();
    for column in projection.expr.iter().flat_map(Logical::column_refs) {
        let expression = &inner.expr[projection.input.schema().index_of_column(column)?];
        let Some(origin) = as_column(expression) else { return Ok(None) };
        names.insert(column.clone(), origin.clone());
    }
    let names: HashMap<&Column, &Column> = names.iter().collect();
    let expressions = projection.expr.iter().map(|e| Ok(replace_col(e.clone(), &names)?)).collect::<Result<_, JobError>>()?;
    let merged = Projection::try_new_with_schema(expressions, inner.input.clone(), projection.schema.clone())?;
    Ok(Some(LogicalPlan::Projection(merged)))
}

/// The filter moved below the projections that it stands on, if it looks at nothing but columns there
/// and then bounds a rank.
pub(super) fn below(filter: &Filter, projection: &Projection) -> Result<Option<LogicalPlan>, JobError> {
    let mut names: HashMap<Column, Column> = HashMap::new();
    for column in filter.predicate.column_refs() {
        let expression = &projection.expr[projection.schema.index_of_column(column)?];
        let Some(origin) = as_column(expression) else { return Ok(None) };
        names.insert(column.clone(), origin.clone());
    }
    let names: HashMap<&Column, &Column> = names.iter().collect();
    let moved = Filter::try_new(replace_col(filter.predicate.clone(), &names)?, projection.input.clone())?;
    let input = match moved.input.as_ref() {
        _ if Ranking::find(&moved).is_some() => LogicalPlan::Filter(moved),
        LogicalPlan::Projection(next) => match below(&moved, next)? {
            Some(plan) => plan,
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    let swapped = Projection::try_new_with_schema(projection.expr.clone(), Arc::new(input), projection.schema.clone())?;
    Ok(Some(LogicalPlan::Projection(swapped)))
}

impl<'p> Ranking<'p> {
    /// Whether it gives one row for each partition.
    pub(super) fn is_first_only(&self) -> bool {
        self.function == RankFunction::RowNumber && (self.ranks.from, self.ranks.to) == (1, 1)
    }

    /// Whether a projection above, or what the filter asks beside the bounds, looks at the rank.
    pub(super) fn is_seen(&self, filter: &Filter, projection: &Projection) -> bool {
        let rank = self.window.input.schema().fields().len();
        let above = projection.expr.iter().map(|e| (e, projection.input.schema()));
        let beside = self.rest.iter().map(|e| (e, filter.input.schema()));
        above.chain(beside).any(|(e, schema)| e.column_refs().iter().any(|c| schema.index_of_column(c).is_ok_and(|i| i == rank)))
    }

    /// The ranking that a filter bounds, if the filter stands on one.
    pub(super) fn find(filter: &'p Filter) -> Option<Self> {
        let mut input = filter.input.as_ref();
        while let LogicalPlan::SubqueryAlias(alias) = input {
            input = &alias.input;
        }
        let LogicalPlan::Window(window) = input else { return None };
        let [expression] = window.window_expr.as_slice() else { return None };
        let call = window_function(expression)?;
        let WindowFunctionDefinition::WindowUDF(udf) = &call.fun else { return None };
        let function = match udf.name() {
            "row_number" => RankFunction::RowNumber,
            "rank" => RankFunction::Rank,
            "dense_rank" => RankFunction::DenseRank,
            _ => return None,
        };
        if call.params.order_by.is_empty() {
            return None;
        }
        let (rank, schema) = (window.input.schema().fields().len(), filter.input.schema());
        let is_rank = |e: &Logical| as_column(e).is_some_and(|c| schema.index_of_column(c).is_ok_and(|i| i == rank));
        let mut ranks = ANY;
        let mut rest = Vec::new();
        for condition in split_conjunction(&filter.predicate) {
            let range = range(condition, &is_rank);
            if let Some(range) = range {
                ranks = ranks.and(range);
            }
            if !range.is_some_and(|r| r.exact) {
                rest.push(condition.clone());
            }
        }
        // Without a last rank there is nothing that may be forgotten.
        (ranks.to < i128::MAX).then(|| Ranking { window, call, function, ranks, rest: conjunction(rest) })
    }
}

fn window_function(expression: &Logical) -> Option<&WindowFunction> {
    match expression {
        Logical::WindowFunction(function) => Some(function),
        Logical::Alias(alias) => window_function(&alias.expr),
        _ => None,
    }
}

impl Range {
    fn and(self, other: Range) -> Range {
        Range { from: self.from.max(other.from), to: self.to.min(other.to), exact: self.exact && other.exact }
    }
}

/// What a condition says of the rank; `None` if nothing.
fn range(condition: &Logical, is_rank: &dyn Fn(&Logical) -> bool) -> Option<Range> {
    match condition {
        Logical::BinaryExpr(BinaryExpr { left, op: BinaryOperator::And, right }) => {
            match (range(left, is_rank), range(right, is_rank)) {
                (Some(a), Some(b)) => Some(a.and(b)),
                // The other side asks something else.
                (Some(one), None) | (None, Some(one)) => Some(Range { exact: false, ..one }),
                (None, None) => None,
            }
        }
        Logical::BinaryExpr(BinaryExpr { left, op: BinaryOperator::Or, right }) => {
            let (a, b) = (range(left, is_rank)?, range(right, is_rank)?);
            Some(Range { from: a.from.min(b.from), to: a.to.max(b.to), exact: false })
        }
        Logical::BinaryExpr(BinaryExpr { left, op, right }) => {
            let (op, bound) = if is_rank(uncast(left)) {
                (*op, whole(right)?)
            } else if is_rank(uncast(right)) {
                (op.swap()?, whole(left)?)
            } else {
                return None;
            };
            Some(match op {
                BinaryOperator::Eq => Range { from: bound.max(1), to: bound, exact: true },
                BinaryOperator::LtEq => Range { to: bound, ..ANY },
                BinaryOperator::Lt => Range { to: bound - 1, ..ANY },
                BinaryOperator::GtEq => Range { from: bound.max(1), ..ANY },
                BinaryOperator::Gt => Range { from: (bound + 1).max(1), ..ANY },
                _ => return None,
            })
        }
        Logical::Between(between) if !between.negated && is_rank(uncast(&between.expr)) => {
            Some(Range { from: whole(&between.low)?.max(1), to: whole(&between.high)?, exact: true })
        }
        Logical::InList(list) if !list.negated && is_rank(uncast(&list.expr)) => {
            let ranks = list.list.iter().map(whole).collect::<Option<Vec<_>>>()?;
            Some(Range { from: (*ranks.iter().min()?).max(1), to: *ranks.iter().max()?, exact: false })
        }
        _ => None,
    }
}

/// An expression without the casts around it: those of a rank keep its value.
fn uncast(expression: &Logical) -> &Logical {
    match expression {
        Logical::Cast(cast) if cast.field.data_type().is_numeric() => uncast(&cast.expr),
        Logical::TryCast(cast) if cast.field.data_type().is_numeric() => uncast(&cast.expr),
        other => other,
    }
}

/// A literal that is a whole number.
fn whole(expression: &Logical) -> Option<i128> {
    let Logical::Literal(value, _) = uncast(expression) else { return None };
    match value {
        ScalarValue::Int8(Some(v)) => Some((*v).into()),
        ScalarValue::Int16(Some(v)) => Some((*v).into()),
        ScalarValue::Int32(Some(v)) => Some((*v).into()),
        ScalarValue::Int64(Some(v)) => Some((*v).into()),
        ScalarValue::UInt8(Some(v)) => Some((*v).into()),
        ScalarValue::UInt16(Some(v)) => Some((*v).into()),
        ScalarValue::UInt32(Some(v)) => Some((*v).into()),
        ScalarValue::UInt64(Some(v)) => Some((*v).into()),
        ScalarValue::Float64(Some(v)) if v.fract() == 0.0 && v.abs() < 1e15 => Some(*v as i128),
        ScalarValue::Decimal128(Some(v), _, scale) => {
            let unit = 10_i128.checked_pow(u32::try_from(*scale).ok()?)?;
            (v % unit == 0).then(|| v / unit)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion_expr::{col, lit};

    #[track_caller]
    fn check(condition: Logical, expect: Option<(i128, i128, bool)>) {
        let is_rank = |e: &Logical| as_column(e).is_some_and(|c| c.name == "rn");
        assert_eq!(range(&condition, &is_rank).map(|r| (r.from, r.to, r.exact)), expect, "{condition}");
    }

    #[test]
    fn conditions_bound_ranks() {
        let rn = || col("rn");
        check(rn().lt_eq(lit(3)), Some((1, 3, true)));
        check(rn().lt(lit(3_u64)), Some((1, 2, true)));
        check(rn().eq(lit(2)), Some((2, 2, true)));
        check(lit(3).gt_eq(rn()), Some((1, 3, true)));
        check(lit(3).gt(rn()), Some((1, 2, true)));
        check(lit(1).eq(rn()), Some((1, 1, true)));
        check(rn().gt(lit(1)), Some((2, i128::MAX, true)));
        check(rn().between(lit(2), lit(5)), Some((2, 5, true)));
        check(rn().gt_eq(lit(2)).and(rn().lt_eq(lit(5))), Some((2, 5, true)));
        check(rn().in_list(vec![lit(1), lit(3)], false), Some((1, 3, false)));
        check(rn().eq(lit(1)).or(rn().eq(lit(4))), Some((1, 4, false)));
        check(rn().lt_eq(lit(3)).and(col("x").gt(lit(1))), Some((1, 3, false)));
        check(rn().lt_eq(lit(ScalarValue::Decimal128(Some(30), 20, 1))), Some((1, 3, true)));
        check(rn().eq(lit(0)), Some((1, 0, true)));
        check(rn().lt_eq(col("x")), None);
        check(rn().lt_eq(lit(3)).or(col("x").gt(lit(1))), None);
        check(rn().not_eq(lit(3)), None);
        check(col("x").lt_eq(lit(3)), None);
    }
}
