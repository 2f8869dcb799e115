//! Our connectors as tables of DataFusion: each partition takes the next split when it is done with
//! one. A table whose rows are updated is read by one partition, which adds the changes up.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{DataFusionError, Result, ScalarValue};
use datafusion_expr::{Expr, LogicalPlan, TableProviderFilterPushDown, TableType};
use futures::Stream;
use futures::task::AtomicWaker;
use tidemill_connect::{Changelog, Fetching, Polled, ReadRequest, ReaderContext, Source, Split, Waker};
use tidemill_operator::normalize::Normalize;
use tidemill_plan::Table;

use super::fold::Fold;
use super::select::{self, Selecting};
use crate::JobError;
use crate::connector::{self, OnError};
use crate::metrics::NodeMetrics;
use crate::parallel::AtOnce;
use crate::parallel::opening::Opened;
use crate::parallel::readers::Readers;
use crate::row_bytes::RowBytes;
use crate::settings::Settings;

/// Counts of each table read, by name.
pub(super) type SourceMetrics = Arc<Mutex<BTreeMap<String, Arc<NodeMetrics>>>>;

/// Rows a batch, unless they are large: DataFusion's own default.
const BATCH_ROWS: usize = 8192;
/// And if no column is wanted: such a batch is nothing but a number.
const COUNTED_ROWS: usize = 4 * BATCH_ROWS;

/// A declared table that DataFusion can scan.
pub(super) struct ConnectorTable {
    table: Arc<Table>,
    source: Arc<dyn Source>,
    on_error: OnError,
    schema: SchemaRef,
    /// Whether texts are views.
    views: bool,
    metrics: Arc<NodeMetrics>,
    reading: Reading,
}

/// What the settings say of how tables are read.
#[derive(Clone, Copy)]
pub(super) struct Reading {
    at_once: AtOnce,
    memory: Option<u64>,
    /// The query may end before its tables do.
    stops_early: bool,
}

impl Reading {
    pub fn of(settings: &Settings, plan: &LogicalPlan) -> Self {
        // What asks whether there are rows is a join, and reads all.
        let limited = plan.exists(|part| Ok(matches!(part, LogicalPlan::Limit(_))));
        let stops_early = limited.expect("the condition cannot fail");
        Reading { at_once: settings.read_parallel, memory: settings.memory.map(|m| m.0), stops_early }
    }
}

impl fmt::Debug for ConnectorTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.table.name)
    }
}

impl ConnectorTable {
    pub fn new(table: Arc<Table>, metrics: &SourceMetrics, reading: Reading) -> Result<Self, JobError> {
        let (source, options) = connector::source(&table, !reading.stops_early)?;
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
        if source.changelog() == Changelog::Upsert && table.primary_key.is_empty() {
            return Err(JobError::usage(format!(
                "table '{}': its rows replace each other by key, so it needs PRIMARY KEY (…) NOT ENFORCED",
                table.name
            )));
        }
        let metrics = metrics.lock().expect("no panic while held").entry(table.name.clone()).or_default().clone();
        Ok(ConnectorTable { schema: table.raw_schema(), views: false, table, source, on_error: options.on_error, metrics, reading })
    }

    /// The same with views for the texts of its physical columns, if its source gives such.
    pub fn with_views(&self) -> Option<Self> {
        let some = self.table.physical_schema().fields().iter().any(|field| *field.data_type() == DataType::Utf8);
        let gives = some && self.source.gives_views() && self.source.changelog() == Changelog::Append;
        let width = self.table.physical_schema().fields().len();
        let physical = viewed(&self.schema.fields()[..width]);
        gives.then(|| ConnectorTable {
            table: self.table.clone(),
            source: self.source.clone(),
            on_error: self.on_error,
            schema: Arc::new(Schema::new([&physical, &self.schema.fields()[width..]].concat())),
            views: true,
            metrics: self.metrics.clone(),
            reading: self.reading,
        })
    }

    /// The pipe that it reads, as [`Source::pipe`].
    pub fn pipe(&self) -> Option<(String, (u64, u64))> {
        self.source.pipe()
    }

