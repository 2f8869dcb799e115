//! Files that are written, read from anywhere, and read in part; and what is wrong with others.

use super::*;
use crate::options::{OptionSet, RawOptions};
use arrow::array::{Array, ArrayRef, AsArray, Date32Array, Int32Array, Int64Array, StringArray};
use arrow::datatypes::{Field, Int64Type, TimeUnit};
use std::sync::Mutex;

/// A file that is removed at the end of the test.
pub(super) struct Temp(pub PathBuf);

impl Temp {
    pub fn new(name: &str) -> Self {
        Temp(std::env::temp_dir().join(format!("tidemill-format-{}-{name}.parquet", std::process::id())))
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn options(pairs: &[(&str, &str)]) -> ParquetOptions {
    ParquetOptions::take(&mut RawOptions::new("table 't'", pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())))).unwrap()
}

/// `rows` rows (n, s) in row groups of 10.
fn file(name: &str, rows: i64, compression: &str) -> Temp {
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false), Field::new("s", DataType::Utf8, true)]));
    let temp = Temp::new(name);
    let out = Box::new(File::create(&temp.0).unwrap());
    let mut writer =
        ParquetFileWriter::new(out, &schema, &options(&[("parquet.row-group.rows", "10"), ("parquet.compression", compression)])).unwrap();
    for from in (0..rows).step_by(7) {
        let numbers: Vec<i64> = (from..rows.min(from + 7)).collect();
        let texts: Vec<Option<String>> = numbers.iter().map(|n| (n % 3 > 0).then(|| format!("s{n}"))).collect();
        let columns = vec![Arc::new(Int64Array::from(numbers)) as _, Arc::new(StringArray::from(texts)) as _];
        writer.write(&RecordBatch::try_new(schema.clone(), columns).unwrap()).unwrap();
    }
    writer.finish().unwrap();
    temp
}

fn read(temp: &Temp, schema: &SchemaRef, projection: &[usize], start: u64, batch: usize) -> Vec<String> {
    let mut reader = ParquetFileReader::open(&temp.0, schema, projection, start, batch).unwrap();
    let mut rows = Vec::new();
    while let Some(batch) = reader.next().unwrap() {
        assert!(batch.num_rows() > 0);
        let text = tidemill_block::text::format(&tidemill_block::Block::inserts(batch, 0));
        rows.extend(text.lines().map(|l| l[2..].trim().to_string()));
        assert_eq!(reader.rows_read(), start + rows.len() as u64);
    }
    rows
}

#[test]
fn rows_come_back_from_any_start() {
    // The columns are declared in another order and another type than the file's.
    let declared = Arc::new(Schema::new(vec![Field::new("s", DataType::Utf8, true), Field::new("n", DataType::Int32, true)]));
    for compression in ["snappy", "zstd", "gzip", "none"] {
        let temp = file(&format!("start-{compression}"), 35, compression);
        let all: Vec<String> = (0..35).map(|n| if n % 3 > 0 { format!("s{n} {n}") } else { format!("NULL {n}") }).collect();
        for start in [0, 1, 9, 10, 11, 29, 30, 34, 35, 99] {
            for batch in [1, 4, 1000] {
                assert_eq!(read(&temp, &declared, &[0, 1], start, batch), all[(start as usize).min(35)..], "start {start}");
            }
        }
        assert_eq!(read(&temp, &declared, &[1, 0, 1], 33, 9), ["33 NULL 33", "34 s34 34"]);
        assert_eq!(read(&temp, &declared, &[], 5, 100).len(), 30);
    }
}

#[test]
fn row_groups_are_picked_by_what_the_file_says_of_them() {
    let temp = file("pick", 35, "snappy");
    let schema = schema_of(&temp.0).unwrap();
    let read = |part: Range<u64>, pick: Pick<'_>| {
        let input = File::open(&temp.0).unwrap();
        let mut reader = ParquetFileReader::of_rows(&temp.0, input, (&schema, &[0]), part, Some((&schema, pick)), 100)?;
        let mut numbers = Vec::new();
        while let Some(batch) = reader.next()? {
            numbers.extend_from_slice(batch.column(0).as_primitive::<Int64Type>().values());
        }
        Ok::<Vec<i64>, FormatError>(numbers)
    };
    let from = |least: i64| {
        move |known: &Extents<'_>| {
            let n = known.columns[0].as_ref().expect("statistics of n");
            Some(n.greatest.as_primitive::<Int64Type>().values().iter().map(|greatest| *greatest >= least).collect::<Vec<bool>>())
        }
    };
    assert_eq!(read(0..u64::MAX, &from(25)).unwrap(), (20..35).collect::<Vec<_>>());
    assert_eq!(read(10..30, &from(25)).unwrap(), (20..30).collect::<Vec<_>>());
    assert_eq!(read(0..35, &from(99)).unwrap(), Vec::<i64>::new());
    assert_eq!(read(0..20, &|_| None).unwrap(), (0..20).collect::<Vec<_>>());
    for (start, end) in [(5, 20), (0, 1), (13, 17), (9, 31), (34, 35), (20, 20), (35, 40)] {
        assert_eq!(read(start..end, &|_| None).unwrap(), (start as i64..end.min(35) as i64).collect::<Vec<_>>());
    }
    assert_eq!(read(5..28, &from(15)).unwrap(), (10..28).collect::<Vec<_>>());
    let known = |known: &Extents<'_>| {
        let s = known.columns[1].as_ref().expect("statistics of s");
        let (least, greatest) = (s.least.as_string::<i32>(), s.greatest.as_string::<i32>());
        assert_eq!((known.rows.values()[3], least.value(0), greatest.value(3), s.nulls.value(0)), (5, "s1", "s34", 4));
        None::<Vec<bool>>
    };
    assert_eq!(read(0..35, &known).unwrap().len(), 35);
}

