//! Tests over the loopback interface: both directions as client and as listener, records cut
//! anywhere, peers that vanish, peers that are slow.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use arrow::datatypes::{DataType, Field, Schema};
use tidemill_block::{Block, text};
use tidemill_format::text::TextFormat;

use super::*;
use crate::{Polled, ReadRequest, Reader, ReaderContext, SinkContext, Waker, Writer};

/// Not a bound on time: what takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("k", DataType::Utf8, true), Field::new("n", DataType::Int64, true)]))
}

fn raw(pairs: &[(&str, &str)]) -> RawOptions {
    RawOptions::new("table 't'", pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())))
}

fn options(address: SocketAddr, mode: &str, more: &[(&str, &str)]) -> SocketOptions {
    let port = address.port().to_string();
    let mut pairs = vec![("hostname", "127.0.0.1"), ("port", port.as_str()), ("mode", mode), ("reconnect.backoff", "1 ms")];
    pairs.extend(more);
    SocketOptions::checked(&mut raw(&pairs)).unwrap()
}

fn csv() -> TextFormat {
    TextFormat::take("csv", &mut raw(&[])).unwrap()
}

fn local() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// A reader and what it has given so far.
struct Reading {
    reader: Box<dyn Reader>,
    woken: mpsc::Receiver<()>,
    rows: Vec<String>,
    bad: Vec<(String, String, String)>,
    bytes: u64,
}

fn context() -> (ReaderContext, mpsc::Receiver<()>) {
    let (sender, woken) = mpsc::channel();
    let waker = Waker::new(move || {
        let _ = sender.send(());
    });
    (ReaderContext { waker, request: ReadRequest::all(schema()), shard: 0, shards: 1 }, woken)
}

impl Reading {
    fn new(source: &source::SocketSource, listener: Option<TcpListener>) -> Self {
        let (context, woken) = context();
        let reader: Box<dyn Reader> = match listener {
            Some(listener) => Box::new(source.listener(listener, context).unwrap()),
            None => source.open(&source.splits(3).unwrap()[0], context).unwrap(),
        };
        Reading { reader, woken, rows: Vec::new(), bad: Vec::new(), bytes: 0 }
    }

    /// Polls until the end or until `enough`; the error if there is one.
    fn until(&mut self, rows_max: usize, enough: impl Fn(&Self) -> bool) -> Result<(), String> {
        while !enough(self) {
            match self.reader.poll(rows_max).map_err(|e| e.to_string())? {
                Polled::Pending => self.woken.recv_timeout(PATIENCE).expect("a reader that waits is woken"),
                Polled::End => return Ok(()),
                Polled::Rows(rows) => {
                    assert!(rows.batch.num_rows() <= rows_max);
                    assert_eq!(rows.bad.len(), rows.places.len());
                    self.bytes += rows.bytes;
                    self.rows.extend(text::format(&Block::inserts(rows.batch, 0)).lines().map(String::from));
                    self.bad.extend(
                        rows.bad.into_iter().zip(rows.places).map(|(b, place)| (place, b.reason, String::from_utf8(b.raw).unwrap())),
                    );
                }
            }
        }
        Ok(())
    }
}

#[test]
fn a_listener_takes_rows_of_all_peers() {
    let (listener, address) = local();
    let source = source::SocketSource { options: options(address, "listener", &[]), format: csv() };
    let mut reading = Reading::new(&source, Some(listener));
    let mut peers: Vec<_> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
    // In rounds of a few bytes, so that the records of all peers are cut and interleaved.
    let lines: Vec<String> = (0..3).map(|p| (0..100).map(|i| format!("p{p},{i}\n")).collect()).collect();
    for from in (0..700).step_by(5) {
        for (peer, text) in peers.iter_mut().zip(&lines) {
            peer.set_nodelay(true).unwrap();
            let text = &text.as_bytes()[from.min(text.len())..(from + 5).min(text.len())];
            peer.write_all(text).unwrap();
        }
    }
    reading.until(7, |r| r.rows.len() == 300).unwrap();
    for p in 0..3 {
        let own: Vec<_> = reading.rows.iter().filter(|row| row.starts_with(&format!("+I p{p} "))).cloned().collect();
        assert_eq!(own, (0..100).map(|i| format!("+I p{p} {i}")).collect::<Vec<_>>(), "in the peer's order");
    }
    assert_eq!(reading.bytes, lines.iter().map(|l| l.len() as u64).sum::<u64>());
    assert_eq!(reading.bad, []);
    // A reader that is gone leaves its port and lets its peers go.
    drop(reading);
    assert!(matches!(peers[0].read(&mut [0; 8]), Ok(0) | Err(_)));
    TcpListener::bind(address).expect("the port is free again");
}

