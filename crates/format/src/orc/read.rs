//! Reads ORC files. The crate `orc-rust` decodes stripes; here is which stripes and which bytes of them are read, and how
//! columns become what the table declares.
//!
//! A stripe's footer says where its streams lie. The decoder is asked twice for each stripe: once with a file that has
//! nothing but the footer and notes what is asked of it, so that all of it is known, and can be fetched, beforehand; and once
//! with the bytes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Cursor};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray, RecordBatch, RecordBatchOptions};
use arrow::compute::{CastOptions, can_cast_types, cast_with_options};
use arrow::datatypes::{
    ArrowTimestampType, DataType, Decimal128Type, Field, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType,
};
use bytes::Bytes;
use orc_rust::array_decoder::NaiveStripeDecoder;
use orc_rust::error::OrcError;
use orc_rust::projection::ProjectionMask;
use orc_rust::reader::ChunkReader;
use orc_rust::reader::metadata::{FileMetadata, read_metadata};
use orc_rust::schema::RootDataType;
use orc_rust::stripe::{Stripe, StripeMetadata};

use super::OrcInput;
use crate::FormatError;
use crate::types::{plain_field, type_name};

/// About what a batch holds at most, bytes, where rows are wide.
const BATCH_BYTES: u64 = 16 << 20;
/// But so many rows it always holds, if that many are asked for.
const BATCH_ROWS_MIN: usize = 256;
/// How much larger a stripe is taken to be unpacked.
const UNPACKED: u64 = 4;
/// What the decoder is asked for where a TIMESTAMP is not to be read in nanoseconds: it holds every moment of ORC's.
const MOMENT: DataType = DataType::Decimal128(38, 9);

/// Reads some rows of one file, in their order.
pub struct OrcFileReader {
    path: PathBuf,
    input: Box<dyn OrcInput>,
    metadata: FileMetadata,
    /// The columns that are read, in the order of the file.
    held: RootDataType,
    /// The types that they are decoded to.
    decoded: SchemaRef,
    /// The columns of the batches.
    schema: SchemaRef,
    /// For each column of `schema`, where it stands in `decoded`.
    sources: Vec<usize>,
    stripes: VecDeque<Planned>,
    open: Option<NaiveStripeDecoder>,
    /// Rows to pass over, in the stripe that is open or comes next.
    skip: u64,
    /// Rows of the file, and the next one.
    rows: u64,
    next: u64,
    end: u64,
    batch_rows: usize,
}

/// A stripe that will be read.
struct Planned {
    info: StripeMetadata,
    footer: Bytes,
}

impl OrcFileReader {
    /// Opens a file, whose bytes `input` gives and which messages call `path`, for the columns `projection` of the
    /// declared columns `physical`, which are found by name. Reads the rows `rows` (the first is 0; what lies behind the
    /// end of the file is left out), whole stripes around which are not touched, up to `batch_rows` at a time.
    ///
    /// # Errors
    /// The file cannot be read or is no ORC file; it lacks a column, or has it in a type that cannot become the declared one.
    pub fn of(
        path: &Path,
        input: Box<dyn OrcInput>,
        physical: &SchemaRef,
        projection: &[usize],
        rows: Range<u64>,
        batch_rows: usize,
    ) -> Result<Self, FormatError> {
        let metadata = footer(path, &*input)?;
        let file = natural(&metadata);
        let roots = projection.iter().map(|index| find(path, &file, &physical.fields()[*index])).collect::<Result<Vec<_>, _>>()?;
        // The decoder gives columns in the file's order, each once.
        let mut read = roots.clone();
        read.sort_unstable();
        read.dedup();
        let sources: Vec<usize> = roots.iter().map(|root| read.binary_search(root).expect("a column that is read")).collect();
        let schema: SchemaRef = Arc::new(Schema::new(projection.iter().map(|i| physical.fields()[*i].clone()).collect::<Vec<_>>()));
        let mut decoded: Vec<Field> = read.iter().map(|root| file.field(*root).clone()).collect();
        for (source, field) in sources.iter().zip(schema.fields()) {
            if let (DataType::Timestamp(..), DataType::Timestamp(unit, _)) = (decoded[*source].data_type(), field.data_type())
                && *unit != TimeUnit::Nanosecond
            {
                decoded[*source] = Field::new(field.name(), MOMENT, true);
            }
        }
        let root = metadata.root_data_type();
        let indices: Vec<usize> = read.iter().map(|column| root.children()[*column].data_type().column_index()).collect();
        let held = root.project(&ProjectionMask::roots(root, indices));

        let stripes = metadata.stripe_metadatas();
        let total = stripes.iter().fold(0u64, |sum, stripe| sum.saturating_add(stripe.number_of_rows()));
        let (next, end) = (rows.start.min(total), rows.end.min(total));
        let (mut first, mut skip, mut wanted) = (0u64, 0, Vec::new());
        for info in stripes {
            let behind = first.saturating_add(info.number_of_rows());
            if behind > next && first < end {
                if wanted.is_empty() {
                    skip = next - first;
                }
                wanted.push(info.clone());
            }
            first = behind;
        }
        let bytes: u64 = wanted.iter().map(StripeMetadata::data_length).fold(0, u64::saturating_add);
        let row = (bytes.saturating_mul(UNPACKED) / wanted.iter().map(StripeMetadata::number_of_rows).sum::<u64>().max(1)).max(1);
        let rows_max = usize::try_from(BATCH_BYTES / row).unwrap_or(usize::MAX).max(BATCH_ROWS_MIN);
        let mut reader = OrcFileReader {
            path: path.to_path_buf(),
            input,
            metadata,
            held,
            decoded: Arc::new(Schema::new(decoded)),
            schema,
            sources,
            stripes: VecDeque::new(),
            open: None,
            skip,
            rows: total,
            next,
            end,
            batch_rows: batch_rows.min(rows_max).max(1),
        };
        // Who wants no column only counts, which needs no stripe.
        if !projection.is_empty() {
            reader.plan(wanted)?;
        }
        Ok(reader)
    }

