//! The types of PostgreSQL, and which of them a column of the job goes into.
//!
//! A [`Form`] is how a type looks in binary. Types without one here (intervals, addresses, ranges, types of
//! extensions) travel as text and are cast by the server.

use std::time::Duration;

use arrow::datatypes::{DataType, Field, TimeUnit};
use tidemill_format::types::type_name;
use tokio_postgres::types::{Kind, Type};

use crate::driver::{DbError, Dialect};

/// How a type looks in binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    Numeric,
    /// `text`, `varchar`, `name`, `xml`, enumerations.
    Text,
    /// `char(n)`: text with blanks behind it, which are no part of the value.
    Char,
    Bytea,
    Date,
    Time,
    Timestamp,
    TimestampTz,
    Uuid,
    Json,
    Jsonb,
    /// `bit` and `bit varying`.
    Bit,
    /// Anything else: as text, cast by the server.
    Other,
}

/// A type: its form, or that of its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub form: Form,
    /// The object identifier of the type of the elements, if it is an array.
    pub element: Option<u32>,
    /// The modifier of the type: length, precision and scale; -1 if there is none.
    pub modifier: i32,
}

impl Form {
    /// The form of a type with this object identifier that is neither array nor enumeration.
    pub fn of(oid: u32) -> Form {
        match oid {
            16 => Form::Bool,
            21 => Form::Int2,
            23 => Form::Int4,
            20 => Form::Int8,
            700 => Form::Float4,
            701 => Form::Float8,
            1700 => Form::Numeric,
            19 | 25 | 142 | 1043 => Form::Text,
            1042 => Form::Char,
            17 => Form::Bytea,
            1082 => Form::Date,
            1083 => Form::Time,
            1114 => Form::Timestamp,
            1184 => Form::TimestampTz,
            2950 => Form::Uuid,
            114 => Form::Json,
            3802 => Form::Jsonb,
            1560 | 1562 => Form::Bit,
            _ => Form::Other,
        }
    }
}

impl Shape {
    /// The shape of a column of a result or of a parameter.
    pub fn of(r#type: &Type, modifier: i32) -> Shape {
        let scalar = |t: &Type| match t.kind() {
            Kind::Enum(_) => Form::Text,
            Kind::Domain(base) => Form::of(base.oid()),
            _ => Form::of(t.oid()),
        };
        match r#type.kind() {
            Kind::Array(item) => Shape { form: scalar(item), element: Some(item.oid()), modifier },
            _ => Shape { form: scalar(r#type), element: None, modifier },
        }
    }

    /// The shape of an element.
    pub fn item(self) -> Shape {
        Shape { element: None, ..self }
    }

    /// Precision and scale of a `numeric` that has them. (The scale is 11 bits with a sign.)
    pub fn numeric(self) -> Option<(i32, i32)> {
        let packed = self.modifier.checked_sub(4).filter(|n| *n >= 0)?;
        Some((packed >> 16, ((packed & 0x7FF) ^ 1024) - 1024))
    }

    /// The most characters of a `varchar(n)` or `char(n)`.
    pub fn characters(self) -> Option<usize> {
        usize::try_from(self.modifier.checked_sub(4)?).ok().filter(|n| *n > 0 && matches!(self.form, Form::Text | Form::Char))
    }

    /// Digits of a second's fraction that times of this type keep.
    pub fn digits(self) -> u32 {
        u32::try_from(self.modifier).map_or(6, |n| n.min(6))
    }
}

/// What SQL calls a type of a result; types that the standard does not name keep PostgreSQL's name.
pub(super) fn sql_name(r#type: &Type) -> String {
    if let Kind::Array(item) = r#type.kind() {
        return format!("{}[]", sql_name(item));
    }
    let name = match r#type.oid() {
        16 => "boolean",
        21 => "smallint",
        23 => "integer",
        20 => "bigint",
        700 => "real",
        701 => "double precision",
        1083 => "time without time zone",
        1114 => "timestamp without time zone",
        1184 => "timestamp with time zone",
        _ => r#type.name(),
    };
    name.to_string()
}

/// The SQL of PostgreSQL.
pub(super) struct PostgresDialect;

impl Dialect for PostgresDialect {
    fn quote(&self, name: &str) -> String {
        name.split('.').map(quote_part).collect::<Vec<_>>().join(".")
    }

    fn column_type(&self, field: &Field, _key: bool) -> Result<String, DbError> {
        column_type(field.data_type()).ok_or_else(|| {
            let kind = type_name(field.data_type());
            DbError::fatal(format!("column '{}': PostgreSQL has no type for {kind}; cast it to one that it has", field.name()))
        })
    }

    /// Room on each page for some new versions of its rows: they need no entries in indexes, and their log is that of one
    /// page instead of three.
    fn for_updates(&self) -> &'static str {
        " WITH (fillfactor = 90)"
    }

    fn limit_lock_waits(&self, limit: Duration) -> Option<String> {
        Some(format!("SET LOCAL lock_timeout = {}", limit.as_millis().max(1)))
    }

    fn placeholder(&self, number: usize) -> String {
        format!("${number}")
    }
}

/// One part of a name, in quotes.
pub(super) fn quote_part(part: &str) -> String {
    format!("\"{}\"", part.replace('"', "\"\""))
}

/// Text as a literal. (Sessions have `standard_conforming_strings` on, so a backslash is a backslash.)
pub(super) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The type that `CREATE TABLE` gives a column.
fn column_type(data_type: &DataType) -> Option<String> {
    let name = match data_type {
        DataType::Boolean => "BOOLEAN",
        DataType::Int8 | DataType::Int16 | DataType::UInt8 => "SMALLINT",
        DataType::Int32 | DataType::UInt16 => "INTEGER",
        DataType::Int64 | DataType::UInt32 => "BIGINT",
        DataType::UInt64 => "NUMERIC(20, 0)",
        DataType::Float16 | DataType::Float32 => "REAL",
        DataType::Float64 => "DOUBLE PRECISION",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => "TEXT",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => "BYTEA",
        DataType::Date32 | DataType::Date64 => "DATE",
        DataType::Time32(unit) | DataType::Time64(unit) => return Some(format!("TIME({})", digits(*unit))),
        DataType::Timestamp(unit, None) => return Some(format!("TIMESTAMP({})", digits(*unit))),
        DataType::Timestamp(unit, Some(_)) => return Some(format!("TIMESTAMP({}) WITH TIME ZONE", digits(*unit))),
        DataType::Decimal32(p, s) | DataType::Decimal64(p, s) | DataType::Decimal128(p, s) if *s >= 0 => {
            return Some(format!("NUMERIC({p}, {s})"));
        }
        DataType::Dictionary(_, value) => return column_type(value),
        DataType::List(item) if !nested(item.data_type()) => return column_type(item.data_type()).map(|t| format!("{t}[]")),
        DataType::List(_) | DataType::Struct(_) | DataType::Map(..) => "JSONB",
        _ => return None,
    };
    Some(name.into())
}

/// Whether values of a type have parts of their own: those go into JSON.
pub(super) fn nested(data_type: &DataType) -> bool {
    matches!(data_type, DataType::List(_) | DataType::Struct(_) | DataType::Map(..))
}

/// Digits of a second's fraction that a unit needs, as far as PostgreSQL has them.
fn digits(unit: TimeUnit) -> usize {
    tidemill_block::value::fraction_digits(unit).min(6)
}
