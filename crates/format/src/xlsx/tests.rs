//! Sheets that were written are read, from any row; the two systems of dates; what is wrong with cells, and where.

use std::io::{self, Cursor, Write};
use std::sync::{Arc, Mutex};

use arrow::datatypes::{Field, SchemaRef};
use calamine::DataRef;
use rust_xlsxwriter::{Format, Workbook};
use tidemill_block::value::{DAY_MS, days_from_civil};
use tidemill_block::{Block, text};

use super::cell::{moment_ms, serial, show};
use super::*;
use crate::options::{OptionSet, RawOptions};

/// A file in memory.
#[derive(Clone, Default)]
struct File(Arc<Mutex<Vec<u8>>>);

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn options(pairs: &[(&str, &str)]) -> XlsxOptions {
    XlsxOptions::take(&mut RawOptions::new("table 't'", pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())))).unwrap()
}

fn columns(columns: &[(&str, DataType)]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(|(name, kind)| Field::new(*name, kind.clone(), true)).collect::<Vec<_>>()))
}

fn write(schema: &SchemaRef, rows: &str, pairs: &[(&str, &str)]) -> Result<Vec<u8>, FormatError> {
    let file = File::default();
    let mut writer = XlsxFileWriter::new(Box::new(file.clone()), schema, &options(pairs))?;
    writer.write(&text::parse(schema, rows).batch)?;
    writer.finish()?;
    let bytes = std::mem::take(&mut *file.0.lock().unwrap());
    Ok(bytes)
}

/// What is read: rows as text, then bad rows as `number cell: reason | raw`.
fn read_from(bytes: &[u8], schema: &SchemaRef, pairs: &[(&str, &str)], start: u64, batch: usize) -> Result<String, FormatError> {
    let (mut rows, mut bad) = (String::new(), String::new());
    let projection: Vec<usize> = (0..schema.fields().len()).collect();
    let mut emit = |read: XlsxRows| {
        rows += &text::format(&Block::inserts(read.batch, 0));
        for (record, cell) in read.bad {
            bad += &format!("{} {cell}: {} | {}\n", record.record, record.reason, String::from_utf8(record.raw).unwrap());
        }
        true
    };
    read("x.xlsx", Box::new(Cursor::new(bytes.to_vec())), &options(pairs), schema, &projection, start, batch, &mut emit)?;
    Ok(rows + &bad)
}

#[track_caller]
fn check(bytes: &[u8], schema: &SchemaRef, pairs: &[(&str, &str)], expect: &str) {
    for batch in [1, 3, 1000] {
        assert_eq!(read_from(bytes, schema, pairs, 0, batch).unwrap(), expect, "{batch} rows at once");
    }
}

fn error(bytes: &[u8], schema: &SchemaRef, pairs: &[(&str, &str)]) -> String {
    read_from(bytes, schema, pairs, 0, 10).unwrap_err().to_string()
}

/// A workbook as Excel makes it; `fill` gets its only sheet.
fn workbook(fill: impl FnOnce(&mut rust_xlsxwriter::Worksheet)) -> Vec<u8> {
    let mut book = Workbook::new();
    fill(book.add_worksheet());
    book.save_to_buffer().unwrap()
}

fn moment(unit: TimeUnit) -> DataType {
    DataType::Timestamp(unit, None)
}

