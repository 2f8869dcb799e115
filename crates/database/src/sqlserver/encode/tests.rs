//! Values as a bulk load and as parameters have them.

use std::sync::Arc;

use arrow::array::{
    Date32Array, Decimal128Array, Int64Array, Time32MillisecondArray, TimestampMicrosecondArray, TimestampMillisecondArray,
    TimestampNanosecondArray,
};
use tiberius::Collation;

use super::*;
use crate::driver::DbErrorKind;

fn column(kind: Kind) -> TableColumn {
    // Windows-1252.
    TableColumn { collation: Some(Collation::new(0x0409, 0)), ..TableColumn::parameter("c", kind) }
}

/// The bytes of all rows, in hexadecimal, with blanks between rows.
#[track_caller]
fn check(array: impl Array + 'static, kind: Kind, expect: &str) {
    let (column, array): (_, ArrayRef) = (column(kind), Arc::new(array));
    let sent = Sent::new("c", &array, &column).unwrap();
    let rows = (0..array.len()).map(|row| {
        let mut out = Vec::new();
        sent.write(row, &mut out);
        out.iter().map(|b| format!("{b:02X}")).collect::<String>()
    });
    assert_eq!(rows.collect::<Vec<_>>().join(" "), expect);
}

#[track_caller]
fn refused(array: impl Array + 'static, kind: Kind, kind_of_error: DbErrorKind, says: &[&str]) {
    let (column, array): (_, ArrayRef) = (column(kind), Arc::new(array));
    let Err(error) = Sent::new("c", &array, &column) else { panic!("{says:?}") };
    assert_eq!(error.kind, kind_of_error, "{error}");
    assert!(error.message.contains("column 'c'") && says.iter().all(|s| error.message.contains(s)), "{error}");
}

const TEXT: Kind = Kind::NChar { fixed: false, max: Some(3) };
const LONG_TEXT: Kind = Kind::NChar { fixed: false, max: None };

#[test]
fn values_in_a_bulk_load() {
    check(BooleanArray::from(vec![Some(true), None]), Kind::Bit, "0101 00");
    check(Int64Array::from(vec![Some(-2), None]), Kind::Int(4), "04FEFFFFFF 00");
    check(Int64Array::from(vec![255]), Kind::Int(1), "01FF");
    check(Int64Array::from(vec![7]), Kind::Float, "080000000000001C40");
    check(Float32Array::from(vec![1.5]), Kind::Real, "040000C03F");
    let decimal = |v: Vec<Option<i128>>| Decimal128Array::from(v).with_precision_and_scale(10, 2).unwrap();
    check(decimal(vec![Some(-150), None]), Kind::Decimal { precision: 9, scale: 4 }, "0500983A0000 00");
    check(decimal(vec![Some(150)]), Kind::Decimal { precision: 20, scale: 2 }, &format!("0D0196{}", "00".repeat(11)));
    check(decimal(vec![Some(150)]), Kind::Money, "0800000000983A0000");
    check(Int64Array::from(vec![-1]), Kind::SmallMoney, "04F0D8FFFF");
    check(StringArray::from(vec![Some("aö"), None]), TEXT, "04006100F600 FFFF");
    check(
        StringArray::from(vec![Some("a"), Some(""), None]),
        LONG_TEXT,
        "FEFFFFFFFFFFFFFF02000000610000000000 FEFFFFFFFFFFFFFF00000000 FFFFFFFFFFFFFFFF",
    );
    check(StringArray::from(vec!["aö"]), Kind::Char { fixed: false, max: Some(2), utf8: false }, "020061F6");
    check(StringArray::from(vec!["ö"]), Kind::Char { fixed: false, max: Some(2), utf8: true }, "0200F600");
    check(BinaryArray::from(vec![&b"\x01\x02"[..]]), Kind::Binary { fixed: true, max: Some(2) }, "02000102");
    check(StringArray::from(vec!["00112233-4455-6677-8899-aabbccddeeff"]), Kind::Guid, "1033221100554477668899AABBCCDDEEFF");
}

#[test]
fn times_in_a_bulk_load() {
    // 1970-01-01 is day 719,162 of the calendar and day 25,567 of `datetime`.
    check(Date32Array::from(vec![0, -719_162]), Kind::Date, "033AF90A 03000000");
    check(Time32MillisecondArray::from(vec![1]), Kind::Time(3), "0401000000");
    check(Time32MillisecondArray::from(vec![1]), Kind::Time(7), "051027000000");
    check(TimestampMillisecondArray::from(vec![1, -1]), Kind::DateTime2(3), "07010000003AF90A 07FF5B260539F90A");
    check(TimestampMicrosecondArray::from(vec![1_000_000]).with_timezone("UTC"), Kind::DateTimeOffset(0), "080100003AF90A0000");
    check(TimestampMillisecondArray::from(vec![3]), Kind::DateTime, "08DF63000001000000");
    check(TimestampMillisecondArray::from(vec![60_000]), Kind::SmallDateTime, "04DF630100");
}

