//! The writer of a shard: divides rows among its connections, each of which has a thread.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use tidemill_block::Block;
use tidemill_connect::{Committable, ConnectError, Visible, Writer, WriterStats};

use super::arrivals::Told;
use super::mailbox::{Limits, Mailbox, Work};
use super::{Lane, batch};

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
}

struct LaneThread {
    mailbox: Arc<Mailbox>,
    thread: Option<JoinHandle<()>>,
}

impl JdbcWriter {
    /// A writer over these connections, which tell `told`.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn new(
        lanes: Vec<Box<dyn Lane>>,
        key: Vec<usize>,
        limits: Limits,
        told: Told,
        cancelled: Arc<AtomicBool>,
    ) -> Result<Self, ConnectError> {
        let mut threads = Vec::with_capacity(lanes.len());
        for lane in lanes {
            let mailbox = Arc::new(Mailbox::new(limits));
            let theirs = mailbox.clone();
            let thread = std::thread::Builder::new().name("tidemill-jdbc".into()).spawn(move || serve(lane, &theirs));
            let thread = thread.map_err(|e| ConnectError::io("starting the thread of a connection", &e))?;
            threads.push(LaneThread { mailbox, thread: Some(thread) });
        }
        Ok(JdbcWriter { lanes: threads, key, next: 0, bytes: 0, told, cancelled })
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
            all.extend(answer.recv().map_err(|_| lane.mailbox.failure())?);
        }
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
        for lane in &mut self.lanes {
            if let Some(thread) = lane.thread.take() {
                // It has said why in the mailbox.
                let _ = thread.join();
            }
        }
    }
}
