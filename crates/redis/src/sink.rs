//! The sink: rows become entries of one stream, at once ([`crate::at_once`]) or with their checkpoint
//! ([`crate::exactly_once`]).

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde::Deserialize;
use tidemill_connect::{Committable, ConnectError, Sink, SinkContext, Writer};

use crate::address::Address;
use crate::at_once::{AtOnce, End};
use crate::connection::{Connection, Trouble, named, unexpected};
use crate::entries::{EntryEncoder, Trim};
use crate::exactly_once::{self, COLUMNS_MAX, Epoch, ExactlyOnce, Uncommitted};
use crate::lock;
use crate::options::Guarantee;
use crate::outage::{Outage, patiently};
use crate::rows::Layout;

/// The directory within the state directory.
const DIRECTORY: &str = "sinks";
/// How long a mark stays that nobody should ask for any more, seconds: what a network has held up for longer is lost.
const MARK_KEPT_S: &str = "86400";

/// Numbers the writers of the process.
static WRITERS: AtomicU64 = AtomicU64::new(0);

/// What is written, and how.
pub struct RedisSink {
    /// The table, for messages and the names of files.
    owner: String,
    address: Address,
    stream: String,
    layout: Layout,
    trim: Trim,
    guarantee: Guarantee,
    /// Bytes that a writer may hold.
    queue: usize,
    /// Where files go; known if the job keeps checkpoints.
    directory: Mutex<Option<PathBuf>>,
    commits: Mutex<Commits>,
    /// The job was asked to stop: nobody waits for a server for long any more.
    stopping: Arc<AtomicBool>,
}

/// What commits have in common.
#[derive(Default)]
struct Commits {
    connection: Option<Connection>,
    /// Marks of earlier runs, which can go when the next checkpoint is safe. Those of the last run stay: a job that has ended
    /// is asked for them when it is started again.
    stale: Vec<String>,
}

