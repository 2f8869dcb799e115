//! The connectors `jdbc` and `postgres-cdc` against a real PostgreSQL. Where the Debian package is missing, this is said and the
//! tests do not run.
//!
//! - [`server`]: a server of a test's own
//! - [`kills`]: jobs and servers killed at any moment
//! - [`changes`]: tables that are followed
//! - [`waits`]: a server that lets jobs wait

mod changes;
mod kills;
pub mod server;
mod waits;

use std::process::Output;
use std::time::Duration;

use server::{PASSWORD, Server};

use crate::databases::altered::Altered;
use crate::databases::examples::Database;
use crate::databases::polled::Polled;
use crate::databases::types;
use crate::failures::expect;
use crate::harness::{Scratch, finish, fold, sink_lines, text, tidemill, wait_for};

fn run(scratch: &Scratch, sql: &str, more: &[&str]) -> Output {
    let job = scratch.write("job.sql", sql);
    finish(tidemill().args(["run", &job, "--quiet"]).args(more))
}

#[track_caller]
fn succeeds(output: &Output) {
    assert!(output.status.success(), "{}", text(output));
}

/// Numbers 0 to `n` − 1, as fast as they can be made.
fn numbers(n: u64) -> String {
    format!(
        "CREATE TABLE numbers (id BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '{n}', 'rows-per-second' = '0',\n\
         'fields.id.kind' = 'sequence', 'fields.id.start' = '0', 'fields.id.end' = '{}');\n",
        n - 1
    )
}

/// One server serves these one after the other: starting one takes longer than most of them.
#[test]
fn jobs_over_postgres() {
    let Some(mut server) = Server::start("postgres-jobs") else { return };
    the_examples_run(&server);
    rows_are_appended(&server);
    rows_of_a_key_are_updated_and_deleted(&server);
    every_type_goes_both_ways(&server);
    tables_are_created_with_every_type(&server);
    made_up_values_come_back(&server);
    tables_are_read_in_parts(&server);
    scans_without_a_key_go_on(&server);
    tables_are_polled(&server);
    tables_are_looked_up(&server);
    refused_rows(&server);
    values_that_do_not_fit_here(&server);
    locks(&server);
    waits::a_failed_job_leaves_statements_that_wait(&server);
    waits::a_server_that_stands_still_holds_the_job_back(&server);
    tables_are_altered(&server);
    a_full_disk_is_said(&server);
    connections_are_encrypted(&server);
    what_is_wrong_is_said(&server);
    // The last, since it ends the server.
    a_server_that_is_missing(&mut server);
}

fn the_examples_run(server: &Server) {
    let number = |sql: &str| server.rows(sql)[0].parse::<i64>().expect(sql);
    Database { defines: server.defines(), number: &number, run: &|sql| drop(server.rows(sql)) }.check();
}

fn rows_are_appended(server: &Server) {
    let scratch = Scratch::new("postgres-append");
    let sink = format!("{}, 'sink.create-table' = 'true'", server.options("public.appended"));
    let sql = format!(
        "{}CREATE TABLE appended (id BIGINT, name STRING) WITH ({sink});\n\
         INSERT INTO appended SELECT id, CASE WHEN MOD(id, 3) = 0 THEN CAST(NULL AS STRING) ELSE CONCAT('n', CAST(id AS STRING)) END \
         FROM numbers;\n",
        numbers(50_000)
    );
    let state = scratch.at("state");
    for more in [&["--parallelism", "1"][..], &["--parallelism", "2", "--state-dir", &state]] {
        server.rows("DROP TABLE IF EXISTS appended");
        succeeds(&run(&scratch, &sql, more));
        let found = server.rows("SELECT count(*), count(DISTINCT id), sum(id), count(name), max(name) FROM appended");
        assert_eq!(found, ["50000,50000,1249975000,33333,n9998"], "{more:?}");
    }
}

fn rows_of_a_key_are_updated_and_deleted(server: &Server) {
    let scratch = Scratch::new("postgres-upsert");
    // A mixed-case name, a table in a schema, and a trigger that sees to it that nothing is inserted twice.
    server.rows("CREATE SCHEMA s; CREATE TABLE s.\"Totals\" (k bigint PRIMARY KEY, \"Total\" numeric(20, 0), n int NOT NULL, note text)");
    server.rows("INSERT INTO s.\"Totals\" VALUES (3, 0, 0, 'kept'), (99, 1, 1, 'other')");
    let sink = server.options("s.Totals");
    let sql = format!(
        "{}CREATE TABLE totals (`Total` DECIMAL(20, 0), k BIGINT, n INT, PRIMARY KEY (k) NOT ENFORCED) WITH ({sink});\n\
         INSERT INTO totals SELECT CAST(SUM(id) AS DECIMAL(20, 0)), MOD(id, 100), CAST(COUNT(*) AS INT) FROM numbers \
         GROUP BY MOD(id, 100) HAVING COUNT(*) < 200 OR MOD(id, 100) <> 7;\n",
        numbers(20_000)
    );
    for more in [["--parallelism", "1"], ["--parallelism", "2"]] {
        succeeds(&run(&scratch, &sql, &more));
        // Group 7 reached 200 rows, so its row is gone; the row of 99 was replaced, and what is not ours stays.
        let found = server.rows("SELECT count(*), sum(\"Total\"), sum(n), min(note), max(note) FROM s.\"Totals\"");
        let total: u64 = (0..20_000).filter(|n| n % 100 != 7).sum();
        assert_eq!(found, [format!("99,{total},{},kept,other", 99 * 200)], "{more:?}");
    }
}

