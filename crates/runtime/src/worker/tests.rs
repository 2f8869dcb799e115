//! Operators that wait for something outside, under a worker whose steps the test makes. A worker that reads faster
//! than the next one takes. And sources of which one always has rows, or the other workers: the rest are read, too.

use std::sync::atomic::{AtomicI64, AtomicUsize};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{OnceLock, Weak};
use std::time::Instant;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMillisecondArray};
use arrow::datatypes::SchemaRef;
use datafusion_physical_expr::expressions::Column;
use tidemill_connect::{ConnectError, Polled, ReadRequest, Reader, ReaderContext, Rows, Source, Split};
use tidemill_format::options::{OptionSet, RawOptions};
use tidemill_operator::{OperatorError, Progress};

use super::*;
use crate::connector::TableOptions;
use crate::physical::{Edge, Factory, Node, SourceSpec, SourceWatermark, Strategy};
use crate::worker::exchange::QUEUE_BYTES_MAX;

/// Gives its rows back when the test says so.
struct Waits {
    answered: Arc<AtomicBool>,
    rows: Vec<Block>,
}

impl Operator for Waits {
    fn name(&self) -> &'static str {
        "Waits"
    }
    fn on_block(&mut self, _input: usize, block: Block, _out: &mut Output) -> Result<(), OperatorError> {
        self.rows.push(block);
        Ok(())
    }
    fn on_watermark(&mut self, watermark: i64, _out: &mut Output) -> Result<Progress, OperatorError> {
        Ok(if watermark == WATERMARK_END && self.holds() { Progress::Waiting } else { Progress::Done })
    }
    fn output_watermark(&self, watermark: i64) -> i64 {
        if self.holds() { NO_WATERMARK } else { watermark }
    }
    fn waits(&self) -> bool {
        true
    }
    fn poll(&mut self, out: &mut Output) -> Result<(), OperatorError> {
        if self.answered.load(Ordering::Relaxed) {
            self.rows.drain(..).for_each(|block| out.emit(block));
        }
        Ok(())
    }
    fn holds(&self) -> bool {
        !self.rows.is_empty()
    }
}

/// Counts rows.
struct Counts(Arc<AtomicUsize>);

impl Operator for Counts {
    fn name(&self) -> &'static str {
        "Counts"
    }
    fn on_block(&mut self, _input: usize, block: Block, _out: &mut Output) -> Result<(), OperatorError> {
        self.0.fetch_add(block.rows(), Ordering::Relaxed);
        Ok(())
    }
}

fn options<T: OptionSet>(pairs: &[(&str, &str)]) -> T {
    T::take(&mut RawOptions::new("test", pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())))).unwrap()
}

/// What the workers of a job share, as the coordinator makes it.
fn shared(
    nodes: Vec<Node>,
    shards: usize,
    queues: HashMap<(usize, usize), Vec<Vec<Queue>>>,
    durable: bool,
    settings: &[(&str, &str)],
) -> Shared {
    Shared {
        metrics: nodes.iter().map(|_| (0..shards).map(|_| Arc::new(NodeMetrics::default())).collect()).collect(),
        graph: Graph { nodes },
        settings: options(settings),
        shards,
        signals: (0..shards).map(|_| Arc::new(Signal::default())).collect(),
        queues,
        checkpoint: AtomicU64::new(0),
        committed: AtomicU64::new(0),
        last: AtomicBool::new(false),
        stopping: AtomicBool::new(false),
        cancelled: Arc::new(AtomicBool::new(false)),
        exit: AtomicBool::new(false),
        discovered: Mutex::new(HashMap::new()),
        run_id: "test".into(),
        durable,
    }
}

fn node(name: &str, kind: NodeKind, inputs: Vec<Edge>, schema: &SchemaRef) -> Node {
    Node { id: name.to_string(), name: name.to_string(), kind, inputs, schema: schema.clone(), single: false }
}

