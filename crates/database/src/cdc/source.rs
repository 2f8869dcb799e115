//! The source: one split, the table with its log.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::datatypes::{FieldRef, Schema};
use tidemill_connect::{Changelog, ConnectError, ReadRequest, Reader, ReaderContext, Source, Split};

use super::follow::{ChangeLog, Followed};
use super::gate::Gate;
use super::options::Startup;
use super::position::Position;
use super::reader::{CdcReader, Settings};
use crate::session::Access;

/// The only split.
const TABLE: &str = "table";

/// Makes the log of a database for what is followed. What is committed everywhere is told through the number: the byte of
/// the log up to which it may be forgotten (of PostgreSQL's; others forget by themselves).
pub(super) type MakeLog = Box<dyn Fn(&Followed, Arc<AtomicU64>) -> Box<dyn ChangeLog> + Send + Sync>;

/// A table that is followed. See the module `cdc`.
pub(super) struct CdcSource {
    pub owner: String,
    pub access: Access,
    /// The table's name with what stands in front of it.
    pub table: String,
    /// The names of the columns of the primary key.
    pub key: Vec<String>,
    pub startup: Startup,
    pub changelog: Changelog,
    pub fetch_size: usize,
    pub make: MakeLog,
    /// Where the log may be forgotten before.
    pub committed: Arc<AtomicU64>,
    /// Keeps the first rows back.
    pub gate: Arc<Gate>,
}

impl CdcSource {
    /// The columns to read for a request: those wanted, then those of the key.
    fn followed(&self, request: &ReadRequest) -> Result<Followed, ConnectError> {
        let mut columns = request.projection.clone();
        let mut key = Vec::with_capacity(self.key.len());
        for name in &self.key {
            let index = request.physical.index_of(name).map_err(|_| {
                ConnectError::new(format!("{}: column '{name}' of the primary key is no physical column of the table", self.owner))
            })?;
            let place = columns.iter().position(|c| *c == index).unwrap_or_else(|| {
                columns.push(index);
                columns.len() - 1
            });
            key.push(place);
        }
        if columns.is_empty() {
            // Rows are counted; a row of no columns is nothing that databases send.
            columns.push(0);
        }
        let fields: Vec<FieldRef> = columns.iter().map(|i| request.physical.fields()[*i].clone()).collect();
        Ok(Followed { table: self.table.clone(), schema: Arc::new(Schema::new(fields)), key })
    }
}

impl Source for CdcSource {
    fn bounded(&self) -> bool {
        false
    }

    fn splits(&self, _parallelism: usize) -> Result<Vec<Split>, ConnectError> {
        Ok(vec![Split::new(TABLE)])
    }

    fn changelog(&self) -> Changelog {
        self.changelog
    }

    fn open(&self, split: &Split, context: ReaderContext) -> Result<Box<dyn Reader>, ConnectError> {
        let position = split.position.as_ref().map(|p| Position::of(p, &self.owner)).transpose()?.flatten();
        let followed = self.followed(&context.request)?;
        self.committed.store(position.as_ref().map_or(0, |p| p.from.at), Ordering::Relaxed);
        let log = (self.make)(&followed, self.committed.clone());
        if position.is_none() {
            self.gate.close();
        } else {
            self.gate.open();
        }
        let settings = Settings { access: self.access.clone(), startup: self.startup, fetch_size: self.fetch_size };
        let reader = CdcReader::start(log, followed, settings, position, self.gate.clone(), context)?;
        Ok(Box::new(reader))
    }

    fn one_split(&self) -> bool {
        true
    }

    /// Before the place in the log is known there is no position.
    fn replays(&self) -> Option<bool> {
        Some(true)
    }

    fn committed(&self, positions: &[serde_json::Value]) {
        let committed = positions.iter().filter_map(|p| Position::of(p, &self.owner).ok().flatten()).map(|p| p.from.at).max();
        if let Some(at) = committed {
            self.committed.fetch_max(at, Ordering::Relaxed);
            self.gate.open();
        }
    }

    fn wants_checkpoint(&self) -> bool {
        self.gate.asks()
    }
}
