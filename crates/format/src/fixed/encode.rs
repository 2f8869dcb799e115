//! Blocks to fixed-width text: numbers and dates to the right of their fields, texts to the left.

use arrow::array::Array;
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, SchemaRef};
use tidemill_block::Block;

use super::decode::unsupported;
use super::layout::{Layout, Place};
use super::{FixedOptions, Trim};
use crate::csv::{Cell, CsvEncoder, Header, shown};
use crate::types::type_name;
use crate::{Encoder, FormatError};

/// Writes rows as lines in which every column has its place. Values have the text forms that CSV gives them.
pub struct FixedEncoder {
    /// In the order of their places.
    columns: Vec<Column>,
    cells: CsvEncoder,
    null: Vec<u8>,
    /// The header line; empty if there is none.
    header: Vec<u8>,
}

struct Column {
    /// Which column of a block it is.
    at: usize,
    name: String,
    place: Place,
    right: bool,
    /// Which blanks are left out in reading, and what is then NULL, as [`Trim::told`] gives it.
    trim: Trim,
    null: Vec<u8>,
}

impl Column {
    /// Whether a value's text would be read as NULL. Blank ones are, where nothing else stands for NULL.
    #[inline]
    fn misread(&self, text: &[u8]) -> bool {
        !self.null.is_empty() && self.trim.told(text) == self.null
    }
}

/// What writes a column of a block: where its NULLs are, and its values.
type Writer<'a> = (&'a Column, Option<&'a NullBuffer>, Cell<'a>);

impl FixedEncoder {
    /// An encoder for rows of `schema`.
    ///
    /// # Errors
    /// A column type that text cannot express; places that overlap; a name or the text for NULL that does not fit.
    pub fn new(options: &FixedOptions, schema: &SchemaRef) -> Result<Self, FormatError> {
        let cells = CsvEncoder::plain(schema).map_err(|at| {
            let field = schema.field(at);
            unsupported(field.name(), &type_name(field.data_type()))
        })?;
        let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        let layout = Layout::of(&options.widths, &names)?;
        let null = options.null_literal.clone().unwrap_or_default().into_bytes();
        let column = |(at, place): (usize, &Place)| {
            let field = schema.field(at);
            let right = !matches!(field.data_type(), DataType::Utf8 | DataType::Binary | DataType::Boolean);
            let trim = if *field.data_type() == DataType::Utf8 { options.trim } else { Trim::Both };
            Column { at, name: field.name().clone(), place: *place, right, trim, null: trim.told(&null).to_vec() }
        };
        let mut columns: Vec<Column> = layout.places.iter().enumerate().map(column).collect();
        columns.sort_by_key(|column| column.place.start);
        if let Some(pair) = columns.windows(2).find(|pair| pair[1].place.start < pair[0].place.end) {
            return Err(FormatError::option(format!(
                "'fixed.widths' = '{}': the columns '{}' and '{}' overlap, so they cannot both be written",
                options.widths, pair[0].name, pair[1].name
            )));
        }
        let mut encoder = FixedEncoder { columns, cells, null, header: Vec::new() };
        if let Some(column) = encoder.columns.iter().find(|column| !fits(column.place, &encoder.null)) {
            let width = column.place.width();
            return Err(FormatError::option(format!(
                "'fixed.null-literal' does not fit into column '{}' of {width} characters",
                column.name
            )));
        }
        if options.header != Header::No {
            encoder.header = encoder.header_line()?;
        }
        Ok(encoder)
    }

    fn header_line(&self) -> Result<Vec<u8>, FormatError> {
        let mut line = Vec::new();
        let mut behind = 0;
        for column in &self.columns {
            if !fits(column.place, column.name.as_bytes()) {
                return Err(FormatError::option(format!(
                    "the name of column '{}' does not fit into its {} characters; leave 'fixed.header' out, or widen it in 'fixed.widths'",
                    column.name,
                    column.place.width()
                )));
            }
            blanks(column.place.start - behind, &mut line);
            let from = line.len();
            line.extend_from_slice(column.name.as_bytes());
            pad(column, from, &mut line);
            behind = column.place.end;
        }
        line.push(b'\n');
        Ok(line)
    }

    /// Why what was written from `from` on cannot stand in a column.
    #[cold]
    fn misfit(&self, column: &Column, text: &[u8]) -> FormatError {
        let (name, width) = (&column.name, column.place.width());
        let why = if memchr::memchr2(b'\n', b'\r', text).is_some() {
            "has a line end, which fixed-width text cannot hold".to_string()
        } else if column.misread(text) {
            "is the text that stands for NULL; choose another 'fixed.null-literal'".to_string()
        } else {
            format!("has {} characters, its place {width}; widen it in 'fixed.widths'", characters(text))
        };
        FormatError::data(format!("column '{name}': '{}' {why}", shown(text)))
    }

    fn row(&self, row: usize, writers: &mut [Writer<'_>], out: &mut Vec<u8>) -> Result<(), FormatError> {
        let (begin, mut behind) = (out.len(), 0);
        for (column, nulls, cell) in writers {
            blanks(column.place.start - behind, out);
            behind = column.place.end;
            let from = out.len();
            if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                out.extend_from_slice(&self.null);
            } else {
                cell(row, out);
                let text = &out[from..];
                // Numbers have no line ends.
                let cut = !column.right && memchr::memchr2(b'\n', b'\r', text).is_some();
                if cut || column.misread(text) || !fits(column.place, text) {
                    return Err(self.misfit(column, text));
                }
            }
            pad(column, from, out);
        }
        if out.len() == begin {
            return Err(self.nothing());
        }
        out.push(b'\n');
        Ok(())
    }

    /// Why a row of one column, the rest of the line, cannot be written without a letter in it.
    #[cold]
    fn nothing(&self) -> FormatError {
        let name = self.columns.first().map_or("", |column| column.name.as_str());
        let why = "makes an empty line, which is passed over in reading; give the column a width in 'fixed.widths'";
        FormatError::data(format!("column '{name}': a value of no characters {why}"))
    }
}

/// The number of characters of a text in UTF-8.
#[inline]
fn characters(text: &[u8]) -> usize {
    // All bytes but those that continue a character.
    if text.is_ascii() { text.len() } else { text.iter().filter(|byte| **byte & 0xC0 != 0x80).count() }
}

#[inline]
fn fits(place: Place, text: &[u8]) -> bool {
    // No text has more characters than bytes.
    place.is_rest() || text.len() <= place.width() || characters(text) <= place.width()
}

#[inline]
fn blanks(count: usize, out: &mut Vec<u8>) {
    out.resize(out.len() + count, b' ');
}

/// Fills the column whose text stands in `out` from `from` on; the text fits.
#[inline]
fn pad(column: &Column, from: usize, out: &mut Vec<u8>) {
    if column.place.is_rest() {
        return;
    }
    let end = out.len();
    let missing = column.place.width() - characters(&out[from..]);
    blanks(missing, out);
    if column.right && missing > 0 {
        out.copy_within(from..end, from + missing);
        out[from..from + missing].fill(b' ');
    }
}

impl Encoder for FixedEncoder {
    fn begin(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.header);
    }

    fn encode(&mut self, block: &Block, out: &mut Vec<u8>) -> Result<(), FormatError> {
        let columns = self.columns.iter().map(|column| {
            let array = block.batch.column(column.at);
            (column, array.nulls().filter(|nulls| nulls.null_count() > 0), self.cells.cell(array.as_ref()))
        });
        let mut writers: Vec<Writer<'_>> = columns.collect();
        for row in 0..block.rows() {
            self.row(row, &mut writers, out)?;
        }
        Ok(())
    }
}
