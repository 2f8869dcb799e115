//! Bytes on their way to a peer: filled by the writer, emptied by the thread that owns the
//! connection, bounded in bytes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often who waits looks whether the job is being stopped.
const CANCEL_CHECK: Duration = Duration::from_millis(50);

/// Why bytes could not be handed on.
#[derive(Clone, Debug, PartialEq)]
pub enum Refused {
    /// The job is being stopped.
    Cancelled,
    /// The peer is gone; the text says which and why.
    Gone(String),
}

/// The queue.
pub struct ByteQueue {
    state: Mutex<State>,
    /// Something has changed for whoever waits; there is at most one on either side.
    changed: Condvar,
    bytes_max: usize,
}

#[derive(Default)]
struct State {
    pending: Vec<u8>,
    /// Bytes that the thread has taken and not yet written.
    taken: usize,
    finished: bool,
    gone: Option<String>,
}

impl ByteQueue {
    /// An empty queue that holds up to `bytes_max`, or one larger piece.
    pub fn new(bytes_max: usize) -> Self {
        ByteQueue { state: Mutex::default(), changed: Condvar::new(), bytes_max }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `ready`, the peer is gone, or `cancelled`.
    fn wait(&self, cancelled: &AtomicBool, ready: impl Fn(&State) -> bool) -> Result<MutexGuard<'_, State>, Refused> {
        let mut state = self.lock();
        loop {
            if let Some(reason) = &state.gone {
                return Err(Refused::Gone(reason.clone()));
            }
            if ready(&state) {
                return Ok(state);
            }
            if cancelled.load(Ordering::Relaxed) {
                return Err(Refused::Cancelled);
            }
            state = self.changed.wait_timeout(state, CANCEL_CHECK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Appends bytes; waits while there is no room.
    ///
    /// # Errors
    /// The peer is gone or the job is being stopped.
    pub fn push(&self, bytes: &[u8], cancelled: &AtomicBool) -> Result<(), Refused> {
        let mut state = self.wait(cancelled, |s| {
            let held = s.pending.len() + s.taken;
            held == 0 || held + bytes.len() <= self.bytes_max
        })?;
        assert!(!state.finished, "nothing is pushed behind the end");
        state.pending.extend_from_slice(bytes);
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Waits until the thread has written everything.
    ///
    /// # Errors
    /// As [`ByteQueue::push`].
    pub fn drained(&self, cancelled: &AtomicBool) -> Result<(), Refused> {
        self.wait(cancelled, |s| s.pending.is_empty() && s.taken == 0).map(drop)
    }

    /// For the thread: what it took last is written; `out` becomes what is to be written next.
    /// Waits for it; false if there will be nothing more.
    pub fn take(&self, out: &mut Vec<u8>) -> bool {
        out.clear();
        let mut state = self.lock();
        if state.taken > 0 {
            state.taken = 0;
            self.changed.notify_all();
        }
        while state.pending.is_empty() {
            if state.finished || state.gone.is_some() {
                return false;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::swap(&mut state.pending, out);
        state.taken = out.len();
        true
    }

    /// For the writer: nothing follows.
    pub fn finish(&self) {
        self.lock().finished = true;
        self.changed.notify_all();
    }

    /// The peer is gone; what was waiting for it is given up.
    pub fn fail(&self, reason: impl Into<String>) {
        let mut state = self.lock();
        state.gone.get_or_insert_with(|| reason.into());
        state.pending = Vec::new();
        drop(state);
        self.changed.notify_all();
    }

    /// Whether the peer is gone.
    pub fn is_gone(&self) -> bool {
        self.lock().gone.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn holds_no_more_than_its_bound() {
        let (queue, running, stopped) = (ByteQueue::new(10), AtomicBool::new(false), AtomicBool::new(true));
        queue.push(&[1; 100], &running).unwrap(); // a larger piece, alone
        assert_eq!(queue.push(&[2], &stopped), Err(Refused::Cancelled));
        let mut out = Vec::new();
        assert!(queue.take(&mut out));
        assert_eq!(out.len(), 100);
        assert_eq!(queue.push(&[2], &stopped), Err(Refused::Cancelled), "taken is not yet written");
        assert_eq!(queue.drained(&stopped), Err(Refused::Cancelled));
        queue.finish();
        assert!(!queue.take(&mut out));
        queue.drained(&running).unwrap();
    }

    #[test]
    fn everything_comes_through_in_order() {
        let (queue, running) = (Arc::new(ByteQueue::new(64)), AtomicBool::new(false));
        let taker = queue.clone();
        let thread = std::thread::spawn(move || {
            let (mut all, mut out) = (Vec::new(), Vec::new());
            while taker.take(&mut out) {
                assert!(out.len() <= 64);
                all.extend_from_slice(&out);
            }
            all
        });
        let expect: Vec<u8> = (0..10_000u32).map(|i| i as u8).collect();
        expect.chunks(7).for_each(|chunk| queue.push(chunk, &running).unwrap());
        queue.drained(&running).unwrap();
        queue.finish();
        assert_eq!(thread.join().unwrap(), expect);
    }

    #[test]
    fn a_peer_that_is_gone_refuses() {
        let (queue, running) = (ByteQueue::new(10), AtomicBool::new(false));
        queue.push(b"lost", &running).unwrap();
        queue.fail("reset");
        queue.fail("later");
        assert_eq!(queue.push(b"x", &running), Err(Refused::Gone("reset".into())));
        assert!(!queue.take(&mut Vec::new()) && queue.is_gone());
    }
}
