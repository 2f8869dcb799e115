//! Files and streams as strangers write them: every kind of column, dictionaries, compressed buffers, and wrong bytes.

use std::io::{self, Cursor, Write};
use std::sync::Mutex;

use arrow::array::{
    BinaryViewArray, BooleanArray, Decimal256Array, DictionaryArray, DurationSecondArray, FixedSizeBinaryArray, FixedSizeListArray,
    Int32Array, Int64Array, LargeListArray, LargeStringArray, ListArray, MapArray, MapBuilder, NullArray, StringArray, StringBuilder,
    StringViewArray, StructArray, UInt64Array,
};
use arrow::buffer::{Buffer, OffsetBuffer};
use arrow::compute::concat_batches;
use arrow::datatypes::{Fields, Int32Type, TimeUnit, i256};
use arrow::ipc::writer::StreamWriter;

use super::*;
use crate::ipc::{ArrowCompression, ArrowFileWriter, ArrowForm, ArrowOptions};
use crate::options::{OptionSet, RawOptions};

/// A file in memory.
struct Memory(Buffer);

impl IpcInput for Memory {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, parts: &[Range<u64>]) -> io::Result<Vec<Buffer>> {
        Ok(parts.iter().map(|part| self.0.slice_with_length(part.start as usize, (part.end - part.start) as usize)).collect())
    }
}

fn options(compression: ArrowCompression, form: ArrowForm) -> ArrowOptions {
    ArrowOptions { compression, form, ..ArrowOptions::take(&mut RawOptions::default()).unwrap() }
}

/// What a writer writes.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What the writer makes of batches.
fn written(batches: &[RecordBatch], options: &ArrowOptions) -> Vec<u8> {
    let out = Written::default();
    let mut writer = ArrowFileWriter::new(Box::new(out.clone()), &batches[0].schema(), options).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.finish().unwrap();
    std::mem::take(&mut *out.0.lock().unwrap())
}

/// A reader as a file, or from the front.
fn reader(bytes: &[u8], schema: &SchemaRef, front: bool, start: u64, rows: usize) -> Result<ArrowReader, FormatError> {
    let projection: Vec<usize> = (0..schema.fields().len()).collect();
    let ask = ArrowAsk { physical: schema, projection: &projection, start, batch_rows: rows, trusted: false };
    let input = Memory(Buffer::from(bytes));
    let file = if front { None } else { ArrowFile::open(&input)? };
    match file {
        Some(file) => ArrowReader::of_file(Box::new(input), file, None, &ask, Arc::default()),
        None => ArrowReader::of_stream(Box::new(Cursor::new(bytes.to_vec())), &ask, Arc::default()),
    }
}

/// Reads as a file, or from the front, in batches of `rows`, passing over `start` rows.
fn read_as(bytes: &[u8], schema: &SchemaRef, front: bool, start: u64, rows: usize) -> Result<RecordBatch, FormatError> {
    let mut reader = reader(bytes, schema, front, start, rows)?;
    let mut batches = Vec::new();
    while let Some(batch) = reader.read()? {
        assert!(batch.num_rows() <= rows);
        batches.push(batch);
    }
    Ok(concat_batches(schema, &batches).unwrap())
}

/// The schema as tables have it.
fn schema_of(bytes: &[u8]) -> SchemaRef {
    let front = schema_of_stream(Box::new(Cursor::new(bytes.to_vec()))).unwrap();
    if let Some(file) = ArrowFile::open(&Memory(Buffer::from(bytes))).unwrap() {
        assert_eq!(schema_of_file(&file).unwrap(), front);
    }
    front
}

fn words() -> Vec<Option<&'static str>> {
    vec![Some("a"), None, Some("a text of more than twelve bytes"), Some(""), Some("a")]
}

