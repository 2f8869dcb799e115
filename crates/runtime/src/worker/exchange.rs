//! Queues between workers, and the signals that wake them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use tidemill_block::Block;

/// What flows along an edge.
#[derive(Clone, Debug)]
pub(crate) enum Element {
    Block(Block),
    /// Event time has come so far, ms.
    Watermark(i64),
    /// Nothing comes at the moment (true), so do not wait for this input's watermark.
    Idle(bool),
    /// A checkpoint passes.
    Barrier(u64),
}

/// Bytes that may wait in one queue before its sender holds back: some tens of full blocks.
pub(crate) const QUEUE_BYTES_MAX: usize = 8 << 20;

/// The queue from one worker to another along one edge.
#[derive(Default)]
pub(crate) struct Queue {
    elements: Mutex<VecDeque<Element>>,
    waiting: AtomicUsize,
    bytes: AtomicUsize,
}

impl Queue {
    pub fn push(&self, element: Element) {
        if let Element::Block(block) = &element {
            self.bytes.fetch_add(block.memory(), Ordering::Relaxed);
        }
        self.elements.lock().expect("no panic while held").push_back(element);
        self.waiting.fetch_add(1, Ordering::Release);
    }

    pub fn pop(&self) -> Option<Element> {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return None;
        }
        let element = self.elements.lock().expect("no panic while held").pop_front()?;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        if let Element::Block(block) = &element {
            self.bytes.fetch_sub(block.memory(), Ordering::Relaxed);
        }
        Some(element)
    }

    pub fn has_room(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) < QUEUE_BYTES_MAX
    }
}

/// Wakes a parked worker.
#[derive(Default)]
pub(crate) struct Signal {
    thread: OnceLock<Thread>,
    raised: AtomicBool,
}

impl Signal {
    /// Called once by the worker itself.
    pub fn adopt(&self) {
        let _ = self.thread.set(std::thread::current());
    }

    pub fn raise(&self) {
        if !self.raised.swap(true, Ordering::AcqRel)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Sleeps until raised, at most `timeout`.
    pub fn wait(&self, timeout: Duration) {
        if !self.raised.swap(false, Ordering::AcqRel) {
            std::thread::park_timeout(timeout);
            self.raised.store(false, Ordering::Release);
        }
    }
}
