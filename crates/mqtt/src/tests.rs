//! Source and sink against a broker in this process that does what a test says, packet by packet. A real one is in
//! the tests of the whole.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use serde_json::json;
use tidemill_block::text;
use tidemill_connect::{Polled, ReadRequest, Reader, ReaderContext, Sink, SinkContext, Source, Split, Waker};
use tidemill_format::options::RawOptions;

use crate::CONNECTOR;
use crate::packet::{self, Packet, head};

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(120);

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, true)]))
}

fn raw(options: &[(&str, &str)]) -> RawOptions {
    let all: BTreeMap<String, String> = options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    RawOptions::new("table 't'", all)
}

/// A connection as the broker sees it.
struct Peer {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Peer {
    /// The next packet but pings, which are answered: its first byte and its body.
    fn next(&mut self) -> (u8, Vec<u8>) {
        loop {
            if let Some(found) = head(&self.received).unwrap()
                && self.received.len() >= found.from + found.length
            {
                let rest = self.received.split_off(found.from + found.length);
                let packet = std::mem::replace(&mut self.received, rest);
                if found.first == packet::PING[0] {
                    self.say(&[0xd0, 0]);
                    continue;
                }
                return (found.first, packet[found.from..].to_vec());
            }
            let mut buffer = [0; 4096];
            let read = self.stream.read(&mut buffer).unwrap();
            assert!(read > 0, "the client has closed the connection");
            self.received.extend_from_slice(&buffer[..read]);
        }
    }

    #[track_caller]
    fn expect(&mut self, first: u8) -> Vec<u8> {
        let (found, body) = self.next();
        assert_eq!(found, first, "{body:?}");
        body
    }

