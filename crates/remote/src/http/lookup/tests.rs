//! Lookups against a server that answers as it is told.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use arrow::array::{Array, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use crossbeam_channel::{Receiver, unbounded};
use futures::task::AtomicWaker;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tidemill_connect::{Answer, Waker, drive};

use super::*;
use crate::fixture::{AUTHORITY, OTHER_AUTHORITY, encryption};

const PATIENCE: Duration = Duration::from_secs(60);

/// A request as the server sees it.
struct Asked {
    line: String,
    headers: BTreeMap<String, String>,
    body: String,
    /// Which of the requests of its connection it is.
    number: usize,
}

/// What the server does.
enum Reply {
    /// Status line, further headers, body.
    Answer(&'static str, &'static str, String),
    /// These bytes and the end of the connection.
    Raw(Vec<u8>),
    /// Nothing, for ever.
    Hang,
}

fn ok(body: impl Into<String>) -> Reply {
    Reply::Answer("200 OK", "", body.into())
}

/// Where it listens, and how many connections it had.
fn server(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> (SocketAddr, Arc<AtomicUsize>) {
    server_at("127.0.0.1:0", None, answer)
}

/// As [`server`], at another address, and with TLS if that is given.
fn server_at(
    place: &str,
    encryption: Option<Arc<ServerConfig>>,
    answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static,
) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(place).unwrap();
    let address = listener.local_addr().unwrap();
    let (answer, count) = (Arc::new(answer), Arc::new(AtomicUsize::new(0)));
    let counted = count.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            counted.fetch_add(1, Ordering::Relaxed);
            let (answer, encryption) = (answer.clone(), encryption.clone());
            thread::spawn(move || match encryption {
                Some(config) => serve(StreamOwned::new(ServerConnection::new(config).unwrap(), stream), answer.as_ref()),
                None => serve(stream, answer.as_ref()),
            });
        }
    });
    (address, count)
}

/// Serves a connection until either side has enough of it.
fn serve(stream: impl Read + Write, answer: &(impl Fn(&Asked) -> Reply + ?Sized)) {
    let mut reader = BufReader::new(stream);
    for number in 0.. {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let mut headers = BTreeMap::new();
        loop {
            let mut header = String::new();
            if reader.read_line(&mut header).unwrap_or(0) == 0 {
                return;
            }
            let Some((name, value)) = header.trim().split_once(": ") else { break };
            headers.insert(name.to_lowercase(), value.to_string());
        }
        let length = headers.get("content-length").map_or(0, |n| n.parse().unwrap());
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let asked = Asked { line: line.trim().to_string(), headers, body: String::from_utf8(body).unwrap(), number };
        let out = reader.get_mut();
        match answer(&asked) {
            Reply::Answer(status, more, body) => {
                let text = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{more}\r\n{body}", body.len());
                if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
                    return;
                }
            }
            Reply::Raw(bytes) => {
                let _ = out.write_all(&bytes).and_then(|()| out.flush());
                return;
            }
            Reply::Hang => thread::sleep(PATIENCE),
        }
    }
}

/// `id BIGINT, name STRING`.
fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false), Field::new("name", DataType::Utf8, true)]))
}

fn table(url: &str, options: &[(&str, &str)]) -> Result<Box<dyn LookupTable>, String> {
    let given: BTreeMap<&str, &str> = [("url", url), ("format", "json")].into_iter().chain(options.iter().copied()).collect();
    let mut raw = RawOptions::new("table 't'", given.into_iter().map(|(k, v)| (k.to_string(), v.to_string())));
    let table = make(&schema(), &mut raw).map_err(|e| e.to_string())?;
    raw.finish().map_err(|e| e.to_string())?;
    Ok(table)
}

struct Asking {
    lookup: Box<dyn Lookup>,
    wakes: Receiver<()>,
    /// Of this thread, if it drives and sleeps.
    sleeps: Arc<AtomicWaker>,
    keys: SchemaRef,
}

impl Asking {
    fn open(table: &dyn LookupTable, keys: &[usize]) -> Result<Self, String> {
        let (woken, wakes) = unbounded();
        let sleeps = Arc::new(AtomicWaker::new());
        let sleeper = sleeps.clone();
        let wake = Waker::new(move || {
            woken.send(()).unwrap_or_default();
            sleeper.wake();
        });
        let keys = Arc::new(schema().project(keys).unwrap());
        let context = LookupContext { keys: keys.clone(), columns: schema(), wake, shard: 0, shards: 1 };
        Ok(Asking { lookup: table.open(context).map_err(|e| e.to_string())?, wakes, sleeps, keys })
    }

