//! Messages in and out, in every format: what a message becomes, which are bad and why, and that rows come
//! back as they went.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use arrow::array::Array;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use tidemill_block::{Block, text};

use super::{MessageBuffer, MessageFormat, Place, SchemaRegistry};
use crate::options::RawOptions;

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("k", DataType::Utf8, true), Field::new("n", DataType::Int64, true)]))
}

fn one(data_type: DataType) -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("v", data_type, true)]))
}

fn format(name: &str, options: &[(&str, &str)]) -> MessageFormat {
    let options = [("format", name)].into_iter().chain(options.iter().copied()).map(|(k, v)| (k.to_string(), v.to_string()));
    let mut raw = RawOptions::new("table 't'", options);
    let format = MessageFormat::take(&mut raw, "").unwrap().unwrap();
    raw.finish().unwrap();
    format
}

/// The rows as text, the message of each, and the bad ones.
fn decode(format: &MessageFormat, schema: &SchemaRef, messages: &[Option<&[u8]>]) -> (String, Vec<u32>, Vec<(u32, String)>) {
    let all: Vec<usize> = (0..schema.fields().len()).collect();
    let mut decoder = format.decoder(schema, &all).unwrap();
    let mut answer = None;
    let (mut bytes, mut places) = (b"\xffbetween".to_vec(), Vec::new());
    for message in messages {
        places.push(Place { from: bytes.len() as u32, length: message.map_or(-1, |m| m.len() as i32) });
        bytes.extend_from_slice(message.unwrap_or_default());
        bytes.push(0x80);
    }
    // Several times, since a decoder begins anew when its rows were taken: one by one, as they lie in a buffer, and some in either way.
    for one_by_one in [messages.len(), 0, 1, messages.len() / 2] {
        let (some, others) = (&messages[..one_by_one.min(messages.len())], &places[one_by_one.min(messages.len())..]);
        some.iter().for_each(|message| decoder.push(*message));
        decoder.push_all(&bytes, others);
        assert_eq!(decoder.pending(), messages.len());
        let decoded = decoder.take().unwrap();
        assert_eq!(decoder.pending(), 0);
        let rows = decoded.batch.num_rows();
        let origins = decoded.origins.unwrap_or_else(|| (0..rows as u32).collect());
        assert_eq!(origins.len(), rows);
        let block = match decoded.kinds {
            Some(kinds) => Block::changelog(decoded.batch, kinds.into(), 0),
            None => Block::inserts(decoded.batch, 0),
        };
        let now = (text::format(&block), origins, decoded.bad);
        if let Some(before) = answer.replace(now.clone()) {
            assert_eq!(before, now, "{one_by_one} one by one");
        }
    }
    answer.unwrap()
}

#[track_caller]
fn check(format: &MessageFormat, schema: &SchemaRef, messages: &[Option<&[u8]>], expect: &str, origins: &[u32], bad: &[(u32, &str)]) {
    let (rows, from, found) = decode(format, schema, messages);
    let expect: Vec<&str> = expect.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    assert_eq!(rows.lines().map(str::trim_end).collect::<Vec<_>>(), expect);
    assert_eq!(from, origins);
    assert_eq!(found.len(), bad.len(), "{found:?}");
    for ((number, reason), (message, part)) in found.iter().zip(bad) {
        assert_eq!(number, message);
        assert!(reason.contains(part), "{reason}");
    }
}

fn encode(format: &MessageFormat, block: &Block) -> MessageBuffer {
    let mut out = MessageBuffer::default();
    format.encoder(&block.schema()).unwrap().encode(block, &mut out).unwrap();
    assert_eq!(out.ends.len(), block.rows());
    out
}

#[track_caller]
fn check_back(format: &MessageFormat, block: &Block) {
    let out = encode(format, block);
    let messages: Vec<Option<&[u8]>> = out.iter().map(Some).collect();
    let (rows, ..) = decode(format, &block.schema(), &messages);
    assert_eq!(rows, text::format(block), "{}", format.name());
}