#[test]
fn every_type_comes_back() {
    let schema = columns(&[
        ("b", DataType::Boolean),
        ("n", DataType::Int64),
        ("i", DataType::Int8),
        ("f", DataType::Float32),
        ("d", DataType::Float64),
        ("c", DataType::Decimal128(10, 2)),
        ("s", DataType::Utf8),
        ("day", DataType::Date32),
        ("at", moment(TimeUnit::Microsecond)),
        ("time", DataType::Time32(TimeUnit::Millisecond)),
    ]);
    let rows = "+I true 9007199254740992 -128 0.1 0.30000000000000004 12.30 a<&\"é 2024-02-29 2024-02-29T12:00:00.001 23:59:59.999\n\
                +I NULL NULL NULL NULL NULL NULL b NULL NULL NULL\n\
                +I false -1 7 2.5 -1e300 -0.05 1 1900-02-28 9999-12-31T23:59:59.999 00:00:00\n";
    let expect = text::format(&text::parse(&schema, rows));
    let bytes = write(&schema, rows, &[]).unwrap();
    check(&bytes, &schema, &[], &expect);
    for start in 0..4 {
        let rest: String = expect.lines().skip(start).map(|line| format!("{line}\n")).collect();
        assert_eq!(read_from(&bytes, &schema, &[], start as u64, 2).unwrap(), rest);
    }
    assert!(read_from(&bytes, &schema, &[], 4, 2).unwrap_err().to_string().contains("it has 3 rows, but had at least 4 before"));
    let (found, header) = infer("x.xlsx", Box::new(Cursor::new(bytes.clone())), &options(&[]), None).unwrap();
    let types: Vec<String> = found.fields().iter().map(|f| format!("{} {}", f.name(), type_name(f.data_type()))).collect();
    let expect = "b BOOLEAN, n BIGINT, i BIGINT, f DOUBLE, d DOUBLE, c DOUBLE, s STRING, day DATE, at TIMESTAMP(3), time TIME";
    assert_eq!((types.join(", ").as_str(), header), (expect, true));
    // By name, in another order, as other types.
    let others = columns(&[("at", DataType::Utf8), ("N", DataType::Float64), ("day", moment(TimeUnit::Second)), ("b", DataType::Utf8)]);
    let shown = read_from(&bytes, &others, &[], 0, 1000).unwrap();
    assert!(
        shown.starts_with("+I 2024-02-29 12:00:00.001 9007199254740992.0 2024-02-29T00:00:00 true\n+I NULL NULL NULL NULL\n"),
        "{shown}"
    );
    assert!(error(&bytes, &columns(&[("x", DataType::Utf8)]), &[]).contains("there is no column 'x'; the header has: b, n, i"));
}

#[test]
fn sheets_and_headers() {
    let schema = columns(&[("a", DataType::Int64), ("b", DataType::Utf8)]);
    let bytes = write(&schema, "1 x\n2 y\n", &[("xlsx.sheet", "Data 1"), ("xlsx.header", "false")]).unwrap();
    check(&bytes, &schema, &[("xlsx.header", "false")], "+I 1 x\n+I 2 y\n");
    check(&bytes, &schema, &[("xlsx.header", "false"), ("xlsx.sheet", "data 1")], "+I 1 x\n+I 2 y\n");
    assert!(error(&bytes, &schema, &[("xlsx.sheet", "Other")]).ends_with("it has no sheet 'Other' ('xlsx.sheet'); it has: Data 1"));
    let (found, header) = infer("x.xlsx", Box::new(Cursor::new(bytes)), &options(&[]), None).unwrap();
    let names: Vec<&str> = found.fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!((names, header), (vec!["column0", "column1"], false));
    // Blank rows and columns around; a name that comes twice, and none.
    let bytes = workbook(|sheet| {
        for (column, name) in [(1, "k"), (2, "v"), (3, "v")] {
            sheet.write_string(2, column, name).unwrap();
        }
        for (row, values) in [(3, [1.0, 2.0, 3.0, 4.0]), (5, [5.0, 6.0, 7.0, 8.0])] {
            for (column, value) in values.into_iter().enumerate() {
                sheet.write_number(row, column as u16 + 1, value).unwrap();
            }
        }
    });
    let (found, header) = infer("x.xlsx", Box::new(Cursor::new(bytes.clone())), &options(&[]), None).unwrap();
    let names: Vec<&str> = found.fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!((names, header), (vec!["k", "v", "v_1", "column4"], true));
    check(&bytes, &found, &[], "+I 1 2 3 4\n+I 5 6 7 8\n");
    assert!(XlsxFileWriter::check(&schema, &options(&[("xlsx.sheet", "a/b")])).unwrap_err().to_string().contains("'xlsx.sheet' = 'a/b'"));
}

