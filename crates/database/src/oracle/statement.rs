//! The statements of appends, upserts, deletes and look-ups. Parameters are numbered in the order of the columns.
//!
//! A `MERGE` takes its row from its parameters, once for each row of an array. Those of a query are no longer than a
//! `VARCHAR2`, so a longer text goes into a `CLOB` by an `UPDATE` behind it, whose parameters may be of any length.

use super::dialect::quoted;
use super::types::{Kind, TableColumn};

/// Inserts a row.
pub(super) fn insert(table: &str, columns: &[&TableColumn]) -> String {
    let values: Vec<String> = (1..=columns.len()).map(|number| format!(":{number}")).collect();
    format!("INSERT INTO {table} ({}) VALUES ({})", list(columns.iter().copied(), ""), values.join(", "))
}

/// Inserts or replaces a row. `key` and `late` are positions in `columns`; `late` ones have no parameters, and are empty in
/// a row that is inserted until [`update`] fills them.
pub(super) fn merge(table: &str, columns: &[&TableColumn], key: &[usize], late: &[usize]) -> String {
    let now: Vec<usize> = (0..columns.len()).filter(|i| !late.contains(i)).collect();
    let source: Vec<String> = now.iter().enumerate().map(|(n, i)| format!(":{} AS {}", n + 1, quoted(&columns[*i].name))).collect();
    let on: Vec<String> = key.iter().map(|i| equal(columns[*i], "t.", &format!("s.{}", quoted(&columns[*i].name)))).collect();
    let others = now.iter().filter(|i| !key.contains(i)).map(|i| quoted(&columns[*i].name));
    let set: Vec<String> = others.map(|name| format!("t.{name} = s.{name}")).collect();
    let update = if set.is_empty() { String::new() } else { format!(" WHEN MATCHED THEN UPDATE SET {}", set.join(", ")) };
    let value = |(i, column): (usize, &&TableColumn)| match (late.contains(&i), column.kind) {
        (false, _) => format!("s.{}", quoted(&column.name)),
        (true, Kind::Blob) => "EMPTY_BLOB()".into(),
        (true, _) => "EMPTY_CLOB()".into(),
    };
    let values: Vec<String> = columns.iter().enumerate().map(value).collect();
    format!(
        "MERGE INTO {table} t USING (SELECT {} FROM DUAL) s ON ({}){update} WHEN NOT MATCHED THEN INSERT ({}) VALUES ({})",
        source.join(", "),
        on.join(" AND "),
        list(columns.iter().copied(), ""),
        values.join(", ")
    )
}

/// Fills columns of a row: parameters are theirs, then those of the key.
pub(super) fn update(table: &str, columns: &[&TableColumn], key: &[&TableColumn]) -> String {
    let set: Vec<String> = columns.iter().enumerate().map(|(n, column)| format!("{} = :{}", quoted(&column.name), n + 1)).collect();
    format!("UPDATE {table} SET {} WHERE {}", set.join(", "), keyed(key, columns.len()))
}

/// Deletes a row by key.
pub(super) fn delete(table: &str, key: &[&TableColumn]) -> String {
    format!("DELETE FROM {table} WHERE {}", keyed(key, 0))
}

/// The rows with one of `rows` keys, each once, with the columns `wanted`.
pub(super) fn look_up(table: &str, key: &[&TableColumn], rows: usize, wanted: &[&TableColumn]) -> String {
    let row = |row: usize| {
        let before = row * key.len();
        let values: Vec<String> = key.iter().enumerate().map(|(i, column)| cast(column, &format!(":{}", before + i + 1))).collect();
        if values.len() == 1 { values.join("") } else { format!("({})", values.join(", ")) }
    };
    let keys: Vec<String> = (0..rows).map(row).collect();
    let names = list(key.iter().copied(), "t.");
    let names = if key.len() == 1 { names } else { format!("({names})") };
    format!("SELECT {} FROM {table} t WHERE {names} IN ({})", list(wanted.iter().copied(), "t."), keys.join(", "))
}

/// Names with commas between them, each behind `prefix`.
fn list<'c>(columns: impl Iterator<Item = &'c TableColumn>, prefix: &str) -> String {
    columns.map(|column| format!("{prefix}{}", quoted(&column.name))).collect::<Vec<_>>().join(", ")
}

/// The condition that a row has the key of the parameters behind `before`.
fn keyed(key: &[&TableColumn], before: usize) -> String {
    let equal = |(n, column): (usize, &&TableColumn)| equal(column, "", &format!(":{}", before + n + 1));
    key.iter().enumerate().map(equal).collect::<Vec<_>>().join(" AND ")
}

