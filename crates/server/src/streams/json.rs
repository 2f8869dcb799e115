//! Rows as JSON for browsers and `curl`: one object a line, the kinds of an updating stream's rows as
//! `"row_kind": "+U"`; and as events of an event stream. The encoder itself is the format `json`.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int8Type, Schema, SchemaRef};
use tidemill_block::{Block, RowKind};
use tidemill_format::json::{JsonEncoder, JsonOptions};
use tidemill_format::options::{OptionSet, RawOptions};
use tidemill_format::{Encoder, FormatError};

use crate::filter::row_kind;

/// Writes batches of one schema as lines of JSON.
pub(crate) struct JsonLines {
    encoder: JsonEncoder,
    /// Where the row kinds stand, and the schema with them as text.
    kinds: Option<(usize, SchemaRef)>,
}

impl JsonLines {
    /// For rows of `schema`; `updating` says whether a last column `row_kind` holds the kinds.
    ///
    /// # Errors
    /// A column type that JSON cannot express.
    pub fn new(schema: &SchemaRef, updating: bool) -> Result<Self, FormatError> {
        let kinds = row_kind(schema).filter(|_| updating).map(|at| {
            let mut fields: Vec<_> = schema.fields().to_vec();
            fields[at] = Arc::new(Field::new(fields[at].name(), DataType::Utf8, false));
            (at, Arc::new(Schema::new(fields)))
        });
        let options = JsonOptions::take(&mut RawOptions::new("rows as JSON", Vec::new()))?;
        let written = kinds.as_ref().map_or(schema, |(_, with_text)| with_text);
        Ok(JsonLines { encoder: JsonEncoder::new(&options, written)?, kinds })
    }

    /// Appends a line for each row.
    ///
    /// # Errors
    /// A value that JSON cannot express.
    pub fn encode(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), FormatError> {
        let batch = match &self.kinds {
            None => batch.clone(),
            Some((at, schema)) => {
                let mut columns = batch.columns().to_vec();
                columns[*at] = kinds_as_text(&columns[*at]);
                RecordBatch::try_new(schema.clone(), columns)?
            }
        };
        self.encoder.encode(&Block::inserts(batch, 0), out)
    }
}

fn kinds_as_text(codes: &ArrayRef) -> ArrayRef {
    let text = |code: &i8| RowKind::from_byte(*code as u8).map_or("?", RowKind::short);
    Arc::new(StringArray::from_iter_values(codes.as_primitive::<Int8Type>().values().iter().map(text)))
}

/// Turns lines of JSON into server-sent events: each line is the data of one. `ids` gives the number of
/// the row behind the first; without it events have no id.
pub(crate) fn events(lines: &[u8], ids: Option<u64>, out: &mut Vec<u8>) {
    let mut id = ids;
    for line in lines.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
        if let Some(id) = &mut id {
            out.extend_from_slice(b"id: ");
            tidemill_block::value::write_i64(out, *id as i64);
            out.push(b'\n');
            *id += 1;
        }
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(line);
        out.extend_from_slice(b"\n\n");
    }
}

/// Lines of JSON as one array.
pub(crate) fn array(lines: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(lines.len() + 2);
    out.push(b'[');
    for (n, line) in lines.split(|b| *b == b'\n').filter(|line| !line.is_empty()).enumerate() {
        if n > 0 {
            out.push(b',');
        }
        out.extend_from_slice(line);
    }
    out.push(b']');
    out
}

/// The values of a JSON text, one a line: those of an array, or those that stand one after the other. Only
/// where they begin and end is looked at, not whether they are right.
///
/// # Errors
/// The text is cut short, or something stands between the values.
pub(crate) fn values_as_lines(text: &[u8]) -> Result<Vec<u8>, String> {
    let trimmed = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text).trim_ascii();
    let inside = match trimmed {
        [b'[', inside @ .., b']'] => Some(inside),
        [b'[', ..] => return Err("the array is not closed".to_string()),
        _ => None,
    };
    let text = inside.unwrap_or(trimmed);
    let mut out = Vec::with_capacity(text.len() + 16);
    let (mut depth, mut quoted, mut escaped) = (0usize, false, false);
    // In an array a value must follow a comma, and a comma a value.
    let mut wants_value = true;
    for byte in text {
        if quoted {
            out.push(*byte);
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => quoted = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'{' | b'[' => {
                if depth == 0 && inside.is_some() && !wants_value {
                    return Err("a comma is missing between two values of the array".to_string());
                }
                depth += 1;
                wants_value = false;
                out.push(*byte);
            }
            b'}' | b']' => {
                depth = depth.checked_sub(1).ok_or_else(|| format!("a '{}' too many", *byte as char))?;
                out.push(*byte);
                if depth == 0 {
                    out.push(b'\n');
                }
            }
            b'\n' | b'\r' | b' ' | b'\t' if depth == 0 => {}
            // A line end within a value would end its line; as a blank it means the same.
            b'\n' | b'\r' => out.push(b' '),
            b',' if depth == 0 && inside.is_some() && !wants_value => wants_value = true,
            _ if depth == 0 => return Err(format!("'{}' stands where an object is expected", *byte as char)),
            b'"' => {
                quoted = true;
                out.push(b'"');
            }
            other => out.push(*other),
        }
    }
    if depth > 0 || quoted {
        return Err("the last object is not closed".to_string());
    }
    if inside.is_some() && wants_value && !out.is_empty() {
        return Err("a comma stands behind the last value of the array".to_string());
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