/// A table; with event time, the first column is the time, which watermarks follow closely.
fn table(source: Arc<dyn Source>, has_time: bool, schema: &SchemaRef) -> NodeKind {
    NodeKind::Source(Box::new(SourceSpec {
        table: "t".into(),
        source,
        options: options::<TableOptions>(&[("connector", "test")]),
        request: ReadRequest::all(schema.clone()),
        project: None,
        watermark: has_time.then_some(SourceWatermark { column: 0, strategy: Strategy::Delay(0) }),
        unordered: false,
        dead_letter: None,
        readers: Default::default(),
        reached: Default::default(),
    }))
}

/// The first worker of a job, of which so many nodes, from the first, are tables of one split.
fn first_worker(job: &Arc<Shared>, tables: usize, events: Sender<Event>) -> Worker {
    let splits = (0..tables).map(|at| (at, vec![SplitState::new(Split::new("only"))])).collect();
    let start = Start { splits, saved: Arc::new(Saved::default()) };
    Worker::new(job.clone(), 0, start, events, 0).unwrap_or_else(|e| panic!("{e}"))
}

struct Stage {
    worker: Worker,
    shared: Arc<Shared>,
    events: Receiver<Event>,
    answered: Arc<AtomicBool>,
    rows: Arc<AtomicUsize>,
}

impl Stage {
    /// One row goes to an operator that waits, and from there to one that counts; all input is read.
    fn new(durable: bool) -> Self {
        let (answered, rows) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let column: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
        let schema: SchemaRef = batch.schema();
        let node = |name: &str, kind: NodeKind, from: Option<usize>| {
            let inputs = from.into_iter().map(|from| Edge { from, ship: Ship::Forward }).collect();
            node(name, kind, inputs, &schema)
        };
        let (flag, count) = (answered.clone(), rows.clone());
        let waits: Factory = Arc::new(move || Ok(Box::new(Waits { answered: flag.clone(), rows: Vec::new() })));
        let counts: Factory = Arc::new(move || Ok(Box::new(Counts(count.clone()))));
        let nodes = vec![
            node("values", NodeKind::Values(batch), None),
            node("waits", NodeKind::Operator(waits), Some(0)),
            node("counts", NodeKind::Operator(counts), Some(1)),
        ];
        let shared = Arc::new(shared(nodes, 1, HashMap::new(), durable, &[]));
        let (sender, events) = channel();
        let mut worker = first_worker(&shared, 0, sender);
        worker.poll_sources().unwrap_or_else(|e| panic!("{e}"));
        Stage { worker, shared, events, answered, rows }
    }

    /// As the coordinator asks for a checkpoint.
    fn checkpoint(&mut self, last: bool) {
        self.shared.stopping.store(last, Ordering::Release);
        self.shared.last.store(last, Ordering::Release);
        self.shared.checkpoint.store(1, Ordering::Release);
        self.worker.begin_checkpoint(1).unwrap_or_else(|e| panic!("{e}"));
    }

    /// The answer comes; how many rows have come out then.
    fn answer(&mut self) -> usize {
        self.answered.store(true, Ordering::Relaxed);
        self.worker.poll_waiters().unwrap_or_else(|e| panic!("{e}"));
        self.rows.load(Ordering::Relaxed)
    }

    fn snapshot_sent(&self) -> bool {
        self.events.try_iter().any(|event| matches!(event, Event::Snapshot(_)))
    }
}

/// Writers are closed behind the last checkpoint, and what waits stands in it: it would be there twice.
#[test]
fn nothing_is_emitted_behind_the_last_checkpoint() {
    for (last, rows) in [(true, 0), (false, 1)] {
        let mut stage = Stage::new(true);
        stage.checkpoint(last);
        assert!(stage.snapshot_sent(), "a durable checkpoint does not wait for answers");
        assert_eq!(stage.answer(), rows, "last: {last}");
    }
}

