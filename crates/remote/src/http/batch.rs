//! Bodies on their way: filled by the writer, sent by threads, bounded in number.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::writer::StreamWriter;
use tidemill_block::Block;
use tidemill_connect::ConnectError;
use tidemill_format::Encoder;

/// How often who waits looks whether the job is being stopped.
const CANCEL_CHECK: Duration = Duration::from_millis(50);

/// How a body is filled.
pub enum Filler {
    /// By this encoder; each body begins as a file does.
    Text(Box<dyn Encoder>),
    /// With an Arrow IPC stream of this schema.
    Arrow(SchemaRef),
}

/// A body that is being filled.
#[derive(Default)]
struct Open {
    rows: usize,
    text: Vec<u8>,
    arrow: Option<StreamWriter<Vec<u8>>>,
    /// When its first row came.
    since: Option<Instant>,
}

impl Open {
    fn bytes(&self) -> usize {
        self.arrow.as_ref().map_or(self.text.len(), |writer| writer.get_ref().len())
    }

    fn fill(&mut self, filler: &mut Filler, block: &Block) -> Result<(), ConnectError> {
        match filler {
            Filler::Text(encoder) => {
                if self.rows == 0 {
                    encoder.begin(&mut self.text);
                }
                encoder.encode(block, &mut self.text)?;
            }
            Filler::Arrow(schema) => {
                let wrong = |e: ArrowError| ConnectError::new(format!("writing rows as an Arrow IPC stream: {e}"));
                let writer = match &mut self.arrow {
                    Some(writer) => writer,
                    none => none.insert(StreamWriter::try_new(Vec::new(), schema).map_err(wrong)?),
                };
                writer.write(&block.batch).map_err(wrong)?;
            }
        }
        self.rows += block.rows();
        self.since.get_or_insert_with(Instant::now);
        Ok(())
    }

    fn seal(self, number: u64) -> Result<Sealed, ConnectError> {
        let body = match self.arrow {
            None => self.text,
            Some(writer) => writer.into_inner().map_err(|e| ConnectError::new(format!("writing the end of an Arrow IPC stream: {e}")))?,
        };
        Ok(Sealed { number, rows: self.rows, body })
    }
}

/// A body to be sent.
#[derive(Debug)]
pub struct Sealed {
    /// Its number, counted by the writer from 0.
    pub number: u64,
    pub rows: usize,
    pub body: Vec<u8>,
}

/// When a body is full, and how many may wait.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub rows: usize,
    pub bytes: usize,
    /// How long a body may wait for more rows; zero: until the writer says so.
    pub linger: Duration,
    /// Full bodies that wait for a thread.
    pub waiting: usize,
}

#[derive(Default)]
struct State {
    open: Open,
    ready: VecDeque<Sealed>,
    /// Bodies that threads are sending.
    sending: usize,
    /// The number of the next body.
    next: u64,
    /// Bytes of all bodies sealed.
    bytes: u64,
    failed: Option<String>,
    stopped: bool,
}

impl State {
    fn seal(&mut self) -> Result<(), ConnectError> {
        if self.open.rows > 0 {
            let sealed = std::mem::take(&mut self.open).seal(self.next)?;
            self.next += 1;
            self.bytes += sealed.body.len() as u64;
            self.ready.push_back(sealed);
        }
        Ok(())
    }
}

/// What the writer and its threads share.
pub struct Outbox {
    limits: Limits,
    state: Mutex<State>,
    /// Something has changed for whoever waits.
    changed: Condvar,
}

impl Outbox {
    /// An empty one.
    pub fn new(limits: Limits) -> Self {
        Outbox { limits, state: Mutex::default(), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for<'a>(&self, state: MutexGuard<'a, State>, time: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
    }

    /// For the writer: waits until `ready`, a body could not be sent, or the job is being stopped.
    fn wait(&self, cancelled: &AtomicBool, ready: impl Fn(&State) -> bool) -> Result<MutexGuard<'_, State>, ConnectError> {
        let mut state = self.lock();
        loop {
            if let Some(why) = &state.failed {
                return Err(ConnectError::new(why.as_str()));
            }
            if ready(&state) {
                return Ok(state);
            }
            if cancelled.load(Ordering::Relaxed) {
                return Err(ConnectError::new("the job was stopped while requests were still to be answered"));
            }
            state = self.wait_for(state, CANCEL_CHECK);
        }
    }