fn equal(column: &TableColumn, prefix: &str, value: &str) -> String {
    format!("{prefix}{} = {}", quoted(&column.name), cast(column, value))
}

/// A value that a column is compared with: where the comparison would convert the column, which no index survives, or
/// count the blanks that fill it up, the value is converted.
fn cast(column: &TableColumn, value: &str) -> String {
    match column.kind {
        Kind::Date => format!("CAST({value} AS DATE)"),
        // Both sides are filled up with blanks.
        Kind::Char => format!("CAST({value} AS CHAR(2000))"),
        Kind::NChar => format!("CAST({value} AS NCHAR(1000))"),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, kind: Kind) -> TableColumn {
        TableColumn::parameter(name, kind)
    }

    #[test]
    fn statements_are_written() {
        let number = Kind::Number { digits: 10, scale: Some(0) };
        let (id, at) = (column("ID", number), column("AT", Kind::Date));
        let (text, blob) = (column("TEXT", Kind::Clob), column("my \"b", Kind::Blob));
        let all = [&id, &at, &text, &blob];
        assert_eq!(insert("\"S\".\"T\"", &all), "INSERT INTO \"S\".\"T\" (\"ID\", \"AT\", \"TEXT\", \"my \"\"b\") VALUES (:1, :2, :3, :4)");
        assert_eq!(
            merge("\"T\"", &all[..3], &[0, 1], &[]),
            "MERGE INTO \"T\" t USING (SELECT :1 AS \"ID\", :2 AS \"AT\", :3 AS \"TEXT\" FROM DUAL) s ON (t.\"ID\" = s.\"ID\" AND \
             t.\"AT\" = CAST(s.\"AT\" AS DATE)) WHEN MATCHED THEN UPDATE SET t.\"TEXT\" = s.\"TEXT\" WHEN NOT MATCHED THEN INSERT \
             (\"ID\", \"AT\", \"TEXT\") VALUES (s.\"ID\", s.\"AT\", s.\"TEXT\")"
        );
        assert_eq!(
            merge("\"T\"", &all[..1], &[0], &[]),
            "MERGE INTO \"T\" t USING (SELECT :1 AS \"ID\" FROM DUAL) s ON (t.\"ID\" = s.\"ID\") WHEN NOT MATCHED THEN INSERT (\"ID\") \
             VALUES (s.\"ID\")"
        );
        assert_eq!(delete("\"T\"", &all[..2]), "DELETE FROM \"T\" WHERE \"ID\" = :1 AND \"AT\" = CAST(:2 AS DATE)");
    }

    #[test]
    fn long_values_come_behind() {
        let (id, text, blob) = (column("ID", Kind::VarChar), column("TEXT", Kind::Clob), column("BYTES", Kind::Blob));
        assert_eq!(
            merge("\"T\"", &[&text, &id, &blob], &[1], &[0, 2]),
            "MERGE INTO \"T\" t USING (SELECT :1 AS \"ID\" FROM DUAL) s ON (t.\"ID\" = s.\"ID\") WHEN NOT MATCHED THEN INSERT (\"TEXT\", \
             \"ID\", \"BYTES\") VALUES (EMPTY_CLOB(), s.\"ID\", EMPTY_BLOB())"
        );
        assert_eq!(update("\"T\"", &[&text, &blob], &[&id]), "UPDATE \"T\" SET \"TEXT\" = :1, \"BYTES\" = :2 WHERE \"ID\" = :3");
    }

    #[test]
    fn keys_are_listed() {
        let (id, code, name) = (column("ID", Kind::VarChar), column("CODE", Kind::Char), column("NAME", Kind::NChar));
        assert_eq!(look_up("\"T\"", &[&id], 2, &[&id, &name]), "SELECT t.\"ID\", t.\"NAME\" FROM \"T\" t WHERE t.\"ID\" IN (:1, :2)");
        assert_eq!(
            look_up("\"T\"", &[&code, &name], 2, &[&id]),
            "SELECT t.\"ID\" FROM \"T\" t WHERE (t.\"CODE\", t.\"NAME\") IN ((CAST(:1 AS CHAR(2000)), CAST(:2 AS NCHAR(1000))), \
             (CAST(:3 AS CHAR(2000)), CAST(:4 AS NCHAR(1000))))"
        );
    }
}
