//! What stands before the rows of a data set in an XPORT file: headers, descriptions of columns, long labels.
//!
//! ```text
//! NAMESTR, 140 bytes, the highest byte of numbers first
//!   0 type (1 number, 2 text)   4 length in a row    6 number of the column    8 name (8)     16 label (40)
//!  56 format (8)  64 its width  66 its decimals     72 informat (8)           84 place in a row (4)
//!  88 name, long (32; version 8)  120 length of the label (version 8)
//! ```

use super::{RECORD, header_name, next_record};
use crate::column::{self, Column};
use crate::pages::{self, Pages};
use crate::{Charset, Kind, SasError};

/// Bytes of a description that are looked at; they are longer, and how long the header says.
const NAMESTR_MIN: usize = 88;
/// The longest description, bytes: 140, and 136 of VAX.
const NAMESTR_MAX: usize = 1_024;
/// The longest row, bytes.
const ROW_BYTES_MAX: usize = 32 << 20;

/// The head of a data set.
#[derive(Clone, Debug)]
pub(super) struct Head {
    /// Its name.
    pub name: String,
    /// Its label.
    pub label: String,
    /// Version 8, with long names.
    pub long: bool,
    pub columns: Vec<Column>,
    /// Length of a row.
    pub row_bytes: usize,
    /// Where the first row begins in the file.
    pub rows_at: u64,
}

/// Checks that a file begins as one of this format.
pub(super) fn check_library(file: &dyn Pages) -> Result<(), SasError> {
    let mut record = [0; RECORD];
    let length = pages::fill(file, 0, &mut record)?;
    match header_name(&record[..length]) {
        Some("LIBRARY" | "LIBV8") => Ok(()),
        _ if record.starts_with(b"**COMPRESSED**") => Err(SasError::data(
            "it is not an XPORT file but one made by PROC CPORT, which only SAS can read; write it with the XPORT engine there",
        )),
        _ if record.starts_with(&crate::bdat::MAGIC) => {
            Err(SasError::data("it is not an XPORT file but a SAS7BDAT one; read it as 'sas7bdat'"))
        }
        _ => Err(SasError::data("it is not an XPORT file: it does not begin as one")),
    }
}

/// Reads records of a file one after the other.
struct Records<'a> {
    file: &'a dyn Pages,
    at: u64,
}

impl Records<'_> {
    fn bytes(&mut self, length: usize, what: &str) -> Result<Vec<u8>, SasError> {
        // What the file does not have is not allocated.
        if length as u64 > self.file.size().saturating_sub(self.at) {
            return Err(SasError::data(format!(
                "the file is cut short: {what} is {length} bytes from byte {} on, but it ends at byte {}",
                self.at,
                self.file.size()
            )));
        }
        let mut bytes = vec![0; length];
        pages::fill_all(self.file, self.at, &mut bytes, what)?;
        self.at += length as u64;
        Ok(bytes)
    }

    /// A header record that must be one of these names; the record and its name.
    fn header(&mut self, names: &[&str]) -> Result<(Vec<u8>, String), SasError> {
        let at = self.at;
        let record = self.bytes(RECORD, &format!("a header ({})", names.join(" or ")))?;
        match header_name(&record) {
            Some(name) if names.contains(&name) => {
                let name = name.to_string();
                Ok((record, name))
            }
            Some(other) => Err(SasError::data(format!("the header at byte {at} is '{other}', not {}", names.join(" or ")))),
            None => Err(SasError::data(format!("there is no header ({}) at byte {at}: the file is damaged", names.join(" or ")))),
        }
    }
}

/// A number in digits, blanks around it allowed.
fn digits(record: &[u8], from: usize, to: usize) -> Option<usize> {
    std::str::from_utf8(record.get(from..to)?).ok()?.trim().parse().ok()
}

