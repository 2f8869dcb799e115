//! Tests of the connector as a whole: the same rows however they are read, options and their
//! errors, pace.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimeUnit};
use tidemill_block::{Block, text};
use tidemill_format::options::RawOptions;

use super::source::parse_stripe;
use super::*;
use crate::{Polled, ReadRequest, ReaderContext, Split, Waker};

fn schema(columns: &[(&str, DataType)]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(|(name, t)| Field::new(*name, t.clone(), true)).collect::<Vec<_>>()))
}

fn everything() -> SchemaRef {
    schema(&[
        ("flag", DataType::Boolean),
        ("tiny", DataType::Int8),
        ("small", DataType::Int16),
        ("int", DataType::Int32),
        ("big", DataType::Int64),
        ("float", DataType::Float32),
        ("double", DataType::Float64),
        ("money", DataType::Decimal128(10, 2)),
        ("wide", DataType::Decimal128(38, 4)),
        ("word", DataType::Utf8),
        ("view", DataType::Utf8View),
        ("bytes", DataType::Binary),
        ("ts", DataType::Timestamp(TimeUnit::Millisecond, None)),
        ("ltz", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
        ("day", DataType::Date32),
        ("clock", DataType::Time32(TimeUnit::Millisecond)),
        ("seq", DataType::Int64),
        ("label", DataType::Utf8),
        ("at", DataType::Timestamp(TimeUnit::Millisecond, None)),
    ])
}

fn trades() -> SchemaRef {
    schema(&[
        ("id", DataType::Int64),
        ("symbol", DataType::Utf8),
        ("currency", DataType::Int32),
        ("time", DataType::Timestamp(TimeUnit::Millisecond, None)),
        ("price", DataType::Float64),
        ("size", DataType::Int64),
        ("venue", DataType::Utf8),
        ("buyer", DataType::Int32),
        ("seller", DataType::Int32),
    ])
}

fn make(schema: &SchemaRef, pairs: &[(&str, &str)]) -> Result<Box<dyn Source>, ConnectError> {
    let mut raw = RawOptions::new("table 't'", pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())));
    let source = CONNECTOR.source(schema, &mut raw)?;
    raw.finish()?;
    Ok(source)
}

fn context(schema: &SchemaRef) -> ReaderContext {
    ReaderContext { waker: Waker::noop(), request: ReadRequest::all(schema.clone()), shard: 0, shards: 1 }
}

/// All rows of a split; after `stop` polls it is closed and opened again at its position.
fn read(source: &dyn Source, schema: &SchemaRef, mut split: Split, rows_max: usize, stop: usize) -> Vec<RecordBatch> {
    let mut batches = Vec::new();
    loop {
        let mut reader = source.open(&split, context(schema)).unwrap();
        for _ in 0..stop {
            match reader.poll(rows_max).unwrap() {
                Polled::Rows(rows) => {
                    assert!(rows.batch.num_rows() <= rows_max);
                    batches.push(rows.batch);
                }
                Polled::End => return batches,
                Polled::Pending => panic!("nothing to wait for without a rate"),
            }
        }
        split.position = Some(reader.position());
    }
}

fn lines(schema: &SchemaRef, batches: &[RecordBatch]) -> Vec<String> {
    let all = concat_batches(schema, batches).unwrap();
    text::format(&Block::inserts(all, 0)).lines().map(String::from).collect()
}

