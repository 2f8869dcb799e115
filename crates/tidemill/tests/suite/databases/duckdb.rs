//! Jobs over files of DuckDB: the examples, rows that are refused, files that are locked, and a job that is killed at any
//! moment and goes on. `DATABASE_KILLS` says how often.
//!
//! The library is where `TIDEMILL_DUCKDB_LIBRARY` says, or comes with npm's package `@duckdb/node-bindings-…`; what jobs
//! have written is read by PyPI's `duckdb`. Both are fetched once; without them the tests say that they did not run.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use super::sqlite::{KEYS, ROWS, job};
use super::{large_and_small, same_rows, wanted};
use crate::crash::Random;
use crate::harness::{Background, Kills, Scratch, finish, root, text, tidemill};
use crate::not_run::not_run;

const LIBRARY_VARIABLE: &str = "TIDEMILL_DUCKDB_LIBRARY";
/// The library's version, and npm's package of it.
const VERSION: &str = "1.5.6";
const PACKAGE_VERSION: &str = "1.5.6-r.1";

/// Runs statements, and prints the first column of what the last one gives.
const SCRIPT: &str = "import duckdb, sys
with duckdb.connect(sys.argv[1]) as connection:
    for row in connection.execute(sys.argv[2]).fetchall():
        print(row[0])
";
/// Keeps a file open until a line comes.
const KEEP: &str = "import duckdb, sys
with duckdb.connect(sys.argv[1]):
    print('open', flush=True)
    sys.stdin.readline()
";

/// What the tests need.
struct Tools {
    library: PathBuf,
    python: PathBuf,
}

fn tools() -> Option<&'static Tools> {
    static TOOLS: OnceLock<Result<Tools, String>> = OnceLock::new();
    match TOOLS.get_or_init(|| Ok(Tools { library: library()?, python: python()? })) {
        Ok(tools) => Some(tools),
        Err(why) => {
            not_run(&format!("the tests over DuckDB ({LIBRARY_VARIABLE}, or npm, and Python with its duckdb): {why}"));
            None
        }
    }
}

/// Output of a command that may take long the first time.
fn long(command: &mut Command) -> Result<Output, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("{command:?}: {e}"))?;
    if output.status.success() { Ok(output) } else { Err(format!("{command:?}: {}", text(&output))) }
}

fn library() -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os(LIBRARY_VARIABLE) {
        return Ok(PathBuf::from(named));
    }
    let (package, file) = match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => ("linux-x64", "libduckdb.so"),
        ("linux", "aarch64") => ("linux-arm64", "libduckdb.so"),
        ("macos", "aarch64") => ("darwin-arm64", "libduckdb.dylib"),
        ("macos", "x86_64") => ("darwin-x64", "libduckdb.dylib"),
        (system, machine) => return Err(format!("npm has none for {system} on {machine}")),
    };
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("duckdb-library");
    let package = format!("@duckdb/node-bindings-{package}");
    let file = directory.join("node_modules").join(&package).join(file);
    if !file.is_file() {
        std::fs::create_dir_all(&directory).map_err(|e| e.to_string())?;
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix"]).arg(&directory);
        long(npm.arg(format!("{package}@{PACKAGE_VERSION}")))?;
    }
    if file.is_file() { Ok(file) } else { Err(format!("npm's {package} has no '{}'", file.display())) }
}

fn python() -> Result<PathBuf, String> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("duckdb-venv");
    let python = directory.join("bin/python");
    let works = || long(Command::new(&python).args(["-c", &format!("import duckdb; assert duckdb.__version__ == '{VERSION}'")]));
    if works().is_err() {
        long(Command::new("python3").args(["-m", "venv"]).arg(&directory))?;
        long(Command::new(&python).args(["-m", "pip", "install", "--quiet", &format!("duckdb=={VERSION}")]))?;
        works()?;
    }
    Ok(python)
}

