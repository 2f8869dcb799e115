//! Plans `ORDER BY` and `LIMIT`. With event time first rows are sorted as the watermark passes; any
//! other order needs a `LIMIT`, and is a Top-N whose result is updated.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion_expr::logical_plan::Sort as LogicalSort;
use datafusion_expr::{FetchType, Limit as LogicalLimit, LogicalPlan, Projection, SkipType};
use datafusion_physical_expr::expressions::Column as BoundColumn;
use tidemill_operator::Operator;
use tidemill_operator::limit::Limit;
use tidemill_operator::map::Expr;
use tidemill_operator::rank::RankFunction;
use tidemill_operator::sort::Sort;
use tidemill_plan::node::as_column;
use tidemill_state::hash;

use super::over::order_words;
use super::rank::{Top, bind_order};
use super::{Planner, Rel, Wanted};
use crate::JobError;
use crate::physical::{Factory, Ship};

impl Planner<'_> {
    pub(super) fn limit(&mut self, limit: &LogicalLimit, wanted: Wanted) -> Result<Rel, JobError> {
        let (SkipType::Literal(skip), FetchType::Literal(fetch)) = (limit.get_skip_type()?, limit.get_fetch_type()?) else {
            return Err(JobError::refused(["LIMIT", "OFFSET"], "LIMIT and OFFSET take constants"));
        };
        if let Some(below) = below_projection(limit)? {
            return self.rel(&below, wanted);
        }
        let schema: SchemaRef = Arc::new(limit.input.schema().as_arrow().clone());
        if fetch == Some(0) {
            return self.values(RecordBatch::new_empty(schema));
        }
        if let (LogicalPlan::Sort(sort), Some(fetch)) = (limit.input.as_ref(), fetch) {
            let fetch = sort.fetch.map_or(fetch, |inner| inner.saturating_sub(skip).min(fetch));
            if fetch == 0 {
                return self.values(RecordBatch::new_empty(schema));
            }
            let input = self.rel(&sort.input, always_before(wanted))?;
            if input.updating || time_first(sort, &input).is_none() {
                return self.top_sorted(sort, &input, skip, fetch, wanted);
            }
        }
        let input = self.rel(&limit.input, always_before(wanted))?;
        if input.updating {
            return match fetch {
                Some(fetch) => self.top_any(limit, &input, skip, fetch, wanted),
                None => Err(JobError::refused(
                    ["OFFSET"],
                    "OFFSET without LIMIT over an updating query is not supported in a stream; add a LIMIT, or run the job with SET 'execution.runtime-mode' = 'batch'",
                )),
            };
        }
        let factory: Factory = Arc::new(move || Ok(Box::new(Limit::new(skip as u64, fetch.map(|f| f as u64))) as Box<dyn Operator>));
        let schema = self.schema(input.node);
        let node = self.operator("Limit", String::new(), &input, Ship::Single, schema, factory)?;
        Ok(Rel { node, single: true, ..input })
    }

    pub(super) fn sort(&mut self, sort: &LogicalSort, wanted: Wanted) -> Result<Rel, JobError> {
        let input = self.rel(&sort.input, always_before(wanted))?;
        let keys = match (time_first(sort, &input), sort.fetch) {
            (Some(keys), _) if !input.updating => keys,
            (_, Some(fetch)) if fetch > 0 => return self.top_sorted(sort, &input, 0, fetch, wanted),
            _ => {
                return Err(JobError::refused(
                    sort.expr.first().map(order_words).into_iter().flatten(),
                    "ORDER BY in a stream needs an event-time column first, ascending (an endless stream has no last row to sort by), or a LIMIT; SET 'execution.runtime-mode' = 'batch' sorts bounded input in any order",
                ));
            }
        };
        let emitted = self.schema(input.node);
        let declared = emitted.clone();
        let factory: Factory = Arc::new(move || Ok(Box::new(Sort::new(emitted.clone(), keys.clone())) as Box<dyn Operator>));
        let mut rel = Rel { node: self.operator("Sort", String::new(), &input, Ship::Single, declared, factory)?, single: true, ..input };
        if let Some(fetch) = sort.fetch {
            let factory: Factory = Arc::new(move || Ok(Box::new(Limit::new(0, Some(fetch as u64))) as Box<dyn Operator>));
            let schema = self.schema(rel.node);
            let id = format!("sort:{:016x}", hash::bytes(self.text(&sort.input).as_bytes()));
            self.graph.nodes[rel.node].id = id;
            rel.node = self.operator("Limit", String::new(), &rel, Ship::Forward, schema, factory)?;
        }
        Ok(rel)
    }

    /// `ORDER BY … LIMIT` in any order: the best rows of all, as a changelog.
    fn top_sorted(&mut self, sort: &LogicalSort, input: &Rel, skip: usize, fetch: usize, wanted: Wanted) -> Result<Rel, JobError> {
        let (order, order_types) = bind_order(&sort.expr, sort.input.schema())?;
        let by: Vec<String> = sort.expr.iter().map(ToString::to_string).collect();
        let text = format!("{} {}", by.join(", "), self.text(&sort.input));
        self.top_of_all(order, order_types, &text, input, (skip, fetch), wanted)
    }

    /// `LIMIT` of rows that may be taken back: any will do, so those with the smallest columns.
    fn top_any(&mut self, limit: &LogicalLimit, input: &Rel, skip: usize, fetch: usize, wanted: Wanted) -> Result<Rel, JobError> {
        let schema = self.schema(input.node);
        let Some(first) = schema.fields().first() else {
            return Err(JobError::refused(
                ["LIMIT"],
                "LIMIT over an updating query of which no column is used is not supported in a stream; select a column below the LIMIT",
            ));
        };
        let column: Expr = Arc::new(BoundColumn::new(first.name(), 0));
        let text = self.text(&limit.input);
        let order = vec![(column, SortOptions { descending: false, nulls_first: true })];
        self.top_of_all(order, vec![first.data_type().clone()], &text, input, (skip, fetch), wanted)
    }

    fn top_of_all(
        &mut self,
        order: Vec<(Expr, SortOptions)>,
        order_types: Vec<DataType>,
        text: &str,
        input: &Rel,
        (skip, fetch): (usize, usize),
        wanted: Wanted,
    ) -> Result<Rel, JobError> {
        let from = (skip as u64).min(i64::MAX as u64 - 1) + 1;
        let top = Top {
            id: format!("{:016x}", hash::bytes(format!("{from} {fetch} {text}").as_bytes())),
            keys: Vec::new(),
            key_types: Vec::new(),
            order,
            order_types,
            function: RankFunction::RowNumber,
            from,
            to: (from - 1).saturating_add(fetch as u64).min(i64::MAX as u64),
            rank_column: false,
            schema: self.schema(input.node),
        };
        self.top(top, input, wanted)
    }
}