#[test]
fn json_messages() {
    let json = format("json", &[]);
    check(
        &json,
        &schema(),
        &[Some(b"{\"k\":\"a\",\n \"n\":1}"), Some(b" {\"n\":2} "), Some(b"{\"k\":\"c\"}")],
        "+I a 1\n+I NULL 2\n+I c NULL",
        &[0, 1, 2],
        &[],
    );
    check(
        &json,
        &schema(),
        &[Some(b"{\"n\":1}"), Some(b"{\"k\":\"x\",\"n\":\"y\"}"), None, Some(b""), Some(b"{\"n\":5}x"), Some(b"\xff"), Some(b"{\"n\":6}")],
        "+I NULL 1\n+I NULL 6",
        &[0, 6],
        &[(1, "column 'n'"), (3, "expected"), (4, "nothing more"), (5, "UTF-8")],
    );
    // An array of objects is as many rows; one that is bad takes none of them.
    check(
        &json,
        &schema(),
        &[Some(b"[{\"n\":1},{\"n\":2}]"), Some(b"[]"), Some(b"[{\"n\":3},{\"n\":\"x\"}]"), Some(b"{\"n\":4}")],
        "+I NULL 1\n+I NULL 2\n+I NULL 4",
        &[0, 0, 3],
        &[(2, "column 'n'")],
    );
}

#[test]
fn csv_messages() {
    let csv = format("csv", &[]);
    check(&csv, &schema(), &[Some(b"a,1"), Some(b"\"x\ny\",2\n"), Some(b"c,")], "+I a 1\n+I x\ny 2\n+I c NULL", &[0, 1, 2], &[]);
    check(
        &csv,
        &schema(),
        &[Some(b"a,1"), Some(b"\"open,2"), None, Some(b"b,x"), Some(b""), Some(b"c,3\nd,4"), Some(b"e,5")],
        "+I a 1\n+I c 3\n+I d 4\n+I e 5",
        &[0, 5, 5, 6],
        &[(1, "never closed"), (3, "'x' is not a BIGINT"), (4, "empty")],
    );
    let mut raw = RawOptions::new("table 't'", [("format", "csv"), ("csv.header", "true")].map(|(k, v)| (k.to_string(), v.to_string())));
    assert!(MessageFormat::take(&mut raw, "").err().unwrap().to_string().contains("messages have no header line"));
}

#[test]
fn messages_in_other_encodings() {
    let csv = format("csv", &[("csv.encoding", "shift_jis")]);
    let messages: [Option<&[u8]>; 3] = [Some(b"\x93\xfa,1"), Some(b"\x93"), Some(b"a,2")];
    check(&csv, &schema(), &messages, "+I 日 1\n+I a 2", &[0, 2], &[(1, "byte 0 of the text is not Shift_JIS")]);
    let block = text::parse(&schema(), "+I 日本 1\n+I a 2\n");
    for encoding in ["shift_jis", "utf-16", "gb18030"] {
        check_back(&format("csv", &[("csv.encoding", encoding)]), &block);
        check_back(&format("raw", &[("raw.charset", encoding)]), &text::parse(&one(DataType::Utf8), "+I 日本\n+I a\n"));
    }
    check(&format("raw", &[("raw.charset", "windows-1251")]), &one(DataType::Utf8), &[Some(b"\xc6")], "+I Ж", &[0], &[]);
    let latin = format("csv", &[("csv.encoding", "latin1")]);
    let error = latin.encoder(&schema()).unwrap().encode(&block, &mut MessageBuffer::default()).unwrap_err().to_string();
    assert!(error.starts_with("column 'k': '日本' has the character '日', which windows-1252 lacks"), "{error}");
}

/// Those that came in several pieces had their memory made twice as large again and again.
#[test]
fn raw_messages_have_room_for_as_many_as_came_before() {
    let mut decoder = format("raw", &[]).decoder(&one(DataType::Binary), &[0]).unwrap();
    let (bytes, places) = (vec![7u8; 1_000], [Place { from: 0, length: 1_000 }; 9]);
    let mut taken = || {
        (0..10).for_each(|_| decoder.push_all(&bytes, &places));
        decoder.take().unwrap().batch.column(0).to_data().buffers()[1].capacity()
    };
    assert!(taken() >= 90_000);
    assert_eq!(taken(), 90_000 + 90_000 / 8);
}

