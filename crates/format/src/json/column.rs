//! Typed columns under construction. Every column can be cut back to a number of rows, so a record
//! that turns out bad in its last field leaves nothing behind.
//!
//! Values go from the text straight into these vectors, nested ones too; [`Column::build`] makes
//! Arrow arrays of them without copying.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, BooleanBufferBuilder, ListArray, MapArray, NullBufferBuilder, PrimitiveArray, StringArray,
    StructArray,
};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, FieldRef, Fields, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, Time32MillisecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType,
};
use tidemill_block::value;

use super::base64;
use super::scan::{Fault, Scan};
use crate::FormatError;
use crate::types::type_name;

/// How much of a wrong value a message shows, characters.
const SHOWN_MAX: usize = 60;
/// Field positions whose names are remembered to recognise the next record's fields.
const ORDER_MAX: usize = 4096;
/// How many remembered positions are tried before a name is looked up, for absent fields.
const ORDER_AHEAD: usize = 8;

/// What reading needs besides the column.
pub(super) struct Context {
    /// Space for strings with escapes.
    pub scratch: Vec<u8>,
    pub fail_on_missing: bool,
}

/// One column, top-level or nested.
pub(super) struct Column {
    /// The path for messages, such as `order.items[]`.
    path: String,
    expected: String,
    nullable: bool,
    nulls: NullBufferBuilder,
    values: Values,
}

/// Strings or bytes one behind the other.
struct Bytes {
    data: Vec<u8>,
    /// Where each value begins; one more than there are values.
    offsets: Vec<i32>,
    /// Bytes a value in the batch before, to reserve what the next will need.
    expected_len: usize,
}

enum Values {
    Bool(BooleanBufferBuilder),
    Int8(Vec<i8>),
    Int16(Vec<i16>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float32(Vec<f32>),
    Float64(Vec<f64>),
    Decimal(Vec<i128>, u8, i8),
    Text(Bytes),
    Binary(Bytes),
    Date(Vec<i32>),
    Time(Vec<i32>),
    Timestamp(Vec<i64>, TimeUnit, Option<Arc<str>>),
    Struct(Record, Fields),
    List { offsets: Vec<i32>, item: Box<Column>, field: FieldRef },
    Map { offsets: Vec<i32>, keys: Bytes, values: Box<Column>, entries: FieldRef, sorted: bool },
}

impl Bytes {
    fn new() -> Self {
        Bytes { data: Vec::new(), offsets: vec![0], expected_len: 0 }
    }

    #[inline]
    fn end(&mut self) {
        self.offsets.push(self.data.len() as i32);
    }

    fn reserve(&mut self, rows: usize) {
        self.data.reserve(rows.saturating_mul(self.expected_len));
        self.offsets.reserve(rows + 1);
    }

    /// Takes back the values behind the first `rows`, and what a value that failed half-way wrote.
    fn truncate(&mut self, rows: usize) {
        self.offsets.truncate(rows + 1);
        self.data.truncate(self.offsets[rows] as usize);
    }

    fn take(&mut self) -> (OffsetBuffer<i32>, Buffer) {
        let rows = self.offsets.len() - 1;
        self.expected_len = if rows > 0 { self.data.len() / rows + 1 } else { self.expected_len };
        (take_offsets(&mut self.offsets), Buffer::from_vec(std::mem::take(&mut self.data)))
    }

