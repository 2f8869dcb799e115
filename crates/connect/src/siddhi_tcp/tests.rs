//! Tests of the connector: bytes of Siddhi's own client both ways, frames cut anywhere, everything that
//! can be wrong with them, and rows over the loopback interface.

mod lent;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use arrow::array::{
    ArrayRef, BooleanArray, Float32Array, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMillisecondArray,
};
use arrow::datatypes::Schema;
use tidemill_block::{Block, clock, text};

use super::connection::Connection;
use super::encode::Encoder;
use super::frame::{Cut, split};
use super::listener::Lease;
use super::*;
use crate::{Polled, ReadRequest, Reader, ReaderContext, SinkContext, Waker, Writer};

/// Not a bound on time: what takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);

fn fields(list: &[(&str, DataType)]) -> SchemaRef {
    Arc::new(Schema::new(list.iter().map(|(name, kind)| Field::new(*name, kind.clone(), true)).collect::<Vec<_>>()))
}

/// The columns of the test vector.
fn schema() -> SchemaRef {
    use DataType::*;
    fields(&[("s", Utf8), ("i", Int32), ("l", Int64), ("f", Float32), ("d", Float64), ("b", Boolean)])
}

fn numbers() -> SchemaRef {
    fields(&[("n", DataType::Int64), ("v", DataType::Float32)])
}

fn raw(owner: &str, pairs: &[(&str, &str)]) -> RawOptions {
    RawOptions::new(owner, pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())))
}

/// A listener of a test: a lease keeps it open, and its port says where.
struct Place {
    port: String,
    lease: Lease,
}

fn place(more: &[(&str, &str)]) -> Place {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let (options, _) = SiddhiOptions::checked(&mut raw("table 't'", more)).unwrap();
    let lease = listener::lease_with(address, &options, move || Ok(socket)).unwrap();
    Place { port: address.port().to_string(), lease }
}

impl Place {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port.parse().unwrap())).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn source(&self, table: &str, schema: &SchemaRef, more: &[(&str, &str)]) -> Box<dyn Source> {
        let mut pairs = vec![("port", self.port.as_str())];
        pairs.extend(more);
        CONNECTOR.source(schema, &mut raw(&format!("table '{table}'"), &pairs)).unwrap()
    }

    fn read(&self, table: &str, schema: &SchemaRef, more: &[(&str, &str)]) -> Reading {
        Reading::new(&*self.source(table, schema, more), ReadRequest::all(schema.clone())).unwrap()
    }

    fn writer(&self, table: &str, schema: &SchemaRef, more: &[(&str, &str)]) -> Box<dyn Writer> {
        let mut pairs = vec![("port", self.port.as_str())];
        pairs.extend(more);
        let sink = CONNECTOR.sink(schema, &mut raw(&format!("table '{table}'"), &pairs)).unwrap();
        assert!(!sink.accepts_updates() && sink.parallelism() == Some(1));
        sink.writer(sink_context(schema, false)).unwrap()
    }
}

fn sink_context(schema: &SchemaRef, cancelled: bool) -> SinkContext {
    SinkContext { shard: 0, shards: 1, schema: schema.clone(), run_id: "r".into(), cancelled: Arc::new(AtomicBool::new(cancelled)) }
}

/// A reader and what it has given so far.
struct Reading {
    reader: Box<dyn Reader>,
    woken: mpsc::Receiver<()>,
    rows: Vec<String>,
    /// Place and reason.
    bad: Vec<(String, String)>,
    raw: Vec<Vec<u8>>,
    bytes: u64,
}

impl Reading {
    fn new(source: &dyn Source, request: ReadRequest) -> Result<Self, ConnectError> {
        let (sender, woken) = mpsc::channel();
        let waker = Waker::new(move || {
            let _ = sender.send(());
        });
        let reader = source.open(&source.splits(2)?[0], ReaderContext { waker, request, shard: 0, shards: 1 })?;
        Ok(Reading { reader, woken, rows: Vec::new(), bad: Vec::new(), raw: Vec::new(), bytes: 0 })
    }

    /// Polls until there is enough.
    fn until(&mut self, rows_max: usize, enough: impl Fn(&Self) -> bool) {
        while !enough(self) {
            if !self.poll(rows_max) {
                self.woken.recv_timeout(PATIENCE).expect("a reader that waits is woken");
            }
        }
    }

    /// Takes what is there; false if nothing is.
    fn poll(&mut self, rows_max: usize) -> bool {
        match self.reader.poll(rows_max).unwrap() {
            Polled::Rows(rows) => {
                assert!(rows.batch.num_rows() <= rows_max && rows.bad.len() == rows.places.len());
                self.bytes += rows.bytes;
                self.rows.extend(text::format(&Block::inserts(rows.batch, 0)).lines().map(String::from));
                for (bad, place) in rows.bad.into_iter().zip(rows.places) {
                    self.bad.push((place, bad.reason));
                    self.raw.push(bad.raw);
                }
                true
            }
            Polled::Pending => false,
            Polled::End => panic!("a listener has no end"),
        }
    }
}

