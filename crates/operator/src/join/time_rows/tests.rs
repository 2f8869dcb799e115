//! Rows by key and time, and what becomes of their memory.

use super::*;
use arrow::array::Int64Array;
use arrow::datatypes::{DataType, Field, Schema};

fn rows(linked: bool, span_ms: i64) -> TimeRows {
    TimeRows::new(Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, true)])), linked, span_ms)
}

fn put(rows: &mut TimeRows, all: &[(i64, u32, i64)]) -> Vec<u32> {
    let values: ArrayRef = Arc::new(all.iter().map(|(.., v)| *v).collect::<Int64Array>());
    let times: Vec<i64> = all.iter().map(|(t, ..)| *t).collect();
    let slots: Vec<u32> = all.iter().map(|(_, s, _)| *s).collect();
    let mut ids = Vec::new();
    rows.add(&[values], &times, &slots, &mut ids).unwrap();
    ids
}

fn values(rows: &mut TimeRows, ids: &[u32]) -> Vec<Option<i64>> {
    let places = rows.places(ids);
    let column = rows.column(&places, 0).unwrap();
    column.as_primitive::<arrow::datatypes::Int64Type>().iter().collect()
}

#[track_caller]
fn check_range(rows: &mut TimeRows, slot: u32, low: i64, high: i64, expect: &[i64]) {
    let mut ids = Vec::new();
    rows.range(slot, low, high, |id| ids.push(id));
    let mut found: Vec<i64> = values(rows, &ids).into_iter().flatten().collect();
    found.sort_unstable();
    assert_eq!(found, expect, "{low}..={high} of {slot}");
}

#[test]
fn rows_of_a_key_in_order_of_time() {
    let mut rows = rows(true, 10);
    for (time, slot, value) in [(5, 0, 50), (3, 0, 30), (9, 0, 90), (5, 0, 51), (4, 1, 41), (3, 0, 31)] {
        put(&mut rows, &[(time, slot, value)]);
    }
    check_range(&mut rows, 0, 3, 5, &[30, 31, 50, 51]);
    check_range(&mut rows, 0, 6, 20, &[90]);
    check_range(&mut rows, 0, -5, 2, &[]);
    check_range(&mut rows, 1, i64::MIN, i64::MAX, &[41]);
    check_range(&mut rows, 7, i64::MIN, i64::MAX, &[]);
    let at = |rows: &mut TimeRows, time| {
        let id = rows.at(0, time);
        values(rows, &[id])[0]
    };
    let found: Vec<_> = [2, 3, 4, 5, 8, 9, 100].into_iter().map(|t| at(&mut rows, t)).collect();
    assert_eq!(found, [None, Some(31), Some(31), Some(51), Some(51), Some(90), Some(90)]);
}

/// A key with many rows finds them as one with few does, in the same order.
#[test]
fn many_rows_of_a_key() {
    let mut rows = rows(true, 10);
    let (mut few, mut seed) = (Vec::new(), 3u64);
    let mut below = |n: u64| {
        seed = tidemill_state::hash::mix(seed.wrapping_add(1));
        (seed % n) as i64
    };
    for n in 0..600i64 {
        let time = n / 3 - if below(4) == 0 { below(40) } else { 0 };
        put(&mut rows, &[(time, 9, n)]);
        few.push((time, n));
        if n % 5 == 0 && n > 200 {
            // The oldest goes, of several of one time any.
            let oldest = few.iter().map(|(t, _)| *t).min().unwrap();
            let mut id = rows.ends[9].oldest;
            if below(2) == 0 && rows.newer(id) != NONE && rows.time(rows.newer(id)) == oldest {
                id = rows.newer(id);
            }
            let value = values(&mut rows, &[id])[0].unwrap();
            rows.remove(id).unwrap();
            few.retain(|(_, v)| *v != value);
        }
        few.sort_by_key(|(t, _)| *t);
        assert_eq!(rows.ends[9].count as usize, few.len());
        let (low, high) = (below(220) - 10, below(220) - 10);
        let mut ids = Vec::new();
        rows.range(9, low, high, |id| ids.push(id));
        let mut expect: Vec<i64> = few.iter().filter(|(t, _)| (low..=high).contains(t)).map(|(_, v)| *v).collect();
        if few.last().unwrap().0.saturating_sub(high) <= low.saturating_sub(few[0].0) {
            expect.reverse();
        }
        assert_eq!(values(&mut rows, &ids).into_iter().flatten().collect::<Vec<_>>(), expect, "{low}..={high} after {n}");
        let at = rows.at(9, high);
        let last = few.iter().rev().find(|(t, _)| *t <= high).map(|(_, v)| *v);
        assert_eq!(values(&mut rows, &[at])[0], last, "at {high} after {n}");
    }
    assert!(rows.indices.contains_key(&9));
    while rows.ends[9].oldest != NONE {
        let id = rows.ends[9].oldest;
        rows.remove(id).unwrap();
    }
    assert!(rows.indices.is_empty());
}

