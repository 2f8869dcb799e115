//! Operators that wait for something outside: answers to calls, a process, the clock.
//!
//! They emit when the answer is there and not when a block comes, so the worker asks them in each round
//! ([`Worker::poll_waiters`]). One that is full closes what leads to it: within the worker neither
//! sources nor inboxes are read for it, and the senders to those inboxes are told to hold back, so that
//! what can come after a barrier is bounded however long an answer takes. What lies before a barrier is
//! taken even so, else a checkpoint would wait for the other side of a network. Edges go one way and
//! answers depend on nothing in the job, so somebody can always proceed.
//!
//! Where no checkpoint outlives the process, a barrier waits until such an operator holds no rows:
//! sources commit what a barrier covers, and the rows would be lost. So it does, wherever checkpoints are,
//! with operators that [drain](tidemill_operator::Operator::drains).

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidemill_block::{NO_WATERMARK, WATERMARK_END, clock};
use tidemill_operator::{Output, Progress};

use super::{Body, Instance, LONG_NAP, NAP, Route, Worker};
use crate::JobError;

/// The least time a worker sleeps when something is due: time that has passed already while there is no
/// room for what comes of it must not make it spin.
const NAP_MIN: Duration = Duration::from_micros(50);

/// What a worker knows of an operator that waits.
pub(super) struct Waiter {
    /// It has not yet done with its watermark, and is asked again.
    again: bool,
    /// The watermark its consumers know.
    emitted: i64,
    /// The barrier that waits for its rows.
    barrier: Option<u64>,
}

impl Default for Waiter {
    fn default() -> Self {
        Waiter { again: false, emitted: NO_WATERMARK, barrier: None }
    }
}

impl Instance {
    /// Whether rows wait in the node for something outside.
    pub(super) fn holds(&self) -> bool {
        self.waiter.is_some() && matches!(&self.body, Body::Operator(operator) if operator.holds())
    }

    /// Whether the node is to be given nothing new.
    fn is_full(&self) -> bool {
        let Some(waiter) = &self.waiter else { return false };
        waiter.barrier.is_some() || matches!(&self.body, Body::Operator(operator) if operator.full())
    }
}

/// For each node the waiting operators that rows given to it reach without leaving the worker, itself
/// included.
pub(super) fn leads(nodes: &[Option<Instance>]) -> Vec<Vec<usize>> {
    let mut leads: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    // Consumers come after their inputs.
    for (index, node) in nodes.iter().enumerate().rev() {
        let Some(node) = node else { continue };
        let mut reached: Vec<usize> = if node.waiter.is_some() { vec![index] } else { Vec::new() };
        for out in node.outs.iter().filter(|o| matches!(o.route, Route::Local | Route::BadRecords)) {
            reached.extend(&leads[out.node]);
        }
        reached.sort_unstable();
        reached.dedup();
        leads[index] = reached;
    }
    leads
}

impl Worker {
    /// Whether rows given to this node would reach an operator that is full.
    pub(super) fn blocked(&self, node: usize) -> bool {
        self.leads[node].iter().any(|w| self.nodes[*w].as_ref().is_some_and(Instance::is_full))
    }

    /// Whether the inboxes of a node are not to be read for now. What lies before the barrier of a
    /// checkpoint that is under way is read in any case.
    pub(super) fn closed(&self, node: usize) -> bool {
        let before_barrier = || self.snapshot.is_some() && self.nodes[node].as_ref().is_some_and(|n| n.passed < self.barrier);
        self.blocked(node) && !before_barrier()
    }

    /// Asks the operators that wait what has come for them; whether anything has.
    pub(super) fn poll_waiters(&mut self) -> Result<bool, JobError> {
        if self.waiters.is_empty() {
            return Ok(false);
        }
        let mut worked = false;
        for at in 0..self.waiters.len() {
            let index = self.waiters[at];
            if self.may_give(index) {
                worked |= self.poll_waiter(index)?;
            }
        }
        self.hold_senders();
        Ok(worked)
    }

    /// Whether a waiting operator may emit: what it gives needs room, in queues and in operators behind it, and
    /// writers that the last checkpoint has not closed. What waits behind that one stands in it.
    fn may_give(&self, index: usize) -> bool {
        let shared = &self.shared;
        let passed = |id: u64| self.nodes[index].as_ref().is_some_and(|n| n.passed >= id);
        let over = shared.last.load(Ordering::Acquire) && passed(shared.checkpoint.load(Ordering::Acquire));
        let full_behind = || self.leads[index].iter().any(|w| *w != index && self.nodes[*w].as_ref().is_some_and(Instance::is_full));
        !over && !full_behind() && self.downstream_has_room(index)
    }

    fn poll_waiter(&mut self, index: usize) -> Result<bool, JobError> {
        let Some(Instance { body: Body::Operator(operator), .. }) = &mut self.nodes[index] else { return Ok(false) };
        let mut out = Output { blocks: self.buffers.pop().unwrap_or_default() };
        if let Err(e) = operator.poll(&mut out) {
            return Err(self.failed(index, e));
        }
        let worked = !out.blocks.is_empty();
        self.pass_on(index, out)?;
        let node = self.nodes[index].as_ref().expect("polled above");
        if node.waiter.as_ref().is_some_and(|w| w.again) {
            self.pass_watermark(index)?;
        } else if node.watermark != WATERMARK_END {
            self.pass_waiter(index, Progress::Done)?;
        }
        let node = self.nodes[index].as_ref().expect("as above");
        if node.idle != (node.channels.iter().all(|c| c.idle) && !node.holds()) {
            self.combine(index)?;
        }
        let node = self.nodes[index].as_mut().expect("as above");
        let holds = node.holds();
        if !holds && let Some(id) = node.waiter.as_mut().and_then(|w| w.barrier.take()) {
            self.barrier(index, id)?;
            return Ok(true);
        }
        Ok(worked)
    }

