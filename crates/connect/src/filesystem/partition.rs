//! Rows divided among directories by the values of some columns, as Hive does it: `year=2024/month=1/part-….csv`.
//! The columns are in the names and not in the files. Writing one directory's files is in `writer`; reading the
//! names back in `metadata`.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{SortColumn, lexsort_to_indices, partition, take_record_batch};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use tidemill_block::Block;

use crate::{Committable, ConnectError, Writer, WriterStats};

/// What stands for NULL in the name of a directory, as in Hive.
pub(super) const NULL_NAME: &str = "__HIVE_DEFAULT_PARTITION__";

/// Directories written to at once. Beyond that the one that was least used lately is closed, and gets a further
/// file if its rows come again: each open file holds buffers, Parquet a row group.
const OPEN_MAX: usize = 64;

/// So many rows a run, on average, are written as they lie; shorter runs are sorted first.
const RUN_ROWS: usize = 64;

/// Opens the writer of a directory: its name, relative and with `/` at the end, and how many writers were closed
/// before. A directory whose writer was closed gets files of other names: the first ones may not be visible yet.
pub(super) type OpenBelow = Box<dyn Fn(&str, u64) -> Result<Box<dyn Writer>, ConnectError> + Send>;

/// Writes the rows of one shard into directories.
pub(super) struct PartitionedWriter {
    open: OpenBelow,
    /// The columns by which rows are divided, as numbers in the blocks.
    by: Vec<usize>,
    names: Vec<String>,
    /// The other columns.
    rest: Vec<usize>,
    writers: HashMap<String, Held>,
    /// What closed directories have prepared.
    prepared: Vec<Committable>,
    /// Bytes written to closed directories.
    bytes: u64,
    /// Directories that were closed.
    closed: u64,
    /// Counts blocks.
    clock: u64,
}

struct Held {
    writer: Box<dyn Writer>,
    /// When rows came last.
    used: u64,
}

impl PartitionedWriter {
    /// A writer of blocks of `schema`.
    ///
    /// # Errors
    /// A column that is not there.
    pub fn new(schema: &SchemaRef, names: &[String], open: OpenBelow) -> Result<Self, ConnectError> {
        let by = columns(schema, names)?;
        let rest = (0..schema.fields().len()).filter(|i| !by.contains(i)).collect();
        Ok(PartitionedWriter {
            open,
            by,
            names: names.iter().map(|name| escape(name)).collect(),
            rest,
            writers: HashMap::new(),
            prepared: Vec::new(),
            bytes: 0,
            closed: 0,
            clock: 0,
        })
    }

    /// Writes rows that belong to one directory or few, one run of them after the other.
    fn runs(&mut self, batch: &RecordBatch, arrival_ns: u64) -> Result<(), ConnectError> {
        let keys: Vec<ArrayRef> = self.by.iter().map(|i| batch.column(*i).clone()).collect();
        let options = FormatOptions::new().with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"));
        let formatters =
            keys.iter().map(|k| ArrayFormatter::try_new(k.as_ref(), &options)).collect::<Result<Vec<_>, _>>().map_err(|e| dividing(&e))?;
        let rest = batch.project(&self.rest).map_err(|e| dividing(&e))?;
        let mut below = String::new();
        for range in partition(&keys).map_err(|e| dividing(&e))?.ranges() {
            below.clear();
            for ((name, key), formatter) in self.names.iter().zip(&keys).zip(&formatters) {
                let value =
                    if key.is_null(range.start) { NULL_NAME.to_string() } else { escape(&formatter.value(range.start).to_string()) };
                let _ = write!(below, "{name}={value}/");
            }
            let rows = Block::inserts(rest.slice(range.start, range.len()), arrival_ns);
            self.writer(&below)?.write(&rows)?;
        }
        Ok(())
    }

