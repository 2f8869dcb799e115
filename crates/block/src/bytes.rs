//! How many bytes rows have, for bounds in bytes. What they keep in memory is more where they are few out of many that nobody
//! else needs any more.

use arrow::array::{Array, AsArray, OffsetSizeTrait, RecordBatch};
use arrow::datatypes::DataType;

/// About how many bytes the rows of a batch have: of a slice only its own rows count, of a dictionary the keys. Takes a few
/// nanoseconds a column, however many rows there are, and some a row where columns are views.
pub fn rows_bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|column| of(column.as_ref())).sum()
}

fn of(column: &dyn Array) -> usize {
    let rows = column.len();
    match column.data_type() {
        DataType::Utf8 => texts(column.as_string::<i32>().value_offsets()),
        DataType::LargeUtf8 => texts(column.as_string::<i64>().value_offsets()),
        DataType::Binary => texts(column.as_binary::<i32>().value_offsets()),
        DataType::LargeBinary => texts(column.as_binary::<i64>().value_offsets()),
        DataType::Utf8View => views(column.as_string_view().lengths()),
        DataType::BinaryView => views(column.as_binary_view().lengths()),
        DataType::List(_) => lists(column.as_list::<i32>().value_offsets(), column.as_list::<i32>().values().as_ref()),
        DataType::LargeList(_) => lists(column.as_list::<i64>().value_offsets(), column.as_list::<i64>().values().as_ref()),
        DataType::Map(..) => lists(column.as_map().value_offsets(), column.as_map().entries()),
        DataType::Struct(_) => column.as_struct().columns().iter().map(|field| of(field.as_ref())).sum(),
        DataType::FixedSizeList(..) => of(column.as_fixed_size_list().values().as_ref()),
        DataType::FixedSizeBinary(width) => rows * usize::try_from(*width).unwrap_or(0),
        DataType::Dictionary(key, _) => rows * key.primitive_width().unwrap_or(8),
        other => other.primitive_width().map_or(rows.div_ceil(8), |width| rows * width),
    }
}

/// The first of the values that the offsets delimit, and how many there are.
fn span<O: OffsetSizeTrait>(offsets: &[O]) -> (usize, usize) {
    match (offsets.first(), offsets.last()) {
        (Some(first), Some(last)) => (first.as_usize(), last.as_usize() - first.as_usize()),
        _ => (0, 0),
    }
}

fn texts<O: OffsetSizeTrait>(offsets: &[O]) -> usize {
    size_of_val(offsets) + span(offsets).1
}

fn views(lengths: impl Iterator<Item = u32>) -> usize {
    lengths.map(|length| 16 + length as usize).sum()
}

fn lists<O: OffsetSizeTrait>(offsets: &[O], values: &dyn Array) -> usize {
    let (first, length) = span(offsets);
    size_of_val(offsets) + of(values.slice(first, length).as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, BinaryArray, BooleanArray, DictionaryArray, FixedSizeListArray, Int64Array, ListArray, StringArray, StringViewArray,
        StructArray,
    };
    use arrow::datatypes::{Field, Int32Type, Int64Type};

    /// The bytes of eight rows, and of the last two of them.
    #[track_caller]
    fn check(column: ArrayRef, all: usize, two: usize) {
        assert_eq!(column.len(), 8);
        let batch = RecordBatch::try_from_iter([("c", column)]).unwrap();
        assert_eq!((rows_bytes(&batch), rows_bytes(&batch.slice(6, 2))), (all, two), "{:?}", batch.column(0).data_type());
        assert!(rows_bytes(&batch.slice(3, 0)) <= 4, "an offset at most");
    }

    #[test]
    fn only_the_rows_of_a_slice_count() {
        // Of one byte to eight.
        let texts: Vec<String> = (1..=8).map(|n| "x".repeat(n)).collect();
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..8));
        check(numbers.clone(), 64, 16);
        check(Arc::new(BooleanArray::from(vec![true; 8])), 1, 1);
        check(Arc::new(StringArray::from_iter_values(&texts)), 9 * 4 + 36, 3 * 4 + 15);
        check(Arc::new(BinaryArray::from_iter_values(&texts)), 9 * 4 + 36, 3 * 4 + 15);
        check(Arc::new(StringViewArray::from_iter_values(&texts)), 8 * 16 + 36, 2 * 16 + 15);
        check(Arc::new(DictionaryArray::<Int32Type>::from_iter(texts.iter().map(String::as_str))), 32, 8);
        let pairs = (0..8).map(|n| Some(vec![Some(n), Some(n)]));
        check(Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(pairs.clone())), 9 * 4 + 128, 3 * 4 + 32);
        check(Arc::new(FixedSizeListArray::from_iter_primitive::<Int64Type, _, _>(pairs, 2)), 128, 32);
        let field = Arc::new(Field::new("n", DataType::Int64, false));
        check(Arc::new(StructArray::from(vec![(field, numbers)])), 64, 16);
    }
}
