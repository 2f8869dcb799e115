//! Rows that the database refuses: found by halving the batch, named, and passed over or kept in a file.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};

use crate::driver::{Connection, DbError, DbErrorKind, Target};
use crate::options::OnRefused;

/// Columns of a row that a message shows.
const COLUMNS_SHOWN: usize = 8;
/// Characters of a value that a message shows.
const CHARACTERS_SHOWN: usize = 60;

/// What is done with rows.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operation {
    /// New rows.
    Append,
    /// New rows or new content of old ones.
    Upsert,
    /// Keys of rows that go.
    Delete,
}

impl Operation {
    /// Does it, with all rows at once.
    pub fn run(self, connection: &mut dyn Connection, target: &Target, rows: &RecordBatch) -> Result<(), DbError> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        match self {
            Operation::Append => connection.append(target, rows),
            Operation::Upsert => connection.upsert(target, rows),
            Operation::Delete => connection.delete(target, rows),
        }
    }

    /// Does it in the open transaction, with those rows that the database takes; the others go to `refusals`. Gives how many
    /// those are: who commits the transaction has them [counted](Refusals::passed_over).
    ///
    /// # Errors
    /// Errors that are not about the data; a refused row if that is one.
    pub fn carefully(
        self,
        connection: &mut dyn Connection,
        target: &Target,
        rows: &RecordBatch,
        refusals: &Refusals,
    ) -> Result<u64, DbError> {
        let mut refused = 0;
        // Halves that are still to be done, the next one last.
        let mut parts = vec![(0, rows.num_rows())];
        while let Some((from, length)) = parts.pop() {
            let part = rows.slice(from, length);
            connection.savepoint()?;
            match self.run(connection, target, &part) {
                Ok(()) => {}
                Err(e) if e.kind == DbErrorKind::Data => {
                    connection.roll_back_to_savepoint()?;
                    if length == 1 {
                        refusals.refuse(&part, &e)?;
                        refused += 1;
                    } else {
                        let half = length / 2;
                        parts.push((from + half, length - half));
                        parts.push((from, half));
                    }
                }
                Err(e) => return Err(e),
            }
            connection.release_savepoint()?;
        }
        Ok(refused)
    }
}

/// What becomes of refused rows.
pub(super) struct Refusals {
    owner: String,
    policy: OnRefused,
    path: Option<String>,
    file: Mutex<Option<File>>,
    /// One was named.
    told: AtomicBool,
    /// Rows that were passed over for good.
    count: AtomicU64,
}

impl Refusals {
    /// `owner` is the table's name in messages, `path` the file of dead letters.
    pub fn new(owner: String, policy: OnRefused, path: Option<String>) -> Self {
        Refusals { owner, policy, path, file: Mutex::new(None), told: AtomicBool::new(false), count: AtomicU64::new(0) }
    }

    /// Deals with one row.
    fn refuse(&self, row: &RecordBatch, error: &DbError) -> Result<(), DbError> {
        match self.policy {
            OnRefused::Fail => {
                return Err(DbError::data(format!(
                    "the row ({}) was refused: {error}; 'sink.on-error' = 'skip' or 'dead-letter' passes over such rows",
                    describe(row)
                )));
            }
            OnRefused::Skip => {}
            OnRefused::DeadLetter => self.keep(row, error)?,
        }
        if !self.told.swap(true, Ordering::Relaxed) {
            tidemill_connect::notice(&format!(
                "{}: the row ({}) was refused and is passed over, as others will be: {error}",
                self.owner,
                describe(row)
            ));
        }
        Ok(())
    }

    /// Counts rows that were refused in a transaction that is committed: one that was tried again has refused them more than once.
    pub fn passed_over(&self, rows: u64) {
        self.count.fetch_add(rows, Ordering::Relaxed);
    }

    /// How many were passed over so far.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Writes a row to the file. Before the transaction is committed, so that none is missing there; one that is
    /// tried again is there twice.
    fn keep(&self, row: &RecordBatch, error: &DbError) -> Result<(), DbError> {
        let path = self.path.as_deref().unwrap_or_default();
        let failed = |e: std::io::Error| DbError::fatal(format!("writing the refused row to '{path}' ('sink.dead-letter'): {e}"));
        let mut writer = arrow::json::LineDelimitedWriter::new(Vec::new());
        writer.write(row)?;
        writer.finish()?;
        let json = String::from_utf8_lossy(&writer.into_inner()).trim_end().to_string();
        let reason = serde_json::Value::from(error.message.as_str());
        let line = format!("{{\"table\":{},\"reason\":{reason},\"row\":{json}}}\n", serde_json::Value::from(self.owner.as_str()));
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let file = match &mut *file {
            Some(file) => file,
            none => none.insert(OpenOptions::new().create(true).append(true).open(path).map_err(failed)?),
        };
        file.write_all(line.as_bytes()).map_err(failed)
    }
}

impl Drop for Refusals {
    /// Says how many rows this run has passed over: the writers and the last commit are behind it.
    fn drop(&mut self) {
        let rows = match self.count() {
            0 => return,
            1 => "1 row was".to_string(),
            count => format!("{count} rows were"),
        };
        let kept = self.path.as_ref().map_or_else(String::new, |path| format!(" and written to '{path}'"));
        tidemill_connect::notice(&format!("{}: {rows} refused by the database and passed over{kept}", self.owner));
    }
}

/// A row for a message: `id=5, name=x`.
fn describe(row: &RecordBatch) -> String {
    let options = FormatOptions::default().with_null("NULL");
    let schema = row.schema();
    let mut parts = Vec::new();
    for (field, column) in schema.fields().iter().zip(row.columns()).take(COLUMNS_SHOWN) {
        let value = ArrayFormatter::try_new(column, &options).map_or_else(|e| e.to_string(), |f| f.value(0).to_string());
        let more = if value.chars().nth(CHARACTERS_SHOWN).is_some() { "…" } else { "" };
        parts.push(format!("{}={}{more}", field.name(), value.chars().take(CHARACTERS_SHOWN).collect::<String>()));
    }
    let more = if row.num_columns() > COLUMNS_SHOWN { ", …" } else { "" };
    format!("{}{more}", parts.join(", "))
}
