//! Adapters against a server that follows a script.

use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::thread::{self, JoinHandle};

use super::*;
use crate::flight::script::{Script, Scripted};

/// Not a bound on time: what takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);

fn adapter(server: &Scripted, from: &str, id: Option<&str>) -> Adapter {
    let options = [("url".to_string(), server.url()), ("reconnect.backoff".to_string(), "1 ms".to_string())];
    Adapter {
        from: parse_options(from).unwrap(),
        to: FlightOptions::checked(&mut RawOptions::new("--to", options)).unwrap(),
        id: id.map(String::from),
        block_rows: None,
    }
}

fn lines(path: &Path, values: std::ops::Range<i64>) -> String {
    fs::write(path, values.map(|n| format!("{n}\n")).collect::<String>()).unwrap();
    path.display().to_string()
}

/// What the server has of each split, in order of their names, whatever the publisher is called.
fn taken(server: &Scripted) -> Vec<Vec<i64>> {
    let script = server.script();
    let mut all: Vec<_> = script.taken.iter().collect();
    all.sort_by_key(|(id, _)| id.rsplit('/').next().unwrap().to_string());
    all.into_iter().map(|(_, taken)| taken.rows.clone()).collect()
}

#[test]
fn files_are_published_each_as_a_split() {
    let directory = tempfile::tempdir().unwrap();
    for n in 0..6 {
        lines(&directory.path().join(format!("{n}.csv")), n * 100..n * 100 + 50);
    }
    let server = Scripted::start(Script { breaks: vec![30, 40, 1], ..Script::default() });
    let from = format!("connector=filesystem,format=csv,block.size=7,path={}", directory.path().display());
    let mut told = 0;
    let done = adapter(&server, &from, None).run(Arc::default(), |_| told += 1).unwrap();
    assert_eq!(taken(&server), (0..6).map(|n| (n * 100..n * 100 + 50).collect()).collect::<Vec<Vec<i64>>>());
    assert_eq!((done.rows, done.splits_done, done.finished, done.bad_rows), (300, 6, true, 0));
    assert!(done.reconnects >= 1 && done.blocks >= 6 && told >= 1);
    // The same command again has nothing to do: everything is there.
    let again = adapter(&server, &from, None).run(Arc::default(), |_| {}).unwrap();
    assert_eq!((again.rows, again.splits_done, again.blocks), (0, 6, 0));
    assert_eq!(taken(&server).concat().len(), 300);
}

#[test]
fn a_run_goes_on_where_the_one_before_was_killed() {
    let directory = tempfile::tempdir().unwrap();
    let path = lines(&directory.path().join("a.csv"), 0..1000);
    let from = format!("connector=filesystem,format=csv,block.size=10,path={path}");
    // The server crashes, too: it forgets what it has not acknowledged.
    let server = Scripted::start(Script { breaks: vec![200, 500], lazy: true, forgetful: true, ..Script::default() });
    adapter(&server, &from, None).run(Arc::default(), |_| {}).unwrap();
    assert_eq!(taken(&server), [(0..1000).collect::<Vec<_>>()]);
    // As if the run had ended in the middle of a message of another size.
    for (rows, mark) in [(450, 450), (455, 450)] {
        {
            let mut script = server.script();
            let entry = script.taken.values_mut().next().unwrap();
            entry.rows.truncate(rows);
            // Four bytes a line from 100 on; 10 lines of two, 90 of three.
            entry.position = serde_json::json!({ "row": mark, "at": { "offset": 10 * 2 + 90 * 3 + (mark - 100) * 4, "records": mark } });
        }
        let done = adapter(&server, &from, None).run(Arc::default(), |_| {}).unwrap();
        assert_eq!(taken(&server), [(0..1000).collect::<Vec<_>>()]);
        assert_eq!(done.rows, 1000 - rows as u64);
    }
}

#[test]
fn a_position_of_somebody_else_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = lines(&directory.path().join("a.csv"), 0..10);
    let from = format!("connector=filesystem,format=csv,path={path}");
    let server = Scripted::start(Script::default());
    let id = format!("me/{path}");
    let mut other = crate::flight::script::Taken { rows: vec![1, 2, 3], ..Default::default() };
    for (position, part) in [
        (serde_json::Value::Null, "but not where they come from"),
        (serde_json::json!([1]), "not an adapter's"),
        (serde_json::json!({ "row": 4, "at": {} }), "but stands at row 4"),
    ] {
        other.position = position;
        server.script().taken.insert(id.clone(), other.clone());
        let error = adapter(&server, &from, Some("me")).run(Arc::default(), |_| {}).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("--id"), "{error}");
    }
}

