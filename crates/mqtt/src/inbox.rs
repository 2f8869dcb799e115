//! Between the thread that follows a session and the reader: messages that wait for the job, bounded in bytes, and how far
//! the job has come with them.
//!
//! Messages are numbered in the order in which they come. The number of the last one given to the worker is the position of
//! the reader; so a checkpoint says up to which number messages can be acknowledged.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidemill_connect::{ConnectError, Waker};
use tidemill_format::message::Place;

/// What comes is put to what waits until there is so much of it, bytes: few messages at a time cost less together.
const PARCEL_BYTES: usize = 64 << 10;

/// A message.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its topic, in UTF-8.
    pub topic: Place,
    /// What it says; of one that is `cut` its beginning.
    pub payload: Place,
    /// Its quality.
    pub quality: u8,
    /// It was retained before there was the subscription.
    pub retained: bool,
    /// It is so long that it is not taken: the bytes of its packet.
    pub cut: Option<u32>,
}

/// Messages that came together, one behind the other.
#[derive(Debug, Default)]
pub struct Parcel {
    /// What their places are in.
    pub bytes: Vec<u8>,
    /// The messages.
    pub entries: Vec<Entry>,
    /// The number of the first of them.
    pub first: u64,
    /// When the first of them came.
    pub arrival_ns: u64,
}

impl Parcel {
    /// Adds what came later.
    fn append(&mut self, later: &Parcel) {
        let by = self.bytes.len() as u32;
        let moved = |place: Place| Place { from: place.from + by, ..place };
        self.bytes.extend_from_slice(&later.bytes);
        self.entries.extend(later.entries.iter().map(|e| Entry { topic: moved(e.topic), payload: moved(e.payload), ..*e }));
    }
}

#[derive(Default)]
struct State {
    parcels: VecDeque<Parcel>,
    /// Of all of them.
    bytes: u64,
    failure: Option<ConnectError>,
    /// The reader is gone.
    closed: bool,
    /// The source is gone: no checkpoint follows.
    ended: bool,
    /// The thread is at its end.
    done: bool,
}

/// What the thread, the reader and the source share.
pub struct Inbox {
    state: Mutex<State>,
    /// Something of the state has changed that the thread, or who waits for its end, wants to know.
    changed: Condvar,
    waker: Waker,
    bytes_max: u64,
    /// The number of the last message given to the worker.
    taken: AtomicU64,
    /// The number of the last message that a checkpoint holds.
    committed: AtomicU64,
}

