//! Tests of the live line, and of how figures look.

use std::time::Duration;

use tidemill_runtime::metrics::{Laggard, Latency};

use super::*;

fn live(terminal: bool) -> Live {
    Live { quiet: false, terminal, last: (0.0, 0), next_line_s: 10.0, shown: false }
}

fn report(elapsed_s: f64, rows_in: u64) -> ProgressReport {
    ProgressReport {
        elapsed: Duration::from_secs_f64(elapsed_s),
        rows_in,
        rows_out: rows_in / 2,
        watermark: None,
        laggard: None,
        memory: 64 << 20,
        dropped: 0,
        latency_ms: Latency::default(),
    }
}

#[test]
fn a_terminal_has_one_line_that_is_rewritten() {
    let mut live = live(true);
    let first = live.next(&report(0.0, 0)).expect("shown at once");
    assert_eq!(first, "\r\x1b[2K   0.0 s  in 0  out 0  0/s  memory 64.0 MB");
    // The rate is that since the last time, not since the start.
    let second = live.next(&report(2.0, 1_000)).expect("shown each time");
    assert_eq!(second, "\r\x1b[2K   2.0 s  in 1000  out 500  500/s  memory 64.0 MB");
    let third = live.next(&report(2.5, 2_001_000)).expect("shown each time");
    assert_eq!(third, "\r\x1b[2K   2.5 s  in 2.00 M  out 1.00 M  4.00 M/s  memory 64.0 MB");
}

#[test]
fn elsewhere_a_line_is_written_every_ten_seconds() {
    let mut live = live(false);
    assert_eq!(live.next(&report(0.2, 10)), None);
    assert_eq!(live.next(&report(9.9, 990)), None);
    let first = live.next(&report(12.0, 1_200)).expect("ten seconds are over");
    assert_eq!(first, "  12.0 s  in 1200  out 600  100/s  memory 64.0 MB\n");
    assert_eq!(live.next(&report(21.9, 2_190)), None, "not ten seconds after the last");
    let second = live.next(&report(22.0, 3_200)).expect("ten seconds are over again");
    assert_eq!(second, "  22.0 s  in 3200  out 1600  200/s  memory 64.0 MB\n");
}

#[test]
fn the_line_says_what_there_is() {
    let full = ProgressReport {
        watermark: Some(1_704_067_200_500),
        dropped: 3,
        latency_ms: Latency { p50: 0.1, p99: 12.34, p999: 20.0, max: 30.0 },
        ..report(100.0, 1_000)
    };
    for (terminal, before, behind) in [(true, CLEAR_LINE, ""), (false, "", "\n")] {
        let line = live(terminal).next(&full).expect("shown");
        let line = line.strip_prefix(before).and_then(|line| line.strip_suffix(behind)).expect("the form of the place");
        let expect = " 100.0 s  in 1000  out 500  10/s  p99 12.3 ms  watermark 2024-01-01 00:00:00.5  dropped 3  memory 64.0 MB";
        assert_eq!(line, expect);
    }
}

/// The partition that everybody waits for is named, also where there is no watermark yet because of it.
#[test]
fn who_holds_back_the_watermark_is_named() {
    let laggard = Some(Laggard { split: "orders:3".into(), watermark: None, silent_s: 12.4 });
    let line = |watermark| live(false).next(&ProgressReport { watermark, laggard: laggard.clone(), ..report(20.0, 0) }).expect("shown");
    assert!(line(None).contains("0/s  watermark held back by orders:3, silent for 12 s  memory"), "{}", line(None));
    let known = line(Some(1_704_067_200_000));
    assert!(known.contains("  watermark 2024-01-01 00:00:00 held back by orders:3, silent for 12 s  memory"), "{known}");
}

#[test]
fn quiet_is_quiet() {
    for terminal in [true, false] {
        let mut live = Live { quiet: true, ..live(terminal) };
        assert_eq!(live.next(&report(100.0, 1_000)), None);
    }
}

#[test]
fn counts_and_sizes_are_short() {
    for (n, expect) in [(0, "0"), (99_999, "99999"), (100_000, "100 k"), (1_234_567, "1.23 M"), (2_500_000_000, "2.50 G")] {
        assert_eq!(count(n), expect);
    }
    for (n, expect) in [(0, "0 B"), (9_999, "9999 B"), (10_240, "10 KB"), (12_345_678, "11.8 MB"), (16 << 30, "16.0 GB")] {
        assert_eq!(bytes(n), expect);
    }
}
