//! What goes wrong is said: wrong SQL, wrong options, bad data, missing files, full disks, damaged
//! state; with the right exit code. And what the commands other than `run` print.

mod end;
pub mod peers;

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::harness::{Background, Scratch, finish, newest_checkpoint, root, sink_lines, text, tidemill, wait_for};
use crate::not_run::not_run;

/// Table `t` reads `t.csv`; the sink `s` prints one number.
pub const TABLES: &str = "CREATE TABLE t (a BIGINT, b BIGINT) WITH ('connector' = 'filesystem', 'path' = '${DIR}/t.csv', 'format' = 'csv');
CREATE TABLE s (a BIGINT) WITH ('connector' = 'print');
";

/// Runs a job in a directory of its own, which `${DIR}` stands for.
pub fn run(scratch: &Scratch, sql: &str, arguments: &[&str]) -> Output {
    let job = scratch.write("job.sql", sql);
    let mut command = tidemill();
    command.args(["run", &job, "--quiet", "-D"]).arg(format!("DIR={}", scratch.path().display())).args(arguments);
    finish(&mut command)
}

/// The exit code, and parts of standard error.
#[track_caller]
pub fn expect(output: &Output, code: i32, parts: &[&str]) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{}", text(output));
    for part in parts {
        assert!(errors.contains(part), "{part:?} is not in:\n{errors}");
    }
    assert!(!errors.contains("panicked"), "{errors}");
}

/// A job over `t.csv` ends with `code`, and standard error contains all parts.
#[track_caller]
pub fn check(t: impl AsRef<[u8]>, sql: &str, code: i32, parts: &[&str]) {
    let scratch = Scratch::new("failure");
    scratch.write("t.csv", t);
    expect(&run(&scratch, sql, &[]), code, parts);
}

/// A wrong statement behind [`TABLES`]: exit code 2, `word` is underlined, and the parts are said.
#[track_caller]
fn check_sql(statement: &str, word: &str, parts: &[&str]) {
    check_place(&format!("{TABLES}{statement}"), "3", word, parts);
}

/// A job ends with exit code 2, `word` is underlined in this line, and the parts are said.
#[track_caller]
fn check_place(sql: &str, line: &str, word: &str, parts: &[&str]) {
    let scratch = Scratch::new("sql");
    scratch.write("t.csv", "1,2\n");
    let output = run(&scratch, sql, &[]);
    expect(&output, 2, parts);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines: Vec<&str> = errors.lines().collect();
    let at = lines.iter().position(|l| l.contains('^')).unwrap_or_else(|| panic!("nothing is underlined:\n{errors}"));
    let above = lines[at - 1].chars().zip(lines[at].chars());
    let underlined: String = above.filter(|(_, mark)| *mark == '^').map(|(c, _)| c).collect();
    assert_eq!(underlined, word, "\n{errors}");
    assert!(errors.contains(&format!("job.sql:{line}:")), "the place is not named:\n{errors}");
}

#[test]
fn wrong_sql_is_underlined() {
    check_sql("INSERT INTO s SELECT c FROM t;", "c", &["there is no column c", "a, b"]);
    check_sql("INSERT INTO s SELECT amont FROM (SELECT a AS amount FROM t);", "amont", &["did you mean amount?"]);
    check_sql("INSERT INTO s SELECT a FROM tt;", "tt", &["no table or view tt", "did you mean t?"]);
    check_sql("INSERT INTO ss SELECT a FROM t;", "ss", &["no table or view ss", "did you mean s?"]);
    check_sql("INSERT INTO s SELECT UPER(a) FROM t;", "UPER", &["no function UPER", "did you mean UPPER?"]);
    check_sql("INSRT INTO s SELECT a FROM t;", "INSRT", &["did you mean INSERT?"]);
    check_sql("INSERT INTO s SELECT a FORM t;", "t", &["expected the end of the statement"]);
    check_sql("CREATE TABLE x (a BIGNT) WITH ('connector' = 'print');", "BIGNT", &["did you mean BIGINT?"]);
    check_sql("INSERT INTO s SELECT a FROM t WHERE a = 'x;", "'", &["never closed"]);
    check_sql("INSERT INTO s SELECT 'x' FROM t;", "'x'", &["column a of table s is BIGINT", "CAST"]);
    check_sql("INSERT INTO s SELECT a, b FROM t;", "INSERT INTO s SELECT a, b FROM t", &["gives 2 columns, table s takes 1"]);
    check_sql("CREATE TABLE t (a BIGINT) WITH ('connector' = 'print');", "t", &["there is a table t already"]);
    check_sql("UPDATE t SET a = 1;", "UPDATE", &["not supported"]);
    check_sql("CREATE FUNCTION f AS 'x';", "CREATE FUNCTION f AS 'x'", &["a class of Java", "LANGUAGE PROCESS"]);
    check_sql(
        "CREATE FUNCTION f AS 'x' LANGUAGE PYTHON;",
        "PYTHON",
        &["no Python runs in this process", "LANGUAGE PROCESS AS 'python3 f.py'"],
    );
}

