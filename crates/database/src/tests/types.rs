//! Every type there and back: extremes, NULLs and random values come back as they were.

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int8Array, Int16Array, Int32Array,
    Int64Array, StringArray, Time32MillisecondArray, TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray,
};

use super::*;

/// Seconds of 0001-01-01 00:00:00 and of the last of 9999.
const SECONDS: (i64, i64) = (-62_135_596_800, 253_402_300_799);

/// Values with the extremes, NULL, and random ones.
fn mixed<T: Copy>(extremes: &[T], mut random: impl FnMut() -> T) -> Vec<Option<T>> {
    let mut values: Vec<Option<T>> = extremes.iter().copied().map(Some).collect();
    values.push(None);
    values.resize_with(40, || Some(random()));
    values
}

fn decimals(random: &mut Random, precision: u8, scale: i8) -> ArrayRef {
    let most = 10i128.pow(precision.into()) - 1;
    let values = mixed(&[0, 1, -1, most, -most], || ((i128::from(random.next() as i64) << 64) | i128::from(random.next())) % (most + 1));
    Arc::new(values.into_iter().collect::<Decimal128Array>().with_precision_and_scale(precision, scale).unwrap())
}

fn generated(seed: u64) -> RecordBatch {
    let mut r = Random(seed);
    let (low, high) = SECONDS;
    let mut seconds = |per: i64| low * per + (r.next() % ((high - low) * per) as u64) as i64;
    let millis = mixed(&[low * 1000, high * 1000 + 999, 0, -1, 1], || seconds(1000));
    let micros = mixed(&[low * 1_000_000, high * 1_000_000 + 999_999, 0, -1, 1], || seconds(1_000_000));
    let nanos = mixed(&[i64::MIN, i64::MAX, 0, -1, 1], || 0);
    let days = mixed(&[-719_162, 2_932_896, 0, -1], || 19_000);
    let texts: Vec<Option<String>> = mixed(&["", "007", "1e5", "a\0b", "héllo 😀", "NULL", "'; DROP TABLE t; --", "\"\n\t\\"], || "x")
        .into_iter()
        .map(|t| t.map(str::to_string))
        .collect();
    let bytes: Vec<Option<&[u8]>> = mixed(&[&b""[..], &b"\0\xff\x80"[..], &b"text"[..]], || &b"\x01"[..]);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("boolean", Arc::new(BooleanArray::from(mixed(&[true, false], || true)))),
        ("tinyint", Arc::new(Int8Array::from(mixed(&[i8::MIN, i8::MAX, 0], || 7)))),
        ("smallint", Arc::new(Int16Array::from(mixed(&[i16::MIN, i16::MAX], || -7)))),
        ("int", Arc::new(Int32Array::from(mixed(&[i32::MIN, i32::MAX], || 0)))),
        ("bigint", Arc::new(Int64Array::from(mixed(&[i64::MIN, i64::MAX, (1 << 53) + 1], || r.next() as i64)))),
        ("float", Arc::new(Float32Array::from(mixed(&[f32::MIN, f32::MAX, f32::MIN_POSITIVE, f32::INFINITY, 0.1], || r.next() as f32)))),
        (
            "double",
            Arc::new(Float64Array::from(mixed(&[f64::MIN, f64::MAX, 5e-324, f64::NEG_INFINITY, 0.1 + 0.2], || r.next() as f64 / 3.0))),
        ),
        ("decimal_15_2", decimals(&mut r, 15, 2)),
        ("decimal_15_15", decimals(&mut r, 15, 15)),
        ("decimal_18", decimals(&mut r, 18, 0)),
        ("decimal_38_18", decimals(&mut r, 38, 18)),
        ("decimal_38", decimals(&mut r, 38, 0)),
        ("string", Arc::new(StringArray::from(texts))),
        ("bytes", Arc::new(BinaryArray::from(bytes))),
        ("date", Arc::new(Date32Array::from(days))),
        ("time", Arc::new(Time32MillisecondArray::from(mixed(&[0, 86_399_999, 1], || 43_200_000)))),
        ("ts_3", Arc::new(TimestampMillisecondArray::from(millis.clone()))),
        ("ts_6", Arc::new(TimestampMicrosecondArray::from(micros))),
        ("ts_9", Arc::new(TimestampNanosecondArray::from(nanos))),
        ("ltz", Arc::new(TimestampMillisecondArray::from(millis).with_timezone("UTC"))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true))).unwrap()
}

#[test]
fn every_type_comes_back_as_it_was() {
    for seed in 0..5 {
        let place = Place::new();
        let rows = generated(seed);
        let schema = rows.schema();
        let sink = place.sink(&schema, &[], &[]);
        let mut writer = start(sink.as_ref(), &schema);
        writer.write(&Block::inserts(rows.clone(), 0)).unwrap();
        writer.prepare(true).unwrap();
        let found = place.rows(&schema);
        for (index, field) in schema.fields().iter().enumerate() {
            assert_eq!(found.column(index), rows.column(index), "column {} with seed {seed}", field.name());
        }
    }
}

#[test]
fn values_that_would_change_are_refused() {
    let date: ArrayRef = Arc::new(Date32Array::from(vec![i32::MAX]));
    let stamp: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![i64::MIN]));
    let number: ArrayRef = Arc::new(Float64Array::from(vec![f64::NAN]));
    for column in [date, stamp, number] {
        let place = Place::new();
        let rows = RecordBatch::try_from_iter([("c", column)]).unwrap();
        let sink = place.sink(&rows.schema(), &[], &[]);
        let mut writer = start(sink.as_ref(), &rows.schema());
        let error = writer.write(&Block::inserts(rows, 0)).and_then(|()| writer.prepare(true)).unwrap_err().to_string();
        assert!(error.contains("the row (c=") && error.contains("column 'c'"), "{error}");
    }
}

#[test]
fn values_that_do_not_fit_are_named_when_read() {
    #[track_caller]
    fn check(value: &str, data_type: DataType, expect: &str) {
        let place = Place::new();
        place.run(&format!("CREATE TABLE t (c); INSERT INTO t VALUES ({value})"));
        let schema = schema(&[("c", data_type)]);
        let source = place.source(&schema, &[], &[]);
        let split = source.splits(1).unwrap().remove(0);
        let mut reader = open(source.as_ref(), &split, &schema);
        let begun = Instant::now();
        let error = loop {
            match reader.poll(10) {
                Err(error) => break error.to_string(),
                Ok(Polled::Pending) => std::thread::sleep(Duration::from_millis(1)),
                Ok(other) => panic!("{value} was read: {other:?}"),
            }
            assert!(begun.elapsed() < Duration::from_secs(60));
        };
        assert!(error.contains("column 'c'") && error.contains(expect), "{error}");
    }
    check("128", DataType::Int8, "128");
    check("1.5", DataType::Int64, "1.5");
    check("'abc'", DataType::Int64, "'abc'");
    check("2", DataType::Boolean, "2");
    check("'1.234'", DataType::Decimal128(10, 2), "'1.234'");
    check("12345678901", DataType::Decimal128(10, 0), "12345678901");
    check("'2024-02-30'", DataType::Date32, "'2024-02-30'");
    check("'2024-01-01 00:00:00.1234'", DataType::Timestamp(arrow::datatypes::TimeUnit::Millisecond, None), "00.1234");
    check("x'00ff'", DataType::Utf8, "BLOB of 2 bytes");
    check("9007199254740993", DataType::Float64, "9007199254740993");
}
