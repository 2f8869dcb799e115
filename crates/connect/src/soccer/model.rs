//! The model: sensors in the shoes of sixteen players and in four balls, as functions of the row's
//! number.
//!
//! Field, sensors, rates and units are those of the DEBS 2013 Grand Challenge (Mutschler, Ziekow,
//! Jerzak: "The DEBS 2013 grand challenge", 2013), of which no data is used. Time is divided into
//! steps of two seconds, at whose ends every sensor has a random place; between two of them it moves
//! on a straight line, beginning and ending at rest. Once in an interval the ball in play is shot
//! into a goal, and once it misses, beside the goal or above it, so that whoever looks at the place
//! alone, or not at the place before, finds something else than the goals.

use crate::datagen::counter::{Span, Stream, below, unit};

/// The balls' ids.
pub const BALLS: [i32; 4] = [4, 8, 10, 12];
/// Sensors of players, one a foot; their ids follow [`FIRST_BODY`].
const BODIES: usize = 32;
const FIRST_BODY: i32 = 13;
const SENSORS: usize = BALLS.len() + BODIES;

/// Seconds in a step.
pub const STEP_S: u64 = 2;
/// The fewest steps of an interval: a miss and a goal and what belongs to them take nine.
pub const STEPS_MIN: u64 = 10;

/// The field, mm: x from 0 to WIDTH, y from -HALF_LENGTH to HALF_LENGTH.
const WIDTH: f64 = 52_483.0;
const HALF_LENGTH: f64 = 33_960.0;
/// The lines behind which a ball is in the goal, mm; the values at which the pattern looks, too.
const LOW_LINE: i64 = -33_968;
const HIGH_LINE: i64 = 33_965;
const CENTRE: Place = Place { x: 26_240.0, y: 0.0, z: 200.0 };

/// A place, mm.
#[derive(Clone, Copy, Debug)]
struct Place {
    x: f64,
    y: f64,
    z: f64,
}

/// A sensor's way through one step.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    from: Place,
    /// To the end of the step.
    way: Place,
    /// Its length, mm.
    length: f64,
}

impl Segment {
    fn new(from: Place, to: Place) -> Self {
        let way = Place { x: to.x - from.x, y: to.y - from.y, z: to.z - from.z };
        Segment { from, way, length: (way.x * way.x + way.y * way.y + way.z * way.z).sqrt() }
    }

    /// The share of the way that is covered after the share `u` of the step: smooth, from rest to rest.
    #[inline(always)]
    fn covered(u: f64) -> f64 {
        u * u * (3.0 - 2.0 * u)
    }

    /// Where the sensor is after the share `u` of the step, mm.
    #[inline(always)]
    pub fn x(&self, u: f64) -> f64 {
        self.from.x + self.way.x * Self::covered(u)
    }

    /// As [`Segment::x`].
    #[inline(always)]
    pub fn y(&self, u: f64) -> f64 {
        self.from.y + self.way.y * Self::covered(u)
    }

    /// As [`Segment::x`].
    #[inline(always)]
    pub fn z(&self, u: f64) -> f64 {
        self.from.z + self.way.z * Self::covered(u)
    }

    /// Speed, µm/s.
    #[inline(always)]
    pub fn speed(&self, u: f64) -> f64 {
        self.length * (6.0 / STEP_S as f64 * 1_000.0) * (u * (1.0 - u))
    }

    /// Acceleration, µm/s², negative when it slows down.
    #[inline(always)]
    pub fn acceleration(&self, u: f64) -> f64 {
        self.length * (6.0 / (STEP_S * STEP_S) as f64 * 1_000.0) * (1.0 - 2.0 * u)
    }

    /// The direction of the way, a vector of length 10,000; of length 0 at rest.
    pub fn direction(&self) -> (f64, f64, f64) {
        let scale = if self.length > 0.0 { 10_000.0 / self.length } else { 0.0 };
        (self.way.x * scale, self.way.y * scale, self.way.z * scale)
    }
}

/// A row of a tick: a sensor, and when it speaks.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    sensor: usize,
    /// After the tick's begin, ns.
    offset_ns: u64,
}

