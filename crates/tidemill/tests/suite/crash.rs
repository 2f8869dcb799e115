//! Jobs that are killed and stopped at any moment and go on, and the same job in every block size:
//! the output is always that of one undisturbed run.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Command;

use crate::harness::{Background, Kills, Scratch, finish, newest_checkpoint, root, sink_lines, text, tidemill, wait_for};
use crate::not_run::not_run;

const SINKS: [&str; 4] = ["costs", "vwap_5m", "vwap_1h", "vwap_24h"];
const TRADES: usize = 120_000;

/// Small numbers that are the same in every run (a linear congruence; only high bits are used).
pub struct Random(pub u64);

impl Random {
    /// A number from 0 up to, but not including, `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    /// One of these.
    pub fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }
}

/// Trades as vwap.sql reads them: times of one day ascend, many are the same.
fn trades(random: &mut Random) -> String {
    let mut out = String::new();
    let mut ms = 0;
    for _ in 0..TRADES {
        ms += random.of(&[0, 0, 3, 40, 1_200]);
        let (h, m, s) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
        assert!(h < 24, "the trades are of one day");
        let symbol = random.of(&["AAPL", "IBM", "SPY", "X"]);
        let (dollars, cents, size) = (10 + random.below(500), random.below(100), 1 + random.below(400));
        let milli = ms % 1000;
        writeln!(out, "{symbol},2013-10-07 {h:02}:{m:02}:{s:02}.{milli:03},{dollars}.{cents:02},{size},P,20,0").expect("to a string");
    }
    out
}

/// A run of the VWAP job.
fn vwap(job: &Path, input: &str, output: &str) -> Command {
    let mut command = tidemill();
    command.arg("run").arg(job).arg("--quiet").arg("-D").arg(format!("IN={input}")).arg("-D").arg(format!("OUT={output}"));
    command
}

#[track_caller]
fn succeeds(command: &mut Command) {
    let output = finish(command);
    assert!(output.status.success(), "{command:?}\n{}", text(&output));
}

#[test]
fn killed_at_any_moment() {
    let wanted: u64 = std::env::var("CRASH_KILLS").map_or(40, |n| n.parse().expect("CRASH_KILLS is a number"));
    let mut random = Random(2013);
    let scratch = Scratch::new("crash");
    // CRASH_TRADES names a file of real trades, without a header line.
    let input = std::env::var("CRASH_TRADES").unwrap_or_else(|_| scratch.write("trades.csv", trades(&mut random)));
    let count = std::fs::read(&input).expect("the trades").iter().filter(|b| **b == b'\n').count();
    let job = root().join("examples/vwap/vwap.sql");
    let reference = scratch.path().join("reference");
    succeeds(&mut vwap(&job, &input, &reference.display().to_string()));
    let expect = SINKS.map(|s| sink_lines(&reference.join(s)));
    assert!(expect.iter().all(|lines| lines.len() == count), "a line for each trade in each sink");
    let (mut kills, mut rounds) = (Kills::new(wanted, random), 0);
    while kills.left() {
        rounds += 1;
        let round = Scratch::new("crash-round");
        let (state, output) = (round.path().join("state"), round.at("out"));
        let history = kills.run(&state, 150, |random| {
            let mut command = vwap(&job, &input, &output);
            let (rows, shards) = (random.of(&["16", "64", "256", "1000"]), 1 + random.below(3));
            command.arg("--state-dir").arg(&state).args(["--set", "execution.checkpointing.interval=20ms"]);
            command.arg("--set").arg(format!("block.size={rows}")).arg("--parallelism").arg(shards.to_string());
            (command, format!("block size {rows}, parallelism {shards}"))
        });
        for (sink, expect) in SINKS.iter().zip(&expect) {
            let dir = Path::new(&output).join(sink);
            let found = sink_lines(&dir);
            if found != *expect {
                let same = found.iter().zip(expect).take_while(|(f, e)| f == e).count();
                let (found_there, expect_there) = (found.get(same), expect.get(same));
                panic!(
                    "{sink}: {} lines instead of {}; first difference in sorted order: {found_there:?} instead of {expect_there:?}; \
                     after {history:#?}",
                    found.len(),
                    expect.len()
                );
            }
            let hidden = std::fs::read_dir(&dir).expect("the sink's directory").filter_map(|e| e.ok()?.file_name().into_string().ok());
            let hidden: Vec<_> = hidden.filter(|n| n.starts_with('.')).collect();
            assert!(hidden.is_empty(), "{sink}: unfinished parts are left: {hidden:?} after {history:#?}");
        }
    }
    println!("{} kills in {rounds} rounds", kills.done);
}

