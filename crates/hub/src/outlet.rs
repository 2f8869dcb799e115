//! The side of a stream that a job writes: who listens, what the rows add up to, and the broadcast.
//!
//! An outlet lives as long as its writers. A `live` one puts every block, once encoded and shared, into
//! the queue of each subscriber. An `exactly-once` one has a [`Log`]; its subscribers read that, and are
//! only woken from here.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use tidemill_block::Block;
use tidemill_connect::{ConnectError, Waker};

use crate::contents::{Contents, ContentsReader, Shelf};
use crate::delivery::{Delivery, wire_batch, wire_schema};
use crate::error::HubError;
use crate::log::{Log, Prepared};
use crate::stream::{Counters, From, OutletInfo, Slow, Stream, SubscribeRequest};

/// How long a job waits for a subscriber that takes nothing at all: a peer that is half gone must not
/// stop it for ever.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// The same from the moment on at which the job was asked to stop: its last checkpoint waits, too.
const STOP_IDLE_MAX: Duration = Duration::from_secs(2);
/// How long after that moment it waits for one that takes a little now and then.
const STOP_WAIT_MAX: Duration = Duration::from_secs(10);
/// How often a waiting writer looks whether its job is being stopped.
const WAIT_STEP: Duration = Duration::from_millis(50);
/// So many images of contents that changed meanwhile may be read at once, and any number as long as together they have less than this,
/// bytes.
const IMAGES_MAX: usize = 4;
const IMAGES_BYTES: u64 = 64 << 20;
/// What a queue counts for a delivery beyond its bytes.
const DELIVERY_BYTES: u64 = 64;

/// The outlet of a stream.
pub(crate) struct Outlet {
    stream: String,
    /// The run of the job that writes.
    pub run: String,
    pub info: OutletInfo,
    columns: SchemaRef,
    /// The columns that subscribers get.
    pub wire: SchemaRef,
    /// Bound of a subscriber's queue that asks for none, bytes.
    queue_bytes: u64,
    counters: Arc<Counters>,
    pub log: Option<Arc<Log>>,
    /// Where contents are kept, if they are.
    shelf: Option<Arc<Shelf>>,
    state: Mutex<State>,
    /// A subscriber for which a writer waits has room.
    room: Condvar,
    room_wanted: AtomicBool,
}

struct State {
    writers: usize,
    subscribers: Vec<Arc<Mailbox>>,
    /// The number of the next row of a `live` stream.
    next_offset: u64,
    contents: Option<Contents>,
    /// The contents as subscribers get them, until they change.
    image: Option<VecDeque<Arc<Delivery>>>,
    /// The last part of each image that somebody may still be reading, and the image's bytes.
    images: Vec<(Weak<Delivery>, u64)>,
    /// The number of the row after those of the committed contents, of an `exactly-once` stream.
    committed: u64,
    /// The job has read all of its input.
    finished: bool,
    /// When the job was asked to stop, if it was.
    stopping: Option<Instant>,
    ended: bool,
}

/// What a new subscriber begins with.
pub(crate) enum Begin {
    /// These rows, then what comes into its mailbox, from the row of this number on.
    Live(VecDeque<Arc<Delivery>>, u64),
    /// These contents, then the rows of the log from this number on.
    Log(Option<ContentsReader>, u64),
}

/// What an outlet is made of.
pub(crate) struct OutletParts {
    pub run: String,
    pub info: OutletInfo,
    pub columns: SchemaRef,
    pub queue_bytes: u64,
    pub log: Option<Arc<Log>>,
    pub shelf: Option<Arc<Shelf>>,
    pub contents: Option<Contents>,
}

