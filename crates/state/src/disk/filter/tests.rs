//! Tests of `filter`.

use super::*;
use crate::hash::mix;

#[test]
fn what_was_entered_is_there_and_little_else() {
    // As a shard of four sees hashes: only one quarter of their range.
    let mut hashes: Vec<u64> = (0..20_000u64).map(|n| mix(n) >> 2 | 1 << 62).collect();
    hashes.sort_unstable();
    let others = || (0..20_000u64).map(|n| mix(n + (1 << 40)) >> 2 | 1 << 62);
    let store = StoreFilter::new(20_000, 1 << 62, (1 << 63) - 1);
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
fn parts_grow_and_shrink_within_their_limit() {
    let hashes: Vec<u64> = (0..300_000u64).map(mix).collect();
    let mut store = StoreFilter::new(100_000, 0, u64::MAX);
    assert!(!store.is_full() && store.growth(|_| 1 << 20, usize::MAX).is_none());
    store.insert(&hashes);
    assert!(store.is_full() && store.is_crowded());
    // No more memory: nothing to be done, unless most of the rows are gone.
    assert!(store.growth(|_| 1 << 20, store.memory()).is_none());
    let small = store.growth(|_| 40, store.memory()).unwrap();
    assert!(small.memory() < store.memory() / 3 && small.which() == [0..=PARTS - 1]);
    while let Some(more) = store.growth(|_| 1 << 20, 600_000) {
        let parts = more.which().into_iter().flatten().count() as u64;
        // What is of other parts is passed over.
        more.insert(&hashes);
        more.deleted(hashes.iter().copied().take(30_000));
        assert!(parts > 0 && more.distinct() <= 12_000 * parts);
        store = store.with(&more);
    }
    assert!(store.memory() <= 600_000 && store.memory() > 300_000, "{}", store.memory());
    assert!(!store.is_crowded() && store.live().abs_diff(270_000) < 15_000, "{}", store.live());
    let mut rows = Vec::new();
    store.probe(&hashes, &mut rows);
    assert_eq!(rows.len(), hashes.len());
    rows.clear();
    store.probe(&(0..300_000u64).map(|n| mix(n + (1 << 40))).collect::<Vec<_>>(), &mut rows);
    assert!(rows.len() < 12_000, "{}", rows.len());
}

#[test]
fn filters_of_runs_become_lighter_and_forget_nothing() {
    let mut hashes: Vec<u64> = (0..20_000u64).map(mix).collect();
    hashes.sort_unstable();
    let (first, last) = (hashes[0], hashes[hashes.len() - 1]);
    let mut filter = RunFilter::new(hashes.len(), first, last);
    hashes.iter().for_each(|h| filter.insert(*h));
    let bytes: Vec<u8> = filter.parts().0.iter().flat_map(|word| word.to_le_bytes()).collect();
    let path = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(path.path(), [&[7; 24], bytes.as_slice()].concat()).unwrap();
    let file = File::open(path.path()).unwrap();
    let whole = OpenFilter::new(filter, 24);
    let half = whole.lighter().unwrap();
    let none = half.lighter().unwrap();
    assert!(half.memory() <= whole.memory() / 2 + 8 && none.memory() == 0 && none.lighter().is_none());
    for (filter, one_in) in [(&whole, 40), (&half, 8), (&none, 40)] {
        assert!(hashes.iter().all(|h| filter.has(*h, &file)));
        let others = (0..20_000u64).map(|n| mix(n + (1 << 40))).filter(|h| (first..=last).contains(h));
        let wrong = others.filter(|h| filter.has(*h, &file)).count();
        assert!(wrong < 20_000 / one_in, "{wrong} of 20,000");
    }
    let empty = File::open("/dev/null").unwrap();
    assert!(none.has(hashes[0], &empty), "what cannot be read may be there");
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
