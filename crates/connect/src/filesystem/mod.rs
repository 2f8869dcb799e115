//! The `filesystem` connector: files, directories and globs as tables, in any format.
//!
//! [`path`] and [`listing`] find files, members of archives and objects; [`source`] makes splits of them, [`ranges`] cuts
//! large ones, [`queue`] puts them in order. [`feed`] (in [`buffers`]) and [`reader`] read text, [`directory`] and [`members`] archives,
//! [`parquet`] and [`orc`] (bytes: [`columns`]), [`avro`], [`ipc`] (Arrow), [`sas`] and [`xlsx`] what their names say,
//! [`batches`] on which thread; [`cache`] and [`page`]
//! deal with the page cache; [`sample`] tells what columns a file has, [`pipe`] keeps what was taken of a pipe for it.
//! [`sink`] commits part files, [`bucket`] those in
//! buckets, [`writer`] writes them, [`partition`] divides them among directories. What does not live here: how
//! object stores are spoken to.

pub mod avro;
mod batches;
mod bucket;
mod buffers;
pub mod cache;
mod columns;
mod directory;
mod feed;
mod head;
pub mod ipc;
mod listing;
mod made;
mod members;
mod metadata;
pub mod orc;
mod page;
mod parquet;
pub mod partition;
mod path;
mod pipe;
mod queue;
mod ranges;
mod reader;
pub mod rename;
pub mod sample;
pub mod sas;
mod sink;
mod source;
mod writer;
pub mod xlsx;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use tidemill_format::FormatError;
use tidemill_format::avro::{AvroFileOptions, AvroFileWriter};
use tidemill_format::compression::Compression;
use tidemill_format::ipc::{ArrowFileWriter, ArrowOptions};
use tidemill_format::options::{ByteSize, OptionSet, OptionSpec, RawOptions, one_of};
use tidemill_format::orc::{OrcFileWriter, OrcOptions};
use tidemill_format::parquet::{ParquetFileWriter, ParquetOptions};
use tidemill_format::text::{self, TextFormat};
use tidemill_format::xlsx::{XlsxFileWriter, XlsxOptions};
use tidemill_store::{Pending, StoreOptions, is_remote};

use self::bucket::Bucket;
use self::cache::PageCache;
use self::members::Archive;
use self::path::Location;
pub use self::pipe::Pipes;
use self::pipe::Purpose;
#[doc(hidden)]
pub use self::ranges::ranges_of;
use self::sas::SasFormat;
use self::sink::{FileSink, Rolling};
use self::source::FileSource;
use crate::lookup::full::FullTable;
use crate::registry::Connector;
use crate::{Changelog, Committable, ConnectError, LookupOptions, LookupTable, Sink, Source};

/// The connector as the registry knows it.
pub static CONNECTOR: Connector = Connector {
    name: "filesystem",
    help: "Reads files, directories and globs, bounded or as they grow; writes directories of part files, exactly once. Looked up, \
           files are read whole and kept in memory.",
    specs,
    takes_format: true,
    source: Some(make_source),
    sink: Some(make_sink),
    lookup: Some(make_lookup),
};

/// The connector's own options, and those of the stores that it reaches.
fn specs() -> Vec<OptionSpec> {
    [FilesystemOptions::specs(), StoreOptions::specs()].concat()
}

