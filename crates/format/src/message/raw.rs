//! The format `raw`: a message is the value of the table's only column, as Flink's `raw` format has it.
//! A null value is a row whose column is NULL.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, BooleanBufferBuilder, NullBufferBuilder, PrimitiveArray, RecordBatch,
    RecordBatchOptions, StringArray,
};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, Schema, SchemaRef,
};
use tidemill_block::Block;

use super::{BYTES_MAX, MessageBuffer, MessageDecoder, MessageEncoder, Messages, Origins, Place, too_many_bytes};
use crate::encoding::TextEncoding;
use crate::options::OptionValue;
use crate::types::type_name;
use crate::{FormatError, option_enum, options};

/// How a text is bytes: as Java has it where Flink's documentation names a charset, as the web has it otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charset {
    /// UTF-8.
    Utf8,
    /// ASCII; other bytes are a bad message.
    Ascii,
    /// Latin 1: each byte is the character of that code.
    Latin1,
    /// UTF-16, most significant byte first unless a byte order mark says otherwise.
    Utf16,
    /// UTF-16, most significant byte first.
    Utf16Be,
    /// UTF-16, least significant byte first.
    Utf16Le,
    /// Any other.
    Other(TextEncoding),
}

/// Java's charsets.
const CHARSETS: [(&str, Charset); 6] = [
    ("UTF-8", Charset::Utf8),
    ("US-ASCII", Charset::Ascii),
    ("ISO-8859-1", Charset::Latin1),
    ("UTF-16", Charset::Utf16),
    ("UTF-16BE", Charset::Utf16Be),
    ("UTF-16LE", Charset::Utf16Le),
];

impl OptionValue for Charset {
    const KIND: &'static str = TextEncoding::KIND;

    fn parse(text: &str) -> Result<Self, String> {
        match CHARSETS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text.trim())) {
            Some((_, charset)) => Ok(*charset),
            None => TextEncoding::parse(text).map(|encoding| if encoding.is_utf8() { Charset::Utf8 } else { Charset::Other(encoding) }),
        }
    }

    fn show(&self) -> Option<String> {
        match self {
            Charset::Other(encoding) => encoding.show(),
            own => CHARSETS.iter().find(|(_, charset)| charset == own).map(|(name, _)| name.to_string()),
        }
    }
}

option_enum! {
    /// The order of a number's bytes.
    pub enum Endianness {
        /// Most significant byte first.
        Big = "big-endian",
        /// Least significant byte first.
        Little = "little-endian",
    }
}

options! {
    /// Options of the `raw` format.
    pub struct RawFormatOptions {
        /// The encoding of the text of a STRING column: `UTF-8`, `US-ASCII`, `ISO-8859-1`, `UTF-16` (most significant byte first
        /// unless a byte order mark says otherwise), `UTF-16BE`, `UTF-16LE`, as in Java, or any that `csv.encoding` knows.
        flink "raw.charset" => charset: Charset = Charset::Utf8;
        /// The order of the bytes of numbers.
        flink "raw.endianness" => endianness: Endianness = Endianness::Big;
    }
}

/// Values under construction.
enum Values {
    Text(Vec<u8>, Vec<i32>),
    Binary(Vec<u8>, Vec<i32>),
    Bool(BooleanBufferBuilder),
    Int8(Vec<i8>),
    Int16(Vec<i16>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float32(Vec<f32>),
    Float64(Vec<f64>),
}

impl Values {
    fn of(data_type: &DataType) -> Option<Self> {
        Some(match data_type {
            DataType::Utf8 => Values::Text(Vec::new(), vec![0]),
            DataType::Binary => Values::Binary(Vec::new(), vec![0]),
            DataType::Boolean => Values::Bool(BooleanBufferBuilder::new(0)),
            DataType::Int8 => Values::Int8(Vec::new()),
            DataType::Int16 => Values::Int16(Vec::new()),
            DataType::Int32 => Values::Int32(Vec::new()),
            DataType::Int64 => Values::Int64(Vec::new()),
            DataType::Float32 => Values::Float32(Vec::new()),
            DataType::Float64 => Values::Float64(Vec::new()),
            _ => return None,
        })
    }

