//! SAS7BDAT and XPORT files. Decoding and encoding is the crate `sas`'s; here are options, splits, positions and the types
//! that a table declares.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::{CastOptions, can_cast_types, cast_with_options};
use arrow::datatypes::{DataType, Float64Type, Schema, SchemaRef};
use serde::{Deserialize, Serialize};
use tidemill_block::Block;
use tidemill_format::options::{OptionSet, RawOptions};
use tidemill_format::types::type_name;
use tidemill_format::{Encoder, FormatError, option_enum};
use tidemill_sas::{
    As, Charset, Column, Kind as SasKind, Pages, SasError, SasFile, SasRows, Wanted, XportEncoder, XportFile, XportVersion,
};
use tidemill_store::ObjectFile;

use super::batches::{Answer, BATCH_ROWS, Batches, Decode};
use super::cache::{self, Care, Residency};
use super::directory::Place;
use super::metadata::{Constants, FileInfo};
use super::page;
use super::ranges::Piece;
use super::sample::{first_file, options_of};
use crate::{ConnectError, Polled, ReadRequest, Reader, Rows, Selection, Split, Waker};

/// How far ahead of what is read the system is asked to fetch of a file that is not in its cache, bytes.
const AHEAD_BYTES: u64 = 4 << 20;

option_enum! {
    /// What becomes of missing numbers.
    pub enum MissingValues {
        /// They are NULL.
        Null = "null",
        /// In columns that the table declares as STRING they are what SAS shows: `.`, `._`, `.A` to `.Z`.
        Text = "text",
    }
}

option_enum! {
    /// Versions of XPORT.
    pub enum XportForm {
        /// Names of 8 letters, text of 200 bytes; what the FDA takes.
        V5 = "5",
        /// Names of 32 letters, text of 32,767 bytes.
        V8 = "8",
    }
}

tidemill_format::options! {
    /// Options of the formats `sas7bdat` and `xport`.
    pub struct SasOptions {
        /// What a missing number becomes: `null`, or `text`, which in columns that are declared as STRING gives what SAS
        /// shows of it (`.`, `._`, `.A` to `.Z`) beside the numbers. A blank text is NULL in any case.
        ours "sas.missing" => missing: MissingValues = MissingValues::Null;
        /// The character set of texts, such as `utf-8` or `windows-1252`. By default a SAS7BDAT file says it, and text in
        /// an XPORT file is UTF-8, or Windows-1252 where it cannot be that; UTF-8 is written.
        ours "sas.charset" => charset: Option<String>;
    }
}

tidemill_format::options! {
    /// Options of the format `xport`.
    pub struct XportOptions {
        /// The data set to read of files that have several; the name of the one that is written (`DATA` if none is given).
        ours "xport.member" => member: Option<String>;
        /// The version that is written, `5` or `8`; both are read.
        ours "xport.version" => version: XportForm = XportForm::V5;
        /// How many bytes a text takes up in every row that is written, since XPORT has no others: one number for all columns,
        /// others by name behind it, `200, city: 40, code: 3`. A longer text is an error.
        ours "xport.text-length" => text_length: String = "200";
        /// The label of the data set that is written, up to 40 letters.
        ours "xport.label" => label: Option<String>;
    }
}

/// Which of the formats, with its options.
#[derive(Clone, Debug)]
pub(super) enum SasFormat {
    Sas(SasOptions),
    Xport(SasOptions, XportOptions),
}

impl SasFormat {
    /// Takes the options of `sas7bdat` or `xport`.
    ///
    /// # Errors
    /// One of them is none, or there is no such character set.
    pub fn take(xport: bool, raw: &mut RawOptions) -> Result<Self, FormatError> {
        let sas = SasOptions::take(raw)?;
        charset(&sas).map_err(|e| FormatError::option(format!("{}: option 'sas.charset': {e}", raw.owner())))?;
        Ok(if xport { SasFormat::Xport(sas, XportOptions::take(raw)?) } else { SasFormat::Sas(sas) })
    }

