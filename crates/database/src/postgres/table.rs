//! What the database says about a table, and the statements that write to it.
//!
//! Rows go into the table by `COPY` where that can be: without a key, and with types that have a binary form.
//! Otherwise they go by `COPY` into a temporary table of the session, and from there with one `INSERT …
//! SELECT`, which casts what came as text and, with a key, updates what is there.

use arrow::datatypes::{DataType, SchemaRef};

use super::types::{Form, PostgresDialect, Shape, literal, quote_part};
use crate::driver::{DbError, Dialect, Target};

/// A column as the catalog describes it.
#[derive(Clone, Debug)]
pub(super) struct TableColumn {
    pub name: String,
    /// The type as it is declared, such as `character varying(10)`.
    pub declared: String,
    /// The type without length and precision, to cast to.
    pub bare: String,
    pub shape: Shape,
    /// The database makes its values itself.
    pub generated: bool,
}

/// A table as the catalog describes it.
#[derive(Clone, Debug)]
pub(super) struct Described {
    pub columns: Vec<TableColumn>,
    /// `COPY` works on it: no view, no row-level security.
    pub copies: bool,
}

/// The query whose rows [`Described::of`] reads. Arrays have the modifier of their elements, domains are
/// looked through.
pub(super) fn describe_sql(table: &str) -> String {
    let name = literal(&PostgresDialect.quote(table));
    format!(
        "SELECT a.attname, format_type(a.atttypid, a.atttypmod), format_type(a.atttypid, -1), \
         CASE WHEN e.oid IS NULL THEN b.oid ELSE e.oid END, e.oid, \
         CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END, \
         CASE WHEN e.oid IS NULL THEN b.typtype ELSE e.typtype END, \
         a.attgenerated <> '' OR a.attidentity = 'a', c.relkind IN ('r', 'p', 'f') AND NOT c.relrowsecurity \
         FROM pg_catalog.pg_attribute a \
         JOIN pg_catalog.pg_class c ON c.oid = a.attrelid \
         JOIN pg_catalog.pg_type t ON t.oid = a.atttypid \
         JOIN pg_catalog.pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END \
         LEFT JOIN pg_catalog.pg_type e ON e.oid = b.typelem AND b.typcategory = 'A' \
         WHERE a.attrelid = to_regclass({name}) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
    )
}

impl Described {
    /// Reads the rows of [`describe_sql`]. `None` if there are none: there is no such table.
    pub fn of(rows: &[Vec<Option<String>>]) -> Option<Self> {
        let mut described = Described { columns: Vec::new(), copies: true };
        for row in rows {
            let get = |i: usize| row.get(i).and_then(|v| v.as_deref());
            let text = |i: usize| get(i).unwrap_or_default();
            let number = |i: usize| get(i).and_then(|v| v.parse().ok());
            let form = if text(6) == "e" { Form::Text } else { number(3).map_or(Form::Other, Form::of) };
            described.columns.push(TableColumn {
                name: text(0).to_string(),
                declared: text(1).to_string(),
                bare: text(2).to_string(),
                shape: Shape { form, element: number(4), modifier: text(5).parse().unwrap_or(-1) },
                generated: text(7) == "t",
            });
            described.copies &= text(8) == "t";
        }
        (!described.columns.is_empty()).then_some(described)
    }

    /// The column with this name.
    ///
    /// # Errors
    /// There is none.
    pub fn column(&self, table: &str, name: &str) -> Result<&TableColumn, DbError> {
        self.columns.iter().find(|c| c.name == name).ok_or_else(|| {
            let names: Vec<_> = self.columns.iter().map(|c| c.name.as_str()).collect();
            let shown = names.join(", ");
            DbError::fatal(format!("table {table} has no column \"{name}\" (upper and lower case differ); it has {shown}"))
        })
    }
}

/// How values of a column go to the server.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub shape: Shape,
    /// The type that is sent, as SQL.
    pub name: String,
    /// The server makes the column's type of it.
    pub cast: bool,
}

