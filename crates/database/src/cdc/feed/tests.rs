//! What is gathered comes out once, wherever the job stood when it was stopped.

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::datatypes::Int64Type;
use crossbeam_channel::{Receiver, unbounded};

use super::*;
use crate::cdc::position::Part;
use crate::source::encode_row;

fn rows(ids: &[i64]) -> RecordBatch {
    RecordBatch::try_from_iter([("id", Arc::new(Int64Array::from(ids.to_vec())) as ArrayRef)]).unwrap()
}

fn feed() -> (Feed, Receiver<Event>) {
    let (sender, events) = unbounded();
    (Feed::new(sender, Waker::noop(), Arc::default(), vec![0]), events)
}

/// A log: transactions at places 10, 20, … with these keys, all inserted, whose log goes on a byte behind.
const LOG: &[&[i64]] = &[&[1], &[2, 3, 4], &[], &[5, 6]];

/// Streams the log from the feed's position on, flushed after every `every` rows.
fn stream(feed: &mut Feed, every: usize) {
    feed.begin_again();
    let mut pending = Vec::new();
    for (at, keys) in (10..).step_by(10).zip(LOG) {
        if at < feed.position().from.at {
            continue;
        }
        feed.begin(Offset::at(at));
        for key in *keys {
            if feed.wants() {
                pending.push(*key);
                feed.row(RowKind::Insert);
            }
            if pending.len() >= every {
                feed.flush(rows(&std::mem::take(&mut pending))).unwrap();
            }
        }
        feed.commit(Offset::at(at + 1)).unwrap();
    }
    feed.flush(rows(&pending)).unwrap();
}

fn changes(events: &Receiver<Event>) -> Vec<Changes> {
    events.try_iter().filter_map(|event| if let Event::Changes(changes) = event { Some(changes) } else { None }).collect()
}

fn keys(batch: &RecordBatch) -> Vec<i64> {
    batch.column(0).as_primitive::<Int64Type>().values().to_vec()
}

#[test]
fn a_restart_goes_on_at_any_row() {
    let all: Vec<i64> = LOG.concat();
    for every in [1, 2, 100] {
        for stop in 1..=all.len() {
            let (mut first, events) = feed();
            stream(&mut first, every);
            // The place behind so many rows.
            let (mut handed, mut place) = (Vec::new(), (Offset::default(), 0));
            for change in changes(&events) {
                let take = change.batch.num_rows().min(stop - handed.len());
                if take > 0 {
                    handed.extend(&keys(&change.batch)[..take]);
                    place = change.place(take);
                }
            }
            let (mut second, events) = feed();
            second.go_to(Position { server: "s".into(), from: place.0, skip: place.1, ..Position::default() }).unwrap();
            stream(&mut second, every);
            changes(&events).iter().for_each(|change| handed.extend(keys(&change.batch)));
            assert_eq!(handed, all, "flushed every {every} rows, stopped behind {stop} at {place:?}");
        }
    }
}

#[test]
fn what_was_not_sent_is_read_again() {
    let (mut feed, events) = feed();
    feed.begin(Offset::at(10));
    assert!(feed.wants());
    feed.row(RowKind::Insert);
    // The connection breaks.
    stream(&mut feed, 100);
    let found: Vec<i64> = changes(&events).iter().flat_map(|change| keys(&change.batch)).collect();
    assert_eq!(found, LOG.concat());
    assert_eq!((feed.position().from, feed.position().skip), (Offset::at(41), 0));
}

#[test]
fn a_transaction_that_lost_rows_is_an_error() {
    let (mut feed, _events) = feed();
    feed.go_to(Position { from: Offset::at(10), skip: 2, ..Position::default() }).unwrap();
    feed.begin(Offset::at(10));
    assert!(!feed.wants());
    assert!(feed.commit(Offset::at(11)).unwrap_err().message.contains("2 were handed over"));
}

