//! Plans temporal joins: `JOIN t FOR SYSTEM_TIME AS OF a.rt`.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion_expr::{Expr as Logical, JoinType, LogicalPlan};
use tidemill_operator::Operator;
use tidemill_operator::join::interval::JoinSide;
use tidemill_operator::join::temporal::{TemporalJoin, TemporalSpec};
use tidemill_plan::temporal::TemporalJoinNode;

use super::time_join::{Condition, Keys, column, residual};
use super::{Planner, Rel, Wanted};
use crate::JobError;
use crate::physical::Factory;

impl Planner<'_> {
    pub(super) fn temporal_join(&mut self, plan: &LogicalPlan, node: &TemporalJoinNode, wanted: Wanted) -> Result<Rel, JobError> {
        let left = self.rel(&node.left, wanted)?;
        // Each version counts, so changes must not be folded, and the same whoever reads the result.
        let right = self.rel(&node.right, Wanted { fold: false, update_before: true, paired: false })?;
        if left.updating {
            return Err(JobError::refused(
                ["FOR SYSTEM_TIME AS OF"],
                "the left side of a temporal join (FOR SYSTEM_TIME AS OF) must be append-only, but its rows are updated; aggregate in windows (TUMBLE, HOP, …) instead of a running GROUP BY",
            ));
        }
        let (time, version) = (node.time_index()?, node.version_index()?);
        self.check_time(&left, time, &node.left, "FOR SYSTEM_TIME AS OF", "FOR SYSTEM_TIME AS OF")?;
        self.check_time(&right, version, &node.right, "a table that is joined FOR SYSTEM_TIME AS OF", "FOR SYSTEM_TIME AS OF")?;
        let schemas = [node.left.schema().as_ref(), node.right.schema().as_ref()];
        let mut condition = Condition::new(Vec::new(), Some(&node.condition), schemas, false)?;
        let mut pairs = Vec::new();
        for index in node.key_indices()? {
            let Some(at) = condition.pairs.iter().position(|(_, right)| column(without_casts(right), schemas[1]) == Some(index)) else {
                let message = format!(
                    "the ON of a temporal join (FOR SYSTEM_TIME AS OF) must say what the key column {} of the versioned table is equal to",
                    schemas[1].field(index).name()
                );
                return Err(JobError::refused(["FOR SYSTEM_TIME AS OF"], message));
            };
            pairs.push(condition.pairs.remove(at));
        }
        condition.rest.extend(condition.pairs.into_iter().map(|(left, right)| left.eq(right)));
        let keys = Keys::new(&pairs, schemas)?;
        let schema: SchemaRef = Arc::new(plan.schema().as_arrow().clone());
        let side =
            |s: usize, rel: &Rel, time: usize| JoinSide { schema: self.schema(rel.node), keys: keys.bound[s].clone(), time, shift_ms: 0 };
        let spec = TemporalSpec {
            outer: node.join_type == JoinType::Left,
            sides: [side(0, &left, time), side(1, &right, version)],
            key_types: keys.types.clone(),
            residual: residual(condition.rest, schemas)?,
            schema: schema.clone(),
        };
        let factory: Factory = Arc::new(move || Ok(Box::new(TemporalJoin::new(spec.clone())?) as Box<dyn Operator>));
        // Rows wait for this time; other times of theirs have passed by then.
        let mut times = vec![false; schema.fields().len()];
        times[time] = true;
        let [left_ship, right_ship] = keys.ships();
        let node = self.operator_of("TemporalJoin", String::new(), &[(&left, left_ship), (&right, right_ship)], schema, factory)?;
        Ok(Rel { node, time: times, updating: false, single: self.graph.nodes[node].single, window: None })
    }
}

/// An expression without the casts that the types of a comparison ask for.
fn without_casts(expression: &Logical) -> &Logical {
    match expression {
        Logical::Cast(cast) => without_casts(&cast.expr),
        other => other,
    }
}
