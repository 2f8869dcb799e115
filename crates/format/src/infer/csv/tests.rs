//! Tests of what is found in CSV samples: dialects, headers, comments, types, and what is refused.

use super::*;
use crate::types::type_name;

/// `delimiter quote header | name TYPE, …`
#[track_caller]
fn check(sample: &str, expect: &str) {
    let (sniff, schema) = infer_csv(sample.as_bytes(), true).unwrap();
    let columns: Vec<_> = schema.fields().iter().map(|f| format!("{} {}", f.name(), type_name(f.data_type()))).collect();
    let header = if sniff.header { "header" } else { "none" };
    assert_eq!(format!("{} {} {header} | {}", sniff.delimiter.escape_default(), sniff.quote, columns.join(", ")), expect, "{sample:?}");
}

#[test]
fn dialects_headers_and_types() {
    check("id,name,at\n1,ann,2024-01-01\n2,bob,2024-01-02\n", ", \" header | id BIGINT, name STRING, at DATE");
    check("1;2,5;x\n2;3,5;y\n", "; \" none | column0 BIGINT, column1 STRING, column2 STRING");
    check("a\tb\r\n1.5\ttrue\r\n2\tfalse\r\n", "\\t \" header | a DOUBLE, b BOOLEAN");
    check("t|v\n2024-01-01 00:00:00|1\n2024-01-01 00:00:01.5|\n", "| \" header | t TIMESTAMP(6), v BIGINT");
    check("1,2,3\n4,5,6\n", ", \" none | column0 BIGINT, column1 BIGINT, column2 BIGINT");
    check("city,country\nBerlin,DE\nParis,FR\n", ", \" header | city STRING, country STRING");
    check("x,y\nx,z\n", ", \" none | column0 STRING, column1 STRING");
    check("n\n1\n2\n", ", \" header | n BIGINT");
    check("a,b,c", ", \" header | a STRING, b STRING, c STRING");
    check("1,b", ", \" none | column0 BIGINT, column1 STRING");
    check("a,a,,a\n1,2,3,4\n", ", \" header | a BIGINT, a_1 BIGINT, column2 BIGINT, a_2 BIGINT");
}

#[test]
fn quotes_hide_delimiters_and_line_ends() {
    check("k,v\n1,\"a;b;c;d\"\n2,\"x\n;y;z;\"\"q\"\"\"\n", ", \" header | k BIGINT, v STRING");
    check("'k','v'\n'1','a,b'\n'2','c,d'\n", ", ' header | k BIGINT, v STRING");
    check("k,v\n1,it's\n2,o'clock\n", ", \" header | k BIGINT, v STRING");
}

#[test]
fn a_cut_last_line_does_not_count() {
    let (_, schema) = infer_csv(b"a,b\n1,2\n3,abc", false).unwrap();
    assert_eq!(schema.field(1).data_type(), &DataType::Int64);
    let (_, schema) = infer_csv(b"a,b\n1,2\n3,\"abc\nd", false).unwrap();
    assert_eq!(schema.field(1).data_type(), &DataType::Int64);
    assert!(infer_csv(b"a,b", false).unwrap_err().to_string().contains("one whole line"));
    assert!(infer_csv(b"\n \n", true).unwrap_err().to_string().contains("empty file"));
}

#[test]
fn the_delimiter_of_nasty_samples() {
    // Decimal commas.
    check("1,5;2,5\n3,5;4,5\n", "; \" none | column0 STRING, column1 STRING");
    check("a;b;c\n1,5;2,5;3,5\n", "; \" header | a STRING, b STRING, c STRING");
    // Sentences with commas.
    check("id;text\n1;hello, world\n2;foo, bar, baz\n3;x\n", "; \" header | id BIGINT, text STRING");
    check("id\ttext\n1\tx, y\n2\tz, w\n", "\\t \" header | id BIGINT, text STRING");
    check("a|x, y|1\nb|z|2\n", "| \" none | column0 STRING, column1 STRING, column2 BIGINT");
    // Times, addresses and paths have colons.
    check("2024-01-01 10:00:00\n2024-01-02 11:30:59\n", ", \" none | column0 TIMESTAMP(6)");
    check("2024-01-01 10:00:00,5\n2024-01-02 11:30:59,6\n", ", \" none | column0 TIMESTAMP(6), column1 BIGINT");
    check("http://a.b/c,5\nhttp://a.b/d,6\n", ", \" none | column0 STRING, column1 BIGINT");
    check("h,00:1a:2b:3c\ni,00:1b:2b:3c\n", ", \" none | column0 STRING, column1 STRING");
    // And divide where nothing else does.
    check("root:x:0:/root\nbin:x:1:/bin\n", ": \" none | column0 STRING, column1 STRING, column2 BIGINT, column3 STRING");
    check("k:v\na:1\nb:2\n", ": \" header | k STRING, v BIGINT");
    // Some records are ragged.
    check("a,b,c\n1,2\n3,4,5,6\n7,8,9\n", ", \" header | a BIGINT, b BIGINT, c BIGINT, column3 BIGINT");
    check("just a line of text\nand another\n", ", \" header | just a line of text STRING");
    check("\u{feff}id;n\r\n\r\n1;2\r\n", "; \" header | id BIGINT, n BIGINT");
}