/// A goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goal {
    /// The row that shows it first.
    pub row: u64,
    /// Its time, ns after the first row.
    pub ns: u64,
    /// The ball.
    pub sid: i32,
    /// Whether it fell in the goal where y is positive.
    pub high: bool,
}

/// What a stream of random numbers is for.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    Ball,
    GoalStep,
    GoalEnd,
    GoalFrom,
    GoalX,
    GoalZ,
    Miss,
    PlayX,
    PlayY,
    PlayZ,
    BodyX,
    BodyY,
    BodyZ,
}

/// The model's streams, in place of a column's index.
const MODEL: u64 = u64::MAX - 2;

/// All that is fixed about the rows of a table.
pub struct Model {
    seed: u64,
    /// The rows of a tick, in order of time.
    slots: Vec<Slot>,
    tick_ns: u64,
    /// Between two rows of a ball, ns.
    ball_ns: u64,
    step_ticks: u64,
    steps_per_ns: f64,
    /// Steps in which one goal falls.
    interval_steps: u64,
    /// ms since 1970.
    base_ms: i64,
}

impl Model {
    /// Sensors of players give `players_hz` rows a second, those of balls `balls_hz`, a multiple of it.
    /// A goal falls every `interval_steps` steps, at least [`STEPS_MIN`].
    pub fn new(seed: u64, players_hz: u64, balls_hz: u64, interval_steps: u64, base_ms: i64) -> Self {
        assert!(players_hz > 0 && balls_hz > 0 && balls_hz.is_multiple_of(players_hz) && interval_steps >= STEPS_MIN);
        let ratio = (balls_hz / players_hz) as usize;
        let tick_ns = 1_000_000_000 / players_hz;
        let ball_ns = tick_ns / ratio as u64;
        let mut slots = Vec::with_capacity(BALLS.len() * ratio + BODIES);
        for part in 0..ratio {
            let offset_ns = part as u64 * ball_ns;
            // The players' sensors are spread over the tick.
            let bodies = (part * BODIES).div_ceil(ratio)..((part + 1) * BODIES).div_ceil(ratio);
            let sensors = (0..BALLS.len()).chain(bodies.map(|body| BALLS.len() + body));
            slots.extend(sensors.map(|sensor| Slot { sensor, offset_ns }));
        }
        let step_ticks = STEP_S * players_hz;
        let steps_per_ns = 1.0 / (step_ticks * tick_ns) as f64;
        Model { seed, slots, tick_ns, ball_ns, step_ticks, steps_per_ns, interval_steps, base_ms }
    }

    /// Rows a second.
    pub fn rows_per_second(&self) -> u64 {
        self.slots.len() as u64 * (self.step_ticks / STEP_S)
    }

    /// The time in which one goal falls, ns.
    pub fn interval_ns(&self) -> u64 {
        self.interval_steps * self.step_ticks * self.tick_ns
    }

    fn at(&self, purpose: Purpose, index: u64) -> u64 {
        Stream::new(self.seed, MODEL, purpose as u64).at(index)
    }

    /// A number from `low` to `high`.
    fn between(&self, purpose: Purpose, index: u64, low: f64, high: f64) -> f64 {
        low + (high - low) * unit(self.at(purpose, index))
    }

    /// Whether a choice among two falls on the second.
    fn coin(&self, purpose: Purpose, index: u64) -> bool {
        self.at(purpose, index) >> 63 == 1
    }

    /// The ball in play in an interval, by its index.
    fn in_play(&self, interval: u64) -> usize {
        below(self.at(Purpose::Ball, interval), BALLS.len() as u64) as usize
    }

    /// The step of an interval at whose begin the ball is where it is shot from.
    fn goal_step(&self, interval: u64) -> u64 {
        // Behind the miss; the ball is back in the centre three steps later.
        5 + below(self.at(Purpose::GoalStep, interval), self.interval_steps - 8)
    }

