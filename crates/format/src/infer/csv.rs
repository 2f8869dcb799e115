//! The dialect and the columns of a CSV sample. Which character divides its fields is [`super::delimiter`]'s question.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::delimiter::{self, DELIMITERS};
use super::{Candidates, unique_names};
use crate::FormatError;
use crate::csv::Header;
use crate::options::OptionValue;

/// How a CSV file is written, as far as a sample tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CsvSniff {
    /// The character between fields.
    pub delimiter: char,
    /// Whether the first line has the column names.
    pub header: bool,
    /// The character around fields that contain delimiters.
    pub quote: char,
    /// Whether lines that begin with `#` are comments.
    pub comments: bool,
}

/// The dialect and the columns of the file that `sample` is the beginning of; `complete` says that
/// it is the whole file, so that its last line is not cut.
///
/// # Errors
/// There is no complete line, or the sample is not text.
pub fn infer_csv(sample: &[u8], complete: bool) -> Result<(CsvSniff, SchemaRef), FormatError> {
    infer_csv_as(sample, complete, &CsvKnown::default())
}

/// What is known of a CSV file before it is looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsvKnown {
    /// The character between fields.
    pub delimiter: Option<char>,
    /// Whether the first line has the column names.
    pub header: Option<bool>,
    /// The character around fields that contain delimiters.
    pub quote: Option<char>,
    /// No character has that meaning.
    pub unquoted: bool,
    /// The character that takes the special meaning from the one behind it, inside quotes.
    pub escape: Option<char>,
    /// Whether lines that begin with `#` are comments.
    pub comments: Option<bool>,
    /// The text that stands for NULL, whatever the column's type.
    pub null: Option<String>,
}

impl CsvKnown {
    /// With what a table's options say besides. A value that is none is passed over: whoever makes the table complains.
    pub fn with_options(mut self, options: &BTreeMap<String, String>) -> Self {
        fn of<T: OptionValue>(options: &BTreeMap<String, String>, name: &str) -> Option<T> {
            T::parse(options.get(name)?).ok()
        }
        self.delimiter = self.delimiter.or(of(options, "csv.field-delimiter"));
        self.quote = self.quote.or(of(options, "csv.quote-character"));
        self.unquoted |= of(options, "csv.disable-quote-character").unwrap_or(false);
        self.escape = self.escape.or(of(options, "csv.escape-character"));
        self.comments = self.comments.or(of(options, "csv.allow-comments"));
        self.null = self.null.or(of(options, "csv.null-literal"));
        self.header = self.header.or(of(options, "csv.header").map(|header: Header| header != Header::No));
        self
    }
}

/// As [`infer_csv`], where some of it is known.
///
/// # Errors
/// As [`infer_csv`]; a delimiter or a quote that is no ASCII character.
pub fn infer_csv_as(sample: &[u8], complete: bool, known: &CsvKnown) -> Result<(CsvSniff, SchemaRef), FormatError> {
    let byte = |c: Option<char>, what: &str| match c.map(u8::try_from) {
        Some(Ok(byte)) if byte.is_ascii() => Ok(Some(byte)),
        Some(_) => Err(FormatError::data(format!("the columns cannot be found with a {what} that is no ASCII character; declare them"))),
        None => Ok(None),
    };
    let sample = sample.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(sample);
    if let Some(at) = memchr::memchr(0, sample) {
        return Err(FormatError::data(format!(
            "this is not CSV: byte {at} is zero; is it compressed, or is it UTF-16 ('csv.encoding' = 'UTF-16LE')?"
        )));
    }
    let quote = byte(known.quote, "quote")?.unwrap_or_else(|| sniff_quote(sample));
    let escape = byte(known.escape, "escape character")?;
    let dialect = Dialect { delimiter: b',', quote: (!known.unquoted).then_some(quote), escape, comments: false };
    let hashes = known.comments != Some(false) && sample.split(|b| *b == b'\n').any(|line| line.first() == Some(&b'#'));
    // Until it is known whether they are comments, lines with # have no say about the delimiter.
    let apart = Dialect { comments: hashes, ..dialect };
    let delimiter = match byte(known.delimiter, "delimiter")? {
        Some(delimiter) => delimiter,
        None => delimiter::sniff(sample, complete, apart),
    };
    let comments = known.comments.unwrap_or_else(|| hashes && are_comments(sample, complete, Dialect { delimiter, ..dialect }));
    let records: Vec<_> = Records::new(sample, complete, Dialect { delimiter, comments, ..dialect }).collect();
    if records.is_empty() {
        return Err(FormatError::data(if sample.trim_ascii().is_empty() {
            "cannot tell the columns of an empty file; declare them with CREATE TABLE".to_string()
        } else if in_quotes(sample, Dialect { delimiter, comments, ..dialect }) {
            format!("cannot tell the columns: a quote ({}) is opened in the first line and not closed in all of the sample", quote as char)
        } else {
            "cannot tell the columns: the sample does not hold one whole line".to_string()
        }));
    }
    let columns = records[1..].iter().map(Vec::len).max().unwrap_or(0).max(records[0].len());
    let null = known.null.as_deref().map(str::as_bytes);
    let header = known.header.unwrap_or_else(|| has_header(&records, columns, null));
    let types = types(&records[header as usize..], columns, null);
    let names = (0..columns).map(|i| match records[0].get(i) {
        Some(cell) if header => match std::str::from_utf8(&cell.text) {
            Ok(name) => Ok(name.trim().to_string()),
            Err(_) => Err(FormatError::data(format!(
                "the header line is not UTF-8 ('{}'); say in which encoding the file is, such as 'csv.encoding' = 'windows-1252'",
                String::from_utf8_lossy(&cell.text)
            ))),
        },
        _ => Ok(format!("column{i}")),
    });
    let names = names.collect::<Result<Vec<_>, FormatError>>()?;
    let fields: Vec<Field> = unique_names(names).into_iter().zip(types).map(|(name, t)| Field::new(name, t.data_type(), true)).collect();
    Ok((CsvSniff { delimiter: delimiter as char, header, quote: quote as char, comments }, Arc::new(Schema::new(fields))))
}

