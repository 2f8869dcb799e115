//! The queries of Nexmark: as streams, however they are run, they give what batch mode gives over the
//! same events. And `bench` over a directory of jobs.

use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::harness::{Scratch, finish, fold, fold_changes, root, sink_lines, text, tidemill};

const QUERIES: [&str; 23] = [
    "examples/nexmark/q0.sql",
    "examples/nexmark/q1.sql",
    "examples/nexmark/q2.sql",
    "examples/nexmark/q3.sql",
    "examples/nexmark/q4.sql",
    "examples/nexmark/q5.sql",
    "examples/nexmark/q6.sql",
    "examples/nexmark/q7.sql",
    "examples/nexmark/q8.sql",
    "examples/nexmark/q9.sql",
    "examples/nexmark/q10.sql",
    "examples/nexmark/q11.sql",
    "examples/nexmark/q12.sql",
    "examples/nexmark/q13.sql",
    "examples/nexmark/q14.sql",
    "examples/nexmark/q15.sql",
    "examples/nexmark/q16.sql",
    "examples/nexmark/q17.sql",
    "examples/nexmark/q18.sql",
    "examples/nexmark/q19.sql",
    "examples/nexmark/q20.sql",
    "examples/nexmark/q21.sql",
    "examples/nexmark/q22.sql",
];

/// Which of two bids of the same millisecond is the last is open, so this one must have them in order.
const IN_ORDER: usize = 18;

const EVENTS: &str = "20000";

/// How the sink of a job is replaced.
#[derive(Clone, Copy, PartialEq)]
enum Sink {
    /// Its changelog is printed and folded.
    Print,
    /// Its changes go to files and are folded: what a job can be killed over and go on.
    Files,
}

/// A way to run a query.
struct Way {
    name: &'static str,
    arguments: &'static [&'static str],
    /// How much too early events may be.
    delay: &'static str,
}

const WAYS: [Way; 5] = [
    Way { name: "block size auto, parallelism 1", arguments: &["--parallelism", "1"], delay: "0 s" },
    Way { name: "block size auto, parallelism 2", arguments: &["--parallelism", "2"], delay: "0 s" },
    Way { name: "block size 7, parallelism 1", arguments: &["--parallelism", "1", "--set", "block.size=7"], delay: "0 s" },
    Way { name: "block size 7, parallelism 2", arguments: &["--parallelism", "2", "--set", "block.size=7"], delay: "0 s" },
    Way { name: "out of order", arguments: &["--parallelism", "2", "--set", "block.size=7"], delay: "2 s" },
];
const BATCH: [&str; 4] = ["--parallelism", "2", "--set", "execution.runtime-mode=batch"];

