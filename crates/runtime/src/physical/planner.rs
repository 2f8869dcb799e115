//! From logical plans to the graph.
//!
//! All inserts of a job are planned into one graph: a table is read once whoever reads it, and parts
//! that are the same are there once.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion_common::{DFSchema, ScalarValue};
use datafusion_expr::expr::WindowFunction;
use datafusion_expr::{
    Expr as Logical, FetchType, LogicalPlan, Operator as BinaryOperator, SkipType, WindowFrame, WindowFrameBound, WindowFrameUnits,
};
use datafusion_physical_expr::expressions::Column as BoundColumn;
use tidemill_connect::ReadRequest;
use tidemill_operator::Operator;
use tidemill_operator::group::GroupAggregate;
use tidemill_operator::limit::Limit;
use tidemill_operator::map::{Expr, Map};
use tidemill_operator::over::{Frame, Over, OverSpec};
use tidemill_operator::sort::Sort;
use tidemill_operator::window::WindowSpec;
use tidemill_operator::window::assign::WindowAssign;
use tidemill_operator::window::session::SessionAggregate;
use tidemill_operator::window::slices::SliceAggregate;
use tidemill_plan::catalog::RawTable;
use tidemill_plan::node::as_column;
use tidemill_plan::{ColumnKind, Table, WatermarkNode, WindowKind, WindowNode};
use tidemill_state::hash;

use super::aggregate::{bind, bind_all, call, window_call};
use super::window::Windowed;
use super::{Edge, Factory, Graph, Node, NodeKind, Ship, SinkSpec, SourceSpec, SourceWatermark, Strategy};
use crate::settings::Settings;
use crate::{JobError, connector};

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
}

