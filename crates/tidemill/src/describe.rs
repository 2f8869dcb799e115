//! `tidemill describe FILE…`: what files hold and how they are stored.

use std::fs::File;
use std::path::Path;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use serde_json::{Value, json};
use tidemill_connect::filesystem::cache::{Residency, residency};
use tidemill_connect::filesystem::ipc;
use tidemill_format::compression::Compression;
use tidemill_format::ipc::ArrowShape;
use tidemill_format::options::OptionValue;
use tidemill_format::parquet::{ParquetColumn, ParquetGroup, ParquetShape, shape_of};
use tidemill_plan::{ColumnKind, Table};
use tidemill_runtime::batch::BatchRunner;
use tidemill_sql::types::flink_type;

use crate::args::DescribeArgs;
use crate::cache::percent;
use crate::files::{self, look, wishes::Wishes};
use crate::run::{failure, pair};
use crate::show::{bytes, columns};
use crate::{Failure, notice};

/// Rows of files that must be read for it are counted up to this many bytes.
const COUNT_BYTES_MAX: u64 = 1 << 30;

/// Shows each file.
pub fn describe(args: &DescribeArgs) -> Result<(), Failure> {
    let mut wishes = Wishes { union: true, ..Wishes::default() };
    for option in &args.read {
        let (name, value) = pair(option, "--read")?;
        wishes.take(&name, &value).map_err(|e| Failure::usage(format!("--read {option}: {e}")))?;
    }
    let mut first = true;
    for path in &args.paths {
        for (file, table) in files::each(path, &wishes).map_err(Failure::usage)? {
            let described = Described::of(&file, table)?;
            if args.json {
                println!("{}", described.json());
                continue;
            }
            if !first {
                println!();
            }
            first = false;
            print!("{}", described.text());
        }
    }
    Ok(())
}

/// What is known of a file.
struct Described {
    path: String,
    table: Table,
    rows: Option<u64>,
    /// Its bytes, and how many of them are in the page cache; not of what lies in archives or behind a network.
    stored: Option<Residency>,
    shape: Option<ParquetShape>,
    arrow: Option<ArrowShape>,
}

impl Described {
    fn of(path: &str, table: Table) -> Result<Self, Failure> {
        let failed = |message: String| Failure { message: format!("error: {message}"), code: 1 };
        let local = Path::new(path.strip_prefix("file://").unwrap_or(path));
        let stored = match local.is_file() {
            true => {
                let looked = File::open(local).and_then(|file| residency(&file));
                Some(looked.map_err(|e| failed(format!("looking at '{path}': {e}")))?)
            }
            false => None,
        };
        let shape = match table.options["format"].as_str() {
            "parquet" if local.is_file() => Some(shape_of(local).map_err(|e| failed(e.to_string()))?),
            _ => None,
        };
        let arrow = match table.options["format"].as_str() {
            "arrow" if local.is_file() => ipc::shape_of(&local.to_string_lossy()).map_err(|e| failed(e.to_string()))?,
            _ => None,
        };
        let known = shape.as_ref().map(|shape| shape.row_groups.iter().map(|g| g.rows).sum());
        let rows = match known.or(arrow.as_ref().map(|shape| shape.rows)) {
            Some(rows) => Some(rows),
            None => match why_not_counted(path, &table) {
                Some(why) => {
                    notice(&format!("'{path}': rows are not counted, since {why}"));
                    None
                }
                None => Some(count(&table)?),
            },
        };
        Ok(Described { path: path.to_string(), table, rows, stored, shape, arrow })
    }

    fn format(&self) -> &str {
        &self.table.options["format"]
    }

    /// How the file is compressed as a whole, or its pages are.
    fn compression(&self) -> Option<String> {
        match &self.shape {
            Some(shape) => {
                let mut all: Vec<&str> = shape.columns.iter().flat_map(|c| c.compression.iter().map(String::as_str)).collect();
                all.sort_unstable();
                all.dedup();
                Some(all.join(", ")).filter(|all| !all.is_empty())
            }
            None => match Compression::from_path(&self.path) {
                Compression::None => self.arrow.as_ref().and_then(|shape| shape.compression).map(str::to_string),
                other => other.show(),
            },
        }
    }

