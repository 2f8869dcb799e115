//! What the graph of a stream may consist of: operators of the crate `operator`, which cannot know an
//! execution operator of DataFusion, since neither it nor this crate outside of `batch` sees that crate.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tidemill_sql::{Outcome, Session};

use super::{Graph, NodeKind, Planner};
use crate::Settings;

/// The graph of a script's inserts.
fn graph(sql: &str) -> Graph {
    let mut session = Session::new();
    let statements = session.parse(sql).expect("a script");
    let mut inserts = Vec::new();
    for statement in &statements {
        if let Outcome::Inserts(more) = session.execute(statement).expect("a statement") {
            inserts.extend(more);
        }
    }
    let config = session.config();
    let optimized = |plan| tidemill_plan::optimize::optimize_stream(plan, &config).expect("an optimised plan");
    let plans: Vec<_> = inserts.into_iter().map(|i| (i.table, optimized(i.plan))).collect();
    let settings = Settings::from_map(&BTreeMap::new()).expect("the defaults");
    Planner::new(&settings, &|name: &str| session.table(name)).plan(&plans).expect("a graph")
}

#[test]
fn a_stream_consists_of_nodes_of_ours() {
    let graph = graph(
        "CREATE TABLE t (k BIGINT, v DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen');
         CREATE TABLE a (k BIGINT, v DOUBLE) WITH ('connector' = 'blackhole');
         CREATE TABLE b (k BIGINT, n BIGINT) WITH ('connector' = 'blackhole');
         INSERT INTO a SELECT k, v * 2 FROM t WHERE v > 1 UNION ALL SELECT 1, 1e0;
         INSERT INTO b SELECT k, COUNT(*) FROM t GROUP BY k HAVING COUNT(*) > 1;
         INSERT INTO b SELECT k, COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY k, window_start, window_end;
         INSERT INTO a SELECT k, SUM(v) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) FROM t;",
    );
    let mut counts = BTreeMap::new();
    for node in &graph.nodes {
        // Another kind of node does not compile here before it was thought about.
        let kind = match &node.kind {
            NodeKind::Source(_) => "source",
            NodeKind::Values(_) => "values",
            NodeKind::Operator(_) => "operator",
            NodeKind::Union => "union",
            NodeKind::Sink(_) => "sink",
        };
        *counts.entry(kind).or_insert(0) += 1;
    }
    assert_eq!((counts["source"], counts["sink"], counts["union"], counts["values"]), (1, 4, 1, 1), "{counts:?}");
    let names: Vec<&str> = graph.nodes.iter().map(|n| n.name.as_str()).collect();
    for name in ["Filter", "Map", "GroupAggregate", "WindowAggregate", "Over"] {
        assert!(names.contains(&name), "no {name} in {names:?}");
    }
}

/// The optimiser puts a projection between the ranking and its bound where the column that sorts is not wanted,
/// and the rank was made, and each of its shifts an update, although the projection above left it out.
#[test]
fn a_rank_that_nobody_sees_is_not_made() {
    let ranked = |columns: &str, order: &str| {
        format!(
            "INSERT INTO a SELECT {columns} FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY {order}) AS place FROM t) AS r
             WHERE r.place <= 3;"
        )
    };
    let tables = "CREATE TABLE t (k BIGINT, v DOUBLE, n BIGINT) WITH ('connector' = 'datagen');
                  CREATE TABLE a (k BIGINT, n BIGINT) WITH ('connector' = 'blackhole');";
    let inserts = [ranked("k, n", "v"), ranked("n + 1, k * n", "v DESC"), ranked("k, n", "n"), ranked("k, place", "v DESC, n")];
    let graph = graph(&format!("{tables}{}", inserts.concat()));
    let rankings = graph.nodes.iter().filter(|n| n.name == "TopN");
    let made: Vec<bool> = rankings.map(|n| n.schema.fields().iter().any(|f| f.name().starts_with("row_number"))).collect();
    assert_eq!(made, [false, false, false, true]);
}

/// The dependencies that a manifest names, those of its tests excepted.
fn dependencies(manifest: &str) -> Vec<&str> {
    let section = manifest.split("\n[dependencies]\n").nth(1).expect("dependencies").split("\n[").next().expect("split gives one");
    section.lines().filter_map(|line| line.split(['.', ' ', '=']).next()).filter(|name| !name.is_empty()).collect()
}

#[test]
fn operators_cannot_see_the_executor() {
    let found = dependencies(include_str!("../../../operator/Cargo.toml"));
    assert!(found.contains(&"tidemill-state") && found.contains(&"datafusion-physical-expr"), "{found:?}");
    let executors = ["datafusion", "datafusion-physical-plan", "datafusion-physical-optimizer", "datafusion-datasource"];
    let seen: Vec<_> = found.into_iter().filter(|name| executors.contains(name)).collect();
    assert!(seen.is_empty(), "the crate operator depends on {seen:?}, whose operators hold rows back");
}

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("a directory entry").path();
        if path.is_dir() {
            sources(&path, into);
        } else {
            into.push(path);
        }
    }
}

#[test]
fn only_batch_knows_the_executor() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let (batch, others): (Vec<_>, Vec<_>) = files.iter().partition(|f| f.starts_with(root.join("batch")));
    // In two parts, so that this file has none itself.
    let paths = [["datafusion", "::"].concat(), ["datafusion_physical", "_plan"].concat()];
    let knows = |file: &Path| {
        let text = std::fs::read_to_string(file).expect("a source in UTF-8");
        text.lines().any(|line| paths.iter().any(|p| line.contains(p.as_str())) && !line.trim_start().starts_with("//"))
    };
    assert!(batch.iter().any(|f| knows(f)), "the search finds what is there");
    let found: Vec<_> = others.into_iter().filter(|f| knows(f)).collect();
    assert!(found.is_empty(), "streams run without DataFusion's executor, but it is used in {found:?}");
}