impl TableColumn {
    /// How values of `data_type` are sent: in the column's own binary form, or, where it has none and for
    /// arrays that the job has as STRING, as text.
    pub fn sent(&self, data_type: &DataType) -> Sent {
        let text = |element| Shape { form: Form::Text, element, modifier: -1 };
        match (data_type, self.shape.form, self.shape.element) {
            (DataType::List(_), Form::Other, Some(_)) => Sent { shape: text(Some(TEXT)), name: "text[]".into(), cast: true },
            (_, Form::Other, _) | (DataType::Utf8, _, Some(_)) => Sent { shape: text(None), name: "text".into(), cast: true },
            _ => Sent { shape: self.shape, name: self.bare.clone(), cast: false },
        }
    }
}

/// The object identifier of `text`.
const TEXT: u32 = 25;

/// A target with the statements that write to it.
pub(super) struct Table {
    /// The target's name, columns and key, by which this is found again.
    pub table: String,
    pub schema: SchemaRef,
    pub key: Vec<usize>,
    /// What the database has for each column of the schema, and how values are sent.
    pub columns: Vec<TableColumn>,
    pub sent: Vec<Sent>,
    /// Rows without a key may be copied straight into the table.
    pub direct: bool,
    /// `COPY` into the table.
    pub copy: String,
    /// The temporary table of this target: its creation, `COPY` into it, what empties it.
    pub create_stage: String,
    pub copy_stage: String,
    pub empty_stage: String,
    /// From the temporary table into the target.
    pub insert: String,
    /// The same, and updates rows that are there.
    pub merge: String,
}

impl Table {
    /// The statements for a target. `number` makes the name of its temporary table.
    ///
    /// # Errors
    /// The table lacks a column.
    pub fn new(target: &Target, described: &Described, number: usize) -> Result<Self, DbError> {
        let mut columns = Vec::with_capacity(target.schema.fields().len());
        for field in target.schema.fields() {
            columns.push(described.column(&target.table, field.name())?.clone());
        }
        let name = PostgresDialect.quote(&target.table);
        let stage = format!("pg_temp.tidemill_stage_{number}");
        let names: Vec<String> = columns.iter().map(|c| quote_part(&c.name)).collect();
        let list = names.join(", ");
        let sent: Vec<Sent> = columns.iter().zip(target.schema.fields()).map(|(c, f)| c.sent(f.data_type())).collect();
        let types: Vec<_> = sent.iter().enumerate().map(|(i, sent)| format!("c{i} {}", sent.name)).collect();
        let casts = sent.iter().zip(&columns).map(|(s, c)| if s.cast { format!("::{}", c.bare) } else { String::new() });
        let values: Vec<_> = casts.enumerate().map(|(i, cast)| format!("s.c{i}{cast}")).collect();
        let insert = format!("INSERT INTO {name} ({list}) SELECT {} FROM {stage} AS s", values.join(", "));
        let keys: Vec<_> = target.key.iter().map(|i| names[*i].as_str()).collect();
        let updates: Vec<_> = target.value_columns().iter().map(|i| format!("{0} = EXCLUDED.{0}", names[*i])).collect();
        let action = if updates.is_empty() { "NOTHING".to_string() } else { format!("UPDATE SET {}", updates.join(", ")) };
        Ok(Table {
            table: target.table.clone(),
            schema: target.schema.clone(),
            key: target.key.clone(),
            direct: described.copies && sent.iter().all(|s| !s.cast),
            copy: format!("COPY {name} ({list}) FROM STDIN (FORMAT binary)"),
            create_stage: format!(
                "CREATE TEMPORARY TABLE IF NOT EXISTS tidemill_stage_{number} ({}) ON COMMIT DELETE ROWS",
                types.join(", ")
            ),
            copy_stage: format!("COPY {stage} FROM STDIN (FORMAT binary)"),
            empty_stage: format!("TRUNCATE {stage}"),
            merge: format!("{insert} ON CONFLICT ({}) DO {action}", keys.join(", ")),
            insert,
            columns,
            sent,
        })
    }

