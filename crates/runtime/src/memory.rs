//! The memory limit of a job: what its parts may use of it, and what is done when the process comes near it.
//!
//! State that can go to the disk has a share that is reckoned before the job starts, from what a process is known to hold
//! beside state. How much that is depends on what runs: buffers of merges, queues that fill, pages of the allocator that are
//! used in part. So the coordinator looks at what the process holds, and near the limit withholds of the share what is
//! too much; with room again it gives back, more slowly. Only what that does not help against ends the job.

use std::sync::Arc;

use tidemill_connect::{Sink, Source};
use tidemill_operator::MemoryShare;

use crate::settings::{Settings, StateBackend};

/// What a process with one shard holds beside state: the program's pages, queues, buffers of files. Measured, bytes.
const PROCESS_BYTES: f64 = (128 << 20) as f64;
/// What it holds more for each further shard: queues, buffers of merges, pages of the allocator. Measured, bytes.
const SHARD_BYTES: f64 = (32 << 20) as f64;

/// The part of the limit that sources may fill with what they fetch ahead, all together.
const AHEAD: u64 = 16;

/// Tells sources how much they may fetch ahead, if memory is limited; how many bytes of it they may come to use.
pub(crate) fn limit_sources(settings: &Settings, sources: &[Arc<dyn Source>]) -> u64 {
    let Some(limit) = settings.memory else { return 0 };
    sources.iter().map(|source| source.limit_memory((limit.0 / AHEAD / sources.len() as u64).max(1))).sum()
}

/// The part of the limit that rows may take which sinks hold to write them together, all of them.
const HELD: u64 = 4;

/// Tells sinks how much they may hold, if memory is limited; how many bytes of it they may come to use with so many writers each.
pub(crate) fn limit_sinks(settings: &Settings, sinks: &[Arc<dyn Sink>], writers: usize) -> u64 {
    let Some(limit) = settings.memory else { return 0 };
    sinks.iter().map(|sink| sink.limit_memory((limit.0 / HELD / sinks.len() as u64).max(1), writers)).sum()
}

/// What each operator and shard that can keep state on disk may hold in memory, bytes: `operators` is how many
/// of these there are, `rows` what sources and sinks may hold. `None`: state stays in memory. Of a small limit
/// less than the share is left, since the process holds more than state.
pub(crate) fn memory_share(settings: &Settings, operators: usize, shards: usize, rows: u64) -> Option<usize> {
    let limit = settings.memory.filter(|_| settings.state_backend == StateBackend::Auto && operators > 0)?.0 as f64;
    let beside = PROCESS_BYTES + SHARD_BYTES * (shards - 1) as f64 + rows as f64;
    let left = (limit * 0.8 - beside).max(limit / 16.0);
    Some((limit * settings.memory_share).min(left) as usize / operators)
}

/// The process is near its limit when it holds all of it but this part, as its divisor.
const NEAR: u64 = 16;
/// It has room again when so much of the limit is free.
const ROOM: u64 = 8;
/// With room, so much of the limit is given back at a look.
const GIVEN_BACK: u64 = 64;
/// Beyond the limit by no more than this part of it, a job whose state is about to leave memory goes on ...
const BEYOND: u64 = 16;
/// ... for so many looks in a row.
const LOOKS_BEYOND: u32 = 10;

/// Keeps what the process holds below the limit, by what state may use.
pub(crate) struct MemoryWatch {
    limit: u64,
    /// Of state that can go to the disk, and how many operators and shards have each that much.
    share: Option<(Arc<MemoryShare>, u64)>,
    /// Looks in a row at which the process held more than the limit.
    beyond: u32,
}

impl MemoryWatch {
    /// For a limit in bytes. `share` is what each of so many operators and shards may use that can keep state on disk.
    pub fn new(limit: u64, share: Option<(Arc<MemoryShare>, u64)>) -> Self {
        MemoryWatch { limit, share, beyond: 0 }
    }

    /// The limit, bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Whether something should be done when the process holds so many bytes, to begin with giving back what is free.
    pub fn is_near(&self, held: u64) -> bool {
        held > self.goal()
    }

