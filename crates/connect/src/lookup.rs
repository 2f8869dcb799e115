//! The side that is asked: tables that answer for single keys (`JOIN t FOR SYSTEM_TIME AS OF o.pt`).
//!
//! A [`LookupTable`] opens a [`Lookup`] for each shard; a lookup takes calls, never waits, and gives
//! their answers back in any order. [`full`] is the table that is read whole and kept, which any bounded
//! source can serve. What does not live here: how many calls are under way at once, retries, time limits,
//! the cache of single keys and the order of results; they are the operator's.

pub mod full;

use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use tidemill_format::options::RawOptions;
use tidemill_format::{option_enum, options};

use crate::{ConnectError, Waker};

option_enum! {
    /// What of a lookup table is kept.
    pub enum CacheKind {
        /// Nothing: each row is asked for.
        None = "NONE",
        /// The keys asked for last.
        Partial = "PARTIAL",
        /// The whole table, read before the first row.
        Full = "FULL",
    }
}

option_enum! {
    /// When a table that is kept whole is read anew.
    pub enum ReloadStrategy {
        /// At an interval.
        Periodic = "PERIODIC",
    }
}

option_enum! {
    /// What happens to a row whose lookup has failed for good.
    pub enum OnFailure {
        /// The job fails and says why.
        Fail = "fail",
        /// The row goes on as if nothing were found; it is counted.
        Null = "null",
    }
}

options! {
    /// Options that every table has that can be looked up.
    pub struct LookupOptions {
        /// Whether rows go on being read while lookups are under way. `false` asks for one row after
        /// the other.
        flink "lookup.async" => asynchronous: bool = true;
        /// What is kept of the answers: `NONE`, `PARTIAL` (the keys asked for last), `FULL` (the whole
        /// table, for tables that can be read).
        flink "lookup.cache" => cache: CacheKind = CacheKind::None;
        /// The most rows that a PARTIAL cache keeps in a shard; those not used for longest go first.
        flink "lookup.partial-cache.max-rows" => cache_rows: Option<usize>;
        /// How long after it was fetched an answer is kept in a PARTIAL cache.
        flink "lookup.partial-cache.expire-after-write" => expire_after_write: Option<Duration>;
        /// How long after it was last used an answer is kept in a PARTIAL cache.
        flink "lookup.partial-cache.expire-after-access" => expire_after_access: Option<Duration>;
        /// Whether a PARTIAL cache also remembers keys for which there is nothing.
        flink "lookup.partial-cache.cache-missing-key" => cache_missing: bool = true;
        /// How long after it was read a FULL cache is read anew; by default never. Needs a FULL cache.
        ours "lookup.full-cache.reload-interval" => reload_interval: Option<Duration>;
        /// The same by Flink's name.
        flink "lookup.full-cache.periodic-reload.interval" => periodic_reload: Option<Duration>;
        /// When a FULL cache is read anew: `PERIODIC`, at that interval.
        flink "lookup.full-cache.reload-strategy" => reload_strategy: ReloadStrategy = ReloadStrategy::Periodic;
        /// How often a lookup that failed is tried again.
        flink "lookup.max-retries" => retries: u32 = 3u32;
        /// How long a lookup may take, further attempts included. Reading a table whole (FULL cache, files) does not count.
        ours "lookup.timeout" => timeout: Duration = Duration::from_secs(30);
        /// How long to wait before the first further attempt. It doubles with each up to 10 s, and half of
        /// it is left to chance; an answer may ask for longer (`Retry-After`).
        ours "lookup.retry-delay" => retry_delay: Duration = Duration::from_millis(100);
        /// How many lookups a shard may have under way. By default as many as make it faster: more while
        /// answers do not slow down, fewer when they do.
        ours "lookup.capacity" => capacity: Option<usize>;
        /// How many lookups may be under way for rows of one partition of the source. With 1 the rows of a
        /// partition are looked up one after the other.
        ours "lookup.max-concurrency-per-partition" => per_partition: Option<usize>;
        /// What happens to a row whose lookup has failed for good: `fail` ends the job, `null` lets the
        /// row go on as if nothing were found and counts it.
        ours "lookup.on-failure" => on_failure: OnFailure = OnFailure::Fail;
    }
}

/// The most lookups of a shard that can be under way: more wait in the operator than anything answers.
pub const CAPACITY_LIMIT: usize = 100_000;

impl LookupOptions {
    /// The options of a table, checked.
    ///
    /// # Errors
    /// Names the option and what is wrong with it.
    pub fn checked(raw: &mut RawOptions) -> Result<Self, ConnectError> {
        let mut options = <LookupOptions as tidemill_format::options::OptionSet>::take(raw)?;
        let wrong = |name: &str, why: String| Err(ConnectError::new(format!("{}: option '{name}': {why}", raw.owner())));
        for (name, value) in [("lookup.capacity", options.capacity), ("lookup.max-concurrency-per-partition", options.per_partition)] {
            if value.is_some_and(|n| !(1..=CAPACITY_LIMIT).contains(&n)) {
                return wrong(name, format!("expected 1 to {CAPACITY_LIMIT}; leave it out to let the job find out"));
            }
        }
        if let Some(interval) = options.periodic_reload.take()
            && options.reload_interval.replace(interval).is_some_and(|other| other != interval)
        {
            return wrong("lookup.full-cache.periodic-reload.interval", "'lookup.full-cache.reload-interval' says another one".into());
        }
        for (name, value) in [("lookup.timeout", Some(options.timeout)), ("lookup.full-cache.reload-interval", options.reload_interval)] {
            if value.is_some_and(|d| d.is_zero()) {
                return wrong(name, "expected more than nothing".into());
            }
        }
        let partial = [
            ("lookup.partial-cache.max-rows", options.cache_rows.is_some()),
            ("lookup.partial-cache.expire-after-write", options.expire_after_write.is_some()),
            ("lookup.partial-cache.expire-after-access", options.expire_after_access.is_some()),
        ];
        if options.cache != CacheKind::Partial
            && let Some((name, _)) = partial.iter().find(|(_, given)| *given)
        {
            return wrong(name, "it is of use with 'lookup.cache' = 'PARTIAL' only".into());
        }
        if options.cache_rows == Some(0) {
            return wrong("lookup.partial-cache.max-rows", "at least 1 is needed; 'lookup.cache' = 'NONE' keeps nothing".into());
        }
        Ok(options)
    }
}

