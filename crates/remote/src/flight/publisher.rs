//! Rows to a stream's inlet: numbered, sent, sent again after a break, acknowledged.
//!
//! The caller encodes and puts messages into a queue; a task of the runtime moves them to the server
//! and takes its answers. A publisher is one of two kinds. One that *keeps* holds every message
//! until the server has acknowledged its rows, within a window of bytes, and after a break sends
//! again what the server has not taken. One that does not keep tells its caller after each handshake
//! where the server stands, and the caller goes back there ([`Ready::Handshake`]); nothing is held
//! but what is about to be sent. Such a one may also leave out columns that the job does not read, and is
//! told when that has changed ([`Ready::Columns`]).

use std::collections::VecDeque;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow_flight::{FlightData, FlightDescriptor, PutResult};
use bytes::Bytes;
use futures::Stream;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidemill_connect::{ConnectError, Waker};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::blocks;
use super::client::{Client, Tries, Trouble};
use super::options::Reconnect;
use super::watched::{Watchable, Watched};
use super::wire::Encoder;
use crate::runtime;

/// What waits for the connection when nothing is kept, bytes at most: some messages, so that the
/// caller works while they travel, and few enough to be still in the cache then.
const QUEUE_BYTES_MAX: usize = 1 << 20;
/// Messages put by [`Publisher::try_put`] of which the connection's task is told together, bytes: to wake it, and with
/// it the server's tasks and the threads they run on, costs as much as copying some ten KB.
const TOGETHER_BYTES: usize = 256 << 10;
/// How long the first of them waits for the others at most, as long as more are put.
const TOGETHER_TIME: Duration = Duration::from_millis(1);
/// After this time without an acknowledgement the server is asked again: it may have taken its
/// checkpoint just before the rows that matter.
const URGE_AGAIN: Duration = Duration::from_millis(250);
/// How long a server may take to answer a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
/// A connection that lasted so long has worked, whatever came of it.
const LASTED: Duration = Duration::from_secs(5);

/// What a publisher needs to know.
#[derive(Clone, Debug)]
pub struct PublisherOptions {
    /// The publisher's name: the server counts its rows under it.
    pub id: String,
    /// Whether messages are kept until they are acknowledged.
    pub keep: bool,
    /// Columns are left out that the job does not read; only without `keep`.
    pub projected: bool,
    /// How much is kept, bytes; one message may exceed it.
    pub window: usize,
    /// How to try again.
    pub reconnect: Reconnect,
}

/// Where the server stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Handshake {
    /// The number of the next row under the publisher's name: behind those taken, or behind the last
    /// message that came with a position.
    pub offset: u64,
    /// Rows that survive a crash of the server.
    pub acknowledged: u64,
    /// The position that came with that message.
    pub position: Option<Value>,
}

/// What a publisher is ready for.
#[derive(Debug, PartialEq)]
pub enum Ready {
    /// Rows.
    Rows,
    /// Nothing at the moment; the waker will be called.
    Wait,
    /// To be told by [`Publisher::resume`] from which row on the caller will send: there is a new
    /// connection. A publisher that keeps says this once.
    Handshake(Handshake),
    /// Nothing any more: the job now reads these columns (`None`: all), among them one that is left out.
    /// The caller starts another publisher in place of this one.
    Columns(Option<Vec<String>>),
    /// Nothing any more: all rows are acknowledged.
    Finished,
}

/// What was sent so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Bytes of messages.
    pub bytes: u64,
    /// Messages.
    pub blocks: u64,
    /// How often a connection was made after the first.
    pub reconnects: u64,
}

impl Sent {
    /// What this publisher and one that took its place have sent.
    pub fn and(self, next: Sent) -> Sent {
        Sent { bytes: self.bytes + next.bytes, blocks: self.blocks + next.blocks, reconnects: self.reconnects + next.reconnects }
    }
}

/// A publisher. It belongs to one thread.
pub struct Publisher {
    shared: Arc<Shared>,
    encoder: Encoder,
    task: JoinHandle<()>,
}

