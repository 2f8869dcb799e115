//! Plans `ORDER BY` and `LIMIT`.

use std::sync::Arc;

use arrow::compute::SortOptions;
use datafusion_expr::{FetchType, SkipType};
use tidemill_operator::Operator;
use tidemill_operator::limit::Limit;
use tidemill_operator::sort::Sort;
use tidemill_plan::node::as_column;
use tidemill_state::hash;

use super::{Planner, Rel, Wanted};
use crate::JobError;
use crate::physical::{Factory, Ship};

impl Planner<'_> {
    pub(super) fn limit(&mut self, limit: &datafusion_expr::Limit, wanted: Wanted) -> Result<Rel, JobError> {
        let (SkipType::Literal(skip), FetchType::Literal(fetch)) = (limit.get_skip_type()?, limit.get_fetch_type()?) else {
            return Err(JobError::usage("LIMIT and OFFSET take constants"));
        };
        let input = self.rel(&limit.input, wanted)?;
        if input.updating {
            return Err(JobError::usage(
                "LIMIT over an updating query is not supported in a stream; run the job with SET 'execution.runtime-mode' = 'batch'",
            ));
        }
        let factory: Factory =
            Arc::new(move || Ok(Box::new(Limit::new(skip as u64, fetch.map(|f| f as u64))) as Box<dyn Operator>));
        let schema = self.schema(input.node);
        let node = self.operator("Limit", String::new(), &input, Ship::Single, schema, factory)?;
        Ok(Rel { node, single: true, ..input })
    }

    pub(super) fn sort(&mut self, sort: &datafusion_expr::logical_plan::Sort, wanted: Wanted) -> Result<Rel, JobError> {
        let input = self.rel(&sort.input, wanted)?;
        let schema = sort.input.schema();
        let keys = sort
            .expr
            .iter()
            .map(|s| {
                as_column(&s.expr)
                    .and_then(|c| schema.index_of_column(c).ok())
                    .map(|i| (i, SortOptions { descending: !s.asc, nulls_first: s.nulls_first }))
            })
            .collect::<Option<Vec<_>>>();
        let by_time = keys.as_ref().and_then(|k| k.first()).is_some_and(|(i, o)| input.time[*i] && !o.descending);
        let (Some(keys), true, false) = (keys, by_time, input.updating) else {
            return Err(JobError::usage(
                "ORDER BY in a stream needs an event-time column first, ascending (an endless stream has no last row to sort by); SET 'execution.runtime-mode' = 'batch' sorts bounded input in any order",
            ));
        };
        let emitted = self.schema(input.node);
        let declared = emitted.clone();
        let factory: Factory = Arc::new(move || Ok(Box::new(Sort::new(emitted.clone(), keys.clone())) as Box<dyn Operator>));
        let mut rel = Rel { node: self.operator("Sort", String::new(), &input, Ship::Single, declared, factory)?, single: true, ..input };
        if let Some(fetch) = sort.fetch {
            let factory: Factory = Arc::new(move || Ok(Box::new(Limit::new(0, Some(fetch as u64))) as Box<dyn Operator>));
            let schema = self.schema(rel.node);
            let id = format!("sort:{:016x}", hash::bytes(sort.input.display_indent_schema().to_string().as_bytes()));
            self.graph.nodes[rel.node].id = id;
            rel.node = self.operator("Limit", String::new(), &rel, Ship::Forward, schema, factory)?;
        }
        Ok(rel)
    }
}
