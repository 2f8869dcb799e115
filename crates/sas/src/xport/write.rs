//! Makes XPORT files, of version 5 or 8.
//!
//! Rows are put together column by column in a buffer of blanks. A number is written in eight bytes, which hold every
//! double exactly that is not too large or too small; one that is, is an error. Text takes up the same length in
//! every row, which must be known before the first: it is an option.

use std::collections::{BTreeMap, HashMap, HashSet};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Date32Type, Float64Type, Int64Type, Schema, TimeUnit};

use super::{HEADER, HEADER_MARK, RECORD, ibm};
use crate::kind::{EPOCH_DAYS, EPOCH_SECONDS};
use crate::{Charset, SasError};

/// Whole numbers beyond this are not all doubles, and SAS has nothing else.
const WHOLE_MAX: u64 = 1 << 53;
/// The longest label in a column's description, bytes; longer ones stand behind.
const LABEL_BYTES: usize = 40;
/// The longest label in version 8, bytes.
const LONG_LABEL_BYTES: usize = 256;

/// Versions of the format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XportVersion {
    /// Names of up to 8 letters, text of up to 200 bytes. What the FDA takes.
    #[default]
    V5,
    /// Names of up to 32 letters, text of up to 32,767 bytes.
    V8,
}

impl XportVersion {
    fn name_max(self) -> usize {
        if self == XportVersion::V5 { 8 } else { 32 }
    }

    fn text_max(self) -> usize {
        if self == XportVersion::V5 { 200 } else { 32_767 }
    }
}

/// How a file is written.
#[derive(Clone, Debug)]
pub struct XportOptions {
    /// The version of the format.
    pub version: XportVersion,
    /// The name of the data set.
    pub member: String,
    /// Its label, up to 40 bytes; may be empty.
    pub label: String,
    /// Bytes that a text takes up in every row, unless it is said for the column.
    pub text_bytes: usize,
    /// The same for single columns, by name.
    pub text_bytes_of: BTreeMap<String, usize>,
    /// The character set of texts.
    pub charset: Charset,
}

impl Default for XportOptions {
    fn default() -> Self {
        XportOptions {
            version: XportVersion::V5,
            member: "DATA".to_string(),
            label: String::new(),
            text_bytes: 200,
            text_bytes_of: BTreeMap::new(),
            charset: Charset::Guess,
        }
    }
}

/// How a column's values become numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Text,
    Whole,
    Float,
    Date,
    Time,
    DateTime(TimeUnit),
}

/// A column as it is written.
struct Written {
    /// As the table has it, for messages.
    column: String,
    name: String,
    /// A name of up to eight letters that no other column has.
    short: String,
    label: String,
    form: Form,
    offset: usize,
    length: usize,
}

/// Makes one file after the other: [`XportEncoder::begin`], rows, [`XportEncoder::end`].
pub struct XportEncoder {
    options: XportOptions,
    columns: Vec<Written>,
    row_bytes: usize,
    /// Bytes of rows in the file so far.
    written: u64,
}

