//! The graph as text, for `EXPLAIN`.

use std::fmt::Write;

use super::{Graph, NodeKind, Ship};

/// A line a node: what it does, how its input reaches it, its columns, in how many shards; a second for event time.
pub fn text(graph: &Graph, shards: usize) -> String {
    let mut out = String::new();
    for (i, node) in graph.nodes.iter().enumerate() {
        let inputs: Vec<String> = node
            .inputs
            .iter()
            .map(|e| match e.ship {
                Ship::Forward => format!("{}", e.from),
                Ship::Hash(_) => format!("{} by hash", e.from),
                Ship::Single => format!("{} to one shard", e.from),
                Ship::BadRecords => format!("{} unreadable records", e.from),
            })
            .collect();
        let from = if inputs.is_empty() { String::new() } else { format!(" <- {}", inputs.join(", ")) };
        let width = if node.single { 1 } else { shards };
        let columns: Vec<&str> = node.schema.fields().iter().map(|f| f.name().as_str()).collect();
        let _ = writeln!(out, "{i}: {}{from}  [{}]  x{width}", node.name, columns.join(", "));
        if let NodeKind::Source(source) = &node.kind
            && let Some(watermark) = &source.watermark
        {
            let _ = writeln!(out, "     event time: {}", node.schema.field(watermark.column).name());
        }
    }
    out
}
