//! The runtime that all clients of the process share: threads that move bytes and do nothing else.
//!
//! Encoding and decoding stay with the caller's thread, so two threads carry more than a machine's
//! loopback does. It is made when the first client is, and lives as long as the process.

use std::future::Future;
use std::sync::OnceLock;
use std::thread;

use crossbeam_channel::bounded;
use tidemill_connect::ConnectError;
use tokio::runtime::{Builder, Handle, Runtime};

/// The most threads of the runtime, unless somebody says otherwise (`io.threads`).
const THREADS_MAX: usize = 2;

static RUNTIME: OnceLock<Result<Runtime, String>> = OnceLock::new();

/// Where clients run.
///
/// # Errors
/// The threads could not be started.
pub fn handle() -> Result<&'static Handle, ConnectError> {
    let made = RUNTIME.get_or_init(|| {
        let of_machine = || thread::available_parallelism().map_or(1, |n| n.get().min(THREADS_MAX));
        let threads = tidemill_connect::io::threads().unwrap_or_else(of_machine);
        Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("tidemill-remote")
            .enable_all()
            .build()
            .map_err(|e| format!("starting the threads of network clients: {e}"))
    });
    made.as_ref().map(Runtime::handle).map_err(|e| ConnectError::new(e.as_str()))
}

/// Runs something on the runtime and waits for it. The caller may be any thread but one of the
/// runtime's own.
///
/// # Errors
/// The runtime could not be started, or the work has panicked.
pub fn wait<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Result<T, ConnectError> {
    let (done, result) = bounded(1);
    handle()?.spawn(async move {
        // Nobody waits any more only if the caller's thread is gone.
        let _ = done.send(work.await);
    });
    result.recv().map_err(|_| ConnectError::new("internal error: a network client has ended without a word; its message is above"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_waited_for_and_a_panic_is_an_error() {
        assert_eq!(wait(async { 6 * 7 }).unwrap(), 42);
        let error = wait(async { std::hint::black_box(Vec::<u32>::new())[0] }).unwrap_err().to_string();
        assert!(error.starts_with("internal error: a network client has ended"), "{error}");
    }
}
