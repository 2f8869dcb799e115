//! Every format of messages there and back, a registry of schemas, and what stands beside the values of messages.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use serde_json::{Value, json};
use tidemill_block::clock::wall_ms;

use super::broker::Broker;
use super::client::Client;
use super::{ALL, ORDERS, orders, rows, run, shown, succeeds, table, with};
use crate::harness::Scratch;

/// A schema registry of a few lines, which gives schemas numbers; its address.
fn registry() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    std::thread::spawn(move || {
        let mut schemas = Vec::new();
        for stream in listener.incoming().map_while(Result::ok) {
            // Who asks for something else gets no answer.
            let _ = answer(&stream, &mut schemas);
        }
    });
    url
}

/// Answers the one request of a connection.
fn answer(mut stream: &TcpStream, schemas: &mut Vec<String>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let (mut first, mut length) = (String::new(), 0usize);
    reader.read_line(&mut first).ok()?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(bytes) = line.strip_prefix("content-length:") {
            length = bytes.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let said = if let Some(rest) = first.strip_prefix("GET /schemas/ids/") {
        let id: usize = rest.split(' ').next()?.parse().ok()?;
        json!({ "schema": schemas.get(id.checked_sub(1)?)? })
    } else {
        let given: Value = serde_json::from_slice(&body).ok()?;
        let schema = given["schema"].as_str()?.to_string();
        let at = schemas.iter().position(|known| *known == schema).unwrap_or(schemas.len());
        if at == schemas.len() {
            schemas.push(schema);
        }
        json!({ "id": at + 1 })
    };
    let said = said.to_string();
    let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{said}", said.len());
    stream.write_all(text.as_bytes()).ok()
}

pub fn there_and_back(broker: &Broker, client: &Client) {
    let url = registry();
    let confluent = format!(
        "'key.format' = 'avro-confluent', 'key.avro-confluent.url' = '{url}', 'key.fields' = 'id', \
         'value.format' = 'avro-confluent', 'value.avro-confluent.url' = '{url}'"
    );
    let several = "id BIGINT, name STRING, price DOUBLE";
    let values = "(1, 'one', 1.5e0), (2, 'two', 2.25e0)";
    let cases = [
        ("json", "'format' = 'json'", several, values),
        ("csv", "'format' = 'csv'", several, values),
        ("avro", "'format' = 'avro'", several, values),
        ("confluent", confluent.as_str(), several, values),
        ("raw", "'format' = 'raw'", "line STRING", "('a line'), ('another')"),
    ];
    for (name, format, columns, values) in cases {
        let scratch = Scratch::new(&format!("kafka-format-{name}"));
        let topic = format!("format-{name}");
        client.create(&topic, 1);
        let write = format!("{}INSERT INTO t VALUES {values};\n", table(broker, "t", columns, &topic, format));
        succeeds(&run(&scratch, &write, &[]));
        let read = format!(
            "{}{}INSERT INTO shown SELECT * FROM t;\n",
            table(broker, "t", columns, &topic, &format!("{format}, {ALL}")),
            shown(columns)
        );
        let expect = if name == "raw" { ["a line", "another"] } else { ["1, one, 1.5", "2, two, 2.25"] };
        assert_eq!(rows(&scratch, &read), expect, "{name}");
    }
}

/// A table of totals as changes in Debezium's form: who reads them has the totals again.
pub fn changes(broker: &Broker, client: &Client) {
    let scratch = Scratch::new("kafka-changes");
    client.create("changes-in", 1);
    // One partition, since changes of a row must stay in order.
    client.create("changes", 1);
    client.produce("changes-in", &orders(0, 100));
    let totals = |options: &str| table(broker, "totals", "customer STRING, total BIGINT", "changes", options);
    let write = format!(
        "CREATE TABLE orders {ORDERS} {};\n{}INSERT INTO totals SELECT customer, SUM(amount) FROM orders GROUP BY customer;\n",
        with(&broker.servers(), "changes-in", super::BOUNDED),
        totals("'format' = 'debezium-json'"),
    );
    succeeds(&run(&scratch, &write, &["--parallelism", "1"]));
    let read = format!(
        "{}{}INSERT INTO shown SELECT * FROM totals;\n",
        totals(&format!("'format' = 'debezium-json', {ALL}")),
        shown("customer STRING, total BIGINT")
    );
    let total = |c: i64| (0..100).filter(|n| n % 7 == c).map(|n| n % 50).sum::<i64>();
    let expect: Vec<String> = (0..7).map(|c| format!("c{c}, {}", total(c))).collect();
    assert_eq!(rows(&scratch, &read), expect);
}

/// A job that copies messages keeps their times and headers, whoever fetches them.
pub fn times_and_headers(broker: &Broker, client: &Client) {
    let columns = "id BIGINT, h MAP<STRING, BYTES> METADATA FROM 'headers', ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp'";
    let base = wall_ms() - 60_000;
    client.create("marked-in", 1);
    client.produce_at("marked-in", |n| base + 1000 * n as i64, &orders(0, 5));
    for reads in ["direct", "librdkafka"] {
        let scratch = Scratch::new(&format!("kafka-marked-{reads}"));
        let to = format!("marked-out-{reads}");
        client.create(&to, 1);
        let read = table(broker, "a", columns, "marked-in", &format!("'format' = 'json', {ALL}, 'scan.client' = '{reads}'"));
        let sql = format!("{read}{}INSERT INTO b SELECT id, h, ts FROM a;\n", table(broker, "b", columns, &to, "'format' = 'json'"));
        succeeds(&run(&scratch, &sql, &["--parallelism", "1"]));
        let expect: Vec<(i64, String)> = (0..5).map(|n| (base + 1000 * n, format!("n {n}"))).collect();
        assert_eq!(client.marks(&to), expect, "{reads}");
    }
}
