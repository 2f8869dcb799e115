//! A writer whose connection waits.

use arrow::array::{ArrayRef, Int64Array, RecordBatch};

use super::*;

/// Waits for a lock that another session has until it is dropped.
struct Waits(Receiver<()>);

impl Lane for Waits {
    fn write(&mut self, _blocks: Vec<Block>) -> Result<(), ConnectError> {
        self.0.recv().map_err(|_| ConnectError::new("the lock is gone"))
    }

    fn prepare(&mut self) -> Result<Vec<Committable>, ConnectError> {
        Ok(Vec::new())
    }
}

/// A job that had failed waited for a statement that waited for a lock, and said why it had failed when the lock was gone.
#[test]
fn a_failed_job_leaves_statements_that_wait() {
    const LOCKED: Duration = Duration::from_secs(60);
    let (lock, waits) = channel();
    std::thread::spawn(move || {
        std::thread::sleep(LOCKED);
        drop(lock);
    });
    let begun = Instant::now();
    let cancelled = Arc::new(AtomicBool::new(false));
    let limits = Limits { rows: None, bytes: 1 << 20, interval: None, gather: false, awaited: false, row_group: None };
    let lanes: Vec<Box<dyn Lane>> = vec![Box::new(Waits(waits))];
    let mut writer = JdbcWriter::new(("t", false), lanes, Vec::new(), limits, Told::default(), cancelled.clone()).unwrap();
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    writer.write(&Block::inserts(RecordBatch::try_from_iter([("n", numbers)]).unwrap(), 0)).unwrap();
    cancelled.store(true, Ordering::Relaxed);
    assert_eq!(writer.prepare(true).unwrap_err().to_string(), "the job is being stopped");
    drop(writer);
    assert!(begun.elapsed() < LOCKED, "it waited for the lock");
}
