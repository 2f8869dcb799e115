//! The connector as a job uses it: write, commit, read, resume, follow, fail. Archives have tests of their own, and so has what
//! lies behind a network.

mod archives;
mod books;
mod encodings;
mod ipc;
mod remote;
mod sas;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimeUnit};
use crossbeam_channel::{Receiver, unbounded};
use tempfile::TempDir;
use tidemill_block::{Block, text};
use tidemill_format::compression::{self, Compression};
use tidemill_format::options::RawOptions;

use super::CONNECTOR;
use crate::{Changelog, Committable, Polled, ReadRequest, Reader, ReaderContext, Rows, Sink, SinkContext, Source, Split, Waker, Writer};

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("s", DataType::Utf8, true), Field::new("n", DataType::Int64, true)]))
}

fn options(path: &Path, format: &str, more: &[(&str, &str)]) -> RawOptions {
    let base = [("path", path.to_str().unwrap()), ("format", format)];
    RawOptions::new("table 't'", base.iter().chain(more).map(|(k, v)| (k.to_string(), v.to_string())))
}

#[track_caller]
fn source(path: &Path, format: &str, more: &[(&str, &str)]) -> Box<dyn Source> {
    let mut raw = options(path, format, more);
    let source = CONNECTOR.source(&schema(), &mut raw).unwrap();
    raw.finish().unwrap();
    source
}

#[track_caller]
fn sink(path: &Path, format: &str, more: &[(&str, &str)]) -> Box<dyn Sink> {
    let mut raw = options(path, format, more);
    let sink = CONNECTOR.sink(&schema(), &mut raw).unwrap();
    raw.finish().unwrap();
    sink
}

/// A position without what it tells of how the file begins.
fn place(mut position: serde_json::Value) -> serde_json::Value {
    position.as_object_mut().and_then(|p| p.remove("head")).expect("local text tells");
    position
}

/// A reader, and the calls of its waker.
struct Open {
    reader: Box<dyn Reader>,
    wakes: Receiver<()>,
}

impl Open {
    #[track_caller]
    fn new(source: &dyn Source, split: &Split, request: ReadRequest) -> Self {
        Open::of(source, split, request).unwrap()
    }

    /// The same where opening may fail.
    fn of(source: &dyn Source, split: &Split, request: ReadRequest) -> Result<Self, String> {
        let (wake, wakes) = unbounded();
        let waker = Waker::new(move || {
            // A test that is over wants no more calls.
            let _ = wake.send(());
        });
        let reader = source.open(split, ReaderContext { waker, request, shard: 0, shards: 1 }).map_err(|e| e.to_string())?;
        Ok(Open { reader, wakes })
    }

    /// The next rows, however long they take; `None` at the end.
    #[track_caller]
    fn next(&mut self, rows_max: usize) -> Result<Option<Rows>, String> {
        loop {
            match self.reader.poll(rows_max).map_err(|e| e.to_string())? {
                Polled::Rows(rows) => return Ok(Some(rows)),
                Polled::End => return Ok(None),
                Polled::Pending => self.wakes.recv_timeout(Duration::from_secs(30)).expect("a pending reader wakes its worker"),
            }
        }
    }

    /// Everything to the end: rows as text, places of bad records, the error that ended it.
    fn all(&mut self, rows_max: usize) -> (String, Vec<String>, Option<String>) {
        let (mut out, mut places) = (String::new(), Vec::new());
        loop {
            match self.next(rows_max) {
                Ok(Some(rows)) => {
                    out += &text::format(&Block::inserts(rows.batch, 0));
                    places.extend(rows.places);
                }
                Ok(None) => return (out, places, None),
                Err(e) => return (out, places, Some(e)),
            }
        }
    }
}

#[track_caller]
fn read(source: &dyn Source, splits: &[Split], rows_max: usize) -> String {
    let mut out = String::new();
    for split in splits {
        let (rows, places, error) = Open::new(source, split, ReadRequest::all(schema())).all(rows_max);
        assert_eq!((places.len(), error), (0, None), "{split:?}");
        out += &rows;
    }
    out
}

fn writer(sink: &dyn Sink, run: &str) -> Box<dyn Writer> {
    sink.writer(SinkContext { shard: 0, shards: 1, schema: schema(), run_id: run.into(), cancelled: Arc::default() }).unwrap()
}

fn block(rows: &str) -> Block {
    text::parse(&schema(), rows)
}