/// Every type with its extremes; columns of which the job knows STRING only are cast by the server.
const TYPES: &str = "id int PRIMARY KEY, b boolean, i2 smallint, i4 integer, i8 bigint, f4 real, f8 double precision, \
     n numeric(38, 10), n0 numeric(20, 0), t text, v varchar(10), c char(4), y bytea, d date, h time(3), s timestamp(6), z timestamptz(6), \
     u uuid, js json, jb jsonb, bi bit(5), vb varbit, iv interval, ip inet, ai integer[], at text[], an numeric(10, 2)[], m mood, \
     iva interval[], big numeric";

const COLUMNS: &str = "id INT, b BOOLEAN, i2 SMALLINT, i4 INT, i8 BIGINT, f4 FLOAT, f8 DOUBLE, n DECIMAL(38, 10), n0 DECIMAL(20, 0), \
     t STRING, v STRING, c STRING, y BYTES, d DATE, h TIME, s TIMESTAMP(6), z TIMESTAMP_LTZ(6), u STRING, js STRING, jb STRING, bi STRING, \
     vb STRING, iv STRING, ip STRING, ai ARRAY<INT>, `at` ARRAY<STRING>, an ARRAY<DECIMAL(10, 2)>, m STRING, iva ARRAY<STRING>, \
     big DECIMAL(38, 0), PRIMARY KEY (id) NOT ENFORCED";

fn every_type_goes_both_ways(server: &Server) {
    let scratch = Scratch::new("postgres-types");
    server.rows("CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')");
    server.rows(&format!("CREATE TABLE types_in ({TYPES}); CREATE TABLE types_out ({TYPES})"));
    server.rows(
        "INSERT INTO types_in VALUES \
         (1, true, 32767, 2147483647, 9223372036854775807, '3.4028235e38', '1.7976931348623157e308', \
          9999999999999999999999999999.9999999999, 99999999999999999999, 'plain', '0123456789', 'abcd', '\\x00ff10', '5874897-12-31', \
          '23:59:59.999', '294246-12-31 23:59:59.999999', '294246-12-31 23:59:59.999999+00', 'ffffffff-ffff-ffff-ffff-ffffffffffff', \
          '{\"a\": [1, 2.50, null]}', '{\"b\": \"\\u00e4\"}', B'10101', B'1100110011001', '178956970 years', '255.255.255.255/8', \
          '{1,NULL,-3}', '{\"a,b\",\"\\\"q\\\"\",NULL,\"\"}', '{1.50,-99999999.99}', 'happy', '{1 day,02:00:00}', \
          99999999999999999999999999999999999999), \
         (2, false, -32768, -2147483648, -9223372036854775808, '1.4e-45', '5e-324', \
          -9999999999999999999999999999.9999999999, -99999999999999999999, '', '', '', '', '4713-01-01 BC', \
          '00:00', '4713-01-01 00:00:00 BC', '4713-01-01 00:00:00+00 BC', '00000000-0000-0000-0000-000000000000', \
          'null', '[]', B'00000', B'', '-178956970 years', '::1', '{}', '{}', '{}', 'sad', '{}', \
          -99999999999999999999999999999999999999), \
         (3, NULL, 0, 0, 0, 'Infinity', '-Infinity', 0.0000000001, 0, \
          E'\\U0001D11E four bytes, \\'quotes\\' \\\\ and\\n\\t\\r', E'\\U0001F600\\U0001F600', 'x', '\\xdeadbeef', '1970-01-01', \
          '12:00:00.5', '1969-12-31 23:59:59.999999', '2013-10-27 02:30:00+02', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', \
          '{\"k\" : \"line\\nend\"}', '{\"n\": 1e400}', B'11111', B'1', '1 mon -3 days 04:05:06.789', '10.0.0.1', '{0}', '{x}', '{0.00}', \
          'ok', '{1 mon}', 12345678901234567890), \
         (4, NULL, NULL, NULL, NULL, 'NaN', 'NaN', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
          NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), \
         (5, NULL, NULL, NULL, NULL, '-0', '-0', 1.5, 10000, 'last', NULL, NULL, NULL, '2000-01-01', '00:00:00.001', '2000-01-01', \
          '2000-01-01 00:00:00.000001+00', NULL, NULL, NULL, NULL, NULL, '1 year', NULL, NULL, '{NULL}', NULL, NULL, NULL, 10000)",
    );
    let source = COLUMNS.replace("iva ARRAY<STRING>", "iva STRING").replace(", PRIMARY KEY (id) NOT ENFORCED", "");
    let sql = |columns: &str| {
        format!(
            "CREATE TABLE types_in ({source}) WITH ({});\nCREATE TABLE types_out ({columns}) WITH ({});\n\
             INSERT INTO types_out SELECT * FROM types_in;\n",
            server.options("types_in"),
            server.options("types_out")
        )
    };
    // Both ways in: upserts through the temporary table, and appended rows.
    let upserts = COLUMNS.replace("iva ARRAY<STRING>", "iva STRING");
    for columns in [upserts.as_str(), &source] {
        server.rows("TRUNCATE types_out");
        // An interval[] out of STRING is cast as a whole.
        succeeds(&run(&scratch, &sql(columns), &["--parallelism", "1"]));
        let rows = |table: &str| server.rows(&format!("SELECT whole FROM {table} whole ORDER BY id"));
        assert_eq!(rows("types_out"), rows("types_in"));
        let bits = "SELECT f4 = '-0' AND f4::text = '-0' AND f8::text = '-0' FROM types_out WHERE id = 5";
        assert_eq!(server.rows(bits), ["t"]);
    }
    // An array of STRING into an array of what the server casts.
    server.rows("CREATE TABLE spans (id int, iva interval[])");
    let spans = format!(
        "CREATE TABLE spans (id INT, iva ARRAY<STRING>) WITH ({});\nINSERT INTO spans VALUES (1, ARRAY['1 day', '2 hours']);\n",
        server.options("spans")
    );
    succeeds(&run(&scratch, &spans, &[]));
    assert_eq!(server.rows("SELECT iva FROM spans"), ["{\"1 day\",02:00:00}"]);
}

