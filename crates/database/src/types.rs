//! Statements that differ between stores in names and types only: `CREATE TABLE`, lists of columns, the
//! table of marks.
//!
//! Which type a column gets is said by each store's dialect; docs/databases.md has the table of all.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};

use crate::driver::{DbError, Dialect, Target};

/// The table of marks: up to which epoch the rows of a writer are in the database.
pub const MARKS: &str = "tidemill_checkpoints";

/// `CREATE TABLE IF NOT EXISTS` for a target.
///
/// # Errors
/// A column whose type the store does not have.
pub fn create_table(dialect: &dyn Dialect, target: &Target) -> Result<String, DbError> {
    let mut items = Vec::with_capacity(target.schema.fields().len() + 1);
    for (index, field) in target.schema.fields().iter().enumerate() {
        let key = target.key.contains(&index);
        let not_null = if key || !field.is_nullable() { " NOT NULL" } else { "" };
        items.push(format!("{} {}{not_null}", dialect.quote_column(field.name()), dialect.column_type(field, key)?));
    }
    if !target.key.is_empty() {
        items.push(format!("PRIMARY KEY ({})", list(dialect, target.key_names())));
    }
    let mut sql = dialect.create_table(&dialect.quote(&target.table), &items.join(", "));
    // Marks are a handful of rows.
    if !target.key.is_empty() && target.table != MARKS {
        sql.push_str(dialect.for_updates());
    }
    Ok(sql)
}

/// Names of columns, quoted, with commas between them.
pub fn list<'a>(dialect: &dyn Dialect, names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(|name| dialect.quote_column(name)).collect::<Vec<_>>().join(", ")
}

/// The table of marks: `sink` names the writers of one run of a job, `shard` one of them.
pub fn marks() -> Target {
    let schema = Schema::new(vec![
        Field::new("sink", DataType::Utf8, false),
        Field::new("shard", DataType::Int32, false),
        Field::new("epoch", DataType::Int64, false),
    ]);
    Target { table: MARKS.into(), schema: Arc::new(schema), key: vec![0, 1] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_created_with_keys() {
        let sql = create_table(crate::sqlite::dialect(), &marks()).unwrap();
        assert_eq!(
            sql,
            "CREATE TABLE IF NOT EXISTS \"tidemill_checkpoints\" (\"sink\" TEXT NOT NULL, \"shard\" INTEGER NOT NULL, \
             \"epoch\" BIGINT NOT NULL, PRIMARY KEY (\"sink\", \"shard\"))"
        );
    }
}
