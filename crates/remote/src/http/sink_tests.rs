//! Tests of the sink against a server that answers as a script says.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use arrow::datatypes::{DataType, Field, Schema};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tidemill_block::text;
use tidemill_connect::{Polled, ReadRequest, ReaderContext, SinkContext, Waker, Writer};

use super::*;
use crate::fixture::{AUTHORITY, OTHER_AUTHORITY, encryption};

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("k", DataType::Utf8, true), Field::new("n", DataType::Int64, true)]))
}

/// What the server does with a request.
#[derive(Clone)]
enum Step {
    /// Answers with this status line, headers and text.
    Say(&'static str, &'static str, String),
    /// Closes the connection.
    Drop,
    /// Does not answer for as long as the test runs.
    Hang,
    /// Answers 200 when as many requests as this are there.
    Meet(Arc<Barrier>),
}

fn say(status: &'static str) -> Step {
    Step::Say(status, "", String::new())
}

#[derive(Clone, Debug, Default)]
struct Received {
    line: String,
    headers: Vec<String>,
    body: String,
}

impl Received {
    fn header(&self, name: &str) -> &str {
        let prefix = format!("{name}: ");
        self.headers.iter().find_map(|h| h.strip_prefix(&prefix)).unwrap_or_default()
    }
}

/// Takes the steps one after the other, a request each, then says 200 to all.
struct Server {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Server {
    fn start(steps: Vec<Step>) -> Self {
        Server::of(steps, None)
    }

    /// One that speaks TLS.
    fn encrypted() -> Self {
        Server::of(Vec::new(), Some(encryption()))
    }

    fn of(steps: Vec<Step>, encryption: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let (all, steps) = (received.clone(), Arc::new(Mutex::new(steps.into_iter())));
        // Lives as long as the process of the tests.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, all, steps, encryption) = (stream.unwrap(), all.clone(), steps.clone(), encryption.clone());
                thread::spawn(move || match encryption {
                    Some(config) => serve(StreamOwned::new(ServerConnection::new(config).unwrap(), stream), &all, &steps),
                    None => serve(stream, &all, &steps),
                });
            }
        });
        Server { address, received }
    }

    fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    fn bodies(&self) -> Vec<String> {
        self.received().into_iter().map(|r| r.body).collect()
    }
}

fn serve(stream: impl Read + Write, all: &Mutex<Vec<Received>>, steps: &Mutex<std::vec::IntoIter<Step>>) {
    let mut stream = BufReader::new(stream);
    let mut request = Received::default();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        match line.trim_end() {
            "" => break,
            line if request.line.is_empty() => request.line = line.to_string(),
            line => {
                let (name, value) = line.split_once(": ").unwrap();
                request.headers.push(format!("{}: {value}", name.to_ascii_lowercase()));
            }
        }
    }
    let mut body = vec![0; request.header("content-length").parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    request.body = String::from_utf8_lossy(&body).into_owned();
    // Both at once, so that requests that come together keep their steps.
    let step = {
        let mut all = all.lock().unwrap();
        all.push(request);
        steps.lock().unwrap().next().unwrap_or(say("200 OK"))
    };
    let (status, headers, text) = match step {
        Step::Drop => return,
        Step::Hang => return thread::sleep(Duration::from_secs(3600)),
        Step::Meet(barrier) => {
            barrier.wait();
            ("200 OK", "", String::new())
        }
        Step::Say(status, headers, text) => (status, headers, text),
    };
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n{headers}\r\n{text}", text.len());
    let _ = stream.get_mut().write_all(answer.as_bytes()).and_then(|()| stream.get_mut().flush());
}

fn sink(address: SocketAddr, more: &[(&str, &str)]) -> Box<dyn Sink> {
    let url = format!("http://{address}/in?x=1");
    let mut pairs = vec![("url", url.as_str()), ("retry.backoff", "1 ms"), ("format", "json")];
    pairs.retain(|(name, _)| !more.iter().any(|(given, _)| given == name));
    pairs.extend(more);
    let mut raw = RawOptions::new("table 't'", pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())));
    let sink = CONNECTOR.sink(&schema(), &mut raw).unwrap();
    raw.finish().unwrap();
    sink
}

fn context() -> SinkContext {
    SinkContext { shard: 2, shards: 3, schema: schema(), run_id: "run".into(), cancelled: Arc::new(AtomicBool::new(false)) }
}

fn writer(server: &Server, more: &[(&str, &str)]) -> Box<dyn Writer> {
    sink(server.address, more).writer(context()).unwrap()
}

