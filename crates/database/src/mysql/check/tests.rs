//! Tests of `check`: which values are refused, and which pass.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, Float64Array, Int64Array, StringArray, TimestampMillisecondArray, TimestampNanosecondArray,
};

use super::*;
use crate::driver::DbErrorKind;

fn column(type_text: &str, nullable: bool) -> Column {
    Column { name: "c".into(), type_text: type_text.into(), kind: Kind::of(type_text), collation: None, nullable }
}

/// `bad`: the row, from 1, that is refused.
#[track_caller]
fn checked(array: impl Array + 'static, type_text: &str, bad: Option<usize>) {
    let array: ArrayRef = Arc::new(array);
    match (check("c", array.as_ref(), &column(type_text, true)), bad) {
        (Ok(()), None) => {}
        (Err(e), Some(row)) => {
            assert_eq!(e.kind, DbErrorKind::Data);
            assert!(e.message.starts_with("column 'c': ") && e.message.contains(&format!(" in row {row} ")), "{}", e.message);
        }
        (result, _) => panic!("{type_text}: {result:?}, expected {bad:?}"),
    }
}

#[test]
fn what_would_be_changed_is_refused() {
    checked(Float64Array::from(vec![Some(1.0), None, Some(f64::NAN)]), "double", Some(3));
    checked(Float64Array::from(vec![0.5, 0.1]), "float", Some(2));
    checked(Float64Array::from(vec![2.0, 2.5]), "int(11)", Some(2));
    checked(Float64Array::from(vec![0.1, 1e300]), "double", None);
    checked(Int64Array::from(vec![1 << 53, (1 << 53) + 1]), "double", Some(2));
    checked(Int64Array::from(vec![i64::MIN]), "bigint", None);
    let decimals = || Decimal128Array::from(vec![100, 150]).with_precision_and_scale(10, 2).unwrap();
    checked(decimals(), "int", Some(2));
    checked(decimals(), "decimal(10,1)", None);
    checked(decimals(), "double", None);
    checked(Date32Array::from(vec![19_782, 2_932_897]), "date", Some(2));
    checked(TimestampMillisecondArray::from(vec![1_000, 1_001]), "datetime", Some(2));
    checked(TimestampMillisecondArray::from(vec![1_000, 1_001]), "datetime(3)", None);
    checked(TimestampMillisecondArray::from(vec![i64::MAX]), "datetime(3)", Some(1));
    checked(TimestampNanosecondArray::from(vec![1_000, 1]), "datetime(6)", Some(2));
    checked(StringArray::from(vec!["x"]), "varchar(1)", None);
}

#[test]
fn nulls_are_refused_where_there_may_be_none() {
    let array = StringArray::from(vec![Some("x"), None]);
    let error = check("c", &array, &column("text", false)).unwrap_err();
    assert_eq!(error, DbError::data("column 'c': NULL in row 2, where the table says NOT NULL"));
    assert!(check("c", &array, &column("text", true)).is_ok());
}