/// `from..to` as rows `r<n> <n>`.
fn numbered(from: usize, to: usize) -> String {
    (from..to).map(|n| format!("+I r{n} {n}\n")).collect()
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn pack(compression: Compression, bytes: &[u8], path: &Path) {
    let mut out = compression::writer(Box::new(fs::File::create(path).unwrap()), compression, None).unwrap();
    out.write_all(bytes).unwrap();
    out.finish().unwrap();
}

#[test]
fn what_is_written_is_read_again() {
    let cases: &[(&str, &[(&str, &str)], &str)] = &[
        ("csv", &[], "csv"),
        ("csv", &[("csv.header", "true")], "csv"),
        ("csv", &[("compression", "gzip")], "csv.gz"),
        ("csv", &[("csv.encoding", "utf-16"), ("csv.header", "true")], "csv"),
        ("csv", &[("csv.encoding", "gb18030"), ("compression", "zstd")], "csv.zst"),
        ("fixed", &[("fixed.widths", "6,6")], "txt"),
        ("fixed", &[("fixed.widths", "n:1-8,s:10-*"), ("fixed.encoding", "shift_jis"), ("fixed.header", "true")], "txt"),
        ("json", &[], "json"),
        ("json", &[("compression", "zstd")], "json.zst"),
        ("parquet", &[], "parquet"),
        ("avro", &[], "avro"),
        ("avro", &[("avro.codec", "null")], "avro"),
        ("avro", &[("avro.codec", "deflate")], "avro"),
        ("avro", &[("avro.codec", "zstandard")], "avro"),
        ("arrow", &[], "arrow"),
        ("arrow", &[("arrow.memory-map", "false"), ("arrow.batch-rows", "999"), ("arrow.compression", "lz4")], "arrow"),
        ("arrow", &[("arrow.trusted", "true"), ("arrow.compression", "zstd")], "arrow"),
        ("arrow", &[("arrow.form", "stream")], "arrows"),
        ("xport", &[], "xpt"),
        ("xport", &[("xport.version", "8"), ("xport.text-length", "6, n: 1")], "xpt"),
        ("debezium-json", &[], "json"),
    ];
    for (format, more, extension) in cases {
        let dir = TempDir::new().unwrap();
        let out = dir.path().join("a/b");
        let sink = sink(&out, format, more);
        sink.recover(&[], "run").unwrap();
        let mut writer = writer(&*sink, "run");
        assert_eq!(writer.prepare(false).unwrap(), Vec::<Committable>::new(), "no rows, no file");
        for from in [0, 10_000] {
            writer.write(&block(&numbered(from, from + 10_000))).unwrap();
            let prepared = writer.prepare(from > 0).unwrap();
            let n = from / 10_000;
            assert_eq!(
                prepared,
                [
                    serde_json::json!({"from": format!(".part-run-0-{n}.{extension}.inprogress"), "to": format!("part-run-0-{n}.{extension}")})
                ]
            );
            sink.commit(&prepared).unwrap();
        }
        assert!(writer.stats().bytes > 0, "{format}");
        assert_eq!(names(&out), [format!("part-run-0-0.{extension}"), format!("part-run-0-1.{extension}")]);
        let source = source(&out, format, more);
        let splits = source.splits(2).unwrap();
        assert_eq!(splits.len(), 2);
        for rows_max in [7, 100_000] {
            assert!(read(&*source, &splits, rows_max) == numbered(0, 20_000), "{format} {more:?} {rows_max}");
        }
    }
}

#[test]
fn a_resumed_reader_gives_exactly_the_rest() {
    let dir = TempDir::new().unwrap();
    let content: String = ["s,n\n".to_string()].into_iter().chain((0..50_000).map(|n| format!("r{n},{n}\n"))).collect();
    let (plain, packed) = (dir.path().join("a.csv"), dir.path().join("b.csv.gz"));
    fs::write(&plain, &content).unwrap();
    pack(Compression::Gzip, content.as_bytes(), &packed);
    for path in [plain, packed] {
        let source = source(&path, "csv", &[("csv.header", "true")]);
        let mut split = source.splits(1).unwrap().remove(0);
        let mut seen = 0;
        // Resumes after one block, again and again, until nothing is left.
        while let Some(rows) = {
            let mut open = Open::new(&*source, &split, ReadRequest::all(schema()));
            let rows = open.next(17_000).unwrap();
            split.position = Some(open.reader.position());
            rows
        } {
            for n in rows.batch.column(1).as_primitive::<Int64Type>().values() {
                assert_eq!(*n, seen);
                seen += 1;
            }
        }
        assert_eq!(seen, 50_000);
        assert_eq!(split.position.take().map(place), Some(serde_json::json!({"offset": content.len(), "records": 50_000})));
        split.position = Some(serde_json::json!({"offset": content.len() + 1, "records": 1}));
        let error = match source.open(&split, context()) {
            Err(e) => e.to_string(),
            Ok(reader) => Open { reader, wakes: crossbeam_channel::never() }.wait_for_error(),
        };
        assert!(error.contains("it was cut or replaced"), "{error}");
    }
}

fn context() -> ReaderContext {
    ReaderContext { waker: Waker::noop(), request: ReadRequest::all(schema()), shard: 0, shards: 1 }
}

impl Open {
    /// Polls until the reader fails.
    fn wait_for_error(mut self) -> String {
        loop {
            match self.reader.poll(1) {
                Ok(Polled::Pending) => std::thread::yield_now(),
                Ok(other) => panic!("{other:?} instead of an error"),
                Err(e) => return e.to_string(),
            }
        }
    }
}

#[test]
fn ranges_give_every_row_once() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("big.csv");
    // Line ends, delimiters and quotes in quotes; rows of very different lengths.
    let content: String = (0..400_000)
        .map(|n| match n % 5 {
            0 => format!("\"r{n}\n\"\"x,\n{n}\",{n}\n"),
            1 => format!("\"{}\",{n}\n", "\n".repeat(n % 90)),
            _ => format!("r{n},{n}\n"),
        })
        .collect();
    fs::write(&path, &content).unwrap();
    let source = source(&path, "csv", &[]);
    let splits = source.unordered_splits(2).unwrap();
    assert!(splits.len() > 1 && splits[0].id.contains("#0-"), "{splits:?}");
    let mut seen = 0;
    for split in &splits {
        let mut open = Open::new(&*source, split, ReadRequest::all(schema()));
        while let Some(rows) = open.next(10_000).unwrap() {
            assert_eq!(rows.bad, []);
            for n in rows.batch.column(1).as_primitive::<Int64Type>().values() {
                assert_eq!(*n, seen);
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 400_000);
    assert_eq!(source.unordered_splits(1).unwrap().len(), 1);
}

#[test]
fn bad_records_are_named_by_line_and_byte() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a.csv");
    fs::write(&path, "s,n\na,1\nb,x\nc,3\nd,y\n").unwrap();
    let source = source(&path, "csv", &[("csv.header", "skip")]);
    let at = |line: u64, byte: u64| format!("{}:{line} (byte {byte})", path.display());
    let mut split = source.splits(1).unwrap().remove(0);
    let (rows, places, error) = Open::new(&*source, &split, ReadRequest::all(schema())).all(3);
    assert_eq!((rows.as_str(), places, error), ("+I a 1\n+I c 3\n", vec![at(3, 8), at(5, 16)], None));
    // In a resumed file, and in a range that knows nothing of the lines before it.
    split.position = Some(serde_json::json!({"offset": 12, "records": 2}));
    assert_eq!(Open::new(&*source, &split, ReadRequest::all(schema())).all(10).1, [at(5, 16)]);
    let range = Split::new(format!("{}#12-20", path.display()));
    assert_eq!(Open::new(&*source, &range, ReadRequest::all(schema())).all(10).1, [at(5, 16)]);
}

#[test]
fn what_a_cut_gzip_still_has_is_delivered_before_the_error() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a.csv.gz");
    let content: String = (0..100_000).map(|n| format!("r{n},{}\n", n * 7919 % 1000)).collect();
    pack(Compression::Gzip, content.as_bytes(), &path);
    let length = fs::metadata(&path).unwrap().len();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(length / 2).unwrap();
    let source = source(&path, "csv", &[]);
    let split = source.splits(1).unwrap().remove(0);
    let (rows, _, error) = Open::new(&*source, &split, ReadRequest::all(schema())).all(5000);
    assert!(rows.starts_with("+I r0 0\n+I r1 919\n") && rows.lines().count() > 1000, "{}", rows.len());
    let error = error.expect("half a gzip file");
    assert!(error.contains("a.csv.gz' at byte ") && error.contains("ends in the middle"), "{error}");
}

