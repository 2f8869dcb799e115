//! Every type into every kind that takes it, and what does not go in.

use std::sync::Arc;

use arrow::array::{
    BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int32Array, Int64Array, Time32MillisecondArray,
    TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray,
};

use super::*;
use crate::driver::DbErrorKind;

const NUMBER: Kind = Kind::Number { digits: 38, scale: None };

fn sized(digits: u8, scale: i8) -> Kind {
    Kind::Number { digits, scale: Some(scale) }
}

fn texts(values: &Values) -> Vec<String> {
    fn all<T: std::fmt::Display>(values: &[Option<T>]) -> Vec<String> {
        values.iter().map(|v| v.as_ref().map_or("NULL".to_string(), T::to_string)).collect()
    }
    match values {
        Values::Number(values) => all(values),
        Values::Float(values) => all(values),
        Values::Double(values) => all(values),
        Values::Bool(values) => all(values),
        Values::Text(values) => all(&values.iter().collect::<Vec<_>>()),
        Values::Bytes(values) => values.iter().map(|v| v.map_or("NULL".into(), |v| format!("{v:?}"))).collect(),
        Values::Moment(values) => all(values),
    }
}

fn sent(array: ArrayRef, kind: Kind, purpose: Purpose<'_>) -> Result<Vec<String>, DbError> {
    let column = TableColumn { name: "C".into(), kind, type_text: "ITS TYPE".into(), nullable: true };
    Sent::new("c", &array, &column, purpose).map(|sent| texts(&sent.values))
}

const WRITE: Purpose<'static> = Purpose::Write { charset: &Charset::Unicode, empty: Empty::Refused };

#[track_caller]
fn check(array: impl Array + 'static, kind: Kind, expect: &[&str]) {
    assert_eq!(sent(Arc::new(array), kind, WRITE).unwrap(), expect);
}

/// The last value is refused; compared with the column it is nothing's equal.
#[track_caller]
fn check_refused(array: impl Array + Clone + 'static, kind: Kind, why: &str) {
    let row = array.len();
    let error = sent(Arc::new(array.clone()), kind, WRITE).unwrap_err();
    assert_eq!(error.kind, DbErrorKind::Data, "{error}");
    assert!(error.message.contains(why) && error.message.contains("'c': '"), "{error}");
    assert!(error.message.contains(&format!("in row {row} does not go into ITS TYPE unchanged")), "{error}");
    assert_eq!(sent(Arc::new(array), kind, Purpose::Compare).unwrap().last().unwrap(), "NULL");
}

#[test]
fn numbers_are_exact() {
    check(
        Int64Array::from(vec![Some(i64::MIN), None, Some(i64::MAX)]),
        sized(19, 0),
        &["-9223372036854775808", "NULL", "9223372036854775807"],
    );
    check(Int32Array::from(vec![0, 100, -1]), NUMBER, &["0", "100", "-1"]);
    check(Int32Array::from(vec![1200]), sized(2, -2), &["1200"]);
    check(BooleanArray::from(vec![true, false]), sized(1, 0), &["1", "0"]);
    check(BooleanArray::from(vec![true]), Kind::Boolean, &["true"]);
    check(Int32Array::from(vec![1 << 24]), Kind::BinaryFloat, &["16777216"]);
    let decimals = |values: Vec<i128>, scale| Decimal128Array::from(values).with_precision_and_scale(38, scale).unwrap();
    check(decimals(vec![12_300, -5], 2), sized(5, 2), &["123", "-0.05"]);
    check(decimals(vec![10i128.pow(38) - 1], 38), sized(38, 38), &["0.99999999999999999999999999999999999999"]);
    check_refused(Int32Array::from(vec![999, 1000]), sized(3, 0), "more digits");
    check_refused(Int32Array::from(vec![1250]), sized(5, -2), "more digits");
    check_refused(decimals(vec![1005], 3), sized(10, 2), "more decimals");
    check_refused(Int64Array::from(vec![(1 << 53) + 1]), Kind::BinaryDouble, "more digits");
    check_refused(Int32Array::from(vec![(1 << 24) + 1]), Kind::BinaryFloat, "more digits");
}