/// Least and greatest values say nothing where values stand in no order.
#[test]
fn row_groups_are_picked_by_their_filters() {
    let fields = [("d", DataType::Date32), ("i", DataType::Int32), ("n", DataType::Int64), ("s", DataType::Utf8)];
    let schema = Arc::new(Schema::new(fields.map(|(name, data_type)| Field::new(name, data_type, true)).to_vec()));
    let all: Vec<i32> = (0..1000).map(|row| row * 7919 % 1000).collect();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Date32Array::from(all.clone())),
        Arc::new(Int32Array::from(all.clone())),
        Arc::new(all.iter().map(|n| (*n != 500).then_some(i64::from(*n))).collect::<Int64Array>()),
        Arc::new(StringArray::from(all.iter().map(|n| format!("s{n}")).collect::<Vec<_>>())),
    ];
    let batch = RecordBatch::try_new(schema.clone(), columns).unwrap();
    let write = |name: &str, filters: &[(&str, &str)]| {
        let temp = Temp::new(name);
        let options = options(&[&[("parquet.row-group.rows", "100")][..], filters].concat());
        let mut writer = ParquetFileWriter::new(Box::new(File::create(&temp.0).unwrap()), &schema, &options).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        temp
    };
    // How many row groups are left for values of a column, of how many that were asked about.
    let left = |temp: &Temp, column: usize, values: &dyn Array| {
        let asked = std::cell::Cell::new(0);
        let pick = |known: &Extents<'_>| {
            let lack = known.filters?.lack(column, values)?;
            asked.set(lack.len());
            Some(lack.into_iter().map(|lacks| !lacks).collect::<Vec<bool>>())
        };
        let input = File::open(&temp.0).unwrap();
        let mut reader =
            ParquetFileReader::of_rows(&temp.0, input, (&schema, &[column]), 0..u64::MAX, Some((&schema, &pick)), 1000).unwrap();
        let mut rows = 0;
        while let Some(batch) = reader.next().unwrap() {
            rows += batch.num_rows();
        }
        (rows / 100, asked.get())
    };
    let values = |value: i32| -> [ArrayRef; 4] {
        [
            Arc::new(Date32Array::from(vec![value])),
            Arc::new(Int32Array::from(vec![value])),
            Arc::new(Int64Array::from(vec![i64::from(value)])),
            Arc::new(StringArray::from(vec![format!("s{value}")])),
        ]
    };
    let temp = write("filters", &[("parquet.bloom-filter-columns", "s, i,n,d")]);
    for column in 0..4 {
        // Each value is in one of ten row groups; some others may seem to have it, and few of a hundred.
        let mut seem = 0;
        for value in 0..100 {
            let (groups, asked) = left(&temp, column, &values(value)[column]);
            assert!((1..=10).contains(&groups) && asked == 10, "column {column}, value {value}: {groups} of {asked}");
            seem += groups - 1;
        }
        assert!(seem < 100, "column {column}: {seem} of 900 row groups seem to have a value that they have not");
        let seem: usize = (1000..1100).map(|value| left(&temp, column, &values(value)[column]).0).sum();
        assert!(seem < 100, "column {column}: {seem} of 1000 row groups seem to have a value that they have not");
    }
    // Values of another type than the column's, and NULL, are none that filters tell of.
    assert_eq!(left(&temp, 1, &values(5)[2]), (10, 0));
    assert_eq!(left(&temp, 2, &Int64Array::from(vec![None, Some(2000)])), (10, 0));
    // Without filters nothing is known, and of the columns that have none.
    assert_eq!(left(&write("no-filters", &[]), 2, &values(2000)[2]), (10, 0));
    let one = write("one-filter", &[("parquet.bloom-filter-columns", "n")]);
    assert_eq!(left(&one, 1, &values(2000)[1]), (10, 10));
    assert!(left(&one, 2, &values(2000)[2]).0 < 5);
}

