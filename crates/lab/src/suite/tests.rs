//! Tests of `suite`.

use super::*;
use crate::run::LatencyMs;

#[test]
fn names_in_order_of_their_numbers() {
    let mut names = ["q10", "q2", "q0", "q2b", "a"];
    names.sort_by_key(|name| natural(name));
    assert_eq!(names, ["a", "q0", "q2", "q2b", "q10"]);
}

#[test]
fn tables_show_medians_and_failures() {
    let run = |elapsed_s| Measured {
        elapsed_s,
        user_s: 1.5,
        sys_s: 0.5,
        rows_per_s: 0.0,
        rows_in: 4_000_000,
        rows_out: 7,
        peak_memory_bytes: 3 << 20,
        latency_ms: LatencyMs { p50: 1.0, p99: 2.0, p999: 3.0 },
    };
    let query = |name: &str, runs: Vec<Measured>, failed| Query { name: name.into(), job: PathBuf::new(), runs, failed };
    let queries = [query("q1", vec![run(3.0), run(1.0), run(2.0)], false), query("q2", vec![], true)];
    let mut suite = Suite { directory: PathBuf::new(), arguments: vec![], events: None, runs: 3, out: None };
    let table = suite.markdown(&queries);
    assert_eq!(table.lines().nth(2), Some("| q1 | 4,000,000 | 2.00 | 2.00 | 2,000,000 | 2,000,000 | 2.0 | 3 | 7 |"), "{table}");
    assert_eq!(table.lines().nth(3), Some("| q2 | failed | | | | | | | |"));
    let columns = |line: &str| line.matches('|').count();
    assert!(table.lines().all(|line| columns(line) == columns(table.lines().next().unwrap())), "{table}");
    suite.events = Some(5_000_000);
    let csv = suite.csv(&queries);
    assert_eq!(csv.lines().next(), Some("query,run,events,seconds,CPU_s,events_s,events_s_per_core,p99_ms,memory_MB,rows_out"));
    assert!(csv.lines().nth(2).unwrap().starts_with("q1,2,5000000,1.000000,2.000000,5000000.000000,2500000.000000,"), "{csv}");
    assert_eq!(csv.lines().count(), 4);
}

#[test]
fn a_directory_without_jobs_is_an_error() {
    // Tests run in the directory of their crate.
    let directory = PathBuf::from("src");
    let suite = Suite { directory, arguments: vec![], events: None, runs: 1, out: None };
    assert!(suite.run(&mut |_| {}).unwrap_err().contains("has no jobs"));
}
