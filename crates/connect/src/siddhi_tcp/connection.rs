//! What the thread of a connection does: reads, finds frames, and has each channel's batches made.
//!
//! Frames are worked off as they lie in the buffer, and their rows are handed on when no complete
//! frame is left or a full batch has come together. So a batch holds what had arrived, and nothing
//! waits for a batch to fill.
//!
//! A connection that brings little at a time, all of it for one channel, is [lent](super::lent) to the reader of that
//! channel, and the thread waits until it is given back: then nobody has to wake the worker.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read};
use std::mem;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

use tidemill_block::clock;
use tidemill_format::BadRecord;

use super::channel::Channel;
use super::decode::{Batcher, Place};
use super::frame::{Assembly, Cut, Frame, split};
use super::lent::{Lent, Loan};
use super::listener::Shared;
use crate::listeners;
use crate::socket::room::Share;

/// Rows of a batch, unless a single frame has more: what a block has when its size is left to the
/// engine.
pub(super) const BATCH_ROWS: usize = 8192;
/// Of what cannot be told apart any more so many bytes are kept.
const RAW_BYTES_MAX: usize = 1 << 10;
/// A read of no more bytes, with no more waiting for the job, is a light one: to hand its rows to another thread
/// costs about as much as to work them off.
const LIGHT_BYTES: usize = 16 << 10;
/// So many light reads one after the other, and the connection is lent.
const LIGHT_READS: u32 = 32;

/// Serves a connection to its end.
pub fn serve(shared: &Shared, mut stream: TcpStream, peer: &str) {
    let mut connection = Connection::new(shared, peer);
    let silence_max = shared.frame_silence_max();
    // Fails only if the peer is gone already, which is found when it is read.
    let _ = stream.set_read_timeout(Some(silence_max));
    // How the connection ended for a reader that it was lent to.
    let mut told = None;
    let fault = loop {
        let read = match told.take() {
            Some(end) => end,
            None => match connection.intake.assembly.try_space(shared.buffer_bytes_max(), shared.frame_bytes_max()) {
                Some(space) => stream.read(space),
                None => {
                    if connection.intake.assembly.wait_for_space(shared.frame_bytes_max()) {
                        continue;
                    }
                    break connection.crowded_out();
                }
            },
        };
        match read {
            Ok(0) => break connection.unfinished("was closed"),
            Ok(bytes) => {
                if let Some(fault) = connection.take(bytes) {
                    break Some(fault);
                }
                if let Some(channel) = connection.borrower() {
                    (stream, told) = connection.lend(&channel, stream);
                    // What the reader has left as it was.
                    if let Some(fault) = connection.work_off(0) {
                        break Some(fault);
                    }
                }
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if is_silence(&e) => {
                let how = format!("was silent for {} ms", silence_max.as_millis());
                if let Some(fault) = connection.unfinished(&how) {
                    listeners::silent(shared.address(), 1);
                    break Some(fault);
                }
            }
            Err(e) => break connection.unfinished(&format!("broke ({e})")),
        }
    };
    if let Some(fault) = fault.filter(|_| !shared.is_stopped()) {
        connection.report(fault);
    }
    // Fails only if the peer was quicker.
    let _ = stream.shutdown(Shutdown::Both);
}

/// Whether a read has ended because nothing came for so long as it may wait.
fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// The bytes of a connection.
#[derive(Default)]
pub struct Intake {
    pub assembly: Assembly,
    /// Frames and bytes worked off.
    pub frames: u64,
    pub offset: u64,
}

/// A connection without its socket.
pub(super) struct Connection<'a> {
    intake: Intake,
    router: Router<'a>,
    /// Light reads one after the other, and the route that they were all for.
    light_reads: u32,
    light_route: usize,
}

/// What has just been read.
#[derive(Clone, Copy)]
struct Pass<'a> {
    buffer: &'a [u8],
    /// What the connection holds.
    share: &'a Share,
    arrival_ns: u64,
    now_ms: i64,
}

impl<'a> Connection<'a> {
    /// Nothing has come yet.
    pub(super) fn new(shared: &'a Shared, peer: &'a str) -> Self {
        let router = Router { shared, peer, routes: Vec::new(), by_name: HashMap::new(), last: 0, touched: Vec::new() };
        let intake = Intake { assembly: Assembly::sharing(Share::new(&shared.room)), ..Intake::default() };
        Connection { intake, router, light_reads: 0, light_route: 0 }
    }

