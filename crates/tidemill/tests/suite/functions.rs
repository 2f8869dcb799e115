//! User functions: programs of their own, well and badly behaved, and Rust functions of an embedding
//! program. That their results do not depend on how a job is run is shown by the golden jobs `process`.

use std::collections::BTreeMap;
use std::process::Command;

use tidemill::operator::OperatorError;
use tidemill::process::{KeyContext, PerRow, Row, RowFunction, ScalarValue, Setup, ValueState, factory};
use tidemill::runtime::script::{Script, Step};
use tidemill::runtime::{JobOptions, Stop};

use crate::failures::{TABLES, expect, run};
use crate::harness::{Scratch, finish, root, sink_lines, text, tidemill};
use crate::serve::clients::python;

/// The statement that makes `name` of one of the binary's own functions.
fn create(name: &str, signature: &str, own: &str, options: &str) -> String {
    let binary = env!("CARGO_BIN_EXE_tidemill");
    let with = if options.is_empty() { String::new() } else { format!(" WITH ({options})") };
    format!("CREATE FUNCTION {name} {signature} LANGUAGE PROCESS AS '\"{binary}\" function {own}'{with};\n")
}

/// A job over ten numbers with a function `f` of one, which calls it.
#[track_caller]
fn check(own: &str, options: &str, query: &str, code: i32, parts: &[&str]) {
    let scratch = Scratch::new("function");
    scratch.write("t.csv", (0..10).map(|n| format!("{n},{}\n", n % 2)).collect::<String>());
    let sql = format!("{TABLES}{}{query};", create("f", "(a BIGINT) RETURNS BIGINT", own, options));
    expect(&run(&scratch, &sql, &[]), code, parts);
    let batch = format!("SET 'execution.runtime-mode' = 'batch';\n{sql}");
    expect(&run(&scratch, &batch, &[]), code, parts);
}

#[test]
fn functions_that_go_wrong() {
    let insert = "INSERT INTO s SELECT f(a) FROM t";
    let one = "'batch.rows' = '1'";
    check("double", one, insert, 0, &[]);
    check("die", one, insert, 1, &["Process f", "(exit status: 3)", "function die", "\n  the second message is too much"]);
    // What it says to people is passed on as well.
    check("die", one, insert, 1, &["function f: the second message is too much"]);
    check("hang", "'timeout' = '200 ms'", insert, 1, &["Process f", "within 200ms", "option 'timeout'", "function hang"]);
    check("garbage", "", insert, 1, &["it wrote \"Hello, I\" to its standard output, which is for Arrow IPC alone"]);
    check("short", "", insert, 1, &["and answered with", "one value a row"]);
    check("version", "", insert, 1, &["it speaks version 2 of the protocol, and this program version 1"]);
    check("copy", "", insert, 1, &["its answers have the columns (), and those declared are (f BIGINT)"]);
    check("nothing", "", insert, 1, &["there is no function 'nothing' to try"]);
}

