//! From logical plans to the graph.
//!
//! All inserts of a job are planned into one graph: a table is read once (with the same options) whoever reads it, and parts
//! that are the same are there once. Here are the planner itself and the steps that every query has;
//! a file below plans what its name says.

mod aggregate;
mod grouping;
mod join;
mod keys;
mod lookup;
mod order;
mod over;
mod pattern;
mod process;
mod rank;
mod sink;
mod source;
mod tables;
mod temporal;
mod time_join;
mod unnest;
mod values;
mod window;

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion_common::ScalarValue;
use datafusion_expr::{EmptyRelation, Expr as Logical, LogicalPlan, Projection};
use datafusion_physical_expr::expressions::Column as BoundColumn;
use tidemill_connect::filesystem::Pipes;
use tidemill_operator::Operator;
use tidemill_operator::changes::{BeforeAsDelete, FilterChanges};
use tidemill_operator::map::{Expr, Map};
use tidemill_plan::node::as_column;
use tidemill_plan::optimize::set_operation::SetNode;
use tidemill_plan::temporal::TemporalJoinNode;
use tidemill_plan::{LookupJoinNode, PatternNode, ProcessCallNode, ProcessTableNode, Table, WatermarkNode, WindowKind, WindowNode};
use tidemill_state::hash;

use super::aggregate::{bind, bind_all};
use super::{Edge, Factory, Graph, Node, NodeKind, Ship, SourceWatermark, Strategy};
use crate::JobError;
use crate::settings::{BlockSize, Settings};
use source::{position, table_read};
use tables::Tables;
use values::one_row;

/// A planned part: a node and what is known of its rows.
#[derive(Clone)]
struct Rel {
    node: usize,
    /// Which columns are event time.
    time: Vec<bool>,
    /// Rows may be updated or deleted.
    updating: bool,
    single: bool,
    /// The rows are results of windows, whose bounds stand in these columns.
    window: Option<Bounds>,
}

/// The bounds of windows as columns.
#[derive(Clone, Copy)]
struct Bounds {
    start: usize,
    end: usize,
    kind: WindowKind,
}

impl Bounds {
    /// The same after columns were picked; `place(column)` is where a column went.
    fn moved(self, place: impl Fn(usize) -> Option<usize>) -> Option<Bounds> {
        Some(Bounds { start: place(self.start)?, end: place(self.end)?, kind: self.kind })
    }
}

/// What the consumer of a part wants.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Wanted {
    /// Only the newest row of a key is seen, so changes may be folded per block.
    fold: bool,
    /// `-U` rows are wanted.
    update_before: bool,
    /// With `-U` rows: each comes directly in front of its `+U`; a row that is gone comes as `-D`.
    paired: bool,
}

impl Wanted {
    /// Whether nobody looks at a `-U` without its `+U`, so that what is gone must be a `-D`.
    fn deletions(self) -> bool {
        self.paired || !self.update_before
    }

    /// What a part wants of its input that may let one half of an update through and not the other.
    fn whole_updates(self) -> Wanted {
        if self.deletions() { Wanted { update_before: true, paired: true, ..self } } else { self }
    }
}

/// Plans inserts into a graph.
pub struct Planner<'a> {
    settings: &'a Settings,
    graph: Graph,
    tables_read: Tables,
    /// What reads a table, by its number in `tables_read`.
    sources: HashMap<usize, Rel>,
    pipes: Pipes,
    planned: HashMap<(String, Wanted), Rel>,
    sinks: HashMap<String, usize>,
    /// `OVER` operators by rows, keys and order, which queries share.
    overs: HashMap<String, over::SharedOver>,
    /// Looks a dead-letter table up by name.
    tables: &'a dyn Fn(&str) -> Option<Arc<Table>>,
    stateless: bool,
}

impl<'a> Planner<'a> {
    /// A planner; `tables` finds declared tables by name.
    pub fn new(settings: &'a Settings, tables: &'a dyn Fn(&str) -> Option<Arc<Table>>) -> Self {
        Planner {
            settings,
            graph: Graph::default(),
            tables_read: Tables::default(),
            sources: HashMap::new(),
            pipes: Pipes::default(),
            planned: HashMap::new(),
            sinks: HashMap::new(),
            overs: HashMap::new(),
            tables,
            stateless: true,
        }
    }

