//! How far ahead of a reader requests are made: found by measuring what one more is worth.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Requests that a reader makes before more are tried.
pub(crate) const ALWAYS: usize = 2;
/// Requests whose bytes are looked at together.
const WINDOW: u32 = 4;
/// Twice as many requests must bring this much, or they are taken back.
const GAIN_MIN: f64 = 1.1;
/// Windows until more requests are tried again.
const HOLD: u32 = 8;
/// A reader that waits for more than this share of the time is held up by the network.
const WAITS: f64 = 0.2;
/// A reader that waits for less than this share is slower than the network.
const BUSY: f64 = 0.01;

/// The number of requests for one reader. Times are given, so that a test can make them up.
#[derive(Debug)]
pub(crate) struct Pace {
    ahead: usize,
    max: usize,
    /// What there was before the last doubling, with the rate it gave.
    tried: Option<(usize, f64)>,
    hold: u32,
    requests: u32,
    bytes: u64,
    waited: Duration,
    since: Duration,
}

impl Pace {
    pub fn new(max: usize) -> Self {
        let max = max.max(1);
        Pace { ahead: ALWAYS.min(max), max, tried: None, hold: 0, requests: 0, bytes: 0, waited: Duration::ZERO, since: Duration::ZERO }
    }

    /// How many requests there should be.
    pub fn ahead(&self) -> usize {
        self.ahead
    }

    /// The body of a request was used up: its bytes, how long the reader waited for them, and the time since the
    /// reader began.
    pub fn done(&mut self, bytes: u64, waited: Duration, now: Duration) {
        self.requests += 1;
        self.bytes += bytes;
        self.waited += waited;
        if self.requests < WINDOW.max(self.ahead as u32) {
            return;
        }
        let elapsed = now.saturating_sub(self.since).as_secs_f64().max(1e-9);
        let (rate, waits) = (self.bytes as f64 / elapsed, self.waited.as_secs_f64() / elapsed);
        (self.requests, self.bytes, self.waited, self.since) = (0, 0, Duration::ZERO, now);
        self.hold = self.hold.saturating_sub(1);
        if let Some((fewer, before)) = self.tried.take()
            && rate < before * GAIN_MIN
        {
            self.ahead = fewer;
            self.hold = HOLD;
            return;
        }
        if waits > WAITS && self.hold == 0 && self.ahead < self.max {
            self.tried = Some((self.ahead, rate));
            self.ahead = (self.ahead * 2).min(self.max);
        } else if waits < BUSY && self.ahead > ALWAYS.min(self.max) {
            self.ahead -= 1;
        }
    }
}

/// Memory that all writers of the process may use for parts. That of readers is [`crate::ahead`].
pub(crate) struct Budget {
    bytes_max: u64,
    used: AtomicU64,
}

impl Budget {
    pub const fn new(bytes_max: u64) -> Self {
        Budget { bytes_max, used: AtomicU64::new(0) }
    }

    /// Takes `bytes`, with `must` even if there are none left.
    pub fn ticket(&'static self, bytes: u64, must: bool) -> Option<Ticket> {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        let ticket = Ticket { budget: self, bytes };
        (must || before + bytes <= self.bytes_max).then_some(ticket)
    }
}

/// A share of a [`Budget`], given back when dropped.
pub(crate) struct Ticket {
    budget: &'static Budget,
    bytes: u64,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where it ends after 60 windows, if `rate(n)` bytes a second come with n requests and the reader can use `most`.
    fn settle(max: usize, rate: impl Fn(usize) -> f64, most: f64) -> Vec<usize> {
        let mut pace = Pace::new(max);
        let mut now = 0.0;
        let mut seen = Vec::new();
        for _ in 0..60 {
            for _ in 0..WINDOW.max(pace.ahead() as u32) {
                let (arrives, uses) = (1e6 / rate(pace.ahead()), 1e6 / most);
                now += arrives.max(uses);
                pace.done(1_000_000, Duration::from_secs_f64((arrives - uses).max(0.0)), Duration::from_secs_f64(now));
            }
            seen.push(pace.ahead());
        }
        seen
    }

    #[test]
    fn latency_is_met_with_more_requests() {
        assert_eq!(settle(16, |n| n as f64 * 1e7, 1e12).last(), Some(&16));
    }

    #[test]
    fn a_full_line_gets_no_more() {
        let seen = settle(16, |n| (n as f64).min(4.0) * 1e7, 1e12);
        // Eight are tried now and then, and taken back.
        assert!(seen.iter().filter(|n| **n == 4).count() > 45, "{seen:?}");
        assert!(seen.iter().all(|n| *n <= 8), "{seen:?}");
    }

    #[test]
    fn a_slow_reader_keeps_few() {
        assert_eq!(settle(16, |n| n as f64 * 1e8, 1e7).last(), Some(&2));
        assert_eq!(settle(1, |_| 1e7, 1e12).last(), Some(&1));
    }

    #[test]
    fn tickets_come_back() {
        static BUDGET: Budget = Budget::new(10);
        let first = BUDGET.ticket(8, false);
        assert!(first.is_some() && BUDGET.ticket(8, false).is_none());
        assert!(BUDGET.ticket(8, true).is_some());
        drop(first);
        assert!(BUDGET.ticket(10, false).is_some());
    }
}
