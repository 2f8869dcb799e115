//! The memory that an operator instance may use for its state, which whoever watches the process can make less.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of memory for the state of an operator instance. All instances of a job have the same one: what each may use.
#[derive(Debug)]
pub struct MemoryShare {
    bytes: usize,
    withheld: AtomicUsize,
}

impl MemoryShare {
    /// A share of so many bytes, all of which may be used.
    pub fn new(bytes: usize) -> Self {
        MemoryShare { bytes, withheld: AtomicUsize::new(0) }
    }

    /// What it is when nothing is withheld, bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What of it may not be used for now, since the process needs it for something else, bytes. State that is more
    /// leaves when the next rows come.
    pub fn withheld(&self) -> usize {
        self.withheld.load(Ordering::Relaxed)
    }

    /// Withholds so many bytes instead of those withheld so far, the whole share at the most.
    pub fn withhold(&self, bytes: usize) {
        self.withheld.store(bytes.min(self.bytes), Ordering::Relaxed);
    }
}
