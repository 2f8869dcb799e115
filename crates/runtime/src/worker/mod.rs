//! A worker: one thread that runs every operator of a job for one shard.
//!
//! Within a worker a block runs through a chain of operators to the end before the next is taken.
//! Rows whose key belongs to another shard go through [`exchange`] queues. What came from other
//! workers is worked off before more is read (but see [`DRAINS_MAX`]), and nothing is read while a queue that the
//! worker writes to is full, so memory stays bounded and no cycle of waiting can arise (edges go one way). Which
//! source is read is said in [`turns`]. Operators that wait for something outside are served in [`waiting`], state is
//! taken back and written in [`state`].

pub(crate) mod drift;
pub(crate) mod exchange;
mod goal;
mod mailbox;
pub(crate) mod members;
pub(crate) mod sink;
mod sleep;
pub(crate) mod source;
pub(crate) mod state;
#[cfg(test)]
mod tests;
mod turns;
mod waiting;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use arrow::array::UInt32Array;
use tidemill_block::{Block, NO_WATERMARK, WATERMARK_END, clock};
use tidemill_connect::{SinkContext, Sockets, Waker, drive};
use tidemill_operator::check::Check;
use tidemill_operator::map::Expr;
use tidemill_operator::{Operator, Output, SnapshotFiles};
use tidemill_state::StateTable;
use tidemill_state::checkpoint::OperatorState;

use crate::JobError;
use crate::metrics::NodeMetrics;
use crate::physical::{Graph, NodeKind, Ship};
use crate::row_bytes::Gathered;
use crate::settings::Settings;
use exchange::{Element, Queue, Signal, scatter};
use sink::{Prepared, SinkTask};
use sleep::Busy;
pub use sleep::{at_rest, when_short};
pub(crate) use sleep::{give_back, tidy_up};
use source::{Outcome, SourceTask, SplitState};
use state::Saved;
use turns::Turns;
use waiting::{Waiter, leads};

/// What all workers and the coordinator share.
pub(crate) struct Shared {
    pub graph: Graph,
    pub settings: Settings,
    pub shards: usize,
    pub signals: Vec<Arc<Signal>>,
    /// Queues by (consumer, input), then by receiving and by sending worker.
    pub queues: HashMap<(usize, usize), Vec<Vec<Queue>>>,
    /// The newest checkpoint asked for, and whether it is the last.
    pub checkpoint: AtomicU64,
    /// The newest checkpoint that is safe, and what it covers committed.
    pub committed: AtomicU64,
    pub last: AtomicBool,
    /// Read no more.
    pub stopping: AtomicBool,
    /// Give up at once.
    pub cancelled: Arc<AtomicBool>,
    /// End the threads.
    pub exit: AtomicBool,
    /// New splits for (source node, worker).
    pub discovered: Mutex<HashMap<(usize, usize), Vec<SplitState>>>,
    /// By node, then by worker.
    pub metrics: Vec<Vec<Arc<NodeMetrics>>>,
    pub run_id: String,
    /// Checkpoints outlive the process: what they hold is not lost when it ends.
    pub durable: bool,
}

/// A worker's part of a checkpoint.
pub(crate) struct Snapshot {
    pub worker: usize,
    pub operators: Vec<OperatorState>,
    pub sources: Vec<(String, Vec<SplitState>)>,
    pub sinks: Vec<(String, Prepared)>,
}

/// What a worker tells the coordinator.
pub(crate) enum Event {
    Snapshot(Box<Snapshot>),
    /// All input is read and all output written.
    Finished,
    Failed(JobError),
    /// A source wants a checkpoint (tests).
    CheckpointWanted,
    /// Somebody waits for what a source has read to be committed; told by a worker whose newest barrier is this.
    CheckpointAsked(u64),
}

struct Channel {
    watermark: i64,
    idle: bool,
    barrier: bool,
}

/// Where a node's output goes.
struct Out {
    node: usize,
    input: usize,
    /// Channel at the consumer if it is in this worker.
    channel: usize,
    route: Route,
}

enum Route {
    Local,
    BadRecords,
    Hash { keys: Vec<Expr>, pending: Vec<Vec<Block>>, gathered: Gathered },
    First { pending: Vec<Block>, gathered: Gathered },
}

enum Body {
    Source(Box<SourceTask>),
    Values(Option<Block>),
    Operator(Box<dyn Operator>),
    Union,
    Sink(Box<SinkTask>),
}

