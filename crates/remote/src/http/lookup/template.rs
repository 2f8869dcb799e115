//! Addresses and bodies with places for keys: `http://host/users/{id}`, `{"user": {id}}`.

use std::fmt::Write as _;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, Schema,
    Time32MillisecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use tidemill_block::value;

/// Text with places for keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    /// A column of the keys.
    Key(usize),
}

/// How a key is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// As part of an address: whatever is not harmless there becomes `%XX`.
    Encoded,
    /// As a value in JSON.
    Json,
}

impl Template {
    /// Reads `text`, in which `{name}` stands for a column of `keys`. Braces around anything else stay as
    /// they are, unless the text is an address (`strict`), where they have no place.
    ///
    /// # Errors
    /// A name in braces that is not asked by.
    pub fn parse(text: &str, keys: &Schema, strict: bool) -> Result<Self, String> {
        let mut parts = Vec::new();
        let (mut plain, mut rest) = (String::new(), text);
        while let Some(open) = rest.find('{') {
            plain.push_str(&rest[..open]);
            let behind = &rest[open + 1..];
            let name = behind.find('}').map(|end| &behind[..end]);
            match name.and_then(|name| Some((name, keys.column_with_name(name)?.0))) {
                Some((name, index)) => {
                    if !plain.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut plain)));
                    }
                    parts.push(Part::Key(index));
                    rest = &behind[name.len() + 1..];
                }
                None if strict => {
                    let asked: Vec<&str> = keys.fields().iter().map(|f| f.name().as_str()).collect();
                    return Err(format!(
                        "it has a place for {{{}}}, and the condition of the join asks by {} only",
                        name.unwrap_or(behind),
                        asked.join(", ")
                    ));
                }
                None => {
                    plain.push('{');
                    rest = behind;
                }
            }
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        Ok(Template { parts })
    }

    /// The same, with `?name=key` or `&name=key` behind it for each of these columns.
    pub fn with_query(mut self, columns: &[(usize, &str)]) -> Self {
        let mut open = self.parts.iter().any(|p| matches!(p, Part::Text(text) if text.contains('?')));
        for (index, name) in columns {
            let mut text = String::from(if open { "&" } else { "?" });
            encode(name.as_bytes(), &mut text);
            text.push('=');
            self.parts.extend([Part::Text(text), Part::Key(*index)]);
            open = true;
        }
        self
    }

    /// Whether it has a place for a column.
    pub fn names(&self, column: usize) -> bool {
        self.parts.contains(&Part::Key(column))
    }

    /// The text for a row of `keys`, whose columns have types that [`can_be_written`] and no NULL.
    pub fn fill(&self, keys: &RecordBatch, row: usize, form: Form, out: &mut String) {
        let mut value = Vec::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Key(column) => {
                    value.clear();
                    let column = keys.column(*column);
                    write(column.as_ref(), row, &mut value);
                    match form {
                        Form::Encoded => encode(&value, out),
                        Form::Json if column.data_type().is_numeric() || *column.data_type() == DataType::Boolean => {
                            out.push_str(&String::from_utf8_lossy(&value));
                        }
                        Form::Json => quote(&String::from_utf8_lossy(&value), out),
                    }
                }
            }
        }
    }

    /// An address with the constant values of its query hidden: they may be secrets.
    pub fn masked(&self) -> Self {
        let mut in_query = false;
        let parts = self.parts.iter().map(|part| match part {
            Part::Key(column) => Part::Key(*column),
            Part::Text(text) => {
                let (path, query) = match (in_query, text.split_once('?')) {
                    (true, _) => ("", Some(text.as_str())),
                    (false, Some((path, query))) => (path, Some(query)),
                    (false, None) => (text.as_str(), None),
                };
                let Some(query) = query else { return Part::Text(path.to_string()) };
                let mut shown = if in_query { String::new() } else { format!("{path}?") };
                in_query = true;
                for (i, pair) in query.split('&').enumerate() {
                    if i > 0 {
                        shown.push('&');
                    }
                    match pair.split_once('=') {
                        Some((name, value)) if !value.is_empty() => {
                            let _ = write!(shown, "{name}=***");
                        }
                        _ => shown.push_str(pair),
                    }
                }
                Part::Text(shown)
            }
        });
        Template { parts: parts.collect() }
    }
}

/// Whether keys of a type can stand in an address or a body.
pub(super) fn can_be_written(data_type: &DataType) -> bool {
    use DataType::*;
    matches!(data_type, Boolean | Int8 | Int16 | Int32 | Int64 | Float32 | Float64 | Decimal128(..) | Utf8 | Date32 | Timestamp(..))
        || *data_type == Time32(TimeUnit::Millisecond)
}

