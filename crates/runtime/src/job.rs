//! A job: starts the workers, asks for checkpoints, commits, watches, and sums up.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidemill_connect::filesystem::cache::{Origins, bytes_read};
use tidemill_connect::{Committable, listeners, siddhi_tcp};
use tidemill_operator::MemoryShare;
use tidemill_operator::lookup::split_hash;
use tidemill_state::checkpoint::{CheckpointStore, Manifest, OperatorState};

use crate::JobError;
use crate::local::LocalDir;
use crate::memory::{MemoryWatch, limit_sinks, limit_sources, memory_share};
use crate::metrics::{
    Laggard, Latency, Monitor, NodeMetrics, NodeSummary, RecentLatency, Summary, laggard, latency, node_summary, peak_bytes, process_usage,
    resident_bytes,
};
use crate::physical::{Graph, Node, NodeKind, Ship};
use crate::settings::Settings;
use crate::worker::exchange::{Queue, Signal};
use crate::worker::members::splits_now;
use crate::worker::sink::Failure;
use crate::worker::source::SplitState;
use crate::worker::state::Saved;
use crate::worker::{Event, Shared, Snapshot, Start, Worker, give_back, tidy_up};

/// How often it is looked whether something is due, or was asked for without an event.
const LOOK: Duration = Duration::from_millis(20);
/// How often it is told how the job fares, and looked at its memory. Where there are no checkpoints hardly anything else is due, and
/// each look costs a job that mostly waits as much as a look-up.
const REPORT: Duration = Duration::from_millis(200);
/// The least time between two checkpoints that sources ask for.
const WANTED_PAUSE: Duration = Duration::from_millis(50);

/// A split that has given nothing for so many seconds is named in the live line.
const SILENT_S: f64 = 5.0;

/// How a job is run, apart from its settings.
#[derive(Clone, Debug, Default)]
pub struct JobOptions {
    /// Where checkpoints are kept; without it a job that is killed begins anew.
    pub state_dir: Option<PathBuf>,
    /// Forget what is in the state directory.
    pub fresh: bool,
    /// Shows the job's figures to whoever holds the other end.
    pub monitor: Option<Monitor>,
}

/// Asks a running job to stop; may be shared with a signal handler.
#[derive(Clone, Default)]
pub struct Stop(Arc<AtomicU8>);

impl Stop {
    /// Stop reading, take a last checkpoint, and end.
    pub fn stop(&self) {
        self.0.fetch_max(1, Ordering::AcqRel);
    }
    /// Whether somebody asked.
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }
}

/// How a job stands, for the live line.
#[derive(Clone, Debug, Default)]
pub struct ProgressReport {
    /// Since the start.
    pub elapsed: Duration,
    /// Rows read.
    pub rows_in: u64,
    /// Rows written.
    pub rows_out: u64,
    /// Lowest watermark of the sinks, ms, if there is event time.
    pub watermark: Option<i64>,
    /// The split whose silence holds back event time, if one has given nothing for some seconds.
    pub laggard: Option<Laggard>,
    /// Memory of the process, bytes.
    pub memory: u64,
    /// Rows that were late or could not be read.
    pub dropped: u64,
    /// From arrival to sink, of rows written in the last second or two; zeros if none were.
    pub latency_ms: Latency,
}

/// A planned job.
pub struct Job {
    name: String,
    graph: Graph,
    settings: Settings,
    options: JobOptions,
}

struct Running {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    events: Receiver<Event>,
    /// Goes when the workers have ended, before the lock of the state directory does.
    _local: Option<LocalDir>,
    store: Option<CheckpointStore>,
    /// The number of the newest checkpoint.
    checkpoint: u64,
    taken: u64,
    known: HashMap<usize, HashSet<String>>,
    next_worker: usize,
    finished: usize,
    /// A worker asked for a checkpoint when its newest barrier was this.
    asked: Option<u64>,
    /// The sinks know that the job was asked to stop.
    sinks_told: bool,
    /// If memory is limited.
    memory: Option<MemoryWatch>,
    recent: RecentLatency,
}

impl Job {
    /// A job of a planned graph.
    pub fn new(name: impl Into<String>, graph: Graph, settings: Settings, options: JobOptions) -> Self {
        Job { name: name.into(), graph, settings, options }
    }

