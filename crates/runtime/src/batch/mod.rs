//! Bounded jobs on DataFusion's executor.
//!
//! [`lower`] replaces our logical nodes by what DataFusion knows, [`pattern`] runs those that it cannot
//! replace, [`table`] lets it read through our connectors, [`views`] spares it copies of texts, [`fold`] adds
//! up the changes of tables that are updated, and [`watch`] tells sinks that a job is to stop.
//! The same plans, functions and types as in a stream; results are the final ones.

mod fold;
mod group_keys;
mod lower;
mod pattern;
mod process;
mod select;
mod set_all;
mod table;
mod views;
mod watch;
mod window_bound;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arrow::array::RecordBatch;
use datafusion::execution::{SessionState, SessionStateBuilder, TaskContext};
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion::prelude::SessionConfig;
use datafusion_expr::LogicalPlan;
use futures::StreamExt;
use tidemill_block::{Block, clock};
use tidemill_connect::filesystem::cache::bytes_read;
use tidemill_connect::{ConnectError, Sink, SinkContext};
use tidemill_plan::optimize::{NotIn, check_not_in};
use tidemill_sql::{InsertPlan, SqlError};

use self::group_keys::FewerGroupKeys;
use self::watch::Watch;
use crate::memory::limit_sinks;
use crate::metrics::{NodeMetrics, Summary, latency, node_summary, peak_bytes, process_usage};
use crate::parallel::meter::wrote;
use crate::settings::Settings;
use crate::{JobError, Stop, connector};

/// How long after a job was asked to stop its writers may go on with what they have. Nothing is read behind it, so whoever waits for a lock
/// need not get it; a database that is away is tried again for 5 s, and for as much longer as a pause between two attempts is.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// A sink that was written to, and the name of the run there.
type Opened = (Arc<dyn Sink>, String);

/// Runs bounded queries.
pub struct BatchRunner {
    settings: Settings,
    state: SessionState,
    runtime: tokio::runtime::Runtime,
    sources: table::SourceMetrics,
}

impl BatchRunner {
    /// A runner with one thread a shard.
    ///
    /// # Errors
    /// Threads cannot be started.
    pub fn new(settings: &Settings) -> Result<Self, JobError> {
        let shards = settings.shards();
        let mut config = SessionConfig::new().with_target_partitions(shards).with_batch_size(8192);
        let options = config.options_mut();
        options.sql_parser.enable_ident_normalization = false;
        options.sql_parser.map_string_types_to_utf8view = false;
        // Repartitioning a file scan is ours to do; what comes out of it is already spread.
        options.optimizer.repartition_file_scans = false;
        // That rule sums in two steps and rounds between them; our sums are exact to the last digit.
        let mut rules = datafusion::optimizer::Optimizer::new().rules;
        rules.retain(|r| r.name() != "single_distinct_aggregation_to_group_by");
        for rule in rules.iter_mut().filter(|r| r.name() == "eliminate_group_by_constant") {
            *rule = Arc::new(FewerGroupKeys::default());
        }
        // The executor's anti join that knows of NULLs takes one equality, and forgets NULLs where there are other conditions.
        let made = rules.iter().position(|r| r.name() == "decorrelate_predicate_subquery").expect("DataFusion has this rule");
        rules.insert(made + 1, Arc::new(NotIn));
        // That rule takes a condition on one of two columns of the same name for one on the other, below a projection
        // that has both. What it could move further than the logical rules did is what tables can check themselves,
        // and ours check nothing.
        let mut physical_rules = PhysicalOptimizer::new().rules;
        physical_rules.retain(|r| !r.name().starts_with("FilterPushdown"));
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_default_features()
            .with_optimizer_rules(rules)
            .with_physical_optimizer_rules(physical_rules)
            .with_query_planner(Arc::new(pattern::BatchPlanner { bounds: settings.pattern_bounds() }))
            .build();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(shards)
            .thread_name("batch")
            .enable_all()
            .build()
            .map_err(|e| JobError::failed(format!("starting the batch runner's threads: {e}")))?;
        Ok(BatchRunner { settings: settings.clone(), state, runtime, sources: Default::default() })
    }

    fn physical(&self, plan: &LogicalPlan) -> Result<Arc<dyn ExecutionPlan>, JobError> {
        check_not_in(plan)?;
        let lowered = lower::lower(plan.clone(), &self.sources, table::Reading::of(&self.settings, plan))?;
        let lowered = views::with_views(lowered, self.state.config_options())?;
        let state = self.state.clone();
        Ok(self.runtime.block_on(async move { state.create_physical_plan(&lowered).await })?)
    }

    /// The physical plan as text.
    ///
    /// # Errors
    /// As [`BatchRunner::query`].
    pub fn explain(&self, plan: &LogicalPlan) -> Result<String, JobError> {
        let physical = self.physical(plan)?;
        Ok(datafusion::physical_plan::displayable(physical.as_ref()).indent(false).to_string())
    }

