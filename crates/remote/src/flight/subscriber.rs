//! Rows of a stream's outlet: received, gone on with after a break, acknowledged.
//!
//! A task of the runtime puts the server's messages into a queue, bounded in bytes; the caller takes
//! them out and decodes. After a break the task asks for what follows the last message it has. If
//! the stream keeps its rows (delivery exactly-once) nothing is lost or repeated; a live stream goes
//! on with what comes then, and what came meanwhile is counted as a gap.
//!
//! A subscriber with a name acknowledges on the call by which it gets rows, and the stream may end
//! before it has stored them. So the server says when nothing follows, and ends the call when all is
//! acknowledged: the caller sees [`Received::End`] at once, and the task lives on until then.

use std::collections::VecDeque;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow_flight::{FlightData, FlightDescriptor, Ticket};
use futures::Stream;
use serde::Deserialize;
use tidemill_block::clock;
use tidemill_connect::{ConnectError, Waker};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::Streaming;

use super::client::{Client, MESSAGE_BYTES_MAX, Tries, Trouble};
use super::options::{Reconnect, Request, Start};
use super::watched::{TICK, Watchable, Watched};
use super::wire::{self, Decoder};
use crate::runtime;

/// How long a server may take to answer a subscription with its columns.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
/// A connection that lasted so long has worked, whatever came of it.
const LASTED: Duration = Duration::from_secs(5);
/// How often in a row a server may refuse to go on behind the last row before that is believed.
const REFUSALS_MAX: u32 = 3;
/// How long a server that has answered gets to read what we sent.
const LAST_WORD: Duration = Duration::from_millis(300);
/// How long the last acknowledgement may take when a subscription is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a call may stay open behind its last row: longer than our server waits for acknowledgements.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// What a subscriber needs to know.
#[derive(Clone, Debug)]
pub struct SubscriberOptions {
    /// What is subscribed to. With a name the subscriber acknowledges.
    pub request: Request,
    /// Goes on behind the rows before this one, which an earlier subscription gave, as after a break.
    pub behind: Option<u64>,
    /// How much may wait for the caller, bytes; one message may exceed it.
    pub window: usize,
    /// How to try again.
    pub reconnect: Reconnect,
    /// Whether the caller can deal with rows that are updated and deleted.
    pub updating: bool,
}

/// Rows of one message.
#[derive(Debug)]
pub struct Message {
    /// The rows, as they travel.
    pub batch: RecordBatch,
    /// The number of the row behind them, if the server says it.
    pub next_offset: Option<u64>,
    /// Whether they are contents as they were when the subscription began.
    pub snapshot: bool,
    /// When they reached the process ([`clock::now_ns`]).
    pub arrival_ns: u64,
    /// Bytes of the message.
    pub bytes: u64,
}

/// What came.
#[derive(Debug)]
pub enum Received {
    /// Rows.
    Rows(Message),
    /// Nothing at the moment; the waker will be called.
    Pending,
    /// The job that writes the stream has come to its end.
    End,
}

/// A subscriber. It belongs to one thread.
pub struct Subscriber {
    shared: Arc<Shared>,
    /// Of the connection over which the last message came.
    decoder: Option<Box<Decoder>>,
    place: String,
    task: JoinHandle<()>,
}

impl Subscriber {
    /// Begins to subscribe; does not wait for it. The waker is called when something has come.
    ///
    /// # Errors
    /// The runtime could not be started.
    pub fn start(client: Client, options: SubscriberOptions, waker: Waker) -> Result<Self, ConnectError> {
        let (named, place) = (options.request.name.is_some(), client.place().to_string());
        let state = State { window: options.window, next_offset: options.behind, ..State::default() };
        let shared = Arc::new(Shared { watched: Watched::new(state, waker), room: Notify::new(), named });
        let task = runtime::handle()?.spawn(run(client, shared.clone(), options));
        Ok(Subscriber { shared, decoder: None, place, task })
    }

    /// The columns, if the server has said them.
    pub fn schema(&self) -> Option<SchemaRef> {
        self.shared.lock().schema.clone()
    }

    /// The columns; waits for the server to say them.
    ///
    /// # Errors
    /// The server's refusal, or that it was away for longer than the options bear; the wait was cancelled.
    pub fn wait_schema(&self, cancelled: &AtomicBool) -> Result<SchemaRef, ConnectError> {
        self.shared.wait(cancelled, |state| state.schema.clone())
    }

    /// The number of the row with which the subscription began, if the server has said it.
    pub fn began(&self) -> Option<u64> {
        self.shared.lock().began
    }

