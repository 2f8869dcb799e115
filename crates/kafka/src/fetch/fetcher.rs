//! The partitions of a source that we fetch ourselves: what is asked for next of each, who leads it, who fetches it.
//!
//! A partition without a leader belongs to [`leaders`], one with a leader to the thread of that broker ([`broker`]). All of
//! them share one lock, which is held for moments: once for a request, and once for the answer of a partition.

use std::collections::BTreeMap;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidemill_connect::{ConnectError, Waker};

use super::batch::Survey;
use super::feed::Feed;
use super::leaders::Leaderless;
use super::link::Link;
use super::pieces::Piece;
use super::protocol::{self, Extent, NEWEST, OLDEST, code};
use super::slot::{Event, Room, Slot};
use super::{broker, leaders};
use crate::access::Access;
use crate::client::lock;
use crate::options::OffsetReset;
use crate::outage::Outage;
use crate::partitions::Partition;
use crate::position::Position;
use crate::prefetch::Prefetch;
use crate::properties::Connection;
use crate::transaction::wire::Broker;

/// How long a partition rests that a broker could not answer for.
pub const REST: Duration = Duration::from_millis(100);
/// How long a broker rests, at most, that could not be reached.
const REST_MAX: Duration = Duration::from_secs(2);
/// Bytes of a partition in one answer. An answer ends where it is full, and what it has of the batch that stands there comes again with
/// the next. librdkafka's batches have up to 1 MB: of those of 600 KB an answer of 1 MB holds one, and the rest of it is for nothing.
const ANSWER_BYTES: u64 = 2 << 20;
/// Buffers that are kept for further answers.
const SPARE: usize = 8;
/// Bytes that a buffer is not too large for any answer with.
const BUFFER_MIN: usize = 4096;
/// Properties that only librdkafka heeds, and that matter for whom it talks to.
const UNSPOKEN: &[&str] =
    &["client.rack", "broker.address.family", "plugin.library.paths", "test.mock.num.brokers", "metadata.broker.list"];

/// How a source reads.
pub struct Settings {
    /// How we call ourselves.
    pub client: String,
    /// How much is asked for at once.
    pub extent: Extent,
    /// How much may wait for each reader.
    pub room: Room,
    /// What to do where an offset is gone.
    pub reset: OffsetReset,
    /// Readers want to know where partitions end.
    pub ends: bool,
    /// How long an answer may take, beside what is asked to wait.
    pub patience: Duration,
}

impl Settings {
    /// As a table says.
    pub fn of(connection: &Connection, prefetch: Prefetch, reset: OffsetReset, ends: bool) -> Self {
        let parsed = |text: &str| text.trim().parse::<u32>().ok();
        let number = |name: &str| connection.property(name).and_then(parsed).map(|n| n.min(i32::MAX as u32));
        let bytes = |name: &str, default: u64| number(name).map_or(default.min(i32::MAX as u64) as i32, |n| n as i32);
        let partition = ["fetch.message.max.bytes", "max.partition.fetch.bytes"].into_iter().find_map(number);
        let kbytes = number("queued.max.messages.kbytes").map_or(prefetch.kbytes, u64::from);
        // A quarter of what may wait: an answer comes on top of that, and another is being read.
        let answer_bytes = (kbytes << 8).min(ANSWER_BYTES).max(prefetch.answer_bytes);
        let isolation = connection.property("isolation.level").unwrap_or("read_committed").trim().to_ascii_lowercase();
        Settings {
            client: connection.property("client.id").unwrap_or("tidemill").to_string(),
            extent: Extent {
                wait_ms: bytes("fetch.wait.max.ms", 500),
                bytes_min: bytes("fetch.min.bytes", 1),
                bytes_max: bytes("fetch.max.bytes", 50 << 20),
                partition_bytes_max: partition.map_or(answer_bytes.min(i32::MAX as u64) as i32, |n| n as i32),
                committed: isolation != "read_uncommitted",
            },
            // What a message takes beside its bytes is nothing here, so that their number counts only where the table says it.
            room: Room { bytes: (kbytes as usize) << 10, messages: number("queued.min.messages").map_or(u64::MAX, u64::from).max(1) },
            reset,
            ends,
            patience: Duration::from_millis(number("socket.timeout.ms").map_or(30_000, u64::from).max(1_000)),
        }
    }
}

/// A partition that is read.
pub struct Assigned {
    /// Where its messages go.
    pub slot: Arc<Slot>,
    /// The next offset, or [`OLDEST`] or [`NEWEST`].
    pub next: i64,
    /// The broker that leads it, if it is known.
    pub leader: Option<i32>,
    /// The leader's epoch.
    pub epoch: i32,
    /// The epoch that the newest message was written in; less than none before the first.
    pub read_epoch: i32,
    /// Another leads than the one that gave it: its log may have been cut short below what was read, and have grown again.
    pub doubtful: bool,
    /// It rests until then.
    pub again: Instant,
    /// Since when brokers say that it is not there.
    pub missing: Option<Instant>,
    /// How it waits, if brokers say that nobody leads it.
    pub leaderless: Option<Leaderless>,
    /// Its reader was told why nothing more comes.
    pub over: bool,
    /// The end that its reader was told last.
    pub end: Option<i64>,
}

