//! Sources that the test makes. Splits behind a network: how many are on their way at once, and that all are read. Rows
//! that come one by one: of how many a block is made. Rows that are large: how many are asked for.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use arrow::array::TimestampMillisecondArray;
use arrow::datatypes::{Field, Schema, TimeUnit};
use tidemill_connect::{ConnectError, Fetching, ReadRequest, Reader};
use tidemill_format::options::{OptionSet, RawOptions};

use super::*;
use crate::connector::TableOptions;

/// A split is opened when the test lets it. The names of odd splits say that they are empty, others have one row.
struct Far {
    may_open: Mutex<Receiver<()>>,
}

struct OneRow(Option<i64>);

impl Source for Far {
    fn bounded(&self) -> bool {
        true
    }

    fn splits(&self, _: usize) -> Result<Vec<Split>, ConnectError> {
        Ok(Vec::new())
    }

    fn fetching(&self) -> Fetching {
        Fetching::Network
    }

    fn open(&self, split: &Split, _: ReaderContext) -> Result<Box<dyn Reader>, ConnectError> {
        // An error means that the test is over.
        let _ = self.may_open.lock().unwrap().recv();
        let number: i64 = split.id.parse().unwrap();
        Ok(Box::new(OneRow((number % 2 == 0).then_some(number))))
    }
}

impl Reader for OneRow {
    fn poll(&mut self, _: usize) -> Result<Polled, ConnectError> {
        let Some(time) = self.0.take() else { return Ok(Polled::End) };
        let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![time]));
        Ok(Polled::Rows(Rows::good(RecordBatch::try_new(schema(), vec![times]).unwrap(), 1, 8)))
    }

    fn position(&self) -> serde_json::Value {
        self.0.into()
    }
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("t", DataType::Timestamp(TimeUnit::Millisecond, None), false)]))
}

fn options<T: OptionSet>(pairs: &[(&str, &str)]) -> T {
    let pairs = pairs.iter().map(|(key, value)| (key.to_string(), value.to_string()));
    T::take(&mut RawOptions::new("test", pairs)).unwrap()
}

/// A table of so many splits, what lets a split be opened, and what tells that one has come.
fn task(splits: usize, watermark: bool, table: &[(&str, &str)]) -> (SourceTask, Sender<()>, Receiver<()>) {
    let (open, may_open) = channel();
    let far = Far { may_open: Mutex::new(may_open) };
    let (mut task, woken) = task_of(Arc::new(far), watermark, table, &[("read.parallel", "3")]);
    (0..splits).for_each(|n| task.add(SplitState::new(Split::new(n.to_string()))));
    (task, open, woken)
}

/// A source with these options of its table.
fn spec_of(source: Arc<dyn Source>, watermark: bool, table: &[(&str, &str)]) -> SourceSpec {
    let pairs: Vec<(&str, &str)> = [("connector", "test")].iter().chain(table).copied().collect();
    SourceSpec {
        table: "t".into(),
        source,
        options: options::<TableOptions>(&pairs),
        request: ReadRequest::all(schema()),
        project: None,
        watermark: watermark.then_some(SourceWatermark { column: 0, strategy: Strategy::Delay(0) }),
        unordered: false,
        dead_letter: None,
        readers: Default::default(),
        reached: Default::default(),
    }
}

/// The only shard of a source, with these options of its table and settings of the job; what tells that it was woken.
fn task_of(source: Arc<dyn Source>, watermark: bool, table: &[(&str, &str)], job: &[(&str, &str)]) -> (SourceTask, Receiver<()>) {
    let (wake, woken) = channel();
    let spec = spec_of(source, watermark, table);
    let waker = Waker::new(move || {
        let _ = wake.send(());
    });
    let settings: Settings = options(job);
    (SourceTask::new(&spec, schema(), &settings, waker, 0, 1, None, Arc::default()), woken)
}

/// Polls until nothing is at hand: the times of the rows, and whether it was the end.
fn drain(task: &mut SourceTask, times: &mut Vec<i64>) -> bool {
    loop {
        match task.poll().unwrap_or_else(|e| panic!("{e}")) {
            Outcome::Block(block) => times.extend(TimeColumn::of(block.column(0)).unwrap().all_ms().unwrap().iter()),
            Outcome::Pending => return false,
            Outcome::End => return true,
            Outcome::BadRecords { .. } => panic!("there are none"),
        }
    }
}

/// Whether a split is being opened.
fn comes(active: &Active) -> bool {
    active.reader.as_ref().is_some_and(Opened::coming)
}

