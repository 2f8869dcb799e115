//! Sets of hashes that are a few ranges, as shards are.

use super::place::Mine;
use crate::hash::mix;

/// Hashes from the first to the second of each pair, ends included; ascending, apart from one another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ranges(Vec<(u64, u64)>);

/// At how many places a set is looked at.
const SAMPLES: u64 = 1 << 18;
/// A set of more ranges is not one of ranges.
const RANGES_MAX: usize = 1 << 10;

impl Ranges {
    /// Every hash.
    pub fn all() -> Self {
        Ranges(vec![(0, u64::MAX)])
    }

    /// Of any pairs.
    pub fn new(mut pairs: Vec<(u64, u64)>) -> Self {
        pairs.sort_unstable();
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (from, to) in pairs.into_iter().filter(|(from, to)| from <= to) {
            match ranges.last_mut() {
                Some(last) if from <= last.1.saturating_add(1) => last.1 = last.1.max(to),
                _ => ranges.push((from, to)),
            }
        }
        Ranges(ranges)
    }

    /// The pairs.
    pub fn pairs(&self) -> &[(u64, u64)] {
        &self.0
    }

    /// The ranges that make up `mine`, found by looking at 2^18 hashes, and where it changes between two of
    /// them: ranges of 2^47 hashes are found for certain, which is less than what any two of 360 shards can have in
    /// common. `None` if it is not a set of ranges.
    pub fn of(mine: &Mine) -> Option<Self> {
        let step = u64::MAX / SAMPLES + 1;
        let mut pairs = Vec::new();
        let mut open = mine(0).then_some(0);
        let mut before = 0;
        for sample in (0..SAMPLES).map(|n| (n * step) | (mix(n) % step)).chain([u64::MAX]) {
            if sample > before && mine(sample) != open.is_some() {
                // Between the two there is a first hash that is on the other side.
                let (mut low, mut high) = (before, sample);
                while high - low > 1 {
                    let middle = low + (high - low) / 2;
                    if mine(middle) == open.is_some() { low = middle } else { high = middle }
                }
                match open.take() {
                    Some(from) => pairs.push((from, low)),
                    None => open = Some(high),
                }
                if pairs.len() > RANGES_MAX {
                    return None;
                }
            }
            before = sample;
        }
        pairs.extend(open.map(|from| (from, u64::MAX)));
        Some(Ranges::new(pairs))
    }

    /// Whether a hash is in it.
    #[inline]
    pub fn contains(&self, hash: u64) -> bool {
        match self.0.as_slice() {
            [(from, to)] => *from <= hash && hash <= *to,
            many => {
                let at = many.partition_point(|(_, to)| *to < hash);
                many.get(at).is_some_and(|(from, _)| *from <= hash)
            }
        }
    }

    /// Whether every hash from `first` to `last` is in it.
    pub fn covers(&self, first: u64, last: u64) -> bool {
        self.0.iter().any(|(from, to)| *from <= first && last <= *to)
    }

    /// How much of the hashes from `first` to `last` is in it, 0 to 1.
    pub fn part_of(&self, first: u64, last: u64) -> f64 {
        let within = self.and(&Ranges::new(vec![(first, last)]));
        let all = (last - first) as f64 + 1.0;
        within.0.iter().map(|(from, to)| ((to - from) as f64 + 1.0) / all).sum()
    }

    /// What is in both.
    pub fn and(&self, other: &Ranges) -> Ranges {
        let both = |(a, b): &(u64, u64)| other.0.iter().map(move |(c, d)| ((*a).max(*c), (*b).min(*d))).collect::<Vec<_>>();
        Ranges::new(self.0.iter().flat_map(both).collect())
    }

    /// What is in one of them.
    pub fn or(&self, other: &Ranges) -> Ranges {
        Ranges::new(self.0.iter().chain(&other.0).copied().collect())
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::shard;

    #[test]
    fn shards_are_ranges() {
        for shards in [1, 2, 3, 7, 48, 1000] {
            let all: Vec<Ranges> = (0..shards).map(|s| Ranges::of(&move |h| shard(h, shards) == s).unwrap()).collect();
            let mut next = Some(0);
            for (s, ranges) in all.iter().enumerate() {
                let [(from, to)] = ranges.pairs() else { panic!("{ranges:?}") };
                assert_eq!(Some(*from), next);
                assert!([*from, *to].iter().all(|h| shard(*h, shards) == s && ranges.contains(*h)));
                next = to.checked_add(1);
            }
            assert_eq!(next, None, "the last shard ends at the end");
        }
        assert_eq!(Ranges::of(&|h| h % 2 == 0), None);
        assert!(Ranges::of(&|_| false).unwrap().is_empty());
    }

    #[test]
    fn sets() {
        let r = |pairs: &[(u64, u64)]| Ranges::new(pairs.to_vec());
        assert_eq!(r(&[(5, 9), (0, 3), (4, 4), (20, 10)]), r(&[(0, 9)]));
        assert_eq!(r(&[(0, 9), (20, 30)]).and(&r(&[(5, 25)])), r(&[(5, 9), (20, 25)]));
        assert_eq!(r(&[(0, 3)]).or(&r(&[(7, 8)])), r(&[(0, 3), (7, 8)]));
        let some = r(&[(1, 3), (7, 8), (u64::MAX, u64::MAX)]);
        assert_eq!([0, 1, 3, 4, 7, 9, u64::MAX].map(|h| some.contains(h)), [false, true, true, false, true, false, true]);
        assert!(some.covers(2, 3) && !some.covers(3, 7));
        assert_eq!([some.part_of(1, 3), some.part_of(3, 6), some.part_of(4, 6)], [1.0, 0.25, 0.0]);
        assert_eq!(Ranges::all().and(&some), some);
    }
}
