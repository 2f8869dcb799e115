//! Members of archives, read by the connector; and what is read first. The archives are made here, byte by byte: no
//! other code of ours writes any.

use super::*;
use crate::FileSelection;

/// A checksum as zip has it.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes
        .iter()
        .fold(!0u32, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 }))
}

/// A zip of stored members.
pub(super) fn zip(members: &[(&str, &[u8])]) -> Vec<u8> {
    zip_of(members, 0, &[], |bytes| bytes.to_vec())
}

/// A zip of members that `pack` compresses by a method of zip, with `extra` fields in the header before each.
pub(super) fn zip_of(members: &[(&str, &[u8])], method: u16, extra: &[u8], pack: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for &(name, bytes) in members {
        let (at, packed) = (out.len() as u32, pack(bytes));
        let sizes = [crc32(bytes), packed.len() as u32, bytes.len() as u32];
        // Version, flags, method, time, date; then checksum and lengths.
        let mut fields: Vec<u8> = [20u16, 0, method, 0, 0x21].iter().flat_map(|n| n.to_le_bytes()).collect();
        fields.extend(sizes.iter().flat_map(|n| n.to_le_bytes()));
        fields.extend((name.len() as u16).to_le_bytes());
        out.extend(b"PK\x03\x04");
        out.extend(&fields);
        out.extend((extra.len() as u16).to_le_bytes());
        out.extend(name.as_bytes());
        out.extend(extra);
        out.extend(packed);
        directory.extend(b"PK\x01\x02");
        directory.extend(20u16.to_le_bytes());
        directory.extend(&fields);
        // Extra fields, comment, disk, attributes inside and outside.
        directory.extend([0u8; 12]);
        directory.extend(at.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let (count, at, length) = (members.len() as u16, out.len() as u32, directory.len() as u32);
    out.extend(&directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend([count, count].iter().flat_map(|n| n.to_le_bytes()));
    out.extend([length, at].iter().flat_map(|n| n.to_le_bytes()));
    out.extend(0u16.to_le_bytes());
    out
}

/// A tar of files.
pub(super) fn tar(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, bytes) in members {
        let mut header = [0u8; 512];
        let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
        put(0, name);
        put(100, "0000644");
        put(124, &format!("{:011o}", bytes.len()));
        put(136, "00000000000");
        put(148, "        ");
        put(156, "0");
        put(257, "ustar\u{0}00");
        let sum: u32 = header.iter().map(|b| u32::from(*b)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        out.extend(header);
        out.extend(*bytes);
        out.resize(out.len().next_multiple_of(512), 0);
    }
    out.resize(out.len() + 1024, 0);
    out
}

const MEMBERS: [(&str, &[u8]); 4] = [
    ("2005/b.csv", b"s,n\nb,2\nc,x\nd,4\n"),
    ("2005/a.csv", b"s,n\na,1\n"),
    ("2005/readme.md", b"s,n\nnone,0\n"),
    ("__MACOSX/._b.csv", b"nor this"),
];

/// Rows and places of bad records of all splits together.
#[track_caller]
fn all(source: &dyn Source, rows_max: usize) -> (String, Vec<String>) {
    let (mut out, mut bad) = (String::new(), Vec::new());
    for split in source.splits(1).unwrap() {
        let (rows, places, error) = Open::new(source, &split, ReadRequest::all(schema())).all(rows_max);
        assert_eq!(error, None);
        out += &rows;
        bad.extend(places);
    }
    (out, bad)
}

#[test]
fn members_are_files_with_headers_and_lines_of_their_own() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("x.zip"), zip(&MEMBERS)).unwrap();
    fs::write(dir.path().join("x.tar"), tar(&MEMBERS)).unwrap();
    pack(Compression::Gzip, &tar(&MEMBERS), &dir.path().join("x.tar.gz"));
    for name in ["x.zip", "x.tar", "x.tar.gz"] {
        let path = dir.path().join(format!("{name}//2005/*.csv"));
        let source = source(&path, "csv", &[("csv.header", "true")]);
        let expect = format!("{}//2005/b.csv:3 (byte 8)", dir.path().join(name).display());
        for rows_max in [1, 100] {
            assert_eq!(all(&*source, rows_max), ("+I b 2\n+I d 4\n+I a 1\n".to_string(), vec![expect.clone()]), "{name}");
        }
        let splits = source.splits(1).unwrap();
        assert_eq!(splits.len(), if name == "x.zip" { 2 } else { 1 });
        // The name of the member stands in the path.
        let field = Arc::new(Field::new("p", DataType::Utf8, true));
        let request = ReadRequest { physical: schema(), projection: vec![], metadata: vec![("file.path".to_string(), field)] };
        let rows = Open::new(&*source, &splits[0], request).next(1).unwrap().unwrap();
        let shown = text::format(&Block::inserts(rows.batch, 0));
        assert_eq!(shown, format!("+I {}//2005/b.csv\n", dir.path().join(name).display()));
    }
    // Without a glob all members are read, but not what hides.
    let everything = all(&*source(&dir.path().join("x.zip"), "csv", &[("csv.header", "skip")]), 10).0;
    assert_eq!(everything, "+I b 2\n+I d 4\n+I a 1\n+I none 0\n");
}

/// What has no name that says so, as what comes through a pipe.
#[test]
fn an_option_says_what_is_an_archive() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("one"), zip(&MEMBERS)).unwrap();
    fs::write(dir.path().join("two"), tar(&MEMBERS)).unwrap();
    pack(Compression::Gzip, &tar(&MEMBERS), &dir.path().join("three"));
    for (name, archive) in [("one", "zip"), ("two", "tar"), ("three", "tar.gz")] {
        let path = dir.path().join(format!("{name}//2005/b.csv"));
        let source = source(&path, "csv", &[("csv.header", "true"), ("source.archive", archive)]);
        let expect = format!("{}//2005/b.csv:3 (byte 8)", dir.path().join(name).display());
        assert_eq!(all(&*source, 100), ("+I b 2\n+I d 4\n".to_string(), vec![expect]), "{name}");
        // Where it stands is found again.
        let mut split = source.splits(1).unwrap().remove(0);
        let mut open = Open::new(&*source, &split, ReadRequest::all(schema()));
        assert_eq!(text::format(&Block::inserts(open.next(1).unwrap().expect("a row").batch, 0)), "+I b 2\n");
        split.position = Some(open.reader.position());
        let (rest, _, error) = Open::new(&*source, &split, ReadRequest::all(schema())).all(100);
        assert_eq!((rest.as_str(), error), ("+I d 4\n", None), "{name}");
    }
}

