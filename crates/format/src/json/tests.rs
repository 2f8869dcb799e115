//! Decoder and encoder together: what comes in, what is refused and why, and that neither the way
//! bytes arrive nor the size of batches changes anything.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Float64Type, Schema, SchemaRef, TimeUnit};
use tidemill_block::{Block, text};

use super::{JsonDecoder, JsonEncoder, JsonOptions};
use crate::buffer::feed;
use crate::options::{OptionSet, RawOptions};
use crate::{BadRecord, Decoder, Encoder, RECORD_BYTES_MAX};

fn options(pairs: &[(&str, &str)]) -> JsonOptions {
    JsonOptions::take(&mut RawOptions::new("table 't'", pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())))).unwrap()
}

fn schema(columns: &[(&str, DataType)]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(|(n, t)| Field::new(*n, t.clone(), true)).collect::<Vec<_>>()))
}

fn item(data_type: DataType) -> Arc<Field> {
    Arc::new(Field::new("item", data_type, true))
}

fn map(value: DataType) -> DataType {
    let entries = DataType::Struct(vec![Field::new("key", DataType::Utf8, false), Field::new("value", value, true)].into());
    DataType::Map(Arc::new(Field::new("entries", entries, false)), false)
}

struct Outcome {
    batch: RecordBatch,
    bad: Vec<BadRecord>,
    records: u64,
    offset: u64,
}

/// Pushes `input` in pieces of the sizes that `chunk` gives, and takes `rows_max` rows at a time.
fn run(mut decoder: JsonDecoder, input: &[u8], mut chunk: impl FnMut() -> usize, rows_max: usize) -> Outcome {
    let mut rest = input;
    let (mut batches, mut bad, mut records, mut offset) = (Vec::new(), Vec::new(), 0, 0);
    let mut ended = false;
    loop {
        while let Some(decoded) = decoder.next(rows_max).unwrap() {
            assert!(decoded.batch.num_rows() + decoded.bad.len() <= rows_max);
            assert!(decoded.records > records && decoded.offset > offset);
            (records, offset) = (decoded.records, decoded.offset);
            batches.push(decoded.batch);
            bad.extend(decoded.bad);
        }
        if rest.is_empty() {
            if ended {
                break;
            }
            decoder.finish();
            ended = true;
        } else {
            let (now, later) = rest.split_at(chunk().min(rest.len()));
            feed(&mut decoder, now, rest.len());
            rest = later;
        }
    }
    assert_eq!(decoder.buffered(), 0);
    Outcome { batch: concat_batches(&decoder.schema(), &batches).unwrap(), bad, records, offset }
}

fn decode(schema: &SchemaRef, pairs: &[(&str, &str)], input: &str) -> Outcome {
    let all: Vec<usize> = (0..schema.fields().len()).collect();
    run(JsonDecoder::new(&options(pairs), schema, &all).unwrap(), input.as_bytes(), || usize::MAX, 1000)
}

fn rows(outcome: &Outcome) -> String {
    text::format(&Block::inserts(outcome.batch.clone(), 0)).lines().map(|l| l[2..].trim()).collect::<Vec<_>>().join("; ")
}

#[track_caller]
fn reads(data_type: DataType, value: &str, expect: &str) {
    let outcome = decode(&schema(&[("c", data_type)]), &[], &format!("{{\"c\":{value}}}"));
    assert_eq!(outcome.bad, [], "{value}");
    assert_eq!(rows(&outcome), expect, "{value}");
}

#[track_caller]
fn refuses(data_type: DataType, value: &str, expect: &str) {
    let outcome = decode(&schema(&[("c", data_type)]), &[], &format!("{{\"c\":{value}}}\n{{\"c\":null}}"));
    assert_eq!(outcome.bad.iter().map(|b| b.reason.as_str()).collect::<Vec<_>>(), [expect], "{value}");
    assert_eq!(rows(&outcome), "NULL", "the neighbour of {value}");
}