/// A query's text; in batch mode that of its batch equivalent, if it has one.
fn sql(query: usize, batch: bool) -> String {
    let other = root().join(format!("tests/nexmark/q{query}.batch.sql"));
    let path = if batch && other.exists() { other } else { root().join(QUERIES[query]) };
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// A run of a query whose job file and output lie in `scratch`.
fn command(scratch: &Scratch, query: usize, batch: bool, sink: Sink, delay: &str) -> Command {
    let into = match sink {
        Sink::Print => "'print', 'print-identifier' = 'out'".to_string(),
        Sink::Files => format!("'filesystem', 'path' = '{}', 'format' = 'debezium-json'", scratch.at("out")),
    };
    let job = scratch.write("job.sql", sql(query, batch).replace("'${SINK:-blackhole}'", &into));
    let mut command = tidemill();
    command.args(["run", &job, "--quiet", "-D", &format!("EVENTS={EVENTS}"), "-D", "RATE=100", "-D", &format!("DELAY={delay}")]);
    command.args(["-D", &format!("SIDE={}", root().join("examples/nexmark/side_input.csv").display())]);
    command.args(["-D", &format!("OUT={}", scratch.at("files")), "--set", "debug.check-operators=true"]);
    command
}

/// The final rows, sorted.
fn rows(scratch: &Scratch, query: usize, sink: Sink, stdout: &[u8]) -> Vec<String> {
    match (query, sink) {
        (10, _) => sink_lines(&Path::new(&scratch.at("files")).join("nexmark_q10")),
        (_, Sink::Print) => fold(&String::from_utf8_lossy(stdout), "out"),
        (_, Sink::Files) => fold_changes(&sink_lines(Path::new(&scratch.at("out")))),
    }
}

/// Runs a query once.
fn run(query: usize, batch: bool, sink: Sink, arguments: &[&str], delay: &str) -> Result<Vec<String>, String> {
    let scratch = Scratch::new(&format!("nexmark-q{query}"));
    let output = finish(command(&scratch, query, batch, sink, delay).args(arguments));
    match output.status.success() {
        true => Ok(rows(&scratch, query, sink, &output.stdout)),
        false => Err(format!("failed ({}):\n{}", output.status, text(&output))),
    }
}

/// Runs a query that is killed after each checkpoint and goes on at another parallelism.
fn resumed(query: usize) -> Result<Vec<String>, String> {
    let scratch = Scratch::new(&format!("nexmark-q{query}-resumed"));
    for attempt in 0..60 {
        let mut command = command(&scratch, query, false, Sink::Files, "0 s");
        command.arg("--state-dir").arg(scratch.at("state")).args(["--parallelism", ["2", "1", "3"][attempt % 3]]);
        command.args(["--set", "block.size=500", "--set", "debug.abort-after-checkpoints=1"]);
        // In the end it may get through.
        let blocks = if attempt < 6 { "5" } else { "1000000" };
        let output = finish(command.args(["--set", &format!("debug.checkpoint-blocks={blocks}")]));
        match output.status.code() {
            Some(137) => continue,
            Some(0) if attempt == 0 => return Err("ended before it was killed".to_string()),
            Some(0) => return Ok(rows(&scratch, query, Sink::Files, &[])),
            _ => return Err(format!("attempt {attempt} failed ({}):\n{}", output.status, text(&output))),
        }
    }
    Err("did not get through in 60 attempts".to_string())
}

/// The difference from what batch mode gives, if any.
fn compare(how: &str, expect: &[String], found: Result<Vec<String>, String>) -> Option<String> {
    let found = match found {
        Ok(found) if found == expect => return None,
        Ok(found) => found,
        Err(why) => return Some(format!("{how}: {why}")),
    };
    let missing: Vec<_> = expect.iter().filter(|row| found.binary_search(row).is_err()).take(3).collect();
    let extra: Vec<_> = found.iter().filter(|row| expect.binary_search(row).is_err()).take(3).collect();
    Some(format!("{how}: {} rows, {} in batch mode\n  missing: {missing:#?}\n  extra: {extra:#?}", found.len(), expect.len()))
}

fn check(query: usize) -> Vec<String> {
    let batch = |sink, delay| run(query, true, sink, &BATCH, delay);
    let mut wrong = Vec::new();
    for delay in ["0 s", "2 s"] {
        let expect = match batch(Sink::Print, delay) {
            Ok(rows) if rows.is_empty() => return vec!["batch mode gives no rows: the test shows nothing".to_string()],
            Ok(rows) => rows,
            Err(why) => return vec![format!("batch mode {why}")],
        };
        for way in WAYS.iter().filter(|way| way.delay == delay && (query != IN_ORDER || delay == "0 s")) {
            wrong.extend(compare(way.name, &expect, run(query, false, Sink::Print, way.arguments, delay)));
        }
    }
    match batch(Sink::Files, "0 s") {
        Ok(expect) => wrong.extend(compare("killed and resumed", &expect, resumed(query))),
        Err(why) => wrong.push(format!("batch mode {why}")),
    }
    wrong
}

#[test]
fn streams_give_what_batch_mode_gives() {
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, |n| n.get()) {
            scope.spawn(|| {
                loop {
                    let query = next.fetch_add(1, Ordering::Relaxed);
                    if query >= QUERIES.len() {
                        return;
                    }
                    let wrong = check(query);
                    failures.lock().unwrap().extend(wrong.into_iter().map(|why| format!("q{query}, {why}")));
                }
            });
        }
    });
    let mut failures = failures.into_inner().unwrap();
    failures.sort();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// Events as one table of ROWs, and as a table for each kind.