#[test]
fn a_peer_that_vanishes_harms_only_its_last_record() {
    let (listener, address) = local();
    let source = source::SocketSource { options: options(address, "listener", &[]), format: csv() };
    let mut reading = Reading::new(&source, Some(listener));
    let mut stays = TcpStream::connect(address).unwrap();
    stays.write_all(b"a,1\nb,").unwrap();
    let mut vanishes = TcpStream::connect(address).unwrap();
    let place = vanishes.local_addr().unwrap();
    vanishes.write_all(b"x,1\ny,oops\nz,12").unwrap();
    drop(vanishes);
    reading.until(100, |r| r.bad.len() == 2).unwrap();
    stays.write_all(b"2\n").unwrap();
    reading.until(100, |r| r.rows.len() == 3).unwrap();
    reading.rows.sort();
    assert_eq!(reading.rows, ["+I a 1", "+I b 2", "+I x 1"]);
    assert_eq!((reading.bad[0].0.as_str(), reading.bad[0].2.as_str()), (format!("{place} record 2").as_str(), "y,oops"));
    let cut = "the connection was closed inside this record: its line end is missing".to_string();
    assert_eq!(reading.bad[1], (format!("{place} record 3"), cut, "z,12".to_string()));
}

/// Half a record is no bad record, however long the rest of it takes, and keeps no other peer waiting.
#[test]
fn a_peer_that_is_slow_keeps_nobody_waiting() {
    let (listener, address) = local();
    let source = source::SocketSource { options: options(address, "listener", &[]), format: csv() };
    let mut reading = Reading::new(&source, Some(listener));
    let mut slow = TcpStream::connect(address).unwrap();
    slow.set_nodelay(true).unwrap();
    slow.write_all(b"slow,1\nha").unwrap();
    reading.until(100, |r| r.rows.len() == 1).unwrap();
    let mut quick = TcpStream::connect(address).unwrap();
    let rest = b"lf,23";
    for (i, byte) in rest.iter().enumerate() {
        slow.write_all(&[*byte]).unwrap();
        quick.write_all(format!("quick,{i}\n").as_bytes()).unwrap();
        reading.until(100, |r| r.rows.len() == i + 2).unwrap();
        assert_eq!(reading.rows[i + 1], format!("+I quick {i}"));
    }
    slow.write_all(b"\n").unwrap();
    reading.until(100, |r| r.rows.len() == rest.len() + 2).unwrap();
    assert_eq!(reading.rows[rest.len() + 1], "+I half 23");
    assert_eq!(reading.bad, []);
}

#[test]
fn a_record_without_end_cuts_its_peer_off() {
    let (listener, address) = local();
    let source = source::SocketSource { options: options(address, "listener", &[("max-record-size", "1000")]), format: csv() };
    let mut reading = Reading::new(&source, Some(listener));
    let mut endless = TcpStream::connect(address).unwrap();
    endless.write_all(b"a,1\n").unwrap();
    reading.until(100, |r| r.rows.len() == 1).unwrap();
    endless.write_all(&[b'x'; 3000]).unwrap();
    reading.until(100, |r| r.bad.len() == 1).unwrap();
    endless.set_read_timeout(Some(PATIENCE)).unwrap();
    let cut = endless.read(&mut [0; 8]);
    assert!(matches!(&cut, Ok(0)) || cut.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset), "the peer is cut off");
    let mut good = TcpStream::connect(address).unwrap();
    good.write_all(b"b,2\n").unwrap();
    reading.until(100, |r| r.rows.len() == 2).unwrap();
    assert_eq!(reading.rows, ["+I a 1", "+I b 2"]);
    assert!(reading.bad[0].1.contains("longer than 1000 bytes") && reading.bad[0].2.starts_with("xxx"), "{:?}", reading.bad[0].1);
}

