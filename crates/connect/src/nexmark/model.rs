//! The model: persons who open auctions and bid in them, as functions of the event's number.
//!
//! The field's model, after "NEXMark: A Benchmark for Queries over Data Streams" (Tucker, Tufte,
//! Papadimos, Maier, 2002) in the form that Beam and Flink gave it: events come in rounds of, by
//! default, 1 person, 3 auctions and 46 bids; most bids go to one hot auction in a hundred, most
//! sellers and bidders are one hot person in a hundred. Ids follow from the number of the event, all
//! else from a hash of it, so that event n is the same however it is reached, and a bid names an
//! auction that another table shows.

use std::sync::OnceLock;

use super::options::NexmarkOptions;
use super::rates::Rates;
use super::text::{Channels, Letters, Padding};
use crate::datagen::counter::{Span, Stream, below};

/// The first id of persons and of auctions.
const FIRST_ID: u64 = 1_000;
/// Categories of auctions are numbered from this one.
const FIRST_CATEGORY: u64 = 10;
const CATEGORIES: u64 = 5;
/// One auction or person in so many is hot while it is new.
const HOT_EVERY: u64 = 100;
/// Bids and auctions name auctions and persons that come up to so many ids later: they are ahead of
/// the other stream.
const LEAD: u64 = 10;

/// Steps of the table from which prices are made.
const PRICE_STEPS: usize = 1024;
/// Prices go over six powers of ten, evenly in their logarithm, from one dollar on (in cents).
const PRICE_STEP_LN: f64 = 6.0 * std::f64::consts::LN_10 / PRICE_STEPS as f64;
const PRICE_MIN: f64 = 100.0;

/// Sizes of what a record has besides the column extra, bytes.
const PERSON_BYTES: u64 = 75;
const AUCTION_BYTES: u64 = 124;
const BID_BYTES: u64 = 32;

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Person,
    Auction,
    Bid,
}

/// How many of the events of a round are of which kind, in this order.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    pub persons: u64,
    pub auctions: u64,
    pub bids: u64,
}

/// An event by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub number: u64,
    /// The round.
    pub round: u64,
    /// Its place in the round, from 0.
    pub place: u64,
}

/// Which events are the rows of a table: of each round of `round` events the `share` from the
/// `skip`-th on.
#[derive(Clone, Copy, Debug)]
pub struct Lane {
    pub share: u64,
    pub skip: u64,
    pub round: u64,
}

impl Lane {
    /// The number of the event that is this row.
    pub fn event(&self, row: u64) -> u64 {
        (row / self.share).wrapping_mul(self.round).wrapping_add(self.skip + row % self.share)
    }

    /// How many rows there are among the first `events` events.
    pub fn rows_below(&self, events: u64) -> u64 {
        events / self.round * self.share + (events % self.round).saturating_sub(self.skip).min(self.share)
    }

    /// The row that this event is, if it is one.
    pub fn row(&self, event: u64) -> Option<u64> {
        let place = (event % self.round).checked_sub(self.skip).filter(|place| *place < self.share)?;
        Some(event / self.round * self.share + place)
    }

    /// Calls `run` with the first event and the length of each run of events without gaps, in order.
    #[inline(always)]
    pub fn runs(&self, span: Span, mut run: impl FnMut(Event, usize)) {
        for (first, count) in span.ranges() {
            let (mut round, mut at, mut left) = (first / self.share, first % self.share, count as u64);
            while left > 0 {
                let length = left.min(self.share - at);
                let place = self.skip + at;
                run(Event { number: round.wrapping_mul(self.round).wrapping_add(place), round, place }, length as usize);
                left -= length;
                round += 1;
                at = 0;
            }
        }
    }

    /// Calls `each` with each row's event, in order.
    #[inline(always)]
    pub fn each(&self, span: Span, mut each: impl FnMut(Event)) {
        self.runs(span, |first, length| (0..length).for_each(|k| each(first.after(k as u64))));
    }

    /// A value for each row.
    #[inline(always)]
    pub fn collect<T>(&self, span: Span, of: impl Fn(Event) -> T) -> Vec<T> {
        let mut values = Vec::with_capacity(span.rows);
        self.runs(span, |first, length| {
            values.extend((0..length).map(|k| of(first.after(k as u64))));
        });
        values
    }
}

impl Event {
    /// The event `k` places later in the same round.
    #[inline(always)]
    fn after(self, k: u64) -> Self {
        Event { number: self.number.wrapping_add(k), round: self.round, place: self.place + k }
    }
}

