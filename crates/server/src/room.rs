//! Room for what publishers send: the bytes of blocks that are on their way, or wait for a job to take them, are counted for all
//! peers together before they are kept. What does not live here: bounds of one block ([`crate::limits`]), and of rows that a
//! stream has taken.
//!
//! There is a part that is everybody's, and for each stream one block more. Publishers may wait long for the job that reads
//! their stream; without it they could keep those of another stream waiting, for whose rows perhaps that very job waits. Those
//! that have not said yet for which stream they come have a block of their own as well.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::error::ApiError;
use crate::limits::{Limits, MESSAGE_EXTRA_BYTES};

/// Room is counted in so many bytes, so that a number of 32 bits says 4 TB.
const UNIT_BYTES: usize = 1 << 10;

/// The stream of those that have not named one.
const NO_STREAM: &str = "";

/// The least that is taken at once, bytes: small bodies come in one piece.
const ROOM_BYTES_MIN: usize = 4 << 10;

/// So many units hold these bytes.
fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX)
}

/// The room of a server.
pub struct Pending {
    limits: Limits,
    all: Arc<Semaphore>,
    /// What streams have beside it, by their names: as many as jobs have made.
    own: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl Pending {
    /// Empty room, as large as the limits say.
    pub fn new(limits: Limits) -> Self {
        Pending { limits, all: Arc::new(Semaphore::new(units(limits.pending_bytes) as usize)), own: Mutex::default() }
    }

    /// A share that holds nothing yet, for a publisher whose stream is not known.
    pub(crate) fn room(self: &Arc<Self>) -> Room {
        Room { pending: self.clone(), own: self.own(NO_STREAM), held: Vec::new(), units: 0 }
    }

    /// Bytes that are taken up now.
    pub(crate) fn bytes(&self) -> u64 {
        let taken = |of: u32, room: &Semaphore| u64::from(of).saturating_sub(room.available_permits() as u64);
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let own: u64 = own.values().map(|room| taken(self.block_units(), room)).sum();
        (own + taken(units(self.limits.pending_bytes), &self.all)) * UNIT_BYTES as u64
    }

    /// The largest block.
    fn block_units(&self) -> u32 {
        units(self.limits.block_bytes.saturating_add(MESSAGE_EXTRA_BYTES))
    }

    fn own(&self, stream: &str) -> Arc<Semaphore> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(room) = own.get(stream) {
            return room.clone();
        }
        own.entry(stream.to_string()).or_insert_with(|| Arc::new(Semaphore::new(self.block_units() as usize))).clone()
    }
}

/// The share of one publisher; given back when it is dropped.
pub(crate) struct Room {
    pending: Arc<Pending>,
    /// What its stream has beside everybody's.
    own: Arc<Semaphore>,
    held: Vec<OwnedSemaphorePermit>,
    /// How much that is.
    units: u32,
}

impl Room {
    /// The publisher's stream is known now.
    pub fn of_stream(&mut self, stream: &str) {
        self.own = self.pending.own(stream);
    }

    /// What is missing to so many bytes. Whatever is larger than all there is takes all of it.
    fn missing(&self, bytes: usize) -> u32 {
        let most = units(self.pending.limits.pending_bytes).max(self.pending.block_units());
        units(bytes).min(most).saturating_sub(self.units)
    }

    /// Makes it `bytes` at least, if that is there.
    pub fn try_grow(&mut self, bytes: usize) -> bool {
        let missing = self.missing(bytes);
        if missing == 0 {
            return true;
        }
        let more = self.pending.all.clone().try_acquire_many_owned(missing);
        match more.or_else(|_| self.own.clone().try_acquire_many_owned(missing)) {
            Ok(more) => self.keep(more),
            Err(_) => return false,
        }
        true
    }