/// The bytes of Siddhi's own client.
fn vector() -> Vec<u8> {
    let before = "02 000000a1 00000034";
    let session: String = SESSION.bytes().map(|b| format!("{b:02x}")).collect();
    let behind = "0000000f 6170702f696e70757453747265616d 00000052 00000002
        0000018bcfe5687b 00000004 57534f32 00000007 fffffffffffffffe 425e6666 3ff8000000000000 01
        0000018bcfe5687c 00000000 80000000 7fffffffffffffff 7fc00000 8000000000000000 00";
    let digits: String = [before, &session, behind].concat().split_whitespace().collect();
    (0..digits.len() / 2).map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap()).collect()
}

const SESSION: &str = "6c71aed2-c700-493e-9eb1-e7e6389b2650-127.0.0.1:19999";
const VECTOR_ROWS: [&str; 2] = ["+I WSO2 7 -2 55.6 1.5 true", "+I NULL -2147483648 9223372036854775807 NaN -0.0 false"];

fn vector_batch(rows: std::ops::Range<usize>) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(vec!["WSO2", ""])),
        Arc::new(Int32Array::from(vec![7, i32::MIN])),
        Arc::new(Int64Array::from(vec![-2, i64::MAX])),
        Arc::new(Float32Array::from(vec![55.6, f32::NAN])),
        Arc::new(Float64Array::from(vec![1.5, -0.0])),
        Arc::new(BooleanArray::from(vec![true, false])),
    ];
    RecordBatch::try_new(schema(), columns).unwrap().slice(rows.start, rows.len())
}

#[test]
fn the_bytes_of_siddhis_client_are_read() {
    assert_eq!(vector().len(), 166);
    let place = place(&[]);
    let stamp = Arc::new(Field::new("at", DataType::Int64, true));
    let source = place.source("t", &schema(), &[("channel", "app/inputStream")]);
    let request = ReadRequest { physical: schema(), projection: vec![4, 0], metadata: vec![("timestamp".into(), stamp)] };
    let mut reading = Reading::new(&*source, request).unwrap();
    assert_eq!(Connection::new(place.lease.shared(), "p").feed(&vector()), None);
    reading.poll(10);
    assert_eq!(reading.rows, ["+I 1.5 WSO2 1700000000123", "+I -0.0 NULL 1700000000124"]);
    assert_eq!((reading.bytes, reading.reader.position()), (166, serde_json::Value::Null));
}

#[test]
fn the_bytes_of_siddhis_client_are_written() {
    let mut encoder = Encoder::new(&schema(), SESSION, "app/inputStream", 1024, NullValues::Fail, None).unwrap();
    let mut out = Vec::new();
    encoder.encode(&vector_batch(0..1), &mut out, 1_700_000_000_123).unwrap();
    encoder.encode(&vector_batch(1..2), &mut out, 1_700_000_000_124).unwrap();
    assert_eq!(encoder.complete(&out), 0, "the frame takes more");
    encoder.close(&mut out).unwrap();
    assert_eq!(out, vector());
}

#[test]
fn frames_are_cut_at_every_byte() {
    let place = place(&[]);
    let mut reading = place.read("app/inputStream", &schema(), &[]);
    let mut read = |pieces: &[&[u8]]| {
        let mut connection = Connection::new(place.lease.shared(), "p");
        for piece in pieces {
            assert_eq!(connection.feed(piece), None);
        }
        while reading.poll(100) {}
        assert_eq!(reading.bad, []);
        std::mem::take(&mut reading.rows)
    };
    let (one, two) = (vector(), [vector(), vector()].concat());
    for cut in 0..=two.len() {
        assert_eq!(read(&[&two[..cut], &two[cut..]]), [VECTOR_ROWS, VECTOR_ROWS].concat(), "cut at byte {cut}");
    }
    assert_eq!(read(&one.chunks(1).collect::<Vec<_>>()), VECTOR_ROWS, "byte by byte");
}

/// A frame without session id.
fn frame(channel: &str, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![frame::PROTOCOL];
    out.extend(((12 + channel.len() + payload.len()) as i32).to_be_bytes());
    for part in [&b""[..], channel.as_bytes(), payload] {
        out.extend((part.len() as i32).to_be_bytes());
        out.extend(part);
    }
    out
}

/// Events of [`numbers`] from `first` on, each with half of its number as the second value.
fn events(channel: &str, first: i64, count: i64) -> Vec<u8> {
    let mut payload = (count as i32).to_be_bytes().to_vec();
    for n in first..first + count {
        payload.extend([0i64.to_be_bytes(), n.to_be_bytes()].concat());
        payload.extend((n as f32 / 2.0).to_be_bytes());
    }
    frame(channel, &payload)
}

