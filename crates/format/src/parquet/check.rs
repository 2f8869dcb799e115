//! Holds what the footer of a Parquet file says against the length of the file. The reader goes where the footer sends it and
//! takes the memory that the footer asks for, so one that lies is refused before anything else is read. For some of what it
//! counts the library takes memory before it looks whether it is there; that is seen in the bytes, by [`super::thrift`].

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::file::reader::{ChunkReader, Length};

use super::thrift::pages_fit;

/// The bytes of a file, of which every piece is looked at before the library gets it; `check` knows where it begins.
pub(super) struct Checked<'a, R, F> {
    pub input: &'a R,
    pub check: F,
}

impl<R: Length, F> Length for Checked<'_, R, F> {
    fn len(&self) -> u64 {
        self.input.len()
    }
}

impl<R: ChunkReader, F: Fn(u64, &[u8]) -> Result<(), String> + Send + Sync> ChunkReader for Checked<'_, R, F> {
    type T = R::T;

    fn get_read(&self, start: u64) -> Result<R::T, ParquetError> {
        self.input.get_read(start)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let bytes = self.input.get_bytes(start, length)?;
        (self.check)(start, &bytes).map_err(ParquetError::General)?;
        Ok(bytes)
    }
}

/// Looks whether the page indexes in `bytes`, a piece of the file that begins at `start`, are no more than that together, and each
/// has no more pages than it can.
///
/// # Errors
/// What is wrong, in a few words.
pub(super) fn check_indexes(metadata: &ParquetMetaData, start: u64, bytes: &[u8]) -> Result<(), String> {
    let part = |offset: Option<i64>, length: Option<i32>| -> Option<&[u8]> {
        let begin = usize::try_from(u64::try_from(offset?).ok()?.checked_sub(start)?).ok()?;
        bytes.get(begin..begin.checked_add(usize::try_from(length?).ok()?)?)
    };
    let mut together: u64 = 0;
    for column in metadata.row_groups().iter().flat_map(RowGroupMetaData::columns) {
        let values = part(column.column_index_offset(), column.column_index_length()).unwrap_or_default();
        let pages = part(column.offset_index_offset(), column.offset_index_length()).unwrap_or_default();
        if !pages_fit(pages) {
            return Err(format!("the index of column '{}' says that it has more pages than it can", column.column_path().string()));
        }
        together += (values.len() + pages.len()) as u64;
    }
    // One that many columns share would be decoded for each of them.
    if together > bytes.len() as u64 { Err("page indexes overlap".to_string()) } else { Ok(()) }
}

/// Looks whether a footer fits a file of so many bytes.
///
/// # Errors
/// What does not fit, in a few words.
pub(super) fn check(metadata: &ParquetMetaData, bytes: u64) -> Result<(), String> {
    let mut rows: i64 = 0;
    for (number, group) in metadata.row_groups().iter().enumerate() {
        let wrong = |what: String| format!("row group {number}: {what}");
        let known = metadata.file_metadata().schema_descr().num_columns();
        if group.columns().len() != known {
            return Err(wrong(format!("it has {} columns, but the file {known}", group.columns().len())));
        }
        rows = Some(group.num_rows())
            .filter(|more| *more >= 0)
            .and_then(|more| rows.checked_add(more))
            .ok_or_else(|| wrong(format!("it cannot have {} rows", group.num_rows())))?;
        for column in group.columns() {
            check_column(group, column, bytes).map_err(|what| wrong(format!("column '{}': {what}", column.column_path().string())))?;
        }
    }
    let said = metadata.file_metadata().num_rows();
    if said == rows { Ok(()) } else { Err(format!("it says {said} rows, and {rows} of its row groups")) }
}

