//! The page index of a Parquet file: by it rows of a row group can be passed over in which nothing can be wanted. The pages of two columns
//! seldom begin at the same rows, so what is judged are runs of rows in which no page of a column that is asked for begins.

use std::ops::Range;

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{Field, Schema};
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::offset_index::PageLocation;

use super::extent::{Extent, Extents, leaf};

/// The largest index that is read to find out what need not be, bytes: that of all columns in all row groups lies in one piece.
const INDEX_BYTES_MAX: u64 = 4 << 20;

/// Whether a file of so many bytes has an index that may tell something of the columns `asked` in some row groups, and is no larger than
/// what is read of it.
pub(super) fn may_tell(metadata: &ArrowReaderMetadata, groups: &[usize], asked: &Schema, bytes: u64) -> bool {
    let all = metadata.metadata().row_groups();
    let has = |leaf: usize| groups.iter().any(|group| all[*group].column(leaf).column_index_offset().is_some());
    if !asked.fields().iter().filter(|field| tells(field)).filter_map(|field| leaf(metadata, field)).any(has) {
        return false;
    }
    // The reader takes all from the first to the last byte of any index, wherever the footer says that they lie.
    let part = |offset: Option<i64>, length: Option<i32>| Some((u64::try_from(offset?).ok()?, u64::try_from(length?).ok()?));
    let parts = all.iter().flat_map(|group| group.columns()).flat_map(|column: &ColumnChunkMetaData| {
        [part(column.column_index_offset(), column.column_index_length()), part(column.offset_index_offset(), column.offset_index_length())]
    });
    let (begin, end) = parts.flatten().fold((u64::MAX, 0), |(begin, end), (offset, length)| {
        // Offsets are below 2^63 and lengths below 2^31.
        (begin.min(offset), end.max(offset + length))
    });
    begin < end && end <= bytes && end - begin <= INDEX_BYTES_MAX
}

/// Whether least and greatest values of pages tell something of a column: see [`super::extent::extents`]. Nobody has looked at the bytes of
/// decimals.
fn tells(field: &Field) -> bool {
    let data_type = field.data_type();
    !data_type.is_floating() && !data_type.is_nested() && !data_type.is_decimal()
}

/// The runs of a row group, counted from its first row, and what is known of each; `None` where the index says nothing of use, or cannot be
/// right.
pub(super) fn runs(metadata: &ArrowReaderMetadata, group: usize, asked: &Schema) -> Option<(Vec<Range<u64>>, Extents<'static>)> {
    let rows = u64::try_from(metadata.metadata().row_group(group).num_rows()).ok()?;
    if !is_sound(metadata.metadata(), group, rows)? {
        return None;
    }
    let pages: Vec<Option<Pages>> = asked.fields().iter().map(|field| Pages::of(metadata, (group, rows), field)).collect();
    let mut begins: Vec<u64> = pages.iter().flatten().flat_map(|pages| pages.begins.iter().copied()).collect();
    begins.sort_unstable();
    begins.dedup();
    if begins.len() < 2 {
        return None;
    }
    let ends = begins[1..].iter().copied().chain([rows]);
    let runs: Vec<Range<u64>> = begins.iter().copied().zip(ends).map(|(begin, end)| begin..end).collect();
    let columns = pages.iter().map(|pages| pages.as_ref()?.of_runs(&runs)).collect();
    let lengths: Vec<u64> = runs.iter().map(|run| run.end - run.start).collect();
    Some((runs, Extents { rows: lengths.into(), columns, filters: None }))
}

/// Whether the pages of all columns of a row group follow each other in its rows, and lie where the footer says that the columns do: the
/// reader takes it for granted.
pub(super) fn is_sound(metadata: &ParquetMetaData, group: usize, rows: u64) -> Option<bool> {
    let offsets = metadata.offset_index()?.get(group)?;
    let columns = metadata.row_group(group).columns();
    let lies_in = |column: &ColumnChunkMetaData, page: &PageLocation| {
        // Checked to be in the file when the footer was read.
        let (begin, length) = column.byte_range();
        let (from, size) = (u64::try_from(page.offset), u64::try_from(page.compressed_page_size));
        matches!((from, size), (Ok(from), Ok(size)) if from >= begin && from + size <= begin + length)
    };
    // An index that has not all pages would have rows left out.
    let fills = |column: &ColumnChunkMetaData, index: &[PageLocation]| {
        let (begin, length) = column.byte_range();
        let end = |page: &PageLocation| page.offset + i64::from(page.compressed_page_size);
        index.windows(2).all(|pair| end(&pair[0]) == pair[1].offset) && index.last().is_some_and(|last| end(last) as u64 == begin + length)
    };
    let sound = |(column, index): (&ColumnChunkMetaData, &Vec<PageLocation>)| {
        begins(index, rows).is_some() && index.iter().all(|page| lies_in(column, page)) && fills(column, index)
    };
    Some(offsets.len() == columns.len() && columns.iter().zip(offsets.iter().map(|index| index.page_locations())).all(sound))
}

