//! Publishers and the reader of a job.

use arrow::array::{Int8Array, Int32Array, StringArray};
use arrow::buffer::{Buffer, ScalarBuffer};
use serde_json::json;
use tidemill_connect::Polled;

use super::*;
use crate::{HubError, Incoming, Mark, Publisher, Sent};

fn publisher(hub: &Hub, id: &str) -> Publisher {
    hub.stream("s").unwrap().publisher(id, Waker::noop()).unwrap()
}

fn incoming(batch: RecordBatch, offset: Option<u64>) -> Incoming {
    Incoming { batch, offset, position: None, bytes: 8, arrival_ns: 0 }
}

#[track_caller]
fn taken(publisher: &mut Publisher, values: &[i64], offset: Option<u64>, position: Option<serde_json::Value>) {
    let rows = Incoming { batch: batch(values), offset, position, bytes: 8 * values.len() as u64, arrival_ns: 5 };
    let sent = publisher.try_send(rows).unwrap();
    assert!(matches!(sent, Sent::Taken), "{sent:?}");
}

#[track_caller]
fn polled(reader: &mut Box<dyn Reader>, rows_max: usize) -> Vec<i64> {
    match reader.poll(rows_max).unwrap() {
        Polled::Rows(rows) => numbers(&rows.batch),
        Polled::Pending => Vec::new(),
        Polled::End => panic!("an inlet has no end"),
    }
}

#[test]
fn rows_are_numbered_duplicates_cut_and_gaps_refused() {
    let hub = hub(None);
    let source = source(hub, &[]);
    let mut reader = reader(&source, None);
    let mut a = publisher(hub, "a");
    assert_eq!(a.taken(), Mark::default());
    taken(&mut a, &[0, 1, 2], Some(0), None);
    taken(&mut a, &[1, 2, 3, 4], Some(1), None);
    taken(&mut a, &[0, 1], Some(0), None);
    taken(&mut a, &[5], None, None);
    let error = a.try_send(incoming(batch(&[9]), Some(9))).unwrap_err();
    assert_eq!(error, HubError::Gap { stream: "s".into(), publisher: "a".into(), expected: 6, got: 9 });
    assert_eq!(a.taken().offset, 6);
    assert_eq!(polled(&mut reader, 100), [0, 1, 2, 3, 4, 5]);
    let stats = hub.stream("s").unwrap().stats();
    assert_eq!((stats.published_rows, stats.duplicates_rows, stats.publishers, stats.queue_bytes), (6, 4, 1, 0));
    assert_eq!(stats.refused_gap, 1);
}

#[test]
fn batches_are_sliced_and_small_ones_put_together() {
    let hub = hub(None);
    let source = source(hub, &[]);
    let mut reader = reader(&source, None);
    let mut a = publisher(hub, "a");
    taken(&mut a, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], None, None);
    for n in 10..14 {
        a.try_send(Incoming { arrival_ns: n as u64, ..incoming(batch(&[n]), None) }).unwrap();
    }
    for expect in [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8, 9, 10, 11], vec![12, 13], vec![]] {
        assert_eq!(polled(&mut reader, 4), expect);
    }
    // A large batch is not cut to fill up what is half full.
    taken(&mut a, &[1, 2, 3], None, None);
    taken(&mut a, &[4, 5, 6], None, None);
    assert_eq!(polled(&mut reader, 4), [1, 2, 3]);
    a.try_send(Incoming { arrival_ns: 3, ..incoming(batch(&[7]), None) }).unwrap();
    let Polled::Rows(rows) = reader.poll(4).unwrap() else { panic!("rows wait") };
    assert_eq!((numbers(&rows.batch), rows.arrival_ns, rows.bytes), (vec![4, 5, 6, 7], 3, 32));
    // Nor is a sliver left of one, with which the next would have to be put together.
    taken(&mut a, &[0, 1, 2, 3, 4], None, None);
    taken(&mut a, &[5, 6, 7, 8], None, None);
    for expect in [vec![0, 1, 2], vec![3, 4], vec![5, 6, 7, 8]] {
        assert_eq!(polled(&mut reader, 4), expect);
    }
}

