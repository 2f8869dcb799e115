//! The writer of a job and subscribers.

use std::fs;
use std::sync::Mutex;
use std::time::Duration;

use super::*;
use crate::outlet::is_waited_for;
use crate::{From, HubError, Slow, SubscribeRequest};

const LOG: (&str, &str) = ("stream.delivery", "exactly-once");
const SNAPSHOT: (&str, &str) = ("stream.snapshot", "true");

fn from(from: From) -> SubscribeRequest {
    SubscribeRequest { from, ..SubscribeRequest::default() }
}

fn named(name: &str, from: From) -> SubscribeRequest {
    SubscribeRequest { from, name: Some(name.into()), ..SubscribeRequest::default() }
}

fn subscriber(hub: &Hub, request: SubscribeRequest) -> Subscriber {
    hub.stream("s").unwrap().subscribe(request, Waker::noop()).unwrap()
}

fn refused(hub: &Hub, request: SubscribeRequest) -> String {
    match hub.stream("s").unwrap().subscribe(request, Waker::noop()) {
        Err(HubError::NotSubscribable(why) | HubError::Refused(why)) => why,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it was not refused"),
    }
}

/// A checkpoint: what a crash right after it would find.
fn checkpoint(sink: &StreamSink, writer: &mut Box<dyn Writer>) -> Vec<Committable> {
    let prepared = writer.prepare(false).unwrap();
    sink.commit(&prepared).unwrap();
    prepared
}

fn ones(numbers: &[i64]) -> Block {
    Block::inserts(batch(numbers), 7)
}

#[test]
fn live_rows_reach_everybody_until_the_end() {
    let hub = hub(None);
    let (sink, mut writer) = sink(hub, false, &[], &[]);
    writer.write(&ones(&[1])).unwrap();
    let (waker, count) = waker();
    let mut a = hub.stream("s").unwrap().subscribe(from(From::Now), waker).unwrap();
    let mut b = subscriber(hub, from(From::Offset(1)));
    assert!(matches!(received(&mut a).1, Received::Pending));
    writer.write(&ones(&[2, 3])).unwrap();
    writer.write(&ones(&[4])).unwrap();
    assert_eq!(woken(&count), 1, "once a pause");
    assert_eq!((got(&mut a), got(&mut b)), (vec![2, 3, 4], vec![2, 3, 4]));
    for (request, expect) in [(From::Earliest, "keeps no rows"), (From::Offset(1), "keeps no rows"), (From::Snapshot, "no contents")] {
        assert!(refused(hub, from(request)).contains(expect));
    }
    let stats = hub.stream("s").unwrap().stats();
    assert_eq!((stats.subscribers, stats.next_offset, stats.delivered_rows), (2, 4, 6));
    writer.write(&ones(&[5])).unwrap();
    sink.finished();
    drop(writer);
    let (rows, end) = received(&mut a);
    assert!(rows == [(0, 5)] && matches!(end, Received::End));
    assert!(refused(hub, from(From::Now)).contains("no running job writes stream 's'"));
}

/// Who is woken takes its rows at once, and waited for the lock of who woke it. Here that would be for ever.
#[test]
fn subscribers_are_woken_behind_the_lock() {
    let hub = hub(None);
    let (sink, mut writer) = sink(hub, false, &[], &[]);
    let place: Arc<Mutex<Option<Subscriber>>> = Arc::default();
    let taken: Arc<Mutex<Vec<Received>>> = Arc::default();
    let looking = {
        let (place, taken) = (place.clone(), taken.clone());
        Waker::new(move || taken.lock().unwrap().extend(place.lock().unwrap().as_mut().map(|a| a.try_next().unwrap())))
    };
    let mut a = hub.stream("s").unwrap().subscribe(from(From::Now), looking).unwrap();
    assert!(matches!(a.try_next(), Ok(Received::Pending)));
    *place.lock().unwrap() = Some(a);
    writer.write(&ones(&[1])).unwrap();
    assert!(matches!(place.lock().unwrap().as_mut().unwrap().try_next(), Ok(Received::Pending)));
    sink.finished();
    drop(writer);
    let taken = taken.lock().unwrap();
    assert!(matches!(&taken[..], [Received::Rows(_), Received::End]), "{taken:?}");
}

