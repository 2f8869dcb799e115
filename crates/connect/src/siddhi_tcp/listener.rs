//! The listener that all tables of an address share, in whatever job they are: the first opens it, the
//! last closes it. What its connections do is in [`super::connection`].

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::channel::Channel;
use super::{SiddhiOptions, connection};
use crate::socket::alive;
use crate::socket::peer::{Acceptor, Peers, spawn};
use crate::socket::room::Room;
use crate::{ConnectError, listeners};

/// How long a frame waits for its table, if a job is just being started that has one for its channel.
const ANNOUNCED_WAIT: Duration = Duration::from_secs(10);
/// How often it looks.
const ANNOUNCED_CHECK: Duration = Duration::from_millis(1);
/// How long nothing may come of a frame that has begun. Between frames a connection may be silent for as long as it likes.
const FRAME_SILENCE_MAX: Duration = Duration::from_secs(60);
/// Names of unknown channels that are counted apart.
const UNKNOWN_NAMES_MAX: usize = 1000;

/// Every open listener of the process, and how many tables use it.
static LISTENERS: Mutex<BTreeMap<SocketAddr, Listener>> = Mutex::new(BTreeMap::new());
/// Channels for which there is a table whose reader has not been opened yet.
static ANNOUNCED: Mutex<BTreeMap<(SocketAddr, String), usize>> = Mutex::new(BTreeMap::new());
/// Frames by channels that no table read.
static UNKNOWN: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Frames that came for channels that no table read, since the process began: `host:port/channel`
/// and their number.
pub fn unknown_channels() -> Vec<(String, u64)> {
    lock(&UNKNOWN).iter().map(|(name, frames)| (name.clone(), *frames)).collect()
}

struct Listener {
    shared: Arc<Shared>,
    users: usize,
    /// Ends with the listener, and with it its connections.
    _acceptor: Acceptor,
}

/// What a listener's connections share with its tables.
pub struct Shared {
    address: SocketAddr,
    channels: Mutex<BTreeMap<Vec<u8>, Arc<Channel>>>,
    peers: Arc<Peers>,
    frame_bytes_max: AtomicUsize,
    buffer_bytes_max: AtomicUsize,
    frame_silence_ms_max: AtomicU64,
    /// For frames that are not complete.
    pub room: Arc<Room>,
}

impl Shared {
    /// The address that is listened on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How long nothing may come of a frame that has begun.
    pub fn frame_silence_max(&self) -> Duration {
        Duration::from_millis(self.frame_silence_ms_max.load(Ordering::Relaxed))
    }

    /// Another such time, for connections that come from now on.
    #[cfg(test)]
    pub(super) fn set_frame_silence_max(&self, limit: Duration) {
        self.frame_silence_ms_max.store(limit.as_millis() as u64, Ordering::Relaxed);
    }

    /// The largest frame that a table of this listener allows.
    pub fn frame_bytes_max(&self) -> usize {
        self.frame_bytes_max.load(Ordering::Relaxed)
    }

    /// How much of a connection is read at once.
    pub fn buffer_bytes_max(&self) -> usize {
        self.buffer_bytes_max.load(Ordering::Relaxed)
    }

    /// Whether the listener is being closed.
    pub fn is_stopped(&self) -> bool {
        self.peers.is_stopped()
    }

    /// The channel of this name, if a table reads it.
    pub fn channel(&self, name: &[u8]) -> Option<Arc<Channel>> {
        lock(&self.channels).get(name).cloned()
    }

    /// A channel of which `wanted` is true.
    pub fn find(&self, wanted: impl Fn(&Channel) -> bool) -> Option<Arc<Channel>> {
        lock(&self.channels).values().find(|c| wanted(c)).cloned()
    }

    /// Whether a job is being started that has a table for this channel.
    pub fn is_announced(&self, name: &[u8]) -> bool {
        let Ok(name) = std::str::from_utf8(name) else { return false };
        lock(&ANNOUNCED).contains_key(&(self.address, name.to_string()))
    }

    /// Waits for the table of a channel that is announced.
    pub fn wait_for(&self, name: &[u8]) -> Option<Arc<Channel>> {
        let end = Instant::now() + ANNOUNCED_WAIT;
        loop {
            // In this order: a table withdraws its announcement once it is here.
            let announced = self.is_announced(name);
            let channel = self.channel(name);
            if channel.is_some() || !announced || self.is_stopped() || Instant::now() > end {
                return channel;
            }
            thread::sleep(ANNOUNCED_CHECK);
        }
    }

    /// Counts a frame that no table reads.
    pub fn count_unknown(&self, name: &[u8]) {
        let mut unknown = lock(&UNKNOWN);
        let mut name = format!("{}/{}", self.address, String::from_utf8_lossy(name));
        if unknown.len() >= UNKNOWN_NAMES_MAX && !unknown.contains_key(&name) {
            name = format!("{}/…", self.address);
        }
        *unknown.entry(name).or_default() += 1;
    }
}

/// The use of a listener by one table.
pub struct Lease {
    shared: Arc<Shared>,
}

