//! How many rows a source may hand over at once, so that rows reach the sinks in time.
//!
//! Large blocks cost least a row, small ones leave soonest. The cap is found by measuring, as Das et
//! al. do for batch intervals ("Adaptive Stream Processing using Dynamic Batch Sizing", SoCC 2014) and
//! as congestion control does: it shrinks when the time in which a block is worked off is what breaks
//! the target, and grows when there is room. When rows are late because they *waited* behind full
//! blocks, smaller blocks would only make it worse: then the cap grows too, since larger blocks drain
//! the queue faster.
//!
//! `block.latency-target` sets the target. Without it blocks are kept short enough that one is worked
//! off in half a millisecond: a job that spends a microsecond a row gains nothing from blocks of
//! thousands, and its rows wait for each other. More than a thousand rows are taken only where they are
//! so cheap that a block's own cost still counts: elsewhere a larger block gains a percent, leaves the
//! caches between one operator and the next, and reaches the threads of sinks in fewer, larger pieces, for
//! which one side then waits while the other works. That one waited for a sink is no service: smaller blocks
//! would wait for the same rows. Here are no clocks and no rows, only the decision.

use std::time::Duration;

use crate::settings::BLOCK_ROWS_AUTO;

/// Blocks looked at before the cap is changed.
const BLOCKS: u32 = 16;
/// Share of the target that a block's own service may take: a row waits for the block before its own
/// and then for its own.
const SERVICE_SHARE: u64 = 2;
/// The target when none is set.
const TARGET_DEFAULT: Duration = Duration::from_millis(1);
/// The least cap when no target is set: what a block costs beyond its rows stays a few percent.
const ROWS_MIN_DEFAULT: usize = 256;
/// When no target is set, more rows than these are taken only if they are worked off in [`SERVICE_LARGE_NS`].
const ROWS_PLAIN: usize = 1024;
/// What more than [`ROWS_PLAIN`] rows may take: 0.1 µs a row and less, of which a block's own cost (some µs)
/// would be several percent.
const SERVICE_LARGE_NS: u64 = 100_000;
/// The cap before anything is known, when memory and caches are cold, too: whatever a row costs, so many
/// do not make those behind them late. Cheap rows come in full blocks some fifty blocks later.
const ROWS_FIRST: usize = ROWS_PLAIN;
/// Blocks that are read together at most.
const CHUNK_BLOCKS: usize = 4;

/// A latency goal and the cap that serves it at the moment.
#[derive(Debug)]
pub(super) struct LatencyGoal {
    target_ns: u64,
    /// The target is the user's.
    asked: bool,
    /// The cap is not lowered below.
    rows_min: usize,
    cap: usize,
    blocks: u32,
    /// Of the blocks since the last decision: the longest wait before service, the time of service of
    /// all, and how many were as large as the cap.
    wait_ns: u64,
    service_ns: u64,
    full: u32,
}

impl LatencyGoal {
    /// A goal for the target that is set, if one is.
    pub fn new(target: Option<Duration>) -> Self {
        LatencyGoal {
            target_ns: target.unwrap_or(TARGET_DEFAULT).as_nanos() as u64,
            asked: target.is_some(),
            rows_min: if target.is_some() { 1 } else { ROWS_MIN_DEFAULT },
            cap: ROWS_FIRST,
            blocks: 0,
            wait_ns: 0,
            service_ns: 0,
            full: 0,
        }
    }

    /// The most rows to take at once.
    pub fn cap(&self) -> usize {
        self.cap
    }

    /// The most rows to read together where that is cheaper than one by one: a few whole blocks, of about
    /// so many rows.
    pub fn chunk(&self, about: usize) -> usize {
        self.cap * (about / self.cap).clamp(1, CHUNK_BLOCKS)
    }

    /// The most rows that are worked off in time, if as many as the cap take `service_ns`.
    fn fitting(&self, service_ns: u64) -> usize {
        let within = |budget_ns: u64| (self.cap as u128 * u128::from(budget_ns) / u128::from(service_ns.max(1))) as usize;
        let rows = within(self.target_ns / SERVICE_SHARE);
        if self.asked { rows } else { rows.min(ROWS_PLAIN).max(within(SERVICE_LARGE_NS)) }
    }

    /// Whether a block of so many rows says anything: smaller ones cannot be made smaller.
    pub fn concerns(&self, rows: usize) -> bool {
        rows >= self.rows_min
    }

    /// A block of `rows` rows had waited so long when it was taken, and was worked off in so long.
    pub fn observe(&mut self, rows: usize, wait_ns: u64, service_ns: u64) {
        self.wait_ns = self.wait_ns.max(wait_ns);
        self.service_ns += service_ns;
        self.full += u32::from(rows >= self.cap);
        self.blocks += 1;
        // What takes four times the target on average needs no more opinions.
        if self.blocks < BLOCKS && self.service_ns <= 4 * self.target_ns * u64::from(self.blocks) {
            return;
        }
        let mostly_full = self.full * 2 > self.blocks;
        let fitting = self.fitting(self.service_ns / u64::from(self.blocks));
        // Without a target of the user's only service counts: its blocks are never too small to drain a queue.
        let backlog = mostly_full && self.asked && self.wait_ns > 4 * self.target_ns;
        if fitting < self.cap && !backlog {
            // Service is nearly proportional to rows; a single stall must not cost more than three quarters.
            self.cap = fitting.max(self.cap / 4).max(self.rows_min);
        } else if mostly_full {
            // Service is short enough; if rows wait nevertheless they wait for more throughput.
            let step = if backlog || fitting / 2 > self.cap { self.cap } else { self.cap / 8 + 1 };
            let most = if backlog { BLOCK_ROWS_AUTO } else { fitting.min(BLOCK_ROWS_AUTO) };
            self.cap = (self.cap + step).min(most);
        }
        (self.blocks, self.wait_ns, self.service_ns, self.full) = (0, 0, 0, 0);
    }
}

#[cfg(test)]
mod tests;
