//! Rows of any connector, published into a stream of a server.
//!
//! A file is read as the job itself would read it: only the columns that it uses, which the server says.
//!
//! Each split of the source is a publisher of its own, named after the split. With each message the
//! reader's position goes to the server, which keeps it with the rows it has taken and gives it back
//! in the handshake: the adapter itself keeps no state, and neither its end nor the server's loses
//! or repeats a row. Sources that cannot be read again (standard input, sockets, requests over HTTP) go on from
//! no position; what they gave is kept until it is acknowledged, which bears breaks of the connection and crashes
//! of the server, but not the end of the adapter. Acknowledged rows are for a source what those of a committed
//! checkpoint are in a job: whoever sent them may be answered, a log behind them may be forgotten.
//!
//! One thread reads the splits: those of a bounded source one after the other, each when the one before
//! is acknowledged, those of an unbounded one in turn. What lives elsewhere: the publisher (`flight/publisher.rs`)
//! and the command line.

mod lane;
mod options;

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arrow::datatypes::{Schema, SchemaRef};
use tidemill_connect::{Changelog, ConnectError, ReadRequest, ReaderContext, Source, Split, Waker, registry};
use tidemill_format::option_enum;
use tidemill_format::options::RawOptions;

use crate::flight::blocks::ROWS_LIMIT;
use crate::flight::client::{Client, StreamInfo};
use crate::flight::options::FlightOptions;
use lane::{Lane, Step};
pub use options::{name_of, parse_options};

/// Splits of a bounded source that are connected at a time. One of them is read, those behind it only shake
/// hands meanwhile: rows of several files must reach the stream in the files' order, since there they
/// have one watermark.
const LANES_MAX: usize = 4;
/// How long the loop sleeps at most when nothing wakes it.
const TICK: Duration = Duration::from_millis(50);
/// How long it sleeps at least while rows wait for others: a shorter `block.linger` would be a busy loop.
const LINGER_MIN: Duration = Duration::from_millis(1);
/// How long one that was asked to stop waits for a server that is away, in which its address is tried a few
/// times: it may be that it is never back, and whoever stops a process wants it to end.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// How often the progress is told.
const PROGRESS: Duration = Duration::from_millis(200);

option_enum! {
    /// What happens to a record that cannot be read.
    pub enum OnError {
        /// Publishing ends and names the place.
        Fail = "fail",
        /// The record is counted and passed over.
        Skip = "skip",
    }
}

/// What is to be published.
#[derive(Clone, Debug)]
pub struct Adapter {
    /// The options of the table that is read, `connector` among them.
    pub from: Vec<(String, String)>,
    /// The stream.
    pub to: FlightOptions,
    /// Names the publishers; by default what the options make ([`name_of`]).
    pub id: Option<String>,
    /// Rows go out in whole blocks of so many; as many as are at hand if `None` and the options do not say.
    pub block_rows: Option<usize>,
}

/// How far publishing has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Since the start.
    pub elapsed: Duration,
    /// Rows published by this run, each once.
    pub rows: u64,
    /// Bytes read from the source.
    pub bytes_in: u64,
    /// Bytes of messages, those sent again among them.
    pub bytes_out: u64,
    /// Messages, those sent again among them.
    pub blocks: u64,
    /// Records that could not be read.
    pub bad_rows: u64,
    /// Connections made after the first of each split.
    pub reconnects: u64,
    /// Splits that are at their end and acknowledged.
    pub splits_done: u64,
    /// Whether everything was read, rather than stopped before.
    pub finished: bool,
}

/// Wakes the loop.
#[derive(Default)]
struct Signal {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    fn waker(self: &Arc<Self>) -> Waker {
        let signal = self.clone();
        Waker::new(move || {
            *signal.woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
            signal.changed.notify_one();
        })
    }

    /// For so long at most.
    fn wait(&self, most: Duration) {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        if !*woken {
            woken = self.changed.wait_timeout(woken, most).unwrap_or_else(PoisonError::into_inner).0;
        }
        *woken = false;
    }
}

/// Whether to go on waiting for acknowledgements after having been asked to stop. A server that is there is
/// waited for, however long it takes.
#[derive(Default)]
struct Patience {
    acknowledged: u64,
    /// Since when the server has been away; connections on which nothing was acknowledged do not count.
    since: Option<Instant>,
}

