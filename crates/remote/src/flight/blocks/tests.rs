//! Tests of `blocks`.

use super::*;
use arrow::array::{BooleanArray, Int64Array, StringArray};
use std::sync::Arc;

fn batch(values: std::ops::Range<i64>) -> RecordBatch {
    RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from_iter_values(values)) as _)]).unwrap()
}

/// Messages of what was pushed in these lengths, and the rows that still wait.
fn messages(fixed: Option<usize>, lengths: &[i64], all: bool) -> (Vec<usize>, usize) {
    let (mut gather, mut at, mut out, mut next) = (Gather::new(fixed), 0, Vec::new(), 0);
    for length in lengths {
        gather.push(batch(at..at + length));
        at += length;
        while let Some(message) = gather.next(all).unwrap() {
            let column = message.column(0).as_any().downcast_ref::<Int64Array>().unwrap().clone();
            column.values().iter().for_each(|n| {
                assert_eq!(*n, next, "rows stay in order");
                next += 1;
            });
            out.push(message.num_rows());
        }
    }
    (out, gather.rows())
}

/// Rows of eight bytes that need no more company.
const FULL: i64 = ROWS_AUTO as i64;

#[test]
fn messages_of_whole_blocks() {
    // Small blocks wait for each other; what is flushed does not.
    assert_eq!(messages(Some(4), &[3, 3, 0, 9, 1], false), (vec![], 16));
    assert_eq!(messages(Some(4), &[3, 6], true), (vec![3, 6], 0));
    assert_eq!(messages(Some(1), &[2, FULL], false), (vec![2 + FULL as usize], 0));
    // Seven goes 1,170 times into 8,192, and 2 are left over.
    assert_eq!(messages(Some(7), &[FULL], false), (vec![8190], 2));
    // A large block is waited for.
    assert_eq!(messages(Some(20_000), &[FULL, FULL, 3615], false), (vec![], 19_999));
    assert_eq!(messages(Some(20_000), &[FULL, FULL, 3617], false), (vec![20_000], 1));
}

#[test]
fn messages_of_what_is_at_hand() {
    assert_eq!(messages(None, &[100, 200], false), (vec![], 300));
    assert_eq!(messages(None, &[100, 200], true), (vec![100, 200], 0));
    assert_eq!(messages(None, &[7000, 1300, 10], false), (vec![8300], 10));
    // Nearly enough goes alone: what is joined is copied.
    assert_eq!(messages(None, &[8000, 300, 10], false), (vec![8000], 310));
    // Sixteen numbers a row: a thousand of them are enough.
    let column = |rows: i64| Arc::new(Int64Array::from_iter_values(0..rows)) as arrow::array::ArrayRef;
    let wide = |rows: i64| RecordBatch::try_from_iter((0..16).map(|n| (format!("c{n}"), column(rows)))).unwrap();
    for block in [None, Some(1)] {
        let mut gather = Gather::new(block);
        gather.push(wide(1024 / 8 * 7 - 1));
        assert!(gather.next(false).unwrap().is_none());
        gather.push(wide(1024 / 8 + 1));
        assert_eq!(gather.next(false).unwrap().unwrap().num_rows(), 1024);
    }
}

#[test]
fn a_message_takes_what_is_wanted() {
    for (block, before, after) in [(None, 2048, 8185), (Some(10), 2040, 8183), (Some(30_000), 30_000, 29_993)] {
        let mut gather = Gather::new(block);
        assert_eq!(gather.wanted(), before, "rows are taken to have 64 bytes");
        gather.push(batch(0..7));
        assert_eq!(gather.wanted(), after, "they have 8");
        gather.clear();
        assert_eq!((gather.wanted(), gather.rows()), (after + 7, 0));
    }
}

#[test]
fn a_message_whose_size_is_left_to_us_is_as_many_rows_as_the_engine_takes() {
    let text = |length: usize| Arc::new(StringArray::from(vec!["x".repeat(length); 100])) as arrow::array::ArrayRef;
    // An offset more than there are rows is counted with each.
    for (length, wanted) in [(4, 8192), (27, 4096), (36, 3072), (48, 2048), (91, 1024), (135, 942)] {
        let mut gather = Gather::new(None);
        gather.push(RecordBatch::try_from_iter([("t", text(length))]).unwrap());
        gather.clear();
        assert_eq!(gather.wanted(), wanted, "texts of {length} bytes");
    }
}

#[test]
fn a_message_of_blocks_is_about_as_many_rows_as_the_engine_takes() {
    let text = |length: usize| Arc::new(StringArray::from(vec!["x".repeat(length); 100])) as arrow::array::ArrayRef;
    for (length, block, wanted) in
        [(4, 1, 8192), (27, 1, 4096), (27, 64, 4096), (27, 100, 4000), (36, 256, 4096), (48, 8, 2048), (91, 8, 1376)]
    {
        let mut gather = Gather::new(Some(block));
        gather.push(RecordBatch::try_from_iter([("t", text(length))]).unwrap());
        gather.clear();
        assert_eq!(gather.wanted(), wanted, "texts of {length} bytes, blocks of {block}");
    }
}

#[test]
fn large_batches_are_divided() {
    assert_eq!(parts(10, 100, 100).collect::<Vec<_>>(), [(0, 10)]);
    assert_eq!(parts(10, 101, 100).collect::<Vec<_>>(), [(0, 5), (5, 5)]);
    assert_eq!(parts(10, 1000, 100).collect::<Vec<_>>().len(), 10);
    assert_eq!(parts(2, 1 << 30, 100).collect::<Vec<_>>(), [(0, 1), (1, 1)]);
    assert_eq!(parts(0, 0, 100).count(), 0);
}

#[test]
fn a_slice_counts_what_it_shows() {
    let whole = batch(0..1000);
    assert_eq!(bytes(&whole.slice(0, 10)), 80);
    let texts = RecordBatch::try_from_iter([("t", Arc::new(StringArray::from(vec!["abc"; 100])) as _)]).unwrap();
    assert_eq!((bytes(&texts), bytes(&texts.slice(20, 10))), (300 + 101 * 4, 30 + 11 * 4));
    let some = RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from(vec![Some(1), None, Some(3)])) as _)]).unwrap();
    assert_eq!(bytes(&some), 3 * 8 + 1);
    let flags = RecordBatch::try_from_iter([("b", Arc::new(BooleanArray::from(vec![true; 100])) as _)]).unwrap();
    assert_eq!(bytes(&flags), 13, "bits");
    assert_eq!(bytes(&RecordBatch::new_empty(texts.schema())), 4);
}
