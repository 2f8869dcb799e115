//! Reads a Parquet file, or some of its rows. Decoding is the format's, and where the bytes come from is
//! [`super::columns`]'; here are splits, positions and block sizes.

use std::collections::VecDeque;
use std::fs::{File, Metadata};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;

use arrow::array::RecordBatch;
use serde::{Deserialize, Serialize};
use tidemill_format::parquet::{self, ChunkReader, ParquetFileReader, ParquetFooter, ParquetInput, ParquetMemory};

use super::batches::{Answer, BATCH_ROWS, Batches, Decode};
use super::cache::Care;
use super::columns::{LocalColumns, RemoteColumns};
use super::directory::Place;
use super::metadata::{Constants, FileInfo};
use super::ranges::{CUT_BYTES_MIN, Piece};
use crate::{ConnectError, Polled, ReadRequest, Reader, Rows, Selection, Split, Waker};

/// So many pieces, as files are cut, are about what each reader gets (see [`super::ranges::range_bytes`]).
const SHARE: u64 = super::ranges::RANGES_PER_READER;

/// Where a Parquet split stands.
#[derive(Serialize, Deserialize)]
struct Position {
    /// The number of the next row in the file, from 0.
    row: u64,
}

/// So many footers are kept at most, and such as take so many bytes together. Readers of one file are at work at the same time, or
/// nearly.
const FOOTERS: usize = 8;
const FOOTERS_BYTES: usize = 64 << 20;

/// What the readers of a table have in common: the footers of the local files that were opened last, as each of the readers of a file's
/// pieces needs it; and memory.
#[derive(Default)]
pub(super) struct Footers {
    known: Mutex<VecDeque<(Identity, ParquetFooter)>>,
    memory: ParquetMemory,
}

/// What says that a file is the one that it was, and unchanged: path, device, number, length, and when anything of it was changed last.
type Identity = (String, u64, u64, u64, (i64, i64));

impl Footers {
    /// That of `file` at `path`, whose bytes `columns` gives.
    fn of<R: ChunkReader>(&self, path: &str, file: &Metadata, columns: &R) -> Result<ParquetFooter, ConnectError> {
        let identity = (path.to_string(), file.dev(), file.ino(), file.len(), (file.ctime(), file.ctime_nsec()));
        let known = || self.known.lock().expect("no panic while held");
        if let Some((_, footer)) = known().iter().find(|(of, _)| *of == identity) {
            return Ok(footer.clone());
        }
        let footer = ParquetFooter::of(Path::new(path), columns)?;
        let mut known = known();
        known.retain(|(of, _)| *of != identity);
        known.push_front((identity, footer.clone()));
        let mut bytes = 0;
        let kept = known.iter().take(FOOTERS).take_while(|(_, footer)| {
            bytes += footer.memory_bytes();
            bytes <= FOOTERS_BYTES
        });
        let kept = kept.count();
        known.truncate(kept);
        Ok(footer)
    }

    /// That of a local file that is not read now.
    fn at(&self, path: &str) -> Result<ParquetFooter, ConnectError> {
        let file = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
        let (meta, file) = file.map_err(|e| ConnectError::io(format!("opening '{path}'"), &e))?;
        self.of(path, &meta, &file)
    }

    /// How many rows a local file has, if its footer can be read.
    pub fn rows(&self, path: &str) -> Option<usize> {
        usize::try_from(self.at(path).ok()?.row_groups().iter().map(|(rows, _)| rows).sum::<u64>()).ok()
    }
}