    /// What is missing to `bytes`, when it is there, for [`Room::keep`]. Who waits for it without an end must hold nothing.
    pub fn more(&self, bytes: usize) -> BoxFuture<'static, OwnedSemaphorePermit> {
        let (all, own, missing) = (self.pending.all.clone(), self.own.clone(), self.missing(bytes));
        async move {
            let more = tokio::select! {
                more = all.acquire_many_owned(missing) => more,
                more = own.acquire_many_owned(missing) => more,
            };
            more.expect("room is never closed")
        }
        .boxed()
    }

    /// Adds what was waited for.
    pub fn keep(&mut self, more: OwnedSemaphorePermit) {
        self.units += more.num_permits() as u32;
        self.held.push(more);
    }

    /// Makes it `bytes` at least, and a little more, so that a body that grows asks seldom: twice as much each time, never more
    /// than a block. Waits as long as the limits say; whoever gets none must give back what it has, lest all wait for each other.
    ///
    /// # Errors
    /// 503: others have all of it.
    pub async fn grow(&mut self, bytes: usize) -> Result<(), ApiError> {
        if self.missing(bytes) == 0 {
            return Ok(());
        }
        let limits = self.pending.limits;
        let most = limits.block_bytes.max(bytes);
        let wanted = bytes.checked_next_power_of_two().unwrap_or(bytes).max(ROOM_BYTES_MIN).min(most);
        if self.try_grow(wanted) {
            return Ok(());
        }
        let more = timeout(limits.room_patience, self.more(wanted)).await.map_err(|_| full(&limits))?;
        self.keep(more);
        Ok(())
    }

    /// Gives all of it back.
    pub fn empty(&mut self) {
        self.held.clear();
        self.units = 0;
    }
}

fn full(limits: &Limits) -> ApiError {
    ApiError::unavailable(format!(
        "publishers have sent as much as the server keeps ({} MB) until their jobs take it, for {} s now",
        limits.pending_bytes >> 20,
        limits.room_patience.as_secs_f32()
    ))
    .with_help("nothing of the body was taken; send it again later, or raise --max-pending-bytes")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn pending() -> Arc<Pending> {
        let patience = Duration::from_millis(1);
        Arc::new(Pending::new(Limits { block_bytes: 1 << 20, pending_bytes: 4 << 20, room_patience: patience, ..Limits::default() }))
    }

    #[tokio::test]
    async fn what_is_taken_is_given_back() {
        let pending = pending();
        // What those without a stream have beside the rest.
        let mut beside = pending.room();
        beside.keep(beside.own.clone().try_acquire_many_owned(pending.block_units()).unwrap());
        let beside_bytes = pending.bytes();
        assert_eq!(beside_bytes, 2 << 20);
        let mut room = pending.room();
        room.grow(1).await.unwrap();
        assert_eq!(pending.bytes() - beside_bytes, 4 << 10);
        room.grow(5000).await.unwrap();
        room.grow(4000).await.unwrap();
        assert_eq!(pending.bytes() - beside_bytes, 8 << 10);
        room.empty();
        assert_eq!(pending.bytes(), beside_bytes);
        assert!(room.try_grow(3 << 20));
        let mut other = pending.room();
        let error = other.grow(2 << 20).await.unwrap_err();
        assert_eq!(error.status(), 503);
        assert!(error.to_string().contains("(4 MB)") && error.to_string().contains("--max-pending-bytes"), "{error}");
        let more = other.more(2 << 20);
        drop(room);
        other.keep(more.await);
        assert_eq!(pending.bytes() - beside_bytes, 2 << 20);
        drop((other, beside));
        assert_eq!(pending.bytes(), 0);
    }

    #[tokio::test]
    async fn no_stream_waits_for_another() {
        let pending = pending();
        let mut slow = pending.room();
        slow.of_stream("slow");
        assert!(slow.try_grow(4 << 20));
        for stream in ["a", "b"] {
            let mut room = pending.room();
            room.of_stream(stream);
            let mut second = pending.room();
            second.of_stream(stream);
            room.grow(1 << 20).await.unwrap();
            second.grow(1 << 20).await.unwrap();
            assert_eq!(pending.bytes(), 6 << 20);
            let mut third = pending.room();
            third.of_stream(stream);
            assert!(third.grow(1 << 20).await.is_err());
        }
    }
}