    /// Tells a node's operator its watermark, and its consumers what has come of it.
    pub(super) fn pass_watermark(&mut self, index: usize) -> Result<(), JobError> {
        let watermark = self.nodes[index].as_ref().expect("a node of this worker").watermark;
        let mut progress = Progress::More;
        while progress == Progress::More {
            progress = Progress::Done;
            let Body::Operator(operator) = &mut self.nodes[index].as_mut().expect("as above").body else { break };
            let mut out = Output { blocks: self.buffers.pop().unwrap_or_default() };
            progress = match operator.on_watermark(watermark, &mut out) {
                Ok(progress) => progress,
                Err(e) => return Err(self.failed(index, e)),
            };
            self.pass_on(index, out)?;
        }
        let node = self.nodes[index].as_ref().expect("as above");
        if node.waiter.is_some() {
            return self.pass_waiter(index, progress);
        }
        if progress == Progress::Waiting {
            return Err(self.failed(index, "internal error: it waits, but did not say that it would"));
        }
        let passed = match &node.body {
            Body::Operator(operator) if watermark != WATERMARK_END => operator.output_watermark(watermark),
            _ => watermark,
        };
        self.advance(index, passed)?;
        if watermark == WATERMARK_END {
            self.finish(index);
        }
        Ok(())
    }

    /// Passes on how far the output of an operator that waits has come. `progress` is what it made of
    /// its own watermark.
    pub(super) fn pass_waiter(&mut self, index: usize, progress: Progress) -> Result<(), JobError> {
        let node = self.nodes[index].as_mut().expect("a node of this worker");
        let watermark = node.watermark;
        let (Body::Operator(operator), Some(waiter)) = (&node.body, &mut node.waiter) else { return Ok(()) };
        waiter.again = progress == Progress::Waiting;
        let reached = if watermark == WATERMARK_END && !waiter.again { watermark } else { operator.output_watermark(watermark) };
        // One that is not done with a watermark has not come so far, even if it does not say how far.
        if reached > waiter.emitted && !(waiter.again && reached >= watermark) {
            waiter.emitted = reached;
            self.advance(index, reached)?;
        }
        if watermark == WATERMARK_END && progress != Progress::Waiting {
            self.finish(index);
        }
        Ok(())
    }

    /// All channels of a node have the barrier.
    pub(super) fn aligned(&mut self, index: usize, id: u64) -> Result<(), JobError> {
        let node = self.nodes[index].as_mut().expect("a node of this worker");
        let drains = matches!(&node.body, Body::Operator(operator) if operator.drains());
        if (drains || !self.shared.durable)
            && node.holds()
            && let Some(waiter) = &mut node.waiter
        {
            waiter.barrier = Some(id);
            return Ok(());
        }
        self.barrier(index, id)
    }

    /// Tells other workers which of their queues to this one are not being read, and when they are again.
    fn hold_senders(&mut self) {
        for (at, (node, _, input)) in self.inboxes.iter().enumerate() {
            if self.leads[*node].is_empty() {
                continue;
            }
            let closed = self.blocked(*node);
            if closed == self.held[at] {
                continue;
            }
            self.held[at] = closed;
            for (sender, queue) in self.shared.queues[&(*node, *input)][self.shard].iter().enumerate() {
                queue.hold(closed);
                if !closed {
                    self.shared.signals[sender].raise();
                }
            }
        }
    }

    /// How long to sleep when there is nothing to do.
    pub(super) fn nap(&self) -> Duration {
        let due = self.waiters.iter().filter_map(|w| match &self.nodes[*w].as_ref()?.body {
            // One that may not emit now is not asked, whatever it has to do.
            Body::Operator(operator) => operator.due().filter(|_| self.may_give(*w)),
            _ => None,
        });
        let most = if self.is_calm() { LONG_NAP } else { NAP };
        match due.min() {
            None => most,
            Some(due) => Duration::from_nanos(due.saturating_sub(clock::now_ns())).clamp(NAP_MIN, most),
        }
    }

    /// Whether whatever there will be to do raises the signal. A source may have rows in silence, and a queue room; a program
    /// that is at its end goes in silence, too, and programs are what drains.
    fn is_calm(&self) -> bool {
        let at_end = |index: usize| match self.nodes[index].as_ref() {
            Some(Instance { body: Body::Source(task), .. }) => task.ended,
            Some(node) => node.finished,
            None => true,
        };
        let ends = |index: usize| {
            let node = self.nodes[index].as_ref();
            let program = |n: &Instance| matches!(&n.body, Body::Operator(operator) if operator.drains());
            node.is_some_and(|n| n.watermark == WATERMARK_END && n.waiter.as_ref().is_some_and(|w| w.again) && !n.finished && program(n))
        };
        let sources = &self.sources;
        !self.waiters.iter().any(|waiter| ends(*waiter))
            && self.snapshot.is_none()
            && self.writing.is_empty()
            && sources.iter().all(|s| at_end(*s) || self.blocked(*s))
            && self.has_room()
    }
}
