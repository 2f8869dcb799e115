//! Values of the database as a job's, without one.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{Decimal128Type, Int64Type, TimestampMillisecondType};
use arrow::util::display::array_value_to_string;

use super::super::column::code;
use super::super::ffi::{Date, Timestamp};
use super::super::tests::described;
use super::*;

fn column(data_type: &DataType, fill: impl FnOnce(&mut Builder) -> Result<(), String>) -> Result<ArrayRef, String> {
    let mut builder = Builder::new(data_type).expect("a type that is read");
    fill(&mut builder)?;
    builder.finish(data_type).map_err(|e| e.message)
}

#[track_caller]
fn check(data_type: DataType, text: &str, expect: Option<&str>) {
    match (column(&data_type, |b| b.bytes(Form::Char, Some(text.as_bytes()), false)), expect) {
        (Ok(array), Some(expect)) => assert_eq!(array_value_to_string(&array, 0).unwrap(), expect),
        (Err(error), None) => assert!(error.contains(&format!("'{text}'")), "{error}"),
        (found, _) => panic!("{text}: {found:?}"),
    }
}

#[test]
fn texts_are_values() {
    check(DataType::Int16, "-32768", Some("-32768"));
    check(DataType::Int16, "12.00", Some("12"));
    check(DataType::Int16, "32768", None);
    check(DataType::Int16, "1.5", None);
    check(DataType::Boolean, "t", Some("true"));
    check(DataType::Boolean, "2", None);
    check(DataType::Decimal128(10, 2), "-1.50", Some("-1.50"));
    check(DataType::Decimal128(10, 2), "1.505", None);
    check(DataType::Float32, "1e39", None);
    check(DataType::Date32, "2024-02-29", Some("2024-02-29"));
    check(DataType::Date32, "2024-02-29 00:00:00", Some("2024-02-29"));
    check(DataType::Date32, "0000-00-00", None);
    check(DataType::Date32, "2024-02-29 01:00:00", None);
    check(DataType::Time32(TimeUnit::Millisecond), "08:00:00.5", Some("08:00:00.500"));
    check(DataType::Time32(TimeUnit::Millisecond), "-08:00:00", None);
    check(DataType::Time32(TimeUnit::Millisecond), "08:00:00.0001", None);
    let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
    check(micros.clone(), "2024-01-31 08:00:00.000001", Some("2024-01-31T08:00:00.000001"));
    check(micros.clone(), "2024-01-31 08:00:00.0000001", None);
    check(micros.clone(), "2024-01-31 08:00:00.5 +01:30", Some("2024-01-31T06:30:00.500"));
    check(micros.clone(), "2024-01-31 08:00:00-01", Some("2024-01-31T09:00:00"));
    check(micros, "4713-01-01 00:00:00 BC", None);
}

#[test]
fn utf16_is_text() {
    let wide = |text: &str| text.encode_utf16().flat_map(u16::to_ne_bytes).collect::<Vec<u8>>();
    for text in ["", "ascii", "ä😀"] {
        let array = column(&DataType::Utf8, |b| b.bytes(Form::Wide, Some(&wide(text)), false)).unwrap();
        assert_eq!(array.as_string::<i32>().value(0), text);
    }
    let half = &wide("😀")[..2];
    assert!(column(&DataType::Utf8, |b| b.bytes(Form::Wide, Some(half), false)).is_err());
    let guid = column(&DataType::Utf8, |b| b.bytes(Form::Char, Some(b"A0EE"), true)).unwrap();
    assert_eq!(guid.as_string::<i32>().value(0), "a0ee");
}

