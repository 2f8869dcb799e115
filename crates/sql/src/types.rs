//! Flink's types: from tokens to sqlparser's tree, from the tree to Arrow, and from Arrow back to
//! text. Lengths of CHAR, VARCHAR and BINARY are read and not kept, and NOT NULL inside a type is
//! read and not kept: both only narrow what a column may hold.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, TimeUnit};
use sqlparser::ast::{
    ArrayElemTypeDef, BinaryLength, CharacterLength, DataType as SqlType, ExactNumberInfo, Ident, ObjectName, StructBracketKind,
    StructField, TimezoneInfo,
};
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

use crate::diagnostic::SqlError;
use crate::parse::expression::{accept, fail, peek_word};

/// How deep types may nest.
const TYPE_DEPTH_MAX: usize = 32;
/// The largest precision of DECIMAL.
const DECIMAL_PRECISION_MAX: u64 = 38;
/// The precision of a timestamp that gives none: microseconds.
const TIMESTAMP_PRECISION_DEFAULT: u64 = 6;
/// The name of the timestamp with local time zone.
const TIMESTAMP_LTZ: &str = "TIMESTAMP_LTZ";

/// Reads a type at the parser's position. NOT NULL behind it is left for the caller.
///
/// # Errors
/// Not a type, or one that is not supported, with its place.
pub fn parse_type(parser: &mut Parser) -> Result<SqlType, ParserError> {
    parse_nested(parser, 0)
}

fn parse_nested(p: &mut Parser, depth: usize) -> Result<SqlType, ParserError> {
    let start = p.peek_token_ref().span.start;
    if depth > TYPE_DEPTH_MAX {
        return Err(fail(start, format!("types nest at most {TYPE_DEPTH_MAX} deep"), ""));
    }
    let Some(word) = peek_word(p, 0).map(str::to_ascii_uppercase) else {
        let found = p.peek_token_ref().clone();
        return p.expected("a type", found);
    };
    p.advance_token();
    let mut parsed = match word.as_str() {
        "ARRAY" => SqlType::Array(ArrayElemTypeDef::AngleBracket(Box::new(parse_arguments(p, depth, 1)?.swap_remove(0)))),
        "MAP" => {
            let mut types = parse_arguments(p, depth, 2)?;
            let value = types.pop().unwrap_or(SqlType::Unspecified);
            let key = types.pop().unwrap_or(SqlType::Unspecified);
            SqlType::Map(Box::new(key), Box::new(value))
        }
        "ROW" => SqlType::Struct(parse_row(p, depth)?, StructBracketKind::AngleBrackets),
        _ => {
            let leaf = parse_leaf(p, &word).unwrap_or_else(|| Err(unknown(start, &word)))?;
            if let Err(error) = arrow_type(&leaf) {
                return Err(fail(start, error.message, error.help.as_deref().unwrap_or_default()));
            }
            leaf
        }
    };
    // `INT ARRAY` is another way to write `ARRAY<INT>`.
    let mut suffixes = 0;
    loop {
        let at = p.peek_token_ref().span.start;
        if accept(p, "ARRAY") {
            suffixes += 1;
            if depth + suffixes > TYPE_DEPTH_MAX {
                return Err(fail(at, format!("types nest at most {TYPE_DEPTH_MAX} deep"), ""));
            }
            parsed = SqlType::Array(ArrayElemTypeDef::AngleBracket(Box::new(parsed)));
        } else if accept(p, "MULTISET") {
            return Err(unknown(at, "MULTISET"));
        } else {
            return Ok(parsed);
        }
    }
}

/// `< type [NOT NULL] {, type [NOT NULL]} >`, `count` of them.
fn parse_arguments(p: &mut Parser, depth: usize, count: usize) -> Result<Vec<SqlType>, ParserError> {
    p.expect_token(&Token::Lt)?;
    let mut types = Vec::with_capacity(count);
    for i in 0..count {
        if i > 0 {
            p.expect_token(&Token::Comma)?;
        }
        types.push(parse_nested(p, depth + 1)?);
        parse_nullability(p)?;
    }
    p.expect_token(&Token::Gt)?;
    Ok(types)
}

