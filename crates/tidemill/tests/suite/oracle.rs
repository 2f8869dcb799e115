//! The oracle: random queries over random rows must give the same lines as a stream, at any block
//! size and parallelism, as in batch mode, which another engine's executor runs.
//!
//! A result that is updated goes to a file of changes; compared is what they leave, whatever came between.
//!
//! `ORACLE_CASES` says how many cases, `ORACLE_SEED` the seed of the first; the others count on from
//! it. What is random is in the modules below, what a case is and how it is compared is here.

mod data;
mod expression;
mod query;
mod random;

use std::collections::BTreeMap;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tidemill::runtime::script::{Script, Step, render};
use tidemill::runtime::{JobOptions, Stop};

use crate::harness::{PATIENCE, Scratch, fold_changes, sink_lines};
use query::Generator;
use random::Random;

const CASES: u64 = 2_000;
const SEED: u64 = 1;
const THREADS: usize = 2;

/// Longer than any case can take; then the case hangs.
const HANG: Duration = PATIENCE;

/// After so many failures there is no need for more.
const FAILURES_MAX: usize = 5;

/// Most runs to find fewer rows that fail as well.
const SHRINK_RUNS: usize = 120;

/// The format of the input.
const CSV: &str = "'csv', 'csv.null-literal' = 'NULL'";

/// How a job runs as a stream.
#[derive(Clone, Debug)]
struct Variation {
    block_size: String,
    parallelism: usize,
    /// Changes are folded to one a group and block.
    mini_batch: bool,
}

/// Where the result of a query goes.
struct Target {
    name: String,
    /// It holds changes, not rows.
    changes: bool,
}

impl Target {
    /// The rows that a run has left in the directory `out`, sorted.
    fn rows(&self, out: &str) -> Vec<String> {
        let lines = sink_lines(&Path::new(out).join(&self.name));
        if self.changes { fold_changes(&lines) } else { lines }
    }
}

/// A random job and its random input.
struct Case {
    rows: Vec<String>,
    /// The script; `{in}` is the input file, `{out}` the directory of the sinks.
    script: String,
    sinks: Vec<Target>,
    /// In batch mode the input is read from a Parquet file, whose texts come as views of its pages.
    from_parquet: bool,
    variations: Vec<Variation>,
}

impl Case {
    fn new(seed: u64) -> Case {
        // Seeds that follow one another must not give streams of numbers that do.
        let mut random = Random::new(Random::new(seed).bits());
        let ties = random.chance(60);
        let rows = data::rows(&mut random, ties);
        let mut script =
            format!("CREATE TABLE events ({})\nWITH ('connector' = 'filesystem', 'path' = '{{in}}', 'format' = {CSV});\n", data::COLUMNS);
        let mut inserts = String::new();
        let mut sinks = Vec::new();
        let count = if random.chance(25) { 2 } else { 1 };
        let mut generator = Generator::new(&mut random, ties);
        for number in 0..count {
            let query = generator.query();
            let sink = format!("sink{number}");
            let columns: Vec<String> = query.columns.iter().enumerate().map(|(i, kind)| format!("s{i} {}", kind.sql())).collect();
            query.views.iter().for_each(|view| script += &format!("{view}\n"));
            let format = if query.updating { "debezium-json" } else { "csv" };
            script += &format!(
                "CREATE TABLE {sink} ({})\nWITH ('connector' = 'filesystem', 'path' = '{{out}}/{sink}', 'format' = '{format}');\n",
                columns.join(", ")
            );
            inserts += &format!("INSERT INTO {sink} {};\n", query.sql);
            sinks.push(Target { name: sink, changes: query.updating });
        }
        script += &inserts;
        let variations = (0..2)
            .map(|_| Variation {
                block_size: random.pick(&["1", "2", "7", "64", "auto"]).to_string(),
                parallelism: random.between(1, 3) as usize,
                mini_batch: random.chance(25),
            })
            .collect();
        let from_parquet = random.chance(30);
        Case { rows, script, sinks, from_parquet, variations }
    }

