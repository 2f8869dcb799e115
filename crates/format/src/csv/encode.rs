//! Blocks to CSV text.

use arrow::array::{Array, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, SchemaRef,
    Time32MillisecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
    UInt64Type,
};
use tidemill_block::{Block, value};

use super::{CsvOptions, Header};
use crate::{Encoder, FormatError};

/// Writes rows as CSV lines. Values have Flink's text forms; a field is quoted only if it has to be.
pub struct CsvEncoder {
    delimiter: u8,
    quote: Option<u8>,
    null: Vec<u8>,
    header: Option<Vec<String>>,
}

impl CsvEncoder {
    /// An encoder for rows of `schema`.
    ///
    /// # Errors
    /// A column type that CSV cannot express.
    pub fn new(options: &CsvOptions, schema: &SchemaRef) -> Result<Self, FormatError> {
        for field in schema.fields() {
            writer_of(field.name(), field.data_type())?;
        }
        Ok(CsvEncoder {
            delimiter: options.field_delimiter as u8,
            quote: (!options.disable_quote_character).then_some(options.quote_character as u8),
            null: options.null_literal.clone().unwrap_or_default().into_bytes(),
            header: (options.header != Header::No).then(|| schema.fields().iter().map(|f| f.name().clone()).collect()),
        })
    }

    /// For another format of text, whose values look the same and are never quoted: only [`CsvEncoder::cell`] is of use.
    ///
    /// # Errors
    /// The index of a column that text cannot express.
    pub(crate) fn plain(schema: &SchemaRef) -> Result<Self, usize> {
        match schema.fields().iter().position(|field| writer_of(field.name(), field.data_type()).is_err()) {
            Some(column) => Err(column),
            None => Ok(CsvEncoder { delimiter: 0, quote: None, null: Vec::new(), header: None }),
        }
    }

    /// Whether a text has a byte for which it must be quoted.
    fn is_special(&self, text: &[u8], quote: u8) -> bool {
        // All of a piece are looked at, so that the compiler makes vectors of them.
        let any =
            |piece: &[u8]| piece.iter().fold(false, |found, b| found | (*b == self.delimiter || *b == quote || *b == b'\n' || *b == b'\r'));
        let (pieces, rest) = text.as_chunks::<64>();
        pieces.iter().any(|piece| any(piece)) || any(rest)
    }

    fn text(&self, text: &[u8], out: &mut Vec<u8>) {
        let Some(quote) = self.quote else {
            out.extend_from_slice(text);
            return;
        };
        // An empty text is quoted so that it can be told from a NULL.
        if text.is_empty() || self.is_special(text, quote) || (!self.null.is_empty() && text == self.null) {
            out.push(quote);
            let mut from = 0;
            for at in memchr::memchr_iter(quote, text) {
                out.extend_from_slice(&text[from..=at]);
                from = at;
            }
            out.extend_from_slice(&text[from..]);
            out.push(quote);
        } else {
            out.extend_from_slice(text);
        }
    }
}

/// Appends the value of one row.
pub(crate) type Cell<'a> = Box<dyn FnMut(usize, &mut Vec<u8>) + 'a>;

fn writer_of(name: &str, data_type: &DataType) -> Result<(), FormatError> {
    match data_type {
        DataType::Boolean
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::UInt64
        | DataType::Float32
        | DataType::Float64
        | DataType::Decimal128(..)
        | DataType::Utf8
        | DataType::Binary
        | DataType::Date32
        | DataType::Null
        | DataType::Time32(TimeUnit::Millisecond)
        | DataType::Timestamp(..) => Ok(()),
        other => Err(FormatError::unsupported(format!("column '{name}': the csv format cannot write {other}; use json"))),
    }
}

fn integer(value: impl itoa::Integer, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

impl Encoder for CsvEncoder {
    fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some(names) = &self.header {
            for (i, name) in names.iter().enumerate() {
                if i > 0 {
                    out.push(self.delimiter);
                }
                self.text(name.as_bytes(), out);
            }
            out.push(b'\n');
        }
    }

    fn encode(&mut self, block: &Block, out: &mut Vec<u8>) -> Result<(), FormatError> {
        self.rows(block, out, |out| out.push(b'\n'));
        Ok(())
    }
}

