//! Plans the sinks of a job.

use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion_expr::LogicalPlan;
use datafusion_physical_expr::expressions::Column as BoundColumn;
use tidemill_operator::Operator;
use tidemill_operator::map::Expr;
use tidemill_operator::rank::topn::TopN;
use tidemill_operator::rank::{RankFunction, RankSpec, Ties};
use tidemill_plan::Table;

use super::{Planner, Rel, Wanted, keys};
use crate::physical::{Edge, Factory, Node, NodeKind, Ship, SinkSpec};
use crate::settings::UpsertMaterialize;
use crate::{JobError, connector};

/// The rank that the rows of a key get, and that is planned away again.
const RANK: &str = "$rank";

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
    /// places, the one that goes behind the one that comes: the one that is left is the key's. Of several that stay, which the
    /// key should forbid, it is the one with the smaller columns.
    fn materialized(&mut self, input: &Rel, key: &[usize], id: &str) -> Result<Rel, JobError> {
        let schema = self.schema(input.node);
        let columns: Vec<Expr> =
            schema.fields().iter().enumerate().map(|(at, f)| Arc::new(BoundColumn::new(f.name(), at)) as Expr).collect();
        let keys: Vec<Expr> = key.iter().map(|at| columns[*at].clone()).collect();
        let types: Vec<DataType> = key.iter().map(|at| schema.field(*at).data_type().clone()).collect();
        // With a rank among the columns, which is always 1, another row is an update, and not a deletion and a new row.
        let rank = Arc::new(Field::new(RANK, DataType::Int64, false));
        let ranked: SchemaRef = Arc::new(Schema::new(schema.fields().iter().cloned().chain([rank]).collect::<Vec<_>>()));
        let spec = RankSpec {
            // It takes an order; rows of one key are alike in it.
            order: keys.iter().map(|e| (e.clone(), SortOptions::default())).collect(),
            order_types: types.clone(),
            key_types: types,
            keys: keys.clone(),
            function: RankFunction::RowNumber,
            from: 1,
            to: 1,
            ties: Ties::Contents,
            retracts: true,
            rank_column: true,
            input: schema.clone(),
            schema: ranked.clone(),
        };
        let factory: Factory = Arc::new(move || Ok(Box::new(TopN::new(spec.clone(), true, false)?) as Box<dyn Operator>));
        let node = self.operator("UpsertMaterialize", format!("materialize:{id}"), input, Ship::Hash(keys), ranked, factory)?;
        let kept = Rel { node, single: false, window: None, ..input.clone() };
        let node = self.map(&kept, None, columns, schema)?;
        Ok(Rel { node, ..kept })
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