    /// Plans all inserts: for each the table written and its optimised plan.
    ///
    /// # Errors
    /// What the stream runtime cannot do, with the nearest thing that works, and in which of the inserts.
    pub fn plan(mut self, inserts: &[(Arc<Table>, LogicalPlan)]) -> Result<Graph, (usize, JobError)> {
        for (number, (_, plan)) in inserts.iter().enumerate() {
            self.collect_needed(plan).map_err(|e| (number, e))?;
        }
        for (number, (table, plan)) in inserts.iter().enumerate() {
            self.sink(table, plan).map_err(|e| (number, e))?;
        }
        if self.graph.nodes.iter().any(|n| matches!(n.kind, NodeKind::Sink(_)) && n.single) {
            // One writer shows the order of rows, so files are read in order.
            for node in &mut self.graph.nodes {
                if let NodeKind::Source(source) = &mut node.kind {
                    source.unordered = false;
                }
            }
        }
        Ok(self.graph)
    }

    /// Notes which columns of which tables a plan reads.
    fn collect_needed(&mut self, plan: &LogicalPlan) -> Result<(), JobError> {
        if let Some((table, columns)) = table_read(plan) {
            let positions = columns.iter().map(|name| position(&table, name)).collect::<Result<Vec<_>, _>>()?;
            self.tables_read.note(&table, positions);
            return Ok(());
        }
        if !matches!(
            plan,
            LogicalPlan::Projection(_)
                | LogicalPlan::Filter(_)
                | LogicalPlan::SubqueryAlias(_)
                | LogicalPlan::Union(_)
                | LogicalPlan::TableScan(_)
        ) {
            self.stateless = false;
        }
        if let LogicalPlan::Extension(extension) = plan
            && let Some(join) = extension.node.as_any().downcast_ref::<LookupJoinNode>()
        {
            self.tables_read.note(&join.table, []);
        }
        plan.inputs().into_iter().try_for_each(|input| self.collect_needed(input))
    }

    fn add(&mut self, node: Node) -> usize {
        self.graph.nodes.push(node);
        self.graph.nodes.len() - 1
    }

    fn schema(&self, node: usize) -> SchemaRef {
        self.graph.nodes[node].schema.clone()
    }

    /// Adds an operator above `input`.
    fn operator(
        &mut self,
        name: &str,
        id: String,
        input: &Rel,
        ship: Ship,
        schema: SchemaRef,
        factory: Factory,
    ) -> Result<usize, JobError> {
        self.operator_of(name, id, &[(input, ship)], schema, factory)
    }

    /// Adds an operator above several inputs. One that is shipped to the first shard makes the
    /// operator single; then all must be shipped there.
    fn operator_of(
        &mut self,
        name: &str,
        id: String,
        inputs: &[(&Rel, Ship)],
        schema: SchemaRef,
        factory: Factory,
    ) -> Result<usize, JobError> {
        // A first instance now: what cannot work fails before the job starts.
        factory().map_err(|e| JobError::usage(e.to_string()))?;
        let single = inputs.iter().any(|(input, ship)| match ship {
            Ship::Forward | Ship::BadRecords => input.single,
            Ship::Single => true,
            Ship::Hash(_) => false,
        });
        let edge = |(input, ship): &(&Rel, Ship)| Edge {
            from: input.node,
            ship: if matches!(ship, Ship::Single) && input.single { Ship::Forward } else { ship.clone() },
        };
        let inputs = inputs.iter().map(edge).collect();
        let id = if id.is_empty() { id } else { self.unused(id) };
        Ok(self.add(Node { id, name: name.into(), kind: NodeKind::Operator(factory), inputs, schema, single }))
    }

    /// An id that no node has: the same part is planned twice where others want different changes of it, and each
    /// has a state of its own.
    fn unused(&self, mut id: String) -> String {
        while self.graph.nodes.iter().any(|n| n.id == id) {
            id.push('\'');
        }
        id
    }

    /// Adds a filter above `input`, of which [`Wanted::whole_updates`] were wanted.
    fn filtered(&mut self, input: &Rel, predicate: Expr, wanted: Wanted) -> Result<usize, JobError> {
        let factory: Factory = if input.updating && wanted.deletions() {
            Arc::new(move || Ok(Box::new(FilterChanges::new(predicate.clone(), wanted.update_before)) as Box<dyn Operator>))
        } else {
            Arc::new(move || Ok(Box::new(Map::filter(predicate.clone())) as Box<dyn Operator>))
        };
        let schema = self.schema(input.node);
        self.operator("Filter", String::new(), input, Ship::Forward, schema, factory)
    }