/// Appends a value as text.
fn write(column: &dyn Array, row: usize, out: &mut Vec<u8>) {
    match column.data_type() {
        DataType::Boolean => out.extend_from_slice(if column.as_boolean().value(row) { b"true" } else { b"false" }),
        DataType::Int8 => value::write_i64(out, i64::from(column.as_primitive::<Int8Type>().value(row))),
        DataType::Int16 => value::write_i64(out, i64::from(column.as_primitive::<Int16Type>().value(row))),
        DataType::Int32 => value::write_i64(out, i64::from(column.as_primitive::<Int32Type>().value(row))),
        DataType::Int64 => value::write_i64(out, column.as_primitive::<Int64Type>().value(row)),
        DataType::Float32 => value::write_f32(out, column.as_primitive::<Float32Type>().value(row)),
        DataType::Float64 => value::write_f64(out, column.as_primitive::<Float64Type>().value(row)),
        DataType::Decimal128(_, scale) => value::write_decimal(out, column.as_primitive::<Decimal128Type>().value(row), *scale),
        DataType::Utf8 => out.extend_from_slice(column.as_string::<i32>().value(row).as_bytes()),
        DataType::Date32 => value::write_date(out, column.as_primitive::<Date32Type>().value(row)),
        DataType::Time32(_) => value::write_time_ms(out, column.as_primitive::<Time32MillisecondType>().value(row)),
        DataType::Timestamp(unit, zone) => {
            let units = match unit {
                TimeUnit::Second => column.as_primitive::<TimestampSecondType>().value(row),
                TimeUnit::Millisecond => column.as_primitive::<TimestampMillisecondType>().value(row),
                TimeUnit::Microsecond => column.as_primitive::<TimestampMicrosecondType>().value(row),
                TimeUnit::Nanosecond => column.as_primitive::<TimestampNanosecondType>().value(row),
            };
            value::write_timestamp(out, units, *unit, 0);
            if zone.is_some() {
                out.push(b'Z');
            }
        }
        _ => unreachable!("keys of other types are refused when the lookup is opened"),
    }
}

/// Appends bytes with `%XX` for all that RFC 3986 does not call unreserved.
fn encode(bytes: &[u8], out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(*byte as char),
            _ => {
                out.push('%');
                out.push(DIGITS[(byte >> 4) as usize] as char);
                out.push(DIGITS[(byte & 15) as usize] as char);
            }
        }
    }
}

/// Appends a text in quotes, as JSON has it.
fn quote(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Appends an object of the keys of a row.
pub(super) fn object(keys: &RecordBatch, row: usize, out: &mut String) {
    let schema = keys.schema_ref();
    out.push('{');
    for (index, field) in schema.fields().iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        quote(field.name(), out);
        out.push(':');
        Template { parts: vec![Part::Key(index)] }.fill(keys, row, Form::Json, out);
    }
    out.push('}');
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, BooleanArray, Int64Array, StringArray, TimestampMillisecondArray};

    use super::*;

    fn keys() -> RecordBatch {
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("id", Arc::new(Int64Array::from(vec![7, -8]))),
            ("name", Arc::new(StringArray::from(vec!["a/b c", "\"é\"\n"]))),
            ("ok", Arc::new(BooleanArray::from(vec![true, false]))),
            ("at", Arc::new(TimestampMillisecondArray::from(vec![1_500, 0]))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    #[track_caller]
    fn check(text: &str, row: usize, form: Form, expect: &str) {
        let template = Template::parse(text, keys().schema_ref(), form == Form::Encoded).unwrap();
        let mut out = String::new();
        template.fill(&keys(), row, form, &mut out);
        assert_eq!(out, expect);
    }

    #[test]
    fn keys_in_their_places() {
        check("/users/{id}?n={name}", 0, Form::Encoded, "/users/7?n=a%2Fb%20c");
        check("/{name}{id}/{ok}/{at}", 1, Form::Encoded, "/%22%C3%A9%22%0A-8/false/1970-01-01%2000%3A00%3A00");
        check(
            "{\"q\": {\"id\": {id}, \"n\": {name}, \"x\": {}, \"at\": {at}}}",
            0,
            Form::Json,
            "{\"q\": {\"id\": 7, \"n\": \"a/b c\", \"x\": {}, \"at\": \"1970-01-01 00:00:01.5\"}}",
        );
        check("{name}", 1, Form::Json, "\"\\\"é\\\"\\u000a\"");
        let mut out = String::new();
        object(&keys().project(&[0, 1]).unwrap(), 0, &mut out);
        assert_eq!(out, "{\"id\":7,\"name\":\"a/b c\"}");
    }

    #[test]
    fn queries() {
        let schema = keys().schema();
        let filled = |template: &Template| {
            let mut out = String::new();
            template.fill(&keys(), 0, Form::Encoded, &mut out);
            out
        };
        let plain = Template::parse("/a", &schema, true).unwrap().with_query(&[(0, "id"), (2, "ok")]);
        assert_eq!(filled(&plain), "/a?id=7&ok=true");
        let given = Template::parse("/a/{id}?key=secret&id={id}&v", &schema, true).unwrap().with_query(&[(1, "name")]);
        assert_eq!(filled(&given), "/a/7?key=secret&id=7&v&name=a%2Fb%20c");
        assert_eq!(filled(&given.masked()), "/a/7?key=***&id=7&v&name=a%2Fb%20c");
        assert!(given.names(1) && !plain.names(1));
        let error = Template::parse("/a/{key}", &schema, true).unwrap_err();
        assert_eq!(error, "it has a place for {key}, and the condition of the join asks by id, name, ok, at only");
    }
}
