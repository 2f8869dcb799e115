//! Source and sinks against librdkafka's mock cluster: a broker in this process, which keeps messages and
//! knows groups and transactions (but shows messages of open ones, too).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arrow::array::{Array, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int32Type, Int64Type, Schema, SchemaRef};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use serde_json::{Value, json};
use tidemill_block::{Block, RowKind};
use tidemill_connect::{Polled, ReadRequest, Reader, ReaderContext, Rows, Sink, SinkContext, Source, Split, Waker};
use tidemill_format::options::{ByteSize, OptionSet, RawOptions};

use crate::options::CommonOptions;
use crate::producer::Producer;
use crate::properties::Connection;
use crate::{KAFKA, UPSERT_KAFKA};

type Cluster = MockCluster<'static, DefaultProducerContext>;

fn cluster(topics: &[(&str, i32)]) -> Cluster {
    let cluster = MockCluster::new(1).unwrap();
    for (topic, partitions) in topics {
        cluster.create_topic(topic, *partitions, 1).unwrap();
    }
    cluster
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, false), Field::new("v", DataType::Utf8, true)]))
}

fn raw(cluster: &Cluster, options: &[(&str, &str)]) -> RawOptions {
    let mut all: BTreeMap<String, String> = options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    all.entry("properties.bootstrap.servers".into()).or_insert_with(|| cluster.bootstrap_servers());
    // The mock cluster never answers what the id of a topic is.
    all.entry("connect.timeout".into()).or_insert_with(|| "3 s".into());
    RawOptions::new("table 't'", all)
}

fn source(cluster: &Cluster, options: &[(&str, &str)]) -> Box<dyn Source> {
    let mut raw = raw(cluster, options);
    let source = KAFKA.source(&schema(), &mut raw).unwrap();
    raw.finish().unwrap();
    source
}

fn sink(cluster: &Cluster, options: &[(&str, &str)]) -> Box<dyn Sink> {
    let mut raw = raw(cluster, options);
    let sink = KAFKA.sink(&schema(), &mut raw).unwrap();
    raw.finish().unwrap();
    sink
}

fn sink_context(shard: usize, shards: usize) -> SinkContext {
    SinkContext { shard, shards, schema: schema(), run_id: "run".into(), cancelled: Arc::new(AtomicBool::new(false)) }
}

fn block(rows: &[(i64, &str)]) -> Block {
    let keys = Int64Array::from_iter_values(rows.iter().map(|r| r.0));
    let values = StringArray::from_iter_values(rows.iter().map(|r| r.1));
    Block::inserts(RecordBatch::try_new(schema(), vec![Arc::new(keys), Arc::new(values)]).unwrap(), 1)
}

/// Writes rows at once and for good.
fn write(sink: &dyn Sink, rows: &[(i64, &str)]) {
    let mut writer = sink.writer(sink_context(0, 1)).unwrap();
    writer.write(&block(rows)).unwrap();
    let committables = writer.prepare(true).unwrap();
    sink.commit(&committables).unwrap();
}

fn open(source: &dyn Source, split: &Split, metadata: &[(&str, DataType)]) -> Box<dyn Reader> {
    let mut request = ReadRequest::all(schema());
    request.metadata = metadata.iter().map(|(key, t)| (key.to_string(), Arc::new(Field::new(*key, t.clone(), true)))).collect();
    source.open(split, ReaderContext { waker: Waker::noop(), request, shard: 0, shards: 1 }).unwrap()
}

/// Everything up to the end, or up to so many rows and bad messages.
#[track_caller]
fn read(reader: &mut dyn Reader, count: usize) -> Vec<Rows> {
    let deadline = Instant::now() + Duration::from_secs(60);
    let (mut parts, mut got) = (Vec::new(), 0);
    while got < count {
        match reader.poll(100).unwrap() {
            Polled::Rows(rows) => {
                got += rows.batch.num_rows() + rows.bad.len();
                parts.push(rows);
            }
            Polled::Pending => std::thread::sleep(Duration::from_millis(2)),
            Polled::End => break,
        }
        assert!(Instant::now() < deadline, "{got} of {count} after a minute");
    }
    parts
}

/// The error that a reader ends with.
#[track_caller]
fn failure(reader: &mut dyn Reader) -> String {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match reader.poll(100) {
            Err(e) => return e.to_string(),
            Ok(_) => std::thread::sleep(Duration::from_millis(2)),
        }
        assert!(Instant::now() < deadline, "no error");
    }
}

