//! Files as a source: splits, and which reader takes one. What there is to read is [`super::listing`]'s.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use arrow::datatypes::DataType;
use regex::Regex;
use serde::Deserialize;
use tidemill_archive::{Container, LocalFile, ReadAt};
use tidemill_format::compression::{self, Compression};
use tidemill_format::text::TextFormat;
use tidemill_store::{ObjectFile, StoreOptions};

use super::FileFormat;
use super::avro;
use super::cache::{self, PageCache, Residency, Tracked};
use super::directory::Place;
use super::feed::{self, Feed, Opening, Plan, Tail, Work};
use super::head::{self, Head};
use super::ipc::{self, Manner};
use super::listing::{Item, Kind, Listing};
use super::members::{MemberPosition, Members, MembersReader};
use super::metadata::{self, Constants, FileInfo};
use super::orc;
use super::parquet::{self, Footers};
use super::path::{self, Location};
use super::pipe::{self, Purpose};
use super::queue::{self, Queue};
use super::ranges::{self, CUT_BYTES_MIN, Cut, Look, Piece};
use super::reader::{Lines, Position, TextReader, decoded};
use super::sas;
use super::xlsx;
use crate::{Changelog, ConnectError, Fetching, FileSelection, ReadRequest, Reader, ReaderContext, Selection, Source, Split};

/// Items a reader that are enough for readers to even out, so that remote ones need not be cut.
const ITEMS_PER_READER: usize = 8;

/// An object of which just the bytes are fetched that are asked for, and none ahead of them.
struct Exact(ObjectFile);

impl ReadAt for Exact {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> std::io::Result<usize> {
        let end = self.0.size().min(at.saturating_add(buf.len() as u64));
        if at >= end {
            return Ok(0);
        }
        let parts = self.0.read_ranges(std::slice::from_ref(&(at..end)))?;
        let got = parts[0].len();
        buf[..got].copy_from_slice(&parts[0]);
        Ok(got)
    }
}

/// What an item's pieces depend on beside itself.
struct Shares {
    /// Bytes of a piece where all are alike; what is no larger is not cut.
    range: u64,
    readers: usize,
    /// Whether there are items enough for all readers: then a remote one is left whole, since to look into each costs a round trip.
    enough: bool,
    /// Bytes of local files that are left where this one begins.
    left: u64,
}

/// A table read from files.
pub(super) struct FileSource {
    pub location: Location,
    pub format: FileFormat,
    /// As the user says; otherwise the extension decides.
    pub compression: Option<Compression>,
    /// How often to look for more; `None` if the source is bounded.
    pub monitor: Option<Duration>,
    pub page_cache: PageCache,
    /// Whether files are cut only where that is sure to be right.
    pub cuts_surely: bool,
    /// What it is read for: of a pipe that is only looked at nothing may be lost.
    pub purpose: Purpose,
    pub listing: Listing,
    pub queue: Queue,
    pub footers: Footers,
}

impl FileSource {
    /// A source of what the options mean.
    pub fn new(location: Location, pattern: Option<Regex>, format: FileFormat, store: StoreOptions, page_cache: PageCache) -> Self {
        let listing = Listing::new(location.clone(), pattern, store);
        FileSource {
            location,
            format,
            compression: None,
            monitor: None,
            page_cache,
            cuts_surely: false,
            purpose: Purpose::Rows,
            listing,
            queue: Queue::default(),
            footers: Footers::default(),
        }
    }

    fn items(&self) -> Result<Vec<Item>, ConnectError> {
        let items = self.listing.items(self.monitor.is_some())?;
        if let FileFormat::Text(_) = self.format {
            return Ok(items);
        }
        match items.iter().find(|item| !matches!(item.kind, Kind::Plain)) {
            Some(Item { id, .. }) => Err(ConnectError::new(format!(
                "'{id}' lies in an archive, where only text can be read; unpack it (what is in it is compressed already)"
            ))),
            None => Ok(items),
        }
    }

    fn compression(&self, path: &str) -> Compression {
        self.compression.unwrap_or_else(|| Compression::from_path(path::plain_name(path)))
    }

