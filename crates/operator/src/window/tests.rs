//! HOP windows against a reference that looks at every row for every window.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, Int64Array, RecordBatch, StringArray, TimestampMillisecondArray};
use arrow::datatypes::{Field, Int64Type, Schema, TimestampMillisecondType};
use datafusion_common::ScalarValue;
use datafusion_physical_expr::aggregate::AggregateExprBuilder;
use datafusion_physical_expr::expressions::{Column, Literal};
use tidemill_block::WATERMARK_END;
use tidemill_plan::WindowKind;

use super::slices::SliceAggregate;
use super::*;
use crate::{Operator, Output, Progress};

fn input() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("t", DataType::Timestamp(TimeUnit::Millisecond, None), false),
        Field::new("k", DataType::Int64, false),
        Field::new("v", DataType::Int64, true),
        Field::new("s", DataType::Utf8, true),
    ]))
}

fn column(name: &str, index: usize) -> Expr {
    Arc::new(Column::new(name, index))
}

/// A call over `v`, or of a function that takes texts over `s`.
fn call(name: &str, distinct: bool) -> AggregateCall {
    let text = name == "string_agg";
    let functions = tidemill_plan::exact::aggregate_functions().into_iter().chain(tidemill_plan::aggregate::aggregate_functions());
    // For the kernels only the name and the types matter.
    let function = functions.into_iter().find(|f| f.name() == if text { name } else { "sum" }).expect("ours");
    let mut arguments = vec![if text { column("s", 3) } else { column("v", 2) }];
    let mut argument_types = vec![if text { DataType::Utf8 } else { DataType::Int64 }];
    if text {
        arguments.push(Arc::new(Literal::new(ScalarValue::from("-"))));
        argument_types.push(DataType::Utf8);
    }
    let output = argument_types[0].clone();
    let built = AggregateExprBuilder::new(function, arguments.clone()).schema(input()).alias(name).build().unwrap();
    let output = Arc::new(Field::new(name, output, true));
    AggregateCall { function: Arc::new(built), name: name.into(), arguments, argument_types, filter: None, distinct, output }
}

type Row = (i64, i64, Option<i64>);

fn block(rows: &[Row]) -> Block {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(TimestampMillisecondArray::from_iter_values(rows.iter().map(|r| r.0))),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.1))),
        Arc::new(rows.iter().map(|r| r.2).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|r| r.2.map(|v| v.to_string())).collect::<StringArray>()),
    ];
    Block::inserts(RecordBatch::try_new(input(), columns).unwrap(), 0)
}

fn make(kind: WindowKind, calls: &[AggregateCall]) -> SliceAggregate {
    let mut fields = vec![Field::new("k", DataType::Int64, false)];
    fields.extend(calls.iter().enumerate().map(|(i, c)| c.output.as_ref().clone().with_name(format!("c{i}"))));
    fields.extend(["start", "end", "time"].map(|n| Field::new(n, DataType::Timestamp(TimeUnit::Millisecond, None), false)));
    let schema = Arc::new(Schema::new(fields));
    let (keys, key_types) = (vec![column("k", 1)], vec![DataType::Int64]);
    SliceAggregate::new(WindowSpec { time: 0, keys, key_types, calls: calls.to_vec(), schema }, kind)
}

/// Results by window end and key, as text.
fn results(out: Output, calls: usize) -> BTreeMap<(i64, i64), Vec<String>> {
    let mut found = BTreeMap::new();
    for block in out.blocks {
        let columns = block.batch.columns();
        let ends = columns[2 + calls].as_primitive::<TimestampMillisecondType>();
        for row in 0..block.rows() {
            let text = |c: &ArrayRef| match c.data_type() {
                _ if c.is_null(row) => "NULL".to_string(),
                DataType::Utf8 => c.as_string::<i32>().value(row).to_string(),
                _ => c.as_primitive::<Int64Type>().value(row).to_string(),
            };
            let key = columns[0].as_primitive::<Int64Type>().value(row);
            let line = columns[1..=calls].iter().map(text).collect();
            assert!(found.insert((ends.value(row), key), line).is_none(), "a window came twice");
        }
    }
    found
}

#[test]
fn hop_is_what_a_naive_reference_says() {
    let names = [("sum", false), ("count", false), ("min", false), ("max", false), ("first_value", false), ("last_value", false)];
    let mut calls: Vec<AggregateCall> = names.iter().map(|(n, d)| call(n, *d)).collect();
    calls.extend([call("count", true), call("string_agg", false)]);
    for seed in 1..30_u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut random = |n: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % n
        };
        let (slide, slices) = (1 + random(20) as i64, [1, 2, 5, 60][seed as usize % 4]);
        let kind = WindowKind::Hop { slide, size: slide * slices, offset: 0 };
        // Rows in order of time, so that the order of texts is that of the slices.
        let mut clock = -50;
        let rows: Vec<Row> = (0..1500)
            .map(|_| {
                clock += random(5) as i64 + if random(300) == 0 { 3 * slide * slices } else { 0 };
                (clock, random(4) as i64, (random(6) > 0).then(|| random(9) as i64))
            })
            .collect();
        let mut operator = make(kind, &calls);
        let mut out = Output::default();
        let mut at = 0;
        while at < rows.len() {
            let size = ([1, 9, 200][random(3) as usize]).min(rows.len() - at);
            operator.on_block(0, block(&rows[at..at + size]), &mut out).unwrap();
            at += size;
            while operator.on_watermark(rows[at - 1].0 - 1, &mut out).unwrap() == Progress::More {}
            if random(8) == 0 {
                let tables = operator.snapshot().unwrap();
                operator = make(kind, &calls);
                operator.restore(tables).unwrap();
            }
        }
        while operator.on_watermark(WATERMARK_END, &mut out).unwrap() == Progress::More {}
        assert_eq!(operator.stats().entries, 0);

        let mut windows: BTreeMap<(i64, i64), Vec<Option<i64>>> = BTreeMap::new();
        for (time, key, value) in &rows {
            kind.windows_of(*time, |_, end| windows.entry((end, *key)).or_default().push(*value));
        }
        let expect: BTreeMap<(i64, i64), Vec<String>> = windows
            .into_iter()
            .map(|(window, values)| {
                let present: Vec<i64> = values.iter().flatten().copied().collect();
                let text = |v: Option<i64>| v.map_or("NULL".to_string(), |v| v.to_string());
                let mut distinct = present.clone();
                distinct.sort_unstable();
                distinct.dedup();
                let list = present.iter().map(ToString::to_string).collect::<Vec<_>>().join("-");
                let line = vec![
                    text(present.iter().copied().reduce(|a, b| a + b)),
                    present.len().to_string(),
                    text(present.iter().copied().min()),
                    text(present.iter().copied().max()),
                    text(values[0]),
                    text(values[values.len() - 1]),
                    distinct.len().to_string(),
                    if present.is_empty() { "NULL".to_string() } else { list },
                ];
                (window, line)
            })
            .collect();
        let got = results(out, calls.len());
        assert_eq!(got.len(), expect.len(), "seed {seed}");
        for (window, line) in &expect {
            assert_eq!(got.get(window), Some(line), "seed {seed}, window and key {window:?}");
        }
    }
}