struct Instance {
    body: Body,
    channels: Vec<Channel>,
    /// Which input each channel belongs to.
    inputs: Vec<usize>,
    outs: Vec<Out>,
    watermark: i64,
    idle: bool,
    barriers: usize,
    /// Elements of channels whose barrier has come, while others' has not.
    stash: VecDeque<(usize, Element)>,
    finished: bool,
    /// The newest barrier that has passed the node.
    passed: u64,
    /// Of an operator that waits for something outside.
    waiter: Option<Waiter>,
}

/// Rows gathered for another worker before they are handed over, unless they are large or the input pauses
/// first: a hand-over costs about a microsecond, so it must not be paid for a few rows.
const EXCHANGE_ROWS: usize = 1024;
/// Blocks of a small fixed size that are taken from what was read before the worker looks at its
/// other duties again.
const PARTS_MAX: usize = 64;
/// Rounds in which only what other workers sent is worked off, before sources are polled even so: the others might
/// never leave the worker a moment for its own.
const DRAINS_MAX: u32 = 8;
/// How long a worker sleeps at most when it has nothing to do, and there may be something of which nobody tells.
const NAP: Duration = Duration::from_millis(5);
/// The same where whatever there will be to do wakes it.
const LONG_NAP: Duration = Duration::from_millis(100);

pub(crate) struct Worker {
    shared: Arc<Shared>,
    shard: usize,
    nodes: Vec<Option<Instance>>,
    /// Queues into this worker: (consumer, first channel, input), latest stages first.
    inboxes: Vec<(usize, usize, usize)>,
    sources: Vec<usize>,
    /// Operators that wait for something outside, latest stages first.
    waiters: Vec<usize>,
    /// For each node those of them that rows given to it reach without leaving this worker.
    leads: Vec<Vec<usize>>,
    /// Inboxes, by their place, whose senders have been told to hold back.
    held: Vec<bool>,
    turns: Turns,
    /// Sources, by their place, in the order in which they are asked: whether they had their turn, and how far they are
    /// in event time, ms. Kept for its memory.
    order: Vec<(bool, i64, usize)>,
    /// Rounds since sources could be polled.
    drains: u32,
    events: Sender<Event>,
    barrier: u64,
    /// The newest barrier when it last asked for a checkpoint.
    asked_at: Option<u64>,
    snapshot: Option<Snapshot>,
    /// Operators that are writing files for it.
    writing: Vec<usize>,
    /// Before this time none of it is written while there are rows.
    writes_from_ns: u64,
    /// What the operators begin with, until they have it.
    saved: Option<Arc<Saved>>,
    /// Nodes that are not at the end of their input.
    remaining: usize,
    /// Nodes that the current barrier has not reached.
    remaining_barriers: usize,
    buffers: Vec<Vec<Block>>,
    /// What it waits for while it sleeps; kept for its memory.
    sockets: Sockets,
    busy: Busy,
    last_watermark_ns: u64,
    /// What watermarks let go has taken since a source last told how long a block of its took: it is work of blocks, too.
    watermark_work_ns: u64,
    /// How long blocks have waited for threads of sinks, since the start.
    waited_ns: u64,
    last_stats_ns: u64,
    /// When it last did what belongs to a rest.
    last_rest_ns: u64,
    checkpoint_blocks: u64,
    finished: bool,
    dirty: bool,
}

/// What a worker starts from.
pub(crate) struct Start {
    pub splits: HashMap<usize, Vec<SplitState>>,
    pub saved: Arc<Saved>,
}

