//! Bloom filters of a Parquet file: by them row groups that certainly have none of the values wanted need not be read, though their
//! least and greatest values leave it open. A filter is read when it is asked for; one that cannot be read tells nothing.

use std::fmt;
use std::ops::Range;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Date32Type, Int8Type, Int16Type, Int32Type, Int64Type, Schema};
use bytes::Bytes;
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::basic::Type;
use parquet::bloom_filter::Sbbf;
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{ChunkReader, Length};

use super::extent::{Filters, leaf};
use super::{PARTS_GAP_MAX, ParquetInput};

/// The largest filter that is read, bytes: that of some seven million different values by which one in a hundred others seems to be
/// there. To read a larger one costs as much as to read the columns of a row group.
const FILTER_BYTES_MAX: usize = 8 << 20;
/// Filters of so many bytes, with what comes between them, are asked for at once, and in memory.
const TOGETHER_BYTES_MAX: u64 = 32 << 20;

/// The filters of some row groups.
pub(super) struct Blooms<'a, R> {
    pub input: &'a R,
    pub metadata: &'a ArrowReaderMetadata,
    /// The numbers of the row groups.
    pub groups: &'a [usize],
    /// The columns that are asked for.
    pub asked: &'a Schema,
}

impl<R: ParquetInput> Blooms<'_, R> {
    /// Whether there are any filters.
    pub fn any(&self) -> bool {
        let all = self.metadata.metadata().row_groups();
        let mut leaves = self.asked.fields().iter().filter_map(|field| leaf(self.metadata, field));
        leaves.any(|leaf| self.groups.iter().any(|group| all[*group].column(leaf).bloom_filter_offset().is_some()))
    }

    /// Where the filter of a column in a row group lies, if there is one that can be read and the footer says how long it is.
    fn part(&self, column: &ColumnChunkMetaData) -> Option<Range<u64>> {
        let offset = u64::try_from(column.bloom_filter_offset()?).ok()?;
        // The footer may lie.
        let length = usize::try_from(column.bloom_filter_length()?).ok().filter(|length| *length <= FILTER_BYTES_MAX)?;
        let end = offset.checked_add(length as u64).filter(|end| *end <= self.input.len())?;
        Some(offset..end)
    }

    /// The filters of a column in some row groups, which lie in `parts`, as far as there are any that can be read.
    fn read(&self, columns: &[&ColumnChunkMetaData], parts: &[Option<Range<u64>>]) -> Vec<Option<Sbbf>> {
        let asked: Vec<Range<u64>> = parts.iter().flatten().cloned().collect();
        let mut read = self.input.read_parts(&asked).unwrap_or_default().into_iter();
        let filter = |(column, part): (&&ColumnChunkMetaData, &Option<Range<u64>>)| {
            let filter = match part {
                Some(_) => Sbbf::from_bytes(&read.next()?).ok()?,
                None if column.bloom_filter_length().is_some() || column.bloom_filter_offset()? < 0 => return None,
                // Older programs do not say how long it is; its head does.
                None => Sbbf::read_from_column_chunk(column, &Bounded(self.input)).ok()??,
            };
            // The library takes its blocks for granted.
            (filter.num_blocks() > 0).then_some(filter)
        };
        columns.iter().zip(parts).map(filter).collect()
    }
}

/// What gives no more bytes at once than a filter may have: its head may lie, too.
struct Bounded<'a, R>(&'a R);

impl<R: Length> Length for Bounded<'_, R> {
    fn len(&self) -> u64 {
        self.0.len()
    }
}

impl<R: ChunkReader> ChunkReader for Bounded<'_, R> {
    type T = R::T;

    fn get_read(&self, start: u64) -> Result<R::T, ParquetError> {
        self.0.get_read(start)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        if length > FILTER_BYTES_MAX || start.checked_add(length as u64).is_none_or(|end| end > self.0.len()) {
            return Err(ParquetError::General("a filter is too large, or lies outside of the file".into()));
        }
        self.0.get_bytes(start, length)
    }
}

