//! Frames against references that look at every row for every row.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, Int64Array, RecordBatch, StringArray, TimestampMillisecondArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimeUnit, TimestampMillisecondType};
use datafusion_common::ScalarValue;
use datafusion_physical_expr::aggregate::AggregateExprBuilder;
use datafusion_physical_expr::expressions::Column;
use tidemill_block::{Block, WATERMARK_END};
use tidemill_state::StateTable;

use super::lead::{Lead, LeadCall, LeadSpec};
use super::*;

#[derive(Clone, Debug)]
struct Row {
    time: i64,
    key: i64,
    value: Option<i64>,
    number: i64,
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

fn input() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("t", DataType::Timestamp(TimeUnit::Millisecond, None), false),
        Field::new("k", DataType::Int64, true),
        Field::new("v", DataType::Int64, true),
        Field::new("s", DataType::Utf8, true),
        Field::new("n", DataType::Int64, false),
    ]))
}

fn block(rows: &[Row]) -> Block {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(TimestampMillisecondArray::from_iter_values(rows.iter().map(|r| r.time))),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.key))),
        Arc::new(rows.iter().map(|r| r.value).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|r| r.value.map(|v| v.to_string())).collect::<StringArray>()),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.number))),
    ];
    Block::inserts(RecordBatch::try_new(input(), columns).unwrap(), 0)
}

fn column(name: &str, index: usize) -> Expr {
    Arc::new(Column::new(name, index))
}

/// An aggregate over `v`; only its name and types matter to the kernels.
fn aggregate(name: &str) -> OverCall {
    let sum = tidemill_plan::exact::aggregate_functions().remove(0);
    let function = AggregateExprBuilder::new(sum, vec![column("v", 2)]).schema(input()).alias(name).build().unwrap();
    OverCall::Aggregate(AggregateCall {
        function: Arc::new(function),
        name: name.into(),
        arguments: vec![column("v", 2)],
        argument_types: vec![DataType::Int64],
        filter: None,
        distinct: false,
        output: Arc::new(Field::new(name, DataType::Int64, true)),
    })
}

fn value(function: ValueFunction, ignore_nulls: bool) -> OverCall {
    OverCall::Value(ValueCall { function, argument: column("v", 2), data_type: DataType::Int64, ignore_nulls })
}

fn calls(unbounded: bool) -> Vec<OverCall> {
    let mut calls: Vec<OverCall> = ["count", "sum"].into_iter().map(aggregate).collect();
    if !unbounded {
        calls.extend(["min", "max"].into_iter().map(aggregate));
    }
    for ignore_nulls in [false, true] {
        for function in [ValueFunction::First, ValueFunction::Last, ValueFunction::Nth(2)] {
            calls.push(value(function, ignore_nulls));
        }
    }
    calls
}

/// The answer of a call for the rows of a frame.
fn naive(call: &OverCall, frame: &[&Row]) -> Option<i64> {
    let values = || frame.iter().filter_map(|r| r.value);
    match call {
        OverCall::Aggregate(call) => match call.name.as_str() {
            "count" => Some(values().count() as i64),
            "sum" => values().next().map(|_| values().sum()),
            "min" => values().min(),
            _ => values().max(),
        },
        OverCall::Value(call) => {
            let counted: Vec<Option<i64>> = frame.iter().map(|r| r.value).filter(|v| v.is_some() || !call.ignore_nulls).collect();
            match call.function {
                ValueFunction::First => counted.first().copied().flatten(),
                ValueFunction::Last => counted.last().copied().flatten(),
                ValueFunction::Nth(n) => counted.get(n).copied().flatten(),
                ValueFunction::Lag { .. } => unreachable!("not over a frame"),
            }
        }
        OverCall::Number { .. } => unreachable!("not over a frame"),
    }
}

/// Rows with disorder of less than `disorder`, and ties.
fn rows(random: &mut Random, count: usize, keys: u64, disorder: u64) -> Vec<Row> {
    let mut clock = 0;
    (0..count)
        .map(|number| {
            clock += random.below(4) as i64 * i64::from(random.below(3) == 0);
            if random.below(200) == 0 {
                clock += 300;
            }
            let value = (random.below(5) > 0).then(|| random.below(100) as i64 - 50);
            Row { time: clock + random.below(disorder + 1) as i64, key: random.below(keys) as i64, value, number: number as i64 }
        })
        .collect()
}

