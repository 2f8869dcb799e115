//! JSON functions.
//!
//! A path is a literal or a column; what it may say, and how values are found, lives in `json_scan`.
//! The clauses of SQL (RETURNING, ON EMPTY, …) are the planner's, which picks among the functions here.

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StringArray};
use arrow::datatypes::{DataType, Float32Type, Float64Type, Int32Type, Int64Type};
use datafusion_common::{Result, exec_err};
use tidemill_block::value::{write_f32, write_f64};

use super::cast::TextWriter;
use super::define::{Arg, Call, Def, Param::*, Returns, build, build_bool, build_text, def};
use super::json_scan::{IllFormed, Path, compact, find, find_one, kind, quote, unescape};
use super::zone::Zone;

/// The functions of this theme.
pub(super) const FUNCTIONS: &[Def] = &[
    def(
        "json_value",
        "JSON_VALUE(json, path)",
        "The scalar at the path as text; NULL if there is none",
        &[Text, Text],
        Returns::Text,
        value_text,
    ),
    def(
        "json_value_as_bigint",
        "JSON_VALUE(json, path RETURNING BIGINT)",
        "The scalar at the path as BIGINT",
        &[Text, Text],
        Returns::BigInt,
        value_bigint,
    ),
    def(
        "json_value_as_integer",
        "JSON_VALUE(json, path RETURNING INTEGER)",
        "The scalar at the path as INT",
        &[Text, Text],
        Returns::Int,
        value_integer,
    ),
    def(
        "json_value_as_double",
        "JSON_VALUE(json, path RETURNING DOUBLE)",
        "The scalar at the path as DOUBLE",
        &[Text, Text],
        Returns::Double,
        value_double,
    ),
    def(
        "json_value_as_boolean",
        "JSON_VALUE(json, path RETURNING BOOLEAN)",
        "The scalar at the path as BOOLEAN",
        &[Text, Text],
        Returns::Bool,
        value_boolean,
    ),
    def(
        "json_query",
        "JSON_QUERY(json, path[, wrapper])",
        "The object or array at the path as text; wrapper: WITHOUT, CONDITIONAL or UNCONDITIONAL",
        &[Text, Text, Text],
        Returns::Text,
        query,
    )
    .optional(1),
    def("json_exists", "JSON_EXISTS(json, path)", "Whether the path leads to anything", &[Text, Text], Returns::Bool, exists),
    def(
        "is_json",
        "text IS JSON [VALUE|OBJECT|ARRAY|SCALAR]",
        "Whether the text is JSON, as a function is_json(text[, 'kind'])",
        &[Text, Text],
        Returns::Bool,
        is_json,
    )
    .optional(1),
    def("json_string", "JSON_STRING(value)", "Any value as JSON text", &[Any], Returns::Text, string),
    def("json_quote", "JSON_QUOTE(text)", "The text as a JSON string", &[Text], Returns::Text, quoted),
    def(
        "json_unquote",
        "JSON_UNQUOTE(text)",
        "The text that a JSON string stands for; other texts as they are",
        &[Text],
        Returns::Text,
        unquoted,
    ),
    def("json_object", "JSON_OBJECT(key, value, …)", "An object; with a value NULL where it is NULL", &[], Returns::Text, |c| {
        object(c, true)
    })
    .rest(Any),
    def(
        "json_object_absent",
        "JSON_OBJECT(… ABSENT ON NULL)",
        "An object without the keys whose value is NULL",
        &[],
        Returns::Text,
        |c| object(c, false),
    )
    .rest(Any),
    def("json_array", "JSON_ARRAY(value, …)", "An array of the values that are not NULL", &[], Returns::Text, |c| array(c, false))
        .rest(Any),
    def("json_array_null", "JSON_ARRAY(… NULL ON NULL)", "An array of all the values", &[], Returns::Text, |c| array(c, true)).rest(Any),
];

/// The paths of a block: one for all rows, or one a row.
struct Paths {
    texts: Arg<StringArray>,
    one: Option<std::rc::Rc<Path>>,
}

