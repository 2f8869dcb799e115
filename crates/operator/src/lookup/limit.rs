//! How many calls are under way at once: a fixed number, or as many as make it faster.
//!
//! The adaptive limit follows the idea of TCP's congestion control (slow start, then additive increase
//! and multiplicative decrease) on measured rate and latency instead of loss, as Vector's adaptive request
//! concurrency and Netflix's concurrency limits do. Answers are counted in windows. One begins when the calls that
//! were under way at a change of the limit have mostly ended: before, neither rate nor latency is that of the new limit.
//!
//! - *Doubling*: the limit doubles, once a window, while each doubling gives at least a tenth more answers a
//!   second. From 8 to 1,024 that takes seven windows of two round trips or so.
//! - *Settled*: it stays, and from time to time tries a quarter more or a fifth less for one window: more is
//!   kept, and doubled on, if it gives more answers; less is kept if it gives as many.
//! - *Backing off*: where calls take half as long again as is usual, as few are tried as the server would work on
//!   at once if they only waited for each other there. If that is so, they give as many answers and the limit stays
//!   down. If each of them has become slower, they give as many fewer: the limit goes back, and what calls take
//!   now is usual.
//! - Where calls fail, it falls by three tenths a window.
//!
//! Windows in which there was not enough to ask do not count: they say nothing about a larger limit.

/// Where the search begins.
const LIMIT_START: usize = 8;
/// The most calls of a shard when the limit is left to us. Sockets, tasks and waiting rows cost memory at
/// both ends; whoever wants more says so.
pub(super) const LIMIT_MAX: usize = 1024;
/// The least length of a window: shorter ones measure the scheduler.
const WINDOW_NS: u64 = 20_000_000;
/// Windows until the next trial: usually, and after one that failed or calls that did.
const CALM_WINDOWS: u32 = 4;
const SOBER_WINDOWS: u32 = 16;
/// Where the server is slow, this is tried of what it seems to work on at once: a little more, so that it never waits.
const BACK_OFF: f64 = 1.25;
/// But no less than this share of the limit at once: if each call has become slower it costs so many answers.
const BACK_OFF_MOST: usize = 8;
/// So many answers are waited for in a trial, at least: four times the limit if that is fewer, though not below the other.
const TRIAL_ANSWERS: usize = 128;
const TRIAL_ANSWERS_LEAST: usize = 16;
/// A difference of latency that is never taken for a slow server.
const NOISE_NS: f64 = 500_000.0;

/// Calls that may be under way at once.
pub(super) struct Limit {
    limit: usize,
    search: Option<Search>,
}

enum Phase {
    /// The limit was this before it was last raised.
    Doubling(usize),
    /// So many windows are left until the next trial.
    Settled(u32),
    /// A quarter more than this limit is tried.
    More(usize),
    /// A fifth less than this limit is tried.
    Fewer(usize),
    /// Calls took long for a window. In another one it shows what the rate is: some of those of the first began before
    /// the server was slow.
    Slow,
    /// Much less than this limit is tried, and taken if it gives this share of the answers.
    BackOff(usize, f64),
}

struct Search {
    phase: Phase,
    /// Answers a nanosecond that are usual at the settled limit.
    rate: f64,
    /// Latency that is usual at the settled limit, ns.
    usual_ns: f64,
    /// The next trial goes up.
    up: bool,
    /// Before this the next window does not begin.
    from_ns: u64,
    // The window so far.
    begun_ns: Option<u64>,
    answers: usize,
    /// What all of them took, and those that failed.
    sum_ns: f64,
    troubled_ns: f64,
    unused: usize,
    troubles: usize,
    /// When the last one came, if there was nothing more to ask then.
    idle_ns: Option<u64>,
}

impl Limit {
    /// Always so many.
    pub fn fixed(limit: usize) -> Self {
        Limit { limit: limit.max(1), search: None }
    }

    /// As many as pay, [`LIMIT_MAX`] at most.
    pub fn adaptive() -> Self {
        let search = Search {
            phase: Phase::Doubling(LIMIT_START),
            rate: 0.0,
            usual_ns: 0.0,
            up: true,
            from_ns: 0,
            begun_ns: None,
            answers: 0,
            sum_ns: 0.0,
            troubled_ns: 0.0,
            unused: 0,
            troubles: 0,
            idle_ns: None,
        };
        Limit { limit: LIMIT_START, search: Some(search) }
    }

    /// How many there may be.
    pub fn allowed(&self) -> usize {
        self.limit
    }

