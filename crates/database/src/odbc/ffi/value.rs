//! How values travel: as numbers, structures, or texts and bytes of one width, a column at a time.

use super::Ptr;

/// `SQL_DATE_STRUCT`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Date {
    /// May be negative.
    pub year: i16,
    /// 1 to 12.
    pub month: u16,
    /// 1 to 31.
    pub day: u16,
}

/// `SQL_TIMESTAMP_STRUCT`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamp {
    /// May be negative.
    pub year: i16,
    /// 1 to 12.
    pub month: u16,
    /// 1 to 31.
    pub day: u16,
    /// 0 to 23.
    pub hour: u16,
    /// 0 to 59.
    pub minute: u16,
    /// 0 to 59.
    pub second: u16,
    /// Nanoseconds.
    pub fraction: u32,
}

/// A type of the database: its code in `sql.h`, its size (characters, bytes, digits), and the digits behind its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqlType {
    /// `SQL_BIGINT` and so on.
    pub code: i16,
    /// Characters, bytes or digits.
    pub size: usize,
    /// Digits behind the point.
    pub digits: i16,
}

/// What a value looks like in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A byte, 0 or 1.
    Bit,
    /// 16 bits with a sign.
    I16,
    /// 32 bits with a sign.
    I32,
    /// 64 bits with a sign.
    I64,
    /// 64 bits without.
    U64,
    /// A float.
    F32,
    /// A double.
    F64,
    /// A [`Date`].
    Date,
    /// A [`Timestamp`].
    Timestamp,
    /// Bytes of text, of which only ASCII is used: what other characters are is up to the driver.
    Char,
    /// UTF-16.
    Wide,
    /// Bytes.
    Binary,
}

impl Form {
    /// `SQL_C_…`.
    pub(super) fn c_type(self) -> i16 {
        match self {
            Form::Bit => -7,
            Form::I16 => -15,
            Form::I32 => -16,
            Form::I64 => -25,
            Form::U64 => -27,
            Form::F32 => 7,
            Form::F64 => 8,
            Form::Date => 91,
            Form::Timestamp => 93,
            Form::Char => 1,
            Form::Wide => -8,
            Form::Binary => -2,
        }
    }

    /// Bytes of a value; `None` where they differ.
    pub fn width(self) -> Option<usize> {
        Some(match self {
            Form::Bit => 1,
            Form::I16 => 2,
            Form::I32 | Form::F32 => 4,
            Form::I64 | Form::U64 | Form::F64 => 8,
            Form::Date => size_of::<Date>(),
            Form::Timestamp => size_of::<Timestamp>(),
            Form::Char | Form::Wide | Form::Binary => return None,
        })
    }

    /// Bytes behind a value that end it.
    pub(super) fn terminator(self) -> usize {
        match self {
            Form::Char => 1,
            Form::Wide => 2,
            _ => 0,
        }
    }
}

/// Values of a column, one after the other.
#[derive(Clone, Copy, Debug)]
pub enum Values<'a> {
    /// [`Form::Bit`].
    Bit(&'a [u8]),
    /// [`Form::I16`].
    I16(&'a [i16]),
    /// [`Form::I32`].
    I32(&'a [i32]),
    /// [`Form::I64`].
    I64(&'a [i64]),
    /// [`Form::F32`].
    F32(&'a [f32]),
    /// [`Form::F64`].
    F64(&'a [f64]),
    /// [`Form::Date`].
    Date(&'a [Date]),
    /// [`Form::Timestamp`].
    Timestamp(&'a [Timestamp]),
    /// [`Form::Char`], each of so many bytes.
    Char(&'a [u8], usize),
    /// [`Form::Wide`], each of so many units.
    Wide(&'a [u16], usize),
    /// [`Form::Binary`], each of so many bytes.
    Binary(&'a [u8], usize),
}

impl Values<'_> {
    pub(super) fn form(&self) -> Form {
        match self {
            Values::Bit(_) => Form::Bit,
            Values::I16(_) => Form::I16,
            Values::I32(_) => Form::I32,
            Values::I64(_) => Form::I64,
            Values::F32(_) => Form::F32,
            Values::F64(_) => Form::F64,
            Values::Date(_) => Form::Date,
            Values::Timestamp(_) => Form::Timestamp,
            Values::Char(..) => Form::Char,
            Values::Wide(..) => Form::Wide,
            Values::Binary(..) => Form::Binary,
        }
    }

    /// How many there are.
    pub fn rows(&self) -> usize {
        match self {
            Values::Bit(v) => v.len(),
            Values::I16(v) => v.len(),
            Values::I32(v) => v.len(),
            Values::I64(v) => v.len(),
            Values::F32(v) => v.len(),
            Values::F64(v) => v.len(),
            Values::Date(v) => v.len(),
            Values::Timestamp(v) => v.len(),
            Values::Char(v, width) | Values::Binary(v, width) => v.len() / width.max(&1),
            Values::Wide(v, width) => v.len() / width.max(&1),
        }
    }

    /// Where they lie, and the bytes of one.
    pub(super) fn raw(&self) -> (Ptr, usize) {
        let width = self.form().width().unwrap_or(0);
        match self {
            Values::Bit(v) => (v.as_ptr().cast_mut().cast(), width),
            Values::I16(v) => (v.as_ptr().cast_mut().cast(), width),
            Values::I32(v) => (v.as_ptr().cast_mut().cast(), width),
            Values::I64(v) => (v.as_ptr().cast_mut().cast(), width),
            Values::F32(v) => (v.as_ptr().cast_mut().cast(), width),
            Values::F64(v) => (v.as_ptr().cast_mut().cast(), width),
            Values::Date(v) => (v.as_ptr().cast_mut().cast(), width),
            Values::Timestamp(v) => (v.as_ptr().cast_mut().cast(), width),
            Values::Char(v, bytes) | Values::Binary(v, bytes) => (v.as_ptr().cast_mut().cast(), *bytes),
            Values::Wide(v, units) => (v.as_ptr().cast_mut().cast(), units * size_of::<u16>()),
        }
    }
}

/// A parameter: a column of values.
#[derive(Clone, Copy, Debug)]
pub struct Parameter<'a> {
    /// The values.
    pub values: Values<'a>,
    /// The bytes of each, [`NULL_DATA`](super::NULL_DATA) for NULL.
    pub lengths: &'a [isize],
    /// What the database is told that they are.
    pub kind: SqlType,
}

/// Values of a column of a result.
#[derive(Clone, Copy, Debug)]
pub enum Fetched<'a> {
    /// [`Form::I64`].
    I64(&'a [i64]),
    /// [`Form::U64`].
    U64(&'a [u64]),
    /// [`Form::F64`].
    F64(&'a [f64]),
    /// [`Form::Date`].
    Date(&'a [Date]),
    /// [`Form::Timestamp`].
    Timestamp(&'a [Timestamp]),
    /// [`Form::Char`], [`Form::Wide`] or [`Form::Binary`]: bytes of so many each.
    Bytes(&'a [u8], usize),
    /// The value of the only row, whatever its length.
    Long(&'a [u8]),
}