    /// How many rows the file has.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The next batch; `None` at the end. Never more rows than were asked for.
    ///
    /// # Errors
    /// The file is damaged, or a value does not fit into the declared type.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<RecordBatch>, FormatError> {
        let left = usize::try_from(self.end.saturating_sub(self.next)).unwrap_or(usize::MAX);
        if left == 0 {
            return Ok(None);
        }
        if self.sources.is_empty() {
            let options = RecordBatchOptions::new().with_row_count(Some(left.min(self.batch_rows)));
            let batch = RecordBatch::try_new_with_options(self.schema.clone(), Vec::new(), &options)?;
            self.next += batch.num_rows() as u64;
            return Ok(Some(batch));
        }
        loop {
            let place = format!("rows from {} on", self.next);
            let Some(decoder) = &mut self.open else {
                let Some(stripe) = self.stripes.pop_front() else {
                    let why = format!("{} rows are missing at its end", self.end - self.next);
                    return Err(failed(&self.path, &place, &why));
                };
                self.open = Some(self.decoder(&stripe).map_err(|why| failed(&self.path, &place, &why))?);
                continue;
            };
            let Some(batch) = guarded(|| decoder.next().transpose()).map_err(|why| failed(&self.path, &place, &why))? else {
                self.open = None;
                continue;
            };
            let rows = batch.num_rows() as u64;
            if self.skip >= rows {
                self.skip -= rows;
                continue;
            }
            let from = std::mem::take(&mut self.skip) as usize;
            let batch = batch.slice(from, (batch.num_rows() - from).min(left));
            let batch = self.declared(&batch).map_err(|why| failed(&self.path, &place, &why))?;
            self.next += batch.num_rows() as u64;
            return Ok(Some(batch));
        }
    }

    /// Reads the footers of stripes, and says which of their bytes will be wanted.
    fn plan(&mut self, wanted: Vec<StripeMetadata>) -> Result<(), FormatError> {
        let mut footers = Vec::with_capacity(wanted.len());
        for info in &wanted {
            let part = within(&*self.input, info.footer_offset(), info.footer_length());
            footers.push(part.map_err(|e| failed(&self.path, "cannot read the footers of its stripes", &e))?);
        }
        let footers = self.input.read_all(&footers).map_err(|e| failed(&self.path, "cannot read the footers of its stripes", &e))?;
        self.stripes = wanted.into_iter().zip(footers).map(|(info, footer)| Planned { info, footer }).collect();
        let mut parts = Vec::with_capacity(self.stripes.len());
        for stripe in &self.stripes {
            let mut file = Streams { stripe, input: None, wanted: RefCell::default(), size: self.input.size() };
            guarded(|| Stripe::new(&mut file, &self.metadata, &self.held, &stripe.info))
                .map_err(|why| failed(&self.path, "cannot read the footer of a stripe", &why))?;
            let mut joined: Vec<Range<u64>> = Vec::new();
            for part in file.wanted.into_inner() {
                match joined.last_mut() {
                    Some(last) if last.end == part.start => last.end = part.end,
                    _ => joined.push(part),
                }
            }
            parts.push(joined);
        }
        self.input.expect(parts);
        Ok(())
    }

    fn decoder(&self, stripe: &Planned) -> Result<NaiveStripeDecoder, String> {
        let mut file = Streams { stripe, input: Some(&*self.input), wanted: RefCell::default(), size: self.input.size() };
        guarded(|| {
            let stripe = Stripe::new(&mut file, &self.metadata, &self.held, &stripe.info)?;
            NaiveStripeDecoder::new(stripe, self.decoded.clone(), self.batch_rows)
        })
    }

    /// A batch in the types that are declared.
    fn declared(&self, batch: &RecordBatch) -> Result<RecordBatch, String> {
        let strict = CastOptions { safe: false, ..CastOptions::default() };
        let mut columns = Vec::with_capacity(self.sources.len());
        for (source, field) in self.sources.iter().zip(self.schema.fields()) {
            let (column, to) = (batch.column(*source), field.data_type());
            let made = match to {
                _ if column.data_type() == to => Ok(column.clone()),
                DataType::Timestamp(unit, zone) if *self.decoded.field(*source).data_type() == MOMENT => {
                    moments(column, *unit, zone.clone())
                }
                _ => cast_with_options(column, to, &strict).map_err(|e| e.to_string()),
            };
            columns.push(made.map_err(|why| format!("column '{}' as {}: {why}", field.name(), type_name(to)))?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options).map_err(|e| e.to_string())
    }
}