#[test]
fn stopped_once_goes_on() {
    // Ten seconds of them: a machine that is slow to stop the job twice does so before its end.
    const ROWS: usize = 20_000;
    let scratch = Scratch::new("stop");
    let job = scratch.write(
        "job.sql",
        format!(
            "CREATE TABLE t (a BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '2000', 'number-of-rows' = '{ROWS}',
               'fields.a.kind' = 'sequence', 'fields.a.start' = '0', 'fields.a.end' = '{last}');
             CREATE TABLE s (a BIGINT) WITH ('connector' = 'filesystem', 'path' = '{}', 'format' = 'csv');
             INSERT INTO s SELECT a FROM t;",
            scratch.at("out"),
            last = ROWS - 1
        ),
    );
    let (state, out) = (scratch.path().join("state"), scratch.path().join("out"));
    let command = |parallelism: &str| {
        let mut command = tidemill();
        command.args(["run", &job, "--set", "execution.checkpointing.interval=50ms", "--parallelism", parallelism]);
        command.arg("--state-dir").arg(&state);
        command
    };
    for (signal, parallelism) in [("INT", "2"), ("TERM", "3")] {
        let before = newest_checkpoint(&state);
        let mut running = Background::start(&mut command(parallelism));
        wait_for("a checkpoint", || newest_checkpoint(&state) > before);
        running.signal(signal);
        let (code, errors) = running.end();
        assert_eq!(code, Some(0), "SIG{signal}: {errors}");
        assert!(errors.contains("stopped; the next run goes on from here"), "SIG{signal}: {errors}");
    }
    let seen = sink_lines(&out).len();
    assert!(seen < ROWS, "a stopped job has not read everything");
    succeeds(&mut command("1"));
    let mut expect: Vec<String> = (0..ROWS).map(|n| n.to_string()).collect();
    expect.sort();
    assert_eq!(sink_lines(&out), expect);
    // Finished stays finished.
    succeeds(&mut command("2"));
    assert_eq!(sink_lines(&out), expect);
}

#[test]
fn stopped_twice_ends_at_once() {
    let scratch = Scratch::new("stop-twice");
    // A row is much longer than a pipe holds (64 KB), and a block is one row.
    let job = scratch.write(
        "job.sql",
        "CREATE TABLE t (a STRING) WITH ('connector' = 'datagen', 'rows-per-second' = '0', 'fields.a.length' = '1000000');
         CREATE TABLE s (a STRING) WITH ('connector' = 'print');
         INSERT INTO s SELECT a FROM t;",
    );
    let mut running = Background::start(tidemill().args(["run", &job, "--set", "block.size=1"]));
    let mut stdout = running.0.stdout.take().expect("piped");
    stdout.read_exact(&mut [0]).expect("the beginning of a row");
    // Nobody reads on: the sink is stuck within its first row, and a last checkpoint cannot be had.
    running.signal("INT");
    let mut stderr = BufReader::new(running.0.stderr.take().expect("piped"));
    let mut said = String::new();
    while !said.contains("stopping") {
        assert!(stderr.read_line(&mut said).expect("standard error") > 0, "ended without a word: {said}");
    }
    running.signal("INT");
    let mut code = None;
    wait_for("the end", || {
        code = running.0.try_wait().expect("waiting for tidemill").map(|s| s.code());
        code.is_some()
    });
    assert_eq!(code, Some(Some(130)));
}

/// The lines of a sink, in whatever order: how many, and the sums of two hashes of each.
fn fingerprint(dir: &Path) -> (u64, u64, u64) {
    let (mut lines, mut first, mut second) = (0, 0u64, 0u64);
    for entry in std::fs::read_dir(dir).expect("a sink's directory") {
        let path = entry.expect("a directory entry").path();
        if path.file_name().is_some_and(|n| n.to_string_lossy().starts_with('.')) {
            continue;
        }
        let mut reader = BufReader::new(std::fs::File::open(&path).expect("a part file"));
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).expect("reading a part file") > 0 {
            let hash = |seed: u8| {
                let mut hasher = DefaultHasher::new();
                (seed, &line).hash(&mut hasher);
                hasher.finish()
            };
            (lines, first, second) = (lines + 1, first.wrapping_add(hash(1)), second.wrapping_add(hash(2)));
            line.clear();
        }
    }
    (lines, first, second)
}

#[test]
fn real_trades_whatever_the_block_size() {
    let input = root().join("../shared/data/trades/us_equity_trades_2013-10-07_11.csv.gz");
    if !input.exists() {
        not_run(&format!("there are no real trades at {}", input.display()));
        return;
    }
    let scratch = Scratch::new("real-trades");
    let sql = std::fs::read_to_string(root().join("examples/vwap/vwap.sql")).expect("the example");
    let with_header = sql.replace("'path' = '${IN}',", "'path' = '${IN}',\n  'csv.header' = 'skip',");
    assert_ne!(sql, with_header, "the example's source has its path on a line of its own");
    let job = scratch.write("vwap.sql", with_header);
    let mut expect = None;
    // All combinations take minutes; four of them show every value.
    let mut ways = vec![("streaming", "1", "1"), ("streaming", "7", "2"), ("streaming", "256", "3"), ("streaming", "auto", "2")];
    if std::env::var("REAL_TRADES").is_ok_and(|v| v == "all") {
        ways = ["1", "7", "256", "auto"].into_iter().flat_map(|rows| ["1", "2", "3"].map(|shards| ("streaming", rows, shards))).collect();
    }
    ways.push(("batch", "auto", "2"));
    for (mode, rows, shards) in ways {
        let out = Scratch::new("real-trades-out");
        let mut command = vwap(Path::new(&job), &input.display().to_string(), &out.at("out"));
        command.arg("--set").arg(format!("execution.runtime-mode={mode}")).arg("--set").arg(format!("block.size={rows}"));
        command.args(["--parallelism", shards]);
        succeeds(&mut command);
        let found = SINKS.map(|s| fingerprint(&out.path().join("out").join(s)));
        assert!(found[0].0 > 2_000_000 && found.iter().all(|f| f.0 == found[0].0), "{mode}, block size {rows}: lines {found:?}");
        let expect = *expect.get_or_insert(found);
        for (sink, (found, expect)) in SINKS.iter().zip(found.iter().zip(&expect)) {
            assert_eq!(found, expect, "{mode}, block size {rows}, parallelism {shards}: {sink} differs from that of block size 1");
        }
    }
}
