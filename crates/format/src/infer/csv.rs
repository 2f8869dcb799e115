//! The dialect and the columns of a CSV sample.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::{Candidates, unique_names};
use crate::FormatError;

/// Characters that may stand between fields, the likeliest first.
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];
/// How many records decide about the delimiter.
const DIALECT_RECORDS: usize = 1000;

/// How a CSV file is written, as far as a sample tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CsvSniff {
    /// The character between fields.
    pub delimiter: char,
    /// Whether the first line has the column names.
    pub header: bool,
    /// The character around fields that contain delimiters.
    pub quote: char,
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CsvKnown {
    /// The character between fields.
    pub delimiter: Option<char>,
    /// Whether the first line has the column names.
    pub header: Option<bool>,
    /// The character around fields that contain delimiters.
    pub quote: Option<char>,
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
    if sample.contains(&0) {
        return Err(FormatError::data("this is not CSV: it contains zero bytes; is it compressed, or in UTF-16?"));
    }
    let quote = byte(known.quote, "quote")?.unwrap_or_else(|| sniff_quote(sample));
    let delimiter = byte(known.delimiter, "delimiter")?.unwrap_or_else(|| sniff_delimiter(sample, quote, complete));
    let records: Vec<_> = Records { rest: sample, delimiter, quote, complete }.collect();
    if records.is_empty() {
        return Err(FormatError::data(if sample.trim_ascii().is_empty() {
            "cannot tell the columns of an empty file; declare them with CREATE TABLE"
        } else {
            "cannot tell the columns: the sample does not hold one whole line"
        }));
    }
    let columns = records[1..].iter().map(Vec::len).max().unwrap_or(0).max(records[0].len());
    let header = known.header.unwrap_or_else(|| has_header(&records, columns));
    let types = types(&records[header as usize..], columns);
    let names = (0..columns).map(|i| match records[0].get(i) {
        Some(cell) if header => String::from_utf8_lossy(&cell.text).trim().to_string(),
        _ => format!("column{i}"),
    });
    let fields: Vec<Field> = unique_names(names).into_iter().zip(types).map(|(name, t)| Field::new(name, t.data_type(), true)).collect();
    Ok((CsvSniff { delimiter: delimiter as char, header, quote: quote as char }, Arc::new(Schema::new(fields))))
}

/// One field of a record.
struct Cell {
    text: Vec<u8>,
    quoted: bool,
}

/// The records of a sample; a last one that may be cut is left out, blank lines too.
struct Records<'a> {
    rest: &'a [u8],
    delimiter: u8,
    quote: u8,
    complete: bool,
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
                    Some(b) if *b == self.delimiter => at = next + 1,
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
            if cells.len() > 1 || !cells[0].text.trim_ascii().is_empty() {
                return Some(cells);
            }
        }
    }
}

