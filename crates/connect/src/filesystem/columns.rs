//! The bytes of Parquet files: local ones with care for the page cache, remote ones a row group at a time, of which
//! all columns wanted are asked for at once and the next group's while this one's are decoded. Rows are made of them in
//! [`super::parquet`].

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use bytes::Bytes;
use tidemill_format::parquet::{ChunkReader, Expected, Length, PARTS_GAP_MAX, ParquetError, ParquetInput};
use tidemill_store::{ObjectFile, Reserved, StoreError};

use super::cache::{self, Care, Residency};
use super::page;

/// Page headers are some tens of bytes, with statistics some hundreds.
const HEADER_BYTES: usize = 1 << 10;
/// What is fetched of the end of a remote file before anything is known of it: most footers are smaller.
const TAIL_BYTES: u64 = 512 << 10;
/// Row groups larger than this are not fetched while the one before is decoded, bytes.
const GROUP_AHEAD_MAX: u64 = 64 << 20;

type Answer<T> = Result<T, ParquetError>;

/// A part that no file of this length has.
fn beyond(start: u64, length: usize, size: u64) -> ParquetError {
    let end = start.saturating_add(length as u64);
    ParquetError::EOF(format!("bytes {start} to {end} are wanted, but it has {size}: it was cut, or its footer lies"))
}

/// A local file.
pub(super) struct LocalColumns(Arc<Local>);

struct Local {
    file: File,
    size: u64,
    /// What the cache held when the file was opened.
    found: Residency,
    give_back: bool,
    /// The parts that will be read of each row group, and the number of the group that comes next.
    groups: Mutex<(Vec<Vec<Range<u64>>>, usize)>,
}

impl LocalColumns {
    /// Of this file; what was not in the cache leaves it again if it is to be given back.
    ///
    /// # Errors
    /// Its length cannot be asked for.
    pub fn new(file: File, care: Care) -> io::Result<Self> {
        let size = file.metadata()?.len();
        let found = care.found(&file, size);
        let give_back = care.give_back && found.cached < size / 2;
        Ok(LocalColumns(Arc::new(Local { file, size, found, give_back, groups: Mutex::default() })))
    }
}

impl Local {
    /// Asks for a row group when the first bytes of it are wanted, if some of the file is not in the cache.
    fn touch(&self, start: u64) {
        if self.found.cached >= self.found.bytes {
            return;
        }
        let mut groups = self.groups.lock().expect("no panic while held");
        let (all, next) = &mut *groups;
        while let Some(group) = all.get(*next)
            && group.first().is_none_or(|first| first.start <= start)
        {
            group.iter().for_each(|part| page::fetch(&self.file, part.start, part.end - part.start));
            *next += 1;
        }
    }
}

/// Reads a local file from somewhere on.
pub(super) struct Reading {
    local: Arc<Local>,
    at: u64,
}

impl Read for Reading {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.local.file.read_at(buffer, self.at)?;
        self.at += got as u64;
        Ok(got)
    }
}

impl Length for LocalColumns {
    fn len(&self) -> u64 {
        self.0.size
    }
}

impl ChunkReader for LocalColumns {
    type T = BufReader<Reading>;

