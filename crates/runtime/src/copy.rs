//! `COPY … TO 'path' (options)`: from the path and the options, DuckDB's names of them or ours, to the table that is
//! written. A path with the extension of a format is one file; any other is a directory of part files.

use std::collections::BTreeMap;
use std::path::Path;

use tidemill_format::options::{OptionValue, one_of};

/// The options that have names of their own here.
const NAMES: &[&str] = &[
    "compression",
    "delim",
    "delimiter",
    "encoding",
    "escape",
    "file_size_bytes",
    "format",
    "header",
    "null",
    "nullstr",
    "overwrite",
    "overwrite_or_ignore",
    "partition_by",
    "per_thread_output",
    "quote",
    "row_group_size",
    "row_group_size_bytes",
    "sep",
];

/// Extensions of compressed files, and what `compression` calls them.
const COMPRESSED: &[(&str, &str)] = &[("gz", "gzip"), ("zst", "zstd"), ("zstd", "zstd"), ("bz2", "bzip2"), ("xz", "xz"), ("lz4", "lz4")];

/// What is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The options of its table.
    pub options: BTreeMap<String, String>,
    /// Whether it is one file; otherwise a directory.
    pub single: bool,
    /// Whether what is there is replaced.
    pub overwrite: bool,
}

/// The format that a file's extension says, and what is left of the name's extensions: `("csv", "csv.gz")`.
fn by_extension(to: &str) -> Option<(&'static str, String)> {
    let name = Path::new(to).file_name()?.to_str()?.to_lowercase();
    let bare = COMPRESSED.iter().find_map(|(end, _)| name.strip_suffix(*end)?.strip_suffix('.')).unwrap_or(&name);
    let (_, extension) = bare.rsplit_once('.')?;
    let format = match extension {
        "csv" | "tsv" | "txt" => "csv",
        "json" | "jsonl" | "ndjson" => "json",
        "parquet" => "parquet",
        "avro" => "avro",
        "arrow" | "arrows" | "feather" | "ipc" => "arrow",
        "orc" => "orc",
        "xlsx" => "xlsx",
        "xpt" | "xport" => "xport",
        _ => return None,
    };
    Some((format, extension.to_string()))
}

/// Whether a name has the extension of Arrow's streams.
fn named_arrows(to: &str) -> bool {
    by_extension(to).is_some_and(|(_, extension)| extension == "arrows")
}

/// The table that a path and options mean.
///
/// # Errors
/// An option that is none or has no such value; one sentence.
pub fn target(to: &str, given: &[(String, String)]) -> Result<Target, String> {
    let named = by_extension(to);
    let flag = |name: &str, value: &str| bool::parse(value).map_err(|why| format!("COPY: option {name} = '{value}': {why}"));
    let chosen = given.iter().find(|(name, _)| name == "format").map(|(_, format)| format.to_lowercase());
    let format = chosen.unwrap_or_else(|| named.as_ref().map_or("csv", |(format, _)| *format).to_string());
    let mut options: BTreeMap<String, String> =
        [("connector", "filesystem"), ("path", to), ("format", format.as_str())].map(|(k, v)| (k.to_string(), v.to_string())).into();
    if format == "csv" {
        // Without it the names of the columns would be lost.
        options.insert("csv.header".into(), "true".into());
        if named.is_some_and(|(_, extension)| extension == "tsv") {
            options.insert("csv.field-delimiter".into(), "\t".into());
        }
    }
    if format == "arrow" && named_arrows(to) {
        options.insert("arrow.form".into(), "stream".into());
    }
    let (mut single, mut overwrite) = (by_extension(to).is_some() && !to.ends_with('/'), false);
    for (name, value) in given {
        let key = match name.as_str() {
            "format" => continue,
            "header" => {
                let key = if format == "xlsx" { "xlsx.header" } else { "csv.header" };
                options.insert(key.into(), flag(name, value)?.to_string());
                continue;
            }
            "overwrite" | "overwrite_or_ignore" => {
                overwrite = flag(name, value)?;
                continue;
            }
            "per_thread_output" => {
                single &= !flag(name, value)?;
                continue;
            }
            "partition_by" => {
                single = false;
                "sink.partition-by"
            }
            "file_size_bytes" => {
                single = false;
                "sink.rolling-policy.file-size"
            }
            "delim" | "delimiter" | "sep" => "csv.field-delimiter",
            "encoding" if format == "fixed" => "fixed.encoding",
            "encoding" => "csv.encoding",
            "quote" => "csv.quote-character",
            "escape" => "csv.escape-character",
            "null" | "nullstr" => "csv.null-literal",
            "row_group_size" if format == "arrow" => "arrow.batch-rows",
            "row_group_size" => "parquet.row-group.rows",
            "row_group_size_bytes" => "parquet.block.size",
            "compression" => match format.as_str() {
                "parquet" => "parquet.compression",
                "avro" => "avro.codec",
                "arrow" => "arrow.compression",
                "orc" => "orc.compress",
                _ => "compression",
            },
            // An option of the connector or the format: 'sink.part-prefix'.
            other if other.contains(['.', '-']) => other,
            other => return Err(format!("COPY has no option {other}: {}; or one of the connector's, in quotes", one_of(other, NAMES))),
        };
        let value = match (key, value.to_lowercase().as_str()) {
            ("parquet.compression" | "arrow.compression" | "orc.compress" | "compression", "uncompressed") => "none".to_string(),
            ("avro.codec", "uncompressed" | "none") => "null".to_string(),
            ("parquet.compression" | "arrow.compression" | "orc.compress" | "compression" | "avro.codec", lower) => lower.to_string(),
            _ => value.clone(),
        };
        options.insert(key.to_string(), value);
    }
    if single {
        options.insert("sink.single-file".into(), "true".into());
    }
    Ok(Target { options, single, overwrite })
}

/// How a file of this name is compressed, unless an option says otherwise.
pub fn compression(to: &str) -> Option<&'static str> {
    let extension = Path::new(to).extension()?.to_str()?.to_lowercase();
    COMPRESSED.iter().find(|(end, _)| *end == extension).map(|(_, name)| *name)
}

/// Whether a local path can be written without touching what is there.
///
/// # Errors
/// What is there, and how to say that it shall go; `replace` is how that is said.
pub fn check_free(target: &Target, replace: &str) -> Result<(), String> {
    let path = target.options.get("path").map_or("", String::as_str);
    let local = path.strip_prefix("file://").unwrap_or(path);
    if local.contains("://") {
        return Ok(());
    }
    let Ok(meta) = std::fs::symlink_metadata(local) else { return Ok(()) };
    let is_directory = meta.is_dir() || std::fs::metadata(local).is_ok_and(|m| m.is_dir());
    match (target.single, is_directory) {
        (true, true) => return Err(format!("'{path}' is a directory, and one file would be written; choose another name")),
        (false, false) => return Err(format!("'{path}' is a file, and a directory of files would be written; choose another name")),
        _ if target.overwrite => return Ok(()),
        // An empty directory holds nothing that could be mixed with what comes.
        (false, true) if std::fs::read_dir(local).is_ok_and(|mut entries| entries.next().is_none()) => return Ok(()),
        _ => {}
    }
    Err(format!("'{path}' is there already; {replace} replaces it, or choose another name"))
}

#[cfg(test)]
mod tests;