impl XportEncoder {
    /// An encoder of rows of `schema`. A field's metadata `label` becomes the column's label.
    ///
    /// # Errors
    /// A name or type of a column that XPORT cannot have, an option out of range.
    pub fn new(schema: &Schema, options: XportOptions) -> Result<Self, SasError> {
        let version = options.version;
        check_name(&options.member, version)
            .map_err(|why| SasError::unsupported(format!("the name of the data set, '{}', {why}", options.member)))?;
        if options.label.len() > LABEL_BYTES {
            return Err(SasError::unsupported(format!("the label of the data set has more than {LABEL_BYTES} bytes: '{}'", options.label)));
        }
        for (name, bytes) in options.text_bytes_of.iter().map(|(n, b)| (n.as_str(), *b)).chain([("", options.text_bytes)]) {
            if !(1..=version.text_max()).contains(&bytes) {
                let of = if name.is_empty() { String::new() } else { format!(" of column '{name}'") };
                let (max, v5) = (version.text_max(), version == XportVersion::V5);
                let hint = if v5 { "; version 8 of the format has longer ones" } else { "" };
                return Err(SasError::unsupported(format!("the length of texts{of} is {bytes}, not 1 to {max} bytes{hint}")));
            }
            if !name.is_empty() && schema.index_of(name).is_err() {
                return Err(SasError::unsupported(format!("a length of texts is given for a column '{name}', which there is not")));
            }
        }
        let mut columns: Vec<Written> = Vec::with_capacity(schema.fields().len());
        let (mut names, mut shorts) = (HashMap::new(), HashSet::new());
        let mut row_bytes = 0;
        for field in schema.fields() {
            check_name(field.name(), version)
                .map_err(|why| SasError::unsupported(format!("column '{}' {why}; give it another name with AS", field.name())))?;
            // Names are of no case; version 5 has them in capitals.
            let name = if version == XportVersion::V5 { field.name().to_ascii_uppercase() } else { field.name().clone() };
            if let Some(other) = names.insert(name.to_ascii_uppercase(), field.name()) {
                return Err(SasError::unsupported(format!(
                    "columns '{other}' and '{}' have the same name in SAS, where capitals and small letters are the same",
                    field.name()
                )));
            }
            let mut short = name[..name.len().min(8)].to_ascii_uppercase();
            if !shorts.insert(short.clone()) {
                short = format!("{}{:05}", &short[..3], columns.len() + 1);
                shorts.insert(short.clone());
            }
            let form = form(field.data_type()).ok_or_else(|| {
                SasError::unsupported(format!(
                    "column '{}' is of a type that XPORT cannot hold ({}); it has numbers, dates, times and text",
                    field.name(),
                    field.data_type()
                ))
            })?;
            let length = match form {
                Form::Text => options.text_bytes_of.get(field.name()).copied().unwrap_or(options.text_bytes),
                _ => 8,
            };
            let label = field.metadata().get("label").cloned().unwrap_or_default();
            let label_max = if version == XportVersion::V5 { LABEL_BYTES } else { LONG_LABEL_BYTES };
            if label.len() > label_max {
                return Err(SasError::unsupported(format!("the label of column '{}' has more than {label_max} bytes", field.name())));
            }
            columns.push(Written { column: field.name().clone(), name, short, label, form, offset: row_bytes, length });
            row_bytes += length;
        }
        let columns_max = if version == XportVersion::V5 { 9_999 } else { 99_999 };
        if columns.is_empty() || columns.len() > columns_max {
            return Err(SasError::unsupported(format!("there are {} columns; XPORT has 1 to {columns_max}", columns.len())));
        }
        Ok(XportEncoder { options, columns, row_bytes, written: 0 })
    }

    /// Begins a file that is dated `now_s`, in seconds since 1970, UTC.
    pub fn begin(&mut self, now_s: i64, out: &mut Vec<u8>) {
        self.written = 0;
        let v8 = self.options.version == XportVersion::V8;
        let now = date(now_s);
        let name = |v5: &'static str, of_v8: &'static str| if v8 { of_v8 } else { v5 };
        header(out, name("LIBRARY", "LIBV8"), "000000000000000000000000000000");
        record(out, &format!("{:8}{:8}{:8}{:8}{:8}{:24}{now}", "SAS", "SAS", "SASLIB", name("6.06", "9.4"), "TIDEMILL", ""));
        record(out, &now);
        header(out, name("MEMBER", "MEMBV8"), "000000000000000001600000000140");
        header(out, name("DSCRPTR", "DSCPTV8"), "000000000000000000000000000000");
        let member = &self.options.member;
        if v8 {
            record(out, &format!("{:8}{member:32}{:8}{:8}{:8}{now}", "SAS", "SASDATA", "9.4", "TIDEMILL"));
        } else {
            let member = member.to_ascii_uppercase();
            record(out, &format!("{:8}{member:8}{:8}{:8}{:8}{:24}{now}", "SAS", "SASDATA", "6.06", "TIDEMILL", ""));
        }
        let from = out.len();
        record(out, &format!("{now}{:16}", ""));
        put(&mut out[from + 32..from + 72], self.options.label.as_bytes());
        header(out, name("NAMESTR", "NAMSTV8"), &format!("{:06}{:04}{:020}", self.columns.len() / 10_000, self.columns.len() % 10_000, 0));
        let from = out.len();
        for (index, column) in self.columns.iter().enumerate() {
            self.namestr(index, column, out);
        }
        fill_record(out, from);
        self.long_labels(out);
        header(out, name("OBS", "OBSV8"), "000000000000000000000000000000");
    }

