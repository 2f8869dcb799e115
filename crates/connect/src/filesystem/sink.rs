//! The directory of part files: names, commit by renaming, recovery, replacing it as a whole. Writing
//! is in `writer`.
//!
//! A writer fills `.part-<run>-<shard>-<n>.csv.inprogress`; a commit renames it to
//! `part-<run>-<shard>-<n>.csv`. Renaming is atomic and can be repeated, so every row appears
//! exactly once whatever moment a crash chooses. Readers of the directory pass over hidden names.
//! To replace what is there, the files go into a directory beside it, and the two change places.
//! A table may also be a single file (`sink.single-file`), which appears, or is replaced, in one step, too. Tables in
//! buckets are committed by `bucket`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use serde::{Deserialize, Serialize};
use tidemill_format::compression::Compression;
use tidemill_format::ipc::ArrowForm;

use super::FileFormat;
use super::bucket::Bucket;
use super::made::Made;
use super::partition::{self, PartitionedWriter};
use super::rename::{exchange, rename_new, sync_directory};
use super::writer::{AvroWriter, IpcWriter, Parts, TextWriter, Unnamed, WholeWriter, is_at};
use crate::{Committable, ConnectError, Sink, SinkContext, Writer};

/// Where a table is divided, many writers are open at once, each with a row group: none of them is larger, bytes.
const PARTITION_GROUP_BYTES_MAX: u64 = 16 << 20;

/// What every file name ends with until it is committed.
pub(super) const IN_PROGRESS: &str = ".inprogress";

/// When a part file is closed and the next one begun, at the latest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rolling {
    /// Bytes on disk.
    pub bytes: u64,
    /// Age.
    pub interval: Duration,
}

/// A finished part file, as the checkpoint keeps it: names within the directory.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Finished {
    /// The hidden name that it has.
    pub from: String,
    /// The name that it gets.
    pub to: String,
}

/// A table written as a directory of part files, or as one file.
#[derive(Clone)]
pub(super) struct FileSink {
    pub directory: PathBuf,
    /// Where the files go instead of the directory.
    pub bucket: Option<Bucket>,
    pub prefix: String,
    pub format: FileFormat,
    pub compression: Compression,
    pub rolling: Rolling,
    /// The file of the directory that is the table, if it is one file.
    pub single: Option<String>,
    /// That file, from its end until it is committed.
    pub unnamed: Unnamed,
    /// The directories that were not there before.
    pub made: Made,
    /// The columns by which rows are divided among directories of the directory.
    pub partition_by: Vec<String>,
}

impl FileSink {
    /// What the names of unfinished files begin with.
    fn unfinished_begin(&self) -> String {
        match &self.single {
            Some(name) => format!(".{name}{IN_PROGRESS}"),
            None => format!(".{}-", self.prefix),
        }
    }

    /// A writer of part files in the table's directory or in one below it (`year=2024/`).
    fn open(&self, stem: &str, below: Option<&str>, schema: SchemaRef) -> Result<Box<dyn Writer>, ConnectError> {
        let parts = match (&self.single, below) {
            (Some(name), _) => Parts::single(self.directory.clone(), name.clone(), self.unnamed.clone()),
            (None, None) => Parts::new(self.directory.clone(), stem.to_string(), self.extension(), self.rolling),
            (None, Some(below)) => Parts::new(self.directory.clone(), stem.to_string(), self.extension(), self.rolling).below(below),
        };
        let parts = parts.into_bucket(self.bucket.clone()).making(self.made.clone());
        Ok(match &self.format {
            FileFormat::Text(text) => Box::new(TextWriter::new(parts, text.encoder(&schema)?, self.compression)),
            FileFormat::Parquet(options) => {
                let mut options = options.clone();
                if below.is_some() {
                    options.row_group_bytes.0 = options.row_group_bytes.0.min(PARTITION_GROUP_BYTES_MAX);
                }
                Box::new(WholeWriter::parquet(parts, options, schema))
            }
            FileFormat::Avro(options) => Box::new(AvroWriter::new(parts, options.clone(), schema)),
            FileFormat::Arrow(options) => Box::new(IpcWriter::new(parts, options.clone(), schema)),
            FileFormat::Orc(options) => Box::new(WholeWriter::orc(parts, options.clone(), schema)),
            FileFormat::Xlsx(options) => Box::new(WholeWriter::xlsx(parts, options.clone(), schema)),
            FileFormat::Sas(sas) => Box::new(TextWriter::new(parts, sas.encoder(&schema)?, self.compression)),
        })
    }

    /// The extension of part files.
    fn extension(&self) -> String {
        match &self.format {
            FileFormat::Text(text) => format!("{}{}", text.extension(), self.compression.suffix()),
            FileFormat::Parquet(_) => "parquet".to_string(),
            FileFormat::Avro(_) => "avro".to_string(),
            FileFormat::Orc(_) => "orc".to_string(),
            FileFormat::Xlsx(_) => "xlsx".to_string(),
            FileFormat::Arrow(options) if options.form == ArrowForm::Stream => "arrows".to_string(),
            FileFormat::Arrow(_) => "arrow".to_string(),
            FileFormat::Sas(_) => "xpt".to_string(),
        }
    }

