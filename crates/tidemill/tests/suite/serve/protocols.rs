//! Server-sent events and WebSocket, over plain sockets.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::server::{Server, next_event};
use super::{example, order, orders};
use crate::failures::expect;
use crate::harness::{Scratch, finish, text, tidemill, wait_for};

fn served(name: &str) -> (Scratch, Server) {
    let scratch = Scratch::new(name);
    let server = Server::start(&scratch, &[&example().display().to_string(), "--state-dir", &scratch.at("state")]);
    server.wait_example();
    (scratch, server)
}

#[test]
fn events_resume_by_their_id() {
    let (_scratch, server) = served("serve-events");
    server.post("/v1/streams/orders?wait=ack", &orders(0, 400));
    let large: Vec<u64> = (0..400).filter(|n| n % 200 >= 100).collect();
    let path = "/v1/streams/large_orders/events";
    let mut events = server.events(&format!("{path}?from=earliest"), "");
    for (number, id) in large.iter().take(120).enumerate() {
        let event = next_event(&mut events).expect("an event");
        assert_eq!((event.id, event.event.as_str()), (Some(number as u64 + 1), ""));
        let row: Value = serde_json::from_str(&event.data).expect("JSON");
        assert_eq!(row, serde_json::from_str::<Value>(&order(*id).replace('}', ".0}")).expect("JSON"));
    }
    drop(events);
    // As a browser connects again, whatever its address says.
    let mut events = server.events(&format!("{path}?from=earliest&columns=id"), "last-event-id: 120\r\n");
    for id in &large[120..] {
        assert_eq!(next_event(&mut events).expect("an event").data, json!({"id": id}).to_string());
    }
    // Only some of the rows, of a view from its contents on.
    let mut events = server.events("/v1/streams/per_customer/events?from=snapshot&filter=customer%20%3D%20%27customer%203%27", "");
    let first = next_event(&mut events).expect("an event");
    assert!(first.id.is_none() && first.data.contains("\"row_kind\":\"+I\""), "{first:?}");
    server.post("/v1/streams/orders", &order(3));
    let kinds: Vec<String> = (0..2).map(|_| next_event(&mut events).expect("an event").data).collect();
    assert!(kinds[0].contains("\"row_kind\":\"-U\"") && kinds[1].contains("\"row_kind\":\"+U\""), "{kinds:?}");
    // Why there is no more is the last event.
    server.expect("POST", "/v1/jobs/clients/stop", "", 200, &[]);
    let last = next_event(&mut events).expect("an event");
    assert!(last.event == "error" && last.data.contains("was stopped"), "{last:?}");
    assert_eq!(next_event(&mut events), None);
    server.expect("POST", "/v1/jobs/clients/start", "", 200, &[]);
    server.wait_example();
    server.expect("GET", &format!("{path}?from=yesterday"), "", 400, &["earliest"]);
    server.expect("GET", &format!("{path}?form=now"), "", 400, &["form", "known are"]);
}

/// The client's side of a WebSocket (RFC 6455), as much of it as the test needs.
pub struct WebSocket(TcpStream);

impl WebSocket {
    pub fn open(server: &Server, path: &str) -> Self {
        let mut stream = server.connect();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: {}\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            server.address
        )
        .expect("the server reads");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("the head of the answer");
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        assert!(head.contains(" 101 ") && head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
        WebSocket(stream)
    }

    /// Sends a text.
    pub fn send(&mut self, text: &str) {
        let length = u16::try_from(text.len()).expect("a short text");
        let mut frame = vec![0x81];
        if length < 126 {
            frame.push(0x80 | length as u8);
        } else {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&length.to_be_bytes());
        }
        // A mask of zeros changes nothing.
        frame.extend_from_slice(&[0; 4]);
        frame.extend_from_slice(text.as_bytes());
        self.0.write_all(&frame).expect("the server reads");
    }

    /// The next text, or the code with which the server closes.
    pub fn next(&mut self) -> Result<String, u16> {
        loop {
            let mut head = [0; 2];
            self.0.read_exact(&mut head).expect("a frame");
            let mut length = u64::from(head[1] & 0x7f);
            if length == 126 {
                let mut more = [0; 2];
                self.0.read_exact(&mut more).expect("a length");
                length = u64::from(u16::from_be_bytes(more));
            } else if length == 127 {
                let mut more = [0; 8];
                self.0.read_exact(&mut more).expect("a length");
                length = u64::from_be_bytes(more);
            }
            let mut payload = vec![0; length as usize];
            self.0.read_exact(&mut payload).expect("a payload");
            match head[0] & 0x0f {
                1 => return Ok(String::from_utf8(payload).expect("UTF-8")),
                8 => return Err(u16::from_be_bytes([payload[0], payload[1]])),
                // Pings: the server bears silence for longer than the test lasts.
                _ => {}
            }
        }
    }

    /// The rows of the next messages, `count` of them.
    fn rows(&mut self, count: usize) -> Vec<Value> {
        let mut rows = Vec::new();
        while rows.len() < count {
            let text = self.next().expect("rows");
            rows.extend(text.lines().map(|l| serde_json::from_str::<Value>(l).unwrap_or_else(|e| panic!("{l}: {e}"))));
        }
        rows
    }
}