    /// Plans the input of a part that makes any number of rows of one.
    fn multiplied(&mut self, plan: &LogicalPlan, wanted: Wanted) -> Result<Rel, JobError> {
        let input = self.rel(plan, wanted.whole_updates())?;
        if !input.updating || !wanted.deletions() {
            return Ok(input);
        }
        let factory: Factory = Arc::new(|| Ok(Box::new(BeforeAsDelete) as Box<dyn Operator>));
        let (id, schema) = (format!("deletions:{}", self.graph.nodes.len()), self.schema(input.node));
        let node = self.operator("Deletions", id, &input, Ship::Forward, schema, factory)?;
        Ok(Rel { node, ..input })
    }

    fn map(&mut self, input: &Rel, predicate: Option<Expr>, expressions: Vec<Expr>, schema: SchemaRef) -> Result<usize, JobError> {
        let out = schema.clone();
        let factory: Factory =
            Arc::new(move || Ok(Box::new(Map::new(predicate.clone(), expressions.clone(), schema.clone())) as Box<dyn Operator>));
        self.operator("Map", String::new(), input, Ship::Forward, out, factory)
    }

    /// Whether the rows that a node emits come in order of event time, but for late ones: they are of one split,
    /// its watermark lies right behind the newest row, and nothing on the way can change their order. Blocks of a
    /// fixed size are rather put together, since many small ones cost more than their rows' waiting is worth.
    fn in_order(&self, node: usize) -> bool {
        let node = &self.graph.nodes[node];
        match &node.kind {
            NodeKind::Source(spec) => {
                let block_size = spec.options.block_size.unwrap_or(self.settings.block_size);
                let follows = matches!(&spec.watermark, Some(SourceWatermark { strategy: Strategy::Delay(0), .. }));
                follows && block_size == BlockSize::Auto && spec.source.one_split()
            }
            NodeKind::Operator(_) if matches!(node.name.as_str(), "Map" | "Filter") => self.in_order(node.inputs[0].from),
            _ => false,
        }
    }

    /// Plans a projection of `input`.
    fn projected(&mut self, projection: &Projection, input: Rel) -> Result<Rel, JobError> {
        let schema = projection.input.schema();
        let origin: Vec<Option<usize>> =
            projection.expr.iter().map(|e| as_column(e).and_then(|c| schema.index_of_column(c).ok())).collect();
        let time = origin.iter().map(|o| o.is_some_and(|i| input.time[i])).collect();
        let expressions = bind_all(&projection.expr.iter().map(|e| e.clone().unalias()).collect::<Vec<_>>(), schema)?;
        let window = input.window.and_then(|w| w.moved(|column| origin.iter().position(|o| *o == Some(column))));
        let schema: SchemaRef = Arc::new(projection.schema.as_arrow().clone());
        let same = origin.iter().copied().eq((0..schema.fields().len()).map(Some));
        if same && schema.fields() == self.schema(input.node).fields() {
            return Ok(Rel { time, window, ..input });
        }
        let node = self.map(&input, None, expressions, schema)?;
        Ok(Rel { node, time, window, ..input })
    }

    fn rel(&mut self, plan: &LogicalPlan, wanted: Wanted) -> Result<Rel, JobError> {
        let key = (self.text(plan), wanted);
        if let Some(rel) = self.planned.get(&key) {
            return Ok(rel.clone());
        }
        let rel = self.convert(plan, wanted)?;
        // State is found again by what the part computes, wherever it stands in the job.
        let id = format!("{:016x}", hash::bytes(key.0.as_bytes()));
        if self.graph.nodes[rel.node].id.is_empty() {
            let name = self.graph.nodes[rel.node].name.to_lowercase();
            self.graph.nodes[rel.node].id = self.unused(format!("{name}:{id}"));
        }
        self.planned.insert(key, rel.clone());
        Ok(rel)
    }

