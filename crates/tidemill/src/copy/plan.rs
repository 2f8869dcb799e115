//! From the arguments to what is to be done: which files are read, with which columns, in which tasks, and what
//! they are written as. Nothing is written here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use tidemill_format::options::{OptionSet, RawOptions};
use tidemill_plan::Table;
use tidemill_runtime::LogicalPlan;
use tidemill_runtime::copy::{Target, compression, target};
use tidemill_sql::types::flink_type;
use tidemill_store::{Object, Store, StoreOptions, is_remote};

use super::manifest::Source;
use crate::Failure;
use crate::args::{CopyArgs, Verify};
use crate::files::{self, THESE, look, query, wishes::Wishes};
use crate::run::{failure, pair};

/// Part files are not cut, unless an option of the target says so.
const ROLLING: [(&str, &str); 2] = [("sink.rolling-policy.file-size", "8191 tb"), ("sink.rolling-policy.rollover-interval", "3650 d")];

/// What a copy does.
pub struct Plan {
    /// Each file with the table that it is.
    pub tables: BTreeMap<String, Table>,
    /// The files of each task.
    pub tasks: Vec<Vec<Source>>,
    /// Files that each task writes, if rows are not divided otherwise.
    pub writers: usize,
    /// The columns of all files, if they are put together by name.
    columns: Option<SchemaRef>,
    /// The columns that are written.
    pub schema: SchemaRef,
    /// What is written.
    pub target: Target,
    /// Where.
    pub path: PathBuf,
    /// What the rows pass through.
    pub query: Query,
    /// How the two sides are compared.
    pub verify: Verify,
    /// All of it as text, for the manifest.
    pub what: String,
}

/// The clauses around the files.
pub struct Query {
    select: String,
    condition: Option<String>,
    /// Sorts the rows of each task.
    pub sort_by: Option<String>,
}

impl Query {
    /// The query over what stands in FROM.
    fn text(&self, from: &str) -> String {
        let mut text = format!("SELECT {}\nFROM {from}", self.select);
        if let Some(condition) = &self.condition {
            text += &format!("\nWHERE ({condition}\n)");
        }
        if let Some(sort_by) = &self.sort_by {
            text += &format!("\nORDER BY {sort_by}");
        }
        text
    }
}

/// The columns of a plan, as they are written.
pub fn schema(plan: &LogicalPlan) -> SchemaRef {
    let field = |f: &arrow::datatypes::FieldRef| Field::new(f.name(), f.data_type().clone(), true);
    Arc::new(Schema::new(plan.schema().fields().iter().map(field).collect::<Vec<_>>()))
}

