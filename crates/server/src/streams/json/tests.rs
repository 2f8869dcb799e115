//! Tests of `json`.

use super::*;
use arrow::array::{Int8Array, Int64Array};
use tidemill_hub::ROW_KIND;

fn lines(updating: bool) -> String {
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true), Field::new(ROW_KIND, DataType::Int8, false)]));
    let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(vec![Some(1), None])), Arc::new(Int8Array::from(vec![1, 2]))];
    let batch = RecordBatch::try_new(schema.clone(), columns).unwrap();
    let mut out = Vec::new();
    JsonLines::new(&schema, updating).unwrap().encode(&batch, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn kinds_are_text_where_rows_are_updated() {
    assert_eq!(lines(true), "{\"n\":1,\"row_kind\":\"-U\"}\n{\"n\":null,\"row_kind\":\"+U\"}\n");
    assert_eq!(lines(false), "{\"n\":1,\"row_kind\":1}\n{\"n\":null,\"row_kind\":2}\n");
}

#[test]
fn lines_as_events_and_as_an_array() {
    let mut out = Vec::new();
    events(b"{\"n\":1}\n{\"n\":2}\n", Some(8), &mut out);
    assert_eq!(String::from_utf8(out).unwrap(), "id: 8\ndata: {\"n\":1}\n\nid: 9\ndata: {\"n\":2}\n\n");
    assert_eq!(array(b"{\"n\":1}\n{\"n\":2}\n"), b"[{\"n\":1},{\"n\":2}]");
    assert_eq!(array(b""), b"[]");
}

#[track_caller]
fn check(text: &str, expect: Result<&str, &str>) {
    let found = values_as_lines(text.as_bytes()).map(|lines| String::from_utf8(lines).unwrap());
    match (&found, expect) {
        (Ok(found), Ok(expect)) => assert_eq!(found, expect, "{text}"),
        (Err(found), Err(expect)) => assert!(found.contains(expect), "{text}: {found}"),
        _ => panic!("{text}: {found:?}"),
    }
}

#[test]
fn values_of_a_text() {
    check("[]", Ok(""));
    check("", Ok(""));
    check("[ {\"a\": 1},\n {\"a\": \"}]\\\"\"} ]", Ok("{\"a\": 1}\n{\"a\": \"}]\\\"\"}\n"));
    check("{\n\"a\": [1,\n2]\n}", Ok("{ \"a\": [1, 2] }\n"));
    check("{\"a\":1}{\"a\":2}\n{\"a\":3}", Ok("{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n"));
    check("[{\"a\":1}", Err("not closed"));
    check("[{\"a\":1]", Err("not closed"));
    check("[{\"a\":1},]", Err("behind the last"));
    check("[{} {}]", Err("comma is missing"));
    check("[,{}]", Err("','"));
    check("3", Err("'3'"));
    check("{\"a\": \"", Err("not closed"));
    check("{}}", Err("too many"));
}
