//! Plans joins in time: window joins, whose rows are of the same window, and interval joins, whose
//! condition bounds how far two event times lie apart. Both need append-only inputs; a join that is
//! neither is for the planner of regular joins.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef, TimeUnit};
use datafusion_common::{Column, DFSchema, JoinType, NullEquality, ScalarValue};
use datafusion_expr::utils::{conjunction, find_valid_equijoin_key_pair, split_conjunction};
use datafusion_expr::{Between, BinaryExpr, Expr as Logical, ExprSchemable, LogicalPlan, Operator as Symbol};
use tidemill_operator::Operator;
use tidemill_operator::join::interval::{IntervalJoin, IntervalSpec, JoinForm, JoinSide, Residual};
use tidemill_operator::join::window::{WindowJoin, WindowJoinSpec, WindowSide};
use tidemill_plan::node::as_column;
use tidemill_plan::{WindowKind, WindowNode};

use super::{Bounds, Planner, Rel, Wanted};
use crate::JobError;
use crate::physical::aggregate::{bind, bind_all};
use crate::physical::{Factory, Ship};

/// The inputs of a join in time, in the order of its operator.
struct Inputs<'a> {
    plans: [&'a LogicalPlan; 2],
    form: JoinForm,
    null_equals: bool,
    schema: SchemaRef,
}

impl Inputs<'_> {
    fn schemas(&self) -> [&DFSchema; 2] {
        self.plans.map(|p| p.schema().as_ref())
    }
}