#[test]
fn rows_are_sent_in_batches() {
    let server = Server::start(Vec::new());
    let mut writer = writer(&server, &[("batch.rows", "2"), ("headers", "X-Key: a;; b"), ("token", "geheim"), ("method", "put")]);
    writer.write(&text::parse(&schema(), "a 1\nb 2\nc 3")).unwrap();
    writer.write(&text::parse(&schema(), "d 4\nNULL 5")).unwrap();
    writer.prepare(false).unwrap();
    let lines = |text: &str| text.replace(' ', "\n") + "\n";
    let expect = ["{\"k\":\"a\",\"n\":1} {\"k\":\"b\",\"n\":2}", "{\"k\":\"c\",\"n\":3} {\"k\":\"d\",\"n\":4}", "{\"k\":null,\"n\":5}"];
    assert_eq!(server.bodies(), expect.map(lines));
    for (n, request) in server.received().iter().enumerate() {
        assert_eq!(request.line, "PUT /in?x=1 HTTP/1.1");
        assert_eq!(request.header("content-type"), "application/x-ndjson");
        assert_eq!((request.header("x-key"), request.header("authorization")), ("a; b", "Bearer geheim"));
        assert_eq!(request.header("idempotency-key"), format!("run-2-{n}"));
    }
    assert_eq!(writer.stats().bytes, server.bodies().iter().map(|b| b.len() as u64).sum::<u64>());
    // Nothing more to send: nothing is sent.
    writer.prepare(false).unwrap();
    writer.write(&text::parse(&schema(), "e 6")).unwrap();
    writer.flush().unwrap();
    writer.prepare(true).unwrap();
    assert_eq!(server.bodies().len(), 4);
}

#[test]
fn csv_bodies_begin_with_the_header() {
    let server = Server::start(Vec::new());
    let more = [("format", "csv"), ("csv.header", "true"), ("batch.rows", "1"), ("headers", "content-type: text/x")];
    let mut writer = writer(&server, &more);
    writer.write(&text::parse(&schema(), "a 1\nb 2")).unwrap();
    writer.prepare(true).unwrap();
    assert_eq!(server.bodies(), ["k,n\na,1\n", "k,n\nb,2\n"]);
    assert_eq!(server.received()[0].header("content-type"), "text/x");
}

#[test]
fn what_may_pass_is_tried_again() {
    let later = Step::Say("429 Too Many Requests", "Retry-After: 0\r\n", String::new());
    let server =
        Server::start(vec![say("503 Service Unavailable"), later, Step::Drop, say("500 Oh"), say("204 No Content"), say("200 OK")]);
    let mut writer = writer(&server, &[("batch.rows", "1")]);
    writer.write(&text::parse(&schema(), "a 1\nb 2")).unwrap();
    writer.prepare(true).unwrap();
    let keys: Vec<_> = server.received().iter().map(|r| r.header("idempotency-key").to_string()).collect();
    assert_eq!(keys, ["run-2-0", "run-2-0", "run-2-0", "run-2-0", "run-2-0", "run-2-1"], "in order, each with its key");
    assert!(server.bodies()[..5].iter().all(|b| b == "{\"k\":\"a\",\"n\":1}\n"));
}

/// Writes a row; the error.
fn fails(server: &Server, more: &[(&str, &str)]) -> String {
    let mut writer = writer(server, more);
    writer.write(&text::parse(&schema(), "a 1")).unwrap();
    writer.prepare(false).unwrap_err().to_string()
}

#[test]
fn what_will_not_pass_fails() {
    let long = format!("{}ENDS", "x".repeat(196)) + "HERE";
    let server = Server::start(vec![Step::Say("422 Unprocessable Entity", "", long)]);
    let error = fails(&server, &[]);
    let begin = format!("sending 1 row to http://{}/in?x=1: the server answers 422 Unprocessable Entity: xxx", server.address);
    assert!(error.starts_with(&begin) && error.ends_with("xENDS"), "{error}");
    assert_eq!(server.received().len(), 1, "tried once");
    let server = Server::start(vec![Step::Say("307 Temporary Redirect", "Location: /there\r\n", String::new())]);
    assert!(fails(&server, &[]).contains("redirects are not followed"));
    let server = Server::start(vec![say("503 Gone Fishing"); 3]);
    let error = fails(&server, &[("retry.attempts", "2")]);
    assert!(error.contains("503") && error.ends_with("tried 3 times in vain, see 'retry.attempts'"), "{error}");
    let server = Server::start(vec![Step::Hang]);
    let error = fails(&server, &[("retry.attempts", "0"), ("timeout", "20 ms")]);
    assert!(error.contains("timeout") && error.ends_with("'retry.attempts' = 0 says not to try again"), "{error}");
    let nobody = Server { address: TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap(), received: Arc::default() };
    assert!(fails(&nobody, &[("retry.attempts", "1")]).contains("tried 2 times in vain"));
}

