//! How a worker rests: it passes on what it has gathered, then sleeps until somebody raises its signal, until an
//! operator has something to do, or until there is something to read in a socket that a reader has it wait for. So the
//! bytes of a connection can wake the worker itself, and not a thread that then wakes the worker.
//!
//! A worker that always has something to do never sleeps. What else belongs to a rest it does even so, now and then
//! ([`Worker::pause`]): else a source that once had nothing would not be asked again, and the few rows of one pipeline
//! would wait for an end of another's.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidemill_block::clock;

use super::{Body, Event, Instance, NAP, Worker};
use crate::JobError;

static AT_REST: OnceLock<fn()> = OnceLock::new();

/// What each thread of a job calls before it sleeps, workers and coordinator, so up to thousands of times a second and from
/// several threads at once: for a process that has something to tidy up when there is time. The first call counts.
pub fn at_rest(what: fn()) {
    // Whoever came first keeps it.
    let _ = AT_REST.set(what);
}

static WHEN_SHORT: OnceLock<fn(bool)> = OnceLock::new();

/// What a job calls when the process comes near its limit, before state has to give way: for a process that keeps free memory for a
/// while. It is told if it was called just before, and that was not enough. The first call counts.
pub fn when_short(what: fn(again: bool)) {
    // Whoever came first keeps it.
    let _ = WHEN_SHORT.set(what);
}

/// Has free memory go back to the system, if that was asked for; `again` since once was not enough.
pub(crate) fn give_back(again: bool) {
    if let Some(what) = WHEN_SHORT.get() {
        what(again);
    }
}

/// Calls what was asked for.
pub(crate) fn tidy_up() {
    if let Some(what) = AT_REST.get() {
        what();
    }
}

impl Worker {
    /// Nothing to do at the moment: passes on what was gathered, then sleeps. `reads` says whether sources are polled.
    pub(super) fn rest(&mut self, reads: bool) -> Result<(), JobError> {
        self.emit_watermarks()?;
        self.flush_exchanges(None)?;
        if std::mem::take(&mut self.dirty) {
            for node in self.nodes.iter_mut().flatten() {
                if let Body::Sink(sink) = &mut node.body {
                    sink.flush()?;
                }
            }
        }
        self.ask_for_checkpoint();
        self.sleep(reads);
        self.last_rest_ns = clock::now_ns();
        self.look_around();
        Ok(())
    }

    /// As [`Worker::rest`], but there is something to do. As often as it would wake up if there were nothing of which anybody tells.
    pub(super) fn pause(&mut self, now_ns: u64) -> Result<(), JobError> {
        if now_ns.saturating_sub(self.last_rest_ns) < NAP.as_nanos() as u64 {
            return Ok(());
        }
        self.last_rest_ns = now_ns;
        // Whoever polls sources has done it. But they may have nothing while other workers send much: that they are
        // idle must be known even so.
        let interval = self.shared.settings.watermark_interval.max(NAP);
        if now_ns.saturating_sub(self.last_watermark_ns) >= interval.as_nanos() as u64 {
            self.emit_watermarks()?;
        }
        self.flush_exchanges(None)?;
        for node in self.nodes.iter_mut().flatten() {
            if let Body::Sink(sink) = &mut node.body {
                sink.flush_if_quiet()?;
            }
        }
        self.look_around();
        Ok(())
    }

    /// Tells the coordinator if somebody waits for what was read to be committed: it looks itself, too, but not as often. Once
    /// a checkpoint, and not while one is under way: who waits for that one waits for no other.
    fn ask_for_checkpoint(&mut self) {
        if self.asked_at == Some(self.barrier) || self.shared.committed.load(Ordering::Acquire) != self.barrier {
            return;
        }
        let asks = |index: &usize| {
            let node = self.nodes[*index].as_ref();
            node.is_some_and(|node| matches!(&node.body, Body::Source(task) if task.wants_checkpoint()))
        };
        if self.sources.iter().any(asks) {
            self.asked_at = Some(self.barrier);
            let _ = self.events.send(Event::CheckpointAsked(self.barrier));
        }
    }

    /// Sources that had nothing may have something now, and there may be new splits.
    fn look_around(&mut self) {
        for index in &self.sources {
            if let Some(Instance { body: Body::Source(task), .. }) = &mut self.nodes[*index] {
                task.wake();
            }
        }
        let mut discovered = self.shared.discovered.lock().expect("no panic while held");
        for index in &self.sources {
            if let Some(splits) = discovered.remove(&(*index, self.shard))
                && let Some(Instance { body: Body::Source(task), .. }) = &mut self.nodes[*index]
            {
                splits.into_iter().for_each(|s| task.add(s));
            }
        }
    }

    /// Sleeps. `reads` says whether sources are polled afterwards; if not, their sockets are left alone, since
    /// what lies in them would not let the worker sleep.
    fn sleep(&mut self, reads: bool) {
        let nap = self.nap();
        self.sockets.clear();
        if reads {
            for at in 0..self.sources.len() {
                let index = self.sources[at];
                if !self.blocked(index)
                    && let Some(Instance { body: Body::Source(task), .. }) = &mut self.nodes[index]
                {
                    task.wait_on(&mut self.sockets);
                }
            }
        }
        tidy_up();
        let signal = &self.shared.signals[self.shard];
        let begun_ns = clock::now_ns();
        let time = self.busy.time().min(nap);
        if time.is_zero() || !signal.poll_busily(&mut self.sockets, time) {
            signal.wait(&mut self.sockets, nap.saturating_sub(time));
        }
        self.busy.waited(clock::now_ns().saturating_sub(begun_ns));
    }
}

/// So many waits one after the other that were too long, and nothing is expected soon.
const LONG_WAITS: u32 = 4;

/// Whether to look busily for what comes.
pub(super) struct Busy {
    /// For so long at most.
    most: Duration,
    /// Waits that were longer than that, one after the other.
    long_waits: u32,
}

impl Busy {
    /// Looks for so long at most; never if that is zero.
    pub fn new(most: Duration) -> Self {
        Busy { most, long_waits: LONG_WAITS }
    }

    /// For how long to look before sleeping.
    fn time(&self) -> Duration {
        if self.long_waits < LONG_WAITS { self.most } else { Duration::ZERO }
    }

    /// Takes note of how long it was until there was something, with and without sleep, ns.
    fn waited(&mut self, waited_ns: u64) {
        let long = u128::from(waited_ns) > self.most.as_nanos();
        self.long_waits = if long { self.long_waits.saturating_add(1) } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_looks_busily_while_that_is_of_use() {
        let most = Duration::from_micros(200);
        let mut busy = Busy::new(most);
        assert_eq!(busy.time(), Duration::ZERO, "nothing has come so far");
        busy.waited(150_000);
        assert_eq!(busy.time(), most);
        (1..LONG_WAITS).for_each(|_| busy.waited(5_000_000));
        assert_eq!(busy.time(), most, "a pause");
        busy.waited(5_000_000);
        assert_eq!(busy.time(), Duration::ZERO, "more than a pause");
        let mut never = Busy::new(Duration::ZERO);
        (0..10).for_each(|_| never.waited(1_000));
        assert_eq!(never.time(), Duration::ZERO);
    }
}
