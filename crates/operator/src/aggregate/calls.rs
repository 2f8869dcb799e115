//! All aggregate calls of an operator together: what several of them need is done once.
//!
//! An expression that several calls have, such as the condition of a `FILTER`, is evaluated once a
//! block, and `DISTINCT` calls of the same argument share its values ([`super::distinct`]).

use arrow::array::{ArrayRef, AsArray, BooleanArray};
use tidemill_block::Block;

use super::distinct::{Distinct, Shared};
use super::seen::FILTERS_MAX;
use super::{Accumulator, AggregateCall, Rows, accumulator};
use crate::OperatorError;
use crate::map::Expr;

/// The state of several calls for every slot.
pub struct Calls {
    /// What has to be evaluated, each once.
    expressions: Vec<Expr>,
    parts: Vec<Part>,
    /// How many calls there are.
    count: usize,
}

/// One call, or several that share a set of values.
struct Part {
    /// The arguments, as places in the expressions.
    arguments: Vec<usize>,
    /// The filters, likewise; of a single call one.
    filters: Vec<Option<usize>>,
    /// Which calls these are.
    calls: Vec<usize>,
    state: State,
}

enum State {
    One(Box<dyn Accumulator>),
    Shared(Box<Distinct>),
}

/// Whether evaluating it twice may give two results.
fn volatile(expression: &Expr) -> bool {
    expression.is_volatile_node() || expression.children().into_iter().any(volatile)
}

/// Whether a call may share the set of its values: what comes of them must not depend on their order,
/// which a shared set does not always know.
fn shares(call: &AggregateCall) -> bool {
    call.distinct && matches!(call.name.as_str(), "count" | "sum" | "avg")
}

impl Calls {
    /// No state yet. With `retracts` rows can be taken out.
    ///
    /// # Errors
    /// A function that cannot retract.
    pub fn new(calls: &[AggregateCall], retracts: bool) -> Result<Self, OperatorError> {
        let mut expressions: Vec<Expr> = Vec::new();
        let mut place = |expression: &Expr| {
            let known = expressions.iter().position(|e| e == expression).filter(|_| !volatile(expression));
            known.unwrap_or_else(|| {
                expressions.push(expression.clone());
                expressions.len() - 1
            })
        };
        // Arguments, filters and calls of each part, and for each call the number of its filter.
        let mut drafts: Vec<(Vec<usize>, Vec<Option<usize>>, Vec<usize>, Vec<usize>)> = Vec::new();
        for (at, call) in calls.iter().enumerate() {
            let arguments: Vec<usize> = call.arguments.iter().map(&mut place).collect();
            let filter = call.filter.as_ref().map(&mut place);
            let draft = drafts.iter_mut().find(|(others, filters, members, _)| {
                let fits = filters.contains(&filter) || filters.len() < FILTERS_MAX;
                shares(call) && shares(&calls[members[0]]) && *others == arguments && fits
            });
            let Some((_, filters, members, numbers)) = draft else {
                drafts.push((arguments, vec![filter], vec![at], vec![0]));
                continue;
            };
            let number = filters.iter().position(|f| *f == filter).unwrap_or(filters.len());
            if number == filters.len() {
                filters.push(filter);
            }
            members.push(at);
            numbers.push(number);
        }
        let part = |(arguments, filters, members, numbers): (_, _, Vec<usize>, Vec<usize>)| -> Result<Part, OperatorError> {
            let state = if shares(&calls[members[0]]) {
                let sharing: Vec<&AggregateCall> = members.iter().map(|i| &calls[*i]).collect();
                State::Shared(Box::new(Distinct::shared(&sharing, &numbers, retracts)?))
            } else {
                State::One(accumulator(&calls[members[0]], retracts)?)
            };
            Ok(Part { arguments, filters, calls: members, state })
        };
        let parts = drafts.into_iter().map(part).collect::<Result<Vec<Part>, OperatorError>>()?;
        Ok(Calls { expressions, parts, count: calls.len() })
    }

    /// Makes room for slots below `slots`.
    pub fn resize(&mut self, slots: usize) {
        for part in &mut self.parts {
            part.accumulator().resize(slots);
        }
    }

