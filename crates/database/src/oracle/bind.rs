//! Columns as the driver takes parameters: a value of each column for each row, by reference.

use arrow::array::Array;
use oracledb::{OracleNumber, OracleTimestamp, ToDbValue};

use super::encode::{Sent, Values};

/// A column of parameters.
pub(super) enum Cells<'a> {
    Number(&'a [Option<OracleNumber>]),
    Float(&'a [Option<f32>]),
    Double(&'a [Option<f64>]),
    Bool(&'a [Option<bool>]),
    Text(Vec<Option<&'a str>>),
    Bytes(Vec<Option<&'a [u8]>>),
    Moment(&'a [Option<OracleTimestamp>]),
}

impl<'a> Cells<'a> {
    /// Of a column.
    pub fn of(column: &'a Sent<'_>) -> Self {
        match &column.values {
            Values::Number(values) => Cells::Number(values),
            Values::Float(values) => Cells::Float(values),
            Values::Double(values) => Cells::Double(values),
            Values::Bool(values) => Cells::Bool(values),
            Values::Text(values) => Cells::Text(values.iter().collect()),
            Values::Bytes(values) => Cells::Bytes(values.iter().collect()),
            Values::Moment(values) => Cells::Moment(values),
        }
    }

    /// A row's value.
    pub fn get(&self, row: usize) -> &dyn ToDbValue {
        match self {
            Cells::Number(values) => &values[row],
            Cells::Float(values) => &values[row],
            Cells::Double(values) => &values[row],
            Cells::Bool(values) => &values[row],
            Cells::Text(values) => &values[row],
            Cells::Bytes(values) => &values[row],
            Cells::Moment(values) => &values[row],
        }
    }
}

/// Bytes that the values of a column take on their way, about.
pub(super) fn bytes(column: &Sent<'_>) -> usize {
    let length = |offsets: &[i32]| offsets.last().zip(offsets.first()).map_or(0, |(to, from)| (to - from) as usize);
    match &column.values {
        Values::Number(values) => 12 * values.len(),
        Values::Float(values) => 5 * values.len(),
        Values::Double(values) => 9 * values.len(),
        Values::Bool(values) => 3 * values.len(),
        Values::Text(values) => length(values.value_offsets()) + values.len(),
        Values::Bytes(values) => length(values.value_offsets()) + values.len(),
        Values::Moment(values) => 12 * values.len(),
    }
}
