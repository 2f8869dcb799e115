//! The connector `nexmark`: the auction house of the benchmark of that name, for the queries in
//! `examples/nexmark`.
//!
//! What event n holds is a function of the options and of n alone, so that tables of the same
//! generator show the same events, at every block size and parallelism and after every restart.

mod columns;
mod model;
mod options;
mod rates;
mod text;

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use tidemill_format::options::{OptionSet, RawOptions};

use crate::datagen::reader::Schedule;
use crate::datagen::source::Generated;
use crate::registry::Connector;
use crate::{ConnectError, Source};
use model::{Kind, Lane};
use options::{NexmarkOptions, Table};
use rates::Rates;

/// The connector.
pub static CONNECTOR: Connector = Connector {
    name: "nexmark",
    help: "Makes up persons, auctions and bids, as the benchmark Nexmark has them. The same seed gives the same events.",
    specs: NexmarkOptions::specs,
    takes_format: false,
    source: Some(source),
    sink: None,
    lookup: None,
};

fn source(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Source>, ConnectError> {
    let options = NexmarkOptions::take(raw)?;
    let owner = raw.owner().to_string();
    let model = Arc::new(options.model(&owner)?);
    let kind = match options.table {
        Table::All => None,
        Table::Person => Some(Kind::Person),
        Table::Auction => Some(Kind::Auction),
        Table::Bid => Some(Kind::Bid),
    };
    let lane = model.lane(kind);
    let columns = schema.fields().iter().map(|field| columns::column(&model, kind, &owner, field)).collect::<Result<_, _>>()?;
    // Flink's generator has no end at 0.
    let rows = options.events.filter(|events| *events > 0).map(|events| lane.rows_below(events));
    let schedule = options.rate_limited.then(|| Arc::new(Timetable { lane, rates: model.rates }) as Arc<dyn Schedule>);
    Ok(Box::new(Generated { connector: "nexmark", columns, rows, schedule, splits: None }))
}

/// Rows are due at their event time.
struct Timetable {
    lane: Lane,
    rates: Rates,
}

impl Schedule for Timetable {
    fn rows_due(&self, elapsed_ns: u64) -> u64 {
        self.lane.rows_below(self.rates.events_by(elapsed_ns))
    }

    fn due_ns(&self, row: u64) -> u64 {
        self.rates.at(self.lane.event(row), 1_000_000_000)
    }
}

#[cfg(test)]
mod tests;