/// A number for a text that is the same in every build (FNV-1a).
fn fingerprint(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

impl RedisSink {
    /// A sink for a table; `owner` is its name in messages.
    pub fn new(owner: String, address: Address, stream: String, layout: Layout, trim: Trim, guarantee: Guarantee, queue: usize) -> Self {
        RedisSink {
            owner,
            address,
            stream,
            layout,
            trim,
            guarantee,
            queue,
            directory: Mutex::new(None),
            commits: Mutex::default(),
            stopping: Arc::default(),
        }
    }

    /// The directory for files.
    fn files(&self) -> Result<PathBuf, ConnectError> {
        lock(&self.directory).clone().ok_or_else(|| match self.guarantee {
            Guarantee::ExactlyOnce => {
                ConnectError::new("'sink.delivery-guarantee' = 'exactly-once' needs a place for checkpoints; run the job with --state-dir")
            }
            Guarantee::AtLeastOnce => ConnectError::new(
                "the checkpoint has entries of this table in files of its state directory; run the job with that --state-dir",
            ),
        })
    }

    /// What the names of this table's files begin with.
    fn prefix(&self) -> String {
        format!("redis-{:016x}-", fingerprint(&self.owner))
    }

    /// Adds the entries of epochs, in turn, for as long as it takes.
    fn commit_all(&self, epochs: &[Epoch], patient: bool) -> Result<(), ConnectError> {
        let mut outage = Outage::new(format!("{} (committing stream '{}')", self.address.name(), self.stream));
        let mut commits = lock(&self.commits);
        for epoch in epochs {
            let directory = self.files()?;
            loop {
                let trouble = match self.try_commit(&mut commits, epoch, &directory) {
                    Ok(()) => break,
                    Err(Uncommitted::Lost(error)) => return Err(error.at(self.address.name())),
                    Err(Uncommitted::Trouble(trouble)) => trouble,
                };
                match &trouble {
                    Trouble::Away(why) if patient && !self.stopping.load(Ordering::Relaxed) => {
                        outage.failed(why, || self.stopping.load(Ordering::Relaxed));
                    }
                    _ => return Err(named(&self.address, &trouble).at(format_args!("committing stream '{}'", epoch.stream))),
                }
            }
            outage.over();
            // One that cannot be removed costs space, until the next start removes it.
            let _ = fs::remove_file(directory.join(&epoch.file));
        }
        Ok(())
    }

    fn try_commit(&self, commits: &mut Commits, epoch: &Epoch, directory: &Path) -> Result<(), Uncommitted> {
        // One on which something went wrong is given up.
        let mut connection = match commits.connection.take() {
            Some(connection) => connection,
            None => Connection::open(&self.address)?,
        };
        exactly_once::commit(&mut connection, epoch, directory, self.trim)?;
        commits.connection = Some(connection);
        Ok(())
    }

    /// Lets marks end that nobody should ask for any more. One that stays costs a little space.
    fn retire(&self, commits: &mut Commits, marks: &[String]) {
        for mark in marks {
            let Some(connection) = &mut commits.connection else { return };
            if connection.ask(&[b"EXPIRE", mark.as_bytes(), MARK_KEPT_S.as_bytes()]).is_err() {
                commits.connection = None;
            }
        }
    }

    /// Removes files that belong to no checkpoint.
    fn remove_files(&self, directory: &Path) -> Result<(), ConnectError> {
        let doing = || format!("removing files of entries that belong to no checkpoint from '{}'", directory.display());
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(ConnectError::io(doing(), &e)),
        };
        let prefix = self.prefix();
        for entry in entries {
            let entry = entry.map_err(|e| ConnectError::io(doing(), &e))?;
            if entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix)) {
                match fs::remove_file(entry.path()) {
                    Err(e) if e.kind() != ErrorKind::NotFound => return Err(ConnectError::io(doing(), &e)),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Sees to it that the server is there and the key holds a stream, or nothing yet.
    fn check(&self) -> Result<(), ConnectError> {
        let kind = patiently(&self.address, |connection| {
            let reply = connection.ask(&[b"TYPE", self.stream.as_bytes()])?;
            reply.text().map(str::to_string).ok_or_else(|| unexpected("TYPE", &reply))
        })?;
        match kind.as_str() {
            "none" | "stream" => Ok(()),
            other => Err(ConnectError::new(format!("{}: the key '{}' holds a {other} and no stream", self.address.name(), self.stream))),
        }
    }
}

fn epochs(committables: &[Committable]) -> Result<Vec<Epoch>, ConnectError> {
    let epoch = |c: &Committable| {
        Epoch::deserialize(c).map_err(|e| {
            ConnectError::new(format!("the checkpoint has {c} for this table, which is no epoch of it: {e}; --fresh begins anew"))
        })
    };
    committables.iter().map(epoch).collect()
}

impl Sink for RedisSink {
    fn accepts_updates(&self) -> bool {
        matches!(&self.layout, Layout::Message { format, .. } if format.changelog())
    }

    fn own_thread(&self) -> bool {
        true
    }

    fn keep_in(&self, directory: &Path) {
        *lock(&self.directory) = Some(directory.join(DIRECTORY));
    }

    fn writer(&self, context: SinkContext) -> Result<Box<dyn Writer>, ConnectError> {
        let encoder = EntryEncoder::new(&self.layout, &context.schema)?;
        if self.guarantee == Guarantee::AtLeastOnce {
            let (address, stream) = (self.address.clone(), self.stream.clone());
            return Ok(Box::new(AtOnce::new(
                address,
                stream,
                self.trim,
                encoder,
                self.queue,
                End { cancelled: context.cancelled, stopping: self.stopping.clone() },
            )));
        }
        let directory = self.files()?;
        fs::create_dir_all(&directory).map_err(|e| ConnectError::io(format!("creating '{}'", directory.display()), &e))?;
        // A name for this writer and run, whatever other sinks of whatever jobs write to the same stream.
        let writer = format!("{}-{}", context.run_id, WRITERS.fetch_add(1, Ordering::Relaxed));
        let mark = format!("tidemill:{}:{:016x}-{writer}", self.stream, fingerprint(&self.owner));
        let files = (directory, format!("{}{writer}-", self.prefix()));
        Ok(Box::new(ExactlyOnce::new(encoder, self.stream.clone(), mark, files)))
    }

    fn commit(&self, committables: &[Committable]) -> Result<(), ConnectError> {
        self.commit_all(&epochs(committables)?, true)?;
        // The checkpoint that named those of earlier runs is no longer the newest.
        let mut commits = lock(&self.commits);
        let stale = std::mem::take(&mut commits.stale);
        if commits.connection.is_none() && !stale.is_empty() {
            commits.connection = Connection::open(&self.address).ok();
        }
        self.retire(&mut commits, &stale);
        Ok(())
    }

    fn stopping(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    fn recover(&self, committables: &[Committable], _run_id: &str) -> Result<(), ConnectError> {
        let epochs = epochs(committables)?;
        self.check()?;
        self.commit_all(&epochs, false)?;
        let directory = lock(&self.directory).clone();
        if let Some(directory) = directory {
            self.remove_files(&directory)?;
        }
        let mut stale: Vec<String> = epochs.into_iter().map(|epoch| epoch.mark).collect();
        stale.dedup();
        lock(&self.commits).stale = stale;
        Ok(())
    }
}

/// Whether a table of so many columns can be written so.
///
/// # Errors
/// It has too many.
pub fn check_columns(columns: usize, layout: &Layout, guarantee: Guarantee) -> Result<(), String> {
    match (layout, guarantee) {
        (Layout::Fields, Guarantee::ExactlyOnce) if columns > COLUMNS_MAX => {
            Err(format!("'exactly-once' takes up to {COLUMNS_MAX} columns as fields; write a message with 'value.format'"))
        }
        _ => Ok(()),
    }
}
