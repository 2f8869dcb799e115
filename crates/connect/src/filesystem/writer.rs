//! Writers of part files: one shard's rows as text or, in [`whole`], [`avro`] and [`ipc`], in formats that take batches, rolled by
//! size and age, onto a disk or into a bucket. They become visible elsewhere (`sink`, `bucket`).

mod avro;
mod ipc;
mod whole;

pub(super) use avro::AvroWriter;
pub(super) use ipc::IpcWriter;
pub(super) use whole::WholeWriter;

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidemill_block::Block;
use tidemill_format::Encoder;
use tidemill_format::compression::{self, CompressWriter, Compression};
use tidemill_store::StoreError;

use super::bucket::{Bucket, Upload};
use super::made::Made;
use super::page;
use super::sink::{Finished, IN_PROGRESS, Rolling};
use crate::{Committable, ConnectError, Writer, WriterStats};

/// Encoded bytes gathered before they are written.
const BUFFER_BYTES: usize = 256 << 10;
/// Rows encoded at once: a large block would otherwise make the buffer outgrow the cache.
const ROWS_MAX: usize = 4096;
/// So many bytes of a file go to the disk while more is written. A file is not done before it is safe there, and without this the
/// disk would begin when the processors end.
const WRITE_BACK_BYTES: u64 = 8 << 20;

/// Why a single file cannot be written between checkpoints.
const NOT_IN_STEPS: &str = "a checkpoint closes it, and a single file cannot go on; write a directory, or run the job in batch mode";

/// The file of a table that is one file: kept open, and so locked, from its end until it has its name.
pub(super) type Unnamed = Arc<Mutex<Option<Arc<File>>>>;

/// Whether an open file is the one that has this name, and no other has taken its place.
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::symlink_metadata(path)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    }
}

/// The part files of one writer: their names, the open one's age, the finished ones.
pub(super) struct Parts {
    directory: PathBuf,
    /// Where they go instead of the directory.
    bucket: Option<Bucket>,
    /// Where in the directory: `year=2024/`, or nothing.
    below: String,
    /// Notes the directories that come to be for them.
    made: Made,
    /// `prefix-run-shard`; the whole name if there is one file only.
    stem: String,
    /// All rows go into one file, which is there even if there are none.
    single: bool,
    /// Gets the single file when it is whole.
    unnamed: Unnamed,
    extension: String,
    rolling: Rolling,
    next: u64,
    finished: Vec<Committable>,
}

/// An open part file.
struct Part {
    out: Out,
    path: PathBuf,
    opened: Instant,
    /// Bytes in the file so far.
    written: Arc<AtomicU64>,
}

/// Where the bytes of a part file go.
#[derive(Clone)]
enum Out {
    /// A file, and the names that it has and gets.
    File(Arc<File>, Arc<Finished>),
    Object(Upload),
}

/// The file as encoders and compressors see it.
struct Counted {
    out: Out,
    written: Arc<AtomicU64>,
    /// Up to here the system was told to begin writing to the disk, bytes.
    begun: u64,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = match &mut self.out {
            Out::File(file, _) => (&**file).write(bytes)?,
            Out::Object(upload) => upload.write(bytes)?,
        };
        let written = self.written.fetch_add(n as u64, Ordering::Relaxed) + n as u64;
        if let Out::File(file, _) = &self.out
            && written - self.begun >= WRITE_BACK_BYTES
        {
            page::write_back(file, self.begun, written - self.begun);
            self.begun = written;
        }
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Part {
    fn counted(&self) -> Counted {
        Counted { out: self.out.clone(), written: self.written.clone(), begun: self.written.load(Ordering::Relaxed) }
    }

    fn of_file(file: File, path: PathBuf, names: Finished) -> Self {
        Part { out: Out::File(Arc::new(file), Arc::new(names)), path, opened: Instant::now(), written: Arc::default() }
    }

    fn wrong(&self, e: &io::Error) -> ConnectError {
        match e.get_ref().and_then(|e| e.downcast_ref::<StoreError>()) {
            // It says where it happened.
            Some(e) => ConnectError::new(e.to_string()),
            None => ConnectError::io(format!("writing '{}'", self.path.display()), e),
        }
    }
}

impl Parts {
    pub fn new(directory: PathBuf, stem: String, extension: String, rolling: Rolling) -> Self {
        assert!(!stem.contains('/'), "names of part files are names, not paths");
        Parts {
            directory,
            bucket: None,
            below: String::new(),
            made: Made::default(),
            stem,
            single: false,
            unnamed: Unnamed::default(),
            extension,
            rolling,
            next: 0,
            finished: Vec::new(),
        }
    }

