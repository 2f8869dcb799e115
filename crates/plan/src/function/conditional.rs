//! IF, IFNULL, GREATEST, LEAST.
//!
//! COALESCE and NULLIF are DataFusion's. IF becomes CASE when a plan is simplified, so that only the
//! branch that is wanted is evaluated.

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::compute::kernels::cmp::{gt, lt};
use arrow::compute::kernels::zip::zip;
use arrow::compute::{is_not_null, is_null, nullif, prep_null_mask_filter};
use arrow::error::ArrowError;
use datafusion_common::Result;
use datafusion_expr::Expr;
use datafusion_expr::expr::Case;

use super::define::{Call, Def, Param::*, Returns, def};

/// The functions of this theme.
pub(super) const FUNCTIONS: &[Def] = &[
    def("if", "IF(condition, a, b)", "a if the condition is true, else b", &[Bool, Union, Union], Returns::Same(1), if_then)
        .rewrite(if_case),
    def("ifnull", "IFNULL(a, b)", "a, or b if a is NULL", &[Union, Union], Returns::Same(0), if_null).alias(&["nvl"]),
    def("greatest", "GREATEST(a, …)", "The greatest; NULL if one is NULL", &[Union], Returns::Same(0), |c| extreme(c, |a, b| gt(a, b)))
        .rest(Union),
    def("least", "LEAST(a, …)", "The least; NULL if one is NULL", &[Union], Returns::Same(0), |c| extreme(c, |a, b| lt(a, b))).rest(Union),
];

fn if_then(call: &Call) -> Result<ArrayRef> {
    let mask = call.column(0)?;
    let mask = mask.as_any().downcast_ref::<BooleanArray>().map(falsified);
    let (a, b) = (call.column(1)?, call.column(2)?);
    match mask {
        Some(mask) => Ok(zip(&mask, &a, &b)?),
        None => Ok(b), // the condition is NULL, without a type
    }
}

/// The mask with NULL as false.
fn falsified(mask: &BooleanArray) -> BooleanArray {
    if mask.null_count() > 0 { prep_null_mask_filter(mask) } else { mask.clone() }
}

fn if_case(args: Vec<Expr>) -> Expr {
    let mut args = args.into_iter().map(Box::new);
    match (args.next(), args.next(), args.next()) {
        (Some(condition), Some(a), b) => Expr::Case(Case { expr: None, when_then_expr: vec![(condition, a)], else_expr: b }),
        _ => Expr::Literal(datafusion_common::ScalarValue::Null, None), // the arity has been checked before
    }
}

fn if_null(call: &Call) -> Result<ArrayRef> {
    let (a, b) = (call.column(0)?, call.column(1)?);
    if a.null_count() == 0 && a.data_type() == call.returns {
        return Ok(a);
    }
    Ok(zip(&is_not_null(&a)?, &a, &b)?)
}

fn extreme(call: &Call, better: fn(&ArrayRef, &ArrayRef) -> Result<BooleanArray, ArrowError>) -> Result<ArrayRef> {
    let mut best = call.column(0)?;
    for i in 1..call.len() {
        let next = call.column(i)?;
        let mask = better(&best, &next)?;
        best = zip(&falsified(&mask), &best, &next)?;
        if mask.null_count() > 0 {
            best = nullif(&best, &is_null(&mask)?)?;
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::super::testing::check;

    #[test]
    fn choices() {
        check("if", &["TRUE", "1", "2"], "1");
        check("if", &["NULL", "1", "2"], "2");
        check("if", &["FALSE", "'a'", "NULL"], "NULL");
        check("ifnull", &["NULL", "5"], "5");
        check("nvl", &["'a'", "'b'"], "a");
        check("ifnull", &["TIMESTAMP '2024-01-01 00:00:00'", "NULL"], "2024-01-01 00:00:00.000");
        check("greatest", &["1", "3", "2"], "3");
        check("greatest", &["1", "NULL", "2"], "NULL");
        check("greatest", &["NULL", "1", "2"], "NULL");
        check("least", &["'b'", "'a'"], "a");
        check("least", &["1", "0.5"], "0.5");
    }
}
