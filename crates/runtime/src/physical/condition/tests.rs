//! Tests of `condition`.

use super::*;
use arrow::array::{ArrayRef, Float64Array, Int64Array, StringArray};
use arrow::datatypes::Int64Type;

fn batch() -> RecordBatch {
    let n: ArrayRef = Arc::new(Int64Array::from_iter_values(1..=4));
    let price: ArrayRef = Arc::new(Float64Array::from(vec![Some(1.5), None, Some(2.5), Some(9.0)]));
    let symbol: ArrayRef = Arc::new(StringArray::from(vec!["A", "B", "A", "it's"]));
    RecordBatch::try_from_iter_with_nullable([("n", n, false), ("Last price", price, true), ("symbol", symbol, true)]).unwrap()
}

#[track_caller]
fn check(condition: &str, expect: &[i64]) {
    let batch = batch();
    let planned = RowCondition::new(&batch.schema(), condition).unwrap_or_else(|e| panic!("{condition}: {e}"));
    let kept = planned.keep(&batch).unwrap();
    assert_eq!(kept.num_columns(), 3, "{condition}");
    assert_eq!(kept.column(0).as_primitive::<Int64Type>().values().as_ref(), expect, "{condition}");
}

#[test]
fn rows_for_which_it_holds() {
    check("n > 2", &[3, 4]);
    check("`Last price` < 3", &[1, 3]);
    check("stream.symbol = 'it''s' OR n = 1 -- a comment", &[1, 4]);
    check("symbol IN ('A') AND UPPER(symbol) = 'A' AND COALESCE(`Last price`, 0) > 2", &[3]);
    check("(n + 1) * (n + 1) > 9 AND (n + 1) * (n + 1) < 25", &[3]);
    check("TRUE", &[1, 2, 3, 4]);
    check("1 = 2", &[]);
}

#[track_caller]
fn fails(condition: &str, says: &str) {
    let error = RowCondition::new(&batch().schema(), condition).expect_err(condition).to_string();
    assert!(error.contains(says), "{condition}: {error}");
}

#[test]
fn what_is_no_condition_is_refused() {
    fails("prise > 3", "prise");
    fails("n >", "");
    fails("n > 1); SELECT (1", "a filter is one condition");
    fails("TRUE) UNION ALL SELECT * FROM stream WHERE (TRUE", "a filter is one condition");
    fails("TRUE) ORDER BY (n", "a filter is one condition");
    fails("n = (SELECT MAX(n) FROM stream)", "");
}
