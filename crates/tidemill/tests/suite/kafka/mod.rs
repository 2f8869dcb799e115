//! The connectors of Kafka against a real broker, which is killed and started again, too. Needs Java 17
//! and, the first time, Maven; where they are missing this is said and the tests are skipped.
//!
//! - [`broker`]: a broker of a test's own
//! - [`client`]: topics, messages in, messages out
//! - [`exactly_once`]: jobs and brokers killed at any moment
//! - [`formats`]: every format of messages, and what stands beside their values
//! - [`security`]: who logs in, and over what
//! - [`starts`]: where scans begin
//! - [`trouble`]: what happens to topics, groups and brokers while jobs read and write

mod broker;
mod client;
mod exactly_once;
mod formats;
mod security;
mod starts;
mod trouble;

use std::collections::BTreeMap;
use std::process::Output;

use broker::Broker;
use client::Client;

use crate::failures::expect;
use crate::harness::{Background, Scratch, finish, fold, free_port, root, text, tidemill, wait_for};

/// The options that every table here has.
pub fn with(servers: &str, topic: &str, more: &str) -> String {
    let start = "'scan.startup.mode' = 'earliest-offset', 'connect.timeout' = '60 s'";
    format!(
        "WITH ('connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{servers}', 'format' = 'json', {start}{more})"
    )
}

const BOUNDED: &str = ", 'scan.bounded.mode' = 'latest-offset'";

/// The same, fetched by one client or the other.
fn bounded(reads: &str) -> String {
    format!("{BOUNDED}, 'scan.client' = '{reads}'")
}

/// Orders as JSON: number, customer, amount.
fn orders(from: i64, to: i64) -> Vec<(Option<String>, Option<String>)> {
    (from..to).map(|n| (None, Some(format!("{{\"id\":{n},\"customer\":\"c{}\",\"amount\":{}}}", n % 7, n % 50)))).collect()
}

const ORDERS: &str = "(id BIGINT, customer STRING, amount BIGINT)";

fn run(scratch: &Scratch, sql: &str, more: &[&str]) -> Output {
    let job = scratch.write("job.sql", sql);
    finish(tidemill().args(["run", &job, "--quiet"]).args(more))
}

#[track_caller]
fn succeeds(output: &Output) {
    assert!(output.status.success(), "{}", text(output));
}

/// One broker serves these one after the other: starting one takes longer than most of them.
#[test]
fn jobs_over_a_broker() {
    let Some(mut broker) = Broker::start("kafka-jobs") else { return };
    let client = Client::new(&broker.servers());
    // Whoever fetches them, messages are the same.
    for reads in ["direct", "librdkafka"] {
        json_in_and_out(&broker, &client, reads);
        upserts_there_and_back(&broker, &client, reads);
        poison_messages(&broker, &client, reads);
        marks_of_transactions(&broker, &client, reads);
    }
    the_example(&broker, &client);
    partitions_that_come_later(&broker, &client);
    processes_share_a_topic(&broker, &client);
    a_topic_created_anew(&broker, &client);
    starts::at_times_and_offsets(&broker, &client);
    starts::where_the_group_has_committed(&broker, &client);
    formats::there_and_back(&broker, &client);
    formats::changes(&broker, &client);
    formats::times_and_headers(&broker, &client);
    trouble::a_topic_deleted_while_it_is_read(&broker, &client);
    trouble::messages_that_expired(&broker, &client);
    trouble::members_that_come_and_go(&broker, &client);
    trouble::offsets_wait_for_answers(&broker, &client);
    trouble::two_jobs_with_one_prefix(&broker, &client);
    // Last, since they take the broker from others.
    trouble::a_broker_that_hangs(&broker, &client);
    trouble::a_broker_that_goes_away(&mut broker, &client);
}

/// A table over a topic, with these columns and options beside where it is.
fn table(broker: &Broker, name: &str, columns: &str, topic: &str, options: &str) -> String {
    let servers = broker.servers();
    format!(
        "CREATE TABLE {name} ({columns}) WITH ('connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{servers}', \
         'connect.timeout' = '60 s', {options});\n"
    )
}