/// `<name type ['comment'], …>`, `(name type, …)`, or types alone, whose names are then f0, f1, ….
fn parse_row(p: &mut Parser, depth: usize) -> Result<Vec<StructField>, ParserError> {
    let close = if p.consume_token(&Token::LParen) {
        Token::RParen
    } else {
        p.expect_token(&Token::Lt)?;
        Token::Gt
    };
    let mut fields: Vec<StructField> = Vec::new();
    loop {
        // A name is followed by the word of its type; a type without name by anything else, except
        // that `INT NOT NULL` and `INT ARRAY` are a type and more words of it.
        let named = match (&p.peek_token_ref().token, peek_word(p, 1).map(str::to_ascii_uppercase).as_deref()) {
            (Token::Word(w), _) if w.quote_style.is_some() => true,
            (_, None | Some("NOT" | "NULL" | "WITHOUT" | "WITH" | "PRECISION" | "VARYING")) => false,
            (_, Some("ARRAY" | "MULTISET")) => p.peek_nth_token_ref(2).token == Token::Lt,
            _ => true,
        };
        let at = p.peek_token_ref().span.start;
        let name = if named { p.parse_identifier()? } else { Ident::new(format!("f{}", fields.len())) };
        if fields.iter().any(|f| f.field_name.as_ref().is_some_and(|n| n.value == name.value)) {
            return Err(fail(at, format!("field {} is in the ROW twice", name.value), ""));
        }
        let field_type = parse_nested(p, depth + 1)?;
        parse_nullability(p)?;
        if matches!(p.peek_token_ref().token, Token::SingleQuotedString(_)) {
            p.advance_token();
        }
        fields.push(StructField { field_name: Some(name), field_type, options: None });
        if !p.consume_token(&Token::Comma) {
            break;
        }
    }
    p.expect_token(&close)?;
    Ok(fields)
}

/// Reads `NOT NULL` or `NULL`; false for `NOT NULL`.
pub(crate) fn parse_nullability(p: &mut Parser) -> Result<bool, ParserError> {
    if accept(p, "NOT") {
        if accept(p, "NULL") {
            return Ok(false);
        }
        let found = p.peek_token_ref().clone();
        return p.expected("NULL after NOT", found);
    }
    accept(p, "NULL");
    Ok(true)
}

/// The types without parts. `None` if the word is not one.
fn parse_leaf(p: &mut Parser, word: &str) -> Option<Result<SqlType, ParserError>> {
    Some(Ok(match word {
        "BOOLEAN" => SqlType::Boolean,
        "TINYINT" => SqlType::TinyInt(None),
        "SMALLINT" => SqlType::SmallInt(None),
        "INT" => SqlType::Int(None),
        "INTEGER" => SqlType::Integer(None),
        "BIGINT" => SqlType::BigInt(None),
        "FLOAT" => SqlType::Float(ExactNumberInfo::None),
        "DOUBLE" => {
            accept(p, "PRECISION");
            SqlType::Double(ExactNumberInfo::None)
        }
        "STRING" => SqlType::String(None),
        "BYTES" => SqlType::Bytes(None),
        "DATE" => SqlType::Date,
        "DECIMAL" | "DEC" | "NUMERIC" => match parse_numbers(p) {
            Ok((None, _)) => SqlType::Decimal(ExactNumberInfo::None),
            Ok((Some(precision), None)) => SqlType::Decimal(ExactNumberInfo::Precision(precision)),
            Ok((Some(precision), Some(scale))) => {
                SqlType::Decimal(ExactNumberInfo::PrecisionAndScale(precision, i64::try_from(scale).unwrap_or(i64::MAX)))
            }
            Err(e) => return Some(Err(e)),
        },
        "CHAR" | "CHARACTER" | "VARCHAR" => {
            let varying = word == "VARCHAR" || accept(p, "VARYING");
            match p.parse_optional_precision() {
                Ok(length) => {
                    let length = length.map(|length| CharacterLength::IntegerLength { length, unit: None });
                    if varying { SqlType::Varchar(length) } else { SqlType::Char(length) }
                }
                Err(e) => return Some(Err(e)),
            }
        }
        "BINARY" | "VARBINARY" => match p.parse_optional_precision() {
            Ok(length) if word == "BINARY" => SqlType::Binary(length),
            Ok(length) => SqlType::Varbinary(length.map(|length| BinaryLength::IntegerLength { length })),
            Err(e) => return Some(Err(e)),
        },
        "TIME" | "TIMESTAMP" => match parse_time(p, word == "TIMESTAMP") {
            Ok(parsed) => parsed,
            Err(e) => return Some(Err(e)),
        },
        TIMESTAMP_LTZ => match p.parse_optional_precision() {
            Ok(precision) => timestamp_ltz(precision),
            Err(e) => return Some(Err(e)),
        },
        _ => return None,
    }))
}

