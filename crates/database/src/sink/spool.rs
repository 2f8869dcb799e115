//! Rows of an epoch in a file (an Arrow IPC stream) in the state directory: what a crash between a
//! checkpoint and its commit would otherwise lose. Writing it costs a copy of the rows into the page cache
//! and one synchronisation a checkpoint.

use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind};
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;

use crate::driver::DbError;

/// Bytes gathered before they are written.
const BUFFER_BYTES: usize = 1 << 20;

/// A file that is being written.
pub(super) struct Spool {
    path: PathBuf,
    writer: StreamWriter<BufWriter<File>>,
    /// Batches in the file.
    pub batches: usize,
    /// Rows in the file.
    pub rows: u64,
}

fn failed(doing: &str, path: &Path, e: impl std::fmt::Display) -> DbError {
    DbError::fatal(format!("{doing} '{}', which keeps rows until their checkpoint is committed: {e}", path.display()))
}

impl Spool {
    /// Begins a file; one that is there is of a run that came to nothing.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn create(path: PathBuf, schema: &SchemaRef) -> Result<Self, DbError> {
        let file = File::create(&path).map_err(|e| failed("creating", &path, e))?;
        let writer =
            StreamWriter::try_new(BufWriter::with_capacity(BUFFER_BYTES, file), schema).map_err(|e| failed("writing", &path, e))?;
        Ok(Spool { path, writer, batches: 0, rows: 0 })
    }

    /// Appends rows.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), DbError> {
        self.writer.write(batch).map_err(|e| failed("writing", &self.path, e))?;
        self.batches += 1;
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    /// The batches from number `skip` on, of those written so far.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn read_back(&mut self, skip: usize) -> Result<impl Iterator<Item = Result<RecordBatch, DbError>> + use<>, DbError> {
        self.writer.flush().map_err(|e| failed("writing", &self.path, e))?;
        // The stream has no end yet: no more is read than was written.
        Ok(read(&self.path)?.take(self.batches).skip(skip))
    }

    /// Ends the file and makes it and its name safe.
    ///
    /// # Errors
    /// It cannot be made safe.
    pub fn finish(mut self) -> Result<(), DbError> {
        let path = &self.path;
        self.writer.finish().map_err(|e| failed("writing", path, e))?;
        let synced = self.writer.get_ref().get_ref().sync_all();
        synced.map_err(|e| failed("making safe (fsync)", path, e))?;
        let directory = path.parent().unwrap_or(Path::new("."));
        File::open(directory).and_then(|d| d.sync_all()).map_err(|e| failed("making safe (fsync) the name of", path, e))
    }
}

/// The batches of a file.
///
/// # Errors
/// It is missing or damaged.
pub(super) fn read(path: &Path) -> Result<impl Iterator<Item = Result<RecordBatch, DbError>> + use<>, DbError> {
    let file = File::open(path).map_err(|e| {
        if e.kind() == ErrorKind::NotFound {
            failed(
                "opening",
                path,
                "it is gone, so rows that the checkpoint counts as written are lost; restore it, or start without the checkpoint",
            )
        } else {
            failed("opening", path, e)
        }
    })?;
    let reader = StreamReader::try_new(BufReader::with_capacity(BUFFER_BYTES, file), None).map_err(|e| failed("reading", path, e))?;
    let path = path.to_path_buf();
    Ok(reader.map(move |batch| batch.map_err(|e| failed("reading", &path, e))))
}
