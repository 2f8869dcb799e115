//! Whether brokers answer: told once when none does any more, and once when one does again, whoever finds it out.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tidemill_block::clock;

use crate::client::lock;

/// What the clients of a table know of its brokers.
pub struct Outage {
    /// The table and the brokers, for notices.
    name: String,
    /// No broker answers.
    down: AtomicBool,
    since_ns: AtomicU64,
    /// Errors of connections since then.
    errors: AtomicU64,
    last_error: Mutex<Option<String>>,
}

impl Outage {
    /// Of what is called `name` in notices.
    pub fn new(name: String) -> Self {
        Outage { name, down: AtomicBool::new(false), since_ns: AtomicU64::new(0), errors: AtomicU64::new(0), last_error: Mutex::default() }
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Something came from a broker: an outage, if there was one, is over.
    #[inline]
    pub fn alive(&self) {
        if self.down.load(Ordering::Relaxed) {
            self.up();
        }
    }

    #[cold]
    fn up(&self) {
        if self.down.swap(false, Ordering::AcqRel) {
            let seconds = clock::now_ns().saturating_sub(self.since_ns.load(Ordering::Acquire)) / 1_000_000_000;
            let errors = self.errors.swap(0, Ordering::AcqRel);
            tidemill_connect::notice(&format!("{} answers again, after {seconds} s and {errors} failed attempts", self.name));
        }
    }

    /// What somebody last complained about.
    pub fn last_error(&self) -> Option<String> {
        lock(&self.last_error).clone()
    }

    /// A connection failed.
    pub fn error(&self, why: &str) {
        self.count();
        self.note(why.to_string());
    }

    /// A connection failed, and why is not known.
    pub fn count(&self) {
        self.errors.fetch_add(1, Ordering::AcqRel);
    }

    /// Something is to be known that went wrong.
    pub fn note(&self, why: String) {
        *lock(&self.last_error) = Some(why);
    }

    /// No broker answers.
    pub fn set_down(&self) {
        if !self.down.swap(true, Ordering::AcqRel) {
            self.since_ns.store(clock::now_ns(), Ordering::Release);
            let why = self.last_error().map(|e| format!(" ({e})")).unwrap_or_default();
            tidemill_connect::notice(&format!("{}: no broker answers{why}; trying on", self.name));
        }
    }
}
