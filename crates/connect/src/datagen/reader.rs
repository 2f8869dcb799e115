//! Reads one stripe of the generated rows, when they are due.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use tidemill_block::clock;

use super::columns::Column;
use super::counter::{Span, Stripe};
use super::random::Generator;
use super::source::Generated;
use super::timer;
use crate::{ConnectError, Polled, Reader, ReaderContext, Rows, Waker};

/// The shortest pause, ns: rows that fall due within it come together, so that a high rate does not
/// cost a wake-up a row.
const PAUSE_NS_MIN: u64 = 1_000_000;
/// The longest pause, ns: bounds how long the timer holds on to a reader that is gone.
const PAUSE_NS_MAX: u64 = 1_000_000_000;
/// Offsets of strings are 32 bits wide: the most bytes that a column of a block may have.
const COLUMN_BYTES_MAX: usize = i32::MAX as usize;

/// When the rows of a source are due.
pub trait Schedule: Send + Sync {
    /// How many rows are due `elapsed_ns` after the first one.
    fn rows_due(&self, elapsed_ns: u64) -> u64;
    /// When a row is due, ns after the first one: the earliest time at which [`Schedule::rows_due`]
    /// counts it.
    fn due_ns(&self, row: u64) -> u64;
}

/// So many rows every second, which is not 0.
pub struct Steady(pub u64);

impl Schedule for Steady {
    fn rows_due(&self, elapsed_ns: u64) -> u64 {
        let after_first = match elapsed_ns.checked_mul(self.0) {
            Some(product) => product / 1_000_000_000,
            None => u64::try_from(elapsed_ns as u128 * self.0 as u128 / 1_000_000_000).unwrap_or(u64::MAX),
        };
        after_first.saturating_add(1)
    }

    fn due_ns(&self, row: u64) -> u64 {
        u64::try_from((row as u128 * 1_000_000_000).div_ceil(self.0 as u128)).unwrap_or(u64::MAX)
    }
}

/// A schedule by the clock.
struct Pace {
    schedule: Arc<dyn Schedule>,
    /// The schedule's time at the first poll, ns.
    offset_ns: u64,
    /// When the first poll was; `None` before.
    begin_ns: Option<u64>,
    /// Rows of this stripe due when it was last computed.
    ranks_due: u64,
    /// A wake-up is on its way until then.
    armed_until_ns: u64,
    waker: Waker,
}

impl Pace {
    /// The schedule's time at `now_ns`.
    fn elapsed_ns(&self, now_ns: u64) -> u64 {
        self.offset_ns.saturating_add(self.begin_ns.map_or(0, |begin| now_ns.saturating_sub(begin)))
    }

    /// Rows of the whole source due at `now_ns`.
    fn due(&self, now_ns: u64) -> u64 {
        self.schedule.rows_due(self.elapsed_ns(now_ns))
    }

    /// Sees to a wake-up when `row` is due, or somewhat later.
    fn arm(&mut self, row: u64, now_ns: u64) {
        if self.armed_until_ns > now_ns {
            return;
        }
        let wait = self.schedule.due_ns(row).saturating_sub(self.elapsed_ns(now_ns));
        let pause = wait.clamp(PAUSE_NS_MIN, PAUSE_NS_MAX);
        self.armed_until_ns = now_ns + pause;
        timer::wake_at(Instant::now() + Duration::from_nanos(pause), self.waker.clone());
    }
}

/// See the module.
pub struct StripeReader {
    connector: &'static str,
    stripe: Stripe,
    /// Rows of the stripe made so far.
    rank: u64,
    /// Rows of the stripe in all.
    rank_end: u64,
    generators: Vec<Generator>,
    schema: SchemaRef,
    pace: Option<Pace>,
    rows_cap: usize,
    wall_clock: bool,
}

impl StripeReader {
    /// A reader of a stripe of `source` from `position` on.
    ///
    /// # Errors
    /// A position that is none of this reader.
    pub fn new(
        source: &Generated,
        stripe: Stripe,
        position: Option<&serde_json::Value>,
        context: ReaderContext,
    ) -> Result<Self, ConnectError> {
        let wanted: Vec<&Column> = context.request.projection.iter().map(|i| &source.columns[*i]).collect();
        let (rank, due) = match position {
            None => (0, None),
            Some(value) => match value.get("rows").and_then(|v| v.as_u64()) {
                Some(rank) => (rank, value.get("due").and_then(|v| v.as_u64())),
                None => {
                    return Err(ConnectError::new(format!(
                        "{} cannot go on at position {value}: it has no number 'rows'",
                        source.connector
                    )));
                }
            },
        };
        let pace = source.schedule.as_ref().map(|schedule| Pace {
            schedule: schedule.clone(),
            // The first row comes at once; later ones go on where the last run stood.
            offset_ns: match due.unwrap_or(if rank == 0 { 1 } else { stripe.row(rank) }) {
                0 | 1 => 0,
                due => schedule.due_ns(due - 1),
            },
            begin_ns: None,
            ranks_due: rank,
            armed_until_ns: 0,
            waker: context.waker.clone(),
        });
        let bytes_max = wanted.iter().map(|c| c.bytes_max).max().unwrap_or(0).max(1);
        Ok(StripeReader {
            connector: source.connector,
            stripe,
            rank,
            rank_end: source.rows.map_or(u64::MAX, |rows| stripe.owned_below(rows)),
            generators: wanted.iter().map(|c| c.generator.clone()).collect(),
            schema: context.request.schema(),
            pace,
            rows_cap: COLUMN_BYTES_MAX / bytes_max,
            wall_clock: wanted.iter().any(|c| c.wall_clock),
        })
    }
}

impl Reader for StripeReader {
    fn poll(&mut self, rows_max: usize) -> Result<Polled, ConnectError> {
        if self.rank >= self.rank_end {
            return Ok(Polled::End);
        }
        let now_ns = clock::now_ns();
        let rows_max = rows_max.clamp(1, self.rows_cap) as u64;
        let mut available = self.rank_end - self.rank;
        if let Some(pace) = &mut self.pace {
            pace.begin_ns.get_or_insert(now_ns);
            if pace.ranks_due < self.rank.saturating_add(rows_max) {
                pace.ranks_due = self.stripe.owned_below(pace.due(now_ns));
            }
            if pace.ranks_due <= self.rank {
                pace.arm(self.stripe.row(self.rank), now_ns);
                return Ok(Polled::Pending);
            }
            available = available.min(pace.ranks_due - self.rank);
        }
        let rows = available.min(rows_max) as usize;
        let span = Span { stripe: self.stripe, rank: self.rank, rows };
        let wall_ns = if self.wall_clock { clock::wall_ms() * 1_000_000 } else { 0 };
        let columns: Vec<ArrayRef> = self.generators.iter().map(|generate| generate(span, wall_ns)).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map_err(|e| ConnectError::new(format!("{} made columns that do not fit the table: {e}", self.connector)))?;
        self.rank += rows as u64;
        Ok(Polled::Rows(Rows::good(batch, now_ns, 0)))
    }

    fn position(&self) -> serde_json::Value {
        match &self.pace {
            Some(pace) => serde_json::json!({"rows": self.rank, "due": pace.due(clock::now_ns())}),
            None => serde_json::json!({"rows": self.rank}),
        }
    }
}
