//! Tests of `list`.

use super::*;

/// The list against a plain vector, long enough for many chunks, then down to nothing.
#[test]
fn chunks_are_invisible() {
    let (mut list, mut plain): (SortedList, Vec<u64>) = Default::default();
    let mut state = 1u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((state >> 33) as usize) % below
    };
    for step in 0..20_000 {
        let chance = if step < 8_000 { 8 } else { 3 };
        if plain.is_empty() || random(10) < chance {
            let head = random(5_000) as u64;
            let place = list.find(|i| i.head <= head);
            let at = plain.partition_point(|p| *p <= head);
            assert_eq!(list.position(place, usize::MAX), at);
            list.insert(place, Item { head, id: step });
            plain.insert(at, head);
        } else if random(4) == 0 {
            assert_eq!(list.pop().map(|i| i.head), plain.pop());
        } else {
            let head = plain[random(plain.len())];
            let place = list.find(|i| i.head < head);
            assert_eq!(list.at(place).map(|i| i.head), Some(head));
            list.remove(place);
            plain.remove(plain.partition_point(|p| *p < head));
        }
        assert_eq!((list.len(), list.is_empty(), list.last().map(|i| i.head)), (plain.len(), plain.is_empty(), plain.last().copied()));
        if step % 500 == 0 {
            assert!(list.iter().map(|i| i.head).eq(plain.iter().copied()), "after {step} steps");
            let from = random(plain.len() + 2);
            assert!(list.rows_from(from).map(|i| i.head).eq(plain.iter().copied().skip(from)), "from {from} after {step} steps");
            assert_eq!(list.nth(from).map(|i| i.head), plain.get(from).copied());
            assert!(list.more.iter().all(|c| !c.is_empty()) && list.more.len() <= plain.len() / (CHUNK_MAX / 8) + 3);
        }
    }
    while list.pop().is_some() {}
    assert!(list.is_empty() && list.more.is_empty() && list.nth(0).is_none());
}
