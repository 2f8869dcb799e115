//! What a server knows of a stream (`XINFO STREAM`), and what that says about entries that are gone before they were read.
//!
//! Since Redis 7 a server counts the entries that were ever added. Whoever knows how many of them it has read or does not
//! want can tell at two moments whether others are missing, whatever was trimmed or deleted meanwhile: when its last entry
//! is the newest, all that were added must be among them; and when its last entry is older than the oldest that is there,
//! all that are gone must be.

use crate::connection::{Connection, Trouble, unexpected};
use crate::id::EntryId;
use crate::resp::{self, Reply};

/// A stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Entries that are there.
    pub length: u64,
    /// The newest ID there ever was.
    pub last: EntryId,
    /// The oldest entry that is there.
    pub first: Option<EntryId>,
    /// Entries that were ever added; servers before Redis 7 do not say it.
    pub added: Option<u64>,
}

/// What became of entries that a reader has not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// None is known to be missing. So many of those added are read or not wanted, if that is known.
    None(Option<u64>),
    /// So many are missing, and as many of those added are then behind.
    Some(u64, u64),
    /// All: the stream was deleted and created anew, and so many are gone from the new one, too.
    All(u64),
}

/// The command that asks for it.
pub fn command(out: &mut Vec<u8>, stream: &str) {
    out.extend_from_slice(&resp::whole(&[b"XINFO", b"STREAM", stream.as_bytes()]));
}

/// Asks for it; none if there is no such key.
///
/// # Errors
/// The server does not answer, or the key holds something else.
pub fn ask(connection: &mut Connection, stream: &str) -> Result<Option<Info>, Trouble> {
    let mut asked = Vec::new();
    command(&mut asked, stream);
    connection.send(&asked)?;
    receive(connection)
}

/// Waits for the answer to [`command`].
///
/// # Errors
/// As [`ask`].
pub fn receive(connection: &mut Connection) -> Result<Option<Info>, Trouble> {
    match connection.receive()? {
        Reply::Error(text) if text == "ERR no such key" => Ok(None),
        Reply::Error(text) => Err(Trouble::of_answer(&text)),
        reply => Info::of(&reply).map(Some).ok_or_else(|| unexpected("XINFO STREAM", &reply)),
    }
}

impl Info {
    fn of(reply: &Reply) -> Option<Self> {
        let Reply::Array(pairs) = reply else { return None };
        let value = |name: &str| pairs.chunks_exact(2).find(|pair| pair[0].text() == Some(name)).map(|pair| &pair[1]);
        let number = |name| match value(name)? {
            Reply::Integer(number) => u64::try_from(*number).ok(),
            _ => None,
        };
        let first = match value("first-entry")? {
            Reply::Array(entry) => Some(EntryId::parse(entry.first()?.text()?)?),
            _ => None,
        };
        let last = EntryId::parse(value("last-generated-id")?.text()?)?;
        Some(Info { length: number("length")?, last, first, added: number("entries-added") })
    }

    /// How many of those added are gone.
    pub fn removed(&self) -> Option<u64> {
        self.added.map(|added| added.saturating_sub(self.length))
    }

    /// What a reader has missed whose last entry is `after`, and to whom `read` of those added are read or not wanted.
    pub fn gone(&self, after: EntryId, read: Option<u64>) -> Gone {
        let (Some(added), Some(removed)) = (self.added, self.removed()) else { return Gone::None(read) };
        let known = if self.last == after {
            Some(added)
        } else if self.first.is_none_or(|first| first > after) {
            Some(removed)
        } else {
            None
        };
        match (read, known) {
            (None, known) => Gone::None(known),
            (Some(_), _) if self.last < after => Gone::All(removed),
            (Some(read), Some(known)) if known < read => Gone::All(removed),
            (Some(read), Some(known)) if known > read => Gone::Some(known - read, known),
            (read, _) => Gone::None(read),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(ms: u64) -> EntryId {
        EntryId { ms, number: 0 }
    }

    /// Entries 1 to `added`, of which those from `first` on are there, less `deleted` in between.
    fn info(first: u64, added: u64, deleted: u64) -> Info {
        let length = added + 1 - first - deleted;
        Info { length, last: id(added), first: (length > 0).then(|| id(first)), added: Some(added) }
    }

    #[test]
    fn the_answer_is_read() {
        let text = |text: &str| Reply::Bytes(text.as_bytes().to_vec());
        let entry = Reply::Array(vec![text("5-1"), Reply::Array(vec![text("a"), text("b")])]);
        let mut pairs = vec![text("length"), Reply::Integer(2), text("last-generated-id"), text("7-0"), text("first-entry"), entry];
        let expect = Info { length: 2, last: id(7), first: Some(EntryId { ms: 5, number: 1 }), added: None };
        assert_eq!(Info::of(&Reply::Array(pairs.clone())), Some(expect));
        pairs.extend([text("entries-added"), Reply::Integer(9)]);
        assert_eq!(Info::of(&Reply::Array(pairs)), Some(Info { added: Some(9), ..expect }));
        assert_eq!(Info::of(&Reply::Array(vec![text("length"), Reply::Integer(2)])), None);
    }

    #[test]
    fn entries_that_are_gone_are_counted() {
        // Read up to 4 of 9: nothing is known while the fourth is there, and all is well if the fifth is the oldest.
        assert_eq!(info(3, 9, 0).gone(id(4), Some(4)), Gone::None(Some(4)));
        assert_eq!(info(5, 9, 0).gone(id(4), Some(4)), Gone::None(Some(4)));
        assert_eq!(info(7, 9, 0).gone(id(4), Some(4)), Gone::Some(2, 6));
        // All of them were removed.
        assert_eq!(info(10, 9, 0).gone(id(4), Some(4)), Gone::Some(5, 9));
        // The last one was read, after others had gone before they were.
        assert_eq!(info(8, 9, 0).gone(id(9), Some(9)), Gone::None(Some(9)));
        assert_eq!(info(8, 9, 0).gone(id(9), Some(6)), Gone::Some(3, 9));
        // Entries that were read and then deleted are nothing lost.
        assert_eq!(info(3, 9, 2).gone(id(9), Some(9)), Gone::None(Some(9)));
    }

    #[test]
    fn how_many_were_read_is_found_out() {
        assert_eq!(info(3, 9, 0).gone(id(4), None), Gone::None(None));
        assert_eq!(info(5, 9, 0).gone(id(4), None), Gone::None(Some(4)));
        assert_eq!(info(3, 9, 0).gone(id(9), None), Gone::None(Some(9)));
        assert_eq!(Info { added: None, ..info(5, 9, 0) }.gone(id(2), Some(1)), Gone::None(Some(1)));
    }

    #[test]
    fn a_stream_created_anew_is_told() {
        assert_eq!(info(1, 3, 0).gone(id(4), Some(4)), Gone::All(0));
        assert_eq!(info(2, 3, 0).gone(id(4), Some(4)), Gone::All(1));
        // It has grown beyond, but had fewer entries.
        let anew = Info { length: 2, last: id(20), first: Some(id(19)), added: Some(2) };
        assert_eq!(anew.gone(id(4), Some(4)), Gone::All(0));
    }
}