/// Of a table that is merged by time and has an idle timeout all splits were opened at once, each by a thread.
#[test]
fn splits_behind_a_network_are_opened_some_at_once_and_all_are_read() {
    let plain: &[(&str, &str)] = &[];
    let idle: &[(&str, &str)] = &[("scan.watermark.idle-timeout", "1 h")];
    for (watermark, table, most) in [(true, plain, COMING_MAX), (true, idle, COMING_MAX), (false, plain, 3)] {
        let (mut task, open, woken) = task(50, watermark, table);
        let mut times = Vec::new();
        let mut over = drain(&mut task, &mut times);
        while !over {
            let coming = task.splits.iter().filter(|a| comes(a)).count();
            assert!((1..=most).contains(&coming), "{coming} are being opened, {watermark} {table:?}");
            assert_eq!(task.watermark(u64::MAX), (NO_WATERMARK, false), "what is being opened is not idle");
            let states = task.states();
            let stand = |(active, state): (&Active, &SplitState)| !comes(active) || state.split.position.is_none();
            assert!(task.splits.iter().zip(&states).all(stand), "what comes stands where it stood");
            open.send(()).unwrap();
            woken.recv().unwrap();
            task.wake();
            over = drain(&mut task, &mut times);
        }
        // Merged by time they come as their names do only if they are opened so.
        if watermark {
            times.sort_unstable();
        }
        assert_eq!(times, (0..50).step_by(2).collect::<Vec<i64>>(), "{watermark} {table:?}");
        assert!(task.states().iter().all(|state| state.finished && state.split.position.is_some()));
    }
}

/// A row comes when the test sends its time, and ends when it sends no more.
struct Drips(Mutex<Option<Receiver<i64>>>);

struct Dripping(Receiver<i64>);

impl Source for Drips {
    fn bounded(&self) -> bool {
        false
    }

    fn splits(&self, _: usize) -> Result<Vec<Split>, ConnectError> {
        Ok(Vec::new())
    }

    fn open(&self, _: &Split, _: ReaderContext) -> Result<Box<dyn Reader>, ConnectError> {
        Ok(Box::new(Dripping(self.0.lock().unwrap().take().expect("opened once"))))
    }
}