    /// Works off what is complete after so many bytes were read; answers with the fault if these are
    /// no frames.
    fn take(&mut self, bytes: usize) -> Option<String> {
        self.intake.assembly.advance(bytes);
        self.work_off(bytes)
    }

    /// As [`Connection::take`], when the bytes are in their place already.
    fn work_off(&mut self, bytes: usize) -> Option<String> {
        let frame_bytes_max = self.router.shared.frame_bytes_max();
        let assembly = &self.intake.assembly;
        let pass = Pass { buffer: assembly.data(), share: assembly.share(), arrival_ns: clock::now_ns(), now_ms: clock::wall_ms() };
        let mut at = 0;
        let fault = loop {
            match split(&pass.buffer[at..], frame_bytes_max) {
                Ok(Cut::More(_)) => break None,
                Err(error) => break Some(error.to_string()),
                Ok(Cut::Frame(frame)) => {
                    self.intake.frames += 1;
                    let place = Place { peer: self.router.peer, number: self.intake.frames, offset: self.intake.offset + at as u64 };
                    self.router.frame(pass, at, &frame, place);
                    at += frame.length;
                }
            }
        };
        let (route, several) = (self.router.touched.first().copied(), self.router.touched.len() > 1);
        let waiting = self.router.flush(pass);
        self.intake.assembly.consume(at);
        self.intake.offset += at as u64;
        if several || bytes.max(waiting) > LIGHT_BYTES || route.is_some_and(|r| r != self.light_route) {
            self.light_reads = 0;
        } else if route.is_some() {
            self.light_reads += 1;
        }
        self.light_route = route.unwrap_or(self.light_route);
        fault
    }

    /// The channel whose reader shall have this connection for a while, if there is one.
    fn borrower(&mut self) -> Option<Arc<Channel>> {
        if self.light_reads < LIGHT_READS {
            return None;
        }
        self.light_reads = 0;
        let channel = &self.router.routes[self.light_route].channel;
        channel.borrows().then(|| channel.clone())
    }

    /// Lends the connection to the reader of a channel, and waits until it is back: with how it ended, if it has.
    fn lend(&mut self, channel: &Channel, stream: TcpStream) -> (TcpStream, Option<io::Result<usize>>) {
        let lent = Arc::new(Lent::new(Loan { stream, intake: mem::take(&mut self.intake) }, self.router.peer));
        let taken = channel.lend(&lent);
        let (loan, end) = lent.returned(self.router.shared.frame_silence_max());
        if taken {
            channel.regain();
        }
        self.intake = loan.intake;
        (loan.stream, end)
    }

    /// Takes bytes as if they had been read in one piece.
    #[cfg(test)]
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> Option<String> {
        while !bytes.is_empty() {
            let shared = self.router.shared;
            let space = self.intake.assembly.try_space(shared.buffer_bytes_max(), shared.frame_bytes_max()).expect("nobody else is here");
            let count = space.len().min(bytes.len());
            space[..count].copy_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            if let Some(fault) = self.take(count) {
                return Some(fault);
            }
        }
        None
    }

    /// The fault of a connection that ends in the middle of a frame.
    fn unfinished(&self, how: &str) -> Option<String> {
        let bytes = self.intake.assembly.data().len();
        (bytes > 0).then(|| format!("the connection {how} inside this frame, of which {bytes} bytes had come"))
    }

    /// The fault of a connection for whose frame there is no memory; counts it.
    fn crowded_out(&self) -> Option<String> {
        let shared = self.router.shared;
        if !shared.is_stopped() {
            listeners::turned_away(shared.address());
        }
        let (bytes, bytes_max) = (self.intake.assembly.data().len(), shared.room.bytes_max());
        Some(format!(
            "there is no room for more than the {bytes} bytes that have come of this frame: what all connections hold of frames that are \
             not complete has {bytes_max} bytes at most"
        ))
    }