#[test]
fn raw_messages() {
    let raw = format("raw", &[]);
    let texts = one(DataType::Utf8);
    let messages: [Option<&[u8]>; 5] = [Some(b"a"), None, Some(b""), Some(b"\xff"), Some(b"b")];
    check(&raw, &texts, &messages, "+I a\n+I NULL\n+I\n+I b", &[0, 1, 2, 4], &[(3, "valid text")]);
    // Halves of a character are no text, though they would be one together.
    check(&raw, &texts, &[Some("é".as_bytes()), Some("日本".as_bytes()), Some(b"")], "+I é\n+I 日本\n+I", &[0, 1, 2], &[]);
    check(&raw, &texts, &[Some(b"a\xc3"), Some(b"\xa9b"), Some(b"c")], "+I c", &[2], &[(0, "valid text"), (1, "valid text")]);
    let ascii = format("raw", &[("raw.charset", "US-ASCII")]);
    check(&ascii, &texts, &[Some(b"a"), Some("é".as_bytes()), Some(b"b")], "+I a\n+I b", &[0, 2], &[(1, "valid text")]);
    check(&ascii, &texts, &[Some(b"a"), Some(b"b")], "+I a\n+I b", &[0, 1], &[]);
    check(&raw, &one(DataType::Binary), &[Some(b"\xc3"), Some(b""), Some(b"\xa9")], "+I c3\n+I\n+I a9", &[0, 1, 2], &[]);
    let latin = format("raw", &[("raw.charset", "ISO-8859-1")]);
    check(&latin, &texts, &[Some(b"\xe9")], "+I é", &[0], &[]);
    let utf16 = format("raw", &[("raw.charset", "UTF-16LE")]);
    check(&utf16, &texts, &[Some(b"a\0"), Some(b"a"), Some(b"\0\xd8")], "+I a", &[0], &[(1, "valid text"), (2, "valid text")]);
    let numbers = one(DataType::Int32);
    check(&raw, &numbers, &[Some(b"\0\0\x01\x02"), Some(b"123"), Some(b"\xff\xff\xff\xff")], "+I 258\n+I -1", &[0, 2], &[(1, "3 bytes")]);
    let little = format("raw", &[("raw.endianness", "little-endian")]);
    check(&little, &numbers, &[Some(b"\x02\x01\0\0")], "+I 258", &[0], &[]);
    let wide = raw.decoder(&schema(), &[0]).err().unwrap().to_string();
    assert!(wide.contains("tables of one column, this one has 2"), "{wide}");
    for (format, data_type) in [
        (&raw, DataType::Utf8),
        (&latin, DataType::Utf8),
        (&utf16, DataType::Utf8),
        (&raw, DataType::Int64),
        (&little, DataType::Int16),
        (&raw, DataType::Float64),
        (&raw, DataType::Int8),
    ] {
        check_back(format, &text::parse(&one(data_type), "7\n1\n65"));
    }
    let error = raw.encoder(&texts).unwrap().encode(&text::parse(&texts, "a\nNULL"), &mut MessageBuffer::default());
    assert!(error.unwrap_err().to_string().contains("is NULL in a row"));
}

