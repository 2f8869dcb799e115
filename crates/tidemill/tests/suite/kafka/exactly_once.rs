//! A job that reads, aggregates and writes, killed again and again, while its broker is killed or
//! restarted now and then: who reads committed messages sees every result once.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::broker::Broker;
use super::client::{Client, Pair};
use super::with;
use crate::crash::Random;
use crate::harness::{Background, Scratch, tidemill, wait_for};

const PARTITIONS: i64 = 4;
const KEYS: i64 = 5;
/// Messages a round.
const CHUNK: i64 = 2_000;

/// Message n: times ascend, and every partition has all of them.
fn message(n: i64) -> Pair {
    (None, Some(format!("{{\"k\":{},\"ms\":{},\"v\":{}}}", n / PARTITIONS % KEYS, n * 7, n % 13)))
}

fn job(broker: &Broker) -> String {
    let servers = broker.servers();
    let exactly = ", 'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = 'crash'";
    format!(
        "SET 'execution.checkpointing.interval' = '200 ms';\n\
         CREATE TABLE events (k BIGINT, ms BIGINT, v BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts) {};\n\
         CREATE TABLE results (k BIGINT, w BIGINT, n BIGINT, total BIGINT) {};\n\
         INSERT INTO results SELECT k, MIN(ms) / 1000 AS w, COUNT(*), SUM(v)\n\
         FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' SECOND)) GROUP BY window_start, window_end, k;\n",
        with(&servers, "events", ", 'properties.group.id' = 'crash'"),
        with(&servers, "results", exactly),
    )
}

/// Count and sum by second and key.
type Results = BTreeMap<(i64, i64), (i64, i64)>;

fn expected(messages: i64) -> Results {
    let mut results = Results::new();
    for n in 0..messages {
        let entry = results.entry((n * 7 / 1000, n / PARTITIONS % KEYS)).or_default();
        entry.0 += 1;
        entry.1 += n % 13;
    }
    results
}

/// What is committed so far; a result that is there twice fails the test.
fn committed(client: &Client, history: &[String]) -> Results {
    let mut results = Results::new();
    for value in client.values("results") {
        let value: Value = serde_json::from_str(&value).expect("JSON");
        let number = |name: &str| value[name].as_i64().unwrap_or_else(|| panic!("no {name} in {value}"));
        let again = results.insert((number("w"), number("k")), (number("n"), number("total")));
        assert_eq!(again, None, "{value} came twice; {}", history.join("; "));
    }
    results
}

/// KAFKA_KILLS says how often the job is killed, KAFKA_SEED when.
#[test]
fn every_result_once_whatever_is_killed() {
    let kills: u64 = std::env::var("KAFKA_KILLS").map_or(5, |n| n.parse().expect("KAFKA_KILLS is a number"));
    let seed: u64 = std::env::var("KAFKA_SEED").map_or(4711, |n| n.parse().expect("KAFKA_SEED is a number"));
    let Some(mut broker) = Broker::start("kafka-crash") else { return };
    let mut random = Random(seed);
    let client = Client::new(&broker.servers());
    client.create("events", PARTITIONS as i32);
    client.create("results", 2);
    let scratch = Scratch::new("kafka-crash-job");
    let (job, state) = (scratch.write("job.sql", job(&broker)), scratch.at("state"));
    let start = |shards: u64| {
        let mut command = tidemill();
        command.args(["run", &job, "--quiet", "--state-dir", &state, "--parallelism", &shards.to_string()]);
        Background::start(&mut command)
    };
    let by_turns = |from: i64| move |n: usize| Some(((from + n as i64) % PARTITIONS) as i32);
    let mut history = vec![format!("seed {seed}")];
    let mut written = 0;
    for _ in 0..kills {
        let shards = 1 + random.below(3);
        let process = start(shards);
        let chunk: Vec<Pair> = (written..written + CHUNK).map(message).collect();
        client.send("events", by_turns(written), &chunk);
        written += CHUNK;
        let delay = 200 + random.below(2_500);
        std::thread::sleep(Duration::from_millis(delay));
        let broker_too = random.below(4);
        history.push(format!("parallelism {shards}, {delay} ms, broker {broker_too}"));
        match broker_too {
            // While the job runs: it bears that.
            0 => {
                broker.kill();
                broker.again();
                std::thread::sleep(Duration::from_millis(random.below(3_000)));
                drop(process);
            }
            1 => {
                drop(process);
                broker.stop();
                broker.again();
            }
            _ => drop(process),
        }
        committed(&client, &history);
    }
    // A last message for every partition closes the windows of all before.
    let wanted = expected(written);
    let last: Vec<Pair> =
        (0..PARTITIONS).map(|_| (None, Some(format!("{{\"k\":99,\"ms\":{},\"v\":0}}", written * 7 + 3_600_000)))).collect();
    client.send("events", by_turns(0), &last);
    let mut process = start(2);
    wait_for("all results", || committed(&client, &history).len() >= wanted.len());
    assert_eq!(committed(&client, &history), wanted, "{}", history.join("; "));
    process.signal("INT");
    let (code, errors) = process.end();
    assert_eq!(code, Some(0), "{errors}; {}", history.join("; "));
    // The last commit may be answered before the partitions know of it. What is left open stays so for 15 minutes, which is more
    // than this waits.
    let closed = format!("transactions to end that were left open after {}", history.join("; "));
    wait_for(&closed, || !client.has_open_transactions("results"));
}