#[test]
fn a_transaction_that_was_never_committed_leaves_no_rows() {
    let (mut feed, events) = feed();
    for (at, ids) in [(10, vec![1, 2]), (20, vec![3, 4])] {
        feed.begin(Offset::at(at));
        for _ in ids {
            assert!(feed.wants());
            feed.row(RowKind::Insert);
        }
        if at == 10 {
            feed.commit(Offset::at(11)).unwrap();
        }
    }
    assert_eq!(feed.abandon().unwrap(), 2);
    feed.flush(rows(&[1, 2])).unwrap();
    let found = changes(&events);
    assert_eq!((found.len(), keys(&found[0].batch), found[0].place(2)), (1, vec![1, 2], (Offset::at(11), 0)));
    // Rows that were handed over cannot be taken back.
    feed.begin(Offset::at(30));
    assert!(feed.wants());
    feed.row(RowKind::Insert);
    feed.flush(rows(&[5])).unwrap();
    assert!(feed.abandon().unwrap_err().message.contains("never committed"));
}

/// Keys up to 3 were read as of 15, the others as of 35.
#[test]
fn pieces_pass_over_what_they_have_seen() {
    let part = |upto: Option<i64>, at| Part { upto: upto.map(|id| encode_row(&rows(&[id])).unwrap()), at: Offset::at(at) };
    let position = Position { from: Offset::at(10), parts: vec![part(Some(3), 15), part(None, 35)], ..Position::default() };
    for every in [1, 2, 100] {
        let (mut feed, events) = feed();
        feed.go_to(position.clone()).unwrap();
        stream(&mut feed, every);
        let found: Vec<i64> = changes(&events).iter().flat_map(|change| keys(&change.batch)).collect();
        assert_eq!(found, [2, 3, 5, 6], "{every}");
        assert!(feed.position().parts.is_empty());
    }
    // A row that moves from one piece to the other is taken out of the one; the other has it.
    let (mut feed, events) = feed();
    feed.go_to(position).unwrap();
    feed.begin(Offset::at(20));
    for kind in [RowKind::UpdateBefore, RowKind::UpdateAfter, RowKind::UpdateBefore, RowKind::UpdateAfter] {
        assert!(feed.wants());
        feed.row(kind);
    }
    feed.commit(Offset::at(21)).unwrap();
    feed.flush(rows(&[1, 9, 8, 2])).unwrap();
    let found = changes(&events).remove(0);
    assert_eq!((keys(&found.batch), found.kinds.clone().unwrap()), (vec![1, 2], vec![RowKind::Delete, RowKind::Insert]));
    assert_eq!((found.place(1), found.place(2)), ((Offset::at(20), 3), (Offset::at(21), 0)));
}

#[test]
fn what_may_have_been_handed_over_comes_and_goes() {
    use RowKind::*;
    let (mut feed, events) = feed();
    feed.undo(Offset::at(20), Some(&encode_row(&rows(&[3])).unwrap())).unwrap();
    let mut pending = Vec::new();
    let behind = [(2, Delete), (4, Delete), (5, UpdateBefore), (5, UpdateAfter), (6, Insert), (5, Delete)];
    for (at, changes) in [(10, &[(9, Delete)][..]), (20, &behind[..])] {
        feed.begin(Offset::at(at));
        for (key, kind) in changes {
            if feed.wants() {
                pending.push(*key);
                feed.row(*kind);
            }
        }
        feed.commit(Offset::at(at + 1)).unwrap();
    }
    feed.flush(rows(&pending)).unwrap();
    feed.idle().unwrap();
    let undone = events.try_iter().map(|event| {
        let Event::Undone { batch, kind, .. } = event else { panic!("nothing else is sent") };
        (kind, keys(&batch))
    });
    let expect = [(Insert, vec![4, 5]), (Delete, vec![4, 5]), (Insert, vec![5]), (Delete, vec![5])];
    assert_eq!(undone.collect::<Vec<_>>(), expect);
    assert_eq!(*feed.position(), Position::default());
    feed.go_to(Position::default()).unwrap();
    assert!(feed.wants() && events.try_iter().count() == 1);
}
