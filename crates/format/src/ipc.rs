//! Arrow's IPC format. Here are messages from peers that need not be trusted: a schema, then record batches. Arrow's own
//! reader is not used, because it panics or allocates at will on contradictory lengths.
//!
//! Buffers are shared with the bytes received, not copied, where their alignment allows it. Nothing of ours sends
//! dictionaries or compressed bodies, but peers may: `packed.rs` makes them plain. Where the bytes come from, how many
//! are borne, and what becomes of columns is for those who ask.
//!
//! Files, which strangers write, too, are read by [`ArrowReader`] (`read.rs`) and written by [`ArrowFileWriter`]
//! (`write.rs`): `file.rs` has those with a footer, `stream.rs` those without, `held.rs` what columns they have,
//! `layout.rs` where in a message the columns lie, `build.rs` makes arrays of them, `dictionary.rs` keeps dictionaries,
//! `unpack.rs` decompresses.

mod build;
mod dictionary;
mod file;
mod held;
mod layout;
mod packed;
mod read;
mod stream;
mod unpack;
mod write;

pub use file::{ArrowFile, ArrowShape, IpcInput};
pub use read::{ArrowAsk, ArrowReader, schema_of_file, schema_of_stream};
pub use write::{ArrowCompression, ArrowFileWriter, ArrowForm, ArrowOptions};

use std::fmt;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use arrow::ipc;

use self::held::Held;
use self::packed::Packed;
use crate::FormatError;

/// The longest header of a message: what thousands of columns need.
const HEADER_BYTES_MAX: usize = 4 << 20;

/// What stands at the beginning of the bytes of a stream (`application/vnd.apache.arrow.stream`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framed {
    /// Less than the header of a message, which with all before it takes at least so many bytes.
    Part(usize),
    /// A message, whose body need not be there yet.
    Message(Frame),
    /// The stream's own mark of its end, of so many bytes.
    End(usize),
}

/// The lengths of a message's parts, bytes, in the order in which they stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What stands before the header.
    pub before: usize,
    /// The header, which says what the message is.
    pub header: usize,
    /// The body, which holds the values.
    pub body: usize,
}

impl Frame {
    /// All of it.
    pub fn bytes(&self) -> usize {
        self.before + self.header + self.body
    }
}

