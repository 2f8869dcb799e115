//! The tables that a job reads. One name may stand for several of them: an `OPTIONS` hint gives the reference behind
//! which it stands a table with options of its own. Plans do not show options, so here is also what their texts lack.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_expr::LogicalPlan;
use tidemill_plan::catalog::RawTable;
use tidemill_plan::{LookupJoinNode, Table};
use tidemill_state::hash;

use super::Planner;

/// The tables, each with the columns that anyone reads of it.
#[derive(Default)]
pub(super) struct Tables(Vec<(Arc<Table>, BTreeSet<usize>)>);

impl Tables {
    /// Notes that columns of a table are read; the table's number.
    pub fn note(&mut self, table: &Arc<Table>, columns: impl IntoIterator<Item = usize>) -> usize {
        let known = self.0.iter().position(|(other, _)| Arc::ptr_eq(other, table) || other == table);
        let number = known.unwrap_or(self.0.len());
        if known.is_none() {
            self.0.push((table.clone(), BTreeSet::new()));
        }
        self.0[number].1.extend(columns);
        number
    }

    /// The columns that anyone reads of the table of this number.
    pub fn columns(&self, number: usize) -> &BTreeSet<usize> {
        &self.0[number].1
    }

    /// Whether several tables have this name.
    fn several(&self, name: &str) -> bool {
        self.0.iter().filter(|(table, _)| table.name == name).count() > 1
    }
}

impl Planner<'_> {
    /// What a table is called in names of state: as it is declared where that says which it is, else with its options,
    /// so that each reference finds its own state again wherever it stands in the job.
    pub(super) fn state_name(&self, table: &Table) -> String {
        if !self.tables_read.several(&table.name) || (self.tables)(&table.name).is_some_and(|declared| *declared == *table) {
            return table.name.clone();
        }
        format!("{}!{:016x}", table.name, hash::bytes(format!("{:?}", table.options).as_bytes()))
    }

    /// A text that is the same for parts that compute the same from the same tables.
    pub(super) fn text(&self, plan: &LogicalPlan) -> String {
        let mut text = plan.display_indent_schema().to_string();
        let noted = plan.apply(|node| {
            let table = match node {
                LogicalPlan::TableScan(scan) => scan.source.downcast_ref::<RawTable>().map(|raw| &raw.table),
                LogicalPlan::Extension(extension) => extension.node.as_any().downcast_ref::<LookupJoinNode>().map(|join| &join.table),
                _ => None,
            };
            if let Some(table) = table.filter(|table| self.tables_read.several(&table.name)) {
                text.push('\n');
                text.push_str(&self.state_name(table));
            }
            Ok(TreeNodeRecursion::Continue)
        });
        noted.expect("nothing in it fails");
        text
    }
}
