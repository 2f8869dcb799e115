//! The threads on which requests are made: few, each with a runtime of its own, so that what belongs to
//! one lookup stays on one thread and needs no locks. They are started with the first lookup and live as
//! long as the process.

use std::future::Future;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tidemill_connect::ConnectError;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{Sender, channel};
use tokio::task::{LocalSet, spawn_local};

/// The most threads unless it is said otherwise: a thread carries some 50,000 requests a second.
const THREADS_DEFAULT_MAX: usize = 2;
/// Threads of a runtime that ask for addresses of names, which blocks.
const RESOLVERS_MAX: usize = 2;
/// Lookups that wait to be started on a thread.
const STARTS_MAX: usize = 64;

/// How many threads there shall be; 0 leaves it to the machine.
static WANTED: AtomicUsize = AtomicUsize::new(0);
static NEXT: AtomicUsize = AtomicUsize::new(0);
static THREADS: OnceLock<Result<Vec<Sender<Start>>, String>> = OnceLock::new();

type Start = Box<dyn FnOnce() + Send>;

/// Says how many threads make the requests of lookups in this process. Of use before the first lookup only.
pub fn io_threads(threads: usize) {
    WANTED.store(threads, Ordering::Relaxed);
}

fn start_threads() -> Result<Vec<Sender<Start>>, String> {
    let count = match WANTED.load(Ordering::Relaxed) {
        0 => tidemill_connect::io::threads()
            .unwrap_or_else(|| thread::available_parallelism().map_or(1, |n| n.get().min(THREADS_DEFAULT_MAX))),
        wanted => wanted,
    };
    let start = |number: usize| {
        let failed = |e: std::io::Error| format!("starting the threads of lookups: {e}");
        let (sender, mut starts) = channel::<Start>(STARTS_MAX);
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(RESOLVERS_MAX).build().map_err(failed)?;
        let run = move || {
            LocalSet::new().block_on(&runtime, async move {
                while let Some(start) = starts.recv().await {
                    start();
                }
            });
        };
        thread::Builder::new().name(format!("tidemill-io-{number}")).spawn(run).map_err(failed)?;
        Ok(sender)
    };
    (0..count).map(start).collect()
}

/// Runs what `make` makes on one of the threads.
///
/// # Errors
/// The threads could not be started.
pub(super) fn spawn<F: Future<Output = ()> + 'static>(make: impl FnOnce() -> F + Send + 'static) -> Result<(), ConnectError> {
    let threads = THREADS.get_or_init(start_threads).as_ref().map_err(|e| ConnectError::new(e.as_str()))?;
    let thread = &threads[NEXT.fetch_add(1, Ordering::Relaxed) % threads.len()];
    let start: Start = Box::new(move || drop(spawn_local(make())));
    thread.blocking_send(start).map_err(|_| ConnectError::new("internal error: a thread of lookups has ended; its message is above"))
}