    /// Runs to the end of the input, or until `stop`. `progress` is called a few times a second.
    ///
    /// # Errors
    /// The first failure of a worker, a checkpoint or a commit. What was committed stays; with a
    /// state directory the next run goes on from the last checkpoint.
    pub fn run(self, stop: &Stop, mut progress: impl FnMut(&ProgressReport)) -> Result<Summary, JobError> {
        let begun = Instant::now();
        let usage = process_usage();
        let read = bytes_read();
        let shards = self.settings.shards();
        let open = if self.options.fresh { CheckpointStore::fresh } else { CheckpointStore::open };
        let store = self.options.state_dir.as_deref().map(open).transpose()?;
        let manifest = store.as_ref().map(CheckpointStore::latest).transpose()?.flatten();
        if let Some(dir) = self.options.state_dir.as_deref() {
            for node in &self.graph.nodes {
                if let NodeKind::Sink(spec) = &node.kind {
                    spec.sink.keep_in(dir);
                }
            }
        }
        recover(&self.graph, manifest.as_ref())?;
        if manifest.as_ref().is_some_and(|m| m.finished) {
            return Ok(self.nothing_to_do(begun));
        }
        let mut running = self.start(shards, store, manifest)?;
        let result = running.coordinate(stop, &mut |running: &Running| progress(&running.report(begun)));
        if result.is_err() {
            running.shared.cancelled.store(true, Ordering::Release);
        }
        running.shared.exit.store(true, Ordering::Release);
        running.shared.signals.iter().for_each(|s| s.raise());
        for thread in running.threads.drain(..) {
            if let Err(panic) = thread.join()
                && result.is_ok()
            {
                let text = panic
                    .downcast_ref::<String>()
                    .cloned()
                    .or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()))
                    .unwrap_or_default();
                return Err(JobError::failed(format!("internal error: a worker panicked: {text}")));
            }
        }
        if result.is_err() && running.store.is_none() {
            // Its writers are gone, and no checkpoint speaks of what they have left.
            abandon(&running.shared);
        }
        let finished = result?;
        progress(&running.report(begun));
        Ok(running.summary(finished, begun, usage, read))
    }

    fn nothing_to_do(self, begun: Instant) -> Summary {
        Summary {
            job: self.name,
            mode: "streaming".into(),
            parallelism: self.settings.shards(),
            finished: true,
            already_finished: true,
            elapsed_s: begun.elapsed().as_secs_f64(),
            user_s: 0.0,
            sys_s: 0.0,
            peak_memory_bytes: peak_bytes(),
            read: Origins::default(),
            rows_in: 0,
            rows_out: 0,
            rows_per_s: 0.0,
            latency_ms: Default::default(),
            checkpoints: 0,
            nodes: Vec::new(),
            listeners: BTreeMap::new(),
            unknown_channels: BTreeMap::new(),
        }
    }

    fn start(self, shards: usize, store: Option<CheckpointStore>, manifest: Option<Manifest>) -> Result<Running, JobError> {
        let graph = self.graph;
        let width = |node: usize| if graph.nodes[node].single { 1 } else { shards };
        let mut queues = HashMap::new();
        for (index, node) in graph.nodes.iter().enumerate() {
            for (input, edge) in node.inputs.iter().enumerate() {
                if matches!(edge.ship, Ship::Hash(_) | Ship::Single) {
                    let from = width(edge.from);
                    queues.insert((index, input), (0..width(index)).map(|_| (0..from).map(|_| Queue::default()).collect()).collect());
                }
            }
        }
        let mut saved = Saved::default();
        if let (Some(store), Some(manifest)) = (&store, &manifest) {
            for state in store.load(manifest)? {
                saved.tables.entry(state.operator).or_default().extend(state.tables);
            }
            saved.runs = store.runs(manifest)?;
            tell_unused(&graph, &saved);
        }
        let run_id = format!("{:x}-{:x}", start_of_run(), std::process::id());
        let source = |node: &Node| if let NodeKind::Source(spec) = &node.kind { Some(spec.source.clone()) } else { None };
        let ahead = limit_sources(&self.settings, &graph.nodes.iter().filter_map(source).collect::<Vec<_>>());
        let sink = |node: &Node| if let NodeKind::Sink(spec) = &node.kind { Some(spec.sink.clone()) } else { None };
        let held = limit_sinks(&self.settings, &graph.nodes.iter().filter_map(sink).collect::<Vec<_>>(), shards);
        let spilling = spilling(&graph, shards);
        saved.share = memory_share(&self.settings, spilling, shards, ahead + held).map(|bytes| Arc::new(MemoryShare::new(bytes)));
        let share = saved.share.clone().map(|share| (share, spilling as u64));
        let memory = self.settings.memory.map(|limit| MemoryWatch::new(limit.0, share));
        let local = if saved.share.is_some() || !saved.runs.is_empty() {
            Some(LocalDir::new(&self.settings, store.as_ref(), &run_id)?)
        } else {
            None
        };
        saved.local = local.as_ref().map(|local| local.path().to_path_buf());
        let mut assigned: Vec<HashMap<usize, Vec<SplitState>>> = (0..shards).map(|_| HashMap::new()).collect();
        let mut known: HashMap<usize, HashSet<String>> = HashMap::new();
        let mut next_worker = 0;
        for (index, node) in graph.nodes.iter().enumerate() {
            let NodeKind::Source(spec) = &node.kind else { continue };
            let restored = manifest.as_ref().and_then(|m| m.sources.get(&node.id));
            // They are dealt out at once, of unordered ones those first that are larger: every second round backwards.
            let backwards = restored.is_none() && spec.unordered && spec.source.bounded();
            let splits: Vec<SplitState> = match restored {
                Some(values) => {
                    let damaged = |e: serde_json::Error| {
                        JobError::failed(format!("the checkpoint's positions of {} are damaged: {e}; --fresh begins anew", node.name))
                    };
                    let splits = values.iter().map(|v| serde_json::from_value::<SplitState>(v.clone()).map_err(damaged));
                    let splits = splits.collect::<Result<Vec<_>, _>>()?;
                    splits_now(spec.source.as_ref(), splits, width(index))
                        .map_err(|e| JobError::failed(format!("table '{}': {e}", spec.table)))?
                }
                None => {
                    let width = width(index);
                    let splits = if spec.unordered && spec.source.bounded() {
                        spec.source.unordered_splits(width)
                    } else {
                        spec.source.splits(width)
                    };
                    splits.map_err(|e| JobError::failed(format!("table '{}': {e}", spec.table)))?.into_iter().map(SplitState::new).collect()
                }
            };
            let ids = known.entry(index).or_default();
            for (i, split) in splits.into_iter().enumerate() {
                ids.insert(split.split.id.clone());
                let (round, place) = (i / width(index), i % width(index));
                let place = if backwards && round % 2 == 1 { width(index) - 1 - place } else { place };
                saved.places.insert(split_hash(split.partition()), place);
                assigned[place].entry(index).or_default().push(split);
                next_worker = i + 1;
            }
        }
        let metrics: Vec<Vec<Arc<NodeMetrics>>> =
            graph.nodes.iter().map(|_| (0..shards).map(|_| Arc::new(NodeMetrics::default())).collect()).collect();
        if let Some(monitor) = &self.options.monitor {
            monitor.watch(graph.nodes.iter().zip(&metrics).map(|(node, parts)| (node.name.clone(), parts.clone())).collect());
        }
        let checkpoint = manifest.as_ref().map_or(0, |m| m.id);
        let shared = Arc::new(Shared {
            graph,
            settings: self.settings,
            shards,
            signals: (0..shards).map(|_| Arc::new(Signal::default())).collect(),
            queues,
            checkpoint: AtomicU64::new(checkpoint),
            committed: AtomicU64::new(checkpoint),
            last: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            cancelled: Arc::new(AtomicBool::new(false)),
            exit: AtomicBool::new(false),
            discovered: Mutex::new(HashMap::new()),
            metrics,
            run_id,
            durable: store.is_some(),
        });
        let saved = Arc::new(saved);
        let (sender, events) = channel();
        let mut threads = Vec::new();
        let worker =
            |(shard, splits)| Worker::new(shared.clone(), shard, Start { splits, saved: saved.clone() }, sender.clone(), checkpoint);
        let workers: Result<Vec<_>, _> = assigned.into_iter().enumerate().map(worker).collect();
        if workers.is_err() && store.is_none() {
            // Some tables may have been opened when another could not be.
            abandon(&shared);
        }
        let workers = workers?;
        for (shard, worker) in workers.into_iter().enumerate() {
            let thread = std::thread::Builder::new().name(format!("worker-{shard}")).spawn(move || worker.run());
            threads.push(thread.map_err(|e| JobError::failed(format!("starting a worker thread: {e}")))?);
        }
        Ok(Running {
            shared,
            threads,
            events,
            _local: local,
            store,
            checkpoint,
            taken: 0,
            known,
            next_worker,
            finished: 0,
            asked: None,
            sinks_told: false,
            memory,
            recent: RecentLatency::default(),
        })
    }
}

