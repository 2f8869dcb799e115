//! The rules that a stream plan is optimised with: those of DataFusion's that keep the meaning of
//! an unbounded plan, and what must be seen to around them: subqueries become joins ([`subquery`]),
//! `INTERSECT` and `EXCEPT` get a node of their own ([`set_operation`]). Not here: rules that count on
//! bounded input or on statistics.

pub mod set_operation;
mod subquery;

pub use subquery::{NotIn, check_not_in};

use std::sync::Arc;

use datafusion_common::Result;
use datafusion_common::config::ConfigOptions;
use datafusion_expr::LogicalPlan;
use datafusion_optimizer::analyzer::Analyzer;
use datafusion_optimizer::analyzer::type_coercion::TypeCoercion;
use datafusion_optimizer::common_subexpr_eliminate::CommonSubexprEliminate;
use datafusion_optimizer::decorrelate_predicate_subquery::DecorrelatePredicateSubquery;
use datafusion_optimizer::eliminate_duplicated_expr::EliminateDuplicatedExpr;
use datafusion_optimizer::eliminate_filter::EliminateFilter;
use datafusion_optimizer::eliminate_outer_join::EliminateOuterJoin;
use datafusion_optimizer::extract_equijoin_predicate::ExtractEquijoinPredicate;
use datafusion_optimizer::optimize_projections::OptimizeProjections;
use datafusion_optimizer::optimizer::OptimizerRule;
use datafusion_optimizer::push_down_filter::PushDownFilter;
use datafusion_optimizer::replace_distinct_aggregate::ReplaceDistinctWithAggregate;
use datafusion_optimizer::scalar_subquery_to_join::ScalarSubqueryToJoin;
use datafusion_optimizer::simplify_expressions::SimplifyExpressions;
use datafusion_optimizer::{Optimizer, OptimizerContext};

/// Coerces the types of a plan and optimises it for streams.
///
/// # Errors
/// Expressions whose types do not fit together; subqueries that no join can stand for.
pub fn optimize_stream(plan: LogicalPlan, config: &Arc<ConfigOptions>) -> Result<LogicalPlan> {
    let mut options = ConfigOptions::clone(config);
    // The executor would run such a subquery first, to its end; in a stream it is a join.
    options.optimizer.enable_physical_uncorrelated_scalar_subquery = false;
    let plan = Analyzer::with_rules(vec![Arc::new(TypeCoercion::new())]).execute_and_check(plan, &options, |_, _| {})?;
    subquery::check_values(&plan)?;
    subquery::check_not_in(&plan)?;
    let plan = set_operation::recognise(plan)?;
    let rules: Vec<Arc<dyn OptimizerRule + Send + Sync>> = vec![
        Arc::new(SimplifyExpressions::new()),
        Arc::new(ReplaceDistinctWithAggregate::new()),
        Arc::new(DecorrelatePredicateSubquery::new()),
        // Right behind the rule that makes the joins it looks for.
        Arc::new(subquery::NotIn),
        Arc::new(ScalarSubqueryToJoin::new()),
        Arc::new(subquery::CrossJoins::default()),
        Arc::new(EliminateDuplicatedExpr::new()),
        Arc::new(EliminateFilter::new()),
        Arc::new(EliminateOuterJoin::new()),
        Arc::new(PushDownFilter::new()),
        // Behind the filters, which become conditions of the joins they fall through.
        Arc::new(ExtractEquijoinPredicate::new()),
        Arc::new(SimplifyExpressions::new()),
        Arc::new(CommonSubexprEliminate::new()),
        Arc::new(OptimizeProjections::new()),
    ];
    let context = OptimizerContext::new_with_config_options(Arc::new(options)).with_max_passes(3);
    let plan = Optimizer::with_rules(rules).optimize(plan, &context, |_, _| {})?;
    subquery::check_gone(&plan)?;
    Ok(plan)
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
