//! Reads a text file, or a range of one: bytes from a [`Feed`], rows from the format's decoder. Text in another encoding than
//! UTF-8 is decoded on its way into the feed ([`decoded`]), as compressed text is decompressed, so that all positions are
//! those of the text in UTF-8.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidemill_format::encoding::{DecodingReader, TextEncoding};
use tidemill_format::text::TextFormat;
use tidemill_format::{BadRecord, Decoded, Decoder};

use super::feed::{Fed, Feed};
use super::head::Head;
use super::metadata::Constants;
use crate::{ConnectError, Polled, Reader, Rows};

/// Bytes taken into the decoder before rows are made of them, at most, unless a record is longer.
const AHEAD_BYTES: usize = 1 << 20;
/// How long a row is taken to be before the first was seen, bytes.
const ROW_BYTES: usize = 64;
/// So large a part of the text that the rows asked for are thought to take is looked at beyond it: rows a little
/// longer than the latest come in the number asked for all the same, and whoever puts them into blocks or messages
/// of a size need not join them with a few of the next. What is too much waits in the decoder.
const SPARE_SHARE: usize = 16;

/// Where a text split stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    /// Bytes of uncompressed text in UTF-8 from the beginning of the file.
    pub offset: u64,
    /// Records before that, from the beginning of the split.
    pub records: u64,
}

impl Position {
    /// What [`Reader::position`] gave.
    ///
    /// # Errors
    /// Something else.
    pub fn parse(value: &Value, split: &str) -> Result<Self, ConnectError> {
        Position::deserialize(value).map_err(|e| {
            ConnectError::new(format!(
                "the position {value} of split '{split}' is not one of a text file: {e}; was the table's format changed?"
            ))
        })
    }
}

