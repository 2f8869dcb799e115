//! Jobs are kept, run, stopped, tried again and removed.

use std::time::Instant;

use super::*;

/// A source of so many rows (without end if none are given) into nothing; `a` is the column written.
fn sql(rows: Option<u32>, a: &str) -> String {
    let end = rows.map_or(String::new(), |n| format!(", 'number-of-rows' = '{n}'"));
    format!(
        "CREATE TABLE g (a BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '1000'{end});
         CREATE TABLE o (a BIGINT) WITH ('connector' = 'blackhole');
         INSERT INTO o SELECT {a} FROM g;"
    )
}

fn new(name: &str, sql: String) -> NewJob {
    let settings = BTreeMap::from([("parallelism.default".to_string(), "1".to_string())]);
    NewJob { name: name.to_string(), sql, settings, start: true, replace: false }
}

fn open(directory: &Path) -> Jobs {
    Jobs::open(Some(directory), BTreeMap::new(), None).unwrap()
}

/// Waits until the job is as wanted; a minute is long enough for any machine.
#[track_caller]
fn wait(jobs: &Jobs, name: &str, wanted: impl Fn(&JobView) -> bool) -> JobView {
    let begun = Instant::now();
    loop {
        let view = jobs.get(name).unwrap();
        if wanted(&view) {
            return view;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{view:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_job_finishes_and_stays_so() {
    let directory = tempfile::tempdir().unwrap();
    let jobs = open(directory.path());
    jobs.put(new("tiny", sql(Some(100), "a"))).unwrap();
    let view = wait(&jobs, "tiny", |v| v.state == State::Finished);
    assert_eq!((view.progress.rows_in, view.progress.rows_out, view.restarts, view.error), (100, 100, 0, None));
    let nodes = view.nodes.unwrap();
    assert_eq!(nodes.first().map(|n| n.counts.rows), Some(100), "{nodes:?}");
    jobs.stop_all();
    drop(jobs);
    let jobs = open(directory.path());
    jobs.start_wanted();
    let view = jobs.get("tiny").unwrap();
    assert_eq!((view.state, view.started_ms), (State::Finished, None));
    assert_eq!(view.sql, Some(sql(Some(100), "a")));
    assert_eq!(view.settings.get("parallelism.default").map(String::as_str), Some("1"));
    assert_eq!(stored_names(directory.path()), ["tiny"]);
}

#[test]
fn what_is_wanted_outlives_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let jobs = open(directory.path());
    jobs.put(new("goes-on", sql(None, "a"))).unwrap();
    jobs.put(new("rests", sql(None, "a"))).unwrap();
    jobs.put(NewJob { start: false, ..new("waits", sql(None, "a")) }).unwrap();
    wait(&jobs, "goes-on", |v| v.state == State::Running && v.progress.rows_in > 0);
    wait(&jobs, "rests", |v| v.state == State::Running);
    assert_eq!(jobs.stop("rests").unwrap().state, State::Stopped);
    // Stopping what is stopped is no error.
    assert_eq!(jobs.stop("rests").unwrap().state, State::Stopped);
    jobs.stop_all();
    assert!(jobs.list().iter().all(|v| v.state == State::Stopped));
    assert_eq!(jobs.start("rests", false).unwrap_err().status().as_u16(), 503);
    drop(jobs);
    let jobs = open(directory.path());
    assert!(directory.path().join("jobs/goes-on/state").is_dir(), "a last checkpoint was taken");
    jobs.start_wanted();
    wait(&jobs, "goes-on", |v| v.state == State::Running);
    let states: Vec<_> = jobs.list().into_iter().map(|v| (v.name, v.state)).collect();
    let expect = [("goes-on", State::Running), ("rests", State::Stopped), ("waits", State::Stopped)];
    assert_eq!(states, expect.map(|(n, s)| (n.to_string(), s)));
    jobs.restart("goes-on", false).unwrap();
    wait(&jobs, "goes-on", |v| v.state == State::Running);
    assert_eq!(jobs.start("goes-on", true).unwrap_err().status().as_u16(), 409);
    jobs.stop_all();
}

/// A question about a job waited for the disk that its change was written to, on a thread of the server.
#[test]
fn a_job_can_be_looked_at_while_it_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let jobs = open(directory.path());
    jobs.put(NewJob { start: false, ..new("kept", sql(None, "a")) }).unwrap();
    let write = |_: &Spec| match jobs.get("kept").unwrap().settings.is_empty() {
        true => Err("it is there before it is written".to_string()),
        false => Ok(()),
    };
    jobs.slot("kept").unwrap().change(|spec| spec.settings.clear(), write).unwrap();
    assert!(jobs.get("kept").unwrap().settings.is_empty());
}

#[test]
fn a_second_server_is_kept_out() {
    let directory = tempfile::tempdir().unwrap();
    let first = open(directory.path());
    let error = Jobs::open(Some(directory.path()), BTreeMap::new(), None).err().unwrap();
    assert!(error.contains("belongs to a server that runs") && error.contains(&std::process::id().to_string()), "{error}");
    drop(first);
    open(directory.path());
}

#[test]
fn a_failed_job_is_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let jobs = open(directory.path());
    jobs.put(new("broken", sql(None, "a / (a - a)"))).unwrap();
    let view = wait(&jobs, "broken", |v| v.state == State::Failed && v.restarts > 0);
    assert!(view.error.as_ref().is_some_and(|e| e.contains("division by zero")), "{view:?}");
    assert!(view.retry_in_ms.is_some());
    // Whoever stops it need not wait for the next try.
    assert_eq!(jobs.stop("broken").unwrap().state, State::Stopped);
    // The way to mend it.
    jobs.put(NewJob { replace: true, ..new("broken", sql(Some(10), "a / NULLIF(a - a, 0)")) }).unwrap();
    let view = wait(&jobs, "broken", |v| v.state == State::Finished);
    assert_eq!(view.error, None);
}

#[test]
fn what_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let jobs = open(directory.path());
    #[track_caller]
    fn check<T: std::fmt::Debug>(result: Result<T, ApiError>, status: u16, text: &str) {
        let error = result.unwrap_err();
        assert_eq!(error.status().as_u16(), status, "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
    check(jobs.put(new("bad", sql(None, "b"))), 400, "bad.sql:3");
    check(jobs.put(new("bad", "SELEC".to_string())), 400, "bad.sql:1");
    for name in ["", ".", "..", "a/b", "ä", ".hidden"] {
        check(jobs.put(new(name, sql(None, "a"))), 400, "cannot name a job");
    }
    let unknown = BTreeMap::from([("paralelism.default".to_string(), "1".to_string())]);
    check(jobs.put(NewJob { settings: unknown, ..new("bad", sql(None, "a")) }), 400, "parallelism.default");
    // Nothing of all that is left.
    assert_eq!((jobs.list().len(), stored_names(directory.path()).len()), (0, 0));
    jobs.put(NewJob { start: false, ..new("good", sql(None, "a")) }).unwrap();
    check(jobs.put(new("good", sql(None, "a"))), 409, "replace");
    check(jobs.get("god"), 404, "did you mean 'good'?");
    check(jobs.stop("x"), 404, "there is no job 'x'");
    assert!(jobs.plan("good").unwrap().contains("== Operators =="));
}

#[test]
fn a_removed_job_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let jobs = open(directory.path());
    jobs.put(new("gone", sql(None, "a"))).unwrap();
    wait(&jobs, "gone", |v| v.state == State::Running);
    jobs.remove("gone", false).unwrap();
    assert_eq!(jobs.get("gone").unwrap_err().status().as_u16(), 404);
    assert_eq!(std::fs::read_dir(directory.path().join("jobs")).unwrap().count(), 0);
    // The name is free again, and a removal that was cut short is completed.
    jobs.put(NewJob { start: false, ..new("gone", sql(None, "a")) }).unwrap();
    drop(jobs);
    std::fs::create_dir(directory.path().join("jobs/.removed-other")).unwrap();
    assert_eq!(open(directory.path()).list().len(), 1);
    assert!(!directory.path().join("jobs/.removed-other").exists());
}

#[test]
fn a_job_takes_along_the_streams_that_only_it_writes() {
    tidemill_hub::register();
    let directory = tempfile::tempdir().unwrap();
    let jobs = open(directory.path());
    let writing = |name: &str, streams: &[&str], view: &str| {
        let table = |name: &str| format!("CREATE TABLE {name} (a BIGINT) WITH ('connector' = 'stream');");
        let mut sql = format!("CREATE TABLE g (a BIGINT) WITH ('connector' = 'datagen'); {}", table("taken"));
        for stream in streams {
            sql += &format!("{} INSERT INTO {stream} SELECT a FROM g;", table(stream));
        }
        sql += &format!("CREATE VIEW {view} AS SELECT a FROM taken;");
        jobs.put(NewJob { start: false, ..new(name, sql) }).unwrap();
        let slot = jobs.slot(name).unwrap();
        jobs.streams_of(name, &slot).into_iter().collect::<Vec<_>>()
    };
    assert_eq!(writing("first", &["one", "two"], "seen"), ["one", "seen", "two"]);
    assert_eq!(writing("second", &["two", "three"], "watched"), ["three", "watched"]);
    // A text that is planned no longer tells of no streams.
    jobs.slot("first").unwrap().change(|spec| spec.sql = "SELEC".into(), |_| Ok(())).unwrap();
    assert_eq!(jobs.streams_of("first", &jobs.slot("first").unwrap()), BTreeSet::new());
    assert_eq!(jobs.streams_of("second", &jobs.slot("second").unwrap()).len(), 3);
}

#[test]
fn a_given_file_updates_the_job() {
    let directory = tempfile::tempdir().unwrap();
    let jobs = open(directory.path());
    jobs.put_for_later(new("job", sql(Some(10), "a"))).unwrap();
    assert_eq!(jobs.get("job").unwrap().state, State::Stopped);
    jobs.start_wanted();
    wait(&jobs, "job", |v| v.state == State::Finished);
    jobs.stop_all();
    drop(jobs);
    // The same text has finished; another one has not.
    let jobs = open(directory.path());
    jobs.put_for_later(NewJob { replace: true, ..new("job", sql(Some(10), "a")) }).unwrap();
    assert_eq!(jobs.get("job").unwrap().state, State::Finished);
    jobs.put_for_later(NewJob { replace: true, ..new("job", sql(Some(20), "a")) }).unwrap();
    assert_eq!(jobs.get("job").unwrap().state, State::Stopped);
}
