//! Writes a workbook of one sheet. Rows go to a temporary file while they come, and with the rest into the workbook at the
//! end, so that memory does not grow with them.

use std::io::Write;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int64Type, SchemaRef, Time32MillisecondType, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use rust_xlsxwriter::{Format, Workbook, Worksheet, XlsxError};
use tidemill_block::value::{self, DAY_MS};

use super::cell::serial;
use super::{SHEET_ROWS, XlsxOptions, cell_name, check};
use crate::FormatError;

/// Up to here, on either side of zero, cells hold every whole number.
const EXACT_MAX: i64 = 1 << 53;
/// So many digits of a decimal number a cell holds exactly.
const DIGITS_MAX: u32 = 15;
/// UTF-16 units of a text that a cell holds.
const TEXT_MAX: usize = 32_767;
/// About what a cell is in the file, bytes; what is known of its length before the end.
const CELL_BYTES: u64 = 8;

/// Writes one file.
pub struct XlsxFileWriter {
    out: Box<dyn Write + Send>,
    book: Workbook,
    schema: SchemaRef,
    /// The next row of the sheet.
    row: usize,
    cells: u64,
}

impl XlsxFileWriter {
    /// Says whether columns can be written, without writing any.
    ///
    /// # Errors
    /// A column type that cells do not hold; a name that is none for a sheet.
    pub fn check(schema: &SchemaRef, options: &XlsxOptions) -> Result<(), FormatError> {
        check(schema)?;
        if let Some(name) = &options.sheet {
            let named = Worksheet::new().set_name(name).map(drop);
            named.map_err(|e| FormatError::option(format!("option 'xlsx.sheet' = '{name}': {e}")))?;
        }
        Ok(())
    }

    /// A writer of rows of `schema` to `out`.
    ///
    /// # Errors
    /// As [`XlsxFileWriter::check`]; there is no room for a temporary file.
    pub fn new(out: Box<dyn Write + Send>, schema: &SchemaRef, options: &XlsxOptions) -> Result<Self, FormatError> {
        XlsxFileWriter::check(schema, options)?;
        let mut book = Workbook::new();
        let sheet = book.add_worksheet_with_constant_memory().map_err(writing)?;
        if let Some(name) = &options.sheet {
            sheet.set_name(name).map_err(writing)?;
        }
        for (column, field) in schema.fields().iter().enumerate() {
            let shown = match field.data_type() {
                DataType::Date32 => "yyyy-mm-dd",
                DataType::Time32(_) => "hh:mm:ss.000",
                DataType::Timestamp(TimeUnit::Second, _) => "yyyy-mm-dd hh:mm:ss",
                DataType::Timestamp(..) => "yyyy-mm-dd hh:mm:ss.000",
                _ => continue,
            };
            sheet.set_column_format(column as u16, &Format::new().set_num_format(shown)).map_err(writing)?;
        }
        let mut writer = XlsxFileWriter { out, book, schema: schema.clone(), row: 0, cells: 0 };
        if options.header {
            for (column, field) in schema.fields().iter().enumerate() {
                let sheet = writer.book.worksheet_from_index(0).map_err(writing)?;
                sheet.write_string(0, column as u16, field.name()).map_err(writing)?;
            }
            writer.row = 1;
        }
        Ok(writer)
    }

    /// How many rows there is room for.
    pub fn room(&self) -> usize {
        SHEET_ROWS - self.row
    }

    /// About how many bytes were written, which shows only at the end.
    pub fn bytes(&self) -> u64 {
        self.cells * CELL_BYTES
    }

    /// Appends the rows of a batch, not more than there is room for.
    ///
    /// # Errors
    /// A value that a cell does not hold; writing failed.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), FormatError> {
        assert!(batch.num_rows() <= self.room(), "the caller looks at the room");
        let columns = batch.columns().iter().map(column_of).collect::<Result<Vec<_>, _>>()?;
        let sheet = self.book.worksheet_from_index(0).map_err(writing)?;
        // Row by row: what is written of a row cannot be touched any more when the next has begun.
        for row in 0..batch.num_rows() {
            let at = (self.row + row) as u32;
            for (number, column) in columns.iter().enumerate() {
                column.write(sheet, at, number as u16, row).map_err(|why| {
                    let name = self.schema.field(number).name();
                    FormatError::data(format!("writing XLSX: column '{name}', cell {}: {why}", cell_name(at, number as u32)))
                })?;
            }
        }
        self.row += batch.num_rows();
        self.cells += (batch.num_rows() * batch.num_columns()) as u64;
        Ok(())
    }

    /// Puts the workbook together. Without it there is none.
    ///
    /// # Errors
    /// Writing failed.
    pub fn finish(mut self) -> Result<(), FormatError> {
        self.book.save_to_writer(&mut self.out).map_err(writing)?;
        self.out.flush()?;
        Ok(())
    }
}

/// A column of a batch, its type looked up once.
enum Column {
    Boolean(arrow::array::BooleanArray),
    Whole(arrow::array::Int64Array),
    Float(arrow::array::Float32Array),
    Double(arrow::array::Float64Array),
    Decimal(arrow::array::Decimal128Array, i8),
    Text(arrow::array::StringArray),
    Date(arrow::array::Date32Array),
    Time(arrow::array::Time32MillisecondArray),
    /// Units of a second's part, and how many make a second.
    Moment(arrow::array::Int64Array, TimeUnit),
}

