//! Plans the sources of a job: what is read of each table, computed columns, watermarks, the
//! dead-letter table.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use datafusion_common::{DFSchema, ScalarValue};
use datafusion_expr::{Expr as Logical, LogicalPlan, Operator as BinaryOperator};
use datafusion_physical_expr::expressions::Column as BoundColumn;
use tidemill_connect::{Changelog, ReadRequest};
use tidemill_operator::Operator;
use tidemill_operator::map::Expr;
use tidemill_operator::normalize::Normalize;
use tidemill_plan::catalog::RawTable;
use tidemill_plan::{ColumnKind, Table, WatermarkNode};

use super::{Planner, Rel};
use crate::physical::aggregate::bind;
use crate::physical::{Factory, Node, NodeKind, Ship, SourceSpec, SourceWatermark, Strategy};
use crate::{JobError, connector};

impl Planner<'_> {
    pub(super) fn source(&mut self, table: &Arc<Table>) -> Result<Rel, JobError> {
        let number = self.tables_read.note(table, []);
        if let Some(rel) = self.sources.get(&number) {
            return Ok(rel.clone());
        }
        let (source, options) = connector::source(table, false)?;
        self.pipes.note(source.pipe())?;
        let changelog = source.changelog();
        let mut columns = self.tables_read.columns(number).clone();
        if changelog == Changelog::Upsert {
            if table.primary_key.is_empty() {
                return Err(JobError::usage(format!(
                    "table '{}': its rows replace each other by key, so it needs PRIMARY KEY (…) NOT ENFORCED",
                    table.name
                )));
            }
            for key in &table.primary_key {
                columns.insert(position(table, key)?);
            }
        }
        // A deletion may lack the columns that are no key, whatever the table says of them.
        let read_as = |schema: SchemaRef| -> SchemaRef {
            if changelog != Changelog::Upsert {
                return schema;
            }
            let key = |f: &FieldRef| table.primary_key.contains(f.name());
            let loose = |f: &FieldRef| if key(f) { f.clone() } else { Arc::new(f.as_ref().clone().with_nullable(true)) };
            Arc::new(Schema::new(schema.fields().iter().map(loose).collect::<Vec<_>>()))
        };
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
        let physical = read_as(table.physical_schema());
        let width = physical.fields().len();
        let metadata = table.metadata();
        let request = ReadRequest {
            projection: read.iter().copied().filter(|i| *i < width).collect(),
            metadata: read.iter().filter(|i| **i >= width).map(|i| metadata[*i - width].clone()).collect(),
            physical,
        };
        let given = DFSchema::try_from(request.schema())?;
        let declared: SchemaRef = Arc::new(table.schema().project(&columns).map_err(JobError::failed)?);
        let schema = read_as(declared.clone());
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
            // Changes of a key must stay in order.
            unordered: self.stateless && watermark.is_none() && changelog == Changelog::Append,
            watermark,
            dead_letter: None,
            readers: Default::default(),
            reached: Default::default(),
        };
        let state_name = self.state_name(table);
        let node = self.add(Node {
            id: self.unused(format!("source:{state_name}")),
            name: format!("Source {}", table.name),
            kind: NodeKind::Source(Box::new(spec)),
            inputs: Vec::new(),
            schema,
            single: false,
        });
        if let Some(name) = dead_letter {
            self.dead_letter(node, table, &state_name, &name)?;
        }
        let mut rel = Rel { node, time, updating: changelog != Changelog::Append, single: false, window: None };
        if changelog == Changelog::Upsert {
            rel.node = self.normalized(table, &state_name, &rel, declared)?;
        }
        self.sources.insert(number, rel.clone());
        Ok(rel)
    }

    /// Plans what makes a full changelog of upserts: of each key the shard that owns it knows the newest row.
    fn normalized(&mut self, table: &Table, state_name: &str, input: &Rel, declared: SchemaRef) -> Result<usize, JobError> {
        let read = self.schema(input.node);
        let keys = table.primary_key.iter().map(|key| read.index_of(key).map_err(JobError::failed)).collect::<Result<Vec<_>, _>>()?;
        let ship = Ship::Hash(keys.iter().map(|key| Arc::new(BoundColumn::new(read.field(*key).name(), *key)) as Expr).collect());
        let out = declared.clone();
        let factory: Factory = Arc::new(move || Ok(Box::new(Normalize::new(keys.clone(), &read, declared.clone())?) as Box<dyn Operator>));
        self.operator("Normalize", format!("normalize:{state_name}"), input, ship, out, factory)
    }

    /// Plans the sink of records that cannot be read.
    fn dead_letter(&mut self, source: usize, of: &Table, state_name: &str, name: &str) -> Result<(), JobError> {
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
        let (sink, options) = connector::sink(&table)?;
        let rel = Rel { node: source, time: Vec::new(), updating: false, single: false, window: None };
        let id = self.unused(format!("sink:{name}!{state_name}"));
        let sink = self.sink_node(&table, sink, connector::rows_at_once(&options), &rel, id);
        // Bad records do not flow with the rows: the source hands them to this node directly.
        self.graph.nodes[sink].inputs[0].ship = Ship::BadRecords;
        if let NodeKind::Source(spec) = &mut self.graph.nodes[source].kind {
            spec.dead_letter = Some(sink);
        }
        Ok(())
    }
}

pub(super) fn position(table: &Table, name: &str) -> Result<usize, JobError> {
    table
        .columns
        .iter()
        .position(|c| c.name == name)
        .ok_or_else(|| JobError::failed(format!("internal error: table '{}' has no column '{name}'", table.name)))
}

/// The table that a subtree reads, if it is nothing but the table as declared, and the names of the
/// columns it wants of it.
pub(super) fn table_read(plan: &LogicalPlan) -> Option<(Arc<Table>, Vec<String>)> {
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

/// An interval of a fixed length, ms.
pub(super) fn interval_ms(value: &ScalarValue) -> Option<i64> {
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