impl<R: ParquetInput> Filters for Blooms<'_, R> {
    fn lack(&self, column: usize, values: &dyn Array) -> Option<Vec<bool>> {
        let field = self.asked.fields().get(column).filter(|field| field.data_type() == values.data_type())?;
        let leaf = leaf(self.metadata, field)?;
        let values = plain(values, self.metadata.parquet_schema().column(leaf).physical_type())?;
        let all = self.metadata.metadata().row_groups();
        let columns: Vec<&ColumnChunkMetaData> = self.groups.iter().map(|group| all[*group].column(leaf)).collect();
        let parts: Vec<Option<Range<u64>>> = columns.iter().map(|column| self.part(column)).collect();
        let mut lacks = Vec::with_capacity(columns.len());
        while lacks.len() < columns.len() {
            let begin = lacks.len();
            let end = begin + together(&parts[begin..]);
            let lack = |filter: Option<Sbbf>| filter.is_some_and(|filter| !values.iter().any(|value| filter.check(value)));
            lacks.extend(self.read(&columns[begin..end], &parts[begin..end]).into_iter().map(lack));
        }
        Some(lacks)
    }
}

impl<R> fmt::Debug for Blooms<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bloom filters of the row groups {:?}", self.groups)
    }
}

/// How many of some parts are asked for at once, the first of them. One is never too large.
fn together(parts: &[Option<Range<u64>>]) -> usize {
    let (mut bytes, mut last) = (0, None::<u64>);
    let fits = |part: &&Option<Range<u64>>| {
        if let Some(Range { start, end }) = part {
            let between = last.and_then(|last| start.checked_sub(last)).filter(|between| *between <= PARTS_GAP_MAX);
            bytes += end - start + between.unwrap_or(0);
            last = Some(*end);
        }
        bytes <= TOGETHER_BYTES_MAX
    };
    parts.iter().take_while(fits).count().max(1)
}

/// The bytes that a file holds of values and that its filters are made of; `None` where there is more than one way to hold them, and for
/// NULL, which no filter has.
fn plain(values: &dyn Array, physical: Type) -> Option<Vec<Vec<u8>>> {
    if values.null_count() > 0 {
        return None;
    }
    let int = |n: i32| n.to_le_bytes().to_vec();
    Some(match (values.data_type(), physical) {
        (DataType::Int8, Type::INT32) => values.as_primitive::<Int8Type>().values().iter().map(|n| int((*n).into())).collect(),
        (DataType::Int16, Type::INT32) => values.as_primitive::<Int16Type>().values().iter().map(|n| int((*n).into())).collect(),
        (DataType::Int32, Type::INT32) => values.as_primitive::<Int32Type>().values().iter().map(|n| int(*n)).collect(),
        (DataType::Date32, Type::INT32) => values.as_primitive::<Date32Type>().values().iter().map(|n| int(*n)).collect(),
        (DataType::Int64, Type::INT64) => values.as_primitive::<Int64Type>().values().iter().map(|n| n.to_le_bytes().to_vec()).collect(),
        (DataType::Utf8, Type::BYTE_ARRAY) => values.as_string::<i32>().iter().flatten().map(|text| text.as_bytes().to_vec()).collect(),
        (DataType::Binary, Type::BYTE_ARRAY) => values.as_binary::<i32>().iter().flatten().map(<[u8]>::to_vec).collect(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes between filters that lie near each other was not counted: of a thousand small ones it was most of what was in memory.
    #[test]
    fn what_comes_together_has_a_limit() {
        let (size, count): (u64, u64) = (1 << 10, 2_000);
        let check = |gap: u64, expect: usize| {
            let parts: Vec<_> = (0..count).map(|n| n * (size + gap)).map(|at| Some(at..at + size)).collect();
            assert_eq!(together(&parts), expect, "{gap} bytes between them");
        };
        check(0, 2_000);
        // Thirty-two MB are 512 of 64 KB; before the first there is no gap.
        check(PARTS_GAP_MAX - size, 512);
        check(PARTS_GAP_MAX + 1, 2_000);
        let large = Some(0..TOGETHER_BYTES_MAX + 1);
        assert_eq!([together(&[large.clone(), None]), together(&[None, large, None]), together(&[None, None])], [1, 1, 2]);
    }
}
