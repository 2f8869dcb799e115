//! A session with a file: statements, transactions, results.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::bind::parameter;
use super::error::db_error;
use super::ffi::{Answer, Session, Statement};
use super::fill::Column;
use super::instance::User;
use super::quoted_list;
use super::read::Columns;
use super::replay::{Change, RELEASE, ROLLBACK_TO, Replay, SAVEPOINT};
use super::shape::Shape;
use crate::driver::{Connection, DbError, Target};

/// Prepared statements kept: lookups and deletes of some sizes.
const STATEMENTS_KEPT: usize = 32;

/// See the module. What is dropped first stands first.
pub(super) struct DuckConnection {
    statements: HashMap<String, Statement>,
    /// Columns of tables, by table and names.
    columns: HashMap<String, Arc<Vec<Column>>>,
    /// Names of columns as tables have them, by table and names as the job has them.
    pub(super) names: HashMap<String, Arc<Vec<String>>>,
    /// Whether tables have an index over the key, by the statement that was asked.
    pub(super) unique_keys: HashMap<String, bool>,
    /// Tables of this session for keys, by their types.
    pub(super) key_tables: Vec<(Vec<DataType>, String)>,
    /// A transaction is open,
    open: bool,
    /// and has failed: DuckDB would take its commit for a rollback, and say nothing;
    failed: bool,
    /// or has changed something that was not noted.
    wrote: bool,
    replay: Option<Replay>,
    session: Session,
    _user: User,
}

impl DuckConnection {
    /// Over a session.
    pub(super) fn new(session: Session, user: User) -> Self {
        DuckConnection {
            statements: HashMap::new(),
            columns: HashMap::new(),
            names: HashMap::new(),
            unique_keys: HashMap::new(),
            key_tables: Vec::new(),
            open: false,
            failed: false,
            wrote: false,
            replay: None,
            session,
            _user: user,
        }
    }

    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    /// Whether a transaction is open.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// Runs a statement whose result is of no interest.
    ///
    /// # Errors
    /// Of the library.
    pub(super) fn run(&mut self, doing: &str, sql: &str) -> Result<u64, DbError> {
        self.session.run(sql).map_err(|e| self.noted(db_error(doing, e)))
    }

    /// Notes that something failed, and what was known of tables may be wrong.
    fn noted(&mut self, error: DbError) -> DbError {
        self.failed |= self.open;
        self.columns.clear();
        self.names.clear();
        self.unique_keys.clear();
        error
    }

    /// Columns of a table (its name quoted).
    ///
    /// # Errors
    /// There are none such.
    pub(super) fn columns(&mut self, table: &str, names: &[&str]) -> Result<Arc<Vec<Column>>, DbError> {
        let sql = format!("SELECT {} FROM {table} LIMIT 0", quoted_list(names.iter().copied(), ""));
        if let Some(known) = self.columns.get(&sql) {
            return Ok(known.clone());
        }
        let failed = |e| db_error("asking for the columns", e);
        let mut statement = self.session.prepare(&sql).map_err(failed)?;
        let types = statement.run(false).map_err(failed)?.types();
        let api = self.session.api();
        let columns = names.iter().zip(types).map(|(name, logical)| Column::new(api, name.to_string(), logical)).collect();
        let columns = Arc::new(columns);
        self.columns.insert(sql, Arc::clone(&columns));
        Ok(columns)
    }

    /// A prepared statement, kept for the next time.
    ///
    /// # Errors
    /// It cannot be prepared.
    pub(super) fn statement(&mut self, sql: &str) -> Result<&mut Statement, DbError> {
        if !self.statements.contains_key(sql) {
            if self.statements.len() >= STATEMENTS_KEPT {
                self.statements.clear();
            }
            let prepared = self.session.prepare(sql).map_err(|e| db_error("preparing a statement", e))?;
            self.statements.insert(sql.to_string(), prepared);
        }
        self.statements.get_mut(sql).ok_or_else(|| DbError::fatal("internal error: a prepared statement is gone"))
    }

