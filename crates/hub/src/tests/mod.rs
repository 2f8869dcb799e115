//! Streams from both sides, without a job: the tests are the worker and the coordinator.

mod inlet;
mod outlet;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int8Type, Int64Type, Schema, SchemaRef};
use tidemill_block::{Block, RowKind};
use tidemill_connect::{Committable, ReadRequest, Reader, ReaderContext, Sink, SinkContext, Source, Split, Waker, Writer};
use tidemill_format::options::RawOptions;

use crate::connector::{StreamSink, StreamSource};
use crate::{Hub, Received, StreamOptions, Subscriber};

/// A hub of its own for each test.
fn hub(directory: Option<&Path>) -> &'static Hub {
    let hub: &'static Hub = Box::leak(Box::new(Hub::new()));
    hub.serve(directory.map(Path::to_path_buf));
    hub
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]))
}

fn batch(numbers: &[i64]) -> RecordBatch {
    let column: ArrayRef = Arc::new(Int64Array::from(numbers.to_vec()));
    RecordBatch::try_new(schema(), vec![column]).unwrap()
}

fn numbers(batch: &RecordBatch) -> Vec<i64> {
    batch.column(0).as_primitive::<Int64Type>().values().to_vec()
}

fn options(more: &[(&str, &str)]) -> StreamOptions {
    let pairs = [("stream.name", "s")].iter().chain(more).map(|(k, v)| (k.to_string(), v.to_string()));
    let mut raw = RawOptions::new("table 's'", pairs);
    let options = StreamOptions::checked(&mut raw).unwrap();
    raw.finish().unwrap();
    options
}

/// A waker that counts.
fn waker() -> (Waker, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let wake = move || {
        counted.fetch_add(1, Ordering::SeqCst);
    };
    (Waker::new(wake), count)
}

fn woken(count: &AtomicUsize) -> usize {
    count.swap(0, Ordering::SeqCst)
}

fn source(hub: &'static Hub, more: &[(&str, &str)]) -> StreamSource {
    StreamSource::new(hub, options(more))
}

fn context(request: ReadRequest) -> ReaderContext {
    ReaderContext { waker: Waker::noop(), request, shard: 0, shards: 1 }
}

fn reader(source: &StreamSource, position: Option<serde_json::Value>) -> Box<dyn Reader> {
    let split = Split { id: "inlet".into(), position };
    source.open(&split, context(ReadRequest::all(schema()))).unwrap()
}

/// A sink whose checkpoint held these, and its writer.
fn sink(hub: &'static Hub, updating: bool, more: &[(&str, &str)], restored: &[Committable]) -> (StreamSink, Box<dyn Writer>) {
    let sink = StreamSink::new(hub, options(more), schema());
    sink.expect_updates(updating);
    sink.recover(restored, "").unwrap();
    let writer = writer(&sink, "run").unwrap();
    (sink, writer)
}

fn writer(sink: &StreamSink, run: &str) -> Result<Box<dyn Writer>, tidemill_connect::ConnectError> {
    sink.writer(SinkContext { shard: 0, shards: 1, schema: schema(), run_id: run.into(), cancelled: Arc::default() })
}

/// Rows such as `+I 1`, one a text.
fn block(rows: &[(&str, i64)]) -> Block {
    let kinds: Vec<RowKind> = rows.iter().map(|(kind, _)| RowKind::from_short(kind).unwrap()).collect();
    Block::changelog(batch(&rows.iter().map(|(_, n)| *n).collect::<Vec<_>>()), kinds.into(), 7)
}

/// What a subscriber gets now: kinds and numbers; at the end how it stands.
fn received(subscriber: &mut Subscriber) -> (Vec<(i8, i64)>, Received) {
    let mut rows = Vec::new();
    loop {
        match subscriber.try_next().unwrap() {
            Received::Rows(delivery) => {
                let kinds = match delivery.batch.num_columns() {
                    1 => vec![0; delivery.batch.num_rows()],
                    _ => delivery.batch.column(1).as_primitive::<Int8Type>().values().to_vec(),
                };
                rows.extend(kinds.into_iter().zip(numbers(&delivery.batch)));
            }
            other => return (rows, other),
        }
    }
}

/// The numbers alone.
fn got(subscriber: &mut Subscriber) -> Vec<i64> {
    received(subscriber).0.into_iter().map(|(_, n)| n).collect()
}
