//! A channel that a table reads: the rows of all connections on their way to its reader, bounded in
//! bytes. Whoever is ahead waits, and with it its connection; the rest is TCP's own back-pressure. Connections
//! that the reader shall read itself ([`super::lent`]) come by the same way.

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use tidemill_format::BadRecord;

use super::decode::Layout;
use super::lent::Lent;
use crate::socket::room::Share;
use crate::{ConnectError, Rows, Waker};

/// Batches of fewer rows are put together when several wait: operators pay some 0.3 µs a block, a copy
/// of a row costs a nanosecond or two.
pub(super) const MERGE_ROWS: usize = 1024;
/// What a bad record is taken to cost beside its bytes: its texts.
const BAD_RECORD_BYTES: usize = 256;
/// Connections that are lent to one reader at a time: each costs it something whenever it sleeps.
pub(super) const LENT_MAX: usize = 8;

/// A channel. See the module.
pub struct Channel {
    name: String,
    /// Whose it is, for messages: `table 'trades'`.
    owner: String,
    layout: Arc<Layout>,
    /// Frames that no table reads are bad records of this one.
    pub reports_unknown: bool,
    inbox: Mutex<Inbox>,
    /// The inbox has room again, or is closed.
    room: Condvar,
    /// Changes under the lock of the inbox only.
    closed: AtomicBool,
    /// The reader has its worker wait for sockets.
    borrows: AtomicBool,
    waker: Waker,
    bytes_max: usize,
}

#[derive(Default)]
struct Inbox {
    items: VecDeque<Rows>,
    bytes: usize,
    /// Connections on their way to the reader.
    lent: Vec<Arc<Lent>>,
    /// How many connections are lent to it, these included.
    lent_count: usize,
}

/// What rows count for in an inbox: the bytes of their frames stand for the memory of their columns.
fn cost(rows: &Rows) -> usize {
    rows.bytes as usize + rows.bad.iter().map(|b| b.raw.len() + BAD_RECORD_BYTES).sum::<usize>()
}

impl Channel {
    /// A channel of `owner` of which up to `bytes_max` bytes, or one larger piece, may wait.
    pub fn new(name: String, owner: String, layout: Arc<Layout>, reports_unknown: bool, waker: Waker, bytes_max: usize) -> Self {
        Channel {
            name,
            owner,
            layout,
            reports_unknown,
            inbox: Mutex::default(),
            room: Condvar::new(),
            closed: AtomicBool::new(false),
            borrows: AtomicBool::new(false),
            waker,
            bytes_max,
        }
    }

    /// The channel id.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whose it is.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// What its payloads hold.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether its reader is gone.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Its reader is gone: what waits is given up, and nobody waits any more.
    pub fn close(&self) {
        let mut inbox = self.lock();
        self.closed.store(true, Ordering::Relaxed);
        let left = mem::take(&mut *inbox);
        drop(inbox);
        left.lent.iter().for_each(|lent| lent.give_back(None));
        self.room.notify_all();
    }

    /// For the reader: its worker waits for the sockets that it names.
    pub fn set_borrows(&self) {
        self.borrows.store(true, Ordering::Relaxed);
    }

    /// Whether a connection may be lent to the reader now.
    pub fn borrows(&self) -> bool {
        self.borrows.load(Ordering::Relaxed) && self.lock().lent_count < LENT_MAX
    }

    /// Lends a connection to the reader. False if it takes none: then it is given back already. Otherwise
    /// [`Channel::regain`] is to be called when it is back.
    pub fn lend(&self, lent: &Arc<Lent>) -> bool {
        let mut inbox = self.lock();
        let taken = !self.is_closed() && inbox.lent_count < LENT_MAX;
        if taken {
            inbox.lent_count += 1;
            inbox.lent.push(lent.clone());
        }
        drop(inbox);
        if taken {
            self.waker.wake();
        } else {
            lent.give_back(None);
        }
        taken
    }

    /// A connection that was lent is back.
    pub fn regain(&self) {
        let mut inbox = self.lock();
        // Nothing is counted any more when the channel was closed meanwhile.
        inbox.lent_count = inbox.lent_count.saturating_sub(1);
    }

    /// Hands rows to the reader; waits while enough lies there, and says meanwhile that `share`, which its connection
    /// holds, waits for a job. Tells how many bytes lie there then. Without a reader the rows are dropped.
    pub fn push(&self, rows: Rows, share: &Share) -> usize {
        let mut inbox = self.lock();
        if inbox.bytes >= self.bytes_max && !self.is_closed() {
            let _held_up = share.held_up();
            while inbox.bytes >= self.bytes_max && !self.is_closed() {
                inbox = self.room.wait(inbox).unwrap_or_else(PoisonError::into_inner);
            }
        }
        if self.is_closed() {
            return 0;
        }
        let waited_for = inbox.items.is_empty();
        inbox.bytes += cost(&rows);
        inbox.items.push_back(rows);
        let waiting = inbox.bytes;
        drop(inbox);
        if waited_for {
            self.waker.wake();
        }
        waiting
    }

    /// Hands a bad record without rows to the reader.
    pub fn push_bad(&self, bad: BadRecord, place: String, arrival_ns: u64, share: &Share) {
        let batch = RecordBatch::new_empty(self.layout.schema().clone());
        self.push(Rows { batch, kinds: None, arrival_ns, bytes: 0, bad: vec![bad], places: vec![place] }, share);
    }

    /// For the reader: what has waited longest; small batches together, `rows_max` rows at most if
    /// that can be had without cutting. `None` if nothing waits; then `lent` gets the connections that
    /// have been lent since, all of whose rows have thus been taken.
    ///
    /// # Errors
    /// Batches that do not fit together.
    pub fn take(&self, rows_max: usize, lent: &mut Vec<Arc<Lent>>) -> Result<Option<Rows>, ConnectError> {
        let mut inbox = self.lock();
        let before = inbox.bytes;
        let Some(first) = inbox.items.pop_front() else {
            lent.append(&mut inbox.lent);
            return Ok(None);
        };
        inbox.bytes -= cost(&first);
        let (mut rows, mut more) = (first.batch.num_rows(), Vec::new());
        while rows < MERGE_ROWS
            && !self.layout.has_clock()
            && let Some(next) = inbox.items.front().map(|n| n.batch.num_rows())
            && next < MERGE_ROWS
            && rows + next <= rows_max
            && let Some(next) = inbox.items.pop_front()
        {
            rows += next.batch.num_rows();
            inbox.bytes -= cost(&next);
            more.push(next);
        }
        // Half of the room at once: a connection that waits is not woken for each batch.
        let half = self.bytes_max / 2;
        let roomy = before > half && inbox.bytes <= half;
        drop(inbox);
        if roomy {
            self.room.notify_all();
        }
        merge(first, more).map(Some)
    }
}

/// Rows put together, in their order.
fn merge(first: Rows, more: Vec<Rows>) -> Result<Rows, ConnectError> {
    if more.is_empty() {
        return Ok(first);
    }
    let schema = first.batch.schema();
    let batches = std::iter::once(&first).chain(&more).map(|rows| &rows.batch);
    let batch = concat_batches(&schema, batches).map_err(|e| ConnectError::new(format!("joining the events of several frames: {e}")))?;
    let mut all = Rows { batch, ..first };
    for rows in more {
        all.arrival_ns = all.arrival_ns.min(rows.arrival_ns);
        all.bytes += rows.bytes;
        all.bad.extend(rows.bad);
        all.places.extend(rows.places);
    }
    Ok(all)
}
