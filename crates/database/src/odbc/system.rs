//! Which database is behind the driver, as far as that makes a difference: sessions, locks, upserts.

use super::column::Column;

/// A database whose ways are known; what is common to all is SQL's standard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum System {
    Postgres,
    /// MySQL and MariaDB.
    MySql,
    SqlServer,
    Oracle,
    Db2,
    Sqlite,
    /// Any other.
    Standard,
}

/// Parts of names of drivers, their files and databases.
const NAMES: &[(&str, System)] = &[
    ("mariadb", System::MySql),
    ("maodbc", System::MySql),
    ("mysql", System::MySql),
    ("myodbc", System::MySql),
    ("postgre", System::Postgres),
    ("psqlodbc", System::Postgres),
    ("sqlite", System::Sqlite),
    ("sql server", System::SqlServer),
    ("msodbcsql", System::SqlServer),
    ("freetds", System::SqlServer),
    ("tdsodbc", System::SqlServer),
    ("oracle", System::Oracle),
    ("sqora", System::Oracle),
    ("db2", System::Db2),
];

/// How rows are inserted or replaced by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Upsert {
    /// One statement, whose parameters are the columns.
    Statement(String),
    /// An update, whose parameters are the columns that are not of the key and then the key's, and for rows that it did
    /// not find an insert.
    UpdateThenInsert,
}

impl System {
    /// What a name stands for; `None` if it is not known.
    pub fn guess(name: &str) -> Option<Self> {
        let name = name.to_lowercase();
        NAMES.iter().find(|(part, _)| name.contains(part)).map(|(_, system)| *system)
    }

    /// Attributes that the driver needs, unless the user has set them.
    pub fn attributes(self, given: &[(String, String)]) -> Vec<(String, String)> {
        let of = |name: &str| super::string::attribute(given, name);
        match self {
            // The driver would set a savepoint of its own before every statement; after errors we go back ourselves.
            System::Postgres if of("Protocol").is_none() => vec![("Protocol".into(), "7.4-0".into())],
            // Rows that an update finds count, also those that are as they should be (FLAG_FOUND_ROWS).
            System::MySql => match of("Option").map(|flags| flags.trim().parse::<u64>()) {
                None => vec![("OPTION".into(), "2".into())],
                Some(Ok(flags)) if flags & 2 == 0 => vec![("OPTION".into(), (flags | 2).to_string())],
                Some(_) => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    /// What a session is set to: times are in UTC, values that do not fit are errors, numbers have points.
    pub fn setup(self) -> &'static [&'static str] {
        match self {
            // Rows of a table always come in the order in which they lie: a scan without a key counts them to go on where it was.
            System::Postgres => &[
                "SET TIME ZONE 'UTC'",
                "SET standard_conforming_strings = on",
                "SET client_min_messages = warning",
                "SELECT set_config(name, CASE name WHEN 'synchronize_seqscans' THEN 'off' ELSE '0' END, false) FROM pg_settings \
                 WHERE name IN ('synchronize_seqscans', 'max_parallel_workers_per_gather')",
            ],
            System::MySql => {
                &["SET time_zone = '+00:00', sql_safe_updates = 0, sql_mode = 'STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,\
                 ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO'"]
            }
            System::SqlServer => &["SET XACT_ABORT OFF", "SET ANSI_WARNINGS ON", "SET ARITHABORT ON", "SET LOCK_TIMEOUT -1"],
            System::Oracle => &["ALTER SESSION SET TIME_ZONE = '+00:00' NLS_NUMERIC_CHARACTERS = '.,'"],
            System::Db2 | System::Sqlite | System::Standard => &[],
        }
    }

    /// What a transaction begins with, if the one before may have set something of the session.
    pub fn begin(self) -> Option<&'static str> {
        match self {
            System::SqlServer => Some("SET LOCK_TIMEOUT -1"),
            System::Db2 => Some("SET CURRENT LOCK TIMEOUT = NULL"),
            _ => None,
        }
    }

    /// Whether `CREATE TABLE IF NOT EXISTS` is known.
    pub fn creates_if_missing(self) -> bool {
        matches!(self, System::Postgres | System::MySql | System::Sqlite)
    }

    /// A query that any session answers; `None` where that takes a table.
    pub fn ping(self) -> Option<&'static str> {
        match self {
            System::Oracle => Some("SELECT 1 FROM dual"),
            System::Db2 => Some("VALUES 1"),
            System::Standard => None,
            _ => Some("SELECT 1"),
        }
    }

    /// Statements that mark a place in the transaction, go back to it, forget it; empty where there is nothing to do.
    pub fn savepoint(self) -> (&'static str, &'static str, &'static str) {
        const MARK: &str = "SAVEPOINT tidemill";
        const BACK: &str = "ROLLBACK TO SAVEPOINT tidemill";
        match self {
            System::SqlServer => ("SAVE TRANSACTION tidemill", "ROLLBACK TRANSACTION tidemill", ""),
            System::Oracle => (MARK, BACK, ""),
            System::Db2 => ("SAVEPOINT tidemill ON ROLLBACK RETAIN CURSORS", BACK, "RELEASE SAVEPOINT tidemill"),
            _ => (MARK, BACK, "RELEASE SAVEPOINT tidemill"),
        }
    }

