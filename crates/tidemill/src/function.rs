//! `tidemill function NAME`, which help does not show: functions to try `LANGUAGE PROCESS` with, and those
//! that go wrong in one way each. The tests run them; docs/functions.md says what they read and write.

use std::collections::BTreeMap;
use std::io::{Write, stdin, stdout};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, Int64Array, RecordBatch, StringArray, UInt32Array, new_empty_array};
use arrow::compute::{concat, take};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;

use crate::Failure;

/// Runs the function until its input ends.
pub fn function(name: &str) -> Result<(), Failure> {
    let served = match name {
        "garbage" => {
            println!("Hello, I am a function.");
            Ok(())
        }
        "hang" => loop {
            std::thread::sleep(Duration::from_secs(3600));
        },
        _ => serve(name),
    };
    served.map_err(|e| Failure { message: format!("function {name}: {e}"), code: 1 })
}

/// What is made of a message.
type Answer = Box<dyn FnMut(&RecordBatch) -> Result<RecordBatch, ArrowError>>;

fn serve(name: &str) -> Result<(), ArrowError> {
    let asked = StreamReader::try_new(stdin().lock(), None)?;
    let ask = asked.schema();
    let (schema, mut answer) = made(name, &ask)?;
    let mut writer = StreamWriter::try_new(stdout().lock(), &schema)?;
    writer.get_mut().flush()?;
    for (number, message) in asked.enumerate() {
        if name == "die" && number == 1 {
            // As a process that has had enough.
            eprintln!("the second message is too much");
            std::process::exit(3);
        }
        writer.write(&answer(&message?)?)?;
        writer.get_mut().flush()?;
    }
    writer.finish()?;
    Ok(writer.get_mut().flush()?)
}

/// The columns of the answers of a function, and the function.
fn made(name: &str, ask: &SchemaRef) -> Result<(SchemaRef, Answer), ArrowError> {
    let says = |more: &[(&str, &str)]| {
        let protocol = if name == "version" { "2" } else { "1" };
        [("tidemill.protocol", protocol)].iter().chain(more).map(|(k, v)| (k.to_string(), v.to_string())).collect()
    };
    let value = |data_type: DataType| Arc::new(Schema::new(vec![Field::new("value", data_type, true)]).with_metadata(says(&[])));
    Ok(match name {
        "double" | "die" | "version" => {
            let schema = value(DataType::Int64);
            let answer = schema.clone();
            let double = move |m: &RecordBatch| {
                let doubled: Int64Array = m.column(0).as_primitive::<Int64Type>().iter().map(|v| v.map(|v| v.wrapping_mul(2))).collect();
                RecordBatch::try_new(answer.clone(), vec![Arc::new(doubled)])
            };
            (schema, Box::new(double))
        }
        "upper" => {
            let schema = value(DataType::Utf8);
            let answer = schema.clone();
            let upper = move |m: &RecordBatch| {
                let upper: StringArray = m.column(0).as_string::<i32>().iter().map(|v| v.map(str::to_uppercase)).collect();
                RecordBatch::try_new(answer.clone(), vec![Arc::new(upper)])
            };
            (schema, Box::new(upper))
        }
        "short" => {
            let schema = value(DataType::Int64);
            let answer = schema.clone();
            let short = move |m: &RecordBatch| {
                let rows = m.num_rows().saturating_sub(1);
                RecordBatch::try_new(answer.clone(), vec![m.column(0).slice(0, rows)])
            };
            (schema, Box::new(short))
        }
        "copy" => {
            // All but the control; rows that are a control have none of it.
            let width = ask.fields().len() - 1;
            let schema = Arc::new(Schema::new(ask.fields()[..width].to_vec()).with_metadata(says(&[])));
            let answer = schema.clone();
            let copy = move |m: &RecordBatch| RecordBatch::try_new(answer.clone(), m.columns()[..width].to_vec());
            (schema, Box::new(copy))
        }
        "count" => counter(ask, "keyed", says(&[("tidemill.state", "keyed")]), false),
        "count-opaque" => counter(ask, "opaque", says(&[("tidemill.state", "opaque")]), false),
        "totals" => counter(ask, "keyed", says(&[("tidemill.state", "keyed"), ("tidemill.watermarks", "true")]), true),
        other => return Err(ArrowError::InvalidArgumentError(format!("there is no function '{other}' to try"))),
    })
}

/// What stands for a key: its values as text.
type Key = Vec<Option<String>>;

