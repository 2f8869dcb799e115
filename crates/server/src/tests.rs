//! The server from outside: HTTP/1.1 over a socket, as `curl` would speak it.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Instant;

use arrow_flight::FlightDescriptor;
use arrow_flight::flight_service_client::FlightServiceClient;
use tokio::runtime::Runtime;
use tonic::transport::Endpoint;

use super::*;

/// A server in a thread; stopped at the end.
struct Running {
    address: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<Result<Vec<Summary>, ServeError>>>,
}

impl Running {
    fn new(options: ServeOptions) -> Self {
        let options = ServeOptions { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..options };
        let stop = Stop::default();
        let (sender, receiver) = channel();
        let given = stop.clone();
        let thread = std::thread::spawn(move || serve(options, &given, |address| sender.send(address).unwrap()));
        Running { address: receiver.recv().expect("the server starts"), stop, thread: Some(thread) }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).unwrap()
    }

    /// Status and body of the answer. `rest` is what follows the request line: headers, each with its
    /// line end.
    fn ask_with(&self, method: &str, path: &str, rest: &str, body: &str) -> (u16, String) {
        let mut stream = self.connect();
        let length = body.len();
        let host = if rest.to_lowercase().contains("host:") { String::new() } else { format!("host: {}\r\n", self.address) };
        write!(stream, "{method} {path} HTTP/1.1\r\n{host}{rest}content-length: {length}\r\nconnection: close\r\n\r\n{body}").unwrap();
        answer(&mut stream)
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        self.ask_with(method, path, "content-type: application/json\r\n", body)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        let ended = self.thread.take().expect("joined once").join();
        if !std::thread::panicking() {
            ended.unwrap().unwrap();
        }
    }
}

fn answer(stream: &mut TcpStream) -> (u16, String) {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let status = text.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or_else(|| panic!("no status in {text:?}"));
    // Headers as well, in front: some tests look at them.
    (status, text)
}

#[track_caller]
fn check((status, text): (u16, String), expect: u16, part: &str) -> String {
    assert!(status == expect && text.contains(part), "expected {expect} and {part:?}, got {text}");
    text
}

const JOB: &str = "CREATE TABLE g (a BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '1000'); \
                   CREATE TABLE o (a BIGINT) WITH ('connector' = 'blackhole'); INSERT INTO o SELECT a FROM g;";

#[test]
fn the_life_of_a_job_over_http() {
    let server = Running::new(ServeOptions::default());
    check(server.ask("GET", "/healthz", ""), 200, "\"status\":\"ok\"");
    check(server.ask("GET", "/v1/jobs", ""), 200, "{\"jobs\":[]}");
    let body = serde_json::json!({"name": "demo", "sql": JOB, "settings": {"parallelism.default": "1"}}).to_string();
    check(server.ask("POST", "/v1/jobs", &body), 201, "\"name\":\"demo\"");
    check(server.ask("POST", "/v1/jobs", &body), 409, "already");
    let begun = Instant::now();
    while !server.ask("GET", "/v1/jobs/demo", "").1.contains("\"state\":\"running\"") {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    }
    check(server.ask("GET", "/v1/jobs/demo/plan", ""), 200, "== Operators ==");
    let page = check(server.ask("GET", "/metrics", ""), 200, "tidemill_job_state{job=\"demo\",state=\"running\"} 1\n");
    assert!(page.contains("\ntidemill_node_rows_total{job=\"demo\",node=\"Source g\",place=\"0\"} "), "{page}");
    check(server.ask("POST", "/v1/jobs/demo/stop", ""), 200, "\"state\":\"stopped\"");
    check(server.ask("POST", "/v1/jobs/demo/start?fresh=true", ""), 200, "\"name\":\"demo\"");
    check(server.ask("POST", "/v1/jobs/demo/restart", ""), 200, "\"name\":\"demo\"");
    check(server.ask("POST", "/v1/jobs/demo/start?fresch=true", ""), 400, "?fresh=true");
    check(server.ask("DELETE", "/v1/jobs/demo?keep=all", ""), 400, "?keep=streams");
    check(server.ask("DELETE", "/v1/jobs/demo?keep=streams", ""), 204, "");
    check(server.ask("GET", "/v1/jobs/demo", ""), 404, "there is no job 'demo'");
}