    /// The description of a column.
    fn namestr(&self, index: usize, column: &Written, out: &mut Vec<u8>) {
        let from = out.len();
        out.resize(from + 140, 0);
        let to = &mut out[from..];
        two(to, 0, if column.form == Form::Text { 2 } else { 1 });
        two(to, 4, column.length);
        two(to, 6, index + 1);
        put(&mut to[8..16], column.short.as_bytes());
        put(&mut to[16..56], &column.label.as_bytes()[..cut(&column.label, LABEL_BYTES)]);
        let (format, width, decimals) = match column.form {
            Form::Text | Form::Whole | Form::Float => ("", 0, 0),
            Form::Date => ("DATE", 9, 0),
            Form::Time => ("TIME", 12, 3),
            Form::DateTime(_) => ("DATETIME", 26, 6),
        };
        put(&mut to[56..64], format.as_bytes());
        two(to, 64, width);
        two(to, 66, decimals);
        put(&mut to[72..80], b"");
        to[84..88].copy_from_slice(&(column.offset as u32).to_be_bytes());
        if self.options.version == XportVersion::V8 {
            put(&mut to[88..120], column.name.as_bytes());
            two(to, 120, column.label.len());
        }
    }

    /// Labels that a description has no room for.
    fn long_labels(&self, out: &mut Vec<u8>) {
        let long = || self.columns.iter().enumerate().filter(|(_, c)| c.label.len() > LABEL_BYTES);
        let count = long().count();
        if count == 0 {
            return;
        }
        header(out, "LABELV8", &format!("{count:05}"));
        let from = out.len();
        for (index, column) in long() {
            for number in [index + 1, column.name.len(), column.label.len()] {
                out.extend_from_slice(&(number as u16).to_be_bytes());
            }
            out.extend_from_slice(column.name.as_bytes());
            out.extend_from_slice(column.label.as_bytes());
        }
        fill_record(out, from);
    }

    /// Appends the rows of a batch of the schema.
    ///
    /// # Errors
    /// A number too large or too small, a text too long or with letters that the character set lacks. Nothing was
    /// appended then.
    pub fn rows(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), SasError> {
        assert_eq!(batch.num_columns(), self.columns.len(), "a batch of the encoder's schema");
        let from = out.len();
        out.resize(from + batch.num_rows() * self.row_bytes, b' ');
        for (column, array) in self.columns.iter().zip(batch.columns()) {
            let mut cells = Cells { rows: &mut out[from..], row_bytes: self.row_bytes, offset: column.offset, length: column.length };
            if let Err(e) = column.write(array, self.options.charset, &mut cells) {
                out.truncate(from);
                return Err(e);
            }
        }
        self.written += (out.len() - from) as u64;
        Ok(())
    }

    /// Ends the file: blanks to the end of the record.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        let over = (self.written % RECORD as u64) as usize;
        if over > 0 {
            out.resize(out.len() + RECORD - over, b' ');
        }
        self.written = 0;
    }
}

/// The cells of a column in rows that are being put together.
struct Cells<'a> {
    rows: &'a mut [u8],
    row_bytes: usize,
    offset: usize,
    length: usize,
}

impl Cells<'_> {
    #[inline]
    fn cell(&mut self, row: usize) -> &mut [u8] {
        let at = row * self.row_bytes + self.offset;
        &mut self.rows[at..at + self.length]
    }

    /// Writes a number for every row of `array`, the missing one where it is null.
    fn numbers(&mut self, array: &dyn Array, number: impl Fn(usize) -> Result<u64, SasError>) -> Result<(), SasError> {
        for row in 0..array.len() {
            let bits = if array.is_null(row) { ibm::MISSING } else { number(row)? };
            self.cell(row).copy_from_slice(&bits.to_be_bytes());
        }
        Ok(())
    }
}