impl Publisher {
    /// Begins to connect; does not wait for it. The waker is called whenever [`Publisher::ready`] may
    /// have something new to say.
    ///
    /// # Errors
    /// The runtime could not be started.
    pub fn start(client: Client, schema: SchemaRef, options: PublisherOptions, waker: Waker) -> Result<Self, ConnectError> {
        assert!(!options.id.is_empty(), "a publisher has a name");
        assert!(!(options.keep && options.projected), "what is kept cannot get other columns");
        let encoder = Encoder::new();
        let path = vec![client.stream().to_string(), options.id.clone()];
        let mut opening = encoder.schema(&schema).with_descriptor(FlightDescriptor::new_path(path));
        if options.projected {
            opening.app_metadata = Bytes::from_static(PROJECTED);
        }
        let empty = Encoder::new().encode(&RecordBatch::new_empty(schema.clone()), 0)?;
        let limit = if options.keep { options.window } else { options.window.min(QUEUE_BYTES_MAX) };
        let state = State { keep: options.keep, limit, ..State::default() };
        let projected = options.projected.then_some(schema);
        let shared = Arc::new(Shared { watched: Watched::new(state, waker), empty, projected });
        let task = runtime::handle()?.spawn(run(client, shared.clone(), opening, options.reconnect));
        Ok(Publisher { shared, encoder, task })
    }

    /// What can be done now; never waits.
    ///
    /// # Errors
    /// The server's refusal, or that it was away for longer than the options bear.
    pub fn ready(&mut self) -> Result<Ready, ConnectError> {
        let mut state = self.shared.lock();
        state.check()?;
        state.urge_if_needed();
        Ok(if let Some(handshake) = state.handshake.take() {
            Ready::Handshake(handshake)
        } else if let Some(columns) = state.columns.take() {
            Ready::Columns(columns)
        } else if state.finished {
            Ready::Finished
        } else if state.room() {
            Ready::Rows
        } else {
            state.starved = true;
            let writer = state.untold_writer();
            drop(state);
            wake(writer);
            Ready::Wait
        })
    }

    /// Waits until the server has answered for the first time.
    ///
    /// # Errors
    /// As [`Publisher::ready`]; the job was stopped.
    pub fn handshake(&mut self, cancelled: &AtomicBool) -> Result<Handshake, ConnectError> {
        self.shared.wait(cancelled, |state| state.handshake.take())
    }

    /// The next row that will be given has this number. To be called after each [`Ready::Handshake`]
    /// by who does not keep.
    pub fn resume(&mut self, row: u64) {
        let mut state = self.shared.lock();
        // If there is yet another connection, its handshake comes first.
        if !state.keep && state.open && state.handshake.is_none() {
            (state.next_row, state.resumed) = (row, true);
        }
    }

    /// The number of the next row.
    pub fn next_row(&self) -> u64 {
        self.shared.lock().next_row
    }

    /// Rows that survive a crash of the server.
    pub fn acknowledged(&self) -> u64 {
        self.shared.lock().acknowledged
    }

    /// Whether the server has answered on a connection that has not ended since.
    pub fn connected(&self) -> bool {
        self.shared.lock().open
    }

    /// What was sent so far.
    pub fn sent(&self) -> Sent {
        self.shared.lock().sent
    }

    /// Gives rows. `behind` says where the caller stands behind them; `between` is a place before them
    /// from which they can be read again: it goes with the parts into which a large batch is cut. False
    /// if there is no room: nothing was taken. Without keeping, rows given while the connection is
    /// broken are void: the next handshake says where to go on.
    ///
    /// # Errors
    /// As [`Publisher::ready`]; a column that cannot travel.
    pub fn try_send(&mut self, batch: &RecordBatch, between: Option<&Value>, behind: Option<&Value>) -> Result<bool, ConnectError> {
        let given = self.try_put(batch, between, behind)?;
        self.flush();
        Ok(given)
    }