impl Tools {
    /// Rows of a query as texts, in its order.
    #[track_caller]
    fn rows(&self, file: &str, sql: &str) -> Vec<String> {
        let output = long(Command::new(&self.python).args(["-c", SCRIPT, file, sql]));
        let output = output.unwrap_or_else(|why| panic!("{sql}: {why}"));
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_string).collect()
    }

    #[track_caller]
    fn number(&self, file: &str, sql: &str) -> i64 {
        let rows = self.rows(file, sql);
        rows.first().and_then(|row| row.parse().ok()).unwrap_or_else(|| panic!("{sql}: {rows:?}"))
    }

    fn tidemill(&self) -> Command {
        let mut command = tidemill();
        command.env(LIBRARY_VARIABLE, &self.library);
        command
    }

    /// An example over a file.
    fn example(&self, job: &str, file: &str, more: &[&str]) -> Command {
        let mut command = self.tidemill();
        command.arg("run").arg(root().join(job)).args(["--quiet", "-D", &format!("URL=jdbc:duckdb:{file}")]);
        for define in more {
            command.args(["-D", define]);
        }
        command
    }
}

#[track_caller]
fn succeeds(command: &mut Command) -> String {
    let output = finish(command);
    assert!(output.status.success(), "{command:?}\n{}", text(&output));
    text(&output)
}

#[test]
fn without_the_library_it_is_said() {
    let scratch = Scratch::new("duckdb-missing");
    let job = scratch.write(
        "job.sql",
        "CREATE TABLE t (id BIGINT) WITH ('connector' = 'jdbc', 'url' = 'jdbc:duckdb:none.duckdb', 'table-name' = 't');
         CREATE TABLE s (id BIGINT) WITH ('connector' = 'print');
         INSERT INTO s SELECT id FROM t;",
    );
    let missing = scratch.at("libduckdb.so");
    let output = finish(tidemill().args(["run", &job, "--quiet"]).env(LIBRARY_VARIABLE, &missing));
    let said = text(&output);
    assert!(!output.status.success() && said.contains("install libduckdb") && said.contains(&missing), "{said}");
}

#[test]
fn events_are_inserted() {
    let Some(tools) = tools() else { return };
    let scratch = Scratch::new("duckdb-insert");
    let (file, state) = (scratch.at("events.duckdb"), scratch.path().join("state"));
    succeeds(tools.example("examples/databases/insert.sql", &file, &["EVENTS=20000"]).arg("--state-dir").arg(&state));
    let count = "SELECT count(*) FROM process_events";
    assert_eq!(tools.number(&file, count), 20_000);
    let distinct = "SELECT count(DISTINCT event_id) FROM process_events WHERE event_id BETWEEN 0 AND 19999 AND length(message) = 84";
    assert_eq!(tools.number(&file, distinct), 20_000);
    assert_eq!(tools.rows(&file, "SELECT event_time::VARCHAR FROM process_events WHERE event_id = 0"), ["2024-01-01 00:00:00"]);
    // A job that is finished stays so; without a state directory it is another one.
    succeeds(tools.example("examples/databases/insert.sql", &file, &["EVENTS=20000"]).arg("--state-dir").arg(&state));
    assert_eq!(tools.number(&file, count), 20_000);
    succeeds(&mut tools.example("examples/databases/insert.sql", &file, &["EVENTS=100"]));
    assert_eq!(tools.number(&file, count), 20_100);
}

#[test]
fn events_are_updated() {
    let Some(tools) = tools() else { return };
    let scratch = Scratch::new("duckdb-update");
    let file = scratch.at("events.duckdb");
    succeeds(&mut tools.example("examples/databases/fill.sql", &file, &["ROWS=5000"]));
    assert_eq!(tools.number(&file, "SELECT count(*) FROM process_states"), 5000);
    tools.rows(&file, "CREATE TABLE before AS SELECT * FROM process_states");
    succeeds(&mut tools.example("examples/databases/update.sql", &file, &["LAST=4999", "EVENTS=20000"]));
    assert_eq!(tools.number(&file, "SELECT count(*) FROM process_states"), 5000);
    let sql = "SELECT count(*) FROM process_states AS s JOIN before AS b USING (event_id) WHERE s.message <> b.message";
    let changed = tools.number(&file, sql);
    // Of 20,000 draws from 5,000 a key is missed by all with a chance of one in 55.
    assert!((4700..5000).contains(&changed), "{changed} rows were updated");
}