/// A file, and how many parts were asked for at once.
struct Together(File, Arc<Mutex<Vec<usize>>>);

impl Length for Together {
    fn len(&self) -> u64 {
        self.0.len()
    }
}

impl ChunkReader for Together {
    type T = <File as ChunkReader>::T;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        self.0.get_read(start)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        self.0.get_bytes(start, length)
    }
}

impl ParquetInput for Together {
    fn read_parts(&self, parts: &[Range<u64>]) -> Result<Vec<Bytes>, ParquetError> {
        self.1.lock().unwrap().push(parts.len());
        self.0.read_parts(parts)
    }
}

/// The filters of a file in a bucket were a request each, one after the other.
#[test]
fn filters_are_asked_for_together() {
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
    let temp = Temp::new("together");
    let options = options(&[("parquet.row-group.rows", "10"), ("parquet.bloom-filter-columns", "n")]);
    let mut writer = ParquetFileWriter::new(Box::new(File::create(&temp.0).unwrap()), &schema, &options).unwrap();
    let numbers = Int64Array::from_iter_values((0..70).map(|n| n * 31 % 70));
    writer.write(&RecordBatch::try_new(schema.clone(), vec![Arc::new(numbers)]).unwrap()).unwrap();
    writer.finish().unwrap();
    let pick = |known: &Extents<'_>| {
        let lack = known.filters?.lack(0, &Int64Array::from(vec![35]))?;
        Some(lack.into_iter().map(|lacks| !lacks).collect::<Vec<bool>>())
    };
    let asked = Arc::new(Mutex::new(Vec::new()));
    let input = Together(File::open(&temp.0).unwrap(), asked.clone());
    let mut reader = ParquetFileReader::of_rows(&temp.0, input, (&schema, &[0]), 0..u64::MAX, Some((&schema, &pick)), 100).unwrap();
    let mut found = false;
    while let Some(batch) = reader.next().unwrap() {
        found |= batch.column(0).as_primitive::<Int64Type>().values().contains(&35);
    }
    assert!(found);
    assert_eq!(*asked.lock().unwrap(), [7]);
}

#[test]
fn filters_for_what_cannot_have_one() {
    let list = DataType::List(Arc::new(Field::new("item", DataType::Int64, true)));
    let fields = [("n", DataType::Int64), ("b", DataType::Boolean), ("l", list)];
    let schema = Arc::new(Schema::new(fields.map(|(name, data_type)| Field::new(name, data_type, true)).to_vec()));
    let check = |columns: &str, expect: &str| {
        let options = options(&[("parquet.bloom-filter-columns", columns)]);
        let error = ParquetFileWriter::new(Box::new(std::io::sink()), &schema, &options).err().expect("an error").to_string();
        assert!(error.contains("'parquet.bloom-filter-columns'") && error.contains(expect), "{error}");
    };
    check("n,m", "no column 'm'; they have: n, b, l");
    check("b", "column 'b' of type BOOLEAN");
    check("n, l", "column 'l' of type ARRAY<BIGINT>");
}

#[test]
fn the_schema_and_what_is_missing() {
    let temp = file("schema", 3, "snappy");
    let held = schema_of(&temp.0).unwrap();
    assert_eq!(
        held.fields().iter().map(|f| (f.name().as_str(), f.data_type().clone())).collect::<Vec<_>>(),
        [("n", DataType::Int64), ("s", DataType::Utf8)]
    );
    let error = |name: &str, data_type: DataType| {
        let declared = Arc::new(Schema::new(vec![Field::new(name, data_type, true)]));
        ParquetFileReader::open(&temp.0, &declared, &[0], 0, 10).err().expect("an error").to_string()
    };
    assert!(error("m", DataType::Int64).ends_with("has no column 'm'; it has: n, s"));
    let row = DataType::Struct(vec![Field::new("x", DataType::Int32, true)].into());
    assert!(error("n", row).ends_with("is BIGINT in the file and cannot be read as ROW<x INT>"));
    let declared = Arc::new(Schema::new(vec![Field::new("s", DataType::Timestamp(TimeUnit::Millisecond, None), true)]));
    let mut reader = ParquetFileReader::open(&temp.0, &declared, &[0], 0, 10).unwrap();
    assert!(reader.next().unwrap_err().to_string().contains("column 's' as TIMESTAMP(3)"));
    assert!(
        schema_of(Path::new("/nowhere/x.parquet")).unwrap_err().to_string().starts_with("cannot open parquet file '/nowhere/x.parquet'")
    );
}

