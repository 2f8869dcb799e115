//! The `filesystem` connector: files, directories and globs as tables, in any format.
//!
//! [`path`] finds files, [`source`] makes splits of them, [`ranges`] cuts large ones, [`feed`] and
//! [`reader`] read text, [`parquet`] and [`avro`] read what their names say; [`sink`] commits part files, [`writer`] writes
//! them. What does not live here: other file systems than the local one.

mod avro;
mod feed;
mod metadata;
mod parquet;
mod path;
mod ranges;
mod reader;
mod sink;
mod source;
mod writer;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use tidemill_format::FormatError;
use tidemill_format::avro::{AvroFileOptions, AvroFileWriter};
use tidemill_format::compression::Compression;
use tidemill_format::options::{ByteSize, OptionSet, RawOptions, one_of};
use tidemill_format::parquet::{ParquetFileWriter, ParquetOptions};
use tidemill_format::text::{self, TextFormat};

use self::sink::{FileSink, Rolling};
use self::source::FileSource;
use crate::lookup::full::FullTable;
use crate::registry::Connector;
use crate::{Changelog, ConnectError, LookupOptions, LookupTable, Sink, Source};

/// The connector as the registry knows it.
pub static CONNECTOR: Connector = Connector {
    name: "filesystem",
    help: "Reads files, directories and globs, bounded or as they grow; writes directories of part files, exactly once. Looked up, \
           files are read whole and kept in memory.",
    specs: FilesystemOptions::specs,
    takes_format: true,
    source: Some(make_source),
    sink: Some(make_sink),
    lookup: Some(make_lookup),
};

tidemill_format::options! {
    /// Options of the `filesystem` connector.
    pub struct FilesystemOptions {
        /// A local path or `file:` URI. To read: a file, a directory (all files in it and below whose
        /// names do not begin with `.` or `_`) or a glob such as `/data/*.csv`. To write: a directory,
        /// created if missing, used by one job at a time.
        flink "path" => path: String;
        /// The format: `csv`, `json`, `parquet`, `avro` (object container files), or one of changes:
        /// `debezium-json`, `canal-json`, `maxwell-json`, a change a line; changes of one key must then
        /// stand in one file.
        flink "format" => format: String;
        /// Makes the source unbounded: how often to look for new files and for lines appended to
        /// uncompressed text files.
        flink "source.monitor-interval" => monitor_interval: Option<Duration>;
        /// Reads only files whose whole absolute path matches this regular expression.
        flink "source.path.regex-pattern" => path_regex: Option<String>;
        /// How text files are compressed: `none`, `gzip` or `zstd`. By default reading goes by the
        /// name's extension (`.gz`, `.zst`) and nothing is compressed in writing.
        ours "compression" => compression: Option<Compression>;
        /// A part file is closed, and the next one begun, when it has this many bytes.
        flink "sink.rolling-policy.file-size" => rolling_file_size: ByteSize = ByteSize(128 << 20);
        /// A part file is closed when it is this old. Every checkpoint closes it as well.
        flink "sink.rolling-policy.rollover-interval" => rollover_interval: Duration = Duration::from_secs(30 * 60);
        /// What the names of part files begin with.
        ours "sink.part-prefix" => part_prefix: String = "part";
    }
}

/// A format with its options.
#[derive(Clone, Debug)]
enum FileFormat {
    Text(TextFormat),
    Parquet(ParquetOptions),
    Avro(AvroFileOptions),
}

impl FileFormat {
    fn take(name: &str, raw: &mut RawOptions) -> Result<Self, FormatError> {
        match name {
            "parquet" => Ok(FileFormat::Parquet(ParquetOptions::take(raw)?)),
            "avro" => Ok(FileFormat::Avro(AvroFileOptions::take(raw)?)),
            name if text::NAMES.contains(&name) => Ok(FileFormat::Text(TextFormat::take(name, raw)?)),
            other => {
                let [csv, json, changes @ ..] = text::NAMES;
                let why = one_of(other, &[&[csv, json, "parquet", "avro"][..], &changes[..]].concat());
                Err(FormatError::option(format!("{}: there is no file format '{other}': {why}", raw.owner())))
            }
        }
    }

    /// Whether rows may be updates and deletions.
    fn changelog(&self) -> bool {
        matches!(self, FileFormat::Text(text) if text.changelog())
    }
}

