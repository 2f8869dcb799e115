//! What the shards that read one table share: how many splits may be open at once, and how many are.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidemill_block::clock;
use tidemill_connect::Fetching;

use super::{AtOnce, Bounds, Found, Meter, Search};

/// The most splits open at once if the number is left to us. Each may hold two requests of a store and 2 MB decompressed,
/// some 10 MB.
const MOST: usize = 32;
/// Time between two samples, and how long a number is looked at.
const SAMPLE: Duration = Duration::from_millis(100);
const WINDOW: Duration = Duration::from_millis(400);
/// The last sample is taken over so long at least: less says nothing, and files that are read one by one, of which each is
/// the last one open for a moment, are not to cost a sample each.
const SAMPLE_LAST: Duration = Duration::from_millis(10);

/// The readers of one table.
pub(crate) struct Readers {
    shards: usize,
    /// Whether more splits than shards may be open, since they fetch by themselves.
    ahead: bool,
    /// How many may be open.
    wanted: AtomicUsize,
    open: AtomicUsize,
    /// The most that ever were.
    peak: AtomicUsize,
    bytes: AtomicU64,
    /// When the next sample is due, ns.
    due_ns: AtomicU64,
    inner: Mutex<Inner>,
}

struct Inner {
    search: Search,
    /// From the first split on.
    meter: Option<Meter>,
    memory: Option<u64>,
}

impl Readers {
    /// For so many shards. `memory` is the limit of the process in bytes.
    pub fn new(fetching: Fetching, at_once: AtOnce, shards: usize, memory: Option<u64>) -> Arc<Self> {
        let (shards, ahead) = (shards.max(1), fetching == Fetching::Network);
        let search = match at_once {
            AtOnce::Auto if ahead => {
                let (window, most) = (WINDOW, MOST.max(shards));
                Search::new(Bounds { first: shards, least: shards, most }, window)
            }
            AtOnce::Fixed(n) if ahead => Search::fixed(n.max(shards)),
            _ => Search::fixed(shards),
        };
        Arc::new(Readers {
            shards,
            ahead,
            wanted: AtomicUsize::new(search.workers()),
            open: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
            due_ns: AtomicU64::new(0),
            inner: Mutex::new(Inner { search, meter: None, memory }),
        })
    }

    /// Whether splits are opened ahead, by threads of their own.
    pub fn ahead(&self) -> bool {
        self.ahead
    }

    /// How many splits this shard may have open, at least one.
    pub fn share(&self, shard: usize) -> usize {
        let wanted = self.wanted.load(Ordering::Relaxed);
        (wanted / self.shards + usize::from(shard < wanted % self.shards)).max(1)
    }

    /// Rows of so many bytes were read. To be called once a block; takes a sample when one is due.
    pub fn read(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let now = clock::now_ns();
        if now < self.due_ns.load(Ordering::Relaxed) {
            return;
        }
        self.due_ns.store(now + SAMPLE.as_nanos() as u64, Ordering::Relaxed);
        // Somebody else is at it.
        if let Ok(mut inner) = self.inner.try_lock() {
            self.sample(&mut inner, self.open.load(Ordering::Relaxed));
        }
    }

    fn sample(&self, inner: &mut Inner, open: usize) {
        let Some(meter) = &mut inner.meter else { return };
        let wanted = self.wanted.load(Ordering::Relaxed);
        // Those above the number are not asked, so that they soon wait.
        let sample = meter.sample(self.bytes.load(Ordering::Relaxed), open.min(wanted), self.shards);
        inner.search.observe(&sample);
        self.wanted.store(inner.search.workers(), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A split is opened; it counts until the seat is dropped.
    pub fn seat(self: &Arc<Self>) -> Seat {
        let open = self.open.fetch_add(1, Ordering::Relaxed) + 1;
        self.peak.fetch_max(open, Ordering::Relaxed);
        if open == 1 {
            let mut inner = self.lock();
            let memory = inner.memory;
            inner.meter.get_or_insert_with(|| Meter::new(memory, self.bytes.load(Ordering::Relaxed)));
        }
        Seat(self.clone())
    }

    /// What was found; nothing if nothing was read.
    pub fn found(&self) -> Option<Found> {
        let peak = self.peak.load(Ordering::Relaxed);
        let found = self.lock().search.found();
        // What is read in place is read by the shards, however many files are open.
        (peak > 0).then(|| Found { workers: found.workers.min(peak), ..found })
    }
}

/// A split that is open.
pub(crate) struct Seat(Arc<Readers>);

impl Drop for Seat {
    fn drop(&mut self) {
        if self.0.open.fetch_sub(1, Ordering::Relaxed) == 1 {
            // What came last counts, too; for short inputs it is all there is.
            let mut inner = self.0.lock();
            if inner.meter.as_ref().is_some_and(|meter| meter.age() >= SAMPLE_LAST) {
                self.0.sample(&mut inner, 1);
            }
        }
    }
}
