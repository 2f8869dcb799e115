//! The subscriber against a server that follows a script.

use super::super::script::{Script, Scripted, at_once, values};
use super::*;
use serde_json::{Value, json};

static RUNNING: AtomicBool = AtomicBool::new(false);

fn request(from: Start, name: Option<&str>) -> Request {
    let name = name.map(String::from);
    Request { stream: "s".into(), from, name, slow: "drop", queue_bytes: None, block_size: None, columns: None, filter: None }
}

fn subscriber(server: &Scripted, request: Request, window: usize) -> Subscriber {
    let options = SubscriberOptions { request, behind: None, window, reconnect: at_once(), updating: false };
    Subscriber::start(server.client(), options, Waker::noop()).unwrap()
}

/// All rows of a stream of 0 to 100, what was asked for to get them, and the breaks.
fn received(script: Script, from: Start, window: usize) -> (Vec<i64>, Vec<Value>, (u64, u64)) {
    let server = Scripted::start(Script { outlet: (0..100).collect(), block: 7, ..script });
    let mut subscriber = subscriber(&server, request(from, None), window);
    let mut rows = Vec::new();
    loop {
        match subscriber.next(&RUNNING).unwrap() {
            Received::Rows(message) => {
                rows.extend(values(&message.batch));
                assert!(message.bytes > 0 && message.arrival_ns > 0);
            }
            Received::Pending => unreachable!("nobody cancels"),
            Received::End => break,
        }
    }
    assert!(server.script().breaks.is_empty());
    let requests = server.script().requests.iter().map(|r| r["from"].clone()).collect();
    (rows, requests, subscriber.breaks())
}

#[test]
fn rows_come_in_order() {
    let (rows, requests, breaks) = received(Script { delivery: "exactly-once", ..Script::default() }, Start::Earliest, 1 << 20);
    assert_eq!((rows, breaks), ((0..100).collect(), (0, 0)));
    assert_eq!(requests, [json!("earliest")]);
    // Through a queue that holds one message.
    let (rows, ..) = received(Script { delivery: "exactly-once", ..Script::default() }, Start::Earliest, 1);
    assert_eq!(rows, (0..100).collect::<Vec<_>>());
}

#[test]
fn a_break_neither_loses_nor_repeats_what_the_log_has() {
    let script = Script { delivery: "exactly-once", breaks: vec![21, 7, 14], ..Script::default() };
    let (rows, requests, breaks) = received(script, Start::Earliest, 1 << 20);
    assert_eq!((rows, breaks), ((0..100).collect(), (3, 0)));
    assert_eq!(requests, [json!("earliest"), json!({ "offset": 21 }), json!({ "offset": 28 }), json!({ "offset": 42 })]);
}

#[test]
fn a_break_of_a_live_stream_is_counted() {
    let (rows, requests, breaks) = received(Script { delivery: "live", breaks: vec![14], ..Script::default() }, Start::Now, 1 << 20);
    assert_eq!((rows, breaks), ((0..14).chain(50..100).collect(), (1, 1)));
    // What it would go on with is no more.
    assert_eq!(requests, [json!("now"), json!({ "offset": 14 }), json!("now")]);
}

#[test]
fn numbers_of_another_process_are_not_trusted() {
    let script = Script { delivery: "exactly-once", breaks: vec![14], recounts: true, ..Script::default() };
    let (rows, requests, breaks) = received(script, Start::Earliest, 1 << 20);
    assert_eq!((rows.len(), requests.len(), breaks), (100, 2, (1, 1)));
}