    fn convert(&mut self, plan: &LogicalPlan, wanted: Wanted) -> Result<Rel, JobError> {
        if let Some((table, columns)) = table_read(plan) {
            let rel = self.source(&table)?;
            let emitted = self.schema(rel.node);
            let picks = columns.iter().map(|c| emitted.index_of(c).map_err(JobError::failed)).collect::<Result<Vec<_>, _>>()?;
            if picks.iter().copied().eq(0..emitted.fields().len()) {
                return Ok(rel);
            }
            let expressions = picks.iter().map(|i| Arc::new(BoundColumn::new(emitted.field(*i).name(), *i)) as Expr).collect();
            let node = self.map(&rel, None, expressions, Arc::new(emitted.project(&picks).map_err(JobError::failed)?))?;
            // Without the WATERMARK node above it, nothing reads the column as event time.
            return Ok(Rel { node, time: picks.iter().map(|i| rel.time[*i]).collect(), ..rel });
        }
        match plan {
            LogicalPlan::SubqueryAlias(alias) => self.rel(&alias.input, wanted),
            LogicalPlan::Projection(projection) => {
                if let Some(merged) = rank::upon_ranking(projection)? {
                    return self.rel(&merged, wanted);
                }
                let input = match self.rank_unseen(projection, wanted)? {
                    Some(input) => input,
                    None => self.rel(&projection.input, wanted)?,
                };
                self.projected(projection, input)
            }
            LogicalPlan::Filter(filter) => {
                if let Some(rel) = self.rank(plan, filter, wanted)? {
                    return Ok(rel);
                }
                let input = self.rel(&filter.input, wanted.whole_updates())?;
                let node = self.filtered(&input, bind(&filter.predicate, filter.input.schema())?, wanted)?;
                Ok(Rel { node, ..input })
            }
            LogicalPlan::Join(join) => self.join(plan, join, wanted),
            LogicalPlan::Union(union) => self.union(&union.inputs, plan, wanted),
            LogicalPlan::Aggregate(aggregate) => self.aggregate(plan, aggregate, wanted),
            LogicalPlan::Window(window) => self.over(plan, window, wanted),
            LogicalPlan::Unnest(unnest) => self.unnest(unnest, wanted),
            LogicalPlan::Extension(extension) => {
                if let Some(node) = extension.node.as_any().downcast_ref::<WindowNode>() {
                    return self.window_rows(plan, node, wanted);
                }
                if let Some(node) = extension.node.as_any().downcast_ref::<TemporalJoinNode>() {
                    return self.temporal_join(plan, node, wanted);
                }
                if let Some(node) = extension.node.as_any().downcast_ref::<LookupJoinNode>() {
                    return self.lookup_join(plan, node, wanted);
                }
                if let Some(node) = extension.node.as_any().downcast_ref::<SetNode>() {
                    return self.set_operation(node, wanted);
                }
                if let Some(node) = extension.node.as_any().downcast_ref::<PatternNode>() {
                    return self.pattern(plan, node, wanted);
                }
                if let Some(node) = extension.node.as_any().downcast_ref::<ProcessCallNode>() {
                    return self.process_call(plan, node, wanted);
                }
                if let Some(node) = extension.node.as_any().downcast_ref::<ProcessTableNode>() {
                    return self.process_table(plan, node, wanted);
                }
                if let Some(node) = extension.node.as_any().downcast_ref::<grouping::ExpandNode>() {
                    return self.expand(node, wanted);
                }
                if let Some(node) = extension.node.as_any().downcast_ref::<WatermarkNode>() {
                    // A condition that can never hold leaves nothing of the table.
                    if gives_nothing(&node.input) {
                        let schema = node.input.schema().clone();
                        return self.rel(&LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: false, schema }), wanted);
                    }
                    return Err(JobError::usage(format!("the watermark of {} cannot be planned here", node.column)));
                }
                Err(unsupported(plan))
            }
            LogicalPlan::Values(values) => self.literal_rows(values),
            LogicalPlan::EmptyRelation(empty) => {
                let batch =
                    if empty.produce_one_row { one_row() } else { RecordBatch::new_empty(Arc::new(empty.schema.as_arrow().clone())) };
                self.values(batch)
            }
            LogicalPlan::Limit(limit) => self.limit(limit, wanted),
            LogicalPlan::Sort(sort) => self.sort(sort, wanted),
            LogicalPlan::Distinct(_) => Err(JobError::failed("internal error: DISTINCT should have become a GROUP BY")),
            _ => Err(unsupported(plan)),
        }
    }
}

fn unsupported(plan: &LogicalPlan) -> JobError {
    let (what, words): (String, &[&str]) = match plan {
        LogicalPlan::Subquery(_) => ("a correlated subquery".into(), &["LATERAL", "( SELECT"]),
        LogicalPlan::RecursiveQuery(_) => ("WITH RECURSIVE".into(), &["WITH RECURSIVE"]),
        other => (other.display().to_string(), &[]),
    };
    JobError::refused(
        words.iter().copied(),
        format!("{what} is not supported in a stream; SET 'execution.runtime-mode' = 'batch' runs it on bounded input"),
    )
}

/// Whether a plan can have no rows, by a condition that never holds: the optimiser leaves it as it is where it came to it last.
fn gives_nothing(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::EmptyRelation(empty) => !empty.produce_one_row,
        LogicalPlan::Filter(filter) => {
            matches!(&filter.predicate, Logical::Literal(ScalarValue::Boolean(None | Some(false)), _)) || gives_nothing(&filter.input)
        }
        LogicalPlan::Projection(projection) => gives_nothing(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => gives_nothing(&alias.input),
        _ => false,
    }
}
