//! The queue from a worker to the thread of a sink's writer, bounded by rows.
//!
//! Hand-overs are of very different sizes: a few rows when the input pauses, thousands when a watermark
//! lets them go. So many rows, and not so many hand-overs, are what a row waits behind. What is handed over
//! and what is done with it belongs to [`super::sink`].

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

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

    /// Hands over something that holds so many rows; waits for room if it holds any. False if nobody takes
    /// any more.
    pub fn send(&self, message: T, rows: usize) -> bool {
        let mut inbox = self.lock();
        while rows > 0 && inbox.rows >= self.rows_max && !inbox.taker_gone {
            inbox.sender_waits = true;
            inbox = self.room.wait(inbox).unwrap_or_else(PoisonError::into_inner);
        }
        if inbox.taker_gone {
            return false;
        }
        inbox.rows += rows;
        inbox.messages.push_back((message, rows));
        if std::mem::take(&mut inbox.taker_waits) {
            drop(inbox);
            self.arrived.notify_one();
        }
        true
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
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn everything_arrives_in_order_within_the_bound() {
        let mailbox = Arc::new(Mailbox::new(10));
        // Rows sent and not yet taken.
        let open = Arc::new(AtomicUsize::new(0));
        let (theirs, counted) = (mailbox.clone(), open.clone());
        let taker = std::thread::spawn(move || {
            let (taking, mut got) = (theirs.taking(), Vec::new());
            while let Some(n) = taking.next() {
                counted.fetch_sub(n % 5, Ordering::SeqCst);
                got.push(n);
            }
            got
        });
        for n in 0..10_000 {
            let waiting = open.fetch_add(n % 5, Ordering::SeqCst);
            assert!(mailbox.send(n, n % 5));
            // One is taken and not yet counted, and one is more than fits.
            assert!(waiting <= 10 + 2 * 4 + 4, "{waiting} rows wait");
        }
        mailbox.close();
        assert_eq!(taker.join().unwrap(), (0..10_000).collect::<Vec<_>>());
    }

    #[test]
    fn a_large_one_goes_when_nothing_else_waits_and_what_has_no_rows_always() {
        let mailbox = Mailbox::new(10);
        assert!(mailbox.send("large", 1000) && mailbox.send("flush", 0));
        let taking = mailbox.taking();
        assert_eq!((taking.next(), taking.next()), (Some("large"), Some("flush")));
        assert!(mailbox.send("small", 9) && mailbox.send("more", 9));
        mailbox.close();
        assert_eq!((taking.next(), taking.next(), taking.next()), (Some("small"), Some("more"), None));
    }

    /// A sender that waits for room must not wait for ever when the taker ends, nor anybody for what is in the
    /// queue.
    #[test]
    fn a_taker_that_ends_is_known() {
        let mailbox = Arc::new(Mailbox::new(1));
        let answer = Arc::new(());
        assert!(mailbox.send(answer.clone(), 1));
        let theirs = mailbox.clone();
        let taker = std::thread::spawn(move || {
            let _taking = theirs.taking();
            panic!("as a test wants it");
        });
        assert!(!mailbox.send(answer.clone(), 1), "it waits until the taker has ended");
        assert!(taker.join().is_err());
        assert_eq!(Arc::strong_count(&answer), 1, "nothing is kept of what was not taken");
        assert!(!mailbox.send(answer, 0));
    }
}