    /// As [`Publisher::try_send`], for one who has more at hand: the rows may wait for those that are put next. Who
    /// has no more calls [`Publisher::flush`].
    ///
    /// # Errors
    /// As [`Publisher::try_send`].
    pub fn try_put(&mut self, batch: &RecordBatch, between: Option<&Value>, behind: Option<&Value>) -> Result<bool, ConnectError> {
        {
            let state = self.shared.lock();
            state.check()?;
            if !state.room() {
                return Ok(false);
            }
        }
        let (rows, bytes) = (batch.num_rows(), blocks::bytes(batch));
        if rows == 0 {
            // Only says where the caller stands.
            let data = self.encoder.encode(batch, bytes)?;
            self.shared.push(data, 0, behind.cloned());
        }
        for (at, length) in blocks::parts(rows, bytes, blocks::BYTES_MAX) {
            let part = if length == rows { batch.clone() } else { batch.slice(at, length) };
            let data = self.encoder.encode(&part, bytes / rows * length)?;
            let position = if at + length == rows { behind.or(between) } else { between };
            self.shared.push(data, length as u64, position.cloned());
        }
        Ok(true)
    }

    /// What was put waits for nothing more.
    pub fn flush(&mut self) {
        let writer = self.shared.lock().untold_writer();
        wake(writer);
    }

    /// Gives rows; waits for room.
    ///
    /// # Errors
    /// As [`Publisher::try_send`]; the job was stopped.
    pub fn send(&mut self, batch: &RecordBatch, cancelled: &AtomicBool) -> Result<(), ConnectError> {
        while !self.try_send(batch, None, None)? {
            self.shared.wait(cancelled, |state| state.room().then_some(()))?;
        }
        Ok(())
    }

    /// Waits until all rows are acknowledged, and asks the server not to take long.
    ///
    /// # Errors
    /// As [`Publisher::ready`]; the job was stopped.
    pub fn drain(&mut self, cancelled: &AtomicBool) -> Result<(), ConnectError> {
        {
            let mut state = self.shared.lock();
            state.draining = true;
            state.urge_if_needed();
        }
        let drained = self.shared.wait(cancelled, |state| (state.acknowledged >= state.next_row).then_some(()));
        self.shared.lock().draining = false;
        drained
    }

    /// Somebody waits for the rows before number `row` to be acknowledged: the server is asked not to take long,
    /// again and again until they are, whenever [`Publisher::ready`] is called.
    pub fn hurry(&mut self, row: u64) {
        let mut state = self.shared.lock();
        state.hurried = state.hurried.max(row);
        state.urge_if_needed();
    }

    /// No more rows follow. [`Publisher::ready`] says when all are acknowledged.
    pub fn finish(&mut self) {
        let mut state = self.shared.lock();
        state.finishing = true;
        state.wake_writer();
    }

    /// Ends well: waits until all rows are acknowledged.
    ///
    /// # Errors
    /// As [`Publisher::ready`]; the job was stopped.
    pub fn close(&mut self, cancelled: &AtomicBool) -> Result<(), ConnectError> {
        self.finish();
        self.shared.wait(cancelled, |state| state.finished.then_some(()))
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A message and the rows it holds.
struct Frame {
    data: FlightData,
    first: u64,
    rows: u64,
    position: Option<Value>,
    bytes: usize,
}

impl Frame {
    fn end(&self) -> u64 {
        self.first + self.rows
    }
}

#[derive(Serialize)]
struct Metadata<'a> {
    offset: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<&'a Value>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    urge: bool,
}

impl Metadata<'_> {
    fn bytes(&self) -> Bytes {
        serde_json::to_vec(self).expect("numbers and JSON").into()
    }
}

/// Beside the schema of a publisher that leaves out columns.
const PROJECTED: &[u8] = br#"{"projected":true}"#;

/// What a server says in answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    offset: Option<u64>,
    acknowledged: Option<u64>,
    position: Option<Value>,
}

#[derive(Default)]
struct State {
    keep: bool,
    /// Bytes in `frames` at most, or one message more.
    limit: usize,
    /// Counts connections; what belongs to an earlier one is void.
    connection: u64,
    /// The server has answered on this connection.
    open: bool,
    /// The caller has gone where the server stands.
    resumed: bool,
    handshake: Option<Handshake>,
    handshakes: u64,
    /// Messages not yet sent; with `keep` those not yet acknowledged before them.
    frames: VecDeque<Frame>,
    /// How many of `frames` were sent on this connection.
    gone: usize,
    bytes: usize,
    next_row: u64,
    acknowledged: u64,
    /// The server shall be asked for an acknowledgement with the next message.
    urge: bool,
    /// When it was asked, unless it has acknowledged something since.
    urged: Option<Instant>,
    /// Somebody waits for all acknowledgements.
    draining: bool,
    /// Somebody waits for those of the rows before this number.
    hurried: u64,
    finishing: bool,
    half_closed: bool,
    finished: bool,
    /// The caller was told to wait for room.
    starved: bool,
    /// The job reads these columns now, and one of them is left out.
    columns: Option<Option<Vec<String>>>,
    failure: Option<String>,
    sent: Sent,
    /// To be woken when there is something to send.
    writer: Option<std::task::Waker>,
    /// It was not woken for so many bytes, of which the first came then.
    untold: Option<(usize, Instant)>,
}

