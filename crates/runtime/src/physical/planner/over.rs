//! Plans `OVER`.
//!
//! All frames over the same rows in the same order by the same keys become one operator, whichever
//! query of the job they stand in: rows are then exchanged, sorted and kept once. Each query picks
//! its columns from what that operator emits. `LEAD` has an operator of its own, since it waits.

use std::sync::{Arc, Mutex};

use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion_common::ScalarValue;
use datafusion_expr::expr::WindowFunction;
use datafusion_expr::{Expr as Logical, LogicalPlan, WindowFrame, WindowFrameBound, WindowFrameUnits};
use datafusion_physical_expr::expressions::Column as BoundColumn;
use tidemill_operator::Operator;
use tidemill_operator::map::Expr;
use tidemill_operator::over::lead::{Lead, LeadCall, LeadSpec};
use tidemill_operator::over::{Frame, Numbering, Over, OverCall, OverSpec, ValueFunction};
use tidemill_plan::node::as_column;
use tidemill_state::hash;

use super::source::interval_ms;
use super::{Planner, Rel, Wanted};
use crate::JobError;
use crate::physical::aggregate::{WindowCall, bind_all, window_call};
use crate::physical::{Factory, NodeKind, Ship};
use crate::settings::OverTies;

/// An `Over` operator of the graph. It gets more frames as long as queries are planned; operators
/// are made of it afterwards.
pub(super) struct SharedOver {
    node: usize,
    shape: Arc<Mutex<Shape>>,
    /// For each call its frame, what it computes, and its column.
    calls: Vec<(Frame, String, usize)>,
    /// The plans that it computes, for the id of its state.
    identity: String,
}

struct Shape {
    frames: Vec<(Frame, Vec<OverCall>)>,
    schema: SchemaRef,
}

/// How the rows of an `OVER` are divided and ordered.
struct Order {
    time: usize,
    ties: Vec<(usize, SortOptions)>,
    keys: Vec<Expr>,
    key_types: Vec<DataType>,
}

impl Order {
    fn ship(&self) -> Ship {
        if self.keys.is_empty() { Ship::Single } else { Ship::Hash(self.keys.clone()) }
    }
}