/// `[(precision)] [WITHOUT TIME ZONE | WITH LOCAL TIME ZONE]`.
fn parse_time(p: &mut Parser, timestamp: bool) -> Result<SqlType, ParserError> {
    let precision = p.parse_optional_precision()?;
    let at = p.peek_token_ref().span.start;
    let is = |p: &Parser, words: &[&str]| words.iter().enumerate().all(|(i, w)| peek_word(p, i).is_some_and(|x| x.eq_ignore_ascii_case(w)));
    if is(p, &["WITHOUT", "TIME", "ZONE"]) {
        (0..3).for_each(|_| p.advance_token());
    } else if timestamp && is(p, &["WITH", "LOCAL", "TIME", "ZONE"]) {
        (0..4).for_each(|_| p.advance_token());
        return Ok(timestamp_ltz(precision));
    } else if is(p, &["WITH", "TIME", "ZONE"]) {
        let name = if timestamp { "TIMESTAMP" } else { "TIME" };
        return Err(fail(
            at,
            format!("{name} WITH TIME ZONE is not supported: no zone is stored with a value"),
            "TIMESTAMP_LTZ(3) is a point in time",
        ));
    }
    Ok(if timestamp { SqlType::Timestamp(precision, TimezoneInfo::None) } else { SqlType::Time(precision, TimezoneInfo::None) })
}

fn timestamp_ltz(precision: Option<u64>) -> SqlType {
    SqlType::Custom(ObjectName::from(vec![Ident::new(TIMESTAMP_LTZ)]), precision.iter().map(u64::to_string).collect())
}

/// `[(n [, n])]`.
fn parse_numbers(p: &mut Parser) -> Result<(Option<u64>, Option<u64>), ParserError> {
    if !p.consume_token(&Token::LParen) {
        return Ok((None, None));
    }
    let first = p.parse_literal_uint()?;
    let second = if p.consume_token(&Token::Comma) { Some(p.parse_literal_uint()?) } else { None };
    p.expect_token(&Token::RParen)?;
    Ok((Some(first), second))
}

/// The types that can be written, for messages and suggestions.
const NAMES: &[&str] = &[
    "ARRAY",
    "BIGINT",
    "BINARY",
    "BOOLEAN",
    "BYTES",
    "CHAR",
    "DATE",
    "DECIMAL",
    "DOUBLE",
    "FLOAT",
    "INT",
    "INTEGER",
    "MAP",
    "NUMERIC",
    "ROW",
    "SMALLINT",
    "STRING",
    "TIME",
    "TIMESTAMP",
    "TIMESTAMP_LTZ",
    "TINYINT",
    "VARBINARY",
    "VARCHAR",
];

/// What Flink calls a type that another database calls so.
fn translation(word: &str) -> Option<&'static str> {
    Some(match word {
        "TEXT" | "CLOB" | "NVARCHAR" | "UUID" | "JSON" => "STRING",
        "BLOB" | "BYTEA" => "BYTES",
        "BOOL" => "BOOLEAN",
        "INT8" | "INT64" | "LONG" => "BIGINT",
        "INT4" | "INT32" => "INT",
        "INT2" | "INT16" => "SMALLINT",
        "REAL" | "FLOAT4" | "FLOAT32" => "FLOAT",
        "FLOAT8" | "FLOAT64" => "DOUBLE",
        "DATETIME" => "TIMESTAMP(3)",
        "TIMESTAMPTZ" => "TIMESTAMP_LTZ(3)",
        "STRUCT" => "ROW<…>",
        "LIST" => "ARRAY<…>",
        _ => return None,
    })
}

