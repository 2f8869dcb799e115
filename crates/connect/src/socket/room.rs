//! Memory that the connections of a listener share: what they hold of messages that are not complete, together. Each of
//! them is bounded by itself, but thousands that all begin a large message and never end it would take all there is.
//!
//! Who finds no room waits and is not read meanwhile, as long as a job keeps those waiting whose room it needs, and a little
//! longer; then it must go, since those who have the room may never need less: they may be waiting for each other.
//!
//! Buffers that only make reading faster are kept for as long as their connection lives, so they are counted apart: they
//! take nothing from messages.

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
    /// Of what is taken, what connections hold that wait for a job to take their rows.
    held_up: AtomicUsize,
    /// What buffers have that only make reading faster.
    spare: AtomicUsize,
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
            held_up: AtomicUsize::new(0),
            spare: AtomicUsize::new(0),
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
    /// What counts apart.
    spare: usize,
}

/// See [`Share::held_up`].
#[must_use = "it says so for as long as it lives"]
pub struct HeldUp<'a>(&'a Share);

impl Share {
    /// Nothing yet.
    pub fn new(room: &Arc<Room>) -> Self {
        Share { room: Some(room.clone()), ..Share::default() }
    }

    /// Makes it so many bytes; false if there is no room for more, and then it is what it was. Less always works.
    pub fn set(&mut self, bytes: usize) -> bool {
        let bytes = counted(bytes);
        let Some(room) = self.room.as_ref().filter(|_| bytes != self.bytes) else { return true };
        let mut taken = room.lock();
        let others = taken.checked_sub(self.bytes).expect("every share is part of what is taken");
        if bytes > self.bytes && others.saturating_add(bytes) > room.bytes_max() {
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

    /// Makes the part of it that only makes reading faster so many bytes; false if there is no room for more, and then it is what
    /// it was. All such parts have as much again as half of the memory. Never waits for a lock: a connection asks
    /// at each read that fills its buffer, also where there is no more room.
    pub fn set_spare(&mut self, bytes: usize) -> bool {
        let Some(room) = &self.room else { return true };
        let bytes = counted(bytes);
        if bytes < self.spare {
            room.spare.fetch_sub(self.spare - bytes, Ordering::Relaxed);
        } else if bytes > self.spare {
            let (more, spare_max) = (bytes - self.spare, room.bytes_max() / 2);
            let grown = |spare: usize| Some(spare + more).filter(|all| *all <= spare_max);
            if room.spare.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_err() {
                return false;
            }
        }
        self.spare = bytes;
        true
    }

    /// Whether anything of it counts, what only makes reading faster left out.
    pub fn is_counted(&self) -> bool {
        self.bytes > 0
    }

    /// Says for as long as the answer lives that a job keeps this connection waiting, so that what it holds becomes free once the
    /// job goes on.
    pub fn held_up(&self) -> HeldUp<'_> {
        if let Some(room) = &self.room {
            room.held_up.fetch_add(self.bytes, Ordering::Relaxed);
        }
        HeldUp(self)
    }

    /// Makes it so many bytes once there is room; false if there is none for long, in which the time does not count for which jobs
    /// keep so much waiting that it would be enough, or if all connections are being closed.
    pub fn wait(&mut self, bytes: usize) -> bool {
        let Some(room) = self.room.clone() else { return true };
        let wait_max = Duration::from_millis(room.wait_ms_max.load(Ordering::Relaxed) as u64);
        let mut since = Instant::now();
        loop {
            if self.set(bytes) {
                return true;
            }
            if self.waits_for_jobs(&room, bytes) {
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

    /// Whether there would be room for so many bytes if no job kept others waiting.
    fn waits_for_jobs(&self, room: &Room, bytes: usize) -> bool {
        let others = room.taken() - self.bytes;
        let kept = others.saturating_sub(room.held_up.load(Ordering::Relaxed));
        kept.saturating_add(counted(bytes)) <= room.bytes_max()
    }
}

/// Of so many bytes, those that count.
fn counted(bytes: usize) -> usize {
    if bytes > UNCOUNTED_BYTES { bytes } else { 0 }
}

impl Drop for HeldUp<'_> {
    fn drop(&mut self) {
        if let Some(room) = &self.0.room {
            // What it was: the share is borrowed.
            room.held_up.fetch_sub(self.0.bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
        self.set_spare(0);
    }
}

#[cfg(test)]
mod tests;
