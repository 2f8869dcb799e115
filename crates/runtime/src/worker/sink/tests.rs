//! How many rows a writer is given at once, and how many wait.

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use tidemill_connect::{Sink, WriterStats};

use super::*;

/// Notes how many rows each write has.
struct Notes {
    writes: Arc<Mutex<Vec<usize>>>,
    own_thread: bool,
}

struct NoteWriter(Arc<Mutex<Vec<usize>>>);

impl Sink for Notes {
    fn own_thread(&self) -> bool {
        self.own_thread
    }

    fn gathers(&self) -> bool {
        self.own_thread
    }

    fn writer(&self, _: SinkContext) -> Result<Box<dyn Writer>, ConnectError> {
        Ok(Box::new(NoteWriter(self.writes.clone())))
    }
}

impl Writer for NoteWriter {
    fn write(&mut self, block: &Block) -> Result<(), ConnectError> {
        self.0.lock().unwrap().push(block.rows());
        Ok(())
    }

    fn prepare(&mut self, _: bool) -> Result<Vec<Committable>, ConnectError> {
        Ok(Vec::new())
    }

    fn stats(&self) -> WriterStats {
        WriterStats::default()
    }
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]))
}

/// A sink, and the rows of each write.
fn open(rows_at_once: Option<usize>, own_thread: bool) -> (SinkTask, Arc<Mutex<Vec<usize>>>) {
    let writes = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::new(Notes { writes: writes.clone(), own_thread });
    let spec = SinkSpec { table: "s".into(), sink, schema: schema(), not_null: Vec::new(), rows_at_once };
    let context = SinkContext { shard: 0, shards: 1, schema: schema(), run_id: "r".into(), cancelled: Arc::default() };
    (SinkTask::open(&spec, context, BlockSize::Auto, Arc::default()).unwrap(), writes)
}

fn block(rows: usize) -> Block {
    let column: ArrayRef = Arc::new(Int64Array::from(vec![1; rows]));
    Block::inserts(RecordBatch::try_new(schema(), vec![column]).unwrap(), 1)
}

/// The rows of each write, when blocks of so many come and the worker has a moment behind them.
fn writes(rows_at_once: Option<usize>, own_thread: bool, blocks: &[usize]) -> Vec<usize> {
    writes_of(rows_at_once, own_thread, blocks.iter().map(|rows| block(*rows)).collect())
}

/// As [`writes`], of these blocks.
fn writes_of(rows_at_once: Option<usize>, own_thread: bool, blocks: Vec<Block>) -> Vec<usize> {
    let (mut task, writes) = open(rows_at_once, own_thread);
    blocks.into_iter().for_each(|block| task.write(block).unwrap());
    task.flush().unwrap();
    task.prepare(true).unwrap().wait(|| Ok(())).unwrap();
    writes.lock().unwrap().clone()
}

#[test]
fn no_more_rows_at_once_than_the_table_says() {
    for own_thread in [false, true] {
        assert_eq!(writes(Some(3), own_thread, &[2, 2, 7, 1]), [3, 1, 3, 3, 1, 1]);
        assert_eq!(writes(Some(100), own_thread, &[2, 2, 7, 1]), [12], "what comes together is written together");
    }
    assert_eq!(writes(None, true, &[2, 2, 7, 1]), [12]);
    assert_eq!(writes(None, false, &[2, 7]), [2, 7], "a sink that wants single blocks gets them");
}

/// A thousand rows were gathered however large they were, and several thousand waited.
#[test]
fn large_rows_are_handed_on_before_they_are_many() {
    let text: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(1 << 20)]));
    let row = Block::inserts(RecordBatch::try_from_iter([("n", text)]).unwrap(), 1);
    for own_thread in [false, true] {
        assert_eq!(writes_of(Some(1000), own_thread, vec![row.clone(); 10]), [4, 4, 2]);
        assert_eq!(writes_of(Some(3), own_thread, vec![row.clone(); 10]), [3, 3, 3, 1]);
    }
    assert_eq!(writes_of(None, true, vec![row; 10]), [4, 4, 2]);
    assert_eq!((weight(0, 0), weight(100, 100 << 10), weight(4, 4 << 20)), (0, 100, 4096));
}

/// The worker is busy with what goes elsewhere.
#[test]
fn a_few_rows_do_not_wait_for_more_that_do_not_come() {
    // Written where the worker is, but gathered.
    let (mut task, writes) = open(Some(100), false);
    for _ in 0..3 {
        task.write(block(2)).unwrap();
        task.flush_if_quiet().unwrap();
        assert!(writes.lock().unwrap().is_empty(), "more may come");
    }
    task.flush_if_quiet().unwrap();
    task.flush_if_quiet().unwrap();
    assert_eq!(*writes.lock().unwrap(), [6]);
}
