//! What the footer of a Parquet file says about how it is stored: row groups, columns, encodings, compression. No data
//! are read.

use std::path::Path;

use parquet::basic::Encoding;
use parquet::file::metadata::ColumnChunkMetaData;

use super::{footer, open};
use crate::FormatError;

/// How a file is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParquetShape {
    /// The program that wrote it.
    pub created_by: Option<String>,
    /// Its row groups.
    pub row_groups: Vec<ParquetGroup>,
    /// Its columns (those within ROW, ARRAY and MAP by their paths), over all row groups.
    pub columns: Vec<ParquetColumn>,
}

/// A row group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParquetGroup {
    /// Its rows.
    pub rows: u64,
    /// Its bytes in the file.
    pub bytes: u64,
    /// Its bytes before they were compressed.
    pub uncompressed_bytes: u64,
}

/// A column of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParquetColumn {
    /// Its path, with periods.
    pub name: String,
    /// How its pages are compressed: `snappy`, `zstd`, …, several if row groups differ.
    pub compression: Vec<String>,
    /// How its values are encoded: `plain`, `rle_dictionary`, …
    pub encodings: Vec<String>,
    /// Its bytes in the file.
    pub bytes: u64,
    /// Its bytes before they were compressed.
    pub uncompressed_bytes: u64,
    /// How many values are NULL, if the file says it.
    pub nulls: Option<u64>,
    /// Whether every row group knows its least and greatest value.
    pub statistics: bool,
    /// Whether every row group has a Bloom filter.
    pub bloom_filter: bool,
    /// Whether pages can be found without reading those before them.
    pub page_index: bool,
}

/// How a file is stored.
///
/// # Errors
/// The file cannot be read or is no Parquet file.
pub fn shape_of(path: &Path) -> Result<ParquetShape, FormatError> {
    let footer = footer(path, &open(path)?)?;
    let metadata = footer.metadata();
    let size = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
    let groups = metadata.row_groups();
    let row_groups = groups
        .iter()
        .map(|group| ParquetGroup {
            rows: size(group.num_rows()),
            bytes: size(group.compressed_size()),
            uncompressed_bytes: size(group.columns().iter().map(ColumnChunkMetaData::uncompressed_size).sum()),
        })
        .collect();
    let mut columns: Vec<ParquetColumn> = Vec::new();
    for group in groups {
        for (number, chunk) in group.columns().iter().enumerate() {
            if columns.len() == number {
                columns.push(ParquetColumn {
                    name: chunk.column_path().string(),
                    compression: Vec::new(),
                    encodings: Vec::new(),
                    bytes: 0,
                    uncompressed_bytes: 0,
                    nulls: Some(0),
                    statistics: true,
                    bloom_filter: true,
                    page_index: true,
                });
            }
            columns[number].add(chunk);
        }
    }
    Ok(ParquetShape { created_by: metadata.file_metadata().created_by().map(str::to_string), row_groups, columns })
}

impl ParquetColumn {
    /// Adds what a row group has of the column.
    fn add(&mut self, chunk: &ColumnChunkMetaData) {
        let insert = |names: &mut Vec<String>, name: String| {
            if !names.contains(&name) {
                names.push(name);
            }
        };
        insert(&mut self.compression, word(&format!("{:?}", chunk.compression())));
        // Levels say nothing about values; they are in every file with NULL in it.
        chunk.encodings().filter(|e| *e != Encoding::RLE).for_each(|e| insert(&mut self.encodings, word(&format!("{e:?}"))));
        self.bytes += u64::try_from(chunk.compressed_size()).unwrap_or(0);
        self.uncompressed_bytes += u64::try_from(chunk.uncompressed_size()).unwrap_or(0);
        let statistics = chunk.statistics();
        self.nulls = self.nulls.zip(statistics.and_then(|s| s.null_count_opt())).map(|(all, more)| all + more);
        self.statistics &= statistics.is_some_and(|s| s.min_bytes_opt().is_some());
        self.bloom_filter &= chunk.bloom_filter_offset().is_some();
        self.page_index &= chunk.column_index_offset().is_some();
    }
}

/// The name of a variant in small letters, without what it holds: `ZSTD(ZstdLevel(3))` is `zstd`.
fn word(debug: &str) -> String {
    debug.split('(').next().unwrap_or(debug).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{OptionSet, RawOptions};
    use crate::parquet::{ParquetFileWriter, ParquetOptions};
    use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    use arrow::datatypes::{DataType, Field, Schema};
    use std::sync::Arc;

    #[test]
    fn a_file_says_how_it_is_stored() {
        let path = std::env::temp_dir().join(format!("tidemill-shape-{}.parquet", std::process::id()));
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true), Field::new("s", DataType::Utf8, true)]));
        let pairs = [("parquet.row-group.rows", "2"), ("parquet.compression", "zstd")].map(|(k, v)| (k.to_string(), v.to_string()));
        let options = ParquetOptions::take(&mut RawOptions::new("t", pairs)).unwrap();
        let mut writer = ParquetFileWriter::new(Box::new(std::fs::File::create(&path).unwrap()), &schema, &options).unwrap();
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c"]));
        writer.write(&RecordBatch::try_new(schema, vec![numbers, texts]).unwrap()).unwrap();
        writer.finish().unwrap();
        let shape = shape_of(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(shape.row_groups.iter().map(|g| g.rows).collect::<Vec<_>>(), [2, 1]);
        let [n, s] = shape.columns.as_slice() else { panic!("two columns") };
        assert_eq!((n.name.as_str(), n.nulls, s.nulls, n.statistics), ("n", Some(1), Some(0), true));
        assert_eq!(n.compression, ["zstd"]);
        assert!(shape.created_by.unwrap().starts_with("tidemill"));
    }
}
