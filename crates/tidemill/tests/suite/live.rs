//! What happens to a job while it runs: sources fall silent and come back, files grow and are added, one key has all the
//! rows, keys are many, rows are taken back that never were, and what is kept goes when its time is over.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::ChildStdout;

use serde_json::Value;

use crate::failures::{expect, run};
use crate::harness::{Background, Scratch, fold, newest_checkpoint, sink_lines, text, tidemill, wait_for};

/// A hundred windows of a tenth of a second, within ten seconds: the peer speaks before the last of them, however slow the
/// machine is. Until then it may say nothing.
const BUSY_AND_QUIET: &str = "
CREATE TABLE busy (id BIGINT, rt TIMESTAMP(3), WATERMARK FOR rt AS rt) WITH ('connector' = 'datagen', 'rows-per-second' = '600',
  'number-of-rows' = '6000', 'start-time' = '2024-01-01 00:00:00', 'fields.id.kind' = 'sequence', 'fields.id.start' = '0');
CREATE TABLE quiet (id BIGINT, rt TIMESTAMP(3), WATERMARK FOR rt AS rt) WITH ('connector' = 'socket', 'hostname' = '127.0.0.1',
  'port' = '${PORT}', 'format' = 'csv', 'scan.watermark.idle-timeout' = '50 ms');
CREATE TABLE s (a STRING, b BIGINT) WITH ('connector' = 'print', 'print-identifier' = 's');
";

/// A job whose table `quiet` is a connection to the test.
struct WithPeer {
    job: Background,
    lines: BufReader<ChildStdout>,
    peer: TcpStream,
    printed: String,
    scratch: Scratch,
}

impl WithPeer {
    /// `statements` end with the beginning of an INSERT, which `query` goes into.
    fn start(statements: &str, query: &str, parallelism: &str) -> Self {
        let scratch = Scratch::new("quiet");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let file = scratch.write("job.sql", format!("{BUSY_AND_QUIET}{statements}{query};"));
        let mut command = tidemill();
        command.args(["run", &file, "--quiet", "--parallelism", parallelism, "--metrics", &scratch.at("metrics.json")]);
        let mut job = Background::start(command.args(["-D", &format!("PORT={port}")]));
        let (peer, _) = listener.accept().expect("the job connects");
        let lines = BufReader::new(job.0.stdout.take().expect("piped"));
        WithPeer { job, lines, peer, printed: String::new(), scratch }
    }

    /// Waits for so many further lines.
    fn lines(&mut self, count: usize) {
        for n in 0..count {
            let read = self.lines.read_line(&mut self.printed).expect("the output in UTF-8");
            assert!(read > 0, "the output ends after {n} lines: {:?}\n{}", self.job.end(), self.printed);
        }
    }

    /// Goes away; the rows that the job leaves, and how many it dropped as late.
    fn end(self) -> (Vec<String>, u64) {
        let WithPeer { mut job, mut lines, peer, mut printed, scratch } = self;
        drop(peer);
        while lines.read_line(&mut printed).expect("the output in UTF-8") > 0 {}
        let (code, errors) = job.end();
        assert_eq!(code, Some(0), "{errors}");
        (fold(&printed, "s"), nodes(&scratch.at("metrics.json")).iter().filter_map(|n| n["late_rows"].as_u64()).sum())
    }
}

/// The nodes of a job by its metrics.
fn nodes(metrics: &str) -> Vec<Value> {
    let summary: Value = serde_json::from_slice(&std::fs::read(metrics).expect("the metrics")).expect("the metrics are JSON");
    summary["nodes"].as_array().expect("nodes").clone()
}

/// Sums a count over nodes.
fn sum(nodes: &[Value], key: &str) -> u64 {
    nodes.iter().filter_map(|n| n[key].as_u64()).sum()
}

