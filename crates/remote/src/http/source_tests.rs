//! Tests of the source over the loopback interface: each answer, bad records, commits, peers that fall
//! silent, several tables at one address.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::ipc::writer::StreamWriter;
use serde_json::{Value, json};
use tidemill_block::{Block, text};
use tidemill_connect::listeners::ListenerStats;
use tidemill_connect::{Polled, ReadRequest, Reader, ReaderContext, Waker, listeners};
use tidemill_format::compression::{Compression, writer};

use super::source::{HttpReader, HttpSource};
use super::*;

/// Not a bound on time: what takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);
const LINES: &str = "application/x-ndjson";

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("k", DataType::Utf8, true), Field::new("n", DataType::Int64, true)]))
}

fn local() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn source(address: SocketAddr, more: &[(&str, &str)]) -> HttpSource {
    let port = address.port().to_string();
    let pairs = [("hostname", "127.0.0.1"), ("port", port.as_str()), ("path", "/t")];
    let mut all: std::collections::BTreeMap<&str, &str> = pairs.into_iter().chain([("format", "json")]).collect();
    all.extend(more.iter().copied());
    let mut raw = RawOptions::new("table 't'", all.into_iter().map(|(k, v)| (k.to_string(), v.to_string())));
    let options = HttpOptions::checked_source(&mut raw).unwrap();
    let format = Format::take(&mut raw).unwrap();
    raw.clone().finish().unwrap();
    HttpSource::new(options, format, raw.owner()).unwrap()
}

/// A reader and what it has given so far.
struct Reading {
    reader: HttpReader,
    woken: mpsc::Receiver<()>,
    rows: Vec<String>,
    bad: Vec<(String, String, String)>,
    bytes: u64,
}

fn open(source: &HttpSource, socket: Option<TcpListener>, last: u64) -> Result<Reading, String> {
    let (sender, woken) = mpsc::channel();
    let waker = Waker::new(move || {
        let _ = sender.send(());
    });
    let context = ReaderContext { waker, request: ReadRequest::all(schema()), shard: 0, shards: 1 };
    let mut split = source.splits(3).unwrap().remove(0);
    split.position = (last > 0).then(|| json!({"requests": last}));
    let reader = source.read(&split, context, socket).map_err(|e| e.to_string())?;
    Ok(Reading { reader, woken, rows: Vec::new(), bad: Vec::new(), bytes: 0 })
}

impl Reading {
    /// Polls until `enough` and nothing is left.
    fn until(&mut self, rows_max: usize, enough: impl Fn(&Self) -> bool) {
        loop {
            match self.reader.poll(rows_max).unwrap() {
                Polled::Pending if enough(self) => return,
                Polled::Pending => self.woken.recv_timeout(PATIENCE).expect("a reader that waits is woken"),
                Polled::End => panic!("such a source does not end"),
                Polled::Rows(rows) => {
                    assert!(rows.batch.num_rows() <= rows_max && rows.bad.len() == rows.places.len());
                    self.bytes += rows.bytes;
                    self.rows.extend(text::format(&Block::inserts(rows.batch, 0)).lines().map(String::from));
                    self.bad.extend(
                        rows.bad.into_iter().zip(rows.places).map(|(b, place)| (place, b.reason, String::from_utf8(b.raw).unwrap())),
                    );
                }
            }
        }
    }
}

/// A table with one reader.
fn table(more: &[(&str, &str)]) -> (HttpSource, Reading, SocketAddr) {
    let (socket, address) = local();
    let source = source(address, more);
    let reading = open(&source, Some(socket), 0).unwrap();
    (source, reading, address)
}

fn agent() -> ureq::Agent {
    ureq::Agent::config_builder().http_status_as_error(false).proxy(None).timeout_global(Some(PATIENCE)).build().into()
}

