//! Plans `GROUPING SETS`, `ROLLUP` and `CUBE`: an aggregate by all their columns and the number of the
//! set, over rows that are there once for every set. `GROUPING(a, b)` is a function of that number.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion_common::{Column, DFSchema, DFSchemaRef, Result as PlanResult, ScalarValue, TableReference};
use datafusion_expr::expr::{AggregateFunction, GroupingSet as LogicalSet};
use datafusion_expr::{
    Aggregate, Case, Cast, Expr as Logical, ExprSchemable, Extension, LogicalPlan, Projection, UserDefinedLogicalNodeCore,
};
use tidemill_operator::Operator;
use tidemill_operator::expand::{Expand, GroupingSet};
use tidemill_plan::node::as_column;
use tidemill_plan::{WindowKind, WindowNode};

use super::{Planner, Rel, Wanted};
use crate::JobError;
use crate::physical::aggregate::bind_all;
use crate::physical::window::Windowed;
use crate::physical::{Factory, Ship};

/// More sets than this (2¹² is a CUBE of twelve columns) are a mistake.
const SETS_MAX: usize = 1 << 12;

/// Rows once for every set, with the keys of the set and its number behind their columns.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct ExpandNode {
    input: LogicalPlan,
    keys: Vec<Logical>,
    sets: Vec<GroupingSet>,
    schema: DFSchemaRef,
}

impl ExpandNode {
    fn try_new(input: LogicalPlan, keys: Vec<Logical>, sets: Vec<GroupingSet>) -> PlanResult<Self> {
        let mut fields: Vec<(Option<TableReference>, Arc<Field>)> = input.schema().iter().map(|(q, f)| (q.cloned(), f.clone())).collect();
        for (i, key) in keys.iter().enumerate() {
            fields.push((None, Arc::new(Field::new(format!("__group{i}"), key.get_type(input.schema())?, true))));
        }
        fields.push((None, Arc::new(Field::new("__group_id", DataType::Int64, false))));
        let schema = Arc::new(DFSchema::new_with_metadata(fields, input.schema().metadata().clone())?);
        Ok(ExpandNode { input, keys, sets, schema })
    }

    /// The column of a key, or behind the last of the number of the set.
    fn added(&self, key: usize) -> Logical {
        let width = self.input.schema().fields().len();
        Logical::Column(Column::from(self.schema.qualified_field(width + key)))
    }
}

impl PartialOrd for ExpandNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.input.partial_cmp(&other.input)
    }
}

impl fmt::Debug for ExpandNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_for_explain(f)
    }
}

impl UserDefinedLogicalNodeCore for ExpandNode {
    fn name(&self) -> &str {
        "Expand"
    }
    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }
    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }
    fn expressions(&self) -> Vec<Logical> {
        self.keys.clone()
    }
    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |set: &GroupingSet| {
            let names = self.keys.iter().zip(&set.keys).filter(|(_, has)| **has).map(|(key, _)| key.to_string());
            format!("{}: ({})", set.id, names.collect::<Vec<_>>().join(", "))
        };
        write!(f, "Expand: {}", self.sets.iter().map(named).collect::<Vec<_>>().join(", "))
    }
    fn with_exprs_and_inputs(&self, exprs: Vec<Logical>, mut inputs: Vec<LogicalPlan>) -> PlanResult<Self> {
        ExpandNode::try_new(inputs.pop().expect("one input"), exprs, self.sets.clone())
    }
}

impl Planner<'_> {
    pub(super) fn expand(&mut self, node: &ExpandNode, wanted: Wanted) -> Result<Rel, JobError> {
        let input = self.rel(&node.input, wanted)?;
        let keys = bind_all(&node.keys, node.input.schema())?;
        let schema: SchemaRef = Arc::new(node.schema.as_arrow().clone());
        let (sets, declared) = (node.sets.clone(), schema.clone());
        let factory: Factory = Arc::new(move || Ok(Box::new(Expand::new(keys.clone(), sets.clone(), schema.clone())) as Box<dyn Operator>));
        let mut time = input.time.clone();
        time.resize(declared.fields().len(), false);
        let node = self.operator("Expand", String::new(), &input, Ship::Forward, declared, factory)?;
        Ok(Rel { node, time, ..input })
    }
}

/// An aggregate taken apart.
struct Sets<'a> {
    aggregate: &'a Aggregate,
    /// All columns that some set groups by, as they stand in the result.
    columns: Vec<Logical>,
    /// Their sets; `None` for a plain GROUP BY.
    sets: Option<Vec<GroupingSet>>,
}