#[test]
fn floating_point_numbers_keep_their_value() {
    check(
        Float64Array::from(vec![Some(0.1), None, Some(f64::NAN), Some(f64::INFINITY)]),
        Kind::BinaryDouble,
        &["0.1", "NULL", "NaN", "inf"],
    );
    check(Float32Array::from(vec![0.1]), Kind::BinaryFloat, &["0.1"]);
    check(Float64Array::from(vec![0.5]), Kind::BinaryFloat, &["0.5"]);
    check(Float64Array::from(vec![0.1, -1e20, 0.0]), NUMBER, &["0.1", "-100000000000000000000", "0"]);
    check(Float32Array::from(vec![0.1]), sized(3, 2), &["0.1"]);
    check_refused(Float64Array::from(vec![0.1]), Kind::BinaryFloat, "more digits");
    check_refused(Float64Array::from(vec![f64::NAN]), NUMBER, "no such number");
    check_refused(Float64Array::from(vec![1e126]), NUMBER, "no such number");
    check_refused(Float64Array::from(vec![1e-130]), NUMBER, "no such number");
    check_refused(Float64Array::from(vec![0.125]), sized(5, 2), "no such number");
}

#[test]
fn digits_are_counted() {
    #[track_caller]
    fn check(text: &str, digits: u8, scale: Option<i8>, expect: bool) {
        assert_eq!(fits(text, digits, scale), expect, "{text}");
    }
    check("0.00", 1, Some(0), true);
    check("999.99", 5, Some(2), true);
    check("1000", 5, Some(2), false);
    check("1.001", 5, Some(2), false);
    check("1.100", 5, Some(1), true);
    check("-0.0012", 2, Some(4), true);
    check("0.012", 2, Some(4), false);
    check("1234500", 5, Some(-2), true);
    check("12345600", 5, Some(-2), false);
    check("120000000.0", 2, None, true);
    check("1.23", 2, None, false);
    check("0.0012", 2, None, true);
}

/// An empty text would be NULL there, and nobody would have said so.
#[test]
fn texts_are_what_the_database_holds() {
    let long = "x".repeat(32_768);
    check(StringArray::from(vec![Some("a"), None]), Kind::VarChar, &["a", "NULL"]);
    check(StringArray::from(vec![long.as_str()]), Kind::Clob, &[long.as_str()]);
    check_refused_text(vec!["a", ""], Kind::VarChar, "empty text as NULL");
    check_refused_text(vec![""], Kind::Clob, "empty text as NULL");
    check_refused_text(vec![long.as_str()], Kind::VarChar, "32,767");
    let latin = Purpose::Write { charset: &Charset::Latin1, empty: Empty::Null };
    assert_eq!(sent(Arc::new(StringArray::from(vec!["ä", ""])), Kind::VarChar, latin).unwrap(), ["ä", ""]);
    let error = sent(Arc::new(StringArray::from(vec!["€"])), Kind::NChar, latin).unwrap_err();
    assert!(error.kind == DbErrorKind::Data && error.message.contains("lacks a character"), "{error}");
    check(Time32MillisecondArray::from(vec![28_800_500, 0]), Kind::VarChar, &["08:00:00.5", "00:00:00"]);
    check(BinaryArray::from(vec![Some(&b"\0\xff"[..]), None]), Kind::Raw, &["[0, 255]", "NULL"]);
    let empty: ArrayRef = Arc::new(BinaryArray::from(vec![&b""[..]]));
    assert!(sent(empty, Kind::Blob, WRITE).unwrap_err().message.contains("no bytes as NULL"));
}