fn unknown(at: sqlparser::tokenizer::Location, word: &str) -> ParserError {
    match word {
        "MULTISET" => return fail(at, "MULTISET is not supported", "use ARRAY<…>, or MAP<…, INT> with counts"),
        "RAW" => return fail(at, "RAW is not supported: it holds objects of Java", "use BYTES"),
        "INTERVAL" => return fail(at, "INTERVAL cannot be the type of a column or of a cast", "use BIGINT for a length in milliseconds"),
        "VARIANT" | "STRUCTURED" | "NULL" => return fail(at, format!("{word} is not supported as a type"), "use STRING, or ROW<…>"),
        _ => {}
    }
    let help = match translation(word) {
        Some(name) => format!("Flink calls it {name}"),
        None => match crate::parse::nearest(word, NAMES) {
            Some(name) => format!("did you mean {name}?"),
            None => format!("the types are {}", NAMES.join(", ")),
        },
    };
    fail(at, format!("{word} is not a type"), &help)
}

fn check_length(name: &str, length: Option<u64>) -> Result<(), SqlError> {
    match length {
        Some(0) => Err(SqlError::new(format!("{name}(0): the length is at least 1"))),
        _ => Ok(()),
    }
}

fn character_length(length: Option<CharacterLength>) -> Option<u64> {
    match length {
        Some(CharacterLength::IntegerLength { length, .. }) => Some(length),
        _ => None,
    }
}

fn time_unit(name: &str, precision: Option<u64>) -> Result<TimeUnit, SqlError> {
    match precision.unwrap_or(TIMESTAMP_PRECISION_DEFAULT) {
        0..=3 => Ok(TimeUnit::Millisecond),
        4..=6 => Ok(TimeUnit::Microsecond),
        7..=9 => Ok(TimeUnit::Nanosecond),
        p => Err(SqlError::new(format!("{name}({p}): the precision is 0 to 9 digits of the second"))),
    }
}