#[test]
fn a_followed_file_gives_lines_when_they_are_whole() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a.csv");
    fs::write(&path, "a,1\nb,").unwrap();
    let source = source(dir.path(), "csv", &[("source.monitor-interval", "1 ms")]);
    assert!(!source.bounded() && source.discovery_interval().is_some());
    let split = source.splits(1).unwrap().remove(0);
    let mut open = Open::new(&*source, &split, ReadRequest::all(schema()));
    let mut next = |expect: &str| {
        let rows = open.next(10).unwrap().expect("rows");
        assert_eq!(text::format(&Block::inserts(rows.batch, 0)), expect);
        place(open.reader.position())
    };
    assert_eq!(next("+I a 1\n"), serde_json::json!({"offset": 4, "records": 1}));
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"2\n").unwrap();
    assert_eq!(next("+I b 2\n"), serde_json::json!({"offset": 8, "records": 2}));
    fs::write(dir.path().join("b.csv"), "").unwrap();
    assert_eq!(source.splits(1).unwrap().len(), 2);
    fs::remove_file(&path).unwrap();
    let error = open.next(10).unwrap_err();
    assert!(error.contains("a.csv' has vanished after 8 bytes"), "{error}");
}

/// A COPY that failed left what it had written until then in the directory, as large as that may be.
#[test]
fn what_an_abandoned_run_made_is_removed_and_nothing_else() {
    let dir = TempDir::new().unwrap();
    for (more, below) in [(&[][..], ""), (&[("sink.partition-by", "s")][..], "s=a")] {
        let sink = sink(dir.path(), "csv", more);
        let (mut ours, mut other) = (writer(&*sink, "run1"), writer(&*sink, "run10"));
        ours.write(&block("a 1")).unwrap();
        ours.prepare(false).unwrap();
        ours.write(&block("a 2")).unwrap();
        other.write(&block("a 3")).unwrap();
        let at = dir.path().join(below);
        let count = || names(&at).iter().filter(|name| name.starts_with(".part-run1")).count();
        assert_eq!(count(), 3, "{:?}", names(&at));
        drop(ours);
        sink.abandon("run1");
        assert_eq!(count(), 1, "{:?}", names(&at));
        assert!(names(&at).contains(&".part-run10-0-0.csv.inprogress".to_string()));
        sink.abandon("run10");
        assert!(!dir.path().join("s=a").exists(), "an empty directory was left");
    }
}