#[track_caller]
fn check_same_rows(schema: &SchemaRef, pairs: &[(&str, &str)], rows: usize) {
    let source = make(schema, pairs).unwrap();
    assert_eq!((source.bounded(), source.rows_hint()), (true, Some(rows)));
    let one = source.splits(1).unwrap();
    let expected = lines(schema, &read(&*source, schema, one[0].clone(), usize::MAX, usize::MAX));
    assert_eq!(expected.len(), rows);
    for rows_max in [1, 7, 1000] {
        let again = read(&*source, schema, one[0].clone(), rows_max, 3);
        assert_eq!(lines(schema, &again), expected, "blocks of {rows_max}, resumed every three");
    }
    for parallelism in [2, 3] {
        let mut all: Vec<Option<String>> = vec![None; rows];
        for (index, split) in source.splits(parallelism).unwrap().into_iter().enumerate() {
            let stripe = parse_stripe(&split.id).unwrap();
            assert_eq!((stripe.index, stripe.of), (index as u64, parallelism as u64));
            for (rank, line) in lines(schema, &read(&*source, schema, split, 900, 2)).into_iter().enumerate() {
                let old = all[stripe.row(rank as u64) as usize].replace(line);
                assert_eq!(old, None, "a row comes once");
            }
        }
        assert_eq!(all.into_iter().flatten().collect::<Vec<_>>(), expected, "{parallelism} splits");
    }
}

#[test]
fn rows_do_not_depend_on_how_they_are_read() {
    check_same_rows(
        &everything(),
        &[
            ("rows-per-second", "0"),
            ("number-of-rows", "5000"),
            ("start-time", "2024-01-31 09:30:00"),
            ("fields.big.null-rate", "0.3"),
            ("fields.word.length", "21"),
            ("fields.word.var-len", "true"),
            ("fields.bytes.length", "5"),
            ("fields.ts.max-past", "1 h"),
            ("fields.seq.kind", "sequence"),
            ("fields.label.kind", "sequence"),
            ("fields.label.start", "-3"),
            ("fields.at.kind", "sequence"),
            ("fields.at.start", "2024-01-31 09:30:00"),
            ("fields.at.step", "250 ms"),
        ],
        5000,
    );
    check_same_rows(
        &trades(),
        &[("rows-per-second", "0"), ("number-of-rows", "4000"), ("generator", "trades"), ("trades.disorder", "50 ms")],
        4000,
    );
}

#[test]
fn seeds_differ() {
    let schema = schema(&[("n", DataType::Int64)]);
    let rows = |seed| {
        let source = make(&schema, &[("rows-per-second", "0"), ("number-of-rows", "3"), ("seed", seed)]).unwrap();
        lines(&schema, &read(&*source, &schema, source.splits(1).unwrap()[0].clone(), 8, 8))
    };
    assert_eq!(rows("1"), rows("1"));
    assert_ne!(rows("1"), rows("2"));
}

/// The first rows of a table with one column.
#[track_caller]
fn check_column(data_type: DataType, pairs: &[(&str, &str)], expect: &str) {
    let schema = schema(&[("c", data_type)]);
    let mut pairs: Vec<(String, &str)> = pairs.iter().map(|(k, v)| (format!("fields.c.{k}"), *v)).collect();
    pairs.push(("rows-per-second".into(), "0"));
    let source = make(&schema, &pairs.iter().map(|(k, v)| (k.as_str(), *v)).collect::<Vec<_>>()).unwrap();
    let rows = lines(&schema, &read(&*source, &schema, source.splits(1).unwrap()[0].clone(), 100, 100));
    assert_eq!(rows.join("").replace("+I", ""), expect);
}

#[test]
fn sequences_and_their_ends() {
    let sequence = |start, end| vec![("kind", "sequence"), ("start", start), ("end", end)];
    check_column(DataType::Int32, &sequence("-1", "2"), " -1 0 1 2");
    check_column(DataType::Int8, &sequence("125", "127"), " 125 126 127");
    check_column(DataType::Float64, &sequence("1", "2"), " 1.0 2.0");
    check_column(DataType::Decimal128(6, 2), &sequence("9", "10"), " 9.00 10.00");
    check_column(DataType::Utf8, &sequence("9", "10"), " 9 10");
    let mut times = sequence("2024-01-31 09:30:00", "2024-01-31 09:30:01");
    times.push(("step", "500 ms"));
    check_column(DataType::Timestamp(TimeUnit::Second, None), &times[..3], " 2024-01-31T09:30:00 2024-01-31T09:30:01");
    check_column(
        DataType::Timestamp(TimeUnit::Millisecond, None),
        &times,
        " 2024-01-31T09:30:00 2024-01-31T09:30:00.500 2024-01-31T09:30:01",
    );
}