    fn strings(&mut self, nulls: Option<NullBuffer>) -> StringArray {
        let (offsets, data) = self.take();
        // SAFETY: the record was checked to be UTF-8, and values are cut out of it at ASCII bytes or
        // written by the escape decoder as whole characters; offsets are pushed at value ends only.
        unsafe { StringArray::new_unchecked(offsets, data, nulls) }
    }
}

fn take_offsets(offsets: &mut Vec<i32>) -> OffsetBuffer<i32> {
    OffsetBuffer::new(ScalarBuffer::from(std::mem::replace(offsets, vec![0])))
}

impl Column {
    /// # Errors
    /// A type that JSON cannot hold.
    pub fn new(path: &str, field: &FieldRef) -> Result<Self, FormatError> {
        let data_type = field.data_type();
        let unsupported = || FormatError::unsupported(format!("column '{path}': the json format has no {}", type_name(data_type)));
        let values = match data_type {
            DataType::Boolean => Values::Bool(BooleanBufferBuilder::new(0)),
            DataType::Int8 => Values::Int8(Vec::new()),
            DataType::Int16 => Values::Int16(Vec::new()),
            DataType::Int32 => Values::Int32(Vec::new()),
            DataType::Int64 => Values::Int64(Vec::new()),
            DataType::Float32 => Values::Float32(Vec::new()),
            DataType::Float64 => Values::Float64(Vec::new()),
            DataType::Decimal128(precision, scale) => Values::Decimal(Vec::new(), *precision, *scale),
            DataType::Utf8 => Values::Text(Bytes::new()),
            DataType::Binary => Values::Binary(Bytes::new()),
            DataType::Date32 => Values::Date(Vec::new()),
            DataType::Time32(TimeUnit::Millisecond) => Values::Time(Vec::new()),
            DataType::Timestamp(unit, zone) => Values::Timestamp(Vec::new(), *unit, zone.clone()),
            DataType::Struct(fields) => Values::Struct(Record::new(&format!("{path}."), fields.iter())?, fields.clone()),
            DataType::List(item) => {
                Values::List { offsets: vec![0], item: Box::new(Column::new(&format!("{path}[]"), item)?), field: item.clone() }
            }
            DataType::Map(entries, sorted) => match entries.data_type() {
                DataType::Struct(kv) if kv.len() == 2 && kv[0].data_type() == &DataType::Utf8 => Values::Map {
                    offsets: vec![0],
                    keys: Bytes::new(),
                    values: Box::new(Column::new(&format!("{path}[]"), &kv[1])?),
                    entries: entries.clone(),
                    sorted: *sorted,
                },
                _ => return Err(FormatError::unsupported(format!("column '{path}': the json format needs STRING keys in a MAP"))),
            },
            _ => return Err(unsupported()),
        };
        Ok(Column {
            path: path.to_string(),
            expected: type_name(data_type),
            nullable: field.is_nullable(),
            nulls: NullBufferBuilder::new(0),
            values,
        })
    }

    #[inline]
    fn rows(&self) -> usize {
        self.nulls.len()
    }

    fn reserve(&mut self, rows: usize) {
        match &mut self.values {
            Values::Bool(v) => v.reserve(rows),
            Values::Int8(v) => v.reserve(rows),
            Values::Int16(v) => v.reserve(rows),
            Values::Int32(v) | Values::Date(v) | Values::Time(v) => v.reserve(rows),
            Values::Int64(v) | Values::Timestamp(v, ..) => v.reserve(rows),
            Values::Float32(v) => v.reserve(rows),
            Values::Float64(v) => v.reserve(rows),
            Values::Decimal(v, ..) => v.reserve(rows),
            Values::Text(v) | Values::Binary(v) => v.reserve(rows),
            Values::Struct(record, _) => record.reserve(rows),
            Values::List { offsets, .. } | Values::Map { offsets, .. } => offsets.reserve(rows),
        }
    }

    fn truncate(&mut self, rows: usize) {
        self.nulls.truncate(rows);
        match &mut self.values {
            Values::Bool(v) => v.truncate(rows),
            Values::Int8(v) => v.truncate(rows),
            Values::Int16(v) => v.truncate(rows),
            Values::Int32(v) | Values::Date(v) | Values::Time(v) => v.truncate(rows),
            Values::Int64(v) | Values::Timestamp(v, ..) => v.truncate(rows),
            Values::Float32(v) => v.truncate(rows),
            Values::Float64(v) => v.truncate(rows),
            Values::Decimal(v, ..) => v.truncate(rows),
            Values::Text(v) | Values::Binary(v) => v.truncate(rows),
            Values::Struct(record, _) => record.truncate(rows),
            Values::List { offsets, item, .. } => {
                offsets.truncate(rows + 1);
                item.truncate(offsets[offsets.len() - 1] as usize);
            }
            Values::Map { offsets, keys, values, .. } => {
                offsets.truncate(rows + 1);
                let entries = offsets[offsets.len() - 1] as usize;
                keys.truncate(entries);
                values.truncate(entries);
            }
        }
    }

