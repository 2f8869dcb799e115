//! Plans calls of user functions: of values (a column more) and of tables (`f(TABLE t PARTITION BY k)`).

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion_expr::LogicalPlan;
use tidemill_plan::{ProcessCallNode, ProcessTableNode};

use super::{Planner, Rel, Wanted};
use crate::JobError;
use crate::physical::Ship;
use crate::physical::process::{call, operator_name, table};

impl Planner<'_> {
    /// Rows stay where they are and keep their kinds; the value is one more column.
    pub(super) fn process_call(&mut self, plan: &LogicalPlan, node: &ProcessCallNode, wanted: Wanted) -> Result<Rel, JobError> {
        let schema: SchemaRef = Arc::new(plan.schema().as_arrow().clone());
        let input = self.rel(&node.input, wanted)?;
        let factory = call(node, &schema)?;
        let mut time = input.time.clone();
        time.push(false);
        let name = operator_name(&node.function);
        let node = self.operator(&name, String::new(), &input, Ship::Forward, schema, factory)?;
        Ok(Rel { node, time, ..input })
    }

    /// Rows go to the shard of their keys, without keys to the first, unless each is by itself. Only the
    /// time column that the function gives is event time behind it.
    pub(super) fn process_table(&mut self, plan: &LogicalPlan, node: &ProcessTableNode, wanted: Wanted) -> Result<Rel, JobError> {
        // What it gives is append-only whatever is wanted of it: there is one operator for all who read it.
        let plain = Wanted { fold: false, update_before: true, paired: false };
        if wanted != plain {
            return self.rel(plan, plain);
        }
        let schema: SchemaRef = Arc::new(plan.schema().as_arrow().clone());
        let input = self.rel(&node.input, wanted)?;
        let function = &node.function.name;
        if input.updating {
            return Err(JobError::refused(
                [function],
                format!(
                    "function {function} needs an append-only table, but rows of this one are updated; aggregate in windows instead of a running GROUP BY"
                ),
            ));
        }
        if let Some(time) = &node.time {
            self.check_time(&input, node.input_index(time)?, &node.input, &format!("on_time of function {function}"), "on_time")?;
        }
        let planned = table(node, self.schema(input.node), &schema)?;
        let ship = match (planned.anywhere, planned.keys.is_empty()) {
            (true, _) => Ship::Forward,
            (false, true) => Ship::Single,
            (false, false) => Ship::Hash(planned.keys),
        };
        let mut time = vec![false; schema.fields().len()];
        if let (Some(last), true) = (time.last_mut(), node.time.is_some()) {
            *last = true;
        }
        let id = match &node.uid {
            None => String::new(),
            Some(uid) => {
                let id = format!("process:{uid}");
                if self.graph.nodes.iter().any(|n| n.id == id) {
                    return Err(JobError::refused(
                        [format!("'{uid}'"), function.clone()],
                        format!("function {function}: the uid '{uid}' is there twice in this job"),
                    ));
                }
                id
            }
        };
        let node = self.operator(&operator_name(&node.function), id, &input, ship, schema, planned.factory)?;
        Ok(Rel { node, time, updating: false, single: self.graph.nodes[node].single, window: None })
    }
}