    /// What says, while queries run, how many rows and bytes (as they are decoded) they have read so far, of all
    /// tables together.
    pub fn counters(&self) -> impl Fn() -> (u64, u64) + Send + Sync + use<> {
        let sources = self.sources.clone();
        move || {
            let sources = sources.lock().expect("no panic while held");
            sources
                .values()
                .fold((0, 0), |(rows, bytes), m| (rows + m.rows.load(Ordering::Relaxed), bytes + m.bytes.load(Ordering::Relaxed)))
        }
    }

    /// Runs a query; `each` gets its batches in order.
    ///
    /// # Errors
    /// What cannot be planned, read or computed; what `each` returns.
    pub fn query(&self, plan: &LogicalPlan, mut each: impl FnMut(RecordBatch) -> Result<(), JobError>) -> Result<(), JobError> {
        let physical = self.physical(plan)?;
        let context: Arc<TaskContext> = self.state.task_ctx();
        // Some operators start their tasks while they are set up.
        let _guard = self.runtime.enter();
        let mut stream = datafusion::physical_plan::execute_stream(physical, context)?;
        loop {
            let next = self.runtime.block_on(stream.next());
            match next {
                None => return Ok(()),
                Some(batch) => each(batch?)?,
            }
        }
    }

    /// Runs inserts one after the other.
    ///
    /// # Errors
    /// As [`BatchRunner::query`], and what a sink cannot write. Nothing is committed then: sinks that hold rows back until they are
    /// committed have none of them, others have what was written.
    pub fn run(&self, name: &str, inserts: &[InsertPlan], stop: &Stop) -> Result<Summary, JobError> {
        let mut opened = Vec::new();
        let done = self.run_inserts(name, inserts, stop, &mut opened);
        if done.is_err() {
            // Its writers are gone, and with what they have left nobody goes on. The last first: a directory that several
            // inserts have in common was made by the first.
            opened.iter().rev().for_each(|(sink, run_id)| sink.abandon(run_id));
        }
        done
    }

