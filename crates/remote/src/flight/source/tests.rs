//! The source against a server that follows a script, and how columns are fitted.

use std::sync::Arc;

use super::super::script::{Script, Scripted, batch, schema, values};
use super::*;
use arrow::array::{Array, Int8Array, Int32Array, LargeStringArray, TimestampMicrosecondArray};
use arrow::datatypes::{Field, Schema, TimeUnit};
use serde_json::json;
use tidemill_connect::Waker;
use tidemill_format::options::RawOptions;

fn raw(server: &Scripted, options: &[(&str, &str)]) -> RawOptions {
    let all = [("url", server.url().as_str()), ("reconnect.backoff", "1 ms"), ("from", "earliest")]
        .into_iter()
        .chain(options.iter().copied())
        .map(|(k, v)| (k.to_string(), v.to_string()))
        .collect::<Vec<_>>();
    RawOptions::new("table 't'", all)
}

fn context() -> ReaderContext {
    ReaderContext { waker: Waker::noop(), request: ReadRequest::all(schema()), shard: 0, shards: 1 }
}

/// Reads up to `rows` rows, at most `rows_max` at once; the rows and the position behind them.
fn read(source: &dyn Source, position: Option<Value>, rows: usize, rows_max: usize) -> (Vec<i64>, Value) {
    let split = Split { position, ..source.splits(1).unwrap().remove(0) };
    let mut reader = source.open(&split, context()).unwrap();
    let mut all = Vec::new();
    while all.len() < rows {
        match reader.poll(rows_max.min(rows - all.len())).unwrap() {
            Polled::Rows(rows) => {
                assert!(rows.batch.num_rows() <= rows_max);
                all.extend(values(&rows.batch));
            }
            Polled::Pending => std::thread::yield_now(),
            Polled::End => break,
        }
    }
    (all, reader.position())
}

fn server(script: Script) -> Scripted {
    Scripted::start(Script { outlet: (0..100).collect(), block: 7, delivery: "exactly-once", ..script })
}

#[test]
fn a_position_is_gone_on_from_exactly() {
    let server = server(Script { breaks: vec![35], ..Script::default() });
    let source = super::super::make_source(&schema(), &mut raw(&server, &[])).unwrap();
    assert!(!source.bounded());
    for (rows_max, rows) in [(1, 1), (3, 10), (7, 14), (1000, 1), (5, 64)] {
        let (first, position) = read(&*source, None, rows, rows_max);
        let (rest, _) = read(&*source, Some(position), 1000, rows_max);
        assert_eq!([first, rest].concat(), (0..100).collect::<Vec<_>>(), "{rows} rows, {rows_max} at once");
    }
}

#[test]
fn the_position_between_messages_names_a_row() {
    let server = server(Script::default());
    let source = super::super::make_source(&schema(), &mut raw(&server, &[])).unwrap();
    assert_eq!(read(&*source, None, 7, 7).1, json!({ "offset": 7, "skip": 0 }));
    assert_eq!(read(&*source, None, 10, 5).1, json!({ "offset": 7, "skip": 3 }));
    assert_eq!(read(&*source, Some(json!({ "offset": 7, "skip": 3 })), 4, 4).1, json!({ "offset": 14, "skip": 0 }));
    let split = Split { id: "s".into(), position: Some(json!("elsewhere")) };
    assert!(source.open(&split, context()).err().unwrap().to_string().contains("not one of a stream"));
}

#[test]
fn commits_are_acknowledged_by_name() {
    let server = server(Script::default());
    let source = super::super::make_source(&schema(), &mut raw(&server, &[("name", "me")])).unwrap();
    // Nothing was read, then something, then the reader is gone.
    source.committed(&[json!({ "offset": null, "skip": 0 })]);
    let (_, position) = read(&*source, None, 14, 7);
    source.committed(&[position]);
    assert_eq!(server.script().acks, [14]);
    // Without a name nobody asked for it.
    let nameless = super::super::make_source(&schema(), &mut raw(&server, &[])).unwrap();
    nameless.committed(&[json!({ "offset": 21 })]);
    assert_eq!(server.script().acks, [14]);
}

#[test]
fn the_last_commit_is_acknowledged_behind_the_end() {
    let server = server(Script { ends: true, ..Script::default() });
    let source = super::super::make_source(&schema(), &mut raw(&server, &[("name", "me")])).unwrap();
    let (rows, position) = read(&*source, None, 1000, 7);
    assert_eq!((rows.len(), &position), (100, &json!({ "offset": 100, "skip": 0 })));
    source.committed(&[position]);
    let script = server.script();
    assert_eq!((&script.acks[..], script.requests.len()), (&[100][..], 1));
}

/// A job that is restarted before the first row must not begin with what comes then.
#[test]
fn the_position_is_known_before_the_first_row() {
    let empty = || Scripted::start(Script { delivery: "exactly-once", ..Script::default() });
    let position = |server: &Scripted, from: &str| {
        let options = [("url", server.url()), ("from", from.to_string())].map(|(k, v)| (k.to_string(), v));
        let source = super::super::make_source(&schema(), &mut RawOptions::new("table 't'", options)).unwrap();
        read(&*source, None, 1, 1).1
    };
    assert_eq!(position(&empty(), "now"), json!({ "offset": 0, "skip": 0 }));
    // Contents are read again from their beginning.
    assert_eq!(position(&empty(), "snapshot"), json!({ "offset": null, "skip": 0 }));
}

