//! Files that were written are read, from any row; what is missing or cannot be is said.

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use bytes::Bytes;
use tidemill_block::{Block, text};

use super::*;
use crate::FormatError;
use crate::options::{OptionSet, RawOptions};

/// A file in memory, which a writer on another thread fills.
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

fn options(pairs: &[(&str, &str)]) -> OrcOptions {
    OrcOptions::take(&mut RawOptions::new("table 't'", pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())))).unwrap()
}

fn columns(columns: &[(&str, DataType)]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(|(name, kind)| Field::new(*name, kind.clone(), true)).collect::<Vec<_>>()))
}

fn write(batches: &[RecordBatch], pairs: &[(&str, &str)]) -> Result<Bytes, FormatError> {
    let file = File::default();
    let mut writer = OrcFileWriter::new(Box::new(file.clone()), &batches[0].schema(), &options(pairs))?;
    for batch in batches {
        writer.write(batch)?;
    }
    writer.finish()?;
    let bytes = std::mem::take(&mut *file.0.lock().unwrap());
    Ok(bytes.into())
}

/// `rows` rows (n, s), in stripes of some thousand.
fn numbered(rows: i64, compress: &str) -> Bytes {
    let schema = columns(&[("n", DataType::Int64), ("s", DataType::Utf8)]);
    let batches: Vec<RecordBatch> = (0..rows.max(1))
        .step_by(5000)
        .map(|from| {
            let numbers: Vec<i64> = (from..rows.min(from + 5000)).collect();
            let texts: Vec<Option<String>> = numbers.iter().map(|n| (n % 3 > 0).then(|| format!("s{n}"))).collect();
            let arrays: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(numbers)), Arc::new(StringArray::from(texts))];
            RecordBatch::try_new(schema.clone(), arrays).unwrap()
        })
        .collect();
    write(&batches, &[("orc.compress", compress), ("orc.stripe.size", "20 kb")]).unwrap()
}

fn read(file: &Bytes, schema: &SchemaRef, projection: &[usize], rows: Range<u64>, batch: usize) -> Result<Vec<String>, FormatError> {
    let mut reader = OrcFileReader::of(Path::new("x.orc"), Box::new(file.clone()), schema, projection, rows, batch)?;
    let mut read = Vec::new();
    while let Some(rows) = reader.next()? {
        assert!((1..=batch).contains(&rows.num_rows()));
        let shown = text::format(&Block::inserts(rows, 0));
        read.extend(shown.lines().map(|line| line[2..].trim().to_string()));
    }
    Ok(read)
}

#[test]
fn rows_come_back_from_any_start() {
    // The columns are declared in another order and another type than the file's.
    let declared = columns(&[("s", DataType::Utf8), ("n", DataType::Int32)]);
    let all: Vec<String> = (0..12_000).map(|n| if n % 3 > 0 { format!("s{n} {n}") } else { format!("NULL {n}") }).collect();
    for compress in ["zlib", "zstd", "snappy", "lz4", "none"] {
        let file = numbered(12_000, compress);
        let stripes = stripes_in(Path::new("x.orc"), &file).unwrap();
        assert!(stripes.len() > 1 && stripes.iter().map(|(rows, _)| rows).sum::<u64>() == 12_000, "{stripes:?}");
        let second = stripes[0].0;
        for start in [0, 1, 999, second - 1, second, second + 1, 11_999, 12_000, 99_999] {
            let from = (start as usize).min(12_000);
            assert!(read(&file, &declared, &[0, 1], start..u64::MAX, 1000).unwrap() == all[from..], "{compress} from {start}");
        }
        assert_eq!(read(&file, &declared, &[0, 1], second - 1..second + 1, 7).unwrap(), all[second as usize - 1..=second as usize]);
        assert_eq!(read(&file, &declared, &[1, 0, 1], 11_998..u64::MAX, 9).unwrap(), ["11998 s11998 11998", "11999 s11999 11999"]);
        assert_eq!(read(&file, &declared, &[], 5..u64::MAX, 5000).unwrap().len(), 11_995);
    }
    assert!(read(&numbered(0, "zlib"), &declared, &[0, 1], 0..u64::MAX, 10).unwrap().is_empty());
}

