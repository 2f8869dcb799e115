//! What a file says of its columns, wherever it lies, for those who want to know before they declare a table: here how the
//! first file of a path is found, and Parquet's columns; those of other formats are found where they are read. Of text one
//! reads the first lines, as any table of it does.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use arrow::datatypes::SchemaRef;
use tidemill_format::options::{OptionSet, RawOptions};
use tidemill_format::parquet;
use tidemill_store::StoreOptions;

use super::cache::Care;
use super::columns::{LocalColumns, RemoteColumns};
use super::directory::Place;
use super::listing::{Kind, Listing};
use super::path::Location;
use super::pipe::{self, Purpose};
use crate::ConnectError;

/// What files begin with that are no text, and what to do about them where they come through a pipe.
const NO_TEXT: [(&[u8], &str); 10] = [
    (b"PAR1\x15", "is a Parquet file, which is read from its end; write it into a file first"),
    (b"Obj\x01", "is an Avro file; write it into a file first"),
    (b"ARROW1", "is an Arrow file; declare its columns by CREATE TABLE, or write it into a file first"),
    (b"PK\x03\x04", "is a zip: 'source.archive' = 'zip' reads the text in it; a workbook must be written into a file first"),
    (b"\x1f\x8b", "is compressed: compression = 'gzip' says so"),
    (b"\x28\xb5\x2f\xfd", "is compressed: compression = 'zstd' says so"),
    (b"\xfd7zXZ", "is compressed: compression = 'xz' says so"),
    (b"\x04\x22\x4d\x18", "is compressed: compression = 'lz4' says so"),
    (b"\xff\xfe", "is text in UTF-16: encoding = 'UTF-16' says so"),
    (b"\xfe\xff", "is text in UTF-16: encoding = 'UTF-16' says so"),
];
/// No such beginning is longer, bytes.
const BEGINNING_BYTES: u64 = 8;

/// Those of a table's options that matter before it is declared: `store.…`, and the `others`.
pub(super) fn options_of(path: &str, options: &BTreeMap<String, String>, others: impl Fn(&str) -> bool) -> RawOptions {
    let matter = options.iter().filter(|(key, _)| key.starts_with("store.") || others(key));
    RawOptions::new(format!("'{path}'"), matter.map(|(key, value)| (key.clone(), value.clone())))
}

/// The first file that `path` means, which is what a table's `path` may be, and where it lies. `raw` are the options that
/// [`options_of`] gave, those of the format taken; `format` is its name in messages.
///
/// # Errors
/// There is no such file; it is a pipe, unless of Arrow; an option is wrong.
pub(super) fn first_file(path: &str, mut raw: RawOptions, format: &str) -> Result<(String, Place), ConnectError> {
    let store = StoreOptions::take(&mut raw)?;
    raw.finish()?;
    store.check().map_err(|e| ConnectError::new(e.to_string()))?;
    let listing = Listing::new(Location::parse(path, None)?, None, store);
    let Some(item) = listing.items(false)?.into_iter().find(|item| item.kind == Kind::Plain) else {
        return Err(ConnectError::new(format!("there is no {format} file in '{path}'; those in archives cannot be read, unpack them")));
    };
    let place = listing.place(&item.path)?;
    // Of Arrow's streams it is said what can be done with them.
    if matches!(place, Place::Local) && format != "Arrow" && !fs::metadata(&item.path).is_ok_and(|meta| meta.is_file()) {
        return Err(pipe::not_a_file(&item.path, format));
    }
    Ok((item.path, place))
}

/// The columns of the first Parquet file that `path` means; `options` are those of its table, of which `store.…` matter.
///
/// # Errors
/// There is no such file, or it is no Parquet file.
pub fn parquet_schema(path: &str, options: &BTreeMap<String, String>) -> Result<SchemaRef, ConnectError> {
    let (name, place) = first_file(path, options_of(path, options, |_| false), "Parquet")?;
    let file = Path::new(&name);
    Ok(match place {
        Place::Local => {
            let columns = File::open(file).and_then(|file| LocalColumns::new(file, Care::default()));
            parquet::schema_in(file, &columns.map_err(|e| ConnectError::io(format!("opening '{name}'"), &e))?)?
        }
        Place::Remote(store, object) => parquet::schema_in(file, &RemoteColumns::new(store.ranges(&object)))?,
    })
}

/// Whether there is a pipe at `path`, or at what stands before the members that it chooses of an archive.
pub fn is_pipe(path: &str) -> bool {
    let path = path.strip_prefix("file://").unwrap_or(path);
    [Some(path), path.split_once("//").map(|(archive, _)| archive)].into_iter().flatten().any(|path| pipe::at(path).is_some())
}

/// The first `bytes` bytes of what comes through the pipe at `path`, or all of it if that is less; `None` if something else lies there.
///
/// # Errors
/// The pipe cannot be read.
pub fn pipe_beginning(path: &str, bytes: u64) -> Result<Option<Vec<u8>>, ConnectError> {
    let path = path.strip_prefix("file://").unwrap_or(path);
    let Ok(meta) = fs::metadata(path) else { return Ok(None) };
    if meta.is_file() || meta.is_dir() {
        return Ok(None);
    }
    let mut begin = Vec::new();
    let read = pipe::open(path, &meta, Purpose::Look)?.take(bytes).read_to_end(&mut begin);
    read.map_err(|e| ConnectError::io(format!("reading '{path}'"), &e))?;
    Ok(Some(begin))
}

/// Looks whether what comes through the pipe at `path` may be text. What else lies there is not looked at.
///
/// # Errors
/// It is something else, and what to do about that; the pipe cannot be read.
pub fn check_pipe(path: &str) -> Result<(), ConnectError> {
    let Some(begin) = pipe_beginning(path, BEGINNING_BYTES)? else { return Ok(()) };
    let path = path.strip_prefix("file://").unwrap_or(path);
    if begin.is_empty() {
        let why = "nothing comes through the pipe, which can be read once; what is needed again must be written into a file first";
        return Err(ConnectError::new(format!("'{path}': {why}")));
    }
    match NO_TEXT.iter().find(|(known, _)| begin.starts_with(known)) {
        Some((_, what)) => Err(ConnectError::new(format!("what comes through '{path}' {what}"))),
        None => Ok(()),
    }
}