impl Planner<'_> {
    /// A join of rows in the same window or within bounds of time; `None` if it is neither, and then
    /// nothing has been planned.
    pub(super) fn time_join(&mut self, _plan: &LogicalPlan, join: &datafusion_expr::Join, wanted: Wanted) -> Result<Option<Rel>, JobError> {
        let (form, swapped) = match join.join_type {
            JoinType::Inner => (JoinForm::Inner, false),
            JoinType::Left => (JoinForm::Left, false),
            JoinType::Right => (JoinForm::Right, false),
            JoinType::Full => (JoinForm::Full, false),
            JoinType::LeftSemi => (JoinForm::Semi, false),
            JoinType::RightSemi => (JoinForm::Semi, true),
            // NOT IN depends on NULLs anywhere on the other side.
            JoinType::LeftAnti if !join.null_aware => (JoinForm::Anti, false),
            JoinType::RightAnti if !join.null_aware => (JoinForm::Anti, true),
            _ => return Ok(None),
        };
        let mut plans = [join.left.as_ref(), join.right.as_ref()];
        let mut on = join.on.clone();
        if swapped {
            plans.reverse();
            on.iter_mut().for_each(|(l, r)| std::mem::swap(l, r));
        }
        let null_equals = join.null_equality == NullEquality::NullEqualsNull;
        let inputs = Inputs { plans, form, null_equals, schema: Arc::new(join.schema.as_arrow().clone()) };
        let condition = Condition::new(on, join.filter.as_ref(), inputs.schemas(), null_equals)?;
        let ranges = condition.ranges(inputs.schemas());
        let windows = condition.pairs.iter().filter(|(l, _)| is_time(l, inputs.schemas()[0])).count() >= 2;
        if !windows && ranges.iter().all(|r| r.low_ms.is_none() || r.high_ms.is_none()) {
            return Ok(None);
        }
        // Whether the columns are event time is known when the inputs are planned; if they are not, the
        // inputs are planned anew, as another kind of join wants them.
        let (nodes, planned, sources) = (self.graph.nodes.len(), self.planned.clone(), self.sources.clone());
        let rels = [self.rel(inputs.plans[0], wanted)?, self.rel(inputs.plans[1], wanted)?];
        if rels.iter().all(|r| !r.updating) {
            if let (Some(left), Some(right)) = (rels[0].window, rels[1].window)
                && let Some(rel) = self.window_join(&inputs, &rels, &condition, [left, right])?
            {
                return Ok(Some(rel));
            }
            for range in ranges.iter().filter(|r| rels[0].time[r.columns[0]] && rels[1].time[r.columns[1]]) {
                if let (Some(low), Some(high)) = (range.low_ms, range.high_ms) {
                    return Ok(Some(self.interval_join(&inputs, &rels, &condition, range, (low, high))?));
                }
            }
        }
        self.graph.nodes.truncate(nodes);
        (self.planned, self.sources) = (planned, sources);
        Ok(None)
    }

    fn interval_join(
        &mut self,
        inputs: &Inputs<'_>,
        rels: &[Rel; 2],
        condition: &Condition,
        range: &Range,
        (low_ms, high_ms): (i64, i64),
    ) -> Result<Rel, JobError> {
        let schemas = inputs.schemas();
        let mut pairs: Vec<(Logical, Logical)> =
            condition.pairs.iter().enumerate().filter(|(i, _)| !range.pairs.contains(i)).map(|(_, p)| p.clone()).collect();
        if pairs.is_empty() {
            // Equal times alone: then they are what rows are divided by.
            pairs = condition.pairs.clone();
        }
        // Times finer than a millisecond are compared once more.
        let exact = [0, 1].iter().all(|s| is_ms(schemas[*s].field(range.columns[*s]).data_type()));
        let mut rest: Vec<Logical> =
            condition.rest.iter().enumerate().filter(|(i, _)| !(exact && range.rest.contains(i))).map(|(_, e)| e.clone()).collect();
        if !exact && !range.pairs.is_empty() {
            rest.extend(range.pairs.iter().map(|i| condition.pairs[*i].0.clone().eq(condition.pairs[*i].1.clone())));
        }
        let keys = Keys::new(&pairs, schemas)?;
        let side =
            |s: usize| JoinSide { schema: self.schema(rels[s].node), keys: keys.bound[s].clone(), time: range.columns[s], shift_ms: 0 };
        let spec = IntervalSpec {
            form: inputs.form,
            sides: [side(0), side(1)],
            key_types: keys.types.clone(),
            null_equals: inputs.null_equals,
            low_ms,
            high_ms,
            residual: residual(rest, schemas)?,
            schema: inputs.schema.clone(),
        };
        let factory: Factory = Arc::new(move || Ok(Box::new(IntervalJoin::new(spec.clone())?) as Box<dyn Operator>));
        let mut time = vec![false; inputs.schema.fields().len()];
        time[range.columns[0]] = true;
        if !matches!(inputs.form, JoinForm::Semi | JoinForm::Anti) {
            time[schemas[0].fields().len() + range.columns[1]] = true;
        }
        let [left, right] = keys.ships();
        let node =
            self.operator_of("IntervalJoin", String::new(), &[(&rels[0], left), (&rels[1], right)], inputs.schema.clone(), factory)?;
        Ok(Rel { node, time, updating: false, single: self.graph.nodes[node].single, window: None })
    }

    fn window_join(
        &mut self,
        inputs: &Inputs<'_>,
        rels: &[Rel; 2],
        condition: &Condition,
        windows: [Bounds; 2],
    ) -> Result<Option<Rel>, JobError> {
        let schemas = inputs.schemas();
        let compares = |(l, r): &(Logical, Logical), columns: [usize; 2]| {
            column(l, schemas[0]) == Some(columns[0]) && column(r, schemas[1]) == Some(columns[1])
        };
        let starts = windows.map(|w| w.start);
        let ends = windows.map(|w| w.end);
        if !condition.pairs.iter().any(|p| compares(p, starts)) || !condition.pairs.iter().any(|p| compares(p, ends)) {
            return Ok(None);
        }
        let mut pairs: Vec<(Logical, Logical)> =
            condition.pairs.iter().filter(|p| !compares(p, starts) && !compares(p, ends)).cloned().collect();
        let pair = |columns: [usize; 2]| {
            let of = |s: usize| Logical::Column(Column::from(schemas[s].qualified_field(columns[s])));
            (of(0), of(1))
        };
        // The rows of a key lie in order of their windows' ends. Where windows overlap, that would be
        // many windows to look through; the end as part of the key finds the one.
        let same = windows[0].kind == windows[1].kind;
        if pairs.is_empty() || !same || !matches!(windows[0].kind, WindowKind::Tumble { .. }) {
            pairs.push(pair(ends));
        }
        if !same || matches!(windows[0].kind, WindowKind::Session { .. }) {
            pairs.push(pair(starts));
        }
        let keys = Keys::new(&pairs, schemas)?;
        let side = |s: usize| WindowSide { schema: self.schema(rels[s].node), keys: keys.bound[s].clone(), end: ends[s] };
        let spec = WindowJoinSpec {
            form: inputs.form,
            sides: [side(0), side(1)],
            key_types: keys.types.clone(),
            null_equals: inputs.null_equals,
            residual: residual(condition.rest.clone(), schemas)?,
            schema: inputs.schema.clone(),
        };
        let factory: Factory = Arc::new(move || Ok(Box::new(WindowJoin::new(spec.clone())?) as Box<dyn Operator>));
        // Rows wait for the end of their window, so of their times only the window's own remains event
        // time, and only where it cannot be NULL.
        let width = schemas[0].fields().len();
        let left_valid = !matches!(inputs.form, JoinForm::Right | JoinForm::Full);
        let right_valid = matches!(inputs.form, JoinForm::Inner | JoinForm::Right);
        let time = (0..inputs.schema.fields().len())
            .map(|i| match i.checked_sub(width) {
                None => left_valid && rels[0].time[i] && is_window_time(inputs.plans[0], i),
                Some(i) => right_valid && rels[1].time[i] && is_window_time(inputs.plans[1], i),
            })
            .collect();
        let window = match inputs.form {
            JoinForm::Full => None,
            JoinForm::Right => windows[1].moved(|c| Some(width + c)),
            _ => Some(windows[0]),
        };
        let [left, right] = keys.ships();
        let node = self.operator_of("WindowJoin", String::new(), &[(&rels[0], left), (&rels[1], right)], inputs.schema.clone(), factory)?;
        Ok(Some(Rel { node, time, updating: false, single: self.graph.nodes[node].single, window }))
    }
}

