//! Functions in Rust under the operator, and the operators of processes with an answering machine.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, Int64Array, RecordBatch, StringArray, TimestampMillisecondArray, new_null_array,
};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimeUnit};
use datafusion_common::ScalarValue;
use datafusion_physical_expr::expressions::Column;
use tidemill_block::{Block, WATERMARK_END};

use super::*;
use crate::call::{Answered, Calls, Failure, Found};
use crate::{Operator, OperatorError, Output, Progress, Wake};

fn input() -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Millisecond, None);
    Arc::new(Schema::new(vec![Field::new("k", DataType::Utf8, true), Field::new("v", DataType::Int64, true), Field::new("t", time, false)]))
}

fn output(columns: &[(&str, DataType)], timed: bool) -> SchemaRef {
    let mut fields = vec![Field::new("k", DataType::Utf8, true)];
    fields.extend(columns.iter().map(|(n, t)| Field::new(*n, t.clone(), true)));
    if timed {
        fields.push(Field::new("rowtime", DataType::Timestamp(TimeUnit::Millisecond, None), false));
    }
    Arc::new(Schema::new(fields))
}

fn block(rows: &[(&str, i64, i64)]) -> Block {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(rows.iter().map(|r| r.0))),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.1))),
        Arc::new(TimestampMillisecondArray::from_iter_values(rows.iter().map(|r| r.2))),
    ];
    Block::inserts(RecordBatch::try_new(input(), columns).unwrap(), 0)
}

/// Rows as text, by column, without order.
fn shown(out: &Output) -> Vec<String> {
    let mut rows = Vec::new();
    for block in &out.blocks {
        for row in 0..block.rows() {
            let cells: Vec<String> = block.batch.columns().iter().map(|c| cell(c, row)).collect();
            rows.push(cells.join(" "));
        }
    }
    rows.sort();
    rows
}

/// A text, or a number; a time as its milliseconds.
fn cell(column: &ArrayRef, row: usize) -> String {
    if column.is_null(row) {
        return "NULL".into();
    }
    match column.as_string_opt::<i32>() {
        Some(texts) => texts.value(row).to_string(),
        None => arrow::compute::cast(column, &DataType::Int64).unwrap().as_primitive::<Int64Type>().value(row).to_string(),
    }
}

fn nobody() -> Wake {
    Arc::new(|| {})
}

/// Gives the sum of a key's values 10 ms after its first, then begins anew.
struct SumAfterTen {
    sum: Option<ValueState<i64>>,
}

impl RowFunction for SumAfterTen {
    fn open(&mut self, setup: &mut Setup<'_>) -> Result<(), OperatorError> {
        self.sum = Some(setup.value("sum"));
        setup.use_event_timers()
    }
    fn on_row(&mut self, row: Row<'_>, context: &mut KeyContext<'_, '_>) -> Result<(), OperatorError> {
        let sum = self.sum.expect("opened");
        let before = context.get(sum).copied();
        if before.is_none() {
            context.set_event_timer(row.time.expect("with on_time") + 10)?;
        }
        context.set(sum, Some(before.unwrap_or(0) + row.i64(1).unwrap_or(0)));
        Ok(())
    }
    fn on_timer(&mut self, _time: i64, _event_time: bool, context: &mut KeyContext<'_, '_>) -> Result<(), OperatorError> {
        let sum = context.get(self.sum.expect("opened")).copied();
        context.emit([ScalarValue::Int64(sum)])?;
        context.clear();
        Ok(())
    }
}

fn summing() -> ProcessNative {
    let spec = NativeSpec { input: input(), keys: vec![0], time: Some(2), schema: output(&[("sum", DataType::Int64)], true) };
    ProcessNative::new(spec, Box::new(PerRow::new(SumAfterTen { sum: None }))).unwrap()
}