    /// What came next; never waits.
    ///
    /// # Errors
    /// The server's refusal, or that it was away for longer than the options bear; a message that
    /// cannot be read.
    pub fn try_next(&mut self) -> Result<Received, ConnectError> {
        loop {
            let (item, freed) = {
                let mut state = self.shared.lock();
                let Some(item) = state.queue.pop_front() else {
                    state.check()?;
                    return Ok(if state.ended || state.over { Received::End } else { Received::Pending });
                };
                let full = state.bytes >= state.window;
                state.bytes -= item.about.bytes;
                (item, full && state.bytes < state.window)
            };
            if freed {
                self.shared.room.notify_one();
            }
            if item.decoder.is_some() {
                self.decoder = item.decoder;
            }
            let decoder = self.decoder.as_mut().expect("it comes with the first message");
            let batch = decoder.decode(item.data).map_err(|e| ConnectError::new(format!("{}: reading rows: {e}", self.place)))?;
            if let Some(batch) = batch {
                let About { next_offset, snapshot, arrival_ns, bytes, again } = item.about;
                let batch = if again > 0 { batch.slice(again, batch.num_rows() - again) } else { batch };
                return Ok(Received::Rows(Message { batch, next_offset, snapshot, arrival_ns, bytes: bytes as u64 }));
            }
        }
    }

    /// What came next; waits for it. [`Received::Pending`] when `cancelled`.
    ///
    /// # Errors
    /// As [`Subscriber::try_next`].
    pub fn next(&mut self, cancelled: &AtomicBool) -> Result<Received, ConnectError> {
        loop {
            let received = self.try_next()?;
            if !matches!(received, Received::Pending) || cancelled.load(Ordering::Relaxed) {
                return Ok(received);
            }
            let state = self.shared.lock();
            if state.queue.is_empty() && !state.ended && !state.over && state.failure.is_none() {
                // Woken, or time to look at `cancelled`; the loop finds out.
                drop(self.shared.changed.wait_timeout(state, TICK));
            }
        }
    }

    /// A handle to acknowledge rows with.
    pub fn acknowledger(&self) -> Acknowledger {
        Acknowledger(self.shared.clone())
    }

    /// Connections that were made after the first, and how often rows of a live stream may have
    /// been missed at that.
    pub fn breaks(&self) -> (u64, u64) {
        let state = self.shared.lock();
        (state.subscriptions.saturating_sub(1), state.gaps)
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        let over = {
            let mut state = self.shared.lock();
            state.dropped = true;
            state.over
        };
        // Behind the last row the call stays open for the last acknowledgement, and ends by itself.
        if !over {
            self.task.abort();
        }
    }
}

/// Acknowledges rows for a subscriber with a name; may outlive it.
#[derive(Clone)]
pub struct Acknowledger(Arc<Shared>);

impl Acknowledger {
    /// Rows before `offset` need not be sent again. False if the subscription has ended, so that
    /// the server will not hear it; see [`acknowledge_once`]. Where another subscriber has taken the
    /// name there is nothing to tell: it acknowledges, and to connect once more would end it.
    pub fn acknowledge(&self, offset: u64) -> bool {
        let mut state = self.0.lock();
        if !self.0.named || state.replaced {
            return true;
        }
        if state.failure.is_some() || (state.dropped && !state.ended && !state.over) {
            return false;
        }
        if state.told >= Some(offset) {
            return true;
        }
        if state.ended {
            return false;
        }
        state.acknowledged = state.acknowledged.max(Some(offset));
        if let Some(writer) = state.writer.take() {
            writer.wake();
        }
        true
    }

    /// Whether the stream has ended and the server still listens to acknowledgements.
    pub fn over(&self) -> bool {
        let state = self.0.lock();
        state.over && !state.ended
    }