#[test]
fn values_of_every_type() {
    use DataType::*;
    reads(Int64, "-9223372036854775808", "-9223372036854775808");
    reads(Int64, " 12 ", "12");
    reads(Int64, "\" +7 \"", "7");
    reads(Int64, "1e3", "1000");
    reads(Int32, "2.0", "2");
    reads(Int8, "-128", "-128");
    reads(Float64, "1.5e-3", "0.0015");
    reads(Float64, "\"NaN\"", "NaN");
    reads(Float32, "\"2.5\"", "2.5");
    reads(Boolean, "true", "true");
    reads(Boolean, "\"FALSE\"", "false");
    reads(Utf8, "12.50", "12.50");
    reads(Utf8, "true", "true");
    reads(Utf8, "{\"a\": [1,\"}\"]}", "{\"a\": [1,\"}\"]}");
    reads(Utf8, r#""a\"b\\\/\u00e9\ud83d\ude00 long enough for a chunk""#, "a\"b\\/é😀 long enough for a chunk");
    reads(Decimal128(10, 2), "12.345", "12.35");
    reads(Decimal128(10, 2), "\"-0.5\"", "-0.50");
    reads(Decimal128(10, 2), "1e2", "100.00");
    reads(Date32, "\"2024-02-29\"", "2024-02-29");
    reads(Time32(TimeUnit::Millisecond), "\"08:09:10.5\"", "08:09:10.500");
    reads(Timestamp(TimeUnit::Millisecond, None), "\"2024-01-31 08:00:00.5\"", "2024-01-31T08:00:00.500");
    reads(Timestamp(TimeUnit::Microsecond, Some("UTC".into())), "\"2024-01-31T08:00:00Z\"", "2024-01-31T08:00:00Z");
    reads(Timestamp(TimeUnit::Microsecond, None), "1700000000001", "2023-11-14T22:13:20.001");
    reads(Binary, "\"/w8=\"", "ff0f");
    reads(List(item(Int32)), "[1, null ,3]", "[1, NULL, 3]");
    reads(List(item(Int32)), "[ ]", "[]");
    reads(map(Int64), r#"{"a":1,"b\u0021":null}"#, "{a: 1, b!: NULL}");
    reads(Struct(vec![Field::new("x", Int32, true), Field::new("y", Utf8, true)].into()), r#"{"y":"v","z":[{}]}"#, "{x: NULL, y: v}");
}

#[test]
fn doubles_are_the_nearest_there_are() {
    let read = |text: &str| decode(&schema(&[("c", DataType::Float64)]), &[], &format!("{{\"c\":{text}}}"));
    let few = ["0", "-0", "0.1", "-0.0", "12345.67", "-99999.99", "0.000001", "0.30000000000001", "999999999999999", "1234567890.12345"];
    let many =
        ["9007199254740993", "0.3333333333333333", "1234567890.123456", "0.000000000000001", "1E2", "17.5e-3", "123456789012345678901234"];
    for text in few.into_iter().chain(many) {
        let outcome = read(text);
        let found = outcome.batch.column(0).as_primitive::<Float64Type>().value(0);
        assert_eq!(found.to_bits(), text.parse::<f64>().unwrap().to_bits(), "{text}");
    }
    for text in ["01", "00.5", "1.", ".5", "-", "-.5", "1.5.2", "1e", "1.5x", "+1"] {
        assert_eq!(read(text).bad.len(), 1, "{text}");
    }
}

#[test]
fn names_of_any_length_are_found_in_any_order() {
    let names: Vec<String> = (1..=20).map(|n| "n".repeat(n)).collect();
    let columns: Vec<(&str, DataType)> = names.iter().map(|n| (n.as_str(), DataType::Int64)).collect();
    let forth: Vec<usize> = (0..names.len()).collect();
    let back: Vec<usize> = forth.iter().rev().copied().collect();
    let records: [&[usize]; 10] = [&forth, &forth, &back, &back, &forth, &[3, 15], &[13], &[14], &[15], &[19]];
    let record = |fields: &[usize]| {
        let fields: Vec<String> = fields.iter().map(|i| format!("\"{}\":{i}", names[*i])).collect();
        format!("{{{}}}", fields.join(","))
    };
    let row = |fields: &[usize]| {
        let values: Vec<String> = forth.iter().map(|i| if fields.contains(i) { i.to_string() } else { "NULL".into() }).collect();
        values.join(" ")
    };
    let outcome = decode(&schema(&columns), &[], &records.map(record).join("\n"));
    assert_eq!(rows(&outcome), records.map(row).join("; "));
}

#[test]
fn values_that_do_not_fit() {
    use DataType::*;
    refuses(Int64, "1.5", "column 'c': 1.5 is not a BIGINT");
    refuses(Int64, "9223372036854775808", "column 'c': 9223372036854775808 is not a BIGINT");
    refuses(Int8, "128", "column 'c': 128 is not a TINYINT");
    refuses(Int64, "true", "column 'c': true is not a BIGINT");
    refuses(Float64, "\"abc\"", "column 'c': \"abc\" is not a DOUBLE");
    refuses(Boolean, "1", "column 'c': 1 is not a BOOLEAN");
    refuses(Decimal128(4, 2), "123", "column 'c': 123 is not a DECIMAL(4, 2)");
    refuses(Date32, "\"2024-02-30\"", "column 'c': \"2024-02-30\" is not a DATE");
    refuses(Timestamp(TimeUnit::Millisecond, None), "\"soon\"", "column 'c': \"soon\" is not a TIMESTAMP(3)");
    refuses(Binary, "\"%\"", "column 'c': \"%\" is not a BYTES");
    refuses(List(item(Int32)), "[1,[2]]", "column 'c[]': [2] is not a INT");
    refuses(map(Int64), "{\"a\":1,\"b\":\"x\"}", "column 'c[]': \"x\" is not a BIGINT");
    refuses(Struct(vec![Field::new("x", Int32, true)].into()), "{\"x\":\"u\"}", "column 'c.x': \"u\" is not a INT");
    refuses(
        Utf8,
        "\"a\\ud800\"",
        "not a JSON object: expected a whole character (this is half of a surrogate pair) but found '\\\\' at byte 8 of the record",
    );
    refuses(Int64, "007", "not a JSON object: expected a number but found '}' at byte 9 of the record");
    refuses(Int64, "1 2", "not a JSON object: expected ',' or '}' but found '2' at byte 8 of the record");
    refuses(Int64, "1}}", "not a JSON object: expected nothing more but found '}' at byte 8 of the record");
    refuses(Int64, "1,", "not a JSON object: expected a field name but found '}' at byte 8 of the record");
    refuses(Int64, "1,\"u\":{\"v\":[1,2}}", "not a JSON object: expected ',' or ']' but found '}' at byte 21 of the record");
    refuses(Int64, "", "not a JSON object: expected a value but found '}' at byte 6 of the record");
}

#[test]
fn offsets_records_blank_lines_and_bad_bytes() {
    let schema = schema(&[("a", DataType::Int64)]);
    let mut input = b"\xEF\xBB\xBF{\"a\":1}\r\n\n  \n[1]\n{\"a\":2,\"x\":\"".to_vec();
    input.extend_from_slice(b"\xff\"}\n{\"a\":3,\"x\":\"\xc3\xa9\"}\n{\"a\":4}");
    for rows_max in [1, 2, 100] {
        let decoder = JsonDecoder::new(&options(&[]), &schema, &[0]).unwrap();
        let outcome = run(decoder, &input, || usize::MAX, rows_max);
        assert_eq!(rows(&outcome), "1; 3; 4");
        assert_eq!((outcome.records, outcome.offset), (5, input.len() as u64));
        let bad: Vec<_> = outcome.bad.iter().map(|b| (b.record, b.offset, b.raw.as_slice(), b.reason.as_str())).collect();
        assert_eq!(
            bad,
            [
                (1, 16, &b"[1]"[..], "not a JSON object: expected '{' but found '[' at byte 1 of the record"),
                (2, 20, &b"{\"a\":2,\"x\":\"\xff\"}"[..], "the record is not valid UTF-8")
            ]
        );
    }
}

#[test]
fn missing_unknown_repeated_and_reordered_fields() {
    let two = schema(&[("a", DataType::Int64), ("b", DataType::Utf8)]);
    let input = "{\"a\":1,\"b\":\"x\"}\n{\"b\":\"y\",\"a\":2}\n{\"b\":\"z\"}\n{}\n{\"a\":1,\"a\":3,\"u\":{\"a\":9},\"\\u0062\":\"w\"}";
    assert_eq!(rows(&decode(&two, &[], input)), "1 x; 2 y; NULL z; NULL NULL; 3 w");
    let strict = decode(&two, &[("json.fail-on-missing-field", "true")], input);
    assert_eq!(rows(&strict), "1 x; 2 y; 3 w");
    assert_eq!(strict.bad[0].reason, "column 'a': the record has no such field");
    let required = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, false)]));
    let outcome = decode(&required, &[], "{\"a\":1}\n{\"a\":null}\n{}");
    assert_eq!(rows(&outcome), "1");
    assert_eq!(outcome.bad[0].reason, "column 'a': the value is null, but the column is BIGINT NOT NULL");
    let decoder = JsonDecoder::new(&options(&[]), &two, &[1]).unwrap();
    assert_eq!(rows(&run(decoder, input.as_bytes(), || 5, 10)), "x; y; z; NULL; w");
    let decoder = JsonDecoder::new(&options(&[]), &two, &[]).unwrap();
    assert_eq!(run(decoder, input.as_bytes(), || 5, 2).batch.num_rows(), 5);
}