    fn tell_queue(&self, items: &[Item], splits: usize, ahead: bool) {
        let give_back = self.monitor.is_none() && self.page_cache.gives_back(items.iter().filter(|i| i.local()).map(|i| i.size).sum());
        let plain = |item: &&Item| item.local() && !matches!(item.kind, Kind::Member) && item.size > 0;
        let files = if ahead { items.iter().filter(plain).map(|i| (i.path.clone(), i.size)).collect() } else { Default::default() };
        self.queue.fill(splits, files, give_back);
    }

    /// The pieces of an item.
    fn pieces(&self, item: &Item, shares: &Shares) -> Result<Vec<Piece>, ConnectError> {
        let range = shares.range;
        if item.kind != Kind::Plain || (shares.enough && !item.local()) {
            return Ok(vec![Piece::Whole]);
        }
        match &self.format {
            FileFormat::Text(text) => self.cut(text, item, shares),
            FileFormat::Parquet(_) if item.size <= range => Ok(vec![Piece::Whole]),
            FileFormat::Parquet(_) => parquet::pieces(&item.path, &self.listing.place(&item.path)?, &self.footers, range),
            FileFormat::Avro(_) | FileFormat::Xlsx(_) => Ok(vec![Piece::Whole]),
            FileFormat::Orc(_) if item.size <= range => Ok(vec![Piece::Whole]),
            FileFormat::Orc(_) => orc::pieces(&item.path, &self.listing.place(&item.path)?, range),
            FileFormat::Arrow(_) if item.size <= range => Ok(vec![Piece::Whole]),
            FileFormat::Arrow(options) => {
                let manner = Manner::new(options, self.compression(&item.path), false, Default::default());
                ipc::pieces(&item.path, &self.listing.place(&item.path)?, &manner, range)
            }
            FileFormat::Sas(_) if item.size <= range => Ok(vec![Piece::Whole]),
            FileFormat::Sas(format) => sas::pieces(format, &item.path, &self.listing.place(&item.path)?, item.size, range),
        }
    }

    /// The splits of items, one each.
    fn whole(&self, items: Vec<Item>) -> Vec<Split> {
        self.tell_queue(&items, items.len(), false);
        items.into_iter().map(|item| Split::new(item.id)).collect()
    }

    /// The splits of items for so many readers, where the order of rows does not matter.
    fn divided(&self, items: Vec<Item>, parallelism: usize) -> Result<Vec<Split>, ConnectError> {
        // The changes of one key must stay in order, so files of changes are not cut.
        if parallelism < 2 || self.monitor.is_some() || self.format.changelog() {
            return Ok(self.whole(items));
        }
        // An archive is looked at once, for all of its members.
        let mut seen: Option<(String, Residency)> = None;
        let mut found: Vec<(Item, Residency)> = Vec::with_capacity(items.len());
        for item in items {
            let cached = match &seen {
                Some((path, cached)) if *path == item.path => *cached,
                // A pipe, which has no length, is opened by nobody but its reader: that waits for its writer.
                _ if item.local() && (item.size > 0 || item.kind == Kind::Member) => {
                    File::open(&item.path).and_then(|file| cache::about(&file)).unwrap_or_default()
                }
                _ => Residency::default(),
            };
            seen = Some((item.path.clone(), cached));
            found.push((item, cached));
        }
        queue::order(&mut found, |(item, cached)| (item.size, *cached));
        let total: u64 = found.iter().map(|(item, _)| item.size).sum();
        let range = ranges::range_bytes(total, parallelism);
        let enough = found.len() >= ITEMS_PER_READER * parallelism;
        let mut left: u64 = found.iter().filter(|(item, _)| item.local()).map(|(item, _)| item.size).sum();
        let mut pieces = Vec::with_capacity(found.len());
        for (item, _) in &found {
            pieces.push(self.pieces(item, &Shares { range, readers: parallelism, enough, left })?);
            left -= if item.local() { item.size } else { 0 };
        }
        if matches!(self.format, FileFormat::Parquet(_)) && !self.location.remote() {
            let mut files: Vec<_> = found.iter().zip(&mut pieces).map(|((item, _), pieces)| (&*item.path, item.size, pieces)).collect();
            parquet::even_out(&mut files, parallelism, &self.footers);
        }
        // Row groups are evened out already, texts were cut that way, and what lies far away is fetched by as many at once as pays.
        if !matches!(self.format, FileFormat::Parquet(_) | FileFormat::Text(_)) {
            let local = found.iter().zip(&mut pieces).filter(|((item, _), _)| item.local());
            ranges::join(local.map(|((item, _), pieces)| (item.size, pieces)), parallelism);
        }
        let mut splits = Vec::new();
        for ((item, cached), pieces) in found.iter().zip(&pieces) {
            if cached.bytes > 0 && (pieces.len() > 1 || matches!(item.kind, Kind::Member)) {
                self.queue.remember(&item.path, *cached);
            }
            match pieces.as_slice() {
                [] | [_] => splits.push(Split::new(item.id.clone())),
                many => splits.extend(many.iter().map(|piece| Split::new(ranges::id(&item.id, piece)))),
            }
        }
        let items: Vec<Item> = found.into_iter().map(|(item, _)| item).collect();
        self.tell_queue(&items, splits.len(), true);
        Ok(splits)
    }

