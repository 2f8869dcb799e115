//! Tests of `columns`.

use std::sync::Arc;

use super::*;
use arrow::array::{Int8Array, Int64Array, LargeStringArray, TimestampSecondArray};
use arrow::datatypes::{Field, TimeUnit};

fn target() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("n", DataType::Int64, false),
        Field::new("s", DataType::Utf8, true),
        Field::new("t", DataType::Timestamp(TimeUnit::Millisecond, None), true),
    ]))
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true))).unwrap()
}

#[test]
fn columns_by_name_with_casts_and_nulls() {
    let sent = batch(vec![
        ("t", Arc::new(TimestampSecondArray::from(vec![1, 2]))),
        ("n", Arc::new(Int64Array::from(vec![5, 6]))),
        (ROW_KIND, Arc::new(Int8Array::from(vec![0, 0]))),
    ]);
    let mut map = ColumnMap::new(&sent.schema(), target()).unwrap();
    assert_eq!(map.nulls(), 1);
    let rows = map.apply(&sent, 0).unwrap();
    assert_eq!(rows.schema(), target());
    assert_eq!(rows.column(0).as_primitive::<arrow::datatypes::Int64Type>().values().as_ref(), [5, 6]);
    assert_eq!(rows.column(1).null_count(), 2);
    assert_eq!(rows.column(2).as_primitive::<arrow::datatypes::TimestampMillisecondType>().values().as_ref(), [1000, 2000]);
    // Shorter and longer messages on the same way.
    let more = |rows: i64| batch(vec![("n", Arc::new(Int64Array::from_iter_values(0..rows)) as ArrayRef)]);
    let mut map = ColumnMap::new(&more(1).schema(), target()).unwrap();
    for rows in [3, 1, 3, 0, NULLS_KEPT as i64 + 1, 2] {
        let batch = map.apply(&more(rows), 0).unwrap();
        assert_eq!((batch.num_rows(), batch.column(1).len(), batch.column(1).null_count()), (rows as usize, rows as usize, rows as usize));
    }
}

#[track_caller]
fn refused(columns: Vec<(&str, ArrayRef)>, says: &str) {
    let sent = batch(columns);
    let error = match ColumnMap::new(&sent.schema(), target()) {
        Ok(mut map) => map.apply(&sent, 10).unwrap_err().why,
        Err(Misfit { why: e, .. }) => {
            assert!(e.contains("the stream has: (n BIGINT NOT NULL, s STRING, t TIMESTAMP(3))"), "{e}");
            e
        }
    };
    assert!(error.contains(says), "{error}");
}

#[test]
fn what_does_not_fit_is_refused() {
    let n = || -> ArrayRef { Arc::new(Int64Array::from(vec![5, 6])) };
    let text = || -> ArrayRef { Arc::new(LargeStringArray::from(vec!["a", "b"])) };
    refused(vec![("s", text())], "column 'n' is missing");
    refused(vec![("n", n()), ("n", n())], "twice");
    refused(vec![("n", text())], "column 'n' is LargeUtf8, the stream wants BIGINT");
    refused(vec![("n", n()), ("x", n())], "the stream has no column 'x'");
    refused(vec![("n", Arc::new(Int64Array::from(vec![Some(1), None])))], "row 12: column 'n' is NULL");
    refused(vec![("n", n()), (ROW_KIND, Arc::new(Int8Array::from(vec![0, 3])))], "row 12: a publisher can only insert");
    refused(vec![("n", n()), ("t", Arc::new(TimestampSecondArray::from(vec![0, i64::MAX])))], "column 't'");
}
