//! Connections that are lent to a reader: while the worker sleeps it waits for their sockets itself, then reads and
//! decodes where it goes on to work.
//!
//! A frame that comes by way of the connection's thread takes two switches, to the thread and from there to the
//! worker; one that comes this way takes one, and small frames are mostly switches. With much to do it is the
//! other way round: then decoding shall run beside the operators, and the thread gets the connection back. How
//! much there is to do is seen by what lies in the socket whenever somebody comes to read it, so neither side
//! needs to know of the other's.
//!
//! The reader only does what is done for every frame: everything else that may come, frames for other channels,
//! bytes that are no frames, the end of the connection, is left as it is and given back to the thread, which alone may
//! wait or report. And the thread takes its connection back from a reader that does not look at it for a while
//! ([`UNSEEN`]), whose worker is held up by a sink, say: there may be frames for others in it.
//!
//! Of small frames that come fast it lets some gather before it reads ([`Pace`]). Of others it takes a copy first, works that off,
//! and takes them out of the socket before it sleeps: taking them out has the system send an acknowledgement and work it off on
//! the publisher's side, some microseconds for which rows would wait.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tidemill_block::clock;

use super::channel::{Channel, LENT_MAX};
use super::connection::{BATCH_ROWS, Intake};
use super::decode::{Batcher, Place};
use super::frame::{Cut, split};
use super::listener::Shared;
use super::pace::{HEAVY_BYTES, Pace};
use crate::sockets::{discard_now, receive_now};
use crate::{Rows, Sockets, Watched};

/// For so long a reader may leave a connection alone. One that sleeps looks every few milliseconds.
const UNSEEN: Duration = Duration::from_millis(100);
/// So many heavy reads one after the other, and the connection is given back.
const HEAVY_READS: u32 = 4;
/// After a read of so many bytes more may well have come by the time that they are worked off; after fewer it is
/// cheaper to go to sleep and to be woken at once.
const AGAIN_BYTES: usize = 4 << 10;
/// A connection that was silent for so long makes room for another when there are as many as there may be, ns.
const SILENT_NS: u64 = 1_000_000_000;

/// What is lent.
pub struct Loan {
    /// The connection, in the mode that a thread wants.
    pub stream: TcpStream,
    /// What has come.
    pub intake: Intake,
}

/// A connection between its thread and a reader.
pub struct Lent {
    peer: String,
    socket: RawFd,
    watched: Arc<Watched>,
    /// The thread has it again, or shall have it. Changes under the lock only.
    back: AtomicBool,
    state: Mutex<State>,
    given_back: Condvar,
}

struct State {
    /// Until the thread takes it.
    loan: Option<Loan>,
    /// How it ended.
    end: Option<io::Result<usize>>,
    heavy_reads: u32,
    pace: Pace,
    /// So many bytes of what was read are still in the socket.
    left: usize,
}

impl State {
    /// Takes out of the socket what was read. How the connection ended, if it has.
    fn settle(&mut self) -> Option<io::Result<usize>> {
        let left = std::mem::take(&mut self.left);
        let loan = self.loan.as_ref().filter(|_| left > 0)?;
        discard_now(&loan.stream, left).err().map(Err)
    }
}

