//! The thread that follows a stream: asks for what is behind the last entry, waits at the server while there is nothing,
//! and hands entries over while an answer still arrives. It bears with a server that is away.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidemill_block::clock;
use tidemill_connect::ConnectError;
use tidemill_format::message::Place;

use crate::address::Address;
use crate::connection::{Connection, Trouble, named};
use crate::feed::{Entry, Feed, Piece};
use crate::id::EntryId;
use crate::info::{self, Gone, Info};
use crate::options::LostEntries;
use crate::outage::{Outage, given_up};
use crate::position::Position;
use crate::resp::{self, Head};

/// How long the server may keep a question that it has no answer to, milliseconds: less than it may be silent.
const BLOCK_MS: u64 = 5_000;
/// How often to look whether entries are gone that were not read, where nothing urges it.
const INSPECTED: Duration = Duration::from_secs(1);
/// Bytes of entries handed over at once, where more have arrived.
const PIECE_BYTES: usize = 256 << 10;
/// Bytes of one entry.
const ENTRY_BYTES_MAX: usize = 1 << 30;

/// What does not change.
pub struct Plan {
    /// The server.
    pub address: Address,
    /// Entries asked for at once.
    pub batch: usize,
    /// What to do where entries are gone.
    pub lost: LostEntries,
}

/// Follows a stream.
pub struct Follower {
    plan: Plan,
    feed: Arc<Feed>,
    /// Where the next entry is looked for.
    position: Position,
    outage: Outage,
    /// Until when the first connection must be made; none once it was.
    deadline: Option<Instant>,
    /// When it was last looked whether entries are gone.
    inspected: Option<Instant>,
    /// It was told that there is no stream.
    absent_told: bool,
    piece: Piece,
}

/// How an answer has ended.
enum Answered {
    /// With so many entries.
    Entries(usize),
    /// Nobody reads any more.
    Stopped,
}

impl Follower {
    /// One that begins at `position`.
    pub fn new(plan: Plan, feed: Arc<Feed>, position: Position) -> Self {
        let outage = Outage::new(format!("stream '{}' of {}", position.stream, plan.address.name()));
        let deadline = Some(Instant::now() + plan.address.timeout);
        Follower { plan, feed, position, outage, deadline, inspected: None, absent_told: false, piece: Piece::default() }
    }

    /// Follows it to its end, or until nobody reads any more.
    pub fn run(mut self) {
        let end = self.follow();
        self.feed.finish(end);
    }

