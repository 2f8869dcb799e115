//! Tests of fixed-width text: layouts, reading in pieces, what is bad, writing and reading back.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use tidemill_block::{Block, text};

use super::layout::Layout;
use super::*;
use crate::buffer::feed;
use crate::options::{OptionSet, RawOptions};
use crate::text::TextFormat;
use crate::{Decoder, Encoder};

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("s", DataType::Utf8, true),
        Field::new("n", DataType::Int64, true),
        Field::new("d", DataType::Date32, true),
    ]))
}

fn options(pairs: &[(&str, &str)]) -> FixedOptions {
    FixedOptions::take(&mut RawOptions::new("t", pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())))).unwrap()
}

#[test]
fn layouts() {
    let of = |widths: &str| {
        let layout = Layout::of(widths, &["a", "b"]).map_err(|e| e.to_string())?;
        Ok::<_, String>((layout.places.iter().map(|place| (place.start, place.end)).collect::<Vec<_>>(), layout.exact))
    };
    assert_eq!(of("3, 5").unwrap(), (vec![(0, 3), (3, 8)], Some(8)));
    assert_eq!(of("3,*").unwrap(), (vec![(0, 3), (3, usize::MAX)], None));
    assert_eq!(of("b:1-2, a:5").unwrap(), (vec![(4, 5), (0, 2)], None));
    assert_eq!(of("A:1-2,b:9-*").unwrap(), (vec![(0, 2), (8, usize::MAX)], None));
    for (widths, why) in [
        ("3", "there are 1 widths for 2 columns (a, b)"),
        ("*,3", "the rest of the line ('*') is the last column"),
        ("3,0", "'0' is neither a width"),
        ("3,", "'' is neither a width"),
        ("a:1-2,5", "give each column its place by name"),
        ("a:1-2", "it lacks the column 'b'"),
        ("a:1-2,b:3-4,c:5-6", "there is no column 'c'; the columns are a, b"),
        ("a:1-2,a:3-4,b:5", "the column 'a' has two places"),
        ("a:3-2,b:1-1", "'a:3-2' is neither"),
        ("a:0-2,b:1-1", "'a:0-2' is neither"),
        (":1-2,b:1-1", "':1-2' is neither"),
        ("99999999999999999999,1", "is neither a width"),
        ("16777216,16777216", "at most"),
    ] {
        let error = of(widths).unwrap_err();
        assert!(error.contains(why), "{widths}: {error}");
    }
}

/// Decodes `input` pushed in pieces of `cut` bytes, `rows` rows at a time: rows, bad records, the offset at the end.
fn decode(decoder: &mut dyn Decoder, input: &[u8], cut: usize, rows: usize) -> (String, Vec<(u64, u64, String)>, u64) {
    let (mut out, mut bad, mut offset) = (String::new(), Vec::new(), 0);
    let mut drain = |decoder: &mut dyn Decoder| {
        while let Some(decoded) = decoder.next(rows).unwrap() {
            out += &text::format(&Block::inserts(decoded.batch, 0));
            bad.extend(decoded.bad.into_iter().map(|b| (b.record, b.offset, b.reason)));
            offset = decoded.offset;
        }
    };
    for (number, piece) in input.chunks(cut).enumerate() {
        feed(decoder, piece, number);
        drain(decoder);
    }
    decoder.finish();
    drain(decoder);
    (out, bad, offset)
}

#[track_caller]
fn check(pairs: &[(&str, &str)], input: &str, expect: &str, expect_bad: &[(u64, u64, &str)]) {
    for (cut, rows) in [(usize::MAX, 1000), (1, 1), (7, 3), (usize::MAX, 1)] {
        let mut decoder = FixedDecoder::new(&options(pairs), &schema(), &[0, 1, 2]).unwrap();
        let (out, bad, offset) = decode(&mut decoder, input.as_bytes(), cut, rows);
        let lines: Vec<_> = out.lines().map(str::trim_end).collect();
        let expect: Vec<_> = expect.lines().collect();
        assert_eq!(lines, expect, "cut {cut}, rows {rows}");
        let bad: Vec<_> = bad.iter().map(|(record, offset, why)| (*record, *offset, why.as_str())).collect();
        assert_eq!(bad, expect_bad, "cut {cut}, rows {rows}");
        assert_eq!(offset, input.len() as u64, "cut {cut}, rows {rows}");
    }
}

