//! DataFusion's rule that groups by fewer keys: `GROUP BY a, f(a)` by `a` alone, with `f(a)` above.
//!
//! Not where two keys have the same name, such as `CAST(a AS STRING)` and `a`: an aggregate may have both, the
//! projection that the rule makes may not.

use std::collections::HashSet;

use datafusion::optimizer::eliminate_group_by_constant::EliminateGroupByConstant;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion_common::Result;
use datafusion_common::tree_node::Transformed;
use datafusion_expr::LogicalPlan;

/// The rule, where it can be applied.
#[derive(Debug, Default)]
pub(super) struct FewerGroupKeys(EliminateGroupByConstant);

impl OptimizerRule for FewerGroupKeys {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if let LogicalPlan::Aggregate(aggregate) = &plan {
            let mut names = HashSet::new();
            if !aggregate.group_expr.iter().all(|key| names.insert(key.schema_name().to_string())) {
                return Ok(Transformed::no(plan));
            }
        }
        self.0.rewrite(plan, config)
    }
}
