//! Blocks to JSON lines.

use std::cell::RefCell;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::buffer::NullBuffer;
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Field, FieldRef, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, SchemaRef,
    Time32MillisecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use tidemill_block::{Block, value};

use super::{JsonOptions, TimestampFormat, base64};
use crate::types::{plain_type, type_name};
use crate::{Encoder, FormatError};

/// Writes one JSON object a line, as Flink's `json` format does: decimals as numbers, dates, times
/// and timestamps as strings, BYTES in base64, numbers that JSON lacks as `"NaN"` and `"Infinity"`.
pub struct JsonEncoder {
    style: Style,
    /// The type that each column is cast to before it is written, if it is not that already.
    casts: Vec<Option<DataType>>,
    /// `,"name":` for each column.
    keys: Vec<Vec<u8>>,
}

#[derive(Clone, Copy)]
struct Style {
    iso: bool,
    plain_decimals: bool,
    skip_nulls: bool,
}

impl JsonEncoder {
    /// An encoder for rows of `schema`.
    ///
    /// # Errors
    /// A column type that JSON cannot express.
    pub fn new(options: &JsonOptions, schema: &SchemaRef) -> Result<Self, FormatError> {
        let mut casts = Vec::new();
        for field in schema.fields() {
            let plain = plain_type(field.data_type());
            check(field.name(), &plain)?;
            casts.push((plain != *field.data_type()).then_some(plain));
        }
        Ok(JsonEncoder {
            style: Style {
                iso: options.timestamp_format == TimestampFormat::Iso,
                plain_decimals: options.decimal_as_plain_number,
                skip_nulls: options.ignore_null_fields,
            },
            casts,
            keys: schema.fields().iter().map(|f| key(f)).collect(),
        })
    }
}

impl JsonEncoder {
    /// Hands `write` the rows of a batch.
    ///
    /// # Errors
    /// None that rows of the schema can cause.
    pub(crate) fn with_rows(&self, batch: &RecordBatch, write: impl FnOnce(&JsonRows<'_>)) -> Result<(), FormatError> {
        let arrays: Vec<ArrayRef> = batch
            .columns()
            .iter()
            .zip(&self.casts)
            .map(|(array, to)| to.as_ref().map_or_else(|| Ok(array.clone()), |to| cast(array, to)))
            .collect::<Result<_, _>>()?;
        let columns = arrays.iter().zip(&self.keys).map(|(array, key)| (key.as_slice(), Cells::of(array.as_ref()))).collect();
        write(&JsonRows { columns, style: self.style });
        Ok(())
    }
}

fn key(field: &Field) -> Vec<u8> {
    let mut key = b",".to_vec();
    write_string(&mut key, field.name().as_bytes());
    key.push(b':');
    key
}

/// Whether [`Values::of`] knows the type.
fn check(path: &str, data_type: &DataType) -> Result<(), FormatError> {
    use DataType::*;
    match data_type {
        Null | Boolean | Int8 | Int16 | Int32 | Int64 | Float32 | Float64 | Decimal128(..) | Utf8 | Binary | Date32 => Ok(()),
        Time32(TimeUnit::Millisecond) | Timestamp(..) => Ok(()),
        List(item) => check(&format!("{path}[]"), item.data_type()),
        Struct(fields) => fields.iter().try_for_each(|f| check(&format!("{path}.{}", f.name()), f.data_type())),
        Map(entries, _) => match entries.data_type() {
            Struct(kv) if kv.len() == 2 && kv[0].data_type() == &Utf8 => check(&format!("{path}[]"), kv[1].data_type()),
            _ => Err(FormatError::unsupported(format!("column '{path}': the json format needs STRING keys in a MAP"))),
        },
        other => {
            Err(FormatError::unsupported(format!("column '{path}': the json format cannot write {}; cast it to STRING", type_name(other))))
        }
    }
}

impl Encoder for JsonEncoder {
    fn begin(&mut self, _out: &mut Vec<u8>) {}

    fn encode(&mut self, block: &Block, out: &mut Vec<u8>) -> Result<(), FormatError> {
        self.with_rows(&block.batch, |rows| {
            for row in 0..block.rows() {
                rows.write(row, out);
                out.push(b'\n');
            }
        })
    }
}

/// The rows of a batch, ready to be written.
pub(crate) struct JsonRows<'a> {
    columns: Vec<(&'a [u8], Cells<'a>)>,
    style: Style,
}