impl Planner<'_> {
    pub(super) fn over(&mut self, plan: &LogicalPlan, window: &datafusion_expr::Window, wanted: Wanted) -> Result<Rel, JobError> {
        let input = self.rel(&window.input, wanted)?;
        if input.updating {
            return Err(JobError::refused(
                ["OVER"],
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
        let width = schema.fields().len();
        let all: SchemaRef = Arc::new(window.schema.as_arrow().clone());
        let mut calls = Vec::with_capacity(functions.len());
        for (i, function) in functions.iter().enumerate() {
            let call = window_call(function, &window.window_expr[i], schema, all.field(width + i).data_type())?;
            let frame = match &call {
                WindowCall::Over(OverCall::Number { .. }) => Frame::Unbounded { peers: false },
                WindowCall::Over(OverCall::Value(value)) if matches!(value.function, ValueFunction::Lag { .. }) => {
                    Frame::Unbounded { peers: false }
                }
                WindowCall::Over(_) => frame(&function.params.window_frame)?,
                WindowCall::Lead(_) => Frame::Rows(0),
            };
            calls.push((frame, call));
        }
        // Windows of the same keys and order share an operator; LEAD comes last, it delays rows.
        let mut stages: Vec<Vec<usize>> = Vec::new();
        let is_lead = |i: usize| matches!(calls[i].1, WindowCall::Lead(_));
        let mut numbers: Vec<usize> = (0..functions.len()).collect();
        numbers.sort_by_key(|i| is_lead(*i));
        for i in numbers {
            let same = |stage: &&mut Vec<usize>| {
                let (a, b) = (&functions[stage[0]].params, &functions[i].params);
                a.partition_by == b.partition_by && a.order_by == b.order_by && is_lead(stage[0]) == is_lead(i)
            };
            match stages.iter_mut().find(same) {
                Some(stage) => stage.push(i),
                None => stages.push(vec![i]),
            }
        }
        let mut rel = input.clone();
        // Where the answers of each function stand in the columns of `rel`.
        let mut places: Vec<usize> = vec![0; functions.len()];
        let last = stages.len() - 1;
        for (number, stage) in stages.iter().enumerate() {
            let order = self.order(&functions[stage[0]], &window.input, &input)?;
            check_ties(&order, stage.iter().map(|i| &calls[*i]), &functions[stage[0]])?;
            let single = order.keys.is_empty();
            let before = self.schema(rel.node);
            let identity = format!("{number} {}\n", self.text(plan));
            let (node, columns): (usize, Vec<usize>) = if is_lead(stage[0]) {
                let node = self.lead(&rel, order, stage.iter().map(|i| &calls[*i].1), &identity)?;
                (node, (before.fields().len()..before.fields().len() + stage.len()).collect())
            } else {
                let mut wanted = Vec::with_capacity(stage.len());
                for i in stage {
                    if let (frame, WindowCall::Over(call)) = &calls[*i] {
                        wanted.push((*frame, call.clone(), all.field(width + i).data_type().clone()));
                    }
                }
                self.shared_over(&rel, order, wanted, &identity)?
            };
            rel = Rel { node, time: Vec::new(), updating: false, single, window: None };
            // Only the columns of this query: the operator may get more.
            let emitted = self.schema(node);
            let (picks, declared): (Vec<usize>, SchemaRef) = if number == last {
                stage.iter().zip(&columns).for_each(|(i, column)| places[*i] = *column);
                ((0..width).chain(places.iter().copied()).collect(), all.clone())
            } else {
                let kept = before.fields().len();
                stage.iter().enumerate().for_each(|(at, i)| places[*i] = kept + at);
                let picks: Vec<usize> = (0..kept).chain(columns.iter().copied()).collect();
                let schema = Arc::new(emitted.project(&picks).map_err(JobError::failed)?);
                (picks, schema)
            };
            let expressions = picks.iter().map(|i| Arc::new(BoundColumn::new(emitted.field(*i).name(), *i)) as Expr).collect();
            rel.node = self.map(&rel, None, expressions, declared)?;
        }
        let mut time = input.time.clone();
        time.resize(window.schema.fields().len(), false);
        Ok(Rel { time, ..rel })
    }

    /// The keys and the order of a function's window.
    fn order(&self, function: &WindowFunction, below: &LogicalPlan, input: &Rel) -> Result<Order, JobError> {
        let (params, schema) = (&function.params, below.schema());
        let Some((by, ties)) = params.order_by.split_first() else {
            let message = format!("{} OVER: an OVER in a stream needs ORDER BY an event-time column", name(function));
            return Err(JobError::refused([name(function), "OVER".into()], message));
        };
        let refused = |by: &datafusion_expr::SortExpr| {
            let message = format!(
                "OVER (… ORDER BY {by}): a stream is ordered by an event-time column, ascending; any other order needs SET 'execution.runtime-mode' = 'batch'"
            );
            JobError::refused(order_words(by).chain(["OVER".into()]), message)
        };
        let column = |e: &Logical| as_column(e).and_then(|c| schema.index_of_column(c).ok());
        let time = column(&by.expr).filter(|_| by.asc).ok_or_else(|| refused(by))?;
        self.check_time(input, time, below, "the ORDER BY of an OVER", "ORDER BY")?;
        let ties = ties
            .iter()
            .map(|tie| match column(&tie.expr) {
                Some(index) => Ok((index, SortOptions { descending: !tie.asc, nulls_first: tie.nulls_first })),
                None => Err(JobError::refused(
                    order_words(by).chain(["OVER".into()]),
                    format!("OVER (… ORDER BY {by}, {tie}): behind the event time only columns can stand in a stream; compute it in a view below"),
                )),
            })
            .collect::<Result<Vec<_>, _>>()?;
        let keys = bind_all(&params.partition_by, schema)?;
        let key_types = keys.iter().map(|k| Ok(k.data_type(schema.as_arrow())?)).collect::<Result<Vec<_>, JobError>>()?;
        Ok(Order { time, ties, keys, key_types })
    }

    /// The operator for these rows in this order, with these calls among its own, and the columns in
    /// which they are.
    fn shared_over(
        &mut self,
        rel: &Rel,
        order: Order,
        wanted: Vec<(Frame, OverCall, DataType)>,
        identity: &str,
    ) -> Result<(usize, Vec<usize>), JobError> {
        let key = format!("{} {} {:?} {:?}", rel.node, order.time, order.ties, order.keys);
        let input = self.schema(rel.node);
        let mut shared = self.overs.remove(&key);
        let (mut frames, mut fields, mut known) = match &shared {
            Some(shared) => {
                let shape = shared.shape.lock().expect("no panic while held");
                (shape.frames.clone(), shape.schema.fields().to_vec(), shared.calls.clone())
            }
            None => (Vec::new(), input.fields().to_vec(), Vec::new()),
        };
        let mut columns = Vec::with_capacity(wanted.len());
        for (frame, call, data_type) in wanted {
            let text = text(&call);
            if let Some((.., column)) = known.iter().find(|(f, t, _)| *f == frame && *t == text) {
                columns.push(*column);
                continue;
            }
            columns.push(fields.len());
            known.push((frame, text, fields.len()));
            fields.push(Arc::new(Field::new(format!("over{}", fields.len()), data_type, true)));
            frames.push((frame, vec![call]));
        }
        let schema: SchemaRef = Arc::new(Schema::new(fields));
        let node = match &mut shared {
            Some(shared) => {
                *shared.shape.lock().expect("no panic while held") = Shape { frames, schema: schema.clone() };
                shared.calls = known;
                shared.identity += identity;
                let node = &mut self.graph.nodes[shared.node];
                node.schema = schema;
                node.id = format!("over:{:016x}", hash::bytes(shared.identity.as_bytes()));
                if let NodeKind::Operator(factory) = &node.kind {
                    factory().map_err(|e| JobError::usage(e.to_string()))?;
                }
                shared.node
            }
            None => {
                let shape = Arc::new(Mutex::new(Shape { frames, schema: schema.clone() }));
                let ship = order.ship();
                let mine = shape.clone();
                let in_order = self.in_order(rel.node);
                let by_arrival = self.settings.over_ties == OverTies::ByArrival;
                let factory: Factory = Arc::new(move || {
                    let (frames, schema) = {
                        let shape = mine.lock().expect("no panic while held");
                        (shape.frames.clone(), shape.schema.clone())
                    };
                    let spec = OverSpec {
                        time: order.time,
                        ties: order.ties.clone(),
                        keys: order.keys.clone(),
                        key_types: order.key_types.clone(),
                        frames,
                        in_order,
                        by_arrival,
                        input: input.clone(),
                        schema,
                    };
                    Ok(Box::new(Over::new(spec)?) as Box<dyn Operator>)
                });
                let id = format!("over:{:016x}", hash::bytes(identity.as_bytes()));
                let node = self.operator("Over", id, rel, ship, schema, factory)?;
                shared = Some(SharedOver { node, shape, calls: known, identity: identity.to_string() });
                node
            }
        };
        self.overs.extend(shared.map(|shared| (key, shared)));
        Ok((node, columns))
    }

    fn lead<'c>(
        &mut self,
        rel: &Rel,
        order: Order,
        calls: impl Iterator<Item = &'c WindowCall>,
        identity: &str,
    ) -> Result<usize, JobError> {
        let calls: Vec<LeadCall> = calls
            .filter_map(|call| match call {
                WindowCall::Lead(lead) => Some(lead.clone()),
                WindowCall::Over(_) => None,
            })
            .collect();
        let input = self.schema(rel.node);
        let mut fields = input.fields().to_vec();
        fields.extend(calls.iter().enumerate().map(|(i, c)| Arc::new(Field::new(format!("lead{i}"), c.data_type.clone(), true))));
        let schema: SchemaRef = Arc::new(Schema::new(fields));
        let (ship, declared) = (order.ship(), schema.clone());
        let factory: Factory = Arc::new(move || {
            let spec = LeadSpec {
                time: order.time,
                ties: order.ties.clone(),
                keys: order.keys.clone(),
                key_types: order.key_types.clone(),
                calls: calls.clone(),
                input: input.clone(),
                schema: schema.clone(),
            };
            Ok(Box::new(Lead::new(spec)?) as Box<dyn Operator>)
        });
        let id = format!("lead:{:016x}", hash::bytes(identity.as_bytes()));
        self.operator("Lead", id, rel, ship, declared, factory)
    }
}

fn name(function: &WindowFunction) -> String {
    function.fun.name().to_uppercase()
}

/// How an ORDER BY is likely written.
pub(super) fn order_words(by: &datafusion_expr::SortExpr) -> impl Iterator<Item = String> {
    let column = as_column(&by.expr).map(|column| format!("ORDER BY {}", column.name));
    column.into_iter().chain(["ORDER BY".to_string()])
}

/// What a call computes, so that it is computed once.
fn text(call: &OverCall) -> String {
    match call {
        OverCall::Aggregate(c) => {
            format!("{} {} {} {:?} {:?}", c.name, c.distinct, c.function.ignore_nulls(), c.arguments, c.filter)
        }
        OverCall::Value(c) => format!("{:?} {} {:?}", c.function, c.ignore_nulls, c.argument),
        OverCall::Number { function, .. } => format!("{function:?}"),
    }
}

/// Rows of the same time are peers to RANGE and RANK, whatever columns order them further.
fn check_ties<'c>(
    order: &Order,
    mut calls: impl Iterator<Item = &'c (Frame, WindowCall)>,
    function: &WindowFunction,
) -> Result<(), JobError> {
    let by_row = |(frame, call): &(Frame, WindowCall)| match call {
        WindowCall::Over(OverCall::Number { function, .. }) => *function == Numbering::RowNumber,
        _ => matches!(frame, Frame::Rows(_) | Frame::Unbounded { peers: false }),
    };
    if order.ties.is_empty() || calls.all(by_row) {
        return Ok(());
    }
    let message = format!(
        "{} OVER (… ORDER BY …): in a stream a second column of ORDER BY serves ROW_NUMBER, LAG, LEAD and frames of ROWS only; leave it out, or write ROWS BETWEEN … PRECEDING AND CURRENT ROW",
        name(function)
    );
    Err(JobError::refused([name(function), "OVER".into()], message))
}