    /// Whether the job must end, as it holds so many bytes and nothing that is free. Otherwise state may use as much from now on as leaves
    /// it below the limit.
    pub fn must_end(&mut self, held: u64) -> bool {
        let near = self.goal();
        if let Some((share, operators)) = &self.share {
            let withheld = share.withheld();
            if held > near {
                share.withhold(withheld + ((held - near) / operators) as usize);
            } else if withheld > 0 && held < self.limit - self.limit / ROOM {
                share.withhold(withheld.saturating_sub((self.limit / GIVEN_BACK / operators) as usize));
            }
        }
        self.beyond = if held > self.limit { self.beyond + 1 } else { 0 };
        let waits = self.share.is_some() && held <= self.limit + self.limit / BEYOND && self.beyond <= LOOKS_BEYOND;
        self.beyond > 0 && !waits
    }

    /// What the process should hold at most.
    fn goal(&self) -> u64 {
        if self.share.is_some() { self.limit - self.limit / NEAR } else { self.limit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        let map: BTreeMap<String, String> = pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        Settings::from_map(&map).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn shares_of_memory() {
        let share = |pairs: &[(&str, &str)], operators| memory_share(&settings(pairs), operators, 1, 0);
        assert_eq!(share(&[], 2), None);
        assert_eq!(share(&[("memory.limit", "1gb")], 0), None);
        assert_eq!(share(&[("memory.limit", "1gb")], 2), Some(256 << 20));
        assert_eq!(share(&[("memory.limit", "1gb"), ("state.memory-share", "0.25")], 1), Some(256 << 20));
        assert_eq!(share(&[("memory.limit", "1gb"), ("state.backend", "memory")], 1), None);
        assert_eq!(share(&[("memory.limit", "320mb")], 1), Some(128 << 20));
        assert_eq!(share(&[("memory.limit", "160mb")], 1), Some(10 << 20));
        let beside = |bytes, shards| memory_share(&settings(&[("memory.limit", "320mb")]), 1, shards, bytes);
        assert_eq!((beside(20 << 20, 1), beside(1 << 30, 1)), (Some(108 << 20), Some(20 << 20)));
        assert_eq!((beside(0, 2), beside(0, 16)), (Some(96 << 20), Some(20 << 20)));
    }

    const MB: u64 = 1 << 20;

    /// State leaves what the process is short of, each operator its part, and takes it again step by step.
    #[test]
    fn state_gives_way_to_what_else_is_held() {
        let share = Arc::new(MemoryShare::new(80 << 20));
        let mut watch = MemoryWatch::new(320 * MB, Some((share.clone(), 2)));
        assert!(!watch.is_near(300 * MB) && watch.is_near(301 * MB));
        assert!(!watch.must_end(310 * MB) && !watch.must_end(304 * MB));
        assert_eq!(share.withheld(), 7 << 20);
        assert!(!watch.must_end(290 * MB));
        assert_eq!(share.withheld(), 7 << 20);
        (0..2).for_each(|_| assert!(!watch.must_end(279 * MB)));
        assert_eq!(share.withheld(), 2 << 20);
        assert!(!watch.must_end(100 * MB));
        assert_eq!(share.withheld(), 0);
        (0..50).for_each(|_| assert!(!watch.must_end(319 * MB)));
        assert_eq!(share.withheld(), 80 << 20);
    }

    #[test]
    fn a_job_ends_that_stays_beyond_the_limit() {
        let share = || Some((Arc::new(MemoryShare::new(80 << 20)), 2));
        let mut watch = MemoryWatch::new(320 * MB, share());
        (0..LOOKS_BEYOND).for_each(|_| assert!(!watch.must_end(330 * MB)));
        assert!(!watch.must_end(320 * MB), "in time");
        (0..LOOKS_BEYOND).for_each(|_| assert!(!watch.must_end(330 * MB)));
        assert!(watch.must_end(321 * MB));
        assert!(MemoryWatch::new(320 * MB, share()).must_end(341 * MB), "too far");
        let mut nothing_leaves = MemoryWatch::new(320 * MB, None);
        assert!(!nothing_leaves.is_near(320 * MB) && !nothing_leaves.must_end(320 * MB) && nothing_leaves.must_end(320 * MB + 1));
    }
}
