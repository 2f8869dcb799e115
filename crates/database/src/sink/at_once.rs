//! Rows that are visible as soon as they are written: upserts and deletes by key, for which replaying is
//! harmless, and rows that are appended at least once. A batch is a transaction, a large one of
//! upserts several, in order of key; where a database reads the pages that it needs one by one, several connections
//! write parts of a batch beside each other.
//!
//! Some rows are taken only together: one takes a unique value that another gives up, or refers to it by a constraint
//! that is deferred. So where a part is refused, all of its batch is tried in one transaction.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use arrow::array::AsArray;
use tidemill_block::Block;
use tidemill_connect::{Committable, ConnectError};

use super::arrivals::{Arrivals, Told};
use super::batch::{self, Folded};
use super::refused::Operation;
use super::turn::Turn;
use super::{Lane, Shared, lock};
use crate::driver::{Connection, DbError, DbErrorKind};
use crate::session::Session;

/// Rows that are worth a connection of their own.
const BESIDE_ROWS: usize = 1_000;

/// After a further connection could not be had.
const ASK_AGAIN: Duration = Duration::from_secs(30);

/// The connection of a writer that writes at once.
pub(super) struct AtOnce {
    shared: Arc<Shared>,
    session: Session,
    /// For parts that are written beside others.
    beside: Beside,
    told: Told,
    _turn: Option<Turn>,
}

impl AtOnce {
    pub fn new(shared: Arc<Shared>, session: Session, beside: Beside, told: Told, turn: Option<Turn>) -> Self {
        AtOnce { shared, session, beside, told, _turn: turn }
    }

    fn transaction(&mut self, folded: &Folded, operation: Operation, careful: bool) -> Result<(), DbError> {
        transaction(&self.shared, &mut self.session, folded, operation, careful)
    }

    /// How many parts of a batch may be written beside each other.
    fn width(&mut self, folded: &Folded, operation: Operation) -> Result<usize, DbError> {
        if !matches!(operation, Operation::Upsert) || self.beside.is_none() || folded.upserts.num_rows() < 2 * BESIDE_ROWS {
            return Ok(1);
        }
        if self.beside.not_before.is_some_and(|then| Instant::now() < then) || has_blanks_at_ends(folded, &self.shared.target.key) {
            return Ok(1);
        }
        let target = &self.shared.target;
        let may = self.session.patiently(|connection| connection.takes_parts_beside(target))?;
        Ok(if may { (self.beside.sessions.len() + 1).min(folded.upserts.num_rows() / BESIDE_ROWS) } else { 1 })
    }

    /// Writes parts of a batch, each in a transaction of its own: first those with what goes.
    fn write_parts(&mut self, parts: &[Folded], operation: Operation, width: usize) -> Result<(), DbError> {
        let (go, come) = parts.split_at(parts.partition_point(|part| part.deletes.num_rows() > 0));
        self.write_in_turn(go, operation)?;
        if width > 1 && come.len() > 1 {
            match self.write_beside(come, operation) {
                // They stand in each other's way, and would again.
                Err(e) if e.kind == DbErrorKind::Retry => self.beside.give_up(),
                other => return other,
            }
        }
        self.write_in_turn(come, operation)
    }

    fn write_in_turn(&mut self, parts: &[Folded], operation: Operation) -> Result<(), DbError> {
        parts.iter().try_for_each(|part| part_of(&self.shared, &mut self.session, part, operation))
    }

    /// Each connection takes the next part when it is done with one.
    fn write_beside(&mut self, parts: &[Folded], operation: Operation) -> Result<(), DbError> {
        let AtOnce { shared, session, beside, .. } = self;
        let permits = Permits::take(beside.sessions.len().min(parts.len() - 1));
        let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
        let work = |session: &mut Session| {
            while lock(&failed).is_none() {
                let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
                if let Err(e) = part_of(shared, session, part, operation) {
                    lock(&failed).get_or_insert(e);
                }
            }
        };
        let work = &work;
        thread::scope(|scope| {
            for session in beside.sessions.iter_mut().take(permits.0) {
                let refused = &beside.refused;
                // Where there is no further connection or thread the others write its parts.
                let helps = move || match session.connection() {
                    Ok(_) => work(session),
                    Err(_) => refused.store(true, Ordering::Relaxed),
                };
                let _ = thread::Builder::new().name("tidemill-jdbc".into()).spawn_scoped(scope, helps);
            }
            work(session);
        });
        if beside.refused.swap(false, Ordering::Relaxed) {
            beside.forget();
            // To ask with each batch would cost time.
            beside.not_before = Some(Instant::now() + ASK_AGAIN);
        }
        let failed = lock(&failed).take();
        failed.map_or(Ok(()), Err)
    }
}

