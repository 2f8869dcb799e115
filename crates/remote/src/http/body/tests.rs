//! Tests of `body`.

use super::*;
use arrow::datatypes::{DataType, Field, Schema};
use std::io::Write;
use std::sync::{Arc, Mutex};
use tidemill_format::compression::writer;
use tidemill_format::options::RawOptions;

fn format(name: &str, more: &[(&str, &str)]) -> Format {
    let raw = more.iter().map(|(k, v)| (k.to_string(), v.to_string()));
    Format::Text(TextFormat::take(name, &mut RawOptions::new("t", raw)).unwrap())
}

fn request() -> ReadRequest {
    ReadRequest::all(Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true), Field::new("s", DataType::Utf8, true)])))
}

#[test]
fn kinds_of_bodies() {
    assert_eq!(Kind::of("application/json; charset=utf-8"), Some(Kind::Json));
    assert_eq!(Kind::of("Application/X-NDJSON"), Some(Kind::JsonLines));
    assert_eq!(Kind::of("text/csv;header=present"), Some(Kind::Csv));
    assert_eq!(Kind::of("application/vnd.apache.arrow.stream"), Some(Kind::Arrow));
    assert_eq!((Kind::of("text/plain"), Kind::of("")), (None, None));
    let (csv, json) = (format("csv", &[]), format("json", &[]));
    assert!(Kind::Csv.fits(&csv) && !Kind::Csv.fits(&json) && !Kind::Csv.fits(&Format::Arrow));
    assert!(Kind::JsonLines.fits(&json) && !Kind::Json.fits(&csv) && Kind::Arrow.fits(&csv) && Kind::Arrow.fits(&Format::Arrow));
    assert_eq!((packing("GZIP"), packing("identity"), packing("br")), (Some(Compression::Gzip), Some(Compression::None), None));
}

#[track_caller]
fn check(kind: Kind, packing: Compression, body: &[u8], format: &Format, expect: Result<&str, &str>) {
    match (open(kind, packing, body.to_vec(), 100, format, &request()), expect) {
        (Ok((Payload::Text(text), bytes)), Ok(expect)) => {
            assert_eq!((String::from_utf8(text).unwrap().as_str(), bytes), (expect, expect.len()));
        }
        (Err(refusal), Err(part)) => assert!(refusal.text().contains(part), "{}", refusal.text()),
        (found, _) => panic!("{found:?}"),
    }
}

#[test]
fn texts() {
    let (csv, json) = (format("csv", &[]), format("json", &[]));
    let plain = Compression::None;
    check(Kind::Json, plain, b"[{},{}]", &json, Ok(" {}\n{} "));
    check(Kind::Json, plain, b"[{},", &json, Err("400 the body cannot be read: as JSON: the array is not closed"));
    check(Kind::JsonLines, plain, b"[{},", &json, Ok("[{},"));
    check(Kind::Csv, plain, b"x,y\n", &csv, Ok("x,y\n"));
    let header = format("csv", &[("csv.header", "true")]);
    check(Kind::Csv, plain, b"n,s\nx,y\n", &header, Ok("n,s\nx,y\n"));
    check(Kind::Csv, plain, b"n,s", &header, Ok("n,s"));
    check(Kind::Csv, plain, b"", &header, Ok(""));
    check(Kind::Csv, plain, b"s,n\nx,y\n", &header, Err("400 the body cannot be read: the header line names"));
    check(Kind::Arrow, plain, b"n,s\n", &csv, Err("400 the body cannot be read"));
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn packed_texts() {
    let json = format("json", &[]);
    for packing in [Compression::Gzip, Compression::Zstd] {
        let packed = |text: &str| {
            let shared = Shared::default();
            let mut writer = writer(Box::new(shared.clone()), packing, None).unwrap();
            writer.write_all(text.as_bytes()).unwrap();
            writer.finish().unwrap();
            std::mem::take(&mut *shared.0.lock().unwrap())
        };
        check(Kind::JsonLines, packing, &packed("{}\n{}\n"), &json, Ok("{}\n{}\n"));
        // A little that becomes much.
        check(Kind::JsonLines, packing, &packed(&" ".repeat(100_000)), &json, Err("413 the body is longer than 100 bytes"));
        check(Kind::JsonLines, packing, &packed("{}\n{}\n")[..12], &json, Err("400 the body cannot be read"));
        check(Kind::JsonLines, packing, b"{}", &json, Err("400 the body cannot be read"));
    }
}