impl Plan {
    /// What the arguments ask for.
    ///
    /// # Errors
    /// A file that is not there, columns that differ, an option that is wrong.
    pub fn new(args: &CopyArgs) -> Result<Self, Failure> {
        let Some((to, from)) = args.paths.split_last().filter(|(_, from)| !from.is_empty()) else {
            return Err(Failure::usage("copy needs what is copied and where to: tidemill copy FROM… TO"));
        };
        let mut wishes = Wishes { union: args.union_by_name, ..Wishes::default() };
        for option in &args.read {
            let (name, value) = pair(option, "--read")?;
            wishes.take(&name, &value).map_err(|e| Failure::usage(format!("--read {option}: {e}")))?;
        }
        let mut tables = Vec::new();
        let mut objects: BTreeMap<String, Object> = BTreeMap::new();
        for path in from {
            // Before they are looked at: what changes in between is another version when the copy goes on.
            objects.extend(remote(path, &wishes.options).map_err(Failure::usage)?.into_iter().map(|object| (object.url.clone(), object)));
            tables.extend(files::each(path, &wishes).map_err(Failure::usage)?);
        }
        if !wishes.union {
            check_alike(&tables).map_err(Failure::usage)?;
        }
        let source = |path: &str| match objects.get(archive_of(path).unwrap_or(path)) {
            Some(object) => Source::of_object(path, object),
            None => Source::of(path),
        };
        let mut sources: Vec<Source> = tables.iter().map(|(path, _)| source(path)).collect();
        share_archives(&mut sources);
        let tables: BTreeMap<String, Table> = tables.into_iter().collect();
        if tables.len() < sources.len() {
            return Err(Failure::usage("a file is named more than once among those to copy; name it once"));
        }
        let target = write_to(args, to)?;
        let query_of = Query {
            select: args.select.clone().unwrap_or_else(|| "*".to_string()),
            condition: args.condition.clone(),
            sort_by: args.sort_by.clone(),
        };
        let many = sources.len() > 1;
        let together = target.single || args.files.is_some_and(|files| files <= 1);
        let (groups, writers) = match args.files {
            _ if together => (vec![sources], 1),
            None => (sources.into_iter().map(|source| vec![source]).collect(), 1),
            Some(files) if files > sources.len() => (vec![sources], files),
            Some(files) => (grouped(sources, files), 1),
        };
        // With columns put together by name they are those of all files.
        let columns = match wishes.union {
            true => {
                let text = format!("SELECT * FROM '{THESE}'");
                let (plan, _) = query(&text, distinct(tables.values()), 1).map_err(|e| failure(&e, "copy", &text))?;
                Some(schema(&plan))
            }
            false => None,
        };
        let first: Vec<Table> = tables.values().take(1).cloned().collect();
        let text = query_of.text(&from_clause(&first, columns.as_ref()));
        let (plan, _) = query(&text, first, 1).map_err(|e| failure(&e, "copy", &text))?;
        if many && spans_rows(&plan) {
            let why = "--select and --sort-by are for each file by itself, so aggregates, windows, DISTINCT and LIMIT cannot stand there";
            return Err(Failure::usage(format!("{why}; write COPY (SELECT … FROM '…') TO '…' with tidemill sql")));
        }
        let schema = schema(&plan);
        if schema.fields().iter().any(|f| *f.data_type() == DataType::Null) {
            return Err(Failure::usage("a column of --select is NULL in every row and has no type; write CAST(NULL AS STRING) AS name"));
        }
        let what = what(args, &schema, &target);
        let path = PathBuf::from(to.strip_prefix("file://").unwrap_or(to));
        Ok(Plan { tables, tasks: groups, writers, columns, schema, target, path, query: query_of, verify: args.verify, what })
    }

    /// The name of the file in the directory of parts that becomes the target, if it is one file.
    pub fn file(&self) -> Option<&str> {
        if self.target.single { self.path.file_name().and_then(|n| n.to_str()) } else { None }
    }

    /// The options of the table that is written, with another path, and how it is compressed said plainly.
    pub fn options(&self, path: &Path) -> BTreeMap<String, String> {
        let mut options = self.target.options.clone();
        options.insert("path".to_string(), path.to_string_lossy().into_owned());
        for (key, value) in ROLLING {
            options.entry(key.to_string()).or_insert_with(|| value.to_string());
        }
        options
    }

    /// All tables of a task's files, in their order.
    fn tables_of(&self, sources: &[Source]) -> Vec<Table> {
        sources.iter().map(|source| self.tables[&source.path].clone()).collect()
    }

    /// The query over files, and their tables.
    pub fn query_over(&self, sources: &[Source]) -> (String, Vec<Table>) {
        let tables = self.tables_of(sources);
        (self.query.text(&from_clause(&tables, self.columns.as_ref())), tables)
    }
}

/// What stands in FROM for files: they themselves, or, if columns are put together by name, a query that gives all
/// of these columns.
fn from_clause(tables: &[Table], columns: Option<&SchemaRef>) -> String {
    let Some(columns) = columns else { return format!("'{THESE}'") };
    let value = |field: &arrow::datatypes::FieldRef| {
        let name = format!("`{}`", field.name().replace('`', "``"));
        let there = tables.iter().any(|table| table.columns.iter().any(|c| c.name == *field.name()));
        format!("CAST({} AS {}) AS {name}", if there { name.as_str() } else { "NULL" }, flink_type(field.data_type()))
    };
    format!("(SELECT {} FROM '{THESE}')", columns.fields().iter().map(value).collect::<Vec<_>>().join(", "))
}

