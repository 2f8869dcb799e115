//! Accumulators that take rows back, and state that is merged and taken out again.

use arrow::array::{AsArray, Int64Array, ListArray, StringArray};
use arrow::datatypes::{Field, Int64Type, Schema};
use datafusion_common::ScalarValue;
use datafusion_physical_expr::aggregate::AggregateExprBuilder;
use datafusion_physical_expr::expressions::{Column, Literal};

use super::*;

/// A call over a BIGINT, or over a text for LISTAGG; for kernels only the name and the types matter.
pub(crate) fn call(name: &str, output: DataType, ignore_nulls: bool) -> AggregateCall {
    let text = name == "string_agg";
    let input = if text { DataType::Utf8 } else { DataType::Int64 };
    let schema = Arc::new(Schema::new(vec![Field::new("v", input.clone(), true)]));
    let functions = tidemill_plan::exact::aggregate_functions().into_iter().chain(tidemill_plan::aggregate::aggregate_functions());
    let function = functions.into_iter().find(|f| f.name() == if text { name } else { "sum" }).expect("ours");
    let mut arguments: Vec<Expr> = vec![Arc::new(Column::new("v", 0))];
    if text {
        arguments.push(Arc::new(Literal::new(ScalarValue::from(","))));
    }
    let mut builder = AggregateExprBuilder::new(function, arguments.clone()).schema(schema).alias(name);
    if ignore_nulls {
        builder = builder.ignore_nulls();
    }
    AggregateCall {
        function: Arc::new(builder.build().unwrap()),
        name: name.into(),
        argument_types: vec![input; arguments.len()],
        arguments,
        filter: None,
        distinct: false,
        output: Arc::new(Field::new(name, output, true)),
    }
}

fn numbers(values: &[Option<i64>]) -> Vec<ArrayRef> {
    vec![Arc::new(values.iter().copied().collect::<Int64Array>())]
}

/// Rows of one group, `-` in front of those that are taken back.
#[track_caller]
fn check(call: &AggregateCall, rows: &[(&str, Option<i64>)], expect: &str) {
    let retracts = rows.iter().any(|(kind, _)| *kind == "-");
    let mut accumulator = accumulator(call, retracts).unwrap();
    accumulator.resize(1);
    let kinds: Vec<RowKind> = rows.iter().map(|(k, _)| if *k == "-" { RowKind::Delete } else { RowKind::Insert }).collect();
    let values = numbers(&rows.iter().map(|(_, v)| *v).collect::<Vec<_>>());
    let slots = vec![0; rows.len()];
    let (_, after) = accumulator.update_each(&Rows { slots: &slots, values: &values, kinds: Some(&kinds), mask: None }).unwrap();
    let text = |array: &ArrayRef, row: usize| arrow::util::display::array_value_to_string(array, row).unwrap();
    assert_eq!(text(&after, rows.len() - 1), expect);
    assert_eq!(text(&accumulator.values(&[0]).unwrap(), 0), expect);
    // The same from saved state.
    let saved = accumulator.save(&[0]).unwrap();
    let mut again = super::accumulator(call, retracts).unwrap();
    again.resize(3);
    again.load(&[2], &saved).unwrap();
    assert_eq!(text(&again.values(&[2]).unwrap(), 0), expect);
    again.clear(&[2]);
    let empty = again.values(&[2]).unwrap();
    assert!(empty.is_null(0) || call.name == "count");
}

#[test]
fn ends_and_lists() {
    let list = DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true)));
    for ignore_nulls in [false, true] {
        let first = call("first_value", DataType::Int64, ignore_nulls);
        let last = call("last_value", DataType::Int64, ignore_nulls);
        let all = call("array_agg", list.clone(), ignore_nulls);
        let none = |kind: &'static str| (kind, None);
        let some = |kind: &'static str, v: i64| (kind, Some(v));
        check(&first, &[some("+", 3), some("+", 4)], "3");
        check(&last, &[some("+", 3), some("+", 4)], "4");
        check(&first, &[none("+"), some("+", 4)], if ignore_nulls { "4" } else { "" });
        check(&last, &[some("+", 4), none("+")], if ignore_nulls { "4" } else { "" });
        check(&first, &[some("+", 3), some("+", 4), some("-", 3)], "4");
        check(&first, &[some("+", 3), some("+", 4), some("+", 3), some("-", 3)], "4");
        check(&last, &[some("+", 3), some("+", 4), some("-", 4)], "3");
        check(&last, &[some("+", 3), some("-", 3)], "");
        check(&all, &[some("+", 3), none("+"), some("+", 4), some("-", 3)], if ignore_nulls { "[4]" } else { "[, 4]" });
    }
}

#[test]
fn texts_are_taken_back() {
    let call = call("string_agg", DataType::Utf8, false);
    let mut accumulator = accumulator(&call, true).unwrap();
    accumulator.resize(1);
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "a"]));
    let separators: ArrayRef = Arc::new(StringArray::from(vec![","; 3]));
    let kinds = [RowKind::Insert, RowKind::Insert, RowKind::Delete];
    let (_, after) =
        accumulator.update_each(&Rows { slots: &[0, 0, 0], values: &[texts, separators], kinds: Some(&kinds), mask: None }).unwrap();
    assert_eq!(after.as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["a", "a,b", "b"]);
}

/// Two accumulators merged, and one taken out again, leave the other.
#[test]
fn merged_state_is_taken_out() {
    for name in ["sum", "count", "distinct"] {
        let mut call = call(if name == "distinct" { "count" } else { name }, DataType::Int64, false);
        call.distinct = name == "distinct";
        let of = |values: &[Option<i64>]| {
            let mut accumulator = accumulator(&call, false).unwrap();
            accumulator.resize(2);
            let slots: Vec<u32> = (0..values.len() as u32).map(|i| i % 2).collect();
            accumulator.update(&Rows { slots: &slots, values: &numbers(values), kinds: None, mask: None }).unwrap();
            accumulator
        };
        let result = |accumulator: &mut Box<dyn Accumulator>| -> Vec<Option<i64>> {
            accumulator.values(&[0, 1]).unwrap().as_primitive::<Int64Type>().iter().collect()
        };
        let mut older = of(&[Some(1), Some(2), Some(1), None, Some(7), Some(2)]);
        let mut newer = of(&[Some(1), None, Some(9), Some(2), Some(9), Some(5)]);
        let mut both = of(&[]);
        assert!(both.unmerges());
        let old = older.save(&[0, 1]).unwrap();
        both.load(&[0, 1], &old).unwrap();
        both.load(&[0, 1], &newer.save(&[0, 1]).unwrap()).unwrap();
        let expect = match name {
            "sum" => [28, 11],
            "count" => [6, 4],
            _ => [3, 2],
        };
        assert_eq!(result(&mut both), expect.map(Some), "{name}");
        both.unload(&[0, 1], &old).unwrap();
        assert_eq!(result(&mut both), result(&mut newer), "{name}");
    }
}

#[test]
fn lists_have_the_declared_type() {
    let list = DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true)));
    let mut accumulator = accumulator(&call("array_agg", list.clone(), false), true).unwrap();
    accumulator.resize(1);
    let values = accumulator.values(&[0, 0]).unwrap();
    assert_eq!(values.data_type(), &list);
    assert!(values.as_any().is::<ListArray>() && values.null_count() == 2);
}
