//! Upserts and deletes by key.
//!
//! Many rows go into a temporary table, in order of key, and from there into the table in one statement: InnoDB
//! then walks through its pages once, which on a table larger than its buffers is three times as fast as lists of
//! values in random order, and twice as fast as sorted ones. Which statement that is depends on the table.
//!
//! - The key is its only unique index: `INSERT … SELECT … ON DUPLICATE KEY UPDATE`, even if all rows are there. An `UPDATE`
//!   joined with the rows goes through the table twice: it notes all that it will change before it changes anything.
//! - There are other unique indexes: `ON DUPLICATE KEY UPDATE` would take a duplicate in one of them for the row
//!   to be changed, and change a row of another key. So the `UPDATE` is followed by an insert of rows whose key
//!   is not there, and a duplicate is refused as it should be.

use arrow::array::RecordBatch;

use super::connection::{Checked, Done, MysqlConnection, number_behind};
use super::dialect::{MysqlDialect, quoted, quoted_list};
use super::encode::values;
use super::error::{db_error, no_temporary_tables};
use crate::driver::{DbError, Dialect, Target};

/// The temporary table.
const STAGE: &str = "`tidemill_stage`";
/// Fewer rows are upserted by lists of values, without a table made and dropped for them.
const STAGE_ROWS_MIN: usize = 2_000;
/// Fewer keys are deleted by lists of them.
const STAGE_KEYS_MIN: usize = 1_000;
/// Keys in one list. MariaDB turns longer ones into a join of its own.
const LIST_KEYS: usize = 500;
const LIST_BYTES: usize = 256 << 10;

impl MysqlConnection {
    /// Inserts or replaces rows of distinct keys, sorted by key.
    ///
    /// # Errors
    /// Of the server; a value or row that it refuses; a table whose key is not unique.
    pub(super) fn upsert_rows(&mut self, target: &Target, rows: &RecordBatch) -> Result<(), DbError> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        let checked = self.checked(target, rows)?;
        let key = target.key_names();
        if !checked.table.has_key(&key) {
            let names = key.join(", ");
            return Err(DbError::fatal(format!(
                "the table {} has no primary key or unique index over exactly ({names}), the key that the job declares; \
                 without one rows cannot be found by it: ALTER TABLE {} ADD UNIQUE ({names})",
                target.table, target.table
            )));
        }
        let merge = Merge::new(target, &checked, self.row_alias);
        let only_key = !checked.table.has_other_unique(&key);
        let staged = self.abilities.temporary_tables() && (!only_key || self.worth_staging(rows.num_rows(), STAGE_ROWS_MIN));
        if staged && self.stage(&checked)? {
            if only_key {
                self.changed(&merge.doing, &merge.insert_or_update, &checked)?;
            } else {
                self.update_then_insert(&merge, &checked)?;
            }
            return self.drop_stage();
        }
        if !only_key {
            return Err(DbError::fatal(format!(
                "the table {} has unique indexes beside its key, which upserts there need a temporary table for; \
                 the account may not create one (CREATE TEMPORARY TABLES)",
                target.table
            )));
        }
        self.insert(&merge.table, &checked, &merge.on_duplicate_list)
    }

    /// Deletes by key.
    ///
    /// # Errors
    /// Of the server.
    pub(super) fn delete_keys(&mut self, target: &Target, keys: &RecordBatch) -> Result<(), DbError> {
        if keys.num_rows() == 0 {
            return Ok(());
        }
        let checked = self.checked(target, keys)?;
        let table = MysqlDialect.quote(&target.table);
        let doing = format!("deleting rows of {table}");
        if self.abilities.temporary_tables() && self.worth_staging(keys.num_rows(), STAGE_KEYS_MIN) && self.stage(&checked)? {
            let on = join_condition(checked.names());
            self.statement(&doing, &format!("DELETE t FROM {STAGE} k STRAIGHT_JOIN {table} t ON {on}"))?;
            return self.drop_stage();
        }
        let begin = format!("DELETE FROM {table} WHERE ({}) IN (", quoted_list(checked.names(), ""));
        let rows = checked.rows.clone();
        let mut cells = rows.cells();
        let mut first = 0;
        while first < rows.rows {
            let mut statement = begin.clone().into_bytes();
            first = values(&mut cells, first, rows.rows, LIST_KEYS, LIST_BYTES, &mut statement);
            statement.push(b')');
            let statement = String::from_utf8(statement).map_err(|_| DbError::fatal(format!("{doing}: a statement is no UTF-8")))?;
            self.statement(&doing, &statement)?;
        }
        Ok(())
    }

    /// Without loading, a list of values may as well go into the table itself.
    fn worth_staging(&self, rows: usize, rows_min: usize) -> bool {
        rows >= rows_min && self.abilities.local_infile()
    }

    /// Makes the temporary table and puts the rows into it; false if the account may not.
    fn stage(&mut self, checked: &Checked) -> Result<bool, DbError> {
        self.usable()?;
        // One of a transaction that failed may still be there. Neither statement ends the open transaction.
        self.drop_stage()?;
        if let Err(error) = self.run(&stage_statement(checked)) {
            if no_temporary_tables(&error) {
                self.abilities.no_temporary_tables(&db_error("creating a temporary table", &error).message);
                return Ok(false);
            }
            return Err(self.failed("creating a temporary table", &error));
        }
        self.stage_is_there = true;
        self.put(STAGE, checked)?;
        Ok(true)
    }

    fn drop_stage(&mut self) -> Result<(), DbError> {
        if std::mem::take(&mut self.stage_is_there) {
            self.statement("dropping a temporary table", &format!("DROP TEMPORARY TABLE IF EXISTS {STAGE}"))?;
        }
        Ok(())
    }

    /// From the temporary table into one with other unique indexes.
    fn update_then_insert(&mut self, merge: &Merge, checked: &Checked) -> Result<(), DbError> {
        if let Some(update) = &merge.update {
            let done = self.changed(&merge.doing, update, checked)?;
            if number_behind(&done.info, "Rows matched: ") == Some(checked.rows.rows as u64) {
                return Ok(());
            }
        }
        self.changed(&merge.doing, &merge.insert_missing, checked).map(drop)
    }

    /// Runs a statement over the staged rows.
    fn changed(&mut self, doing: &str, sql: &str, checked: &Checked) -> Result<Done, DbError> {
        let done = match self.run(sql) {
            Ok(done) => done,
            Err(e) => return Err(self.refused(doing, &e, checked, 0)),
        };
        self.complaints(doing, &done, checked, 0)?;
        Ok(done)
    }
}

