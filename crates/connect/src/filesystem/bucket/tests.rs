//! Tables in buckets as a job uses them: write, commit, read, crash, two jobs.

use std::time::Duration;

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use tidemill_block::{Block, text};
use tidemill_format::options::RawOptions;
use tidemill_store::emulator::{Behaviour, Emulator};

use super::*;
use crate::filesystem::CONNECTOR;
use crate::{FileSelection, Polled, ReadRequest, ReaderContext, Sink, SinkContext, Source, Waker, Writer};

fn emulator() -> Emulator {
    Emulator::start("127.0.0.1:0", Behaviour::default()).unwrap()
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("s", DataType::Utf8, true), Field::new("n", DataType::Int64, true)]))
}

fn block(rows: &str) -> Block {
    text::parse(&schema(), rows)
}

fn options(emulator: &Emulator, path: &str, more: &[(&str, &str)]) -> RawOptions {
    let endpoint = emulator.endpoint();
    let store = [("store.endpoint", endpoint.as_str()), ("store.anonymous", "true"), ("store.retries", "1")];
    let base = [("path", path), ("format", "csv")].into_iter().chain(store);
    RawOptions::new("table 't'", base.chain(more.iter().copied()).map(|(k, v)| (k.to_string(), v.to_string())))
}

#[track_caller]
fn sink(emulator: &Emulator, path: &str, more: &[(&str, &str)]) -> Box<dyn Sink> {
    let mut raw = options(emulator, path, more);
    let sink = CONNECTOR.sink(&schema(), &mut raw).unwrap();
    raw.finish().unwrap();
    sink
}

fn open(sink: &dyn Sink, run: &str) -> Result<Box<dyn Writer>, ConnectError> {
    sink.writer(SinkContext { shard: 0, shards: 1, schema: schema(), run_id: run.into(), cancelled: Arc::default() })
}

/// The objects that readers see.
fn seen(emulator: &Emulator) -> Vec<String> {
    emulator.keys("b").into_iter().filter(|key| !key.contains("_tidemill/")).collect()
}

#[track_caller]
fn check(path: &str, single: bool, expect: Result<(&str, Option<&str>), &str>) {
    let options = StoreOptions { anonymous: true, ..StoreOptions::default() };
    match (Bucket::new(path, single, &options), expect) {
        (Ok(bucket), Ok(expect)) => assert_eq!((bucket.directory.as_str(), bucket.single.as_deref()), expect),
        (Err(e), Err(expect)) => assert!(e.to_string().contains(expect), "{e}"),
        (got, expect) => panic!("{} instead of {expect:?}", got.map_or_else(|e| e.to_string(), |b| b.url())),
    }
}

#[test]
fn directories_and_files() {
    check("gs://b/out", false, Ok(("out/", None)));
    check("gs://b/out/", false, Ok(("out/", None)));
    check("gs://b", false, Ok(("", None)));
    check("gs://b/d/x.csv", true, Ok(("d/", Some("x.csv"))));
    check("gs://b/x.csv", true, Ok(("", Some("x.csv"))));
    check("gs://b/d/", true, Err("is no name of a file"));
    check("http://h/x", false, Err("can only be read"));
}

#[test]
fn runs_and_jobs_have_names() {
    assert_eq!((run("a-b"), run("a-b-7")), ("a-b".to_string(), "a-b".to_string()));
    let dir = tempfile::tempdir().unwrap();
    let name = name_of_job(dir.path()).unwrap();
    assert_eq!(name_of_job(dir.path()).unwrap(), name);
}