/// Runs rows through an operator in random blocks, replacing it now and then by what its snapshot
/// gives; all output.
fn drive(random: &mut Random, rows: &[Row], disorder: u64, make: &dyn Fn() -> Box<dyn Operator>) -> Vec<RecordBatch> {
    let mut operator = make();
    let mut out = Output::default();
    let mut at = 0;
    let mut newest = i64::MIN;
    let advance = |operator: &mut Box<dyn Operator>, watermark: i64, out: &mut Output| {
        while operator.on_watermark(watermark, out).unwrap() == Progress::More {}
    };
    while at < rows.len() {
        let size = ([1, 3, 40, 700][random.below(4) as usize]).min(rows.len() - at);
        let part = &rows[at..at + size];
        at += size;
        operator.on_block(0, block(part), &mut out).unwrap();
        newest = newest.max(part.iter().map(|r| r.time).max().unwrap());
        if random.below(3) > 0 {
            advance(&mut operator, newest - disorder as i64 - 1, &mut out);
        }
        if random.below(10) == 0 {
            advance(&mut operator, newest - disorder as i64 - 1, &mut out);
            let tables = operator.snapshot().unwrap();
            operator = make();
            operator.restore(tables).unwrap();
        }
    }
    advance(&mut operator, WATERMARK_END, &mut out);
    out.blocks.into_iter().map(|b| b.batch).collect()
}

/// Answers by row number.
fn answers(batches: &[RecordBatch], rows: usize) -> Vec<Vec<Option<i64>>> {
    let mut found: BTreeMap<i64, Vec<Option<i64>>> = BTreeMap::new();
    for batch in batches {
        let numbers = batch.column(4).as_primitive::<Int64Type>();
        for row in 0..batch.num_rows() {
            let line = (5..batch.num_columns())
                .map(|c| {
                    let column = batch.column(c);
                    match column.data_type() {
                        DataType::Utf8 => column.is_valid(row).then(|| column.as_string::<i32>().value(row).parse().unwrap()),
                        _ => column.is_valid(row).then(|| column.as_primitive::<Int64Type>().value(row)),
                    }
                })
                .collect();
            assert!(found.insert(numbers.value(row), line).is_none(), "row {} came twice", numbers.value(row));
        }
    }
    assert_eq!(found.len(), rows, "every row comes once");
    found.into_values().collect()
}

fn schema(calls: usize) -> SchemaRef {
    let mut fields: Vec<Field> = input().fields().iter().map(|f| f.as_ref().clone()).collect();
    fields.extend((0..calls).map(|i| Field::new(format!("c{i}"), DataType::Int64, true)));
    Arc::new(Schema::new(fields))
}

#[test]
fn frames_are_what_a_naive_reference_says() {
    for seed in 1..25_u64 {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let disorder = [0, 6, 25][seed as usize % 3];
        let count = 1500;
        let data = rows(&mut random, count, 1 + seed % 7, disorder);
        let mut frames = vec![Frame::RangeMs(0), Frame::RangeMs(7), Frame::RangeMs(60), Frame::Rows(0), Frame::Rows(3), Frame::Rows(20)];
        // Once only time bounds the frames, so that keys are forgotten.
        if seed % 2 == 0 {
            frames.truncate(3);
        } else {
            frames.extend([Frame::Unbounded { peers: true }, Frame::Unbounded { peers: false }]);
        }
        let frames: Vec<(Frame, Vec<OverCall>)> = frames.into_iter().map(|f| (f, calls(matches!(f, Frame::Unbounded { .. })))).collect();
        let total = frames.iter().map(|(_, c)| c.len()).sum();
        let (in_order, by_arrival) = (disorder == 0, seed % 4 < 2);
        let make = || -> Box<dyn Operator> {
            Box::new(
                Over::new(OverSpec {
                    time: 0,
                    ties: Vec::new(),
                    keys: vec![column("k", 1)],
                    key_types: vec![DataType::Int64],
                    frames: frames.clone(),
                    in_order,
                    by_arrival,
                    input: input(),
                    schema: schema(total),
                })
                .unwrap(),
            )
        };
        let got = answers(&drive(&mut random, &data, disorder, &make), count);
        let mut sorted: Vec<&Row> = data.iter().collect();
        sorted.sort_by_key(|r| r.time);
        for (at, row) in sorted.iter().enumerate() {
            let before: Vec<&Row> = sorted[..=at].iter().copied().filter(|r| r.key == row.key).collect();
            let peer = |r: &&Row| !by_arrival && r.key == row.key && r.time == row.time;
            let peers: Vec<&Row> = sorted[at + 1..].iter().copied().filter(peer).collect();
            let mut answer = 0;
            for (frame, calls) in &frames {
                let mut within = before.clone();
                match frame {
                    Frame::RangeMs(range) => {
                        within.retain(|r| r.time >= row.time - range);
                        within.extend(&peers);
                    }
                    Frame::Rows(n) => within = within[within.len().saturating_sub(*n as usize + 1)..].to_vec(),
                    Frame::Unbounded { peers: true } => within.extend(&peers),
                    Frame::Unbounded { peers: false } => {}
                }
                for (i, call) in calls.iter().enumerate() {
                    let expect = naive(call, &within);
                    assert_eq!(got[row.number as usize][answer], expect, "seed {seed}, row {row:?}, {frame:?}, call {i}");
                    answer += 1;
                }
            }
        }
    }
}