    fn start(&mut self, call: u64, ids: &[i64]) {
        let keys = RecordBatch::try_new(self.keys.clone(), vec![Arc::new(Int64Array::from(ids.to_vec()))]).unwrap();
        self.lookup.start(call, &keys).unwrap();
    }

    /// Until it wakes, which it does when there is something.
    fn sleep(&self) {
        let Some(drive) = drive::current() else { return self.wakes.recv_timeout(PATIENCE).expect("it wakes when there is something") };
        let until = Instant::now() + PATIENCE;
        while self.wakes.try_recv().is_err() {
            assert!(Instant::now() < until, "it wakes when there is something");
            let mut woken = |context: &mut std::task::Context<'_>| {
                self.sleeps.register(context.waker());
                if self.wakes.is_empty() { Poll::Pending } else { Poll::Ready(()) }
            };
            drive.sleep(&mut woken, &[], PATIENCE);
        }
    }

    /// The next `count` answers, by call.
    fn answers(&mut self, count: usize) -> Vec<Answer> {
        let mut answers = Vec::new();
        while answers.len() < count {
            self.sleep();
            self.lookup.finished(&mut answers);
        }
        answers.sort_by_key(|a| a.call);
        answers
    }

    /// The answer to one id.
    fn ask(&mut self, call: u64, id: i64) -> String {
        self.start(call, &[id]);
        shown(&self.answers(1)[0])
    }
}

fn shown(answer: &Answer) -> String {
    match &answer.result {
        Ok(found) => {
            let (ids, names) = (found.rows.column(0).as_primitive::<Int64Type>(), found.rows.column(1).as_string::<i32>());
            let name = |i: usize| if names.is_null(i) { "null" } else { names.value(i) };
            let rows: Vec<String> =
                (0..found.rows.num_rows()).map(|i| format!("{}:{}={}", found.origins[i], ids.value(i), name(i))).collect();
            rows.join(" ")
        }
        Err(f) => format!("{}{}{}", f.reason, if f.retry { " (again)" } else { "" }, f.after.map_or(String::new(), |d| format!(" {d:?}"))),
    }
}

fn asking(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static, path: &str, options: &[(&str, &str)]) -> (Asking, SocketAddr) {
    let (address, _) = server(answer);
    let table = table(&format!("http://{address}{path}"), options).unwrap();
    (Asking::open(table.as_ref(), &[0]).unwrap(), address)
}

#[test]
fn keys_stand_in_the_address() {
    let answer = |asked: &Asked| {
        assert_eq!(asked.headers["authorization"], "Bearer geheim");
        assert_eq!((asked.headers["x-one"].as_str(), asked.headers["x-two"].as_str()), ("1;a", "2"));
        match asked.line.as_str() {
            "GET /users/7?v=1 HTTP/1.1" => ok("{\"data\": {\"name\": \"seven\"}}"),
            "GET /users/8?v=1 HTTP/1.1" => Reply::Answer("404 Not Found", "", "no such user".into()),
            "GET /users/9?v=1 HTTP/1.1" => Reply::Answer("204 No Content", "", String::new()),
            other => panic!("{other}"),
        }
    };
    let options = [("token", "geheim"), ("headers", "X-One: 1;;a"), ("http.header.X-Two", "2"), ("lookup.json-path", "$.data")];
    let (mut asking, _) = asking(answer, "/users/{id}?v=1", &options);
    assert_eq!(asking.ask(1, 7), "0:7=seven");
    assert_eq!(asking.ask(2, 8), "");
    assert_eq!(asking.ask(3, 9), "");
}

#[test]
fn keys_without_a_place_become_a_query_or_a_body() {
    let answer = |asked: &Asked| match asked.line.as_str() {
        "GET /find?id=7 HTTP/1.1" => ok("[{\"id\": 7, \"name\": \"a\"}, {\"id\": 7, \"name\": \"b\"}]"),
        "POST /find HTTP/1.1" => {
            assert_eq!((asked.body.as_str(), asked.headers["content-type"].as_str()), ("{\"id\":7}", "application/json"));
            ok("{\"id\": 7, \"name\": \"posted\"}")
        }
        "PUT /find HTTP/1.1" => ok(format!("{{\"name\": \"{}\"}}", asked.body.replace('"', "'"))),
        other => panic!("{other}"),
    };
    assert_eq!(asking(answer, "/find", &[]).0.ask(1, 7), "0:7=a 0:7=b");
    assert_eq!(asking(answer, "/find", &[("lookup.method", "POST")]).0.ask(1, 7), "0:7=posted");
    let own = [("lookup.method", "PUT"), ("lookup.body", "{\"q\": {id}}")];
    assert_eq!(asking(answer, "/find", &own).0.ask(1, 7), "0:7={'q': 7}");
}

