//! Accumulators: aggregate functions over slots.
//!
//! An accumulator holds the state of one aggregate call for every slot of a
//! [`tidemill_state::KeyTable`], in columns. The same accumulators serve running aggregates,
//! windows and merging of window slices. [`typed`] has the numeric kernels, [`extreme`] MIN and MAX,
//! [`ends`] FIRST_VALUE and LAST_VALUE, [`list`] these and ARRAY_AGG where rows are taken back,
//! [`distinct`] the `DISTINCT` of any other over the sets in [`seen`], [`fallback`] lends DataFusion's
//! accumulators, one per slot, for everything else. [`calls`] puts all calls of an operator together,
//! [`pairs`] writes results before and after a row.

pub mod calls;
mod distinct;
mod ends;
mod extreme;
mod fallback;
mod list;
pub(crate) mod pairs;
mod seen;
#[cfg(test)]
pub(crate) mod tests;
mod typed;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{DataType, FieldRef};
use datafusion_physical_expr::aggregate::AggregateFunctionExpr;
use tidemill_block::{Block, RowKind};

use crate::OperatorError;
use crate::map::Expr;
pub(crate) use typed::overflow;

/// An aggregate function call bound to its input's columns.
#[derive(Clone)]
pub struct AggregateCall {
    /// DataFusion's description: function, arguments, types.
    pub function: Arc<AggregateFunctionExpr>,
    /// The function's lower-case name.
    pub name: String,
    /// The arguments; empty for `COUNT(*)`.
    pub arguments: Vec<Expr>,
    /// Their types.
    pub argument_types: Vec<DataType>,
    /// The condition of `FILTER (WHERE …)`.
    pub filter: Option<Expr>,
    /// `DISTINCT`.
    pub distinct: bool,
    /// The result.
    pub output: FieldRef,
}

/// The rows that an accumulator takes in.
pub struct Rows<'a> {
    /// The slot of each row.
    pub slots: &'a [u32],
    /// The arguments, evaluated.
    pub values: &'a [ArrayRef],
    /// The kind of each row; `None` means inserts.
    pub kinds: Option<&'a [RowKind]>,
    /// The rows that count, by `FILTER`.
    pub mask: Option<&'a BooleanArray>,
}

impl Rows<'_> {
    #[inline]
    fn counts(&self, row: usize) -> bool {
        self.mask.is_none_or(|m| m.value(row) && m.is_valid(row))
    }
    #[inline]
    fn adds(&self, row: usize) -> bool {
        self.kinds.is_none_or(|k| k[row].adds())
    }
    /// The rows that count and in which no argument is NULL; `None` if these are all.
    fn whole(&self) -> Option<BooleanBuffer> {
        let mut all = self.mask.map(passing);
        for nulls in self.values.iter().filter_map(|v| v.logical_nulls()).filter(|n| n.null_count() > 0) {
            all = Some(all.map_or_else(|| nulls.inner().clone(), |all| &all & nulls.inner()));
        }
        all
    }
}

/// The rows that a mask lets through: NULL counts as false.
fn passing(mask: &BooleanArray) -> BooleanBuffer {
    match mask.nulls() {
        Some(nulls) if nulls.null_count() > 0 => mask.values() & nulls.inner(),
        _ => mask.values().clone(),
    }
}

/// The state of one aggregate call for every slot.
pub trait Accumulator: Send {
    /// Makes room for slots below `slots`.
    fn resize(&mut self, slots: usize);