/// Where no checkpoint outlives the process, what a barrier covers is committed: rows must come out before it.
#[test]
fn a_barrier_waits_for_rows_that_no_checkpoint_keeps() {
    for last in [false, true] {
        let mut stage = Stage::new(false);
        stage.checkpoint(last);
        assert!(!stage.snapshot_sent() && stage.worker.blocked(0));
        assert_eq!(stage.answer(), 1);
        assert!(stage.snapshot_sent() && !stage.worker.blocked(0));
    }
}

/// A source that always has rows, and what it sees when it is asked for them.
#[derive(Default)]
struct Flood {
    job: OnceLock<Weak<Shared>>,
    polls: AtomicUsize,
    /// Polls while a queue was full that the worker writes to.
    too_many: AtomicUsize,
}

struct Floods(Arc<Flood>);

struct Flooding(Arc<Flood>);

/// A block of 1,024 rows and 1 MB.
fn flood() -> RecordBatch {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1024));
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..1024).map(|_| "x".repeat(1024))));
    RecordBatch::try_from_iter([("k", keys), ("text", texts)]).unwrap()
}

impl Source for Floods {
    fn bounded(&self) -> bool {
        false
    }

    fn splits(&self, _: usize) -> Result<Vec<Split>, ConnectError> {
        Ok(Vec::new())
    }

    fn open(&self, _: &Split, _: ReaderContext) -> Result<Box<dyn Reader>, ConnectError> {
        Ok(Box::new(Flooding(self.0.clone())))
    }
}

impl Reader for Flooding {
    fn poll(&mut self, rows_max: usize) -> Result<Polled, ConnectError> {
        self.0.polls.fetch_add(1, Ordering::Relaxed);
        let job = self.0.job.get().and_then(Weak::upgrade).expect("the job is there as long as it is read for");
        // Others only take from these queues: what is full now was full when the worker looked.
        if !job.queues.values().flatten().all(|to| to[0].has_room()) {
            self.0.too_many.fetch_add(1, Ordering::Relaxed);
        }
        let batch = flood();
        Ok(Polled::Rows(Rows::good(batch.slice(0, rows_max.min(batch.num_rows())), clock::now_ns(), 1 << 20)))
    }

    fn position(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

/// The first of two workers reads without an end and divides its rows among both; the second takes nothing. Memory is
/// bounded by its queue, and when there is room again, the first reads on.
#[test]
fn no_source_is_polled_while_a_queue_is_full() {
    let flooded = Arc::new(Flood::default());
    let schema = flood().schema();
    let rows = Arc::new(AtomicUsize::new(0));
    let count = rows.clone();
    let counts: Factory = Arc::new(move || Ok(Box::new(Counts(count.clone()))));
    let floods = table(Arc::new(Floods(flooded.clone())), false, &schema);
    let by_key = Edge { from: 0, ship: Ship::Hash(vec![Arc::new(Column::new("k", 0))]) };
    let nodes = vec![node("floods", floods, Vec::new(), &schema), node("counts", NodeKind::Operator(counts), vec![by_key], &schema)];
    let queues = (0..2).map(|_| (0..2).map(|_| Queue::default()).collect()).collect();
    let job = Arc::new(shared(nodes, 2, HashMap::from([((1, 0), queues)]), false, &[("block.size", "1024")]));
    flooded.job.set(Arc::downgrade(&job)).expect("set once");

    let queue = &job.queues[&(1, 0)][1][0];
    let begun = Instant::now();
    let mut taken = Vec::new();
    let (sender, events) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| first_worker(&job, 1, sender).run());
        for _ in 0..3 {
            // Not a bound on time: a worker that does not go on never fills the queue.
            while queue.has_room() && begun.elapsed() < Duration::from_secs(60) {
                std::thread::yield_now();
            }
            // As the second worker would, but at once: meanwhile the first shall not fill it again.
            queue.hold(true);
            let mut bytes = 0;
            while let Some(element) = queue.pop() {
                if let Element::Block(block) = element {
                    bytes += block.memory();
                }
            }
            queue.hold(false);
            taken.push(bytes);
        }
        job.exit.store(true, Ordering::Release);
        job.signals[0].raise();
    });
    assert!(events.try_iter().next().is_none(), "the worker did not end by itself");
    // The last block that finds room may be larger than it. Its bytes are counted before it can be taken, so what was taken
    // at once may be a block less.
    let block = Block::inserts(flood(), 0).memory();
    let (least, most) = (QUEUE_BYTES_MAX - block, QUEUE_BYTES_MAX + block);
    assert!(taken.iter().all(|bytes| (least..=most).contains(bytes)), "{taken:?}");
    assert_eq!(flooded.too_many.load(Ordering::Relaxed), 0, "polled while a queue was full");
    assert!(flooded.polls.load(Ordering::Relaxed) >= 3 * 4, "a queue takes many blocks");
    assert!(rows.load(Ordering::Relaxed) > 0, "its own rows are worked off");
}