#[test]
fn tables_are_read_and_looked_up() {
    let Some(tools) = tools() else { return };
    let scratch = Scratch::new("duckdb-read");
    let file = scratch.at("shop.duckdb");
    let tables = "CREATE TABLE customers (id BIGINT PRIMARY KEY, name VARCHAR); INSERT INTO customers VALUES (1, 'anna'), (2, 'bert');
                  CREATE TABLE orders (id BIGINT, customer BIGINT, amount DECIMAL(10, 2), items INTEGER[]);
                  INSERT INTO orders VALUES (1, 1, 12.5, [1, 2]), (2, 2, 7, [3]), (3, 9, 1.25, NULL), (4, NULL, 0, [NULL])";
    tools.rows(&file, tables);
    let with = |table: &str, more: &str| format!("WITH ('connector' = 'jdbc', 'url' = 'duckdb:{file}', 'table-name' = '{table}'{more})");
    let job = scratch.write(
        "job.sql",
        format!(
            "CREATE TABLE orders (id BIGINT, customer BIGINT, amount DECIMAL(10, 2), items ARRAY<INT>, pt AS PROCTIME()) {};
             CREATE TABLE customers (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) {};
             CREATE TABLE s (id BIGINT, name STRING, amount DECIMAL(10, 2), n INT) WITH ('connector' = 'print');
             INSERT INTO s SELECT o.id, c.name, o.amount, CARDINALITY(o.items) FROM orders AS o
             LEFT JOIN customers FOR SYSTEM_TIME AS OF o.pt AS c ON c.id = o.customer;",
            with("orders", ", 'scan.partition.column' = 'id', 'scan.partition.num' = '2'"),
            with("customers", ", 'lookup.cache' = 'PARTIAL', 'lookup.partial-cache.max-rows' = '10'"),
        ),
    );
    let output = succeeds(tools.tidemill().args(["run", &job, "--quiet", "--parallelism", "1"]));
    let mut lines: Vec<&str> = output.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["+I[1, anna, 12.50, 2]", "+I[2, bert, 7.00, 1]", "+I[3, null, 1.25, null]", "+I[4, null, 0.00, 1]"]);
}

#[test]
fn refused_rows_are_passed_over() {
    let Some(tools) = tools() else { return };
    let scratch = Scratch::new("duckdb-refused");
    let (file, dead, state) = (scratch.at("t.duckdb"), scratch.at("dead.jsonl"), scratch.path().join("state"));
    tools.rows(&file, "CREATE TABLE t (id BIGINT, name VARCHAR UNIQUE)");
    let job = scratch.write(
        "job.sql",
        format!(
            "CREATE TABLE t (id BIGINT, name STRING) WITH ('connector' = 'jdbc', 'url' = 'jdbc:duckdb:{file}', 'table-name' = 't',
               'sink.on-error' = 'dead-letter', 'sink.dead-letter' = '{dead}');
             INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'a'), (4, 'd'), (5, 'b'), (6, 'f');"
        ),
    );
    succeeds(tools.tidemill().args(["run", &job, "--quiet", "--parallelism", "1", "--state-dir"]).arg(&state));
    assert_eq!(tools.rows(&file, "SELECT id || name FROM t ORDER BY id"), ["1a", "2b", "4d", "6f"]);
    let letters = std::fs::read_to_string(&dead).expect("dead letters");
    let refused = |id: u32| letters.contains(&format!("\"id\":{id}"));
    assert!(refused(3) && refused(5) && !refused(1) && letters.contains("constraint"), "{letters}");
}