impl Inbox {
    /// An empty one of so many bytes, whose messages are numbered from behind `last`. The waker is called when there is one.
    pub fn new(bytes_max: u64, last: u64, waker: Waker) -> Self {
        Inbox {
            state: Mutex::default(),
            changed: Condvar::new(),
            waker,
            bytes_max,
            taken: AtomicU64::new(last),
            committed: AtomicU64::new(last),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the thread: messages have come.
    pub fn push(&self, parcel: Parcel) {
        let mut state = self.lock();
        if state.closed {
            return;
        }
        state.bytes += parcel.bytes.len() as u64;
        match state.parcels.back_mut() {
            Some(last) if last.bytes.len() + parcel.bytes.len() <= PARCEL_BYTES => last.append(&parcel),
            _ => state.parcels.push_back(parcel),
        }
        drop(state);
        self.waker.wake();
    }

    /// For the thread: whether more may be read.
    pub fn has_room(&self) -> bool {
        let state = self.lock();
        !state.closed && state.bytes < self.bytes_max
    }

    /// For the thread: waits for room, or for the end, that long at most.
    pub fn wait_for_room(&self, time: Duration) {
        let state = self.lock();
        let full = |state: &mut State| !state.ended && (state.closed || state.bytes >= self.bytes_max);
        drop(self.changed.wait_timeout_while(state, time, full).unwrap_or_else(PoisonError::into_inner));
    }

    /// For the thread: it has to give up.
    pub fn fail(&self, error: ConnectError) {
        self.lock().failure = Some(error);
        self.waker.wake();
    }

    /// For the thread: it is at its end.
    pub fn done(&self) {
        self.lock().done = true;
        self.changed.notify_all();
    }

    /// For the thread: whether the source is gone.
    pub fn has_ended(&self) -> bool {
        self.lock().ended
    }

    /// For the thread: the number of the last message that a checkpoint holds.
    pub fn committed(&self) -> u64 {
        self.committed.load(Ordering::Acquire)
    }

    /// For the reader: the next messages.
    ///
    /// # Errors
    /// Why none will follow.
    pub fn pop(&self) -> Result<Option<Parcel>, ConnectError> {
        let mut state = self.lock();
        if let Some(parcel) = state.parcels.pop_front() {
            return Ok(Some(parcel));
        }
        state.failure.take().map_or(Ok(None), Err)
    }

    /// For the reader: a parcel of so many bytes is used up.
    pub fn release(&self, bytes: usize) {
        self.lock().bytes -= bytes as u64;
        self.changed.notify_all();
    }

    /// For the reader: the messages up to this number are given to the worker.
    pub fn taken(&self, number: u64) {
        self.taken.store(number, Ordering::Release);
    }

    /// For the reader, which is gone: what waits for it is given up. What it has given may yet be committed.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.parcels.clear();
    }

    /// How many messages the worker has that no checkpoint holds.
    pub fn uncommitted(&self) -> u64 {
        self.taken.load(Ordering::Acquire).saturating_sub(self.committed())
    }

    /// A checkpoint holds the messages up to this number.
    pub fn commit(&self, number: u64) {
        self.committed.fetch_max(number, Ordering::AcqRel);
    }

    /// No checkpoint follows: the thread acknowledges what there is and ends, for which it has that long.
    pub fn end(&self, patience: Duration) {
        let mut state = self.lock();
        (state.closed, state.ended) = (true, true);
        state.parcels.clear();
        self.changed.notify_all();
        let until = Instant::now() + patience;
        while !state.done {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parcel(first: u64, payloads: &[&str]) -> Parcel {
        let mut parcel = Parcel { first, arrival_ns: first, ..Parcel::default() };
        for payload in payloads {
            let from = parcel.bytes.len() as u32;
            parcel.bytes.extend_from_slice(payload.as_bytes());
            let payload = Place { from, length: payload.len() as i32 };
            parcel.entries.push(Entry { topic: payload, payload, quality: 1, retained: false, cut: None });
        }
        parcel
    }

    #[test]
    fn few_messages_go_together_up_to_the_bound() {
        let inbox = Inbox::new(10, 4, Waker::noop());
        assert!(inbox.pop().unwrap().is_none() && inbox.has_room());
        inbox.push(parcel(5, &["ab", "c"]));
        inbox.push(parcel(7, &["defghijk"]));
        assert!(!inbox.has_room());
        let both = inbox.pop().unwrap().unwrap();
        let texts: Vec<&[u8]> = both.entries.iter().map(|e| e.payload.of(&both.bytes).unwrap()).collect();
        assert_eq!(texts, [&b"ab"[..], b"c", b"defghijk"]);
        assert_eq!((both.first, both.arrival_ns), (5, 5));
        // Until they are used they take their room.
        assert!(!inbox.has_room());
        inbox.release(both.bytes.len());
        assert!(inbox.has_room());
    }

    #[test]
    fn an_error_comes_behind_the_messages() {
        let inbox = Inbox::new(10, 0, Waker::noop());
        inbox.push(parcel(1, &["a"]));
        inbox.fail(ConnectError::new("gone"));
        assert!(inbox.pop().unwrap().is_some());
        assert_eq!(inbox.pop().unwrap_err().to_string(), "gone");
    }

    #[test]
    fn checkpoints_settle_what_was_given() {
        let inbox = Inbox::new(10, 4, Waker::noop());
        inbox.taken(9);
        assert_eq!((inbox.uncommitted(), inbox.committed()), (5, 4));
        inbox.commit(7);
        // What an earlier checkpoint said.
        inbox.commit(6);
        assert_eq!((inbox.uncommitted(), inbox.committed()), (2, 7));
    }

    #[test]
    fn who_is_gone_takes_nothing() {
        let inbox = Inbox::new(10, 0, Waker::noop());
        inbox.close();
        inbox.push(parcel(1, &["a"]));
        assert!(!inbox.has_room() && inbox.pop().unwrap().is_none());
        inbox.done();
        inbox.end(Duration::from_secs(60));
        assert!(inbox.has_ended());
    }
}