/// Finds the message with which the bytes begin.
///
/// # Errors
/// Lengths that make no sense.
pub fn frame(bytes: &[u8]) -> Result<Framed, FormatError> {
    let word = |at: usize| bytes.get(at..at + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    let (length, before) = match word(0) {
        Some(u32::MAX) => (word(4), 8),
        // Before version 0.15 there was no mark in front of the length.
        length => (length, 4),
    };
    let Some(header) = length.map(|l| l as usize) else { return Ok(Framed::Part(before)) };
    if header == 0 {
        return Ok(Framed::End(before));
    }
    if header > HEADER_BYTES_MAX {
        return Err(malformed(format!("a header of {header} bytes; is this an Arrow IPC stream?")));
    }
    let Some(message) = bytes.get(before..before + header) else { return Ok(Framed::Part(before + header)) };
    let body = read_header(message)?.bodyLength();
    let body = usize::try_from(body).map_err(|_| malformed("the length of its body is negative"))?;
    Ok(Framed::Message(Frame { before, header, body }))
}

/// Turns the messages of one stream into rows.
#[derive(Debug)]
pub struct BatchDecoder {
    /// Values in place of dictionaries.
    schema: SchemaRef,
    packed: Packed,
    /// Bytes of the last batch in memory, if it came compressed or with dictionaries.
    unpacked: u64,
}

impl BatchDecoder {
    /// Reads the header of a schema message.
    ///
    /// # Errors
    /// What is wrong with it, or which column is of a type that is not taken.
    pub fn new(header: &[u8]) -> Result<Self, FormatError> {
        BatchDecoder::taking(header, Taken::Plain)
    }

    /// The same for what a server sends, which may be one of another make: values of a fixed number of bytes or items are
    /// taken, too.
    ///
    /// # Errors
    /// As [`BatchDecoder::new`].
    pub fn of_server(header: &[u8]) -> Result<Self, FormatError> {
        BatchDecoder::taking(header, Taken::Served)
    }

    fn taking(header: &[u8], taken: Taken) -> Result<Self, FormatError> {
        let schema = read_header(header)?.header_as_schema().ok_or_else(|| malformed("the first message must hold the schema"))?;
        if schema.endianness() != ipc::Endianness::Little {
            return Err(malformed("big-endian columns are not taken"));
        }
        let fields = schema.fields().ok_or_else(|| malformed("its schema has no list of columns"))?;
        for field in fields {
            let checked = match field.dictionary() {
                Some(_) => check_dictionary(field),
                None => check_field(field, taken),
            };
            checked.map_err(|why| malformed(format!("column '{}': {why}", field.name().unwrap_or_default())))?;
        }
        let packed = Packed::new(Held::of(schema)?);
        let schema = packed.plain_schema();
        Ok(BatchDecoder { schema, packed, unpacked: 0 })
    }

    /// Bounds what a compressed batch, one with dictionaries, and all dictionaries together may take in memory, bytes;
    /// 64 MiB unless it is said.
    pub fn unpacking(mut self, bytes_max: usize) -> Self {
        self.packed.limit(bytes_max as u64);
        self
    }

    /// Bytes that the rows of the last message take in memory, if they came compressed or with dictionaries; else 0, since
    /// then they take no more than the message.
    pub fn unpacked(&self) -> u64 {
        self.unpacked
    }

    /// The columns, as they were sent, with the values of dictionaries in their place.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The rows of one message; `None` if it holds none. It may hold more of them than it has bytes, if none
    /// of its columns takes any.
    ///
    /// # Errors
    /// What is wrong with the message or its values.
    pub fn decode(&mut self, header: &[u8], body: &Buffer) -> Result<Option<RecordBatch>, FormatError> {
        self.unpacked = 0;
        let message = read_header(header)?;
        let batch = match message.header_type() {
            ipc::MessageHeader::NONE => return Ok(None),
            ipc::MessageHeader::RecordBatch => message.header_as_record_batch().ok_or_else(|| malformed("its record batch is missing"))?,
            ipc::MessageHeader::Schema => return Err(malformed("a second schema; open another call for rows of other columns")),
            ipc::MessageHeader::DictionaryBatch => {
                let dictionary = message.header_as_dictionary_batch().ok_or_else(|| malformed("its dictionary is missing"))?;
                return self.packed.dictionary(&dictionary, body).map(|()| None);
            }
            other => return Err(malformed(format!("a message of type {other:?} is not expected"))),
        };
        let (columns, rows) = self.packed.batch(&batch, body)?;
        if batch.compression().is_some() || self.packed.has_dictionaries() {
            let bytes = |column: &ArrayRef| column.to_data().get_slice_memory_size().unwrap_or_else(|_| column.get_array_memory_size());
            self.unpacked = columns.iter().map(bytes).sum::<usize>() as u64;
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options);
        batch.map(Some).map_err(|e| malformed(reason(&e.to_string())))
    }
}

/// The error of a message; also for those who find messages in other ways than [`frame`].
pub fn malformed(why: impl fmt::Display) -> FormatError {
    FormatError::data(format!("a message of Arrow's format is wrong: {why}"))
}

fn read_header(bytes: &[u8]) -> Result<ipc::Message<'_>, FormatError> {
    ipc::root_as_message(bytes).map_err(|e| malformed(format!("its header cannot be read ({e})")))
}

/// What an error of Arrow says, without the name of its kind.
fn reason(text: &str) -> &str {
    text.split_once(" error: ").map_or(text, |(_, rest)| rest)
}

const DICTIONARY: &str = "a dictionary within a column is not taken; send the values";

/// As [`check_field`] for a column of a peer that has a dictionary: of single values, which can be counted.
fn check_dictionary(field: ipc::Field<'_>) -> Result<(), String> {
    use ipc::Type;
    let single = !matches!(
        field.type_type(),
        Type::Null | Type::List | Type::LargeList | Type::FixedSizeList | Type::FixedSizeBinary | Type::Struct_ | Type::Map
    );
    if !single || field.children().is_some_and(|children| !children.is_empty()) {
        return Err(format!("a dictionary of {:?} is not taken; send the values", field.type_type()));
    }
    check_field(field, Taken::Files)
}

/// What is taken of whom.
#[derive(Clone, Copy, PartialEq)]
enum Taken {
    /// Of peers: no dictionaries below the columns, no values of a fixed number of bytes or items.
    Plain,
    /// Of servers: such values, too.
    Served,
    /// Of files: dictionaries below the columns, too.
    Files,
    /// As the values of a file's dictionary, in which is no other.
    Values,
}