/// Plans inserts into a graph.
pub struct Planner<'a> {
    settings: &'a Settings,
    graph: Graph,
    /// Columns of each table that anyone reads.
    needed: HashMap<String, BTreeSet<usize>>,
    sources: HashMap<String, Rel>,
    planned: HashMap<(String, Wanted), Rel>,
    sinks: HashMap<String, usize>,
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
            needed: HashMap::new(),
            sources: HashMap::new(),
            planned: HashMap::new(),
            sinks: HashMap::new(),
            tables,
            stateless: true,
        }
    }

    /// Plans all inserts: for each the table written and its optimised plan.
    ///
    /// # Errors
    /// What the stream runtime cannot do, with the nearest thing that works.
    pub fn plan(mut self, inserts: &[(Arc<Table>, LogicalPlan)]) -> Result<Graph, JobError> {
        for (_, plan) in inserts {
            self.collect_needed(plan)?;
        }
        for (table, plan) in inserts {
            self.sink(table, plan)?;
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
            self.needed.entry(table.name.clone()).or_default().extend(positions);
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
        // A first instance now: what cannot work fails before the job starts.
        factory().map_err(|e| JobError::usage(e.to_string()))?;
        let single = match ship {
            Ship::Forward | Ship::BadRecords => input.single,
            Ship::Single => true,
            Ship::Hash(_) => false,
        };
        let ship = if matches!(ship, Ship::Single) && input.single { Ship::Forward } else { ship };
        Ok(self.add(Node {
            id,
            name: name.into(),
            kind: NodeKind::Operator(factory),
            inputs: vec![Edge { from: input.node, ship }],
            schema,
            single,
        }))
    }

    fn map(&mut self, input: &Rel, predicate: Option<Expr>, expressions: Vec<Expr>, schema: SchemaRef) -> Result<usize, JobError> {
        let out = schema.clone();
        let factory: Factory =
            Arc::new(move || Ok(Box::new(Map::new(predicate.clone(), expressions.clone(), schema.clone())) as Box<dyn Operator>));
        self.operator("Map", String::new(), input, Ship::Forward, out, factory)
    }

    // ---- sinks -------------------------------------------------------------------------------

    fn sink(&mut self, table: &Arc<Table>, plan: &LogicalPlan) -> Result<(), JobError> {
        let (sink, options) = connector::sink(table)?;
        let keyed = !table.primary_key.is_empty();
        let seen = !matches!(options.connector.as_str(), "blackhole");
        let wanted = Wanted { fold: self.settings.mini_batch || !seen || keyed, update_before: sink.wants_update_before() };
        let rel = self.rel(plan, wanted)?;
        if rel.updating && !sink.accepts_updates() {
            return Err(JobError::usage(format!(
                "table '{}' (connector '{}') takes new rows only, but the query updates its results: aggregate in windows (TUMBLE, HOP, …), or write to a sink that takes updates, such as 'print'",
                table.name, options.connector
            )));
        }
        let count = self.sinks.entry(table.name.clone()).or_default();
        *count += 1;
        let id = if *count == 1 { format!("sink:{}", table.name) } else { format!("sink:{}#{count}", table.name) };
        self.sink_node(table, sink, &rel, id);
        Ok(())
    }

    fn sink_node(&mut self, table: &Table, sink: Arc<dyn tidemill_connect::Sink>, rel: &Rel, id: String) -> usize {
        let schema = table.sink_schema();
        let not_null = schema.fields().iter().enumerate().filter(|(_, f)| !f.is_nullable()).map(|(i, _)| i).collect();
        let one = sink.parallelism() == Some(1);
        let ship = if one && !rel.single { Ship::Single } else { Ship::Forward };
        let spec = SinkSpec { table: table.name.clone(), sink, schema: schema.clone(), not_null };
        self.add(Node {
            id,
            name: format!("Sink {}", table.name),
            kind: NodeKind::Sink(Box::new(spec)),
            inputs: vec![Edge { from: rel.node, ship }],
            schema,
            single: one || rel.single,
        })
    }

    // ---- sources -----------------------------------------------------------------------------

    fn source(&mut self, table: &Arc<Table>) -> Result<Rel, JobError> {
        if let Some(rel) = self.sources.get(&table.name) {
            return Ok(rel.clone());
        }
        let (source, options) = connector::source(table)?;
        let mut columns = self.needed.get(&table.name).cloned().unwrap_or_default();
        let all = DFSchema::try_from(table.schema())?;
        let raw = table.raw_schema();
        if let Some(watermark) = &table.watermark {
            columns.insert(position(table, &watermark.column)?);
            for column in watermark.expression.column_refs() {
                columns.insert(all.index_of_column(column)?);
            }
        }
        let columns: Vec<usize> = columns.into_iter().collect();
        // What the readers must give: the columns themselves and what computed ones are made of.
        let mut read: BTreeSet<usize> = BTreeSet::new();
        for index in &columns {
            let column = &table.columns[*index];
            match &column.kind {
                ColumnKind::Computed(expression) => {
                    for used in expression.column_refs() {
                        read.insert(raw.index_of(&used.name).map_err(JobError::failed)?);
                    }
                }
                _ => drop(read.insert(raw.index_of(&column.name).map_err(JobError::failed)?)),
            }
        }
        let physical = table.physical_schema();
        let width = physical.fields().len();
        let metadata = table.metadata();
        let request = ReadRequest {
            projection: read.iter().copied().filter(|i| *i < width).collect(),
            metadata: read.iter().filter(|i| **i >= width).map(|i| metadata[*i - width].clone()).collect(),
            physical,
        };
        let given = DFSchema::try_from(request.schema())?;
        let schema: SchemaRef = Arc::new(table.schema().project(&columns).map_err(JobError::failed)?);
        let mut expressions = Vec::new();
        for index in &columns {
            let column = &table.columns[*index];
            expressions.push(match &column.kind {
                ColumnKind::Computed(expression) => bind(&coerced(expression, &given, &column.data_type)?, &given)?,
                _ => Arc::new(BoundColumn::new_with_schema(&column.name, &request.schema())?) as Expr,
            });
        }
        let plain = schema.fields() == request.schema().fields()
            && !columns.iter().any(|i| matches!(table.columns[*i].kind, ColumnKind::Computed(_)));
        let watermark = match &table.watermark {
            None => None,
            Some(spec) => {
                let column = schema.index_of(&spec.column).map_err(JobError::failed)?;
                let strategy = match delay(&spec.expression, &spec.column) {
                    Some(ms) => Strategy::Delay(ms),
                    None => {
                        let emitted = DFSchema::try_from(schema.clone())?;
                        Strategy::Expression(bind(&coerced(&spec.expression, &emitted, schema.field(column).data_type())?, &emitted)?)
                    }
                };
                Some(SourceWatermark { column, strategy })
            }
        };
        let time = (0..columns.len()).map(|i| watermark.as_ref().is_some_and(|w| w.column == i)).collect();
        let dead_letter = options.dead_letter.clone().filter(|_| options.on_error == connector::OnError::DeadLetter);
        let spec = SourceSpec {
            table: table.name.clone(),
            source,
            options,
            request,
            project: (!plain).then_some(expressions),
            unordered: self.stateless && watermark.is_none(),
            watermark,
            dead_letter: None,
        };
        let node = self.add(Node {
            id: format!("source:{}", table.name),
            name: format!("Source {}", table.name),
            kind: NodeKind::Source(Box::new(spec)),
            inputs: Vec::new(),
            schema,
            single: false,
        });
        if let Some(name) = dead_letter {
            self.dead_letter(node, table, &name)?;
        }
        let rel = Rel { node, time, updating: false, single: false, window: None };
        self.sources.insert(table.name.clone(), rel.clone());
        Ok(rel)
    }

    /// Plans the sink of records that cannot be read.
    fn dead_letter(&mut self, source: usize, of: &Table, name: &str) -> Result<(), JobError> {
        let table = (self.tables)(name)
            .ok_or_else(|| JobError::usage(format!("table '{}': its dead-letter table '{name}' is not declared", of.name)))?;
        let schema = table.sink_schema();
        for field in schema.fields() {
            let fits = match field.name().as_str() {
                "source" | "place" | "reason" => *field.data_type() == DataType::Utf8,
                "raw" => matches!(field.data_type(), DataType::Binary | DataType::Utf8),
                _ => false,
            };
            if !fits {
                return Err(JobError::usage(format!(
                    "dead-letter table '{name}': column '{}' must be one of source STRING, place STRING, reason STRING, raw BYTES (or STRING)",
                    field.name()
                )));
            }
        }
        let (sink, _) = connector::sink(&table)?;
        let rel = Rel { node: source, time: Vec::new(), updating: false, single: false, window: None };
        let sink = self.sink_node(&table, sink, &rel, format!("sink:{name}!{}", of.name));
        // Bad records do not flow with the rows: the source hands them to this node directly.
        self.graph.nodes[sink].inputs[0].ship = Ship::BadRecords;
        if let NodeKind::Source(spec) = &mut self.graph.nodes[source].kind {
            spec.dead_letter = Some(sink);
        }
        Ok(())
    }

    // ---- queries -----------------------------------------------------------------------------

    fn rel(&mut self, plan: &LogicalPlan, wanted: Wanted) -> Result<Rel, JobError> {
        let key = (plan.display_indent_schema().to_string(), wanted);
        if let Some(rel) = self.planned.get(&key) {
            return Ok(rel.clone());
        }
        let rel = self.convert(plan, wanted)?;
        // State is found again by what the part computes, wherever it stands in the job.
        let id = format!("{:016x}", hash::bytes(key.0.as_bytes()));
        if self.graph.nodes[rel.node].id.is_empty() {
            let name = self.graph.nodes[rel.node].name.to_lowercase();
            self.graph.nodes[rel.node].id = format!("{name}:{id}");
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
                let input = self.rel(&projection.input, wanted)?;
                let schema = projection.input.schema();
                let time = projection
                    .expr
                    .iter()
                    .map(|e| as_column(e).and_then(|c| schema.index_of_column(c).ok()).is_some_and(|i| input.time[i]))
                    .collect();
                let expressions = bind_all(&projection.expr.iter().map(|e| e.clone().unalias()).collect::<Vec<_>>(), schema)?;
                let origin: Vec<Option<usize>> =
                    projection.expr.iter().map(|e| as_column(e).and_then(|c| schema.index_of_column(c).ok())).collect();
                let window = input.window.and_then(|w| w.moved(|column| origin.iter().position(|o| *o == Some(column))));
                let node = self.map(&input, None, expressions, Arc::new(projection.schema.as_arrow().clone()))?;
                Ok(Rel { node, time, window, ..input })
            }
            LogicalPlan::Filter(filter) => {
                let input = self.rel(&filter.input, wanted)?;
                let predicate = bind(&filter.predicate, filter.input.schema())?;
                let factory: Factory = Arc::new(move || Ok(Box::new(Map::filter(predicate.clone())) as Box<dyn Operator>));
                let schema = self.schema(input.node);
                let node = self.operator("Filter", String::new(), &input, Ship::Forward, schema, factory)?;
                Ok(Rel { node, ..input })
            }
            LogicalPlan::Union(union) => self.union(&union.inputs, plan, wanted),
            LogicalPlan::Aggregate(aggregate) => self.aggregate(plan, aggregate, wanted),
            LogicalPlan::Window(window) => self.over(plan, window, wanted),
            LogicalPlan::Extension(extension) => {
                if let Some(node) = extension.node.as_any().downcast_ref::<WindowNode>() {
                    return self.window_rows(plan, node, wanted);
                }
                if let Some(node) = extension.node.as_any().downcast_ref::<WatermarkNode>() {
                    // A condition that can never hold leaves nothing of the table.
                    if let LogicalPlan::EmptyRelation(_) = &node.input {
                        return self.rel(&node.input, wanted);
                    }
                    return Err(JobError::usage(format!("the watermark of {} cannot be planned here", node.column)));
                }
                Err(unsupported(plan))
            }
            LogicalPlan::Values(values) => {
                let mut columns: Vec<Vec<ScalarValue>> = vec![Vec::new(); values.schema.fields().len()];
                let empty = DFSchema::empty();
                for row in &values.values {
                    for (column, expression) in columns.iter_mut().zip(row) {
                        let one = one_row();
                        let value = bind(expression, &empty)?.evaluate(&one).map_err(JobError::from)?;
                        column.push(ScalarValue::try_from_array(&value.into_array(1)?, 0)?);
                    }
                }
                let schema: SchemaRef = Arc::new(values.schema.as_arrow().clone());
                let arrays = columns
                    .into_iter()
                    .zip(schema.fields())
                    .map(|(c, f)| arrow::compute::cast(&ScalarValue::iter_to_array(c)?, f.data_type()).map_err(JobError::failed))
                    .collect::<Result<Vec<_>, JobError>>()?;
                self.values(RecordBatch::try_new(schema, arrays).map_err(JobError::failed)?)
            }
            LogicalPlan::EmptyRelation(empty) => {
                let batch =
                    if empty.produce_one_row { one_row() } else { RecordBatch::new_empty(Arc::new(empty.schema.as_arrow().clone())) };
                self.values(batch)
            }
            LogicalPlan::Limit(limit) => {
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
            LogicalPlan::Sort(sort) => self.sort(sort, wanted),
            LogicalPlan::Distinct(_) => Err(JobError::failed("internal error: DISTINCT should have become a GROUP BY")),
            _ => Err(unsupported(plan)),
        }
    }

    fn values(&mut self, batch: RecordBatch) -> Result<Rel, JobError> {
        let schema = batch.schema();
        // No rows (a condition that can never hold): any time column is event time as good as any.
        let nothing = batch.num_rows() == 0;
        let time = schema.fields().iter().map(|f| nothing && matches!(f.data_type(), DataType::Timestamp(..))).collect();
        let node = self.add(Node {
            id: String::new(),
            name: "Values".into(),
            kind: NodeKind::Values(batch),
            inputs: Vec::new(),
            schema,
            single: true,
        });
        Ok(Rel { node, time, updating: false, single: true, window: None })
    }

    fn union(&mut self, inputs: &[Arc<LogicalPlan>], plan: &LogicalPlan, wanted: Wanted) -> Result<Rel, JobError> {
        let schema: SchemaRef = Arc::new(plan.schema().as_arrow().clone());
        let parts = inputs.iter().map(|i| self.rel(i, wanted)).collect::<Result<Vec<_>, _>>()?;
        let single = parts.iter().any(|p| p.single);
        let time = (0..schema.fields().len()).map(|c| parts.iter().all(|p| p.time[c])).collect();
        let updating = parts.iter().any(|p| p.updating);
        let mut edges = Vec::new();
        for part in &parts {
            // The same rows under the union's names.
            let from = self.schema(part.node);
            let expressions = from.fields().iter().enumerate().map(|(i, f)| Arc::new(BoundColumn::new(f.name(), i)) as Expr).collect();
            let renamed = self.map(part, None, expressions, schema.clone())?;
            self.graph.nodes[renamed].id = format!("rename:{renamed}");
            edges.push(Edge { from: renamed, ship: if single && !part.single { Ship::Single } else { Ship::Forward } });
        }
        let node = self.add(Node { id: String::new(), name: "Union".into(), kind: NodeKind::Union, inputs: edges, schema, single });
        Ok(Rel { node, time, updating, single, window: None })
    }

    fn aggregate(&mut self, plan: &LogicalPlan, aggregate: &datafusion_expr::Aggregate, wanted: Wanted) -> Result<Rel, JobError> {
        if never_has_rows(&aggregate.input) {
            return self.values(RecordBatch::new_empty(Arc::new(aggregate.schema.as_arrow().clone())));
        }
        if aggregate.group_expr.iter().any(|e| matches!(e, Logical::GroupingSet(_))) {
            return Err(JobError::usage(
                "GROUPING SETS, ROLLUP and CUBE are not supported in a stream yet; write one query for each set and combine them with UNION ALL",
            ));
        }
        if let Some(windowed) = Windowed::find(&aggregate.input)? {
            let bound: Vec<Option<usize>> = aggregate.group_expr.iter().map(|e| windowed.window_column(e)).collect();
            if bound.contains(&Some(0))
                && bound.contains(&Some(1))
                && let Some(rel) = self.window_aggregate(plan, aggregate, windowed, wanted)?
            {
                return Ok(rel);
            }
        }
        let input = self.rel(&aggregate.input, Wanted { fold: wanted.fold, update_before: true })?;
        if let Some(rel) = self.attached_aggregate(plan, aggregate, &input)? {
            return Ok(rel);
        }
        let schema = aggregate.input.schema();
        let keys = bind_all(&aggregate.group_expr, schema)?;
        let key_types: Vec<DataType> = aggregate.schema.fields()[..keys.len()].iter().map(|f| f.data_type().clone()).collect();
        let calls = aggregate.aggr_expr.iter().map(|e| call(e, schema)).collect::<Result<Vec<_>, _>>()?;
        let out: SchemaRef = Arc::new(aggregate.schema.as_arrow().clone());
        let ship = if keys.is_empty() { Ship::Single } else { Ship::Hash(keys.clone()) };
        let distinct = calls.is_empty();
        let (retracts, declared) = (input.updating, out.clone());
        let factory: Factory = Arc::new(move || {
            let operator = GroupAggregate::new(
                keys.clone(),
                key_types.clone(),
                calls.clone(),
                out.clone(),
                retracts,
                wanted.fold,
                wanted.update_before,
            )?;
            Ok(Box::new(operator) as Box<dyn Operator>)
        });
        let time = vec![false; declared.fields().len()];
        let single = matches!(ship, Ship::Single);
        let node = self.operator("GroupAggregate", String::new(), &input, ship, declared, factory)?;
        // DISTINCT of rows that are never taken back only ever adds.
        Ok(Rel { node, time, updating: !(distinct && !retracts), single, window: None })
    }

    fn window_aggregate(
        &mut self,
        plan: &LogicalPlan,
        aggregate: &datafusion_expr::Aggregate,
        windowed: Windowed,
        wanted: Wanted,
    ) -> Result<Option<Rel>, JobError> {
        let mut keys = Vec::new();
        for expression in &aggregate.group_expr {
            if windowed.window_column(expression).is_none() {
                let Some(key) = windowed.rewrite(expression)? else { return Ok(None) };
                keys.push(key);
            }
        }
        let mut calls = Vec::new();
        for expression in &aggregate.aggr_expr {
            let Some(rewritten) = windowed.rewrite(expression)? else { return Ok(None) };
            calls.push(rewritten);
        }
        let input = self.rel(&windowed.input, wanted)?;
        self.check_time(&input, windowed.time, &windowed.input, "a window")?;
        let schema = windowed.input.schema();
        if let WindowKind::Session { .. } = windowed.kind {
            let columns: BTreeSet<usize> = keys.iter().filter_map(|k| as_column(k).and_then(|c| schema.index_of_column(c).ok())).collect();
            if keys.len() != columns.len() || columns != windowed.partition_by.iter().copied().collect() {
                return Err(JobError::usage(
                    "the GROUP BY of a SESSION window must name window_start, window_end and exactly the columns of its PARTITION BY",
                ));
            }
        }
        let bound_keys = bind_all(&keys, schema)?;
        let bound_calls = calls.iter().map(|c| call(c, schema)).collect::<Result<Vec<_>, _>>()?;
        // What the operator emits: keys, calls, start, end, time.
        let mut fields: Vec<Field> = Vec::new();
        let all = aggregate.schema.fields();
        let group = aggregate.group_expr.len();
        let mut picks = vec![0; all.len()];
        let mut window_places: Vec<(usize, usize)> = Vec::new();
        for (i, expression) in aggregate.group_expr.iter().enumerate() {
            match windowed.window_column(expression) {
                Some(which) => window_places.push((i, which)),
                None => {
                    picks[i] = fields.len();
                    fields.push(all[i].as_ref().clone().with_name(format!("k{i}")));
                }
            }
        }
        let key_types: Vec<DataType> = fields.iter().map(|f| f.data_type().clone()).collect();
        for (i, field) in all[group..].iter().enumerate() {
            picks[group + i] = fields.len();
            fields.push(field.as_ref().clone().with_name(format!("a{i}")).with_nullable(true));
        }
        for (place, which) in &window_places {
            picks[*place] = fields.len() + which;
        }
        let time_type = schema.field(windowed.time).data_type().clone();
        let DataType::Timestamp(unit, _) = &time_type else { return Err(JobError::failed("internal error: a window over no timestamp")) };
        for (which, name) in tidemill_plan::node::WINDOW_COLUMNS.iter().enumerate() {
            fields.push(Field::new(*name, if which == 2 { time_type.clone() } else { DataType::Timestamp(*unit, None) }, false));
        }
        let emitted: SchemaRef = Arc::new(Schema::new(fields));
        let kind = windowed.kind;
        let ship = if bound_keys.is_empty() { Ship::Single } else { Ship::Hash(bound_keys.clone()) };
        let (time, spec_schema) = (windowed.time, emitted.clone());
        let factory: Factory = Arc::new(move || {
            let spec = WindowSpec {
                time,
                keys: bound_keys.clone(),
                key_types: key_types.clone(),
                calls: bound_calls.clone(),
                schema: spec_schema.clone(),
            };
            Ok(match kind {
                WindowKind::Session { gap } => Box::new(SessionAggregate::new(spec, gap)?) as Box<dyn Operator>,
                _ => Box::new(SliceAggregate::new(spec, kind)),
            })
        });
        let single = matches!(ship, Ship::Single);
        if input.updating {
            return Err(JobError::usage("a window aggregate needs an append-only input, but rows of this one are updated"));
        }
        let name = if matches!(kind, WindowKind::Session { .. }) { "SessionAggregate" } else { "WindowAggregate" };
        let id = format!("window:{:016x}", hash::bytes(plan.display_indent_schema().to_string().as_bytes()));
        let node = self.operator(name, id, &input, ship, emitted.clone(), factory)?;
        let windows = Rel { node, time: Vec::new(), updating: false, single, window: None };
        let expressions = picks.iter().map(|i| Arc::new(BoundColumn::new(emitted.field(*i).name(), *i)) as Expr).collect();
        let node = self.map(&windows, None, expressions, Arc::new(aggregate.schema.as_arrow().clone()))?;
        let mut time = vec![false; all.len()];
        window_places.iter().for_each(|(place, which)| time[*place] = *which == 2);
        let place = |which: usize| window_places.iter().find(|(_, w)| *w == which).map(|(place, _)| *place);
        let window = place(0).zip(place(1)).map(|(start, end)| Bounds { start, end, kind });
        Ok(Some(Rel { node, time, window, ..windows }))
    }

    /// A second aggregation in the windows of a first one: it ends when they end.
    fn attached_aggregate(
        &mut self,
        plan: &LogicalPlan,
        aggregate: &datafusion_expr::Aggregate,
        input: &Rel,
    ) -> Result<Option<Rel>, JobError> {
        let Some(bounds) = input.window.filter(|w| !input.updating && !matches!(w.kind, WindowKind::Session { .. })) else {
            return Ok(None);
        };
        let schema = aggregate.input.schema();
        let origin: Vec<Option<usize>> =
            aggregate.group_expr.iter().map(|e| as_column(e).and_then(|c| schema.index_of_column(c).ok())).collect();
        let place = |column: usize| origin.iter().position(|o| *o == Some(column));
        let (Some(start), Some(end)) = (place(bounds.start), place(bounds.end)) else { return Ok(None) };
        let group = origin.len();
        let all = aggregate.schema.fields();
        let is_key = |i: &usize| *i != start && *i != end;
        let keys: Vec<Logical> = (0..group).filter(is_key).map(|i| aggregate.group_expr[i].clone()).collect();
        let key_types: Vec<DataType> = (0..group).filter(is_key).map(|i| all[i].data_type().clone()).collect();
        let keys = bind_all(&keys, schema)?;
        let calls = aggregate.aggr_expr.iter().map(|e| call(e, schema)).collect::<Result<Vec<_>, _>>()?;
        // The operator emits: keys, calls, start, end, time.
        let mut fields: Vec<Field> =
            (0..group).filter(is_key).chain(group..all.len()).map(|i| all[i].as_ref().clone().with_name(format!("c{i}"))).collect();
        let bound = fields.len();
        fields.extend([start, end, end].map(|i| all[i].as_ref().clone()));
        let emitted: SchemaRef = Arc::new(Schema::new(fields));
        let mut next = 0;
        let picks: Vec<usize> = (0..all.len())
            .map(|i| {
                if i == start || i == end {
                    return bound + usize::from(i == end);
                }
                next += 1;
                next - 1
            })
            .collect();
        let ship = if keys.is_empty() { Ship::Single } else { Ship::Hash(keys.clone()) };
        let single = matches!(ship, Ship::Single);
        let (time, kind, spec_schema) = (bounds.end, bounds.kind, emitted.clone());
        let factory: Factory = Arc::new(move || {
            let spec =
                WindowSpec { time, keys: keys.clone(), key_types: key_types.clone(), calls: calls.clone(), schema: spec_schema.clone() };
            Ok(Box::new(SliceAggregate::attached(spec, kind)) as Box<dyn Operator>)
        });
        let id = format!("window:{:016x}", hash::bytes(plan.display_indent_schema().to_string().as_bytes()));
        let node = self.operator("WindowAggregate", id, input, ship, emitted.clone(), factory)?;
        let windows = Rel { node, time: Vec::new(), updating: false, single, window: None };
        let expressions = picks.iter().map(|i| Arc::new(BoundColumn::new(emitted.field(*i).name(), *i)) as Expr).collect();
        let node = self.map(&windows, None, expressions, Arc::new(aggregate.schema.as_arrow().clone()))?;
        Ok(Some(Rel { node, time: vec![false; all.len()], window: Some(Bounds { start, end, kind }), ..windows }))
    }

    /// A window table function whose rows are not aggregated by window.
    fn window_rows(&mut self, plan: &LogicalPlan, node: &WindowNode, wanted: Wanted) -> Result<Rel, JobError> {
        if let WindowKind::Session { .. } = node.kind {
            return Err(JobError::usage(
                "a SESSION window without GROUP BY window_start, window_end is not supported in a stream; group by them, or run the job with SET 'execution.runtime-mode' = 'batch'",
            ));
        }
        let input = self.rel(&node.input, wanted)?;
        let time_index = node.time_index()?;
        self.check_time(&input, time_index, &node.input, "a window")?;
        let schema: SchemaRef = Arc::new(plan.schema().as_arrow().clone());
        let (kind, out) = (node.kind, schema.clone());
        let factory: Factory = Arc::new(move || Ok(Box::new(WindowAssign::new(kind, time_index, out.clone())) as Box<dyn Operator>));
        let mut time = input.time.clone();
        time.extend([false, false, true]);
        let node = self.operator("WindowAssign", String::new(), &input, Ship::Forward, schema, factory)?;
        Ok(Rel { node, time, ..input })
    }

    fn check_time(&self, input: &Rel, column: usize, plan: &LogicalPlan, what: &str) -> Result<(), JobError> {
        if input.time[column] {
            return Ok(());
        }
        let name = plan.schema().field(column).name();
        Err(JobError::usage(format!(
            "{what} needs event time, but column '{name}' is an ordinary TIMESTAMP here: declare WATERMARK FOR it in the CREATE TABLE, and pass it on unchanged (not computed or cast), or run the job with SET 'execution.runtime-mode' = 'batch'"
        )))
    }

    fn over(&mut self, plan: &LogicalPlan, window: &datafusion_expr::Window, wanted: Wanted) -> Result<Rel, JobError> {
        let input = self.rel(&window.input, wanted)?;
        if input.updating {
            return Err(JobError::usage(
                "OVER needs an append-only input, but rows of this one are updated; aggregate in windows instead of a running GROUP BY",
            ));
        }
        let schema = window.input.schema();
        let functions = window
            .window_expr
            .iter()
            .map(|e| match e.clone().unalias() {
                Logical::WindowFunction(f) => Ok(*f),
                other => Err(JobError::failed(format!("internal error: {other} is not a window function"))),
            })
            .collect::<Result<Vec<WindowFunction>, _>>()?;
        let first = &functions[0].params;
        let by = first.order_by.first().ok_or_else(|| {
            JobError::usage(format!("{}: an OVER in a stream needs ORDER BY an event-time column", window.window_expr[0]))
        })?;
        let time = as_column(&by.expr)
            .and_then(|c| schema.index_of_column(c).ok())
            .filter(|_| by.asc)
            .ok_or_else(|| JobError::usage(format!("OVER (… ORDER BY {by}): a stream is ordered by an event-time column, ascending; any other order needs SET 'execution.runtime-mode' = 'batch'")))?;
        self.check_time(&input, time, &window.input, "the ORDER BY of an OVER")?;
        // The planner puts windows of the same order into one node; each frame needs an operator.
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for (i, function) in functions.iter().enumerate() {
            let same = |other: &usize| {
                let (a, b) = (&functions[*other].params, &function.params);
                a.partition_by == b.partition_by && a.window_frame == b.window_frame && a.order_by == b.order_by
            };
            match groups.iter_mut().find(|g| same(&g[0])) {
                Some(group) => group.push(i),
                None => groups.push(vec![i]),
            }
        }
        let width = schema.fields().len();
        let all: SchemaRef = Arc::new(window.schema.as_arrow().clone());
        let mut rel = input.clone();
        let mut order: Vec<usize> = Vec::new();
        for (number, group) in groups.iter().enumerate() {
            let params = &functions[group[0]].params;
            let keys = bind_all(&params.partition_by, schema)?;
            let key_types = keys.iter().map(|k| Ok(k.data_type(schema.as_arrow())?)).collect::<Result<Vec<_>, JobError>>()?;
            let frame = frame(&params.window_frame)?;
            let calls =
                group.iter().map(|i| window_call(&functions[*i], &window.window_expr[*i], schema)).collect::<Result<Vec<_>, _>>()?;
            let input_schema = self.schema(rel.node);
            let added = group.iter().map(|i| all.fields()[width + i].clone());
            let out: SchemaRef = Arc::new(Schema::new(input_schema.fields().iter().cloned().chain(added).collect::<Vec<_>>()));
            order.extend(group);
            let ship = if keys.is_empty() { Ship::Single } else { Ship::Hash(keys.clone()) };
            let single = matches!(ship, Ship::Single);
            let declared = out.clone();
            let factory: Factory = Arc::new(move || {
                let spec = OverSpec {
                    time,
                    keys: keys.clone(),
                    key_types: key_types.clone(),
                    frame,
                    calls: calls.clone(),
                    input: input_schema.clone(),
                    schema: out.clone(),
                };
                Ok(Box::new(Over::new(spec)?) as Box<dyn Operator>)
            });
            let id = format!("over{number}:{:016x}", hash::bytes(plan.display_indent_schema().to_string().as_bytes()));
            let node = self.operator("Over", id, &rel, ship, declared, factory)?;
            rel = Rel { node, time: Vec::new(), updating: false, single, window: None };
        }
        let mut node = rel.node;
        let single = rel.single;
        if groups.len() > 1 {
            let place = |i: usize| order.iter().position(|o| *o == i).expect("every function is in a group");
            let picks = (0..width).chain((0..functions.len()).map(|i| width + place(i)));
            let expressions = picks.zip(all.fields()).map(|(i, f)| Arc::new(BoundColumn::new(f.name(), i)) as Expr).collect();
            node = self.map(&rel, None, expressions, all)?;
        }
        let mut times = input.time.clone();
        times.resize(window.schema.fields().len(), false);
        Ok(Rel { node, time: times, updating: false, single, window: None })
    }

    fn sort(&mut self, sort: &datafusion_expr::logical_plan::Sort, wanted: Wanted) -> Result<Rel, JobError> {
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

fn one_row() -> RecordBatch {
    RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &RecordBatchOptions::new().with_row_count(Some(1)))
        .expect("no columns")
}

/// Whether a plan is empty because of a condition that can never hold.
fn never_has_rows(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::EmptyRelation(empty) => !empty.produce_one_row,
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Extension(_)
        | LogicalPlan::Aggregate(_) => plan.inputs().first().is_some_and(|input| never_has_rows(input)),
        _ => false,
    }
}

