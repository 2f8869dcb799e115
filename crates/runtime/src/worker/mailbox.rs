//! The queue from a worker to the thread of a sink's writer, bounded by rows.
//!
//! Hand-overs are of very different sizes: a few rows when the input pauses, thousands when a watermark
//! lets them go. So many rows, and not so many hand-overs, are what a row waits behind. What is handed over,
//! what is done with it, and that a large row counts for several, belongs to [`super::sink`].

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The queue. One thread sends, one takes.
pub(super) struct Mailbox<T> {
    inbox: Mutex<Inbox<T>>,
    /// Something has come, or nothing more will.
    arrived: Condvar,
    /// There is room, or nobody takes any more.
    room: Condvar,
    /// From so many rows on the sender waits.
    rows_max: usize,
}

struct Inbox<T> {
    messages: VecDeque<(T, usize)>,
    rows: usize,
    sender_waits: bool,
    taker_waits: bool,
    sender_gone: bool,
    taker_gone: bool,
}

/// Says that nothing more is taken, however its holder ends.
pub(super) struct Taking<'a, T>(&'a Mailbox<T>);

impl<T> Mailbox<T> {
    /// A queue in which about `rows_max` rows may wait: the last hand-over may exceed it.
    pub fn new(rows_max: usize) -> Self {
        let messages = VecDeque::new();
        let inbox = Inbox { messages, rows: 0, sender_waits: false, taker_waits: false, sender_gone: false, taker_gone: false };
        Mailbox { inbox: Mutex::new(inbox), arrived: Condvar::new(), room: Condvar::new(), rows_max }
    }

    fn lock(&self) -> MutexGuard<'_, Inbox<T>> {
        // Who panicked has said so; what it left is a queue all the same.
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands over something that holds so many rows; waits for room if it holds any, and says how long. `None` if
    /// nobody takes any more.
    pub fn send(&self, message: T, rows: usize) -> Option<Duration> {
        let mut inbox = self.lock();
        let mut since: Option<Instant> = None;
        while rows > 0 && inbox.rows >= self.rows_max && !inbox.taker_gone {
            since.get_or_insert_with(Instant::now);
            inbox.sender_waits = true;
            inbox = self.room.wait(inbox).unwrap_or_else(PoisonError::into_inner);
        }
        if inbox.taker_gone {
            return None;
        }
        let waited = since.map_or(Duration::ZERO, |since| since.elapsed());
        inbox.rows += rows;
        inbox.messages.push_back((message, rows));
        if std::mem::take(&mut inbox.taker_waits) {
            drop(inbox);
            self.arrived.notify_one();
        }
        Some(waited)
    }

    /// Nothing more will be sent.
    pub fn close(&self) {
        self.lock().sender_gone = true;
        self.arrived.notify_one();
    }

    /// Begins to take.
    pub fn taking(&self) -> Taking<'_, T> {
        Taking(self)
    }
}

impl<T> Taking<'_, T> {
    /// What was handed over next; waits for it. `None` when nothing more will come.
    pub fn next(&self) -> Option<T> {
        let mailbox = self.0;
        let mut inbox = mailbox.lock();
        loop {
            if let Some((message, rows)) = inbox.messages.pop_front() {
                inbox.rows -= rows;
                // A sender that has waited can hand over several times before it has to wait again.
                if inbox.sender_waits && inbox.rows <= mailbox.rows_max / 2 {
                    inbox.sender_waits = false;
                    drop(inbox);
                    mailbox.room.notify_one();
                }
                return Some(message);
            }
            if inbox.sender_gone {
                return None;
            }
            inbox.taker_waits = true;
            inbox = mailbox.arrived.wait(inbox).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T> Drop for Taking<'_, T> {
    fn drop(&mut self) {
        let mut inbox = self.0.lock();
        inbox.taker_gone = true;
        // What is in them may be waited for.
        let left = std::mem::take(&mut inbox.messages);
        drop(inbox);
        drop(left);
        self.0.room.notify_one();
    }
}

#[cfg(test)]
mod tests;
