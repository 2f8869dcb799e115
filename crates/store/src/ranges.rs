//! Reading an object anywhere: a few blocks kept, the next ones fetched early where reading goes forwards; many ranges at
//! once, near ones joined.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};

use crate::ahead::Ticket;
use crate::client::Client;
use crate::error::{Kind, StoreError};
use crate::open::{collect, waited};
use crate::reader::AHEAD;
use crate::runtime::{lock, spawn, wait};
use crate::{Object, SIZE_UNKNOWN};

/// What is fetched and kept as one.
const BLOCK: u64 = 1 << 20;
/// Blocks fetched ahead of a reader that goes forwards, while the readers of the process leave room for them.
const BLOCKS_AHEAD: u64 = 6;
/// Blocks kept of one object.
const BLOCKS_MAX: usize = 32;
/// Ranges that lie nearer to each other than this are one request: 1 MiB comes about as fast as an answer begins.
const GAP: u64 = 1 << 20;
/// The most that one request asks for; what is larger comes in several at once.
const PIECE: u64 = 8 << 20;

/// An object whose bytes can be asked for anywhere. Clones share what is kept in memory.
#[derive(Clone)]
pub struct ObjectFile {
    shared: Arc<Shared>,
}

struct Shared {
    client: Arc<Client>,
    object: Object,
    blocks: Mutex<Blocks>,
}

#[derive(Default)]
struct Blocks {
    slots: HashMap<u64, Arc<Slot>>,
    /// Their numbers, oldest first.
    order: VecDeque<u64>,
}

/// A block, once it has come.
#[derive(Default)]
struct Slot {
    content: Mutex<Option<Result<Bytes, StoreError>>>,
    here: Condvar,
    /// What it takes of the bytes fetched ahead, until it is asked for.
    ahead: Mutex<Option<Ticket>>,
}

/// Room for bytes that are fetched before they are wanted, as long as it is kept.
pub struct Reserved {
    _ticket: Ticket,
}

impl ObjectFile {
    pub(crate) fn new(client: Arc<Client>, object: Object) -> Self {
        ObjectFile { shared: Arc::new(Shared { client, object, blocks: Mutex::default() }) }
    }

    /// Bytes in the object.
    pub fn size(&self) -> u64 {
        self.shared.object.size
    }

    /// What is read.
    pub fn object(&self) -> &Object {
        &self.shared.object
    }

    /// Room for so many bytes that will be fetched before they are wanted, if all that the process fetches ahead leaves it.
    pub fn reserve(&self, bytes: u64) -> Option<Reserved> {
        AHEAD.reserve(bytes).map(|ticket| Reserved { _ticket: ticket })
    }

    /// Reads at byte `at`; fewer bytes than `buf` takes only at the end.
    ///
    /// # Errors
    /// The server knows no ranges; the object has changed; requests failed.
    pub fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.seekable()?;
        let end = self.size().min(at.saturating_add(buf.len() as u64));
        if at >= end {
            return Ok(0);
        }
        let whole = (end - at) as usize;
        if whole as u64 > 2 * BLOCK {
            let parts = self.read_ranges(std::slice::from_ref(&(at..end)))?;
            buf[..whole].copy_from_slice(&parts[0]);
            return Ok(whole);
        }
        let mut done = 0;
        while done < whole {
            let from = at + done as u64;
            let (number, offset) = (from / BLOCK, (from % BLOCK) as usize);
            let block = self.block(number)?;
            let n = (whole - done).min(block.len() - offset);
            buf[done..done + n].copy_from_slice(&block[offset..offset + n]);
            done += n;
        }
        Ok(done)
    }

    /// The bytes of `ranges`, in their order. Ranges near each other are one request, large ones several; requests run at once.
    ///
    /// # Errors
    /// A range beyond the end; otherwise as [`ObjectFile::read_at`].
    pub fn read_ranges(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, StoreError> {
        self.read_ranges_near(ranges, GAP)
    }

    /// As [`ObjectFile::read_ranges`], where what lies between two ranges of one request is no more than `gap` bytes. It is fetched with
    /// them, and held as long as they are.
    ///
    /// # Errors
    /// As [`ObjectFile::read_ranges`].
    pub fn read_ranges_near(&self, ranges: &[Range<u64>], gap: u64) -> Result<Vec<Bytes>, StoreError> {
        self.seekable()?;
        if let Some(odd) = ranges.iter().find(|r| r.start > r.end || r.end > self.size()) {
            let why = format!(
                "reading '{}': bytes {} to {} were asked for, and it has {}; the file is cut short or says wrong things of itself",
                self.shared.object.url,
                odd.start,
                odd.end,
                self.size()
            );
            return Err(StoreError::new(Kind::Other, why));
        }
        let plan = plan(ranges, gap);
        let (client, object, parallel) = (self.shared.client.clone(), self.shared.object.clone(), self.shared.client.parallel);
        let pieces = plan.clone();
        let begun = Instant::now();
        let bodies: Result<Vec<Bytes>, StoreError> = wait(async move {
            let requests = pieces.into_iter().map(move |piece| collect(client.clone(), object.clone(), piece));
            stream::iter(requests).buffered(parallel).try_collect().await
        });
        waited(begun);
        let bodies = bodies?;
        Ok(ranges.iter().map(|range| cut(&plan, &bodies, range)).collect())
    }

    fn seekable(&self) -> Result<(), StoreError> {
        let object = &self.shared.object;
        if object.seekable && object.size != SIZE_UNKNOWN {
            return Ok(());
        }
        let why = "the server gives it as a whole only; it can be read from the beginning to the end";
        let why = format!("reading '{}' in ranges: {why}", object.url);
        Err(StoreError::new(Kind::Other, why))
    }

    /// A block, waited for.
    fn block(&self, number: u64) -> Result<Bytes, StoreError> {
        let slot = {
            let mut blocks = lock(&self.shared.blocks);
            let forwards = number > 0 && blocks.slots.contains_key(&(number - 1));
            let slot = self.slot(&mut blocks, number)?;
            drop(lock(&slot.ahead).take());
            if forwards {
                let last = (self.size() - 1) / BLOCK;
                for next in number + 1..=last.min(number + BLOCKS_AHEAD) {
                    if blocks.slots.contains_key(&next) {
                        continue;
                    }
                    let Some(ticket) = AHEAD.reserve(BLOCK) else { break };
                    *lock(&self.slot(&mut blocks, next)?.ahead) = Some(ticket);
                }
            }
            slot
        };
        let mut content = lock(&slot.content);
        let begun = content.is_none().then(Instant::now);
        let result = loop {
            match &*content {
                Some(result) => break result.clone(),
                None => content = slot.here.wait(content).unwrap_or_else(PoisonError::into_inner),
            }
        };
        if let Some(begun) = begun {
            waited(begun);
        }
        if result.is_err() {
            // The next one who asks tries again.
            let mut blocks = lock(&self.shared.blocks);
            if blocks.slots.get(&number).is_some_and(|other| Arc::ptr_eq(other, &slot)) {
                blocks.slots.remove(&number);
                blocks.order.retain(|n| *n != number);
            }
        }
        result
    }

    /// The place of a block, which is fetched if there was none.
    fn slot(&self, blocks: &mut Blocks, number: u64) -> Result<Arc<Slot>, StoreError> {
        if let Some(slot) = blocks.slots.get(&number) {
            return Ok(slot.clone());
        }
        if blocks.order.len() >= BLOCKS_MAX
            && let Some(oldest) = blocks.order.pop_front()
        {
            blocks.slots.remove(&oldest);
        }
        let slot = Arc::new(Slot::default());
        let range = number * BLOCK..self.size().min((number + 1) * BLOCK);
        let (client, object, place) = (self.shared.client.clone(), self.shared.object.clone(), slot.clone());
        spawn(async move {
            let result = collect(client, object, range).await;
            *lock(&place.content) = Some(result);
            place.here.notify_all();
        })?;
        blocks.slots.insert(number, slot.clone());
        blocks.order.push_back(number);
        Ok(slot)
    }
}