#[test]
fn a_restart_goes_on_from_the_checkpoint() {
    let hub = hub(None);
    let first = source(hub, &[]);
    let mut before = reader(&first, None);
    let mut a = publisher(hub, "a");
    let mut b = publisher(hub, "b");
    taken(&mut a, &[0, 1], Some(0), Some(json!({"line": 2})));
    taken(&mut a, &[2, 3, 4], Some(2), Some(json!({"line": 5})));
    taken(&mut b, &[100], Some(0), None);
    assert_eq!(polled(&mut before, 2), [0, 1]);
    assert_eq!(polled(&mut before, 1), [2]);
    let position = before.position();
    let busy = source(hub, &[]).open(&Split::new("inlet"), context(ReadRequest::all(schema())));
    assert!(busy.err().unwrap().to_string().contains("stream 's' is read by another running job"));
    drop(before);
    assert!(matches!(a.try_send(incoming(batch(&[5]), None)), Err(HubError::Gone(_))));
    assert!(matches!(hub.stream("s").unwrap().publisher("a", Waker::noop()), Err(HubError::NotPublished(_))));

    let again = source(hub, &[]);
    let mut after = reader(&again, Some(position));
    let mut a = publisher(hub, "a");
    // Row 2 was given, but only at row 2 the publisher said where it stands: it comes again and is cut.
    assert_eq!((a.taken(), a.acknowledged()), (Mark { offset: 2, position: Some(json!({"line": 2})) }, 3));
    taken(&mut a, &[2, 3, 4], Some(2), None);
    assert_eq!(polled(&mut after, 10), [3, 4]);
    assert_eq!(publisher(hub, "b").taken(), Mark::default());
    let damaged = source(hub, &[]);
    drop(after);
    let split = Split { id: "inlet".into(), position: Some(json!({"publishers": 1})) };
    assert!(damaged.open(&split, context(ReadRequest::all(schema()))).err().unwrap().to_string().contains("damaged"));
}

#[test]
fn a_full_queue_holds_back_and_wakes() {
    let hub = hub(None);
    let source = source(hub, &[("stream.queue-bytes", "1")]);
    let mut reader = reader(&source, None);
    let (waker, count) = waker();
    let mut a = hub.stream("s").unwrap().publisher("a", waker).unwrap();
    taken(&mut a, &[0], Some(0), None);
    let full = a.try_send(Incoming { position: Some(json!(1)), ..incoming(batch(&[1]), Some(1)) }).unwrap();
    let Sent::Full(back) = full else { panic!("there is no room") };
    assert_eq!((numbers(&back.batch), back.position, woken(&count)), (vec![1], Some(json!(1)), 0));
    assert_eq!(polled(&mut reader, 10), [0]);
    assert_eq!(woken(&count), 1);
    assert!(matches!(a.try_send(incoming(back.batch, Some(1))), Ok(Sent::Taken)));
}

/// Who is woken looks at the inlet at once, and waited for the lock of who woke it. Here that would be for ever.
#[test]
fn publishers_are_woken_behind_the_lock() {
    let hub = hub(None);
    let source = source(hub, &[]);
    let mut reader = reader(&source, None);
    let stream = hub.stream("s").unwrap();
    let (counting, count) = waker();
    let looking = Waker::new(move || {
        hub.stream("s").unwrap().stats();
        counting.wake();
    });
    let mut a = stream.publisher("a", looking.clone()).unwrap();
    taken(&mut a, &[0], Some(0), None);
    assert_eq!(polled(&mut reader, 10), [0]);
    source.committed(&[reader.position()]);
    assert_eq!((woken(&count), a.acknowledged()), (1, 1));
    let _same = stream.publisher("a", looking).unwrap();
    assert_eq!(woken(&count), 1, "another took its name");
    drop(reader);
    assert_eq!(woken(&count), 1, "the job has ended");
}

