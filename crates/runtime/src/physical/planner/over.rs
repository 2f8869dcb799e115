//! Plans `OVER`.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion_common::ScalarValue;
use datafusion_expr::expr::WindowFunction;
use datafusion_expr::{Expr as Logical, LogicalPlan, WindowFrame, WindowFrameBound, WindowFrameUnits};
use datafusion_physical_expr::expressions::Column as BoundColumn;
use tidemill_operator::Operator;
use tidemill_operator::map::Expr;
use tidemill_operator::over::{Frame, Over, OverSpec};
use tidemill_plan::node::as_column;
use tidemill_state::hash;

use super::source::interval_ms;
use super::{Planner, Rel, Wanted};
use crate::JobError;
use crate::physical::aggregate::{bind_all, window_call};
use crate::physical::{Factory, Ship};

impl Planner<'_> {
    pub(super) fn over(&mut self, plan: &LogicalPlan, window: &datafusion_expr::Window, wanted: Wanted) -> Result<Rel, JobError> {
        let input = self.rel(&window.input, wanted)?;
        if input.updating {
            return Err(JobError::usage(
                "OVER needs an append-only input, but rows of this one are updated; aggregate in windows instead of a running GROUP BY",
            ));
        }
        let schema = window.input.schema();
        let functions = window
            .window_expr
            .iter()
            .map(|e| match e.clone().unalias() {
                Logical::WindowFunction(f) => Ok(*f),
                other => Err(JobError::failed(format!("internal error: {other} is not a window function"))),
            })
            .collect::<Result<Vec<WindowFunction>, _>>()?;
        let first = &functions[0].params;
        let by = first.order_by.first().ok_or_else(|| {
            JobError::usage(format!("{}: an OVER in a stream needs ORDER BY an event-time column", window.window_expr[0]))
        })?;
        let time = as_column(&by.expr)
            .and_then(|c| schema.index_of_column(c).ok())
            .filter(|_| by.asc)
            .ok_or_else(|| JobError::usage(format!("OVER (… ORDER BY {by}): a stream is ordered by an event-time column, ascending; any other order needs SET 'execution.runtime-mode' = 'batch'")))?;
        self.check_time(&input, time, &window.input, "the ORDER BY of an OVER")?;
        // The planner puts windows of the same order into one node; each frame needs an operator.
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for (i, function) in functions.iter().enumerate() {
            let same = |other: &usize| {
                let (a, b) = (&functions[*other].params, &function.params);
                a.partition_by == b.partition_by && a.window_frame == b.window_frame && a.order_by == b.order_by
            };
            match groups.iter_mut().find(|g| same(&g[0])) {
                Some(group) => group.push(i),
                None => groups.push(vec![i]),
            }
        }
        let width = schema.fields().len();
        let all: SchemaRef = Arc::new(window.schema.as_arrow().clone());
        let mut rel = input.clone();
        let mut order: Vec<usize> = Vec::new();
        for (number, group) in groups.iter().enumerate() {
            let params = &functions[group[0]].params;
            let keys = bind_all(&params.partition_by, schema)?;
            let key_types = keys.iter().map(|k| Ok(k.data_type(schema.as_arrow())?)).collect::<Result<Vec<_>, JobError>>()?;
            let frame = frame(&params.window_frame)?;
            let calls =
                group.iter().map(|i| window_call(&functions[*i], &window.window_expr[*i], schema)).collect::<Result<Vec<_>, _>>()?;
            let input_schema = self.schema(rel.node);
            let added = group.iter().map(|i| all.fields()[width + i].clone());
            let out: SchemaRef = Arc::new(Schema::new(input_schema.fields().iter().cloned().chain(added).collect::<Vec<_>>()));
            order.extend(group);
            let ship = if keys.is_empty() { Ship::Single } else { Ship::Hash(keys.clone()) };
            let single = matches!(ship, Ship::Single);
            let declared = out.clone();
            let factory: Factory = Arc::new(move || {
                let spec = OverSpec {
                    time,
                    keys: keys.clone(),
                    key_types: key_types.clone(),
                    frame,
                    calls: calls.clone(),
                    input: input_schema.clone(),
                    schema: out.clone(),
                };
                Ok(Box::new(Over::new(spec)?) as Box<dyn Operator>)
            });
            let id = format!("over{number}:{:016x}", hash::bytes(plan.display_indent_schema().to_string().as_bytes()));
            let node = self.operator("Over", id, &rel, ship, declared, factory)?;
            rel = Rel { node, time: Vec::new(), updating: false, single, window: None };
        }
        let mut node = rel.node;
        let single = rel.single;
        if groups.len() > 1 {
            let place = |i: usize| order.iter().position(|o| *o == i).expect("every function is in a group");
            let picks = (0..width).chain((0..functions.len()).map(|i| width + place(i)));
            let expressions = picks.zip(all.fields()).map(|(i, f)| Arc::new(BoundColumn::new(f.name(), i)) as Expr).collect();
            node = self.map(&rel, None, expressions, all)?;
        }
        let mut times = input.time.clone();
        times.resize(window.schema.fields().len(), false);
        Ok(Rel { node, time: times, updating: false, single, window: None })
    }
}

fn frame(frame: &WindowFrame) -> Result<Frame, JobError> {
    let current = |bound: &WindowFrameBound| matches!(bound, WindowFrameBound::CurrentRow);
    if !current(&frame.end_bound) {
        return Err(JobError::usage(format!(
            "OVER (… {frame}): the frame of a stream ends at CURRENT ROW; FOLLOWING needs SET 'execution.runtime-mode' = 'batch'"
        )));
    }
    let unsupported = || {
        JobError::usage(format!(
            "OVER (… {frame}): supported are RANGE BETWEEN INTERVAL '…' … PRECEDING AND CURRENT ROW, ROWS BETWEEN n PRECEDING AND CURRENT ROW, and UNBOUNDED PRECEDING"
        ))
    };
    match (&frame.units, &frame.start_bound) {
        (WindowFrameUnits::Range, WindowFrameBound::Preceding(value)) if value.is_null() => Ok(Frame::Unbounded { peers: true }),
        (WindowFrameUnits::Rows, WindowFrameBound::Preceding(value)) if value.is_null() => Ok(Frame::Unbounded { peers: false }),
        (WindowFrameUnits::Range, WindowFrameBound::Preceding(value)) => interval_ms(value).map(Frame::RangeMs).ok_or_else(unsupported),
        (WindowFrameUnits::Range, bound) if current(bound) => Ok(Frame::RangeMs(0)),
        (WindowFrameUnits::Rows, WindowFrameBound::Preceding(value)) => match value {
            ScalarValue::UInt64(Some(rows)) => Ok(Frame::Rows(*rows)),
            ScalarValue::Int64(Some(rows)) if *rows >= 0 => Ok(Frame::Rows(*rows as u64)),
            _ => Err(unsupported()),
        },
        (WindowFrameUnits::Rows, bound) if current(bound) => Ok(Frame::Rows(0)),
        _ => Err(unsupported()),
    }
}