/// An adapter that was started together with its server was told to ask again, and paused before it did.
#[test]
fn a_question_about_a_stream_waits_for_the_job_that_reads_it() {
    tidemill_hub::register();
    let job = "CREATE TABLE s (n BIGINT) WITH ('connector' = 'stream', 'stream.name' = 'awaited'); \
               CREATE TABLE o (n BIGINT) WITH ('connector' = 'blackhole'); INSERT INTO o SELECT n FROM s;";
    let server = Running::new(ServeOptions { jobs: vec![("reads".to_string(), job.to_string())], ..ServeOptions::default() });
    let about = Runtime::new().unwrap().block_on(async {
        let channel = Endpoint::from_shared(format!("http://{}", server.address)).unwrap().connect().await.unwrap();
        let descriptor = FlightDescriptor::new_path(vec!["awaited".to_string()]);
        FlightServiceClient::new(channel).get_flight_info(descriptor).await.unwrap().into_inner().app_metadata
    });
    let about = String::from_utf8_lossy(&about);
    assert!(about.contains("\"publish\":true"), "{about}");
}

#[test]
fn errors_over_http() {
    let server = Running::new(ServeOptions::default());
    check(server.ask("GET", "/v2", ""), 404, "nothing is at '/v2'");
    check(server.ask("PUT", "/v1/jobs", ""), 405, "PUT is not answered");
    check(server.ask("POST", "/v1/jobs", "{"), 400, "reading the job");
    check(server.ask_with("POST", "/v1/jobs", "", "{}"), 415, "Content-Type: application/json");
    check(server.ask("POST", "/v1/jobs", r#"{"name": "x", "sql": "SELEC"}"#), 400, "x.sql:1");
    // Pages of others may not make a browser on this machine run jobs.
    check(server.ask_with("GET", "/v1/jobs", "host: evil.example\r\n", ""), 403, "names of this machine");
    check(server.ask_with("GET", "/v1/jobs", "origin: https://evil.example\r\n", ""), 403, "pages of");
    let image = "sec-fetch-site: cross-site\r\nsec-fetch-mode: no-cors\r\n";
    check(server.ask_with("GET", "/v1/streams/s/events?name=billing&slow=wait", image, ""), 403, "a page of another address");
    check(server.ask_with("GET", "/v1/jobs", "sec-fetch-site: none\r\nsec-fetch-mode: navigate\r\n", ""), 200, "{\"jobs\":[]}");
    // What is no HTTP is answered or cut off, and disturbs nobody.
    let mut stream = server.connect();
    stream.write_all(b"\x89test nonsense\r\n\r\n").unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    check(server.ask("GET", "/healthz", ""), 200, "ok");
}

#[test]
fn rights_over_http() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens");
    std::fs::write(
        &path,
        "{\"token\": \"boss\", \"name\": \"b\", \"manage\": true}\n{\"token\": \"reader\", \"name\": \"r\", \"read\": [\"*\"]}\n",
    )
    .unwrap();
    let server = Running::new(ServeOptions { tokens: Some(path), ..ServeOptions::default() });
    let with = |token: &str, path: &str| server.ask_with("GET", path, &format!("authorization: Bearer {token}\r\n"), "");
    check(server.ask("GET", "/healthz", ""), 200, "ok");
    check(server.ask("GET", "/v1/jobs", ""), 401, "this server wants a token");
    check(with("nobody", "/v1/jobs"), 401, "not known");
    check(with("reader", "/v1/jobs"), 403, "gives no right to manage jobs");
    check(with("boss", "/v1/jobs"), 200, "{\"jobs\":[]}");
    // Names of subscribers are forgotten by those who manage, or who write the stream.
    let path = "/v1/streams/s/subscriptions/x";
    let forget = |token: &str| server.ask_with("DELETE", path, &format!("authorization: Bearer {token}\r\n"), "");
    check(forget("reader"), 403, "gives no right to write stream 's'");
    check(forget("boss"), 404, "there is no stream 's'");
    check(with("reader", "/metrics"), 200, "tidemill_requests_unauthenticated_total 2\n");
    check(with("reader", "/metrics"), 200, "tidemill_requests_forbidden_total 2\n");
    // Flight clients are told in their protocol.
    let path = "/arrow.flight.protocol.FlightService/ListFlights";
    check(server.ask_with("POST", path, "content-type: application/grpc\r\n", ""), 200, "grpc-status: 16");
    check(with("reader", "/metrics"), 200, "tidemill_request_errors_total{status=\"401\"} 3\n");
    check(with("reader", "/metrics"), 200, "tidemill_request_errors_total{status=\"404\"} 1\n");
}

/// No answer said that a page of another port may read it, so none could use `EventSource` or `POST`.
#[test]
fn pages_of_this_machine_read_answers() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens");
    std::fs::write(&path, "{\"token\": \"boss\", \"name\": \"b\", \"manage\": true}\n").unwrap();
    for tokens in [None, Some(path)] {
        let other = if tokens.is_some() { 401 } else { 403 };
        let server = Running::new(ServeOptions { tokens, ..ServeOptions::default() });
        let page = "origin: http://127.0.0.1:3000\r\nsec-fetch-site: same-site\r\n";
        let allowed = "access-control-allow-origin: http://127.0.0.1:3000\r\n";
        let token = format!("{page}authorization: Bearer boss\r\n");
        let text = check(server.ask_with("GET", "/v1/jobs", &token, ""), 200, allowed);
        assert!(text.contains("vary: Origin\r\n"), "{text}");
        // Errors of routes, too.
        check(server.ask_with("GET", "/v1/jobs/none", &token, ""), 404, allowed);
        // The browser asks before it sends the token.
        let ahead = format!("{page}access-control-request-method: POST\r\naccess-control-request-headers: authorization\r\n");
        let text = check(server.ask_with("OPTIONS", "/v1/streams/s", &ahead, ""), 204, allowed);
        assert!(text.contains("access-control-allow-methods: GET, POST, DELETE\r\n"), "{text}");
        assert!(text.contains("access-control-allow-headers: authorization, content-type, last-event-id\r\n"), "{text}");
        // What asks without saying for what is no such question.
        check(server.ask_with("OPTIONS", "/v1/jobs", &token, ""), 405, "OPTIONS is not answered");
        let foreign = "origin: https://evil.example\r\naccess-control-request-method: POST\r\n";
        let text = check(server.ask_with("OPTIONS", "/v1/jobs", foreign, ""), other, "\"error\"");
        assert!(!text.contains("access-control"), "{text}");
        let rebound = format!("host: evil.example\r\n{ahead}");
        check(server.ask_with("OPTIONS", "/v1/jobs", &rebound, ""), if other == 403 { 403 } else { 204 }, "");
        // Nobody else is told anything.
        let (_, text) = server.ask("GET", "/v1/jobs", "");
        assert!(!text.contains("access-control"), "{text}");
    }
}

