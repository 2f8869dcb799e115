//! Reading a table: whole, in parts that are read in parallel, or again and again from a growing column on.
//!
//! A scan goes on exactly where it was: with a primary key behind the last one handed over (rows are read in
//! its order), without one by the number of rows, which is right while nobody changes the table. Polling goes
//! on at the largest value so far. [`scan`] says what is asked for and where it stands, [`reader`] asks.

mod reader;
mod scan;

use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, Field, Int64Type, Schema};
use tidemill_block::value;
use tidemill_connect::{ConnectError, Reader, ReaderContext, Source, Split};

use self::reader::JdbcReader;
use self::scan::{Part, Scan};
#[cfg(feature = "cdc")]
pub(crate) use self::scan::{decode as decode_row, encode as encode_row};
use crate::driver::{DbError, Target};
use crate::options::ScanOptions;
use crate::session::{Access, Session};

/// The only split of a table that is not divided.
const WHOLE: &str = "table";

/// A table that is read. See the module.
pub struct JdbcSource {
    owner: String,
    access: Access,
    target: Target,
    options: ScanOptions,
    /// The column by which it is divided.
    partition: Option<usize>,
    /// The column that grows.
    poll: Option<usize>,
}

impl JdbcSource {
    /// A source for a table; `owner` is its name in messages.
    ///
    /// # Errors
    /// Options that name columns that are not there or cannot serve.
    pub fn new(owner: String, access: Access, target: Target, options: ScanOptions) -> Result<Self, ConnectError> {
        let column = |option: &str, name: &Option<String>, fits: fn(&DataType) -> bool, expected: &str| {
            let Some(name) = name else { return Ok(None) };
            let wrong = |why: String| ConnectError::new(format!("{owner}: option '{option}' = '{name}': {why}"));
            let index = target.schema.index_of(name).map_err(|_| wrong("the table has no such physical column".into()))?;
            let data_type = target.schema.field(index).data_type();
            if fits(data_type) { Ok(Some(index)) } else { Err(wrong(format!("expected {expected}, not {data_type}"))) }
        };
        let whole: fn(&DataType) -> bool = |t| {
            let whole = matches!(t, DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::Decimal128(_, 0));
            whole || matches!(t, DataType::Date32 | DataType::Timestamp(..))
        };
        let growing: fn(&DataType) -> bool = |t| !matches!(t, DataType::Boolean | DataType::Binary) && !t.is_nested();
        let partition =
            column("scan.partition.column", &options.partition_column, whole, "a column of whole numbers, dates or timestamps")?;
        let poll = column("scan.poll.column", &options.poll_column, growing, "a column whose values have an order")?;
        if let Some(field) = partition.map(|column| target.schema.field(column))
            && matches!(field.data_type(), DataType::Decimal128(..))
            && access.driver.dialect().column_type(field, false).is_ok_and(|t| t == "TEXT")
        {
            return Err(ConnectError::new(format!(
                "{owner}: option 'scan.partition.column' = '{}': numbers of so many digits are texts in {}, which have another order",
                field.name(),
                access.driver.name()
            )));
        }
        let source = JdbcSource { owner, access, target, options, partition, poll };
        source.bounds()?;
        Ok(source)
    }

    /// The bounds that the user gave, in the column's own units.
    fn bounds(&self) -> Result<(Option<i128>, Option<i128>), ConnectError> {
        let Some(column) = self.partition else { return Ok((None, None)) };
        let data_type = self.target.schema.field(column).data_type();
        let parse = |option: &str, text: &Option<String>| {
            let Some(text) = text else { return Ok(None) };
            let bound = match data_type {
                DataType::Date32 => value::parse_date(text.trim().as_bytes()).map(i128::from),
                DataType::Timestamp(unit, _) => value::parse_timestamp(text.trim().as_bytes(), *unit).map(i128::from),
                DataType::Int8 => text.trim().parse::<i8>().ok().map(i128::from),
                DataType::Int16 => text.trim().parse::<i16>().ok().map(i128::from),
                DataType::Int32 => text.trim().parse::<i32>().ok().map(i128::from),
                DataType::Decimal128(precision, _) => {
                    let fits = |n: &i128| n.unsigned_abs() < 10u128.pow((*precision).into());
                    text.trim().parse::<i128>().ok().filter(fits)
                }
                _ => text.trim().parse::<i64>().ok().map(i128::from),
            };
            let bound = bound.ok_or_else(|| {
                ConnectError::new(format!(
                    "{}: option '{option}' = '{text}': expected a value of the column's type, {data_type}",
                    self.owner
                ))
            });
            bound.map(Some)
        };
        let lower = parse("scan.partition.lower-bound", &self.options.lower_bound)?;
        let upper = parse("scan.partition.upper-bound", &self.options.upper_bound)?;
        if let (Some(lower), Some(upper)) = (lower, upper)
            && lower > upper
        {
            return Err(ConnectError::new(format!("{}: option 'scan.partition.lower-bound': it is above the upper bound", self.owner)));
        }
        Ok((lower, upper))
    }

    /// The same as [`JdbcSource::range`], asked on a thread of its own: batch mode asks for splits from within its
    /// runtime, where a driver cannot wait on one of its own.
    fn range_beside(&self, column: usize) -> Result<Option<(i128, i128)>, ConnectError> {
        let asked = std::thread::scope(|scope| scope.spawn(|| self.range(column)).join());
        Ok(asked.map_err(|_| ConnectError::new("internal error: asking for the bounds of the table panicked; its message is above"))??)
    }

