//! Arrow files with a footer, which says where each batch lies: any of them can be read, and of it only the columns that
//! are wanted. Where the bytes come from says an [`IpcInput`].

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::ArrayRef;
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use arrow::ipc;

use super::build::Columns;
use super::held::Held;
use super::layout::rows_of;
use super::unpack::Codec;
use super::{HEADER_BYTES_MAX, malformed, read_header};
use crate::FormatError;

/// What a file begins and ends with.
pub(super) const MAGIC: &[u8; 6] = b"ARROW1";
/// The same, filled up to where the first message stands.
pub(super) const HEAD_BYTES: usize = 8;
/// What the first version of Feather begins with, which is another format.
pub(super) const FEATHER_1: &[u8; 4] = b"FEA1";
/// The length of the footer, and [`MAGIC`].
const TRAILER_BYTES: u64 = 10;
/// What is read of the end before it is known how long the footer is: most are shorter.
const TAIL_BYTES: u64 = 64 << 10;
/// The longest footer: what a million batches need.
const FOOTER_BYTES_MAX: u64 = 64 << 20;
/// Headers read at once where nothing but the number of rows is wanted.
const HEADERS_AT_ONCE: usize = 256;

/// The bytes of a file that can be read anywhere.
pub trait IpcInput: Send {
    /// Its length, bytes.
    fn size(&self) -> u64;

    /// These parts of it, all within its length, in the same order. Arrays are made of them without a copy, where their
    /// alignment allows it.
    ///
    /// # Errors
    /// It cannot be read, is shorter by now, or has changed.
    fn read(&self, parts: &[Range<u64>]) -> io::Result<Vec<Buffer>>;
}

/// A message: where its header and body lie.
#[derive(Clone, Debug)]
struct Place {
    header: Range<u64>,
    body: Range<u64>,
}

impl Place {
    fn bytes(&self) -> u64 {
        self.body.end - self.header.start
    }

    /// Parts of the body, as parts of the file.
    fn parts(&self, of_body: &[Range<u64>]) -> Vec<Range<u64>> {
        of_body.iter().map(|part| self.body.start + part.start..self.body.start + part.end).collect()
    }
}

/// What the footer of a file says.
#[derive(Debug)]
pub struct ArrowFile {
    pub(super) held: Held,
    batches: Vec<Place>,
    dictionaries: Vec<Place>,
}

/// How a file is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrowShape {
    /// Its rows.
    pub rows: u64,
    /// Its record batches.
    pub batches: usize,
    /// How its buffers are compressed, by the first batch: `lz4` or `zstd`.
    pub compression: Option<&'static str>,
    /// The batches of its dictionaries.
    pub dictionaries: usize,
}

impl ArrowFile {
    /// Reads the footer; `None` if it is none of these files, maybe a stream.
    ///
    /// # Errors
    /// It cannot be read, or was cut, or its footer contradicts itself; a column of a type that is not taken.
    pub fn open(input: &dyn IpcInput) -> Result<Option<Self>, FormatError> {
        let size = input.size();
        if size == 0 {
            return Err(malformed("the file is empty; even one without rows names its columns"));
        }
        if size < HEAD_BYTES as u64 {
            return Ok(None);
        }
        let tail = size.saturating_sub(TAIL_BYTES);
        let parts = input.read(&[0..HEAD_BYTES as u64, tail..size])?;
        let (head, end) = (&parts[0], &parts[1]);
        if head.starts_with(FEATHER_1) {
            return Err(feather_1());
        }
        if !head.starts_with(MAGIC) {
            return Ok(None);
        }
        let cut = || malformed("the file has no footer: it was cut short, or is still being written");
        if size < HEAD_BYTES as u64 + TRAILER_BYTES || !end.ends_with(MAGIC) {
            return Err(cut());
        }
        let at = end.len() - TRAILER_BYTES as usize;
        let length = u64::from(u32::from_le_bytes([end[at], end[at + 1], end[at + 2], end[at + 3]]));
        let footer_end = size - TRAILER_BYTES;
        if length > FOOTER_BYTES_MAX || length > footer_end - HEAD_BYTES as u64 {
            return Err(malformed(format!("a footer of {length} bytes in a file of {size}")));
        }
        let begin = footer_end - length;
        // Copied, since what is mapped could be changed by somebody between two looks at it.
        let footer = match begin >= tail {
            true => end[(begin - tail) as usize..at].to_vec(),
            false => input.read(std::slice::from_ref(&(begin..footer_end)))?[0].to_vec(),
        };
        Self::of(&footer, begin).map(Some)
    }

