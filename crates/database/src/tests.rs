//! Tests of the whole over SQLite: write, commit, crash, recover, read, poll, look up.

mod model;
mod recovery;
mod types;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use tempfile::TempDir;
use tidemill_block::{Block, text};
use tidemill_connect::{LookupContext, Polled, ReadRequest, Reader, ReaderContext, Sink, SinkContext, Source, Split, Waker, Writer};
use tidemill_format::options::RawOptions;

use crate::JDBC;

/// Small numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 ^ (self.0 >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 16) % n
    }
}

/// A database in a directory of its own.
struct Place {
    directory: TempDir,
}

impl Place {
    fn new() -> Self {
        Place { directory: TempDir::new().unwrap() }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("test.db")
    }

    fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// The options of table `t`.
    fn options(&self, key: &[&str], more: &[(&str, &str)]) -> RawOptions {
        let url = format!("jdbc:sqlite:{}", self.file().display());
        let key = key.join("\u{1f}");
        let own = [("url", url.as_str()), ("table-name", "t"), ("#primary-key", key.as_str())];
        let pairs = own.iter().chain(more).map(|(k, v)| (k.to_string(), v.to_string()));
        RawOptions::new("table 't'", pairs.collect::<Vec<_>>())
    }

    fn sink(&self, schema: &SchemaRef, key: &[&str], more: &[(&str, &str)]) -> Box<dyn Sink> {
        let more = [&[("sink.create-table", "true")][..], more].concat();
        let mut raw = self.options(key, &more);
        let sink = JDBC.sink(schema, &mut raw).unwrap();
        raw.finish().unwrap();
        sink
    }

    fn source(&self, schema: &SchemaRef, key: &[&str], more: &[(&str, &str)]) -> Box<dyn Source> {
        let mut raw = self.options(key, more);
        let source = JDBC.source(schema, &mut raw).unwrap();
        raw.finish().unwrap();
        source
    }

    /// A statement straight to the database.
    fn run(&self, sql: &str) {
        rusqlite::Connection::open(self.file()).unwrap().execute_batch(sql).unwrap();
    }

