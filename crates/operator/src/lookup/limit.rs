//! How many calls are under way at once: a fixed number, or as many as make it faster.
//!
//! The adaptive limit follows the idea of TCP's congestion control (slow start, then additive increase
//! and multiplicative decrease) on measured latency instead of loss, as Vector's adaptive request
//! concurrency and Netflix's concurrency limits do. By Little's law a full limit of N calls that take R
//! each gives N / R answers a second, so latency alone says whether a larger limit pays:
//!
//! - *Doubling*: the limit doubles, once a window, while each doubling gives at least a tenth more answers a
//!   second. From 8 to 1,024 that takes seven windows of one to two round trips.
//! - *Settled*: it stays, and from time to time tries a quarter more or a fifth less for one window: more is
//!   kept, and doubled on, if it gives more answers; less is kept if it gives as many.
//! - *Backing off*: where calls fail or take half as long again as they did when the limit settled, it falls
//!   by a fifth a window. What counts as usual follows slowly, so that a server that has become slow for good
//!   is not starved.
//!
//! Windows in which there was not enough to ask do not count: they say nothing about a larger limit.

/// Where the search begins.
const LIMIT_START: usize = 8;
/// The most calls of a shard when the limit is left to us. Sockets, tasks and waiting rows cost memory at
/// both ends; whoever wants more says so.
pub(super) const LIMIT_MAX: usize = 1024;
/// The least length of a window: shorter ones measure the scheduler.
const WINDOW_NS: u64 = 20_000_000;
/// Windows between two trials, and after a failed one or a back-off.
const CALM_WINDOWS: u32 = 4;
const SOBER_WINDOWS: u32 = 16;
/// A difference of latency that is never taken for a slow server.
const NOISE_NS: f64 = 500_000.0;

/// Calls that may be under way at once.
pub(super) struct Limit {
    limit: usize,
    search: Option<Search>,
}

enum Phase {
    Doubling,
    /// So many windows are left until the next trial.
    Settled(u32),
    /// A trial, upwards or downwards, from this limit.
    Trial {
        from: usize,
        up: bool,
    },
}

struct Search {
    phase: Phase,
    /// Answers a nanosecond when the limit was last judged.
    rate: f64,
    /// Latency that is usual at the settled limit, ns.
    usual_ns: f64,
    /// The next trial goes up.
    up: bool,
    /// When the limit last changed: calls that began before say nothing about it.
    changed_ns: u64,
    // The window so far.
    begun_ns: Option<u64>,
    answers: usize,
    sum_ns: f64,
    unused: usize,
    troubles: usize,
}

impl Limit {
    /// Always so many.
    pub fn fixed(limit: usize) -> Self {
        Limit { limit: limit.max(1), search: None }
    }