    fn change(&mut self, change: Change, target: &Target, rows: &RecordBatch) -> Result<(), DbError> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        self.perform(change, target, rows).map_err(|e| self.noted(e))?;
        match &mut self.replay {
            Some(replay) => replay.add(change, target, rows),
            None => self.wrote = true,
        }
        Ok(())
    }

    fn set_savepoint(&mut self) -> Result<(), DbError> {
        if self.replay.is_none() && self.wrote {
            return Err(DbError::fatal("internal error: a savepoint in the middle of a transaction of DuckDB"));
        }
        self.replay.get_or_insert_default().mark();
        Ok(())
    }

    /// Begins again, and does anew what was done before the savepoint.
    fn back_to_savepoint(&mut self) -> Result<(), DbError> {
        let mut replay = self.replay.take().ok_or_else(|| DbError::fatal("internal error: there is no savepoint"))?;
        self.rollback()?;
        self.begin()?;
        for step in replay.back()? {
            // It went well before, so that others have changed something meanwhile.
            let again = self.perform(step.change, &step.target, &step.rows);
            again.map_err(|e| self.noted(DbError::retry(e.message)))?;
        }
        self.replay = Some(replay);
        Ok(())
    }
}

/// The types of a result.
pub(super) fn shapes(answer: &mut Answer<'_>) -> Vec<Shape> {
    answer.types().iter().map(Shape::of).collect()
}

/// Rows of a result, in batches of at most `rows`.
pub(super) fn fetch(
    answer: &mut Answer<'_>,
    schema: &SchemaRef,
    rows: usize,
    piece: &mut dyn FnMut(RecordBatch) -> Result<(), DbError>,
) -> Result<(), DbError> {
    let columns = Columns::new(schema, shapes(answer))?;
    let (mut waiting, mut count): (Vec<RecordBatch>, usize) = (Vec::new(), 0);
    let rows = rows.max(1);
    while let Some(chunk) = answer.fetch().map_err(|e| db_error("", e))? {
        let mut batch = columns.batch(&chunk)?;
        while count + batch.num_rows() >= rows {
            let taken = rows - count;
            waiting.push(batch.slice(0, taken));
            batch = batch.slice(taken, batch.num_rows() - taken);
            let whole = if waiting.len() == 1 { waiting.remove(0) } else { concat_batches(schema, &waiting)? };
            waiting.clear();
            count = 0;
            piece(whole)?;
        }
        if batch.num_rows() > 0 {
            count += batch.num_rows();
            waiting.push(batch);
        }
    }
    if count > 0 { piece(concat_batches(schema, &waiting)?) } else { Ok(()) }
}

impl Connection for DuckConnection {
    fn execute(&mut self, sql: &str) -> Result<u64, DbError> {
        match sql {
            SAVEPOINT => self.set_savepoint().map(|()| 0),
            ROLLBACK_TO => self.back_to_savepoint().map(|()| 0),
            RELEASE => Ok(0),
            _ => {
                self.wrote |= self.open;
                // It may make a table anew.
                self.columns.clear();
                self.names.clear();
                self.unique_keys.clear();
                self.run(&format!("running {sql}"), sql)
            }
        }
    }

    fn query(
        &mut self,
        sql: &str,
        parameters: Option<&RecordBatch>,
        schema: &SchemaRef,
        rows: usize,
        piece: &mut dyn FnMut(RecordBatch) -> Result<(), DbError>,
    ) -> Result<(), DbError> {
        let doing = format!("running {sql}");
        let mut ask = || {
            let mut statement = self.session.prepare(sql).map_err(|e| db_error(&doing, e))?;
            if let Some(parameters) = parameters {
                for (index, (field, array)) in parameters.schema_ref().fields().iter().zip(parameters.columns()).enumerate() {
                    let value = parameter(field.name(), array, 0).map_err(|e| e.at(&doing))?;
                    statement.bind(index + 1, value).map_err(|e| db_error(&doing, e))?;
                }
            }
            let mut answer = statement.run(true).map_err(|e| db_error(&doing, e))?;
            fetch(&mut answer, schema, rows, piece).map_err(|e| e.at(&doing))
        };
        let asked = ask();
        asked.map_err(|e| self.noted(e))
    }