    fn get_read(&self, start: u64) -> Answer<Self::T> {
        self.0.touch(start);
        Ok(BufReader::with_capacity(HEADER_BYTES, Reading { local: self.0.clone(), at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Answer<Bytes> {
        let local = &*self.0;
        // Looked at before memory is taken for it.
        if start.checked_add(length as u64).is_none_or(|end| end > local.size) {
            return Err(beyond(start, length, local.size));
        }
        local.touch(start);
        let bytes = cache::timed(local.found.cold(), || page::read(&local.file, start, length))?;
        cache::count_share(length as u64, local.found);
        if local.give_back {
            page::give_back(&local.file, start, length as u64);
        }
        Ok(bytes.into())
    }
}

impl ParquetInput for LocalColumns {
    fn expect(&self, groups: Vec<Expected>) {
        // Where in a column some of its rows lie is not known; the system fetches ahead of who reads them.
        let parts = |group: Expected| if group.in_part { Vec::new() } else { group.parts };
        *self.0.groups.lock().expect("no panic while held") = (groups.into_iter().map(parts).collect(), 0);
    }
}

/// An object in a bucket.
pub(super) struct RemoteColumns {
    file: ObjectFile,
    held: Mutex<Held>,
}

type Fetched = Result<Vec<Bytes>, StoreError>;

/// What of it is in memory.
#[derive(Default)]
struct Held {
    groups: Vec<Vec<Range<u64>>>,
    /// A group by its number, and its parts.
    group: Option<(usize, Vec<Bytes>)>,
    /// The group before it, and what is still needed of its parts: columns come to the next group one after the other.
    before: Option<(usize, Vec<Bytes>)>,
    /// The group that is being fetched, with the room that it takes until it is wanted.
    ahead: Option<(usize, JoinHandle<Fetched>, Reserved)>,
    /// The end of the file and where it begins, until the first group comes.
    tail: Option<(u64, Bytes)>,
}

impl RemoteColumns {
    /// Of this object.
    pub fn new(file: ObjectFile) -> Self {
        RemoteColumns { file, held: Mutex::default() }
    }

    /// The bytes from `start` on, at least `length` of them if the file has so many.
    fn rest(&self, start: u64, length: usize) -> Answer<Bytes> {
        let (size, length) = (self.file.size(), length as u64);
        let wanted = start..start.saturating_add(length);
        if wanted.end > size {
            return Err(beyond(start, length as usize, size));
        }
        let mut held = self.held.lock().expect("no panic while held");
        let holds = |part: &Range<u64>| part.start <= wanted.start && wanted.end <= part.end;
        let place = held.groups.iter().enumerate().find_map(|(n, group)| Some((n, group.iter().position(holds)?)));
        if let Some((group, part)) = place {
            let begin = held.groups[group][part].start;
            let from = (start - begin) as usize;
            if held.group.as_ref().is_some_and(|(have, _)| *have > group) {
                // A batch that ends in the next group: its first columns are there already.
                return match &held.before {
                    Some((passed, parts)) if *passed == group && !parts[part].is_empty() => Ok(parts[part].slice(from..)),
                    _ => self.some(wanted),
                };
            }
            if held.group.as_ref().is_none_or(|(have, _)| *have != group) {
                self.load(&mut held, group)?;
            }
            // Who has come here needs the column of the group before no more.
            // Stripes of ORC have as many parts as their streams lie apart.
            if let Some(bytes) = held.before.as_mut().and_then(|(_, parts)| parts.get_mut(part)) {
                *bytes = Bytes::new();
            }
            let (_, parts) = held.group.as_ref().expect("loaded above");
            return Ok(parts[part].slice(from..));
        }
        if held.groups.is_empty() && held.tail.is_none() {
            let begin = size.saturating_sub(TAIL_BYTES);
            held.tail = Some((begin, self.fetch(begin..size)?));
        }
        if let Some((begin, tail)) = &held.tail
            && *begin <= start
        {
            return Ok(tail.slice((start - begin) as usize..));
        }
        drop(held);
        self.some(wanted)
    }

    /// Some bytes, and what a header of a page may take if they are fewer.
    fn some(&self, wanted: Range<u64>) -> Answer<Bytes> {
        self.fetch(wanted.start..wanted.end.max(wanted.start + HEADER_BYTES as u64).min(self.file.size()))
    }

    fn fetch(&self, range: Range<u64>) -> Answer<Bytes> {
        let mut parts = self.file.read_ranges(std::slice::from_ref(&range)).map_err(wrong)?;
        Ok(parts.pop().unwrap_or_default())
    }

    /// Puts a group in the place of the one before, and asks for the next.
    fn load(&self, held: &mut Held, group: usize) -> Answer<()> {
        held.tail = None;
        held.before = held.group.take();
        let fetched = match held.ahead.take() {
            Some((number, thread, _room)) if number == group => match thread.join() {
                Ok(fetched) => fetched,
                Err(_) => return Err(ParquetError::General("the thread that fetches row groups has panicked".to_string())),
            },
            _ => self.file.read_ranges(&held.groups[group]),
        };
        held.group = Some((group, fetched.map_err(wrong)?));
        let Some(next) = held.groups.get(group + 1) else { return Ok(()) };
        let bytes = next.iter().map(|part| part.end - part.start).sum::<u64>();
        // Without room or a thread the group is fetched when it is wanted.
        if let Some(room) = (bytes <= GROUP_AHEAD_MAX).then(|| self.file.reserve(bytes)).flatten() {
            let (file, next) = (self.file.clone(), next.clone());
            let thread = std::thread::Builder::new().name("columns-ahead".into()).spawn(move || file.read_ranges(&next));
            held.ahead = thread.ok().map(|thread| (group + 1, thread, room));
        }
        Ok(())
    }
}

fn wrong(e: StoreError) -> ParquetError {
    ParquetError::General(e.to_string())
}

impl Length for RemoteColumns {
    fn len(&self) -> u64 {
        self.file.size()
    }
}

impl ChunkReader for RemoteColumns {
    type T = Cursor<Bytes>;

    fn get_read(&self, start: u64) -> Answer<Self::T> {
        let whole = self.rest(start, 1)?;
        Ok(Cursor::new(whole))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Answer<Bytes> {
        let mut bytes = self.rest(start, length)?;
        bytes.truncate(length);
        Ok(bytes)
    }
}

impl ParquetInput for RemoteColumns {
    fn expect(&self, groups: Vec<Expected>) {
        self.held.lock().expect("no panic while held").groups = groups.into_iter().map(|group| group.parts).collect();
    }

    fn read_parts(&self, parts: &[Range<u64>]) -> Answer<Vec<Bytes>> {
        let tail = self.held.lock().expect("no panic while held").tail.clone();
        let in_tail = |part: &Range<u64>| {
            let (begin, tail) = tail.as_ref()?;
            let (from, to) = (part.start.checked_sub(*begin)? as usize, part.end.checked_sub(*begin)? as usize);
            (from <= to && to <= tail.len()).then(|| tail.slice(from..to))
        };
        let far: Vec<Range<u64>> = parts.iter().filter(|part| in_tail(part).is_none()).cloned().collect();
        let fetched = if far.is_empty() { Ok(Vec::new()) } else { self.file.read_ranges_near(&far, PARTS_GAP_MAX) };
        let mut fetched = fetched.map_err(wrong)?.into_iter();
        Ok(parts.iter().map(|part| in_tail(part).or_else(|| fetched.next()).unwrap_or_default()).collect())
    }
}

#[cfg(test)]
mod tests {
    use tidemill_format::options::{OptionSet, RawOptions};
    use tidemill_store::emulator::{Behaviour, Emulator};
    use tidemill_store::{Store, StoreOptions};

    use super::*;

    /// The columns of an object with these bytes, and where they come from.
    fn columns_of(all: &[u8]) -> (RemoteColumns, Emulator) {
        let emulator = Emulator::start("127.0.0.1:0", Behaviour::default()).unwrap();
        emulator.put("b", "k", all.to_vec());
        let options = [("store.endpoint", emulator.endpoint()), ("store.anonymous", "true".to_string())];
        let options = options.map(|(key, value)| (key.to_string(), value));
        let options = StoreOptions::take(&mut RawOptions::new("t", options)).unwrap();
        let (store, key) = Store::of("gs://b/k", &options).unwrap();
        (RemoteColumns::new(store.ranges(&store.head(&key).unwrap())), emulator)
    }

    /// Columns come to the next row group one after the other: what the others still need of the one before is not fetched again.
    #[test]
    fn a_batch_that_crosses_row_groups_fetches_none_twice() {
        let all: Vec<u8> = (0..6_000u32).map(|n| (n % 251) as u8).collect();
        let (columns, emulator) = columns_of(&all);
        let parts = |begin: u64| vec![begin..begin + 1_000, begin + 1_000..begin + 2_000];
        columns.expect([0, 2_000, 4_000].map(|begin| Expected { parts: parts(begin), in_part: false }).into());
        // The first column ends its group, and begins the next before the second has ended its own.
        for (start, length) in [(0, 600), (1_000, 600), (600, 400), (2_000, 600), (1_600, 400), (3_000, 600), (2_600, 400), (4_000, 1_000)]
        {
            let (from, to) = (start as usize, start as usize + length);
            assert!(columns.get_bytes(start, length).unwrap() == all[from..to], "{start}");
        }
        assert!(columns.get_bytes(5_000, 1_000).unwrap() == all[5_000..6_000]);
        let fetches: Vec<String> = emulator.requests().into_iter().filter(|request| request.starts_with("GET")).collect();
        assert_eq!(fetches.len(), 3, "{fetches:?}");
    }

    #[test]
    fn groups_need_not_have_as_many_parts_as_others() {
        let all: Vec<u8> = (0..4_000u32).map(|n| (n % 251) as u8).collect();
        let (columns, _emulator) = columns_of(&all);
        let groups = [vec![0..400, 500..900], vec![1_000..1_400, 1_500..1_900, 2_000..2_400], vec![3_000..3_400, 3_500..4_000]];
        columns.expect(groups.clone().into_iter().map(|parts| Expected { parts, in_part: false }).collect());
        for part in groups.into_iter().flatten() {
            let (from, to) = (part.start as usize, part.end as usize);
            assert!(columns.get_bytes(part.start, to - from).unwrap() == all[from..to], "{part:?}");
        }
    }

    #[test]
    fn parts_of_an_object_are_asked_for_at_once() {
        let all: Vec<u8> = (0..4_u32 << 20).map(|n| (n % 251) as u8).collect();
        let (columns, emulator) = columns_of(&all);
        columns.get_bytes(all.len() as u64 - 8, 8).unwrap();
        let before = emulator.requests().len();
        // Those of the end are there already; of the others two lie near enough to each other to be one request. All were one, for which
        // most of a file of small row groups came.
        let parts = [10..20, 4_190_000..4_190_009, 900_000..900_500, 60_000..60_500, 5..5, 1_500_000..1_600_000];
        for (part, bytes) in parts.iter().zip(columns.read_parts(&parts).unwrap()) {
            assert!(bytes == all[part.start as usize..part.end as usize], "{part:?}");
        }
        assert_eq!(emulator.requests()[before..].len(), 3, "{:?}", emulator.requests());
    }
}