/// Without PARTITION BY the extremes are found in pieces: frames of no row but the own to all rows, which are many pieces.
#[test]
fn extremes_of_all_rows() {
    for seed in 1..10_u64 {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let count = 6000;
        let mut data = rows(&mut random, count, 1, 0);
        // Values that rise, fall, or do neither.
        let slope = [0, 1, -1][seed as usize % 3];
        data.iter_mut().for_each(|r| r.value = r.value.map(|v| v + slope * r.number));
        let ranges = [0, 3, 90, 1000, 2500, 1_000_000];
        let frames: Vec<(Frame, Vec<OverCall>)> =
            ranges.iter().map(|r| (Frame::RangeMs(*r), vec![aggregate("min"), aggregate("max")])).collect();
        let by_arrival = seed % 2 == 0;
        let make = || -> Box<dyn Operator> {
            let (keys, key_types, in_order, ties) = (Vec::new(), Vec::new(), true, Vec::new());
            let (input, schema, frames) = (input(), schema(2 * ranges.len()), frames.clone());
            Box::new(Over::new(OverSpec { time: 0, ties, keys, key_types, frames, in_order, by_arrival, input, schema }).unwrap())
        };
        let got = answers(&drive(&mut random, &data, 0, &make), count);
        for (at, row) in data.iter().enumerate() {
            let until = if by_arrival { at + 1 } else { data.partition_point(|r| r.time <= row.time) };
            for (frame, range) in ranges.iter().enumerate() {
                let from = data.partition_point(|r| r.time < row.time - range);
                let values = || data[from..until].iter().filter_map(|r| r.value);
                let expect = [values().min(), values().max()];
                assert_eq!(got[row.number as usize][2 * frame..2 * frame + 2], expect, "seed {seed}, row {row:?}, {range} ms");
            }
        }
    }
}