fn pairs(parts: &[Rows]) -> Vec<(i64, String)> {
    let mut all = Vec::new();
    for part in parts {
        let (keys, values) = (part.batch.column(0).as_primitive::<Int64Type>(), part.batch.column(1).as_string::<i32>());
        all.extend(
            (0..part.batch.num_rows()).map(|i| (keys.value(i), if values.is_valid(i) { values.value(i).into() } else { "-".into() })),
        );
    }
    all
}

/// What fetches, each the same to whoever reads.
const CLIENTS: [(&str, &str); 2] = [("scan.client", "direct"), ("scan.client", "librdkafka")];

const JSON: [(&str, &str); 2] = [("topic", "t"), ("format", "json")];

/// `JSON`, bounded at what is there, and more.
fn bounded<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [&JSON[..], &[("scan.startup.mode", "earliest-offset"), ("scan.bounded.mode", "latest-offset")], more].concat()
}

fn read_all(source: &dyn Source) -> Vec<(i64, String)> {
    let mut all = Vec::new();
    for split in source.splits(1).unwrap() {
        all.extend(pairs(&read(open(source, &split, &[]).as_mut(), usize::MAX)));
    }
    all.sort();
    all
}

#[test]
fn rows_there_and_back() {
    for client in CLIENTS {
        let cluster = cluster(&[("t", 3)]);
        let rows: Vec<(i64, &str)> = (0..1000).map(|i| (i, "x")).collect();
        write(&*sink(&cluster, &[&JSON[..], &[("sink.partitioner", "round-robin")]].concat()), &rows);
        let source = source(&cluster, &bounded(&[client]));
        assert!(source.bounded());
        let splits = source.splits(2).unwrap();
        assert_eq!(splits.iter().map(|s| s.id.as_str()).collect::<Vec<_>>(), ["t:0", "t:1", "t:2"]);
        // The writer's first message goes to its own partition, the next to the next.
        let first = read(open(&*source, &splits[0], &[]).as_mut(), usize::MAX);
        assert_eq!(pairs(&first).iter().map(|p| p.0).take(3).collect::<Vec<_>>(), [0, 3, 6]);
        assert_eq!(read_all(&*source), rows.iter().map(|(k, v)| (*k, v.to_string())).collect::<Vec<_>>());
    }
}

#[test]
fn with_little_memory_all_is_read() {
    for client in CLIENTS {
        let cluster = cluster(&[("t", 3)]);
        let rows: Vec<(i64, &str)> = (0..5000).map(|i| (i, "x")).collect();
        write(&*sink(&cluster, &[&JSON[..], &[("sink.partitioner", "round-robin")]].concat()), &rows);
        let limited = source(&cluster, &bounded(&[client]));
        // Some hundred messages wait for each partition.
        assert_eq!(limited.limit_memory(1 << 10), 1 << 10);
        assert_eq!(read_all(&*limited).len(), rows.len());
        // What the table says itself nobody can take from its state.
        assert_eq!(source(&cluster, &bounded(&[("scan.prefetch", "1 mb")])).limit_memory(1 << 20), 0);
    }
}

#[test]
fn a_reader_goes_on_at_its_position_and_ends_where_it_was_to_end() {
    for client in CLIENTS {
        let cluster = cluster(&[("t", 1)]);
        let sink = sink(&cluster, &JSON);
        let rows: Vec<(i64, &str)> = (0..300).map(|i| (i, "x")).collect();
        write(&*sink, &rows);
        let first = source(&cluster, &bounded(&[client]));
        let split = first.splits(1).unwrap().remove(0);
        let mut reader = open(&*first, &split, &[]);
        let mut got = pairs(&read(reader.as_mut(), 120));
        let position = reader.position();
        drop(reader);
        drop(first);
        // What is written later is not of a scan that began before.
        write(&*sink, &[(1000, "late")]);
        let again = source(&cluster, &bounded(&[client]));
        let mut reader = open(&*again, &Split { id: split.id, position: Some(position) }, &[]);
        got.extend(pairs(&read(reader.as_mut(), usize::MAX)));
        assert_eq!(got.iter().map(|p| p.0).collect::<Vec<_>>(), (0..300).collect::<Vec<_>>());
    }
}

