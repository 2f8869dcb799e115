//! Where scans begin and end: at times, at offsets, and where a group has come to.

use std::ops::Range;

use tidemill_block::clock::wall_ms;

use super::broker::Broker;
use super::client::Client;
use super::{ALL, ORDERS, endless, ids, orders, rows, run, shown, table};
use crate::failures::expect;
use crate::harness::{Background, Scratch, tidemill, wait_for};

/// The numbers of orders that a scan with these options gives.
fn scanned(broker: &Broker, scratch: &Scratch, topic: &str, options: &str) -> Vec<String> {
    let columns = ORDERS.trim_matches(['(', ')']);
    let source = table(broker, "orders", columns, topic, &format!("'format' = 'json', {options}"));
    rows(scratch, &format!("{source}{}INSERT INTO shown SELECT id FROM orders;\n", shown("id BIGINT")))
}

fn numbers(range: Range<i64>) -> Vec<String> {
    range.map(|n| n.to_string()).collect()
}

pub fn at_times_and_offsets(broker: &Broker, client: &Client) {
    let scratch = Scratch::new("kafka-starts");
    client.create("starts", 1);
    // A second apart. Brokers take no times that are far ahead, and give up what is old.
    let base = wall_ms() - 60_000;
    client.produce_at("starts", |n| base + 1000 * n as i64, &orders(0, 10));
    let check = |options: &str, expect: Range<i64>| {
        for reads in ["direct", "librdkafka"] {
            let found = scanned(broker, &scratch, "starts", &format!("{options}, 'scan.client' = '{reads}'"));
            assert_eq!(found, numbers(expect.clone()), "{options}, {reads}");
        }
    };
    let at = |mode: &str, seconds: i64| {
        let ms = base + 1000 * seconds - 1;
        format!("'scan.{mode}.mode' = 'timestamp', 'scan.{mode}.timestamp-millis' = '{ms}'")
    };
    let offset = |mode: &str, offset: i64| {
        format!("'scan.{mode}.mode' = 'specific-offsets', 'scan.{mode}.specific-offsets' = 'partition:0,offset:{offset}'")
    };
    check(ALL, 0..10);
    check(&format!("{}, {}", at("startup", 4), at("bounded", 8)), 4..8);
    check(&format!("{}, {}", offset("startup", 3), offset("bounded", 6)), 3..6);
    check(&format!("'scan.startup.mode' = 'earliest-offset', {}", at("bounded", 2)), 0..2);
    // Nothing is so new.
    check(&format!("{}, 'scan.bounded.mode' = 'latest-offset'", at("startup", 50)), 0..0);
    check("'scan.startup.mode' = 'latest-offset', 'scan.bounded.mode' = 'latest-offset'", 0..0);
}

pub fn where_the_group_has_committed(broker: &Broker, client: &Client) {
    let scratch = Scratch::new("kafka-group-start");
    client.create("group-start", 1);
    client.create("group-start-out", 1);
    client.produce("group-start", &orders(0, 10));
    let job = endless(broker, "group-start", "group-start-out", ", 'properties.group.id' = 'starters'");
    let job = scratch.write("endless.sql", format!("SET 'execution.checkpointing.interval' = '100 ms';\n{job}"));
    let process = Background::start(tidemill().args(["run", &job, "--quiet", "--parallelism", "1"]));
    wait_for("the rows", || ids(client, "group-start-out").len() == 10);
    wait_for("the group's offset", || client.committed("starters", "group-start") == Some(10));
    // Killed; what the group has committed stays.
    drop(process);
    client.produce("group-start", &orders(10, 15));
    let group = |name: &str| format!("'properties.group.id' = '{name}', 'scan.bounded.mode' = 'latest-offset'");
    assert_eq!(scanned(broker, &scratch, "group-start", &group("starters")), numbers(10..15), "group-offsets is the default");
    let source = table(broker, "orders", "id BIGINT", "group-start", &format!("'format' = 'json', {}", group("strangers")));
    let nobody = format!("{source}{}INSERT INTO shown SELECT id FROM orders;\n", shown("id BIGINT"));
    expect(&run(&scratch, &nobody, &[]), 1, &["table 'orders'", "group-start:0", "the group has committed no offset", "earliest-offset"]);
}
