//! Samples of this process: where its time goes, and how much memory it holds.
//!
//! Processor time, memory and waiting are those of the whole process: of two jobs in one process each sees both, and
//! neither adds workers where the other uses up what there is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidemill_connect::filesystem::cache::{Waits, machine_memory, waits};

use super::Sample;
use super::search::MEMORY_GOAL;
use crate::metrics::{own_bytes, process_usage, resident_bytes};

/// Without a limit, the share of the machine's memory that is taken for one: others want to live, too.
const MACHINE_SHARE: u64 = 2;
/// Without a limit, what the process may hold for readers to be added, bytes. Those that are there may stay beyond it: memory may be
/// taken by a sort, whatever they do.
const UNASKED: u64 = 768 << 20;

/// Time that writers of this process have spent, ns.
static WROTE_NS: AtomicU64 = AtomicU64::new(0);

/// Rows were written, which took so long. To be called once a block.
pub fn wrote(took: Duration) {
    WROTE_NS.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// Takes samples.
#[derive(Debug)]
pub struct Meter {
    at: Instant,
    cpu_s: f64,
    waits: Waits,
    wrote_ns: u64,
    bytes: u64,
    processors: f64,
    memory: u64,
    /// What the process holds is measured against a limit of its own: by that a job is ended that holds more, pages of
    /// mapped files included.
    limited: bool,
}

impl Meter {
    /// From now on. `memory` is the limit of the process in bytes, if it has one; `bytes` were read before.
    pub fn new(memory: Option<u64>, bytes: u64) -> Self {
        let (user, system) = process_usage();
        Meter {
            at: Instant::now(),
            cpu_s: user + system,
            waits: waits(),
            wrote_ns: WROTE_NS.load(Ordering::Relaxed),
            bytes,
            processors: std::thread::available_parallelism().map_or(1, usize::from) as f64,
            memory: memory.unwrap_or(machine_memory() / MACHINE_SHARE),
            limited: memory.is_some(),
        }
    }

    /// How long ago the last sample was taken.
    pub fn age(&self) -> Duration {
        self.at.elapsed()
    }

    /// What happened since the last sample: `active` read, by now `bytes` in all; `writers` at most write at once.
    pub fn sample(&mut self, bytes: u64, active: usize, writers: usize) -> Sample {
        let now = Instant::now();
        let elapsed = now - self.at;
        let (user, system) = process_usage();
        let (waits, wrote_ns) = (waits(), WROTE_NS.load(Ordering::Relaxed));
        let seconds = elapsed.as_secs_f64().max(1e-9);
        let of = |part: f64, whole: f64| (part / whole.max(1e-9)).clamp(0.0, 1.0);
        let readers = seconds * active.max(1) as f64;
        let held = if self.limited { resident_bytes() } else { own_bytes() };
        let sample = Sample {
            elapsed,
            bytes: bytes.saturating_sub(self.bytes),
            active,
            disk: of(waits.disk.saturating_sub(self.waits.disk).as_secs_f64(), readers),
            network: of(waits.network.saturating_sub(self.waits.network).as_secs_f64(), readers),
            sink: of(wrote_ns.saturating_sub(self.wrote_ns) as f64 / 1e9, seconds * writers.max(1) as f64),
            busy: of(user + system - self.cpu_s, seconds * self.processors),
            memory: share(held, self.memory, self.limited),
        };
        (self.at, self.cpu_s, self.waits, self.wrote_ns, self.bytes) = (now, user + system, waits, wrote_ns, bytes);
        sample
    }
}

/// The share of the memory of which `held` bytes are held, of so many; if that is no limit that somebody has set, it is called full
/// enough to add nobody as soon as more is held than may be without having been asked for.
fn share(held: u64, memory: u64, limited: bool) -> f64 {
    let of = |whole: u64| if whole == 0 { 0.0 } else { held as f64 / whole as f64 };
    if limited { of(memory) } else { of(memory).max(MEMORY_GOAL * of(UNASKED).min(1.0)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_has_allowed_is_enough_before_the_machine_is_full() {
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        near(share(600 << 20, 1 << 30, true), 600.0 / 1024.0);
        near(share(UNASKED / 2, 64 << 30, false), MEMORY_GOAL / 2.0);
        // Nobody is added, and nobody sent away.
        near(share(UNASKED, 64 << 30, false), MEMORY_GOAL);
        near(share(10 << 30, 64 << 30, false), MEMORY_GOAL);
        near(share(60 << 30, 64 << 30, false), 60.0 / 64.0);
        near(share(1 << 30, 0, false), MEMORY_GOAL);
    }
}