impl Lent {
    /// A connection of `peer`.
    pub fn new(loan: Loan, peer: &str) -> Self {
        Lent {
            peer: peer.to_string(),
            socket: loan.stream.as_raw_fd(),
            watched: Arc::new(Watched::new()),
            back: AtomicBool::new(false),
            state: Mutex::new(State { loan: Some(loan), end: None, heavy_reads: 0, pace: Pace::new(clock::now_ns()), left: 0 }),
            given_back: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_back(&self) -> bool {
        self.back.load(Ordering::Relaxed)
    }

    /// Gives the connection back; with how it ended, if it has.
    pub fn give_back(&self, end: Option<io::Result<usize>>) {
        self.give_back_locked(self.lock(), end);
    }

    fn give_back_locked(&self, mut state: MutexGuard<'_, State>, end: Option<io::Result<usize>>) {
        if !self.is_back() {
            state.end = state.settle().or(end);
            self.back.store(true, Ordering::Relaxed);
            drop(state);
            self.given_back.notify_one();
        }
    }

    /// For the thread: waits until it is given back, or takes it back. With how it ended, if it has: silence of `silence_max`
    /// in the middle of a frame is such an end.
    pub fn returned(&self, silence_max: Duration) -> (Loan, Option<io::Result<usize>>) {
        let mut state = self.lock();
        while !self.is_back() {
            state = self.given_back.wait_timeout(state, UNSEEN).unwrap_or_else(PoisonError::into_inner).0;
            let now_ns = clock::now_ns();
            if now_ns.saturating_sub(self.watched.seen_ns()) > UNSEEN.as_nanos() as u64 {
                state.end = state.settle();
                self.back.store(true, Ordering::Relaxed);
            } else if !self.is_back()
                && now_ns.saturating_sub(state.pace.read_ns()) > silence_max.as_nanos() as u64
                && state.loan.as_ref().is_some_and(|loan| !loan.intake.assembly.data().is_empty())
            {
                state.end = state.settle().or(Some(Err(ErrorKind::TimedOut.into())));
                self.back.store(true, Ordering::Relaxed);
            }
        }
        let end = state.end.take();
        (state.loan.take().expect("lent once and taken back once"), end)
    }

    /// Takes out of the socket what was read.
    fn settle(&self) {
        let mut state = self.lock();
        if let Some(end) = state.settle() {
            self.give_back_locked(state, Some(end));
        }
    }

    /// Reads what has come, at `since_ns` or later; false if the connection is with its thread again.
    fn read(&self, since_ns: u64, desk: &mut Desk, rows: &mut VecDeque<Rows>) -> bool {
        let mut state = self.lock();
        if let Some(end) = state.settle() {
            self.give_back_locked(state, Some(end));
            return false;
        }
        let copies = state.pace.is_slow();
        let Some(loan) = state.loan.as_mut().filter(|_| !self.is_back()) else { return false };
        let Some(space) = loan.intake.assembly.try_space(desk.shared.buffer_bytes_max(), desk.shared.frame_bytes_max()) else {
            // The thread may wait for room, we may not.
            self.give_back_locked(state, None);
            return false;
        };
        let room = space.len();
        let received = receive_now(&loan.stream, space, copies);
        let now_ns = clock::now_ns();
        self.watched.look(now_ns);
        match received {
            Err(e) if e.kind() == ErrorKind::WouldBlock => true,
            Ok(bytes) if bytes > 0 => {
                loan.intake.assembly.advance(bytes);
                let before = desk.frames;
                let ours = desk.work_off(&mut loan.intake, &self.peer, since_ns, now_ns, rows);
                state.left = if copies { bytes } else { 0 };
                state.pace.note(now_ns, desk.frames - before, bytes);
                state.heavy_reads = if bytes >= HEAVY_BYTES || bytes == room { state.heavy_reads + 1 } else { 0 };
                if !ours || state.heavy_reads == HEAVY_READS {
                    self.give_back_locked(state, None);
                    return false;
                }
                if bytes == room {
                    // The rest has been there for as long.
                    self.watched.note(since_ns);
                } else if bytes >= AGAIN_BYTES {
                    self.watched.note(now_ns);
                }
                true
            }
            end => {
                self.give_back_locked(state, Some(end));
                false
            }
        }
    }
}

/// What a reader works off frames with.
struct Desk<'a> {
    shared: &'a Shared,
    channel: &'a Channel,
    batcher: &'a mut Batcher,
    /// Worked off.
    frames: u64,
}

impl Desk<'_> {
    /// Makes rows of the complete frames; false if there is something else at the beginning of what is left then.
    fn work_off(&mut self, intake: &mut Intake, peer: &str, since_ns: u64, now_ns: u64, rows: &mut VecDeque<Rows>) -> bool {
        let (buffer, bytes_max) = (intake.assembly.data(), self.shared.frame_bytes_max());
        let (name, has_clock, now_ms) = (self.channel.name().as_bytes(), self.channel.layout().has_clock(), clock::wall_ms());
        let mut finish = |batcher: &mut Batcher| {
            let Some(mut batch) = batcher.finish(buffer, peer, now_ms, now_ns) else { return };
            if !has_clock {
                batch.arrival_ns = since_ns;
            }
            rows.push_back(batch);
        };
        let mut at = 0;
        let ours = loop {
            match split(&buffer[at..], bytes_max) {
                Ok(Cut::More(_)) => break true,
                Ok(Cut::Frame(frame)) if buffer[at + frame.channel..at + frame.channel_end] == *name => {
                    intake.frames += 1;
                    let place = Place { peer, number: intake.frames, offset: intake.offset + at as u64 };
                    if self.batcher.is_apart(buffer, at, &frame) {
                        finish(self.batcher);
                    }
                    self.batcher.add(buffer, at, &frame, place);
                    self.frames += 1;
                    at += frame.length;
                    if self.batcher.rows() >= BATCH_ROWS {
                        finish(self.batcher);
                    }
                }
                Ok(Cut::Frame(_)) | Err(_) => break false,
            }
        };
        finish(self.batcher);
        intake.assembly.consume(at);
        intake.offset += at as u64;
        ours
    }
}

