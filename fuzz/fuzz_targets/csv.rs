//! CSV, cut anywhere: what comes out does not depend on where, nor on whether texts are views that are kept while the decoder goes on.
//!
//! The first byte says how the rest is cut, the second chooses options.

#![no_main]

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use libfuzzer_sys::fuzz_target;
use tidemill_block::{Block, text};
use tidemill_format::options::RawOptions;
use tidemill_format::text::TextFormat;

fn schema(texts: DataType) -> SchemaRef {
    let kinds = [
        DataType::Int8,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::Float32,
        DataType::Float64,
        DataType::Boolean,
        texts.clone(),
        DataType::Binary,
        DataType::Date32,
        DataType::Time32(TimeUnit::Millisecond),
        DataType::Timestamp(TimeUnit::Millisecond, None),
        DataType::Timestamp(TimeUnit::Nanosecond, None),
        DataType::Decimal128(20, 4),
        texts,
    ];
    Arc::new(Schema::new(kinds.into_iter().enumerate().map(|(i, kind)| Field::new(format!("c{i}"), kind, true)).collect::<Vec<_>>()))
}

/// Rows and bad records; the error that ended it, if one did.
fn run(format: &TextFormat, texts: DataType, bytes: &[u8], piece: usize) -> (Vec<String>, Vec<String>, Option<String>) {
    let schema = schema(texts);
    let all: Vec<usize> = (0..schema.fields().len()).collect();
    let mut decoder = format.decoder(&schema, &all).expect("columns that the format has");
    let (mut batches, mut bad) = (Vec::new(), Vec::new());
    let mut pieces = bytes.chunks(piece);
    let error = 'end: loop {
        let piece = pieces.next();
        match piece {
            Some(piece) => decoder.push(piece),
            None => decoder.finish(),
        }
        loop {
            match decoder.next(3) {
                Ok(None) => break,
                Err(error) => break 'end Some(error.to_string()),
                Ok(Some(decoded)) => {
                    assert!(decoded.offset <= bytes.len() as u64);
                    batches.push(decoded.batch);
                    bad.extend(decoded.bad.iter().map(|bad| format!("{bad:?}")));
                }
            }
        }
        if piece.is_none() {
            break None;
        }
    };
    let rows = batches.into_iter().map(|batch| text::format(&Block::inserts(batch, 0)));
    (rows.flat_map(|rows| rows.lines().map(String::from).collect::<Vec<_>>()).collect(), bad, error)
}

fuzz_target!(|data: &[u8]| {
    let [piece, choice, bytes @ ..] = data else { return };
    let flag = |bit: u8| if choice & bit > 0 { "true" } else { "false" };
    let options = [
        ("csv.disable-quote-character", flag(1)),
        ("csv.allow-comments", flag(2)),
        ("csv.trim-spaces", flag(4)),
        ("csv.empty-string-as-null", flag(8)),
        ("csv.ignore-trailing-unmappable", flag(16)),
        ("csv.header", if choice & 32 > 0 { "skip" } else { "false" }),
    ];
    let mut raw = RawOptions::new("table 't'", options.map(|(name, value)| (name.to_string(), value.to_string())));
    let format = TextFormat::take("csv", &mut raw).expect("options that there are");
    let whole = run(&format, DataType::Utf8, bytes, bytes.len().max(1));
    assert_eq!(run(&format, DataType::Utf8View, bytes, *piece as usize + 1), whole);
});