    /// What a footer that begins at `begin` says.
    fn of(footer: &[u8], begin: u64) -> Result<Self, FormatError> {
        let footer = ipc::root_as_footer(footer).map_err(|e| malformed(format!("its footer cannot be read ({e})")))?;
        let held = Held::of(footer.schema().ok_or_else(|| malformed("its footer has no list of columns"))?)?;
        let batches = places(footer.recordBatches().into_iter().flatten(), begin)?;
        let dictionaries = places(footer.dictionaries().into_iter().flatten(), begin)?;
        // A footer that lists a batch a million times would make a small file one of many rows.
        let mut all: Vec<&Place> = batches.iter().chain(&dictionaries).collect();
        all.sort_unstable_by_key(|place| place.header.start);
        if let Some(pair) = all.windows(2).find(|pair| pair[0].body.end > pair[1].header.start) {
            return Err(malformed(format!("two of its batches share bytes, at {}", pair[1].header.start)));
        }
        Ok(ArrowFile { held, batches, dictionaries })
    }

    /// The columns, of the types that they have in the file.
    pub fn schema(&self) -> &SchemaRef {
        &self.held.schema
    }

    /// The bytes of each batch: what a file is best divided by.
    pub fn batches(&self) -> impl ExactSizeIterator<Item = u64> {
        self.batches.iter().map(Place::bytes)
    }

    /// How many rows it has, by the headers of its batches.
    ///
    /// # Errors
    /// It cannot be read, or a header is wrong.
    pub fn rows(&self, input: &dyn IpcInput) -> Result<u64, FormatError> {
        let mut rows = 0u64;
        for places in self.batches.chunks(HEADERS_AT_ONCE) {
            let headers = input.read(&places.iter().map(|place| place.header.clone()).collect::<Vec<_>>())?;
            for header in &headers {
                let bytes = header_in(header)?;
                rows += rows_of(&record_batch(&read_header(&bytes)?)?).map_err(malformed)? as u64;
            }
        }
        Ok(rows)
    }

    /// How it is stored.
    ///
    /// # Errors
    /// As [`ArrowFile::rows`].
    pub fn shape(&self, input: &dyn IpcInput) -> Result<ArrowShape, FormatError> {
        let mut compression = None;
        if let Some(first) = self.batches.first() {
            let header = input.read(std::slice::from_ref(&first.header))?;
            let bytes = header_in(&header[0])?;
            let codec = record_batch(&read_header(&bytes)?)?.compression().map(|c| Codec::of(&c)).transpose().map_err(malformed)?;
            compression = codec.map(Codec::name);
        }
        Ok(ArrowShape { rows: self.rows(input)?, batches: self.batches.len(), compression, dictionaries: self.dictionaries.len() })
    }
}

/// That a file is of the first version of Feather.
pub(super) fn feather_1() -> FormatError {
    malformed("it is a file of Feather's first version, which is another format; write it anew (in pyarrow: write_feather(…, version=2))")
}

fn places<'a>(blocks: impl Iterator<Item = &'a ipc::Block>, end: u64) -> Result<Vec<Place>, FormatError> {
    blocks.map(|block| place(block, end)).collect()
}

/// Where a block lies, which must end before `end`.
fn place(block: &ipc::Block, end: u64) -> Result<Place, FormatError> {
    let (offset, header, body) = (block.offset(), block.metaDataLength(), block.bodyLength());
    let wrong = || malformed(format!("a batch at {offset} of {header} and {body} bytes is not within the {end} bytes before its footer"));
    let start = u64::try_from(offset).map_err(|_| wrong())?;
    let header = u64::try_from(header).ok().filter(|header| (8..=HEADER_BYTES_MAX as u64).contains(header)).ok_or_else(wrong)?;
    let body = u64::try_from(body).map_err(|_| wrong())?;
    let middle = start.checked_add(header).ok_or_else(wrong)?;
    let last = middle.checked_add(body).filter(|last| *last <= end).ok_or_else(wrong)?;
    Ok(Place { header: start..middle, body: middle..last })
}

/// The header that a block begins with, behind the length that stands before it. Copied, as the footer is.
fn header_in(block: &[u8]) -> Result<Vec<u8>, FormatError> {
    let word = |at: usize| block.get(at..at + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    let (length, before): (_, usize) = match word(0) {
        Some(u32::MAX) => (word(4), 8),
        // Before version 0.15 there was no mark in front of the length.
        length => (length, 4),
    };
    let header = length.and_then(|length| block.get(before..before.checked_add(length as usize)?));
    header.map(<[u8]>::to_vec).ok_or_else(|| malformed("the header of a batch is longer than its footer says"))
}

/// The batch that a message is.
pub(super) fn record_batch<'a>(message: &ipc::Message<'a>) -> Result<ipc::RecordBatch<'a>, FormatError> {
    check_version(message)?;
    let batch = message.header_as_record_batch();
    batch.ok_or_else(|| malformed(format!("a batch of rows is expected, not a message of type {:?}", message.header_type())))
}

