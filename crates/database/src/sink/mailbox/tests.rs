//! Rows that gather, and rows that wait.

use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};

use super::*;

fn block(rows: i64) -> Block {
    let numbers: arrow::array::ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
    Block::inserts(RecordBatch::try_from_iter([("n", numbers)]).unwrap(), 0)
}

fn rows(work: Option<Work>) -> usize {
    work.map_or(0, |work| work.blocks.iter().map(Block::rows).sum())
}

#[test]
fn batches_are_what_has_gathered() {
    let running = AtomicBool::new(false);
    let mailbox = Mailbox::new(Limits { rows: None, bytes: 1 << 20, interval: None, gather: false, awaited: false, row_group: None });
    mailbox.push(block(3), &running).unwrap();
    mailbox.push(block(4), &running).unwrap();
    assert_eq!(rows(mailbox.take()), 7);
    mailbox.push(block(1), &running).unwrap();
    let (done, answer) = std::sync::mpsc::channel();
    mailbox.prepare(done);
    let work = mailbox.take().unwrap();
    assert!(work.blocks.len() == 1 && work.prepare.is_some());
    drop(work);
    assert!(answer.recv().is_err());
    mailbox.close();
    assert!(mailbox.take().is_none());
}

#[test]
fn batches_have_the_size_asked_for() {
    let running = AtomicBool::new(false);
    let mailbox = Mailbox::new(Limits { rows: Some(5), bytes: 1 << 20, interval: None, gather: false, awaited: false, row_group: None });
    mailbox.push(block(4), &running).unwrap();
    mailbox.push(block(4), &running).unwrap();
    assert_eq!(rows(mailbox.take()), 5);
    mailbox.flush().unwrap();
    assert_eq!(rows(mailbox.take()), 3);
}

#[test]
fn large_batches_have_whole_groups_of_rows() {
    let running = AtomicBool::new(false);
    let limits = Limits { rows: None, bytes: 1 << 20, interval: None, gather: false, awaited: false, row_group: Some(5) };
    let mailbox = Mailbox::new(limits);
    mailbox.push(block(8), &running).unwrap();
    mailbox.push(block(4), &running).unwrap();
    assert_eq!(rows(mailbox.take()), 10);
    mailbox.push(block(1), &running).unwrap();
    // Fewer wait for nobody.
    assert_eq!(rows(mailbox.take()), 3);
    // What is asked for before all are there comes with the last of them.
    mailbox.push(block(6), &running).unwrap();
    mailbox.prepare(std::sync::mpsc::channel().0);
    let work = mailbox.take().unwrap();
    assert!(work.blocks[0].rows() == 5 && work.prepare.is_none());
    assert!(mailbox.take().is_some_and(|work| work.blocks[0].rows() == 1 && work.prepare.is_some()));
}

#[test]
fn bytes_end_a_batch_that_waits_for_rows() {
    let running = AtomicBool::new(false);
    let mailbox = Mailbox::new(Limits { rows: Some(1_000), bytes: 64, interval: None, gather: false, awaited: false, row_group: None });
    mailbox.push(block(7), &running).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| mailbox.push(block(7), &running).unwrap());
        assert_eq!(rows(mailbox.take()), 7);
    });
    mailbox.flush().unwrap();
    assert_eq!(rows(mailbox.take()), 7);
}

#[test]
fn upserts_wait_for_more_where_rows_pour_in() {
    let now = Instant::now() + Duration::from_secs(100);
    let ago = |ms: u64| Some(now - Duration::from_millis(ms));
    // Of a batch that takes four seconds three quarters came while the one before was written, in half a second.
    let poured =
        || State { bytes: 40 << 20, pace: Some((10 << 20) as f64), since: ago(500), newest: ago(1), idle: ago(100), ..State::default() };
    assert!(poured().gathers(now));
    // It has waited for an eighth of its time, nothing more comes, it comes no faster than it is written, it is small, nobody
    // knows how long it takes.
    assert!(!State { idle: ago(501), ..poured() }.gathers(now));
    assert!(!State { newest: ago(51), ..poured() }.gathers(now));
    assert!(!State { since: ago(4000), ..poured() }.gathers(now));
    assert!(!State { bytes: 1 << 20, since: ago(10), ..poured() }.gathers(now));
    assert!(!State { pace: None, ..poured() }.gathers(now));
}

/// A statement that waited for a lock, which most databases let it do without an end, was silence.
#[test]
fn a_batch_that_takes_long_is_said_once() {
    let slow = || State { written: Instant::now().checked_sub(SLOW).map(|since| (since, 1)), ..State::default() };
    assert!(slow().is_slow());
    assert!(!State { told: true, ..slow() }.is_slow() && !State { failure: Some("gone".into()), ..slow() }.is_slow());
    assert!(!State { written: Some((Instant::now(), 1)), ..slow() }.is_slow() && !State::default().is_slow());
}

#[test]
fn checkpoints_wait_for_no_more_than_seconds() {
    let mailbox =
        |mb: usize, awaited| Mailbox::new(Limits { rows: None, bytes: mb << 20, interval: None, gather: true, awaited, row_group: None });
    let of = |paced, pace| State { pace, paced, ..State::default() };
    let most = |mb, awaited, pace: Option<f64>| mailbox(mb, awaited).bytes_max(&of(64 << 20, pace)) >> 20;
    let ten = Some((10 << 20) as f64);
    assert_eq!((most(256, false, None), most(256, false, ten)), (256, 256));
    assert_eq!((most(256, true, None), most(256, true, ten), most(80, true, ten), most(16, true, None)), (64, 100, 80, 16));
    // A batch of 64 KB at 100 MB a second, which allowed 256 MB at once, and one of 50 MB.
    let fast = |paced| mailbox(256, true).bytes_max(&of(paced, Some((100 << 20) as f64))) >> 20;
    assert_eq!((fast(64 << 10), fast(50 << 20), fast(200 << 20)), (64, 100, 256));
}

#[test]
fn there_is_a_bound_and_an_end() {
    let stopped = AtomicBool::new(true);
    let mailbox = Mailbox::new(Limits { rows: None, bytes: 64, interval: None, gather: false, awaited: false, row_group: None });
    mailbox.push(block(100), &stopped).unwrap(); // a larger one, alone
    assert!(mailbox.push(block(1), &stopped).is_err());
    mailbox.fail("gone".into());
    assert_eq!(mailbox.push(block(1), &AtomicBool::new(false)).unwrap_err().to_string(), "gone");
    assert!(mailbox.take().is_none() && mailbox.failure().to_string() == "gone");
}
