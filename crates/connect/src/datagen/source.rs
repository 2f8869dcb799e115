//! A source whose rows are a function of their number: what all generators have in common.
//!
//! A split is a subset of the row numbers, a [`Stripe`]: with n splits, every n-th chunk of rows. So
//! rows do not depend on how many readers there are, and a split goes on anywhere.

use std::sync::Arc;

use super::columns::Column;
use super::counter::Stripe;
use super::reader::{Schedule, StripeReader};
use crate::{ConnectError, Reader, ReaderContext, Source, Split};

/// Rows in a chunk, if there are several splits and no rate that asks for less.
const CHUNK_ROWS_MAX: u64 = 1024;
/// With a rate, a chunk is at most a hundredth of a second of rows, so that the splits take turns
/// quickly and none of them lags behind in event time.
const CHUNKS_PER_SECOND: u64 = 100;

/// The source.
pub struct Generated {
    /// The connector, for messages.
    pub connector: &'static str,
    /// One for each physical column of the table.
    pub columns: Vec<Column>,
    /// How many rows there are; `None` for no end.
    pub rows: Option<u64>,
    /// When rows are due; `None` for as soon as they are asked for.
    pub schedule: Option<Arc<dyn Schedule>>,
    /// How many splits there are; `None` for one for each reader.
    pub splits: Option<usize>,
}

impl Generated {
    fn chunk_rows(&self, splits: u64) -> u64 {
        match &self.schedule {
            Some(schedule) if splits > 1 => {
                let rate = schedule.rows_due(1_000_000_000).saturating_sub(1);
                (rate / CHUNKS_PER_SECOND).clamp(1, CHUNK_ROWS_MAX)
            }
            _ => CHUNK_ROWS_MAX,
        }
    }
}

impl Source for Generated {
    fn bounded(&self) -> bool {
        self.rows.is_some()
    }

    fn splits(&self, parallelism: usize) -> Result<Vec<Split>, ConnectError> {
        let of = self.splits.unwrap_or(parallelism).max(1) as u64;
        let chunk = self.chunk_rows(of);
        Ok((0..of).map(|index| Split::new(stripe_id(Stripe { index, of, chunk }))).collect())
    }

    fn open(&self, split: &Split, context: ReaderContext) -> Result<Box<dyn Reader>, ConnectError> {
        let connector = self.connector;
        let stripe = parse_stripe(&split.id).ok_or_else(|| {
            ConnectError::new(format!("{connector} has no split '{}'; its splits are called 'stripe 0/4x1024' and so on", split.id))
        })?;
        if let Some((key, _)) = context.request.metadata.first() {
            return Err(ConnectError::new(format!("{connector} has no metadata column '{key}'; it has none at all")));
        }
        Ok(Box::new(StripeReader::new(self, stripe, split.position.as_ref(), context)?))
    }

    fn rows_hint(&self) -> Option<usize> {
        self.rows.and_then(|rows| usize::try_from(rows).ok())
    }
}

/// The id says everything about the stripe, so that a restored split is read as it was begun, even
/// at another parallelism: `stripe 0/4x1024` is the first of four with chunks of 1,024 rows.
fn stripe_id(stripe: Stripe) -> String {
    format!("stripe {}/{}x{}", stripe.index, stripe.of, stripe.chunk)
}

/// The stripe of an id.
pub fn parse_stripe(id: &str) -> Option<Stripe> {
    let (index, rest) = id.strip_prefix("stripe ")?.split_once('/')?;
    let (of, chunk) = rest.split_once('x')?;
    let stripe = Stripe { index: index.parse().ok()?, of: of.parse().ok()?, chunk: chunk.parse().ok()? };
    (stripe.index < stripe.of && stripe.chunk > 0).then_some(stripe)
}
