//! Gathers the changes of a log into batches for the reader, and knows for each row where it stands.
//!
//! A driver makes the columns; here are the kinds of the rows, the transactions that they belong to, and what is
//! passed over: rows that were handed over before a restart, and those that a piece of the table read later has seen. And
//! here is undone what a reading that was cut off may have handed over and is not there any more ([`Feed::undo`]).

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use crossbeam_channel::Sender;
use tidemill_block::{RowKind, clock};
use tidemill_connect::Waker;

use super::position::{Offset, Pieces, Position, key_bytes};
use crate::driver::DbError;
use crate::sink::key_rows;

/// Rows of a batch.
pub(crate) const BATCH_ROWS: usize = 8192;
/// How often the reader is told how far the log is, where there are no rows.
const TELL_EVERY: Duration = Duration::from_millis(500);
/// A connection that lived for so long was a good one, even if nothing came over it.
pub(super) const LIVED: Duration = Duration::from_secs(10);

/// What goes to the reader.
pub(crate) enum Event {
    /// Rows of the first reading.
    Table { batch: RecordBatch, ordered: bool, arrival_ns: u64 },
    /// Rows of the log.
    Changes(Changes),
    /// Rows that come and go, before the reading is gone on with: it stands where it stood.
    Undone { batch: RecordBatch, kind: RowKind, arrival_ns: u64 },
    /// Where it stands, after what was sent before.
    Position(Position),
    /// Nothing more will come.
    Failed(DbError),
}

/// Rows of the log.
pub(crate) struct Changes {
    pub batch: RecordBatch,
    /// A kind a row; none: all are inserts.
    pub kinds: Option<Vec<RowKind>>,
    pub marks: Vec<Mark>,
    /// The number that each row has among all that were gathered; none: its own.
    pub raw: Option<Vec<u32>>,
    /// How many were gathered.
    pub gathered: usize,
    /// Behind them the pieces of the table are forgotten.
    pub forget: bool,
    pub arrival_ns: u64,
}

/// Rows of one transaction within a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Where they end among the gathered rows.
    pub rows: usize,
    /// How many there are.
    pub own: usize,
    /// Where the transaction stands.
    pub at: Offset,
    /// How many rows of it came before.
    pub before: u64,
    /// Where the log goes on, if these are its last.
    pub end: Option<Offset>,
}

impl Changes {
    /// Where the table stands when `handed` of the batch's rows, at least one, were handed over; place and rows of
    /// the transaction there.
    pub fn place(&self, handed: usize) -> (Offset, u64) {
        let whole = handed >= self.batch.num_rows();
        // Rows that were passed over behind the last one handed over are done with it.
        let gathered = match &self.raw {
            _ if whole => self.gathered,
            Some(raw) => raw[handed] as usize,
            None => handed,
        };
        place(&self.marks, gathered)
    }
}

fn place(marks: &[Mark], gathered: usize) -> (Offset, u64) {
    let index = marks.partition_point(|m| m.rows < gathered).min(marks.len().saturating_sub(1));
    let Some(mark) = marks.get(index) else { return (Offset::default(), 0) };
    match mark.end {
        Some(end) if gathered >= mark.rows => (end, 0),
        _ => (mark.at, mark.before + (gathered + mark.own).saturating_sub(mark.rows) as u64),
    }
}

/// The transaction at hand.
struct Open {
    at: Offset,
    /// Rows of it so far.
    rows: u64,
    /// The first gathered row of it in the batch, and how many rows came before that.
    first: usize,
    before: u64,
}

/// What is to be undone.
struct Undo {
    /// Transactions from here on were perhaps handed over.
    from: Offset,
    /// Only of keys behind this one.
    behind: Option<Vec<u8>>,
}

/// See the module.
pub(crate) struct Feed {
    sender: Sender<Event>,
    waker: Waker,
    stop: Arc<AtomicBool>,
    /// Where the columns of the key are in a batch.
    key: Vec<usize>,
    pieces: Pieces,
    /// Where what was sent ends.
    position: Position,
    kinds: Vec<RowKind>,
    marks: Vec<Mark>,
    open: Option<Open>,
    /// Rows of the first transaction that were handed over before.
    skip: u64,
    /// How far the log is behind the rows that were sent.
    reached: Option<Offset>,
    told: Instant,
    undo: Option<Undo>,
    /// When the connection at hand was first known to be alive.
    born: Option<Instant>,
    /// It has lived for long.
    lived: bool,
}