/// A table whose reader does as the test says: the time of its next row, if it has one.
struct Told {
    endless: bool,
    next: Next,
}

type Next = Arc<dyn Fn() -> Option<i64> + Send + Sync>;

struct Telling(Next);

fn row(time: i64) -> RecordBatch {
    let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![time]));
    RecordBatch::try_from_iter([("t", times)]).unwrap()
}

impl Source for Told {
    fn bounded(&self) -> bool {
        !self.endless
    }

    fn splits(&self, _: usize) -> Result<Vec<Split>, ConnectError> {
        Ok(Vec::new())
    }

    fn open(&self, _: &Split, _: ReaderContext) -> Result<Box<dyn Reader>, ConnectError> {
        Ok(Box::new(Telling(self.next.clone())))
    }
}

impl Reader for Telling {
    fn poll(&mut self, _: usize) -> Result<Polled, ConnectError> {
        Ok((self.0)().map_or(Polled::Pending, |time| Polled::Rows(Rows::good(row(time), clock::now_ns(), 8))))
    }

    fn position(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

/// What a table is like: whether it never ends, and how far it is from a row to the next in event time, if it has one.
type Kind = (bool, Option<i64>);

/// Tables that always have rows, and which of them flow together; whose rows are read, one after the other.
#[track_caller]
fn check_turns(tables: &[Kind], pipelines: &[&[usize]], expect: &str) {
    let schema = row(0).schema();
    let read: Arc<Mutex<String>> = Arc::default();
    let mut nodes: Vec<Node> = Vec::new();
    for (at, (endless, step)) in tables.iter().copied().enumerate() {
        let (read, time) = (read.clone(), AtomicI64::new(0));
        let next: Next = Arc::new(move || {
            read.lock().unwrap().push_str(&at.to_string());
            let step = step.unwrap_or(1);
            Some(time.fetch_add(step, Ordering::Relaxed) + step)
        });
        nodes.push(node(&format!("table {at}"), table(Arc::new(Told { endless, next }), step.is_some(), &schema), Vec::new(), &schema));
    }
    for (at, pipeline) in pipelines.iter().enumerate() {
        let inputs = pipeline.iter().map(|from| Edge { from: *from, ship: Ship::Forward }).collect();
        nodes.push(node(&format!("union {at}"), NodeKind::Union, inputs, &schema));
    }
    let job = Arc::new(shared(nodes, 1, HashMap::new(), false, &[]));
    let (sender, _events) = channel();
    let mut worker = first_worker(&job, tables.len(), sender);
    for _ in 0..expect.len() {
        assert!(worker.poll_sources().unwrap_or_else(|e| panic!("{e}")));
    }
    assert_eq!(*read.lock().unwrap(), expect);
}

/// A source without event time lagged for ever, so if it always had rows, no other was read.
#[test]
fn sources_take_turns_unless_they_are_merged_by_time() {
    let (live, file): (Kind, Kind) = ((true, None), (false, None));
    let timed = |step: i64| (true, Some(step));
    let together: &[&[usize]] = &[&[0, 1]];
    let apart: &[&[usize]] = &[&[0], &[1]];
    for pipelines in [together, apart] {
        check_turns(&[live, live], pipelines, "01010101");
        check_turns(&[live, timed(1)], pipelines, "01010101");
        // A round begins with whoever lags most.
        check_turns(&[timed(1), live], pipelines, "01101010");
        check_turns(&[file, live], pipelines, "01010101");
        check_turns(&[live, file], pipelines, "01010101");
        check_turns(&[file, file], pipelines, "00000000");
    }
    check_turns(&[live, live, timed(1)], &[&[0, 1, 2]], "012012012");
    check_turns(&[live, timed(1), timed(1)], &[&[0, 1, 2]], "01020102");
    // Where rows meet, who is ahead waits: the first at 11 is behind the second at 10 no more.
    check_turns(&[timed(1), timed(10)], together, "01000000000010");
    check_turns(&[timed(1), timed(10)], apart, "0101010101");
    check_turns(&[file, timed(1)], together, "00000000");
    check_turns(&[file, timed(1)], apart, "01010101");
    // Pipelines that end are read as one.
    check_turns(&[(false, Some(1)), (false, Some(10))], apart, "01000000000010");
}

/// Runs the first worker of the job until something holds, but not for ever.
#[track_caller]
fn check_comes_to(job: &Arc<Shared>, tables: usize, holds: impl Fn() -> bool) {
    let (sender, events) = channel();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| first_worker(job, tables, sender).run());
        while !holds() && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
        job.exit.store(true, Ordering::Release);
        job.signals[0].raise();
    });
    assert!(events.try_iter().next().is_none(), "the worker did not end by itself");
    assert!(holds());
}