/// Sends a request with these headers; its status and answer.
fn send(address: SocketAddr, path: &str, headers: &[(&str, &str)], body: &[u8]) -> (u16, Value) {
    let mut request = agent().post(format!("http://{address}{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut answer = request.send(body).unwrap();
    let status = answer.status().as_u16();
    let text = answer.body_mut().read_to_string().unwrap();
    (status, serde_json::from_str(&text).unwrap_or_else(|e| panic!("{text}: {e}")))
}

fn post(address: SocketAddr, path: &str, content_type: &str, body: &[u8]) -> (u16, Value) {
    send(address, path, &[("Content-Type", content_type)], body)
}

#[track_caller]
fn check(address: SocketAddr, path: &str, headers: &[(&str, &str)], body: &[u8], status: u16, says: &str) {
    let (found, text) = send(address, path, headers, body);
    assert!(found == status && text.to_string().contains(says), "{found} {text}");
}

fn arrow(numbers: std::ops::Range<i64>) -> Vec<u8> {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
    let batch = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

#[test]
fn bodies_of_every_kind() {
    for rows_max in [1, 2, 100] {
        let (_source, mut reading, address) = table(&[]);
        assert_eq!(post(address, "/t", LINES, b"{\"k\":\"a\",\"n\":1}\n\n{\"k\":\"b\"}"), (202, json!({"queued": 26})));
        assert_eq!(post(address, "/t", "application/json", b"[{\"n\":\n2}, {\"n\":3}]").0, 202);
        assert_eq!(post(address, "/t", "application/vnd.apache.arrow.stream", &arrow(4..9)).0, 202);
        assert_eq!(post(address, "/t", LINES, b"").0, 202);
        let put = agent().put(format!("http://{address}/t")).header("Content-Type", LINES).send("{\"n\":9}").unwrap();
        assert_eq!(put.status().as_u16(), 202);
        reading.until(rows_max, |r| r.rows.len() == 10);
        let expect =
            ["+I a 1", "+I b NULL", "+I NULL 2", "+I NULL 3", "+I NULL 4", "+I NULL 5", "+I NULL 6", "+I NULL 7", "+I NULL 8", "+I NULL 9"];
        assert_eq!(reading.rows, expect);
        assert_eq!((reading.bad.len(), reading.reader.position()), (0, json!({"requests": 5})));
        assert_eq!(reading.bytes, 26 + 19 + arrow(4..9).len() as u64 + 7);
    }
}

#[test]
fn csv_by_the_options_of_the_table() {
    let (_source, mut reading, address) = table(&[("format", "csv"), ("csv.field-delimiter", ";"), ("csv.header", "true")]);
    assert_eq!(post(address, "/t", "text/csv", b"k;n\na;1\nb;2").0, 202);
    check(address, "/t", &[("Content-Type", "text/csv")], b"n;k\n1;a\n", 400, "the header line names the columns (n, k)");
    check(address, "/t", &[("Content-Type", LINES)], b"{}", 415, "text/csv or application/vnd.apache.arrow.stream");
    reading.until(100, |r| r.rows.len() == 2);
    assert_eq!(reading.rows, ["+I a 1", "+I b 2"]);
    let (_source, mut reading, address) = table(&[("format", "arrow")]);
    check(address, "/t", &[("Content-Type", "text/csv")], b"a,1", 415, "send application/vnd.apache.arrow.stream");
    assert_eq!(post(address, "/t", "application/vnd.apache.arrow.stream", &arrow(0..1)).0, 202);
    reading.until(100, |r| r.rows == ["+I NULL 0"]);
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn packed(text: &str, packing: Compression) -> Vec<u8> {
    let shared = Shared::default();
    let mut writer = writer(Box::new(shared.clone()), packing, None).unwrap();
    writer.write_all(text.as_bytes()).unwrap();
    writer.finish().unwrap();
    std::mem::take(&mut *shared.0.lock().unwrap())
}

#[test]
fn packed_bodies() {
    let (_source, mut reading, address) = table(&[("max-body-size", "1000")]);
    let headers = |name| [("Content-Type", LINES), ("Content-Encoding", name)];
    check(address, "/t", &headers("gzip"), &packed("{\"n\":1}", Compression::Gzip), 202, "7");
    check(address, "/t", &headers("zstd"), &packed("{\"n\":2}", Compression::Zstd), 202, "7");
    check(address, "/t", &headers("gzip"), &packed(&" ".repeat(10_000), Compression::Gzip), 413, "longer than 1000 bytes");
    check(address, "/t", &headers("gzip"), b"{\"n\":3}", 400, "gzip");
    check(address, "/t", &headers("br"), b"{\"n\":3}", 415, "Content-Encoding 'br'");
    reading.until(100, |r| r.rows == ["+I NULL 1", "+I NULL 2"]);
}

#[test]
fn refusals() {
    let (_source, mut reading, address) = table(&[("token", "geheim"), ("max-body-size", "100")]);
    let good = [("Content-Type", LINES), ("Authorization", "Bearer geheim")];
    check(address, "/t", &good[..1], b"{}", 401, "Authorization: Bearer");
    check(address, "/t", &[good[0], ("Authorization", "Bearer x")], b"{}", 401, "token");
    check(address, "/u", &good, b"{}", 404, "no table reads the path '/u'");
    check(address, "/t/", &good, b"{}", 404, "'/t/'");
    check(address, "/t", &[good[1], ("Content-Type", "text/plain")], b"{}", 415, "'text/plain'");
    check(address, "/t?wait=never", &good, b"{}", 400, "'wait=never' is not understood");
    check(address, "/t", &[good[1], ("Content-Type", "application/json")], b"[{}", 400, "the array is not closed");
    check(address, "/t", &[good[1], ("Content-Type", "application/vnd.apache.arrow.stream")], b"ARROW1", 400, "nothing of it was taken");
    check(address, "/t", &good, &[b' '; 101], 413, "longer than 100 bytes");
    let get = agent().get(format!("http://{address}/t")).header("Authorization", "Bearer geheim").call().unwrap();
    assert_eq!((get.status().as_u16(), get.headers()["allow"].to_str().unwrap()), (405, "POST, PUT"));
    // A body whose length nobody has announced.
    let mut peer = TcpStream::connect(address).unwrap();
    let head = format!(
        "POST /t HTTP/1.1\r\nHost: h\r\nAuthorization: {}\r\nContent-Type: {LINES}\r\nTransfer-Encoding: chunked\r\n\r\n",
        good[1].1
    );
    peer.write_all(format!("{head}60\r\n{0}\r\n60\r\n{0}\r\n", " ".repeat(0x60)).as_bytes()).unwrap();
    assert!(status_line(&mut peer).starts_with("HTTP/1.1 413 "));
    check(address, "/t", &good, b"{\"n\":1}", 202, "queued");
    reading.until(100, |r| r.rows == ["+I NULL 1"]);
    assert_eq!(stats(address).refused, 11);
}

/// What a listener has counted.
fn stats(address: SocketAddr) -> ListenerStats {
    listeners::stats().get(&address.to_string()).copied().unwrap_or_default()
}

fn status_line(peer: &mut TcpStream) -> String {
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut line = String::new();
    BufReader::new(peer).read_line(&mut line).unwrap();
    line
}

#[test]
fn bad_records_are_the_job_s() {
    let (_source, mut reading, address) = table(&[]);
    let waiting = thread::spawn(move || post(address, "/t", LINES, b"{\"n\":1}\n{\"n\":\"x\"}\n{\"n\":2}\n{\"n\":"));
    assert_eq!(waiting.join().unwrap().0, 202);
    assert_eq!(post(address, "/t", "application/json", b"[{\"n\":3}, 4]").0, 202);
    reading.until(2, |r| r.bad.len() == 3);
    assert_eq!(reading.rows, ["+I NULL 1", "+I NULL 2", "+I NULL 3"]);
    let places: Vec<_> = reading.bad.iter().map(|(place, _, raw)| (place.split_once(' ').unwrap().1, raw.trim())).collect();
    assert_eq!(places, [("request 1 record 2", "{\"n\":\"x\"}"), ("request 1 record 4", "{\"n\":"), ("request 2 record 2", "4")]);
    assert!(reading.bad.iter().all(|(place, ..)| place.starts_with("127.0.0.1:")));
}

#[test]
fn a_full_queue_is_told() {
    let (_source, mut reading, address) = table(&[("queue.bytes", "600"), ("queue.timeout", "1 ms")]);
    let large = format!("{{\"n\":1}}{}", " ".repeat(1000));
    assert_eq!(post(address, "/t", LINES, large.as_bytes()).0, 202, "what is larger than the queue takes all of it");
    let full = agent().post(format!("http://{address}/t")).header("Content-Type", LINES).send("{\"n\":2}").unwrap();
    assert_eq!((full.status().as_u16(), full.headers()["retry-after"].to_str().unwrap()), (503, "1"));
    reading.until(100, |r| r.rows.len() == 1);
    assert_eq!(post(address, "/t", LINES, b"{\"n\":3}").0, 202);
    reading.until(100, |r| r.rows.len() == 2);
    assert_eq!(reading.rows, ["+I NULL 1", "+I NULL 3"]);
}

/// Begins a request whose body has so many bytes.
fn begin(address: SocketAddr, length: usize, more: &str) -> TcpStream {
    let mut peer = TcpStream::connect(address).unwrap();
    let head = format!("POST /t HTTP/1.1\r\nHost: h\r\nContent-Type: {LINES}\r\nContent-Length: {length}\r\n{more}\r\n");
    peer.write_all(head.as_bytes()).unwrap();
    peer
}

/// A peer that announced a body as large as the queue and sent nothing of it had the queue for itself for half a minute.
#[test]
fn a_body_that_does_not_come_keeps_nobody_waiting() {
    let (_source, mut reading, address) = table(&[("queue.bytes", "1000000"), ("queue.timeout", "1 ms")]);
    let mut silent = begin(address, 64 << 20, "Expect: 100-continue\r\n");
    // It has its room now.
    assert!(status_line(&mut silent).starts_with("HTTP/1.1 100 "));
    assert_eq!(post(address, "/t", LINES, b"{\"n\":1}").0, 202);
    reading.until(100, |r| r.rows == ["+I NULL 1"]);
}

/// Two that have come in part, and no room for both: one is refused and gives back what it has, so that the other goes on.
#[test]
fn bodies_that_come_in_part_do_not_wait_for_each_other_for_ever() {
    let (_source, mut reading, address) = table(&[("queue.bytes", "1000000"), ("queue.timeout", "20 ms")]);
    let body = format!("{{\"n\":1}}{}", "\n".repeat(899_993)).into_bytes();
    // With a quarter of the queue each asks for room for all of itself: the first gets it, the other waits.
    let sent = [600_000, 300_000];
    let mut peers = sent.map(|bytes| {
        let mut peer = begin(address, body.len(), "");
        peer.write_all(&body[..bytes]).unwrap();
        peer.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        peer
    });
    let began = Instant::now();
    let refused = loop {
        assert!(began.elapsed() < PATIENCE);
        if let Some(found) = peers.iter().position(|peer| peer.peek(&mut [0]).is_ok()) {
            break found;
        }
    };
    assert!(status_line(&mut peers[refused]).starts_with("HTTP/1.1 503 "));
    let other = 1 - refused;
    peers[other].write_all(&body[sent[other]..]).unwrap();
    assert!(status_line(&mut peers[other]).starts_with("HTTP/1.1 202 "));
    reading.until(100, |r| r.rows == ["+I NULL 1"]);
}

/// Each held room for what had come of it and waited for the rest: nothing moved for as long as 'queue.timeout' allowed, though
/// the job had nothing to do.
#[test]
fn of_large_bodies_one_comes_after_the_other() {
    let more = [("queue.bytes", "1000000"), ("queue.timeout", "600 s"), ("request.timeout", "600 s")];
    let (_source, mut reading, address) = table(&more);
    let body = format!("{{\"n\":1}}{}", "\n".repeat(699_993)).into_bytes();
    let (begin, end) = body.split_at(450_000);
    let chunk = |bytes: &[u8], end: &str| [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n", end.as_bytes()].concat();
    let announced = ("Content-Length: 700000", begin.to_vec(), end.to_vec());
    let unknown = ("Transfer-Encoding: chunked", chunk(begin, ""), chunk(end, "0\r\n\r\n"));
    let pairs = [[&announced, &announced], [&unknown, &unknown], [&announced, &unknown]];
    for (number, pair) in pairs.into_iter().enumerate() {
        let peers = pair.map(|(length, begin, end)| {
            let mut peer = TcpStream::connect(address).unwrap();
            peer.write_all(format!("POST /t HTTP/1.1\r\nHost: h\r\nContent-Type: {LINES}\r\n{length}\r\n\r\n").as_bytes()).unwrap();
            peer.write_all(begin).unwrap();
            (peer, end.clone())
        });
        // Until so much of both has come.
        thread::sleep(Duration::from_millis(200));
        let rest = peers.map(|(mut peer, end)| {
            thread::spawn(move || {
                peer.write_all(&end).unwrap();
                status_line(&mut peer)
            })
        });
        reading.until(100, |r| r.rows.len() == 2 * (number + 1));
        for answer in rest {
            assert!(answer.join().unwrap().starts_with("HTTP/1.1 202 "));
        }
    }
}

fn commit(address: SocketAddr) -> JoinHandle<(u16, Value)> {
    thread::spawn(move || post(address, "/t?wait=commit", LINES, b"{\"n\":1}\nx\n{\"n\":2}"))
}

#[test]
fn an_answer_waits_for_the_commit() {
    let (source, mut reading, address) = table(&[]);
    let waiting = commit(address);
    reading.until(1, |r| r.rows.len() == 2);
    assert!(source.wants_checkpoint() && !source.wants_checkpoint(), "asked for once");
    source.committed(&[json!({"requests": 0}), Value::Null]);
    assert!(!waiting.is_finished());
    source.committed(&[reading.reader.position()]);
    assert_eq!(waiting.join().unwrap(), (200, json!({"committed": 17, "rows": 2, "bad_records": 1})));
    // Nobody waits, nobody asks.
    assert_eq!(post(address, "/t", LINES, b"{}").0, 202);
    reading.until(1, |r| r.rows.len() == 3);
    assert!(!source.wants_checkpoint());
}

#[test]
fn an_answer_by_the_option() {
    let (socket, address) = local();
    let source = source(address, &[("answer", "commit")]);
    let mut reading = open(&source, Some(socket), 41).unwrap();
    assert_eq!(post(address, "/t?wait=queued", LINES, b"{}").0, 202);
    let waiting = thread::spawn(move || post(address, "/t", LINES, b"{}"));
    reading.until(1, |r| r.rows.len() == 2);
    assert_eq!(reading.reader.position(), json!({"requests": 43}));
    source.committed(&[json!({"requests": 42})]);
    assert!(!waiting.is_finished());
    // The last checkpoint may be committed when the reader is gone.
    drop(reading);
    source.committed(&[json!({"requests": 43})]);
    assert_eq!(waiting.join().unwrap().0, 200);
}

#[test]
fn an_answer_when_the_job_ends() {
    // Rows that no worker has got.
    let (source, reading, address) = table(&[]);
    let waiting = commit(address);
    reading.woken.recv_timeout(PATIENCE).unwrap();
    drop(reading);
    assert_eq!(waiting.join().unwrap().0, 503);
    drop(source);
    // Rows that no checkpoint covers.
    let (source, mut reading, address) = table(&[]);
    let waiting = commit(address);
    reading.until(100, |r| r.rows.len() == 2);
    drop(reading);
    drop(source);
    let (status, text) = waiting.join().unwrap();
    assert!(status == 503 && text["error"].as_str().unwrap().contains("ended before the rows were committed"), "{text}");
}

#[test]
fn silent_peers_are_let_go() {
    // Long enough that what is said below is said within it, also on a machine that has more to do.
    let (_source, mut reading, address) = table(&[("request.timeout", "3 s")]);
    let mut mute = TcpStream::connect(address).unwrap();
    let mut half = TcpStream::connect(address).unwrap();
    half.write_all(b"POST /t HTTP/1.1\r\nContent-Le").unwrap();
    let mut body = TcpStream::connect(address).unwrap();
    body.write_all(format!("POST /t HTTP/1.1\r\nHost: h\r\nContent-Type: {LINES}\r\nContent-Length: 100\r\n\r\n{{\"n\"").as_bytes())
        .unwrap();
    assert!(status_line(&mut body).starts_with("HTTP/1.1 408 "));
    for peer in [&mut mute, &mut half] {
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        let closed = peer.read(&mut [0; 8]);
        assert!(matches!(&closed, Ok(0)) || closed.as_ref().is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset), "{closed:?}");
    }
    // The third has asked for something and was told.
    assert_eq!((stats(address).silent, stats(address).refused), (2, 1));
    // A peer that breaks off in the middle of a body brings nothing; others are not harmed.
    let mut breaks = TcpStream::connect(address).unwrap();
    breaks
        .write_all(format!("POST /t HTTP/1.1\r\nHost: h\r\nContent-Type: {LINES}\r\nContent-Length: 9\r\n\r\n{{\"n\":9}}").as_bytes())
        .unwrap();
    drop(breaks);
    assert_eq!(post(address, "/t", LINES, b"{\"n\":1}").0, 202);
    reading.until(100, |r| !r.rows.is_empty());
    assert_eq!(reading.rows, ["+I NULL 1"]);
}

#[test]
fn too_many_connections_are_turned_away() {
    let (_source, _reading, address) = table(&[("listener.max-connections", "1")]);
    let mut first = TcpStream::connect(address).unwrap();
    first.write_all(b"GET /t HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    assert!(status_line(&mut first).starts_with("HTTP/1.1 405 "));
    let mut second = TcpStream::connect(address).unwrap();
    second.set_read_timeout(Some(PATIENCE)).unwrap();
    let closed = second.read(&mut [0; 8]);
    assert!(matches!(&closed, Ok(0)) || closed.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset));
    assert_eq!(stats(address).turned_away, 1);
}

#[test]
fn tables_share_an_address() {
    let (socket, address) = local();
    let (a, b) = (source(address, &[("path", "/a")]), source(address, &[("path", "/b")]));
    let mut first = open(&a, Some(socket), 0).unwrap();
    let mut second = open(&b, None, 0).unwrap();
    assert_eq!((post(address, "/a", LINES, b"{\"n\":1}").0, post(address, "/b", LINES, b"{\"n\":2}").0), (202, 202));
    first.until(100, |r| r.rows == ["+I NULL 1"]);
    second.until(100, |r| r.rows == ["+I NULL 2"]);
    let error = open(&source(address, &[("path", "/b")]), None, 0).err().unwrap();
    assert!(error.starts_with(&format!("the path '/b' of {address} is read by table 't' already")), "{error}");
    drop(first);
    assert_eq!((post(address, "/a", LINES, b"{}").0, post(address, "/b", LINES, b"{}").0), (404, 202));
    // A job that starts again finds its path free.
    let mut first = open(&a, None, 1).unwrap();
    assert_eq!(post(address, "/a", LINES, b"{\"n\":3}").0, 202);
    first.until(100, |r| r.rows == ["+I NULL 3"]);
    // With the last table the port is free, though a connection is still there.
    let mut stays = TcpStream::connect(address).unwrap();
    stays.write_all(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    assert!(status_line(&mut stays).starts_with("HTTP/1.1 405 "));
    drop(first);
    drop(second);
    TcpListener::bind(address).expect("the port is free again");
}

#[track_caller]
fn check_error(pairs: &[(&str, &str)], expect: &str) {
    let mut raw = RawOptions::new("table 't'", pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())));
    let error = CONNECTOR.source(&schema(), &mut raw).err().expect("an error").to_string();
    assert!(error.starts_with(expect), "{error}");
}

#[test]
fn mistakes_in_options() {
    check_error(&[("format", "json")], "table 't': option 'port' is required");
    check_error(&[("port", "1")], "table 't': option 'format' is required; it can be json, csv or arrow");
    check_error(&[("port", "1"), ("format", "xml")], "table 't': there is no text format 'xml'");
}