#[test]
fn wrong_options_are_named() {
    let source = |options: &str| {
        format!(
            "CREATE TABLE t (a BIGINT) WITH ({options});
             CREATE TABLE s (a BIGINT) WITH ('connector' = 'print');
             INSERT INTO s SELECT a FROM t;"
        )
    };
    check("1\n", &source("'connector' = 'filesytem', 'path' = 'x', 'format' = 'csv'"), 2, &["'filesytem'", "filesystem"]);
    let misspelt = source("'connector' = 'filesystem', 'pth' = 'x', 'path' = '${DIR}/t.csv', 'format' = 'csv'");
    check("1\n", &misspelt, 2, &["table 't'", "'pth'", "did you mean 'path'?"]);
    check_place(&misspelt, "1", "'pth'", &["table 't'"]);
    let insert = format!("{TABLES}INSERT INTO s SELECT a FROM t;");
    check("1,2\n", &format!("SET 'block.sise' = '3';\n{insert}"), 2, &["'block.sise'", "did you mean 'block.size'?"]);
    check("1,2\n", &format!("SET 'block.size' = '0';\n{insert}"), 2, &["'block.size' = '0'", "from 1"]);
    let cases: [(&[&str], &[&str]); 7] = [
        (&["--set", "block.sise=3"], &["'block.sise'", "did you mean 'block.size'?"]),
        (&["--set", "block.size"], &["--set block.size", "KEY=VALUE"]),
        (&["--set", "execution.runtime-mode=btach"], &["'btach'", "streaming, batch"]),
        (&["--memory", "1xB"], &["'1xB'", "2 gb"]),
        (&["-D", "DIR"], &["DIR", "KEY=VALUE"]),
        (&["--frobnicate"], &["--frobnicate", "Usage"]),
        (&["--fresh"], &["--state-dir"]),
    ];
    for (arguments, parts) in cases {
        let scratch = Scratch::new("arguments");
        scratch.write("t.csv", "1,2\n");
        expect(&run(&scratch, &insert, arguments), 2, parts);
    }
}