/// Whether a row of a query's result may depend on more than one row of its input.
fn spans_rows(plan: &LogicalPlan) -> bool {
    let here = matches!(plan, LogicalPlan::Aggregate(_) | LogicalPlan::Window(_) | LogicalPlan::Distinct(_) | LogicalPlan::Limit(_));
    here || plan.inputs().into_iter().any(spans_rows)
}

/// What the target's name and options say.
fn write_to(args: &CopyArgs, to: &str) -> Result<Target, Failure> {
    if to.contains("://") && !to.starts_with("file://") && (!is_remote(to) || to.get(..4).is_some_and(|s| s.eq_ignore_ascii_case("http"))) {
        return Err(Failure::usage(format!("'{to}' is no place to write to; copy to a local path, or to gs://, s3:// or az://")));
    }
    let mut given = Vec::new();
    for option in &args.write {
        let (name, value) = pair(option, "--write")?;
        if matches!(name.as_str(), "partition_by" | "overwrite" | "overwrite_or_ignore" | "per_thread_output") {
            return Err(Failure::usage(format!("--write {option}: --partition-by, --overwrite and --files say that")));
        }
        given.push((name, value));
    }
    if let Some(columns) = &args.partition_by {
        given.push(("partition_by".to_string(), columns.clone()));
    }
    if args.files.is_some_and(|files| files > 1) {
        given.push(("per_thread_output".to_string(), "true".to_string()));
    }
    given.push(("overwrite".to_string(), (args.overwrite).to_string()));
    let mut target = target(to, &given).map_err(|e| Failure::usage(e.replace("COPY", "--write")))?;
    if target.options.get("format").is_some_and(|f| f == "csv" || f == "json" || f == "fixed")
        && !target.options.contains_key("compression")
        && let Some(name) = compression(to)
    {
        // A directory called out.csv.gz gets files that are compressed so, too.
        target.options.insert("compression".to_string(), name.to_string());
    }
    Ok(target)
}

/// How the store of a path is reached, by the options `store.…` of its table.
///
/// # Errors
/// An option that makes no sense.
pub fn store_options(path: &str, options: &BTreeMap<String, String>) -> Result<StoreOptions, String> {
    let given = options.iter().filter(|(key, _)| key.starts_with("store.")).map(|(key, value)| (key.clone(), value.clone()));
    StoreOptions::take(&mut RawOptions::new(format!("'{path}'"), given)).map_err(|e| e.to_string())
}

/// The objects that a path behind a network stands for, archives as a whole; none for a local one.
fn remote(path: &str, options: &BTreeMap<String, String>) -> Result<Vec<Object>, String> {
    if !is_remote(path) {
        return Ok(Vec::new());
    }
    let root = archive_of(path).unwrap_or(path);
    let (store, pattern) = Store::of(root, &store_options(path, options)?).map_err(|e| e.to_string())?;
    store.list(&pattern).map_err(|e| e.to_string())
}

/// The archive that a path leads into, if it does.
pub fn archive_of(path: &str) -> Option<&str> {
    let path = path.strip_prefix("file://").unwrap_or(path);
    let begin = if is_remote(path) { path.find("://").map_or(0, |at| at + 3) } else { 0 };
    let at = begin + path[begin..].find("//")?;
    look::length(path).is_none().then(|| &path[..at])
}

/// Gives each member of an archive its share of the archive's bytes: all have them together.
fn share_archives(sources: &mut [Source]) {
    let archives: Vec<Option<String>> = sources.iter().map(|source| archive_of(&source.path).map(str::to_string)).collect();
    let mut members: BTreeMap<&str, u64> = BTreeMap::new();
    archives.iter().flatten().for_each(|archive| *members.entry(archive).or_default() += 1);
    for (source, archive) in sources.iter_mut().zip(&archives) {
        if let Some(archive) = archive {
            source.bytes /= members[archive.as_str()];
        }
    }
}

