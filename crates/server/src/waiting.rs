//! Work in a task that waits for a disk or for a thread, or takes long. What does not live here: requests that are nothing but
//! such work, which have a thread of their own (`Handle::spawn_blocking`).

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

/// Does what may wait, while another thread sees to the tasks of this one: on two processors there is only one for all connections.
/// That costs some 20 µs, and panics where the system gives no thread, so work that seldom waits says first whether it will.
pub(crate) fn waiting<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => block_in_place(work),
        // Of a job, or of a test that has no other thread.
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    /// Its thread was the only one, and the task that it waited for had no other.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn others_go_on_meanwhile() {
        let waits = Handle::current().spawn(async {
            let (sender, receiver) = channel();
            Handle::current().spawn(async move { sender.send(7) });
            waiting(|| receiver.recv_timeout(Duration::from_secs(60)))
        });
        assert_eq!(waits.await.unwrap(), Ok(7));
    }

    #[tokio::test]
    async fn a_thread_without_others_waits_itself() {
        assert_eq!(waiting(|| 7), 7);
    }

    #[test]
    fn so_does_one_of_no_runtime() {
        assert_eq!(waiting(|| 7), 7);
    }
}