#[test]
fn comments_are_told_from_headers_and_data() {
    #[track_caller]
    fn comments(sample: &str, expect: bool, columns: &str) {
        let (sniff, schema) = infer_csv(sample.as_bytes(), true).unwrap();
        let names: Vec<_> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        assert_eq!((sniff.comments, names.join(",")), (expect, columns.to_string()), "{sample:?}");
    }
    comments("# made today; by hand\nid,name\n1,ann\n2,bob\n", true, "id,name");
    comments("# one, two\n#\nid,name\n1,ann\n", true, "id,name");
    comments("id,name\n1,ann\n#2,bob,x\n3,eve\n", true, "id,name");
    comments("#id,name\n1,ann\n2,bob\n", false, "#id,name");
    comments("tag,n\n#rust,1\n#sql,2\n", false, "tag,n");
    comments("n\n# x\n1\n2\n", true, "n");
    comments("#a\n#b\n", false, "#a");
    comments("id,note\n1,\"\n# no comment\"\n", false, "id,note");
}

#[test]
fn what_is_said_wins() {
    let known =
        |pairs: &[(&str, &str)]| CsvKnown::default().with_options(&pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect());
    let columns = |sample: &str, pairs: &[(&str, &str)]| {
        let (_, schema) = infer_csv_as(sample.as_bytes(), true, &known(pairs)).unwrap();
        schema.fields().iter().map(|f| format!("{} {}", f.name(), type_name(f.data_type()))).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(columns("a;b,c\n1;2,3\n", &[("csv.field-delimiter", ",")]), "a;b STRING, c BIGINT");
    assert_eq!(columns("a,b\n1,2\n", &[("csv.header", "false")]), "column0 STRING, column1 STRING");
    assert_eq!(columns("1,2\n3,4\n", &[("csv.header", "skip")]), "1 BIGINT, 2 BIGINT");
    assert_eq!(columns("a,b\nNA,x\n3,NA\n", &[("csv.null-literal", "NA")]), "a BIGINT, b STRING");
    assert_eq!(columns("a,b\n\"1,2\n", &[("csv.disable-quote-character", "true")]), "a STRING, b BIGINT");
    assert_eq!(columns("a,b\n1,\"x\\\",y\"\n", &[("csv.escape-character", "\\")]), "a BIGINT, b STRING");
    assert_eq!(
        columns("#a,b\n# 1,2,3\n1,2\n", &[("csv.allow-comments", "true"), ("csv.header", "false")]),
        "column0 BIGINT, column1 BIGINT"
    );
    let first = CsvKnown { delimiter: Some('|'), ..CsvKnown::default() };
    let options = [("csv.field-delimiter".to_string(), ";".to_string())].into();
    assert_eq!(first.with_options(&options).delimiter, Some('|'), "what was known before");
}

#[test]
fn what_is_no_csv_is_refused() {
    for (sample, why) in [
        (&b"a,b\n1,\0\n"[..], "byte 6 is zero; is it compressed, or is it UTF-16"),
        (b"\"a,b\n1,2\n3,4\n", "a quote (\") is opened in the first line and not closed"),
        (b"m\xfcde,b\n1,2\n", "the header line is not UTF-8 ('m\u{fffd}de'); say in which encoding the file is"),
        (b"", "empty file"),
    ] {
        let error = infer_csv(sample, true).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    // A quote that is opened further down does not hide what stands before it.
    let (_, schema) = infer_csv(b"a,b\n1,2\n3,\"4\n", true).unwrap();
    assert_eq!(schema.field(0).data_type(), &DataType::Int64);
}
