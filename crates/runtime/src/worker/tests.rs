//! Operators that wait for something outside, under a worker whose steps the test makes. And a worker that reads faster
//! than the next one takes.

use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{OnceLock, Weak};
use std::time::Instant;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::SchemaRef;
use datafusion_physical_expr::expressions::Column;
use tidemill_connect::{ConnectError, Polled, ReadRequest, Reader, ReaderContext, Rows, Source, Split};
use tidemill_format::options::{OptionSet, RawOptions};
use tidemill_operator::{OperatorError, Progress};

use super::*;
use crate::connector::TableOptions;
use crate::physical::{Edge, Factory, Node, SourceSpec};
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
        last: AtomicBool::new(false),
        stopping: AtomicBool::new(false),
        cancelled: Arc::new(AtomicBool::new(false)),
        exit: AtomicBool::new(false),
        discovered: Mutex::new(HashMap::new()),
        run_id: "test".into(),
        durable,
    }
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
        let node = |name: &str, kind: NodeKind, from: Option<usize>| Node {
            id: name.to_string(),
            name: name.to_string(),
            kind,
            inputs: from.into_iter().map(|from| Edge { from, ship: Ship::Forward }).collect(),
            schema: schema.clone(),
            single: false,
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
        let start = Start { splits: HashMap::new(), saved: Arc::new(Saved::default()) };
        let mut worker = Worker::new(shared.clone(), 0, start, sender, 0).unwrap_or_else(|e| panic!("{e}"));
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
    let spec = SourceSpec {
        table: "t".into(),
        source: Arc::new(Floods(flooded.clone())),
        options: options::<TableOptions>(&[("connector", "test")]),
        request: ReadRequest::all(schema.clone()),
        project: None,
        watermark: None,
        unordered: false,
        dead_letter: None,
        readers: Default::default(),
    };
    let rows = Arc::new(AtomicUsize::new(0));
    let count = rows.clone();
    let counts: Factory = Arc::new(move || Ok(Box::new(Counts(count.clone()))));
    let node = |name: &str, kind: NodeKind, inputs: Vec<Edge>| Node {
        id: name.to_string(),
        name: name.to_string(),
        kind,
        inputs,
        schema: schema.clone(),
        single: false,
    };
    let by_key = Edge { from: 0, ship: Ship::Hash(vec![Arc::new(Column::new("k", 0))]) };
    let nodes =
        vec![node("floods", NodeKind::Source(Box::new(spec)), Vec::new()), node("counts", NodeKind::Operator(counts), vec![by_key])];
    let queues = (0..2).map(|_| (0..2).map(|_| Queue::default()).collect()).collect();
    let job = Arc::new(shared(nodes, 2, HashMap::from([((1, 0), queues)]), false, &[("block.size", "1024")]));
    flooded.job.set(Arc::downgrade(&job)).expect("set once");

    let queue = &job.queues[&(1, 0)][1][0];
    let begun = Instant::now();
    let mut taken = Vec::new();
    let (sender, events) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let splits = HashMap::from([(0, vec![SplitState::new(Split::new("only"))])]);
            let start = Start { splits, saved: Arc::new(Saved::default()) };
            Worker::new(job.clone(), 0, start, sender, 0).unwrap_or_else(|e| panic!("{e}")).run();
        });
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