/// Whoever has something to tidy up is called by a worker that has nothing to read.
#[test]
fn a_worker_that_rests_tidies_up() {
    static CALLED: AtomicUsize = AtomicUsize::new(0);
    at_rest(|| {
        CALLED.fetch_add(1, Ordering::Relaxed);
    });
    let schema = row(0).schema();
    let silent = Told { endless: true, next: Arc::new(|| None) };
    let nodes = vec![node("table 0", table(Arc::new(silent), false, &schema), Vec::new(), &schema)];
    let job = Arc::new(shared(nodes, 1, HashMap::new(), false, &[]));
    check_comes_to(&job, 1, || CALLED.load(Ordering::Relaxed) > 0);
}

/// A source that had nothing once was asked again only when the worker slept, which it did not while another had rows.
#[test]
fn a_source_that_had_nothing_is_asked_again_while_another_always_has_rows() {
    let schema = row(0).schema();
    for late in 0..2 {
        let (given, read) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let count = given.clone();
        let always: Next = Arc::new(move || Some(count.fetch_add(1, Ordering::Relaxed) as i64));
        let (others, count) = (given.clone(), read.clone());
        let later: Next = Arc::new(move || (others.load(Ordering::Relaxed) > 1000).then(|| count.fetch_add(1, Ordering::Relaxed) as i64));
        let nodes = (0..2).map(|at| {
            let next = if at == late { later.clone() } else { always.clone() };
            node(&format!("table {at}"), table(Arc::new(Told { endless: true, next }), false, &schema), Vec::new(), &schema)
        });
        let job = Arc::new(shared(nodes.collect(), 1, HashMap::new(), false, &[]));
        check_comes_to(&job, 2, || read.load(Ordering::Relaxed) > 0);
    }
}

/// A table whose readers have nothing, and whose publisher always waits for what was read to be committed.
struct Wishes(Arc<AtomicUsize>);

impl Source for Wishes {
    fn bounded(&self) -> bool {
        false
    }

    fn splits(&self, _: usize) -> Result<Vec<Split>, ConnectError> {
        Ok(Vec::new())
    }