/// The table `shown`, whose rows are printed.
fn shown(columns: &str) -> String {
    format!("CREATE TABLE shown ({columns}) WITH ('connector' = 'print', 'print-identifier' = 'shown');\n")
}

/// The rows of `shown` that a job leaves, which must succeed.
#[track_caller]
fn rows(scratch: &Scratch, sql: &str) -> Vec<String> {
    let output = run(scratch, sql, &["--parallelism", "1"]);
    succeeds(&output);
    fold(&String::from_utf8_lossy(&output.stdout), "shown")
}

const ALL: &str = "'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset'";

fn json_in_and_out(broker: &Broker, client: &Client, reads: &str) {
    let scratch = Scratch::new(&format!("kafka-json-{reads}"));
    let (from, to) = (format!("json-in-{reads}"), format!("json-out-{reads}"));
    client.create(&from, 3);
    client.create(&to, 2);
    client.produce(&from, &orders(0, 1000));
    let servers = broker.servers();
    let sql = format!(
        "CREATE TABLE orders (id BIGINT, customer STRING, amount BIGINT, part INT METADATA FROM 'partition' VIRTUAL, \
         pos BIGINT METADATA FROM 'offset' VIRTUAL) {};\n\
         CREATE TABLE results (id BIGINT, twice BIGINT, part INT, pos BIGINT) {};\n\
         INSERT INTO results SELECT id, amount * 2, part, pos FROM orders WHERE customer <> 'c0';\n",
        with(&servers, &from, &bounded(reads)),
        with(&servers, &to, ""),
    );
    succeeds(&run(&scratch, &sql, &["--parallelism", "2"]));
    let mut found: Vec<serde_json::Value> = client.values(&to).iter().map(|v| serde_json::from_str(v).expect("JSON")).collect();
    found.sort_by_key(|v| v["id"].as_i64());
    let expected: Vec<i64> = (0..1000).filter(|n| n % 7 != 0).collect();
    assert_eq!(found.iter().map(|v| v["id"].as_i64().expect("a number")).collect::<Vec<_>>(), expected);
    assert!(found.iter().all(|v| v["twice"].as_i64() == v["id"].as_i64().map(|n| n % 50 * 2)));
    let places: std::collections::BTreeSet<_> = found.iter().map(|v| (v["part"].as_i64(), v["pos"].as_i64())).collect();
    assert_eq!(places.len(), found.len(), "every message has a place of its own");
}

fn upserts_there_and_back(broker: &Broker, client: &Client, reads: &str) {
    let scratch = Scratch::new(&format!("kafka-upsert-{reads}"));
    let (from, to) = (format!("upsert-in-{reads}"), format!("totals-{reads}"));
    client.create(&from, 2);
    client.create(&to, 2);
    client.produce(&from, &orders(0, 700));
    let servers = broker.servers();
    let totals = |more: &str| {
        format!(
            "CREATE TABLE totals (customer STRING, total BIGINT, PRIMARY KEY (customer) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', \
             'topic' = '{to}', 'properties.bootstrap.servers' = '{servers}', 'key.format' = 'raw', 'value.format' = 'json'{more});\n"
        )
    };
    let write = format!(
        "CREATE TABLE orders {ORDERS} {};\n{}INSERT INTO totals SELECT customer, SUM(amount) FROM orders GROUP BY customer;\n",
        with(&servers, &from, &bounded(reads)),
        totals(""),
    );
    succeeds(&run(&scratch, &write, &["--parallelism", "2"]));
    // A customer goes away again.
    client.produce(&to, &[(Some("c3".to_string()), None)]);
    let read = format!(
        "{}CREATE TABLE shown (customer STRING, total BIGINT) WITH ('connector' = 'print', 'print-identifier' = 'shown');\nINSERT INTO shown SELECT * FROM totals;\n",
        totals(&bounded(reads))
    );
    let output = run(&scratch, &read, &["--parallelism", "1"]);
    succeeds(&output);
    let total = |c: i64| (0..700).filter(|n| n % 7 == c).map(|n| n % 50).sum::<i64>();
    let expected: Vec<String> = (0..7).filter(|c| *c != 3).map(|c| format!("c{c}, {}", total(c))).collect();
    assert_eq!(fold(&String::from_utf8_lossy(&output.stdout), "shown"), expected);
}

