//! Files as a source: splits, and which reader takes one.

use std::fs::{self, File};
use std::time::Duration;

use arrow::datatypes::DataType;
use regex::Regex;
use tidemill_format::compression::Compression;
use tidemill_format::csv::Header;
use tidemill_format::text::TextFormat;

use super::FileFormat;
use super::avro;
use super::feed::{self, Feed, Plan};
use super::metadata::{self, Constants};
use super::parquet;
use super::path;
use super::ranges::{self, CUT_BYTES_MIN, Cut, Piece};
use super::reader::{Lines, Position, TextReader};
use crate::{Changelog, ConnectError, Reader, ReaderContext, Source, Split};

/// A table read from files.
pub(super) struct FileSource {
    /// A file, a directory or a glob.
    pub path: String,
    pub pattern: Option<Regex>,
    pub format: FileFormat,
    /// As the user says; otherwise the extension decides.
    pub compression: Option<Compression>,
    /// How often to look for more; `None` if the source is bounded.
    pub monitor: Option<Duration>,
}

impl FileSource {
    fn files(&self) -> Result<Vec<String>, ConnectError> {
        let files = path::files(&self.path, self.pattern.as_ref(), self.monitor.is_some())?;
        Ok(files.into_iter().map(|f| f.into_os_string().into_string().expect("checked by path::files")).collect())
    }

    fn compression(&self, path: &str) -> Compression {
        self.compression.unwrap_or_else(|| Compression::from_path(path))
    }

    /// The ranges into which a file of this length is cut; one if it is not.
    fn cut(&self, text: &TextFormat, path: &str, size: u64, range: u64, readers: usize) -> Result<Vec<(u64, u64)>, ConnectError> {
        if size <= range || size < CUT_BYTES_MIN || self.compression(path) != Compression::None {
            return Ok(vec![(0, size)]);
        }
        File::open(path)
            .and_then(|file| ranges::cut(&file, size, range, Cut::of(text), readers))
            .map_err(|e| ConnectError::io(format!("cutting '{path}' into ranges"), &e))
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
        let meta = fs::metadata(path).map_err(|e| ConnectError::io(format!("looking at '{path}'"), &e))?;
        let (regular, compression) = (meta.is_file(), self.compression(path));
        let (start, end) = match piece {
            Piece::Bytes(start, end) => (*start, Some(*end)),
            _ => (0, None),
        };
        let base = match &split.position {
            Some(position) => Position::parse(position, &split.id)?,
            None => Position { offset: start, records: 0 },
        };
        if regular && compression == Compression::None && meta.len() < base.offset {
            return Err(feed::shorter(path, meta.len(), base.offset));
        }
        let decoder = text.decoder_at(&request.physical, &request.projection, base.offset == 0)?;
        let constants = Constants::new(request, path, &meta)?;
        let header = matches!(text, TextFormat::Csv(csv) if csv.header != Header::No);
        let lines = if start > 0 { Lines::Uncounted(start) } else { Lines::Before(u64::from(header)) };
        let open = || File::open(path).map_err(|e| ConnectError::io(format!("opening '{path}'"), &e));
        let in_place = end.is_some() || (regular && compression == Compression::None && self.monitor.is_none());
        let feed = if in_place {
            Feed::inline(path.to_string(), open()?, base.offset, end)
        } else {
            let plan = Plan {
                path: path.to_string(),
                // Opening a pipe waits for its writer, so the thread does it.
                file: if regular { Some(open()?) } else { None },
                compression,
                skip: base.offset,
                tail: self.monitor,
            };
            Feed::thread(plan, context.waker)
        };
        Ok(Box::new(TextReader::new(path.to_string(), feed, decoder, base, lines, constants)))
    }
}

impl Source for FileSource {
    fn bounded(&self) -> bool {
        self.monitor.is_none()
    }

    fn splits(&self, _parallelism: usize) -> Result<Vec<Split>, ConnectError> {
        Ok(self.files()?.into_iter().map(Split::new).collect())
    }

    fn changelog(&self) -> Changelog {
        if self.format.changelog() { Changelog::All } else { Changelog::Append }
    }

    fn discovery_interval(&self) -> Option<Duration> {
        self.monitor
    }

    fn unordered_splits(&self, parallelism: usize) -> Result<Vec<Split>, ConnectError> {
        // The changes of one key must stay in order, so files of changes are not cut.
        if parallelism < 2 || self.monitor.is_some() || self.format.changelog() {
            return self.splits(parallelism);
        }
        let mut files = Vec::new();
        for path in self.files()? {
            let meta = fs::metadata(&path).map_err(|e| ConnectError::io(format!("looking at '{path}'"), &e))?;
            // What is no regular file (a pipe) has no length to cut.
            files.push((path, if meta.is_file() { meta.len() } else { 0 }));
        }
        let range = ranges::range_bytes(files.iter().map(|(_, size)| size).sum(), parallelism);
        let mut splits = Vec::new();
        for (path, size) in files {
            let pieces: Vec<Piece> = match &self.format {
                FileFormat::Text(text) => {
                    self.cut(text, &path, size, range, parallelism)?.into_iter().map(|(a, b)| Piece::Bytes(a, b)).collect()
                }
                FileFormat::Parquet(_) if size <= range => vec![Piece::Whole],
                FileFormat::Parquet(_) => parquet::pieces(&path, range)?,
                FileFormat::Avro(_) => vec![Piece::Whole],
            };
            match pieces.as_slice() {
                [] | [_] => splits.push(Split::new(path)),
                many => splits.extend(many.iter().map(|piece| Split::new(ranges::id(&path, piece)))),
            }
        }
        Ok(splits)
    }

    fn open(&self, split: &Split, context: ReaderContext) -> Result<Box<dyn Reader>, ConnectError> {
        let (path, piece) = ranges::parse_id(&split.id, |id| fs::metadata(id).is_ok());
        match &self.format {
            FileFormat::Text(text) => self.open_text(text, path, &piece, split, context),
            FileFormat::Parquet(_) => parquet::open(path, &piece, split, &context.request),
            FileFormat::Avro(_) => avro::open(path, split, &context.request),
        }
    }

    fn metadata_columns(&self) -> Vec<(&'static str, DataType)> {
        metadata::columns()
    }

    fn rows_hint(&self) -> Option<usize> {
        match (&self.format, self.monitor) {
            (FileFormat::Parquet(_), None) => self.files().ok()?.iter().map(|path| parquet::rows(path)).sum::<Option<usize>>(),
            _ => None,
        }
    }
}
