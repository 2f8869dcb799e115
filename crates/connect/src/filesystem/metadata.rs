//! The metadata columns of files: one value a file, repeated for every row of a batch.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, StringArray, TimestampMillisecondArray, UInt32Array};
use arrow::compute::{CastOptions, cast, cast_with_options, take};
use arrow::datatypes::{DataType, SchemaRef, TimeUnit};

use super::partition;
use crate::{ConnectError, ReadRequest};

/// What the keys of columns that stand in the names of directories begin with.
const PARTITION: &str = "partition.";

/// The keys and types of the columns.
pub(super) fn columns() -> Vec<(&'static str, DataType)> {
    vec![
        ("file.path", DataType::Utf8),
        ("file.name", DataType::Utf8),
        ("file.size", DataType::Int64),
        ("file.modification-time", DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()))),
        // `partition.year`: what the directory `year=2024` in the file's path says.
        ("partition.*", DataType::Utf8),
    ]
}

/// Whether the path alone says what is in a column.
pub(super) fn by_path(key: &str) -> bool {
    matches!(key, "file.path" | "file.name") || key.starts_with(PARTITION)
}

/// What the columns say of one file.
#[derive(Clone, Debug)]
pub(super) struct FileInfo {
    /// An absolute path, an address, or either with `//` and the name of an archive's member.
    pub path: String,
    /// Length as it lies there; of a member unpacked, 0 if it is not known before it is read.
    pub size: u64,
    /// When it was changed last, ms since 1970.
    pub modified_ms: i64,
}

impl FileInfo {
    /// Of the local file at `path`.
    ///
    /// # Errors
    /// The current directory, which a relative path needs, is gone.
    pub fn local(path: &str, meta: &Metadata) -> Result<Self, ConnectError> {
        let modified_ms = meta.mtime().saturating_mul(1000).saturating_add(meta.mtime_nsec() / 1_000_000);
        Ok(FileInfo { path: absolute(path)?, size: meta.len(), modified_ms })
    }

    /// Of a member of the archive that this is.
    pub fn member(&self, name: &str, size: u64) -> Self {
        FileInfo { path: format!("{}//{name}", self.path), size, modified_ms: self.modified_ms }
    }
}

/// The path of a local file as the columns say it.
///
/// # Errors
/// As [`FileInfo::local`].
pub(super) fn absolute(path: &str) -> Result<String, ConnectError> {
    let absolute = std::path::absolute(path).map_err(|e| ConnectError::io(format!("finding the absolute path of '{path}'"), &e))?;
    Ok(absolute.to_string_lossy().into_owned())
}

/// The metadata columns that a request wants of one file.
pub(super) struct Constants {
    schema: SchemaRef,
    /// One row each, of the requested type.
    values: Vec<ArrayRef>,
    /// The values repeated, as long as the longest batch so far.
    repeated: Vec<ArrayRef>,
}

impl Constants {
    /// The values for a file, wherever it lies.
    ///
    /// # Errors
    /// A key that files do not have, a type that the value cannot be turned into.
    pub fn of(request: &ReadRequest, info: &FileInfo) -> Result<Self, ConnectError> {
        let path = info.path.as_str();
        let mut values = Vec::with_capacity(request.metadata.len());
        for (key, field) in &request.metadata {
            let value: ArrayRef = match key.as_str() {
                "file.path" => Arc::new(StringArray::from(vec![path])),
                "file.name" => {
                    let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
                    Arc::new(StringArray::from(vec![name.as_ref()]))
                }
                "file.size" => Arc::new(Int64Array::from(vec![info.size as i64])),
                "file.modification-time" => Arc::new(TimestampMillisecondArray::from(vec![info.modified_ms]).with_timezone("UTC")),
                key if key.starts_with(PARTITION) => {
                    let text: ArrayRef = Arc::new(StringArray::from(vec![partition::value(path, &key[PARTITION.len()..])]));
                    // A value of another type than declared must not become NULL in silence.
                    let strict = CastOptions { safe: false, ..CastOptions::default() };
                    cast_with_options(&text, field.data_type(), &strict)
                        .map_err(|e| ConnectError::new(format!("metadata column '{key}' of '{path}': {e}")))?
                }
                other => {
                    let known: Vec<_> = columns().into_iter().map(|(key, _)| key).collect();
                    return Err(ConnectError::new(format!("files have no metadata column '{other}'; there are: {}", known.join(", "))));
                }
            };
            values.push(cast(&value, field.data_type()).map_err(|e| ConnectError::new(format!("metadata column '{key}': {e}")))?);
        }
        Ok(Constants { schema: request.schema(), repeated: values.clone(), values })
    }

    /// The values as one row, of a request for metadata columns only.
    ///
    /// # Errors
    /// A value is NULL where none may be.
    pub fn row(&self) -> Result<RecordBatch, ConnectError> {
        RecordBatch::try_new_with_options(self.schema.clone(), self.values.clone(), &RecordBatchOptions::new().with_row_count(Some(1)))
            .map_err(wrong)
    }

    /// The batch with the metadata columns behind its own.
    ///
    /// # Errors
    /// The batch is not of the request's physical columns.
    pub fn append(&mut self, batch: RecordBatch) -> Result<RecordBatch, ConnectError> {
        if self.values.is_empty() {
            return Ok(batch);
        }
        let rows = batch.num_rows();
        if self.repeated[0].len() < rows {
            let zeros = UInt32Array::from(vec![0; rows.next_power_of_two()]);
            self.repeated = self.values.iter().map(|v| take(v.as_ref(), &zeros, None)).collect::<Result<_, _>>().map_err(wrong)?;
        }
        let mut columns = batch.columns().to_vec();
        columns.extend(self.repeated.iter().map(|c| c.slice(0, rows)));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &RecordBatchOptions::new().with_row_count(Some(rows)))
            .map_err(wrong)
    }
}

fn wrong(e: arrow::error::ArrowError) -> ConnectError {
    ConnectError::new(format!("adding the metadata columns of a file: {e}"))
}