impl Feed {
    pub(crate) fn new(sender: Sender<Event>, waker: Waker, stop: Arc<AtomicBool>, key: Vec<usize>) -> Self {
        Feed {
            sender,
            waker,
            stop,
            key,
            pieces: Pieces::default(),
            position: Position::default(),
            kinds: Vec::new(),
            marks: Vec::new(),
            open: None,
            skip: 0,
            reached: None,
            told: Instant::now(),
            undo: None,
            born: None,
            lived: false,
        }
    }

    /// Where the log is to be gone on with.
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// Whether nobody reads any more.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The same for those that wait elsewhere.
    pub fn stop(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// Goes on from another place, and tells the reader.
    ///
    /// # Errors
    /// Nobody reads any more; a key in it that is none.
    pub(crate) fn go_to(&mut self, position: Position) -> Result<(), DbError> {
        self.pieces = Pieces::of(&position.parts)?;
        self.send(Event::Position(position.clone()))?;
        self.position = position;
        self.begin_again();
        Ok(())
    }

    /// Forgets what was gathered and not sent: the log is read again from [`Feed::position`].
    pub(super) fn begin_again(&mut self) {
        self.kinds.clear();
        self.marks.clear();
        self.open = None;
        self.reached = None;
        self.undo = None;
        self.skip = self.position.skip;
    }

    /// Until [`Feed::go_to`], old rows of the changes from a place on come and go again, of keys behind `behind`.
    ///
    /// Who was cut off in the first reading has perhaps handed rows over, behind the last checkpoint, that were changed or
    /// deleted since. The reading of the rest will not have them, and who keeps rows by their keys, or by keys that queries
    /// make of them, would keep what came of them. Whoever kept nothing has the same before and after.
    ///
    /// # Errors
    /// A key that is none.
    pub(super) fn undo(&mut self, from: Offset, behind: Option<&str>) -> Result<(), DbError> {
        self.begin_again();
        self.undo = Some(Undo { from, behind: behind.map(key_bytes).transpose()? });
        Ok(())
    }

    /// Rows of the table, in the order of its key if that is known; `after` is the last key then.
    ///
    /// # Errors
    /// Nobody reads any more.
    pub(super) fn table(&mut self, batch: RecordBatch, after: Option<String>) -> Result<(), DbError> {
        let ordered = after.is_some();
        if let Some(reading) = &mut self.position.reading {
            reading.rows += batch.num_rows() as u64;
            reading.after = after;
        }
        self.send(Event::Table { batch, ordered, arrival_ns: clock::now_ns() })
    }

    /// A transaction begins that is committed at this place.
    pub fn begin(&mut self, at: Offset) {
        self.open = Some(Open { at, rows: 0, first: self.kinds.len(), before: 0 });
    }

    /// Whether a transaction is open.
    pub fn in_transaction(&self) -> bool {
        self.open.is_some()
    }

    /// Whether the next row is wanted: those that were handed over before are not. To be asked for each row.
    #[inline]
    pub fn wants(&mut self) -> bool {
        let Some(open) = &mut self.open else { return true };
        if let Some(undo) = &self.undo {
            return open.at >= undo.from;
        }
        open.rows += 1;
        if self.skip == 0 {
            return true;
        }
        self.skip -= 1;
        open.before += 1;
        false
    }

    /// A row was put into the columns.
    #[inline]
    pub fn row(&mut self, kind: RowKind) {
        self.kinds.push(kind);
    }

    /// Rows gathered so far.
    pub fn rows(&self) -> usize {
        self.kinds.len()
    }

    /// The transaction ends; the log goes on at `end`.
    ///
    /// # Errors
    /// As [`Feed::reached`]; the transaction has fewer rows than were handed over.
    pub fn commit(&mut self, end: Offset) -> Result<(), DbError> {
        let Some(open) = self.open.take() else { return self.reached(end) };
        if self.undo.is_some() {
            return Ok(());
        }
        if self.skip > 0 && open.rows > 0 {
            return Err(DbError::fatal(format!(
                "the transaction at {} has {} rows, of which {} were handed over before the restart: the log was changed; start without \
                 the checkpoint",
                open.at, open.rows, self.position.skip
            )));
        }
        let own = self.kinds.len() - open.first;
        if own == 0 {
            return self.reached(end);
        }
        self.marks.push(Mark { rows: self.kinds.len(), own, at: open.at, before: open.before, end: Some(end) });
        Ok(())
    }

    /// The open transaction, if there is one, was never committed: its gathered rows are dropped. How many gathered rows are left.
    ///
    /// # Errors
    /// Rows of it were handed over.
    pub fn abandon(&mut self) -> Result<usize, DbError> {
        let open = self.open.take();
        // Rows that only come and go have left nothing behind.
        let handed = self.skip > 0 || open.as_ref().is_some_and(|open| open.before > 0);
        if handed && self.undo.is_none() {
            let at = open.map_or(self.position.from, |open| open.at);
            return Err(DbError::fatal(format!(
                "a crash of the server cut its log off within the transaction at {at}, which was never committed, and of which rows \
                 were handed over; start without the checkpoint"
            )));
        }
        if let Some(open) = open {
            self.kinds.truncate(open.first);
        }
        Ok(self.kinds.len())
    }

    /// The log goes on at `end`, without rows of the table up to there. Between transactions only.
    ///
    /// # Errors
    /// Nobody reads any more.
    pub fn reached(&mut self, end: Offset) -> Result<(), DbError> {
        if self.open.is_some() || self.skip > 0 || self.undo.is_some() {
            return Ok(());
        }
        if let Some(mark) = self.marks.last_mut() {
            mark.end = mark.end.max(Some(end));
            return Ok(());
        }
        if end > self.position.from {
            self.reached = self.reached.max(Some(end));
        }
        if self.reached.is_some() && self.told.elapsed() >= TELL_EVERY { self.tell() } else { Ok(()) }
    }

    /// Tells the reader how far the log is, if there is something to tell.
    fn tell(&mut self) -> Result<(), DbError> {
        let Some(reached) = self.reached.take() else { return Ok(()) };
        self.position.from = reached;
        self.position.skip = 0;
        if self.pieces.passed(reached) {
            self.pieces = Pieces::default();
            self.position.parts.clear();
        }
        self.told = Instant::now();
        self.send(Event::Position(self.position.clone()))
    }

    /// The connection that the log comes over is alive, whether or not it has anything of the table.
    #[inline]
    pub fn alive(&mut self, now: Instant) {
        let born = *self.born.get_or_insert(now);
        self.lived |= now.duration_since(born) >= LIVED;
    }

    /// Whether the connection at hand has lived for long; another one begins.
    pub(super) fn has_lived(&mut self) -> bool {
        self.born = None;
        std::mem::take(&mut self.lived)
    }

    /// Nothing more is there at the moment: what is known of the log is told if it is time.
    ///
    /// # Errors
    /// Nobody reads any more.
    pub fn idle(&mut self) -> Result<(), DbError> {
        if self.told.elapsed() >= TELL_EVERY { self.tell() } else { Ok(()) }
    }

    /// Sends what was gathered, whose columns these are.
    ///
    /// # Errors
    /// Nobody reads any more.
    pub fn flush(&mut self, batch: RecordBatch) -> Result<(), DbError> {
        let gathered = self.kinds.len();
        assert_eq!(batch.num_rows(), gathered, "a kind for each row");
        if let Some(undo) = &self.undo {
            let kinds = std::mem::take(&mut self.kinds);
            return self.flush_undone(undo, &batch, &kinds);
        }
        if let Some(open) = &mut self.open
            && open.first < gathered
        {
            let own = gathered - open.first;
            self.marks.push(Mark { rows: gathered, own, at: open.at, before: open.before, end: None });
            open.before += own as u64;
        }
        if let Some(open) = &mut self.open {
            open.first = 0;
        }
        if gathered == 0 {
            return Ok(());
        }
        let kinds = std::mem::take(&mut self.kinds);
        let marks = std::mem::take(&mut self.marks);
        let (from, skip) = place(&marks, gathered);
        (self.position.from, self.position.skip) = (from, skip);
        self.reached = None;
        let (batch, kinds, raw) = if self.pieces.is_empty() { (batch, kinds, None) } else { self.filtered(batch, kinds, &marks)? };
        let forget = !self.pieces.is_empty() && self.pieces.passed(from);
        if forget {
            self.pieces = Pieces::default();
            self.position.parts.clear();
        }
        self.told = Instant::now();
        if batch.num_rows() == 0 {
            return self.send(Event::Position(self.position.clone()));
        }
        let kinds = kinds.iter().any(|k| *k != RowKind::Insert).then_some(kinds);
        self.send(Event::Changes(Changes { batch, kinds, marks, raw, gathered, forget, arrival_ns: clock::now_ns() }))
    }

    /// Sends old rows so that they come and go.
    fn flush_undone(&self, undo: &Undo, batch: &RecordBatch, kinds: &[RowKind]) -> Result<(), DbError> {
        let behind = undo.behind.as_deref();
        let keys = behind.map(|_| key_rows(batch, &self.key)).transpose()?;
        let wanted = |row: usize| {
            let old = matches!(kinds[row], RowKind::UpdateBefore | RowKind::Delete);
            old && keys.as_ref().zip(behind).is_none_or(|(keys, behind)| keys.row(row).data() > behind)
        };
        let wanted: Vec<bool> = (0..kinds.len()).map(wanted).collect();
        let old = filter_record_batch(batch, &BooleanArray::from(wanted))?;
        let mut from = 0;
        for to in distinct(&old, &self.key)? {
            // In batches of their own, so that what sees only the end of each sees them.
            for kind in [RowKind::Insert, RowKind::Delete] {
                self.send(Event::Undone { batch: old.slice(from, to - from), kind, arrival_ns: clock::now_ns() })?;
            }
            from = to;
        }
        Ok(())
    }

    /// Leaves out what the pieces of the table have seen.
    fn filtered(&self, batch: RecordBatch, kinds: Vec<RowKind>, marks: &[Mark]) -> Result<Filtered, DbError> {
        let keys = key_rows(&batch, &self.key)?;
        let mut wanted = Vec::with_capacity(kinds.len());
        let mut row = 0;
        for mark in marks {
            while row < mark.rows {
                wanted.push(self.pieces.wants(keys.row(row).data(), mark.at));
                row += 1;
            }
        }
        let mut kept = Vec::new();
        for (row, kind) in kinds.iter().enumerate().filter(|(row, _)| wanted[*row]) {
            // Of a row that moved between pieces only one half may be wanted.
            let alone = match kind {
                RowKind::UpdateBefore => wanted.get(row + 1) != Some(&true),
                RowKind::UpdateAfter => row > 0 && kinds[row - 1] == RowKind::UpdateBefore && !wanted[row - 1],
                RowKind::Insert | RowKind::Delete => false,
            };
            kept.push(match kind {
                RowKind::UpdateBefore if alone => RowKind::Delete,
                RowKind::UpdateAfter if alone => RowKind::Insert,
                kind => *kind,
            });
        }
        let raw = (0u32..).zip(&wanted).filter(|(_, wanted)| **wanted).map(|(row, _)| row).collect();
        Ok((filter_record_batch(&batch, &BooleanArray::from(wanted))?, kept, Some(raw)))
    }

    pub(super) fn send(&self, event: Event) -> Result<(), DbError> {
        let sent = self.sender.send(event);
        self.waker.wake();
        // Nobody is left to be told.
        sent.map_err(|_| DbError::fatal("reading was given up"))
    }
}

/// Where the runs of rows end in which no key comes twice.
fn distinct(batch: &RecordBatch, key: &[usize]) -> Result<Vec<usize>, DbError> {
    let (rows, mut ends) = (batch.num_rows(), Vec::new());
    if !key.is_empty() {
        let keys = key_rows(batch, key)?;
        let mut seen = HashSet::new();
        for (row, key) in keys.iter().enumerate() {
            if !seen.insert(key) {
                ends.push(row);
                seen.clear();
                seen.insert(key);
            }
        }
    }
    if rows > 0 {
        ends.push(rows);
    }
    Ok(ends)
}

/// Rows, their kinds, and which of those gathered they are.
type Filtered = (RecordBatch, Vec<RowKind>, Option<Vec<u32>>);

#[cfg(test)]
mod tests;
