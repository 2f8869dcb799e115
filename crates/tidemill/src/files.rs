//! Files as tables: `FROM 'path/*.csv'` and `FROM read_csv('path/*.csv', filename = true)`, with the columns found by
//! looking. Looking is in [`look`], what a query may say in [`wishes`].

pub mod look;
pub mod wishes;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use tidemill_block::value;
use tidemill_connect::filesystem::{FOUND, partition, sample};
use tidemill_plan::{Column, ColumnKind, Table};
use tidemill_runtime::script::{Script, Step};
use tidemill_runtime::{JobError, LogicalPlan, Settings};
use tidemill_sql::FileRequest;

use look::Looked;
use wishes::Wishes;

/// Tables that files in archives or behind a network become with `union_by_name`, each by itself, at most.
const UNION_FILES_MAX: usize = 256;

/// The tables that a query's files are: one, or several that are put together by name.
pub fn resolve(request: &FileRequest) -> Result<Vec<Table>, String> {
    let wishes = Wishes::of(request)?;
    let mut tables = Vec::new();
    for path in &request.paths {
        tables.extend(tables_of(path, &wishes)?);
    }
    let names = |table: &Table| table.columns.iter().map(|c| c.name.clone()).collect::<Vec<_>>();
    if let Some(other) = tables.iter().find(|table| !wishes.union && names(table) != names(&tables[0])) {
        return Err(format!(
            "'{}' has the columns {}, and '{}' has {}; union_by_name = true puts them together",
            tables[0].name,
            names(&tables[0]).join(", "),
            other.name,
            names(other).join(", ")
        ));
    }
    Ok(tables)
}

/// The files of a path, each with its own table.
pub fn each(path: &str, wishes: &Wishes) -> Result<Vec<(String, Table)>, String> {
    let files = files(path, wishes)?;
    let hive = hive_columns(&files, wishes)?;
    // An empty file shows nothing; it is taken for one like the others.
    let is_empty = |file: &String| look::length(file) == Some(0);
    let Some(first) = files.iter().find(|file| !is_empty(file)).or(files.first()) else {
        return Err(format!("there is no file at '{path}'"));
    };
    let shared = look::look(first, wishes)?;
    let mut tables = Vec::with_capacity(files.len());
    for file in &files {
        let looked = if wishes.union && !is_empty(file) && file != first { look::look(file, wishes)? } else { shared.clone() };
        tables.push((file.clone(), table(file, &looked, &hive, wishes)?));
    }
    Ok(tables)
}

/// What [`query`] calls the tables that it is given: no path of a file that a user names in a condition.
pub const THESE: &str = "(these files)";

/// The plan of a query over tables, which it calls [`THESE`]; several are put together by name.
///
/// # Errors
/// What is wrong with the query.
pub fn query(text: &str, tables: Vec<Table>, parallel: usize) -> Result<(LogicalPlan, Box<Settings>), JobError> {
    let number = parallel.to_string();
    let settings = [("execution.runtime-mode", "batch".to_string()), ("parallelism.default", number.clone()), ("read.parallel", number)];
    let mut script = Script::new("files", text, settings.map(|(key, value)| (key.to_string(), value)).into());
    let these = FileRequest::path(THESE);
    script.resolve_files(Arc::new(move |request| if *request == these { Ok(tables.clone()) } else { resolve(request) }));
    let mut steps = script.steps()?;
    match (steps.pop(), steps.is_empty()) {
        (Some(Step::Query(plan, settings)), true) => Ok((plan, settings)),
        _ => Err(JobError::usage("what is given are the clauses of one query, without semicolons")),
    }
}

fn files(path: &str, wishes: &Wishes) -> Result<Vec<String>, String> {
    match look::is_plain(path) && look::format_of(path).is_some() {
        true => Ok(vec![path.to_string()]),
        false => Ok(look::list(path, &wishes.options)?.into_iter().map(|file| chosen(path, file, wishes)).collect()),
    }
}