#[test]
fn peers_are_asked_whether_they_are_there() {
    let (listener, address) = local();
    let (sender, accepted) = mpsc::channel();
    let take = move |_, stream: TcpStream, _| {
        alive::acknowledging(&stream).unwrap();
        sender.send(stream).unwrap();
    };
    let _acceptor = peer::Acceptor::start(listener, Arc::default(), 1, take).unwrap();
    let peer = TcpStream::connect(address).unwrap();
    let stream = accepted.recv_timeout(PATIENCE).unwrap();
    let socket = socket2::SockRef::from(&stream);
    assert!(socket.keepalive().unwrap());
    #[cfg(target_os = "linux")]
    {
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(30));
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(60)));
    }
    drop(peer);
}

/// The server's port and others that are not accepted here rely on it.
#[cfg(target_os = "linux")]
#[test]
fn a_socket_that_listens_gives_its_probes_to_its_connections() {
    let (listener, address) = local();
    alive::keep_alive(&listener).unwrap();
    let peer = TcpStream::connect(address).unwrap();
    let stream = listener.accept().unwrap().0;
    let socket = socket2::SockRef::from(&stream);
    assert!(socket.keepalive().unwrap());
    assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(30));
    drop(peer);
}

#[cfg(target_os = "linux")]
#[test]
fn what_a_peer_has_not_taken_is_known() {
    let (listener, address) = local();
    let mut stream = TcpStream::connect(address).unwrap();
    let mut peer = listener.accept().unwrap().0;
    assert_eq!(alive::unacknowledged(&stream), Some(0));
    // Until nothing more fits into what lies between.
    stream.set_nonblocking(true).unwrap();
    while matches!(stream.write(&[0; 4096]), Ok(n) if n > 0) {}
    assert!(alive::unacknowledged(&stream) > Some(0));
    let rest = thread::spawn(move || std::io::copy(&mut peer, &mut std::io::sink()).unwrap());
    while alive::unacknowledged(&stream) != Some(0) {
        thread::sleep(Duration::from_millis(1));
    }
    drop(stream);
    assert!(rest.join().unwrap() > 0);
}

#[test]
fn peers_beyond_the_bound_are_turned_away_and_counted() {
    let (listener, address) = local();
    let source = source::SocketSource { options: options(address, "listener", &[("listener.max-connections", "1")]), format: csv() };
    let mut reading = Reading::new(&source, Some(listener));
    let mut first = TcpStream::connect(address).unwrap();
    first.write_all(b"a,1\n").unwrap();
    reading.until(10, |r| r.rows.len() == 1).unwrap();
    let mut second = TcpStream::connect(address).unwrap();
    second.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(second.read(&mut [0]).unwrap(), 0, "closed at once");
    assert_eq!(crate::listeners::stats()[&address.to_string()].turned_away, 1);
}