    /// Runs the job over `rows`, as a batch and as streams; the first difference, if any.
    fn check(&self, rows: &[String]) -> Result<(), String> {
        let scratch = Scratch::new("oracle");
        let mut content = rows.join("\n");
        if !rows.is_empty() {
            content.push('\n');
        }
        let input = scratch.write("events.csv", content);
        let script = self.script.replace("{in}", &input);
        let out = scratch.at("batch");
        let settings = [("execution.runtime-mode", "batch"), ("parallelism.default", "2")];
        let mut in_batch = script.replace("{out}", &out);
        if self.from_parquet && !rows.is_empty() {
            let packed = scratch.at("packed");
            let table = |name: &str, path: &str, format: &str| {
                let columns = data::COLUMNS;
                format!("CREATE TABLE {name} ({columns})\nWITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = {format});\n")
            };
            let pack = table("events", &input, CSV) + &table("packed", &packed, "'parquet'") + "INSERT INTO packed SELECT * FROM events;";
            run(&pack, &settings).map_err(|e| format!("packing: {e}"))?;
            in_batch = in_batch.replace(&input, &packed).replace(CSV, "'parquet'");
        }
        run(&in_batch, &settings).map_err(|e| format!("batch: {e}"))?;
        for (number, variation) in self.variations.iter().enumerate() {
            let to = scratch.at(&format!("stream-{number}"));
            let parallelism = variation.parallelism.to_string();
            let settings = [
                ("block.size", variation.block_size.as_str()),
                ("parallelism.default", &parallelism),
                ("table.exec.mini-batch.enabled", if variation.mini_batch { "true" } else { "false" }),
                ("debug.check-operators", "true"),
            ];
            let late = run(&script.replace("{out}", &to), &settings).map_err(|e| format!("stream, {variation:?}: {e}"))?;
            for sink in &self.sinks {
                let (expect, found) = (sink.rows(&out), sink.rows(&to));
                if expect != found {
                    let late = if late > 0 { format!("; {late} rows were dropped as late, though none is") } else { String::new() };
                    return Err(format!("stream, {variation:?}: {}: {}{late}", sink.name, difference(&expect, &found)));
                }
            }
        }
        Ok(())
    }

    /// As [`Case::check`]; a panic is a failure like any other.
    fn check_caught(&self, rows: &[String]) -> Result<(), String> {
        catch_unwind(AssertUnwindSafe(|| self.check(rows))).unwrap_or_else(|panic| {
            let message = panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
            Err(format!("panicked: {}", message.unwrap_or_default()))
        })
    }

    /// Fewer rows that fail as well, and how they do. Rows are only left out, so none becomes late.
    fn shrunk(&self, why: String) -> (Vec<String>, String) {
        let (mut rows, mut why) = (self.rows.clone(), why);
        let mut runs = 0;
        let mut chunk = rows.len().div_ceil(2);
        while chunk > 0 && runs < SHRINK_RUNS {
            let mut at = 0;
            while at < rows.len() && runs < SHRINK_RUNS {
                let mut fewer = rows.clone();
                fewer.drain(at..(at + chunk).min(rows.len()));
                runs += 1;
                match self.check_caught(&fewer) {
                    Err(e) => (rows, why) = (fewer, e),
                    Ok(()) => at += chunk,
                }
            }
            chunk /= 2;
        }
        (rows, why)
    }
}

/// Runs a script in this process; how many rows were dropped as late.
fn run(text: &str, settings: &[(&str, &str)]) -> Result<u64, String> {
    let overrides: BTreeMap<String, String> = settings.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let mut script = Script::new("oracle", text, overrides);
    let steps = script.steps().map_err(|e| render(&e, "oracle.sql", text, false))?;
    let mut late = 0;
    for step in &steps {
        let Step::Run(inserts, settings) = step else { return Err("the script does more than insert".into()) };
        let summary = script
            .run(inserts, settings, &JobOptions::default(), &Stop::default(), |_| {})
            .map_err(|e| render(&e, "oracle.sql", text, false))?;
        late += summary.nodes.iter().map(|n| n.late_rows).sum::<u64>();
    }
    Ok(late)
}

