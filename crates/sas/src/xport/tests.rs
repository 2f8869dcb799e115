//! Files written here and read again, of both versions; files as others write them; files that are damaged.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, Date32Array, Float64Array, Int64Array, RecordBatch, StringArray, Time32MillisecondArray,
    TimestampMicrosecondArray, TimestampMillisecondArray,
};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};

use super::*;
use crate::{As, Kind, SasError, Wanted};

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true))).expect("columns of one length")
}

fn write(batches: &[RecordBatch], options: XportOptions) -> Result<Vec<u8>, SasError> {
    let mut out = Vec::new();
    let mut encoder = XportEncoder::new(&batches[0].schema(), options)?;
    encoder.begin(0, &mut out);
    for batch in batches {
        encoder.rows(batch, &mut out)?;
    }
    encoder.end(&mut out);
    assert_eq!(out.len() % RECORD, 0, "a file is whole records");
    Ok(out)
}

fn read(file: Vec<u8>, batch_rows: usize) -> Result<Vec<RecordBatch>, SasError> {
    let file = XportFile::open(Arc::new(file), None, None)?;
    file.read(0, &Wanted::all(file.columns().len()), batch_rows)?.collect()
}

fn options(version: XportVersion, text_bytes: usize) -> XportOptions {
    XportOptions { version, text_bytes, ..XportOptions::default() }
}

/// One column `x` of texts of that length.
fn texts(values: &[&str]) -> RecordBatch {
    batch(vec![("x", Arc::new(StringArray::from(values.iter().map(|v| (!v.is_empty()).then_some(*v)).collect::<Vec<_>>())))])
}

#[test]
fn values_come_back() {
    let numbers = [1.5, -0.1, 1e75, 5.4e-79, 0.0, 123_456_789.123_456_78].map(Some).into_iter().chain([None]);
    let rows = batch(vec![
        ("A", Arc::new(Float64Array::from_iter(numbers))),
        ("B", Arc::new(Int64Array::from(vec![Some(1 << 53), Some(-5), None, Some(0), Some(7), Some(8), Some(9)]))),
        ("C", Arc::new(StringArray::from(vec![Some("a b"), Some("é"), None, Some("x"), Some(" y"), None, Some("z")]))),
        ("D", Arc::new(Date32Array::from(vec![Some(0), Some(-3_653), Some(20_000), None, Some(-4_000), Some(1), Some(2)]))),
        ("T", Arc::new(Time32MillisecondArray::from(vec![Some(0), Some(86_399_999), Some(1), None, Some(5), Some(6), Some(7)]))),
        (
            "M",
            Arc::new(TimestampMicrosecondArray::from(vec![
                Some(0),
                Some(1_489_505_816_546_123),
                Some(-1),
                None,
                Some(-315_619_200_000_001),
                Some(1),
                Some(2),
            ])),
        ),
        ("F", Arc::new(BooleanArray::from(vec![Some(true), Some(false), None, None, None, None, Some(true)]))),
    ]);
    for version in [XportVersion::V5, XportVersion::V8] {
        let file = write(&[rows.slice(0, 3), rows.slice(3, 4)], options(version, 5)).unwrap();
        for batch_rows in [1, 2, 100] {
            let found = read(file.clone(), batch_rows).unwrap();
            let found = concat_batches(&found[0].schema(), &found).unwrap();
            for (index, name) in ["A", "C", "D", "T", "M"].iter().enumerate() {
                let at = [0, 2, 3, 4, 5][index];
                assert_eq!(found.column(at).as_ref(), rows.column(at).as_ref(), "{name}, {version:?}");
            }
            let whole =
                Float64Array::from(vec![Some(9_007_199_254_740_992.0), Some(-5.0), None, Some(0.0), Some(7.0), Some(8.0), Some(9.0)]);
            assert_eq!(found.column(1).as_ref(), &whole as &dyn Array);
            let flags = Float64Array::from(vec![Some(1.0), Some(0.0), None, None, None, None, Some(1.0)]);
            assert_eq!(found.column(6).as_ref(), &flags as &dyn Array);
        }
    }
}

