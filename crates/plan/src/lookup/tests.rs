//! Tests of lookup joins as plans.

use std::collections::BTreeMap;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion_common::config::ConfigOptions;
use datafusion_expr::{Extension, LogicalPlanBuilder, col, lit};

use super::*;
use crate::catalog::{Column, ColumnKind, WatermarkSpec};
use crate::function::{SessionSettings, scalar_functions};
use crate::optimize::optimize_stream;

fn column(name: &str, data_type: DataType, kind: ColumnKind) -> Column {
    Column { name: name.into(), data_type, nullable: true, kind }
}

fn proctime() -> Expr {
    let functions = scalar_functions(&SessionSettings::default());
    functions.iter().find(|f| f.name() == "proctime").expect("there is one").call(Vec::new())
}

/// `o (id BIGINT, price DOUBLE, pt AS PROCTIME())`.
fn orders(watermark: bool) -> LogicalPlan {
    let table = Table {
        name: "o".into(),
        columns: vec![
            column("id", DataType::Int64, ColumnKind::Physical),
            column("price", DataType::Float64, ColumnKind::Physical),
            column("unused", DataType::Float64, ColumnKind::Physical),
            column("pt", DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())), ColumnKind::Computed(Box::new(proctime()))),
        ],
        watermark: watermark.then(|| WatermarkSpec { column: "pt".into(), expression: col("pt") }),
        primary_key: Vec::new(),
        options: BTreeMap::new(),
    };
    assert!(table.columns[3].is_processing_time() && !table.columns[0].is_processing_time());
    Arc::new(table).scan().expect("a scan")
}

/// `dim (id BIGINT, name STRING)`.
fn dim() -> Arc<Table> {
    Arc::new(Table {
        name: "dim".into(),
        columns: vec![column("id", DataType::Int64, ColumnKind::Physical), column("name", DataType::Utf8, ColumnKind::Physical)],
        watermark: None,
        primary_key: Vec::new(),
        options: BTreeMap::new(),
    })
}

fn lookup(input: LogicalPlan, left: bool) -> LookupJoinNode {
    let keys = vec![(col("id"), "id".to_string())];
    LookupJoinNode::try_new(input, dim(), TableReference::bare("d"), keys, left, LookupHint::default()).expect("a node")
}

fn plan(node: LookupJoinNode) -> LogicalPlan {
    LogicalPlan::Extension(Extension { node: Arc::new(node) })
}

#[test]
fn columns_of_both_sides() {
    let node = lookup(orders(false), true);
    let columns: Vec<String> = node.schema().field_names();
    assert_eq!(columns[columns.len() - 2..], ["d.id'", "d.name"]);
    assert!(node.schema().field(4).is_nullable() && node.width() == 4);
    let hint = LookupHint { ordered: Some(false), capacity: Some(3), ..LookupHint::default() };
    let hinted = LookupJoinNode { hint, ..node }.with_residual(Some(col("d.name").is_not_null()));
    assert_eq!(
        format!("{hinted:?}"),
        "LookupJoin: Left dim AS d ON id = id AND d.name IS NOT NULL LOOKUP('output-mode'='allow_unordered', 'capacity'='3')"
    );
    let wrong = |keys| LookupJoinNode::try_new(orders(false), dim(), TableReference::bare("d"), keys, true, LookupHint::default());
    assert!(wrong(Vec::new()).unwrap_err().to_string().contains("needs a column of dim"));
    assert!(wrong(vec![(lit("x"), "id".into())]).unwrap_err().to_string().contains("is Int64, what it is asked for is Utf8"));
    assert!(wrong(vec![(col("id"), "nix".into())]).unwrap_err().to_string().contains("no physical column nix"));
}

#[test]
fn filters_of_the_input_go_below_and_unused_columns_go() {
    let joined = LogicalPlanBuilder::from(plan(lookup(orders(false), false)))
        .filter(col("price").gt(lit(1.0)).and(col("d.name").eq(lit("x"))))
        .and_then(|b| b.project(vec![col("price"), col("d.name")]))
        .and_then(LogicalPlanBuilder::build)
        .expect("a plan");
    let shown = optimize_stream(joined, &Arc::new(ConfigOptions::new())).expect("optimised").display_indent().to_string();
    let lookup = shown.find("LookupJoin").expect("a lookup join");
    let (above, below) = shown.split_at(lookup);
    assert!(above.contains("Filter: d.name = ") && !above.contains("Filter: o.price"), "{shown}");
    assert!(below.contains("price > Float64(1)") && !below.contains("unused") && !below.contains("proctime"), "{shown}");
}

#[test]
fn processing_time_is_passed_on_as_it_is() {
    let check = |plan: &LogicalPlan, name: &str, expect: bool| {
        let index = plan.schema().fields().iter().position(|f| f.name() == name).expect("a column");
        assert_eq!(is_processing_column(plan, index), expect, "{name}\n{}", plan.display_indent());
    };
    let scan = orders(false);
    check(&scan, "pt", true);
    check(&scan, "id", false);
    check(&orders(true), "pt", false);
    let passed = LogicalPlanBuilder::from(scan.clone())
        .filter(col("id").gt(lit(1i64)))
        .and_then(|b| b.project(vec![col("pt").alias("p"), proctime().alias("q"), col("id"), col("pt").is_null().alias("r")]))
        .and_then(|b| b.alias("v"))
        .and_then(LogicalPlanBuilder::build)
        .expect("a plan");
    for (name, expect) in [("p", true), ("q", true), ("id", false), ("r", false)] {
        check(&passed, name, expect);
    }
    let chained = plan(lookup(scan, true));
    check(&chained, "pt", true);
    check(&chained, "name", false);
    assert!(is_processing_time(&proctime(), &chained) && !is_processing_time(&lit(1), &chained));
}

#[test]
fn what_a_table_is_called_in_a_query() {
    let scan = dim().scan().expect("a scan");
    let view = LogicalPlanBuilder::from(scan)
        .filter(col("id").gt(lit(3i64)))
        .and_then(|b| b.project(vec![col("name").alias("n"), (col("id") + lit(1i64)).alias("more")]))
        .and_then(|b| b.alias("v"))
        .and_then(LogicalPlanBuilder::build)
        .expect("a plan");
    let referred = referred(&view).expect("a table");
    let shown = |exprs: &[Expr]| exprs.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(shown(&referred.columns), ["name", "id + Int64(1)"]);
    assert_eq!(shown(&referred.filters), ["id > Int64(3)"]);
    let grouped = LogicalPlanBuilder::from(view).distinct().and_then(LogicalPlanBuilder::build).expect("a plan");
    assert!(super::referred(&grouped).unwrap_err().starts_with("is not a table"));
}