#[test]
fn rows_look_back_and_ahead() {
    for seed in 1..25_u64 {
        let mut random = Random(seed.wrapping_mul(0xD134_2543_DE82_EF95));
        let disorder = [0, 6][seed as usize % 2];
        let count = 2000;
        let data = rows(&mut random, count, 1 + seed % 9, disorder);
        let offsets = [1, 4, 0];
        let default = Some(ScalarValue::Int64(Some(-7)));
        let lag = |offset: usize, ignore_nulls| value(ValueFunction::Lag { offset, default: default.clone() }, ignore_nulls);
        let number = |function| OverCall::Number { function, data_type: DataType::Int64 };
        let mut looks: Vec<OverCall> = offsets.iter().map(|o| lag(*o, false)).collect();
        looks.push(lag(2, true));
        looks.extend([Numbering::RowNumber, Numbering::Rank, Numbering::DenseRank].map(number));
        let width = looks.len();
        let make = || -> Box<dyn Operator> {
            let frames = vec![(Frame::Unbounded { peers: false }, looks.clone())];
            let (keys, key_types) = (vec![column("k", 1)], vec![DataType::Int64]);
            let (in_order, by_arrival) = (disorder == 0, false);
            let (ties, input, schema) = (Vec::new(), input(), schema(width));
            Box::new(Over::new(OverSpec { time: 0, ties, keys, key_types, frames, in_order, by_arrival, input, schema }).unwrap())
        };
        let back = answers(&drive(&mut random, &data, disorder, &make), count);
        let make = || -> Box<dyn Operator> {
            let call = |o: &usize| LeadCall { offset: *o, argument: column("v", 2), data_type: DataType::Int64, default: default.clone() };
            let (keys, key_types) = (vec![column("k", 1)], vec![DataType::Int64]);
            let calls: Vec<LeadCall> = offsets.iter().map(call).collect();
            let spec = LeadSpec { time: 0, ties: Vec::new(), keys, key_types, calls, input: input(), schema: schema(offsets.len()) };
            Box::new(Lead::new(spec).unwrap())
        };
        let ahead = answers(&drive(&mut random, &data, disorder, &make), count);
        let mut sorted: Vec<&Row> = data.iter().collect();
        sorted.sort_by_key(|r| r.time);
        for (at, row) in sorted.iter().enumerate() {
            let of_key = |rows: &[&Row]| -> Vec<Row> { rows.iter().filter(|r| r.key == row.key).map(|r| (*r).clone()).collect() };
            let (before, after) = (of_key(&sorted[..at]), of_key(&sorted[at + 1..]));
            let got = &back[row.number as usize];
            for (i, offset) in offsets.iter().enumerate() {
                let earlier = match offset {
                    0 => row.value,
                    _ if before.len() < *offset => Some(-7),
                    _ => before[before.len() - offset].value,
                };
                assert_eq!(got[i], earlier, "LAG {offset}, seed {seed}, {row:?}");
                let later = match offset {
                    0 => row.value,
                    _ => after.get(offset - 1).map_or(Some(-7), |r| r.value),
                };
                assert_eq!(ahead[row.number as usize][i], later, "LEAD {offset}, seed {seed}, {row:?}");
            }
            let counted: Vec<i64> = before.iter().filter_map(|r| r.value).collect();
            let earlier = if counted.len() < 2 { Some(-7) } else { Some(counted[counted.len() - 2]) };
            assert_eq!(got[3], earlier, "LAG IGNORE NULLS, seed {seed}, {row:?}");
            let rank = before.iter().filter(|r| r.time < row.time).count() as i64 + 1;
            let mut times: Vec<i64> = before.iter().map(|r| r.time).chain([row.time]).collect();
            times.dedup();
            assert_eq!(got[4..], [Some(before.len() as i64 + 1), Some(rank), Some(times.len() as i64)], "seed {seed}, {row:?}");
        }
    }
}

/// Two operators of two shards become one, and one becomes two.
#[test]
fn state_is_divided_anew() {
    let mut random = Random(99);
    let data = rows(&mut random, 3000, 20, 0);
    let make = || {
        let frames = vec![(Frame::RangeMs(40), calls(false)), (Frame::Rows(5), calls(false))];
        let (keys, key_types) = (vec![column("k", 1)], vec![DataType::Int64]);
        let (in_order, by_arrival, input, schema) = (false, false, input(), schema(20));
        Over::new(OverSpec { time: 0, ties: Vec::new(), keys, key_types, frames, in_order, by_arrival, input, schema }).unwrap()
    };
    let run = |operator: &mut Over, rows: &[Row], watermark: i64, out: &mut Output| {
        operator.on_block(0, block(rows), out).unwrap();
        while operator.on_watermark(watermark, out).unwrap() == Progress::More {}
    };
    let (first, second) = data.split_at(1700);
    let middle = first[first.len() - 1].time - 3;
    let mut whole = Output::default();
    let mut one = make();
    run(&mut one, first, middle, &mut whole);
    run(&mut one, second, WATERMARK_END, &mut whole);

    let mut parts = Output::default();
    let mut one = make();
    run(&mut one, first, middle, &mut parts);
    let tables = one.snapshot().unwrap();
    for shard in 0..2 {
        let mine: Vec<StateTable> = tables.iter().map(|t| t.of_shard(shard, 2).unwrap()).collect();
        let mut keys: Vec<i64> = Vec::new();
        for table in &mine {
            let key = if table.name == "held" { 2 } else { 1 };
            keys.extend(table.batch.column(key).as_primitive::<Int64Type>().values());
        }
        keys.sort_unstable();
        keys.dedup();
        let rest: Vec<Row> = second.iter().filter(|r| keys.contains(&r.key)).cloned().collect();
        let mut part = make();
        part.restore(mine).unwrap();
        run(&mut part, &rest, WATERMARK_END, &mut parts);
    }
    let whole: Vec<RecordBatch> = whole.blocks.into_iter().map(|b| b.batch).collect();
    let parts: Vec<RecordBatch> = parts.blocks.into_iter().map(|b| b.batch).collect();
    assert_eq!(answers(&whole, data.len()), answers(&parts, data.len()));
}

