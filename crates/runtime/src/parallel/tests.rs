//! The search among machines that are made up: what is read a second, and where the time goes, is computed from what a
//! worker does with a megabyte. No clock is involved.

use std::time::Duration;

use tidemill_connect::Fetching;

use super::readers::Readers;
use super::*;

/// What there is, in megabytes a second, and what a megabyte costs.
#[derive(Clone, Copy)]
struct World {
    processors: f64,
    /// Seconds of a processor for a megabyte.
    computes: f64,
    /// Seconds that a worker waits for a megabyte when nobody else wants any.
    waits: f64,
    /// The most that comes in, from disks rather than from a network.
    line: f64,
    disk: bool,
    /// The most that goes out.
    sink: f64,
    /// Shares of the memory: the program, and a worker.
    held: f64,
    each: f64,
}

const WORLD: World = World { processors: 2.0, computes: 0.001, waits: 0.0, line: 1e9, disk: false, sink: 1e9, held: 0.02, each: 0.001 };

impl World {
    /// Megabytes a second that so many workers read.
    fn rate(&self, workers: f64) -> f64 {
        let alone = workers / (self.computes + self.waits);
        alone.min(self.processors / self.computes).min(self.line).min(self.sink)
    }

    /// A tenth of a second of so many workers, of which what was read is off by a share.
    fn sample(&self, workers: usize, noise: f64) -> Sample {
        let rate = self.rate(workers as f64);
        let busy = (rate * self.computes / self.processors).min(1.0);
        let idle = (1.0 - rate * self.computes / workers as f64).clamp(0.0, 1.0);
        let sink = if rate >= self.sink { idle } else { 0.0 };
        // Processors in turns: who waits for one does not wait for bytes.
        let comes = if busy > 0.99 { 0.0 } else { idle - sink };
        Sample {
            elapsed: Duration::from_millis(100),
            bytes: (rate * 1e5 * (1.0 + noise)) as u64,
            active: workers,
            disk: if self.disk { comes } else { 0.0 },
            network: if self.disk { 0.0 } else { comes },
            sink,
            busy,
            memory: self.held + self.each * workers as f64,
        }
    }
}

/// Numbers that look random between -1 and 1, always the same.
fn noise(state: &mut u64) -> f64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as f64 / f64::from(1u32 << 30) - 1.0
}

const FROM_TWO: Bounds = Bounds { first: 2, least: 1, most: 32 };

fn searching(bounds: Bounds) -> Search {
    Search::new(bounds, Duration::from_millis(400))
}

/// The numbers of workers that are seen in two minutes, and what was found.
fn run(world: World, bounds: Bounds, off: f64) -> (Vec<usize>, Found) {
    let (mut search, mut state) = (searching(bounds), 1);
    let mut seen = Vec::new();
    for _ in 0..1200 {
        seen.push(search.workers());
        search.observe(&world.sample(search.workers(), off * noise(&mut state)));
    }
    assert!(seen.iter().all(|n| (bounds.least..=bounds.most).contains(n)), "{seen:?}");
    (seen, search.found())
}

/// Finds a number within `expect`, without and with noise of 2 %, and stays near it for most of the time.
#[track_caller]
fn check(world: World, bounds: Bounds, expect: std::ops::RangeInclusive<usize>, limit: Option<Limit>) {
    for off in [0.0, 0.02] {
        let (seen, found) = run(world, bounds, off);
        assert!(expect.contains(&found.workers), "{off}: {found:?}, {seen:?}");
        assert_eq!(found.limited_by, limit, "{off}");
        let near = seen[300..].iter().filter(|n| expect.contains(n)).count();
        assert!(near > 700, "{off}: {near} of 900: {seen:?}");
    }
}

#[test]
fn processors_that_are_busy_get_no_more_workers() {
    check(WORLD, FROM_TWO, 2..=2, Some(Limit::Processors));
    check(World { processors: 4.0, ..WORLD }, Bounds { first: 4, ..FROM_TWO }, 4..=4, Some(Limit::Processors));
}

#[test]
fn latency_is_met_with_more_workers() {
    let world = World { waits: 0.2, ..WORLD };
    check(world, FROM_TWO, 32..=32, Some(Limit::Network));
    let (seen, _) = run(world, FROM_TWO, 0.0);
    let settled = seen.iter().position(|n| *n == 32).unwrap();
    assert!(settled <= 25, "found after {settled} samples: {seen:?}");
}

