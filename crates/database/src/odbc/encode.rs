//! Columns of a batch as parameters.
//!
//! Numbers are bound where they lie in Arrow's buffers. Texts and bytes become arrays of one width, for pieces of a
//! batch that are small enough; decimals travel as digits, dates and times as ODBC's structures. Every value is
//! checked before it is sent: what the database would round, cut or fill up is refused.

mod check;
mod make;

use arrow::array::RecordBatch;
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};

use super::column::Column;
use super::ffi::{Date, NULL_DATA, Parameter, SqlType, Timestamp, Values};
use super::system::System;
use crate::driver::DbError;

/// Bytes of a piece whose texts are filled up to one width.
const PIECE_BYTES: usize = 1 << 20;
/// Rows of a piece.
const PIECE_ROWS: usize = 4096;

/// A column that is to be sent.
pub(super) struct Sent {
    data: Data,
    /// Bytes of each value, [`NULL_DATA`] for NULL.
    lengths: Vec<isize>,
    sql: SqlType,
}

enum Data {
    Bits(Vec<u8>),
    Shorts(ScalarBuffer<i16>),
    Ints(ScalarBuffer<i32>),
    Longs(ScalarBuffer<i64>),
    Floats(ScalarBuffer<f32>),
    Doubles(ScalarBuffer<f64>),
    Dates(Vec<Date>),
    Timestamps(Vec<Timestamp>),
    /// Text of ASCII only, or bytes.
    Narrow {
        bytes: Buffer,
        offsets: OffsetBuffer<i32>,
        binary: bool,
    },
    /// Text in UTF-16.
    Wide {
        units: Vec<u16>,
        offsets: Vec<usize>,
    },
}

/// The columns of `rows` for columns of the database.
///
/// # Errors
/// A type that a column does not take; a value that does not fit, with the column and the value.
pub(super) fn prepare(rows: &RecordBatch, columns: &[&Column], system: System) -> Result<Vec<Sent>, DbError> {
    let schema = rows.schema();
    let each = schema.fields().iter().zip(rows.columns()).zip(columns);
    each.map(|((field, array), column)| make::sent(field.name(), array, column, system)).collect()
}

impl Sent {
    /// Elements of a value of a column whose values differ in length; `None` of others.
    fn length(&self, row: usize) -> Option<usize> {
        match &self.data {
            Data::Narrow { offsets, .. } => Some((offsets[row + 1] - offsets[row]) as usize),
            Data::Wide { offsets, .. } => Some(offsets[row + 1] - offsets[row]),
            _ => None,
        }
    }

    /// Bytes of an element.
    fn element(&self) -> usize {
        if matches!(self.data, Data::Wide { .. }) { size_of::<u16>() } else { 1 }
    }

    /// The parameter of one row.
    pub fn parameter(&self, row: usize) -> Parameter<'_> {
        let values = match &self.data {
            // One that is empty points at something, too.
            Data::Narrow { bytes, offsets, binary } => {
                let (from, to) = (offsets[row] as usize, offsets[row + 1] as usize);
                let text = if from == to { &[0][..] } else { &bytes[from..to] };
                if *binary { Values::Binary(text, text.len()) } else { Values::Char(text, text.len()) }
            }
            Data::Wide { units, offsets } => {
                let (from, to) = (offsets[row], offsets[row + 1]);
                let text = if from == to { &[0][..] } else { &units[from..to] };
                Values::Wide(text, text.len())
            }
            _ => self.plain(row, 1),
        };
        Parameter { values, lengths: &self.lengths[row..row + 1], kind: self.sql }
    }

    /// Values of one width, where they lie.
    fn plain(&self, first: usize, rows: usize) -> Values<'_> {
        let range = first..first + rows;
        match &self.data {
            Data::Bits(v) => Values::Bit(&v[range]),
            Data::Shorts(v) => Values::I16(&v[range]),
            Data::Ints(v) => Values::I32(&v[range]),
            Data::Longs(v) => Values::I64(&v[range]),
            Data::Floats(v) => Values::F32(&v[range]),
            Data::Doubles(v) => Values::F64(&v[range]),
            Data::Dates(v) => Values::Date(&v[range]),
            Data::Timestamps(v) => Values::Timestamp(&v[range]),
            Data::Narrow { .. } | Data::Wide { .. } => Values::Bit(&[]),
        }
    }
}

/// How many rows from `first` on make a piece: at least one.
pub(super) fn piece_rows(sent: &[Sent], first: usize, rows: usize) -> usize {
    let mut widths = vec![0usize; sent.len()];
    let most = (rows - first).min(PIECE_ROWS);
    for count in 0..most {
        let mut bytes = 0;
        for (width, column) in widths.iter_mut().zip(sent) {
            if let Some(length) = column.length(first + count) {
                *width = (*width).max(length * column.element());
                bytes += *width;
            }
        }
        if count > 0 && bytes.saturating_mul(count + 1) > PIECE_BYTES {
            return count;
        }
    }
    most
}

/// Memory for pieces, kept for the next.
#[derive(Default)]
pub(super) struct Pads(Vec<Pad>);

#[derive(Default)]
struct Pad {
    bytes: Vec<u8>,
    units: Vec<u16>,
    /// Elements of a value.
    width: usize,
}

impl Pads {
    /// The parameters of a piece.
    pub fn parameters<'a>(&'a mut self, sent: &'a [Sent], first: usize, rows: usize) -> Vec<Parameter<'a>> {
        self.0.resize_with(sent.len(), Pad::default);
        let pads = self.0.iter_mut().zip(sent);
        pads.map(|(pad, column)| Parameter {
            values: pad.fill(column, first, rows),
            lengths: &column.lengths[first..first + rows],
            kind: column.sql,
        })
        .collect()
    }
}

impl Pad {
    fn fill<'a>(&'a mut self, column: &'a Sent, first: usize, rows: usize) -> Values<'a> {
        self.width = (first..first + rows).filter_map(|row| column.length(row)).max().unwrap_or(0).max(1);
        match &column.data {
            Data::Narrow { bytes, offsets, binary } => {
                self.bytes.clear();
                self.bytes.resize(self.width * rows, 0);
                for (row, place) in self.bytes.chunks_exact_mut(self.width).enumerate() {
                    let value = &bytes[offsets[first + row] as usize..offsets[first + row + 1] as usize];
                    place[..value.len()].copy_from_slice(value);
                }
                if *binary { Values::Binary(&self.bytes, self.width) } else { Values::Char(&self.bytes, self.width) }
            }
            Data::Wide { units, offsets } => {
                self.units.clear();
                self.units.resize(self.width * rows, 0);
                for (row, place) in self.units.chunks_exact_mut(self.width).enumerate() {
                    let value = &units[offsets[first + row]..offsets[first + row + 1]];
                    place[..value.len()].copy_from_slice(value);
                }
                Values::Wide(&self.units, self.width)
            }
            _ => column.plain(first, rows),
        }
    }
}

/// Lengths of values, NULL where `is_null` says so.
fn lengths(rows: usize, is_null: impl Fn(usize) -> bool, bytes: impl Fn(usize) -> usize) -> Vec<isize> {
    (0..rows).map(|row| if is_null(row) { NULL_DATA } else { bytes(row) as isize }).collect()
}

#[cfg(test)]
mod tests;
