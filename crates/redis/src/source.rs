//! The source: streams as splits, with where they begin and end found out once, at the start, so that a restart goes on in
//! the same bounds.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arrow::datatypes::DataType;
use tidemill_connect::socket::peer::spawn;
use tidemill_connect::{Changelog, ConnectError, Reader, ReaderContext, Source, Split};

use crate::address::Address;
use crate::feed::Feed;
use crate::follow::{Follower, Plan};
use crate::id::EntryId;
use crate::info::{self, Info};
use crate::options::LostEntries;
use crate::outage::patiently;
use crate::position::Position;
use crate::reader::StreamReader;
use crate::rows::{Layout, RowMaker, metadata_columns};

/// Where a scan begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the oldest entry.
    Earliest,
    /// Behind the newest.
    Latest,
    /// Behind this entry.
    After(EntryId),
}

impl Start {
    /// Where that is in a stream; one that is not there yet is empty.
    fn position(self, stream: &str, info: Option<&Info>, bounded: bool) -> Position {
        let after = match (self, info) {
            (Start::After(id), _) => id,
            (Start::Latest, Some(info)) => info.last,
            (Start::Earliest, _) | (Start::Latest, None) => EntryId::ZERO,
        };
        let read = match (self, info) {
            (Start::Earliest, Some(info)) => info.removed(),
            (Start::Latest, Some(info)) => info.added,
            (Start::After(_), _) => None,
            (_, None) => Some(0),
        };
        Position { stream: stream.to_string(), after, read, stop: info.filter(|_| bounded).map(|info| info.last) }
    }
}

/// What is read, and how.
pub struct RedisSource {
    /// The server.
    pub address: Address,
    /// The keys of the streams.
    pub streams: Vec<String>,
    /// Where columns stand in an entry.
    pub layout: Layout,
    /// Where to begin.
    pub start: Start,
    /// Whether to end behind the newest entry there is at the start.
    pub bounded: bool,
    /// What to do where entries are gone.
    pub lost: LostEntries,
    /// Entries asked for at once.
    pub batch: usize,
    /// Bytes of entries of each stream that are fetched ahead, unless memory is limited.
    pub prefetch: usize,
    /// Bytes of entries of all streams that may be held, if memory is limited.
    pub memory: OnceLock<u64>,
}

/// How often streams are looked for that a restored job does not read yet.
const DISCOVERED: Duration = Duration::from_secs(24 * 3600);
/// The least that is fetched ahead of a stream, bytes.
const PREFETCH_MIN: usize = 64 << 10;

impl RedisSource {
    /// Bytes of entries of each stream that are fetched ahead.
    fn ahead(&self) -> usize {
        let part = self.memory.get().map(|bytes| usize::try_from(*bytes).unwrap_or(usize::MAX) / self.streams.len().max(1));
        part.map_or(self.prefetch, |part| self.prefetch.min(part.max(PREFETCH_MIN)))
    }

    /// What the server knows of streams; a bounded scan needs all of them.
    fn infos(&self, streams: &[String]) -> Result<Vec<Option<Info>>, ConnectError> {
        let infos = patiently(&self.address, |connection| {
            streams.iter().map(|stream| info::ask(connection, stream)).collect::<Result<Vec<_>, _>>()
        })?;
        match streams.iter().zip(&infos).find(|(_, info)| info.is_none() && self.bounded) {
            Some((stream, _)) => Err(ConnectError::new(format!(
                "{}: there is no stream '{stream}' in database {}; a bounded scan does not wait for it",
                self.address.name(),
                self.address.database
            ))),
            None => Ok(infos),
        }
    }
}

impl Source for RedisSource {
    fn bounded(&self) -> bool {
        self.bounded
    }

    fn limit_memory(&self, bytes: u64) -> u64 {
        let _ = self.memory.set(bytes);
        (self.ahead() * self.streams.len()) as u64
    }

    fn splits(&self, _parallelism: usize) -> Result<Vec<Split>, ConnectError> {
        let infos = self.infos(&self.streams)?;
        let positions = self.streams.iter().zip(&infos).map(|(stream, info)| self.start.position(stream, info.as_ref(), self.bounded));
        Ok(positions.map(|position| position.split()).collect())
    }

    /// Streams that the table did not name when the checkpoint was taken. Those that are read already are known by their names.
    fn discover(&self, _parallelism: usize) -> Result<Vec<Split>, ConnectError> {
        let after = if let Start::After(id) = self.start { id } else { EntryId::ZERO };
        let split = |stream: &String| Position { stream: stream.clone(), after, read: None, stop: None }.split();
        Ok(self.streams.iter().map(split).collect())
    }

    /// The first time is right after the start, which is what counts: names do not change while a job runs.
    fn discovery_interval(&self) -> Option<Duration> {
        (!self.bounded).then_some(DISCOVERED)
    }

    fn changelog(&self) -> Changelog {
        match &self.layout {
            Layout::Message { format, .. } if format.changelog() => Changelog::All,
            _ => Changelog::Append,
        }
    }

    fn open(&self, split: &Split, context: ReaderContext) -> Result<Box<dyn Reader>, ConnectError> {
        let Some(position) = &split.position else {
            return Err(ConnectError::new(format!("{}: internal error: a stream without a position", split.id)));
        };
        let mut position = Position::of(position)?;
        if !self.streams.contains(&position.stream) {
            return Err(ConnectError::new(format!(
                "the checkpoint has a position of stream '{}', which the table no longer reads; --fresh begins anew",
                position.stream
            )));
        }
        if !self.bounded {
            position.stop = None;
        } else if position.stop.is_none() {
            // The table was not bounded when the checkpoint was taken.
            let infos = self.infos(std::slice::from_ref(&position.stream))?;
            position.stop = infos[0].map(|info| info.last);
        }
        let maker = RowMaker::new(&position.stream, &self.layout, &context.request)?;
        let feed = Arc::new(Feed::new(self.ahead(), context.waker));
        let plan = Plan { address: self.address.clone(), batch: self.batch, lost: self.lost };
        let follower = Follower::new(plan, feed.clone(), position.clone());
        spawn("tidemill-redis", move || follower.run())?;
        Ok(Box::new(StreamReader::new(feed, maker, position)))
    }

    fn metadata_columns(&self) -> Vec<(&'static str, DataType)> {
        metadata_columns()
    }

    fn one_split(&self) -> bool {
        self.streams.len() == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scans_begin_and_end_where_they_are_told() {
        let id = |ms| EntryId { ms, number: 0 };
        let info = Info { length: 4, last: id(9), first: Some(id(5)), added: Some(7) };
        let check = |start: Start, info: Option<&Info>, after, read, stop| {
            let expect = Position { stream: "s".into(), after, read, stop };
            assert_eq!(start.position("s", info, stop.is_some()), expect);
        };
        check(Start::Earliest, Some(&info), EntryId::ZERO, Some(3), Some(id(9)));
        check(Start::Latest, Some(&info), id(9), Some(7), None);
        check(Start::After(id(6)), Some(&info), id(6), None, Some(id(9)));
        check(Start::Earliest, None, EntryId::ZERO, Some(0), None);
        check(Start::Latest, None, EntryId::ZERO, Some(0), None);
        check(Start::After(id(6)), None, id(6), None, None);
    }
}