/// Divides a file into pieces of about `bytes` compressed bytes, at its row groups; a local file with a row group that is larger
/// than a reader's share, of [`SHARE`] such pieces, into equal shares.
///
/// # Errors
/// The file cannot be read or is no Parquet file.
pub(super) fn pieces(path: &str, place: &Place, footers: &Footers, bytes: u64) -> Result<Vec<Piece>, ConnectError> {
    let footer = match place {
        Place::Local => footers.at(path)?,
        Place::Remote(store, object) => ParquetFooter::of(Path::new(path), &RemoteColumns::new(store.ranges(object)))?,
    };
    let groups = footer.row_groups();
    let share = bytes.saturating_mul(SHARE);
    let large = matches!(place, Place::Local) && groups.iter().any(|(_, group)| *group > share);
    Ok(if large && footer.passes_over_pages() { in_shares(&groups, share) } else { at_groups(&groups, bytes) })
}

/// Cuts those of some files' pieces that are left when all `readers` have had equally many, so that all have work to the end. Each cut
/// costs about a page of each column, so no part has fewer than [`CUT_BYTES_MIN`] bytes. `files` are path, bytes and pieces of each, in the
/// order in which they are read.
pub(super) fn even_out(files: &mut [(&str, u64, &mut Vec<Piece>)], readers: usize, footers: &Footers) {
    let mut left = files.iter().map(|(_, _, pieces)| pieces.len()).sum::<usize>() % readers.max(1);
    let parts = readers / gcd(left, readers).max(1);
    for (path, bytes, pieces) in files.iter_mut().rev() {
        let each = *bytes / pieces.len().max(1) as u64;
        let parts = parts.min(usize::try_from(each / CUT_BYTES_MIN).unwrap_or(usize::MAX));
        let cut = left.min(pieces.len());
        left -= cut;
        if cut > 0 && parts > 1 && footers.at(path).is_ok_and(|footer| footer.passes_over_pages()) {
            let last = pieces.split_off(pieces.len() - cut);
            pieces.extend(last.iter().flat_map(|piece| divided(piece, parts)));
        }
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The rows of a piece in equal parts.
fn divided(piece: &Piece, parts: usize) -> Vec<Piece> {
    let Piece::Rows(from, to) = piece else { return vec![piece.clone()] };
    let cut = |part: usize| from + (u128::from(to - from) * part as u128 / parts as u128) as u64;
    (0..parts).map(|part| (cut(part), cut(part + 1))).filter(|(from, to)| from < to).map(|(from, to)| Piece::Rows(from, to)).collect()
}

/// Divides a file into equal parts of about `share` bytes, within its row groups, too. Their pages are passed over by their heads,
/// but the dictionaries of a group and the pages that a cut goes through are decoded by both neighbours, so parts are large.
fn in_shares(groups: &[(u64, u64)], share: u64) -> Vec<Piece> {
    let total: u128 = groups.iter().map(|(_, group)| u128::from(*group)).sum();
    let parts = ((total + u128::from(share) / 2) / u128::from(share.max(1))).max(1);
    let (mut pieces, mut from, mut rows_before, mut bytes_before) = (Vec::new(), 0, 0, 0);
    for (rows, group) in groups {
        let (begin, end) = (bytes_before, bytes_before + u128::from(*group));
        // The cuts in this group: as if its rows were all of one length.
        for cut in (1..parts).map(|part| total * part / parts).filter(|cut| (begin..end).contains(cut)) {
            let row = rows_before + (u128::from(*rows) * (cut - begin) / (end - begin)) as u64;
            if row > from {
                pieces.push(Piece::Rows(from, row));
                from = row;
            }
        }
        (rows_before, bytes_before) = (rows_before + rows, end);
    }
    if rows_before > from {
        pieces.push(Piece::Rows(from, rows_before));
    }
    pieces
}

/// Divides a file of groups of rows (rows, bytes), at them, into pieces of about `bytes` bytes.
pub(super) fn at_groups(groups: &[(u64, u64)], bytes: u64) -> Vec<Piece> {
    let (mut from, mut to, mut size) = (0, 0, 0);
    let mut pieces = Vec::new();
    for (rows, group) in groups {
        to += rows;
        size += group;
        if size >= bytes && to > from {
            pieces.push(Piece::Rows(from, to));
            (from, size) = (to, 0);
        }
    }
    if to > from {
        pieces.push(Piece::Rows(from, to));
    }
    pieces
}

/// Opens a split. Row groups in which nothing is selected are left out.
///
/// # Errors
/// The file cannot be read, or lacks a column.
pub(super) fn open(
    place: &Place,
    info: &FileInfo,
    care: Care,
    piece: &Piece,
    split: &Split,
    (request, waker, selection): (&ReadRequest, Waker, Option<&Selection>),
    (path, footers): (&str, &Footers),
) -> Result<Box<dyn Reader>, ConnectError> {
    let (from, to) = match piece {
        Piece::Rows(from, to) => (*from, Some(*to)),
        Piece::Whole => (0, None),
        Piece::Bytes(..) => {
            return Err(ConnectError::new(format!(
                "the split '{}' is not one of a Parquet file; was the table's format changed?",
                split.id
            )));
        }
    };
    let start = match &split.position {
        None => from,
        Some(position) => {
            Position::deserialize(position)
                .map_err(|e| {
                    ConnectError::new(format!(
                        "the position {position} of split '{}' is not one of a Parquet file: {e}; was the table's format changed?",
                        split.id
                    ))
                })?
                .row
        }
    };
    let part = (start, to);
    let file = match place {
        Place::Local => {
            let opened = File::open(path).and_then(|file| Ok((file.metadata()?, LocalColumns::new(file, care)?)));
            let (meta, columns) = opened.map_err(|e| ConnectError::io(format!("opening '{path}'"), &e))?;
            let footer = footers.of(path, &meta, &columns)?;
            begin(path, (columns, footer, &footers.memory), request, part, selection)?
        }
        Place::Remote(store, object) => {
            let columns = RemoteColumns::new(store.ranges(object));
            let footer = ParquetFooter::of(Path::new(path), &columns)?;
            begin(path, (columns, footer, &footers.memory), request, part, selection)?
        }
    };
    let rows = file.rows();
    let end = to.unwrap_or(rows);
    if rows < start.max(end) {
        return Err(ConnectError::new(format!(
            "'{path}' has {rows} rows, but had at least {} before: it was replaced; put the file back, or start the job without its \
             checkpoint",
            start.max(end)
        )));
    }
    let constants = Constants::of(request, info)?;
    let decode = Box::new(ToEnd { file, next: start, end });
    let batches = Batches::of(place, path, decode, waker)?;
    Ok(numbered(batches, rows, start..end, info.size, constants))
}

/// Begins to read the rows from `start` on up to row `to`, and, where only some are selected, those of the row groups that may have
/// such.
fn begin<R: ParquetInput>(
    path: &str,
    file: (R, ParquetFooter, &ParquetMemory),
    request: &ReadRequest,
    (start, to): (u64, Option<u64>),
    selection: Option<&Selection>,
) -> Result<ParquetFileReader, ConnectError> {
    let wanted = (&request.physical, request.projection.as_slice());
    let part = start..to.unwrap_or(u64::MAX);
    let pick = |known: &parquet::Extents<'_>| selection.and_then(|selection| selection.wanted_parts(known));
    let pick = selection.map(|selection| (&**selection.columns(), &pick as parquet::Pick<'_>));
    Ok(ParquetFileReader::with_footer(Path::new(path), file, wanted, part, pick, BATCH_ROWS)?)
}

/// A reader whose position is the number of a row: `batches` are `part` of the `rows` rows of a file of `bytes` bytes.
pub(super) fn numbered(batches: Batches, rows: u64, part: Range<u64>, bytes: u64, constants: Constants) -> Box<dyn Reader> {
    Box::new(ParquetReader { batches, rows, next: part.start, end: part.end, bytes, constants })
}

/// Decodes up to a row, and reads nothing for those behind it.
struct ToEnd {
    file: ParquetFileReader,
    next: u64,
    end: u64,
}

impl Decode for ToEnd {
    fn decode(&mut self) -> Result<Option<RecordBatch>, ConnectError> {
        if self.next >= self.end {
            return Ok(None);
        }
        let Some(batch) = self.file.next()? else { return Ok(None) };
        let left = usize::try_from(self.end - self.next).unwrap_or(usize::MAX);
        self.next += batch.num_rows() as u64;
        Ok(Some(if batch.num_rows() > left { batch.slice(0, left) } else { batch }))
    }
}

/// Reads one split of a file that knows how many rows it has.
struct ParquetReader {
    batches: Batches,
    /// Rows of the whole file.
    rows: u64,
    /// The number of the next row.
    next: u64,
    /// The row to stop before.
    end: u64,
    /// Length of the file.
    bytes: u64,
    constants: Constants,
}

impl ParquetReader {
    /// The file's bytes up to a row, as if all rows were of one length.
    fn bytes_before(&self, row: u64) -> u64 {
        (u128::from(self.bytes) * u128::from(row) / u128::from(self.rows.max(1))) as u64
    }
}

impl Reader for ParquetReader {
    fn poll(&mut self, rows_max: usize) -> Result<Polled, ConnectError> {
        if self.next >= self.end {
            return Ok(Polled::End);
        }
        let left = usize::try_from(self.end - self.next).unwrap_or(usize::MAX);
        let (batch, arrival_ns) = match self.batches.next_rows(rows_max.min(left))? {
            Answer::Rows(batch, arrival_ns) => (batch, arrival_ns),
            Answer::Nothing => return Ok(Polled::Pending),
            Answer::End => return Ok(Polled::End),
        };
        let next = self.next + batch.num_rows() as u64;
        let bytes = self.bytes_before(next) - self.bytes_before(self.next);
        self.next = next;
        Ok(Polled::Rows(Rows::good(self.constants.append(batch)?, arrival_ns, bytes)))
    }

    fn position(&self) -> serde_json::Value {
        serde_json::json!(Position { row: self.next })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_divided_at_row_groups_or_into_shares() {
        let rows = |pieces: Vec<Piece>| -> Vec<(u64, u64)> {
            let pair = |piece| if let Piece::Rows(from, to) = piece { (from, to) } else { panic!("{piece:?}") };
            pieces.into_iter().map(pair).collect()
        };
        assert_eq!(rows(at_groups(&[(10, 5), (10, 5), (10, 5)], 10)), [(0, 20), (20, 30)]);
        // One group, two uneven ones, and a part that no row falls into.
        assert_eq!(rows(in_shares(&[(1000, 100)], 25)), [(0, 250), (250, 500), (500, 750), (750, 1000)]);
        assert_eq!(rows(in_shares(&[(500, 100), (500, 60)], 82)), [(0, 400), (400, 1000)]);
        assert_eq!(rows(in_shares(&[(2, 100)], 10)), [(0, 1), (1, 2)]);
        assert_eq!(rows(in_shares(&[(0, 0), (5, 9), (0, 0)], 100)), [(0, 5)]);
        assert_eq!(rows(in_shares(&[], 100)), []);
        for share in 1..200 {
            let all = rows(in_shares(&[(70, 33), (1, 90), (40, 41), (1000, 17)], share));
            assert_eq!((all[0].0, all[all.len() - 1].1), (0, 1111), "share {share}");
            assert!(all.windows(2).all(|pair| pair[0].1 == pair[1].0) && all.iter().all(|(from, to)| from < to), "share {share}: {all:?}");
        }
    }

    #[test]
    fn the_parts_of_a_piece_are_all_of_its_rows() {
        assert_eq!(divided(&Piece::Rows(10, 20), 2), [Piece::Rows(10, 15), Piece::Rows(15, 20)]);
        assert_eq!(divided(&Piece::Rows(7, 8), 4), [Piece::Rows(7, 8)], "a row is not cut");
        assert_eq!(divided(&Piece::Whole, 4), [Piece::Whole]);
    }
}
