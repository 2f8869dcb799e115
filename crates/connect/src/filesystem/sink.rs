//! The directory of part files: names, commit by renaming, recovery, replacing it as a whole. Writing
//! is in `writer`.
//!
//! A writer fills `.part-<run>-<shard>-<n>.csv.inprogress`; a commit renames it to
//! `part-<run>-<shard>-<n>.csv`. Renaming is atomic and can be repeated, so every row appears
//! exactly once whatever moment a crash chooses. Readers of the directory pass over hidden names.
//! To replace what is there, the files go into a directory beside it, and the two change places.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidemill_format::compression::Compression;

use super::FileFormat;
use super::writer::{AvroWriter, ParquetWriter, Parts, TextWriter};
use crate::{Committable, ConnectError, Sink, SinkContext, Writer};

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

/// A table written as a directory of part files.
pub(super) struct FileSink {
    pub directory: PathBuf,
    pub prefix: String,
    pub format: FileFormat,
    pub compression: Compression,
    pub rolling: Rolling,
}

impl FileSink {
    /// Makes the directory and looks whether it is one.
    fn create_directory(&self) -> Result<(), ConnectError> {
        let shown = self.directory.display();
        match fs::create_dir_all(&self.directory) {
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
        match (there(&from)?, there(&to)?) {
            (true, false) => fs::rename(&from, &to).map_err(|e| ConnectError::io(doing(), &e)),
            // Committed before the crash.
            (false, true) => Ok(()),
            (true, true) => Err(ConnectError::new(format!(
                "{}: there is a file of that name already; move it elsewhere and start the job again",
                doing()
            ))),
            (false, false) => Err(ConnectError::new(format!(
                "{}: neither file exists, so rows that the checkpoint counts as written are lost; restore the file, or start without the checkpoint",
                doing()
            ))),
        }
    }

    fn parse(&self, committable: &Committable) -> Result<Finished, ConnectError> {
        Finished::deserialize(committable).map_err(|e| {
            ConnectError::new(format!("the checkpoint has {committable} for '{}', which is no part file: {e}", self.directory.display()))
        })
    }

    /// Makes renamed and removed names survive a power failure.
    fn sync_directory(&self) -> Result<(), ConnectError> {
        sync(&self.directory)
    }
}

fn sync(directory: &Path) -> Result<(), ConnectError> {
    File::open(directory)
        .and_then(|d| d.sync_all())
        .map_err(|e| ConnectError::io(format!("making the names in '{}' safe (fsync)", directory.display()), &e))
}

/// Lets two directories change places in one step.
#[cfg(target_os = "linux")]
fn exchange(one: &Path, other: &Path) -> std::io::Result<()> {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    let one = CString::new(one.as_os_str().as_bytes())?;
    let other = CString::new(other.as_os_str().as_bytes())?;
    // SAFETY: both are texts that end with a zero byte and live until the call returns.
    let code = unsafe { libc::renameat2(libc::AT_FDCWD, one.as_ptr(), libc::AT_FDCWD, other.as_ptr(), libc::RENAME_EXCHANGE) };
    if code == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Lets two directories change places; for a moment there is only one.
#[cfg(not(target_os = "linux"))]
fn exchange(one: &Path, other: &Path) -> std::io::Result<()> {
    let aside = one.with_extension("aside");
    fs::rename(other, &aside)?;
    fs::rename(one, other)?;
    fs::rename(&aside, one)
}

impl Sink for FileSink {
    fn accepts_updates(&self) -> bool {
        self.format.changelog()
    }

    fn own_thread(&self) -> bool {
        true
    }

    fn writer(&self, context: SinkContext) -> Result<Box<dyn Writer>, ConnectError> {
        self.create_directory()?;
        let extension = match &self.format {
            FileFormat::Text(text) => format!("{}{}", text.extension(), self.compression.suffix()),
            FileFormat::Parquet(_) => "parquet".to_string(),
            FileFormat::Avro(_) => "avro".to_string(),
        };
        let parts =
            Parts::new(self.directory.clone(), format!("{}-{}-{}", self.prefix, context.run_id, context.shard), extension, self.rolling);
        Ok(match &self.format {
            FileFormat::Text(text) => Box::new(TextWriter::new(parts, text.encoder(&context.schema)?, self.compression)),
            FileFormat::Parquet(options) => Box::new(ParquetWriter::new(parts, options.clone(), context.schema)),
            FileFormat::Avro(options) => Box::new(AvroWriter::new(parts, options.clone(), context.schema)),
        })
    }

    fn commit(&self, committables: &[Committable]) -> Result<(), ConnectError> {
        if committables.is_empty() {
            return Ok(());
        }
        for committable in committables {
            self.rename(&self.parse(committable)?)?;
        }
        self.sync_directory()
    }

    fn replaces(&self) -> bool {
        true
    }

    fn replace(&self, committables: &[Committable]) -> Result<(), ConnectError> {
        let finished = committables.iter().map(|c| self.parse(c)).collect::<Result<Vec<_>, _>>()?;
        let doing = || format!("replacing what is in '{}'", self.directory.display());
        let failed = |e: std::io::Error| ConnectError::io(doing(), &e);
        // Behind a link stands the directory that is meant, not the link.
        let directory = fs::canonicalize(&self.directory).map_err(failed)?;
        let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else {
            return Err(ConnectError::new(format!("{}: it is the root of the file system; choose another 'path'", doing())));
        };
        let fresh = parent.join(format!(".{}.replacement", name.to_string_lossy()));
        match fs::remove_dir_all(&fresh) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(failed(e)),
            _ => fs::create_dir(&fresh).map_err(failed)?,
        }
        fs::set_permissions(&fresh, fs::metadata(&directory).map_err(failed)?.permissions()).map_err(failed)?;
        for part in &finished {
            fs::rename(directory.join(&part.from), fresh.join(&part.to)).map_err(failed)?;
        }
        sync(&fresh)?;
        exchange(&fresh, &directory).map_err(failed)?;
        sync(parent)?;
        // The new rows are there; old ones that cannot be removed cost space, nothing else.
        let _ = fs::remove_dir_all(&fresh);
        Ok(())
    }

    fn recover(&self, committables: &[Committable], _run_id: &str) -> Result<(), ConnectError> {
        self.commit(committables)?;
        let doing = || format!("removing unfinished part files from '{}'", self.directory.display());
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            // A fresh start: there is nothing yet, or nothing that could be a directory; the writers say which.
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(()),
            Err(e) => return Err(ConnectError::io(doing(), &e)),
        };
        let begin = format!(".{}-", self.prefix);
        let mut removed = false;
        for entry in entries {
            let entry = entry.map_err(|e| ConnectError::io(doing(), &e))?;
            let name = entry.file_name();
            if name.to_str().is_some_and(|n| n.starts_with(&begin) && n.ends_with(IN_PROGRESS)) {
                match fs::remove_file(entry.path()) {
                    Err(e) if e.kind() != ErrorKind::NotFound => {
                        return Err(ConnectError::io(format!("{}: '{}'", doing(), entry.path().display()), &e));
                    }
                    _ => removed = true,
                }
            }
        }
        if removed { self.sync_directory() } else { Ok(()) }
    }
}