    /// Appends a null, or fails where the column must not have any.
    #[inline]
    fn null(&mut self, why: &str) -> Result<(), Fault> {
        if !self.nullable {
            return Err(format!("column '{}': {why}, but the column is {} NOT NULL", self.path, self.expected).into());
        }
        self.null_inside();
        Ok(())
    }

    /// Appends a null where one is allowed, if only because the row around it is null.
    fn null_inside(&mut self) {
        self.nulls.append_null();
        match &mut self.values {
            Values::Bool(v) => v.append(false),
            Values::Int8(v) => v.push(0),
            Values::Int16(v) => v.push(0),
            Values::Int32(v) | Values::Date(v) | Values::Time(v) => v.push(0),
            Values::Int64(v) | Values::Timestamp(v, ..) => v.push(0),
            Values::Float32(v) => v.push(0.0),
            Values::Float64(v) => v.push(0.0),
            Values::Decimal(v, ..) => v.push(0),
            Values::Text(v) | Values::Binary(v) => v.end(),
            Values::Struct(record, _) => record.columns.iter_mut().for_each(Column::null_inside),
            Values::List { offsets, .. } | Values::Map { offsets, .. } => offsets.push(offsets[offsets.len() - 1]),
        }
    }

    /// Takes the value under the cursor and appends it.
    #[inline]
    fn read(&mut self, scan: &mut Scan<'_>, context: &mut Context) -> Result<(), Fault> {
        if scan.peek() == b'n' {
            scan.literal("null")?;
            return self.null("the value is null");
        }
        let from = scan.at;
        let good = match &mut self.values {
            Values::Int64(v) => integer(scan, context)?.map(|n| v.push(n)),
            Values::Int32(v) => integer(scan, context)?.and_then(|n| n.try_into().ok()).map(|n| v.push(n)),
            Values::Int16(v) => integer(scan, context)?.and_then(|n| n.try_into().ok()).map(|n| v.push(n)),
            Values::Int8(v) => integer(scan, context)?.and_then(|n| n.try_into().ok()).map(|n| v.push(n)),
            Values::Float64(v) => match plain_double(scan) {
                None => float::<f64>(scan, context)?,
                plain => plain,
            }
            .map(|n| v.push(n)),
            Values::Float32(v) => float::<f32>(scan, context)?.map(|n| v.push(n)),
            Values::Text(v) => {
                if scan.peek() == b'"' {
                    scan.string_into(&mut v.data)?;
                } else {
                    // A number, a boolean, an array or an object becomes its own text.
                    scan.skip()?;
                    v.data.extend_from_slice(&scan.bytes[from..scan.at]);
                }
                v.end();
                Some(())
            }
            Values::Timestamp(v, unit, _) => match scan.peek() {
                b'"' => value::parse_timestamp(scan.string(&mut context.scratch)?.trim_ascii(), *unit),
                _ => integer(scan, context)?.and_then(|ms| from_millis(ms, *unit)),
            }
            .map(|n| v.push(n)),
            Values::Bool(v) => boolean(scan, context)?.map(|b| v.append(b)),
            Values::Decimal(v, precision, scale) => match scan.peek() {
                b'"' => value::parse_decimal(scan.string(&mut context.scratch)?.trim_ascii(), *precision, *scale),
                b'-' | b'0'..=b'9' => value::parse_decimal(scan.number()?, *precision, *scale),
                _ => other(scan)?,
            }
            .map(|n| v.push(n)),
            Values::Date(v) => match scan.peek() {
                b'"' => value::parse_date(scan.string(&mut context.scratch)?.trim_ascii()),
                _ => other(scan)?,
            }
            .map(|n| v.push(n)),
            Values::Time(v) => match scan.peek() {
                b'"' => value::parse_time_ms(scan.string(&mut context.scratch)?.trim_ascii()),
                _ => other(scan)?,
            }
            .map(|n| v.push(n)),
            Values::Binary(v) => match scan.peek() {
                b'"' => base64::read(scan.string(&mut context.scratch)?.trim_ascii(), &mut v.data),
                _ => other(scan)?,
            }
            .map(|()| v.end()),
            Values::Struct(record, _) => match scan.peek() {
                b'{' => Some(record.read(scan, context)?),
                _ => other(scan)?,
            },
            Values::List { offsets, item, .. } => match scan.peek() {
                b'[' => {
                    scan.at += 1;
                    scan.blanks();
                    if scan.peek() == b']' {
                        scan.at += 1;
                    } else {
                        loop {
                            item.read(scan, context)?;
                            if !scan.more(b']')? {
                                break;
                            }
                        }
                    }
                    offsets.push(item.rows() as i32);
                    Some(())
                }
                _ => other(scan)?,
            },
            Values::Map { offsets, keys, values, .. } => match scan.peek() {
                b'{' => {
                    scan.at += 1;
                    scan.blanks();
                    if scan.peek() == b'}' {
                        scan.at += 1;
                    } else {
                        loop {
                            if scan.peek() != b'"' {
                                return Err(scan.expected("a field name"));
                            }
                            scan.string_into(&mut keys.data)?;
                            keys.end();
                            scan.colon()?;
                            values.read(scan, context)?;
                            if !scan.more(b'}')? {
                                break;
                            }
                        }
                    }
                    offsets.push(values.rows() as i32);
                    Some(())
                }
                _ => other(scan)?,
            },
        };
        if good.is_none() {
            return Err(self.wrong(&scan.bytes[from..scan.at]));
        }
        self.nulls.append_non_null();
        Ok(())
    }