#[test]
fn rows_ahead_of_room_hold_back_those_behind_them() {
    let hub = hub(None);
    let source = source(hub, &[("stream.queue-bytes", "1")]);
    let mut reader = reader(&source, None);
    let (waker, count) = waker();
    let mut a = hub.stream("s").unwrap().publisher("a", waker).unwrap();
    let mut ahead = |n: i64| a.send_ahead(incoming(batch(&[n]), Some(n as u64))).and_then(|()| a.has_room()).unwrap();
    assert!(ahead(0), "the queue was empty before it");
    assert!(!ahead(1), "the first still waits");
    assert_eq!(woken(&count), 0);
    assert_eq!(polled(&mut reader, 1), [0]);
    assert_eq!(woken(&count), 1, "what is left was sent ahead");
    assert!(!ahead(2));
    assert_eq!(polled(&mut reader, 10), [1, 2]);
    assert_eq!(woken(&count), 1);
    // Those of another publisher are nobody's of this one, nor are those of an earlier connection.
    let mut b = publisher(hub, "b");
    taken(&mut b, &[7], Some(0), None);
    assert!(!ahead(3));
    drop(a);
    let a = publisher(hub, "a");
    assert!(!a.has_room().unwrap(), "rows of the earlier connection are in the queue");
    assert_eq!(polled(&mut reader, 10), [7, 3]);
    assert!(a.has_room().unwrap());
}

#[test]
fn acknowledgements_follow_checkpoints() {
    let hub = hub(None);
    let source = source(hub, &[]);
    let mut reader = reader(&source, None);
    let (waker, count) = waker();
    let mut a = hub.stream("s").unwrap().publisher("a", waker).unwrap();
    let mut anonymous = publisher(hub, "");
    a.urge();
    assert!(!source.wants_checkpoint(), "nothing waits");
    taken(&mut a, &[0, 1], None, None);
    taken(&mut anonymous, &[7], None, None);
    a.urge();
    assert!(!source.wants_checkpoint(), "the job has not seen the rows");
    assert_eq!(polled(&mut reader, 10), [0, 1, 7]);
    assert!(source.wants_checkpoint());
    taken(&mut a, &[2], None, None);
    a.urge();
    let position = reader.position();
    assert!(!source.wants_checkpoint(), "it is on its way");
    assert_eq!((a.acknowledged(), woken(&count)), (0, 0));
    source.committed(&[position]);
    assert_eq!((a.acknowledged(), anonymous.check(), woken(&count)), (2, Ok(1), 1));
    // The second urge was for row 2.
    assert_eq!(polled(&mut reader, 10), [2]);
    assert!(source.wants_checkpoint());
    source.committed(&[reader.position()]);
    assert_eq!((a.acknowledged(), source.wants_checkpoint()), (3, false));
    drop(reader);
    assert!(woken(&count) > 0 && matches!(a.check(), Err(HubError::Gone(_))));
}

#[test]
fn one_connection_a_name() {
    let hub = hub(None);
    let source = source(hub, &[]);
    let _reader = reader(&source, None);
    let mut first = publisher(hub, "a");
    taken(&mut first, &[0], None, None);
    let mut second = publisher(hub, "a");
    assert!(matches!(first.try_send(incoming(batch(&[1]), None)), Err(HubError::Replaced(why)) if why.contains("another publisher")));
    drop(first);
    assert_eq!(second.taken().offset, 1);
    taken(&mut second, &[1], Some(1), None);
    // Those without a name are many, and have no numbers.
    let (mut x, _y) = (publisher(hub, ""), publisher(hub, ""));
    taken(&mut x, &[5], None, None);
    assert!(matches!(x.try_send(incoming(batch(&[5]), Some(0))), Err(HubError::Schema(_))));
    assert_eq!(hub.stream("s").unwrap().stats().publishers, 3);
}