/// What is compared stays as it is: an empty text is NULL to the server, too.
#[track_caller]
fn check_refused_text(values: Vec<&str>, kind: Kind, why: &str) {
    let error = sent(Arc::new(StringArray::from(values)), kind, WRITE).unwrap_err();
    assert!(error.kind == DbErrorKind::Data && error.message.contains(why), "{error}");
}

#[test]
fn times_are_not_rounded() {
    check(Date32Array::from(vec![19_753]), Kind::Date, &["2024-01-31T00:00:00.000000000"]);
    check(Date32Array::from(vec![0]), Kind::Timestamp(6), &["1970-01-01T00:00:00.000000000"]);
    check(
        TimestampMillisecondArray::from(vec![-500, 1000]),
        Kind::Timestamp(1),
        &["1969-12-31T23:59:59.500000000", "1970-01-01T00:00:01.000000000"],
    );
    check(TimestampMillisecondArray::from(vec![86_399_000]), Kind::Date, &["1970-01-01T23:59:59.000000000"]);
    check(TimestampNanosecondArray::from(vec![123_456_789]), Kind::Timestamp(9), &["1970-01-01T00:00:00.123456789"]);
    check(TimestampMicrosecondArray::from(vec![1]).with_timezone("UTC"), Kind::Zoned(6), &["1970-01-01T00:00:00.000001000"]);
    check_refused(TimestampMillisecondArray::from(vec![1]), Kind::Date, "fewer digits");
    check_refused(TimestampMicrosecondArray::from(vec![1]), Kind::Timestamp(3), "fewer digits");
    check_refused(Date32Array::from(vec![-800_000]), Kind::Date, "years 1 to 9999");
    check_refused(Date32Array::from(vec![3_000_000]), Kind::Date, "years 1 to 9999");
}

#[test]
fn types_that_do_not_go_together_are_named() {
    #[track_caller]
    fn check(array: impl Array + 'static, kind: Kind) {
        let error = sent(Arc::new(array), kind, WRITE).unwrap_err();
        assert!(error.kind == DbErrorKind::Fatal && error.message.contains("does not go into ITS TYPE"), "{error}");
    }
    check(StringArray::from(vec!["1"]), NUMBER);
    check(Int32Array::from(vec![1]), Kind::VarChar);
    check(TimestampMillisecondArray::from(vec![1]), Kind::Zoned(3));
    check(TimestampMillisecondArray::from(vec![1]).with_timezone("UTC"), Kind::Timestamp(3));
    check(Float64Array::from(vec![1.0]), Kind::Other);
    check(Decimal128Array::from(vec![1]), Kind::BinaryDouble);
}

#[test]
fn what_the_table_says_about_null_holds() {
    let column = TableColumn { name: "C".into(), kind: NUMBER, type_text: "NUMBER".into(), nullable: false };
    let array: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None]));
    let Err(error) = Sent::new("c", &array, &column, WRITE) else { panic!("NULL was taken") };
    assert_eq!(error, DbError::data("column 'c': NULL in row 2, where the table says NOT NULL"));
}

#[test]
fn parameters_have_kinds_of_their_own() {
    #[track_caller]
    fn check(data_type: DataType, expect: Kind) {
        assert_eq!(natural(&data_type), expect);
    }
    check(DataType::Boolean, NUMBER);
    check(DataType::UInt64, NUMBER);
    check(DataType::Float64, Kind::BinaryDouble);
    check(DataType::Utf8, Kind::Clob);
    check(DataType::Date32, Kind::Date);
    check(DataType::Timestamp(TimeUnit::Second, None), Kind::Timestamp(9));
    check(DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())), Kind::Zoned(9));
}

#[test]
fn long_values_are_noticed() {
    let column = TableColumn::parameter("c", Kind::Clob);
    let array: ArrayRef = Arc::new(StringArray::from(vec![Some("abc"), None]));
    let Ok(sent) = Sent::new("c", &array, &column, WRITE) else { panic!("text was refused") };
    assert!(sent.is_longer(2, 9) && !sent.is_longer(3, 0));
}