#[test]
fn names_and_labels() {
    let label = |text: &str| HashMap::from([("label".to_string(), text.to_string())]);
    let long = "a label of more than forty letters, which version 5 has no room for";
    let schema = Arc::new(Schema::new(vec![
        Field::new("customer_name", DataType::Utf8, true).with_metadata(label("short")),
        Field::new("customer_number", DataType::Float64, true).with_metadata(label(long)),
        Field::new("at", DataType::Timestamp(TimeUnit::Millisecond, None), true),
    ]));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(vec!["x"])),
        Arc::new(Float64Array::from(vec![2.0])),
        Arc::new(TimestampMillisecondArray::from(vec![1_500])),
    ];
    let rows = RecordBatch::try_new(schema, columns).unwrap();
    let written =
        XportOptions { member: "customers_of_today".to_string(), label: "All of them".to_string(), ..options(XportVersion::V8, 300) };
    let bytes = write(std::slice::from_ref(&rows), written).unwrap();
    let file = XportFile::open(Arc::new(bytes.clone()), None, None).unwrap();
    assert_eq!((file.name(), file.label(), file.version(), file.row_bytes()), ("customers_of_today", "All of them", 8, 316));
    let columns: Vec<_> = file.columns().iter().map(|c| (c.name.as_str(), c.label.as_str(), c.kind)).collect();
    let expect = [("customer_name", "short", Kind::Text), ("customer_number", long, Kind::Number), ("at", "", Kind::DateTime)];
    assert_eq!(columns, expect);
    assert_eq!(file.schema().field(2).metadata().get("format").map(String::as_str), Some("DATETIME26.6"));
    // The names of eight letters differ.
    assert!(bytes.windows(16).any(|w| w == b"CUSTOMERshort   "));
    assert!(bytes.windows(8).any(|w| w == b"CUS00002"));
    let refused = |rows: &RecordBatch, options: XportOptions| write(std::slice::from_ref(rows), options).unwrap_err().to_string();
    let error = refused(&rows, options(XportVersion::V5, 200));
    assert_eq!(
        error,
        "column 'customer_name' has 13 letters, but a name in SAS may have 1 to 8, or 32 with 'xport.version' = '8'; give it another name \
         with AS"
    );
    let twice = batch(vec![("a", rows.column(1).clone()), ("A", rows.column(1).clone())]);
    assert!(refused(&twice, options(XportVersion::V5, 9)).contains("columns 'a' and 'A' have the same name"));
    assert!(refused(&texts(&["x"]), options(XportVersion::V5, 201)).contains("not 1 to 200 bytes; version 8"));
    assert!(refused(&texts(&["x"]), XportOptions { member: "my data".into(), ..options(XportVersion::V5, 9) }).contains("'my data'"));
}

#[test]
fn values_that_cannot_be_written() {
    #[track_caller]
    fn check(array: ArrayRef, expect: &str) {
        let error = write(&[batch(vec![("x", array)])], options(XportVersion::V5, 3)).unwrap_err().to_string();
        assert!(error.contains(expect), "'{error}' does not say '{expect}'");
    }
    check(Arc::new(Float64Array::from(vec![1e76])), "1e76 is beyond the numbers of XPORT, 5.4e-79 to 7.2e75");
    check(Arc::new(Float64Array::from(vec![-1e-80])), "-1e-80 is beyond");
    check(Arc::new(Int64Array::from(vec![(1 << 53) + 1])), "9007199254740993 has more digits than SAS's numbers hold exactly");
    check(Arc::new(StringArray::from(vec!["four"])), "a text of 4 bytes, but a text of it may have 3");
    check(Arc::new(arrow::array::BinaryArray::from(vec![b"x".as_slice()])), "is of a type that XPORT cannot hold");
}

#[test]
fn where_the_rows_end() {
    // Rows that are shorter than a record, of every count, so that every remainder of a record occurs.
    for length in [1, 7, 8, 79, 80, 81, 200] {
        let value = "v".repeat(length);
        for rows in 0..=85 {
            let written = texts(&vec![value.as_str(); rows]);
            let found = read(write(&[written], options(XportVersion::V5, length)).unwrap(), 50).unwrap();
            assert_eq!(found.iter().map(RecordBatch::num_rows).sum::<usize>(), rows, "{rows} rows of {length} bytes");
        }
    }
    // Blank rows before others are rows.
    let found = read(write(&[texts(&["", "", "a", "", "b"])], options(XportVersion::V5, 3)).unwrap(), 50).unwrap();
    assert_eq!(found, [texts(&["", "", "a", "", "b"])].map(|b| RecordBatch::try_new(found[0].schema(), b.columns().to_vec()).unwrap()));
    // A program that fills no records, and a file that is cut within a row.
    let mut file = write(&[texts(&["abcde", "fghij"])], options(XportVersion::V5, 5)).unwrap();
    file.truncate(file.len() - 70);
    assert_eq!(read(file.clone(), 50).unwrap()[0].num_rows(), 2);
    file.truncate(file.len() - 1);
    assert!(read(file, 50).unwrap_err().to_string().contains("row 2 has 5 bytes, of which 4 are there"));
}