impl CsvEncoder {
    /// Appends the rows of a block; `end` is called behind each.
    pub(crate) fn rows(&self, block: &Block, out: &mut Vec<u8>, mut end: impl FnMut(&mut Vec<u8>)) {
        let mut cells: Vec<(Option<&arrow::buffer::NullBuffer>, Cell<'_>)> = block
            .batch
            .columns()
            .iter()
            .map(|column| (column.nulls().filter(|n| n.null_count() > 0), self.cell(column.as_ref())))
            .collect();
        for row in 0..block.rows() {
            for (i, (nulls, cell)) in cells.iter_mut().enumerate() {
                if i > 0 {
                    out.push(self.delimiter);
                }
                match nulls {
                    Some(nulls) if nulls.is_null(row) => out.extend_from_slice(&self.null),
                    _ => cell(row, out),
                }
            }
            end(out);
        }
    }

    /// What writes the values of a column.
    pub(crate) fn cell<'a>(&'a self, column: &'a dyn Array) -> Cell<'a> {
        macro_rules! integers {
            ($type:ty) => {{
                let values = column.as_primitive::<$type>().values();
                Box::new(move |row, out: &mut Vec<u8>| integer(values[row], out))
            }};
        }
        macro_rules! timestamps {
            ($type:ty, $unit:expr, $utc:expr) => {{
                let values = column.as_primitive::<$type>().values();
                let utc = $utc;
                let mut text = value::TimestampWriter::default();
                Box::new(move |row, out: &mut Vec<u8>| {
                    text.write(out, values[row], $unit);
                    if utc {
                        out.push(b'Z');
                    }
                })
            }};
        }
        match column.data_type() {
            DataType::Int8 => integers!(Int8Type),
            DataType::Int16 => integers!(Int16Type),
            DataType::Int32 => integers!(Int32Type),
            DataType::Int64 => integers!(Int64Type),
            DataType::UInt64 => integers!(UInt64Type),
            DataType::Float32 => {
                let values = column.as_primitive::<Float32Type>().values();
                Box::new(move |row, out| value::write_f32(out, values[row]))
            }
            DataType::Float64 => {
                let values = column.as_primitive::<Float64Type>().values();
                Box::new(move |row, out| value::write_f64(out, values[row]))
            }
            DataType::Decimal128(_, scale) => {
                let values = column.as_primitive::<Decimal128Type>().values();
                let scale = *scale;
                Box::new(move |row, out| value::write_decimal(out, values[row], scale))
            }
            DataType::Boolean => {
                let values = column.as_boolean();
                Box::new(move |row, out| out.extend_from_slice(if values.value(row) { b"true" } else { b"false" }))
            }
            DataType::Utf8 => {
                let values = column.as_string::<i32>();
                Box::new(move |row, out| self.text(values.value(row).as_bytes(), out))
            }
            DataType::Binary => {
                let values = column.as_binary::<i32>();
                Box::new(move |row, out| base64(values.value(row), out))
            }
            DataType::Date32 => {
                let values = column.as_primitive::<Date32Type>().values();
                Box::new(move |row, out| value::write_date(out, values[row]))
            }
            DataType::Time32(_) => {
                let values = column.as_primitive::<Time32MillisecondType>().values();
                Box::new(move |row, out| value::write_time_ms(out, values[row]))
            }
            DataType::Timestamp(unit, zone) => match unit {
                TimeUnit::Second => timestamps!(TimestampSecondType, TimeUnit::Second, zone.is_some()),
                TimeUnit::Millisecond => timestamps!(TimestampMillisecondType, TimeUnit::Millisecond, zone.is_some()),
                TimeUnit::Microsecond => timestamps!(TimestampMicrosecondType, TimeUnit::Microsecond, zone.is_some()),
                TimeUnit::Nanosecond => timestamps!(TimestampNanosecondType, TimeUnit::Nanosecond, zone.is_some()),
            },
            DataType::Null => Box::new(move |_, out| out.extend_from_slice(&self.null)),
            other => unreachable!("checked by CsvEncoder::new: {other}"),
        }
    }
}

fn base64(bytes: &[u8], out: &mut Vec<u8>) {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0u32, |acc, b| acc << 8 | u32::from(*b)) << (8 * (3 - three.len()));
        for i in 0..4 {
            out.push(if i <= three.len() { ALPHABET[(bits >> (18 - 6 * i)) as usize & 63] } else { b'=' });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Decoder;
    use crate::csv::CsvDecoder;
    use crate::options::{OptionSet, RawOptions};
    use arrow::array::{ArrayRef, BinaryArray, Float64Array, RecordBatch, StringArray, TimestampMillisecondArray};
    use std::sync::Arc;

    fn options(pairs: &[(&str, &str)]) -> CsvOptions {
        CsvOptions::take(&mut RawOptions::new("t", pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())))).unwrap()
    }

    fn sample() -> Block {
        let batch = RecordBatch::try_from_iter_with_nullable([
            ("s", Arc::new(StringArray::from(vec![Some("plain"), Some("a,b"), Some("say \"x\""), None, Some("")])) as ArrayRef, true),
            ("f", Arc::new(Float64Array::from(vec![Some(1.0), Some(1e10), None, Some(-0.001), Some(0.1)])) as ArrayRef, true),
            ("t", Arc::new(TimestampMillisecondArray::from(vec![Some(0), Some(1500), None, Some(-1), Some(60_000)])) as ArrayRef, true),
            ("b", Arc::new(BinaryArray::from(vec![Some(&b"abc"[..]), Some(b"a"), None, Some(b""), Some(b"ab")])) as ArrayRef, true),
        ])
        .unwrap();
        Block::inserts(batch, 0)
    }

    #[test]
    fn values_have_flinks_text_forms() {
        let mut out = Vec::new();
        let mut encoder = CsvEncoder::new(&options(&[("csv.header", "true")]), &sample().schema()).unwrap();
        encoder.begin(&mut out);
        encoder.encode(&sample(), &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "s,f,t,b\nplain,1.0,1970-01-01 00:00:00,YWJj\n\"a,b\",1.0E10,1970-01-01 00:00:01.5,YQ==\n\"say \"\"x\"\"\",,,\n,-0.001,1969-12-31 23:59:59.999,\n\"\",0.1,1970-01-01 00:01:00,YWI=\n"
        );
    }

    #[test]
    fn a_text_is_quoted_wherever_the_byte_stands_that_asks_for_it() {
        let encoder = CsvEncoder::new(&options(&[]), &sample().schema()).unwrap();
        for length in [1, 2, 63, 64, 65, 127, 128, 200] {
            for at in 0..length {
                for (byte, quoted) in [(b',', true), (b'"', true), (b'\n', true), (b'\r', true), (b';', false), (0xE9, false)] {
                    let mut text = vec![b'x'; length];
                    text[at] = byte;
                    let expect = match quoted {
                        false => text.clone(),
                        true => format!("\"{}\"", String::from_utf8_lossy(&text).replace('"', "\"\"")).into_bytes(),
                    };
                    let mut out = Vec::new();
                    encoder.text(&text, &mut out);
                    assert_eq!(out, expect, "byte {byte} at {at} of {length}");
                }
            }
        }
    }

    #[test]
    fn what_was_written_reads_back() {
        let options = options(&[("csv.null-literal", "NULL")]);
        let block = sample();
        let mut out = Vec::new();
        CsvEncoder::new(&options, &block.schema()).unwrap().encode(&block, &mut out).unwrap();
        let mut decoder = CsvDecoder::new(&options, &block.schema(), &[0, 1, 2]).unwrap();
        decoder.push(&out);
        assert_eq!(decoder.next(100).unwrap().unwrap().batch, block.batch.project(&[0, 1, 2]).unwrap());
    }
}