const WIDTHS: (&str, &str) = ("fixed.widths", "4,5,10");

#[test]
fn lines_become_rows() {
    check(&[WIDTHS], "ab      12024-01-02\ncd    -23          \r\n\n", "+I ab 1 2024-01-02\n+I cd -23 NULL", &[]);
    check(&[WIDTHS], "  ab 0001          ", "+I ab 1 NULL", &[]);
    check(&[WIDTHS, ("fixed.trim", "end")], "ab      1          \n", "+I ab 1 NULL", &[]);
    check(&[WIDTHS, ("fixed.null-literal", "NA")], "NA     NA          \n", "+I NULL NULL NULL", &[]);
    check(&[WIDTHS, ("fixed.header", "true")], "\nS   n    d         \nab      1          \n", "+I ab 1 NULL", &[]);
    check(&[("fixed.widths", "n:1-3,d:9-*,s:5")], "  7 x   2024-01-02\n", "+I x 7 2024-01-02", &[]);
    check(&[WIDTHS, ("fixed.allow-short-lines", "true")], "ab\ncd     2\n", "+I ab NULL NULL\n+I cd 2 NULL", &[]);
}

#[test]
fn characters_are_counted_and_not_bytes() {
    check(&[WIDTHS], "äöü     12024-01-02\nab      2          \n", "+I äöü 1 2024-01-02\n+I ab 2 NULL", &[]);
    check(&[WIDTHS], "日本語字    3          \n", "+I 日本語字 3 NULL", &[]);
    check(&[("fixed.widths", "n:1-3,d:4-13,s:14-*")], "  7          日本\n  8          \n", "+I 日本 7 NULL\n+I NULL 8 NULL", &[]);
    check(&[WIDTHS], "\u{feff}ab      1          \n", "+I ab 1 NULL", &[]);
}

#[test]
fn bad_lines_leave_their_neighbours_alone() {
    check(
        &[WIDTHS],
        "ab      1          \nab      1\nab      x          \nä       1         x\nab      2          \n",
        "+I ab 1 NULL\n+I ab 2 NULL",
        &[
            (1, 20, "has 9 characters, the table's columns end at 19"),
            (2, 30, "column 'n': 'x' is not a BIGINT"),
            (3, 50, "column 'd': 'x' is not a DATE (yyyy-MM-dd)"),
        ],
    );
    check(
        &[WIDTHS],
        "ab      1          x\nab      2           \n",
        "+I ab 2 NULL",
        &[(0, 0, "has 20 characters, 'fixed.widths' ends at 19")],
    );
    check(
        &[WIDTHS],
        "ä       1          x\nab      2           \n",
        "+I ab 2 NULL",
        &[(0, 0, "has 20 characters, 'fixed.widths' ends at 19")],
    );
    let mut decoder = FixedDecoder::new(&options(&[WIDTHS]), &schema(), &[1]).unwrap();
    let (out, bad, _) = decode(&mut decoder, b"\xe4b      1          \nab      2          \n", 100, 10);
    assert_eq!(out, "+I 2\n");
    assert!(bad[0].2.starts_with("byte 1 of the line is not UTF-8") && bad[0].2.ends_with("say it by 'fixed.encoding'"), "{bad:?}");
}

#[test]
fn headers_are_checked_and_no_column_may_be_wanted() {
    let mut decoder = FixedDecoder::new(&options(&[WIDTHS, ("fixed.header", "true")]), &schema(), &[]).unwrap();
    decoder.push(b"s   x    d         \n");
    let error = decoder.next(10).unwrap_err().to_string();
    assert!(error.contains("the header line has (s, x, d), but the table declares (s, n, d)"), "{error}");
    let mut decoder = FixedDecoder::new(&options(&[WIDTHS]), &schema(), &[]).unwrap();
    decoder.push(b"ab      1          \nab\ncd      1          \n");
    let decoded = decoder.next(10).unwrap().unwrap();
    assert_eq!((decoded.batch.num_rows(), decoded.bad.len()), (2, 1));
    let mut decoder = FixedDecoder::new(&options(&[WIDTHS, ("fixed.header", "skip")]), &schema(), &[1]).unwrap().without_header();
    assert_eq!(decode(&mut decoder, b"ab      1          \n", 5, 10).0, "+I 1\n");
}

