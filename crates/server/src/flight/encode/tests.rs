//! Tests of `encode`.

use super::*;
use arrow::array::{ArrayRef, AsArray, DictionaryArray, Int64Array, StringArray};
use arrow::datatypes::{Int32Type, Int64Type};
use arrow_flight::utils::flight_data_to_batches;

fn decoded(rows: &RecordBatch, messages: Vec<FlightData>) -> Vec<RecordBatch> {
    let mut all = vec![schema_message(&rows.schema())];
    all.extend(messages);
    flight_data_to_batches(&all).unwrap()
}

#[test]
fn large_batches_are_cut_and_numbered() {
    let n: ArrayRef = Arc::new(Int64Array::from_iter_values(0..2_000_000));
    let rows = RecordBatch::try_from_iter([("n", n)]).unwrap();
    let messages = messages(&rows, 5_000_000, false).unwrap();
    assert!(messages.len() > 3 && messages.iter().all(|m| m.data_body.len() <= BODY_BYTES_MAX));
    let offsets: Vec<_> = messages.iter().map(|m| String::from_utf8(m.app_metadata.to_vec()).unwrap()).collect();
    let mut next = 3_000_000;
    for (batch, offset) in decoded(&rows, messages).iter().zip(&offsets) {
        assert_eq!(batch.column(0).as_primitive::<Int64Type>().value(0), next as i64 - 3_000_000);
        next += batch.num_rows();
        assert_eq!(*offset, format!("{{\"offset\":{next},\"snapshot\":false}}"));
    }
    assert_eq!(next, 5_000_000);
}

#[test]
fn one_long_row_is_sent_whole() {
    let text: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(5 << 20)]));
    let rows = RecordBatch::try_from_iter([("text", text)]).unwrap();
    assert_eq!(messages(&rows, 1, true).unwrap().len(), 1);
}

#[test]
fn dictionaries_become_values() {
    let dictionary: DictionaryArray<Int32Type> = ["a", "b", "a"].into_iter().collect();
    let column: ArrayRef = Arc::new(dictionary);
    let rows = RecordBatch::try_from_iter([("s", column)]).unwrap();
    let batches = decoded(&rows, messages(&rows, 3, false).unwrap());
    assert_eq!(batches[0].column(0).as_string::<i32>().value(2), "a");
}

#[test]
fn an_empty_batch_is_one_message() {
    let n: ArrayRef = Arc::new(Int64Array::from(Vec::<i64>::new()));
    let rows = RecordBatch::try_from_iter([("n", n)]).unwrap();
    let messages = messages(&rows, 7, false).unwrap();
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0].app_metadata.as_ref(), b"{\"offset\":7,\"snapshot\":false}");
    assert_eq!(decoded(&rows, messages)[0].num_rows(), 0);
}