#[test]
fn moments_keep_their_digits() {
    let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
    // The second is beyond what nanoseconds hold.
    let values = TimestampMicrosecondArray::from(vec![Some(1_709_208_000_123_456), Some(253_402_214_400_000_000), None, Some(-1_500_001)]);
    let batch = RecordBatch::try_new(columns(&[("t", micros.clone())]), vec![Arc::new(values)]).unwrap();
    let file = write(&[batch], &[]).unwrap();
    let held = schema_in(Path::new("x.orc"), &file).unwrap();
    assert_eq!(*held.field(0).data_type(), DataType::Timestamp(TimeUnit::Nanosecond, None));
    let read_as = |unit| read(&file, &columns(&[("t", DataType::Timestamp(unit, None))]), &[0], 0..9, 10);
    let expect = ["2024-02-29T12:00:00.123456", "9999-12-31T00:00:00", "NULL", "1969-12-31T23:59:58.499999"];
    assert_eq!(read_as(TimeUnit::Microsecond).unwrap(), expect);
    let expect = ["2024-02-29T12:00:00.123", "9999-12-31T00:00:00", "NULL", "1969-12-31T23:59:58.499"];
    assert_eq!(read_as(TimeUnit::Millisecond).unwrap(), expect);
    let error = read_as(TimeUnit::Nanosecond).unwrap_err().to_string();
    assert!(error.ends_with("which TIMESTAMP(9) holds; declare its column as TIMESTAMP(6)"), "{error}");
}

#[test]
fn what_cannot_be_is_said() {
    let file = numbered(3, "zlib");
    let error = |name: &str, kind: DataType| read(&file, &columns(&[(name, kind)]), &[0], 0..9, 10).unwrap_err().to_string();
    assert!(error("m", DataType::Int64).ends_with("has no column 'm'; it has: n, s"));
    let row = DataType::Struct(vec![Field::new("x", DataType::Int32, true)].into());
    assert!(error("n", row).ends_with("is BIGINT in the file and cannot be read as ROW<x INT>"));
    assert!(error("s", DataType::Date32).contains("rows from 0 on: column 's' as DATE"));
    let refused = |kind: DataType| OrcFileWriter::check(&columns(&[("c", kind)]), &options(&[])).unwrap_err().to_string();
    assert!(refused(DataType::Decimal128(10, 2)).starts_with("column 'c': DECIMAL(10, 2) is not written as ORC; write CAST"));
    assert!(refused(DataType::Time32(TimeUnit::Millisecond)).contains("ORC has no times"));
}

#[test]
fn damaged_files_are_errors() {
    let file = numbered(12_000, "zlib");
    let declared = columns(&[("n", DataType::Int64), ("s", DataType::Utf8)]);
    for length in [0, 1, 3, 100, file.len() / 2, file.len() - 1] {
        assert!(read(&file.slice(..length), &declared, &[0, 1], 0..u64::MAX, 1000).is_err(), "{length} bytes");
    }
    // Whatever is changed near the end, nothing worse than an error comes of it.
    for at in 1..200.min(file.len()) {
        let mut bytes = file.to_vec();
        let place = bytes.len() - at;
        bytes[place] ^= 0x55;
        let _ = read(&bytes.into(), &declared, &[0, 1], 0..u64::MAX, 1000);
    }
}

#[test]
fn only_what_is_wanted_is_asked_for() {
    /// Notes what is read.
    struct Noted(Bytes, Arc<Mutex<u64>>);

    impl OrcInput for Noted {
        fn size(&self) -> u64 {
            self.0.len() as u64
        }

        fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
            *self.1.lock().unwrap() += range.end - range.start;
            self.0.read(range)
        }
    }

    let file = numbered(50_000, "none");
    let schema = columns(&[("n", DataType::Int64), ("s", DataType::Utf8)]);
    let bytes = |projection: &[usize], rows: Range<u64>| {
        let read = Arc::new(Mutex::new(0));
        let input = Box::new(Noted(file.clone(), read.clone()));
        let mut reader = OrcFileReader::of(Path::new("x.orc"), input, &schema, projection, rows, 1000).unwrap();
        while reader.next().unwrap().is_some() {}
        *read.lock().unwrap()
    };
    let (all, one, end, none) = (bytes(&[0, 1], 0..50_000), bytes(&[0], 0..50_000), bytes(&[0, 1], 49_999..50_000), bytes(&[], 0..50_000));
    assert!(all >= file.len() as u64 / 2 && one < all / 2 && end < all / 2 && none <= 16 << 10, "{all} {one} {end} {none}");
}