fn tables_are_created_with_every_type(server: &Server) {
    let scratch = Scratch::new("postgres-created");
    let columns = "b BOOLEAN, i1 TINYINT, i2 SMALLINT, i4 INT, i8 BIGINT, f4 FLOAT, f8 DOUBLE, n DECIMAL(38, 18), t STRING, y BYTES, \
        d DATE, h TIME, s3 TIMESTAMP(3), s6 TIMESTAMP(6), z3 TIMESTAMP_LTZ(3), a ARRAY<INT>, r ROW<x INT, y STRING>, mp MAP<STRING, INT>";
    let created = |name: &str| format!("CREATE TABLE {name} ({columns}) WITH ({}, 'sink.create-table' = 'true');\n", server.options(name));
    let line = r#"{"b":true,"i1":-128,"i2":7,"i4":8,"i8":9,"f4":0.5,"f8":0.25,
        "n":12345678901234567890.123456789012345678,"t":"ä","y":"Ynk=","d":"2024-02-29","h":"12:34:56",
        "s3":"2024-02-29 01:02:03.004","s6":"2024-02-29 01:02:03.000005","z3":"2023-11-14 22:13:20.123Z",
        "a":[1,2],"r":{"x":1,"y":"in"},"mp":{"k":5}}"#;
    let one = scratch.write("one.json", line.replace('\n', " "));
    let write = format!(
        "CREATE TABLE one ({columns}) WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = '{one}');\n\
         {}INSERT INTO made SELECT * FROM one;\n",
        created("made")
    );
    succeeds(&run(&scratch, &write, &[]));
    let types = server.rows(
        "SELECT string_agg(format_type(atttypid, atttypmod), ';' ORDER BY attnum) FROM pg_attribute \
         WHERE attrelid = 'made'::regclass AND attnum > 0",
    );
    assert_eq!(
        types,
        ["boolean;smallint;smallint;integer;bigint;real;double precision;numeric(38,18);text;bytea;date;time(3) without time zone;\
          timestamp(3) without time zone;timestamp(6) without time zone;timestamp(3) with time zone;integer[];jsonb;jsonb"]
    );
    let copy = format!("{}{}INSERT INTO made_again SELECT * FROM made;\n", created("made"), created("made_again"));
    succeeds(&run(&scratch, &copy, &[]));
    assert_eq!(server.rows("SELECT whole FROM made_again whole"), server.rows("SELECT whole FROM made whole"));
    let expected = "(t,-128,7,8,9,0.5,0.25,12345678901234567890.123456789012345678,ä,\"\\\\x6279\",2024-02-29,12:34:56,\
        \"2024-02-29 01:02:03.004\",\"2024-02-29 01:02:03.000005\",\"2023-11-14 22:13:20.123+00\",\"{1,2}\",\
        \"{\"\"x\"\": 1, \"\"y\"\": \"\"in\"\"}\",\"{\"\"k\"\": 5}\")";
    assert_eq!(server.rows("SELECT whole FROM made whole"), [expected]);
}

