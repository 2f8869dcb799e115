//! Columns of the database, and what values they hold.

use std::ops::RangeInclusive;

use arrow::datatypes::{DataType, TimeUnit};
use tidemill_block::value::fraction_digits;
use tidemill_format::types::plain_type;

use super::ffi::{Described, SqlType};
use super::system::System;

/// Codes of types (`sql.h`, `sqlext.h`, `sqlucode.h`, and SQL Server's own).
pub(super) mod code {
    pub const CHAR: i16 = 1;
    pub const NUMERIC: i16 = 2;
    pub const DECIMAL: i16 = 3;
    pub const INTEGER: i16 = 4;
    pub const SMALLINT: i16 = 5;
    pub const FLOAT: i16 = 6;
    pub const REAL: i16 = 7;
    pub const DOUBLE: i16 = 8;
    pub const VARCHAR: i16 = 12;
    pub const DATE: i16 = 91;
    pub const TIME: i16 = 92;
    pub const TIMESTAMP: i16 = 93;
    pub const LONGVARCHAR: i16 = -1;
    pub const BINARY: i16 = -2;
    pub const VARBINARY: i16 = -3;
    pub const LONGVARBINARY: i16 = -4;
    pub const BIGINT: i16 = -5;
    pub const TINYINT: i16 = -6;
    pub const BIT: i16 = -7;
    pub const WVARCHAR: i16 = -9;
    pub const WLONGVARCHAR: i16 = -10;
    pub const GUID: i16 = -11;
    pub const SS_TIME2: i16 = -154;
    pub const SS_TIMESTAMPOFFSET: i16 = -155;
}

/// Characters from which on a text is of a long type.
pub(super) const LONG_LENGTH: usize = 4000;

/// What values a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Boolean,
    /// Whole numbers of a range.
    Integer(i64, i64),
    /// Whole numbers of 64 bits without a sign.
    Unsigned,
    /// Digits, and those behind the point; `None`: as many as there are.
    Decimal(Option<(u8, u8)>),
    Real,
    Double,
    Text,
    /// `fixed`: shorter ones are filled up.
    Bytes {
        fixed: Option<usize>,
    },
    Date,
    /// Digits of the second, as of the others.
    Time(usize),
    Timestamp(usize),
    /// A timestamp with its distance from UTC.
    Offset(usize),
    Guid,
    /// Of SQL Server: a timestamp to the minute.
    Minutes,
}

/// A column.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub name: String,
    pub sql: SqlType,
    pub kind: Kind,
    /// The type in the database's words, for messages and people.
    pub type_text: String,
    pub nullable: bool,
    /// The size is a true bound of the values' lengths, in characters or bytes.
    pub bounded: bool,
}

impl Column {
    /// Of what the driver says.
    pub fn of(described: Described, system: System) -> Self {
        let Described { name, kind: sql, unsigned, type_name, nullable } = described;
        let word = type_name.to_ascii_lowercase();
        let whole = |signed: RangeInclusive<i64>, most: i64| {
            let range = if unsigned { 0..=most } else { signed };
            Kind::Integer(*range.start(), *range.end())
        };
        let digits = usize::try_from(sql.digits).unwrap_or(0);
        let kind = match sql.code {
            _ if matches!(word.as_str(), "bool" | "boolean") && system == System::Postgres => Kind::Boolean,
            code::BIT => Kind::Boolean,
            code::TINYINT => whole(i8::MIN.into()..=i8::MAX.into(), u8::MAX.into()),
            code::SMALLINT => whole(i16::MIN.into()..=i16::MAX.into(), u16::MAX.into()),
            code::INTEGER => whole(i32::MIN.into()..=i32::MAX.into(), u32::MAX.into()),
            code::BIGINT if unsigned => Kind::Unsigned,
            code::BIGINT => Kind::Integer(i64::MIN, i64::MAX),
            code::NUMERIC | code::DECIMAL => {
                let (precision, scale) = (u8::try_from(sql.size), u8::try_from(sql.digits));
                Kind::Decimal(precision.ok().zip(scale.ok()).filter(|(precision, scale)| *precision > 0 && scale <= precision))
            }
            code::REAL => Kind::Real,
            code::FLOAT | code::DOUBLE => Kind::Double,
            code::BINARY => Kind::Bytes { fixed: Some(sql.size) },
            code::VARBINARY | code::LONGVARBINARY => Kind::Bytes { fixed: None },
            // 9 to 11 are those of ODBC 2.
            code::DATE | 9 => Kind::Date,
            code::TIME | code::SS_TIME2 | 10 => Kind::Time(digits),
            code::TIMESTAMP | 11 => match word.as_str() {
                // Every third of a hundredth of a second: hundredths are exact.
                "datetime" if system == System::SqlServer => Kind::Timestamp(digits.min(2)),
                "smalldatetime" => Kind::Minutes,
                _ => Kind::Timestamp(digits),
            },
            code::SS_TIMESTAMPOFFSET => Kind::Offset(digits),
            code::GUID => Kind::Guid,
            _ => Kind::Text,
        };
        // PostgreSQL's driver makes sizes up where there are none.
        let bounded = system != System::Postgres && sql.size > 0 && !is_long(sql.code);
        let length = match kind {
            Kind::Text | Kind::Bytes { .. } if bounded => format!("({})", sql.size),
            Kind::Decimal(Some((precision, scale))) => format!("({precision}, {scale})"),
            _ => String::new(),
        };
        let type_text = if word.is_empty() { format!("a type of code {}", sql.code) } else { format!("{word}{length}") };
        Column { name, sql, kind, type_text, nullable, bounded }
    }