    /// The ranges into which a text file is cut.
    fn cut(&self, text: &TextFormat, item: &Item, shares: &Shares) -> Result<Vec<Piece>, ConnectError> {
        let (range, readers) = (shares.range, shares.readers);
        if item.size <= range || item.size < CUT_BYTES_MIN || self.compression(&item.path) != Compression::None {
            return Ok(vec![Piece::Whole]);
        }
        let (how, failed) = (Cut::of(text), |e: &std::io::Error| ConnectError::io(format!("cutting '{}' into ranges", item.path), e));
        let ranges = match self.listing.place(&item.path)? {
            Place::Local => {
                let file = File::open(&item.path).and_then(LocalFile::new).map_err(|e| failed(&e))?;
                // A record that is torn where the file was cut ends the job, when its reader comes there.
                let look = if self.cuts_surely { Look::Everywhere } else { Look::Near };
                let cuts = ranges::guided(item.size, shares.left, range, readers);
                ranges::cut(&file, item.size, &cuts, how, readers, look).map_err(|e| failed(&e))?
            }
            Place::Remote(store, object) if object.seekable => {
                let look = if self.cuts_surely { Look::Nowhere } else { Look::Distant };
                let cuts = ranges::even(item.size, range);
                ranges::cut(&Exact(store.ranges(&object)), item.size, &cuts, how, readers, look).map_err(|e| failed(&e))?
            }
            Place::Remote(..) => return Ok(vec![Piece::Whole]),
        };
        Ok(if ranges.len() < 2 { vec![Piece::Whole] } else { ranges.into_iter().map(|(a, b)| Piece::Bytes(a, b)).collect() })
    }

    /// Whether every processor has a reader to run, so that a thread that decompresses would only be in the way.
    fn busy(&self, readers: usize) -> bool {
        readers >= std::thread::available_parallelism().map_or(1, usize::from) && self.queue.left() >= readers
    }

