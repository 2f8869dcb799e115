//! Looking at files: which there are, what format they have, which columns. What is read of them beyond a sample
//! is the connector's business.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use tidemill_connect::{Polled, ReadRequest, ReaderContext, Source, Waker, filesystem};
use tidemill_format::compression::{self, Compression};
use tidemill_format::encoding::TextEncoding;
use tidemill_format::fixed::FixedOptions;
use tidemill_format::infer::{self, CsvSniff};
use tidemill_format::json::JsonForm;
use tidemill_format::options::{OptionSet, OptionValue, RawOptions, one_of};
use tidemill_format::parquet;

use super::wishes::Wishes;

/// Bytes looked at to find out what a file holds.
const SAMPLE_BYTES: u64 = 1 << 20;

/// Extensions of compressed files.
const COMPRESSED: [&str; 6] = [".gz", ".zst", ".zstd", ".bz2", ".xz", ".lz4"];

/// What a file holds: the options of a table of it, the path excepted, and the columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Looked {
    /// `format` and how it is written.
    pub options: BTreeMap<String, String>,
    /// The columns.
    pub schema: SchemaRef,
}

/// Whether the path is that of a file here, and not of one in an archive or behind a network.
pub fn is_plain(path: &str) -> bool {
    Path::new(path.trim_start_matches("file://")).is_file()
}

/// A file's length, if it is plain.
pub fn length(path: &str) -> Option<u64> {
    std::fs::metadata(path.trim_start_matches("file://")).ok().filter(|m| m.is_file()).map(|m| m.len())
}

/// The format that a name says: its extension, compression aside. None for archives, whose members say it.
pub fn format_of(name: &str) -> Option<&'static str> {
    let lower = name.to_lowercase();
    let bare = COMPRESSED.iter().find_map(|end| lower.strip_suffix(end)).unwrap_or(&lower);
    match bare.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "parquet" => Some("parquet"),
        "avro" => Some("avro"),
        "arrow" | "arrows" | "feather" | "ipc" => Some("arrow"),
        "orc" => Some("orc"),
        "xlsx" | "xlsm" => Some("xlsx"),
        "json" | "jsonl" | "ndjson" => Some("json"),
        "sas7bdat" => Some("sas7bdat"),
        "xpt" | "xport" => Some("xport"),
        "csv" | "tsv" | "txt" | "tbl" | "dat" => Some("csv"),
        _ => None,
    }
}

/// The connector's view of a path, as lines of text; of a table's options those matter that say which bytes, and how they are got.
fn source(path: &str, given: &BTreeMap<String, String>) -> Result<Box<dyn Source>, String> {
    let mut options = vec![
        ("path", path),
        ("format", "csv"),
        // Of the characters that text hardly has, one that a line is not cut at.
        ("csv.field-delimiter", "\u{1}"),
        ("csv.disable-quote-character", "true"),
        ("csv.ignore-trailing-unmappable", "true"),
    ];
    let which = ["compression", "source.archive", "source.path.regex-pattern"];
    let bytes = given.iter().filter(|(key, _)| which.contains(&key.as_str()) || key.starts_with("store."));
    options.extend(bytes.map(|(key, value)| (key.as_str(), value.as_str())));
    let encoding = given.get("csv.encoding").or(given.get("fixed.encoding"));
    options.extend(encoding.map(|encoding| ("csv.encoding", encoding.as_str())));
    let options = options.into_iter().map(|(key, value)| (key.to_string(), value.to_string()));
    filesystem::source_of_look(&line_schema(), &mut RawOptions::new(format!("'{path}'"), options)).map_err(|e| e.to_string())
}

fn line_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("line", DataType::Utf8, true)]))
}

/// The files that a path, a directory, a glob or an archive stands for, in the order in which they are read; `given`
/// are options of its table.
///
/// # Errors
/// There is none.
pub fn list(path: &str, given: &BTreeMap<String, String>) -> Result<Vec<String>, String> {
    let splits = source(path, given)?.splits(1).map_err(|e| e.to_string())?;
    Ok(splits.into_iter().map(|split| split.id).collect())
}