impl Written {
    fn write(&self, array: &ArrayRef, charset: Charset, cells: &mut Cells) -> Result<(), SasError> {
        match self.form {
            Form::Text => self.texts(array, charset, cells),
            Form::Whole => {
                let array = cast(array, &DataType::Int64)?;
                let values = array.as_primitive::<Int64Type>();
                cells.numbers(values, |row| {
                    let value = values.value(row);
                    if value.unsigned_abs() > WHOLE_MAX {
                        return Err(SasError::data(format!(
                            "column '{}': {value} has more digits than SAS's numbers hold exactly; cast it to STRING, or to \
                             DOUBLE to round it",
                            self.column
                        )));
                    }
                    self.number(value as f64)
                })
            }
            Form::Float => {
                let array = cast(array, &DataType::Float64)?;
                let values = array.as_primitive::<Float64Type>();
                cells.numbers(values, |row| self.number(values.value(row)))
            }
            Form::Date => {
                let array = cast(array, &DataType::Date32)?;
                let values = array.as_primitive::<Date32Type>();
                cells.numbers(values, |row| self.number(f64::from(values.value(row)) + f64::from(EPOCH_DAYS)))
            }
            Form::Time => {
                // Nanoseconds of a day, whatever the unit was.
                let array = cast(array, &DataType::Time64(TimeUnit::Nanosecond))?;
                let array = cast(&array, &DataType::Int64)?;
                let values = array.as_primitive::<Int64Type>();
                cells.numbers(values, |row| self.number(values.value(row) as f64 / 1e9))
            }
            Form::DateTime(unit) => {
                let per_second: i64 = match unit {
                    TimeUnit::Second => 1,
                    TimeUnit::Millisecond => 1_000,
                    TimeUnit::Microsecond => 1_000_000,
                    TimeUnit::Nanosecond => 1_000_000_000,
                };
                let array = cast(array, &DataType::Int64)?;
                let values = array.as_primitive::<Int64Type>();
                cells.numbers(values, |row| {
                    let value = values.value(row);
                    let (seconds, part) = (value.div_euclid(per_second), value.rem_euclid(per_second));
                    self.number((seconds + EPOCH_SECONDS) as f64 + part as f64 / per_second as f64)
                })
            }
        }
    }

    /// A number as the format has it.
    #[inline]
    fn number(&self, value: f64) -> Result<u64, SasError> {
        match ibm::from_f64(value) {
            Some(bits) => Ok(bits),
            None if value.is_nan() => Ok(ibm::MISSING),
            None => Err(SasError::data(format!(
                "column '{}': {value:e} is beyond the numbers of XPORT, {:.1e} to {:.1e}; cast it to STRING or leave the row out",
                self.column,
                ibm::MIN,
                ibm::MAX
            ))),
        }
    }

    fn texts(&self, array: &ArrayRef, charset: Charset, cells: &mut Cells) -> Result<(), SasError> {
        let array = cast(array, &DataType::Utf8)?;
        let values = array.as_string::<i32>();
        for row in 0..values.len() {
            if values.is_null(row) {
                continue;
            }
            let value = values.value(row);
            let Some(bytes) = charset.encode(value) else {
                return Err(SasError::data(format!(
                    "column '{}': '{value}' has a letter that the character set {} lacks",
                    self.column,
                    charset.name()
                )));
            };
            let cell = cells.cell(row);
            if bytes.len() > cell.len() {
                return Err(SasError::data(format!(
                    "column '{}': a text of {} bytes, but a text of it may have {}; raise 'xport.text-length'",
                    self.column,
                    bytes.len(),
                    cell.len()
                )));
            }
            cell[..bytes.len()].copy_from_slice(&bytes);
        }
        Ok(())
    }
}