/// What a lookup gets from whoever runs it.
#[derive(Clone)]
pub struct LookupContext {
    /// The columns asked by: columns of the table, by name.
    pub keys: SchemaRef,
    /// The columns of an answer: all physical columns of the table in declared order.
    pub columns: SchemaRef,
    /// To be called when [`Lookup::finished`] has something.
    pub wake: Waker,
    /// Which of `shards` lookups of the same table in the same join this is.
    pub shard: usize,
    /// How many there are.
    pub shards: usize,
}

/// A table that can be asked for keys.
pub trait LookupTable: Send + Sync {
    /// The most keys that one call may carry.
    fn keys_max(&self) -> usize {
        1
    }

    /// Makes the lookup of a shard. It may be called before the job starts, to see whether it can work;
    /// connections are made with the first calls.
    ///
    /// # Errors
    /// Keys by which the table cannot be asked, columns that it cannot give, with what to write instead.
    fn open(&self, context: LookupContext) -> Result<Box<dyn Lookup>, ConnectError>;

    /// The common options of lookup tables.
    fn options(&self) -> &LookupOptions;

    /// The pipe that it reads, as [`crate::Source::pipe`].
    fn pipe(&self) -> Option<(String, (u64, u64))> {
        None
    }
}

/// Asks for keys. Belongs to one shard.
pub trait Lookup: Send {
    /// Starts call number `call` for the rows of `keys`, which hold no NULL. Never waits, and takes any
    /// number of calls: the caller bounds them. A number is used once.
    ///
    /// # Errors
    /// Something that no other attempt can mend.
    fn start(&mut self, call: u64, keys: &RecordBatch) -> Result<(), ConnectError>;

    /// Nothing more is started for now: what was shall be on its way.
    fn flush(&mut self) {}

    /// Forgets a call: its answer, should it come, is dropped.
    fn cancel(&mut self, call: u64);

    /// Whether all calls wait for something that is made ready once, such as a table that is read whole: the time limit of a call
    /// begins behind that.
    fn prepares(&self) -> bool {
        false
    }

    /// Moves the answers of finished calls into `into`, in any order. The context's waker is called when
    /// there are some.
    fn finished(&mut self, into: &mut Vec<Answer>);
}

/// The answer to a call.
#[derive(Debug)]
pub struct Answer {
    /// The call's number.
    pub call: u64,
    /// What was found, or why nothing was.
    pub result: Result<Found, Failure>,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The rows, in the columns of [`LookupContext::columns`]. Their key columns hold the keys asked for.
    pub rows: RecordBatch,
    /// For each of them the row of the call's keys it belongs to, ascending. Keys without a row have no match.
    pub origins: Vec<u32>,
}

/// Why a call has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What was asked, of whom, and what came of it.
    pub reason: String,
    /// Whether another attempt may go better.
    pub retry: bool,
    /// How long to wait at least before another attempt, if the other side has said so.
    pub after: Option<Duration>,
}

impl Failure {
    /// Another attempt may go better.
    pub fn passing(reason: impl Into<String>) -> Self {
        Failure { reason: reason.into(), retry: true, after: None }
    }

    /// Another attempt would go no better.
    pub fn lasting(reason: impl Into<String>) -> Self {
        Failure { reason: reason.into(), retry: false, after: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(pairs: &[(&str, &str)]) -> Result<LookupOptions, String> {
        let mut raw = RawOptions::new("table 't'", pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())));
        LookupOptions::checked(&mut raw).map_err(|e| e.to_string())
    }

    #[test]
    fn options_are_checked() {
        let options = checked(&[("lookup.cache", "partial"), ("lookup.partial-cache.max-rows", "10"), ("lookup.timeout", "2 s")]).unwrap();
        assert_eq!((options.cache, options.cache_rows, options.timeout), (CacheKind::Partial, Some(10), Duration::from_secs(2)));
        assert_eq!((options.retries, options.asynchronous, options.capacity), (3, true, None));
        for (name, value) in [
            ("lookup.capacity", "0"),
            ("lookup.max-concurrency-per-partition", "0"),
            ("lookup.timeout", "0 s"),
            ("lookup.partial-cache.max-rows", "10"),
            ("lookup.partial-cache.expire-after-write", "1 min"),
            ("lookup.on-failure", "ignore"),
        ] {
            let error = checked(&[(name, value)]).unwrap_err();
            assert!(error.starts_with(&format!("table 't': option '{name}'")), "{error}");
        }
    }
}
