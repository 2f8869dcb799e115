//! What names in a script stand for: tables, views, files. One namespace, as in Flink's
//! `default_catalog.default_database`.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion_expr::LogicalPlan;
use sqlparser::ast::{ObjectName, Spanned};
use tidemill_plan::Table;

use crate::diagnostic::{LineIndex, SqlError};
use crate::session::{FileRequest, FileResolver};

/// Flink's names of the catalog and the database that are there from the start.
const DEFAULTS: [&str; 2] = ["default_catalog", "default_database"];

/// The tables and views.
#[derive(Clone, Default)]
pub(crate) struct Catalog {
    relations: BTreeMap<String, Relation>,
}

/// A table or a view.
#[derive(Clone)]
pub(crate) enum Relation {
    Table { table: Arc<Table>, text: Arc<TableText> },
    View(Arc<View>),
}

/// What a table's declaration said that its plan does not need: for `SHOW CREATE TABLE`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TableText {
    pub comment: Option<String>,
    /// Comments by column.
    pub comments: BTreeMap<String, String>,
    /// The SQL of computed columns, by column.
    pub expressions: BTreeMap<String, String>,
    /// The SQL of the watermark strategy.
    pub watermark: Option<String>,
}

/// A view.
pub(crate) struct View {
    pub plan: LogicalPlan,
    /// The query's SQL.
    pub text: String,
    /// The names given to its columns; empty if none were.
    pub columns: Vec<String>,
    /// Written `TEMPORARY`.
    pub temporary: bool,
}

impl Catalog {
    pub fn get(&self, name: &str) -> Option<&Relation> {
        self.relations.get(name)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.relations.keys().map(String::as_str)
    }

    pub fn add(&mut self, name: &str, relation: Relation) -> Result<(), SqlError> {
        if let Some(there) = self.relations.get(name) {
            let (what, drop) = match there {
                Relation::Table { .. } => ("table", "TABLE"),
                Relation::View(_) => ("view", "VIEW"),
            };
            return Err(SqlError::new(format!("there is a {what} {name} already"))
                .with_help(format!("DROP {drop} {name} first, or write IF NOT EXISTS to keep the one that is there")));
        }
        self.relations.insert(name.to_string(), relation);
        Ok(())
    }

    pub fn remove(&mut self, name: &str) {
        self.relations.remove(name);
    }

    /// The name that a statement gives to a new relation.
    pub fn new_name(&self, name: &ObjectName, lines: &LineIndex<'_>) -> Result<String, SqlError> {
        plain_name(name, lines)
    }

    /// The relation of a name.
    pub fn find(&self, name: &ObjectName, lines: &LineIndex<'_>) -> Result<(String, &Relation), SqlError> {
        let place = lines.span(name.span());
        let name = plain_name(name, lines)?;
        match self.get(&name) {
            Some(relation) => Ok((name, relation)),
            None => Err(self.unknown(&name).or_at(place)),
        }
    }