#[cfg(target_os = "linux")]
#[test]
fn a_peer_that_says_nothing_is_cut_off_if_wanted() {
    let (listener, address) = local();
    let source = source::SocketSource { options: options(address, "listener", &[("idle.timeout", "2 s")]), format: csv() };
    let mut reading = Reading::new(&source, Some(listener));
    let mut peer = TcpStream::connect(address).unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    // Written long before the time is over, however slow the machine is.
    peer.write_all(b"a,1\nb,").unwrap();
    assert_eq!(peer.read(&mut [0]).unwrap(), 0, "it is cut off");
    // What it had sent stays, and half a record is a bad one.
    reading.until(10, |r| !r.bad.is_empty()).unwrap();
    assert_eq!((reading.rows.as_slice(), reading.bad[0].2.as_str()), (&["+I a 1".to_string()][..], "b,"));
    while !crate::listeners::stats().get(&address.to_string()).is_some_and(|stats| stats.silent == 1) {
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_client_ends_with_its_peer() {
    let (listener, address) = local();
    let server = thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        for part in ["a,1\nb", ",2\n", "c,3\nd,"] {
            stream.write_all(part.as_bytes()).unwrap();
        }
    });
    let source = source::SocketSource { options: options(address, "client", &[]), format: csv() };
    let mut reading = Reading::new(&source, None);
    reading.until(2, |_| false).unwrap();
    server.join().unwrap();
    assert_eq!(reading.rows, ["+I a 1", "+I b 2", "+I c 3"]);
    assert_eq!((reading.bad[0].0.clone(), reading.bad[0].2.as_str()), (format!("{address} record 4"), "d,"));
    assert_eq!((reading.bytes, reading.reader.position()), (14, serde_json::Value::Null));
}

#[test]
fn a_client_connects_again() {
    let (listener, address) = local();
    let server = thread::spawn(move || {
        for text in ["a,1\n", "b,2\n"] {
            listener.accept().unwrap().0.write_all(text.as_bytes()).unwrap();
        }
    });
    let source = source::SocketSource { options: options(address, "client", &[("reconnect.attempts", "2")]), format: csv() };
    let mut reading = Reading::new(&source, None);
    let error = reading.until(100, |_| false).unwrap_err();
    server.join().unwrap();
    assert_eq!(reading.rows, ["+I a 1", "+I b 2"]);
    assert!(error.starts_with(&format!("connecting to {address}: ")) && error.ends_with("(attempt 2 of 2)"), "{error}");
}

#[test]
fn nobody_there_is_told_at_once() {
    let (listener, address) = local();
    drop(listener);
    let source = source::SocketSource { options: options(address, "client", &[]), format: csv() };
    let error = source.open(&source.splits(1).unwrap()[0], context().0).err().unwrap().to_string();
    assert!(error.starts_with(&format!("connecting to {address}: ")) && error.contains("check that a peer listens there"), "{error}");
    let sink = sink::SocketSink { options: options(address, "client", &[]), format: csv() };
    assert!(sink.writer(sink_context(false)).is_err());
}

fn sink_context(cancelled: bool) -> SinkContext {
    SinkContext { shard: 0, shards: 1, schema: schema(), run_id: "r".into(), cancelled: Arc::new(AtomicBool::new(cancelled)) }
}

#[test]
fn a_client_sink_writes_everything_to_its_end() {
    let (listener, address) = local();
    let server = thread::spawn(move || {
        let mut all = String::new();
        listener.accept().unwrap().0.read_to_string(&mut all).unwrap();
        all
    });
    // A queue smaller than the blocks, so that the writer has to wait.
    let sink = sink::SocketSink { options: options(address, "client", &[("sink.queue", "100")]), format: csv() };
    let mut writer = sink.writer(sink_context(false)).unwrap();
    let mut expect = String::new();
    for i in 0..20_000 {
        writer.write(&text::parse(&schema(), &format!("key{i} {i}\nNULL 7"))).unwrap();
        expect += &format!("key{i},{i}\n,7\n");
        if i % 1000 == 0 {
            writer.flush().unwrap();
        }
    }
    assert_eq!(writer.prepare(false).unwrap(), Vec::<serde_json::Value>::new());
    writer.prepare(true).unwrap();
    assert_eq!(writer.stats().bytes, expect.len() as u64);
    assert!(server.join().unwrap() == expect, "the peer got what was written");
}