    /// The format's name, for messages.
    pub fn name(&self) -> &'static str {
        match self {
            SasFormat::Sas(_) => "SAS7BDAT",
            SasFormat::Xport(..) => "XPORT",
        }
    }

    /// Text for an encoder of rows of `schema`.
    ///
    /// # Errors
    /// SAS7BDAT, which cannot be written; a column that XPORT cannot have.
    pub fn encoder(&self, schema: &Schema) -> Result<Box<dyn Encoder>, ConnectError> {
        match self {
            SasFormat::Sas(_) => Err(ConnectError::new(
                "SAS7BDAT files are read, not written: nobody but SAS knows for sure what makes one sound; write 'format' = 'xport', \
                 which SAS reads",
            )),
            SasFormat::Xport(sas, xport) => Ok(Box::new(Encoding(encoder(schema, sas, xport)?))),
        }
    }

    /// Whether readers leave out rows that are not selected. An XPORT file is read from its front, so little would be saved.
    pub fn selects(&self) -> bool {
        matches!(self, SasFormat::Sas(_))
    }

    fn missing(&self) -> MissingValues {
        let (SasFormat::Sas(options) | SasFormat::Xport(options, _)) = self;
        options.missing
    }
}

fn charset(options: &SasOptions) -> Result<Option<Charset>, SasError> {
    options.charset.as_deref().map(Charset::of_label).transpose()
}

/// A number for all columns, and others by name: `200, city: 40`.
fn lengths(text: &str) -> Result<(usize, BTreeMap<String, usize>), String> {
    let wrong = |part: &str| format!("'{part}' is neither a number of bytes nor one of a column, such as 'city: 40'");
    let (mut all, mut single) = (200, BTreeMap::new());
    for part in text.split(',').map(str::trim) {
        match part.rsplit_once(':') {
            None => all = part.parse().map_err(|_| wrong(part))?,
            Some((column, bytes)) => {
                single.insert(column.trim().to_string(), bytes.trim().parse().map_err(|_| wrong(part))?);
            }
        }
    }
    Ok((all, single))
}

fn encoder(schema: &Schema, sas: &SasOptions, xport: &XportOptions) -> Result<XportEncoder, ConnectError> {
    let said = |e: SasError| ConnectError::new(e.to_string());
    let (text_bytes, text_bytes_of) = lengths(&xport.text_length)
        .map_err(|why| ConnectError::new(format!("option 'xport.text-length' = '{}': {why}", xport.text_length)))?;
    let options = tidemill_sas::XportOptions {
        version: match xport.version {
            XportForm::V5 => XportVersion::V5,
            XportForm::V8 => XportVersion::V8,
        },
        member: xport.member.clone().unwrap_or_else(|| "DATA".to_string()),
        label: xport.label.clone().unwrap_or_default(),
        text_bytes,
        text_bytes_of,
        charset: charset(sas).map_err(said)?.unwrap_or(Charset::Guess),
    };
    XportEncoder::new(schema, options).map_err(said)
}

/// Writes XPORT as other text formats are written.
struct Encoding(XportEncoder);

impl Encoder for Encoding {
    fn begin(&mut self, out: &mut Vec<u8>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.0.begin(now.as_secs() as i64, out);
    }

    fn encode(&mut self, block: &Block, out: &mut Vec<u8>) -> Result<(), FormatError> {
        self.0.rows(&block.batch, out).map_err(|e| FormatError::data(e.to_string()))
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        self.0.end(out);
    }
}

/// A local file whose pages in the cache are looked after.
struct Local {
    file: File,
    size: u64,
    /// What the cache held when the file was opened.
    found: Residency,
    give_back: bool,
}

impl Pages for Local {
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let got = cache::timed(self.found.cold(), || self.file.read_at(buffer, at))?;
        let end = at + got as u64;
        cache::count_share(got as u64, self.found);
        if self.found.cached < self.found.bytes && end < self.size {
            page::fetch(&self.file, end, AHEAD_BYTES.min(self.size - end));
        }
        if self.give_back {
            page::give_back(&self.file, at, got as u64);
        }
        Ok(got)
    }

    fn size(&self) -> u64 {
        self.size
    }
}

/// An object in a bucket.
struct Remote(ObjectFile);

impl Pages for Remote {
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(at, buffer)
    }

    fn size(&self) -> u64 {
        self.0.size()
    }
}