fn expected(range: std::ops::Range<i64>) -> Vec<String> {
    range.map(|n| format!("+I {n} {:?}", n as f32 / 2.0)).collect()
}

#[test]
fn one_connection_carries_many_channels() {
    let place = place(&[]);
    let mut tables: Vec<Reading> = ["a", "b", "c"].map(|table| place.read(table, &numbers(), &[])).into();
    let mut stream = place.connect();
    // Frames of 1, 2, 3 and 0 events in turn, the channels interleaved.
    let mut at = 0;
    while at < 3000 {
        for count in [1, 1, 1, 2, 3, 0] {
            let frames: Vec<u8> = ["a", "b", "c"].iter().flat_map(|channel| events(channel, at, count)).collect();
            stream.write_all(&frames).unwrap();
            at += count;
        }
    }
    for table in &mut tables {
        table.until(7, |r| r.rows.len() as i64 >= at);
        assert_eq!(table.rows, expected(0..at));
        assert_eq!(table.bad, []);
    }
}

#[test]
fn a_queue_that_is_full_holds_the_sender_back() {
    let place = place(&[("receive-buffer", "1024")]);
    let mut reading = place.read("t", &numbers(), &[("source.queue", "1000"), ("receive-buffer", "1024")]);
    let mut stream = place.connect();
    let sender = thread::spawn(move || {
        for first in (0..50_000).step_by(10) {
            stream.write_all(&events("t", first, 10)).unwrap();
        }
        stream
    });
    reading.until(100, |r| r.rows.len() >= 50_000);
    assert!(reading.rows == expected(0..50_000), "every row once and in order");
    drop(sender.join().unwrap());
}

#[test]
fn what_is_no_frame_costs_its_connection_only() {
    let place = place(&[("max-frame-size", "2000")]);
    let mut reading = place.read("t", &numbers(), &[("max-frame-size", "1500")]);
    let mut good = place.connect();
    let head = |numbers: &[i32]| [vec![frame::PROTOCOL], numbers.iter().flat_map(|n| n.to_be_bytes()).collect::<Vec<u8>>()].concat();
    let cases: [(Vec<u8>, &str); 6] = [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "the frame begins with byte 0x47"),
        (head(&[-5]), "the frame gives its size as -5"),
        (head(&[3000]), "the frame has 3005 bytes, more than the 2000"),
        (head(&[20, 0, -1]), "the length of the channel id, -1, contradicts"),
        (head(&[20, 0, 1, 0x7400_0000, 0x6400_0000]), "the length of the payload, 100, contradicts"),
        (events("t", 0, 3)[..30].to_vec(), "the connection was closed inside this frame, of which 30 bytes had come"),
    ];
    for (number, (bytes, reason)) in cases.into_iter().enumerate() {
        let mut stream = place.connect();
        let peer = stream.local_addr().unwrap();
        stream.write_all(&[events("t", 0, 2), bytes].concat()).unwrap();
        if reason.starts_with("the connection was closed") {
            drop(stream);
        } else {
            let end = stream.read(&mut [0; 8]);
            assert!(matches!(&end, Ok(0)) || end.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset), "it is closed");
        }
        good.write_all(&events("t", 7, 1)).unwrap();
        reading.until(100, |r| r.bad.len() == number + 1 && r.rows.len() == 3 * (number + 1));
        let (at, why) = &reading.bad[number];
        assert_eq!(*at, format!("{peer} frame 2"), "{reason}");
        assert!(why.starts_with(reason) && why.ends_with("the connection ends here"), "{why}");
    }
}

/// Waits until what connections hold of unfinished frames is as wanted.
fn wait_taken(place: &Place, wanted: usize) {
    let end = Instant::now() + PATIENCE;
    while place.lease.shared().room.taken() != wanted {
        assert!(Instant::now() < end, "{} bytes are held", place.lease.shared().room.taken());
        thread::sleep(Duration::from_millis(1));
    }
}