/// Windows leave although the other source has said nothing; when it speaks, its row counts, of a time that is not over.
#[test]
fn a_silent_source_holds_nobody_back() {
    for parallelism in ["1", "2"] {
        let query = "SELECT CAST(window_start AS STRING), COUNT(*)
            FROM TABLE(TUMBLE(TABLE both_of_them, DESCRIPTOR(rt), INTERVAL '0.1' SECOND)) GROUP BY window_start, window_end";
        let union = "CREATE VIEW both_of_them AS SELECT id, rt FROM busy UNION ALL SELECT id, rt FROM quiet;\nINSERT INTO s ";
        let mut job = WithPeer::start(union, query, parallelism);
        job.lines(5);
        job.peer.write_all(b"1,2024-01-01 00:00:09.950\n").expect("the job reads");
        let (rows, late) = job.end();
        let counts: Vec<u64> = rows.iter().map(|row| row.rsplit_once(", ").expect("two columns").1.parse().expect("a count")).collect();
        assert_eq!((counts.len(), counts.iter().sum::<u64>(), late), (100, 6001, 0), "{rows:?}");
    }
}

/// Rows without a partner leave although the other side has said nothing; a row that comes then finds none of them, and
/// is none too late itself.
#[test]
fn a_silent_side_of_a_join_holds_no_rows_back() {
    let query = "SELECT CAST(l.id AS STRING), q.id FROM busy AS l LEFT JOIN quiet AS q
        ON l.id = q.id AND q.rt BETWEEN l.rt AND l.rt + INTERVAL '0.1' SECOND";
    let mut job = WithPeer::start("INSERT INTO s ", query, "2");
    job.lines(1000);
    job.peer.write_all(b"1,2024-01-01 00:00:09.950\n").expect("the job reads");
    let (rows, late) = job.end();
    assert_eq!((rows.len(), late), (6000, 0));
    assert!(rows.iter().all(|row| row.ends_with(", null")), "{rows:?}");
}

/// Files are added and grow while the job runs, is killed, and goes on: every row is there once.
#[test]
fn files_that_grow_while_a_job_runs() {
    let scratch = Scratch::new("growing");
    let job = scratch.write(
        "job.sql",
        "CREATE TABLE t (id BIGINT, v STRING) WITH ('connector' = 'filesystem', 'path' = '${DIR}/in', 'format' = 'csv',
           'source.monitor-interval' = '20 ms');
         CREATE TABLE s (id BIGINT, v STRING) WITH ('connector' = 'filesystem', 'path' = '${DIR}/out', 'format' = 'csv');
         INSERT INTO s SELECT id, v FROM t;",
    );
    std::fs::create_dir(scratch.path().join("in")).expect("a directory");
    let append = |name: &str, content: &str| {
        let path = scratch.path().join("in").join(name);
        let mut file = std::fs::File::options().append(true).create(true).open(path).expect("a file of input");
        file.write_all(content.as_bytes()).expect("writing input");
    };
    let start = |parallelism: &str| {
        let mut command = tidemill();
        command.args(["run", &job, "--quiet", "--parallelism", parallelism, "--state-dir", &scratch.at("state")]);
        command.args(["--set", "execution.checkpointing.interval=20ms", "-D"]).arg(format!("DIR={}", scratch.path().display()));
        Background::start(&mut command)
    };
    let out = scratch.path().join("out");
    let rows = |count: usize| wait_for(&format!("{count} rows"), || sink_lines(&out).len() >= count);

    append("a.csv", "1,one\n2,two\n3,three\n");
    let mut first = start("2");
    rows(3);
    append("a.csv", "4,four\n5,five\n6,si");
    append("b.csv", "7,seven\n");
    rows(6);
    first.signal("KILL");
    let _ = first.0.wait();
    append("a.csv", "x\n");
    append("c.csv", "8,eight\n");
    let mut second = start("3");
    rows(8);
    append("b.csv", "9,nine\n");
    rows(9);
    second.signal("INT");
    let (code, errors) = second.end();
    assert_eq!(code, Some(0), "{errors}");
    let names = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];
    let expect: Vec<String> = names.iter().enumerate().map(|(n, name)| format!("{},{name}", n + 1)).collect();
    assert_eq!(sink_lines(&out), expect);
    assert!(newest_checkpoint(Path::new(&scratch.at("state"))).is_some());
}