/// The new rows stayed beside the table, hidden, until somebody replaced it again.
#[test]
fn a_replacement_that_fails_leaves_the_old_rows_and_nothing_else() {
    let dir = TempDir::new().unwrap();
    let table = dir.path().join("table");
    let sink = sink(&table, "csv", &[]);
    let mut writer = writer(&*sink, "run1");
    writer.write(&block("a 1")).unwrap();
    let mut prepared = writer.prepare(true).unwrap();
    drop(writer);
    fs::write(table.join("old.csv"), "old,1\n").unwrap();
    prepared.push(serde_json::json!({ "from": ".nothing.inprogress", "to": "nothing.csv" }));
    let error = sink.replace(&prepared).unwrap_err().to_string();
    assert!(error.contains("replacing what is in"), "{error}");
    sink.abandon("run1");
    assert_eq!(names(dir.path()), ["table"]);
    assert_eq!(names(&table), ["old.csv"]);
}

#[test]
fn a_single_file_is_abandoned_unless_another_writes_it() {
    let dir = TempDir::new().unwrap();
    let of = || sink(&dir.path().join("one.csv"), "csv", &[("sink.single-file", "true")]);
    let (ours, other) = (of(), of());
    let mut first = writer(&*ours, "run1");
    first.write(&block("a 1")).unwrap();
    other.abandon("run2");
    assert_eq!(names(dir.path()), [".one.csv.inprogress"], "it is being written");
    first.prepare(true).unwrap();
    drop(first);
    other.abandon("run2");
    assert_eq!(names(dir.path()), [".one.csv.inprogress"], "it waits to be committed");
    ours.abandon("run1");
    assert!(names(dir.path()).is_empty());
}

#[test]
fn only_what_is_committed_becomes_visible() {
    let dir = TempDir::new().unwrap();
    let sink = sink(dir.path(), "csv", &[]);
    let mut lost = writer(&*sink, "run1");
    lost.write(&block("a 1")).unwrap();
    let prepared = lost.prepare(false).unwrap();
    lost.write(&block("b 2")).unwrap();
    let later = lost.prepare(false).unwrap();
    lost.write(&block("c 3")).unwrap();
    drop(lost);
    fs::write(dir.path().join(".other-run-0-0.csv.inprogress"), "of another sink").unwrap();
    assert_eq!(source(dir.path(), "csv", &[]).splits(1).unwrap(), []);
    // The crash came before the first commit was done: it is done now, twice, and the rest removed.
    for _ in 0..2 {
        sink.recover(&prepared, "run2").unwrap();
        assert_eq!(names(dir.path()), [".other-run-0-0.csv.inprogress", "part-run1-0-0.csv"]);
        assert_eq!(fs::read_to_string(dir.path().join("part-run1-0-0.csv")).unwrap(), "a,1\n");
    }
    let error = sink.commit(&later).unwrap_err().to_string();
    assert!(error.contains("neither file exists"), "{error}");
}