impl Watchable for State {
    const STOPPED: &'static str = "the job was stopped while rows were still waiting for the server or its acknowledgement";

    fn check(&self) -> Result<(), ConnectError> {
        self.failure.as_ref().map_or(Ok(()), |text| Err(ConnectError::new(text.as_str())))
    }

    fn before_sleep(&mut self) {
        self.urge_if_needed();
    }
}

impl State {
    /// Whether rows can be given.
    fn room(&self) -> bool {
        let numbered = if self.keep { self.handshakes > 0 && self.handshake.is_none() } else { self.resumed };
        numbered && !self.finishing && self.bytes < self.limit
    }

    fn take_writer(&mut self) -> Option<std::task::Waker> {
        self.untold = None;
        self.writer.take()
    }

    fn wake_writer(&mut self) {
        wake(self.take_writer());
    }

    /// The writer, if it was not woken for what waits. It is to be woken when the state is no longer locked, since it looks at it
    /// at once.
    #[must_use]
    fn untold_writer(&mut self) -> Option<std::task::Waker> {
        self.untold.and_then(|_| self.take_writer())
    }

    /// A message of so many bytes waits; gives the writer if enough do, as [`State::untold_writer`].
    #[must_use]
    fn put(&mut self, bytes: usize) -> Option<std::task::Waker> {
        // One that does not sleep finds it by itself.
        self.writer.as_ref()?;
        let now = Instant::now();
        let (before, since) = self.untold.unwrap_or((0, now));
        self.untold = Some((before + bytes, since));
        let enough = before + bytes >= TOGETHER_BYTES || now.duration_since(since) >= TOGETHER_TIME;
        if enough { self.take_writer() } else { None }
    }

    /// Half of the window is taken, or somebody waits: the server shall acknowledge soon.
    fn urge_if_needed(&mut self) {
        let pressed = self.keep && (self.draining || self.bytes * 2 >= self.limit);
        let waited_for = if pressed { self.next_row } else { self.hurried.min(self.next_row) };
        let wanted = self.acknowledged < waited_for;
        if wanted && !self.urge && self.urged.is_none_or(|at| at.elapsed() >= URGE_AGAIN) {
            self.urge = true;
            self.wake_writer();
        }
    }

    /// The next message for the wire, if there is one.
    fn next_message(&mut self, empty: &FlightData) -> Option<FlightData> {
        if !self.open {
            return None;
        }
        if self.gone < self.frames.len() {
            let last = self.gone + 1 == self.frames.len();
            let urge = self.urge && (last || !self.draining);
            let frame = &self.frames[self.gone];
            let metadata = Metadata { offset: frame.first, position: frame.position.as_ref(), urge };
            let data = frame.data.clone().with_app_metadata(metadata.bytes());
            if urge {
                (self.urge, self.urged) = (false, Some(Instant::now()));
            }
            if self.keep {
                self.gone += 1;
            } else {
                let frame = self.frames.pop_front().expect("looked at above");
                self.bytes -= frame.bytes;
            }
            return Some(data);
        }
        if self.urge {
            (self.urge, self.urged) = (false, Some(Instant::now()));
            let metadata = Metadata { offset: self.next_row, position: None, urge: true };
            return Some(empty.clone().with_app_metadata(metadata.bytes()));
        }
        None
    }

