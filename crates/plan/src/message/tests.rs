//! Tests of the messages: each error as it is and as it comes through DataFusion.

use super::*;
use std::sync::Arc;

#[track_caller]
fn check(error: DataFusionError, expect: &str) {
    assert_eq!(of(&error), expect);
    // Whatever it is wrapped in.
    let error = DataFusionError::External(Box::new(DataFusionError::Context("rule".into(), Box::new(error))));
    assert_eq!(of(&DataFusionError::Shared(Arc::new(error))), expect);
}

fn arrow(error: ArrowError) -> DataFusionError {
    DataFusionError::ArrowError(Box::new(error), None)
}

#[test]
fn kinds_and_tails_are_left_out() {
    check(DataFusionError::Plan("no such thing".into()), "no such thing");
    check(DataFusionError::Execution("Arrow error: Compute error: it failed".into()), "it failed");
    check(DataFusionError::Internal("odd".into()), "odd");
    check(DataFusionError::Execution(format!("it failed{}frames", DataFusionError::BACK_TRACE_SEP)), "it failed");
    check(arrow(ArrowError::ExternalError(Box::new(DataFusionError::Execution("inside".into())))), "inside");
    check(DataFusionError::Execution("t.csv:2: bad\nset 'on-error'".into()), "t.csv:2: bad\nset 'on-error'");
    check(DataFusionError::NotImplemented("a cast of Utf8View to Timestamp(ms)".into()), "a cast of STRING to TIMESTAMP(3)");
}

#[test]
fn common_failures_say_what_to_do() {
    check(arrow(ArrowError::DivideByZero), "division by zero; x / NULLIF(y, 0) gives NULL instead");
    check(
        arrow(ArrowError::ArithmeticOverflow("Overflow happened on: 9223372036854775807 + 1".into())),
        "the result of 9223372036854775807 + 1 does not fit its type; CAST to a wider type first, such as DECIMAL(38, 0) or DOUBLE",
    );
    check(
        arrow(ArrowError::CastError("Cannot cast string 'a b' to value of Int64 type".into())),
        "cannot cast 'a b' to BIGINT; TRY_CAST gives NULL instead",
    );
    check(arrow(ArrowError::CastError("Can't cast value 300 to type Int8".into())), "300 does not fit TINYINT");
    check(
        arrow(ArrowError::CastError("Cannot cast to Decimal128(5, 2). Overflowing on 1234567".into())),
        "a value of the digits 1234567 does not fit DECIMAL(5, 2)",
    );
    check(
        arrow(ArrowError::InvalidArgumentError("123.456 is too large to store in a Decimal128 of precision 5. Max is 99.999".into())),
        "123.456 does not fit its DECIMAL, the largest is 99.999; CAST to one with more digits",
    );
    check(
        DataFusionError::NotImplemented("Physical plan does not support logical expression InSubquery(InSubquery { … })".into()),
        "IN (SELECT …) cannot be computed at this place; write it as a JOIN",
    );
}

#[test]
fn unnest_in_our_words() {
    let plan = |text: &str| DataFusionError::Plan(text.into());
    check(plan("unnest() can only be applied to array, struct and null"), "UNNEST takes an ARRAY or a ROW");
    check(plan("Source table contains 1 columns but only 2 names given as column alias"), "2 names for a table of 1 column");
    check(plan("Source table contains 3 columns but only 1 names given as column alias"), "1 name for a table of 3 columns");
    check(
        DataFusionError::NotImplemented("LATERAL syntax is not supported for FULL OUTER and RIGHT [OUTER | ANTI | SEMI] joins".into()),
        "a RIGHT or FULL JOIN knows no columns of its left side in its right one; write LEFT JOIN or CROSS JOIN",
    );
}