/// The statements of an upsert.
struct Merge {
    doing: String,
    /// The table's name, quoted.
    table: String,
    /// Behind a list of `VALUES`.
    on_duplicate_list: String,
    /// The temporary table's rows that are there; `None` if every column is of the key.
    update: Option<String>,
    insert_or_update: String,
    insert_missing: String,
}

impl Merge {
    fn new(target: &Target, checked: &Checked, row_alias: bool) -> Self {
        let table = MysqlDialect.quote(&target.table);
        let names: Vec<&str> = checked.names().collect();
        let key: Vec<&str> = target.key.iter().filter_map(|i| names.get(*i).copied()).collect();
        let others: Vec<String> = target.value_columns().into_iter().filter_map(|i| names.get(i)).map(|name| quoted(name)).collect();
        let assign = |left: &str, right: &dyn Fn(&str) -> String| -> String {
            let assignments: Vec<String> = others.iter().map(|c| format!("{left}{c} = {}", right(c))).collect();
            assignments.join(", ")
        };
        // Where all columns are of the key there is nothing to set, and something has to be said.
        let or_nothing = |assignments: String| match key.first() {
            Some(first) if assignments.is_empty() => {
                let name = format!("{table}.{}", quoted(first));
                format!("{name} = {name}")
            }
            _ => assignments,
        };
        let on_duplicate_list = if row_alias {
            format!(" AS n ON DUPLICATE KEY UPDATE {}", or_nothing(assign(&format!("{table}."), &|c| format!("n.{c}"))))
        } else {
            format!(" ON DUPLICATE KEY UPDATE {}", or_nothing(assign(&format!("{table}."), &|c| format!("VALUES({c})"))))
        };
        let (columns, staged) = (quoted_list(names.iter().copied(), ""), quoted_list(names.iter().copied(), "k."));
        let insert = format!("INSERT INTO {table} ({columns}) SELECT {staged} FROM {STAGE} k");
        let on = join_condition(key.iter().copied());
        let taken = or_nothing(assign(&format!("{table}."), &|c| format!("k.{c}")));
        let missing = key.first().map(|name| format!("t.{}", quoted(name))).unwrap_or_default();
        Merge {
            doing: format!("upserting rows into {table}"),
            on_duplicate_list,
            update: (!others.is_empty())
                .then(|| format!("UPDATE {STAGE} k STRAIGHT_JOIN {table} t ON {on} SET {}", assign("t.", &|c| format!("k.{c}")))),
            insert_or_update: format!("{insert} ON DUPLICATE KEY UPDATE {taken}"),
            insert_missing: format!("{insert} LEFT JOIN {table} t ON {on} WHERE {missing} IS NULL"),
            table,
        }
    }
}