fn position(table: &Table, name: &str) -> Result<usize, JobError> {
    table
        .columns
        .iter()
        .position(|c| c.name == name)
        .ok_or_else(|| JobError::failed(format!("internal error: table '{}' has no column '{name}'", table.name)))
}

/// The table that a subtree reads, if it is nothing but the table as declared, and the names of the
/// columns it wants of it.
fn table_read(plan: &LogicalPlan) -> Option<(Arc<Table>, Vec<String>)> {
    let names = || plan.schema().fields().iter().map(|f| f.name().clone()).collect();
    match plan {
        LogicalPlan::TableScan(scan) => {
            let raw = scan.source.downcast_ref::<RawTable>()?;
            Some((raw.table.clone(), names()))
        }
        LogicalPlan::Extension(extension) => {
            let watermark = extension.node.as_any().downcast_ref::<WatermarkNode>()?;
            let mut below = &watermark.input;
            loop {
                match below {
                    LogicalPlan::Projection(p) => below = &p.input,
                    LogicalPlan::SubqueryAlias(a) => below = &a.input,
                    LogicalPlan::TableScan(scan) => {
                        let raw = scan.source.downcast_ref::<RawTable>()?;
                        return Some((raw.table.clone(), names()));
                    }
                    _ => return None,
                }
            }
        }
        _ => None,
    }
}

