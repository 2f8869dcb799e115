//! The threads that talk to stores, and the bridge from blocking code to them.
//!
//! Workers, connectors and readers know no async. They hand a future over and wait on a channel, which works on any
//! thread, those of another runtime included.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::runtime::{Builder, Runtime};
use tokio::task::AbortHandle;

use crate::error::{Kind, StoreError};

/// Threads for requests, TLS included: 1 to 2 GB/s without TLS, half of it with.
const THREADS: usize = 2;
/// The pause before the first repetition; it doubles.
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
/// The longest pause between repetitions.
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(5);

fn runtime() -> Result<&'static Runtime, StoreError> {
    static RUNTIME: OnceLock<Result<Runtime, String>> = OnceLock::new();
    let made = RUNTIME.get_or_init(|| {
        Builder::new_multi_thread().worker_threads(THREADS).thread_name("tidemill-store").enable_all().build().map_err(|e| e.to_string())
    });
    made.as_ref().map_err(|e| {
        let why = format!("starting the threads that talk to object stores: {e}; raise the limit of processes (ulimit -u)");
        StoreError::new(Kind::Other, why)
    })
}

/// Runs `work` to its end and waits for it.
///
/// # Errors
/// Those of `work`; the threads cannot be started.
pub(crate) fn wait<T: Send + 'static>(work: impl Future<Output = Result<T, StoreError>> + Send + 'static) -> Result<T, StoreError> {
    let (done, result) = sync_channel(1);
    runtime()?.spawn(async move {
        // Whoever asked may be gone.
        let _ = done.send(work.await);
    });
    result.recv().unwrap_or_else(|_| Err(StoreError::new(Kind::Other, "internal error: a request to a store ended without an answer")))
}

/// Runs `work` to its end, and waits for it no longer than `limit`: for clearing up, where waiting helps nobody.
pub(crate) fn wait_briefly(limit: Duration, work: impl Future<Output = ()> + Send + 'static) {
    let (done, result) = sync_channel(1);
    if let Ok(runtime) = runtime() {
        runtime.spawn(async move {
            work.await;
            let _ = done.send(());
        });
        let _ = result.recv_timeout(limit);
    }
}

/// Starts `work`, which reports by a channel of its own.
///
/// # Errors
/// The threads cannot be started.
pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Result<AbortHandle, StoreError> {
    Ok(runtime()?.spawn(work).abort_handle())
}

/// The pause before repetition `n`, from 0: doubling, with a spread so that many readers do not come back at once.
pub(crate) fn backoff(n: u32) -> Duration {
    let full = BACKOFF_FIRST.saturating_mul(1 << n.min(10)).min(BACKOFF_MAX);
    // The clock's last digits differ between readers, which is all that is asked of chance here.
    let spread = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.subsec_nanos() % 512);
    full.mul_f64(0.5 + f64::from(spread) / 1024.0)
}

/// A name that no other call in any process gives.
pub(crate) fn unique() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
    format!("{now:x}-{:x}-{:x}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Locks; what a panic left behind is whole, since nothing is half changed under these locks.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
