//! The connector `soccer`: positions of the players' feet and of the balls in a match, many thousands a
//! second, and the list of the goals that a pattern over them should find.
//!
//! What row n holds is a function of the options and of n alone; see [`model`].

mod model;

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrowPrimitiveType, Float64Array, Int32Array, Int64Array, PrimitiveArray, StringArray};
use arrow::datatypes::{DataType, Field, SchemaRef, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType};
use tidemill_block::value;
use tidemill_format::options::{OptionSet, OptionValue, RawOptions};
use tidemill_format::types::type_name;
use tidemill_format::{option_enum, options};

use crate::datagen::columns::Column;
use crate::datagen::counter::Span;
use crate::datagen::random::{Generator, timeless};
use crate::datagen::reader::{Schedule, Steady};
use crate::datagen::source::Generated;
use crate::registry::Connector;
use crate::{ConnectError, Source};
use model::{Goal, Model, STEP_S, STEPS_MIN, Segment, nearest};

/// The connector.
pub static CONNECTOR: Connector = Connector {
    name: "soccer",
    help: "Makes up a soccer match: where sensors in shoes and balls are, and the goals. The same seed gives the same match.",
    specs: SoccerOptions::specs,
    takes_format: false,
    source: Some(source),
    sink: None,
    lookup: None,
};

option_enum! {
    /// What a table shows of the match.
    pub enum Table {
        /// A row for each time that a sensor speaks.
        Sensors = "sensors",
        /// A row for each goal.
        Goals = "goals",
    }
}

options! {
    /// Options of the connector `soccer`. Tables whose options other than `table` are the same show
    /// the same match.
    pub struct SoccerOptions {
        /// `sensors`: columns sid, ts (picoseconds after the first row), time, x, y, z (mm), v (µm/s), a
        /// (µm/s²), vx, vy, vz, ax, ay, az (directions, of length 10,000). `goals`: columns time, ts, sid (the
        /// ball's), side ('south' where y is negative, 'north').
        ours "table" => table: Table = Table::Sensors;
        /// How many rows the table of sensors has; none for no end.
        ours "number-of-rows" => rows: Option<u64>;
        /// How often each of the 32 sensors of players speaks, a second.
        ours "players.rate" => players_hz: u32 = 200u32;
        /// How often each of the four balls (4, 8, 10, 12) speaks, a second; a multiple of `players.rate`.
        ours "balls.rate" => balls_hz: u32 = 2000u32;
        /// One goal falls in each interval of this length, a multiple of 2 s.
        ours "goals.interval" => interval: Duration = Duration::from_secs(60);
        /// Whether rows come at their rate by the clock too, rather than as fast as they are taken.
        ours "rate.limited" => rate_limited: bool = false;
        /// The time of the first row.
        ours "base-time" => base_time: String = "2013-06-29 15:00:00".to_string();
        /// The same seed gives the same match.
        ours "seed" => seed: u64 = 42u64;
    }
}

/// The highest rate of a sensor of players, a second, and how many times that the balls may have.
const RATE_MAX: u32 = 10_000;
const RATIO_MAX: u32 = 100;
/// The longest interval, seconds.
const INTERVAL_S_MAX: u64 = 86_400;

const SENSORS: &str =
    "sid (INT); ts (BIGINT); time (TIMESTAMP(3)); x, y, z, v or v_abs, a or a_abs, vx, vy, vz, ax, ay, az (INT, BIGINT or DOUBLE)";
const GOALS: &str = "time (TIMESTAMP(3)); ts (BIGINT); sid (INT); side (STRING)";