fn pages(place: &Place, path: &str, care: Care) -> Result<Arc<dyn Pages>, ConnectError> {
    let failed = |e: io::Error| ConnectError::io(format!("opening '{path}'"), &e);
    Ok(match place {
        Place::Remote(store, object) => Arc::new(Remote(store.ranges(object))),
        Place::Local => {
            let file = File::open(path).map_err(failed)?;
            let size = file.metadata().map_err(failed)?.len();
            let found = care.found(&file, size);
            let give_back = care.give_back && found.cached < size / 2;
            Arc::new(Local { file, size, found, give_back })
        }
    })
}

/// An error with the file that it is about.
fn failed(path: &str, e: SasError) -> ConnectError {
    match e {
        SasError::Io(e) => ConnectError::io(format!("reading '{path}'"), &e),
        other => ConnectError::new(format!("reading '{path}': {other}")),
    }
}

fn open_sas(place: &Place, path: &str, care: Care, options: &SasOptions) -> Result<SasFile, ConnectError> {
    let charset = charset(options).map_err(|e| failed(path, e))?;
    SasFile::open_as(pages(place, path, care)?, charset).map_err(|e| failed(path, e))
}

fn open_xport(place: &Place, path: &str, care: Care, sas: &SasOptions, xport: &XportOptions) -> Result<XportFile, ConnectError> {
    let charset = charset(sas).map_err(|e| failed(path, e))?;
    XportFile::open(pages(place, path, care)?, xport.member.as_deref(), charset).map_err(|e| failed(path, e))
}

/// Divides a SAS7BDAT file into runs of pages of about `bytes` bytes, `from` and `to` of which are page numbers. Rows of an
/// XPORT file are read from its beginning on, since only then it is known where they end.
///
/// # Errors
/// The file cannot be read or is none of this format.
pub(super) fn pieces(format: &SasFormat, path: &str, place: &Place, size: u64, bytes: u64) -> Result<Vec<Piece>, ConnectError> {
    let SasFormat::Sas(options) = format else { return Ok(vec![Piece::Whole]) };
    let file = open_sas(place, path, Care::default(), options)?;
    let parts = usize::try_from(size.div_ceil(bytes.max(1))).unwrap_or(usize::MAX);
    Ok(file.splits(parts).into_iter().map(|part| Piece::Rows(part.start, part.end)).collect())
}

/// How many rows a local file has, if it says so.
pub(super) fn rows(format: &SasFormat, path: &str) -> Option<usize> {
    let SasFormat::Sas(options) = format else { return None };
    usize::try_from(open_sas(&Place::Local, path, Care::default(), options).ok()?.rows()).ok()
}

/// The columns of the first file that `path` means, which is what a table's `path` may be; `options` are those of such a
/// table, of which `store.…`, `sas.…` and `xport.…` matter.
///
/// # Errors
/// There is no such file, or it is none of this format.
pub fn schema_of(format: &str, path: &str, options: &BTreeMap<String, String>) -> Result<SchemaRef, ConnectError> {
    let mut raw = options_of(path, options, |key| key.starts_with("sas.") || key.starts_with("xport."));
    let format = SasFormat::take(format == "xport", &mut raw)?;
    let (name, place) = first_file(path, raw, format.name())?;
    Ok(match &format {
        SasFormat::Sas(options) => open_sas(&place, &name, Care::default(), options)?.schema(),
        SasFormat::Xport(sas, xport) => open_xport(&place, &name, Care::default(), sas, xport)?.schema(),
    })
}

/// Where a split stands.
#[derive(Serialize, Deserialize)]
struct Position {
    /// The number of the next row in the split, from 0.
    row: u64,
}

