//! Our connectors as tables of DataFusion: each partition takes the next split when it is done with
//! one.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion_common::{DataFusionError, Result};
use datafusion_expr::{Expr, TableType};
use futures::Stream;
use futures::task::AtomicWaker;
use tidemill_connect::{Polled, ReadRequest, Reader, ReaderContext, Source, Split, Waker};
use tidemill_plan::Table;

use crate::JobError;
use crate::connector::{self, OnError};
use crate::metrics::NodeMetrics;

/// Counts of each table read, by name.
pub(super) type SourceMetrics = Arc<Mutex<BTreeMap<String, Arc<NodeMetrics>>>>;

/// Rows a batch: DataFusion's own default.
const BATCH_ROWS: usize = 8192;

/// A declared table that DataFusion can scan.
pub(super) struct ConnectorTable {
    table: Arc<Table>,
    source: Arc<dyn Source>,
    on_error: OnError,
    schema: SchemaRef,
    metrics: Arc<NodeMetrics>,
}

impl fmt::Debug for ConnectorTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.table.name)
    }
}

impl ConnectorTable {
    pub fn new(table: Arc<Table>, metrics: &SourceMetrics) -> Result<Self, JobError> {
        let (source, options) = connector::source(&table)?;
        if !source.bounded() {
            return Err(JobError::usage(format!(
                "table '{}' has no end, so a batch job cannot read it; SET 'execution.runtime-mode' = 'streaming', or bound it",
                table.name
            )));
        }
        if options.on_error == OnError::DeadLetter {
            return Err(JobError::usage(format!(
                "table '{}': dead-letter tables are written by streaming jobs only; use 'on-error' = 'skip' or 'fail' in a batch job",
                table.name
            )));
        }
        let metrics = metrics.lock().expect("no panic while held").entry(table.name.clone()).or_default().clone();
        Ok(ConnectorTable { schema: table.raw_schema(), table, source, on_error: options.on_error, metrics })
    }
}

#[async_trait]
impl TableProvider for ConnectorTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        let wanted = projection.unwrap_or(&all);
        let physical = self.table.physical_schema();
        let width = physical.fields().len();
        let metadata = self.table.metadata();
        let request = ReadRequest {
            projection: wanted.iter().copied().filter(|i| *i < width).collect(),
            metadata: wanted.iter().filter(|i| **i >= width).map(|i| metadata[*i - width].clone()).collect(),
            physical,
        };
        let partitions = state.config().target_partitions();
        let splits = self.source.unordered_splits(partitions).map_err(|e| failed(&self.table.name, e))?;
        let queue = Arc::new(Mutex::new(VecDeque::from(splits)));
        // The order wanted may mix physical and metadata columns; the readers give physical first.
        let given = request.schema();
        let schema: SchemaRef = Arc::new(self.schema.project(wanted)?);
        let order = schema.fields().iter().map(|f| given.index_of(f.name())).collect::<Result<Vec<_>, _>>()?;
        let streams = (0..partitions)
            .map(|shard| {
                Arc::new(Part {
                    table: self.table.name.clone(),
                    source: self.source.clone(),
                    on_error: self.on_error,
                    queue: queue.clone(),
                    request: request.clone(),
                    order: order.clone(),
                    schema: schema.clone(),
                    metrics: self.metrics.clone(),
                    shard,
                    shards: partitions,
                }) as Arc<dyn PartitionStream>
            })
            .collect();
        Ok(Arc::new(StreamingTableExec::try_new(schema, streams, None, std::iter::empty(), false, limit)?))
    }
}

fn failed(table: &str, e: impl fmt::Display) -> DataFusionError {
    DataFusionError::Execution(format!("table '{table}': {e}"))
}

struct Part {
    table: String,
    source: Arc<dyn Source>,
    on_error: OnError,
    queue: Arc<Mutex<VecDeque<Split>>>,
    request: ReadRequest,
    order: Vec<usize>,
    schema: SchemaRef,
    metrics: Arc<NodeMetrics>,
    shard: usize,
    shards: usize,
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.table, self.shard, self.shards)
    }
}

impl PartitionStream for Part {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let task = Arc::new(AtomicWaker::new());
        let waker = {
            let task = task.clone();
            Waker::new(move || task.wake())
        };
        Box::pin(Scan {
            context: ReaderContext { waker, request: self.request.clone(), shard: self.shard, shards: self.shards },
            table: self.table.clone(),
            source: self.source.clone(),
            on_error: self.on_error,
            queue: self.queue.clone(),
            order: self.order.clone(),
            schema: self.schema.clone(),
            metrics: self.metrics.clone(),
            task,
            reader: None,
        })
    }
}

struct Scan {
    table: String,
    source: Arc<dyn Source>,
    on_error: OnError,
    queue: Arc<Mutex<VecDeque<Split>>>,
    context: ReaderContext,
    order: Vec<usize>,
    schema: SchemaRef,
    metrics: Arc<NodeMetrics>,
    task: Arc<AtomicWaker>,
    reader: Option<Box<dyn Reader>>,
}

impl Scan {
    fn next(&mut self) -> Result<Option<Polled>> {
        if self.reader.is_none() {
            let Some(split) = self.queue.lock().expect("no panic while held").pop_front() else { return Ok(None) };
            self.reader = Some(self.source.open(&split, self.context.clone()).map_err(|e| failed(&self.table, e))?);
        }
        let polled = self.reader.as_mut().expect("opened above").poll(BATCH_ROWS).map_err(|e| failed(&self.table, e))?;
        Ok(Some(polled))
    }
}

impl Stream for Scan {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        this.task.register(context.waker());
        loop {
            match this.next() {
                Err(e) => return Poll::Ready(Some(Err(e))),
                Ok(None) => return Poll::Ready(None),
                Ok(Some(Polled::Pending)) => return Poll::Pending,
                Ok(Some(Polled::End)) => this.reader = None,
                Ok(Some(Polled::Rows(rows))) => {
                    this.metrics.rows.fetch_add(rows.batch.num_rows() as u64, Ordering::Relaxed);
                    this.metrics.bytes.fetch_add(rows.bytes, Ordering::Relaxed);
                    this.metrics.bad_rows.fetch_add(rows.bad.len() as u64, Ordering::Relaxed);
                    if this.on_error == OnError::Fail
                        && let Some(bad) = rows.bad.first()
                    {
                        return Poll::Ready(Some(Err(failed(
                            &this.table,
                            format!("{}: {}; set 'on-error' = 'skip' to count and pass over such records", rows.places[0], bad.reason),
                        ))));
                    }
                    if rows.batch.num_rows() == 0 {
                        continue;
                    }
                    let batch = rows.batch.project(&this.order).and_then(|b| {
                        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(b.num_rows()));
                        RecordBatch::try_new_with_options(this.schema.clone(), b.columns().to_vec(), &options)
                    });
                    return Poll::Ready(Some(batch.map_err(DataFusionError::from)));
                }
            }
        }
    }
}

impl RecordBatchStream for Scan {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}