    /// The name to drop; `None` if there is none and that is fine.
    pub fn droppable(&self, name: &ObjectName, if_exists: bool, view: bool, lines: &LineIndex<'_>) -> Result<Option<String>, SqlError> {
        match self.find(name, lines) {
            Ok((found, relation)) => match (relation, view) {
                (Relation::Table { .. }, true) => Err(SqlError::new(format!("{found} is a table, not a view"))
                    .or_at(lines.span(name.span()))
                    .with_help(format!("write DROP TABLE {found}"))),
                (Relation::View(_), false) => Err(SqlError::new(format!("{found} is a view, not a table"))
                    .or_at(lines.span(name.span()))
                    .with_help(format!("write DROP VIEW {found}"))),
                _ => Ok(Some(found)),
            },
            Err(_) if if_exists => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The error for a name that is not there.
    pub fn unknown(&self, name: &str) -> SqlError {
        let error = SqlError::new(format!("there is no table or view {name}"));
        match nearest(name, self.names()) {
            Some(near) if near.eq_ignore_ascii_case(name) => error.with_help(format!("names are case-sensitive: there is {near}")),
            Some(near) => error.with_help(format!("did you mean {near}?")),
            None if self.relations.is_empty() => {
                error.with_help("create it first: CREATE TABLE …; a file is written in single quotes: 'data.csv'")
            }
            None => error.with_help(listed(self.names())),
        }
    }
}

/// `there are` and at most a dozen names, with commas.
pub(crate) fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    match names.len() {
        1 => format!("there is only {}", names[0]),
        0..=12 => format!("there are {}", names.join(", ")),
        more => format!("there are {} and {} more", names[..12].join(", "), more - 12),
    }
}

/// The name nearest to one, if it is near enough to be meant.
pub(crate) fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > 64 {
        return None;
    }
    let lower = word.to_lowercase();
    let (distance, name) = names
        .map(|n| (strsim::damerau_levenshtein(&lower, &n.to_lowercase()), n))
        .min_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.cmp(b.1)))?;
    (distance <= 1 + name.chars().count() / 5 && distance < word.chars().count()).then_some(name)
}

/// The last part of a name, without quotes.
pub(crate) fn last_part(name: &ObjectName) -> String {
    name.0.last().and_then(|p| p.as_ident()).map(|i| i.value.clone()).unwrap_or_default()
}

/// The name without Flink's default catalog and database.
pub(crate) fn plain_name(name: &ObjectName, lines: &LineIndex<'_>) -> Result<String, SqlError> {
    let parts: Vec<&str> = name.0.iter().map(|p| p.as_ident().map(|i| i.value.as_str()).unwrap_or_default()).collect();
    match strip_defaults(&parts) {
        Some(name) => Ok(name.to_string()),
        None => Err(SqlError::new(format!("there is no catalog or database {}", parts[..parts.len() - 1].join(".")))
            .or_at(lines.span(name.span()))
            .with_help("there is one catalog: name the table alone; a name with a period in it is written `a.b`")),
    }
}

/// The last part, if those before it are the defaults.
pub(crate) fn strip_defaults<'a>(parts: &[&'a str]) -> Option<&'a str> {
    match parts {
        [name] => Some(name),
        [database, name] if *database == DEFAULTS[1] => Some(name),
        [catalog, database, name] if *catalog == DEFAULTS[0] && *database == DEFAULTS[1] => Some(name),
        _ => None,
    }
}

/// Whether a name that is no table looks like a file.
pub(crate) fn looks_like_file(name: &str) -> bool {
    const TEXT: [&str; 8] = [".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".gz", ".zst", ".zip"];
    const COLUMNS: [&str; 8] = [".parquet", ".avro", ".orc", ".xlsx", ".arrow", ".arrows", ".feather", ".ipc"];
    let lower = name.to_ascii_lowercase();
    name.contains('/') || TEXT.iter().chain(&COLUMNS).any(|end| lower.ends_with(end))
}

/// The files of one statement: each is looked at once.
pub(crate) struct Files {
    resolver: Option<FileResolver>,
    seen: Mutex<HashMap<FileRequest, Arc<[Arc<Table>]>>>,
}

impl Files {
    pub fn new(resolver: Option<FileResolver>) -> Self {
        Files { resolver, seen: Mutex::default() }
    }

    /// The tables that files are, one or more.
    pub fn tables(&self, request: &FileRequest) -> Result<Arc<[Arc<Table>]>, SqlError> {
        let Some(resolver) = &self.resolver else {
            return Err(SqlError::new(format!("'{}': files cannot be read here", request.paths.join("', '")))
                .with_help("declare a table: CREATE TABLE … WITH ('connector' = 'filesystem', …)"));
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tables) = seen.get(request) {
            return Ok(tables.clone());
        }
        let tables: Arc<[Arc<Table>]> = resolver(request).map_err(SqlError::new)?.into_iter().map(Arc::new).collect();
        seen.insert(request.clone(), tables.clone());
        Ok(tables)
    }
}