/// Opens a split. Rows of a SAS7BDAT file that are not selected are left out.
///
/// # Errors
/// The file cannot be read, or lacks a column.
pub(super) fn open(
    format: &SasFormat,
    place: &Place,
    (info, care): (&FileInfo, Care),
    piece: &Piece,
    split: &Split,
    (request, waker, selection): (&ReadRequest, Waker, Option<&Selection>),
    path: &str,
) -> Result<Box<dyn Reader>, ConnectError> {
    let changed =
        |what: String| ConnectError::new(format!("{what} is not one of a {} file; was the table's format changed?", format.name()));
    let next = match &split.position {
        None => 0,
        Some(position) => {
            Position::deserialize(position).map_err(|e| changed(format!("the position {position} of split '{}' ({e})", split.id)))?.row
        }
    };
    let passed = Arc::new(AtomicU64::new(0));
    let (rows, bytes, columns): (Box<dyn Iterator<Item = Result<RecordBatch, SasError>> + Send>, _, _) = match (format, piece) {
        (SasFormat::Sas(options), Piece::Whole | Piece::Rows(..)) => {
            let file = open_sas(place, path, care, options)?;
            let (columns, wanted) = wanted(file.columns(), request, format, path)?;
            let part = if let Piece::Rows(from, to) = piece { *from..*to } else { 0..file.pages() };
            let rows = file.read(part, next, &wanted, BATCH_ROWS).map_err(|e| failed(path, e))?;
            let rows = match selection {
                None => rows,
                Some(selection) => selected(rows, &file, (selection, passed.clone()), format, path)?,
            };
            (Box::new(rows), (info.size, file.rows()), columns)
        }
        (SasFormat::Xport(sas, xport), Piece::Whole) => {
            let file = open_xport(place, path, care, sas, xport)?;
            let (columns, wanted) = wanted(file.columns(), request, format, path)?;
            let rows = file.read(next, &wanted, BATCH_ROWS).map_err(|e| failed(path, e))?;
            (Box::new(rows), (file.row_bytes() as u64, 1), columns)
        }
        (_, Piece::Bytes(..) | Piece::Rows(..)) => return Err(changed(format!("the split '{}'", split.id))),
    };
    let schema = Arc::new(Schema::new(request.projection.iter().map(|i| request.physical.fields()[*i].clone()).collect::<Vec<_>>()));
    let decode = Box::new(Decoding { rows, schema, columns, path: path.to_string() });
    let constants = Constants::of(request, info)?;
    let batches = Batches::of(place, path, decode, waker)?;
    Ok(Box::new(SasReader { batches, next, passed, bytes, constants }))
}

/// The file's columns that are asked for, by name (in letters of either case, as in SAS), and as what each is read.
fn wanted(columns: &[Column], request: &ReadRequest, format: &SasFormat, path: &str) -> Result<(Vec<Column>, Vec<Wanted>), ConnectError> {
    let mut found = Vec::with_capacity(request.projection.len());
    let mut wanted = Vec::with_capacity(request.projection.len());
    for index in &request.projection {
        let field = &request.physical.fields()[*index];
        let same = columns.iter().position(|c| c.name == *field.name());
        let Some(column) = same.or_else(|| columns.iter().position(|c| c.name.eq_ignore_ascii_case(field.name()))) else {
            let names: Vec<_> = columns.iter().map(|c| c.name.as_str()).collect();
            return Err(ConnectError::new(format!("'{path}' has no column '{}'; it has: {}", field.name(), names.join(", "))));
        };
        let kind = columns[column].kind;
        let form = match field.data_type() {
            DataType::Utf8 if kind != SasKind::Text && format.missing() == MissingValues::Text => As::Text,
            to if to.is_numeric() && kind != SasKind::Text => As::Number,
            _ => As::Natural,
        };
        let (from, to) = (if form == As::Number { DataType::Float64 } else { kind.data_type() }, field.data_type());
        if from != *to && !can_cast_types(&from, to) {
            return Err(ConnectError::new(format!(
                "'{path}': column '{}' is {} in the file and cannot be read as {}",
                field.name(),
                type_name(&from),
                type_name(to)
            )));
        }
        found.push(columns[column].clone());
        wanted.push(Wanted { column, form });
    }
    Ok((found, wanted))
}