/// The dictionary that a message is.
pub(super) fn dictionary_batch<'a>(message: &ipc::Message<'a>) -> Result<ipc::DictionaryBatch<'a>, FormatError> {
    check_version(message)?;
    let batch = message.header_as_dictionary_batch();
    batch.ok_or_else(|| malformed(format!("a dictionary is expected, not a message of type {:?}", message.header_type())))
}

fn check_version(message: &ipc::Message<'_>) -> Result<(), FormatError> {
    if message.version() < ipc::MetadataVersion::V4 {
        return Err(malformed("it was written by Arrow before version 0.8, in another form; write it anew"));
    }
    Ok(())
}

/// Reads some batches of a file, in its order.
pub(super) struct FileMessages {
    input: Box<dyn IpcInput>,
    columns: Columns,
    dictionaries: Vec<Place>,
    batches: std::vec::IntoIter<Place>,
    /// The batch that comes next, and its header if that was read with the batch before.
    next: Option<(Place, Option<Buffer>)>,
    /// Bytes of the file that were read or passed over.
    read: Arc<AtomicU64>,
}

impl FileMessages {
    /// Of the batches with these numbers.
    ///
    /// # Errors
    /// There are not so many.
    pub fn new(
        input: Box<dyn IpcInput>,
        file: ArrowFile,
        part: Option<Range<u64>>,
        columns: impl FnOnce(Held) -> Result<Columns, FormatError>,
        read: Arc<AtomicU64>,
    ) -> Result<Self, FormatError> {
        let ArrowFile { held, mut batches, mut dictionaries } = file;
        if let Some(part) = part {
            if part.start > part.end || part.end > batches.len() as u64 {
                return Err(FormatError::data(format!(
                    "it has {} batches, but had at least {} before: it was replaced; put the file back, or start the job without its \
                     checkpoint",
                    batches.len(),
                    part.end
                )));
            }
            batches.truncate(part.end as usize);
            batches.drain(..part.start as usize);
        }
        let columns = columns(held)?;
        if !columns.needs_dictionaries() {
            dictionaries.clear();
        }
        let mut batches = batches.into_iter();
        let next = batches.next().map(|place| (place, None));
        Ok(FileMessages { input, columns, dictionaries, batches, next, read })
    }

    /// The columns of the next batch that is not passed over, and its rows; takes the rows of those that are off `skip`.
    ///
    /// # Errors
    /// As [`super::read::ArrowReader::read`].
    pub fn next(&mut self, skip: &mut u64) -> Result<Option<(Vec<ArrayRef>, usize)>, FormatError> {
        self.load_dictionaries()?;
        while let Some((place, header)) = self.next.take() {
            let header = match header {
                Some(header) => header,
                None => self.one(place.header.clone())?,
            };
            let bytes = header_in(&header)?;
            let message = read_header(&bytes)?;
            let batch = record_batch(&message)?;
            let rows = rows_of(&batch).map_err(malformed)?;
            self.read.fetch_add(place.bytes(), Ordering::Relaxed);
            let behind = self.batches.next();
            if rows as u64 <= *skip {
                *skip -= rows as u64;
                self.next = behind.map(|place| (place, None));
                continue;
            }
            let layout = self.columns.layout(&batch, place.body.end - place.body.start)?;
            let mut parts = place.parts(&layout.buffers);
            // With the header of the next batch: what lies behind a network takes a while to answer.
            parts.extend(behind.as_ref().map(|place| place.header.clone()));
            let mut buffers = self.input.read(&parts)?;
            self.next = behind.map(|place| (place, buffers.pop()));
            let columns = self.columns.build(&layout, buffers)?;
            return Ok(Some((columns, layout.rows)));
        }
        Ok(None)
    }

    fn one(&self, part: Range<u64>) -> Result<Buffer, FormatError> {
        let mut buffers = self.input.read(std::slice::from_ref(&part))?;
        buffers.pop().ok_or_else(|| malformed("nothing was read"))
    }

    /// Reads the dictionaries, which may stand anywhere, before the first batch.
    fn load_dictionaries(&mut self) -> Result<(), FormatError> {
        if self.dictionaries.is_empty() {
            return Ok(());
        }
        let places = std::mem::take(&mut self.dictionaries);
        let headers = self.input.read(&places.iter().map(|place| place.header.clone()).collect::<Vec<_>>())?;
        for (place, header) in places.iter().zip(&headers) {
            let bytes = header_in(header)?;
            let message = read_header(&bytes)?;
            let dictionary = dictionary_batch(&message)?;
            let Some(layout) = self.columns.dictionary_layout(&dictionary, place.body.end - place.body.start)? else { continue };
            let buffers = self.input.read(&place.parts(&layout.buffers))?;
            self.columns.dictionary(dictionary.id(), dictionary.isDelta(), &layout, buffers)?;
        }
        Ok(())
    }
}
