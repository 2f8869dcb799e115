//! Sockets of others that a worker's thread drives: who makes requests for a worker need not have a thread for it.
//!
//! Between two threads a call costs three switches: the worker orders it, the other thread finds the answer, and the worker finds
//! that. On one thread it costs the one that the answer itself takes, or less where answers gather ([`Drive::away`]). Who drives is
//! the worker's own matter: it says that it does ([`enter`]), and whoever has something to be driven, made on the same thread, offers
//! it ([`offer`]). On threads that drive nothing, requests are made elsewhere.
//!
//! A worker that is held up, by a sink that waits for its database say, drives nothing meanwhile. What others ask for goes out before,
//! and whoever gives something up looks first whether it lies there.

use std::cell::RefCell;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

/// What a thread drives.
pub trait Drive {
    /// Writes what was ordered, and looks for nothing.
    fn write(&self);

    /// Does what can be done now: writes what was ordered, reads what has come.
    fn turn(&self);

    /// The same while there is other work, but no more often than is of use.
    fn glance(&self);

    /// Writes what was ordered, then does what comes until `woken` is ready, something can be read from one of `sockets`, or the time
    /// is over.
    fn sleep(&self, woken: &mut dyn FnMut(&mut Context<'_>) -> Poll<()>, sockets: &[RawFd], timeout: Duration);

    /// For how long nobody need look for what comes, which then comes together.
    fn away(&self) -> Duration;
}

/// What this thread has to do with it.
enum Here {
    /// It drives nothing.
    Nothing,
    /// It would drive what is offered.
    Ready,
    Driving(Rc<dyn Drive>),
}

thread_local! {
    static HERE: RefCell<Here> = const { RefCell::new(Here::Nothing) };
}

/// Until it is dropped its thread drives what is offered.
pub struct Stay(());

/// The calling thread drives what is offered to it.
#[must_use]
pub fn enter() -> Stay {
    HERE.replace(Here::Ready);
    Stay(())
}

impl Drop for Stay {
    fn drop(&mut self) {
        // What is dropped may ask who drives.
        drop(HERE.replace(Here::Nothing));
    }
}

/// Whether the calling thread drives what is offered to it.
pub fn is_here() -> bool {
    HERE.with_borrow(|here| !matches!(here, Here::Nothing))
}

/// Has the calling thread drive this from now on, in place of what it drove.
pub fn offer(drive: Rc<dyn Drive>) {
    if is_here() {
        drop(HERE.replace(Here::Driving(drive)));
    }
}

/// What the calling thread drives.
pub fn current() -> Option<Rc<dyn Drive>> {
    HERE.with_borrow(|here| if let Here::Driving(drive) = here { Some(drive.clone()) } else { None })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Idle;

    impl Drive for Idle {
        fn write(&self) {}

        fn turn(&self) {}

        fn glance(&self) {}

        fn sleep(&self, _woken: &mut dyn FnMut(&mut Context<'_>) -> Poll<()>, _sockets: &[RawFd], _timeout: Duration) {}

        fn away(&self) -> Duration {
            Duration::ZERO
        }
    }

    #[test]
    fn only_who_has_entered_drives() {
        offer(Rc::new(Idle));
        assert!(!is_here() && current().is_none());
        let stay = enter();
        assert!(is_here() && current().is_none());
        offer(Rc::new(Idle));
        assert!(is_here() && current().is_some());
        drop(stay);
        assert!(!is_here() && current().is_none());
    }
}