/// Removes what the writers of a run have left, the last first: a directory that several have in common was made by the first.
fn abandon(shared: &Shared) {
    for node in shared.graph.nodes.iter().rev() {
        if let NodeKind::Sink(spec) = &node.kind {
            spec.sink.abandon(&shared.run_id);
        }
    }
}

/// How many operators there are that can keep state on disk, one in each shard counted.
fn spilling(graph: &Graph, shards: usize) -> usize {
    let width = |node: &Node| match &node.kind {
        NodeKind::Operator(factory) if factory().is_ok_and(|operator| operator.spills()) => {
            if node.single {
                1
            } else {
                shards
            }
        }
        _ => 0,
    };
    graph.nodes.iter().map(width).sum()
}

/// The time of a start, ms since 1970: later than that of every earlier start in this process, so that
/// jobs that start at once have run ids of their own.
fn start_of_run() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
    let earlier = LAST.fetch_update(Ordering::AcqRel, Ordering::Acquire, |last| Some(now.max(last + 1))).expect("always a next one");
    now.max(earlier + 1)
}

/// Commits what the restored checkpoint had prepared, and clears away what came after it.
fn recover(graph: &Graph, manifest: Option<&Manifest>) -> Result<(), JobError> {
    // Several inserts into one table share its target: they are recovered together.
    let mut by_table: BTreeMap<&str, (usize, Vec<serde_json::Value>)> = BTreeMap::new();
    for (index, node) in graph.nodes.iter().enumerate() {
        let NodeKind::Sink(spec) = &node.kind else { continue };
        let (_, committables) = by_table.entry(&spec.table).or_insert((index, Vec::new()));
        committables.extend(manifest.and_then(|m| m.sinks.get(&node.id)).into_iter().flatten().cloned());
    }
    for (table, (index, committables)) in by_table {
        let NodeKind::Sink(spec) = &graph.nodes[index].kind else { continue };
        spec.sink.recover(&committables, "").map_err(|e| JobError::failed(format!("recovering table '{table}': {e}")))?;
    }
    Ok(())
}