    fn open_text(
        &self,
        text: &TextFormat,
        path: &str,
        piece: &Piece,
        split: &Split,
        context: ReaderContext,
    ) -> Result<Box<dyn Reader>, ConnectError> {
        let request = &context.request;
        let compression = self.compression(path);
        let (start, end) = match piece {
            Piece::Bytes(start, end) => (*start, Some(*end)),
            _ => (0, None),
        };
        let base = match &split.position {
            Some(position) => Position::parse(position, &split.id)?,
            None => Position { offset: start, records: 0 },
        };
        let care = self.queue.opened(path, context.shards);
        let encoding = text.encoding();
        // Whether positions are those of the file itself.
        let plain = compression == Compression::None && encoding.0.is_utf8();
        // Where the input can begin: a text that is compressed or in another encoding only at its beginning.
        let at = if plain { base.offset } else { 0 };
        let doing = if compression == Compression::None { "reading" } else { "decompressing" };
        let plan = |open: Opening| Plan { path: path.to_string(), open, at, from: base.offset, end, doing, whole: true, tail: None };
        let mut ends_line = true;
        let mut head = None;
        let (info, feed) = match self.listing.place(path)? {
            Place::Remote(store, object) => {
                let info = self.listing.info(path, &object);
                if plain && object.size < base.offset {
                    return Err(feed::shorter(path, object.size, base.offset));
                }
                let open: Opening = Box::new(move || Ok(decoded(unpacked(store.reader(&object, at, end), compression)?, encoding, None)));
                (info, Feed::thread(Work::Text(plan(open)), context.waker))
            }
            Place::Local => {
                let meta = fs::metadata(path).map_err(|e| ConnectError::io(format!("looking at '{path}'"), &e))?;
                let info = FileInfo::local(path, &meta)?;
                if !meta.is_file() {
                    // Opening a pipe waits for its writer, so the thread does it, and passes over what was read.
                    let (name, purpose) = (path.to_string(), self.purpose);
                    let open: Opening = Box::new(move || {
                        let input = pipe::open(&name, &meta, purpose)?;
                        Ok(decoded(unpacked(input, compression)?, encoding, None))
                    });
                    let plan = Plan { at: 0, whole: false, ..plan(open) };
                    (info, Feed::thread(Work::Text(plan), context.waker))
                } else {
                    if plain && meta.len() < base.offset {
                        return Err(feed::shorter(path, meta.len(), base.offset));
                    }
                    let file = File::open(path).map_err(|e| ConnectError::io(format!("opening '{path}'"), &e))?;
                    if let Some(position) = &split.position {
                        head::check(&file, position, path)?;
                    }
                    // Of text in another encoding it is not known how many bytes were read.
                    if plain || compression != Compression::None {
                        let begins = Head::read(&file, !plain).map_err(|e| ConnectError::io(format!("reading '{path}'"), &e))?;
                        head = Some(begins);
                    }
                    let length = meta.len();
                    // If not, the range ended where the file did when it was cut, and the file has grown.
                    ends_line = end.is_none_or(|end| {
                        let mut last = [0];
                        end > 0 && file.read_exact_at(&mut last, end - 1).is_ok() && last == *b"\n"
                    });
                    // What is compressed has an end; anything else that is followed may grow.
                    let follow = self.monitor.filter(|_| compression == Compression::None);
                    let read = follow.filter(|_| !plain).map(|_| Arc::new(AtomicU64::new(0)));
                    let identity = (meta.dev(), meta.ino());
                    let tail = follow.map(|interval| Tail { interval, identity, read: read.clone() });
                    let open: Opening = Box::new(move || {
                        let input = unpacked(Box::new(Tracked::new(file, length, at, end, care)), compression)?;
                        Ok(decoded(input, encoding, read))
                    });
                    let in_place = end.is_some() || (self.monitor.is_none() && (plain || (at == base.offset && self.busy(context.shards))));
                    let plan = Plan { tail, ..plan(open) };
                    (info, if in_place { Feed::inline(plan) } else { Feed::thread(Work::Text(plan), context.waker) })
                }
            }
        };
        let decoder = text.decoder_at(&request.physical, &request.projection, base.offset == 0)?;
        let constants = Constants::of(request, &info)?;
        let lines = if start > 0 { Lines::Uncounted(start) } else { Lines::of(text) };
        let reader = TextReader::new(path.to_string(), feed, decoder, base, lines, constants).with_head(head);
        // Only quotes may reach beyond a line end.
        let another = end.filter(|end| *end < info.size && ends_line && matches!(Cut::of(text), Cut::Quoted(..)));
        Ok(Box::new(match another {
            Some(end) => reader.up_to_another(end),
            None => reader,
        }))
    }

    /// Opens a split; rows that are not selected may be left out.
    fn open_split(&self, split: &Split, context: ReaderContext, selection: Option<&Selection>) -> Result<Box<dyn Reader>, ConnectError> {
        if let FileFormat::Text(text) = &self.format {
            if let Some(member) = path::split_member(&split.id) {
                return self.open_member(text, member, split, context);
            }
            if let Some(container) = self.location.container(&split.id) {
                return self.open_archive(text, (split.id.as_str(), container), split, context);
            }
        }
        let (path, piece) = ranges::parse_id(&split.id, |id| self.listing.exists(id));
        if let FileFormat::Text(text) = &self.format {
            return self.open_text(text, path, &piece, split, context);
        }
        let (place, care) = (self.listing.place(path)?, self.queue.opened(path, context.shards));
        let info = match &place {
            Place::Remote(_, object) => self.listing.info(path, object),
            Place::Local => {
                let meta = fs::metadata(path).map_err(|e| ConnectError::io(format!("looking at '{path}'"), &e))?;
                if let Some(name) = self.format.compressed_inside()
                    && !meta.is_file()
                {
                    return Err(pipe::not_a_file(path, name));
                }
                FileInfo::local(path, &meta)?
            }
        };
        let asked = (&context.request, context.waker.clone());
        let selecting = (&context.request, context.waker, selection);
        match &self.format {
            FileFormat::Text(_) => unreachable!("opened above"),
            FileFormat::Parquet(_) => parquet::open(&place, &info, care, &piece, split, selecting, (path, &self.footers)),
            FileFormat::Arrow(options) => {
                let manner = Manner::new(options, self.compression(path), self.monitor.is_some(), care);
                ipc::open(&place, (&info, manner), &piece, split, asked, path)
            }
            FileFormat::Avro(_) => avro::open(&place, &info, care, split, asked, path),
            FileFormat::Orc(_) => orc::open(&place, (&info, care), &piece, split, asked, path),
            FileFormat::Xlsx(options) => xlsx::open(options, &place, &info, &piece, split, asked, path),
            FileFormat::Sas(format) => sas::open(format, &place, (&info, care), &piece, split, selecting, path),
        }
    }

