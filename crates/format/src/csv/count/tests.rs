//! Tests of `count`: it must find what the decoder finds.

use arrow::datatypes::{DataType, Field};

use super::*;
use crate::buffer::feed;
use crate::options::{OptionSet, RawOptions};

/// Rows, bad records and the offset at the end.
type Seen = (usize, Vec<BadRecord>, u64, u64);

fn options(pairs: &[(&str, &str)]) -> CsvOptions {
    CsvOptions::take(&mut RawOptions::new("t", pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())))).unwrap()
}

fn schema(columns: usize) -> SchemaRef {
    Arc::new(Schema::new((0..columns).map(|i| Field::new(format!("c{i}"), DataType::Utf8, true)).collect::<Vec<_>>()))
}

fn run(mut decoder: impl Decoder, input: &[u8], cut: usize, rows: usize) -> Seen {
    let mut seen: Seen = Default::default();
    let mut drain = |decoder: &mut dyn Decoder| {
        while let Some(decoded) = decoder.next(rows).unwrap() {
            assert!(decoded.batch.num_rows() + decoded.bad.len() <= rows);
            seen.0 += decoded.batch.num_rows();
            seen.1.extend(decoded.bad);
            (seen.2, seen.3) = (decoded.offset, decoded.records);
        }
    };
    for (number, piece) in input.chunks(cut.max(1)).enumerate() {
        feed(&mut decoder, piece, number);
        drain(&mut decoder);
    }
    decoder.finish();
    drain(&mut decoder);
    seen
}

#[track_caller]
fn check(pairs: &[(&str, &str)], columns: usize, input: &[u8]) {
    let (options, schema) = (options(pairs), schema(columns));
    let expect = run(CsvDecoder::new(&options, &schema, &[]).unwrap(), input, usize::MAX, usize::MAX >> 1);
    for (cut, rows) in [(usize::MAX, 1000), (1, 1), (7, 3), (64, 1000), (100, 2)] {
        let seen = run(CsvCounter::new(&options, &schema).unwrap(), input, cut, rows);
        assert_eq!(seen, expect, "cut {cut}, rows {rows}: {:?}", String::from_utf8_lossy(input));
    }
}

#[test]
fn records_are_counted_as_the_decoder_counts_them() {
    let long: String = (0..100).map(|n| format!("{n},some text,\"quoted {n}\n,\",{}\n", n * 7)).collect();
    check(&[], 4, long.as_bytes());
    check(&[("csv.disable-quote-character", "true")], 4, long.as_bytes());
    check(&[], 2, b"a,b\n\n\r\nc,d,\r\ne\nf,g,h\n,\ni,j");
    check(&[("csv.fail-on-missing-columns", "false"), ("csv.ignore-trailing-unmappable", "true")], 3, b"a\nb,c,d,e,f\ng,h,i\n");
    check(&[("csv.allow-trailing-comma", "false")], 1, b"a\nb,\n\nc");
    check(&[("csv.allow-comments", "true")], 2, b"#x,y\na,b\n#\nc,d");
    check(&[("csv.escape-character", "\\")], 2, b"\"a\\\"\n,\",b\nc,d\n");
    check(&[], 2, b"a,\"never closed\nb,c\n");
    check(&[], 2, b"a,b\n\"c,d");
    check(&[("csv.allow-comments", "true")], 2, b"a,b\n#,\"c,d");
    check(&[], 2, b"\xef\xbb\xbfa,b\nc\n");
    check(&[], 1, b"\xef\xbb");
    check(&[("csv.header", "true"), ("csv.allow-comments", "true")], 2, b"\n#x\r\n\r\nc0,c1\na,b\n\"c,d");
    check(&[("csv.header", "skip")], 2, b"whatever\na,b\nc,d\n");
    check(&[("csv.header", "skip")], 2, b"no line end");
    check(&[("csv.header", "true")], 2, b"c0,\"c1\"\r\na,b\nc\n");
    // The header and the first record share 64 bytes, or not, or the record goes beyond them.
    for width in [1, 20, 60, 200] {
        let lines = format!("c0,c1,c2\n{0},b,{0}\n{0},{0},c\n", "x".repeat(width));
        check(&[("csv.header", "skip")], 3, lines.as_bytes());
        check(&[("csv.header", "true")], 3, lines.as_bytes());
    }
}

#[test]
fn a_wrong_header_is_an_error() {
    let mut counter = CsvCounter::new(&options(&[("csv.header", "true")]), &schema(2)).unwrap();
    counter.push(b"c1,c0");
    assert!(counter.next(10).unwrap().is_none());
    counter.push(b"\na,b\n");
    assert!(counter.next(10).unwrap_err().to_string().starts_with("the header line names the columns (c1, c0)"));
}

#[test]
fn random_text_is_counted_alike() {
    let mut seed = 11u64;
    let mut next = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize
    };
    let alphabet = b"aaaa1111,,\"\n\r#";
    for round in 0..600 {
        let input: Vec<u8> = (0..next() % 400).map(|_| alphabet[next() % alphabet.len()]).collect();
        let (comments, header) = (if round % 2 == 0 { "true" } else { "false" }, if round % 5 == 0 { "skip" } else { "false" });
        check(&[("csv.allow-comments", comments), ("csv.header", header)], 1 + round % 3, &input);
    }
}