/// What is written of these rows, or why it cannot be.
fn encode(pairs: &[(&str, &str)], rows: &str) -> Result<String, String> {
    let pairs: Vec<_> = pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let format = TextFormat::take("fixed", &mut RawOptions::new("t", pairs)).unwrap();
    let mut encoder: Box<dyn Encoder> = format.encoder(&schema()).map_err(|e| e.to_string())?;
    let mut out = Vec::new();
    encoder.begin(&mut out);
    encoder.encode(&text::parse(&schema(), rows), &mut out).map_err(|e| e.to_string())?;
    Ok(out.iter().map(|byte| char::from(*byte)).collect())
}

#[test]
fn rows_become_lines() {
    let rows = "+I ab 1 2024-01-02\n+I abcd -1234 NULL\n+I NULL NULL NULL\n";
    assert_eq!(encode(&[WIDTHS], rows).unwrap(), "ab      12024-01-02\nabcd-1234          \n                   \n");
    assert_eq!(
        encode(&[("fixed.widths", "n:1-5,d:7-16,s:18-*"), ("fixed.header", "true"), ("fixed.null-literal", "-")], rows).unwrap(),
        "    n          d s\n    1 2024-01-02 ab\n-1234          - abcd\n    -          - -\n"
    );
    // Latin 1, byte for byte: a place is four characters.
    assert_eq!(encode(&[WIDTHS, ("fixed.encoding", "windows-1252")], "+I äöü 1 NULL\n").unwrap(), "äöü     1          \n");
}

#[test]
fn what_does_not_fit_is_named() {
    for (pairs, rows, why) in [
        (&[WIDTHS][..], "+I abcde 1 NULL\n", "column 's': 'abcde' has 5 characters, its place 4; widen it in 'fixed.widths'"),
        (&[WIDTHS], "+I a 123456 NULL\n", "column 'n': '123456' has 6 characters, its place 5; widen it in 'fixed.widths'"),
        (&[WIDTHS, ("fixed.null-literal", "NA")], "+I NA 1 NULL\n", "column 's': 'NA' is the text that stands for NULL; choose another"),
        (&[WIDTHS, ("fixed.null-literal", "0")], "+I a 0 NULL\n", "column 'n': '0' is the text that stands for NULL; choose another"),
        (&[WIDTHS, ("fixed.null-literal", " -1 ")], "+I a -1 NULL\n", "column 'n': '-1' is the text that stands for NULL"),
        (
            &[("fixed.widths", "10,5,10"), ("fixed.null-literal", "2024-01-02")],
            "+I a 1 2024-01-02\n",
            "'fixed.null-literal' does not fit into column 'n'",
        ),
        (
            &[("fixed.widths", "10,10,10"), ("fixed.null-literal", "2024-01-02")],
            "+I a 1 2024-01-02\n",
            "column 'd': '2024-01-02' is the text that stands for NULL",
        ),
        (&[WIDTHS, ("fixed.null-literal", "empty")], "", "'fixed.null-literal' does not fit into column 's' of 4 characters"),
        (&[("fixed.widths", "s:1-4,n:4-9,d:10-20")], "", "the columns 's' and 'n' overlap"),
        (
            &[WIDTHS, ("fixed.encoding", "windows-1252")],
            "+I aж 1 NULL\n",
            "column 's': 'aж' has the character 'ж', which windows-1252 lacks",
        ),
    ] {
        let error = encode(pairs, rows).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["a\nb"]));
    let block = Block::inserts(RecordBatch::try_from_iter([("s", texts)]).unwrap(), 0);
    let mut encoder = FixedEncoder::new(&options(&[("fixed.widths", "*")]), &block.schema()).unwrap();
    let error = encoder.encode(&block, &mut Vec::new()).unwrap_err().to_string();
    assert_eq!(error, "column 's': 'a\\nb' has a line end, which fixed-width text cannot hold");
    // Blanks that are not told from those that fill the field, and a line with nothing in it.
    for (value, trim, why) in [
        ("NA ", "none", Some("column 's': 'NA ' is the text that stands for NULL; choose another 'fixed.null-literal'")),
        (" NA", "both", Some("column 's': ' NA' is the text that stands for NULL; choose another 'fixed.null-literal'")),
        (" NA", "end", None),
        (" NA", "none", None),
        (
            "",
            "both",
            Some(
                "column 's': a value of no characters makes an empty line, which is passed over in reading; give the column a width \
                 in 'fixed.widths'",
            ),
        ),
    ] {
        let texts: ArrayRef = Arc::new(StringArray::from(vec![value]));
        let block = Block::inserts(RecordBatch::try_from_iter([("s", texts)]).unwrap(), 0);
        let options = options(&[("fixed.widths", "*"), ("fixed.trim", trim), ("fixed.null-literal", "NA")]);
        let mut encoder = FixedEncoder::new(&options, &block.schema()).unwrap();
        let error = encoder.encode(&block, &mut Vec::new()).err().map(|e| e.to_string());
        assert_eq!(error.as_deref(), why, "'{value}' and {trim}");
    }
}

