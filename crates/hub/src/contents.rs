//! What the rows of an updating stream add up to: every row and how often it is there. And the files
//! that keep it over a restart.
//!
//! A checkpoint's file is `.contents-<n>.arrow` until it is committed, then `contents-<n>.arrow`: an
//! Arrow IPC stream of the columns and, as the last one, the count. The checkpoint names its file, so
//! contents and state are always of the same moment; without a checkpoint they begin empty.

use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, BufWriter, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use arrow::row::{Row, RowConverter, SortField};
use hashbrown::HashMap;
use hashbrown::hash_map::EntryRef;
use tidemill_block::Block;

use crate::error::{HubError, io};

/// Rows of a batch of contents.
const BATCH_ROWS: usize = 8192;
/// Contents of so many different rows are shown in order; ordering more takes too long.
const SORTED_MAX: usize = 1 << 16;

/// A multiset of rows.
pub(crate) struct Contents {
    schema: SchemaRef,
    converter: RowConverter,
    /// How often each row is there. Below zero while a row was taken away before it was added: rows of
    /// several keys, and so of several shards, may be the same.
    counts: HashMap<Box<[u8]>, i64>,
    changed: bool,
}

impl Contents {
    /// Empty contents of these columns.
    ///
    /// # Errors
    /// A type whose values cannot be compared.
    pub fn new(schema: SchemaRef) -> Result<Self, ArrowError> {
        let converter = RowConverter::new(schema.fields().iter().map(|f| SortField::new(f.data_type().clone())).collect())?;
        Ok(Contents { schema, converter, counts: HashMap::new(), changed: false })
    }

    /// Adds and takes away rows by their kinds.
    ///
    /// # Errors
    /// Columns of other types.
    pub fn apply(&mut self, block: &Block) -> Result<(), ArrowError> {
        self.add(block.batch.columns(), |row| block.kind(row).sign())?;
        self.changed |= block.rows() > 0;
        Ok(())
    }

    /// Adds the rows of a file.
    ///
    /// # Errors
    /// Columns of other types.
    pub fn restore(&mut self, counted: &RecordBatch) -> Result<(), ArrowError> {
        let (columns, counts) = split(counted)?;
        self.add(columns, |row| counts.value(row))
    }

    fn add(&mut self, columns: &[ArrayRef], count: impl Fn(usize) -> i64) -> Result<(), ArrowError> {
        let rows = self.converter.convert_columns(columns)?;
        for index in 0..rows.num_rows() {
            let (key, count) = (rows.row(index), count(index));
            let key = key.data();
            match self.counts.entry_ref(key) {
                EntryRef::Occupied(mut there) => {
                    *there.get_mut() += count;
                    if *there.get() == 0 {
                        there.remove();
                    }
                }
                EntryRef::Vacant(place) => {
                    place.insert_with_key(key.into(), count);
                }
            }
        }
        Ok(())
    }

    /// Whether rows came since the last time.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    fn entries(&self) -> Vec<(&[u8], i64)> {
        let mut entries: Vec<(&[u8], i64)> = self.counts.iter().map(|(key, count)| (key.as_ref(), *count)).collect();
        if entries.len() <= SORTED_MAX {
            entries.sort_unstable();
        }
        entries
    }

    /// Up to `limit` rows, each as often as it is there, in batches.
    ///
    /// # Errors
    /// Text that is none.
    pub fn rows(&self, limit: usize) -> Result<Vec<RecordBatch>, ArrowError> {
        let entries = self.entries();
        let parser = self.converter.parser();
        let mut keys = entries.iter().flat_map(|(key, count)| std::iter::repeat_n(*key, (*count).max(0) as usize)).take(limit);
        let mut batches = Vec::new();
        loop {
            let rows: Vec<Row<'_>> = keys.by_ref().take(BATCH_ROWS).map(|key| parser.parse(key)).collect();
            if rows.is_empty() {
                return Ok(batches);
            }
            batches.push(RecordBatch::try_new(self.schema.clone(), self.converter.convert_rows(rows)?)?);
        }
    }

    /// All rows with their counts, for a file.
    ///
    /// # Errors
    /// As [`Contents::rows`].
    pub fn counted(&self) -> Result<Vec<RecordBatch>, ArrowError> {
        let schema = counted_schema(&self.schema);
        let parser = self.converter.parser();
        let batch = |entries: &[(&[u8], i64)]| {
            let mut columns = self.converter.convert_rows(entries.iter().map(|(key, _)| parser.parse(key)))?;
            columns.push(Arc::new(Int64Array::from_iter_values(entries.iter().map(|(_, count)| *count))));
            RecordBatch::try_new(schema.clone(), columns)
        };
        self.entries().chunks(BATCH_ROWS).map(batch).collect()
    }
}

