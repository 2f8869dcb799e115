//! A model of stock trades: columns filled by their names.
//!
//! Rows are trades in order of time. A million of them make a trading day, 09:30 to 16:00; the next
//! day follows. Symbols are traded as unevenly as in life (the k-th with weight 1/k). A symbol's
//! price wanders: value noise of several wave lengths over the row number, so that the price of any
//! row is known without those before it.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::ArrowPrimitiveType;
use arrow::datatypes::{
    DataType, Decimal128Type, Field, Float32Type, Float64Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};

use super::columns::Column;
use super::counter::{Stream, below, unit};
use super::random::{ns_per, primitive, texts};
use crate::ConnectError;

/// Trades a day.
const DAY_TRADES: u64 = 1_000_000;
/// Microseconds between two trades: 6.5 hours by [`DAY_TRADES`].
const TRADE_US: u64 = 23_400;
const DAY_US: u64 = 86_400_000_000;
/// Monday 2024-01-08 09:30:00, µs since 1970: the first day's opening unless an option says another.
pub const OPENING_US: i64 = 1_704_706_200_000_000;
/// The most symbols: the tables of the model hold some 40 bytes each.
pub const SYMBOLS_MAX: usize = 1_000_000;

/// The first symbols; the others are made up of five letters, the first of which is `X`.
const SYMBOLS: [&str; 20] = [
    "AAPL", "MSFT", "NVDA", "AMZN", "GOOG", "TSLA", "META", "IBM", "INTC", "AMD", "JPM", "BAC", "XOM", "WMT", "KO", "PFE", "ORCL", "CSCO",
    "DIS", "GE",
];
const VENUES: [Word; 8] = [
    Word::new("NYSE"),
    Word::new("NASDAQ"),
    Word::new("ARCA"),
    Word::new("BATS"),
    Word::new("EDGX"),
    Word::new("IEX"),
    Word::new("MEMX"),
    Word::new("OTC"),
];
/// ISO 4217: number and letters. Most trades are in the first.
const CURRENCIES: [(i32, Word); 4] = [(840, Word::new("USD")), (978, Word::new("EUR")), (826, Word::new("GBP")), (392, Word::new("JPY"))];
/// Buyers and sellers are numbered from 0 to this, exclusive.
const PARTIES: u64 = 1_000;

/// Wave lengths of the price's noise (log2 of rows) and how far each moves it, as a share.
const OCTAVES: [(u32, f64); 3] = [(19, 0.080), (14, 0.020), (9, 0.005)];

/// All names, for messages: column, aliases, types.
const NAMES: &str = "id or trade_id (BIGINT); symbol or ticker (STRING, INT or BIGINT); currency (INT or STRING); time, ts, trade_time, event_time or \
    timestamp (TIMESTAMP, TIMESTAMP_LTZ or BIGINT in ms); price (DOUBLE, FLOAT, DECIMAL with a scale of 2 or more, or BIGINT in 1/10000); size, quantity, \
    qty or volume (INT or BIGINT); venue or exchange (STRING or INT); buyer, seller (INT or BIGINT)";

/// A short text that is copied as a whole, which is quicker than copying just its letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Word {
    bytes: [u8; Word::BYTES_MAX],
    length: u8,
}

impl Word {
    const BYTES_MAX: usize = 8;

    const fn new(text: &str) -> Self {
        let (text, mut bytes) = (text.as_bytes(), [0; Word::BYTES_MAX]);
        assert!(text.len() <= Word::BYTES_MAX);
        let mut i = 0;
        while i < text.len() {
            bytes[i] = text[i];
            i += 1;
        }
        Word { bytes, length: text.len() as u8 }
    }

    #[inline]
    fn append_to(self, out: &mut Vec<u8>) {
        let end = out.len() + self.length as usize;
        out.extend_from_slice(&self.bytes);
        out.truncate(end);
    }
}

mod purpose {
    pub const SYMBOL: u64 = 0;
    pub const PRICE: u64 = 1;
    pub const TIME: u64 = 2;
    pub const DISORDER: u64 = 3;
    pub const SIZE: u64 = 4;
    pub const VENUE: u64 = 5;
    pub const BUYER: u64 = 6;
    pub const SELLER: u64 = 7;
    pub const TICK: u64 = 8;
    pub const LISTING: u64 = 9;
}

/// The trades' stream number in place of a column's index: what a row holds does not depend on
/// which columns the table has.
const MODEL: u64 = u64::MAX;