#[test]
fn parts_roll_and_never_share_a_name() {
    let dir = TempDir::new().unwrap();
    let sink = sink(dir.path(), "csv", &[("sink.rolling-policy.file-size", "1 kb"), ("sink.part-prefix", "p"), ("csv.header", "true")]);
    let (mut one, mut two) = (writer(&*sink, "r"), writer(&*sink, "r"));
    one.write(&block("a 1")).unwrap();
    two.write(&block("b 2")).unwrap();
    sink.commit(&one.prepare(false).unwrap()).unwrap();
    one.write(&block(&numbered(0, 40_000))).unwrap();
    one.write(&block("c 3")).unwrap();
    let prepared = one.prepare(true).unwrap();
    assert_eq!(prepared.len(), 2, "rolled by size: {prepared:?}");
    sink.commit(&prepared).unwrap();
    sink.commit(&two.prepare(true).unwrap()).unwrap();
    assert_eq!(names(dir.path()), ["p-r-0-0.csv", "p-r-0-1.csv", "p-r-0-2.csv", "p-r-0-3.csv"]);
    assert_eq!(fs::read_to_string(dir.path().join("p-r-0-3.csv")).unwrap(), "s,n\nc,3\n");
}

#[test]
fn metadata_columns_follow_the_others() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a.csv");
    fs::write(&path, "a,1\nb,2\n").unwrap();
    let source = source(&path, "csv", &[]);
    let field = |key: &str, data_type: DataType| (key.to_string(), Arc::new(Field::new(key.replace('.', "_"), data_type, true)));
    let metadata = vec![
        field("file.name", DataType::Utf8),
        field("file.size", DataType::Int64),
        field("file.modification-time", DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()))),
    ];
    let request = ReadRequest { physical: schema(), projection: vec![1], metadata };
    let split = source.splits(1).unwrap().remove(0);
    let rows = Open::new(&*source, &split, request.clone()).next(10).unwrap().unwrap();
    assert_eq!(rows.batch.schema(), request.schema());
    let shown = text::format(&Block::inserts(rows.batch, 0));
    assert!(shown.starts_with("+I 1 a.csv 8 20") && shown.contains("\n+I 2 a.csv 8 20"), "{shown}");
}

#[test]
fn mistakes_are_named() {
    #[track_caller]
    fn check(writes: bool, pairs: &[(&str, &str)], expect: &str) {
        let mut raw = RawOptions::new("table 't'", pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())));
        let error = if writes { CONNECTOR.sink(&schema(), &mut raw).err() } else { CONNECTOR.source(&schema(), &mut raw).err() };
        let error = error.expect("a mistake").to_string();
        assert!(error.starts_with("table 't': ") && error.contains(expect), "{error}");
    }
    check(false, &[("format", "csv")], "option 'path' is required");
    check(false, &[("path", "/x")], "option 'format' is required");
    check(false, &[("path", "/x"), ("format", "xml")], "expected one of: csv, json, fixed, parquet");
    check(false, &[("path", "hdfs://x/y"), ("format", "csv")], "scheme 'hdfs'");
    check(false, &[("path", "/x"), ("format", "csv"), ("source.path.regex-pattern", "(")], "source.path.regex-pattern");
    check(false, &[("path", "/x"), ("format", "parquet"), ("compression", "gzip")], "leave 'compression' out");
    check(true, &[("path", "/x/*.csv"), ("format", "csv")], "not a glob");
    let error = source(Path::new("/nowhere/at/all.csv"), "csv", &[]).splits(1).unwrap_err().to_string();
    assert_eq!(error, "there is no file or directory '/nowhere/at/all.csv'; the nearest directory that exists is '/'");
}

