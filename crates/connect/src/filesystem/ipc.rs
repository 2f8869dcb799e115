//! Arrow files and streams. Decoding is the format's; here are splits and positions, and where the bytes come from: a
//! mapping of a local file, its bytes read, an object's ranges, or anything from front to back.
//!
//! A local file is mapped, and columns point into the page cache, unless it is likely to change: nobody has it open for
//! writing, the source is not one that watches a directory, and what is read need not be given back to the cache (mapped
//! pages cannot be). Before each batch it is looked whether the file was changed since; that is an error then, as it is for
//! files that are read. ARCHITECTURE.md says what remains.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use serde::{Deserialize, Serialize};
use tidemill_format::FormatError;
use tidemill_format::compression::{self, Compression};
use tidemill_format::ipc::{self, ArrowAsk, ArrowFile, ArrowOptions, ArrowReader, ArrowShape, IpcInput};
use tidemill_store::{ObjectFile, SIZE_UNKNOWN};

use super::batches::{Answer, BATCH_ROWS, Batches, Decode};
use super::cache::{self, Care, Residency, Tracked};
use super::directory::Place;
use super::metadata::{Constants, FileInfo};
use super::page::{self, Map};
use super::path;
use super::ranges::Piece;
use super::sample::{first_file, options_of};
use crate::{ConnectError, Polled, ReadRequest, Reader, Rows, Split, Waker};

/// How far behind what is read the system is asked to fetch of a file that is not in its cache, bytes.
const AHEAD_BYTES: u64 = 4 << 20;
/// Batches whose headers are looked at to tell how many rows a file has, at most: each may have to come from the disk.
const COUNTED_MAX: usize = 10_000;

/// How a file is to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    /// Of the file as a whole.
    pub compression: Compression,
    /// Whether it may be mapped.
    pub map: bool,
    /// Whether its values are taken for valid.
    pub trusted: bool,
    pub care: Care,
}

impl Manner {
    /// As the options say; `watched` if the source looks for changes.
    pub fn new(options: &ArrowOptions, compression: Compression, watched: bool, care: Care) -> Self {
        Manner { compression, map: options.memory_map && !watched, trusted: options.trusted, care }
    }
}

/// A local file.
struct Local {
    bytes: Bytes,
    size: u64,
    /// When it was changed, by what the system says of it: seconds and nanoseconds.
    changed: (i64, i64),
    /// What the cache held when the file was opened.
    found: Residency,
    give_back: bool,
}

enum Bytes {
    Mapped(Arc<Map>),
    Read(File),
}

fn changed(meta: &Metadata) -> (i64, i64) {
    (meta.mtime(), meta.mtime_nsec())
}

impl Local {
    fn new(file: File, manner: &Manner) -> io::Result<Self> {
        let meta = file.metadata()?;
        let size = meta.len();
        let found = manner.care.found(&file, size);
        let give_back = manner.care.give_back && found.cached < size / 2;
        let map = manner.map && !give_back && size > 0 && !page::being_written(&file);
        let bytes = match map {
            // Where a file system cannot map files, they are read.
            true => match file.try_clone().and_then(|file| Map::new(file, size)) {
                Ok(map) => Bytes::Mapped(Arc::new(map)),
                Err(_) => Bytes::Read(file),
            },
            false => Bytes::Read(file),
        };
        Ok(Local { bytes, size, changed: changed(&meta), found, give_back })
    }

    fn file(&self) -> &File {
        match &self.bytes {
            Bytes::Mapped(map) => map.file(),
            Bytes::Read(file) => file,
        }
    }
}

impl IpcInput for Local {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, parts: &[Range<u64>]) -> io::Result<Vec<Buffer>> {
        let meta = self.file().metadata()?;
        if (meta.len(), changed(&meta)) != (self.size, self.changed) {
            let why = "it was changed while it was read; write files elsewhere and rename them when they are whole";
            return Err(io::Error::other(why));
        }
        if let Some(odd) = parts.iter().find(|part| part.start > part.end || part.end > self.size) {
            return Err(io::Error::other(format!("bytes {} to {} are wanted of {}", odd.start, odd.end, self.size)));
        }
        if self.found.cached < self.found.bytes {
            // To the system a length of nothing is all of the rest.
            let ahead = parts.iter().map(|part| part.end).max().map(|end| end..self.size.min(end + AHEAD_BYTES));
            for part in parts.iter().chain(&ahead).filter(|part| part.end > part.start) {
                page::fetch(self.file(), part.start, part.end - part.start);
            }
        }
        cache::count_share(parts.iter().map(|part| part.end - part.start).sum(), self.found);
        match &self.bytes {
            Bytes::Mapped(map) => Ok(map.parts(parts, self.give_back)),
            Bytes::Read(file) => parts.iter().map(|part| self.copied(file, part)).collect(),
        }
    }
}

impl Local {
    fn copied(&self, file: &File, part: &Range<u64>) -> io::Result<Buffer> {
        let bytes = cache::timed(self.found.cold(), || page::read(file, part.start, (part.end - part.start) as usize))?;
        if self.give_back && part.end > part.start {
            page::give_back(file, part.start, part.end - part.start);
        }
        Ok(Buffer::from_vec(bytes))
    }
}