#[test]
fn metadata_and_a_poison_message() {
    for client in CLIENTS {
        let cluster = cluster(&[("t", 1)]);
        let text: SchemaRef = Arc::new(Schema::new(vec![Field::new("v", DataType::Utf8, true)]));
        let mut options = raw(&cluster, &[("topic", "t"), ("format", "raw")]);
        let sink = KAFKA.sink(&text, &mut options).unwrap();
        let mut writer = sink.writer(SinkContext { schema: text.clone(), ..sink_context(0, 1) }).unwrap();
        let values = StringArray::from(vec!["{\"k\":1,\"v\":\"a\"}", "{\"k\":", "{\"k\":2}"]);
        writer.write(&Block::inserts(RecordBatch::try_new(text, vec![Arc::new(values)]).unwrap(), 1)).unwrap();
        writer.prepare(true).unwrap();
        let source = source(&cluster, &bounded(&[client]));
        let split = source.splits(1).unwrap().remove(0);
        let wanted =
            [("partition", DataType::Int32), ("offset", DataType::Int64), ("topic", DataType::Utf8), ("timestamp", DataType::Int64)];
        let parts = read(open(&*source, &split, &wanted).as_mut(), usize::MAX);
        assert_eq!(pairs(&parts), [(1, "a".to_string()), (2, "-".to_string())]);
        let all = Rows::merge(parts).unwrap().unwrap();
        assert_eq!(all.batch.column(2).as_primitive::<Int32Type>().values(), &[0, 0]);
        assert_eq!(all.batch.column(3).as_primitive::<Int64Type>().values(), &[0, 2]);
        assert_eq!(all.batch.column(4).as_string::<i32>().value(1), "t");
        assert_eq!((all.places.as_slice(), all.bad[0].raw.as_slice()), (&["t:0@1".to_string()][..], &b"{\"k\":"[..]));
    }
}

#[test]
fn new_partitions_are_found_and_read_from_their_beginning() {
    for client in CLIENTS {
        let cluster = cluster(&[("a", 1)]);
        let options = [
            ("topic-pattern", "[ab]"),
            ("format", "json"),
            ("scan.startup.mode", "latest-offset"),
            ("scan.topic-partition-discovery.interval", "50 ms"),
            client,
        ];
        let source = source(&cluster, &options);
        assert_eq!(source.splits(1).unwrap().len(), 1);
        cluster.create_topic("b", 1, 1).unwrap();
        write(&*sink(&cluster, &[("topic", "b"), ("format", "json")]), &[(7, "x")]);
        let deadline = Instant::now() + Duration::from_secs(60);
        let split = loop {
            if let Some(split) = source.discover(1).unwrap().into_iter().find(|s| s.id == "b:0") {
                break split;
            }
            assert!(Instant::now() < deadline, "not found");
            std::thread::sleep(Duration::from_millis(20));
        };
        assert_eq!(pairs(&read(open(&*source, &split, &[]).as_mut(), 1)), [(7, "x".to_string())]);
    }
}

#[test]
fn upserts_fold_and_delete() {
    for client in CLIENTS {
        let cluster = cluster(&[("u", 1)]);
        let options = [
            ("topic", "u"),
            ("key.format", "json"),
            ("value.format", "json"),
            ("#primary-key", "k"),
            ("sink.buffer-flush.max-rows", "100"),
        ];
        let mut taken = raw(&cluster, &options);
        let sink = UPSERT_KAFKA.sink(&schema(), &mut taken).unwrap();
        taken.finish().unwrap();
        assert!(sink.accepts_updates() && !sink.wants_update_before());
        let mut writer = sink.writer(sink_context(0, 1)).unwrap();
        let batch = block(&[(1, "a"), (2, "b"), (1, "a"), (1, "c"), (2, "b")]).batch;
        let kinds = [RowKind::Insert, RowKind::Insert, RowKind::UpdateBefore, RowKind::UpdateAfter, RowKind::Delete];
        writer.write(&Block::changelog(batch, kinds.into(), 1)).unwrap();
        writer.prepare(true).unwrap();
        let mut taken = raw(&cluster, &[&options[..4], &[("scan.bounded.mode", "latest-offset"), client]].concat());
        let source = UPSERT_KAFKA.source(&schema(), &mut taken).unwrap();
        taken.finish().unwrap();
        let split = source.splits(1).unwrap().remove(0);
        let parts = read(open(&*source, &split, &[]).as_mut(), usize::MAX);
        // Of five changes the last of each key; the deletion knows its key.
        assert_eq!(pairs(&parts), [(1, "c".to_string()), (2, "-".to_string())]);
        let all = Rows::merge(parts).unwrap().unwrap();
        assert_eq!(all.kinds, Some(vec![RowKind::Insert, RowKind::Delete]));
    }
}

