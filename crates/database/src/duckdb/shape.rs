//! The types of DuckDB, and the types of Arrow whose arrays hold their values as they are.

use std::sync::Arc;

use arrow::array::StringArray;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, TimeUnit};

use super::ffi::LogicalType;

/// `duckdb_type`s that something is decided by.
pub const BOOLEAN: u32 = 1;
pub const DECIMAL: u32 = 19;
pub const VARCHAR: u32 = 17;
pub const ENUM: u32 = 23;
pub const LIST: u32 = 24;
pub const STRUCT: u32 = 25;
pub const MAP: u32 = 26;
pub const ARRAY: u32 = 33;

/// What a column is, as far as it matters for reading and writing its values.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The type in the words of DuckDB.
    pub name: String,
    /// How values lie in vectors.
    pub form: Form,
    /// The type of Arrow that has the same values. Those that Arrow has nothing for are texts.
    pub natural: DataType,
}

/// How values lie in vectors.
#[derive(Clone, Debug)]
pub enum Form {
    /// A byte each.
    Boolean,
    /// As Arrow's arrays have them.
    Plain,
    /// Numbers of so many bytes.
    Decimal(usize),
    /// 128 bits; unsigned or not.
    Huge {
        unsigned: bool,
    },
    /// Texts; whether they must be JSON.
    Text {
        json: bool,
    },
    Blob,
    Bit,
    Uuid,
    Interval,
    TimeTz,
    /// Numbers of so many bytes, of these labels.
    Enum(usize, StringArray),
    List(Box<Shape>),
    /// Lists of one length.
    Array(Box<Shape>, usize),
    Struct(Vec<(String, Shape)>),
    Map(Box<Shape>, Box<Shape>),
    /// Only NULLs.
    Null,
    /// Nothing is known of them here.
    Other,
}

/// Bytes of a value of a type that is no DECIMAL nor ENUM; 0 where there are none, or nothing is known of them.
pub fn width(id: u32) -> usize {
    match id {
        BOOLEAN | 2 | 6 => 1,
        3 | 7 => 2,
        4 | 8 | 10 | 13 => 4,
        5 | 9 | 11 | 12 | 14 | 20 | 21 | 22 | 30 | 31 | 39 => 8,
        15 | 16 | VARCHAR | 18 | LIST | MAP | 27 | 29 | 32 => 16,
        _ => 0,
    }
}

/// Whether values are texts or bytes.
pub fn is_bytes(id: u32) -> bool {
    matches!(id, VARCHAR | 18 | 29)
}

