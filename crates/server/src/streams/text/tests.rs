//! Text to rows, all of them or none.

use super::*;
use arrow::datatypes::{Int8Type, Int64Type};

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

#[test]
fn what_a_row_does_is_a_text() {
    let kind = Field::new(ROW_KIND, DataType::Int8, true);
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false), kind]));
    let text = b"{\"n\":1}\n{\"row_kind\":\"-U\",\"n\":1}\n{\"n\":2,\"row_kind\":\"+U\"}\n{\"n\":2,\"row_kind\":3}\n";
    let batches = decode(TextKind::JsonLines, text, &schema).unwrap();
    assert_eq!(batches[0].schema(), schema);
    let kinds: Vec<_> = batches[0].column(1).as_primitive::<Int8Type>().iter().collect();
    assert_eq!(kinds, [None, Some(1), Some(2), Some(3)]);
    let error = decode(TextKind::Csv, b"n,row_kind\n1,+I\n2,*\n", &schema).unwrap_err().to_string();
    assert!(error.contains("row 2: column 'row_kind' is '*'"), "{error}");
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

#[test]
fn text_that_is_no_utf_8_is_refused() {
    let texts: [(TextKind, &[u8]); 2] =
        [(TextKind::JsonLines, b"{\"n\":1,\"s\":\"a\"}\n{\"n\":2,\"s\":\"\xe9\"}\n"), (TextKind::Csv, b"n,s\n1,a\n2,\xe9\n")];
    for (kind, text) in texts {
        let error = decode(kind, text, &schema()).unwrap_err().to_string();
        assert!(error.contains("record 2: ") && error.contains("UTF-8"), "{error}");
    }
}