/// However rows are cut and wherever a checkpoint falls, the same comes out.
#[test]
fn timers_stand_among_rows() {
    let rows = [("a", 1, 0), ("b", 5, 3), ("a", 2, 10), ("a", 4, 11), ("b", 6, 12), ("b", 7, 14), ("a", 8, 30)];
    let expect = ["a 3 10", "a 4 21", "a 8 40", "b 11 13", "b 7 24"];
    for cut in 1..=rows.len() {
        for restart in 0..=rows.len() {
            let mut operator = summing();
            let mut out = Output::default();
            for (i, part) in rows.chunks(cut).enumerate() {
                operator.on_block(0, block(part), &mut out).unwrap();
                assert_eq!(operator.on_watermark(part.last().unwrap().2 - 1, &mut out).unwrap(), Progress::Done);
                if i == restart {
                    let state = operator.snapshot().unwrap();
                    operator = summing();
                    operator.restore(state).unwrap();
                }
            }
            while operator.on_watermark(WATERMARK_END, &mut out).unwrap() == Progress::More {}
            assert_eq!(shown(&out), expect, "blocks of {cut}, a restart behind block {restart}");
            assert_eq!(operator.stats().entries, 0, "nothing is kept for keys without state");
        }
    }
}

#[test]
fn a_timer_in_the_past_is_refused() {
    struct Back;
    impl RowFunction for Back {
        fn open(&mut self, setup: &mut Setup<'_>) -> Result<(), OperatorError> {
            setup.use_event_timers()
        }
        fn on_row(&mut self, row: Row<'_>, context: &mut KeyContext<'_, '_>) -> Result<(), OperatorError> {
            context.set_event_timer(row.time.unwrap_or(0) - 1)
        }
    }
    let spec = NativeSpec { input: input(), keys: vec![0], time: Some(2), schema: output(&[("x", DataType::Int64)], true) };
    let mut operator = ProcessNative::new(spec.clone(), Box::new(PerRow::new(Back))).unwrap();
    let mut out = Output::default();
    operator.on_block(0, block(&[("a", 1, 5)]), &mut out).unwrap();
    let error = operator.on_watermark(10, &mut out).unwrap_err().to_string();
    assert_eq!(error, "the function sets a timer for 4, which is not after the time it works on, 5");
    let untimed = NativeSpec { time: None, schema: output(&[("x", DataType::Int64)], false), ..spec };
    let error = ProcessNative::new(untimed, Box::new(PerRow::new(Back))).err().unwrap().to_string();
    assert!(error.contains("on_time => DESCRIPTOR(rt)"), "{error}");
}

/// Calls that are answered when the test says so.
#[derive(Clone, Default)]
struct ByHand(Arc<Mutex<Hand>>);

#[derive(Default)]
struct Hand {
    started: Vec<(u64, i64)>,
    answered: Vec<Answered>,
}

impl Calls for ByHand {
    fn start(&mut self, call: u64, keys: &RecordBatch) -> Result<(), OperatorError> {
        let values = keys.column_by_name("v").expect("columns keep their names, over a restart, too");
        self.0.lock().unwrap().started.push((call, values.as_primitive::<Int64Type>().value(0)));
        Ok(())
    }
    fn cancel(&mut self, _call: u64) {}
    fn finished(&mut self, into: &mut Vec<Answered>) {
        into.append(&mut self.0.lock().unwrap().answered);
    }
}

impl ByHand {
    fn started(&self) -> Vec<i64> {
        self.0.lock().unwrap().started.iter().map(|(_, v)| *v).collect()
    }
    /// Answers the newest call for a value with the value times 100.
    fn answer(&self, value: i64) {
        let mut hand = self.0.lock().unwrap();
        let call = hand.started.iter().rev().find(|(_, v)| *v == value).expect("was asked").0;
        let rows: ArrayRef = Arc::new(Int64Array::from(vec![value * 100]));
        let rows = RecordBatch::try_from_iter([("x", rows)]).unwrap();
        hand.answered.push(Answered { call, result: Ok(Found { rows, origins: vec![0] }) });
    }
    fn fail(&self, value: i64, retry: bool) {
        let mut hand = self.0.lock().unwrap();
        let call = hand.started.iter().rev().find(|(_, v)| *v == value).expect("was asked").0;
        hand.answered.push(Answered { call, result: Err(Failure { reason: "no".into(), retry, after: None }) });
    }
}

