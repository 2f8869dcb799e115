//! Jobs over files of SQLite: the examples, and a job that is killed at any moment and goes on. `DATABASE_KILLS`
//! says how often.

use std::path::Path;
use std::process::Command;

use rusqlite::Connection;

use super::examples::Database;
use super::{large_and_small, same_rows, wanted};
use crate::crash::Random;
use crate::harness::{Kills, Scratch, finish, text, tidemill};

/// A number that a statement gives.
#[track_caller]
fn number(file: &str, sql: &str) -> i64 {
    let connection = Connection::open(file).expect("the database");
    connection.query_row(sql, [], |row| row.get(0)).expect(sql)
}

/// Rows of a query as texts, in its order.
#[track_caller]
fn rows(file: &str, sql: &str) -> Vec<String> {
    let connection = Connection::open(file).expect("the database");
    let mut statement = connection.prepare(sql).expect(sql);
    let found = statement.query_map([], |row| row.get(0)).expect(sql);
    found.map(|row| row.expect("a text")).collect()
}

#[track_caller]
fn succeeds(command: &mut Command) -> String {
    let output = finish(command);
    assert!(output.status.success(), "{command:?}\n{}", text(&output));
    text(&output)
}

#[test]
fn the_examples_run() {
    let scratch = Scratch::new("sqlite-examples");
    let file = scratch.at("events.db");
    let run = |sql: &str| Connection::open(&file).and_then(|c| c.execute_batch(sql)).expect(sql);
    Database { defines: vec![format!("URL=jdbc:sqlite:{file}")], number: &|sql| number(&file, sql), run: &run }.check();
}

#[test]
fn tables_are_read_and_looked_up() {
    let scratch = Scratch::new("sqlite-read");
    let file = scratch.at("shop.db");
    let tables = "CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT); INSERT INTO customers VALUES (1, 'anna'), (2, 'bert');
                  CREATE TABLE orders (id BIGINT, customer BIGINT, amount DECIMAL(10, 2));
                  INSERT INTO orders VALUES (1, 1, 12.5), (2, 2, 7), (3, 9, 1.25), (4, NULL, 0)";
    Connection::open(&file).and_then(|c| c.execute_batch(tables)).expect("tables");
    let with = |table: &str, more: &str| format!("WITH ('connector' = 'jdbc', 'url' = 'sqlite:{file}', 'table-name' = '{table}'{more})");
    let job = scratch.write(
        "job.sql",
        format!(
            "CREATE TABLE orders (id BIGINT, customer BIGINT, amount DECIMAL(10, 2), pt AS PROCTIME()) {};
             CREATE TABLE customers (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) {};
             CREATE TABLE s (id BIGINT, name STRING, amount DECIMAL(10, 2)) WITH ('connector' = 'print');
             INSERT INTO s SELECT o.id, c.name, o.amount FROM orders AS o
             LEFT JOIN customers FOR SYSTEM_TIME AS OF o.pt AS c ON c.id = o.customer;",
            with("orders", ", 'scan.partition.column' = 'id', 'scan.partition.num' = '2'"),
            with("customers", ", 'lookup.cache' = 'PARTIAL', 'lookup.partial-cache.max-rows' = '10'"),
        ),
    );
    let output = succeeds(tidemill().args(["run", &job, "--quiet", "--parallelism", "1"]));
    let mut lines: Vec<&str> = output.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["+I[1, anna, 12.50]", "+I[2, bert, 7.00]", "+I[3, null, 1.25]", "+I[4, null, 0.00]"]);
}

/// Rows of the job below, of a kilobyte each.
pub const ROWS: i64 = 60_000;
/// Keys of its sums, of which a few may not come.
pub const KEYS: i64 = 20_000;