    /// The metadata columns by which files can be left out: key and column.
    fn constants(&self) -> Vec<(String, FieldRef)> {
        self.table.metadata().into_iter().filter(|(key, _)| self.source.splits_by(key)).collect()
    }

    /// What the partitions of a scan share, if there is something to find out.
    fn readers(&self, partitions: usize) -> Option<Arc<Readers>> {
        let fetching = self.source.fetching();
        if fetching == Fetching::Other {
            return None;
        }
        let readers = Readers::new(fetching, self.reading.at_once, partitions, self.reading.memory);
        self.metrics.read_by(readers.clone());
        Some(readers)
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

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        if self.source.changelog() != Changelog::Append {
            return Ok(vec![TableProviderFilterPushDown::Unsupported; filters.len()]);
        }
        let (physical, constants, selects) = (self.table.physical_schema(), self.constants(), self.source.selects());
        let answer = |filter: &&Expr| match (selects && select::is_simple(filter, &physical)?) || select::is_of_files(filter, &constants)? {
            true => Ok(TableProviderFilterPushDown::Inexact),
            false => Ok(TableProviderFilterPushDown::Unsupported),
        };
        filters.iter().map(answer).collect()
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        let wanted = projection.unwrap_or(&all);
        let changelog = self.source.changelog();
        if changelog != Changelog::Append {
            return self.scan_changes(changelog, wanted, limit);
        }
        let physical = self.table.physical_schema();
        let width = physical.fields().len();
        let metadata = self.table.metadata();
        let constants = self.constants();
        let (mut of_files, mut of_rows) = (Vec::new(), Vec::new());
        for filter in filters {
            let part = if select::is_of_files(filter, &constants)? { &mut of_files } else { &mut of_rows };
            part.push(if self.views { of_texts(filter.clone())? } else { filter.clone() });
        }
        let files = select::file_selection(&of_files, &constants, state);
        let source: Arc<dyn Source> = match select::selection(&of_rows, &physical, state)? {
            Some(selection) => Arc::new(Selecting { source: self.source.clone(), selection }),
            None => self.source.clone(),
        };
        let request = ReadRequest {
            projection: wanted.iter().copied().filter(|i| *i < width).collect(),
            metadata: wanted.iter().filter(|i| **i >= width).map(|i| metadata[*i - width].clone()).collect(),
            physical: if self.views { Arc::new(Schema::new(viewed(physical.fields()))) } else { physical },
        };
        let partitions = state.config().target_partitions();
        let splits = match &files {
            Some(files) => self.source.splits_selecting(partitions, files),
            None => self.source.unordered_splits(partitions).map(|splits| (splits, 0)),
        };
        let (splits, left_out) = splits.map_err(|e| failed(&self.table.name, e))?;
        self.metrics.files_left_out.fetch_add(left_out, Ordering::Relaxed);
        let each = splits.len().div_ceil(partitions).max(1);
        let queue = Arc::new(Mutex::new(VecDeque::from(splits)));
        let readers = self.readers(partitions);
        // The order wanted may mix physical and metadata columns; the readers give physical first.
        let given = request.schema();
        let schema: SchemaRef = Arc::new(self.schema.project(wanted)?);
        let order = schema.fields().iter().map(|f| given.index_of(f.name())).collect::<Result<Vec<_>, _>>()?;
        let streams = (0..partitions)
            .map(|shard| {
                Arc::new(Part {
                    table: self.table.name.clone(),
                    source: source.clone(),
                    on_error: self.on_error,
                    queue: queue.clone(),
                    request: request.clone(),
                    order: order.clone(),
                    schema: schema.clone(),
                    metrics: self.metrics.clone(),
                    readers: readers.clone(),
                    each,
                    shard,
                    shards: partitions,
                    changes: None,
                }) as Arc<dyn PartitionStream>
            })
            .collect();
        Ok(Arc::new(StreamingTableExec::try_new(schema, streams, None, std::iter::empty(), false, limit)?))
    }
}

/// The columns with views for texts.
fn viewed(columns: &[FieldRef]) -> Vec<FieldRef> {
    let view = |field: &FieldRef| match field.data_type() {
        DataType::Utf8 => Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8View)),
        _ => field.clone(),
    };
    columns.iter().map(view).collect()
}

