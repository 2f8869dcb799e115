//! Tests of [`KeyTable`].

use std::collections::HashMap;

use super::*;
use arrow::array::{Date32Array, Float64Array, TimestampMillisecondArray};

#[track_caller]
fn check(columns: Vec<ArrayRef>, expect: &[u32], fresh: &[u32]) {
    let mut table = KeyTable::new(columns.iter().map(|c| c.data_type().clone()).collect()).unwrap();
    let rows = expect.len();
    let mut out = Slots::default();
    table.intern(&columns, rows, &mut out).unwrap();
    assert_eq!((out.slots.as_slice(), out.fresh.as_slice()), (expect, fresh));
    // The keys come back as they went in, and are found again.
    let keys = table.keys(&out.slots).unwrap();
    assert_eq!(keys, columns);
    let before = out.slots.clone();
    table.intern(&keys, rows, &mut out).unwrap();
    assert_eq!((out.slots, out.fresh.len()), (before, 0));
    // A removed key's slot is given again.
    if let Some(&slot) = expect.first().filter(|_| !columns.is_empty()) {
        let size = table.len();
        table.remove(slot);
        assert_eq!(table.len(), size - 1);
        let first: Vec<ArrayRef> = columns.iter().map(|c| c.slice(0, 1)).collect();
        let mut again = Slots::default();
        table.intern(&first, 1, &mut again).unwrap();
        assert_eq!((again.slots.as_slice(), again.fresh.as_slice(), table.len()), (&[slot][..], &[0][..], size));
    }
}

#[test]
fn keys_that_come_and_go_leave_no_bytes() {
    let mut table = KeyTable::new(vec![DataType::Utf8]).unwrap();
    let mut slots = Slots::default();
    let key = |n: usize| format!("a key of some length, number {n}");
    let column = |n: usize| -> ArrayRef { Arc::new(StringArray::from(vec![key(n)])) };
    table.intern(&[column(0)], 1, &mut slots).unwrap();
    let kept = slots.slots[0];
    for n in 1..100_000 {
        table.intern(&[column(n)], 1, &mut slots).unwrap();
        if n > 10 {
            table.intern(&[column(n - 10)], 1, &mut slots).unwrap();
            assert!(slots.fresh.is_empty(), "key {} is still known", n - 10);
            table.remove(slots.slots[0]);
        }
    }
    assert!(table.memory() < 1 << 20, "{} bytes for {} keys", table.memory(), table.len());
    let keys = table.keys(&[kept]).unwrap();
    assert_eq!(keys[0].as_string::<i32>().value(0), key(0));
}

#[test]
fn every_kind_of_key() {
    check(vec![Arc::new(Int64Array::from(vec![Some(5), Some(7), Some(5), None, Some(0), None]))], &[0, 1, 0, 2, 3, 2], &[0, 1, 3, 4]);
    check(vec![Arc::new(StringArray::from(vec![Some("a"), Some(""), None, Some("a")]))], &[0, 1, 2, 0], &[0, 1, 2]);
    check(vec![Arc::new(Date32Array::from(vec![1, 2, 1]))], &[0, 1, 0], &[0, 1]);
    check(vec![Arc::new(TimestampMillisecondArray::from(vec![1, 2, 1]))], &[0, 1, 0], &[0, 1]);
    check(
        vec![Arc::new(StringArray::from(vec![Some("a"), Some("a"), None, Some("a")])), Arc::new(Int64Array::from(vec![1, 2, 1, 1]))],
        &[0, 1, 2, 0],
        &[0, 1, 2],
    );
    check(
        vec![
            Arc::new(Date32Array::from(vec![Some(1), None, Some(1), Some(1)])),
            Arc::new(StringArray::from(vec![Some(""), Some(""), None, Some("")])),
            Arc::new(StringArray::from(vec![Some("é"), Some("é"), Some("é"), Some("é")])),
        ],
        &[0, 1, 2, 0],
        &[0, 1, 2],
    );
    check(vec![Arc::new(Int64Array::from(vec![1, 1, 2])), Arc::new(Float64Array::from(vec![0.5, 0.25, 0.5]))], &[0, 1, 2], &[0, 1, 2]);
    check(
        vec![
            Arc::new(Int64Array::from(vec![Some(1), Some(1), None, None, Some(0), Some(1), Some(0), None])),
            Arc::new(Date32Array::from(vec![Some(2), None, Some(2), None, Some(0), Some(2), None, Some(2)])),
        ],
        &[0, 1, 2, 3, 4, 0, 5, 2],
        &[0, 1, 2, 3, 4, 6],
    );
    check(vec![], &[0, 0, 0], &[0]);
}

/// Random keys of every form against a map: in so many that slots are guessed ahead, new ones among known ones, runs of one key,
/// NULLs, and slots given again to other keys.
#[test]
fn slots_of_many_keys_are_those_of_a_map() {
    let ints = |keys: &[u64]| -> ArrayRef { Arc::new(keys.iter().map(|k| (*k > 0).then_some(*k as i64)).collect::<Int64Array>()) };
    let small =
        |keys: &[u64]| -> ArrayRef { Arc::new(keys.iter().map(|k| (k % 7 > 0).then_some((k % 7) as i32)).collect::<Date32Array>()) };
    let texts = |keys: &[u64]| -> ArrayRef {
        Arc::new(keys.iter().map(|k| (*k > 0).then(|| format!("{k:0width$}", width = (k % 40) as usize))).collect::<StringArray>())
    };
    let floats = |keys: &[u64]| -> ArrayRef { Arc::new(keys.iter().map(|k| *k as f64).collect::<Float64Array>()) };
    type Column<'a> = &'a dyn Fn(&[u64]) -> ArrayRef;
    let forms: [&[Column]; 5] = [&[&ints], &[&ints, &small], &[&texts], &[&texts, &ints], &[&floats, &texts]];
    for form in forms {
        let columns = |keys: &[u64]| form.iter().map(|column| column(keys)).collect::<Vec<_>>();
        let mut table = KeyTable::new(columns(&[]).iter().map(|c| c.data_type().clone()).collect()).unwrap();
        let mut known: HashMap<u64, u32> = HashMap::new();
        let mut out = Slots::default();
        let mut random = 1;
        let mut draw = |below: u64| {
            random = hash::mix(random + 1);
            random % below
        };
        for block in 0..120u64 {
            let mut keys: Vec<u64> = (0..1_000).map(|_| draw(400 * (block + 1))).collect();
            if block % 3 == 0 {
                keys.sort_unstable();
            }
            table.intern(&columns(&keys), keys.len(), &mut out).unwrap();
            let mut fresh = Vec::new();
            for (row, key) in keys.iter().enumerate() {
                let slot = *known.entry(*key).or_insert_with(|| {
                    fresh.push(row as u32);
                    out.slots[row]
                });
                assert_eq!(out.slots[row], slot, "row {row} of block {block}");
            }
            assert_eq!((&out.fresh, table.len()), (&fresh, known.len()));
            for key in keys.iter().filter(|key| *key % 10 == 1) {
                known.remove(key).into_iter().for_each(|slot| table.remove(slot));
            }
        }
        assert!(table.len() > 2 * crate::slot_index::AHEAD_KEYS);
        let mut slots: Vec<u32> = known.values().copied().collect();
        slots.sort_unstable();
        slots.dedup();
        assert_eq!(slots.len(), known.len(), "no two keys have one slot");
    }
}
