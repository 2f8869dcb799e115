//! Jobs of a server: their life over REST, and what outlives the server.

use serde_json::json;

use super::server::{Server, lasting_address};
use super::{example, large, orders, per_customer};
use crate::failures::expect;
use crate::harness::{Scratch, finish, text, tidemill, wait_for};

#[test]
fn the_life_of_a_job() {
    let scratch = Scratch::new("serve-life");
    let state = scratch.at("state");
    let job = example().display().to_string();
    let server = Server::start(&scratch, &[&job, "--state-dir", &state]);
    assert!(server.ready.contains("jobs: clients"), "{}", server.ready);
    server.wait_job("clients", "running");
    server.wait_example();
    assert_eq!(server.get("/v1/jobs")["jobs"].as_array().map(Vec::len), Some(1));
    server.expect("GET", "/v1/jobs/clients/plan", "", 200, &["orders", "large_orders", "per_customer"]);
    let publish = "/v1/streams/orders?publisher=p&wait=ack&offset=";
    let answer = server.post(&format!("{publish}0"), &orders(0, 500));
    assert_eq!(answer, json!({"rows": 500, "offset": 500, "acknowledged": 500}));
    assert_eq!(server.per_customer(), per_customer(500, 1));
    // Stopped, a job takes nothing and gives nothing; what it knows stays.
    server.expect("POST", "/v1/jobs/clients/stop", "", 200, &["\"state\":\"stopped\""]);
    let (status, text) = server.ask("POST", &format!("{publish}500"), "application/x-ndjson", &orders(500, 1));
    assert!(status == 409 && text.contains("no running job reads stream 'orders'"), "{status} {text}");
    server.expect("POST", "/v1/jobs/clients/start", "", 200, &[]);
    server.wait_example();
    assert_eq!(server.per_customer(), per_customer(500, 1));
    // Rows that were sent before are cut off, also when new ones follow them.
    let answer = server.post(&format!("{publish}0"), &orders(0, 700));
    assert_eq!(answer["acknowledged"], 700);
    assert_eq!(server.stat("orders", "duplicates_rows"), 500);
    server.expect("POST", "/v1/jobs/clients/restart", "", 200, &[]);
    server.wait_example();
    server.post(&format!("{publish}600"), &orders(600, 400));
    assert_eq!(server.per_customer(), per_customer(1000, 1));
    // A gap is refused, and the message says where to go on.
    let (status, text) = server.ask("POST", &format!("{publish}1001"), "application/x-ndjson", &orders(1001, 1));
    assert!(status == 409 && text.contains("go on from row 1000"), "{status} {text}");
    // From the beginning again.
    server.expect("POST", "/v1/jobs/clients/restart?fresh=true", "", 200, &[]);
    server.wait_example();
    assert_eq!(server.per_customer(), Vec::<String>::new());
    server.expect("DELETE", "/v1/jobs/clients", "", 204, &[]);
    server.expect("GET", "/v1/jobs/clients", "", 404, &["there is no job 'clients'"]);
    let about = server.get("/v1/streams/orders");
    assert!(about["inlet"].is_null() && about["outlet"].is_null(), "{about}");
}

#[test]
fn jobs_that_cannot_run() {
    let scratch = Scratch::new("serve-refused");
    let job = example().display().to_string();
    let server = Server::start(&scratch, &[&job, "--state-dir", &scratch.at("state")]);
    let new = |name: &str, sql: &str| json!({"name": name, "sql": sql}).to_string();
    server.expect("POST", "/v1/jobs", &new("bad", "CREATE TABLE t (a BIGNT) WITH ();"), 400, &["bad.sql:1:", "did you mean BIGINT?"]);
    server.expect("POST", "/v1/jobs", &new("clients", "SELECT 1;"), 409, &["there is a job 'clients' already"]);
    server.expect("POST", "/v1/jobs", &new("../x", "SELECT 1;"), 400, &["cannot name a job"]);
    server.expect("GET", "/v1/jobs/client", "", 404, &["did you mean 'clients'?"]);
    // A stream has one reader.
    server.wait_example();
    let second = "CREATE TABLE orders (id BIGINT) WITH ('connector' = 'stream');
                  CREATE TABLE nowhere (id BIGINT) WITH ('connector' = 'blackhole'); INSERT INTO nowhere SELECT id FROM orders;";
    server.expect("POST", "/v1/jobs", &new("second", second), 201, &[]);
    server.wait_job("second", "failed");
    let view = server.get("/v1/jobs/second");
    assert!(view["error"].as_str().is_some_and(|e| e.contains("stream 'orders' is read by another running job")), "{view}");
    assert_eq!(server.get("/v1/jobs/clients")["state"], "running");
    // Without a server there are no publishers.
    let output = finish(tidemill().args(["run", &job, "--quiet"]));
    expect(&output, 1, &["connector 'stream' needs `tidemill serve`"]);
}

#[test]
fn jobs_come_back() {
    let scratch = Scratch::new("serve-back");
    let state = scratch.at("state");
    let job = example().display().to_string();
    let publish = "/v1/streams/orders?publisher=p&wait=ack&offset=";
    let address = lasting_address();
    let mut server = Server::start(&scratch, &[&job, "--state-dir", &state, "--listen", &address]);
    let stopped = json!({"name": "stopped", "start": false, "sql": "CREATE TABLE g (a BIGINT) WITH ('connector' = 'datagen');
        CREATE TABLE o (a BIGINT) WITH ('connector' = 'blackhole'); INSERT INTO o SELECT a FROM g;"});
    server.expect("POST", "/v1/jobs", &stopped.to_string(), 201, &[]);
    server.wait_example();
    server.post(&format!("{publish}0"), &orders(0, 300));
    // The directory is taken.
    let second = finish(tidemill().args(["serve", "--listen", "127.0.0.1:0", "--state-dir", &state]));
    expect(&second, 1, &["belongs to a server that runs"]);
    // So is the address.
    let second = finish(tidemill().args(["serve", "--listen", &address]));
    expect(&second, 1, &["listening on", "--listen"]);
    for round in 1..=3 {
        if round == 2 {
            // In the middle of whatever it does.
            server.process.0.kill().expect("killing the server");
            server.end();
        } else {
            server.process.signal("TERM");
            let code = server.end();
            assert_eq!(code, Some(0), "{}", server.log());
        }
        server = Server::start(&scratch, &["--state-dir", &state, "--listen", &address]);
        assert!(server.ready.contains("jobs: clients, stopped"), "{}", server.ready);
        server.wait_example();
        assert_eq!(server.get("/v1/jobs/stopped")["state"], "stopped");
        assert_eq!(server.per_customer(), per_customer(300 * round, 1), "round {round}");
        // The server knows from which row on the publisher's are new.
        let answer = server.post(&format!("{publish}{}", 300 * round - 100), &orders(300 * round - 100, 400));
        assert_eq!(answer["acknowledged"], 300 * round + 300);
    }
    let expect = large(1200);
    wait_for("the log to have all large orders", || server.stat("large_orders", "next_offset") == expect);
    let output = finish(tidemill().args([
        "subscribe",
        &server.stream("large_orders"),
        "--from",
        "earliest",
        "--limit",
        &expect.to_string(),
        "--columns",
        "id",
    ]));
    assert!(output.status.success(), "{}", text(&output));
    let found: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_string).collect();
    let expect: Vec<String> = (0..1200).filter(|n| n % 200 >= 100).map(|n| format!("{{\"id\":{n}}}")).collect();
    assert_eq!(found, expect);
}
