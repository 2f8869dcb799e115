//! Where the thread that follows a stream hands entries to the worker: a queue that is bounded in bytes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use tidemill_connect::{ConnectError, Waker};
use tidemill_format::message::Place;

use crate::connection::Cutter;
use crate::id::EntryId;
use crate::lock;

/// How long who waits for room sleeps at most: whoever stops it wakes it, too.
const LOOK: Duration = Duration::from_millis(500);

/// An entry of a [`Piece`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its ID.
    pub id: EntryId,
    /// The first of its texts among those of the piece: names and values of its fields, in turn.
    pub from: usize,
    /// Behind its last.
    pub to: usize,
}

/// Entries that arrived together.
#[derive(Debug, Default)]
pub struct Piece {
    /// All names and values, one behind the other.
    pub bytes: Vec<u8>,
    /// Where each of them lies.
    pub texts: Vec<Place>,
    /// The entries, in order.
    pub entries: Vec<Entry>,
    /// How many of the entries that were ever added to the stream are read or not wanted before these, if that is known.
    pub read: Option<u64>,
    /// When they arrived.
    pub arrival_ns: u64,
}

impl Piece {
    /// Bytes of memory, about.
    pub fn memory(&self) -> usize {
        self.bytes.len() + self.texts.len() * size_of::<Place>() + self.entries.len() * size_of::<Entry>()
    }

    /// A text.
    pub fn text(&self, number: usize) -> &[u8] {
        self.texts[number].of(&self.bytes).unwrap_or_default()
    }
}

/// What the worker finds.
pub enum Came {
    /// Entries.
    Piece(Piece),
    /// Nothing yet.
    Nothing,
    /// The end of a bounded scan.
    End,
    /// Why there will be nothing more.
    Failed(ConnectError),
}

#[derive(Default)]
struct State {
    pieces: VecDeque<Piece>,
    bytes: usize,
    /// How it has ended.
    end: Option<Result<(), ConnectError>>,
    /// Of the connection that the thread waits at.
    cutter: Option<Cutter>,
}

/// See the module.
pub struct Feed {
    state: Mutex<State>,
    room: Condvar,
    stopped: AtomicBool,
    /// Bytes that may wait.
    bytes_max: usize,
    waker: Waker,
}

impl Feed {
    /// A queue of at most so many bytes, and one piece more; `waker` is told whenever something comes.
    pub fn new(bytes_max: usize, waker: Waker) -> Self {
        Feed { state: Mutex::default(), room: Condvar::new(), stopped: AtomicBool::new(false), bytes_max, waker }
    }

    /// Whether nobody reads any more.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Ends the thread, which may wait for the server or for room.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        let state = lock(&self.state);
        if let Some(cutter) = &state.cutter {
            cutter.cut();
        }
        drop(state);
        self.room.notify_all();
    }

    /// The thread's connection, so that it can be cut; none while it has none.
    pub fn lend(&self, cutter: Option<Cutter>) {
        let mut state = lock(&self.state);
        state.cutter = cutter;
        // Who stopped it a moment ago has seen the one before.
        if let Some(cutter) = state.cutter.as_ref().filter(|_| self.is_stopped()) {
            cutter.cut();
        }
    }

    /// Hands entries over; waits while there is no room. False if nobody reads any more.
    pub fn give(&self, piece: Piece) -> bool {
        let mut state = lock(&self.state);
        while state.bytes >= self.bytes_max && !self.is_stopped() {
            state = self.room.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        if self.is_stopped() {
            return false;
        }
        state.bytes += piece.memory();
        state.pieces.push_back(piece);
        drop(state);
        self.waker.wake();
        true
    }

    /// Nothing more comes.
    pub fn finish(&self, end: Result<(), ConnectError>) {
        let mut state = lock(&self.state);
        state.end = Some(end);
        state.cutter = None;
        drop(state);
        self.waker.wake();
    }

    /// What has come. An error is told once.
    pub fn take(&self) -> Came {
        let mut state = lock(&self.state);
        if let Some(piece) = state.pieces.pop_front() {
            state.bytes -= piece.memory();
            drop(state);
            self.room.notify_one();
            return Came::Piece(piece);
        }
        match state.end.take() {
            None => Came::Nothing,
            Some(Ok(())) => {
                state.end = Some(Ok(()));
                Came::End
            }
            Some(Err(error)) => Came::Failed(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn piece(bytes: usize) -> Piece {
        Piece { bytes: vec![b'x'; bytes], ..Piece::default() }
    }

    #[test]
    fn who_gives_more_than_there_is_room_for_waits_until_some_is_taken() {
        let feed = Arc::new(Feed::new(100, Waker::noop()));
        assert!(feed.give(piece(60)) && feed.give(piece(60)));
        let giving = feed.clone();
        let thread = std::thread::spawn(move || giving.give(piece(1)));
        assert!(matches!(feed.take(), Came::Piece(piece) if piece.bytes.len() == 60));
        assert!(thread.join().unwrap());
        feed.finish(Ok(()));
        assert!(matches!(feed.take(), Came::Piece(_)) && matches!(feed.take(), Came::Piece(_)));
        assert!(matches!(feed.take(), Came::End) && matches!(feed.take(), Came::End));
    }

    #[test]
    fn who_waits_for_room_is_stopped() {
        let feed = Arc::new(Feed::new(1, Waker::noop()));
        assert!(feed.give(piece(60)));
        let giving = feed.clone();
        let thread = std::thread::spawn(move || giving.give(piece(1)));
        feed.stop();
        assert!(!thread.join().unwrap());
    }
}
