//! What goes wrong ends in a clear error to the peer that caused it, with memory bounded and the others
//! undisturbed.

use std::fs::File;
use std::io::{BufRead, BufWriter, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use super::clients::python;
use super::server::{Server, next_event};
use super::{example, order, orders};
use crate::harness::{PATIENCE, Scratch, finish, many_connections, text, tidemill, wait_for};
use crate::not_run::not_run;

/// Texts are copied from one stream to another.
const COPY: &str = "CREATE TABLE texts (n BIGINT NOT NULL, t STRING) WITH ('connector' = 'stream');
CREATE TABLE copies (n BIGINT NOT NULL, t STRING) WITH ('connector' = 'stream', 'stream.queue-bytes' = '1mb');
INSERT INTO copies SELECT n, t FROM texts;";
/// Rows of one request, each of a kilobyte.
const ROWS: u64 = 1_000;

fn copying(scratch: &Scratch) -> Server {
    let server = Server::start(scratch, &[&scratch.write("copy.sql", COPY), "--parallelism", "1"]);
    server.wait_side("texts", "inlet");
    server.wait_side("copies", "outlet");
    server
}

/// Publishes so many megabytes, as fast as the server takes them.
fn publish(server: &Server, megabytes: u64) {
    let filler = "x".repeat(1000);
    let mut answered = Vec::new();
    for block in 0..megabytes {
        let lines: String = (0..ROWS).map(|n| format!("{{\"n\":{},\"t\":\"{filler}\"}}\n", block * ROWS + n)).collect();
        answered.push(server.post("/v1/streams/texts", &lines)["rows"].clone());
    }
    assert!(answered.iter().all(|rows| *rows == ROWS), "{answered:?}");
}

/// Reads events until there were so many; each row must come once, in order.
fn read_all(reader: &mut impl BufRead, rows: u64) {
    for expect in 0..rows {
        let event = next_event(reader).unwrap_or_else(|| panic!("no event after row {expect}"));
        assert!(event.data.starts_with(&format!("{{\"n\":{expect},")), "row {expect} was due: {} {:.200}", event.event, event.data);
    }
}

#[test]
fn a_slow_subscriber_is_dropped_and_the_others_go_on() {
    let scratch = Scratch::new("serve-slow");
    let server = copying(&scratch);
    let path = "/v1/streams/copies/events";
    let mut slow = server.events(&format!("{path}?queue_bytes=65536"), "");
    let mut good = server.events(&format!("{path}?slow=wait"), "");
    let megabytes = 64;
    std::thread::scope(|scope| {
        scope.spawn(|| publish(&server, megabytes));
        read_all(&mut good, megabytes * ROWS);
    });
    wait_for("the slow one to be dropped", || server.stat("copies", "dropped_subscribers") == 1);
    assert_eq!(server.stat("copies", "subscribers"), 1);
    // It is told, behind what was on its way.
    let last = std::iter::from_fn(|| next_event(&mut slow)).last().expect("a last event");
    assert!(last.event == "error" && last.data.contains("too slow"), "{last:?}");
    let page = server.expect("GET", "/metrics", "", 200, &[]);
    assert!(page.contains("tidemill_stream_dropped_subscribers_total{stream=\"copies\"} 1\n"), "{page}");
}

#[test]
fn a_publisher_that_is_faster_than_the_job_waits() {
    held_back("serve-fast", 512, |_, server| publish(server, 512));
}

/// The same over Flight, where nothing but the windows of HTTP/2 holds it back.
#[test]
fn a_publisher_of_flight_that_is_faster_than_the_job_waits() {
    held_back("serve-fast-flight", 256, |scratch, server| {
        let (file, filler) = (scratch.at("texts.json"), "x".repeat(1000));
        let mut out = BufWriter::new(File::create(&file).expect("a file for the rows"));
        for n in 0..256 * ROWS {
            writeln!(out, "{{\"n\":{n},\"t\":\"{filler}\"}}").expect("room for the rows");
        }
        out.flush().expect("room for the rows");
        let output = finish(tidemill().args(["publish", &server.stream("texts"), &file, "--quiet"]));
        assert!(output.status.success(), "{}", text(&output));
    });
}

/// Has so many megabytes published into a job that does not take them for a while.
fn held_back(name: &str, megabytes: u64, publish_all: impl Fn(&Scratch, &Server) + Sync) {
    let scratch = Scratch::new(name);
    let server = copying(&scratch);
    // A little flows first, so that what is allocated once is there.
    publish(&server, 8);
    wait_for("the first rows", || server.stat("copies", "next_offset") == 8 * ROWS);
    let before = server.resident_bytes();
    // The job waits for this subscriber, which takes nothing for now.
    let mut events = server.events("/v1/streams/copies/events?slow=wait", "");
    let taken = || server.stat("texts", "published_bytes");
    let mut most = before;
    std::thread::scope(|scope| {
        scope.spawn(|| publish_all(&scratch, &server));
        // Until for a second nothing more is taken.
        let first = taken();
        let (mut last, mut same) = (first, 0);
        wait_for("the publisher to be held back", || {
            std::thread::sleep(Duration::from_millis(100));
            let now = taken();
            same = if now == last && now > first { same + 1 } else { 0 };
            last = now;
            same >= 10
        });
        assert!(last - first < 128 << 20, "{} bytes were taken while nothing left", last - first);
        most = most.max(server.resident_bytes());
        read_all(&mut events, megabytes * ROWS);
        most = most.max(server.resident_bytes());
    });
    match before.zip(most) {
        None => not_run("memory (this system has no /proc)"),
        Some((before, most)) => {
            println!("memory: {before} B before, {most} B at most");
            assert!(most < before + (192 << 20), "memory: {before} B before {megabytes} MB went through, then {most} B");
        }
    }
}

#[test]
fn connections_that_say_nothing() {
    let scratch = Scratch::new("serve-silent");
    let Some(wanted) = many_connections(1_000) else { return };
    let (state, most) = (scratch.at("state"), (wanted + 100).to_string());
    let server = Server::start(&scratch, &[&example().display().to_string(), "--state-dir", &state, "--max-connections", &most]);
    server.wait_example();
    let mut silent = Vec::new();
    for n in 0..wanted {
        let mut stream = server.connect();
        // Nothing, half a word of HTTP, half of HTTP/2's, something else: none of it is a request.
        let said: &[u8] = [&b""[..], b"GET / HT", b"PRI * HTTP/2.0\r\n", b"\x16\x03\x01"][n as usize % 4];
        stream.write_all(said).expect("the server reads");
        silent.push(stream);
    }
    wait_for("all of them", || server.metric("tidemill_connections_accepted_total") > wanted as f64);
    // Meanwhile the job is at work.
    let mut events = server.events("/v1/streams/large_orders/events?from=earliest", "");
    for n in 0..10 {
        server.post("/v1/streams/orders?publisher=p&wait=ack", &order(100 + n));
        assert!(next_event(&mut events).expect("an event").data.contains(&format!("\"id\":{}", 100 + n)));
    }
    // Those that never ask are cut off.
    wait_for("the end of the silent ones", || server.metric("tidemill_connections") < 20.0);
    assert!(server.metric("tidemill_connections_broken_total") > wanted as f64 / 2.0);
    server.post("/v1/streams/orders?publisher=p&wait=ack", &order(110));
    assert!(next_event(&mut events).expect("an event").data.contains("\"id\":110"));
    assert_eq!(server.get("/v1/jobs/clients")["restarts"], 0);
}

/// The other half of a connection is gone without a word: it takes what comes, and answers nothing.
#[test]
fn a_peer_that_answers_no_ping_is_let_go() {
    let scratch = Scratch::new("serve-ping");
    let server = Server::start(&scratch, &[]);
    let mut gone = server.connect();
    gone.set_read_timeout(Some(PATIENCE)).expect("a time");
    // The preface of HTTP/2 and settings of which nothing is said.
    gone.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").expect("the server reads");
    let mut came = Vec::new();
    let end = gone.read_to_end(&mut came);
    assert!(end.as_ref().map_or_else(|e| e.kind() == ErrorKind::ConnectionReset, |_| true), "{end:?}");
    assert!(came.windows(4).any(|head| head == [0, 0, 8, 6]), "a ping came before: {came:?}");
    wait_for("the count", || server.metric("tidemill_connections_broken_total") == 1.0);
}

#[test]
fn more_connections_than_are_taken() {
    let scratch = Scratch::new("serve-many");
    let server = Server::start(&scratch, &["--max-connections", "3"]);
    let mut held: Vec<TcpStream> = Vec::new();
    for _ in 0..3 {
        let mut stream = server.connect();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("the server reads");
        stream.read_exact(&mut [0]).expect("an answer");
        held.push(stream);
    }
    server.expect("GET", "/healthz", "", 503, &["the most that it takes", "--max-connections"]);
    held.clear();
    wait_for("room", || server.ask("GET", "/healthz", "", "").0 == 200);
}

#[test]
fn what_does_not_fit_is_refused_with_its_reason() {
    let scratch = Scratch::new("serve-fit");
    let state = scratch.at("state");
    let args = [&example().display().to_string(), "--state-dir", &state, "--max-block-bytes", "1mb"];
    let server = Server::start(&scratch, &args);
    server.wait_example();
    let refused = |kind: &str, body: &str, status: u16, parts: &[&str]| {
        let (found, text) = server.ask("POST", "/v1/streams/orders", kind, body);
        assert_eq!(found, status, "{text}");
        for part in parts {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
    };
    refused("application/x-ndjson", &(order(1) + "\n{\"id\": \"two\"}\n"), 400, &["record 2", "nothing was taken"]);
    refused("application/json", "[{\"customer\": \"anna\"}]", 400, &["row 1", "'id' is NULL"]);
    refused("application/x-ndjson", &order(1)[..20], 400, &["record 1"]);
    refused("text/csv", "id,custmer\n1,anna\n", 400, &["'custmer'", "id, customer, amount"]);
    refused("application/vnd.apache.arrow.stream", "\x00\x01\x02\x03\x04\x05\x06\x07", 400, &[]);
    refused("application/vnd.apache.arrow.stream", "\u{7f}\u{7f}\u{7f}\u{7f}\u{7f}\u{7f}\u{7f}\u{7f}", 400, &[]);
    refused("text/plain", "1", 415, &["application/x-ndjson"]);
    refused("application/x-ndjson", &orders(0, 30_000), 413, &["1048576", "fewer records"]);
    server.expect("POST", "/v1/streams/ordres", "", 404, &["there is no stream 'ordres'", "did you mean 'orders'?"]);
    server.expect("POST", "/v1/streams/large_orders", "[]", 409, &["no running job reads stream 'large_orders'"]);
    server.expect("GET", "/v1/streams/orders/events", "", 409, &["no running job writes stream 'orders'"]);
    server.expect("GET", "/v1/streams/large_orders/rows", "", 409, &["keeps no contents", "stream.snapshot"]);
    server.expect("GET", "/v1/streams/large_orders/events?filter=amont%20%3E%201", "", 400, &["amont", "amount"]);
    server.expect("GET", "/v1/streams/large_orders/events?columns=nam", "", 400, &["'nam'"]);
    server.expect("GET", "/v1/streams/large_orders/events?from=7", "", 400, &["rows up to 0 so far"]);
    assert_eq!(server.stat("orders", "published_rows"), 0, "none of it was taken");
    for (reason, times) in [("schema", 1u32), ("malformed", 4), ("null", 1), ("gap", 0), ("too_large", 1)] {
        let metric = format!("tidemill_stream_refused_total{{stream=\"orders\",reason=\"{reason}\"}}");
        assert_eq!(server.metric(&metric), f64::from(times), "{reason}");
        assert_eq!(server.stat("orders", &format!("refused_{reason}")), u64::from(times), "{reason}");
    }
    for (status, times) in [(400, 9u32), (409, 3), (413, 1), (415, 1)] {
        assert_eq!(server.metric(&format!("tidemill_request_errors_total{{status=\"{status}\"}}")), f64::from(times), "{status}");
    }
    server.post("/v1/streams/orders?wait=ack", &order(100));

    let Some(python) = python() else { return };
    let output = finish(Command::new(python).args(["-c", WRONG_BLOCKS, &server.address.to_string()]));
    let said = text(&output);
    let lines: Vec<&str> = said.lines().collect();
    let expect = [
        ("columns", &["sent: (id INT", "(id BIGINT NOT NULL, customer STRING, amount DOUBLE)"][..]),
        ("name", &["did you mean 'orders'?"]),
        ("huge", &["smaller record batches"]),
        ("gap", &["go on from row 0"]),
    ];
    for (case, parts) in expect {
        let line = lines.iter().find(|l| l.starts_with(case)).unwrap_or_else(|| panic!("no {case} in:\n{said}"));
        for part in parts {
            assert!(line.contains(part), "{part:?} is not in {line}");
        }
    }
    assert_eq!(server.stat("orders", "published_rows"), 1);
    for (reason, times) in [("schema", 2), ("too_large", 2), ("gap", 1)] {
        // The error reaches the publisher before its task has counted it, or after.
        wait_for(reason, || server.stat("orders", &format!("refused_{reason}")) == times);
    }
    assert_eq!(server.get("/v1/jobs/clients")["restarts"], 0);
}

/// Publishes what the server must refuse, and prints what it says: a line each.
const WRONG_BLOCKS: &str = r#"
import json, sys
import pyarrow as pa, pyarrow.flight as flight
client = flight.connect("grpc://" + sys.argv[1])
def attempt(case, path, block, note=b""):
    try:
        writer, answers = client.do_put(flight.FlightDescriptor.for_path(*path), block.schema)
        with writer:
            answers.read()
            writer.write_with_metadata(block, note)
            writer.done_writing()
            while answers.read() is not None: pass
        print(case, "was taken")
    except Exception as error:
        print(case, str(error).replace("\n", " "))
def block(rows, text):
    names = ["id", "customer", "amount"]
    columns = [pa.array(range(rows), pa.int64()), pa.array([text] * rows), pa.array([1.0] * rows)]
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("customer", pa.string()), ("amount", pa.float64())])
    return pa.record_batch(columns, schema=schema)
