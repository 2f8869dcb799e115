//! Reads an ORC file, or some of its rows. Decoding is the format's; the bytes come as Parquet's do ([`super::columns`]), a
//! stripe standing for a row group, and rows are counted in the same way.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use serde::Deserialize;
use tidemill_format::orc::{self, OrcFileReader, OrcInput};
use tidemill_format::parquet::{ChunkReader, Expected, Length, ParquetError, ParquetInput};
use tidemill_store::ObjectFile;

use super::batches::{BATCH_ROWS, Batches, Decode};
use super::cache::Care;
use super::columns::{LocalColumns, RemoteColumns};
use super::directory::Place;
use super::metadata::{Constants, FileInfo};
use super::parquet;
use super::ranges::Piece;
use super::sample::{first_file, options_of};
use crate::{ConnectError, ReadRequest, Reader, Split, Waker};

/// Where an ORC split stands.
#[derive(Deserialize)]
struct Position {
    /// The number of the next row in the file, from 0.
    row: u64,
}

/// What a column reader says, as the system says such things.
fn said(e: ParquetError) -> io::Error {
    match e {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(e) => *e,
            Err(other) => io::Error::other(other),
        },
        ParquetError::General(why) | ParquetError::EOF(why) => io::Error::other(why),
        other => io::Error::other(other.to_string()),
    }
}

fn whole(stripes: Vec<Vec<Range<u64>>>) -> Vec<Expected> {
    stripes.into_iter().map(|parts| Expected { parts, in_part: false }).collect()
}

impl OrcInput for LocalColumns {
    fn size(&self) -> u64 {
        self.len()
    }

    fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        self.get_bytes(range.start, (range.end - range.start) as usize).map_err(said)
    }

    fn expect(&self, stripes: Vec<Vec<Range<u64>>>) {
        ParquetInput::expect(self, whole(stripes));
    }
}

/// An object in a bucket.
struct Remote {
    columns: RemoteColumns,
    /// The same, for parts that are asked for at once.
    file: ObjectFile,
}

impl OrcInput for Remote {
    fn size(&self) -> u64 {
        self.columns.len()
    }

    fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        self.columns.get_bytes(range.start, (range.end - range.start) as usize).map_err(said)
    }

    fn read_all(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Bytes>> {
        Ok(self.file.read_ranges(ranges)?)
    }

    fn expect(&self, stripes: Vec<Vec<Range<u64>>>) {
        ParquetInput::expect(&self.columns, whole(stripes));
    }
}

fn input(place: &Place, path: &str, care: Care) -> Result<Box<dyn OrcInput>, ConnectError> {
    Ok(match place {
        Place::Local => {
            let columns = File::open(path).and_then(|file| LocalColumns::new(file, care));
            Box::new(columns.map_err(|e| ConnectError::io(format!("opening '{path}'"), &e))?)
        }
        Place::Remote(store, object) => {
            let file = store.ranges(object);
            Box::new(Remote { columns: RemoteColumns::new(file.clone()), file })
        }
    })
}

/// Divides a file at its stripes into pieces of about `bytes` compressed bytes.
///
/// # Errors
/// The file cannot be read or is no ORC file.
pub(super) fn pieces(path: &str, place: &Place, bytes: u64) -> Result<Vec<Piece>, ConnectError> {
    let stripes = orc::stripes_in(Path::new(path), &*input(place, path, Care::default())?)?;
    Ok(parquet::at_groups(&stripes, bytes))
}

/// How many rows a local file has, if its footer can be read.
pub(super) fn rows(path: &str) -> Option<usize> {
    let stripes = orc::stripes_in(Path::new(path), &*input(&Place::Local, path, Care::default()).ok()?).ok()?;
    usize::try_from(stripes.iter().map(|(rows, _)| rows).sum::<u64>()).ok()
}

/// The columns of the first file that `path` means, which is what a table's `path` may be; `options` are those of such a
/// table, of which `store.…` matter.
///
/// # Errors
/// There is no such file, or it is no ORC file, or has a column that tables cannot have.
pub fn schema_of(path: &str, options: &BTreeMap<String, String>) -> Result<SchemaRef, ConnectError> {
    let (name, place) = first_file(path, options_of(path, options, |_| false), "ORC")?;
    let input = input(&place, &name, Care::default())?;
    Ok(orc::schema_in(Path::new(&name), &*input)?)
}

/// Opens a split.
///
/// # Errors
/// The file cannot be read, or lacks a column.
pub(super) fn open(
    place: &Place,
    (info, care): (&FileInfo, Care),
    piece: &Piece,
    split: &Split,
    (request, waker): (&ReadRequest, Waker),
    path: &str,
) -> Result<Box<dyn Reader>, ConnectError> {
    let changed = |what: String| ConnectError::new(format!("{what} is not one of an ORC file; was the table's format changed?"));
    let (from, to) = match piece {
        Piece::Rows(from, to) => (*from, Some(*to)),
        Piece::Whole => (0, None),
        Piece::Bytes(..) => return Err(changed(format!("the split '{}'", split.id))),
    };
    let start = match &split.position {
        None => from,
        Some(position) => {
            Position::deserialize(position).map_err(|e| changed(format!("the position {position} of split '{}' ({e})", split.id)))?.row
        }
    };
    let wanted = start..to.unwrap_or(u64::MAX);
    let file = OrcFileReader::of(Path::new(path), input(place, path, care)?, &request.physical, &request.projection, wanted, BATCH_ROWS)?;
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
    let decode = Box::new(Stripes(file));
    let batches = Batches::of(place, path, decode, waker)?;
    Ok(parquet::numbered(batches, rows, start..end, info.size, constants))
}

struct Stripes(OrcFileReader);

impl Decode for Stripes {
    fn decode(&mut self) -> Result<Option<RecordBatch>, ConnectError> {
        Ok(self.0.next()?)
    }
}