#[test]
fn what_is_made_of_rows_is_made_once() {
    let hub = hub(None);
    let (_sink, mut writer) = sink(hub, false, &[], &[]);
    let (mut a, mut b) = (subscriber(hub, from(From::Now)), subscriber(hub, from(From::Now)));
    writer.write(&ones(&[1, 2])).unwrap();
    let (Received::Rows(a), Received::Rows(b)) = (a.try_next().unwrap(), b.try_next().unwrap()) else { panic!("rows wait") };
    assert_eq!(*a.cached(|batch| batch.num_rows()), 2);
    assert_eq!(*b.cached(|_| 0_usize), 2);
    assert_eq!(*b.cached(|_| "other".to_string()), "other");
}

#[test]
fn a_slow_subscriber_is_dropped_or_waited_for() {
    let hub = hub(None);
    let (_sink, mut writer) = sink(hub, false, &[], &[]);
    let small = |slow| SubscribeRequest { slow, queue_bytes: Some(1), ..SubscribeRequest::default() };
    let mut dropped = subscriber(hub, small(Slow::Drop));
    let mut quick = subscriber(hub, from(From::Now));
    writer.write(&ones(&[1])).unwrap();
    writer.write(&ones(&[2])).unwrap();
    assert!(matches!(dropped.try_next(), Err(HubError::TooSlow(_))));
    assert_eq!(got(&mut quick), [1, 2]);
    assert_eq!(hub.stream("s").unwrap().stats().dropped_subscribers, 1);

    let mut waited = subscriber(hub, small(Slow::Wait));
    let writing = std::thread::spawn(move || {
        for n in 3..10 {
            writer.write(&ones(&[n])).unwrap();
        }
        writer
    });
    let mut rows = Vec::new();
    while rows.len() < 7 {
        rows.extend(got(&mut waited));
        std::thread::yield_now();
    }
    assert_eq!(rows, [3, 4, 5, 6, 7, 8, 9]);
    // One that is gone is waited for no longer.
    drop(waited);
    let mut writer = writing.join().unwrap();
    writer.write(&ones(&[10])).unwrap();
    assert_eq!(got(&mut quick), [3, 4, 5, 6, 7, 8, 9, 10]);
}

#[test]
fn who_takes_nothing_is_waited_for_but_not_for_ever() {
    let seconds = Duration::from_secs;
    for (idle, stopping, expect) in [
        (59, None, true),
        (60, None, false),
        // A job that was asked to stop has less patience, counted from then on.
        (59, Some(1), true),
        (3, Some(2), false),
        (1, Some(9), true),
        (0, Some(10), false),
    ] {
        assert_eq!(is_waited_for(seconds(idle), stopping.map(seconds)), expect, "{idle} {stopping:?}");
    }
}

#[test]
fn rows_of_a_live_stream_are_counted_on_by_the_next_run() {
    let hub = hub(None);
    let (_first, mut writer) = sink(hub, false, &[], &[]);
    writer.write(&ones(&[1, 2])).unwrap();
    let mut a = subscriber(hub, from(From::Now));
    assert_eq!(a.offset(), 2);
    writer.write(&ones(&[3])).unwrap();
    assert_eq!((got(&mut a), a.offset()), (vec![3], 3));
    let stream = hub.stream("s").unwrap();
    let outlet = stream.outlet().unwrap();
    drop(writer);
    assert!(matches!(a.try_next(), Err(HubError::Gone(_))));
    let late = Subscriber::open(&stream, outlet, from(From::Now), Waker::noop());
    assert!(matches!(late, Err(HubError::Gone(_))), "it found the outlet just before it ended");
    let (_second, mut writer) = sink(hub, false, &[], &[]);
    // Whoever comes back in time has missed nothing, and learns that it has if it comes too late.
    let mut a = subscriber(hub, from(From::Offset(3)));
    writer.write(&ones(&[4])).unwrap();
    assert_eq!((got(&mut a), a.offset()), (vec![4], 4));
    assert!(refused(hub, from(From::Offset(3))).contains("keeps no rows"));
}

