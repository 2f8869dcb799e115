//! Files with options in FROM, as DuckDB has taught people: `read_csv('logs/*.csv', header = true, filename = true)`,
//! `read_files(ARRAY['a.parquet', 'b.csv'], union_by_name = true)`. What the options mean is the file resolver's
//! business.

use std::collections::BTreeMap;

use sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName, Spanned, TableFactor, UnaryOperator, Value,
};

use crate::diagnostic::{LineIndex, SqlError};
use crate::session::FileRequest;

/// The functions, and the format that each names.
const FUNCTIONS: &[(&str, Option<&str>)] = &[
    ("READ_CSV", Some("csv")),
    ("READ_CSV_AUTO", Some("csv")),
    ("READ_JSON", Some("json")),
    ("READ_JSON_AUTO", Some("json")),
    ("READ_NDJSON", Some("json")),
    ("READ_PARQUET", Some("parquet")),
    ("PARQUET_SCAN", Some("parquet")),
    ("READ_AVRO", Some("avro")),
    ("READ_ARROW", Some("arrow")),
    ("READ_ORC", Some("orc")),
    ("READ_XLSX", Some("xlsx")),
    ("READ_FILES", None),
];

const USAGE: &str = "write read_csv('path/*.csv', filename = true); a list of paths is ARRAY['a.csv', 'b.csv']";

/// The files that a table factor names by one of these functions; `None` if it is something else.
///
/// # Errors
/// Wrong arguments; the place is that of the argument.
pub(crate) fn file_call(factor: &TableFactor, lines: &LineIndex<'_>) -> Option<Result<FileRequest, SqlError>> {
    let TableFactor::Table { name, args: Some(args), .. } = factor else { return None };
    let [part] = name.0.as_slice() else { return None };
    let ident = part.as_ident().filter(|i| i.quote_style.is_none())?;
    let (function, format) = FUNCTIONS.iter().find(|(function, _)| ident.value.eq_ignore_ascii_case(function))?;
    Some(decode(&function.to_ascii_lowercase(), *format, name, &args.args, lines))
}

fn decode(
    function: &str,
    format: Option<&str>,
    name: &ObjectName,
    args: &[FunctionArg],
    lines: &LineIndex<'_>,
) -> Result<FileRequest, SqlError> {
    let fault = |place: sqlparser::tokenizer::Span, message: String| {
        SqlError::new(format!("{function}: {message}")).or_at(lines.span(place)).or_at(lines.span(name.span())).with_help(USAGE)
    };
    let mut request = FileRequest { paths: Vec::new(), format: format.map(str::to_string), options: BTreeMap::new() };
    for arg in args {
        let (option, value) = match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::BinaryOp { left, op: BinaryOperator::Eq, right })) => match left.as_ref() {
                Expr::Identifier(option) => (Some(option.value.clone()), right.as_ref()),
                // An option of ours has a hyphen or a period in its name: 'csv.null-literal' = 'NA'.
                Expr::Value(option) => match &option.value {
                    Value::SingleQuotedString(option) => (Some(option.clone()), right.as_ref()),
                    _ => return Err(fault(left.span(), format!("{left} is no name of an option"))),
                },
                other => return Err(fault(other.span(), format!("{other} is no name of an option"))),
            },
            FunctionArg::Named { name: option, arg: FunctionArgExpr::Expr(value), .. } => (Some(option.value.clone()), value),
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => (None, value),
            other => return Err(fault(other.span(), format!("{other} cannot be an argument"))),
        };
        match option {
            None if request.paths.is_empty() => {
                request.paths = paths(value).ok_or_else(|| fault(value.span(), format!("{value} is no path in single quotes")))?;
            }
            None => return Err(fault(value.span(), format!("{value} has no name; options are written name = value"))),
            Some(option) => {
                let option = option.to_ascii_lowercase();
                let text = text(value).ok_or_else(|| fault(value.span(), format!("{value} is no value for the option {option}")))?;
                if request.options.insert(option.clone(), text).is_some() {
                    return Err(fault(arg.span(), format!("the option {option} is there twice")));
                }
            }
        }
    }
    if request.paths.is_empty() {
        return Err(fault(name.span(), "its first argument, a path in single quotes, is missing".to_string()));
    }
    Ok(request)
}

/// One path, or a list of them.
fn paths(value: &Expr) -> Option<Vec<String>> {
    let quoted = |e: &Expr| match e {
        Expr::Value(v) => match &v.value {
            Value::SingleQuotedString(path) if !path.is_empty() => Some(path.clone()),
            _ => None,
        },
        _ => None,
    };
    match value {
        Expr::Array(array) => array.elem.iter().map(quoted).collect(),
        // What the planner makes of ARRAY[…].
        Expr::Function(call) if call.name.to_string().eq_ignore_ascii_case("make_array") => match &call.args {
            FunctionArguments::List(list) => list
                .args
                .iter()
                .map(|arg| match arg {
                    FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => quoted(e),
                    _ => None,
                })
                .collect(),
            _ => None,
        },
        other => quoted(other).map(|path| vec![path]),
    }
}

/// A text, a number, `true` or `false`, or a word.
fn text(value: &Expr) -> Option<String> {
    match value {
        Expr::Value(v) => match &v.value {
            Value::SingleQuotedString(text) | Value::Number(text, _) => Some(text.clone()),
            Value::Boolean(flag) => Some(flag.to_string()),
            _ => None,
        },
        Expr::Identifier(word) => Some(word.value.clone()),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => text(expr).map(|number| format!("-{number}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::StatementKind;
    use crate::parse::parse_script;

    #[track_caller]
    fn check(from: &str, expect: &str) {
        let script = format!("SELECT * FROM {from}");
        let shown = match parse_script(&script) {
            Err(e) => format!("{} @ {}", e.message, e.span.expect("a place").text(&script)),
            Ok(statements) => {
                let StatementKind::Query(query) = &statements[0].kind else { panic!("a query") };
                let select = query.body.as_select().expect("a select");
                match file_call(&select.from[0].relation, &LineIndex::new(&script)) {
                    None => "no call".into(),
                    Some(Ok(request)) => format!("{:?} {:?} {:?}", request.paths, request.format.unwrap_or_default(), request.options),
                    Some(Err(e)) => format!("{} @ {}", e.message, e.span.expect("a place").text(&script)),
                }
            }
        };
        assert_eq!(shown, expect, "{from}");
    }

    #[test]
    fn calls() {
        check("read_csv('a/*.csv')", r#"["a/*.csv"] "csv" {}"#);
        check(
            "READ_PARQUET('a', filename = true, hive_partitioning=TRUE) AS t",
            r#"["a"] "parquet" {"filename": "true", "hive_partitioning": "true"}"#,
        );
        check("read_files(ARRAY['a.csv', 'b.json'], union_by_name => true)", r#"["a.csv", "b.json"] "" {"union_by_name": "true"}"#);
        check("read_csv('a', 'csv.null-literal' = 'NA', delim = '|')", r#"["a"] "csv" {"csv.null-literal": "NA", "delim": "|"}"#);
        check("read_csv('a', 5)", "read_csv: 5 has no name; options are written name = value @ 5");
        check("read_csv(5)", "read_csv: 5 is no path in single quotes @ 5");
        check("read_csv('a', header = x + 1)", "read_csv: x + 1 is no value for the option header @ x + 1");
        check("other('a')", "no call");
    }
}