/// What stands below and in the aggregate that takes the place of one with sets.
struct Plain {
    input: LogicalPlan,
    /// The columns of the result, then the number of the set, if there are sets.
    columns: Vec<Logical>,
    calls: Vec<Logical>,
}

/// A plan without grouping sets and `GROUPING` for an aggregate that has either; `None` if it has
/// neither.
///
/// # Errors
/// Too many sets; a `GROUPING` of what is not grouped by; sessions.
pub(super) fn rewrite(aggregate: &Aggregate) -> Result<Option<LogicalPlan>, JobError> {
    let calls = aggregate.aggr_expr.iter().filter(|e| grouping(e).is_some()).count();
    let parts = match aggregate.group_expr.as_slice() {
        [Logical::GroupingSet(set)] => {
            Sets { aggregate, columns: set.distinct_expr().into_iter().cloned().collect(), sets: Some(sets(set)?) }
        }
        _ if calls == 0 => return Ok(None),
        plain => {
            let mut columns: Vec<Logical> = Vec::new();
            for column in plain {
                if !columns.contains(column) {
                    columns.push(column.clone());
                }
            }
            Sets { aggregate, columns, sets: None }
        }
    };
    let plain = match parts.in_windows()? {
        Some(plain) => plain,
        None => parts.of_rows()?,
    };
    parts.finish(plain).map(Some)
}

