//! Tests of `counter`.

use super::*;

#[test]
fn stripes_divide_the_rows() {
    for (of, chunk) in [(1, 1024), (2, 4), (3, 1), (5, 7)] {
        let total = 100;
        let mut seen = vec![0; total as usize];
        for index in 0..of {
            let stripe = Stripe { index, of, chunk };
            let count = stripe.owned_below(total);
            let rows: Vec<u64> = Span { stripe, rank: 0, rows: count as usize }.each().collect();
            assert!(rows.is_sorted(), "{stripe:?}: {rows:?}");
            for (rank, row) in rows.iter().enumerate() {
                assert_eq!((stripe.row(rank as u64), stripe.owned_below(*row)), (*row, rank as u64), "{stripe:?}");
                assert_eq!(row / chunk % of, index);
                seen[*row as usize] += 1;
            }
        }
        assert_eq!(seen, vec![1; total as usize], "{of} stripes of {chunk} rows");
    }
}

#[test]
fn numbers_are_spread_evenly() {
    let stream = Stream::new(42, 0, 0);
    let mut counts = [0u32; 10];
    let mut sum = 0.0;
    for i in 0..100_000 {
        counts[below(stream.at(i), 10) as usize] += 1;
        sum += unit(stream.at(i));
    }
    assert!(counts.iter().all(|c| (9_500..10_500).contains(c)), "{counts:?}");
    assert!((sum / 100_000.0 - 0.5).abs() < 0.01, "mean {}", sum / 100_000.0);
    assert_ne!(stream.at(7), Stream::new(43, 0, 0).at(7));
    assert_ne!(stream.at(7), Stream::new(42, 1, 0).at(7));
    assert_ne!(stream.at(7), Stream::new(42, 0, 1).at(7));
}

#[test]
fn nulls_by_rate() {
    let span = Span { stripe: Stripe { index: 0, of: 1, chunk: 1024 }, rank: 5, rows: 10_000 };
    let count = |rate| Nulls::new(Stream::new(1, 2, 3), rate).map_or(0, |n| n.of(span).null_count());
    assert_eq!((count(0.0), count(1.0)), (0, 10_000));
    assert!((2_200..2_800).contains(&count(0.25)), "{}", count(0.25));
}
