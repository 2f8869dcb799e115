//! What happens to topics, groups and brokers while jobs read and write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::broker::Broker;
use super::client::Client;
use super::{ORDERS, endless, ids, orders, with};
use crate::failures::expect;
use crate::harness::{Background, Scratch, finish, tidemill, wait_for};
use crate::lookup::{Reply, server};

/// Checkpoints, and with them commits, are taken all the time.
const OFTEN: &str = "SET 'execution.checkpointing.interval' = '50 ms';\n";

fn start(job: &str, more: &[&str]) -> Background {
    Background::start(tidemill().args(["run", job, "--quiet", "--parallelism", "1"]).args(more))
}

pub fn a_topic_deleted_while_it_is_read(broker: &Broker, client: &Client) {
    let scratch = Scratch::new("kafka-gone");
    client.create("gone-in", 1);
    client.create("gone-out", 1);
    client.produce("gone-in", &orders(0, 5));
    let mut process = start(&scratch.write("job.sql", endless(broker, "gone-in", "gone-out", "")), &[]);
    wait_for("the rows", || ids(client, "gone-out").len() == 5);
    client.delete("gone-in");
    let (code, errors) = process.end();
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.contains("table 'orders'") && errors.contains("gone-in:0: the topic or the partition is no longer there"), "{errors}");
}

/// While a job was stopped, messages expired that it had not read.
pub fn messages_that_expired(broker: &Broker, client: &Client) {
    let scratch = Scratch::new("kafka-expired");
    client.create("expired-in", 1);
    client.create("expired-out", 1);
    client.produce("expired-in", &orders(0, 20));
    let state = scratch.at("state");
    let job = |more: &str| scratch.write("job.sql", endless(broker, "expired-in", "expired-out", more));
    let mut process = start(&job(""), &["--state-dir", &state]);
    wait_for("the rows", || ids(client, "expired-out").len() == 20);
    process.signal("INT");
    assert_eq!(process.end().0, Some(0));
    client.produce("expired-in", &orders(20, 40));
    client.delete_before("expired-in", 30);
    let failed = finish(tidemill().args(["run", &job(""), "--quiet", "--parallelism", "1", "--state-dir", &state]));
    expect(&failed, 1, &["expired-in:0: the next offset is 20", "offsets 30 to 40", "scan.offset-reset"]);
    let mut process = start(&job(", 'scan.offset-reset' = 'earliest'"), &["--state-dir", &state]);
    wait_for("what is there", || ids(client, "expired-out") == (0..20).chain(30..40).collect::<Vec<_>>());
    process.signal("INT");
    assert_eq!(process.end().0, Some(0));
}

/// Partitions move from process to process while checkpoints are under way: nothing is lost, and what was committed for a
/// partition by one is not undone by another.
pub fn members_that_come_and_go(broker: &Broker, client: &Client) {
    let scratch = Scratch::new("kafka-movers");
    client.create("movers-in", 6);
    client.create("movers-out", 1);
    let group = ", 'scan.assignment' = 'group', 'properties.group.id' = 'movers', 'properties.session.timeout.ms' = '6000'";
    let job = scratch.write("job.sql", format!("{OFTEN}{}", endless(broker, "movers-in", "movers-out", group)));
    let mut stays = start(&job, &[]);
    let mut written = 0;
    for round in 0..4 {
        let mut other = start(&job, &[]);
        wait_for("both to be in the group", || client.members("movers") == 2);
        client.produce("movers-in", &orders(written, written + 200));
        // Odd ones are killed, and what they had is theirs until the group believes it.
        if round % 2 == 0 {
            other.signal("INT");
            assert_eq!(other.end().0, Some(0));
        } else {
            drop(other);
        }
        client.produce("movers-in", &orders(written + 200, written + 400));
        written += 400;
        wait_for("all rows", || ids(client, "movers-out") == (0..written).collect::<Vec<_>>());
    }
    wait_for("the group's offset", || client.committed("movers", "movers-in").is_some());
    let before = client.committed("movers", "movers-in");
    stays.signal("INT");
    assert_eq!(stays.end().0, Some(0));
    assert!(client.committed("movers", "movers-in") >= before, "offsets never go backwards");
}

