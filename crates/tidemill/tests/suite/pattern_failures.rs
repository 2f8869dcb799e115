//! What goes wrong in patterns, joins, rankings and frames is said, by exit code and message: patterns
//! that grow without end, keys and ties that are odd, rows that are late, state at a limit.

use serde_json::Value;

use crate::failures::{check, expect, run};
use crate::harness::{Scratch, text};

/// Table `t` reads `t.csv`; the sink `s` prints one number.
const TABLES: &str = "CREATE TABLE t (id BIGINT, k STRING, v BIGINT, rt TIMESTAMP(3), WATERMARK FOR rt AS rt)
WITH ('connector' = 'filesystem', 'path' = '${DIR}/t.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');
CREATE TABLE s (a BIGINT) WITH ('connector' = 'print');
";

/// One row a second, all of one key.
fn one_key(rows: u64) -> String {
    (0..rows).map(|n| format!("{n},a,{},2024-01-01 00:{:02}:{:02}\n", n % 5, n / 60, n % 60)).collect()
}

/// A job that shows how many rows each match has.
fn matching(pattern: &str) -> String {
    format!("{TABLES}INSERT INTO s SELECT a FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY rt, id MEASURES COUNT(*) AS a {pattern}) AS m;")
}

/// Runs a job over `t` at several block sizes and degrees of parallelism: the numbers that it must
/// print, sorted, and how many rows are late.
#[track_caller]
fn check_rows(t: &str, sql: &str, numbers: &[&str], late: u64) {
    for (size, parallelism) in [("auto", "1"), ("1", "1"), ("2", "2")] {
        let scratch = Scratch::new("pattern");
        scratch.write("t.csv", t);
        let (size, metrics) = (format!("block.size={size}"), scratch.at("metrics.json"));
        let arguments =
            ["--parallelism", parallelism, "--set", size.as_str(), "--set", "debug.check-operators=true", "--metrics", metrics.as_str()];
        let output = run(&scratch, sql, &arguments);
        expect(&output, 0, &[]);
        let printed = String::from_utf8_lossy(&output.stdout);
        let mut found: Vec<&str> = printed.lines().filter_map(|line| line.split_once("+I[")?.1.strip_suffix(']')).collect();
        found.sort_unstable();
        assert_eq!(found, numbers, "{size}, parallelism {parallelism}: {}", text(&output));
        let written = std::fs::read_to_string(&metrics).expect("the metrics");
        let summary: Value = serde_json::from_str(&written).expect("the metrics are JSON");
        let nodes = summary["nodes"].as_array().expect("nodes");
        let dropped: u64 = nodes.iter().filter_map(|n| n["late_rows"].as_u64()).sum();
        assert_eq!(dropped, late, "late rows, {size}, parallelism {parallelism}: {written}");
    }
}

/// Variables that match every row and are repeated without end.
#[test]
fn patterns_that_are_never_decided() {
    for (pattern, variable) in [("A B*", "B"), ("A+ C", "A"), ("A (C | B)+ A", "B"), ("A (C B{2,})?", "B")] {
        let define = if variable == "A" { "C AS C.v > 1" } else { "A AS A.v > 1, C AS C.v < 1" };
        let define = if pattern.contains('C') { define } else { "A AS A.v > 1" };
        let sql = matching(&format!("PATTERN ({pattern}) DEFINE {define}"));
        let says = format!("{variable} matches every row and is repeated without end");
        check("", &sql, 2, &[&says, "DEFINE", "WITHIN", "job.sql:4:"]);
        let within = matching(&format!("PATTERN ({pattern}) WITHIN INTERVAL '3' SECOND DEFINE {define}"));
        check("", &within, 0, &[]);
    }
    check("", &matching("PATTERN (A*) DEFINE A AS A.v > 1"), 2, &["matches without any row", "A+"]);
    check("", &matching("PATTERN (A{99999999} B) DEFINE A AS A.v > 1"), 2, &["steps", "repeat fewer times"]);
}

/// B can go on without end, and no C ever ends it.
const ENDLESS: &str = "PATTERN (A B+ C) DEFINE A AS A.v >= 0, B AS B.v >= 0, C AS C.v > 100";