/// Each connection was bounded by itself: many that began a large frame and never ended it took all memory.
#[test]
fn frames_that_are_not_complete_have_a_bound_together() {
    let place = place(&[("receive-buffer", "1024")]);
    let mut reading = place.read("t", &numbers(), &[("receive-buffer", "1024")]);
    let long = events("t", 0, 10_000);
    place.lease.shared().room.limit(256 << 10, Duration::ZERO);
    let mut first = place.connect();
    first.write_all(&long[..150_000]).unwrap();
    wait_taken(&place, 256 << 10);
    let mut second = place.connect();
    let peer = second.local_addr().unwrap();
    // It may be cut off meanwhile.
    let _ = second.write_all(&long[..150_000]);
    reading.until(100, |r| r.bad.len() == 1);
    let (whose, why) = &reading.bad[0];
    assert_eq!(*whose, format!("{peer} frame 1"));
    assert!(why.starts_with("there is no room for more than the 65536 bytes that have come") && why.ends_with("ends here"), "{why}");
    assert_eq!(crate::listeners::stats()[&format!("127.0.0.1:{}", place.port)].turned_away, 1);
    // What is small needs no room, and what has some goes on.
    place.connect().write_all(&events("t", 7, 1)).unwrap();
    reading.until(100, |r| r.rows.len() == 1);
    first.write_all(&long[150_000..]).unwrap();
    reading.until(10_000, |r| r.rows.len() == 10_001);
    assert!(reading.rows[1..] == expected(0..10_000));
    wait_taken(&place, 0);
    // Who finds no room waits for it while there is hope.
    place.lease.shared().room.limit(256 << 10, PATIENCE);
    first.write_all(&long[..150_000]).unwrap();
    wait_taken(&place, 256 << 10);
    let (mut third, whole) = (place.connect(), long.clone());
    let sender = thread::spawn(move || third.write_all(&whole).map(|()| third).unwrap());
    first.write_all(&long[150_000..]).unwrap();
    reading.until(10_000, |r| r.rows.len() == 30_001);
    assert_eq!(reading.bad.len(), 1);
    drop(sender.join().unwrap());
}

/// While the job of any table stood nobody was let go, although the frames that had the memory were for another and waited for
/// each other.
#[test]
fn frames_that_wait_for_each_other_do_not_wait_for_the_job_of_another_table() {
    let place = place(&[("receive-buffer", "1024")]);
    let mut idle = place.read("a", &numbers(), &[("receive-buffer", "1024")]);
    let standing = place.read("b", &numbers(), &[("receive-buffer", "1024"), ("source.queue", "1000")]);
    place.lease.shared().room.limit(256 << 10, Duration::ZERO);
    let mut busy = place.connect();
    for first in 0..5 {
        busy.write_all(&events("b", first * 100, 100)).unwrap();
    }
    standing.woken.recv_timeout(PATIENCE).expect("its queue is full now");
    let long = events("a", 0, 10_000);
    let (mut first, mut second) = (place.connect(), place.connect());
    first.write_all(&long[..150_000]).unwrap();
    wait_taken(&place, 256 << 10);
    // It may be cut off meanwhile.
    let _ = second.write_all(&long[..150_000]);
    idle.until(100, |r| r.bad.len() == 1);
    assert!(idle.bad[0].1.starts_with("there is no room for more than the 65536 bytes"), "{}", idle.bad[0].1);
    first.write_all(&long[150_000..]).unwrap();
    idle.until(10_000, |r| r.rows.len() == 10_000);
}

/// What had come of such a frame was held for ever.
#[test]
fn a_peer_that_stops_in_the_middle_of_a_frame_is_cut_off() {
    let place = place(&[]);
    place.lease.shared().set_frame_silence_max(Duration::from_millis(200));
    let mut reading = place.read("t", &numbers(), &[]);
    let (mut good, mut half) = (place.connect(), place.connect());
    good.write_all(&events("t", 0, 1)).unwrap();
    half.write_all(&events("t", 1, 2)[..30]).unwrap();
    reading.until(100, |r| r.bad.len() == 1);
    let expect = "the connection was silent for 200 ms inside this frame, of which 30 bytes had come; the connection ends here";
    assert_eq!(reading.bad[0], (format!("{} frame 1", half.local_addr().unwrap()), expect.to_string()));
    assert_eq!(crate::listeners::stats()[&format!("127.0.0.1:{}", place.port)].silent, 1);
    // Between frames anybody may be silent.
    thread::sleep(Duration::from_millis(300));
    good.write_all(&events("t", 1, 1)).unwrap();
    reading.until(100, |r| r.rows.len() == 2);
    assert_eq!(reading.rows, expected(0..2));
}