#[test]
fn what_a_stream_cannot_do() {
    let job = |rest: &str| format!("{TABLES}{rest}");
    check_sql("INSERT INTO s SELECT a FROM t ORDER BY a;", "ORDER BY a", &["event-time column first", "batch"]);
    check_sql("INSERT INTO s SELECT a FROM t WHERE a > (SELECT b FROM t);", "> (SELECT", &["must have one row", "MAX", "LIMIT 1"]);
    check_sql(
        "INSERT INTO s SELECT a FROM t WHERE a > 5 OR a NOT IN (SELECT b FROM t);",
        "NOT IN (SELECT",
        &["NOT IN", "beneath OR", "EXISTS"],
    );
    check_sql(
        "INSERT INTO s SELECT CASE WHEN a IN (SELECT b FROM t) THEN 1 ELSE 0 END FROM t;",
        "IN (SELECT",
        &["IN (SELECT …)", "WHERE", "LEFT JOIN"],
    );
    check_sql("INSERT INTO s SELECT SUM(a) OVER (PARTITION BY b ORDER BY a) FROM t;", "ORDER BY a", &["event time", "WATERMARK"]);
    check_place(
        &job("CREATE TABLE f (a BIGINT, n BIGINT) WITH ('connector' = 'filesystem', 'path' = '${DIR}/out', 'format' = 'csv');
              INSERT INTO f SELECT a, COUNT(*) FROM t GROUP BY a;"),
        "4",
        "INTO f",
        &["table 'f'", "updates", "windows"],
    );
    // In batch mode its join would take unknown for true: rows would come that must not.
    check_place(
        &format!("SET 'execution.runtime-mode' = 'batch';{TABLES}INSERT INTO s SELECT a FROM t WHERE a > 5 OR a NOT IN (SELECT b FROM t);"),
        "3",
        "NOT IN (SELECT",
        &["beneath OR", "EXISTS"],
    );
    check(
        "",
        "SET 'execution.runtime-mode' = 'batch';
         CREATE TABLE t (a BIGINT) WITH ('connector' = 'datagen');
         CREATE TABLE s (a BIGINT) WITH ('connector' = 'blackhole');
         INSERT INTO s SELECT a FROM t;",
        2,
        &["table 't' has no end", "streaming"],
    );
}

#[test]
fn what_a_stream_cannot_do_with_event_time() {
    let refused = |query: &str, word: &str, parts: &[&str]| {
        let table = "CREATE TABLE e (k BIGINT, p TIMESTAMP(3), ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen');";
        check_place(&format!("{TABLES}{table}\nINSERT INTO s\n{query};"), "5", word, parts);
    };
    refused("SELECT NTILE(2) OVER (PARTITION BY k ORDER BY ts) FROM e", "NTILE", &["yet to come", "ROW_NUMBER", "batch"]);
    refused(
        "SELECT SUM(k) OVER (ORDER BY ts ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM e",
        "FOLLOWING",
        &["ends at CURRENT ROW", "LEAD", "batch"],
    );
    refused("SELECT SUM(k) OVER (ORDER BY ts GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM e", "GROUPS", &["supported are RANGE"]);
    refused("SELECT SUM(k) OVER (PARTITION BY k ORDER BY k) FROM e", "ORDER BY k", &["'k' is BIGINT"]);
    refused("SELECT SUM(k) OVER (PARTITION BY k ORDER BY ts DESC) FROM e", "ORDER BY ts", &["ascending", "batch"]);
    let windows = "INTERVAL '1' SECOND)) GROUP BY window_start, window_end";
    refused(&format!("SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE e, DESCRIPTOR(p), {windows}"), "DESCRIPTOR(p)", &["'p'", "WATERMARK FOR p"]);
    refused(
        &format!("SELECT COUNT(*) FROM TABLE(SESSION(TABLE e PARTITION BY k, DESCRIPTOR(ts), {windows}, GROUPING SETS ((k), ())"),
        "GROUPING SETS",
        &["SESSION", "TUMBLE", "batch"],
    );
}

/// Of several inserts the one is shown that cannot be planned; and of an insert, the view that it reads.
#[test]
fn which_of_several_inserts_it_is() {
    let job = |rest: &str| format!("{TABLES}{rest}");
    check_place(
        &job("INSERT INTO s SELECT a FROM t; -- ORDER BY b\nINSERT INTO s SELECT b FROM t\nORDER BY b;\nINSERT INTO s SELECT a FROM t;"),
        "5",
        "ORDER BY b",
        &["event-time column first"],
    );
    check_place(
        &job(
            "EXECUTE STATEMENT SET BEGIN\nINSERT INTO s SELECT a FROM t;\nINSERT INTO s SELECT a FROM t WHERE a = ANY (SELECT b FROM t);\nEND;",
        ),
        "5",
        "ANY (SELECT",
        &["MIN or MAX"],
    );
    check_place(
        &job(
            "CREATE VIEW v AS SELECT a FROM t WHERE a <> (SELECT b FROM t);\nCREATE VIEW w AS SELECT a FROM v;\nINSERT INTO s SELECT a FROM w;",
        ),
        "3",
        "<> (SELECT",
        &["must have one row"],
    );
}

#[test]
fn nothing_to_run() {
    check("", "", 2, &["runs nothing"]);
    check("1,2\n", TABLES, 2, &["runs nothing"]);
    let scratch = Scratch::new("missing-job");
    expect(&finish(tidemill().args(["run", &scratch.at("none.sql")])), 2, &["none.sql", "No such file"]);
}

#[test]
fn input_that_cannot_be_read() {
    let insert = format!("{TABLES}INSERT INTO s SELECT a FROM t;");
    let scratch = Scratch::new("missing-input");
    scratch.write("tt.csv", "1,2\n");
    expect(&run(&scratch, &insert, &[]), 1, &["t.csv", "did you mean", "tt.csv"]);

    let dir = scratch.path().join("t.csv");
    std::fs::create_dir(&dir).expect("a directory");
    let permit = |mode: &str| assert!(Command::new("chmod").arg(mode).arg(&dir).status().expect("the command `chmod`").success());
    permit("000");
    // The superuser may read everything, unless it gives that up.
    let plain = if std::fs::read_dir(&dir).is_ok() { Command::new("setpriv") } else { Command::new("env") };
    let mut humble = plain;
    if humble.get_program() == "setpriv" {
        humble.args(["--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search"]);
    }
    humble.arg(env!("CARGO_BIN_EXE_tidemill")).args(["run", &scratch.at("job.sql"), "-D"]);
    humble.arg(format!("DIR={}", scratch.path().display()));
    scratch.write("job.sql", &insert);
    if humble.get_program() == "setpriv" && Command::new("setpriv").arg("--version").output().is_err() {
        not_run("a directory without permission (this user may read everything, and setpriv is not installed)");
    } else {
        expect(&finish(&mut humble), 1, &["t.csv", "ermission denied"]);
    }
    permit("700");

    let lines: String = (0..20_000).map(|n| format!("{n},{n}\n")).collect();
    let whole = scratch.write("whole.csv", lines);
    let zipped = Command::new("gzip").args(["-c", &whole]).output().expect("the command `gzip`").stdout;
    scratch.write("cut.csv.gz", &zipped[..zipped.len() / 2]);
    let cut = insert.replace("t.csv", "cut.csv.gz");
    expect(&run(&scratch, &cut, &[]), 1, &["cut.csv.gz", "cut short"]);
    scratch.write("cut.csv.gz", &zipped);
    let output = run(&scratch, &cut, &[]);
    expect(&output, 0, &[]);
    assert_eq!(output.stdout.iter().filter(|b| **b == b'\n').count(), 20_000);
}

#[test]
fn input_that_is_odd() {
    check("", &format!("{TABLES}INSERT INTO s SELECT a FROM t;"), 0, &[]);
    let long = format!("{},y\n", "a".repeat(10_000_000));
    let scratch = Scratch::new("long");
    scratch.write("t.csv", long);
    let output = run(
        &scratch,
        &format!("{}INSERT INTO s SELECT CHAR_LENGTH(a) FROM t;", TABLES.replace("t (a BIGINT, b BIGINT)", "t (a STRING, b STRING)")),
        &[],
    );
    expect(&output, 0, &[]);
    assert!(text(&output).contains("+I[10000000]"), "{}", text(&output));
}

/// The bad row is the second.
const BAD: &str = "1,2\nx,4\n5,6\n";

#[test]
fn bad_rows() {
    let job = |options: &str| format!("{}INSERT INTO s SELECT a FROM t;", TABLES.replacen("'csv')", &format!("'csv'{options})"), 1));
    check(BAD, &job(""), 1, &["t.csv:2", "column 'a'", "'x' is not a BIGINT", "on-error"]);
    check("1,2\n3\n", &job(""), 1, &["t.csv:2"]);

    for mode in ["streaming", "batch"] {
        let scratch = Scratch::new("skip");
        scratch.write("t.csv", BAD);
        let metrics = scratch.at("metrics.json");
        let mode = format!("execution.runtime-mode={mode}");
        let output = run(&scratch, &job(", 'on-error' = 'skip'"), &["--metrics", &metrics, "--set", &mode]);
        expect(&output, 0, &[]);
        assert_eq!(output.stdout.iter().filter(|b| **b == b'\n').count(), 2, "{mode}: {}", text(&output));
        assert_eq!(sum(&read_json(&metrics), "bad_rows"), 1, "{mode}");
    }
    // And in the summary, which is not shown with --quiet.
    let scratch = Scratch::new("skip-summary");
    scratch.write("t.csv", BAD);
    let file = scratch.write("job.sql", job(", 'on-error' = 'skip'"));
    let shown = finish(tidemill().args(["run", &file, "-D"]).arg(format!("DIR={}", scratch.path().display())));
    expect(&shown, 0, &["1 unreadable", "finished"]);

    let scratch = Scratch::new("dead-letter");
    scratch.write("t.csv", BAD);
    let dead = "CREATE TABLE d (source STRING, place STRING, reason STRING, raw STRING)
                WITH ('connector' = 'filesystem', 'path' = '${DIR}/dead', 'format' = 'csv', 'csv.field-delimiter' = '|');";
    let output = run(&scratch, &format!("{dead}\n{}", job(", 'on-error' = 'dead-letter', 'dead-letter' = 'd'")), &[]);
    expect(&output, 0, &[]);
    let letters = sink_lines(&scratch.path().join("dead"));
    assert_eq!(letters.len(), 1, "{letters:?}");
    let fields: Vec<&str> = letters[0].split('|').collect();
    assert_eq!(fields.len(), 4, "{letters:?}");
    assert_eq!(fields[0], "t");
    assert!(fields[1].contains("t.csv:2"), "{letters:?}");
    assert!(fields[2].contains("'x' is not a BIGINT"), "{letters:?}");
    assert_eq!(fields[3].trim_matches('"'), "x,4");

    let batch = format!("SET 'execution.runtime-mode' = 'batch';\n{dead}\n{}", job(", 'on-error' = 'dead-letter', 'dead-letter' = 'd'"));
    check(BAD, &batch, 2, &["dead-letter", "streaming"]);
}

#[test]
fn bytes_that_are_no_text() {
    let tables = TABLES.replace("t (a BIGINT, b BIGINT)", "t (a STRING, b STRING)").replace("s (a BIGINT)", "s (a STRING)");
    let bad = b"1,2\nx\xff\xfe,y\n3,4\n";
    check(bad, &format!("{tables}INSERT INTO s SELECT a FROM t;"), 1, &["t.csv:2", "UTF-8"]);
    let scratch = Scratch::new("bytes");
    scratch.write("t.csv", bad);
    let to_dead = tables.replacen("'csv')", "'csv', 'on-error' = 'dead-letter', 'dead-letter' = 'd')", 1);
    let dead = "CREATE TABLE d (raw BYTES) WITH ('connector' = 'print', 'print-identifier' = 'd');";
    let output = run(&scratch, &format!("{dead}\n{to_dead}INSERT INTO s SELECT a FROM t;"), &[]);
    expect(&output, 0, &[]);
    let printed = text(&output);
    assert_eq!(printed.lines().filter(|l| l.starts_with('d')).count(), 1, "{printed}");
    assert_eq!(printed.lines().filter(|l| !l.starts_with('d')).count(), 2, "{printed}");
}

#[test]
fn values_that_cannot_be_computed() {
    let job = |query: &str| format!("{TABLES}INSERT INTO s SELECT {query} FROM t;");
    check("9223372036854775807,0\n1,0\n", &job("SUM(a)"), 1, &["SUM overflows BIGINT", "DECIMAL"]);
    check("7,0\n", &job("a / b"), 1, &["division by zero", "NULLIF"]);
    let text = TABLES.replace("t (a BIGINT, b BIGINT)", "t (a STRING, b STRING)");
    check(
        "12,x\nabc,x\n",
        &format!("{text}INSERT INTO s SELECT CAST(a AS BIGINT) FROM t;"),
        1,
        &["cannot cast 'abc' to BIGINT", "TRY_CAST"],
    );
    check("12,x\nabc,x\n", &format!("{text}INSERT INTO s SELECT TRY_CAST(a AS BIGINT) FROM t;"), 0, &[]);
}

/// A small disk; unmounted when dropped.
pub struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    /// Makes it large enough for what tests write.
    pub fn grow(&self) {
        self.remount("size=64m");
    }

    /// From now on nothing can be written to it.
    pub fn seal(&self) {
        self.remount("ro");
    }

    fn remount(&self, option: &str) {
        let done = Command::new("mount").arg("-o").arg(format!("remount,{option}")).arg(self.0).status();
        assert!(done.is_ok_and(|s| s.success()), "mounting the disk again with {option}");
    }

    /// Only the superuser may mount.
    pub fn mount(at: &'a Path) -> Option<Self> {
        std::fs::create_dir(at).expect("a directory");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "none"]).arg(at).output();
        mounted.is_ok_and(|o| o.status.success()).then_some(SmallDisk(at))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn output_that_cannot_be_written() {
    let sink = |path: &str| {
        format!(
            "{TABLES}CREATE TABLE f (a BIGINT, b BIGINT) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv');
             INSERT INTO f SELECT a, b FROM t;"
        )
    };
    check("1,2\n", &sink("${DIR}/t.csv/out"), 1, &["t.csv/out", "directory"]);

    let scratch = Scratch::new("metrics-nowhere");
    scratch.write("t.csv", "1,2\n");
    let nowhere = scratch.at("none/metrics.json");
    expect(&run(&scratch, &sink("${DIR}/out"), &["--metrics", &nowhere]), 1, &["metrics", "none/metrics.json"]);
    let below_file = scratch.at("t.csv/state");
    expect(&run(&scratch, &sink("${DIR}/out"), &["--state-dir", &below_file]), 1, &["state directory", "t.csv/state"]);

    let scratch = Scratch::new("full-disk");
    let at = scratch.path().join("disk");
    let Some(_disk) = SmallDisk::mount(&at) else {
        not_run("a full disk (mounting a small one takes a superuser)");
        return;
    };
    scratch.write("t.csv", (0..100_000).map(|n| format!("{n},{n}\n")).collect::<String>());
    expect(&run(&scratch, &sink("${DIR}/disk/out"), &[]), 1, &["table 'f'", "disk/out", "No space left"]);
    let left = std::fs::read_dir(&at).expect("the disk").count();
    assert_eq!(left, 0, "a job that failed shows no output, and without a state directory nothing goes on with hidden files");
}