/// The first row of each page, if the first one begins with the row group and each has rows.
fn begins(pages: &[PageLocation], rows: u64) -> Option<Vec<u64>> {
    let begins: Vec<u64> = pages.iter().map(|page| u64::try_from(page.first_row_index).ok()).collect::<Option<_>>()?;
    let in_order = begins.first() == Some(&0) && begins.windows(2).all(|pair| pair[0] < pair[1]);
    (in_order && begins.last().is_some_and(|last| *last < rows)).then_some(begins)
}

/// The pages of a column in a row group.
struct Pages {
    /// The first row of each.
    begins: Vec<u64>,
    least: ArrayRef,
    greatest: ArrayRef,
    /// Of each whether all of its values are NULL, or none; if it is known that it is one or the other.
    null: Vec<Option<bool>>,
}

impl Pages {
    /// Of a column in a row group of so many rows.
    fn of(metadata: &ArrowReaderMetadata, (group, rows): (usize, u64), field: &Field) -> Option<Self> {
        let number = leaf(metadata, field).filter(|_| tells(field))?;
        let all = metadata.metadata();
        let (columns, offsets, chunk) = (all.column_index()?, all.offset_index()?, all.row_group(group).column(number));
        // Old programs compared texts by signed bytes.
        if chunk.statistics().is_some_and(super::is_of_old) {
            return None;
        }
        let begins = begins(offsets.get(group)?.get(number)?.page_locations(), rows)?;
        let index = columns.get(group)?.get(number)?;
        if matches!(index, ColumnIndexMetaData::NONE) || index.num_pages() != begins.len() as u64 {
            return None;
        }
        let groups = [group];
        let converter = StatisticsConverter::try_new(field.name(), metadata.schema(), metadata.parquet_schema()).ok()?;
        let least = converter.data_page_mins(columns, offsets, &groups).ok()?;
        let greatest = converter.data_page_maxes(columns, offsets, &groups).ok()?;
        if [&least, &greatest].iter().any(|values| values.len() != begins.len() || values.data_type() != field.data_type()) {
            return None;
        }
        let null = |page: usize| match index.is_null_page(page) {
            true => Some(true),
            false => (index.null_count(page)? == 0).then_some(false),
        };
        Some(Pages { null: (0..begins.len()).map(null).collect(), begins, least, greatest })
    }

    /// What is known of runs, each of which lies in one of the pages.
    fn of_runs(&self, runs: &[Range<u64>]) -> Option<Extent> {
        let page = |run: &Range<u64>| self.begins.partition_point(|begin| *begin <= run.start) - 1;
        let pages = UInt32Array::from_iter_values(runs.iter().map(|run| page(run) as u32));
        let nulls = runs.iter().map(|run| self.null[page(run)].map(|all| if all { run.end - run.start } else { 0 }));
        Some(Extent {
            least: take(&self.least, &pages, None).ok()?,
            greatest: take(&self.greatest, &pages, None).ok()?,
            nulls: nulls.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::path::PathBuf;
    use std::sync::Arc;

    use arrow::array::{AsArray, Int64Array, RecordBatch, StringArray};
    use arrow::datatypes::{DataType, Int64Type, SchemaRef};
    use parquet::arrow::ArrowWriter;
    use parquet::file::properties::WriterProperties;

    use super::*;
    use crate::parquet::{ParquetFileReader, Pick};

    /// A file of 200 rows (n, s, m) in row groups of 100: n counts, in pages of 10 rows; s is a text of it, NULL in the rows 20 to 39 and
    /// in every third of the others below 100; m is the same everywhere. Removed at the end of the test.
    struct Temp(PathBuf, SchemaRef);

    impl Temp {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("tidemill-pages-{name}-{}.parquet", std::process::id()));
            let fields = [("n", DataType::Int64), ("s", DataType::Utf8), ("m", DataType::Int64)];
            let schema = Arc::new(Schema::new(fields.map(|(name, data_type)| Field::new(name, data_type, true)).to_vec()));
            let properties = WriterProperties::builder()
                .set_max_row_group_row_count(Some(100))
                .set_data_page_row_count_limit(10)
                .set_write_batch_size(5)
                .build();
            let mut writer = ArrowWriter::try_new(File::create(&path).unwrap(), schema.clone(), Some(properties)).unwrap();
            let null = |n: i64| n < 100 && ((20..40).contains(&n) || n % 3 == 0);
            let texts: Vec<Option<String>> = (0..200).map(|n| (!null(n)).then(|| format!("s{n:03}"))).collect();
            let columns: Vec<ArrayRef> = vec![
                Arc::new(Int64Array::from_iter_values(0..200)),
                Arc::new(StringArray::from(texts)),
                Arc::new(Int64Array::from(vec![7; 200])),
            ];
            writer.write(&RecordBatch::try_new(schema.clone(), columns).unwrap()).unwrap();
            writer.close().unwrap();
            Temp(path, schema)
        }

        /// The numbers that are read of some rows, and how often was asked.
        fn read(&self, part: Range<u64>, pick: Pick<'_>) -> (Vec<i64>, usize) {
            let asked = std::cell::Cell::new(0);
            let counted = |known: &Extents<'_>| {
                asked.set(asked.get() + 1);
                pick(known)
            };
            let (file, schema) = (File::open(&self.0).unwrap(), &self.1);
            let mut reader = ParquetFileReader::of_rows(&self.0, file, (schema, &[0, 1, 2]), part, Some((schema, &counted)), 64).unwrap();
            let mut numbers = Vec::new();
            while let Some(batch) = reader.next().unwrap() {
                let n = batch.column(0).as_primitive::<Int64Type>();
                for (row, n) in n.values().iter().enumerate() {
                    let s = batch.column(1).as_string::<i32>();
                    assert!(s.is_null(row) || s.value(row) == format!("s{n:03}"), "row {n} came with another's text");
                }
                numbers.extend_from_slice(n.values());
            }
            (numbers, asked.get())
        }
    }