#[test]
fn a_frame_that_holds_something_else_is_a_bad_record() {
    let place = place(&[]);
    let text = fields(&[("k", DataType::Utf8), ("n", DataType::Int32), ("m", DataType::Utf8)]);
    let (mut plain, mut texts) = (place.read("plain", &numbers(), &[]), place.read("texts", &text, &[]));
    let mut connection = Connection::new(place.lease.shared(), "p");
    let event = |k: &[u8], n: i32, m: &[u8]| {
        let length = |s: &[u8]| (s.len() as i32).to_be_bytes();
        [&[0; 8][..], &length(k), k, &n.to_be_bytes(), &length(m), m].concat()
    };
    let payload = |count: i32, events: &[Vec<u8>]| [count.to_be_bytes().to_vec(), events.concat()].concat();
    let mut negative = event(b"a", 1, b"");
    negative[8..12].copy_from_slice(&(-1i32).to_be_bytes());
    let frames = [
        frame("plain", &[0, 0]),
        frame("plain", &(-1i32).to_be_bytes()),
        frame("plain", &payload(2, &[vec![0; 39]])),
        frame("plain", &payload(1, &[vec![0; 20], b"ignored".to_vec()])),
        frame("texts", &payload(0, &[])),
        frame("texts", &payload(2, &[event(b"a", 1, b"b"), event(b"cut", 2, b"here")[..20].to_vec()])),
        frame("texts", &payload(i32::MAX, &[event(b"a", 1, b"b")])),
        frame("texts", &payload(1, &[negative])),
        frame("texts", &payload(3, &[event("é".as_bytes(), 1, b"x"), event(b"\xc3", 2, b"y"), event(b"\xa9", 3, b"z"), vec![9; 7]])),
        frame("texts", &payload(1, &[event(b"good", 4, "日本".as_bytes())])),
    ];
    assert_eq!(connection.feed(&frames.concat()), None, "the connection goes on");
    plain.poll(100);
    texts.poll(100);
    assert_eq!((plain.rows, texts.rows), (vec!["+I 0 0.0".into()], vec!["+I é 1 x".into(), "+I good 4 日本".into()]));
    let bad = |place: &str, reason: &str| (place.to_string(), reason.to_string());
    assert_eq!(
        plain.bad,
        [
            bad("p frame 1", "its payload has 2 bytes and so not even the number of its events"),
            bad("p frame 2", "it gives the number of its events as -1"),
            bad("p frame 3", "its 2 events of at least 20 bytes do not fit into the 39 bytes that it has for them"),
        ]
    );
    assert_eq!(plain.raw[0], frames[0]);
    assert_eq!(
        texts.bad,
        [
            bad("p frame 6", "its 2 events of at least 20 bytes do not fit into the 42 bytes that it has for them (event 2)"),
            bad("p frame 7", "its 2147483647 events of at least 20 bytes do not fit into the 22 bytes that it has for them (event 2)"),
            bad("p frame 8", "the length of a string of event 1 is -1"),
            bad("p frame 9 event 2", "column 'k': byte 1 of the string is no UTF-8"),
            bad("p frame 9 event 3", "column 'k': byte 1 of the string is no UTF-8"),
        ]
    );
    assert_eq!(texts.raw[3], event(b"\xc3", 2, b"y"));
}

#[test]
fn channels_that_nobody_reads_are_counted() {
    let place = place(&[]);
    let mut counts = place.read("counts", &numbers(), &[]);
    let both = [events("nobody/reads", 0, 2), events("counts", 5, 1), events("nobody/reads", 2, 1)].concat();
    assert_eq!(Connection::new(place.lease.shared(), "p").feed(&both), None);
    let name = format!("127.0.0.1:{}/nobody/reads", place.port);
    assert_eq!(unknown_channels().into_iter().find(|(n, _)| *n == name), Some((name, 2)));
    counts.poll(10);
    assert_eq!((counts.rows.len(), counts.bad.len()), (1, 0));
    let mut reports = place.read("reports", &numbers(), &[("unknown-channels", "bad-record")]);
    assert_eq!(Connection::new(place.lease.shared(), "p").feed(&both), None);
    reports.poll(10);
    let reason = "no table reads the channel 'nobody/reads'".to_string();
    assert_eq!(reports.bad[0], ("p frame 1".to_string(), reason));
}

#[test]
fn a_frame_waits_for_a_table_that_is_being_opened() {
    let place = place(&[]);
    let mut first = place.read("first", &numbers(), &[]);
    let second = place.source("second", &numbers(), &[]);
    let mut stream = place.connect();
    stream.write_all(&[events("first", 0, 1), events("second", 0, 3), events("first", 1, 1)].concat()).unwrap();
    // What came before is not held up.
    first.until(10, |r| r.rows.len() == 1);
    let mut reading = Reading::new(&*second, ReadRequest::all(numbers())).unwrap();
    reading.until(10, |r| r.rows.len() == 3);
    first.until(10, |r| r.rows.len() == 2);
}

#[test]
fn a_channel_has_one_reader_and_a_port_its_last() {
    let place = place(&[]);
    let reading = place.read("a", &numbers(), &[("channel", "x")]);
    let again = place.source("b", &numbers(), &[("channel", "x")]);
    let error = Reading::new(&*again, ReadRequest::all(numbers())).err().unwrap().to_string();
    assert!(error.starts_with(&format!("the channel 'x' of 127.0.0.1:{} is read by table 'a' already", place.port)), "{error}");
    drop(reading);
    let reading = Reading::new(&*again, ReadRequest::all(numbers())).unwrap();
    let mut stream = place.connect();
    let port = place.port.clone();
    drop((place, reading));
    assert!(matches!(stream.read(&mut [0; 8]), Ok(0) | Err(_)), "its connections end with it");
    TcpListener::bind(("127.0.0.1", port.parse().unwrap())).expect("the port is free again");
}

