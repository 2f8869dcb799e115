//! Small files made here, of every word size, order of bytes and compression: rows, ranges of pages, what was
//! deleted, what is missing; and files that are damaged.

use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::datatypes::Float64Type;
use arrow::util::display::array_value_to_string;

use super::*;
use crate::{As, Charset, Kind};

/// How a file is made.
#[derive(Clone, Debug)]
struct Shape {
    wide: bool,
    big: bool,
    /// The compression's name, or nothing.
    packing: &'static str,
    /// Rows that were deleted.
    deleted: Vec<usize>,
    rows: usize,
    charset: u8,
}

const HEADER: usize = 1024;
const PAGE: usize = 2048;
/// Columns: name, type, length, format.
const COLUMNS: [(&str, u8, usize, &str); 4] = [("n", 1, 8, ""), ("small", 1, 3, "BEST"), ("s", 2, 5, "$"), ("day", 1, 8, "DATE")];
const ROW: usize = 36;

impl Shape {
    fn new(wide: bool, big: bool, packing: &'static str) -> Shape {
        Shape { wide, big, packing, deleted: vec![3, 40], rows: 150, charset: 20 }
    }

    fn word_bytes(&self) -> usize {
        if self.wide { 8 } else { 4 }
    }

    fn two(&self, to: &mut [u8], at: usize, n: usize) {
        let n = n as u16;
        to[at..at + 2].copy_from_slice(&if self.big { n.to_be_bytes() } else { n.to_le_bytes() });
    }

    fn four(&self, to: &mut [u8], at: usize, n: usize) {
        let n = n as u32;
        to[at..at + 4].copy_from_slice(&if self.big { n.to_be_bytes() } else { n.to_le_bytes() });
    }

    fn word(&self, to: &mut [u8], at: usize, n: u64) {
        match (self.wide, self.big) {
            (false, _) => self.four(to, at, n as usize),
            (true, true) => to[at..at + 8].copy_from_slice(&n.to_be_bytes()),
            (true, false) => to[at..at + 8].copy_from_slice(&n.to_le_bytes()),
        }
    }

    /// A number in the first or last `length` bytes of a double.
    fn number(&self, value: f64, length: usize) -> Vec<u8> {
        if self.big { value.to_be_bytes()[..length].to_vec() } else { value.to_le_bytes()[8 - length..].to_vec() }
    }

    fn row(&self, i: usize) -> Vec<u8> {
        let n = if i % 4 == 3 { crate::kind::missing(2) } else { i as f64 + 0.5 };
        // As in SAS, numbers of eight bytes come first.
        let mut row =
            [self.number(n, 8), self.number(20_000.0 + i as f64, 8), self.number(i as f64, 3), self.text(i).into_bytes()].concat();
        row.resize(ROW, b' ');
        row
    }

    fn text(&self, i: usize) -> String {
        if i % 7 == 6 { String::new() } else { format!("r{i}") }
    }

    /// What comes out for a row.
    fn expect(&self, i: usize) -> String {
        let n = if i % 4 == 3 { String::new() } else { format!("{:.1}", i as f64 + 0.5) };
        // 20,000 days after 1960-01-01.
        let day = arrow::temporal_conversions::date32_to_datetime(20_000 - 3_653 + i as i32).expect("a date").date();
        format!("{n}|{:.1}|{}|{day}", i as f64, self.text(i))
    }

    fn live(&self) -> Vec<String> {
        (0..self.rows).filter(|i| !self.deleted.contains(i)).map(|i| self.expect(i)).collect()
    }

    fn subheader(&self, signature: u32, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let high = if signature >= 0xFFFF_0000 { u64::from(u32::MAX) << 32 } else { 0 };
        self.word(&mut bytes, 0, high | u64::from(signature));
        bytes
    }

