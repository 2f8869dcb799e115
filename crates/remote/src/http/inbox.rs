//! Between requests and the reader of a table: bodies that wait for the job, bounded in bytes, and how
//! far the job has come with them.
//!
//! Bodies are numbered in the order in which they are taken. The number of the last one given to the
//! worker is the position of the reader; so a checkpoint says up to which number bodies are safe.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidemill_connect::{ReadRequest, Waker};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

use super::Format;
use super::body::Payload;
use super::options::HttpOptions;

/// A body counts as so many bytes at least: what it takes to keep track of it.
const BODY_BYTES_MIN: usize = 512;
/// The beginnings of bodies may take this part of the queue, beside it.
const EARLY_PART: u64 = 2;

/// What a table and its requests share.
pub struct Inbox {
    pub options: HttpOptions,
    pub format: Format,
    /// The columns that the job reads.
    pub request: ReadRequest,
    /// Whose it is, for messages.
    pub owner: String,
    /// Permits are bytes.
    room: Arc<Semaphore>,
    /// The same for what has come of bodies that may be large, until there is room for all of one. It is apart, lest they
    /// take the room that the first of them needs.
    early: Arc<Semaphore>,
    /// Whose turn it is to take room for a large body.
    turn: Arc<Semaphore>,
    queue: Mutex<Queue>,
    progress: watch::Sender<Progress>,
    /// Somebody waits for a checkpoint of what the worker has.
    urgent: AtomicBool,
    waker: Waker,
}

struct Queue {
    bodies: VecDeque<Body>,
    /// The number of the body taken last.
    last: u64,
    /// No reader takes any more.
    closed: bool,
}

/// How far the job has come.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// The number of the last body given to the worker for which somebody waits.
    taken: u64,
    /// The number of the last body that a committed checkpoint covers.
    committed: u64,
    /// The reader is gone.
    closed: bool,
    /// Nothing will be committed any more.
    ended: bool,
}

/// A body on its way to the reader.
pub struct Body {
    /// Its number, from 1.
    pub number: u64,
    pub payload: Payload,
    /// Its size, unpacked.
    pub bytes: u64,
    /// Where it comes from, for messages.
    pub place: String,
    pub arrival_ns: u64,
    /// Who waits until it is committed, and wants to know what was in it.
    pub counts: Option<Arc<Counts>>,
    /// Given back when its rows are given to the worker.
    pub room: Room,
}

/// What the reader found in a body.
#[derive(Debug, Default)]
pub struct Counts {
    pub rows: AtomicU64,
    pub bad: AtomicU64,
}

/// Why a body is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The queue has stayed full.
    Full,
    /// The job that reads the table has ended.
    Gone,
}

/// A share of the queue, growing with what is put into it.
pub struct Room {
    room: Arc<Semaphore>,
    bytes_max: u32,
    patience: Duration,
    held: Option<OwnedSemaphorePermit>,
}

impl Room {
    /// Makes it `bytes` at least; waits for others to leave as long as the table's options say. What is
    /// larger than the whole queue takes all of it.
    pub async fn grow(&mut self, bytes: usize) -> Result<(), Refused> {
        let wanted = u32::try_from(bytes.max(BODY_BYTES_MIN)).unwrap_or(u32::MAX).min(self.bytes_max);
        let held = self.held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits) as u32;
        if wanted <= held {
            return Ok(());
        }
        let more = timeout(self.patience, self.room.clone().acquire_many_owned(wanted - held)).await;
        let more = more.map_err(|_| Refused::Full)?.map_err(|_| Refused::Gone)?;
        match &mut self.held {
            Some(held) => held.merge(more),
            none => *none = Some(more),
        }
        Ok(())
    }

    /// Gives it back.
    pub fn leave(&mut self) {
        self.held = None;
    }
}

