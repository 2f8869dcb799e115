//! Adapters: a stream written by any connector, what their metrics say, and `bench` with one.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use serde_json::{Value, json};

use super::server::Server;
use super::{example, large, orders};
use crate::failures::expect;
use crate::harness::{Background, Scratch, finish, free_port, sink_lines, tidemill, wait_for};

fn metrics(path: &str) -> Value {
    let text = std::fs::read_to_string(path).expect("the metrics");
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("the metrics are no JSON: {e}\n{text}"))
}

/// The ids of the lines that a sink has written, sorted.
fn ids(directory: &Path) -> Vec<u64> {
    let id = |line: &String| line.split(',').next().and_then(|id| id.parse().ok()).unwrap_or_else(|| panic!("no id in {line}"));
    let mut ids: Vec<u64> = sink_lines(directory).iter().map(id).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn a_stream_is_written_by_any_connector() {
    let scratch = Scratch::new("adapter-out");
    let server = Server::start(&scratch, &[&example().display().to_string(), "--state-dir", &scratch.at("server")]);
    server.wait_example();
    let out = scratch.path().join("out");
    let to = format!("connector=filesystem,format=csv,path={}", out.display());
    let (state, file) = (scratch.at("state"), scratch.at("metrics.json"));
    let expected = |count: u64| -> Vec<u64> { (0..count).filter(|n| n % 200 >= 100).collect() };
    // Stopped or killed and started again it goes on: under its name the server keeps what was not acknowledged.
    for (first, count, signal) in [(0, 400, "INT"), (400, 200, "KILL"), (600, 200, "INT")] {
        server.post("/v1/streams/orders?wait=ack", &orders(first, count));
        let before = ids(&out).len();
        let mut command = tidemill();
        command.args(["adapter", "--from", &server.stream("large_orders"), "--to", &to, "--id", "files", "--state-dir", &state]);
        command.args(["--set", "execution.checkpointing.interval=50 ms", "--block-size", "16", "--metrics", &file, "--quiet"]);
        let mut adapter = Background::start(&mut command);
        let all = expected(first + count);
        if signal == "KILL" {
            // Whatever else it is doing.
            wait_for("the first rows in files", || ids(&out).len() > before);
            adapter.signal(signal);
            assert_eq!(adapter.end().0, None);
            continue;
        }
        wait_for("the rows in files", || ids(&out).len() >= all.len());
        adapter.signal(signal);
        let (code, errors) = adapter.end();
        assert_eq!(code, Some(0), "{errors}");
        assert_eq!(ids(&out), all);
        let told = metrics(&file);
        let new = (all.len() - before) as u64;
        assert!(told["rows_in"].is_u64() && told["rows_in"] == told["rows_out"], "{told}");
        // A checkpoint that was complete when the adapter was killed may have shown its rows only now.
        let shown = first == 600 && told["rows_in"].as_u64() < Some(new);
        assert!(told["rows_in"] == new || shown, "{new} rows are new, not {told}");
        assert_eq!((&told["job"], &told["mode"], &told["finished"]), (&json!("files"), &json!("streaming"), &json!(false)), "{told}");
        for key in ["elapsed_s", "peak_memory_bytes", "checkpoints"] {
            assert!(told[key].as_f64() > Some(0.0), "{key} in {told}");
        }
        // The system counts CPU in ticks, of which so short a run may see none.
        assert!(told["user_s"].is_number() && told["sys_s"].is_number(), "{told}");
        wait_for("the acknowledgement", || server.get("/v1/streams/large_orders")["subscriptions"]["files"] == large(first + count));
    }
    // What is not to be had is said at once.
    let wrong = |from: &str, to: &str| finish(tidemill().args(["adapter", "--from", from, "--to", to, "--reconnect", "0"]));
    let stream = server.stream("large_orders");
    expect(&wrong(&stream, "connector=filesytem,path=x,format=csv"), 2, &["filesystem"]);
    expect(&wrong(&stream, "path=x,format=csv"), 2, &["'connector' is required"]);
    expect(&wrong("connector=stdin,format=csv", "connector=print"), 2, &["must be a stream"]);
    expect(&wrong(&server.stream("large_order"), &to), 1, &["did you mean 'large_orders'?"]);
}

#[test]
fn an_adapter_says_what_it_has_done() {
    let scratch = Scratch::new("adapter-metrics");
    let job = "CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'stream');
               CREATE TABLE s (n BIGINT) WITH ('connector' = 'blackhole');
               INSERT INTO s SELECT n FROM numbers;";
    let server = Server::start(&scratch, &[&scratch.write("numbers.sql", job), "--state-dir", &scratch.at("server")]);
    server.wait_side("numbers", "inlet");
    std::fs::create_dir(scratch.at("in")).expect("a directory");
    scratch.write("in/a.csv", "1\n2\nx\n4\n");
    scratch.write("in/b.csv", "5\n6\n");
    let from = format!("connector=filesystem,format=csv,path={}", scratch.at("in"));
    let file = scratch.at("metrics.json");
    let run = || {
        let (from, to) = (format!("{from},on-error=skip"), server.stream("numbers"));
        let arguments = ["--from", &from, "--to", &to, "--id", "feeder", "--block-size", "2", "--metrics", &file];
        finish(tidemill().arg("adapter").args(arguments))
    };
    expect(&run(), 0, &["feeder: finished", "5 rows published, 1 unreadable"]);
    let told = metrics(&file);
    for (key, value) in [("rows_in", 6), ("rows_out", 5), ("bad_rows", 1), ("splits", 2), ("reconnects", 0), ("parallelism", 1)] {
        assert_eq!(told[key], value, "{key} in {told}");
    }
    assert_eq!((&told["job"], &told["mode"], &told["finished"]), (&json!("feeder"), &json!("adapter"), &json!(true)), "{told}");
    for key in ["elapsed_s", "rows_per_s", "peak_memory_bytes", "bytes_in", "bytes_out", "blocks"] {
        assert!(told[key].as_f64() > Some(0.0), "{key} in {told}");
    }
    assert_eq!(server.stat("numbers", "published_rows"), 5);
    // All of it is there already: the server knows where the adapter stands.
    expect(&run(), 0, &["feeder: finished"]);
    assert_eq!(metrics(&file)["rows_out"], 0);
    assert_eq!(server.stat("numbers", "published_rows"), 5);
}

/// Only an adapter that ended well told what it had done: one that ran for weeks, was killed or failed left no figures.
#[test]
fn an_adapter_says_what_it_does_while_it_runs_and_when_it_fails() {
    let scratch = Scratch::new("adapter-running");
    let job = "SET 'execution.checkpointing.interval' = '100 ms';
               CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'stream');
               CREATE TABLE copies (n BIGINT) WITH ('connector' = 'stream', 'stream.delivery' = 'exactly-once');
               INSERT INTO copies SELECT n FROM numbers;";
    let mut server = Server::start(&scratch, &[&scratch.write("numbers.sql", job), "--state-dir", &scratch.at("server")]);
    server.wait_side("numbers", "inlet");
    server.wait_side("copies", "outlet");
    let (numbers, copies) = (server.stream("numbers"), server.stream("copies"));
    let start = |from: &str, to: &str, file: &str| {
        let arguments = ["adapter", "--from", from, "--to", to, "--metrics", file, "--id", "me", "--reconnect", "0", "--quiet"];
        Background::start(tidemill().args(arguments))
    };
    let files = [scratch.at("in.json"), scratch.at("out.json")];
    let mut adapters =
        [start("connector=datagen,rows-per-second=500", &numbers, &files[0]), start(&copies, "connector=blackhole", &files[1])];
    for (file, mode) in files.iter().zip(["adapter", "streaming"]) {
        let rows = || if Path::new(file).exists() { metrics(file)["rows_out"].as_u64().expect("a number") } else { 0 };
        wait_for("rows in the file", || rows() > 0);
        let before = rows();
        wait_for("more of them", || rows() > before);
        let told = metrics(file);
        assert_eq!((&told["job"], &told["mode"], &told["finished"]), (&json!("me"), &json!(mode), &json!(false)), "{told}");
        for key in ["elapsed_s", "rows_per_s", "peak_memory_bytes", "rows_in"] {
            assert!(told[key].as_f64() > Some(0.0), "{key} in {told}");
        }
    }
    assert_eq!(metrics(&files[1])["nodes"].as_array().map(|nodes| nodes.len() > 1), Some(true));
    // What was written last stays.
    adapters[0].signal("KILL");
    assert_eq!(adapters[0].end().0, None);
    assert!(metrics(&files[0])["rows_out"].as_u64() > Some(0));
    // An error in a record, and a server that is gone.
    let file = scratch.at("failed.json");
    let bad = format!("connector=filesystem,format=csv,path={}", scratch.write("bad.csv", "1\nx\n"));
    let (code, errors) = start(&bad, &numbers, &file).end();
    assert!(code == Some(1) && errors.contains("bad.csv:2"), "{code:?} {errors}");
    let told = metrics(&file);
    assert_eq!((&told["mode"], &told["finished"], &told["rows_out"]), (&json!("adapter"), &json!(false), &json!(0)), "{told}");
    assert!(told["bytes_in"].as_u64() > Some(0), "{told}");
    std::fs::remove_file(&files[1]).expect("it was there");
    server.process.signal("KILL");
    assert_eq!(server.end(), None);
    let (code, errors) = adapters[1].end();
    assert_eq!(code, Some(1), "{errors}");
    let told = metrics(&files[1]);
    assert!(told["finished"] == json!(false) && told["rows_out"].as_u64() > Some(0), "{told}");
}

