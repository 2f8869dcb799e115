//! The statements of upserts, deletes and look-ups.
//!
//! Rows come from a temporary table or, if they are few, from a list of `VALUES` whose parameters are cast to the
//! types of the table's columns; both are named `s` and have the table's names of columns.
//!
//! `MERGE` comes without the hint HOLDLOCK: writers of the job never share a key, and locks on ranges of keys would
//! have them wait for each other. If somebody else inserts a key at the same moment, the unique key refuses one of the
//! two, and the row that was refused is tried again by itself.

use super::dialect::{quoted, quoted_list};
use super::encode::Sent;
use super::types::{Kind, TableColumn};

/// Where rows come from: `#stage AS s` or a list of `VALUES`.
pub(super) fn staged(stage: &str) -> String {
    format!("{stage} AS s")
}

/// What stands around a parameter: a cast, a collation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Around {
    before: &'static str,
    behind: String,
}

impl Around {
    /// `CAST(… AS sql) COLLATE collation`, as far as there is something to say. A list of `VALUES` is a table, whose
    /// columns have collations of their own: without saying which, those of other columns would not go with them.
    fn new(sql: Option<&str>, column: &TableColumn) -> Self {
        let (before, mut behind) = match sql {
            Some(sql) => ("CAST(", format!(" AS {sql})")),
            None => ("", String::new()),
        };
        if let Some(collation) = column.collation_name.as_ref().filter(|_| column.is_text()) {
            behind.push_str(" COLLATE ");
            behind.push_str(collation);
        }
        Around { before, behind }
    }
}

/// `rows` lists of parameters, numbered row by row, with what stands around those of each column.
pub(super) fn listed(columns: &[Sent<'_>], rows: usize, around: &[Around]) -> String {
    let mut text = String::from("(VALUES ");
    let mut number = 0;
    for row in 0..rows {
        text.push_str(if row > 0 { ",(" } else { "(" });
        for (i, around) in around.iter().enumerate() {
            number += 1;
            let comma = if i > 0 { "," } else { "" };
            text.push_str(&format!("{comma}{}@P{number}{}", around.before, around.behind));
        }
        text.push(')');
    }
    let names = quoted_list(columns.iter().map(|c| c.column.name.as_str()), "");
    format!("{text}) AS s ({names})")
}

/// Parameters that are to be written: values were checked to be of the column's type.
pub(super) fn as_columns(columns: &[Sent<'_>]) -> Vec<Around> {
    columns.iter().map(|c| Around::new(Some(c.column.type_text.as_str()), c.column)).collect()
}

/// A parameter that is compared with a column of a table: where the comparison would convert the column, it becomes
/// the column's own type, of any length. A cast is made in the code page of the database, which need not be the
/// column's, so that only text which is the same in all of them is cast.
pub(super) fn as_key(sent: &Sent<'_>, column: &TableColumn) -> Around {
    let sql = match column.kind {
        Kind::Char { max: Some(_), .. } if sent.is_ascii() => Some("varchar(8000)"),
        Kind::Char { max: None, .. } if sent.is_ascii() => Some("varchar(max)"),
        Kind::DateTime | Kind::SmallDateTime => Some(column.type_text.as_str()),
        _ => None,
    };
    Around::new(sql, column)
}

/// The temporary table: the columns with their types and collations, but without indexes, defaults and numbering
/// (which a column of `UNION ALL` has not).
pub(super) fn make_stage<'a>(stage: &str, table: &str, columns: impl Iterator<Item = &'a str>) -> String {
    let columns = quoted_list(columns, "");
    format!("SELECT TOP 0 {columns} INTO {stage} FROM {table} UNION ALL SELECT TOP 0 {columns} FROM {table}")
}

/// Inserts or replaces the rows of `source`. `key` are positions in `columns`.
pub(super) fn merge(table: &str, source: &str, columns: &[&str], key: &[usize]) -> String {
    let on = equal(key.iter().map(|i| columns[*i]));
    let others = columns.iter().enumerate().filter(|(i, _)| !key.contains(i));
    let set: Vec<String> = others.map(|(_, name)| format!("{0} = s.{0}", quoted(name))).collect();
    let update = if set.is_empty() { String::new() } else { format!(" WHEN MATCHED THEN UPDATE SET {}", set.join(", ")) };
    let (names, values) = (quoted_list(columns.iter().copied(), ""), quoted_list(columns.iter().copied(), "s."));
    format!("MERGE INTO {table} AS t USING {source} ON {on}{update} WHEN NOT MATCHED BY TARGET THEN INSERT ({names}) VALUES ({values});")
}

/// Deletes the rows with the keys of `source`.
pub(super) fn delete<'a>(table: &str, source: &str, key: impl Iterator<Item = &'a str>) -> String {
    format!("DELETE t FROM {table} AS t JOIN {source} ON {}", equal(key))
}

/// The rows with the keys of `source`, each once. `columns` is the list of what is wanted.
pub(super) fn look_up<'a>(table: &str, source: &str, key: impl Iterator<Item = &'a str>, columns: &str) -> String {
    format!("SELECT {columns} FROM {table} AS t WHERE EXISTS (SELECT 1 FROM {source} WHERE {})", equal(key))
}

/// `t.[a] = s.[a] AND t.[b] = s.[b]`.
fn equal<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("t.{0} = s.{0}", quoted(name))).collect::<Vec<_>>().join(" AND ")
}