struct Asking {
    hand: ByHand,
    options: AskOptions,
}

impl RowFunction for Asking {
    fn open(&mut self, setup: &mut Setup<'_>) -> Result<(), OperatorError> {
        setup.use_calls(self.options);
        Ok(())
    }
    fn on_row(&mut self, row: Row<'_>, context: &mut KeyContext<'_, '_>) -> Result<(), OperatorError> {
        let (batch, at) = row.place();
        context.ask(&batch.project(&[1])?, at)
    }
    fn on_answer(&mut self, answer: &Answer, context: &mut KeyContext<'_, '_>) -> Result<(), OperatorError> {
        let value = match &answer.result {
            Ok(found) => Some(found.rows.column(0).as_primitive::<Int64Type>().value(0)),
            Err(_) => None,
        };
        context.emit([ScalarValue::Int64(value)])
    }
    fn calls(&mut self, _wake: Wake) -> Result<Option<Box<dyn Calls>>, OperatorError> {
        Ok(Some(Box::new(self.hand.clone())))
    }
}

fn asking(options: AskOptions) -> (ProcessNative, ByHand) {
    let hand = ByHand::default();
    let spec = NativeSpec { input: input(), keys: vec![0], time: None, schema: output(&[("x", DataType::Int64)], false) };
    let mut operator = ProcessNative::new(spec, Box::new(PerRow::new(Asking { hand: hand.clone(), options }))).unwrap();
    operator.attach(nobody());
    (operator, hand)
}

#[test]
fn calls_are_bounded_by_key_and_asked_again_after_a_restart() {
    let options = AskOptions { retry_delay: std::time::Duration::ZERO, retries: 1, ..AskOptions::default() };
    let (mut operator, hand) = asking(options);
    let mut out = Output::default();
    operator.on_block(0, block(&[("a", 1, 0), ("a", 2, 0), ("b", 3, 0)]), &mut out).unwrap();
    assert_eq!(hand.started(), [1, 3], "one of each key");
    assert_eq!(operator.on_watermark(WATERMARK_END, &mut out).unwrap(), Progress::Waiting);
    hand.fail(1, true);
    operator.poll(&mut out).unwrap();
    assert_eq!(hand.started(), [1, 3, 1], "tried again");
    let calls = operator.stats().calls;
    assert_eq!((calls.calls, calls.retries, calls.failures, calls.asked), (3, 1, 0, 3));
    hand.answer(3);
    operator.poll(&mut out).unwrap();
    assert_eq!(shown(&out), ["b 300"]);

    let state = operator.snapshot().unwrap();
    let (mut operator, hand) = asking(options);
    operator.restore(state).unwrap();
    operator.poll(&mut out).unwrap();
    assert_eq!(hand.started(), [1], "what was not answered is asked again, in order");
    hand.answer(1);
    operator.poll(&mut out).unwrap();
    hand.fail(2, false);
    operator.poll(&mut out).unwrap();
    assert_eq!(operator.on_watermark(WATERMARK_END, &mut out).unwrap(), Progress::Done);
    assert_eq!(shown(&out), ["a 100", "a NULL", "b 300"]);
    let calls = operator.stats().calls;
    assert_eq!((calls.calls, calls.retries, calls.failures), (2, 0, 1));
    assert!(!operator.holds());
}

#[test]
fn answers_of_a_key_come_in_order() {
    let (mut operator, hand) = asking(AskOptions { per_key: 2, ..AskOptions::default() });
    let mut out = Output::default();
    operator.on_block(0, block(&[("a", 1, 0), ("a", 2, 0)]), &mut out).unwrap();
    hand.answer(2);
    operator.poll(&mut out).unwrap();
    assert!(out.blocks.is_empty(), "the first is not answered yet");
    hand.answer(1);
    operator.poll(&mut out).unwrap();
    let values: Vec<i64> = out.blocks.iter().flat_map(|b| b.column(1).as_primitive::<Int64Type>().values().to_vec()).collect();
    assert_eq!(values, [100, 200]);
}