/// The expression with the casts that its operands need, as type `to`.
fn coerced(expression: &Logical, schema: &DFSchema, to: &DataType) -> Result<Logical, JobError> {
    use datafusion_expr::ExprSchemable;
    let typed = tidemill_plan::optimize::coerce(expression.clone(), schema)?;
    if typed.get_type(schema)? == *to { Ok(typed) } else { Ok(typed.cast_to(to, schema)?) }
}

/// `column - INTERVAL …` (or the column alone) as a delay in ms.
fn delay(expression: &Logical, column: &str) -> Option<i64> {
    match expression {
        Logical::Column(c) if c.name == column => Some(0),
        Logical::BinaryExpr(b) if b.op == BinaryOperator::Minus => {
            let Logical::Column(c) = b.left.as_ref() else { return None };
            let Logical::Literal(value, _) = b.right.as_ref() else { return None };
            (c.name == column).then(|| interval_ms(value)).flatten()
        }
        _ => None,
    }
}

fn interval_ms(value: &ScalarValue) -> Option<i64> {
    match value {
        ScalarValue::IntervalMonthDayNano(Some(v)) if v.months == 0 => Some(i64::from(v.days) * 86_400_000 + v.nanoseconds / 1_000_000),
        ScalarValue::IntervalDayTime(Some(v)) => Some(i64::from(v.days) * 86_400_000 + i64::from(v.milliseconds)),
        ScalarValue::DurationMillisecond(Some(v)) => Some(*v),
        ScalarValue::DurationSecond(Some(v)) => Some(v * 1000),
        ScalarValue::DurationMicrosecond(Some(v)) => Some(v / 1000),
        ScalarValue::DurationNanosecond(Some(v)) => Some(v / 1_000_000),
        _ => None,
    }
}