/// Whether a column that is event time among rows of windows is the time of their window, and not that
/// of the row.
fn is_window_time(plan: &LogicalPlan, index: usize) -> bool {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => is_window_time(&alias.input, index),
        LogicalPlan::Filter(filter) => is_window_time(&filter.input, index),
        LogicalPlan::Projection(projection) => {
            column(&projection.expr[index], projection.input.schema()).is_some_and(|below| is_window_time(&projection.input, below))
        }
        LogicalPlan::Extension(extension) => match extension.node.as_any().downcast_ref::<WindowNode>() {
            Some(window) => index == window.input.schema().fields().len() + 2,
            None => true,
        },
        // Aggregates and joins pass on no other.
        _ => true,
    }
}

/// The index of the column that an expression is.
pub(super) fn column(expression: &Logical, schema: &DFSchema) -> Option<usize> {
    as_column(expression).and_then(|c| schema.maybe_index_of_column(c))
}

fn is_time(expression: &Logical, schema: &DFSchema) -> bool {
    column(expression, schema).is_some_and(|i| matches!(schema.field(i).data_type(), DataType::Timestamp(..)))
}

fn is_ms(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(TimeUnit::Millisecond, _))
}

/// The condition of a join, taken apart.
pub(super) struct Condition {
    /// What must be equal: a left and a right expression of one type.
    pub pairs: Vec<(Logical, Logical)>,
    /// Everything else.
    pub rest: Vec<Logical>,
}

impl Condition {
    /// Takes apart the equalities `on` and the condition `filter`. With `null_equals` equalities of the
    /// filter, which a NULL never fulfils, stay conditions.
    pub fn new(
        on: Vec<(Logical, Logical)>,
        filter: Option<&Logical>,
        schemas: [&DFSchema; 2],
        null_equals: bool,
    ) -> Result<Self, JobError> {
        let mut condition = Condition { pairs: on, rest: Vec::new() };
        for part in filter.into_iter().flat_map(split_conjunction) {
            if let Logical::BinaryExpr(BinaryExpr { left, op: Symbol::Eq, right }) = part
                && !null_equals
                && let Some((left, right)) = find_valid_equijoin_key_pair(left, right, schemas[0], schemas[1])?
                && left.get_type(schemas[0])? == right.get_type(schemas[1])?
            {
                condition.pairs.push((left, right));
            } else if !matches!(part, Logical::Literal(ScalarValue::Boolean(Some(true)), _)) {
                condition.rest.push(part.clone());
            }
        }
        Ok(condition)
    }

    /// How far pairs of timestamp columns may lie apart.
    fn ranges(&self, schemas: [&DFSchema; 2]) -> Vec<Range> {
        let mut ranges: Vec<Range> = Vec::new();
        for (i, (left, right)) in self.pairs.iter().enumerate() {
            if let Some(bound) = Bound::of(left, Symbol::Eq, right, schemas) {
                bound.enter(&mut ranges).pairs.push(i);
            }
        }
        for (i, part) in self.rest.iter().enumerate() {
            let bounds = match part {
                Logical::BinaryExpr(BinaryExpr { left, op, right }) => [Bound::of(left, *op, right, schemas), None],
                Logical::Between(Between { expr, negated: false, low, high }) => {
                    let low = Bound::of(expr, Symbol::GtEq, low, schemas);
                    let high = Bound::of(expr, Symbol::LtEq, high, schemas);
                    // Both or none: the condition is used up as a whole.
                    match (low, high) {
                        (Some(low), Some(high)) if low.columns == high.columns => [Some(low), Some(high)],
                        _ => [None, None],
                    }
                }
                _ => [None, None],
            };
            for bound in bounds.into_iter().flatten() {
                bound.enter(&mut ranges).rest.push(i);
            }
        }
        ranges
    }
}

