//! Text in other encodings and fixed-width text as tables: resumed, followed, in archives, in ranges, with what is no text.

use super::*;

/// Letters that take one byte in Latin 1, two in UTF-8.
fn lines(from: usize, to: usize) -> String {
    (from..to).map(|n| format!("ré{n},{n}\n")).collect()
}

fn latin(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect()
}

fn utf16(text: &str) -> Vec<u8> {
    [0xFF, 0xFE].into_iter().chain(text.encode_utf16().flat_map(u16::to_le_bytes)).collect()
}

fn rows(from: usize, to: usize) -> String {
    (from..to).map(|n| format!("+I ré{n} {n}\n")).collect()
}

/// Reads a split again and again, a block at a time, each time from where it stood.
#[track_caller]
fn in_steps(source: &dyn Source, mut split: Split, rows_max: usize) -> String {
    let mut seen = String::new();
    loop {
        let mut open = Open::new(source, &split, ReadRequest::all(schema()));
        let Some(rows) = open.next(rows_max).unwrap() else { return seen };
        seen += &text::format(&Block::inserts(rows.batch, 0));
        split.position = Some(open.reader.position());
    }
}

#[test]
fn a_resumed_reader_goes_on_exactly_in_any_encoding() {
    let dir = TempDir::new().unwrap();
    let content = lines(0, 20_000);
    let packed = dir.path().join("c.csv.gz");
    pack(Compression::Gzip, &latin(&content), &packed);
    fs::write(dir.path().join("a.csv"), latin(&content)).unwrap();
    fs::write(dir.path().join("b.csv"), utf16(&content)).unwrap();
    for (name, encoding) in [("a.csv", "windows-1252"), ("b.csv", "utf-16"), ("c.csv.gz", "latin1")] {
        let source = source(&dir.path().join(name), "csv", &[("csv.encoding", encoding)]);
        let split = source.unordered_splits(4).unwrap();
        assert_eq!(split.len(), 1, "not divided");
        assert!(in_steps(&*source, split.into_iter().next().unwrap(), 7_000) == rows(0, 20_000), "{name}");
    }
}

#[test]
fn bytes_that_are_no_text_are_named() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a.csv");
    fs::write(&path, b"a,1\nb\x81,2\nc,3\n").unwrap();
    let source = source(&path, "csv", &[("csv.encoding", "shift_jis")]);
    let split = source.splits(1).unwrap().remove(0);
    let (rows, _, error) = Open::new(&*source, &split, ReadRequest::all(schema())).all(100);
    let error = error.unwrap();
    assert_eq!(rows, "+I a 1\n");
    assert!(error.contains("byte 5 of the text is not Shift_JIS") && error.contains("a.csv"), "{error}");
}

#[test]
fn a_file_that_grows_is_followed_in_its_encoding() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a.csv");
    let first = utf16("ré0,0\nré1");
    // In the middle of a character.
    fs::write(&path, &first[..first.len() - 1]).unwrap();
    let source = source(&path, "csv", &[("csv.encoding", "utf-16"), ("source.monitor-interval", "1 ms")]);
    let split = source.splits(1).unwrap().remove(0);
    let mut open = Open::new(&*source, &split, ReadRequest::all(schema()));
    let next = |open: &mut Open| open.next(10).unwrap().map(|rows| text::format(&Block::inserts(rows.batch, 0)));
    assert_eq!(next(&mut open), Some(rows(0, 1)));
    let mut rest = utf16("1,1\nré2,2\n").split_off(1);
    rest[0] = 0;
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(&rest).unwrap();
    let mut seen = String::new();
    while seen.lines().count() < 2 {
        seen += &next(&mut open).unwrap();
    }
    assert_eq!(seen, "+I ré11 1\n+I ré2 2\n");
}

#[test]
fn members_of_archives_are_decoded() {
    let dir = TempDir::new().unwrap();
    let content = latin(&lines(0, 3));
    let members: [(&str, &[u8]); 1] = [("a.csv", &content)];
    for (name, bytes) in [("a.tar", archives::tar(&members)), ("a.zip", archives::zip(&members))] {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        let source = source(&path, "csv", &[("csv.encoding", "windows-1252")]);
        assert_eq!(in_steps(&*source, source.splits(1).unwrap().remove(0), 2), rows(0, 3), "{name}");
    }
}

#[test]
fn fixed_width_files_are_read_in_ranges() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a.txt");
    let count = 600_000;
    let mut content = String::new();
    for n in 0..count {
        content += &format!("r{n:<7}{n:>7}\n");
    }
    fs::write(&path, &content).unwrap();
    let source = source(&path, "fixed", &[("fixed.widths", "8,7")]);
    let splits = source.unordered_splits(2).unwrap();
    assert!(splits.len() > 1, "{}", splits.len());
    let mut seen = 0;
    for split in &splits {
        let mut open = Open::new(&*source, split, ReadRequest::all(schema()));
        while let Some(rows) = open.next(8192).unwrap() {
            for n in rows.batch.column(1).as_primitive::<Int64Type>().values() {
                assert_eq!(*n, seen);
                seen += 1;
            }
        }
    }
    assert_eq!(seen, count);
    fs::write(&path, "r1            1\nr2\nr3            x\n").unwrap();
    let split = Split::new(path.to_str().unwrap());
    let (_, places, error) = Open::new(&*source, &split, ReadRequest::all(schema())).all(10);
    assert_eq!(error, None);
    assert!(places[0].ends_with("a.txt:2 (byte 16)") && places[1].ends_with("a.txt:3 (byte 19)"), "{places:?}");
}