    fn follow(&mut self) -> Result<(), ConnectError> {
        while !self.feed.is_stopped() {
            let trouble = match self.session() {
                Ok(()) => return Ok(()),
                // Whoever stops it cuts the connection.
                Err(_) if self.feed.is_stopped() => return Ok(()),
                Err(trouble) => trouble,
            };
            self.feed.lend(None);
            // What has come of an entry that was cut off comes again.
            self.hand_over();
            match trouble {
                Trouble::Refused(_) => return Err(named(&self.plan.address, &trouble).at(self.place())),
                Trouble::Away(_) if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) => {
                    return Err(given_up(&self.plan.address, &trouble).at(self.place()));
                }
                Trouble::Away(why) => self.outage.failed(&why, || self.feed.is_stopped()),
            }
        }
        Ok(())
    }

    fn place(&self) -> String {
        format!("stream '{}'", self.position.stream)
    }

    /// Follows it over one connection.
    fn session(&mut self) -> Result<(), Trouble> {
        let mut connection = Connection::open(&self.plan.address)?;
        self.feed.lend(Some(connection.cutter()?));
        self.deadline = None;
        self.inspected = None;
        while !self.is_done() && !self.feed.is_stopped() {
            let inspects = self.inspected.is_none_or(|then| then.elapsed() >= INSPECTED);
            if inspects {
                let known = info::ask(&mut connection, &self.position.stream)?;
                self.inspect(known)?;
                self.inspected = Some(Instant::now());
            }
            connection.send(&self.question())?;
            let answered = self.answer(&mut connection)?;
            self.outage.over();
            match answered {
                Answered::Stopped => return Ok(()),
                // A bounded scan does not wait. What is missing up to its end is gone.
                Answered::Entries(0) if self.position.stop.is_some() => {
                    let known = info::ask(&mut connection, &self.position.stream)?;
                    return self.inspect(known);
                }
                Answered::Entries(0) => {}
                // Who lags behind may be overtaken by who trims.
                Answered::Entries(count) if count >= self.plan.batch => self.inspected = None,
                Answered::Entries(_) => {}
            }
        }
        Ok(())
    }

    /// Whether a bounded scan is at its end.
    fn is_done(&self) -> bool {
        self.position.stop.is_some_and(|stop| self.position.after >= stop)
    }

    /// The command that asks for the next entries.
    fn question(&self) -> Vec<u8> {
        let waits = self.position.stop.is_none();
        let mut out = Vec::new();
        resp::command(&mut out, if waits { 8 } else { 6 });
        resp::bulk(&mut out, b"XREAD");
        resp::bulk(&mut out, b"COUNT");
        resp::number(&mut out, self.plan.batch as u64);
        if waits {
            resp::bulk(&mut out, b"BLOCK");
            resp::number(&mut out, BLOCK_MS);
        }
        resp::bulk(&mut out, b"STREAMS");
        resp::bulk(&mut out, self.position.stream.as_bytes());
        resp::bulk(&mut out, self.position.after.to_string().as_bytes());
        out
    }

    /// Looks whether entries are gone that were not read.
    fn inspect(&mut self, known: Option<Info>) -> Result<(), Trouble> {
        let Position { stream, after, read, stop } = &mut self.position;
        let Some(info) = known else {
            if stop.is_some() && self.plan.lost == LostEntries::Fail {
                return Err(Trouble::Refused(
                    "the stream was deleted before it was read to its end; 'scan.lost-entries' = 'ignore' ends there, --fresh begins anew"
                        .into(),
                ));
            }
            if !self.absent_told {
                self.absent_told = true;
                tidemill_connect::notice(&format!("{}: there is no stream '{stream}' yet; waiting for it", self.plan.address.name()));
            }
            return Ok(());
        };
        let fails = self.plan.lost == LostEntries::Fail;
        let hint = "'scan.lost-entries' = 'ignore' goes on with what is there, --fresh begins anew";
        match info.gone(*after, *read) {
            Gone::None(known) => *read = known,
            Gone::Some(count, _) if fails => {
                return Err(Trouble::Refused(format!(
                    "{count} entries behind {after} were trimmed away or deleted before they were read; trim less, or {hint}"
                )));
            }
            Gone::All(_) if fails => {
                return Err(Trouble::Refused(format!(
                    "the stream was deleted and created anew, or the server has lost its newest entries: the last one read was \
                     {after}, its newest is {}; {hint}",
                    info.last
                )));
            }
            Gone::Some(count, all) => {
                *read = Some(all);
                tidemill_connect::notice(&format!("stream '{stream}': {count} entries behind {after} are gone before they were read"));
            }
            Gone::All(removed) => {
                tidemill_connect::notice(&format!("stream '{stream}' was deleted and created anew; what was not read of the new one is"));
                // Where its IDs have gone up to the last one read or beyond, what is up to there has come already.
                *read = if info.last == *after { info.added } else { Some(removed) };
                if info.last < *after {
                    *after = EntryId::ZERO;
                }
            }
        }
        Ok(())
    }

    /// Takes the answer to [`Follower::question`]: one stream, its key, its entries.
    fn answer(&mut self, connection: &mut Connection) -> Result<Answered, Trouble> {
        match connection.receive_head()? {
            Head::Array(None | Some(0)) => return Ok(Answered::Entries(0)),
            Head::Array(Some(1)) => {}
            Head::Error(text) => return Err(Trouble::of_answer(&text)),
            other => return Err(odd(&other)),
        }
        array(connection, 2)?;
        let mut key = Vec::new();
        text(connection, &mut key)?;
        let count = length(connection)?;
        for _ in 0..count {
            self.entry(connection)?;
            let full = self.piece.bytes.len() >= PIECE_BYTES;
            if (full || !connection.has_more()) && !self.hand_over() {
                return Ok(Answered::Stopped);
            }
        }
        Ok(if self.hand_over() { Answered::Entries(count) } else { Answered::Stopped })
    }

    /// Takes one entry.
    fn entry(&mut self, connection: &mut Connection) -> Result<(), Trouble> {
        let (bytes, texts) = (self.piece.bytes.len(), self.piece.texts.len());
        let taken = self.try_entry(connection);
        if !matches!(taken, Ok(true)) {
            // Nothing stays of one that was cut off or is not wanted.
            self.piece.bytes.truncate(bytes);
            self.piece.texts.truncate(texts);
        }
        taken.map(|_| ())
    }

    /// Takes one entry; false if it is not wanted.
    fn try_entry(&mut self, connection: &mut Connection) -> Result<bool, Trouble> {
        array(connection, 2)?;
        let mut id = Vec::new();
        text(connection, &mut id)?;
        let id = std::str::from_utf8(&id).ok().and_then(EntryId::parse);
        let id = id.ok_or_else(|| Trouble::Refused("XREAD: an entry without an ID".into()))?;
        let (begin, from) = (self.piece.bytes.len(), self.piece.texts.len());
        let texts = length(connection)?;
        if !texts.is_multiple_of(2) {
            return Err(Trouble::Refused(format!("XREAD: entry {id} has a field without a value")));
        }
        for _ in 0..texts {
            let at = self.piece.bytes.len();
            text(connection, &mut self.piece.bytes)?;
            if self.piece.bytes.len() - begin > ENTRY_BYTES_MAX {
                return Err(Trouble::Refused(format!("entry {id} has more than {} mb", ENTRY_BYTES_MAX >> 20)));
            }
            // A piece has less than PIECE_BYTES before its last entry.
            self.piece.texts.push(Place { from: at as u32, length: (self.piece.bytes.len() - at) as i32 });
        }
        let wanted = self.position.stop.is_none_or(|stop| id <= stop);
        if wanted {
            if self.piece.entries.is_empty() {
                self.piece.read = self.position.read;
                self.piece.arrival_ns = clock::now_ns();
            }
            self.piece.entries.push(Entry { id, from, to: self.piece.texts.len() });
        }
        self.position.after = id;
        self.position.read = self.position.read.map(|read| read + 1);
        Ok(wanted)
    }

    /// Gives the worker what has come; false if nobody reads any more.
    fn hand_over(&mut self) -> bool {
        if self.piece.entries.is_empty() {
            return !self.feed.is_stopped();
        }
        self.feed.give(std::mem::take(&mut self.piece))
    }
}

fn odd(head: &Head) -> Trouble {
    Trouble::Refused(format!("XREAD: an answer that is none: {head:?}"))
}

/// How many answers follow; a deleted entry has none.
fn length(connection: &mut Connection) -> Result<usize, Trouble> {
    match connection.receive_head()? {
        Head::Array(length) => Ok(length.unwrap_or(0)),
        other => Err(odd(&other)),
    }
}

fn array(connection: &mut Connection, expected: usize) -> Result<(), Trouble> {
    match connection.receive_head()? {
        Head::Array(Some(length)) if length == expected => Ok(()),
        other => Err(odd(&other)),
    }
}

/// Appends a text.
fn text(connection: &mut Connection, out: &mut Vec<u8>) -> Result<(), Trouble> {
    match connection.receive_head()? {
        Head::Bulk(Some(length)) => connection.receive_bulk(length, out),
        other => Err(odd(&other)),
    }
}