/// Counts the rows of each key. Each row gives the count so far, or the end of time that of all.
fn counter(ask: &SchemaRef, state: &str, says: std::collections::HashMap<String, String>, at_end: bool) -> (SchemaRef, Answer) {
    let names = ask.metadata().get("tidemill.keys").cloned().unwrap_or_default();
    let names: Vec<String> = serde_json::from_str(&names).unwrap_or_default();
    let keys: Vec<usize> = names.iter().filter_map(|n| ask.index_of(n).ok()).collect();
    let time = ask.metadata().get("tidemill.time").and_then(|t| ask.index_of(t).ok());
    let mut fields: Vec<Field> = keys.iter().map(|k| ask.field(*k).clone()).collect();
    fields.push(Field::new("n", DataType::Int64, true));
    if let Some(time) = time {
        fields.push(Field::new("rowtime", ask.field(time).data_type().clone(), true));
    }
    fields.push(Field::new("$state", DataType::Binary, true));
    let schema = Arc::new(Schema::new(fields).with_metadata(says));
    let mut table = Counter { keys, time, opaque: state == "opaque", at_end, schema: schema.clone(), counts: BTreeMap::new() };
    (schema, Box::new(move |m: &RecordBatch| table.answer(m)))
}

struct Counter {
    keys: Vec<usize>,
    time: Option<usize>,
    opaque: bool,
    at_end: bool,
    schema: SchemaRef,
    /// The count of each key, and the key's columns, a row of them.
    counts: BTreeMap<Key, (i64, Vec<ArrayRef>)>,
}

/// Rows of an answer.
#[derive(Default)]
struct Given {
    keys: Vec<Vec<ArrayRef>>,
    counts: Vec<Option<i64>>,
    times: Vec<u32>,
    states: Vec<Option<Vec<u8>>>,
}

impl Counter {
    fn key(&self, message: &RecordBatch, row: usize) -> (Key, Vec<ArrayRef>) {
        let columns: Vec<ArrayRef> = self.keys.iter().map(|k| message.column(*k).slice(row, 1)).collect();
        let text = |c: &ArrayRef| c.is_valid(0).then(|| arrow::util::display::array_value_to_string(c, 0).unwrap_or_default());
        (columns.iter().map(text).collect(), columns)
    }

    fn answer(&mut self, message: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let control = message.column(message.num_columns() - 1).as_binary::<i32>().clone();
        let mut given = Given::default();
        for row in 0..message.num_rows() {
            let (key, columns) = self.key(message, row);
            if control.is_null(row) {
                let (count, _) = self.counts.entry(key).or_insert((0, columns.clone()));
                *count += 1;
                if !self.at_end {
                    given.keys.push(columns);
                    given.counts.push(Some(*count));
                    given.times.push(row as u32);
                    given.states.push(None);
                }
                continue;
            }
            let control = control.value(row);
            let word = control.split(|b| *b == b' ').next().unwrap_or_default();
            let rest = control.get(word.len() + 1..).unwrap_or_default();
            match word {
                b"watermark" if self.at_end && rest == i64::MAX.to_string().as_bytes() => {
                    for (count, columns) in self.counts.values() {
                        given.keys.push(columns.clone());
                        given.counts.push(Some(*count));
                        given.states.push(None);
                    }
                }
                b"checkpoint" if self.opaque => {
                    let all: Vec<(&Key, i64)> = self.counts.iter().map(|(k, (n, _))| (k, *n)).collect();
                    let empty = self.keys.iter().map(|k| arrow::array::new_null_array(message.column(*k).data_type(), 1)).collect();
                    given.keys.push(empty);
                    given.counts.push(None);
                    given.states.push(serde_json::to_vec(&all).ok());
                }
                b"checkpoint" => {
                    for (count, columns) in self.counts.values() {
                        given.keys.push(columns.clone());
                        given.counts.push(None);
                        given.states.push(Some(count.to_string().into_bytes()));
                    }
                }
                b"restore" if self.opaque => {
                    let all: Vec<(Key, i64)> = serde_json::from_slice(rest).map_err(|e| ArrowError::ParseError(e.to_string()))?;
                    self.counts.extend(all.into_iter().map(|(key, count)| (key, (count, columns.clone()))));
                }
                b"restore" => {
                    let count = std::str::from_utf8(rest).ok().and_then(|t| t.parse().ok());
                    let count = count.ok_or_else(|| ArrowError::ParseError("a count was expected".into()))?;
                    self.counts.insert(key, (count, columns));
                }
                _ => {}
            }
        }
        self.batch(message, given)
    }

    fn batch(&self, message: &RecordBatch, given: Given) -> Result<RecordBatch, ArrowError> {
        let mut columns: Vec<ArrayRef> = Vec::new();
        for (at, key) in self.keys.iter().enumerate() {
            let parts: Vec<&dyn Array> = given.keys.iter().map(|k| k[at].as_ref()).collect();
            columns.push(if parts.is_empty() { new_empty_array(message.column(*key).data_type()) } else { concat(&parts)? });
        }
        let rows = given.counts.len();
        columns.push(Arc::new(Int64Array::from(given.counts)));
        if let Some(time) = self.time {
            // Answers to controls have no time.
            let picks: UInt32Array = (0..rows).map(|i| given.times.get(i).copied()).collect();
            columns.push(take(message.column(time), &picks, None)?);
        }
        columns.push(Arc::new(given.states.iter().map(|s| s.as_deref()).collect::<BinaryArray>()));
        RecordBatch::try_new(self.schema.clone(), columns)
    }
}
