//! Plans lookup joins: `JOIN t FOR SYSTEM_TIME AS OF o.pt`, where `o.pt` is processing time.
//!
//! The options of the table and the settings of the job say how it is asked, the hint of the query has the last word. Rows stay in their
//! shard unless the hint wants those of one key together (`'shuffle'='true'`), so that shards share what one
//! of them keeps. Rows that are updated leave in the order in which they came, whatever the hint says.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion_common::DFSchema;
use datafusion_expr::LogicalPlan;
use tidemill_connect::lookup::{CacheKind, OnFailure};
use tidemill_connect::{LookupContext, LookupOptions, Waker};
use tidemill_operator::Operator;
use tidemill_operator::join::interval::Residual;
use tidemill_operator::lookup::{AskSpec, CacheSpec, LookupJoin, LookupSpec};
use tidemill_plan::LookupJoinNode;
use tidemill_state::hash;

use super::{Planner, Rel, Wanted};
use crate::physical::aggregate::{bind, bind_all};
use crate::physical::calls::calls_of;
use crate::physical::{Factory, Ship};
use crate::settings::{LookupOutput, Settings};
use crate::{JobError, connector};

impl Planner<'_> {
    pub(super) fn lookup_join(&mut self, plan: &LogicalPlan, node: &LookupJoinNode, wanted: Wanted) -> Result<Rel, JobError> {
        let input = self.multiplied(&node.input, wanted)?;
        let table = connector::lookup(&node.table)?;
        self.pipes.note(table.pipe())?;
        let options = table.options();
        let columns = node.table.physical_schema();
        let (keys, names): (Vec<_>, Vec<&str>) = node.keys.iter().map(|(key, column)| (key.clone(), column.as_str())).unzip();
        let indices = names.iter().map(|name| columns.index_of(name).map_err(JobError::failed)).collect::<Result<Vec<_>, _>>()?;
        let key_columns: SchemaRef = Arc::new(columns.project(&indices).map_err(JobError::failed)?);
        // What cannot be asked so is said before the job starts.
        let trial = LookupContext { keys: key_columns.clone(), columns: columns.clone(), wake: Waker::noop(), shard: 0, shards: 1 };
        drop(table.open(trial).map_err(JobError::usage)?);

        let asynchronous = node.hint.asynchronous.unwrap_or(options.asynchronous);
        let ordered = !asynchronous || input.updating || node.hint.ordered.unwrap_or(self.settings.lookup_output == LookupOutput::Ordered);
        // Both rows of an update must take the same way, and their keys may differ.
        let by_key = node.hint.shuffle.unwrap_or(false) && !input.updating;
        let schema: SchemaRef = Arc::new(plan.schema().as_arrow().clone());
        let spec = LookupSpec {
            name: format!("table '{}'", node.table.name),
            input: self.schema(input.node),
            columns: columns.clone(),
            schema: schema.clone(),
            keys: bind_all(&keys, node.input.schema())?,
            key_columns: key_columns.clone(),
            residual: residual(node)?,
            left: node.left,
            ordered,
            by_key,
            cache: cache(options),
            asking: asking(node, options, self.settings, asynchronous, table.keys_max()),
        };
        let mut name = format!("LookupJoin {}", node.table.name);
        if !ordered {
            name += " unordered";
        }
        if spec.cache.is_some() {
            name += " cached";
        }
        let ship = if by_key { Ship::Hash(spec.keys.clone()) } else { Ship::Forward };
        let id = self.lookup_id(node);
        let open = calls_of(table, key_columns, columns);
        let factory: Factory = Arc::new(move || Ok(Box::new(LookupJoin::new(spec.clone(), open.clone())?) as Box<dyn Operator>));
        let added = schema.fields().len() - input.time.len();
        let node = self.operator(&name, id, &input, ship, schema, factory)?;
        let time = input.time.iter().copied().chain(std::iter::repeat_n(false, added)).collect();
        Ok(Rel { node, time, single: self.graph.nodes[node].single, ..input })
    }

    /// The name of the join's state. How it asks is not part of it: a checkpoint holds rows that wait, which are
    /// asked for again in the way that is then set.
    fn lookup_id(&self, node: &LookupJoinNode) -> String {
        let (table, input) = (self.state_name(&node.table), self.text(&node.input));
        let keys: Vec<String> = node.keys.iter().map(|(key, column)| format!("{column} = {key}")).collect();
        let text = format!("{table}\n{}\n{:?}\n{}\n{input}", keys.join(", "), node.residual, node.left);
        let mut id = format!("lookupjoin:{:016x}", hash::bytes(text.as_bytes()));
        // Joins that differ in how they ask alone.
        while self.graph.nodes.iter().any(|n| n.id == id) {
            id.push('\'');
        }
        id
    }
}

/// The further condition over the columns that it reads.
fn residual(node: &LookupJoinNode) -> Result<Option<Residual>, JobError> {
    let Some(predicate) = &node.residual else { return Ok(None) };
    let joined = datafusion_expr::UserDefinedLogicalNodeCore::schema(node);
    let mut columns = predicate.column_refs().into_iter().map(|c| Ok(joined.index_of_column(c)?)).collect::<Result<Vec<_>, JobError>>()?;
    columns.sort_unstable();
    columns.dedup();
    let fields = columns.iter().map(|i| joined.qualified_field(*i)).map(|(q, f)| (q.cloned(), f.clone())).collect();
    let read = DFSchema::new_with_metadata(fields, Default::default())?;
    let schema: SchemaRef = Arc::new(Schema::clone(read.as_arrow()));
    Ok(Some(Residual { predicate: bind(predicate, &read)?, columns, schema }))
}

/// What is kept of the answers. A table that is kept whole answers from memory by itself.
fn cache(options: &LookupOptions) -> Option<CacheSpec> {
    (options.cache == CacheKind::Partial).then(|| CacheSpec {
        rows_max: options.cache_rows,
        after_write_ns: options.expire_after_write.map(|d| d.as_nanos() as u64),
        after_access_ns: options.expire_after_access.map(|d| d.as_nanos() as u64),
        missing: options.cache_missing,
    })
}

/// How the table is asked: by its options and the job's settings, and what the hint says otherwise.
fn asking(node: &LookupJoinNode, options: &LookupOptions, settings: &Settings, asynchronous: bool, keys_max: usize) -> AskSpec {
    let capacity = node.hint.capacity.or(options.capacity).or(settings.lookup_capacity);
    AskSpec {
        keys_max: if asynchronous { keys_max } else { 1 },
        capacity: if asynchronous { capacity } else { Some(1) },
        per_partition: options.per_partition,
        timeout: node.hint.timeout.or(settings.lookup_timeout).unwrap_or(options.timeout),
        retries: options.retries,
        retry_delay: options.retry_delay,
        misses: node.hint.retry_miss.map(|r| (r.attempts.saturating_sub(1), r.delay)),
        fail: options.on_failure == OnFailure::Fail,
    }
}
