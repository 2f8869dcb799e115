//! Parquet files: a reader that gives batches of the declared types and can begin at any row, a
//! writer, and the schema that a file carries. How a file is stored says `describe`.

mod bloom;
mod check;
mod describe;
mod extent;
mod memory;
mod pages;
#[cfg(test)]
mod tests;
mod texts;
mod thrift;
mod views;

pub use describe::{ParquetColumn, ParquetGroup, ParquetShape, shape_of};
pub use extent::{Extent, Extents, Filters};
#[doc(hidden)]
pub use views::texts_of_page;

use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, StringArray, UInt32Array};
use arrow::compute::{CastOptions, can_cast_types, cast_with_options, take_record_batch};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use bytes::Bytes;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, RowSelection, RowSelector};
use parquet::arrow::{ArrowWriter, ProjectionMask, parquet_to_arrow_field_levels};
use parquet::basic::{Compression, ConvertedType, Encoding, GzipLevel, Type as PhysicalType, ZstdLevel};
use parquet::file::metadata::{ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::file::statistics::Statistics;
use parquet::schema::types::{ColumnPath, SchemaDescriptor, Type};

pub use parquet::errors::ParquetError;
pub use parquet::file::reader::{ChunkReader, Length};

use self::bloom::Blooms;
use self::check::Checked;
use self::memory::{Groups, Left, Taken};
use self::views::Views;
use crate::options::ByteSize;
use crate::types::{plain_field, type_name};
use crate::{FormatError, bytes_of, option_enum, options};

option_enum! {
    /// How the pages of a file are compressed.
    pub enum ParquetCompression {
        /// Snappy.
        Snappy = "snappy",
        /// Zstandard, level 3.
        Zstd = "zstd",
        /// gzip, level 6.
        Gzip = "gzip",
        /// Not at all.
        None = "none",
    }
}

options! {
    /// Options of the `parquet` format. They matter for writing only.
    pub struct ParquetOptions {
        /// How pages are compressed.
        flink "parquet.compression" => compression: ParquetCompression = ParquetCompression::Snappy;
        /// The most rows that a row group gets.
        ours "parquet.row-group.rows" => row_group_rows: usize = 1_048_576usize;
        /// The size at which a row group is closed: bytes of its rows, neither encoded nor compressed. A writer holds the group
        /// encoded and compressed, and up to 2 MB for each of its columns; where a table is divided into directories, each of
        /// which has a writer, groups are closed at 16 MB.
        flink "parquet.block.size" => row_group_bytes: ByteSize = ByteSize(128 << 20);
        /// Columns, with commas between them, that get a Bloom filter in each row group: by it a reader that looks for
        /// single values (`=`, `IN`) passes over row groups that have none of them. For columns of many different values
        /// in no order. While a row group is written, each filter holds up to 2 MB.
        ours "parquet.bloom-filter-columns" => bloom_filter_columns: Option<String>;
    }
}

/// Of a hundred values that are not in a row group one seems to be there.
const FILTER_MISTAKES: f64 = 0.01;
/// Filters are made for no more different values a row group, lest they take much memory; more of them are mistaken more often.
const FILTER_VALUES_MAX: usize = 1 << 20;

/// About what a batch holds at most, bytes, where rows are wide: what does not stay in a processor's cache until it is used is written to
/// memory and read again.
const BATCH_BYTES: i64 = 4 << 20;
/// The same where the library makes views of texts, as of pages with dictionaries. Those of a page that ends in a later batch are looked for
/// once more when it has left the cache, one behind the other, since each begins where the one before ends. The texts themselves are not
/// looked at for that, and pages stay in memory until a batch is gone.
const VIEWED_BYTES: i64 = 24 << 20;
/// But so many rows it always holds, if that many are asked for: each batch costs a little for each column.
const BATCH_ROWS_MIN: usize = 256;

/// Parts of a file that are asked for at once may come together where no more bytes than this lie between them: those come, too.
pub const PARTS_GAP_MAX: u64 = 64 << 10;

/// The bytes of a file that need not be a local one.
pub trait ParquetInput: ChunkReader + 'static {
    /// Says which parts will be read, row group after row group, each time all of a group's before those of the next:
    /// what lies far away is best fetched so. Called before anything but the footer is read.
    fn expect(&self, _groups: Vec<Expected>) {}

    /// The bytes of some parts, in their order: of what lies far away all are best asked for at once, with no more between them than
    /// [`PARTS_GAP_MAX`].
    ///
    /// # Errors
    /// One of them cannot be read.
    fn read_parts(&self, parts: &[Range<u64>]) -> Result<Vec<Bytes>, ParquetError> {
        parts.iter().map(|part| self.get_bytes(part.start, (part.end - part.start) as usize)).collect()
    }
}

/// What will be read of a row group.
pub struct Expected {
    /// Its columns, in the order of the file.
    pub parts: Vec<Range<u64>>,
    /// Whether only some of its rows are wanted, and so some of the bytes of each column.
    pub in_part: bool,
}

impl ParquetInput for File {}