    #[cold]
    fn wrong(&self, raw: &[u8]) -> Fault {
        let text = String::from_utf8_lossy(raw);
        let mut shown: String = text.chars().take(SHOWN_MAX).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        format!("column '{}': {shown} is not a {}", self.path, self.expected).into()
    }

    /// The array of all rows; the column is empty afterwards.
    pub fn build(&mut self) -> Result<ArrayRef, FormatError> {
        fn primitive<T: ArrowPrimitiveType>(v: &mut Vec<T::Native>, nulls: Option<NullBuffer>) -> PrimitiveArray<T> {
            PrimitiveArray::new(ScalarBuffer::from(std::mem::take(v)), nulls)
        }
        let rows = self.rows();
        let nulls = self.nulls.finish();
        Ok(match &mut self.values {
            Values::Bool(v) => Arc::new(BooleanArray::new(v.finish(), nulls)),
            Values::Int8(v) => Arc::new(primitive::<Int8Type>(v, nulls)),
            Values::Int16(v) => Arc::new(primitive::<Int16Type>(v, nulls)),
            Values::Int32(v) => Arc::new(primitive::<Int32Type>(v, nulls)),
            Values::Int64(v) => Arc::new(primitive::<Int64Type>(v, nulls)),
            Values::Float32(v) => Arc::new(primitive::<Float32Type>(v, nulls)),
            Values::Float64(v) => Arc::new(primitive::<Float64Type>(v, nulls)),
            Values::Decimal(v, precision, scale) => {
                Arc::new(primitive::<Decimal128Type>(v, nulls).with_data_type(DataType::Decimal128(*precision, *scale)))
            }
            Values::Date(v) => Arc::new(primitive::<Date32Type>(v, nulls)),
            Values::Time(v) => Arc::new(primitive::<Time32MillisecondType>(v, nulls)),
            Values::Timestamp(v, unit, zone) => match unit {
                TimeUnit::Second => Arc::new(primitive::<TimestampSecondType>(v, nulls).with_timezone_opt(zone.clone())),
                TimeUnit::Millisecond => Arc::new(primitive::<TimestampMillisecondType>(v, nulls).with_timezone_opt(zone.clone())),
                TimeUnit::Microsecond => Arc::new(primitive::<TimestampMicrosecondType>(v, nulls).with_timezone_opt(zone.clone())),
                TimeUnit::Nanosecond => Arc::new(primitive::<TimestampNanosecondType>(v, nulls).with_timezone_opt(zone.clone())),
            },
            Values::Text(v) => Arc::new(v.strings(nulls)),
            Values::Binary(v) => {
                let (offsets, data) = v.take();
                Arc::new(BinaryArray::try_new(offsets, data, nulls)?)
            }
            Values::Struct(record, fields) => Arc::new(StructArray::try_new_with_length(fields.clone(), record.build()?, nulls, rows)?),
            Values::List { offsets, item, field } => {
                Arc::new(ListArray::try_new(field.clone(), take_offsets(offsets), item.build()?, nulls)?)
            }
            Values::Map { offsets, keys, values, entries, sorted } => {
                let DataType::Struct(kv) = entries.data_type() else { unreachable!("checked when the column was made") };
                let pairs = StructArray::try_new(kv.clone(), vec![Arc::new(keys.strings(None)), values.build()?], None)?;
                Arc::new(MapArray::try_new(entries.clone(), take_offsets(offsets), pairs, nulls, *sorted)?)
            }
        })
    }
}

/// Takes a value of a kind that the column cannot hold.
#[cold]
fn other<T>(scan: &mut Scan<'_>) -> Result<Option<T>, Fault> {
    scan.skip()?;
    Ok(None)
}

/// A whole number, or a string that holds one. A fraction of zero is accepted (`1.0`, `1e3`); any
/// other would be lost, so it is refused.
#[inline]
fn integer(scan: &mut Scan<'_>, context: &mut Context) -> Result<Option<i64>, Fault> {
    match scan.peek() {
        b'-' | b'0'..=b'9' => {
            let from = scan.at;
            let negative = scan.peek() == b'-';
            let mut at = from + negative as usize;
            let first = at;
            let mut n = 0u64;
            while let Some(digit) = scan.bytes.get(at).map(|b| b.wrapping_sub(b'0')).filter(|d| *d < 10) {
                n = n.wrapping_mul(10).wrapping_add(digit as u64);
                at += 1;
            }
            let digits = at - first;
            let plain = digits > 0 && digits <= 18 && !(digits > 1 && scan.bytes[first] == b'0');
            if plain && !matches!(scan.bytes.get(at), Some(b'.' | b'e' | b'E')) {
                scan.at = at;
                return Ok(Some(if negative { -(n as i64) } else { n as i64 }));
            }
            Ok(odd_integer(scan.number()?))
        }
        b'"' => {
            let text = scan.string(&mut context.scratch)?.trim_ascii();
            Ok(odd_integer(text.strip_prefix(b"+").unwrap_or(text)))
        }
        _ => other(scan),
    }
}

#[cold]
fn odd_integer(text: &[u8]) -> Option<i64> {
    if let Ok(n) = std::str::from_utf8(text).ok()?.parse() {
        return Some(n);
    }
    // Beyond 2^53 a double no longer says which whole number was meant.
    let v: f64 = fast_float2::parse(text).ok()?;
    (v.fract() == 0.0 && v.abs() <= 9_007_199_254_740_992.0 && text.iter().any(|b| matches!(b, b'.' | b'e' | b'E'))).then_some(v as i64)
}

/// Powers of ten, all of which are doubles.
const POWERS: [f64; DIGITS_MAX + 1] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];
/// So many digits are a double, whatever they are.
const DIGITS_MAX: usize = 15;