impl JsonRows<'_> {
    /// Appends a row as an object.
    #[inline]
    pub fn write(&self, row: usize, out: &mut Vec<u8>) {
        write_object(&self.columns, row, self.style, out);
    }
}

/// A column of the block with its type resolved, so that a value costs one match.
struct Cells<'a> {
    nulls: Option<&'a NullBuffer>,
    values: Values<'a>,
}

enum Values<'a> {
    Null,
    Bool(&'a arrow::array::BooleanArray),
    Int8(&'a [i8]),
    Int16(&'a [i16]),
    Int32(&'a [i32]),
    Int64(&'a [i64]),
    Float32(&'a [f32]),
    Float64(&'a [f64]),
    Decimal(&'a [i128], i8),
    Text(&'a arrow::array::StringArray),
    Binary(&'a arrow::array::BinaryArray),
    Date(&'a [i32]),
    Time(&'a [i32]),
    Timestamp { values: &'a [i64], unit: TimeUnit, zoned: bool, text: RefCell<value::TimestampWriter> },
    Struct(Vec<(Vec<u8>, Cells<'a>)>),
    List(&'a [i32], Box<Cells<'a>>),
    Map(&'a [i32], &'a arrow::array::StringArray, Box<Cells<'a>>),
}

impl<'a> Cells<'a> {
    /// Of an array whose type has passed [`check`].
    fn of(array: &'a dyn Array) -> Self {
        let values = match array.data_type() {
            DataType::Boolean => Values::Bool(array.as_boolean()),
            DataType::Int8 => Values::Int8(array.as_primitive::<Int8Type>().values()),
            DataType::Int16 => Values::Int16(array.as_primitive::<Int16Type>().values()),
            DataType::Int32 => Values::Int32(array.as_primitive::<Int32Type>().values()),
            DataType::Int64 => Values::Int64(array.as_primitive::<Int64Type>().values()),
            DataType::Float32 => Values::Float32(array.as_primitive::<Float32Type>().values()),
            DataType::Float64 => Values::Float64(array.as_primitive::<Float64Type>().values()),
            DataType::Decimal128(_, scale) => Values::Decimal(array.as_primitive::<Decimal128Type>().values(), *scale),
            DataType::Utf8 => Values::Text(array.as_string()),
            DataType::Binary => Values::Binary(array.as_binary()),
            DataType::Date32 => Values::Date(array.as_primitive::<Date32Type>().values()),
            DataType::Time32(TimeUnit::Millisecond) => Values::Time(array.as_primitive::<Time32MillisecondType>().values()),
            DataType::Timestamp(unit, zone) => Values::Timestamp {
                values: match unit {
                    TimeUnit::Second => array.as_primitive::<TimestampSecondType>().values(),
                    TimeUnit::Millisecond => array.as_primitive::<TimestampMillisecondType>().values(),
                    TimeUnit::Microsecond => array.as_primitive::<TimestampMicrosecondType>().values(),
                    TimeUnit::Nanosecond => array.as_primitive::<TimestampNanosecondType>().values(),
                },
                unit: *unit,
                zoned: zone.is_some(),
                text: RefCell::default(),
            },
            DataType::Struct(fields) => {
                let columns = array.as_struct().columns().iter();
                Values::Struct(fields.iter().zip(columns).map(|(f, c): (&FieldRef, _)| (key(f), Cells::of(c.as_ref()))).collect())
            }
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                Values::List(list.value_offsets(), Box::new(Cells::of(list.values().as_ref())))
            }
            DataType::Map(..) => {
                let map = array.as_map();
                Values::Map(map.value_offsets(), map.keys().as_string(), Box::new(Cells::of(map.values().as_ref())))
            }
            _ => Values::Null,
        };
        Cells { nulls: array.nulls().filter(|n| n.null_count() > 0), values }
    }

    #[inline]
    fn is_null(&self, row: usize) -> bool {
        self.nulls.is_some_and(|n| n.is_null(row)) || matches!(self.values, Values::Null)
    }

    #[inline]
    fn write(&self, row: usize, style: Style, out: &mut Vec<u8>) {
        if self.is_null(row) {
            out.extend_from_slice(b"null");
            return;
        }
        match &self.values {
            Values::Null => out.extend_from_slice(b"null"),
            Values::Bool(v) => out.extend_from_slice(if v.value(row) { b"true" } else { b"false" }),
            Values::Int8(v) => value::write_i64(out, v[row].into()),
            Values::Int16(v) => value::write_i64(out, v[row].into()),
            Values::Int32(v) => value::write_i64(out, v[row].into()),
            Values::Int64(v) => value::write_i64(out, v[row]),
            Values::Float32(v) => quoted_if(!v[row].is_finite(), out, |out| value::write_f32(out, v[row])),
            Values::Float64(v) => quoted_if(!v[row].is_finite(), out, |out| value::write_f64(out, v[row])),
            Values::Decimal(v, scale) => write_decimal(out, v[row], *scale, style.plain_decimals),
            Values::Text(v) => write_string(out, v.value(row).as_bytes()),
            Values::Binary(v) => quoted_if(true, out, |out| base64::write(out, v.value(row))),
            Values::Date(v) => quoted_if(true, out, |out| value::write_date(out, v[row])),
            Values::Time(v) => quoted_if(true, out, |out| value::write_time_ms(out, v[row])),
            Values::Timestamp { values, unit, zoned, text } => quoted_if(true, out, |out| {
                let from = out.len();
                text.borrow_mut().write(out, values[row], *unit);
                if style.iso
                    && let Some(blank) = memchr::memchr(b' ', &out[from..])
                {
                    out[from + blank] = b'T';
                }
                if *zoned {
                    out.push(b'Z');
                }
            }),
            Values::Struct(columns) => write_object(columns, row, style, out),
            Values::List(offsets, item) => {
                out.push(b'[');
                for (i, at) in (offsets[row]..offsets[row + 1]).enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    item.write(at as usize, style, out);
                }
                out.push(b']');
            }
            Values::Map(offsets, keys, values) => {
                out.push(b'{');
                for (i, at) in (offsets[row]..offsets[row + 1]).enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    write_string(out, keys.value(at as usize).as_bytes());
                    out.push(b':');
                    values.write(at as usize, style, out);
                }
                out.push(b'}');
            }
        }
    }
}

#[inline]
fn write_object<K: AsRef<[u8]>>(columns: &[(K, Cells<'_>)], row: usize, style: Style, out: &mut Vec<u8>) {
    let open = out.len();
    for (key, cells) in columns {
        if !(style.skip_nulls && cells.is_null(row)) {
            out.extend_from_slice(key.as_ref());
            cells.write(row, style, out);
        }
    }
    // Each key brings the comma in front of it; the first one's is where the brace belongs.
    if out.len() > open {
        out[open] = b'{';
    } else {
        out.push(b'{');
    }
    out.push(b'}');
}

#[inline]
fn quoted_if(quoted: bool, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    if quoted {
        out.push(b'"');
    }
    write(out);
    if quoted {
        out.push(b'"');
    }
}

/// As Java's `BigDecimal.toString`: with an exponent where the first digit stands more than six
/// places behind the point, unless `plain`.
fn write_decimal(out: &mut Vec<u8>, v: i128, scale: i8, plain: bool) {
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(v.unsigned_abs()).as_bytes();
    let exponent = digits.len() as i32 - 1 - scale as i32;
    if plain || exponent >= -6 || scale <= 0 {
        value::write_decimal(out, v, scale);
        return;
    }
    if v < 0 {
        out.push(b'-');
    }
    out.push(digits[0]);
    if digits.len() > 1 {
        out.push(b'.');
        out.extend_from_slice(&digits[1..]);
    }
    out.push(b'E');
    value::write_i64(out, exponent.into());
}

/// For each byte what stands behind the backslash: 0 for none, `u` for a code.
const ESCAPES: [u8; 256] = {
    let mut escapes = [0; 256];
    let mut i = 0;
    while i < 0x20 {
        escapes[i] = b'u';
        i += 1;
    }
    escapes[b'"' as usize] = b'"';
    escapes[b'\\' as usize] = b'\\';
    escapes[b'\n' as usize] = b'n';
    escapes[b'\r' as usize] = b'r';
    escapes[b'\t' as usize] = b't';
    escapes[8] = b'b';
    escapes[12] = b'f';
    escapes
};

fn write_string(out: &mut Vec<u8>, text: &[u8]) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    let mut from = 0;
    for (i, b) in text.iter().enumerate() {
        let escape = ESCAPES[*b as usize];
        if escape == 0 {
            continue;
        }
        out.extend_from_slice(&text[from..i]);
        from = i + 1;
        out.extend_from_slice(&[b'\\', escape]);
        if escape == b'u' {
            let hex = b"0123456789ABCDEF";
            out.extend_from_slice(&[b'0', b'0', hex[(b >> 4) as usize], hex[(b & 15) as usize]]);
        }
    }
    out.extend_from_slice(&text[from..]);
    out.push(b'"');
}