#[test]
fn rows_are_visible_when_they_are_committed() {
    let emulator = emulator();
    for (path, more, expect) in [
        ("gs://b/out", &[][..], "out/part-r-1-0-0.csv"),
        ("s3://b/zip/", &[("compression", "gzip")][..], "zip/part-r-1-0-0.csv.gz"),
        ("gs://b/hive", &[("sink.partition-by", "n")][..], "hive/n=1/part-r-1-0-0.csv hive/n=2/part-r-1-0-0.csv"),
    ] {
        let before = seen(&emulator);
        let sink = sink(&emulator, path, more);
        assert!(!sink.replaces());
        sink.recover(&[], "").unwrap();
        let mut writer = open(&*sink, "r-1").unwrap();
        assert!(writer.prepare(false).unwrap().is_empty(), "no rows, no file");
        writer.write(&block("+I a 1\n+I b 2\n")).unwrap();
        let prepared = writer.prepare(true).unwrap();
        assert_eq!(seen(&emulator), before, "nothing is visible");
        sink.commit(&prepared).unwrap();
        sink.commit(&prepared).unwrap();
        let new: Vec<String> = seen(&emulator).into_iter().filter(|key| !before.contains(key)).collect();
        assert_eq!(new.join(" "), expect);
        sink.finished();
    }
    assert_eq!(emulator.get("b", "out/part-r-1-0-0.csv").unwrap(), "a,1\nb,2\n");
    assert_eq!(emulator.get("b", "hive/n=2/part-r-1-0-0.csv").unwrap(), "b\n");
    assert_eq!((emulator.keys("b"), emulator.uploads()), (seen(&emulator), 0), "no lock, no mark, no upload stays");
}

#[test]
fn a_killed_job_comes_back() {
    let emulator = emulator();
    let state = tempfile::tempdir().unwrap();
    let killed = sink(&emulator, "gs://b/out", &[]);
    killed.keep_in(state.path());
    killed.recover(&[], "").unwrap();
    let mut writer = open(&*killed, "r-1").unwrap();
    writer.write(&block("+I kept 1\n")).unwrap();
    let kept = writer.prepare(false).unwrap();
    writer.write(&block("+I lost 2\n")).unwrap();
    writer.prepare(false).unwrap();
    writer.write(&block("+I lost 3\n")).unwrap();
    // Neither destructor runs, as if the process had ended here, and the lock stays.
    let _left = std::mem::ManuallyDrop::new((writer, killed));
    assert_eq!(emulator.uploads(), 3);

    let again = sink(&emulator, "gs://b/out", &[]);
    again.keep_in(state.path());
    again.recover(&kept, "").unwrap();
    assert_eq!((seen(&emulator), emulator.uploads()), (vec!["out/part-r-1-0-0.csv".to_string()], 0));
    let mut writer = open(&*again, "r-2").unwrap();
    writer.write(&block("+I again 2\n")).unwrap();
    again.commit(&writer.prepare(true).unwrap()).unwrap();
    assert_eq!(seen(&emulator).len(), 2);
    assert_eq!(emulator.get("b", "out/part-r-1-0-0.csv").unwrap(), "kept,1\n");
}

#[test]
fn inserts_of_a_job_share_a_directory_and_jobs_do_not() {
    let emulator = emulator();
    let (one, two, other) = (sink(&emulator, "gs://b/out", &[]), sink(&emulator, "gs://b/out", &[]), sink(&emulator, "gs://b/out", &[]));
    let mut prepared = Vec::new();
    for (sink, run) in [(&one, "r-1-0"), (&two, "r-1-1")] {
        let mut writer = open(&**sink, run).unwrap();
        writer.write(&block("+I a 1\n")).unwrap();
        prepared.push((sink, writer.prepare(true).unwrap()));
    }
    let Err(error) = open(&*other, "r-2") else { panic!("two jobs write to one directory") };
    assert!(error.to_string().contains("another job of this process"), "{error}");
    prepared.iter().for_each(|(sink, prepared)| sink.commit(prepared).unwrap());
    assert_eq!(seen(&emulator), ["out/part-r-1-0-0-0.csv", "out/part-r-1-1-0.1-0.csv"]);
    drop((one, two));
    open(&*other, "r-2").unwrap();
}

