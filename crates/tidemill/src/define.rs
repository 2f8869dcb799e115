//! `-D NAME=VALUE`: replaces `${NAME}`, and `${NAME:-default}`, in the text of a job.

use std::collections::BTreeMap;

use tidemill_format::options::nearest;
use tidemill_sql::SqlError;
use tidemill_sql::diagnostic::Span;

/// What the text stands within.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    Code,
    /// Text or a name, up to this quote.
    Quotes(char),
    /// `-- …` up to the end of the line.
    Line,
    /// `/* … */`
    Block,
}

/// The text with the value in place of each `${NAME}`, or the default of `${NAME:-default}` if there is
/// none. Values are taken as they are, once.
///
/// # Errors
/// A name that has no value, unless it stands in a comment.
pub fn substitute(text: &str, values: &BTreeMap<String, String>) -> Result<String, SqlError> {
    let mut out = String::with_capacity(text.len());
    let mut within = Within::Code;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let mut taken = first.len_utf8();
        if let Some(inner) = placeholder(rest) {
            let (name, default) = match inner.split_once(":-") {
                Some((name, default)) if is_name(name) => (name, Some(default)),
                _ => (inner, None),
            };
            let length = inner.len() + "${}".len();
            let at = text.len() - rest.len();
            match values.get(name).map(String::as_str).or(default) {
                Some(value) => {
                    out.push_str(value);
                    rest = &rest[length..];
                    continue;
                }
                None if !matches!(within, Within::Line | Within::Block) && is_name(name) => {
                    return Err(undefined(name, Span::new(at, at + length), values));
                }
                None => {}
            }
        }
        match within {
            Within::Code => match first {
                '\'' | '`' => within = Within::Quotes(first),
                '-' if rest.starts_with("--") => within = Within::Line,
                // A hint looks like a comment and is none.
                '/' if rest.starts_with("/*") && !rest.starts_with("/*+") => {
                    within = Within::Block;
                    taken = 2;
                }
                _ => {}
            },
            Within::Quotes(quote) if first == quote => within = Within::Code,
            Within::Line if first == '\n' => within = Within::Code,
            Within::Block if rest.starts_with("*/") => {
                within = Within::Code;
                taken = 2;
            }
            _ => {}
        }
        out.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    Ok(out)
}

/// What stands between the braces if the text begins with `${…}`.
fn placeholder(text: &str) -> Option<&str> {
    let inner = text.strip_prefix("${")?;
    inner.find('}').map(|end| &inner[..end])
}

/// Whether somebody means a definition by this, and not, say, a part of a regular expression.
fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
}

fn undefined(name: &str, span: Span, values: &BTreeMap<String, String>) -> SqlError {
    let known: Vec<&str> = values.keys().map(String::as_str).collect();
    let error = SqlError::at(span, format!("${{{name}}} has no value"));
    match nearest(name, &known) {
        Some(near) => error.with_help(format!("give it with -D {name}=VALUE; there is a value for {near}")),
        None => error.with_help(format!("give it with -D {name}=VALUE")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(text: &str) -> Result<String, SqlError> {
        let values = [("DIR", "/data"), ("N", "3"), ("SELF", "${N}"), ("odd name", "x")];
        substitute(text, &values.map(|(k, v)| (k.to_string(), v.to_string())).into())
    }

    #[track_caller]
    fn check(text: &str, expect: &str) {
        assert_eq!(replaced(text).unwrap(), expect);
    }

    #[track_caller]
    fn check_undefined(text: &str, place: &str, help: &str) {
        let error = replaced(text).unwrap_err();
        assert_eq!((error.span.unwrap().text(text), error.help.as_deref()), (place, Some(help)), "{text}");
    }

    #[test]
    fn values_take_the_place_of_names() {
        check("'path' = '${DIR}/é.csv' LIMIT ${N}${N}", "'path' = '/data/é.csv' LIMIT 33");
        check("${SELF} ${odd name}", "${N} x");
        check("${N:-7} ${M:-7} '${M:-a b}' ${M:-}${2:-x}", "3 7 'a b' ${2:-x}");
        check("-- below ${DIR}, or ${OTHER}\n${N}", "-- below /data, or ${OTHER}\n3");
        check("/* ${OTHER} '*/'${N}'", "/* ${OTHER} '*/'3'");
        check("'a--b' ${N} '/*' ${N}", "'a--b' 3 '/*' 3");
        check("'^x${2}$' '${' '$DIR'", "'^x${2}$' '${' '$DIR'");
    }

    #[test]
    fn a_name_without_a_value_is_an_error() {
        check_undefined("é '${OUT}/x'", "${OUT}", "give it with -D OUT=VALUE");
        check_undefined("-- c\n/**/ ${DRI}", "${DRI}", "give it with -D DRI=VALUE; there is a value for DIR");
        check_undefined("'it''s -- ${X1}'", "${X1}", "give it with -D X1=VALUE");
        check_undefined("t /*+ OPTIONS('path' = '${P_}') */", "${P_}", "give it with -D P_=VALUE");
    }
}