/// Five rows of everything that is taken.
fn everything() -> RecordBatch {
    let numbers = || -> ArrayRef { Arc::new(Int32Array::from(vec![Some(1), None, Some(3), Some(4), None])) };
    let fields: Fields = vec![Field::new("x", DataType::Int32, true)].into();
    let lists = [Some(vec![Some(1), None]), None, Some(vec![]), Some(vec![Some(2)]), Some(vec![None])];
    let mut map = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
    for row in 0..5 {
        map.keys().append_value(format!("k{row}"));
        map.values().append_option((row > 1).then_some("v"));
        map.append(row != 3).unwrap();
    }
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("n", numbers(), true),
        ("b", Arc::new(BooleanArray::from(vec![true, false, true, true, false])), false),
        ("s", Arc::new(StringArray::from(words())), true),
        ("large", Arc::new(LargeStringArray::from(words())), true),
        ("view", Arc::new(StringViewArray::from(words())), true),
        ("bytes", Arc::new(BinaryViewArray::from_iter(words().into_iter().map(|w| w.map(str::as_bytes)))), true),
        ("five", Arc::new(FixedSizeBinaryArray::try_from_iter((0..5u8).map(|n| [n; 5])).unwrap()), true),
        ("word", Arc::new(words().into_iter().collect::<DictionaryArray<Int32Type>>()), true),
        ("u", Arc::new(UInt64Array::from(vec![u64::MAX, 0, 1, 2, 3])), false),
        ("long", Arc::new(Decimal256Array::from(vec![Some(i256::from_i128(7)); 5]).with_precision_and_scale(50, 1).unwrap()), true),
        ("took", Arc::new(DurationSecondArray::from(vec![1, 2, 3, 4, 5])), true),
        ("nothing", Arc::new(NullArray::new(5)), true),
        ("row", Arc::new(StructArray::new(fields, vec![numbers()], Some(vec![true, false, true, true, true].into()))), true),
        ("list", Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists.clone())), true),
        ("many", Arc::new(LargeListArray::from_iter_primitive::<Int32Type, _, _>(lists)), true),
        ("pair", Arc::new(FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(vec![Some(vec![Some(1), None]); 5], 2)), true),
        ("map", Arc::new(map.finish()), true),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

#[test]
fn everything_is_read_from_every_form() {
    let whole = everything();
    let batches = [whole.clone(), whole.slice(0, 0), whole.slice(1, 3), whole.slice(4, 1)];
    let mut first: Option<RecordBatch> = None;
    for compression in [ArrowCompression::None, ArrowCompression::Lz4, ArrowCompression::Zstd] {
        for form in [ArrowForm::File, ArrowForm::Stream] {
            let bytes = written(&batches, &options(compression, form));
            let schema = schema_of(&bytes);
            for (front, start, rows) in [(false, 0, 100), (true, 0, 2), (false, 0, 1)] {
                let read = read_as(&bytes, &schema, front, start, rows).unwrap();
                assert_eq!(read.num_rows(), 9);
                let first = first.get_or_insert_with(|| read.clone());
                assert_eq!(*first, read, "{compression:?} {form:?}");
                let rest = read_as(&bytes, &schema, front, 6, rows).unwrap();
                assert_eq!(rest, first.slice(6, 3), "{compression:?} {form:?}");
            }
            assert!(read_as(&bytes, &schema, false, 10, 5).unwrap_err().to_string().contains("fewer rows than before"));
        }
    }
    let read = first.unwrap();
    let texts: Vec<_> = read.column_by_name("s").unwrap().as_string::<i32>().iter().collect();
    assert_eq!(texts[..5], words()[..]);
    for same in ["large", "view", "word"] {
        assert_eq!(read.column_by_name(same).unwrap(), read.column_by_name("s").unwrap(), "{same}");
    }
    let types = ["u", "long", "took", "nothing", "five"].map(|name| read.schema().field_with_name(name).unwrap().data_type().clone());
    assert_eq!(types, [DataType::Decimal128(20, 0), DataType::Utf8, DataType::Int64, DataType::Utf8, DataType::Binary]);
    assert_eq!(read.column_by_name("long").unwrap().as_string::<i32>().value(0), "0.7");
}