impl Paths {
    fn of(call: &Call) -> Result<Paths> {
        let texts = call.text(1)?;
        let one = match texts.get(0) {
            Some(text) if texts.is_constant() => match Path::get(text) {
                Ok(path) => Some(path),
                Err(message) => return exec_err!("{}: {message}", call.name()),
            },
            _ => None,
        };
        Ok(Paths { texts, one })
    }

    #[inline]
    fn with<R>(&self, row: usize, f: impl FnOnce(&Path) -> Option<R>) -> Option<R> {
        match &self.one {
            Some(path) => f(path),
            None => f(&*Path::get(self.texts.get(row)?).ok()?),
        }
    }
}

/// What stands at a path, if it is a scalar and not null.
enum Scalar<'a> {
    Text(&'a str),
    Number(&'a str),
    Boolean(bool),
}

fn scalar<'a>(text: &'a str, path: &Path) -> Option<Scalar<'a>> {
    if path.many {
        return None;
    }
    let found = find_one(text, path).ok()??;
    match found.as_bytes()[0] {
        b'"' => Some(Scalar::Text(&found[1..found.len() - 1])),
        b't' => Some(Scalar::Boolean(true)),
        b'f' => Some(Scalar::Boolean(false)),
        b'-' | b'0'..=b'9' => Some(Scalar::Number(found)),
        _ => None,
    }
}

fn value_text(call: &Call) -> Result<ArrayRef> {
    let (texts, paths) = (call.text(0)?, Paths::of(call)?);
    build_text(call.rows, |r, out| {
        let text = texts.get(r)?;
        match paths.with(r, |p| scalar(text, p))? {
            Scalar::Text(inside) => out.extend_from_slice(unescape(inside).as_bytes()),
            Scalar::Boolean(b) => out.extend_from_slice(if b { b"true" } else { b"false" }),
            // A number with a fraction or an exponent is a double, and written like one.
            Scalar::Number(n) if n.contains(['.', 'e', 'E']) => write_f64(out, n.parse().ok()?),
            Scalar::Number(n) => out.extend_from_slice(n.as_bytes()),
        }
        Some(())
    })
}

fn whole_number(text: &str, path: &Path) -> Option<i64> {
    match scalar(text, path)? {
        Scalar::Number(n) => n.parse().ok(),
        Scalar::Text(t) => unescape(t).trim().parse().ok(),
        Scalar::Boolean(_) => None,
    }
}

fn value_bigint(call: &Call) -> Result<ArrayRef> {
    let (texts, paths) = (call.text(0)?, Paths::of(call)?);
    build::<Int64Type>(call.rows, |r| {
        let text = texts.get(r)?;
        paths.with(r, |p| whole_number(text, p))
    })
}

fn value_integer(call: &Call) -> Result<ArrayRef> {
    let (texts, paths) = (call.text(0)?, Paths::of(call)?);
    build::<Int32Type>(call.rows, |r| {
        let text = texts.get(r)?;
        paths.with(r, |p| whole_number(text, p)?.try_into().ok())
    })
}

fn value_double(call: &Call) -> Result<ArrayRef> {
    let (texts, paths) = (call.text(0)?, Paths::of(call)?);
    build::<Float64Type>(call.rows, |r| {
        let text = texts.get(r)?;
        paths.with(r, |p| match scalar(text, p)? {
            Scalar::Number(n) => n.parse().ok(),
            Scalar::Text(t) => super::cast::parse_double(&unescape(t)),
            Scalar::Boolean(_) => None,
        })
    })
}

fn value_boolean(call: &Call) -> Result<ArrayRef> {
    let (texts, paths) = (call.text(0)?, Paths::of(call)?);
    build_bool(call.rows, |r| {
        let text = texts.get(r)?;
        paths.with(r, |p| match scalar(text, p)? {
            Scalar::Boolean(b) => Some(b),
            Scalar::Text(t) => super::cast::parse_bool(t),
            Scalar::Number(_) => None,
        })
    })
}