/// The listener at `address`, opened if it is not.
///
/// # Errors
/// The address is taken by somebody else or not ours.
pub fn lease(address: SocketAddr, options: &SiddhiOptions) -> Result<Lease, ConnectError> {
    lease_with(address, options, || TcpListener::bind(address))
}

/// As [`lease`], with another way to open it.
pub(super) fn lease_with(
    address: SocketAddr,
    options: &SiddhiOptions,
    bind: impl FnOnce() -> io::Result<TcpListener>,
) -> Result<Lease, ConnectError> {
    let mut all = lock(&LISTENERS);
    let listener = match all.entry(address) {
        Entry::Occupied(running) => running.into_mut(),
        Entry::Vacant(none) => {
            let failed = |e| ConnectError::new(format!("listening on {address}: {e}; choose another 'port' or 'hostname'"));
            let socket = bind().map_err(failed)?;
            none.insert(start(address, socket, options)?)
        }
    };
    listener.users += 1;
    let shared = listener.shared.clone();
    // Which table a frame is for is known only when all of it is there: the largest bound counts.
    shared.frame_bytes_max.fetch_max(options.frame_max.0 as usize, Ordering::Relaxed);
    shared.buffer_bytes_max.fetch_max(options.receive_buffer.0 as usize, Ordering::Relaxed);
    shared.room.fit(room_bytes(options));
    Ok(Lease { shared })
}

/// What the connections of a listener hold together, at least: one that keeps sending and one with the largest frame, or what
/// may wait for the job.
fn room_bytes(options: &SiddhiOptions) -> usize {
    let twice = options.frame_max.0.max(options.receive_buffer.0) * 2;
    twice.max(options.source_queue.0) as usize
}

fn start(address: SocketAddr, socket: TcpListener, options: &SiddhiOptions) -> Result<Listener, ConnectError> {
    let peers = Arc::new(Peers::default());
    let shared = Arc::new(Shared {
        address,
        channels: Mutex::default(),
        peers: peers.clone(),
        // Known before anybody connects: by a bound of nothing the first frame would be too long.
        frame_bytes_max: AtomicUsize::new(options.frame_max.0 as usize),
        buffer_bytes_max: AtomicUsize::new(options.receive_buffer.0 as usize),
        frame_silence_ms_max: AtomicU64::new(FRAME_SILENCE_MAX.as_millis() as u64),
        room: Arc::new(Room::new(peers.clone(), room_bytes(options))),
    });
    let serving = shared.clone();
    let acceptor = Acceptor::start(socket, peers, options.connections_max, move |peer, stream, place| {
        let own = serving.clone();
        // Fails only if the peer is gone already, which is found when it is read.
        let _ = alive::acknowledging(&stream);
        let serve = move || {
            connection::serve(&own, stream, &place);
            own.peers.remove(peer);
        };
        if spawn("tidemill-siddhi", serve).is_err() {
            // Without a thread there is nobody to read: the connection closes.
            listeners::turned_away(serving.address);
            serving.peers.remove(peer);
        }
    })?;
    let acceptor = acceptor.cutting_silent(options.idle_timeout)?;
    Ok(Listener { shared, users: 0, _acceptor: acceptor })
}

impl Lease {
    /// Makes a channel known to the connections.
    ///
    /// # Errors
    /// Another table reads a channel of this name.
    pub fn register(&self, channel: Channel) -> Result<Arc<Channel>, ConnectError> {
        let mut channels = lock(&self.shared.channels);
        if let Some(other) = channels.get(channel.name().as_bytes()) {
            return Err(ConnectError::new(format!(
                "the channel '{}' of {} is read by {} already; a channel has one reader, so choose another 'channel' or 'port'",
                channel.name(),
                self.shared.address,
                other.owner()
            )));
        }
        let channel = Arc::new(channel);
        channels.insert(channel.name().as_bytes().to_vec(), channel.clone());
        Ok(channel)
    }

    /// What the connections see of the listener.
    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Ends a channel.
    pub fn withdraw(&self, channel: &Channel) {
        lock(&self.shared.channels).remove(channel.name().as_bytes());
        channel.close();
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // The lock is held until the port is free again, so that whoever opens it next finds it so.
        let mut all = lock(&LISTENERS);
        let listener = all.get_mut(&self.shared.address).expect("open as long as there is a lease");
        listener.users -= 1;
        if listener.users == 0 {
            all.remove(&self.shared.address);
        }
    }
}

/// Says that there will be a reader of a channel, from the planning of a job to the opening of the
/// reader: a client that connects as soon as the first table of the job listens shall not lose what it
/// sends to the second.
pub struct Announcement {
    key: (SocketAddr, String),
}

impl Announcement {
    /// For a channel at an address.
    pub fn new(address: SocketAddr, channel: &str) -> Self {
        let key = (address, channel.to_string());
        *lock(&ANNOUNCED).entry(key.clone()).or_default() += 1;
        Announcement { key }
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        let mut announced = lock(&ANNOUNCED);
        if let Some(count) = announced.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                announced.remove(&self.key);
            }
        }
    }
}
