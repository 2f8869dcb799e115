//! What runs a stream: our operators only. DataFusion's hold rows back until 8,192 have gathered, so
//! the first row would wait for the last; the plans are looked at, and a job is fed row by row. (That
//! the code could not do otherwise is a test of the `runtime` crate.) And how many changes leave for rows
//! that come alone or at once, which settings of blocks decide.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};

use crate::golden::jobs;
use crate::harness::{Background, PATIENCE, Scratch, finish, fold, root, text, tidemill};

/// The words of an `explain` that name one of DataFusion's execution operators (`FilterExec`, …) in
/// what it says about streams, and how many streams that is.
fn executors(explained: &str) -> (Vec<String>, usize) {
    let (mut found, mut streams, mut stream) = (Vec::new(), 0, false);
    for line in explained.lines() {
        if line.starts_with("== ") {
            stream = !line.to_lowercase().contains("batch");
            streams += usize::from(line == "== Operators ==");
        }
        let words = line.split(|c: char| !c.is_ascii_alphanumeric());
        found.extend(words.filter(|w| stream && w.len() > 4 && w.ends_with("Exec")).map(String::from));
    }
    (found, streams)
}

#[test]
fn executors_are_found_where_they_are() {
    let explained = "== INSERT INTO s ==\nFilter: a\n\n== Operators ==\n0: FilterExec <- 1\n== Batch plan ==\nHashJoinExec: on=[a]\n";
    assert_eq!(executors(explained), (vec!["FilterExec".to_string()], 1));
}

#[test]
fn no_operator_of_datafusion_stands_in_a_stream() {
    let mut streams = 0;
    let scratch = Scratch::new("plans");
    for job in jobs() {
        let file = scratch.write("job.sql", &job.sql);
        let mut command = tidemill();
        command.args(["explain", &file, "--define"]).arg(format!("DATA={}", root().join("tests/golden/data").display()));
        command.arg("--define").arg(format!("OUT={}", scratch.at("out")));
        command.arg("--define").arg(format!("TIDEMILL={}", env!("CARGO_BIN_EXE_tidemill")));
        let output = finish(&mut command);
        assert!(output.status.success(), "{}: {}", job.name, text(&output));
        let (found, more) = executors(&String::from_utf8_lossy(&output.stdout));
        assert!(found.is_empty(), "{}: {found:?} in\n{}", job.name, text(&output));
        streams += more;
    }
    assert!(streams >= 100, "only {streams} golden jobs run as streams");
}

#[test]
fn what_flink_does_not_know() {
    let scratch = Scratch::new("unknown");
    let job = "SET 'block.size' = '16';
SET 'over.ties' = 'by-arrival';
SET 'parallelism.default' = '1';
CREATE TABLE t (a BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '5');
CREATE TABLE o (a BIGINT) WITH ('connector' = 'socket', 'port' = '1', 'format' = 'csv');
CREATE TABLE p (a BIGINT) WITH ('connector' = 'print');
INSERT INTO o SELECT a FROM t /*+ OPTIONS('seed' = '7') */;
INSERT INTO p SELECT a FROM t;";
    let explain = |sql: &str| {
        let output = finish(tidemill().args(["explain", &scratch.write("job.sql", sql)]));
        assert!(output.status.success(), "{}", text(&output));
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        shown.lines().filter(|line| line.starts_with("Flink ")).map(String::from).collect::<Vec<_>>()
    };
    let tables = [
        "Flink does not know these options of table 'o': 'connector' = 'socket', port",
        "Flink does not know these options of table 't': seed",
    ];
    let stream = explain(job);
    assert_eq!(stream[..2], tables);
    assert_eq!(stream[2..], ["Flink does not know these settings: block.size, over.ties"]);
    // A batch job is told the same.
    let batch = job.replace("'over.ties' = 'by-arrival'", "'execution.runtime-mode' = 'batch'");
    let batch = explain(&batch);
    assert_eq!(batch[..2], tables);
    assert_eq!(batch[2..], ["Flink does not know these settings: block.size"]);
}

