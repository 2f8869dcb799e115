//! Rows to entries and back, and a stream followed at a server that says what it is told to. (A real one is in the tests
//! of the whole.)

use std::io::{BufReader, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arrow::array::{Array, AsArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimestampMillisecondType};
use tidemill_block::Block;
use tidemill_connect::{ConnectError, Polled, ReadRequest, ReaderContext, Source, Split, Waker};
use tidemill_format::message::{MessageFormat, Place};
use tidemill_format::options::RawOptions;

use crate::REDIS_STREAMS;
use crate::entries::EntryEncoder;
use crate::feed::{Entry, Piece};
use crate::id::EntryId;
use crate::resp::{self, Reply};
use crate::rows::{Layout, RowMaker};

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("name", DataType::Utf8, true),
        Field::new("price", DataType::Float64, true),
    ]))
}

fn block(rows: &[(i64, Option<&str>, Option<f64>)]) -> Block {
    let ids = Int64Array::from_iter_values(rows.iter().map(|r| r.0));
    let names = StringArray::from_iter(rows.iter().map(|r| r.1));
    let prices = Float64Array::from_iter(rows.iter().map(|r| r.2));
    Block::inserts(RecordBatch::try_new(schema(), vec![Arc::new(ids), Arc::new(names), Arc::new(prices)]).unwrap(), 1)
}

fn raw(options: &[(&str, &str)]) -> RawOptions {
    RawOptions::new("table 't'", options.iter().map(|(name, value)| (name.to_string(), value.to_string())))
}

fn json() -> Layout {
    let format = MessageFormat::take(&mut raw(&[("format", "json")]), "").unwrap().unwrap();
    Layout::Message { field: "value".into(), format }
}

/// Names and values in turn.
fn piece(entries: &[&[&str]]) -> Piece {
    let mut piece = Piece::default();
    for (number, texts) in entries.iter().enumerate() {
        let from = piece.texts.len();
        for text in *texts {
            piece.texts.push(Place { from: piece.bytes.len() as u32, length: text.len() as i32 });
            piece.bytes.extend_from_slice(text.as_bytes());
        }
        piece.entries.push(Entry { id: EntryId { ms: 1_000, number: number as u64 }, from, to: piece.texts.len() });
    }
    piece
}

/// The names and values that a block becomes, an entry each.
fn encoded(layout: &Layout, block: &Block) -> Vec<Vec<String>> {
    let mut encoder = EntryEncoder::new(layout, &schema()).unwrap();
    let entries = encoder.encode(block).unwrap();
    let texts = |(mut bytes, parts): (&[u8], usize)| {
        let read: Vec<String> = (0..parts).map(|_| resp::read_reply(&mut bytes).unwrap().text().unwrap().to_string()).collect();
        assert!(bytes.is_empty());
        read
    };
    entries.iter().map(texts).collect()
}

type Row = (i64, Option<String>, Option<f64>);

fn decoded(batch: &RecordBatch) -> Vec<Row> {
    let (ids, names) = (batch.column(0).as_primitive::<Int64Type>(), batch.column(1).as_string::<i32>());
    let prices = batch.column(2).as_any().downcast_ref::<Float64Array>().unwrap();
    let row = |i: usize| (ids.value(i), names.is_valid(i).then(|| names.value(i).to_string()), prices.is_valid(i).then(|| prices.value(i)));
    (0..batch.num_rows()).map(row).collect()
}

#[track_caller]
fn check_rows(found: &[Row], expect: &[Row]) {
    assert_eq!(found, expect);
}

#[test]
fn rows_are_entries_and_rows_again() {
    let rows = [(1, Some("a, \"b\"\r\nc\u{1f}"), Some(1.5)), (2, None, None), (3, Some(""), Some(-0.5)), (4, Some("#"), None)];
    for layout in [Layout::Fields, json()] {
        let entries = encoded(&layout, &block(&rows));
        let texts: Vec<Vec<&str>> = entries.iter().map(|entry| entry.iter().map(String::as_str).collect()).collect();
        let texts: Vec<&[&str]> = texts.iter().map(Vec::as_slice).collect();
        let piece = piece(&texts);
        let made = RowMaker::new("s", &layout, &ReadRequest::all(schema())).unwrap().make(&piece, &piece.entries).unwrap();
        assert!(made.bad.is_empty(), "{:?}", made.bad);
        let expect: Vec<Row> = rows.iter().map(|(id, name, price)| (*id, name.map(str::to_string), *price)).collect();
        assert_eq!(decoded(&made.batch), expect);
    }
}

#[test]
fn null_is_a_field_that_is_not_there() {
    let entries = encoded(&Layout::Fields, &block(&[(7, None, Some(2.0)), (8, Some(""), None)]));
    assert_eq!(entries, [vec!["id", "7", "price", "2.0"], vec!["id", "8", "name", ""]]);
    let mut encoder = EntryEncoder::new(&Layout::Fields, &Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]))).unwrap();
    let nothing = RecordBatch::try_new(
        Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)])),
        vec![Arc::new(Int64Array::from(vec![None::<i64>]))],
    );
    let Err(error) = encoder.encode(&Block::inserts(nothing.unwrap(), 1)) else { panic!("no fields") };
    let error = error.to_string();
    assert!(error.contains("NULL in every column"), "{error}");
}

