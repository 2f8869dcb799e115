//! Jobs that are restarted, stopped, finished and removed while publishers and subscribers are connected.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::ops::Range;

use serde_json::{Value, json};

use super::server::{Server, next_event};
use crate::harness::{Background, Scratch, sink_lines, tidemill, wait_for};

/// Numbers are copied into a stream of each kind.
const COPY: &str = "SET 'execution.checkpointing.interval' = '100 ms';
CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'stream');
CREATE TABLE live (n BIGINT) WITH ('connector' = 'stream');
CREATE TABLE logged (n BIGINT) WITH ('connector' = 'stream', 'stream.delivery' = 'exactly-once');
CREATE VIEW totals AS SELECT COUNT(*) AS c FROM numbers;
EXECUTE STATEMENT SET BEGIN
  INSERT INTO live SELECT n FROM numbers;
  INSERT INTO logged SELECT n FROM numbers;
END;";

fn copying(scratch: &Scratch) -> Server {
    let job = scratch.write("copy.sql", COPY);
    let server = Server::start(scratch, &[&job, "--state-dir", &scratch.at("state"), "--parallelism", "1"]);
    wait_copying(&server);
    server
}

fn wait_copying(server: &Server) {
    for (stream, side) in [("numbers", "inlet"), ("live", "outlet"), ("logged", "outlet"), ("totals", "outlet")] {
        server.wait_side(stream, side);
    }
}

/// A job of another process that writes what it gets from stream `logged` into files.
fn taking(scratch: &Scratch, server: &Server, name: &str, interval: &str) -> Background {
    let text = format!(
        "SET 'execution.checkpointing.interval' = '{interval}';
         CREATE TABLE logged (n BIGINT) WITH ('connector' = 'flight', 'url' = '{}', 'name' = '{name}', 'from' = 'earliest');
         CREATE TABLE taken (n BIGINT) WITH ('connector' = 'filesystem', 'path' = '{}', 'format' = 'csv');
         INSERT INTO taken SELECT n FROM logged;",
        server.stream("logged"),
        scratch.at("taken")
    );
    let job = scratch.write("taking.sql", text);
    Background::start(tidemill().args(["run", &job, "--quiet", "--parallelism", "1", "--state-dir", &scratch.at("taking-state")]))
}

fn taken(scratch: &Scratch) -> Vec<u64> {
    let mut numbers: Vec<u64> = sink_lines(&scratch.path().join("taken")).iter().map(|line| line.parse().expect("a number")).collect();
    numbers.sort_unstable();
    numbers
}

/// The numbers in lines of JSON.
fn printed(text: &str) -> Vec<u64> {
    let number = |line: &str| serde_json::from_str::<Value>(line).expect("JSON")["n"].as_u64().expect("a number");
    text.lines().map(number).collect()
}

/// What a process that has ended well wrote.
fn output(process: &mut Background) -> String {
    let (code, errors) = process.end();
    assert_eq!(code, Some(0), "{errors}");
    let mut text = String::new();
    process.0.stdout.take().expect("piped, and read once").read_to_string(&mut text).expect("UTF-8");
    text
}

#[test]
fn peers_go_on_when_a_job_restarts() {
    let scratch = Scratch::new("serve-restart");
    let server = copying(&scratch);
    let rows = 400;
    let mut live = Background::start(tidemill().args(["subscribe", &server.stream("live")]));
    let limit = rows.to_string();
    let mut logged = Background::start(tidemill().args(["subscribe", &server.stream("logged"), "--name", "me", "--limit", &limit]));
    let _taking = taking(&scratch, &server, "other", "100 ms");
    wait_for("the subscribers", || server.stat("live", "subscribers") == 1 && server.stat("logged", "subscribers") == 2);
    let from = format!(
        "connector=datagen,rows-per-second=200,number-of-rows={rows},fields.n.kind=sequence,fields.n.start=0,fields.n.end={}",
        rows - 1
    );
    let mut adapter = Background::start(tidemill().args(["adapter", "--from", &from, "--to", &server.stream("numbers"), "--quiet"]));
    for reached in [rows / 4, rows / 2] {
        wait_for("more rows", || server.stat("logged", "next_offset") >= reached);
        server.expect("POST", "/v1/jobs/copy/restart", "", 200, &[]);
        wait_copying(&server);
    }
    output(&mut adapter);
    assert_eq!(printed(&output(&mut logged)), (0..rows).collect::<Vec<_>>());
    wait_for("all rows in the files", || taken(&scratch).len() as u64 >= rows);
    assert_eq!(taken(&scratch), (0..rows).collect::<Vec<_>>());
    wait_for("the acknowledgements", || {
        let names = server.get("/v1/streams/logged")["subscriptions"].clone();
        names == json!({"me": rows, "other": rows})
    });
    // What came while nobody listened is missed; nothing comes twice.
    wait_for("the live subscriber", || server.stat("live", "subscribers") == 1);
    server.post("/v1/streams/numbers?wait=ack", "{\"n\":1000}\n");
    let mut found: Vec<u64> = Vec::new();
    let mut lines = BufReader::new(live.0.stdout.take().expect("piped")).lines();
    while found.last() != Some(&1000) {
        found.extend(printed(&lines.next().expect("the subscriber goes on").expect("UTF-8")));
    }
    assert!(found.is_sorted_by(|a, b| a < b), "{found:?}");
    assert_eq!(server.get("/v1/jobs/copy")["state"], "running");
}