fn two(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

/// Text without the blanks and zero bytes behind it.
fn text(bytes: &[u8]) -> Result<String, SasError> {
    let end = bytes.iter().rposition(|b| !matches!(b, b' ' | 0)).map_or(0, |last| last + 1);
    Ok(Charset::Guess.decode(&bytes[..end])?.into_owned())
}

/// Reads the head of the data set whose MEMBER header stands at byte `at`.
pub(super) fn read(file: &dyn Pages, at: u64) -> Result<Head, SasError> {
    let mut records = Records { file, at };
    let (member, name) = records.header(&["MEMBER", "MEMBV8"])?;
    let long = name == "MEMBV8";
    let namestr = digits(&member, 74, 78).filter(|n| (NAMESTR_MIN..=NAMESTR_MAX).contains(n));
    let Some(namestr) = namestr else {
        return Err(SasError::data(format!("the MEMBER header at byte {at} does not say how long descriptions of columns are")));
    };
    records.header(&["DSCRPTR", "DSCPTV8"])?;
    let first = records.bytes(RECORD, "the data set's name")?;
    let second = records.bytes(RECORD, "the data set's label")?;
    let name = text(if long { &first[8..40] } else { &first[8..16] })?;
    let label = text(&second[32..72])?;
    let (count_record, _) = records.header(&["NAMESTR", "NAMSTV8"])?;
    let Some(count) = digits(&count_record, 53, 58) else {
        return Err(SasError::data("the NAMESTR header does not say how many columns there are"));
    };
    let descriptions = records.bytes(count * namestr, "the columns' descriptions")?;
    let mut columns = Vec::with_capacity(count);
    let mut row_bytes = 0;
    for bytes in descriptions.chunks_exact(namestr) {
        let column = column(bytes, long)?;
        row_bytes = row_bytes.max(column.offset + column.length);
        columns.push(column);
    }
    if row_bytes > ROW_BYTES_MAX {
        return Err(SasError::data(format!("a row has {row_bytes} bytes; readable are {ROW_BYTES_MAX}")));
    }
    column::check(&columns, row_bytes)?;
    records.at = next_record(records.at);
    let (header, name_of) = records.header(&["OBS", "OBSV8", "LABELV8", "LABELV9"])?;
    if name_of.starts_with("LABEL") {
        long_labels(&mut records, &header, name_of == "LABELV9", &mut columns)?;
        records.at = next_record(records.at);
        records.header(&["OBS", "OBSV8"])?;
    }
    Ok(Head { name, label, long, columns, row_bytes, rows_at: records.at })
}

/// A column by its description.
fn column(bytes: &[u8], long: bool) -> Result<Column, SasError> {
    let short = text(&bytes[8..16])?;
    let name = match bytes.get(88..120) {
        Some(name) if long => text(name)?,
        _ => String::new(),
    };
    let name = if name.is_empty() { short } else { name };
    let format = text(&bytes[56..64])?;
    let kind = match two(bytes, 0) {
        1 => Kind::of_format(&format),
        2 => Kind::Text,
        other => return Err(SasError::data(format!("column '{name}' is of type {other}; there are 1 (number) and 2 (text)"))),
    };
    Ok(Column {
        name,
        label: text(&bytes[16..56])?,
        format,
        width: two(bytes, 64) as u16,
        decimals: two(bytes, 66) as u16,
        kind,
        offset: u32::from_be_bytes([bytes[84], bytes[85], bytes[86], bytes[87]]) as usize,
        length: two(bytes, 4),
    })
}

/// Labels of more than 40 bytes, and in `LABELV9` long formats: for each the number of the column (from 1), the lengths
/// of name, label, format and informat, and those texts.
fn long_labels(records: &mut Records, header: &[u8], formats: bool, columns: &mut [Column]) -> Result<(), SasError> {
    let end = header[48..].iter().position(|b| !b.is_ascii_digit()).map_or(RECORD, |length| 48 + length);
    let Some(count) = digits(header, 48, end) else {
        return Err(SasError::data("the LABEL header does not say how many labels there are"));
    };
    let lengths = if formats { 4 } else { 2 };
    for _ in 0..count {
        let head = records.bytes(2 + 2 * lengths, "a long label")?;
        let number = two(&head, 0);
        let length = |i: usize| two(&head, 2 + 2 * i);
        let texts = records.bytes((0..lengths).map(length).sum(), "a long label")?;
        let Some(column) = number.checked_sub(1).and_then(|index| columns.get_mut(index)) else {
            return Err(SasError::data(format!("there is a long label for column {number}, which does not exist")));
        };
        let (name, rest) = texts.split_at(length(0));
        let (label, rest) = rest.split_at(length(1));
        if !name.is_empty() {
            column.name = text(name)?;
        }
        column.label = text(label)?;
        if formats && length(2) > 0 {
            // Unlike the short one it has width and decimals in it.
            let format = text(&rest[..length(2)])?;
            let name = format.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.').to_string();
            if column.kind != Kind::Text {
                column.kind = Kind::of_format(&name);
            }
            column.format = name;
        }
    }
    Ok(())
}