/// Timers that are always due, or never, leave the worker to others.
#[test]
fn timers_of_the_clock_have_no_extremes() {
    struct Clocked(i64);
    impl RowFunction for Clocked {
        fn open(&mut self, setup: &mut Setup<'_>) -> Result<(), OperatorError> {
            setup.use_processing_timers();
            Ok(())
        }
        fn on_row(&mut self, _row: Row<'_>, context: &mut KeyContext<'_, '_>) -> Result<(), OperatorError> {
            context.set_processing_timer(self.0)
        }
        fn on_timer(&mut self, time: i64, _event_time: bool, context: &mut KeyContext<'_, '_>) -> Result<(), OperatorError> {
            context.emit([ScalarValue::Int64(Some(time))])?;
            context.set_processing_timer(self.0)
        }
    }
    for (time, fires) in [(0, true), (i64::MIN, true), (i64::MAX, false)] {
        let spec = NativeSpec { input: input(), keys: vec![0], time: None, schema: output(&[("x", DataType::Int64)], false) };
        let mut operator = ProcessNative::new(spec, Box::new(PerRow::new(Clocked(time)))).unwrap();
        operator.attach(nobody());
        let mut out = Output::default();
        operator.on_block(0, block(&[("a", 1, 0)]), &mut out).unwrap();
        let now = tidemill_block::clock::now_ns();
        operator.poll(&mut out).unwrap();
        assert_eq!(out.blocks.is_empty(), !fires, "{time}");
        assert_eq!(operator.due().unwrap() > now + 1_000_000_000_000, !fires, "{time}");
    }
}

/// A process whose answers are made by a closure when they are asked for.
struct Machine {
    answer: Box<dyn FnMut(&RecordBatch) -> RecordBatch + Send>,
    says: Handshake,
    asked: VecDeque<RecordBatch>,
    /// So many messages are borne.
    bears: usize,
}

impl Conversation for Machine {
    fn attach(&mut self, _wake: Wake) {}
    fn start(&mut self) -> Result<(), OperatorError> {
        Ok(())
    }
    fn handshake(&mut self, _wait: bool) -> Result<Option<Handshake>, OperatorError> {
        Ok(Some(self.says))
    }
    fn full(&self) -> bool {
        self.asked.len() >= self.bears
    }
    fn ask(&mut self, message: RecordBatch) -> Result<(), OperatorError> {
        self.asked.push_back(message);
        Ok(())
    }
    fn answer(&mut self, _wait: bool) -> Result<Option<RecordBatch>, OperatorError> {
        Ok(self.asked.pop_front().map(|m| (self.answer)(&m)))
    }
    fn finish(&mut self) -> Result<bool, OperatorError> {
        Ok(true)
    }
    fn memory(&self) -> usize {
        0
    }
}

#[test]
fn values_come_back_in_order_whatever_the_blocks() {
    let doubled = |m: &RecordBatch| {
        let column: Int64Array = m.column(0).as_primitive::<Int64Type>().iter().map(|v| v.map(|v| v * 2)).collect();
        RecordBatch::try_from_iter([("", Arc::new(column) as ArrayRef)]).unwrap()
    };
    let ask = Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, true)]));
    let mut fields: Vec<Field> = input().fields().iter().map(|f| f.as_ref().clone()).collect();
    fields.push(Field::new("x", DataType::Int64, true));
    let schema = Arc::new(Schema::new(fields));
    let rows: Vec<(&str, i64, i64)> = (0..10).map(|n| ("a", n, n)).collect();
    for (cut, rows_max, processes) in [(1, 1, 1), (3, 2, 2), (10, 4, 3), (2, 100, 1)] {
        let machine = || -> Box<dyn Conversation> {
            Box::new(Machine { answer: Box::new(doubled), says: Handshake::default(), asked: VecDeque::new(), bears: 2 })
        };
        let spec = ProcessCallSpec { arguments: vec![Arc::new(Column::new("v", 1))], ask: ask.clone(), schema: schema.clone(), rows_max };
        let mut operator = ProcessCall::new(spec, (0..processes).map(|_| machine()).collect());
        let mut out = Output::default();
        for part in rows.chunks(cut) {
            operator.on_block(0, block(part), &mut out).unwrap();
        }
        assert_eq!(operator.on_watermark(7, &mut out).unwrap(), Progress::Done);
        assert_eq!(operator.output_watermark(7), 7);
        assert_eq!(operator.on_watermark(WATERMARK_END, &mut out).unwrap(), Progress::Done);
        let values: Vec<i64> = out.blocks.iter().flat_map(|b| b.column(3).as_primitive::<Int64Type>().values().to_vec()).collect();
        assert_eq!(values, (0..10).map(|n| n * 2).collect::<Vec<_>>(), "blocks of {cut}, {rows_max} rows a message");
    }
}