#[test]
fn watermarks_pass_rows_and_memory_is_given_back() {
    for (span, linked) in [(1, true), (100_000, true), (5_000, false)] {
        let mut rows = rows(linked, span);
        let mut seed = 7u64;
        let mut alive: Vec<(i64, i64)> = Vec::new();
        let mut out = Vec::new();
        for step in 0..400i64 {
            let mut block = Vec::new();
            for n in 0..(step % 23) {
                seed = tidemill_state::hash::mix(seed.wrapping_add(1));
                let time = step * 10 + 1 + (seed % 97) as i64;
                block.push((time, (seed >> 32) as u32 % 5, step * 100 + n));
                alive.push((time, step * 100 + n));
            }
            put(&mut rows, &block);
            let limit = step * 10;
            out.clear();
            rows.pass(limit, &mut out);
            let mut found: Vec<(i64, i64)> = Vec::new();
            let times: Vec<i64> = out.iter().map(|id| rows.time(*id)).collect();
            found.extend(times.into_iter().zip(values(&mut rows, &out).into_iter().flatten()));
            found.sort_unstable();
            let mut expect: Vec<(i64, i64)> = alive.iter().copied().filter(|(t, _)| *t <= limit).collect();
            expect.sort_unstable();
            assert_eq!(found, expect, "span {span}, step {step}");
            alive.retain(|(t, _)| *t > limit);
            for id in &out {
                rows.remove(*id).unwrap();
            }
            assert_eq!(rows.len(), alive.len());
        }
        out.clear();
        rows.pass(i64::MAX, &mut out);
        for id in &out {
            rows.remove(*id).unwrap();
        }
        assert_eq!((rows.len(), rows.bytes, rows.recent.len(), rows.due.len()), (0, 0, 0, 0));
    }
}

#[test]
fn single_rows_are_gathered_into_chunks_and_thin_chunks_are_packed() {
    let mut rows = rows(true, 1000);
    for n in 0..10_000i64 {
        put(&mut rows, &[(n, 0, n)]);
    }
    assert!(rows.chunks.iter().flatten().count() < 20);
    // Every hundredth row stays.
    let mut out = Vec::new();
    rows.pass(i64::MAX, &mut out);
    for id in out {
        if rows.time(id) % 100 != 0 {
            rows.remove(id).unwrap();
        }
    }
    let kept: usize = rows.chunks.iter().flatten().map(|c| c.ids.len()).sum();
    assert!(kept <= 4 * rows.len() + 20 * PACK_ROWS, "{kept} rows held for {}", rows.len());
    check_range(&mut rows, 0, 0, 250, &[0, 100, 200]);
}

#[test]
fn a_snapshot_holds_rows_and_marks() {
    let mut rows = rows(true, 10);
    let ids = put(&mut rows, &[(5, 0, 50), (3, 1, 30), (5, 0, 51)]);
    rows.mark(ids[1], true);
    let tables = rows.save("left", |slot| u64::from(slot) + 7).unwrap();
    assert_eq!((tables.len(), tables[0].name.as_str(), tables[0].hashes()), (1, "left 0", &[7, 7, 8][..]));
    let (columns, marks) = saved(&tables[0], &rows.schema).unwrap();
    assert_eq!(columns[0].as_primitive::<arrow::datatypes::Int64Type>().values(), &[50, 51, 30]);
    assert_eq!(marks, [false, false, true]);
}