    /// How CSV is written; empty for other formats.
    fn dialect(&self) -> String {
        if self.format() != "csv" {
            return String::new();
        }
        let option = |name: &str| self.table.options.get(name).map_or("", String::as_str);
        let delimiter = match option("csv.field-delimiter") {
            "\t" => "a tab".to_string(),
            other => format!("'{other}'"),
        };
        let header = if option("csv.header").is_empty() { "no header line" } else { "a header line" };
        let encoding = match option("csv.encoding") {
            "" => String::new(),
            other => format!(", in {other}"),
        };
        let comments = if option("csv.allow-comments") == "true" { ", comments" } else { "" };
        format!(", delimiter {delimiter}, {header}{comments}{encoding}")
    }

    fn text(&self) -> String {
        let mut out = format!("{}\n  {}{}", self.path, self.format(), self.dialect());
        if let Some(compression) = self.compression() {
            out += &format!(", compressed by {compression}");
        }
        out += &match self.rows {
            Some(rows) => format!(", {rows} rows"),
            None => String::new(),
        };
        if let Some(shape) = &self.shape {
            let unpacked: u64 = shape.row_groups.iter().map(|g| g.uncompressed_bytes).sum();
            out += &format!(", {} row groups, {} uncompressed", shape.row_groups.len(), bytes(unpacked));
            out += &shape.created_by.as_ref().map_or(String::new(), |by| format!(", written by {by}"));
        }
        if let Some(arrow) = &self.arrow {
            out += &format!(", {} batches", arrow.batches);
            if arrow.dictionaries > 0 {
                out += &format!(" and {} of dictionaries", arrow.dictionaries);
            }
        }
        if let Some(stored) = self.stored {
            out += &format!("\n  {}, {} of it in the page cache", bytes(stored.bytes), percent(stored));
        }
        out.push('\n');
        let columns_of = self.table.columns.iter();
        let rows: Vec<Vec<String>> = columns_of.map(|c| vec![c.name.clone(), flink_type(&c.data_type), origin(&c.kind)]).collect();
        let more = rows.iter().any(|row| !row[2].is_empty());
        let heads: &[&str] = if more { &["column", "type", "from"] } else { &["column", "type"] };
        let rows: Vec<Vec<String>> = rows.into_iter().map(|row| row[..heads.len()].to_vec()).collect();
        out.push('\n');
        out += &columns(heads, &rows, &[false, false, false]);
        if let Some(shape) = &self.shape {
            out.push('\n');
            out += &stored_columns(shape);
            if shape.row_groups.len() > 1 {
                out.push('\n');
                out += &row_groups(shape);
            }
        }
        out
    }

    fn json(&self) -> Value {
        let column = |c: &tidemill_plan::Column| match origin(&c.kind) {
            from if from.is_empty() => json!({ "name": c.name, "type": flink_type(&c.data_type) }),
            from => json!({ "name": c.name, "type": flink_type(&c.data_type), "from": from }),
        };
        let mut options = self.table.options.clone();
        ["connector", "path", "format"].iter().for_each(|key| drop(options.remove(*key)));
        // How a store is reached says nothing of the file, and may be a secret. What begins with # is no option.
        options.retain(|key, _| !key.starts_with("store.") && !key.starts_with('#'));
        let mut out = json!({
            "path": self.path, "format": self.format(), "options": options, "compression": self.compression(), "rows": self.rows,
            "bytes": self.stored.map(|s| s.bytes), "cached": self.stored.map(|s| s.cached),
            "columns": self.table.columns.iter().map(column).collect::<Vec<_>>(),
        });
        if let Some(shape) = &self.shape {
            let group = |g: &ParquetGroup| json!({ "rows": g.rows, "bytes": g.bytes, "uncompressed_bytes": g.uncompressed_bytes });
            let stored = |c: &ParquetColumn| {
                json!({
                    "name": c.name, "compression": c.compression, "encodings": c.encodings, "bytes": c.bytes,
                    "uncompressed_bytes": c.uncompressed_bytes, "nulls": c.nulls, "statistics": c.statistics,
                    "bloom_filter": c.bloom_filter, "page_index": c.page_index,
                })
            };
            out["created_by"] = json!(shape.created_by);
            out["row_groups"] = shape.row_groups.iter().map(group).collect();
            out["stored"] = shape.columns.iter().map(stored).collect();
        }
        if let Some(arrow) = &self.arrow {
            out["batches"] = json!(arrow.batches);
            out["dictionaries"] = json!(arrow.dictionaries);
        }
        out
    }
}

