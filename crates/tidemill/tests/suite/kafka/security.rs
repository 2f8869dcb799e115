//! Exactly-once over connections that ask who one is, and that are encrypted: what a crashed job has prepared is committed
//! over a connection of our own, all else over librdkafka's.

use super::broker::{Broker, Guard};
use super::client::Client;
use super::{ORDERS, orders, run, succeeds};
use crate::failures::expect;
use crate::harness::{Scratch, text};
use crate::not_run::not_run;
use crate::serve::security::certificates;

/// SCRAM and TLS are in builds with OpenSSL.
const GUARDS: &[(&str, &str)] = if cfg!(feature = "kafka-ssl") {
    &[("SASL_PLAINTEXT", "PLAIN"), ("SASL_PLAINTEXT", "SCRAM-SHA-256"), ("SASL_SSL", "SCRAM-SHA-512")]
} else {
    &[("SASL_PLAINTEXT", "PLAIN")]
};

#[test]
fn exactly_once_for_who_logs_in() {
    for &(protocol, mechanism) in GUARDS {
        let scratch = Scratch::new("kafka-security");
        let encrypted = protocol == "SASL_SSL";
        if encrypted && let Err(why) = certificates(&scratch, "good", "IP:127.0.0.1") {
            not_run(&format!("Kafka over TLS (no certificate could be made): {why}"));
            continue;
        }
        let read = |name: &str| std::fs::read_to_string(scratch.at(name)).unwrap_or_default();
        let keys = scratch.write("keys.pem", read("good.key") + &read("good.pem"));
        let Some(broker) = Broker::guarded("kafka-guarded", &Guard { protocol, mechanism, keys: &keys }) else { return };
        killed_before_its_commit(&scratch, &broker, protocol, mechanism);
    }
}

/// A job is killed between a checkpoint and its commit; the next run commits what the checkpoint holds.
fn killed_before_its_commit(scratch: &Scratch, broker: &Broker, protocol: &str, mechanism: &str) {
    let client = Client::new(&broker.servers());
    client.create("in", 1);
    client.create("out", 1);
    client.produce("in", &orders(0, 600));
    let (servers, authority) = (broker.guarded_servers(), scratch.at("good-ca.pem"));
    let table = |topic: &str, password: &str, more: &str| {
        let trusted = if protocol == "SASL_SSL" { format!(", 'properties.ssl.ca.location' = '{authority}'") } else { String::new() };
        // Whoever is not let in waits in vain.
        let patience = if password == "wrong" { "2 s" } else { "60 s" };
        format!(
            "WITH ('connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{servers}', 'format' = 'json',
               'connect.timeout' = '{patience}', 'properties.security.protocol' = '{protocol}', 'properties.sasl.mechanism' = '{mechanism}',
               'properties.sasl.username' = 'writer', 'properties.sasl.password' = '{password}'{trusted}{more})"
        )
    };
    let job = |password: &str| {
        format!(
            "CREATE TABLE orders {ORDERS} {};\nCREATE TABLE results (id BIGINT) {};\nINSERT INTO results SELECT id FROM orders;\n",
            table("in", password, ", 'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset'"),
            table("out", password, ", 'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = 'guarded'")
        )
    };
    expect(&run(scratch, &job("wrong"), &[]), 1, &["'connect.timeout'"]);
    let state = scratch.at("state");
    let arguments = ["--state-dir", state.as_str(), "--parallelism", "1", "--set", "block.size=10"];
    let killed = ["--set", "debug.checkpoint-blocks=5", "--set", "debug.abort-after-checkpoints=1"];
    let output = run(scratch, &job("secret"), &[&arguments[..], &killed[..]].concat());
    assert_eq!(output.status.code(), Some(137), "{protocol}, {mechanism}: {}", text(&output));
    assert!(client.has_open_transactions("out"), "{protocol}, {mechanism}: what is prepared is not committed yet");
    succeeds(&run(scratch, &job("secret"), &arguments));
    let parse = |v: &String| serde_json::from_str::<serde_json::Value>(v).expect("JSON")["id"].as_i64().expect("a number");
    let mut found: Vec<i64> = client.values("out").iter().map(parse).collect();
    found.sort_unstable();
    assert_eq!(found, (0..600).collect::<Vec<_>>(), "{protocol}, {mechanism}: each row once");
}