fn query(call: &Call) -> Result<ArrayRef> {
    let (texts, paths) = (call.text(0)?, Paths::of(call)?);
    let wrapper = match call.word(2)?.map(|w| w.to_ascii_uppercase()) {
        None => 'N',
        Some(w) if w.starts_with("WITHOUT") => 'N',
        Some(w) if w.contains("UNCONDITIONAL") || w == "WITH" => 'U',
        Some(w) if w.contains("CONDITIONAL") => 'C',
        Some(w) => return exec_err!("JSON_QUERY knows no wrapper '{w}'; there are WITHOUT, CONDITIONAL, UNCONDITIONAL"),
    };
    build_text(call.rows, |r, out| {
        let text = texts.get(r)?;
        paths.with(r, |path| {
            let found = find(text, path).ok()?;
            if !path.many {
                let one = found.last()?;
                let structure = matches!(one.as_bytes()[0], b'{' | b'[');
                if structure && wrapper != 'U' {
                    compact(one, out);
                    return Some(());
                }
                // A scalar alone is no result.
                if wrapper == 'N' {
                    return None;
                }
            }
            // Several values, or one that is to be wrapped, become an array.
            let values = if path.many { &found[..] } else { &found[found.len() - 1..] };
            let twice = path.many && wrapper == 'U';
            out.extend_from_slice(if twice { b"[[" } else { b"[" });
            for (i, value) in values.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                compact(value, out);
            }
            out.extend_from_slice(if twice { b"]]" } else { b"]" });
            Some(())
        })
    })
}

fn exists(call: &Call) -> Result<ArrayRef> {
    let (texts, paths) = (call.text(0)?, Paths::of(call)?);
    build_bool(call.rows, |r| {
        let text = texts.get(r)?;
        paths.with(r, |p| match find(text, p) {
            Ok(found) => Some(!found.is_empty()),
            Err(IllFormed) => Some(false),
        })
    })
}

fn is_json(call: &Call) -> Result<ArrayRef> {
    let texts = call.text(0)?;
    let test: fn(u8) -> bool = match call.word(1)?.map(|w| w.to_ascii_uppercase()).as_deref() {
        None | Some("VALUE") => |_| true,
        Some("OBJECT") => |k| k == b'{',
        Some("ARRAY") => |k| k == b'[',
        Some("SCALAR") => |k| k != b'{' && k != b'[',
        Some(other) => return exec_err!("IS JSON knows no kind '{other}'; there are VALUE, OBJECT, ARRAY, SCALAR"),
    };
    build_bool(call.rows, |r| Some(kind(texts.get(r)?).is_some_and(test)))
}

