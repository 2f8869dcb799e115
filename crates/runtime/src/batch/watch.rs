//! Tells the sinks of a batch that it was asked to stop: while a writer waits for a server that is away no rows come at which that would be
//! noticed. From a thread of its own, since such writers may have all of the runner's, and its timers with them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidemill_connect::Sink;

use crate::{JobError, Stop};

/// How often it is looked whether the batch was asked to stop.
const LOOK: Duration = Duration::from_millis(100);

/// A sink, and what tells its writers to give up.
type Watched = (Arc<dyn Sink>, Arc<AtomicBool>);

/// Watches until it is dropped.
pub(super) struct Watch {
    sinks: Option<Sender<Watched>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Writers that are still at work when the batch was asked to stop so long ago are to give up. Until then they say better what they
    /// wait for.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn new(stop: &Stop, patience: Duration) -> Result<Self, JobError> {
        let stop = stop.clone();
        let (sender, receiver) = channel::<Watched>();
        let watch = move || {
            let (mut sinks, mut told, mut asked) = (Vec::<Watched>::new(), 0, None::<Instant>);
            loop {
                match receiver.recv_timeout(LOOK) {
                    Ok(sink) => sinks.push(sink),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                if !stop.requested() {
                    continue;
                }
                sinks[told..].iter().for_each(|(sink, _)| sink.stopping());
                told = sinks.len();
                if asked.get_or_insert_with(Instant::now).elapsed() >= patience {
                    sinks.iter().for_each(|(_, cancelled)| cancelled.store(true, Ordering::Relaxed));
                }
            }
        };
        let thread = std::thread::Builder::new().name("batch-stop".into()).spawn(watch);
        let thread = thread.map_err(|e| JobError::failed(format!("starting the thread that hears when the batch is to stop: {e}")))?;
        Ok(Watch { sinks: Some(sender), thread: Some(thread) })
    }

    /// Another sink, which is opened now.
    pub fn add(&self, sink: &Arc<dyn Sink>, cancelled: &Arc<AtomicBool>) {
        if let Some(sinks) = &self.sinks {
            // Should the thread have panicked, which was printed, the batch ends as it would without it.
            let _ = sinks.send((sink.clone(), cancelled.clone()));
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.sinks = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