    /// Removes unfinished files whose names begin so from a directory and, where there are such, from those of partitions in it.
    /// Whether there were any.
    fn remove_unfinished(&self, directory: &Path, begin: &str) -> Result<bool, ConnectError> {
        let doing = || format!("removing unfinished part files from '{}'", directory.display());
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            // A fresh start: there is nothing yet, or nothing that could be a directory; the writers say which.
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(false),
            Err(e) => return Err(ConnectError::io(doing(), &e)),
        };
        let mut removed = false;
        for entry in entries {
            let entry = entry.map_err(|e| ConnectError::io(doing(), &e))?;
            let (name, path) = (entry.file_name(), entry.path());
            let Some(name) = name.to_str() else { continue };
            if name.starts_with(begin) && name.ends_with(IN_PROGRESS) {
                // Locked until it is removed: nobody begins to write it meanwhile.
                let _locked = match self.single.is_some().then(|| File::open(&path)) {
                    Some(Ok(file)) if !is_abandoned(&file, &path) => continue,
                    opened => opened,
                };
                match fs::remove_file(&path) {
                    Err(e) if e.kind() != ErrorKind::NotFound => {
                        return Err(ConnectError::io(format!("{}: '{}'", doing(), path.display()), &e));
                    }
                    _ => removed = true,
                }
            } else if !self.partition_by.is_empty() && name.contains('=') && path.is_dir() {
                removed |= self.remove_unfinished(&path, begin)?;
            }
        }
        if removed {
            sync(directory)?;
        }
        Ok(removed)
    }

    /// Makes the directory and looks whether it is one.
    fn create_directory(&self) -> Result<(), ConnectError> {
        let shown = self.directory.display();
        match self.made.create(&self.directory) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists || e.kind() == ErrorKind::NotADirectory => Err(ConnectError::new(format!(
                "the path of a sink is a directory that gets part files, but '{shown}' is, or lies below, a file; choose another 'path'"
            ))),
            other => other.map_err(|e| ConnectError::io(format!("creating the directory '{shown}'"), &e)),
        }
    }

    fn rename(&self, finished: &Finished) -> Result<(), ConnectError> {
        let (from, to) = (self.directory.join(&finished.from), self.directory.join(&finished.to));
        let doing = || format!("committing '{}' as '{}'", from.display(), to.display());
        let there = |path: &Path| path.try_exists().map_err(|e| ConnectError::io(doing(), &e));
        let taken = || {
            let why = "there is a file of that name already; move it elsewhere and start the job again";
            ConnectError::new(format!("{}: {why}", doing()))
        };
        match (there(&from)?, there(&to)?) {
            (true, false) => match rename_new(&from, &to) {
                // Another writer was faster by a moment.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => Err(taken()),
                other => other.map_err(|e| ConnectError::io(doing(), &e)),
            },
            // Committed before the crash.
            (false, true) => Ok(()),
            (true, true) => Err(taken()),
            (false, false) => Err(ConnectError::new(format!(
                "{}: neither file exists, so rows that the checkpoint counts as written are lost; restore the file, or start without the checkpoint",
                doing()
            ))),
        }
    }

    /// Puts finished files into the directory `fresh` and lets it change places with the table's.
    fn put_in_place(&self, fresh: &Path, directory: &Path, finished: &[Finished]) -> Result<(), ConnectError> {
        let failed = |e: std::io::Error| ConnectError::io(self.replacing(), &e);
        match fs::remove_dir_all(fresh) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(failed(e)),
            _ => fs::create_dir(fresh).map_err(failed)?,
        }
        fs::set_permissions(fresh, fs::metadata(directory).map_err(failed)?.permissions()).map_err(failed)?;
        for part in finished {
            let to = fresh.join(&part.to);
            to.parent().map_or(Ok(()), fs::create_dir_all).map_err(failed)?;
            fs::rename(directory.join(&part.from), to).map_err(failed)?;
        }
        self.sync_names(fresh, finished.iter().map(|part| part.to.as_str()))?;
        sync(fresh)?;
        exchange(fresh, directory).map_err(failed)
    }

    /// What is being done, for messages.
    fn replacing(&self) -> String {
        format!("replacing what is in '{}'", self.directory.display())
    }

    fn parse(&self, committable: &Committable) -> Result<Finished, ConnectError> {
        Finished::deserialize(committable).map_err(|e| {
            ConnectError::new(format!("the checkpoint has {committable} for '{}', which is no part file: {e}", self.directory.display()))
        })
    }

    /// Lets go of the single file: it has its name, or gets none.
    fn let_go(&self) {
        self.unnamed.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Makes the names of files, relative to `root`, survive a power failure, and those of their directories.
    fn sync_names<'a>(&self, root: &Path, names: impl Iterator<Item = &'a str>) -> Result<(), ConnectError> {
        let directories: BTreeSet<&Path> = names.flat_map(|name| Path::new(name).ancestors().skip(1)).collect();
        // The longest first: a directory's own name lies in the one above.
        directories.into_iter().rev().try_for_each(|below| sync(&root.join(below)))
    }
}