/// Leaves only rows that are selected, and counts the others.
fn selected(
    rows: SasRows,
    file: &SasFile,
    (selection, passed): (&Selection, Arc<AtomicU64>),
    format: &SasFormat,
    path: &str,
) -> Result<SasRows, ConnectError> {
    let (columns, wanted) = wanted(file.columns(), &ReadRequest::all(selection.columns().clone()), format, path)?;
    let selection = selection.clone();
    let choose = move |rows: &RecordBatch| -> Result<Option<BooleanArray>, SasError> {
        let rows = all_declared(rows, selection.columns(), &columns).map_err(SasError::data)?;
        let chosen = selection.wanted(&rows);
        if let Some(chosen) = &chosen {
            passed.fetch_add((chosen.len() - chosen.true_count()) as u64, Ordering::Relaxed);
        }
        Ok(chosen)
    };
    rows.choosing(&wanted, Box::new(choose)).map_err(|e| failed(path, e))
}

/// Decodes a file into the types that the table declares.
struct Decoding {
    rows: Box<dyn Iterator<Item = Result<RecordBatch, SasError>> + Send>,
    schema: SchemaRef,
    columns: Vec<Column>,
    path: String,
}

impl Decode for Decoding {
    fn decode(&mut self) -> Result<Option<RecordBatch>, ConnectError> {
        let Some(batch) = self.rows.next() else { return Ok(None) };
        let batch = batch.map_err(|e| failed(&self.path, e))?;
        let declared = all_declared(&batch, &self.schema, &self.columns);
        declared.map(Some).map_err(|what| ConnectError::new(format!("reading '{}': {what}", self.path)))
    }
}

/// Rows in the types that the table declares; `columns` are what the file calls them.
fn all_declared(batch: &RecordBatch, schema: &SchemaRef, columns: &[Column]) -> Result<RecordBatch, String> {
    let mut arrays = Vec::with_capacity(batch.num_columns());
    for ((array, field), column) in batch.columns().iter().zip(schema.fields()).zip(columns) {
        arrays.push(declared(array, field.data_type()).map_err(|what| format!("column '{}': {what}", column.name))?);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(schema.clone(), arrays, &options).map_err(|e| e.to_string())
}

/// A column in the type that the table declares. A number that is not whole is none for a whole-number type.
fn declared(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, String> {
    if array.data_type() == to {
        return Ok(array.clone());
    }
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let made = cast_with_options(array, to, &strict).map_err(|e| e.to_string())?;
    if *array.data_type() == DataType::Float64 && to.is_integer() {
        let back = cast_with_options(&made, &DataType::Float64, &strict).map_err(|e| e.to_string())?;
        let (values, whole) = (array.as_primitive::<Float64Type>(), back.as_primitive::<Float64Type>());
        if let Some(row) = (0..values.len()).find(|row| values.is_valid(*row) && values.value(*row) != whole.value(*row)) {
            return Err(format!("{} is no {}; declare it as DOUBLE or DECIMAL", values.value(row), type_name(to)));
        }
    }
    Ok(made)
}

/// Reads one split.
struct SasReader {
    batches: Batches,
    /// The number of the next row in the split.
    next: u64,
    /// Rows that were left out since the last poll; a thread that decodes may be ahead.
    passed: Arc<AtomicU64>,
    /// So many rows have so many bytes in the file: (bytes, rows).
    bytes: (u64, u64),
    constants: Constants,
}

impl SasReader {
    /// The file's bytes up to a row, as if all rows were of one length.
    fn bytes_before(&self, row: u64) -> u64 {
        let (bytes, rows) = self.bytes;
        (u128::from(bytes) * u128::from(row) / u128::from(rows.max(1))) as u64
    }
}

impl Reader for SasReader {
    fn poll(&mut self, rows_max: usize) -> Result<Polled, ConnectError> {
        let (batch, arrival_ns) = match self.batches.next_rows(rows_max)? {
            Answer::Rows(batch, arrival_ns) => (batch, arrival_ns),
            Answer::Nothing => return Ok(Polled::Pending),
            Answer::End => return Ok(Polled::End),
        };
        let next = self.next + batch.num_rows() as u64 + self.passed.swap(0, Ordering::Relaxed);
        let bytes = self.bytes_before(next) - self.bytes_before(self.next);
        self.next = next;
        Ok(Polled::Rows(Rows::good(self.constants.append(batch)?, arrival_ns, bytes)))
    }

    fn position(&self) -> serde_json::Value {
        serde_json::json!(Position { row: self.next })
    }
}