/// A condition that was planned for views, for columns of texts.
fn of_texts(condition: Expr) -> Result<Expr> {
    let texts = condition.transform(|part| {
        Ok(match part {
            Expr::Literal(ScalarValue::Utf8View(text), metadata) => Transformed::yes(Expr::Literal(ScalarValue::Utf8(text), metadata)),
            other => Transformed::no(other),
        })
    })?;
    Ok(texts.data)
}

/// How the changes of a table become its final rows.
#[derive(Clone)]
struct Changes {
    /// For upserts: the columns of the key among those read.
    keys: Option<Vec<usize>>,
    /// What is read; a deletion may lack columns that are no key.
    read: SchemaRef,
    /// The columns wanted among those read.
    wanted: Vec<usize>,
}

impl ConnectorTable {
    /// One partition reads all splits in their order, so that changes of a row stay in theirs.
    fn scan_changes(&self, changelog: Changelog, wanted: &[usize], limit: Option<usize>) -> Result<Arc<dyn ExecutionPlan>> {
        let key = |name: &String| changelog == Changelog::Upsert && self.table.primary_key.contains(name);
        let loose = |schema: &SchemaRef| -> SchemaRef {
            if changelog == Changelog::All {
                return schema.clone();
            }
            let field = |f: &FieldRef| f.as_ref().clone().with_nullable(f.is_nullable() || !key(f.name()));
            Arc::new(Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>()))
        };
        let (raw, physical) = (loose(&self.schema), loose(&self.table.physical_schema()));
        let width = physical.fields().len();
        let columns: Vec<usize> = (0..raw.fields().len()).filter(|i| wanted.contains(i) || key(raw.field(*i).name())).collect();
        let metadata = self.table.metadata();
        let request = ReadRequest {
            projection: columns.iter().copied().filter(|i| *i < width).collect(),
            metadata: columns.iter().filter(|i| **i >= width).map(|i| metadata[*i - width].clone()).collect(),
            physical,
        };
        let given = request.schema();
        let read: SchemaRef = Arc::new(raw.project(&columns)?);
        let order = read.fields().iter().map(|f| given.index_of(f.name())).collect::<Result<Vec<_>, _>>()?;
        let schema: SchemaRef = Arc::new(self.schema.project(wanted)?);
        let place = |name: &String| read.index_of(name);
        let upsert = changelog == Changelog::Upsert;
        let keys = upsert.then(|| self.table.primary_key.iter().map(place).collect::<Result<Vec<_>, _>>());
        let wanted = schema.fields().iter().map(|f| read.index_of(f.name())).collect::<Result<Vec<_>, _>>()?;
        let changes = Changes { keys: keys.transpose()?, read: read.clone(), wanted };
        let splits = self.source.splits(1).map_err(|e| failed(&self.table.name, e))?;
        let part = Part {
            table: self.table.name.clone(),
            source: self.source.clone(),
            on_error: self.on_error,
            queue: Arc::new(Mutex::new(VecDeque::from(splits))),
            request,
            order,
            schema: schema.clone(),
            metrics: self.metrics.clone(),
            readers: self.readers(1),
            each: usize::MAX,
            shard: 0,
            shards: 1,
            changes: Some(changes),
        };
        let streams = vec![Arc::new(part) as Arc<dyn PartitionStream>];
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
    readers: Option<Arc<Readers>>,
    /// See [`Scan`].
    each: usize,
    shard: usize,
    shards: usize,
    changes: Option<Changes>,
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
            readers: self.readers.clone(),
            each: self.each,
            task,
            row_bytes: RowBytes::default(),
            open: VecDeque::new(),
            changes: self.changes.clone(),
            fold: None,
            folded: VecDeque::new(),
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
    readers: Option<Arc<Readers>>,
    /// The most splits that are open: where there are few, the first partition that asks leaves some to the others.
    each: usize,
    task: Arc<AtomicWaker>,
    row_bytes: RowBytes,
    /// The splits that are open, in their order.
    open: VecDeque<Opened>,
    /// Taken when all is read.
    changes: Option<Changes>,
    fold: Option<Fold>,
    /// The final rows, not yet handed out.
    folded: VecDeque<RecordBatch>,
}