/// Nanoseconds as moments of a coarser unit; what is finer is cut off.
fn moments(column: &ArrayRef, unit: TimeUnit, zone: Option<Arc<str>>) -> Result<ArrayRef, String> {
    fn of<T: ArrowTimestampType>(column: &ArrayRef, nanos: i128, zone: Option<Arc<str>>) -> Result<ArrayRef, String> {
        let from = column.as_primitive::<Decimal128Type>();
        let values: Result<Vec<i64>, _> = from.values().iter().map(|v| i64::try_from(v.div_euclid(nanos))).collect();
        let values = values.map_err(|_| "a value lies too far away for it".to_string())?;
        Ok(Arc::new(PrimitiveArray::<T>::new(values.into(), from.nulls().cloned()).with_timezone_opt(zone)))
    }
    match unit {
        TimeUnit::Second => of::<TimestampSecondType>(column, 1_000_000_000, zone),
        TimeUnit::Millisecond => of::<TimestampMillisecondType>(column, 1_000_000, zone),
        TimeUnit::Microsecond => of::<TimestampMicrosecondType>(column, 1_000, zone),
        TimeUnit::Nanosecond => of::<TimestampNanosecondType>(column, 1, zone),
    }
}

/// A file as the decoder sees it while it opens a stripe.
struct Streams<'a> {
    stripe: &'a Planned,
    /// Where bytes come from. Without it nothing but the footer is there, and `wanted` notes what else is asked for.
    input: Option<&'a dyn OrcInput>,
    wanted: RefCell<Vec<Range<u64>>>,
    size: u64,
}

impl ChunkReader for Streams<'_> {
    type T = Cursor<Bytes>;

    fn len(&self) -> u64 {
        self.size
    }

    fn get_read(&self, from: u64) -> io::Result<Self::T> {
        Ok(Cursor::new(self.get_bytes(from, self.size.saturating_sub(from))?))
    }

    fn get_bytes(&self, from: u64, length: u64) -> io::Result<Bytes> {
        let info = &self.stripe.info;
        // Indexes stand in front; they are of use to who looks for values, which nobody does here.
        if length == 0 || from < info.offset().saturating_add(info.index_length()) {
            return Ok(Bytes::new());
        }
        if from == info.footer_offset() {
            return Ok(self.stripe.footer.clone());
        }
        let range = checked(from, length, self.size)?;
        match self.input {
            Some(input) => input.read(range),
            None => {
                self.wanted.borrow_mut().push(range);
                Ok(Bytes::new())
            }
        }
    }
}

/// The end of a file as the decoder sees it.
struct Tail<'a>(&'a dyn OrcInput);

impl ChunkReader for Tail<'_> {
    type T = Cursor<Bytes>;

    fn len(&self) -> u64 {
        self.0.size()
    }

    fn get_read(&self, from: u64) -> io::Result<Self::T> {
        Ok(Cursor::new(self.get_bytes(from, self.0.size().saturating_sub(from))?))
    }

    fn get_bytes(&self, from: u64, length: u64) -> io::Result<Bytes> {
        self.0.read(within(self.0, from, length)?)
    }
}

