//! The window functions in FROM, decoded: `TUMBLE`, `HOP`, `CUMULATE` and `SESSION`, with positional
//! or named arguments, with and without `TABLE( )` around them. The group functions of the same names
//! (`GROUP BY TUMBLE(rt, …)`) are ordinary calls and none of this module's business.

use sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgOperator, FunctionArguments, Ident, ObjectName, Spanned, TableFactor,
    UnaryOperator,
};

use crate::ast::{TableArg, WindowCall, WindowIntervals, WindowKind};
use crate::diagnostic::{LineIndex, SqlError};
use crate::dialect::TABLE_ARGUMENT;

/// The arguments of each function in their order; the last of all but SESSION may be left out.
fn parameters(kind: WindowKind) -> &'static [&'static str] {
    match kind {
        WindowKind::Tumble => &["DATA", "TIMECOL", "SIZE", "OFFSET"],
        WindowKind::Hop => &["DATA", "TIMECOL", "SLIDE", "SIZE", "OFFSET"],
        WindowKind::Cumulate => &["DATA", "TIMECOL", "STEP", "SIZE", "OFFSET"],
        WindowKind::Session => &["DATA", "TIMECOL", "GAP"],
    }
}

/// How the call is written, for help.
fn usage(kind: WindowKind) -> &'static str {
    match kind {
        WindowKind::Tumble => "write TUMBLE(TABLE t, DESCRIPTOR(rt), INTERVAL '10' SECOND), the length of a window",
        WindowKind::Hop => "write HOP(TABLE t, DESCRIPTOR(rt), INTERVAL '5' SECOND, INTERVAL '10' SECOND): the slide, then the size",
        WindowKind::Cumulate => "write CUMULATE(TABLE t, DESCRIPTOR(rt), INTERVAL '1' HOUR, INTERVAL '1' DAY): the step, then the size",
        WindowKind::Session => "write SESSION(TABLE t PARTITION BY k, DESCRIPTOR(rt), INTERVAL '5' MINUTE), the gap",
    }
}

fn kind_of(name: &ObjectName) -> Option<WindowKind> {
    let [part] = name.0.as_slice() else { return None };
    let ident = part.as_ident().filter(|i| i.quote_style.is_none())?;
    [WindowKind::Tumble, WindowKind::Hop, WindowKind::Cumulate, WindowKind::Session]
        .into_iter()
        .find(|k| ident.value.eq_ignore_ascii_case(k.name()))
}

/// Whether a function is one of the four.
pub(crate) fn is_window_function(name: &ObjectName) -> bool {
    kind_of(name).is_some()
}

/// Whether an expression is a table argument.
pub(crate) fn is_table_argument(expr: &Expr) -> bool {
    matches!(expr, Expr::Function(f) if is_named(f, TABLE_ARGUMENT))
}

pub(super) fn is_named(function: &Function, name: &str) -> bool {
    matches!(function.name.0.as_slice(), [part] if part.as_ident().is_some_and(|i| i.quote_style.is_none() && i.value.eq_ignore_ascii_case(name)))
}

/// The plain arguments of a function; `None` if it has any that are not plain.
pub(super) fn plain_arguments(function: &Function) -> Option<Vec<&Expr>> {
    match &function.args {
        FunctionArguments::List(list) => list
            .args
            .iter()
            .map(|arg| match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => Some(e),
                _ => None,
            })
            .collect(),
        _ => None,
    }
}

/// The call of a window function that a table factor is; `None` if it is something else. Queries
/// that `parse_script` returns hold no faulty call. The alias stays with the factor.
///
/// # Errors
/// Wrong arguments; the place is that of the argument.
pub fn window_call(factor: &TableFactor, lines: &LineIndex<'_>) -> Option<Result<WindowCall, SqlError>> {
    let (name, args) = match factor {
        TableFactor::Table { name, args: Some(args), .. } => (name, args.args.as_slice()),
        TableFactor::TableFunction { expr: Expr::Function(function), .. } => match &function.args {
            FunctionArguments::List(list) => (&function.name, list.args.as_slice()),
            _ => return None,
        },
        _ => return None,
    };
    let kind = kind_of(name)?;
    Some(decode(kind, name, args, lines))
}

