//! Plans window table functions: aggregates by window, aggregates in the windows of another
//! aggregate, and rows with the bounds of their windows.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion_expr::{Expr as Logical, LogicalPlan};
use datafusion_physical_expr::expressions::Column as BoundColumn;
use tidemill_operator::Operator;
use tidemill_operator::map::Expr;
use tidemill_operator::window::WindowSpec;
use tidemill_operator::window::assign::WindowAssign;
use tidemill_operator::window::session::SessionAggregate;
use tidemill_operator::window::slices::SliceAggregate;
use tidemill_plan::node::as_column;
use tidemill_plan::{WindowKind, WindowNode};
use tidemill_sql::types::flink_type;
use tidemill_state::hash;

use super::{Bounds, Planner, Rel, Wanted};
use crate::JobError;
use crate::physical::aggregate::{bind_all, call};
use crate::physical::window::Windowed;
use crate::physical::{Factory, Ship};

impl Planner<'_> {
    pub(super) fn window_aggregate(
        &mut self,
        plan: &LogicalPlan,
        aggregate: &datafusion_expr::Aggregate,
        windowed: Windowed,
        wanted: Wanted,
    ) -> Result<Option<Rel>, JobError> {
        let mut keys = Vec::new();
        for expression in &aggregate.group_expr {
            if windowed.window_column(expression).is_none() {
                let Some(key) = windowed.rewrite(expression)? else { return Ok(None) };
                keys.push(key);
            }
        }
        let mut calls = Vec::new();
        for expression in &aggregate.aggr_expr {
            let Some(rewritten) = windowed.rewrite(expression)? else { return Ok(None) };
            calls.push(rewritten);
        }
        let input = self.rel(&windowed.input, wanted)?;
        self.check_time(&input, windowed.time, &windowed.input, "a window", "DESCRIPTOR")?;
        let schema = windowed.input.schema();
        if let WindowKind::Session { .. } = windowed.kind {
            let columns: BTreeSet<usize> = keys.iter().filter_map(|k| as_column(k).and_then(|c| schema.index_of_column(c).ok())).collect();
            if keys.len() != columns.len() || columns != windowed.partition_by.iter().copied().collect() {
                return Err(JobError::refused(
                    ["SESSION"],
                    "the GROUP BY of a SESSION window must name window_start, window_end and exactly the columns of its PARTITION BY",
                ));
            }
        }
        let bound_keys = bind_all(&keys, schema)?;
        let bound_calls = calls.iter().map(|c| call(c, schema)).collect::<Result<Vec<_>, _>>()?;
        // What the operator emits: keys, calls, start, end, time.
        let mut fields: Vec<Field> = Vec::new();
        let all = aggregate.schema.fields();
        let group = aggregate.group_expr.len();
        let mut picks = vec![0; all.len()];
        let mut window_places: Vec<(usize, usize)> = Vec::new();
        for (i, expression) in aggregate.group_expr.iter().enumerate() {
            match windowed.window_column(expression) {
                Some(which) => window_places.push((i, which)),
                None => {
                    picks[i] = fields.len();
                    fields.push(all[i].as_ref().clone().with_name(format!("k{i}")));
                }
            }
        }
        let key_types: Vec<DataType> = fields.iter().map(|f| f.data_type().clone()).collect();
        for (i, field) in all[group..].iter().enumerate() {
            picks[group + i] = fields.len();
            fields.push(field.as_ref().clone().with_name(format!("a{i}")).with_nullable(true));
        }
        for (place, which) in &window_places {
            picks[*place] = fields.len() + which;
        }
        let time_type = schema.field(windowed.time).data_type().clone();
        let DataType::Timestamp(unit, _) = &time_type else { return Err(JobError::failed("internal error: a window over no timestamp")) };
        for (which, name) in tidemill_plan::node::WINDOW_COLUMNS.iter().enumerate() {
            fields.push(Field::new(*name, if which == 2 { time_type.clone() } else { DataType::Timestamp(*unit, None) }, false));
        }
        let emitted: SchemaRef = Arc::new(Schema::new(fields));
        let kind = windowed.kind;
        let ship = if bound_keys.is_empty() { Ship::Single } else { Ship::Hash(bound_keys.clone()) };
        let (time, spec_schema) = (windowed.time, emitted.clone());
        let factory: Factory = Arc::new(move || {
            let spec = WindowSpec {
                time,
                keys: bound_keys.clone(),
                key_types: key_types.clone(),
                calls: bound_calls.clone(),
                schema: spec_schema.clone(),
            };
            Ok(match kind {
                WindowKind::Session { gap } => Box::new(SessionAggregate::new(spec, gap)?) as Box<dyn Operator>,
                _ => Box::new(SliceAggregate::new(spec, kind)),
            })
        });
        let single = matches!(ship, Ship::Single);
        if input.updating {
            return Err(JobError::refused(
                ["TUMBLE", "HOP", "CUMULATE", "SESSION"],
                "a window aggregate needs an append-only input, but rows of this one are updated; aggregate in windows instead of a running GROUP BY",
            ));
        }
        let name = if matches!(kind, WindowKind::Session { .. }) { "SessionAggregate" } else { "WindowAggregate" };
        let id = format!("window:{:016x}", hash::bytes(self.text(plan).as_bytes()));
        let node = self.operator(name, id, &input, ship, emitted.clone(), factory)?;
        let windows = Rel { node, time: Vec::new(), updating: false, single, window: None };
        let expressions = picks.iter().map(|i| Arc::new(BoundColumn::new(emitted.field(*i).name(), *i)) as Expr).collect();
        let node = self.map(&windows, None, expressions, Arc::new(aggregate.schema.as_arrow().clone()))?;
        let mut time = vec![false; all.len()];
        window_places.iter().for_each(|(place, which)| time[*place] = *which == 2);
        let place = |which: usize| window_places.iter().find(|(_, w)| *w == which).map(|(place, _)| *place);
        let window = place(0).zip(place(1)).map(|(start, end)| Bounds { start, end, kind });
        Ok(Some(Rel { node, time, window, ..windows }))
    }

    /// A second aggregation in the windows of a first one: it ends when they end.
    pub(super) fn attached_aggregate(
        &mut self,
        plan: &LogicalPlan,
        aggregate: &datafusion_expr::Aggregate,
        input: &Rel,
    ) -> Result<Option<Rel>, JobError> {
        let Some(bounds) = input.window.filter(|w| !input.updating && !matches!(w.kind, WindowKind::Session { .. })) else {
            return Ok(None);
        };
        let schema = aggregate.input.schema();
        let origin: Vec<Option<usize>> =
            aggregate.group_expr.iter().map(|e| as_column(e).and_then(|c| schema.index_of_column(c).ok())).collect();
        let place = |column: usize| origin.iter().position(|o| *o == Some(column));
        let (Some(start), Some(end)) = (place(bounds.start), place(bounds.end)) else { return Ok(None) };
        let group = origin.len();
        let all = aggregate.schema.fields();
        let is_key = |i: &usize| *i != start && *i != end;
        let keys: Vec<Logical> = (0..group).filter(is_key).map(|i| aggregate.group_expr[i].clone()).collect();
        let key_types: Vec<DataType> = (0..group).filter(is_key).map(|i| all[i].data_type().clone()).collect();
        let keys = bind_all(&keys, schema)?;
        let calls = aggregate.aggr_expr.iter().map(|e| call(e, schema)).collect::<Result<Vec<_>, _>>()?;
        // The operator emits: keys, calls, start, end, time.
        let mut fields: Vec<Field> =
            (0..group).filter(is_key).chain(group..all.len()).map(|i| all[i].as_ref().clone().with_name(format!("c{i}"))).collect();
        let bound = fields.len();
        fields.extend([start, end, end].map(|i| all[i].as_ref().clone()));
        let emitted: SchemaRef = Arc::new(Schema::new(fields));
        let mut next = 0;
        let picks: Vec<usize> = (0..all.len())
            .map(|i| {
                if i == start || i == end {
                    return bound + usize::from(i == end);
                }
                next += 1;
                next - 1
            })
            .collect();
        let ship = if keys.is_empty() { Ship::Single } else { Ship::Hash(keys.clone()) };
        let single = matches!(ship, Ship::Single);
        let (time, kind, spec_schema) = (bounds.end, bounds.kind, emitted.clone());
        let factory: Factory = Arc::new(move || {
            let spec =
                WindowSpec { time, keys: keys.clone(), key_types: key_types.clone(), calls: calls.clone(), schema: spec_schema.clone() };
            Ok(Box::new(SliceAggregate::attached(spec, kind)) as Box<dyn Operator>)
        });
        let id = format!("window:{:016x}", hash::bytes(self.text(plan).as_bytes()));
        let node = self.operator("WindowAggregate", id, input, ship, emitted.clone(), factory)?;
        let windows = Rel { node, time: Vec::new(), updating: false, single, window: None };
        let expressions = picks.iter().map(|i| Arc::new(BoundColumn::new(emitted.field(*i).name(), *i)) as Expr).collect();
        let node = self.map(&windows, None, expressions, Arc::new(aggregate.schema.as_arrow().clone()))?;
        Ok(Some(Rel { node, time: vec![false; all.len()], window: Some(Bounds { start, end, kind }), ..windows }))
    }

    /// A window table function whose rows are not aggregated by window.
    pub(super) fn window_rows(&mut self, plan: &LogicalPlan, node: &WindowNode, wanted: Wanted) -> Result<Rel, JobError> {
        if let WindowKind::Session { .. } = node.kind {
            return Err(JobError::refused(
                ["SESSION"],
                "a SESSION window without GROUP BY window_start, window_end is not supported in a stream; group by them, or run the job with SET 'execution.runtime-mode' = 'batch'",
            ));
        }
        let input = self.rel(&node.input, wanted)?;
        let time_index = node.time_index()?;
        self.check_time(&input, time_index, &node.input, "a window", "DESCRIPTOR")?;
        let schema: SchemaRef = Arc::new(plan.schema().as_arrow().clone());
        let (kind, out) = (node.kind, schema.clone());
        let factory: Factory = Arc::new(move || Ok(Box::new(WindowAssign::new(kind, time_index, out.clone())) as Box<dyn Operator>));
        let mut time = input.time.clone();
        let window = Some(Bounds { start: time.len(), end: time.len() + 1, kind });
        time.extend([false, false, true]);
        let node = self.operator("WindowAssign", String::new(), &input, Ship::Forward, schema, factory)?;
        Ok(Rel { node, time, window, ..input })
    }

    /// Checks that a column is event time. `what` needs it, and in the text the column stands behind `written`.
    pub(super) fn check_time(&self, input: &Rel, column: usize, plan: &LogicalPlan, what: &str, written: &str) -> Result<(), JobError> {
        if input.time[column] {
            return Ok(());
        }
        let field = plan.schema().field(column);
        let (name, data_type) = (written_name(plan, column), flink_type(field.data_type()));
        let words = [format!("{written} {name}"), format!("{written} ( {name} )"), written.to_string(), name.clone()];
        if tidemill_plan::lookup::is_processing_column(plan, column) {
            let message = format!(
                "{what} needs event time, but column '{name}' is processing time: the time at which a row arrives can be its event time, \
                 declare it {name} AS CURRENT_TIMESTAMP with WATERMARK FOR {name} AS {name}"
            );
            return Err(JobError::refused(words, message));
        }
        let (is, advice) = if matches!(field.data_type(), DataType::Timestamp(..)) {
            (
                format!("an ordinary {data_type}"),
                format!("declare WATERMARK FOR {name} in the CREATE TABLE, and pass it on unchanged (not computed or cast)"),
            )
        } else {
            (data_type, "use a TIMESTAMP column with a WATERMARK; TO_TIMESTAMP_LTZ in a computed column makes one of a number".to_string())
        };
        let message = format!(
            "{what} needs event time, but column '{name}' is {is} here: {advice}, or run the job with SET 'execution.runtime-mode' = 'batch'"
        );
        Err(JobError::refused(words, message))
    }
}

/// The name that a column has in the text: windows and their keys are planned over columns with names of ours (`__rowtime`).
fn written_name(plan: &LogicalPlan, column: usize) -> String {
    let name = plan.schema().field(column).name();
    if name.starts_with("__")
        && let LogicalPlan::Projection(projection) = plan
        && let Logical::Column(below) = projection.expr[column].clone().unalias()
        && let Ok(below) = projection.input.schema().index_of_column(&below)
    {
        return written_name(&projection.input, below);
    }
    name.clone()
}