impl Reader for Dripping {
    fn poll(&mut self, rows_max: usize) -> Result<Polled, ConnectError> {
        let mut times = Vec::new();
        while times.len() < rows_max {
            match self.0.try_recv() {
                Ok(time) => times.push(time),
                Err(TryRecvError::Disconnected) if times.is_empty() => return Ok(Polled::End),
                Err(_) => break,
            }
        }
        if times.is_empty() {
            return Ok(Polled::Pending);
        }
        let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(times));
        Ok(Polled::Rows(Rows::good(RecordBatch::try_new(schema(), vec![times]).unwrap(), clock::now_ns(), 8)))
    }

    fn position(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

/// A table whose rows come when they are sent.
fn drips(table: &[(&str, &str)], job: &[(&str, &str)]) -> (SourceTask, Sender<i64>) {
    let (rows, come) = channel();
    let (mut task, _) = task_of(Arc::new(Drips(Mutex::new(Some(come)))), false, table, job);
    task.add(SplitState::new(Split::new("only")));
    (task, rows)
}

/// As a worker does that was woken, until nothing is at hand: how many rows each block has, and whether it was the end.
fn blocks(task: &mut SourceTask) -> (Vec<usize>, bool) {
    task.wake();
    let mut sizes = Vec::new();
    loop {
        match task.poll().unwrap_or_else(|e| panic!("{e}")) {
            Outcome::Block(block) => sizes.push(block.rows()),
            Outcome::Pending => return (sizes, false),
            Outcome::End => return (sizes, true),
            Outcome::BadRecords { .. } => panic!("there are none"),
        }
    }
}

/// Ten rows come at once, then one.
#[track_caller]
fn check_blocks(table: &[(&str, &str)], job: &[(&str, &str)], expect: &[usize]) {
    let (mut task, rows) = drips(table, job);
    (0..10).for_each(|row| rows.send(row).unwrap());
    assert_eq!(blocks(&mut task), (expect.to_vec(), false));
    rows.send(10).unwrap();
    assert_eq!(blocks(&mut task), (vec![1], false), "nothing is waited for");
    drop(rows);
    assert_eq!(blocks(&mut task), (vec![], true));
}

#[test]
fn blocks_have_the_size_that_the_table_asks_for_or_else_the_job() {
    check_blocks(&[], &[], &[10]);
    check_blocks(&[], &[("block.size", "4")], &[4, 4, 2]);
    check_blocks(&[("block.size", "3")], &[], &[3, 3, 3, 1]);
    check_blocks(&[("block.size", "3")], &[("block.size", "4")], &[3, 3, 3, 1]);
    check_blocks(&[("block.size", "auto")], &[("block.size", "4")], &[10]);
}

#[test]
fn rows_linger_for_a_full_block() {
    let (mut task, rows) = drips(&[("block.size", "3")], &[("block.linger", "1 h")]);
    for row in 0..2 {
        rows.send(row).unwrap();
        assert_eq!(blocks(&mut task), (vec![], false), "row {row} is held back");
    }
    (2..8).for_each(|row| rows.send(row).unwrap());
    assert_eq!(blocks(&mut task), (vec![3, 3], false), "two rows are held back");
    // A checkpoint covers what its positions cover.
    let held = task.release().unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(held.map(|block| block.rows()), Some(2));
    assert_eq!(task.states().len(), 1);
    rows.send(8).unwrap();
    assert_eq!(blocks(&mut task), (vec![], false), "row 8 is held back");
    drop(rows);
    assert_eq!(blocks(&mut task), (vec![1], true), "nothing more can come");
}

/// Blocks of size `auto` are never full, so their rows do not linger.
#[test]
fn rows_linger_only_as_long_as_they_may() {
    let (mut task, rows) = drips(&[], &[("block.linger", "1 h")]);
    rows.send(0).unwrap();
    assert_eq!(blocks(&mut task), (vec![1], false));

    let (size, little) = (("block.size", "3"), ("block.linger", "1 ms"));
    for (table, job) in [(&[size][..], little), (&[size, little], ("block.linger", "1 h"))] {
        let (mut task, rows) = drips(table, &[job]);
        rows.send(0).unwrap();
        let mut found = Vec::new();
        while found.is_empty() {
            let (sizes, over) = blocks(&mut task);
            assert!(!over);
            found = sizes;
        }
        assert_eq!(found, [1]);
    }
}

/// Seven rows come one by one; those that are still held back then are told to go.
#[track_caller]
fn check_lingering(table: &[(&str, &str)], job: &[(&str, &str)], expect: &[usize]) {
    let (mut task, rows) = drips(table, job);
    let mut found = Vec::new();
    for row in 0..7 {
        rows.send(row).unwrap();
        found.extend(blocks(&mut task).0);
    }
    found.extend(task.release().unwrap_or_else(|e| panic!("{e}")).map(|block| block.rows()));
    assert_eq!(found, expect);
}

#[test]
fn a_table_may_hold_rows_back_to_fill_its_blocks() {
    let (size, linger) = (("block.size", "3"), ("block.linger", "1 h"));
    check_lingering(&[size], &[], &[1; 7]);
    check_lingering(&[size, linger], &[], &[3, 3, 1]);
    check_lingering(&[], &[size, linger], &[3, 3, 1]);
    // A table decides for itself, for more and for less.
    check_lingering(&[("block.linger", "0 s")], &[size, linger], &[1; 7]);
    check_lingering(&[("block.size", "5")], &[size, linger], &[5, 2]);
}

/// Gives as many rows as are asked for, each a text of so many bytes.
struct Wide(usize);

impl Source for Wide {
    fn bounded(&self) -> bool {
        false
    }

    fn splits(&self, _: usize) -> Result<Vec<Split>, ConnectError> {
        Ok(Vec::new())
    }

    fn open(&self, _: &Split, _: ReaderContext) -> Result<Box<dyn Reader>, ConnectError> {
        Ok(Box::new(Wide(self.0)))
    }
}

impl Reader for Wide {
    fn poll(&mut self, rows_max: usize) -> Result<Polled, ConnectError> {
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(std::iter::repeat_n("x".repeat(self.0), rows_max)));
        Ok(Polled::Rows(Rows::good(RecordBatch::try_from_iter([("text", texts)]).unwrap(), 1, 8)))
    }

    fn position(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

/// The rows of the first three blocks, when rows have so many bytes.
#[track_caller]
fn check_wide(bytes: usize, job: &[(&str, &str)], expect: [usize; 3]) {
    let (mut task, _) = task_of(Arc::new(Wide(bytes)), false, &[], job);
    task.add(SplitState::new(Split::new("only")));
    let found = expect.map(|_| match task.poll().unwrap_or_else(|e| panic!("{e}")) {
        Outcome::Block(block) => block.rows(),
        _ => panic!("there are always rows"),
    });
    assert_eq!(found, expect);
}

/// Eight thousand rows of 100 KB would be a block of 800 MB.
#[test]
fn large_rows_come_in_small_blocks_unless_their_size_is_fixed() {
    check_wide(100, &[], [64, 1024, 1024]);
    check_wide(100_000, &[], [64, 41, 41]);
    check_wide(100_000, &[("block.latency-target", "10 ms")], [64, 41, 41]);
    check_wide(10_000, &[("block.size", "500")], [500, 500, 500]);
}

/// Of three partitions one is behind, and one that is at its end does not count.
#[test]
fn the_split_that_holds_back_the_watermark_is_named() {
    let task = |watermark| {
        let (mut task, _) = task_of(Arc::new(Wide(1)), watermark, &[("scan.watermark.idle-timeout", "1 h")], &[]);
        for (id, watermark, finished) in [("t:0", 7, false), ("t:1", 3, false), ("t:2", 1, true)] {
            task.add(SplitState { split: Split::new(id), watermark, finished });
        }
        task
    };
    let named = |task: &SourceTask, now_ns| task.laggard(now_ns).map(|l| (l.split, l.watermark));
    let mut timed = task(true);
    assert_eq!(named(&timed, clock::now_ns()), Some(("t:1".to_string(), Some(3))));
    // It is waited for no longer.
    timed.splits[1].waiting = true;
    assert_eq!(named(&timed, u64::MAX), Some(("t:0".to_string(), Some(7))));
    timed.splits[0].state.watermark = NO_WATERMARK;
    assert_eq!(named(&timed, u64::MAX), Some(("t:0".to_string(), None)), "before its first row");
    timed.ended = true;
    assert_eq!(named(&timed, u64::MAX), None);
    assert_eq!(named(&task(false), clock::now_ns()), None, "without event time nobody waits");
}

/// Rows of times that begin at 0; the id of a split says how many ms are between them.
struct Ticks;

struct TickReader {
    step_ms: i64,
    next: i64,
}

impl Source for Ticks {
    fn bounded(&self) -> bool {
        true
    }

    fn splits(&self, _: usize) -> Result<Vec<Split>, ConnectError> {
        Ok(Vec::new())
    }

    fn open(&self, split: &Split, _: ReaderContext) -> Result<Box<dyn Reader>, ConnectError> {
        Ok(Box::new(TickReader { step_ms: split.id.parse().unwrap(), next: 0 }))
    }
}

impl TickReader {
    const ROWS: i64 = 2_000_000;
}

impl Reader for TickReader {
    fn poll(&mut self, rows_max: usize) -> Result<Polled, ConnectError> {
        let rows = (Self::ROWS - self.next).min(rows_max as i64);
        if rows == 0 {
            return Ok(Polled::End);
        }
        let times = (self.next..self.next + rows).map(|row| row * self.step_ms);
        let times: ArrayRef = Arc::new(TimestampMillisecondArray::from_iter_values(times));
        self.next += rows;
        Ok(Polled::Rows(Rows::good(RecordBatch::try_new(schema(), vec![times]).unwrap(), 1, 8)))
    }

    fn position(&self) -> serde_json::Value {
        self.next.into()
    }
}

/// Two shards, a file each, of which one spans ten times the time: without this all of it was in memory before its time came.
#[test]
fn who_is_ahead_in_event_time_lets_the_others_come_up() {
    let spec = spec_of(Arc::new(Ticks), true, &[]);
    let settings: Settings = options(&[]);
    let [mut ahead, mut behind] = [(0, "10"), (1, "1")].map(|(shard, id)| {
        let mut task = SourceTask::new(&spec, schema(), &settings, Waker::new(|| {}), shard, 2, None, Arc::default());
        task.add(SplitState::new(Split::new(id)));
        task
    });
    let (mut early, mut late) = (Vec::new(), Vec::new());
    let mut paused = 0;
    while !drain(&mut ahead, &mut early) {
        paused += 1;
        // Eight bytes a row, and a block more or less.
        let reached = late.last().copied().unwrap_or(0);
        let waiting = early.iter().rev().take_while(|time| **time > reached).count();
        assert!((500_000..600_000).contains(&waiting), "{waiting} rows are ahead");
        for _ in 0..50 {
            match behind.poll().unwrap_or_else(|e| panic!("{e}")) {
                Outcome::Block(block) => late.extend(TimeColumn::of(block.column(0)).unwrap().all_ms().unwrap().iter()),
                Outcome::End => break,
                _ => panic!("who lags waits for nobody"),
            }
        }
    }
    assert!(paused > 10, "{paused} pauses");
    assert_eq!((early.len(), late.len()), (TickReader::ROWS as usize, TickReader::ROWS as usize));
}