/// A part of a file, looked at before memory is taken for it.
fn within(input: &dyn OrcInput, from: u64, length: u64) -> io::Result<Range<u64>> {
    checked(from, length, input.size())
}

fn checked(from: u64, length: u64, size: u64) -> io::Result<Range<u64>> {
    let end = from.saturating_add(length);
    if end <= size {
        return Ok(from..end);
    }
    let why = format!("bytes {from} to {end} are wanted, but it has {size}: it was cut, or its footer lies");
    Err(io::Error::new(io::ErrorKind::UnexpectedEof, why))
}

/// Runs the decoder, which panics over some damaged files.
fn guarded<T>(run: impl FnOnce() -> Result<T, OrcError>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(done) => done.map_err(|e| said(&e)),
        Err(_) => Err("it is damaged in a way that the decoder of ORC has no words for".to_string()),
    }
}

/// What the decoder says, and what to do about it.
fn said(e: &OrcError) -> String {
    match e {
        OrcError::IoError { source, .. } => source.to_string(),
        OrcError::DecodeTimestamp { to_time_unit: TimeUnit::Nanosecond, .. } => {
            "a timestamp lies outside of the years 1677 to 2262, which TIMESTAMP(9) holds; declare its column as TIMESTAMP(6)".to_string()
        }
        other => other.to_string(),
    }
}

fn failed(path: &Path, what: &str, e: &dyn std::fmt::Display) -> FormatError {
    FormatError::data(format!("ORC file '{}': {what}: {e}", path.display()))
}

fn footer(path: &Path, input: &dyn OrcInput) -> Result<FileMetadata, FormatError> {
    guarded(|| read_metadata(&mut Tail(input))).map_err(|why| failed(path, "cannot read its footer", &why))
}

/// The columns of a file in the types that the decoder gives of itself.
fn natural(metadata: &FileMetadata) -> Schema {
    metadata.root_data_type().create_arrow_schema(&Default::default())
}

/// Whether there is a union in a type.
fn has_union(data_type: &DataType) -> bool {
    match data_type {
        DataType::Union(..) => true,
        DataType::List(item) | DataType::Map(item, _) => has_union(item.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_union(field.data_type())),
        _ => false,
    }
}

/// Where the file has a declared column.
fn find(path: &Path, file: &Schema, wanted: &Field) -> Result<usize, FormatError> {
    let shown = path.display();
    let Some(root) = file.fields().iter().position(|f| f.name() == wanted.name()) else {
        let names: Vec<_> = file.fields().iter().map(|f| f.name().as_str()).collect();
        return Err(FormatError::data(format!("ORC file '{shown}' has no column '{}'; it has: {}", wanted.name(), names.join(", "))));
    };
    let (from, to) = (file.field(root).data_type(), wanted.data_type());
    if has_union(from) {
        return Err(union(path, wanted.name()));
    }
    if from != to && !can_cast_types(from, to) {
        return Err(FormatError::data(format!(
            "ORC file '{shown}': column '{}' is {} in the file and cannot be read as {}",
            wanted.name(),
            type_name(from),
            type_name(to)
        )));
    }
    Ok(root)
}

fn union(path: &Path, column: &str) -> FormatError {
    FormatError::unsupported(format!(
        "ORC file '{}': column '{column}' is, or holds, a union of types, which SQL does not have; declare a table without it: columns \
         that are not declared are not read",
        path.display()
    ))
}

/// The schema of a file in the types that tables have (see [`crate::types::plain_type`]); `path` is its name in messages.
///
/// # Errors
/// The file cannot be read or is no ORC file; it has a column of a type that tables cannot have.
pub fn schema_in(path: &Path, input: &dyn OrcInput) -> Result<SchemaRef, FormatError> {
    let file = natural(&footer(path, input)?);
    if let Some(field) = file.fields().iter().find(|field| has_union(field.data_type())) {
        return Err(union(path, field.name()));
    }
    Ok(Arc::new(Schema::new(file.fields().iter().map(plain_field).collect::<Vec<_>>())))
}

/// The stripes of a file: rows, and compressed bytes. What a file is best divided by.
///
/// # Errors
/// The file cannot be read or is no ORC file.
pub fn stripes_in(path: &Path, input: &dyn OrcInput) -> Result<Vec<(u64, u64)>, FormatError> {
    let metadata = footer(path, input)?;
    Ok(metadata.stripe_metadatas().iter().map(|stripe| (stripe.number_of_rows(), stripe.data_length())).collect())
}