/// The group's offset does not pass a row whose answer is awaited: whoever went on from there would never see that row.
pub fn offsets_wait_for_answers(broker: &Broker, client: &Client) {
    let scratch = Scratch::new("kafka-answers");
    client.create("answers-in", 1);
    client.create("answers-out", 1);
    client.produce("answers-in", &orders(0, 10));
    let open = Arc::new(AtomicBool::new(false));
    let opened = open.clone();
    let port = server(move |id, _| {
        while id == 5 && !opened.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(2));
        }
        Reply::Found(format!("{{\"name\": \"n{id}\"}}"))
    });
    let servers = broker.servers();
    let sql = format!(
        "{OFTEN}CREATE TABLE orders (id BIGINT, pt AS PROCTIME()) {};
         CREATE TABLE dim (id BIGINT, name STRING) WITH ('connector' = 'http', 'url' = 'http://127.0.0.1:{port}/{{id}}', 'format' = 'json',
           'lookup.timeout' = '300 s', 'lookup.capacity' = '16');
         CREATE TABLE results (id BIGINT, name STRING) {};
         INSERT INTO results SELECT /*+ LOOKUP('table'='dim', 'output-mode'='allow_unordered') */ orders.id, dim.name
         FROM orders JOIN dim FOR SYSTEM_TIME AS OF orders.pt ON dim.id = orders.id;",
        with(&servers, "answers-in", ", 'properties.group.id' = 'answers'"),
        with(&servers, "answers-out", ""),
    );
    let mut process = start(&scratch.write("job.sql", sql), &[]);
    wait_for("all rows but one", || ids(client, "answers-out").len() == 9);
    // Time for several checkpoints.
    std::thread::sleep(Duration::from_millis(500));
    let early = client.committed("answers", "answers-in");
    assert!(early.is_none_or(|offset| offset <= 5), "{early:?} is committed, and row 5 is still awaited");
    open.store(true, Ordering::Release);
    wait_for("the last row", || ids(client, "answers-out") == (0..10).collect::<Vec<_>>());
    wait_for("the group's offset", || client.committed("answers", "answers-in") == Some(10));
    process.signal("INT");
    assert_eq!(process.end().0, Some(0));
}

/// A job that runs twice, or two with one prefix: the one that was there first is cut off, and says why.
pub fn two_jobs_with_one_prefix(broker: &Broker, client: &Client) {
    let scratch = Scratch::new("kafka-twins");
    client.create("twins-in", 1);
    client.create("twins-out", 1);
    let servers = broker.servers();
    let exactly = ", 'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = 'twins'";
    let sql = format!(
        "{OFTEN}CREATE TABLE orders {ORDERS} {};\nCREATE TABLE results (id BIGINT) {};\nINSERT INTO results SELECT id FROM orders;\n",
        with(&servers, "twins-in", ""),
        with(&servers, "twins-out", exactly),
    );
    let job = scratch.write("job.sql", sql);
    let (one, two) = (scratch.at("one"), scratch.at("two"));
    client.produce("twins-in", &orders(0, 10));
    let mut jobs = vec![start(&job, &["--state-dir", &one])];
    wait_for("the first job's rows", || ids(client, "twins-out").len() == 10);
    jobs.push(start(&job, &["--state-dir", &two]));
    let (mut written, mut ended) = (10, None);
    wait_for("one of them to be cut off", || {
        client.produce("twins-in", &orders(written, written + 1));
        written += 1;
        ended = jobs.iter_mut().position(|job| job.0.try_wait().expect("waiting for tidemill").is_some());
        ended.is_some()
    });
    let (code, errors) = jobs[ended.expect("waited for")].end();
    assert_eq!(code, Some(1), "{errors}");
    let told = ["table 'results'", "another producer uses the same transactional id", "'sink.transactional-id-prefix'"];
    // Seldom the broker stumbles where the new producer aborts the transaction that the old one is committing. All that is known then
    // is that the commit did not go through.
    let stumbled = ["committing table 'results'", "Unknown broker error", "the next start tries it again"];
    assert!([&told, &stumbled].iter().any(|all| all.iter().all(|part| errors.contains(part))), "{errors}");
}