#[test]
fn columns_are_found_by_name_and_metadata_added() {
    let hub = hub(None);
    let physical: SchemaRef = Arc::new(Schema::new(vec![
        Field::new("n", DataType::Int64, false),
        Field::new("s", DataType::Utf8, true),
        Field::new("m", DataType::Int64, true),
    ]));
    let metadata = vec![
        ("publisher".to_string(), Arc::new(Field::new("who", DataType::Utf8, true))),
        ("offset".to_string(), Arc::new(Field::new("at", DataType::Int64, true))),
    ];
    let request = ReadRequest { physical: physical.clone(), projection: vec![1, 0], metadata };
    let mut reader = source(hub, &[]).open(&Split::new("inlet"), context(request)).unwrap();
    let mut a = publisher(hub, "a");
    let n: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let s: ArrayRef = Arc::new(StringArray::from(vec!["x", "y"]));
    let kinds = |codes: Vec<i8>| Arc::new(Int8Array::from(codes)) as ArrayRef;
    let rows = |columns: Vec<(&str, ArrayRef)>| RecordBatch::try_from_iter(columns).unwrap();
    let sent = a.try_send(incoming(rows(vec![("row_kind", kinds(vec![0, 0])), ("s", s.clone()), ("n", n.clone())]), None));
    assert!(matches!(sent, Ok(Sent::Taken)));
    let Polled::Rows(got) = reader.poll(10).unwrap() else { panic!("rows wait") };
    assert_eq!(got.batch.schema().fields().iter().map(|f| f.name().as_str()).collect::<Vec<_>>(), ["s", "n", "who", "at"]);
    assert_eq!(got.batch.column(0).as_ref(), s.as_ref());
    assert_eq!(got.batch.column(2).as_string::<i32>().value(1), "a");
    assert_eq!(got.batch.column(3).as_primitive::<Int64Type>().values().as_ref(), [0, 1]);

    let wrong: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    let nulls: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
    for (columns, expect) in [
        (vec![("n", wrong)], "it has n BIGINT NOT NULL, s STRING, m BIGINT; they have n INT"),
        (vec![("s", s)], "they have s STRING"),
        (vec![("n", n.clone()), ("z", n.clone())], "z BIGINT"),
        (vec![("n", nulls)], "'n' is NOT NULL"),
        (vec![("n", n), ("row_kind", kinds(vec![0, 3]))], "new rows only"),
    ] {
        match a.try_send(incoming(rows(columns), None)) {
            Err(HubError::Schema(why)) => assert!(why.contains(expect), "{why}"),
            other => panic!("{expect}: {other:?}"),
        }
    }
    let stats = hub.stream("s").unwrap().stats();
    assert_eq!((stats.refused_schema, stats.refused_null, stats.refused_malformed, stats.refused_gap), (4, 1, 0, 0));
}

/// One column of eight kept the whole message for as long as its rows waited, where an eighth was counted.
#[test]
fn few_columns_do_not_keep_a_message() {
    for (projection, shared) in [(vec![1], false), (vec![1, 4, 6], true)] {
        let hub = hub(None);
        let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let physical: SchemaRef = Arc::new(Schema::new(names.map(|name| Field::new(name, DataType::Int64, true)).to_vec()));
        let request = ReadRequest { physical: physical.clone(), projection, metadata: Vec::new() };
        let mut reader = source(hub, &[]).open(&Split::new("inlet"), context(request)).unwrap();
        let mut a = publisher(hub, "a");
        let body = Buffer::from_vec((0..8000i64).collect::<Vec<_>>());
        let column = |at: usize| -> ArrayRef { Arc::new(Int64Array::new(ScalarBuffer::new(body.clone(), at * 1000, 1000), None)) };
        let rows = RecordBatch::try_new(physical, (0..names.len()).map(column).collect()).unwrap();
        let sent = a.try_send(Incoming { bytes: body.len() as u64, ..incoming(rows, None) });
        assert!(matches!(sent, Ok(Sent::Taken)), "{sent:?}");
        let Polled::Rows(got) = reader.poll(10_000).unwrap() else { panic!("rows wait") };
        assert_eq!(numbers(&got.batch), (1000..2000).collect::<Vec<i64>>());
        let at = got.batch.column(0).as_primitive::<Int64Type>().values().as_ptr().cast::<u8>();
        assert_eq!(body.as_slice().as_ptr_range().contains(&at), shared, "whether memory is shared");
    }
}

