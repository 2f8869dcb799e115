//! The search for the number of workers that pays: hill climbing on what is read a second.
//!
//! - *Doubling*: the number doubles as long as each doubling reads at least 15 % more. From 2 to 32 that takes five windows.
//! - *Settled*: it stays, and now and then a quarter more or a fifth less is tried for a window: more is kept if it reads
//!   more in proportion, fewer if they read as much. Trials that fail become rarer.
//! - *Withdrawn*: near the memory's bound the number falls by a third a window (additive increase, multiplicative
//!   decrease, as in TCP's congestion control), and grows no further than memory would grow with it.
//!
//! What pays little is taken back (diminishing returns), so the search needs not know why. It is told nevertheless where
//! time goes ([`Sample`]): that names the bottleneck, and spares trials that cannot pay, since all processors are busy or
//! the sink is behind. The two thresholds, for more and for fewer, lie apart (hysteresis), so noise of some percent does
//! not move it for long. Whatever it says, only the speed depends on it.

use std::time::Duration;

use super::{Found, Limit};

/// What a doubling must bring, as a share of what it would bring if nothing were in the way; a smaller step in proportion.
const GAIN: f64 = 0.15;
/// And any step at least: less is noise.
const GAIN_MIN: f64 = 1.03;
/// Fewer workers are kept if they read this share of what there was.
const KEEPS: f64 = 0.97;
/// Windows between two trials; doubled, up to the second, by each trial that fails.
const CALM: u32 = 6;
const CALM_MAX: u32 = 48;
/// From this share of the processors on, further workers would only take turns.
const BUSY: f64 = 0.9;
/// From this share of the time on, writing is what rows wait for.
const HELD_UP: f64 = 0.5;
/// From this share of the time on, waiting for a disk or the network is what holds readers back.
const WAITS: f64 = 0.25;
/// If nothing waits for anything, this share of the processors means that single threads of the work are the limit.
const COMPUTES: f64 = 0.4;
/// Shares of the memory: where it is called the limit, up to which workers are added, and from where they are withdrawn.
const MEMORY_SHORT: f64 = 0.7;
pub(super) const MEMORY_GOAL: f64 = 0.8;
const MEMORY_MAX: f64 = 0.9;

/// Between which numbers is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Where the search begins.
    pub first: usize,
    /// The fewest, at least 1.
    pub least: usize,
    /// The most. The same as the fewest: nothing is searched.
    pub most: usize,
}

/// What was measured since the sample before. Shares lie between 0 and 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Since when.
    pub elapsed: Duration,
    /// Bytes read, in whatever measure, but always the same.
    pub bytes: u64,
    /// How many workers were at it.
    pub active: usize,
    /// The share of its time that a worker waited for a disk.
    pub disk: f64,
    /// The share of its time that a worker waited for the network.
    pub network: f64,
    /// The share of the time in which rows were being written.
    pub sink: f64,
    /// The share of the processors that the process used.
    pub busy: f64,
    /// The share of the memory that the process held.
    pub memory: f64,
}

impl Sample {
    /// What held the workers back, if anything did.
    pub fn limit(&self) -> Option<Limit> {
        if self.busy >= BUSY {
            return Some(Limit::Processors);
        }
        if self.memory >= MEMORY_SHORT {
            return Some(Limit::Memory);
        }
        let waits = self.disk.max(self.network);
        if self.sink >= HELD_UP && self.sink > waits {
            return Some(Limit::Sink);
        }
        if waits >= WAITS {
            return Some(if self.disk > self.network { Limit::Disk } else { Limit::Network });
        }
        (self.busy >= COMPUTES).then_some(Limit::Processors)
    }
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// So many more.
    Add(usize),
    /// So many fewer, as soon as they are done with what they are at.
    Withdraw(usize),
    /// Nothing.
    Stay,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// Before the last doubling there were so many, with this rate.
    Doubling(Option<(usize, f64)>),
    /// So many windows are left until the next trial.
    Settled(u32),
    /// A trial, from so many with this rate.
    Trial(usize, f64),
}

/// What was seen with one number of workers.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    seconds: f64,
    bytes: u64,
    /// Shares times seconds.
    busy: f64,
    waits: f64,
    sink: f64,
    /// The highest share.
    memory: f64,
}

/// The number of workers. It knows no clock and no threads: samples are given to it.
#[derive(Clone, Debug)]
pub struct Search {
    bounds: Bounds,
    /// How long a number is looked at before it is judged, seconds.
    window_s: f64,
    workers: usize,
    phase: Phase,
    calm: u32,
    /// The next trial goes up.
    up: bool,
    /// The number has just changed: what comes next was partly read by the number before.
    fresh: bool,
    window: Window,
    /// For how long each limit was the one, seconds.
    limited_s: [f64; Limit::ALL.len()],
    seconds: f64,
}

impl Search {
    /// A search that looks at a number for so long.
    ///
    /// # Panics
    /// Bounds that are none.
    pub fn new(bounds: Bounds, window: Duration) -> Self {
        let Bounds { first, least, most } = bounds;
        assert!(1 <= least && least <= first && first <= most, "bounds of a search: {bounds:?}");
        Search {
            bounds,
            window_s: window.as_secs_f64(),
            workers: first,
            phase: Phase::Doubling(None),
            calm: CALM,
            up: false,
            fresh: true,
            window: Window::default(),
            limited_s: [0.0; Limit::ALL.len()],
            seconds: 0.0,
        }
    }