tidemill_format::options! {
    /// Options of the `filesystem` connector.
    pub struct FilesystemOptions {
        /// A local path, a `file:` URI or an address (`gs:`, `s3:`, `az:`, `http:`, `https:`). To read: a file, a
        /// directory (all files in it and below whose names do not begin with `.` or `_`) or a glob such as
        /// `/data/*.csv`. Of archives (`.zip`, `.tar`, `.tar.gz` and so on) all members are read, or those that a glob
        /// behind `//` matches: `/data/*.zip//2005*.txt`. To write: a directory, created if missing, used by one job at
        /// a time.
        flink "path" => path: String;
        /// The format: `csv`, `json`, `fixed` (columns at fixed places), `parquet`, `avro` (object container files), `arrow`
        /// (files and streams), `orc`, `xlsx` (workbooks of Excel), `sas7bdat` (read only), `xport`, or one of changes:
        /// `debezium-json`, `canal-json`, `maxwell-json`, a change a line; changes of one key must then
        /// stand in one file.
        flink "format" => format: String;
        /// Makes the source unbounded: how often to look for new files and for lines appended to
        /// uncompressed text files.
        flink "source.monitor-interval" => monitor_interval: Option<Duration>;
        /// Reads only files whose whole absolute path, or address, matches this regular expression.
        flink "source.path.regex-pattern" => path_regex: Option<String>;
        /// What becomes of the system's page cache: `auto` leaves it as it was found if the files are together larger than
        /// an eighth of the memory, `drop` always does, `keep` never. Files followed by `source.monitor-interval` stay.
        ours "source.page-cache" => page_cache: PageCache = PageCache::Auto;
        /// How text files are compressed: `none`, `gzip`, `zstd`, `bzip2`, `xz` or `lz4`. By default reading goes by the
        /// name's extension (`.gz`, `.zst`, `.bz2`, `.xz`, `.lz4`) and nothing is compressed in writing. Archives and what is
        /// in them go by their names.
        ours "compression" => compression: Option<Compression>;
        /// The kind of archive that the path means, where that is not in its name: `/dev/stdin//*.csv`, or what an address
        /// gives that ends otherwise. It is read from front to back, a zip, too.
        ours "source.archive" => archive: Option<Archive>;
        /// A part file is closed, and the next one begun, when it has this many bytes.
        flink "sink.rolling-policy.file-size" => rolling_file_size: ByteSize = ByteSize(128 << 20);
        /// A part file is closed when it is this old. Every checkpoint closes it as well.
        flink "sink.rolling-policy.rollover-interval" => rollover_interval: Duration = Duration::from_secs(30 * 60);
        /// What the names of part files begin with.
        ours "sink.part-prefix" => part_prefix: String = "part";
        /// The path is one file and not a directory: a batch job writes all rows into it, and it appears when
        /// all are there. A file that is there already is an error, unless `INSERT OVERWRITE` replaces it. Its
        /// extension says how it is compressed, unless `compression` does.
        ours "sink.single-file" => single_file: bool = false;
        /// Columns, with commas between them, whose values name directories that rows are divided among
        /// (`year=2024/month=1/part-….csv`), as in Hive. They are not in the files themselves.
        ours "sink.partition-by" => partition_by: Option<String>;
    }
}

/// A format with its options.
#[derive(Clone, Debug)]
enum FileFormat {
    Text(TextFormat),
    Parquet(ParquetOptions),
    Avro(AvroFileOptions),
    Orc(OrcOptions),
    Xlsx(XlsxOptions),
    Arrow(ArrowOptions),
    Sas(SasFormat),
}

impl FileFormat {
    fn take(name: &str, raw: &mut RawOptions) -> Result<Self, FormatError> {
        match name {
            "parquet" => Ok(FileFormat::Parquet(ParquetOptions::take(raw)?)),
            "avro" => Ok(FileFormat::Avro(AvroFileOptions::take(raw)?)),
            "orc" => Ok(FileFormat::Orc(OrcOptions::take(raw)?)),
            "xlsx" => Ok(FileFormat::Xlsx(XlsxOptions::take(raw)?)),
            "arrow" => Ok(FileFormat::Arrow(ArrowOptions::take(raw)?)),
            "sas7bdat" | "xport" => Ok(FileFormat::Sas(SasFormat::take(name == "xport", raw)?)),
            name if text::NAMES.contains(&name) => Ok(FileFormat::Text(TextFormat::take(name, raw)?)),
            other => {
                let [csv, json, fixed, changes @ ..] = text::NAMES;
                let files = [csv, json, fixed, "parquet", "avro", "arrow", "orc", "sas7bdat", "xlsx", "xport"];
                let why = one_of(other, &[&files[..], &changes[..]].concat());
                Err(FormatError::option(format!("{}: there is no file format '{other}': {why}", raw.owner())))
            }
        }
    }

