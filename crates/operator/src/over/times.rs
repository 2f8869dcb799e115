//! Event times of a column in milliseconds, whatever its unit.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    DataType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};

use crate::OperatorError;

/// A view of a timestamp column that gives milliseconds.
pub struct TimeColumn<'a> {
    values: &'a [i64],
    nulls: Option<&'a NullBuffer>,
    unit: TimeUnit,
}

impl<'a> TimeColumn<'a> {
    /// The view of `column`.
    ///
    /// # Errors
    /// The column is not a timestamp.
    pub fn of(column: &'a ArrayRef) -> Result<Self, OperatorError> {
        let DataType::Timestamp(unit, _) = column.data_type() else {
            return Err(OperatorError::new(format!("an event-time column must be a timestamp, this one is {}", column.data_type())));
        };
        let values: &[i64] = match unit {
            TimeUnit::Second => column.as_primitive::<TimestampSecondType>().values(),
            TimeUnit::Millisecond => column.as_primitive::<TimestampMillisecondType>().values(),
            TimeUnit::Microsecond => column.as_primitive::<TimestampMicrosecondType>().values(),
            TimeUnit::Nanosecond => column.as_primitive::<TimestampNanosecondType>().values(),
        };
        Ok(TimeColumn { values, nulls: column.nulls().filter(|n| n.null_count() > 0), unit: *unit })
    }

    /// The time of row `row`; `None` for NULL. Finer units are rounded down.
    #[inline]
    pub fn ms(&self, row: usize) -> Option<i64> {
        if self.nulls.is_some_and(|n| n.is_null(row)) {
            return None;
        }
        Some(match self.unit {
            TimeUnit::Second => self.values[row] * 1000,
            TimeUnit::Millisecond => self.values[row],
            TimeUnit::Microsecond => self.values[row].div_euclid(1000),
            TimeUnit::Nanosecond => self.values[row].div_euclid(1_000_000),
        })
    }

    /// All times, if there is no NULL; borrowed where the unit is milliseconds.
    pub fn all_ms(&self) -> Option<std::borrow::Cow<'a, [i64]>> {
        if self.nulls.is_some() {
            return None;
        }
        Some(match self.unit {
            TimeUnit::Millisecond => self.values.into(),
            _ => (0..self.values.len()).map(|r| self.ms(r).expect("no nulls")).collect::<Vec<_>>().into(),
        })
    }
}