impl Records<'_> {
    /// The field at `at` and where its delimiter or line end stands; `None` if a quote is not closed.
    fn cell(&mut self, at: usize) -> Option<(Cell, usize)> {
        let ends = |b: &u8| *b == self.delimiter || *b == b'\n' || *b == b'\r';
        if self.rest.get(at) != Some(&self.quote) {
            let end = self.rest[at..].iter().position(ends).map_or(self.rest.len(), |n| at + n);
            return Some((Cell { text: self.rest[at..end].to_vec(), quoted: false }, end));
        }
        let (mut text, mut i) = (Vec::new(), at + 1);
        loop {
            match (self.rest.get(i), self.rest.get(i + 1)) {
                (Some(q), Some(r)) if *q == self.quote && *r == self.quote => {
                    text.push(*q);
                    i += 2;
                }
                (Some(q), _) if *q == self.quote => break,
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

/// The delimiter that divides most lines into the same number of fields, above one; a comma if none
/// divides anything.
fn sniff_delimiter(sample: &[u8], quote: u8, complete: bool) -> u8 {
    let mut best = (b',', 0.0, 1);
    for delimiter in DELIMITERS {
        let mut widths = Vec::new();
        for cells in (Records { rest: sample, delimiter, quote, complete }).take(DIALECT_RECORDS) {
            widths.push(cells.len());
        }
        widths.sort_unstable();
        let Some((share, width)) =
            widths.chunk_by(|a, b| a == b).map(|c| (c.len() as f64 / widths.len() as f64, c[0])).max_by(|a, b| a.0.total_cmp(&b.0))
        else {
            continue;
        };
        // A little disorder does not outweigh that the others divide into fewer fields.
        let better = share > best.1 + 0.1 || (share > best.1 - 0.1 && width > best.2);
        if width > 1 && (best.2 == 1 || better) {
            best = (delimiter, share, width);
        }
    }
    best.0
}

fn types(records: &[Vec<Cell>], columns: usize) -> Vec<Candidates> {
    let mut types = vec![Candidates::NEW; columns];
    for record in records {
        for (cell, candidates) in record.iter().zip(&mut types) {
            let text = cell.text.trim_ascii();
            if !text.is_empty() {
                candidates.see(text);
            }
        }
    }
    types
}

/// Whether the first record names the columns: more of its fields contradict the types of the
/// records below than agree with them; or, where all is text, they look like names and occur
/// nowhere below.
fn has_header(records: &[Vec<Cell>], columns: usize) -> bool {
    let (first, below) = (&records[0], &records[1..]);
    let names = first.iter().map(|c| c.text.trim_ascii());
    let mut distinct = HashSet::new();
    let named = names.clone().all(|n| {
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
    for (cell, mut both) in first.iter().map(|c| c.text.trim_ascii()).zip(types(below, columns)) {
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
mod tests {
    use super::*;
    use crate::types::type_name;

    /// `delimiter quote header | name TYPE, …`
    #[track_caller]
    fn check(sample: &str, expect: &str) {
        let (sniff, schema) = infer_csv(sample.as_bytes(), true).unwrap();
        let columns: Vec<_> = schema.fields().iter().map(|f| format!("{} {}", f.name(), type_name(f.data_type()))).collect();
        let header = if sniff.header { "header" } else { "none" };
        assert_eq!(format!("{} {} {header} | {}", sniff.delimiter.escape_default(), sniff.quote, columns.join(", ")), expect, "{sample:?}");
    }

    #[test]
    fn dialects_headers_and_types() {
        check("id,name,at\n1,ann,2024-01-01\n2,bob,2024-01-02\n", ", \" header | id BIGINT, name STRING, at DATE");
        check("1;2,5;x\n2;3,5;y\n", "; \" none | column0 BIGINT, column1 STRING, column2 STRING");
        check("a\tb\r\n1.5\ttrue\r\n2\tfalse\r\n", "\\t \" header | a DOUBLE, b BOOLEAN");
        check("t|v\n2024-01-01 00:00:00|1\n2024-01-01 00:00:01.5|\n", "| \" header | t TIMESTAMP(6), v BIGINT");
        check("1,2,3\n4,5,6\n", ", \" none | column0 BIGINT, column1 BIGINT, column2 BIGINT");
        check("city,country\nBerlin,DE\nParis,FR\n", ", \" header | city STRING, country STRING");
        check("x,y\nx,z\n", ", \" none | column0 STRING, column1 STRING");
        check("n\n1\n2\n", ", \" header | n BIGINT");
        check("a,b,c", ", \" header | a STRING, b STRING, c STRING");
        check("1,b", ", \" none | column0 BIGINT, column1 STRING");
        check("a,a,,a\n1,2,3,4\n", ", \" header | a BIGINT, a_1 BIGINT, column2 BIGINT, a_2 BIGINT");
    }

    #[test]
    fn quotes_hide_delimiters_and_line_ends() {
        check("k,v\n1,\"a;b;c;d\"\n2,\"x\n;y;z;\"\"q\"\"\"\n", ", \" header | k BIGINT, v STRING");
        check("'k','v'\n'1','a,b'\n'2','c,d'\n", ", ' header | k BIGINT, v STRING");
        check("k,v\n1,it's\n2,o'clock\n", ", \" header | k BIGINT, v STRING");
    }

    #[test]
    fn a_cut_last_line_does_not_count() {
        let (_, schema) = infer_csv(b"a,b\n1,2\n3,abc", false).unwrap();
        assert_eq!(schema.field(1).data_type(), &DataType::Int64);
        let (_, schema) = infer_csv(b"a,b\n1,2\n3,\"abc\nd", false).unwrap();
        assert_eq!(schema.field(1).data_type(), &DataType::Int64);
        assert!(infer_csv(b"a,b", false).unwrap_err().to_string().contains("one whole line"));
        assert!(infer_csv(b"\n \n", true).unwrap_err().to_string().contains("empty file"));
    }
}
