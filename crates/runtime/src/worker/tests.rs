//! Operators that wait for something outside, under a worker whose steps the test makes.

use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{Receiver, channel};

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use tidemill_format::options::{OptionSet, RawOptions};
use tidemill_operator::{OperatorError, Progress};

use super::*;
use crate::physical::{Edge, Factory, Node};

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
        let settings = <Settings as OptionSet>::take(&mut RawOptions::new("job", std::iter::empty::<(String, String)>())).unwrap();
        let shared = Arc::new(Shared {
            metrics: nodes.iter().map(|_| vec![Arc::new(NodeMetrics::default())]).collect(),
            graph: Graph { nodes },
            settings,
            shards: 1,
            signals: vec![Arc::new(Signal::default())],
            queues: HashMap::new(),
            checkpoint: AtomicU64::new(0),
            last: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            cancelled: Arc::new(AtomicBool::new(false)),
            exit: AtomicBool::new(false),
            discovered: Mutex::new(HashMap::new()),
            run_id: "test".into(),
            durable,
        });
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