/// A frame as it may be written. Of an interval the plan has another form than the text.
fn shown(frame: &WindowFrame) -> String {
    let amount = |value: &ScalarValue| match value {
        value if value.is_null() => "UNBOUNDED".to_string(),
        ScalarValue::IntervalMonthDayNano(_) | ScalarValue::IntervalDayTime(_) | ScalarValue::IntervalYearMonth(_) => "INTERVAL '…'".into(),
        value => value.to_string(),
    };
    let bound = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::CurrentRow => "CURRENT ROW".to_string(),
        WindowFrameBound::Preceding(value) => format!("{} PRECEDING", amount(value)),
        WindowFrameBound::Following(value) => format!("{} FOLLOWING", amount(value)),
    };
    format!("{} BETWEEN {} AND {}", frame.units, bound(&frame.start_bound), bound(&frame.end_bound))
}

fn frame(frame: &WindowFrame) -> Result<Frame, JobError> {
    let current = |bound: &WindowFrameBound| matches!(bound, WindowFrameBound::CurrentRow);
    let (text, units) = (shown(frame), frame.units.to_string());
    if !current(&frame.end_bound) {
        let words = if matches!(frame.end_bound, WindowFrameBound::Following(_)) { "FOLLOWING".to_string() } else { units.clone() };
        return Err(JobError::refused(
            [words, units, "OVER".into()],
            format!(
                "OVER (… {text}): the frame of a stream ends at CURRENT ROW; FOLLOWING needs SET 'execution.runtime-mode' = 'batch', LEAD gives the value of a row that follows"
            ),
        ));
    }
    let unsupported = || {
        JobError::refused(
            [units.as_str(), "OVER"],
            format!(
                "OVER (… {text}): supported are RANGE BETWEEN INTERVAL '…' … PRECEDING AND CURRENT ROW, ROWS BETWEEN n PRECEDING AND CURRENT ROW, and UNBOUNDED PRECEDING"
            ),
        )
    };
    match (&frame.units, &frame.start_bound) {
        (WindowFrameUnits::Range, WindowFrameBound::Preceding(value)) if value.is_null() => Ok(Frame::Unbounded { peers: true }),
        (WindowFrameUnits::Rows, WindowFrameBound::Preceding(value)) if value.is_null() => Ok(Frame::Unbounded { peers: false }),
        (WindowFrameUnits::Range, WindowFrameBound::Preceding(value)) => {
            let wrong = "OVER (… RANGE BETWEEN … PRECEDING AND CURRENT ROW): the bound is an INTERVAL of days or less, such as INTERVAL '10' SECOND, and not negative";
            interval_ms(value).filter(|ms| *ms >= 0).map(Frame::RangeMs).ok_or_else(|| JobError::refused(["RANGE", "OVER"], wrong))
        }
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
