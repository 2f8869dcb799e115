//! The writer of a shard: divides rows among its connections, each of which has a thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidemill_block::Block;
use tidemill_connect::{Committable, ConnectError, Visible, Writer, WriterStats};

use super::arrivals::Told;
use super::mailbox::{CANCEL_CHECK, Limits, Mailbox, Work};
use super::{Lane, batch};

/// How long a writer whose rows are not wanted any more waits for a server. A statement that waits for a lock is then left to itself:
/// what ends the job shall be known, and the server rolls back what is left.
const LEAVE_AFTER: Duration = Duration::from_secs(3);
/// How often it looks meanwhile.
const LOOK: Duration = Duration::from_millis(5);

/// See the module.
pub(super) struct JdbcWriter {
    lanes: Vec<LaneThread>,
    /// The columns of the key; empty: rows are appended.
    key: Vec<usize>,
    /// The lane whose turn it is, where rows have no key.
    next: usize,
    bytes: u64,
    /// Whom the lanes tell of what is committed.
    told: Told,
    cancelled: Arc<AtomicBool>,
    /// It is waited for to its end, however long that takes ([`Driver::in_process`](crate::driver::Driver::in_process)).
    in_process: bool,
    /// Rows came behind the last that were made safe.
    dirty: bool,
}

struct LaneThread {
    mailbox: Arc<Mailbox>,
    thread: Option<JoinHandle<()>>,
}

impl JdbcWriter {
    /// A writer of table `owner`, as messages have it, over these connections, which tell `told`.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn new(
        (owner, in_process): (&str, bool),
        lanes: Vec<Box<dyn Lane>>,
        key: Vec<usize>,
        limits: Limits,
        told: Told,
        cancelled: Arc<AtomicBool>,
    ) -> Result<Self, ConnectError> {
        let mut threads = Vec::with_capacity(lanes.len());
        for lane in lanes {
            let mailbox = Arc::new(Mailbox::new(limits).of(owner));
            let theirs = mailbox.clone();
            let thread = std::thread::Builder::new().name("tidemill-jdbc".into()).spawn(move || serve(lane, &theirs));
            let thread = thread.map_err(|e| ConnectError::io("starting the thread of a connection", &e))?;
            threads.push(LaneThread { mailbox, thread: Some(thread) });
        }
        Ok(JdbcWriter { lanes: threads, key, next: 0, bytes: 0, told, cancelled, in_process, dirty: false })
    }
}

impl JdbcWriter {
    /// What a connection has made safe. Of a job that has failed nobody needs it any more.
    fn answer(&self, mailbox: &Mailbox, answer: &Receiver<Vec<Committable>>) -> Result<Vec<Committable>, ConnectError> {
        loop {
            match answer.recv_timeout(CANCEL_CHECK) {
                Ok(safe) => return Ok(safe),
                Err(RecvTimeoutError::Disconnected) => return Err(mailbox.failure()),
                Err(RecvTimeoutError::Timeout) if self.cancelled.load(Ordering::Relaxed) => {
                    return Err(ConnectError::new("the job is being stopped"));
                }
                Err(RecvTimeoutError::Timeout) => mailbox.tell_if_slow(),
            }
        }
    }
}

/// Marks a mailbox as failed when its thread ends in any way.
struct Ends<'a>(&'a Mailbox);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        // An earlier reason stays.
        self.0.fail("internal error: the thread of a connection has ended; its message is above".into());
    }
}

/// Does what comes until nothing more will, or something fails.
fn serve(mut lane: Box<dyn Lane>, mailbox: &Mailbox) {
    let _ends = Ends(mailbox);
    while let Some(Work { blocks, prepare }) = mailbox.take() {
        let work = || {
            if !blocks.is_empty() {
                lane.write(blocks)?;
            }
            if let Some(done) = &prepare {
                // Nobody waits for it if the job has failed meanwhile.
                drop(done.send(lane.prepare()?));
            }
            Ok::<_, ConnectError>(())
        };
        if let Err(e) = work() {
            // Before `prepare` is dropped, so that who finds it closed finds the reason.
            mailbox.fail(e.to_string());
            return;
        }
    }
}

impl Writer for JdbcWriter {
    fn write(&mut self, block: &Block) -> Result<(), ConnectError> {
        if block.rows() == 0 {
            return Ok(());
        }
        self.bytes += batch::bytes(&block.batch) as u64;
        self.dirty = true;
        self.lanes.iter().for_each(|lane| lane.mailbox.tell_if_slow());
        let lanes = self.lanes.len();
        if lanes == 1 || self.key.is_empty() {
            self.next = (self.next + 1) % lanes;
            return self.lanes[self.next].mailbox.push(block.clone(), &self.cancelled);
        }
        for (part, lane) in batch::divide(block, &self.key, lanes)?.into_iter().zip(&self.lanes) {
            if part.rows() > 0 {
                lane.mailbox.push(part, &self.cancelled)?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ConnectError> {
        self.lanes.iter().try_for_each(|lane| lane.mailbox.flush())
    }

    fn tell_visible(&mut self, visible: Visible) -> bool {
        self.told.ask(visible);
        true
    }

    fn prepare(&mut self, _last: bool) -> Result<Vec<Committable>, ConnectError> {
        // All at once, then one after the other: they work in parallel.
        let mut answers = Vec::with_capacity(self.lanes.len());
        for lane in &self.lanes {
            let (done, answer) = channel();
            lane.mailbox.prepare(done);
            answers.push((lane, answer));
        }
        let mut all = Vec::new();
        for (lane, answer) in answers {
            all.extend(self.answer(&lane.mailbox, &answer)?);
        }
        self.dirty = false;
        Ok(all)
    }

    fn stats(&self) -> WriterStats {
        WriterStats { bytes: self.bytes }
    }
}

impl Drop for JdbcWriter {
    /// What was not prepared is not wanted any more.
    fn drop(&mut self) {
        self.lanes.iter().for_each(|lane| lane.mailbox.close());
        // Where everything is safe, connections are closed and no more.
        let patient = self.in_process || !self.dirty;
        let begun = Instant::now();
        for lane in &mut self.lanes {
            let Some(thread) = lane.thread.take() else { continue };
            while !patient && !thread.is_finished() && begun.elapsed() < LEAVE_AFTER {
                std::thread::sleep(LOOK);
            }
            if patient || thread.is_finished() {
                // It has said why in the mailbox.
                let _ = thread.join();
            }
        }
    }
}

#[cfg(test)]
mod tests;