    /// A call has ended after `took_ns`. `trouble`: it failed in a way that fewer calls may mend, or took too
    /// long. `used`: there was more to ask than the limit let through.
    pub fn ended(&mut self, now_ns: u64, took_ns: u64, trouble: bool, used: bool) {
        let Some(search) = &mut self.search else { return };
        let idle_ns = std::mem::replace(&mut search.idle_ns, (!used).then_some(now_ns));
        if now_ns < search.from_ns {
            return;
        }
        // A pause in which nothing was asked is no part of a rate.
        let paused = idle_ns.is_some_and(|idle_ns| (now_ns - idle_ns) as f64 > WINDOW_NS as f64 + 2.0 * search.usual_ns);
        let begun_ns = match search.begun_ns {
            Some(begun_ns) if !paused => begun_ns,
            _ => return search.begin(now_ns),
        };
        search.answers += 1;
        search.unused += usize::from(!used);
        search.sum_ns += took_ns as f64;
        if trouble {
            search.troubles += 1;
            search.troubled_ns += took_ns as f64;
        }
        let window_ns = now_ns - begun_ns;
        if search.answers >= search.enough(self.limit) && window_ns >= WINDOW_NS {
            let limit = search.judge(self.limit, search.answers as f64 / window_ns as f64);
            search.from_ns = if limit == self.limit { now_ns } else { now_ns + (search.sum_ns / search.answers as f64) as u64 };
            self.limit = limit;
            search.begun_ns = None;
        }
    }
}

impl Search {
    /// How many answers a window has at `limit`, at least.
    fn enough(&self, limit: usize) -> usize {
        match self.phase {
            // A trial decides for long.
            Phase::More(_) | Phase::Fewer(_) | Phase::BackOff(..) => (limit * 4).clamp(TRIAL_ANSWERS_LEAST, TRIAL_ANSWERS).max(limit / 2),
            // At a small limit a few answers say little, and many would take long.
            _ if limit < 32 => (limit * 2).max(4),
            _ => (limit / 2).max(64),
        }
    }

    /// A window begins.
    fn begin(&mut self, now_ns: u64) {
        self.begun_ns = Some(now_ns);
        (self.answers, self.unused, self.troubles) = (0, 0, 0);
        (self.sum_ns, self.troubled_ns) = (0.0, 0.0);
    }

    /// The limit after a window at `limit` with so many answers a nanosecond.
    fn judge(&mut self, limit: usize, rate: f64) -> usize {
        if self.troubles * 20 > self.answers {
            self.phase = Phase::Settled(SOBER_WINDOWS);
            return (limit * 7 / 10).max(1);
        }
        // A fifth of the answers may find nothing more to ask: there are always some between two blocks.
        if self.unused * 5 > self.answers {
            return limit;
        }
        let mean = (self.sum_ns - self.troubled_ns) / (self.answers - self.troubles).max(1) as f64;
        match self.phase {
            Phase::Doubling(_) if rate >= self.rate * 1.1 => {
                (self.rate, self.usual_ns) = (rate, mean);
                self.raise(limit)
            }
            Phase::Doubling(from) => {
                self.phase = Phase::Settled(CALM_WINDOWS);
                if rate > self.rate * 1.02 {
                    (self.rate, self.usual_ns) = (rate, mean);
                    return limit;
                }
                from
            }
            // Calls failed before any window could say what is usual.
            Phase::Settled(_) if self.usual_ns == 0.0 => {
                (self.rate, self.usual_ns) = (rate, mean);
                limit
            }
            Phase::Settled(left) => {
                if self.is_slow(mean) {
                    self.phase = Phase::Slow;
                    return limit;
                }
                self.usual_ns += (mean - self.usual_ns) * 0.15;
                self.rate += (rate - self.rate) * 0.3;
                if left > 0 {
                    self.phase = Phase::Settled(left - 1);
                    return limit;
                }
                let up = (self.up && limit < LIMIT_MAX) || limit == 1;
                self.up = !self.up;
                if up {
                    self.phase = Phase::More(limit);
                    (limit + (limit / 4).max(1)).min(LIMIT_MAX)
                } else {
                    self.phase = Phase::Fewer(limit);
                    (limit * 4 / 5).max(1)
                }
            }
            Phase::Slow if self.is_slow(mean) => {
                self.rate = rate;
                let fewer = ((limit as f64 * self.usual_ns / mean * BACK_OFF) as usize).max(limit.div_ceil(BACK_OFF_MOST));
                // Half-way between as many answers and as many fewer.
                self.phase = Phase::BackOff(limit, f64::midpoint(1.0, fewer as f64 / limit as f64));
                fewer
            }
            Phase::Slow => {
                self.phase = Phase::Settled(CALM_WINDOWS);
                limit
            }
            Phase::More(from) => {
                // A quarter more calls give a quarter more answers at best.
                if rate >= self.rate * 1.06 {
                    (self.rate, self.usual_ns) = (rate, mean);
                    return self.raise(limit);
                }
                self.phase = Phase::Settled(SOBER_WINDOWS);
                from
            }
            Phase::Fewer(from) => {
                let as_many = rate >= self.rate * 0.98;
                self.phase = Phase::Settled(if as_many { CALM_WINDOWS } else { SOBER_WINDOWS });
                if as_many { limit } else { from }
            }
            Phase::BackOff(from, kept) => {
                self.phase = Phase::Settled(CALM_WINDOWS);
                if limit < from && rate >= self.rate * kept {
                    // It may have been a hitch that is over: more are tried first.
                    self.up = true;
                    return limit;
                }
                self.usual_ns = mean;
                from
            }
        }
    }

