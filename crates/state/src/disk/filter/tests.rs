//! Tests of `filter`.

use super::*;
use crate::hash::mix;

#[test]
fn what_was_entered_is_there_and_little_else() {
    // As a shard of four sees hashes: only one quarter of their range.
    let mut hashes: Vec<u64> = (0..20_000u64).map(|n| mix(n) >> 2 | 1 << 62).collect();
    hashes.sort_unstable();
    let others = || (0..20_000u64).map(|n| mix(n + (1 << 40)) >> 2 | 1 << 62);
    let store = StoreFilter::new(20_000);
    store.insert(&hashes);
    let probe = |hashes: &[u64]| {
        let mut rows = Vec::new();
        store.probe(hashes, &mut rows);
        rows.len()
    };
    assert_eq!(probe(&hashes), hashes.len());
    let wrong = probe(&others().collect::<Vec<_>>());
    assert!(wrong < 800, "{wrong} of 20,000");
    assert!(store.distinct().abs_diff(20_000) < 600);
    assert!(store.is_full() && store.next_capacity() >= 40_000 && !StoreFilter::new(20_000).is_full());
    // One that is made for three times as many is folded and is as good.
    for expected in [20_000, 60_000] {
        let mut run = RunFilter::new(expected, hashes[0], hashes[hashes.len() - 1]);
        hashes.iter().for_each(|h| run.insert(*h));
        run.fit(hashes.len());
        let (words, numbers) = run.parts();
        let run = RunFilter::from_parts(words.to_vec(), numbers);
        assert!(run.memory() < 50_000, "{} bytes", run.memory());
        assert!(hashes.iter().all(|h| run.has(*h)));
        let wrong = others().filter(|h| (hashes[0]..=hashes[hashes.len() - 1]).contains(h) && run.has(*h)).count();
        assert!(wrong < 800, "{wrong} of 20,000");
    }
}

#[test]
fn narrow_and_wide_spans() {
    for (first, last) in [(5, 5), (0, u64::MAX), (u64::MAX, u64::MAX), (1 << 63, (1 << 63) + 9)] {
        let mut filter = RunFilter::new(3, first, last);
        let hashes = [first, first + (last - first) / 2, last];
        hashes.iter().for_each(|h| filter.insert(*h));
        assert!(hashes.iter().all(|h| filter.has(*h)), "{first}..={last}");
    }
}