#[test]
fn random_values_keep_to_their_bounds() {
    let schema = schema(&[("n", DataType::Int32), ("d", DataType::Float64), ("m", DataType::Decimal128(6, 2)), ("w", DataType::Utf8)]);
    let source = make(
        &schema,
        &[
            ("rows-per-second", "0"),
            ("number-of-rows", "2000"),
            ("fields.n.min", "-2"),
            ("fields.n.max", "2"),
            ("fields.d.min", "1.5"),
            ("fields.d.max", "2"),
            ("fields.m.min", "0.99"),
            ("fields.m.max", "1.01"),
            ("fields.w.length", "3"),
            ("fields.w.var-len", "true"),
        ],
    )
    .unwrap();
    let batch = read(&*source, &schema, source.splits(1).unwrap()[0].clone(), 5000, 5).remove(0);
    let sorted = |mut values: Vec<i64>| {
        values.sort_unstable();
        values.dedup();
        values
    };
    let ints = batch.column(0).as_primitive::<arrow::datatypes::Int32Type>();
    assert_eq!(sorted(ints.values().iter().map(|v| *v as i64).collect()), [-2, -1, 0, 1, 2]);
    let doubles = batch.column(1).as_primitive::<arrow::datatypes::Float64Type>();
    assert!(doubles.values().iter().all(|v| (1.5..2.0).contains(v)));
    let cents = batch.column(2).as_primitive::<arrow::datatypes::Decimal128Type>();
    assert_eq!(sorted(cents.values().iter().map(|v| *v as i64).collect()), [99, 100, 101]);
    let words = batch.column(3).as_string::<i32>();
    assert_eq!(sorted(words.iter().flatten().map(|w| w.len() as i64).collect()), [1, 2, 3]);
    assert!(words.iter().flatten().all(|w| w.bytes().all(|b| b.is_ascii_hexdigit())));
}

#[test]
fn a_projection_changes_no_values() {
    let schema = schema(&[("a", DataType::Int64), ("b", DataType::Int64)]);
    let source = make(&schema, &[("rows-per-second", "0"), ("number-of-rows", "9")]).unwrap();
    let split = source.splits(1).unwrap().remove(0);
    let all = read(&*source, &schema, split.clone(), 9, 9).remove(0);
    let mut context = context(&schema);
    context.request.projection = vec![1];
    let mut reader = source.open(&split, context.clone()).unwrap();
    let Polled::Rows(rows) = reader.poll(9).unwrap() else { panic!("no rows") };
    assert_eq!(rows.batch.column(0), all.column(1));
    context.request.projection.clear();
    let Polled::Rows(rows) = source.open(&split, context).unwrap().poll(4).unwrap() else { panic!("no rows") };
    assert_eq!((rows.batch.num_columns(), rows.batch.num_rows()), (0, 4));
}

#[test]
fn trades_are_plausible() {
    let schema = trades();
    let source = make(&schema, &[("rows-per-second", "0"), ("number-of-rows", "1000"), ("generator", "trades")]).unwrap();
    let batch = read(&*source, &schema, source.splits(1).unwrap()[0].clone(), 1000, 9).remove(0);
    let prices = batch.column(4).as_primitive::<arrow::datatypes::Float64Type>();
    assert!(prices.values().iter().all(|p| *p > 1.0 && *p < 1000.0 && (p * 100.0 - (p * 100.0).round()).abs() < 1e-6));
    let sizes = batch.column(5).as_primitive::<Int64Type>();
    let lots = sizes.values().iter().filter(|s| **s % 100 == 0).count();
    assert!((800..950).contains(&lots), "{lots} of 1000 are round lots");
    let (buyers, sellers) = (batch.column(7), batch.column(8));
    let (buyers, sellers) = (buyers.as_primitive::<arrow::datatypes::Int32Type>(), sellers.as_primitive::<arrow::datatypes::Int32Type>());
    assert!(buyers.values().iter().zip(sellers.values()).all(|(b, s)| b != s));
    assert_eq!(batch.columns().iter().map(|c| c.null_count()).sum::<usize>(), 0);
}