/// The job of the examples, to the end of what is there.
fn the_example(broker: &Broker, client: &Client) {
    let state = Scratch::new("kafka-example");
    ["orders", "totals", "large-orders"].iter().for_each(|topic| client.create(topic, 2));
    client.produce("orders", &orders(0, 700));
    let mut command = tidemill();
    command.arg("run").arg(root().join("examples/kafka/orders.sql")).args(["--quiet", "--state-dir", &state.at("state")]);
    succeeds(&finish(command.args(["-D", &format!("SERVERS={}", broker.servers()), "-D", "UNTIL=latest-offset"])));
    let values =
        |topic: &str| -> Vec<serde_json::Value> { client.values(topic).iter().map(|v| serde_json::from_str(v).expect("JSON")).collect() };
    let mut found: Vec<Option<i64>> = values("large-orders").iter().map(|v| v["id"].as_i64()).collect();
    found.sort_unstable();
    assert_eq!(found, (0..700).filter(|n| n % 50 >= 40).map(Some).collect::<Vec<_>>());
    let totals: BTreeMap<_, _> = values("totals").iter().map(|v| (v["customer"].to_string(), v["total"].as_i64())).collect();
    let total = |c: i64| (0..700).filter(|n| n % 7 == c).map(|n| n % 50).sum::<i64>();
    assert_eq!(totals, (0..7).map(|c| (format!("\"c{c}\""), Some(total(c)))).collect());
}

fn poison_messages(broker: &Broker, client: &Client, reads: &str) {
    let scratch = Scratch::new(&format!("kafka-poison-{reads}"));
    let topic = format!("poison-{reads}");
    client.create(&topic, 1);
    client.produce(&topic, &orders(0, 3));
    client.produce(&topic, &[(None, Some("{\"id\":".to_string()))]);
    client.produce(&topic, &orders(3, 5));
    let sql = |more: &str| {
        format!(
            "CREATE TABLE orders {ORDERS} {};\nCREATE TABLE shown (id BIGINT) WITH ('connector' = 'print', 'print-identifier' = 'shown');\n\
             INSERT INTO shown SELECT id FROM orders;\n",
            with(&broker.servers(), &topic, &format!("{}{more}", bounded(reads)))
        )
    };
    expect(&run(&scratch, &sql(""), &[]), 1, &["table 'orders'", &format!("{topic}:0@3"), "on-error"]);
    let output = run(&scratch, &sql(", 'on-error' = 'skip'"), &["--parallelism", "1"]);
    succeeds(&output);
    assert_eq!(fold(&String::from_utf8_lossy(&output.stdout), "shown"), ["0", "1", "2", "3", "4"]);
}

/// The last offsets of a topic are no messages: a bounded scan must end even so, and without what was given up.
fn marks_of_transactions(broker: &Broker, client: &Client, reads: &str) {
    let scratch = Scratch::new(&format!("kafka-marks-{reads}"));
    let topic = format!("marks-{reads}");
    client.create(&topic, 1);
    client.produce(&topic, &orders(0, 3));
    client.transaction(&topic, &orders(3, 5), true);
    let sql = format!(
        "CREATE TABLE orders {ORDERS} {};\nCREATE TABLE shown (id BIGINT) WITH ('connector' = 'print', 'print-identifier' = 'shown');\n\
         INSERT INTO shown SELECT id FROM orders;\n",
        with(&broker.servers(), &topic, &bounded(reads))
    );
    for round in 0..2 {
        let output = run(&scratch, &sql, &["--parallelism", "1"]);
        succeeds(&output);
        assert_eq!(fold(&String::from_utf8_lossy(&output.stdout), "shown"), ["0", "1", "2", "3", "4"], "round {round}");
        client.transaction(&topic, &orders(5, 7), false);
    }
}

/// A job from one topic to another that does not end by itself.
fn endless(broker: &Broker, from: &str, to: &str, more: &str) -> String {
    let servers = broker.servers();
    format!(
        "CREATE TABLE orders {ORDERS} {};\nCREATE TABLE results (id BIGINT) {};\nINSERT INTO results SELECT id FROM orders;\n",
        with(&servers, from, more),
        with(&servers, to, ""),
    )
}

