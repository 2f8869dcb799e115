//! User functions in batch plans: the operators of streams, which are given all rows of their partitions
//! and then told that this was all.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, Partitioning, PhysicalExpr, PlanProperties, ReplaceChildrenOptions,
};
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_common::{DataFusionError, Result};
use datafusion_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion_expr::{LogicalPlan, UserDefinedLogicalNode};
use datafusion_physical_expr::EquivalenceProperties;
use futures::StreamExt;
use tidemill_block::{Block, WATERMARK_END, clock};
use tidemill_operator::{Operator, OperatorError, Output, Progress};
use tidemill_plan::{ProcessCallNode, ProcessTableNode};
use tokio::sync::Notify;

use crate::JobError;
use crate::physical::Factory;
use crate::physical::process::{call, operator_name, table};

/// How long an operator that waits for something outside is left alone at most: limits of time are seen to
/// when it is asked.
const NAP: Duration = Duration::from_millis(5);

/// Plans user functions.
pub(super) struct ProcessPlanner;

#[async_trait]
impl ExtensionPlanner for ProcessPlanner {
    async fn plan_extension(
        &self,
        _planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical_inputs: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        _session: &dyn Session,
        _planning_ctx: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let [input] = physical_inputs else { return Ok(None) };
        let failed = |e: JobError| DataFusionError::External(Box::new(e));
        let schema: SchemaRef = Arc::new(node.schema().as_arrow().clone());
        let (name, shown, factory, distribution) = if let Some(node) = node.as_any().downcast_ref::<ProcessCallNode>() {
            let factory = call(node, &schema).map_err(failed)?;
            (operator_name(&node.function), format!("{node:?}"), factory, Distribution::UnspecifiedDistribution)
        } else if let Some(node) = node.as_any().downcast_ref::<ProcessTableNode>() {
            let planned = table(node, input.schema(), &schema).map_err(failed)?;
            let distribution = match (planned.anywhere, planned.keys.is_empty()) {
                (true, _) => Distribution::UnspecifiedDistribution,
                (false, true) => Distribution::SinglePartition,
                (false, false) => Distribution::KeyPartitioned(planned.keys),
            };
            (operator_name(&node.function), format!("{node:?}"), planned.factory, distribution)
        } else {
            return Ok(None);
        };
        Ok(Some(Arc::new(ProcessExec::new(input.clone(), schema, Made { name, shown, factory, distribution }))))
    }
}

/// What is run.
#[derive(Clone)]
struct Made {
    name: String,
    /// What it does, for people.
    shown: String,
    factory: Factory,
    distribution: Distribution,
}

/// Runs an operator over the rows of its input.
struct ProcessExec {
    input: Arc<dyn ExecutionPlan>,
    schema: SchemaRef,
    made: Made,
    properties: Arc<PlanProperties>,
}

impl ProcessExec {
    fn new(input: Arc<dyn ExecutionPlan>, schema: SchemaRef, made: Made) -> Self {
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(schema.clone()),
            Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        ProcessExec { input, schema, made, properties }
    }
}

impl fmt::Debug for ProcessExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.made.shown)
    }
}

impl DisplayAs for ProcessExec {
    fn fmt_as(&self, _form: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.made.shown)
    }
}

impl ExecutionPlan for ProcessExec {
    fn name(&self) -> &str {
        "ProcessExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![self.made.distribution.clone()])
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(&self, _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = children.swap_remove(0);
        Ok(Arc::new(ProcessExec::new(input, self.schema.clone(), self.made.clone())))
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let name = self.made.name.clone();
        let mut operator = (self.made.factory)().map_err(|e| failed(&name, &e))?;
        let woken = Arc::new(Notify::new());
        let wake = woken.clone();
        operator.attach(Arc::new(move || wake.notify_one()));
        operator.place(partition, self.properties.partitioning.partition_count());
        let input = self.input.execute(partition, context)?;
        let run = Run { name, operator, input, woken, ready: VecDeque::new(), drained: false, ended: false };
        let batches = futures::stream::try_unfold(run, |mut run| async move {
            let next = run.next().await?;
            Ok::<_, DataFusionError>(next.map(|batch| (batch, run)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), batches)))
    }
}

/// A partition while it runs.
struct Run {
    name: String,
    operator: Box<dyn Operator>,
    input: SendableRecordBatchStream,
    woken: Arc<Notify>,
    /// What has been put out and not been taken.
    ready: VecDeque<RecordBatch>,
    /// All input has been read.
    drained: bool,
    /// All output has been put out.
    ended: bool,
}

impl Run {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Ok(Some(batch));
            }
            if self.ended {
                return Ok(None);
            }
            let mut out = Output::default();
            let mut waits = false;
            if self.operator.waits() {
                self.operator.poll(&mut out).map_err(|e| failed(&self.name, &e))?;
            }
            if out.blocks.is_empty() && self.operator.full() {
                waits = true;
            } else if out.blocks.is_empty() {
                // A stream that has ended is not asked again.
                let batch = if self.drained { None } else { self.input.next().await };
                let progress = match batch {
                    Some(batch) => self.operator.on_block(0, Block::inserts(batch?, clock::now_ns()), &mut out).map(|()| Progress::More),
                    None => {
                        self.drained = true;
                        self.operator.on_watermark(WATERMARK_END, &mut out)
                    }
                };
                let progress = progress.map_err(|e| failed(&self.name, &e))?;
                self.ended = progress == Progress::Done;
                waits = progress == Progress::Waiting && out.blocks.is_empty();
            }
            self.ready.extend(out.blocks.into_iter().map(|block| block.batch));
            if waits {
                let _ = tokio::time::timeout(NAP, self.woken.notified()).await;
            }
        }
    }
}

fn failed(name: &str, e: &OperatorError) -> DataFusionError {
    DataFusionError::Execution(format!("{name}: {e}"))
}