impl Patience {
    /// `acknowledged` rows are safe, and the server is `away` or not: whether that was so for too long.
    fn is_over(&mut self, acknowledged: u64, away: bool, now: Instant) -> bool {
        if acknowledged != self.acknowledged {
            *self = Patience { acknowledged, since: None };
        }
        match self.since {
            Some(since) => away && now.duration_since(since) >= STOP_PATIENCE,
            None => {
                self.since = away.then_some(now);
                false
            }
        }
    }
}

/// What all splits have in common.
struct Common {
    source: Box<dyn Source>,
    client: Client,
    schema: SchemaRef,
    context: ReaderContext,
    to: FlightOptions,
    /// The publishers' name, if it was given.
    given: Option<String>,
    /// The name that the options make.
    made: String,
    block_rows: Option<usize>,
    /// How long rows may wait for a block of that size to be full.
    linger: Duration,
    on_error: OnError,
    /// What rows do is published, too.
    changes: bool,
    /// The columns that the job reads; all if `None`.
    wanted: Option<Vec<String>>,
}

impl Adapter {
    /// Publishes until the source is at its end and everything is acknowledged, or until `stop`:
    /// then what was read is still acknowledged, unless the server is away and stays so for ten seconds. `progress` is called
    /// a few times a second once server and source are known, and at the end, which may be an error.
    ///
    /// # Errors
    /// An option, the source or the server; a record that cannot be read unless such are skipped; stopped
    /// with rows that are not acknowledged and that the source does not give again.
    pub fn run(&self, stop: Arc<AtomicBool>, mut progress: impl FnMut(&Progress)) -> Result<Progress, ConnectError> {
        let began = Instant::now();
        let client = self.to.client()?;
        let signal = Arc::new(Signal::default());
        let common = self.prepare(client, &stop, signal.waker())?;
        let mut run = Run { began, lanes: Vec::new(), done: Progress::default() };
        let ended = run.publish(&common, &stop, &signal, &mut progress);
        let sum = run.progress(matches!(ended, Ok(true)));
        progress(&sum);
        ended.map(|_| sum)
    }

    /// Asks the server for the columns and makes the source with them.
    fn prepare(&self, client: Client, stop: &Arc<AtomicBool>, waker: Waker) -> Result<Common, ConnectError> {
        let mut raw = RawOptions::new("--from", self.from.iter().cloned());
        let connector: Option<String> = raw.take("connector")?;
        let connector =
            connector.ok_or_else(|| ConnectError::new("--from: option 'connector' is required, such as connector=filesystem"))?;
        let connector = registry::find(&connector).map_err(|e| e.at("--from"))?;
        let skips = |key: &str| raw.peek(key).is_some_and(|v| v.trim().eq_ignore_ascii_case("true"));
        let skips = skips("csv.ignore-parse-errors") || skips("json.ignore-parse-errors");
        let on_error: Option<OnError> = raw.take("on-error")?;
        let block_rows = match raw.take::<String>("block.size")? {
            Some(text) => {
                parse_block_size(&text).map_err(|why| ConnectError::new(format!("--from: option 'block.size' = '{text}': {why}")))?
            }
            None => None,
        };
        let linger: Option<Duration> = raw.take("block.linger")?;
        let info = client.describe(self.to.reconnect(), stop.clone())?;
        let schema = published(&info).ok_or_else(|| ConnectError::new(format!("{}: the server says no columns", client.place())))?;
        let source = connector.source(&schema, &mut raw)?;
        raw.finish()?;
        // As for a job: whoever reaches a listener can send it rubbish.
        let default = if skips || source.listens() { OnError::Skip } else { OnError::Fail };
        let on_error = on_error.unwrap_or(default);
        let changes = source.changelog() != Changelog::Append;
        if changes && !(info.changes && source.changelog() == Changelog::All) {
            return Err(ConnectError::new(
                "--from: its rows are updates and deletions, and the stream takes new rows only; let a job of the server read this source, \
                 or set 'stream.changes' = 'all' of the table that reads the stream, if the source has every change",
            ));
        }
        Ok(Common {
            source,
            client,
            schema: schema.clone(),
            context: ReaderContext { waker, request: ReadRequest::all(schema), shard: 0, shards: 1 },
            to: self.to.clone(),
            given: self.id.clone(),
            made: name_of(&self.from),
            block_rows: self.block_rows.or(block_rows),
            linger: linger.unwrap_or_default(),
            on_error,
            changes,
            wanted: info.wanted,
        })
    }
}

