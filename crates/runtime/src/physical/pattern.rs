//! Row patterns: from the logical node to what the operator takes, for streams and for batch plans.

use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use datafusion_expr::Expr as Logical;
use tidemill_operator::pattern::{MatchNavigation, MatchNavigationKind, MatchSymbol, PatternMatchSpec};
use tidemill_plan::PatternNode;
use tidemill_plan::pattern::{Argument, Bounds, NavigationKind};

use super::aggregate::{bind, bind_all, call};
use crate::JobError;

/// The specification of a node whose input has the columns `input` and whose output has the columns
/// `schema`, both in the node's order.
///
/// # Errors
/// An aggregate function that cannot be used here.
pub(crate) fn match_spec(node: &PatternNode, input: SchemaRef, schema: SchemaRef, bounds: Bounds) -> Result<PatternMatchSpec, JobError> {
    let spec = &node.spec;
    let rows = node.input.schema();
    let extended = spec.extended_schema(rows)?;
    let keys = bind_all(&node.partition_by, rows)?;
    let key_types = keys.iter().map(|k| Ok(k.data_type(rows.as_arrow())?)).collect::<Result<Vec<_>, JobError>>()?;
    // NULL is the smallest value.
    let order = node
        .order_by
        .iter()
        .map(|(column, ascending)| Ok((node.input_index(column)?, SortOptions { descending: !*ascending, nulls_first: *ascending })))
        .collect::<Result<Vec<_>, JobError>>()?;
    let symbols = spec
        .symbols
        .iter()
        .map(|symbol| {
            let (simple, looking) = symbol.conjuncts();
            Ok(MatchSymbol {
                name: symbol.name.as_str().into(),
                input: symbol.input,
                simple: bind_all(&simple, rows)?,
                looking: bind_all(&looking, &extended)?,
            })
        })
        .collect::<Result<Vec<_>, JobError>>()?;
    let navigations = spec
        .navigations
        .iter()
        .map(|navigation| {
            let kind = match &navigation.kind {
                NavigationKind::Value { argument: Argument::Input(argument), end, offset, shift } => {
                    MatchNavigationKind::Value { argument: bind(argument, rows)?, end: *end, offset: *offset, shift: *shift }
                }
                NavigationKind::Value { argument: Argument::Classifier, end, offset, shift } => {
                    MatchNavigationKind::Classifier { end: *end, offset: *offset, shift: *shift }
                }
                NavigationKind::Aggregate { call: aggregate } => MatchNavigationKind::Aggregate(call(aggregate, rows)?),
                NavigationKind::MatchNumber => MatchNavigationKind::MatchNumber,
            };
            Ok(MatchNavigation {
                kind,
                symbols: navigation.symbols.clone(),
                running: navigation.running,
                data_type: navigation.data_type.clone(),
            })
        })
        .collect::<Result<Vec<_>, JobError>>()?;
    let output: Vec<Logical> = spec.output.iter().map(|(_, expression)| expression.clone()).collect();
    Ok(PatternMatchSpec {
        input,
        schema,
        time: node.input_index(&node.time)?,
        order,
        in_order: false,
        keys,
        key_types,
        input_column: None,
        symbols,
        pattern: spec.pattern.clone(),
        contiguity: spec.contiguity,
        every: spec.every,
        skip: spec.skip.clone(),
        within_ms: spec.within_ms,
        rows: spec.rows,
        navigations,
        output: bind_all(&output, &extended)?,
        bounds,
    })
}
