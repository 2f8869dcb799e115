//! Tests of the checked sums: whole, in parts, by group, in a window that moves.

use super::*;

fn array(values: &[Option<i64>]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

/// The sum of all values, of each part by itself and then merged, and by group.
#[track_caller]
fn check(parts: &[&[Option<i64>]], expect: Option<Option<i64>>) {
    let (mut whole, mut merged) = (One::default(), One::default());
    let (mut groups, mut regrouped) = (Groups::default(), Groups::default());
    for part in parts {
        whole.update_batch(&[array(part)]).unwrap();
        let mut one = One::default();
        one.update_batch(&[array(part)]).unwrap();
        let state: Vec<ArrayRef> = one.state().unwrap().iter().map(|s| s.to_array().unwrap()).collect();
        merged.merge_batch(&state).unwrap();
        groups.update_batch(&[array(part)], &vec![1; part.len()], None, 2).unwrap();
    }
    // A group more that each value is put into by itself.
    let (values, no_filter): (Vec<Option<i64>>, _) = (parts.concat(), None);
    let each = groups.convert_to_state(&[array(&values)], no_filter).unwrap();
    regrouped.merge_batch(&groups.state(EmitTo::All).unwrap(), &[0, 1], 3).unwrap();
    regrouped.merge_batch(&each, &vec![2; values.len()], 3).unwrap();
    let result = |one: &mut One| one.evaluate().ok().map(|v| if let ScalarValue::Int64(v) = v { v } else { panic!("{v:?}") });
    assert_eq!((result(&mut whole), result(&mut merged)), (expect, expect));
    let grouped = regrouped.evaluate(EmitTo::All).ok().map(|a| {
        let sums = a.as_primitive::<Int64Type>().iter().collect::<Vec<_>>();
        assert_eq!((sums.len(), sums[0], sums[2]), (3, None, sums[1]), "nothing is in the first group");
        sums[1]
    });
    assert_eq!(grouped, expect);
}

#[test]
fn sums_that_fit_and_sums_that_do_not() {
    check(&[&[Some(1), None, Some(2)], &[Some(3)]], Some(Some(6)));
    check(&[&[None], &[]], Some(None));
    check(&[&[Some(i64::MAX)], &[Some(1)]], None);
    check(&[&[Some(i64::MIN), Some(-1)]], None);
    // Only the result must fit.
    check(&[&[Some(i64::MAX), Some(1)], &[Some(-1)]], Some(Some(i64::MAX)));
}

#[test]
fn a_window_moves_on() {
    let mut one = One::default();
    one.update_batch(&[array(&[Some(i64::MAX), Some(5)])]).unwrap();
    assert!(one.evaluate().unwrap_err().to_string().contains("a SUM overflows BIGINT"));
    one.retract_batch(&[array(&[Some(i64::MAX)])]).unwrap();
    assert_eq!(one.evaluate().unwrap(), ScalarValue::Int64(Some(5)));
    one.retract_batch(&[array(&[Some(5), None])]).unwrap();
    assert_eq!(one.evaluate().unwrap(), ScalarValue::Int64(None));
}