    fn begin(&mut self) -> Result<(), DbError> {
        self.run("beginning a transaction", "BEGIN TRANSACTION")?;
        (self.open, self.failed, self.wrote, self.replay) = (true, false, false, None);
        Ok(())
    }

    fn commit(&mut self) -> Result<(), DbError> {
        if self.failed {
            return Err(DbError::retry("committing: a statement of the transaction has failed, and DuckDB has given it up"));
        }
        // One that cannot be committed is over, too.
        (self.open, self.replay) = (false, None);
        self.run("committing", "COMMIT").map(drop)
    }

    fn rollback(&mut self) -> Result<(), DbError> {
        if !std::mem::take(&mut self.open) {
            return Ok(());
        }
        (self.failed, self.replay) = (false, None);
        self.run("rolling back", "ROLLBACK").map(drop)
    }

    fn append(&mut self, target: &Target, rows: &RecordBatch) -> Result<(), DbError> {
        self.change(Change::Append, target, rows)
    }

    fn upsert(&mut self, target: &Target, rows: &RecordBatch) -> Result<(), DbError> {
        self.change(Change::Upsert, target, rows)
    }

    fn delete(&mut self, target: &Target, keys: &RecordBatch) -> Result<(), DbError> {
        self.change(Change::Delete, target, keys)
    }

    fn look_up(&mut self, target: &Target, keys: &RecordBatch, columns: &SchemaRef) -> Result<RecordBatch, DbError> {
        let found = self.look_up_keys(target, keys, columns);
        found.map_err(|e| self.noted(e.at(format_args!("looking up rows of '{}'", target.table))))
    }

    fn table_columns(&mut self, table: &str) -> Result<Option<Vec<(String, String)>>, DbError> {
        let parts: Vec<&str> = table.split('.').collect();
        let (name, schema, catalog) = match parts.as_slice() {
            [catalog, schema, name] => (*name, Some(*schema), Some(*catalog)),
            [schema, name] => (*name, Some(*schema), None),
            _ => (table, None, None),
        };
        let mut sql = "SELECT column_name, data_type FROM duckdb_columns() WHERE lower(table_name) = lower(?) AND ".to_string();
        sql += if schema.is_some() { "lower(schema_name) = lower(?) AND " } else { "schema_name = current_schema() AND " };
        sql += if catalog.is_some() { "lower(database_name) = lower(?)" } else { "database_name = current_database()" };
        sql += " ORDER BY column_index";
        let text = |name: &str| Field::new(name, DataType::Utf8, false);
        let result = Arc::new(Schema::new(vec![text("name"), text("type")]));
        let given: Vec<&str> = [Some(name), schema, catalog].into_iter().flatten().collect();
        let parameters = given.iter().enumerate().map(|(i, part)| (format!("p{i}"), text_array(part)));
        let parameters = RecordBatch::try_from_iter(parameters)?;
        let mut columns = Vec::new();
        self.query(&sql, Some(&parameters), &result, usize::MAX, &mut |rows| {
            use arrow::array::AsArray;
            let (names, types) = (rows.column(0).as_string::<i32>(), rows.column(1).as_string::<i32>());
            columns.extend((0..rows.num_rows()).map(|row| (names.value(row).to_string(), types.value(row).to_string())));
            Ok(())
        })?;
        Ok(Some(columns).filter(|c| !c.is_empty()))
    }

    fn ordered_by(&mut self, _table: &str, column: &Field, quoted: String) -> Result<String, DbError> {
        // An ENUM is ordered by the places of its labels, and compared with a text as a text: a scan that went on behind a label
        // passed rows over. Of a VARCHAR this is nothing.
        Ok(if *column.data_type() == DataType::Utf8 { format!("CAST({quoted} AS VARCHAR)") } else { quoted })
    }

    fn alive(&mut self) -> bool {
        true
    }
}

fn text_array(text: &str) -> arrow::array::ArrayRef {
    Arc::new(arrow::array::StringArray::from(vec![text]))
}