/// Counts rows by key and keeps the counts as state by key.
fn counting() -> impl FnMut(&RecordBatch) -> RecordBatch + Send {
    let mut counts: std::collections::BTreeMap<String, i64> = Default::default();
    move |m: &RecordBatch| {
        let (keys, control) = (m.column(0).as_string::<i32>(), m.column(3).as_binary::<i32>());
        let (mut names, mut values, mut states): (Vec<String>, Vec<Option<i64>>, Vec<Option<Vec<u8>>>) = Default::default();
        for row in 0..m.num_rows() {
            if control.is_null(row) {
                let count = counts.entry(keys.value(row).to_string()).or_default();
                *count += 1;
                names.push(keys.value(row).to_string());
                values.push(Some(*count));
                states.push(None);
            } else if control.value(row) == b"checkpoint" {
                for (key, count) in &counts {
                    names.push(key.clone());
                    values.push(None);
                    states.push(Some(count.to_string().into_bytes()));
                }
            } else if let Some(state) = control.value(row).strip_prefix(b"restore ") {
                let count = std::str::from_utf8(state).unwrap().parse().unwrap();
                counts.insert(keys.value(row).to_string(), count);
            }
        }
        let states: BinaryArray = states.iter().map(|s| s.as_deref()).collect();
        let columns: Vec<(&str, ArrayRef)> =
            vec![("k", Arc::new(StringArray::from(names))), ("n", Arc::new(Int64Array::from(values))), ("$state", Arc::new(states))];
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true))).unwrap()
    }
}

fn counter() -> ProcessTable {
    let machine = Machine {
        answer: Box::new(counting()),
        says: Handshake { watermarks: false, state: StateKind::Keyed },
        asked: VecDeque::new(),
        bears: 2,
    };
    let spec =
        ProcessTableSpec { input: input(), keys: vec![0], time: None, schema: output(&[("n", DataType::Int64)], false), rows_max: 3 };
    ProcessTable::new(spec, Box::new(machine))
}

#[test]
fn a_process_keeps_its_state_by_key() {
    let mut operator = counter();
    let mut out = Output::default();
    operator.on_block(0, block(&[("a", 1, 0), ("b", 1, 0), ("a", 1, 0), ("a", 1, 0)]), &mut out).unwrap();
    assert_eq!(shown(&out), ["a 1", "a 2", "a 3", "b 1"]);
    assert!(!operator.holds());
    let state = operator.snapshot().unwrap();
    assert_eq!(state.len(), 1);
    // Two shards take it up, each its keys.
    let mut out = Output::default();
    for shard in 0..2 {
        let mut operator = counter();
        operator.place(shard, 2);
        operator.restore(state.iter().map(|t| t.of_shard(shard, 2).unwrap()).collect()).unwrap();
        operator.poll(&mut out).unwrap();
        for key in ["a", "b"] {
            let row = block(&[(key, 1, 0)]);
            let mut hashes = Vec::new();
            tidemill_state::hash::rows(&[row.column(0).clone()], 1, &mut hashes).unwrap();
            if tidemill_state::hash::shard(hashes[0], 2) == shard {
                operator.on_block(0, row, &mut out).unwrap();
            }
        }
        assert_eq!(operator.on_watermark(WATERMARK_END, &mut out).unwrap(), Progress::Done);
    }
    assert_eq!(shown(&out), ["a 4", "b 2"]);
}