/// A job with both kinds of sinks in files of a store, `sqlite` or `duckdb`: rows appended, and sums by key.
pub fn job(scratch: &Scratch, store: &str) -> String {
    let with = |table: &str, file: &str| {
        format!("WITH ('connector' = 'jdbc', 'url' = 'jdbc:{store}:${{{file}}}', 'table-name' = '{table}', 'sink.create-table' = 'true')")
    };
    scratch.write(
        "job.sql",
        format!(
            "CREATE TABLE made_up (id BIGINT, k INT, v BIGINT, t STRING) WITH ('connector' = 'datagen', 'rows-per-second' = '100000',
               'splits' = '2', 'fields.id.kind' = 'sequence', 'fields.id.start' = '0', 'fields.id.end' = '{}',
               'fields.k.min' = '0', 'fields.k.max' = '{}', 'fields.v.min' = '-1000', 'fields.v.max' = '1000', 'fields.t.length' = '1000');
             CREATE TABLE events (id BIGINT, k INT, v BIGINT, t STRING) {};
             CREATE TABLE sums (k INT, n BIGINT, v BIGINT, PRIMARY KEY (k) NOT ENFORCED) {};
             EXECUTE STATEMENT SET BEGIN
               INSERT INTO events SELECT id, k, v, t FROM made_up;
               INSERT INTO sums SELECT k, COUNT(*), SUM(v) FROM made_up GROUP BY k;
             END;",
            ROWS - 1,
            KEYS - 1,
            with("events", "FILE"),
            with("sums", "SUMS"),
        ),
    )
}

/// What both tables hold, row by row.
fn content(file: &str, sums: &str) -> [Vec<String>; 2] {
    [
        rows(file, "SELECT id || ' ' || k || ' ' || v || ' ' || t FROM events ORDER BY id"),
        rows(sums, "SELECT k || ' ' || n || ' ' || v FROM sums ORDER BY k"),
    ]
}

fn run(job: &str, file: &str, sums: &str, interval: &str) -> Command {
    let mut command = tidemill();
    command.args(["run", job, "--quiet", "-D", &format!("FILE={file}"), "-D", &format!("SUMS={sums}")]);
    command.args(["--set", &format!("execution.checkpointing.interval={interval}")]);
    command
}

#[test]
fn killed_at_any_moment() {
    let (kills_wanted, seed) = (wanted("DATABASE_KILLS", 5), wanted("DATABASE_SEED", 1984));
    let scratch = Scratch::new("sqlite-kills");
    let (job, reference) = (job(&scratch, "sqlite"), scratch.at("reference.db"));
    succeeds(run(&job, &reference, &reference, "20ms").arg("--state-dir").arg(scratch.path().join("reference")));
    let expect = content(&reference, &reference);
    assert!(expect[0].len() == ROWS as usize && expect[1].len() > KEYS as usize / 2);
    for (large, kills_wanted) in large_and_small(kills_wanted) {
        // Who shares a file with another sink keeps no transaction open.
        let (sums, interval, longest_ms) = if large { ("sums.db", "300ms", 900) } else { ("killed.db", "20ms", 400) };
        let mut kills = Kills::new(kills_wanted, Random(seed));
        while kills.left() {
            let round = Scratch::new("sqlite-kills-round");
            let (state, file, sums) = (round.path().join("state"), round.at("killed.db"), round.at(sums));
            let history = kills.run(&state, longest_ms, |random| {
                let mut command = run(&job, &file, &sums, interval);
                let shards = 1 + random.below(3);
                command.arg("--state-dir").arg(&state).arg("--parallelism").arg(shards.to_string());
                (command, format!("seed {seed}, parallelism {shards}, a checkpoint each {interval}"))
            });
            for (name, (found, expect)) in ["events", "sums"].iter().zip(content(&file, &sums).iter().zip(&expect)) {
                same_rows(name, found, expect, &history.join("; "));
            }
            let left = std::fs::read_dir(Path::new(&state).join("sinks")).map_or(0, Iterator::count);
            assert_eq!(left, 0, "files of committed rows are left after {history:#?}");
        }
    }
}