#[test]
fn texts_and_memory() {
    let text = |function| OverCall::Value(ValueCall { function, argument: column("s", 3), data_type: DataType::Utf8, ignore_nulls: true });
    let frames = vec![(Frame::RangeMs(10), vec![text(ValueFunction::First), text(ValueFunction::Last)])];
    let mut fields: Vec<Field> = input().fields().iter().map(|f| f.as_ref().clone()).collect();
    fields.extend(["a", "b"].map(|name| Field::new(name, DataType::Utf8, true)));
    let (keys, key_types) = (vec![column("k", 1)], vec![DataType::Int64]);
    let out_schema = Arc::new(Schema::new(fields));
    let (in_order, by_arrival, input, schema) = (false, false, input(), out_schema);
    let mut over = Over::new(OverSpec { time: 0, ties: Vec::new(), keys, key_types, frames, in_order, by_arrival, input, schema }).unwrap();
    let mut out = Output::default();
    let data: Vec<Row> = (0..50_000_i64).map(|i| Row { time: i, key: i % 3, value: (i % 5 != 0).then_some(i), number: i }).collect();
    let mut memory_max = 0;
    for part in data.chunks(1000) {
        over.on_block(0, block(part), &mut out).unwrap();
        while over.on_watermark(part[part.len() - 1].time, &mut out).unwrap() == Progress::More {}
        memory_max = memory_max.max(over.stats().memory);
    }
    assert!(memory_max < 1 << 20, "{memory_max} bytes for at most 11 rows and a chunk");
    // Long after, nothing is left.
    while over.on_watermark(1_000_000, &mut out).unwrap() == Progress::More {}
    assert_eq!(over.stats().entries, 0);
    let batches: Vec<RecordBatch> = out.blocks.into_iter().map(|b| b.batch).collect();
    let got = answers(&batches, data.len());
    for row in &data[100..] {
        let mut frame: Vec<i64> = (row.time - 10..=row.time).filter(|i| i % 3 == row.key && i % 5 != 0).collect();
        frame.sort_unstable();
        assert_eq!(got[row.number as usize], [frame.first().copied(), frame.last().copied()]);
    }
    assert!(batches.iter().all(|b| b.column(0).as_primitive::<TimestampMillisecondType>().null_count() == 0));
}

/// Rows in order of time are answered when they come, where no row behind them can matter.
#[test]
fn rows_in_order_do_not_wait() {
    let answered = |frame: Frame, in_order: bool, by_arrival: bool| {
        let (frames, keys, key_types) = (vec![(frame, vec![aggregate("count")])], vec![column("k", 1)], vec![DataType::Int64]);
        let (input, schema) = (input(), schema(1));
        let spec = OverSpec { time: 0, ties: Vec::new(), keys, key_types, frames, in_order, by_arrival, input, schema };
        let (mut over, mut out) = (Over::new(spec).unwrap(), Output::default());
        let row = |time, number| Row { time, key: 1, value: Some(1), number };
        over.on_block(0, block(&[row(5, 0), row(5, 1)]), &mut out).unwrap();
        while over.on_watermark(4, &mut out).unwrap() == Progress::More {}
        // Of the same time as the newest, and so not late.
        over.on_block(0, block(&[row(5, 2)]), &mut out).unwrap();
        let at_once: usize = out.blocks.iter().map(Block::rows).sum();
        while over.on_watermark(WATERMARK_END, &mut out).unwrap() == Progress::More {}
        let batches: Vec<RecordBatch> = out.blocks.into_iter().map(|b| b.batch).collect();
        (at_once, answers(&batches, 3).into_iter().map(|line| line[0].unwrap()).collect::<Vec<_>>())
    };
    assert_eq!(answered(Frame::Rows(9), true, false), (3, vec![1, 2, 3]));
    assert_eq!(answered(Frame::Unbounded { peers: false }, true, false), (3, vec![1, 2, 3]));
    assert_eq!(answered(Frame::RangeMs(10), true, true), (3, vec![1, 2, 3]));
    assert_eq!(answered(Frame::Unbounded { peers: true }, true, true), (3, vec![1, 2, 3]));
    assert_eq!(answered(Frame::RangeMs(10), true, false), (0, vec![3, 3, 3]), "all of one time are needed");
    assert_eq!(answered(Frame::RangeMs(10), false, true), (0, vec![1, 2, 3]), "an earlier row may come");
}