attempt("columns", ["orders"], pa.record_batch([pa.array([1], pa.int32()), pa.array(["x"])], names=["id", "custmer"]))
attempt("name", ["order"], block(1, "x"))
attempt("huge", ["orders"], block(3000, "x" * 1000))
attempt("gap", ["orders", "p"], block(1, "x"), json.dumps({"offset": 5}).encode())
"#;

#[test]
fn half_an_event_is_no_event() {
    let scratch = Scratch::new("serve-half");
    let server = Server::start(&scratch, &[&example().display().to_string(), "--state-dir", &scratch.at("state")]);
    server.wait_example();
    // A request that announces more than it sends, and goes away: nothing of it was taken.
    let body = orders(100, 50);
    let mut stream = server.connect();
    let length = body.len() + 1000;
    let head = format!("host: {}\r\ncontent-type: application/x-ndjson\r\ncontent-length: {length}\r\n\r\n", server.address);
    write!(stream, "POST /v1/streams/orders HTTP/1.1\r\n{head}{body}").expect("the server reads");
    stream.shutdown(std::net::Shutdown::Write).expect("half a connection");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.is_empty() || answer.contains(" 400 "), "{answer}");
    server.post("/v1/streams/orders?wait=ack", &order(7));
    assert_eq!(server.stat("orders", "published_rows"), 1);
    let rows = server.get("/v1/streams/per_customer/rows");
    assert_eq!(rows.as_array().map(Vec::len), Some(1), "{rows}");
}

/// The other half of a text may never come: what is there of it must not be held for ever.
#[test]
fn a_text_that_stops_in_the_middle_is_given_up() {
    let scratch = Scratch::new("serve-stops");
    let server = Server::start(&scratch, &[&example().display().to_string(), "--state-dir", &scratch.at("state")]);
    server.wait_example();
    let mut stream = server.connect();
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    let head = format!("host: {}\r\ncontent-type: application/x-ndjson\r\ncontent-length: 1000\r\n\r\n", server.address);
    write!(stream, "POST /v1/streams/orders HTTP/1.1\r\n{head}{}", order(1)).expect("the server reads");
    let mut status = [0; 12];
    stream.read_exact(&mut status).expect("an answer");
    assert_eq!(&status, b"HTTP/1.1 408");
    assert_eq!(server.metric("tidemill_request_errors_total{status=\"408\"}"), 1.0);
    assert_eq!(server.stat("orders", "published_rows"), 0);
}