#[test]
fn times_and_empty_strings() {
    let place = place(&[]);
    let stamp = Arc::new(Field::new("at", DataType::Int64, true));
    let physical: SchemaRef = Arc::new(Schema::new(vec![Field::new("s", DataType::Utf8, false)]));
    let request = ReadRequest { physical: physical.clone(), projection: vec![0], metadata: vec![("timestamp".into(), stamp)] };
    let mut reading = Reading::new(&*place.source("t", &physical, &[]), request).unwrap();
    let before = clock::wall_ms();
    let payload = [1i32.to_be_bytes().to_vec(), (-1i64).to_be_bytes().to_vec(), 0i32.to_be_bytes().to_vec()].concat();
    assert_eq!(Connection::new(place.lease.shared(), "p").feed(&frame("t", &payload)), None);
    reading.poll(1);
    let (text, stamp) = reading.rows[0].rsplit_once(' ').unwrap();
    assert_eq!(text, "+I ", "where NULL cannot be, the empty string is");
    assert!((before..=clock::wall_ms()).contains(&stamp.parse::<i64>().unwrap()), "an event without a time gets that of its arrival");
}

/// The payload of a frame with these events: a text and its time.
fn texts(events: &[&[u8]]) -> Vec<u8> {
    let mut payload = (events.len() as i32).to_be_bytes().to_vec();
    for text in events {
        payload.extend(7i64.to_be_bytes());
        payload.extend((text.len() as i32).to_be_bytes());
        payload.extend(*text);
    }
    payload
}

#[test]
fn the_last_event_of_a_frame_is_known() {
    let place = place(&[]);
    let end = Arc::new(Field::new("end", DataType::Boolean, true));
    let physical: SchemaRef = Arc::new(Schema::new(vec![Field::new("s", DataType::Utf8, false)]));
    let request = |projection| ReadRequest { physical: physical.clone(), projection, metadata: vec![("frame-end".into(), end.clone())] };
    // The last event of the third frame is no UTF-8, and that of the fourth has no other before it.
    let frames: [&[&[u8]]; 5] = [&[b"a", b"b"], &[], &[b"c", b"\xff"], &[b"\xff"], &[b"d"]];
    let frames: Vec<u8> = frames.iter().flat_map(|events| frame("t", &texts(events))).collect();
    let mut reading = Reading::new(&*place.source("t", &physical, &[]), request(vec![0])).unwrap();
    assert_eq!(Connection::new(place.lease.shared(), "p").feed(&frames), None);
    while reading.poll(100) {}
    assert_eq!(reading.rows, ["+I a false", "+I b true", "+I c true", "+I d true"]);
    assert_eq!(reading.bad.len(), 2);
    let wrong = ReadRequest { metadata: vec![("frame-and".into(), end.clone())], ..request(vec![0]) };
    let error = Reading::new(&*place.source("t", &physical, &[]), wrong).err().unwrap().to_string();
    assert!(error.contains("there are: timestamp, frame-end"), "{error}");
}

#[test]
fn the_help_names_the_metadata_columns() {
    for (name, _) in decode::metadata() {
        assert!(CONNECTOR.help.contains(&format!("`{name}`")), "{name}");
    }
}

/// Numbers for a random test, the same for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn batch(&mut self, schema: &SchemaRef, rows: usize) -> RecordBatch {
        let columns = schema.fields().iter().map(|field| -> ArrayRef {
            match field.data_type() {
                DataType::Int32 => Arc::new((0..rows).map(|_| Some(self.next() as i32)).collect::<Int32Array>()),
                DataType::Int64 => Arc::new((0..rows).map(|_| Some(self.next() as i64)).collect::<Int64Array>()),
                DataType::Float32 => Arc::new((0..rows).map(|_| Some(f32::from_bits(self.next() as u32))).collect::<Float32Array>()),
                DataType::Float64 => Arc::new((0..rows).map(|_| Some(f64::from_bits(self.next()))).collect::<Float64Array>()),
                DataType::Boolean => Arc::new((0..rows).map(|_| Some(self.next().is_multiple_of(2))).collect::<BooleanArray>()),
                DataType::Timestamp(..) => {
                    Arc::new((0..rows).map(|_| Some((self.next() >> 20) as i64)).collect::<TimestampMillisecondArray>())
                }
                _ => {
                    let text = |n: u64| (!n.is_multiple_of(8)).then(|| ["é", "b", "日本"][n as usize % 3].repeat(n as usize % 7 + 1));
                    Arc::new((0..rows).map(|_| text(self.next() >> 8)).collect::<StringArray>())
                }
            }
        });
        RecordBatch::try_new(schema.clone(), columns.collect()).unwrap()
    }
}