/// All rows have one key: the shards that have none of them neither hold the others back nor change the result.
#[test]
fn one_hot_key() {
    const HOT: &str = "CREATE TABLE t (id BIGINT, k STRING, v BIGINT, rt TIMESTAMP(3), WATERMARK FOR rt AS rt)
        WITH ('connector' = 'filesystem', 'path' = '${DIR}/t.csv', 'format' = 'csv');
        CREATE TABLE s (k STRING, a BIGINT, b BIGINT) WITH ('connector' = 'print', 'print-identifier' = 's');\n";
    let rows: String =
        (0..6000).map(|n| format!("{n},hot,{},2024-01-01 00:{:02}:{:02}\n", n * 7919 % 1000, n / 100 / 60, n / 100 % 60)).collect();
    let queries = [
        "SELECT k, COUNT(*), SUM(v) FROM t GROUP BY k",
        "SELECT k, COUNT(*), MAX(v) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(rt), INTERVAL '1' SECOND)) GROUP BY k, window_start, window_end",
        "SELECT k, id, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC, id) AS rn FROM t) WHERE rn <= 10",
        "SELECT x.k, x.id, y.id FROM t AS x JOIN t AS y ON x.k = y.k AND x.v = y.v AND y.rt BETWEEN x.rt - INTERVAL '9' SECOND AND x.rt",
        "SELECT k, id, SUM(v) OVER (PARTITION BY k ORDER BY rt RANGE BETWEEN INTERVAL '3' SECOND PRECEDING AND CURRENT ROW) FROM t",
        "SELECT k, a, b FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY rt, id MEASURES A.id AS a, B.id AS b ONE ROW PER MATCH
           AFTER MATCH SKIP PAST LAST ROW PATTERN (A B) WITHIN INTERVAL '5' SECOND DEFINE A AS A.v > 900, B AS B.v < 900) AS m",
    ];
    for query in queries {
        let found: Vec<Vec<String>> = ["1", "3"]
            .iter()
            .map(|parallelism| {
                let scratch = Scratch::new("hot");
                scratch.write("t.csv", &rows);
                let job = format!("{HOT}INSERT INTO s {query};");
                let output = run(&scratch, &job, &["--parallelism", parallelism, "--set", "debug.check-operators=true"]);
                expect(&output, 0, &[]);
                fold(&String::from_utf8_lossy(&output.stdout), "s")
            })
            .collect();
        assert!(!found[0].is_empty(), "{query}: no rows");
        assert!(found[0] == found[1], "{query}: {} rows in one shard, {} in three, or others", found[0].len(), found[1].len());
    }
}

#[test]
fn a_million_keys() {
    let scratch = Scratch::new("million");
    let metrics = scratch.at("metrics.json");
    let job = "CREATE TABLE t (k BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '0', 'number-of-rows' = '2000000',
                 'fields.k.kind' = 'sequence', 'fields.k.start' = '1', 'fields.k.end' = '2000000');
               CREATE TABLE s (k BIGINT, n BIGINT) WITH ('connector' = 'blackhole');
               INSERT INTO s SELECT k / 2, COUNT(*) FROM t GROUP BY k / 2;";
    expect(&run(&scratch, job, &["--metrics", &metrics, "--memory", "512mb"]), 0, &[]);
    let nodes = nodes(&metrics);
    let groups = nodes.iter().find(|n| n["name"] == "GroupAggregate").unwrap_or_else(|| panic!("{nodes:?}"));
    // The keys are 0 to 1,000,000.
    assert_eq!(groups["state_entries"], 1_000_001, "{groups}");
}

