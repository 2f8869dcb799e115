//! How many rows a writer is given at once.

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
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

/// The rows of each write, when blocks of so many come and the worker has a moment behind them.
fn writes(rows_at_once: Option<usize>, own_thread: bool, blocks: &[usize]) -> Vec<usize> {
    let writes = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::new(Notes { writes: writes.clone(), own_thread });
    let spec = SinkSpec { table: "s".into(), sink, schema: schema(), not_null: Vec::new(), rows_at_once };
    let context = SinkContext { shard: 0, shards: 1, schema: schema(), run_id: "r".into(), cancelled: Arc::default() };
    let mut task = SinkTask::open(&spec, context, BlockSize::Auto, Arc::default()).unwrap();
    for rows in blocks {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![1; *rows]));
        task.write(Block::inserts(RecordBatch::try_new(schema(), vec![column]).unwrap(), 1)).unwrap();
    }
    task.flush().unwrap();
    task.prepare(true).unwrap().wait(|| {}).unwrap();
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