/// How fields are told apart.
#[derive(Clone, Copy)]
pub(super) struct Dialect {
    pub delimiter: u8,
    pub quote: Option<u8>,
    pub escape: Option<u8>,
    /// Whether lines that begin with `#` are left out.
    pub comments: bool,
}

/// Whether the sample's first line begins a quoted field that does not end in it.
fn in_quotes(sample: &[u8], dialect: Dialect) -> bool {
    let line = sample.trim_ascii_start().split(|b| *b == b'\n').next().unwrap_or_default();
    dialect.quote.is_some_and(|quote| line.contains(&quote)) && Records::new(line, true, dialect).next().is_none()
}

/// Whether lines that begin with `#` are comments: some are unlike the records, or go on as prose does. A header line such as
/// `#id,name` is none.
fn are_comments(sample: &[u8], complete: bool, dialect: Dialect) -> bool {
    let (hashes, others): (Vec<_>, Vec<_>) = Records::new(sample, complete, dialect).partition(|record| record[0].is_hash());
    let Some(width) = delimiter::usual_width(&others) else { return false };
    let prose = |cell: &Cell| matches!(cell.text.get(1), None | Some(b' ' | b'\t' | b'#' | b'!' | b'-' | b'='));
    hashes.iter().any(|record| record.len() != width || prose(&record[0]))
}

/// One field of a record.
pub(super) struct Cell {
    pub text: Vec<u8>,
    pub quoted: bool,
}

impl Cell {
    fn is_hash(&self) -> bool {
        !self.quoted && self.text.first() == Some(&b'#')
    }
}

/// The records of a sample; a last one that may be cut is left out, blank lines too.
pub(super) struct Records<'a> {
    rest: &'a [u8],
    dialect: Dialect,
    complete: bool,
}

impl<'a> Records<'a> {
    /// Those of the text `sample`, which is `complete` or may be cut.
    pub fn new(sample: &'a [u8], complete: bool, dialect: Dialect) -> Self {
        Records { rest: sample, dialect, complete }
    }
}

impl Iterator for Records<'_> {
    type Item = Vec<Cell>;

    fn next(&mut self) -> Option<Vec<Cell>> {
        loop {
            let blank = self.rest.iter().take_while(|b| matches!(b, b'\n' | b'\r')).count();
            self.rest = &self.rest[blank..];
            if self.rest.is_empty() {
                return None;
            }
            let (mut at, mut cells) = (0, Vec::new());
            loop {
                let (cell, next) = self.cell(at)?;
                cells.push(cell);
                match self.rest.get(next) {
                    Some(b) if *b == self.dialect.delimiter => at = next + 1,
                    Some(_) => {
                        self.rest = &self.rest[next..];
                        break;
                    }
                    None if self.complete => {
                        self.rest = &[];
                        break;
                    }
                    None => {
                        self.rest = &[];
                        return None;
                    }
                }
            }
            let comment = self.dialect.comments && cells[0].is_hash();
            if !comment && (cells.len() > 1 || !cells[0].text.trim_ascii().is_empty()) {
                return Some(cells);
            }
        }
    }
}

