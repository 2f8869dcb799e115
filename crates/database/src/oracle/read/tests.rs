//! Values of every type into every column that takes them, and what they cannot be.

use arrow::util::display::array_value_to_string;

use super::*;
use crate::driver::DbErrorKind;

fn read(data_type: &DataType, value: Value<'_>) -> Result<String, DbError> {
    let mut builder = Builder::new(&Field::new("c", data_type.clone(), true))?;
    builder.push(value)?;
    let array = builder.finish()?;
    assert_eq!(array.data_type(), data_type);
    Ok(array_value_to_string(array.as_ref(), 0).unwrap())
}

#[track_caller]
fn check(data_type: DataType, value: Value<'_>, expect: &str) {
    assert_eq!(read(&data_type, value).unwrap(), expect);
}

#[track_caller]
fn check_refused(data_type: DataType, value: Value<'_>, why: &str) {
    let error = read(&data_type, value).unwrap_err();
    assert!(error.kind == DbErrorKind::Data && error.message.contains("'c'") && error.message.contains(why), "{error}");
}

fn at(nanos: u32) -> Value<'static> {
    Value::Moment { at: OracleTimestamp::new_timestamp(2024, 1, 31, 8, 30, 15, nanos), zoned: false }
}

fn zoned(nanos: u32) -> Value<'static> {
    Value::Moment { at: OracleTimestamp::new_utc_timestamp(2024, 1, 31, 8, 30, 15, nanos), zoned: true }
}

#[test]
fn numbers_are_exact() {
    check(DataType::Int8, Value::Number("-128"), "-128");
    check(DataType::Int64, Value::Number("9223372036854775807"), "9223372036854775807");
    check(DataType::Boolean, Value::Number("1"), "true");
    check(DataType::Boolean, Value::Bool(false), "false");
    check(DataType::Decimal128(38, 2), Value::Number("-0.05"), "-0.05");
    check(DataType::Decimal128(5, 2), Value::Number("999.9"), "999.90");
    check(DataType::Float64, Value::Number("0.1"), "0.1");
    check(DataType::Float64, Value::Double(1.5), "1.5");
    check(DataType::Float64, Value::Float(0.5), "0.5");
    check(DataType::Float32, Value::Number("1.5"), "1.5");
    check(DataType::Utf8, Value::Number("0.1"), "0.1");
    check(DataType::Int32, Value::Null, "");
    check_refused(DataType::Int8, Value::Number("128"), "out of range");
    check_refused(DataType::Int32, Value::Number("1.5"), "no whole number");
    check_refused(DataType::Boolean, Value::Number("2"), "neither 0 nor 1");
    check_refused(DataType::Decimal128(5, 2), Value::Number("1000"), "more digits");
    check_refused(DataType::Decimal128(5, 2), Value::Number("1.005"), "more decimals");
    check_refused(DataType::Decimal128(5, 2), Value::Double(1.0), "floating-point");
    check_refused(DataType::Float64, Value::Number("0.12345678901234567891"), "more digits than a DOUBLE");
    check_refused(DataType::Float32, Value::Double(0.5), "declare DOUBLE");
}

#[test]
fn texts_and_bytes_are_what_they_are() {
    check(DataType::Utf8, Value::Text("ä 😀"), "ä 😀");
    check(DataType::Utf8, Value::Bool(true), "true");
    check(DataType::Binary, Value::Bytes(&[0, 255]), "00ff");
    check(DataType::Utf8, Value::Null, "");
    check(DataType::new_list(DataType::Int32, true), Value::Text("[1,null]"), "[1, ]");
    check(DataType::Time32(TimeUnit::Millisecond), Value::Text("08:00:00.5"), "08:00:00.500");
    check_refused(DataType::Utf8, Value::Bytes(&[1]), "declare BYTES");
    check_refused(DataType::Binary, Value::Text("a"), "no bytes");
    check_refused(DataType::Time32(TimeUnit::Millisecond), Value::Text("08:00:00.5001"), "no text like");
    check_refused(DataType::new_list(DataType::Int32, true), Value::Number("1"), "JSON");
}

/// A DATE has a time of day there.
#[test]
fn times_are_not_cut_off() {
    let midnight = Value::Moment { at: OracleTimestamp::new_date(2024, 1, 31), zoned: false };
    let ltz = |unit| DataType::Timestamp(unit, Some("UTC".into()));
    check(DataType::Date32, midnight, "2024-01-31");
    check(DataType::Timestamp(TimeUnit::Millisecond, None), at(500_000_000), "2024-01-31T08:30:15.500");
    check(DataType::Timestamp(TimeUnit::Nanosecond, None), at(1), "2024-01-31T08:30:15.000000001");
    assert_eq!(timestamp(zoned(1000), TimeUnit::Microsecond, true), Ok(1_706_689_815_000_001));
    check(DataType::Utf8, at(500_000_000), "2024-01-31 08:30:15.5");
    check(DataType::Utf8, zoned(0), "2024-01-31 08:30:15Z");
    check_refused(DataType::Date32, at(0), "time of day");
    check_refused(DataType::Timestamp(TimeUnit::Millisecond, None), at(1), "more digits of the second");
    check_refused(DataType::Timestamp(TimeUnit::Millisecond, None), zoned(0), "TIMESTAMP_LTZ");
    check_refused(ltz(TimeUnit::Millisecond), at(0), "no time zone");
    let late = Value::Moment { at: OracleTimestamp::new_date(9999, 12, 31), zoned: false };
    check_refused(DataType::Timestamp(TimeUnit::Nanosecond, None), late, "fewer digits");
    let early = Value::Moment { at: OracleTimestamp::new_date(-44, 3, 15), zoned: false };
    check_refused(DataType::Date32, early, "before the year 1");
}

#[test]
fn types_are_read_or_not() {
    #[track_caller]
    fn check(name: &str, expect: Option<Taken>) {
        assert_eq!(Taken::of(name), expect);
    }
    check(oracledb::DB_TYPE_NUMBER.name(), Some(Taken::Number));
    check(oracledb::DB_TYPE_LONG_NVARCHAR.name(), Some(Taken::Text));
    check(oracledb::DB_TYPE_LONG_RAW.name(), Some(Taken::Bytes));
    check(oracledb::DB_TYPE_DATE.name(), Some(Taken::Moment { zoned: false }));
    check(oracledb::DB_TYPE_TIMESTAMP_LTZ.name(), Some(Taken::Moment { zoned: true }));
    check(oracledb::DB_TYPE_JSON.name(), None);
    check(oracledb::DB_TYPE_INTERVAL_DS.name(), None);
}