/// Connections of a writer for parts that are written beside others. All writers of the process together have so many at a time
/// as one may have: a server that has few is left some.
pub(super) struct Beside {
    sessions: Vec<Session>,
    /// It is one of the users.
    counts: bool,
    /// One of them could not be had just now.
    refused: AtomicBool,
    /// Until then nobody asks again.
    not_before: Option<Instant>,
}

/// Writers of the process that have such connections.
static USERS: AtomicUsize = AtomicUsize::new(0);
/// Such connections that are in use.
static IN_USE: AtomicUsize = AtomicUsize::new(0);
/// As many as there may be: what [`Driver::parts_at_once`](crate::driver::Driver::parts_at_once) says at most, but for the writer's own.
const IN_USE_MAX: usize = 7;

impl Beside {
    /// Some sessions, not connected yet.
    pub fn new(sessions: Vec<Session>) -> Self {
        let counts = !sessions.is_empty();
        USERS.fetch_add(usize::from(counts), Ordering::Relaxed);
        Beside { sessions, counts, refused: AtomicBool::new(false), not_before: None }
    }

    fn is_none(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Closes those that are open.
    fn forget(&mut self) {
        self.sessions.iter_mut().for_each(Session::forget);
    }

    /// Has no use for any from now on.
    fn give_up(&mut self) {
        self.sessions.clear();
        if std::mem::take(&mut self.counts) {
            USERS.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// So many connections may be in use until this is dropped.
struct Permits(usize);

impl Permits {
    /// As many as are left, at most so many.
    fn take(wanted: usize) -> Self {
        let mut taken = 0;
        let _ = IN_USE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            taken = wanted.min(IN_USE_MAX.saturating_sub(used));
            Some(used + taken)
        });
        Permits(taken)
    }
}

impl Drop for Permits {
    fn drop(&mut self) {
        IN_USE.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// Whether texts of a key end with blanks, which are nothing to some databases: two of these keys may be the same, and then the last
/// of them in order is to win.
fn has_blanks_at_ends(folded: &Folded, key: &[usize]) -> bool {
    let columns = key.iter().filter_map(|column| folded.upserts.column(*column).as_string_opt::<i32>());
    columns.into_iter().any(|texts| texts.iter().flatten().any(|text| text.ends_with(' ')))
}

/// Writes a part, unless the job is being stopped.
fn part_of(shared: &Shared, session: &mut Session, part: &Folded, operation: Operation) -> Result<(), DbError> {
    if session.is_cancelled() {
        return Err(DbError::fatal("the job is being stopped"));
    }
    transaction(shared, session, part, operation, false)
}

/// Writes in a transaction; with `careful` all rows but those that the database refuses.
fn transaction(shared: &Shared, session: &mut Session, folded: &Folded, operation: Operation, careful: bool) -> Result<(), DbError> {
    let refused = session.transaction(|connection: &mut dyn Connection| {
        let mut refused = 0;
        // First what goes: a new row may have the unique value of an old one.
        for (operation, rows) in [(Operation::Delete, &folded.deletes), (operation, &folded.upserts)] {
            if careful && rows.num_rows() > 0 {
                refused += operation.carefully(connection, &shared.target, rows, &shared.refusals)?;
            } else {
                operation.run(connection, &shared.target, rows)?;
            }
        }
        Ok(refused)
    })?;
    shared.refusals.passed_over(refused);
    Ok(())
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
        if USERS.load(Ordering::Relaxed) > 1 {
            // Others have a use for them, too.
            self.beside.forget();
        }
        // Another batch gathers meanwhile: of this one there is one copy from here on.
        drop(blocks);
        let width = self.width(&folded, operation)?;
        let driver = &self.session.access().driver;
        let part_bytes = if width > 1 { driver.part_bytes_beside() } else { driver.part_bytes() };
        let parts = if matches!(operation, Operation::Upsert) { folded.parts(part_bytes, width) } else { vec![folded.clone()] };
        let mut refused = match self.write_parts(&parts, operation, width) {
            Err(e) if e.kind == DbErrorKind::Data => true,
            other => other.map(|()| false)?,
        };
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
        let mut lane = AtOnce::new(shared.clone(), session, Beside::new(Vec::new()), Told::default(), None);
        let written = lane.write(vec![text::parse(&schema, rows)]).map_err(|e| e.to_string());
        let sql = "SELECT coalesce(group_concat(id || ':' || v, ' '), '') FROM (SELECT * FROM t ORDER BY id)";
        let found = look.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap();
        let refused = std::fs::read_to_string(&letters).unwrap_or_default().lines().count();
        assert_eq!(shared.refusals.count(), refused as u64);
        (written, found, refused)
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
