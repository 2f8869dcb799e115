//! The rows of a request's or message's text: JSON or CSV, all of them or none.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use tidemill_format::csv::CsvOptions;
use tidemill_format::json::JsonOptions;
use tidemill_format::options::{OptionSet, RawOptions};
use tidemill_format::text::TextFormat;

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
            lines = values_as_lines(text).map_err(|why| ApiError::bad_request(format!("the body is not JSON: {why}")))?;
            (json()?, all(schema), lines.as_slice())
        }
        TextKind::JsonLines => (json()?, all(schema), text),
    };
    // What is missing is NULL for now; whether it may be is looked at with the record's number at hand.
    let nullable = columns.iter().map(|i| schema.field(*i).clone().with_nullable(true)).collect::<Vec<Field>>();
    let nullable = Arc::new(Schema::new(nullable));
    let mut map = ColumnMap::new(&nullable, schema.clone()).map_err(ApiError::bad_request)?;
    let projection: Vec<usize> = (0..nullable.fields().len()).collect();
    let mut decoder = format.decoder(&nullable, &projection).map_err(|e| ApiError::bad_request(e.to_string()))?;
    decoder.push(text);
    decoder.finish();
    let (mut batches, mut before) = (Vec::new(), 0u64);
    while let Some(decoded) = decoder.next(BATCH_ROWS).map_err(|e| ApiError::bad_request(e.to_string()))? {
        if let Some(bad) = decoded.bad.first() {
            return Err(ApiError::bad_request(format!("record {}: {}", bad.record + 1, bad.reason))
                .with_help("nothing was taken; correct the record and send all of them again"));
        }
        if decoded.batch.num_rows() > 0 {
            let rows = map.apply(&decoded.batch, before).map_err(ApiError::bad_request)?;
            before += rows.num_rows() as u64;
            batches.push(rows);
        }
    }
    Ok(batches)
}

fn json() -> Result<TextFormat, ApiError> {
    let options = JsonOptions::take(&mut RawOptions::new("json", Vec::new()));
    Ok(TextFormat::Json(options.map_err(internal)?))
}

fn all(schema: &SchemaRef) -> Vec<usize> {
    (0..schema.fields().len()).collect()
}

fn internal(error: impl std::fmt::Display) -> ApiError {
    ApiError::internal(error.to_string())
}

/// The columns that the header line names, as indices into the schema.
fn header(text: &[u8], schema: &Schema) -> Result<Vec<usize>, ApiError> {
    let wrong = |why: String| {
        let known: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        ApiError::bad_request(format!("the header line {why}; the stream has the columns: {}", known.join(", ")))
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
mod tests {
    use super::*;
    use arrow::array::AsArray;
    use arrow::datatypes::{DataType, Int64Type};

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false), Field::new("s", DataType::Utf8, true)]))
    }

    #[track_caller]
    fn check(kind: TextKind, text: &str, expect: &[(i64, Option<&str>)]) {
        let batches = decode(kind, text.as_bytes(), &schema()).unwrap_or_else(|e| panic!("{text}: {e}"));
        let mut rows = Vec::new();
        for batch in &batches {
            assert_eq!(batch.schema(), schema());
            let (n, s) = (batch.column(0).as_primitive::<Int64Type>(), batch.column(1).as_string::<i32>());
            rows.extend(n.values().iter().copied().zip(s.iter()));
        }
        assert_eq!(rows, expect, "{text}");
    }

    #[test]
    fn rows_of_text() {
        check(TextKind::JsonLines, "{\"n\":1,\"s\":\"a\"}\n\n{\"n\":2}", &[(1, Some("a")), (2, None)]);
        check(TextKind::Json, "[{\"n\":1},\n {\"s\":\"b\",\n\"n\":2}]", &[(1, None), (2, Some("b"))]);
        check(TextKind::Json, "{\n\"n\": 7\n}\n", &[(7, None)]);
        check(TextKind::Csv, "s,n\r\nx,1\r\n\"y,z\",2\r\n", &[(1, Some("x")), (2, Some("y,z"))]);
        check(TextKind::Csv, "n\n5\n", &[(5, None)]);
        check(TextKind::Csv, " \"n\" \n", &[]);
        check(TextKind::Json, "[]", &[]);
        check(TextKind::JsonLines, "", &[]);
    }

    #[track_caller]
    fn fails(kind: TextKind, text: &str, says: &str) {
        let error = decode(kind, text.as_bytes(), &schema()).expect_err(text).to_string();
        assert!(error.contains(says), "{text}: {error}");
    }

    #[test]
    fn one_wrong_record_refuses_all() {
        fails(TextKind::JsonLines, "{\"n\":1}\n{\"n\":\"x\"}\n{\"n\":3}\n", "record 2:");
        fails(TextKind::JsonLines, "{\"n\":1}\n{\"s\":\"x\"}\n", "row 2: column 'n' is NULL");
        fails(TextKind::Json, "[{\"n\":1}, 3]", "the body is not JSON");
        fails(TextKind::Csv, "n,s\n1,a\nb,2\n", "record 2:");
        fails(TextKind::Csv, "n,t\n1,a\n", "names a column 't'");
        fails(TextKind::Csv, "n,n\n1,2\n", "twice");
        fails(TextKind::Csv, "s\na\n", "column 'n' is missing");
        fails(TextKind::Csv, "", "is missing");
    }
}