#[test]
fn random_rows_go_round() {
    let seed = u64::from(std::process::id()) * 2 + 1;
    let mut random = Random(seed);
    let time = DataType::Timestamp(TimeUnit::Millisecond, None);
    let fixed = fields(&[("t", time.clone()), ("b", DataType::Boolean), ("i", DataType::Int32), ("d", DataType::Float64)]);
    let texts = fields(&[("s", DataType::Utf8), ("l", DataType::Int64), ("b", DataType::Boolean), ("e", DataType::Utf8), ("t", time)]);
    let place = place(&[("receive-buffer", "4096")]);
    for (number, (schema, frame_events)) in
        [(&fixed, "1"), (&fixed, "3"), (&fixed, "1024"), (&texts, "1"), (&texts, "5"), (&texts, "1024")].into_iter().enumerate()
    {
        let table = format!("t{number}");
        let mut reading = place.read(&table, schema, &[("receive-buffer", "4096")]);
        let mut writer = place.writer(&table, schema, &[("frame.events", frame_events)]);
        let (mut expect, mut rows) = (String::new(), 0);
        while rows < 20_000 {
            let count = random.next() as usize % 3000;
            let block = Block::inserts(random.batch(schema, count), 0);
            expect += &text::format(&block);
            writer.write(&block).unwrap();
            rows += count;
            if random.next().is_multiple_of(3) {
                writer.flush().unwrap();
            }
        }
        assert_eq!(writer.prepare(true).unwrap(), Vec::<serde_json::Value>::new());
        reading.until(random.next() as usize % 5000 + 1, |r| r.rows.len() >= rows);
        assert!(reading.rows.iter().eq(expect.lines()), "seed {seed}, {table}: what came is not what was sent");
        assert_eq!(reading.bytes, writer.stats().bytes, "seed {seed}, {table}");
    }
}

/// A block without rows is no frame, whatever a frame holds.
#[test]
fn a_block_without_rows_writes_nothing() {
    for frame_events in ["1", "3"] {
        let place = place(&[]);
        let mut reading = place.read("t", &numbers(), &[]);
        let mut writer = place.writer("t", &numbers(), &[("frame.events", frame_events)]);
        let row = text::parse(&numbers(), "1 2");
        writer.write(&row.slice(0, 0)).unwrap();
        writer.write(&row).unwrap();
        writer.write(&row.slice(0, 0)).unwrap();
        assert_eq!(writer.prepare(true).unwrap(), Vec::<serde_json::Value>::new());
        reading.until(1000, |r| !r.rows.is_empty());
        assert_eq!(reading.rows.len(), 1);
        assert_eq!(reading.bytes, writer.stats().bytes);
    }
}

#[test]
fn the_wire_has_no_null() {
    let place = place(&[]);
    let error = place.writer("t", &numbers(), &[]).write(&text::parse(&numbers(), "1 NULL")).unwrap_err().to_string();
    assert!(error.starts_with("column 'v' has a NULL, and Siddhi's binary mapping has none for FLOAT"), "{error}");
    let mut reading = place.read("t", &numbers(), &[]);
    let mut writer = place.writer("t", &numbers(), &[("null-values", "zero")]);
    writer.write(&text::parse(&numbers(), "1 NULL\nNULL 2.5")).unwrap();
    writer.prepare(false).unwrap();
    reading.until(10, |r| r.rows.len() == 2);
    assert_eq!(reading.rows, ["+I 1 0.0", "+I 0 2.5"]);
}

#[test]
fn a_sink_names_a_server_that_is_gone() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port().to_string();
    let make = |more: &[(&str, &str)]| {
        let pairs = [&[("port", port.as_str()), ("reconnect.backoff", "1 ms")][..], more].concat();
        CONNECTOR.sink(&numbers(), &mut raw("table 't'", &pairs)).unwrap()
    };
    let mut writer = make(&[]).writer(sink_context(&numbers(), false)).unwrap();
    drop(socket.accept().unwrap());
    let row = text::parse(&numbers(), "1 2");
    // The first bytes may still go into the kernel's buffer.
    let error = (0..100_000).find_map(|_| writer.write(&row).and_then(|()| writer.flush()).err()).expect("nobody is there").to_string();
    let expect = format!("writing to tcp://127.0.0.1:{port}/t: ");
    assert!(error.starts_with(&expect) && error.contains("'reconnect.attempts'"), "{error}");
    drop(socket);
    let error = make(&[]).writer(sink_context(&numbers(), false)).err().unwrap().to_string();
    assert!(error.starts_with(&format!("connecting to tcp://127.0.0.1:{port}/t: ")), "{error}");
    let mut patient = make(&[("reconnect.attempts", "2")]).writer(sink_context(&numbers(), false)).unwrap();
    patient.write(&row).unwrap();
    let error = patient.flush().unwrap_err().to_string();
    assert!(error.contains("(attempt 3 of 3)"), "{error}");
    let mut stopped = make(&[("reconnect.attempts", "1000")]).writer(sink_context(&numbers(), true)).unwrap();
    stopped.write(&row).unwrap();
    let error = stopped.flush().unwrap_err().to_string();
    assert!(error.ends_with("the job was stopped while the server was still busy or absent"), "{error}");
}