    /// How rows go into `table` by key; names are quoted, `key` are positions in `columns`. `other_keys`: the table has
    /// unique indexes beside the key's.
    pub fn upsert(self, table: &str, names: &[String], key: &[usize], columns: &[&Column], other_keys: bool) -> Upsert {
        let values: Vec<&String> = names.iter().enumerate().filter(|(i, _)| !key.contains(i)).map(|(_, name)| name).collect();
        let set = |form: &dyn Fn(&str) -> String| {
            let parts: Vec<String> = values.iter().map(|name| format!("{name} = {}", form(name))).collect();
            parts.join(", ")
        };
        let keys: Vec<&str> = key.iter().map(|i| names[*i].as_str()).collect();
        let insert = insert(table, names);
        let merge = |source: String| {
            let on: Vec<String> = keys.iter().map(|name| format!("t.{name} = s.{name}")).collect();
            let update = if values.is_empty() {
                String::new()
            } else {
                format!(" WHEN MATCHED THEN UPDATE SET {}", set(&|name| format!("s.{name}")))
            };
            let from: Vec<String> = names.iter().map(|name| format!("s.{name}")).collect();
            format!(
                "MERGE INTO {table} t USING {source} ON ({}){update} WHEN NOT MATCHED THEN INSERT ({}) VALUES ({})",
                on.join(" AND "),
                names.join(", "),
                from.join(", ")
            )
        };
        let named = |parameters: &[String]| {
            let items: Vec<String> = parameters.iter().zip(names).map(|(parameter, name)| format!("{parameter} AS {name}")).collect();
            items.join(", ")
        };
        let plain = vec!["?".to_string(); names.len()];
        Upsert::Statement(match self {
            System::Postgres | System::Sqlite => {
                let then = match values.is_empty() {
                    true => "NOTHING".to_string(),
                    false => format!("UPDATE SET {}", set(&|name| format!("excluded.{name}"))),
                };
                format!("{insert} ON CONFLICT ({}) DO {then}", keys.join(", "))
            }
            // A duplicate in another index would be taken for the row to be changed.
            System::MySql if !other_keys => {
                let set = if values.is_empty() { format!("{0} = {0}", keys[0]) } else { set(&|name| format!("VALUES({name})")) };
                format!("{insert} ON DUPLICATE KEY UPDATE {set}")
            }
            // The semicolon is part of it.
            System::SqlServer => format!("{};", merge(format!("(SELECT {}) s", named(&plain)))),
            System::Oracle => merge(format!("(SELECT {} FROM dual) s", named(&plain))),
            System::Db2 => match columns.iter().map(|c| c.db2_cast()).collect::<Option<Vec<_>>>() {
                Some(casts) => merge(format!("(SELECT {} FROM sysibm.sysdummy1) s", named(&casts))),
                None => return Upsert::UpdateThenInsert,
            },
            System::MySql | System::Standard => return Upsert::UpdateThenInsert,
        })
    }
}

/// `INSERT` of a row of parameters.
pub(super) fn insert(table: &str, names: &[String]) -> String {
    format!("INSERT INTO {table} ({}) VALUES ({})", names.join(", "), vec!["?"; names.len()].join(", "))
}

/// `UPDATE` by key: the parameters of the values come first.
pub(super) fn update(table: &str, names: &[String], key: &[usize]) -> String {
    let mut set: Vec<String> = names.iter().enumerate().filter(|(i, _)| !key.contains(i)).map(|(_, name)| format!("{name} = ?")).collect();
    if set.is_empty() {
        // Finds the row, and leaves it as it is.
        set = key.iter().map(|i| format!("{0} = {0}", names[*i])).collect();
    }
    let key: Vec<String> = key.iter().map(|i| names[*i].clone()).collect();
    format!("UPDATE {table} SET {} WHERE {}", set.join(", "), equal(&key))
}

/// `DELETE` by key.
pub(super) fn delete(table: &str, names: &[String]) -> String {
    format!("DELETE FROM {table} WHERE {}", equal(names))
}

/// The rows of `keys` keys.
pub(super) fn look_up(table: &str, wanted: &[String], names: &[String], keys: usize) -> String {
    let condition = match names {
        [name] => format!("{name} IN ({})", vec!["?"; keys].join(", ")),
        _ => vec![format!("({})", equal(names)); keys].join(" OR "),
    };
    format!("SELECT {} FROM {table} WHERE {condition}", wanted.join(", "))
}

fn equal(names: &[String]) -> String {
    let parts: Vec<String> = names.iter().map(|name| format!("{name} = ?")).collect();
    parts.join(" AND ")
}
