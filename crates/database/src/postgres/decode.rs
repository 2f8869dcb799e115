//! Fields in PostgreSQL's binary form to Arrow columns.
//!
//! A [`Reader`] makes one column; which pairs of types go together is decided once, when it is made. Every
//! conversion is exact: a value that the column of the job cannot hold is an error that names column and
//! value. [`Rows`] puts readers together, [`CopyStream`] takes the stream of a `COPY … TO STDOUT` apart.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, BooleanBufferBuilder, Decimal128Array, Float32Array, Float64Array, Int8Array, Int16Array,
    Int32Array, Int64Array, ListArray, NullBufferBuilder, RecordBatch, RecordBatchOptions, StringArray, make_array,
};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::concat;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use tidemill_block::value;
use tidemill_format::Decoder;
use tidemill_format::json::{JsonDecoder, JsonOptions};
use tidemill_format::options::{OptionSet, RawOptions};
use tidemill_format::types::type_name;

use super::numeric;
use super::prepare::{EPOCH_DAYS, EPOCH_MICROS, mismatch, show_text};
use super::types::{Form, Shape, nested};
use super::wire::{Wire, whole};
use crate::driver::DbError;

/// Bytes of fields after which a batch is handed on, however few rows it has.
const BATCH_BYTES_MAX: usize = 64 << 20;

/// Microseconds of a day.
const DAY_MICROS: i64 = 86_400_000_000;

/// How a field becomes a value.
#[derive(Clone, Copy)]
enum Rule {
    Bool,
    /// `smallint`, `integer`, `bigint` to whole numbers of any width.
    Whole,
    /// `numeric` to whole numbers.
    WholeNumeric,
    Float,
    Double,
    /// `real` to double.
    DoubleOfFloat,
    /// `smallint` and `integer` to double.
    DoubleOfWhole,
    Decimal {
        precision: u32,
        scale: u32,
    },
    /// Whole numbers to decimals.
    DecimalWhole {
        precision: u32,
        scale: u32,
    },
    /// Bytes as they are, behind so many that do not count.
    Bytes {
        skip: usize,
    },
    /// Text with blanks behind it.
    Padded,
    Uuid,
    Bits,
    Date,
    Time(TimeUnit),
    Timestamp(TimeUnit),
    List,
    /// JSON to values with parts.
    Nested {
        skip: usize,
    },
}