#[test]
fn debezium_messages() {
    let debezium = format("debezium-json", &[]);
    assert!(debezium.changelog());
    check(
        &debezium,
        &schema(),
        &[
            Some(br#"{"before":null,"after":{"k":"a","n":1},"source":{"x":[1]},"op":"c","ts_ms":1}"#),
            Some(br#"{"op":"r","after":{"k":"b","n":2}}"#),
            Some(br#"{"after":{"k":"a","n":3},"before":{"k":"a","n":1},"op":"u"}"#),
            None,
            Some(br#"{"before":{"k":"b","n":2},"after":null,"op":"d"}"#),
        ],
        "+I a 1\n+I b 2\n-U a 1\n+U a 3\n-D b 2",
        &[0, 1, 2, 2, 4],
        &[],
    );
    check(
        &debezium,
        &schema(),
        &[
            Some(br#"{"before":null,"after":{"k":"a","n":3},"op":"u"}"#),
            Some(br#"{"before":{"n":1},"after":{"n":"x"},"op":"u"}"#),
            Some(br#"{"after":{"n":1},"op":"t"}"#),
            Some(br#"{"schema":1,"payload":{"op":"c","after":{}}}"#),
            Some(br#"{"after":{"n":1},"op":"c"}"#),
        ],
        "+I NULL 1",
        &[4],
        &[(0, "REPLICA IDENTITY FULL"), (1, "column 'n'"), (2, "none of c, r, u, d"), (3, "schema-include")],
    );
    let with_schema = format("debezium-json", &[("debezium-json.schema-include", "true")]);
    check(
        &with_schema,
        &schema(),
        &[Some(br#"{"schema":{"a":1},"payload":{"op":"c","after":{"k":"a","n":1}}}"#), Some(br#"{"op":"c","after":{}}"#)],
        "+I a 1",
        &[0],
        &[(1, "'payload'")],
    );
    let block = text::parse(&schema(), "a 1\n-U a 1\n+U a NULL\n-D b 3");
    let out = encode(&debezium, &block);
    let lines: Vec<&str> = out.iter().map(|m| std::str::from_utf8(m).unwrap()).collect();
    assert_eq!(
        lines,
        [
            r#"{"before":null,"after":{"k":"a","n":1},"op":"c"}"#,
            r#"{"before":{"k":"a","n":1},"after":null,"op":"d"}"#,
            r#"{"before":null,"after":{"k":"a","n":null},"op":"c"}"#,
            r#"{"before":{"k":"b","n":3},"after":null,"op":"d"}"#,
        ]
    );
}

#[test]
fn canal_and_maxwell_messages() {
    let canal = format("canal-json", &[]);
    check(
        &canal,
        &schema(),
        &[
            Some(br#"{"data":[{"k":"a","n":"1"},{"k":"b","n":"2"}],"old":null,"type":"INSERT"}"#),
            Some(br#"{"data":[{"k":"a","n":"3"}],"old":[{"n":"1"}],"type":"UPDATE"}"#),
            Some(br#"{"data":null,"isDdl":true,"type":"CREATE"}"#),
            Some(br#"{"data":[{"k":"b","n":"2"}],"type":"DELETE"}"#),
        ],
        "+I a 1\n+I b 2\n-U a 1\n+U a 3\n-D b 2",
        &[0, 0, 1, 1, 3],
        &[],
    );
    let maxwell = format("maxwell-json", &[]);
    check(
        &maxwell,
        &schema(),
        &[
            Some(br#"{"type":"insert","data":{"k":"a","n":1}}"#),
            Some(br#"{"type":"update","data":{"k":"a","n":3},"old":{"n":null}}"#),
            Some(br#"{"type":"delete","data":{"k":"a","n":3}}"#),
            Some(br#"{"type":"truncate","data":{}}"#),
        ],
        "+I a 1\n-U a NULL\n+U a 3\n-D a 3",
        &[0, 1, 1, 2],
        &[(3, "none of insert")],
    );
    let block = text::parse(&schema(), "a 1\n-D b 3");
    let texts = |format| encode(format, &block).iter().map(|m| String::from_utf8_lossy(m).into_owned()).collect::<Vec<_>>();
    assert_eq!(texts(&canal), [r#"{"data":[{"k":"a","n":1}],"type":"INSERT"}"#, r#"{"data":[{"k":"b","n":3}],"type":"DELETE"}"#]);
    assert_eq!(texts(&maxwell), [r#"{"data":{"k":"a","n":1},"type":"insert"}"#, r#"{"data":{"k":"b","n":3},"type":"delete"}"#]);
}

fn typed() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("b", DataType::Boolean, true),
        Field::new("i", DataType::Int16, true),
        Field::new("n", DataType::Int64, false),
        Field::new("f", DataType::Float64, true),
        Field::new("s", DataType::Utf8, true),
        Field::new("d", DataType::Date32, true),
        Field::new("t", DataType::Timestamp(TimeUnit::Millisecond, None), true),
        Field::new("m", DataType::Decimal128(10, 2), true),
    ]))
}

#[test]
fn rows_come_back_as_they_went() {
    let block = text::parse(
        &typed(),
        "true 1 2 0.5 abc 2024-02-29 2024-01-02T03:04:05.678 12.34
        NULL NULL -7 NULL NULL NULL NULL NULL
        false -3 0 -1.0 é 1969-12-31 1969-12-31T23:59:59.999 -0.01",
    );
    let formats = [
        format("json", &[]),
        format("csv", &[("csv.null-literal", "NULL")]),
        format("avro", &[]),
        format("avro", &[("avro.timestamp_mapping.legacy", "false")]),
    ];
    formats.iter().for_each(|format| check_back(format, &block));
    // Columns are picked and put in another order.
    for format in &formats {
        let name = format.name();
        let out = encode(format, &block);
        let mut decoder = format.decoder(&typed(), &[4, 2]).unwrap();
        out.iter().for_each(|message| decoder.push(Some(message)));
        let rows = decoder.take().unwrap().batch;
        assert_eq!(rows, block.batch.project(&[4, 2]).unwrap(), "{name}");
        let mut decoder = format.decoder(&typed(), &[]).unwrap();
        out.iter().for_each(|message| decoder.push(Some(message)));
        assert_eq!(decoder.take().unwrap().batch.num_rows(), 3, "{name}");
    }
}

#[test]
fn bad_avro_harms_no_neighbour() {
    let avro = format("avro", &[]);
    let block = text::parse(&schema(), "a 1\nb 2\nNULL 3\nd NULL");
    let out = encode(&avro, &block);
    let mut messages: Vec<Vec<u8>> = out.iter().map(<[u8]>::to_vec).collect();
    messages[1].pop();
    messages.insert(2, Vec::new());
    messages.push([messages[0].as_slice(), &[1]].concat());
    let given: Vec<Option<&[u8]>> = messages.iter().map(|m| Some(m.as_slice())).chain([None]).collect();
    check(&avro, &schema(), &given, "+I a 1\n+I NULL 3\n+I d NULL", &[0, 3, 4], &[(1, "Avro schema"), (2, "empty"), (5, "Avro schema")]);
}

/// Schemas in memory.
#[derive(Default)]
struct Registry(Mutex<BTreeMap<u32, String>>);

impl SchemaRegistry for Registry {
    /// From id 1,000,000 on it is as if it were down.
    fn schema(&self, id: u32) -> Result<Option<String>, String> {
        if id < 1_000_000 { Ok(self.0.lock().unwrap().get(&id).cloned()) } else { Err(format!("nobody answers about {id}")) }
    }

    fn register(&self, subject: &str, schema: &str) -> Result<u32, String> {
        assert_eq!(subject, "topic-value");
        let mut all = self.0.lock().unwrap();
        let id = all.len() as u32 + 256;
        all.insert(id, schema.to_string());
        Ok(id)
    }
}

fn confluent(registry: &Arc<Registry>) -> MessageFormat {
    let mut format = format("avro-confluent", &[("avro-confluent.url", "http://localhost:1")]);
    assert_eq!(format.registry_options().unwrap().url, "http://localhost:1");
    format.with_registry(registry.clone());
    format.default_subject("topic-value");
    format
}

#[test]
fn writers_with_other_schemas() {
    let registry = Arc::new(Registry::default());
    let format = confluent(&registry);
    let old: SchemaRef = Arc::new(Schema::new(vec![Field::new("n", DataType::Int32, true), Field::new("gone", DataType::Utf8, false)]));
    let first = encode(&format, &text::parse(&old, "1 x\n2 y"));
    let second = encode(&format, &text::parse(&schema(), "a 3\nb 4"));
    assert_eq!(&first.bytes[..5], [0, 0, 0, 1, 0]);
    let (first, second): (Vec<&[u8]>, Vec<&[u8]>) = (first.iter().collect(), second.iter().collect());
    let messages: [Option<&[u8]>; 6] = [Some(second[0]), Some(first[0]), Some(b"\x01"), Some(second[1]), None, Some(first[1])];
    check(&format, &schema(), &messages, "+I a 3\n+I NULL 1\n+I b 4\n+I NULL 2", &[0, 1, 3, 5], &[(2, "zero byte")]);
    // A schema from elsewhere, with other names of records, enums and times in other units.
    let elsewhere = r#"{"type":"record","name":"Trade","namespace":"com.x","fields":[
        {"name":"n","type":{"type":"long","logicalType":"timestamp-micros"}},
        {"name":"k","type":{"type":"enum","name":"Side","symbols":["buy","sell"]}}]}"#;
    registry.0.lock().unwrap().insert(7, elsewhere.to_string());
    let times: SchemaRef = Arc::new(Schema::new(vec![
        Field::new("k", DataType::Utf8, true),
        Field::new("n", DataType::Timestamp(TimeUnit::Millisecond, None), true),
        Field::new("new", DataType::Int8, true),
    ]));
    // 2,000,000 µs as a zigzag number, then the second symbol.
    check(&format, &times, &[Some(&[0, 0, 0, 0, 7, 0x80, 0x92, 0xf4, 0x01, 2])], "+I sell 1970-01-01T00:00:02 NULL", &[0], &[]);
    // An id that nobody has given is the fault of its message, and harms no other.
    let unknown: &[u8] = &[0, 0, 0, 0, 9, 1];
    let messages = [Some(second[0]), Some(unknown), Some(second[1])];
    check(&format, &schema(), &messages, "+I a 3\n+I b 4", &[0, 2], &[(1, "no schema with the id 9")]);
    check(&format, &schema(), &[Some(unknown)], "", &[], &[(0, "no schema with the id 9")]);
    // A registry that is away is no message's fault.
    let mut decoder = format.decoder(&schema(), &[0]).unwrap();
    decoder.push(Some(&[0, 0x7f, 0, 0, 0, 1]));
    let error = decoder.take().unwrap_err().to_string();
    assert!(error.contains("schema with id 2130706432: nobody answers"), "{error}");
}

#[test]
fn values_that_do_not_fit_are_bad_messages() {
    let registry = Arc::new(Registry::default());
    let format = confluent(&registry);
    let wide: SchemaRef = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
    let out = encode(&format, &text::parse(&wide, "1\n300\nNULL"));
    let messages: Vec<Option<&[u8]>> = out.iter().map(Some).collect();
    let narrow: SchemaRef = Arc::new(Schema::new(vec![Field::new("n", DataType::Int8, false)]));
    check(&format, &narrow, &messages, "+I 1", &[0], &[(1, "not a TINYINT"), (2, "NOT NULL")]);
}

#[test]
fn formats_are_taken_with_their_options() {
    let take = |prefix: &str, options: &[(&str, &str)]| {
        let mut raw = RawOptions::new("table 't'", options.iter().map(|(k, v)| (k.to_string(), v.to_string())));
        let format = MessageFormat::take(&mut raw, prefix)?;
        raw.finish()?;
        Ok::<_, crate::FormatError>(format.map(|f| f.name()))
    };
    assert_eq!(take("", &[]).unwrap(), None);
    assert_eq!(take("key.", &[("key.format", "raw"), ("key.raw.charset", "UTF-16")]).unwrap(), Some("raw"));
    assert_eq!(take("value.", &[("value.format", "json"), ("value.json.ignore-parse-errors", "true")]).unwrap(), Some("json"));
    let error = |prefix: &str, options: &[(&str, &str)]| take(prefix, options).unwrap_err().to_string();
    assert!(error("", &[("format", "jsn")]).contains("did you mean 'json'?"));
    assert!(error("value.", &[("value.format", "json"), ("value.json.ignore", "true")]).contains("unknown option 'json.ignore'"));
    assert!(error("", &[("format", "avro-confluent")]).contains("'avro-confluent.url' is required"));
}