fn check_column(group: &RowGroupMetaData, column: &ColumnChunkMetaData, bytes: u64) -> Result<(), String> {
    let (rows, values) = (group.num_rows(), column.num_values());
    // Every row has a value, even if that is NULL; in ARRAY and MAP it may have more.
    if values < rows || (values > rows && column.column_descr().max_rep_level() == 0) {
        return Err(format!("it has {values} values in {rows} rows"));
    }
    let (begin, data) = (column.dictionary_page_offset().unwrap_or(column.data_page_offset()), column.data_page_offset());
    let (size, unpacked) = (column.compressed_size(), column.uncompressed_size());
    let fits = |from: i64| u64::try_from(from).is_ok_and(|from| from <= bytes);
    let end = begin.checked_add(size);
    if size < 0 || unpacked < 0 || !fits(begin) || !fits(data) || !end.is_some_and(fits) {
        return Err(format!("it has {size} bytes from byte {begin} on, but the file has {bytes}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::sync::Arc;

    use arrow::array::{AsArray, Int64Array, RecordBatch};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
    use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
    use parquet::file::metadata::{ColumnChunkMetaDataBuilder, ParquetMetaData, ParquetMetaDataWriter, RowGroupMetaDataBuilder};

    use super::check_indexes;
    use crate::options::{OptionSet, RawOptions};
    use crate::parquet::thrift::check_footer;
    use crate::parquet::{ParquetFileReader, ParquetFileWriter, ParquetOptions, schema_of, shape_of};

    /// A file of 20 rows in two row groups; removed at the end of the test.
    struct Temp(PathBuf, SchemaRef);

    impl Temp {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("tidemill-{name}-{}.parquet", std::process::id()));
            let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
            let pairs = [("parquet.row-group.rows".to_string(), "10".to_string())];
            let options = ParquetOptions::take(&mut RawOptions::new("t", pairs)).unwrap();
            let mut writer = ParquetFileWriter::new(Box::new(fs::File::create(&path).unwrap()), &schema, &options).unwrap();
            let numbers = Int64Array::from_iter_values(0..20);
            writer.write(&RecordBatch::try_new(schema.clone(), vec![Arc::new(numbers)]).unwrap()).unwrap();
            writer.finish().unwrap();
            Temp(path, schema)
        }

        /// All that it says when it is read: how many rows, or why not.
        fn read(&self) -> Result<usize, String> {
            let mut reader = ParquetFileReader::open(&self.0, &self.1, &[0], 0, 100).map_err(|e| e.to_string())?;
            let mut rows = 0;
            while let Some(batch) = reader.next().map_err(|e| e.to_string())? {
                rows += batch.num_rows();
            }
            Ok(rows)
        }

        /// Writes another footer behind the same data: the second row group and its column are changed.
        fn lie(
            &self,
            whole: &[u8],
            group: impl Fn(RowGroupMetaDataBuilder) -> RowGroupMetaDataBuilder,
            column: impl Fn(ColumnChunkMetaDataBuilder) -> ColumnChunkMetaDataBuilder,
        ) {
            fs::write(&self.0, whole).unwrap();
            let footer = ArrowReaderMetadata::load(&fs::File::open(&self.0).unwrap(), ArrowReaderOptions::new()).unwrap();
            let mut groups = footer.metadata().row_groups().to_vec();
            let changed = column(groups[1].column(0).clone().into_builder()).build().unwrap();
            groups[1] = group(groups[1].clone().into_builder().set_column_metadata(vec![changed])).build().unwrap();
            let metadata = ParquetMetaData::clone(footer.metadata()).into_builder().set_row_groups(groups).build();
            let length = u32::from_le_bytes(whole[whole.len() - 8..whole.len() - 4].try_into().unwrap()) as usize;
            let mut bytes = whole[..whole.len() - 8 - length].to_vec();
            ParquetMetaDataWriter::new(&mut bytes, &metadata).finish().unwrap();
            fs::write(&self.0, bytes).unwrap();
        }
    }

    impl Drop for Temp {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    /// The reader asserts that no offset is negative, so a footer could end the process's thread; others sent it out of the file.
    #[test]
    fn footers_that_lie_are_refused() {
        let temp = Temp::new("lying");
        assert_eq!(temp.read(), Ok(20));
        let whole = fs::read(&temp.0).unwrap();
        // The truth, written anew.
        temp.lie(&whole, |group| group, |column| column);
        assert_eq!(temp.read(), Ok(20));
        let check = |expect: &str| {
            for said in [temp.read().unwrap_err(), schema_of(&temp.0).unwrap_err().to_string(), shape_of(&temp.0).unwrap_err().to_string()]
            {
                assert!(said.contains("its footer does not fit it") && said.contains(expect), "{said}, not {expect}");
            }
        };
        temp.lie(&whole, |group| group, |column| column.set_dictionary_page_offset(None).set_data_page_offset(-5));
        check("row group 1: column 'n'");
        temp.lie(&whole, |group| group, |column| column.set_dictionary_page_offset(Some(1 << 40)));
        check("bytes from byte 1099511627776 on, but the file has");
        temp.lie(&whole, |group| group, |column| column.set_total_compressed_size(i64::MAX));
        check("it has 9223372036854775807 bytes from byte");
        temp.lie(&whole, |group| group, |column| column.set_total_compressed_size(-1));
        check("it has -1 bytes from byte");
        temp.lie(&whole, |group| group.set_num_rows(1 << 50), |column| column);
        check("it has 10 values in 1125899906842624 rows");
        temp.lie(&whole, |group| group.set_num_rows(9), |column| column);
        check("it has 10 values in 9 rows");
        temp.lie(&whole, |group| group.set_num_rows(-10), |column| column.set_num_values(-10));
        check("row group 1: it cannot have -10 rows");
    }

    /// The library took memory for all row groups that a footer speaks of, which ended the process.
    #[test]
    fn a_footer_of_more_row_groups_than_there_can_be() {
        let temp = Temp::new("groups");
        // A version, the root of a schema, no rows, and row groups.
        let footer = [&[0x15, 2, 0x19, 0x1c, 0x48, 1, b's', 0x15, 0, 0, 0x16, 0, 0x19, 0xfc][..], &[0xff, 0xff, 0xff, 0xff, 7, 0]].concat();
        let bytes = [&b"PAR1"[..], &footer, &(footer.len() as u32).to_le_bytes(), b"PAR1"].concat();
        fs::write(&temp.0, bytes).unwrap();
        let said = temp.read().unwrap_err();
        assert!(said.contains("cannot read its footer") && said.contains("2147483647 row groups"), "{said}");
        assert_eq!(check_footer(&footer[..footer.len() - 4]), Err("it is damaged".to_string()));
    }

    /// As above, for the pages that an offset index speaks of. Without the index the rows are found as well.
    #[test]
    fn an_index_of_more_pages_than_it_can_have() {
        let temp = Temp::new("pages-lie");
        let mut bytes = fs::read(&temp.0).unwrap();
        let footer = ArrowReaderMetadata::load(&fs::File::open(&temp.0).unwrap(), ArrowReaderOptions::new()).unwrap();
        let metadata = footer.metadata();
        assert_eq!(check_indexes(metadata, 0, &bytes), Ok(()));
        let begin = metadata.row_group(1).column(0).offset_index_offset().unwrap() as usize;
        assert_eq!(bytes[begin..begin + 2], [0x19, 0x1c], "one page");
        bytes[begin + 1..begin + 7].copy_from_slice(&[0xfc, 0xff, 0xff, 0xff, 0xff, 7]);
        assert!(check_indexes(metadata, 0, &bytes).unwrap_err().contains("more pages than it can"));
        fs::write(&temp.0, &bytes).unwrap();
        let file = fs::File::open(&temp.0).unwrap();
        let mut reader = ParquetFileReader::of_rows(&temp.0, file, (&temp.1, &[0]), 12..15, None, 100).unwrap();
        let batch = reader.next().unwrap().unwrap();
        assert_eq!(batch.column(0).as_primitive::<Int64Type>().values()[..], [12, 13, 14]);
    }

    #[test]
    fn files_that_were_cut_are_refused() {
        let temp = Temp::new("cut");
        let whole = fs::read(&temp.0).unwrap();
        for length in [0, 3, 4, 7, 8, 11, whole.len() / 2, whole.len() - 1] {
            fs::write(&temp.0, &whole[..length]).unwrap();
            let said = temp.read().unwrap_err();
            assert!(said.contains("cannot read its footer"), "{length} bytes: {said}");
        }
        // The footer's length is more than the file's.
        let mut long = whole.clone();
        let at = long.len() - 8;
        long[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        fs::write(&temp.0, &long).unwrap();
        assert!(temp.read().unwrap_err().contains("cannot read its footer"));
    }
}