/// What a file holds.
///
/// # Errors
/// It cannot be read, or its columns cannot be told.
pub fn look(path: &str, wishes: &Wishes) -> Result<Looked, String> {
    let mut options = BTreeMap::new();
    let mut set = |key: &str, value: &str| drop(options.insert(key.to_string(), value.to_string()));
    let named = wishes.format.as_deref().or_else(|| format_of(path));
    let failed = |e: &dyn std::fmt::Display| format!("'{path}': {e}");
    let schema = match named {
        Some("parquet") => {
            set("format", "parquet");
            let local = Path::new(path.trim_start_matches("file://"));
            if local.is_file() {
                parquet::schema_of(local).map_err(|e| format!("reading the schema of '{path}': {e}"))?
            } else {
                filesystem::sample::parquet_schema(path, &wishes.options).map_err(|e| e.to_string())?
            }
        }
        Some("avro") => {
            set("format", "avro");
            filesystem::avro::schema_of(path, &wishes.options).map_err(|e| e.to_string())?
        }
        Some("orc") => {
            set("format", "orc");
            filesystem::orc::schema_of(path, &wishes.options).map_err(|e| e.to_string())?
        }
        Some("xlsx") => {
            set("format", "xlsx");
            let (schema, header) = filesystem::xlsx::schema_of(path, &wishes.options, wishes.csv.header).map_err(|e| e.to_string())?;
            set("xlsx.header", &header.to_string());
            schema
        }
        Some(format @ ("sas7bdat" | "xport")) => {
            set("format", format);
            filesystem::sas::schema_of(format, path, &wishes.options).map_err(|e| e.to_string())?
        }
        Some("arrow") => {
            set("format", "arrow");
            filesystem::ipc::schema_of(path, &wishes.options).map_err(|e| e.to_string())?
        }
        Some("fixed") => {
            set("format", "fixed");
            let (sample, complete) = sample(path, &wishes.options)?;
            let (sample, found) = as_text(path, sample, complete, &wishes.options, "fixed.encoding")?;
            found.iter().for_each(|encoding| set("fixed.encoding", encoding.name()));
            let given = wishes.options.iter().filter(|(key, _)| key.starts_with("fixed.")).map(|(key, value)| (key.clone(), value.clone()));
            let given = FixedOptions::take(&mut RawOptions::new(format!("'{path}'"), given)).map_err(|e| e.to_string())?;
            infer::infer_fixed(&sample, complete, &given).map_err(|e| failed(&e))?
        }
        Some(other) if other != "csv" && other != "json" => {
            let known = ["arrow", "avro", "csv", "fixed", "json", "orc", "parquet", "sas7bdat", "xlsx", "xport"];
            return Err(format!("'{path}': there is no file format '{other}': {}", one_of(other, &known)));
        }
        other => {
            let (sample, complete) = sample(path, &wishes.options)?;
            let json = match other {
                Some("json") => true,
                Some(_) => false,
                None => looks_like_json(&sample),
            };
            if json {
                set("format", "json");
                let said = wishes.options.get("json.form").map(|text| JsonForm::parse(text)).transpose();
                let form = match said.map_err(|e| failed(&format!("option 'json.form': {e}")))? {
                    None | Some(JsonForm::Auto) => infer::json_form(&sample),
                    Some(form) => form,
                };
                // Lines are what a table expects.
                if form == JsonForm::Document {
                    set("json.form", "document");
                }
                infer::infer_json(&sample, complete, form).map_err(|e| failed(&e))?
            } else {
                let (sample, found) = as_text(path, sample, complete, &wishes.options, "csv.encoding")?;
                let known = wishes.csv.clone().with_options(&wishes.options);
                let (sniff, schema) = infer::infer_csv_as(&sample, complete, &known).map_err(|e| failed(&e))?;
                set("format", "csv");
                found.iter().for_each(|encoding| set("csv.encoding", encoding.name()));
                if sniff.comments {
                    set("csv.allow-comments", "true");
                }
                set("csv.field-delimiter", &sniff.delimiter.to_string());
                set("csv.quote-character", &sniff.quote.to_string());
                set("csv.fail-on-missing-columns", "false");
                if sniff.header {
                    // Other files of the table are checked to have the same columns, where names can be compared.
                    set("csv.header", if is_header(&sample, &sniff, &schema) { "true" } else { "skip" });
                }
                schema
            }
        }
    };
    let schema = text_if(schema, wishes.text_only);
    options.extend(wishes.options.clone());
    Ok(Looked { options, schema })
}

/// Whether a text begins with an object, or with an array of such.
fn looks_like_json(sample: &[u8]) -> bool {
    match sample.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(sample).trim_ascii_start() {
        [b'[', rest @ ..] => rest.trim_ascii_start().first() == Some(&b'{'),
        text => text.first() == Some(&b'{'),
    }
}

