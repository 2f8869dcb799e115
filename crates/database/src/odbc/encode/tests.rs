//! Values on their way to the database, without one.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int16Array, Int32Array, Int64Array,
    StringArray, Time32MillisecondArray, TimestampMicrosecondArray, TimestampMillisecondArray,
};

use super::super::column::{Column, code};
use super::super::tests::described;
use super::*;
use crate::driver::DbErrorKind;

fn column(code: i16, size: usize, digits: i16, system: System) -> Column {
    Column::of(described(code, size, digits, "kind"), system)
}

fn sent(array: ArrayRef, column: &Column, system: System) -> Result<Sent, DbError> {
    let rows = RecordBatch::try_from_iter([("c", array)])?;
    Ok(prepare(&rows, &[column], system)?.remove(0))
}

/// A text column's values, as they are sent one by one.
#[track_caller]
fn check_texts(array: ArrayRef, column: &Column, expect: &[Option<&str>]) {
    let sent = sent(array, column, System::Standard).unwrap();
    for (row, expect) in expect.iter().enumerate() {
        let parameter = sent.parameter(row);
        let length = usize::try_from(parameter.lengths[0]).ok();
        let found = length.map(|length| match parameter.values {
            Values::Char(bytes, _) => String::from_utf8(bytes[..length].to_vec()).unwrap(),
            Values::Wide(units, _) => String::from_utf16(&units[..length / 2]).unwrap(),
            other => panic!("{other:?}"),
        });
        assert_eq!(found.as_deref(), *expect, "row {row}");
    }
}

#[track_caller]
fn check_refused(array: ArrayRef, column: &Column, system: System, expect: &[&str]) {
    let Err(error) = sent(array, column, system) else { panic!("it was taken") };
    assert_eq!(error.kind, DbErrorKind::Data);
    assert!(error.message.contains("'c'") && expect.iter().all(|part| error.message.contains(part)), "{error}");
}

fn arc(array: impl arrow::array::Array + 'static) -> ArrayRef {
    Arc::new(array)
}

#[test]
fn texts_and_digits_are_sent() {
    let text = column(code::VARCHAR, 20, 0, System::Standard);
    check_texts(arc(StringArray::from(vec![Some("a"), None, Some("")])), &text, &[Some("a"), None, Some("")]);
    check_texts(arc(StringArray::from(vec![Some("ä😀"), None, Some("x")])), &text, &[Some("ä😀"), None, Some("x")]);
    let decimal = column(code::DECIMAL, 10, 2, System::Standard);
    let numbers = Decimal128Array::from(vec![Some(-5), None, Some(123_456)]).with_precision_and_scale(12, 3).unwrap();
    check_refused(arc(numbers), &decimal, System::Standard, &["-0.005 in row 1", "kind(10, 2)"]);
    let numbers = Decimal128Array::from(vec![Some(-50), None, Some(123_450)]).with_precision_and_scale(12, 3).unwrap();
    check_texts(arc(numbers), &decimal, &[Some("-0.050"), None, Some("123.450")]);
    let time = column(code::TIME, 12, 3, System::Standard);
    check_texts(arc(Time32MillisecondArray::from(vec![28_800_500, 0])), &time, &[Some("08:00:00.5"), Some("00:00:00")]);
    check_texts(arc(Time32MillisecondArray::from(vec![28_800_500, 0])), &text, &[Some("08:00:00.500"), Some("00:00:00.000")]);
}

#[test]
fn numbers_lie_where_they_were() {
    let longs = Int64Array::from(vec![Some(1), None, Some(3)]);
    let place = longs.values().as_ptr();
    let sent = sent(arc(longs), &column(code::BIGINT, 19, 0, System::Standard), System::Standard).unwrap();
    let mut pads = Pads::default();
    let parameters = pads.parameters(std::slice::from_ref(&sent), 1, 2);
    let Values::I64(values) = parameters[0].values else { panic!("{:?}", parameters[0]) };
    assert_eq!((values.as_ptr(), values[1], parameters[0].lengths), (place.wrapping_add(1), 3, &[NULL_DATA, 8][..]));
}

#[test]
fn pieces_are_filled_up_to_one_width() {
    let texts = StringArray::from(vec![Some("a"), None, Some("long"), Some("ä")]);
    let text = column(code::VARCHAR, 20, 0, System::Standard);
    let sent = [sent(arc(texts), &text, System::Standard).unwrap()];
    assert_eq!(piece_rows(&sent, 0, 4), 4);
    let mut pads = Pads::default();
    let parameters = pads.parameters(&sent, 2, 2);
    let Values::Wide(units, 4) = parameters[0].values else { panic!("{:?}", parameters[0]) };
    assert_eq!((String::from_utf16(units).unwrap().as_str(), parameters[0].lengths), ("longä\0\0\0", &[8, 2][..]));
    // A long value among short ones makes small pieces.
    let texts: Vec<String> = (0..100).map(|i| "x".repeat(if i == 50 { PIECE_BYTES } else { 1 })).collect();
    let sent = [super::make::sent("c", &arc(StringArray::from(texts)), &text, System::Standard).unwrap()];
    assert_eq!([0, 50, 51].map(|first| piece_rows(&sent, first, 100)), [50, 1, 49]);
}

