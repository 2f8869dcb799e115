//! Tests of `function`.

use crate::ast::{FunctionReturns, StatementKind};
use crate::parse::parse_script;

/// A function in one line, or the error with the text it points at.
#[track_caller]
fn check(script: &str, expect: &str) {
    let shown = match parse_script(script) {
        Err(e) => {
            assert!(e.help.is_some(), "{script}");
            format!("{} @ {}", e.message, e.span.expect("a place").text(script))
        }
        Ok(statements) => match &statements[0].kind {
            StatementKind::CreateFunction(f) => {
                let columns = |c: &[(sqlparser::ast::Ident, arrow::datatypes::DataType)]| {
                    c.iter().map(|(n, t)| format!("{n} {t}")).collect::<Vec<_>>().join(", ")
                };
                let returns = match &f.returns {
                    FunctionReturns::Value(t) => t.to_string(),
                    FunctionReturns::Table(c) => format!("({})", columns(c)),
                };
                let options: Vec<String> = f.options.iter().map(|o| format!("{}={}", o.key, o.value)).collect();
                format!("{}({}) -> {returns}: {} [{}]", f.name, columns(&f.parameters), f.command, options.join(","))
            }
            StatementKind::DropFunction { if_exists, name } => format!("drop {name} {if_exists}"),
            other => panic!("{other:?}"),
        },
    };
    assert_eq!(shown, expect, "{script}");
}

#[test]
fn functions() {
    check("CREATE FUNCTION f RETURNS INT LANGUAGE PROCESS AS 'x'", "f() -> Int32: x []");
    check(
        "CREATE TEMPORARY FUNCTION IF NOT EXISTS f (a BIGINT, b STRING NOT NULL) RETURNS DOUBLE LANGUAGE PROCESS AS 'x y' WITH ('timeout' = '1s')",
        "f(a Int64, b Utf8) -> Float64: x y [timeout=1s]",
    );
    check("CREATE FUNCTION f AS 'x' LANGUAGE PROCESS RETURNS TABLE (a INT, b STRING)", "f() -> (a Int32, b Utf8): x []");
    check("DROP FUNCTION IF EXISTS f", "drop f true");
    check("DROP TEMPORARY FUNCTION f", "drop f false");
}

#[test]
fn what_is_refused() {
    let java = "LANGUAGE JAVA is not supported: no Java virtual machine runs in this process @ JAVA";
    check("CREATE FUNCTION f AS 'com.X' LANGUAGE JAVA USING JAR 'x.jar'", java);
    check("CREATE FUNCTION f AS 'm.f' LANGUAGE PYTHON", "LANGUAGE PYTHON is not supported: no Python runs in this process @ PYTHON");
    check(
        "CREATE FUNCTION f AS 'com.X'",
        "a function without LANGUAGE would be a class of Java, and no Java runs in this process @ CREATE FUNCTION f AS 'com.X'",
    );
    check("CREATE FUNCTION f LANGUAGE PROCESS AS 'x'", "what the function returns is missing @ CREATE FUNCTION f LANGUAGE PROCESS AS 'x'");
    check(
        "CREATE FUNCTION f (a INT) RETURNS TABLE (b INT) LANGUAGE PROCESS AS 'x'",
        "a function that returns a TABLE gets all columns of the table that it is called with @ CREATE FUNCTION f (a INT) RETURNS TABLE (b INT) LANGUAGE PROCESS AS 'x'",
    );
}