/// Changes that say that rows are gone which never were: counted, and without effect on the rows that were.
#[test]
fn rows_taken_back_that_never_were() {
    let changes = [
        r#"{"before":{"k":"a","v":9},"after":null,"op":"d"}"#,
        r#"{"before":null,"after":{"k":"a","v":1},"op":"c"}"#,
        r#"{"before":null,"after":{"k":"b","v":2},"op":"c"}"#,
        r#"{"before":{"k":"c","v":5},"after":null,"op":"d"}"#,
        r#"{"before":null,"after":{"k":"c","v":6},"op":"c"}"#,
    ];
    let tables =
        "CREATE TABLE t (k STRING, v BIGINT) WITH ('connector' = 'filesystem', 'path' = '${DIR}/t.json', 'format' = 'debezium-json');
        CREATE TABLE s (k STRING, v BIGINT) WITH ('connector' = 'print', 'print-identifier' = 's');\n";
    let cases: [(&str, &[&str], u64); 3] = [
        ("SELECT k, SUM(v) FROM t GROUP BY k", &["a, 1", "b, 2", "c, 6"], 2),
        (
            "SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS rn FROM t) WHERE rn <= 1",
            &["a, 1", "b, 2", "c, 6"],
            2,
        ),
        ("SELECT x.k, y.v FROM t AS x JOIN t AS y ON x.k = y.k AND x.v = y.v", &["a, 1", "b, 2", "c, 6"], 4),
    ];
    for (query, rows, unknown) in cases {
        for (size, mini_batch) in [("1", "false"), ("auto", "false"), ("auto", "true")] {
            let scratch = Scratch::new("never");
            scratch.write("t.json", changes.map(|line| format!("{line}\n")).concat());
            let metrics = scratch.at("metrics.json");
            let settings = [format!("block.size={size}"), format!("table.exec.mini-batch.enabled={mini_batch}")];
            let arguments = ["--parallelism", "1", "--metrics", &metrics, "--set", &settings[0], "--set", &settings[1]];
            let output = run(&scratch, &format!("{tables}INSERT INTO s {query};"), &arguments);
            expect(&output, 0, &[]);
            assert_eq!(fold(&String::from_utf8_lossy(&output.stdout), "s"), rows, "{query}: {settings:?}: {}", text(&output));
            assert_eq!(sum(&nodes(&metrics), "unknown_rows"), unknown, "{query}: {settings:?}");
        }
    }
}

/// A join keeps all rows unless they have a time to live.
#[test]
fn what_a_join_keeps_expires() {
    let job = "CREATE TABLE t (id BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '500', 'number-of-rows' = '2000',
                 'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '2000');
               CREATE TABLE s (a BIGINT, b BIGINT) WITH ('connector' = 'blackhole');
               INSERT INTO s SELECT x.id, y.id FROM t AS x JOIN t AS y ON x.id = y.id + 1000000;";
    for (ttl, all) in [("0", true), ("50 ms", false)] {
        let scratch = Scratch::new("ttl");
        let (metrics, ttl) = (scratch.at("metrics.json"), format!("table.exec.state.ttl={ttl}"));
        expect(&run(&scratch, job, &["--metrics", &metrics, "--set", &ttl]), 0, &[]);
        let entries = sum(&nodes(&metrics), "state_entries");
        assert!(if all { entries >= 4000 } else { entries < 4000 }, "{ttl}: {entries} rows are kept");
    }
}

/// What was edited begins empty, and that is said; what was not goes on.
#[test]
fn state_that_an_edited_job_does_not_take() {
    let job = |groups: &str| {
        format!(
            "CREATE TABLE t (k BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '0', 'number-of-rows' = '10000',
               'fields.k.kind' = 'sequence', 'fields.k.start' = '1', 'fields.k.end' = '10000');
             CREATE TABLE s (k BIGINT, n BIGINT) WITH ('connector' = 'print', 'print-identifier' = 's');
             INSERT INTO s SELECT k / {groups}, COUNT(*) FROM t GROUP BY k / {groups};"
        )
    };
    let scratch = Scratch::new("edited");
    let state = scratch.at("state");
    let again = ["--state-dir", state.as_str(), "--set", "block.size=100", "--set", "debug.checkpoint-blocks=5", "--parallelism", "1"];
    let killed = [&again[..], &["--set", "debug.abort-after-checkpoints=1"]].concat();
    assert_eq!(run(&scratch, &job("1000"), &killed).status.code(), Some(137));
    let unedited = run(&scratch, &job("1000"), &killed);
    assert_eq!((unedited.status.code(), unedited.stderr.is_empty()), (Some(137), true), "{}", text(&unedited));
    expect(&run(&scratch, &job("2000"), &again), 0, &["state of 1 parts of the query that are not in the job any more", "--fresh"]);
}
