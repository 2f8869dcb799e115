//! The rows of a request's or message's text: JSON or CSV, all of them or none.

use std::sync::Arc;

use arrow::array::{AsArray, Int8Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use tidemill_block::RowKind;
use tidemill_format::csv::CsvOptions;
use tidemill_format::json::JsonOptions;
use tidemill_format::options::{OptionSet, RawOptions};
use tidemill_format::text::TextFormat;
use tidemill_hub::{ROW_KIND, Refusal};

use super::columns::ColumnMap;
use super::json::values_as_lines;
use crate::error::ApiError;

/// Rows of a batch at most, so that many short ones reach the job in pieces.
const BATCH_ROWS: usize = 16 << 10;

/// How the rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextKind {
    /// An array of objects, or objects one after the other.
    Json,
    /// One object a line.
    JsonLines,
    /// A line of column names, in any order, then one record a line.
    Csv,
}

/// The rows of `text`, with the columns of `schema`.
///
/// # Errors
/// 400: the first record that is wrong, by its number, and why.
pub(crate) fn decode(kind: TextKind, text: &[u8], schema: &SchemaRef) -> Result<Vec<RecordBatch>, ApiError> {
    let lines;
    let (format, columns, text) = match kind {
        TextKind::Csv => {
            let options = CsvOptions::take(&mut RawOptions::new("csv", [("csv.header".to_string(), "skip".to_string())]));
            (TextFormat::Csv(options.map_err(internal)?), header(text, schema)?, text)
        }
        TextKind::Json => {
            lines = values_as_lines(text).map_err(|why| malformed(format!("the body is not JSON: {why}")))?;
            (json()?, all(schema), lines.as_slice())
        }
        TextKind::JsonLines => (json()?, all(schema), text),
    };
    // What is missing is NULL for now; whether it may be is looked at with the record's number at hand.
    let mut nullable = columns.iter().map(|i| schema.field(*i).clone().with_nullable(true)).collect::<Vec<Field>>();
    let sent = Arc::new(Schema::new(nullable.clone()));
    let mut map = ColumnMap::new(&sent, schema.clone())?;
    // What a row does is a text here, as subscribers get it.
    let kinds = nullable.iter().position(|f| f.name() == ROW_KIND && *f.data_type() == DataType::Int8);
    if let Some(at) = kinds {
        nullable[at].set_data_type(DataType::Utf8);
    }
    let nullable = Arc::new(Schema::new(nullable));
    let projection: Vec<usize> = (0..nullable.fields().len()).collect();
    let mut decoder = format.decoder(&nullable, &projection).map_err(|e| malformed(e.to_string()))?;
    decoder.push(text);
    decoder.finish();
    let (mut batches, mut before) = (Vec::new(), 0u64);
    while let Some(decoded) = decoder.next(BATCH_ROWS).map_err(|e| malformed(e.to_string()))? {
        if let Some(bad) = decoded.bad.first() {
            return Err(malformed(format!("record {}: {}", bad.record + 1, bad.reason))
                .with_help("nothing was taken; correct the record and send all of them again"));
        }
        if decoded.batch.num_rows() > 0 {
            let batch = kinds.map_or(Ok(decoded.batch.clone()), |at| coded(&decoded.batch, at, &sent, before))?;
            let rows = map.apply(&batch, before)?;
            before += rows.num_rows() as u64;
            batches.push(rows);
        }
    }
    Ok(batches)
}

/// The rows with their kinds as codes: `+U`, or the code itself.
fn coded(batch: &RecordBatch, at: usize, schema: &SchemaRef, before: u64) -> Result<RecordBatch, ApiError> {
    let code = |(row, text): (usize, Option<&str>)| match text.map(str::trim) {
        None => Ok(None),
        Some(text) => match RowKind::from_short(text).map(|kind| kind as i8).or_else(|| text.parse().ok()) {
            Some(code) => Ok(Some(code)),
            None => {
                let row = before + row as u64 + 1;
                Err(malformed(format!("row {row}: column '{ROW_KIND}' is '{text}', expected +I, -U, +U or -D")))
            }
        },
    };
    let codes = batch.column(at).as_string::<i32>().iter().enumerate().map(code).collect::<Result<Int8Array, _>>()?;
    let mut columns = batch.columns().to_vec();
    columns[at] = Arc::new(codes);
    RecordBatch::try_new(schema.clone(), columns).map_err(internal)
}

fn json() -> Result<TextFormat, ApiError> {
    let options = JsonOptions::take(&mut RawOptions::new("json", Vec::new()));
    Ok(TextFormat::Json(options.map_err(internal)?))
}

fn all(schema: &SchemaRef) -> Vec<usize> {
    (0..schema.fields().len()).collect()
}

fn malformed(why: String) -> ApiError {
    ApiError::bad_request(why).because(Refusal::Malformed)
}

fn internal(error: impl std::fmt::Display) -> ApiError {
    ApiError::internal(error.to_string())
}

/// The columns that the header line names, as indices into the schema.
fn header(text: &[u8], schema: &Schema) -> Result<Vec<usize>, ApiError> {
    let wrong = |why: String| {
        let known: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        ApiError::bad_request(format!("the header line {why}; the stream has the columns: {}", known.join(", "))).because(Refusal::Schema)
    };
    let text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
    let line = text.split(|b| *b == b'\n').next().unwrap_or_default().trim_ascii();
    let line = std::str::from_utf8(line).map_err(|_| wrong("is not UTF-8".to_string()))?;
    if line.is_empty() {
        return Err(wrong("is missing".to_string()));
    }
    let mut columns = Vec::new();
    for name in names(line) {
        let index = schema.index_of(&name).map_err(|_| wrong(format!("names a column '{name}'")))?;
        if columns.contains(&index) {
            return Err(wrong(format!("names column '{name}' twice")));
        }
        columns.push(index);
    }
    Ok(columns)
}

/// The fields of a line; quotes as RFC 4180 has them.
fn names(line: &str) -> Vec<String> {
    let (mut names, mut name, mut quoted) = (Vec::new(), String::new(), false);
    let mut characters = line.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                name.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => names.push(std::mem::take(&mut name)),
            c => name.push(c),
        }
    }
    names.push(name);
    names.iter().map(|n| n.trim().to_string()).collect()
}

#[cfg(test)]
mod tests;
