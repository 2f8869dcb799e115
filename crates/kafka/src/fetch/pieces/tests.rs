//! Pieces with everything that may stand in them.

use std::io::Write;

use super::*;
use crate::fetch::written::{Batch, mark, record};

/// Records with these values, from offset `base` on.
fn batch(base: i64, values: &[&str], attributes: i16, producer: i64) -> Vec<u8> {
    let records: Vec<u8> = values.iter().enumerate().flat_map(|(n, v)| record(n as i64, 0, None, Some(v), &[])).collect();
    let packed = match Codec::of(attributes).unwrap() {
        Codec::None => records,
        Codec::Gzip => {
            let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            writer.write_all(&records).unwrap();
            writer.finish().unwrap()
        }
        Codec::Snappy => snap::raw::Encoder::new().compress_vec(&records).unwrap(),
        Codec::Lz4 => {
            let mut writer = lz4_flex::frame::FrameEncoder::new(Vec::new());
            writer.write_all(&records).unwrap();
            writer.finish().unwrap()
        }
        Codec::Zstd => zstd::encode_all(&records[..], 1).unwrap(),
    };
    Batch { base, attributes, producer, ..Batch::new(values.len() as i32, &packed) }.bytes()
}

/// Everything in a piece, so many messages a time: offsets with values, the offset behind it, what was wrong.
fn all(piece: Piece, most: usize, stop: i64) -> (Vec<(i64, String)>, i64, Option<Fault>) {
    let (mut pieces, mut next, mut got) = (Pieces::default(), piece.from, Vec::new());
    pieces.put(piece);
    for _ in 0..1000 {
        let given = pieces.read(most, next, stop);
        let messages = pieces.messages("t", 0);
        assert!(messages.len() <= most && given.next >= next);
        for index in 0..messages.len() {
            let message = messages.get(index);
            got.push((message.offset(), String::from_utf8(message.value().unwrap().to_vec()).unwrap()));
        }
        next = given.next;
        if given.fault.is_some() || given.stopped || pieces.done() {
            return (got, next, given.fault);
        }
    }
    panic!("no end");
}

fn piece(batches: &[Vec<u8>], from: i64) -> Piece {
    Piece { bytes: batches.concat(), from, aborted: Vec::new() }
}

fn values(got: &[(i64, String)]) -> Vec<&str> {
    got.iter().map(|(_, v)| v.as_str()).collect()
}

#[test]
fn every_compression_one_behind_the_other() {
    let batches: Vec<Vec<u8>> = [0, 1, 1, 2, 0, 3, 4, 4].iter().zip(0..).map(|(a, n)| batch(n * 10, &["a", "b", "c"], *a, -1)).collect();
    for most in [1, 2, 3, 5, 100] {
        let (got, next, fault) = all(piece(&batches, 0), most, i64::MAX);
        let expect: Vec<i64> = (0..8).flat_map(|n| [n * 10, n * 10 + 1, n * 10 + 2]).collect();
        assert_eq!(got.iter().map(|(offset, _)| *offset).collect::<Vec<_>>(), expect, "{most}");
        assert_eq!(values(&got), ["a", "b", "c"].repeat(8), "{most}");
        assert_eq!((next, fault), (73, None));
    }
}

#[test]
fn it_begins_and_ends_within_batches() {
    let batches = [batch(0, &["a", "b"], 0, -1), batch(2, &["c", "d", "e"], 4, -1), batch(5, &["f", "g"], 0, -1)];
    for most in [1, 100] {
        let (got, next, _) = all(piece(&batches, 3), most, 6);
        assert_eq!((values(&got), next), (vec!["d", "e", "f"], 6));
        // The end is in a gap: nothing at it, something behind it.
        let (got, next, _) = all(piece(&[batch(0, &["a"], 0, -1), batch(9, &["b"], 0, -1)], 0), most, 5);
        assert_eq!((values(&got), next), (vec!["a"], 5));
    }
}

#[test]
fn a_batch_that_breaks_off_at_the_end_comes_with_the_next_answer() {
    let last = batch(2, &["c"], 0, -1);
    for length in [1, 12, 30, last.len() - 1] {
        let (got, next, fault) = all(piece(&[batch(0, &["a", "b"], 0, -1), last[..length].to_vec()], 0), 100, i64::MAX);
        assert_eq!((values(&got), next, fault), (vec!["a", "b"], 2, None), "{length}");
    }
}

#[test]
fn transactions_that_were_aborted_are_passed_over() {
    let batches = [
        batch(0, &["a"], 16, 1),
        batch(1, &["x"], 16, 2),
        batch(2, &["plain"], 0, 2),
        mark(3, 1, true),
        mark(4, 2, false),
        // The same producer again, and this time it holds.
        batch(5, &["b"], 16, 2),
        mark(6, 2, true),
        batch(7, &["y"], 16, 1),
        mark(8, 1, false),
    ];
    for most in [1, 100] {
        let (got, next, _) = all(Piece { aborted: vec![(1, 2), (7, 1)], ..piece(&batches, 0) }, most, i64::MAX);
        assert_eq!((values(&got), next), (vec!["a", "plain", "b"], 9));
        // Marks at the end count: a reading up to there ends.
        let (got, next, _) = all(Piece { aborted: vec![(1, 2), (7, 1)], ..piece(&batches, 0) }, most, 9);
        assert_eq!((got.len(), next), (3, 9));
        // Whoever reads uncommitted ones is not told of them, and gets no marks either.
        let (got, ..) = all(piece(&batches, 0), most, i64::MAX);
        assert_eq!(values(&got), ["a", "x", "plain", "b", "y"]);
    }
}

#[test]
fn batches_without_records_are_passed() {
    // Compaction keeps the head of a producer's last batch.
    let empty = Batch { base: 3, last_delta: 4, ..Batch::new(0, &[]) }.bytes();
    let (got, next, fault) = all(piece(&[batch(0, &["a"], 0, -1), empty], 0), 100, i64::MAX);
    assert_eq!((values(&got), next, fault), (vec!["a"], 8, None));
}

#[test]
fn what_stands_before_damage_is_given() {
    let mut damaged = batch(2, &["c"], 3, -1);
    *damaged.last_mut().unwrap() ^= 1;
    let (got, next, fault) = all(piece(&[batch(0, &["a", "b"], 0, -1), damaged], 0), 100, i64::MAX);
    assert_eq!((values(&got), next), (vec!["a", "b"], 2));
    assert!(matches!(fault, Some(Fault::Damaged(why)) if why.contains("checksum")));
    // Within a batch, too: what was given is not given again when reading goes on behind it.
    let records = [record(0, 0, None, Some("a"), &[]), vec![6, 0, 0, 0]].concat();
    let torn = Batch { last_delta: 1, ..Batch::new(1, &[records.as_slice(), &[9; 9]].concat()) }.bytes();
    let (got, next, fault) = all(piece(&[torn], 0), 100, i64::MAX);
    assert_eq!((values(&got), next, fault.is_some()), (vec!["a"], 1, true));
    let mut old = batch(1, &["b"], 0, -1);
    old[16] = 1;
    let (got, next, fault) = all(piece(&[batch(0, &["a"], 0, -1), old], 0), 100, i64::MAX);
    assert_eq!((values(&got), next, fault), (vec!["a"], 1, Some(Fault::Old)));
}
