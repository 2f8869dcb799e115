//! Arrow's messages one after the other, from front to back: streams, and files whose footer cannot be reached (compressed
//! as a whole, from a pipe, from a server that knows no ranges). Batches are read whole, whatever is wanted of them.

use std::io::{self, ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::ArrayRef;
use arrow::buffer::Buffer;
use arrow::ipc;

use super::build::Columns;
use super::file::{FEATHER_1, HEAD_BYTES, MAGIC, dictionary_batch, feather_1, record_batch};
use super::held::Held;
use super::layout::{Layout, rows_of};
use super::{HEADER_BYTES_MAX, malformed, read_header};
use crate::FormatError;

/// Memory taken at once for a body, bytes: its length is believed as far as bytes come.
const AT_ONCE: usize = 16 << 20;
/// The most that stands between the beginning of a file and its first message, bytes.
const PADDING_MAX: usize = 4096;
/// The longest footer behind the last batch of a file, bytes.
const FOOTER_BYTES_MAX: u64 = 64 << 20;

/// A stream whose columns were read.
pub(super) struct Opened {
    input: Box<dyn Read + Send>,
    /// Whether it is a file, which has a footer.
    file: bool,
    pub held: Held,
    read: Arc<AtomicU64>,
}

/// Reads the messages of a stream.
pub(super) struct StreamMessages {
    input: Box<dyn Read + Send>,
    file: bool,
    columns: Columns,
    ended: bool,
    /// Bytes of the content that were read.
    read: Arc<AtomicU64>,
}

/// A message without its body.
struct Begun {
    header: Vec<u8>,
    body: u64,
}

impl Opened {
    /// Reads up to the columns.
    ///
    /// # Errors
    /// It cannot be read, is none of Arrow's, or has a column of a type that is not taken.
    pub fn new(mut input: Box<dyn Read + Send>, read: Arc<AtomicU64>) -> Result<Self, FormatError> {
        let mut word = [0; 4];
        match fill(&mut input, &mut word)? {
            0 => return Err(malformed("there is nothing: even a stream without rows names its columns")),
            4 => {}
            _ => return Err(cut()),
        }
        if word == *FEATHER_1 {
            return Err(feather_1());
        }
        let file = word == MAGIC[..4];
        if file {
            let mut rest = [0; HEAD_BYTES - 4];
            if fill(&mut input, &mut rest)? < rest.len() || !rest.starts_with(&MAGIC[4..]) {
                return Err(malformed("it begins as an Arrow file does and goes on otherwise"));
            }
        }
        let word = if file { behind_padding(&mut input)? } else { word };
        let first = begin(&mut input, Some(word), &read)?.ok_or_else(|| malformed("it ends before its columns are named"))?;
        let message = read_header(&first.header)?;
        let schema = message.header_as_schema().ok_or_else(|| malformed("the first message must hold the schema"))?;
        let held = Held::of(schema)?;
        pass(&mut input, first.body)?;
        Ok(Opened { input, file, held, read })
    }

    /// The rest of it.
    ///
    /// # Errors
    /// Those of `columns`, which chooses columns.
    pub fn into_messages(self, columns: impl FnOnce(Held) -> Result<Columns, FormatError>) -> Result<StreamMessages, FormatError> {
        let Opened { input, file, held, read } = self;
        Ok(StreamMessages { input, file, columns: columns(held)?, ended: false, read })
    }
}

impl StreamMessages {
    /// The columns of the next batch that is not passed over, and its rows; takes the rows of those that are off `skip`.
    ///
    /// # Errors
    /// As [`super::read::ArrowReader::read`].
    pub fn next(&mut self, skip: &mut u64) -> Result<Option<(Vec<ArrayRef>, usize)>, FormatError> {
        while !self.ended {
            let Some(begun) = begin(&mut self.input, None, &self.read)? else {
                self.end()?;
                break;
            };
            let message = read_header(&begun.header)?;
            match message.header_type() {
                ipc::MessageHeader::RecordBatch => {
                    let batch = record_batch(&message)?;
                    let rows = rows_of(&batch).map_err(malformed)?;
                    if rows as u64 <= *skip {
                        *skip -= rows as u64;
                        pass(&mut self.input, begun.body)?;
                        continue;
                    }
                    let layout = self.columns.layout(&batch, begun.body)?;
                    let buffers = buffers(&body(&mut self.input, begun.body)?, &layout);
                    return Ok(Some((self.columns.build(&layout, buffers)?, layout.rows)));
                }
                ipc::MessageHeader::DictionaryBatch => {
                    let dictionary = dictionary_batch(&message)?;
                    match self.columns.dictionary_layout(&dictionary, begun.body)? {
                        None => pass(&mut self.input, begun.body)?,
                        Some(layout) => {
                            let buffers = buffers(&body(&mut self.input, begun.body)?, &layout);
                            self.columns.dictionary(dictionary.id(), dictionary.isDelta(), &layout, buffers)?;
                        }
                    }
                }
                ipc::MessageHeader::NONE => pass(&mut self.input, begun.body)?,
                other => return Err(malformed(format!("a message of type {other:?} is not expected"))),
            }
        }
        Ok(None)
    }

    /// Looks whether what ends here is all of it.
    fn end(&mut self) -> Result<(), FormatError> {
        self.ended = true;
        let mut rest = Vec::new();
        let limit = if self.file { FOOTER_BYTES_MAX } else { 1 };
        let read = self.input.by_ref().take(limit).read_to_end(&mut rest)?;
        if self.file && !rest.ends_with(MAGIC) {
            return Err(cut());
        }
        if !self.file && read > 0 {
            return Err(malformed("something follows behind the end of the stream, maybe another one; each must be a file of its own"));
        }
        Ok(())
    }
}

/// The error of a stream that breaks off.
fn cut() -> FormatError {
    malformed("it ends in the middle of a message, or before its footer: it was cut short, or is still being written")
}

/// Reads until the buffer is full or the input ends; how many bytes.
fn fill(input: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match input.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(got)
}

/// The first word of the first message of a file: writers fill the bytes before it up to 8, 64 or what they like.
fn behind_padding(input: &mut dyn Read) -> Result<[u8; 4], FormatError> {
    for _ in 0..PADDING_MAX / 4 {
        let mut word = [0; 4];
        if fill(input, &mut word)? < word.len() {
            return Err(cut());
        }
        if word != [0; 4] {
            return Ok(word);
        }
    }
    Err(malformed("it begins as an Arrow file does, and then there is nothing"))
}

/// Reads the header of the next message, of which the first word may have been read; `None` at the end.
fn begin(input: &mut dyn Read, word: Option<[u8; 4]>, read: &AtomicU64) -> Result<Option<Begun>, FormatError> {
    let mut next = || -> Result<Option<[u8; 4]>, FormatError> {
        let mut word = [0; 4];
        match fill(input, &mut word)? {
            0 => Ok(None),
            4 => Ok(Some(word)),
            _ => Err(cut()),
        }
    };
    let word = match word {
        Some(word) => word,
        None => match next()? {
            Some(word) => word,
            None => return Ok(None),
        },
    };
    let mut length = u32::from_le_bytes(word);
    if length == u32::MAX {
        length = u32::from_le_bytes(next()?.ok_or_else(cut)?);
    }
    let length = length as usize;
    if length == 0 {
        return Ok(None);
    }
    if length > HEADER_BYTES_MAX {
        return Err(malformed(format!("a header of {length} bytes; is this an Arrow file or stream?")));
    }
    let mut header = vec![0; length];
    if fill(input, &mut header)? < length {
        return Err(cut());
    }
    let body = read_header(&header)?.bodyLength();
    let body = u64::try_from(body).map_err(|_| malformed("the length of its body is negative"))?;
    read.fetch_add(8 + length as u64 + body, Ordering::Relaxed);
    Ok(Some(Begun { header, body }))
}

/// Reads a body.
fn body(input: &mut dyn Read, length: u64) -> Result<Buffer, FormatError> {
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(usize::MAX).min(AT_ONCE));
    let got = input.take(length).read_to_end(&mut bytes)?;
    if (got as u64) < length {
        return Err(cut());
    }
    Ok(Buffer::from_vec(bytes))
}

/// Passes over a body.
fn pass(input: &mut dyn Read, length: u64) -> Result<(), FormatError> {
    if io::copy(&mut input.take(length), &mut io::sink())? < length {
        return Err(cut());
    }
    Ok(())
}

/// The parts of a body that a layout lists.
fn buffers(body: &Buffer, layout: &Layout) -> Vec<Buffer> {
    layout.buffers.iter().map(|part| body.slice_with_length(part.start as usize, (part.end - part.start) as usize)).collect()
}