impl Shape {
    /// Of a type of the library.
    pub fn of(logical: &LogicalType) -> Self {
        let plain = |name: &str, natural: DataType| Shape { name: name.into(), form: Form::Plain, natural };
        let text = |name: &str, form: Form| Shape { name: name.into(), form, natural: DataType::Utf8 };
        let stamp = |unit: TimeUnit| DataType::Timestamp(unit, None);
        match logical.id() {
            BOOLEAN => Shape { name: "BOOLEAN".into(), form: Form::Boolean, natural: DataType::Boolean },
            2 => plain("TINYINT", DataType::Int8),
            3 => plain("SMALLINT", DataType::Int16),
            4 => plain("INTEGER", DataType::Int32),
            5 => plain("BIGINT", DataType::Int64),
            6 => plain("UTINYINT", DataType::UInt8),
            7 => plain("USMALLINT", DataType::UInt16),
            8 => plain("UINTEGER", DataType::UInt32),
            9 => plain("UBIGINT", DataType::UInt64),
            10 => plain("FLOAT", DataType::Float32),
            11 => plain("DOUBLE", DataType::Float64),
            12 => plain("TIMESTAMP", stamp(TimeUnit::Microsecond)),
            13 => plain("DATE", DataType::Date32),
            14 => plain("TIME", DataType::Time64(TimeUnit::Microsecond)),
            15 => text("INTERVAL", Form::Interval),
            id @ (16 | 32) => {
                let (name, unsigned) = if id == 16 { ("HUGEINT", false) } else { ("UHUGEINT", true) };
                Shape { name: name.into(), form: Form::Huge { unsigned }, natural: DataType::Decimal128(38, 0) }
            }
            VARCHAR => {
                let alias = logical.alias();
                let json = alias.eq_ignore_ascii_case("JSON");
                text(if alias.is_empty() { "VARCHAR" } else { &alias }, Form::Text { json })
            }
            18 => Shape { name: "BLOB".into(), form: Form::Blob, natural: DataType::Binary },
            DECIMAL => {
                let (precision, scale) = logical.decimal();
                let natural = DataType::Decimal128(precision, scale as i8);
                Shape { name: format!("DECIMAL({precision}, {scale})"), form: Form::Decimal(logical.width()), natural }
            }
            20 => plain("TIMESTAMP_S", stamp(TimeUnit::Second)),
            21 => plain("TIMESTAMP_MS", stamp(TimeUnit::Millisecond)),
            22 => plain("TIMESTAMP_NS", stamp(TimeUnit::Nanosecond)),
            ENUM => text("ENUM", Form::Enum(logical.width(), StringArray::from(logical.labels()))),
            27 => text("UUID", Form::Uuid),
            29 => text("BIT", Form::Bit),
            30 => text("TIME WITH TIME ZONE", Form::TimeTz),
            31 => plain("TIMESTAMP WITH TIME ZONE", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
            36 => Shape { name: "NULL".into(), form: Form::Null, natural: DataType::Null },
            39 => plain("TIME_NS", DataType::Time64(TimeUnit::Nanosecond)),
            LIST | ARRAY | STRUCT | MAP => Self::nested(logical),
            other => Shape { name: format!("type {other} of duckdb.h"), form: Form::Other, natural: DataType::Null },
        }
    }

    fn nested(logical: &LogicalType) -> Self {
        let length = logical.length();
        let mut parts: Vec<(String, Shape)> = logical.parts().into_iter().map(|(name, part)| (name, Shape::of(&part))).collect();
        let field = |name: &str, part: &Shape, nullable: bool| -> FieldRef { Arc::new(Field::new(name, part.natural.clone(), nullable)) };
        match logical.id() {
            STRUCT => {
                let fields: Fields = parts.iter().map(|(name, part)| field(name, part, true)).collect();
                let names: Vec<String> = parts.iter().map(|(name, part)| format!("{name} {}", part.name)).collect();
                Shape { name: format!("STRUCT({})", names.join(", ")), form: Form::Struct(parts), natural: DataType::Struct(fields) }
            }
            MAP if parts.len() == 2 => {
                let (value, key) = (parts.remove(1).1, parts.remove(0).1);
                let entries = Fields::from(vec![field("key", &key, false), field("value", &value, true)]);
                let entries = Arc::new(Field::new("entries", DataType::Struct(entries), false));
                let name = format!("MAP({}, {})", key.name, value.name);
                Shape { name, form: Form::Map(Box::new(key), Box::new(value)), natural: DataType::Map(entries, false) }
            }
            _ if parts.len() == 1 => {
                let (_, item) = parts.remove(0);
                let natural = DataType::List(field(Field::LIST_FIELD_DEFAULT_NAME, &item, true));
                if length > 0 {
                    return Shape { name: format!("{}[{length}]", item.name), form: Form::Array(Box::new(item), length), natural };
                }
                Shape { name: format!("{}[]", item.name), form: Form::List(Box::new(item)), natural }
            }
            other => Shape { name: format!("type {other} of duckdb.h"), form: Form::Other, natural: DataType::Null },
        }
    }

    /// Whether values are read.
    pub fn is_readable(&self) -> bool {
        match &self.form {
            Form::Other => false,
            Form::List(item) | Form::Array(item, _) => item.is_readable(),
            Form::Map(key, value) => key.is_readable() && value.is_readable(),
            Form::Struct(fields) => fields.iter().all(|(_, field)| field.is_readable()),
            _ => true,
        }
    }

    /// Whether values go in as texts that DuckDB takes for what they say, because Arrow has nothing for them.
    pub fn takes_text(&self) -> bool {
        matches!(self.form, Form::Bit | Form::Uuid | Form::Interval | Form::TimeTz | Form::Enum(..))
    }

    /// Whether values are written in the form that vectors have.
    pub fn is_writable(&self) -> bool {
        match &self.form {
            Form::Boolean | Form::Plain | Form::Decimal(_) | Form::Huge { .. } | Form::Text { .. } | Form::Blob => true,
            Form::List(item) => item.is_writable(),
            Form::Map(key, value) => key.is_writable() && value.is_writable(),
            Form::Struct(fields) => fields.iter().all(|(_, field)| field.is_writable()),
            _ => false,
        }
    }
}