impl Worker {
    /// `checkpoint` is the number of the newest checkpoint, from which the job goes on.
    pub fn new(shared: Arc<Shared>, shard: usize, start: Start, events: Sender<Event>, checkpoint: u64) -> Result<Self, JobError> {
        let graph = &shared.graph;
        let shards = shared.shards;
        let width = |node: usize| if graph.nodes[node].single { 1 } else { shards };
        let mut nodes: Vec<Option<Instance>> = Vec::new();
        let mut inboxes = Vec::new();
        for (index, node) in graph.nodes.iter().enumerate() {
            if shard >= width(index) {
                nodes.push(None);
                continue;
            }
            let metrics = shared.metrics[index][shard].clone();
            let waker = {
                let signal = shared.signals[shard].clone();
                Waker::new(move || signal.raise())
            };
            let body = match &node.kind {
                NodeKind::Source(spec) => {
                    let dead = spec.dead_letter.map(|n| graph.nodes[n].schema.clone());
                    let mut task = SourceTask::new(spec, node.schema.clone(), &shared.settings, waker, shard, shards, dead, metrics);
                    start.splits.get(&index).into_iter().flatten().cloned().for_each(|s| task.add(s));
                    Body::Source(Box::new(task))
                }
                NodeKind::Values(batch) => {
                    let emitted = start.saved.tables.contains_key(&node.id);
                    Body::Values((!emitted).then(|| Block::inserts(batch.clone(), 0)))
                }
                NodeKind::Union => Body::Union,
                NodeKind::Operator(factory) => {
                    let mut operator = factory().map_err(|e| JobError::failed(format!("{}: {e}", node.name)))?;
                    if shared.settings.check_operators {
                        operator = Box::new(Check::new(operator, node.schema.clone()));
                    }
                    let signal = shared.signals[shard].clone();
                    operator.attach(Arc::new(move || signal.raise()));
                    operator.place(shard, width(index));
                    Body::Operator(operator)
                }
                NodeKind::Sink(spec) => {
                    let context = SinkContext {
                        shard,
                        shards: width(index),
                        schema: spec.schema.clone(),
                        run_id: shared.run_id.clone(),
                        cancelled: shared.cancelled.clone(),
                    };
                    Body::Sink(Box::new(SinkTask::open(spec, context, shared.settings.block_size, metrics)?))
                }
            };
            let mut channels = Vec::new();
            let mut inputs = Vec::new();
            for (input, edge) in node.inputs.iter().enumerate() {
                let producers = match edge.ship {
                    Ship::Forward | Ship::BadRecords => 1,
                    _ => {
                        inboxes.push((index, channels.len(), input));
                        width(edge.from)
                    }
                };
                for _ in 0..producers {
                    channels.push(Channel { watermark: NO_WATERMARK, idle: false, barrier: false });
                    inputs.push(input);
                }
            }
            let waits = matches!(&body, Body::Operator(operator) if operator.waits());
            nodes.push(Some(Instance {
                waiter: waits.then(Waiter::default),
                passed: checkpoint,
                body,
                channels,
                inputs,
                outs: Vec::new(),
                watermark: NO_WATERMARK,
                idle: false,
                barriers: 0,
                stash: VecDeque::new(),
                finished: false,
            }));
        }
        // Outputs, from the consumers' point of view.
        for (index, node) in graph.nodes.iter().enumerate() {
            let mut channel = 0;
            for (input, edge) in node.inputs.iter().enumerate() {
                let route = match &edge.ship {
                    Ship::Forward => Route::Local,
                    Ship::BadRecords => Route::BadRecords,
                    Ship::Hash(keys) => Route::Hash { keys: keys.clone(), pending: vec![Vec::new(); shards], gathered: Default::default() },
                    Ship::Single => Route::First { pending: Vec::new(), gathered: Default::default() },
                };
                let producers = match edge.ship {
                    Ship::Forward | Ship::BadRecords => 1,
                    _ => width(edge.from),
                };
                // One worker has nobody to exchange with: the edge is local.
                let route = if shards == 1 && !matches!(route, Route::BadRecords) { Route::Local } else { route };
                if let Some(from) = &mut nodes[edge.from] {
                    from.outs.push(Out { node: index, input, channel, route });
                }
                channel += producers;
            }
        }
        inboxes.sort_by_key(|(node, ..)| std::cmp::Reverse(*node));
        if shards == 1 {
            inboxes.clear();
        }
        let sources: Vec<usize> =
            (0..nodes.len()).filter(|n| matches!(nodes[*n].as_ref().map(|i| &i.body), Some(Body::Source(_) | Body::Values(_)))).collect();
        let turns = Turns::new(graph, &sources);
        let remaining = nodes.iter().flatten().count();
        let busy = Busy::new(shared.settings.busy_poll);
        let waiters = (0..nodes.len()).rev().filter(|n| nodes[*n].as_ref().is_some_and(|i| i.waiter.is_some())).collect();
        Ok(Worker {
            waiters,
            leads: leads(&nodes),
            held: vec![false; inboxes.len()],
            shared,
            shard,
            nodes,
            inboxes,
            order: Vec::with_capacity(sources.len()),
            turns,
            drains: 0,
            sources,
            events,
            barrier: checkpoint,
            asked_at: None,
            snapshot: None,
            writing: Vec::new(),
            writes_from_ns: 0,
            saved: Some(start.saved),
            remaining,
            remaining_barriers: 0,
            buffers: Vec::new(),
            sockets: Sockets::default(),
            busy,
            last_watermark_ns: 0,
            watermark_work_ns: 0,
            waited_ns: 0,
            last_stats_ns: 0,
            last_rest_ns: 0,
            checkpoint_blocks: 0,
            finished: false,
            dirty: false,
        })
    }

