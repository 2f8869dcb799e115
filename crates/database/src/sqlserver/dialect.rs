//! SQL as SQL Server wants it: names, the types of `CREATE TABLE`, locks.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, ArrayRef, AsArray, StringArray, TimestampMicrosecondArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int64Type, TimeUnit, TimestampMillisecondType};
use tidemill_block::value::write_timestamp;
use tidemill_format::types::{plain_type, type_name};

use super::encode::DAYS_TO_1970;
use crate::driver::{DbError, Dialect, behind_one_by_one, up_to_the_next};

/// The dialect of SQL Server.
pub(super) struct SqlServerDialect;

/// The length of a column of text or bytes in a key, characters or bytes: the key of a clustered index holds 900
/// bytes.
const KEY_LENGTH: usize = 255;
/// The longest `varchar` that is not `max`, bytes.
const VARCHAR_BYTES_MAX: usize = 8000;
/// The first moment that there is, microseconds since 1970.
const FIRST_MOMENT: i64 = -DAYS_TO_1970 * 86_400_000_000;

impl Dialect for SqlServerDialect {
    fn quote(&self, name: &str) -> String {
        name.split('.').map(quoted).collect::<Vec<_>>().join(".")
    }

    fn quote_column(&self, name: &str) -> String {
        quoted(name)
    }

    fn column_type(&self, field: &Field, key: bool) -> Result<String, DbError> {
        let digits = |unit: TimeUnit| match unit {
            TimeUnit::Second => 0,
            TimeUnit::Millisecond => 3,
            TimeUnit::Microsecond => 6,
            // There are no nanoseconds; a value that has some is refused when it is written.
            TimeUnit::Nanosecond => 7,
        };
        Ok(match plain_type(field.data_type()) {
            DataType::Boolean => "BIT".to_string(),
            // TINYINT has no sign there.
            DataType::Int8 | DataType::Int16 => "SMALLINT".into(),
            DataType::Int32 => "INT".into(),
            DataType::Int64 => "BIGINT".into(),
            DataType::Float32 => "REAL".into(),
            DataType::Float64 => "FLOAT".into(),
            DataType::Decimal128(precision, scale) => format!("DECIMAL({precision},{})", scale.max(0)),
            // Keys are equal where their code units are: not those that differ in case.
            DataType::Utf8 if key => format!("NVARCHAR({KEY_LENGTH}) COLLATE Latin1_General_100_BIN2"),
            DataType::Utf8 => "NVARCHAR(MAX)".into(),
            DataType::Binary if key => format!("VARBINARY({KEY_LENGTH})"),
            DataType::Binary => "VARBINARY(MAX)".into(),
            DataType::Date32 => "DATE".into(),
            DataType::Time32(_) => "TIME(3)".into(),
            DataType::Timestamp(unit, None) => format!("DATETIME2({})", digits(unit)),
            DataType::Timestamp(unit, Some(_)) => format!("DATETIMEOFFSET({})", digits(unit)),
            // Text keeps what was written.
            DataType::List(_) | DataType::Struct(_) | DataType::Map(..) if !key => "NVARCHAR(MAX)".into(),
            other => {
                let what = if key { "a primary key cannot be of" } else { "there is no column type for" };
                return Err(DbError::fatal(format!("column '{}': in SQL Server {what} {}", field.name(), type_name(&other))));
            }
        })
    }

    fn literal(&self, text: &str, number: bool) -> String {
        if number { text.to_string() } else { literal(text) }
    }

    fn create_table(&self, name: &str, columns: &str) -> String {
        format!("IF OBJECT_ID({}) IS NULL CREATE TABLE {name} ({columns})", literal(name))
    }

    fn behind(&self, columns: &[String], values: &[String]) -> String {
        behind_one_by_one(columns, values)
    }

