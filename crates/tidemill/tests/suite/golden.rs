//! Golden jobs: every `.sql` below `tests/golden` gives the rows of its `.expect`, however it is
//! run: at several block sizes and parallelisms, as a batch, killed and resumed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::harness::{Scratch, finish, fold, fold_changes, root, sink_lines, text, tidemill};

/// A way to run a job.
struct Variation {
    name: &'static str,
    arguments: &'static [&'static str],
    /// Killed after a checkpoint and resumed, until it gets through.
    resumed: bool,
    batch: bool,
}

const VARIATIONS: &[Variation] = &[
    Variation { name: "plain", arguments: &[], resumed: false, batch: false },
    Variation { name: "block size 1", arguments: &["--set", "block.size=1", "--parallelism", "1"], resumed: false, batch: false },
    Variation {
        name: "block size 7, parallelism 3",
        arguments: &["--set", "block.size=7", "--parallelism", "3"],
        resumed: false,
        batch: false,
    },
    Variation { name: "parallelism 1", arguments: &["--parallelism", "1"], resumed: false, batch: false },
    Variation {
        name: "killed and resumed",
        arguments: &["--set", "block.size=3", "--set", "debug.checkpoint-blocks=2"],
        resumed: true,
        batch: false,
    },
    Variation { name: "batch", arguments: &["--set", "execution.runtime-mode=batch"], resumed: false, batch: true },
];

/// A golden job as it is written.
pub struct Golden {
    pub name: String,
    pub sql: String,
    /// Final rows of each sink.
    expect: BTreeMap<String, Vec<String>>,
}