#[test]
fn calls_that_cannot_be_made() {
    let cases = [
        ("INSERT INTO s SELECT SUM(f(a)) FROM t", "not in an aggregate function or in GROUP BY; compute it first: FROM (SELECT *, f("),
        ("INSERT INTO s SELECT x.a FROM t AS x JOIN t AS y ON f(x.a) = f(y.b)", "not in the condition of a join"),
        ("INSERT INTO s SELECT a FROM t ORDER BY f(a) LIMIT 3", "not in ORDER BY"),
        ("INSERT INTO s SELECT SUM(a) OVER (ORDER BY f(b)) FROM t", "not in a function OVER a window"),
        ("CREATE TABLE u (a BIGINT, c AS f(a)) WITH ('connector' = 'print')", "not in the declaration of a table"),
        ("INSERT INTO s SELECT a FROM f(TABLE t)", "function f gives a value, not a table"),
        ("INSERT INTO s SELECT a FROM g(TABLE t)", "there is no function of tables g"),
        ("INSERT INTO s SELECT f(a, b) FROM t", "f"),
        ("CREATE FUNCTION f RETURNS INT LANGUAGE PROCESS AS 'x'", "there is a function f already"),
        ("CREATE FUNCTION upper (a STRING) RETURNS STRING LANGUAGE PROCESS AS 'x'", "UPPER is a built-in function"),
        ("DROP FUNCTION g", "there is no function g that CREATE FUNCTION has made"),
        ("DROP FUNCTION f; INSERT INTO s SELECT f(a) FROM t", "there is no function F"),
    ];
    for (query, part) in cases {
        check("double", "", query, 2, &[part]);
    }
    let insert = "INSERT INTO s SELECT f(a) FROM t";
    check("double", "'timeouts' = '1 s'", insert, 2, &["function 'f'", "'timeouts'", "did you mean 'timeout'?"]);
    check("double", "'processes' = '0'", insert, 2, &["'processes' = '0'", "expected 1 to 256"]);
    let scratch = Scratch::new("function-program");
    scratch.write("t.csv", "1,2\n");
    let missing = format!("{TABLES}CREATE FUNCTION f (a BIGINT) RETURNS BIGINT LANGUAGE PROCESS AS 'no-such-program x'; {insert};");
    expect(&run(&scratch, &missing, &[]), 2, &["function 'f'", "there is no program 'no-such-program'"]);
}

#[test]
fn where_calls_can_be_made() {
    let sql = create("f", "(a BIGINT) RETURNS BIGINT", "double", "");
    let ask = |query: &str| {
        let output = finish(tidemill().args(["sql", &format!("{sql}{query}"), "--output", "csv"]));
        assert!(output.status.success(), "{query}: {}", text(&output));
        let mut rows: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().skip(1).map(str::to_string).collect();
        rows.sort();
        rows.join(";")
    };
    assert_eq!(ask("SELECT f(21)"), "42");
    assert_eq!(ask("SELECT f(f(1)) + f(1)"), "6");
    assert_eq!(ask("SELECT SUM(x) FROM (SELECT f(a) AS x FROM (VALUES (1), (2), (3)) AS t (a))"), "12");
    assert_eq!(ask("SELECT k, f(SUM(a)) FROM (VALUES (1, 1), (1, 2), (2, 5)) AS t (k, a) GROUP BY k HAVING f(SUM(a)) < 8"), "1,6");
    assert_eq!(ask("SELECT CASE WHEN a > 1 THEN f(a) ELSE a END FROM (VALUES (1), (2)) AS t (a) WHERE f(a) IN (2, 4)"), "1;4");
}

/// State that a process keeps as a whole is gone on with at the same parallelism only.
#[test]
fn opaque_state() {
    let scratch = Scratch::new("opaque");
    scratch.write("t.csv", (0..60).map(|n| format!("{n},{}\n", n % 5)).collect::<String>());
    let sql = format!(
        "{}CREATE TABLE t (a BIGINT, b BIGINT) WITH ('connector' = 'filesystem', 'path' = '${{DIR}}/t.csv', 'format' = 'csv');
         CREATE TABLE o (b BIGINT, n BIGINT) WITH ('connector' = 'filesystem', 'path' = '${{DIR}}/out', 'format' = 'csv');
         INSERT INTO o SELECT b, n FROM f(TABLE t PARTITION BY b);",
        create("f", "RETURNS TABLE (n BIGINT)", "count-opaque", "'batch.rows' = '7'")
    );
    let state = scratch.at("state");
    let stopping = ["--set", "block.size=3", "--set", "debug.checkpoint-blocks=2", "--set", "debug.abort-after-checkpoints=1"];
    let mut arguments = vec!["--state-dir", &state, "--parallelism", "2"];
    assert_eq!(run(&scratch, &sql, &[&arguments[..], &stopping[..]].concat()).status.code(), Some(137));
    arguments[3] = "3";
    expect(&run(&scratch, &sql, &arguments), 1, &["kept as a whole by each of 2 processes", "go on with --parallelism 2"]);
    arguments[3] = "2";
    expect(&run(&scratch, &sql, &arguments), 0, &[]);
    let mut counts: Vec<String> = (0..5).flat_map(|b| (1..=12).map(move |n| format!("{b},{n}"))).collect();
    counts.sort();
    assert_eq!(sink_lines(&scratch.path().join("out")), counts);
}