/// The ids in what a writer has prepared.
fn ids(committables: &[Value]) -> Vec<String> {
    committables.iter().map(|c| c["id"].as_str().unwrap().to_string()).collect()
}

#[test]
fn transactions_are_prepared_committed_and_committed_again() {
    let cluster = cluster(&[("t", 1)]);
    let options = [&JSON[..], &[("sink.delivery-guarantee", "exactly-once"), ("sink.transactional-id-prefix", "p1")]].concat();
    let first = sink(&cluster, &options);
    first.recover(&[], "").unwrap();
    let mut writer = first.writer(sink_context(0, 1)).unwrap();
    let mut checkpoint = |rows: &[(i64, &str)]| {
        if !rows.is_empty() {
            writer.write(&block(rows)).unwrap();
        }
        writer.prepare(false).unwrap()
    };
    assert_eq!(checkpoint(&[]), Vec::<Value>::new());
    let one = checkpoint(&[(1, "a")]);
    assert_eq!(ids(&one), ["p1-t-0"]);
    first.commit(&one).unwrap();
    // The id of a checkpoint rests until the next is safe.
    let two = checkpoint(&[(2, "b")]);
    assert_eq!(ids(&two), ["p1-t-1"]);
    first.commit(&two).unwrap();
    let three = checkpoint(&[(3, "c")]);
    assert_eq!(ids(&three), ["p1-t-0"]);
    // The process ends between checkpoint and commit; the next one commits for it, and once more.
    drop(writer);
    drop(first);
    let second = sink(&cluster, &options);
    second.recover(&three, "").unwrap();
    second.recover(&three, "").unwrap();
    let mut writer = second.writer(sink_context(0, 1)).unwrap();
    writer.write(&block(&[(4, "d")])).unwrap();
    let four = writer.prepare(true).unwrap();
    assert_ne!(ids(&four), ["p1-t-0"], "an id of the checkpoint must not be used before the next");
    second.commit(&four).unwrap();
    let rows = read_all(&*source(&cluster, &bounded(&[])));
    assert_eq!(rows.iter().map(|r| r.0).collect::<Vec<_>>(), [1, 2, 3, 4]);
}

#[test]
fn a_transaction_that_brokers_gave_up_is_an_error_or_told() {
    let cluster = cluster(&[("t", 1)]);
    let exactly = [("sink.delivery-guarantee", "exactly-once"), ("sink.transactional-id-prefix", "p2")];
    let first = sink(&cluster, &[&JSON[..], &exactly].concat());
    let mut writer = first.writer(sink_context(0, 1)).unwrap();
    writer.write(&block(&[(1, "a")])).unwrap();
    let prepared = writer.prepare(false).unwrap();
    drop(writer);
    drop(first);
    let fenced = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH];
    cluster.request_errors(RDKafkaApiKey::EndTxn, &fenced);
    let error = sink(&cluster, &[&JSON[..], &exactly].concat()).recover(&prepared, "").unwrap_err().to_string();
    assert!(error.contains("'p2-t-0'") && error.contains("sink.lost-transactions"), "{error}");
    cluster.request_errors(RDKafkaApiKey::EndTxn, &fenced);
    sink(&cluster, &[&JSON[..], &exactly, &[("sink.lost-transactions", "ignore")]].concat()).recover(&prepared, "").unwrap();
}

/// Brokers may be away at any moment, also in that of a commit: its producer waits for them, and so does the next process.
#[test]
fn a_commit_waits_for_its_coordinator() {
    let cluster = cluster(&[("t", 1)]);
    let options = [&JSON[..], &[("sink.delivery-guarantee", "exactly-once"), ("sink.transactional-id-prefix", "p4")]].concat();
    let away = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE, RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_COORDINATOR];
    let first = sink(&cluster, &options);
    let mut writer = first.writer(sink_context(0, 1)).unwrap();
    writer.write(&block(&[(1, "a")])).unwrap();
    let one = writer.prepare(false).unwrap();
    cluster.request_errors(RDKafkaApiKey::EndTxn, &away);
    first.commit(&one).unwrap();
    writer.write(&block(&[(2, "b")])).unwrap();
    let two = writer.prepare(false).unwrap();
    drop(writer);
    drop(first);
    cluster.request_errors(RDKafkaApiKey::EndTxn, &away);
    sink(&cluster, &options).recover(&two, "").unwrap();
    let rows = read_all(&*source(&cluster, &bounded(&[])));
    assert_eq!(rows.iter().map(|r| r.0).collect::<Vec<_>>(), [1, 2]);
}