    fn push_null(&mut self) {
        match self {
            Values::Text(data, offsets) | Values::Binary(data, offsets) => offsets.push(data.len() as i32),
            Values::Bool(v) => v.append(false),
            Values::Int8(v) => v.push(0),
            Values::Int16(v) => v.push(0),
            Values::Int32(v) => v.push(0),
            Values::Int64(v) => v.push(0),
            Values::Float32(v) => v.push(0.0),
            Values::Float64(v) => v.push(0.0),
        }
    }

    /// Makes room for about as many values and bytes as came the last time.
    fn reserve(&mut self, values: usize, bytes: usize) {
        match self {
            Values::Text(data, offsets) | Values::Binary(data, offsets) => {
                data.reserve(bytes + bytes / 8);
                offsets.reserve(values);
            }
            Values::Bool(v) => v.reserve(values),
            Values::Int8(v) => v.reserve(values),
            Values::Int16(v) => v.reserve(values),
            Values::Int32(v) => v.reserve(values),
            Values::Int64(v) => v.reserve(values),
            Values::Float32(v) => v.reserve(values),
            Values::Float64(v) => v.reserve(values),
        }
    }

    /// Appends the value that the bytes are; what is expected instead if they are none.
    #[inline]
    fn push(&mut self, bytes: &[u8], options: &RawFormatOptions) -> Result<(), String> {
        macro_rules! number {
            ($values:expr, $type:ty) => {{
                let bytes: [u8; size_of::<$type>()] = bytes.try_into().map_err(|_| wrong_length(size_of::<$type>(), bytes.len()))?;
                let big = options.endianness == Endianness::Big;
                $values.push(if big { <$type>::from_be_bytes(bytes) } else { <$type>::from_le_bytes(bytes) });
            }};
        }
        match self {
            Values::Text(data, offsets) => {
                push_text(bytes, options.charset, data)?;
                offsets.push(data.len() as i32);
            }
            Values::Binary(data, offsets) => {
                data.extend_from_slice(bytes);
                offsets.push(data.len() as i32);
            }
            Values::Bool(v) => match bytes {
                [byte] => v.append(*byte != 0),
                other => return Err(wrong_length(1, other.len())),
            },
            Values::Int8(v) => number!(v, i8),
            Values::Int16(v) => number!(v, i16),
            Values::Int32(v) => number!(v, i32),
            Values::Int64(v) => number!(v, i64),
            Values::Float32(v) => number!(v, f32),
            Values::Float64(v) => number!(v, f64),
        }
        Ok(())
    }

    fn take(&mut self, nulls: Option<NullBuffer>) -> Result<ArrayRef, FormatError> {
        fn number<T: ArrowPrimitiveType>(v: &mut Vec<T::Native>, nulls: Option<NullBuffer>) -> ArrayRef {
            Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::from(std::mem::take(v)), nulls))
        }
        fn bytes(data: &mut Vec<u8>, offsets: &mut Vec<i32>) -> (OffsetBuffer<i32>, Buffer) {
            let offsets = OffsetBuffer::new(ScalarBuffer::from(std::mem::replace(offsets, vec![0])));
            (offsets, Buffer::from_vec(std::mem::take(data)))
        }
        Ok(match self {
            Values::Text(data, offsets) => {
                let (offsets, data) = bytes(data, offsets);
                // SAFETY: every value was checked to be UTF-8, or written as whole characters, where it was appended.
                Arc::new(unsafe { StringArray::new_unchecked(offsets, data, nulls) })
            }
            Values::Binary(data, offsets) => {
                let (offsets, data) = bytes(data, offsets);
                Arc::new(BinaryArray::try_new(offsets, data, nulls)?)
            }
            Values::Bool(v) => Arc::new(BooleanArray::new(v.finish(), nulls)),
            Values::Int8(v) => number::<Int8Type>(v, nulls),
            Values::Int16(v) => number::<Int16Type>(v, nulls),
            Values::Int32(v) => number::<Int32Type>(v, nulls),
            Values::Int64(v) => number::<Int64Type>(v, nulls),
            Values::Float32(v) => number::<Float32Type>(v, nulls),
            Values::Float64(v) => number::<Float64Type>(v, nulls),
        })
    }
}