    /// Waits until the last acknowledgement is on its way, behind the stream's end until the server has
    /// heard it; or for [`CLOSE_TIMEOUT`]. False if it is not.
    pub fn flush(&self) -> bool {
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        let mut state = self.0.lock();
        loop {
            let told = state.acknowledged.is_none() || state.told >= state.acknowledged;
            // When everything is acknowledged the server ends the call.
            let heard = !state.over || state.ended || state.acknowledged < state.next_offset;
            if (told && heard) || state.replaced {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || state.ended || (state.dropped && !state.over) || state.failure.is_some() {
                return false;
            }
            state = self.0.changed.wait_timeout(state, left.min(TICK)).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Tells the server that rows before `offset` were taken, when there is no subscription any more to
/// tell it by. Waits for it, for [`CLOSE_TIMEOUT`] at most.
///
/// # Errors
/// The server was not there or refused: the rows will come again.
pub fn acknowledge_once(client: &Client, request: &Request, offset: u64) -> Result<(), ConnectError> {
    let (client, request) = (client.clone(), Request { from: Start::Offset(offset), ..request.clone() });
    let place = client.place().to_string();
    let call = async move {
        let messages = [opening(&client, &request), acknowledgement(offset)];
        let mut answers = client.flight().do_exchange(client.request(futures::stream::iter(messages))).await?.into_inner();
        answers.message().await?;
        // It reads on while it answers; it may end the call then, or send rows for ever.
        let rest = async { while let Ok(Some(_)) = answers.message().await {} };
        let _ = timeout(LAST_WORD, rest).await;
        Ok::<(), tonic::Status>(())
    };
    let failed = |why: String| ConnectError::new(format!("{place}: acknowledging rows up to {offset}: {why}; they will come again"));
    match runtime::wait(async move { timeout(CLOSE_TIMEOUT, call).await })? {
        Ok(Ok(())) => Ok(()),
        Ok(Err(status)) => Err(failed(Trouble::of("subscribing", &status).text)),
        // The stream says nothing while there is nothing to say: it has had the time to read.
        Err(_) => Ok(()),
    }
}

/// What stands beside a message's rows.
struct About {
    next_offset: Option<u64>,
    snapshot: bool,
    arrival_ns: u64,
    bytes: usize,
    /// Rows at its beginning that were given before.
    again: usize,
}

struct Queued {
    data: FlightData,
    /// Comes with the first message of a connection: the next one may number its dictionaries anew.
    decoder: Option<Box<Decoder>>,
    about: About,
}

/// What a server says beside rows.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Beside {
    offset: Option<u64>,
    snapshot: bool,
    /// Beside the columns of a live stream: whose count the offset is of.
    count: Option<String>,
    /// Nothing follows, and the server waits for the last acknowledgement.
    end: bool,
}

#[derive(Default)]
struct State {
    window: usize,
    schema: Option<SchemaRef>,
    queue: VecDeque<Queued>,
    bytes: usize,
    /// Nothing follows.
    over: bool,
    /// Nor is anything heard.
    ended: bool,
    dropped: bool,
    failure: Option<String>,
    /// The failure is that another subscriber has taken the name.
    replaced: bool,
    subscriptions: u64,
    gaps: u64,
    began: Option<u64>,
    count: Option<String>,
    /// Behind the last row that was queued.
    next_offset: Option<u64>,
    /// Rows behind that one that were queued all the same: several messages may stand for one piece of
    /// the stream, and only the last of them says where it ends.
    beyond: u64,
    /// Rows were queued, and the last of them were contents.
    received: bool,
    snapshot: bool,
    acknowledged: Option<u64>,
    /// What of it the server was told.
    told: Option<u64>,
    writer: Option<std::task::Waker>,
}

impl Watchable for State {
    const STOPPED: &'static str = "stopped while waiting for the server";

    fn check(&self) -> Result<(), ConnectError> {
        self.failure.as_ref().map_or(Ok(()), |text| Err(ConnectError::new(text.as_str())))
    }
}

struct Shared {
    watched: Watched<State>,
    /// There is room in the queue.
    room: Notify,
    named: bool,
}

impl Deref for Shared {
    type Target = Watched<State>;

    fn deref(&self) -> &Watched<State> {
        &self.watched
    }
}

impl Shared {
    /// Waits for room, then queues a message, `again` of whose rows came before; the first of a connection with its decoder.
    async fn put(&self, data: FlightData, decoder: Option<Box<Decoder>>, beside: Beside, again: usize) {
        let arrival_ns = clock::now_ns();
        let fresh = wire::rows(&data) - again;
        loop {
            {
                let mut state = self.lock();
                if state.bytes < state.window {
                    let bytes = data.data_header.len() + data.data_body.len();
                    if beside.offset.is_some() && beside.offset != state.next_offset {
                        (state.next_offset, state.beyond) = (beside.offset, 0);
                    } else if !beside.snapshot {
                        state.beyond += fresh as u64;
                    }
                    state.bytes += bytes;
                    (state.received, state.snapshot) = (true, beside.snapshot);
                    let about = About { next_offset: beside.offset, snapshot: beside.snapshot, arrival_ns, bytes, again };
                    state.queue.push_back(Queued { data, decoder, about });
                    break;
                }
            }
            self.room.notified().await;
        }
        self.notify();
    }
}

/// How the next attempt begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resume {
    /// As the caller asked.
    First,
    /// As the caller asked; what came meanwhile may be missing.
    Anew,
    /// Behind the last row that came.
    Behind(u64),
    /// The same, but the contents may not have been complete.
    BehindContents(u64),
    /// With what comes then.
    Now,
}

impl State {
    /// How to go on after a break.
    fn resume(&self, first: Start) -> Resume {
        match (self.subscriptions, self.next_offset) {
            (0, None) => Resume::First,
            (_, Some(offset)) if self.snapshot => Resume::BehindContents(offset),
            (_, Some(offset)) => Resume::Behind(offset),
            (_, None) if self.received => Resume::Now,
            (_, None) if first == Start::Now => Resume::Anew,
            (_, None) => Resume::First,
        }
    }
}

/// Keeps a subscription until the stream's end.
async fn run(client: Client, shared: Arc<Shared>, options: SubscriberOptions) {
    let mut tries = Tries::new(options.reconnect);
    // How often in a row the server would not go on behind the last row.
    let mut refusals = 0;
    loop {
        let began = Instant::now();
        let (resume, before) = {
            let state = shared.lock();
            (state.resume(options.request.from), state.subscriptions)
        };
        let result = attempt(&client, &shared, &options, resume, refusals > 0, &mut tries).await;
        let over = shared.lock().over;
        let trouble = match result {
            Err(trouble) if !over => trouble,
            _ => {
                let mut state = shared.lock();
                state.ended = true;
                if !over {
                    // A server ends like this only if nothing is left to acknowledge.
                    state.told = state.told.max(state.next_offset);
                }
                drop(state);
                return shared.notify();
            }
        };
        shared.lock().told = None;
        if began.elapsed() >= LASTED && shared.lock().subscriptions > 0 {
            tries.worked();
        }
        if shared.lock().subscriptions > before {
            refusals = 0;
        }
        if trouble.refused && refusals < REFUSALS_MAX && matches!(resume, Resume::Behind(_) | Resume::BehindContents(_)) {
            // It may be a job that is just ending, too: it gets a moment to be gone.
            refusals += 1;
            tokio::time::sleep(TICK).await;
            continue;
        }
        match tries.again(client.place(), &trouble) {
            Ok(pause) => tokio::time::sleep(pause).await,
            Err(error) => {
                {
                    let mut state = shared.lock();
                    (state.failure, state.replaced) = (Some(error.to_string()), trouble.replaced);
                }
                return shared.notify();
            }
        }
    }
}

/// One subscription, until it ends.
async fn attempt(
    client: &Client,
    shared: &Arc<Shared>,
    options: &SubscriberOptions,
    resume: Resume,
    refused: bool,
    tries: &mut Tries,
) -> Result<(), Trouble> {
    let info = client.info().await?;
    if info.updating() && !options.updating {
        return Err(Trouble::protocol(
            "the stream's rows are updated and deleted, and a table that is only appended to would take each change for a new row; \
             set 'changes' = 'apply' to have them updated and deleted in the table, too, or declare a column row_kind TINYINT and set \
             'changes' = 'as-column' to have what each row does in it",
        ));
    }
    let (from, gap) = begin(resume, options.request.from, info.exactly_once(), refused);
    let request = Request { from, ..options.request.clone() };
    let mut messages = timeout(HANDSHAKE_TIMEOUT, call(client, shared, request)).await.map_err(|_| Trouble::silent("subscribing"))??;
    let status = |status: tonic::Status| Trouble::of("subscribing", &status);
    let first = timeout(HANDSHAKE_TIMEOUT, messages.message()).await.map_err(|_| Trouble::silent("subscribing"))?.map_err(status)?;
    let first = first.ok_or_else(|| Trouble::ended("subscribing"))?;
    let decoder = Decoder::new(&first, MESSAGE_BYTES_MAX);
    let decoder = decoder.map_err(|e| Trouble::protocol(format!("subscribing: the stream's schema: {e}")))?;
    let decoder = decoder.ok_or_else(|| Trouble::protocol("subscribing: the server's first message says no columns"))?;
    let schema = decoder.schema().clone();
    let mut decoder = Some(Box::new(decoder));
    let said = beside(&first)?;
    let mut again = {
        let mut state = shared.lock();
        match &state.schema {
            Some(known) if *known != schema => {
                return Err(Trouble::protocol("the stream's columns have changed since the subscription began; subscribe anew"));
            }
            _ => state.schema = Some(schema),
        }
        // Another process has counted anew: that it has come as far says nothing about what was missed.
        let recounted = matches!(from, Start::Offset(_)) && state.count.is_some() && state.count != said.count;
        state.count = said.count;
        // The server may say here at which row it begins.
        if let Some(offset) = said.offset
            && !state.received
        {
            state.began = Some(offset);
            // Behind contents nobody can go on who has not got them.
            if from != Start::Snapshot {
                state.next_offset = Some(offset);
            }
        }
        state.subscriptions += 1;
        if recounted || !matches!(from, Start::Offset(_)) {
            state.beyond = 0;
        }
        if gap || recounted {
            state.gaps += 1;
            if state.gaps == 1 {
                let place = client.place();
                tidemill_connect::notice(&format!(
                    "{place}: the connection was broken; rows that came meanwhile may be missing, and this is told only once"
                ));
            }
        }
        state.beyond
    };
    tries.known();
    shared.notify();
    // What is refused now is not where the subscription began.
    let broken = |status: tonic::Status| Trouble { refused: false, ..Trouble::of("subscribing", &status) };
    let mut over = false;
    loop {
        let message = messages.message();
        let data = if over { timeout(END_TIMEOUT, message).await.unwrap_or(Ok(None)) } else { message.await };
        let Some(data) = data.map_err(broken)? else { return Ok(()) };
        tries.worked();
        let beside = beside(&data)?;
        over |= beside.end;
        let repeated = again.min(wire::rows(&data) as u64);
        again -= repeated;
        shared.put(data, decoder.take(), beside, repeated as usize).await;
        if over {
            shared.lock().over = true;
            shared.notify();
        }
    }
}

/// Where to begin, and whether rows may be missing then. `refused` if the server would not go on
/// behind the last row.
fn begin(resume: Resume, first: Start, exactly_once: Option<bool>, refused: bool) -> (Start, bool) {
    match resume {
        Resume::First => (first, false),
        Resume::Anew => (first, true),
        Resume::Now => (Start::Now, true),
        // A live stream has no rows of earlier: unless there are none, it refuses.
        _ if refused && exactly_once != Some(true) => (Start::Now, true),
        Resume::Behind(offset) => (Start::Offset(offset), false),
        Resume::BehindContents(offset) => (Start::Offset(offset), true),
    }
}

/// Asks for the rows.
async fn call(client: &Client, shared: &Arc<Shared>, request: Request) -> Result<Streaming<FlightData>, Trouble> {
    let mut flight = client.flight();
    let answer = if shared.named {
        let outgoing = Acknowledgements { shared: shared.clone(), opening: Some(opening(client, &request)), told: None };
        flight.do_exchange(client.request(outgoing)).await
    } else {
        flight.do_get(client.request(Ticket::new(request.json()))).await
    };
    answer.map(tonic::Response::into_inner).map_err(|status| Trouble::of("subscribing", &status))
}

fn beside(data: &FlightData) -> Result<Beside, Trouble> {
    if data.app_metadata.is_empty() {
        return Ok(Beside::default());
    }
    serde_json::from_slice(&data.app_metadata).map_err(|e| Trouble::protocol(format!("subscribing: what the server says beside rows: {e}")))
}

/// The first message of an acknowledging subscriber.
fn opening(client: &Client, request: &Request) -> FlightData {
    let descriptor = FlightDescriptor::new_path(vec![client.stream().to_string()]);
    FlightData::new().with_descriptor(descriptor).with_app_metadata(request.json())
}

fn acknowledgement(offset: u64) -> FlightData {
    FlightData::new().with_app_metadata(format!("{{\"ack\":{offset}}}"))
}

/// What an acknowledging subscriber sends.
struct Acknowledgements {
    shared: Arc<Shared>,
    opening: Option<FlightData>,
    /// The last one sent on this connection.
    told: Option<u64>,
}

impl Stream for Acknowledgements {
    type Item = FlightData;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<FlightData>> {
        if let Some(opening) = self.opening.take() {
            return Poll::Ready(Some(opening));
        }
        let shared = self.shared.clone();
        let mut state = shared.lock();
        match state.acknowledged {
            Some(offset) if self.told < Some(offset) => {
                self.told = Some(offset);
                state.told = Some(offset);
                drop(state);
                shared.changed.notify_all();
                Poll::Ready(Some(acknowledgement(offset)))
            }
            _ => {
                state.writer = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests;