fn made_up_values_come_back(server: &Server) {
    let with = format!("WITH ({}, 'sink.create-table' = 'true')", server.options("types_made_up"));
    types::check(&Scratch::new("postgres-made-up"), &with, 60);
    types::check_nested(&Scratch::new("postgres-nested"), &with.replace("types_made_up", "types_nested"));
    types::check_nanoseconds(&Scratch::new("postgres-nanoseconds"), &with.replace("types_made_up", "types_nanoseconds"));
    types::check_keys(&|table| format!("WITH ({}, 'sink.create-table' = 'true')", server.options(table)));
}

fn tables_are_read_in_parts(server: &Server) {
    let scratch = Scratch::new("postgres-scan");
    server.rows(
        "CREATE TABLE parts AS SELECT n AS id, n % 10 AS k, 'row ' || n AS name FROM generate_series(1, 30000) n; \
         INSERT INTO parts VALUES (NULL, 1, 'without a number')",
    );
    let read = |more: &str| {
        format!(
            "CREATE TABLE parts (id INT, k INT, name STRING) WITH ({}{more});\n\
             CREATE TABLE found (n BIGINT, total BIGINT, longest BIGINT)\n\
             WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{}');\n\
             INSERT INTO found SELECT COUNT(*), SUM(CAST(id AS BIGINT)), MAX(CAST(CHAR_LENGTH(name) AS BIGINT)) FROM parts;\n",
            server.options("parts"),
            scratch.at("found")
        )
    };
    for more in ["", ", 'scan.partition.column' = 'id', 'scan.partition.num' = '4'", ", 'scan.fetch-size' = '100'"] {
        let _ = std::fs::remove_dir_all(scratch.path().join("found"));
        succeeds(&run(&scratch, &read(more), &["--parallelism", "2", "--set", "execution.runtime-mode=batch"]));
        let found = sink_lines(&scratch.path().join("found"));
        assert_eq!(found, ["30001,450015000,16"], "{more}");
    }
}

