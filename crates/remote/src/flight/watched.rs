//! State that a task of the runtime and a caller's thread share: how it is locked, who is told of a
//! change, and how the caller waits for one. What the state is belongs to [`super::publisher`] and
//! [`super::subscriber`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidemill_connect::{ConnectError, Waker};

/// How often who waits looks whether it shall give up.
pub(super) const TICK: Duration = Duration::from_millis(50);

/// What can be waited for.
pub(super) trait Watchable {
    /// What a caller is told that was stopped while it waited.
    const STOPPED: &'static str;

    /// Why there is nothing to wait for any more.
    fn check(&self) -> Result<(), ConnectError>;

    /// Called before each sleep.
    fn before_sleep(&mut self) {}
}

/// The state and those who wait.
pub(super) struct Watched<S> {
    state: Mutex<S>,
    /// Somebody has changed the state.
    pub changed: Condvar,
    waker: Waker,
}

impl<S> Watched<S> {
    /// State whose changes the waker tells of.
    pub fn new(state: S, waker: Waker) -> Self {
        Watched { state: Mutex::new(state), changed: Condvar::new(), waker }
    }

    pub fn lock(&self) -> MutexGuard<'_, S> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells who waits, in whichever way. The state must not be locked.
    pub fn notify(&self) {
        self.changed.notify_all();
        self.waker.wake();
    }
}

impl<S: Watchable> Watched<S> {
    /// Waits until `ready` gives something.
    ///
    /// # Errors
    /// What [`Watchable::check`] says; that the caller was stopped.
    pub fn wait<T>(&self, cancelled: &AtomicBool, mut ready: impl FnMut(&mut S) -> Option<T>) -> Result<T, ConnectError> {
        let mut state = self.lock();
        loop {
            state.check()?;
            if let Some(value) = ready(&mut state) {
                return Ok(value);
            }
            if cancelled.load(Ordering::Relaxed) {
                return Err(ConnectError::new(S::STOPPED));
            }
            state.before_sleep();
            state = self.changed.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