    /// The part files go into a bucket.
    pub fn into_bucket(self, bucket: Option<Bucket>) -> Self {
        Parts { bucket, ..self }
    }

    /// The directories that come to be for the part files are noted there.
    pub fn making(self, made: Made) -> Self {
        Parts { made, ..self }
    }

    /// One file of this name for all rows.
    pub fn single(directory: PathBuf, name: String, unnamed: Unnamed) -> Self {
        let rolling = Rolling { bytes: u64::MAX, interval: Duration::MAX };
        Parts { single: true, unnamed, ..Parts::new(directory, name, String::new(), rolling) }
    }

    /// The part files lie in a directory of the directory, whose name ends with `/`.
    pub fn below(self, below: &str) -> Self {
        assert!(below.ends_with('/'), "the name of a directory");
        Parts { below: below.to_string(), ..self }
    }

    /// Whether a file is to be made though there are no rows.
    fn lacks_file(&self, last: bool) -> bool {
        last && self.single && self.next == 0
    }

    /// Refuses to close a single file, of which `begun` says whether there are rows, before its last row: it would be seen
    /// before it is whole.
    fn check_last(&self, last: bool, begun: bool) -> Result<(), ConnectError> {
        if last || !begun || !self.single {
            return Ok(());
        }
        Err(ConnectError::new(format!("writing '{}': {NOT_IN_STEPS}", self.directory.join(&self.stem).display())))
    }

    /// The file of a table that is one file. It is locked while it is written, so that another writer can tell
    /// it from what a killed one left behind.
    fn create_single(&mut self) -> Result<Part, ConnectError> {
        let names = Finished { from: format!(".{}{IN_PROGRESS}", self.stem), to: self.stem.clone() };
        let path = self.directory.join(&names.from);
        if self.next > 0 {
            return Err(ConnectError::new(format!("writing '{}': {NOT_IN_STEPS}", self.directory.join(&names.to).display())));
        }
        self.next = 1;
        if let Some(bucket) = &self.bucket {
            return Self::create_object(bucket, &names.to);
        }
        let file = OpenOptions::new().write(true).create_new(true).open(&path).and_then(|file| match file.try_lock() {
            Ok(()) if is_at(&file, &path) => Ok(file),
            // Before it was locked, somebody took it for one that was left behind, and removed it.
            Ok(()) => Err(ErrorKind::AlreadyExists.into()),
            Err(e) => Err(e.into()),
        });
        match file {
            Err(e) if e.kind() == ErrorKind::AlreadyExists || e.kind() == ErrorKind::WouldBlock => {
                let shown = self.directory.join(&names.to);
                Err(ConnectError::new(format!("another process is writing '{}'; wait for it, or write elsewhere", shown.display())))
            }
            Err(e) => Err(ConnectError::io(format!("creating '{}'", path.display()), &e)),
            Ok(file) => Ok(Part::of_file(file, path, names)),
        }
    }

    /// Begins a part file in a bucket. Its name is nobody else's: it holds the run and, where it must, the sink.
    fn create_object(bucket: &Bucket, name: &str) -> Result<Part, ConnectError> {
        let (upload, path) = bucket.create(name)?;
        Ok(Part { out: Out::Object(upload), path, opened: Instant::now(), written: Arc::default() })
    }

    /// Begins the next part file.
    fn create(&mut self) -> Result<Part, ConnectError> {
        if self.single {
            return self.create_single();
        }
        if let Some(bucket) = &self.bucket {
            let name = format!("{}{}-{}.{}", self.below, self.stem, self.next, self.extension);
            self.next += 1;
            return Self::create_object(bucket, &name);
        }
        // Another job that failed may have taken it away while it was empty.
        let directory = self.directory.join(&self.below);
        let doing = || format!("creating the directory '{}'", directory.display());
        self.made.create(&directory).map_err(|e| ConnectError::io(doing(), &e))?;
        loop {
            let name = format!("{}-{}.{}", self.stem, self.next, self.extension);
            let names = Finished { from: format!("{}.{name}{IN_PROGRESS}", self.below), to: format!("{}{name}", self.below) };
            self.next += 1;
            let path = self.directory.join(&names.from);
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                // Another sink of the job has the same directory: the number is taken.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => return Err(ConnectError::io(format!("creating '{}'", path.display()), &e)),
                Ok(_) if self.directory.join(&names.to).exists() => {
                    std::fs::remove_file(&path).map_err(|e| ConnectError::io(format!("removing '{}'", path.display()), &e))?;
                }
                Ok(file) => return Ok(Part::of_file(file, path, names)),
            }
        }
    }