    fn open(&self, _: &Split, _: ReaderContext) -> Result<Box<dyn Reader>, ConnectError> {
        let rests = self.0.clone();
        Ok(Box::new(Telling(Arc::new(move || {
            rests.fetch_add(1, Ordering::Relaxed);
            None
        }))))
    }

    fn wants_checkpoint(&self) -> bool {
        true
    }
}

/// It asked only where the coordinator looked, every 20 ms. Who waits for a checkpoint that is under way waits for no other.
#[test]
fn a_worker_asks_once_for_a_checkpoint_and_again_when_that_is_committed() {
    let schema = row(0).schema();
    let rests = Arc::new(AtomicUsize::new(0));
    let nodes = vec![node("table 0", table(Arc::new(Wishes(rests.clone())), false, &schema), Vec::new(), &schema)];
    let job = Arc::new(shared(nodes, 1, HashMap::new(), true, &[]));
    let (sender, events) = channel();
    let patience = Duration::from_secs(60);
    let rest = || {
        let (before, begun) = (rests.load(Ordering::Relaxed), Instant::now());
        while rests.load(Ordering::Relaxed) < before + 3 && begun.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| first_worker(&job, 1, sender).run());
        assert!(matches!(events.recv_timeout(patience), Ok(Event::CheckpointAsked(0))));
        rest();
        assert!(events.try_recv().is_err(), "once is enough");
        job.checkpoint.store(1, Ordering::Release);
        job.signals[0].raise();
        assert!(matches!(events.recv_timeout(patience), Ok(Event::Snapshot(_))));
        rest();
        assert!(events.try_recv().is_err(), "it is under way");
        job.committed.store(1, Ordering::Release);
        assert!(matches!(events.recv_timeout(patience), Ok(Event::CheckpointAsked(1))));
        job.exit.store(true, Ordering::Release);
        job.signals[0].raise();
    });
}

/// For each block that it is given, another worker sends the next.
struct Refills(Arc<OnceLock<Weak<Shared>>>);

impl Operator for Refills {
    fn name(&self) -> &'static str {
        "Refills"
    }
    fn on_block(&mut self, _input: usize, block: Block, _out: &mut Output) -> Result<(), OperatorError> {
        let job = self.0.get().and_then(Weak::upgrade).expect("the job is there as long as it runs");
        job.queues[&(1, 0)][0][1].push(Element::Block(block));
        Ok(())
    }
}

/// What other workers sent went first, so a worker that they kept busy never read its own sources.
#[test]
fn a_source_is_read_while_other_workers_always_send() {
    let schema = row(0).schema();
    let read = Arc::new(AtomicUsize::new(0));
    let count = read.clone();
    // One row: of those of its own that come to this worker another block would be made for each.
    let once: Next = Arc::new(move || (count.fetch_add(1, Ordering::Relaxed) == 0).then_some(0));
    let of_operators: Arc<OnceLock<Weak<Shared>>> = Arc::default();
    let known = of_operators.clone();
    let refills: Factory = Arc::new(move || Ok(Box::new(Refills(known.clone()))));
    let by_key = Edge { from: 0, ship: Ship::Hash(vec![Arc::new(Column::new("t", 0))]) };
    let nodes = vec![
        node("once", table(Arc::new(Told { endless: true, next: once }), false, &schema), Vec::new(), &schema),
        node("refills", NodeKind::Operator(refills), vec![by_key], &schema),
    ];
    let queues = (0..2).map(|_| (0..2).map(|_| Queue::default()).collect()).collect();
    let job = Arc::new(shared(nodes, 2, HashMap::from([((1, 0), queues)]), false, &[]));
    of_operators.set(Arc::downgrade(&job)).expect("set once");
    job.queues[&(1, 0)][0][1].push(Element::Block(Block::inserts(row(0), 0)));
    check_comes_to(&job, 1, || read.load(Ordering::Relaxed) > 0);
}
