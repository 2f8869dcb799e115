//! The streams of the process by name.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, RwLock};

use tidemill_block::clock;
use tidemill_connect::ConnectError;

use crate::connector::directory_name;
use crate::error::{HubError, io};
use crate::stream::Stream;

/// What the directory of a stream that is being removed begins with; no stream's does.
const REMOVED: &str = ".removed-";

/// The streams of a process. Jobs make them as they begin to read or write them; a stream stays known
/// when its job has ended.
pub struct Hub {
    serving: RwLock<Option<Serving>>,
    streams: RwLock<BTreeMap<String, Arc<Stream>>>,
    instance: OnceLock<String>,
}

/// That there is somebody through whom publishers and subscribers come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Serving {
    /// Where logs and contents of streams are kept; without it they are not.
    pub directory: Option<PathBuf>,
}

impl Serving {
    /// Where a stream is kept on disk.
    pub fn directory_of(&self, stream: &str) -> Option<PathBuf> {
        self.directory.as_ref().map(|d| d.join("streams").join(directory_name(stream)))
    }
}

static GLOBAL: Hub = Hub::new();

impl Hub {
    pub(crate) const fn new() -> Self {
        Hub { serving: RwLock::new(None), streams: RwLock::new(BTreeMap::new()), instance: OnceLock::new() }
    }

    /// The hub of this process.
    pub fn global() -> &'static Hub {
        &GLOBAL
    }

    /// Tells this process from those before and after it: each counts the rows of `live` streams from 0.
    pub fn instance(&self) -> &str {
        self.instance.get_or_init(|| format!("{:x}-{:x}", clock::wall_ms(), std::process::id()))
    }

    /// From now on jobs may read and write streams. Logs and contents are kept in `directory`.
    pub fn serve(&self, directory: Option<PathBuf>) {
        // Streams whose removal was cut short.
        let entries = directory.as_ref().and_then(|d| fs::read_dir(d.join("streams")).ok());
        for entry in entries.into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(REMOVED) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        *self.serving.write().expect("no panic while held") = Some(Serving { directory });
    }

    /// Whether anybody can publish and subscribe at all.
    ///
    /// # Errors
    /// Nobody can.
    pub(crate) fn serving(&self) -> Result<Serving, ConnectError> {
        self.serving.read().expect("no panic while held").clone().ok_or_else(|| {
            ConnectError::new("connector 'stream' needs `tidemill serve`: a job that is only run has no publishers and no subscribers")
        })
    }

    /// The stream called `name`, if a job of this process reads or writes it or has done so.
    pub fn stream(&self, name: &str) -> Option<Arc<Stream>> {
        self.streams.read().expect("no panic while held").get(name).cloned()
    }

    /// All streams, by name.
    pub fn streams(&self) -> Vec<Arc<Stream>> {
        self.streams.read().expect("no panic while held").values().cloned().collect()
    }

    /// Removes what is kept on disk of a stream: its log with all acknowledgements, its contents. True if
    /// there was anything. Whoever writes a stream of this name later begins with row 0.
    ///
    /// # Errors
    /// [`HubError::Refused`]: a running job writes the stream. [`HubError::Io`]: not all could be removed.
    pub fn remove(&self, name: &str) -> Result<bool, HubError> {
        let serving = self.serving.read().expect("no panic while held").clone();
        let Some(directory) = serving.and_then(|s| s.directory_of(name)) else { return Ok(false) };
        let gone = directory.with_file_name(format!("{REMOVED}{}", directory_name(name)));
        let failed = |e: &std::io::Error| io(format_args!("removing stream '{name}' from '{}'", directory.display()), e);
        let clear = || match fs::remove_dir_all(&gone) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(failed(&e)),
            _ => Ok(()),
        };
        // What an earlier removal that was cut short has left.
        clear()?;
        // At once under another name, so that nobody finds half of it.
        let renamed = match self.stream(name) {
            None => fs::rename(&directory, &gone),
            Some(stream) => stream.unwritten(|| Ok(fs::rename(&directory, &gone))).map_err(|_| {
                HubError::Refused(format!("stream '{name}' cannot be removed while a running job writes it; stop that job first"))
            })?,
        };
        match renamed {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(failed(&e)),
            Ok(()) => clear()?,
        }
        Ok(true)
    }

    /// The stream called `name`, made if there is none.
    pub(crate) fn enter(&self, name: &str) -> Arc<Stream> {
        if let Some(stream) = self.stream(name) {
            return stream;
        }
        let mut streams = self.streams.write().expect("no panic while held");
        streams.entry(name.to_string()).or_insert_with(|| Arc::new(Stream::new(name))).clone()
    }
}