/// The job ends with an error at the checkpoint that does not fit; with room it goes on from the last that did.
#[test]
fn checkpoints_on_a_full_disk() {
    let scratch = Scratch::new("full-state");
    let at = scratch.path().join("disk");
    let Some(disk) = SmallDisk::mount(&at) else {
        not_run("checkpoints on a full disk (mounting a small one takes a superuser)");
        return;
    };
    scratch.write("t.csv", (0..20_000).map(|n| format!("{},{n}\n", n % 10_000)).collect::<String>());
    let job = format!("{TABLES}INSERT INTO s SELECT SUM(n) FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a HAVING COUNT(*) = 2);");
    let state = scratch.at("disk/state");
    let arguments = [
        "--state-dir",
        &state,
        "--parallelism",
        "1",
        "--set",
        "block.size=100",
        "--set",
        "debug.checkpoint-blocks=3",
        "--set",
        "block.linger=0 ms",
    ];
    expect(&run(&scratch, &job, &arguments), 1, &["disk/state", "No space left"]);
    assert!(newest_checkpoint(Path::new(&state)).is_some(), "the first checkpoints fit");
    disk.grow();
    let output = run(&scratch, &job, &arguments);
    expect(&output, 0, &[]);
    let printed = text(&output);
    assert_eq!(printed.lines().last(), Some("+U[20000]"), "{printed}");
}