#[test]
fn bad_records_end_it_or_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.csv");
    fs::write(&path, "1\nx\n3\n").unwrap();
    let server = Scripted::start(Script::default());
    let from = format!("connector=filesystem,format=csv,path={}", path.display());
    let mut told = Vec::new();
    let error = adapter(&server, &from, None).run(Arc::default(), |sum| told.push(*sum)).unwrap_err().to_string();
    assert!(error.contains("a.csv:2") && error.contains("on-error=skip"), "{error}");
    let last = told.last().expect("who fails says what it has done");
    assert!(!last.finished && last.bytes_in > 0, "{last:?}");
    let done = adapter(&server, &format!("{from},on-error=skip"), None).run(Arc::default(), |_| {}).unwrap();
    assert_eq!((done.rows, done.bad_rows), (2, 1));
}

#[test]
fn stopping_acknowledges_what_was_read() {
    let server = Scripted::start(Script { lazy: true, ..Script::default() });
    let stop = Arc::new(AtomicBool::new(false));
    let (asked, from) = (stop.clone(), "connector=datagen,rows-per-second=100000,block.size=100");
    let done = adapter(&server, from, None).run(stop, |sum| asked.store(sum.rows > 0, Ordering::Relaxed)).unwrap();
    assert!(!done.finished && done.rows > 0);
    let published: usize = taken(&server).iter().map(Vec::len).sum();
    assert_eq!(published as u64, done.rows);
}

/// An adapter on a thread of its own.
struct Running {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Progress, ConnectError>>,
}

impl Running {
    fn start(adapter: Adapter) -> Self {
        Running::telling(adapter, |_| {})
    }

    /// With somebody who is told how far it is.
    fn telling(adapter: Adapter, progress: impl FnMut(&Progress) + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = stop.clone();
        Running { stop, thread: thread::spawn(move || adapter.run(asked, progress)) }
    }

