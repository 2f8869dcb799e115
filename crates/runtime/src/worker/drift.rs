//! How far a worker reads ahead of others in event time.
//!
//! Within a worker the files of a table are merged by event time. Workers that read parts of one table each go at their own pace,
//! and rows of the one that is ahead wait for the watermark of the one that lags, at whoever needs rows in order of time or whole
//! windows: what waits fills the memory, and is out of the caches when its time comes. So a worker that is ahead by more than
//! some bytes lets the others come up first. Only where they will: in a table that ends, where nobody is passed over for being
//! idle. And not for ever: the one that lags may be kept from reading by something else that the one ahead has to do first.
//!
//! Here are no clocks and no rows, only the decision.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tidemill_block::{NO_WATERMARK, WATERMARK_END};

/// So many bytes of rows may be ahead of the one that lags most.
const AHEAD_BYTES_MAX: usize = 4 << 20;
/// If the one that lags does not move for so long, nobody waits for it until it has come up.
const PATIENCE: Duration = Duration::from_millis(100);

/// How far the workers that read a table are in event time, ms.
pub(crate) struct Reached(Vec<AtomicI64>);

impl Reached {
    /// So many workers, of which none has read anything.
    pub fn new(shards: usize) -> Arc<Self> {
        Arc::new(Reached((0..shards).map(|_| AtomicI64::new(NO_WATERMARK)).collect()))
    }

    /// Where the one is that lags most, but for `shard`.
    fn lowest_beside(&self, shard: usize) -> i64 {
        let others = self.0.iter().enumerate().filter(|(other, _)| *other != shard);
        others.map(|(_, reached)| reached.load(Ordering::Relaxed)).min().unwrap_or(WATERMARK_END)
    }
}

/// A worker's distance from the others.
pub(super) struct Drift {
    reached: Arc<Reached>,
    shard: usize,
    /// What was read and is ahead: the watermark behind it, and bytes; in order.
    ahead: VecDeque<(i64, usize)>,
    ahead_bytes: usize,
    /// Since when this worker waits (ns), and where the one that lags stood then.
    waiting: Option<(u64, i64)>,
    in_vain: bool,
}

impl Drift {
    /// The distance of worker `shard`, which begins.
    pub fn new(reached: Arc<Reached>, shard: usize) -> Self {
        reached.0[shard].store(NO_WATERMARK, Ordering::Relaxed);
        Drift { reached, shard, ahead: VecDeque::new(), ahead_bytes: 0, waiting: None, in_vain: false }
    }

    /// Rows of so many bytes were read, behind which the watermark is `watermark`.
    pub fn read(&mut self, watermark: i64, bytes: usize) {
        self.reached.0[self.shard].store(watermark, Ordering::Relaxed);
        self.ahead_bytes += bytes;
        match self.ahead.back_mut() {
            Some((last, together)) if *last == watermark => *together += bytes,
            _ => self.ahead.push_back((watermark, bytes)),
        }
    }

    /// Nothing more will be read here.
    pub fn end(&mut self) {
        self.reached.0[self.shard].store(WATERMARK_END, Ordering::Relaxed);
    }

    /// Whether more may be read at this time, ns.
    pub fn may_read(&mut self, now_ns: impl FnOnce() -> u64) -> bool {
        if self.ahead_bytes <= AHEAD_BYTES_MAX {
            // Whoever lags is not asked with every block.
            return true;
        }
        let lowest = self.reached.lowest_beside(self.shard);
        while self.ahead.front().is_some_and(|(watermark, _)| *watermark <= lowest) {
            self.ahead_bytes -= self.ahead.pop_front().expect("there is one").1;
        }
        if self.ahead_bytes <= AHEAD_BYTES_MAX {
            (self.waiting, self.in_vain) = (None, false);
            return true;
        }
        if self.in_vain {
            return true;
        }
        let now_ns = now_ns();
        match self.waiting {
            Some((since_ns, stood)) if stood == lowest => self.in_vain = now_ns.saturating_sub(since_ns) > PATIENCE.as_nanos() as u64,
            _ => self.waiting = Some((now_ns, lowest)),
        }
        self.in_vain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Two workers that read the same table.
    fn pair() -> (Drift, Drift) {
        let reached = Reached::new(2);
        (Drift::new(reached.clone(), 0), Drift::new(reached, 1))
    }

    #[test]
    fn who_is_ahead_waits_until_the_other_has_come_up() {
        let (mut fast, mut slow) = pair();
        for second in 1..=4 {
            assert!(fast.may_read(|| 0));
            fast.read(second * 1000, 1 << 20);
        }
        assert!(fast.may_read(|| 0), "so much may be ahead");
        fast.read(5000, 1 << 20);
        assert!(!fast.may_read(|| 0), "the other has not begun");
        slow.read(999, 1 << 20);
        assert!(!fast.may_read(|| 0), "a second's rows are still ahead of it");
        slow.read(1000, 1 << 20);
        assert!(fast.may_read(|| 0));
        assert!(slow.may_read(|| 0));
        fast.read(6000, 1 << 20);
        assert!(!fast.may_read(|| 0));
        slow.end();
        assert!(fast.may_read(|| 0), "nobody is left to wait for");
    }

    #[test]
    fn nobody_waits_for_ever() {
        let (mut fast, mut slow) = pair();
        fast.read(1000, 2 * AHEAD_BYTES_MAX);
        assert!(!fast.may_read(|| 0));
        assert!(!fast.may_read(|| 100 * MS));
        slow.read(10, 1);
        assert!(!fast.may_read(|| 150 * MS), "it has moved");
        assert!(!fast.may_read(|| 250 * MS));
        assert!(fast.may_read(|| 251 * MS), "it has not moved for long");
        fast.read(2000, 2 * AHEAD_BYTES_MAX);
        assert!(fast.may_read(|| 252 * MS), "and is not waited for again");
        slow.read(2000, 1);
        assert!(fast.may_read(|| 253 * MS));
        fast.read(3000, 2 * AHEAD_BYTES_MAX);
        assert!(!fast.may_read(|| 254 * MS), "until it has come up");
    }

    #[test]
    fn rows_without_a_new_time_are_counted() {
        let (mut fast, mut slow) = pair();
        (0..3).for_each(|_| fast.read(7, AHEAD_BYTES_MAX / 2));
        assert!(!fast.may_read(|| 0));
        slow.read(7, 1);
        assert!(fast.may_read(|| 0));
    }

    #[test]
    fn one_worker_waits_for_nobody() {
        let mut only = Drift::new(Reached::new(1), 0);
        only.read(1000, 2 * AHEAD_BYTES_MAX);
        assert!(only.may_read(|| 0));
    }
}