/// An object in a bucket.
struct Remote(ObjectFile);

impl IpcInput for Remote {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read(&self, parts: &[Range<u64>]) -> io::Result<Vec<Buffer>> {
        Ok(self.0.read_ranges(parts)?.into_iter().map(Buffer::from).collect())
    }
}

/// What was opened.
enum Opened {
    /// A file with a footer.
    File(Box<dyn IpcInput>, ArrowFile),
    /// What is read from front to back.
    Stream(Box<dyn Read + Send>),
}

/// Opens a file, wherever it lies. What is a pipe waits for its writer.
fn opened(path: &str, place: &Place, manner: &Manner) -> Result<Opened, ConnectError> {
    let failed = |e: io::Error| ConnectError::io(format!("opening '{path}'"), &e);
    let regular = || fs::metadata(path).is_ok_and(|meta| meta.is_file());
    let anywhere: Option<Box<dyn IpcInput>> = match place {
        _ if manner.compression != Compression::None => None,
        Place::Remote(store, object) if object.seekable && object.size != SIZE_UNKNOWN => Some(Box::new(Remote(store.ranges(object)))),
        Place::Local if regular() => Some(Box::new(File::open(path).and_then(|file| Local::new(file, manner)).map_err(failed)?)),
        _ => None,
    };
    if let Some(input) = anywhere
        && let Some(file) = ArrowFile::open(&*input).map_err(|e| wrong(path, e))?
    {
        return Ok(Opened::File(input, file));
    }
    let input: Box<dyn Read + Send> = match place {
        Place::Remote(store, object) => store.reader(object, 0, None),
        Place::Local => {
            let file = File::open(path).map_err(failed)?;
            let meta = file.metadata().map_err(failed)?;
            if meta.is_file() { Box::new(Tracked::new(file, meta.len(), 0, None, manner.care)) } else { Box::new(file) }
        }
    };
    Ok(Opened::Stream(compression::reader(input, manner.compression).map_err(failed)?))
}

/// An error with the file that it is about.
fn wrong(path: &str, e: FormatError) -> ConnectError {
    match e {
        FormatError::Io(e) => ConnectError::io(format!("reading '{path}'"), &e),
        other => ConnectError::new(format!("reading '{path}': {other}")),
    }
}

/// Divides a file at its batches into pieces of about `bytes` bytes, `from` and `to` of which are numbers of batches. What
/// has no footer is not divided.
///
/// # Errors
/// The file cannot be read or is none of Arrow's.
pub(super) fn pieces(path: &str, place: &Place, manner: &Manner, bytes: u64) -> Result<Vec<Piece>, ConnectError> {
    if manner.compression != Compression::None {
        return Ok(vec![Piece::Whole]);
    }
    let Opened::File(_, file) = opened(path, place, &Manner { map: false, ..*manner })? else { return Ok(vec![Piece::Whole]) };
    let (mut from, mut to, mut size) = (0, 0, 0u64);
    let mut pieces = Vec::new();
    for batch in file.batches() {
        to += 1;
        size += batch;
        if size >= bytes {
            pieces.push(Piece::Rows(from, to));
            (from, size) = (to, 0);
        }
    }
    if to > from {
        pieces.push(Piece::Rows(from, to));
    }
    Ok(pieces)
}

/// How many rows a local file has, if its footer can be read and lists not too many batches.
pub(super) fn rows(path: &str, compression: Compression) -> Option<usize> {
    let manner = Manner { compression, map: false, trusted: false, care: Care::default() };
    if compression != Compression::None || !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let Opened::File(input, file) = opened(path, &Place::Local, &manner).ok()? else { return None };
    if file.batches().len() > COUNTED_MAX {
        return None;
    }
    usize::try_from(file.rows(&*input).ok()?).ok()
}

/// How a local file is stored; `None` of streams and of what is compressed as a whole.
///
/// # Errors
/// The file cannot be read or is none of Arrow's.
pub fn shape_of(path: &str) -> Result<Option<ArrowShape>, ConnectError> {
    let manner = Manner { compression: Compression::from_path(path), map: false, trusted: false, care: Care::default() };
    match opened(path, &Place::Local, &manner)? {
        Opened::File(input, file) => file.shape(&*input).map(Some).map_err(|e| wrong(path, e)),
        Opened::Stream(_) => Ok(None),
    }
}

/// The columns of the first file that `path` means, which is what a table's `path` may be; `options` are those of such a
/// table, of which `store.…` and `compression` matter.
///
/// # Errors
/// There is no such file, it is a pipe, or none of Arrow's.
pub fn schema_of(path: &str, options: &BTreeMap<String, String>) -> Result<SchemaRef, ConnectError> {
    let mut raw = options_of(path, options, |key| key == "compression");
    let compression = raw.take::<Compression>("compression")?;
    let (name, place) = first_file(path, raw, "Arrow")?;
    if matches!(place, Place::Local) && !fs::metadata(&name).is_ok_and(|meta| meta.is_file()) {
        let why = "it can be read only once, so its columns must be declared by CREATE TABLE, or it be written into a file first";
        return Err(ConnectError::new(format!("'{name}' is no regular file: {why}")));
    }
    let compression = compression.unwrap_or_else(|| Compression::from_path(path::plain_name(&name)));
    let manner = Manner { compression, map: false, trusted: false, care: Care::default() };
    match opened(&name, &place, &manner)? {
        Opened::File(_, file) => ipc::schema_of_file(&file),
        Opened::Stream(input) => ipc::schema_of_stream(input),
    }
    .map_err(|e| wrong(&name, e))
}

