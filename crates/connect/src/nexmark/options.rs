//! The options of the connector `nexmark` and their validation.

use std::time::Duration;

use arrow::datatypes::TimeUnit;
use tidemill_block::value;
use tidemill_format::options::{ByteSize, OptionValue};
use tidemill_format::{option_enum, options};

use super::model::{Model, Shares};
use super::rates::Rates;
use crate::ConnectError;

option_enum! {
    /// Which events a table has, and in what form.
    pub enum Table {
        /// Every event, a ROW column for each kind.
        All = "all",
        /// The persons alone, flat.
        Person = "person",
        /// The auctions alone, flat.
        Auction = "auction",
        /// The bids alone, flat.
        Bid = "bid",
    }
}

options! {
    /// Options of the connector `nexmark`. Tables whose options other than `table` are the same show
    /// the same events.
    pub struct NexmarkOptions {
        /// `all`: every event is a row, with columns event_type (0, 1, 2), person, auction, bid (ROWs,
        /// NULL where the event is of another kind) and dateTime. `person`, `auction`, `bid`: the events
        /// of one kind, its fields as columns; the others cost nothing.
        ours "table" => table: Table = Table::All;
        /// How many events there are, of all kinds together; 0 or nothing for no end.
        flink "events.num" => events: Option<u64>;
        /// Events a second of event time.
        flink "first-event.rate" => first_rate: u64 = 10_000u64;
        /// Events a second in the second half of each period; by default the same.
        flink "next-event.rate" => next_rate: Option<u64>;
        /// The period in which the two rates take turns.
        flink "rate.period" => rate_period: Duration = Duration::from_secs(600);
        /// Whether events come at that rate by the clock too, rather than as fast as they are taken.
        flink "rate.limited" => rate_limited: bool = false;
        /// Of every person.proportion + auction.proportion + bid.proportion events, the first so many
        /// are persons.
        flink "person.proportion" => persons: u32 = 1u32;
        /// So many auctions follow them.
        flink "auction.proportion" => auctions: u32 = 3u32;
        /// The rest are bids.
        flink "bid.proportion" => bids: u32 = 46u32;
        /// One bid in so many is for any auction in flight, the others for the hot one.
        flink "bid.hot-ratio.auctions" => hot_auctions: u32 = 2u32;
        /// One bid in so many is by any active person, the others by the hot one.
        flink "bid.hot-ratio.bidders" => hot_bidders: u32 = 4u32;
        /// One auction in so many is by any active person, the others by the hot one.
        flink "auction.hot-ratio.sellers" => hot_sellers: u32 = 4u32;
        /// Average size of a person; its column extra fills it up.
        flink "person.avg-size" => person_size: ByteSize = ByteSize(200);
        /// Average size of an auction.
        flink "auction.avg-size" => auction_size: ByteSize = ByteSize(500);
        /// Average size of a bid, channel and url not counted.
        flink "bid.avg-size" => bid_size: ByteSize = ByteSize(100);
        /// How many of the newest auctions get bids.
        ours "auctions.in-flight" => in_flight: u32 = 100u32;
        /// How many of the newest persons sell and bid.
        ours "people.active" => active_people: u32 = 1000u32;
        /// How much too early the dateTime of an event may be, so that events are out of order.
        ours "out-of-order.max-delay" => disorder: Duration = Duration::ZERO;
        /// The dateTime of the first event.
        ours "base-time" => base_time: String = "2015-07-15 00:00:00".to_string();
        /// The same seed gives the same events.
        ours "seed" => seed: u64 = 42u64;
    }
}

/// The most events a second.
const RATE_MAX: u64 = 1_000_000_000;
/// The largest share, ratio and count of what is active: keeps the arithmetic within 64 bits.
const COUNT_MAX: u32 = 1_000_000;
/// The largest average size, bytes.
const SIZE_MAX: u64 = 1 << 20;
/// The longest period of the rates, and the longest delay.
const DURATION_MAX: Duration = Duration::from_secs(366 * 86_400);

impl NexmarkOptions {
    /// The events that the options describe.
    ///
    /// # Errors
    /// A value out of its range; `owner` is the table, for the message.
    pub fn model(&self, owner: &str) -> Result<Model, ConnectError> {
        let wrong = |name: &str, given: &dyn std::fmt::Display, why: String| {
            ConnectError::new(format!("{owner}: option '{name}' = '{given}': {why}"))
        };
        for (name, rate) in [("first-event.rate", Some(self.first_rate)), ("next-event.rate", self.next_rate)] {
            if let Some(rate) = rate.filter(|r| !(1..=RATE_MAX).contains(r)) {
                return Err(wrong(name, &rate, format!("expected a whole number from 1 to {RATE_MAX}")));
            }
        }
        let counts = [
            ("person.proportion", self.persons),
            ("auction.proportion", self.auctions),
            ("bid.proportion", self.bids),
            ("bid.hot-ratio.auctions", self.hot_auctions),
            ("bid.hot-ratio.bidders", self.hot_bidders),
            ("auction.hot-ratio.sellers", self.hot_sellers),
            ("auctions.in-flight", self.in_flight),
            ("people.active", self.active_people),
        ];
        if let Some((name, count)) = counts.into_iter().find(|(_, count)| !(1..=COUNT_MAX).contains(count)) {
            return Err(wrong(name, &count, format!("expected a whole number from 1 to {COUNT_MAX}")));
        }
        let sizes = [("person.avg-size", self.person_size), ("auction.avg-size", self.auction_size), ("bid.avg-size", self.bid_size)];
        if let Some((name, size)) = sizes.into_iter().find(|(_, size)| size.0 > SIZE_MAX) {
            return Err(wrong(name, &size.0, "expected at most 1 mb".to_string()));
        }
        let half_s = self.rate_period.as_secs() / 2;
        if half_s == 0 || self.rate_period > DURATION_MAX {
            let given = self.rate_period.show().unwrap_or_default();
            return Err(wrong("rate.period", &given, "expected from 2 s to 366 d".to_string()));
        }
        if self.disorder > DURATION_MAX {
            return Err(wrong("out-of-order.max-delay", &self.disorder.show().unwrap_or_default(), "expected at most 366 d".to_string()));
        }
        let base_ms = value::parse_timestamp(self.base_time.trim().as_bytes(), TimeUnit::Millisecond)
            .ok_or_else(|| wrong("base-time", &self.base_time, "expected a timestamp such as '2015-07-15 00:00:00'".to_string()))?;
        let rates = Rates::new(self.first_rate, self.next_rate.unwrap_or(self.first_rate), half_s);
        let shares = Shares { persons: self.persons.into(), auctions: self.auctions.into(), bids: self.bids.into() };
        Ok(Model::new(self, shares, rates, base_ms))
    }
}