    /// A number straight from the database.
    fn number(&self, sql: &str) -> i64 {
        rusqlite::Connection::open(self.file()).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// Everything in table `t`.
    fn rows(&self, schema: &SchemaRef) -> RecordBatch {
        read(self.source(schema, &[], &[]).as_ref(), schema)
    }
}

fn schema(fields: &[(&str, DataType)]) -> SchemaRef {
    Arc::new(Schema::new(fields.iter().map(|(name, t)| Field::new(*name, t.clone(), true)).collect::<Vec<_>>()))
}

fn context(schema: &SchemaRef, run: &str) -> SinkContext {
    SinkContext { shard: 0, shards: 1, schema: schema.clone(), run_id: run.into(), cancelled: Arc::new(AtomicBool::new(false)) }
}

/// A writer of a sink that was just started.
fn start(sink: &dyn Sink, schema: &SchemaRef) -> Box<dyn Writer> {
    sink.recover(&[], "").unwrap();
    sink.writer(context(schema, "run")).unwrap()
}

/// All rows of a source that ends.
fn read(source: &dyn Source, schema: &SchemaRef) -> RecordBatch {
    let mut parts = Vec::new();
    for split in source.splits(3).unwrap() {
        parts.extend(drain(open(source, &split, schema).as_mut(), usize::MAX));
    }
    concat_batches(schema, &parts).unwrap()
}

fn open(source: &dyn Source, split: &Split, schema: &SchemaRef) -> Box<dyn Reader> {
    let request = ReadRequest::all(schema.clone());
    source.open(split, ReaderContext { waker: Waker::noop(), request, shard: 0, shards: 1 }).unwrap()
}

/// Rows of a reader until there were `enough` or it ends.
fn drain(reader: &mut dyn Reader, enough: usize) -> Vec<RecordBatch> {
    let (mut parts, mut rows, begun) = (Vec::new(), 0, Instant::now());
    while rows < enough {
        match reader.poll(7).unwrap() {
            Polled::Rows(part) => {
                rows += part.batch.num_rows();
                parts.push(part.batch);
            }
            Polled::Pending => std::thread::sleep(Duration::from_millis(1)),
            Polled::End => break,
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{rows} rows after a minute");
    }
    parts
}

/// Rows as lines, sorted.
fn lines(rows: &RecordBatch) -> Vec<String> {
    let mut lines: Vec<String> = text::format(&Block::inserts(rows.clone(), 0)).lines().map(str::to_string).collect();
    lines.sort();
    lines
}

#[test]
fn rows_are_appended_and_read() {
    let place = Place::new();
    let schema = schema(&[("id", DataType::Int64), ("name", DataType::Utf8)]);
    let sink = place.sink(&schema, &[], &[]);
    assert!(!sink.accepts_updates() && sink.parallelism() == Some(1));
    let mut writer = start(sink.as_ref(), &schema);
    writer.write(&text::parse(&schema, "1 a\n2 NULL")).unwrap();
    writer.flush().unwrap();
    writer.write(&text::parse(&schema, "2 b")).unwrap();
    assert_eq!(writer.prepare(true).unwrap(), Vec::<serde_json::Value>::new());
    assert_eq!(lines(&place.rows(&schema)), ["+I 1 a", "+I 2 NULL", "+I 2 b"]);
    assert!(writer.stats().bytes > 0);
}

/// State took what sinks hold for its own.
#[test]
fn sinks_tell_what_they_may_hold() {
    let place = Place::new();
    let schema = schema(&[("id", DataType::Int64)]);
    let mb = |key: &[&str], more: &[(&str, &str)], limit: u64| place.sink(&schema, key, more).limit_memory(limit << 20, 8) >> 20;
    // SQLite has one writer, whatever there are shards.
    assert_eq!((mb(&["id"], &[], 240), mb(&["id"], &[], 8 << 10), mb(&[], &[], 8 << 10)), (240, 768, 96));
    assert_eq!(mb(&["id"], &[("sink.buffer-flush.max-bytes", "1 mb")], 240), 3);
}

#[test]
fn mistakes_are_named() {
    let place = Place::new();
    let nested = DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true)));
    let error = JDBC.sink(&schema(&[("l", nested)]), &mut place.options(&[], &[])).err().unwrap().to_string();
    assert!(error.starts_with("table 't': column 'l'"), "{error}");
    let columns = schema(&[("a", DataType::Int64)]);
    let mut raw = place.options(&[], &[]);
    let error = JDBC.sink(&columns, &mut raw).unwrap().recover(&[], "").unwrap_err().to_string();
    assert!(error.contains("there is no table 't'") && error.contains("CREATE TABLE"), "{error}");
    place.run("CREATE TABLE t (b BIGINT, s INTEGER)");
    let error = JDBC.sink(&columns, &mut place.options(&[], &[])).unwrap().recover(&[], "").unwrap_err().to_string();
    assert!(error.contains("no column 'a'; it has b, s"), "{error}");
    // A column of numbers would turn '007' into 7.
    let texts = schema(&[("s", DataType::Utf8)]);
    let sink = place.sink(&texts, &[], &[]);
    let mut writer = start(sink.as_ref(), &texts);
    let error = writer.write(&text::parse(&texts, "007")).and_then(|()| writer.prepare(true)).unwrap_err().to_string();
    assert!(error.contains("column 's' is declared INTEGER"), "{error}");
    let error = JDBC.source(&columns, &mut place.options(&[], &[("scan.partition.column", "x")])).err().unwrap().to_string();
    assert!(error.contains("'scan.partition.column' = 'x'"), "{error}");
    let unknown =
        RawOptions::new("table 't'", [("url".to_string(), "oracle:u/hidden@h".to_string()), ("table-name".to_string(), "t".to_string())]);
    let error = JDBC.source(&columns, &mut unknown.clone()).err().unwrap().to_string();
    assert!(error.contains("option 'url'") && !error.contains("hidden"), "{error}");
}