/// Brokers that were away for longer than a start may wait, just when a writer needed another producer, ended the job.
#[test]
fn a_producer_that_is_needed_while_brokers_are_away_waits_for_them() {
    let cluster = cluster(&[("t", 1)]);
    let exactly = [("sink.delivery-guarantee", "exactly-once"), ("sink.transactional-id-prefix", "p5"), ("connect.timeout", "2 s")];
    let sink = sink(&cluster, &[&JSON[..], &exactly].concat());
    let context = sink_context(0, 1);
    let cancelled = context.cancelled.clone();
    let mut writer = sink.writer(context).unwrap();
    writer.write(&block(&[(1, "a")])).unwrap();
    let one = writer.prepare(false).unwrap();
    // The producer of this transaction waits for the commit: the next message takes another one.
    cluster.broker_down(-1).unwrap();
    std::thread::scope(|scope| {
        let written = scope.spawn(|| writer.write(&block(&[(2, "b")])));
        std::thread::sleep(Duration::from_secs(5));
        cluster.broker_up(-1).unwrap();
        written.join().unwrap().unwrap();
    });
    let two = writer.prepare(false).unwrap();
    sink.commit(&[one, two].concat()).unwrap();
    assert_eq!(read_all(&*source(&cluster, &bounded(&[]))).len(), 2);
    cluster.broker_down(-1).unwrap();
    cancelled.store(true, Ordering::Release);
    let error = writer.write(&block(&[(3, "c")])).unwrap_err().to_string();
    assert!(error.contains("stopped while no broker answered"), "{error}");
}

/// Ends what waits for ever, so that the test fails and does not hang.
fn cancel_after_a_minute(context: &SinkContext) {
    let cancelled = context.cancelled.clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(60));
        cancelled.store(true, Ordering::Release);
    });
}

/// Brokers that answer but cannot have a coordinator of transactions were waited for, for ever and without a word, because the recovery
/// in front of the first transaction had gone through.
#[test]
fn without_a_coordinator_the_first_transaction_is_an_error() {
    let cluster = cluster(&[("t", 1)]);
    let exactly = [("sink.delivery-guarantee", "exactly-once"), ("sink.transactional-id-prefix", "p8")];
    let sink = sink(&cluster, &[&JSON[..], &exactly].concat());
    sink.recover(&[], "").unwrap();
    cluster.request_errors(RDKafkaApiKey::FindCoordinator, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE; 1_000]);
    let context = sink_context(0, 1);
    cancel_after_a_minute(&context);
    let mut writer = sink.writer(context).unwrap();
    let error = writer.write(&block(&[(1, "a")])).unwrap_err().to_string();
    assert!(error.contains("'p8-t-0'") && error.contains("'transaction.state.log.replication.factor'"), "{error}");
}

/// A job that was asked to stop while brokers were away waited for them for ever.
#[test]
fn a_job_that_is_to_stop_does_not_wait_for_brokers() {
    let cluster = cluster(&[("t", 1)]);
    let exactly = [("sink.delivery-guarantee", "exactly-once"), ("sink.transactional-id-prefix", "p9"), ("connect.timeout", "2 s")];
    let sink = sink(&cluster, &[&JSON[..], &exactly].concat());
    let context = sink_context(0, 1);
    cancel_after_a_minute(&context);
    let mut writer = sink.writer(context).unwrap();
    writer.write(&block(&[(1, "a")])).unwrap();
    writer.prepare(false).unwrap();
    cluster.broker_down(-1).unwrap();
    sink.stopping();
    let error = writer.write(&block(&[(2, "b")])).unwrap_err().to_string();
    assert!(error.contains("the job was asked to stop, and no broker answered"), "{error}");
}