/// How values of a type are written; `None` if they cannot be.
fn form(data_type: &DataType) -> Option<Form> {
    Some(match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Form::Text,
        DataType::Boolean | DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => Form::Whole,
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 => Form::Whole,
        DataType::Float32 | DataType::Float64 | DataType::Decimal128(..) | DataType::Null => Form::Float,
        DataType::Date32 => Form::Date,
        DataType::Time32(_) | DataType::Time64(_) => Form::Time,
        DataType::Timestamp(unit, _) => Form::DateTime(*unit),
        _ => return None,
    })
}

/// What is wrong with a name, if something is.
fn check_name(name: &str, version: XportVersion) -> Result<(), String> {
    let max = version.name_max();
    if name.is_empty() || name.len() > max {
        let hint = if version == XportVersion::V5 && name.len() <= 32 { ", or 32 with 'xport.version' = '8'" } else { "" };
        return Err(format!("has {} letters, but a name in SAS may have 1 to {max}{hint}", name.len()));
    }
    let sound = name.bytes().enumerate().all(|(i, b)| b.is_ascii_alphabetic() || b == b'_' || (i > 0 && b.is_ascii_digit()));
    if sound {
        Ok(())
    } else {
        Err("is no name in SAS: letters of English, digits and '_' may stand in one, and no digit first".to_string())
    }
}

/// Writes a number of two bytes.
fn two(to: &mut [u8], at: usize, number: usize) {
    to[at..at + 2].copy_from_slice(&(number as u16).to_be_bytes());
}

/// Writes text into a place of fixed length, with blanks behind it.
fn put(to: &mut [u8], text: &[u8]) {
    to.fill(b' ');
    to[..text.len()].copy_from_slice(text);
}

/// The number of bytes up to `max` at which a text can be cut without cutting a letter.
fn cut(text: &str, max: usize) -> usize {
    (0..=max.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// Appends a record of text that is at most as long as one.
fn record(out: &mut Vec<u8>, text: &str) {
    let from = out.len();
    out.extend_from_slice(text.as_bytes());
    assert!(out.len() - from <= RECORD, "a record of {} bytes", out.len() - from);
    out.resize(from + RECORD, b' ');
}

/// Appends a header record.
fn header(out: &mut Vec<u8>, name: &str, rest: &str) {
    let from = out.len();
    out.extend_from_slice(HEADER);
    out.extend_from_slice(format!("{name:8}").as_bytes());
    out.extend_from_slice(HEADER_MARK);
    out.extend_from_slice(rest.as_bytes());
    assert!(out.len() - from <= RECORD, "a header of {} bytes", out.len() - from);
    out.resize(from + RECORD, b' ');
}

/// Blanks to the end of the record, where records began at `from`.
fn fill_record(out: &mut Vec<u8>, from: usize) {
    let length = (out.len() - from).next_multiple_of(RECORD);
    out.resize(from + length, b' ');
}

/// A time as headers have it, `02JAN26:15:04:05`.
fn date(seconds: i64) -> String {
    const MONTHS: [&str; 12] = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Howard Hinnant's days to civil date: years that begin in March, in eras of 400.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = (march_month + 2) % 12;
    let year = year_of_era + era * 400 + i64::from(month < 2);
    format!(
        "{day:02}{}{:02}:{:02}:{:02}:{:02}",
        MONTHS[month as usize],
        year.rem_euclid(100),
        of_day / 3_600,
        of_day / 60 % 60,
        of_day % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_in_headers() {
        assert_eq!(date(0), "01JAN70:00:00:00");
        assert_eq!(date(951_827_696), "29FEB00:12:34:56");
        assert_eq!(date(1_767_225_599), "31DEC25:23:59:59");
        assert_eq!(date(-1), "31DEC69:23:59:59");
    }

    #[test]
    fn names() {
        assert!(check_name("ABC_1", XportVersion::V5).is_ok());
        for (name, version) in
            [("", XportVersion::V5), ("A23456789", XportVersion::V5), ("1A", XportVersion::V8), ("GRÖSSE", XportVersion::V8)]
        {
            assert!(check_name(name, version).is_err(), "{name}");
        }
        assert!(check_name("A23456789", XportVersion::V8).is_ok());
    }
}