#[test]
fn an_endless_record_is_an_error_behind_the_good_ones() {
    let schema = schema(&[("a", DataType::Int64)]);
    let mut decoder = JsonDecoder::new(&options(&[]), &schema, &[0]).unwrap();
    decoder.push(b"{\"a\":1}\n");
    decoder.push(&vec![b'x'; RECORD_BYTES_MAX + 1]);
    assert_eq!(decoder.next(10).unwrap().unwrap().offset, 8);
    assert_eq!(decoder.next(10).unwrap_err().to_string(), "the record at byte 8 is longer than 64 MB; is this one JSON object a line?");
}

/// Rows and bad records (offset, bytes) of a document, which do not depend on where it is cut, nor on where reading goes on.
#[track_caller]
fn document(form: &str, input: &[u8], expect: &str, bad: &[(u64, &str)]) {
    let schema = schema(&[("a", DataType::Int64), ("s", DataType::Utf8)]);
    let decoder = || JsonDecoder::new(&options(&[("json.form", form)]), &schema, &[0, 1]).unwrap();
    let shown = String::from_utf8_lossy(input);
    for cut in 1..=input.len() {
        for rows_max in [1, 100] {
            let mut pieces = [cut, usize::MAX].into_iter();
            let twice = run(decoder(), input, || pieces.next().unwrap_or(usize::MAX), rows_max);
            for outcome in [twice, run(decoder(), input, || cut, rows_max)] {
                assert_eq!(rows(&outcome), expect, "{shown} cut at {cut}");
                let found: Vec<_> = outcome.bad.iter().map(|b| (b.offset, String::from_utf8_lossy(&b.raw))).collect();
                assert_eq!(found.iter().map(|(at, raw)| (*at, &**raw)).collect::<Vec<_>>(), bad, "{shown} cut at {cut}");
            }
        }
    }
    // What is left behind each record.
    let mut whole = decoder();
    whole.push(input);
    whole.finish();
    let (mut before, mut bad_before) = (Vec::new(), 0);
    while let Some(decoded) = whole.next(1).unwrap() {
        before.push(decoded.batch);
        bad_before += decoded.bad.len();
        let rest = run(decoder().in_the_middle(), &input[decoded.offset as usize..], || 3, 2);
        assert_eq!(bad_before + rest.bad.len(), bad.len(), "{shown} gone on with at {}", decoded.offset);
        let all = concat_batches(&schema, before.iter().chain([&rest.batch])).unwrap();
        assert_eq!(rows(&Outcome { batch: all, ..rest }), expect, "{shown} gone on with at {}", decoded.offset);
    }
}