    /// Twice `limit`, if there may be more.
    fn raise(&mut self, limit: usize) -> usize {
        self.phase = if limit < LIMIT_MAX { Phase::Doubling(limit) } else { Phase::Settled(SOBER_WINDOWS) };
        (limit * 2).min(LIMIT_MAX)
    }

    /// Whether such a mean latency is more than what is usual, by so much that it matters.
    fn is_slow(&self, mean_ns: f64) -> bool {
        mean_ns > self.usual_ns * 1.5 + NOISE_NS
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use super::*;

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1000 * MS;

    /// A server with so many places, each of which takes so long for a call, behind a network.
    #[derive(Clone, Copy)]
    struct Server {
        places: usize,
        service_ns: u64,
        network_ns: u64,
        /// By how much the time for a call differs from the usual, either way, percent.
        spread: u64,
    }

    impl Server {
        /// Answers a second at best.
        fn best(self) -> f64 {
            let alone = LIMIT_MAX as f64 / (self.service_ns + self.network_ns) as f64;
            alone.min(self.places as f64 / self.service_ns as f64) * 1e9
        }
    }

    /// Keeps a server busy until `until_ns`; answers in the last second.
    struct Client {
        limit: Limit,
        now_ns: u64,
        free: BinaryHeap<Reverse<u64>>,
        under_way: BinaryHeap<Reverse<(u64, u64)>>,
        random: u64,
    }

    impl Client {
        fn new(limit: Limit) -> Self {
            Client { limit, now_ns: 0, free: BinaryHeap::new(), under_way: BinaryHeap::new(), random: 1 }
        }

        fn run(&mut self, server: Server, until_ns: u64, trouble: bool) -> usize {
            self.free = (0..server.places).map(|_| Reverse(self.now_ns)).collect();
            let mut answers = 0;
            while self.now_ns < until_ns {
                while self.under_way.len() < self.limit.allowed() {
                    let Reverse(free) = self.free.pop().expect("as many as places");
                    self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let least = server.service_ns * (100 - server.spread) / 100;
                    let service = least + (self.random >> 33) % (server.service_ns * 2 * server.spread / 100);
                    let done = free.max(self.now_ns) + service;
                    self.free.push(Reverse(done));
                    self.under_way.push(Reverse((done + server.network_ns, self.now_ns)));
                }
                let Reverse((done, begun)) = self.under_way.pop().expect("at least one is under way");
                self.now_ns = done;
                self.limit.ended(done, done - begun, trouble, true);
                answers += usize::from(done >= until_ns.saturating_sub(SECOND) && done < until_ns);
            }
            answers
        }
    }

    #[test]
    fn nine_tenths_of_the_best_within_ten_seconds() {
        for (places, service_ms, network_ms) in
            [(2_000, 5, 0), (2_000, 20, 0), (2_000, 200, 0), (10, 10, 0), (50, 20, 5), (300, 50, 1), (4, 100, 100), (1, 5, 0)]
        {
            let server = Server { places, service_ns: service_ms * MS, network_ns: network_ms * MS, spread: 25 };
            let mut client = Client::new(Limit::adaptive());
            let answers = client.run(server, 10 * SECOND, false) as f64;
            let (limit, best) = (client.limit.allowed(), server.best());
            assert!(answers >= 0.9 * best, "{places} places, {service_ms} ms, {network_ms} ms: {answers} of {best}, limit {limit}");
        }
    }

    /// A server that works on fewer calls than before, also where the time for one differs much.
    #[test]
    fn backs_off_when_the_server_slows_and_comes_back() {
        for (service_ms, spread) in [(10, 25), (10, 95), (100, 95)] {
            let fast = Server { places: 400, service_ns: service_ms * MS, network_ns: 0, spread };
            let slow = Server { places: 40, ..fast };
            let mut client = Client::new(Limit::adaptive());
            client.run(fast, 10 * SECOND, false);
            let before = client.limit.allowed();
            assert!(before >= 300, "{before}");
            client.run(slow, 20 * SECOND, false);
            let after = client.limit.allowed();
            // What was usual before may have held some waiting, too.
            assert!(after <= 4 * slow.places, "{before} before, {after} after, {service_ms} ms, {spread} %");
            let answers = client.run(slow, 30 * SECOND, false) as f64;
            assert!(answers >= 0.9 * slow.best(), "{answers} of {}", slow.best());
            let answers = client.run(fast, 50 * SECOND, false) as f64;
            assert!(answers >= 0.9 * fast.best(), "{answers} of {}", fast.best());
        }
    }

    #[test]
    fn a_server_slower_for_each_call_is_not_starved() {
        for (times, spread) in [(10, 25), (10, 95), (100, 25)] {
            let fast = Server { places: 2_000, service_ns: 10 * MS, network_ns: 0, spread };
            let slow = Server { service_ns: times * fast.service_ns, ..fast };
            let mut client = Client::new(Limit::adaptive());
            client.run(fast, 5 * SECOND, false);
            let answers = client.run(slow, 25 * SECOND, false) as f64;
            // It may be trying a fifth less just then.
            assert!(answers >= 0.75 * slow.best(), "{answers} of {}, limit {}", slow.best(), client.limit.allowed());
        }
    }

    /// All calls wait for once, and then go on as before.
    #[test]
    fn a_hitch_is_made_up_for() {
        let server = Server { places: 2_000, service_ns: 10 * MS, network_ns: 0, spread: 25 };
        let mut client = Client::new(Limit::adaptive());
        client.run(server, 5 * SECOND, false);
        client.run(Server { service_ns: 200 * MS, ..server }, 5 * SECOND + 10 * MS, false);
        let answers = client.run(server, 9 * SECOND, false) as f64;
        assert!(answers >= 0.9 * server.best(), "{answers} of {}, limit {}", server.best(), client.limit.allowed());
    }

    #[test]
    fn failures_bring_it_down() {
        let server = Server { places: 2_000, service_ns: 10 * MS, network_ns: 0, spread: 25 };
        let mut client = Client::new(Limit::adaptive());
        client.run(server, 2 * SECOND, false);
        let before = client.limit.allowed();
        client.run(server, 4 * SECOND, true);
        assert!(client.limit.allowed() <= before / 10, "{before}, then {}", client.limit.allowed());
    }

    /// Whatever the first calls said, those after them say what is usual.
    #[test]
    fn failures_at_the_beginning_are_got_over() {
        let server = Server { places: 2_000, service_ns: 100 * MS, network_ns: 0, spread: 25 };
        let mut client = Client::new(Limit::adaptive());
        client.run(server, SECOND, true);
        let answers = client.run(server, 20 * SECOND, false) as f64;
        assert!(answers >= 0.9 * server.best(), "{answers} of {}, limit {}", server.best(), client.limit.allowed());
    }

    /// Bursts of as much as is asked for in 50 ms, once a second.
    #[test]
    fn pauses_are_no_part_of_a_rate() {
        let mut limit = Limit::adaptive();
        for burst in 1..=60 {
            let (mut now_ns, mut left) = (burst * SECOND, 500_usize);
            while left > 0 {
                let together = left.min(limit.allowed());
                left -= together;
                now_ns += 10 * MS;
                (0..together).for_each(|n| limit.ended(now_ns + n as u64, 10 * MS, false, left > 0));
            }
        }
        assert!(limit.allowed() >= 64, "{}", limit.allowed());
    }

    #[test]
    fn too_little_to_ask_says_nothing() {
        let mut limit = Limit::adaptive();
        (0..10_000).for_each(|n| limit.ended(n * MS, MS, false, false));
        assert_eq!(limit.allowed(), LIMIT_START);
        let mut limit = Limit::fixed(3);
        (0..10_000).for_each(|n| limit.ended(n * MS, MS, true, true));
        assert_eq!(limit.allowed(), 3);
    }
}