/// What a stream of random numbers is for.
#[derive(Clone, Copy, Debug)]
pub enum Purpose {
    Name,
    Email,
    Card,
    City,
    State,
    PersonExtra,
    ItemName,
    Description,
    InitialBid,
    Reserve,
    Expires,
    Seller,
    Category,
    AuctionExtra,
    BidAuction,
    Bidder,
    Price,
    Channel,
    BidExtra,
    Disorder,
    Letters,
    Urls,
}

/// The model's streams, in place of a column's index: what an event holds does not depend on which
/// columns the table has.
const MODEL: u64 = u64::MAX - 1;

/// All that is fixed about the events of a table.
pub struct Model {
    shares: Shares,
    hot_auctions: u64,
    hot_bidders: u64,
    hot_sellers: u64,
    in_flight: u64,
    active_people: u64,
    pub rates: Rates,
    base_ms: i64,
    disorder_ms: u64,
    seed: u64,
    /// Events until so many more auctions have been opened as are in flight.
    flight_events: u64,
    /// Cents at each step.
    prices: Box<[f64; PRICE_STEPS]>,
    pub letters: Letters,
    pub person_extra: Padding,
    pub auction_extra: Padding,
    pub bid_extra: Padding,
    channels: OnceLock<Channels>,
}

impl Model {
    /// The model of validated options.
    pub fn new(options: &NexmarkOptions, shares: Shares, rates: Rates, base_ms: i64) -> Self {
        let round = shares.persons + shares.auctions + shares.bids;
        let in_flight = u64::from(options.in_flight);
        let mut prices = Box::new([PRICE_MIN; PRICE_STEPS]);
        for step in 1..PRICE_STEPS {
            prices[step] = prices[step - 1] * grown(PRICE_STEP_LN);
        }
        let extras = [(options.person_size, PERSON_BYTES), (options.auction_size, AUCTION_BYTES), (options.bid_size, BID_BYTES)]
            .map(|(size, rest)| Padding::new(size.0.saturating_sub(rest)));
        let longest = extras.iter().map(Padding::longest).max().unwrap_or(0);
        Model {
            shares,
            hot_auctions: options.hot_auctions.into(),
            hot_bidders: options.hot_bidders.into(),
            hot_sellers: options.hot_sellers.into(),
            in_flight,
            active_people: options.active_people.into(),
            rates,
            base_ms,
            disorder_ms: options.disorder.as_millis() as u64,
            seed: options.seed,
            flight_events: in_flight * round / shares.auctions,
            prices,
            letters: Letters::new(Stream::new(options.seed, MODEL, Purpose::Letters as u64), longest),
            person_extra: extras[0],
            auction_extra: extras[1],
            bid_extra: extras[2],
            channels: OnceLock::new(),
        }
    }

    /// The random numbers for one purpose, by the number of the event.
    pub fn stream(&self, purpose: Purpose) -> Stream {
        Stream::new(self.seed, MODEL, purpose as u64)
    }

    /// Events in a round.
    pub fn round(&self) -> u64 {
        self.shares.persons + self.shares.auctions + self.shares.bids
    }

    /// The rows of a table of one kind, or of all.
    pub fn lane(&self, kind: Option<Kind>) -> Lane {
        let Shares { persons, auctions, bids } = self.shares;
        let (share, skip) = match kind {
            None => (self.round(), 0),
            Some(Kind::Person) => (persons, 0),
            Some(Kind::Auction) => (auctions, persons),
            Some(Kind::Bid) => (bids, persons + auctions),
        };
        Lane { share, skip, round: self.round() }
    }

    /// The kind of an event.
    #[inline]
    pub fn kind(&self, event: Event) -> Kind {
        match event.place.checked_sub(self.shares.persons) {
            None => Kind::Person,
            Some(place) if place < self.shares.auctions => Kind::Auction,
            Some(_) => Kind::Bid,
        }
    }

    /// The newest person at an event, counted from 0; the event's own if it is a person.
    #[inline(always)]
    fn newest_person(&self, event: Event) -> u64 {
        event.round.wrapping_mul(self.shares.persons).wrapping_add(event.place.min(self.shares.persons - 1))
    }

    /// The newest auction at an auction or bid, counted from 0.
    #[inline(always)]
    fn newest_auction(&self, event: Event) -> u64 {
        let place = (event.place - self.shares.persons).min(self.shares.auctions - 1);
        event.round.wrapping_mul(self.shares.auctions).wrapping_add(place)
    }

    /// The id of a person.
    #[inline(always)]
    pub fn person_id(&self, event: Event) -> i64 {
        (FIRST_ID + self.newest_person(event)) as i64
    }