    /// Whether the columns can be written.
    ///
    /// # Errors
    /// The database makes the values of one itself.
    pub fn writable(&self) -> Result<(), DbError> {
        match self.columns.iter().find(|c| c.generated) {
            None => Ok(()),
            Some(column) => Err(DbError::fatal(format!(
                "table {}: the database makes the values of column \"{}\" itself; leave it out of the job's table",
                self.table, column.name
            ))),
        }
    }

    /// Whether this is for a target.
    pub fn is_of(&self, target: &Target) -> bool {
        self.table == target.table && self.key == target.key && self.schema.fields() == target.schema.fields()
    }

    /// Deletes the rows whose columns `keys` (numbers in the schema) equal an element of each of the arrays
    /// that are the parameters.
    pub fn delete(&self, keys: &[usize]) -> String {
        let name = PostgresDialect.quote(&self.table);
        match keys {
            [one] => format!("DELETE FROM {name} WHERE {}", self.any(*one)),
            _ => {
                let (source, condition) = self.unnest(keys);
                format!("DELETE FROM {name} AS t USING {source} WHERE {condition}")
            }
        }
    }

    /// Reads `columns` (SQL) of the rows that [`Table::delete`] would delete. The table is named `t`.
    pub fn look_up(&self, keys: &[usize], columns: &str) -> String {
        let name = PostgresDialect.quote(&self.table);
        match keys {
            [one] => format!("SELECT {columns} FROM {name} AS t WHERE {}", self.any(*one)),
            _ => {
                let (source, condition) = self.unnest(keys);
                format!("SELECT {columns} FROM {name} AS t JOIN {source} ON {condition}")
            }
        }
    }

    /// A condition on one column, by an index scan that takes the whole array.
    fn any(&self, key: usize) -> String {
        format!("{} = ANY({})", quote_part(&self.columns[key].name), self.parameter(key, 1))
    }

    /// Keys of several columns as a table, and what joins it.
    fn unnest(&self, keys: &[usize]) -> (String, String) {
        let arrays: Vec<_> = keys.iter().enumerate().map(|(i, key)| self.parameter(*key, i + 1)).collect();
        let names: Vec<_> = (0..keys.len()).map(|i| format!("k{i}")).collect();
        let equal = keys.iter().enumerate().map(|(i, key)| format!("t.{} = k.k{i}", quote_part(&self.columns[*key].name)));
        let equal: Vec<_> = equal.collect();
        (format!("unnest({}) AS k({})", arrays.join(", "), names.join(", ")), equal.join(" AND "))
    }

    /// The array of keys of a column: parameter `number`.
    fn parameter(&self, key: usize, number: usize) -> String {
        let sent = format!("${number}::{}[]", self.key_type(key).1);
        if self.sent[key].cast { format!("{sent}::{}[]", self.columns[key].bare) } else { sent }
    }

    /// How keys of a column are sent, and that type's name: whole numbers in their own width, since one that
    /// the column could not hold is just not there; text of any length.
    pub fn key_type(&self, key: usize) -> (Shape, &str) {
        let shape = |form| Shape { form, element: None, modifier: -1 };
        match (self.schema.field(key).data_type(), self.columns[key].shape.form) {
            (DataType::Int8 | DataType::Int16, Form::Int4 | Form::Int8) => (shape(Form::Int2), "smallint"),
            (DataType::Int32, Form::Int2 | Form::Int8) => (shape(Form::Int4), "integer"),
            (DataType::Int64, Form::Int2 | Form::Int4) => (shape(Form::Int8), "bigint"),
            _ => (Shape { modifier: -1, ..self.sent[key].shape }, &self.sent[key].name),
        }
    }
}
