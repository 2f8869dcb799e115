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
//! A publisher that writes small frames one by one, as fast as it can, pays for each time that the reader goes to sleep:
//! its next write has to wake it. So while frames of one connection come that fast the reader lets some gather ([`GATHER_NS`])
//! before it reads.

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
use crate::sockets::receive_now;
use crate::{Rows, Sockets, Watched};

/// For so long a reader may leave a connection alone. One that sleeps looks every few milliseconds.
const UNSEEN: Duration = Duration::from_millis(100);
/// A read of so many bytes, or of all that there was room for, is a heavy one.
const HEAVY_BYTES: usize = 32 << 10;
/// So many heavy reads one after the other, and the connection is given back.
const HEAVY_READS: u32 = 4;
/// After a read of so many bytes more may well have come by the time that they are worked off; after fewer it is
/// cheaper to go to sleep and to be woken at once.
const AGAIN_BYTES: usize = 4 << 10;
/// Frames that are no further apart come fast, ns: about what a write of one and the waking of its reader take.
const FAST_NS: u64 = 15_000;
/// After so many reads of frames that came fast, none of them a heavy one, the reader lets frames gather,
const FAST_READS: u32 = 32;
/// for so long, counted from the read before, ns. The system makes it up to twice as long.
const GATHER_NS: u64 = 50_000;
/// A pause that became as long as this was none of ours, ns: some systems know no shorter one than a millisecond.
const OVERSLEPT_NS: u64 = 400_000;
/// The most reads of frames that came fast that are asked for before the next pause: some 15 s of them.
const FAST_READS_MAX: u32 = 1 << 20;
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
}