/// The numbers in a topic, each once, in order.
fn ids(client: &Client, topic: &str) -> Vec<i64> {
    let parse = |v: &String| serde_json::from_str::<serde_json::Value>(v).expect("JSON")["id"].as_i64().expect("a number");
    let all: std::collections::BTreeSet<i64> = client.values(topic).iter().map(parse).collect();
    all.into_iter().collect()
}

fn partitions_that_come_later(broker: &Broker, client: &Client) {
    let scratch = Scratch::new("kafka-later");
    client.create("later-in", 1);
    client.create("later-out", 1);
    client.produce("later-in", &orders(0, 10));
    let job = scratch.write("job.sql", endless(broker, "later-in", "later-out", ", 'scan.topic-partition-discovery.interval' = '200 ms'"));
    let mut process = Background::start(tidemill().args(["run", &job, "--quiet", "--parallelism", "2"]));
    wait_for("the first rows", || ids(client, "later-out").len() == 10);
    client.add_partitions("later-in", 3);
    client.produce_to("later-in", 2, &orders(10, 20));
    wait_for("rows of the new partition", || ids(client, "later-out") == (0..20).collect::<Vec<_>>());
    process.signal("INT");
    assert_eq!(process.end().0, Some(0));
}

fn processes_share_a_topic(broker: &Broker, client: &Client) {
    let scratch = Scratch::new("kafka-group");
    client.create("group-in", 4);
    client.create("group-out", 1);
    client.produce("group-in", &orders(0, 400));
    let group = ", 'scan.assignment' = 'group', 'properties.group.id' = 'sharers'";
    let job = scratch.write("job.sql", endless(broker, "group-in", "group-out", group));
    let start = || Background::start(tidemill().args(["run", &job, "--quiet", "--parallelism", "1"]));
    let (mut one, mut two) = (start(), start());
    // One may read everything while the other is still starting, and is not to be interrupted in that.
    wait_for("both to be in the group", || client.members("sharers") == 2);
    wait_for("both to have read everything", || ids(client, "group-out").len() == 400);
    client.produce("group-in", &orders(400, 800));
    wait_for("what came later", || ids(client, "group-out") == (0..800).collect::<Vec<_>>());
    one.signal("INT");
    assert_eq!(one.end().0, Some(0));
    // The other takes over.
    client.produce("group-in", &orders(800, 900));
    wait_for("what came last", || ids(client, "group-out") == (0..900).collect::<Vec<_>>());
    two.signal("INT");
    assert_eq!(two.end().0, Some(0));
}

fn a_topic_created_anew(broker: &Broker, client: &Client) {
    let scratch = Scratch::new("kafka-anew");
    client.create("anew-in", 1);
    client.create("anew-out", 1);
    client.produce("anew-in", &orders(0, 50));
    let job = scratch.write("job.sql", endless(broker, "anew-in", "anew-out", ""));
    let state = scratch.at("state");
    let args = ["run", job.as_str(), "--quiet", "--parallelism", "1", "--state-dir", state.as_str()];
    let mut process = Background::start(tidemill().args(args));
    wait_for("the rows", || ids(client, "anew-out").len() == 50);
    process.signal("INT");
    assert_eq!(process.end().0, Some(0));
    client.delete("anew-in");
    client.create("anew-in", 1);
    // More than there were: by offsets alone the new topic could be taken for the old.
    client.produce("anew-in", &orders(1000, 1080));
    expect(&finish(tidemill().args(args)), 1, &["anew-in:0", "created anew", "scan.offset-reset"]);
}

#[test]
fn a_broker_that_is_not_there() {
    let nobody = format!("127.0.0.1:{}", free_port());
    let scratch = Scratch::new("kafka-nobody");
    let sql = format!(
        "CREATE TABLE orders {ORDERS} {};\nCREATE TABLE shown (id BIGINT) WITH ('connector' = 'print', 'print-identifier' = 'shown');\n\
         INSERT INTO shown SELECT id FROM orders;\n",
        with(&nobody, "orders", BOUNDED).replace("60 s", "1 s"),
    );
    expect(&run(&scratch, &sql, &[]), 1, &["table 'orders'", &nobody, "'connect.timeout'"]);
}