fn decode(kind: WindowKind, name: &ObjectName, args: &[FunctionArg], lines: &LineIndex<'_>) -> Result<WindowCall, SqlError> {
    let whole = args.iter().fold(name.span(), |span, arg| span.union(&arg.span()));
    let whole = lines.span(whole);
    let function = kind.name();
    let fault = |place: sqlparser::tokenizer::Span, message: String| {
        SqlError::new(message).or_at(lines.span(place)).or_at(whole).with_help(usage(kind))
    };
    let mut values = bind(kind, args, &fault)?;
    let mut take = |parameter: &str| {
        let index = parameters(kind).iter().position(|p| *p == parameter)?;
        values[index].take()
    };
    let missing = |parameter: &str| fault(name.span(), format!("{function}: the argument {parameter} is missing"));

    let data = take("DATA").ok_or_else(|| missing("DATA"))?;
    let (input, partition_by) = decode_table(kind, data, &fault)?;
    let time = take("TIMECOL").ok_or_else(|| missing("TIMECOL"))?;
    let time_column = decode_descriptor(function, time, &fault)?;
    let mut intervals = WindowIntervals::default();
    for parameter in &parameters(kind)[2..] {
        let Some(value) = take(parameter) else {
            if *parameter == "OFFSET" {
                continue;
            }
            return Err(missing(parameter));
        };
        let signed = *parameter == "OFFSET";
        let literal = match value {
            Expr::UnaryOp { op: UnaryOperator::Minus, expr } if signed => matches!(**expr, Expr::Interval(_)),
            other => matches!(other, Expr::Interval(_)),
        };
        if !literal {
            return Err(fault(value.span(), format!("{function}: {parameter} must be an INTERVAL literal")));
        }
        let place = match *parameter {
            "SIZE" => &mut intervals.size,
            "SLIDE" => &mut intervals.slide,
            "STEP" => &mut intervals.step,
            "GAP" => &mut intervals.gap,
            _ => &mut intervals.offset,
        };
        *place = Some(value.clone());
    }
    Ok(WindowCall { kind, input, partition_by, time_column, intervals, span: whole })
}

/// The value of each parameter, in their order.
fn bind<'e>(
    kind: WindowKind,
    args: &'e [FunctionArg],
    fault: &dyn Fn(sqlparser::tokenizer::Span, String) -> SqlError,
) -> Result<Vec<Option<&'e Expr>>, SqlError> {
    let function = kind.name();
    let names = parameters(kind);
    let mut values: Vec<Option<&Expr>> = vec![None; names.len()];
    let mut named = 0;
    for (i, arg) in args.iter().enumerate() {
        let (index, value) = match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => {
                if i >= names.len() {
                    return Err(fault(value.span(), format!("{function} takes at most {} arguments", names.len())));
                }
                (i, value)
            }
            FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), operator: FunctionArgOperator::RightArrow } => {
                named += 1;
                match names.iter().position(|n| name.value.eq_ignore_ascii_case(n)) {
                    Some(index) => (index, value),
                    None if name.value.eq_ignore_ascii_case("EMITONLYONUPDATE") && kind == WindowKind::Cumulate => {
                        return Err(fault(name.span, "CUMULATE: EMITONLYONUPDATE is not supported".into()));
                    }
                    None => return Err(fault(name.span, format!("{function} has no argument {name}; it has {}", names.join(", ")))),
                }
            }
            other => return Err(fault(other.span(), format!("{function}: {other} cannot be an argument"))),
        };
        if values[index].replace(value).is_some() {
            return Err(fault(value.span(), format!("{function}: the argument {} is there twice", names[index])));
        }
    }
    if named != 0 && named != args.len() {
        return Err(fault(args[0].span(), format!("{function}: either all arguments are named or none is")));
    }
    Ok(values)
}

fn decode_table(
    kind: WindowKind,
    expr: &Expr,
    fault: &dyn Fn(sqlparser::tokenizer::Span, String) -> SqlError,
) -> Result<(TableArg, Vec<Ident>), SqlError> {
    let function = kind.name();
    let args = match expr {
        Expr::Subquery(query) => return Ok((TableArg::Query(query.clone()), Vec::new())),
        Expr::Function(f) if is_named(f, TABLE_ARGUMENT) => plain_arguments(f).unwrap_or_default(),
        other => {
            return Err(fault(other.span(), format!("{function}: DATA must be TABLE and a name, or a query in parentheses, not {other}")));
        }
    };
    let Some((table, keys)) = args.split_first() else {
        return Err(fault(expr.span(), format!("{function}: TABLE needs the name of a table")));
    };
    let input = match table {
        Expr::Subquery(query) => TableArg::Query(query.clone()),
        Expr::Identifier(ident) => TableArg::Name(ObjectName::from(vec![ident.clone()])),
        Expr::CompoundIdentifier(idents) => TableArg::Name(ObjectName::from(idents.clone())),
        other => return Err(fault(other.span(), format!("{function}: TABLE needs the name of a table, not {other}"))),
    };
    let mut partition_by = Vec::with_capacity(keys.len());
    for key in keys {
        match key {
            Expr::Identifier(ident) => partition_by.push(ident.clone()),
            other => return Err(fault(other.span(), format!("{function}: PARTITION BY takes columns, not {other}"))),
        }
    }
    if kind != WindowKind::Session && !partition_by.is_empty() {
        return Err(fault(partition_by[0].span, format!("{function} takes no PARTITION BY: its windows are the same for all keys")));
    }
    Ok((input, partition_by))
}