/// What a run does: the splits under way, and what those have done that are gone.
struct Run {
    began: Instant,
    lanes: Vec<Lane>,
    done: Progress,
}

impl Run {
    /// Publishes; whether everything was read, rather than stopped before.
    fn publish(
        &mut self,
        common: &Common,
        stop: &AtomicBool,
        signal: &Signal,
        progress: &mut impl FnMut(&Progress),
    ) -> Result<bool, ConnectError> {
        let in_order = common.source.bounded();
        let lanes_max = if in_order { LANES_MAX } else { usize::MAX };
        let mut waiting: VecDeque<Split> = common.source.splits(1)?.into();
        let mut known: HashSet<String> = waiting.iter().map(|s| s.id.clone()).collect();
        let discovery = common.source.discovery_interval();
        let (mut looked, mut told) = (self.began, self.began);
        let mut patience = Patience::default();
        loop {
            let stopping = stop.load(Ordering::Relaxed);
            if stopping {
                self.lanes.iter_mut().for_each(Lane::stop);
                waiting.clear();
            }
            while self.lanes.len() < lanes_max
                && let Some(split) = waiting.pop_front()
            {
                self.lanes.push(Lane::new(common, split, common.wanted.as_deref())?);
            }
            let (mut moved, mut at, mut safe) = (false, 0, Vec::new());
            while at < self.lanes.len() {
                let step = self.lanes[at].step(common, at == 0 || !in_order)?;
                safe.extend(self.lanes[at].settled());
                match step {
                    Step::Moved => moved = true,
                    Step::Waits => {}
                    Step::Done => {
                        self.lanes.remove(at).count(&mut self.done);
                        self.done.splits_done += 1;
                        moved = true;
                        continue;
                    }
                }
                at += 1;
            }
            // Somebody may wait behind the source: for an answer, or to forget what was read.
            if common.source.wants_checkpoint() {
                self.lanes.iter_mut().for_each(Lane::hurry);
            }
            if !safe.is_empty() {
                common.source.committed(&safe);
            }
            let now = Instant::now();
            if stopping && patience.is_over(self.lanes.iter().map(Lane::acknowledged).sum(), self.lanes.iter().all(Lane::away), now) {
                self.lanes.iter().try_for_each(|lane| lane.give_up(common))?;
                self.lanes.drain(..).for_each(|lane| lane.count(&mut self.done));
            }
            if let Some(interval) = discovery
                && !stopping
                && now.duration_since(looked) >= interval
            {
                looked = now;
                waiting.extend(common.source.discover(1)?.into_iter().filter(|split| known.insert(split.id.clone())));
            }
            if self.lanes.is_empty() && waiting.is_empty() && (discovery.is_none() || stopping) {
                return Ok(!stopping);
            }
            if now.duration_since(told) >= PROGRESS {
                told = now;
                progress(&self.progress(false));
            }
            if !moved {
                // What wakes us does not say when rows have waited long enough.
                let lingers = self.lanes.iter().any(Lane::lingers);
                signal.wait(if lingers { common.linger.clamp(LINGER_MIN, TICK) } else { TICK });
            }
        }
    }

    fn progress(&self, finished: bool) -> Progress {
        let mut sum = Progress { elapsed: self.began.elapsed(), finished, ..self.done };
        self.lanes.iter().for_each(|lane| lane.count(&mut sum));
        sum
    }
}

/// The columns that a source has: what a row does, if it is published at all, stands in no column there. `None` if the
/// server says none.
fn published(info: &StreamInfo) -> Option<SchemaRef> {
    let schema = info.schema.as_ref()?;
    if !info.ends_in_kinds() {
        return Some(schema.clone());
    }
    let fields: Vec<_> = schema.fields().iter().take(schema.fields().len() - 1).cloned().collect();
    Some(Arc::new(Schema::new(fields)))
}

/// `auto`, or rows.
///
/// # Errors
/// Says what was expected.
pub fn parse_block_size(text: &str) -> Result<Option<usize>, String> {
    match text.trim() {
        t if t.eq_ignore_ascii_case("auto") => Ok(None),
        t => match t.replace('_', "").parse() {
            Ok(rows) if (1..=ROWS_LIMIT).contains(&rows) => Ok(Some(rows)),
            _ => Err(format!("expected 'auto' or a number of rows from 1 to {ROWS_LIMIT}")),
        },
    }
}

#[cfg(test)]
mod tests;