/// A sample in UTF-8, and its encoding if that is another. `option` says it, or the text itself.
fn as_text(
    path: &str,
    sample: Vec<u8>,
    complete: bool,
    given: &BTreeMap<String, String>,
    option: &'static str,
) -> Result<(Vec<u8>, Option<TextEncoding>), String> {
    let failed = |why: &dyn std::fmt::Display| format!("'{path}': {why}");
    // What the connector gave is decoded already.
    if !reads_itself(path, given) {
        return Ok((sample, None));
    }
    let said = given.get(option).map(|text| TextEncoding::parse(text)).transpose();
    infer::sample_text(sample, complete, said.map_err(|e| failed(&format!("option '{option}': {e}")))?, option).map_err(|e| failed(&e))
}

/// Whether the first line has just the names of the columns; above it there may be blank lines and comments.
fn is_header(sample: &[u8], sniff: &CsvSniff, schema: &SchemaRef) -> bool {
    let sample = sample.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(sample);
    let passed = |line: &[u8]| matches!(line, [] | [b'\r']) || (sniff.comments && line.first() == Some(&b'#'));
    let line = sample.split(|byte| *byte == b'\n').find(|line| !passed(line)).unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let names = line.trim_end_matches('\r').split(sniff.delimiter).map(|name| name.trim_matches(sniff.quote));
    names.eq(schema.fields().iter().map(|f| f.name().as_str()))
}

/// The columns, as text if no types are wanted.
fn text_if(schema: SchemaRef, text_only: bool) -> SchemaRef {
    if !text_only {
        return schema;
    }
    let text = |f: &arrow::datatypes::FieldRef| Field::new(f.name(), DataType::Utf8, true);
    Arc::new(Schema::new(schema.fields().iter().map(text).collect::<Vec<_>>()))
}

/// Whether a sample is read here, byte for byte, and not line by line through the connector.
fn reads_itself(path: &str, given: &BTreeMap<String, String>) -> bool {
    !["compression", "source.archive"].iter().any(|option| given.contains_key(*option)) && is_plain(path) && !is_archive(path)
}

/// Whether a name is one of an archive.
pub fn is_archive(name: &str) -> bool {
    let lower = name.to_lowercase();
    [".zip", ".tar", ".tgz", ".tbz2", ".txz"].iter().any(|end| lower.ends_with(end))
        || COMPRESSED.iter().any(|end| lower.ends_with(&format!(".tar{end}")))
}

/// The beginning of a file, unpacked, and whether that is all of it.
fn sample(path: &str, given: &BTreeMap<String, String>) -> Result<(Vec<u8>, bool), String> {
    if reads_itself(path, given) {
        let path = Path::new(path.trim_start_matches("file://"));
        let failed = |e: std::io::Error| format!("reading '{}': {e}", path.display());
        let file = File::open(path).map_err(failed)?;
        let reader = compression::reader(Box::new(file), Compression::from_path(path)).map_err(failed)?;
        let mut sample = Vec::new();
        reader.take(SAMPLE_BYTES).read_to_end(&mut sample).map_err(failed)?;
        let complete = (sample.len() as u64) < SAMPLE_BYTES;
        return Ok((sample, complete));
    }
    let said = ["compression", "source.archive", "csv.encoding", "fixed.encoding"].iter().any(|option| given.contains_key(*option));
    if !said && Compression::from_path(path) == Compression::None && !is_archive(path) {
        filesystem::sample::check_pipe(path).map_err(|e| e.to_string())?;
        // A document may be one line that is longer than a line may be. Where its first object is longer than the sample, that is no
        // use; of what came to its end lines hold no more.
        if let Some(sample) = filesystem::sample::pipe_beginning(path, SAMPLE_BYTES).map_err(|e| e.to_string())? {
            let complete = (sample.len() as u64) < SAMPLE_BYTES;
            if looks_like_json(&sample) && (complete || infer::infer_json(&sample, complete, JsonForm::Auto).is_ok()) {
                return Ok((sample, complete));
            }
        }
    }
    lines(path, given)
}

