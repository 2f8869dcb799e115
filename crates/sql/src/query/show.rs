//! Tables and views as text: `SHOW CREATE TABLE` and `DESCRIBE`.

use std::fmt::Write;

use tidemill_plan::{Column, ColumnKind, Table};

use super::catalog::{Relation, TableText, View};
use crate::session::Described;
use crate::types::flink_type;

/// The statement that declares a relation as it is now.
pub(crate) fn create_statement(name: &str, relation: &Relation) -> String {
    match relation {
        Relation::Table { table, text } => create_table(table, text),
        Relation::View(view) => create_view(name, view),
    }
}

fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn list(names: &[String]) -> String {
    names.iter().map(|n| quoted(n)).collect::<Vec<_>>().join(", ")
}

/// What stands for a secret.
const HIDDEN: &str = "******";

/// Whether what has this name is a secret.
fn is_secret(name: &str) -> bool {
    const SECRET: [&str; 7] = ["password", "passwd", "pwd", "secret", "token", "jaas", "authorization"];
    SECRET.iter().any(|word| name.to_ascii_lowercase().contains(word))
}

/// An option's value as it may be shown: whole values of options that are secrets, passwords in addresses and
/// tokens in headers are replaced.
fn without_secret(key: &str, value: &str) -> String {
    if is_secret(key) {
        return HIDDEN.into();
    }
    if (value.starts_with("jdbc:") || key == "url")
        && let Some(shown) = without_attribute(value).or_else(|| without_oracle_password(value))
    {
        return shown;
    }
    let mut shown = value.to_string();
    if let Some(begin) = value.find("://").map(|at| at + 3) {
        let authority = value[begin..].split(['/', '?', '#']).next().unwrap_or_default();
        if let Some((user, _)) = authority.rsplit_once('@').map(|(user, host)| (user.split(':').next().unwrap_or_default(), host)) {
            let password = begin + user.len()..begin + authority.rfind('@').unwrap_or(user.len());
            if !password.is_empty() {
                shown.replace_range(password, &format!(":{HIDDEN}"));
            }
        }
        if let Some((address, query)) = shown.clone().split_once('?') {
            let hide = |pair: &str| match pair.split_once('=') {
                Some((name, _)) if is_secret(name) => format!("{name}={HIDDEN}"),
                _ => pair.to_string(),
            };
            shown = format!("{address}?{}", query.split('&').map(hide).collect::<Vec<_>>().join("&"));
        }
    }
    shown
}

/// An address with attributes behind semicolons (`jdbc:sqlserver:`, `jdbc:odbc:`), if one of them is a secret. All that follows is
/// hidden with it: where a value ends that may hold semicolons itself, only the driver knows.
fn without_attribute(address: &str) -> Option<String> {
    let mut begin = 0;
    for part in address.split(';') {
        // The first one stands behind the colon of the scheme.
        let attribute = begin + if begin == 0 { part.rfind(':').map_or(0, |at| at + 1) } else { 0 };
        let part_end = begin + part.len();
        if let Some((name, _)) = address[attribute..part_end].split_once('=')
            && !name.contains('?')
            && is_secret(name)
        {
            return Some(format!("{}={HIDDEN}", &address[..attribute + name.len()]));
        }
        begin = part_end + 1;
    }
    None
}

/// An address of Oracle's own form, `…:user/password@…`, if there is a password in it.
fn without_oracle_password(address: &str) -> Option<String> {
    let begin = address.find("oracle:thin:")? + "oracle:thin:".len();
    let end = begin + address[begin..].rfind('@')?;
    let user = address[begin..end].find('/')?;
    Some(format!("{}/{HIDDEN}{}", &address[..begin + user], &address[end..]))
}

fn create_view(name: &str, view: &View) -> String {
    let columns = if view.columns.is_empty() { String::new() } else { format!(" ({})", list(&view.columns)) };
    format!("CREATE VIEW {}{columns} AS\n{}", quoted(name), view.text)
}

fn create_table(table: &Table, text: &TableText) -> String {
    let mut lines: Vec<String> = Vec::new();
    for column in &table.columns {
        let mut line = format!("{} {}", quoted(&column.name), definition(column, text));
        if let Some(comment) = text.comments.get(&column.name) {
            let _ = write!(line, " COMMENT {}", literal(comment));
        }
        lines.push(line);
    }
    if let Some(watermark) = &table.watermark {
        let strategy = text.watermark.clone().unwrap_or_else(|| watermark.expression.to_string());
        lines.push(format!("WATERMARK FOR {} AS {strategy}", quoted(&watermark.column)));
    }
    if !table.primary_key.is_empty() {
        lines.push(format!("PRIMARY KEY ({}) NOT ENFORCED", list(&table.primary_key)));
    }
    let mut out = format!("CREATE TABLE {} (\n  {}\n)", quoted(&table.name), lines.join(",\n  "));
    if let Some(comment) = &text.comment {
        let _ = write!(out, " COMMENT {}", literal(comment));
    }
    if !table.options.is_empty() {
        // What begins with # nobody has written, and nobody can.
        let written = table.options.iter().filter(|(k, _)| !k.starts_with('#'));
        let options: Vec<String> = written.map(|(k, v)| format!("{} = {}", literal(k), literal(&without_secret(k, v)))).collect();
        let _ = write!(out, " WITH (\n  {}\n)", options.join(",\n  "));
    }
    out
}

/// A column behind its name.
fn definition(column: &Column, text: &TableText) -> String {
    let not_null = if column.nullable { "" } else { " NOT NULL" };
    match &column.kind {
        ColumnKind::Physical => format!("{}{not_null}", flink_type(&column.data_type)),
        ColumnKind::Metadata { .. } => format!("{}{not_null} {}", flink_type(&column.data_type), extra(column, text)),
        ColumnKind::Computed(_) => extra(column, text),
    }
}

/// What makes a column another than a physical one.
fn extra(column: &Column, text: &TableText) -> String {
    match &column.kind {
        ColumnKind::Physical => String::new(),
        ColumnKind::Metadata { key, is_virtual } => {
            let from = if *key == column.name { String::new() } else { format!(" FROM {}", literal(key)) };
            format!("METADATA{from}{}", if *is_virtual { " VIRTUAL" } else { "" })
        }
        ColumnKind::Computed(expr) => format!("AS {}", text.expressions.get(&column.name).cloned().unwrap_or_else(|| expr.to_string())),
    }
}

/// The columns of a relation.
pub(crate) fn describe(relation: &Relation) -> Vec<Described> {
    match relation {
        Relation::Table { table, text } => table
            .columns
            .iter()
            .map(|column| Described {
                name: column.name.clone(),
                data_type: flink_type(&column.data_type),
                nullable: column.nullable,
                key: table.primary_key.contains(&column.name),
                extra: extra(column, text),
                watermark: match &table.watermark {
                    Some(w) if w.column == column.name => text.watermark.clone().unwrap_or_else(|| w.expression.to_string()),
                    _ => String::new(),
                },
            })
            .collect(),
        Relation::View(view) => view
            .plan
            .schema()
            .fields()
            .iter()
            .map(|field| Described {
                name: field.name().clone(),
                data_type: flink_type(field.data_type()),
                nullable: field.is_nullable(),
                key: false,
                extra: String::new(),
                watermark: String::new(),
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests;