/// The lines that a process writes, as they come.
fn lines(child: &mut Background) -> Receiver<String> {
    let out = child.0.stdout.take().expect("piped");
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// A job that reads what the test writes to its standard input.
struct Fed {
    child: Background,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Fed {
    fn start(job: &str, arguments: &[&str]) -> Self {
        let mut command = tidemill();
        command.args(["run", job, "--quiet"]).args(arguments);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starting tidemill");
        let mut child = Background(child);
        let input = child.0.stdin.take().expect("piped");
        let lines = lines(&mut child);
        Fed { child, input, lines }
    }

    /// Writes rows, and waits for as many changes of `print` sinks as are expected (`sink +I[a, 1]`, sorted).
    #[track_caller]
    fn feed(&mut self, rows: &str, expect: &[&str]) {
        self.input.write_all(rows.as_bytes()).and_then(|()| self.input.flush()).expect("the job reads");
        let mut found: Vec<String> = Vec::new();
        for _ in expect {
            // Not a bound on time: a row that is held back never comes.
            let line = self.lines.recv_timeout(PATIENCE);
            found.push(change(&line.unwrap_or_else(|_| panic!("{rows:?} was sent and only {found:?} came out"))));
        }
        found.sort();
        assert_eq!(found, expect, "after {rows:?}");
    }

    /// Ends the input; the changes that come then, in their order.
    #[track_caller]
    fn end(self) -> Vec<String> {
        let Fed { mut child, input, lines } = self;
        drop(input);
        let (code, errors) = child.end();
        assert_eq!(code, Some(0), "{errors}");
        lines.iter().map(|line| change(&line)).collect()
    }
}

/// A line of a `print` sink without the number of its shard.
fn change(line: &str) -> String {
    let (sink, change) = line.split_once("> ").expect("a line of a print sink");
    format!("{} {change}", sink.split(':').next().expect("split gives one at least"))
}

#[test]
fn the_first_row_leaves_before_the_second_comes() {
    let scratch = Scratch::new("row-by-row");
    let job = scratch.write(
        "job.sql",
        "CREATE TABLE t (k STRING, v BIGINT) WITH ('connector' = 'stdin', 'format' = 'csv');
         CREATE TABLE p (v BIGINT) WITH ('connector' = 'print', 'print-identifier' = 'p');
         CREATE TABLE g (k STRING, n BIGINT, s BIGINT) WITH ('connector' = 'print', 'print-identifier' = 'g');
         INSERT INTO p SELECT v * 10 FROM t WHERE v > 1;
         INSERT INTO g SELECT k, COUNT(*), SUM(v) FROM t GROUP BY k;",
    );
    for parallelism in ["1", "2"] {
        let mut job = Fed::start(&job, &["--parallelism", parallelism]);
        job.feed("a,5\n", &["g +I[a, 1, 5]", "p +I[50]"]);
        job.feed("a,7\n", &["g +U[a, 2, 12]", "g -U[a, 1, 5]", "p +I[70]"]);
        job.feed("b,1\n", &["g +I[b, 1, 1]"]);
        assert!(job.end().is_empty());
    }
}

/// Makes `print` a sink that needs only the newest row of a key.
const KEY: &str = ", PRIMARY KEY (k) NOT ENFORCED";
const MINI_BATCH: &[&str] = &["--set", "table.exec.mini-batch.enabled=true"];

/// Counts and sums by key of a table `t` with these options, for a sink `g`.
fn sums(t: &str, key: &str) -> String {
    format!(
        "CREATE TABLE t (k STRING, v BIGINT) WITH ('format' = 'csv', {t});
         CREATE TABLE g (k STRING, n BIGINT, s BIGINT{key}) WITH ('connector' = 'print', 'print-identifier' = 'g');
         INSERT INTO g SELECT k, COUNT(*), SUM(v) FROM t GROUP BY k;"
    )
}

/// Of a running GROUP BY leaves a change for each row, or one for each key of a block where the sink needs no more or
/// the job wants it so. The rows at the end are the same.
#[test]
fn changes_are_folded_for_each_block() {
    let scratch = Scratch::new("folded");
    let file = scratch.write("t.csv", "a,1\na,2\nb,3\na,4\nb,5\n");
    // How large blocks are by the table, if it says so, and by the job.
    let blocks = [("", "auto", 2), ("", "1", 8), ("", "2", 6), ("1", "auto", 8), ("2", "4", 6), ("auto", "1", 2), ("5", "1", 2)];
    for (table, all, folded) in blocks {
        let own = if table.is_empty() { String::new() } else { format!(", 'block.size' = '{table}'") };
        let all = format!("block.size={all}");
        let cases: [(&str, &[&str], usize); 4] = [("", &[], 8), ("", MINI_BATCH, folded), (KEY, &[], folded), (KEY, MINI_BATCH, folded)];
        for (key, settings, changes) in cases {
            let job = scratch.write("job.sql", sums(&format!("'connector' = 'filesystem', 'path' = '{file}'{own}"), key));
            let output = finish(tidemill().args(["run", &job, "--quiet", "--parallelism", "1", "--set", &all]).args(settings));
            let case = format!("table {table:?}, job {all:?}, key {key:?}, {settings:?}: {}", text(&output));
            assert!(output.status.success(), "{case}");
            let printed = String::from_utf8_lossy(&output.stdout);
            assert_eq!(printed.lines().count(), changes, "{case}");
            assert_eq!(fold(&printed, "g"), ["a, 3, 7", "b, 2, 8"], "{case}");
        }
    }
}

/// Folding waits for nothing: a row that comes alone is a block of its own.
#[test]
fn changes_of_rows_that_come_alone_all_leave() {
    let scratch = Scratch::new("alone");
    let cases: [(&str, &[&str]); 3] = [("", &[]), ("", MINI_BATCH), (KEY, &[])];
    for (key, settings) in cases {
        let job = scratch.write("job.sql", sums("'connector' = 'stdin'", key));
        for parallelism in ["1", "2"] {
            let mut job = Fed::start(&job, &[settings, &["--parallelism", parallelism]].concat());
            job.feed("a,1\n", &["g +I[a, 1, 1]"]);
            job.feed("a,2\n", &["g +U[a, 2, 3]", "g -U[a, 1, 1]"]);
            job.feed("b,3\n", &["g +I[b, 1, 3]"]);
            job.feed("a,4\n", &["g +U[a, 3, 7]", "g -U[a, 2, 3]"]);
            assert!(job.end().is_empty());
        }
    }
}

/// A source may be told to hold rows back until a block of a fixed size is full.
#[test]
fn rows_linger_until_their_block_is_full_or_the_input_ends() {
    let scratch = Scratch::new("linger");
    let job = scratch.write("job.sql", sums("'connector' = 'stdin', 'block.size' = '3'", ""));
    for parallelism in ["1", "2"] {
        let mut job = Fed::start(&job, &[MINI_BATCH, &["--set", "block.linger=1 h", "--parallelism", parallelism]].concat());
        job.feed("a,1\n", &[]);
        job.feed("a,2\n", &[]);
        job.feed("b,3\n", &["g +I[a, 2, 3]", "g +I[b, 1, 3]"]);
        job.feed("a,4\n", &[]);
        assert_eq!(job.end(), ["g -U[a, 2, 3]", "g +U[a, 3, 7]"]);
    }
}