    /// The subheaders of metadata.
    fn metadata(&self) -> Vec<Vec<u8>> {
        let word = self.word_bytes();
        let mut text = vec![0; 12];
        text.extend_from_slice(format!("{:8}", self.packing).as_bytes());
        let mut add = |part: &str| {
            let at = text.len();
            text.extend_from_slice(part.as_bytes());
            (at, part.len())
        };
        let refs: Vec<_> = COLUMNS.iter().map(|(name, _, _, format)| (add(name), add(format), add("a label"))).collect();
        let mut row_size = self.subheader(0xF7F7_F7F7, if self.wide { 808 } else { 480 });
        self.word(&mut row_size, 5 * word, ROW as u64);
        self.word(&mut row_size, 6 * word, self.rows as u64);
        self.word(&mut row_size, 7 * word, self.deleted.len() as u64);
        let from = row_size.len() - 118;
        if !self.packing.is_empty() {
            self.two(&mut row_size, from + 2, 12);
            self.two(&mut row_size, from + 4, 8);
        }
        let mut column_size = self.subheader(0xF6F6_F6F6, 3 * word);
        self.word(&mut column_size, word, COLUMNS.len() as u64);
        let mut text_header = self.subheader(0xFFFF_FFFD, word);
        self.two(&mut text, 0, 1);
        text_header.extend_from_slice(&text);
        let mut names = self.subheader(0xFFFF_FFFF, 2 * word + 12 + 8 * COLUMNS.len());
        let mut places = self.subheader(0xFFFF_FFFC, 2 * word + 12 + (word + 8) * COLUMNS.len());
        let mut all = vec![row_size, column_size, text_header];
        let mut formats = Vec::new();
        for (i, ((_, kind, length, _), (name, format, label))) in COLUMNS.iter().zip(refs).enumerate() {
            self.two(&mut names, word + 8 + 8 * i + 2, name.0);
            self.two(&mut names, word + 8 + 8 * i + 4, name.1);
            let at = word + 8 + (word + 8) * i;
            self.word(&mut places, at, [0, 16, 19, 8][i]);
            self.four(&mut places, at + word, *length);
            places[at + word + 6] = *kind;
            let mut of = self.subheader(0xFFFF_FBFE, 3 * word + 40);
            for (place, (at, length)) in [(22, format), (28, label)] {
                self.two(&mut of, 3 * word + place + 2, at);
                self.two(&mut of, 3 * word + place + 4, length);
            }
            formats.push(of);
        }
        all.extend([names, places]);
        all.extend(formats);
        all
    }

    /// A page: subheaders with how they are packed, and plain rows.
    fn page(&self, kind: u16, subheaders: &[(Vec<u8>, u8)], rows: &[Vec<u8>], deleted: &[bool]) -> Vec<u8> {
        let (word, base) = (self.word_bytes(), if self.wide { 32 } else { 16 });
        let mut page = vec![0; PAGE];
        let any = deleted.contains(&true);
        self.two(&mut page, base, kind as usize | if any { 0x80 } else { 0 });
        self.two(&mut page, base + 2, subheaders.len() + rows.len());
        self.two(&mut page, base + 4, subheaders.len());
        let mut end = PAGE;
        for (i, (bytes, packing)) in subheaders.iter().enumerate() {
            end -= bytes.len();
            page[end..end + bytes.len()].copy_from_slice(bytes);
            let at = base + 8 + i * 3 * word;
            self.word(&mut page, at, end as u64);
            self.word(&mut page, at + word, bytes.len() as u64);
            page[at + 2 * word] = *packing;
        }
        let mut at = (base + 8 + subheaders.len() * 3 * word).next_multiple_of(8);
        for row in rows {
            page[at..at + row.len()].copy_from_slice(row);
            at += row.len();
        }
        if any {
            let free = 5;
            self.word(&mut page, if self.wide { 24 } else { 12 }, free as u64);
            for (i, _) in deleted.iter().enumerate().filter(|(_, deleted)| **deleted) {
                page[at + free + i / 8] |= 0x80 >> (i % 8);
            }
        }
        assert!(at + 16 <= end, "rows and subheaders meet");
        page
    }

    /// A row packed in the simplest way: everything is copied, but for the 13 to 17 blanks at its end.
    fn packed(&self, row: &[u8]) -> Vec<u8> {
        let size = 16;
        let rle = self.packing == "SASYZCRL";
        let head = |n: usize| if rle { vec![0x80 | (n - 1) as u8] } else { vec![0, 0] };
        let text = row.len() - row.iter().rev().take_while(|b| **b == b' ').count();
        let blanks = row.len() - text;
        let mut out: Vec<u8> = row[..text].chunks(size).flat_map(|part| [head(part.len()), part.to_vec()].concat()).collect();
        if rle {
            out.push(0xE0 | (blanks - 2) as u8);
        } else {
            // The last group's control word has the bit of the item behind its bytes.
            let last = text % size;
            let word = out.len() - last - 2;
            out[word..word + 2].copy_from_slice(&(0x8000u16 >> last).to_be_bytes());
            out.extend([(blanks - 3) as u8, b' ']);
        }
        out
    }

