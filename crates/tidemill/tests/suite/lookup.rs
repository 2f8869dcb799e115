//! Lookup joins on a server that is slow, fails, talks rubbish or says nothing, in jobs as users run them.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Output;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::failures::expect;
use crate::harness::{Scratch, finish, root, text, tidemill};

/// What the server does with a request.
pub enum Reply {
    Found(String),
    Status(&'static str),
    Hang,
}

/// Answers requests for `/ID`: `answer` gets the id and how often it was asked for before. The port.
pub fn server(answer: impl Fn(u64, usize) -> Reply + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    let (answer, asked) = (Arc::new(answer), Arc::new(Mutex::new(HashMap::new())));
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (answer, asked) = (answer.clone(), asked.clone());
            thread::spawn(move || serve(&stream, answer.as_ref(), &asked));
        }
    });
    port
}

fn serve(stream: &TcpStream, answer: &dyn Fn(u64, usize) -> Reply, asked: &Mutex<HashMap<u64, usize>>) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    while let Some(first) = lines.next() {
        let id: u64 =
            first.split([' ', '?']).nth(1).and_then(|path| path.rsplit('/').next()?.parse().ok()).unwrap_or_else(|| panic!("{first}"));
        // The headers; requests have no body.
        while lines.next().is_some_and(|line| !line.is_empty()) {}
        let before = {
            let mut asked = asked.lock().expect("no panic while held");
            let times = asked.entry(id).or_insert(0);
            *times += 1;
            *times - 1
        };
        let (status, body) = match answer(id, before) {
            Reply::Found(body) => ("200 OK", body),
            Reply::Status(status) => (status, "sorry".to_string()),
            Reply::Hang => {
                thread::sleep(Duration::from_secs(600));
                return;
            }
        };
        let text = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let mut out = stream;
        if out.write_all(text.as_bytes()).is_err() {
            return;
        }
    }
}

/// Looks the rows 0 to `rows` up: what came out, line by line in its order, and the run.
fn job(port: u16, rows: u64, options: &str, hint: &str, join: &str) -> (Vec<String>, Output) {
    let scratch = Scratch::new("lookup");
    let mut csv = String::new();
    for id in 0..rows {
        let _ = writeln!(csv, "{id}");
    }
    let input = scratch.write("ids.csv", csv);
    let out = scratch.at("out");
    let sql = format!(
        "CREATE TABLE ids (id BIGINT, pt AS PROCTIME()) WITH ('connector' = 'filesystem', 'path' = '{input}', 'format' = 'csv');
         CREATE TABLE dim (id BIGINT, name STRING) WITH ('connector' = 'http', 'url' = 'http://127.0.0.1:{port}/{{id}}?k=geheim', 'format' = 'json'{options});
         CREATE TABLE `out` (id BIGINT, name STRING) WITH ('connector' = 'filesystem', 'path' = '{out}', 'format' = 'csv');
         INSERT INTO `out` SELECT {hint} ids.id, dim.name FROM ids {join} dim FOR SYSTEM_TIME AS OF ids.pt ON dim.id = ids.id;"
    );
    let output = finish(tidemill().args(["run", &scratch.write("job.sql", sql), "--quiet", "--parallelism", "1"]));
    let mut parts: Vec<_> = std::fs::read_dir(&out).into_iter().flatten().map(|e| e.expect("an entry").path()).collect();
    parts.retain(|p| !p.file_name().is_some_and(|n| n.to_string_lossy().starts_with('.')));
    assert!(parts.len() < 2, "one shard writes one part: {parts:?}");
    let lines = parts.iter().flat_map(|p| std::fs::read_to_string(p).expect("a part").lines().map(str::to_string).collect::<Vec<_>>());
    (lines.collect(), output)
}

fn named(id: u64) -> Reply {
    Reply::Found(format!("{{\"name\": \"n{id}\"}}"))
}

/// Slow by up to 20 ms, each key by another time.
fn slowly(id: u64) {
    thread::sleep(Duration::from_millis(id * 7919 % 20));
}

