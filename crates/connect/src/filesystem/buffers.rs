//! The buffers in which threads hand over what they have read: bounded for each thread, and for all of the process together, since
//! a job may have thousands of files open and read one of them. What requests to stores hold besides is bounded in
//! `tidemill-store`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_channel::{Receiver, Sender, bounded};

/// Bytes that a thread hands over at once.
pub(super) const BUFFER_BYTES: usize = 256 << 10;
/// Buffers of one thread: eight that wait, one that is filled and one that is looked at.
const OWN_MAX: usize = 10;
/// Buffers of all threads, 64 MB, beyond which each has only the one that it always may have.
static SHARED: Shared = Shared::new(256);

/// How many buffers there may be, and how many there are.
struct Shared {
    most: usize,
    used: AtomicUsize,
}

impl Shared {
    const fn new(most: usize) -> Self {
        Shared { most, used: AtomicUsize::new(0) }
    }

    /// Whether a thread that holds so many may have one more: always the first, another if no fewer are left. So each of n
    /// greedy threads comes to an n+1st of all, and one that begins finds some left.
    fn allows(&self, held: usize) -> bool {
        held == 0 || held < self.most.saturating_sub(self.used.load(Ordering::Relaxed))
    }

    fn add(&self, held: &AtomicUsize) {
        held.fetch_add(1, Ordering::Relaxed);
        self.used.fetch_add(1, Ordering::Relaxed);
    }

    fn remove(&self, held: &AtomicUsize) {
        held.fetch_sub(1, Ordering::Relaxed);
        self.used.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A buffer of [`BUFFER_BYTES`], which counts as long as it is anywhere.
pub(super) struct Buffer {
    pub bytes: Vec<u8>,
    shared: &'static Shared,
    held: Arc<AtomicUsize>,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.shared.remove(&self.held);
    }
}

/// The buffers of one thread.
pub(super) struct Buffers {
    shared: &'static Shared,
    /// How many there are of this thread, wherever they are.
    held: Arc<AtomicUsize>,
    /// Those that were looked at.
    spares: Receiver<Buffer>,
}

impl Buffers {
    /// None yet, and where to put those that were looked at; the thread ends when that goes.
    pub fn new() -> (Self, Sender<Buffer>) {
        Buffers::sharing(&SHARED)
    }

    fn sharing(shared: &'static Shared) -> (Self, Sender<Buffer>) {
        let (give, spares) = bounded(OWN_MAX);
        (Buffers { shared, held: Arc::default(), spares }, give)
    }

    /// An empty buffer. Where there may be no more it is one that comes back, waited for: one of this thread's own, so no
    /// thread waits for another's reader. `None` if nobody will give one back any more.
    pub fn next(&self) -> Option<Buffer> {
        // What comes back is asked for anew, so that a thread which once had many gives way to those that began later.
        while let Ok(spare) = self.spares.try_recv() {
            self.shared.remove(&self.held);
            let keep = self.shared.allows(self.held.load(Ordering::Relaxed));
            self.shared.add(&self.held);
            if keep {
                return Some(spare);
            }
        }
        let held = self.held.load(Ordering::Relaxed);
        if held < OWN_MAX && self.shared.allows(held) {
            self.shared.add(&self.held);
            return Some(Buffer { bytes: vec![0; BUFFER_BYTES], shared: self.shared, held: self.held.clone() });
        }
        self.spares.recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many as a thread gets at once without waiting.
    fn fill(buffers: &Buffers) -> Vec<Buffer> {
        let mut got = Vec::new();
        while got.len() < OWN_MAX && buffers.shared.allows(got.len()) {
            got.extend(buffers.next());
        }
        got
    }

    #[test]
    fn each_thread_has_one_and_few_have_all_they_want() {
        static SHARED: Shared = Shared::new(40);
        let threads: Vec<(Buffers, Sender<Buffer>)> = (0..100).map(|_| Buffers::sharing(&SHARED)).collect();
        let mut all: Vec<Vec<Buffer>> = threads.iter().map(|(buffers, _)| fill(buffers)).collect();
        assert_eq!(all[0].len(), OWN_MAX);
        assert!(all.iter().all(|own| !own.is_empty()));
        assert!(SHARED.used.load(Ordering::Relaxed) <= 40 + 100);
        // What the first thread gives back it does not get again: it goes on with one.
        for buffer in all[0].drain(..) {
            threads[0].1.try_send(buffer).unwrap();
        }
        let one = threads[0].0.next().unwrap();
        assert_eq!(threads[0].0.held.load(Ordering::Relaxed), 1);
        // It waits for that one, and learns that nobody gives it back.
        threads[0].1.try_send(one).unwrap();
        assert!(threads[0].0.next().is_some());
        let (first, give) = threads.into_iter().next().unwrap();
        drop(give);
        let _held = Buffer { bytes: Vec::new(), shared: &SHARED, held: first.held.clone() };
        SHARED.add(&first.held);
        assert!(first.next().is_none());
        drop(all);
    }
}