    /// Always so many; what limits them is found nevertheless.
    pub fn fixed(workers: usize) -> Self {
        let workers = workers.max(1);
        Search::new(Bounds { first: workers, least: workers, most: workers }, Duration::ZERO)
    }

    /// How many there shall be.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// What was found so far: trials do not count before they were judged.
    pub fn found(&self) -> Found {
        let workers = match self.phase {
            Phase::Doubling(Some((fewer, _))) => fewer,
            Phase::Trial(from, _) => from,
            _ => self.workers,
        };
        let longest = Limit::ALL.into_iter().max_by(|a, b| self.limited_s[*a as usize].total_cmp(&self.limited_s[*b as usize]));
        let limited_by = longest.filter(|limit| self.limited_s[*limit as usize] > self.seconds * WAITS);
        Found { workers, found: self.bounds.least < self.bounds.most, limited_by }
    }

    /// Takes a sample in.
    pub fn observe(&mut self, sample: &Sample) -> Advice {
        let seconds = sample.elapsed.as_secs_f64();
        self.seconds += seconds;
        if let Some(limit) = sample.limit() {
            self.limited_s[limit as usize] += seconds;
        }
        let Bounds { least, most, .. } = self.bounds;
        if least == most {
            return Advice::Stay;
        }
        if sample.memory >= MEMORY_MAX && sample.active < self.workers {
            // Those that are not there yet need not come.
            return self.settle(sample.active.max(least));
        }
        // At the end there is not enough to do for all, and who is withdrawn ends what he is at: either says nothing about
        // the number that is wanted.
        if self.fresh || sample.active != self.workers {
            self.fresh = sample.active != self.workers;
            self.window = Window::default();
            return Advice::Stay;
        }
        if sample.memory >= MEMORY_MAX {
            self.calm = CALM_MAX;
            return self.settle((self.workers * 2 / 3).max(least));
        }
        let window = &mut self.window;
        window.seconds += seconds;
        window.bytes += sample.bytes;
        window.busy += sample.busy * seconds;
        window.waits += sample.disk.max(sample.network) * seconds;
        window.sink += sample.sink * seconds;
        window.memory = window.memory.max(sample.memory);
        if window.seconds < self.window_s || window.seconds <= 0.0 || window.bytes == 0 {
            return Advice::Stay;
        }
        let window = std::mem::take(&mut self.window);
        self.judge(&window)
    }

    fn judge(&mut self, window: &Window) -> Advice {
        let (rate, now) = (window.bytes as f64 / window.seconds, self.workers);
        match self.phase {
            Phase::Doubling(Some((fewer, before))) if !pays(fewer, before, now, rate) => self.settle(fewer),
            Phase::Doubling(_) => {
                let more = self.room(window, now * 2);
                if more == now {
                    return self.settle(now);
                }
                self.phase = Phase::Doubling(Some((now, rate)));
                self.change(more)
            }
            Phase::Settled(left) if left > 0 => {
                self.phase = Phase::Settled(left - 1);
                Advice::Stay
            }
            Phase::Settled(_) => {
                let more = self.room(window, now + now.div_ceil(4));
                // With fewer than at the beginning processors that are busy now would have less to do.
                let full = window.busy >= BUSY * window.seconds && now <= self.bounds.first;
                let fewer = if full { now } else { (now * 4 / 5).max(self.bounds.least) };
                let to = if more > now && (self.up || fewer == now) { more } else { fewer };
                if to == now {
                    return self.settle(now);
                }
                self.phase = Phase::Trial(now, rate);
                self.change(to)
            }
            Phase::Trial(from, before) => {
                let up = now > from;
                let paid = if up { pays(from, before, now, rate) } else { rate >= before * KEEPS };
                // What has paid is tried again, what has not the other way round, and later.
                self.up = up == paid;
                if paid {
                    (self.calm, self.phase) = (CALM, Phase::Settled(0));
                    return Advice::Stay;
                }
                self.calm = (self.calm * 2).min(CALM_MAX);
                self.settle(from)
            }
        }
    }

    /// How many there may be instead, up to `to`.
    fn room(&self, window: &Window, to: usize) -> usize {
        let held_up = window.sink >= HELD_UP * window.seconds && window.sink > window.waits;
        if window.busy >= BUSY * window.seconds || held_up {
            return self.workers;
        }
        // As if all memory were theirs: what the process takes by itself only makes it more careful.
        let fit = if window.memory > 0.0 { (self.workers as f64 * MEMORY_GOAL / window.memory) as usize } else { usize::MAX };
        to.min(self.bounds.most).min(fit).max(self.workers)
    }

    fn settle(&mut self, workers: usize) -> Advice {
        self.phase = Phase::Settled(self.calm);
        self.change(workers)
    }

    fn change(&mut self, to: usize) -> Advice {
        let from = std::mem::replace(&mut self.workers, to);
        self.window = Window::default();
        self.fresh = to != from;
        match to.checked_sub(from) {
            Some(0) => Advice::Stay,
            Some(more) => Advice::Add(more),
            None => Advice::Withdraw(from - to),
        }
    }
}

/// Whether `more` workers with this rate are worth it, after `fewer` with the rate before.
fn pays(fewer: usize, before: f64, more: usize, rate: f64) -> bool {
    let gain = 1.0 + GAIN * (more as f64 / fewer.max(1) as f64 - 1.0);
    rate >= before * gain.max(GAIN_MIN)
}