fn frame(frame: &WindowFrame) -> Result<Frame, JobError> {
    let current = |bound: &WindowFrameBound| matches!(bound, WindowFrameBound::CurrentRow);
    if !current(&frame.end_bound) {
        return Err(JobError::usage(format!(
            "OVER (… {frame}): the frame of a stream ends at CURRENT ROW; FOLLOWING needs SET 'execution.runtime-mode' = 'batch'"
        )));
    }
    let unsupported = || {
        JobError::usage(format!(
            "OVER (… {frame}): supported are RANGE BETWEEN INTERVAL '…' … PRECEDING AND CURRENT ROW, ROWS BETWEEN n PRECEDING AND CURRENT ROW, and UNBOUNDED PRECEDING"
        ))
    };
    match (&frame.units, &frame.start_bound) {
        (WindowFrameUnits::Range, WindowFrameBound::Preceding(value)) if value.is_null() => Ok(Frame::Unbounded { peers: true }),
        (WindowFrameUnits::Rows, WindowFrameBound::Preceding(value)) if value.is_null() => Ok(Frame::Unbounded { peers: false }),
        (WindowFrameUnits::Range, WindowFrameBound::Preceding(value)) => interval_ms(value).map(Frame::RangeMs).ok_or_else(unsupported),
        (WindowFrameUnits::Range, bound) if current(bound) => Ok(Frame::RangeMs(0)),
        (WindowFrameUnits::Rows, WindowFrameBound::Preceding(value)) => match value {
            ScalarValue::UInt64(Some(rows)) => Ok(Frame::Rows(*rows)),
            ScalarValue::Int64(Some(rows)) if *rows >= 0 => Ok(Frame::Rows(*rows as u64)),
            _ => Err(unsupported()),
        },
        (WindowFrameUnits::Rows, bound) if current(bound) => Ok(Frame::Rows(0)),
        _ => Err(unsupported()),
    }
}

fn unsupported(plan: &LogicalPlan) -> JobError {
    let what = match plan {
        LogicalPlan::Join(_) => "JOIN",
        LogicalPlan::Subquery(_) => "a correlated subquery",
        LogicalPlan::Unnest(_) => "UNNEST",
        LogicalPlan::RecursiveQuery(_) => "WITH RECURSIVE",
        other => {
            return JobError::usage(format!(
                "{} is not supported in a stream; SET 'execution.runtime-mode' = 'batch' runs it on bounded input",
                other.display()
            ));
        }
    };
    JobError::usage(format!("{what} is not supported in a stream yet; SET 'execution.runtime-mode' = 'batch' runs it on bounded input"))
}
