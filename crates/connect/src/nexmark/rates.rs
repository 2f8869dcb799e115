//! When events happen: one rate, or two that take turns.

/// Events a second, in event time.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    first: u64,
    next: u64,
    /// Half of the period in which they take turns, seconds.
    half_s: u64,
}

const NS: u64 = 1_000_000_000;

/// `count` × `per_second` / `rate`, rounded down.
#[inline]
fn scale(count: u64, per_second: u64, rate: u64) -> u64 {
    match count.checked_mul(per_second) {
        Some(product) => product / rate,
        None => u64::try_from(count as u128 * per_second as u128 / rate as u128).unwrap_or(u64::MAX),
    }
}

/// How many events at `rate`, the first at 0, lie at or before `ns`, rounded down to ns as by [`scale`].
fn counted(ns: u64, rate: u64) -> u64 {
    let count = ((ns as u128 + 1) * rate as u128 - 1) / NS as u128 + 1;
    u64::try_from(count).unwrap_or(u64::MAX)
}

impl Rates {
    /// `first` events a second for `half_s` seconds, then `next`, and so on; none of them 0.
    pub fn new(first: u64, next: u64, half_s: u64) -> Self {
        assert!(first > 0 && next > 0 && half_s > 0, "{first} and {next} events a second, by turns of {half_s} s");
        Rates { first, next, half_s }
    }

    /// When an event happens, in units of which a second has `per_second`, after the first event.
    #[inline]
    pub fn at(&self, event: u64, per_second: u64) -> u64 {
        if self.first == self.next {
            return scale(event, per_second, self.first);
        }
        let (fore, back) = (self.first * self.half_s, self.next * self.half_s);
        let (period, rest) = (event / (fore + back), event % (fore + back));
        let begin = period.saturating_mul(2 * self.half_s).saturating_mul(per_second);
        begin.saturating_add(match rest.checked_sub(fore) {
            None => scale(rest, per_second, self.first),
            Some(rest) => self.half_s * per_second + scale(rest, per_second, self.next),
        })
    }

    /// How many events lie at or before `ns` after the first event.
    pub fn events_by(&self, ns: u64) -> u64 {
        if self.first == self.next {
            return counted(ns, self.first);
        }
        let (fore, back, half_ns) = (self.first * self.half_s, self.next * self.half_s, self.half_s * NS);
        let (period, rest) = (ns / (2 * half_ns), ns % (2 * half_ns));
        let within = match rest.checked_sub(half_ns) {
            None => counted(rest, self.first).min(fore),
            Some(rest) => fore + counted(rest, self.next).min(back),
        };
        period.saturating_mul(fore + back).saturating_add(within)
    }

    /// Appends the ms after the first event of `count` events from `event` on, each less `before`.
    #[inline]
    pub fn extend_ms(&self, values: &mut Vec<i64>, event: u64, count: usize, base_ms: i64) {
        if self.first != self.next {
            values.extend((0..count).map(|k| base_ms.wrapping_add(self.at(event.wrapping_add(k as u64), 1_000) as i64)));
            return;
        }
        // A division a run instead of one an event: quotient and remainder are carried along.
        let (rate, whole, part) = (self.first, (1_000 / self.first) as i64, 1_000 % self.first);
        let mut ms = base_ms.wrapping_add(self.at(event, 1_000) as i64);
        let mut rest = (event as u128 * 1_000 % rate as u128) as u64;
        values.extend((0..count).map(|_| {
            let now = ms;
            rest += part;
            let carry = rest >= rate;
            ms = ms.wrapping_add(whole + i64::from(carry));
            rest -= if carry { rate } else { 0 };
            now
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rates: Rates, events: &[(u64, u64)]) {
        for (event, ms) in events {
            assert_eq!(rates.at(*event, 1_000), *ms, "event {event}");
        }
        // Both directions agree, and time never runs backwards.
        let mut before = 0;
        for event in 0..2_000 {
            let ns = rates.at(event, NS);
            assert!(ns >= before, "event {event}");
            before = ns;
            assert!(rates.events_by(ns) > event, "event {event} is due at its time");
            if ns > 0 {
                assert!(rates.events_by(ns - 1) <= event, "event {event} is not due before its time");
            }
        }
        // Runs are the same as single events.
        let mut run = Vec::new();
        rates.extend_ms(&mut run, 0, 7, 5);
        rates.extend_ms(&mut run, 7, 1_993, 5);
        assert_eq!(run, (0..2_000).map(|e| 5 + rates.at(e, 1_000) as i64).collect::<Vec<_>>());
    }

    #[test]
    fn one_rate() {
        check(Rates::new(1_000, 1_000, 1), &[(0, 0), (1, 1), (12_345, 12_345)]);
        check(Rates::new(3, 3, 300), &[(1, 333), (2, 666), (3, 1_000), (9, 3_000)]);
        check(Rates::new(7_000, 7_000, 300), &[(6, 0), (7, 1), (7_000_000, 1_000_000)]);
        assert_eq!(Rates::new(1, 1, 1).at(u64::MAX, 1_000), u64::MAX, "no overflow");
    }

    #[test]
    fn two_rates_take_turns() {
        // 2 s of 10 events a second, 2 s of 100 a second: 220 events in 4 s.
        check(
            Rates::new(10, 100, 2),
            &[(0, 0), (19, 1_900), (20, 2_000), (21, 2_010), (219, 3_990), (220, 4_000), (239, 5_900), (240, 6_000)],
        );
    }
}