#[test]
fn rows_are_sent_in_order_of_time_and_must_not_come_back_from_the_past() {
    // Gives every row back with its time.
    let echo = |late: i64| {
        move |m: &RecordBatch| {
            let rows: Vec<usize> = (0..m.num_rows()).filter(|r| m.column(3).is_null(*r)).collect();
            let pick = arrow::array::UInt32Array::from_iter_values(rows.iter().map(|r| *r as u32));
            let picked = arrow::compute::take_record_batch(m, &pick).unwrap();
            let times = picked.column(2).as_primitive::<arrow::datatypes::TimestampMillisecondType>();
            let times: ArrayRef = Arc::new(TimestampMillisecondArray::from_iter_values(times.values().iter().map(|t| t - late)));
            RecordBatch::try_from_iter([("k", picked.column(0).clone()), ("v", picked.column(1).clone()), ("rowtime", times)]).unwrap()
        }
    };
    let operator = |late: i64| {
        let machine = Machine {
            answer: Box::new(echo(late)),
            says: Handshake { watermarks: true, state: StateKind::None },
            asked: VecDeque::new(),
            bears: 2,
        };
        let schema = output(&[("v", DataType::Int64)], true);
        ProcessTable::new(ProcessTableSpec { input: input(), keys: vec![0], time: Some(2), schema, rows_max: 100 }, Box::new(machine))
    };
    let (mut good, mut out) = (operator(0), Output::default());
    good.on_block(0, block(&[("a", 2, 20), ("a", 1, 10), ("b", 3, 30)]), &mut out).unwrap();
    assert_eq!(good.on_watermark(25, &mut out).unwrap(), Progress::Done);
    assert_eq!(good.output_watermark(25), 25);
    let values: Vec<i64> = out.blocks.iter().flat_map(|b| b.column(1).as_primitive::<Int64Type>().values().to_vec()).collect();
    assert_eq!(values, [1, 2], "in order of time, and the third waits");
    let mut bad = operator(20);
    bad.on_block(0, block(&[("a", 1, 10)]), &mut out).unwrap();
    let _ = bad.on_watermark(15, &mut out).unwrap();
    bad.on_block(0, block(&[("a", 1, 30)]), &mut out).unwrap();
    let error = bad.on_watermark(40, &mut out).unwrap_err().to_string();
    assert!(error.starts_with("it gave a row of the time 10 (ms since 1970), but everything up to 15"), "{error}");
}

#[test]
fn opaque_state_stays_with_its_number_of_processes() {
    let machine =
        |answer| Machine { answer, says: Handshake { watermarks: false, state: StateKind::Opaque }, asked: VecDeque::new(), bears: 2 };
    let answer = || -> Box<dyn FnMut(&RecordBatch) -> RecordBatch + Send> {
        Box::new(|m: &RecordBatch| {
            let checkpoint = m.column(3).is_valid(0);
            let state: ArrayRef =
                if checkpoint { Arc::new(BinaryArray::from_iter_values([b"all"])) } else { new_null_array(&DataType::Binary, 0) };
            let rows = state.len();
            let columns = [("k", new_null_array(&DataType::Utf8, rows)), ("v", new_null_array(&DataType::Int64, rows)), ("$state", state)];
            RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true))).unwrap()
        })
    };
    let spec =
        ProcessTableSpec { input: input(), keys: vec![0], time: None, schema: output(&[("v", DataType::Int64)], false), rows_max: 100 };
    let mut operator = ProcessTable::new(spec.clone(), Box::new(machine(answer())));
    operator.place(1, 2);
    let mut out = Output::default();
    operator.on_block(0, block(&[("a", 1, 0)]), &mut out).unwrap();
    let state = operator.snapshot().unwrap();
    assert_eq!(state[0].name, "state 1 of 2");
    let mut wider = ProcessTable::new(spec, Box::new(machine(answer())));
    wider.place(0, 3);
    let error = wider.restore(state).unwrap_err().to_string();
    assert!(error.contains("go on with --parallelism 2"), "{error}");
}
