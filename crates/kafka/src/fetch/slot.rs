//! What waits between a broker's thread and the reader of a partition. Its bound is kept by who fetches: no more is asked for
//! while there is enough ([`Slot::has_room`]).

use std::collections::VecDeque;
use std::sync::Mutex;

use tidemill_connect::Waker;

use super::pieces::Piece;
use crate::client::lock;
use crate::partitions::Partition;

/// Something for the reader.
#[derive(Debug)]
pub enum Event {
    /// Messages, at most so many.
    Piece(Piece, u64),
    /// Where nobody knew the next offset, or it was gone, what follows begins here.
    Begins(i64),
    /// There is nothing more up to this offset at the moment.
    End(i64),
    /// An error of the broker's, by its code, and what there is to say. Nothing follows.
    Failed(i16, String),
    /// What is there cannot be read here, and why. Nothing follows.
    Unspoken(String),
}

/// How much may wait for a reader.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// More is asked for while there are fewer bytes …
    pub bytes: usize,
    /// … and fewer messages.
    pub messages: u64,
}

/// A partition that is read.
pub struct Slot {
    /// Its topic and its number.
    pub partition: Partition,
    waker: Waker,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    events: VecDeque<Event>,
    bytes: usize,
    messages: u64,
    /// Somebody found no room.
    full: bool,
}

impl Slot {
    /// For a reader that `waker` wakes.
    pub fn new(partition: Partition, waker: Waker) -> Self {
        Slot { partition, waker, waiting: Mutex::default() }
    }

    /// Whether more is to be asked for. If not, [`Slot::take`] will say when it is.
    pub fn has_room(&self, room: &Room) -> bool {
        let mut waiting = lock(&self.waiting);
        waiting.full = waiting.bytes >= room.bytes || waiting.messages >= room.messages;
        !waiting.full
    }

    /// Hands something over.
    pub fn put(&self, event: Event) {
        let first = {
            let mut waiting = lock(&self.waiting);
            if let Event::Piece(piece, messages) = &event {
                // All of the memory that waits with it.
                waiting.bytes += piece.bytes.capacity();
                waiting.messages += messages;
            }
            waiting.events.push_back(event);
            waiting.events.len() == 1
        };
        if first {
            self.waker.wake();
        }
    }

    /// What waits longest, and whether there may be room now where there was none.
    pub fn take(&self) -> (Option<Event>, bool) {
        let mut waiting = lock(&self.waiting);
        let event = waiting.events.pop_front();
        let mut freed = false;
        if let Some(Event::Piece(piece, messages)) = &event {
            waiting.bytes -= piece.bytes.capacity();
            waiting.messages -= messages;
            freed = std::mem::take(&mut waiting.full);
        }
        (event, freed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn room_comes_and_goes_and_who_waits_is_told() {
        let woken = Arc::new(AtomicUsize::new(0));
        let counter = woken.clone();
        let slot = Slot::new(("t".into(), 0), Waker::new(move || _ = counter.fetch_add(1, Ordering::Relaxed)));
        let room = Room { bytes: 10, messages: 3 };
        let piece = |bytes: usize, messages| Event::Piece(Piece { bytes: vec![0; bytes], ..Piece::default() }, messages);
        slot.put(piece(9, 1));
        assert!(slot.has_room(&room));
        slot.put(piece(1, 1));
        assert!(!slot.has_room(&room));
        assert!(matches!(slot.take(), (Some(Event::Piece(..)), true)));
        assert!(matches!(slot.take(), (Some(Event::Piece(..)), false)));
        assert!(matches!(slot.take(), (None, false)));
        slot.put(piece(1, 3));
        assert!(!slot.has_room(&room), "as many messages");
        assert_eq!(woken.load(Ordering::Relaxed), 2, "once for each time that nothing waited");
    }
}
