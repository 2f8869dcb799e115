//! Streams over HTTP from outside: bytes over a socket, as `curl` and browsers speak.

use std::net::SocketAddr;

use arrow::ipc::writer::StreamWriter;
use serde_json::{Value, json};
use tidemill_block::RowKind;
use tidemill_connect::Waker;
use tidemill_hub::{Hub, SubscribeRequest};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::fixture::{ReadJob, WriteJob, batch, schema, serve, serve_starting, serve_within};
use super::*;
use crate::limits::Limits;

/// Sends a request of HTTP/1.1; the connection stays open.
async fn send(address: SocketAddr, head: &str, body: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let length = match body.is_empty() {
        true => String::new(),
        false => format!("content-length: {}\r\n", body.len()),
    };
    socket.write_all(format!("{head}\r\nhost: {address}\r\n{length}\r\n").as_bytes()).await.unwrap();
    socket.write_all(body).await.unwrap();
    socket
}

/// Status and JSON of the answer.
async fn ask(address: SocketAddr, line: &str, content_type: &str, body: &[u8]) -> (u16, Value) {
    let head = format!("{line} HTTP/1.1\r\nconnection: close\r\ncontent-type: {content_type}");
    let mut socket = send(address, &head, body).await;
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head in {answer:?}"));
    (head[9..12].parse().unwrap(), serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {answer}")))
}

/// Reads until `end` has come.
async fn read_until(socket: &mut TcpStream, end: &str) -> String {
    let mut text = Vec::new();
    while !String::from_utf8_lossy(&text).contains(end) {
        let mut bytes = [0; 4096];
        let count = socket.read(&mut bytes).await.unwrap();
        assert!(count > 0, "the connection ended after {:?}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&bytes[..count]);
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_published_with_post() {
    let address = serve().await;
    let mut job = ReadJob::new("http-post");
    let post = async |query: &str, content_type: &str, body: &[u8]| {
        ask(address, &format!("POST /v1/streams/http-post{query}"), content_type, body).await
    };
    let (status, answer) = post("", "application/json", br#"[{"n":1,"s":"a"},{"n":2}]"#).await;
    assert_eq!((status, answer), (200, json!({"rows": 2, "offset": 2})));
    assert_eq!(post("", "text/csv", b"s,n\nx,3\n").await.1["rows"], 1);
    assert_eq!(post("?publisher=p&offset=0", "application/x-ndjson", b"{\"n\":4}\n{\"n\":5}\n").await.1["offset"], 2);
    // Sent again, with one more: the first two are known.
    assert_eq!(post("?publisher=p&offset=0", "application/x-ndjson", b"{\"n\":4}\n{\"n\":5}\n{\"n\":6}").await.1["offset"], 3);
    let mut writer = StreamWriter::try_new(Vec::new(), &schema()).unwrap();
    writer.write(&batch(&[7])).unwrap();
    writer.write(&batch(&[8, 9])).unwrap();
    let arrow = writer.into_inner().unwrap();
    assert_eq!(post("", "application/vnd.apache.arrow.stream", &arrow).await.1["rows"], 3);
    assert_eq!(job.take(9).await, [1, 2, 3, 4, 5, 6, 7, 8, 9]);

    for (query, content_type, body, status, says) in [
        ("", "application/x-ndjson", &b"{\"n\":1}\n{\"n\":true}\n"[..], 400, "record 2"),
        ("", "application/json", &b"[{\"n\":1},{\"s\":\"x\"}]"[..], 400, "row 2: column 'n' is NULL"),
        ("", "text/csv", &b"n,x\n1,2\n"[..], 400, "names a column 'x'"),
        ("", "text/plain", &b"1"[..], 415, "text/plain"),
        ("", "application/vnd.apache.arrow.stream", &arrow[..arrow.len() - 20], 400, "end within"),
        ("?publisher=p&offset=9", "application/json", &b"{\"n\":1}"[..], 409, "row 3 is due"),
        ("?wait=long", "application/json", &b"{\"n\":1}"[..], 400, "wait"),
    ] {
        let (got, answer) = post(query, content_type, body).await;
        assert!(got == status && answer["error"].as_str().unwrap().contains(says), "{says}: {got} {answer}");
    }
    // Only what the cut Arrow stream had whole was taken, and the answer said so.
    assert_eq!(job.take(1).await[..1], [7]);
    let (status, answer) = ask(address, "POST /v1/streams/http-psot", "application/json", b"[]").await;
    assert_eq!((status, answer["help"].as_str().unwrap()), (404, "did you mean 'http-post'?"));
}

/// The name of who counts its rows from request to request was forgotten between two of them, and rows taken twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_those_who_count_stay() {
    let address = serve().await;
    let mut job = ReadJob::new("http-counted");
    for query in ["?publisher=counts&offset=0", "?publisher=does-not"] {
        let (status, answer) = ask(address, &format!("POST /v1/streams/http-counted{query}"), "application/json", b"{\"n\":1}").await;
        assert_eq!((status, answer), (200, json!({"rows": 1, "offset": 1})));
    }
    job.take(2).await;
    let kept = json!({"counts": {"offset": 1, "kept": true}, "does-not": {"offset": 1}});
    assert_eq!(job.position()["publishers"], kept);
}

/// Who was sending a body when the job restarted was told to start it, and took that for a mistake of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_restarts_under_a_body_is_unavailable() {
    let address = serve_starting().await;
    let mut writer = StreamWriter::try_new(Vec::new(), &schema()).unwrap();
    writer.write(&batch(&[1])).unwrap();
    let arrow = writer.into_inner().unwrap();
    for (content_type, body) in [("application/x-ndjson", &b"{\"n\":1}"[..]), ("application/vnd.apache.arrow.stream", &arrow[..])] {
        let job = ReadJob::new("http-restarts");
        let mut socket = TcpStream::connect(address).await.unwrap();
        let head = "POST /v1/streams/http-restarts HTTP/1.1\r\nhost: h\r\nconnection: close\r\nexpect: 100-continue";
        let head = format!("{head}\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n", body.len());
        socket.write_all(head.as_bytes()).await.unwrap();
        // Sent when the body is first read, behind the look whether a job reads the stream.
        read_until(&mut socket, "100 Continue\r\n\r\n").await;
        drop(job);
        socket.write_all(body).await.unwrap();
        let answer = read_until(&mut socket, "try again in a moment").await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    }
}

/// A body that did not come to its end was held for as long as it liked to send a byte now and then, whatever others held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_do_not_end_take_no_more_than_their_room() {
    // Each takes a megabyte in the end: eight of everybody's, and three of the stream's own.
    const HOLD: usize = 8 + 3;
    let patience = Duration::from_millis(200);
    let address = serve_within(Limits { block_bytes: 2 << 20, pending_bytes: 8 << 20, room_patience: patience, ..Limits::default() }).await;
    let (mut job, mut other) = (ReadJob::new("http-room"), ReadJob::new("http-room-other"));
    let (answered, mut answers) = mpsc::unbounded_channel();
    let mut publishers = JoinSet::new();
    for _ in 0..100 {
        let answered = answered.clone();
        publishers.spawn(async move {
            let mut socket = TcpStream::connect(address).await.unwrap();
            let head = "POST /v1/streams/http-room HTTP/1.1\r\nhost: h\r\ncontent-type: application/x-ndjson\r\ncontent-length: 1000000";
            socket.write_all(format!("{head}\r\n\r\n").as_bytes()).await.unwrap();
            // The answer may come before all of it is sent.
            let _ = socket.write_all(&vec![b' '; 900_000]).await;
            let mut answer = [0; 12];
            let whole = socket.read_exact(&mut answer).await.is_ok();
            let _ = answered.send(whole.then(|| String::from_utf8_lossy(&answer[9..]).into_owned()));
        });
    }
    let mut refused = 0;
    for _ in 0..100 - HOLD {
        // None: the connection broke before the answer could be read.
        if let Some(status) = answers.recv().await.expect("publishers that are answered or wait") {
            assert_eq!(status, "503");
            refused += 1;
        }
    }
    assert!(refused > 0, "nobody was told");
    // Those of another stream do not wait for these.
    let post = async |stream: &str| ask(address, &format!("POST /v1/streams/{stream}"), "application/x-ndjson", b"{\"n\":1}").await.0;
    assert_eq!(post("http-room-other").await, 200);
    assert_eq!(other.take(1).await, [1]);
    // When they are gone, others have their room.
    drop(publishers);
    while post("http-room").await == 503 {}
    assert_eq!(job.take(1).await, [1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publisher_may_wait_until_rows_are_safe() {
    let address = serve().await;
    let mut job = ReadJob::new("http-ack");
    let publisher = async { ask(address, "POST /v1/streams/http-ack?wait=ack", "application/json", b"{\"n\":1}").await };
    let checkpoint = async {
        assert_eq!(job.take(1).await, [1]);
        job.checkpoint().await;
    };
    let ((status, answer), ()) = tokio::join!(publisher, checkpoint);
    assert_eq!((status, answer), (200, json!({"rows": 1, "offset": 1, "acknowledged": 1})));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_stream_is_and_holds() {
    let address = serve().await;
    let mut job = WriteJob::new("http-view", &[("stream.snapshot", "true"), ("stream.primary-key", "n")], true);
    job.change(&[(RowKind::Insert, 1), (RowKind::Insert, 2), (RowKind::Delete, 1)]);
    let get = async |path: &str| ask(address, &format!("GET /v1/streams{path}"), "text/plain", b"").await;
    assert_eq!(get("/http-view/rows").await, (200, json!([{"n": 2, "s": "s2"}])));
    assert_eq!(get("/http-view/rows?limit=0").await.0, 200);
    assert_eq!(get("/http-view/rows?limt=1").await.0, 400);
    let (_, about) = get("/http-view").await;
    let outlet = &about["outlet"];
    assert_eq!((&outlet["updating"], &outlet["primary_key"], &about["inlet"]), (&json!(true), &json!(["n"]), &Value::Null));
    assert_eq!(about["outlet"]["columns"][0], json!({"name": "n", "type": "BIGINT", "nullable": false}));
    assert_eq!(about["outlet"]["columns"][2]["name"], "row_kind");
    let (_, all) = get("").await;
    assert!(all["streams"].as_array().unwrap().iter().any(|s| s["name"] == "http-view"));
    let _plain = WriteJob::new("http-plain", &[], false);
    let (status, answer) = get("/http-plain/rows").await;
    assert!(status == 409 && answer["help"].as_str().unwrap().contains("stream.snapshot"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_come_as_events() {
    let address = serve().await;
    let mut job = WriteJob::new("http-events", &[("stream.snapshot", "true")], true);
    job.change(&[(RowKind::Insert, 1)]);
    let path = "/v1/streams/http-events/events";
    let mut all = send(address, &format!("GET {path}?from=snapshot HTTP/1.1"), b"").await;
    let begun = read_until(&mut all, "\"+I\"}\n\n").await;
    assert!(begun.contains("content-type: text/event-stream"), "{begun}");
    assert!(begun.contains("\ndata: {\"n\":1,\"s\":\"s1\",\"row_kind\":\"+I\"}\n\n"), "{begun}");
    let mut some = send(address, &format!("GET {path}?filter=n%20%3E%205&columns=s&token=x HTTP/1.1"), b"").await;
    read_until(&mut some, ":\n\n").await;
    job.change(&[(RowKind::UpdateBefore, 1), (RowKind::UpdateAfter, 7)]);
    let followed = read_until(&mut all, "\"+U\"}\n\n").await;
    assert!(followed.contains("id: 2\ndata: {\"n\":1,\"s\":\"s1\",\"row_kind\":\"-U\"}\n\nid: 3\ndata: {\"n\":7"), "{followed}");
    let filtered = read_until(&mut some, "id: 3\n\n").await;
    assert!(filtered.contains("data: {\"s\":\"s7\",\"row_kind\":\"+U\"}\n"), "{filtered}");
    drop(job);
    read_until(&mut all, "event: ").await;
    let (status, answer) = ask(address, &format!("GET {path}?from=yesterday"), "text/plain", b"").await;
    assert!(status == 400 && answer["error"].as_str().unwrap().contains("from=yesterday"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_go_on_behind_the_last_one() {
    let address = serve().await;
    let mut job = WriteJob::new("http-resume", &[("stream.delivery", "exactly-once")], false);
    job.write(&[0, 1, 2]);
    job.commit();
    let head = "GET /v1/streams/http-resume/events HTTP/1.1\r\nlast-event-id: 2";
    let mut rest = send(address, head, b"").await;
    let text = read_until(&mut rest, "id: 3\n").await;
    assert!(!text.contains("id: 2\n"), "{text}");
}

/// Names of any length were kept, and an empty one, which no address of `DELETE` can name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_subscribers_have_a_length() {
    let address = serve().await;
    let _job = WriteJob::new("http-names", &[("stream.delivery", "exactly-once")], false);
    let path = "/v1/streams/http-names";
    for name in [String::new(), "n".repeat(129)] {
        let (status, answer) = ask(address, &format!("GET {path}/events?name={name}"), "text/plain", b"").await;
        assert!(status == 400 && answer["error"].as_str().unwrap().contains("expected 1 to 128"), "{answer}");
        let upgrade = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13";
        let upgrade = format!("{upgrade}\r\nsec-websocket-key: dGVzdCBvbmUgdHdvIDM0NQ==");
        let mut socket = send(address, &format!("GET {path}/ws?name={name} HTTP/1.1\r\n{upgrade}"), b"").await;
        let answer = read_until(&mut socket, "expected 1 to 128").await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }
    let mut longest = send(address, &format!("GET {path}/events?name={} HTTP/1.1", "n".repeat(128)), b"").await;
    read_until(&mut longest, ":\n\n").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_is_forgotten() {
    let address = serve().await;
    let mut job = WriteJob::new("http-forget", &[("stream.delivery", "exactly-once")], false);
    job.write(&[0, 1, 2]);
    job.commit();
    let stream = Hub::global().stream("http-forget").unwrap();
    let subscribe = |name: &str| {
        let request = SubscribeRequest { from: Start::Earliest, name: Some(name.to_string()), ..SubscribeRequest::default() };
        stream.subscribe(request, Waker::noop()).unwrap().acknowledge(2).unwrap();
    };
    subscribe("gone away");
    subscribe("me");
    let names = async || ask(address, "GET /v1/streams/http-forget", "text/plain", b"").await.1["subscriptions"].clone();
    assert_eq!(names().await, json!({"gone away": 2, "me": 2}));
    let mut socket = send(address, "DELETE /v1/streams/http-forget/subscriptions/gone%20away HTTP/1.1", b"").await;
    read_until(&mut socket, "HTTP/1.1 204 ").await;
    assert_eq!(names().await, json!({"me": 2}));
    let delete = async |path: &str| ask(address, &format!("DELETE /v1/streams/{path}"), "text/plain", b"").await;
    for (path, status, says) in [
        ("http-forget/subscriptions/gone%20away", 404, "no subscriber 'gone away'"),
        ("http-froget/subscriptions/me", 404, "no stream 'http-froget'"),
    ] {
        let (got, answer) = delete(path).await;
        assert!(got == status && answer["error"].as_str().unwrap().contains(says), "{path}: {got} {answer}");
    }
    drop(job);
    assert_eq!(delete("http-forget/subscriptions/me").await.0, 409, "nobody has its log open");
}

/// A frame as clients send it: masked, here with zeros.
fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    assert!(payload.len() < 126, "short ones only");
    let mut frame = vec![0x80 | opcode, 0x80 | payload.len() as u8, 0, 0, 0, 0];
    frame.extend_from_slice(payload);
    frame
}

async fn websocket(address: SocketAddr, path: &str) -> TcpStream {
    let head = format!(
        "GET {path} HTTP/1.1\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGVzdCBvbmUgdHdvIDM0NQ=="
    );
    let mut socket = send(address, &head, b"").await;
    // Byte by byte, so that nothing of the first message is read with it.
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(socket.read_u8().await.unwrap());
    }
    assert!(answer.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&answer));
    socket
}

/// The next message that is no ping: opcode and payload.
async fn message(socket: &mut TcpStream) -> (u8, Vec<u8>) {
    loop {
        let opcode = socket.read_u8().await.unwrap() & 0x0f;
        let length = match socket.read_u8().await.unwrap() {
            126 => socket.read_u16().await.unwrap() as usize,
            length => length as usize,
        };
        let mut payload = vec![0; length];
        socket.read_exact(&mut payload).await.unwrap();
        if opcode != 9 {
            return (opcode, payload);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_websocket_carries_rows_both_ways() {
    let address = serve().await;
    let mut reads = ReadJob::new("http-ws");
    let mut writes = WriteJob::new("http-ws", &[], false);
    let mut socket = websocket(address, "/v1/streams/http-ws/ws?publisher=me").await;
    let (_, welcome) = message(&mut socket).await;
    assert_eq!(serde_json::from_slice::<Value>(&welcome).unwrap(), json!({"offset": 0, "acknowledged": 0, "position": null}));
    socket.write_all(&frame(1, b"{\"n\":4}\n{\"n\":5}")).await.unwrap();
    assert_eq!(reads.take(2).await, [4, 5]);
    writes.write(&[6, 7]);
    assert_eq!(message(&mut socket).await, (1, b"{\"n\":6,\"s\":\"s6\"}\n{\"n\":7,\"s\":\"s7\"}\n".to_vec()));
    // A wrong record ends the connection, with the reason, and takes nothing.
    socket.write_all(&frame(1, b"{\"n\":8}\n{\"n\":[]}")).await.unwrap();
    let (opcode, reason) = message(&mut socket).await;
    assert!(opcode == 1 && String::from_utf8_lossy(&reason).contains("record 2"), "{reason:?}");
    let (opcode, close) = message(&mut socket).await;
    assert_eq!((opcode, u16::from_be_bytes([close[0], close[1]])), (8, 1008));
    assert_eq!(reads.poll(), Vec::<i64>::new());

    let mut socket = websocket(address, "/v1/streams/http-ws/ws").await;
    drop(reads);
    let (_, _) = message(&mut socket).await;
    let (opcode, close) = message(&mut socket).await;
    assert_eq!((opcode, u16::from_be_bytes([close[0], close[1]])), (8, 1012), "the job that reads has ended");
}

#[test]
fn starts() {
    assert_eq!(start("earliest").unwrap(), Start::Earliest);
    assert_eq!(start("12").unwrap(), Start::Offset(12));
    assert!(start("-1").is_err() && start("latest").is_err());
}