/// Where a column comes from if not out of the file itself.
fn origin(kind: &ColumnKind) -> String {
    match kind {
        ColumnKind::Metadata { key, .. } => match key.strip_prefix("partition.") {
            Some(name) => format!("the directory {name}=…"),
            None => key.clone(),
        },
        _ => String::new(),
    }
}

fn stored_columns(shape: &ParquetShape) -> String {
    let known = |c: &ParquetColumn| {
        let all = [(c.statistics, "min/max"), (c.page_index, "page index"), (c.bloom_filter, "Bloom filter")];
        all.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
    };
    let rows: Vec<Vec<String>> = shape
        .columns
        .iter()
        .map(|c| {
            let nulls = c.nulls.map_or(String::new(), |n| n.to_string());
            vec![
                c.name.clone(),
                c.encodings.join(", "),
                c.compression.join(", "),
                bytes(c.bytes),
                bytes(c.uncompressed_bytes),
                nulls,
                known(c),
            ]
        })
        .collect();
    let heads = ["stored as", "encoding", "compression", "bytes", "uncompressed", "nulls", "has"];
    columns(&heads, &rows, &[false, false, false, true, true, true, false])
}

/// Row groups shown one by one, at most.
const GROUPS_MAX: usize = 50;

fn row_groups(shape: &ParquetShape) -> String {
    let groups = shape.row_groups.iter().enumerate().take(GROUPS_MAX);
    let rows: Vec<Vec<String>> =
        groups.map(|(n, g)| vec![n.to_string(), g.rows.to_string(), bytes(g.bytes), bytes(g.uncompressed_bytes)]).collect();
    let mut out = columns(&["row group", "rows", "bytes", "uncompressed"], &rows, &[true, true, true, true]);
    if shape.row_groups.len() > GROUPS_MAX {
        out += &format!("… {} row groups in all\n", shape.row_groups.len());
    }
    out
}

/// Why the rows of a file are not counted, if it would take too long.
fn why_not_counted(path: &str, table: &Table) -> Option<String> {
    let local = path.strip_prefix("file://").unwrap_or(path);
    if local.contains("://") {
        // Of columns nothing but their heads is fetched.
        return (!matches!(table.options["format"].as_str(), "arrow" | "parquet" | "orc"))
            .then(|| "all of it would have to be fetched".to_string());
    }
    // For a member of an archive it may be all of the archive.
    let length = look::length(local).or_else(|| look::length(local.split_once("//")?.0));
    length.filter(|length| *length > COUNT_BYTES_MAX).map(|_| format!("more than {} would have to be read", bytes(COUNT_BYTES_MAX)))
}

/// Counts the rows of a file by reading it.
fn count(table: &Table) -> Result<u64, Failure> {
    let text = format!("SELECT COUNT(*) AS n FROM '{}'", files::THESE);
    let fail = |e: tidemill_runtime::JobError| failure(&e, &table.name, &text);
    let parallel = std::thread::available_parallelism().map_or(1, usize::from);
    let (plan, settings) = files::query(&text, vec![table.clone()], parallel).map_err(fail)?;
    let runner = BatchRunner::new(&settings).map_err(fail)?;
    let mut rows = 0;
    runner
        .query(&plan, |batch| {
            rows += batch.column(0).as_primitive::<Int64Type>().values().iter().sum::<i64>();
            Ok(())
        })
        .map_err(fail)?;
    Ok(u64::try_from(rows).unwrap_or(0))
}
