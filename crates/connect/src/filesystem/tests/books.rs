//! ORC files and workbooks of XLSX as tables: written, divided, resumed, bad cells.

use super::*;

#[track_caller]
fn write(dir: &Path, format: &str, rows: &str, more: &[(&str, &str)]) {
    let sink = sink(dir, format, more);
    let mut writer = writer(&*sink, "run");
    for block in rows.lines().collect::<Vec<_>>().chunks(5000) {
        writer.write(&super::block(&block.join("\n"))).unwrap();
    }
    let prepared = writer.prepare(true).unwrap();
    sink.commit(&prepared).unwrap();
}

/// Reads a split, opened anew at its position after every few rows.
#[track_caller]
fn resumed(source: &dyn Source, split: &Split) -> (String, Vec<String>) {
    let (mut split, mut seen, mut places) = (split.clone(), String::new(), Vec::new());
    loop {
        let mut open = Open::new(source, &split, ReadRequest::all(schema()));
        let Some(rows) = open.next(7_000).unwrap() else { return (seen, places) };
        seen += &text::format(&Block::inserts(rows.batch, 0));
        places.extend(rows.places);
        split.position = Some(open.reader.position());
    }
}

#[test]
fn what_was_written_is_read_and_resumed() {
    for (format, more) in [("orc", &[("orc.stripe.size", "16 kb")][..]), ("xlsx", &[][..])] {
        let dir = TempDir::new().unwrap();
        let out = dir.path().join("out");
        write(&out, format, &numbered(0, 12_000), more);
        assert_eq!(names(&out), [format!("part-run-0-0.{format}")]);
        let source = source(&out, format, &[]);
        let splits = source.splits(1).unwrap();
        assert!(read(&*source, &splits, 777) == numbered(0, 12_000), "{format}");
        assert!(resumed(&*source, &splits[0]) == (numbered(0, 12_000), Vec::new()), "{format}");
    }
}

#[test]
fn an_orc_file_is_divided_at_its_stripes() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out");
    write(&out, "orc", &numbered(0, 30_000), &[("orc.stripe.size", "16 kb")]);
    let path = out.join("part-run-0-0.orc");
    let pieces = super::super::orc::pieces(path.to_str().unwrap(), &super::super::directory::Place::Local, 1).unwrap();
    assert!(pieces.len() > 2, "{pieces:?}");
    let source = source(&out, "orc", &[]);
    let id = source.splits(1).unwrap()[0].id.clone();
    let splits: Vec<Split> = pieces.iter().map(|piece| Split::new(super::super::ranges::id(&id, piece))).collect();
    assert!(read(&*source, &splits, 1000) == numbered(0, 30_000));
    let (rows, places) = resumed(&*source, &splits[1]);
    assert!(numbered(0, 30_000).contains(&rows) && !rows.is_empty() && places.is_empty());
    assert_eq!(source.rows_hint(), Some(30_000));
}

#[test]
fn bad_cells_stand_between_good_ones() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out");
    // Every third number is read as one of a column of texts, and is none.
    let texts = Arc::new(Schema::new(vec![Field::new("s", DataType::Utf8, true), Field::new("n", DataType::Utf8, true)]));
    let rows: String = (0..10).map(|n| if n % 3 == 2 { format!("r{n} x{n}\n") } else { format!("r{n} {n}\n") }).collect();
    let mut raw = options(&out, "xlsx", &[]);
    let sink = CONNECTOR.sink(&texts, &mut raw).unwrap();
    let context = SinkContext { shard: 0, shards: 1, schema: texts.clone(), run_id: "run".into(), cancelled: Arc::default() };
    let mut writer = sink.writer(context).unwrap();
    writer.write(&text::parse(&texts, &rows)).unwrap();
    sink.commit(&writer.prepare(true).unwrap()).unwrap();
    let source = source(&out, "xlsx", &[]);
    let splits = source.splits(1).unwrap();
    let good: String = (0..10).filter(|n| n % 3 != 2).map(|n| format!("+I r{n} {n}\n")).collect();
    for rows_max in [1, 2, 4, 100] {
        let mut split = splits[0].clone();
        let (mut seen, mut cells) = (String::new(), Vec::new());
        loop {
            let mut open = Open::new(&*source, &split, ReadRequest::all(schema()));
            let Some(rows) = open.next(rows_max).unwrap() else { break };
            seen += &text::format(&Block::inserts(rows.batch, 0));
            cells.extend(rows.places.iter().map(|place| place.rsplit_once(' ').unwrap().1.to_string()));
            split.position = Some(open.reader.position());
        }
        assert_eq!((seen.as_str(), cells), (good.as_str(), ["B4", "B7", "B10"].map(String::from).to_vec()), "{rows_max} at once");
        assert_eq!(split.position, Some(serde_json::json!({"row": 10})));
    }
}

#[test]
fn what_cannot_be_is_refused_before_the_first_row() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out");
    let lists = Arc::new(Schema::new(vec![Field::new("l", DataType::new_list(DataType::Int64, true), true)]));
    for format in ["orc", "xlsx"] {
        let error = CONNECTOR.sink(&lists, &mut options(&out, format, &[])).err().expect("an error").to_string();
        assert!(error.starts_with("table 't': column 'l': "), "{error}");
        let error = CONNECTOR.sink(&schema(), &mut options(&out, format, &[("compression", "gzip")])).err().expect("an error").to_string();
        assert!(error.contains("files are not compressed as a whole"), "{error}");
    }
    fs::create_dir(&out).unwrap();
    fs::write(out.join("a.xlsx"), "no workbook").unwrap();
    let source = source(&out, "xlsx", &[("xlsx.texts-size-max", "1 mb")]);
    let context = ReaderContext { waker: Waker::noop(), request: ReadRequest::all(schema()), shard: 0, shards: 1 };
    let error = source.open(&source.splits(1).unwrap()[0], context).err().expect("an error").to_string();
    assert!(error.contains("a.xlsx") && error.contains("a workbook of XLSX is a zip archive"), "{error}");
}
