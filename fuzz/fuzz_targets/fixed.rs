//! Fixed-width text, cut anywhere: what comes out does not depend on where.
//!
//! The first byte says how the rest is cut, the second chooses options.

#![no_main]

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use libfuzzer_sys::fuzz_target;
use tidemill_block::{Block, text};
use tidemill_format::options::RawOptions;
use tidemill_format::text::TextFormat;

/// Lines that end with the last column, lines whose last column is their rest, and columns that lie over each other.
const WIDTHS: [&str; 4] = [
    "3,5,5,4,10,19,6,4",
    "3,5,5,4,10,19,6,*",
    "c0:1-3,c1:2-6,c2:5-9,c3:3-*,c4:1-10,c5:1-19,c6:4-9,c7:8",
    "c7:5-8,c6:1-4,c5:1-19,c4:30-39,c3:25-28,c2:20-24,c1:2-6,c0:1-3",
];

fn schema() -> SchemaRef {
    let kinds = [
        DataType::Int32,
        DataType::Float64,
        DataType::Boolean,
        DataType::Utf8,
        DataType::Date32,
        DataType::Timestamp(TimeUnit::Millisecond, None),
        DataType::Decimal128(20, 4),
        DataType::Binary,
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
        ("fixed.widths", WIDTHS[usize::from(choice & 3)]),
        ("fixed.trim", ["both", "end", "none", "both"][usize::from((choice >> 2) & 3)]),
        ("fixed.allow-short-lines", if choice & 16 > 0 { "true" } else { "false" }),
        ("fixed.header", if choice & 32 > 0 { "skip" } else { "false" }),
        ("fixed.null-literal", if choice & 64 > 0 { "-" } else { "" }),
    ];
    let mut raw = RawOptions::new("table 't'", options.map(|(name, value)| (name.to_string(), value.to_string())));
    let format = TextFormat::take("fixed", &mut raw).expect("options that there are");
    let whole = run(&format, bytes, bytes.len().max(1));
    assert_eq!(run(&format, bytes, *piece as usize + 1), whole);
});