/// Of an archive that is read from its front, which is listed as a whole, what the path chooses in it.
fn chosen(path: &str, file: String, wishes: &Wishes) -> String {
    if path.strip_prefix(&file).is_some_and(|rest| rest.starts_with("//")) {
        return path.to_string();
    }
    let is_archive = |name: &str| wishes.options.contains_key("source.archive") || look::is_archive(name);
    let begin = path.find("://").map_or(0, |at| at + 3);
    let mut halves = path[begin..].match_indices("//").map(|(at, _)| (&path[..begin + at], &path[begin + at + 2..]));
    match halves.find(|(archive, _)| is_archive(archive)) {
        Some((_, members)) if !members.is_empty() && is_archive(&file) => format!("{file}//{members}"),
        _ => file,
    }
}

/// The tables of one path.
fn tables_of(path: &str, wishes: &Wishes) -> Result<Vec<Table>, String> {
    let files = files(path, wishes)?;
    let hive = hive_columns(&files, wishes)?;
    let full: Vec<&String> = files.iter().filter(|file| look::length(file) != Some(0)).collect();
    let Some(first) = full.first().copied().or(files.first()) else { return Err(format!("there is no file at '{path}'")) };
    if !wishes.union || full.len() < 2 {
        return Ok(vec![table(path, &look::look(first, wishes)?, &hive, wishes)?]);
    }
    let mut groups: Vec<(Looked, Vec<&String>)> = Vec::new();
    for file in full {
        let looked = look::look(file, wishes)?;
        match groups.iter_mut().find(|(known, _)| *known == looked) {
            Some((_, members)) => members.push(file),
            None => groups.push((looked, vec![file])),
        }
    }
    if let [(looked, _)] = groups.as_slice() {
        return Ok(vec![table(path, looked, &hive, wishes)?]);
    }
    let mut tables = Vec::new();
    for (looked, members) in &groups {
        if members.iter().all(|file| look::is_plain(file)) {
            let mut group = table(path, looked, &hive, wishes)?;
            group.options.insert("source.path.regex-pattern".into(), pattern(members)?);
            tables.push(group);
        } else {
            for file in members {
                tables.push(Table { name: path.to_string(), ..table(file, looked, &hive, wishes)? });
            }
        }
    }
    if tables.len() > UNION_FILES_MAX {
        let message = format!("'{path}' holds files of {} kinds, and union_by_name puts together {UNION_FILES_MAX} at most", tables.len());
        return Err(format!("{message}; name fewer, or copy them into one table first"));
    }
    Ok(tables)
}

/// A regular expression that matches the absolute paths of these files and no others.
fn pattern(files: &[&String]) -> Result<String, String> {
    let mut alternatives = Vec::with_capacity(files.len());
    for file in files {
        let path = std::path::absolute(file).map_err(|e| format!("finding the absolute path of '{file}': {e}"))?;
        let mut escaped = String::new();
        for c in path.to_string_lossy().chars() {
            // `\<` and `\>` would be ends of words.
            if c.is_ascii_punctuation() && c != '<' && c != '>' {
                escaped.push('\\');
            }
            escaped.push(c);
        }
        alternatives.push(escaped);
    }
    Ok(alternatives.join("|"))
}