#[test]
fn one_table_and_three_tables_agree() {
    let time = "dateTime TIMESTAMP(3), WATERMARK FOR dateTime AS dateTime - INTERVAL '4' SECOND";
    let with = |table: &str| {
        format!("WITH ('connector' = 'nexmark', 'table' = '{table}', 'events.num' = '5000', 'out-of-order.max-delay' = '1 s')")
    };
    let job = |declare: &str, query: &str| {
        format!(
            "{declare};\nCREATE TABLE out_rows (a BIGINT, b BIGINT, c STRING, d TIMESTAMP(3)) WITH ('connector' = 'print', \
             'print-identifier' = 'out');\nINSERT INTO out_rows {query};"
        )
    };
    let together = format!(
        "CREATE TABLE nexmark (event_type INT, person ROW<id BIGINT, city STRING>, \
         auction ROW<id BIGINT, itemName STRING, seller BIGINT>, bid ROW<auction BIGINT, price BIGINT, url STRING>, {time}) {}",
        with("all")
    );
    let cases = [
        ("person", "id BIGINT, city STRING", "id, id + 1, city", "person.id, person.id + 1, person.city", 0),
        ("auction", "id BIGINT, itemName STRING, seller BIGINT", "id, seller, itemName", "auction.id, auction.seller, auction.itemName", 1),
        ("bid", "auction BIGINT, price BIGINT, url STRING", "auction, price, url", "bid.auction, bid.price, bid.url", 2),
    ];
    let run = |name: &str, job: String| {
        let scratch = Scratch::new(name);
        let output = finish(tidemill().args(["run", &scratch.write("job.sql", &job), "--quiet"]));
        assert!(output.status.success(), "{job}\n{}", text(&output));
        fold(&String::from_utf8_lossy(&output.stdout), "out")
    };
    for (table, columns, flat, nested, kind) in cases {
        let apart =
            job(&format!("CREATE TABLE {table} ({columns}, {time}) {}", with(table)), &format!("SELECT {flat}, dateTime FROM {table}"));
        let whole = job(&together, &format!("SELECT {nested}, dateTime FROM nexmark WHERE event_type = {kind}"));
        let expect = run("nexmark-apart", apart);
        assert_eq!(expect.len(), [100, 300, 4_600][kind], "{table}");
        assert!(run("nexmark-together", whole) == expect, "{table}: the ROWs hold something else");
    }
}

#[test]
fn bench_runs_a_directory() {
    let scratch = Scratch::new("bench-suite");
    std::fs::create_dir(scratch.at("jobs")).expect("a directory of jobs");
    for query in [2, 10] {
        scratch.write(&format!("jobs/q{query}.sql"), sql(query, false));
    }
    scratch.write("jobs/README.md", "no job");
    let bench = |more: &[&str]| {
        let mut command = tidemill();
        command.args(["bench", &scratch.at("jobs"), "--runs", "2", "-D", "EVENTS=5000", "--out", &scratch.at("results")]);
        command.arg("-D").arg(format!("OUT={}", scratch.at("files"))).arg("--state-dir").arg(scratch.at("state"));
        finish(command.args(more))
    };
    let output = bench(&[]);
    assert!(output.status.success(), "{}", text(&output));
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let names: Vec<&str> = table.lines().filter_map(|line| line.split('|').nth(1)).map(str::trim).collect();
    assert_eq!(names, ["query", "---", "q2", "q10"], "{table}");
    assert!(table.lines().skip(2).all(|line| line.contains("| 5,000 |")), "{table}");
    let read = |name: &str| std::fs::read_to_string(Path::new(&scratch.at("results")).join(name)).expect("a file of results");
    assert_eq!(read("results.md"), table);
    assert_eq!(read("results.csv").lines().count(), 1 + 2 * 2);
    // A job that fails is named, and does not keep the others from being run.
    scratch.write("jobs/q3.sql", "INSERT INTO nowhere SELECT 1;");
    let output = bench(&[]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("| q3 | failed |"), "{}", text(&output));
    assert!(text(&output).contains("1 of the jobs failed") && text(&output).contains("nowhere"), "{}", text(&output));
    let output = bench(&["--vary", "block.size=1,2"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
}