    /// PostgreSQL's own words for the type, which say more than the driver.
    pub fn named(&mut self, type_text: &str) {
        if type_text == "numeric" {
            self.kind = Kind::Decimal(None);
        }
        self.type_text = type_text.to_string();
    }

    /// A parameter that is no column's: of the type that values have by themselves.
    pub fn natural(name: &str, data_type: &DataType) -> Self {
        let plain = plain_type(data_type);
        let sql = |code: i16, size: usize, digits: usize| SqlType { code, size, digits: digits as i16 };
        let (sql, kind) = match &plain {
            DataType::Boolean => (sql(code::BIT, 1, 0), Kind::Boolean),
            DataType::Int8 | DataType::Int16 => (sql(code::SMALLINT, 5, 0), Kind::Integer(i16::MIN.into(), i16::MAX.into())),
            DataType::Int32 => (sql(code::INTEGER, 10, 0), Kind::Integer(i32::MIN.into(), i32::MAX.into())),
            DataType::Int64 => (sql(code::BIGINT, 19, 0), Kind::Integer(i64::MIN, i64::MAX)),
            DataType::Float32 => (sql(code::REAL, 7, 0), Kind::Real),
            DataType::Float64 => (sql(code::DOUBLE, 15, 0), Kind::Double),
            DataType::Decimal128(precision, scale) => {
                (sql(code::DECIMAL, (*precision).into(), usize::try_from(*scale).unwrap_or(0)), Kind::Decimal(None))
            }
            DataType::Binary => (sql(code::VARBINARY, 0, 0), Kind::Bytes { fixed: None }),
            DataType::Date32 => (sql(code::DATE, 10, 0), Kind::Date),
            DataType::Time32(_) => (sql(code::TIME, 12, 3), Kind::Time(3)),
            DataType::Timestamp(unit, _) => {
                let digits = fraction_digits(if *unit == TimeUnit::Second { TimeUnit::Millisecond } else { *unit });
                (sql(code::TIMESTAMP, 20 + digits, digits), Kind::Timestamp(digits))
            }
            _ => (sql(code::WVARCHAR, 0, 0), Kind::Text),
        };
        Column { name: name.into(), sql, kind, type_text: "a parameter".into(), nullable: true, bounded: false }
    }

    /// A parameter that is compared with this column: of its own type, unless the comparison needs the column's.
    pub fn asked(&self, data_type: &DataType) -> Self {
        match self.kind {
            Kind::Guid | Kind::Boolean | Kind::Offset(_) => Column { nullable: true, ..self.clone() },
            _ => Column::natural(&self.name, data_type),
        }
    }

    /// A parameter of Db2 with its type around it, which it wants in `SELECT ?`; `None` for long ones.
    pub fn db2_cast(&self) -> Option<String> {
        let SqlType { code, size, digits } = self.sql;
        let text = match code {
            code::SMALLINT => "SMALLINT".to_string(),
            code::INTEGER => "INTEGER".into(),
            code::BIGINT => "BIGINT".into(),
            code::REAL => "REAL".into(),
            code::FLOAT | code::DOUBLE => "DOUBLE".into(),
            code::NUMERIC | code::DECIMAL => format!("DECIMAL({size}, {digits})"),
            code::CHAR | code::VARCHAR if size > 0 => format!("VARCHAR({size})"),
            code::DATE => "DATE".into(),
            code::TIME => "TIME".into(),
            code::TIMESTAMP => format!("TIMESTAMP({digits})"),
            _ => return None,
        };
        Some(format!("CAST(? AS {text})"))
    }
}

/// Whether a type is one of the long ones.
pub(super) fn is_long(code: i16) -> bool {
    matches!(code, code::LONGVARCHAR | code::WLONGVARCHAR | code::LONGVARBINARY)
}