/// The text that an input holds in an encoding, in UTF-8; the encoding comes with the option that says it. For an input that
/// grows, `grows` gets the bytes read of it.
pub(super) fn decoded(
    input: Box<dyn Read + Send>,
    (encoding, option): (TextEncoding, &'static str),
    grows: Option<Arc<AtomicU64>>,
) -> Box<dyn Read + Send> {
    if encoding.is_utf8() { input } else { Box::new(DecodingReader::new(input, encoding, option, grows)) }
}

/// How lines are counted, for messages.
pub(super) enum Lines {
    /// So many lines come before the split's first record.
    Before(u64),
    /// The split begins at this byte of this plain file; the lines before it are counted when the
    /// first message needs it.
    Uncounted(u64),
    /// Records are no lines.
    Never,
}

impl Lines {
    /// Of a text that is read from its beginning.
    pub fn of(format: &TextFormat) -> Self {
        if format.document() { Lines::Never } else { Lines::Before(u64::from(format.header())) }
    }
}

/// Reads one text split.
pub(super) struct TextReader {
    path: String,
    feed: Feed,
    decoder: Box<dyn Decoder>,
    /// Where the decoder's first byte and record lie.
    base: Position,
    /// What the decoder has consumed since.
    done: Position,
    lines: Lines,
    constants: Constants,
    /// How a local file begins.
    head: Option<Head>,
    /// Bytes pushed into the decoder, and when: pairs of the end of a chunk and its arrival.
    pushed: u64,
    arrivals: VecDeque<(u64, u64)>,
    arrival_ns: u64,
    /// How long a row is by the latest block, to know how many bytes make the rows asked for.
    row_bytes: usize,
    finished: bool,
    /// Where the feed ends and another reader begins.
    another: Option<u64>,
    /// An error of the feed that waits until the rows before it were taken.
    failure: Option<ConnectError>,
}

impl TextReader {
    /// A reader of what `feed` gives; `base` is the position of its first byte.
    pub fn new(path: String, feed: Feed, decoder: Box<dyn Decoder>, base: Position, lines: Lines, constants: Constants) -> Self {
        TextReader {
            path,
            feed,
            decoder,
            base,
            done: Position::default(),
            lines,
            constants,
            head: None,
            pushed: 0,
            arrivals: VecDeque::new(),
            arrival_ns: 0,
            row_bytes: ROW_BYTES,
            finished: false,
            another: None,
            failure: None,
        }
    }

    /// The file begins so, which its positions shall tell.
    pub fn with_head(mut self, head: Option<Head>) -> Self {
        self.head = head;
        self
    }

    /// Says that the feed ends at this byte of the file, where a record begins that another reader takes, so that none may
    /// reach beyond it.
    pub fn up_to_another(mut self, end: u64) -> Self {
        self.another = Some(end);
        self
    }

    /// A record reaches into the range of another reader.
    #[cold]
    fn torn(&self, end: u64) -> ConnectError {
        ConnectError::new(format!(
            "'{}': the record at byte {} does not end before byte {end}, where the file was cut so that several read it: a quote is never \
             closed, or stands in the middle of a field; correct it, or set 'csv.disable-quote-character' = 'true' if quotes mean nothing \
             in it. If the record is right, and a text in it longer than {} KB, read the file with a parallelism of 1",
            self.path,
            self.reached().offset,
            super::ranges::LOOK_BYTES >> 10
        ))
    }

    /// Where the next record begins.
    pub fn reached(&self) -> Position {
        Position { offset: self.base.offset + self.done.offset, records: self.base.records + self.done.records }
    }

    /// Gives the feed back, to read on behind the end of this text.
    pub fn into_feed(self) -> Feed {
        self.feed
    }

    /// Takes what is there into the decoder until it has `want` bytes; false if there is no more at
    /// the moment.
    fn fill(&mut self, want: usize) -> bool {
        while self.decoder.buffered() < want {
            let missing = want - self.decoder.buffered();
            match self.feed.next(&mut *self.decoder, missing) {
                Ok(Fed::Bytes(length, arrival_ns)) => {
                    self.pushed += length as u64;
                    self.arrivals.push_back((self.pushed, arrival_ns));
                }
                Ok(Fed::Nothing) => return false,
                Ok(Fed::End) => {
                    // Then what is left is no last record without a line end.
                    if self.another.is_none() {
                        self.decoder.finish();
                    }
                    self.finished = true;
                    return false;
                }
                Err(e) => {
                    self.failure = Some(e);
                    return false;
                }
            }
        }
        true
    }

    fn rows(&mut self, decoded: Decoded) -> Result<Rows, ConnectError> {
        let Decoded { batch, kinds, offset, records, bad } = decoded;
        assert!(offset >= self.done.offset && offset <= self.pushed, "a decoder consumes what was pushed, in order");
        let bytes = offset - self.done.offset;
        let taken = records - self.done.records;
        if taken > 0 {
            self.row_bytes = bytes.div_ceil(taken).max(1) as usize;
        }
        let places = bad.iter().map(|b| self.place(b)).collect();
        // The rows are as old as their first byte.
        let mut first = None;
        while let Some((end, arrival_ns)) = self.arrivals.front().copied() {
            if first.is_none() && end > self.done.offset {
                first = Some(arrival_ns);
            }
            if end > offset {
                break;
            }
            self.arrivals.pop_front();
        }
        self.arrival_ns = first.unwrap_or(self.arrival_ns);
        self.done = Position { offset, records };
        Ok(Rows { batch: self.constants.append(batch)?, kinds, arrival_ns: self.arrival_ns, bytes, bad, places })
    }

    /// `path:line (byte n)`, of a document `path, record n (byte n)`. A record with line ends in quotes counts as one line.
    #[cold]
    fn place(&mut self, bad: &BadRecord) -> String {
        let byte = self.base.offset + bad.offset;
        if let Lines::Uncounted(start) = self.lines {
            match lines_before(&self.path, start) {
                Ok(lines) => self.lines = Lines::Before(lines),
                Err(_) => return format!("{} (byte {byte})", self.path),
            }
        }
        let record = self.base.records + bad.record + 1;
        match self.lines {
            Lines::Before(before) => format!("{}:{} (byte {byte})", self.path, before + record),
            Lines::Never => format!("{}, record {record} (byte {byte})", self.path),
            Lines::Uncounted(_) => unreachable!("counted above"),
        }
    }
}

impl Reader for TextReader {
    fn fetch(&mut self) -> Result<(), ConnectError> {
        self.feed.start()
    }

    fn poll(&mut self, rows_max: usize) -> Result<Polled, ConnectError> {
        let thought = rows_max.saturating_mul(self.row_bytes);
        let mut want = thought.saturating_add(thought / SPARE_SHARE).min(AHEAD_BYTES);
        loop {
            let more = !self.finished && self.failure.is_none() && self.fill(want);
            if let Some(decoded) = self.decoder.next(rows_max).map_err(|e| ConnectError::from(e).at(&self.path))? {
                return Ok(Polled::Rows(self.rows(decoded)?));
            }
            if let Some(e) = self.failure.take() {
                return Err(e);
            }
            if self.finished {
                return match self.another {
                    Some(end) if self.decoder.buffered() > 0 => Err(self.torn(end)),
                    _ => Ok(Polled::End),
                };
            }
            if !more {
                return Ok(Polled::Pending);
            }
            // Not one whole record yet: rows are longer than thought.
            want = self.decoder.buffered() + 1;
        }
    }

    fn position(&self) -> Value {
        let reached = self.reached();
        let mut position = serde_json::json!(reached);
        if let Some(head) = &self.head {
            position["head"] = head.mark(reached.offset).into();
        }
        position
    }
}

/// The number of line ends in the first `end` bytes of a file.
fn lines_before(path: &str, end: u64) -> io::Result<u64> {
    let file = File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    let (mut at, mut lines) = (0, 0);
    while at < end {
        let want = buffer.len().min((end - at) as usize);
        let got = file.read_at(&mut buffer[..want], at)?;
        if got == 0 {
            break;
        }
        lines += memchr::memchr_iter(b'\n', &buffer[..got]).count() as u64;
        at += got as u64;
    }
    Ok(lines)
}