#[test]
fn dates_and_times_are_structures() {
    let date = column(code::DATE, 10, 0, System::Standard);
    let days = sent(arc(Date32Array::from(vec![0, -719_162])), &date, System::Standard).unwrap();
    let Values::Date(days) = days.plain(0, 2) else { panic!("no dates") };
    assert_eq!(days, [Date { year: 1970, month: 1, day: 1 }, Date { year: 1, month: 1, day: 1 }]);
    let timestamp = column(code::TIMESTAMP, 23, 3, System::Standard);
    let moments = sent(arc(TimestampMillisecondArray::from(vec![-1])), &timestamp, System::Standard).unwrap();
    let Values::Timestamp(moments) = moments.plain(0, 1) else { panic!("no timestamps") };
    let last = Timestamp { year: 1969, month: 12, day: 31, hour: 23, minute: 59, second: 59, fraction: 999_000_000 };
    assert_eq!(moments, [last]);
    let offset = column(code::SS_TIMESTAMPOFFSET, 34, 7, System::SqlServer);
    check_texts(arc(TimestampMicrosecondArray::from(vec![1]).with_timezone("UTC")), &offset, &[Some("1970-01-01 00:00:00.000001 +00:00")]);
}

#[test]
fn what_does_not_fit_is_named() {
    let standard = System::Standard;
    let of = |code: i16, size: usize, digits: i16| column(code, size, digits, standard);
    check_refused(arc(Int32Array::from(vec![1, 40_000])), &of(code::SMALLINT, 5, 0), standard, &["40000 in row 2", "kind"]);
    check_refused(arc(Int16Array::from(vec![2])), &of(code::BIT, 1, 0), standard, &["2 in row 1"]);
    check_refused(arc(Int64Array::from(vec![1 << 54 | 1])), &of(code::DOUBLE, 15, 0), standard, &["rounded"]);
    check_refused(arc(Int64Array::from(vec![1000])), &of(code::DECIMAL, 5, 2), standard, &["1000", "digits"]);
    check_refused(arc(Float64Array::from(vec![0.1])), &of(code::REAL, 7, 0), standard, &["0.1", "rounded"]);
    check_refused(arc(Float32Array::from(vec![f32::NAN])), &of(code::REAL, 7, 0), standard, &["NaN"]);
    check_refused(arc(BinaryArray::from(vec![&b"ab"[..]])), &of(code::BINARY, 4, 0), standard, &["filled up"]);
    check_refused(arc(Date32Array::from(vec![-719_163])), &of(code::DATE, 10, 0), standard, &["years 1 to 9999"]);
    check_refused(arc(TimestampMicrosecondArray::from(vec![1])), &of(code::TIMESTAMP, 23, 3), standard, &["fewer digits"]);
    check_refused(arc(Time32MillisecondArray::from(vec![1])), &of(code::TIME, 8, 0), standard, &["fewer digits"]);
    let text = |system: System| column(code::VARCHAR, 20, 0, system);
    check_refused(arc(StringArray::from(vec!["a\0b"])), &text(System::Postgres), System::Postgres, &["code 0"]);
    check_refused(arc(StringArray::from(vec![""])), &text(System::Oracle), System::Oracle, &["NULL"]);
    let mut not_null = of(code::INTEGER, 10, 0);
    not_null.nullable = false;
    check_refused(arc(Int32Array::from(vec![Some(1), None])), &not_null, standard, &["NULL in row 2"]);
}

#[test]
fn what_goes_nowhere_is_refused_as_a_whole() {
    let standard = System::Standard;
    for (array, code) in [
        (arc(StringArray::from(vec!["1"])), code::INTEGER),
        (arc(Int32Array::from(vec![1])), code::VARCHAR),
        (arc(BooleanArray::from(vec![true])), code::VARCHAR),
        (arc(Float64Array::from(vec![1.0])), code::DECIMAL),
        (arc(Date32Array::from(vec![1])), code::VARCHAR),
    ] {
        let Err(error) = sent(array, &column(code, 10, 0, standard), standard) else { panic!("{code} was taken") };
        assert!(error.kind == DbErrorKind::Fatal && error.message.contains("cast it"), "{error}");
    }
}
