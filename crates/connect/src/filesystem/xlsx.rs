//! Reads a sheet of a workbook. Cells and rows are the format's; here are positions, bad rows with the cells that are
//! wrong, and where the bytes come from. A workbook is unpacked from front to back, so it is one split, and a thread of its
//! own does it; whoever goes on at a row unpacks what lies before it again.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use arrow::datatypes::SchemaRef;
use crossbeam_channel::{Receiver, TryRecvError, bounded};
use serde::{Deserialize, Serialize};
use tidemill_archive::{Limits, LocalFile, ReadAt, zip_directory};
use tidemill_block::clock;
use tidemill_format::BadRecord;
use tidemill_format::options::{OptionSet, OptionValue};
use tidemill_format::xlsx::{self, XlsxInput, XlsxOptions, XlsxRows};
use tidemill_store::ObjectFile;

use super::cache::{self, residency};
use super::directory::Place;
use super::feed::WakeAtEnd;
use super::metadata::{Constants, FileInfo};
use super::ranges::Piece;
use super::sample::{first_file, options_of};
use crate::{ConnectError, Polled, ReadRequest, Reader, Rows, Split, Waker};

/// Rows made at once.
const BATCH_ROWS: usize = 2048;
/// Batches that wait for the reader at most; the thread has one more in hand.
const WAITING_MAX: usize = 2;

/// Where a split stands.
#[derive(Serialize, Deserialize)]
struct Position {
    /// The number of the next row of the sheet, the header and blank rows not counted, from 0.
    row: u64,
}

/// An object in a bucket, read as a file is.
struct Remote {
    file: ObjectFile,
    at: u64,
}

impl Read for Remote {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.file.read_at(self.at, buffer)?;
        self.at += got as u64;
        Ok(got)
    }
}

impl Seek for Remote {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.file.size().checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a place before the beginning of the file"))?;
        Ok(self.at)
    }
}

/// Opens a workbook, after a look at how large its texts are, which will all be in memory.
fn input(place: &Place, path: &str, options: &XlsxOptions) -> Result<Box<dyn XlsxInput>, ConnectError> {
    let opening = |e: io::Error| ConnectError::io(format!("opening '{path}'"), &e);
    let (input, zip): (Box<dyn XlsxInput>, Box<dyn ReadAt>) = match place {
        Place::Local => {
            let file = File::open(path).map_err(opening)?;
            if let Ok(found) = residency(&file) {
                cache::count_share(found.bytes, found);
            }
            (Box::new(file.try_clone().map_err(opening)?), Box::new(LocalFile::new(file).map_err(opening)?))
        }
        Place::Remote(store, object) => {
            let file = store.ranges(object);
            (Box::new(Remote { file: file.clone(), at: 0 }), Box::new(file))
        }
    };
    let members = zip_directory(&*zip, &Limits::default()).map_err(|e| {
        let why = "a workbook of XLSX is a zip archive (of the older format .xls it is not, nor if it wants a password)";
        ConnectError::new(format!("reading the workbook '{path}': {e}; {why}"))
    })?;
    let texts = members.iter().filter(|member| member.name.to_ascii_lowercase().ends_with("sharedstrings.xml"));
    let bytes: u64 = texts.map(|member| member.size).fold(0, u64::saturating_add);
    if bytes > options.texts_size_max.0 {
        let most = options.texts_size_max.show().unwrap_or_default();
        return Err(ConnectError::new(format!(
            "reading the workbook '{path}': its texts take up {} MB, which would all be held in memory, and at most {most} are; raise \
             'xlsx.texts-size-max', or save the sheet as CSV",
            bytes >> 20
        )));
    }
    Ok(input)
}

/// The columns of a sheet of the first file that `path` means, which is what a table's `path` may be, and whether its first row
/// names them: `header` says so, or what is in it. `options` are those of such a table, of which `store.…` and `xlsx.…`
/// matter.
///
/// # Errors
/// There is no such file or sheet, or it is no workbook.
pub fn schema_of(path: &str, options: &BTreeMap<String, String>, header: Option<bool>) -> Result<(SchemaRef, bool), ConnectError> {
    let said = options.contains_key("xlsx.header");
    let mut raw = options_of(path, options, |key| key.starts_with("xlsx."));
    let format = XlsxOptions::take(&mut raw)?;
    let (name, place) = first_file(path, raw, "XLSX")?;
    let input = input(&place, &name, &format)?;
    let header = if said { Some(format.header) } else { header };
    Ok(xlsx::infer(&name, input, &format, header)?)
}