/// Where a split stands.
#[derive(Serialize, Deserialize)]
struct Position {
    /// The number of the next row in the split, from 0.
    row: u64,
}

/// Opens a split.
///
/// # Errors
/// The file cannot be read, or lacks a column.
pub(super) fn open(
    place: &Place,
    (info, manner): (&FileInfo, Manner),
    piece: &Piece,
    split: &Split,
    (request, waker): (&ReadRequest, Waker),
    path: &str,
) -> Result<Box<dyn Reader>, ConnectError> {
    let other = |what: String| ConnectError::new(format!("{what} is not one of an Arrow file; was the table's format changed?"));
    let part = match piece {
        Piece::Whole => None,
        Piece::Rows(from, to) => Some(*from..*to),
        Piece::Bytes(..) => return Err(other(format!("the split '{}'", split.id))),
    };
    let next = match &split.position {
        None => 0,
        Some(position) => {
            Position::deserialize(position).map_err(|e| other(format!("the position {position} of split '{}' ({e})", split.id)))?.row
        }
    };
    let read = Arc::new(AtomicU64::new(0));
    // What must be waited for is opened where it is waited for.
    let here = matches!(place, Place::Local) && manner.compression == Compression::None && fs::metadata(path).is_ok_and(|m| m.is_file());
    let mut decoding = Decoding {
        path: path.to_string(),
        place: place.clone(),
        manner,
        part,
        physical: request.physical.clone(),
        projection: request.projection.clone(),
        start: next,
        read: read.clone(),
        reader: None,
    };
    let constants = Constants::of(request, info)?;
    let batches = match here {
        true => {
            decoding.reader = Some(decoding.open()?);
            Batches::here(Box::new(decoding))
        }
        false => Batches::thread(path, Box::new(decoding), waker)?,
    };
    Ok(Box::new(IpcReader { batches, next, read, told: 0, constants }))
}

/// Opens a file when it is first asked for rows, and decodes it.
struct Decoding {
    path: String,
    place: Place,
    manner: Manner,
    /// Numbers of batches.
    part: Option<Range<u64>>,
    physical: SchemaRef,
    projection: Vec<usize>,
    /// Rows passed over.
    start: u64,
    read: Arc<AtomicU64>,
    reader: Option<ArrowReader>,
}

impl Decoding {
    fn open(&self) -> Result<ArrowReader, ConnectError> {
        let ask = ArrowAsk {
            physical: &self.physical,
            projection: &self.projection,
            start: self.start,
            batch_rows: BATCH_ROWS,
            trusted: self.manner.trusted,
        };
        match opened(&self.path, &self.place, &self.manner)? {
            Opened::File(input, file) => ArrowReader::of_file(input, file, self.part.clone(), &ask, self.read.clone()),
            Opened::Stream(_) if self.part.is_some() => {
                let why = "it has no footer, but had one: it was replaced; put the file back, or start the job without its checkpoint";
                Err(FormatError::data(why))
            }
            Opened::Stream(input) => ArrowReader::of_stream(input, &ask, self.read.clone()),
        }
        .map_err(|e| wrong(&self.path, e))
    }
}

impl Decode for Decoding {
    fn decode(&mut self) -> Result<Option<RecordBatch>, ConnectError> {
        if self.reader.is_none() {
            self.reader = Some(self.open()?);
        }
        let reader = self.reader.as_mut().expect("opened above");
        reader.read().map_err(|e| wrong(&self.path, e))
    }
}

/// Reads one split.
struct IpcReader {
    batches: Batches,
    /// The number of the next row in the split.
    next: u64,
    /// Bytes of the file that were read, and those that were told.
    read: Arc<AtomicU64>,
    told: u64,
    constants: Constants,
}

impl Reader for IpcReader {
    fn poll(&mut self, rows_max: usize) -> Result<Polled, ConnectError> {
        let (batch, arrival_ns) = match self.batches.next_rows(rows_max)? {
            Answer::Rows(batch, arrival_ns) => (batch, arrival_ns),
            Answer::Nothing => return Ok(Polled::Pending),
            Answer::End => return Ok(Polled::End),
        };
        self.next += batch.num_rows() as u64;
        let read = self.read.load(Ordering::Relaxed);
        let bytes = read - self.told;
        self.told = read;
        Ok(Polled::Rows(Rows::good(self.constants.append(batch)?, arrival_ns, bytes)))
    }

    fn position(&self) -> serde_json::Value {
        serde_json::json!(Position { row: self.next })
    }
}
