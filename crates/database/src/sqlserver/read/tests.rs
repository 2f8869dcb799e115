//! Values as the client gives them, into columns of the job.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::compute::cast;
use arrow::datatypes::Schema;
use arrow::util::display::array_value_to_string;
use tiberius::Uuid;
use tiberius::numeric::Numeric;
use tiberius::time::{Date, DateTime, DateTimeOffset, SmallDateTime};

use super::*;

fn read(value: ColumnData<'static>, to: DataType, money: bool) -> Result<String, DbError> {
    let mut builder = Builder::new(&Field::new("c", to.clone(), true))?;
    builder.money = money;
    builder.push(value)?;
    let array = builder.finish()?;
    assert_eq!(array.data_type(), &to);
    // Those with a zone are shown in units.
    let array = if matches!(to, DataType::Timestamp(_, Some(_))) { cast(&array, &DataType::Int64).unwrap() } else { array };
    Ok(array_value_to_string(array.as_ref(), 0).unwrap())
}

#[track_caller]
fn check(value: ColumnData<'static>, to: DataType, expect: &str) {
    assert_eq!(read(value, to, false).unwrap(), expect);
}

#[track_caller]
fn refused(value: ColumnData<'static>, to: DataType, says: &[&str]) {
    let error = read(value, to, false).unwrap_err();
    assert!(error.message.contains("column 'c'") && says.iter().all(|s| error.message.contains(s)), "{error}");
}