#[test]
fn state_directory_in_use() {
    let scratch = Scratch::new("in-use");
    let job = "CREATE TABLE t (a BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '100');
               CREATE TABLE s (a BIGINT) WITH ('connector' = 'blackhole');
               INSERT INTO s SELECT a FROM t;";
    let file = scratch.write("endless.sql", job);
    let state = scratch.at("state");
    let mut first = tidemill();
    first.args(["run", &file, "--quiet", "--state-dir", &state]).args(["--set", "execution.checkpointing.interval=20ms"]);
    let _first = Background::start(&mut first);
    wait_for("a checkpoint", || newest_checkpoint(Path::new(&state)).is_some());
    expect(&run(&scratch, job, &["--state-dir", &state]), 1, &["state", "another process is using it"]);
}

#[test]
fn damaged_state() {
    let scratch = Scratch::new("damaged");
    scratch.write("t.csv", (0..100).map(|n| format!("{n},{n}\n")).collect::<String>());
    let job = format!(
        "{TABLES}CREATE TABLE g (a BIGINT, n BIGINT) WITH ('connector' = 'blackhole');
         INSERT INTO g SELECT a, COUNT(*) FROM t GROUP BY a;"
    );
    let state = scratch.at("state");
    let crash = ["block.size=1", "debug.checkpoint-blocks=20", "debug.abort-after-checkpoints=1"].map(|s| ["--set", s]).concat();
    let arguments = [&["--state-dir", &state, "--parallelism", "1"][..], &crash].concat();
    let output = run(&scratch, &job, &arguments);
    assert_eq!(output.status.code(), Some(137), "{}", text(&output));
    let checkpoint = scratch.path().join("state").join(format!("chk-{}", newest_checkpoint(Path::new(&state)).expect("a checkpoint")));
    let mut files: Vec<_> = std::fs::read_dir(&checkpoint).expect("the checkpoint").map(|e| e.expect("a directory entry").path()).collect();
    files.sort();
    assert!(files.len() >= 2, "a manifest and state: {files:?}");
    for file in &files {
        let content = std::fs::read(file).expect("a file of the checkpoint");
        let name = file.file_name().expect("a file").to_string_lossy();
        for damage in [&b"garbage"[..], &[], &content[..content.len() - 3]] {
            std::fs::write(file, damage).expect("damaging the state");
            expect(&run(&scratch, &job, &["--state-dir", &state]), 1, &[&name, "chk-", "--fresh"]);
        }
        std::fs::write(file, &content).expect("mending the state");
    }
    expect(&run(&scratch, &job, &["--state-dir", &state]), 0, &[]);
    // Of a version to come: what is advised helps.
    scratch.write("state/VERSION", "99\n");
    expect(&run(&scratch, &job, &["--state-dir", &state]), 1, &["layout 99", "--fresh"]);
    expect(&run(&scratch, &job, &["--state-dir", &state, "--fresh"]), 0, &[]);
}

