//! A line of limited bandwidth: everything sent over it takes its turn.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use tokio::time::sleep_until;

use crate::runtime::lock;

/// Bytes that are sent at once: small enough that connections share the line evenly.
pub(super) const FRAME: usize = 64 << 10;

/// A line, shared by those who send over it.
pub(super) struct Line {
    /// Seconds for a byte; 0 for none.
    pace: f64,
    /// When it is free again.
    free: Mutex<Option<Instant>>,
}

impl Line {
    pub fn new(bandwidth: Option<u64>) -> Self {
        Line { pace: bandwidth.map_or(0.0, |b| 1.0 / b.max(1) as f64), free: Mutex::new(None) }
    }

    /// Waits until `bytes` have passed.
    pub async fn pass(&self, bytes: usize) {
        if self.pace == 0.0 {
            return;
        }
        let until = {
            let mut free = lock(&self.free);
            let now = Instant::now();
            let begins = free.map_or(now, |free| free.max(now));
            *free.insert(begins + Duration::from_secs_f64(self.pace * bytes as f64))
        };
        sleep_until(until.into()).await;
    }
}