/// What is missing and what is too many, by how often a line is there.
fn difference(expect: &[String], found: &[String]) -> String {
    let mut counts: BTreeMap<&str, i64> = BTreeMap::new();
    expect.iter().for_each(|line| *counts.entry(line).or_default() += 1);
    found.iter().for_each(|line| *counts.entry(line).or_default() -= 1);
    let lines = |sign: i64| {
        let lines: Vec<String> =
            counts.iter().filter(|(_, n)| **n * sign > 0).take(8).map(|(line, n)| format!("\n    {} × {line}", n.abs())).collect();
        lines.concat()
    };
    format!(
        "{} rows in batch, {} in the stream\n  in batch only:{}\n  in the stream only:{}",
        expect.len(),
        found.len(),
        lines(1),
        lines(-1)
    )
}

fn rerun(seed: u64) -> String {
    format!("ORACLE_SEED={seed} ORACLE_CASES=1 cargo test -p tidemill --test suite oracle")
}

fn report(seed: u64, case: &Case, why: String) -> String {
    let (rows, why) = case.shrunk(why);
    let rows_shown = match rows.len() {
        0..=40 => rows.join("\n"),
        n => format!("{}\n… {} more", rows[..40].join("\n"), n - 40),
    };
    format!(
        "seed {seed}: {why}\n\n{}\nevents ({} of {} rows):\n{rows_shown}\n\n{}\n",
        case.script,
        rows.len(),
        case.rows.len(),
        rerun(seed)
    )
}

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text}: expected a number")),
        Err(_) => default,
    }
}

/// Counts a thread down however it ends.
struct Working<'a>(&'a AtomicUsize);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// Ends the process when a case hangs: a stuck thread cannot be ended otherwise.
fn watch(current: &[Mutex<Option<(u64, Instant)>>], working: &AtomicUsize) {
    while working.load(Ordering::Acquire) > 0 {
        std::thread::sleep(Duration::from_millis(20));
        for slot in current {
            if let Some((seed, since)) = *slot.lock().unwrap()
                && since.elapsed() > HANG
            {
                // Not by a macro: what those print is kept back until the test ends.
                let _ = writeln!(std::io::stderr(), "seed {seed} hangs:\n{}\n{}", Case::new(seed).script, rerun(seed));
                std::process::abort();
            }
        }
    }
}

#[test]
fn oracle() {
    let (cases, first) = (number("ORACLE_CASES", CASES), number("ORACLE_SEED", SEED));
    let next = AtomicU64::new(0);
    let working = AtomicUsize::new(THREADS);
    let current: Vec<Mutex<Option<(u64, Instant)>>> = (0..THREADS).map(|_| Mutex::new(None)).collect();
    let failures = Mutex::new(BTreeMap::new());
    let with_rows = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for slot in &current {
            let (next, working, failures, with_rows) = (&next, &working, &failures, &with_rows);
            scope.spawn(move || {
                let _working = Working(working);
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= cases || failures.lock().unwrap().len() >= FAILURES_MAX {
                        break;
                    }
                    let seed = first.wrapping_add(number);
                    let case = Case::new(seed);
                    *slot.lock().unwrap() = Some((seed, Instant::now()));
                    let result = case.check_caught(&case.rows);
                    with_rows.fetch_add(u64::from(!case.rows.is_empty()), Ordering::Relaxed);
                    if let Err(why) = result {
                        let report = report(seed, &case, why);
                        failures.lock().unwrap().insert(seed, report);
                    }
                    *slot.lock().unwrap() = None;
                }
            });
        }
        watch(&current, &working);
    });
    let failures = failures.into_inner().unwrap();
    println!("{} cases from seed {first}, {} with rows, {} failures", next.into_inner().min(cases), with_rows.into_inner(), failures.len());
    let reports: Vec<String> = failures.into_values().collect();
    assert!(reports.is_empty(), "{}", reports.join("\n----\n"));
}