/// Brokers say the same of a transaction that was open for too long and of one that another job has ended.
#[test]
fn a_transaction_that_was_open_for_too_long_is_told_from_one_of_two_jobs() {
    let check = |prefix: &str, timeout_ms: &str, pause: Duration, expect: &[&str]| {
        let cluster = cluster(&[("t", 1)]);
        let exactly = [
            ("sink.delivery-guarantee", "exactly-once"),
            ("sink.transactional-id-prefix", prefix),
            ("properties.transaction.timeout.ms", timeout_ms),
        ];
        let sink = sink(&cluster, &[&JSON[..], &exactly].concat());
        let mut writer = sink.writer(sink_context(0, 1)).unwrap();
        writer.write(&block(&[(1, "a")])).unwrap();
        let prepared = writer.prepare(false).unwrap();
        std::thread::sleep(pause);
        cluster.request_errors(RDKafkaApiKey::EndTxn, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH]);
        let error = sink.commit(&prepared).unwrap_err().to_string();
        assert!(expect.iter().all(|part| error.contains(part)), "{error}");
    };
    check("p6", "900000", Duration::ZERO, &["another producer uses the same transactional id"]);
    let too_long = ["the transaction was open for", "'properties.transaction.timeout.ms' = 4000", "'--state-dir'"];
    check("p7", "4000", Duration::from_secs(4), &too_long);
}

/// Statistics of producers that wait for their turn filled the memory, and failures stood behind them.
#[test]
fn one_call_hears_all_that_waits() {
    let cluster = cluster(&[("t", 1)]);
    let mut raw = raw(&cluster, &[]);
    let common = CommonOptions::take(&mut raw).unwrap();
    let connection = Connection::take(&common, &mut raw).unwrap();
    let mut config = connection.producer(ByteSize(1 << 20));
    config.set("statistics.interval.ms", "10");
    let producer = Producer::new(&connection, &config, "t").unwrap();
    // Several tries, since more statistics may come at any moment.
    let heard_all = (0..20).any(|_| {
        let deadline = Instant::now() + Duration::from_secs(60);
        while producer.waiting() < 5 {
            assert!(Instant::now() < deadline, "no statistics");
            std::thread::sleep(Duration::from_millis(2));
        }
        producer.serve().unwrap();
        producer.waiting() < 2
    });
    assert!(heard_all);
}

#[test]
fn a_timeout_above_the_brokers_is_named() {
    let cluster = cluster(&[("t", 1)]);
    let exactly = [("sink.delivery-guarantee", "exactly-once"), ("sink.transactional-id-prefix", "p3")];
    let sink = sink(&cluster, &[&JSON[..], &exactly].concat());
    cluster.request_errors(RDKafkaApiKey::InitProducerId, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_TRANSACTION_TIMEOUT; 3]);
    let mut writer = sink.writer(sink_context(0, 1)).unwrap();
    let error = writer.write(&block(&[(1, "a")])).unwrap_err().to_string();
    assert!(error.contains("transaction.timeout.ms") && error.contains("transaction.max.timeout.ms"), "{error}");
}

#[test]
fn what_cannot_be_is_said_at_planning() {
    let cluster = cluster(&[]);
    let check = |options: &[(&str, &str)], expect: &str| {
        let mut taken = raw(&cluster, options);
        let error = match KAFKA.sink(&schema(), &mut taken) {
            Err(e) => e.to_string(),
            Ok(_) => KAFKA.source(&schema(), &mut raw(&cluster, options)).err().map(|e| e.to_string()).unwrap_or_default(),
        };
        assert!(error.contains("table 't'") && error.contains(expect), "{error}");
    };
    check(&[("format", "json")], "'topic'");
    check(&[("topic", "t")], "'format' is required");
    check(&[&JSON[..], &[("sink.delivery-guarantee", "exactly-once")]].concat(), "sink.transactional-id-prefix");
    check(&[&JSON[..], &[("scan.startup.mode", "timestamp")]].concat(), "scan.startup.timestamp-millis");
    check(&JSON, "properties.group.id");
    check(&[&JSON[..], &[("scan.prefetch", "1 gb")]].concat(), "256 mb");
    check(&[&JSON[..], &[("scan.client", "java")]].concat(), "librdkafka");
    check(&[&JSON[..], &[("key.format", "json"), ("key.fields", "nope")]].concat(), "'nope'");
    let login = [
        ("sink.delivery-guarantee", "exactly-once"),
        ("sink.transactional-id-prefix", "p"),
        ("properties.security.protocol", "SASL_PLAINTEXT"),
        ("properties.sasl.mechanism", "SCRAM-SHA-256"),
    ];
    check(&[&JSON[..], &login].concat(), "SCRAM-SHA-256");
}