    /// The id of an auction.
    #[inline(always)]
    pub fn auction_id(&self, event: Event) -> i64 {
        (FIRST_ID + self.newest_auction(event)) as i64
    }

    /// Any of the active persons, or one that is about to come, counted from 0.
    #[inline(always)]
    fn any_person(&self, newest: u64, x: u64) -> u64 {
        let people = newest + 1;
        let active = people.min(self.active_people);
        people - active + below(x, active + LEAD)
    }

    /// The seller of an auction.
    #[inline(always)]
    pub fn seller(&self, x: u64, event: Event) -> i64 {
        let newest = self.newest_person(event);
        let any = self.any_person(newest, x);
        let hot = newest / HOT_EVERY * HOT_EVERY;
        (FIRST_ID + if is_hot(x, self.hot_sellers) { hot } else { any }) as i64
    }

    /// The person who bids: the hot one is another than the hot seller.
    #[inline(always)]
    pub fn bidder(&self, x: u64, event: Event) -> i64 {
        let newest = self.newest_person(event);
        let any = self.any_person(newest, x);
        let hot = newest / HOT_EVERY * HOT_EVERY + 1;
        (FIRST_ID + if is_hot(x, self.hot_bidders) { hot } else { any }) as i64
    }

    /// The auction that a bid is for.
    #[inline(always)]
    pub fn bid_auction(&self, x: u64, event: Event) -> i64 {
        let newest = self.newest_auction(event);
        let oldest = newest.saturating_sub(self.in_flight);
        let any = oldest + below(x, newest - oldest + 1 + LEAD);
        let hot = newest / HOT_EVERY * HOT_EVERY;
        (FIRST_ID + if is_hot(x, self.hot_auctions) { hot } else { any }) as i64
    }

    /// The category of an auction.
    #[inline(always)]
    pub fn category(&self, x: u64) -> i64 {
        (FIRST_CATEGORY + below(x, CATEGORIES)) as i64
    }

    /// A price, cents: a dollar times ten to the power of an even number from 0 to 6.
    #[inline(always)]
    pub fn price(&self, x: u64) -> i64 {
        // Ten bits choose the step; how far beyond it is a factor near 1, for which few terms do. A
        // power from the mathematical library costs ten times as much and may differ in its last bit.
        let step = (x >> 54) as usize;
        let beyond = (x & ((1 << 54) - 1)) as i64 as f64 * (1.0 / (1u64 << 54) as f64);
        (self.prices[step] * grown(beyond * PRICE_STEP_LN) + 0.5) as i64
    }

    /// The time of each row, ms since 1970.
    pub fn times(&self, disorder: Stream, lane: Lane, span: Span) -> Vec<i64> {
        if self.disorder_ms > 0 {
            return lane.collect(span, |event| self.time(disorder, event));
        }
        let mut values = Vec::with_capacity(span.rows);
        lane.runs(span, |first, length| self.rates.extend_ms(&mut values, first.number, length, self.base_ms));
        values
    }

    /// The time of an event, ms since 1970.
    #[inline]
    pub fn time(&self, disorder: Stream, event: Event) -> i64 {
        let early = below(disorder.at(event.number), self.disorder_ms + 1);
        self.base_ms.wrapping_add(self.rates.at(event.number, 1_000) as i64).wrapping_sub(early as i64)
    }

    /// When an auction ends, ms since 1970: after as many further auctions as are in flight, on the
    /// average.
    #[inline]
    pub fn expires(&self, x: u64, disorder: Stream, event: Event) -> i64 {
        let (now, then) = (self.rates.at(event.number, 1_000), self.rates.at(event.number.wrapping_add(self.flight_events), 1_000));
        let most = then.saturating_sub(now).saturating_mul(2).max(1);
        self.time(disorder, event).wrapping_add(1 + below(x, most) as i64)
    }

    /// The channels through which bids come; made at the first use.
    pub fn channels(&self) -> &Channels {
        self.channels.get_or_init(|| Channels::new(&self.letters, self.stream(Purpose::Urls)))
    }
}

/// Whether a choice falls on the hot one, which it does but once in `ratio`. Takes the lower half of
/// a random number, whose upper half then chooses among the others.
#[inline(always)]
fn is_hot(x: u64, ratio: u64) -> bool {
    below(x << 32, ratio) > 0
}

/// e to the power of `y`, for `y` from 0 to [`PRICE_STEP_LN`], to 12 digits.
#[inline(always)]
fn grown(y: f64) -> f64 {
    1.0 + y * (1.0 + y * (1.0 / 2.0 + y * (1.0 / 6.0 + y * (1.0 / 24.0 + y * (1.0 / 120.0)))))
}
