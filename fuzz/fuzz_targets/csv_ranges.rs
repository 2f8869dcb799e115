//! CSV that several read, each its ranges: the rows are those of one reader, or there is an error. That a range ends where
//! no record does is seen as the reader of files sees it.
//!
//! The first byte says how large ranges are, the second how far behind a cut is looked, the third chooses options, and
//! whether it is looked at all, or all quotes are counted.

#![no_main]

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use libfuzzer_sys::fuzz_target;
use tidemill_block::{Block, text};
use tidemill_connect::filesystem::ranges_of;
use tidemill_format::options::RawOptions;
use tidemill_format::text::TextFormat;

/// Rows and bad records, these by where they begin in the file.
#[derive(Debug, Default, PartialEq)]
struct Found {
    rows: Vec<String>,
    bad: Vec<(u64, String, Vec<u8>)>,
}

fn schema() -> SchemaRef {
    let field = |name: &str, kind: DataType| Field::new(name, kind, true);
    Arc::new(Schema::new(vec![field("n", DataType::Int64), field("a", DataType::Utf8), field("b", DataType::Utf8)]))
}

/// What is in a range; none if there is an error.
fn read(format: &TextFormat, bytes: &[u8], (start, end): (u64, u64)) -> Option<Found> {
    let schema = schema();
    let all: Vec<usize> = (0..schema.fields().len()).collect();
    let mut decoder = format.decoder_at(&schema, &all, start == 0).expect("columns that the format has");
    decoder.push(&bytes[start as usize..end as usize]);
    // Another reader goes on behind it.
    let another = end < bytes.len() as u64 && format.multiline();
    if !another {
        decoder.finish();
    }
    let mut found = Found::default();
    while let Some(decoded) = decoder.next(100).ok()? {
        found.rows.extend(text::format(&Block::inserts(decoded.batch, 0)).lines().map(String::from));
        found.bad.extend(decoded.bad.into_iter().map(|bad| (start + bad.offset, bad.reason, bad.raw)));
    }
    (!another || decoder.buffered() == 0).then_some(found)
}

fuzz_target!(|data: &[u8]| {
    let [range, look, choice, bytes @ ..] = data else { return };
    let flag = |bit: u8| if choice & bit > 0 { "true" } else { "false" };
    let options = [
        ("csv.disable-quote-character", flag(1)),
        ("csv.trim-spaces", flag(2)),
        ("csv.empty-string-as-null", flag(4)),
        ("csv.ignore-trailing-unmappable", flag(8)),
    ];
    let mut raw = RawOptions::new("table 't'", options.map(|(name, value)| (name.to_string(), value.to_string())));
    let format = TextFormat::take("csv", &mut raw).expect("options that there are");
    let (size, look) = (bytes.len() as u64, (choice & 16 == 0).then_some(u64::from(*look) + 1));
    let ranges = ranges_of(&bytes.to_vec(), u64::from(*range) + 1, &format, look).expect("memory can be read");
    assert!(ranges[0].0 == 0 && ranges[ranges.len() - 1].1 == size);
    assert!(ranges.windows(2).all(|pair| pair[0].1 == pair[1].0 && pair[1].0 < pair[1].1));
    let Some(whole) = read(&format, bytes, (0, size)) else { return };
    let mut parts = Found::default();
    for range in ranges {
        // As a job would fail.
        let Some(found) = read(&format, bytes, range) else { return };
        parts.rows.extend(found.rows);
        parts.bad.extend(found.bad);
    }
    assert_eq!(parts, whole);
});