pub fn read_json(path: &str) -> Value {
    let content = std::fs::read_to_string(path).expect("the metrics");
    serde_json::from_str(&content).unwrap_or_else(|e| panic!("the metrics are no JSON: {e}\n{content}"))
}

/// A number of all operators together.
fn sum(metrics: &Value, key: &str) -> u64 {
    metrics["nodes"].as_array().expect("nodes").iter().map(|n| n[key].as_u64().unwrap_or_else(|| panic!("{key} in {n}"))).sum()
}

#[test]
fn metrics() {
    let scratch = Scratch::new("metrics");
    scratch.write("t.csv", "1,2\n3,4\n5,6\n");
    let file = scratch.at("metrics.json");
    expect(
        &run(&scratch, &format!("{TABLES}INSERT INTO s SELECT a FROM t WHERE a > 1;"), &["--metrics", &file, "--parallelism", "2"]),
        0,
        &[],
    );
    let one = read_json(&file);
    assert_eq!(one["job"], "job");
    assert_eq!(one["mode"], "streaming");
    assert_eq!(one["parallelism"], 2);
    assert_eq!(one["finished"], true);
    assert_eq!((&one["rows_in"], &one["rows_out"]), (&Value::from(3), &Value::from(2)));
    for key in ["elapsed_s", "user_s", "sys_s", "peak_memory_bytes", "rows_per_s", "checkpoints"] {
        assert!(one[key].is_number(), "{key} in {one}");
    }
    for key in ["p50", "p99", "p999", "max"] {
        assert!(one["latency_ms"][key].is_number(), "{key} in {one}");
    }
    for key in ["cache", "disk", "network"] {
        assert!(one["read"][key].is_number(), "{key} in {one}");
    }
    for (key, expect) in [("bytes", None), ("bad_rows", Some(0)), ("late_rows", Some(0)), ("state_entries", None), ("state_bytes", None)] {
        let found = sum(&one, key);
        assert!(expect.is_none_or(|e| e == found), "{key}: {found}");
    }
    let names: Vec<_> = one["nodes"].as_array().expect("nodes").iter().map(|n| n["name"].as_str().expect("a name")).collect();
    assert!(names.contains(&"Source t") && names.contains(&"Sink s"), "{names:?}");

    let two = format!("{TABLES}INSERT INTO s SELECT a FROM t; SET 'block.size' = '3'; INSERT INTO s SELECT b FROM t;");
    expect(&run(&scratch, &two, &["--metrics", &file]), 0, &[]);
    assert_eq!(read_json(&file).as_array().expect("an array of several jobs").len(), 2);
}

