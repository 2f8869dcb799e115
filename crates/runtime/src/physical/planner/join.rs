//! Plans regular joins, semi and anti joins (`IN`, `EXISTS`) and set operations.

use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion_common::{DFSchema, JoinType, NullEquality, ScalarValue};
use datafusion_expr::logical_plan::builder::build_join_schema;
use datafusion_expr::{Expr as Logical, ExprSchemable, LogicalPlan, SortExpr};
use datafusion_physical_expr::expressions::Column as BoundColumn;
use tidemill_operator::Operator;
use tidemill_operator::join::append::Best;
use tidemill_operator::join::not_in::{NotIn, NotInSpec};
use tidemill_operator::join::regular::JoinSpec;
use tidemill_operator::join::set::SetOperation;
use tidemill_operator::join::{JoinKind, regular_join};
use tidemill_operator::map::Expr;
use tidemill_plan::node::as_column;
use tidemill_plan::optimize::set_operation::SetNode;
use tidemill_state::hash;

use super::{Planner, Rel, Wanted};
use crate::JobError;
use crate::physical::aggregate::{bind, bind_all};
use crate::physical::{Factory, Ship};

impl Planner<'_> {
    pub(super) fn join(&mut self, plan: &LogicalPlan, join: &datafusion_expr::Join, wanted: Wanted) -> Result<Rel, JobError> {
        self.join_of(plan, join, wanted, None)
    }

    /// Plans what is below a ranking that lets only the first rank through: the join there, if it is one, need not
    /// give pairs that come behind others of their key. `None` if there is no such join.
    pub(super) fn best_pairs(
        &mut self,
        plan: &LogicalPlan,
        partition: &[Logical],
        order: &SortExpr,
        wanted: Wanted,
    ) -> Result<Option<Rel>, JobError> {
        let place = |e: &Logical, schema: &DFSchema| as_column(e).and_then(|c| schema.index_of_column(c).ok());
        // The columns of the order and the partition, followed down to the join.
        let columns = std::iter::once(&order.expr).chain(partition).map(|e| place(e, plan.schema().as_ref()));
        let Some(mut columns) = columns.collect::<Option<Vec<usize>>>() else { return Ok(None) };
        let mut projections = Vec::new();
        let mut below = plan;
        let join = loop {
            match below {
                LogicalPlan::SubqueryAlias(alias) => below = &alias.input,
                LogicalPlan::Projection(projection) => {
                    let origins = columns.iter().map(|c| place(&projection.expr[*c], projection.input.schema().as_ref()));
                    let Some(origins) = origins.collect::<Option<Vec<usize>>>() else { return Ok(None) };
                    columns = origins;
                    projections.push(projection);
                    below = &projection.input;
                }
                LogicalPlan::Join(join) => break join,
                _ => return Ok(None),
            }
        };
        let width = join.left.schema().fields().len();
        let keys: Vec<usize> = join
            .on
            .iter()
            .flat_map(|(x, y)| [place(x, join.left.schema().as_ref()), place(y, join.right.schema().as_ref()).map(|column| column + width)])
            .flatten()
            .collect();
        let (column, partition) = columns.split_first().expect("the order comes first");
        let type_of = |column: usize| join.schema.field(column).data_type();
        // Rows of one key must be rows of one partition. Zeros of either sign are one key and two partitions.
        let apart = |column: &usize| !keys.contains(column) || type_of(*column).is_floating() || type_of(*column).is_nested();
        if join.join_type != JoinType::Inner || partition.iter().any(apart) || !Best::serves(type_of(*column)) {
            return Ok(None);
        }
        let options = SortOptions { descending: !order.asc, nulls_first: order.nulls_first };
        let best = Best { column: *column, options };
        let key = (format!("{}\nthe best by {best:?}", self.text(below)), wanted);
        let mut rel = match self.planned.get(&key) {
            Some(rel) => rel.clone(),
            None => {
                let rel = self.join_of(below, join, wanted, Some(best))?;
                if self.graph.nodes[rel.node].id.is_empty() {
                    self.graph.nodes[rel.node].id = format!("join:{:016x}", hash::bytes(key.0.as_bytes()));
                }
                self.planned.insert(key, rel.clone());
                rel
            }
        };
        for projection in projections.into_iter().rev() {
            rel = self.projected(projection, rel)?;
        }
        Ok(Some(rel))
    }

    fn join_of(&mut self, plan: &LogicalPlan, join: &datafusion_expr::Join, wanted: Wanted, best: Option<Best>) -> Result<Rel, JobError> {
        if let Some(rel) = self.time_join(plan, join, wanted)? {
            return Ok(rel);
        }
        let (left, right) = (self.join_input(&join.left, wanted)?, self.join_input(&join.right, wanted)?);
        let (keys, filter) = condition(join, self.ttl_ms().is_some());
        let schemas = [join.left.schema(), join.right.schema()];
        let sides = [0, 1].map(|side| keys.iter().map(|pair| if side == 0 { pair.0.clone() } else { pair.1.clone() }).collect::<Vec<_>>());
        let key_types = [0, 1].map(|side| {
            sides[side].iter().map(|key: &Logical| Ok(key.get_type(schemas[side].as_ref())?)).collect::<Result<Vec<DataType>, JobError>>()
        });
        let [key_types, right_types] = key_types;
        let key_types = key_types?;
        if key_types != right_types? {
            return Err(JobError::failed(format!("internal error: the two sides of the keys of {} differ in type", plan.display())));
        }
        let bound = [bind_all(&sides[0], schemas[0])?, bind_all(&sides[1], schemas[1])?];
        let kind = match join.join_type {
            JoinType::Inner => JoinKind::Pairs { keep: [false, false] },
            JoinType::Left => JoinKind::Pairs { keep: [true, false] },
            JoinType::Right => JoinKind::Pairs { keep: [false, true] },
            JoinType::Full => JoinKind::Pairs { keep: [true, true] },
            JoinType::LeftSemi => JoinKind::Semi(0),
            JoinType::RightSemi => JoinKind::Semi(1),
            JoinType::LeftAnti => JoinKind::Anti(0),
            JoinType::RightAnti => JoinKind::Anti(1),
            JoinType::LeftMark => JoinKind::Mark(0),
            JoinType::RightMark => JoinKind::Mark(1),
        };
        let schema: SchemaRef = Arc::new(join.schema.as_arrow().clone());
        let inputs = [self.schema(left.node), self.schema(right.node)];
        let updating = !kind.appends() || left.updating || right.updating;
        let name = format!("{}Join", join.join_type);
        if join.null_aware && self.ttl_ms().is_none() {
            let [x, y] = bound.map(|mut keys| keys.remove(0));
            let spec = NotInSpec {
                keys: [x, y],
                key_type: key_types[0].clone(),
                input: inputs[0].clone(),
                updating: left.updating,
                schema: schema.clone(),
            };
            let factory: Factory = Arc::new(move || Ok(Box::new(NotIn::new(spec.clone())?) as Box<dyn Operator>));
            return self.joined("NotIn", [(&left, Ship::Single), (&right, Ship::Single)], updating, schema, factory);
        }
        let residual = match filter {
            None => None,
            Some(filter) => Some(bind(&filter, &build_join_schema(schemas[0], schemas[1], &JoinType::Inner)?)?),
        };
        let ships = bound.clone().map(|keys| if keys.is_empty() { Ship::Single } else { Ship::Hash(keys) });
        let spec = JoinSpec {
            kind,
            keys: bound,
            key_types,
            inputs,
            updating: [left.updating, right.updating],
            residual,
            null_equal: join.null_equality == NullEquality::NullEqualsNull,
            ttl_ms: self.ttl_ms(),
            schema: schema.clone(),
        };
        let factory: Factory = Arc::new(move || regular_join(spec.clone(), best));
        let [left_ship, right_ship] = ships;
        self.joined(&name, [(&left, left_ship), (&right, right_ship)], updating, schema, factory)
    }

    pub(super) fn set_operation(&mut self, node: &SetNode, wanted: Wanted) -> Result<Rel, JobError> {
        let (left, right) = (self.join_input(&node.left, wanted)?, self.join_input(&node.right, wanted)?);
        let ships = [&left, &right].map(|input| {
            let schema = self.schema(input.node);
            let columns = schema.fields().iter().enumerate();
            Ship::Hash(columns.map(|(i, f)| Arc::new(BoundColumn::new(f.name(), i)) as Expr).collect())
        });
        let schema: SchemaRef = Arc::new(node.left.schema().as_arrow().clone());
        let (kind, out, ttl_ms) = (node.kind, schema.clone(), self.ttl_ms());
        let factory: Factory = Arc::new(move || Ok(Box::new(SetOperation::new(kind, out.clone(), ttl_ms)?) as Box<dyn Operator>));
        let updating = !kind.appends() || left.updating || right.updating;
        let [left_ship, right_ship] = ships;
        self.joined("SetOperation", [(&left, left_ship), (&right, right_ship)], updating, schema, factory)
    }

    /// An input of a join. All its changes are needed; several of one block may come as one.
    fn join_input(&mut self, plan: &LogicalPlan, wanted: Wanted) -> Result<Rel, JobError> {
        self.rel(plan, Wanted { fold: wanted.fold, update_before: true, paired: false })
    }

    /// Adds the operator of a join. The times of its rows are no event time any more: a row may meet
    /// one that came long before.
    fn joined(
        &mut self,
        name: &str,
        inputs: [(&Rel, Ship); 2],
        updating: bool,
        schema: SchemaRef,
        factory: Factory,
    ) -> Result<Rel, JobError> {
        let time = vec![false; schema.fields().len()];
        let node = self.operator_of(name, String::new(), &inputs, schema, factory)?;
        Ok(Rel { node, time, updating, single: self.graph.nodes[node].single, window: None })
    }

    /// How long state is kept that does not change, ms; none for as long as the job lasts.
    fn ttl_ms(&self) -> Option<i64> {
        Some(self.settings.state_ttl.as_millis() as i64).filter(|ms| *ms > 0)
    }
}

/// The equalities of a join's condition, and what else it says. With `expires` a `NOT IN` is compared
/// pair by pair, since its own operator has no expiry.
fn condition(join: &datafusion_expr::Join, expires: bool) -> (Vec<(Logical, Logical)>, Option<Logical>) {
    if join.null_aware && expires {
        let unknown = join.on.iter().map(|(x, y)| Logical::IsNotFalse(Box::new(x.clone().eq(y.clone()))));
        return (Vec::new(), datafusion_expr::utils::conjunction(unknown));
    }
    let filter = join.filter.clone().filter(|f| !matches!(f, Logical::Literal(ScalarValue::Boolean(Some(true)), _)));
    (join.on.clone(), filter)
}