#[test]
fn bad_entries_are_told_and_harm_no_neighbour() {
    let piece =
        piece(&[&["price", "1.5", "id", "1", "more", "x"], &["id", "one", "name", "a"], &["name", "nobody"], &["id", "2", "name", "b"]]);
    let mut maker = RowMaker::new("orders", &Layout::Fields, &ReadRequest::all(schema())).unwrap();
    let made = maker.make(&piece, &piece.entries).unwrap();
    check_rows(&decoded(&made.batch), &[(1, None, Some(1.5)), (2, Some("b".into()), None)]);
    assert_eq!(made.places, ["orders@1000-1", "orders@1000-2"]);
    assert!(made.bad[0].reason.contains("'one' is not a BIGINT"), "{:?}", made.bad);
    assert_eq!(made.bad[1].reason, "the entry has no field 'id'");
    assert_eq!(made.bad[1].raw, b"name=nobody");
    let mut maker = RowMaker::new("orders", &json(), &ReadRequest::all(schema())).unwrap();
    let piece = piece_of_json(&[Some(r#"{"id":1}"#), None, Some(r#"{"id":"#)]);
    let made = maker.make(&piece, &piece.entries).unwrap();
    check_rows(&decoded(&made.batch), &[(1, None, None)]);
    assert_eq!(made.bad[0].reason, "the entry has no field 'value'");
    assert_eq!((made.bad[1].raw.as_slice(), made.places[1].as_str()), (&br#"{"id":"#[..], "orders@1000-2"));
}

/// Entries with a message each, or with another field.
fn piece_of_json(messages: &[Option<&str>]) -> Piece {
    let entries: Vec<[&str; 2]> = messages.iter().map(|m| m.map_or(["other", "x"], |text| ["value", text])).collect();
    let entries: Vec<&[&str]> = entries.iter().map(|entry| entry.as_slice()).collect();
    piece(&entries)
}

#[test]
fn columns_are_projected_and_metadata_stands_behind_them() {
    let piece = piece(&[&["id", "1", "name", "a"], &["id", "2"]]);
    let time = DataType::Timestamp(arrow::datatypes::TimeUnit::Millisecond, None);
    let metadata = [("key", DataType::Utf8), ("id", DataType::Utf8), ("timestamp", time)];
    let metadata = metadata.map(|(key, data_type)| (key.to_string(), Arc::new(Field::new(key, data_type, false))));
    let request = ReadRequest { physical: schema(), projection: vec![1], metadata: metadata.to_vec() };
    let made = RowMaker::new("s", &Layout::Fields, &request).unwrap().make(&piece, &piece.entries[1..]).unwrap();
    assert_eq!((made.batch.num_rows(), made.batch.num_columns(), made.bytes), (1, 4, 3));
    assert!(made.batch.column(0).is_null(0));
    assert_eq!(made.batch.column(1).as_string::<i32>().value(0), "s");
    assert_eq!(made.batch.column(2).as_string::<i32>().value(0), "1000-1");
    assert_eq!(made.batch.column(3).as_primitive::<TimestampMillisecondType>().value(0), 1_000);
    let none = ReadRequest { projection: Vec::new(), metadata: Vec::new(), ..request };
    let made = RowMaker::new("s", &Layout::Fields, &none).unwrap().make(&piece, &piece.entries).unwrap();
    assert_eq!((made.batch.num_rows(), made.batch.num_columns()), (2, 0));
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    let check = |more: &[(&str, &str)], part: &str| {
        let mut options = raw(&[&[("url", "redis://u:geheim@localhost"), ("stream", "s")][..], more].concat());
        let error = match more.iter().any(|(name, _)| name.starts_with("sink.") || *name == "#metadata.id") {
            true => REDIS_STREAMS.sink(&schema(), &mut options).err(),
            false => REDIS_STREAMS.source(&schema(), &mut options).err(),
        };
        let error = error.expect(part).to_string();
        assert!(error.starts_with("table 't': ") && error.contains(part) && !error.contains("geheim"), "{error}");
    };
    check(&[("password", "x")], "option 'password': 'url' says it, too");
    check(&[("ca-file", "x.pem")], "rediss://");
    check(&[("scan.startup.mode", "id")], "'scan.startup.id' is required");
    check(&[("scan.startup.mode", "id"), ("scan.startup.id", "$")], "expected an ID");
    check(&[("scan.startup.timestamp-millis", "5")], "needs 'scan.startup.mode' = 'timestamp'");
    check(&[("scan.batch", "0")], "'scan.batch'");
    check(&[("value.field", "v")], "needs 'value.format'");
    check(&[("format", "json"), ("value.format", "json")], "mean the same");
    check(&[("sink.max-length", "5"), ("sink.retention", "1 h")], "exclude each other");
    check(&[("#metadata.id", "number")], "column 'number'");
}

/// A server for one connection: for each command it expects what the command begins with, and answers.
fn server(script: &'static [(&'static str, &'static str)]) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://:geheim@{}", listener.local_addr().unwrap());
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut commands = BufReader::new(stream.try_clone().unwrap());
        for (expect, answer) in script {
            let Ok(Reply::Array(parts)) = resp::read_reply(&mut commands) else { panic!("{expect} was expected") };
            let command: Vec<&str> = parts.iter().map(|part| part.text().unwrap()).collect();
            assert!(command.join(" ").starts_with(expect), "{command:?} in place of {expect}");
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    (url, thread)
}

const XINFO: &str = "*8\r\n$6\r\nlength\r\n:2\r\n$17\r\nlast-generated-id\r\n$3\r\n7-0\r\n$13\r\nentries-added\r\n:4\r\n$11\r\nfirst-entry\r\n\
                     *2\r\n$3\r\n6-0\r\n*2\r\n$2\r\nid\r\n$1\r\n3\r\n";
const ENTRIES: &str =
    "*1\r\n*2\r\n$1\r\ns\r\n*2\r\n*2\r\n$3\r\n6-0\r\n*2\r\n$2\r\nid\r\n$1\r\n3\r\n*2\r\n$3\r\n7-0\r\n*2\r\n$2\r\nid\r\n$1\r\n4\r\n";

fn source(url: &str, more: &[(&str, &str)]) -> Box<dyn Source> {
    REDIS_STREAMS.source(&schema(), &mut raw(&[&[("url", url), ("stream", "s")][..], more].concat())).unwrap()
}

/// Reads from a position to the end, or to an error.
fn read(source: &dyn Source, position: serde_json::Value) -> (Vec<Row>, serde_json::Value, Option<ConnectError>) {
    let split = Split { id: "s".into(), position: Some(position) };
    let context = ReaderContext { waker: Waker::noop(), request: ReadRequest::all(schema()), shard: 0, shards: 1 };
    let mut reader = source.open(&split, context).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut rows = Vec::new();
    loop {
        match reader.poll(1) {
            Ok(Polled::Rows(some)) => rows.extend(decoded(&some.batch)),
            Ok(Polled::Pending) => std::thread::sleep(Duration::from_millis(2)),
            Ok(Polled::End) => return (rows, reader.position(), None),
            Err(error) => return (rows, reader.position(), Some(error)),
        }
        assert!(Instant::now() < deadline, "a minute has gone");
    }
}

#[test]
fn a_bounded_scan_reads_to_its_end() {
    let (url, server) = server(&[
        ("AUTH geheim", "+OK\r\n"),
        ("PING", "+PONG\r\n"),
        ("XINFO STREAM s", XINFO),
        ("XREAD COUNT 1000 STREAMS s 5-0", ENTRIES),
    ]);
    let source = source(&url, &[("scan.bounded.mode", "latest")]);
    let (rows, position, error) = read(&*source, serde_json::json!({"stream": "s", "after": "5-0", "read": 2, "stop": "7-0"}));
    assert!(error.is_none(), "{error:?}");
    check_rows(&rows, &[(3, None, None), (4, None, None)]);
    assert_eq!(position, serde_json::json!({"stream": "s", "after": "7-0", "read": 4, "stop": "7-0"}));
    server.join().unwrap();
}

#[test]
fn entries_that_are_gone_are_an_error_unless_they_may_be() {
    let before = serde_json::json!({"stream": "s", "after": "4-0", "read": 1, "stop": "7-0"});
    let (url, failing) = server(&[("AUTH", "+OK\r\n"), ("PING", "+PONG\r\n"), ("XINFO", XINFO)]);
    let (rows, position, error) = read(&*source(&url, &[("scan.bounded.mode", "latest")]), before.clone());
    let error = error.expect("one is missing").to_string();
    assert!(rows.is_empty() && position == before, "{rows:?} {position}");
    assert!(error.contains("1 entries behind 4-0 were trimmed away") && !error.contains("geheim"), "{error}");
    failing.join().unwrap();
    let (url, ignoring) =
        server(&[("AUTH", "+OK\r\n"), ("PING", "+PONG\r\n"), ("XINFO", XINFO), ("XREAD COUNT 1000 STREAMS s 4-0", ENTRIES)]);
    let ignore = [("scan.bounded.mode", "latest"), ("scan.lost-entries", "ignore")];
    let (rows, position, error) = read(&*source(&url, &ignore), before);
    assert!(error.is_none(), "{error:?}");
    assert_eq!((rows.len(), position["read"].as_u64()), (2, Some(4)));
    ignoring.join().unwrap();
}

#[test]
fn a_wrong_password_is_told_and_not_shown() {
    let (url, server) = server(&[("AUTH geheim", "-WRONGPASS invalid username-password pair or user is disabled.\r\n")]);
    let error = source(&url, &[]).splits(1).unwrap_err().to_string();
    assert!(error.contains("WRONGPASS") && error.contains("check 'username' and 'password'") && !error.contains("geheim"), "{error}");
    server.join().unwrap();
}