fn counted_schema(columns: &Schema) -> SchemaRef {
    let mut fields = columns.fields().to_vec();
    fields.push(Arc::new(Field::new("count", DataType::Int64, false)));
    Arc::new(Schema::new(fields))
}

/// The columns and the counts.
fn split(counted: &RecordBatch) -> Result<(&[ArrayRef], &Int64Array), ArrowError> {
    let wrong = || ArrowError::SchemaError("contents without a count".into());
    let (counts, columns) = counted.columns().split_last().ok_or_else(wrong)?;
    Ok((columns, counts.as_primitive_opt::<Int64Type>().ok_or_else(wrong)?))
}

/// The rows of a file, each as often as it is there.
fn expand(counted: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let (columns, counts) = split(counted)?;
    let batch = RecordBatch::try_new(schema.clone(), columns.to_vec())?;
    if counts.values().iter().all(|n| *n == 1) {
        return Ok(batch);
    }
    let rows = counts.values().iter().enumerate().flat_map(|(row, n)| std::iter::repeat_n(row as u32, (*n).max(0) as usize));
    take_record_batch(&batch, &UInt32Array::from_iter_values(rows))
}

/// The files of a stream's contents.
pub(crate) struct Shelf {
    stream: String,
    directory: PathBuf,
    columns: SchemaRef,
    names: Mutex<Names>,
}

#[derive(Default)]
struct Names {
    /// The number of the next file.
    next: u64,
    /// The newest file that was written.
    written: Option<String>,
    committed: Option<String>,
}

impl Shelf {
    /// The files in `directory`: `committed` is made visible if it is not yet, all others are removed.
    /// Also gives the rows of `committed` with their counts.
    ///
    /// # Errors
    /// What cannot be read, written or removed; contents of other columns.
    pub fn recover(
        stream: &str,
        directory: PathBuf,
        columns: &SchemaRef,
        committed: Option<String>,
    ) -> Result<(Self, Vec<RecordBatch>), HubError> {
        create_directory(&directory)?;
        let shelf = Shelf { stream: stream.to_string(), directory, columns: columns.clone(), names: Mutex::default() };
        if let Some(name) = &committed {
            shelf.show(name)?;
        }
        let doing = || format!("looking for contents of stream '{stream}' in '{}'", shelf.directory.display());
        let mut next = 0;
        for entry in fs::read_dir(&shelf.directory).map_err(|e| io(doing(), &e))? {
            let entry = entry.map_err(|e| io(doing(), &e))?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let Some(number) = number_of(name) else { continue };
            next = next.max(number + 1);
            if committed.as_deref() != Some(name) {
                shelf.remove(name)?;
            }
        }
        let mut batches = Vec::new();
        if let Some(name) = &committed {
            let mut reader = shelf.open(name)?;
            while let Some(batch) = reader.counted()? {
                batches.push(batch);
            }
        }
        *shelf.lock() = Names { next, written: committed.clone(), committed };
        Ok((shelf, batches))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Names> {
        self.names.lock().expect("no panic while held")
    }

    fn hidden(&self, name: &str) -> PathBuf {
        self.directory.join(format!(".{name}"))
    }

    /// Writes batches of rows and counts into a new file, safe on disk, not yet visible.
    ///
    /// # Errors
    /// What cannot be written.
    pub fn write(&self, counted: &[RecordBatch]) -> Result<String, HubError> {
        let mut names = self.lock();
        let name = format!("contents-{}.arrow", names.next);
        let path = self.hidden(&name);
        write_file(&path, &counted_schema(&self.columns), counted)?;
        names.next += 1;
        names.written = Some(name.clone());
        Ok(name)
    }

    /// The newest file, if there is one.
    pub fn newest(&self) -> Option<String> {
        self.lock().written.clone()
    }

    /// The file of the last commit.
    pub fn committed(&self) -> Option<String> {
        self.lock().committed.clone()
    }

    /// Makes a file visible and removes the one before it.
    ///
    /// # Errors
    /// It is not there.
    pub fn commit(&self, name: &str) -> Result<(), HubError> {
        self.show(name)?;
        let before = self.lock().committed.replace(name.to_string());
        match before {
            Some(before) if before != name => self.remove(&before),
            _ => Ok(()),
        }
    }

    fn show(&self, name: &str) -> Result<(), HubError> {
        let (from, to) = (self.hidden(name), self.directory.join(name));
        let doing = || format!("committing the contents '{}' of stream '{}'", to.display(), self.stream);
        match fs::rename(&from, &to) {
            Ok(()) => sync(&self.directory),
            // Committed before the crash, or unchanged since.
            Err(e) if e.kind() == ErrorKind::NotFound && to.exists() => Ok(()),
            Err(e) => Err(io(doing(), &e)),
        }
    }

    fn remove(&self, name: &str) -> Result<(), HubError> {
        let path = self.directory.join(name);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(io(format!("removing '{}'", path.display()), &e)),
            _ => Ok(()),
        }
    }

