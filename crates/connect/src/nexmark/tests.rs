//! Tests of the connector as a whole: the same events however they are read and in whichever table,
//! plausible ones, errors.

use std::collections::HashMap;
use std::time::Duration;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::{concat_batches, is_not_null};
use arrow::datatypes::{DataType, Field, Int32Type, Int64Type, Schema, TimeUnit, TimestampMillisecondType};
use tidemill_block::{Block, text};

use super::*;
use crate::datagen::source::parse_stripe;
use crate::{Polled, ReadRequest, ReaderContext, Split, Waker};

const TIME: DataType = DataType::Timestamp(TimeUnit::Millisecond, None);

fn schema(columns: &[(&str, DataType)]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(|(name, t)| Field::new(*name, t.clone(), true)).collect::<Vec<_>>()))
}

fn person() -> SchemaRef {
    let text = DataType::Utf8;
    schema(&[
        ("id", DataType::Int64),
        ("name", text.clone()),
        ("emailAddress", text.clone()),
        ("creditCard", text.clone()),
        ("city", text.clone()),
        ("state", text.clone()),
        ("dateTime", TIME),
        ("extra", text),
    ])
}

fn auction() -> SchemaRef {
    schema(&[
        ("id", DataType::Int64),
        ("itemName", DataType::Utf8),
        ("description", DataType::Utf8),
        ("initialBid", DataType::Int64),
        ("reserve", DataType::Int64),
        ("dateTime", TIME),
        ("expires", TIME),
        ("seller", DataType::Int64),
        ("category", DataType::Int64),
        ("extra", DataType::Utf8),
    ])
}

fn bid() -> SchemaRef {
    schema(&[
        ("auction", DataType::Int64),
        ("bidder", DataType::Int64),
        ("price", DataType::Int64),
        ("channel", DataType::Utf8),
        ("url", DataType::Utf8),
        ("dateTime", TIME),
        ("extra", DataType::Utf8),
    ])
}