/// What must be wanted of an input whose rows are kept.
fn always_before(wanted: Wanted) -> Wanted {
    Wanted { update_before: true, ..wanted }
}

/// The columns sorted by, if all are columns and the first is event time, ascending.
fn time_first(sort: &LogicalSort, input: &Rel) -> Option<Vec<(usize, SortOptions)>> {
    let schema = sort.input.schema();
    let key = |s: &datafusion_expr::SortExpr| {
        let column = as_column(&s.expr).and_then(|c| schema.index_of_column(c).ok())?;
        Some((column, SortOptions { descending: !s.asc, nulls_first: s.nulls_first }))
    };
    let keys = sort.expr.iter().map(key).collect::<Option<Vec<_>>>()?;
    keys.first().is_some_and(|(column, options)| input.time[*column] && !options.descending).then_some(keys)
}

/// The limit below the projection that it stands on, if a sort stands below that: the sort may be by
/// columns that the projection leaves out.
fn below_projection(limit: &LogicalLimit) -> Result<Option<LogicalPlan>, JobError> {
    let mut plan = limit.input.as_ref();
    let mut projections: Vec<&Projection> = Vec::new();
    while let LogicalPlan::Projection(projection) = plan {
        projections.push(projection);
        plan = &projection.input;
    }
    if projections.is_empty() || !matches!(plan, LogicalPlan::Sort(_)) {
        return Ok(None);
    }
    let mut moved = LogicalPlan::Limit(LogicalLimit { input: Arc::new(plan.clone()), ..limit.clone() });
    for projection in projections.into_iter().rev() {
        let above = Projection::try_new_with_schema(projection.expr.clone(), Arc::new(moved), projection.schema.clone())?;
        moved = LogicalPlan::Projection(above);
    }
    Ok(Some(moved))
}