impl Inbox {
    /// An empty one, whose bodies are numbered from behind `last`. The waker is called when there is one.
    pub fn new(options: HttpOptions, format: Format, request: ReadRequest, owner: String, last: u64, waker: Waker) -> Self {
        Inbox {
            room: Arc::new(Semaphore::new(options.queue.0 as usize)),
            early: Arc::new(Semaphore::new(early_bytes(&options) as usize)),
            turn: Arc::new(Semaphore::new(1)),
            options,
            format,
            request,
            owner,
            queue: Mutex::new(Queue { bodies: VecDeque::new(), last, closed: false }),
            progress: watch::Sender::new(Progress { taken: last, committed: last, ..Progress::default() }),
            urgent: AtomicBool::new(false),
            waker,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for nothing yet.
    pub fn room(&self) -> Room {
        self.share(&self.room, self.options.queue.0)
    }

    /// The same for the beginning of a body, beside the queue.
    pub fn early(&self) -> Room {
        self.share(&self.early, early_bytes(&self.options))
    }

    fn share(&self, room: &Arc<Semaphore>, bytes_max: u64) -> Room {
        let bytes_max = u32::try_from(bytes_max).unwrap_or(u32::MAX);
        Room { room: room.clone(), bytes_max, patience: self.options.queue_timeout, held: None }
    }

    /// The turn to take room for a large body; waits for others as [`Room::grow`] does. Whoever takes room for a body of unknown
    /// length, little by little, keeps it to the end: two that do so would wait for each other.
    ///
    /// # Errors
    /// It has not come for long, or the reader is gone.
    pub async fn turn(&self) -> Result<OwnedSemaphorePermit, Refused> {
        let turn = timeout(self.options.queue_timeout, self.turn.clone().acquire_owned()).await;
        turn.map_err(|_| Refused::Full)?.map_err(|_| Refused::Gone)
    }

    /// Takes a body; gives its number, which it gets here.
    ///
    /// # Errors
    /// The reader is gone.
    pub fn push(&self, mut body: Body) -> Result<u64, Refused> {
        let mut queue = self.lock();
        if queue.closed {
            return Err(Refused::Gone);
        }
        queue.last += 1;
        let number = queue.last;
        body.number = number;
        queue.bodies.push_back(body);
        drop(queue);
        self.waker.wake();
        Ok(number)
    }

    /// For the reader: the next body.
    pub fn pop(&self) -> Option<Body> {
        self.lock().bodies.pop_front()
    }

    /// For the reader: all of a body is given to the worker, and somebody waits for it to be committed.
    pub fn taken(&self, number: u64) {
        self.progress.send_modify(|progress| progress.taken = number);
        self.urgent.store(true, Ordering::Release);
    }

    /// Whether somebody waits for a checkpoint; said once.
    pub fn wants_checkpoint(&self) -> bool {
        self.urgent.load(Ordering::Relaxed) && self.urgent.swap(false, Ordering::AcqRel)
    }

    /// A checkpoint that covers the bodies up to this number is committed.
    pub fn committed(&self, number: u64) {
        self.progress.send_if_modified(|progress| {
            let moved = number > progress.committed;
            progress.committed = progress.committed.max(number);
            moved
        });
    }

    /// Waits until a body is committed.
    ///
    /// # Errors
    /// The job has ended before.
    pub async fn safe(&self, number: u64) -> Result<(), Refused> {
        let mut progress = self.progress.subscribe();
        let settled = progress.wait_for(|p| p.committed >= number || p.ended || (p.closed && p.taken < number)).await;
        if settled.is_ok_and(|p| p.committed >= number) { Ok(()) } else { Err(Refused::Gone) }
    }

    /// The reader is gone: what still waits for it is given up. What it has given may yet be committed.
    pub fn close(&self) {
        let mut queue = self.lock();
        queue.closed = true;
        let waiting = std::mem::take(&mut queue.bodies);
        drop(queue);
        drop(waiting);
        for semaphore in [&self.room, &self.early, &self.turn] {
            semaphore.close();
        }
        self.progress.send_modify(|progress| progress.closed = true);
    }

    /// Nothing will be committed any more.
    pub fn end(&self) {
        self.close();
        self.progress.send_modify(|progress| progress.ended = true);
    }
}

/// How many bytes the beginnings of bodies may take together.
fn early_bytes(options: &HttpOptions) -> u64 {
    (options.queue.0 / EARLY_PART).max(1)
}