/// Whether all tables have the same columns of the same types.
fn check_alike(tables: &[(String, Table)]) -> Result<(), String> {
    let shown = |table: &Table| {
        let columns: Vec<String> = table.columns.iter().map(|c| format!("{} {}", c.name, flink_type(&c.data_type))).collect();
        columns.join(", ")
    };
    let Some((first, rest)) = tables.split_first() else { return Err("there are no files to copy".to_string()) };
    let columns = |table: &Table| table.columns.iter().map(|c| (c.name.clone(), c.data_type.clone())).collect::<Vec<_>>();
    match rest.iter().find(|(_, table)| columns(table) != columns(&first.1)) {
        None => Ok(()),
        Some((path, table)) => Err(format!(
            "'{}' has the columns {}, and '{path}' has {}; --union-by-name puts them together",
            first.0,
            shown(&first.1),
            shown(table)
        )),
    }
}

/// Tables that differ in their columns, one of each kind.
fn distinct<'a>(tables: impl Iterator<Item = &'a Table>) -> Vec<Table> {
    let mut kinds: Vec<Table> = Vec::new();
    for table in tables {
        if !kinds.iter().any(|known| known.columns == table.columns) {
            kinds.push(table.clone());
        }
    }
    kinds
}

/// Neighbouring files in so many groups, of about the same length.
fn grouped(sources: Vec<Source>, groups: usize) -> Vec<Vec<Source>> {
    let total: u64 = sources.iter().map(|s| s.bytes.max(1)).sum();
    let count = sources.len();
    let mut out: Vec<Vec<Source>> = Vec::with_capacity(groups);
    let (mut group, mut before) = (Vec::new(), 0u64);
    for (number, source) in sources.into_iter().enumerate() {
        before += source.bytes.max(1);
        group.push(source);
        let (left, open) = (count - number - 1, groups - out.len() - 1);
        // Full, or the rest is needed for a file a group.
        let full = u128::from(before) * groups as u128 >= u128::from(total) * (out.len() as u128 + 1);
        if open > 0 && (full || left <= open) && left >= open {
            out.push(std::mem::take(&mut group));
        }
    }
    out.push(group);
    out
}

/// What tells one copy from another, the files aside.
fn what(args: &CopyArgs, schema: &SchemaRef, target: &Target) -> String {
    let columns: Vec<String> = schema.fields().iter().map(|f| format!("{} {}", f.name(), flink_type(f.data_type()))).collect();
    let mut options = target.options.clone();
    // How bytes are got makes no other copy, and a secret does not belong on a disk.
    options.retain(|key, _| key != "path" && !key.starts_with("store."));
    let read: Vec<&String> = args.read.iter().filter(|option| !option.starts_with("store.")).collect();
    serde_json::json!({
        "select": args.select, "where": args.condition, "sort_by": args.sort_by, "files": args.files,
        "union": args.union_by_name, "read": read, "options": options, "columns": columns,
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(sizes: &[u64], groups: usize, expect: &[usize]) {
        let sources = sizes.iter().map(|bytes| Source { bytes: *bytes, ..Source::default() }).collect();
        assert_eq!(grouped(sources, groups).iter().map(Vec::len).collect::<Vec<_>>(), expect);
    }

    #[test]
    fn groups_are_of_about_the_same_length() {
        check(&[1, 1, 1, 1], 2, &[2, 2]);
        check(&[9, 1, 1, 1], 2, &[1, 3]);
        check(&[1, 1, 1, 9], 2, &[3, 1]);
        check(&[1, 1, 9], 3, &[1, 1, 1]);
        check(&[0, 0, 0, 0, 0], 1, &[5]);
    }

    #[test]
    fn archives_end_at_their_members() {
        assert_eq!(archive_of("s3://b/x.zip//2005/a.csv"), Some("s3://b/x.zip"));
        assert_eq!((archive_of("s3://b/a.csv"), archive_of("x/a.csv")), (None, None));
        assert_eq!(archive_of("file:///no/x.zip//a.csv"), Some("/no/x.zip"));
    }

    #[test]
    fn queries() {
        let query = Query { select: "a, b".into(), condition: Some("a > 1 -- why".into()), sort_by: Some("b".into()) };
        assert_eq!(query.text("'x'"), "SELECT a, b\nFROM 'x'\nWHERE (a > 1 -- why\n)\nORDER BY b");
    }
}