fn text(text: &'static str) -> ColumnData<'static> {
    ColumnData::String(Some(Cow::Borrowed(text)))
}

fn timestamp_type(unit: TimeUnit) -> DataType {
    DataType::Timestamp(unit, None)
}

fn moment_of(days: u32, units: u64, digits: u8) -> DateTime2 {
    DateTime2::new(Date::new(days), Time::new(units, digits))
}

#[test]
fn values_become_columns() {
    check(ColumnData::Bit(Some(true)), DataType::Boolean, "true");
    check(ColumnData::U8(Some(255)), DataType::Int16, "255");
    check(ColumnData::I32(Some(-5)), DataType::Int64, "-5");
    check(ColumnData::Numeric(Some(Numeric::new_with_scale(500, 2))), DataType::Int32, "5");
    check(ColumnData::F32(Some(1.5)), DataType::Float64, "1.5");
    check(ColumnData::Numeric(Some(Numeric::new_with_scale(-1250, 2))), DataType::Decimal128(10, 1), "-12.5");
    check(ColumnData::I64(Some(7)), DataType::Decimal128(10, 2), "7.00");
    check(text("😀"), DataType::Utf8, "😀");
    check(ColumnData::Guid(Some(Uuid::nil())), DataType::Utf8, "00000000-0000-0000-0000-000000000000");
    check(ColumnData::Binary(Some(Cow::Borrowed(&[1, 0xFF]))), DataType::Binary, "01ff");
    check(text("[1,null]"), DataType::new_list(DataType::Int32, true), "[1, ]");
    check(ColumnData::I32(None), DataType::Utf8, "");
    assert_eq!(read(ColumnData::F64(Some(0.1)), DataType::Decimal128(19, 4), true).unwrap(), "0.1000");
    assert_eq!(read(ColumnData::F64(Some(112_589_990_684.000_2)), DataType::Decimal128(19, 4), true).unwrap(), "112589990684.0002");
    assert_eq!(read(ColumnData::F64(Some(1.5)), DataType::Utf8, true).unwrap(), "1.5000");
}

/// The key 'ab' was found in a column `char(4)` as 'ab  ', and passed over as one that was not asked for.
#[test]
fn texts_of_fixed_length_come_without_blanks() {
    let schema = Arc::new(Schema::new(vec![Field::new("c", DataType::Utf8, true)]));
    for (r#type, expect) in [(ColumnType::BigChar, " ab"), (ColumnType::NChar, " ab"), (ColumnType::NVarchar, " ab  ")] {
        let mut columns = Columns::new(&schema).unwrap();
        columns.describe(&[Column::new("c".into(), r#type)]).unwrap();
        columns.builders[0].push(text(" ab  ")).unwrap();
        assert_eq!(array_value_to_string(&columns.builders[0].finish().unwrap(), 0).unwrap(), expect);
    }
}

#[test]
fn times_become_columns() {
    check(ColumnData::Date(Some(Date::new(719_162))), DataType::Date32, "1970-01-01");
    check(ColumnData::Date(Some(Date::new(0))), DataType::Date32, "0001-01-01");
    check(ColumnData::Time(Some(Time::new(10_000, 7))), DataType::Time32(TimeUnit::Millisecond), "00:00:00.001");
    let moment = moment_of(719_162, 12_345_670, 7);
    check(ColumnData::DateTime2(Some(moment)), timestamp_type(TimeUnit::Microsecond), "1970-01-01T00:00:01.234567");
    check(ColumnData::DateTime2(Some(moment)), DataType::Utf8, "1970-01-01 00:00:01.234567");
    let zoned = ColumnData::DateTimeOffset(Some(DateTimeOffset::new(moment_of(719_162, 0, 0), 60)));
    check(zoned.clone(), DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())), "0");
    check(zoned, DataType::Utf8, "1970-01-01 00:00:00Z");
    check(ColumnData::DateTime(Some(DateTime::new(25_567, 1))), timestamp_type(TimeUnit::Millisecond), "1970-01-01T00:00:00.003");
    check(ColumnData::SmallDateTime(Some(SmallDateTime::new(25_567, 61))), timestamp_type(TimeUnit::Millisecond), "1970-01-01T01:01:00");
    check(ColumnData::Time(Some(Time::new(3_600, 0))), DataType::Utf8, "01:00:00");
}

#[test]
fn what_does_not_fit_is_named() {
    refused(ColumnData::I32(Some(300)), DataType::Int8, &["300", "TINYINT", "out of range"]);
    refused(ColumnData::Numeric(Some(Numeric::new_with_scale(15, 1))), DataType::Int32, &["1.5", "no whole number"]);
    refused(ColumnData::Numeric(Some(Numeric::new_with_scale(1_234, 3))), DataType::Decimal128(10, 2), &["1.234", "decimals"]);
    refused(ColumnData::Numeric(Some(Numeric::new_with_scale(1_234, 1))), DataType::Decimal128(3, 1), &["123.4", "more digits"]);
    refused(ColumnData::F64(Some(1.5)), DataType::Decimal128(10, 2), &["declare DOUBLE"]);
    refused(ColumnData::I64(Some((1 << 53) + 1)), DataType::Float64, &["declare BIGINT"]);
    refused(ColumnData::Date(Some(Date::new(0))), timestamp_type(TimeUnit::Millisecond), &["0001-01-01"]);
    refused(ColumnData::DateTime2(Some(moment_of(719_162, 1, 7))), timestamp_type(TimeUnit::Microsecond), &["more digits of the second"]);
    refused(ColumnData::DateTime2(Some(moment_of(0, 0, 0))), timestamp_type(TimeUnit::Nanosecond), &["1677"]);
    let zoned = ColumnData::DateTimeOffset(Some(DateTimeOffset::new(moment_of(719_162, 0, 0), 0)));
    refused(zoned, timestamp_type(TimeUnit::Millisecond), &["TIMESTAMP_LTZ"]);
    refused(ColumnData::Binary(Some(Cow::Borrowed(&[1]))), DataType::Utf8, &["0x01", "BYTES"]);
    refused(text("[1,\"x\"]"), DataType::new_list(DataType::Int32, true), &[]);
    let error = read(ColumnData::F64(Some(1e14)), DataType::Decimal128(19, 4), true).unwrap_err();
    assert!(error.message.contains("loses digits"), "{error}");
}

#[test]
fn results_have_as_many_columns_as_expected() {
    let schema = Arc::new(Schema::new(vec![Field::new("c", DataType::Int32, true)]));
    let mut columns = Columns::new(&schema).unwrap();
    assert!(columns.describe(&[]).unwrap_err().message.contains("0 columns instead of 1"));
    columns.describe(&[Column::new("c".into(), ColumnType::Int4)]).unwrap();
    assert_eq!(columns.take().unwrap().num_rows(), 0);
}