    /// The same; `opened` gets the sinks that were written to, and under which names of the run.
    fn run_inserts(&self, name: &str, inserts: &[InsertPlan], stop: &Stop, opened: &mut Vec<Opened>) -> Result<Summary, JobError> {
        let begun = Instant::now();
        let usage = process_usage();
        let read = bytes_read();
        let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
        let mut sinks: Vec<(String, Vec<Arc<NodeMetrics>>)> = Vec::new();
        let mut pending = Vec::new();
        let watch = Watch::new(stop, STOP_PATIENCE)?;
        let _guard = self.runtime.enter();
        for (number, insert) in inserts.iter().enumerate() {
            let table = &insert.table;
            let (sink, options) = connector::sink(table)?;
            let failed = |e: ConnectError| JobError::failed(format!("table '{}': {e}", table.name));
            let others = |some: &[InsertPlan]| some.iter().any(|i| i.table.name == table.name);
            if insert.overwrite && !sink.replaces() {
                let why = format!("connector '{}' cannot replace what table '{}' holds; use INSERT INTO", options.connector, table.name);
                return Err(SqlError::at(insert.span, why).into());
            }
            if insert.overwrite && (others(&inserts[..number]) || others(&inserts[number + 1..])) {
                let why = format!("another INSERT of this job writes to table '{}' too", table.name);
                return Err(SqlError::at(insert.span, why).with_help("one INSERT OVERWRITE with UNION ALL writes all rows").into());
            }
            let cancelled = Arc::new(AtomicBool::new(false));
            watch.add(&sink, &cancelled);
            // Two inserts into one table: the second must not clear away what the first prepared.
            if !others(&inserts[..number]) {
                sink.recover(&[], "").map_err(failed)?;
            }
            let physical = self.physical(&insert.plan)?;
            let physical: Arc<dyn ExecutionPlan> = if sink.parallelism() == Some(1) && physical.output_partitioning().partition_count() > 1
            {
                Arc::new(datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec::new(physical))
            } else {
                physical
            };
            let rows_at_once = connector::rows_at_once(&options).unwrap_or(usize::MAX);
            let partitions = physical.output_partitioning().partition_count();
            // One insert at a time: each may hold all that sinks may.
            limit_sinks(&self.settings, std::slice::from_ref(&sink), partitions);
            let run_id = format!("{started:x}-{:x}-{number}", std::process::id());
            opened.push((sink.clone(), run_id.clone()));
            // All of them are opened before one of them writes: where that fails, none is at work.
            let mut writers = Vec::new();
            for partition in 0..partitions {
                let context = SinkContext {
                    shard: partition,
                    shards: partitions,
                    schema: table.sink_schema(),
                    run_id: run_id.clone(),
                    cancelled: cancelled.clone(),
                };
                writers.push((sink.writer(context).map_err(failed)?, physical.execute(partition, self.state.task_ctx())?));
            }
            // Why the insert has failed: what the first of its writers says, the others only follow.
            let first: Arc<Mutex<Option<JobError>>> = Arc::default();
            let mut tasks = Vec::new();
            let mut parts = Vec::new();
            for (mut writer, mut stream) in writers {
                let metrics = Arc::new(NodeMetrics::default());
                parts.push(metrics.clone());
                let (stop, flag, schema) = (stop.clone(), cancelled.clone(), table.sink_schema());
                let replaces = sink.replaces();
                let work = async move {
                    while let Some(batch) = stream.next().await {
                        if stop.requested() || flag.load(Ordering::Relaxed) {
                            return Err(JobError::failed(stopped(replaces)));
                        }
                        let batch = batch?;
                        let batch = RecordBatch::try_new(schema.clone(), batch.columns().to_vec()).map_err(JobError::failed)?;
                        let rows = batch.num_rows() as u64;
                        if rows > 0 {
                            let begun = Instant::now();
                            let all = batch.num_rows();
                            for at in (0..all).step_by(rows_at_once) {
                                let part = if rows_at_once < all { batch.slice(at, rows_at_once.min(all - at)) } else { batch.clone() };
                                writer.write(&Block::inserts(part, clock::now_ns()))?;
                            }
                            wrote(begun.elapsed());
                        }
                        metrics.rows.fetch_add(rows, Ordering::Relaxed);
                    }
                    let prepared = writer.prepare(true)?;
                    metrics.bytes.store(writer.stats().bytes, Ordering::Relaxed);
                    Ok::<_, JobError>(prepared)
                };
                // The others hear of a failure at once: one of them may be waiting for somebody.
                let (first, flag) = (first.clone(), cancelled.clone());
                tasks.push(self.runtime.spawn(async move {
                    work.await.map_err(|e| {
                        first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
                        flag.store(true, Ordering::Relaxed);
                    })
                }));
            }
            let mut prepared = Vec::new();
            for task in tasks {
                match self.runtime.block_on(task) {
                    Ok(done) => prepared.extend(done.into_iter().flatten()),
                    Err(e) => {
                        let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
                        first.get_or_insert(JobError::failed(format!("internal error: {e}")));
                        cancelled.store(true, Ordering::Relaxed);
                    }
                }
            }
            if let Some(e) = first.lock().unwrap_or_else(PoisonError::into_inner).take() {
                let left = stopped(sink.replaces());
                return Err(match e {
                    // What a writer was waiting for.
                    JobError::Failed(m) if stop.requested() && m != left => {
                        JobError::failed(format!("INSERT INTO {}: {left}: {m}", table.name))
                    }
                    JobError::Failed(m) => JobError::failed(format!("INSERT INTO {}: {m}", table.name)),
                    other => other,
                });
            }
            pending.push((insert, sink, prepared));
            sinks.push((format!("Sink {}", table.name), parts));
        }
        for (insert, sink, prepared) in pending {
            let committed = if insert.overwrite { sink.replace(&prepared) } else { sink.commit(&prepared) };
            committed.map_err(|e| JobError::failed(format!("committing table '{}': {e}", insert.table.name)))?;
        }
        let (user, sys) = process_usage();
        let elapsed = begun.elapsed().as_secs_f64();
        let mut nodes: Vec<_> = self
            .sources
            .lock()
            .expect("no panic while held")
            .iter()
            .map(|(n, m)| node_summary(&format!("Source {n}"), std::slice::from_ref(m)))
            .collect();
        let rows_in = nodes.iter().map(|n| n.rows).sum::<u64>();
        nodes.extend(sinks.iter().map(|(n, m)| node_summary(n, m)));
        Ok(Summary {
            job: name.to_string(),
            mode: "batch".into(),
            parallelism: self.settings.shards(),
            finished: true,
            already_finished: false,
            elapsed_s: elapsed,
            user_s: user - usage.0,
            sys_s: sys - usage.1,
            peak_memory_bytes: peak_bytes(),
            read: bytes_read().since(read),
            rows_in,
            rows_out: nodes[nodes.len() - sinks.len()..].iter().map(|n| n.rows).sum(),
            rows_per_s: rows_in as f64 / elapsed.max(1e-9),
            latency_ms: latency(std::iter::empty()),
            checkpoints: 0,
            nodes,
            // Whatever listens has no end, and is not read here.
            listeners: BTreeMap::new(),
            unknown_channels: BTreeMap::new(),
        })
    }
}

/// What is true of a table when the insert into it was stopped. One whose rows can take the place of others in one step has none before
/// the commit. Of others nobody knows here: a database commits batch by batch, a socket takes nothing back.
fn stopped(replaces: bool) -> &'static str {
    if replaces {
        "stopped before the end; nothing was written"
    } else {
        "stopped before the end; the table may have got rows already, which another run writes again"
    }
}
