//! Rows that are visible as soon as they are written: upserts and deletes by key, for which replaying is
//! harmless, and rows that are appended at least once. A batch is a transaction, a large one of
//! upserts several, in order of key.
//!
//! Some rows are taken only together: one takes a unique value that another gives up, or refers to it by a constraint
//! that is deferred. So where a part is refused, all of its batch is tried in one transaction.

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
            _ => vec![folded.clone()],
        };
        let mut refused = false;
        for part in &parts {
            if self.session.is_cancelled() {
                return Err(ConnectError::new("the job is being stopped"));
            }
            match self.transaction(part, operation, false) {
                Err(e) if e.kind == DbErrorKind::Data => {
                    refused = true;
                    break;
                }
                other => other?,
            }
        }
        if refused && parts.len() > 1 {
            // What parts have committed is written once more, which changes nothing.
            refused = match self.transaction(&folded, operation, false) {
                Err(e) if e.kind == DbErrorKind::Data => true,
                other => other.map(|()| false)?,
            };
        }
        if refused {
            self.transaction(&folded, operation, true)?;
        }
        self.told.tell(&arrivals);
        Ok(())
    }

    fn prepare(&mut self) -> Result<Vec<Committable>, ConnectError> {
        // Everything is committed already.
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use arrow::datatypes::{DataType, Field, Schema};
    use tempfile::TempDir;
    use tidemill_block::text;

    use super::super::refused::Refusals;
    use super::*;
    use crate::driver::{Dialect, Driver, Target};
    use crate::options::OnRefused;
    use crate::session::Access;

    /// Each row is a part.
    struct InParts(Arc<dyn Driver>);

    impl Driver for InParts {
        fn name(&self) -> &'static str {
            self.0.name()
        }

        fn dialect(&self) -> &'static dyn Dialect {
            self.0.dialect()
        }

        fn connect(&self, timeout: Duration) -> Result<Box<dyn Connection>, DbError> {
            self.0.connect(timeout)
        }

        fn part_bytes(&self) -> usize {
            1
        }
    }

    /// Upserts rows of two numbers into a table, in parts; what is there then as text, and the refused rows.
    fn upsert(table: &str, rows: &str, cancelled: bool) -> (Result<(), String>, String, usize) {
        let directory = TempDir::new().unwrap();
        let file = directory.path().join("t.db").display().to_string();
        let letters = directory.path().join("refused").display().to_string();
        let url = crate::url::Url::parse(&format!("jdbc:sqlite:{file}")).unwrap();
        let access = Access {
            driver: Arc::new(InParts(crate::sqlite::driver(&url).unwrap())),
            place: "SQLite".into(),
            connect_timeout: Duration::from_secs(5),
            retry_timeout: Duration::ZERO,
            max_retries: 0,
        };
        let look = rusqlite::Connection::open(&file).unwrap();
        look.execute_batch(table).unwrap();
        let field = |name| Field::new(name, DataType::Int64, true);
        let schema = Arc::new(Schema::new(vec![field("id"), field("v")]));
        let shared = Arc::new(Shared {
            target: Target { table: "t".into(), schema: schema.clone(), key: vec![0] },
            refusals: Refusals::new("t".into(), OnRefused::DeadLetter, Some(letters.clone())),
        });
        let session = Session::new(access, Arc::new(AtomicBool::new(cancelled)));
        let mut lane = AtOnce::new(shared, session, Told::default(), None);
        let written = lane.write(vec![text::parse(&schema, rows)]).map_err(|e| e.to_string());
        let sql = "SELECT coalesce(group_concat(id || ':' || v, ' '), '') FROM (SELECT * FROM t ORDER BY id)";
        let found = look.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap();
        (written, found, std::fs::read_to_string(&letters).unwrap_or_default().lines().count())
    }

    /// A part whose rows refer to those of another was refused, and the job with it.
    #[test]
    fn rows_that_are_taken_only_together() {
        let table = "CREATE TABLE t (id INTEGER PRIMARY KEY, v INTEGER REFERENCES t (id) DEFERRABLE INITIALLY DEFERRED)";
        assert_eq!(upsert(table, "1 2\n2 3\n3 1", false), (Ok(()), "1:2 2:3 3:1".into(), 0));
    }

    #[test]
    fn refused_rows_of_parts_are_named_once() {
        let table = "CREATE TABLE t (id INTEGER PRIMARY KEY, v INTEGER CHECK (v < 10))";
        assert_eq!(upsert(table, "1 1\n2 20\n3 3\n4 40\n5 5", false), (Ok(()), "1:1 3:3 5:5".into(), 2));
    }

    #[test]
    fn parts_end_with_the_job() {
        let (written, found, _) = upsert("CREATE TABLE t (id INTEGER PRIMARY KEY, v INTEGER)", "1 1\n2 2", true);
        assert!(written.unwrap_err().contains("being stopped") && found.is_empty());
    }
}
