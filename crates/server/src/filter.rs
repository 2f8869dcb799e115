//! What a subscriber wants of a stream: some of its rows, some of its columns. The condition is planned
//! once a subscription (`tidemill_runtime::physical::condition`) and evaluated once a delivery.

use std::sync::Arc;
use std::thread;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use tidemill_format::options::one_of;
use tidemill_hub::ROW_KIND;
use tidemill_runtime::JobError;
use tidemill_runtime::physical::condition::RowCondition;

use crate::waiting::waiting;

/// The longest condition, bytes: a page of text. What it can nest to fits into [`PLANNING_STACK_BYTES`].
const FILTER_BYTES_MAX: usize = 8 << 10;

/// The stack of the thread that plans a condition; only what is used of it takes memory.
const PLANNING_STACK_BYTES: usize = 128 << 20;

/// A filter and a projection over the rows of a stream.
#[derive(Debug)]
pub struct RowFilter {
    condition: Option<RowCondition>,
    /// The columns wanted, by index; `None` for all as they are.
    picks: Option<Vec<usize>>,
    schema: SchemaRef,
}

impl RowFilter {
    /// Rows of `schema` for which `filter` holds (all, if there is none), with these columns in this
    /// order (all, if none are named). The column of row kinds, if the schema has one, stays and comes
    /// last: without it the rows of an updating stream would have no meaning.
    ///
    /// # Errors
    /// A column that is not there or is named twice; what is wrong with the condition.
    pub fn new(schema: &SchemaRef, columns: Option<&[String]>, filter: Option<&str>) -> Result<RowFilter, String> {
        let condition = match filter.map(str::trim) {
            None | Some("") => None,
            Some(text) => Some(plan(schema, text)?),
        };
        let picks = match columns {
            None | Some([]) => None,
            Some(names) => Some(picks(schema, names)?),
        };
        let picks = picks.filter(|p| !p.iter().copied().eq(0..schema.fields().len()));
        let schema = match &picks {
            None => schema.clone(),
            Some(picks) => Arc::new(schema.project(picks).map_err(|e| format!("choosing columns: {e}"))?),
        };
        Ok(RowFilter { condition, picks, schema })
    }

    /// What [`RowFilter::apply`] gives.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// The rows and columns wanted. May be empty.
    ///
    /// # Errors
    /// A value that the condition cannot compute with.
    pub fn apply(&self, batch: &RecordBatch) -> Result<RecordBatch, String> {
        let kept = match &self.condition {
            None => batch.clone(),
            Some(condition) => condition.keep(batch).map_err(|e| format!("applying the filter: {}", in_one_line(&e)))?,
        };
        let columns = match &self.picks {
            None if Arc::ptr_eq(kept.schema_ref(), &self.schema) => return Ok(kept),
            None => kept.columns().to_vec(),
            Some(picks) => picks.iter().map(|i| kept.column(*i).clone()).collect(),
        };
        let options = RecordBatchOptions::new().with_row_count(Some(kept.num_rows()));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options).map_err(|e| format!("choosing columns: {e}"))
    }

    /// Whether all rows and columns are wanted as they are.
    pub fn is_identity(&self) -> bool {
        self.condition.is_none() && self.picks.is_none()
    }
}

/// Plans a condition where a deep one cannot overflow the stack.
fn plan(schema: &SchemaRef, text: &str) -> Result<RowCondition, String> {
    if text.len() > FILTER_BYTES_MAX {
        return Err(format!("the filter is {} bytes long, at most {FILTER_BYTES_MAX} are taken", text.len()));
    }
    let plan = || {
        thread::scope(|scope| {
            let planner = thread::Builder::new().name("filter".into()).stack_size(PLANNING_STACK_BYTES);
            let thread = planner.spawn_scoped(scope, || RowCondition::new(schema, text)).map_err(|e| format!("planning a filter: {e}"))?;
            thread.join().map_err(|_| format!("the filter '{text}' cannot be planned"))
        })
    };
    waiting(plan)?.map_err(|e| format!("the filter '{text}': {}", in_one_line(&e)))
}

fn picks(schema: &Schema, names: &[String]) -> Result<Vec<usize>, String> {
    let mut picks: Vec<usize> = Vec::with_capacity(names.len() + 1);
    for name in names {
        let index = schema.index_of(name).map_err(|_| {
            let known: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
            format!("there is no column '{name}': {}", one_of(name, &known))
        })?;
        if picks.contains(&index) {
            return Err(format!("column '{name}' is asked for twice"));
        }
        picks.push(index);
    }
    if let Some(kind) = row_kind(schema) {
        picks.retain(|i| *i != kind);
        picks.push(kind);
    }
    Ok(picks)
}

/// Where the row kinds of a wire schema stand, if it has them.
pub(crate) fn row_kind(schema: &Schema) -> Option<usize> {
    let last = schema.fields().len().checked_sub(1)?;
    let field = schema.field(last);
    (field.name() == ROW_KIND && *field.data_type() == DataType::Int8 && !field.is_nullable()).then_some(last)
}

/// Message and advice; the place is in a text that the subscriber did not write.
fn in_one_line(error: &JobError) -> String {
    match error {
        JobError::Sql(e) => match &e.help {
            Some(help) => format!("{}; {help}", e.message),
            None => e.message.clone(),
        },
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