#[test]
fn too_many_connections() {
    let limits = Limits { connections: 1, ..Limits::default() };
    let server = Running::new(ServeOptions { limits, ..ServeOptions::default() });
    let mut first = server.connect();
    write!(first, "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut byte = [0];
    first.read_exact(&mut byte).unwrap();
    check(answer(&mut server.connect()), 503, "the most that it takes");
    drop(first);
    // Room again, once the server has seen the first one go.
    let begun = Instant::now();
    while server.ask("GET", "/healthz", "").0 == 503 {
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
}

/// A peer that reads nothing, and whose system answers probes, kept its connection, and what waited for it, for ever.
#[test]
fn who_takes_nothing_is_let_go() {
    let limits = Limits { untaken: Duration::from_millis(200), ..Limits::default() };
    let server = Running::new(ServeOptions { limits, ..ServeOptions::default() });
    let mut peer = server.connect();
    // Not a bound on time: where nobody closes, this hangs.
    peer.set_write_timeout(Some(Duration::from_secs(120))).unwrap();
    let request = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n";
    // Answers fill what lies between, and then no more requests are read.
    let end = std::iter::repeat_with(|| peer.write_all(request)).find_map(Result::err).unwrap();
    assert!(matches!(end.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{end}");
    check(server.ask("GET", "/metrics", ""), 200, "tidemill_connections_broken_total 1\n");
}

/// A peer that began with HTTP/2, answered pings and asked for nothing kept its connection for ever.
#[test]
fn who_asks_for_nothing_is_let_go() {
    let limits = Limits { unasked: Duration::from_millis(500), ..Limits::default() };
    let server = Running::new(ServeOptions { limits, ..ServeOptions::default() });
    let mut asks = server.connect();
    let ask = |asks: &mut TcpStream| {
        write!(asks, "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut text = Vec::new();
        while !text.ends_with(b"}") {
            let mut byte = [0];
            asks.read_exact(&mut byte).expect("the connection stays");
            text.extend_from_slice(&byte);
        }
    };
    ask(&mut asks);
    let mut silent = server.connect();
    // Not a bound on time: where nobody closes, this hangs.
    silent.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    // The preface, and settings that set nothing.
    silent.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    let mut said = Vec::new();
    let end = silent.read_to_end(&mut said);
    assert!(end.as_ref().err().is_none_or(|e| e.kind() == ErrorKind::ConnectionReset), "{end:?}");
    // It was not closed because it left a ping (a frame of type 6) unanswered.
    let mut rest = said.as_slice();
    while let Some((head, more)) = rest.split_at_checked(9) {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        assert_ne!(head[3], 6, "{said:?}");
        rest = more.get(length..).unwrap_or_default();
    }
    check(server.ask("GET", "/metrics", ""), 200, "tidemill_connections_broken_total 1\n");
    // Who has asked may be silent for longer.
    ask(&mut asks);
}

#[test]
fn beyond_this_machine_only_with_tls_and_tokens() {
    let files = TlsFiles { cert: "cert.pem".into(), key: "key.pem".into() };
    let given = |listen: &str, tls: bool, tokens: bool| ServeOptions {
        listen: listen.parse().unwrap(),
        tls: tls.then(|| files.clone()),
        tokens: tokens.then(|| "tokens".into()),
        ..ServeOptions::default()
    };
    for address in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1"] {
        check_ok(&given(address, false, false));
    }
    for address in ["0.0.0.0:1", "10.0.0.1:1", "[::]:1"] {
        check_ok(&given(address, true, true));
        let missing = |tls, tokens| super::check(&given(address, tls, tokens)).unwrap_err().to_string();
        assert!(missing(false, false).contains("give --tls-cert, --tls-key and --tokens"));
        assert!(missing(true, false).contains("give --tokens"));
        assert!(missing(false, true).contains("give --tls-cert and --tls-key,"));
    }
    // Files that are not there are named.
    let error = Tls::open(files.clone()).err().unwrap();
    assert!(error.contains("certificate 'cert.pem'"), "{error}");
    let few = Limits { connections: 0, ..Limits::default() };
    assert!(super::check(&ServeOptions { limits: few, ..ServeOptions::default() }).is_err());
    let few = Limits { block_bytes: 10, ..Limits::default() };
    assert!(super::check(&ServeOptions { limits: few, ..ServeOptions::default() }).is_err());
    let few = Limits { pending_bytes: 1 << 20, ..Limits::default() };
    assert!(super::check(&ServeOptions { limits: few, ..ServeOptions::default() }).is_err());
}

#[track_caller]
fn check_ok(options: &ServeOptions) {
    super::check(options).unwrap();
}

#[test]
fn a_wrong_job_is_said_at_once() {
    let options = ServeOptions { jobs: vec![("bad".into(), "INSERT INTO x SELECT 1;".into())], ..ServeOptions::default() };
    let error = serve(options, &Stop::default(), |_| panic!("never ready")).unwrap_err();
    assert!(matches!(&error, ServeError::Usage(text) if text.contains("bad.sql:1")), "{error}");
}
