//! The types of Oracle's columns, as the server describes them with a result.
//!
//! What does not live here: which type a new column gets (`dialect`), values (`encode`, `read`).

use oracledb::Metadata;

/// Digits that every `NUMBER` holds.
const DIGITS_MAX: u8 = 38;

/// What a column holds, as far as writing asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `digits` in all; so many of them behind the point (in front of it, if negative), or anywhere if `scale` is `None`.
    Number {
        digits: u8,
        scale: Option<i8>,
    },
    BinaryFloat,
    BinaryDouble,
    /// From version 23 on.
    Boolean,
    /// `VARCHAR2` and `NVARCHAR2`.
    VarChar,
    Char,
    NChar,
    /// `CLOB` and `NCLOB`.
    Clob,
    Raw,
    Blob,
    /// With a time of day, to the second.
    Date,
    /// Digits of a second's fraction, as in the next.
    Timestamp(u8),
    /// With a time zone, or in that of the session.
    Zoned(u8),
    /// `LONG`, `JSON`, `XMLTYPE`, intervals, addresses of rows, objects: read, if at all, and not written.
    Other,
}

impl Kind {
    /// Of the type's name in the driver, with the precision and scale that the server gives.
    pub fn of(name: &str, precision: u8, scale: i8) -> Kind {
        match name {
            "DB_TYPE_NUMBER" => match (precision, scale) {
                (0, _) => Kind::Number { digits: DIGITS_MAX, scale: None },
                // FLOAT, whose precision is in bits.
                (bits, -127) => {
                    Kind::Number { digits: (u32::from(bits) * 30_103 / 100_000).clamp(1, DIGITS_MAX.into()) as u8, scale: None }
                }
                (digits, scale) => Kind::Number { digits, scale: Some(scale) },
            },
            "DB_TYPE_BINARY_FLOAT" => Kind::BinaryFloat,
            "DB_TYPE_BINARY_DOUBLE" => Kind::BinaryDouble,
            "DB_TYPE_BOOLEAN" => Kind::Boolean,
            "DB_TYPE_VARCHAR" | "DB_TYPE_NVARCHAR" => Kind::VarChar,
            "DB_TYPE_CHAR" => Kind::Char,
            "DB_TYPE_NCHAR" => Kind::NChar,
            "DB_TYPE_CLOB" | "DB_TYPE_NCLOB" => Kind::Clob,
            "DB_TYPE_RAW" => Kind::Raw,
            "DB_TYPE_BLOB" => Kind::Blob,
            "DB_TYPE_DATE" => Kind::Date,
            "DB_TYPE_TIMESTAMP" => Kind::Timestamp(scale.clamp(0, 9) as u8),
            "DB_TYPE_TIMESTAMP_TZ" | "DB_TYPE_TIMESTAMP_LTZ" => Kind::Zoned(scale.clamp(0, 9) as u8),
            _ => Kind::Other,
        }
    }

    /// Whether it is text or bytes of any length, which are not compared.
    pub fn is_lob(self) -> bool {
        matches!(self, Kind::Clob | Kind::Blob)
    }
}

/// A column of a table.
#[derive(Clone, Debug)]
pub(super) struct TableColumn {
    pub name: String,
    pub kind: Kind,
    /// The type in SQL.
    pub type_text: String,
    pub nullable: bool,
}

impl TableColumn {
    /// Of a column that the server describes.
    pub fn of(column: &Metadata) -> Self {
        let kind = Kind::of(column.db_type().name(), column.precision(), column.scale());
        TableColumn { name: column.name().to_string(), kind, type_text: column.data_type(), nullable: column.nullable() }
    }

    /// A column that a parameter is made for.
    pub fn parameter(name: &str, kind: Kind) -> Self {
        TableColumn { name: name.to_string(), kind, type_text: "a parameter".into(), nullable: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_known_by_name() {
        #[track_caller]
        fn check(name: &str, precision: u8, scale: i8, expect: Kind) {
            assert_eq!(Kind::of(&format!("DB_TYPE_{name}"), precision, scale), expect);
        }
        check("NUMBER", 0, -127, Kind::Number { digits: 38, scale: None });
        check("NUMBER", 10, 2, Kind::Number { digits: 10, scale: Some(2) });
        check("NUMBER", 5, -2, Kind::Number { digits: 5, scale: Some(-2) });
        check("NUMBER", 126, -127, Kind::Number { digits: 37, scale: None });
        check("NUMBER", 63, -127, Kind::Number { digits: 18, scale: None });
        check("NVARCHAR", 0, 0, Kind::VarChar);
        check("NCLOB", 0, 0, Kind::Clob);
        check("TIMESTAMP", 0, 6, Kind::Timestamp(6));
        check("TIMESTAMP_LTZ", 0, 3, Kind::Zoned(3));
        check("XMLTYPE", 0, 0, Kind::Other);
        assert_eq!(Kind::of(oracledb::DB_TYPE_BLOB.name(), 0, 0), Kind::Blob);
        assert_eq!(Kind::of(oracledb::DB_TYPE_TIMESTAMP_TZ.name(), 0, 9), Kind::Zoned(9));
    }
}