#[test]
fn a_client_sink_names_a_peer_that_is_gone() {
    let (listener, address) = local();
    let server = thread::spawn(move || drop(listener.accept().unwrap()));
    let sink = sink::SocketSink { options: options(address, "client", &[]), format: csv() };
    let mut writer = sink.writer(sink_context(false)).unwrap();
    server.join().unwrap();
    // The first bytes may still go into the kernel's buffer.
    let error = (0..100_000).find_map(|_| writer.write(&text::parse(&schema(), "a 1")).and_then(|()| writer.prepare(false)).err());
    let error = error.expect("writing to nobody fails").to_string();
    assert!(error.starts_with(&format!("writing to {address}: ")) && error.contains("'reconnect.attempts'"), "{error}");
}

#[test]
fn a_client_sink_connects_again() {
    let (listener, address) = local();
    let (gone, is_gone) = mpsc::channel();
    let server = thread::spawn(move || {
        drop(listener.accept().unwrap());
        gone.send(()).unwrap();
        let mut all = String::new();
        listener.accept().unwrap().0.read_to_string(&mut all).unwrap();
        all
    });
    let sink = sink::SocketSink { options: options(address, "client", &[("reconnect.attempts", "3")]), format: csv() };
    let mut writer = sink.writer(sink_context(false)).unwrap();
    // Else the kernel might take all of it for a peer that has not been accepted yet.
    is_gone.recv_timeout(PATIENCE).unwrap();
    while writer.stats().bytes <= 4 * 1000 {
        writer.write(&text::parse(&schema(), "a 1")).unwrap();
        writer.prepare(false).unwrap();
    }
    writer.prepare(true).unwrap();
    let all = server.join().unwrap();
    assert!(all.lines().count() > 100 && all.lines().all(|line| line == "a,1") && all.ends_with('\n'), "whole rows only");
}

/// Rows of 64 KB that are written to a peer that reads nothing: 64 MB, far more than a queue and the kernel hold
/// for it.
const FLOOD_ROWS: usize = 1000;

/// The peer stays connected and reads nothing: the writer comes to a stand. Then the peer reads on and gets every row.
#[track_caller]
fn check_slow_peer(mut writer: Box<dyn Writer>, peer: TcpStream) {
    let written = Arc::new(AtomicUsize::new(0));
    let told = written.clone();
    let writing = thread::spawn(move || {
        let long = "x".repeat(64 << 10);
        for row in 0..FLOOD_ROWS {
            writer.write(&text::parse(&schema(), &format!("{long} {row}"))).unwrap();
            told.store(row + 1, Ordering::Relaxed);
        }
        writer.prepare(true).unwrap();
    });
    // It goes on while the kernel takes bytes. To look before it stands would only make the test weaker.
    let (mut before, mut same) = (0, 0);
    while same < 10 {
        thread::sleep(Duration::from_millis(10));
        let now = written.load(Ordering::Relaxed);
        same = if now == before && now > 0 { same + 1 } else { 0 };
        before = now;
    }
    assert!(before < FLOOD_ROWS, "a peer that reads nothing was given everything");
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut rows = 0;
    for line in BufReader::new(peer).lines() {
        let line = line.unwrap();
        assert_eq!(line.trim_start_matches('x'), format!(",{rows}"));
        rows += 1;
    }
    writing.join().unwrap();
    assert_eq!(rows, FLOOD_ROWS);
}

#[test]
fn a_client_sink_waits_for_a_peer_that_stops_reading() {
    let (listener, address) = local();
    let sink = sink::SocketSink { options: options(address, "client", &[("sink.queue", "200 kb")]), format: csv() };
    let writer = sink.writer(sink_context(false)).unwrap();
    check_slow_peer(writer, listener.accept().unwrap().0);
}

#[test]
fn a_listener_sink_waits_for_a_peer_that_stops_reading() {
    let (listener, address) = local();
    let sink = sink::SocketSink { options: options(address, "listener", &[("sink.queue", "200 kb")]), format: csv() };
    let writer = sink.listener(listener, sink_context(false)).unwrap();
    check_slow_peer(Box::new(writer), TcpStream::connect(address).unwrap());
}

