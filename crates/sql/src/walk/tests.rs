//! Tests of `walk`.

use std::convert::Infallible;

use sqlparser::ast::Ident;

use super::*;
use crate::ast::StatementKind;

fn parsed(text: &str) -> Query {
    let statement = crate::parse_script(text).expect("parses").remove(0);
    let StatementKind::Query(query) = statement.kind else { panic!("a query") };
    *query
}

#[test]
fn nodes_come_before_what_they_hold() {
    let mut seen = Vec::new();
    let Ok(()) = query::<Infallible>(&parsed("SELECT a + b FROM t WHERE c"), &mut |node| {
        seen.push(match node {
            Node::Query(_) => "query".to_string(),
            Node::Select(_) => "select".to_string(),
            Node::TableFactor(factor) => format!("factor {factor}"),
            Node::Relation(name) => format!("relation {name}"),
            Node::Expr(expr) => expr.to_string(),
        });
        Ok(())
    });
    assert_eq!(seen, ["query", "select", "a + b", "a", "b", "factor t", "relation t", "c"]);
}

#[test]
fn changes_come_on_the_way_in_and_out() {
    let mut tree = parsed("SELECT f(a) FROM t");
    let mut seen = Vec::new();
    let Ok(()) = query_mut::<Infallible>(&mut tree, &mut |node| {
        seen.push(match node {
            NodeMut::Select(_) => "select".to_string(),
            NodeMut::Expr(expr) => {
                let before = expr.to_string();
                if before == "a" {
                    *expr = Expr::Identifier(Ident::new("b"));
                }
                before
            }
            NodeMut::AfterExpr(expr) => format!("after {expr}"),
            NodeMut::AfterTableFactor(factor) => format!("after {factor}"),
            NodeMut::AfterQuery(_) => "after query".to_string(),
        });
        Ok(())
    });
    assert_eq!(seen, ["select", "f(a)", "a", "after b", "after f(b)", "after t", "after query"]);
    assert_eq!(tree.to_string(), "SELECT f(b) FROM t");
}

#[test]
fn the_first_error_ends_a_walk() {
    let mut seen = Vec::new();
    let mut step = |name: String| {
        let result = if name == "b" { Err(format!("no {name}")) } else { Ok(()) };
        seen.push(name);
        result
    };
    let tree = parsed("SELECT a + (b + c)");
    let select = tree.body.as_select().expect("a select");
    let sqlparser::ast::SelectItem::UnnamedExpr(sum) = &select.projection[0] else { panic!("an expression") };
    let error: Result<(), String> = Err("no b".to_string());
    assert_eq!(outer_first_mut(&mut sum.clone(), &mut |e| step(e.to_string())), error);
    let read = expr(sum, &mut |node| match node {
        Node::Expr(e) => step(e.to_string()),
        _ => Ok(()),
    });
    assert_eq!(read, error);
    let once = ["a + (b + c)", "a", "(b + c)", "b + c", "b"];
    assert_eq!(seen, [once, once].concat());
}
