//! Wrong values and wrong commands: exit code 2 and the nearest thing that works. And how commands
//! end when nothing is wrong with them: a reader that goes away, a job that was finished before.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use tidemill::runtime::script::{Script, Step};
use tidemill::runtime::{JobOptions, Stop};

use crate::failures::{TABLES, check, expect, run};
use crate::harness::{Scratch, finish, sink_lines, text, tidemill};

#[test]
fn the_nearest_value_is_named() {
    let job = |t: &str, s: &str| {
        format!("CREATE TABLE t (a BIGINT) WITH ({t}); CREATE TABLE s (a BIGINT) WITH ({s}); INSERT INTO s SELECT a FROM t;")
    };
    let (file, print) = ("'connector' = 'filesystem', 'path' = '${DIR}/t.csv', 'format' = ", "'connector' = 'print'");
    let cases = [
        (format!("{file}'cvs'"), print.to_string(), ["table 't'", "'cvs'", "did you mean 'csv'?"]),
        (format!("{file}'csv', 'on-error' = 'skp'"), print.to_string(), ["table 't'", "'skp'", "did you mean 'skip'?"]),
        (format!("{file}'csv', 'compression' = 'gzp'"), print.to_string(), ["table 't'", "'gzp'", "did you mean 'gzip'?"]),
        ("'connector' = 'filesytem'".into(), print.to_string(), ["table 't'", "'filesytem'", "did you mean 'filesystem'?"]),
        ("'connector' = 'datagen', 'generator' = 'trade'".into(), print.to_string(), ["table 't'", "'trade'", "did you mean 'trades'?"]),
        (format!("{file}'csv'"), "'connector' = 'prnt'".into(), ["table 's'", "'prnt'", "did you mean 'print'?"]),
        (format!("{file}'csv'"), "'connector' = 'stdout', 'format' = 'jsn'".into(), ["table 's'", "'jsn'", "did you mean 'json'?"]),
        (format!("{file}'csv'"), "'connector' = 'datagen'".into(), ["table 's'", "'datagen'", "only be read from"]),
        (
            format!("{file}'csv'"),
            "'connector' = 'http', 'url' = 'http://127.0.0.1:1', 'format' = 'json', 'block.size' = '5', 'batch.rows' = '7'".into(),
            ["table 's'", "'batch.rows' = '7'", "leave one out"],
        ),
    ];
    for (t, s, parts) in cases {
        check("1\n", &job(&t, &s), 2, &parts);
        check("1\n", &format!("SET 'execution.runtime-mode' = 'batch'; {}", job(&t, &s)), 2, &parts);
    }
}

#[test]
fn a_name_without_a_value() {
    let insert = format!("{TABLES}INSERT INTO s SELECT a FROM t LIMIT ${{LIMT}};");
    check("1,2\n", &insert, 2, &["${LIMT} has no value", "job.sql:3:", "-D LIMT=VALUE"]);
    let scratch = Scratch::new("define");
    scratch.write("t.csv", "1,2\n");
    expect(&run(&scratch, &insert, &["-D", "LIMIT=1"]), 2, &["-D LIMT=VALUE", "there is a value for LIMIT"]);
    expect(&run(&scratch, &insert, &["-D", "LIMT=1"]), 0, &[]);
    expect(&run(&scratch, &format!("-- ${{OTHER}} is for later\n{TABLES}INSERT INTO s SELECT a FROM t;"), &[]), 0, &[]);
}

#[test]
fn values_out_of_range() {
    let insert = format!("{TABLES}INSERT INTO s SELECT a FROM t;");
    let cases: [(&[&str], &[&str]); 9] = [
        (&["--parallelism", "0"], &["--parallelism", "1..=1024"]),
        (&["--parallelism", "-1"], &["--parallelism", "-1"]),
        (&["--parallelism", "100000"], &["--parallelism", "1..=1024"]),
        (&["--set", "parallelism.default=0"], &["'parallelism.default' = '0'", "from 1 to 1024"]),
        (&["--set", "block.size=0"], &["'block.size' = '0'", "from 1 to"]),
        (&["--set", "block.size=-7"], &["'block.size' = '-7'", "from 1 to"]),
        (&["--set", "block.size=99999999999999999999"], &["'block.size'", "from 1 to"]),
        (&["--memory", "1kb"], &["'memory.limit' = '1kb'", "at least 64 mb"]),
        (&["--set", "execution.checkpointing.interval=0"], &["'execution.checkpointing.interval' = '0'", "at least 1 ms"]),
    ];
    for (arguments, parts) in cases {
        let scratch = Scratch::new("range");
        scratch.write("t.csv", "1,2\n");
        expect(&run(&scratch, &insert, arguments), 2, parts);
    }
    expect(&finish(tidemill().args(["bench", "job.sql", "--runs", "0"])), 2, &["--runs"]);
}

