//! Which runs ought to be one: as many of about one size, the newest first, or all where most of their rows are hidden.

use std::ops::Range;

use super::{Growth, State};

/// Runs of about one size that are merged into one.
pub(super) const FAN_IN: usize = 8;
/// The same where nearly all rows are of new keys, which the store's filter refuses without a look at any run: then
/// many runs cost nobody anything, and fewer merges halve what is written of a large store.
pub(super) const FAN_IN_NEW: usize = MERGE_MAX;
/// Nearly all: for one hash that is read, at least so many rows are written.
const NEW_ROWS: u64 = 8;
/// Rows after which what was read and written before counts half.
const RECENT_ROWS: u64 = 1 << 20;
/// Most runs merged at once; each has a buffer of 256 KB.
pub(super) const MERGE_MAX: usize = 32;
/// With so many runs some are merged, whatever their sizes.
pub(super) const RUNS_PILED: usize = 64;
/// Size of the runs of the lowest tier; those of each further one are `FAN_IN` times as large.
const TIER_BYTES: u64 = 64 << 10;
/// Smaller stores are not merged for their hidden rows.
const GARBAGE_ROWS_MIN: u64 = 100_000;

/// What the store was used for of late.
#[derive(Default)]
pub(super) struct Recent {
    /// Rows that were written.
    rows: u64,
    /// Hashes that were read.
    reads: u64,
    /// Those that the counter of reads had when rows were counted last.
    counted: u64,
}

impl Recent {
    /// So many rows were written; the counter of reads stands at `reads`.
    pub(super) fn written(&mut self, rows: u64, reads: u64) {
        self.rows += rows;
        self.reads += reads.saturating_sub(std::mem::replace(&mut self.counted, reads));
        if self.rows > RECENT_ROWS {
            (self.rows, self.reads) = (self.rows / 2, self.reads / 2);
        }
    }

    /// Whether hardly anything was read.
    pub(super) fn is_new(&self) -> bool {
        self.reads.saturating_mul(NEW_ROWS) < self.rows
    }
}

impl State {
    /// Whether there are so many runs that some must be merged before anything else.
    pub(super) fn is_piled(&self) -> bool {
        self.runs.len() >= RUNS_PILED
    }

    /// Runs that ought to be one: those of a tier and all newer ones, if there are many of that tier; all runs,
    /// if most of their rows are hidden or deletions.
    pub(super) fn mergeable(&self) -> Option<Range<usize>> {
        let runs = self.runs.as_slice();
        let oldest = runs.first()?;
        let mut fan_in = FAN_IN;
        if let Some(filter) = &self.filter {
            let rows: u64 = runs.iter().map(|run| run.counts.rows).sum();
            // Deletions of keys that came again are counted, too, hence the second bound.
            let live = filter.live();
            let garbage = rows > GARBAGE_ROWS_MIN && rows > 3 * live.max(oldest.counts.rows / 2) && !filter.is_crowded();
            if garbage && matches!((&self.growth, runs.len()), (Growth::None, 2..=MERGE_MAX)) {
                return Some(0..runs.len());
            }
            // Rows that checkpoints write again and again are not read, but hide each other.
            if self.recent.is_new() && rows <= live + live / 4 {
                fan_in = FAN_IN_NEW;
            }
        }
        tiered(&runs.iter().map(|run| run.bytes).collect::<Vec<_>>(), fan_in)
    }
}

/// The tier of a run of so many bytes.
fn tier(bytes: u64) -> u32 {
    (bytes / TIER_BYTES).checked_ilog(FAN_IN as u64).map_or(0, |log| log + 1)
}

/// Neighbours that ought to be one by their sizes: those of a tier and all newer ones, if there are many of that
/// tier, `fan_in` or more. Where small runs have piled up before larger ones, as checkpoints leave them while a long merge
/// goes on, no tier has many behind the last larger run; then those that cost least, or the store would wait for ever.
pub(super) fn tiered(sizes: &[u64], fan_in: usize) -> Option<Range<usize>> {
    let tiers: Vec<u32> = sizes.iter().map(|bytes| tier(*bytes)).collect();
    let highest = tiers.iter().copied().max()?;
    for tier in 0..=highest {
        let start = tiers.iter().rposition(|t| *t > tier).map_or(0, |at| at + 1);
        if tiers[start..].iter().filter(|t| **t == tier).count() >= fan_in {
            return Some(start..sizes.len().min(start + MERGE_MAX));
        }
    }
    if sizes.len() < RUNS_PILED {
        return None;
    }
    let costs = sizes.windows(MERGE_MAX).map(|some| some.iter().sum::<u64>());
    let (start, _) = costs.enumerate().min_by_key(|(_, bytes)| *bytes)?;
    Some(start..start + MERGE_MAX)
}