#[test]
fn rows_come_out_in_their_order_however_slow_the_answers_are() {
    let port = server(|id, _| {
        slowly(id);
        if id % 3 == 0 { Reply::Status("404 Not Found") } else { named(id) }
    });
    let (lines, output) = job(port, 300, ", 'lookup.capacity' = '50'", "", "LEFT JOIN");
    assert!(output.status.success(), "{}", text(&output));
    let expect: Vec<String> = (0..300).map(|id| if id % 3 == 0 { format!("{id},") } else { format!("{id},n{id}") }).collect();
    assert_eq!(lines, expect);
    // In any order they are the same rows, and an inner join leaves those out for which there is nothing.
    let (mut lines, output) = job(port, 300, "", "/*+ LOOKUP('table'='dim', 'output-mode'='allow_unordered') */", "JOIN");
    assert!(output.status.success(), "{}", text(&output));
    lines.sort();
    let mut expect: Vec<String> = (0..300).filter(|id| id % 3 != 0).map(|id| format!("{id},n{id}")).collect();
    expect.sort();
    assert_eq!(lines, expect);
}

/// For a whole job, by Flink's names; a hint has the last word.
#[test]
fn settings_say_how_lookups_are_made() {
    let scratch = Scratch::new("lookup-settings");
    let unordered = |hint: &str| {
        let sql = format!(
            "SET 'table.exec.async-lookup.output-mode' = 'ALLOW_UNORDERED';
             CREATE TABLE ids (id BIGINT, pt AS PROCTIME()) WITH ('connector' = 'datagen', 'number-of-rows' = '1');
             CREATE TABLE dim (id BIGINT, name STRING) WITH ('connector' = 'http', 'url' = 'http://127.0.0.1:1/{{id}}', 'format' = 'json');
             CREATE TABLE `out` (id BIGINT, name STRING) WITH ('connector' = 'print');
             INSERT INTO `out` SELECT {hint} ids.id, dim.name FROM ids JOIN dim FOR SYSTEM_TIME AS OF ids.pt ON dim.id = ids.id;"
        );
        let output = finish(tidemill().args(["explain", &scratch.write("job.sql", sql)]));
        assert!(output.status.success(), "{}", text(&output));
        text(&output).contains("LookupJoin dim unordered")
    };
    assert!(unordered("") && !unordered("/*+ LOOKUP('table'='dim', 'output-mode'='ordered') */"));
}

#[test]
fn a_server_that_fails_is_asked_again() {
    let port = server(|id, before| if before < 2 && id % 4 == 0 { Reply::Status("503 Service Unavailable") } else { named(id) });
    let (lines, output) = job(port, 100, ", 'lookup.retry-delay' = '5 ms'", "", "JOIN");
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(lines, (0..100).map(|id| format!("{id},n{id}")).collect::<Vec<_>>());
}

#[test]
fn what_fails_for_good_ends_the_job_or_is_left_out() {
    let broken = |id: u64, _| if id == 7 { Reply::Status("500 Internal Server Error") } else { named(id) };
    let retries = ", 'lookup.retry-delay' = '5 ms', 'lookup.max-retries' = '1'";
    let (_, output) = job(server(broken), 20, retries, "", "JOIN");
    expect(&output, 1, &["/7?k=***", "the server answers 500 Internal Server Error: sorry"]);
    assert!(!text(&output).contains("geheim"), "{}", text(&output));
    let (lines, output) = job(server(broken), 20, &format!("{retries}, 'lookup.on-failure' = 'null'"), "", "LEFT JOIN");
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(lines, (0..20).map(|id| if id == 7 { "7,".to_string() } else { format!("{id},n{id}") }).collect::<Vec<_>>());
    let (_, output) = job(server(|id, _| if id == 3 { Reply::Found("<html>".into()) } else { named(id) }), 20, "", "", "JOIN");
    expect(&output, 1, &["/3?k=***", "expected an object or an array of objects at byte 1 of the answer"]);
    let (_, output) = job(server(|id, _| if id == 5 { Reply::Status("403 Forbidden") } else { named(id) }), 20, "", "", "JOIN");
    expect(&output, 1, &["/5?k=***", "403 Forbidden: sorry"]);
}

#[test]
fn a_server_that_says_nothing_is_given_up() {
    let silent = |id: u64, _| if id == 9 { Reply::Hang } else { named(id) };
    let (_, output) = job(server(silent), 20, ", 'lookup.timeout' = '200 ms'", "", "JOIN");
    expect(&output, 1, &["no answer within", "lookup.timeout"]);
    let (lines, output) = job(server(silent), 20, ", 'lookup.timeout' = '200 ms', 'lookup.on-failure' = 'null'", "", "LEFT JOIN");
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(lines[9], "9,");
    assert_eq!(lines.len(), 20);
}