    /// Whether the part is to be closed, `buffered` bytes being on their way to it.
    fn due(&self, part: &Part, buffered: usize) -> bool {
        part.written.load(Ordering::Relaxed) + buffered as u64 >= self.rolling.bytes || part.opened.elapsed() >= self.rolling.interval
    }

    /// Makes a completely written part safe: on disk, or up in the bucket.
    fn seal(&mut self, part: Part) -> Result<(), ConnectError> {
        let finished = match part.out {
            Out::File(file, names) => {
                file.sync_all().map_err(|e| ConnectError::io(format!("making '{}' safe (fsync)", part.path.display()), &e))?;
                if self.single {
                    *self.unnamed.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
                }
                serde_json::json!({ "from": names.from, "to": names.to })
            }
            Out::Object(upload) => upload.finish()?,
        };
        self.finished.push(finished);
        Ok(())
    }

    fn take(&mut self) -> Vec<Committable> {
        std::mem::take(&mut self.finished)
    }
}

/// Writes text.
pub(super) struct TextWriter {
    parts: Parts,
    encoder: Box<dyn Encoder>,
    compression: Compression,
    open: Option<(Part, Box<dyn CompressWriter>)>,
    /// Encoded and not yet written; always of the open part.
    buffer: Vec<u8>,
    /// Encoded bytes that were written.
    bytes: u64,
}

impl TextWriter {
    pub fn new(parts: Parts, encoder: Box<dyn Encoder>, compression: Compression) -> Self {
        TextWriter { parts, encoder, compression, open: None, buffer: Vec::with_capacity(2 * BUFFER_BYTES), bytes: 0 }
    }

    /// Begins a part file.
    fn begin(&mut self) -> Result<(), ConnectError> {
        let part = self.parts.create()?;
        let out = compression::writer(Box::new(part.counted()), self.compression, None).map_err(|e| part.wrong(&e))?;
        self.encoder.begin(&mut self.buffer);
        self.open = Some((part, out));
        Ok(())
    }

    fn encode(&mut self, rows: &Block) -> Result<(), ConnectError> {
        if self.open.is_none() {
            self.begin()?;
        }
        let (part, _) = self.open.as_mut().expect("begun above");
        self.encoder.encode(rows, &mut self.buffer).map_err(|e| ConnectError::from(e).at(format!("writing '{}'", part.path.display())))?;
        if self.buffer.len() >= BUFFER_BYTES {
            self.drain()?;
        }
        Ok(())
    }

    /// Writes the buffer.
    fn drain(&mut self) -> Result<(), ConnectError> {
        if let Some((part, out)) = &mut self.open {
            out.write_all(&self.buffer).map_err(|e| part.wrong(&e))?;
            self.bytes += self.buffer.len() as u64;
        }
        self.buffer.clear();
        Ok(())
    }

    fn close(&mut self) -> Result<(), ConnectError> {
        if self.open.is_some() {
            self.encoder.end(&mut self.buffer);
        }
        self.drain()?;
        if let Some((part, out)) = self.open.take() {
            out.finish().map_err(|e| part.wrong(&e))?;
            self.parts.seal(part)?;
        }
        Ok(())
    }

    fn roll(&mut self) -> Result<(), ConnectError> {
        match &self.open {
            Some((part, _)) if self.parts.due(part, self.buffer.len()) => self.close(),
            _ => Ok(()),
        }
    }
}

impl Writer for TextWriter {
    fn write(&mut self, block: &Block) -> Result<(), ConnectError> {
        let rows = block.rows();
        if rows <= ROWS_MAX {
            if rows > 0 {
                self.encode(block)?;
            }
        } else {
            for from in (0..rows).step_by(ROWS_MAX) {
                self.encode(&block.slice(from, ROWS_MAX.min(rows - from)))?;
            }
        }
        self.roll()
    }

    fn flush(&mut self) -> Result<(), ConnectError> {
        // Nobody sees the rows before the commit, so only the age of the file matters here.
        self.roll()
    }

    fn prepare(&mut self, last: bool) -> Result<Vec<Committable>, ConnectError> {
        self.parts.check_last(last, self.open.is_some())?;
        if self.parts.lacks_file(last) {
            self.begin()?;
        }
        self.close()?;
        Ok(self.parts.take())
    }

    fn stats(&self) -> WriterStats {
        WriterStats { bytes: self.bytes + self.buffer.len() as u64 }
    }
}