#[test]
fn a_full_line_and_a_throttled_disk_keep_as_many_as_fill_them() {
    // Ten workers fill the line.
    check(World { waits: 0.099, line: 100.0, ..WORLD }, FROM_TWO, 8..=13, Some(Limit::Network));
    // Four do it to the disk.
    check(World { waits: 0.024, line: 160.0, disk: true, ..WORLD }, FROM_TWO, 3..=5, Some(Limit::Disk));
}

#[test]
fn a_disk_that_one_worker_fills_is_left_to_one() {
    check(World { line: 100.0, disk: true, ..WORLD }, FROM_TWO, 1..=1, Some(Limit::Disk));
    check(World { line: 100.0, disk: true, ..WORLD }, Bounds { least: 2, ..FROM_TWO }, 2..=2, Some(Limit::Disk));
}

#[test]
fn a_slow_sink_withdraws_workers() {
    let bounds = Bounds { first: 4, ..FROM_TWO };
    check(World { waits: 0.001, sink: 600.0, ..WORLD }, bounds, 1..=2, Some(Limit::Sink));
}

#[test]
fn memory_bounds_them() {
    let world = World { waits: 0.2, held: 0.1, each: 0.09, ..WORLD };
    check(world, FROM_TWO, 6..=7, Some(Limit::Memory));
    let (seen, _) = run(world, FROM_TWO, 0.02);
    assert!(seen.iter().all(|n| world.sample(*n, 0.0).memory < 0.9), "{seen:?}");
}

#[test]
fn memory_that_runs_short_withdraws_them_at_once() {
    let world = World { waits: 0.2, ..WORLD };
    let mut search = searching(FROM_TWO);
    for _ in 0..100 {
        search.observe(&world.sample(search.workers(), 0.0));
    }
    assert_eq!(search.workers(), 32);
    let mut full = Sample { memory: 0.95, ..world.sample(32, 0.0) };
    assert_eq!(search.observe(&full), Advice::Withdraw(11));
    // Those that go are still at it.
    assert_eq!((search.observe(&full), search.workers()), (Advice::Stay, 21));
    full.active = 21;
    assert_eq!((search.observe(&full), search.observe(&full)), (Advice::Stay, Advice::Withdraw(7)));
    // Of those that are wanted some are not there: they need not come.
    full.active = 9;
    assert_eq!((search.observe(&full), search.workers()), (Advice::Withdraw(5), 9));
}

#[test]
fn what_too_few_do_is_not_judged() {
    let world = World { waits: 0.2, ..WORLD };
    let mut search = searching(FROM_TWO);
    let few = world.sample(1, 0.0);
    assert!((0..100).all(|_| search.observe(&few) == Advice::Stay));
    assert_eq!(search.found(), Found { workers: 2, found: true, limited_by: Some(Limit::Network) });
}

#[test]
fn a_fixed_number_stays_and_knows_its_limit() {
    let mut search = Search::fixed(6);
    assert!((0..100).all(|_| search.observe(&World { waits: 0.2, ..WORLD }.sample(6, 0.0)) == Advice::Stay));
    assert_eq!(search.found().to_string(), "read by 6 workers, limited by the network");
    assert_eq!(Search::fixed(0).found().to_string(), "read by 1 worker");
    let found = Found { workers: 6, found: true, limited_by: Some(Limit::Disk) };
    assert_eq!(found.to_string(), "read by 6 workers (found), limited by the disk");
    assert_eq!(serde_json::json!(found), serde_json::json!({"workers": 6, "found": true, "limited_by": "disk"}));
}

#[test]
fn seats_are_divided_among_shards() {
    let shares = |at_once| {
        let readers = Readers::new(Fetching::Network, at_once, 3, None);
        (0..3).map(|shard| readers.share(shard)).collect::<Vec<_>>()
    };
    assert_eq!([shares(AtOnce::Fixed(8)), shares(AtOnce::Fixed(1)), shares(AtOnce::Auto)], [[3, 3, 2], [1, 1, 1], [1, 1, 1]]);
    let readers = Readers::new(Fetching::Local, AtOnce::Auto, 2, None);
    assert_eq!((readers.ahead(), readers.found()), (false, None));
    let seats = [readers.seat(), readers.seat(), readers.seat()];
    drop(seats);
    let found = readers.found().unwrap();
    assert_eq!((found.workers, found.found), (2, false));
}

#[test]
fn the_option() {
    assert_eq!(AtOnce::parse("Auto"), Ok(AtOnce::Auto));
    assert_eq!(AtOnce::parse("12"), Ok(AtOnce::Fixed(12)));
    assert!(AtOnce::parse("0").is_err() && AtOnce::parse("2000").is_err() && AtOnce::parse("many").is_err());
}