#[test]
fn a_locked_file_is_named() {
    let Some(tools) = tools() else { return };
    let scratch = Scratch::new("duckdb-locked");
    let file = scratch.at("t.duckdb");
    let mut keeper = Command::new(&tools.python);
    let keeper = keeper.args(["-c", KEEP, &file]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut keeper = Background(keeper.spawn().expect("Python"));
    let mut line = String::new();
    BufReader::new(keeper.0.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    assert_eq!(line.trim(), "open");
    let job = scratch.write(
        "job.sql",
        format!(
            "CREATE TABLE t (id BIGINT) WITH ('connector' = 'jdbc', 'url' = 'jdbc:duckdb:{file}', 'table-name' = 't',
               'sink.create-table' = 'true', 'connection.max-retry-timeout' = '${{PATIENCE}}');
             INSERT INTO t VALUES (1);"
        ),
    );
    let run = |patience: &str| {
        let mut command = tools.tidemill();
        command.args(["run", &job, "--quiet", "-D", &format!("PATIENCE={patience}")]);
        command
    };
    let output = finish(&mut run("1 ms"));
    let said = text(&output);
    assert!(!output.status.success() && said.contains("another process has the file open"), "{said}");
    // One that is patient gets it when the other is done.
    let mut patient = Background::start(&mut run("10 min"));
    std::thread::sleep(Duration::from_millis(200));
    keeper.0.stdin.take().expect("piped").write_all(b"\n").expect("a line");
    let (code, errors) = patient.end();
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(tools.number(&file, "SELECT count(*) FROM t"), 1);
}

/// What both tables hold, row by row.
fn content(tools: &Tools, file: &str) -> [Vec<String>; 2] {
    [
        tools.rows(file, "SELECT id || ' ' || k || ' ' || v || ' ' || t FROM events ORDER BY id"),
        tools.rows(file, "SELECT k || ' ' || n || ' ' || v FROM sums ORDER BY k"),
    ]
}

fn run(tools: &Tools, job: &str, file: &str, interval: &str) -> Command {
    let mut command = tools.tidemill();
    command.args(["run", job, "--quiet", "-D", &format!("FILE={file}"), "-D", &format!("SUMS={file}")]);
    command.args(["--set", &format!("execution.checkpointing.interval={interval}")]);
    command
}

#[test]
fn killed_at_any_moment() {
    let Some(tools) = tools() else { return };
    let (kills_wanted, seed) = (wanted("DATABASE_KILLS", 5), wanted("DATABASE_SEED", 1984));
    let scratch = Scratch::new("duckdb-kills");
    let (job, reference) = (job(&scratch, "duckdb"), scratch.at("reference.duckdb"));
    succeeds(run(tools, &job, &reference, "20ms").arg("--state-dir").arg(scratch.path().join("reference")));
    let expect = content(tools, &reference);
    assert!(expect[0].len() == ROWS as usize && expect[1].len() > KEYS as usize / 2);
    for (large, kills_wanted) in large_and_small(kills_wanted) {
        let (interval, longest_ms) = if large { ("400ms", 1000) } else { ("20ms", 400) };
        let mut kills = Kills::new(kills_wanted, Random(seed));
        while kills.left() {
            let round = Scratch::new("duckdb-kills-round");
            let (state, file) = (round.path().join("state"), round.at("killed.duckdb"));
            let history = kills.run(&state, longest_ms, |random| {
                let mut command = run(tools, &job, &file, interval);
                let shards = 1 + random.below(3);
                command.arg("--state-dir").arg(&state).arg("--parallelism").arg(shards.to_string());
                (command, format!("seed {seed}, parallelism {shards}, a checkpoint each {interval}"))
            });
            for (name, (found, expect)) in ["events", "sums"].iter().zip(content(tools, &file).iter().zip(&expect)) {
                same_rows(name, found, expect, &history.join("; "));
            }
            let left = std::fs::read_dir(state.join("sinks")).map_or(0, Iterator::count);
            assert_eq!(left, 0, "files of committed rows are left after {history:#?}");
        }
    }
}
