//! Plans the sinks of a job.

use std::sync::Arc;

use datafusion_expr::LogicalPlan;
use datafusion_physical_expr::expressions::Column as BoundColumn;
use tidemill_operator::map::Expr;
use tidemill_operator::{Operator, materialize};
use tidemill_plan::Table;

use super::{Planner, Rel, Wanted, keys};
use crate::physical::{Edge, Factory, Node, NodeKind, Ship, SinkSpec};
use crate::settings::UpsertMaterialize;
use crate::{JobError, connector};

impl Planner<'_> {
    pub(super) fn sink(&mut self, table: &Arc<Table>, plan: &LogicalPlan) -> Result<(), JobError> {
        let (sink, options) = connector::sink(table)?;
        let keyed = !table.primary_key.is_empty();
        let seen = !matches!(options.connector.as_str(), "blackhole");
        let fold = self.settings.mini_batch || !seen || keyed;
        let key: Vec<usize> = table.primary_key.iter().filter_map(|name| table.sink_schema().index_of(name).ok()).collect();
        let replaces = keyed && seen && sink.accepts_updates() && !sink.wants_update_before();
        let keeps = replaces
            && match self.settings.upsert_materialize {
                UpsertMaterialize::None => false,
                UpsertMaterialize::Auto => !keys::identify(plan, &key),
                UpsertMaterialize::Force => true,
            };
        let wanted = Wanted { fold, update_before: keeps || sink.wants_update_before(), paired: false };
        let rel = self.rel(plan, wanted)?;
        if rel.updating && !sink.accepts_updates() {
            let message = format!(
                "table '{}' (connector '{}') takes new rows only, but the query updates its results: aggregate in windows (TUMBLE, HOP, …), or write to a sink that takes updates, such as 'print'",
                table.name, options.connector
            );
            return Err(JobError::refused([format!("INTO {}", table.name)], message));
        }
        let count = self.sinks.entry(table.name.clone()).or_default();
        *count += 1;
        let id = if *count == 1 { format!("sink:{}", table.name) } else { format!("sink:{}#{count}", table.name) };
        let rel = if keeps && rel.updating { self.materialized(&rel, &key, &id)? } else { rel };
        self.sink_node(table, sink, connector::rows_at_once(&options), &rel, id);
        Ok(())
    }

    /// Keeps the rows of each key of a sink that knows one row a key. Rows of the query with the same key come from different
    /// places, the one that goes behind the one that comes: the one that is left is the key's. Of several that stay it is the
    /// one that came last.
    fn materialized(&mut self, input: &Rel, key: &[usize], id: &str) -> Result<Rel, JobError> {
        let schema = self.schema(input.node);
        let keys: Vec<Expr> = key.iter().map(|at| Arc::new(BoundColumn::new(schema.field(*at).name(), *at)) as Expr).collect();
        let (kept, key) = (schema.clone(), key.to_vec());
        let factory: Factory =
            Arc::new(move || Ok(Box::new(materialize::UpsertMaterialize::new(kept.clone(), key.clone())?) as Box<dyn Operator>));
        let node = self.operator("UpsertMaterialize", format!("materialize:{id}"), input, Ship::Hash(keys), schema, factory)?;
        Ok(Rel { node, single: false, window: None, ..input.clone() })
    }

    pub(super) fn sink_node(
        &mut self,
        table: &Table,
        sink: Arc<dyn tidemill_connect::Sink>,
        rows_at_once: Option<usize>,
        rel: &Rel,
        id: String,
    ) -> usize {
        let schema = table.sink_schema();
        let not_null = schema.fields().iter().enumerate().filter(|(_, f)| !f.is_nullable()).map(|(i, _)| i).collect();
        sink.expect_updates(rel.updating);
        let one = sink.parallelism() == Some(1);
        let ship = if rel.single {
            Ship::Forward
        } else if one {
            Ship::Single
        } else if sink.by_key() {
            let read = self.schema(rel.node);
            let of = |key: &String| schema.index_of(key).ok().map(|at| Arc::new(BoundColumn::new(read.field(at).name(), at)) as Expr);
            Ship::Hash(table.primary_key.iter().filter_map(of).collect())
        } else {
            Ship::Forward
        };
        let spec = SinkSpec { table: table.name.clone(), sink, schema: schema.clone(), not_null, rows_at_once };
        self.add(Node {
            id,
            name: format!("Sink {}", table.name),
            kind: NodeKind::Sink(Box::new(spec)),
            inputs: vec![Edge { from: rel.node, ship }],
            schema,
            single: one || rel.single,
        })
    }
}