impl Lent {
    /// A connection of `peer`.
    pub fn new(loan: Loan, peer: &str) -> Self {
        Lent {
            peer: peer.to_string(),
            socket: loan.stream.as_raw_fd(),
            watched: Arc::new(Watched::new()),
            back: AtomicBool::new(false),
            state: Mutex::new(State { loan: Some(loan), end: None, heavy_reads: 0, pace: Pace::new(clock::now_ns()) }),
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
            state.end = end;
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
                self.back.store(true, Ordering::Relaxed);
            } else if !self.is_back()
                && now_ns.saturating_sub(state.pace.read_ns) > silence_max.as_nanos() as u64
                && state.loan.as_ref().is_some_and(|loan| !loan.intake.assembly.data().is_empty())
            {
                state.end = Some(Err(ErrorKind::TimedOut.into()));
                self.back.store(true, Ordering::Relaxed);
            }
        }
        let end = state.end.take();
        (state.loan.take().expect("lent once and taken back once"), end)
    }

    /// Reads what has come, at `since_ns` or later; false if the connection is with its thread again.
    fn read(&self, since_ns: u64, desk: &mut Desk, rows: &mut VecDeque<Rows>) -> bool {
        let mut state = self.lock();
        let Some(loan) = state.loan.as_mut().filter(|_| !self.is_back()) else { return false };
        let Some(space) = loan.intake.assembly.try_space(desk.shared.buffer_bytes_max(), desk.shared.frame_bytes_max()) else {
            // The thread may wait for room, we may not.
            self.give_back_locked(state, None);
            return false;
        };
        let room = space.len();
        let received = receive_now(&loan.stream, space, false);
        let now_ns = clock::now_ns();
        self.watched.look(now_ns);
        match received {
            Err(e) if e.kind() == ErrorKind::WouldBlock => true,
            Ok(bytes) if bytes > 0 => {
                loan.intake.assembly.advance(bytes);
                let before = desk.frames;
                let ours = desk.work_off(&mut loan.intake, &self.peer, since_ns, now_ns, rows);
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

/// How fast small frames of a connection come.
struct Pace {
    /// When something was last read, ns.
    read_ns: u64,
    /// So many reads one after the other were of frames that came fast, and none was a heavy one.
    fast_reads: u32,
    /// So many are asked for.
    wanted_reads: u32,
}

impl Pace {
    fn new(now_ns: u64) -> Self {
        Pace { read_ns: now_ns, fast_reads: 0, wanted_reads: FAST_READS }
    }

    /// For how long to let frames gather from now on, if that is worth while, ns: what the worker did since the last read counts.
    fn pause_ns(&self, now_ns: u64) -> Option<u64> {
        (self.fast_reads >= self.wanted_reads).then(|| GATHER_NS.saturating_sub(now_ns.saturating_sub(self.read_ns)))
    }

    /// Takes note of a pause that became so long. In too long a one many frames gather, so that they seem to come as fast as ever:
    /// the next is put off, and each time longer.
    fn paused(&mut self, pause_ns: u64) {
        if pause_ns < OVERSLEPT_NS {
            self.wanted_reads = FAST_READS;
        } else {
            (self.fast_reads, self.wanted_reads) = (0, (self.wanted_reads * 8).min(FAST_READS_MAX));
        }
    }

    /// Takes note of a read of `frames` in so many bytes.
    fn note(&mut self, now_ns: u64, frames: u64, bytes: usize) {
        let fast = bytes < HEAVY_BYTES && now_ns.saturating_sub(self.read_ns) <= frames.saturating_mul(FAST_NS);
        self.fast_reads = if fast { self.fast_reads.saturating_add(1) } else { 0 };
        self.read_ns = now_ns;
    }
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
                if now_ns.saturating_sub(state.pace.read_ns) > SILENT_NS {
                    lent.give_back_locked(state, None);
                }
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_frames_that_come_fast_gather() {
        let mut now_ns = 1_000_000;
        let mut pace = Pace::new(now_ns);
        let mut read = |pace: &mut Pace, after_ns, frames, bytes| {
            now_ns += after_ns;
            pace.note(now_ns, frames, bytes);
            pace.pause_ns(now_ns).is_some()
        };
        assert!((1..FAST_READS).all(|_| !read(&mut pace, FAST_NS, 1, 50)));
        assert!(read(&mut pace, FAST_NS, 1, 50));
        // What has gathered came as fast.
        assert!(read(&mut pace, 10 * FAST_NS, 10, 500));
        // One pause, or much at once, or a read without a whole frame, and it is not so any more.
        for (after_ns, frames, bytes) in [(FAST_NS + 1, 1, 50), (FAST_NS, 100, HEAVY_BYTES), (1, 0, 20)] {
            assert!(!read(&mut pace, after_ns, frames, bytes));
            assert!((1..FAST_READS).all(|_| !read(&mut pace, 1, 1, 50)));
            assert!(read(&mut pace, 1, 1, 50));
        }
    }

    /// After so many reads, a microsecond apart.
    fn fast(pace: &mut Pace, reads: u32) -> u64 {
        (0..reads).for_each(|_| pace.note(pace.read_ns + 1_000, 1, 50));
        pace.read_ns
    }

    #[test]
    fn what_a_worker_did_since_the_last_read_is_part_of_the_pause() {
        let mut pace = Pace::new(0);
        let read_ns = fast(&mut pace, FAST_READS);
        assert_eq!(pace.pause_ns(read_ns), Some(GATHER_NS));
        assert_eq!(pace.pause_ns(read_ns + 20_000), Some(GATHER_NS - 20_000));
        assert_eq!(pace.pause_ns(read_ns + 1_000_000_000), Some(0), "nobody sleeps for frames of long ago");
    }

    /// Where a pause lasts a millisecond it let fifty frames gather, which looked as if the next one were worth while, too.
    #[test]
    fn pauses_that_last_too_long_are_put_off_ever_longer() {
        let mut pace = Pace::new(0);
        for wanted in [FAST_READS, FAST_READS * 8, FAST_READS * 64] {
            let read_ns = fast(&mut pace, wanted - 1);
            assert_eq!(pace.pause_ns(read_ns), None);
            let read_ns = fast(&mut pace, 1);
            assert!(pace.pause_ns(read_ns).is_some());
            pace.paused(1_000_000);
            pace.note(read_ns + 1_000_000, 70, 3_500);
            assert_eq!(pace.pause_ns(pace.read_ns), None);
            pace.fast_reads = 0;
        }
        pace.fast_reads = pace.wanted_reads;
        pace.paused(2 * GATHER_NS);
        assert_eq!((pace.wanted_reads, pace.pause_ns(pace.read_ns)), (FAST_READS, Some(GATHER_NS)), "it was somebody else's work");
    }
}