#[test]
fn the_example_in_python() {
    let Some(python) = python() else { return };
    let mut command: Command = tidemill();
    command.current_dir(root()).args(["run", "examples/functions/functions.sql", "--quiet", "-D"]);
    command.arg(format!("PYTHON={}", python.display())).env("PYTHONDONTWRITEBYTECODE", "1");
    let output = finish(&mut command);
    assert!(output.status.success(), "{}", text(&output));
    // Workers write at once, and a job with several names them.
    let line = |l: &str| l.split_once("> ").map(|(who, row)| format!("{} {row}", who.split(':').next().unwrap_or_default()));
    let mut lines: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().filter_map(line).collect();
    lines.sort();
    assert_eq!(
        lines,
        [
            "notes +I[attic, window rattles again, 3]",
            "notes +I[cellar, all quiet, 2]",
            "notes +I[cellar, door open, 2]",
            "silences +I[attic, 5.0, 2024-05-01T10:00:06]",
            "silences +I[cellar, 3.75, 2024-05-01T10:00:05.250]",
        ]
    );
}

/// Gives for each key the difference to the value before.
struct Differences {
    before: Option<ValueState<i64>>,
}

impl RowFunction for Differences {
    fn open(&mut self, setup: &mut Setup<'_>) -> Result<(), OperatorError> {
        self.before = Some(setup.value("before"));
        Ok(())
    }

    fn on_row(&mut self, row: Row<'_>, context: &mut KeyContext<'_, '_>) -> Result<(), OperatorError> {
        let before = self.before.expect("opened");
        let value = row.i64(0);
        let difference = value.zip(context.get(before).copied()).map(|(now, before)| now - before);
        context.set(before, value);
        context.emit([ScalarValue::Int64(difference)])
    }
}

/// A program that embeds the engine gives a job a function of its own.
#[test]
fn a_function_in_rust() {
    for (mode, parallelism) in [("streaming", "1"), ("streaming", "3"), ("batch", "2")] {
        let scratch = Scratch::new("embedded");
        let t = scratch.write("t.csv", (0..20).map(|n| format!("{},{},2024-01-01 00:00:{n:02}\n", n * n, n % 2)).collect::<String>());
        let sql = format!(
            "CREATE TABLE t (a BIGINT, b BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
             WITH ('connector' = 'filesystem', 'path' = '{t}', 'format' = 'csv');
             CREATE TABLE o (b BIGINT, d BIGINT, ts TIMESTAMP(3)) WITH ('connector' = 'filesystem', 'path' = '{}', 'format' = 'csv');
             INSERT INTO o SELECT * FROM differences(TABLE t PARTITION BY b, on_time => DESCRIPTOR(ts));",
            scratch.at("out")
        );
        let settings = [("execution.runtime-mode", mode), ("parallelism.default", parallelism)];
        let mut script =
            Script::new("embedded", sql, settings.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect::<BTreeMap<_, _>>());
        let columns = vec![arrow::datatypes::Field::new("d", arrow::datatypes::DataType::Int64, true)];
        script.register_process("differences", factory(columns, || PerRow::new(Differences { before: None }))).expect("a new name");
        for step in script.steps().expect("a job") {
            let Step::Run(inserts, settings) = step else { panic!("only an insert") };
            script.run(&inserts, &settings, &JobOptions::default(), &Stop::default(), |_| {}).expect("a run");
        }
        // (n + 2)² − n² = 4n + 4.
        let difference = |n: i64| if n < 2 { String::new() } else { (4 * (n - 2) + 4).to_string() };
        let mut rows: Vec<String> = (0..20).map(|n| format!("{},{},2024-01-01 00:00:{n:02}", n % 2, difference(n))).collect();
        rows.sort();
        assert_eq!(sink_lines(&scratch.path().join("out")), rows, "{mode}, {parallelism}");
    }
}