#[cold]
fn wrong_length(expected: usize, found: usize) -> String {
    format!("the message has {found} bytes, the type of the column {expected}")
}

/// Appends a text in UTF-8.
#[inline]
fn push_text(bytes: &[u8], charset: Charset, out: &mut Vec<u8>) -> Result<(), String> {
    let wrong = || "the message is not valid text of 'raw.charset'".to_string();
    let big_endian = match charset {
        Charset::Utf8 => {
            std::str::from_utf8(bytes).map_err(|_| wrong())?;
            out.extend_from_slice(bytes);
            return Ok(());
        }
        Charset::Ascii if bytes.is_ascii() => {
            out.extend_from_slice(bytes);
            return Ok(());
        }
        Charset::Ascii => return Err(wrong()),
        Charset::Latin1 => {
            bytes.iter().for_each(|b| out.extend_from_slice((*b as char).encode_utf8(&mut [0; 2]).as_bytes()));
            return Ok(());
        }
        Charset::Utf16 if bytes.starts_with(&[0xFF, 0xFE]) => false,
        Charset::Utf16 | Charset::Utf16Be => true,
        Charset::Utf16Le => false,
        Charset::Other(encoding) => {
            let text = encoding.decode(bytes, "raw.charset").map_err(|e| e.to_string())?;
            out.extend_from_slice(text.as_bytes());
            return Ok(());
        }
    };
    let marked = charset == Charset::Utf16 && (bytes.starts_with(&[0xFF, 0xFE]) || bytes.starts_with(&[0xFE, 0xFF]));
    let unmarked = if marked { &bytes[2..] } else { bytes };
    let (units, rest) = unmarked.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(wrong());
    }
    let units = units.iter().map(|unit| if big_endian { u16::from_be_bytes(*unit) } else { u16::from_le_bytes(*unit) });
    let from = out.len();
    for character in char::decode_utf16(units) {
        match character {
            Ok(character) => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            Err(_) => {
                out.truncate(from);
                return Err(wrong());
            }
        }
    }
    Ok(())
}

/// The only column of a table, and how it is kept.
fn only_column(schema: &SchemaRef) -> Result<Values, FormatError> {
    let [column] = &schema.fields()[..] else {
        let n = schema.fields().len();
        return Err(FormatError::unsupported(format!("the raw format is for tables of one column, this one has {n}; use json or csv")));
    };
    Values::of(column.data_type()).ok_or_else(|| {
        FormatError::unsupported(format!(
            "column '{}': the raw format has no {}; it has STRING, BYTES, BOOLEAN and numbers but DECIMAL",
            column.name(),
            type_name(column.data_type())
        ))
    })
}

/// Decodes messages that are each a value.
pub(super) struct RawMessages {
    options: RawFormatOptions,
    schema: SchemaRef,
    name: String,
    nullable: bool,
    values: Values,
    nulls: NullBufferBuilder,
    origins: Origins,
    bytes: usize,
    /// Values and bytes of the last take, to reserve for as many.
    expected: (usize, usize),
    bad: Vec<(u32, String)>,
}

impl RawMessages {
    pub fn new(options: &RawFormatOptions, physical: &SchemaRef, projection: &[usize]) -> Result<Self, FormatError> {
        let values = only_column(physical)?;
        Ok(RawMessages {
            options: options.clone(),
            schema: Arc::new(Schema::new(projection.iter().map(|i| physical.fields()[*i].clone()).collect::<Vec<_>>())),
            name: physical.field(0).name().clone(),
            nullable: physical.field(0).is_nullable(),
            values,
            nulls: NullBufferBuilder::new(0),
            origins: Origins::default(),
            bytes: 0,
            expected: (0, 0),
            bad: Vec::new(),
        })
    }

