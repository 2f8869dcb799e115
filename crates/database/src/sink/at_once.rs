//! Rows that are visible as soon as they are written: upserts and deletes by key, for which replaying is
//! harmless, and rows that are appended at least once. A batch is a transaction, a large one of
//! upserts several, in order of key.

use tidemill_block::Block;
use tidemill_connect::{Committable, ConnectError};

use super::arrivals::{Arrivals, Told};
use super::batch::{self, Folded};
use super::refused::Operation;
use super::turn::Turn;
use super::{Lane, Shared};
use crate::driver::{Connection, DbError, DbErrorKind};
use crate::session::Session;

/// The connection of a writer that writes at once.
pub(super) struct AtOnce {
    shared: std::sync::Arc<Shared>,
    session: Session,
    told: Told,
    _turn: Option<Turn>,
}

impl AtOnce {
    pub fn new(shared: std::sync::Arc<Shared>, session: Session, told: Told, turn: Option<Turn>) -> Self {
        AtOnce { shared, session, told, _turn: turn }
    }

    /// Writes in a transaction; with `careful` all rows but those that the database refuses.
    fn transaction(&mut self, folded: &Folded, operation: Operation, careful: bool) -> Result<(), DbError> {
        let shared = &self.shared;
        self.session.transaction(|connection: &mut dyn Connection| {
            // First what goes: a new row may have the unique value of an old one.
            for (operation, rows) in [(Operation::Delete, &folded.deletes), (operation, &folded.upserts)] {
                if careful && rows.num_rows() > 0 {
                    operation.carefully(connection, &shared.target, rows, &shared.refusals)?;
                } else {
                    operation.run(connection, &shared.target, rows)?;
                }
            }
            Ok(())
        })
    }
}

impl Lane for AtOnce {
    fn write(&mut self, blocks: Vec<Block>) -> Result<(), ConnectError> {
        let mut arrivals = Arrivals::default();
        arrivals.add(&blocks);
        let target = &self.shared.target;
        let (folded, operation) = if target.key.is_empty() {
            let rows = Block::concat_columns(&target.schema, &blocks).map_err(DbError::from)?;
            (Folded { deletes: rows.slice(0, 0), upserts: rows }, Operation::Append)
        } else {
            (batch::fold(&target.schema, &blocks, &target.key)?, Operation::Upsert)
        };
        // Another batch gathers meanwhile: of this one there is one copy from here on.
        drop(blocks);
        let parts = match operation {
            Operation::Upsert => folded.parts(self.session.access().driver.part_bytes()),
            _ => vec![folded],
        };
        for part in &parts {
            match self.transaction(part, operation, false) {
                Err(e) if e.kind == DbErrorKind::Data => self.transaction(part, operation, true)?,
                other => other?,
            }
        }
        self.told.tell(&arrivals);
        Ok(())
    }

    fn prepare(&mut self) -> Result<Vec<Committable>, ConnectError> {
        // Everything is committed already.
        Ok(Vec::new())
    }
}