#[test]
fn several_keys_in_a_request() {
    let answer = |asked: &Asked| {
        assert_eq!(asked.body, "[{\"id\":3},{\"id\":1},{\"id\":4}]");
        ok("[{\"id\": 1, \"name\": \"a\"}, {\"id\": 3, \"name\": \"c\"}]")
    };
    let (mut asking, _) = asking(answer, "/many", &[("lookup.method", "POST"), ("lookup.batch-size", "10")]);
    asking.start(5, &[3, 1, 4]);
    assert_eq!(shown(&asking.answers(1)[0]), "0:3=c 1:1=a");
}

#[test]
fn many_requests_over_few_connections() {
    let (address, connections) = server(|asked| {
        let id = asked.line.split(['/', ' ']).nth(2).expect("an id").to_string();
        ok(format!("{{\"id\": {id}, \"name\": \"n{id}\"}}"))
    });
    let table = table(&format!("http://{address}/{{id}}"), &[("lookup.max-connections", "5")]).unwrap();
    let mut asking = Asking::open(table.as_ref(), &[0]).unwrap();
    for call in 0..300 {
        asking.start(call, &[call as i64 * 2]);
    }
    for (call, answer) in asking.answers(300).iter().enumerate() {
        assert_eq!(shown(answer), format!("0:{0}=n{0}", call * 2));
    }
    assert!(connections.load(Ordering::Relaxed) <= 5);
}

#[test]
fn what_goes_wrong_is_told() {
    let answer = |asked: &Asked| match asked.line.split(['/', '?']).nth(1).unwrap_or_default() {
        "1" => Reply::Answer("503 Service Unavailable", "Retry-After: 7\r\n", "busy".into()),
        "2" => Reply::Answer("403 Forbidden", "", "x".repeat(1000)),
        "3" => ok("<html>rubbish</html>"),
        "4" => Reply::Raw(b"rubbish\r\n\r\n".to_vec()),
        "5" => Reply::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"id\"".to_vec()),
        "6" => ok(format!("{{\"name\": \"{}\"}}", "y".repeat(3000))),
        "7" => Reply::Answer("302 Found", "Location: /elsewhere\r\n", String::new()),
        "8" => ok("{\"id\": \"eight\"}"),
        "9" => Reply::Raw(Vec::new()),
        _ => ok("{\"name\": \"fine\"}"),
    };
    let (mut asking, address) = asking(answer, "/{id}?key=geheim", &[("lookup.max-response-size", "2 kb")]);
    let mut check = |id: i64, expect: &str| {
        let found = asking.ask(id as u64, id);
        let begin = format!("GET http://{address}/{id}?key=***: ");
        let reason = found.strip_prefix(&begin).unwrap_or_else(|| panic!("{found}"));
        assert!(reason.starts_with(expect), "{found}");
        found
    };
    assert!(check(1, "the server answers 503 Service Unavailable: busy").ends_with(" (again) 7s"));
    let long = check(2, "the server answers 403 Forbidden: xxx");
    assert!(long.len() < 350 && !long.contains("(again)"), "{long}");
    check(3, "expected an object or an array of objects at byte 1");
    check(4, "the answer is not HTTP/1.1");
    assert!(check(5, "the answer broke off").ends_with(" (again)"));
    check(6, "the answer is larger than 2048 bytes ('lookup.max-response-size')");
    check(7, "the server answers 302 Found; redirects are not followed");
    check(8, "");
    assert!(check(9, "the connection ended").ends_with(" (again)"));
    assert_eq!(asking.ask(10, 10), "0:10=fine");
}

#[test]
fn a_connection_closed_for_idleness_costs_nothing() {
    // Each connection is good for one answer, whatever it says.
    let (mut asking, _) = asking(|asked| if asked.number == 0 { ok("{\"name\": \"a\"}") } else { Reply::Raw(Vec::new()) }, "/{id}", &[]);
    for call in 0..20 {
        assert_eq!(asking.ask(call, call as i64), format!("0:{call}=a"));
    }
}