    fn file(&self) -> Vec<u8> {
        let metadata: Vec<_> = self.metadata().into_iter().map(|bytes| (bytes, 0)).collect();
        let rows: Vec<_> = (0..self.rows).map(|i| self.row(i)).collect();
        let mut pages = Vec::new();
        if self.packing.is_empty() {
            let deleted: Vec<_> = (0..self.rows).map(|i| self.deleted.contains(&i)).collect();
            let mut at = 10.min(rows.len());
            pages.push(self.page(0x0200, &metadata, &rows[..at], &deleted[..at]));
            while at < rows.len() {
                let end = (at + 40).min(rows.len());
                pages.push(self.page(0x0100, &[], &rows[at..end], &deleted[at..end]));
                at = end;
            }
        } else {
            // Some rows are not packed, as SAS does where it does not pay.
            let packed = |i: usize| {
                if self.deleted.contains(&i) {
                    (self.packed(&rows[i]), 5)
                } else if i % 5 == 1 {
                    (rows[i].clone(), 0)
                } else {
                    (self.packed(&rows[i]), 4)
                }
            };
            pages.push(self.page(0, &metadata, &[], &[]));
            pages.push(self.page(0x9000, &[], &[], &[]));
            let all: Vec<_> = (0..self.rows).collect();
            for part in all.chunks(30) {
                let mut subheaders: Vec<_> = part.iter().map(|i| packed(*i)).collect();
                subheaders.push((vec![0xEE; 7], 1));
                pages.push(self.page(0, &subheaders, &[], &[]));
            }
        }
        let mut file = vec![0; HEADER];
        file[..32].copy_from_slice(&MAGIC);
        (file[32], file[35], file[37], file[70]) = (if self.wide { b'3' } else { 0 }, b'3', u8::from(!self.big), self.charset);
        file[92..96].copy_from_slice(b"TEST");
        self.four(&mut file, 200, HEADER);
        self.four(&mut file, 204, PAGE);
        self.word(&mut file, 208, pages.len() as u64);
        file.extend(pages.concat());
        file
    }
}

fn open(file: Vec<u8>) -> Result<SasFile, SasError> {
    SasFile::open(Arc::new(file))
}

fn lines(batch: &RecordBatch) -> Vec<String> {
    let cell = |row: usize| {
        let values: Vec<_> = batch.columns().iter().map(|c| array_value_to_string(c, row).expect("a value")).collect();
        values.join("|")
    };
    (0..batch.num_rows()).map(cell).collect()
}

fn rows(file: &SasFile, pages: Range<u64>, wanted: &[Wanted], batch: usize) -> Result<Vec<String>, SasError> {
    let mut found = Vec::new();
    for rows in file.read(pages, 0, wanted, batch)? {
        let rows = rows?;
        assert!(rows.num_rows() > 0 && rows.num_rows() <= batch);
        found.extend(lines(&rows));
    }
    Ok(found)
}

fn shapes() -> Vec<Shape> {
    let mut shapes = Vec::new();
    for wide in [false, true] {
        for big in [false, true] {
            shapes.extend(["", "SASYZCRL", "SASYZCR2"].map(|packing| Shape::new(wide, big, packing)));
        }
    }
    shapes
}

#[test]
fn rows_of_every_shape() {
    for shape in shapes() {
        let file = open(shape.file()).unwrap_or_else(|e| panic!("{shape:?}: {e}"));
        assert_eq!((file.rows(), file.name().as_str()), (148, "TEST"), "{shape:?}");
        let kinds: Vec<_> = file.columns().iter().map(|c| (c.name.as_str(), c.kind, c.label.as_str())).collect();
        let expect = [("n", Kind::Number), ("small", Kind::Number), ("s", Kind::Text), ("day", Kind::Date)].map(|(n, k)| (n, k, "a label"));
        assert_eq!(kinds, expect, "{shape:?}");
        let wanted = Wanted::all(4);
        for batch in [1, 7, 64, 10_000] {
            assert_eq!(rows(&file, 0..file.pages(), &wanted, batch).unwrap(), shape.live(), "{shape:?}, {batch} rows a batch");
        }
        for n in 1..=9 {
            let parts: Vec<_> = file.splits(n).into_iter().flat_map(|part| rows(&file, part, &wanted, 50).unwrap()).collect();
            assert_eq!(parts, shape.live(), "{shape:?} in {n} parts");
        }
    }
}