#[test]
fn patterns_at_the_bound() {
    let bounded = |at_bound: &str, rows: u64| {
        let scratch = Scratch::new("bound");
        scratch.write("t.csv", one_key(rows));
        let at_bound = format!("pattern.partial-matches.at-bound={at_bound}");
        run(&scratch, &matching(ENDLESS), &["--set", "pattern.partial-matches.max=20", "--set", &at_bound])
    };
    expect(&bounded("fail", 20), 0, &[]);
    expect(&bounded("fail", 60), 1, &["MatchRecognize", "PATTERN (A B+ C)", "more than 20 partial matches", "'B'", "WITHIN"]);
    expect(&bounded("fail", 60), 1, &["'pattern.partial-matches.max'"]);
    expect(&bounded("drop-oldest", 60), 0, &[]);
    expect(&bounded("drop-youngest", 60), 2, &["'drop-youngest'", "fail, drop-oldest"]);
}

#[test]
fn skips_that_lead_nowhere() {
    let skip = |to: &str| matching(&format!("AFTER MATCH SKIP TO {to} PATTERN (A B C?) DEFINE A AS A.v >= 0, C AS C.v > 100"));
    check("", &skip("FIRST A"), 2, &["every match begins with A", "SKIP TO NEXT ROW"]);
    check("", &skip("LAST D"), 2, &["no pattern variable D", "A, B, C"]);
    check(one_key(5), &skip("LAST C"), 1, &["SKIP TO LAST C", "has no row of it"]);
}

/// NULL is a key like any other for a partition, and none for a join.
#[test]
fn keys_that_are_null() {
    let rows = "1,NULL,1,2024-01-01 00:00:01\n2,a,1,2024-01-01 00:00:02\n3,NULL,2,2024-01-01 00:00:03\n4,a,3,2024-01-01 00:00:04\n5,NULL,3,2024-01-01 00:00:05\n";
    let rises = "PATTERN (A B+) WITHIN INTERVAL '1' HOUR DEFINE B AS B.v > PREV(B.v)";
    check_rows(rows, &matching(&format!("AFTER MATCH SKIP PAST LAST ROW {rises}")), &["2", "3"], 0);
    let joined = format!(
        "{TABLES}INSERT INTO s SELECT x.id * 10 + y.id FROM t AS x JOIN t AS y ON x.k = y.k AND x.rt < y.rt AND y.rt < x.rt + INTERVAL '1' HOUR;"
    );
    check_rows(rows, &joined, &["24"], 0);
}

/// Rows of one time go by the further columns of ORDER BY, whatever order they come in.
#[test]
fn times_that_tie() {
    let rows = "3,a,1,2024-01-01 00:00:01\n1,a,3,2024-01-01 00:00:01\n2,a,2,2024-01-01 00:00:01\n4,a,9,2024-01-01 00:00:02\n";
    check_rows(rows, &matching("PATTERN (A B C) DEFINE B AS B.v < A.v, C AS C.v < B.v"), &["3"], 0);
    check_rows(rows, &matching("PATTERN (A B) DEFINE A AS A.id = 3, B AS B.v > A.v"), &["2"], 0);
}

/// The third row is late: it is in no match, and is counted.
#[test]
fn rows_that_are_late() {
    let rows = "1,a,1,2024-01-01 00:00:01\n2,a,2,2024-01-01 00:01:00\n3,a,5,2024-01-01 00:00:30\n4,a,3,2024-01-01 00:01:01\n";
    check_rows(rows, &matching("AFTER MATCH SKIP PAST LAST ROW PATTERN (A B C) DEFINE B AS B.v > A.v, C AS C.v > B.v"), &["3"], 1);
}

