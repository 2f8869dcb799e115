//! JSON lines and documents, cut anywhere: what comes out does not depend on where.
//!
//! The first byte says how the rest is cut, the second chooses options.

#![no_main]

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use libfuzzer_sys::fuzz_target;
use tidemill_block::{Block, text};
use tidemill_format::options::RawOptions;
use tidemill_format::text::TextFormat;

fn schema() -> SchemaRef {
    let kinds = [
        DataType::Int8,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::Float32,
        DataType::Float64,
        DataType::Boolean,
        DataType::Utf8,
        DataType::Binary,
        DataType::Date32,
        DataType::Time32(TimeUnit::Millisecond),
        DataType::Timestamp(TimeUnit::Millisecond, None),
        DataType::Timestamp(TimeUnit::Nanosecond, None),
        DataType::Decimal128(20, 4),
    ];
    Arc::new(Schema::new(kinds.into_iter().enumerate().map(|(i, kind)| Field::new(format!("c{i}"), kind, true)).collect::<Vec<_>>()))
}

/// Rows and bad records; the error that ended it, if one did.
fn run(format: &TextFormat, bytes: &[u8], piece: usize) -> (Vec<String>, Vec<String>, Option<String>) {
    let schema = schema();
    let all: Vec<usize> = (0..schema.fields().len()).collect();
    let mut decoder = format.decoder(&schema, &all).expect("columns that the format has");
    let (mut rows, mut bad) = (Vec::new(), Vec::new());
    let mut pieces = bytes.chunks(piece);
    loop {
        let piece = pieces.next();
        match piece {
            Some(piece) => decoder.push(piece),
            None => decoder.finish(),
        }
        loop {
            match decoder.next(3) {
                Ok(None) => break,
                Err(error) => return (rows, bad, Some(error.to_string())),
                Ok(Some(decoded)) => {
                    assert!(decoded.offset <= bytes.len() as u64);
                    rows.extend(text::format(&Block::inserts(decoded.batch, 0)).lines().map(String::from));
                    bad.extend(decoded.bad.iter().map(|bad| format!("{bad:?}")));
                }
            }
        }
        if piece.is_none() {
            return (rows, bad, None);
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let [piece, choice, bytes @ ..] = data else { return };
    let options = [
        ("json.fail-on-missing-field", if choice & 1 > 0 { "true" } else { "false" }),
        // Seeds that chose nothing but the first option are lines.
        ("json.form", ["lines", "document", "auto", "document"][usize::from((choice >> 1) & 3)]),
    ];
    let mut raw = RawOptions::new("table 't'", options.map(|(name, value)| (name.to_string(), value.to_string())));
    let format = TextFormat::take("json", &mut raw).expect("options that there are");
    let whole = run(&format, bytes, bytes.len().max(1));
    assert_eq!(run(&format, bytes, *piece as usize + 1), whole);
});