/// A number of few digits without an exponent, as most are, in one pass. Its digits and the power of ten are doubles, so that
/// one division gives the nearest double to the number (Clinger, "How to read floating point numbers accurately", PLDI 1990).
/// Of anything else nothing is taken.
#[inline]
fn plain_double(scan: &mut Scan<'_>) -> Option<f64> {
    let rest = scan.rest();
    let digit = |at: usize| rest.get(at).map(|b| b.wrapping_sub(b'0')).filter(|d| *d < 10);
    let negative = scan.peek() == b'-';
    let first = negative as usize;
    let (mut at, mut n) = (first, 0u64);
    while let Some(d) = digit(at) {
        n = n.wrapping_mul(10).wrapping_add(d as u64);
        at += 1;
    }
    let whole = at - first;
    let mut places = 0;
    if rest.get(at) == Some(&b'.') {
        let behind = at + 1;
        at = behind;
        while let Some(d) = digit(at) {
            n = n.wrapping_mul(10).wrapping_add(d as u64);
            at += 1;
        }
        places = at - behind;
        if places == 0 {
            return None;
        }
    }
    let plain = whole > 0 && whole + places <= DIGITS_MAX && !(whole > 1 && rest[first] == b'0');
    if !plain || matches!(rest.get(at), Some(b'e' | b'E')) {
        return None;
    }
    scan.at += at;
    let value = n as f64 / POWERS[places];
    Some(if negative { -value } else { value })
}