    /// The server has answered on a new connection.
    fn shake_hands(&mut self, handshake: Handshake) -> Result<(), Trouble> {
        if self.keep && handshake.position.is_some() {
            // Its rows are counted from that position, ours would be taken for some that came before.
            return Err(Trouble::protocol(
                "the server knows this publisher's name from an adapter that reads files or the like; publish under another name",
            ));
        }
        if self.keep && self.handshakes > 0 {
            self.rejoin(&handshake)?;
        } else {
            self.frames.clear();
            self.bytes = 0;
            self.gone = 0;
            self.next_row = handshake.offset;
            self.acknowledged = handshake.acknowledged;
            self.handshake = Some(handshake);
            // Who goes back may find that there is more to send.
            self.finishing &= self.keep;
        }
        self.handshakes += 1;
        self.sent.reconnects = self.handshakes - 1;
        (self.open, self.urge, self.urged) = (true, false, None);
        self.urge_if_needed();
        Ok(())
    }

    /// After a break: what the server has not taken is sent again.
    fn rejoin(&mut self, handshake: &Handshake) -> Result<(), Trouble> {
        let (taken, next_row) = (handshake.offset, self.next_row);
        self.acknowledge(handshake.acknowledged.min(taken));
        if taken > next_row {
            return Err(Trouble::protocol(format!(
                "the server has {taken} rows of this publisher, of which only {next_row} were sent here: \
                 another process publishes under the same name"
            )));
        }
        let kept = self.frames.front().map_or(next_row, |frame| frame.first);
        if taken < kept {
            return Err(Trouble::protocol(format!(
                "the server has forgotten rows that it had acknowledged: it knows {taken} rows, and those before \
                 row {kept} are no longer kept here; was its state removed?"
            )));
        }
        self.gone = self.frames.partition_point(|frame| frame.end() <= taken);
        Ok(())
    }

    fn acknowledge(&mut self, rows: u64) {
        if rows <= self.acknowledged {
            return;
        }
        self.acknowledged = rows;
        self.urged = None;
        while self.keep && self.frames.front().is_some_and(|frame| frame.end() <= rows) {
            let frame = self.frames.pop_front().expect("looked at");
            self.bytes -= frame.bytes;
            self.gone = self.gone.saturating_sub(1);
        }
    }
}

/// Wakes who sleeps, if somebody does.
fn wake(sleeper: Option<std::task::Waker>) {
    if let Some(sleeper) = sleeper {
        sleeper.wake();
    }
}

struct Shared {
    watched: Watched<State>,
    /// A message without rows.
    empty: FlightData,
    /// The columns that are sent, if some are left out.
    projected: Option<SchemaRef>,
}

impl Deref for Shared {
    type Target = Watched<State>;

    fn deref(&self) -> &Watched<State> {
        &self.watched
    }
}

impl Shared {
    /// Puts a message behind the others.
    fn push(&self, data: FlightData, rows: u64, position: Option<Value>) {
        let mut state = self.lock();
        if !state.keep && !(state.open && state.resumed) {
            // The connection broke meanwhile: the caller will be told to go back.
            return;
        }
        let bytes = data.data_header.len() + data.data_body.len();
        state.sent.bytes += bytes as u64;
        state.sent.blocks += 1;
        let first = state.next_row;
        state.frames.push_back(Frame { data, first, rows, position, bytes });
        state.bytes += bytes;
        state.next_row += rows;
        state.urge_if_needed();
        let writer = state.put(bytes);
        drop(state);
        wake(writer);
    }

    /// A new connection begins.
    fn connect(&self) -> u64 {
        let mut state = self.lock();
        state.connection += 1;
        (state.open, state.resumed, state.half_closed, state.gone) = (false, false, false, 0);
        state.connection
    }

    /// The connection has ended; what waited for it without being kept is void.
    fn disconnect(&self) {
        let mut state = self.lock();
        (state.open, state.resumed) = (false, false);
        if !state.keep {
            state.frames.clear();
            state.bytes = 0;
        }
    }

    fn fail(&self, error: &ConnectError) {
        self.lock().failure = Some(error.to_string());
        self.notify();
    }