#[test]
fn a_table_says_what_it_needs() {
    let server = server(Script::default());
    let error = super::super::make_source(&schema(), &mut raw(&server, &[("changes", "as-column")])).err().unwrap().to_string();
    assert_eq!(error, "table 't': 'changes' = 'as-column' needs a column row_kind TINYINT");
}

#[test]
fn what_rows_do_is_applied() {
    let with = |codes: Vec<Option<i8>>| {
        let n: ArrayRef = Arc::new(Int32Array::from(vec![7; codes.len()]));
        let codes: ArrayRef = Arc::new(Int8Array::from(codes));
        RecordBatch::try_from_iter_with_nullable([("n", n, true), ("row_kind", codes, true)]).unwrap()
    };
    use RowKind::*;
    assert_eq!(kinds(&with(vec![Some(0), Some(1), Some(2), Some(3)])).unwrap(), Some(vec![Insert, UpdateBefore, UpdateAfter, Delete]));
    assert_eq!(kinds(&with(vec![Some(0), Some(0)])).unwrap(), None);
    assert_eq!(kinds(&batch([1, 2])).unwrap(), None, "a stream that is not updated");
    for (wrong, says) in [(Some(4), "holds 4"), (None, "holds NULL")] {
        assert!(kinds(&with(vec![Some(1), wrong])).unwrap_err().to_string().contains(says));
    }
    let server = server(Script::default());
    let source = super::super::make_source(&schema(), &mut raw(&server, &[("changes", "apply")])).unwrap();
    assert_eq!(source.changelog(), Changelog::All);
    // What was given of contents cannot be taken back, and the rest of them cannot be had.
    let split = Split { id: "s".into(), position: Some(json!({"offset": null, "skip": 0, "contents": 3})) };
    let error = source.open(&split, context()).err().unwrap().to_string();
    assert!(error.contains("within the contents"), "{error}");
}

/// After a break changes of a live stream are missing: to apply those that follow would give wrong results.
#[test]
fn changes_that_are_missing_are_an_error() {
    let server = Scripted::start(Script { outlet: (0..100).collect(), block: 7, delivery: "live", breaks: vec![35], ..Script::default() });
    let source = super::super::make_source(&schema(), &mut raw(&server, &[("changes", "apply")])).unwrap();
    let mut reader = source.open(&source.splits(1).unwrap()[0], context()).unwrap();
    let error = loop {
        match reader.poll(1000) {
            Err(error) => break error.to_string(),
            Ok(Polled::End) => panic!("rows are missing"),
            Ok(_) => std::thread::yield_now(),
        }
    };
    assert!(error.contains("changes that came meanwhile are missing"), "{error}");
}

fn request(fields: Vec<Field>, projection: &[usize]) -> ReadRequest {
    ReadRequest { projection: projection.to_vec(), ..ReadRequest::all(Arc::new(Schema::new(fields))) }
}

#[test]
fn columns_are_found_by_name_and_fitted() {
    let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
    let millis = DataType::Timestamp(TimeUnit::Millisecond, None);
    let wire = Arc::new(Schema::new(vec![
        Field::new("t", micros, true),
        Field::new("s", DataType::LargeUtf8, true),
        Field::new("row_kind", DataType::Int8, false),
    ]));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(TimestampMicrosecondArray::from(vec![1_500, 2_000])),
        Arc::new(LargeStringArray::from(vec!["a", "b"])),
        Arc::new(Int8Array::from(vec![0, 3])),
    ];
    let batch = RecordBatch::try_new(wire.clone(), columns).unwrap();
    let table = || {
        vec![Field::new("row_kind", DataType::Int8, false), Field::new("s", DataType::Utf8, true), Field::new("t", millis.clone(), true)]
    };
    let wanted = request(table(), &[2, 0, 1]);
    let mapped = Mapping::new(&wire, &wanted).unwrap().apply(&batch).unwrap();
    assert_eq!(mapped.schema(), wanted.schema());
    assert_eq!(mapped.column(1).as_any().downcast_ref::<Int8Array>().unwrap().values().to_vec(), [0, 3]);
    // Rows alone are counted.
    assert_eq!(Mapping::new(&wire, &request(table(), &[])).unwrap().apply(&batch).unwrap().num_rows(), 2);
    let error = |field| Mapping::new(&wire, &request(vec![field], &[0])).err().unwrap().to_string();
    assert_eq!(error(Field::new("s", DataType::Int64, true)), "column 's' is LargeUtf8 in the stream and BIGINT in the table");
    assert_eq!(error(Field::new("x", DataType::Int64, true)), "the stream has no column 'x'; it has: t, s, row_kind");
    // What may be NULL there must not be NULL where the table says so.
    let nullable =
        RecordBatch::try_from_iter_with_nullable([("n", Arc::new(Int32Array::from(vec![Some(1), None])) as ArrayRef, true)]).unwrap();
    assert!(nullable.column(0).is_null(1));
    let strict = Mapping::new(&nullable.schema(), &request(vec![Field::new("n", DataType::Int32, false)], &[0])).unwrap();
    assert!(strict.apply(&nullable).unwrap_err().to_string().contains("do not fit the table"));
}

#[test]
fn only_wanted_columns_travel() {
    let fields = || vec![Field::new("a", DataType::Int64, true), Field::new("b", DataType::Int64, true)];
    assert_eq!(columns(&request(fields(), &[1, 0, 1])), ["b", "a"]);
    assert_eq!(columns(&request(fields(), &[])), ["a"]);
}