    /// The name of a format whose files are not compressed as a whole, and are more than passing bytes.
    fn compressed_inside(&self) -> Option<&'static str> {
        match self {
            // What is read may be compressed as a whole; what is written is not (`file_sink`).
            FileFormat::Text(_) | FileFormat::Arrow(_) => None,
            FileFormat::Parquet(_) => Some("Parquet"),
            FileFormat::Avro(_) => Some("Avro"),
            FileFormat::Orc(_) => Some("ORC"),
            FileFormat::Xlsx(_) => Some("XLSX"),
            FileFormat::Sas(sas) => Some(sas.name()),
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
    if !is_remote(&options.path) {
        options.path = path::local_path(&options.path).map_err(|e| e.at(raw.owner()))?;
    }
    if let Some(name) = format.compressed_inside()
        && options.compression.is_some_and(|c| c != Compression::None)
    {
        let why = format!("{}: {name} files are not compressed as a whole; leave 'compression' out", raw.owner());
        return Err(ConnectError::new(why));
    }
    Ok((options, format))
}

/// What tells a source that a cut of a file must be right, and not only be found wrong when all of it was read: bad records do not end
/// the job, or rows count before all were read. No option that users write begins with #.
pub const CUTS_SURELY: &str = "#cuts-surely";

/// What tells a source that the columns of its table were found by looking at the pipe that it reads. No option that users write begins
/// with #.
pub const FOUND: &str = "#found";

fn make_source(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Source>, ConnectError> {
    Ok(Box::new(file_source(schema, raw)?))
}

/// A source for those who look at files before they declare a table of them. What it takes of a pipe is kept, and comes first
/// when a table reads the pipe.
///
/// # Errors
/// As those of any source of the connector.
pub fn source_of_look(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Source>, ConnectError> {
    Ok(Box::new(FileSource { purpose: Purpose::Look, ..file_source(schema, raw)? }))
}

fn file_source(schema: &SchemaRef, raw: &mut RawOptions) -> Result<FileSource, ConnectError> {
    let (options, format) = take(raw)?;
    if options.monitor_interval.is_some_and(|i| i.is_zero()) {
        return Err(ConnectError::new(format!("{}: 'source.monitor-interval' must be longer than nothing; write '1 s'", raw.owner())));
    }
    let pattern = options.path_regex.as_deref().map(path::path_pattern).transpose().map_err(|e| e.at(raw.owner()))?;
    if let FileFormat::Text(text) = &format {
        // Says now, not at the first file, that a column's type cannot be read.
        text.decoder(schema, &(0..schema.fields().len()).collect::<Vec<_>>()).map_err(|e| ConnectError::from(e).at(raw.owner()))?;
    }
    if let FileFormat::Xlsx(_) = &format {
        tidemill_format::xlsx::check(schema).map_err(|e| ConnectError::from(e).at(raw.owner()))?;
    }
    let store = StoreOptions::take(raw).map_err(ConnectError::from)?;
    store.check().map_err(|e| ConnectError::new(format!("{}: {e}", raw.owner())))?;
    let location = Location::parse(&options.path, options.archive.map(Archive::container)).map_err(|e| e.at(raw.owner()))?;
    Ok(FileSource {
        compression: options.compression,
        monitor: options.monitor_interval,
        cuts_surely: !raw.take_prefixed(CUTS_SURELY).is_empty(),
        purpose: if raw.take_prefixed(FOUND).is_empty() { Purpose::Rows } else { Purpose::Found },
        ..FileSource::new(location, pattern, format, store, options.page_cache)
    })
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
    Ok(Box::new(file_sink(schema, raw)?))
}

/// The sink of a copy into a bucket. What its writers prepare are uploads ([`upload_of`]) that belong to `owner`, who holds the lock
/// of the place and completes them; the sink itself commits nothing. With `mirror`, a directory, the bytes of each are
/// also written to a file there, by the name that the object has in the table's directory.
///
/// # Errors
/// As those of any sink of the connector; a path that lies in no bucket.
pub fn sink_of_copy(schema: &SchemaRef, raw: &mut RawOptions, owner: &str, mirror: Option<PathBuf>) -> Result<Box<dyn Sink>, ConnectError> {
    let mut sink = file_sink(schema, raw)?;
    let Some(bucket) = sink.bucket.take() else {
        return Err(ConnectError::new(format!("internal error: '{}' lies in no bucket", sink.directory.display())));
    };
    sink.bucket = Some(bucket.of_copy(owner, mirror));
    Ok(Box::new(sink))
}

/// The upload that a writer of [`sink_of_copy`] has prepared.
pub fn upload_of(committable: &Committable) -> Option<Pending> {
    bucket::upload_of(committable)
}

fn file_sink(schema: &SchemaRef, raw: &mut RawOptions) -> Result<FileSink, ConnectError> {
    let (options, format) = take(raw)?;
    let store = StoreOptions::take(raw).map_err(ConnectError::from)?;
    let wrong = |what: String| Err(ConnectError::new(format!("{}: {what}", raw.owner())));
    let bucket = is_remote(&options.path).then(|| Bucket::new(&options.path, options.single_file, &store));
    let bucket = bucket.transpose().map_err(|e| e.at(raw.owner()))?;
    if options.path.contains(['*', '?']) {
        return wrong(format!("the path of a sink is a directory, not a glob: '{}'", options.path));
    }
    if options.part_prefix.contains('/') || options.part_prefix.is_empty() || options.part_prefix.starts_with(['.', '_']) {
        return wrong(format!("'sink.part-prefix' = '{}' must be the beginning of a visible file name, without '/'", options.part_prefix));
    }
    if options.rolling_file_size.0 == 0 || options.rollover_interval.is_zero() {
        return wrong("'sink.rolling-policy.file-size' and 'sink.rolling-policy.rollover-interval' must be more than nothing".to_string());
    }
    let partition_by: Vec<String> = options.partition_by.iter().flat_map(|names| names.split(',')).map(|n| n.trim().to_string()).collect();
    if !partition_by.is_empty() && options.single_file {
        return wrong("'sink.partition-by' makes directories, so it cannot go with 'sink.single-file'".to_string());
    }
    if !partition_by.is_empty() && format.changelog() {
        return wrong("changes of rows cannot be divided by 'sink.partition-by': those of a row must stay together".to_string());
    }
    let files = partition::without(schema, &partition_by).map_err(|e| e.at(raw.owner()))?;
    let (directory, single) = match options.single_file {
        false => (PathBuf::from(&options.path), None),
        true => match (Path::new(&options.path).parent(), Path::new(&options.path).file_name().and_then(|n| n.to_str())) {
            (Some(parent), Some(name)) if !options.path.ends_with('/') => {
                let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
                (parent.to_path_buf(), Some(name.to_string()))
            }
            _ => return wrong(format!("'{}' is no name of a file, which 'sink.single-file' needs", options.path)),
        },
    };
    let by_name = |_: &String| match format {
        FileFormat::Text(_) => Compression::from_path(&options.path),
        _ => Compression::None,
    };
    let compression = options.compression.or_else(|| single.as_ref().map(by_name)).unwrap_or(Compression::None);
    // Says now, not at the first row, that a column's type cannot be written.
    match &format {
        FileFormat::Text(text) => drop(text.encoder(&files).map_err(|e| ConnectError::from(e).at(raw.owner()))?),
        FileFormat::Parquet(parquet) => {
            drop(ParquetFileWriter::new(Box::new(std::io::sink()), &files, parquet).map_err(|e| ConnectError::from(e).at(raw.owner()))?);
        }
        FileFormat::Avro(avro) => {
            drop(AvroFileWriter::new(Box::new(std::io::sink()), &files, avro).map_err(|e| ConnectError::from(e).at(raw.owner()))?);
        }
        FileFormat::Arrow(arrow) => {
            let named = single.as_ref().map_or(Compression::None, Compression::from_path);
            if options.compression.unwrap_or(named) != Compression::None {
                let why = "of Arrow files the columns are compressed; use 'arrow.compression', and a name without such an extension";
                return wrong(why.to_string());
            }
            drop(ArrowFileWriter::new(Box::new(std::io::sink()), &files, arrow).map_err(|e| ConnectError::from(e).at(raw.owner()))?);
        }
        FileFormat::Orc(orc) => OrcFileWriter::check(&files, orc).map_err(|e| ConnectError::from(e).at(raw.owner()))?,
        FileFormat::Xlsx(xlsx) => XlsxFileWriter::check(&files, xlsx).map_err(|e| ConnectError::from(e).at(raw.owner()))?,
        FileFormat::Sas(sas) => drop(sas.encoder(&files).map_err(|e| e.at(raw.owner()))?),
    }
    Ok(FileSink {
        directory,
        prefix: options.part_prefix,
        format,
        compression,
        bucket,
        rolling: Rolling { bytes: options.rolling_file_size.0, interval: options.rollover_interval },
        single,
        unnamed: Default::default(),
        made: Default::default(),
        partition_by,
    })
}