/// Whether Arrow can make a field of this without a panic, and we know what to do with it.
fn check_field(field: ipc::Field<'_>, taken: Taken) -> Result<(), String> {
    use ipc::{DateUnit, IntervalUnit, Precision, TimeUnit, Type};
    let taken = match field.dictionary() {
        None => taken,
        Some(_) if matches!(taken, Taken::Plain | Taken::Served) => return Err(DICTIONARY.to_string()),
        Some(_) if taken == Taken::Values => return Err("a dictionary in a dictionary is not taken".to_string()),
        Some(dictionary) if dictionary.indexType().is_some_and(|int| matches!(int.bitWidth(), 8 | 16 | 32 | 64)) => Taken::Values,
        Some(_) => return Err("the type of its dictionary's indices is missing or none".to_string()),
    };
    let unit_known =
        |unit: TimeUnit| matches!(unit, TimeUnit::SECOND | TimeUnit::MILLISECOND | TimeUnit::MICROSECOND | TimeUnit::NANOSECOND);
    let known = match field.type_type() {
        Type::Null | Type::Bool | Type::Utf8 | Type::LargeUtf8 | Type::Utf8View => true,
        Type::Binary | Type::LargeBinary | Type::BinaryView => true,
        Type::Int => field.type_as_int().is_some_and(|t| matches!(t.bitWidth(), 8 | 16 | 32 | 64)),
        Type::FloatingPoint => {
            field.type_as_floating_point().is_some_and(|t| matches!(t.precision(), Precision::HALF | Precision::SINGLE | Precision::DOUBLE))
        }
        Type::Date => field.type_as_date().is_some_and(|t| matches!(t.unit(), DateUnit::DAY | DateUnit::MILLISECOND)),
        Type::Time => field.type_as_time().is_some_and(|t| match t.bitWidth() {
            32 => matches!(t.unit(), TimeUnit::SECOND | TimeUnit::MILLISECOND),
            64 => matches!(t.unit(), TimeUnit::MICROSECOND | TimeUnit::NANOSECOND),
            _ => false,
        }),
        Type::Timestamp => field.type_as_timestamp().is_some_and(|t| unit_known(t.unit())),
        Type::Duration => field.type_as_duration().is_some_and(|t| unit_known(t.unit())),
        Type::Interval => field
            .type_as_interval()
            .is_some_and(|t| matches!(t.unit(), IntervalUnit::YEAR_MONTH | IntervalUnit::DAY_TIME | IntervalUnit::MONTH_DAY_NANO)),
        Type::Decimal => field.type_as_decimal().is_some_and(|t| {
            let digits = match t.bitWidth() {
                32 => 9,
                64 => 18,
                128 => 38,
                256 => 76,
                _ => 0,
            };
            (1..=digits).contains(&t.precision()) && (-digits..=digits).contains(&t.scale())
        }),
        Type::FixedSizeBinary if taken != Taken::Plain => field.type_as_fixed_size_binary().is_some_and(|t| t.byteWidth() > 0),
        Type::FixedSizeList if taken != Taken::Plain && field.type_as_fixed_size_list().is_some_and(|t| t.listSize() > 0) => {
            return check_children(field, 1, taken);
        }
        Type::List | Type::LargeList => return check_children(field, 1, taken),
        Type::Struct_ => return check_children(field, field.children().map_or(0, |c| c.len()), taken),
        Type::Map => {
            check_children(field, 1, taken)?;
            let entries = field.children().map(|c| c.get(0));
            // Arrow panics over such.
            if entries.is_some_and(|e| e.dictionary().is_some()) {
                return Err("the entries of a MAP cannot be those of a dictionary, only its keys or values can".to_string());
            }
            let pairs = entries.is_some_and(|e| e.type_type() == Type::Struct_ && e.children().is_some_and(|c| c.len() == 2));
            return if field.type_as_map().is_some() && pairs { Ok(()) } else { Err("a MAP needs a key and a value".to_string()) };
        }
        _ => false,
    };
    if known { Ok(()) } else { Err(format!("its type ({:?}) is not taken", field.type_type())) }
}