/// How far a left and a right time may lie apart.
struct Range {
    /// The columns, left and right.
    columns: [usize; 2],
    /// Left less right is at least so much, ms.
    low_ms: Option<i64>,
    /// And at most so much, ms.
    high_ms: Option<i64>,
    /// Which equalities and which other conditions say so.
    pairs: Vec<usize>,
    rest: Vec<usize>,
}

/// One bound of a range.
struct Bound {
    columns: [usize; 2],
    low_ms: Option<i64>,
    high_ms: Option<i64>,
}

impl Bound {
    /// What `left op right` says about the distance of two times; `None` if it is about something else.
    fn of(left: &Logical, op: Symbol, right: &Logical, schemas: [&DFSchema; 2]) -> Option<Bound> {
        let (left, right) = (Sum::of(left, schemas)?, Sum::of(right, schemas)?);
        let sum = left.plus(right, -1);
        // left − right + ns `op` 0, or the same the other way round.
        let (columns, op, ns) = match (sum.times[0].as_slice(), sum.times[1].as_slice()) {
            ([(l, 1)], [(r, -1)]) => ([*l, *r], op, -sum.ns),
            ([(l, -1)], [(r, 1)]) => ([*l, *r], op.swap()?, sum.ns),
            _ => return None,
        };
        const MS: i128 = 1_000_000;
        let floor = ns.div_euclid(MS);
        let ceil = floor + i128::from(ns.rem_euclid(MS) != 0);
        let (low, high) = match op {
            Symbol::Lt => (None, Some(ceil - 1)),
            Symbol::LtEq => (None, Some(floor)),
            Symbol::Gt => (Some(floor + 1), None),
            Symbol::GtEq => (Some(ceil), None),
            Symbol::Eq => (Some(ceil), Some(floor)),
            _ => return None,
        };
        // Times finer than a millisecond are rounded down: the distance of what they are rounded to may
        // be off by less than one; the condition itself is then kept.
        let fine = i128::from((0..2).any(|s| !is_ms(schemas[s].field(columns[s]).data_type())));
        let ms = |bound: Option<i128>| bound.map(i64::try_from).transpose().ok();
        Some(Bound { columns, low_ms: ms(low.map(|l| l - 2 * fine))?, high_ms: ms(high.map(|h| h + 2 * fine))? })
    }

    /// Narrows the range of its columns.
    fn enter(self, ranges: &mut Vec<Range>) -> &mut Range {
        let at = ranges.iter().position(|r| r.columns == self.columns).unwrap_or_else(|| {
            ranges.push(Range { columns: self.columns, low_ms: None, high_ms: None, pairs: Vec::new(), rest: Vec::new() });
            ranges.len() - 1
        });
        let range = &mut ranges[at];
        range.low_ms = range.low_ms.max(self.low_ms);
        range.high_ms = match (range.high_ms, self.high_ms) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        range
    }
}

/// A sum of timestamp columns and intervals.
#[derive(Default)]
struct Sum {
    /// Columns of the left and of the right side, and how often each is in it.
    times: [Vec<(usize, i32)>; 2],
    ns: i128,
}

impl Sum {
    fn of(expression: &Logical, schemas: [&DFSchema; 2]) -> Option<Sum> {
        match expression {
            Logical::Alias(alias) => Sum::of(&alias.expr, schemas),
            Logical::Column(c) => {
                let side = (0..2).find(|s| schemas[*s].maybe_index_of_column(c).is_some())?;
                let index = schemas[side].maybe_index_of_column(c)?;
                matches!(schemas[side].field(index).data_type(), DataType::Timestamp(..)).then(|| {
                    let mut sum = Sum::default();
                    sum.times[side].push((index, 1));
                    sum
                })
            }
            Logical::Literal(value, _) => Some(Sum { ns: interval_ns(value)?, ..Sum::default() }),
            Logical::BinaryExpr(BinaryExpr { left, op: op @ (Symbol::Plus | Symbol::Minus), right }) => {
                let sign = if *op == Symbol::Plus { 1 } else { -1 };
                Some(Sum::of(left, schemas)?.plus(Sum::of(right, schemas)?, sign))
            }
            // Casts that the types of a comparison ask for and that change no value.
            Logical::Cast(cast) => {
                let joined = schemas[0].join(schemas[1]).ok()?;
                let from = cast.expr.get_type(&joined).ok()?;
                let kept = match (&from, cast.field.data_type()) {
                    (DataType::Timestamp(a, x), DataType::Timestamp(b, y)) => x == y && fineness(*a) <= fineness(*b),
                    (DataType::Duration(_) | DataType::Interval(_), DataType::Interval(_)) => true,
                    (a, b) => a == b,
                };
                if kept { Sum::of(&cast.expr, schemas) } else { None }
            }
            _ => None,
        }
    }