#[test]
fn documents() {
    for form in ["document", "auto"] {
        document(form, b"[{\"a\":1,\"s\":\"x\"},\n {\"a\":2}]\n", "1 x; 2 NULL", &[]);
        document(form, b"[\n  {\n    \"a\": 1,\n    \"s\": \"}]\"\n  },\n  {}\n]", "1 }]; NULL NULL", &[]);
        document(form, b"{\n\"a\":1} {\"a\":2,\n\"s\":[{},\"]\"]}\n", "1 NULL; 2 [{},\"]\"]", &[]);
        document(form, b"\xEF\xBB\xBF{\"a\":1}\r\n\n{\"a\":2}", "1 NULL; 2 NULL", &[]);
        document(form, b"[{\"a\":1},{\"a\":x},{\"a\":3},7]", "1 NULL; 3 NULL", &[(9, "{\"a\":x}"), (25, "7")]);
        document(form, b"[{\"s\":\"\xff\"},{\"a\":2}]", "2 NULL", &[(1, "{\"s\":\"\u{fffd}\"}")]);
        document(form, b"[{\"a\":1},\n{\"a\":\"2},\n{\"a\":3}\n]", "1 NULL; 3 NULL", &[(10, "{\"a\":\"2}")]);
        document(form, b"[{\"a\":1},{\"a\"", "1 NULL", &[(9, "{\"a\"")]);
    }
    document("auto", b"{\"a\":1}\n[1]\n{\"a\":2}\n", "1 NULL; 2 NULL", &[(8, "[1]")]);
}

