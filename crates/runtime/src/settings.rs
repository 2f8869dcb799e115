//! What `SET` can set.

use std::collections::BTreeMap;
use std::time::Duration;

use tidemill_connect::io::IO_THREADS_MAX;
use tidemill_format::options::{ByteSize, OptionSet, OptionSpec, OptionValue, RawOptions};
use tidemill_format::{option_enum, options};
use tidemill_plan::pattern::{AtBound, Bounds};

use crate::JobError;
use crate::parallel::AtOnce;

option_enum! {
    /// How a job is executed.
    pub enum RuntimeMode {
        /// Our stream runtime.
        Streaming = "streaming",
        /// DataFusion's executor; every input must be bounded.
        Batch = "batch",
    }
}

option_enum! {
    /// What a pattern does when a key would keep more than it may.
    pub enum AtPatternBound {
        /// The job fails and names the pattern variable.
        Fail = "fail",
        /// The oldest undecided match is given up.
        DropOldest = "drop-oldest",
    }
}

option_enum! {
    /// Whether rows of the same time are in each other's frames.
    pub enum OverTies {
        /// All of them are, as SQL has it.
        Together = "together",
        /// Those are that came before.
        ByArrival = "by-arrival",
    }
}

option_enum! {
    /// How rows leave lookups.
    pub enum LookupOutput {
        /// Those of a partition in their order.
        Ordered = "ordered",
        /// As answers arrive, but never across a watermark.
        AllowUnordered = "allow_unordered",
    }
}

option_enum! {
    /// Whether the rows of a primary key are kept in front of a sink that replaces rows by it.
    pub enum UpsertMaterialize {
        /// Never.
        None = "none",
        /// Where the query's own key is another one.
        Auto = "auto",
        /// With every query that updates its results.
        Force = "force",
    }
}

option_enum! {
    /// Where state is kept.
    pub enum StateBackend {
        /// In memory until its share is used, then on disk as well.
        Auto = "auto",
        /// In memory only.
        Memory = "memory",
    }
}

/// Rows a block: a number, or as many as have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockSize {
    /// As many as have arrived, up to [`BLOCK_ROWS_AUTO`].
    Auto,
    /// Exactly so many while input lasts.
    Rows(usize),
}

/// The most rows in a block when its size is left to the engine: large enough that per-block cost
/// vanishes (some 2 ns a row at 1 µs a block and operator), small enough that a block of ten
/// columns stays within the second-level cache.
pub const BLOCK_ROWS_AUTO: usize = 8192;

impl BlockSize {
    /// The most rows a reader may give at once.
    pub fn rows_max(self) -> usize {
        match self {
            BlockSize::Auto => BLOCK_ROWS_AUTO,
            BlockSize::Rows(rows) => rows,
        }
    }
}

/// The most rows that `block.size` may ask for: a thousand times what is of use, and still far from
/// what 32-bit offsets of texts and the memory of a process bear.
pub const BLOCK_ROWS_LIMIT: usize = 1 << 20;

impl OptionValue for BlockSize {
    const KIND: &'static str = "`auto` or rows";
    fn parse(text: &str) -> Result<Self, String> {
        match text.trim() {
            t if t.eq_ignore_ascii_case("auto") => Ok(BlockSize::Auto),
            t => match t.parse() {
                Ok(rows) if (1..=BLOCK_ROWS_LIMIT).contains(&rows) => Ok(BlockSize::Rows(rows)),
                _ => Err(format!("expected 'auto' or a number of rows from 1 to {BLOCK_ROWS_LIMIT}")),
            },
        }
    }
    fn show(&self) -> Option<String> {
        Some(match self {
            BlockSize::Auto => "auto".into(),
            BlockSize::Rows(rows) => rows.to_string(),
        })
    }
}

/// The most shards of a job. Each is a thread, and an edge by key has a queue for every pair of them:
/// a million queues at this bound.
pub const PARALLELISM_MAX: usize = 1024;

/// How many shards a job runs in: 1 to [`PARALLELISM_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parallelism(pub usize);