/// Values under construction.
enum Values {
    Bool(BooleanBufferBuilder),
    I8(Vec<i8>),
    I16(Vec<i16>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    I128(Vec<i128>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Bytes {
        offsets: Vec<i32>,
        data: Vec<u8>,
    },
    List {
        offsets: Vec<i32>,
        items: Box<Reader>,
    },
    /// JSON, a line a value.
    Lines(Vec<u8>),
}

/// A column under construction.
pub(super) struct Reader {
    name: String,
    data_type: DataType,
    shape: Shape,
    rule: Rule,
    nulls: NullBufferBuilder,
    values: Values,
}

/// Whether the server has to cast a column to text, since the job wants STRING of what is no text.
pub(super) fn as_text(wanted: &DataType, shape: Shape) -> bool {
    let forms = matches!(shape.form, Form::Text | Form::Char | Form::Json | Form::Jsonb | Form::Uuid | Form::Bit);
    let text = forms && shape.element.is_none();
    *wanted == DataType::Utf8 && !text
}

impl Reader {
    /// A reader of fields of `shape`, which the database calls `declared`, into a column.
    ///
    /// # Errors
    /// The types do not go together, with advice.
    pub fn new(field: &Field, shape: Shape, declared: &str) -> Result<Self, DbError> {
        let wanted = field.data_type();
        let rule = match (wanted, shape.form) {
            (DataType::List(item), form) if shape.element.is_some() && !nested(item.data_type()) && form != Form::Other => Rule::List,
            _ if shape.element.is_some() => return Err(mismatch(field.name(), wanted, declared)),
            (DataType::List(_) | DataType::Struct(_) | DataType::Map(..), Form::Json) => Rule::Nested { skip: 0 },
            (DataType::List(_) | DataType::Struct(_) | DataType::Map(..), Form::Jsonb) => Rule::Nested { skip: 1 },
            (DataType::Boolean, Form::Bool) => Rule::Bool,
            (DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64, Form::Int2 | Form::Int4 | Form::Int8) => Rule::Whole,
            (DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64, Form::Numeric) => Rule::WholeNumeric,
            (DataType::Float32, Form::Float4) => Rule::Float,
            (DataType::Float64, Form::Float8) => Rule::Double,
            (DataType::Float64, Form::Float4) => Rule::DoubleOfFloat,
            (DataType::Float64, Form::Int2 | Form::Int4) => Rule::DoubleOfWhole,
            (DataType::Decimal128(precision, scale), form) if *scale >= 0 => {
                let (precision, scale) = (u32::from(*precision), *scale as u32);
                match form {
                    Form::Numeric => Rule::Decimal { precision, scale },
                    Form::Int2 | Form::Int4 | Form::Int8 => Rule::DecimalWhole { precision, scale },
                    _ => return Err(mismatch(field.name(), wanted, declared)),
                }
            }
            (DataType::Utf8, Form::Text | Form::Json) | (DataType::Binary, Form::Bytea) => Rule::Bytes { skip: 0 },
            (DataType::Utf8, Form::Jsonb) => Rule::Bytes { skip: 1 },
            (DataType::Utf8, Form::Char) => Rule::Padded,
            (DataType::Utf8, Form::Uuid) => Rule::Uuid,
            (DataType::Utf8, Form::Bit) => Rule::Bits,
            (DataType::Date32, Form::Date) => Rule::Date,
            (DataType::Time32(unit) | DataType::Time64(unit), Form::Time) => Rule::Time(*unit),
            (DataType::Timestamp(unit, None), Form::Timestamp) | (DataType::Timestamp(unit, Some(_)), Form::TimestampTz) => {
                Rule::Timestamp(*unit)
            }
            _ => return Err(mismatch(field.name(), wanted, declared)),
        };
        Ok(Reader {
            name: field.name().clone(),
            data_type: wanted.clone(),
            shape,
            rule,
            nulls: NullBufferBuilder::new(0),
            values: Values::of(field, rule, shape, declared)?,
        })
    }

    /// Appends a field.
    #[inline]
    fn push(&mut self, field: Option<&[u8]>) -> Result<(), DbError> {
        let Some(bytes) = field else {
            self.nulls.append_null();
            self.values.push_default();
            return Ok(());
        };
        self.nulls.append_non_null();
        match self.rule.read(bytes, &mut self.values) {
            Ok(()) => Ok(()),
            Err(why) => Err(DbError::data(format!("column '{}': the value {} {why}", self.name, shown(self.shape.form, bytes)))),
        }
    }

    /// The values so far as an array; begins anew.
    fn build(&mut self) -> Result<ArrayRef, DbError> {
        let nulls = self.nulls.finish();
        let array: ArrayRef = match &mut self.values {
            Values::Bool(bits) => Arc::new(BooleanArray::new(bits.finish(), nulls)),
            Values::I8(v) => Arc::new(Int8Array::new(std::mem::take(v).into(), nulls)),
            Values::I16(v) => Arc::new(Int16Array::new(std::mem::take(v).into(), nulls)),
            Values::I32(v) => numbers(Int32Array::new(std::mem::take(v).into(), nulls), &self.data_type)?,
            Values::I64(v) => numbers(Int64Array::new(std::mem::take(v).into(), nulls), &self.data_type)?,
            Values::I128(v) => Arc::new(Decimal128Array::new(std::mem::take(v).into(), nulls).with_data_type(self.data_type.clone())),
            Values::F32(v) => Arc::new(Float32Array::new(std::mem::take(v).into(), nulls)),
            Values::F64(v) => Arc::new(Float64Array::new(std::mem::take(v).into(), nulls)),
            Values::Bytes { offsets, data } => {
                let ends = OffsetBuffer::new(ScalarBuffer::from(std::mem::replace(offsets, vec![0])));
                let data = Buffer::from_vec(std::mem::take(data));
                if self.data_type == DataType::Binary {
                    Arc::new(BinaryArray::try_new(ends, data, nulls)?) as ArrayRef
                } else {
                    let text = StringArray::try_new(ends, data, nulls);
                    Arc::new(text.map_err(|e| DbError::data(format!("column '{}' holds bytes that are no UTF-8 text: {e}", self.name)))?)
                }
            }
            Values::List { offsets, items } => {
                let ends = OffsetBuffer::new(ScalarBuffer::from(std::mem::replace(offsets, vec![0])));
                let DataType::List(field) = &self.data_type else {
                    return Err(DbError::fatal(format!("column '{}': internal error: a list that is none", self.name)));
                };
                Arc::new(ListArray::try_new(field.clone(), ends, items.build()?, nulls)?)
            }
            Values::Lines(lines) => nested_column(&self.name, &self.data_type, &std::mem::take(lines), nulls)?,
        };
        Ok(array)
    }
}

/// 32- and 64-bit numbers that may be dates and times.
fn numbers<T: arrow::datatypes::ArrowPrimitiveType>(
    array: arrow::array::PrimitiveArray<T>,
    data_type: &DataType,
) -> Result<ArrayRef, DbError> {
    if array.data_type() == data_type {
        return Ok(Arc::new(array));
    }
    Ok(make_array(array.into_data().into_builder().data_type(data_type.clone()).build()?))
}

impl Values {
    fn of(field: &Field, rule: Rule, shape: Shape, declared: &str) -> Result<Self, DbError> {
        Ok(match (rule, field.data_type()) {
            (Rule::List, DataType::List(item)) => {
                // Elements are known by the column's name.
                let item = item.as_ref().clone().with_name(field.name());
                let items = Reader::new(&item, shape.item(), declared.trim_end_matches("[]"))?;
                Values::List { offsets: vec![0], items: Box::new(items) }
            }
            (Rule::Nested { .. }, _) => Values::Lines(Vec::new()),
            (_, DataType::Boolean) => Values::Bool(BooleanBufferBuilder::new(0)),
            (_, DataType::Int8) => Values::I8(Vec::new()),
            (_, DataType::Int16) => Values::I16(Vec::new()),
            (_, DataType::Int32 | DataType::Date32 | DataType::Time32(_)) => Values::I32(Vec::new()),
            (_, DataType::Int64 | DataType::Time64(_) | DataType::Timestamp(..)) => Values::I64(Vec::new()),
            (_, DataType::Float32) => Values::F32(Vec::new()),
            (_, DataType::Float64) => Values::F64(Vec::new()),
            (_, DataType::Decimal128(..)) => Values::I128(Vec::new()),
            (_, DataType::Utf8 | DataType::Binary) => Values::Bytes { offsets: vec![0], data: Vec::new() },
            (_, other) => return Err(mismatch(field.name(), other, declared)),
        })
    }

    /// What stands in place of a NULL.
    fn push_default(&mut self) {
        match self {
            Values::Bool(bits) => bits.append(false),
            Values::I8(v) => v.push(0),
            Values::I16(v) => v.push(0),
            Values::I32(v) => v.push(0),
            Values::I64(v) => v.push(0),
            Values::I128(v) => v.push(0),
            Values::F32(v) => v.push(0.0),
            Values::F64(v) => v.push(0.0),
            Values::Bytes { offsets, .. } | Values::List { offsets, .. } => offsets.push(offsets[offsets.len() - 1]),
            Values::Lines(lines) => lines.extend_from_slice(b"{}\n"),
        }
    }

    /// Appends a whole number to whatever holds such.
    #[inline]
    fn push_whole(&mut self, v: i64) -> Result<(), String> {
        let fits = match self {
            Values::I8(values) => i8::try_from(v).map(|v| values.push(v)).is_ok(),
            Values::I16(values) => i16::try_from(v).map(|v| values.push(v)).is_ok(),
            Values::I32(values) => i32::try_from(v).map(|v| values.push(v)).is_ok(),
            Values::I64(values) => {
                values.push(v);
                true
            }
            _ => false,
        };
        if fits { Ok(()) } else { Err("does not fit; the job's table needs a wider type".into()) }
    }

    fn push_double(&mut self, v: f64) {
        if let Values::F64(values) = self {
            values.push(v);
        }
    }

    fn push_decimal(&mut self, v: i128) {
        if let Values::I128(values) = self {
            values.push(v);
        }
    }

    /// Appends bytes that `write` makes.
    #[inline]
    fn push_bytes(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), String> {
        if let Values::Bytes { offsets, data } = self {
            write(data);
            offsets.push(i32::try_from(data.len()).map_err(|_| "makes a batch of more than 2 GiB")?);
        }
        Ok(())
    }
}

impl Rule {
    /// Reads a field and appends its value.
    #[inline]
    fn read(self, bytes: &[u8], values: &mut Values) -> Result<(), String> {
        match self {
            Rule::Bool => {
                let [bit] = whole::<1>(bytes)?;
                if let Values::Bool(bits) = values {
                    bits.append(bit != 0);
                }
            }
            Rule::Whole => values.push_whole(integer(bytes)?)?,
            Rule::WholeNumeric => {
                let v = numeric::read(bytes, 38, 0)?;
                values.push_whole(i64::try_from(v).map_err(|_| "does not fit; the job's table needs DECIMAL")?)?;
            }
            Rule::Float => {
                let v = f32::from_be_bytes(whole(bytes)?);
                if let Values::F32(values) = values {
                    values.push(v);
                }
            }
            Rule::Double => values.push_double(f64::from_be_bytes(whole(bytes)?)),
            Rule::DoubleOfFloat => values.push_double(f64::from(f32::from_be_bytes(whole(bytes)?))),
            // Such have 32 bits at most, which is exact.
            Rule::DoubleOfWhole => values.push_double(integer(bytes)? as f64),
            Rule::Decimal { precision, scale } => values.push_decimal(numeric::read(bytes, precision, scale)?),
            Rule::DecimalWhole { precision, scale } => {
                let scaled = i128::from(integer(bytes)?).checked_mul(numeric::power(scale.min(38)) as i128);
                let fits = scaled.filter(|v| v.unsigned_abs() < numeric::power(precision.min(38)));
                values.push_decimal(fits.ok_or_else(|| format!("does not fit into DECIMAL({precision}, {scale})"))?);
            }
            Rule::Bytes { skip } => {
                let value = bytes.get(skip..).ok_or("is cut short")?;
                values.push_bytes(|out| out.extend_from_slice(value))?;
            }
            Rule::Padded => {
                let length = bytes.iter().rposition(|b| *b != b' ').map_or(0, |last| last + 1);
                values.push_bytes(|out| out.extend_from_slice(&bytes[..length]))?;
            }
            Rule::Uuid => {
                let id = whole::<16>(bytes)?;
                values.push_bytes(|out| write_uuid(&id, out))?;
            }
            Rule::Bits => {
                let mut wire = Wire(bytes);
                let count = usize::try_from(wire.i32()?).map_err(|_| "has a negative length")?;
                let bits = wire.bytes(count.div_ceil(8))?;
                values.push_bytes(|out| out.extend((0..count).map(|i| b'0' + ((bits[i / 8] >> (7 - i % 8)) & 1))))?;
            }
            Rule::Date => {
                let days = i32::from_be_bytes(whole(bytes)?);
                if days == i32::MAX || days == i32::MIN {
                    return Err("is no day that DATE has".into());
                }
                values.push_whole(i64::from(days) + i64::from(EPOCH_DAYS))?;
            }
            Rule::Time(unit) => {
                let micros = i64::from_be_bytes(whole(bytes)?);
                if !(0..DAY_MICROS).contains(&micros) {
                    return Err("is no time of day that TIME has".into());
                }
                values.push_whole(in_unit(micros, unit)?)?;
            }
            Rule::Timestamp(unit) => {
                let since = i64::from_be_bytes(whole(bytes)?);
                if since == i64::MAX || since == i64::MIN {
                    return Err("is no time that TIMESTAMP has".into());
                }
                let micros = since.checked_add(EPOCH_MICROS).ok_or("is too far in the future")?;
                values.push_whole(in_unit(micros, unit)?)?;
            }
            Rule::List => {
                if let Values::List { offsets, items } = values {
                    read_list(bytes, items)?;
                    offsets.push(i32::try_from(items.nulls.len()).map_err(|_| "makes a batch of too many elements")?);
                }
            }
            Rule::Nested { skip } => {
                let value = bytes.get(skip..).ok_or("is cut short")?;
                if let Values::Lines(lines) = values {
                    lines.extend_from_slice(b"{\"v\":");
                    // A line end stands between tokens only: within strings it is escaped.
                    lines.extend(value.iter().map(|b| if matches!(b, b'\n' | b'\r') { b' ' } else { *b }));
                    lines.extend_from_slice(b"}\n");
                }
            }
        }
        Ok(())
    }
}

/// A number of two, four or eight bytes.
#[inline]
fn integer(bytes: &[u8]) -> Result<i64, String> {
    match bytes.len() {
        2 => whole(bytes).map(|b| i64::from(i16::from_be_bytes(b))),
        4 => whole(bytes).map(|b| i64::from(i32::from_be_bytes(b))),
        _ => whole(bytes).map(i64::from_be_bytes),
    }
}

/// Microseconds in a unit, exactly.
#[inline]
fn in_unit(micros: i64, unit: TimeUnit) -> Result<i64, String> {
    let step = match unit {
        TimeUnit::Second => 1_000_000,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => return Ok(micros),
        TimeUnit::Nanosecond => return micros.checked_mul(1000).ok_or_else(|| "does not fit into a precision of 9".into()),
    };
    if micros % step != 0 {
        return Err("has more digits of a second than the job's table; give the column a precision of 6".into());
    }
    Ok(micros / step)
}

/// Appends the elements of an array of one dimension.
fn read_list(bytes: &[u8], items: &mut Reader) -> Result<(), String> {
    let mut wire = Wire(bytes);
    let (dimensions, _nulls, _element) = (wire.i32()?, wire.i32()?, wire.i32()?);
    let count = match dimensions {
        0 => 0,
        1 => {
            let count = wire.i32()?;
            // The index of the first element is of no interest.
            wire.i32()?;
            count
        }
        _ => return Err("has more than one dimension; cast the column to jsonb in a view, and declare it ARRAY<ARRAY<…>>".into()),
    };
    for _ in 0..count {
        let length = wire.i32()?;
        let field = if length < 0 { None } else { Some(wire.bytes(length as usize)?) };
        items.push(field).map_err(|e| format!("holds an element that does not fit: {e}"))?;
    }
    Ok(())
}

fn write_uuid(id: &[u8; 16], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (i, byte) in id.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            out.push(b'-');
        }
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
}

/// A field as text, for messages.
fn shown(form: Form, bytes: &[u8]) -> String {
    let mut out = Vec::new();
    match form {
        Form::Numeric => return numeric::show(bytes),
        Form::Int2 | Form::Int4 | Form::Int8 => return integer(bytes).map_or_else(|_| "?".into(), |v| v.to_string()),
        Form::Text | Form::Char | Form::Json => return show_text(&String::from_utf8_lossy(bytes)),
        Form::Jsonb => return show_text(&String::from_utf8_lossy(bytes.get(1..).unwrap_or_default())),
        Form::Date => match whole(bytes).map(i32::from_be_bytes) {
            Ok(i32::MAX) => return "infinity".into(),
            Ok(i32::MIN) => return "-infinity".into(),
            Ok(days) => value::write_date(&mut out, days.saturating_add(EPOCH_DAYS)),
            Err(_) => out.push(b'?'),
        },
        Form::Timestamp | Form::TimestampTz => match whole(bytes).map(i64::from_be_bytes) {
            Ok(i64::MAX) => return "infinity".into(),
            Ok(i64::MIN) => return "-infinity".into(),
            Ok(since) => value::write_timestamp(&mut out, since.saturating_add(EPOCH_MICROS), TimeUnit::Microsecond, 0),
            Err(_) => out.push(b'?'),
        },
        Form::Time => match whole(bytes).map(i64::from_be_bytes) {
            Ok(DAY_MICROS) => return "24:00:00".into(),
            // A time alone: what stands behind the date of a timestamp.
            Ok(micros) => {
                value::write_timestamp(&mut out, micros, TimeUnit::Microsecond, 0);
                out.drain(..out.iter().position(|b| *b == b' ').map_or(0, |n| n + 1));
            }
            Err(_) => out.push(b'?'),
        },
        _ => return "read".into(),
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Lines of JSON to a column of values with parts.
fn nested_column(name: &str, data_type: &DataType, lines: &[u8], nulls: Option<NullBuffer>) -> Result<ArrayRef, DbError> {
    let failed = |e: &dyn std::fmt::Display| DbError::data(format!("column '{name}': JSON that is no {}: {e}", type_name(data_type)));
    let schema = Arc::new(Schema::new(vec![Field::new("v", data_type.clone(), true)]));
    let options = JsonOptions::take(&mut RawOptions::new("rows of JSON", Vec::new())).map_err(|e| failed(&e))?;
    let mut decoder = JsonDecoder::new(&options, &schema, &[0]).map_err(|e| failed(&e))?;
    decoder.push(lines);
    decoder.finish();
    let mut parts: Vec<ArrayRef> = Vec::new();
    while let Some(decoded) = decoder.next(usize::MAX).map_err(|e| failed(&e))? {
        if let Some(bad) = decoded.bad.first() {
            // {"v":…} around the value.
            let raw = bad.raw.get(5..bad.raw.len().saturating_sub(1)).unwrap_or_default();
            return Err(failed(&format!("{} in {}", bad.reason, show_text(&String::from_utf8_lossy(raw)))));
        }
        parts.push(decoded.batch.column(0).clone());
    }
    let array = match parts.len() {
        0 => arrow::array::new_empty_array(data_type),
        1 => parts.swap_remove(0),
        _ => concat(&parts.iter().map(|p| p.as_ref()).collect::<Vec<_>>())?,
    };
    let expected = nulls.as_ref().map_or(array.len(), NullBuffer::len);
    if array.len() != expected {
        return Err(failed(&format!("{} values were read as {}", expected, array.len())));
    }
    Ok(array)
}

/// The columns of a result.
pub(super) struct Rows {
    schema: SchemaRef,
    readers: Vec<Reader>,
    rows: usize,
    bytes: usize,
    most: usize,
}

impl Rows {
    /// Batches of at most `most` rows.
    pub fn new(schema: SchemaRef, readers: Vec<Reader>, most: usize) -> Self {
        Rows { schema, readers, rows: 0, bytes: 0, most: most.max(1) }
    }

    /// How many columns there are.
    pub fn columns(&self) -> usize {
        self.readers.len()
    }

    /// Appends a row, whose field `i` is `field(i)`.
    #[inline]
    pub fn push<'b>(&mut self, mut field: impl FnMut(usize) -> Result<Option<&'b [u8]>, DbError>) -> Result<(), DbError> {
        for (i, reader) in self.readers.iter_mut().enumerate() {
            let value = field(i)?;
            self.bytes += value.map_or(0, <[u8]>::len);
            reader.push(value)?;
        }
        self.rows += 1;
        Ok(())
    }

    /// Whether the batch should be handed on.
    pub fn full(&self) -> bool {
        self.rows >= self.most || self.bytes >= BATCH_BYTES_MAX
    }

    /// The rows so far; begins anew.
    pub fn take(&mut self) -> Result<RecordBatch, DbError> {
        let columns = self.readers.iter_mut().map(Reader::build).collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        self.rows = 0;
        self.bytes = 0;
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
    }

    /// Whether there are rows to take.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }
}

/// Takes the stream of a `COPY … TO STDOUT (FORMAT binary)` apart. Pieces may be cut anywhere, though the
/// server sends a row each.
#[derive(Default)]
pub(super) struct CopyStream {
    /// Bytes of a row that is not complete.
    carry: Vec<u8>,
    begun: bool,
    /// The fields of the row at hand: where they begin and end.
    fields: Vec<Option<(usize, usize)>>,
}

impl CopyStream {
    /// Takes a piece and hands complete rows to `rows`, and full batches to `piece`.
    ///
    /// # Errors
    /// What came is not of that form; a value does not fit; `piece` fails.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        rows: &mut Rows,
        piece: &mut dyn FnMut(RecordBatch) -> Result<(), DbError>,
    ) -> Result<(), DbError> {
        let mut joined = std::mem::take(&mut self.carry);
        let mut data = if joined.is_empty() {
            bytes
        } else {
            joined.extend_from_slice(bytes);
            &joined[..]
        };
        if !self.begun {
            // Signature, flags, and the length of an extension that nobody has yet defined.
            if data.len() < 19 {
                self.carry = data.to_vec();
                return Ok(());
            }
            let extension = u32::from_be_bytes([data[15], data[16], data[17], data[18]]) as usize;
            if !data.starts_with(b"PGCOPY\n\xFF\r\n\0") || extension != 0 {
                return Err(DbError::fatal("the server answers COPY in a form that is not known here"));
            }
            data = &data[19..];
            self.begun = true;
        }
        while let Some((length, last)) = self.row(data, rows.columns())? {
            if !last {
                let fields = &self.fields;
                rows.push(|i| Ok(fields[i].map(|(from, to)| &data[from..to])))?;
                if rows.full() {
                    piece(rows.take()?)?;
                }
            }
            data = &data[length..];
        }
        self.carry = data.to_vec();
        Ok(())
    }

    /// Finds the fields of the row that `data` begins with: its length, and whether it is the end of all
    /// rows instead; `None` if it is not complete.
    fn row(&mut self, data: &[u8], columns: usize) -> Result<Option<(usize, bool)>, DbError> {
        let broken = |why: &str| DbError::connection(format!("the server's answer to COPY is damaged: {why}"));
        let Some(head) = data.first_chunk::<2>() else { return Ok(None) };
        match i16::from_be_bytes(*head) {
            -1 => return Ok(Some((2, true))),
            count if count as usize != columns => return Err(broken("the number of columns changes")),
            _ => {}
        }
        self.fields.clear();
        let mut at = 2;
        for _ in 0..columns {
            let Some(length) = data.get(at..).and_then(|rest| rest.first_chunk::<4>()) else { return Ok(None) };
            let length = i32::from_be_bytes(*length);
            at += 4;
            match usize::try_from(length) {
                Err(_) if length == -1 => self.fields.push(None),
                Err(_) => return Err(broken("a negative length")),
                Ok(length) if length <= data.len() - at => {
                    self.fields.push(Some((at, at + length)));
                    at += length;
                }
                Ok(_) => return Ok(None),
            }
        }
        Ok(Some((at, false)))
    }
}