#[test]
fn contents_and_then_every_change() {
    let hub = hub(None);
    let (_sink, mut writer) = sink(hub, true, &[SNAPSHOT], &[]);
    writer.write(&block(&[("+I", 1), ("+I", 2), ("+I", 2), ("+I", 3)])).unwrap();
    writer.write(&block(&[("-U", 3), ("+U", 4), ("-D", 1)])).unwrap();
    let mut a = subscriber(hub, from(From::Snapshot));
    writer.write(&block(&[("-D", 2)])).unwrap();
    let mut b = subscriber(hub, from(From::Snapshot));
    assert_eq!(received(&mut a).0, [(0, 2), (0, 2), (0, 4), (3, 2)]);
    assert_eq!(received(&mut b).0, [(0, 2), (0, 4)]);
    let stream = hub.stream("s").unwrap();
    assert_eq!(numbers(&stream.contents(1).unwrap()), [2]);
    assert_eq!(stream.contents(10).unwrap().num_rows(), 2);
    let wire = stream.outlet_schema().unwrap();
    assert_eq!(wire.field(1), &Field::new("row_kind", DataType::Int8, false));
    let info = stream.outlet_info().unwrap();
    assert!(info.updating && info.snapshot);
}

#[test]
fn contents_outlive_a_restart_with_the_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    for more in [&[SNAPSHOT][..], &[SNAPSHOT, LOG]] {
        let first = hub(Some(directory.path()));
        let (sink_before, mut writer) = sink(first, true, more, &[]);
        writer.write(&block(&[("+I", 1), ("+I", 1), ("+I", 2), ("-D", 5)])).unwrap();
        checkpoint(&sink_before, &mut writer);
        let unchanged = checkpoint(&sink_before, &mut writer);
        writer.write(&block(&[("-D", 1)])).unwrap();
        // Written, but the checkpoint did not come to pass.
        writer.prepare(false).unwrap();
        drop(writer);

        let second = hub(Some(directory.path()));
        let (_sink, mut writer) = sink(second, true, more, &unchanged);
        assert_eq!(numbers(&second.stream("s").unwrap().contents(10).unwrap()), [1, 1, 2]);
        let mut a = subscriber(second, from(From::Snapshot));
        assert_eq!(received(&mut a).0, [(0, 1), (0, 1), (0, 2)]);
        writer.write(&block(&[("+I", 5)])).unwrap();
        drop(writer);

        // A fresh start begins with nothing.
        let third = hub(Some(directory.path()));
        let (_sink, _writer) = sink(third, true, more, &[]);
        assert_eq!(third.stream("s").unwrap().contents(10).unwrap().num_rows(), 0);
        fs::remove_dir_all(directory.path().join("streams")).unwrap();
    }
}

#[test]
fn logged_rows_wait_for_the_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let hub = hub(Some(directory.path()));
    let (sink, mut writer) = sink(hub, false, &[LOG], &[]);
    let (waker, count) = waker();
    let mut early = hub.stream("s").unwrap().subscribe(named("early", From::Now), waker).unwrap();
    writer.write(&ones(&[0, 1, 2])).unwrap();
    assert!(got(&mut early).is_empty());
    let prepared = writer.prepare(false).unwrap();
    assert!(got(&mut early).is_empty());
    writer.write(&ones(&[3])).unwrap();
    sink.commit(&prepared).unwrap();
    assert_eq!(woken(&count), 1);
    assert_eq!(got(&mut early), [0, 1, 2]);
    checkpoint(&sink, &mut writer);
    assert_eq!(got(&mut early), [3]);
    // From anywhere.
    assert_eq!(got(&mut subscriber(hub, from(From::Earliest))), [0, 1, 2, 3]);
    assert_eq!(got(&mut subscriber(hub, from(From::Offset(1)))), [1, 2, 3]);
    assert!(got(&mut subscriber(hub, from(From::Offset(4)))).is_empty());
    assert!(refused(hub, from(From::Offset(5))).contains("up to 4 so far"));
    early.acknowledge(2).unwrap();
    assert!(matches!(early.acknowledge(9), Err(HubError::Data(_))));
    assert!(subscriber(hub, from(From::Now)).acknowledge(1).is_err(), "it has no name");
    assert_eq!(got(&mut subscriber(hub, named("early", From::Acknowledged))), [2, 3]);
    assert!(matches!(early.try_next(), Err(HubError::Replaced(_))), "another took its name");
    assert_eq!(got(&mut subscriber(hub, named("new", From::Acknowledged))), [0, 1, 2, 3]);
}

