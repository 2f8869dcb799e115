//! XPORT files as tables: declared types, what is missing, what cannot be. SAS7BDAT files are tested where they are decoded,
//! since nobody here writes any.

use super::*;

/// A schema of these columns, all nullable.
fn columns(columns: &[(&str, DataType)]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(|(name, kind)| Field::new(*name, kind.clone(), true)).collect::<Vec<_>>()))
}

/// Writes rows of `schema` into the directory.
#[track_caller]
fn write(dir: &Path, schema: &SchemaRef, rows: &str, more: &[(&str, &str)]) -> Result<(), String> {
    let mut raw = options(dir, "xport", more);
    let sink = CONNECTOR.sink(schema, &mut raw).map_err(|e| e.to_string())?;
    raw.finish().unwrap();
    let context = SinkContext { shard: 0, shards: 1, schema: schema.clone(), run_id: "run".into(), cancelled: Arc::default() };
    let mut writer = sink.writer(context).unwrap();
    writer.write(&text::parse(schema, rows)).map_err(|e| e.to_string())?;
    let prepared = writer.prepare(true).map_err(|e| e.to_string())?;
    sink.commit(&prepared).map_err(|e| e.to_string())
}

/// Reads the directory as a table of `schema`: rows as text, or what is wrong.
fn read_as(dir: &Path, schema: &SchemaRef, more: &[(&str, &str)]) -> Result<String, String> {
    let mut raw = options(dir, "xport", more);
    let source = CONNECTOR.source(schema, &mut raw).map_err(|e| e.to_string())?;
    raw.finish().unwrap();
    let mut out = String::new();
    for split in source.splits(1).unwrap() {
        let context = ReaderContext { waker: Waker::noop(), request: ReadRequest::all(schema.clone()), shard: 0, shards: 1 };
        let mut reader = source.open(&split, context).map_err(|e| e.to_string())?;
        while let Polled::Rows(rows) = reader.poll(2).map_err(|e| e.to_string())? {
            out += &text::format(&Block::inserts(rows.batch, 0));
        }
    }
    Ok(out)
}

#[test]
fn types_are_those_that_are_declared() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out");
    let timestamp = DataType::Timestamp(TimeUnit::Microsecond, None);
    let schema = columns(&[("s", DataType::Utf8), ("n", DataType::Float64), ("d", DataType::Date32), ("t", timestamp.clone())]);
    let rows = "+I a 1 2024-02-29 2024-02-29T12:00:00\n+I NULL NULL NULL NULL\n+I c 2.5 1960-01-01 1960-01-01T00:00:00.25\n";
    write(&out, &schema, rows, &[]).unwrap();
    let all = text::format(&text::parse(&schema, rows));
    assert_eq!(read_as(&out, &schema, &[]).unwrap(), all);
    // Other types, another order, names in capitals.
    let numbers = columns(&[("D", DataType::Float64), ("S", DataType::Utf8)]);
    assert_eq!(read_as(&out, &numbers, &[]).unwrap(), text::format(&text::parse(&numbers, "+I 23435 a\n+I NULL NULL\n+I 0 c\n")));
    let shown = columns(&[("n", DataType::Utf8)]);
    assert_eq!(read_as(&out, &shown, &[("sas.missing", "text")]).unwrap(), text::format(&text::parse(&shown, "+I 1.0\n+I .\n+I 2.5\n")));
    let whole = columns(&[("n", DataType::Int64)]);
    let error = read_as(&out, &whole, &[]).unwrap_err();
    assert!(error.ends_with("column 'N': 2.5 is no BIGINT; declare it as DOUBLE or DECIMAL"), "{error}");
    let error = read_as(&out, &columns(&[("x", DataType::Utf8)]), &[]).unwrap_err();
    assert!(error.ends_with("has no column 'x'; it has: S, N, D, T"), "{error}");
}

#[test]
fn what_cannot_be_is_refused_before_the_first_row() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out");
    let refused = |format: &str, schema: &SchemaRef, more: &[(&str, &str)]| {
        let mut raw = options(&out, format, more);
        CONNECTOR.sink(schema, &mut raw).err().expect("an error").to_string()
    };
    let long = columns(&[("customer_name", DataType::Utf8)]);
    assert!(refused("xport", &long, &[]).contains("column 'customer_name' has 13 letters"));
    assert!(refused("sas7bdat", &schema(), &[]).contains("SAS7BDAT files are read, not written"));
    assert!(refused("xport", &schema(), &[("compression", "gzip")]).contains("XPORT files are not compressed as a whole"));
    assert!(refused("xport", &schema(), &[("xport.text-length", "many")]).contains("'many' is neither a number of bytes"));
    assert!(refused("xport", &schema(), &[("sas.charset", "klingon")]).contains("there is no character set 'klingon'"));
    let error = write(&out, &schema(), "+I abcd 1\n", &[("xport.text-length", "s: 3")]).unwrap_err();
    assert!(error.ends_with("column 's': a text of 4 bytes, but a text of it may have 3; raise 'xport.text-length'"), "{error}");
}

#[test]
fn a_resumed_reader_goes_on_behind_its_last_row() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out");
    write(&out, &schema(), &numbered(0, 20_000), &[("xport.text-length", "6")]).unwrap();
    let source = source(&out, "xport", &[]);
    let mut split = source.splits(1).unwrap().remove(0);
    let mut seen = String::new();
    loop {
        let mut open = Open::new(&*source, &split, ReadRequest::all(schema()));
        let Some(rows) = open.next(7_000).unwrap() else { break };
        seen += &text::format(&Block::inserts(rows.batch, 0));
        split.position = Some(open.reader.position());
    }
    assert!(seen == numbered(0, 20_000));
    assert_eq!(split.position, Some(serde_json::json!({"row": 20_000})));
}