/// Makes the names in a directory survive a power failure.
fn sync(directory: &Path) -> Result<(), ConnectError> {
    sync_directory(directory).map_err(|e| ConnectError::io(format!("making the names in '{}' safe (fsync)", directory.display()), &e))
}

/// Whether no process is at work on an unfinished file, as on one that a killed process left; it is then locked.
fn is_abandoned(file: &File, path: &Path) -> bool {
    file.try_lock().is_ok() && is_at(file, path)
}

impl Sink for FileSink {
    fn accepts_updates(&self) -> bool {
        self.format.changelog()
    }

    fn parallelism(&self) -> Option<usize> {
        self.single.is_some().then_some(1)
    }

    fn own_thread(&self) -> bool {
        true
    }

    fn writer(&self, context: SinkContext) -> Result<Box<dyn Writer>, ConnectError> {
        let stem = match &self.bucket {
            Some(bucket) => bucket.stem(&self.prefix, &context.run_id, context.shard)?,
            None => {
                self.create_directory()?;
                format!("{}-{}-{}", self.prefix, context.run_id, context.shard)
            }
        };
        if self.partition_by.is_empty() {
            return self.open(&stem, None, context.schema);
        }
        let (sink, rest) = (self.clone(), partition::without(&context.schema, &self.partition_by)?);
        let open = move |below: &str, closed: u64| match closed {
            0 => sink.open(&stem, Some(below), rest.clone()),
            closed => sink.open(&format!("{stem}-{closed}"), Some(below), rest.clone()),
        };
        Ok(Box::new(PartitionedWriter::new(&context.schema, &self.partition_by, Box::new(open))?))
    }

    fn commit(&self, committables: &[Committable]) -> Result<(), ConnectError> {
        if let Some(bucket) = &self.bucket {
            return bucket.commit(committables);
        }
        if committables.is_empty() {
            return Ok(());
        }
        let finished = committables.iter().map(|c| self.parse(c)).collect::<Result<Vec<_>, _>>()?;
        let renamed = finished.iter().try_for_each(|part| self.rename(part));
        self.let_go();
        renamed?;
        self.sync_names(&self.directory, finished.iter().map(|part| part.to.as_str()))
    }

    fn keep_in(&self, directory: &Path) {
        if let Some(bucket) = &self.bucket {
            bucket.keep_in(directory);
        }
    }

    fn finished(&self) {
        if let Some(bucket) = &self.bucket {
            bucket.release();
        }
    }

    fn replaces(&self) -> bool {
        self.bucket.as_ref().is_none_or(Bucket::replaces)
    }

    fn replace(&self, committables: &[Committable]) -> Result<(), ConnectError> {
        if let Some(bucket) = &self.bucket {
            return bucket.replace(committables);
        }
        let finished = committables.iter().map(|c| self.parse(c)).collect::<Result<Vec<_>, _>>()?;
        if let Some(name) = &self.single {
            let to = self.directory.join(name);
            let renamed = finished.iter().try_for_each(|part| fs::rename(self.directory.join(&part.from), &to));
            self.let_go();
            renamed.map_err(|e| ConnectError::io(format!("replacing '{}'", to.display()), &e))?;
            return sync(&self.directory);
        }
        // Behind a link stands the directory that is meant, not the link.
        let directory = fs::canonicalize(&self.directory).map_err(|e| ConnectError::io(self.replacing(), &e))?;
        let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else {
            return Err(ConnectError::new(format!("{}: it is the root of the file system; choose another 'path'", self.replacing())));
        };
        let fresh = parent.join(format!(".{}.replacement", name.to_string_lossy()));
        if let Err(e) = self.put_in_place(&fresh, &directory, &finished) {
            // Nobody goes on with it, and the next one would begin by removing it.
            let _ = fs::remove_dir_all(&fresh);
            return Err(e);
        }
        sync(parent)?;
        // The new rows are there; old ones that cannot be removed cost space, nothing else.
        let _ = fs::remove_dir_all(&fresh);
        Ok(())
    }

    fn abandon(&self, run_id: &str) {
        if let Some(bucket) = &self.bucket {
            bucket.abandon(&self.prefix, run_id);
            return;
        }
        // A single file has no run in its name: another process's is known by its lock, and ours is unlocked now.
        self.let_go();
        let begin = match &self.single {
            Some(_) => self.unfinished_begin(),
            None => format!(".{}-{run_id}-", self.prefix),
        };
        // Why the job failed is more important than what is left.
        let _ = self.remove_unfinished(&self.directory, &begin);
        self.made.remove_empty();
    }

    fn recover(&self, committables: &[Committable], _run_id: &str) -> Result<(), ConnectError> {
        if let Some(bucket) = &self.bucket {
            return bucket.recover(committables, &self.prefix);
        }
        self.commit(committables)?;
        self.remove_unfinished(&self.directory, &self.unfinished_begin()).map(drop)
    }
}