impl Running {
    /// Runs the job; whether all input was read.
    fn coordinate(&mut self, stop: &Stop, progress: &mut dyn FnMut(&Running)) -> Result<bool, JobError> {
        let settings = self.shared.settings.clone();
        let endless = self.shared.graph.nodes.iter().any(|n| matches!(&n.kind, NodeKind::Source(s) if !s.source.bounded()));
        // A bounded job without a state directory commits once, at its end: all or nothing.
        let periodic = self.store.is_some() || endless;
        let mut next_checkpoint = Instant::now() + settings.checkpoint_interval;
        let mut next_report = Instant::now();
        let mut next_discovery = Instant::now();
        let discovery = self.shared.graph.nodes.iter().filter_map(|n| match &n.kind {
            NodeKind::Source(s) => s.source.discovery_interval(),
            _ => None,
        });
        let discovery = discovery.min();
        let mut wanted = false;
        let mut next_wanted = Instant::now();
        loop {
            if self.finished == self.shared.shards {
                self.checkpoint(stop, true, true)?;
                return Ok(true);
            }
            if stop.requested() {
                self.shared.stopping.store(true, Ordering::Release);
                self.checkpoint(stop, true, false)?;
                return Ok(false);
            }
            let now = Instant::now();
            // What was read before a checkpoint's barrier is in it.
            self.asked = self.asked.filter(|barrier| *barrier >= self.checkpoint);
            let asked = now >= next_wanted && (self.asked.is_some() || (periodic && self.sources_want_checkpoint()));
            if periodic && (now >= next_checkpoint || asked || std::mem::take(&mut wanted)) {
                // What sources wished for so far is in the checkpoint that comes.
                self.sources_want_checkpoint();
                self.checkpoint(stop, false, false)?;
                next_checkpoint = Instant::now() + settings.checkpoint_interval;
                next_wanted = Instant::now() + WANTED_PAUSE;
                continue;
            }
            if let Some(interval) = discovery
                && now >= next_discovery
            {
                next_discovery = now + interval;
                self.discover()?;
            }
            if now >= next_report {
                next_report = now + REPORT;
                progress(self);
                self.check_memory()?;
            }
            let look = match self.asked {
                Some(_) if periodic => next_wanted.saturating_duration_since(now).min(LOOK),
                _ if periodic => LOOK,
                _ => next_report.saturating_duration_since(now),
            };
            match self.events.recv_timeout(look) {
                Ok(Event::Failed(e)) => return Err(e),
                Ok(Event::Finished) => self.finished += 1,
                Ok(Event::CheckpointWanted) => wanted = true,
                Ok(Event::CheckpointAsked(barrier)) => self.asked = self.asked.max(Some(barrier)),
                Ok(Event::Snapshot(_)) => return Err(JobError::failed("internal error: a snapshot that nobody asked for")),
                Err(RecvTimeoutError::Timeout) => {
                    tidy_up();
                    self.check_threads()?;
                }
                Err(RecvTimeoutError::Disconnected) => return Err(JobError::failed("internal error: the workers are gone")),
            }
        }
    }