/// Answers for each of some row groups, or of some runs of rows in one, whether there may be something wanted in it; `None` if that cannot
/// be told.
pub type Pick<'a> = &'a dyn Fn(&Extents<'_>) -> Option<Vec<bool>>;

/// What is wanted of a row group.
struct Wanted {
    number: usize,
    rows: u64,
    /// Rows, counted from the group's first: runs in their order, between which there are others.
    wanted: Vec<Range<u64>>,
}

impl Wanted {
    fn in_part(&self) -> bool {
        !matches!(self.wanted.as_slice(), [all] if *all == (0..self.rows))
    }

    fn selectors(&self) -> Vec<RowSelector> {
        let (mut selectors, mut at) = (Vec::with_capacity(2 * self.wanted.len() + 1), 0);
        for Range { start, end } in &self.wanted {
            selectors.extend([RowSelector::skip((start - at) as usize), RowSelector::select((end - start) as usize)]);
            at = *end;
        }
        selectors.push(RowSelector::skip((self.rows - at) as usize));
        selectors
    }

    /// Of runs of rows, which follow each other, only those are wanted any more for which it is true.
    fn keep(&mut self, runs: &[Range<u64>], wanted: &[bool]) {
        let mut kept: Vec<Range<u64>> = Vec::with_capacity(runs.len());
        for (run, _) in runs.iter().zip(wanted).filter(|(_, wanted)| **wanted) {
            for part in &self.wanted {
                let (start, end) = (run.start.max(part.start), run.end.min(part.end));
                match kept.last_mut() {
                    _ if start >= end => {}
                    Some(last) if last.end == start => last.end = end,
                    _ => kept.push(start..end),
                }
            }
        }
        self.wanted = kept;
    }
}

/// Leaves of row groups those of which it is not answered, by their numbers, that nothing is wanted of them.
fn leave(groups: &mut Vec<Wanted>, answer: impl FnOnce(&[usize]) -> Option<Vec<bool>>) {
    let numbers: Vec<usize> = groups.iter().map(|group| group.number).collect();
    if let Some(answers) = answer(&numbers).filter(|answers| answers.len() == numbers.len()) {
        let mut answers = answers.into_iter();
        groups.retain(|_| answers.next().unwrap_or(true));
    }
}

/// Memory for pages while they are decoded: with what one reader leaves another goes on, of the same file or another. Up to 64 MB that
/// nobody uses are kept for the next ones, and for each that is at work.
#[derive(Debug, Default)]
pub struct ParquetMemory(Arc<Left>);

/// Where a column comes from.
#[derive(Clone, Copy)]
enum Source {
    /// The library: its number in the batches.
    Library(usize),
    /// One of the readers of [`views`].
    Views(usize),
}

/// Reads one file, in the order of its rows.
pub struct ParquetFileReader {
    path: PathBuf,
    schema: SchemaRef,
    /// For each column of `schema`, where it comes from.
    sources: Vec<Source>,
    /// Those of the library's columns whose texts are not known to be UTF-8.
    unchecked: Vec<usize>,
    /// The columns that the library decodes.
    batches: ParquetRecordBatchReader,
    /// Those that are decoded here.
    views: Vec<Views>,
    /// Goes back when the reader is done.
    _memory: Taken,
    rows: u64,
    rows_read: u64,
}

impl ParquetFileReader {
    /// Opens `path` for the columns `projection` of the declared columns `physical`, which are
    /// found in the file by name. Begins at row `start_row` (0 is the first; whole row groups in
    /// front of it are not read) and gives up to `batch_rows` rows at a time.
    ///
    /// # Errors
    /// The file cannot be read, lacks a column or has it in a type that cannot become the declared
    /// one.
    pub fn open(path: &Path, physical: &SchemaRef, projection: &[usize], start_row: u64, batch_rows: usize) -> Result<Self, FormatError> {
        ParquetFileReader::of(path, open(path)?, physical, projection, start_row, batch_rows)
    }

    /// As [`ParquetFileReader::open`], of a file whose bytes `input` gives; `path` is its name in messages.
    ///
    /// # Errors
    /// As [`ParquetFileReader::open`].
    pub fn of<R: ParquetInput>(
        path: &Path,
        input: R,
        physical: &SchemaRef,
        projection: &[usize],
        start_row: u64,
        batch_rows: usize,
    ) -> Result<Self, FormatError> {
        ParquetFileReader::of_rows(path, input, (physical, projection), start_row..u64::MAX, None, batch_rows)
    }

    /// Opens a file for the columns `projection` of `physical`, and of the rows `part` only for those in row groups that `pick`
    /// takes: it gets what the file says of their columns `asked`, first by their least and greatest values, then with the Bloom
    /// filters of those that are left, then for each of those runs of its rows by the page index, and answers for each whether there may
    /// be something wanted in it, or `None` if it cannot tell. [`ParquetFileReader::rows_read`] counts only what was read.
    ///
    /// # Errors
    /// As [`ParquetFileReader::open`].
    pub fn of_rows<R: ParquetInput>(
        path: &Path,
        input: R,
        (physical, projection): (&SchemaRef, &[usize]),
        part: Range<u64>,
        pick: Option<(&Schema, Pick<'_>)>,
        batch_rows: usize,
    ) -> Result<Self, FormatError> {
        let (footer, memory) = (ParquetFooter::of(path, &input)?, ParquetMemory::default());
        ParquetFileReader::with_footer(path, (input, footer, &memory), (physical, projection), part, pick, batch_rows)
    }

    /// As [`ParquetFileReader::of_rows`], of a file whose footer was read before; with memory that other readers have left.
    ///
    /// # Errors
    /// As [`ParquetFileReader::open`].
    pub fn with_footer<R: ParquetInput>(
        path: &Path,
        (input, footer, memory): (R, ParquetFooter, &ParquetMemory),
        (physical, projection): (&SchemaRef, &[usize]),
        part: Range<u64>,
        pick: Option<(&Schema, Pick<'_>)>,
        batch_rows: usize,
    ) -> Result<Self, FormatError> {
        let ParquetFooter(mut metadata) = footer;
        let (mut begin, mut groups) = (0, Vec::new());
        for (number, group) in metadata.metadata().row_groups().iter().enumerate() {
            let rows = group.num_rows().max(0) as u64;
            let wanted = part.start.max(begin) - begin..part.end.min(begin + rows).saturating_sub(begin);
            if wanted.start < wanted.end {
                groups.push(Wanted { number, rows, wanted: vec![wanted] });
            }
            begin += rows;
        }
        if let Some((asked, pick)) = pick {
            leave(&mut groups, |numbers| pick(&extent::extents(&metadata, numbers, asked, None)));
            // Filters have to be read, so they are asked about those that are left.
            leave(&mut groups, |numbers| {
                let blooms = Blooms { input: &input, metadata: &metadata, groups: numbers, asked };
                blooms.any().then(|| pick(&extent::extents(&metadata, numbers, asked, Some(&blooms)))).flatten()
            });
        }
        let index = || with_index(&metadata, &input);
        let mut indexed = None;
        if let Some((asked, pick)) = pick {
            let numbers: Vec<usize> = groups.iter().map(|group| group.number).collect();
            // Of an index that cannot be read nothing is known.
            if pages::may_tell(&metadata, &numbers, asked, input.len())
                && let Ok(more) = index()
            {
                for group in &mut groups {
                    if let Some((runs, known)) = pages::runs(&more, group.number, asked)
                        && let Some(answers) = pick(&known).filter(|answers| answers.len() == runs.len())
                    {
                        group.keep(&runs, &answers);
                    }
                }
                groups.retain(|group| !group.wanted.is_empty());
                indexed = Some(more);
            }
        }
        // The page index lets whole pages be passed over. Without one that is sound this is done by their heads.
        if groups.iter().any(Wanted::in_part)
            && let Some(indexed) = indexed.or_else(|| index().ok())
            && groups.iter().all(|group| pages::is_sound(indexed.metadata(), group.number, group.rows) == Some(true))
        {
            metadata = indexed;
        }
        let before = if pick.is_none() { part.start } else { 0 };
        let reader = ParquetFileReader::build(path, (input, metadata, memory), (physical, projection), &groups, batch_rows)?;
        Ok(ParquetFileReader { rows_read: before.min(reader.rows), ..reader })
    }

    /// A reader of some rows.
    fn build<R: ParquetInput>(
        path: &Path,
        (input, metadata, memory): (R, ArrowReaderMetadata, &ParquetMemory),
        (physical, projection): (&SchemaRef, &[usize]),
        groups: &[Wanted],
        batch_rows: usize,
    ) -> Result<Self, FormatError> {
        let held = metadata.schema().clone();
        let mut roots = Vec::with_capacity(projection.len());
        for index in projection {
            roots.push(find(path, &held, physical, *index)?);
        }
        let numbers: Vec<usize> = groups.iter().map(|group| group.number).collect();
        let columns = projection.iter().map(|index| physical.field(*index)).zip(roots.iter().copied());
        let ReadAs { fields, views, plain, unchecked } = ReadAs::of(&metadata, &numbers, columns);
        // The library gives columns in the file's order, each once.
        let (mut read, mut own) = (roots.clone(), Vec::new());
        read.sort_unstable();
        read.dedup();
        let all_groups = metadata.metadata().row_groups();
        let mask = ProjectionMask::roots(metadata.parquet_schema(), read.clone());
        let expected = |group: &Wanted| Expected { parts: wanted(&all_groups[group.number], &mask), in_part: group.in_part() };
        input.expect(groups.iter().map(expected).collect());
        let all_bytes = bytes_in(all_groups, |leaf| mask.leaf_included(leaf));
        // The library's views are worth it where they are most of what is decoded.
        let mut theirs = vec![false; metadata.parquet_schema().num_columns()];
        views.iter().for_each(|leaf| theirs[*leaf] = true);
        plain.iter().for_each(|(leaf, _)| theirs[*leaf] = false);
        let theirs = bytes_in(all_groups, |leaf| theirs[leaf]);
        let batch_bytes = if theirs > all_bytes / 2 { VIEWED_BYTES } else { BATCH_BYTES };
        let rows: u64 = all_groups.iter().map(|group| group.num_rows().max(0) as u64).sum();
        let row_bytes = (all_bytes / i64::try_from(rows).unwrap_or(i64::MAX).max(1)).max(1);
        let rows_max = usize::try_from(batch_bytes / row_bytes).unwrap_or(1).max(BATCH_ROWS_MIN);
        read.retain(|root| match plain.iter().find(|(_, of)| of == root) {
            Some((leaf, root)) => {
                own.push((*leaf, *root));
                false
            }
            None => true,
        });
        let source = |root: &usize| match own.iter().position(|(_, of)| of == root) {
            Some(views) => Source::Views(views),
            None => Source::Library(read.binary_search(root).expect("a column that is read")),
        };
        let sources = roots.iter().map(source).collect();
        let unchecked = unchecked.iter().filter_map(|root| read.binary_search(root).ok()).collect();
        let batch_rows = batch_rows.min(rows_max).min(rows as usize).max(1);
        let selected: Option<Vec<RowSelector>> =
            groups.iter().any(Wanted::in_part).then(|| groups.iter().flat_map(Wanted::selectors).collect());
        let mask = ProjectionMask::roots(metadata.parquet_schema(), read);
        let memory = Left::take(&memory.0);
        let begun = with_bytes(metadata.parquet_schema(), &views)
            .and_then(|schema| parquet_to_arrow_field_levels(&schema, mask, Some(&fields.into())))
            .and_then(|levels| {
                let groups = Groups::new(input, metadata.metadata().clone(), numbers, views.into(), memory.memory.clone());
                let own = own.iter().map(|(leaf, _)| Views::new(&groups, *leaf, selected.as_deref())).collect::<Result<Vec<_>, _>>()?;
                let selected = selected.map(RowSelection::from);
                Ok((ParquetRecordBatchReader::try_new_with_row_groups(&levels, &groups, batch_rows, selected)?, own))
            });
        let (batches, views) = begun.map_err(|e| failed(path, "cannot begin to read it", &e))?;
        let schema = Arc::new(Schema::new(projection.iter().map(|i| physical.fields()[*i].clone()).collect::<Vec<_>>()));
        Ok(ParquetFileReader { path: path.to_path_buf(), schema, sources, unchecked, batches, views, _memory: memory, rows, rows_read: 0 })
    }

    /// The schema of the batches.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// How many rows the file has.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The number of the row that comes next; given to [`ParquetFileReader::open`] as `start_row`
    /// it continues exactly there.
    pub fn rows_read(&self) -> u64 {
        self.rows_read
    }

    /// The next batch; `None` at the end.
    ///
    /// # Errors
    /// The file is damaged, or a value does not fit into the declared type.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<RecordBatch>, FormatError> {
        let Some(batch) = self.batches.next() else { return Ok(None) };
        let place = || format!("rows from {} on", self.rows_read);
        let batch = batch.map_err(|e| failed(&self.path, &place(), &e))?;
        let strict = CastOptions { safe: false, ..CastOptions::default() };
        let views = self.views.iter_mut().map(|views| Ok(Arc::new(views.next(batch.num_rows())?) as ArrayRef));
        let views = views.collect::<Result<Vec<_>, ParquetError>>().map_err(|e| failed(&self.path, &place(), &e))?;
        let mut columns = Vec::with_capacity(self.sources.len());
        for (source, field) in self.sources.iter().zip(self.schema.fields()) {
            let wrong = |e: ArrowError| {
                let what = format!("{}, column '{}' as {}", place(), field.name(), type_name(field.data_type()));
                failed(&self.path, &what, &e)
            };
            let column = match source {
                Source::Library(number) if self.unchecked.contains(number) => checked(batch.column(*number)).map_err(wrong)?,
                Source::Library(number) => batch.column(*number).clone(),
                Source::Views(number) => views[*number].clone(),
            };
            columns.push(if column.data_type() == field.data_type() {
                column
            } else {
                cast_with_options(&column, field.data_type(), &strict).map_err(wrong)?
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let out =
            RecordBatch::try_new_with_options(self.schema.clone(), columns, &options).map_err(|e| failed(&self.path, &place(), &e))?;
        self.rows_read += out.num_rows() as u64;
        Ok(Some(out))
    }
}

/// How many bytes the chunks of some leaves take, unpacked.
fn bytes_in(groups: &[RowGroupMetaData], leaf: impl Fn(usize) -> bool) -> i64 {
    let columns = groups.iter().flat_map(|group| group.columns().iter().enumerate());
    columns.filter(|(number, _)| leaf(*number)).map(|(_, column)| column.uncompressed_size().max(0)).fold(0, i64::saturating_add)
}

/// Whether bounds were written by an old program, which compared texts by signed bytes. Where all is NULL there are none at all.
fn is_of_old(known: &Statistics) -> bool {
    known.is_min_max_deprecated() && (known.min_bytes_opt().is_some() || known.max_bytes_opt().is_some())
}

/// The bytes of the columns of a row group that will be read, in the order of the file.
fn wanted(group: &RowGroupMetaData, mask: &ProjectionMask) -> Vec<Range<u64>> {
    let columns = group.columns().iter().enumerate().filter(|(leaf, _)| mask.leaf_included(*leaf));
    let mut ranges: Vec<Range<u64>> = columns
        .map(|(_, column)| {
            let begin = column.dictionary_page_offset().unwrap_or(column.data_page_offset()).max(0) as u64;
            begin..begin.saturating_add(column.compressed_size().max(0) as u64)
        })
        .collect();
    ranges.sort_unstable_by_key(|range| range.start);
    ranges
}

fn open(path: &Path) -> Result<File, FormatError> {
    File::open(path)
        .map_err(|e| FormatError::Io(std::io::Error::new(e.kind(), format!("cannot open parquet file '{}': {e}", path.display()))))
}

fn failed(path: &Path, what: &str, e: &dyn std::fmt::Display) -> FormatError {
    FormatError::data(format!("parquet file '{}': {what}: {e}", path.display()))
}

/// Where the file has the declared column `index`.
fn find(path: &Path, held: &Schema, physical: &Schema, index: usize) -> Result<usize, FormatError> {
    let wanted = &physical.fields()[index];
    let Some(root) = held.fields().iter().position(|f| f.name() == wanted.name()) else {
        let names: Vec<_> = held.fields().iter().map(|f| f.name().as_str()).collect();
        return Err(FormatError::data(format!(
            "parquet file '{}' has no column '{}'; it has: {}",
            path.display(),
            wanted.name(),
            names.join(", ")
        )));
    };
    let (from, to) = (held.field(root).data_type(), wanted.data_type());
    if from != to && !can_cast_types(from, to) {
        return Err(FormatError::data(format!(
            "parquet file '{}': column '{}' is {} in the file and cannot be read as {}",
            path.display(),
            wanted.name(),
            type_name(from),
            type_name(to)
        )));
    }
    Ok(root)
}

/// Whether the library's decoders look at the texts of such pages together only: characters may be cut between them.
fn cuts_characters(encoding: Encoding) -> bool {
    matches!(encoding, Encoding::DELTA_BYTE_ARRAY | Encoding::DELTA_LENGTH_BYTE_ARRAY)
}

/// How the columns of a file are read.
struct ReadAs {
    /// The types in which the library shall give them: those that the file has, with views for the texts of columns wanted as such.
    fields: Vec<FieldRef>,
    /// The numbers of the leaves that become views.
    views: Vec<usize>,
    /// Those of them that [`views`] decodes, each with the column whose only leaf it is.
    plain: Vec<(usize, usize)>,
    /// Those of the columns that the library takes for texts without looking at each of them.
    unchecked: Vec<usize>,
}

impl ReadAs {
    /// Of these row groups of a file; each of the columns `wanted` with its place in it.
    fn of<'a>(file: &ArrowReaderMetadata, groups: &[usize], wanted: impl Iterator<Item = (&'a Field, usize)>) -> Self {
        let mut read = ReadAs { fields: file.schema().fields().to_vec(), views: Vec::new(), plain: Vec::new(), unchecked: Vec::new() };
        let schema = file.parquet_schema();
        for (column, root) in wanted {
            let field = &mut read.fields[root];
            let leaf = (0..schema.num_columns()).find(|leaf| schema.get_column_root_idx(*leaf) == root);
            let Some(leaf) = leaf.filter(|_| matches!(field.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)) else {
                continue;
            };
            let known = schema.column(leaf).converted_type() == ConvertedType::UTF8;
            let chunks = || groups.iter().map(|group| file.metadata().row_group(*group).column(leaf));
            let cut = chunks().flat_map(ColumnChunkMetaData::encodings).any(cuts_characters);
            let view = *column.data_type() == DataType::Utf8View && known && !cut;
            if view {
                read.views.push(leaf);
            }
            if view && chunks().all(views::are_plain) {
                read.plain.push((leaf, root));
            }
            if !known || cut {
                read.unchecked.push(root);
            }
            *field = Arc::new(field.as_ref().clone().with_data_type(if view { DataType::Utf8View } else { DataType::Utf8 }));
        }
        read
    }
}

/// A schema with bytes in place of the texts of the leaves `views`, which stand at its root: the library does not look at them then.
/// [`memory`] does, and they become views of texts all the same.
fn with_bytes(schema: &SchemaDescriptor, views: &[usize]) -> Result<SchemaDescriptor, ParquetError> {
    let root = schema.root_schema();
    let mut fields = root.get_fields().to_vec();
    for leaf in views {
        let field = &mut fields[schema.get_column_root_idx(*leaf)];
        let known = field.get_basic_info();
        let bytes = Type::primitive_type_builder(field.name(), PhysicalType::BYTE_ARRAY).with_repetition(known.repetition());
        *field = Arc::new(bytes.with_id(known.has_id().then(|| known.id())).build()?);
    }
    Ok(SchemaDescriptor::new(Arc::new(Type::group_type_builder(root.name()).with_fields(fields).build()?)))
}

/// Texts at which nobody has looked yet.
///
/// # Errors
/// One of them is not UTF-8.
fn checked(texts: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let (offsets, bytes, nulls) = texts.as_string::<i32>().clone().into_parts();
    Ok(Arc::new(StringArray::try_new(offsets, bytes, nulls)?))
}

/// The schema of a file in the types that tables have (see [`crate::types::plain_type`]).
///
/// # Errors
/// The file cannot be read or is no parquet file.
pub fn schema_of(path: &Path) -> Result<SchemaRef, FormatError> {
    schema_in(path, &open(path)?)
}

/// As [`schema_of`], of a file whose bytes `input` gives; `path` is its name in messages.
///
/// # Errors
/// As [`schema_of`].
pub fn schema_in<R: ChunkReader>(path: &Path, input: &R) -> Result<SchemaRef, FormatError> {
    let metadata = footer(path, input)?;
    Ok(Arc::new(Schema::new(metadata.schema().fields().iter().map(plain_field).collect::<Vec<_>>())))
}

/// What the footer of a file says. Cheap to clone; to decode it takes about a microsecond for each column of each row group.
#[derive(Clone)]
pub struct ParquetFooter(ArrowReaderMetadata);

impl ParquetFooter {
    /// Of the file whose bytes `input` gives; `path` is its name in messages.
    ///
    /// # Errors
    /// The file cannot be read or is no parquet file.
    pub fn of<R: ChunkReader>(path: &Path, input: &R) -> Result<Self, FormatError> {
        footer(path, input).map(ParquetFooter)
    }

    /// The row groups: rows, and compressed bytes. What a file is best divided by.
    pub fn row_groups(&self) -> Vec<(u64, u64)> {
        let groups = self.0.metadata().row_groups().iter();
        groups.map(|group| (group.num_rows().max(0) as u64, group.compressed_size().max(0) as u64)).collect()
    }

    /// About what it takes in memory, bytes.
    pub fn memory_bytes(&self) -> usize {
        self.0.metadata().memory_size()
    }

    /// Whether a reader of some rows of a local file passes over the pages of the others by their heads. In lists and maps it
    /// does so only where the file has an index of its pages; else it decodes all that comes before.
    pub fn passes_over_pages(&self) -> bool {
        self.0.metadata().row_groups().iter().flat_map(|group| group.columns()).all(|column| {
            let repeated = column.column_descr().max_rep_level() > 0;
            !repeated || column.offset_index_offset().is_some()
        })
    }
}

/// Reads the footer, and believes it only where it fits the file.
fn footer<R: ChunkReader>(path: &Path, input: &R) -> Result<ArrowReaderMetadata, FormatError> {
    let checked = Checked { input, check: |_: u64, bytes: &[u8]| thrift::check_footer(bytes) };
    let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Skip);
    let metadata = ArrowReaderMetadata::load(&checked, options).map_err(|e| failed(path, "cannot read its footer", &e))?;
    let fits = check::check(metadata.metadata(), input.len());
    fits.map_err(|why| failed(path, "its footer does not fit it, so it is damaged", &why))?;
    Ok(metadata)
}

/// What a footer says, and the page index with it, as far as the file has one.
fn with_index<R: ChunkReader>(footer: &ArrowReaderMetadata, input: &R) -> Result<ArrowReaderMetadata, ParquetError> {
    let known: &ParquetMetaData = footer.metadata();
    let checked = Checked { input, check: |start: u64, bytes: &[u8]| check::check_indexes(known, start, bytes) };
    let mut reader = ParquetMetaDataReader::new_with_metadata(known.clone()).with_page_index_policy(PageIndexPolicy::Optional);
    reader.read_page_indexes(&checked)?;
    let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Optional);
    ArrowReaderMetadata::try_new(Arc::new(reader.finish()?), options)
}

/// About the largest page of a column, bytes. A writer holds an unfinished one of each column, a reader one of each that it reads: of
/// a hundred columns a hundred MB, if they had a MB each, as they have by default.
const PAGE_BYTES: usize = 128 << 10;
/// After so many values it is looked whether a page is full.
const PAGE_ROWS_LOOKED_AT: usize = 256;
/// Values of a column that are looked at to find out whether a dictionary would pay,
const SAMPLE_ROWS: usize = 8192;
/// unless their rows would be more than that part of a row group.
const SAMPLE_SHARE: u64 = 8;
/// Batches that take no more than that beyond twice what their rows do are kept as they are, bytes.
const PART_BYTES: usize = 4 << 10;
/// A dictionary ends where it has a MB. Where a quarter of that comes from values that nearly all differ, it will end so, or hold
/// each value once: made for nothing either way.
const SAMPLE_BYTES_MIN: usize = 256 << 10;

/// Writes one file. A row group is held in memory, encoded, until it is full.
pub struct ParquetFileWriter {
    out: Out,
    /// Bytes and rows at which a row group is closed.
    group_max: (u64, usize),
    /// Bytes and rows of the open one.
    group: (u64, usize),
}

/// What is written to: how columns are encoded is settled when the first rows are there.
enum Out {
    Fresh(Box<Fresh>),
    Begun(Box<ArrowWriter<Box<dyn Write + Send>>>),
    /// Beginning has failed.
    Broken,
}

/// A file that is not begun.
struct Fresh {
    out: Box<dyn Write + Send>,
    schema: SchemaRef,
    properties: WriterPropertiesBuilder,
    /// Its first rows, which are looked at before.
    first: Vec<RecordBatch>,
    rows: usize,
    /// What they take in memory.
    bytes: usize,
}

impl Fresh {
    /// Appends rows, and keeps no more than them: they may be a small part of a large batch.
    fn keep(&mut self, batch: &RecordBatch) -> Result<(), FormatError> {
        let batch = match batch.get_array_memory_size() > 2 * bytes_of(batch) + PART_BYTES {
            true => take_record_batch(batch, &UInt32Array::from_iter_values(0..batch.num_rows() as u32))
                .map_err(|e| FormatError::data(format!("writing parquet: {e}")))?,
            false => batch.clone(),
        };
        self.rows += batch.num_rows();
        self.bytes += batch.get_array_memory_size();
        self.first.push(batch);
        Ok(())
    }
}

impl ParquetFileWriter {
    /// A writer of rows of `schema` to `out`.
    ///
    /// # Errors
    /// An option out of range, a column type that Parquet cannot hold, a filter for a column that is not there or cannot have one.
    pub fn new(out: Box<dyn Write + Send>, schema: &SchemaRef, options: &ParquetOptions) -> Result<Self, FormatError> {
        if options.row_group_rows == 0 || options.row_group_bytes.0 == 0 {
            return Err(FormatError::option("options 'parquet.row-group.rows' and 'parquet.block.size' must be greater than 0"));
        }
        let compression = match options.compression {
            ParquetCompression::Snappy => Compression::SNAPPY,
            ParquetCompression::Zstd => Compression::ZSTD(ZstdLevel::try_new(3).expect("a level that zstd has")),
            ParquetCompression::Gzip => Compression::GZIP(GzipLevel::default()),
            ParquetCompression::None => Compression::UNCOMPRESSED,
        };
        let mut properties = WriterProperties::builder();
        for column in filtered(schema, options)? {
            let values = options.row_group_rows.min(FILTER_VALUES_MAX) as u64;
            properties =
                properties.set_column_bloom_filter_fpp(column.clone(), FILTER_MISTAKES).set_column_bloom_filter_max_ndv(column, values);
        }
        let properties = properties
            .set_compression(compression)
            .set_data_page_size_limit(PAGE_BYTES)
            .set_write_batch_size(PAGE_ROWS_LOOKED_AT)
            .set_max_row_group_row_count(Some(options.row_group_rows))
            // The library counts pages as they are compressed, and dictionaries as they are not: groups would be of all sizes.
            .set_max_row_group_bytes(None)
            .set_created_by(concat!("tidemill ", env!("CARGO_PKG_VERSION")).to_string());
        begin(std::io::sink(), schema, properties.clone())?;
        let fresh = Fresh { out, schema: schema.clone(), properties, first: Vec::new(), rows: 0, bytes: 0 };
        Ok(ParquetFileWriter {
            out: Out::Fresh(Box::new(fresh)),
            group_max: (options.row_group_bytes.0, options.row_group_rows),
            group: (0, 0),
        })
    }

    /// The writer below, begun with the first rows if it was not.
    fn begun(&mut self) -> Result<&mut ArrowWriter<Box<dyn Write + Send>>, FormatError> {
        if let Out::Fresh(_) = self.out
            && let Out::Fresh(fresh) = std::mem::replace(&mut self.out, Out::Broken)
        {
            let Fresh { out, schema, mut properties, first, .. } = *fresh;
            for column in without_dictionary(&schema, &first) {
                properties = properties.set_column_dictionary_enabled(column, false);
            }
            self.out = Out::Begun(Box::new(begin(out, &schema, properties)?));
            for batch in &first {
                if let Err(e) = self.append(batch) {
                    self.out = Out::Broken;
                    return Err(e);
                }
            }
        }
        match &mut self.out {
            Out::Begun(writer) => Ok(writer),
            _ => Err(FormatError::data("writing parquet: the file could not be begun")),
        }
    }

    /// Appends the rows of a batch.
    ///
    /// # Errors
    /// Writing failed.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), FormatError> {
        if let Out::Fresh(fresh) = &mut self.out {
            fresh.keep(batch)?;
            // A small row group means that many files are written at once.
            if fresh.rows < SAMPLE_ROWS && (fresh.bytes as u64) < self.group_max.0 / SAMPLE_SHARE {
                return Ok(());
            }
            return self.settle();
        }
        self.append(batch)
    }

    /// Appends rows to the file that is begun.
    fn append(&mut self, batch: &RecordBatch) -> Result<(), FormatError> {
        self.begun()?.write(batch).map_err(writing)?;
        let (bytes_max, rows_max) = self.group_max;
        let (bytes, rows) = (bytes_of(batch) as u64, self.group.1 + batch.num_rows());
        if rows >= rows_max {
            // The library has closed it, and begun one with the rows that are left.
            let left = rows % rows_max;
            self.group = (bytes * left.min(batch.num_rows()) as u64 / batch.num_rows().max(1) as u64, left);
        } else {
            self.group = (self.group.0 + bytes, rows);
        }
        if self.group.0 >= bytes_max {
            self.group = (0, 0);
            self.begun()?.flush().map_err(writing)?;
        }
        Ok(())
    }

    /// Begins the file with the rows that are there: from then on [`ParquetFileWriter::sizes`] are those of the file.
    ///
    /// # Errors
    /// Writing failed.
    pub fn settle(&mut self) -> Result<(), FormatError> {
        self.begun().map(|_| ())
    }

    /// Bytes held in memory, and bytes handed to the writer below.
    pub fn sizes(&self) -> (usize, usize) {
        match &self.out {
            Out::Fresh(fresh) => (fresh.bytes, 0),
            Out::Begun(writer) => (writer.memory_size(), writer.bytes_written()),
            Out::Broken => (0, 0),
        }
    }

    /// Writes the last row group and the footer, flushes, and gives back the writer below. Without
    /// it the file is unreadable.
    ///
    /// # Errors
    /// Writing failed.
    pub fn finish(mut self) -> Result<Box<dyn Write + Send>, FormatError> {
        self.begun()?;
        let Out::Begun(writer) = self.out else { return Err(FormatError::data("writing parquet: the file could not be begun")) };
        let mut out = (*writer).into_inner().map_err(writing)?;
        out.flush()?;
        Ok(out)
    }
}