/// What DataFusion and Arrow put in front of their messages.
const KINDS: &[&str] = &["Arrow error", "Compute error", "Cast error", "Error during", "Execution error", "External", "not implemented"];

#[test]
fn failures_are_told_in_our_words() {
    let text_table = TABLES.replace("t (a BIGINT, b BIGINT)", "t (a STRING, b STRING)");
    let decimals = TABLES.replace("s (a BIGINT)", "s (a DECIMAL(38, 0))");
    let cases = [
        (TABLES, "SELECT a / b FROM t", ["division by zero", "NULLIF"]),
        (TABLES, "SELECT a FROM t WHERE a % b > 0", ["division by zero", "NULLIF"]),
        (TABLES, "SELECT SUM(9223372036854775807 - b + a - a) FROM t", ["a SUM overflows BIGINT", "DECIMAL(38, 0)"]),
        (TABLES, "SELECT SUM(DISTINCT 9223372036854775807 - a) FROM t", ["a SUM overflows BIGINT", "DECIMAL(38, 0)"]),
        (text_table.as_str(), "SELECT CAST(CONCAT(a, 'x') AS BIGINT) FROM t", ["cannot cast '1x' to BIGINT", "TRY_CAST"]),
        (
            decimals.as_str(),
            "SELECT CAST('99999999999999999999999999999999999999' AS DECIMAL(38, 0)) * CAST(a + 9 AS DECIMAL(10, 0)) FROM t",
            ["does not fit", "CAST to a wider type"],
        ),
    ];
    for (tables, query, parts) in cases {
        for mode in ["streaming", "batch"] {
            let scratch = Scratch::new("failing");
            scratch.write("t.csv", "1,0\n2,0\n");
            let mode = format!("execution.runtime-mode={mode}");
            let output = run(&scratch, &format!("{tables}INSERT INTO s {query};"), &["--set", &mode]);
            expect(&output, 1, &parts);
            for kind in KINDS {
                assert!(!text(&output).contains(kind), "{mode}: {query}: {kind:?} in\n{}", text(&output));
            }
        }
    }
}

#[test]
fn a_table_is_named_once() {
    let insert = format!("{TABLES}INSERT INTO s SELECT a FROM t;");
    for mode in ["streaming", "batch"] {
        let scratch = Scratch::new("once");
        let mode = format!("execution.runtime-mode={mode}");
        let output = run(&scratch, &insert, &["--set", &mode]);
        expect(&output, 1, &["table 't': there is no file or directory", "t.csv"]);
        assert_eq!(text(&output).matches("table 't'").count(), 1, "{}", text(&output));
    }
}

#[test]
fn event_time_that_is_none_is_called_by_its_type() {
    let over = |column: &str| format!("{TABLES}INSERT INTO s SELECT SUM(b) OVER (PARTITION BY b ORDER BY {column}) FROM t;");
    check("1,2\n", &over("a"), 2, &["event time", "column 'a' is BIGINT here", "TO_TIMESTAMP_LTZ"]);
    let stamped = over("a").replace("t (a BIGINT,", "t (a TIMESTAMP(3),");
    check("2020-01-01 00:00:00,2\n", &stamped, 2, &["column 'a' is an ordinary TIMESTAMP(3) here", "WATERMARK FOR a"]);
}