#[test]
fn brokers_and_topics_that_are_not_there() {
    let mock = cluster(&[("trades", 1)]);
    let error = source(&mock, &bounded(&[("topic", "trade")])[1..]).splits(1).unwrap_err().to_string();
    assert!(error.contains("no topic 'trade'") && error.contains("'trades'"), "{error}");
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let away = [("properties.bootstrap.servers", nobody.as_str()), ("connect.timeout", "1 s")];
    let error = source(&mock, &bounded(&away)).splits(1).unwrap_err().to_string();
    assert!(error.contains(&nobody) && error.contains("'connect.timeout'"), "{error}");
    let error = sink(&mock, &[&JSON[..], &away].concat()).writer(sink_context(0, 1)).err().unwrap().to_string();
    assert!(error.contains(&nobody) && error.contains("'connect.timeout'"), "{error}");
    // Whoever writes asks for a topic to be made: here it is not.
    mock.topic_error("trade", RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART).unwrap();
    let misspelt = sink(&mock, &[("topic", "trade"), ("format", "json"), ("connect.timeout", "2 s")]);
    let error = misspelt.writer(sink_context(0, 1)).err().unwrap().to_string();
    assert!(error.contains("no topic 'trade'") && error.contains("'trades'"), "{error}");
}

/// Brokers that answer with an error for a moment, as when leaders move.
#[test]
fn what_passes_is_borne() {
    for client in CLIENTS {
        let cluster = cluster(&[("t", 2)]);
        let rows: Vec<(i64, &str)> = (0..200).map(|i| (i, "x")).collect();
        write(&*sink(&cluster, &[&JSON[..], &[("sink.partitioner", "round-robin")]].concat()), &rows);
        let source = source(&cluster, &bounded(&[client]));
        let splits = source.splits(1).unwrap();
        cluster.request_errors(RDKafkaApiKey::Fetch, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION; 2]);
        let mut readers: Vec<_> = splits.iter().map(|split| open(&*source, split, &[])).collect();
        let got: usize = readers.iter_mut().map(|reader| pairs(&read(reader.as_mut(), usize::MAX)).len()).sum();
        assert_eq!(got, rows.len(), "{client:?}");
    }
}

/// Its messages expired, or it was made anew: said with what there is, or passed.
#[test]
fn an_offset_that_is_gone() {
    for client in CLIENTS {
        let cluster = cluster(&[("t", 1)]);
        write(&*sink(&cluster, &JSON), &[(1, "a"), (2, "b")]);
        let beyond = |reset| {
            let options = [("scan.startup.mode", "specific-offsets"), ("scan.startup.specific-offsets", "partition:0,offset:90")];
            let source = source(&cluster, &[&JSON[..], &options, &[client, ("scan.offset-reset", reset)]].concat());
            let split = source.splits(1).unwrap().remove(0);
            let reader = open(&*source, &split, &[]);
            (source, reader)
        };
        let (_source, mut reader) = beyond("fail");
        let error = failure(reader.as_mut());
        assert!(error.contains("t:0: the next offset is 90, but brokers have offsets 0 to 2 now"), "{client:?}: {error}");
        let (_source, mut reader) = beyond("earliest");
        assert_eq!(pairs(&read(reader.as_mut(), 2)), [(1, "a".to_string()), (2, "b".to_string())], "{client:?}");
    }
}

/// Checkpoints went on naming the topic that was there before, so that the next start found another one and jumped once more.
#[test]
fn a_topic_that_was_made_anew_is_not_taken_for_the_old_one() {
    for client in CLIENTS {
        let cluster = cluster(&[("t", 1)]);
        write(&*sink(&cluster, &JSON), &[(1, "a"), (2, "b")]);
        let options = [("scan.startup.mode", "earliest-offset"), ("scan.offset-reset", "earliest"), client];
        let source = source(&cluster, &[&JSON[..], &options].concat());
        let position = json!({"topic": "t", "partition": 0, "offset": 90, "topic_id": "old"});
        let mut reader = open(&*source, &Split { id: "t:0".into(), position: Some(position) }, &[]);
        assert_eq!(pairs(&read(reader.as_mut(), 2)), [(1, "a".to_string()), (2, "b".to_string())]);
        assert_eq!(reader.position(), json!({"topic": "t", "partition": 0, "offset": 2}), "{client:?}");
    }
}

