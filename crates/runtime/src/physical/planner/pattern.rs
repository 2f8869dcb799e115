//! Plans row patterns (`MATCH_RECOGNIZE`).

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion_expr::LogicalPlan;
use tidemill_operator::Operator;
use tidemill_operator::pattern::PatternMatch;
use tidemill_plan::PatternNode;

use super::{Planner, Rel, Wanted};
use crate::JobError;
use crate::physical::pattern::match_spec;
use crate::physical::{Factory, Ship};

impl Planner<'_> {
    /// Rows go to the shard of their partition, without `PARTITION BY` to the first. Only the time of a
    /// match's last row is event time behind it.
    pub(super) fn pattern(&mut self, plan: &LogicalPlan, node: &PatternNode, wanted: Wanted) -> Result<Rel, JobError> {
        let schema: SchemaRef = Arc::new(plan.schema().as_arrow().clone());
        let input = self.rel(&node.input, wanted)?;
        if input.updating {
            return Err(JobError::refused(
                ["MATCH_RECOGNIZE"],
                "MATCH_RECOGNIZE needs an append-only input, but rows of this one are updated; aggregate in windows instead of a running GROUP BY",
            ));
        }
        self.check_time(&input, node.input_index(&node.time)?, &node.input, "the ORDER BY of MATCH_RECOGNIZE", "ORDER BY")?;
        let mut spec = match_spec(node, self.schema(input.node), schema.clone(), self.settings.pattern_bounds())?;
        spec.in_order = self.in_order(input.node);
        let ship = if spec.keys.is_empty() { Ship::Single } else { Ship::Hash(spec.keys.clone()) };
        let single = matches!(ship, Ship::Single);
        let factory: Factory = Arc::new(move || Ok(Box::new(PatternMatch::new(spec.clone())?) as Box<dyn Operator>));
        let time = (0..node.spec.output.len()).map(|column| node.is_match_time(column)).collect();
        let node = self.operator("MatchRecognize", String::new(), &input, ship, schema, factory)?;
        Ok(Rel { node, time, updating: false, single, window: None })
    }
}