    /// As many as pay, [`LIMIT_MAX`] at most.
    pub fn adaptive() -> Self {
        let search = Search {
            phase: Phase::Doubling,
            rate: 0.0,
            usual_ns: 0.0,
            up: true,
            changed_ns: 0,
            begun_ns: None,
            answers: 0,
            sum_ns: 0.0,
            unused: 0,
            troubles: 0,
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
        if now_ns.saturating_sub(took_ns) < search.changed_ns {
            return;
        }
        let begun = *search.begun_ns.get_or_insert(now_ns);
        search.answers += 1;
        search.unused += usize::from(!used);
        if trouble {
            search.troubles += 1;
        } else {
            search.sum_ns += took_ns as f64;
        }
        // At a small limit a few answers say little, and many would take long.
        let enough = if self.limit < 16 { (self.limit * 2).max(4) } else { (self.limit / 2).max(32) };
        if search.answers >= enough && now_ns - begun >= WINDOW_NS {
            self.limit = search.judge(self.limit);
            search.changed_ns = now_ns;
            search.begun_ns = None;
            (search.answers, search.sum_ns, search.unused, search.troubles) = (0, 0.0, 0, 0);
        }
    }
}

impl Search {
    /// The limit after a window at `limit`.
    fn judge(&mut self, limit: usize) -> usize {
        if self.troubles * 20 > self.answers {
            self.phase = Phase::Settled(SOBER_WINDOWS);
            return (limit * 7 / 10).max(1);
        }
        // A fifth of the answers may find nothing more to ask: there are always some between two blocks.
        if self.unused * 5 > self.answers {
            return limit;
        }
        let mean = self.sum_ns / (self.answers - self.troubles).max(1) as f64;
        let rate = limit as f64 / mean.max(1.0);
        match self.phase {
            Phase::Doubling if rate >= self.rate * 1.1 => {
                (self.rate, self.usual_ns) = (rate, mean);
                if limit >= LIMIT_MAX {
                    self.phase = Phase::Settled(SOBER_WINDOWS);
                }
                (limit * 2).min(LIMIT_MAX)
            }
            Phase::Doubling => {
                self.phase = Phase::Settled(CALM_WINDOWS);
                if rate > self.rate * 1.02 {
                    (self.rate, self.usual_ns) = (rate, mean);
                    return limit;
                }
                (limit / 2).max(1)
            }
            Phase::Settled(left) => {
                if mean > self.usual_ns * 1.5 + NOISE_NS {
                    self.usual_ns += (mean - self.usual_ns) * 0.15;
                    self.phase = Phase::Settled(SOBER_WINDOWS);
                    return (limit * 4 / 5).max(1);
                }
                self.usual_ns += (mean - self.usual_ns) * 0.15;
                self.rate = rate;
                if left > 0 {
                    self.phase = Phase::Settled(left - 1);
                    return limit;
                }
                let up = self.up && limit < LIMIT_MAX;
                self.up = !self.up;
                self.phase = Phase::Trial { from: limit, up };
                if up { (limit + (limit / 4).max(1)).min(LIMIT_MAX) } else { (limit * 4 / 5).max(1) }
            }
            Phase::Trial { from, up: true } => {
                // A quarter more calls give a quarter more answers at best.
                if rate >= self.rate * 1.06 {
                    (self.rate, self.usual_ns, self.phase) = (rate, mean, Phase::Doubling);
                    return (limit * 2).min(LIMIT_MAX);
                }
                self.phase = Phase::Settled(SOBER_WINDOWS);
                from
            }
            Phase::Trial { from, up: false } => {
                self.phase = Phase::Settled(CALM_WINDOWS);
                if rate >= self.rate * 0.98 { limit } else { from }
            }
        }
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
                    // Between 0.75 and 1.25 of the usual.
                    let service = server.service_ns * 3 / 4 + (self.random >> 33) % (server.service_ns / 2);
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
            let server = Server { places, service_ns: service_ms * MS, network_ns: network_ms * MS };
            let mut client = Client::new(Limit::adaptive());
            let answers = client.run(server, 10 * SECOND, false) as f64;
            let (limit, best) = (client.limit.allowed(), server.best());
            assert!(answers >= 0.9 * best, "{places} places, {service_ms} ms, {network_ms} ms: {answers} of {best}, limit {limit}");
        }
    }

    #[test]
    fn backs_off_when_the_server_slows_and_comes_back() {
        let fast = Server { places: 400, service_ns: 10 * MS, network_ns: 0 };
        let slow = Server { places: 40, ..fast };
        let mut client = Client::new(Limit::adaptive());
        client.run(fast, 5 * SECOND, false);
        let before = client.limit.allowed();
        assert!(before >= 350, "{before}");
        client.run(slow, 9 * SECOND, false);
        let after = client.limit.allowed();
        assert!(after <= before / 2, "{before} before, {after} after");
        let answers = client.run(slow, 15 * SECOND, false) as f64;
        assert!(answers >= 0.9 * slow.best(), "{answers} of {}", slow.best());
        let answers = client.run(fast, 30 * SECOND, false) as f64;
        assert!(answers >= 0.9 * fast.best(), "{answers} of {}", fast.best());
    }

    #[test]
    fn failures_bring_it_down() {
        let server = Server { places: 2_000, service_ns: 10 * MS, network_ns: 0 };
        let mut client = Client::new(Limit::adaptive());
        client.run(server, 2 * SECOND, false);
        let before = client.limit.allowed();
        client.run(server, 4 * SECOND, true);
        assert!(client.limit.allowed() <= before / 10, "{before}, then {}", client.limit.allowed());
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