    /// The writer of a directory.
    fn writer(&mut self, below: &str) -> Result<&mut Box<dyn Writer>, ConnectError> {
        if !self.writers.contains_key(below) {
            if self.writers.len() >= OPEN_MAX
                && let Some(idle) = self.writers.iter().min_by_key(|(_, held)| held.used).map(|(name, _)| name.clone())
                && let Some(mut held) = self.writers.remove(&idle)
            {
                self.prepared.extend(held.writer.prepare(true)?);
                self.bytes += held.writer.stats().bytes;
                self.closed += 1;
            }
            let writer = (self.open)(below, self.closed)?;
            self.writers.insert(below.to_string(), Held { writer, used: 0 });
        }
        let held = self.writers.get_mut(below).expect("inserted above");
        held.used = self.clock;
        Ok(&mut held.writer)
    }
}

impl Writer for PartitionedWriter {
    fn write(&mut self, block: &Block) -> Result<(), ConnectError> {
        let rows = block.rows();
        if rows == 0 {
            return Ok(());
        }
        self.clock += 1;
        let keys: Vec<ArrayRef> = self.by.iter().map(|i| block.column(*i).clone()).collect();
        let runs = partition(&keys).map_err(|e| dividing(&e))?.len();
        if runs <= 4 || runs * RUN_ROWS <= rows {
            return self.runs(&block.batch, block.arrival_ns);
        }
        // The row's number as the last key keeps rows of one directory in their order.
        let numbers: ArrayRef = Arc::new(UInt32Array::from_iter_values(0..rows as u32));
        let order: Vec<SortColumn> = keys.into_iter().chain([numbers]).map(|values| SortColumn { values, options: None }).collect();
        let sorted =
            lexsort_to_indices(&order, None).and_then(|order| take_record_batch(&block.batch, &order)).map_err(|e| dividing(&e))?;
        self.runs(&sorted, block.arrival_ns)
    }

    fn flush(&mut self) -> Result<(), ConnectError> {
        self.writers.values_mut().try_for_each(|held| held.writer.flush())
    }

    fn prepare(&mut self, last: bool) -> Result<Vec<Committable>, ConnectError> {
        let mut prepared = std::mem::take(&mut self.prepared);
        for held in self.writers.values_mut() {
            prepared.extend(held.writer.prepare(last)?);
        }
        Ok(prepared)
    }

    fn stats(&self) -> WriterStats {
        WriterStats { bytes: self.bytes + self.writers.values().map(|held| held.writer.stats().bytes).sum::<u64>() }
    }
}

/// The numbers of columns.
///
/// # Errors
/// One that is not there, one named twice, none left for the files.
pub(super) fn columns(schema: &SchemaRef, names: &[String]) -> Result<Vec<usize>, ConnectError> {
    let mut by = Vec::new();
    for name in names {
        let Ok(index) = schema.index_of(name) else {
            let all: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
            return Err(ConnectError::new(format!("there is no column '{name}' to make directories of; there are: {}", all.join(", "))));
        };
        if schema.field(index).data_type().is_nested() {
            return Err(ConnectError::new(format!("column '{name}' cannot name directories: its values are no single ones")));
        }
        if by.contains(&index) {
            return Err(ConnectError::new(format!("column '{name}' is there twice among those that directories are made of")));
        }
        by.push(index);
    }
    if !names.is_empty() && by.len() == schema.fields().len() {
        return Err(ConnectError::new("directories are made of all columns, so nothing would be left for the files; leave one out"));
    }
    Ok(by)
}

/// The schema without the columns that are in the names of directories.
///
/// # Errors
/// As [`columns`].
pub(super) fn without(schema: &SchemaRef, names: &[String]) -> Result<SchemaRef, ConnectError> {
    let by = columns(schema, names)?;
    let rest: Vec<usize> = (0..schema.fields().len()).filter(|i| !by.contains(i)).collect();
    Ok(Arc::new(schema.project(&rest).map_err(|e| dividing(&e))?))
}

#[cold]
fn dividing(e: &ArrowError) -> ConnectError {
    ConnectError::new(format!("dividing rows among directories: {e}"))
}

/// A value as part of a directory's name: what would have a meaning there becomes `%XX`, as Hive does.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || "\"#%'*/:=?\\{}[]^".contains(c) {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                let _ = write!(out, "%{byte:02X}");
            }
        } else {
            out.push(c);
        }
    }
    // `.` and `..` are places of their own, and would be the only names that lead out of the table.
    if matches!(out.as_str(), "." | "..") { out.replace('.', "%2E") } else { out }
}