    /// Opens a member of a zip that can be read anywhere.
    fn open_member(
        &self,
        text: &TextFormat,
        (archive, name): (&str, &str),
        split: &Split,
        context: ReaderContext,
    ) -> Result<Box<dyn Reader>, ConnectError> {
        let request = &context.request;
        let base = split.position.as_ref().map(|position| Position::parse(position, &split.id)).transpose()?.unwrap_or_default();
        let directory = self.listing.directory(archive)?;
        let member = directory.member(archive, name)?;
        let care = self.queue.opened(archive, context.shards);
        let (open, encoding) = (directory.open(archive, member, care)?, text.encoding());
        let open: Opening = if encoding.0.is_utf8() { open } else { Box::new(move || Ok(decoded(open()?, encoding, None))) };
        let local = matches!(self.listing.place(archive)?, Place::Local);
        let shown = format!("{archive}//{name}");
        let plan = Plan { path: shown.clone(), open, at: 0, from: base.offset, end: None, doing: "unpacking", whole: true, tail: None };
        let feed = match local && base.offset == 0 && self.busy(context.shards) {
            true => Feed::inline(plan),
            false => Feed::thread(Work::Text(plan), context.waker),
        };
        let decoder = text.decoder_at(&request.physical, &request.projection, base.offset == 0)?;
        let constants = Constants::of(request, &directory.info.member(name, member.size))?;
        Ok(Box::new(TextReader::new(shown, feed, decoder, base, Lines::of(text), constants)))
    }

    /// Opens an archive that is read from front to back.
    fn open_archive(
        &self,
        text: &TextFormat,
        (path, container): (&str, Container),
        split: &Split,
        context: ReaderContext,
    ) -> Result<Box<dyn Reader>, ConnectError> {
        let from = match &split.position {
            None => MemberPosition::default(),
            Some(position) => MemberPosition::deserialize(position).map_err(|e| {
                ConnectError::new(format!(
                    "the position {position} of split '{}' is not one of an archive: {e}; was the table's format changed?",
                    split.id
                ))
            })?,
        };
        let care = self.queue.opened(path, context.shards);
        let info;
        let open: Opening = match self.listing.place(path)? {
            Place::Remote(store, object) => {
                info = self.listing.info(path, &object);
                Box::new(move || Ok(store.reader(&object, 0, None)))
            }
            Place::Local => {
                let meta = fs::metadata(path).map_err(|e| ConnectError::io(format!("looking at '{path}'"), &e))?;
                info = FileInfo::local(path, &meta)?;
                let (name, purpose) = (path.to_string(), self.purpose);
                Box::new(move || {
                    if !meta.is_file() {
                        return pipe::open(&name, &meta, purpose);
                    }
                    let file = File::open(&name).map_err(|e| ConnectError::io(format!("opening '{name}'"), &e))?;
                    let input: Box<dyn Read + Send> = Box::new(Tracked::new(file, meta.len(), 0, None, care));
                    Ok(input)
                })
            }
        };
        let (path, glob) = (path.to_string(), self.location.members.clone());
        let (must_match, encoding) = (self.listing.one_archive(), text.encoding());
        let members = Members { path, open, container, glob, must_match, from, encoding };
        Ok(Box::new(MembersReader::new(members, text.clone(), context.request, info, context.waker)))
    }
}