    fn say(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Accepts the connection; gives what the client asked for.
    fn accept(&mut self, session_present: bool) -> Vec<u8> {
        let asked = self.expect(0x10);
        self.say(&[0x20, 3, u8::from(session_present), 0, 0]);
        asked
    }

    /// Accepts the subscription to one topic.
    fn subscribed(&mut self) {
        let body = self.expect(0x82);
        self.say(&[0x90, 4, body[0], body[1], 0, 1]);
    }

    /// A message of quality 1 to the topic `a`.
    fn publish(&mut self, id: u16, again: bool, payload: &str) {
        let mut out = Vec::new();
        packet::message(&mut out, "a", Some(id), false, payload.as_bytes());
        out[0] |= u8::from(again) << 3;
        self.say(&out);
    }

    #[track_caller]
    fn acknowledged(&mut self, id: u16) {
        assert_eq!(self.expect(0x40), id.to_be_bytes());
    }
}

/// A broker that treats its connections as `each` says, and is gone after the last one.
fn broker(connections: usize, mut each: impl FnMut(usize, Peer) + Send + 'static) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("mqtt://{}", listener.local_addr().unwrap());
    let thread = thread::spawn(move || {
        for number in 0..connections {
            let (stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            each(number, Peer { stream, received: Vec::new() });
        }
    });
    (url, thread)
}

fn source(url: &str, more: &[(&str, &str)]) -> Box<dyn Source> {
    let options = [&[("url", url), ("topic", "a"), ("format", "json"), ("client-id", "c")][..], more].concat();
    let mut options = raw(&options);
    let source = CONNECTOR.source(&schema(), &mut options).unwrap();
    options.finish().unwrap();
    source
}

fn open(source: &dyn Source, messages: Option<u64>) -> Box<dyn Reader> {
    let mut split: Split = source.splits(1).unwrap().remove(0);
    split.position = messages.map(|messages| json!({"messages": messages}));
    let context = ReaderContext { waker: Waker::noop(), request: ReadRequest::all(schema()), shard: 0, shards: 1 };
    source.open(&split, context).unwrap()
}

/// The first rows that come, or an error.
fn read(reader: &mut dyn Reader, count: usize) -> Result<Vec<i64>, String> {
    let (mut rows, begun) = (Vec::new(), Instant::now());
    while rows.len() < count {
        match reader.poll(100).map_err(|e| e.to_string())? {
            Polled::Rows(came) => rows.extend(came.batch.column(0).as_primitive::<Int64Type>().values().iter()),
            Polled::Pending => thread::sleep(Duration::from_millis(2)),
            Polled::End => break,
        }
        assert!(begun.elapsed() < PATIENCE, "only {rows:?} came");
    }
    Ok(rows)
}

#[test]
fn a_message_is_acknowledged_when_a_checkpoint_holds_it() {
    let (url, thread) = broker(1, |_, mut peer| {
        let asked = peer.accept(false);
        // It wants its session to stay: no clean start, a day.
        assert_eq!((asked[7], &asked[11..16]), (0, &[0x11, 0, 1, 0x51, 0x80][..]));
        peer.subscribed();
        peer.publish(7, false, "{\"k\":1}");
        peer.publish(8, false, "{\"k\":2}");
        peer.publish(9, false, "{\"k\":3}");
        peer.acknowledged(7);
        peer.acknowledged(8);
        // The last one was in no checkpoint.
        peer.expect(packet::GOODBYE[0]);
    });
    let source = source(&url, &[]);
    let mut reader = open(&*source, None);
    assert_eq!(read(reader.as_mut(), 3).unwrap(), [1, 2, 3]);
    assert_eq!(reader.position(), json!({"messages": 3}));
    drop(reader);
    source.committed(&[json!({"messages": 2})]);
    drop(source);
    thread.join().unwrap();
}

#[test]
fn what_comes_again_after_a_break_is_known() {
    let (url, thread) = broker(2, |number, mut peer| {
        peer.accept(number == 1);
        peer.subscribed();
        if number == 0 {
            peer.publish(7, false, "{\"k\":1}");
            peer.publish(8, false, "{\"k\":2}");
        } else {
            peer.publish(7, true, "{\"k\":1}");
            peer.publish(8, true, "{\"k\":2}");
            peer.publish(9, false, "{\"k\":3}");
            for id in 7..10 {
                peer.acknowledged(id);
            }
            peer.expect(packet::GOODBYE[0]);
        }
    });
    let source = source(&url, &[]);
    let mut reader = open(&*source, Some(100));
    assert_eq!(read(reader.as_mut(), 3).unwrap(), [1, 2, 3]);
    source.committed(&[reader.position()]);
    assert_eq!(reader.position(), json!({"messages": 103}));
    drop(source);
    thread.join().unwrap();
}

#[test]
fn a_full_window_asks_for_a_checkpoint() {
    let (url, thread) = broker(1, |_, mut peer| {
        let asked = peer.accept(false);
        assert_eq!(asked[16..19], [0x21, 0, 4]);
        peer.subscribed();
        for id in 1..=4 {
            peer.publish(id, false, "{\"k\":1}");
        }
        for id in 1..=4 {
            peer.acknowledged(id);
        }
        peer.expect(packet::GOODBYE[0]);
    });
    let source = source(&url, &[("max-inflight", "4")]);
    let mut reader = open(&*source, None);
    read(reader.as_mut(), 4).unwrap();
    assert!(source.wants_checkpoint());
    source.committed(&[reader.position()]);
    assert!(!source.wants_checkpoint());
    drop(source);
    thread.join().unwrap();
}

#[test]
fn messages_that_are_too_long_are_passed_over() {
    let (url, thread) = broker(1, |_, mut peer| {
        peer.accept(false);
        peer.subscribed();
        peer.publish(1, false, &"x".repeat(1 << 20));
        peer.publish(2, false, "{\"k\":5}");
        peer.expect(packet::GOODBYE[0]);
    });
    let source = source(&url, &[("max-message-size", "1 kb")]);
    let mut reader = open(&*source, None);
    let (mut bad, begun) = (Vec::new(), Instant::now());
    let row = loop {
        assert!(begun.elapsed() < PATIENCE, "{bad:?}");
        if let Polled::Rows(rows) = reader.poll(100).unwrap() {
            bad.extend(rows.bad.into_iter().map(|bad| (bad.reason, bad.raw.len())));
            if rows.batch.num_rows() > 0 {
                break rows.batch.column(0).as_primitive::<Int64Type>().value(0);
            }
        }
    };
    assert_eq!(row, 5);
    assert_eq!(bad, [("a message of 1048582 bytes is longer than 'max-message-size'".to_string(), 1024)]);
    drop(source);
    thread.join().unwrap();
}

#[test]
fn a_broker_that_refuses_is_an_error() {
    let (url, thread) = broker(2, |number, mut peer| {
        if number == 0 {
            peer.expect(0x10);
            peer.say(&[0x20, 3, 0, 0x86, 0]);
        } else {
            peer.accept(false);
            let body = peer.expect(0x82);
            peer.say(&[0x90, 4, body[0], body[1], 0, 0x87]);
        }
    });
    for why in ["the broker refuses the connection: bad user name or password", "refuses the topic filter 'a': not authorized"] {
        let source = source(&url, &[("username", "ann"), ("password", "hunter2")]);
        let error = read(open(&*source, None).as_mut(), 1).unwrap_err();
        assert!(error.contains(why) && error.contains(&url) && !error.contains("hunter2"), "{error}");
    }
    thread.join().unwrap();
    let source = source(&url, &[("connect.timeout", "300 ms")]);
    let error = read(open(&*source, None).as_mut(), 1).unwrap_err();
    assert!(error.contains(&format!("connecting to {url}")) && error.contains("'connect.timeout'"), "{error}");
}

fn sink(url: &str, more: &[(&str, &str)]) -> Box<dyn Sink> {
    let mut options = raw(&[&[("url", url), ("topic", "a"), ("format", "json")][..], more].concat());
    let sink = CONNECTOR.sink(&schema(), &mut options).unwrap();
    options.finish().unwrap();
    sink
}

fn context() -> SinkContext {
    SinkContext { shard: 0, shards: 1, schema: schema(), run_id: "r".into(), cancelled: Arc::new(AtomicBool::new(false)) }
}

/// A message: its id and what it says.
fn message(peer: &mut Peer) -> (u16, String) {
    let (first, body) = peer.next();
    let Ok(Packet::Publish(publish)) = packet::read(first, &body) else { panic!("{first} {body:?}") };
    assert_eq!(&body[publish.topic.clone()], b"a");
    (publish.id.unwrap(), String::from_utf8(body[publish.payload..].to_vec()).unwrap())
}

#[test]
fn a_checkpoint_waits_for_acknowledgements_and_breaks_are_mended() {
    let (url, thread) = broker(2, |number, mut peer| {
        peer.accept(false);
        let first = message(&mut peer);
        if number == 0 {
            // The first is acknowledged, the second is lost with the connection.
            assert_eq!(first.1, "{\"k\":1}");
            let [high, low] = first.0.to_be_bytes();
            peer.say(&[0x40, 2, high, low]);
            message(&mut peer);
        } else {
            assert_eq!(first.1, "{\"k\":2}");
            let [high, low] = first.0.to_be_bytes();
            peer.say(&[0x40, 2, high, low]);
            peer.expect(packet::GOODBYE[0]);
        }
    });
    let sink = sink(&url, &[]);
    let mut writer = sink.writer(context()).unwrap();
    writer.write(&text::parse(&schema(), "1\n2")).unwrap();
    writer.flush().unwrap();
    writer.prepare(true).unwrap();
    assert_eq!(writer.stats().bytes, 14);
    thread.join().unwrap();
}

#[test]
fn a_message_that_is_refused_is_an_error() {
    let (url, thread) = broker(1, |_, mut peer| {
        peer.accept(false);
        let (id, _) = message(&mut peer);
        let [high, low] = id.to_be_bytes();
        peer.say(&[0x40, 4, high, low, 0x87, 0]);
    });
    let sink = sink(&url, &[]);
    let mut writer = sink.writer(context()).unwrap();
    let error = writer.write(&text::parse(&schema(), "1")).and_then(|()| writer.prepare(true).map(drop)).unwrap_err().to_string();
    assert!(error.contains("refuses a message to 'a': not authorized"), "{error}");
    thread.join().unwrap();
}

#[track_caller]
fn check_error(sink: bool, pairs: &[(&str, &str)], expect: &str) {
    let defaults = [("url", "mqtt://h"), ("topic", "a"), ("format", "json")];
    let given: Vec<_> = defaults.iter().filter(|(name, _)| !pairs.iter().any(|(other, _)| other == name)).chain(pairs).copied().collect();
    let given: Vec<_> = given.into_iter().filter(|(_, value)| *value != "-").collect();
    let error = match sink {
        true => CONNECTOR.sink(&schema(), &mut raw(&given)).err(),
        false => CONNECTOR.source(&schema(), &mut raw(&given)).err(),
    };
    let error = error.expect("an error").to_string();
    assert!(error.starts_with("table 't': ") && error.contains(expect), "{error}");
}

#[test]
fn mistakes_in_options() {
    check_error(false, &[("url", "-")], "option 'url' is required");
    check_error(false, &[("url", "h:1883")], "expected mqtt://host:port");
    check_error(false, &[("topic", "-")], "option 'topic' is required");
    check_error(false, &[("topic", "a/#/b")], "option 'topic': 'a/#/b': '#' stands");
    check_error(false, &[("format", "-")], "option 'format' is required");
    check_error(false, &[("qos", "2")], "option 'qos' = '2'");
    check_error(false, &[("keep-alive", "1500 ms")], "option 'keep-alive'");
    check_error(false, &[("keep-alive", "0 s")], "option 'keep-alive'");
    check_error(false, &[("max-inflight", "0")], "option 'max-inflight'");
    check_error(false, &[("scan.prefetch", "1 gb")], "option 'scan.prefetch'");
    check_error(false, &[("password", "x")], "option 'password': it needs 'username'");
    check_error(false, &[("client-id", "")], "option 'client-id'");
    check_error(false, &[("ca-file", "x")], "option 'ca-file': certificates are of use with mqtts:// only");
    check_error(false, &[("url", "mqtts://h"), ("ca-file", "/no/such")], "reading the certificates in '/no/such'");
    check_error(true, &[("topic", "a/+")], "option 'topic' = 'a/+': messages go to one topic");
    check_error(true, &[("topic", "-")], "a metadata column 'topic' that is not VIRTUAL");
    check_error(true, &[("#metadata.topic", "k")], "the metadata column 'topic' says it row by row");
    check_error(true, &[("#metadata.topic", "k"), ("topic", "-")], "column 'k' FROM 'topic': expected STRING");
    check_error(true, &[("#metadata.qos", "k")], "the metadata 'qos' cannot be written");
}