/// A broker.
#[derive(Default)]
pub struct Node {
    /// A thread fetches from it.
    pub running: bool,
    /// Its connection.
    pub socket: Option<TcpStream>,
    /// How often it could not be reached since it last was.
    pub failures: u32,
}

/// What the threads share.
#[derive(Default)]
pub struct State {
    /// The source is gone.
    pub stopped: bool,
    /// Leaders are looked for.
    pub looking: bool,
    /// What is read.
    pub partitions: BTreeMap<Partition, Assigned>,
    /// Brokers by their numbers.
    pub nodes: BTreeMap<i32, Node>,
    /// Their addresses, as of the last look.
    pub addresses: BTreeMap<i32, String>,
    /// How often a reader came.
    pub comings: u64,
}

impl State {
    /// What is known of a partition, if its reader is still the same.
    pub fn of(&mut self, slot: &Arc<Slot>) -> Option<&mut Assigned> {
        self.partitions.get_mut(&slot.partition).filter(|assigned| Arc::ptr_eq(&assigned.slot, slot))
    }
}

/// What all threads of a source know.
pub struct Shared {
    /// How it reads.
    pub settings: Settings,
    /// How to talk to brokers.
    pub access: Access,
    /// Brokers to begin with.
    pub servers: String,
    /// Whom to tell that none answers.
    pub outage: Arc<Outage>,
    state: Mutex<State>,
    changed: Condvar,
    spare: Mutex<Vec<Vec<u8>>>,
}

impl Shared {
    /// The lock.
    pub fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Waits for a change, but not beyond `until`.
    pub fn wait<'a>(&self, state: MutexGuard<'a, State>, until: Option<Instant>) -> MutexGuard<'a, State> {
        match until {
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }

    /// Tells who waits.
    pub fn changed(&self) {
        self.changed.notify_all();
    }

    /// How long a broker rests after so many failures.
    pub fn rest(failures: u32) -> Duration {
        (REST * 2u32.saturating_pow(failures.saturating_sub(1).min(10))).min(REST_MAX)
    }

    /// Memory for so many bytes of an answer. A small one shall not keep a large piece of it while it waits.
    pub fn buffer(&self, bytes: usize) -> Vec<u8> {
        let mut spare = lock(&self.spare);
        let fits = spare.iter().position(|buffer| buffer.capacity() <= 4 * bytes.max(BUFFER_MIN));
        fits.map_or_else(Vec::new, |at| spare.swap_remove(at))
    }

    /// Memory that is no longer needed.
    pub fn give_back(&self, buffer: Vec<u8>) {
        // One huge message must not stay for ever, and what is kept is beside what may wait.
        if buffer.capacity() > 0 && buffer.capacity() <= self.settings.extent.partition_bytes_max as usize {
            let mut spare = lock(&self.spare);
            if spare.len() < SPARE {
                spare.push(buffer);
            }
        }
    }

    /// Hands messages of a partition over, and goes on behind them.
    pub fn deliver(&self, slot: &Arc<Slot>, mut piece: Piece) {
        let survey = Survey::of(&piece.bytes);
        {
            let mut state = self.state();
            let Some(assigned) = state.of(slot) else { return };
            assigned.over |= survey.fault;
            match survey.next.filter(|next| *next > piece.from) {
                Some(next) => (assigned.next, assigned.read_epoch) = (next, survey.epoch),
                // Its reader will say what is wrong.
                None if survey.fault => {}
                None => {
                    // The beginning of a batch that had no room in the answer, or nothing that was asked for.
                    assigned.again = Instant::now() + REST / 10;
                    drop(state);
                    return self.give_back(piece.bytes);
                }
            }
        }
        if !survey.fault {
            piece.bytes.truncate(survey.bytes);
        }
        slot.put(Event::Piece(piece, survey.records));
    }

    /// Tells a reader that its partition ends there at the moment.
    pub fn ends(&self, slot: &Arc<Slot>, from: i64, end: i64) {
        {
            let mut state = self.state();
            let Some(assigned) = state.of(slot).filter(|a| a.next == from && a.end != Some(end)) else { return };
            assigned.end = Some(end);
        }
        slot.put(Event::End(end));
    }

    /// A broker could not answer for a partition.
    pub fn trouble(&self, slot: &Arc<Slot>, found: i16) {
        let event = {
            let mut state = self.state();
            let Some(assigned) = state.of(slot) else { return };
            assigned.again = Instant::now() + REST;
            match (found, self.settings.reset) {
                (code::OFFSET_OUT_OF_RANGE, OffsetReset::Earliest | OffsetReset::Latest) => {
                    assigned.next = if self.settings.reset == OffsetReset::Latest { NEWEST } else { OLDEST };
                    (assigned.read_epoch, assigned.doubtful) = (-1, false);
                    None
                }
                (passing, _) if code::passing(passing) => {
                    assigned.leader = None;
                    None
                }
                (other, _) => {
                    assigned.over = true;
                    Some(Event::Failed(other, protocol::named(other).to_string()))
                }
            }
        };
        match event {
            Some(event) => slot.put(event),
            // Somebody may have to look for the leader.
            None => self.changed(),
        }
    }

    /// A thread that fetched from a broker ends; `failure`: why, if it was to go on.
    pub fn leave(&self, node: i32, failure: Option<String>) {
        let mut state = self.state();
        let known = state.nodes.entry(node).or_default();
        (known.running, known.socket) = (false, None);
        let rest = match &failure {
            None => Duration::ZERO,
            Some(_) => {
                known.failures = known.failures.saturating_add(1);
                Self::rest(known.failures)
            }
        };
        // Partitions that came to it in the last moment are without a leader as well.
        let again = Instant::now() + rest;
        for assigned in state.partitions.values_mut().filter(|a| a.leader == Some(node)) {
            assigned.leader = None;
            assigned.again = assigned.again.max(again);
        }
        let stopped = state.stopped;
        drop(state);
        if let Some(why) = failure.filter(|_| !stopped) {
            self.outage.error(&why);
        }
        self.changed();
    }
}