/// A COPY that failed left what was up already, which costs money, to the next job that came to the directory.
#[test]
fn what_an_abandoned_run_uploaded_is_aborted_and_nothing_else() {
    let emulator = emulator();
    for (path, more) in [("gs://b/out", &[][..]), ("s3://b/hive", &[("sink.partition-by", "n")][..])] {
        let (one, two) = (sink(&emulator, path, more), sink(&emulator, path, more));
        let mut prepared = Vec::new();
        for (sink, run) in [(&one, "r-1-1"), (&two, "r-1-10")] {
            let mut writer = open(&**sink, run).unwrap();
            writer.write(&block("+I a 1\n+I b 2\n")).unwrap();
            prepared.push(writer.prepare(true).unwrap());
        }
        one.abandon("r-1-1");
        assert_eq!(emulator.uploads(), prepared[1].len(), "{path}");
        two.commit(&prepared[1]).unwrap();
    }
    let sink = sink(&emulator, "gs://b/d/x.csv", &[("sink.single-file", "true")]);
    let mut writer = open(&*sink, "r-1").unwrap();
    writer.write(&block("+I a 1\n")).unwrap();
    writer.prepare(true).unwrap();
    drop(writer);
    sink.abandon("r-1");
    drop(sink);
    assert_eq!((emulator.keys("b"), emulator.uploads()), (seen(&emulator), 0), "no lock, no mark, no upload stays");
}

#[test]
fn a_single_file_appears_once_and_is_replaced() {
    let emulator = emulator();
    let write = |rows: &str| {
        let sink = sink(&emulator, "gs://b/d/x.csv", &[("sink.single-file", "true")]);
        let mut writer = open(&*sink, "r-1").unwrap();
        writer.write(&block(rows)).unwrap();
        let prepared = writer.prepare(true).unwrap();
        (sink, prepared)
    };
    let (sink, prepared) = write("+I a 1\n");
    assert!(sink.replaces() && seen(&emulator).is_empty());
    sink.commit(&prepared).unwrap();
    drop(sink);
    let (sink, prepared) = write("+I b 2\n");
    let error = sink.commit(&prepared).unwrap_err().to_string();
    assert!(error.contains("there is an object of that name already"), "{error}");
    assert_eq!((emulator.get("b", "d/x.csv").unwrap().as_ref(), emulator.uploads()), (&b"a,1\n"[..], 0));
    drop(sink);
    let (sink, prepared) = write("+I c 3\n");
    sink.replace(&prepared).unwrap();
    drop(sink);
    assert_eq!(emulator.get("b", "d/x.csv").unwrap(), "c,3\n");
    assert_eq!(emulator.keys("b"), ["d/x.csv"]);
}

/// All objects of a table were read for a query that named one of its directories, and paid for.
#[test]
fn objects_in_which_nothing_is_wanted_are_not_asked_for() {
    let emulator = emulator();
    for year in [2023, 2024] {
        emulator.put("b", &format!("t/year={year}/x.csv"), format!("a,{year}\n"));
    }
    for path in ["gs://b/t", "s3://b/t/**/*.csv"] {
        let mut raw = options(&emulator, path, &[]);
        let source: Box<dyn Source> = CONNECTOR.source(&schema(), &mut raw).unwrap();
        let year = ("partition.year".to_string(), Arc::new(Field::new("year", DataType::Int64, true)));
        let files = FileSelection::new(vec![year.clone()], |row| Some(row.column(0).as_primitive::<Int64Type>().value(0) == 2024));
        let (splits, left_out) = source.splits_selecting(2, &files).unwrap();
        assert_eq!((splits.len(), left_out), (1, 1), "{path}: {splits:?}");
        let request = ReadRequest { metadata: vec![year], ..ReadRequest::all(schema()) };
        let mut reader = source.open(&splits[0], ReaderContext { waker: Waker::noop(), request, shard: 0, shards: 1 }).unwrap();
        let rows = loop {
            match reader.poll(100).unwrap() {
                Polled::Rows(rows) => break rows.batch,
                Polled::Pending => std::thread::sleep(Duration::from_millis(1)),
                Polled::End => panic!("{path}: no rows"),
            }
        };
        assert_eq!(text::format(&Block::inserts(rows, 0)), "+I a 2024 2024\n");
    }
    let requests = emulator.requests();
    let of = |year: &str| requests.iter().any(|request| request.contains(year));
    assert!(of("2024") && !of("2023"), "{requests:?}");
}