#[test]
fn columns_are_found_by_name_in_the_declared_types() {
    let bytes = written(&[everything()], &options(ArrowCompression::None, ArrowForm::File));
    let declared = |name: &str, data_type: DataType| -> Result<RecordBatch, String> {
        let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new(name, data_type, true), Field::new("n", DataType::Int64, true)]));
        read_as(&bytes, &schema, false, 0, 3).map_err(|e| e.to_string())
    };
    let read = declared("word", DataType::Utf8).unwrap();
    assert_eq!(read.column(0).as_string::<i32>().iter().collect::<Vec<_>>(), words());
    let expect = Int64Array::from(vec![Some(1), None, Some(3), Some(4), None]);
    assert_eq!(read.column(1).as_ref(), &expect as &dyn Array);
    assert!(declared("x", DataType::Utf8).unwrap_err().starts_with("it has no column 'x'; it has: n, b, s, "));
    let error = declared("list", DataType::Timestamp(TimeUnit::Millisecond, None)).unwrap_err();
    assert!(error.contains("column 'list' is ARRAY<INT> in the file and cannot be read as TIMESTAMP(3)"), "{error}");
    assert!(declared("u", DataType::Int64).unwrap_err().contains("column 'u' as BIGINT"));
    // Nothing is wanted of the columns: only their number of rows.
    let none: SchemaRef = Arc::new(Schema::empty());
    let ask = ArrowAsk { physical: &none, projection: &[], start: 0, batch_rows: 100, trusted: false };
    let input = Memory(Buffer::from(bytes.as_slice()));
    let file = ArrowFile::open(&input).unwrap().unwrap();
    assert_eq!(file.rows(&input).unwrap(), 5);
    assert_eq!(file.shape(&input).unwrap().dictionaries, 1);
    let mut reader = ArrowReader::of_file(Box::new(input), file, Some(0..1), &ask, Arc::default()).unwrap();
    assert_eq!(reader.read().unwrap().unwrap().num_rows(), 5);
    assert!(reader.read().unwrap().is_none());
}

#[test]
fn maps_have_dictionaries_in_their_entries_and_not_of_them() {
    let dictionary = |values: DataType| DataType::Dictionary(Box::new(DataType::Int32), Box::new(values));
    let pair = |key: DataType| Fields::from(vec![Field::new("key", key, false), Field::new("value", DataType::Int32, true)]);
    let map = |entries: DataType| DataType::Map(Arc::new(Field::new("entries", entries, false)), false);
    let fields = pair(dictionary(DataType::Utf8));
    let keys: ArrayRef = Arc::new(["a", "b", "a"].into_iter().collect::<DictionaryArray<Int32Type>>());
    let values: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, Some(3)]));
    let entries = StructArray::new(fields.clone(), vec![keys, values], None);
    let field = Arc::new(Field::new("entries", DataType::Struct(fields), false));
    let column: ArrayRef = Arc::new(MapArray::new(field, OffsetBuffer::from_lengths([2, 0, 1]), entries, None, false));
    let batch = RecordBatch::try_from_iter([("m", column)]).unwrap();
    for form in [ArrowForm::File, ArrowForm::Stream] {
        let bytes = written(std::slice::from_ref(&batch), &options(ArrowCompression::None, form));
        let schema = schema_of(&bytes);
        assert_eq!(*schema.field(0).data_type(), map(DataType::Struct(pair(DataType::Utf8))));
        for front in [false, true] {
            let read = read_as(&bytes, &schema, front, 0, 10).unwrap();
            let map = read.column(0).as_map();
            assert_eq!(map.keys().as_string::<i32>().iter().collect::<Vec<_>>(), [Some("a"), Some("b"), Some("a")]);
            assert_eq!((map.value_length(0), map.value_length(1), map.value_length(2)), (2, 0, 1));
        }
    }
    // Its pairs chosen from a dictionary: nothing writes that, and Arrow cannot hold it.
    let schema = Schema::new(vec![Field::new("m", map(dictionary(DataType::Struct(pair(DataType::Utf8)))), true)]);
    let bytes = StreamWriter::try_new(Vec::new(), &schema).unwrap().into_inner().unwrap();
    let error = schema_of_stream(Box::new(Cursor::new(bytes))).unwrap_err().to_string();
    assert!(error.contains("column 'm': the entries of a MAP cannot be those of a dictionary"), "{error}");
}