#[test]
fn avro_is_resumed_and_read_by_name() {
    let dir = TempDir::new().unwrap();
    let sink = sink(dir.path(), "avro", &[]);
    let mut writer = writer(&*sink, "run");
    writer.write(&block(&numbered(0, 20_000))).unwrap();
    sink.commit(&writer.prepare(true).unwrap()).unwrap();
    let source = source(dir.path(), "avro", &[]);
    let whole = source.splits(1).unwrap().remove(0);
    let mut open = Open::new(&*source, &whole, ReadRequest::all(schema()));
    assert_eq!(open.next(1234).unwrap().unwrap().batch.num_rows(), 1234);
    let resumed = Split { position: Some(open.reader.position()), ..whole.clone() };
    assert!(read(&*source, &[resumed], 100_000) == numbered(1234, 20_000));
    // Other columns in another order: one that the file lacks is NULL.
    let physical: SchemaRef = Arc::new(Schema::new(vec![
        Field::new("new", DataType::Float64, true),
        Field::new("n", DataType::Int32, true),
        Field::new("s", DataType::Utf8, true),
    ]));
    let request = ReadRequest { physical, projection: vec![1, 0], metadata: Vec::new() };
    let rows = Open::new(&*source, &whole, request).next(2).unwrap().unwrap();
    assert_eq!(text::format(&Block::inserts(rows.batch, 0)), "+I 0 NULL\n+I 1 NULL\n");
    let gone = Split { position: Some(serde_json::json!({"row": 20_001})), ..whole };
    let (_, _, error) = Open::new(&*source, &gone, ReadRequest::all(schema())).all(10);
    assert!(error.unwrap().contains("fewer rows than before"));
}

/// Files of changes: kinds come along, an update is never cut by a range, and what is written is read again.
#[test]
fn changes_are_read_and_written() {
    let dir = TempDir::new().unwrap();
    let sink = sink(dir.path(), "debezium-json", &[]);
    assert!(sink.accepts_updates());
    let mut writer = writer(&*sink, "run");
    writer.write(&block("a 1\n-U a 1\n+U a 2\n-D b 3")).unwrap();
    sink.commit(&writer.prepare(true).unwrap()).unwrap();
    let update = "{\"before\":{\"s\":\"c\",\"n\":1},\"after\":{\"s\":\"c\",\"n\":2},\"op\":\"u\"}\n";
    fs::write(dir.path().join("z.json"), update.repeat(2)).unwrap();
    let source = source(dir.path(), "debezium-json", &[]);
    assert_eq!(source.changelog(), Changelog::All);
    assert_eq!(source.unordered_splits(8).unwrap().len(), 2);
    for rows_max in [1, 2, 100] {
        let mut lines = String::new();
        for split in source.splits(1).unwrap() {
            let mut open = Open::new(&*source, &split, ReadRequest::all(schema()));
            while let Some(rows) = open.next(rows_max).unwrap() {
                assert!(rows.batch.num_rows() <= rows_max + 1);
                lines += &text::format(&Block::changelog(rows.batch, rows.kinds.unwrap().into(), 0));
            }
        }
        let update = "-U c 1\n+U c 2\n";
        assert_eq!(lines, format!("+I a 1\n-D a 1\n+I a 2\n-D b 3\n{update}{update}"));
    }
}

#[test]
fn parquet_is_resumed_and_divided_by_rows() {
    let dir = TempDir::new().unwrap();
    let sink = sink(dir.path(), "parquet", &[("parquet.row-group.rows", "30000"), ("parquet.compression", "none")]);
    let mut writer = writer(&*sink, "run");
    writer.write(&block(&numbered(0, 100_000))).unwrap();
    sink.commit(&writer.prepare(true).unwrap()).unwrap();
    let source = source(dir.path(), "parquet", &[]);
    assert_eq!(source.rows_hint(), Some(100_000));
    let whole = source.splits(1).unwrap().remove(0);
    let pieces = super::parquet::pieces(&whole.id, &super::directory::Place::Local, &Default::default(), 200_000).unwrap();
    assert_eq!(pieces.len(), 4);
    let splits: Vec<_> = pieces.iter().map(|p| Split::new(super::ranges::id(&whole.id, p))).collect();
    assert!(read(&*source, &splits, 5000) == numbered(0, 100_000));
    let mut open = Open::new(&*source, &splits[1], ReadRequest::all(schema()));
    assert_eq!(open.next(1234).unwrap().unwrap().batch.num_rows(), 1234);
    let resumed = Split { position: Some(open.reader.position()), ..splits[1].clone() };
    assert!(read(&*source, &[resumed], 100_000) == numbered(31_234, 60_000));
}