#[test]
fn what_does_not_fit_is_refused() {
    let data = DbErrorKind::Data;
    refused(Int64Array::from(vec![1, 300]), Kind::Int(1), data, &["300", "row 2", "tinyint", "out of range"]);
    refused(Int64Array::from(vec![-1]), Kind::Int(1), data, &["-1"]);
    refused(Int64Array::from(vec![(1 << 53) + 1]), Kind::Float, data, &["9007199254740993"]);
    refused(Float64Array::from(vec![f64::NAN]), Kind::Float, data, &["NaN", "no such number"]);
    refused(StringArray::from(vec!["abcd"]), TEXT, data, &["abcd", "nvarchar(3)", "too long"]);
    refused(StringArray::from(vec!["日"]), Kind::Char { fixed: false, max: None, utf8: false }, data, &["日", "nvarchar"]);
    refused(StringArray::from(vec!["x"]), Kind::Guid, data, &["uniqueidentifier"]);
    refused(BinaryArray::from(vec![&b"\x01"[..]]), Kind::Binary { fixed: true, max: Some(2) }, data, &["binary(2)"]);
    refused(TimestampMicrosecondArray::from(vec![1]), Kind::DateTime2(3), data, &["fewer digits"]);
    refused(TimestampNanosecondArray::from(vec![1]), Kind::DateTime2(7), data, &["fewer digits"]);
    refused(TimestampMillisecondArray::from(vec![1]), Kind::DateTime, data, &["datetime", "fewer digits"]);
    refused(TimestampMillisecondArray::from(vec![-7_000_000_000_000]), Kind::DateTime, data, &["reach"]);
    refused(Date32Array::from(vec![i32::MAX]), Kind::Date, data, &["1 to 9999"]);
    let rounded = Decimal128Array::from(vec![12_345]).with_precision_and_scale(10, 3).unwrap();
    refused(rounded.clone(), Kind::Decimal { precision: 5, scale: 2 }, data, &["12.345", "decimal(5,2)"]);
    refused(rounded, Kind::Bit, DbErrorKind::Fatal, &["DECIMAL(10, 3)", "bit"]);
    refused(StringArray::from(vec!["<a/>"]), Kind::Other, DbErrorKind::Fatal, &["STRING"]);
    // What stands in the place of a NULL does not count.
    let null = Int64Array::new(vec![1 << 40, 7].into(), Some(vec![false, true].into()));
    check(null, Kind::Int(2), "00 020700");
    let column = TableColumn { nullable: false, ..column(Kind::Int(4)) };
    let array: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
    let Err(error) = Sent::new("c", &array, &column) else { panic!("NULL went in") };
    assert!(error.message.contains("NULL in row 2"), "{error}");
}

#[test]
fn parameters_have_the_types_of_columns() {
    #[track_caller]
    fn check(array: impl Array + 'static, kind: Kind, expect: ColumnData<'static>) {
        let (column, array): (_, ArrayRef) = (column(kind), Arc::new(array));
        assert_eq!(Sent::new("c", &array, &column).unwrap().parameter(0), expect);
    }
    check(Int64Array::from(vec![5]), Kind::Int(1), ColumnData::U8(Some(5)));
    check(Int64Array::from(vec![None]), Kind::Int(8), ColumnData::String(None));
    check(Int64Array::from(vec![5]), Kind::Money, ColumnData::Numeric(Some(Numeric::new_with_scale(50_000, 4))));
    check(Date32Array::from(vec![0]), Kind::Date, ColumnData::Date(Some(Date::new(719_162))));
    let small = Decimal128Array::from(vec![-5]).with_precision_and_scale(38, 38).unwrap();
    let text = format!("-0.{}5", "0".repeat(37));
    check(small, Kind::Decimal { precision: 38, scale: 38 }, ColumnData::String(Some(Cow::Owned(text))));
    let moment = DateTime2::new(Date::new(719_161), Time::new(86_399_999, 3));
    check(TimestampMillisecondArray::from(vec![-1]), Kind::DateTime2(3), ColumnData::DateTime2(Some(moment)));
    assert_eq!(natural(&DataType::Int8), Kind::Int(2));
    assert_eq!(natural(&DataType::Timestamp(TimeUnit::Second, Some("+01:00".into()))), Kind::DateTimeOffset(7));
}