/// Nobody answered a request that waits for its rows to be safe. Here only who waits for it has the server take a checkpoint.
#[test]
fn an_adapter_answers_requests_when_their_rows_are_safe() {
    let scratch = Scratch::new("adapter-http");
    let job = "SET 'execution.checkpointing.interval' = '1 h';
               CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'stream');
               CREATE VIEW sums AS SELECT COUNT(*) AS c, SUM(n) AS s FROM numbers;";
    let server = Server::start(&scratch, &[&scratch.write("numbers.sql", job), "--state-dir", &scratch.at("server")]);
    server.wait_side("numbers", "inlet");
    let (port, file) = (free_port(), scratch.at("metrics.json"));
    let from = format!("connector=http,port={port},path=/in,format=csv,answer=commit");
    let to = server.stream("numbers");
    let arguments = ["adapter", "--from", &from, "--to", &to, "--metrics", &file, "--id", "door"];
    let mut adapter = Background::start(tidemill().args(arguments));
    wait_for("the adapter to listen", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let post = |path: &str, body: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the adapter listens");
        let head = format!("host: localhost\r\nconnection: close\r\ncontent-type: text/csv\r\ncontent-length: {}\r\n\r\n", body.len());
        write!(stream, "POST {path} HTTP/1.1\r\n{head}{body}").expect("the adapter reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    };
    for (body, rows, bad) in [("1\n2\n", 2, 0), ("x\n3\n", 1, 1)] {
        let answer = post("/in", body);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        let said: Value = serde_json::from_str(answer.split_once("\r\n\r\n").expect("a body").1).expect("JSON");
        assert_eq!(said, json!({"committed": body.len(), "rows": rows, "bad_records": bad}));
    }
    assert_eq!(server.get("/v1/streams/sums/rows"), json!([{"c": 3, "s": 6}]));
    assert!(post("/out", "4\n").starts_with("HTTP/1.1 404 "));
    adapter.signal("INT");
    let (code, errors) = adapter.end();
    assert_eq!(code, Some(0), "{errors}");
    assert!(errors.contains("1 requests refused"), "{errors}");
    let told = metrics(&file);
    assert_eq!((&told["rows_out"], &told["bad_rows"]), (&json!(3), &json!(1)), "{told}");
    assert_eq!(told["listeners"][format!("127.0.0.1:{port}")]["refused"], 1, "{told}");
}

#[test]
fn bench_adds_up_a_job_and_its_adapter() {
    let scratch = Scratch::new("adapter-bench");
    let job = "CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'stream');
               CREATE TABLE s (n BIGINT, c BIGINT) WITH ('connector' = 'blackhole');
               INSERT INTO s SELECT n % 10, COUNT(*) FROM numbers GROUP BY n % 10;";
    let job = scratch.write("numbers.sql", job);
    // So many that the two processes have worked for some ticks of a system that counts CPU in them.
    let file = scratch.write("numbers.csv", (0..50_000).map(|n| format!("{n}\n")).collect::<String>());
    let from = format!("connector=filesystem,format=csv,path={file}");
    let bench = |more: &[&str]| {
        let mut command = tidemill();
        command.args(["bench", &job, "--adapter", &from, "--stream", "numbers", "--runs", "1", "--parallelism", "1"]);
        finish(command.args(["--out", &scratch.at("results")]).args(more))
    };
    for state in [&[][..], &["--state-dir", "any"][..]] {
        let output = bench(&[&["--vary", "block.size=64,auto"][..], state].concat());
        expect(&output, 0, &[]);
        let csv = std::fs::read_to_string(scratch.path().join("results/results.csv")).expect("the results");
        let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let head = lines.next().expect("a head");
        let at = |name: &str| head.iter().position(|column| *column == name).unwrap_or_else(|| panic!("no {name} in {csv}"));
        let runs: Vec<_> = lines.collect();
        let sizes: Vec<&str> = runs.iter().map(|run| run[at("block.size")]).collect();
        assert_eq!(sizes, ["64", "auto"], "{csv}");
        for run in &runs {
            for figure in ["elapsed_s", "cpu_s", "rows_per_s", "peak_mb"] {
                assert!(run[at(figure)].parse::<f64>().is_ok_and(|value| value > 0.0), "{figure} in {csv}");
            }
        }
    }
    expect(&finish(tidemill().args(["bench", &job, "--adapter", &from])), 2, &["--stream"]);
}
