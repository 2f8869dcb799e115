//! The clause from text to what it is decoded to, and its errors.

use super::{MatchClause, PatternTree, RowsOfMatch, SkipTo, match_clause};
use crate::ast::StatementKind;
use crate::parse_script;

fn clause(script: &str) -> MatchClause {
    let statements = parse_script(script).unwrap_or_else(|e| panic!("{}", e.render("q.sql", script, false)));
    let StatementKind::Query(query) = &statements[0].kind else { panic!("a query") };
    let relation = &query.body.as_select().expect("a select").from[0].relation;
    match_clause(relation).unwrap_or_else(|| panic!("no clause: {relation}"))
}

/// A pattern with every quantifier as bounds and mode.
fn show(tree: &PatternTree) -> String {
    let list = |parts: &[PatternTree], between: &str| parts.iter().map(show).collect::<Vec<_>>().join(between);
    match tree {
        PatternTree::Variable(name) => name.value.clone(),
        PatternTree::Sequence(parts) => format!("({})", list(parts, " ")),
        PatternTree::Alternatives(parts) => format!("[{}]", list(parts, "|")),
        PatternTree::Permute(parts) => format!("P[{}]", list(parts, ",")),
        PatternTree::Exclude(of, _) => format!("-{}-", show(of)),
        PatternTree::Repeat { of, min, max, greedy, .. } => {
            let max = max.map(|m| m.to_string()).unwrap_or_default();
            format!("{}{{{min},{max}}}{}", show(of), if *greedy { "" } else { "?" })
        }
    }
}

#[track_caller]
fn pattern(text: &str, expect: &str) {
    let found = clause(&format!("SELECT * FROM t MATCH_RECOGNIZE (ORDER BY rt PATTERN ({text}) DEFINE A AS a > 1)"));
    assert_eq!(show(&found.pattern), expect, "{text}");
}

/// The script must fail with this message, pointing at this text.
#[track_caller]
fn fails(script: &str, message: &str, at: &str) {
    let error = parse_script(script).expect_err(script);
    assert_eq!((error.message.as_str(), error.span.map(|s| s.text(script)).unwrap_or_default()), (message, at), "{script}\n{error:?}");
}

#[test]
fn patterns() {
    pattern("A", "A");
    pattern("A B C", "(A B C)");
    pattern("A* B+ C?", "(A{0,} B{1,} C{0,1})");
    pattern("A*? B+? C??", "(A{0,}? B{1,}? C{0,1}?)");
    pattern("A{2} B{2,} C{2,3} D{,3}", "(A{2,2} B{2,} C{2,3} D{0,3})");
    pattern("A{2}? B{2,}? C{2,3}? D{,3}?", "(A{2,2}? B{2,}? C{2,3}? D{0,3}?)");
    pattern("A | B C | D", "[A|(B C)|D]");
    pattern("A|B*|C", "[A|B{0,}|C]");
    pattern("(A | B)+ C", "([A|B]{1,} C)");
    pattern("A (B (C D)?)* E", "(A (B (C D){0,1}){0,} E)");
    pattern("(A{2})+", "A{2,2}{1,}");
    pattern("PERMUTE(A, B+, (C D)) E", "(P[A,B{1,},(C D)] E)");
    pattern("permute(A, B){2}", "P[A,B]{2,2}");
    pattern("A {- B+ C -} D", "(A -(B{1,} C)- D)");
    pattern("`a b` FIRST last", "(a b FIRST last)");
}

