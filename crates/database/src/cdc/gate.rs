//! Keeps rows back until a checkpoint knows where the table is followed from.
//!
//! A job that is killed before its first checkpoint knows nothing of what it has written, and the table has changed when
//! it starts anew: rows that it wrote and that were deleted since would stay. With the place in a checkpoint the next
//! start finds in the log what became of them.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use tidemill_connect::Waker;

/// Rows pass.
const OPEN: u8 = 0;
/// They do not, and the place is not yet known.
const CLOSED: u8 = 1;
/// They do not, and a checkpoint is waited for.
const ASKING: u8 = 2;

/// See the module. Open until somebody closes it.
#[derive(Default)]
pub(super) struct Gate {
    state: AtomicU8,
    waker: Mutex<Option<Waker>>,
}

impl Gate {
    /// Keeps rows back.
    pub fn close(&self) {
        self.state.store(CLOSED, Ordering::Release);
    }

    /// The place is known: a checkpoint is wanted; whom to wake behind it.
    pub fn ask(&self, waker: &Waker) {
        if self.state.load(Ordering::Acquire) == CLOSED {
            *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker.clone());
            self.state.store(ASKING, Ordering::Release);
        }
    }

    /// A checkpoint has the place.
    pub fn open(&self) {
        self.state.store(OPEN, Ordering::Release);
        if let Some(waker) = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take() {
            waker.wake();
        }
    }

    /// Whether rows pass.
    pub fn is_open(&self) -> bool {
        self.state.load(Ordering::Acquire) == OPEN
    }

    /// Whether a checkpoint is waited for.
    pub fn asks(&self) -> bool {
        self.state.load(Ordering::Acquire) == ASKING
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_wait_for_a_checkpoint() {
        let gate = Gate::default();
        gate.ask(&Waker::noop());
        assert!(gate.is_open() && !gate.asks());
        gate.close();
        assert!(!gate.is_open() && !gate.asks());
        gate.ask(&Waker::noop());
        assert!(!gate.is_open() && gate.asks());
        gate.open();
        assert!(gate.is_open() && !gate.asks());
    }
}
