//! Memory that the connections of a listener share: what they hold of messages that are not complete, together. Each of
//! them is bounded by itself, but thousands that all begin a large message and never end it would take all there is.
//!
//! Who finds no room waits and is not read meanwhile, as long as a job keeps the others waiting, and a little longer; then
//! it must go, since those who have the room may never need less.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::peer::Peers;

/// What all connections of a listener may hold together, bytes.
const ROOM_BYTES: usize = 256 << 20;
/// What a connection may hold without being counted, bytes: most never hold more, and cost no lock.
const UNCOUNTED_BYTES: usize = 64 << 10;
/// How long a connection waits for room that no job keeps from it.
const ROOM_WAIT: Duration = Duration::from_secs(10);
/// How often it looks whether a job does, and whether the listener is there.
const ROOM_CHECK: Duration = Duration::from_millis(100);

/// The memory. See the module.
pub struct Room {
    peers: Arc<Peers>,
    bytes_max: AtomicUsize,
    wait_ms_max: AtomicUsize,
    taken: Mutex<usize>,
    less_taken: Condvar,
}

impl Room {
    /// For a listener with these connections: so many bytes at least.
    pub fn new(peers: Arc<Peers>, bytes: usize) -> Self {
        Room {
            peers,
            bytes_max: AtomicUsize::new(bytes.max(ROOM_BYTES)),
            wait_ms_max: AtomicUsize::new(ROOM_WAIT.as_millis() as usize),
            taken: Mutex::new(0),
            less_taken: Condvar::new(),
        }
    }

    /// From now on so many bytes at least.
    pub fn fit(&self, bytes: usize) {
        self.bytes_max.fetch_max(bytes, Ordering::Relaxed);
    }

    /// How much all may hold together, bytes.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// How much they hold, bytes.
    pub fn taken(&self) -> usize {
        *self.lock()
    }

    /// For tests: another bound, and how long to wait for room.
    #[doc(hidden)]
    pub fn limit(&self, bytes_max: usize, wait: Duration) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
        self.wait_ms_max.store(wait.as_millis() as usize, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one connection has of the memory. Without a [`Room`] it may have any amount.
#[derive(Default)]
pub struct Share {
    room: Option<Arc<Room>>,
    /// What counts.
    bytes: usize,
}

impl Share {
    /// Nothing yet.
    pub fn new(room: &Arc<Room>) -> Self {
        Share { room: Some(room.clone()), bytes: 0 }
    }

    /// Makes it so many bytes; false if there is no room for more, and then it is what it was. Less always works.
    pub fn set(&mut self, bytes: usize) -> bool {
        let room_max = self.room.as_ref().map_or(usize::MAX, |room| room.bytes_max());
        self.set_within(bytes, room_max)
    }

    /// As [`Share::set`], of one half of the memory: for what only makes reading faster.
    pub fn set_spare(&mut self, bytes: usize) -> bool {
        let room_max = self.room.as_ref().map_or(usize::MAX, |room| room.bytes_max() / 2);
        self.set_within(bytes, room_max)
    }

    fn set_within(&mut self, bytes: usize, room_max: usize) -> bool {
        let bytes = if bytes > UNCOUNTED_BYTES { bytes } else { 0 };
        let Some(room) = self.room.as_ref().filter(|_| bytes != self.bytes) else { return true };
        let mut taken = room.lock();
        let others = taken.checked_sub(self.bytes).expect("every share is part of what is taken");
        if bytes > self.bytes && others.saturating_add(bytes) > room_max {
            return false;
        }
        *taken = others + bytes;
        drop(taken);
        if bytes < self.bytes {
            room.less_taken.notify_all();
        }
        self.bytes = bytes;
        true
    }

    /// Makes it so many bytes once there is room; false if there is none for long, in which the time does not count for which a
    /// job takes nothing (`is_held_up`), or if all connections are being closed.
    pub fn wait(&mut self, bytes: usize, is_held_up: impl Fn() -> bool) -> bool {
        let Some(room) = self.room.clone() else { return true };
        let wait_max = Duration::from_millis(room.wait_ms_max.load(Ordering::Relaxed) as u64);
        let mut since = Instant::now();
        loop {
            if self.set(bytes) {
                return true;
            }
            if is_held_up() {
                since = Instant::now();
            } else if since.elapsed() >= wait_max {
                return false;
            }
            if room.peers.is_stopped() {
                return false;
            }
            let taken = room.lock();
            // What has become free since it was asked for is found at the next look.
            drop(room.less_taken.wait_timeout(taken, ROOM_CHECK).unwrap_or_else(PoisonError::into_inner));
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests;