#[test]
fn errors_say_what_is_wrong() {
    let bytes = written(&[everything()], &options(ArrowCompression::None, ArrowForm::File));
    let schema = schema_of(&bytes);
    let error = |bytes: &[u8], front: bool| read_as(bytes, &schema, front, 0, 10).unwrap_err().to_string();
    assert!(error(b"", false).contains("the file is empty"));
    assert!(error(b"n,s\n1,a\n", false).contains("is this an Arrow file or stream?"));
    assert!(error(b"FEA1........", false).contains("Feather's first version"));
    for cut in [9, 1000, bytes.len() - 1] {
        assert!(error(&bytes[..cut], false).contains("it was cut short"), "{cut}");
        assert!(error(&bytes[..cut], true).contains("it was cut short"), "{cut}");
    }
    let stream = written(&[everything()], &options(ArrowCompression::None, ArrowForm::Stream));
    let twice = [&stream[..], &stream[..]].concat();
    assert!(error(&twice, true).contains("something follows behind the end of the stream"));
}

/// A text that is no UTF-8 and offsets that lead elsewhere must not reach anybody.
#[test]
fn what_a_column_holds_is_checked() {
    let text: ArrayRef = Arc::new(StringArray::from(vec!["needle"]));
    let mut bytes = written(&[RecordBatch::try_from_iter([("s", text)]).unwrap()], &options(ArrowCompression::None, ArrowForm::File));
    let schema = schema_of(&bytes);
    let at = bytes.windows(6).position(|window| window == b"needle").unwrap();
    bytes[at] = 0xff;
    for front in [false, true] {
        let error = read_as(&bytes, &schema, front, 0, 10).unwrap_err().to_string();
        assert!(error.contains("column 's': ") && error.to_lowercase().contains("utf"), "{error}");
    }
}

/// A file of which each part is copied.
struct Copied(Vec<u8>);

impl IpcInput for Copied {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, parts: &[Range<u64>]) -> io::Result<Vec<Buffer>> {
        Ok(parts.iter().map(|part| Buffer::from_vec(self.0[part.start as usize..part.end as usize].to_vec())).collect())
    }
}

/// That texts are ASCII is known where it was found, unless the mark would hide that they keep more memory than their own.
#[test]
fn texts_that_are_ascii_are_known_to_be_so() {
    let long = "x".repeat(10_000);
    for (second, part_of_a_file, known) in
        [(Some("ab"), false, true), (Some("é"), false, false), (None, false, false), (Some("ab"), true, false)]
    {
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some(long.as_str()), second]));
        let more: ArrayRef = Arc::new(StringArray::from(vec!["y".repeat(10_000).as_str(), ""]));
        let batch = RecordBatch::try_from_iter([("s", texts), ("t", more)]).unwrap();
        let bytes = written(&[batch], &options(ArrowCompression::None, ArrowForm::File));
        let schema = schema_of(&bytes);
        let input: Box<dyn IpcInput> = if part_of_a_file { Box::new(Memory(Buffer::from(&bytes[..]))) } else { Box::new(Copied(bytes)) };
        let file = ArrowFile::open(&*input).unwrap().unwrap();
        let ask = ArrowAsk { physical: &schema, projection: &[0], start: 0, batch_rows: 10, trusted: false };
        let batch = ArrowReader::of_file(input, file, None, &ask, Arc::default()).unwrap().read().unwrap().unwrap();
        let values = batch.column(0).as_string::<i32>().values();
        assert_eq!(tidemill_block::ascii::is_known(values), known, "{second:?}, {part_of_a_file}");
    }
}

/// Whatever byte is wrong, there are rows or an error, never a panic.
#[test]
fn wrong_bytes_are_errors() {
    for (compression, step) in [(ArrowCompression::None, 1), (ArrowCompression::Lz4, 11), (ArrowCompression::Zstd, 7)] {
        let bytes = written(&[everything()], &options(compression, ArrowForm::File));
        let schema = schema_of(&bytes);
        for at in (0..bytes.len()).step_by(step) {
            for wrong in [0x00, 0x7f, 0xff] {
                let mut bytes = bytes.clone();
                bytes[at] = wrong;
                for front in [false, true] {
                    if let Ok(mut reader) = reader(&bytes, &schema, front, 0, 10) {
                        // A lie about rows that take no bytes may make many of them.
                        let _ = (0..3).try_for_each(|_| reader.read().map(drop));
                    }
                }
            }
        }
    }
}