#[test]
fn parts() {
    let found = clause(
        "SELECT m.x FROM s.t AS u MATCH_RECOGNIZE (
           PARTITION BY k, u.l ORDER BY rt ASC, id DESC
           MEASURES FINAL LAST(A.p, 1) AS x, CLASSIFIER() AS `first`, COUNT(S.*) AS n
           ALL ROWS PER MATCH WITH UNMATCHED ROWS
           AFTER MATCH SKIP TO FIRST S
           PATTERN (A B) WITHIN INTERVAL '1' HOUR SUBSET S = (A, B), T = (B)
           DEFINE A AS A.p > 1 AND x IN (1, 2), B AS PREV(B.p) < B.p) AS m JOIN r ON m.x = r.x",
    );
    assert_eq!(found.input.to_string(), "s.t AS u");
    assert_eq!(found.partition_by.iter().map(ToString::to_string).collect::<Vec<_>>(), ["k", "u.l"]);
    assert_eq!(found.order_by.iter().map(|(e, up)| format!("{e} {up}")).collect::<Vec<_>>(), ["rt true", "id false"]);
    let named =
        |list: &[(sqlparser::ast::Ident, sqlparser::ast::Expr)]| list.iter().map(|(n, e)| format!("{}: {e}", n.value)).collect::<Vec<_>>();
    assert_eq!(named(&found.measures), ["x: __FINAL(LAST(A.p, 1))", "first: CLASSIFIER()", "n: COUNT(S.*)"]);
    assert_eq!(named(&found.define), ["A: A.p > 1 AND x IN (1, 2)", "B: PREV(B.p) < B.p"]);
    assert_eq!(found.rows, RowsOfMatch::All { unmatched: true });
    assert!(matches!(&found.skip, Some(SkipTo::First(v)) if v.value == "S"));
    assert_eq!(found.within.map(|w| w.to_string()).as_deref(), Some("INTERVAL '1' HOUR"));
    let subsets: Vec<(&str, Vec<&str>)> =
        found.subsets.iter().map(|(s, of)| (s.value.as_str(), of.iter().map(|v| v.value.as_str()).collect())).collect();
    assert_eq!(subsets, [("S", vec!["A", "B"]), ("T", vec!["B"])]);
}

#[test]
fn skips() {
    let skip = |text: &str| {
        let script = format!("SELECT * FROM t MATCH_RECOGNIZE (ORDER BY rt {text} PATTERN (A) DEFINE A AS a > 1)");
        match clause(&script).skip {
            None => "none".to_string(),
            Some(SkipTo::PastLastRow) => "past".into(),
            Some(SkipTo::NextRow) => "next".into(),
            Some(SkipTo::First(v)) => format!("first {}", v.value),
            Some(SkipTo::Last(v)) => format!("last {}", v.value),
        }
    };
    assert_eq!(skip(""), "none");
    assert_eq!(skip("ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW"), "past");
    assert_eq!(skip("AFTER MATCH SKIP TO NEXT ROW"), "next");
    assert_eq!(skip("after match skip to first A"), "first A");
    assert_eq!(skip("AFTER MATCH SKIP TO LAST A"), "last A");
    assert_eq!(skip("AFTER MATCH SKIP TO A"), "last A");
    assert_eq!(skip("AFTER MATCH SKIP TO LAST"), "last LAST");
}

#[test]
fn inputs() {
    let input =
        |from: &str| clause(&format!("SELECT * FROM {from} MATCH_RECOGNIZE (ORDER BY rt PATTERN (A) DEFINE A AS a > 1)")).input.to_string();
    assert_eq!(input("t"), "t");
    assert_eq!(input("t x"), "t x");
    assert_eq!(input("(SELECT a, rt FROM t, u WHERE a > (1)) AS x"), "(SELECT a, rt FROM t, u WHERE a > (1)) AS x");
    assert_eq!(
        input("TABLE(TUMBLE(TABLE t, DESCRIPTOR(rt), INTERVAL '1' DAY))"),
        "TABLE(TUMBLE(__TABLE(t), DESCRIPTOR(rt), INTERVAL '1' DAY))"
    );
    // One behind the other, and one in the other's subquery.
    let twice = input("t MATCH_RECOGNIZE (ORDER BY a PATTERN (B) DEFINE B AS b > 1)");
    assert!(twice.starts_with("TABLE(__MATCH("), "{twice}");
    let inner = input("(SELECT * FROM t MATCH_RECOGNIZE (ORDER BY a PATTERN (B) DEFINE B AS b > 1) AS m WHERE m.a > 1)");
    assert!(inner.starts_with("(SELECT * FROM TABLE(__MATCH("), "{inner}");
}

