//! Flight from outside: a client of gRPC against a served hub whose jobs are played by hand.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, DictionaryArray, Int32Array, Int64Array, RecordBatch};
use arrow::datatypes::{Int8Type, Int32Type, Schema};
use arrow::ipc::CompressionType;
use arrow::ipc::writer::IpcWriteOptions;
use arrow_flight::encode::{DictionaryHandling, FlightDataEncoderBuilder};
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::utils::flight_data_to_batches;
use arrow_flight::{Action, Criteria, FlightClient, FlightData, FlightDescriptor, PutResult, Ticket};
use futures::{StreamExt, TryStreamExt};
use serde_json::{Value, json};
use tidemill_block::RowKind;
use tidemill_connect::{ReadRequest, Waker};
use tidemill_hub::{Hub, Received, SubscribeRequest};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};

use super::encode::{Encoded, filtered_messages, messages, schema_message};
use crate::auth::Tokens;
use crate::streams::fixture::{ReadJob, WriteJob, batch, numbers, schema, serve, until};

async fn channel() -> Channel {
    let address = serve().await;
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

/// A publisher: what it sends, what it is answered.
struct Put {
    sender: mpsc::Sender<FlightData>,
    answers: Streaming<PutResult>,
}

impl Put {
    async fn new(channel: &Channel, path: &[&str], schema: &Arc<Schema>) -> Result<Put, Status> {
        Put::noting(channel, path, schema, "").await
    }

    /// With a note beside the schema.
    async fn noting(channel: &Channel, path: &[&str], schema: &Arc<Schema>, note: &'static str) -> Result<Put, Status> {
        let (sender, receiver) = mpsc::channel(8);
        let path = path.iter().map(|p| p.to_string()).collect();
        let opening = schema_message(schema).with_descriptor(FlightDescriptor::new_path(path)).with_app_metadata(note);
        sender.send(opening).await.unwrap();
        let answers = FlightServiceClient::new(channel.clone()).do_put(ReceiverStream::new(receiver)).await?.into_inner();
        Ok(Put { sender, answers })
    }

    async fn send(&self, rows: &RecordBatch, note: Value) {
        let mut message = messages(rows, 0, true).unwrap().remove(0);
        message.app_metadata = note.to_string().into();
        self.sender.send(message).await.unwrap();
    }

    async fn answer(&mut self) -> Result<Option<Value>, Status> {
        Ok(self.answers.message().await?.map(|a| serde_json::from_slice(&a.app_metadata).unwrap()))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publisher_resumes_after_the_acknowledged_rows() {
    let channel = channel().await;
    let mut job = ReadJob::new("flight-put");
    let mut put = Put::new(&channel, &["flight-put", "p"], &schema()).await.unwrap();
    assert_eq!(put.answer().await.unwrap(), Some(json!({"offset": 0, "acknowledged": 0, "position": null})));
    put.send(&batch(&[0, 1, 2]), json!({"offset": 0, "position": {"line": 3}, "urge": true})).await;
    assert_eq!(job.take(3).await, [0, 1, 2]);
    job.checkpoint().await;
    assert_eq!(put.answer().await.unwrap(), Some(json!({"acknowledged": 3})));
    drop(put);

    let mut put = Put::new(&channel, &["flight-put", "p"], &schema()).await.unwrap();
    assert_eq!(put.answer().await.unwrap(), Some(json!({"offset": 3, "acknowledged": 3, "position": {"line": 3}})));
    put.send(&batch(&[2, 3, 4]), json!({"offset": 2})).await;
    let Put { sender, mut answers } = put;
    drop(sender);
    assert_eq!(job.take(2).await, [3, 4]);
    job.checkpoint().await;
    let mut last = None;
    while let Some(answer) = answers.message().await.unwrap() {
        last = Some(answer);
    }
    assert_eq!(last.unwrap().app_metadata.as_ref(), br#"{"acknowledged":5}"#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_publishers_are_told_why_and_harm_nobody() {
    let channel = channel().await;
    let mut job = ReadJob::new("flight-wrong");
    let refused = async |path: &[&str], schema: &Arc<Schema>| Put::new(&channel, path, schema).await.err().expect("it is refused");
    let other: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    let other = RecordBatch::try_from_iter([("n", other)]).unwrap();
    let status = refused(&["flight-wrong"], &other.schema()).await;
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("sent: (n INT") && status.message().contains("(n BIGINT NOT NULL, s STRING)"), "{status}");
    let status = refused(&["flight-wrung"], &schema()).await;
    assert_eq!(status.code(), Code::NotFound);
    assert!(status.message().contains("did you mean 'flight-wrong'?"), "{status}");
    assert_eq!(refused(&["a", "b", "c"], &schema()).await.code(), Code::InvalidArgument);

    let mut good = Put::new(&channel, &["flight-wrong"], &schema()).await.unwrap();
    good.answer().await.unwrap();
    for (metadata, body) in [(&b"{"[..], None), (&b"{}"[..], Some(&b"short"[..]))] {
        let mut bad = Put::new(&channel, &["flight-wrong"], &schema()).await.unwrap();
        bad.answer().await.unwrap();
        let mut message = messages(&batch(&[1]), 0, true).unwrap().remove(0);
        message.app_metadata = metadata.to_vec().into();
        message.data_body = body.map_or(message.data_body, |b| b.to_vec().into());
        bad.sender.send(message).await.unwrap();
        assert_eq!(bad.answer().await.unwrap_err().code(), Code::InvalidArgument);
    }
    // A text that is no UTF-8.
    let mut bad = Put::new(&channel, &["flight-wrong"], &schema()).await.unwrap();
    bad.answer().await.unwrap();
    let mut message = messages(&batch(&[1]), 0, true).unwrap().remove(0);
    let mut body = message.data_body.to_vec();
    let at = body.windows(2).position(|text| text == b"s1").expect("the text of row 1");
    body[at] = 0xff;
    (message.data_body, message.app_metadata) = (body.into(), "{}".into());
    bad.sender.send(message).await.unwrap();
    let status = bad.answer().await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().to_lowercase().contains("utf"), "{status}");
    // A gap: row 7 comes first.
    let mut gap = Put::new(&channel, &["flight-wrong", "g"], &schema()).await.unwrap();
    gap.answer().await.unwrap();
    gap.send(&batch(&[7]), json!({"offset": 7})).await;
    assert_eq!(gap.answer().await.unwrap_err().code(), Code::FailedPrecondition);
    let mut first = Put::new(&channel, &["flight-wrong", "twice"], &schema()).await.unwrap();
    first.answer().await.unwrap();
    let _second = Put::new(&channel, &["flight-wrong", "twice"], &schema()).await.unwrap();
    assert_eq!(first.answer().await.unwrap_err().code(), Code::Aborted, "to come back would only end the other one");
    good.send(&batch(&[5]), json!({})).await;
    assert_eq!(job.take(1).await, [5]);
    drop(job);
    assert_eq!(good.answer().await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(refused(&["flight-wrong"], &schema()).await.code(), Code::FailedPrecondition);
}

/// A call that never said what it was about was kept for as long as its connection lived.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_first_message_does_not_come_is_ended() {
    let mut client = FlightServiceClient::new(channel().await);
    let mut other = client.clone();
    let nothing = || futures::stream::pending::<FlightData>();
    let (put, exchange) = tokio::join!(client.do_put(nothing()), other.do_exchange(nothing()));
    for status in [put.unwrap_err(), exchange.unwrap_err()] {
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        assert!(status.message().contains("no message has come for 10 seconds"), "{status}");
    }
}

#[tokio::test]
async fn a_token_that_expires_before_the_first_message_ends_the_call() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens");
    std::fs::write(&path, r#"{"token": "t", "name": "late", "expires": "2020-01-01T00:00:00Z"}"#).unwrap();
    let access = Tokens::open(path).unwrap().find("t").unwrap();
    let never = std::future::pending::<Result<Option<()>, Status>>();
    let status = super::first(never, &access).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    assert!(status.message().contains("'late' has expired"), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_that_the_job_does_not_read_may_be_left_out() {
    let channel = channel().await;
    let path = ["flight-columns", "p"];
    let mut job = ReadJob::reading(path[0], ReadRequest { projection: vec![0], ..ReadRequest::all(schema()) });
    let info = FlightClient::new(channel.clone()).get_flight_info(FlightDescriptor::new_path(vec![path[0].into()])).await.unwrap();
    let about: Value = serde_json::from_slice(&info.app_metadata).unwrap();
    assert_eq!(about["wanted"], json!(["n"]));
    let rows = batch(&[1, 2]).project(&[0]).unwrap();
    let mut put = Put::noting(&channel, &path, &rows.schema(), r#"{"projected":true}"#).await.unwrap();
    put.answer().await.unwrap();
    put.send(&rows, json!({"offset": 0})).await;
    assert_eq!(job.take(2).await, [1, 2]);
    drop(job);
    assert_eq!(put.answer().await.unwrap_err().code(), Code::Unavailable);
    // Another job comes, which reads the other column, too.
    let _job = ReadJob::new(path[0]);
    let status = Put::noting(&channel, &path, &rows.schema(), r#"{"projected":true}"#).await.err().expect("it is refused");
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("uses its column 's'"), "{status}");
    // Who leaves it out and does not ask means NULL.
    assert!(Put::new(&channel, &path, &rows.schema()).await.is_ok());
}

/// Messages that hold a dictionary and no rows come before those with rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dictionaries_and_compressed_bodies_are_taken() {
    let channel = channel().await;
    let mut job = ReadJob::new("flight-packed");
    for codec in [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)] {
        let n: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let s: ArrayRef = Arc::new(DictionaryArray::<Int32Type>::from_iter(["a", "b", "a"]));
        let rows = RecordBatch::try_from_iter_with_nullable([("n", n, false), ("s", s, true)]).unwrap();
        let messages = FlightDataEncoderBuilder::new()
            .with_flight_descriptor(Some(FlightDescriptor::new_path(vec!["flight-packed".into()])))
            .with_dictionary_handling(DictionaryHandling::Resend)
            .with_options(IpcWriteOptions::default().try_with_compression(codec).unwrap())
            .build(futures::stream::iter([Ok(rows.clone()), Ok(rows)]));
        let mut answers = FlightClient::new(channel.clone()).do_put(messages).await.unwrap();
        assert!(answers.try_next().await.unwrap().is_some(), "the welcome");
        assert_eq!(job.take(6).await, [1, 2, 3, 1, 2, 3], "{codec:?}");
    }
}

/// Subscribes with a ticket of JSON, or a name.
async fn get(channel: &Channel, ticket: impl ToString) -> Result<arrow_flight::decode::FlightRecordBatchStream, Status> {
    let mut client = FlightClient::new(channel.clone());
    client.do_get(Ticket::new(ticket.to_string())).await.map_err(Status::from)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscribers_begin_with_the_contents_and_follow() {
    let channel = channel().await;
    let mut job = WriteJob::new("flight-view", &[("stream.snapshot", "true")], true);
    job.change(&[(RowKind::Insert, 1), (RowKind::Insert, 2)]);
    job.change(&[(RowKind::UpdateBefore, 1), (RowKind::UpdateAfter, 10)]);
    let mut now = get(&channel, "flight-view").await.unwrap();
    let mut all = get(&channel, json!({"stream": "flight-view", "from": "snapshot"})).await.unwrap();
    let filtered = json!({"stream": "flight-view", "from": "snapshot", "columns": ["s"], "filter": "n >= 10"});
    let mut filtered = get(&channel, filtered).await.unwrap();
    let mut contents = numbers(&all.try_next().await.unwrap().unwrap());
    contents.sort_unstable();
    assert_eq!(contents, [2, 10]);
    let complete = all.try_next().await.unwrap().unwrap();
    assert_eq!(complete.num_rows(), 0, "a batch without rows says that the contents are complete");
    let rows = filtered.try_next().await.unwrap().unwrap();
    assert_eq!(rows.schema().fields().iter().map(|f| f.name().as_str()).collect::<Vec<_>>(), ["s", "row_kind"]);
    assert_eq!(rows.column(0).as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["s10"]);

    assert_eq!(filtered.try_next().await.unwrap().unwrap().num_rows(), 0);

    job.change(&[(RowKind::Delete, 2), (RowKind::Insert, 30)]);
    for rows in [&mut now, &mut all] {
        let rows = rows.try_next().await.unwrap().unwrap();
        assert_eq!(numbers(&rows), [2, 30]);
        assert_eq!(rows.column(2).as_primitive::<Int8Type>().values().as_ref(), [3, 0]);
    }
    let rows = filtered.try_next().await.unwrap().unwrap();
    assert_eq!(rows.column(0).as_string::<i32>().value(0), "s30");

    for (ticket, says) in [
        (json!({"stream": "flight-view", "filter": "m > 1"}), "the filter 'm > 1'"),
        (json!({"stream": "flight-view", "columns": ["m"]}), "there is no column 'm'"),
        (json!({"stream": "flight-view", "from": {"offset": 1}}), "flight-view"),
        (json!({"stream": "flight-view", "fron": 1}), "the ticket cannot be read"),
    ] {
        let status = get(&channel, ticket).await.expect_err("it is refused");
        assert!(status.code() == Code::InvalidArgument && status.message().contains(says), "{status}");
    }
    drop(job);
    let status = get(&channel, "flight-view").await.expect_err("nobody writes it");
    assert_eq!(status.code(), Code::FailedPrecondition);
}

/// Subscribes by an exchange; what to acknowledge with, the messages behind the schema, and at which row
/// they begin.
async fn exchange(channel: &Channel, stream: &str, request: Value) -> (mpsc::Sender<FlightData>, Streaming<FlightData>, u64) {
    let (sender, receiver) = mpsc::channel(8);
    let descriptor = FlightDescriptor::new_path(vec![stream.to_string()]);
    let first = FlightData::new().with_descriptor(descriptor).with_app_metadata(request.to_string());
    sender.send(first).await.unwrap();
    let answer = FlightServiceClient::new(channel.clone()).do_exchange(ReceiverStream::new(receiver)).await.unwrap();
    let mut messages = answer.into_inner();
    let schema = messages.message().await.unwrap().unwrap();
    assert!(!schema.data_header.is_empty(), "the schema comes first");
    (sender, messages, about(&schema)["offset"].as_u64().expect("where it begins"))
}

/// What stands beside the rows of a message.
fn about(message: &FlightData) -> Value {
    serde_json::from_slice(&message.app_metadata).unwrap()
}

fn ack(offset: u64) -> FlightData {
    FlightData::new().with_app_metadata(json!({"ack": offset}).to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acknowledging_subscriber_goes_on_where_it_was() {
    let channel = channel().await;
    let mut job = WriteJob::new("flight-log", &[("stream.delivery", "exactly-once")], false);
    job.write(&[0, 1, 2]);
    job.commit();
    let (sender, mut messages, begins) = exchange(&channel, "flight-log", json!({"name": "me", "from": "earliest"})).await;
    let message = messages.message().await.unwrap().unwrap();
    assert_eq!((begins, message.app_metadata.as_ref()), (0, &br#"{"offset":3,"snapshot":false}"#[..]));
    sender.send(ack(2)).await.unwrap();
    let stream = Hub::global().stream("flight-log").unwrap();
    until(|| (stream.subscriptions().get("me") == Some(&2)).then_some(())).await;
    drop((sender, messages));

    job.write(&[3]);
    job.commit();
    let (sender, messages, begins) = exchange(&channel, "flight-log", json!({"name": "me", "from": "acknowledged"})).await;
    assert_eq!(begins, 2);
    let data = futures::stream::iter([Ok(schema_message(&schema()))]).chain(messages.map_err(FlightError::from));
    let mut rows = arrow_flight::decode::FlightRecordBatchStream::new_from_flight_data(data);
    let mut got = Vec::new();
    while got.len() < 2 {
        got.extend(numbers(&rows.try_next().await.unwrap().unwrap()));
    }
    assert_eq!(got, [2, 3]);
    sender.send(FlightData::new().with_app_metadata(r#"{"ack":"x"}"#)).await.unwrap();
    assert!(rows.try_next().await.is_err(), "a wrong acknowledgement ends the call");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscriber_may_bound_the_rows_of_a_message() {
    let channel = channel().await;
    let mut job = WriteJob::new("flight-blocks", &[("stream.delivery", "exactly-once")], false);
    job.write(&[0, 1, 2, 3, 4]);
    job.commit();
    let mut client = FlightServiceClient::new(channel);
    let ticket = |ticket: Value| Ticket::new(ticket.to_string());
    let filtered = json!({"stream": "flight-blocks", "from": "earliest", "block_size": 2, "filter": "n <> 3"});
    for (request, expect) in [
        (json!({"stream": "flight-blocks", "from": "earliest", "block_size": 2}), vec![(vec![0, 1], 2), (vec![2, 3], 4), (vec![4], 5)]),
        (json!({"stream": "flight-blocks", "from": {"offset": 1}, "block_size": 3}), vec![(vec![1, 2, 3], 4), (vec![4], 5)]),
        (json!({"stream": "flight-blocks", "from": "earliest", "block_size": 5}), vec![(vec![0, 1, 2, 3, 4], 5)]),
        // Of what a filter leaves there are no more than that.
        (filtered, vec![(vec![0, 1], 2), (vec![2], 4), (vec![4], 5)]),
    ] {
        let mut messages = client.do_get(ticket(request.clone())).await.unwrap().into_inner();
        let schema = messages.message().await.unwrap().unwrap();
        for (rows, offset) in expect {
            let message = messages.message().await.unwrap().unwrap();
            assert_eq!(about(&message)["offset"], offset, "{request}");
            let data = futures::stream::iter([Ok(schema.clone()), Ok(message)]);
            let mut batches = arrow_flight::decode::FlightRecordBatchStream::new_from_flight_data(data);
            assert_eq!(numbers(&batches.try_next().await.unwrap().unwrap()), rows, "{request}");
        }
    }
    let error = client.do_get(ticket(json!({"stream": "flight-blocks", "block_size": 0}))).await.unwrap_err();
    assert!(error.message().contains("block_size 0: expected 1 to"), "{error}");
    for name in [String::new(), "n".repeat(129)] {
        let error = client.do_get(ticket(json!({"stream": "flight-blocks", "name": name}))).await.unwrap_err();
        assert!(error.code() == Code::InvalidArgument && error.message().contains("expected 1 to 128"), "{error}");
    }
}

/// An acknowledgement has no other way than the call: it stays open behind the end of the rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_acknowledgement_of_a_job_that_ends_is_heard() {
    let channel = channel().await;
    let mut job = WriteJob::new("flight-end", &[("stream.delivery", "exactly-once")], false);
    job.write(&[0, 1, 2]);
    let request = |name: &str| json!({"name": name, "from": "earliest"});
    let (sender, mut late, _) = exchange(&channel, "flight-end", request("late")).await;
    let (silent_sender, mut silent, _) = exchange(&channel, "flight-end", request("silent")).await;
    let (prompt_sender, mut prompt, _) = exchange(&channel, "flight-end", request("prompt")).await;
    job.commit();
    for messages in [&mut late, &mut silent, &mut prompt] {
        assert_eq!(about(&messages.message().await.unwrap().unwrap())["offset"], 3);
    }
    prompt_sender.send(ack(3)).await.unwrap();
    let stream = Hub::global().stream("flight-end").unwrap();
    until(|| (stream.subscriptions().get("prompt") == Some(&3)).then_some(())).await;
    job.finish();
    assert!(prompt.message().await.unwrap().is_none(), "nothing is owed");
    for messages in [&mut late, &mut silent] {
        let last = messages.message().await.unwrap().unwrap();
        assert_eq!(about(&last), json!({"offset": 3, "snapshot": false, "end": true}));
    }
    sender.send(ack(3)).await.unwrap();
    assert!(late.message().await.unwrap().is_none());
    // The next run knows who has acknowledged.
    let _again = WriteJob::new("flight-end", &[("stream.delivery", "exactly-once")], false);
    let expect = [("late", 3), ("prompt", 3), ("silent", 0)].map(|(name, rows)| (name.to_string(), rows));
    assert_eq!(stream.subscriptions().into_iter().collect::<Vec<_>>(), expect);
    // Nobody waits for one that has half closed.
    drop(silent_sender);
    assert!(silent.message().await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_subscriber_is_told_when_it_begins_and_when_it_is_ended() {
    let channel = channel().await;
    let mut job = WriteJob::new("flight-begin", &[], false);
    job.write(&[0, 1, 2]);
    let mut client = FlightServiceClient::new(channel.clone());
    let ticket = |ticket: Value| Ticket::new(ticket.to_string());
    let mut live = client.do_get(ticket(json!({"stream": "flight-begin"}))).await.unwrap().into_inner();
    let begins = about(&live.message().await.unwrap().unwrap());
    assert_eq!((&begins["offset"], &begins["count"]), (&json!(3), &json!(Hub::global().instance())));
    // Two of one name: to come back would only end the other one.
    let named = || ticket(json!({"stream": "flight-begin", "name": "me"}));
    let mut first = client.do_get(named()).await.unwrap().into_inner();
    first.message().await.unwrap().unwrap();
    let _second = client.do_get(named()).await.unwrap();
    let status = first.message().await.unwrap_err();
    assert!(status.code() == Code::Aborted && status.message().contains("another subscriber has connected"), "{status}");
    // The job is stopped, and has not read all of its input.
    drop(job);
    assert_eq!(live.message().await.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_subscriber_is_dropped_and_told() {
    let channel = channel().await;
    let mut job = WriteJob::new("flight-slow", &[], false);
    let mut slow = get(&channel, json!({"stream": "flight-slow", "queue_bytes": 1})).await.unwrap();
    let many: Vec<i64> = (0..10_000).collect();
    for _ in 0..100 {
        job.write(&many);
    }
    let error = loop {
        match slow.try_next().await {
            Ok(rows) => assert!(rows.is_some(), "an error must come first"),
            Err(error) => break Status::from(error),
        }
    };
    assert_eq!(error.code(), Code::ResourceExhausted);
    assert!(error.message().contains("too slow"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_subscribers_share_one_encoding() {
    let channel = channel().await;
    let mut job = WriteJob::new("flight-many", &[], false);
    let stream = Hub::global().stream("flight-many").unwrap();
    let mut subscribers: Vec<_> = (0..50).map(|_| stream.subscribe(SubscribeRequest::default(), Waker::noop()).unwrap()).collect();
    let mut client = get(&channel, "flight-many").await.unwrap();
    job.write(&[1, 2]);
    let encoded: Vec<Arc<Encoded>> = subscribers
        .iter_mut()
        .map(|subscriber| match subscriber.try_next().unwrap() {
            Received::Rows(delivery) => Encoded::shared(&delivery),
            other => panic!("rows were written: {other:?}"),
        })
        .collect();
    assert!(encoded.iter().all(|e| Arc::ptr_eq(e, &encoded[0])));
    assert_eq!(numbers(&client.try_next().await.unwrap().unwrap()), [1, 2]);
}

/// A subscriber that goes on after a break between two messages must miss nothing and get nothing twice.
#[test]
fn what_a_filter_leaves_is_numbered_message_by_message() {
    let mut job = WriteJob::new("flight-cut", &[], false);
    let mut subscriber = Hub::global().stream("flight-cut").unwrap().subscribe(SubscribeRequest::default(), Waker::noop()).unwrap();
    job.write(&(0..1_000_000).collect::<Vec<_>>());
    let Received::Rows(delivery) = subscriber.try_next().unwrap() else { panic!("rows were written") };
    let half = |rows: &RecordBatch| Ok(rows.slice(0, numbers(rows).partition_point(|n| *n < 500_000)));
    let messages = filtered_messages(&delivery, &half).unwrap();
    let offset = |m: &FlightData| serde_json::from_slice::<Value>(&m.app_metadata).unwrap()["offset"].as_i64().unwrap();
    let offsets: Vec<i64> = messages.iter().map(offset).collect();
    let rows = flight_data_to_batches(&[vec![schema_message(&schema())], messages].concat()).unwrap();
    assert!(rows.len() > 1 && rows.iter().map(RecordBatch::num_rows).sum::<usize>() == 500_000);
    let mut from = 0;
    for (rows, offset) in rows.iter().zip(offsets) {
        let numbers = numbers(rows);
        assert!(numbers[0] == from.min(500_000) && *numbers.last().unwrap() < offset, "{} to {offset}", numbers[0]);
        from = offset;
    }
    assert_eq!(from, 1_000_000);
    assert!(filtered_messages(&delivery, &|rows| Ok(rows.slice(0, 0))).unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_are_found_and_described() {
    let channel = channel().await;
    let _reads = ReadJob::new("flight-info-in");
    let _writes = WriteJob::new("flight-info-out", &[], true);
    let mut client = FlightServiceClient::new(channel);
    let descriptor = |name: &str| FlightDescriptor::new_path(vec![name.to_string()]);
    let inlet = client.get_schema(descriptor("flight-info-in")).await.unwrap().into_inner();
    assert_eq!(Schema::try_from(&inlet).unwrap(), *schema());
    let info = client.get_flight_info(descriptor("flight-info-out")).await.unwrap().into_inner();
    let about: Value = serde_json::from_slice(&info.app_metadata).unwrap();
    assert_eq!((&about["subscribe"], &about["updating"], &about["delivery"]), (&json!(true), &json!(true), &json!("live")));
    assert_eq!(info.endpoint[0].ticket.as_ref().unwrap().ticket.as_ref(), b"flight-info-out");
    let listed = client.list_flights(Criteria { expression: "flight-info".into() }).await.unwrap().into_inner();
    let names: Vec<String> = listed.map(|info| info.unwrap().flight_descriptor.unwrap().path[0].clone()).collect().await;
    assert_eq!(names, ["flight-info-in", "flight-info-out"]);
    let pong = client.do_action(Request::new(Action::new("ping", ""))).await.unwrap().into_inner().message().await.unwrap().unwrap();
    assert!(pong.body.starts_with(b"{"));
    assert_eq!(client.do_action(Action::new("pong", "")).await.unwrap_err().code(), Code::InvalidArgument);
}