/// A value as [`escape`] wrote it; what is no escape stays as it is.
pub(super) fn unescape(text: &str) -> String {
    if !text.contains('%') {
        return text.to_string();
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten().and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match code {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_string())
}

/// The columns that a path's directories name, from the top down, with their values; `None` for NULL.
pub fn pairs(path: &str) -> Vec<(String, Option<String>)> {
    let Some((directories, _)) = path.rsplit_once('/') else { return Vec::new() };
    let pair = |directory: &str| {
        let (name, value) = directory.split_once('=').filter(|(name, _)| !name.is_empty())?;
        Some((unescape(name), (value != NULL_NAME).then(|| unescape(value))))
    };
    directories.split('/').filter_map(pair).collect()
}

/// The value that a path's directories give a column; `None` for NULL and where no directory names it.
pub(super) fn value(path: &str, column: &str) -> Option<String> {
    let directories = path.rsplit_once('/')?.0;
    let of = |directory: &str| directory.split_once('=').filter(|(name, _)| unescape(name) == column).map(|(_, value)| value.to_string());
    let value = directories.rsplit('/').find_map(of)?;
    (value != NULL_NAME).then(|| unescape(&value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, name: &str) {
        assert_eq!(escape(text), name);
        assert_eq!(unescape(name), text);
    }

    #[test]
    fn values_are_names_and_back() {
        check("a b", "a b");
        check("a/b=c%", "a%2Fb%3Dc%25");
        check("2024-01-01 10:00:00", "2024-01-01 10%3A00%3A00");
        check("..", "%2E%2E");
        check("né\n", "né%0A");
        assert_eq!((unescape("50%"), unescape("%zz"), unescape("%FF")), ("50%".into(), "%zz".into(), "%FF".into()));
    }

    /// Writes nothing.
    struct Nowhere;

    impl Writer for Nowhere {
        fn write(&mut self, _: &Block) -> Result<(), ConnectError> {
            Ok(())
        }

        fn flush(&mut self) -> Result<(), ConnectError> {
            Ok(())
        }

        fn prepare(&mut self, _: bool) -> Result<Vec<Committable>, ConnectError> {
            Ok(Vec::new())
        }

        fn stats(&self) -> WriterStats {
            WriterStats { bytes: 1 }
        }
    }

    #[test]
    fn a_directory_that_was_closed_gets_other_names() {
        use std::sync::Mutex;
        let opened: Arc<Mutex<Vec<(String, u64)>>> = Arc::default();
        let seen = opened.clone();
        let open = move |below: &str, closed: u64| {
            seen.lock().unwrap().push((below.to_string(), closed));
            Ok(Box::new(Nowhere) as Box<dyn Writer>)
        };
        let keys: ArrayRef = Arc::new(UInt32Array::from_iter_values((0..=OPEN_MAX as u32).chain([0])));
        let batch = RecordBatch::try_from_iter([("k", keys.clone()), ("v", keys)]).unwrap();
        let mut writer = PartitionedWriter::new(&batch.schema(), &["k".to_string()], Box::new(open)).unwrap();
        for row in 0..batch.num_rows() {
            writer.write(&Block::inserts(batch.slice(row, 1), 0)).unwrap();
        }
        let opened = opened.lock().unwrap();
        let zero: Vec<u64> = opened.iter().filter(|(below, _)| below == "k=0/").map(|(_, closed)| *closed).collect();
        assert_eq!((opened.len(), zero), (OPEN_MAX + 2, vec![0, 2]));
        assert_eq!(writer.stats().bytes, OPEN_MAX as u64 + 2);
    }

    #[test]
    fn paths_give_values() {
        let path = "/data/y=2024/c=a%2Fb/part-1.csv";
        assert_eq!((value(path, "y"), value(path, "c")), (Some("2024".into()), Some("a/b".into())));
        assert_eq!((value(path, "z"), value("y=1.csv", "y")), (None, None));
        assert_eq!(value(&format!("d/y={NULL_NAME}/a.csv"), "y"), None);
        let both = [("y".to_string(), Some("2024".to_string())), ("c".to_string(), Some("a/b".to_string()))];
        assert_eq!((pairs(path), pairs("a.csv")), (both.to_vec(), Vec::new()));
    }
}