impl Scan {
    fn take(&self) -> Option<Split> {
        self.queue.lock().expect("no panic while held").pop_front()
    }

    /// What the next of the open splits gives that has something to give; nothing behind the last.
    fn next(&mut self) -> Result<Option<Polled>> {
        let ahead = self.readers.as_ref().filter(|readers| readers.ahead());
        let share = ahead.map_or(1, |readers| readers.share(self.context.shard)).min(self.each);
        while self.open.len() < share
            && let Some(split) = self.take()
        {
            let opened = Opened::new(&self.source, &split, self.context.clone(), self.readers.as_ref());
            self.open.push_back(opened.map_err(|e| failed(&self.table, e))?);
        }
        if self.open.is_empty() {
            return Ok(None);
        }
        // The only partition gives rows in the order of the splits. Those above the share wait until others have ended.
        let asked = if self.context.shards == 1 { 1 } else { share.min(self.open.len()) };
        let rows = if self.order.is_empty() { COUNTED_ROWS } else { BATCH_ROWS.min(self.row_bytes.rows_max()) };
        for at in 0..asked {
            match self.open[at].poll(rows).map_err(|e| failed(&self.table, e))? {
                Polled::Pending => {}
                Polled::End => {
                    self.open.remove(at);
                    return Ok(Some(Polled::End));
                }
                polled => return Ok(Some(polled)),
            }
        }
        Ok(Some(Polled::Pending))
    }

    /// The sum of the changes so far, if it is changes that are read.
    fn fold(&mut self) -> Result<Option<&mut Fold>> {
        if self.fold.is_none()
            && let Some(changes) = &self.changes
        {
            let make = || {
                let normalize = match &changes.keys {
                    None => None,
                    Some(keys) => Some(Normalize::new(keys.clone(), &changes.read, changes.read.clone())?),
                };
                Fold::new(normalize, changes.wanted.clone(), self.schema.clone())
            };
            self.fold = Some(make().map_err(|e| failed(&self.table, e))?);
        }
        Ok(self.fold.as_mut())
    }

    /// All is read: the next of the final rows, if changes were read.
    fn folded(&mut self) -> Result<Option<RecordBatch>> {
        self.fold()?;
        self.changes = None;
        if let Some(fold) = self.fold.take() {
            self.folded = fold.finish(BATCH_ROWS).map_err(|e| failed(&self.table, e))?;
        }
        Ok(self.folded.pop_front())
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
                Ok(None) => return Poll::Ready(this.folded().transpose()),
                Ok(Some(Polled::Pending)) => return Poll::Pending,
                Ok(Some(Polled::End)) => {}
                Ok(Some(Polled::Rows(rows))) => {
                    this.metrics.rows.fetch_add(rows.batch.num_rows() as u64, Ordering::Relaxed);
                    this.metrics.bytes.fetch_add(rows.bytes, Ordering::Relaxed);
                    this.row_bytes.of(&rows.batch);
                    if let Some(readers) = &this.readers {
                        readers.read(rows.bytes);
                    }
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
                    let schema = this.changes.as_ref().map_or(&this.schema, |changes| &changes.read);
                    let batch = rows.batch.project(&this.order).and_then(|b| {
                        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(b.num_rows()));
                        RecordBatch::try_new_with_options(schema.clone(), b.columns().to_vec(), &options)
                    });
                    if this.changes.is_none() {
                        return Poll::Ready(Some(batch.map_err(DataFusionError::from)));
                    }
                    let folded = match (batch, this.fold()) {
                        (Ok(batch), Ok(Some(fold))) => fold.push(batch, rows.kinds).map_err(|e| e.to_string()),
                        (_, Ok(None)) => Ok(()),
                        (Err(e), _) => Err(e.to_string()),
                        (_, Err(e)) => Err(e.to_string()),
                    };
                    if let Err(e) = folded {
                        return Poll::Ready(Some(Err(failed(&this.table, e))));
                    }
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

#[cfg(test)]
mod tests;