/// Tasks that share a thread must know beforehand that a disk is waited for.
#[test]
fn a_subscriber_says_when_it_will_wait_for_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let first = hub(Some(directory.path()));
    let (before, mut writer) = sink(first, false, &[LOG], &[]);
    let mut a = subscriber(first, named("a", From::Now));
    assert!(!a.reads_file());
    writer.write(&ones(&[0, 1])).unwrap();
    let newest = checkpoint(&before, &mut writer);
    assert!(!a.reads_file(), "the newest rows are in memory");
    assert_eq!(got(&mut a), [0, 1]);
    let written = || fs::read_to_string(directory.path().join("streams/s/acks.json")).unwrap();
    assert!(!a.unsaved(), "the name was written down at once");
    a.note(1).unwrap();
    assert_eq!((written().as_str(), a.unsaved()), (r#"{"a":0}"#, true));
    a.save().unwrap();
    assert_eq!((written().as_str(), a.unsaved()), (r#"{"a":1}"#, false));
    drop((a, writer));

    let second = hub(Some(directory.path()));
    let (_after, _writer) = sink(second, false, &[LOG], &newest);
    let mut late = subscriber(second, from(From::Earliest));
    assert!(late.reads_file());
    assert_eq!(got(&mut late), [0, 1]);
    assert!(!late.reads_file(), "all is read");
}

#[test]
fn a_log_is_recovered_with_the_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let first = hub(Some(directory.path()));
    let (sink_before, mut writer) = sink(first, false, &[LOG], &[]);
    writer.write(&ones(&[0, 1])).unwrap();
    checkpoint(&sink_before, &mut writer);
    subscriber(first, named("a", From::Earliest)).acknowledge(1).unwrap();
    writer.write(&ones(&[2])).unwrap();
    // The checkpoint is safe, and the crash comes before the commit.
    let safe = writer.prepare(false).unwrap();
    writer.write(&ones(&[3])).unwrap();
    writer.prepare(false).unwrap();
    drop(writer);

    let second = hub(Some(directory.path()));
    let (sink_after, mut writer) = sink(second, false, &[LOG], &safe);
    let mut a = subscriber(second, named("a", From::Acknowledged));
    assert_eq!(got(&mut a), [1, 2]);
    writer.write(&ones(&[30])).unwrap();
    let newest = checkpoint(&sink_after, &mut writer);
    assert_eq!(got(&mut a), [30]);
    assert_eq!(got(&mut subscriber(second, from(From::Earliest))), [0, 1, 2, 30]);
    drop(writer);
    // Stopped, not finished: there is more to come.
    assert!(matches!(a.try_next(), Err(HubError::Gone(_))));

    let third = hub(Some(directory.path()));
    let again = StreamSink::new(third, options(&[LOG]), schema());
    assert!(again.recover(&safe, "").unwrap_err().to_string().contains("it ends at row 4, the checkpoint at row 3"));
    again.recover(&newest, "").unwrap();
    let hidden = fs::read_dir(directory.path().join("streams/s/log")).unwrap();
    assert_eq!(hidden.filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().starts_with('.')).count(), 0);
    // Begun afresh, numbers go on.
    let (_sink, _writer) = sink(hub(Some(directory.path())), false, &[LOG], &[]);
}

#[test]
fn rows_can_be_acknowledged_after_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let hub = hub(Some(directory.path()));
    let acknowledged = || hub.stream("s").unwrap().subscriptions()["a"];
    let (first, mut writer) = sink(hub, false, &[LOG], &[]);
    let mut a = subscriber(hub, named("a", From::Earliest));
    assert!(!a.owes());
    writer.write(&ones(&[0, 1, 2])).unwrap();
    let safe = checkpoint(&first, &mut writer);
    assert_eq!((got(&mut a), a.offset(), a.owes()), (vec![0, 1, 2], 3, true));
    first.finished();
    drop(writer);
    assert!(matches!(a.try_next(), Ok(Received::End)));
    a.acknowledge(2).unwrap();
    assert!(a.owes());
    // The next run knows of it. From then on the file is its own.
    let (_second, writer) = sink(hub, false, &[LOG], &safe);
    assert_eq!(acknowledged(), 2);
    a.acknowledge(3).unwrap();
    assert!(!a.owes());
    drop((a, writer));
    let (_third, _writer) = sink(hub, false, &[LOG], &safe);
    assert_eq!(acknowledged(), 2);
}