    /// Deals with an answer of the server. True if it acknowledged something.
    fn answer(&self, result: &PutResult) -> Result<bool, Trouble> {
        if result.app_metadata.is_empty() {
            return Ok(false);
        }
        let answer: Answer = serde_json::from_slice(&result.app_metadata)
            .map_err(|e| Trouble::protocol(format!("publishing: the server's answer cannot be read: {e}")))?;
        let mut state = self.lock();
        let before = state.acknowledged;
        if state.open {
            state.acknowledge(answer.acknowledged.unwrap_or(0));
            state.urge_if_needed();
        } else {
            let Some(offset) = answer.offset else {
                return Err(Trouble::protocol("publishing: the server's first answer does not say where it stands"));
            };
            let acknowledged = answer.acknowledged.unwrap_or(0);
            state.shake_hands(Handshake { offset, acknowledged, position: answer.position })?;
        }
        let moved = state.acknowledged > before;
        state.wake_writer();
        drop(state);
        self.notify();
        Ok(moved)
    }

    /// The server has ended the call in good order.
    fn ended(&self) -> Result<(), Trouble> {
        let mut state = self.lock();
        if !(state.half_closed && state.finishing && state.acknowledged >= state.next_row) {
            return Err(Trouble::ended("publishing"));
        }
        state.finished = true;
        drop(state);
        self.notify();
        Ok(())
    }
}

/// Keeps a connection as long as there are rows.
async fn run(client: Client, shared: Arc<Shared>, opening: FlightData, reconnect: Reconnect) {
    let mut tries = Tries::new(reconnect);
    loop {
        let began = Instant::now();
        let Err(trouble) = attempt(&client, &shared, &opening, &mut tries).await else { return };
        shared.disconnect();
        if began.elapsed() >= LASTED && shared.lock().handshakes > 0 {
            tries.worked();
        }
        match tries.again(client.place(), &trouble) {
            Ok(pause) => tokio::time::sleep(pause).await,
            Err(error) => return shared.fail(&error),
        }
    }
}

/// One connection, until it ends, or until there is nothing more to do.
async fn attempt(client: &Client, shared: &Arc<Shared>, opening: &FlightData, tries: &mut Tries) -> Result<(), Trouble> {
    // At first the caller has just asked, and should that have changed since, the server refuses.
    let before = shared.lock().connection;
    if let Some(sent) = &shared.projected
        && before > 0
    {
        let info = client.info().await?;
        if info.reads_beyond(sent) {
            shared.lock().columns = Some(info.wanted);
            shared.notify();
            return Ok(());
        }
    }
    let outgoing = Outgoing { shared: shared.clone(), connection: shared.connect(), opening: Some(opening.clone()) };
    let trouble = |status: tonic::Status| Trouble::of("publishing", &status);
    let silent = |_| Trouble::silent("publishing");
    let mut flight = client.publishing(outgoing);
    let call = flight.do_put(client.request(futures::stream::empty::<FlightData>()));
    let mut answers = timeout(HANDSHAKE_TIMEOUT, call).await.map_err(silent)?.map_err(trouble)?.into_inner();
    let mut first = true;
    loop {
        let message = answers.message();
        let message = if first { timeout(HANDSHAKE_TIMEOUT, message).await.map_err(silent)? } else { message.await };
        match message.map_err(trouble)? {
            Some(result) => {
                if shared.answer(&result)? {
                    tries.worked();
                }
                if first {
                    tries.known();
                    first = false;
                }
            }
            None => return shared.ended(),
        }
    }
}

/// The messages of one connection.
struct Outgoing {
    shared: Arc<Shared>,
    connection: u64,
    opening: Option<FlightData>,
}

impl Stream for Outgoing {
    type Item = FlightData;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<FlightData>> {
        if let Some(opening) = self.opening.take() {
            return Poll::Ready(Some(opening));
        }
        let mut state = self.shared.lock();
        if state.connection != self.connection {
            return Poll::Ready(None);
        }
        let message = state.next_message(&self.shared.empty);
        if message.is_some() {
            // To wake the caller for each message would cost more than to send it.
            let freed = state.starved && state.bytes <= state.limit / 2;
            state.starved &= !freed;
            drop(state);
            if freed {
                self.shared.notify();
            }
            return Poll::Ready(message);
        }
        if state.open && state.finishing {
            state.half_closed = true;
            return Poll::Ready(None);
        }
        (state.writer, state.untold) = (Some(context.waker().clone()), None);
        Poll::Pending
    }
}

#[cfg(test)]
mod tests;