/// Partitions in which it did not show went on naming the old topic.
#[test]
fn all_partitions_know_of_a_topic_that_was_made_anew() {
    for client in CLIENTS {
        let cluster = cluster(&[("t", 2)]);
        write(&*sink(&cluster, &[&JSON[..], &[("sink.partitioner", "round-robin")]].concat()), &[(1, "a"), (2, "b"), (3, "c")]);
        let options = [("scan.startup.mode", "earliest-offset"), ("scan.offset-reset", "earliest"), client];
        let source = source(&cluster, &[&JSON[..], &options].concat());
        let reader = |partition: i32, offset: i64| {
            let position = json!({"topic": "t", "partition": partition, "offset": offset, "topic_id": "old"});
            open(&*source, &Split { id: format!("t:{partition}"), position: Some(position) }, &[])
        };
        let (mut goes_back, goes_on) = (reader(0, 90), reader(1, 0));
        assert_eq!(goes_on.position(), json!({"topic": "t", "partition": 1, "offset": 0, "topic_id": "old"}), "{client:?}");
        read(goes_back.as_mut(), 2);
        assert_eq!(goes_on.position(), json!({"topic": "t", "partition": 1, "offset": 0}), "{client:?}");
    }
}

/// Where the group's offsets could not be asked for, its partitions began where 'scan.offset-reset' said.
#[test]
fn members_of_a_group_do_not_begin_where_nobody_knows() {
    let cluster = cluster(&[("t", 1)]);
    write(&*sink(&cluster, &JSON), &[(1, "a"), (2, "b")]);
    let member = |name: &str, errors: &[RDKafkaRespErr]| {
        cluster.request_errors(RDKafkaApiKey::OffsetFetch, errors);
        let group = [("scan.assignment", "group"), ("properties.group.id", name)];
        let begins = [("scan.startup.mode", "earliest-offset"), ("scan.offset-reset", "latest")];
        let source = source(&cluster, &[&JSON[..], &group, &begins].concat());
        let split = source.splits(1).unwrap().remove(0);
        let reader = open(&*source, &split, &[]);
        (source, reader)
    };
    let (_source, mut asks_again) = member("asks-again", &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN; 2]);
    assert_eq!(pairs(&read(asks_again.as_mut(), 2)), [(1, "a".to_string()), (2, "b".to_string())]);
    let (_source, mut refused) = member("refused", &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED; 100]);
    let error = failure(refused.as_mut());
    assert!(error.contains("the committed offsets of group 'refused' could not be asked"), "{error}");
    assert!(error.contains("the job's next start asks again"), "{error}");
}

/// Where the group has committed nothing the start mode decides, and where its offset is gone 'scan.offset-reset': the start mode
/// decided both, so that messages which had expired were passed over without a word.
#[test]
fn members_of_a_group_begin_where_the_table_says() {
    let cluster = cluster(&[("t", 1)]);
    write(&*sink(&cluster, &JSON), &[(1, "a"), (2, "b")]);
    for behind_the_end in ["gone", "goes-on"] {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", cluster.bootstrap_servers()).set("group.id", behind_the_end);
        let consumer: BaseConsumer = config.create().unwrap();
        let mut list = TopicPartitionList::new();
        list.add_partition_offset("t", 0, Offset::Offset(90)).unwrap();
        consumer.commit(&list, CommitMode::Sync).unwrap();
    }
    let member = |group: &str, more: &[(&str, &str)]| {
        let group = [("scan.assignment", "group"), ("properties.group.id", group)];
        let source = source(&cluster, &[&JSON[..], &group, more].concat());
        let split = source.splits(1).unwrap().remove(0);
        let reader = open(&*source, &split, &[]);
        (source, reader)
    };
    let earliest = ("scan.startup.mode", "earliest-offset");
    let (_source, mut unsaid) = member("unsaid", &[]);
    let (_source, mut new) = member("new", &[earliest]);
    let (_source, mut gone) = member("gone", &[earliest]);
    let (_source, mut goes_on) = member("goes-on", &[("scan.startup.mode", "latest-offset"), ("scan.offset-reset", "earliest")]);
    let error = failure(unsaid.as_mut());
    assert!(error.contains("t:0: the group has committed no offset") && error.contains("'scan.startup.mode'"), "{error}");
    let error = failure(gone.as_mut());
    assert!(error.contains("t:0: the next offset is 90, but brokers have offsets 0 to 2 now"), "{error}");
    assert!(error.contains("'scan.offset-reset' = 'earliest'"), "{error}");
    for reader in [&mut new, &mut goes_on] {
        assert_eq!(pairs(&read(reader.as_mut(), 2)), [(1, "a".to_string()), (2, "b".to_string())]);
    }
}