/// Whoever fetches goes on when the broker is back, and nothing is lost; what came twice is not looked at.
pub fn a_broker_that_goes_away(broker: &mut Broker, client: &Client) {
    let scratch = Scratch::new("kafka-away");
    let mut jobs = Vec::new();
    for reads in ["direct", "librdkafka"] {
        let (from, to) = (format!("away-in-{reads}"), format!("away-out-{reads}"));
        client.create(&from, 2);
        client.create(&to, 1);
        client.produce(&from, &orders(0, 50));
        let job = endless(broker, &from, &to, &format!(", 'scan.client' = '{reads}', 'properties.group.id' = 'away-{reads}'"));
        let process = start(&scratch.write(&format!("{reads}.sql"), format!("{OFTEN}{job}")), &[]);
        jobs.push((from, to, process));
    }
    let mut written = 50;
    for round in 0..2 {
        for (_, to, _) in &jobs {
            wait_for("the rows", || ids(client, to) == (0..written).collect::<Vec<_>>());
        }
        if round == 0 {
            broker.kill()
        } else {
            broker.stop()
        }
        broker.again();
        for (from, _, _) in &jobs {
            client.produce(from, &orders(written, written + 50));
        }
        written += 50;
    }
    for (_, to, mut process) in jobs {
        wait_for("the last rows", || ids(client, &to) == (0..written).collect::<Vec<_>>());
        process.signal("INT");
        let (code, errors) = process.end();
        assert_eq!(code, Some(0), "{errors}");
    }
}

/// A broker that hangs for longer than an answer may take, and for longer than a start may wait, while a job reads over our own
/// connections and writes in transactions: nothing is lost, and nothing comes twice.
pub fn a_broker_that_hangs(broker: &Broker, client: &Client) {
    let scratch = Scratch::new("kafka-hangs");
    client.create("hangs-in", 2);
    client.create("hangs-out", 1);
    let servers = broker.servers();
    let exactly = "'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = 'hangs'";
    let impatient = "'properties.socket.timeout.ms' = '1500'";
    let sql = format!(
        "{OFTEN}CREATE TABLE orders {ORDERS} {};\nCREATE TABLE results (id BIGINT) {};\nINSERT INTO results SELECT id FROM orders;\n",
        with(&servers, "hangs-in", &format!(", 'scan.client' = 'direct', {impatient}")),
        with(&servers, "hangs-out", &format!(", {exactly}, {impatient}")).replace("60 s", "5 s"),
    );
    let mut process = start(&scratch.write("job.sql", sql), &[]);
    let mut written = 0;
    for _ in 0..2 {
        client.produce("hangs-in", &orders(written, written + 100));
        wait_for("the rows", || client.values("hangs-out").len() as i64 >= written + 100);
        // The job is in the midst of these.
        client.produce("hangs-in", &orders(written + 100, written + 200));
        broker.hang();
        // Below 9 s, after which brokers are taken for dead.
        std::thread::sleep(Duration::from_secs(7));
        broker.go_on();
        client.produce("hangs-in", &orders(written + 200, written + 300));
        written += 300;
        wait_for("all rows", || ids(client, "hangs-out").len() as i64 == written);
    }
    process.signal("INT");
    let (code, errors) = process.end();
    assert_eq!(code, Some(0), "{errors}");
    wait_for("the last transaction to end", || !client.has_open_transactions("hangs-out"));
    assert_eq!(client.values("hangs-out").len() as i64, written, "some rows came twice");
}
