//! Rows are handed out as wanted, on a thread or without.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::datatypes::Int64Type;

use super::*;

/// Batches of so many rows, which are numbered through; then it fails, or ends.
struct Numbers(Vec<i64>, i64, bool);

impl Decode for Numbers {
    fn decode(&mut self) -> Result<Option<RecordBatch>, ConnectError> {
        if self.0.is_empty() {
            return if self.2 { Err(ConnectError::new("damaged")) } else { Ok(None) };
        }
        let from = self.1;
        self.1 += self.0.remove(0);
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(from..self.1));
        Ok(Some(RecordBatch::try_from_iter([("n", numbers)]).unwrap()))
    }
}

/// The rows of each answer until the end, and how it ended.
fn polled(mut batches: Batches, rows_max: usize) -> (Vec<Vec<i64>>, Option<String>) {
    let mut answers = Vec::new();
    loop {
        match batches.next_rows(rows_max) {
            Ok(Answer::Rows(batch, _)) => answers.push(batch.column(0).as_primitive::<Int64Type>().values().to_vec()),
            Ok(Answer::Nothing) => std::thread::yield_now(),
            Ok(Answer::End) => return (answers, None),
            Err(e) => return (answers, Some(e.to_string())),
        }
    }
}

#[test]
fn rows_are_handed_out_in_order_and_as_many_as_wanted() {
    for (rows_max, expect) in [
        (2, vec![vec![0, 1], vec![2], vec![], vec![3, 4], vec![5, 6]]),
        (0, vec![vec![0], vec![1], vec![2], vec![], vec![3], vec![4], vec![5], vec![6]]),
        (3, vec![vec![0, 1, 2], vec![], vec![3, 4, 5], vec![6]]),
        (100, vec![vec![0, 1, 2], vec![], vec![3, 4, 5, 6]]),
    ] {
        for fails in [false, true] {
            let decode = || Box::new(Numbers(vec![3, 0, 4], 0, fails));
            let end = fails.then(|| "damaged".to_string());
            assert_eq!(polled(Batches::here(decode()), rows_max), (expect.clone(), end.clone()), "{rows_max}");
            let thread = Batches::thread("f", decode(), Waker::noop()).unwrap();
            assert_eq!(polled(thread, rows_max), (expect.clone(), end), "{rows_max}");
        }
    }
}