/// `t.a = k.a AND t.b = k.b`.
fn join_condition<'a>(key: impl Iterator<Item = &'a str>) -> String {
    key.map(quoted).map(|name| format!("t.{name} = k.{name}")).collect::<Vec<_>>().join(" AND ")
}

/// The temporary table: the columns of the rows with the types and collations that they have in the table, without
/// indexes (rows are read in the order in which they came) and without defaults.
fn stage_statement(checked: &Checked) -> String {
    let column = |c: &super::table::Column| {
        let collation = c.collation.as_ref().map(|name| format!(" COLLATE {name}")).unwrap_or_default();
        format!("{} {}{collation} NULL", quoted(&c.name), c.type_text)
    };
    let columns: Vec<String> = checked.columns().map(column).collect();
    format!("CREATE TEMPORARY TABLE {STAGE} ({}) ENGINE=InnoDB", columns.join(", "))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int32Array, StringArray};
    use arrow::datatypes::{DataType, Field, Schema};

    use super::super::encode::Prepared;
    use super::super::table::{Column, Kind, Table};
    use super::*;

    fn checked() -> Checked {
        let column = |name: &str, type_text: &str, collation: Option<&str>| Column {
            name: name.into(),
            type_text: type_text.into(),
            kind: Kind::of(type_text),
            collation: collation.map(str::to_string),
            nullable: true,
        };
        let columns = vec![column("Id", "int(11)", None), column("s", "varchar(9)", Some("utf8mb4_bin"))];
        let arrays: Vec<ArrayRef> = vec![Arc::new(Int32Array::from(vec![1])), Arc::new(StringArray::from(vec!["x"]))];
        Checked {
            table: Arc::new(Table { columns, unique: vec![vec!["id".into()]] }),
            columns: vec![0, 1],
            rows: Arc::new(Prepared { arrays, rows: 1 }),
        }
    }

    fn target(key: Vec<usize>) -> Target {
        let fields = vec![Field::new("id", DataType::Int32, false), Field::new("s", DataType::Utf8, true)];
        Target { table: "d.t".into(), schema: Arc::new(Schema::new(fields)), key }
    }

    #[test]
    fn statements_of_an_upsert() {
        let merge = Merge::new(&target(vec![0]), &checked(), false);
        assert_eq!(merge.on_duplicate_list, " ON DUPLICATE KEY UPDATE `d`.`t`.`s` = VALUES(`s`)");
        assert_eq!(merge.update.as_deref(), Some("UPDATE `tidemill_stage` k STRAIGHT_JOIN `d`.`t` t ON t.`Id` = k.`Id` SET t.`s` = k.`s`"));
        assert_eq!(
            merge.insert_or_update,
            "INSERT INTO `d`.`t` (`Id`, `s`) SELECT k.`Id`, k.`s` FROM `tidemill_stage` k ON DUPLICATE KEY UPDATE `d`.`t`.`s` = k.`s`"
        );
        assert_eq!(
            merge.insert_missing,
            "INSERT INTO `d`.`t` (`Id`, `s`) SELECT k.`Id`, k.`s` FROM `tidemill_stage` k LEFT JOIN `d`.`t` t ON t.`Id` = k.`Id` \
             WHERE t.`Id` IS NULL"
        );
        assert_eq!(Merge::new(&target(vec![0]), &checked(), true).on_duplicate_list, " AS n ON DUPLICATE KEY UPDATE `d`.`t`.`s` = n.`s`");
    }

    #[test]
    fn a_table_of_nothing_but_keys() {
        let merge = Merge::new(&target(vec![0, 1]), &checked(), false);
        assert_eq!((merge.update, merge.on_duplicate_list.as_str()), (None, " ON DUPLICATE KEY UPDATE `d`.`t`.`Id` = `d`.`t`.`Id`"));
    }

    #[test]
    fn the_temporary_table_has_the_types_of_the_table() {
        assert_eq!(
            stage_statement(&checked()),
            "CREATE TEMPORARY TABLE `tidemill_stage` (`Id` int(11) NULL, `s` varchar(9) COLLATE utf8mb4_bin NULL) ENGINE=InnoDB"
        );
    }
}