#[test]
fn a_websocket_speaks_both_ways() {
    let (_scratch, server) = served("serve-websocket");
    let mut follower = WebSocket::open(&server, "/v1/streams/large_orders/ws?from=earliest&name=page");
    let mut publisher = WebSocket::open(&server, "/v1/streams/orders/ws?publisher=page");
    // A publisher with a name is told where to go on, and then what is safe.
    let welcome: Value = serde_json::from_str(&publisher.next().expect("a welcome")).expect("JSON");
    assert_eq!(welcome, json!({"offset": 0, "acknowledged": 0, "position": null}));
    publisher.send(&orders(90, 20));
    let rows = follower.rows(10);
    assert_eq!(rows.iter().map(|r| r["id"].as_u64().expect("an id")).collect::<Vec<_>>(), (100..110).collect::<Vec<_>>());
    follower.send(r#"{"ack": 10}"#);
    wait_for("the acknowledgement", || server.get("/v1/streams/large_orders")["subscriptions"]["page"] == 10);
    assert_eq!(publisher.next().as_deref(), Ok(r#"{"acknowledged":20}"#));
    // One that connects again gets what it has not acknowledged.
    publisher.send(&order(111));
    drop(follower);
    let mut follower = WebSocket::open(&server, "/v1/streams/large_orders/ws?from=acknowledged&name=page");
    assert_eq!(follower.rows(1)[0]["id"], 111);
    // A wrong message is answered and ends the connection; the other goes on.
    publisher.send("{\"id\": \"x\"}");
    loop {
        match publisher.next() {
            Ok(text) if text.contains("acknowledged") => {}
            Ok(text) => {
                assert!(text.contains("error") && text.contains("record 1"), "{text}");
                // A message that was refused kept its room until the peer had closed.
                assert_eq!(server.metric("tidemill_pending_bytes"), 0.0);
            }
            Err(code) => {
                assert_eq!(code, 1008);
                break;
            }
        }
    }
    server.post("/v1/streams/orders", &order(112));
    assert_eq!(follower.rows(1)[0]["id"], 112);
    server.expect("POST", "/v1/jobs/clients/stop", "", 200, &[]);
    assert!(follower.next().is_ok_and(|text| text.contains("was stopped")));
    assert_eq!(follower.next(), Err(1012));
    server.expect("GET", "/v1/streams/large_orders/ws", "", 400, &["WebSocket"]);
}

#[test]
fn a_subscriber_bounds_the_rows_of_a_message() {
    let (_scratch, server) = served("serve-blocks");
    server.post("/v1/streams/orders?wait=ack", &orders(100, 50));
    let subscribe = |size: &str| {
        let stream = server.stream("large_orders");
        finish(tidemill().args(["subscribe", &stream, "--from", "earliest", "--limit", "40", "--block-size", size]))
    };
    for size in ["3", "40", "auto"] {
        let output = subscribe(size);
        let rows: Vec<Value> = output.stdout.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
        let ids: Vec<_> = rows.iter().map(|row| row["id"].as_u64().expect("an id")).collect();
        assert_eq!(ids, (100..140).collect::<Vec<_>>(), "{size}: {}", text(&output));
    }
    expect(&subscribe("0"), 2, &["--block-size 0"]);
    // Over a WebSocket a message has a line for each row.
    let mut socket = WebSocket::open(&server, "/v1/streams/large_orders/ws?from=earliest&block_size=20");
    let mut rows = 0;
    while rows < 50 {
        let lines = socket.next().expect("rows").lines().count();
        assert!((1..=20).contains(&lines), "{lines} rows in a message");
        rows += lines;
    }
    server.expect("GET", "/v1/streams/large_orders/events?block_size=0", "", 400, &["block_size 0"]);
}
