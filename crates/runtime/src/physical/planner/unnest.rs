//! Plans `UNNEST`.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion_common::NullHandling;
use tidemill_operator::Operator;
use tidemill_operator::unnest::{Part, Unnest};

use super::{Planner, Rel, Wanted};
use crate::JobError;
use crate::physical::{Factory, Ship};

impl Planner<'_> {
    pub(super) fn unnest(&mut self, unnest: &datafusion_expr::logical_plan::Unnest, wanted: Wanted) -> Result<Rel, JobError> {
        if unnest.list_type_columns.iter().any(|(_, list)| list.depth > 1) {
            return Err(JobError::refused(
                ["UNNEST"],
                "UNNEST of an array in an array takes one level at a time in a stream: unnest the outer array in a view, and its elements in the query above",
            ));
        }
        let input = self.multiplied(&unnest.input, wanted)?;
        let mut parts: Vec<(usize, Part)> = Vec::with_capacity(unnest.dependency_indices.len());
        // Which input column each output column comes of.
        let mut origins: Vec<Option<usize>> = Vec::with_capacity(unnest.dependency_indices.len());
        for index in &unnest.dependency_indices {
            let part = if unnest.struct_type_columns.contains(index) {
                Part::Fields
            } else if unnest.list_type_columns.iter().any(|(column, _)| column == index) {
                Part::Elements
            } else {
                Part::Keep
            };
            origins.push((part == Part::Keep).then_some(*index));
            // All fields of a ROW come at once.
            if part != Part::Fields || parts.last() != Some(&(*index, part)) {
                parts.push((*index, part));
            }
        }
        let schema: SchemaRef = Arc::new(unnest.schema.as_arrow().clone());
        let keep_null = unnest.options.null_handling != NullHandling::Drop;
        let keep_empty = unnest.options.null_handling == NullHandling::PreserveAndExpandEmpty;
        let declared = schema.clone();
        let factory: Factory =
            Arc::new(move || Ok(Box::new(Unnest::new(parts.clone(), keep_null, keep_empty, schema.clone())) as Box<dyn Operator>));
        let node = self.operator("Unnest", String::new(), &input, Ship::Forward, declared, factory)?;
        let time = origins.iter().map(|origin| origin.is_some_and(|i| input.time[i])).collect();
        let window = input.window.and_then(|w| w.moved(|column| origins.iter().position(|o| *o == Some(column))));
        Ok(Rel { node, time, window, ..input })
    }
}