#[test]
fn a_document_that_was_cut_is_an_error_behind_its_rows() {
    let schema = schema(&[("a", DataType::Int64)]);
    let mut decoder = JsonDecoder::new(&options(&[("json.form", "document")]), &schema, &[0]).unwrap();
    decoder.push(b"[{\"a\":1},\n");
    decoder.finish();
    assert_eq!(decoder.next(10).unwrap().unwrap().offset, 8);
    for _ in 0..2 {
        let error = decoder.next(10).unwrap_err().to_string();
        assert_eq!(error, "the array is not closed at byte 10, where the text ends; it was cut, or is still being written");
    }
}

/// Good and bad records in random pieces and batch sizes give what they give at once.
#[test]
fn pieces_do_not_matter() {
    let nested =
        DataType::Struct(vec![Field::new("x", DataType::Int32, true), Field::new("l", DataType::List(item(DataType::Utf8)), true)].into());
    let schema = schema(&[("n", DataType::Int64), ("s", DataType::Utf8), ("o", nested), ("m", map(DataType::Float64))]);
    let lines = [
        r#"{"n":1,"s":"plain","o":{"x":1,"l":["a","b"]},"m":{"k":1.5}}"#,
        r#"{"n":2,"s":"esc\n\u00e9","o":null,"m":{}}"#,
        r#"{"n":3,"s":"bad at the end","o":{"x":1,"l":["a","b"]},"m":{"k":1.5,"l":"x"}}"#,
        r#"{"n":4,"s":"bad in a list","o":{"x":1,"l":["a","b",}]},"m":{}}"#,
        r#"{"m":{"z":0},"n":5}"#,
        "",
        "{\"s\":\"\u{20ac} euro\",\"unknown\":[{\"a\":\"}\"}],\"n\":6}\r",
        "no json",
    ];
    let mut seed = 0x5eed_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for round in 0..40 {
        let mut input = Vec::new();
        for _ in 0..random(60) + 1 {
            input.extend_from_slice(lines[random(lines.len() as u64) as usize].as_bytes());
            if random(20) == 0 {
                input.push(0xe2); // half a character
            }
            input.push(b'\n');
        }
        if random(2) == 0 {
            input.pop();
        }
        let decoder = || JsonDecoder::new(&options(&[]), &schema, &[0, 1, 2, 3]).unwrap();
        let whole = run(decoder(), &input, || usize::MAX, usize::MAX);
        let (piece, rows_max) = if round == 0 { (1, 1) } else { (random(50) + 1, random(9) + 1) };
        let pieces = run(decoder(), &input, || random(piece) as usize + 1, rows_max as usize);
        assert_eq!(whole.batch, pieces.batch, "round {round}");
        assert_eq!((whole.bad, whole.records), (pieces.bad, pieces.records), "round {round}");
    }
}

