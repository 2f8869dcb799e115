//! Comparisons of a FLOAT column with a constant, done in FLOAT.
//!
//! SQL compares `f > 0.1` in DOUBLE, so a cast of the whole column stands in the plan. The same rows
//! are chosen by comparing in FLOAT with the nearest constant that FLOAT has, since the numbers of
//! FLOAT are some of those of DOUBLE, in the same order.

use arrow::datatypes::DataType;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{DFSchema, Result, ScalarValue};
use datafusion_expr::{BinaryExpr, Expr, ExprSchemable, Operator};

/// The expression with comparisons of casts of FLOAT to DOUBLE with constants rewritten.
///
/// # Errors
/// A column that the schema does not have.
pub fn narrow_comparisons(expression: Expr, schema: &DFSchema) -> Result<Expr> {
    let rewrite = |e: Expr| {
        let Expr::BinaryExpr(BinaryExpr { left, op, right }) = &e else { return Ok(Transformed::no(e)) };
        let narrowed = match (widened(left, schema)?, widened(right, schema)?, constant(left), constant(right)) {
            (Some(float), _, _, Some(limit)) => compare(float, *op, limit),
            (_, Some(float), Some(limit), _) => op.swap().and_then(|op| compare(float, op, limit)),
            _ => None,
        };
        Ok(narrowed.map_or_else(|| Transformed::no(e), Transformed::yes))
    };
    Ok(expression.transform_up(rewrite)?.data)
}

/// What is cast from FLOAT to DOUBLE.
fn widened<'a>(expression: &'a Expr, schema: &DFSchema) -> Result<Option<&'a Expr>> {
    let Expr::Cast(cast) = expression else { return Ok(None) };
    let widens = *cast.field.data_type() == DataType::Float64 && cast.expr.get_type(schema)? == DataType::Float32;
    Ok(widens.then_some(cast.expr.as_ref()))
}

fn constant(expression: &Expr) -> Option<f64> {
    match expression {
        Expr::Literal(ScalarValue::Float64(Some(v)), _) if v.is_finite() => Some(*v),
        _ => None,
    }
}

/// `float op limit` with a limit in FLOAT. The limit is the greatest number of FLOAT that is not
/// greater than the constant; where it is less, `>=` means `>` and `<` means `<=`.
fn compare(float: &Expr, op: Operator, limit: f64) -> Option<Expr> {
    let nearest = limit as f32;
    let below = if f64::from(nearest) > limit { nearest.next_down() } else { nearest };
    // Zero has two signs, which the order of numbers in comparisons tells apart.
    if !below.is_finite() || (below == 0.0 && limit != 0.0) {
        return None;
    }
    let exact = f64::from(below) == limit;
    let op = match (op, exact) {
        (Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq | Operator::Eq | Operator::NotEq, true) => op,
        (Operator::Lt | Operator::LtEq, false) => Operator::LtEq,
        (Operator::Gt | Operator::GtEq, false) => Operator::Gt,
        _ => return None,
    };
    let limit = Expr::Literal(ScalarValue::Float32(Some(below)), None);
    Some(Expr::BinaryExpr(BinaryExpr::new(Box::new(float.clone()), op, Box::new(limit))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::{Field, Schema};
    use datafusion_expr::{cast, col, lit};

    /// The comparison holds for the same numbers before and after.
    #[track_caller]
    fn check(op: Operator, limit: f64) {
        let schema = DFSchema::try_from(Schema::new(vec![Field::new("f", DataType::Float32, true)])).unwrap();
        let wide = Expr::BinaryExpr(BinaryExpr::new(Box::new(cast(col("f"), DataType::Float64)), op, Box::new(lit(limit))));
        let Expr::BinaryExpr(narrow) = narrow_comparisons(wide, &schema).unwrap() else { panic!("a comparison") };
        let Expr::Literal(ScalarValue::Float32(Some(narrow_limit)), _) = *narrow.right else { panic!("{limit} is not narrowed") };
        let holds = |op: Operator, a: f64, b: f64| match op {
            Operator::Lt => a < b,
            Operator::LtEq => a <= b,
            Operator::Gt => a > b,
            Operator::GtEq => a >= b,
            Operator::Eq => a == b,
            _ => a != b,
        };
        let near = limit as f32;
        for f in [near.next_down().next_down(), near.next_down(), near, near.next_up(), f32::MIN, f32::MAX, 0.0, f32::INFINITY] {
            let expect = holds(op, f64::from(f), limit);
            assert_eq!(holds(narrow.op, f64::from(f), f64::from(narrow_limit)), expect, "{f} {op} {limit}");
        }
    }

    #[test]
    fn the_same_numbers_pass() {
        for limit in [0.5, 0.1, -0.1, 1e10, -1e-10, 16_777_217.0, 0.3] {
            for op in [Operator::Lt, Operator::LtEq, Operator::Gt, Operator::GtEq] {
                check(op, limit);
            }
        }
        check(Operator::Eq, 0.5);
        check(Operator::NotEq, 0.25);
    }
}