/// A dictionary of texts that all differ was made for nothing: a fifth of the writing.
#[test]
fn texts_that_all_differ_get_no_dictionary() {
    let temp = Temp::new("dictionary");
    let (few, many) = (["a", "b", "c"], "0123456789".repeat(8));
    let rows = 5_000;
    let columns: [(&str, ArrayRef); 3] = [
        ("few", Arc::new(StringArray::from_iter_values((0..rows).map(|n| few[n % 3])))),
        ("many", Arc::new(StringArray::from_iter_values((0..rows).map(|n| format!("{n}{many}"))))),
        ("some", Arc::new(StringArray::from_iter_values((0..rows).map(|n| format!("{}{many}", n % 2_000))))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let out = Box::new(File::create(&temp.0).unwrap());
    let mut writer = ParquetFileWriter::new(out, &batch.schema(), &options(&[])).unwrap();
    // One batch says too little; the file begins when there are enough.
    for at in (0..rows).step_by(100) {
        writer.write(&batch.slice(at, 100)).unwrap();
        assert!(writer.sizes().0 > 0);
    }
    drop(writer.finish().unwrap());
    let metadata = footer(&temp.0, &File::open(&temp.0).unwrap()).unwrap();
    let has: Vec<bool> = metadata.metadata().row_group(0).columns().iter().map(|c| c.dictionary_page_offset().is_some()).collect();
    assert_eq!(has, [true, false, true]);
    let mut reader = ParquetFileReader::open(&temp.0, &batch.schema(), &[0, 1, 2], 0, rows).unwrap();
    let mut read = Vec::new();
    while let Some(batch) = reader.next().unwrap() {
        read.push(batch);
    }
    assert_eq!(arrow::compute::concat_batches(&batch.schema(), &read).unwrap().columns(), batch.columns());
}

/// A writer that gets a row of each batch kept all batches.
#[test]
fn rows_that_wait_for_the_beginning_of_a_file_keep_nothing_else() {
    let temp = Temp::new("first-rows");
    let batch = |n: usize| {
        let texts = StringArray::from_iter_values((0..1_000).map(|row| format!("{n}-{row}-{}", "x".repeat(1_000))));
        RecordBatch::try_from_iter([("t", Arc::new(texts) as ArrayRef)]).unwrap()
    };
    let out = Box::new(File::create(&temp.0).unwrap());
    let mut writer = ParquetFileWriter::new(out, &batch(0).schema(), &options(&[])).unwrap();
    for n in 0..10 {
        writer.write(&batch(n).slice(500, 1)).unwrap();
    }
    let (held, written) = writer.sizes();
    assert!((10_000..30_000).contains(&held) && written == 0, "{held} bytes are held");
    writer.settle().unwrap();
    assert!(writer.sizes().1 > 0, "it is begun");
    drop(writer.finish().unwrap());
    let mut reader = ParquetFileReader::open(&temp.0, &batch(0).schema(), &[0], 0, 100).unwrap();
    let read = reader.next().unwrap().unwrap();
    let texts: Vec<&str> = read.column(0).as_string::<i32>().iter().map(|text| &text.unwrap()[..6]).collect();
    assert_eq!(texts, (0..10).map(|n| format!("{n}-500-")).collect::<Vec<_>>());
}

/// Groups were closed by compressed bytes where pages were complete: texts that compress well made one of all rows.
#[test]
fn row_groups_are_closed_by_the_bytes_of_their_rows() {
    let rows_of_groups = |pairs: &[(&str, &str)]| -> Vec<i64> {
        let temp = Temp::new("groups");
        let long = "0123456789".repeat(100);
        let text = |from: usize| StringArray::from_iter_values((from..from + 100).map(|n| format!("{n}{long}")));
        let batches: Vec<RecordBatch> =
            (0..10).map(|n| RecordBatch::try_from_iter([("t", Arc::new(text(n * 100)) as ArrayRef)]).unwrap()).collect();
        let mut writer = ParquetFileWriter::new(Box::new(File::create(&temp.0).unwrap()), &batches[0].schema(), &options(pairs)).unwrap();
        batches.iter().for_each(|batch| writer.write(batch).unwrap());
        drop(writer.finish().unwrap());
        ParquetFooter::of(&temp.0, &File::open(&temp.0).unwrap()).unwrap().row_groups().iter().map(|(rows, _)| *rows as i64).collect()
    };
    // A hundred rows are 100 KB.
    assert_eq!(rows_of_groups(&[("parquet.block.size", "250 kb")]), [300, 300, 300, 100]);
    assert_eq!(rows_of_groups(&[("parquet.row-group.rows", "350")]), [350, 350, 300]);
    assert_eq!(rows_of_groups(&[("parquet.block.size", "250 kb"), ("parquet.row-group.rows", "150")]), [150, 150, 150, 150, 150, 150, 100]);
    assert_eq!(rows_of_groups(&[("parquet.block.size", "1 gb")]), [1000]);
}
