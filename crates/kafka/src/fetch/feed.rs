//! The reader's end of a partition that we fetch ourselves.

use std::sync::Arc;

use super::fetcher::Fetcher;
use super::pieces::{Fetched, Given, Piece, Pieces};
use super::slot::{Event, Slot};

/// Messages given out at once, at most: their columns, and those that become of them, stay in the processor's second cache.
const MESSAGES_MAX: usize = 4096;

/// What came.
#[derive(Debug)]
pub enum Came {
    /// Nothing at the moment.
    Nothing,
    /// Maybe messages, which [`Feed::messages`] has, and how far they go.
    Messages(Given),
    /// Where nobody knew the next offset, or it was gone, what follows begins here.
    Begins(i64),
    /// There is nothing more up to this offset at the moment.
    End(i64),
    /// A broker's error by its code.
    Failed(i16, String),
    /// From the offset that was reached on somebody else has to read, and why.
    Unspoken(String),
}

/// Messages of a partition. Dropped, it is no longer fetched.
pub struct Feed {
    fetcher: Arc<Fetcher>,
    slot: Arc<Slot>,
    pieces: Pieces,
    next: i64,
    stop: i64,
}

impl Feed {
    /// From `next` on, up to `stop`.
    pub fn new(fetcher: Arc<Fetcher>, slot: Arc<Slot>, next: i64, stop: i64) -> Self {
        Feed { fetcher, slot, pieces: Pieces::default(), next, stop }
    }

    /// Reads on, at most so many messages.
    pub fn read(&mut self, most: usize) -> Came {
        loop {
            if !self.pieces.done() {
                let given = self.pieces.read(most.clamp(1, MESSAGES_MAX), self.next, self.stop);
                self.next = given.next;
                return Came::Messages(given);
            }
            let (event, freed) = self.slot.take();
            if freed {
                self.fetcher.room();
            }
            match event {
                None => {
                    // Of partitions at which nothing happens there may be many.
                    self.fetcher.give_back(self.pieces.put(Piece::default()));
                    self.pieces.release();
                    return Came::Nothing;
                }
                Some(Event::Piece(piece, _)) => {
                    self.next = piece.from;
                    self.fetcher.give_back(self.pieces.put(piece));
                }
                Some(Event::Begins(offset)) => return Came::Begins(offset),
                Some(Event::End(end)) => return Came::End(end),
                Some(Event::Failed(code, why)) => return Came::Failed(code, why),
                Some(Event::Unspoken(why)) => return Came::Unspoken(why),
            }
        }
    }

    /// The messages that came last.
    pub fn messages(&self) -> Fetched<'_> {
        let (topic, partition) = &self.slot.partition;
        self.pieces.messages(topic, *partition)
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.fetcher.unassign(&self.slot);
    }
}
