//! The order of places, and what a reading that was cut off keeps.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};

use super::*;
use crate::source::encode_row;

fn key(id: i64) -> RecordBatch {
    RecordBatch::try_from_iter([("id", Arc::new(Int64Array::from(vec![id])) as ArrayRef)]).unwrap()
}

#[test]
fn places_have_an_order_and_a_text() {
    assert!(Offset { file: 9, at: 500 } < Offset { file: 10, at: 4 });
    assert_eq!(Offset::at(0x1_0000_00AB).to_string(), "1/AB");
    assert_eq!(Offset { file: 3, at: 4 }.to_string(), "file 3, byte 4");
}

#[test]
fn pieces_pass_over_what_they_have_seen() {
    let upto = |id, at| Part { upto: Some(encode_row(&key(id)).unwrap()), at: Offset::at(at) };
    let pieces = Pieces::of(&[upto(-1, 100), upto(50, 200), Part { upto: None, at: Offset::at(300) }]).unwrap();
    let wants = |id: i64, at: u64| pieces.wants(key_rows(&key(id), &[0]).unwrap().row(0).data(), Offset::at(at));
    for (id, at, expect) in [(-5, 100, true), (-1, 99, false), (0, 199, false), (50, 200, true), (51, 250, false), (51, 300, true)] {
        assert_eq!(wants(id, at), expect, "{id} at {at}");
    }
    assert!(!pieces.passed(Offset::at(299)) && pieces.passed(Offset::at(300)));
}

#[test]
fn a_reading_that_is_cut_off_is_a_piece() {
    let reading = |rows, after: Option<&str>| Position {
        reading: Some(Reading { at: Offset::at(7), rows, after: after.map(str::to_string) }),
        ..Position::default()
    };
    let mut position = reading(5, Some("k"));
    assert!(position.cut());
    assert_eq!(position.parts, [Part { upto: Some("k".into()), at: Offset::at(7) }]);
    assert!(reading(0, None).cut());
    assert!(!reading(5, None).cut());
    let text = serde_json::to_value(&position).unwrap();
    assert_eq!(Position::of(&text, "t").unwrap(), Some(position));
    assert!(Position::of(&serde_json::json!({"rows": 1}), "t").is_err());
}