/// The symbols and what is fixed about each.
pub struct Market {
    names: Vec<Word>,
    /// Alias table (Walker 1977, built after Vose 1991) of the symbols' weights: below the
    /// threshold (of 2^32) the slot itself, else its alias.
    slots: Vec<(u32, u32)>,
    /// Price around which a symbol moves, cents.
    cents: Vec<f64>,
    seed: u64,
    opening_us: i64,
    disorder_us: u64,
}

impl Market {
    /// A market with that many symbols (1 to [`SYMBOLS_MAX`]), open from `opening_us` (µs since
    /// 1970) on, in which a trade may be stamped up to `disorder` too early.
    pub fn new(seed: u64, symbols: usize, opening_us: i64, disorder: Duration) -> Self {
        assert!((1..=SYMBOLS_MAX).contains(&symbols), "{symbols} symbols");
        let listing = Stream::new(seed, MODEL, purpose::LISTING);
        // From 10.00 to 510.00, more of them cheap.
        let cents = (0..symbols as u64).map(|s| 1_000.0 + 50_000.0 * unit(listing.at(s)) * unit(listing.at(s))).collect();
        Market {
            names: (0..symbols).map(name).collect(),
            slots: alias_table(symbols),
            cents,
            seed,
            opening_us,
            disorder_us: disorder.as_micros() as u64,
        }
    }

    fn stream(&self, purpose: u64) -> Stream {
        Stream::new(self.seed, MODEL, purpose)
    }

    #[inline]
    fn symbol(&self, stream: Stream, row: u64) -> usize {
        let x = stream.at(row);
        let slot = (((x >> 32) * self.slots.len() as u64) >> 32) as usize;
        let (threshold, alias) = self.slots[slot];
        if (x as u32) < threshold { slot } else { alias as usize }
    }

    /// The price of a symbol at a row, cents.
    #[inline]
    fn price(&self, noise: Stream, tick: Stream, symbol: usize, row: u64) -> i64 {
        let mut share = 1.0;
        for (shift, weight) in OCTAVES {
            let cell = row >> shift;
            let part = (row & ((1 << shift) - 1)) as f64 / (1u64 << shift) as f64;
            // One index for symbol, wave length and cell: 20, 5 and 39 bits, enough for 2^46 rows.
            let index = |cell: u64| (symbol as u64) << 44 | (shift as u64) << 39 | (cell & ((1 << 39) - 1));
            let (from, to) = (unit(noise.at(index(cell))), unit(noise.at(index(cell + 1))));
            share += weight * (2.0 * (from + (to - from) * part) - 1.0);
        }
        // Buyers and sellers cross the spread: a cent up or down.
        let side = below(tick.at(row), 3) as i64 - 1;
        (self.cents[symbol] * share + 0.5) as i64 + side
    }

    #[inline]
    fn time_us(&self, stream: Stream, disorder: Stream, row: u64) -> i64 {
        let (day, trade) = (row / DAY_TRADES, row % DAY_TRADES);
        let us = day.wrapping_mul(DAY_US).wrapping_add(trade * TRADE_US + below(stream.at(row), TRADE_US));
        let early = below(disorder.at(row), self.disorder_us + 1);
        self.opening_us.wrapping_add(us as i64).wrapping_sub(early as i64)
    }
}

/// The name of the `index`-th symbol.
fn name(index: usize) -> Word {
    let Some(more) = index.checked_sub(SYMBOLS.len()) else { return Word::new(SYMBOLS[index]) };
    // A step through all 26^4 combinations that is coprime to their number, so that neighbours do
    // not look alike; further letters follow when they are used up.
    let count = 26usize.pow(4);
    let mut code = more % count * 40_503 % count;
    let mut text = String::from("X");
    for _ in 0..4 {
        text.push((b'A' + (code % 26) as u8) as char);
        code /= 26;
    }
    let mut round = more / count;
    while round > 0 {
        text.push((b'A' + (round % 26) as u8) as char);
        round /= 26;
    }
    Word::new(&text)
}

/// Slots for symbols of weight 1, 1/2, 1/3, …
fn alias_table(symbols: usize) -> Vec<(u32, u32)> {
    let total: f64 = (1..=symbols).map(|k| 1.0 / k as f64).sum();
    let mut share: Vec<f64> = (1..=symbols).map(|k| symbols as f64 / k as f64 / total).collect();
    let mut slots: Vec<(u32, u32)> = (0..symbols as u32).map(|s| (u32::MAX, s)).collect();
    let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..symbols).partition(|s| share[*s] < 1.0);
    while let (Some(s), Some(&l)) = (small.pop(), large.last()) {
        slots[s] = ((share[s] * 4_294_967_296.0) as u32, l as u32);
        share[l] -= 1.0 - share[s];
        if share[l] < 1.0 {
            small.push(l);
            large.pop();
        }
    }
    slots
}