    /// Whether any source wishes for a checkpoint. All are asked: some wish only until they were.
    fn sources_want_checkpoint(&self) -> bool {
        let wishes = |node: &&Node| matches!(&node.kind, NodeKind::Source(spec) if spec.source.wants_checkpoint());
        self.shared.graph.nodes.iter().filter(wishes).count() > 0
    }

    /// A worker that panicked sends no event.
    fn check_threads(&self) -> Result<(), JobError> {
        if self.threads.iter().any(|t| t.is_finished()) {
            return Err(JobError::failed("internal error: a worker ended before the job; its message is above"));
        }
        Ok(())
    }

    /// Tells the sinks, once, if the job was asked to stop: a checkpoint, even one that began before, may
    /// stand behind a writer that waits for a peer.
    fn heed(&mut self, stop: &Stop) {
        if self.sinks_told || !stop.requested() {
            return;
        }
        self.sinks_told = true;
        tell_sinks(&self.shared);
    }

    /// Commits what a checkpoint holds. That may wait for a server that is away: the sinks hear meanwhile that the job is to stop.
    fn commit(&mut self, sinks: &BTreeMap<String, Vec<Committable>>, stop: &Stop) -> Result<(), JobError> {
        let shared = &self.shared;
        let commit = || {
            shared.graph.nodes.iter().try_for_each(|node| match (&node.kind, sinks.get(&node.id)) {
                (NodeKind::Sink(spec), Some(committables)) => {
                    spec.sink.commit(committables).map_err(|e| JobError::failed(format!("committing table '{}': {e}", spec.table)))
                }
                _ => Ok(()),
            })
        };
        if self.sinks_told || sinks.values().all(Vec::is_empty) {
            return commit();
        }
        let (done, over) = channel::<()>();
        let (committed, told) = std::thread::scope(|scope| {
            let watch = scope.spawn(move || {
                while over.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
                    if stop.requested() {
                        tell_sinks(shared);
                        return true;
                    }
                }
                false
            });
            let committed = commit();
            drop(done);
            (committed, watch.join().unwrap_or(false))
        });
        self.sinks_told = told;
        committed
    }

    /// Takes a checkpoint and commits what it holds. With `last` the writers are closed.
    fn checkpoint(&mut self, stop: &Stop, last: bool, finished: bool) -> Result<(), JobError> {
        self.checkpoint += 1;
        self.shared.last.store(last, Ordering::Release);
        self.shared.checkpoint.store(self.checkpoint, Ordering::Release);
        self.shared.signals.iter().for_each(|s| s.raise());
        let mut snapshots: Vec<Snapshot> = Vec::new();
        while snapshots.len() < self.shared.shards {
            self.heed(stop);
            match self.events.recv_timeout(Duration::from_millis(100)) {
                Ok(Event::Snapshot(snapshot)) => snapshots.push(*snapshot),
                Ok(Event::Failed(e)) => return Err(e),
                Ok(Event::Finished) => self.finished += 1,
                Ok(Event::CheckpointWanted) => {}
                Ok(Event::CheckpointAsked(barrier)) => self.asked = self.asked.max(Some(barrier)),
                Err(RecvTimeoutError::Timeout) => self.check_threads()?,
                Err(RecvTimeoutError::Disconnected) => return Err(JobError::failed("internal error: the workers are gone")),
            }
        }
        snapshots.sort_by_key(|s| s.worker);
        let mut manifest = Manifest { id: self.checkpoint, finished, ..Manifest::default() };
        let mut workers: Vec<Vec<OperatorState>> = Vec::new();
        let mut read: HashMap<String, Vec<serde_json::Value>> = HashMap::new();
        // One sink may wait for somebody while another one has failed, by which the wait would not end.
        let failures: Vec<Failure> = snapshots.iter().flat_map(|s| &s.sinks).filter_map(|(_, prepared)| prepared.failure()).collect();
        for snapshot in snapshots {
            for (id, splits) in snapshot.sources {
                read.entry(id.clone()).or_default().extend(splits.iter().filter_map(|s| s.split.position.clone()));
                let values = splits.into_iter().map(|s| serde_json::to_value(s).expect("plain data"));
                manifest.sources.entry(id).or_default().extend(values);
            }
            for (id, prepared) in snapshot.sinks {
                manifest.sinks.entry(id).or_default().extend(prepared.wait(|| {
                    self.heed(stop);
                    failures.iter().try_for_each(Failure::check)
                })?);
            }
            workers.push(snapshot.operators);
        }
        let sinks = manifest.sinks.clone();
        if let Some(store) = &self.store {
            store.write(manifest, &workers)?;
        }
        self.taken += 1;
        let abort = self.shared.settings.abort_after.is_some_and(|n| self.taken >= n && !last);
        // Once before and once after the commit: both must be survived.
        if abort && self.taken % 2 == 1 {
            abort_now();
        }
        self.commit(&sinks, stop)?;
        if abort {
            abort_now();
        }
        for node in self.shared.graph.nodes.iter().filter(|_| finished) {
            if let NodeKind::Sink(spec) = &node.kind {
                spec.sink.finished();
            }
        }
        for node in &self.shared.graph.nodes {
            if let (NodeKind::Source(spec), Some(positions)) = (&node.kind, read.get(&node.id)) {
                spec.source.committed(positions);
            }
        }
        self.shared.committed.store(self.checkpoint, Ordering::Release);
        Ok(())
    }

    /// Looks for new splits and gives them to the workers in turn.
    fn discover(&mut self) -> Result<(), JobError> {
        let mut found: Vec<(usize, SplitState)> = Vec::new();
        for (index, node) in self.shared.graph.nodes.iter().enumerate() {
            let NodeKind::Source(spec) = &node.kind else { continue };
            if spec.source.discovery_interval().is_none() {
                continue;
            }
            let known = self.known.entry(index).or_default();
            let splits = spec
                .source
                .discover(self.shared.shards)
                .map_err(|e| JobError::failed(format!("table '{}': looking for new splits: {e}", spec.table)))?;
            found.extend(splits.into_iter().filter(|s| known.insert(s.id.clone())).map(|s| (index, SplitState::new(s))));
        }
        if !found.is_empty() {
            let mut discovered = self.shared.discovered.lock().expect("no panic while held");
            for (index, split) in found {
                discovered.entry((index, self.next_worker % self.shared.shards)).or_default().push(split);
                self.next_worker += 1;
            }
            drop(discovered);
            self.shared.signals.iter().for_each(|s| s.raise());
        }
        Ok(())
    }

    fn check_memory(&mut self) -> Result<(), JobError> {
        let Some(watch) = &mut self.memory else { return Ok(()) };
        let mut held = resident_bytes();
        for again in [false, true] {
            if watch.is_near(held) {
                // What is free is kept for a while.
                give_back(again);
                held = resident_bytes();
            }
        }
        if !watch.must_end(held) {
            return Ok(());
        }
        let limit = watch.limit();
        let mut nodes: Vec<NodeSummary> = self.nodes();
        nodes.sort_by_key(|n| std::cmp::Reverse(n.state_bytes));
        let parts: Vec<String> = nodes
            .iter()
            .filter(|n| n.state_bytes > 0)
            .take(5)
            .map(|n| format!("{} holds {} MB in {} entries", n.name, n.state_bytes >> 20, n.state_entries))
            .collect();
        Err(JobError::failed(format!(
            "the process holds {} MB, more than the limit of {} MB: {}; raise --memory, or keep less state (shorter windows, fewer keys)",
            held >> 20,
            limit >> 20,
            if parts.is_empty() { "no operator holds state, so buffers do".to_string() } else { parts.join(", ") }
        )))
    }

    fn nodes(&self) -> Vec<NodeSummary> {
        self.shared.graph.nodes.iter().zip(&self.shared.metrics).map(|(node, parts)| node_summary(&node.name, parts)).collect()
    }

    fn totals(&self) -> (u64, u64, u64) {
        let (mut rows_in, mut rows_out, mut dropped) = (0, 0, 0);
        for (node, parts) in self.shared.graph.nodes.iter().zip(&self.shared.metrics) {
            let summary = node_summary("", parts);
            dropped += summary.bad_rows + summary.late_rows + summary.unknown_rows + summary.dropped_matches;
            match &node.kind {
                NodeKind::Source(_) => rows_in += summary.rows,
                NodeKind::Sink(_) => rows_out += summary.rows,
                _ => {}
            }
        }
        (rows_in, rows_out, dropped)
    }

    fn report(&self, begun: Instant) -> ProgressReport {
        let (rows_in, rows_out, dropped) = self.totals();
        let sinks = self.shared.graph.nodes.iter().zip(&self.shared.metrics).filter(|(n, _)| matches!(n.kind, NodeKind::Sink(_)));
        let parts: Vec<&Arc<NodeMetrics>> = sinks.flat_map(|(_, parts)| parts).collect();
        let watermark = parts.iter().map(|m| m.watermark.load(Ordering::Relaxed)).min();
        ProgressReport {
            elapsed: begun.elapsed(),
            rows_in,
            rows_out,
            watermark: watermark.filter(|w| *w != i64::MIN && *w != i64::MAX),
            laggard: self.laggard(),
            memory: resident_bytes(),
            dropped,
            latency_ms: self.recent.look(parts.into_iter()),
        }
    }

    /// Of all sources the split that lags most, if it is silent: one that gives rows catches up by itself.
    fn laggard(&self) -> Option<Laggard> {
        let all = self.shared.metrics.iter().filter_map(|parts| laggard(parts));
        all.min_by_key(|l| l.watermark).filter(|l| l.silent_s >= SILENT_S)
    }

    fn summary(&self, finished: bool, begun: Instant, usage: (f64, f64), read: Origins) -> Summary {
        let (rows_in, rows_out, _) = self.totals();
        let (user, sys) = process_usage();
        let elapsed = begun.elapsed().as_secs_f64();
        let sinks = self.shared.graph.nodes.iter().zip(&self.shared.metrics).filter(|(n, _)| matches!(n.kind, NodeKind::Sink(_)));
        Summary {
            job: self.shared.settings.name.clone().unwrap_or_default(),
            mode: "streaming".into(),
            parallelism: self.shared.shards,
            finished,
            already_finished: false,
            elapsed_s: elapsed,
            user_s: user - usage.0,
            sys_s: sys - usage.1,
            peak_memory_bytes: peak_bytes(),
            read: bytes_read().since(read),
            rows_in,
            rows_out,
            rows_per_s: rows_in as f64 / elapsed.max(1e-9),
            latency_ms: latency(sinks.flat_map(|(_, parts)| parts)),
            checkpoints: self.taken,
            nodes: self.nodes(),
            listeners: listeners::stats(),
            unknown_channels: siddhi_tcp::unknown_channels().into_iter().collect(),
        }
    }
}

/// Ends the process as a crash would: no destructors, no flushing.
fn abort_now() -> ! {
    // SAFETY: _exit ends the process; nothing of ours runs after it.
    unsafe { libc::_exit(137) }
}

/// Says which parts of the query a checkpoint has state of that the job no longer has: they were edited, and begin empty.
fn tell_unused(graph: &Graph, saved: &Saved) {
    let has = |id: &&String| graph.nodes.iter().any(|node| node.id == **id);
    let unused: BTreeSet<&String> = saved.tables.keys().chain(saved.runs.keys()).filter(|id| !has(id)).collect();
    if let Some(first) = unused.first() {
        tidemill_connect::notice(&format!(
            "the checkpoint has state of {} parts of the query that are not in the job any more, and leaves it unused; what was edited begins \
             empty, --fresh begins all of it anew. The first is {}",
            unused.len(),
            first.chars().take(200).collect::<String>()
        ));
    }
}

/// Tells the sinks that the job was asked to stop.
fn tell_sinks(shared: &Shared) {
    for node in &shared.graph.nodes {
        if let NodeKind::Sink(spec) = &node.kind {
            spec.sink.stopping();
        }
    }
}
