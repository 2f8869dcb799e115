//! `tidemill cache PATH…`: how much of files the system's page cache holds.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use tidemill_connect::filesystem::cache::{Residency, residency};

use crate::Failure;
use crate::args::CacheArgs;
use crate::files::look;
use crate::show::{bytes, columns};

/// Shows the residency of each file and of all.
pub fn cache(args: &CacheArgs) -> Result<(), Failure> {
    let mut files = Vec::new();
    for path in &args.paths {
        let path = path.strip_prefix("file://").unwrap_or(path);
        if path.contains("://") {
            return Err(Failure::usage(format!("'{path}' lies behind a network: the page cache holds local files")));
        }
        // An archive is one file here, and its members none.
        let found =
            if Path::new(path).is_file() { vec![path.to_string()] } else { look::list(path, &BTreeMap::new()).map_err(Failure::usage)? };
        files.extend(found.into_iter().map(|file| outer(&file).to_string()));
    }
    files.dedup();
    let mut rows = Vec::new();
    let mut total = Residency { bytes: 0, cached: 0 };
    for path in &files {
        let found = File::open(path).and_then(|file| residency(&file));
        let found = found.map_err(|e| Failure { message: format!("error: looking at '{path}': {e}"), code: 1 })?;
        total = Residency { bytes: total.bytes + found.bytes, cached: total.cached + found.cached };
        if args.json {
            println!("{}", serde_json::json!({ "path": path, "bytes": found.bytes, "cached": found.cached }));
        } else {
            rows.push(row(path, found));
        }
    }
    if !args.json {
        if files.len() > 1 {
            rows.push(row(&format!("{} files", files.len()), total));
        }
        print!("{}", columns(&["file", "bytes", "cached", "share"], &rows, &[false, true, true, true]));
    }
    Ok(())
}

/// The file in which a member of an archive lies; any other file itself.
fn outer(path: &str) -> &str {
    if Path::new(path).is_file() { path } else { path.split_once("//").map_or(path, |(archive, _)| archive) }
}

fn row(name: &str, found: Residency) -> Vec<String> {
    vec![name.to_string(), bytes(found.bytes), bytes(found.cached), percent(found)]
}

/// The share of a file that is in the cache.
pub fn percent(found: Residency) -> String {
    // An empty file has nothing that could be missing.
    let share = if found.bytes == 0 { 1.0 } else { found.cached as f64 / found.bytes as f64 };
    format!("{:.0} %", share * 100.0)
}