    /// Where a ball is at the begin of a step of an interval, or at the interval's end.
    fn ball(&self, ball: usize, interval: u64, step: u64) -> Place {
        if ball != self.in_play(interval) {
            // Beside a goal, behind the line.
            return Place { x: 8_000.0 + 2_000.0 * ball as f64, y: HALF_LENGTH + 1_500.0, z: 100.0 };
        }
        let goal = self.goal_step(interval);
        let side = if self.coin(Purpose::GoalEnd, interval) { 1.0 } else { -1.0 };
        let left = self.coin(Purpose::GoalFrom, interval);
        // From where goals and misses are shot: far from the goal's posts.
        let foot = Place { x: if left { 12_000.0 } else { 40_000.0 }, y: 25_000.0 * side, z: 100.0 };
        // Where the ball comes to rest in the net. On the straight line to it the ball is between the
        // posts (x 22,579 to 29,880) wherever it is behind the goal's line.
        let net_x = if left { (25_000.0, 28_500.0) } else { (24_500.0, 27_500.0) };
        let net = Place {
            x: self.between(Purpose::GoalX, interval, net_x.0, net_x.1),
            y: 34_600.0 * side,
            z: self.between(Purpose::GoalZ, interval, 200.0, 2_000.0),
        };
        // Misses go over the bar (z above 2,440 wherever the ball is behind the line and between the
        // posts) or beside a post, to the other end of the field than the goal.
        let missed = match self.coin(Purpose::Miss, interval) {
            true => Place { x: 26_000.0, y: -34_800.0 * side, z: 4_000.0 },
            false => Place { x: if left { 18_000.0 } else { 34_000.0 }, y: -35_000.0 * side, z: 800.0 },
        };
        match step {
            0 => CENTRE,
            1 => Place { y: -foot.y, ..foot },
            2 => missed,
            3 => Place { x: if left { 1_000.0 } else { WIDTH - 1_000.0 }, y: -33_000.0 * side, z: 100.0 },
            step if step == goal => foot,
            step if step == goal + 1 => net,
            step if step == goal + 2 => Place { y: 34_500.0 * side, z: 150.0, ..net },
            step if step == goal + 3 || step == self.interval_steps => CENTRE,
            step => {
                let index = interval * self.interval_steps + step;
                Place {
                    x: self.between(Purpose::PlayX, index, 3_000.0, WIDTH - 3_000.0),
                    y: self.between(Purpose::PlayY, index, -30_000.0, 30_000.0),
                    z: self.between(Purpose::PlayZ, index, 50.0, 1_500.0),
                }
            }
        }
    }

    /// Where a player's sensor is at the begin of a step: somewhere around the player's position.
    fn body(&self, body: usize, step: u64) -> Place {
        let (player, foot) = (body as u64 / 2, body as f64 % 2.0);
        let players = BODIES as u64 / 2;
        let index = step.wrapping_mul(players).wrapping_add(player);
        let (row, column) = ((player / 4) as f64, (player % 4) as f64);
        let home = (WIDTH / 4.0 * (column + 0.5), HALF_LENGTH / 2.0 * (row - 1.5));
        Place {
            x: home.0 + self.between(Purpose::BodyX, index, -6_000.0, 6_000.0) + 300.0 * foot,
            y: home.1 + self.between(Purpose::BodyY, index, -8_000.0, 8_000.0),
            z: self.between(Purpose::BodyZ, index.wrapping_mul(2).wrapping_add(body as u64 % 2), 50.0, 400.0),
        }
    }

    /// A sensor's way through a step, counted from the first row.
    fn segment(&self, sensor: usize, step: u64) -> Segment {
        match sensor.checked_sub(BALLS.len()) {
            Some(body) => Segment::new(self.body(body, step), self.body(body, step.wrapping_add(1))),
            None => {
                let (interval, step) = (step / self.interval_steps, step % self.interval_steps);
                Segment::new(self.ball(sensor, interval, step), self.ball(sensor, interval, step + 1))
            }
        }
    }

    /// Calls `each` with the tick and the slots of each run of rows without gaps, in order.
    #[inline(always)]
    fn runs(&self, span: Span, mut each: impl FnMut(u64, &[Slot])) {
        let slots = self.slots.len();
        for (first, count) in span.ranges() {
            let (mut tick, mut slot, mut left) = (first / slots as u64, (first % slots as u64) as usize, count);
            while left > 0 {
                let length = left.min(slots - slot);
                each(tick, &self.slots[slot..slot + length]);
                left -= length;
                tick += 1;
                slot = 0;
            }
        }
    }