impl OptionValue for Parallelism {
    const KIND: &'static str = "integer";
    fn parse(text: &str) -> Result<Self, String> {
        match text.trim().parse() {
            Ok(n) if (1..=PARALLELISM_MAX).contains(&n) => Ok(Parallelism(n)),
            _ => Err(format!("expected a whole number from 1 to {PARALLELISM_MAX}")),
        }
    }
    fn show(&self) -> Option<String> {
        Some(self.0.to_string())
    }
}

/// The least memory limit, bytes: about what the program takes by itself.
const MEMORY_MIN: ByteSize = ByteSize(64 << 20);
/// The most of the memory limit that state may use: blocks, buffers and the program need the rest.
const MEMORY_SHARE_MAX: f64 = 0.9;
/// The least time between checkpoints: with less a job would do nothing else.
const CHECKPOINT_INTERVAL_MIN: Duration = Duration::from_millis(1);
/// The longest that a shard may keep looking: beyond it, being woken is no delay to speak of. Shorter than a sleep that nobody ends.
const BUSY_POLL_MAX: Duration = Duration::from_millis(1);

options! {
    /// The settings of a job.
    pub struct Settings {
        /// `streaming`, or `batch` for jobs whose inputs all end.
        flink "execution.runtime-mode" => runtime_mode: RuntimeMode = RuntimeMode::Streaming;
        /// Shards a job runs in; by default the processors of the machine.
        flink "parallelism.default" => parallelism: Option<Parallelism>;
        /// Threads that move bytes for network clients (Flight, HTTP, WebSocket, lookups that are encrypted or made in
        /// batch mode); by default up to two. They are shared by all jobs of the process: what the first says that uses
        /// them counts.
        ours "io.threads" => io_threads: Option<usize>;
        /// How many files of a table that lie behind a network are read at once, by all shards together, and at
        /// least one by each: `auto` begins with one a shard and finds out whether more pay, up to 32. Local files are
        /// read by the shards.
        ours "read.parallel" => read_parallel: AtOnce = AtOnce::Auto;
        /// Time between checkpoints. Without a state directory this is how often finished output of
        /// an endless job becomes visible.
        flink "execution.checkpointing.interval" => checkpoint_interval: Duration = Duration::from_secs(10);
        /// Rows a source hands over at once, at most. `auto` takes what has arrived, as much as is worked off
        /// soon (see `block.latency-target`), up to 8,192, or about 4 MB if rows are large.
        ours "block.size" => block_size: BlockSize = BlockSize::Auto;
        /// With blocks of size `auto`: in how long rows shall have been worked off, those before them in
        /// their block included. The number of rows taken at once is found by measuring. Without a target it
        /// is what has arrived, but no more than is worked off in half a millisecond, and beyond 1,024 rows
        /// no more than in a tenth of one; 256 rows in any case.
        ours "block.latency-target" => latency_target: Option<Duration>;
        /// How long a source may hold rows back to fill a block of a fixed size.
        ours "block.linger" => block_linger: Duration = Duration::ZERO;
        /// For how long a shard that has nothing to do keeps looking before it sleeps, as long as what it waits for
        /// usually comes within that time. To be woken takes some 10 to 40 µs; who looks has no such delay but
        /// keeps a processor busy, so there must be one for each shard. Pays where rows come at least 5,000 times a
        /// second (`'200 us'`) and each shall be worked off at once. Shards that wait for lookups over http never look. 0 for never.
        ours "worker.busy-poll" => busy_poll: Duration = Duration::ZERO;
        /// Least time between two watermarks of a source. They only decide when results leave, never
        /// what they are.
        flink "pipeline.auto-watermark-interval" => watermark_interval: Duration = Duration::from_millis(1);
        /// After how long without input a split no longer holds back the watermark; 0 for never.
        flink "table.exec.source.idle-timeout" => idle_timeout: Duration = Duration::ZERO;
        /// After how long without a change rows that a regular join or a set operation keeps are dropped,
        /// by processing time; 0 for never. Results then depend on the clock. A running GROUP BY keeps
        /// every group.
        flink "table.exec.state.ttl" => state_ttl: Duration = Duration::ZERO;
        /// Emits one change a group and block instead of one a row from a running GROUP BY.
        flink "table.exec.mini-batch.enabled" => mini_batch: bool = false;
        /// Accepted for Flink's sake; blocks decide.
        flink "table.exec.mini-batch.allow-latency" => mini_batch_latency: Option<Duration>;
        /// Accepted for Flink's sake; blocks decide.
        flink "table.exec.mini-batch.size" => mini_batch_size: Option<u64>;
        /// Time zone in which TIMESTAMP_LTZ values are shown and texts are read.
        flink "table.local-time-zone" => time_zone: String = "UTC".to_string();
        /// How many lookups a shard may have under way where neither the table nor a hint says it; by default as many as make it faster.
        flink "table.exec.async-lookup.buffer-capacity" => lookup_capacity: Option<usize>;
        /// How long a lookup may take where no hint says it, further attempts included; by default what 'lookup.timeout' of its table says.
        flink "table.exec.async-lookup.timeout" => lookup_timeout: Option<Duration>;
        /// How rows leave lookups where no hint says it: those of a partition in their order (`ordered`), or as answers arrive.
        flink "table.exec.async-lookup.output-mode" => lookup_output: LookupOutput = LookupOutput::Ordered;
        /// Whether rows are kept in front of a sink that replaces rows by its PRIMARY KEY, so that each key ends with the row that it
        /// has in the result: `auto` does where the query's own key is another one, or is not known.
        flink "table.exec.sink.upsert-materialize" => upsert_materialize: UpsertMaterialize = UpsertMaterialize::Auto;
        /// The job's name.
        flink "pipeline.name" => name: Option<String>;
        /// Accepted for Flink's sake; objects are always reused.
        flink "pipeline.object-reuse" => object_reuse: Option<bool>;
        /// Accepted for Flink's sake.
        flink "table.dml-sync" => dml_sync: Option<bool>;
        /// Memory for the whole process. Near it, state that can go to the disk does; a job that stays beyond it for two seconds, or
        /// comes to hold a sixteenth more, fails with a list of what holds how much.
        ours "memory.limit" => memory: Option<ByteSize>;
        /// `auto` keeps the state of running GROUP BY, DISTINCT and deduplication in memory until its share of
        /// the memory limit is used, then on disk as well; without a limit in memory. With `memory` the job
        /// fails at the limit. Other state is always in memory.
        ours "state.backend" => state_backend: StateBackend = StateBackend::Auto;
        /// The share of the memory limit that state which can go to the disk may use, all operators and shards
        /// together: more than 0, at most 0.9.
        ours "state.memory-share" => memory_share: f64 = 0.5;
        /// A directory for state on disk while the job runs; by default in the state directory, without one
        /// among the system's temporary files. Checkpoints are links if it is on the state directory's file
        /// system, and copies otherwise.
        ours "state.local-dir" => local_dir: Option<String>;
        /// What an OVER with RANGE, or with no frame, makes of rows of the same time as the current one.
        /// `together`: all of them are in its frame, as SQL has it, so it is answered when time has gone on.
        /// `by-arrival`: those that came before it, as if no two times were the same; a row of one source
        /// whose watermark is its time column alone is then answered when it comes. Streams only.
        ours "over.ties" => over_ties: OverTies = OverTies::Together;
        /// How many undecided matches MATCH_RECOGNIZE keeps for a key, and how many rows of such
        /// matches.
        ours "pattern.partial-matches.max" => pattern_partial_matches_max: usize = 10_000usize;
        /// What happens when a key reaches that: the job fails, or the oldest undecided match of the key
        /// is given up.
        ours "pattern.partial-matches.at-bound" => pattern_at_bound: AtPatternBound = AtPatternBound::Fail;
        /// Checks schema, update pairs and watermark order behind every operator.
        ours "debug.check-operators" => check_operators: bool = false;
        /// Takes a checkpoint after every so many blocks of each source, for tests.
        ours "debug.checkpoint-blocks" => checkpoint_blocks: Option<u64>;
        /// Ends the process without any clean-up after so many checkpoints, for tests.
        ours "debug.abort-after-checkpoints" => abort_after: Option<u64>;
    }
}

