//! SQL as Oracle wants it: names, the types of `CREATE TABLE`, locks.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, ArrayRef, AsArray, Date32Array, Int64Array, TimestampMicrosecondArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Date32Type, Field, Int64Type};
use tidemill_block::value::fraction_digits;
use tidemill_format::types::{plain_type, type_name};

use crate::driver::{DbError, Dialect, behind_one_by_one, up_to_the_next};

/// The length of a column of text or bytes in a key, characters or bytes.
const KEY_LENGTH: usize = 255;

/// The last day that a `DATE` may be, 9999-12-31, since 1970.
const LAST_DAY: i32 = 2_932_896;
const MICROS_OF_DAY: i64 = 86_400_000_000;

/// The beginning of what [`Dialect::limit_lock_waits`] gives; milliseconds follow. The server has no such setting: the
/// connection takes it for itself, and lets no call take longer.
pub(super) const CALL_LIMIT: &str = "-- calls end after milliseconds ";

/// The dialect of Oracle.
pub(super) struct OracleDialect {
    /// Names stay as they are written.
    exact: bool,
}

/// The dialect; `exact`: names stay as they are written, while otherwise those that need no quotes are in upper case, as
/// the database has them.
pub(super) fn dialect(exact: bool) -> &'static OracleDialect {
    if exact { &OracleDialect { exact: true } } else { &OracleDialect { exact: false } }
}

impl OracleDialect {
    /// A name as the database has it.
    fn folded(&self, name: &str) -> String {
        let mut chars = name.chars();
        let simple = chars.next().is_some_and(|c| c.is_ascii_alphabetic())
            && chars.all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '#'));
        if simple && !self.exact { name.to_ascii_uppercase() } else { name.to_string() }
    }
}

/// A name as the database has it, in quotes.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

impl Dialect for OracleDialect {
    fn quote(&self, name: &str) -> String {
        // Parts that are in quotes are meant as they are written, dots included.
        let (mut parts, mut inside) = (vec![String::new()], false);
        for c in name.chars() {
            inside ^= c == '"';
            if c == '.' && !inside {
                parts.push(String::new());
            } else if let Some(part) = parts.last_mut() {
                part.push(c);
            }
        }
        let one = |part: &String| match part.strip_prefix('"').and_then(|p| p.strip_suffix('"')) {
            Some(exact) => quoted(exact),
            None => quoted(&self.folded(part)),
        };
        parts.iter().map(one).collect::<Vec<_>>().join(".")
    }

    fn quote_column(&self, name: &str) -> String {
        quoted(&self.folded(name))
    }

    fn column_type(&self, field: &Field, key: bool) -> Result<String, DbError> {
        Ok(match plain_type(field.data_type()) {
            DataType::Boolean => "NUMBER(1)".to_string(),
            DataType::Int8 => "NUMBER(3)".into(),
            DataType::Int16 => "NUMBER(5)".into(),
            DataType::Int32 => "NUMBER(10)".into(),
            DataType::Int64 => "NUMBER(19)".into(),
            DataType::Float32 => "BINARY_FLOAT".into(),
            DataType::Float64 => "BINARY_DOUBLE".into(),
            DataType::Decimal128(precision, scale) => format!("NUMBER({precision},{})", scale.max(0)),
            DataType::Utf8 if key => format!("VARCHAR2({KEY_LENGTH} CHAR)"),
            DataType::Utf8 => "CLOB".into(),
            DataType::Binary if key => format!("RAW({KEY_LENGTH})"),
            DataType::Binary => "BLOB".into(),
            DataType::Date32 => "DATE".into(),
            // There is no time of day; a text like 08:00:00.5.
            DataType::Time32(_) => "VARCHAR2(12)".into(),
            DataType::Timestamp(unit, None) => format!("TIMESTAMP({})", fraction_digits(unit)),
            // Others cannot be in a key.
            DataType::Timestamp(unit, Some(_)) if key => format!("TIMESTAMP({}) WITH LOCAL TIME ZONE", fraction_digits(unit)),
            DataType::Timestamp(unit, Some(_)) => format!("TIMESTAMP({}) WITH TIME ZONE", fraction_digits(unit)),
            // Text keeps what was written.
            DataType::List(_) | DataType::Struct(_) | DataType::Map(..) if !key => "CLOB".into(),
            other => {
                let what = if key { "a primary key cannot be of" } else { "there is no column type for" };
                return Err(DbError::fatal(format!("column '{}': in Oracle {what} {}", field.name(), type_name(&other))));
            }
        })
    }

    fn create_table(&self, name: &str, columns: &str) -> String {
        // IF NOT EXISTS is there from version 23 on only; error 955 says that something of this name is there.
        let create = format!("CREATE TABLE {name} ({columns})").replace('\'', "''");
        format!("BEGIN EXECUTE IMMEDIATE '{create}'; EXCEPTION WHEN OTHERS THEN IF SQLCODE <> -955 THEN RAISE; END IF; END;")
    }

    fn behind(&self, columns: &[String], values: &[String]) -> String {
        behind_one_by_one(columns, values)
    }