#[test]
fn the_last_acknowledgement_is_heard_behind_the_end() {
    let script = Script { outlet: (0..20).collect(), block: 10, delivery: "exactly-once", ends: true, ..Script::default() };
    let server = Scripted::start(script);
    let mut subscriber = subscriber(&server, request(Start::Earliest, Some("me")), 1 << 20);
    let acknowledger = subscriber.acknowledger();
    let mut rows = Vec::new();
    while let Received::Rows(message) = subscriber.next(&RUNNING).unwrap() {
        rows.extend(values(&message.batch));
    }
    assert_eq!(rows, (0..20).collect::<Vec<_>>());
    // As when a job ends that reads the stream: its last checkpoint comes when the reader is gone.
    drop(subscriber);
    assert!(acknowledger.over() && acknowledger.acknowledge(20) && acknowledger.flush());
    assert!(!acknowledger.over(), "the server has ended the call");
    assert!(acknowledger.acknowledge(20), "it knows");
    assert!(!acknowledger.acknowledge(21), "nobody hears it any more");
    let script = server.script();
    assert_eq!((&script.acks[..], script.requests.len()), (&[20][..], 1));
}

#[test]
fn acknowledgements_are_heard() {
    let server = Scripted::start(Script { outlet: (0..20).collect(), block: 10, delivery: "exactly-once", ..Script::default() });
    let mut subscriber = subscriber(&server, request(Start::Acknowledged, Some("me")), 1 << 20);
    let acknowledger = subscriber.acknowledger();
    for expect in [10, 20] {
        let Received::Rows(message) = subscriber.next(&RUNNING).unwrap() else { panic!("rows were expected") };
        assert_eq!(message.next_offset, Some(expect));
        assert!(acknowledger.acknowledge(expect) && acknowledger.flush());
    }
    drop(subscriber);
    assert!(!acknowledger.acknowledge(20), "nobody hears it any more");
    acknowledge_once(&server.client(), &request(Start::Acknowledged, Some("me")), 20).unwrap();
    let script = server.script();
    assert!(script.acks.contains(&20), "{:?}", script.acks);
    assert_eq!((&script.requests[0]["name"], &script.requests[1]["from"]), (&json!("me"), &json!({ "offset": 20 })));
}

#[test]
fn what_cannot_be_had_is_an_error() {
    // The row asked for does not exist in a live stream.
    let server = Scripted::start(Script { delivery: "live", ..Script::default() });
    let mut refused = subscriber(&server, request(Start::Offset(5), None), 1 << 20);
    let error = refused.next(&RUNNING).unwrap_err().to_string();
    assert!(error.contains("a live stream has no row 5"), "{error}");
}

#[test]
fn where_to_go_on() {
    let state =
        |subscriptions, next_offset, received, snapshot| State { subscriptions, next_offset, received, snapshot, ..State::default() };
    for (state, first, expect) in [
        (state(0, None, false, false), Start::Now, Resume::First),
        (state(0, Some(5), false, false), Start::Now, Resume::Behind(5)),
        (state(1, None, false, false), Start::Earliest, Resume::First),
        (state(1, None, false, false), Start::Now, Resume::Anew),
        (state(1, None, false, false), Start::Snapshot, Resume::First),
        (state(1, None, true, true), Start::Snapshot, Resume::Now),
        (state(1, Some(7), true, true), Start::Snapshot, Resume::BehindContents(7)),
        (state(1, Some(7), true, false), Start::Snapshot, Resume::Behind(7)),
    ] {
        assert_eq!(state.resume(first), expect);
    }
    let begins = |resume, delivery, refused| begin(resume, Start::Earliest, delivery, refused);
    assert_eq!(begins(Resume::First, Some(false), false), (Start::Earliest, false));
    assert_eq!(begins(Resume::Anew, None, false), (Start::Earliest, true));
    assert_eq!(begins(Resume::Now, Some(true), false), (Start::Now, true));
    for delivery in [None, Some(false), Some(true)] {
        assert_eq!(begins(Resume::Behind(3), delivery, false), (Start::Offset(3), false));
        assert_eq!(begins(Resume::BehindContents(3), delivery, false), (Start::Offset(3), true));
    }
    for delivery in [None, Some(false)] {
        assert_eq!(begins(Resume::Behind(3), delivery, true), (Start::Now, true));
    }
    // What a log does not give is missed, and that is an error in the end.
    assert_eq!(begins(Resume::Behind(3), Some(true), true), (Start::Offset(3), false));
}