impl Records<'_> {
    /// The field at `at` and where its delimiter or line end stands; `None` if a quote is not closed.
    fn cell(&mut self, at: usize) -> Option<(Cell, usize)> {
        let Dialect { delimiter, quote, escape, .. } = self.dialect;
        let ends = |b: &u8| *b == delimiter || *b == b'\n' || *b == b'\r';
        let Some(quote) = self.rest.get(at).copied().filter(|b| Some(*b) == quote) else {
            let end = self.rest[at..].iter().position(ends).map_or(self.rest.len(), |n| at + n);
            return Some((Cell { text: self.rest[at..end].to_vec(), quoted: false }, end));
        };
        let (mut text, mut i) = (Vec::new(), at + 1);
        loop {
            match (self.rest.get(i), self.rest.get(i + 1)) {
                (Some(e), Some(b)) if Some(*e) == escape && *e != quote => {
                    text.push(*b);
                    i += 2;
                }
                (Some(q), Some(r)) if *q == quote && *r == quote => {
                    text.push(*q);
                    i += 2;
                }
                (Some(q), _) if *q == quote => break,
                (Some(b), _) => {
                    text.push(*b);
                    i += 1;
                }
                (None, _) => {
                    self.rest = &[];
                    return None;
                }
            }
        }
        // What stands between the closing quote and the delimiter belongs to the text.
        let end = self.rest[i + 1..].iter().position(ends).map_or(self.rest.len(), |n| i + 1 + n);
        text.extend_from_slice(&self.rest[i + 1..end]);
        Some((Cell { text, quoted: true }, end))
    }
}

/// `'` if fields stand in single quotes and none in double quotes.
fn sniff_quote(sample: &[u8]) -> u8 {
    let edge = |b: Option<&u8>| b.is_none_or(|b| matches!(b, b'\n' | b'\r') || DELIMITERS.contains(b));
    let count = |quote: u8| {
        let at = |i: &usize| sample[*i] == quote;
        let opening = (0..sample.len()).filter(at).filter(|i| edge(i.checked_sub(1).map(|i| &sample[i]))).count();
        let closing = (0..sample.len()).filter(at).filter(|i| edge(sample.get(i + 1))).count();
        opening.min(closing)
    };
    if count(b'"') == 0 && count(b'\'') > 0 { b'\'' } else { b'"' }
}

fn types(records: &[Vec<Cell>], columns: usize, null: Option<&[u8]>) -> Vec<Candidates> {
    let mut types = vec![Candidates::NEW; columns];
    for record in records {
        for (cell, candidates) in record.iter().zip(&mut types) {
            let text = cell.text.trim_ascii();
            if !text.is_empty() && Some(text) != null {
                candidates.see(text);
            }
        }
    }
    types
}

/// Whether the first record names the columns: more of its fields contradict the types of the
/// records below than agree with them; or, where all is text, they look like names and occur
/// nowhere below.
fn has_header(records: &[Vec<Cell>], columns: usize, null: Option<&[u8]>) -> bool {
    let (first, below) = (&records[0], &records[1..]);
    let names = first.iter().map(|c| c.text.trim_ascii());
    let mut distinct = HashSet::new();
    let named = names.clone().all(|n| {
        let n = n.strip_prefix(b"#").unwrap_or(n);
        n.first().is_some_and(|b| b.is_ascii_alphabetic() || *b == b'_' || *b >= 0x80)
            && n.len() <= 64
            && distinct.insert(n.to_ascii_lowercase())
    });
    if below.is_empty() {
        let mut any = Candidates::NEW;
        names.for_each(|n| any.see(n));
        return named && first.len() > 1 && any.data_type() == DataType::Utf8;
    }
    let (mut agree, mut contradict) = (0, 0);
    for (cell, mut both) in first.iter().map(|c| c.text.trim_ascii()).zip(types(below, columns, null)) {
        if cell.is_empty() || both.data_type() == DataType::Utf8 {
            continue;
        }
        both.see(cell);
        // A whole number above doubles agrees; a name does not.
        if both.data_type() == DataType::Utf8 { contradict += 1 } else { agree += 1 }
    }
    if agree + contradict > 0 {
        return contradict > agree;
    }
    named && first.len() == columns && !below.iter().any(|r| r.iter().zip(first).any(|(a, b)| a.text == b.text && !(a.quoted && !b.quoted)))
}

#[cfg(test)]
mod tests;