#[test]
fn only_what_is_wanted() {
    let file = open(Shape::new(true, false, "").file()).unwrap();
    let wanted = |list: &[(usize, As)]| list.iter().map(|(column, form)| Wanted { column: *column, form: *form }).collect::<Vec<_>>();
    let first = |list: &[(usize, As)]| rows(&file, 0..1, &wanted(list), 100).unwrap()[..4].to_vec();
    assert_eq!(first(&[(2, As::Natural)]), ["r0", "r1", "r2", "r4"]);
    assert_eq!(first(&[(3, As::Number), (1, As::Natural)]), ["20000.0|0.0", "20001.0|1.0", "20002.0|2.0", "20004.0|4.0"]);
    assert_eq!(rows(&file, 0..1, &wanted(&[(0, As::Text), (0, As::Natural)]), 100).unwrap()[6], ".A|");
    let none = file.read(0..file.pages(), 0, &[], 100).unwrap().map(|b| b.unwrap().num_rows()).sum::<usize>();
    assert_eq!(none, 148);
    assert!(file.read(0..1, 0, &wanted(&[(4, As::Natural)]), 100).is_err());
    assert!(file.read(0..99, 0, &[], 100).is_err());
}

/// Rows are chosen by a column that is not wanted itself, whatever the file looks like; rows that are not chosen are not decoded.
#[test]
fn only_rows_that_are_chosen() {
    let natural = |column: usize| Wanted { column, form: As::Natural };
    let (wanted, by) = ([natural(2), natural(3)], [natural(1)]);
    for shape in shapes() {
        let file = open(shape.file()).unwrap();
        let live: Vec<usize> = (0..shape.rows).filter(|i| !shape.deleted.contains(i)).collect();
        for (least, modulus, batch) in [(0.0, 1, 7), (100.0, 1, 1000), (30.0, 9, 10), (1e9, 1, 50)] {
            let choose = move |rows: &RecordBatch| -> Result<Option<BooleanArray>, SasError> {
                assert_eq!(rows.num_columns(), 1);
                let n = rows.column(0).as_primitive::<Float64Type>();
                // A NULL is no yes.
                let answer = |n: f64| if n < least { None } else { Some((n as usize).is_multiple_of(modulus)) };
                Ok((least > 0.0).then(|| n.values().iter().map(|n| answer(*n)).collect::<BooleanArray>()))
            };
            let chosen = file.read(0..file.pages(), 0, &wanted, batch).unwrap().choosing(&by, Box::new(choose)).unwrap();
            let mut found = Vec::new();
            for rows in chosen {
                let rows = rows.unwrap();
                assert!(rows.num_rows() <= batch);
                found.extend(lines(&rows));
            }
            let is_chosen = |i: &&usize| **i as f64 >= least && (**i).is_multiple_of(modulus);
            let text = |i: &usize| shape.expect(*i).splitn(3, '|').nth(2).expect("two columns more").to_string();
            let expect: Vec<String> = live.iter().filter(is_chosen).map(text).collect();
            assert_eq!(found, expect, "{shape:?}, from {least} on every {modulus}");
        }
    }
    let file = open(Shape::new(true, false, "").file()).unwrap();
    assert!(file.read(0..1, 0, &wanted, 10).unwrap().choosing(&[natural(9)], Box::new(|_| Ok(None))).is_err());
}

#[test]
fn a_reader_goes_on_where_another_stopped() {
    for shape in shapes() {
        let file = open(shape.file()).unwrap();
        let wanted = Wanted::all(4);
        let live = shape.live();
        let mut reader = file.read(0..file.pages(), 0, &wanted, 11).unwrap();
        let mut done = 0;
        loop {
            let place = reader.place();
            // From the beginning of the next batch, and from its middle.
            for more in [0, 5] {
                let rest = file.read(place.page..file.pages(), place.skip + more, &wanted, 40);
                let rest: Result<Vec<_>, _> = rest.unwrap().map(|batch| batch.map(|b| lines(&b))).collect();
                match rest {
                    Ok(rest) => assert_eq!(rest.concat(), live[done + more as usize..], "{shape:?} from row {done} + {more} on"),
                    Err(e) => assert!(done + more as usize > live.len() && e.to_string().contains("replaced"), "{shape:?}: {e}"),
                }
            }
            match reader.next() {
                Some(batch) => done += batch.unwrap().num_rows(),
                None => break,
            }
        }
        assert_eq!(done, live.len());
    }
}