#[test]
fn a_rate_holds_rows_back_and_wakes() {
    let schema = schema(&[("n", DataType::Int64)]);
    let source = make(&schema, &[("rows-per-second", "200"), ("number-of-rows", "12")]).unwrap();
    let (sender, receiver) = mpsc::channel();
    let begin = std::time::Instant::now();
    let mut readers: Vec<_> = source
        .splits(2)
        .unwrap()
        .iter()
        .map(|split| {
            let sender = sender.clone();
            let waker = Waker::new(move || {
                let _ = sender.send(());
            });
            source.open(split, ReaderContext { waker, ..context(&schema) }).unwrap()
        })
        .collect();
    let (mut rows, mut ended) = (0, 0);
    while ended < readers.len() {
        ended = 0;
        let before = rows;
        for reader in &mut readers {
            match reader.poll(100).unwrap() {
                Polled::Rows(batch) => rows += batch.batch.num_rows(),
                Polled::End => ended += 1,
                Polled::Pending => {}
            }
        }
        if ended < readers.len() && rows == before {
            receiver.recv_timeout(Duration::from_secs(10)).expect("a reader that waits is woken");
        }
    }
    assert_eq!(rows, 12);
    assert!(begin.elapsed() >= Duration::from_millis(50), "12 rows at 200 a second take 55 ms");
}

#[track_caller]
fn check_error(columns: &[(&str, DataType)], pairs: &[(&str, &str)], expect: &str) {
    let error = make(&schema(columns), pairs).err().expect("an error").to_string();
    assert!(error.starts_with("table 't': ") && error.contains(expect), "{error}");
}

#[test]
fn mistakes_are_named() {
    let n = [("n", DataType::Int32)];
    check_error(&n, &[("fields.m.min", "1")], "'fields.m.…' are for no physical column of the table; those are: n");
    check_error(&n, &[("fields.n.min", "x")], "'fields.n.min' = 'x': expected a whole number from -2147483648 to 2147483647");
    check_error(&n, &[("fields.n.min", "3"), ("fields.n.max", "2")], "'fields.n.max' = '2': must not be below 'min', which is 3");
    check_error(
        &n,
        &[("fields.n.length", "3")],
        "'fields.n.length' = '3': not an option of a random column of type Int32; those are: kind, null-rate, min, max",
    );
    check_error(&n, &[("fields.n.null-rate", "2")], "expected a number from 0 to 1");
    check_error(&n, &[("fields.n", "2")], "expected 'fields.<column>.<attribute>'");
    check_error(&n, &[("start-time", "noon")], "'start-time' = 'noon': expected a timestamp");
    let list = DataType::new_list(DataType::Int32, true);
    check_error(&[("l", list)], &[], "datagen cannot make random values");
    check_error(&n, &[("generator", "trades")], "knows no column 'n'; it fills: id or trade_id (BIGINT); symbol");
    check_error(&[("price", DataType::Utf8)], &[("generator", "trades")], "cannot fill column 'price' as Utf8");
    check_error(
        &[("id", DataType::Int64)],
        &[("generator", "trades"), ("fields.id.min", "1")],
        "have no meaning with 'generator' = 'trades'",
    );
    let error = CONNECTOR.sink(&schema(&n), &mut RawOptions::new("table 't'", [])).err().unwrap().to_string();
    assert_eq!(error, "table 't': connector 'datagen' can only be read from, not written to");
}

#[test]
fn rows_without_end_are_unbounded() {
    let source = make(&schema(&[("n", DataType::Int64)]), &[]).unwrap();
    assert_eq!((source.bounded(), source.rows_hint()), (false, None));
    let source = make(&schema(&[("n", DataType::Int64)]), &[("fields.n.kind", "sequence")]).unwrap();
    assert!(!source.bounded());
}