    fn range(&self, lower: ArrayRef, upper: ArrayRef) -> Result<(ArrayRef, &'static str, ArrayRef), DbError> {
        // A DATE may have a time of day, and a NUMBER decimals. Such values are errors where they are read, and so must lie in a part.
        match upper.data_type() {
            _ if upper.is_null(0) => {}
            DataType::Date32 => {
                let day = upper.as_primitive::<Date32Type>().value(0);
                if day < LAST_DAY {
                    let next: ArrayRef = Arc::new(Date32Array::from(vec![day + 1]));
                    return Ok((lower, "<", next));
                }
                let last = i64::from(LAST_DAY + 1) * MICROS_OF_DAY - 1;
                let last: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![last]));
                return Ok((lower, "<=", last));
            }
            DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
                let last = cast(&upper, &DataType::Int64)?.as_primitive::<Int64Type>().value(0);
                if let Some(next) = last.checked_add(1) {
                    let next: ArrayRef = Arc::new(Int64Array::from(vec![next]));
                    return Ok((lower, "<", next));
                }
            }
            _ => {}
        }
        up_to_the_next(lower, upper)
    }

    fn limit_lock_waits(&self, limit: Duration) -> Option<String> {
        Some(format!("{CALL_LIMIT}{}", limit.as_millis().max(1)))
    }

    fn lock_rows(&self) -> &'static str {
        // A transaction that nobody ends would hold it for ever.
        " FOR UPDATE WAIT 60"
    }

    fn placeholder(&self, number: usize) -> String {
        format!(":{number}")
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int8Array, TimestampMillisecondArray};
    use arrow::datatypes::TimeUnit;

    use super::*;

    #[test]
    fn names_are_those_of_the_database() {
        #[track_caller]
        fn check(name: &str, upper: &str, exact: &str) {
            assert_eq!([dialect(false).quote(name), dialect(true).quote(name)], [upper, exact]);
        }
        check("events", "\"EVENTS\"", "\"events\"");
        check("shop.Orders_2", "\"SHOP\".\"ORDERS_2\"", "\"shop\".\"Orders_2\"");
        check("shop.\"my.Orders\"", "\"SHOP\".\"my.Orders\"", "\"shop\".\"my.Orders\"");
        check("my orders", "\"my orders\"", "\"my orders\"");
        assert_eq!(dialect(false).quote_column("a.b"), "\"a.b\"");
        assert_eq!(dialect(false).quote_column("level"), "\"LEVEL\"");
        assert_eq!(dialect(false).literal("it's", false), "'it''s'");
    }

    #[test]
    fn columns_have_types() {
        #[track_caller]
        fn check(data_type: DataType, key: bool, expect: &str) {
            assert_eq!(dialect(false).column_type(&Field::new("c", data_type, true), key).unwrap(), expect);
        }
        let zoned = |unit| DataType::Timestamp(unit, Some("UTC".into()));
        check(DataType::Boolean, false, "NUMBER(1)");
        check(DataType::Int64, true, "NUMBER(19)");
        check(DataType::UInt64, false, "NUMBER(20,0)");
        check(DataType::Float32, false, "BINARY_FLOAT");
        check(DataType::Float64, false, "BINARY_DOUBLE");
        check(DataType::Decimal128(38, 38), false, "NUMBER(38,38)");
        check(DataType::Utf8, false, "CLOB");
        check(DataType::Utf8, true, "VARCHAR2(255 CHAR)");
        check(DataType::Binary, false, "BLOB");
        check(DataType::Binary, true, "RAW(255)");
        check(DataType::Date32, false, "DATE");
        check(DataType::Time32(TimeUnit::Millisecond), false, "VARCHAR2(12)");
        check(DataType::Timestamp(TimeUnit::Nanosecond, None), false, "TIMESTAMP(9)");
        check(zoned(TimeUnit::Millisecond), false, "TIMESTAMP(3) WITH TIME ZONE");
        check(zoned(TimeUnit::Millisecond), true, "TIMESTAMP(3) WITH LOCAL TIME ZONE");
        let nested = DataType::new_list(DataType::Int32, true);
        check(nested.clone(), false, "CLOB");
        let error = dialect(false).column_type(&Field::new("c", nested, true), true).unwrap_err();
        assert!(error.message.contains("'c'") && error.message.contains("ARRAY<INT>"), "{}", error.message);
    }

    #[test]
    fn tables_are_created_if_they_are_missing() {
        let sql = crate::types::create_table(dialect(false), &crate::types::marks()).unwrap();
        assert_eq!(
            sql,
            "BEGIN EXECUTE IMMEDIATE 'CREATE TABLE \"TIDEMILL_CHECKPOINTS\" (\"SINK\" VARCHAR2(255 CHAR) NOT NULL, \"SHARD\" NUMBER(10) \
             NOT NULL, \"EPOCH\" NUMBER(19) NOT NULL, PRIMARY KEY (\"SINK\", \"SHARD\"))'; EXCEPTION WHEN OTHERS THEN IF SQLCODE <> -955 \
             THEN RAISE; END IF; END;"
        );
    }

    #[test]
    fn parts_hold_what_is_finer_than_the_job_has_it() {
        #[track_caller]
        fn check(upper: impl Array + 'static, between: &str, end: impl Array + 'static) {
            let upper: ArrayRef = Arc::new(upper);
            let (lower, found, until) = dialect(false).range(upper.clone(), upper.clone()).unwrap();
            let end: ArrayRef = Arc::new(end);
            assert_eq!((lower.as_ref(), found, until.as_ref()), (upper.as_ref(), between, end.as_ref()));
        }
        check(Date32Array::from(vec![3]), "<", Date32Array::from(vec![4]));
        check(Date32Array::from(vec![LAST_DAY]), "<=", TimestampMicrosecondArray::from(vec![253_402_300_799_999_999]));
        check(Int8Array::from(vec![i8::MAX]), "<", Int64Array::from(vec![128]));
        check(Int64Array::from(vec![i64::MAX]), "<=", Int64Array::from(vec![i64::MAX]));
        check(TimestampMillisecondArray::from(vec![3]), "<", TimestampMillisecondArray::from(vec![4]));
    }

    #[test]
    fn waits_for_locks_are_limited() {
        let sql = dialect(false).limit_lock_waits(Duration::from_secs(5)).unwrap();
        assert_eq!(sql.strip_prefix(CALL_LIMIT), Some("5000"));
    }
}