fn begin<W: Write + Send>(out: W, schema: &SchemaRef, properties: WriterPropertiesBuilder) -> Result<ArrowWriter<W>, FormatError> {
    ArrowWriter::try_new(out, schema.clone(), Some(properties.build()))
        .map_err(|e| FormatError::unsupported(format!("cannot write these columns as parquet: {e}")))
}

/// The columns of text whose first values nearly all differ, and are many enough to say so.
fn without_dictionary(schema: &Schema, first: &[RecordBatch]) -> Vec<ColumnPath> {
    let all_differ = |column: usize| {
        let columns = first.iter().map(|batch| batch.column(column));
        match schema.field(column).data_type() {
            DataType::Utf8 => nearly_all_differ(columns.flat_map(|c| c.as_string::<i32>().iter().flatten().map(str::as_bytes))),
            DataType::Binary => nearly_all_differ(columns.flat_map(|c| c.as_binary::<i32>().iter().flatten())),
            _ => false,
        }
    };
    let columns = (0..schema.fields().len()).filter(|column| all_differ(*column));
    columns.map(|column| ColumnPath::new(vec![schema.field(column).name().clone()])).collect()
}

fn nearly_all_differ<'a>(values: impl Iterator<Item = &'a [u8]>) -> bool {
    let (mut seen, mut count, mut bytes) = (HashSet::new(), 0, 0);
    for value in values.take(SAMPLE_ROWS) {
        count += 1;
        if seen.insert(value) {
            bytes += value.len();
        }
    }
    bytes >= SAMPLE_BYTES_MIN && seen.len() * 10 >= count * 9
}