#[test]
fn refused_rows_are_found() {
    let columns = schema(&[("id", DataType::Int64), ("name", DataType::Utf8)]);
    let rows = "1 a\n2 b\n3 a\n4 d\n5 b\n6 f";
    let table = "CREATE TABLE t (id BIGINT, name TEXT UNIQUE)";
    for (policy, left) in [("fail", 0), ("skip", 4), ("dead-letter", 4)] {
        let place = Place::new();
        place.run(table);
        let file = place.directory.path().join("dead.jsonl").display().to_string();
        let mut more = vec![("sink.on-error", policy)];
        if policy == "dead-letter" {
            more.push(("sink.dead-letter", file.as_str()));
        }
        let sink = place.sink(&columns, &[], &more);
        let mut writer = start(sink.as_ref(), &columns);
        let written = writer.write(&text::parse(&columns, rows)).and_then(|()| writer.prepare(true));
        assert_eq!(place.number("SELECT COUNT(*) FROM t"), left, "{policy}");
        match policy {
            "fail" => {
                let error = written.unwrap_err().to_string();
                assert!(error.contains("the row (id=3, name=a) was refused") && error.contains("UNIQUE"), "{error}");
            }
            "skip" => drop(written.unwrap()),
            _ => {
                written.unwrap();
                let letters = std::fs::read_to_string(&file).unwrap();
                let ids: Vec<i64> = letters
                    .lines()
                    .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["row"]["id"].as_i64().unwrap())
                    .collect();
                assert_eq!(ids, [3, 5], "{letters}");
            }
        }
    }
}

/// 1,000 rows: every hundredth without a number.
fn numbered(place: &Place) -> SchemaRef {
    place.run(
        "CREATE TABLE t (id BIGINT, n BIGINT, name TEXT);
         WITH RECURSIVE s(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM s WHERE i < 999)
         INSERT INTO t SELECT i, CASE WHEN i % 100 = 0 THEN NULL ELSE i * 3 END, 'n' || i FROM s;",
    );
    schema(&[("id", DataType::Int64), ("n", DataType::Int64), ("name", DataType::Utf8)])
}

#[test]
fn a_table_is_read_in_parts() {
    let place = Place::new();
    let schema = numbered(&place);
    let whole = lines(&place.rows(&schema));
    assert_eq!(whole.len(), 1000);
    let by = ("scan.partition.column", "n");
    for num in ["1", "3", "7"] {
        let source = place.source(&schema, &[], &[by, ("scan.partition.num", num)]);
        assert_eq!(source.splits(4).unwrap().len().to_string(), num);
        assert_eq!(lines(&read(source.as_ref(), &schema)), whole);
    }
    let bounds = [by, ("scan.partition.lower-bound", "300"), ("scan.partition.upper-bound", "599")];
    let source = place.source(&schema, &[], &bounds);
    assert_eq!(read(source.as_ref(), &schema).num_rows(), 99, "100 numbers, one of them NULL");
    // As decimal numbers, of as many digits as SQLite has for numbers.
    let decimals = |digits| self::schema(&[("id", DataType::Int64), ("n", DataType::Decimal128(digits, 0)), ("name", DataType::Utf8)]);
    let columns = decimals(18);
    let source = place.source(&columns, &[], &[by, ("scan.partition.num", "7")]);
    assert_eq!((source.splits(4).unwrap().len(), lines(&read(source.as_ref(), &columns))), (7, whole));
    let source = place.source(&columns, &[], &bounds);
    assert_eq!(read(source.as_ref(), &columns).num_rows(), 99);
    let error = JDBC.source(&decimals(19), &mut place.options(&[], &[by])).err().unwrap().to_string();
    assert!(error.contains("'scan.partition.column' = 'n'") && error.contains("texts in SQLite"), "{error}");
    // Only the count is asked for.
    let source = place.source(&schema, &[], &[]);
    let request = ReadRequest { physical: schema.clone(), projection: Vec::new(), metadata: Vec::new() };
    let split = source.splits(1).unwrap().remove(0);
    let mut reader = source.open(&split, ReaderContext { waker: Waker::noop(), request, shard: 0, shards: 1 }).unwrap();
    assert_eq!(drain(reader.as_mut(), usize::MAX).iter().map(RecordBatch::num_rows).sum::<usize>(), 1000);
}

