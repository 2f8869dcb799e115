//! Tests of `interval`.

use super::*;
use crate::ast::StatementKind;

#[track_caller]
fn check(text: &str, expect: &str) {
    let statements = crate::parse_script(&format!("SELECT {text}")).expect("parses");
    let StatementKind::Query(query) = &statements[0].kind else { panic!("a query") };
    let select = query.body.as_select().expect("a select");
    let sqlparser::ast::SelectItem::UnnamedExpr(expr) = &select.projection[0] else { panic!("an expression") };
    let shown = interval_ms(expr).map_or_else(|e| e, |ms| ms.to_string());
    assert_eq!(shown, expect, "{text}");
}

#[test]
fn lengths() {
    check("INTERVAL '5' SECOND", "5000");
    check("INTERVAL '5' SECONDS", "5000");
    check("INTERVAL '0.25' SECOND", "250");
    check("INTERVAL '1.5' HOUR", "5400000");
    check("INTERVAL '2' DAY", "172800000");
    check("INTERVAL '1' WEEK", "604800000");
    check("-INTERVAL '5' MINUTE", "-300000");
    check("INTERVAL '-5' MINUTE", "-300000");
    check("INTERVAL -'5' MINUTE", "-300000");
    check("INTERVAL '1:30' MINUTE TO SECOND", "90000");
    check("INTERVAL '1 02:03:04.5' DAY TO SECOND", "93784500");
    check("INTERVAL '10:20' HOUR TO MINUTE", "37200000");
    check("INTERVAL '1' MONTH", "months and years have no fixed length; give days");
    check("INTERVAL '1-2' YEAR TO MONTH", "months and years have no fixed length; give days");
    check("INTERVAL 'x' SECOND", "'x' is not a number");
    check("INTERVAL '1' MINUTE TO SECOND", "'1' does not have the 2 parts of MINUTE TO SECOND");
    check("INTERVAL '99999999999999' DAY", "'99999999999999' is too long an interval");
}