    /// For the writer: puts rows into bodies; waits while too many are full.
    ///
    /// # Errors
    /// A body could not be sent, rows could not be encoded, or the job is being stopped.
    pub fn write(&self, block: &Block, filler: &mut Filler, cancelled: &AtomicBool) -> Result<(), ConnectError> {
        let mut at = 0;
        while at < block.rows() {
            let mut state = self.wait(cancelled, |s| s.ready.len() < self.limits.waiting)?;
            let step = self.step(&state.open).min(block.rows() - at);
            let first = state.open.rows == 0;
            state.open.fill(filler, &block.slice(at, step))?;
            at += step;
            let full = state.open.rows >= self.limits.rows || state.open.bytes() >= self.limits.bytes;
            if full {
                state.seal()?;
            }
            drop(state);
            if full || (first && !self.limits.linger.is_zero()) {
                self.changed.notify_all();
            }
        }
        Ok(())
    }

    /// How many rows to add before looking at the size again: what should fill the body, by the rows
    /// that are in it.
    fn step(&self, open: &Open) -> usize {
        const UNKNOWN: usize = 64;
        let left = self.limits.rows.saturating_sub(open.rows).max(1);
        let fitting = match open.rows {
            0 => UNKNOWN,
            rows => {
                let room = self.limits.bytes.saturating_sub(open.bytes());
                (room as u128 * rows as u128 / open.bytes().max(1) as u128) as usize
            }
        };
        fitting.clamp(1, left)
    }

    /// For the writer: the job has no more rows at hand.
    ///
    /// # Errors
    /// As [`Outbox::write`].
    pub fn flush(&self, cancelled: &AtomicBool) -> Result<(), ConnectError> {
        if !self.limits.linger.is_zero() || self.lock().open.rows == 0 {
            return Ok(());
        }
        self.wait(cancelled, |s| s.ready.len() < self.limits.waiting)?.seal()?;
        self.changed.notify_all();
        Ok(())
    }

    /// For the writer: waits until everything is sent and answered.
    ///
    /// # Errors
    /// As [`Outbox::write`].
    pub fn drain(&self, cancelled: &AtomicBool) -> Result<(), ConnectError> {
        self.wait(cancelled, |s| s.ready.len() < self.limits.waiting)?.seal()?;
        self.changed.notify_all();
        self.wait(cancelled, |s| s.ready.is_empty() && s.sending == 0).map(drop)
    }

