//! Tests of `ipc`.

use super::*;
use arrow::array::{DictionaryArray, Int32Array, Int64Array, NullArray, StringArray, StringViewArray, TimestampSecondArray};
use arrow::datatypes::{Field, Int32Type, TimeUnit};
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{IpcWriteOptions, StreamWriter};
use std::sync::Arc;
use tidemill_block::{Block, text};

/// What a body may become.
const BYTES_MAX: u64 = 64 << 20;

fn request(projection: &[usize]) -> ReadRequest {
    let physical = Arc::new(Schema::new(vec![
        Field::new("n", DataType::Int64, false),
        Field::new("s", DataType::Utf8, true),
        Field::new("t", DataType::Timestamp(TimeUnit::Millisecond, None), true),
    ]));
    ReadRequest { projection: projection.to_vec(), ..ReadRequest::all(physical) }
}

fn written(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, c)| (name, c, true))).unwrap();
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.write(&batch.slice(1, 1)).unwrap();
    writer.into_inner().unwrap()
}

fn numbers() -> (&'static str, ArrayRef) {
    ("n", Arc::new(Int64Array::from(vec![5, 6])))
}

#[track_caller]
fn check(body: Vec<u8>, projection: &[usize], expect: Result<&str, &str>) {
    match (rows(body, &request(projection), BYTES_MAX), expect) {
        (Ok((batches, _)), Ok(expect)) => {
            let found: String = batches.into_iter().map(|batch| text::format(&Block::inserts(batch, 0))).collect();
            assert_eq!(found, expect);
        }
        (Err(why), Err(part)) => assert!(why.contains(part), "{why}"),
        (found, _) => panic!("{found:?}"),
    }
}

#[test]
fn columns_by_name_with_casts_and_nulls() {
    let texts: ArrayRef = Arc::new(StringViewArray::from(vec![Some("a"), None]));
    let times: ArrayRef = Arc::new(TimestampSecondArray::from(vec![0, 1]));
    let other: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    let body = written(vec![("t", times), ("other", other), ("s", texts), numbers()]);
    check(body.clone(), &[1, 0], Ok("+I a 5\n+I NULL 6\n+I NULL 6\n"));
    check(body.clone(), &[2], Ok("+I 1970-01-01T00:00:00\n+I 1970-01-01T00:00:01\n+I 1970-01-01T00:00:01\n"));
    assert_eq!(rows(body, &request(&[]), BYTES_MAX).unwrap().0.iter().map(RecordBatch::num_rows).sum::<usize>(), 3);
    let nothing: ArrayRef = Arc::new(NullArray::new(2));
    check(written(vec![numbers(), ("s", nothing)]), &[0, 1], Ok("+I 5 NULL\n+I 6 NULL\n+I 6 NULL\n"));
}

#[test]
fn what_does_not_fit_is_refused() {
    let text: ArrayRef = Arc::new(StringArray::from(vec!["1", "2"]));
    check(written(vec![("n", text.clone())]), &[0], Err("column 'n' is STRING, and BIGINT in the table"));
    check(written(vec![("s", text.clone())]), &[0], Err("column 'n' is missing and cannot be NULL; it has: s"));
    check(written(vec![("x", text)]), &[], Err("none of the table's columns is there; it has: x"));
    let nulls: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
    check(written(vec![("n", nulls)]), &[0], Err("n"));
    let late: ArrayRef = Arc::new(TimestampSecondArray::from(vec![0, i64::MAX]));
    check(written(vec![numbers(), ("t", late)]), &[2], Err("column 't'"));
    let body = written(vec![numbers()]);
    check(body[..body.len() - 12].to_vec(), &[0], Err("in the middle"));
    check(Vec::new(), &[0], Err("it is empty"));
    check([body, vec![1]].concat(), &[0], Err("bytes follow the end"));
    check(b"n\n1\n2\n".to_vec(), &[0], Err("is this an Arrow IPC stream?"));
}

#[test]
fn what_came_packed_is_made_plain() {
    let words: ArrayRef = Arc::new(DictionaryArray::<Int32Type>::from_iter(["a", "b"]));
    check(written(vec![numbers(), ("s", words)]), &[1], Ok("+I a\n+I b\n+I b\n"));
    // Many equal rows make a body that is shorter than they are many.
    let batch = RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from(vec![7; 50_000])) as ArrayRef)]).unwrap();
    let options = IpcWriteOptions::default().try_with_compression(Some(CompressionType::ZSTD)).unwrap();
    let mut writer = StreamWriter::try_new_with_options(Vec::new(), &batch.schema(), options).unwrap();
    writer.write(&batch).unwrap();
    let body = writer.into_inner().unwrap();
    assert!(body.len() * 8 < 50_000);
    let (batches, bytes) = rows(body, &request(&[0]), BYTES_MAX).unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 50_000);
    assert!(bytes >= 400_000, "{bytes}");
}

/// A kilobyte of a body could become gigabytes: each batch was bounded, and not all of them together.
#[test]
fn many_packed_batches_are_bounded_together() {
    let zeros: ArrayRef = Arc::new(Int64Array::from(vec![0; 100_000]));
    let batch = RecordBatch::try_from_iter([("n", zeros)]).unwrap();
    let options = IpcWriteOptions::default().try_with_compression(Some(CompressionType::ZSTD)).unwrap();
    let mut writer = StreamWriter::try_new_with_options(Vec::new(), &batch.schema(), options).unwrap();
    (0..50).for_each(|_| writer.write(&batch).unwrap());
    let body = writer.into_inner().unwrap();
    assert!(body.len() < 100_000);
    let why = rows(body.clone(), &request(&[0]), 10_000_000).unwrap_err();
    assert!(why.contains("more than 10000000 bytes unpacked"), "{why}");
    assert!(rows(body, &request(&[0]), 50_000_000).is_ok());
}

/// Whatever byte is wrong, there are rows or an error, and memory only for what was sent.
#[test]
fn wrong_bytes_are_errors() {
    let body = written(vec![numbers()]);
    for at in 0..body.len() {
        for wrong in [0x00, 0x01, 0x7f, 0x80, 0xff] {
            let mut body = body.clone();
            body[at] = wrong;
            let _ = rows(body, &request(&[0, 1]), BYTES_MAX);
        }
    }
}