    /// The share of a step that has passed `ns` after its begin.
    #[inline(always)]
    fn share(&self, ns: u64) -> f64 {
        ns as i64 as f64 * self.steps_per_ns
    }

    /// A value for each row, from the sensor's way and the share of the step that has passed.
    #[inline(always)]
    pub fn moving<T>(&self, span: Span, of: impl Fn(&Segment, f64) -> T) -> Vec<T> {
        let mut values = Vec::with_capacity(span.rows);
        // The ways of a step, made once a step and not once a row.
        let mut step = None;
        let mut segments = [Segment::new(CENTRE, CENTRE); SENSORS];
        self.runs(span, |tick, slots| {
            let now = tick / self.step_ticks;
            if step != Some(now) {
                step = Some(now);
                for (sensor, segment) in segments.iter_mut().enumerate() {
                    *segment = self.segment(sensor, now);
                }
            }
            let passed_ns = tick % self.step_ticks * self.tick_ns;
            values.extend(slots.iter().map(|slot| of(&segments[slot.sensor], self.share(passed_ns + slot.offset_ns))));
        });
        values
    }

    /// A value for each row, from the time after the first row, ns, and the sensor's id.
    #[inline(always)]
    pub fn fixed<T>(&self, span: Span, of: impl Fn(u64, i32) -> T) -> Vec<T> {
        let mut values = Vec::with_capacity(span.rows);
        self.runs(span, |tick, slots| {
            let ns = tick.wrapping_mul(self.tick_ns);
            values.extend(slots.iter().map(|slot| of(ns.wrapping_add(slot.offset_ns), sid(slot.sensor))));
        });
        values
    }

    /// A time after the first row, ns, as ms since 1970.
    #[inline(always)]
    pub fn ms(&self, ns: u64) -> i64 {
        self.base_ms.wrapping_add((ns / 1_000_000) as i64)
    }

    /// The goal of an interval.
    pub fn goal(&self, interval: u64) -> Goal {
        let ball = self.in_play(interval);
        let high = self.coin(Purpose::GoalEnd, interval);
        let step = interval * self.interval_steps + self.goal_step(interval);
        let segment = self.segment(ball, step);
        let ratio = self.tick_ns / self.ball_ns;
        // When the ball speaks for the `k`-th time in the step, ns after the step's begin.
        let at = |k: u64| k / ratio * self.tick_ns + k % ratio * self.ball_ns;
        let behind = |k: u64| {
            let y = nearest(segment.y(self.share(at(k))));
            if high { y >= HIGH_LINE } else { y <= LOW_LINE }
        };
        // The ball moves towards the net all the time, so the first time is found by halving.
        let (mut before, mut after) = (0, self.step_ticks * ratio - 1);
        assert!(!behind(before) && behind(after), "the ball crosses the line in this step");
        while after - before > 1 {
            let middle = before + (after - before) / 2;
            if behind(middle) { after = middle } else { before = middle }
        }
        let tick = step * self.step_ticks + after / ratio;
        let offset_ns = after % ratio * self.ball_ns;
        let slot = self.slots.iter().position(|s| s.sensor == ball && s.offset_ns == offset_ns).expect("each ball speaks in each part");
        Goal { row: tick * self.slots.len() as u64 + slot as u64, ns: tick * self.tick_ns + offset_ns, sid: BALLS[ball], high }
    }

    /// How many goals the first `rows` rows show.
    pub fn goals_within(&self, rows: u64) -> u64 {
        let intervals = rows / (self.slots.len() as u64 * self.step_ticks * self.interval_steps);
        intervals + u64::from(self.goal(intervals).row < rows)
    }
}

fn sid(sensor: usize) -> i32 {
    match sensor.checked_sub(BALLS.len()) {
        Some(body) => FIRST_BODY + body as i32,
        None => BALLS[sensor],
    }
}

