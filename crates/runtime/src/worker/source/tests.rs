//! Splits behind a network, by a source that the test makes: how many are on their way at once, and that all are read.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

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
    let (wake, woken) = channel();
    let pairs: Vec<(&str, &str)> = [("connector", "far")].iter().chain(table).copied().collect();
    let spec = SourceSpec {
        table: "far".into(),
        source: Arc::new(Far { may_open: Mutex::new(may_open) }),
        options: options::<TableOptions>(&pairs),
        request: ReadRequest::all(schema()),
        project: None,
        watermark: watermark.then_some(SourceWatermark { column: 0, strategy: Strategy::Delay(0) }),
        unordered: false,
        dead_letter: None,
        readers: Default::default(),
    };
    let waker = Waker::new(move || {
        let _ = wake.send(());
    });
    let settings: Settings = options(&[("read.parallel", "3")]);
    let mut task = SourceTask::new(&spec, schema(), &settings, waker, 0, 1, None, Arc::default());
    (0..splits).for_each(|n| task.add(SplitState::new(Split::new(n.to_string()))));
    (task, open, woken)
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