/// The columns that get Bloom filters.
fn filtered(schema: &SchemaRef, options: &ParquetOptions) -> Result<Vec<ColumnPath>, FormatError> {
    let names = options.bloom_filter_columns.iter().flat_map(|names| names.split(',')).map(str::trim);
    let path = |name: &str| {
        let wrong = |why: String| Err(FormatError::option(format!("option 'parquet.bloom-filter-columns': {why}")));
        let Ok(field) = schema.field_with_name(name) else {
            let all: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
            return wrong(format!("the files have no column '{name}'; they have: {}", all.join(", ")));
        };
        if field.data_type().is_nested() || *field.data_type() == DataType::Boolean {
            let why = "has no single values that could be looked for, or only two; leave it out";
            return wrong(format!("column '{name}' of type {} {why}", type_name(field.data_type())));
        }
        Ok(ColumnPath::from(name))
    };
    names.map(path).collect()
}

fn writing(e: parquet::errors::ParquetError) -> FormatError {
    match e {
        // What the disk said is worth more than where the encoder stood.
        parquet::errors::ParquetError::External(inner) => match inner.downcast::<std::io::Error>() {
            Ok(io) => FormatError::Io(*io),
            Err(other) => FormatError::data(format!("writing parquet: {other}")),
        },
        other => FormatError::data(format!("writing parquet: {other}")),
    }
}
