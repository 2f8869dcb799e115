//! Tests over the loopback interface: messages of every kind, servers that go away, fall silent or
//! refuse, encrypted connections, many peers of a listener.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use rustls::{ServerConnection, StreamOwned};
use tidemill_block::{Block, text};
use tidemill_connect::listeners::ListenerStats;
use tidemill_connect::socket::peer::Peers;
use tidemill_connect::socket::room::{Room, Share};
use tidemill_connect::{Polled, ReadRequest, Reader, ReaderContext, SinkContext, Waker, Writer, listeners};
use tidemill_format::text::TextFormat;
use tungstenite::client::IntoClientRequest;
use tungstenite::handshake::server::{Callback, ErrorResponse, Request, Response};
use tungstenite::protocol::Role;
use tungstenite::{Bytes, Error, HandshakeError, Message, WebSocket};

use super::*;
use crate::fixture::{AUTHORITY, OTHER_AUTHORITY, encryption};

/// Not a bound on time: what takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("k", DataType::Utf8, true), Field::new("n", DataType::Int64, true)]))
}

fn raw(pairs: &[(&str, &str)]) -> RawOptions {
    RawOptions::new("table 't'", pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())))
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
}

fn context() -> (ReaderContext, mpsc::Receiver<()>) {
    let (sender, woken) = mpsc::channel();
    let waker = Waker::new(move || {
        let _ = sender.send(());
    });
    (ReaderContext { waker, request: ReadRequest::all(schema()), shard: 0, shards: 1 }, woken)
}

impl Reading {
    /// Reads from a server as a client.
    fn client(url: &str, more: &[(&str, &str)]) -> Result<Self, String> {
        let pairs: Vec<_> =
            [("url", url), ("format", "json"), ("reconnect.backoff", "1 ms")].into_iter().chain(more.iter().copied()).collect();
        let source = CONNECTOR.source(&schema(), &mut raw(&pairs)).map_err(|e| e.to_string())?;
        let (context, woken) = context();
        let reader = source.open(&source.splits(3).unwrap()[0], context).map_err(|e| e.to_string())?;
        Ok(Reading { reader, woken, rows: Vec::new(), bad: Vec::new() })
    }

    /// Reads from everybody who connects.
    fn listener(listener: TcpListener, more: &[(&str, &str)]) -> Self {
        Reading::listener_with_room(listener, more).0
    }

    /// As [`Reading::listener`], with the memory that its peers share.
    fn listener_with_room(listener: TcpListener, more: &[(&str, &str)]) -> (Self, Arc<Room>) {
        let pairs: Vec<_> = [("mode", "listener"), ("port", "1")].into_iter().chain(more.iter().copied()).collect();
        let options = WebSocketOptions::checked(&mut raw(&pairs)).unwrap();
        let format = TextFormat::take("json", &mut raw(&[])).unwrap();
        let (context, woken) = context();
        let peers = Arc::new(Peers::default());
        let room = Arc::new(Room::new(peers.clone(), 0));
        let intake = source::WebSocketSource { options, format, target: None }.listener(listener, context, peers, room.clone()).unwrap();
        (Reading { reader: Box::new(intake), woken, rows: Vec::new(), bad: Vec::new() }, room)
    }