/// The connections that a reader has been lent. They are given back when it ends.
pub struct Borrowed {
    connections: Vec<Arc<Lent>>,
    batcher: Batcher,
}

impl Borrowed {
    /// None yet; their frames will be made into batches by `batcher`.
    pub fn new(batcher: Batcher) -> Self {
        Borrowed { connections: Vec::new(), batcher }
    }

    /// Where further ones are put.
    pub fn incoming(&mut self) -> &mut Vec<Arc<Lent>> {
        &mut self.connections
    }

    /// Has the worker wait for them.
    pub fn wait_on(&mut self, sockets: &mut Sockets) {
        if self.connections.len() >= LENT_MAX {
            let now_ns = clock::now_ns();
            for lent in &self.connections {
                let state = lent.lock();
                if now_ns.saturating_sub(state.pace.read_ns()) > SILENT_NS {
                    lent.give_back_locked(state, None);
                }
            }
        }
        // Before the worker sleeps: what is in a socket would wake it.
        self.connections.iter().for_each(|lent| lent.settle());
        self.connections.retain(|lent| !lent.is_back());
        self.connections.iter().for_each(|lent| sockets.add(lent.socket, &lent.watched));
    }

    /// Reads those in which there is something, of which the reader's table is `channel`.
    pub fn read(&mut self, shared: &Shared, channel: &Channel, rows: &mut VecDeque<Rows>) {
        if !self.connections.iter().any(|lent| lent.watched.is_noted()) {
            return;
        }
        self.gather();
        let mut desk = Desk { shared, channel, batcher: &mut self.batcher, frames: 0 };
        self.connections.retain(|lent| lent.watched.take().is_none_or(|since_ns| lent.read(since_ns, &mut desk, rows)));
    }

    /// Lets frames gather where those of a connection in which there is something come fast.
    fn gather(&self) {
        let begun_ns = clock::now_ns();
        let noted = || self.connections.iter().filter(|lent| lent.watched.is_noted());
        // Of several the one that was read first has waited longest.
        let pause_ns = noted().filter_map(|lent| lent.lock().pace.pause_ns(begun_ns)).min().unwrap_or(0);
        if pause_ns == 0 {
            return;
        }
        thread::sleep(Duration::from_nanos(pause_ns));
        let ended_ns = clock::now_ns();
        for lent in noted() {
            let mut state = lent.lock();
            if state.pace.pause_ns(begun_ns).is_some() {
                state.pace.paused(ended_ns - begun_ns);
            }
        }
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        self.connections.iter().for_each(|lent| lent.give_back(None));
    }
}