#[test]
fn many_rows_from_anywhere() {
    // More than is read at once.
    let count = 400_000usize;
    let rows = batch(vec![("N", Arc::new(Float64Array::from_iter_values((0..count).map(|i| i as f64))))]);
    let bytes = write(&[rows], options(XportVersion::V5, 1)).unwrap();
    let file = XportFile::open(Arc::new(bytes), None, None).unwrap();
    for start in [0, 1, 163_830, 163_840, 163_841, count as u64 - 1, count as u64] {
        let mut reader = file.read(start, &Wanted::all(1), 10_000).unwrap();
        let mut next = start;
        while let Some(batch) = reader.next() {
            let batch = batch.unwrap();
            let values = batch.column(0).as_any().downcast_ref::<Float64Array>().unwrap();
            for value in values.values() {
                assert_eq!(*value, next as f64);
                next += 1;
            }
            assert_eq!(reader.row(), next);
        }
        assert_eq!(next, count as u64);
    }
    assert!(file.read(count as u64 + 11, &Wanted::all(1), 10).is_err());
}

#[test]
fn several_data_sets() {
    let set = |name: &str, values: &[&str]| {
        write(&[texts(values)], XportOptions { member: name.into(), ..options(XportVersion::V5, 3) }).unwrap()
    };
    // The library's three records stand once.
    let file = [set("ONE", &["a", "b"]), set("TWO", &["c"])[3 * RECORD..].to_vec(), set("THREE", &["d"])[3 * RECORD..].to_vec()].concat();
    let rows = |member: &str| -> Result<Vec<RecordBatch>, SasError> {
        XportFile::open(Arc::new(file.clone()), Some(member), None)?.read(0, &Wanted::all(1), 10)?.collect()
    };
    let sets: [(&str, &[&str]); 3] = [("one", &["a", "b"]), ("TWO", &["c"]), ("Three", &["d"])];
    for (member, values) in sets {
        assert_eq!(rows(member).unwrap()[0].column(0).as_ref(), texts(values).column(0).as_ref(), "{member}");
    }
    assert_eq!(rows("four").unwrap_err().to_string(), "there is no data set 'four' in it; there are: ONE, TWO, THREE");
    let error = read(file.clone(), 10).unwrap_err().to_string();
    assert_eq!(error, "it has more than one data set: behind 'ONE' stands 'TWO'; name one, 'xport.member' = 'TWO'");
}

#[test]
fn missing_values_as_text() {
    let mut bytes =
        write(&[batch(vec![("X", Arc::new(Float64Array::from(vec![None, Some(1.0), None])))])], options(XportVersion::V5, 1)).unwrap();
    // The third becomes `.K`.
    let at = bytes.len() - RECORD + 16;
    assert_eq!(bytes[at], b'.');
    bytes[at] = b'K';
    let file = XportFile::open(Arc::new(bytes), None, None).unwrap();
    let found = file.read(0, &[Wanted { column: 0, form: As::Text }], 10).unwrap().next().unwrap().unwrap();
    assert_eq!(found.column(0).as_ref(), &StringArray::from(vec![".", "1.0", ".K"]) as &dyn Array);
}

#[test]
fn damage_makes_errors_and_nothing_worse() {
    let good = write(&[texts(&["abc", "d", "", "e"])], options(XportVersion::V8, 4)).unwrap();
    for cut in 0..good.len() {
        let _ = read(good[..cut].to_vec(), 2);
    }
    for at in 0..good.len() {
        for value in [0, b' ', b'9', 0xFF] {
            let mut bad = good.clone();
            bad[at] = value;
            let _ = read(bad, 2);
        }
    }
    let error = |bytes: &[u8]| read(bytes.to_vec(), 2).unwrap_err().to_string();
    assert!(error(b"x,y\n").contains("does not begin as one"));
    assert!(error(&good[..500]).contains("cut short"));
    assert!(error(b"**COMPRESSED** **COMPRESSED**").contains("PROC CPORT"));
}