/// The first lines of the first file that the connector reads there: of a member of an archive, of an object behind a network.
fn lines(path: &str, given: &BTreeMap<String, String>) -> Result<(Vec<u8>, bool), String> {
    let failed = |e: tidemill_connect::ConnectError| e.to_string();
    let source = source(path, given)?;
    let Some(split) = source.splits(1).map_err(failed)?.into_iter().next() else {
        return Err(format!("there is no file at '{path}'"));
    };
    let (wake, woken) = mpsc::sync_channel::<()>(1);
    let waker = Waker::new(move || {
        // A full channel wakes as well.
        let _ = wake.try_send(());
    });
    let file = ("file.path".to_string(), Arc::new(Field::new("file", DataType::Utf8, false)));
    let request = ReadRequest { metadata: vec![file], ..ReadRequest::all(line_schema()) };
    let mut reader = source.open(&split, ReaderContext { waker, request, shard: 0, shards: 1 }).map_err(failed)?;
    let (mut sample, mut first) = (Vec::new(), None::<String>);
    while (sample.len() as u64) < SAMPLE_BYTES {
        match reader.poll(1024).map_err(failed)? {
            Polled::End => return Ok((sample, true)),
            // Woken, or looked again: a reader may have nothing to wake with.
            Polled::Pending => drop(woken.recv_timeout(Duration::from_millis(20))),
            Polled::Rows(rows) => {
                // Behind one member of an archive comes the next, whose header line is no row of the first. A batch is of one.
                if rows.batch.num_rows() > 0 {
                    let file = rows.batch.column(1).as_string::<i32>().value(0);
                    if first.get_or_insert_with(|| file.to_string()).as_str() != file {
                        return Ok((sample, true));
                    }
                }
                for line in rows.batch.column(0).as_string::<i32>().iter().flatten() {
                    sample.extend_from_slice(line.as_bytes());
                    sample.push(b'\n');
                }
            }
        }
    }
    Ok((sample, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_formats() {
        for (name, format) in [
            ("a.csv", Some("csv")),
            ("a/b.JSON.gz", Some("json")),
            ("x.zip//2005/NASDAQ.txt", Some("csv")),
            ("s3://b/k.parquet", Some("parquet")),
            ("a.tar.gz", None),
            ("a.xpt", Some("xport")),
            ("a.ORC", Some("orc")),
            ("a b.xlsx", Some("xlsx")),
            ("a.feather", Some("arrow")),
            ("a.arrows.zst", Some("arrow")),
            ("noextension", None),
        ] {
            assert_eq!(format_of(name), format, "{name}");
        }
    }

    #[test]
    fn the_encoding_and_the_dialect_are_found() {
        let dir = std::env::temp_dir().join(format!("tidemill-look-text-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let at = |name: &str, bytes: &[u8]| {
            let path = dir.join(name);
            std::fs::write(&path, bytes).unwrap();
            path.to_str().unwrap().to_string()
        };
        let names = |looked: &Looked| looked.schema.fields().iter().map(|f| f.name().clone()).collect::<Vec<_>>().join(",");
        let utf16 = at("a.csv", b"\xff\xfe#\0 \0x\0\n\0a\0;\0\xe9\0\n\x001\0;\x002\0\n\0");
        let looked = look(&utf16, &Wishes::default()).unwrap();
        assert_eq!((names(&looked), looked.options["csv.encoding"].as_str()), ("a,é".to_string(), "UTF-16"));
        assert_eq!((looked.options["csv.allow-comments"].as_str(), looked.options["csv.header"].as_str()), ("true", "true"));
        let latin = at("b.csv", b"n,caf\xe9\n1,x\n");
        assert!(look(&latin, &Wishes::default()).unwrap_err().contains("the header line is not UTF-8"));
        let mut wishes = Wishes::default();
        wishes.take("encoding", "latin-1").unwrap();
        let looked = look(&latin, &wishes).unwrap();
        assert_eq!((names(&looked), looked.options["csv.encoding"].as_str()), ("n,café".to_string(), "latin-1"));
        let mut wishes = Wishes { format: Some("fixed".to_string()), ..Wishes::default() };
        assert!(look(&at("c.txt", b"1a\n2b\n"), &wishes).unwrap_err().contains("option 'fixed.widths' is required"));
        wishes.take("fixed.widths", "n:1,s:2-*").unwrap();
        let looked = look(&at("c.txt", b"1a\n2b\n"), &wishes).unwrap();
        assert_eq!((names(&looked), looked.options["format"].as_str()), ("n,s".to_string(), "fixed"));
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn the_connector_gives_the_first_lines() {
        let path = std::env::temp_dir().join(format!("tidemill-look-{}.csv.gz", std::process::id()));
        let file = File::create(&path).unwrap();
        let mut out = compression::writer(Box::new(file), Compression::Gzip, None).unwrap();
        std::io::Write::write_all(&mut out, b"a,b\n1,x\n2,\"y\"\n").unwrap();
        out.finish().unwrap();
        let name = path.to_str().unwrap();
        assert_eq!(lines(name, &BTreeMap::new()).unwrap(), (b"a,b\n1,x\n2,\"y\"\n".to_vec(), true));
        assert_eq!(list(name, &BTreeMap::new()).unwrap(), [name]);
        let looked = look(name, &Wishes::default()).unwrap();
        assert_eq!(looked.schema.fields().iter().map(|f| f.name().as_str()).collect::<Vec<_>>(), ["a", "b"]);
        std::fs::remove_file(&path).unwrap();
    }
}
