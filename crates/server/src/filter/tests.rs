//! Tests of `filter`.

use super::*;
use arrow::array::{ArrayRef, AsArray, Int8Array, Int64Array, StringArray};
use arrow::datatypes::{Field, Int64Type};

fn batch() -> RecordBatch {
    let schema = Schema::new(vec![
        Field::new("n", DataType::Int64, true),
        Field::new("s", DataType::Utf8, true),
        Field::new(ROW_KIND, DataType::Int8, false),
    ]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![Some(1), None, Some(3)])),
        Arc::new(StringArray::from(vec!["a", "b", "c"])),
        Arc::new(Int8Array::from(vec![0, 1, 2])),
    ];
    RecordBatch::try_new(Arc::new(schema), columns).unwrap()
}

#[track_caller]
fn check(columns: Option<&[&str]>, filter: Option<&str>, names: &[&str], rows: usize) -> RecordBatch {
    let batch = batch();
    let columns: Option<Vec<String>> = columns.map(|c| c.iter().map(|n| n.to_string()).collect());
    let wanted = RowFilter::new(&batch.schema(), columns.as_deref(), filter).unwrap();
    let out = wanted.apply(&batch).unwrap();
    assert_eq!(out.schema(), wanted.schema());
    let got: Vec<_> = out.schema().fields().iter().map(|f| f.name().clone()).collect();
    assert_eq!(got, names);
    assert_eq!(out.num_rows(), rows);
    assert_eq!(wanted.is_identity(), names == ["n", "s", ROW_KIND] && filter.is_none_or(|f| f.trim().is_empty()));
    out
}

#[test]
fn rows_and_columns() {
    check(None, None, &["n", "s", ROW_KIND], 3);
    check(None, Some(" "), &["n", "s", ROW_KIND], 3);
    check(Some(&["s"]), None, &["s", ROW_KIND], 3);
    check(Some(&[ROW_KIND, "s", "n"]), None, &["s", "n", ROW_KIND], 3);
    let out = check(Some(&["n"]), Some("s <> 'a' AND row_kind = 2"), &["n", ROW_KIND], 1);
    assert_eq!(out.column(0).as_primitive::<Int64Type>().value(0), 3);
    check(None, Some("n > 10"), &["n", "s", ROW_KIND], 0);
}

#[test]
fn what_is_wrong_is_said() {
    let schema = batch().schema();
    let fails = |columns: Option<&[String]>, filter: Option<&str>| RowFilter::new(&schema, columns, filter).unwrap_err();
    assert!(fails(Some(&["x".into()]), None).contains("there is no column 'x'"));
    assert!(fails(Some(&["n".into(), "n".into()]), None).contains("twice"));
    assert!(fails(None, Some("m = 1")).contains("the filter 'm = 1'"));
    let many: Vec<String> = (2..400).map(|i| format!("n % {i} = 1")).collect();
    assert!(fails(None, Some(&many.join(" OR "))).contains("deep"));
    assert!(fails(None, Some(&"n".repeat(FILTER_BYTES_MAX + 1))).contains("bytes long"));
}