#[test]
fn character_sets() {
    let shape = Shape { charset: 62, deleted: Vec::new(), rows: 3, ..Shape::new(false, false, "") };
    let mut bytes = shape.file();
    // The text of the second row.
    let at = bytes.windows(2).position(|w| w == b"r1").expect("the text of row 1");
    bytes[at..at + 2].copy_from_slice(b"\xE9\x80");
    let texts = |file: SasFile| rows(&file, 0..1, &[Wanted { column: 2, form: As::Natural }], 10).unwrap();
    assert_eq!(texts(open(bytes.clone()).unwrap()), ["r0", "é€", "r2"]);
    let cyrillic = SasFile::open_as(Arc::new(bytes.clone()), Some(Charset::of_label("windows-1251").unwrap())).unwrap();
    assert_eq!(texts(cyrillic), ["r0", "йЂ", "r2"]);
    bytes[70] = 42;
    let file = open(bytes).unwrap();
    let error = rows(&file, 0..1, &Wanted::all(4), 10).unwrap_err().to_string();
    assert!(error.starts_with("column 's': text in the character set CP850"), "{error}");
}

#[test]
fn what_is_wrong_is_said() {
    #[track_caller]
    fn check(file: Vec<u8>, expect: &str) {
        let error = match open(file) {
            Err(e) => e.to_string(),
            Ok(file) => rows(&file, 0..file.pages(), &Wanted::all(file.columns().len()), 100).expect_err("an error").to_string(),
        };
        assert!(error.contains(expect), "'{error}' does not say '{expect}'");
    }
    let good = || Shape::new(false, false, "").file();
    let changed = |at: usize, bytes: &[u8]| {
        let mut file = good();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        file
    };
    check(Vec::new(), "is cut short: not even its header");
    check(good()[..200].to_vec(), "is cut short: its header ends after 200 bytes");
    check(good()[..HEADER + PAGE + 5].to_vec(), "is cut short: its header says that 5 pages of 2048 bytes follow from byte 1024 on");
    check(b"a,b\n1,2\n".to_vec(), "does not begin as one");
    check(b"HEADER RECORD*******LIBRARY HEADER RECORD!!!!!!!".to_vec(), "read it as 'xport'");
    check(b"**COMPRESSED** **COMPRESSED**".to_vec(), "PROC CPORT");
    check(changed(204, &[0xFF; 4]), "a page has 4294967295 bytes");
    check(changed(208, &[0xFF; 4]), "is cut short: its header says that 4294967295 pages");
    // The kind of the third page; its rows; the subheaders of the first page, which then go on into its rows.
    let third = HEADER + 2 * PAGE + 16;
    check(changed(third, &[0x34, 0x12]), "page 2 is of kind 0x1234, which is not known");
    check(changed(third + 2, &[0xFF, 0xFF]), "page 2 says that it has 65535 rows of 36 bytes, more than its 2048 bytes hold");
    check(changed(third + 2, &[9, 0]), "its pages have 117 rows, but its metadata says 148");
    check(changed(HEADER + 16 + 4, &[0xFF, 0xFF]), "subheader 10 of page 0 has");
    // The first pointer to a subheader.
    check(changed(HEADER + 24 + 4, &[0xFF; 4]), "has 4294967295 bytes from byte");
    check(changed(HEADER + 24 + 8, &[77]), "is packed in a way that is not known (77)");
    let mut packed = Shape::new(false, false, "SASYZCRL").file();
    let at = packed.windows(2).position(|w| w == b"r0").expect("the text of row 0");
    packed[at + 2] = 0x3F;
    check(packed, "a compressed row on page 2 does not unpack to 36 bytes");
}

#[test]
fn damage_makes_errors_and_nothing_worse() {
    for shape in shapes().into_iter().step_by(2) {
        let good = Shape { rows: 20, deleted: vec![3], ..shape }.file();
        let look = |bytes: Vec<u8>| {
            if let Ok(file) = open(bytes) {
                let _ = rows(&file, 0..file.pages(), &Wanted::all(file.columns().len()), 100);
            }
        };
        for cut in (0..good.len()).step_by(97) {
            look(good[..cut].to_vec());
        }
        // What is not zero has a meaning.
        for at in (0..good.len()).filter(|at| good[*at] != 0) {
            for value in [0, 0x7F, 0xFF, good[at] ^ 1] {
                let mut bad = good.clone();
                bad[at] = value;
                look(bad);
            }
        }
    }
}