pub(super) fn decode_descriptor(
    function: &str,
    expr: &Expr,
    fault: &dyn Fn(sqlparser::tokenizer::Span, String) -> SqlError,
) -> Result<Ident, SqlError> {
    if let Expr::Function(f) = expr
        && is_named(f, "DESCRIPTOR")
    {
        return match plain_arguments(f).as_deref() {
            Some([Expr::Identifier(column)]) => Ok(column.clone()),
            _ => Err(fault(expr.span(), format!("{function}: DESCRIPTOR takes the name of one column"))),
        };
    }
    Err(fault(expr.span(), format!("{function}: TIMECOL must be DESCRIPTOR(column), not {expr}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::StatementKind;
    use crate::parse::parse_script;

    /// A call in one line, or the error with the text it points at.
    #[track_caller]
    fn check(from: &str, expect: &str) {
        let script = format!("SELECT * FROM {from}");
        let shown = match parse_script(&script) {
            Err(e) => format!("{} @ {}", e.message, e.span.expect("a place").text(&script)),
            Ok(statements) => {
                let StatementKind::Query(query) = &statements[0].kind else { panic!("a query") };
                let select = query.body.as_select().expect("a select");
                let lines = LineIndex::new(&script);
                match window_call(&select.from[0].relation, &lines) {
                    None => "no window".into(),
                    Some(call) => show(&call.expect("checked by the parser")),
                }
            }
        };
        assert_eq!(shown, expect, "{from}");
    }

    fn show(call: &WindowCall) -> String {
        let input = match &call.input {
            TableArg::Name(name) => name.to_string(),
            TableArg::Query(query) => format!("({query})"),
        };
        let mut out = format!("{} {input}", call.kind.name());
        if !call.partition_by.is_empty() {
            out += &format!(" by {}", call.partition_by.iter().map(ToString::to_string).collect::<Vec<_>>().join(","));
        }
        out += &format!(" on {}", call.time_column);
        let i = &call.intervals;
        for (name, value) in [("size", &i.size), ("slide", &i.slide), ("step", &i.step), ("gap", &i.gap), ("offset", &i.offset)] {
            if let Some(value) = value {
                out += &format!(" {name}={value}");
            }
        }
        out
    }

    #[test]
    fn positional() {
        check("TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' MINUTES))", "TUMBLE bid on ts size=INTERVAL '10' MINUTES");
        check("TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' MINUTE) AS w", "TUMBLE bid on ts size=INTERVAL '10' MINUTE");
        check(
            "tumble(table bid, descriptor(ts), interval '1' hour, interval '5' minute)",
            "TUMBLE bid on ts size=INTERVAL '1' HOUR offset=INTERVAL '5' MINUTE",
        );
        check(
            "TUMBLE(TABLE c.d.`my bids`, DESCRIPTOR(`t s`), INTERVAL '1' DAY, -INTERVAL '1' HOUR)",
            "TUMBLE c.d.`my bids` on `t s` size=INTERVAL '1' DAY offset=-INTERVAL '1' HOUR",
        );
        check(
            "TABLE(HOP(TABLE b, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND))",
            "HOP b on ts size=INTERVAL '10' SECOND slide=INTERVAL '5' SECOND",
        );
        check(
            "CUMULATE(TABLE b, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '1' DAY)",
            "CUMULATE b on ts size=INTERVAL '1' DAY step=INTERVAL '1' HOUR",
        );
        check("SESSION(TABLE b, DESCRIPTOR(ts), INTERVAL '5' MINUTE)", "SESSION b on ts gap=INTERVAL '5' MINUTE");
        check("SESSION(TABLE b PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' MINUTE)", "SESSION b by k on ts gap=INTERVAL '5' MINUTE");
        check(
            "SESSION(TABLE b PARTITION BY k, `l`, DESCRIPTOR(ts), INTERVAL '5' MINUTE)",
            "SESSION b by k,`l` on ts gap=INTERVAL '5' MINUTE",
        );
        check(
            "SESSION(TABLE b PARTITION BY (k, l), DESCRIPTOR(ts), INTERVAL '5' MINUTE)",
            "SESSION b by k,l on ts gap=INTERVAL '5' MINUTE",
        );
        check("TUMBLE(TABLE 'b.csv', DESCRIPTOR(ts), INTERVAL '1' DAY)", "TUMBLE 'b.csv' on ts size=INTERVAL '1' DAY");
        check("TUMBLE((SELECT * FROM b), DESCRIPTOR(ts), INTERVAL '1' DAY)", "TUMBLE (SELECT * FROM b) on ts size=INTERVAL '1' DAY");
        check("TUMBLE(TABLE (SELECT * FROM b), DESCRIPTOR(ts), INTERVAL '1' DAY)", "TUMBLE (SELECT * FROM b) on ts size=INTERVAL '1' DAY");
    }

    #[test]
    fn named() {
        check(
            "TABLE(TUMBLE(DATA => TABLE b, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '10' MINUTE, `OFFSET` => INTERVAL '1' MINUTE))",
            "TUMBLE b on ts size=INTERVAL '10' MINUTE offset=INTERVAL '1' MINUTE",
        );
        check(
            "HOP(size => INTERVAL '10' SECOND, SLIDE => INTERVAL '5' SECOND, OFFSET => INTERVAL '1' SECOND, TIMECOL => DESCRIPTOR(ts), DATA => TABLE b)",
            "HOP b on ts size=INTERVAL '10' SECOND slide=INTERVAL '5' SECOND offset=INTERVAL '1' SECOND",
        );
        check(
            "SESSION(DATA => TABLE b PARTITION BY k, TIMECOL => DESCRIPTOR(ts), GAP => INTERVAL '5' MINUTE)",
            "SESSION b by k on ts gap=INTERVAL '5' MINUTE",
        );
        check(
            "CUMULATE(DATA => TABLE b, TIMECOL => DESCRIPTOR(ts), STEP => INTERVAL '1' HOUR, SIZE => INTERVAL '1' DAY)",
            "CUMULATE b on ts size=INTERVAL '1' DAY step=INTERVAL '1' HOUR",
        );
    }

    #[test]
    fn others_are_no_windows() {
        check("b", "no window");
        check("UNNEST(a) AS t(x)", "no window");
        check("`TUMBLE`(1)", "no window");
        check("generate(1, 2)", "no window");
    }

    #[test]
    fn faults() {
        check("TUMBLE(b, DESCRIPTOR(ts), INTERVAL '1' DAY)", "TUMBLE: DATA must be TABLE and a name, or a query in parentheses, not b @ b");
        check("TUMBLE(TABLE b, ts, INTERVAL '1' DAY)", "TUMBLE: TIMECOL must be DESCRIPTOR(column), not ts @ ts");
        check("TUMBLE(TABLE b, DESCRIPTOR(ts))", "TUMBLE: the argument SIZE is missing @ TUMBLE");
        check("HOP(TABLE b, DESCRIPTOR(ts), INTERVAL '1' DAY)", "HOP: the argument SIZE is missing @ HOP");
        check("TUMBLE(TABLE b, DESCRIPTOR(ts), n)", "TUMBLE: SIZE must be an INTERVAL literal @ n");
        check("SESSION(TABLE b, DESCRIPTOR(ts), INTERVAL '1' DAY, INTERVAL '1' DAY)", "SESSION takes at most 3 arguments @ '1'");
        check(
            "TUMBLE(DATA => TABLE b, TIMECOL => DESCRIPTOR(ts), SLIDE => INTERVAL '1' DAY)",
            "TUMBLE has no argument SLIDE; it has DATA, TIMECOL, SIZE, OFFSET @ SLIDE",
        );
        check(
            "TUMBLE(TABLE b PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' DAY)",
            "TUMBLE takes no PARTITION BY: its windows are the same for all keys @ k",
        );
        check("TUMBLE(DATA => TABLE b, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '5')", "expected the unit of the interval, found ) @ )");
        check("f(TABLE b)", "no window");
        check("TABLE(TO_CHANGELOG(input => TABLE b))", "no window");
    }
}
