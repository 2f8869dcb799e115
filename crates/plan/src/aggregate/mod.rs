//! Aggregate functions of our own, for streams and batch alike: what DataFusion lacks, and what it has
//! with another meaning or with results that depend on order. SUM and AVG are in [`crate::exact`].

pub mod listagg;
pub mod percentile;
pub mod variance;

use std::sync::Arc;

use datafusion_expr::AggregateUDF;

/// The functions, which override DataFusion's by name.
pub fn aggregate_functions() -> Vec<Arc<AggregateUDF>> {
    let mut all = variance::functions();
    all.push(Arc::new(AggregateUDF::new_from_impl(listagg::ListAgg::default())));
    all.push(Arc::new(AggregateUDF::new_from_impl(percentile::Percentile::default())));
    all
}
