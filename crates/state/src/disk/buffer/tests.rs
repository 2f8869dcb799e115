//! Tests of `buffer`.

use super::*;
use crate::hash::mix;
use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::DataType;
use std::path::PathBuf;
use std::sync::Arc;

#[test]
fn rows_are_sorted_and_the_newest_counts() {
    let place = Place::new(PathBuf::new(), "t".into(), &[DataType::Int64, DataType::Int64], 1).unwrap();
    let cases: [(u64, u64, fn(u64) -> u64); 4] = [(10, 5, mix), (5000, 3000, mix), (4000, 4000, |k| k % 16), (3000, 3000, |_| 7)];
    for (rows, keys, hash) in cases {
        let ks: Vec<u64> = (0..rows).map(|n| mix(n) % keys).collect();
        let hashes: Vec<u64> = ks.iter().map(|k| hash(*k)).collect();
        let column = |values: &mut dyn Iterator<Item = i64>| Arc::new(values.collect::<Int64Array>()) as ArrayRef;
        let columns = [column(&mut ks.iter().map(|k| *k as i64)), column(&mut (0..rows as i64))];
        let prepared = place.codec.prepare(&columns, rows as usize, false).unwrap();
        let mut buffer = Buffer::default();
        (0..rows as usize).step_by(7).for_each(|r| buffer.append(&place, &hashes, &prepared, r..(r + 7).min(rows as usize), false));
        let sorted = buffer.sorted();
        assert!(sorted.is_sorted_by_key(|r| hashes[*r as usize]));
        let mut newest: Vec<u32> = (0..rows as u32).filter(|r| !ks[*r as usize + 1..].contains(&ks[*r as usize])).collect();
        newest.sort_by_key(|r| (hashes[*r as usize], *r));
        assert_eq!(sorted, newest);
        for row in newest {
            assert!(buffer.find(hashes[row as usize]).any(|(bytes, deleted)| bytes == buffer.row(row).0 && !deleted));
        }
        assert!(!buffer.has(12345));
    }
}