    impl Drop for Temp {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    /// Takes what may have an `n` in a range.
    fn n_within(range: Range<i64>) -> impl Fn(&Extents<'_>) -> Option<Vec<bool>> {
        move |known: &Extents<'_>| {
            let n = known.columns[0].as_ref().expect("known of n");
            let (least, greatest) = (n.least.as_primitive::<Int64Type>(), n.greatest.as_primitive::<Int64Type>());
            let may = |(least, greatest): (&i64, &i64)| *greatest >= range.start && *least < range.end;
            Some(least.values().iter().zip(greatest.values().iter()).map(may).collect::<Vec<bool>>())
        }
    }

    #[test]
    fn pages_without_what_is_wanted_are_passed_over() {
        let temp = Temp::new("pick");
        // Row groups first, then those that are left, one by one.
        assert_eq!(temp.read(0..u64::MAX, &n_within(43..44)), ((40..50).collect(), 2));
        assert_eq!(temp.read(0..u64::MAX, &n_within(95..105)), ((90..110).collect(), 3));
        assert_eq!(temp.read(0..u64::MAX, &n_within(500..501)), (vec![], 1));
        assert_eq!(temp.read(0..u64::MAX, &n_within(0..500)), ((0..200).collect(), 3));
        // Of a part of the file only what lies in it.
        assert_eq!(temp.read(44..147, &n_within(43..44)), ((44..50).collect(), 2));
        assert_eq!(temp.read(44..147, &n_within(30..40)), (vec![], 2));
        assert_eq!(temp.read(93..101, &n_within(95..105)), ((93..101).collect(), 3));
        // Who cannot tell gets all, as one who says something of another number of runs.
        assert_eq!(temp.read(5..150, &|_| None), ((5..150).collect(), 3));
        assert_eq!(temp.read(5..150, &|_| Some(vec![false])).0, (5..150).collect::<Vec<_>>());
        // Gaps.
        let even = |known: &Extents<'_>| (known.rows.len() > 2).then(|| (0..known.rows.len()).map(|run| run % 2 == 0).collect::<Vec<_>>());
        let expect: Vec<i64> = (0..200).filter(|n| n / 10 % 2 == 0).collect();
        assert_eq!(temp.read(0..200, &even).0, expect);
    }

    #[test]
    fn what_is_known_of_runs() {
        let temp = Temp::new("known");
        let known = |known: &Extents<'_>| {
            if known.rows.len() == 2 {
                return Some(vec![true, false]);
            }
            let (n, s) = (known.columns[0].as_ref().expect("known of n"), known.columns[1].as_ref().expect("known of s"));
            assert_eq!(known.rows.values()[..], [10; 10]);
            assert!(known.columns[2].is_some() && known.filters.is_none());
            let (least, greatest) = (n.least.as_primitive::<Int64Type>(), n.greatest.as_primitive::<Int64Type>());
            assert_eq!((least.value(3), greatest.value(3), n.nulls.value(3)), (30, 39, 0));
            let (least, greatest) = (s.least.as_string::<i32>(), s.greatest.as_string::<i32>());
            assert_eq!((least.value(0), greatest.value(0), s.nulls.is_null(0)), ("s001", "s008", true));
            // Nothing but NULL.
            assert_eq!((least.is_null(3), greatest.is_null(3), s.nulls.value(3)), (true, true, 10));
            None
        };
        assert_eq!(temp.read(0..200, &known).0, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn locations_that_cannot_be_right() {
        let page = |first_row_index| PageLocation { offset: 0, compressed_page_size: 1, first_row_index };
        let check = |rows: &[i64], expect: Option<&[u64]>| {
            assert_eq!(begins(&rows.iter().map(|row| page(*row)).collect::<Vec<_>>(), 10).as_deref(), expect, "{rows:?}");
        };
        check(&[0, 3, 9], Some(&[0, 3, 9]));
        for wrong in [&[][..], &[1, 3], &[0, 3, 3], &[0, 5, 3], &[0, 10], &[0, -1], &[-1]] {
            check(wrong, None);
        }
    }
}