/// A subscriber acknowledges rows when it has stored them: by then the job that wrote them may be over.
#[test]
fn the_last_acknowledgements_of_a_job_that_finishes_are_kept() {
    let scratch = Scratch::new("serve-finish");
    let rows = 300;
    // The job ends with the connection to the test, so it cannot be over before the subscribers are there.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let job = scratch.write(
        "counting.sql",
        format!(
            "SET 'execution.checkpointing.interval' = '100 ms';
             CREATE TABLE g (n BIGINT) WITH ('connector' = 'socket', 'hostname' = '127.0.0.1', 'port' = '{}', 'format' = 'csv');
             CREATE TABLE logged (n BIGINT) WITH ('connector' = 'stream', 'stream.delivery' = 'exactly-once');
             INSERT INTO logged SELECT n FROM g;",
            listener.local_addr().expect("an address").port()
        ),
    );
    let server = Server::start(&scratch, &[&job, "--state-dir", &scratch.at("state"), "--parallelism", "1"]);
    server.wait_side("logged", "outlet");
    let (mut feed, _) = listener.accept().expect("the job connects");
    let url = server.stream("logged");
    let mut printing = Background::start(tidemill().args(["subscribe", &url, "--name", "printed", "--from", "earliest"]));
    // Its only checkpoint is the last one.
    let mut taking = taking(&scratch, &server, "taken", "1 h");
    wait_for("the subscribers", || server.stat("logged", "subscribers") == 2);
    let lines = |numbers: Range<u64>| numbers.map(|n| format!("{n}\n")).collect::<String>();
    feed.write_all(lines(0..rows / 2).as_bytes()).expect("the job reads");
    wait_for("the first rows", || server.stat("logged", "next_offset") == rows / 2);
    feed.write_all(lines(rows / 2..rows).as_bytes()).expect("the job reads");
    drop(feed);
    assert_eq!(printed(&output(&mut printing)), (0..rows).collect::<Vec<_>>());
    output(&mut taking);
    assert_eq!(taken(&scratch), (0..rows).collect::<Vec<_>>());
    server.wait_job("counting", "finished");
    let expect = json!({"printed": rows, "taken": rows});
    wait_for("the acknowledgements on disk", || {
        let text = std::fs::read(scratch.path().join("state/streams/logged/acks.json"));
        text.is_ok_and(|text| serde_json::from_slice::<Value>(&text).is_ok_and(|names| names == expect))
    });
}

#[test]
fn a_job_stops_although_a_subscriber_that_it_waits_for_reads_nothing() {
    let scratch = Scratch::new("serve-stuck");
    let job = scratch.write(
        "wide.sql",
        "SET 'execution.checkpointing.interval' = '100 ms';
         CREATE TABLE g (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '20000');
         CREATE TABLE wide (n BIGINT, t STRING) WITH ('connector' = 'stream', 'stream.queue-bytes' = '64 kb');
         INSERT INTO wide SELECT n, REPEAT('x', 1000) FROM g;",
    );
    let server = Server::start(&scratch, &[&job, "--state-dir", &scratch.at("state"), "--parallelism", "1"]);
    server.wait_side("wide", "outlet");
    let mut stuck = server.events("/v1/streams/wide/events?slow=wait", "");
    let (mut last, mut same) = (0, 0);
    wait_for("the job to wait", || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        let now = server.stat("wide", "next_offset");
        same = if now == last && now > 0 { same + 1 } else { 0 };
        last = now;
        // For two seconds: one that has no core for a while waits for nobody.
        same >= 40
    });
    // If it took longer than half a minute the answer would say that the job is stopping.
    server.expect("POST", "/v1/jobs/wide/stop", "", 200, &["\"state\":\"stopped\""]);
    let end = std::iter::from_fn(|| next_event(&mut stuck)).last().expect("a last event");
    assert!(end.event == "error" && end.data.contains("too slow"), "{end:?}");
}

#[test]
fn a_removed_job_takes_its_streams_along() {
    let scratch = Scratch::new("serve-remove");
    let server = copying(&scratch);
    let streams = scratch.path().join("state/streams");
    let kept = || {
        let entries = std::fs::read_dir(&streams).expect("the directory of streams");
        let mut names: Vec<String> = entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    };
    server.post("/v1/streams/numbers?wait=ack", "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n");
    wait_for("the rows", || server.stat("logged", "next_offset") == 3);
    assert_eq!(kept(), ["logged", "totals"]);
    server.expect("DELETE", "/v1/jobs/copy?keep=everything", "", 400, &["?keep=streams"]);
    server.expect("DELETE", "/v1/jobs/copy?keep=streams", "", 204, &[]);
    assert_eq!(kept(), ["logged", "totals"]);
    // A job of another name goes on with the log, and the rows have numbers behind those in it.
    server.expect("POST", "/v1/jobs", &json!({"name": "again", "sql": COPY}).to_string(), 201, &[]);
    wait_copying(&server);
    assert_eq!(server.stat("logged", "next_offset"), 3);
    server.expect("DELETE", "/v1/jobs/again", "", 204, &[]);
    assert_eq!(kept(), Vec::<String>::new());
    assert!(server.log().contains("stream 'logged': removed"), "{}", server.log());
}