/// The nearest whole number, for numbers between -2^31 and 2^31. (`f64::round` is a call of a function on
/// processors of the lowest common level.)
#[inline(always)]
pub fn nearest(x: f64) -> i64 {
    const OFFSET: i64 = 1 << 32;
    (x + (OFFSET as f64 + 0.5)) as i64 - OFFSET
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datagen::counter::Stripe;

    fn span(rows: usize) -> Span {
        Span { stripe: Stripe { index: 0, of: 1, chunk: 1 }, rank: 0, rows }
    }

    #[test]
    fn rates_and_order() {
        let model = Model::new(1, 200, 2_000, 30, 0);
        assert_eq!(model.rows_per_second(), 32 * 200 + 4 * 2_000);
        let rows = model.fixed(span(model.rows_per_second() as usize), |ns, sid| (ns, sid));
        assert!(rows.is_sorted_by_key(|r| r.0));
        assert!(rows.last().unwrap().0 < 1_000_000_000);
        for (sid, expect) in [(4, 2_000), (12, 2_000), (13, 200), (44, 200)] {
            assert_eq!(rows.iter().filter(|r| r.1 == sid).count(), expect, "sensor {sid}");
        }
    }

    #[test]
    fn sensors_move_without_jumps() {
        let model = Model::new(3, 100, 200, 12, 0);
        let seconds = 60;
        let span = span(seconds * model.rows_per_second() as usize);
        let places = model.moving(span, |s, u| (s.x(u), s.y(u), s.z(u)));
        let sids = model.fixed(span, |_, sid| sid);
        for sid in [13, 20, 44] {
            let way: Vec<_> = places.iter().zip(&sids).filter(|(_, s)| **s == sid).map(|(p, _)| *p).collect();
            assert_eq!(way.len(), seconds * 100);
            // At most 20 m/s: 200 mm in a hundredth of a second.
            assert!(way.windows(2).all(|w| (w[1].0 - w[0].0).hypot(w[1].1 - w[0].1) < 200.0), "sensor {sid}");
            assert!(way.iter().all(|p| (0.0..=WIDTH).contains(&p.0) && p.1.abs() < HALF_LENGTH), "sensor {sid} stays on the field");
        }
    }

    /// The conditions of the pattern, row by row: a goal is a ball behind the line, between the posts,
    /// after it was on the field beside them.
    fn found(model: &Model, rows: usize) -> Vec<(u64, i32)> {
        let places = model.moving(span(rows), |s, u| (nearest(s.x(u)), nearest(s.y(u)), nearest(s.z(u)), nearest(s.acceleration(u).abs())));
        let sensors = model.fixed(span(rows), |_, sid| sid);
        let mut out = Vec::new();
        let mut armed = [false; 64];
        for (row, ((x, y, z, a), sid)) in places.into_iter().zip(sensors).enumerate() {
            if !BALLS.contains(&sid) {
                continue;
            }
            let between = (x <= 29_898 && x > 22_579 && y <= -33_968) || (x <= 29_880 && x > 22_560 && y >= 33_965);
            if !(22_560..=29_880).contains(&x) && y > -33_968 && y < 33_965 {
                armed[sid as usize] = true;
            } else if between && z < 2_440 && a >= 55_000 && std::mem::take(&mut armed[sid as usize]) {
                out.push((row as u64, sid));
            }
        }
        out
    }

    #[test]
    fn the_pattern_finds_the_goals() {
        for (seed, steps) in [(1, 10), (2, 11), (3, 25)] {
            let model = Model::new(seed, 20, 100, steps, 0);
            let rows = 40 * steps * STEP_S * model.rows_per_second();
            let goals: Vec<Goal> = (0..model.goals_within(rows)).map(|i| model.goal(i)).collect();
            assert_eq!(goals.len(), 40);
            assert_eq!(found(&model, rows as usize), goals.iter().map(|g| (g.row, g.sid)).collect::<Vec<_>>(), "seed {seed}");
            assert!(goals.iter().any(|g| g.high) && goals.iter().any(|g| !g.high), "goals fall at both ends");
            let last = goals[39].row;
            assert_eq!((model.goals_within(last), model.goals_within(last + 1)), (39, 40));
        }
    }

    #[test]
    fn numbers_are_rounded_to_the_nearest() {
        for (x, expect) in [(0.0, 0), (0.49, 0), (0.51, 1), (-0.49, 0), (-0.51, -1), (-33_968.2, -33_968), (1e8 + 0.6, 100_000_001)] {
            assert_eq!(nearest(x), expect, "{x}");
        }
    }
}