/// Rows that are counted must come in the same order again. Of a table of more than a quarter of its buffers a server begins a scan
/// where another one is, or was: rows came twice, and others not at all.
fn scans_without_a_key_go_on(server: &Server) {
    const ROWS: u64 = 500_000;
    let scratch = Scratch::new("postgres-goes-on");
    server.rows(&format!(
        "CREATE TABLE unkeyed AS SELECT n AS id, repeat(md5(n::text), 3) AS name FROM generate_series(1, {ROWS}) n; \
         CREATE TABLE went_on (id int, name text)"
    ));
    let sql = format!(
        "CREATE TABLE unkeyed (id INT, name STRING) WITH ({});\n\
         CREATE TABLE went_on (id INT, name STRING) WITH ({}, 'sink.buffer-flush.max-bytes' = '1 mb');\n\
         INSERT INTO went_on SELECT * FROM unkeyed;\n",
        server.options("unkeyed"),
        server.options("went_on")
    );
    // Leaves a scan in the middle.
    let half = format!("SET max_parallel_workers_per_gather = 0; SELECT count(*) FROM (SELECT id FROM unkeyed LIMIT {}) t", ROWS / 2);
    let same = |what: &str| {
        let right = "bool_and(name = repeat(md5(id::text), 3))";
        let found = server.rows(&format!("SELECT count(*), count(DISTINCT id), min(id), max(id), {right} FROM went_on"));
        assert_eq!(found, [format!("{ROWS},{ROWS},1,{ROWS},t")], "{what}");
        server.rows("TRUNCATE went_on");
    };
    // The job is gone, and goes on from its checkpoint.
    let state = scratch.at("state");
    let more = ["--parallelism", "1", "--state-dir", &state, "--set", "block.size=1000"];
    let crash = ["--set", "debug.checkpoint-blocks=10", "--set", "debug.abort-after-checkpoints=1"];
    let output = run(&scratch, &sql, &[&more[..], &crash[..]].concat());
    assert_eq!(output.status.code(), Some(137), "{}", text(&output));
    server.rows(&half);
    succeeds(&run(&scratch, &sql, &more));
    same("killed");
    // The connection is gone: the sink waits for a lock, so that the scan is in its middle.
    let other = server.beside("BEGIN; LOCK TABLE went_on IN EXCLUSIVE MODE; SELECT pg_sleep(600)");
    let held = "SELECT count(*) FROM pg_locks WHERE relation = 'went_on'::regclass AND granted AND mode = 'ExclusiveLock'";
    wait_for("the lock", || server.rows(held) != ["0"]);
    let job = scratch.write("disconnected.sql", sql);
    let output = std::thread::scope(|scope| {
        let running = scope.spawn(|| finish(tidemill().args(["run", &job, "--quiet", "--parallelism", "1"])));
        let reading = "wait_event = 'ClientWrite' AND query LIKE '%FROM \"unkeyed\"%'";
        let ended = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {reading}");
        wait_for("a scan that waits", || server.rows(&ended) == ["t"]);
        server.rows(&half);
        let holding = "query LIKE '%LOCK TABLE went_on%' AND pid <> pg_backend_pid()";
        server.rows(&format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {holding}"));
        running.join().expect("the job")
    });
    succeeds(&output);
    drop(other);
    same("disconnected");
    server.rows("DROP TABLE unkeyed, went_on");
}

fn tables_are_polled(server: &Server) {
    let number = |sql: &str| server.rows(sql)[0].parse::<i64>().expect(sql);
    let with = |table: &str, more: &str| format!("WITH ({}{more})", server.options(table));
    Polled { with: &with, timestamp: "timestamp(3)", run: &|sql| drop(server.rows(sql)), number: &number }.check();
}

fn tables_are_looked_up(server: &Server) {
    let scratch = Scratch::new("postgres-lookup");
    server.rows(
        "CREATE TABLE names (id int PRIMARY KEY, area text, name varchar(10), extra inet); \
         INSERT INTO names SELECT n, 'a' || n % 2, 'name ' || n, '10.0.0.1' FROM generate_series(0, 99, 2) n",
    );
    // A key that no integer column could hold is not an error: nothing has it.
    let sql = |on: &str| {
        format!(
            "CREATE TABLE asked (id BIGINT, pt AS PROCTIME(), area AS CONCAT('a', CAST(MOD(id, 2) AS STRING)))\n\
             WITH ('connector' = 'datagen', 'number-of-rows' = '200', 'rows-per-second' = '0',\n\
             'fields.id.kind' = 'sequence', 'fields.id.start' = '0', 'fields.id.end' = '199');\n\
             CREATE TABLE names (id BIGINT, area STRING, name STRING, extra STRING) WITH ({});\n\
             CREATE TABLE shown (id BIGINT, name STRING, extra STRING) WITH ('connector' = 'print', 'print-identifier' = 'shown');\n\
             INSERT INTO shown SELECT e.id, n.name, n.extra FROM asked AS e JOIN names FOR SYSTEM_TIME AS OF e.pt AS n ON {on};\n",
            server.options("names")
        )
    };
    for on in ["n.id = e.id", "n.id = e.id AND n.area = e.area", "n.id = e.id * 1", "n.id = e.id AND n.name <> 'x'"] {
        let output = run(&scratch, &sql(on), &["--parallelism", "1"]);
        succeeds(&output);
        let mut expected: Vec<String> = (0..100).step_by(2).map(|n| format!("{n}, name {n}, 10.0.0.1/32")).collect();
        expected.sort();
        assert_eq!(fold(&String::from_utf8_lossy(&output.stdout), "shown"), expected, "{on}");
    }
    let output = run(&scratch, &sql("n.id = e.id + 3000000000"), &["--parallelism", "1"]);
    succeeds(&output);
    assert!(fold(&String::from_utf8_lossy(&output.stdout), "shown").is_empty());
}

fn refused_rows(server: &Server) {
    let scratch = Scratch::new("postgres-refused");
    server.rows("CREATE TABLE refused (id int, name varchar(6) UNIQUE, CHECK (id <> 40))");
    let sql = |more: &str| {
        format!(
            "{}CREATE TABLE refused (id BIGINT, name STRING) WITH ({}{more});\n\
             INSERT INTO refused SELECT CASE WHEN id = 50 THEN 5000000000 ELSE id END, CASE WHEN id = 20 THEN 'n-10' \
             WHEN id = 30 THEN 'too long' ELSE CONCAT('n-', CAST(id AS STRING)) END FROM numbers;\n",
            numbers(1_000),
            server.options("refused")
        )
    };
    let found = "SELECT count(*), sum(id) FROM refused";
    let state = scratch.at("state");
    let whole: i64 = (0..1_000).sum::<i64>() - 20 - 30 - 40 - 50;
    let output = run(&scratch, &sql(""), &["--parallelism", "1"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(["n-10", "too long", "40", "5000000000"].iter().any(|v| text(&output).contains(v)), "{}", text(&output));
    for more in [&["--parallelism", "1"][..], &["--parallelism", "1", "--state-dir", &state]] {
        server.rows("TRUNCATE refused");
        let output = run(&scratch, &sql(", 'sink.on-error' = 'skip'"), more);
        succeeds(&output);
        assert!(text(&output).contains("4 rows were refused by the database and passed over"), "{}", text(&output));
        assert_eq!(server.rows(found), [format!("996,{whole}")], "{more:?}");
    }
    server.rows("TRUNCATE refused");
    let file = scratch.at("dead.jsonl");
    succeeds(&run(&scratch, &sql(&format!(", 'sink.on-error' = 'dead-letter', 'sink.dead-letter' = '{file}'")), &["--parallelism", "1"]));
    assert_eq!(server.rows(found), [format!("996,{whole}")]);
    let dead = std::fs::read_to_string(&file).expect("the dead letters");
    assert_eq!(dead.lines().count(), 4, "{dead}");
    for value in ["n-10", "too long", "40", "5000000000"] {
        assert!(dead.contains(value), "{value} is not in {dead}");
    }
}

fn values_that_do_not_fit_here(server: &Server) {
    let scratch = Scratch::new("postgres-values");
    server.rows(
        "CREATE TABLE far (d date, n numeric, s timestamp, t text); \
         INSERT INTO far VALUES ('infinity', 'NaN', '2000-01-01 00:00:00.123456', 'x')",
    );
    for (column, parts) in [
        ("d DATE", ["column 'd'", "infinity"]),
        ("n DECIMAL(10, 2)", ["column 'n'", "NaN"]),
        ("s TIMESTAMP(3)", ["column 's'", "2000-01-01 00:00:00.123456"]),
        ("t INT", ["column 't' is INT here and text in PostgreSQL", "declare it STRING"]),
    ] {
        let name = column.split(' ').next().expect("a name");
        let sql = format!(
            "CREATE TABLE far ({column}) WITH ({});\n\
             CREATE TABLE shown ({column}) WITH ('connector' = 'print', 'print-identifier' = 'shown');\n\
             INSERT INTO shown SELECT {name} FROM far;\n",
            server.options("far")
        );
        expect(&run(&scratch, &sql, &[]), 1, &parts);
    }
}

fn locks(server: &Server) {
    let scratch = Scratch::new("postgres-locks");
    server.rows("CREATE TABLE locked (id bigint PRIMARY KEY, v int); INSERT INTO locked VALUES (1, 0), (2, 0)");
    let sql = |more: &str, parameters: &str| {
        format!(
            "CREATE TABLE locked (id BIGINT, v INT, PRIMARY KEY (id) NOT ENFORCED) WITH ({}{more});\n\
             INSERT INTO locked VALUES (1, 5), (2, 5);\n",
            server.options_at("127.0.0.1", &format!("ssl-mode=disable&{parameters}"), "locked", PASSWORD)
        )
    };
    let held = "SELECT count(*) FROM pg_locks WHERE relation = 'locked'::regclass AND granted AND mode <> 'AccessShareLock'";
    // Somebody has a row: the job's lock times out, and it tries again as often as it may.
    let impatient = "options=-c%20lock_timeout%3D50ms";
    let other = server.beside("BEGIN; UPDATE locked SET v = 1 WHERE id = 2; SELECT pg_sleep(600); COMMIT");
    wait_for("the lock", || server.rows(held) != ["0"]);
    expect(&run(&scratch, &sql(", 'sink.max-retries' = '1'", impatient), &[]), 1, &["55P03", "sink.max-retries"]);
    let job = scratch.write("patient.sql", sql(", 'sink.max-retries' = '1000'", impatient));
    let output = std::thread::scope(|scope| {
        let running = scope.spawn(|| finish(tidemill().args(["run", &job, "--quiet"])));
        std::thread::sleep(Duration::from_millis(500));
        let theirs = "query LIKE '%pg_sleep(600)%' AND pid <> pg_backend_pid()";
        server.rows(&format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {theirs}"));
        running.join().expect("the job")
    });
    succeeds(&output);
    drop(other);
    assert_eq!(server.rows("SELECT v FROM locked"), ["5", "5"]);
    // Two who wait for each other: one is thrown out, and the job's rows come to the table either way.
    server.rows("UPDATE locked SET v = 0");
    let update = |id: u32| format!("UPDATE locked SET v = 1 WHERE id = {id}");
    let other = server.beside(&format!("BEGIN; {}; SELECT pg_sleep(1); {}; ROLLBACK", update(2), update(1)));
    wait_for("the lock", || server.rows(held) != ["0"]);
    succeeds(&run(&scratch, &sql("", "application-name=deadlock"), &[]));
    assert_eq!(server.rows("SELECT v FROM locked"), ["5", "5"]);
    drop(other);
}

fn tables_are_altered(server: &Server) {
    let number = |sql: &str| server.rows(sql)[0].parse::<i64>().expect(sql);
    let options = server.options("altered");
    Altered { options: &options, run: &|sql| drop(server.rows(sql)), number: &number, change_type: ["ALTER COLUMN", "TYPE"] }.check();
}

/// Played by a trigger, since disks of tests are not full: the server's own code for it. It is no row's fault.
fn a_full_disk_is_said(server: &Server) {
    let scratch = Scratch::new("postgres-full");
    server.rows(
        "CREATE TABLE full_up (id bigint); \
         CREATE FUNCTION full_up() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$; \
         CREATE TRIGGER full_up BEFORE INSERT ON full_up FOR EACH ROW EXECUTE FUNCTION full_up()",
    );
    let options = server.options("full_up");
    let sql = format!("CREATE TABLE t (id BIGINT) WITH ({options}, 'sink.on-error' = 'skip');\nINSERT INTO t VALUES (1);\n");
    expect(&run(&scratch, &sql, &[]), 1, &["53100", "could not extend file", "the server's disk is full"]);
}

fn connections_are_encrypted(server: &Server) {
    if !server.encrypts {
        return;
    }
    let scratch = Scratch::new("postgres-tls");
    server.rows("CREATE VIEW encrypted AS SELECT ssl::text AS ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()");
    let run = |host: &str, parameters: &str| {
        let sql = format!(
            "CREATE TABLE encrypted (ssl STRING) WITH ({});\n\
             CREATE TABLE shown (ssl STRING) WITH ('connector' = 'print', 'print-identifier' = 'shown');\n\
             INSERT INTO shown SELECT ssl FROM encrypted;\n",
            server.options_at(host, parameters, "encrypted", PASSWORD)
        );
        run(&scratch, &sql, &["--parallelism", "1"])
    };
    let (right, wrong) = (format!("ssl-mode=verify-full&ssl-ca={}", server.authority(true)), server.authority(false));
    let wrong = format!("ssl-mode=verify-full&ssl-ca={wrong}");
    let modes = [("127.0.0.1", "", "true"), ("127.0.0.1", "ssl-mode=require", "true"), ("127.0.0.1", "ssl-mode=disable", "false")];
    for (host, parameters, encrypted) in modes.into_iter().chain([("localhost", right.as_str(), "true")]) {
        let output = run(host, parameters);
        succeeds(&output);
        assert_eq!(fold(&String::from_utf8_lossy(&output.stdout), "shown"), [encrypted], "{parameters}");
    }
    // Another authority, and a name that is not in the certificate.
    expect(&run("localhost", &wrong), 1, &["TLS handshake", "ertificate"]);
    expect(&run("127.0.0.1", &right), 1, &["TLS handshake", "ertificate"]);
    a_role_that_wants_tls(server);
}

fn a_role_that_wants_tls(server: &Server) {
    let scratch = Scratch::new("postgres-wants-tls");
    server.rows("CREATE TABLE sealed (id bigint); CREATE ROLE sealed LOGIN PASSWORD 'sealed-4711'; GRANT ALL ON sealed TO sealed");
    let rules = &server.rows("SHOW hba_file")[0];
    server.rows(&format!(
        "CREATE TEMPORARY TABLE rules AS SELECT regexp_split_to_table(pg_read_file('{rules}'), E'\\n') AS rule; \
         COPY (SELECT 'hostnossl all sealed all reject' UNION ALL SELECT rule FROM rules) TO '{rules}'; SELECT pg_reload_conf()"
    ));
    let job = |parameters: &str| {
        let options = server.options_at("127.0.0.1", parameters, "sealed", "sealed-4711").replace("= 'postgres'", "= 'sealed'");
        run(&scratch, &format!("CREATE TABLE sealed (id BIGINT) WITH ({options});\nINSERT INTO sealed VALUES (1);\n"), &[])
    };
    // The server reads its rules when it comes to it.
    wait_for("the rule", || !job("ssl-mode=disable").status.success());
    let refused = job("ssl-mode=disable");
    expect(&refused, 1, &["28000", "perhaps only with TLS ('ssl-mode')"]);
    assert!(!text(&refused).contains("sealed-4711"), "{}", text(&refused));
    succeeds(&job(""));
}

fn what_is_wrong_is_said(server: &Server) {
    let scratch = Scratch::new("postgres-wrong");
    server.rows("CREATE TABLE plain (id bigint, g bigint GENERATED ALWAYS AS (id + 1) STORED)");
    server.rows("CREATE ROLE guest LOGIN PASSWORD 'guest-4711'");
    let sql = |columns: &str, options: &str| {
        let more = if columns.contains(',') { ", 2" } else { "" };
        format!("CREATE TABLE plain ({columns}) WITH ({options});\nINSERT INTO plain VALUES (1{more});\n")
    };
    // A wrong password is said, but not which; neither are right ones.
    let secret = "hunter2-hunter2";
    let options = server.options_at("127.0.0.1", "ssl-mode=disable", "plain", secret);
    let output = run(&scratch, &sql("id BIGINT", &options), &[]);
    expect(&output, 1, &["password authentication failed for user \"postgres\"", "28P01", "check 'username' and 'password'"]);
    assert!(!text(&output).contains(secret), "{}", text(&output));
    let in_url = format!(
        "'connector' = 'jdbc', 'url' = 'postgresql://postgres:{secret}@127.0.0.1:{}/postgres?ssl-mode=disable', 'table-name' = 'plain'",
        server.port
    );
    let output = run(&scratch, &sql("id BIGINT", &in_url), &[]);
    expect(&output, 1, &["password authentication failed"]);
    assert!(!text(&output).contains(secret), "{}", text(&output));
    let job = scratch.write("job.sql", sql("id BIGINT", &server.options("plain")));
    let metrics = scratch.at("metrics.json");
    succeeds(&finish(tidemill().args(["run", &job, "--metrics", &metrics])));
    let explained = finish(tidemill().args(["explain", &job]));
    succeeds(&explained);
    let shown = text(&explained) + &std::fs::read_to_string(&metrics).expect("metrics");
    assert!(!shown.contains(PASSWORD), "{shown}");
    // Tables and columns that are not there, or not ours to write.
    expect(&run(&scratch, &sql("id BIGINT", &server.options("nowhere")), &[]), 1, &["nowhere", "sink.create-table"]);
    expect(&run(&scratch, &sql("ID BIGINT", &server.options("plain")), &[]), 1, &["column", "ID"]);
    expect(&run(&scratch, &sql("id BIGINT, g BIGINT", &server.options("plain")), &[]), 1, &["\"g\"", "leave it out"]);
    let keyed = "id BIGINT, g BIGINT, PRIMARY KEY (id) NOT ENFORCED";
    server.rows("CREATE TABLE keyless (id bigint, g bigint)");
    let upsert = sql(keyed, &server.options("keyless")).replace("plain", "keyless");
    expect(&run(&scratch, &upsert, &[]), 1, &["42P10", "primary key or unique"]);
    let parameters = "ssl-mode=disable&options=-c%20default_transaction_read_only%3Don";
    let read_only = server.options_at("127.0.0.1", parameters, "plain", PASSWORD);
    expect(&run(&scratch, &sql("id BIGINT", &read_only), &[]), 1, &["25006", "read-only"]);
    let guest = server.options_at("127.0.0.1", "ssl-mode=disable", "plain", "guest-4711").replace("= 'postgres'", "= 'guest'");
    expect(&run(&scratch, &sql("id BIGINT", &guest), &[]), 1, &["42501", "permission denied"]);
    let nowhere = server.options("plain").replace("/postgres?", "/nowhere?");
    expect(&run(&scratch, &sql("id BIGINT", &nowhere), &[]), 1, &["3D000", "nowhere"]);
    // Seen before the job begins, so an error of the job's text.
    let output = run(&scratch, &sql("id BIGINT", &server.options_at("127.0.0.1", "ssl-mod=disable", "plain", PASSWORD)), &[]);
    assert!(!output.status.success() && text(&output).contains("'ssl-mod'"), "{}", text(&output));
    // What the server has no connections for is tried again, until there are some.
    server.rows("ALTER ROLE guest CONNECTION LIMIT 0; GRANT ALL ON plain TO guest");
    let waits = std::thread::scope(|scope| {
        let job = scope.spawn(|| run(&scratch, &sql("id BIGINT", &guest), &[]));
        std::thread::sleep(Duration::from_millis(300));
        server.rows("ALTER ROLE guest CONNECTION LIMIT 5");
        job.join().expect("the job")
    });
    succeeds(&waits);
}

fn a_server_that_is_missing(server: &mut Server) {
    let scratch = Scratch::new("postgres-missing");
    server.rows("CREATE TABLE later (id bigint)");
    let sql =
        |more: &str| format!("CREATE TABLE later (id BIGINT) WITH ({}{more});\nINSERT INTO later VALUES (1);\n", server.options("later"));
    let (patient, impatient) = (sql(", 'connection.max-retry-timeout' = '10 min'"), sql(", 'connection.max-retry-timeout' = '300 ms'"));
    let place = format!("postgresql://127.0.0.1:{}/postgres", server.port);
    server.kill();
    expect(&run(&scratch, &impatient, &[]), 1, &[place.as_str(), "error connecting to server", "connection.max-retry-timeout"]);
    // One that comes back in time is nothing to fail for.
    let job = scratch.write("job.sql", patient);
    let output = std::thread::scope(|scope| {
        let running = scope.spawn(|| finish(tidemill().args(["run", &job, "--quiet"])));
        std::thread::sleep(Duration::from_millis(200));
        server.again();
        running.join().expect("the job")
    });
    succeeds(&output);
    assert_eq!(server.rows("SELECT count(*) FROM later"), ["1"]);
}