fn all() -> SchemaRef {
    let row = |schema: SchemaRef| DataType::Struct(schema.fields().clone());
    schema(&[
        ("event_type", DataType::Int32),
        ("person", row(person())),
        ("auction", row(auction())),
        ("bid", row(bid())),
        ("dateTime", TIME),
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

/// All rows of a split, in blocks of `rows_max`; after every third it is closed and opened again.
fn read(source: &dyn Source, schema: &SchemaRef, mut split: Split, rows_max: usize) -> RecordBatch {
    let mut batches = Vec::new();
    'open: loop {
        let mut reader = source.open(&split, context(schema)).unwrap();
        for _ in 0..3 {
            match reader.poll(rows_max).unwrap() {
                Polled::Rows(rows) => batches.push(rows.batch),
                Polled::End => break 'open,
                Polled::Pending => panic!("nothing to wait for without a rate"),
            }
        }
        split.position = Some(reader.position());
    }
    concat_batches(schema, &batches).unwrap()
}

fn whole(schema: &SchemaRef, pairs: &[(&str, &str)]) -> RecordBatch {
    let source = make(schema, pairs).unwrap();
    read(&*source, schema, source.splits(1).unwrap().remove(0), 4096)
}

fn lines(batch: RecordBatch) -> Vec<String> {
    text::format(&Block::inserts(batch, 0)).lines().map(String::from).collect()
}

#[track_caller]
fn check_same_rows(schema: &SchemaRef, table: &str, rows: usize) {
    let pairs = [("table", table), ("events.num", "3007"), ("out-of-order.max-delay", "2 s")];
    let source = make(schema, &pairs).unwrap();
    assert_eq!((source.bounded(), source.rows_hint()), (true, Some(rows)));
    let one = source.splits(1).unwrap();
    let expected = lines(read(&*source, schema, one[0].clone(), usize::MAX));
    assert_eq!(expected.len(), rows);
    for rows_max in [1, 7, 1000] {
        assert!(lines(read(&*source, schema, one[0].clone(), rows_max)) == expected, "{table}: blocks of {rows_max}");
    }
    let mut again: Vec<Option<String>> = vec![None; rows];
    for split in source.splits(3).unwrap() {
        let stripe = parse_stripe(&split.id).unwrap();
        for (rank, line) in lines(read(&*source, schema, split, 900)).into_iter().enumerate() {
            assert_eq!(again[stripe.row(rank as u64) as usize].replace(line), None, "a row comes once");
        }
    }
    assert!(again.into_iter().flatten().collect::<Vec<_>>() == expected, "{table}: three splits");
}

#[test]
fn rows_do_not_depend_on_how_they_are_read() {
    // 3,007 events are 60 rounds of 50 and one person, three auctions, three bids.
    check_same_rows(&person(), "person", 61);
    check_same_rows(&auction(), "auction", 183);
    check_same_rows(&bid(), "bid", 2_763);
    check_same_rows(&all(), "all", 3_007);
}

#[test]
fn all_tables_show_the_same_events() {
    let options = |table| [("table", table), ("events.num", "2000"), ("out-of-order.max-delay", "1 s"), ("seed", "7")];
    let together = whole(&all(), &options("all"));
    for (index, table, schema) in [(1, "person", person()), (2, "auction", auction()), (3, "bid", bid())] {
        let alone = whole(&schema, &options(table));
        let rows: ArrayRef = together.column(index).clone();
        let theirs = arrow::compute::filter(&rows, &is_not_null(&rows).unwrap()).unwrap();
        assert_eq!(RecordBatch::from(theirs.as_struct().clone()).columns(), alone.columns(), "{table}");
        // The time beside the ROWs is that within, and the type says which ROW it is.
        let kinds = together.column(0).as_primitive::<Int32Type>();
        let kind_is = |row: usize| kinds.value(row) == index as i32 - 1;
        assert!((0..together.num_rows()).all(|row| kind_is(row) == rows.is_valid(row)), "{table}");
        let inner = rows.as_struct().column_by_name("dateTime").unwrap().as_primitive::<TimestampMillisecondType>();
        let outer = together.column(4).as_primitive::<TimestampMillisecondType>();
        assert!((0..together.num_rows()).all(|row| !rows.is_valid(row) || inner.value(row) == outer.value(row)), "{table}");
    }
}

#[test]
fn events_are_plausible() {
    let options = |table| [("table", table), ("events.num", "50000"), ("first-event.rate", "1000")];
    let (persons, auctions, bids) =
        (whole(&person(), &options("person")), whole(&auction(), &options("auction")), whole(&bid(), &options("bid")));
    let numbers = |batch: &RecordBatch, name: &str| batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().values().to_vec();
    let times =
        |batch: &RecordBatch, name: &str| batch.column_by_name(name).unwrap().as_primitive::<TimestampMillisecondType>().values().to_vec();
    assert_eq!(numbers(&persons, "id"), (1_000..2_000).collect::<Vec<_>>());
    assert_eq!(numbers(&auctions, "id"), (1_000..4_000).collect::<Vec<_>>());
    // Half of the bids are for one auction in a hundred, three quarters by one person in a hundred.
    let (of, by) = (numbers(&bids, "auction"), numbers(&bids, "bidder"));
    let count = |values: &[i64], hot: i64| values.iter().filter(|v| **v % 100 == hot).count() * 100 / values.len();
    assert!((48..54).contains(&count(&of, 0)), "{}", count(&of, 0));
    assert!((73..78).contains(&count(&by, 1)), "{}", count(&by, 1));
    assert!((73..78).contains(&count(&numbers(&auctions, "seller"), 0)));
    for (row, auction) in of.iter().enumerate() {
        let newest = 1_000 + (row as i64 / 46) * 3 + 2;
        assert!((1_000i64.max(newest - 101)..=newest + 10).contains(auction), "bid {row} for {auction}, the newest is {newest}");
    }
    let prices = numbers(&bids, "price");
    assert!(prices.iter().all(|p| (100..=100_000_000).contains(p)));
    // Evenly in the logarithm: a sixth of them in each power of ten.
    assert!((15..19).contains(&(prices.iter().filter(|p| **p < 1_000).count() * 100 / prices.len())));
    assert!(numbers(&auctions, "initialBid").iter().zip(numbers(&auctions, "reserve")).all(|(first, reserve)| *first < reserve));
    let (opened, expires) = (times(&auctions, "dateTime"), times(&auctions, "expires"));
    // 100 auctions are opened in 1,667 events, at 1,000 events a second: no auction lasts twice as long.
    assert!(opened.iter().zip(&expires).all(|(from, to)| (1..=3_334).contains(&(to - from))));
    assert_eq!(opened[..4], [1, 2, 3, 51].map(|ms| 1_436_918_400_000 + ms));
    assert!(times(&bids, "dateTime").is_sorted());
    let mut channels: HashMap<&str, (usize, &str)> = HashMap::new();
    let (names, urls) =
        (bids.column_by_name("channel").unwrap().as_string::<i32>(), bids.column_by_name("url").unwrap().as_string::<i32>());
    for row in 0..bids.num_rows() {
        let seen = channels.entry(names.value(row)).or_insert((0, urls.value(row)));
        seen.0 += 1;
        assert_eq!(seen.1, urls.value(row), "a channel has one address");
        assert_eq!(urls.value(row).split('/').count(), 7, "{}", urls.value(row));
    }
    let hot: usize = ["Google", "Facebook", "Baidu", "Apple"].iter().map(|name| channels[name].0).sum();
    assert!((48..53).contains(&(hot * 100 / bids.num_rows())));
    let average = |batch: &RecordBatch| batch.column_by_name("extra").unwrap().as_string::<i32>().value_data().len() / batch.num_rows();
    assert!((120..131).contains(&average(&persons)) && (370..383).contains(&average(&auctions)) && (66..71).contains(&average(&bids)));
}

#[test]
fn seeds_and_disorder() {
    let rows = |pairs: &[(&str, &str)]| {
        let base = [("table", "bid"), ("events.num", "500"), ("first-event.rate", "100")];
        whole(&bid(), &[&base[..], pairs].concat())
    };
    let plain = rows(&[]);
    assert_ne!(plain.column(0), rows(&[("seed", "43")]).column(0));
    assert_eq!(plain.column(5), rows(&[("seed", "43")]).column(5));
    let late = rows(&[("out-of-order.max-delay", "3 s")]);
    assert_eq!(plain.column(0), late.column(0));
    let times = |batch: &RecordBatch| batch.column(5).as_primitive::<TimestampMillisecondType>().values().to_vec();
    assert!(!times(&late).is_sorted());
    assert!(times(&plain).iter().zip(times(&late)).all(|(then, early)| (0..=3_000).contains(&(then - early))));
}

#[test]
fn a_rate_is_kept_by_the_clock() {
    let schema = schema(&[("id", DataType::Int64)]);
    // 20 persons a second: the last of four comes after 150 ms.
    let options = [("table", "person"), ("events.num", "200"), ("first-event.rate", "1000"), ("rate.limited", "true")];
    let source = make(&schema, &options).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let waker = Waker::new(move || {
        let _ = sender.send(());
    });
    let begin = std::time::Instant::now();
    let mut reader = source.open(&source.splits(1).unwrap()[0], ReaderContext { waker, ..context(&schema) }).unwrap();
    let mut rows = 0;
    loop {
        match reader.poll(100).unwrap() {
            Polled::Rows(more) => rows += more.batch.num_rows(),
            Polled::Pending => receiver.recv_timeout(Duration::from_secs(10)).expect("a reader that waits is woken"),
            Polled::End => break,
        }
    }
    assert_eq!(rows, 4);
    assert!(begin.elapsed() >= Duration::from_millis(150), "four persons at 20 a second");
}

#[track_caller]
fn check_error(schema: &SchemaRef, pairs: &[(&str, &str)], expect: &str) {
    let error = make(schema, pairs).err().expect("an error").to_string();
    assert!(error.starts_with("table 't': ") && error.contains(expect), "{error}");
}

#[test]
fn mistakes_are_named() {
    check_error(&bid(), &[], "'table' = 'all' has no column 'auction' of type BIGINT; it has: event_type (INT); person");
    check_error(&bid(), &[("table", "person")], "'table' = 'person' has no column 'auction' of type BIGINT; it has: id (BIGINT); name");
    check_error(&schema(&[("price", DataType::Utf8)]), &[("table", "bid")], "has no column 'price' of type STRING");
    check_error(&bid(), &[("table", "bids")], "'table' = 'bids': expected one of: all, person, auction, bid");
    check_error(&bid(), &[("bid.proportion", "0")], "'bid.proportion' = '0': expected a whole number from 1 to 1000000");
    check_error(&bid(), &[("next-event.rate", "0")], "'next-event.rate' = '0': expected a whole number from 1");
    check_error(&bid(), &[("rate.period", "1 s")], "'rate.period' = '1 s': expected from 2 s");
    check_error(&bid(), &[("base-time", "noon")], "'base-time' = 'noon': expected a timestamp");
    check_error(&bid(), &[("auction.avg-size", "2 mb")], "'auction.avg-size' = '2097152': expected at most 1 mb");
    let rows = Schema::new(vec![Field::new("bid", DataType::Struct(bid().fields().clone()), false)]);
    check_error(&Arc::new(rows), &[], "column 'bid' is NULL where the event is of another kind");
    let source = make(&bid(), &[("table", "bid"), ("events.num", "0")]).unwrap();
    assert!(!source.bounded(), "no events are endless events, as in Flink");
}