    fn position(&self, value: ArrayRef) -> Result<(ArrayRef, Option<&'static str>), DbError> {
        Ok(match value.data_type() {
            // A parameter of type `datetime2` would make a `datetime` of 3 ms one of 3.3333 ms, which is behind itself; text
            // becomes what the column is.
            DataType::Timestamp(unit, None) => (moments(&value, *unit)?, None),
            // One of `nvarchar` would have a `varchar` compared by the rules of Unicode, which are not those that a collation such
            // as SQL_Latin1_General_CP1_CI_AS sorts it by. What is the same in all code pages does without.
            DataType::Utf8 if value.as_string::<i32>().iter().flatten().all(is_plain) => (value, Some("varchar(8000)")),
            _ => (value, None),
        })
    }

    fn range(&self, lower: ArrayRef, upper: ArrayRef) -> Result<(ArrayRef, &'static str, ArrayRef), DbError> {
        let DataType::Timestamp(TimeUnit::Millisecond, None) = lower.data_type() else { return up_to_the_next(lower, upper) };
        // A `datetime` of 3 ms is compared as one of 3.3333 ms, and one of 7 ms as one of 6.6667 ms: between the end of a part and the
        // beginning of the next. So both reach half way.
        let edge = |value: &ArrayRef, away: i64| -> ArrayRef {
            let ms = value.as_primitive::<TimestampMillisecondType>().value(0);
            let micros = ms.saturating_mul(1000).saturating_add(away).max(FIRST_MOMENT);
            Arc::new(TimestampMicrosecondArray::from(vec![micros]))
        };
        Ok((edge(&lower, -500), "<", edge(&upper, 500)))
    }

    fn limit_lock_waits(&self, limit: Duration) -> Option<String> {
        // Of the session; the next transaction sets it back.
        Some(format!("SET LOCK_TIMEOUT {}", limit.as_millis().max(1)))
    }

    fn lock_rows(&self) -> &'static str {
        ""
    }

    fn lock_hint(&self) -> &'static str {
        " WITH (UPDLOCK, ROWLOCK)"
    }

    fn placeholder(&self, number: usize) -> String {
        format!("@P{number}")
    }
}

/// One name in brackets; a dot in it stays a dot.
pub(super) fn quoted(name: &str) -> String {
    format!("[{}]", name.replace(']', "]]"))
}

/// Names in brackets with commas between them, each behind `prefix` (`s.`).
pub(super) fn quoted_list<'a>(names: impl IntoIterator<Item = &'a str>, prefix: &str) -> String {
    names.into_iter().map(|name| format!("{prefix}{}", quoted(name))).collect::<Vec<_>>().join(", ")
}

/// Whether a text is the same as a `varchar` of any code page.
fn is_plain(text: &str) -> bool {
    text.is_ascii() && text.len() <= VARCHAR_BYTES_MAX
}

/// Timestamps as text that becomes `datetime` as well as `datetime2`, whatever the language of the session is: the former takes
/// three digits behind the second, and columns that have more are the latter.
fn moments(values: &ArrayRef, unit: TimeUnit) -> Result<ArrayRef, DbError> {
    let units = cast(values, &DataType::Int64)?;
    let text = |units: i64| {
        let mut text = Vec::with_capacity(32);
        write_timestamp(&mut text, units, unit, 3);
        String::from_utf8_lossy(&text).replace(' ', "T")
    };
    let texts: StringArray = units.as_primitive::<Int64Type>().iter().map(|units| units.map(&text)).collect();
    Ok(Arc::new(texts))
}