/// Writes values of an array as JSON.
enum JsonWriter<'a> {
    Boolean(&'a BooleanArray),
    /// Numbers, which JSON has as they are.
    Plain(TextWriter<'a>),
    Float(&'a ArrayRef),
    /// Everything else is a string.
    Quoted(TextWriter<'a>),
    List(&'a ArrayRef, Zone),
    Struct(Vec<(String, JsonWriter<'a>)>),
}

impl<'a> JsonWriter<'a> {
    fn new(array: &'a ArrayRef, zone: Zone) -> Result<Self> {
        Ok(match array.data_type() {
            DataType::Boolean => JsonWriter::Boolean(array.as_boolean()),
            DataType::Float32 | DataType::Float64 => JsonWriter::Float(array),
            DataType::Decimal128(..) => JsonWriter::Plain(TextWriter::new(array, zone)?),
            t if t.is_integer() => JsonWriter::Plain(TextWriter::new(array, zone)?),
            DataType::List(_) => JsonWriter::List(array, zone),
            DataType::Struct(fields) => {
                let columns = array.as_struct().columns();
                let writers = fields.iter().zip(columns).map(|(f, c)| Ok((f.name().clone(), JsonWriter::new(c, zone)?)));
                JsonWriter::Struct(writers.collect::<Result<_>>()?)
            }
            _ => JsonWriter::Quoted(TextWriter::new(array, zone)?),
        })
    }

    fn write(&self, array: &dyn Array, row: usize, out: &mut Vec<u8>) -> Result<()> {
        if array.is_null(row) || *array.data_type() == DataType::Null {
            out.extend_from_slice(b"null");
            return Ok(());
        }
        match self {
            JsonWriter::Boolean(values) => out.extend_from_slice(if values.value(row) { b"true" } else { b"false" }),
            JsonWriter::Plain(writer) => writer.write(row, out),
            JsonWriter::Float(values) => {
                let from = out.len();
                match values.data_type() {
                    DataType::Float32 => write_f32(out, values.as_primitive::<Float32Type>().value(row)),
                    _ => write_f64(out, values.as_primitive::<Float64Type>().value(row)),
                }
                // NaN and infinities are strings: JSON has no such numbers.
                if out.ends_with(b"N") || out.ends_with(b"y") {
                    out.insert(from, b'"');
                    out.push(b'"');
                }
            }
            JsonWriter::Quoted(writer) => {
                let mut text = Vec::new();
                writer.write(row, &mut text);
                quote(&String::from_utf8_lossy(&text), out);
            }
            JsonWriter::List(values, zone) => {
                let items = values.as_list::<i32>().value(row);
                let writer = JsonWriter::new(&items, *zone)?;
                out.push(b'[');
                for i in 0..items.len() {
                    if i > 0 {
                        out.push(b',');
                    }
                    writer.write(&items, i, out)?;
                }
                out.push(b']');
            }
            JsonWriter::Struct(fields) => {
                let columns = array.as_struct().columns();
                out.push(b'{');
                for (i, ((name, writer), column)) in fields.iter().zip(columns).enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    quote(name, out);
                    out.push(b':');
                    writer.write(column, row, out)?;
                }
                out.push(b'}');
            }
        }
        Ok(())
    }
}

/// Writes rows; the first error, if there is one, is the result.
fn build_json(rows: usize, mut write: impl FnMut(usize, &mut Vec<u8>) -> Result<Option<()>>) -> Result<ArrayRef> {
    let mut failure = None;
    let array = build_text(rows, |r, out| match write(r, out) {
        Ok(done) => done,
        Err(e) => {
            failure.get_or_insert(e);
            None
        }
    })?;
    failure.map_or(Ok(array), Err)
}

fn string(call: &Call) -> Result<ArrayRef> {
    let arg = call.arg(0)?;
    let writer = JsonWriter::new(&arg.array, call.zone()?)?;
    build_json(call.rows, |r, out| {
        let i = arg.index(r);
        if arg.array.is_null(i) || *arg.array.data_type() == DataType::Null {
            return Ok(None);
        }
        writer.write(&arg.array, i, out).map(Some)
    })
}

fn quoted(call: &Call) -> Result<ArrayRef> {
    let texts = call.text(0)?;
    build_text(call.rows, |r, out| {
        quote(texts.get(r)?, out);
        Some(())
    })
}

fn unquoted(call: &Call) -> Result<ArrayRef> {
    let texts = call.text(0)?;
    build_text(call.rows, |r, out| {
        let text = texts.get(r)?;
        let string = text.len() >= 2 && text.starts_with('"') && text.ends_with('"') && kind(text).is_some();
        out.extend_from_slice(if string { unescape(&text[1..text.len() - 1]) } else { text.into() }.as_bytes());
        Some(())
    })
}

fn object(call: &Call, nulls: bool) -> Result<ArrayRef> {
    if !call.len().is_multiple_of(2) {
        return exec_err!("JSON_OBJECT needs a value for each key");
    }
    let keys = (0..call.len()).step_by(2).map(|i| call.text(i)).collect::<Result<Vec<_>>>()?;
    let values = (1..call.len()).step_by(2).map(|i| call.arg(i)).collect::<Result<Vec<_>>>()?;
    let zone = call.zone()?;
    let writers = values.iter().map(|v| JsonWriter::new(&v.array, zone)).collect::<Result<Vec<_>>>()?;
    build_json(call.rows, |r, out| {
        out.push(b'{');
        let mut first = true;
        for ((key, value), writer) in keys.iter().zip(&values).zip(&writers) {
            let i = value.index(r);
            if !nulls && (value.array.is_null(i) || *value.array.data_type() == DataType::Null) {
                continue;
            }
            let Some(key) = key.get(r) else { return exec_err!("a key of JSON_OBJECT is NULL") };
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            quote(key, out);
            out.push(b':');
            writer.write(&value.array, i, out)?;
        }
        out.push(b'}');
        Ok(Some(()))
    })
}

fn array(call: &Call, nulls: bool) -> Result<ArrayRef> {
    let values = (0..call.len()).map(|i| call.arg(i)).collect::<Result<Vec<_>>>()?;
    let zone = call.zone()?;
    let writers = values.iter().map(|v| JsonWriter::new(&v.array, zone)).collect::<Result<Vec<_>>>()?;
    build_json(call.rows, |r, out| {
        out.push(b'[');
        let mut first = true;
        for (value, writer) in values.iter().zip(&writers) {
            let i = value.index(r);
            if !nulls && (value.array.is_null(i) || *value.array.data_type() == DataType::Null) {
                continue;
            }
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            writer.write(&value.array, i, out)?;
        }
        out.push(b']');
        Ok(Some(()))
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, failure};

    const TEXT: &str = r#"'{"s": "x\ny", "n": 12, "f": 1.50, "b": true, "z": null, "o": {"k": [1, 2]}, "t": "7"}'"#;

    #[test]
    fn values() {
        check("json_value", &[TEXT, "'$.s'"], "x\ny");
        check("json_value", &[TEXT, "'$.n'"], "12");
        check("json_value", &[TEXT, "'$.f'"], "1.5");
        check("json_value", &[TEXT, "'$.b'"], "true");
        check("json_value", &[TEXT, "'$.z'"], "NULL");
        check("json_value", &[TEXT, "'$.o'"], "NULL");
        check("json_value", &["'no json'", "'$.o'"], "NULL");
        check("json_value_as_bigint", &[TEXT, "'$.t'"], "7");
        check("json_value_as_integer", &[TEXT, "'$.f'"], "NULL");
        check("json_value_as_double", &[TEXT, "'$.n'"], "12.0");
        check("json_value_as_boolean", &[TEXT, "'$.b'"], "TRUE");
        assert!(failure("json_value", &[TEXT, "'s'"]).contains("JSON_VALUE: the JSON path 's' has to begin with $"));
    }

    #[test]
    fn structures() {
        check("json_query", &[TEXT, "'$.o'"], r#"{"k":[1,2]}"#);
        check("json_query", &[TEXT, "'$.n'"], "NULL");
        check("json_query", &[TEXT, "'$.n'", "'CONDITIONAL'"], "[12]");
        check("json_query", &[TEXT, "'$.o.k[*]'"], "[1,2]");
        check("json_exists", &[TEXT, "'$.z'"], "TRUE");
        check("json_exists", &[TEXT, "'$.y'"], "FALSE");
        check("json_exists", &["'x'", "'$.y'"], "FALSE");
        check("is_json", &["'[1]'"], "TRUE");
        check("is_json", &["'[1'"], "FALSE");
        check("is_json", &["'[1]'", "'OBJECT'"], "FALSE");
    }

    #[test]
    fn writing() {
        check("json_string", &["1.5e0"], "1.5");
        check("json_string", &["'a\"b'"], r#""a\"b""#);
        check("json_string", &["NULL"], "NULL");
        check("json_quote", &["'a\"b'"], r#""a\"b""#);
        check("json_unquote", &[r#"'"a\"b"'"#], "a\"b");
        check("json_unquote", &["'[1]'"], "[1]");
        check("json_object", &["'k'", "1", "'n'", "NULL"], r#"{"k":1,"n":null}"#);
        check("json_object_absent", &["'k'", "TRUE", "'n'", "NULL"], r#"{"k":true}"#);
        check("json_array", &["'a'", "NULL", "DATE '2024-01-01'"], r#"["a","2024-01-01"]"#);
        check("json_array_null", &["1", "NULL"], "[1,null]");
    }
}