/// A number, or a string that holds one, `NaN`, `Infinity` or `-Infinity`.
#[inline]
fn float<T: fast_float2::FastFloat>(scan: &mut Scan<'_>, context: &mut Context) -> Result<Option<T>, Fault> {
    match scan.peek() {
        b'-' | b'0'..=b'9' => Ok(fast_float2::parse(scan.number()?).ok()),
        b'"' => Ok(fast_float2::parse(scan.string(&mut context.scratch)?.trim_ascii()).ok()),
        _ => other(scan),
    }
}

#[inline]
fn boolean(scan: &mut Scan<'_>, context: &mut Context) -> Result<Option<bool>, Fault> {
    match scan.peek() {
        b't' => scan.literal("true").map(|()| Some(true)),
        b'f' => scan.literal("false").map(|()| Some(false)),
        b'"' => Ok(match scan.string(&mut context.scratch)?.trim_ascii() {
            t if t.eq_ignore_ascii_case(b"true") => Some(true),
            t if t.eq_ignore_ascii_case(b"false") => Some(false),
            _ => None,
        }),
        _ => other(scan),
    }
}

fn from_millis(ms: i64, unit: TimeUnit) -> Option<i64> {
    match unit {
        TimeUnit::Second => Some(ms.div_euclid(1000)),
        unit => ms.checked_mul(value::units_per_second(unit) / 1000),
    }
}

/// The fields of an object: of the record itself, or of a ROW column.
pub(super) struct Record {
    pub columns: Vec<Column>,
    /// Column names as they stand between the quotes, each at its own index.
    names: Vec<Vec<u8>>,
    /// Open addressing into `names`; its length is a power of two.
    slots: Vec<u32>,
    /// What stood where in the records before: most producers write the same order each time, so
    /// one comparison recognises a name.
    order: Vec<Known>,
}

#[derive(Default)]
struct Known {
    /// The name as written, with its quotes.
    quoted: Vec<u8>,
    /// Its first bytes, and which of sixteen they are: one comparison for the whole of most names.
    head: u128,
    mask: u128,
    column: Option<u32>,
}

/// Bytes of [`Known::head`].
const HEAD: usize = size_of::<u128>();

impl Known {
    fn set(&mut self, quoted: &[u8], column: Option<u32>) {
        let (mut head, mut mask) = ([0; HEAD], [0; HEAD]);
        let length = quoted.len().min(HEAD);
        head[..length].copy_from_slice(&quoted[..length]);
        mask[..length].fill(0xff);
        (self.head, self.mask) = (u128::from_le_bytes(head), u128::from_le_bytes(mask));
        self.quoted.clear();
        self.quoted.extend_from_slice(quoted);
        self.column = column;
    }

    /// Whether a text begins with the name.
    #[inline]
    fn begins(&self, text: &[u8]) -> bool {
        match text.first_chunk::<HEAD>() {
            Some(first) if self.quoted.len() <= HEAD => u128::from_le_bytes(*first) & self.mask == self.head,
            _ => text.starts_with(&self.quoted),
        }
    }
}

const EMPTY: u32 = u32::MAX;

