//! Reading an object forwards: several requests for the bytes ahead, handed out in order.
//!
//! A request's frames are passed on as they come, so a reader works while its file is still under way. What waits in
//! memory is bounded for a reader (requests ahead × their size) and for the process ([`AHEAD`]).

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use crate::ahead::{Ahead, Member, PIECE_MIN, Ticket};
use crate::client::Client;
use crate::error::{Kind, StoreError};
use crate::open::{Take, pull, waited};
use crate::pace::{ALWAYS, Pace};
use crate::runtime::spawn;
use crate::{Object, SIZE_UNKNOWN};

/// What all readers of the process may hold.
pub(crate) static AHEAD: Ahead = Ahead::new(192 << 20, PIECE_MIN);
/// What may wait of a body that cannot be asked for in ranges, bytes.
const WAITING_MAX: u64 = 8 << 20;

/// Reads `[from, end)` of an object.
pub(crate) struct ObjectReader {
    client: Arc<Client>,
    object: Object,
    /// Where the next request begins.
    next: u64,
    end: u64,
    flying: VecDeque<Flight>,
    /// Among the readers that share, from the first request on.
    member: Option<Member>,
    ahead: &'static Ahead,
    /// What was received and not yet given away.
    current: Bytes,
    pace: Pace,
    begun: Instant,
    failed: Option<StoreError>,
}

/// A request under way.
struct Flight {
    /// Never more in it than the request's bytes, or than `credit` allows. An empty piece is the end.
    frames: Receiver<Result<Bytes, StoreError>>,
    waited: Duration,
    credit: Option<Arc<Semaphore>>,
    task: AbortHandle,
    ticket: Ticket,
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Passes frames on to the reader.
struct Pass {
    out: Sender<Result<Bytes, StoreError>>,
    credit: Option<Arc<Semaphore>>,
    /// All the credit there is.
    credit_max: u64,
}

/// What a frame costs of so much credit: one larger than all of it waits until nothing else does.
fn cost(bytes: &Bytes, credit_max: u64) -> u32 {
    (bytes.len() as u64).min(credit_max) as u32
}

impl Take for Pass {
    async fn take(&mut self, bytes: Bytes) -> bool {
        if let Some(credit) = &self.credit {
            match credit.acquire_many(cost(&bytes, self.credit_max)).await {
                Ok(permit) => permit.forget(),
                Err(_) => return false,
            }
        }
        self.out.send(Ok(bytes)).is_ok()
    }
}

impl ObjectReader {
    pub fn new(client: Arc<Client>, object: Object, from: u64, end: Option<u64>) -> Self {
        Self::sharing(&AHEAD, client, object, from, end)
    }

    /// A reader that shares with those of the same `ahead`.
    pub fn sharing(ahead: &'static Ahead, client: Arc<Client>, object: Object, from: u64, end: Option<u64>) -> Self {
        let end = end.map_or(object.size, |end| end.min(object.size));
        let pace = Pace::new(client.parallel);
        ObjectReader {
            client,
            object,
            next: from.min(end),
            end,
            flying: VecDeque::new(),
            member: None,
            ahead,
            current: Bytes::new(),
            pace,
            begun: Instant::now(),
            failed: None,
        }
    }

    /// Makes as many requests as there should be.
    fn top_up(&mut self) -> Result<(), StoreError> {
        let ahead = self.ahead;
        while self.next < self.end && self.flying.len() < self.pace.ahead() {
            let whole = !self.object.seekable || self.object.size == SIZE_UNKNOWN;
            let wanted = if whole { WAITING_MAX } else { self.client.read_bytes }.min(self.end - self.next);
            let member = self.member.get_or_insert_with(|| Member::new(ahead));
            let flying = self.flying.iter().map(|flight| &flight.ticket);
            let Some(ticket) = member.ask(wanted, flying, self.pace.ahead() > ALWAYS) else { break };
            let to = if whole { self.end } else { self.next + ticket.bytes() };
            let (out, frames) = channel();
            let credit = whole.then(|| Arc::new(Semaphore::new(ticket.bytes() as usize)));
            let mut pass = Pass { out, credit: credit.clone(), credit_max: ticket.bytes() };
            let (client, object, from) = (self.client.clone(), self.object.clone(), self.next);
            let task = spawn(async move {
                let end = (to != SIZE_UNKNOWN).then_some(to);
                let last = pull(&client, &object, from, end, &mut pass).await.map(|()| Bytes::new());
                // A reader that is gone needs no end.
                let _ = pass.out.send(last);
            })?;
            self.flying.push_back(Flight { frames, waited: Duration::ZERO, credit, task, ticket });
            self.next = to;
        }
        Ok(())
    }

    /// Gets the next bytes into `current`; whether there are any.
    fn advance(&mut self) -> Result<bool, StoreError> {
        loop {
            self.top_up()?;
            let Some(front) = self.flying.front_mut() else { return Ok(false) };
            let frame = match front.frames.try_recv() {
                Ok(frame) => frame,
                Err(TryRecvError::Disconnected) => Err(ended()),
                Err(TryRecvError::Empty) => {
                    let begun = Instant::now();
                    let frame = front.frames.recv().unwrap_or_else(|_| Err(ended()));
                    front.waited += begun.elapsed();
                    waited(begun);
                    frame
                }
            };
            let bytes = frame?;
            if !bytes.is_empty() {
                if let Some(credit) = &front.credit {
                    credit.add_permits(cost(&bytes, front.ticket.bytes()) as usize);
                }
                self.current = bytes;
                return Ok(true);
            }
            let (bytes, waited) = (front.ticket.bytes(), front.waited);
            self.flying.pop_front();
            self.pace.done(bytes, waited, self.begun.elapsed());
        }
    }
}

fn ended() -> StoreError {
    StoreError::new(Kind::Other, "internal error: a request to a store ended without an answer")
}

impl Read for ObjectReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        if let Some(e) = &self.failed {
            return Err(e.clone().into());
        }
        if self.current.is_empty() {
            match self.advance() {
                Ok(true) => {}
                Ok(false) => return Ok(0),
                Err(e) => {
                    self.flying.clear();
                    self.failed = Some(e.clone());
                    return Err(e.into());
                }
            }
        }
        let n = self.current.len().min(buf.len());
        buf[..n].copy_from_slice(&self.current.split_to(n));
        Ok(n)
    }
}