    /// Polls until the end or until `enough`; the error if there is one.
    fn until(&mut self, rows_max: usize, enough: impl Fn(&Self) -> bool) -> Result<(), String> {
        while !enough(self) {
            match self.reader.poll(rows_max).map_err(|e| e.to_string())? {
                Polled::Pending => self.woken.recv_timeout(PATIENCE).expect("a reader that waits is woken"),
                Polled::End => return Ok(()),
                Polled::Rows(rows) => {
                    assert!(rows.batch.num_rows() <= rows_max && rows.bad.len() == rows.places.len());
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

/// A server that does this with one connection after the other.
fn server(connections: usize, serve: impl Fn(usize, WebSocket<TcpStream>) + Send + 'static) -> (String, JoinHandle<()>) {
    let (listener, address) = local();
    let thread = thread::spawn(move || {
        for n in 0..connections {
            serve(n, tungstenite::accept(listener.accept().unwrap().0).unwrap());
        }
    });
    (format!("ws://{address}/feed"), thread)
}

/// Closes in good order.
fn bye<S: Read + Write>(mut socket: WebSocket<S>) {
    let _ = socket.close(None);
    while socket.read().is_ok() {}
}

fn row(n: usize) -> Message {
    Message::text(format!("{{\"n\":{n}}}"))
}

#[test]
fn messages_of_every_kind() {
    for rows_max in [1, 100] {
        let (url, server) = server(1, |_, mut socket| {
            for text in [
                "{\"k\":\"a\",\"n\":1}",
                "{\"k\":\"b\",\"n\":2}\n{\"k\":\"c\",\"n\":3}\n",
                "",
                "[{\"n\":4},\n{\"n\":5}]",
                "{\"n\":\"x\"}",
                "[{\"n\":6},",
            ] {
                socket.send(Message::text(text)).unwrap();
            }
            socket.send(Message::Ping(Bytes::from_static(b"?"))).unwrap();
            socket.send(Message::binary(&b"{\"n\":7}"[..])).unwrap();
            // Much larger than what is read or handed over at once.
            let large: String = (8..30_008).map(|n| format!("{{\"n\":{n}}}\n")).collect();
            socket.send(Message::text(large)).unwrap();
            bye(socket);
        });
        let mut reading = Reading::client(&url, &[]).unwrap();
        reading.until(rows_max, |_| false).unwrap();
        server.join().unwrap();
        assert_eq!(reading.rows[..6], ["+I a 1", "+I b 2", "+I c 3", "+I NULL 4", "+I NULL 5", "+I NULL 7"]);
        assert!(reading.rows[6..].iter().enumerate().all(|(at, row)| *row == format!("+I NULL {}", at + 8)));
        assert_eq!(reading.rows.len(), 6 + 30_000);
        let bad: Vec<_> = reading.bad.iter().map(|(place, _, raw)| (place.as_str(), raw.as_str())).collect();
        let places = [format!("{url} record 6"), format!("{url} record 7")];
        assert_eq!(bad, [(places[0].as_str(), "{\"n\":\"x\"}"), (places[1].as_str(), "[{\"n\":6},")]);
    }
}

/// Keeps what a client's first request says.
struct Look(Arc<Mutex<Vec<String>>>);

impl Callback for Look {
    fn on_request(self, request: &Request, response: Response) -> Result<Response, ErrorResponse> {
        let header = |name: &str| request.headers()[name].to_str().unwrap().to_string();
        self.0.lock().unwrap().push(format!("{} {} {}", request.uri(), header("authorization"), header("x-key")));
        Ok(response)
    }
}

#[test]
fn a_client_connects_again() {
    let (listener, address) = local();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let look = seen.clone();
    let server = thread::spawn(move || {
        for n in 0..2 {
            let mut socket = tungstenite::accept_hdr(listener.accept().unwrap().0, Look(look.clone())).unwrap();
            assert_eq!(socket.read().unwrap(), Message::text("subscribe to all"));
            socket.send(row(n)).unwrap();
            if n > 0 {
                bye(socket);
            }
        }
    });
    let more = [("reconnect.attempts", "2"), ("subscribe-message", "subscribe to all"), ("token", "geheim"), ("headers", "X-Key: a")];
    let mut reading = Reading::client(&format!("ws://{address}/feed?x=1"), &more).unwrap();
    let error = reading.until(100, |_| false).unwrap_err();
    server.join().unwrap();
    assert_eq!(reading.rows, ["+I NULL 0", "+I NULL 1"]);
    assert!(error.starts_with(&format!("connecting to ws://{address}/feed?x=1: ")) && error.ends_with("(attempt 2 of 2)"), "{error}");
    assert_eq!(*seen.lock().unwrap(), ["/feed?x=1 Bearer geheim a"; 2]);
}

#[test]
fn a_server_that_vanishes_is_told() {
    let (url, server) = server(1, |_, mut socket| socket.send(row(1)).unwrap());
    let mut reading = Reading::client(&url, &[]).unwrap();
    let error = reading.until(100, |_| false).unwrap_err();
    server.join().unwrap();
    assert_eq!(reading.rows, ["+I NULL 1"]);
    assert!(error.starts_with(&format!("reading from {url}: ")) && error.ends_with("set 'reconnect.attempts' to connect again"), "{error}");
}

/// Answers every first request with this, without a handshake; counts them.
fn refusing(answer: &'static str) -> (String, Arc<AtomicUsize>) {
    let (listener, address) = local();
    let count = Arc::new(AtomicUsize::new(0));
    let counting = count.clone();
    // Lives as long as the process of the tests.
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            counting.fetch_add(1, Ordering::SeqCst);
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if stream.read(&mut byte).unwrap_or(0) == 0 {
                    break;
                }
                request.extend_from_slice(&byte);
            }
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (format!("ws://{address}/"), count)
}

#[test]
fn a_refusal_that_lasts_ends_it() {
    let (url, count) = refusing("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n");
    let mut reading = Reading::client(&url, &[("reconnect.attempts", "5")]).unwrap();
    let error = reading.until(1, |_| false).unwrap_err();
    assert_eq!(error, format!("connecting to {url}: the server answers 401 Unauthorized"));
    assert_eq!(count.load(Ordering::SeqCst), 1, "tried once");
    let (url, count) = refusing("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n");
    let mut reading = Reading::client(&url, &[("reconnect.attempts", "2")]).unwrap();
    let error = reading.until(1, |_| false).unwrap_err();
    assert!(error.contains("503") && error.ends_with("(attempt 3 of 3)"), "{error}");
    assert_eq!(count.load(Ordering::SeqCst), 3);
}

#[test]
fn nobody_there_is_told_at_once() {
    let (listener, address) = local();
    drop(listener);
    let error = Reading::client(&format!("ws://{address}/"), &[]).err().unwrap();
    assert!(error.starts_with(&format!("connecting to ws://{address}/: ")) && error.contains("'reconnect.attempts'"), "{error}");
    // A server that takes the connection and says nothing.
    let (_mute, address) = local();
    let error = Reading::client(&format!("ws://{address}/"), &[("connect-timeout", "20 ms")]).err().unwrap();
    assert!(error.contains("the server does not answer within 20 ms"), "{error}");
}

#[test]
fn a_silent_server_is_asked_whether_it_is_there() {
    // It is, and says so: reading a ping answers it.
    let (url, server) = server(1, |_, mut socket| {
        let mut pings = 0;
        while pings < 3 {
            pings += usize::from(matches!(socket.read().unwrap(), Message::Ping(_)));
        }
        socket.send(row(1)).unwrap();
        bye(socket);
    });
    // So long has the server to answer, on a machine that has more to do.
    let mut reading = Reading::client(&url, &[("ping.interval", "2 s")]).unwrap();
    reading.until(100, |_| false).unwrap();
    server.join().unwrap();
    assert_eq!(reading.rows, ["+I NULL 1"]);
}

#[test]
fn a_server_that_is_gone_without_a_word_is_found_out() {
    let (done, waits) = mpsc::channel::<()>();
    let (url, server) = server(1, move |_, socket| {
        let _ = waits.recv();
        drop(socket);
    });
    let mut reading = Reading::client(&url, &[("ping.interval", "20 ms")]).unwrap();
    let error = reading.until(100, |_| false).unwrap_err();
    assert!(error.contains("the peer does not answer pings"), "{error}");
    drop(done);
    server.join().unwrap();
}

/// An encrypted server for one connection, which may fail.
fn encrypted() -> (String, JoinHandle<()>) {
    let config = encryption();
    let (listener, address) = local();
    let thread = thread::spawn(move || {
        let stream = StreamOwned::new(ServerConnection::new(config).unwrap(), listener.accept().unwrap().0);
        if let Ok(mut socket) = tungstenite::accept(stream) {
            for n in 0..1000 {
                socket.send(row(n)).unwrap();
            }
            bye(socket);
        }
    });
    (format!("wss://{address}/"), thread)
}

#[test]
fn encrypted_connections() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_string()
    };
    let (right, wrong) = (file("right.pem", AUTHORITY), file("wrong.pem", OTHER_AUTHORITY));
    let (url, server) = encrypted();
    let mut reading = Reading::client(&url, &[("ca-file", &right)]).unwrap();
    reading.until(7, |_| false).unwrap();
    server.join().unwrap();
    assert!(reading.rows == (0..1000).map(|n| format!("+I NULL {n}")).collect::<Vec<_>>());
    let (url, server) = encrypted();
    let mut reading = Reading::client(&url, &[("ca-file", &wrong), ("reconnect.attempts", "5")]).unwrap();
    let error = reading.until(1, |_| false).unwrap_err();
    server.join().unwrap();
    assert!(error.contains("invalid peer certificate") && !error.contains("attempt"), "{error}");
}

/// Calls a listener.
fn call(address: SocketAddr, path: &str, token: Option<&str>) -> Result<WebSocket<TcpStream>, String> {
    let token = token.map(|token| ("authorization", format!("Bearer {token}")));
    call_with(address, path, token)
}

/// The same with a header.
fn call_with(address: SocketAddr, path: &str, header: Option<(&'static str, String)>) -> Result<WebSocket<TcpStream>, String> {
    let mut request = format!("ws://{address}{path}").into_client_request().unwrap();
    if let Some((name, value)) = header {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    match tungstenite::client(request, stream) {
        Ok((socket, _)) => Ok(socket),
        Err(HandshakeError::Failure(Error::Http(answer))) => Err(answer.status().to_string()),
        Err(e) => panic!("{e}"),
    }
}

/// Waits until a listener has counted something.
fn wait_counted(address: SocketAddr, enough: impl Fn(&ListenerStats) -> bool) {
    let began = Instant::now();
    while !listeners::stats().get(&address.to_string()).is_some_and(&enough) {
        assert!(began.elapsed() < PATIENCE, "{:?}", listeners::stats());
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_peer_of_a_listener_that_is_gone_without_a_word_is_counted() {
    let (listener, address) = local();
    let _reading = Reading::listener(listener, &[("ping.interval", "10 ms")]);
    // It reads nothing, so it answers nothing.
    let _gone = call(address, "/", None).unwrap();
    wait_counted(address, |stats| stats.silent == 1);
}

#[test]
fn a_listener_takes_rows_of_all_peers() {
    let (listener, address) = local();
    let mut reading = Reading::listener(listener, &[("path", "/in"), ("token", "geheim")]);
    assert_eq!(call(address, "/", Some("geheim")).err().unwrap(), "404 Not Found");
    assert_eq!(call(address, "/in", Some("x")).err().unwrap(), "401 Unauthorized");
    assert_eq!(call(address, "/in", None).err().unwrap(), "401 Unauthorized");
    // Told first, and then counted.
    wait_counted(address, |stats| stats.refused == 3);
    // Peers that never come to the point.
    let mute = TcpStream::connect(address).unwrap();
    let mut half = TcpStream::connect(address).unwrap();
    half.write_all(b"GET /in HTTP/1.1\r\nUpgr").unwrap();
    let mut peers: Vec<_> = (0..3).map(|_| call(address, "/in?x", Some("geheim")).unwrap()).collect();
    for n in 0..100 {
        for (p, peer) in peers.iter_mut().enumerate() {
            peer.send(Message::text(format!("{{\"k\":\"p{p}\",\"n\":{n}}}"))).unwrap();
        }
    }
    reading.until(7, |r| r.rows.len() == 300).unwrap();
    for p in 0..3 {
        let own: Vec<_> = reading.rows.iter().filter(|row| row.starts_with(&format!("+I p{p} "))).cloned().collect();
        assert_eq!(own, (0..100).map(|n| format!("+I p{p} {n}")).collect::<Vec<_>>(), "in the peer's order");
    }
    let place = peers[1].get_ref().local_addr().unwrap();
    peers[1].send(Message::text("oops")).unwrap();
    reading.until(7, |r| r.bad.len() == 1).unwrap();
    assert_eq!((reading.bad[0].0.as_str(), reading.bad[0].2.as_str()), (format!("{place} record 101").as_str(), "oops"));
    // A reader that is gone leaves its port and lets its peers go.
    drop(reading);
    assert!(peers[0].read().is_err());
    drop((mute, half));
    TcpListener::bind(address).expect("the port is free again");
}

/// Any page that a browser on this machine showed could open a connection and send rows.
#[test]
fn pages_of_others_send_no_rows() {
    let (listener, address) = local();
    let mut reading = Reading::listener(listener, &[]);
    let page = |origin: &str| call_with(address, "/", Some(("origin", origin.to_string())));
    for foreign in ["https://evil.example", "http://localhost.evil.example", "http://10.0.0.1", "null", "file://"] {
        assert_eq!(page(foreign).err().as_deref(), Some("403 Forbidden"), "{foreign}");
    }
    wait_counted(address, |stats| stats.refused == 5);
    for (n, ours) in ["http://localhost:3000", "https://app.localhost", "http://127.0.0.1:8080", "http://[::1]"].into_iter().enumerate() {
        let mut socket = page(ours).unwrap();
        socket.send(row(n)).unwrap();
        reading.until(1, |r| r.rows.len() > n).unwrap();
    }
    // A token says enough.
    let (listener, address) = local();
    let mut reading = Reading::listener(listener, &[("token", "geheim")]);
    let mut request = format!("ws://{address}/").into_client_request().unwrap();
    request.headers_mut().insert("authorization", "Bearer geheim".parse().unwrap());
    request.headers_mut().insert("origin", "https://shop.example".parse().unwrap());
    let (mut socket, _) = tungstenite::client(request, TcpStream::connect(address).unwrap()).unwrap();
    socket.send(row(9)).unwrap();
    reading.until(1, |r| r.rows == ["+I NULL 9"]).unwrap();
}

/// Clients of other machines that name an origin were refused, although everybody was to be let in.
#[test]
fn who_lets_other_machines_in_lets_their_pages_in() {
    let page = |address: SocketAddr| call_with(address, "/", Some(("origin", "http://feed.example".to_string())));
    let everywhere = [("hostname", "0.0.0.0"), ("listen.insecure", "true")];
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], listener.local_addr().unwrap().port()));
    let mut reading = Reading::listener(listener, &everywhere);
    page(address).unwrap().send(row(1)).unwrap();
    reading.until(1, |r| r.rows == ["+I NULL 1"]).unwrap();
    // On loopback the option changes nothing: a browser of this machine may show any page.
    let (listener, address) = local();
    let _reading = Reading::listener(listener, &[("listen.insecure", "true")]);
    assert_eq!(page(address).err().as_deref(), Some("403 Forbidden"));
}

#[test]
fn a_peer_that_breaks_the_rules_harms_only_itself() {
    let (listener, address) = local();
    let mut reading = Reading::listener(listener, &[("max-message-size", "100")]);
    let mut good = call(address, "/", None).unwrap();
    let mut long = call(address, "/", None).unwrap();
    long.send(row(1)).unwrap();
    long.send(Message::text("x".repeat(101))).unwrap();
    reading.until(100, |r| r.bad.len() == 1).unwrap();
    let reason = "a message of 101 bytes is longer than 'max-message-size' (100 bytes)";
    assert_eq!((reading.bad[0].1.as_str(), reading.bad[0].2.as_str()), (reason, "(a message that cannot be read)"));
    // The second byte of such a message has the mask bit and the length; its text is no UTF-8.
    let mut wrong = call(address, "/", None).unwrap();
    wrong.get_mut().write_all(&[0x81, 0x82, 0, 0, 0, 0, 0xc3, 0x28]).unwrap();
    reading.until(100, |r| r.bad.len() == 2).unwrap();
    assert_eq!(reading.bad[1].1, "a message of text is not valid UTF-8");
    let mut rude = call(address, "/", None).unwrap();
    rude.get_mut().write_all(&[0x81, 0x02, b'{', b'}']).unwrap();
    reading.until(100, |r| r.bad.len() == 3).unwrap();
    assert!(reading.bad[2].1.contains("does not keep to the protocol"), "{}", reading.bad[2].1);
    good.send(row(2)).unwrap();
    reading.until(100, |r| r.rows.len() == 2).unwrap();
    assert_eq!(reading.rows, ["+I NULL 1", "+I NULL 2"]);
}

/// Sends the head of a frame of text of 10 MB with a mask of zeros, and so many bytes of it.
fn begin_message(socket: &mut WebSocket<TcpStream>, bytes: usize) -> std::io::Result<()> {
    let mut frame = [&[0x81, 0xff][..], &(10u64 << 20).to_be_bytes(), &[0; 4]].concat();
    frame.resize(frame.len() + bytes, b'x');
    socket.get_mut().write_all(&frame)
}

/// Each peer was bounded by itself: many that began a large message and never ended it took all memory.
#[test]
fn messages_that_are_not_complete_have_a_bound_together() {
    let (listener, address) = local();
    let (mut reading, room) = Reading::listener_with_room(listener, &[("ping.interval", "600 s")]);
    room.limit(1 << 20, Duration::ZERO);
    let [mut first, mut second, mut good] = [(); 3].map(|()| call(address, "/", None).unwrap());
    begin_message(&mut first, 900 << 10).unwrap();
    let began = Instant::now();
    while room.taken() < 900 << 10 {
        assert!(began.elapsed() < PATIENCE, "{} bytes are held", room.taken());
        thread::sleep(Duration::from_millis(1));
    }
    // It may be cut off meanwhile.
    let _ = begin_message(&mut second, 500 << 10);
    reading.until(100, |r| r.bad.len() == 1).unwrap();
    let (_, why, raw) = &reading.bad[0];
    assert!(why.starts_with("there is no room for more than the ") && raw == "(a message that cannot be read)", "{why}: {raw}");
    wait_counted(address, |stats| stats.turned_away == 1);
    // What is small needs no room.
    good.send(row(2)).unwrap();
    reading.until(100, |r| r.rows == ["+I NULL 2"]).unwrap();
    // A ping between the frames of a message is held by nobody.
    good.get_mut().write_all(&[0x01, 0x85, 0, 0, 0, 0, b'{', b'"', b'n', b'"', b':']).unwrap();
    for _ in 0..1100 {
        good.get_mut().write_all(&[&[0x89, 0xfd, 0, 0, 0, 0][..], &[b'p'; 125]].concat()).unwrap();
        assert!(matches!(good.read().unwrap(), Message::Pong(_)));
    }
    good.get_mut().write_all(&[0x80, 0x82, 0, 0, 0, 0, b'3', b'}']).unwrap();
    reading.until(100, |r| r.rows.len() == 2).unwrap();
    assert_eq!((reading.rows[1].as_str(), reading.bad.len()), ("+I NULL 3", 1));
}

/// Without pings nobody missed it, and what had come was held for ever; later only if it had come behind the end of another message.
#[test]
fn a_peer_that_stops_in_the_middle_of_a_message_is_cut_off() {
    let whole = [0x81, 0x82, 0, 0, 0, 0, b'{', b'}'];
    stop_in_the_middle(&[&whole, &whole[..7]]);
    stop_in_the_middle(&[&[&whole[..], &whole[..7]].concat()]);
}

/// Sends the first of these, and the others once it has come.
fn stop_in_the_middle(pieces: &[&[u8]]) {
    let (listener, address) = local();
    let mut peer = TcpStream::connect(address).unwrap();
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let (sender, events) = crossbeam_channel::bounded(10);
    let outlet = inflow::Outlet { sender, waker: Waker::noop(), arrays: false };
    let inflow = inflow::Inflow::new(connect::Transport::Plain(stream), outlet, 1, Share::default());
    let mut socket = WebSocket::from_raw_socket(inflow, Role::Server, None);
    let reading = thread::spawn(move || inflow::read(&mut socket, false));
    // Between messages it may be silent.
    thread::sleep(Duration::from_millis(200));
    peer.write_all(pieces[0]).unwrap();
    events.recv_timeout(PATIENCE).expect("the first message");
    pieces[1..].iter().for_each(|piece| peer.write_all(piece).unwrap());
    let began = Instant::now();
    while !reading.is_finished() {
        assert!(began.elapsed() < PATIENCE, "it is still waited for");
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(reading.join().unwrap(), inflow::End::Stalled);
}

fn sink_context() -> SinkContext {
    SinkContext { shard: 0, shards: 1, schema: schema(), run_id: "r".into(), cancelled: Arc::new(AtomicBool::new(false)) }
}

fn writer(url: &str, more: &[(&str, &str)]) -> Result<Box<dyn Writer>, String> {
    let mut pairs = vec![("url", url), ("reconnect.backoff", "1 ms"), ("format", "json")];
    pairs.retain(|(name, _)| !more.iter().any(|(given, _)| given == name));
    pairs.extend(more);
    let sink = CONNECTOR.sink(&schema(), &mut raw(&pairs)).map_err(|e| e.to_string())?;
    sink.writer(sink_context()).map_err(|e| e.to_string())
}

/// The texts of all messages until the peer closes the connection.
fn texts(mut socket: WebSocket<TcpStream>) -> Vec<String> {
    let mut texts = Vec::new();
    loop {
        match socket.read() {
            Ok(Message::Text(text)) => texts.push(text.as_str().to_string()),
            Ok(_) => {}
            Err(Error::ConnectionClosed) => return texts,
            Err(e) => panic!("{e}"),
        }
    }
}

/// A server that takes everything of one connection.
fn taking() -> (String, mpsc::Receiver<Vec<String>>, JoinHandle<()>) {
    let (sender, receiver) = mpsc::channel();
    let (url, server) = server(1, move |_, socket| sender.send(texts(socket)).unwrap());
    (url, receiver, server)
}

#[test]
fn a_sink_sends_a_message_a_row() {
    let (url, taken, server) = taking();
    let mut out = writer(&url, &[("subscribe-message", "hello")]).unwrap();
    out.write(&text::parse(&schema(), "a 1\nNULL 2")).unwrap();
    out.flush().unwrap();
    out.prepare(false).unwrap();
    let many: String = (0..20_000).map(|n| format!("k {n}\n")).collect();
    out.write(&text::parse(&schema(), &many)).unwrap();
    out.prepare(true).unwrap();
    server.join().unwrap();
    let taken = taken.recv().unwrap();
    assert_eq!(taken[..3], ["hello", "{\"k\":\"a\",\"n\":1}", "{\"k\":null,\"n\":2}"]);
    assert!(taken[3..].iter().enumerate().all(|(n, text)| *text == format!("{{\"k\":\"k\",\"n\":{n}}}")));
    assert_eq!(taken.len(), 3 + 20_000);
    assert_eq!(out.stats().bytes, taken[1..].iter().map(|t| t.len() as u64 + 1).sum::<u64>());
}

#[test]
fn a_record_may_have_lines() {
    let (url, taken, server) = taking();
    let mut out = writer(&url, &[("format", "csv"), ("csv.header", "true")]).unwrap();
    let columns: Vec<ArrayRef> = vec![Arc::new(StringArray::from(vec!["a\n\"b\"", "c"])), Arc::new(Int64Array::from(vec![1, 2]))];
    out.write(&Block::inserts(RecordBatch::try_new(schema(), columns).unwrap(), 0)).unwrap();
    out.prepare(true).unwrap();
    server.join().unwrap();
    assert_eq!(taken.recv().unwrap(), ["k,n", "\"a\n\"\"b\"\"\",1", "c,2"]);
}

#[test]
fn a_sink_connects_again() {
    let (sender, taken) = mpsc::channel();
    let second = Arc::new(AtomicBool::new(false));
    let there = second.clone();
    let (url, server) = server(2, move |n, mut socket| {
        if n == 0 {
            assert_eq!(socket.read().unwrap(), Message::text("k,n"), "the header comes first");
            assert_eq!(socket.read().unwrap(), Message::text("a,1"));
        } else {
            there.store(true, Ordering::SeqCst);
            sender.send(texts(socket)).unwrap();
        }
    });
    let mut out = writer(&url, &[("reconnect.attempts", "100"), ("format", "csv"), ("csv.header", "true")]).unwrap();
    while !second.load(Ordering::SeqCst) {
        out.write(&text::parse(&schema(), "a 1")).unwrap();
        out.prepare(false).unwrap();
    }
    out.write(&text::parse(&schema(), "b 2")).unwrap();
    out.prepare(true).unwrap();
    server.join().unwrap();
    let taken = taken.recv().unwrap();
    assert_eq!((taken[0].as_str(), taken.last().unwrap().as_str()), ("k,n", "b,2"));
    assert!(taken[1..taken.len() - 1].iter().all(|row| row == "a,1"), "whole rows only");
}

#[test]
fn a_sink_names_a_server_that_is_gone() {
    let (url, server) = server(1, |_, socket| drop(socket));
    let mut out = writer(&url, &[]).unwrap();
    server.join().unwrap();
    // The first bytes may still go into the kernel's buffer.
    let error = (0..100_000).find_map(|_| out.write(&text::parse(&schema(), "a 1")).and_then(|()| out.prepare(false)).err());
    let error = error.expect("writing to nobody fails").to_string();
    assert!(error.starts_with(&format!("writing to {url}: ")) && error.contains("'reconnect.attempts'"), "{error}");
    let (listener, address) = local();
    drop(listener);
    assert!(writer(&format!("ws://{address}/"), &[]).err().unwrap().starts_with("connecting to ws://"));
}

#[test]
fn an_idle_sink_answers_and_asks() {
    let (sender, satisfied) = mpsc::channel();
    let (url, server) = server(1, move |_, mut socket| {
        socket.send(Message::Ping(Bytes::from_static(b"there?"))).unwrap();
        let (mut pongs, mut pings) = (0, 0);
        while pongs < 1 || pings < 2 {
            match socket.read().unwrap() {
                Message::Pong(bytes) => pongs += usize::from(bytes == "there?"),
                Message::Ping(_) => pings += 1,
                other => panic!("{other:?}"),
            }
        }
        sender.send(()).unwrap();
        assert_eq!(texts(socket), ["{\"k\":\"a\",\"n\":1}"]);
    });
    // So long has the server to answer, on a machine that has more to do.
    let mut out = writer(&url, &[("ping.interval", "2 s")]).unwrap();
    // Nothing is written meanwhile.
    satisfied.recv_timeout(PATIENCE).unwrap();
    out.write(&text::parse(&schema(), "a 1")).unwrap();
    out.prepare(true).unwrap();
    server.join().unwrap();
}

#[track_caller]
fn check_error(sink: bool, pairs: &[(&str, &str)], expect: &str) {
    let error = match sink {
        true => CONNECTOR.sink(&schema(), &mut raw(pairs)).err(),
        false => CONNECTOR.source(&schema(), &mut raw(pairs)).err(),
    };
    let error = error.expect("an error").to_string();
    assert!(error.starts_with(&format!("table 't': {expect}")), "{error}");
}

#[test]
fn mistakes_in_options() {
    let url = ("url", "ws://h/");
    check_error(false, &[], "option 'url' is required, or 'mode' = 'listener'");
    check_error(false, &[("mode", "listener")], "option 'port' is required with 'mode' = 'listener'");
    check_error(false, &[("mode", "listener"), ("port", "1"), url], "option 'url': a listener has no 'url'");
    check_error(false, &[url, ("port", "1")], "option 'port': a client has its port in 'url'");
    let exposed = [("mode", "listener"), ("port", "1"), ("hostname", "0.0.0.0")];
    check_error(false, &exposed, "option 'hostname' = '0.0.0.0': other machines reach");
    check_error(false, &[url], "option 'format' is required");
    check_error(false, &[("url", "http://h/"), ("format", "json")], "option 'url' = 'http://h/': expected ws://");
    check_error(false, &[("url", "h:1"), ("format", "json")], "option 'url' = 'h:1': expected ws://");
    check_error(false, &[("url", "ws://a:b@h/"), ("format", "json")], "option 'url': a user or password");
    check_error(false, &[url, ("format", "json"), ("ca-file", "x")], "option 'ca-file': certificates are of use with wss:// only");
    check_error(false, &[("url", "wss://h/"), ("format", "json"), ("ca-file", "/no/such")], "reading the certificates in '/no/such'");
    check_error(false, &[url, ("format", "json"), ("headers", "x")], "option 'headers': expected 'Name: value");
    check_error(false, &[url, ("path", "x")], "option 'path': expected a path");
    check_error(false, &[url, ("max-message-size", "0")], "option 'max-message-size'");
    check_error(false, &[url, ("mode", "both")], "option 'mode' = 'both': expected one of: client, listener");
    check_error(true, &[("mode", "listener"), ("port", "1")], "option 'mode': a sink can only be a client");
    check_error(true, &[url, ("sink.queue", "0")], "option 'sink.queue'");
}