    /// Runs until the coordinator says that it is over; failures are reported as events.
    pub fn run(mut self) {
        self.shared.signals[self.shard].adopt();
        // Ends before the operators do, on this thread.
        let _stay = drive::enter();
        if let Err(e) = self.restore() {
            let _ = self.events.send(Event::Failed(e));
            return;
        }
        if self.remaining == 0 {
            // A job of single nodes leaves the other workers without any.
            self.finished = true;
            let _ = self.events.send(Event::Finished);
        }
        if let Err(e) = self.run_loop() {
            let _ = self.events.send(Event::Failed(e));
        }
    }

    fn run_loop(&mut self) -> Result<(), JobError> {
        loop {
            if self.shared.exit.load(Ordering::Acquire) || self.shared.cancelled.load(Ordering::Acquire) {
                return Ok(());
            }
            let asked = self.shared.checkpoint.load(Ordering::Acquire);
            if asked > self.barrier && self.snapshot.is_none() {
                self.begin_checkpoint(asked)?;
            }
            if let Some(drive) = drive::current() {
                drive.glance();
            }
            let mut worked = self.poll_waiters()?;
            let drained = self.drain_inboxes()?;
            self.drains = if drained { self.drains.saturating_add(1) } else { DRAINS_MAX };
            let reads = self.drains >= DRAINS_MAX && !self.shared.stopping.load(Ordering::Acquire) && self.has_room();
            if reads {
                self.drains = 0;
                worked |= self.poll_sources()?;
            }
            worked |= drained;
            worked |= self.write_state(worked)?;
            let now = clock::now_ns();
            if now - self.last_stats_ns > 50_000_000 {
                self.last_stats_ns = now;
                self.publish_stats();
            }
            if worked {
                self.dirty = true;
                self.pause(now)?;
            } else {
                self.rest(reads)?;
            }
        }
    }

    fn publish_stats(&mut self) {
        for (index, node) in self.nodes.iter().enumerate() {
            let Some(node) = node else { continue };
            let metrics = &self.shared.metrics[index][self.shard];
            metrics.watermark.store(node.watermark, Ordering::Relaxed);
            if let Body::Source(task) = &node.body {
                metrics.record_laggard(task.laggard(clock::now_ns()));
            }
            if let Body::Operator(operator) = &node.body {
                let stats = operator.stats();
                metrics.entries.store(stats.entries, Ordering::Relaxed);
                metrics.memory.store(stats.memory, Ordering::Relaxed);
                metrics.late_rows.store(stats.late_rows, Ordering::Relaxed);
                metrics.unknown_rows.store(stats.unknown_rows, Ordering::Relaxed);
                metrics.partial_matches.store(stats.partial_matches, Ordering::Relaxed);
                metrics.dropped_matches.store(stats.dropped_matches, Ordering::Relaxed);
                if node.waiter.is_some() {
                    metrics.record_calls(stats.calls);
                }
                if let Some(disk) = operator.disk_stats() {
                    metrics.record_disk(disk);
                }
            }
        }
    }

    // ---- input -------------------------------------------------------------------------------

    /// Whether every queue that this worker writes to has room.
    fn has_room(&self) -> bool {
        if self.shared.shards == 1 {
            return true;
        }
        self.nodes.iter().flatten().flat_map(|n| &n.outs).all(|out| self.out_has_room(out))
    }

    fn out_has_room(&self, out: &Out) -> bool {
        match out.route {
            Route::Local | Route::BadRecords => true,
            _ => self.shared.queues[&(out.node, out.input)].iter().all(|to| to.get(self.shard).is_none_or(Queue::has_room)),
        }
    }