    /// Waits for what must come while it runs.
    #[track_caller]
    fn until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let began = Instant::now();
        while !done() {
            assert!(!self.thread.is_finished() && began.elapsed() < PATIENCE, "{what} did not come");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Stops it; what it has done.
    fn end(self) -> Progress {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap().unwrap()
    }
}

/// Nobody answered such requests, and rows that came over a broken connection were lost: the number of a request, which
/// is all that the source gives for a position, was taken for one from which it could be read again.
#[test]
fn requests_are_answered_when_the_server_has_made_their_rows_safe() {
    crate::register();
    let server = Scripted::start(Script { breaks: vec![4], lazy: true, forgetful: true, ..Script::default() });
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let running = Running::start(adapter(&server, &format!("connector=http,port={port},path=/in,format=csv,answer=commit"), None));
    running.until("the listener", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let agent = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).timeout_global(Some(PATIENCE)).build();
    let agent = ureq::Agent::from(agent);
    // The second comes when the server has forgotten it once.
    for (text, rows, bad) in [("1\n2\n", 2, 0), ("3\nx\n4\n5\n", 3, 1), ("y\n", 0, 1)] {
        let mut answer = agent.post(format!("http://127.0.0.1:{port}/in")).header("Content-Type", "text/csv").send(text).unwrap();
        let said: serde_json::Value = serde_json::from_str(&answer.body_mut().read_to_string().unwrap()).unwrap();
        assert_eq!(answer.status().as_u16(), 200, "{said}");
        assert_eq!(said, serde_json::json!({ "committed": text.len(), "rows": rows, "bad_records": bad }));
    }
    assert!(server.script().breaks.is_empty());
    let done = running.end();
    assert_eq!((done.rows, done.bad_rows, done.reconnects), (5, 2, 1));
    assert_eq!(taken(&server), [[1, 2, 3, 4, 5]]);
}

/// What a source keeps until somebody has its rows (here the log of another server) it kept for ever.
#[test]
fn a_source_is_told_which_rows_are_safe() {
    crate::register();
    let source = Scripted::start(Script { outlet: (0..100).collect(), block: 7, delivery: "exactly-once", ..Script::default() });
    let server = Scripted::start(Script { breaks: vec![40], ..Script::default() });
    let from = format!("connector=flight,url={},name=me,from=earliest,reconnect.backoff=1 ms", source.url());
    let running = Running::start(adapter(&server, &from, None));
    running.until("the acknowledgement of the last row", || source.script().acks.last() == Some(&100));
    assert!(source.script().acks.is_sorted());
    assert_eq!(running.end().rows, 100);
    assert_eq!(taken(&server), [(0..100).collect::<Vec<_>>()]);
}

#[test]
fn rows_may_wait_for_a_block_to_be_full() {
    for (linger, messages) in [("1 h", 1), ("1 ms", 2)] {
        let server = Scripted::start(Script::default());
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let from = format!("connector=socket,mode=listener,hostname=127.0.0.1,port={port},format=csv,block.size=4,block.linger={linger}");
        let read = Arc::new(AtomicU64::new(0));
        let told = read.clone();
        let running = Running::telling(adapter(&server, &from, None), move |sum| told.store(sum.bytes_in, Ordering::Relaxed));
        let mut peer = None;
        running.until("the listener", || {
            peer = TcpStream::connect(("127.0.0.1", port)).ok();
            peer.is_some()
        });
        let mut peer = peer.unwrap();
        peer.write_all(b"1\n2\n").unwrap();
        running.until("the first rows", || read.load(Ordering::Relaxed) == 4);
        if messages == 2 {
            running.until("rows without company", || taken(&server).concat() == [1, 2]);
        }
        peer.write_all(b"3\n4\n").unwrap();
        running.until("the second rows", || read.load(Ordering::Relaxed) == 8);
        let done = running.end();
        assert_eq!(taken(&server), [[1, 2, 3, 4]], "{linger}");
        assert_eq!((done.rows, done.blocks), (4, messages), "{linger}");
    }
}

#[test]
fn options_are_checked_before_anything_is_read() {
    let server = Scripted::start(Script::default());
    for (from, part) in [
        ("path=x", "option 'connector' is required"),
        ("connector=filesystm,path=x", "did you mean 'filesystem'?"),
        ("connector=filesystem,path=/x,format=csv,on-error=dead-letter", "fail, skip"),
        ("connector=filesystem,path=/x,format=csv,block.size=0", "expected 'auto'"),
        ("connector=filesystem,path=/x,format=csv,paht=x", "unknown option 'paht'"),
        ("connector=print", "can only be written to"),
    ] {
        let error = adapter(&server, from, None).run(Arc::default(), |_| {}).unwrap_err().to_string();
        assert!(error.contains(part), "{from}: {error}");
    }
}

#[test]
fn updating_streams_are_published_without_what_a_row_does() {
    use arrow::datatypes::{DataType, Field};
    let plain = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
    let with =
        |nullable| Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true), Field::new("row_kind", DataType::Int8, nullable)]));
    let published = |schema: &SchemaRef, changes: bool| {
        let mut info: StreamInfo = serde_json::from_value(serde_json::json!({ "changes": changes })).unwrap();
        info.schema = Some(schema.clone());
        published(&info).unwrap()
    };
    assert_eq!(published(&with(false), false), plain);
    assert_eq!(published(&with(true), false), with(true));
    // Of a stream that takes changes the column may be left out.
    assert_eq!(published(&with(true), true), plain);
    // The columns may be those of its outlet, which has no such column.
    assert_eq!(published(&plain, true), plain);
    assert!(super::published(&StreamInfo::default()).is_none());
}

#[test]
fn only_columns_that_are_needed_are_published() {
    use arrow::datatypes::{DataType, Field};
    let field = |name: &str, nullable| Field::new(name, DataType::Int64, nullable);
    let schema = Schema::new(vec![field("a", true), field("b", false), field("c", true)]);
    let nullable = Schema::new(vec![field("a", true), field("c", true)]);
    let columns = |schema: &Schema, wanted: &[&str]| {
        let wanted: Vec<String> = wanted.iter().map(|name| name.to_string()).collect();
        lane::columns(schema, Some(&wanted))
    };
    assert_eq!(columns(&schema, &["c"]), Some(vec![1, 2]), "without b no row would be taken");
    assert_eq!(columns(&schema, &["c", "a"]), None, "all are needed");
    assert_eq!(columns(&nullable, &[]), Some(vec![0]), "rows are counted");
    assert_eq!(lane::columns(&schema, None), None);
}

#[test]
fn who_was_stopped_waits_for_a_server_that_is_away_for_a_while_only() {
    let (mut patience, began) = (Patience::default(), Instant::now());
    for (second, acknowledged, away, over) in [
        (0, 5, false, false),
        // It is there, however long it takes.
        (100, 5, false, false),
        (101, 5, true, false),
        (110, 5, true, false),
        // A connection that comes to nothing does not begin it anew, one that acknowledges something does.
        (111, 5, false, false),
        (112, 5, true, true),
        (113, 6, true, false),
        (122, 6, true, false),
        (123, 6, true, true),
    ] {
        assert_eq!(patience.is_over(acknowledged, away, began + Duration::from_secs(second)), over, "second {second}");
    }
}