#[test]
fn numbers_are_what_the_column_says() {
    let integer = |data_type: DataType, v: i128| column(&data_type, |b| b.integer(Some(v)));
    let most = integer(DataType::Decimal128(20, 0), u64::MAX.into()).unwrap();
    assert_eq!(most.as_primitive::<Decimal128Type>().value(0), i128::from(u64::MAX));
    assert!(integer(DataType::UInt64, u64::MAX.into()).is_ok() && integer(DataType::UInt64, -1).is_err());
    assert!(integer(DataType::Int64, i64::MAX.into()).is_ok() && integer(DataType::Int64, u64::MAX.into()).is_err());
    assert!(integer(DataType::Boolean, 1).is_ok() && integer(DataType::Boolean, 2).is_err());
    assert!(integer(DataType::Float32, 1 << 24).is_ok() && integer(DataType::Float32, (1 << 24) + 1).is_err());
    let double = |data_type: DataType, v: f64| column(&data_type, |b| b.double(Some(v)));
    assert_eq!(double(DataType::Int64, 5.0).unwrap().as_primitive::<Int64Type>().value(0), 5);
    assert!(double(DataType::Int64, 5.5).is_err() && double(DataType::Float32, 1e39).is_err());
    assert!(double(DataType::Float64, f64::INFINITY).is_ok());
    assert_eq!(double(DataType::Decimal128(5, 2), 0.1).unwrap().as_primitive::<Decimal128Type>().value(0), 10);
}

#[test]
fn structures_are_dates_and_timestamps() {
    let date = |year: i16, month: u16, day: u16| column(&DataType::Date32, |b| b.date(Some(Date { year, month, day })));
    assert_eq!(array_value_to_string(&date(1970, 1, 2).unwrap(), 0).unwrap(), "1970-01-02");
    assert!(date(2023, 2, 29).unwrap_err().contains("2023-02-29"));
    let moment = Timestamp { year: 1969, month: 12, day: 31, hour: 23, minute: 59, second: 59, fraction: 999_000_000 };
    let millis = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
    let array = column(&millis, |b| b.timestamp(Some(moment))).unwrap();
    assert_eq!((array.data_type(), array.as_primitive::<TimestampMillisecondType>().value(0)), (&millis, -1));
    let finer = Timestamp { fraction: 1, ..moment };
    assert!(column(&millis, |b| b.timestamp(Some(finer))).unwrap_err().contains("59.000000001"));
    assert!(column(&DataType::Date32, |b| b.timestamp(Some(moment))).is_err());
}

#[test]
fn columns_are_fetched_as_they_are() {
    #[track_caller]
    fn check(system: System, data_type: DataType, described: super::super::ffi::Described, expect: Option<Place>) {
        let field = Field::new("c", data_type, true);
        assert_eq!(place(&field, &Column::of(described, system), system), expect);
    }
    let digits = Some(Place::up_to(Form::Char, DIGITS_BYTES));
    let (any, postgres) = (System::Standard, System::Postgres);
    check(any, DataType::Int16, described(code::BIGINT, 19, 0, ""), Some(Place::plain(Form::I64)));
    check(any, DataType::Int64, described(code::DECIMAL, 38, 0, ""), digits);
    check(any, DataType::Utf8, described(code::VARCHAR, 10, 0, ""), Some(Place { form: Form::Wide, width: 42, long: false }));
    check(any, DataType::Utf8, described(code::LONGVARCHAR, 1 << 30, 0, ""), Some(Place::long(Form::Wide)));
    check(any, DataType::Utf8, described(code::VARCHAR, 0, 0, ""), Some(Place::long(Form::Wide)));
    check(postgres, DataType::Utf8, described(code::LONGVARCHAR, 8190, 0, "text"), Some(Place::up_to(Form::Wide, FIRST_BYTES)));
    check(any, DataType::Date32, described(code::TIMESTAMP, 19, 0, ""), Some(Place::plain(Form::Timestamp)));
    check(postgres, DataType::Date32, described(code::DATE, 10, 0, "date"), digits);
    check(any, DataType::Binary, described(code::VARCHAR, 10, 0, ""), None);
    check(any, DataType::Int32, described(code::DATE, 10, 0, ""), None);
    let schema: SchemaRef = Arc::new(arrow::datatypes::Schema::new(vec![Field::new("c", DataType::Int32, false)]));
    let column = Column::of(described(code::DATE, 10, 0, "date"), any);
    let Err(error) = Target::new(&schema.fields()[0], &column, any) else { panic!("it was taken") };
    assert!(error.message.contains("'c'") && error.message.contains("date") && error.message.contains("INT"), "{error}");
}