/// A server whose machine went away while no row came was never missed: its connection stayed, and what was then written was lost.
#[test]
fn a_sink_asks_whether_its_server_is_there() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port().to_string();
    let (options, _) = SiddhiOptions::checked(&mut raw("table 't'", &[("port", port.as_str())])).unwrap();
    let stream = sink::connect_once(&options).unwrap();
    assert!(socket2::SockRef::from(&stream).keepalive().unwrap());
}

#[test]
fn a_sink_connects_again_and_sends_whole_frames() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port().to_string();
    let (gone, is_gone) = mpsc::channel();
    let server = thread::spawn(move || {
        drop(socket.accept().unwrap());
        gone.send(()).unwrap();
        let mut all = Vec::new();
        socket.accept().unwrap().0.read_to_end(&mut all).unwrap();
        all
    });
    let pairs = [("port", port.as_str()), ("reconnect.attempts", "3"), ("reconnect.backoff", "1 ms")];
    let sink = CONNECTOR.sink(&numbers(), &mut raw("table 't'", &pairs)).unwrap();
    let mut writer = sink.writer(sink_context(&numbers(), false)).unwrap();
    for round in 0..1001 {
        writer.write(&text::parse(&numbers(), "1 2\n3 4")).unwrap();
        writer.flush().unwrap();
        if round == 0 {
            is_gone.recv_timeout(PATIENCE).unwrap();
        }
    }
    writer.prepare(true).unwrap();
    let all = server.join().unwrap();
    let (mut at, mut frames) = (0, 0);
    while at < all.len() {
        let Ok(Cut::Frame(frame)) = split(&all[at..], 1000) else { panic!("no frame at byte {at}") };
        (at, frames) = (at + frame.length, frames + 1);
    }
    // The first frame is lost if it was sent before the connection was seen to be closed.
    assert!(frames == 1000 || frames == 1001, "{frames} frames");
}

#[track_caller]
fn check_error(schema: &SchemaRef, owner: &str, pairs: &[(&str, &str)], expect: &str) {
    let (mut source, mut sink) = (raw(owner, pairs), raw(owner, pairs));
    let errors = [CONNECTOR.source(schema, &mut source).err(), CONNECTOR.sink(schema, &mut sink).err()];
    let found = errors.iter().flatten().any(|error| error.to_string() == expect);
    assert!(found, "{:?}", errors.map(|e| e.map(|e| e.to_string())));
}

#[test]
fn mistakes_in_options_and_columns() {
    let check = |pairs: &[(&str, &str)], expect: &str| check_error(&numbers(), "table 't'", pairs, expect);
    check(&[("port", "x")], "table 't': option 'port' = 'x': expected a whole number from 0 to 65535");
    check(&[("channel", "")], "table 't': option 'channel': a channel id has at least one character");
    check(&[("max-frame-size", "1 gb")], "table 't': option 'max-frame-size': expected 1024 to 536870912 bytes");
    check(&[("source.queue", "0")], "table 't': option 'source.queue': expected 1 to 1099511627776 bytes");
    check(&[("frame.events", "0")], "table 't': option 'frame.events': expected 1 to 1048576 events");
    check(&[("listener.max-connections", "0")], "table 't': option 'listener.max-connections': at least 1 is needed");
    let expect = "table 't': option 'arrival.column' = 'v': expected a column of type BIGINT; the columns are: n, v";
    check(&[("arrival.column", "v")], expect);
    let expect = "adapter: option 'channel': it is required here, where there is no table to be named after";
    check_error(&numbers(), "adapter", &[], expect);
    let exposed = |more: &[(&str, &str)]| {
        let pairs = [&[("hostname", "0.0.0.0")][..], more].concat();
        CONNECTOR.source(&numbers(), &mut raw("table 't'", &pairs)).err().map(|e| e.to_string())
    };
    assert!(exposed(&[]).is_some_and(|error| error.starts_with("table 't': option 'hostname' = '0.0.0.0': other machines reach")));
    assert_eq!(exposed(&[("listen.insecure", "true")]), None);
    let small = fields(&[("n", DataType::Int16)]);
    let expect = "table 't': column 'n': Siddhi's binary mapping has no SMALLINT; declare it INT and convert it in the query";
    check_error(&small, "table 't'", &[], expect);
}