fn column_of(column: &arrow::array::ArrayRef) -> Result<Column, FormatError> {
    Ok(match column.data_type() {
        DataType::Boolean => Column::Boolean(column.as_boolean().clone()),
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
            Column::Whole(cast(column, &DataType::Int64)?.as_primitive::<Int64Type>().clone())
        }
        DataType::Float32 => Column::Float(column.as_primitive::<Float32Type>().clone()),
        DataType::Float64 => Column::Double(column.as_primitive::<Float64Type>().clone()),
        DataType::Decimal128(_, scale) => Column::Decimal(column.as_primitive::<Decimal128Type>().clone(), *scale),
        DataType::Utf8 => Column::Text(column.as_string::<i32>().clone()),
        DataType::Date32 => Column::Date(column.as_primitive::<Date32Type>().clone()),
        DataType::Time32(TimeUnit::Millisecond) => Column::Time(column.as_primitive::<Time32MillisecondType>().clone()),
        DataType::Timestamp(unit, _) => {
            let units = match unit {
                TimeUnit::Second => column.as_primitive::<TimestampSecondType>().reinterpret_cast::<Int64Type>(),
                TimeUnit::Millisecond => column.as_primitive::<TimestampMillisecondType>().reinterpret_cast::<Int64Type>(),
                TimeUnit::Microsecond => column.as_primitive::<TimestampMicrosecondType>().reinterpret_cast::<Int64Type>(),
                TimeUnit::Nanosecond => column.as_primitive::<TimestampNanosecondType>().reinterpret_cast::<Int64Type>(),
            };
            Column::Moment(units, *unit)
        }
        other => return Err(FormatError::unsupported(format!("cells of XLSX hold no {}", crate::types::type_name(other)))),
    })
}

impl Column {
    /// Writes the value of a row into a cell; nothing if it is NULL.
    fn write(&self, sheet: &mut Worksheet, at: u32, column: u16, row: usize) -> Result<(), String> {
        let said = |e: XlsxError| e.to_string();
        let number = match self {
            Column::Boolean(array) if array.is_valid(row) => {
                return sheet.write_boolean(at, column, array.value(row)).map(drop).map_err(said);
            }
            Column::Text(array) if array.is_valid(row) => {
                let text = array.value(row);
                if text.len() > TEXT_MAX && text.encode_utf16().count() > TEXT_MAX {
                    return Err(format!("a text of {} characters is longer than the {TEXT_MAX} that a cell holds", text.chars().count()));
                }
                return sheet.write_string(at, column, text).map(drop).map_err(said);
            }
            Column::Whole(array) if array.is_valid(row) => match array.value(row) {
                v if v.unsigned_abs() <= EXACT_MAX as u64 => v as f64,
                v => return Err(format!("a cell does not hold {v} exactly; write CAST(… AS STRING)")),
            },
            Column::Float(array) if array.is_valid(row) => finite(short(array.value(row)))?,
            Column::Double(array) if array.is_valid(row) => finite(array.value(row))?,
            Column::Decimal(array, scale) if array.is_valid(row) => decimal(array.value(row), *scale)?,
            Column::Date(array) if array.is_valid(row) => day(i64::from(array.value(row)) * DAY_MS)?,
            Column::Time(array) if array.is_valid(row) => f64::from(array.value(row)) / DAY_MS as f64,
            Column::Moment(array, unit) if array.is_valid(row) => day(milliseconds(array.value(row), *unit)?)?,
            _ => return Ok(()),
        };
        sheet.write_number(at, column, number).map(drop).map_err(said)
    }
}

fn finite(v: f64) -> Result<f64, String> {
    if v.is_finite() { Ok(v) } else { Err(format!("cells hold no {v}; write NULL or a text instead")) }
}

/// The double that looks as the float does: 0.1 and not 0.10000000149.
fn short(v: f32) -> f64 {
    let mut text = Vec::with_capacity(24);
    value::write_f32(&mut text, v);
    fast_float2::parse(&text).unwrap_or(f64::from(v))
}

fn decimal(v: i128, scale: i8) -> Result<f64, String> {
    let mut text = Vec::with_capacity(40);
    value::write_decimal(&mut text, v, scale);
    if v.unsigned_abs() < 10u128.pow(DIGITS_MAX)
        && let Ok(number) = fast_float2::parse(&text)
    {
        return Ok(number);
    }
    Err(format!("a cell holds {DIGITS_MAX} digits exactly, and {} has more; write CAST(… AS STRING)", String::from_utf8_lossy(&text)))
}

fn milliseconds(v: i64, unit: TimeUnit) -> Result<i64, String> {
    let units = value::units_per_second(unit);
    if units <= 1000 {
        return v.checked_mul(1000 / units).ok_or_else(|| format!("cells hold no moment as far away as {v} seconds"));
    }
    match v % (units / 1000) {
        0 => Ok(v / (units / 1000)),
        _ => {
            let mut text = Vec::with_capacity(32);
            value::write_timestamp(&mut text, v, unit, 0);
            let text = String::from_utf8_lossy(&text).into_owned();
            Err(format!("cells hold milliseconds, and {text} has more digits; write CAST(… AS TIMESTAMP(3))"))
        }
    }
}

/// The number of a moment, milliseconds since 1970.
fn day(ms: i64) -> Result<f64, String> {
    serial(ms).ok_or_else(|| {
        let mut text = Vec::with_capacity(32);
        value::write_timestamp(&mut text, ms, TimeUnit::Millisecond, 0);
        let text = String::from_utf8_lossy(&text).into_owned();
        format!("cells hold days from 1900 to 9999, not {text}; write CAST(… AS STRING)")
    })
}

fn writing(e: XlsxError) -> FormatError {
    match e {
        XlsxError::IoError(e) => FormatError::Io(e),
        other => FormatError::data(format!("writing XLSX: {other}")),
    }
}