impl Settings {
    /// Validates what was set.
    ///
    /// # Errors
    /// An unknown setting (with the nearest name) or a wrong value.
    pub fn from_map(map: &BTreeMap<String, String>) -> Result<Self, JobError> {
        // Flink's own clients set these for their display; they mean nothing here.
        let ours = map.iter().filter(|(k, _)| !k.starts_with("sql-client.")).map(|(k, v)| (k.clone(), v.clone()));
        let mut raw = RawOptions::new("SET", ours);
        let settings = Settings::take(&mut raw)?;
        raw.finish()?;
        let too_little = |key: &str, least: Option<String>| {
            let (given, least) = (map.get(key).map_or("", String::as_str), least.unwrap_or_default());
            Err(JobError::usage(format!("SET: option '{key}' = '{given}': expected at least {least}")))
        };
        if settings.memory.is_some_and(|m| m < MEMORY_MIN) {
            return too_little("memory.limit", MEMORY_MIN.show());
        }
        let share_fits = settings.memory_share > 0.0 && settings.memory_share <= MEMORY_SHARE_MAX;
        if !share_fits {
            let given = map.get("state.memory-share").map_or("", String::as_str);
            return Err(JobError::usage(format!(
                "SET: option 'state.memory-share' = '{given}': expected more than 0 and at most {MEMORY_SHARE_MAX}"
            )));
        }
        if settings.runtime_mode == RuntimeMode::Batch && settings.over_ties != OverTies::Together {
            return Err(JobError::usage(
                "SET: option 'over.ties' = 'by-arrival': a batch job knows no order of arrival; leave it out, or write ROWS instead of RANGE",
            ));
        }
        if let Some(given) = settings.io_threads.filter(|n| !(1..=IO_THREADS_MAX).contains(n)) {
            return Err(JobError::usage(format!(
                "SET: option 'io.threads' = '{given}': expected a whole number from 1 to {IO_THREADS_MAX}"
            )));
        }
        if settings.pattern_partial_matches_max == 0 {
            return too_little("pattern.partial-matches.max", Some("1".to_string()));
        }
        if settings.lookup_capacity == Some(0) {
            return too_little("table.exec.async-lookup.buffer-capacity", Some("1".to_string()));
        }
        if settings.lookup_timeout.is_some_and(|limit| limit.is_zero()) {
            return too_little("table.exec.async-lookup.timeout", Some("1 ms".to_string()));
        }
        if settings.busy_poll > BUSY_POLL_MAX {
            let given = map.get("worker.busy-poll").map_or("", String::as_str);
            return Err(JobError::usage(format!(
                "SET: option 'worker.busy-poll' = '{given}': expected at most {} ms",
                BUSY_POLL_MAX.as_millis()
            )));
        }
        if settings.checkpoint_interval < CHECKPOINT_INTERVAL_MIN {
            return too_little("execution.checkpointing.interval", CHECKPOINT_INTERVAL_MIN.show());
        }
        Ok(settings)
    }

    /// Tells those parts of the process that all jobs share what these settings say of them. To be done
    /// before anything is opened.
    pub fn apply(&self) {
        if let Some(threads) = self.io_threads {
            tidemill_connect::io::set_threads(threads);
        }
    }

    /// All settings, for the reference page.
    pub fn reference() -> Vec<OptionSpec> {
        Self::specs()
    }

    /// How much a pattern may keep for a key.
    pub fn pattern_bounds(&self) -> Bounds {
        let at_bound = match self.pattern_at_bound {
            AtPatternBound::Fail => AtBound::Fail,
            AtPatternBound::DropOldest => AtBound::DropOldest,
        };
        Bounds { partial_matches_max: self.pattern_partial_matches_max, at_bound }
    }

    /// The number of shards.
    pub fn shards(&self) -> usize {
        let all = || std::thread::available_parallelism().map_or(1, |n| n.get()).min(PARALLELISM_MAX);
        self.parallelism.map_or_else(all, |p| p.0)
    }
}

#[cfg(test)]
mod tests;