/// The generator for a column of trades, chosen by its name.
///
/// # Errors
/// A name that the model does not know, a type that does not fit; both list the names and types.
pub fn column(market: &Arc<Market>, owner: &str, field: &Field) -> Result<Column, ConnectError> {
    let data_type = field.data_type();
    let name = field.name().to_ascii_lowercase();
    let made = match name.as_str() {
        "id" | "trade_id" => number(data_type, |row| row as i64),
        "symbol" | "ticker" => {
            let (stream, listed) = (market.stream(purpose::SYMBOL), market.clone());
            match data_type {
                DataType::Int32 | DataType::Int64 => number(data_type, move |row| listed.symbol(stream, row) as i64),
                _ => word(data_type, move |row| listed.names[listed.symbol(stream, row)]),
            }
        }
        "currency" => {
            let (stream, market) = (market.stream(purpose::SYMBOL), market.clone());
            // A listing's currency: one in eight is not in dollars.
            let of = move |row| {
                let symbol = market.symbol(stream, row);
                CURRENCIES[if symbol % 8 == 7 { 1 + symbol / 8 % 3 } else { 0 }]
            };
            match data_type {
                DataType::Int32 | DataType::Int64 => number(data_type, move |row| of(row).0 as i64),
                _ => word(data_type, move |row| of(row).1),
            }
        }
        "time" | "ts" | "trade_time" | "event_time" | "timestamp" => time(market, data_type),
        "price" => price(market, data_type),
        "size" | "quantity" | "qty" | "volume" => {
            let stream = market.stream(purpose::SIZE);
            number(data_type, move |row| {
                let x = stream.at(row);
                match x & 7 {
                    0 => 1 + below(x, 99) as i64,
                    // 100 for half of the others, 200 for a quarter, 400 for an eighth, …
                    _ => 100 << (x >> 3).trailing_zeros().min(7),
                }
            })
        }
        "venue" | "exchange" => {
            let stream = market.stream(purpose::VENUE);
            let of = move |row| below(stream.at(row), VENUES.len() as u64) as usize;
            match data_type {
                DataType::Int32 | DataType::Int64 => number(data_type, move |row| of(row) as i64),
                _ => word(data_type, move |row| VENUES[of(row)]),
            }
        }
        "buyer" => {
            let stream = market.stream(purpose::BUYER);
            number(data_type, move |row| below(stream.at(row), PARTIES) as i64)
        }
        "seller" => {
            // Never the buyer.
            let (buyer, seller) = (market.stream(purpose::BUYER), market.stream(purpose::SELLER));
            number(data_type, move |row| ((below(buyer.at(row), PARTIES) + 1 + below(seller.at(row), PARTIES - 1)) % PARTIES) as i64)
        }
        _ => {
            let name = field.name();
            return Err(ConnectError::new(format!("{owner}: 'generator' = 'trades' knows no column '{name}'; it fills: {NAMES}")));
        }
    };
    made.ok_or_else(|| {
        ConnectError::new(format!(
            "{owner}: 'generator' = 'trades' cannot fill column '{}' as {data_type}; it fills: {NAMES}",
            field.name()
        ))
    })
}

fn number(data_type: &DataType, of_row: impl Fn(u64) -> i64 + Send + Sync + 'static) -> Option<Column> {
    Some(Column::endless(match data_type {
        DataType::Int32 => primitive::<Int32Type>(data_type, None, move |row, _| of_row(row) as i32),
        DataType::Int64 => primitive::<Int64Type>(data_type, None, move |row, _| of_row(row)),
        _ => return None,
    }))
}

fn word(data_type: &DataType, of_row: impl Fn(u64) -> Word + Send + Sync + 'static) -> Option<Column> {
    let write = move |row, out: &mut Vec<u8>| of_row(row).append_to(out);
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
        .then(|| Column { bytes_max: Word::BYTES_MAX, ..Column::endless(texts(data_type, None, Word::BYTES_MAX, write)) })
}