/// The columns that directories such as `year=2024` name, with types that hold all their values.
fn hive_columns(files: &[String], wishes: &Wishes) -> Result<Vec<(String, DataType)>, String> {
    if wishes.hive == Some(false) {
        return Ok(Vec::new());
    }
    let mut columns: Vec<(String, Option<DataType>)> = Vec::new();
    for (number, file) in files.iter().enumerate() {
        // On a web server what looks like one may be a question: http://host/get?file=a/b.csv.
        let on_web = file.contains("://") && file.get(..4).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http"));
        let pairs = if on_web && wishes.hive.is_none() { Vec::new() } else { partition::pairs(file) };
        if number == 0 {
            columns = pairs.iter().map(|(name, _)| (name.clone(), None)).collect();
        }
        if !pairs.iter().map(|(name, _)| name).eq(columns.iter().map(|(name, _)| name)) {
            return match wishes.hive {
                Some(true) => Err(format!("hive_partitioning: '{file}' does not lie in directories of the same names as '{}'", files[0])),
                _ => Ok(Vec::new()),
            };
        }
        for ((_, known), (_, value)) in columns.iter_mut().zip(&pairs) {
            if let Some(value) = value {
                let found = type_of(value);
                *known = Some(match known.take() {
                    Some(known) if known != found => DataType::Utf8,
                    _ => found,
                });
            }
        }
    }
    Ok(columns.into_iter().map(|(name, found)| (name, found.unwrap_or(DataType::Utf8))).collect())
}

fn type_of(text: &str) -> DataType {
    if text.parse::<i64>().is_ok() {
        DataType::Int64
    } else if value::parse_date(text.as_bytes()).is_some() {
        DataType::Date32
    } else {
        DataType::Utf8
    }
}

/// The table of files that hold what was looked at.
fn table(path: &str, looked: &Looked, hive: &[(String, DataType)], wishes: &Wishes) -> Result<Table, String> {
    let schema: &SchemaRef = &looked.schema;
    let mut columns: Vec<Column> = schema
        .fields()
        .iter()
        .map(|f| Column { name: f.name().clone(), data_type: f.data_type().clone(), nullable: true, kind: ColumnKind::Physical })
        .collect();
    let metadata = |name: &str, data_type: &DataType, key: String| Column {
        name: name.to_string(),
        data_type: data_type.clone(),
        nullable: true,
        kind: ColumnKind::Metadata { key, is_virtual: true },
    };
    // A column in the files says it more exactly than the name of a directory.
    let more = hive.iter().filter(|(name, _)| schema.field_with_name(name).is_err());
    columns.extend(more.map(|(name, data_type)| metadata(name, data_type, format!("partition.{name}"))));
    if let Some(name) = &wishes.filename {
        if columns.iter().any(|c| c.name == *name) {
            return Err(format!("'{path}' has a column {name} already; filename = 'other' gives the file's name another"));
        }
        columns.push(metadata(name, &DataType::Utf8, "file.path".to_string()));
    }
    let mut options = BTreeMap::from([("connector".to_string(), "filesystem".to_string()), ("path".to_string(), path.to_string())]);
    options.extend(looked.options.clone());
    if sample::is_pipe(path) {
        options.insert(FOUND.to_string(), "true".to_string());
    }
    Ok(Table { name: path.to_string(), columns, watermark: None, primary_key: Vec::new(), options })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hive(files: &[&str], wish: Option<bool>) -> Result<Vec<(String, DataType)>, String> {
        let files: Vec<String> = files.iter().map(|f| f.to_string()).collect();
        hive_columns(&files, &Wishes { hive: wish, ..Wishes::default() })
    }

    #[test]
    fn directories_are_columns() {
        let both = ["d/y=2024/d=2024-01-01/a.csv", "d/y=2025/d=2024-01-02/a.csv"];
        let expect = vec![("y".to_string(), DataType::Int64), ("d".to_string(), DataType::Date32)];
        assert_eq!(hive(&both, None).unwrap(), expect);
        assert_eq!(hive(&["y=1/a", "y=x/a"], None).unwrap(), [("y".to_string(), DataType::Utf8)]);
        assert_eq!(hive(&both, Some(false)).unwrap(), []);
        assert_eq!(hive(&["y=1/a", "b"], None).unwrap(), []);
        assert!(hive(&["y=1/a", "b"], Some(true)).unwrap_err().contains("'b'"));
    }

    #[test]
    fn patterns_match_nothing_else() {
        let file = "/data/a+b (1).csv".to_string();
        assert_eq!(pattern(&[&file]).unwrap(), r"\/data\/a\+b \(1\)\.csv");
    }
}
