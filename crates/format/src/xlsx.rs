//! XLSX, the workbooks of Excel: options, and what both ways share. `read` reads one sheet (cells become values in `cell`),
//! `infer` says what its columns are, `write` writes one; they rest on the crates `calamine` and `rust_xlsxwriter`. In
//! builds without the feature `xlsx`, `absent` stands in for them and refuses every workbook.
//!
//! A sheet is read from front to back; the workbook's table of texts, which cells refer to, is held in memory meanwhile.

#[cfg(not(feature = "xlsx"))]
mod absent;
#[cfg(feature = "xlsx")]
mod cell;
#[cfg(feature = "xlsx")]
mod infer;
#[cfg(feature = "xlsx")]
mod read;
#[cfg(all(test, feature = "xlsx"))]
mod tests;
#[cfg(feature = "xlsx")]
mod write;

use std::io::{Read, Seek};

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Schema, TimeUnit};

#[cfg(not(feature = "xlsx"))]
pub use absent::{XlsxFileWriter, infer, read};
#[cfg(feature = "xlsx")]
pub use infer::infer;
#[cfg(feature = "xlsx")]
pub use read::read;
#[cfg(feature = "xlsx")]
pub use write::XlsxFileWriter;

use crate::options::ByteSize;
use crate::types::type_name;
use crate::{BadRecord, FormatError, options};

options! {
    /// Options of the `xlsx` format.
    pub struct XlsxOptions {
        /// The sheet that is read, the first one by default; the name of the one that is written, `Sheet1` by default.
        ours "xlsx.sheet" => sheet: Option<String>;
        /// Whether the first row that has anything in it has the names of columns, by which they are found. Otherwise the
        /// table's columns are those of the sheet from A on.
        ours "xlsx.header" => header: bool = true;
        /// The most that the texts of a workbook may take up, unpacked: they are held in memory while it is read. A workbook with
        /// more is refused.
        ours "xlsx.texts-size-max" => texts_size_max: ByteSize = ByteSize(512 << 20);
    }
}

/// Rows that a sheet has, the header included.
pub const SHEET_ROWS: usize = 1_048_576;
/// Columns that a sheet has.
pub const SHEET_COLUMNS: usize = 16_384;

/// The bytes of a workbook.
pub trait XlsxInput: Read + Seek + Send {}

impl<T: Read + Seek + Send> XlsxInput for T {}

/// Rows of a sheet, one after the other.
#[derive(Debug)]
pub struct XlsxRows {
    /// The good ones, of the declared types.
    pub batch: RecordBatch,
    /// The bad ones, numbered as all rows of the sheet are, from 0; and the cell that is wrong, such as `B7`.
    pub bad: Vec<(BadRecord, String)>,
}

/// Whether columns of these types can stand in a workbook.
///
/// # Errors
/// One that cannot, or too many.
pub fn check(schema: &Schema) -> Result<(), FormatError> {
    use DataType::*;
    if schema.fields().len() > SHEET_COLUMNS {
        let why = format!("{} columns are more than the {SHEET_COLUMNS} that a sheet of XLSX has", schema.fields().len());
        return Err(FormatError::unsupported(why));
    }
    for field in schema.fields() {
        match field.data_type() {
            Boolean | Int8 | Int16 | Int32 | Int64 | Float32 | Float64 | Decimal128(..) | Utf8 | Date32 => {}
            Time32(TimeUnit::Millisecond) | Timestamp(..) => {}
            other => {
                return Err(FormatError::unsupported(format!(
                    "column '{}': cells of XLSX hold no {}; they hold numbers, texts, booleans, dates and times",
                    field.name(),
                    type_name(other)
                )));
            }
        }
    }
    Ok(())
}

/// The name of a cell, such as `B7`; both numbers count from 0.
pub fn cell_name(row: u32, column: u32) -> String {
    let (mut letters, mut rest) = (Vec::new(), column + 1);
    while rest > 0 {
        letters.push(b'A' + ((rest - 1) % 26) as u8);
        rest = (rest - 1) / 26;
    }
    let mut name: String = letters.iter().rev().map(|letter| char::from(*letter)).collect();
    name += &(u64::from(row) + 1).to_string();
    name
}