/// NULLs are padded as other values are, so where blanks belong to texts they do not belong to NULLs.
#[test]
fn nulls_read_back_whatever_is_trimmed() {
    let rows = "+I abcd 1 2024-01-02\n+I NULL NULL NULL\n+I efgh NULL 2024-01-03\n+I NULL -2 NULL\n";
    for trim in ["both", "end", "none"] {
        for null in [None, Some("NA"), Some("-"), Some(" NA"), Some("NA "), Some(" ")] {
            for widths in ["4,5,10", "n:1-5,d:7-16,s:18-*"] {
                let mut pairs = vec![("fixed.widths", widths), ("fixed.trim", trim)];
                pairs.extend(null.map(|null| ("fixed.null-literal", null)));
                let text = encode(&pairs, rows).unwrap();
                let mut decoder = FixedDecoder::new(&options(&pairs), &schema(), &[0, 1, 2]).unwrap();
                let (read, bad, _) = decode(&mut decoder, text.as_bytes(), usize::MAX, 100);
                assert_eq!((read.as_str(), bad.len()), (rows, 0), "{pairs:?}: {text}");
            }
        }
    }
    // A text that is there and empty is none of them, where something else stands for NULL.
    let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("x"), Some(""), None]));
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    let block = Block::inserts(RecordBatch::try_from_iter_with_nullable([("n", numbers, true), ("s", texts, true)]).unwrap(), 0);
    for widths in ["3,*", "3,4"] {
        let options = options(&[("fixed.widths", widths), ("fixed.null-literal", "NA")]);
        let mut out = Vec::new();
        FixedEncoder::new(&options, &block.schema()).unwrap().encode(&block, &mut out).unwrap();
        let mut decoder = FixedDecoder::new(&options, &block.schema(), &[0, 1]).unwrap();
        assert_eq!(decode(&mut decoder, &out, usize::MAX, 100).0, "+I 1 x\n+I 2 \n+I 3 NULL\n", "{widths}");
    }
}

#[test]
fn what_was_written_reads_back_in_any_encoding() {
    let rows = "+I 日本 1 2024-01-02\n+I ab -1234 NULL\n+I NULL NULL NULL\n";
    for encoding in ["utf-8", "utf-16", "utf-16be", "shift_jis", "gb18030", "euc-jp"] {
        let pairs = [WIDTHS, ("fixed.encoding", encoding), ("fixed.header", "skip")].map(|(k, v)| (k.to_string(), v.to_string()));
        let format = TextFormat::take("fixed", &mut RawOptions::new("t", pairs)).unwrap();
        let block = text::parse(&schema(), rows);
        let mut out = Vec::new();
        let mut encoder = format.encoder(&schema()).unwrap();
        encoder.begin(&mut out);
        encoder.encode(&block, &mut out).unwrap();
        for cut in [1, 3, usize::MAX] {
            let (read, bad, _) = decode(&mut *format.decoder(&schema(), &[0, 1, 2]).unwrap(), &out, cut, 2);
            assert_eq!((read, bad.len()), (text::format(&block), 0), "{encoding}");
        }
    }
}
