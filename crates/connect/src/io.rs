//! How many threads of this process move bytes for network clients (`io.threads`). They are shared by all
//! jobs, so the number is that of the process; the threads themselves are with the clients.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The most that may be asked for: they only move bytes.
pub const IO_THREADS_MAX: usize = 256;

/// 0: nobody has said.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Says how many threads clients shall have. It counts for clients made after it; whoever made the first
/// of them has decided for those that share threads with it.
pub fn set_threads(threads: usize) {
    THREADS.store(threads.clamp(1, IO_THREADS_MAX), Ordering::Relaxed);
}

/// How many threads clients shall have, if somebody has said.
pub fn threads() -> Option<usize> {
    match THREADS.load(Ordering::Relaxed) {
        0 => None,
        some => Some(some),
    }
}
