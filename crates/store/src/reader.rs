//! Reading an object forwards: several requests for the bytes ahead, handed out in order.
//!
//! A request's frames are passed on as they come, so a reader works while its file is still under way. What waits in
//! memory is bounded for a reader (requests ahead × their size) and for the process ([`BUDGET`]).

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use crate::client::Client;
use crate::error::{Kind, StoreError};
use crate::open::{Take, pull, waited};
use crate::pace::{ALWAYS, Budget, Pace, Ticket};
use crate::runtime::spawn;
use crate::{Object, SIZE_UNKNOWN};

/// What all readers of the process may hold; each may have two requests even so.
static BUDGET: Budget = Budget::new(192 << 20);
/// What may wait of a body that cannot be asked for in ranges, bytes.
const WAITING_MAX: usize = 8 << 20;

/// Reads `[from, end)` of an object.
pub(crate) struct ObjectReader {
    client: Arc<Client>,
    object: Object,
    /// Where the next request begins.
    next: u64,
    end: u64,
    flying: VecDeque<Flight>,
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
    bytes: u64,
    waited: Duration,
    credit: Option<Arc<Semaphore>>,
    task: AbortHandle,
    _ticket: Ticket,
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
}

impl Take for Pass {
    async fn take(&mut self, bytes: Bytes) -> bool {
        if let Some(credit) = &self.credit {
            // A frame larger than all there is waits until nothing else does.
            let wanted = bytes.len().min(WAITING_MAX) as u32;
            match credit.acquire_many(wanted).await {
                Ok(permit) => permit.forget(),
                Err(_) => return false,
            }
        }
        self.out.send(Ok(bytes)).is_ok()
    }
}

impl ObjectReader {
    pub fn new(client: Arc<Client>, object: Object, from: u64, end: Option<u64>) -> Self {
        let end = end.map_or(object.size, |end| end.min(object.size));
        let pace = Pace::new(client.parallel);
        ObjectReader {
            client,
            object,
            next: from.min(end),
            end,
            flying: VecDeque::new(),
            current: Bytes::new(),
            pace,
            begun: Instant::now(),
            failed: None,
        }
    }

    /// Makes as many requests as there should be.
    fn top_up(&mut self) -> Result<(), StoreError> {
        while self.next < self.end && self.flying.len() < self.pace.ahead() {
            let whole = !self.object.seekable || self.object.size == SIZE_UNKNOWN;
            let to = if whole { self.end } else { self.end.min(self.next + self.client.read_bytes) };
            let bytes = if whole { WAITING_MAX as u64 } else { to - self.next };
            let Some(ticket) = BUDGET.ticket(bytes, self.flying.len() < ALWAYS) else { break };
            let (out, frames) = channel();
            let credit = whole.then(|| Arc::new(Semaphore::new(WAITING_MAX)));
            let mut pass = Pass { out, credit: credit.clone() };
            let (client, object, from) = (self.client.clone(), self.object.clone(), self.next);
            let task = spawn(async move {
                let end = (to != SIZE_UNKNOWN).then_some(to);
                let last = pull(&client, &object, from, end, &mut pass).await.map(|()| Bytes::new());
                // A reader that is gone needs no end.
                let _ = pass.out.send(last);
            })?;
            self.flying.push_back(Flight { frames, bytes, waited: Duration::ZERO, credit, task, _ticket: ticket });
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
                    credit.add_permits(bytes.len().min(WAITING_MAX));
                }
                self.current = bytes;
                return Ok(true);
            }
            let (bytes, waited) = (front.bytes, front.waited);
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