fn decimal(info: &ExactNumberInfo) -> Result<DataType, SqlError> {
    let (precision, scale) = match *info {
        ExactNumberInfo::None => (10, 0),
        ExactNumberInfo::Precision(precision) => (precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (precision, scale),
    };
    if !(1..=DECIMAL_PRECISION_MAX).contains(&precision) {
        return Err(SqlError::new(format!("DECIMAL({precision}, {scale}): the precision is 1 to {DECIMAL_PRECISION_MAX} digits")));
    }
    if scale < 0 || scale.unsigned_abs() > precision {
        return Err(SqlError::new(format!("DECIMAL({precision}, {scale}): the scale is 0 to the precision, {precision}")));
    }
    // Both are at most 38 here.
    Ok(DataType::Decimal128(precision as u8, scale as i8))
}

/// A MAP as Arrow has it, keys never null.
fn map_of(key: DataType, value: DataType) -> DataType {
    let entries = Fields::from(vec![Field::new("key", key, false), Field::new("value", value, true)]);
    DataType::Map(Arc::new(Field::new("entries", DataType::Struct(entries), false)), false)
}

/// The Arrow type of a type in the tree. DECIMAL without digits is (10, 0); TIMESTAMP without is (6);
/// up to 3 digits are kept in milliseconds, up to 6 in microseconds, up to 9 in nanoseconds; TIME is
/// always in milliseconds, as in Flink.
///
/// # Errors
/// The type has no counterpart in Flink, or a length or precision is out of range. Without place.
pub fn arrow_type(sql: &SqlType) -> Result<DataType, SqlError> {
    Ok(match sql {
        SqlType::Boolean => DataType::Boolean,
        SqlType::TinyInt(_) => DataType::Int8,
        SqlType::SmallInt(_) => DataType::Int16,
        SqlType::Int(_) | SqlType::Integer(_) => DataType::Int32,
        SqlType::BigInt(_) => DataType::Int64,
        SqlType::Float(ExactNumberInfo::None) => DataType::Float32,
        SqlType::Double(ExactNumberInfo::None) | SqlType::DoublePrecision => DataType::Float64,
        SqlType::Decimal(info) | SqlType::Dec(info) | SqlType::Numeric(info) => decimal(info)?,
        SqlType::Char(length) | SqlType::Character(length) => {
            check_length("CHAR", character_length(*length))?;
            DataType::Utf8
        }
        SqlType::Varchar(length) | SqlType::CharVarying(length) | SqlType::CharacterVarying(length) => {
            check_length("VARCHAR", character_length(*length))?;
            DataType::Utf8
        }
        SqlType::String(None) => DataType::Utf8,
        SqlType::Binary(length) => {
            check_length("BINARY", *length)?;
            DataType::Binary
        }
        SqlType::Varbinary(length) => {
            check_length(
                "VARBINARY",
                length.and_then(|l| if let BinaryLength::IntegerLength { length } = l { Some(length) } else { None }),
            )?;
            DataType::Binary
        }
        SqlType::Bytes(None) => DataType::Binary,
        SqlType::Date => DataType::Date32,
        SqlType::Time(precision, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            time_unit("TIME", Some(precision.unwrap_or(0)))?;
            DataType::Time32(TimeUnit::Millisecond)
        }
        SqlType::Timestamp(precision, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            DataType::Timestamp(time_unit("TIMESTAMP", *precision)?, None)
        }
        SqlType::Custom(name, modifiers) if is_timestamp_ltz(name) => {
            let precision = match modifiers.as_slice() {
                [] => None,
                [digits] if digits.parse::<u64>().is_ok() => digits.parse().ok(),
                _ => {
                    return Err(SqlError::new(format!(
                        "{TIMESTAMP_LTZ}({}): give one number, the digits of the second",
                        modifiers.join(", ")
                    )));
                }
            };
            DataType::Timestamp(time_unit(TIMESTAMP_LTZ, precision)?, Some("UTC".into()))
        }
        SqlType::Array(ArrayElemTypeDef::AngleBracket(item) | ArrayElemTypeDef::SquareBracket(item, None)) => {
            DataType::List(Arc::new(Field::new_list_field(arrow_type(item)?, true)))
        }
        SqlType::Map(key, value) => map_of(arrow_type(key)?, arrow_type(value)?),
        SqlType::Struct(fields, _) => {
            let fields: Result<Vec<_>, _> = fields
                .iter()
                .enumerate()
                .map(|(i, f)| {
                    let name = f.field_name.as_ref().map_or_else(|| format!("f{i}"), |n| n.value.clone());
                    arrow_type(&f.field_type).map(|data_type| Field::new(name, data_type, true))
                })
                .collect();
            DataType::Struct(fields?.into())
        }
        other => {
            let text = other.to_string();
            let error = SqlError::new(format!("{text} is not a type of Flink"));
            return Err(match translation(&text.to_ascii_uppercase()) {
                Some(name) => error.with_help(format!("Flink calls it {name}")),
                None => error,
            });
        }
    })
}

fn is_timestamp_ltz(name: &ObjectName) -> bool {
    matches!(name.0.as_slice(), [part] if part.as_ident().is_some_and(|i| i.value.eq_ignore_ascii_case(TIMESTAMP_LTZ)))
}

/// A type as Flink writes it. Types that Flink lacks get the nearest that holds their values.
pub fn flink_type(data_type: &DataType) -> String {
    match data_type {
        DataType::Null => "NULL".into(),
        DataType::Boolean => "BOOLEAN".into(),
        DataType::Int8 => "TINYINT".into(),
        DataType::Int16 | DataType::UInt8 => "SMALLINT".into(),
        DataType::Int32 | DataType::UInt16 => "INT".into(),
        DataType::Int64 | DataType::UInt32 => "BIGINT".into(),
        DataType::UInt64 => "DECIMAL(20, 0)".into(),
        DataType::Float16 | DataType::Float32 => "FLOAT".into(),
        DataType::Float64 => "DOUBLE".into(),
        DataType::Decimal32(p, s) | DataType::Decimal64(p, s) | DataType::Decimal128(p, s) | DataType::Decimal256(p, s) => {
            format!("DECIMAL({p}, {s})")
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "STRING".into(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "BYTES".into(),
        DataType::FixedSizeBinary(n) => format!("BINARY({n})"),
        DataType::Date32 | DataType::Date64 => "DATE".into(),
        DataType::Time32(TimeUnit::Second) => "TIME(0)".into(),
        DataType::Time32(_) => "TIME(3)".into(),
        DataType::Time64(TimeUnit::Nanosecond) => "TIME(9)".into(),
        DataType::Time64(_) => "TIME(6)".into(),
        DataType::Timestamp(unit, zone) => {
            let digits = match unit {
                TimeUnit::Second => 0,
                TimeUnit::Millisecond => 3,
                TimeUnit::Microsecond => 6,
                TimeUnit::Nanosecond => 9,
            };
            let name = if zone.is_some() { TIMESTAMP_LTZ } else { "TIMESTAMP" };
            format!("{name}({digits})")
        }
        DataType::Duration(_) => "INTERVAL SECOND(3)".into(),
        DataType::Interval(arrow::datatypes::IntervalUnit::YearMonth) => "INTERVAL MONTH".into(),
        DataType::Interval(_) => "INTERVAL SECOND(3)".into(),
        DataType::List(f) | DataType::LargeList(f) | DataType::ListView(f) | DataType::LargeListView(f) | DataType::FixedSizeList(f, _) => {
            format!("ARRAY<{}>", flink_type(f.data_type()))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) if fields.len() == 2 => {
                format!("MAP<{}, {}>", flink_type(fields[0].data_type()), flink_type(fields[1].data_type()))
            }
            other => flink_type(other),
        },
        DataType::Struct(fields) => {
            let fields: Vec<_> =
                fields.iter().map(|f| format!("`{}` {}", f.name().replace('`', "``"), flink_type(f.data_type()))).collect();
            format!("ROW<{}>", fields.join(", "))
        }
        DataType::Union(..) => "STRING".into(),
        DataType::Dictionary(_, value) => flink_type(value),
        DataType::RunEndEncoded(_, value) => flink_type(value.data_type()),
    }
}

#[cfg(test)]
mod tests {
    use sqlparser::tokenizer::Tokenizer;

    use super::*;
    use crate::dialect::FlinkDialect;
    use crate::parse::expression::message_of;

    fn parse(text: &str) -> Result<SqlType, String> {
        let dialect = FlinkDialect::default();
        // `>>` is two brackets here; the script layer splits it.
        let text = text.replace(">>", "> >").replace(">>", "> >");
        let tokens = Tokenizer::new(&dialect, &text).tokenize_with_location().map_err(|e| e.to_string())?;
        let mut parser = Parser::new(&dialect).with_tokens_with_locations(tokens);
        let parsed = parse_type(&mut parser).map_err(|e| message_of(&e))?;
        assert_eq!(parser.peek_token().token, Token::EOF, "{text}");
        Ok(parsed)
    }

    /// The type's text after a round through Arrow.
    #[track_caller]
    fn check(text: &str, expect: &str) {
        let shown = match parse(text) {
            Ok(parsed) => flink_type(&arrow_type(&parsed).expect("parsed")),
            Err(message) => message,
        };
        assert_eq!(shown, expect, "{text}");
    }

    #[test]
    fn plain_types() {
        check("boolean", "BOOLEAN");
        check("TINYINT", "TINYINT");
        check("SMALLINT", "SMALLINT");
        check("INT", "INT");
        check("INTEGER", "INT");
        check("BIGINT", "BIGINT");
        check("FLOAT", "FLOAT");
        check("DOUBLE", "DOUBLE");
        check("DOUBLE PRECISION", "DOUBLE");
        check("DECIMAL", "DECIMAL(10, 0)");
        check("DEC(5)", "DECIMAL(5, 0)");
        check("NUMERIC(38, 12)", "DECIMAL(38, 12)");
        check("CHAR", "STRING");
        check("CHAR(3)", "STRING");
        check("CHARACTER VARYING(3)", "STRING");
        check("VARCHAR(2147483647)", "STRING");
        check("STRING", "STRING");
        check("BINARY(4)", "BYTES");
        check("VARBINARY(4)", "BYTES");
        check("BYTES", "BYTES");
        check("DATE", "DATE");
        check("TIME", "TIME(3)");
        check("TIME(0) WITHOUT TIME ZONE", "TIME(3)");
    }

    #[test]
    fn timestamps() {
        check("TIMESTAMP", "TIMESTAMP(6)");
        check("TIMESTAMP(0)", "TIMESTAMP(3)");
        check("TIMESTAMP(3)", "TIMESTAMP(3)");
        check("TIMESTAMP(6) WITHOUT TIME ZONE", "TIMESTAMP(6)");
        check("TIMESTAMP(9)", "TIMESTAMP(9)");
        check("TIMESTAMP_LTZ", "TIMESTAMP_LTZ(6)");
        check("timestamp_ltz(3)", "TIMESTAMP_LTZ(3)");
        check("TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP_LTZ(3)");
        check("TIMESTAMP(10)", "TIMESTAMP(10): the precision is 0 to 9 digits of the second");
        check("TIMESTAMP_LTZ(10)", "TIMESTAMP_LTZ(10): the precision is 0 to 9 digits of the second");
        check("TIMESTAMP(3) WITH TIME ZONE", "TIMESTAMP WITH TIME ZONE is not supported: no zone is stored with a value");
    }

    #[test]
    fn nested_types() {
        check("ARRAY<INT>", "ARRAY<INT>");
        check("ARRAY<INT NOT NULL>", "ARRAY<INT>");
        check("INT ARRAY ARRAY", "ARRAY<ARRAY<INT>>");
        check("MAP<STRING, ARRAY<TIMESTAMP(3)>>", "MAP<STRING, ARRAY<TIMESTAMP(3)>>");
        check("ROW<a INT, `b c` STRING 'said'>", "ROW<`a` INT, `b c` STRING>");
        check("ROW(a INT NOT NULL, b ROW<c DATE>)", "ROW<`a` INT, `b` ROW<`c` DATE>>");
        check("ROW<INT, STRING>", "ROW<`f0` INT, `f1` STRING>");
        check("ROW<INT NOT NULL, INT ARRAY>", "ROW<`f0` INT, `f1` ARRAY<INT>>");
        check("ROW<a ARRAY<INT>, b INT ARRAY, `c` ROW<d INT>>", "ROW<`a` ARRAY<INT>, `b` ARRAY<INT>, `c` ROW<`d` INT>>");
        check("ROW<a INT, a INT>", "field a is in the ROW twice");
        check(&"ARRAY<".repeat(40), "types nest at most 32 deep");
        check(&format!("INT{}", " ARRAY".repeat(40)), "types nest at most 32 deep");
    }

    #[test]
    fn errors() {
        check("MULTISET<INT>", "MULTISET is not supported");
        check("INT MULTISET", "MULTISET is not supported");
        check("RAW('c', 's')", "RAW is not supported: it holds objects of Java");
        check("INTERVAL DAY", "INTERVAL cannot be the type of a column or of a cast");
        check("TEXT", "TEXT is not a type");
        check("BIGIMT", "BIGIMT is not a type");
        check("DECIMAL(39, 0)", "DECIMAL(39, 0): the precision is 1 to 38 digits");
        check("DECIMAL(5, 6)", "DECIMAL(5, 6): the scale is 0 to the precision, 5");
        check("VARCHAR(0)", "VARCHAR(0): the length is at least 1");
        check("", "expected a type, found the end of the statement");
        check("7", "expected a type, found 7");
        check("MAP<INT>", "expected ,, found >");
    }
}