fn take(raw: &mut RawOptions) -> Result<(FilesystemOptions, FileFormat), ConnectError> {
    let mut options = FilesystemOptions::take(raw)?;
    let format = FileFormat::take(&options.format, raw)?;
    options.path = path::local_path(&options.path).map_err(|e| e.at(raw.owner()))?;
    let inside = match format {
        FileFormat::Text(_) => None,
        FileFormat::Parquet(_) => Some("Parquet"),
        FileFormat::Avro(_) => Some("Avro"),
    };
    if let Some(name) = inside
        && options.compression.is_some_and(|c| c != Compression::None)
    {
        let why = format!("{}: {name} files are compressed inside, not as a whole; leave 'compression' out", raw.owner());
        return Err(ConnectError::new(why));
    }
    Ok((options, format))
}

fn make_source(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Source>, ConnectError> {
    let (options, format) = take(raw)?;
    if options.monitor_interval.is_some_and(|i| i.is_zero()) {
        return Err(ConnectError::new(format!("{}: 'source.monitor-interval' must be longer than nothing; write '1 s'", raw.owner())));
    }
    let pattern = options.path_regex.as_deref().map(path::path_pattern).transpose().map_err(|e| e.at(raw.owner()))?;
    if let FileFormat::Text(text) = &format {
        // Says now, not at the first file, that a column's type cannot be read.
        text.decoder(schema, &(0..schema.fields().len()).collect::<Vec<_>>()).map_err(|e| ConnectError::from(e).at(raw.owner()))?;
    }
    Ok(Box::new(FileSource { path: options.path, pattern, format, compression: options.compression, monitor: options.monitor_interval }))
}

/// Files as a lookup table: read whole and kept, whatever 'lookup.cache' says.
fn make_lookup(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn LookupTable>, ConnectError> {
    let options = LookupOptions::checked(raw)?;
    if raw.peek("source.monitor-interval").is_some() {
        return Err(ConnectError::new(format!(
            "{}: a table that is looked up is read to its end, so it cannot have 'source.monitor-interval'; \
             'lookup.full-cache.reload-interval' reads it again and again",
            raw.owner()
        )));
    }
    let source = make_source(schema, raw)?;
    if source.changelog() != Changelog::Append {
        let why = "a table of changes cannot be looked up; look up one of whole rows (csv, json, parquet, avro)";
        return Err(ConnectError::new(format!("{}: {why}", raw.owner())));
    }
    Ok(Box::new(FullTable::new(source.into(), options, raw.owner())?))
}

fn make_sink(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Sink>, ConnectError> {
    let (options, format) = take(raw)?;
    let wrong = |what: String| Err(ConnectError::new(format!("{}: {what}", raw.owner())));
    if options.path.contains(['*', '?']) {
        return wrong(format!("the path of a sink is a directory, not a glob: '{}'", options.path));
    }
    if options.part_prefix.contains('/') || options.part_prefix.is_empty() || options.part_prefix.starts_with(['.', '_']) {
        return wrong(format!("'sink.part-prefix' = '{}' must be the beginning of a visible file name, without '/'", options.part_prefix));
    }
    if options.rolling_file_size.0 == 0 || options.rollover_interval.is_zero() {
        return wrong("'sink.rolling-policy.file-size' and 'sink.rolling-policy.rollover-interval' must be more than nothing".to_string());
    }
    // Says now, not at the first row, that a column's type cannot be written.
    match &format {
        FileFormat::Text(text) => drop(text.encoder(schema).map_err(|e| ConnectError::from(e).at(raw.owner()))?),
        FileFormat::Parquet(parquet) => {
            drop(ParquetFileWriter::new(Box::new(std::io::sink()), schema, parquet).map_err(|e| ConnectError::from(e).at(raw.owner()))?);
        }
        FileFormat::Avro(avro) => {
            drop(AvroFileWriter::new(Box::new(std::io::sink()), schema, avro).map_err(|e| ConnectError::from(e).at(raw.owner()))?);
        }
    }
    Ok(Box::new(FileSink {
        directory: PathBuf::from(options.path),
        prefix: options.part_prefix,
        format,
        compression: options.compression.unwrap_or(Compression::None),
        rolling: Rolling { bytes: options.rolling_file_size.0, interval: options.rollover_interval },
    }))
}