    /// Opens a committed file.
    ///
    /// # Errors
    /// It is not there, or of other columns.
    pub fn open(&self, name: &str) -> Result<ContentsReader, HubError> {
        let path = self.directory.join(name);
        let reader = open_file(&path)?;
        if reader.schema().fields() != counted_schema(&self.columns).fields() {
            return Err(HubError::Data(format!(
                "the contents of stream '{}' in '{}' have other columns than its table has now; start the job afresh, or give the table another 'stream.name'",
                self.stream,
                path.display()
            )));
        }
        Ok(ContentsReader { reader, path, columns: self.columns.clone() })
    }
}

/// The number in the name of a file of contents, hidden or not.
fn number_of(name: &str) -> Option<u64> {
    name.strip_prefix('.').unwrap_or(name).strip_prefix("contents-")?.strip_suffix(".arrow")?.parse().ok()
}

/// Reads a file of contents batch by batch; removing the file does not disturb it.
pub(crate) struct ContentsReader {
    reader: StreamReader<BufReader<File>>,
    path: PathBuf,
    columns: SchemaRef,
}

impl ContentsReader {
    fn counted(&mut self) -> Result<Option<RecordBatch>, HubError> {
        self.reader.next().transpose().map_err(|e| damaged(&self.path, &e))
    }

    /// The next rows, each as often as it is there; `None` at the end.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn rows(&mut self) -> Result<Option<RecordBatch>, HubError> {
        while let Some(counted) = self.counted()? {
            let rows = expand(&counted, &self.columns).map_err(|e| damaged(&self.path, &e))?;
            if rows.num_rows() > 0 {
                return Ok(Some(rows));
            }
        }
        Ok(None)
    }
}

/// What is wrong with a file that does not hold what it should.
pub(crate) fn damaged(path: &Path, error: &ArrowError) -> HubError {
    HubError::Data(format!("reading '{}': {error}", path.display()))
}

/// Opens an Arrow IPC stream.
pub(crate) fn open_file(path: &Path) -> Result<StreamReader<BufReader<File>>, HubError> {
    let file = File::open(path).map_err(|e| io(format!("opening '{}'", path.display()), &e))?;
    StreamReader::try_new(BufReader::with_capacity(256 << 10, file), None).map_err(|e| damaged(path, &e))
}

/// Writes an Arrow IPC stream, safe on disk.
fn write_file(path: &Path, schema: &Schema, batches: &[RecordBatch]) -> Result<(), HubError> {
    let wrong = |e: &ArrowError| HubError::Io(format!("writing '{}': {e}", path.display()));
    let mut writer = create_file(path, schema)?;
    for batch in batches {
        writer.write(batch).map_err(|e| wrong(&e))?;
    }
    finish_file(path, writer)
}

/// A writer of Arrow IPC.
pub(crate) type FileWriter = StreamWriter<BufWriter<File>>;

/// Begins an Arrow IPC stream; what a crash may have left there goes.
pub(crate) fn create_file(path: &Path, schema: &Schema) -> Result<FileWriter, HubError> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(path);
    let file = file.map_err(|e| io(format!("creating '{}'", path.display()), &e))?;
    StreamWriter::try_new(BufWriter::with_capacity(256 << 10, file), schema)
        .map_err(|e| HubError::Io(format!("writing '{}': {e}", path.display())))
}

/// Ends an Arrow IPC stream and makes it, with its name, safe on disk.
pub(crate) fn finish_file(path: &Path, writer: FileWriter) -> Result<(), HubError> {
    let buffer = writer.into_inner().map_err(|e| HubError::Io(format!("writing '{}': {e}", path.display())))?;
    let file = buffer.into_inner().map_err(|e| io(format!("writing '{}'", path.display()), e.error()))?;
    file.sync_all().map_err(|e| io(format!("making '{}' safe (fsync)", path.display()), &e))?;
    path.parent().map_or(Ok(()), sync)
}

/// Makes a directory, and those above it that are missing; their names are safe on disk then.
pub(crate) fn create_directory(path: &Path) -> Result<(), HubError> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    create_directory(parent)?;
    match fs::create_dir(path) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => Err(io(format!("creating the directory '{}'", path.display()), &e)),
        _ => sync(parent),
    }
}

/// Makes the names in a directory safe.
pub(crate) fn sync(directory: &Path) -> Result<(), HubError> {
    let done = File::open(directory).and_then(|d| d.sync_all());
    done.map_err(|e| io(format!("making the names in '{}' safe (fsync)", directory.display()), &e))
}