impl Sets<'_> {
    /// The sets by the columns that not all of them have, and which columns those are.
    fn varying(&self) -> (Vec<usize>, Vec<GroupingSet>) {
        let sets = self.sets.as_deref().unwrap_or_default();
        let varying: Vec<usize> = (0..self.columns.len()).filter(|i| sets.iter().any(|s| !s.keys[*i])).collect();
        let pick = |set: &GroupingSet| GroupingSet { id: set.id, keys: varying.iter().map(|i| set.keys[*i]).collect() };
        let picked = sets.iter().map(pick).collect();
        (varying, picked)
    }

    /// The aggregate calls but `GROUPING`, under names of their own: what they were called may be the
    /// same for two of them once columns are renamed.
    fn calls(&self, rename: impl Fn(&Logical) -> Result<Option<Logical>, JobError>) -> Result<Option<Vec<Logical>>, JobError> {
        let mut calls = Vec::new();
        for (i, call) in self.aggregate.aggr_expr.iter().enumerate().filter(|(_, e)| grouping(e).is_none()) {
            let Some(renamed) = rename(call)? else { return Ok(None) };
            calls.push(renamed.unalias().alias(format!("__call{i}")));
        }
        Ok(Some(calls))
    }

    /// Over rows, or over the results of windows.
    fn of_rows(&self) -> Result<Plain, JobError> {
        let input = self.aggregate.input.as_ref().clone();
        let calls = self.calls(|call| Ok(Some(call.clone())))?.expect("nothing is renamed");
        if self.sets.is_none() {
            return Ok(Plain { input, columns: self.columns.clone(), calls });
        }
        let (varying, sets) = self.varying();
        let node = ExpandNode::try_new(input, varying.iter().map(|i| self.columns[*i].clone()).collect(), sets)?;
        let columns = self.columns.iter().enumerate().map(|(i, column)| match varying.iter().position(|v| *v == i) {
            Some(key) => node.added(key),
            None => column.clone(),
        });
        let columns = columns.chain([node.added(varying.len())]).collect();
        Ok(Plain { input: LogicalPlan::Extension(Extension { node: Arc::new(node) }), columns, calls })
    }

    /// In windows: rows are repeated before they get there, so that the aggregate is one of windows.
    /// `None` if rows don't stand in windows, or the bounds are not in every set.
    fn in_windows(&self) -> Result<Option<Plain>, JobError> {
        let Some(windowed) = Windowed::find(&self.aggregate.input)? else { return Ok(None) };
        if self.sets.is_none() {
            return Ok(None);
        }
        let (varying, sets) = self.varying();
        let which: Vec<Option<usize>> = self.columns.iter().map(|c| windowed.window_column(c)).collect();
        let bound = |bound: usize| which.contains(&Some(bound));
        if !bound(0) || !bound(1) || varying.iter().any(|i| which[*i].is_some()) {
            return Ok(None);
        }
        if let WindowKind::Session { .. } = windowed.kind {
            return Err(JobError::refused(
                ["GROUPING SETS", "ROLLUP", "CUBE", "SESSION"],
                "GROUPING SETS, ROLLUP and CUBE in a SESSION window are not supported in a stream; use TUMBLE, or run the job with SET 'execution.runtime-mode' = 'batch'",
            ));
        }
        let mut renamed: Vec<Option<Logical>> = Vec::new();
        for (column, which) in self.columns.iter().zip(&which) {
            match which {
                Some(_) => renamed.push(None),
                None => match windowed.rewrite(column)? {
                    Some(column) => renamed.push(Some(column.unalias())),
                    None => return Ok(None),
                },
            }
        }
        let Some(calls) = self.calls(|call| windowed.rewrite(call))? else { return Ok(None) };
        let keys = varying.iter().map(|i| renamed[*i].clone().expect("no bound of a window")).collect();
        let time = windowed.time;
        let node = ExpandNode::try_new(windowed.input, keys, sets)?;
        let time = Logical::Column(Column::from(node.schema.qualified_field(time)));
        let width = node.schema.fields().len();
        let id = node.added(varying.len());
        let keys: Vec<Logical> = (0..varying.len()).map(|key| node.added(key)).collect();
        let rows = LogicalPlan::Extension(Extension { node: Arc::new(node) });
        let windows = WindowNode::try_new(rows, windowed.kind, time, Vec::new())?;
        let input = LogicalPlan::Extension(Extension { node: Arc::new(windows) });
        let columns = (0..self.columns.len()).map(|i| match (which[i], varying.iter().position(|v| *v == i), &renamed[i]) {
            (Some(bound), ..) => Logical::Column(Column::from(input.schema().qualified_field(width + bound))),
            (None, Some(key), _) => keys[key].clone(),
            (None, None, Some(column)) => column.clone(),
            (None, None, None) => unreachable!("what is no bound was renamed"),
        });
        let columns = columns.chain([id]).collect();
        Ok(Some(Plain { input, columns, calls }))
    }

    /// The aggregate, and above it the columns of the original.
    fn finish(&self, plain: Plain) -> Result<LogicalPlan, JobError> {
        let schema = &self.aggregate.schema;
        let mut groups: Vec<Logical> = Vec::new();
        let mut places: Vec<usize> = Vec::new();
        for column in plain.columns {
            let place = groups.iter().position(|g| *g == column).unwrap_or(groups.len());
            if place == groups.len() {
                groups.push(column);
            }
            places.push(place);
        }
        let (count, first_call) = (groups.len(), places.len());
        if groups.is_empty() && plain.calls.is_empty() {
            return Err(JobError::refused(
                ["GROUPING"],
                "GROUPING needs a GROUP BY: without one there is nothing that it could tell apart",
            ));
        }
        let below = LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(plain.input), groups, plain.calls)?);
        let column = |place: usize| Logical::Column(Column::from(below.schema().qualified_field(place)));
        let mut result: Vec<Logical> = places.iter().map(|place| column(*place)).collect();
        let id = self.sets.as_ref().map(|_| {
            let id = result.pop().expect("the number of the set is the last");
            let wanted = schema.field(result.len()).data_type();
            result.push(Logical::Cast(Cast::new(Box::new(id.clone()), wanted.clone())));
            id
        });
        let mut next = count;
        for (i, call) in self.aggregate.aggr_expr.iter().enumerate() {
            result.push(match grouping(call) {
                Some(function) => self.grouping_value(function, id.as_ref(), schema.field(first_call + i).data_type())?,
                None => {
                    next += 1;
                    column(next - 1)
                }
            });
        }
        Ok(LogicalPlan::Projection(Projection::try_new_with_schema(result, Arc::new(below), schema.clone())?))
    }

    /// `GROUPING(a, b)`: a bit for each argument, the first the highest, set where the row is not
    /// grouped by it.
    fn grouping_value(&self, function: &AggregateFunction, id: Option<&Logical>, to: &DataType) -> Result<Logical, JobError> {
        // The optimiser keeps the names of what it rewrites: of keys by an alias, of arguments not always.
        let columns: Vec<Logical> = self.columns.iter().map(|c| c.clone().unalias_nested().data).collect();
        let place = |argument: &Logical| {
            let argument = argument.clone().unalias_nested().data;
            columns.iter().position(|c| *c == argument).ok_or_else(|| {
                let name = as_column(&argument).map(|column| format!("GROUPING ( {}", column.name));
                JobError::refused(
                    name.into_iter().chain(["GROUPING (".to_string()]),
                    format!("GROUPING({argument}): the GROUP BY has no such column; GROUPING takes what stands there"),
                )
            })
        };
        let places = function.params.args.iter().map(place).collect::<Result<Vec<_>, _>>()?;
        let literal =
            |value: i64| -> Result<Logical, JobError> { Ok(Logical::Literal(ScalarValue::Int64(Some(value)).cast_to(to)?, None)) };
        let (Some(id), Some(sets)) = (id, &self.sets) else { return literal(0) };
        let mut cases = Vec::new();
        for set in sets {
            let value = places.iter().fold(0, |bits, i| (bits << 1) | i64::from(!set.keys[*i]));
            cases.push((Box::new(Logical::Literal(ScalarValue::Int64(Some(set.id)), None)), Box::new(literal(value)?)));
        }
        // There is no other set, and a last resort keeps the result from being nullable.
        Ok(Logical::Case(Case::new(Some(Box::new(id.clone())), cases, Some(Box::new(literal(0)?)))))
    }
}