/// Text as a literal.
fn literal(text: &str) -> String {
    format!("N'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use arrow::array::{TimestampMillisecondArray, TimestampNanosecondArray};

    use super::*;

    #[test]
    fn names_and_literals_are_quoted() {
        assert_eq!(SqlServerDialect.quote("dbo.or]ders"), "[dbo].[or]]ders]");
        assert_eq!(SqlServerDialect.quote_column("a.b"), "[a.b]");
        assert_eq!(quoted_list(["a", "b"], "s."), "s.[a], s.[b]");
        assert_eq!(SqlServerDialect.literal("it's", false), "N'it''s'");
        assert_eq!(SqlServerDialect.literal("-5", true), "-5");
    }

    #[test]
    fn columns_have_types() {
        #[track_caller]
        fn check(data_type: DataType, key: bool, expect: &str) {
            assert_eq!(SqlServerDialect.column_type(&Field::new("c", data_type, true), key).unwrap(), expect);
        }
        check(DataType::Int8, false, "SMALLINT");
        check(DataType::Decimal128(38, 38), false, "DECIMAL(38,38)");
        check(DataType::UInt64, false, "DECIMAL(20,0)");
        check(DataType::Utf8, true, "NVARCHAR(255) COLLATE Latin1_General_100_BIN2");
        check(DataType::Utf8, false, "NVARCHAR(MAX)");
        check(DataType::Timestamp(TimeUnit::Nanosecond, None), false, "DATETIME2(7)");
        check(DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())), false, "DATETIMEOFFSET(3)");
        let nested = DataType::new_list(DataType::Int32, true);
        check(nested.clone(), false, "NVARCHAR(MAX)");
        let error = SqlServerDialect.column_type(&Field::new("c", nested, true), true).unwrap_err();
        assert!(error.message.contains("'c'") && error.message.contains("ARRAY<INT>"), "{}", error.message);
    }

    #[test]
    fn tables_are_created_if_they_are_missing() {
        let sql = crate::types::create_table(&SqlServerDialect, &crate::types::marks()).unwrap();
        assert_eq!(
            sql,
            "IF OBJECT_ID(N'[tidemill_checkpoints]') IS NULL CREATE TABLE [tidemill_checkpoints] \
             ([sink] NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL, [shard] INT NOT NULL, [epoch] BIGINT NOT NULL, \
             PRIMARY KEY ([sink], [shard]))"
        );
    }

    /// Reading went on behind a `datetime` of 7 ms by `>= '….007'` as `datetime2`, which the same value, then 6.6667 ms, is not: the
    /// row was passed over, and with it another that had not been read.
    #[test]
    fn where_reading_goes_on() {
        #[track_caller]
        fn check(value: impl Array + 'static, expect: &str, cast_to: Option<&str>) {
            let (value, found) = SqlServerDialect.position(Arc::new(value)).unwrap();
            assert_eq!((value.as_string::<i32>().value(0), found), (expect, cast_to));
        }
        check(TimestampMillisecondArray::from(vec![7]), "1970-01-01T00:00:00.007", None);
        check(TimestampMicrosecondArray::from(vec![1_500_000]), "1970-01-01T00:00:01.500", None);
        check(TimestampMicrosecondArray::from(vec![-1]), "1969-12-31T23:59:59.999999", None);
        check(TimestampNanosecondArray::from(vec![100]), "1970-01-01T00:00:00.0000001", None);
        check(StringArray::from(vec!["a-c"]), "a-c", Some("varchar(8000)"));
        check(StringArray::from(vec!["ä"]), "ä", None);
        let zoned: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![7]).with_timezone("UTC"));
        assert_eq!(SqlServerDialect.position(zoned.clone()).unwrap(), (zoned, None));
    }

    /// A `datetime` of 7 ms was in no part of a table that was divided behind 6 ms.
    #[test]
    fn parts_reach_half_way_to_each_other() {
        let ms = |v: i64| -> ArrayRef { Arc::new(TimestampMillisecondArray::from(vec![v])) };
        let micros = |v: i64| -> ArrayRef { Arc::new(TimestampMicrosecondArray::from(vec![v])) };
        assert_eq!(SqlServerDialect.range(ms(3), ms(6)).unwrap(), (micros(2_500), "<", micros(6_500)));
        let (first, _, _) = SqlServerDialect.range(ms(FIRST_MOMENT / 1000), ms(0)).unwrap();
        assert_eq!(first.as_ref(), micros(FIRST_MOMENT).as_ref());
        assert_eq!(SqlServerDialect.range(micros(3), micros(6)).unwrap(), (micros(3), "<", micros(7)));
    }
}