#[test]
fn a_listener_sink_serves_everybody() {
    let (listener, address) = local();
    let sink = sink::SocketSink { options: options(address, "listener", &[("sink.queue", "50")]), format: csv() };
    let context = sink_context(false);
    let mut writer = sink.listener(listener, context).unwrap();
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            thread::spawn(move || {
                let mut all = String::new();
                stream.read_to_string(&mut all).map(|_| all)
            })
        })
        .collect();
    let leaves = TcpStream::connect(address).unwrap();
    while writer.peers() < 3 {
        thread::sleep(Duration::from_millis(1));
    }
    drop(leaves);
    let mut expect = String::new();
    for i in 0..5000 {
        writer.write(&text::parse(&schema(), &format!("k {i}"))).unwrap();
        writer.flush().unwrap();
        expect += &format!("k,{i}\n");
    }
    writer.prepare(true).unwrap();
    for reader in readers {
        assert!(reader.join().unwrap().unwrap() == expect, "every peer gets every row");
    }
    drop(writer);
    TcpListener::bind(address).expect("the port is free again");
}

#[test]
fn a_listener_sink_waits_for_somebody() {
    let (listener, address) = local();
    let sink = sink::SocketSink { options: options(address, "listener", &[]), format: csv() };
    let context = sink_context(false);
    let cancelled = context.cancelled.clone();
    let mut writer = sink.listener(listener, context).unwrap();
    let waiting = thread::spawn(move || {
        writer.write(&text::parse(&schema(), "a 1")).unwrap();
        let flushed = writer.flush().map_err(|e| e.to_string());
        drop(writer);
        flushed
    });
    assert!(!waiting.is_finished());
    cancelled.store(true, Ordering::Relaxed);
    let error = waiting.join().unwrap().unwrap_err();
    assert_eq!(error, format!("writing to {address}: the job was stopped while the peer was still busy or absent"));
}

#[track_caller]
fn check_error(pairs: &[(&str, &str)], expect: &str) {
    let error = CONNECTOR.source(&schema(), &mut raw(pairs)).err().expect("an error").to_string();
    assert_eq!(error, expect);
}

#[test]
fn mistakes_in_options() {
    check_error(&[("format", "csv")], "table 't': option 'port' is required");
    check_error(&[("port", "1")], "table 't': option 'format' is required; it can be csv or json");
    check_error(&[("port", "1"), ("mode", "x")], "table 't': option 'mode' = 'x': expected one of: client, listener");
    check_error(&[("port", "1"), ("listener.max-connections", "0")], "table 't': option 'listener.max-connections': at least 1 is needed");
    check_error(&[("port", "1"), ("max-record-size", "0")], "table 't': option 'max-record-size': expected 1 to 67108864 bytes");
    let expect = "table 't': option 'idle.timeout': expected more than nothing; leave it out for never";
    check_error(&[("port", "1"), ("idle.timeout", "0 s")], expect);
}

#[test]
fn a_listener_that_others_reach_must_be_wanted() {
    let of = |mode: &str, more: &[(&str, &str)]| {
        let pairs = [&[("port", "1"), ("hostname", "0.0.0.0"), ("mode", mode), ("format", "csv")][..], more].concat();
        (CONNECTOR.source(&schema(), &mut raw(&pairs)).err(), CONNECTOR.sink(&schema(), &mut raw(&pairs)).err())
    };
    let (source, sink) = of("listener", &[]);
    for error in [source, sink] {
        let error = error.expect("an error").to_string();
        assert!(error.starts_with("table 't': option 'hostname' = '0.0.0.0'") && error.contains("'listen.insecure'"), "{error}");
    }
    for (mode, more) in [("client", &[][..]), ("listener", &[("listen.insecure", "true")][..])] {
        let (source, sink) = of(mode, more);
        assert!(source.is_none() && sink.is_none(), "{mode} {source:?} {sink:?}");
    }
}