/// The sets that a clause means, over its distinct columns. The number of a set has a bit for each
/// column that it lacks, the last column the lowest, and above them how many equal sets came before.
fn sets(clause: &LogicalSet) -> Result<Vec<GroupingSet>, JobError> {
    let columns = clause.distinct_expr();
    let width = columns.len();
    let too_many = || {
        let message = format!("more than {SETS_MAX} grouping sets; list those that are needed in GROUPING SETS");
        JobError::refused(["CUBE", "ROLLUP", "GROUPING SETS"], message)
    };
    let all: Vec<Vec<bool>> = match clause {
        LogicalSet::Rollup(_) => (0..=width).rev().map(|kept| (0..width).map(|i| i < kept).collect()).collect(),
        LogicalSet::Cube(_) => {
            if width >= usize::BITS as usize || 1 << width > SETS_MAX {
                return Err(too_many());
            }
            (0..1_usize << width).map(|lacks| (0..width).map(|i| lacks & (1 << (width - 1 - i)) == 0).collect()).collect()
        }
        LogicalSet::GroupingSets(sets) => sets.iter().map(|set| columns.iter().map(|c| set.contains(c)).collect()).collect(),
    };
    if all.len() > SETS_MAX || width > 48 {
        return Err(too_many());
    }
    let mut out: Vec<GroupingSet> = Vec::with_capacity(all.len());
    for keys in all {
        let lacks = keys.iter().fold(0_i64, |bits, has| (bits << 1) | i64::from(!has));
        let before = out.iter().filter(|s| s.keys == keys).count() as i64;
        out.push(GroupingSet { id: lacks | (before << width), keys });
    }
    Ok(out)
}

/// The call of `GROUPING` that an expression is.
fn grouping(expression: &Logical) -> Option<&AggregateFunction> {
    match expression {
        Logical::Alias(alias) => grouping(&alias.expr),
        Logical::AggregateFunction(function) if function.func.name() == "grouping" => Some(function),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion_expr::col;

    #[track_caller]
    fn check(clause: LogicalSet, expect: &[(i64, &str)]) {
        let found = sets(&clause).unwrap_or_else(|e| panic!("{e}"));
        let bits = |set: &GroupingSet| set.keys.iter().map(|has| if *has { '1' } else { '0' }).collect::<String>();
        let found: Vec<(i64, String)> = found.iter().map(|s| (s.id, bits(s))).collect();
        assert_eq!(found, expect.iter().map(|(id, bits)| (*id, bits.to_string())).collect::<Vec<_>>());
    }

    #[test]
    fn clauses_mean_sets() {
        check(LogicalSet::Rollup(vec![col("a"), col("b")]), &[(0, "11"), (1, "10"), (3, "00")]);
        check(LogicalSet::Cube(vec![col("a"), col("b")]), &[(0, "11"), (1, "10"), (2, "01"), (3, "00")]);
        check(LogicalSet::GroupingSets(vec![vec![col("b")], vec![], vec![col("a"), col("b")]]), &[(1, "10"), (3, "00"), (0, "11")]);
        check(LogicalSet::GroupingSets(vec![vec![col("a")], vec![col("a")], vec![]]), &[(0, "1"), (2, "1"), (1, "0")]);
        assert!(sets(&LogicalSet::Cube((0..13).map(|i| col(format!("c{i}"))).collect())).is_err());
    }
}
