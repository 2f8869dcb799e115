//! Batches made by hand, and what is wrong with them.

use super::*;
use crate::fetch::written::{Batch, record};

fn columns(bytes: &[u8], from: i64, stop: i64) -> (Columns, Result<bool, Fault>) {
    let head = Head::read(bytes).unwrap().unwrap();
    head.check(bytes).unwrap();
    let mut columns = Columns::default();
    let read = Open::new(head, false, HEAD_BYTES..head.bytes).and_then(|mut open| columns.read(bytes, &mut open, from, stop, 100));
    (columns, read)
}

fn texts<'a>(bytes: &'a [u8], places: &[Place]) -> Vec<Option<&'a str>> {
    places.iter().map(|place| place.of(bytes).map(|b| std::str::from_utf8(b).unwrap())).collect()
}

#[test]
fn records_come_by_column() {
    let records = [record(0, 5, Some("k"), Some("one"), &[]), record(3, -5, None, None, &[("h", Some("x")), ("n", None)])].concat();
    let bytes = Batch { base: 40, last_delta: 6, first_time: 1000, ..Batch::new(2, &records) }.bytes();
    let (columns, read) = columns(&bytes, 0, i64::MAX);
    assert_eq!(read, Ok(false));
    assert_eq!((columns.offsets.as_slice(), columns.times.as_slice()), (&[40, 43][..], &[1005, 995][..]));
    assert_eq!(texts(&bytes, &columns.keys), [Some("k"), None]);
    assert_eq!(texts(&bytes, &columns.values), [Some("one"), None]);
    assert_eq!((columns.batch(0), columns.batch(1)), ((7, false), (7, false)));
    let mut found = Vec::new();
    headers(&bytes, columns.headers[1], |name, value| found.push((name.to_vec(), value.map(<[u8]>::to_vec))));
    assert_eq!(found, [(b"h".to_vec(), Some(b"x".to_vec())), (b"n".to_vec(), None)]);
}

#[test]
fn what_lies_outside_is_not_given() {
    let records: Vec<u8> = (0..5).flat_map(|n| record(n, 0, None, Some("v"), &[])).collect();
    let bytes = Batch { base: 10, last_delta: 4, attributes: 8, ..Batch::new(5, &records) }.bytes();
    let (some, read) = columns(&bytes, 12, 14);
    assert_eq!((some.offsets.as_slice(), read), (&[12, 13][..], Ok(true)));
    assert_eq!(some.times, [9999, 9999], "the broker's time");
}

#[test]
fn a_batch_that_breaks_off_is_none_yet() {
    let bytes = Batch::new(1, &record(0, 0, None, Some("v"), &[])).bytes();
    for length in 0..bytes.len() {
        assert_eq!(Head::read(&bytes[..length]), Ok(None), "{length}");
    }
    assert_eq!(Head::read(&[bytes.as_slice(), b"more"].concat()).unwrap().unwrap().bytes, bytes.len());
}

#[test]
fn what_no_broker_sends_is_refused() {
    let good = Batch::new(1, &record(0, 0, None, Some("v"), &[])).bytes();
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    assert_eq!(Head::read(&with(16, 1)), Err(Fault::Old));
    let cases = [(16, 9, "format 9"), (11, 3, "shorter"), (22, 7, "unknown way 7"), (0, 0x80, "contradicts"), (23, 0x80, "contradicts")];
    for (at, byte, what) in cases {
        let Err(Fault::Damaged(why)) = Head::read(&with(at, byte)) else { panic!("{what}") };
        assert!(why.contains(what), "{why}");
    }
    let flipped = with(good.len() - 2, b'w');
    let head = Head::read(&flipped).unwrap().unwrap();
    assert!(matches!(head.check(&flipped), Err(Fault::Damaged(why)) if why.contains("checksum")));
    let fault = |records: &[u8], count: i32, what: &str| {
        let bytes = Batch { last_delta: 1, ..Batch::new(count, records) }.bytes();
        let (_, read) = columns(&bytes, 0, i64::MAX);
        assert!(matches!(&read, Err(Fault::Damaged(why)) if why.contains(what)), "{what}: {read:?}");
    };
    let one = record(0, 0, None, Some("value"), &[]);
    fault(&one, i32::MAX, "records in");
    fault(&[one.as_slice(), b"more"].concat(), 1, "more bytes");
    fault(&record(2, 0, None, Some("value"), &[]), 1, "none of its batch");
    fault(&[one.as_slice(), &one].concat(), 2, "none of its batch");
    fault(&one[..one.len() - 1], 1, "breaks off");
    // Lengths that reach into the next record, and below none.
    for (at, byte) in [(0, 0x7e), (4, 5), (5, 0x7e), (11, 9)] {
        let mut bytes = one.clone();
        bytes[at] = byte;
        fault(&[bytes, one.clone()].concat(), 2, "breaks off or contradicts");
    }
}

#[test]
fn heads_tell_where_to_go_on() {
    let one = record(0, 0, None, Some("v"), &[]);
    let first = Batch { base: 4, last_delta: 9, ..Batch::new(1, &one) }.bytes();
    let second = Batch { base: 20, ..Batch::new(1, &one) }.bytes();
    let both = [first.as_slice(), &second].concat();
    let expect = Survey { bytes: first.len(), next: Some(14), records: 1, epoch: 7, fault: false };
    assert_eq!(Survey::of(&both), Survey { bytes: both.len(), next: Some(21), records: 2, epoch: 7, fault: false });
    assert_eq!(Survey::of(&both[..both.len() - 1]), expect);
    let mut old = both.clone();
    old[first.len() + 16] = 0;
    assert_eq!(Survey::of(&old), Survey { fault: true, ..expect });
    assert_eq!(Survey::of(&[]), Survey::default());
}