#[test]
fn bad_cells_are_named() {
    let bytes = workbook(|sheet| {
        sheet.write_string(0, 0, "n").unwrap();
        sheet.write_string(0, 1, "day").unwrap();
        let day = Format::new().set_num_format("yyyy-mm-dd");
        for (row, n) in [(1, 1.0), (2, 2.5), (4, 4.0)] {
            sheet.write_number(row, 0, n).unwrap();
            sheet.write_number_with_format(row, 1, 45_351.0, &day).unwrap();
        }
        sheet.write_formula(3, 0, rust_xlsxwriter::Formula::new("=1/0").set_result("#DIV/0!")).unwrap();
        sheet.write_number_with_format(4, 1, 45_351.5, &day).unwrap();
        sheet.write_string(5, 0, " 7 ").unwrap();
        sheet.write_string(5, 1, "2024-02-29").unwrap();
    });
    let schema = columns(&[("n", DataType::Int64), ("day", DataType::Date32)]);
    let shown = read_from(&bytes, &schema, &[], 0, 100).unwrap();
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[..2], ["+I 1 2024-02-29", "+I 7 2024-02-29"]);
    assert_eq!(lines[2], "1 A3: column 'n', cell A3: '2.5' is no BIGINT | 2.5,2024-02-29");
    assert!(lines[3].starts_with("2 A4: column 'n', cell A4: "), "{}", lines[3]);
    let expect =
        "3 B5: column 'day', cell B5: '2024-02-29 12:00:00' is no DATE: it has a time; declare TIMESTAMP(3) | 4,2024-02-29 12:00:00";
    assert_eq!(lines[4], expect);
    // Nobody looks at cells of columns that are not read.
    let days = columns(&[("day", moment(TimeUnit::Millisecond))]);
    assert_eq!(read_from(&bytes, &days, &[], 0, 100).unwrap().lines().count(), 5);
    let strict = Arc::new(Schema::new(vec![Field::new("day", DataType::Utf8, false)]));
    assert!(
        read_from(&bytes, &strict, &[], 2, 100)
            .unwrap()
            .contains("2 B4: column 'day', cell B4: the cell is empty, and the column is NOT NULL")
    );
}

#[test]
fn what_cells_do_not_hold_is_an_error() {
    let refused = |kind: DataType, row: &str| write(&columns(&[("c", kind)]), row, &[]).unwrap_err().to_string();
    let check = |kind: DataType, row: &str, why: &str| {
        let error = refused(kind, row);
        assert!(error.starts_with("writing XLSX: column 'c', cell A2: ") && error.contains(why), "{error}");
    };
    check(DataType::Int64, "9007199254740993", "9007199254740993 exactly; write CAST(… AS STRING)");
    check(DataType::Float64, "NaN", "cells hold no NaN");
    check(DataType::Decimal128(20, 2), "12345678901234.56", "15 digits exactly, and 12345678901234.56 has more");
    check(DataType::Date32, "1899-12-31", "days from 1900 to 9999");
    check(moment(TimeUnit::Microsecond), "2024-02-29T00:00:00.000001", "cells hold milliseconds");
    check(DataType::Utf8, &"x".repeat(32_768), "a text of 32768 characters");
    assert!(refused(DataType::Binary, "x").contains("column 'c': cells of XLSX hold no BYTES"));
    assert!(open_error(b"PK no zip").starts_with("reading the workbook 'x.xlsx': "));
}

fn open_error(bytes: &[u8]) -> String {
    error(bytes, &columns(&[("c", DataType::Utf8)]), &[])
}

#[test]
fn both_systems_of_dates() {
    let ms = |year, month, day| days_from_civil(year, month, day) * DAY_MS;
    for (number, expect) in [(1.0, ms(1900, 1, 1)), (59.0, ms(1900, 2, 28)), (61.0, ms(1900, 3, 1)), (2_958_465.0, ms(9999, 12, 31))] {
        assert_eq!(moment_ms(number, false), Ok(expect));
        assert_eq!(serial(expect), Some(number));
    }
    assert_eq!(moment_ms(45_351.5, false), Ok(ms(2024, 2, 29) + DAY_MS / 2));
    assert_eq!(moment_ms(43_889.25, true), Ok(ms(2024, 2, 29) + DAY_MS / 4));
    assert_eq!(moment_ms(0.0, true), Ok(ms(1904, 1, 1)));
    assert!(moment_ms(60.0, false).unwrap_err().contains("never was"));
    assert!(moment_ms(0.5, false).unwrap_err().contains("without a date"));
    for wrong in [-1.0, 2_958_466.0, 1e300, f64::NAN] {
        assert!(moment_ms(wrong, false).is_err() && moment_ms(wrong, true).is_err(), "{wrong}");
    }
    assert_eq!((serial(ms(1899, 12, 31)), serial(ms(10_000, 1, 1))), (None, None));
}

#[test]
fn cells_have_names_and_texts() {
    let names = [cell_name(6, 1), cell_name(0, 25), cell_name(0, 26), cell_name(1_048_575, 16_383)];
    assert_eq!(names, ["B7", "Z1", "AA1", "XFD1048576"]);
    let mut shown = String::new();
    for cell in [DataRef::Float(1.0), DataRef::Float(0.1), DataRef::Bool(true), DataRef::SharedString("x"), DataRef::Empty] {
        show(&mut shown, &cell, false);
        shown.push(' ');
    }
    assert_eq!(shown, "1 0.1 true x  ");
}