    /// Tells a table why the connection ends: the one it spoke to last, or any.
    fn report(&self, fault: String) {
        let last = self.router.routes.get(self.router.last).map(|r| r.channel.clone()).filter(|c| !c.is_closed());
        let Some(channel) = last.or_else(|| self.router.shared.find(|_| true)) else { return };
        let data = self.intake.assembly.data();
        let raw = data[..data.len().min(RAW_BYTES_MAX)].to_vec();
        let bad =
            BadRecord { record: self.intake.frames, offset: self.intake.offset, reason: format!("{fault}; the connection ends here"), raw };
        let place = format!("{} frame {}", self.router.peer, self.intake.frames + 1);
        channel.push_bad(bad, place, clock::now_ns(), self.intake.assembly.share());
    }
}

/// Where the frames of a connection go.
struct Router<'a> {
    shared: &'a Shared,
    peer: &'a str,
    routes: Vec<Route>,
    by_name: HashMap<Box<[u8]>, usize>,
    /// The route of the last frame; mostly the next one's, too.
    last: usize,
    /// Routes that have something to hand on.
    touched: Vec<usize>,
}

/// A channel that the connection has spoken to.
struct Route {
    name: Box<[u8]>,
    channel: Arc<Channel>,
    batcher: Batcher,
    touched: bool,
}

impl Route {
    /// Hands on the rows; tells how many bytes wait for the reader then.
    fn send(&mut self, pass: Pass, peer: &str) -> usize {
        match self.batcher.finish(pass.buffer, peer, pass.now_ms, pass.arrival_ns) {
            Some(rows) => self.channel.push(rows, pass.share),
            None => 0,
        }
    }
}

impl Router<'_> {
    /// Takes in the frame that begins at `at`.
    fn frame(&mut self, pass: Pass, at: usize, frame: &Frame, place: Place) {
        let name = &pass.buffer[at + frame.channel..at + frame.channel_end];
        let same = self.routes.get(self.last).is_some_and(|r| *r.name == *name && !r.channel.is_closed());
        if !same {
            match self.find(name, pass) {
                Some(index) => self.last = index,
                None => return self.unknown(pass, at, frame, place),
            }
        }
        let route = &mut self.routes[self.last];
        if route.batcher.is_apart(pass.buffer, at, frame) {
            route.send(pass, self.peer);
        }
        route.batcher.add(pass.buffer, at, frame, place);
        if !route.touched {
            route.touched = true;
            self.touched.push(self.last);
        }
        if route.batcher.rows() >= BATCH_ROWS {
            route.send(pass, self.peer);
        }
    }

    /// The route of a channel; none if no table reads it.
    fn find(&mut self, name: &[u8], pass: Pass) -> Option<usize> {
        let known = self.by_name.get(name).copied();
        if let Some(index) = known
            && !self.routes[index].channel.is_closed()
        {
            return Some(index);
        }
        let mut channel = self.shared.channel(name);
        if channel.is_none() && self.shared.is_announced(name) {
            // The rows in hand do not wait with us.
            self.flush(pass);
            channel = self.shared.wait_for(name);
        }
        let channel = channel?;
        let batcher = Batcher::new(channel.layout().clone());
        let mut route = Route { name: name.into(), channel, batcher, touched: false };
        Some(match known {
            Some(index) => {
                route.touched = self.routes[index].touched;
                self.routes[index] = route;
                index
            }
            None => {
                self.routes.push(route);
                self.by_name.insert(name.into(), self.routes.len() - 1);
                self.routes.len() - 1
            }
        })
    }

    /// Hands on all rows; tells how many bytes wait for a reader then.
    fn flush(&mut self, pass: Pass) -> usize {
        let mut waiting = 0;
        for index in self.touched.drain(..) {
            let route = &mut self.routes[index];
            route.touched = false;
            waiting = waiting.max(route.send(pass, self.peer));
        }
        waiting
    }

    /// A frame for a channel that no table reads.
    #[cold]
    fn unknown(&self, pass: Pass, at: usize, frame: &Frame, place: Place) {
        let name = &pass.buffer[at + frame.channel..at + frame.channel_end];
        self.shared.count_unknown(name);
        if let Some(channel) = self.shared.find(|c| c.reports_unknown) {
            let reason = format!("no table reads the channel '{}'", String::from_utf8_lossy(name));
            let raw = pass.buffer[at..at + frame.length.min(RAW_BYTES_MAX)].to_vec();
            let bad = BadRecord { record: place.number - 1, offset: place.offset, reason, raw };
            channel.push_bad(bad, format!("{} frame {}", place.peer, place.number), pass.arrival_ns, pass.share);
        }
    }
}