/// Whether there may be rows in an item that `files` wants, by the columns of `request`, which is its own. Where that cannot be told,
/// there may: whoever reads it then says what is wrong.
fn may_have(item: &Item, files: &FileSelection, request: &ReadRequest) -> bool {
    let path = match item.kind {
        // Each of its members has a path of its own.
        Kind::Archive => return true,
        Kind::Plain | Kind::Member if !item.local() => Ok(item.id.clone()),
        // What stands behind the path of the archive, if it is a member, is no path of this machine.
        Kind::Plain | Kind::Member => metadata::absolute(&item.path).map(|path| path + &item.id[item.path.len()..]),
    };
    // Of what is asked nothing depends on the length and the time.
    let info = path.map(|path| FileInfo { path, size: item.size, modified_ms: 0 });
    let Ok(values) = info.and_then(|info| Constants::of(request, &info)).and_then(|constants| constants.row()) else { return true };
    files.wanted(&values)
}

/// The content of what was packed.
fn unpacked(input: Box<dyn Read + Send>, compression: Compression) -> Result<Box<dyn Read + Send>, ConnectError> {
    compression::reader(input, compression).map_err(|e| ConnectError::io(format!("setting up the decompression of {compression:?}"), &e))
}

impl Source for FileSource {
    fn bounded(&self) -> bool {
        self.monitor.is_none()
    }

    fn splits(&self, _parallelism: usize) -> Result<Vec<Split>, ConnectError> {
        Ok(self.whole(self.items()?))
    }

    fn changelog(&self) -> Changelog {
        if self.format.changelog() { Changelog::All } else { Changelog::Append }
    }

    fn discovery_interval(&self) -> Option<Duration> {
        self.monitor
    }

    fn unordered_splits(&self, parallelism: usize) -> Result<Vec<Split>, ConnectError> {
        self.divided(self.items()?, parallelism)
    }

    fn splits_by(&self, key: &str) -> bool {
        metadata::by_path(key)
    }

    fn splits_selecting(&self, parallelism: usize, files: &FileSelection) -> Result<(Vec<Split>, u64), ConnectError> {
        let mut items = self.items()?;
        let all = items.len();
        let request = files.request();
        items.retain(|item| may_have(item, files, &request));
        let left_out = all - items.len();
        // Those that are left are looked into where they may be cut, the others are not.
        Ok((self.divided(items, parallelism)?, left_out as u64))
    }

    fn pipe(&self) -> Option<(String, (u64, u64))> {
        pipe::at(&self.location.root).map(|identity| (self.location.root.clone(), identity))
    }

    fn fetching(&self) -> Fetching {
        match (self.bounded(), self.location.remote()) {
            (false, _) => Fetching::Other,
            (true, false) => Fetching::Local,
            (true, true) => Fetching::Network,
        }
    }

    fn open(&self, split: &Split, context: ReaderContext) -> Result<Box<dyn Reader>, ConnectError> {
        self.open_split(split, context, None)
    }

    fn gives_views(&self) -> bool {
        matches!(self.format, FileFormat::Parquet(_) | FileFormat::Text(TextFormat::Csv(_) | TextFormat::Fixed(_)))
    }

    fn selects(&self) -> bool {
        match &self.format {
            FileFormat::Parquet(_) => true,
            FileFormat::Sas(format) => format.selects(),
            _ => false,
        }
    }

    fn open_selecting(&self, split: &Split, context: ReaderContext, selection: &Selection) -> Result<Box<dyn Reader>, ConnectError> {
        self.open_split(split, context, Some(selection))
    }

    fn metadata_columns(&self) -> Vec<(&'static str, DataType)> {
        metadata::columns()
    }

    fn rows_hint(&self) -> Option<usize> {
        match (&self.format, self.monitor, self.location.remote()) {
            (FileFormat::Parquet(_), None, false) => {
                self.items().ok()?.iter().map(|item| self.footers.rows(&item.path)).sum::<Option<usize>>()
            }
            (FileFormat::Arrow(_), None, false) => {
                self.items().ok()?.iter().map(|item| ipc::rows(&item.path, self.compression(&item.path))).sum::<Option<usize>>()
            }
            (FileFormat::Orc(_), None, false) => self.items().ok()?.iter().map(|item| orc::rows(&item.path)).sum::<Option<usize>>(),
            (FileFormat::Sas(format), None, false) => {
                self.items().ok()?.iter().map(|item| sas::rows(format, &item.path)).sum::<Option<usize>>()
            }
            _ => None,
        }
    }
}
