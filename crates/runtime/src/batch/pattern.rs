//! Row patterns in batch plans: the operator of streams, which is given all rows of its partitions and
//! then told that this was all.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, Partitioning, PhysicalExpr, PlanProperties, ReplaceChildrenOptions,
};
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_common::{DataFusionError, Result};
use datafusion_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion_expr::{LogicalPlan, UserDefinedLogicalNode};
use datafusion_physical_expr::EquivalenceProperties;
use futures::StreamExt;
use tidemill_block::{Block, WATERMARK_END, clock};
use tidemill_operator::pattern::{PatternMatch, PatternMatchSpec};
use tidemill_operator::{Operator, OperatorError, Output, Progress};
use tidemill_plan::PatternNode;
use tidemill_plan::pattern::Bounds;

use super::process::ProcessPlanner;
use crate::physical::pattern::match_spec;

/// DataFusion's planner, with row patterns.
#[derive(Debug)]
pub(super) struct BatchPlanner {
    /// How much a partition of a pattern may keep.
    pub bounds: Bounds,
}

#[async_trait]
impl QueryPlanner for BatchPlanner {
    async fn create_physical_plan(&self, plan: &LogicalPlan, session: &dyn Session) -> Result<Arc<dyn ExecutionPlan>> {
        let patterns = PatternPlanner { bounds: self.bounds };
        let planner = DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(patterns), Arc::new(ProcessPlanner)]);
        planner.create_physical_plan(plan, session).await
    }
}

struct PatternPlanner {
    bounds: Bounds,
}

#[async_trait]
impl ExtensionPlanner for PatternPlanner {
    async fn plan_extension(
        &self,
        _planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical_inputs: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        _session: &dyn Session,
        _planning_ctx: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let (Some(pattern), [input]) = (node.as_any().downcast_ref::<PatternNode>(), physical_inputs) else { return Ok(None) };
        let schema = Arc::new(node.schema().as_arrow().clone());
        let spec = match_spec(pattern, input.schema(), schema, self.bounds).map_err(|e| DataFusionError::External(Box::new(e)))?;
        Ok(Some(Arc::new(PatternExec::new(input.clone(), spec, format!("{pattern:?}")))))
    }
}

/// Runs a pattern over the rows of its input.
struct PatternExec {
    input: Arc<dyn ExecutionPlan>,
    spec: PatternMatchSpec,
    /// What it does, for people.
    shown: String,
    properties: Arc<PlanProperties>,
}

impl PatternExec {
    fn new(input: Arc<dyn ExecutionPlan>, spec: PatternMatchSpec, shown: String) -> Self {
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(spec.schema.clone()),
            Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            EmissionType::Final,
            Boundedness::Bounded,
        ));
        PatternExec { input, spec, shown, properties }
    }
}

impl fmt::Debug for PatternExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl DisplayAs for PatternExec {
    fn fmt_as(&self, _form: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl ExecutionPlan for PatternExec {
    fn name(&self) -> &str {
        "PatternExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    /// Rows of one partition of the pattern must come together.
    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![if self.spec.keys.is_empty() {
            Distribution::SinglePartition
        } else {
            Distribution::KeyPartitioned(self.spec.keys.clone())
        }])
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
        Ok(Arc::new(PatternExec::new(input, self.spec.clone(), self.shown.clone())))
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let run = Run {
            operator: Box::new(PatternMatch::new(self.spec.clone()).map_err(failed)?),
            input: self.input.execute(partition, context)?,
            ready: VecDeque::new(),
            drained: false,
            ended: false,
        };
        let batches = futures::stream::try_unfold(run, |mut run| async move {
            let next = run.next().await?;
            Ok::<_, DataFusionError>(next.map(|batch| (batch, run)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.spec.schema.clone(), batches)))
    }
}

/// A partition while it runs.
struct Run {
    operator: Box<dyn Operator>,
    input: SendableRecordBatchStream,
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
            // A stream that has ended is not asked again.
            let batch = if self.drained { None } else { self.input.next().await };
            match batch {
                Some(batch) => self.operator.on_block(0, Block::inserts(batch?, clock::now_ns()), &mut out).map_err(failed)?,
                None => {
                    self.drained = true;
                    self.ended = self.operator.on_watermark(WATERMARK_END, &mut out).map_err(failed)? == Progress::Done;
                }
            }
            self.ready.extend(out.blocks.into_iter().map(|block| block.batch));
        }
    }
}

fn failed(e: OperatorError) -> DataFusionError {
    DataFusionError::Execution(format!("MATCH_RECOGNIZE: {e}"))
}