impl tidemill_archive::ReadAt for ObjectFile {
    fn size(&self) -> u64 {
        ObjectFile::size(self)
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<usize> {
        ObjectFile::read_at(self, at, buf)
    }
}

/// What to ask for: disjoint pieces in order, that cover every range. Ranges no more than `gap` bytes apart are one.
fn plan(ranges: &[Range<u64>], gap: u64) -> Vec<Range<u64>> {
    let mut sorted: Vec<&Range<u64>> = ranges.iter().filter(|r| r.start < r.end).collect();
    sorted.sort_unstable_by_key(|r| r.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in sorted {
        match joined.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(gap) => last.end = last.end.max(range.end),
            _ => joined.push(range.clone()),
        }
    }
    let mut pieces = Vec::with_capacity(joined.len());
    for range in joined {
        let count = (range.end - range.start).div_ceil(PIECE);
        let size = (range.end - range.start).div_ceil(count);
        let mut at = range.start;
        while at < range.end {
            let to = range.end.min(at + size);
            pieces.push(at..to);
            at = to;
        }
    }
    pieces
}

/// A range out of the bodies of the pieces: without a copy where it lies in one.
fn cut(pieces: &[Range<u64>], bodies: &[Bytes], range: &Range<u64>) -> Bytes {
    if range.start == range.end {
        return Bytes::new();
    }
    let mut index = pieces.partition_point(|p| p.end <= range.start);
    let first = &pieces[index];
    if range.end <= first.end {
        return bodies[index].slice((range.start - first.start) as usize..(range.end - first.start) as usize);
    }
    let mut whole = Vec::with_capacity((range.end - range.start) as usize);
    let mut at = range.start;
    while at < range.end {
        let piece = &pieces[index];
        let to = piece.end.min(range.end);
        whole.extend_from_slice(&bodies[index][(at - piece.start) as usize..(to - piece.start) as usize]);
        (at, index) = (to, index + 1);
    }
    whole.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(ranges: &[(u64, u64)], expect: &str) {
        let ranges: Vec<Range<u64>> = ranges.iter().map(|(from, to)| *from..*to).collect();
        assert_eq!(format!("{:?}", plan(&ranges, GAP)), expect);
    }

    #[test]
    fn near_ranges_are_one_request_and_large_ones_several() {
        const M: u64 = 1 << 20;
        check(&[], "[]");
        check(&[(5, 5)], "[]");
        check(&[(100, 200), (0, 10)], "[0..200]");
        check(&[(0, 10), (10 + M, 20 + M), (30 + 3 * M, 31 + 3 * M)], "[0..1048596, 3145758..3145759]");
        check(&[(0, 16 * M + 2)], "[0..5592406, 5592406..11184812, 11184812..16777218]");
        assert_eq!(plan(&[0..10, 20..30, 41..50], 10), [0..30, 41..50]);
    }

    #[test]
    fn ranges_are_cut_out_of_pieces() {
        let bodies: Vec<Bytes> = vec!["abcd".into(), "efgh".into(), "xyz".into()];
        let pieces = [0..4, 4..8, 20..23];
        let cut = |range: Range<u64>| String::from_utf8(super::cut(&pieces, &bodies, &range).to_vec()).unwrap();
        assert_eq!([cut(1..3), cut(2..7), cut(4..8), cut(21..22), cut(9..9)], ["bc", "cdefg", "efgh", "y", ""]);
    }
}