    /// Takes rows in, and gives for each call the results before and after each row, one behind the
    /// other. Sets `changed` for the rows that change a result.
    ///
    /// # Errors
    /// A value that cannot be computed; as [`Accumulator::update`].
    pub fn update_pairs(&mut self, block: &Block, slots: &[u32], changed: &mut [bool]) -> Result<Vec<ArrayRef>, OperatorError> {
        let evaluated = self.evaluate(block)?;
        let kinds = block.kinds.as_deref();
        let mut columns = vec![None; self.count];
        for part in &mut self.parts {
            let (values, masks) = part.inputs(&evaluated);
            match &mut part.state {
                State::One(accumulator) => {
                    let rows = Rows { slots, values: &values, kinds, mask: masks[0] };
                    columns[part.calls[0]] = Some(accumulator.update_pairs(&rows, changed)?);
                }
                State::Shared(distinct) => {
                    let rows = Shared { slots, values: &values, kinds, masks: &masks };
                    for (call, column) in part.calls.iter().zip(distinct.update_shared_pairs(&rows, changed)?) {
                        columns[*call] = Some(column);
                    }
                }
            }
        }
        Ok(columns.into_iter().map(|column| column.expect("each call is in a part")).collect())
    }

    /// Takes rows in.
    ///
    /// # Errors
    /// As [`Calls::update_pairs`].
    pub fn update(&mut self, block: &Block, slots: &[u32]) -> Result<(), OperatorError> {
        let evaluated = self.evaluate(block)?;
        let kinds = block.kinds.as_deref();
        for part in &mut self.parts {
            let (values, masks) = part.inputs(&evaluated);
            match &mut part.state {
                State::One(accumulator) => accumulator.update(&Rows { slots, values: &values, kinds, mask: masks[0] })?,
                State::Shared(distinct) => distinct.update_shared(&Shared { slots, values: &values, kinds, masks: &masks })?,
            }
        }
        Ok(())
    }

    /// The results of each call at `slots`.
    ///
    /// # Errors
    /// A result that does not fit its type.
    pub fn values(&mut self, slots: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        let mut columns = vec![None; self.count];
        for part in &mut self.parts {
            let results = match &mut part.state {
                State::One(accumulator) => vec![accumulator.values(slots)?],
                State::Shared(distinct) => distinct.shared_values(slots)?,
            };
            part.calls.iter().zip(results).for_each(|(call, column)| columns[*call] = Some(column));
        }
        Ok(columns.into_iter().map(|column| column.expect("each call is in a part")).collect())
    }

    /// Empties `slots`.
    pub fn clear(&mut self, slots: &[u32]) {
        self.parts.iter_mut().for_each(|part| part.accumulator().clear(slots));
    }

    /// The state at `slots` as columns, a row for each slot.
    ///
    /// # Errors
    /// State that cannot be expressed as columns.
    pub fn save(&mut self, slots: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        let mut columns = Vec::new();
        for part in &mut self.parts {
            columns.extend(part.accumulator().save(slots)?);
        }
        Ok(columns)
    }

    /// Merges state that [`Calls::save`] gave into `slots`, row by row.
    ///
    /// # Errors
    /// State of another shape.
    pub fn load(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<(), OperatorError> {
        let mut rest = columns;
        for part in &mut self.parts {
            let accumulator = part.accumulator();
            let width = accumulator.save(&[])?.len();
            accumulator.load(slots, &rest[..width])?;
            rest = &rest[width..];
        }
        Ok(())
    }

    /// Whether state may be saved and loaded at any time without a trace in the results.
    pub fn spills(&self) -> bool {
        self.parts.iter().all(|part| match &part.state {
            State::One(accumulator) => accumulator.spills(),
            State::Shared(distinct) => distinct.spills(),
        })
    }

    /// Whether saving and emptying a few slots costs a pass over all of them.
    pub fn scans(&self) -> bool {
        self.parts.iter().any(|part| match &part.state {
            State::One(accumulator) => accumulator.scans(),
            State::Shared(_) => true,
        })
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        let memory = |part: &Part| match &part.state {
            State::One(accumulator) => accumulator.memory(),
            State::Shared(distinct) => distinct.memory(),
        };
        self.parts.iter().map(memory).sum()
    }

    /// Bytes of these that are free again when slots are cleared.
    pub fn heap(&self) -> usize {
        let heap = |part: &Part| match &part.state {
            State::One(accumulator) => accumulator.heap(),
            State::Shared(distinct) => distinct.heap(),
        };
        self.parts.iter().map(heap).sum()
    }

    fn evaluate(&self, block: &Block) -> Result<Vec<ArrayRef>, OperatorError> {
        let rows = block.rows();
        self.expressions.iter().map(|e| Ok(e.evaluate(&block.batch)?.into_array(rows)?)).collect()
    }
}

impl Part {
    fn accumulator(&mut self) -> &mut dyn Accumulator {
        match &mut self.state {
            State::One(accumulator) => &mut **accumulator,
            State::Shared(distinct) => &mut **distinct,
        }
    }

