//! For tests: a served hub, and jobs played by hand: what a job would read of a stream, write to it, and
//! commit.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use axum::{Extension, Router};
use serde_json::Value;
use tempfile::TempDir;
use tidemill_block::{Block, RowKind};
use tidemill_connect::{Polled, ReadRequest, Reader, ReaderContext, Sink, SinkContext, Source, Split, Waker, Writer};
use tidemill_format::options::RawOptions;
use tidemill_hub::{CONNECTOR, Hub};
use tokio::net::TcpListener;
use tokio::runtime::Handle;

use crate::auth::Access;
use crate::jobs::Jobs;
use crate::limits::Limits;
use crate::state::AppState;

/// `n BIGINT NOT NULL, s STRING`.
pub(crate) fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false), Field::new("s", DataType::Utf8, true)]))
}

/// Rows with these numbers, and the texts `s0`, `s1` and so on.
pub(crate) fn batch(numbers: &[i64]) -> RecordBatch {
    let n: ArrayRef = Arc::new(Int64Array::from(numbers.to_vec()));
    let s: ArrayRef = Arc::new(StringArray::from_iter_values(numbers.iter().map(|n| format!("s{n}"))));
    RecordBatch::try_new(schema(), vec![n, s]).unwrap()
}

/// The first column.
pub(crate) fn numbers(batch: &RecordBatch) -> Vec<i64> {
    batch.column(0).as_primitive::<Int64Type>().values().to_vec()
}

fn directory() -> &'static TempDir {
    static DIRECTORY: OnceLock<TempDir> = OnceLock::new();
    DIRECTORY.get_or_init(|| tempfile::tempdir().unwrap())
}

/// Serves streams; gives the address.
pub(crate) async fn serve() -> SocketAddr {
    serve_within(Limits::default()).await
}

/// Serves streams within these limits.
pub(crate) async fn serve_within(limits: Limits) -> SocketAddr {
    serve_jobs(limits, Jobs::open(None, BTreeMap::new(), None).unwrap()).await
}

/// Serves streams while a job is being started, without end.
pub(crate) async fn serve_starting() -> SocketAddr {
    let jobs = Jobs::open(None, BTreeMap::new(), None).unwrap();
    jobs.stay_starting();
    serve_jobs(Limits::default(), jobs).await
}

async fn serve_jobs(limits: Limits, jobs: Jobs) -> SocketAddr {
    let hub = Hub::global();
    hub.serve(Some(directory().path().to_path_buf()));
    let state = Arc::new(AppState::new(hub, Arc::new(jobs), limits));
    let router: Router = crate::flight::service(state.clone()).merge(super::routes().with_state(state)).layer(Extension(Access::all()));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    Handle::current().spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}

/// Waits until `look` gives something.
pub(crate) async fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..30_000 {
        if let Some(found) = look() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("nothing happened for a minute");
}

fn options(stream: &str, options: &[(&str, &str)]) -> RawOptions {
    let named = [("stream.name", stream)];
    let all = named.iter().chain(options).map(|(k, v)| (k.to_string(), v.to_string()));
    RawOptions::new(format!("table '{stream}'"), all.collect::<Vec<_>>())
}

/// A job that reads a stream of [`schema`].
pub(crate) struct ReadJob {
    source: Box<dyn Source>,
    reader: Box<dyn Reader>,
}

impl ReadJob {
    pub fn new(stream: &str) -> Self {
        ReadJob::reading(stream, ReadRequest::all(schema()))
    }

    /// One that does not read all columns.
    pub fn reading(stream: &str, request: ReadRequest) -> Self {
        let source = CONNECTOR.source(&schema(), &mut options(stream, &[])).unwrap();
        let context = ReaderContext { waker: Waker::noop(), request, shard: 0, shards: 1 };
        let reader = source.open(&Split::new("inlet"), context).unwrap();
        ReadJob { source, reader }
    }

    /// What has come.
    pub fn poll(&mut self) -> Vec<i64> {
        match self.reader.poll(1000).unwrap() {
            Polled::Rows(rows) => numbers(&rows.batch),
            Polled::Pending => Vec::new(),
            Polled::End => panic!("an inlet has no end"),
        }
    }

    /// Waits for so many rows.
    pub async fn take(&mut self, count: usize) -> Vec<i64> {
        let mut all = Vec::new();
        until(|| {
            all.extend(self.poll());
            (all.len() >= count).then_some(())
        })
        .await;
        all
    }

    /// How far it has come, as a checkpoint keeps it.
    pub fn position(&self) -> Value {
        self.reader.position()
    }

    /// Waits until a publisher wants a checkpoint, and takes it.
    pub async fn checkpoint(&mut self) {
        until(|| self.source.wants_checkpoint().then_some(())).await;
        self.source.committed(&[self.reader.position()]);
    }
}

/// A job that writes a stream of [`schema`].
pub(crate) struct WriteJob {
    sink: Box<dyn Sink>,
    writer: Box<dyn Writer>,
}

impl WriteJob {
    pub fn new(stream: &str, given: &[(&str, &str)], updating: bool) -> Self {
        let context = SinkContext {
            shard: 0,
            shards: 1,
            schema: schema(),
            run_id: format!("run-of-{stream}"),
            cancelled: Arc::new(AtomicBool::new(false)),
        };
        // Another test of this process may just have begun to serve without a directory.
        for _ in 0..100 {
            Hub::global().serve(Some(directory().path().to_path_buf()));
            let sink = CONNECTOR.sink(&schema(), &mut options(stream, given)).unwrap();
            sink.expect_updates(updating);
            if let Ok(writer) = sink.writer(context.clone()) {
                return WriteJob { sink, writer };
            }
        }
        panic!("stream '{stream}' cannot be written");
    }

    /// Writes new rows.
    pub fn write(&mut self, numbers: &[i64]) {
        self.writer.write(&Block::inserts(batch(numbers), 1)).unwrap();
        self.writer.flush().unwrap();
    }

    /// Writes rows of these kinds.
    pub fn change(&mut self, rows: &[(RowKind, i64)]) {
        let numbers: Vec<i64> = rows.iter().map(|(_, n)| *n).collect();
        let kinds: Vec<RowKind> = rows.iter().map(|(kind, _)| *kind).collect();
        self.writer.write(&Block::changelog(batch(&numbers), kinds.into(), 1)).unwrap();
        self.writer.flush().unwrap();
    }

    /// Takes a checkpoint.
    pub fn commit(&mut self) {
        let prepared = self.writer.prepare(false).unwrap();
        self.sink.commit(&prepared).unwrap();
    }

    /// Ends: all of its input was read.
    pub fn finish(mut self) {
        self.commit();
        self.sink.finished();
    }
}
