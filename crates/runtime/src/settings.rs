//! What `SET` can set.

use std::collections::BTreeMap;
use std::time::Duration;

use tidemill_format::options::{ByteSize, OptionSet, OptionSpec, OptionValue, RawOptions};
use tidemill_format::{option_enum, options};

use crate::JobError;

option_enum! {
    /// How a job is executed.
    pub enum RuntimeMode {
        /// Our stream runtime.
        Streaming = "streaming",
        /// DataFusion's executor; every input must be bounded.
        Batch = "batch",
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

impl OptionValue for BlockSize {
    const KIND: &'static str = "`auto` or rows";
    fn parse(text: &str) -> Result<Self, String> {
        match text.trim() {
            t if t.eq_ignore_ascii_case("auto") => Ok(BlockSize::Auto),
            t => match t.parse() {
                Ok(rows) if rows >= 1 => Ok(BlockSize::Rows(rows)),
                _ => Err("expected 'auto' or a number of rows from 1".into()),
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

options! {
    /// The settings of a job.
    pub struct Settings {
        /// `streaming`, or `batch` for jobs whose inputs all end.
        flink "execution.runtime-mode" => runtime_mode: RuntimeMode = RuntimeMode::Streaming;
        /// Shards a job runs in; by default the processors of the machine.
        flink "parallelism.default" => parallelism: Option<usize>;
        /// Time between checkpoints. Without a state directory this is how often finished output of
        /// an endless job becomes visible.
        flink "execution.checkpointing.interval" => checkpoint_interval: Duration = Duration::from_secs(10);
        /// Rows a source hands over at once: `auto` takes what has arrived.
        ours "block.size" => block_size: BlockSize = BlockSize::Auto;
        /// How long a source may hold rows back to fill a block of a fixed size.
        ours "block.linger" => block_linger: Duration = Duration::ZERO;
        /// Least time between two watermarks of a source. They only decide when results leave, never
        /// what they are.
        flink "pipeline.auto-watermark-interval" => watermark_interval: Duration = Duration::from_millis(1);
        /// After how long without input a split no longer holds back the watermark; 0 for never.
        flink "table.exec.source.idle-timeout" => idle_timeout: Duration = Duration::ZERO;
        /// Emits one change a group and block instead of one a row from a running GROUP BY.
        flink "table.exec.mini-batch.enabled" => mini_batch: bool = false;
        /// Accepted for Flink's sake; blocks decide.
        flink "table.exec.mini-batch.allow-latency" => mini_batch_latency: Option<Duration>;
        /// Accepted for Flink's sake; blocks decide.
        flink "table.exec.mini-batch.size" => mini_batch_size: Option<u64>;
        /// Time zone in which TIMESTAMP_LTZ values are shown and texts are read.
        flink "table.local-time-zone" => time_zone: String = "UTC".to_string();
        /// The job's name.
        flink "pipeline.name" => name: Option<String>;
        /// Accepted for Flink's sake; objects are always reused.
        flink "pipeline.object-reuse" => object_reuse: Option<bool>;
        /// Accepted for Flink's sake.
        flink "table.dml-sync" => dml_sync: Option<bool>;
        /// Memory for the whole process; the job fails with a list of what holds how much rather than
        /// grow beyond it.
        ours "memory.limit" => memory: Option<ByteSize>;
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
        Ok(settings)
    }

    /// All settings, for the reference page.
    pub fn reference() -> Vec<OptionSpec> {
        Self::specs()
    }

    /// The number of shards.
    pub fn shards(&self) -> usize {
        self.parallelism.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get())).max(1)
    }
}