#[test]
fn a_removed_stream_begins_anew() {
    let directory = tempfile::tempdir().unwrap();
    let hub = hub(Some(directory.path()));
    let left = || fs::read_dir(directory.path().join("streams")).unwrap().count();
    for more in [&[LOG][..], &[SNAPSHOT], &[LOG, SNAPSHOT]] {
        let (first, mut writer) = sink(hub, false, more, &[]);
        writer.write(&ones(&[0, 1])).unwrap();
        checkpoint(&first, &mut writer);
        assert!(matches!(hub.remove("s"), Err(HubError::Refused(why)) if why.contains("while a running job writes it")));
        drop(writer);
        assert_eq!((hub.remove("s").unwrap(), hub.remove("s").unwrap(), left()), (true, false, 0));
    }
    let (_second, writer) = sink(hub, false, &[LOG], &[]);
    assert_eq!(hub.stream("s").unwrap().stats().next_offset, 0);
    drop(writer);
    // A removal that was cut short is completed by the next server.
    fs::rename(directory.path().join("streams/s"), directory.path().join("streams/.removed-s")).unwrap();
    hub.serve(Some(directory.path().to_path_buf()));
    assert_eq!(left(), 0);
    assert!(!Hub::new().remove("s").unwrap(), "nothing is kept without a directory");
}

#[test]
fn acknowledged_segments_go() {
    let directory = tempfile::tempdir().unwrap();
    let hub = hub(Some(directory.path()));
    let (sink, mut writer) = sink(hub, false, &[LOG, ("stream.retention-bytes", "0")], &[]);
    let mut a = subscriber(hub, named("a", From::Now));
    let mut next = |n: i64| {
        writer.write(&ones(&[n])).unwrap();
        checkpoint(&sink, &mut writer);
    };
    (0..3).for_each(&mut next);
    assert_eq!(got(&mut a), [0, 1, 2]);
    a.acknowledge(2).unwrap();
    next(3);
    assert!(refused(hub, from(From::Offset(1))).contains("no longer kept, the oldest is 2"));
    assert_eq!(got(&mut subscriber(hub, from(From::Earliest))), [2, 3]);
    let stream = hub.stream("s").unwrap();
    assert_eq!(stream.subscriptions().into_iter().collect::<Vec<_>>(), [("a".to_string(), 2)]);
    assert!(stream.forget("a").unwrap() && !stream.forget("a").unwrap());
    next(4);
    assert_eq!(got(&mut subscriber(hub, from(From::Earliest))), [4], "the newest stays");
    assert_eq!(got(&mut a), [3, 4]);
}

#[test]
fn one_job_writes_a_stream() {
    let directory = tempfile::tempdir().unwrap();
    let hub = hub(Some(directory.path()));
    let (first, one) = sink(hub, false, &[], &[]);
    let same = StreamSink::new(hub, options(&[]), schema());
    let two = writer(&same, "run").unwrap();
    let error = writer(&same, "other").err().unwrap().to_string();
    assert!(error.contains("written by another running job"), "{error}");
    let logged = StreamSink::new(hub, options(&[LOG]), schema());
    assert!(logged.recover(&[], "").is_err(), "it must not touch the files of a running job");
    let mut a = subscriber(hub, from(From::Now));
    drop(one);
    assert!(matches!(received(&mut a).1, Received::Pending));
    first.finished();
    drop(two);
    assert!(matches!(received(&mut a).1, Received::End));

    let (_log, _writer) = sink(hub, false, &[LOG], &[]);
    let second = StreamSink::new(hub, options(&[LOG]), schema());
    assert!(writer(&second, "run").is_err(), "two writers have no order");
    let nowhere: &'static Hub = Box::leak(Box::new(Hub::new()));
    let error = StreamSink::new(nowhere, options(&[]), schema()).recover(&[], "").unwrap_err().to_string();
    assert!(error.contains("needs `tidemill serve`"), "{error}");
}
