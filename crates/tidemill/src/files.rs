//! Files as tables: `FROM 'path/*.csv'` with the schema found by looking.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use arrow::datatypes::SchemaRef;
use tidemill_format::compression::{self, Compression};
use tidemill_format::{infer, parquet};
use tidemill_plan::{Column, ColumnKind, Table};

/// Bytes looked at to find out what a file holds.
const SAMPLE_BYTES: u64 = 1 << 20;

/// The table that a path or glob stands for.
pub fn resolve(path: &str) -> Result<Table, String> {
    let first = first_file(path)?;
    let name = first.to_string_lossy().to_lowercase();
    let bare = name.trim_end_matches(".gz").trim_end_matches(".zst").trim_end_matches(".zstd");
    let mut options = BTreeMap::from([("connector".to_string(), "filesystem".to_string()), ("path".to_string(), path.to_string())]);
    let mut set = |key: &str, value: &str| drop(options.insert(key.to_string(), value.to_string()));
    let schema: SchemaRef = if bare.ends_with(".parquet") {
        set("format", "parquet");
        parquet::schema_of(&first).map_err(|e| format!("reading the schema of '{}': {e}", first.display()))?
    } else {
        let (sample, complete) = sample(&first)?;
        if bare.ends_with(".json") || bare.ends_with(".jsonl") || bare.ends_with(".ndjson") {
            set("format", "json");
            infer::infer_json(&sample, complete).map_err(|e| format!("'{}': {e}", first.display()))?
        } else {
            let (sniff, schema) = infer::infer_csv(&sample, complete).map_err(|e| format!("'{}': {e}", first.display()))?;
            set("format", "csv");
            set("csv.field-delimiter", &sniff.delimiter.to_string());
            set("csv.quote-character", &sniff.quote.to_string());
            set("csv.fail-on-missing-columns", "false");
            if sniff.header {
                set("csv.header", "skip");
            }
            schema
        }
    };
    let columns = schema
        .fields()
        .iter()
        .map(|f| Column { name: f.name().clone(), data_type: f.data_type().clone(), nullable: true, kind: ColumnKind::Physical })
        .collect();
    Ok(Table { name: path.to_string(), columns, watermark: None, primary_key: Vec::new(), options })
}

/// A file that shows what all of them look like.
fn first_file(path: &str) -> Result<PathBuf, String> {
    let plain = Path::new(path.trim_start_matches("file://"));
    if plain.is_file() {
        return Ok(plain.to_path_buf());
    }
    let pattern = if plain.is_dir() { plain.join("**/*").to_string_lossy().into_owned() } else { plain.to_string_lossy().into_owned() };
    let found = glob::glob(&pattern).map_err(|e| format!("'{path}' is not a valid pattern: {e}"))?;
    let mut files: Vec<PathBuf> = found.flatten().filter(|p| p.is_file() && p.metadata().is_ok_and(|m| m.len() > 0)).collect();
    files.sort();
    files.into_iter().next().ok_or_else(|| format!("no file at '{path}' (in {})", std::env::current_dir().unwrap_or_default().display()))
}

/// The beginning of a file, unpacked, and whether that is all of it.
fn sample(path: &Path) -> Result<(Vec<u8>, bool), String> {
    let failed = |e: std::io::Error| format!("reading '{}': {e}", path.display());
    let file = File::open(path).map_err(failed)?;
    let reader = compression::reader(Box::new(file), Compression::from_path(path)).map_err(failed)?;
    let mut sample = Vec::new();
    reader.take(SAMPLE_BYTES).read_to_end(&mut sample).map_err(failed)?;
    let complete = (sample.len() as u64) < SAMPLE_BYTES;
    Ok((sample, complete))
}