/// The peak of a job was once that of whoever started it, if that was higher: a test of a bound on memory failed because tests before
/// it had taken 450 MB themselves.
#[test]
fn the_peak_is_that_of_the_job_and_not_of_who_started_it() {
    if !Path::new("/proc/self/status").exists() {
        return not_run("peak memory (this system has no /proc)");
    }
    let held = 256 << 20;
    // Written to, or the system would not give it.
    drop(std::hint::black_box(vec![1u8; held]));
    let scratch = Scratch::new("peak");
    scratch.write("t.csv", "1,2\n");
    let file = scratch.at("metrics.json");
    expect(&run(&scratch, &format!("{TABLES}INSERT INTO s SELECT a FROM t;"), &["--metrics", &file]), 0, &[]);
    let peak = read_json(&file)["peak_memory_bytes"].as_u64().expect("a number");
    assert!((1..held as u64).contains(&peak), "{peak} bytes for a row");
}

#[test]
fn late_rows_are_counted() {
    let scratch = Scratch::new("late");
    scratch.write("t.csv", "1,2020-01-01 00:00:00.000\n1,2020-01-01 00:01:00.000\n5,2020-01-01 00:00:01.000\n");
    let job = "CREATE TABLE t (a BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
               WITH ('connector' = 'filesystem', 'path' = '${DIR}/t.csv', 'format' = 'csv');
               CREATE TABLE s (w TIMESTAMP(3), n BIGINT) WITH ('connector' = 'print');
               INSERT INTO s SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND))
               GROUP BY window_start, window_end;";
    let file = scratch.at("metrics.json");
    for size in ["block.size=auto", "block.size=1"] {
        let output = run(&scratch, job, &["--metrics", &file, "--set", size]);
        expect(&output, 0, &[]);
        assert_eq!(sum(&read_json(&file), "late_rows"), 1, "{size}: {}", text(&output));
        assert_eq!(output.stdout.iter().filter(|b| **b == b'\n').count(), 2, "{size}: {}", text(&output));
    }
}

