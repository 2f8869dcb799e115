//! Calls of functions of tables in FROM, decoded: `f(TABLE t PARTITION BY k)` or
//! `f(input => TABLE t PARTITION BY k, on_time => DESCRIPTOR(rt), uid => 'x')`, with and without `TABLE( )`
//! around them. Whether there is such a function is not asked here; the windows are in `window`.

use sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArgOperator, FunctionArguments, Ident, ObjectName, Spanned, TableFactor, Value,
};

use super::window::{decode_descriptor, is_named, is_table_argument, is_window_function, plain_arguments};
use crate::ast::{TableArg, TableCall};
use crate::diagnostic::{LineIndex, SqlError};
use crate::dialect::TABLE_ARGUMENT;

const USAGE: &str = "write f(TABLE t PARTITION BY k), with on_time => DESCRIPTOR(rt) if the function goes by event time; \
                     constants belong into columns of the table";

/// The call of a function of tables that a table factor is; `None` if it is something else. Queries that
/// `parse_script` returns hold no faulty call. The alias stays with the factor.
///
/// # Errors
/// Wrong arguments; the place is that of the argument.
pub(crate) fn table_call(factor: &TableFactor, lines: &LineIndex<'_>) -> Option<Result<TableCall, SqlError>> {
    let (name, args) = match factor {
        TableFactor::Table { name, args: Some(args), .. } => (name, args.args.as_slice()),
        TableFactor::TableFunction { expr: Expr::Function(function), .. } => match &function.args {
            FunctionArguments::List(list) => (&function.name, list.args.as_slice()),
            _ => return None,
        },
        _ => return None,
    };
    if is_window_function(name) || !args.iter().any(|a| value(a).is_some_and(is_table_argument)) {
        return None;
    }
    Some(decode(name, args, lines))
}

/// The expression of an argument.
fn value(arg: &FunctionArg) -> Option<&Expr> {
    match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(e))
        | FunctionArg::Named { arg: FunctionArgExpr::Expr(e), .. }
        | FunctionArg::ExprNamed { arg: FunctionArgExpr::Expr(e), .. } => Some(e),
        _ => None,
    }
}

fn decode(name: &ObjectName, args: &[FunctionArg], lines: &LineIndex<'_>) -> Result<TableCall, SqlError> {
    let span = lines.span(args.iter().fold(name.span(), |span, arg| span.union(&arg.span())));
    let fault =
        |place: sqlparser::tokenizer::Span, message: String| SqlError::new(message).or_at(lines.span(place)).or_at(span).with_help(USAGE);
    let (mut table, mut on_time, mut uid) = (None, None, None);
    for (i, arg) in args.iter().enumerate() {
        let (parameter, value) = match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) if i == 0 => ("INPUT".to_string(), value),
            // A descriptor can only be the time, wherever it stands.
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) if is_descriptor(value) => ("ON_TIME".to_string(), value),
            FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), operator: FunctionArgOperator::RightArrow } => {
                (name.value.to_ascii_uppercase(), value)
            }
            other => return Err(fault(other.span(), format!("{name}: {other} cannot be an argument of a function of tables"))),
        };
        let twice = match parameter.as_str() {
            "ON_TIME" => on_time.replace(decode_descriptor(&name.to_string(), value, &fault)?).is_some(),
            "UID" => match value {
                Expr::Value(text) => match &text.value {
                    Value::SingleQuotedString(text) if !text.is_empty() => uid.replace(text.clone()).is_some(),
                    _ => return Err(fault(value.span(), format!("{name}: uid is a text in single quotes"))),
                },
                _ => return Err(fault(value.span(), format!("{name}: uid is a text in single quotes"))),
            },
            // Flink's functions name their table as they like; there is one here.
            _ if is_table_argument(value) => table.replace(decode_table(name, value, &fault)?).is_some(),
            _ => return Err(fault(value.span(), format!("{name} has no argument {parameter}; there are input, on_time and uid"))),
        };
        if twice {
            return Err(fault(value.span(), format!("{name}: {} is there twice", parameter.to_ascii_lowercase())));
        }
    }
    let Some((input, partition_by)) = table else { return Err(fault(name.span(), format!("{name}: its table is missing"))) };
    Ok(TableCall { name: name.clone(), input, partition_by, on_time, uid, span })
}

fn is_descriptor(value: &Expr) -> bool {
    matches!(value, Expr::Function(f) if is_named(f, "DESCRIPTOR"))
}

fn decode_table(
    name: &ObjectName,
    expr: &Expr,
    fault: &dyn Fn(sqlparser::tokenizer::Span, String) -> SqlError,
) -> Result<(TableArg, Vec<Ident>), SqlError> {
    let args = match expr {
        Expr::Function(f) if is_named(f, TABLE_ARGUMENT) => plain_arguments(f).unwrap_or_default(),
        other => return Err(fault(other.span(), format!("{name}: its input must be TABLE and a name, or TABLE (query), not {other}"))),
    };
    let Some((table, keys)) = args.split_first() else { return Err(fault(expr.span(), format!("{name}: TABLE needs a name"))) };
    let input = match table {
        Expr::Subquery(query) => TableArg::Query(query.clone()),
        Expr::Identifier(ident) => TableArg::Name(ObjectName::from(vec![ident.clone()])),
        Expr::CompoundIdentifier(idents) => TableArg::Name(ObjectName::from(idents.clone())),
        other => return Err(fault(other.span(), format!("{name}: TABLE needs the name of a table, not {other}"))),
    };
    let key = |key: &&Expr| match key {
        Expr::Identifier(ident) => Ok(ident.clone()),
        other => Err(fault(other.span(), format!("{name}: PARTITION BY takes columns, not {other}"))),
    };
    Ok((input, keys.iter().map(key).collect::<Result<_, _>>()?))
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
                match table_call(&select.from[0].relation, &LineIndex::new(&script)) {
                    None => "no call".into(),
                    Some(call) => {
                        let call = call.expect("checked by the parser");
                        let input = match &call.input {
                            TableArg::Name(name) => name.to_string(),
                            TableArg::Query(query) => format!("({query})"),
                        };
                        let keys: Vec<String> = call.partition_by.iter().map(ToString::to_string).collect();
                        let time = call.on_time.map(|t| t.to_string()).unwrap_or_default();
                        format!("{} {input} by [{}] on [{time}] uid [{}]", call.name, keys.join(","), call.uid.unwrap_or_default())
                    }
                }
            }
        };
        assert_eq!(shown, expect, "{from}");
    }

    #[test]
    fn calls() {
        check("f(TABLE t PARTITION BY k)", "f t by [k] on [] uid []");
        check("TABLE(f(TABLE t)) AS x", "f t by [] on [] uid []");
        check("f(input => TABLE t PARTITION BY k, l, on_time => DESCRIPTOR(rt), uid => 'u')", "f t by [k,l] on [rt] uid [u]");
        check("f(TABLE (SELECT a FROM t), DESCRIPTOR(rt))", "f (SELECT a FROM t) by [] on [rt] uid []");
        check("TUMBLE(TABLE t, DESCRIPTOR(rt), INTERVAL '1' DAY)", "no call");
        check("f(TABLE t, 5)", "f: 5 cannot be an argument of a function of tables @ 5");
        check("f(TABLE t, speed => 5)", "f has no argument SPEED; there are input, on_time and uid @ 5");
    }
}