/// Opens a split, which is a whole file.
///
/// # Errors
/// The file cannot be read, or is no workbook.
pub(super) fn open(
    options: &XlsxOptions,
    place: &Place,
    info: &FileInfo,
    piece: &Piece,
    split: &Split,
    (request, waker): (&ReadRequest, Waker),
    path: &str,
) -> Result<Box<dyn Reader>, ConnectError> {
    let changed = |what: String| ConnectError::new(format!("{what} is not one of a workbook; was the table's format changed?"));
    if *piece != Piece::Whole {
        return Err(changed(format!("the split '{}'", split.id)));
    }
    let next = match &split.position {
        None => 0,
        Some(position) => {
            Position::deserialize(position).map_err(|e| changed(format!("the position {position} of split '{}' ({e})", split.id)))?.row
        }
    };
    let input = input(place, path, options)?;
    let constants = Constants::of(request, info)?;
    let (send, rows) = bounded::<Message>(WAITING_MAX);
    let (options, shown) = (options.clone(), path.to_string());
    let (physical, projection) = (request.physical.clone(), request.projection.clone());
    let work = move || {
        // Variables are dropped from the last to the first: the channel ends before the last call.
        let waker = WakeAtEnd(waker);
        let out = send;
        let mut emit = |rows: XlsxRows| {
            let taken = out.send(Message::Rows(rows, clock::now_ns())).is_ok();
            waker.0.wake();
            taken
        };
        let done = xlsx::read(&shown, input, &options, &physical, &projection, next, BATCH_ROWS, &mut emit);
        // Nobody waits for the end of what was given up.
        let _ = out.send(match done {
            Ok(()) => Message::End,
            Err(e) => Message::Failed(e.into()),
        });
    };
    std::thread::Builder::new()
        .name("xlsx-decoder".into())
        .spawn(work)
        .map_err(|e| ConnectError::io(format!("starting a thread to read '{path}'"), &e))?;
    Ok(Box::new(XlsxReader { path: path.to_string(), rows, next, bytes: info.size, decoded: None, constants, ended: false }))
}

/// What the thread says.
enum Message {
    /// Rows, and when they were read.
    Rows(XlsxRows, u64),
    End,
    Failed(ConnectError),
}

/// Rows that were read and not yet handed out, good and bad ones.
struct Decoded {
    rows: arrow::array::RecordBatch,
    bad: VecDeque<(BadRecord, String)>,
    arrival_ns: u64,
}

/// Reads one split.
struct XlsxReader {
    path: String,
    rows: Receiver<Message>,
    /// The number of the next row.
    next: u64,
    /// Bytes of the file that were not told yet: all of them count as read with the first row.
    bytes: u64,
    decoded: Option<Decoded>,
    constants: Constants,
    ended: bool,
}

impl XlsxReader {
    /// Up to so many good rows of what was decoded, and the bad ones among them and right behind.
    fn take(&mut self, mut decoded: Decoded, rows_max: usize) -> Result<Rows, ConnectError> {
        let take = decoded.rows.num_rows().min(rows_max.max(1));
        let mut end = self.next + take as u64;
        let (mut bad, mut places) = (Vec::new(), Vec::new());
        while decoded.bad.front().is_some_and(|(record, _)| record.record <= end)
            && let Some((record, cell)) = decoded.bad.pop_front()
        {
            places.push(format!("{}, cell {cell}", self.path));
            bad.push(record);
            end += 1;
        }
        self.next = end;
        let batch = self.constants.append(decoded.rows.slice(0, take))?;
        let rows = Rows { bad, places, ..Rows::good(batch, decoded.arrival_ns, std::mem::take(&mut self.bytes)) };
        decoded.rows = decoded.rows.slice(take, decoded.rows.num_rows() - take);
        if decoded.rows.num_rows() > 0 || !decoded.bad.is_empty() {
            self.decoded = Some(decoded);
        }
        Ok(rows)
    }
}

impl Reader for XlsxReader {
    fn poll(&mut self, rows_max: usize) -> Result<Polled, ConnectError> {
        if let Some(decoded) = self.decoded.take() {
            return Ok(Polled::Rows(self.take(decoded, rows_max)?));
        }
        if self.ended {
            return Ok(Polled::End);
        }
        match self.rows.try_recv() {
            Ok(Message::Rows(rows, arrival_ns)) => {
                let decoded = Decoded { rows: rows.batch, bad: rows.bad.into(), arrival_ns };
                Ok(Polled::Rows(self.take(decoded, rows_max)?))
            }
            Ok(Message::End) => {
                self.ended = true;
                Ok(Polled::End)
            }
            Ok(Message::Failed(e)) => Err(e),
            Err(TryRecvError::Empty) => Ok(Polled::Pending),
            Err(TryRecvError::Disconnected) => {
                let why = "the thread that reads it ended without saying why; it is likely damaged";
                Err(ConnectError::new(format!("reading the workbook '{}': {why}", self.path)))
            }
        }
    }

    fn position(&self) -> serde_json::Value {
        serde_json::json!(Position { row: self.next })
    }
}
