//! Tests of `goal`: where the cap settles.

use super::*;

/// The cap after many blocks of a source that gives as many rows as it may, at a cost of
/// `fixed_ns` a block and `row_ns` a row; rows wait `wait_ns` before they are taken.
fn settled(target: Option<Duration>, fixed_ns: u64, row_ns: u64, wait_ns: u64) -> usize {
    let mut goal = LatencyGoal::new(target);
    for _ in 0..4_000 {
        let rows = goal.cap();
        goal.observe(rows, wait_ns, fixed_ns + row_ns * rows as u64);
    }
    goal.cap()
}

fn ms(n: u64) -> Option<Duration> {
    Some(Duration::from_millis(n))
}

#[test]
fn the_cap_settles_where_service_takes_half_of_the_target() {
    let cap = settled(ms(5), 10_000, 10_000, 0);
    assert!((200..=285).contains(&cap), "{cap} rows at 10 µs each within 2.5 ms");
    let cap = settled(None, 1_000, 500, 0);
    assert!((800..=1_130).contains(&cap), "{cap} rows at half a microsecond each within half a millisecond");
}

#[test]
fn cheap_rows_come_in_full_blocks() {
    assert_eq!(settled(ms(5), 10_000, 10, 0), BLOCK_ROWS_AUTO);
    assert_eq!(settled(None, 1_000, 10, 0), BLOCK_ROWS_AUTO);
}

#[test]
fn more_than_a_thousand_rows_must_be_worth_it() {
    assert_eq!(settled(None, 10_000, 150, 0), ROWS_PLAIN);
    let cap = settled(None, 1_000, 30, 0);
    assert!((3_000..=3_300).contains(&cap), "{cap} rows at 30 ns each within a tenth of a millisecond");
}

#[test]
fn a_chunk_is_a_few_whole_blocks() {
    for (row_ns, cap, chunk) in [(100_000, 256, 1024), (150, 1024, 1024), (10, BLOCK_ROWS_AUTO, BLOCK_ROWS_AUTO)] {
        let mut goal = LatencyGoal::new(None);
        (0..4_000).for_each(|_| goal.observe(goal.cap(), 0, row_ns * goal.cap() as u64));
        assert_eq!((goal.cap(), goal.chunk(1024)), (cap, chunk), "{row_ns} ns a row");
    }
}

#[test]
fn a_target_that_cannot_be_met_leaves_single_rows_and_none_leaves_some() {
    assert_eq!(settled(Some(Duration::from_micros(1)), 10_000, 10_000, 0), 1);
    assert_eq!(settled(None, 10_000, 100_000, 0), ROWS_MIN_DEFAULT);
}

#[test]
fn a_backlog_is_drained_with_large_blocks() {
    assert_eq!(settled(ms(1), 100_000, 1_000, 50_000_000), BLOCK_ROWS_AUTO);
}

#[test]
fn few_rows_at_a_time_leave_the_cap_alone() {
    let mut goal = LatencyGoal::new(ms(5));
    let before = goal.cap();
    assert_eq!(before, ROWS_FIRST);
    (0..100).for_each(|_| goal.observe(3, 10_000, 20_000));
    assert_eq!(goal.cap(), before);
}

#[test]
fn a_stall_is_forgotten() {
    let mut goal = LatencyGoal::new(None);
    (0..100).for_each(|_| goal.observe(goal.cap(), 0, goal.cap() as u64 * 10));
    assert_eq!(goal.cap(), BLOCK_ROWS_AUTO);
    goal.observe(goal.cap(), 0, 1_000_000_000);
    assert_eq!(goal.cap(), BLOCK_ROWS_AUTO / 4);
    (0..100).for_each(|_| goal.observe(goal.cap(), 0, goal.cap() as u64 * 10));
    assert_eq!(goal.cap(), BLOCK_ROWS_AUTO);
}