impl Outlet {
    /// An outlet with one writer.
    pub fn new(stream: &Stream, parts: OutletParts) -> Self {
        let state = State {
            writers: 1,
            subscribers: Vec::new(),
            next_offset: stream.counters.live_offset.load(Ordering::Relaxed),
            contents: parts.contents,
            image: None,
            images: Vec::new(),
            committed: parts.log.as_ref().map_or(0, |l| l.range().1),
            finished: false,
            stopping: None,
            ended: false,
        };
        Outlet {
            stream: stream.name().to_string(),
            run: parts.run,
            wire: wire_schema(&parts.columns, parts.info.updating),
            info: parts.info,
            columns: parts.columns,
            queue_bytes: parts.queue_bytes,
            counters: stream.counters.clone(),
            log: parts.log,
            shelf: parts.shelf,
            state: Mutex::new(state),
            room: Condvar::new(),
            room_wanted: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a writer that would make `other` can share this outlet; then it does. Rows of several
    /// writers have no order among each other, so nothing that is restored may depend on one.
    pub fn joins(&self, other: &Outlet) -> bool {
        let plain = self.log.is_none() && !self.info.snapshot;
        let joins = plain && self.run == other.run && self.info == other.info && self.wire.fields() == other.wire.fields();
        if joins {
            self.lock().writers += 1;
        }
        joins
    }

    /// Nothing follows what was written, in this run or a later one.
    pub fn finish(&self) {
        self.lock().finished = true;
    }

    /// The job was asked to stop.
    pub fn stopping(&self) {
        self.lock().stopping.get_or_insert_with(Instant::now);
    }

    /// A writer is done. With the last one subscribers get what there is and then the end: true.
    pub fn leave(&self) -> bool {
        let mut state = self.lock();
        state.writers -= 1;
        if state.writers > 0 {
            return false;
        }
        state.ended = true;
        if self.log.is_none() {
            self.counters.live_offset.store(state.next_offset, Ordering::Relaxed);
        }
        state.contents = None;
        state.image = None;
        let ending = if state.finished { Ending::Over } else { Ending::Left };
        for mailbox in state.subscribers.drain(..) {
            mailbox.end(ending);
        }
        self.room.notify_all();
        drop(state);
        if let Some(log) = &self.log {
            // What is not written down costs rows sent twice, no more.
            let _ = log.save_acks();
        }
        true
    }

    /// Subscribers, the number of the next row, bytes of the log.
    pub fn standing(&self) -> (u64, u64, u64) {
        let state = self.lock();
        let (subscribers, next) = (state.subscribers.len() as u64, state.next_offset);
        drop(state);
        self.log.as_ref().map_or((subscribers, next, 0), |log| (subscribers, log.range().1, log.bytes()))
    }

    fn failed(&self, e: ArrowError) -> ConnectError {
        ConnectError::new(format!("writing to stream '{}': {e}", self.stream))
    }

    /// Hands a block to all subscribers; the bytes that were shared. May wait for subscribers that asked
    /// for that.
    pub fn publish(&self, block: &Block, cancelled: &AtomicBool) -> Result<u64, ConnectError> {
        let mut guard = self.with_room(cancelled)?;
        let state = &mut *guard;
        state.next_offset += block.rows() as u64;
        if let Some(contents) = &mut state.contents {
            contents.apply(block).map_err(|e| self.failed(e))?;
            state.image = None;
        }
        if state.subscribers.is_empty() {
            return Ok(0);
        }
        let batch = self.wire_batch(block)?;
        let delivery = Arc::new(Delivery::new(batch, state.next_offset, false, block.arrival_ns));
        state.subscribers.retain(|mailbox| {
            let kept = mailbox.push(&delivery);
            if !kept {
                self.counters.dropped_subscribers.fetch_add(1, Ordering::Relaxed);
            }
            kept
        });
        Ok(delivery.bytes)
    }

    /// A block as subscribers get it.
    pub fn wire_batch(&self, block: &Block) -> Result<RecordBatch, ConnectError> {
        wire_batch(&self.wire, &block.batch, block.kinds.as_deref(), self.info.updating).map_err(|e| self.failed(e))
    }

    /// Adds a block to the contents, if there are any.
    pub fn keep(&self, block: &Block) -> Result<(), ConnectError> {
        match &mut self.lock().contents {
            Some(contents) => contents.apply(block).map_err(|e| self.failed(e)),
            None => Ok(()),
        }
    }

    /// Waits until every subscriber that wants to be waited for has room.
    fn with_room(&self, cancelled: &AtomicBool) -> Result<MutexGuard<'_, State>, ConnectError> {
        let mut state = self.lock();
        if !self.full(&mut state) {
            return Ok(state);
        }
        loop {
            // Raised before looking again: who makes room after that look sees it.
            self.room_wanted.store(true, Ordering::SeqCst);
            if !self.full(&mut state) {
                self.room_wanted.store(false, Ordering::SeqCst);
                return Ok(state);
            }
            if cancelled.load(Ordering::Relaxed) {
                return Err(ConnectError::new(format!("stopped while waiting for a slow subscriber of stream '{}'", self.stream)));
            }
            state = self.room.wait_timeout(state, WAIT_STEP).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether a subscriber that is waited for has no room. Those that take nothing are given up.
    fn full(&self, state: &mut State) -> bool {
        let (mut full, stopping) = (false, state.stopping);
        state.subscribers.retain(|mailbox| match mailbox.fullness(stopping) {
            Fullness::Room => true,
            Fullness::Full => {
                full = true;
                true
            }
            Fullness::Stuck => {
                self.counters.dropped_subscribers.fetch_add(1, Ordering::Relaxed);
                false
            }
        });
        full
    }

    /// A subscriber that is waited for has made room.
    pub fn made_room(&self) {
        if self.room_wanted.load(Ordering::SeqCst) {
            // The lock is taken so that the writer is either before its look or already asleep.
            drop(self.lock());
            self.room.notify_all();
        }
    }

    /// Lets a mailbox take part, and says what its owner begins with, in one step.
    pub fn subscribe(&self, mailbox: &Arc<Mailbox>, request: &SubscribeRequest) -> Result<Begin, HubError> {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.ended {
            return Err(HubError::Gone(format!(
                "the job that writes stream '{}' has just ended or restarts; subscribe again",
                self.stream
            )));
        }
        let begin = match &self.log {
            None => self.begin_live(state, request)?,
            Some(log) => self.begin_log(state, log, request)?,
        };
        if let Some(name) = &request.name {
            state.subscribers.retain(|other| {
                let same = other.name.as_ref() == Some(name);
                if same {
                    other.end(Ending::Replaced);
                }
                !same
            });
        }
        state.subscribers.push(mailbox.clone());
        Ok(begin)
    }

    /// A mailbox takes part no longer.
    pub fn unsubscribe(&self, mailbox: &Arc<Mailbox>) {
        self.lock().subscribers.retain(|other| !Arc::ptr_eq(other, mailbox));
        self.room.notify_all();
    }

    fn refused(&self, why: &str) -> HubError {
        HubError::Refused(format!("stream '{}' cannot be subscribed to like this: {why}", self.stream))
    }

    fn begin_live(&self, state: &mut State, request: &SubscribeRequest) -> Result<Begin, HubError> {
        let next = state.next_offset;
        match request.from {
            From::Now => Ok(Begin::Live(VecDeque::new(), next)),
            From::Offset(offset) if offset == next => Ok(Begin::Live(VecDeque::new(), next)),
            From::Snapshot => match (&state.contents, &state.image) {
                (None, _) => Err(self.no_snapshot()),
                (Some(_), Some(image)) => Ok(Begin::Live(image.clone(), next)),
                (Some(contents), None) => {
                    state.images.retain(|(last, _)| last.strong_count() > 0);
                    let held: u64 = state.images.iter().map(|(_, bytes)| bytes).sum();
                    if state.images.len() >= IMAGES_MAX && held >= IMAGES_BYTES {
                        return Err(HubError::TooMany(format!(
                            "stream '{}': {} subscribers or more have not read the contents with which they began, which have changed since \
                             ({} MB); try again when they have",
                            self.stream,
                            state.images.len(),
                            held >> 20
                        )));
                    }
                    let wrong = |e: ArrowError| HubError::Data(format!("the contents of stream '{}': {e}", self.stream));
                    let mut image = VecDeque::new();
                    for rows in contents.rows(usize::MAX).map_err(wrong)? {
                        let batch = wire_batch(&self.wire, &rows, None, self.info.updating).map_err(wrong)?;
                        image.push_back(Arc::new(Delivery::new(batch, next, true, 0)));
                    }
                    if let Some(last) = image.back() {
                        state.images.push((Arc::downgrade(last), image.iter().map(|part| part.bytes).sum()));
                    }
                    state.image = Some(image.clone());
                    Ok(Begin::Live(image, next))
                }
            },
            From::Earliest | From::Offset(_) | From::Acknowledged => Err(self.refused(
                "it is 'live' and keeps no rows; begin with \"now\", or declare its table with 'stream.delivery' = 'exactly-once'",
            )),
        }
    }

    fn no_snapshot(&self) -> HubError {
        self.refused(
            "it keeps no contents, so there is no \"snapshot\"; begin with \"now\", or declare its table with 'stream.snapshot' = 'true'",
        )
    }

    fn begin_log(&self, state: &mut State, log: &Arc<Log>, request: &SubscribeRequest) -> Result<Begin, HubError> {
        let (oldest, next) = log.range();
        let mut contents = None;
        let offset = match request.from {
            From::Now => next,
            From::Earliest => oldest,
            From::Offset(offset) if offset < oldest => return Err(log.expired(offset)),
            From::Offset(offset) if offset > next => {
                return Err(self.refused(&format!("it has rows up to {next} so far, not up to {offset}")));
            }
            From::Offset(offset) => offset,
            From::Acknowledged => {
                let Some(name) = &request.name else {
                    return Err(self.refused("\"acknowledged\" needs the name of the subscriber"));
                };
                log.acknowledged().get(name).map_or(oldest, |ack| (*ack).clamp(oldest, next))
            }
            From::Snapshot => {
                if !self.info.snapshot {
                    return Err(self.no_snapshot());
                }
                let file = self.shelf.as_ref().and_then(|shelf| Some((shelf, shelf.committed()?)));
                contents = file.map(|(shelf, name)| shelf.open(&name)).transpose()?;
                state.committed
            }
        };
        let offset = match &request.name {
            Some(name) => log.register(name, offset)?,
            None => offset,
        };
        Ok(Begin::Log(contents, offset))
    }

    /// The bound of a queue for which no other was asked.
    pub fn queue_bytes(&self) -> u64 {
        self.queue_bytes
    }

    /// Contents read from a file, as subscribers get them.
    pub fn wire_contents(&self, rows: &RecordBatch, next_offset: u64) -> Result<Delivery, HubError> {
        let batch = wire_batch(&self.wire, rows, None, self.info.updating);
        let batch = batch.map_err(|e| HubError::Data(format!("the contents of stream '{}': {e}", self.stream)))?;
        Ok(Delivery::new(batch, next_offset, true, 0))
    }

    /// See [`Stream::contents`].
    pub fn contents(&self, limit: usize) -> Option<RecordBatch> {
        let batches = match (&self.log, &self.shelf) {
            (Some(_), shelf) => {
                if !self.info.snapshot {
                    return None;
                }
                // Under the lock, so that the file is not replaced before it is open.
                let reader = {
                    let _state = self.lock();
                    let file = shelf.as_ref().and_then(|shelf| Some((shelf, shelf.committed()?)));
                    file.map(|(shelf, name)| shelf.open(&name)).transpose().ok()?
                };
                let (mut batches, mut left) = (Vec::new(), limit);
                if let Some(mut reader) = reader {
                    while left > 0
                        && let Some(rows) = reader.rows().ok()?
                    {
                        let rows = rows.slice(0, rows.num_rows().min(left));
                        left -= rows.num_rows();
                        batches.push(rows);
                    }
                }
                batches
            }
            (None, _) => self.lock().contents.as_ref()?.rows(limit).ok()?,
        };
        concat_batches(&self.columns, &batches).ok()
    }

    /// Writes the contents down for a checkpoint, if they have changed; the file that holds them.
    pub fn shelve(&self) -> Result<Option<String>, ConnectError> {
        let Some(shelf) = &self.shelf else { return Ok(None) };
        let counted = {
            let mut state = self.lock();
            match &mut state.contents {
                Some(contents) => match contents.take_changed() {
                    true => Some(contents.counted().map_err(|e| self.failed(e))?),
                    false => None,
                },
                None => None,
            }
        };
        match counted {
            Some(counted) => Ok(Some(shelf.write(&counted)?)),
            None => Ok(shelf.newest()),
        }
    }

    /// Makes the contents of a checkpoint those that subscribers begin with.
    pub fn commit_contents(&self, prepared: &Prepared) -> Result<(), HubError> {
        if let (Some(shelf), Some(name)) = (&self.shelf, &prepared.contents) {
            let mut state = self.lock();
            shelf.commit(name)?;
            state.committed = prepared.end();
        }
        Ok(())
    }

    /// Wakes all subscribers: there is more in the log.
    pub fn notify(&self) {
        self.lock().subscribers.iter().for_each(|mailbox| mailbox.notify());
    }
}

/// What lies ready for one subscriber.
pub(crate) struct Mailbox {
    waker: Waker,
    slow: Slow,
    bound: u64,
    pub name: Option<String>,
    mail: Mutex<Mail>,
}

#[derive(Default)]
struct Mail {
    items: VecDeque<Arc<Delivery>>,
    bytes: u64,
    /// The subscriber found nothing.
    waiting: bool,
    /// Since when a writer has waited for it without it taking anything.
    full_since: Option<Instant>,
    ending: Option<Ending>,
}

/// Why nothing follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The job has read all of its input.
    Over,
    /// The job was stopped, has failed or restarts: its next run goes on.
    Left,
    TooSlow,
    /// Another subscriber took the name.
    Replaced,
}

/// Whether a writer still waits for a subscriber that has taken nothing for so long, where `stopping` is
/// the time since its job was asked to stop.
pub(crate) fn is_waited_for(idle: Duration, stopping: Option<Duration>) -> bool {
    match stopping {
        None => idle < WAIT_MAX,
        Some(asked) => idle.min(asked) < STOP_IDLE_MAX && asked < STOP_WAIT_MAX,
    }
}

enum Fullness {
    Room,
    Full,
    Stuck,
}

/// What a subscriber finds.
pub(crate) enum Found {
    Rows(Arc<Delivery>),
    Nothing,
    Ended(Ending),
}

impl Mailbox {
    pub fn new(waker: Waker, slow: Slow, bound: u64, name: Option<String>) -> Self {
        Mailbox { waker, slow, bound, name, mail: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts rows in; false if the subscriber is given up for them.
    fn push(&self, delivery: &Arc<Delivery>) -> bool {
        let mut mail = self.lock();
        let weight = delivery.bytes + DELIVERY_BYTES;
        let kept = self.slow == Slow::Wait || mail.bytes == 0 || mail.bytes + weight <= self.bound;
        if kept {
            mail.bytes += weight;
            mail.items.push_back(delivery.clone());
        } else {
            mail.close(Ending::TooSlow);
        }
        self.wake(mail);
        kept
    }

    /// Wakes the owner if it found nothing: behind the lock, for which it would only wait.
    fn wake(&self, mut mail: MutexGuard<'_, Mail>) {
        let waiting = std::mem::take(&mut mail.waiting);
        drop(mail);
        if waiting {
            self.waker.wake();
        }
    }

    /// Whether a writer must wait for it, whose job was asked to stop then.
    fn fullness(&self, stopping: Option<Instant>) -> Fullness {
        if self.slow == Slow::Drop {
            return Fullness::Room;
        }
        let mut mail = self.lock();
        if mail.bytes < self.bound || mail.items.is_empty() {
            return Fullness::Room;
        }
        let idle = mail.full_since.get_or_insert_with(Instant::now).elapsed();
        if is_waited_for(idle, stopping.map(|asked| asked.elapsed())) {
            return Fullness::Full;
        }
        mail.close(Ending::TooSlow);
        self.wake(mail);
        Fullness::Stuck
    }

    /// Takes rows out; whether a writer may have waited for that.
    pub fn take(&self) -> (Found, bool) {
        let mut mail = self.lock();
        match (mail.items.pop_front(), mail.ending) {
            (Some(delivery), _) => {
                mail.bytes -= delivery.bytes + DELIVERY_BYTES;
                mail.full_since = None;
                (Found::Rows(delivery), self.slow == Slow::Wait)
            }
            (None, Some(ending)) => (Found::Ended(ending), false),
            (None, None) => {
                mail.waiting = true;
                (Found::Nothing, false)
            }
        }
    }

    /// Why nothing follows, if nothing does.
    pub fn ending(&self) -> Option<Ending> {
        self.lock().ending
    }

    fn end(&self, ending: Ending) {
        let mut mail = self.lock();
        match ending {
            // What is there still arrives.
            Ending::Over | Ending::Left => {
                mail.ending.get_or_insert(ending);
            }
            _ => mail.close(ending),
        }
        self.wake(mail);
    }

    fn notify(&self) {
        self.wake(self.lock());
    }
}

impl Mail {
    fn close(&mut self, ending: Ending) {
        self.items.clear();
        self.bytes = 0;
        self.ending = Some(ending);
    }
}