#[test]
fn the_reference_is_that_of_the_code() {
    let output = finish(tidemill().arg("reference"));
    expect(&output, 0, &[]);
    let written = std::fs::read_to_string(root().join("docs/reference.md")).expect("docs/reference.md");
    let printed = String::from_utf8_lossy(&output.stdout);
    let differs = written.lines().zip(printed.lines()).position(|(w, p)| w != p);
    assert!(
        written == printed,
        "docs/reference.md is out of date (first at line {}); write it again: \
         cargo run --release -p tidemill -- reference > docs/reference.md",
        differs.unwrap_or_else(|| written.lines().count().min(printed.lines().count())) + 1
    );
}

#[test]
fn every_example_plans() {
    let scratch = Scratch::new("examples");
    let mut jobs = Vec::new();
    for folder in std::fs::read_dir(root().join("examples")).expect("the examples") {
        let folder = folder.expect("a directory entry").path();
        let Ok(files) = std::fs::read_dir(&folder) else { continue };
        jobs.extend(files.map(|f| f.expect("a directory entry").path()).filter(|f| f.extension().is_some_and(|e| e == "sql")));
    }
    assert!(!jobs.is_empty(), "there are examples");
    for job in jobs {
        let sql = std::fs::read_to_string(&job).expect("an example");
        let mut command = tidemill();
        command.current_dir(root()).arg("explain").arg(&job);
        for part in sql.split("${").skip(1) {
            let name = part.split('}').next().expect("split gives one at least");
            // Programs are looked for; others are only names.
            let value = if name == "PYTHON" { env!("CARGO_BIN_EXE_tidemill").into() } else { scratch.at(name) };
            command.arg("-D").arg(format!("{name}={value}"));
        }
        let output = finish(&mut command);
        assert!(output.status.success(), "{}: {}", job.display(), text(&output));
        assert!(!output.stdout.is_empty(), "{}: explained by nothing", job.display());
    }
}

#[test]
fn completions_know_the_options() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = finish(tidemill().args(["completions", shell]));
        expect(&output, 0, &[]);
        assert!(String::from_utf8_lossy(&output.stdout).contains("state-dir"), "{shell}");
    }
    expect(&finish(tidemill().args(["completions", "teletype"])), 2, &["teletype", "bash"]);
}