/// Looks forty rows up with these options and this hint: the most requests that were under way at once.
#[track_caller]
fn most_at_once(options: &str, hint: &str) -> usize {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = most.clone();
    let port = server(move |id, _| {
        seen.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        slowly(id);
        now.fetch_sub(1, Ordering::SeqCst);
        named(id)
    });
    let (lines, output) = job(port, 40, options, hint, "JOIN");
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(lines, (0..40).map(|id| format!("{id},n{id}")).collect::<Vec<_>>(), "{options} {hint}");
    most.load(Ordering::SeqCst)
}

#[test]
fn options_and_hints_bound_the_requests() {
    let hint = |more: &str| format!("/*+ LOOKUP('table'='dim', {more}) */");
    assert_eq!(most_at_once("", &hint("'async'='false'")), 1);
    assert_eq!(most_at_once(", 'lookup.async' = 'false'", ""), 1);
    assert_eq!(most_at_once(", 'lookup.max-concurrency-per-partition' = '1'", ""), 1, "a file is a partition");
    assert!(most_at_once(", 'lookup.capacity' = '3'", "") <= 3);
    assert!(most_at_once(", 'lookup.capacity' = '30'", &hint("'capacity'='2'")) <= 2, "a hint counts more than the table");
}

#[test]
fn a_hint_says_how_long_and_how_often() {
    let silent = |id: u64, _| if id == 9 { Reply::Hang } else { named(id) };
    let (_, output) = job(server(silent), 20, "", "/*+ LOOKUP('table'='dim', 'timeout'='200 ms') */", "JOIN");
    expect(&output, 1, &["no answer within"]);
    // What is not there yet may come.
    let late = |id: u64, before: usize| if id.is_multiple_of(4) && before < 2 { Reply::Status("404 Not Found") } else { named(id) };
    let again = "'retry-predicate'='lookup_miss', 'retry-strategy'='fixed_delay', 'fixed-delay'='5 ms', 'max-attempts'='3'";
    let (lines, output) = job(server(late), 20, "", &format!("/*+ LOOKUP('table'='dim', {again}) */"), "LEFT JOIN");
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(lines, (0..20).map(|id| format!("{id},n{id}")).collect::<Vec<_>>());
    let (lines, _) = job(server(late), 4, "", "", "LEFT JOIN");
    assert_eq!(lines, ["0,", "1,n1", "2,n2", "3,n3"], "nobody asks again who was not told to");
}

#[test]
fn a_table_that_cannot_be_looked_up_is_underlined() {
    let scratch = Scratch::new("no-lookup");
    let sql = "CREATE TABLE o (id BIGINT, pt AS PROCTIME()) WITH ('connector' = 'datagen');
CREATE TABLE d (id BIGINT) WITH ('connector' = 'socket', 'hostname' = 'h', 'port' = '1', 'format' = 'json');
SELECT * FROM o JOIN d FOR SYSTEM_TIME AS OF o.pt ON d.id = o.id;";
    let output = finish(tidemill().args(["run", &scratch.write("job.sql", sql)]));
    expect(&output, 2, &["connector 'socket' cannot be looked up", "those that can: filesystem, http", "job.sql:3:"]);
}

#[test]
fn the_example() {
    let port = server(|id, _| match id {
        2 => Reply::Status("404 Not Found"),
        id => Reply::Found(format!("{{\"data\": {{\"name\": \"sensor {id}\", \"limit\": {}.5}}}}", 20 + id)),
    });
    let service = format!("SERVICE=http://127.0.0.1:{port}");
    let output = finish(tidemill().current_dir(root()).args(["run", "examples/lookup/readings.sql", "--parallelism", "1", "-D", &service]));
    // The summary tells of the requests.
    expect(&output, 0, &[" calls, ", "rows answered without one"]);
    // Worked out by hand.
    let expect = ["+I[1, sensor 1, hall, 22.5, 21.5]", "+I[2, null, yard, 40.0, null]", "+I[3, sensor 3, hall, 23.75, 23.5]"];
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().collect::<Vec<_>>(), expect);
}