/// All of them, in order of name.
pub fn jobs() -> Vec<Golden> {
    let base = root().join("tests/golden");
    let mut found = Vec::new();
    let mut folders = vec![base.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the golden jobs") {
            let path = entry.expect("a directory entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "sql") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
        .into_iter()
        .map(|path| {
            let sql = std::fs::read_to_string(&path).expect("a job");
            let expect =
                std::fs::read_to_string(path.with_extension("expect")).unwrap_or_else(|e| panic!("{}: no .expect: {e}", path.display()));
            let mut sinks: BTreeMap<String, Vec<String>> = BTreeMap::new();
            let mut current = String::new();
            for line in expect.lines() {
                match line.strip_prefix("-- sink ") {
                    Some(name) => {
                        current = name.trim().to_string();
                        sinks.entry(current.clone()).or_default();
                    }
                    None => sinks.get_mut(&current).expect("a sink line first").push(line.to_string()),
                }
            }
            sinks.values_mut().for_each(|rows| rows.sort());
            let name = path.strip_prefix(&base).expect("below base").with_extension("").display().to_string();
            Golden { name, sql, expect: sinks }
        })
        .collect()
}

/// What the sinks of a job left: the final rows of each.
type Rows = BTreeMap<String, Vec<String>>;

/// Runs a job in a variation; the difference from what is expected, if any.
fn run(job: &Golden, variation: &Variation, kills: &AtomicUsize) -> Result<(), String> {
    // Several print sinks share standard output: each gets its name in front.
    let named = printing(job, |sink| format!("'print', 'print-identifier' = '{sink}'"));
    // A terminal is no transactional sink: after a crash it has seen rows that are printed again. Files that hold
    // changes are one, and must hold what they hold when nothing happens to the job, which other variations compare with
    // what is expected.
    let (sql, expect) = match variation.resumed && printed(job).next().is_some() {
        false => (named, job.expect.clone()),
        true => {
            let files = printing(job, |sink| format!("'filesystem', 'path' = '${{OUT}}/{sink}', 'format' = 'debezium-json'"));
            let undisturbed = attempts(job, &files, &VARIATIONS[0], kills)?;
            (files, undisturbed)
        }
    };
    let found = attempts(job, &sql, variation, kills)?;
    for (sink, rows) in &expect {
        if found[sink] != *rows {
            return Err(difference(sink, rows, &found[sink]));
        }
    }
    Ok(())
}

/// Runs `sql`, which is a job's with other sinks, until it gets through; what its sinks hold then.
fn attempts(job: &Golden, sql: &str, variation: &Variation, kills: &AtomicUsize) -> Result<Rows, String> {
    let scratch = Scratch::new(&job.name.replace('/', "-"));
    let data = root().join("tests/golden/data");
    let file = scratch.write("job.sql", sql);
    let mut stdout = String::new();
    for attempt in 0.. {
        let mut command = tidemill();
        command.arg("run").arg(&file).arg("--quiet").args(["--set", "debug.check-operators=true"]).args(variation.arguments);
        command.arg("--define").arg(format!("DATA={}", data.display())).arg("--define").arg(format!("OUT={}", scratch.at("out")));
        command.arg("--define").arg(format!("TIDEMILL={}", env!("CARGO_BIN_EXE_tidemill")));
        if variation.resumed {
            command.arg("--state-dir").arg(scratch.at("state"));
            // Each attempt gets one checkpoint further, and runs at another parallelism.
            command.args(["--set", "debug.abort-after-checkpoints=1", "--parallelism", ["2", "1", "3"][attempt % 3]]);
            if attempt >= 6 {
                command.args(["--set", "debug.checkpoint-blocks=1000000"]);
            }
        }
        let output = finish(&mut command);
        stdout += &String::from_utf8_lossy(&output.stdout);
        if variation.resumed && output.status.code() == Some(137) {
            kills.fetch_add(1, Ordering::Relaxed);
            if attempt > 60 {
                return Err("did not get through in 60 attempts".into());
            }
            continue;
        }
        if !output.status.success() {
            return Err(format!("failed ({}):\n{}", output.status, text(&output)));
        }
        break;
    }
    let rows = |sink: &String| {
        let lines = || sink_lines(&Path::new(&scratch.at("out")).join(sink));
        match printed(job).any(|s| s == sink) {
            false => lines(),
            true if !sql.contains("'print'") => fold_changes(&lines()),
            true => fold(&stdout, sink),
        }
    };
    Ok(job.expect.keys().map(|sink| (sink.clone(), rows(sink))).collect())
}

/// The job with something else in the place of each `'print'`, by the name of the sink.
fn printing(job: &Golden, instead: impl Fn(&str) -> String) -> String {
    let mut sql = job.sql.clone();
    for sink in printed(job) {
        let at = declaration(&sql, sink).expect("found by prints");
        let print = at + sql[at..].find("'print'").expect("found by prints");
        sql.replace_range(print..print + "'print'".len(), &instead(sink));
    }
    sql
}

/// The sinks that are `print` tables.
fn printed(job: &Golden) -> impl Iterator<Item = &str> {
    job.expect.keys().map(String::as_str).filter(|sink| prints(job, sink))
}

/// Whether a sink is a `print` table.
fn prints(job: &Golden, sink: &str) -> bool {
    declaration(&job.sql, sink).is_some_and(|at| {
        let statement = &job.sql[at..job.sql[at..].find(';').map_or(job.sql.len(), |e| at + e)];
        statement.contains("'print'")
    })
}

/// Where a sink is declared.
fn declaration(sql: &str, sink: &str) -> Option<usize> {
    sql.find(&format!("TABLE {sink} ")).or_else(|| sql.find(&format!("TABLE `{sink}` ")))
}

fn difference(sink: &str, expect: &[String], found: &[String]) -> String {
    let missing: Vec<_> = expect.iter().filter(|r| !found.contains(r)).take(5).collect();
    let extra: Vec<_> = found.iter().filter(|r| !expect.contains(r)).take(5).collect();
    format!("sink {sink}: {} rows expected, {} found\n  missing: {missing:#?}\n  extra: {extra:#?}", expect.len(), found.len())
}

#[test]
fn golden_jobs() {
    let only = std::env::var("GOLDEN").unwrap_or_default();
    let jobs: Vec<Golden> = jobs().into_iter().filter(|j| j.name.contains(&only)).collect();
    assert!(only.is_empty() || !jobs.is_empty(), "no golden job is called {only:?}");
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    let runs = AtomicUsize::new(0);
    let kills = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, |n| n.get()) {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    for variation in VARIATIONS {
                        if variation.batch && job.sql.contains("-- batch: no") {
                            continue;
                        }
                        runs.fetch_add(1, Ordering::Relaxed);
                        if let Err(why) = run(job, variation, &kills) {
                            failures.lock().unwrap().push(format!("{} ({}): {why}", job.name, variation.name));
                        }
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().unwrap();
    failures.sort();
    println!("{} golden jobs, {} runs, {} failures", jobs.len(), runs.into_inner(), failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    // Jobs that are never killed would pass as resumed without having been.
    assert!(!only.is_empty() || kills.into_inner() > 0, "no job was killed at a checkpoint");
}

/// State is found again by what a part of the plan computes, so a job must be planned the same each time. What comes out of a
/// hash set differs from run to run.
#[test]
fn golden_jobs_are_planned_the_same_each_time() {
    let scratch = Scratch::new("planned");
    let data = format!("DATA={}", root().join("tests/golden/data").display());
    for job in jobs() {
        let file = scratch.write("job.sql", &job.sql);
        let explain = || {
            let mut command = tidemill();
            command.args(["explain", &file, "-D", &data, "-D", "OUT=out", "-D", concat!("TIDEMILL=", env!("CARGO_BIN_EXE_tidemill"))]);
            let output = finish(&mut command);
            assert!(output.status.success(), "{}: {}", job.name, text(&output));
            output.stdout
        };
        let first = explain();
        for _ in 0..4 {
            assert!(explain() == first, "{}: another plan of the same text", job.name);
        }
    }
}