#[test]
fn a_request_that_is_given_up_makes_room() {
    let (mut asking, _) = asking(
        |asked| if asked.line.contains("/0 ") { Reply::Hang } else { ok("{\"name\": \"a\"}") },
        "/{id}",
        &[("lookup.max-connections", "1")],
    );
    asking.start(0, &[0]);
    asking.start(1, &[1]);
    asking.start(2, &[2]);
    asking.lookup.cancel(2);
    asking.lookup.cancel(0);
    let answers = asking.answers(1);
    assert_eq!((answers[0].call, shown(&answers[0]).as_str()), (1, "0:1=a"));
    assert_eq!(asking.ask(3, 3), "0:3=a");
}

#[test]
fn nobody_is_there_or_nobody_answers() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let table = table(&format!("http://{gone}/{{id}}"), &[]).unwrap();
    let reason = Asking::open(table.as_ref(), &[0]).unwrap().ask(1, 5);
    assert!(reason.starts_with(&format!("GET http://{gone}/5: connecting to {gone}: ")) && reason.ends_with(" (again)"), "{reason}");
    let (mut asking, _) = asking(|_| Reply::Hang, "/{id}", &[("timeout", "30 ms")]);
    assert!(asking.ask(1, 1).ends_with("no answer within 30 ms ('timeout') (again)"));
}

/// A server with a certificate of 127.0.0.1 and localhost, at another address of this machine if that is wanted; and how many
/// requests it has answered.
fn encrypted(place: &str) -> (SocketAddr, Arc<AtomicUsize>) {
    let answered = Arc::new(AtomicUsize::new(0));
    let counted = answered.clone();
    let answer = move |_: &Asked| {
        counted.fetch_add(1, Ordering::Relaxed);
        ok("{\"name\": \"a\"}")
    };
    (server_at(place, Some(encryption()), answer).0, answered)
}

/// Asks such a server for 7, trusting the certificates of a file.
fn ask_encrypted(host: &str, address: SocketAddr, authority: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("authority.pem");
    std::fs::write(&file, authority).unwrap();
    let url = format!("https://{host}:{}/{{id}}", address.port());
    let table = table(&url, &[("ca-file", file.to_str().unwrap())]).unwrap();
    Asking::open(table.as_ref(), &[0]).unwrap().ask(1, 7)
}

/// Whoever trusts any certificate passes all other tests.
#[test]
fn a_server_must_show_a_certificate_of_the_authority() {
    let (address, answered) = encrypted("127.0.0.1:0");
    assert_eq!(ask_encrypted("127.0.0.1", address, AUTHORITY), "0:7=a");
    assert_eq!(ask_encrypted("localhost", address, AUTHORITY), "0:7=a");
    let reason = ask_encrypted("127.0.0.1", address, OTHER_AUTHORITY);
    let expect = format!("GET https://{address}/7: beginning encryption: invalid peer certificate: UnknownIssuer");
    assert!(reason.starts_with(&expect), "{reason}");
    assert_eq!(answered.load(Ordering::Relaxed), 2, "nobody else was asked");
}

/// Elsewhere the machine has no such address.
#[cfg(target_os = "linux")]
#[test]
fn a_certificate_is_good_for_its_host_only() {
    let (address, answered) = encrypted("127.0.0.2:0");
    let reason = ask_encrypted("127.0.0.2", address, AUTHORITY);
    let expect = format!("GET https://{address}/7: beginning encryption: invalid peer certificate: certificate not valid for name");
    assert!(reason.starts_with(&expect) && reason.contains("127.0.0.2"), "{reason}");
    assert_eq!(answered.load(Ordering::Relaxed), 0, "nobody was asked");
}

/// Requests are no others if the thread that wants them makes them.
#[test]
fn a_thread_that_drives_makes_its_requests_itself() {
    for test in [
        keys_stand_in_the_address,
        several_keys_in_a_request,
        many_requests_over_few_connections,
        what_goes_wrong_is_told,
        a_connection_closed_for_idleness_costs_nothing,
        a_request_that_is_given_up_makes_room,
        nobody_is_there_or_nobody_answers,
    ] {
        let stay = drive::enter();
        test();
        assert!(drive::current().is_some(), "it was made here");
        drop(stay);
    }
}

