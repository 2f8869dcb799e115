//! What is known of tables: their columns, and where it matters their unique indexes.

use arrow::array::RecordBatch;

use super::column::Column;
use super::rewrite::Quotes;
use crate::driver::DbError;

/// A table.
pub(super) struct Table {
    /// Its name in the database's quotes.
    pub name: String,
    pub columns: Vec<Column>,
}

impl Table {
    /// The column of this name; case does not matter where that leaves one.
    ///
    /// # Errors
    /// There is none.
    pub fn column(&self, name: &str) -> Result<&Column, DbError> {
        let same = self.columns.iter().find(|c| c.name == name);
        same.or_else(|| self.columns.iter().find(|c| c.name.to_lowercase() == name.to_lowercase())).ok_or_else(|| {
            let there: Vec<&str> = self.columns.iter().map(|c| c.name.as_str()).collect();
            DbError::fatal(format!("the table {} has no column '{name}'; it has {}", self.name, there.join(", ")))
        })
    }

    /// The columns that those of a batch are.
    ///
    /// # Errors
    /// There is none of a name.
    pub fn columns_of(&self, batch: &RecordBatch) -> Result<Vec<&Column>, DbError> {
        batch.schema_ref().fields().iter().map(|field| self.column(field.name())).collect()
    }
}

/// Names of columns in the database's quotes.
///
/// # Errors
/// There are no quotes, and a name needs them.
pub(super) fn quoted<'c>(columns: impl IntoIterator<Item = &'c Column>, quotes: Quotes) -> Result<Vec<String>, DbError> {
    columns.into_iter().map(|column| quotes.quote(&column.name)).collect()
}

/// The statement that asks PostgreSQL for the types of a table's columns; `table` is quoted.
pub(super) fn postgres_types(table: &str) -> String {
    format!(
        "SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a \
         WHERE a.attrelid = CAST('{}' AS regclass) AND a.attnum > 0 AND NOT a.attisdropped",
        table.replace('\'', "''")
    )
}

/// The statement that asks MySQL for the columns of a table's unique indexes.
pub(super) fn mysql_indexes(table: &str) -> String {
    let literal = |text: &str| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"));
    let (schema, name) = match table.rsplit_once('.') {
        Some((schema, name)) => (literal(schema), name),
        None => ("DATABASE()".into(), table),
    };
    format!(
        "SELECT index_name, column_name FROM information_schema.statistics \
         WHERE table_schema = {schema} AND table_name = {} AND non_unique = 0 ORDER BY index_name, seq_in_index",
        literal(name)
    )
}

/// The statement that asks MySQL for a column of a table if its values are numbers of labels: an `ENUM` or a `SET`.
pub(super) fn mysql_labels(table: &str, column: &str) -> String {
    let literal = |text: &str| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"));
    let (schema, name) = match table.rsplit_once('.') {
        Some((schema, name)) => (literal(schema), name),
        None => ("DATABASE()".into(), table),
    };
    format!(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = {schema} AND table_name = {} AND column_name = {} \
         AND data_type IN ('enum', 'set')",
        literal(name),
        literal(column)
    )
}

/// The unique indexes of a table of MySQL, as far as upserts need to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unique {
    /// One is over exactly the key's columns.
    pub key: bool,
    /// There are others.
    pub others: bool,
}

impl Unique {
    /// Of pairs of an index and a column, in order.
    pub fn of(pairs: &[Vec<String>], key: &[&str]) -> Self {
        let mut wanted: Vec<String> = key.iter().map(|name| name.to_lowercase()).collect();
        wanted.sort();
        let mut unique = Unique { key: false, others: false };
        for index in pairs.chunk_by(|a, b| a[0] == b[0]) {
            let mut columns: Vec<String> = index.iter().map(|pair| pair[1].to_lowercase()).collect();
            columns.sort();
            if columns == wanted { unique.key = true } else { unique.others = true }
        }
        unique
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unique_indexes_are_told_apart() {
        #[track_caller]
        fn check(pairs: &[(&str, &str)], key: &[&str], expect: (bool, bool)) {
            let pairs: Vec<Vec<String>> = pairs.iter().map(|(index, column)| vec![index.to_string(), column.to_string()]).collect();
            let Unique { key, others } = Unique::of(&pairs, key);
            assert_eq!((key, others), expect);
        }
        check(&[], &["id"], (false, false));
        check(&[("PRIMARY", "ID")], &["id"], (true, false));
        check(&[("PRIMARY", "b"), ("PRIMARY", "a")], &["a", "b"], (true, false));
        check(&[("PRIMARY", "id"), ("u", "name")], &["id"], (true, true));
        check(&[("PRIMARY", "id")], &["id", "name"], (false, true));
    }

    #[test]
    fn catalogs_are_asked_by_name() {
        assert!(postgres_types("\"s\".\"it's\"").contains("CAST('\"s\".\"it''s\"' AS regclass)"));
        assert!(mysql_indexes("t").contains("table_schema = DATABASE() AND table_name = 't'"));
        assert!(mysql_indexes("a.b'c").contains("table_schema = 'a' AND table_name = 'b''c'"));
    }
}
