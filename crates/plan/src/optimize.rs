//! The rules that a stream plan is optimised with: those of DataFusion's that keep the meaning of
//! an unbounded plan. Not here: rules that count on bounded input or on statistics.

use std::sync::Arc;

use datafusion_common::Result;
use datafusion_common::config::ConfigOptions;
use datafusion_expr::LogicalPlan;
use datafusion_optimizer::analyzer::Analyzer;
use datafusion_optimizer::analyzer::type_coercion::TypeCoercion;
use datafusion_optimizer::common_subexpr_eliminate::CommonSubexprEliminate;
use datafusion_optimizer::eliminate_duplicated_expr::EliminateDuplicatedExpr;
use datafusion_optimizer::eliminate_filter::EliminateFilter;
use datafusion_optimizer::optimize_projections::OptimizeProjections;
use datafusion_optimizer::optimizer::OptimizerRule;
use datafusion_optimizer::push_down_filter::PushDownFilter;
use datafusion_optimizer::replace_distinct_aggregate::ReplaceDistinctWithAggregate;
use datafusion_optimizer::simplify_expressions::SimplifyExpressions;
use datafusion_optimizer::{Optimizer, OptimizerContext};

/// Coerces the types of a plan and optimises it for streams.
///
/// # Errors
/// Expressions whose types do not fit together.
pub fn optimize_stream(plan: LogicalPlan, config: &Arc<ConfigOptions>) -> Result<LogicalPlan> {
    let plan = Analyzer::with_rules(vec![Arc::new(TypeCoercion::new())]).execute_and_check(plan, config, |_, _| {})?;
    let rules: Vec<Arc<dyn OptimizerRule + Send + Sync>> = vec![
        Arc::new(SimplifyExpressions::new()),
        Arc::new(ReplaceDistinctWithAggregate::new()),
        Arc::new(EliminateDuplicatedExpr::new()),
        Arc::new(EliminateFilter::new()),
        Arc::new(PushDownFilter::new()),
        Arc::new(SimplifyExpressions::new()),
        Arc::new(CommonSubexprEliminate::new()),
        Arc::new(OptimizeProjections::new()),
    ];
    let context = OptimizerContext::new_with_config_options(config.clone()).with_max_passes(3);
    Optimizer::with_rules(rules).optimize(plan, &context, |_, _| {})
}

/// An expression with the casts that its operands need.
///
/// # Errors
/// Operand types that do not fit together.
pub fn coerce(expression: datafusion_expr::Expr, schema: &datafusion_common::DFSchema) -> Result<datafusion_expr::Expr> {
    use datafusion_common::tree_node::TreeNode;
    use datafusion_optimizer::analyzer::type_coercion::TypeCoercionRewriter;
    let mut rewriter = TypeCoercionRewriter::new(schema);
    Ok(expression.rewrite(&mut rewriter)?.data)
}
