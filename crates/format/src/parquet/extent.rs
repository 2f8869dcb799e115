//! What a Parquet file says of the values in its row groups, so that those in which nothing can be wanted need not be read.

use std::fmt;

use arrow::array::{Array, ArrayRef, UInt64Array};
use arrow::datatypes::{Field, Schema};
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::file::metadata::RowGroupMetaData;

/// What is known of some row groups.
#[derive(Clone, Debug)]
pub struct Extents<'a> {
    /// The rows of each.
    pub rows: UInt64Array,
    /// For each column that was asked for, in that order, what is known of it, if anything is.
    pub columns: Vec<Option<Extent>>,
    /// What tells of single values, if anything does.
    pub filters: Option<&'a dyn Filters>,
}

/// Tells of single values whether they are in row groups. To be asked late: an answer may have to be read.
pub trait Filters: fmt::Debug {
    /// For each row group whether it certainly has none of the values in the column that was asked for by this number, whose type they
    /// have; `None` if that cannot be told of any.
    fn lack(&self, column: usize, values: &dyn Array) -> Option<Vec<bool>>;
}

/// The number of a column among those that hold values, if the file has it in just this type.
pub(super) fn leaf(metadata: &ArrowReaderMetadata, asked: &Field) -> Option<usize> {
    metadata.schema().field_with_name(asked.name()).ok().filter(|held| held.data_type() == asked.data_type())?;
    StatisticsConverter::try_new(asked.name(), metadata.schema(), metadata.parquet_schema()).ok()?.parquet_column_index()
}

/// What is known of a column: an element for each row group, NULL where it is not known.
#[derive(Clone, Debug)]
pub struct Extent {
    /// No value is less, of the column's type.
    pub least: ArrayRef,
    /// No value is greater.
    pub greatest: ArrayRef,
    /// How many values are NULL.
    pub nulls: UInt64Array,
}

/// What a file says of the columns `asked` in the row groups of these numbers, and `filters` of those.
pub(super) fn extents<'a>(
    metadata: &ArrowReaderMetadata,
    groups: &[usize],
    asked: &Schema,
    filters: Option<&'a dyn Filters>,
) -> Extents<'a> {
    let all = metadata.metadata().row_groups();
    let groups: Vec<&RowGroupMetaData> = groups.iter().map(|group| &all[*group]).collect();
    let columns = asked.fields().iter().map(|field| {
        let (name, wanted) = (field.name(), field.data_type());
        let held = metadata.schema().field_with_name(name).ok()?;
        // Of another type the order may be another. NaN stands in no statistics, though it is greater than all other numbers.
        if held.data_type() != wanted || wanted.is_floating() || wanted.is_nested() {
            return None;
        }
        let converter = StatisticsConverter::try_new(name, metadata.schema(), metadata.parquet_schema()).ok()?;
        let converter = converter.with_missing_null_counts_as_zero(false);
        let number = converter.parquet_column_index()?;
        // Old programs compared texts by signed bytes.
        if groups.iter().any(|group| group.column(number).statistics().is_some_and(super::is_of_old)) {
            return None;
        }
        // The library asserts that bytes of a decimal are some, and not more than it has; nobody has looked at these.
        let bounds = groups.iter().filter_map(|group| group.column(number).statistics());
        let mut bounds = bounds.flat_map(|known| [known.min_bytes_opt(), known.max_bytes_opt()]).flatten();
        if wanted.is_decimal() && !bounds.all(|bytes| (1..=16).contains(&bytes.len())) {
            return None;
        }
        Some(Extent {
            least: converter.row_group_mins(groups.iter().copied()).ok()?,
            greatest: converter.row_group_maxes(groups.iter().copied()).ok()?,
            nulls: converter.row_group_null_counts(groups.iter().copied()).ok()?,
        })
    });
    let columns = columns.collect();
    Extents { rows: groups.iter().map(|group| group.num_rows().max(0) as u64).collect::<Vec<_>>().into(), columns, filters }
}
