//! Calls become nodes; where they cannot, the message says so.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion_expr::logical_plan::table_scan;
use datafusion_expr::{Expr, LogicalPlan, LogicalPlanBuilder, col, lit};

use super::extract::extract;
use super::{Body, Columns, Function, Kind, ProcessTableNode};

fn function(name: &str, parameters: &[DataType], returns: DataType) -> Arc<Function> {
    let parameters = parameters.iter().enumerate().map(|(i, t)| (format!("p{i}"), t.clone())).collect();
    let body = Body::Command { command: "true".into(), options: Default::default() };
    Arc::new(Function { name: name.into(), generation: 0, kind: Kind::Value { parameters, returns }, body })
}

fn call(function: &Arc<Function>, arguments: Vec<Expr>) -> Expr {
    function.scalar().expect("a function of values").call(arguments)
}

fn scan() -> LogicalPlanBuilder {
    let schema = Schema::new(vec![Field::new("a", DataType::Int64, true), Field::new("b", DataType::Utf8, true)]);
    table_scan(Some("t"), &schema, None).expect("a scan")
}

#[track_caller]
fn check(plan: LogicalPlan, expect: &str) {
    let columns = |p: &LogicalPlan| p.schema().iter().map(|(q, f)| (q.cloned(), f.name().clone())).collect::<Vec<_>>();
    let before = columns(&plan);
    match extract(plan) {
        Ok(plan) => {
            assert_eq!(columns(&plan), before, "the columns stay as they are");
            let shown: Vec<String> = plan.display_indent().to_string().lines().map(|l| l.trim().to_string()).collect();
            assert_eq!(shown.join("; "), expect);
        }
        Err(e) => assert!(e.to_string().contains(expect), "{e}"),
    }
}

#[test]
fn calls_become_nodes() {
    let f = function("f", &[DataType::Int64], DataType::Int64);
    let g = function("g", &[DataType::Utf8, DataType::Int64], DataType::Utf8);
    let fa = call(&f, vec![col("t.a")]);
    // The same call twice is made once, and names stay.
    let twice = scan().project(vec![fa.clone() + lit(1i64), fa.clone().alias("x")]).unwrap().build().unwrap();
    check(twice, "Projection: __call_0 + Int64(1) AS f(t.a) + Int64(1), __call_0 AS x; ProcessCall: f(t.a) AS __call_0; TableScan: t");
    // Inner calls come first.
    let nested = scan().project(vec![call(&g, vec![col("t.b"), fa.clone()]).alias("y")]).unwrap().build().unwrap();
    check(nested, "Projection: __call_1 AS y; ProcessCall: g(t.b, __call_0) AS __call_1; ProcessCall: f(t.a) AS __call_0; TableScan: t");
    // What needs no call is asked first.
    let filter = scan().filter(fa.clone().gt(lit(1i64)).and(col("t.b").eq(lit("x")))).unwrap().build().unwrap();
    check(
        filter,
        "Projection: t.a, t.b; Filter: __call_0 > Int64(1); ProcessCall: f(t.a) AS __call_0; Filter: t.b = Utf8(\"x\"); TableScan: t",
    );
    // An argument gets the type of its parameter.
    let narrow = scan().project(vec![call(&f, vec![lit(1i32)]).alias("x")]).unwrap().build().unwrap();
    check(narrow, "Projection: __call_0 AS x; ProcessCall: f(CAST(Int32(1) AS Int64)) AS __call_0; TableScan: t");
}

#[test]
fn misplaced_calls() {
    let f = function("f", &[DataType::Int64], DataType::Int64);
    let fa = call(&f, vec![col("t.a")]);
    let sorted = scan().sort(vec![fa.clone().sort(true, false)]).unwrap().build().unwrap();
    check(sorted, "not in ORDER BY; compute it first: FROM (SELECT *, f(…) AS x FROM t)");
    let grouped = scan().aggregate(vec![fa], Vec::<Expr>::new()).unwrap().build().unwrap();
    check(grouped, "not in an aggregate function or in GROUP BY");
}

#[test]
fn a_table_function_gives_keys_then_columns() {
    let columns = Columns::Fixed(vec![Field::new("n", DataType::Int64, true)]);
    let body = Body::Command { command: "true".into(), options: Default::default() };
    let function = Arc::new(Function { name: "f".into(), generation: 1, kind: Kind::Table { columns }, body });
    let input = scan().build().unwrap();
    let node = ProcessTableNode::try_new(input.clone(), function.clone(), vec![col("t.b")], None, Some("u".into())).unwrap();
    assert_eq!(format!("{node:?}"), "ProcessTable: f#1 PARTITION BY t.b UID 'u'");
    let names: Vec<&str> = datafusion_expr::UserDefinedLogicalNodeCore::schema(&node).fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!(names, ["b", "n"]);
    let error = ProcessTableNode::try_new(input, function, Vec::new(), Some(col("t.a")), None).unwrap_err().to_string();
    assert!(error.contains("on_time takes a TIMESTAMP(3)"), "{error}");
}