impl Record {
    /// # Errors
    /// A type that JSON cannot hold.
    pub fn new<'f>(prefix: &str, fields: impl Iterator<Item = &'f FieldRef>) -> Result<Self, FormatError> {
        let (mut columns, mut names) = (Vec::new(), Vec::new());
        for field in fields {
            columns.push(Column::new(&format!("{prefix}{}", field.name()), field)?);
            names.push(field.name().as_bytes().to_vec());
        }
        let mut slots = vec![EMPTY; (names.len() * 2 + 2).next_power_of_two()];
        for (i, name) in names.iter().enumerate() {
            let mut slot = hash(name) & (slots.len() - 1);
            while slots[slot] != EMPTY {
                slot = (slot + 1) & (slots.len() - 1);
            }
            slots[slot] = i as u32;
        }
        Ok(Record { columns, names, slots, order: Vec::new() })
    }

    pub fn reserve(&mut self, rows: usize) {
        self.columns.iter_mut().for_each(|c| c.reserve(rows));
    }

    /// Cuts all columns back to `rows` rows, which all of them have.
    pub fn truncate(&mut self, rows: usize) {
        self.columns.iter_mut().for_each(|c| c.truncate(rows));
    }

    pub fn build(&mut self) -> Result<Vec<ArrayRef>, FormatError> {
        self.columns.iter_mut().map(Column::build).collect()
    }

    /// The column called `name`; the first, if several are.
    fn find(&self, name: &[u8]) -> Option<u32> {
        let mut slot = hash(name) & (self.slots.len() - 1);
        while self.slots[slot] != EMPTY {
            let column = self.slots[slot];
            if self.names[column as usize] == name {
                return Some(column);
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        None
    }

    /// Takes a field's name; gives its column and the position to expect the next one at.
    #[inline]
    fn field(&mut self, scan: &mut Scan<'_>, position: usize, context: &mut Context) -> Result<(Option<u32>, usize), Fault> {
        let rest = scan.rest();
        let ahead = self.order.get(position..).unwrap_or_default();
        for (i, known) in ahead.iter().take(ORDER_AHEAD).enumerate() {
            if known.begins(rest) {
                scan.at += known.quoted.len();
                return Ok((known.column, position + i + 1));
            }
        }
        self.unexpected_field(scan, position, context)
    }

    fn unexpected_field(&mut self, scan: &mut Scan<'_>, position: usize, context: &mut Context) -> Result<(Option<u32>, usize), Fault> {
        if scan.peek() != b'"' {
            return Err(scan.expected("a field name"));
        }
        let from = scan.at;
        let column = self.find(scan.string(&mut context.scratch)?);
        let quoted = &scan.bytes[from..scan.at];
        if position == self.order.len() && position < ORDER_MAX {
            self.order.push(Known::default());
        }
        if let Some(known) = self.order.get_mut(position) {
            known.set(quoted, column);
        }
        Ok((column, position + 1))
    }

    /// Takes the object under the cursor and appends one row to every column. After an error some
    /// columns have the row: [`Record::truncate`].
    #[inline]
    pub fn read(&mut self, scan: &mut Scan<'_>, context: &mut Context) -> Result<(), Fault> {
        let row = self.columns.first().map_or(0, Column::rows);
        let filled = self.fields(scan, row, 0, context)?;
        self.fill(row, filled, context)
    }

    /// As [`Record::read`] for a row whose fields stand in two objects: where both have a field, that of
    /// `over` counts.
    pub fn read_over(&mut self, scan: &mut Scan<'_>, over: &mut Scan<'_>, context: &mut Context) -> Result<(), Fault> {
        let row = self.columns.first().map_or(0, Column::rows);
        let filled = self.fields(scan, row, 0, context)?;
        let filled = self.fields(over, row, filled, context)?;
        self.fill(row, filled, context)
    }

    /// Takes the fields of an object into row `row`, of which `filled` columns have a value already;
    /// gives how many have one now.
    #[inline]
    fn fields(&mut self, scan: &mut Scan<'_>, row: usize, mut filled: usize, context: &mut Context) -> Result<usize, Fault> {
        scan.take(b'{', "'{'")?;
        scan.blanks();
        if scan.peek() == b'}' {
            scan.at += 1;
        } else {
            let mut position = 0;
            loop {
                let (column, next) = self.field(scan, position, context)?;
                position = next;
                scan.colon()?;
                match column {
                    Some(column) => {
                        let column = &mut self.columns[column as usize];
                        if column.rows() > row {
                            // The name stands twice in the object: the last one counts, as in Flink.
                            column.truncate(row);
                            filled -= 1;
                        }
                        column.read(scan, context)?;
                        filled += 1;
                    }
                    None => scan.skip()?,
                }
                if !scan.more(b'}')? {
                    break;
                }
            }
        }
        Ok(filled)
    }

    /// Gives the columns without a value in row `row` their NULL.
    #[inline]
    fn fill(&mut self, row: usize, filled: usize, context: &mut Context) -> Result<(), Fault> {
        if filled < self.columns.len() {
            for column in self.columns.iter_mut().filter(|c| c.rows() == row) {
                if context.fail_on_missing {
                    return Err(format!("column '{}': the record has no such field", column.path).into());
                }
                column.null("the record has no such field")?;
            }
        }
        Ok(())
    }
}

/// Good enough to keep the names of one table apart.
#[inline]
fn hash(name: &[u8]) -> usize {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for b in name {
        hash = (hash ^ *b as u64).wrapping_mul(0x0100_0000_01b3);
    }
    (hash ^ hash >> 32) as usize
}