    /// Takes rows in; a retracted row is taken out again.
    ///
    /// # Errors
    /// Overflow; a retraction that the function cannot do.
    fn update(&mut self, rows: &Rows<'_>) -> Result<(), OperatorError>;

    /// As [`Accumulator::update`], and gives for each row the result before and after it.
    ///
    /// # Errors
    /// As [`Accumulator::update`].
    fn update_each(&mut self, rows: &Rows<'_>) -> Result<(ArrayRef, ArrayRef), OperatorError>;

    /// As [`Accumulator::update_each`], the results before and after a row one behind the other in one
    /// column. Sets `changed` for the rows that change the result.
    ///
    /// # Errors
    /// As [`Accumulator::update`].
    fn update_pairs(&mut self, rows: &Rows<'_>, changed: &mut [bool]) -> Result<ArrayRef, OperatorError> {
        let (before, after) = self.update_each(rows)?;
        pairs::interleaved(&before, &after, changed)
    }

    /// The results at `slots`.
    ///
    /// # Errors
    /// A result that does not fit its type.
    fn values(&mut self, slots: &[u32]) -> Result<ArrayRef, OperatorError>;

    /// Empties `slots`.
    fn clear(&mut self, slots: &[u32]);

    /// The state at `slots` as columns, a row for each slot.
    ///
    /// # Errors
    /// State that cannot be expressed as columns.
    fn save(&mut self, slots: &[u32]) -> Result<Vec<ArrayRef>, OperatorError>;

    /// Merges state that [`Accumulator::save`] gave into `slots`, row by row.
    ///
    /// # Errors
    /// State of another shape.
    fn load(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<(), OperatorError>;

    /// Whether [`Accumulator::unload`] can be used.
    fn unmerges(&self) -> bool {
        false
    }

    /// Takes state that was merged into `slots` by [`Accumulator::load`] out again.
    ///
    /// # Errors
    /// State of another shape; a function that cannot do this.
    fn unload(&mut self, _slots: &[u32], _columns: &[ArrayRef]) -> Result<(), OperatorError> {
        Err(OperatorError::new("internal error: this function cannot take merged state out again"))
    }

    /// Whether state may be saved and loaded at any time without a trace in the results. Constant.
    fn spills(&self) -> bool {
        true
    }

    /// Whether saving and emptying a few slots costs a pass over all of them. Constant.
    fn scans(&self) -> bool {
        false
    }

    /// Bytes of memory.
    fn memory(&self) -> usize;

    /// Bytes of these that are free again, for this or for others, when slots are cleared.
    fn heap(&self) -> usize {
        0
    }
}

/// The accumulator for a call. With `retracts` it must be able to take rows out.
///
/// # Errors
/// A function that cannot retract.
pub fn accumulator(call: &AggregateCall, retracts: bool) -> Result<Box<dyn Accumulator>, OperatorError> {
    if call.distinct && !matches!(call.name.as_str(), "min" | "max") {
        return Ok(Box::new(distinct::Distinct::new(call, retracts)?));
    }
    plain(call, retracts)
}

fn plain(call: &AggregateCall, retracts: bool) -> Result<Box<dyn Accumulator>, OperatorError> {
    if let Some(typed) = typed::accumulator(&call.name, call.argument_types.first(), call.output.data_type()) {
        return Ok(typed);
    }
    if matches!(call.name.as_str(), "min" | "max")
        && let Some(extreme) = extreme::accumulator(call.name == "max", call.output.data_type(), retracts)
    {
        return Ok(extreme);
    }
    if retracts && let Some(list) = list::accumulator(call) {
        return Ok(list);
    }
    if !retracts && matches!(call.name.as_str(), "first_value" | "last_value") && call.argument_types.len() == 1 {
        return Ok(ends::accumulator(call.name == "last_value", call.function.ignore_nulls(), call.output.data_type()));
    }
    Ok(Box::new(fallback::Fallback::new(call.clone(), retracts)?))
}

impl AggregateCall {
    /// The arguments and the mask for a block.
    ///
    /// # Errors
    /// A value that an argument cannot compute.
    pub fn evaluate(&self, block: &Block) -> Result<(Vec<ArrayRef>, Option<BooleanArray>), OperatorError> {
        let rows = block.rows();
        let values =
            self.arguments.iter().map(|e| Ok(e.evaluate(&block.batch)?.into_array(rows)?)).collect::<Result<Vec<_>, OperatorError>>()?;
        let mask = match &self.filter {
            None => None,
            Some(filter) => {
                let mask = filter.evaluate(&block.batch)?.into_array(rows)?;
                Some(arrow::array::AsArray::as_boolean(mask.as_ref()).clone())
            }
        };
        Ok((values, mask))
    }
}