#[test]
fn a_table_may_take_changes() {
    let hub = hub(None);
    let source = source(hub, &[("stream.changes", "all")]);
    assert_eq!(source.changelog(), tidemill_connect::Changelog::All);
    let mut reader = reader(&source, None);
    let stream = hub.stream("s").unwrap();
    assert!(stream.inlet_changes());
    let names = |schema: SchemaRef| schema.fields().iter().map(|f| f.name().clone()).collect::<Vec<_>>();
    assert_eq!(names(stream.inlet_schema().unwrap()), ["n", "row_kind"]);
    let mut a = publisher(hub, "a");
    let rows = |numbers: &[i64], kinds: &[Option<i8>]| {
        let n: ArrayRef = Arc::new(Int64Array::from(numbers.to_vec()));
        let kinds: ArrayRef = Arc::new(Int8Array::from(kinds.to_vec()));
        RecordBatch::try_from_iter_with_nullable([("row_kind", kinds, true), ("n", n, true)]).unwrap()
    };
    // New rows without a word, then some that say what they do, all given together.
    taken(&mut a, &[1, 2], None, None);
    a.try_send(incoming(rows(&[1, 7, 2, 9], &[Some(1), Some(2), Some(3), None]), None)).unwrap();
    let Polled::Rows(got) = reader.poll(100).unwrap() else { panic!("rows wait") };
    assert_eq!((numbers(&got.batch), got.batch.num_columns()), (vec![1, 2, 1, 7, 2, 9], 1));
    let short: Vec<_> = got.kinds.expect("changes").iter().map(|k| k.short()).collect();
    assert_eq!(short, ["+I", "+I", "-U", "+U", "-D", "+I"]);
    // What is only new needs no kinds.
    a.try_send(incoming(rows(&[3], &[Some(0)]), None)).unwrap();
    let Polled::Rows(got) = reader.poll(100).unwrap() else { panic!("a row waits") };
    assert!(got.kinds.is_none());
    match a.try_send(incoming(rows(&[3, 4], &[Some(0), Some(4)]), None)) {
        Err(HubError::Schema(why)) => assert!(why.contains("row 2: column 'row_kind' is 4"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(stream.stats().refused_malformed, 1);
    assert_eq!(super::source(hub, &[("stream.changes", "upsert")]).changelog(), tidemill_connect::Changelog::Upsert);
}

/// Names of runs that are over make room for new ones; who told a position, is connected, or has rows that are not safe stays.
#[test]
fn names_do_not_fill_a_stream() {
    let hub = hub(None);
    let source = source(hub, &[]);
    let _reader = reader(&source, None);
    let mut kept = publisher(hub, "kept");
    taken(&mut kept, &[1], None, Some(json!({"at": 1})));
    let mut unsafe_rows = publisher(hub, "not safe");
    taken(&mut unsafe_rows, &[1], None, None);
    drop((kept, unsafe_rows));
    let _connected = publisher(hub, "connected");
    for run in 0..crate::inlet::PUBLISHERS_MAX + 10 {
        drop(publisher(hub, &format!("run {run}")));
    }
    assert_eq!(["kept", "not safe", "run 0"].map(|id| publisher(hub, id).taken().offset), [1, 1, 0]);
    let stream = hub.stream("s").unwrap();
    assert!(matches!(stream.forget_publisher("connected"), Err(HubError::Refused(_))));
    assert_eq!((stream.forget_publisher("kept"), stream.forget_publisher("kept")), (Ok(true), Ok(false)));
    assert_eq!(publisher(hub, "kept").taken(), Mark::default());
}

/// The names that the stream knows.
fn known(hub: &Hub) -> Vec<String> {
    let stream = hub.stream("s").unwrap();
    let mut names: Vec<String> = stream.inlet.lock().names.keys().map(|name| name.to_string()).collect();
    names.sort_unstable();
    names
}

fn forget_finished(hub: &Hub, most: usize) {
    let stream = hub.stream("s").unwrap();
    stream.inlet.lock().forget_finished(most);
}

/// As if the first minute of the job were over.
fn pass_first_minute(hub: &Hub) {
    let stream = hub.stream("s").unwrap();
    stream.inlet.lock().restored_until_ns = 0;
}

/// Who connected longest ago was forgotten first, also if it had been there ever since and just lost its connection.
#[test]
fn who_ended_longest_ago_is_forgotten_first() {
    let hub = hub(None);
    let source = source(hub, &[]);
    let _reader = reader(&source, None);
    let long = publisher(hub, "long");
    drop(publisher(hub, "short"));
    drop(long);
    forget_finished(hub, 1);
    assert_eq!(known(hub), ["long"]);
}

/// After a restart all names were those of publishers that are gone, and whoever had not connected again yet began anew with row 0.
#[test]
fn names_of_a_checkpoint_stay_for_a_while() {
    let hub = hub(None);
    let source = source(hub, &[]);
    let position = json!({"publishers": {"a": {"offset": 3}, "b": {"offset": 4}}, "sequence": 1});
    let _reader = reader(&source, Some(position));
    drop(publisher(hub, "run"));
    forget_finished(hub, 10);
    assert_eq!(known(hub), ["a", "b"]);
    let a = publisher(hub, "a");
    assert_eq!(a.taken().offset, 3);
    pass_first_minute(hub);
    forget_finished(hub, 10);
    assert_eq!(known(hub), ["a"]);
}

/// Who counts its rows itself is not connected between two requests, and was forgotten as one that is gone.
#[test]
fn who_counts_by_itself_is_not_forgotten() {
    let hub = hub(None);
    let first = source(hub, &[]);
    let mut before = reader(&first, None);
    for id in ["counts", "run"] {
        let mut publisher = publisher(hub, id);
        taken(&mut publisher, &[7], Some(0), None);
        if id == "counts" {
            publisher.keep_name();
        }
    }
    assert_eq!(polled(&mut before, 10), [7, 7]);
    let position = before.position();
    first.committed(std::slice::from_ref(&position));
    forget_finished(hub, 10);
    assert_eq!(known(hub), ["counts"]);
    drop(before);
    let again = source(hub, &[]);
    let _after = reader(&again, Some(position));
    pass_first_minute(hub);
    forget_finished(hub, 10);
    assert_eq!(known(hub), ["counts"]);
    assert_eq!(publisher(hub, "counts").taken().offset, 1);
}

/// Each publisher without a name looked through all names of a full stream and had some forgotten, though it takes no place among
/// them; and each new name that was refused looked through all of them again.
#[test]
fn names_are_looked_through_only_for_new_ones_and_now_and_then() {
    let hub = hub(None);
    let source = source(hub, &[]);
    let named = |at: usize| (format!("restored {at}"), json!({"offset": 1}));
    let publishers: serde_json::Map<String, serde_json::Value> = (1..crate::inlet::PUBLISHERS_MAX).map(named).collect();
    let _reader = reader(&source, Some(json!({"publishers": publishers, "sequence": 1})));
    let stream = hub.stream("s").unwrap();
    let knows = |id: &str| stream.inlet.lock().names.contains_key(id);
    drop(publisher(hub, "run"));
    drop(publisher(hub, ""));
    assert!(knows("run"));
    let next = publisher(hub, "next");
    assert!(!knows("run") && knows("next"));
    let refused = || matches!(stream.publisher("new", Waker::noop()), Err(HubError::TooMany(_)));
    assert!(refused());
    // Not before a second is over, which here lasts as long as the test likes.
    assert!(std::mem::replace(&mut stream.inlet.lock().forgetting_at_ns, u64::MAX) > 0);
    drop(next);
    assert!(refused());
    stream.inlet.lock().forgetting_at_ns = 0;
    assert!(!refused() && knows("new") && !knows("next"));
}