    /// Makes room for as many as came the last time, before the first message of a take.
    #[inline]
    fn expect(&mut self) {
        if self.origins.messages() == 0 {
            self.values.reserve(self.expected.0, self.expected.1);
        }
    }

    #[inline]
    fn read(&mut self, message: Option<&[u8]>) -> Result<(), String> {
        let Some(message) = message else {
            if !self.nullable {
                return Err(format!("column '{}' is NOT NULL, and the message is null", self.name));
            }
            self.values.push_null();
            self.nulls.append_null();
            return Ok(());
        };
        // A character of Latin 1 or UTF-16 may grow; in other encodings a byte may become three, which offsets still hold.
        self.bytes += message.len() * 2;
        if self.bytes > BYTES_MAX {
            return Err(too_many_bytes());
        }
        self.values.push(message, &self.options)?;
        self.nulls.append_non_null();
        Ok(())
    }

    /// Takes messages that become bytes or text as they are: each is one copy, and of all that is asked of text at once is asked.
    /// Whether it took them; if not, one by one it will be found which of them is none or a bad one.
    fn take_as_they_are(&mut self, bytes: &[u8], places: &[Place]) -> bool {
        let (data, offsets, charset) = match (&mut self.values, self.options.charset) {
            (Values::Binary(data, offsets), _) => (data, offsets, None),
            (Values::Text(data, offsets), charset @ (Charset::Utf8 | Charset::Ascii)) => (data, offsets, Some(charset)),
            _ => return false,
        };
        if places.iter().any(|place| place.length < 0) {
            return false;
        }
        let all: usize = places.iter().map(|place| place.length as usize).sum();
        // Twice, as where they are taken one by one.
        if self.bytes + 2 * all > BYTES_MAX {
            return false;
        }
        let (begin, before) = (data.len(), offsets.len());
        data.reserve(all);
        offsets.reserve(places.len());
        for place in places {
            data.extend_from_slice(place.of(bytes).unwrap_or_default());
            offsets.push(data.len() as i32);
        }
        let taken = &data[begin..];
        let good = match charset {
            None => true,
            Some(Charset::Ascii) => taken.is_ascii(),
            // What is text in one piece is so in several where no cut goes through a character.
            Some(_) => {
                taken.is_ascii()
                    || std::str::from_utf8(taken)
                        .is_ok_and(|text| offsets[before..].iter().all(|end| text.is_char_boundary(*end as usize - begin)))
            }
        };
        if !good {
            data.truncate(begin);
            offsets.truncate(before);
            return false;
        }
        self.bytes += 2 * all;
        self.nulls.append_n_non_nulls(places.len());
        self.origins.push_whole(places.len() as u32);
        true
    }
}

impl MessageDecoder for RawMessages {
    fn push(&mut self, message: Option<&[u8]>) {
        self.expect();
        let rows = match self.read(message) {
            Ok(()) => 1,
            Err(reason) => {
                self.bad.push((self.origins.messages(), reason));
                0
            }
        };
        self.origins.push(rows);
    }

    fn push_all(&mut self, bytes: &[u8], places: &[Place]) {
        self.expect();
        if !self.take_as_they_are(bytes, places) {
            places.iter().for_each(|place| self.push(place.of(bytes)));
        }
    }

    fn pending(&self) -> usize {
        self.origins.messages() as usize
    }

    fn take(&mut self) -> Result<Messages, FormatError> {
        let rows = self.nulls.len();
        // Twice the bytes were counted, since some characters grow.
        self.expected = (rows, std::mem::take(&mut self.bytes) / 2);
        let column = self.values.take(self.nulls.finish())?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let columns = vec![column; self.schema.fields().len()];
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?;
        Ok(Messages { batch, kinds: None, origins: self.origins.take(), bad: std::mem::take(&mut self.bad) })
    }
}

/// Writes values as messages.
pub(super) struct RawEncoder {
    options: RawFormatOptions,
    name: String,
}

impl RawEncoder {
    pub fn new(options: &RawFormatOptions, schema: &SchemaRef) -> Result<Self, FormatError> {
        only_column(schema)?;
        Ok(RawEncoder { options: options.clone(), name: schema.field(0).name().clone() })
    }

