//! Windows: assigning rows to them, and aggregating in them.
//!
//! [`assign`] adds the window columns to rows, [`slices`] aggregates TUMBLE, HOP and CUMULATE by
//! slices, of which [`hop`] makes overlapping windows, [`session`] aggregates sessions. [`groups`] is
//! the state they share: keys and accumulators of one slice.

pub mod assign;
mod groups;
mod hop;
pub mod session;
pub mod slices;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, SchemaRef, TimeUnit};
use tidemill_block::Block;

use crate::OperatorError;
use crate::aggregate::AggregateCall;
use crate::map::Expr;
use crate::over::times::TimeColumn;

/// What a window aggregate computes: the output has the keys, the calls, then the start, the end
/// and the time of the window.
pub struct WindowSpec {
    /// Index of the time column in the input.
    pub time: usize,
    /// Grouping keys, the window aside.
    pub keys: Vec<Expr>,
    /// Their types.
    pub key_types: Vec<DataType>,
    /// The aggregate calls.
    pub calls: Vec<AggregateCall>,
    /// Keys, calls, window_start, window_end, window_time.
    pub schema: SchemaRef,
}

/// A column of `rows` times the time `ms`, of type `to`.
fn time_column(values: Vec<i64>, to: &DataType) -> Result<ArrayRef, OperatorError> {
    let ms: ArrayRef = Arc::new(Int64Array::from(values));
    let ms = cast(&ms, &DataType::Timestamp(TimeUnit::Millisecond, None))?;
    Ok(match to {
        DataType::Timestamp(TimeUnit::Millisecond, None) => ms,
        // Through the same unit without a zone: the number must not be shifted.
        DataType::Timestamp(unit, Some(_)) => {
            let plain = cast(&ms, &DataType::Timestamp(*unit, None))?;
            arrow::array::make_array(plain.to_data().into_builder().data_type(to.clone()).build()?)
        }
        other => cast(&ms, other)?,
    })
}

/// The event times of a block in milliseconds.
fn times(block: &Block, column: usize) -> Result<Vec<i64>, OperatorError> {
    let times = TimeColumn::of(block.column(column))?;
    match times.all_ms() {
        Some(ms) => Ok(ms.into_owned()),
        None => Err(null_time(block, column)),
    }
}

fn null_time(block: &Block, column: usize) -> OperatorError {
    OperatorError::new(format!(
        "the event-time column '{}' is NULL in a row; event time must not be NULL: filter such rows out in a view below the watermark, or give them a time with COALESCE",
        block.schema().field(column).name()
    ))
}