#[test]
fn an_archive_is_resumed_in_the_middle_of_a_member() {
    let dir = TempDir::new().unwrap();
    let lines = |from: usize| (from..from + 1000).map(|n| format!("r{n},{n}\n")).collect::<String>();
    let (one, two) = (lines(0), lines(1000));
    let members = [("one.csv", one.as_bytes()), ("two.csv", two.as_bytes())];
    fs::write(dir.path().join("x.zip"), zip(&members)).unwrap();
    fs::write(dir.path().join("x.tar"), tar(&members)).unwrap();
    for name in ["x.zip", "x.tar"] {
        let source = source(&dir.path().join(name), "csv", &[]);
        let mut seen = String::new();
        for mut split in source.splits(1).unwrap() {
            loop {
                let mut open = Open::new(&*source, &split, ReadRequest::all(schema()));
                let Some(rows) = open.next(300).unwrap() else { break };
                seen += &text::format(&Block::inserts(rows.batch, 0));
                split.position = Some(open.reader.position());
            }
        }
        assert!(seen == numbered(0, 2000), "{name}");
    }
    let source = source(&dir.path().join("x.tar"), "csv", &[]);
    let position = serde_json::json!({"member": 1, "name": "other.csv", "offset": 5, "records": 1});
    let split = Split { position: Some(position), ..source.splits(1).unwrap().remove(0) };
    let error = Open::new(&*source, &split, ReadRequest::all(schema())).all(10).2.unwrap();
    assert!(error.contains("is 'two.csv', but it was 'other.csv'"), "{error}");
}

#[test]
fn a_member_cut_short_is_named() {
    let dir = TempDir::new().unwrap();
    let content = numbered(0, 1000).replace("+I ", "").replace(' ', ",");
    let whole = tar(&[("in/a.csv", content.as_bytes())]);
    fs::write(dir.path().join("x.tar"), &whole[..5000]).unwrap();
    // The member says that it has more bytes than it has.
    let mut packed = Vec::new();
    {
        let path = dir.path().join("inner.gz");
        pack(Compression::Gzip, content.as_bytes(), &path);
        packed.extend(fs::read(&path).unwrap());
        fs::remove_file(&path).unwrap();
    }
    fs::write(dir.path().join("x.zip"), zip(&[("in/a.csv.gz", &packed[..packed.len() / 2])])).unwrap();
    for (file, member) in [("x.tar", "in/a.csv"), ("x.zip", "in/a.csv.gz")] {
        let path = dir.path().join(file);
        let source = source(&path, "csv", &[]);
        let split = source.splits(1).unwrap().remove(0);
        let (rows, _, error) = Open::new(&*source, &split, ReadRequest::all(schema())).all(100);
        assert!(rows.starts_with("+I r0 0\n"), "what there is comes first");
        let error = error.expect("half a member");
        assert!(error.contains(&format!("{}//{member}' at byte ", path.display())), "{error}");
    }
}