    /// Whether what `node` may cause to be sent has room; later stages always come first, so the
    /// last one never waits.
    fn downstream_has_room(&self, node: usize) -> bool {
        let Some(instance) = &self.nodes[node] else { return true };
        instance.outs.iter().all(|out| match out.route {
            Route::Local | Route::BadRecords => self.downstream_has_room(out.node),
            _ => self.out_has_room(out),
        })
    }

    fn drain_inboxes(&mut self) -> Result<bool, JobError> {
        let mut worked = false;
        for at in 0..self.inboxes.len() {
            let (node, first, input) = self.inboxes[at];
            if !self.downstream_has_room(node) {
                continue;
            }
            let senders = self.shared.queues[&(node, input)][self.shard].len();
            for sender in 0..senders {
                // A channel whose barrier has come waits for the others'.
                for _ in 0..16 {
                    if self.nodes[node].as_ref().is_some_and(|n| n.channels[first + sender].barrier) || self.closed(node) {
                        break;
                    }
                    let Some(element) = self.shared.queues[&(node, input)][self.shard][sender].pop() else { break };
                    self.deliver(node, first + sender, element)?;
                    worked = true;
                }
            }
        }
        Ok(worked)
    }

    fn poll_sources(&mut self) -> Result<bool, JobError> {
        // Among those whose turn it is, the source that lags most in event time goes first.
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        for (at, index) in self.sources.iter().enumerate().filter(|(_, s)| !self.blocked(**s)) {
            let node = self.nodes[*index].as_ref().expect("sources are in every worker they belong to");
            match &node.body {
                Body::Source(task) if !task.ended => order.push((self.turns.had(at), task.progress(), at)),
                Body::Values(_) if !node.finished => order.push((self.turns.had(at), i64::MIN, at)),
                _ => {}
            }
        }
        if order.len() > 1 {
            order.sort_unstable();
        }
        let mut polled = false;
        for (.., at) in &order {
            polled = self.poll(self.sources[*at])?;
            if polled {
                self.turns.take(*at);
                break;
            }
        }
        self.order = order;
        if polled {
            let interval = self.shared.settings.watermark_interval.as_nanos() as u64;
            let now = clock::now_ns();
            if now - self.last_watermark_ns >= interval {
                let waited_ns = self.waited_ns;
                self.emit_watermarks()?;
                self.watermark_work_ns += (clock::now_ns() - now).saturating_sub(self.waited_ns - waited_ns);
            }
            if let Some(every) = self.shared.settings.checkpoint_blocks {
                self.checkpoint_blocks += 1;
                if self.checkpoint_blocks.is_multiple_of(every) {
                    let _ = self.events.send(Event::CheckpointWanted);
                    // So that tests find the checkpoint near the block that asked for it.
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
        }
        Ok(polled)
    }

    fn poll(&mut self, index: usize) -> Result<bool, JobError> {
        let node = self.nodes[index].as_mut().expect("polled nodes are here");
        match &mut node.body {
            Body::Values(rows) => {
                if let Some(block) = rows.take() {
                    self.route(index, block)?;
                }
                self.advance(index, WATERMARK_END)?;
                self.finish(index);
                Ok(true)
            }
            Body::Source(task) => match task.poll()? {
                Outcome::Block(block) => {
                    if let Some(taken_ns) = task.taken(block.rows()) {
                        let (rows, arrival_ns, waited_ns) = (block.rows(), block.arrival_ns, self.waited_ns);
                        self.route(index, block)?;
                        let beside_ns = std::mem::take(&mut self.watermark_work_ns);
                        if let Some(Instance { body: Body::Source(task), .. }) = &mut self.nodes[index] {
                            task.served(rows, arrival_ns, taken_ns, beside_ns, self.waited_ns - waited_ns);
                        }
                        return Ok(true);
                    }
                    self.route(index, block)?;
                    for _ in 0..PARTS_MAX {
                        if self.blocked(index) {
                            break;
                        }
                        let Some(Instance { body: Body::Source(task), .. }) = &mut self.nodes[index] else { break };
                        let Some(part) = task.next_part() else { break };
                        self.route(index, part)?;
                    }
                    Ok(true)
                }
                Outcome::BadRecords { bad, good } => {
                    self.route_bad(index, bad)?;
                    if let Some(block) = good {
                        self.route(index, block)?;
                    }
                    Ok(true)
                }
                Outcome::Pending => Ok(false),
                Outcome::End => {
                    task.ended = true;
                    self.advance(index, WATERMARK_END)?;
                    self.finish(index);
                    Ok(true)
                }
            },
            _ => Ok(false),
        }
    }

    /// Passes on how far the sources have come in event time.
    fn emit_watermarks(&mut self) -> Result<(), JobError> {
        let now = clock::now_ns();
        self.last_watermark_ns = now;
        for at in 0..self.sources.len() {
            self.emit_watermark(self.sources[at], now)?;
        }
        Ok(())
    }

    fn emit_watermark(&mut self, index: usize, now_ns: u64) -> Result<(), JobError> {
        let Some(Instance { body: Body::Source(task), .. }) = &mut self.nodes[index] else { return Ok(()) };
        if task.ended {
            return Ok(());
        }
        let (watermark, idle) = task.watermark(now_ns);
        if idle != task.emitted_idle {
            task.emitted_idle = idle;
            self.control(index, &Element::Idle(idle))?;
        }
        let Some(Instance { body: Body::Source(task), .. }) = &mut self.nodes[index] else { return Ok(()) };
        if watermark > task.emitted_watermark {
            task.emitted_watermark = watermark;
            self.advance(index, watermark)?;
        }
        Ok(())
    }

    // ---- the dataflow ------------------------------------------------------------------------

    fn deliver(&mut self, index: usize, channel: usize, element: Element) -> Result<(), JobError> {
        let node = self.nodes[index].as_mut().expect("elements are sent to workers that have the node");
        if node.channels[channel].barrier {
            node.stash.push_back((channel, element));
            return Ok(());
        }
        match element {
            Element::Block(block) => self.block(index, channel, block),
            Element::Watermark(watermark) => {
                node.channels[channel].watermark = watermark;
                node.channels[channel].idle = false;
                self.combine(index)
            }
            Element::Idle(idle) => {
                node.channels[channel].idle = idle;
                self.combine(index)
            }
            Element::Barrier(id) => {
                if id > self.barrier {
                    // Another worker began first; this one's sources take part from here on.
                    self.begin_checkpoint(id)?;
                }
                let node = self.nodes[index].as_mut().expect("as above");
                node.channels[channel].barrier = true;
                node.barriers += 1;
                if node.barriers == node.channels.len() { self.aligned(index, id) } else { Ok(()) }
            }
        }
    }

    fn failed(&self, index: usize, e: impl std::fmt::Display) -> JobError {
        JobError::failed(format!("{}: {e}", self.shared.graph.nodes[index].name))
    }

    fn block(&mut self, index: usize, channel: usize, block: Block) -> Result<(), JobError> {
        let node = self.nodes[index].as_mut().expect("checked by deliver");
        match &mut node.body {
            Body::Sink(sink) => {
                sink.write(block)?;
                self.waited_ns += sink.waited().as_nanos() as u64;
                Ok(())
            }
            Body::Union => self.route(index, block),
            Body::Operator(operator) => {
                self.shared.metrics[index][self.shard].rows.fetch_add(block.rows() as u64, Ordering::Relaxed);
                let mut out = Output { blocks: self.buffers.pop().unwrap_or_default() };
                let input = node.inputs[channel];
                if let Err(e) = operator.on_block(input, block, &mut out) {
                    return Err(self.failed(index, e));
                }
                self.pass_on(index, out)
            }
            Body::Source(_) | Body::Values(_) => unreachable!("sources have no input"),
        }
    }

    fn pass_on(&mut self, index: usize, mut out: Output) -> Result<(), JobError> {
        for block in out.blocks.drain(..) {
            self.route(index, block)?;
        }
        self.buffers.push(out.blocks);
        Ok(())
    }

    /// Recomputes a node's watermark from its channels'.
    fn combine(&mut self, index: usize) -> Result<(), JobError> {
        let node = self.nodes[index].as_mut().expect("checked by deliver");
        let active = node.channels.iter().filter(|c| !c.idle).map(|c| c.watermark).min();
        let idle = active.is_none() && !node.holds();
        if idle != node.idle {
            node.idle = idle;
            self.control(index, &Element::Idle(idle))?;
        }
        let node = self.nodes[index].as_mut().expect("as above");
        match active {
            Some(watermark) if watermark > node.watermark => {
                node.watermark = watermark;
                self.shared.metrics[index][self.shard].watermark.store(watermark, Ordering::Relaxed);
                self.pass_watermark(index)
            }
            _ => Ok(()),
        }
    }

    fn finish(&mut self, index: usize) {
        let node = self.nodes[index].as_mut().expect("a node of this worker");
        if !node.finished {
            node.finished = true;
            self.remaining -= 1;
            if self.remaining == 0 && !self.finished {
                self.finished = true;
                self.publish_stats();
                let _ = self.events.send(Event::Finished);
            }
        }
    }

    /// Sends a watermark to a node's consumers.
    fn advance(&mut self, index: usize, watermark: i64) -> Result<(), JobError> {
        self.control(index, &Element::Watermark(watermark))
    }

    /// Sends a control element to all consumers, behind the rows gathered for them.
    fn control(&mut self, index: usize, element: &Element) -> Result<(), JobError> {
        self.flush_exchanges(Some(index))?;
        let outs = self.nodes[index].as_ref().expect("a node of this worker").outs.len();
        for at in 0..outs {
            let out = &self.nodes[index].as_ref().expect("as above").outs[at];
            let (node, input, channel) = (out.node, out.input, out.channel);
            match out.route {
                Route::Local | Route::BadRecords => self.deliver(node, channel, element.clone())?,
                Route::Hash { .. } => (0..self.shared.shards).for_each(|to| self.send(node, input, to, element.clone())),
                Route::First { .. } => self.send(node, input, 0, element.clone()),
            }
        }
        Ok(())
    }

    fn send(&self, node: usize, input: usize, to: usize, element: Element) {
        self.shared.queues[&(node, input)][to][self.shard].push(element);
        self.shared.signals[to].raise();
    }

    fn route_bad(&mut self, index: usize, block: Block) -> Result<(), JobError> {
        let target = self.nodes[index]
            .as_ref()
            .expect("a source of this worker")
            .outs
            .iter()
            .find(|o| matches!(o.route, Route::BadRecords))
            .map(|o| (o.node, o.channel));
        match target {
            Some((node, channel)) => self.deliver(node, channel, Element::Block(block)),
            None => Ok(()),
        }
    }

    fn route(&mut self, index: usize, block: Block) -> Result<(), JobError> {
        let outs = self.nodes[index].as_ref().expect("a node of this worker").outs.len();
        let mut block = Some(block);
        for at in 0..outs {
            let out = &mut self.nodes[index].as_mut().expect("as above").outs[at];
            // The last consumer gets the block itself.
            let rows = if at + 1 == outs { block.take().expect("taken once") } else { block.clone().expect("not yet taken") };
            match &mut out.route {
                Route::Local => {
                    let (node, channel) = (out.node, out.channel);
                    self.deliver(node, channel, Element::Block(rows))?;
                }
                Route::BadRecords => {}
                Route::First { pending, gathered } => {
                    let enough = gathered.add(&rows.batch, EXCHANGE_ROWS);
                    pending.push(rows);
                    if enough {
                        self.flush_out(index, at)?;
                    }
                }
                Route::Hash { keys, pending, gathered } => {
                    let enough = gathered.add(&rows.batch, EXCHANGE_ROWS);
                    if let Err(e) = scatter(&rows, keys, pending) {
                        return Err(self.failed(index, e));
                    }
                    if enough {
                        self.flush_out(index, at)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Hands over what was gathered for other workers, by one node or all.
    fn flush_exchanges(&mut self, node: Option<usize>) -> Result<(), JobError> {
        let range = node.map_or(0..self.nodes.len(), |n| n..n + 1);
        for index in range {
            let outs = self.nodes[index].as_ref().map_or(0, |n| n.outs.len());
            for at in 0..outs {
                self.flush_out(index, at)?;
            }
        }
        Ok(())
    }

    fn flush_out(&mut self, index: usize, at: usize) -> Result<(), JobError> {
        let schema = self.shared.graph.nodes[index].schema.clone();
        let out = &mut self.nodes[index].as_mut().expect("a node of this worker").outs[at];
        let (node, input) = (out.node, out.input);
        let ready: Vec<(usize, Vec<Block>)> = match &mut out.route {
            Route::Local | Route::BadRecords => return Ok(()),
            Route::First { pending, gathered } => {
                gathered.take();
                if pending.is_empty() { Vec::new() } else { vec![(0, std::mem::take(pending))] }
            }
            Route::Hash { pending, gathered, .. } => {
                if gathered.take().0 == 0 {
                    return Ok(());
                }
                pending.iter_mut().enumerate().filter(|(_, p)| !p.is_empty()).map(|(to, p)| (to, std::mem::take(p))).collect()
            }
        };
        for (to, blocks) in ready {
            let block = Block::concat(&schema, &blocks).map_err(JobError::failed)?;
            self.send(node, input, to, Element::Block(block));
        }
        Ok(())
    }

    // ---- checkpoints -------------------------------------------------------------------------

    fn begin_checkpoint(&mut self, id: u64) -> Result<(), JobError> {
        self.barrier = id;
        self.snapshot = Some(Snapshot { worker: self.shard, operators: Vec::new(), sources: Vec::new(), sinks: Vec::new() });
        self.remaining_barriers = self.nodes.iter().flatten().count();
        if self.remaining_barriers == 0 {
            self.send_snapshot();
        }
        for at in 0..self.sources.len() {
            let index = self.sources[at];
            if let Some(Instance { body: Body::Source(task), .. }) = &mut self.nodes[index]
                && let Some(block) = task.release()?
            {
                self.route(index, block)?;
            }
            // What can be known from the rows before the checkpoint becomes visible with it.
            self.emit_watermark(index, clock::now_ns())?;
            self.barrier(index, id)?;
        }
        Ok(())
    }

    fn send_snapshot(&mut self) {
        let snapshot = self.snapshot.take().expect("a checkpoint has begun");
        let _ = self.events.send(Event::Snapshot(Box::new(snapshot)));
    }

    /// Every channel of a node has the barrier: its state is taken and the barrier passed on.
    fn barrier(&mut self, index: usize, id: u64) -> Result<(), JobError> {
        let last = self.shared.last.load(Ordering::Acquire);
        let state_id = &self.shared.graph.nodes[index].id;
        let node = self.nodes[index].as_mut().expect("a node of this worker");
        let snapshot = self.snapshot.as_mut().expect("a barrier belongs to a checkpoint that has begun");
        match &mut node.body {
            Body::Source(task) => snapshot.sources.push((state_id.clone(), task.states())),
            Body::Values(rows) => {
                if rows.is_none() {
                    snapshot.operators.push(OperatorState { operator: state_id.clone(), tables: vec![emitted()], runs: Vec::new() });
                }
            }
            Body::Operator(operator) => {
                // A job that is over is never gone on with, nor is one whose checkpoints nobody keeps: nobody
                // asks for their state again.
                let over = !self.shared.durable || (last && !self.shared.stopping.load(Ordering::Acquire));
                let tables = match if over { Ok(Vec::new()) } else { operator.snapshot() } {
                    Ok(tables) => tables,
                    Err(e) => return Err(self.failed(index, e)),
                };
                let runs = match if over { Ok(SnapshotFiles::Written(Vec::new())) } else { operator.snapshot_files() } {
                    Ok(SnapshotFiles::Written(runs)) => runs,
                    Ok(SnapshotFiles::Writing | SnapshotFiles::Waiting) => {
                        self.writing.push(index);
                        Vec::new()
                    }
                    Err(e) => return Err(self.failed(index, e)),
                };
                self.saved_state(index, tables, runs);
            }
            Body::Union => {}
            Body::Sink(sink) => {
                let prepared = sink.prepare(last)?;
                snapshot.sinks.push((state_id.clone(), prepared));
            }
        }
        self.control(index, &Element::Barrier(id))?;
        let node = self.nodes[index].as_mut().expect("as above");
        node.barriers = 0;
        node.passed = id;
        node.channels.iter_mut().for_each(|c| c.barrier = false);
        self.remaining_barriers -= 1;
        self.send_if_complete();
        let stash = std::mem::take(&mut self.nodes[index].as_mut().expect("as above").stash);
        for (channel, element) in stash {
            self.deliver(index, channel, element)?;
        }
        Ok(())
    }
}

/// Says in a checkpoint that constant rows have been emitted.
fn emitted() -> StateTable {
    let one: arrow::array::ArrayRef = Arc::new(UInt32Array::from(vec![1]));
    StateTable { name: "emitted".into(), batch: arrow::array::RecordBatch::try_from_iter([("emitted", one)]).expect("one column") }
}