#[track_caller]
fn writes(data_type: DataType, value: &str, pairs: &[(&str, &str)], expect: &str) {
    let batch = decode(&schema(&[("c", data_type.clone())]), &[], &format!("{{\"c\":{value}}}")).batch;
    let mut out = Vec::new();
    JsonEncoder::new(&options(pairs), &batch.schema()).unwrap().encode(&Block::inserts(batch, 0), &mut out).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), format!("{expect}\n"));
}

#[test]
fn values_written_as_flink_does() {
    use DataType::*;
    let iso = [("json.timestamp-format.standard", "ISO-8601")];
    let zoned = Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
    writes(Int64, "-12", &[], r#"{"c":-12}"#);
    writes(Float64, "100", &[], r#"{"c":100.0}"#);
    writes(Float64, "\"Infinity\"", &[], r#"{"c":"Infinity"}"#);
    writes(Decimal128(10, 2), "12.5", &[], r#"{"c":12.50}"#);
    writes(Decimal128(12, 9), "0.000000027", &[], r#"{"c":2.7E-8}"#);
    writes(Decimal128(12, 9), "0.000000027", &[("json.encode.decimal-as-plain-number", "true")], r#"{"c":0.000000027}"#);
    writes(Utf8, r#""a\"\\\n\u0001é""#, &[], r#"{"c":"a\"\\\n\u0001é"}"#);
    writes(Date32, "\"2024-02-29\"", &[], r#"{"c":"2024-02-29"}"#);
    writes(Timestamp(TimeUnit::Microsecond, None), "\"2024-01-31 08:00:00.1200\"", &[], r#"{"c":"2024-01-31 08:00:00.12"}"#);
    writes(zoned.clone(), "\"2024-01-31 08:00:00\"", &[], r#"{"c":"2024-01-31 08:00:00Z"}"#);
    writes(zoned, "\"2024-01-31 08:00:00\"", &iso, r#"{"c":"2024-01-31T08:00:00Z"}"#);
    writes(Binary, "\"/w8=\"", &[], r#"{"c":"/w8="}"#);
    writes(List(item(Utf8)), "[\"a\",null]", &[], r#"{"c":["a",null]}"#);
    writes(map(Int64), "{\"a\":1,\"b\":null}", &[], r#"{"c":{"a":1,"b":null}}"#);
    writes(Int64, "null", &[], r#"{"c":null}"#);
    writes(Int64, "null", &[("json.encode.ignore-null-fields", "true")], "{}");
    let error = JsonEncoder::new(&options(&[]), &schema(&[("d", Duration(TimeUnit::Second))])).err().unwrap().to_string();
    assert!(error.starts_with("column 'd': the json format cannot write"), "{error}");
}

#[test]
fn what_is_written_reads_back() {
    let nested = DataType::Struct(
        vec![Field::new("x\"y", DataType::Int32, true), Field::new("l", DataType::List(item(DataType::Utf8)), true)].into(),
    );
    let schema = schema(&[
        ("id", DataType::Int64),
        ("o", nested),
        ("m", map(DataType::Decimal128(20, 4))),
        ("t", DataType::Timestamp(TimeUnit::Nanosecond, None)),
        ("f", DataType::Float32),
    ]);
    let input = "{\"id\":1,\"o\":{\"x\\\"y\":5,\"l\":[\"\\t\",null,\"\"]},\"m\":{\"k\":-12.5},\"t\":\"1969-12-31 23:59:59.000000001\",\"f\":1e30}\n{\"o\":{},\"m\":{}}\n{\"id\":null}";
    let first = decode(&schema, &[], input);
    assert_eq!(first.bad, []);
    for skip_nulls in ["false", "true"] {
        let mut out = Vec::new();
        let mut encoder = JsonEncoder::new(&options(&[("json.encode.ignore-null-fields", skip_nulls)]), &schema).unwrap();
        // Slices share the columns of the whole; each must write its own rows.
        for row in 0..first.batch.num_rows() {
            encoder.encode(&Block::inserts(first.batch.slice(row, 1), 0), &mut out).unwrap();
        }
        assert_eq!(decode(&schema, &[], std::str::from_utf8(&out).unwrap()).batch, first.batch);
    }
}