#[test]
fn a_finished_job_says_that_it_is_finished() {
    let scratch = Scratch::new("finished");
    scratch.write("t.csv", "1,2\n");
    let file = scratch.write(
        "job.sql",
        "CREATE TABLE t (a BIGINT, b BIGINT) WITH ('connector' = 'filesystem', 'path' = '${DIR}/t.csv', 'format' = 'csv');
         CREATE TABLE f (a BIGINT) WITH ('connector' = 'filesystem', 'path' = '${DIR}/out', 'format' = 'csv');
         INSERT INTO f SELECT a FROM t;",
    );
    let job = |more: &[&str]| {
        let mut command = tidemill();
        command.args(["run", &file, "--state-dir", &scratch.at("state"), "-D"]);
        finish(command.arg(format!("DIR={}", scratch.path().display())).args(more))
    };
    expect(&job(&[]), 0, &["finished"]);
    expect(&job(&[]), 0, &["an earlier run", "finished the job", "--fresh"]);
    assert_eq!(sink_lines(&scratch.path().join("out")), ["1"]);
    expect(&job(&["--fresh"]), 0, &["finished"]);
    assert_eq!(sink_lines(&scratch.path().join("out")), ["1", "1"], "begun anew, it writes its rows again");
}

/// Of files alone it is known that nothing was written. Who believed it of a database and ran the job again had rows there twice.
#[test]
fn a_batch_that_is_stopped_says_what_is_left_of_it() {
    let scratch = Scratch::new("stopped");
    let t = scratch.write("t.csv", "1\n2\n");
    let files = format!("'connector' = 'filesystem', 'path' = '{}', 'format' = 'csv'", scratch.at("out"));
    let others = "'connector' = 'blackhole'".to_string();
    let cases =
        [(files, "stopped before the end; nothing was written"), (others, "may have got rows already, which another run writes again")];
    for (sink, part) in cases {
        let sql = format!(
            "CREATE TABLE t (a BIGINT) WITH ('connector' = 'filesystem', 'path' = '{t}', 'format' = 'csv');
             CREATE TABLE s (a BIGINT) WITH ({sink});
             INSERT INTO s SELECT a FROM t;"
        );
        let batch = BTreeMap::from([("execution.runtime-mode".to_string(), "batch".to_string())]);
        let mut script = Script::new("stopped", sql, batch);
        let steps = script.steps().expect("a job");
        let [Step::Run(inserts, settings)] = &steps[..] else { panic!("only an insert") };
        let stop = Stop::default();
        stop.stop();
        let error = script.run(inserts, settings, &JobOptions::default(), &stop, |_| {}).expect_err("it was stopped").to_string();
        assert!(error.contains("INSERT INTO s: ") && error.contains(part), "{error}");
    }
}

/// The reader of standard output is gone before the command writes: it ends by SIGPIPE, without a word.
#[test]
fn a_reader_that_goes_away_ends_the_command() {
    let scratch = Scratch::new("pipe");
    scratch.write("t.csv", "1,2\n3,4\n");
    let insert =
        scratch.write("job.sql", TABLES.replace("${DIR}", &scratch.path().display().to_string()) + "INSERT INTO s SELECT a FROM t;");
    let commands: [&[&str]; 5] =
        [&["completions", "bash"], &["reference"], &["explain", &insert], &["run", &insert, "--quiet"], &["sql", "SELECT 1"]];
    for arguments in commands {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let child = tidemill().args(arguments).stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped()).spawn();
        let output = child.expect("starting tidemill").wait_with_output().expect("waiting for tidemill");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(13), "{arguments:?}: {:?}\n{errors}", output.status);
        assert!(errors.is_empty(), "{arguments:?}: {errors}");
    }
}

#[test]
fn tables_are_described() {
    let tables = "CREATE TABLE t (id INT NOT NULL, ts TIMESTAMP(3), twice AS id * 2, PRIMARY KEY (id) NOT ENFORCED, WATERMARK FOR ts AS ts) WITH ('connector' = 'print');";
    let output = finish(tidemill().args(["sql", &format!("{tables} DESCRIBE t; SHOW TABLES;")]));
    expect(&output, 0, &[]);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<Vec<&str>> = shown.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["name", "type", "null", "key", "extras", "watermark"], "{shown}");
    assert_eq!(lines[2], ["id", "INT", "FALSE", "PRI"], "{shown}");
    assert_eq!(lines[3], ["ts", "TIMESTAMP(3)", "TRUE", "ts"], "{shown}");
    assert_eq!((lines[4][0], &lines[4][lines[4].len() - 4..]), ("twice", &["AS", "id", "*", "2"][..]), "{shown}");
    assert_eq!(lines[5], ["t"], "{shown}");
}
