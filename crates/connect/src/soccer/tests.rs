//! Tests of the connector as a whole: the same rows however they are read, the list of goals, errors.

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{Int32Type, Int64Type, Schema};
use tidemill_block::{Block, text};

use super::*;
use crate::{Polled, ReadRequest, ReaderContext, Split, Waker};

fn schema(columns: &[(&str, DataType)]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(|(name, t)| Field::new(*name, t.clone(), true)).collect::<Vec<_>>()))
}

const TIME: DataType = DataType::Timestamp(TimeUnit::Millisecond, None);

fn sensors() -> SchemaRef {
    let numbers = ["x", "y", "z", "v_abs", "a_abs", "vx", "vy", "vz", "ax", "ay", "az"];
    let mut columns = vec![("sid", DataType::Int32), ("ts", DataType::Int64), ("time", TIME)];
    columns.extend(numbers.map(|name| (name, DataType::Int32)));
    schema(&columns)
}

fn goal_list() -> SchemaRef {
    schema(&[("time", TIME), ("ts", DataType::Int64), ("sid", DataType::Int32), ("side", DataType::Utf8)])
}

fn make(schema: &SchemaRef, pairs: &[(&str, &str)]) -> Result<Box<dyn Source>, ConnectError> {
    let mut raw = RawOptions::new("table 't'", pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())));
    let source = CONNECTOR.source(schema, &mut raw)?;
    raw.finish()?;
    Ok(source)
}

/// All rows of a split, in blocks of `rows_max`.
fn read(source: &dyn Source, schema: &SchemaRef, split: &Split, rows_max: usize) -> RecordBatch {
    let context = ReaderContext { waker: Waker::noop(), request: ReadRequest::all(schema.clone()), shard: 0, shards: 1 };
    let mut reader = source.open(split, context).unwrap();
    let mut batches = Vec::new();
    while let Polled::Rows(rows) = reader.poll(rows_max).unwrap() {
        batches.push(rows.batch);
    }
    concat_batches(schema, &batches).unwrap()
}

fn lines(batch: RecordBatch) -> Vec<String> {
    text::format(&Block::inserts(batch, 0)).lines().map(String::from).collect()
}

#[test]
fn rows_do_not_depend_on_how_they_are_read() {
    let options = [("number-of-rows", "60000"), ("players.rate", "50"), ("balls.rate", "150"), ("goals.interval", "20 s")];
    for (table, schema) in [("sensors", sensors()), ("goals", goal_list())] {
        let source = make(&schema, &[&options[..], &[("table", table)]].concat()).unwrap();
        let one = source.splits(1).unwrap();
        let expected = lines(read(&*source, &schema, &one[0], usize::MAX));
        assert_eq!(source.rows_hint(), Some(expected.len()));
        for rows_max in [1, 7, 1000] {
            assert!(lines(read(&*source, &schema, &one[0], rows_max)) == expected, "{table}: blocks of {rows_max}");
        }
        let mut apart: Vec<String> =
            source.splits(3).unwrap().iter().flat_map(|split| lines(read(&*source, &schema, split, 900))).collect();
        let mut expected = expected;
        apart.sort();
        expected.sort();
        assert!(apart == expected, "{table}: three splits");
    }
}

#[test]
fn the_list_of_goals_names_rows_of_the_sensors() {
    // 2,200 rows a second: eight intervals of 20 s, and a goal in each.
    let options = [("number-of-rows", "352000"), ("players.rate", "50"), ("balls.rate", "150"), ("goals.interval", "20 s")];
    let (sensors, goals) = (sensors(), goal_list());
    let all = |schema: &SchemaRef, table| {
        let source = make(schema, &[&options[..], &[("table", table)]].concat()).unwrap();
        read(&*source, schema, &source.splits(1).unwrap()[0], 8192)
    };
    let (rows, list) = (all(&sensors, "sensors"), all(&goals, "goals"));
    assert_eq!(list.num_rows(), 8);
    let number = |name: &str| rows.column_by_name(name).unwrap().as_primitive::<Int32Type>().clone();
    let (sids, ys) = (number("sid"), number("y"));
    let (ts, goal_ts) = (rows.column(1).as_primitive::<Int64Type>(), list.column(1).as_primitive::<Int64Type>());
    assert!(ts.values().is_sorted());
    for goal in 0..8 {
        let sid = list.column(2).as_primitive::<Int32Type>().value(goal);
        let row = (0..rows.num_rows()).find(|row| ts.value(*row) == goal_ts.value(goal) && sids.value(*row) == sid).expect("its row");
        let north = list.column(3).as_string::<i32>().value(goal) == "north";
        assert!(if north { ys.value(row) >= 33_965 } else { ys.value(row) <= -33_968 }, "goal {goal} is behind the line");
    }
}

#[test]
fn goals_are_due_when_they_fall() {
    let options = SoccerOptions::take(&mut RawOptions::new("t", [])).unwrap();
    let model = Arc::new(options.model("t").unwrap());
    let goals = Goals { model: model.clone(), rows: 10 };
    for row in 0..10 {
        let due = goals.due_ns(row);
        assert_eq!((goals.rows_due(due - 1), goals.rows_due(due)), (row, row + 1));
    }
}

#[track_caller]
fn check_error(columns: &[(&str, DataType)], pairs: &[(&str, &str)], expect: &str) {
    let error = make(&schema(columns), pairs).err().expect("an error").to_string();
    assert!(error.starts_with("table 't': ") && error.contains(expect), "{error}");
}

#[test]
fn mistakes_are_named() {
    let x = [("x", DataType::Int32)];
    check_error(&[("w", DataType::Int32)], &[], "'table' = 'sensors' has no column 'w' of type INT; it has: sid (INT); ts");
    check_error(&x, &[("table", "goals")], "'table' = 'goals' has no column 'x' of type INT; it has: time");
    check_error(&x, &[("balls.rate", "300")], "'balls.rate' = '300': expected a multiple of 'players.rate', which is 200");
    check_error(&x, &[("players.rate", "0")], "'players.rate' = '0': expected a whole number from 1");
    check_error(&x, &[("goals.interval", "21 s")], "'goals.interval' = '21 s': expected an even number of seconds from 20");
    check_error(&x, &[("base-time", "noon")], "'base-time' = 'noon': expected a timestamp");
}