fn check_children(field: ipc::Field<'_>, count: usize, taken: Taken) -> Result<(), String> {
    let children = field.children().filter(|c| c.len() == count && count > 0);
    let children = children.ok_or_else(|| "a column within it is missing".to_string())?;
    children.iter().try_for_each(|child| check_field(child, taken))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use arrow::array::{
        AsArray, DictionaryArray, FixedSizeBinaryArray, FixedSizeListArray, Int32Array, StringArray, StringViewArray, StructArray,
    };
    use arrow::datatypes::{DataType, Field, Fields, Int8Type, Int32Type};
    use arrow::ipc::writer::{IpcWriteOptions, StreamWriter};

    fn batch() -> RecordBatch {
        let n: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, Some(3)]));
        let text: ArrayRef = Arc::new(StringViewArray::from(vec!["a", "a text that is longer than twelve bytes", "c"]));
        let fields: Fields = vec![Field::new("x", DataType::Int32, true)].into();
        let row: ArrayRef = Arc::new(StructArray::new(fields, vec![n.clone()], Some(vec![true, false, true].into())));
        RecordBatch::try_from_iter_with_nullable([("n", n, true), ("text", text, true), ("row", row, true)]).unwrap()
    }

    fn written() -> Vec<u8> {
        let mut writer = StreamWriter::try_new(Vec::new(), &batch().schema()).unwrap();
        writer.write(&batch()).unwrap();
        writer.write(&batch().slice(1, 2)).unwrap();
        writer.into_inner().unwrap()
    }

    /// The batches up to the end of the stream, or where the bytes end.
    fn read(bytes: Vec<u8>) -> Result<Vec<RecordBatch>, FormatError> {
        read_by(BatchDecoder::new, bytes)
    }

    fn read_by(open: fn(&[u8]) -> Result<BatchDecoder, FormatError>, bytes: Vec<u8>) -> Result<Vec<RecordBatch>, FormatError> {
        let bytes = Buffer::from(bytes);
        let (mut at, mut decoder, mut batches) = (0, None::<BatchDecoder>, Vec::new());
        while let Framed::Message(frame) = frame(&bytes[at..])? {
            let (begin, end) = (at + frame.before, at + frame.bytes());
            if end > bytes.len() {
                break;
            }
            let (header, body) = (&bytes[begin..begin + frame.header], bytes.slice_with_length(end - frame.body, frame.body));
            match &mut decoder {
                None => decoder = Some(open(header)?.unpacking(1 << 20)),
                Some(decoder) => batches.extend(decoder.decode(header, &body)?),
            }
            at = end;
        }
        Ok(batches)
    }

    #[test]
    fn a_stream_is_read() {
        let bytes = written();
        let batches = read(bytes.clone()).unwrap();
        assert_eq!(batches.len(), 2);
        assert_eq!(batches[0], batch());
        assert_eq!(batches[1].slice(1, 1).column(0).as_ref(), batch().slice(2, 1).column(0).as_ref());
        assert_eq!(frame(&bytes[bytes.len() - 8..]).unwrap(), Framed::End(8));
        assert_eq!(frame(&[0; 4]).unwrap(), Framed::End(4));
        assert_eq!((frame(&[]).unwrap(), frame(&bytes[..6]).unwrap()), (Framed::Part(4), Framed::Part(8)));
        let Framed::Message(first) = frame(&bytes).unwrap() else { panic!("the schema") };
        assert_eq!(frame(&bytes[..first.bytes() - 1]).unwrap(), Framed::Part(first.bytes()));
    }

    fn with_dictionary(keys: Vec<Option<i8>>, values: Vec<&str>) -> RecordBatch {
        let values: ArrayRef = Arc::new(StringArray::from(values));
        let coded: ArrayRef = Arc::new(DictionaryArray::<Int8Type>::try_new(keys.into(), values).unwrap());
        let n: ArrayRef = Arc::new(Int32Array::from_iter_values(0..coded.len() as i32));
        RecordBatch::try_from_iter_with_nullable([("s", coded, true), ("n", n, true)]).unwrap()
    }

    fn written_with(options: IpcWriteOptions, batches: &[RecordBatch]) -> Vec<u8> {
        let mut writer = StreamWriter::try_new_with_options(Vec::new(), &batches[0].schema(), options).unwrap();
        batches.iter().for_each(|batch| writer.write(batch).unwrap());
        writer.into_inner().unwrap()
    }

    #[test]
    fn dictionaries_and_compressed_bodies_become_plain() {
        // The second batch brings a dictionary that takes the place of the first one's.
        let coded =
            [with_dictionary(vec![Some(0), None, Some(1), Some(0)], vec!["anna", "ben"]), with_dictionary(vec![Some(0)], vec!["carla"])];
        let codecs = [None, Some(ipc::CompressionType::LZ4_FRAME), Some(ipc::CompressionType::ZSTD)];
        for codec in codecs {
            let options = || IpcWriteOptions::default().try_with_compression(codec).unwrap();
            let batches = read(written_with(options(), &coded)).unwrap();
            let texts: Vec<Vec<_>> = batches.iter().map(|b| b.column(0).as_string::<i32>().iter().collect()).collect();
            assert_eq!(texts, [vec![Some("anna"), None, Some("ben"), Some("anna")], vec![Some("carla")]], "{codec:?}");
            assert_eq!(batches[0].column(1).as_ref(), coded[0].column(1).as_ref());
            assert_eq!(read(written_with(options(), &[batch(), batch().slice(1, 2)])).unwrap()[0], batch(), "{codec:?}");
        }
    }

    fn of_fixed_length() -> RecordBatch {
        let four: ArrayRef = Arc::new(FixedSizeBinaryArray::try_from_iter([*b"anna", *b"bela"].into_iter()).unwrap());
        let pairs = vec![Some(vec![Some(1), None]), None];
        let pair: ArrayRef = Arc::new(FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(pairs, 2));
        let row: ArrayRef = Arc::new(StructArray::new(vec![Field::new("four", four.data_type().clone(), true)].into(), vec![four], None));
        RecordBatch::try_from_iter_with_nullable([("pair", pair, true), ("row", row, true)]).unwrap()
    }

    #[test]
    fn values_of_a_fixed_length_are_taken_of_servers() {
        let bytes = written_with(IpcWriteOptions::default(), &[of_fixed_length()]);
        assert_eq!(read_by(BatchDecoder::of_server, bytes.clone()).unwrap(), [of_fixed_length()]);
        assert!(read(bytes).unwrap_err().to_string().contains("column 'pair': its type (FixedSizeList) is not taken"));
        // All else is as with other peers.
        assert_eq!(read_by(BatchDecoder::of_server, written()).unwrap(), read(written()).unwrap());
    }

    /// What a dictionary takes is its own memory, and what continues it is put behind it.
    #[test]
    fn dictionaries_keep_no_message() {
        use arrow::ipc::writer::DictionaryHandling;
        let words = ["anna", "ben", "carla", "dora", "emil"];
        let growing: Vec<_> =
            (1..=words.len()).map(|n| with_dictionary(vec![Some(n as i8 - 1), None, Some(0)], words[..n].to_vec())).collect();
        let options = IpcWriteOptions::default().with_dictionary_handling(DictionaryHandling::Delta);
        let bytes = Buffer::from(written_with(options, &growing));
        let (mut at, mut decoder, mut texts) = (0, None::<BatchDecoder>, Vec::new());
        while let Framed::Message(frame) = frame(&bytes[at..]).unwrap() {
            let header = &bytes[at + frame.before..][..frame.header];
            at += frame.bytes();
            match &mut decoder {
                None => decoder = Some(BatchDecoder::new(header).unwrap()),
                Some(decoder) => {
                    let body = bytes.slice_with_length(at - frame.body, frame.body);
                    if let Some(batch) = decoder.decode(header, &body).unwrap() {
                        texts.push(batch.column(0).as_string::<i32>().iter().map(|s| s.map(String::from)).collect::<Vec<_>>());
                    }
                }
            }
            assert_eq!(bytes.strong_count(), 1, "something of a message is kept");
        }
        let expected: Vec<_> = words.iter().map(|word| vec![Some(word.to_string()), None, Some("anna".to_string())]).collect();
        assert_eq!(texts, expected);
    }

    /// A few bytes may stand for many.
    #[test]
    fn what_would_become_too_large_is_refused() {
        let long = "x".repeat(100_000);
        let error = |bytes: Vec<u8>| read(bytes).unwrap_err().to_string();
        let rows = with_dictionary(vec![Some(0); 100], vec![long.as_str()]);
        let plain = written_with(IpcWriteOptions::default(), &[rows]);
        assert!(error(plain).contains("column 's': its values would take 10000800 bytes without the dictionary"));
        let zeros: ArrayRef = Arc::new(Int32Array::from(vec![0; 1 << 20]));
        let zeros = RecordBatch::try_from_iter([("n", zeros)]).unwrap();
        let options = IpcWriteOptions::default().try_with_compression(Some(ipc::CompressionType::ZSTD)).unwrap();
        let packed = written_with(options, &[zeros]);
        assert!(packed.len() < 10_000 && error(packed).contains("more than 1048576 bytes when it is decompressed"));
        let values = vec![long.as_str(); 20];
        let large = written_with(IpcWriteOptions::default(), &[with_dictionary(vec![None], values)]);
        assert!(error(large).contains("its dictionaries take"));
        let lists: ArrayRef = Arc::new(FixedSizeListArray::new_null(Arc::new(Field::new("x", DataType::Int32, true)), 2, 1));
        let lists: ArrayRef = Arc::new(DictionaryArray::<Int8Type>::try_new(vec![Some(0)].into(), lists).unwrap());
        let lists = RecordBatch::try_from_iter_with_nullable([("l", lists, true)]).unwrap();
        assert!(error(written_with(IpcWriteOptions::default(), &[lists])).contains("column 'l': a dictionary of"));
    }

    /// Each column that pointed to an odd place of one body had a copy of it.
    #[test]
    fn columns_that_share_a_body_are_refused() {
        let n: ArrayRef = Arc::new(Int32Array::from_iter_values(0..1000));
        let rows = RecordBatch::try_from_iter([("a", n.clone()), ("b", n)]).unwrap();
        let mut bytes = written_with(IpcWriteOptions::default(), &[rows]);
        let Framed::Message(schema) = frame(&bytes).unwrap() else { panic!("the schema") };
        let Framed::Message(message) = frame(&bytes[schema.bytes()..]).unwrap() else { panic!("the rows") };
        let begin = schema.bytes() + message.before;
        let header = &bytes[begin..begin + message.header];
        let buffers = read_header(header).unwrap().header_as_record_batch().unwrap().buffers().unwrap();
        let place = |offset: i64, length: i64| [offset.to_le_bytes(), length.to_le_bytes()].concat();
        let places: Vec<u8> = buffers.iter().flat_map(|buffer| place(buffer.offset(), buffer.length())).collect();
        let whole = place(0, message.body as i64).repeat(buffers.len());
        let at = begin + header.windows(places.len()).position(|part| part == places).unwrap();
        bytes[at..at + whole.len()].copy_from_slice(&whole);
        assert!(read(bytes).unwrap_err().to_string().contains("its buffers overlap"));
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let error = |bytes: &[u8]| read(bytes.to_vec()).unwrap_err().to_string();
        assert!(error(b"n,s\n1,a\n").contains("is this an Arrow IPC stream?"));
        assert!(error(&[8, 0, 0, 0, 127, 127, 127, 127, 127, 127, 127, 127]).contains("its header cannot be read"));
        let bytes = written();
        let Framed::Message(schema) = frame(&bytes).unwrap() else { panic!("the schema") };
        assert!(error(&bytes[schema.bytes()..]).contains("the first message must hold the schema"));
        let twice = [&bytes[..schema.bytes()], &bytes[..]].concat();
        assert!(error(&twice).contains("a second schema"));
    }

    /// Whatever byte is wrong, there are rows or an error, never a panic.
    #[test]
    fn wrong_bytes_are_errors() {
        let rows = with_dictionary(vec![Some(0), None, Some(1)], vec!["anna", "ben"]);
        let options = IpcWriteOptions::default().try_with_compression(Some(ipc::CompressionType::LZ4_FRAME)).unwrap();
        let packed = [written_with(IpcWriteOptions::default(), std::slice::from_ref(&rows)), written_with(options, &[rows])];
        let fixed = written_with(IpcWriteOptions::default(), &[of_fixed_length()]);
        for bytes in [written(), fixed].into_iter().chain(packed) {
            for at in 0..bytes.len() {
                for wrong in [0x00, 0x01, 0x7f, 0x80, 0xff] {
                    let mut bytes = bytes.clone();
                    bytes[at] = wrong;
                    let _ = read(bytes.clone());
                    let _ = read_by(BatchDecoder::of_server, bytes);
                }
            }
        }
    }
}