fn source(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Source>, ConnectError> {
    let options = SoccerOptions::take(raw)?;
    let owner = raw.owner().to_string();
    let model = Arc::new(options.model(&owner)?);
    let (rows, names) = match options.table {
        Table::Sensors => (options.rows, SENSORS),
        Table::Goals => (options.rows.map(|rows| model.goals_within(rows)), GOALS),
    };
    let column = |field: &Arc<Field>| {
        // Names as in nexmark: with underscores or without.
        let name = field.name().to_ascii_lowercase().replace('_', "");
        let made = match options.table {
            Table::Sensors => sensor_column(&model, &name, field.data_type()),
            Table::Goals => goal_column(&model, &name, field.data_type()),
        };
        made.map(Column::endless).ok_or_else(|| {
            let (table, data_type) = (if names == GOALS { "goals" } else { "sensors" }, type_name(field.data_type()));
            ConnectError::new(format!("{owner}: 'table' = '{table}' has no column '{}' of type {data_type}; it has: {names}", field.name()))
        })
    };
    let columns = schema.fields().iter().map(column).collect::<Result<_, _>>()?;
    let schedule = options.rate_limited.then(|| match options.table {
        Table::Sensors => Arc::new(Steady(model.rows_per_second())) as Arc<dyn Schedule>,
        Table::Goals => Arc::new(Goals { model: model.clone(), rows: rows.unwrap_or(u64::MAX) }) as Arc<dyn Schedule>,
    });
    Ok(Box::new(Generated { connector: "soccer", columns, rows, schedule, splits: None }))
}

impl SoccerOptions {
    fn model(&self, owner: &str) -> Result<Model, ConnectError> {
        let wrong = |name: &str, given: String, why: String| Err(ConnectError::new(format!("{owner}: option '{name}' = '{given}': {why}")));
        let (players, balls) = (self.players_hz, self.balls_hz);
        if !(1..=RATE_MAX).contains(&players) {
            return wrong("players.rate", players.to_string(), format!("expected a whole number from 1 to {RATE_MAX}"));
        }
        if balls == 0 || !balls.is_multiple_of(players) || balls / players > RATIO_MAX {
            let why = format!("expected a multiple of 'players.rate', which is {players}, up to {RATIO_MAX} times as much");
            return wrong("balls.rate", balls.to_string(), why);
        }
        let (interval_s, least) = (self.interval.as_secs(), STEP_S * STEPS_MIN);
        let whole = self.interval.subsec_nanos() == 0 && interval_s.is_multiple_of(STEP_S);
        if !whole || !(least..=INTERVAL_S_MAX).contains(&interval_s) {
            let why = format!("expected an even number of seconds from {least} to {INTERVAL_S_MAX}");
            return wrong("goals.interval", self.interval.show().unwrap_or_default(), why);
        }
        let Some(base_ms) = value::parse_timestamp(self.base_time.trim().as_bytes(), TimeUnit::Millisecond) else {
            return wrong("base-time", self.base_time.clone(), "expected a timestamp such as '2013-06-29 15:00:00'".to_string());
        };
        Ok(Model::new(self.seed, players.into(), balls.into(), interval_s / STEP_S, base_ms))
    }
}

/// Goals are due when they fall.
struct Goals {
    model: Arc<Model>,
    rows: u64,
}

impl Schedule for Goals {
    fn rows_due(&self, elapsed_ns: u64) -> u64 {
        // One an interval: those of the intervals before, and perhaps this one's.
        let intervals = (elapsed_ns / self.model.interval_ns()).min(self.rows);
        intervals + u64::from(self.due_ns(intervals) <= elapsed_ns)
    }

    fn due_ns(&self, row: u64) -> u64 {
        self.model.goal(row).ns
    }
}

/// How a column of numbers is made of the way of a sensor.
fn moving(model: &Arc<Model>, data_type: &DataType, of: impl Fn(&Segment, f64) -> f64 + Send + Sync + 'static) -> Option<Generator> {
    let model = model.clone();
    Some(match data_type {
        DataType::Int32 => {
            timeless(move |span| Arc::new(Int32Array::from(model.moving(span, |segment, u| nearest(of(segment, u)) as i32))))
        }
        DataType::Int64 => timeless(move |span| Arc::new(Int64Array::from(model.moving(span, |segment, u| nearest(of(segment, u)))))),
        DataType::Float64 => {
            timeless(move |span| Arc::new(Float64Array::from(model.moving(span, |segment, u| nearest(of(segment, u)) as f64))))
        }
        _ => return None,
    })
}

fn sensor_column(model: &Arc<Model>, name: &str, data_type: &DataType) -> Option<Generator> {
    let sign = |segment: &Segment, u: f64| segment.acceleration(u).signum();
    match name {
        "x" => moving(model, data_type, Segment::x),
        "y" => moving(model, data_type, Segment::y),
        "z" => moving(model, data_type, Segment::z),
        "v" | "vabs" => moving(model, data_type, Segment::speed),
        "a" | "aabs" => moving(model, data_type, |segment, u| segment.acceleration(u).abs()),
        "vx" => moving(model, data_type, |segment, _| segment.direction().0),
        "vy" => moving(model, data_type, |segment, _| segment.direction().1),
        "vz" => moving(model, data_type, |segment, _| segment.direction().2),
        "ax" => moving(model, data_type, move |segment, u| segment.direction().0 * sign(segment, u)),
        "ay" => moving(model, data_type, move |segment, u| segment.direction().1 * sign(segment, u)),
        "az" => moving(model, data_type, move |segment, u| segment.direction().2 * sign(segment, u)),
        "sid" => {
            let model = model.clone();
            Some(match data_type {
                DataType::Int32 => timeless(move |span| Arc::new(Int32Array::from(model.fixed(span, |_, sid| sid)))),
                DataType::Int64 => timeless(move |span| Arc::new(Int64Array::from(model.fixed(span, |_, sid| i64::from(sid))))),
                _ => return None,
            })
        }
        "ts" if *data_type == DataType::Int64 => {
            let model = model.clone();
            Some(timeless(move |span| Arc::new(Int64Array::from(model.fixed(span, |ns, _| picoseconds(ns))))))
        }
        "time" => {
            let model = model.clone();
            stamps(data_type, move |span, scale| model.fixed(span, |ns, _| model.ms(ns).wrapping_mul(scale)))
        }
        _ => None,
    }
}

fn goal_column(model: &Arc<Model>, name: &str, data_type: &DataType) -> Option<Generator> {
    let model = model.clone();
    match (name, data_type) {
        ("time", _) => stamps(data_type, move |span, scale| goals(&model, span, |goal| model.ms(goal.ns).wrapping_mul(scale))),
        ("ts", DataType::Int64) => Some(timeless(move |span| Arc::new(Int64Array::from(goals(&model, span, |goal| picoseconds(goal.ns)))))),
        ("sid", DataType::Int32) => Some(timeless(move |span| Arc::new(Int32Array::from(goals(&model, span, |goal| goal.sid))))),
        ("sid", DataType::Int64) => Some(timeless(move |span| Arc::new(Int64Array::from(goals(&model, span, |goal| i64::from(goal.sid)))))),
        ("side", DataType::Utf8) => {
            Some(timeless(move |span| Arc::new(StringArray::from(goals(&model, span, |goal| if goal.high { "north" } else { "south" })))))
        }
        _ => None,
    }
}

/// A value for each goal of some rows of the table of goals.
fn goals<T>(model: &Model, span: Span, of: impl Fn(Goal) -> T) -> Vec<T> {
    span.each().map(|interval| of(model.goal(interval))).collect()
}

fn picoseconds(ns: u64) -> i64 {
    ns.wrapping_mul(1_000) as i64
}

/// Timestamps of a type; `of` gets how many of its units a millisecond has.
fn stamps(data_type: &DataType, of: impl Fn(Span, i64) -> Vec<i64> + Send + Sync + 'static) -> Option<Generator> {
    fn made<P: ArrowPrimitiveType<Native = i64>>(
        data_type: &DataType,
        scale: i64,
        of: impl Fn(Span, i64) -> Vec<i64> + Send + Sync + 'static,
    ) -> Generator {
        let data_type = data_type.clone();
        timeless(move |span| Arc::new(PrimitiveArray::<P>::new(of(span, scale).into(), None).with_data_type(data_type.clone())))
    }
    Some(match data_type {
        DataType::Timestamp(TimeUnit::Millisecond, _) => made::<TimestampMillisecondType>(data_type, 1, of),
        DataType::Timestamp(TimeUnit::Microsecond, _) => made::<TimestampMicrosecondType>(data_type, 1_000, of),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => made::<TimestampNanosecondType>(data_type, 1_000_000, of),
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