#[test]
fn a_server_must_show_a_certificate_of_the_authority() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_string()
    };
    let (right, wrong) = (file("right.pem", AUTHORITY), file("wrong.pem", OTHER_AUTHORITY));
    let server = Server::encrypted();
    let url = format!("https://{}/in", server.address);
    let mut writer = writer(&server, &[("url", &url), ("ca-file", &right)]);
    writer.write(&text::parse(&schema(), "a 1")).unwrap();
    writer.prepare(true).unwrap();
    assert_eq!(server.bodies(), ["{\"k\":\"a\",\"n\":1}\n"]);
    let error = fails(&server, &[("url", &url), ("ca-file", &wrong)]);
    assert!(error.contains("invalid peer certificate") && !error.contains("tried"), "{error}");
    assert_eq!(server.bodies().len(), 1, "nobody else has got a row");
}

#[test]
fn a_writer_that_failed_says_so_again() {
    let server = Server::start(vec![say("400 Bad Request")]);
    let mut writer = writer(&server, &[]);
    writer.write(&text::parse(&schema(), "a 1")).unwrap();
    writer.prepare(false).unwrap_err();
    assert!(writer.write(&text::parse(&schema(), "b 2")).unwrap_err().to_string().contains("400 Bad Request"));
}

#[test]
fn a_job_that_is_stopped_waits_for_nobody() {
    let server = Server::start(vec![Step::Hang]);
    let context = context();
    let cancelled = context.cancelled.clone();
    let mut writer = sink(server.address, &[]).writer(context).unwrap();
    writer.write(&text::parse(&schema(), "a 1")).unwrap();
    let waiting = thread::spawn(move || writer.prepare(false).unwrap_err().to_string());
    cancelled.store(true, Ordering::Relaxed);
    assert!(waiting.join().unwrap().contains("the job was stopped"));
}

#[test]
fn requests_may_be_on_their_way_together() {
    let barrier = Arc::new(Barrier::new(3));
    let server = Server::start(vec![Step::Meet(barrier.clone()), Step::Meet(barrier.clone()), Step::Meet(barrier)]);
    let mut writer = writer(&server, &[("batch.rows", "1"), ("requests.parallel", "3")]);
    writer.write(&text::parse(&schema(), "a 1\nb 2\nc 3\nd 4")).unwrap();
    writer.prepare(true).unwrap();
    let mut bodies = server.bodies();
    bodies.sort();
    assert_eq!(bodies.len(), 4);
    assert!(bodies[0].contains("\"a\"") && bodies[3].contains("\"d\""));
}

/// What a sink sends, a source takes.
#[test]
fn sink_and_source_understand_each_other() {
    for format in ["json", "csv", "arrow"] {
        let address = {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap()
        };
        let port = address.port().to_string();
        let pairs = [("port", port.as_str()), ("path", "/in"), ("format", format)];
        let mut raw = RawOptions::new("table 't'", pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())));
        let source = CONNECTOR.source(&schema(), &mut raw).unwrap();
        let reader = ReaderContext { waker: Waker::noop(), request: ReadRequest::all(schema()), shard: 0, shards: 1 };
        let mut reader = source.open(&source.splits(1).unwrap()[0], reader).unwrap();
        let url = format!("http://{address}/in");
        let mut writer = sink(address, &[("format", format), ("url", &url), ("batch.rows", "100")]).writer(context()).unwrap();
        let rows: String = (0..1000).map(|n| format!("k{n} {n}\n")).collect();
        writer.write(&text::parse(&schema(), &rows)).unwrap();
        writer.prepare(true).unwrap();
        let mut found = String::new();
        while let Polled::Rows(rows) = reader.poll(300).unwrap() {
            found += &text::format(&tidemill_block::Block::inserts(rows.batch, 0));
        }
        assert!(found == rows.lines().map(|line| format!("+I {line}\n")).collect::<String>(), "{format}: every row once, in order");
    }
}

#[track_caller]
fn check_error(pairs: &[(&str, &str)], expect: &str) {
    let mut raw = RawOptions::new("table 't'", pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())));
    let error = CONNECTOR.sink(&schema(), &mut raw).err().expect("an error").to_string();
    assert!(error.starts_with(expect), "{error}");
}

#[test]
fn mistakes_in_options() {
    check_error(&[("format", "json")], "table 't': option 'url' is required");
    check_error(&[("format", "json"), ("url", "h:1/a")], "table 't': option 'url': expected an address such as");
    check_error(&[("format", "json"), ("url", "http://h/"), ("headers", "x")], "table 't': option 'headers': expected 'Name: value");
    check_error(&[("format", "json"), ("url", "http://h/"), ("ca-file", "x")], "table 't': option 'ca-file': certificates are of use with");
    check_error(&[("format", "json"), ("url", "https://h/"), ("ca-file", "/no/such")], "table 't': reading the certificates in '/no/such'");
    check_error(&[("url", "http://h/")], "table 't': option 'format' is required");
}