#[test]
fn positions_are_those_of_the_text() {
    let script = "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY rt PATTERN (A B) DEFINE A AS a > 1); SELECT 1";
    let statements = parse_script(script).expect("two statements");
    assert_eq!(statements[0].span.text(script), &script[..script.len() - 10]);
    assert_eq!(statements[1].span.text(script), "SELECT 1");
    let set = "EXECUTE STATEMENT SET BEGIN INSERT INTO s SELECT * FROM t MATCH_RECOGNIZE (ORDER BY rt PATTERN (A) DEFINE A AS a > 1); END";
    let statements = parse_script(set).expect("a set");
    let StatementKind::StatementSet(inserts) = &statements[0].kind else { panic!("a set") };
    assert!(inserts[0].span.text(set).ends_with("DEFINE A AS a > 1)"), "{:?}", inserts[0].span.text(set));
    let more = "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY rt PATTERN (A) DEFINE A AS a > 1) AS m 5";
    fails(more, "expected the end of the statement, found 5", "5");
}

#[test]
fn errors() {
    let all = |inner: &str| format!("SELECT * FROM t MATCH_RECOGNIZE ({inner})");
    fails(&all("ORDER BY rt MEASURES A.price, B.x AS x PATTERN (A B) DEFINE A AS a > 1"), "this measure has no name", "A");
    fails(&all("ORDER BY rt DEFINE A AS a > 1"), "MATCH_RECOGNIZE: expected PATTERN, found DEFINE", "DEFINE");
    fails(&all("MEASURES A.a AS a ORDER BY rt PATTERN (A) DEFINE A AS a > 1"), "MATCH_RECOGNIZE: expected PATTERN, found ORDER", "ORDER");
    fails(&all("ORDER BY rt PATTERN (A)"), "MATCH_RECOGNIZE: expected DEFINE, found )", ")");
    fails(&all("ORDER BY rt PATTERN () DEFINE A AS a > 1"), "expected a pattern variable, found )", ")");
    fails(&all("ORDER BY rt PATTERN (A || B) DEFINE A AS a > 1"), "expected a pattern variable, found ||", "||");
    fails(&all("ORDER BY rt PATTERN (A, B) DEFINE A AS a > 1"), "no commas stand in a pattern", ",");
    fails(&all("ORDER BY rt PATTERN (A+* B) DEFINE A AS a > 1"), "a quantifier cannot be quantified", "*");
    fails(&all("ORDER BY rt PATTERN (A{3,2}) DEFINE A AS a > 1"), "this quantifier allows nothing", "{");
    fails(&all("ORDER BY rt PATTERN (A{}) DEFINE A AS a > 1"), "this quantifier has no bound", "{");
    fails(&all("ORDER BY rt PATTERN (A B $) DEFINE A AS a > 1"), "the anchor $ is not supported: a stream has no last row", "$");
    fails(&all("ORDER BY rt PATTERN (^ A) DEFINE A AS a > 1"), "the anchor ^ is not supported: a stream has no first row to speak of", "^");
    fails(&all("ORDER BY rt AFTER MATCH SKIP ROW PATTERN (A) DEFINE A AS a > 1"), "MATCH_RECOGNIZE: nothing is skipped by ROW", "ROW");
    fails(&all("ORDER BY rt PATTERN (A) DEFINE A a > 1"), "expected AS behind A, found a", "a");
    fails(
        &all("ORDER BY rt PATTERN (A) DEFINE A AS a > 1 ONE ROW PER MATCH"),
        "expected , or ) behind a condition of DEFINE, found ONE",
        "ONE",
    );
    fails(&all("ORDER BY rt PATTERN (A) DEFINE A AS a >"), "expected an expression, found )", ")");
    let deep = format!("ORDER BY rt PATTERN ({}A{}) DEFINE A AS a > 1", "{- ".repeat(70), " -}".repeat(70));
    let error = parse_script(&all(&deep)).expect_err("too deep");
    assert_eq!(error.message, "the groups of a pattern nest at most 64 deep");
}
