//! What runs a stream: our operators only. DataFusion's hold rows back until 8,192 have gathered, so
//! the first row would wait for the last; the plans are looked at, and a job is fed row by row. (That
//! the code could not do otherwise is a test of the `runtime` crate.)

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::golden::jobs;
use crate::harness::{Background, Scratch, finish, root, text, tidemill};

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
        let mut command = tidemill();
        command.args(["run", &job, "--quiet", "--parallelism", parallelism]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starting tidemill");
        let mut child = Background(child);
        let mut input = child.0.stdin.take().expect("piped");
        let lines = lines(&mut child);
        let mut feed = |row: &str, expect: &[&str]| {
            input.write_all(row.as_bytes()).and_then(|()| input.flush()).expect("the job reads");
            let mut found: Vec<String> = Vec::new();
            for _ in expect {
                // Not a bound on time: a row that is held back never comes.
                let line = lines.recv_timeout(Duration::from_secs(60));
                let line = line.unwrap_or_else(|_| panic!("{row:?} was sent and only {found:?} came out (parallelism {parallelism})"));
                let (sink, change) = line.split_once("> ").expect("a line of a print sink");
                found.push(format!("{} {change}", sink.split(':').next().expect("split gives one at least")));
            }
            found.sort();
            assert_eq!(found, expect, "parallelism {parallelism}");
        };
        feed("a,5\n", &["g +I[a, 1, 5]", "p +I[50]"]);
        feed("a,7\n", &["g +U[a, 2, 12]", "g -U[a, 1, 5]", "p +I[70]"]);
        feed("b,1\n", &["g +I[b, 1, 1]"]);
        drop(input);
        let (code, errors) = child.end();
        assert_eq!(code, Some(0), "{errors}");
    }
}