/// The process may hold less than the rows of one input take.
#[test]
fn state_at_the_memory_limit() {
    let source = "CREATE TABLE g (id BIGINT, k BIGINT, p STRING, rt TIMESTAMP(3), WATERMARK FOR rt AS rt)
        WITH ('connector' = 'datagen', 'rows-per-second' = '1000000', 'start-time' = '2024-01-01 00:00:00', 'fields.id.kind' = 'sequence');
        CREATE TABLE o (a BIGINT, b STRING) WITH ('connector' = 'blackhole');";
    let jobs = [
        ("InnerJoin", "SELECT x.id, y.p FROM g AS x JOIN g AS y ON x.k = y.k"),
        ("IntervalJoin", "SELECT x.id, y.p FROM g AS x JOIN g AS y ON x.k = y.k AND x.rt BETWEEN y.rt AND y.rt + INTERVAL '1' DAY"),
        ("TopN", "SELECT id, p FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY id DESC) AS rn FROM g) WHERE rn <= 2"),
        (
            "MatchRecognize",
            "SELECT id, p FROM g MATCH_RECOGNIZE (PARTITION BY k ORDER BY rt MEASURES A.id AS id, LAST(B.p) AS p
             PATTERN (A B C) WITHIN INTERVAL '1' DAY DEFINE A AS A.id >= 0) AS m",
        ),
    ];
    for (operator, query) in jobs {
        let scratch = Scratch::new("memory");
        let output = run(&scratch, &format!("{source} INSERT INTO o {query};"), &["--memory", "192mb", "--parallelism", "1"]);
        expect(&output, 1, &["more than the limit of 192 MB", &format!("{operator} holds"), "--memory"]);
    }
}

#[test]
fn times_to_live_that_are_none() {
    let join = format!("{TABLES}INSERT INTO s SELECT x.id FROM t AS x JOIN t AS y ON x.k = y.k;");
    for wrong in ["x", "-1", "1 parsec", "", "1 h 30"] {
        let set = format!("SET 'table.exec.state.ttl' = '{wrong}';\n{join}");
        check("", &set, 2, &[&format!("'table.exec.state.ttl' = '{wrong}'"), "duration", "'1 h'"]);
    }
    check("", &format!("SET 'table.exec.state.ttl' = '0';\n{join}"), 0, &[]);
}

#[test]
fn generators_with_wrong_options() {
    let job = |columns: &str, options: &str| {
        format!(
            "CREATE TABLE g ({columns}) WITH ({options});
             CREATE TABLE s (n BIGINT) WITH ('connector' = 'print');
             INSERT INTO s SELECT COUNT(*) FROM g;"
        )
    };
    let nexmark = |columns: &str, option: &str| job(columns, &format!("'connector' = 'nexmark', 'table' = 'bid', {option}"));
    let soccer = |columns: &str, option: &str| job(columns, &format!("'connector' = 'soccer', 'number-of-rows' = '10', {option}"));
    check("", &nexmark("auction BIGINT", "'event.num' = '10'"), 2, &["table 'g'", "'event.num'", "did you mean 'events.num'?"]);
    check("", &nexmark("auction BIGINT", "'events.num' = 'ten'"), 2, &["'events.num' = 'ten'", "whole number"]);
    check("", &nexmark("auction BIGINT", "'rate.period' = '1 s'"), 2, &["'rate.period' = '1 s'", "from 2 s"]);
    check("", &nexmark("auctoin BIGINT", "'events.num' = '10'"), 2, &["no column 'auctoin'", "auction, bidder"]);
    check("", &nexmark("auction STRING", "'events.num' = '10'"), 2, &["'auction' of type STRING", "(BIGINT)"]);
    check("", &soccer("sid INT", "'goals.interval' = '21 s'"), 2, &["'goals.interval' = '21 s'", "even number of seconds from 20"]);
    check("", &soccer("sid INT", "'balls.rate' = '7'"), 2, &["'balls.rate' = '7'", "multiple of 'players.rate'"]);
    check("", &soccer("sid STRING", "'seed' = '1'"), 2, &["'sid' of type STRING", "sid (INT)"]);
}

#[test]
fn what_cannot_be_unnested() {
    let from = |join: &str| format!("{TABLES}INSERT INTO s SELECT CHAR_LENGTH(x) FROM t {join};");
    check("", &from("CROSS JOIN UNNEST(k) AS u (x)"), 2, &["UNNEST takes an ARRAY or a ROW"]);
    check("", &from("CROSS JOIN UNNEST(SPLIT(k, ',')) AS u (x, y)"), 2, &["2 names", "1 column"]);
    check("", &from("LEFT JOIN UNNEST(SPLIT(k, ',')) AS u (x) ON u.x = 'a'"), 2, &["LEFT JOIN UNNEST", "ON TRUE"]);
    check("", &from("RIGHT JOIN UNNEST(SPLIT(k, ',')) AS u (x) ON TRUE"), 2, &["LEFT JOIN", "CROSS JOIN"]);
}