    fn plus(mut self, other: Sum, sign: i32) -> Sum {
        for (mine, theirs) in self.times.iter_mut().zip(other.times) {
            for (column, count) in theirs {
                match mine.iter_mut().find(|(c, _)| *c == column) {
                    Some((_, total)) => *total += sign * count,
                    None => mine.push((column, sign * count)),
                }
            }
            mine.retain(|(_, count)| *count != 0);
        }
        self.ns += i128::from(sign) * other.ns;
        self
    }
}

fn fineness(unit: TimeUnit) -> u8 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 1,
        TimeUnit::Microsecond => 2,
        TimeUnit::Nanosecond => 3,
    }
}

/// An interval of a fixed length, ns.
fn interval_ns(value: &ScalarValue) -> Option<i128> {
    const DAY: i128 = 86_400_000_000_000;
    match value {
        ScalarValue::IntervalMonthDayNano(Some(v)) if v.months == 0 => Some(i128::from(v.days) * DAY + i128::from(v.nanoseconds)),
        ScalarValue::IntervalDayTime(Some(v)) => Some(i128::from(v.days) * DAY + i128::from(v.milliseconds) * 1_000_000),
        ScalarValue::DurationSecond(Some(v)) => Some(i128::from(*v) * 1_000_000_000),
        ScalarValue::DurationMillisecond(Some(v)) => Some(i128::from(*v) * 1_000_000),
        ScalarValue::DurationMicrosecond(Some(v)) => Some(i128::from(*v) * 1000),
        ScalarValue::DurationNanosecond(Some(v)) => Some(i128::from(*v)),
        _ => None,
    }
}

/// The keys of both sides.
pub(super) struct Keys {
    pub bound: [Vec<tidemill_operator::map::Expr>; 2],
    pub types: Vec<DataType>,
}

impl Keys {
    /// Binds pairs of expressions.
    pub fn new(pairs: &[(Logical, Logical)], schemas: [&DFSchema; 2]) -> Result<Self, JobError> {
        let (left, right): (Vec<Logical>, Vec<Logical>) = pairs.iter().cloned().unzip();
        let types = |keys: &[Logical], schema: &DFSchema| -> Result<Vec<DataType>, JobError> {
            keys.iter().map(|k| Ok(k.get_type(schema)?)).collect()
        };
        let (types, others) = (types(&left, schemas[0])?, types(&right, schemas[1])?);
        if types != others {
            return Err(JobError::failed(format!("internal error: the keys of a join differ in type: {types:?} and {others:?}")));
        }
        Ok(Keys { bound: [bind_all(&left, schemas[0])?, bind_all(&right, schemas[1])?], types })
    }

    /// How rows come to the join.
    pub fn ships(&self) -> [Ship; 2] {
        self.bound.clone().map(|keys| if keys.is_empty() { Ship::Single } else { Ship::Hash(keys) })
    }
}

/// What is left of a condition, over the columns it reads.
pub(super) fn residual(rest: Vec<Logical>, schemas: [&DFSchema; 2]) -> Result<Option<Residual>, JobError> {
    let Some(predicate) = conjunction(rest) else { return Ok(None) };
    let joined = schemas[0].join(schemas[1])?;
    let mut columns = predicate.column_refs().into_iter().map(|c| Ok(joined.index_of_column(c)?)).collect::<Result<Vec<_>, JobError>>()?;
    columns.sort_unstable();
    columns.dedup();
    let fields = columns.iter().map(|i| joined.qualified_field(*i)).map(|(q, f)| (q.cloned(), f.clone())).collect();
    let read = DFSchema::new_with_metadata(fields, HashMap::new())?;
    Ok(Some(Residual { predicate: bind(&predicate, &read)?, columns, schema: Arc::new(read.as_arrow().clone()) }))
}