    /// Smallest and largest value of a column in the database; `None` if it has none.
    fn range(&self, column: usize) -> Result<Option<(i128, i128)>, DbError> {
        let dialect = self.access.driver.dialect();
        let field = self.target.schema.field(column);
        let name = dialect.quote_column(field.name());
        let sql = format!("SELECT MIN({name}), MAX({name}) FROM {}", dialect.quote(&self.target.table));
        let of = |name: &str| Field::new(name, field.data_type().clone(), true);
        let schema = Arc::new(Schema::new(vec![of("min"), of("max")]));
        let mut session = Session::new(self.access.clone(), Arc::default());
        session.patiently(|connection| {
            let mut range = None;
            connection.query(&sql, None, &schema, 1, &mut |rows| {
                range = units(&rows, 0)?.zip(units(&rows, 1)?);
                Ok(())
            })?;
            Ok(range)
        })
    }
}

/// A value of the first row in the units of its column; `None` if it is NULL.
fn units(rows: &RecordBatch, column: usize) -> Result<Option<i128>, DbError> {
    let array = rows.column(column);
    if array.is_empty() || array.is_null(0) {
        return Ok(None);
    }
    if let Some(decimals) = array.as_primitive_opt::<Decimal128Type>() {
        return Ok(Some(decimals.value(0)));
    }
    // Dates have no way to 64 bits but over 32.
    let array = if array.data_type() == &DataType::Date32 { cast(array, &DataType::Int32)? } else { array.clone() };
    Ok(Some(cast(&array, &DataType::Int64)?.as_primitive::<Int64Type>().value(0).into()))
}

/// `lower ..= upper` in `count` parts of about the same width, the NULLs with the first if `nulls`.
fn divide(lower: i128, upper: i128, count: usize, nulls: bool) -> Vec<Part> {
    // From the smallest decimal number to the largest there are more than 127 bits.
    let width = if upper < lower { 1 } else { upper.abs_diff(lower) + 1 };
    let count = (count as u128).clamp(1, width);
    let edge = |i: u128| lower.wrapping_add_unsigned(width / count * i + width % count * i / count);
    let part = |i: u128| Part { lower: edge(i), upper: if i + 1 == count { upper } else { edge(i + 1) - 1 }, nulls: nulls && i == 0 };
    (0..count).map(part).collect()
}

impl Source for JdbcSource {
    fn bounded(&self) -> bool {
        self.poll.is_none()
    }

    fn splits(&self, parallelism: usize) -> Result<Vec<Split>, ConnectError> {
        let Some(column) = self.partition else { return Ok(vec![Split::new(WHOLE)]) };
        let count = self.options.partition_num.unwrap_or(parallelism);
        let (lower, upper) = self.bounds()?;
        // Rows without a value lie between no bounds; without bounds they belong to the table as any others.
        let nulls = lower.is_none() && upper.is_none();
        let (lower, upper) = match (lower, upper) {
            (Some(lower), Some(upper)) => (lower, upper),
            _ => match self.range_beside(column)? {
                Some((min, max)) => (lower.unwrap_or(min), upper.unwrap_or(max)),
                None => (0, -1),
            },
        };
        Ok(divide(lower, upper, count, nulls).into_iter().map(|part| Split::new(part.to_string())).collect())
    }

    fn open(&self, split: &Split, context: ReaderContext) -> Result<Box<dyn Reader>, ConnectError> {
        let part = match (split.id.as_str(), self.partition) {
            (WHOLE, _) => None,
            (id, Some(column)) => Some((column, Part::parse(id)?)),
            (id, None) => {
                return Err(ConnectError::new(format!(
                    "the checkpoint has the part '{id}' of this table, which is no longer divided; set 'scan.partition.column' \
                     again, or start without the checkpoint"
                )));
            }
        };
        let scan = Scan::new(&self.target, self.access.driver.dialect(), &context.request, part, self.poll);
        let cursor = scan.cursor(split.position.as_ref())?;
        let interval = self.poll.map(|_| self.options.poll_interval);
        Ok(Box::new(JdbcReader::start(scan, cursor, self.access.clone(), self.options.fetch_size, interval, context)?))
    }

    fn one_split(&self) -> bool {
        self.partition.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_divided() {
        #[track_caller]
        fn check(lower: i128, upper: i128, count: usize, expect: &str) {
            let parts: Vec<String> = divide(lower, upper, count, true).iter().map(Part::to_string).collect();
            assert_eq!(parts.join(" "), expect);
            parts.iter().for_each(|p| assert_eq!(Part::parse(p).unwrap().to_string(), *p));
        }
        check(0, 99, 1, "0..99+null");
        check(0, 9, 3, "0..2+null 3..5 6..9");
        check(1, 10, 4, "1..2+null 3..5 6..7 8..10");
        let most = 10i128.pow(38) - 1;
        check(-most, most, 2, &format!("-{most}..-1+null 0..{most}"));
        check(-5, -4, 4, "-5..-5+null -4..-4");
        check(0, -1, 4, "0..-1+null");
        check(i64::MIN.into(), i64::MAX.into(), 2, "-9223372036854775808..-1+null 0..9223372036854775807");
    }

    #[test]
    fn units_are_those_of_the_column() {
        let of = |array: arrow::array::ArrayRef| units(&RecordBatch::try_from_iter([("c", array)]).unwrap(), 0).unwrap();
        assert_eq!(of(Arc::new(arrow::array::Date32Array::from(vec![5]))), Some(5));
        assert_eq!(of(Arc::new(arrow::array::TimestampMicrosecondArray::from(vec![7]))), Some(7));
        assert_eq!(of(Arc::new(arrow::array::Int16Array::from(vec![None]))), None);
        let most = 10i128.pow(38) - 1;
        let decimals = arrow::array::Decimal128Array::from(vec![most]).with_precision_and_scale(38, 0).unwrap();
        assert_eq!(of(Arc::new(decimals)), Some(most));
    }
}