fn time(market: &Arc<Market>, data_type: &DataType) -> Option<Column> {
    let (stream, disorder, market) = (market.stream(purpose::TIME), market.stream(purpose::DISORDER), market.clone());
    let at = move |row| market.time_us(stream, disorder, row);
    fn stamped<P: ArrowPrimitiveType<Native = i64>>(
        data_type: &DataType,
        unit: TimeUnit,
        at: impl Fn(u64) -> i64 + Send + Sync + 'static,
    ) -> Column {
        let per_us = ns_per(unit) / 1_000;
        Column::endless(match per_us {
            0 => primitive::<P>(data_type, None, move |row, _| at(row) * 1_000),
            _ => primitive::<P>(data_type, None, move |row, _| at(row).div_euclid(per_us)),
        })
    }
    Some(match data_type {
        DataType::Int64 => stamped::<Int64Type>(data_type, TimeUnit::Millisecond, at),
        DataType::Timestamp(unit, _) => match unit {
            TimeUnit::Second => stamped::<TimestampSecondType>(data_type, *unit, at),
            TimeUnit::Millisecond => stamped::<TimestampMillisecondType>(data_type, *unit, at),
            TimeUnit::Microsecond => stamped::<TimestampMicrosecondType>(data_type, *unit, at),
            TimeUnit::Nanosecond => stamped::<TimestampNanosecondType>(data_type, *unit, at),
        },
        _ => return None,
    })
}

fn price(market: &Arc<Market>, data_type: &DataType) -> Option<Column> {
    let (symbols, noise, tick) = (market.stream(purpose::SYMBOL), market.stream(purpose::PRICE), market.stream(purpose::TICK));
    let market = market.clone();
    let cents = move |row| market.price(noise, tick, market.symbol(symbols, row), row);
    Some(Column::endless(match data_type {
        DataType::Float64 => primitive::<Float64Type>(data_type, None, move |row, _| cents(row) as f64 / 100.0),
        DataType::Float32 => primitive::<Float32Type>(data_type, None, move |row, _| (cents(row) as f64 / 100.0) as f32),
        DataType::Int64 => primitive::<Int64Type>(data_type, None, move |row, _| cents(row) * 100),
        // Prices stay below 1,000.00: three digits in front of the point.
        DataType::Decimal128(precision, scale @ 2..) if *precision as i32 - *scale as i32 >= 3 => {
            let factor = 10i128.pow(*scale as u32 - 2);
            primitive::<Decimal128Type>(data_type, None, move |row, _| cents(row) as i128 * factor)
        }
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_distinct() {
        let names: HashSet<_> = (0..SYMBOLS_MAX).map(name).collect();
        assert_eq!(names.len(), SYMBOLS_MAX);
    }

    #[test]
    fn symbols_follow_their_weights() {
        let market = Market::new(42, 10, OPENING_US, Duration::ZERO);
        let mut counts = [0u32; 10];
        for row in 0..100_000 {
            counts[market.symbol(market.stream(purpose::SYMBOL), row)] += 1;
        }
        // The harmonic number of 10 is 2.929: the first symbol has 34.1 % of the trades.
        assert!((33_500..34_800).contains(&counts[0]), "{counts:?}");
        assert!((16_400..17_700).contains(&counts[1]), "{counts:?}");
        assert!((3_000..3_800).contains(&counts[9]), "{counts:?}");
    }

    #[test]
    fn a_day_is_a_million_trades_in_order() {
        let market = Market::new(42, 100, OPENING_US, Duration::ZERO);
        let at = |row| market.time_us(market.stream(purpose::TIME), market.stream(purpose::DISORDER), row) - OPENING_US;
        assert!((0..10_000).map(at).is_sorted());
        assert!((0..TRADE_US as i64).contains(&at(0)));
        let close = 23_400_000_000i64;
        assert!((close - TRADE_US as i64..close).contains(&at(DAY_TRADES - 1)));
        assert!((DAY_US as i64..DAY_US as i64 + TRADE_US as i64).contains(&at(DAY_TRADES)));
        let late = Market::new(42, 100, OPENING_US, Duration::from_secs(1));
        let at = |row| late.time_us(late.stream(purpose::TIME), late.stream(purpose::DISORDER), row);
        assert!(!(0..10_000).map(at).is_sorted());
        assert!((1..10_000u64).all(|row| at(row) >= OPENING_US - 1_000_000 + (row * TRADE_US) as i64));
    }

    #[test]
    fn prices_wander_in_small_steps() {
        let market = Market::new(7, 3, OPENING_US, Duration::ZERO);
        let at = |row| market.price(market.stream(purpose::PRICE), market.stream(purpose::TICK), 1, row);
        let first = at(0);
        assert!((1_000 * 9 / 10..=51_000 * 11 / 10).contains(&first), "{first}");
        let mut distinct = HashSet::new();
        for row in 0..20_000 {
            let (now, next) = (at(row), at(row + 1));
            assert!((now - next).abs() <= 2 + now / 500, "{now} to {next} at {row}");
            distinct.insert(now);
        }
        assert!(distinct.len() > 10, "the price moves");
    }
}
