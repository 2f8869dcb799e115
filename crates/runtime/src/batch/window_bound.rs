//! The bounds of a row's windows as a scalar function, for batch plans.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, ListArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, TimeUnit};
use datafusion_common::{Result, exec_err};
use datafusion_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility};
use tidemill_operator::over::times::TimeColumn;
use tidemill_plan::WindowKind;

/// Which bound of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Bound {
    Start,
    End,
    Time,
}

/// Gives the bound of the window of a time, or a list with the bounds of all its windows.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct WindowBound {
    kind: WindowKind,
    bound: Bound,
    many: bool,
    signature: Signature,
    name: String,
}

impl WindowBound {
    pub fn new(kind: WindowKind, bound: Bound, many: bool) -> Self {
        WindowBound { kind, bound, many, signature: Signature::any(1, Volatility::Immutable), name: format!("window_{bound:?}_{kind:?}") }
    }

    fn item(&self, time: &DataType) -> DataType {
        match (self.bound, time) {
            (Bound::Time, t) => t.clone(),
            (_, DataType::Timestamp(unit, _)) => DataType::Timestamp(*unit, None),
            (_, other) => other.clone(),
        }
    }
}

impl ScalarUDFImpl for WindowBound {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        let item = self.item(&args[0]);
        Ok(if self.many { DataType::List(Arc::new(Field::new("item", item, true))) } else { item })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let times = args.args[0].to_array(args.number_rows)?;
        let item = self.item(times.data_type());
        let DataType::Timestamp(unit, _) = times.data_type() else {
            return exec_err!("a window needs a timestamp, not {}", times.data_type());
        };
        let scale = match unit {
            TimeUnit::Second => return exec_err!("a window needs a timestamp of milliseconds or finer"),
            TimeUnit::Millisecond => 1,
            TimeUnit::Microsecond => 1000,
            TimeUnit::Nanosecond => 1_000_000,
        };
        let column = TimeColumn::of(&times).map_err(|e| datafusion_common::DataFusionError::Execution(e.to_string()))?;
        let mut values: Vec<i64> = Vec::with_capacity(times.len());
        let mut lengths = Vec::with_capacity(times.len());
        for row in 0..times.len() {
            let before = values.len();
            let Some(t) = column.ms(row) else { return exec_err!("the event-time column is NULL in a row; event time must not be NULL") };
            self.kind.windows_of(t, |start, end| {
                values.push(
                    scale
                        * match self.bound {
                            Bound::Start => start,
                            Bound::End => end,
                            Bound::Time => end - 1,
                        },
                );
            });
            lengths.push(values.len() - before);
        }
        let plain: ArrayRef = Arc::new(Int64Array::from(values));
        let values = arrow::array::make_array(plain.to_data().into_builder().data_type(item.clone()).build()?);
        if !self.many {
            return Ok(ColumnarValue::Array(values));
        }
        let field = Arc::new(Field::new("item", item, true));
        Ok(ColumnarValue::Array(Arc::new(ListArray::new(field, OffsetBuffer::from_lengths(lengths), values, None))))
    }
}
