//! SQL as MySQL and MariaDB want it: names, literals, the types of `CREATE TABLE`.

use arrow::datatypes::{DataType, Field, TimeUnit};
use tidemill_format::types::{plain_type, type_name};

use super::nested::has_decimals;
use crate::driver::{DbError, Dialect, decimal_of_mysql};

/// The dialect of MySQL and MariaDB.
pub(super) struct MysqlDialect;

/// The length of a column of text or bytes in a key, characters or bytes. An index entry holds 3,072 bytes, so
/// that keys of three such columns fit with 4 bytes a character.
const KEY_LENGTH: usize = 255;

impl Dialect for MysqlDialect {
    fn quote(&self, name: &str) -> String {
        name.split('.').map(quoted).collect::<Vec<_>>().join(".")
    }

    fn quote_column(&self, name: &str) -> String {
        quoted(name)
    }

    fn column_type(&self, field: &Field, key: bool) -> Result<String, DbError> {
        let digits = |unit: &TimeUnit| match unit {
            TimeUnit::Second => "",
            TimeUnit::Millisecond => "(3)",
            // There are no nanoseconds; a value that has some is refused when it is written.
            TimeUnit::Microsecond | TimeUnit::Nanosecond => "(6)",
        };
        Ok(match plain_type(field.data_type()) {
            DataType::Boolean => "BOOLEAN".to_string(),
            DataType::Int8 => "TINYINT".into(),
            DataType::Int16 => "SMALLINT".into(),
            DataType::Int32 => "INT".into(),
            DataType::Int64 => "BIGINT".into(),
            DataType::Float32 => "FLOAT".into(),
            DataType::Float64 => "DOUBLE".into(),
            DataType::Decimal128(precision, scale) => format!("DECIMAL({precision},{})", scale.max(0)),
            // Keys are equal where their bytes are: not those that differ in case.
            DataType::Utf8 if key => format!("VARCHAR({KEY_LENGTH}) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"),
            DataType::Utf8 => "LONGTEXT".into(),
            DataType::Binary if key => format!("VARBINARY({KEY_LENGTH})"),
            DataType::Binary => "LONGBLOB".into(),
            DataType::Date32 => "DATE".into(),
            DataType::Time32(_) => "TIME(3)".into(),
            // TIMESTAMP of MySQL ends in 2038; a TIMESTAMP_LTZ is written in UTC.
            DataType::Timestamp(unit, _) => format!("DATETIME{}", digits(&unit)),
            // JSON of MySQL keeps numbers as doubles; text keeps what was written.
            nested @ (DataType::List(_) | DataType::Struct(_) | DataType::Map(..)) if !key => {
                let text = if has_decimals(&nested) { "LONGTEXT" } else { "JSON" };
                text.into()
            }
            other => {
                let what = if key { "a primary key cannot be of" } else { "there is no column type for" };
                return Err(DbError::fatal(format!("column '{}': in MySQL {what} {}", field.name(), type_name(&other))));
            }
        })
    }

    fn literal(&self, text: &str, number: bool) -> String {
        if number { text.to_string() } else { format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''")) }
    }

    fn table_suffix(&self) -> &'static str {
        " ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"
    }

    fn decimal_cast(&self, data_type: &DataType) -> Option<&'static str> {
        decimal_of_mysql(data_type)
    }
}

/// One name in backticks; a dot in it stays a dot.
pub(super) fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// Text as its bytes in UTF-8, whatever its collation is; an ENUM or SET as those of its labels, not as their numbers. The column is quoted.
pub(super) fn bytes_of_text(column: &str) -> String {
    format!("CAST(CONVERT({column} USING utf8mb4) AS BINARY)")
}

/// Names in backticks with commas between them, each behind `prefix` (`k.`).
pub(super) fn quoted_list<'a>(names: impl IntoIterator<Item = &'a str>, prefix: &str) -> String {
    let mut text = String::new();
    for name in names {
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push_str(prefix);
        text.push_str(&quoted(name));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_literals_are_quoted() {
        assert_eq!(MysqlDialect.quote("shop.or`ders"), "`shop`.`or``ders`");
        assert_eq!(quoted("a.b"), "`a.b`");
        assert_eq!(quoted_list(["a", "b"], "k."), "k.`a`, k.`b`");
        assert_eq!(MysqlDialect.literal("it's \\ here", false), "'it''s \\\\ here'");
        assert_eq!(MysqlDialect.literal("-5", true), "-5");
    }

    #[test]
    fn columns_have_types() {
        #[track_caller]
        fn check(data_type: DataType, key: bool, expect: &str) {
            assert_eq!(MysqlDialect.column_type(&Field::new("c", data_type, true), key).unwrap(), expect);
        }
        check(DataType::Int64, false, "BIGINT");
        check(DataType::Decimal128(38, 10), false, "DECIMAL(38,10)");
        check(DataType::Utf8, true, "VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin");
        check(DataType::Utf8, false, "LONGTEXT");
        check(DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())), false, "DATETIME(3)");
        check(DataType::Timestamp(TimeUnit::Nanosecond, None), false, "DATETIME(6)");
        let nested = DataType::new_list(DataType::Int32, true);
        check(nested.clone(), false, "JSON");
        let error = MysqlDialect.column_type(&Field::new("c", nested, true), true).unwrap_err();
        assert!(error.message.contains("'c'") && error.message.contains("ARRAY<INT>"), "{}", error.message);
    }
}
