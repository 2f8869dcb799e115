//! Tests of `listagg`.

use arrow::array::StringArray;

use super::*;

fn texts(retracts: bool, distinct: bool) -> Texts {
    Texts { separator: "|".into(), kept: retracts || distinct, retracts, texts: Vec::new(), seen: distinct.then(HashSet::new), bytes: 0 }
}

fn array(values: &[Option<&str>]) -> Vec<ArrayRef> {
    vec![Arc::new(StringArray::from(values.to_vec()))]
}

#[track_caller]
fn check(accumulator: &mut Texts, expect: Option<&str>) {
    assert_eq!(accumulator.evaluate().unwrap(), ScalarValue::Utf8(expect.map(String::from)));
    // And as much after its state went through columns.
    let state: Vec<ArrayRef> = accumulator.state().unwrap().iter().map(|s| s.to_array().unwrap()).collect();
    let mut again = texts(accumulator.retracts, accumulator.seen.is_some());
    again.merge_batch(&state).unwrap();
    assert_eq!(again.evaluate().unwrap(), ScalarValue::Utf8(expect.map(String::from)));
}

#[test]
fn texts_are_put_together() {
    let mut all = texts(false, false);
    check(&mut all, None);
    all.update_batch(&array(&[None])).unwrap();
    check(&mut all, None);
    all.update_batch(&array(&[Some("b"), None, Some(""), Some("b")])).unwrap();
    check(&mut all, Some("b||b"));
    let mut distinct = texts(false, true);
    distinct.update_batch(&array(&[Some("b"), Some("a"), Some("b")])).unwrap();
    check(&mut distinct, Some("b|a"));
}

#[test]
fn texts_are_taken_back() {
    let mut all = texts(true, false);
    all.update_batch(&array(&[Some("a"), Some("b"), Some("a"), Some("c")])).unwrap();
    all.retract_batch(&array(&[Some("a"), Some("c"), None])).unwrap();
    check(&mut all, Some("b|a"));
    all.retract_batch(&array(&[Some("a"), Some("b")])).unwrap();
    check(&mut all, None);
}