/// An answer that came while the thread had other things to do was not looked for before its limit ran off.
#[test]
fn who_was_held_up_looks_before_it_gives_up() {
    let _stay = drive::enter();
    let (asked, asks) = unbounded();
    let answer = move |_: &Asked| {
        let _ = asked.send(());
        ok(r#"{"id": 1, "name": "one"}"#)
    };
    let (mut asking, _) = asking(answer, "/{id}", &[("lookup.timeout", "1 s")]);
    asking.start(1, &[1]);
    asking.answers(1);
    asks.recv_timeout(PATIENCE).unwrap();
    asking.start(2, &[1]);
    asking.lookup.flush();
    asks.recv_timeout(PATIENCE).expect("what is flushed is on its way");
    // Held up for longer than the limit, which is long enough for a slow machine to answer.
    thread::sleep(Duration::from_millis(1300));
    let mut answers = Vec::new();
    asking.lookup.finished(&mut answers);
    assert_eq!(answers.iter().map(shown).collect::<Vec<_>>(), ["0:1=one"]);
}

/// A socket of somebody else wakes whoever sleeps, and one that is closed does no harm.
#[test]
fn who_drives_is_woken_by_other_sockets() {
    let _stay = drive::enter();
    let (mut asking, _) = asking(|_| ok(r#"{"id": 1, "name": "one"}"#), "/{id}", &[]);
    asking.start(1, &[1]);
    asking.answers(1);
    let drive = drive::current().unwrap();
    let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let begun = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(20));
            ours.write_all(b"x").unwrap();
        });
        drive.sleep(&mut |_| Poll::Pending, &[std::os::fd::AsRawFd::as_raw_fd(&theirs)], PATIENCE);
    });
    assert!(begun.elapsed() < PATIENCE);
    drive.sleep(&mut |_| Poll::Pending, &[-1], PATIENCE);
    assert!(begun.elapsed() < PATIENCE, "it looks again soon where it cannot wait");
}

#[test]
fn options() {
    let fails = |url: &str, options: &[(&str, &str)], expect: &str| {
        let error = table(url, options).and_then(|t| Asking::open(t.as_ref(), &[0]).map(drop)).unwrap_err();
        assert!(error.starts_with("table 't': ") && error.contains(expect), "{error}");
    };
    fails("http://h/{key}", &[], "option 'url': it has a place for {key}, and the condition of the join asks by id only");
    fails("ftp://h/{id}", &[], "option 'url': expected an address");
    fails("http://h{id}/", &[], "option 'url': expected an address");
    fails("http://h/a b", &[], "option 'url'");
    fails("http://h", &[("lookup.body", "x")], "option 'lookup.body': GET has no body");
    fails("http://h", &[("lookup.method", "POST"), ("lookup.body", "{}")], "asks by id, but neither the body nor 'url'");
    fails("http://h", &[("lookup.batch-size", "3")], "GET asks for one key");
    fails("http://h/{id}", &[("lookup.method", "PUT"), ("lookup.batch-size", "3")], "asks for one key");
    fails("http://h", &[("lookup.json-path", "$.a[?(@)]")], "option 'lookup.json-path'");
    fails("http://h", &[("lookup.cache", "FULL")], "a server cannot be read whole");
    fails("http://h", &[("ca-file", "/nix")], "https:// only");
    fails("http://h", &[("port", "1")], "has its port in 'url'");
    fails("http://h", &[("lookup.max-conections", "1")], "did you mean 'lookup.max-connections'?");
    table("http://h", &[("lookup.cache", "PARTIAL"), ("lookup.partial-cache.max-rows", "5")]).unwrap();
}

#[test]
fn texts_as_keys() {
    let (address, _) = server(|asked| match asked.line.as_str() {
        "GET /a%2Fb%20%C3%A9 HTTP/1.1" => ok("{\"id\": 1}"),
        other => panic!("{other}"),
    });
    let table = table(&format!("http://{address}/{{name}}"), &[]).unwrap();
    let mut asking = Asking::open(table.as_ref(), &[1]).unwrap();
    let keys = RecordBatch::try_new(asking.keys.clone(), vec![Arc::new(StringArray::from(vec!["a/b \u{e9}"]))]).unwrap();
    asking.lookup.start(1, &keys).unwrap();
    assert_eq!(shown(&asking.answers(1)[0]), "0:1=a/b \u{e9}");
}