    fn numbers<const N: usize, T: Copy>(&self, values: &[T], big: fn(T) -> [u8; N], little: fn(T) -> [u8; N], out: &mut MessageBuffer) {
        let write = if self.options.endianness == Endianness::Big { big } else { little };
        for value in values {
            out.bytes.extend_from_slice(&write(*value));
            out.ends.push(out.bytes.len());
        }
    }

    fn texts(&self, values: &StringArray, out: &mut MessageBuffer) -> Result<(), FormatError> {
        for row in 0..values.len() {
            let text = values.value(row);
            let cannot =
                |what: &str| FormatError::data(format!("column '{}': {text:?} cannot be written in {what}; set 'raw.charset'", self.name));
            match self.options.charset {
                Charset::Utf8 => out.bytes.extend_from_slice(text.as_bytes()),
                Charset::Ascii if text.is_ascii() => out.bytes.extend_from_slice(text.as_bytes()),
                Charset::Ascii => return Err(cannot("US-ASCII")),
                Charset::Latin1 => {
                    for character in text.chars() {
                        out.bytes.push(u8::try_from(character).map_err(|_| cannot("ISO-8859-1"))?);
                    }
                }
                Charset::Utf16 => {
                    // As Java writes it: with a byte order mark.
                    out.bytes.extend_from_slice(&[0xFE, 0xFF]);
                    text.encode_utf16().for_each(|unit| out.bytes.extend_from_slice(&unit.to_be_bytes()));
                }
                Charset::Utf16Be => text.encode_utf16().for_each(|unit| out.bytes.extend_from_slice(&unit.to_be_bytes())),
                Charset::Utf16Le => text.encode_utf16().for_each(|unit| out.bytes.extend_from_slice(&unit.to_le_bytes())),
                Charset::Other(encoding) => {
                    out.bytes.extend_from_slice(encoding.mark());
                    encoding.encode(text, &mut out.bytes).map_err(|_| cannot(encoding.name()))?;
                }
            }
            out.ends.push(out.bytes.len());
        }
        Ok(())
    }
}

impl MessageEncoder for RawEncoder {
    fn encode(&mut self, block: &Block, out: &mut MessageBuffer) -> Result<(), FormatError> {
        let column = block.column(0);
        if column.null_count() > 0 {
            return Err(FormatError::data(format!(
                "column '{}' is NULL in a row, which the raw format cannot write; filter such rows out",
                self.name
            )));
        }
        match column.data_type() {
            DataType::Utf8 => self.texts(column.as_string(), out)?,
            DataType::Binary => {
                let values = column.as_binary::<i32>();
                for row in 0..values.len() {
                    out.bytes.extend_from_slice(values.value(row));
                    out.ends.push(out.bytes.len());
                }
            }
            DataType::Boolean => {
                for value in column.as_boolean().values() {
                    out.bytes.push(u8::from(value));
                    out.ends.push(out.bytes.len());
                }
            }
            DataType::Int8 => self.numbers(column.as_primitive::<Int8Type>().values(), i8::to_be_bytes, i8::to_le_bytes, out),
            DataType::Int16 => self.numbers(column.as_primitive::<Int16Type>().values(), i16::to_be_bytes, i16::to_le_bytes, out),
            DataType::Int32 => self.numbers(column.as_primitive::<Int32Type>().values(), i32::to_be_bytes, i32::to_le_bytes, out),
            DataType::Int64 => self.numbers(column.as_primitive::<Int64Type>().values(), i64::to_be_bytes, i64::to_le_bytes, out),
            DataType::Float32 => self.numbers(column.as_primitive::<Float32Type>().values(), f32::to_be_bytes, f32::to_le_bytes, out),
            DataType::Float64 => self.numbers(column.as_primitive::<Float64Type>().values(), f64::to_be_bytes, f64::to_le_bytes, out),
            other => return Err(FormatError::unsupported(format!("column '{}': the raw format has no {}", self.name, type_name(other)))),
        }
        Ok(())
    }
}