#[test]
fn what_is_not_in_an_archive() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("x.zip"), zip(&[("a.csv", b"a,1\n"), ("b.zip", &zip(&[]))])).unwrap();
    fs::write(dir.path().join("x.tar"), tar(&[("a.csv", b"a,1\n")])).unwrap();
    let fails = |path: &str, format: &str, expect: &str| {
        let source = source(&dir.path().join(path), format, &[]);
        let error = match source.splits(1) {
            Err(e) => e.to_string(),
            Ok(splits) => Open::new(&*source, &splits[0], ReadRequest::all(schema())).all(10).2.expect("a mistake"),
        };
        assert!(error.contains(expect), "{error}");
    };
    fails("x.zip//*.txt", "csv", "no member of '");
    fails("x.zip//*.txt", "csv", "it has: a.csv, b.zip");
    fails("x.tar//*.txt", "csv", "it has: a.csv");
    fails("x.zip", "csv", "is an archive in an archive");
    fails("x.zip//a.csv", "parquet", "lies in an archive, where only text can be read");
    fails("y.zip//a.csv", "csv", "there is no file or directory");
    let one = source(&dir.path().join("*.zip//a.csv"), "csv", &[]);
    assert_eq!(all(&*one, 10).0, "+I a 1\n");
}

/// Where order does not matter the largest comes first, each member of a zip by itself.
#[test]
fn large_files_and_members_come_first() {
    let dir = TempDir::new().unwrap();
    let (small, large) = (b"a,1\n".repeat(10), b"b,2\n".repeat(1000));
    fs::write(dir.path().join("a.csv"), b"c,3\n".repeat(100)).unwrap();
    fs::write(dir.path().join("b.zip"), zip(&[("small.csv", &small), ("large.csv", &large)])).unwrap();
    let source = source(dir.path(), "csv", &[("source.page-cache", "keep")]);
    let splits = source.unordered_splits(2).unwrap();
    let names: Vec<_> = splits.iter().map(|split| split.id.rsplit('/').next().unwrap()).collect();
    assert_eq!(names, ["large.csv", "a.csv", "small.csv"]);
    let rows: usize = splits
        .iter()
        .map(|split| {
            let request = ReadRequest { physical: schema(), projection: vec![], metadata: vec![] };
            let mut open = Open::new(&*source, split, request);
            std::iter::from_fn(|| open.next(64).unwrap()).map(|rows| rows.batch.num_rows()).sum::<usize>()
        })
        .sum();
    assert_eq!(rows, 1110);
}

/// Which files have rows of one year: by their directories, in archives, too, unless that shows only when they are unpacked. What
/// cannot be told is read, and then says what is wrong.
#[test]
fn files_are_left_out_by_their_names() {
    let dir = TempDir::new().unwrap();
    for name in ["year=2023", "year=2024", "year=__HIVE_DEFAULT_PARTITION__", "year=soon"] {
        fs::create_dir(dir.path().join(name)).unwrap();
        fs::write(dir.path().join(name).join("x.csv"), "a,1\n").unwrap();
    }
    let members: [(&str, &[u8]); 2] = [("year=2023/y.csv", b"a,1\n"), ("year=2024/y.csv", b"a,1\n")];
    fs::write(dir.path().join("z.tar"), tar(&members)).unwrap();
    fs::write(dir.path().join("z.zip"), zip(&members)).unwrap();
    let source = source(dir.path(), "csv", &[]);
    assert_eq!(["partition.year", "file.path", "file.name"].map(|key| source.splits_by(key)), [true; 3]);
    assert_eq!(["file.size", "file.modification-time", "n"].map(|key| source.splits_by(key)), [false; 3]);
    let year = ("partition.year".to_string(), Arc::new(Field::new("year", DataType::Int64, true)));
    let files = FileSelection::new(vec![year], |values| {
        let year = values.column(0).as_primitive::<Int64Type>();
        Some(year.iter().any(|year| year == Some(2024)))
    });
    for parallelism in [1, 4] {
        let (splits, left_out) = source.splits_selecting(parallelism, &files).unwrap();
        let root = dir.path().to_str().unwrap();
        let mut left: Vec<&str> = splits.iter().map(|split| split.id.strip_prefix(root).unwrap()).collect();
        left.sort_unstable();
        assert_eq!(left, ["/year=2024/x.csv", "/year=soon/x.csv", "/z.tar", "/z.zip//year=2024/y.csv"]);
        assert_eq!(left_out, 3);
    }
    let anything = FileSelection::new(Vec::new(), |_| None);
    assert_eq!(source.splits_selecting(4, &anything).unwrap().1, 0);
}