/// Fetches the partitions of a source. Dropped, its threads end.
pub struct Fetcher {
    shared: Arc<Shared>,
}

impl Fetcher {
    /// For the brokers of a table.
    ///
    /// # Errors
    /// Why they are to be read from with librdkafka: what is spoken is not encrypted, and brokers are of 2.3 or later.
    pub fn start(connection: &Connection, settings: Settings, outage: Arc<Outage>) -> Result<Arc<Self>, String> {
        let Ok(access) = Access::of(connection) else {
            return Err(format!("'properties.security.protocol' = '{}' and what goes with it is not spoken", connection.protocol()));
        };
        if access.encrypts() {
            return Err(format!("'properties.security.protocol' = '{}': what is encrypted is not spoken", connection.protocol()));
        }
        if let Some(name) = UNSPOKEN.iter().find(|name| connection.property(name).is_some()) {
            return Err(format!("'properties.{name}' is heeded by librdkafka only"));
        }
        let broker = Broker::any(&connection.servers, &access, Instant::now())?;
        if let Some(lacking) = protocol::missing(&mut Link::over(broker, settings.patience)?, &settings.client)? {
            return Err(lacking);
        }
        let shared = Shared {
            settings,
            access,
            servers: connection.servers.clone(),
            outage,
            state: Mutex::default(),
            changed: Condvar::new(),
            spare: Mutex::default(),
        };
        Ok(Arc::new(Fetcher { shared: Arc::new(shared) }))
    }

    /// Begins to fetch a partition.
    ///
    /// # Errors
    /// It is fetched already; a thread cannot be started.
    pub fn assign(self: &Arc<Self>, position: &Position, waker: Waker) -> Result<Feed, ConnectError> {
        let wrong = |why: String| ConnectError::new(format!("{}: beginning to read it: {why}", position.split()));
        let partition = (position.topic.clone(), position.partition);
        let slot = Arc::new(Slot::new(partition.clone(), waker));
        let assigned = Assigned {
            slot: slot.clone(),
            next: position.offset,
            leader: None,
            epoch: -1,
            read_epoch: -1,
            doubtful: false,
            again: Instant::now(),
            missing: None,
            leaderless: None,
            over: false,
            end: None,
        };
        let mut state = self.shared.state();
        if state.partitions.contains_key(&partition) {
            return Err(wrong("it is being read".into()));
        }
        if !state.looking {
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new().name("kafka-leaders".into()).spawn(move || leaders::run(&shared));
            thread.map_err(|e| wrong(format!("starting a thread: {e}")))?;
            state.looking = true;
        }
        state.partitions.insert(partition, assigned);
        state.comings += 1;
        drop(state);
        self.shared.changed();
        Ok(Feed::new(self.clone(), slot, position.offset, position.stop.unwrap_or(i64::MAX)))
    }

    /// Ends fetching a partition.
    pub fn unassign(&self, slot: &Arc<Slot>) {
        let mut state = self.shared.state();
        if state.of(slot).is_some() {
            state.partitions.remove(&slot.partition);
        }
        drop(state);
        self.shared.changed();
    }

    /// There is room where there was none.
    pub fn room(&self) {
        // Whoever looked before waits now, or sees the room.
        drop(self.shared.state());
        self.shared.changed();
    }

    /// Memory that is no longer needed.
    pub fn give_back(&self, buffer: Vec<u8>) {
        self.shared.give_back(buffer);
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.stopped = true;
        for socket in state.nodes.values().filter_map(|node| node.socket.as_ref()) {
            // It fails where the connection is gone already.
            let _ = socket.shutdown(Shutdown::Both);
        }
        drop(state);
        self.shared.changed();
    }
}

/// Starts a thread that fetches from a broker.
pub fn start_broker(shared: &Arc<Shared>, node: i32, address: String) -> std::io::Result<()> {
    let shared = shared.clone();
    let thread = std::thread::Builder::new().name("kafka-fetch".into());
    thread.spawn(move || broker::run(&shared, node, &address)).map(|_| ())
}

#[cfg(test)]
mod tests;
