//! Tests of tables read whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{AsArray, Int64Array, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use crossbeam_channel::{Receiver, unbounded};

use super::*;
use crate::{Reader, Rows, Split};

/// A table whose content is a function of how often it was read; `None` fails.
struct Given {
    readings: AtomicUsize,
    content: fn(usize) -> Option<Vec<(i64, &'static str)>>,
}

struct Once(Option<RecordBatch>);

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, true), Field::new("name", DataType::Utf8, true)]))
}

impl Source for Given {
    fn bounded(&self) -> bool {
        true
    }
    fn splits(&self, _: usize) -> Result<Vec<Split>, ConnectError> {
        Ok(vec![Split::new("one")])
    }
    fn open(&self, _: &Split, _: ReaderContext) -> Result<Box<dyn Reader>, ConnectError> {
        let rows = (self.content)(self.readings.fetch_add(1, Ordering::Relaxed)).ok_or_else(|| ConnectError::new("it is gone"))?;
        let (ids, names): (Vec<i64>, Vec<&str>) = rows.into_iter().unzip();
        let columns: Vec<arrow::array::ArrayRef> = vec![Arc::new(Int64Array::from(ids)), Arc::new(StringArray::from(names))];
        Ok(Box::new(Once(Some(RecordBatch::try_new(schema(), columns).unwrap()))))
    }
}

impl Reader for Once {
    fn poll(&mut self, _: usize) -> Result<Polled, ConnectError> {
        Ok(self.0.take().map_or(Polled::End, |batch| Polled::Rows(Rows::good(batch, 0, 0))))
    }
    fn position(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

fn table(content: fn(usize) -> Option<Vec<(i64, &'static str)>>, options: &[(&str, &str)]) -> Result<FullTable, ConnectError> {
    let mut raw = tidemill_format::options::RawOptions::new("table 't'", options.iter().map(|(k, v)| (k.to_string(), v.to_string())));
    let options = LookupOptions::checked(&mut raw)?;
    FullTable::new(Arc::new(Given { readings: AtomicUsize::new(0), content }), options, "table 't'")
}

fn open(table: &FullTable) -> (Box<dyn Lookup>, Receiver<()>) {
    let (woken, wakes) = unbounded();
    let wake = Waker::new(move || woken.send(()).unwrap_or_default());
    let keys = Arc::new(schema().project(&[0]).unwrap());
    (table.open(LookupContext { keys, columns: schema(), wake, shard: 0, shards: 1 }).unwrap(), wakes)
}

fn ask(lookup: &mut dyn Lookup, call: u64, ids: &[i64]) {
    let keys = RecordBatch::try_new(Arc::new(schema().project(&[0]).unwrap()), vec![Arc::new(Int64Array::from(ids.to_vec()))]).unwrap();
    lookup.start(call, &keys).unwrap();
}

fn answer(lookup: &mut dyn Lookup, wakes: &Receiver<()>) -> Vec<Answer> {
    let mut answers = Vec::new();
    while answers.is_empty() {
        wakes.recv_timeout(Duration::from_secs(60)).expect("it wakes when there is something");
        lookup.finished(&mut answers);
    }
    answers
}

fn shown(answer: &Answer) -> Vec<(u32, i64, String)> {
    let found = answer.result.as_ref().unwrap();
    let (ids, names) = (found.rows.column(0).as_primitive::<Int64Type>(), found.rows.column(1).as_string::<i32>());
    found.origins.iter().enumerate().map(|(i, origin)| (*origin, ids.value(i), names.value(i).to_string())).collect()
}

#[test]
fn keys_are_answered_from_what_was_read() {
    let table = table(|_| Some(vec![(1, "a"), (2, "b"), (1, "c")]), &[]).unwrap();
    let (mut lookup, wakes) = open(&table);
    ask(lookup.as_mut(), 7, &[2, 9, 1]);
    let answers = answer(lookup.as_mut(), &wakes);
    assert_eq!((answers.len(), answers[0].call), (1, 7));
    assert_eq!(shown(&answers[0]), [(0, 2, "b".into()), (2, 1, "a".into()), (2, 1, "c".into())]);
    ask(lookup.as_mut(), 8, &[1]);
    ask(lookup.as_mut(), 9, &[1]);
    lookup.cancel(8);
    assert_eq!(answer(lookup.as_mut(), &wakes).iter().map(|a| a.call).collect::<Vec<_>>(), [9]);
}

#[test]
fn the_table_is_read_again() {
    let contents = |n: usize| Some(vec![(1, if n == 0 { "old" } else { "new" })]);
    // By Flink's name.
    let options = [("lookup.full-cache.periodic-reload.interval", "1 ms"), ("lookup.cache", "FULL")];
    let twice = self::table(contents, &[options[0], ("lookup.full-cache.reload-interval", "2 ms"), options[1]]);
    assert!(twice.is_err_and(|e| e.to_string().contains("'lookup.full-cache.reload-interval' says another one")));
    let table = table(contents, &options).unwrap();
    let (mut lookup, wakes) = open(&table);
    for call in 0.. {
        ask(lookup.as_mut(), call, &[1]);
        if shown(&answer(lookup.as_mut(), &wakes)[0])[0].2 == "new" {
            break;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_table_that_cannot_be_read_is_an_error() {
    let fails = |content, options: &[(&str, &str)]| {
        let table = table(content, options).unwrap();
        let (mut lookup, wakes) = open(&table);
        for call in 0.. {
            ask(lookup.as_mut(), call, &[1]);
            if let Err(failure) = &answer(lookup.as_mut(), &wakes)[0].result {
                assert!(!failure.retry);
                return failure.reason.clone();
            }
            thread::sleep(Duration::from_millis(1));
        }
        unreachable!()
    };
    assert_eq!(fails(|_| None, &[]), "table 't': reading the table whole: it is gone");
    // It goes on with what it has for as many attempts as there are.
    let once = |n: usize| (n == 0).then(|| vec![(1, "a")]);
    let reason = fails(once, &[("lookup.full-cache.reload-interval", "1 ms"), ("lookup.max-retries", "2")]);
    assert_eq!(reason, "table 't': reading the table whole anew, as 'lookup.full-cache.reload-interval' says: it is gone");
    let error = table(|_| None, &[("lookup.cache", "PARTIAL")]).map(drop).unwrap_err().to_string();
    assert!(error.contains("'lookup.cache'"), "{error}");
}
