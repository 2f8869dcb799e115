//! TLS and tokens: who is let in, and who is not.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use arrow::datatypes::TimeUnit;
use serde_json::json;
use tidemill_block::clock::wall_ms;
use tidemill_block::value::write_timestamp;

use super::protocols::WebSocket;
use super::server::{Server, next_event};
use super::{example, orders};
use crate::failures::expect;
use crate::harness::{Background, PATIENCE, Scratch, finish, text, tidemill, wait_for};
use crate::not_run::not_run;

/// A certificate authority, and a certificate for hosts (`DNS:localhost`) that it has signed, in PEM files; or why not.
pub fn certificates(scratch: &Scratch, name: &str, hosts: &str) -> Result<(), String> {
    let openssl = |args: &str| {
        let mut command = Command::new("openssl");
        command.current_dir(scratch.path()).args(args.split(' '));
        let output = command.output().map_err(|e| format!("openssl: {e}"))?;
        if output.status.success() { Ok(()) } else { Err(format!("openssl {args}: {}", text(&output))) }
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    openssl(&format!("req -x509 {key} -subj /CN={name}-authority -keyout {name}-ca.key -out {name}-ca.pem"))?;
    let names = format!("-addext subjectAltName={hosts} -addext basicConstraints=critical,CA:FALSE");
    openssl(&format!(
        "req -x509 -CA {name}-ca.pem -CAkey {name}-ca.key {key} {names} -subj /CN=localhost -keyout {name}.key -out {name}.pem"
    ))
}

const TOKENS: &str = r#"{"token": "boss-1", "name": "boss", "read": ["*"], "write": ["*"], "manage": true}
{"token": "feed-1", "name": "feed", "write": ["orders"]}
{"token": "page-1", "name": "page", "read": ["large_*"]}
{"token": "late-1", "name": "late", "read": ["*"], "write": ["*"], "expires": "2020-01-01T00:00:00Z"}
"#;

#[test]
fn tls_and_tokens() {
    let scratch = Scratch::new("serve-tls");
    let made = |name| certificates(&scratch, name, "DNS:localhost");
    if let Err(why) = made("good").and_then(|()| made("other")) {
        not_run(&format!("TLS (no certificate could be made): {why}"));
        return;
    }
    let tokens = scratch.write("tokens", TOKENS);
    let (cert, key) = (scratch.at("good.pem"), scratch.at("good.key"));
    let listen = ["--listen", "0.0.0.0:0"];
    let secure = ["--tls-cert", &cert, "--tls-key", &key, "--tokens", &tokens];
    // Beyond this machine only with both.
    for (missing, given) in [("--tokens", &secure[..4]), ("--tls-cert and --tls-key", &secure[4..])] {
        expect(&finish(tidemill().arg("serve").args(listen).args(given)), 2, &["beyond this machine", missing]);
    }
    let other = scratch.at("other.key");
    let mixed = ["--tls-cert", &cert, "--tls-key", &other, "--tokens", &tokens];
    expect(&finish(tidemill().arg("serve").args(mixed)), 2, &["good.pem", "other.key"]);

    let job = example().display().to_string();
    let state = scratch.at("state");
    let server = Server::start(&scratch, &[&[job.as_str(), "--state-dir", &state][..], &listen, &secure].concat());
    let port = server.address.port();
    let (good, other) = (scratch.at("good-ca.pem"), scratch.at("other-ca.pem"));
    let file = scratch.write("orders.json", orders(0, 200));
    let publish = |host: &str, ca: &str, token: &str| {
        let url = format!("flight+tls://{host}:{port}/orders");
        finish(tidemill().args(["publish", &url, &file, "--id", "tls", "--ca-file", ca, "--token", token]))
    };
    wait_for("the job to read", || publish("localhost", &good, "feed-1").status.success());
    let subscribe = |stream: &str, token: &str| {
        let url = format!("flight+tls://localhost:{port}/{stream}");
        finish(tidemill().args(["subscribe", &url, "--ca-file", &good, "--token", token, "--from", "earliest", "--limit", "1"]))
    };
    let first = subscribe("large_orders", "page-1");
    assert!(first.status.success() && text(&first).contains("\"id\":100"), "{}", text(&first));
    // Another authority's word, and another name than the certificate's.
    expect(&publish("localhost", &other, "feed-1"), 1, &["certificate"]);
    expect(&publish("127.0.0.1", &good, "feed-1"), 1, &["certificate"]);
    // Rights are by stream.
    expect(&publish("localhost", &good, "page-1"), 1, &["'page'", "stream 'orders'"]);
    expect(&subscribe("large_orders", "feed-1"), 1, &["'feed'", "read stream 'large_orders'"]);
    expect(&subscribe("per_customer", "page-1"), 1, &["read stream 'per_customer'"]);
    expect(&publish("localhost", &good, "nobody"), 1, &["not known"]);
    expect(&publish("localhost", &good, "late-1"), 1, &["'late' has expired"]);
    // Without TLS nobody is answered. The server closes while the client still writes; that once raised
    // SIGPIPE, which ended the client without a word.
    let clear = format!("flight://localhost:{port}/orders");
    for _ in 0..10 {
        let output = finish(tidemill().args(["publish", &clear, &file, "--token", "feed-1", "--reconnect", "0"]));
        expect(&output, 1, &["orders", "'reconnect.attempts' = 0"]);
    }
    curl(&scratch, port);
    // A renewed certificate is in force without a restart.
    for kind in ["key", "pem"] {
        scratch.replace(&format!("good.{kind}"), std::fs::read(scratch.at(&format!("other.{kind}"))).expect("made above"));
    }
    wait_for("the other certificate", || publish("localhost", &other, "feed-1").status.success());
    expect(&publish("localhost", &good, "feed-1"), 1, &["certificate"]);
}

/// The same over HTTP, if there is a `curl`.
fn curl(scratch: &Scratch, port: u16) {
    let ask = |ca: &str, token: &str, path: &str| -> Option<Output> {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--write-out", "%{http_code}", "--cacert", &scratch.at(ca)]);
        command.args(["--header", &format!("Authorization: Bearer {token}"), &format!("https://localhost:{port}{path}")]);
        command.output().ok()
    };
    let Some(output) = ask("good-ca.pem", "boss-1", "/v1/jobs") else {
        not_run("HTTP over TLS (curl is not installed)");
        return;
    };
    assert!(text(&output).contains("\"name\":\"clients\"") && text(&output).contains("200"), "{}", text(&output));
    let cases = [
        ("good-ca.pem", "page-1", "/v1/jobs", "403", "no right to manage jobs"),
        ("good-ca.pem", "page-1", "/v1/streams/per_customer/rows", "403", "read stream 'per_customer'"),
        ("good-ca.pem", "nobody", "/v1/jobs", "401", "not known"),
        ("good-ca.pem", "late-1", "/v1/jobs", "401", "has expired"),
        ("good-ca.pem", "nobody", "/healthz", "200", "ok"),
        ("other-ca.pem", "boss-1", "/v1/jobs", "000", "certificate"),
    ];
    for (ca, token, path, status, part) in cases {
        let said = text(&ask(ca, token, path).expect("it ran before"));
        assert!(said.contains(status) && said.contains(part), "{token} {path}: {said}");
    }
    // Two clients that did not trust the certificate, ten that spoke without TLS, and the last one here.
    wait_for("the handshakes that failed to be counted", || {
        let page = text(&ask("good-ca.pem", "boss-1", "/metrics").expect("it ran before"));
        let broken = page.lines().find_map(|line| line.strip_prefix("tidemill_connections_broken_total ")?.parse::<f64>().ok());
        broken.unwrap_or_else(|| panic!("no such figure in {page}")) >= 13.0
    });
}

#[test]
fn a_token_that_is_taken_away() {
    let scratch = Scratch::new("serve-token");
    let tokens = scratch.write("tokens", TOKENS);
    let job = example().display().to_string();
    let mut server = Server::start(&scratch, &[&job, "--state-dir", &scratch.at("state"), "--tokens", &tokens]);
    // A token in the address is for event streams and WebSockets only.
    server.expect("GET", "/v1/jobs?token=boss-1", "", 401, &["wants a token"]);
    // A right that a token does not give is counted like a token that is not good.
    server.token = Some("page-1");
    server.expect("GET", "/v1/jobs", "", 403, &["no right to manage jobs"]);
    server.token = Some("boss-1");
    assert_eq!(server.metric("tidemill_requests_unauthenticated_total"), 1.0);
    assert_eq!(server.metric("tidemill_requests_forbidden_total"), 1.0);
    let publish = |token: &str| {
        let file = scratch.write("orders.json", orders(0, 200));
        finish(tidemill().args(["publish", &server.stream("orders"), &file, "--token", token]))
    };
    server.wait_example();
    expect(&publish("feed-1"), 0, &["200 rows published"]);
    let page = "/v1/streams/large_orders/events?from=earliest&token=page-1";
    let mut page = server.events(page, "");
    assert!(next_event(&mut page).expect("an event").data.contains("\"id\":100"));
    let mut named = tidemill();
    named.args(["subscribe", &server.stream("large_orders"), "--token", "page-1"]);
    let mut named = Background::start(&mut named);
    // The file is read anew; who is connected is told.
    scratch.replace("tokens", TOKENS.replace("page-1", "page-2"));
    let last = std::iter::from_fn(|| next_event(&mut page)).last().expect("a last event");
    assert!(last.event == "error" && last.data.contains("has expired or was taken out of the token file"), "{last:?}");
    let (code, errors) = named.end();
    assert!(code == Some(1) && errors.contains("token"), "{code:?} {errors}");
    // Both were told in the middle of their streams.
    assert!(server.metric("tidemill_requests_unauthenticated_total") >= 3.0);
    assert!(publish("feed-1").status.success(), "others are not disturbed");
    // A file that is wrong changes nothing.
    scratch.replace("tokens", "{\"token\": ");
    wait_for("a word in the log", || server.log().contains("the tokens read before stay in force"));
    assert!(publish("feed-1").status.success());
}

/// Publishes a megabyte again and again with the token `soon-1`, until that is refused; the answer.
fn publish_until_refused(address: SocketAddr, query: &str) -> String {
    let lines: String = (0..1000).map(|n| format!("{{\"t\":\"{n:0>1000}\"}}\n")).collect();
    loop {
        let mut stream = TcpStream::connect(address).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        let head = format!(
            "POST /v1/streams/held{query} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer soon-1\r\n\
             content-type: application/x-ndjson\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{lines}",
            lines.len()
        );
        stream.write_all(head.as_bytes()).expect("the server reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        if !answer.starts_with("HTTP/1.1 200 ") {
            return answer;
        }
    }
}

/// Nobody takes this one away: its time passes while publishers and subscribers are connected. Requests that waited for a
/// slow job, or for a checkpoint, once waited on, and got their rows in afterwards.
#[test]
fn a_token_that_expires_by_the_clock() {
    let scratch = Scratch::new("serve-expiry");
    let tokens = scratch.write("tokens", TOKENS);
    let job = example().display().to_string();
    // Nobody reads what this job writes, so that who publishes into it waits as soon as the buffers between are full.
    let wall = TcpListener::bind("127.0.0.1:0").expect("a port");
    let held = format!(
        "CREATE TABLE held (t STRING) WITH ('connector' = 'stream', 'stream.queue-bytes' = '1 mb');
         CREATE TABLE wall (t STRING) WITH ('connector' = 'socket', 'hostname' = '127.0.0.1', 'port' = '{}', 'format' = 'csv');
         INSERT INTO wall SELECT t FROM held;",
        wall.local_addr().expect("its address").port()
    );
    let held = scratch.write("held.sql", held);
    let begun = Instant::now();
    let mut server = Server::start(&scratch, &[&job, &held, "--state-dir", &scratch.at("state"), "--tokens", &tokens]);
    server.token = Some("boss-1");
    server.wait_example();
    server.wait_side("held", "inlet");
    // All must be connected before, or wait: as much later as this machine is slow to start a server.
    let good_ms = 20_000 + 5 * begun.elapsed().as_millis() as i64;
    let mut expires = Vec::new();
    write_timestamp(&mut expires, wall_ms() + good_ms, TimeUnit::Millisecond, 3);
    let expires = String::from_utf8(expires).expect("digits");
    let soon = json!({"token": "soon-1", "name": "soon", "read": ["*"], "write": ["*"], "expires": format!("{expires}Z")});
    scratch.replace("tokens", format!("{TOKENS}{soon}\n"));
    server.token = Some("soon-1");
    wait_for("the new token", || server.ask("GET", "/v1/streams", "", "").0 == 200);
    server.token = Some("boss-1");
    let nothing = ["--where", "id = -1", "--token", "soon-1"];
    let mut subscriber = Background::start(tidemill().args(["subscribe", &server.stream("large_orders")]).args(nothing));
    let mut events = server.events("/v1/streams/large_orders/events?filter=id%20%3D%20-1&token=soon-1", "");
    let feed = ["--from", "connector=datagen,rows-per-second=20", "--to", &server.stream("orders"), "--quiet", "--token", "soon-1"];
    let mut publisher = Background::start(tidemill().arg("adapter").args(feed));
    wait_for("rows of the publisher", || server.stat("orders", "published_rows") > 0);
    let address = server.address;
    let posts = ["", "?wait=ack"].map(|query| thread::spawn(move || publish_until_refused(address, query)));
    let mut socket = WebSocket::open(&server, "/v1/streams/held/ws?token=soon-1");
    let (mut last, mut same) = (0, 0);
    wait_for("nothing more to be taken", || {
        thread::sleep(Duration::from_millis(100));
        let now = server.stat("held", "published_bytes");
        same = if now == last && now > 0 { same + 1 } else { 0 };
        last = now;
        same >= 10
    });
    socket.send("{\"t\":\"waits, too\"}");
    // Each is told in the middle of what it does.
    for (who, process) in [("the publisher", &mut publisher), ("the subscriber", &mut subscriber)] {
        let (code, errors) = process.end();
        assert!(code == Some(1) && errors.contains("'soon' has expired"), "{who}: {code:?} {errors}");
    }
    let last = std::iter::from_fn(|| next_event(&mut events)).last().expect("a last event");
    assert!(last.event == "error" && last.data.contains("'soon' has expired"), "{last:?}");
    for post in posts {
        let answer = post.join().expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 401 ") && answer.contains("'soon' has expired"), "{answer}");
    }
    let told = socket.next().expect("the reason");
    assert!(told.contains("'soon' has expired"), "{told}");
    assert_eq!(socket.next(), Err(1008));
    wait_for("all to be counted", || server.metric("tidemill_requests_unauthenticated_total") >= 6.0);
    server.post("/v1/streams/orders?wait=ack", &orders(100, 1));
}