    /// The arguments, and the rows that each filter lets through.
    fn inputs<'a>(&self, evaluated: &'a [ArrayRef]) -> (Vec<ArrayRef>, Vec<Option<&'a BooleanArray>>) {
        let values = self.arguments.iter().map(|i| evaluated[*i].clone()).collect();
        (values, self.filters.iter().map(|f| f.map(|i| evaluated[i].as_boolean())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::call;
    use super::*;
    use arrow::array::{Array, Int64Array, RecordBatch, UInt32Array};
    use arrow::datatypes::{DataType, Int64Type};
    use datafusion_expr::Operator;
    use datafusion_physical_expr::expressions::{BinaryExpr, Column, Literal};
    use std::sync::Arc;
    use tidemill_block::RowKind;

    fn filtered(name: &str, distinct: bool, least: Option<i64>) -> AggregateCall {
        let mut call = call(name, DataType::Int64, false);
        let literal = |n: i64| Arc::new(Literal::new(datafusion_common::ScalarValue::Int64(Some(n))));
        call.distinct = distinct;
        call.filter = least.map(|n| Arc::new(BinaryExpr::new(Arc::new(Column::new("w", 1)), Operator::GtEq, literal(n))) as Expr);
        call
    }

    fn block(rows: &[(RowKind, Option<i64>, i64)]) -> Block {
        let column = |values: Int64Array| Arc::new(values) as ArrayRef;
        let batch = RecordBatch::try_from_iter_with_nullable([
            ("v", column(rows.iter().map(|r| r.1).collect()), true),
            ("w", column(rows.iter().map(|r| Some(r.2)).collect()), true),
        ]);
        Block::changelog(batch.unwrap(), rows.iter().map(|r| r.0).collect(), 0)
    }

    /// Together the calls give what each gives alone, also from saved state.
    #[test]
    fn together_as_alone() {
        let calls: Vec<AggregateCall> = [None, Some(3), Some(6)]
            .into_iter()
            .flat_map(|least| ["count", "sum"].map(|name| [filtered(name, true, least), filtered(name, false, least)]))
            .flatten()
            .collect();
        for retracts in [false, true] {
            let mut together = Calls::new(&calls, retracts).unwrap();
            assert_eq!((together.expressions.len(), together.parts.len()), (3, 7), "v, two filters; six calls and a set");
            let mut alone: Vec<Box<dyn Accumulator>> = calls.iter().map(|c| accumulator(c, true).unwrap()).collect();
            together.resize(4);
            alone.iter_mut().for_each(|a| a.resize(4));
            for turn in 0..6_usize {
                let row = |i: usize| {
                    let kind = if retracts && (i + turn).is_multiple_of(3) { RowKind::Delete } else { RowKind::Insert };
                    (kind, Some((i * 7 % 11) as i64).filter(|v| *v > 0), (i * turn % 9) as i64)
                };
                let block = block(&(0..50).map(row).collect::<Vec<_>>());
                let slots: Vec<u32> = (0..50).map(|i| i % 4).collect();
                let mut changed = vec![false; 50];
                let pairs = together.update_pairs(&block, &slots, &mut changed).unwrap();
                let mut expect_changed = vec![false; 50];
                for ((call, alone), pairs) in calls.iter().zip(&mut alone).zip(&pairs) {
                    let (values, mask) = call.evaluate(&block).unwrap();
                    let rows = Rows { slots: &slots, values: &values, kinds: block.kinds.as_deref(), mask: mask.as_ref() };
                    let (before, after) = alone.update_each(&rows).unwrap();
                    let side = |of: u32| {
                        let picks: UInt32Array = (0..50).map(|row| row * 2 + of).collect();
                        arrow::compute::take(pairs, &picks, None).unwrap()
                    };
                    assert_eq!((side(0), side(1)), (before.clone(), after.clone()), "{} {turn}", call.name);
                    for (row, changed) in expect_changed.iter_mut().enumerate() {
                        let value = |a: &ArrayRef| Some(a.as_primitive::<Int64Type>().value(row)).filter(|_| a.is_valid(row));
                        *changed |= value(&before) != value(&after);
                    }
                }
                assert_eq!(changed, expect_changed);
                let saved = together.save(&[3, 1, 0, 2]).unwrap();
                together = Calls::new(&calls, retracts).unwrap();
                together.resize(4);
                together.load(&[3, 1, 0, 2], &saved).unwrap();
            }
        }
    }
}
