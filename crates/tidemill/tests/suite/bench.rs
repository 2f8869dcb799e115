//! `bench` over one job: what it prints and writes. Over a directory it is tested with the jobs of `nexmark`.

use std::collections::HashMap;

use crate::failures::expect;
use crate::harness::{Scratch, finish, text, tidemill};

const ROWS: f64 = 2000.0;

fn job(scratch: &Scratch) -> String {
    scratch.write(
        "job.sql",
        format!(
            "CREATE TABLE t (n BIGINT, k BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '0', 'number-of-rows' = '{ROWS}');
             CREATE TABLE s (n BIGINT) WITH ('connector' = 'blackhole');
             INSERT INTO s SELECT n FROM t WHERE k > 0;"
        ),
    )
}

/// The lines of a CSV file, each as its values by name.
fn table(csv: &str) -> Vec<HashMap<String, f64>> {
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let names = lines.next().expect("a line of names");
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{text:?} is no number in\n{csv}"));
    lines
        .map(|cells| {
            assert_eq!(cells.len(), names.len(), "{csv}");
            names.iter().zip(cells).map(|(name, cell)| (name.to_string(), number(cell))).collect()
        })
        .collect()
}

/// `--vary block.size=1,16 --vary parallelism=1,2`, in order.
const COMBINATIONS: [(f64, f64); 4] = [(1.0, 1.0), (1.0, 2.0), (16.0, 1.0), (16.0, 2.0)];

#[test]
fn every_combination_is_run_and_told() {
    let scratch = Scratch::new("bench");
    let job = job(&scratch);
    let vary = ["--vary", "block.size=1,16", "--vary", "parallelism=1,2"];
    let output = finish(tidemill().args(["bench", &job, "--runs", "2", "--out", &scratch.at("out")]).args(vary));
    // Round after round, each run is told.
    expect(&output, 0, &["run 1/2  block.size=1 parallelism=1  ", "run 2/2  block.size=16 parallelism=2  "]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let rounds: Vec<&str> = told.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(rounds, ["1/2", "1/2", "1/2", "1/2", "2/2", "2/2", "2/2", "2/2"], "{told}");

    let read = |name: &str| std::fs::read_to_string(scratch.path().join("out").join(name)).expect("a file of results");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(read("results.txt"), printed);
    let lines: Vec<Vec<&str>> = printed.lines().map(|line| line.split_whitespace().collect()).collect();
    let figures = ["elapsed_s", "user_s", "sys_s", "cpu_s", "rows_per_s", "p50_ms", "p99_ms", "p999_ms", "peak_mb"];
    assert_eq!(lines[0], [&["block.size", "parallelism"][..], &figures].concat(), "{printed}");
    assert_eq!(lines.len(), 1 + 2 * COMBINATIONS.len(), "medians and ranges:\n{printed}");
    for ((block_size, parallelism), lines) in COMBINATIONS.iter().zip(lines[1..].chunks(2)) {
        assert_eq!(lines[0][..2], [block_size.to_string(), parallelism.to_string()], "{printed}");
        assert_eq!(lines[0].len(), 2 + figures.len(), "{printed}");
        assert!(lines[1].len() == figures.len() && lines[1].iter().all(|range| range.contains('–')), "{printed}");
    }

    let runs = table(&read("results.csv"));
    assert_eq!(runs.len(), 2 * COMBINATIONS.len(), "a line for each run");
    for (at, run) in runs.iter().enumerate() {
        let (block_size, parallelism) = COMBINATIONS[at / 2];
        assert_eq!((run["block.size"], run["parallelism"], run["run"]), (block_size, parallelism, (at % 2 + 1) as f64));
        assert!((run["cpu_s"] - run["user_s"] - run["sys_s"]).abs() < 1e-5, "{run:?}");
        // The time is rounded to a microsecond.
        assert!((run["rows_per_s"] * run["elapsed_s"] / ROWS - 1.0).abs() < 0.05, "{run:?}");
        assert!(0.0 < run["p50_ms"] && run["p50_ms"] <= run["p99_ms"] && run["p99_ms"] <= run["p999_ms"], "{run:?}");
        assert!(run["peak_mb"] > 1.0, "{run:?}");
    }
    let summary = table(&read("summary.csv"));
    assert_eq!(summary.len(), COMBINATIONS.len(), "a line for each combination");
    for (sum, runs) in summary.iter().zip(runs.chunks(2)) {
        for figure in figures {
            let (low, high) = (runs[0][figure].min(runs[1][figure]), runs[0][figure].max(runs[1][figure]));
            assert_eq!((sum[&format!("{figure}_min")], sum[&format!("{figure}_max")]), (low, high), "{figure}: {sum:?}");
            assert!((sum[figure] - (low + high) / 2.0).abs() < 1e-5, "{figure}: {sum:?}");
        }
    }
    let plot = read("plot.svg");
    assert!(plot.starts_with("<svg") && plot.trim_end().ends_with("</svg>"), "{plot}");
    for text in ["job: million rows a second", "job: CPU seconds", "parallelism=1", "parallelism=2"] {
        assert!(plot.contains(text), "{text:?} is not in\n{plot}");
    }
    assert_eq!(plot.matches("<circle").count(), 2 * COMBINATIONS.len(), "{plot}");
}

#[test]
fn without_anything_to_vary_the_job_is_run() {
    let scratch = Scratch::new("bench-plain");
    let output = finish(tidemill().args(["bench", &job(&scratch), "--runs", "1"]));
    expect(&output, 0, &["run 1/1"]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(printed.lines().count(), 2, "no range of one run:\n{printed}");
    assert!(printed.trim_start().starts_with("elapsed_s"), "{printed}");
}

#[test]
fn a_run_that_fails_is_told() {
    let scratch = Scratch::new("bench-fails");
    let job = job(&scratch);
    for (vary, part) in [("block.size=0", "'block.size' = '0'"), ("block.siz=1", "did you mean 'block.size'?")] {
        expect(&finish(tidemill().args(["bench", &job, "--runs", "1", "--vary", vary])), 1, &["a run failed", part]);
    }
    let output = finish(tidemill().args(["bench", &job, "--vary", "block.size"]));
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
}
