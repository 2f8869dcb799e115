//! Dictionaries that come value by value.

use std::sync::Arc;

use arrow::array::{BooleanArray, Int8Array, Int32Array, Int64Array, StringArray, StringViewArray, UInt16Array};

use super::*;

const BORNE: u64 = 1 << 20;

fn texts(numbers: std::ops::Range<usize>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(numbers.map(|n| format!("text {n}"))))
}

#[test]
fn pieces_stay_few_and_in_order() {
    let mut dictionary = Dictionary::new(texts(0..0));
    let mut moved = 0;
    for n in 0..1000 {
        let before = dictionary.pieces.clone();
        dictionary.extend(texts(n..n + 1)).unwrap();
        let last = dictionary.pieces.last().unwrap().len();
        moved += if dictionary.pieces.len() > before.len() { 0 } else { last };
        assert!(dictionary.pieces.windows(2).all(|pair| pair[0].len() >= 2 * pair[1].len()));
    }
    assert!(dictionary.pieces.len() <= 10 && moved < 20 * 1000, "{} pieces, {moved} values were moved", dictionary.pieces.len());
    let keys = UInt16Array::from(vec![Some(0), None, Some(999), Some(500)]);
    let mut left = BORNE;
    let plain = dictionary.plain(&keys, &mut left).unwrap();
    let expected = [Some("text 0"), None, Some("text 999"), Some("text 500")];
    assert_eq!(plain.as_string::<i32>().iter().collect::<Vec<_>>(), expected);
    assert_eq!(BORNE - left, 4 * 8 + 6 + 8 + 8);
    assert_eq!(dictionary.whole().unwrap(), &texts(0..1000));
    assert_eq!(dictionary.plain(&keys, &mut left).unwrap().as_ref(), plain.as_ref());
}

#[test]
fn values_of_each_kind() {
    let longer = "a text that is longer than twelve bytes";
    let pairs: [(ArrayRef, ArrayRef); 3] = [
        (Arc::new(Int32Array::from(vec![Some(7), None, Some(8)])), Arc::new(Int32Array::from(vec![9]))),
        (Arc::new(BooleanArray::from(vec![true, false, true])), Arc::new(BooleanArray::from(vec![false]))),
        (Arc::new(StringViewArray::from(vec!["a", longer, "c"])), Arc::new(StringViewArray::from(vec![longer]))),
    ];
    for (first, second) in pairs {
        let mut dictionary = Dictionary::new(first.clone());
        dictionary.extend(second.clone()).unwrap();
        assert_eq!(dictionary.pieces.len(), 2);
        let mut left = BORNE;
        let plain = dictionary.plain(&Int64Array::from(vec![0, 1, 2, 3]), &mut left).unwrap();
        assert_eq!((plain.slice(0, 3).as_ref(), plain.slice(3, 1).as_ref()), (first.as_ref(), second.as_ref()));
    }
}

#[test]
fn keys_that_point_nowhere_and_too_many_bytes_are_refused() {
    let dictionary = Dictionary::new(texts(0..2));
    let error = |keys: &dyn Array, mut left: u64| dictionary.plain(keys, &mut left).unwrap_err();
    assert_eq!(error(&Int8Array::from(vec![2]), BORNE), "a row points to value 2 of a dictionary of 2");
    assert_eq!(error(&Int8Array::from(vec![-1]), BORNE), "a row points to value -1 of a dictionary of 2");
    assert!(error(&Int8Array::from(vec![0; 10]), 100).contains("would take 140 bytes"));
    assert!(error(&StringArray::from(vec!["0"]), BORNE).contains("no numbers"));
    let (nothing, mut left) = (Dictionary::new(texts(0..0)), BORNE);
    assert_eq!(nothing.plain(&Int8Array::from(vec![None, None]), &mut left).unwrap().null_count(), 2);
}