    /// For a thread: the next body; waits for it. `None` when there will be none.
    pub fn take(&self) -> Option<Sealed> {
        let mut state = self.lock();
        loop {
            if state.stopped || state.failed.is_some() {
                return None;
            }
            if let Some(sealed) = state.ready.pop_front() {
                state.sending += 1;
                drop(state);
                // There is room for another.
                self.changed.notify_all();
                return Some(sealed);
            }
            let due = state.open.since.filter(|_| !self.limits.linger.is_zero()).map(|since| since + self.limits.linger);
            state = match due.map(|due| due.saturating_duration_since(Instant::now())) {
                Some(left) if left.is_zero() => {
                    if let Err(error) = state.seal() {
                        state.failed = Some(error.to_string());
                    }
                    state
                }
                Some(left) => self.wait_for(state, left),
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// For a thread: what became of the body it took last.
    pub fn sent(&self, outcome: Result<(), String>) {
        let mut state = self.lock();
        state.sending -= 1;
        if let Err(why) = outcome {
            state.failed.get_or_insert(why);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// For a thread: a pause; false if nothing is to be sent any more.
    pub fn pause(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        let mut state = self.lock();
        while !state.stopped && state.failed.is_none() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            state = self.wait_for(state, left);
        }
        false
    }

    /// Lets the threads end.
    pub fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Bytes of all bodies so far.
    pub fn bytes(&self) -> u64 {
        let state = self.lock();
        state.bytes + state.open.bytes() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::{DataType, Field, Schema};
    use std::sync::Arc;
    use tidemill_block::text;
    use tidemill_format::options::RawOptions;
    use tidemill_format::text::TextFormat;

    static RUNNING: AtomicBool = AtomicBool::new(false);
    static STOPPED: AtomicBool = AtomicBool::new(true);

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]))
    }

    fn csv() -> Filler {
        let format = TextFormat::take("csv", &mut RawOptions::new("t", [("csv.header".to_string(), "true".to_string())])).unwrap();
        Filler::Text(format.encoder(&schema()).unwrap())
    }

    fn rows(numbers: std::ops::Range<u32>) -> Block {
        text::parse(&schema(), &numbers.map(|n| format!("{n}\n")).collect::<String>())
    }

    fn outbox(rows: usize, bytes: usize) -> Outbox {
        Outbox::new(Limits { rows, bytes, linger: Duration::ZERO, waiting: usize::MAX })
    }

    fn bodies(outbox: &Outbox) -> Vec<String> {
        let next = || {
            let ready = !outbox.lock().ready.is_empty();
            if ready { outbox.take() } else { None }
        };
        std::iter::from_fn(next).map(|sealed| String::from_utf8(sealed.body).unwrap().replace('\n', " ")).collect()
    }

    #[test]
    fn bodies_are_cut_by_rows() {
        let outbox = outbox(3, 1 << 20);
        let mut csv = csv();
        outbox.write(&rows(0..4), &mut csv, &RUNNING).unwrap();
        outbox.write(&rows(4..8), &mut csv, &RUNNING).unwrap();
        assert_eq!(bodies(&outbox), ["n 0 1 2 ", "n 3 4 5 "]);
        outbox.flush(&RUNNING).unwrap();
        outbox.flush(&RUNNING).unwrap();
        assert_eq!(bodies(&outbox), ["n 6 7 "]);
        assert_eq!(outbox.bytes(), 8 + 8 + 6);
    }

    #[test]
    fn bodies_are_cut_by_size() {
        let outbox = outbox(1 << 20, 1000);
        let mut csv = csv();
        for n in 0..20 {
            outbox.write(&rows(n * 1000..(n + 1) * 1000), &mut csv, &RUNNING).unwrap();
        }
        outbox.flush(&RUNNING).unwrap();
        let bodies = bodies(&outbox);
        assert!(bodies.len() > 80 && bodies.iter().all(|b| b.len() < 1500), "{:?}", bodies.iter().map(String::len).max());
        let all: String = bodies.iter().map(|b| b.strip_prefix("n ").unwrap()).collect();
        assert!(all == (0..20_000).map(|n| format!("{n} ")).collect::<String>(), "every row once, in order");
    }

    #[test]
    fn bodies_are_whole_streams() {
        let outbox = outbox(2, 1 << 20);
        let mut arrow = Filler::Arrow(schema());
        outbox.write(&rows(0..5), &mut arrow, &RUNNING).unwrap();
        outbox.flush(&RUNNING).unwrap();
        let request = tidemill_connect::ReadRequest::all(schema());
        let counts: Vec<usize> = (0..3)
            .map(|_| super::super::ipc::rows(outbox.take().unwrap().body, &request, u64::MAX).unwrap().0.iter().map(|b| b.num_rows()).sum())
            .collect();
        assert_eq!(counts, [2, 2, 1]);
    }

    #[test]
    fn the_writer_waits_for_room_and_for_answers() {
        let outbox = Outbox::new(Limits { waiting: 1, ..outbox(1, 100).limits });
        let mut csv = csv();
        outbox.write(&rows(0..1), &mut csv, &RUNNING).unwrap();
        assert!(outbox.write(&rows(1..2), &mut csv, &STOPPED).unwrap_err().to_string().contains("job was stopped"));
        let sealed = outbox.take().unwrap();
        assert_eq!((sealed.number, sealed.rows), (0, 1));
        assert!(outbox.drain(&STOPPED).is_err(), "an answer is missing");
        outbox.sent(Ok(()));
        outbox.drain(&STOPPED).unwrap();
        outbox.write(&rows(2..3), &mut csv, &RUNNING).unwrap();
        assert_eq!(outbox.take().unwrap().number, 1);
        outbox.sent(Err("refused".into()));
        assert_eq!(outbox.drain(&RUNNING).unwrap_err().to_string(), "refused");
        assert!(outbox.take().is_none() && !outbox.pause(Duration::from_secs(60)));
    }

    #[test]
    fn rows_linger_no_longer_than_asked() {
        let outbox = Outbox::new(Limits { linger: Duration::from_millis(5), ..outbox(100, 1 << 20).limits });
        outbox.write(&rows(0..2), &mut csv(), &RUNNING).unwrap();
        outbox.flush(&RUNNING).unwrap();
        assert!(outbox.lock().ready.is_empty(), "a flush does not cut it short");
        assert_eq!(outbox.take().unwrap().rows, 2);
        outbox.sent(Ok(()));
        // A checkpoint does not wait for it.
        let outbox = Outbox::new(Limits { linger: Duration::from_secs(3600), ..outbox.limits });
        outbox.write(&rows(0..2), &mut csv(), &RUNNING).unwrap();
        assert!(outbox.drain(&STOPPED).is_err());
        assert_eq!(outbox.take().unwrap().rows, 2);
        outbox.stop();
        assert!(outbox.take().is_none());
    }
}