#[test]
fn a_scan_goes_on_where_it_was() {
    let place = Place::new();
    let schema = numbered(&place);
    let whole = lines(&place.rows(&schema));
    let cases: [(&[&str], &[(&str, &str)]); 4] =
        [(&["id"], &[]), (&["name", "id"], &[]), (&[], &[]), (&["id"], &[("scan.partition.column", "id")])];
    for (key, more) in cases {
        let source = place.source(&schema, key, more);
        let mut parts = Vec::new();
        for split in source.splits(2).unwrap() {
            let mut split = split;
            loop {
                let mut reader = open(source.as_ref(), &split, &schema);
                let found = drain(reader.as_mut(), 150);
                split.position = Some(reader.position());
                if found.is_empty() {
                    break;
                }
                parts.extend(found);
            }
        }
        assert_eq!(lines(&concat_batches(&schema, &parts).unwrap()), whole, "key {key:?}");
    }
}

#[test]
fn a_growing_table_is_polled() {
    let place = Place::new();
    place.run("CREATE TABLE t (id BIGINT, name TEXT); INSERT INTO t VALUES (1, 'a'), (2, 'b'), (2, 'c')");
    let schema = schema(&[("id", DataType::Int64), ("name", DataType::Utf8)]);
    let source = place.source(&schema, &[], &[("scan.poll.column", "id"), ("scan.poll.interval", "1 ms")]);
    assert!(!source.bounded());
    let split = source.splits(1).unwrap().remove(0);
    let mut reader = open(source.as_ref(), &split, &schema);
    assert_eq!(drain(reader.as_mut(), 3).iter().map(RecordBatch::num_rows).sum::<usize>(), 3);
    // Another of the newest value, and newer ones.
    place.run("INSERT INTO t VALUES (2, 'd'), (5, 'e')");
    let more = concat_batches(&schema, &drain(reader.as_mut(), 2)).unwrap();
    assert_eq!(lines(&more), ["+I 2 d", "+I 5 e"]);
    let split = Split { position: Some(reader.position()), ..split };
    drop(reader);
    place.run("INSERT INTO t VALUES (5, 'f')");
    let mut reader = open(source.as_ref(), &split, &schema);
    assert_eq!(lines(&concat_batches(&schema, &drain(reader.as_mut(), 1)).unwrap()), ["+I 5 f"]);
}

#[test]
fn rows_are_looked_up() {
    let place = Place::new();
    place.run("CREATE TABLE t (id BIGINT, name TEXT); INSERT INTO t VALUES (1, 'a'), (2, 'b'), (2, 'c'), (3, NULL)");
    let columns = schema(&[("id", DataType::Int64), ("name", DataType::Utf8)]);
    let mut raw = place.options(&[], &[]);
    let table = JDBC.lookup(&columns, &mut raw).unwrap();
    raw.finish().unwrap();
    assert!(table.keys_max() > 100);
    let keys = schema(&[("id", DataType::Int64)]);
    let mut lookup =
        table.open(LookupContext { keys: keys.clone(), columns: columns.clone(), wake: Waker::noop(), shard: 0, shards: 1 }).unwrap();
    for (call, asked) in [(0, "2\n9\n1\n2\n3"), (1, "9"), (2, "1")] {
        lookup.start(call, &text::parse(&keys, asked).batch).unwrap();
    }
    let (mut answers, begun) = (Vec::new(), Instant::now());
    while answers.len() < 3 {
        lookup.finished(&mut answers);
        assert!(begun.elapsed() < Duration::from_secs(60), "{answers:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    answers.sort_by_key(|a| a.call);
    let found: Vec<_> = answers.into_iter().map(|a| a.result.unwrap()).collect();
    assert_eq!(found[0].origins, [0, 0, 2, 3, 3, 4]);
    let rows = text::format(&Block::inserts(found[0].rows.clone(), 0));
    assert_eq!(rows, "+I 2 b\n+I 2 c\n+I 1 a\n+I 2 b\n+I 2 c\n+I 3 NULL\n");
    assert_eq!((found[1].rows.num_rows(), found[2].origins.as_slice()), (0, &[0][..]));
}

/// What `path` holds, by name.
fn names(path: &Path) -> Vec<String> {
    std::fs::read_dir(path).map_or(Vec::new(), |all| all.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect())
}
