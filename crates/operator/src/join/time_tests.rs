//! Joins in time against the plainest reference, on random rows: at several block sizes, with keys
//! divided among operators, and with a snapshot in the middle from which others go on.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, TimestampMillisecondArray, UInt32Array};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimeUnit, TimestampMillisecondType};
use datafusion_expr::Operator as Symbol;
use datafusion_physical_expr::expressions::{Column, binary, lit};
use tidemill_block::{Block, NO_WATERMARK, RowKind, WATERMARK_END};
use tidemill_state::hash;

use super::interval::{IntervalJoin, IntervalSpec, JoinForm, JoinSide, Residual};
use super::temporal::{TemporalJoin, TemporalSpec};
use super::window::{WindowJoin, WindowJoinSpec, WindowSide};
use crate::map::Expr;
use crate::{Operator, Output, Progress};

const FORMS: [JoinForm; 6] = [JoinForm::Inner, JoinForm::Left, JoinForm::Right, JoinForm::Full, JoinForm::Semi, JoinForm::Anti];

#[derive(Clone, Debug)]
struct Row {
    key: Option<i64>,
    time: i64,
    /// Names the row.
    value: i64,
    kind: RowKind,
    /// The split's watermark before the row and after it.
    before: i64,
    after: i64,
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        hash::mix(self.0) % n
    }
}

/// Rows about a millisecond apart, up to `disorder` ms out of order, behind a watermark with a delay
/// of `delay` ms.
fn stream(random: &mut Random, rows: usize, keys: u64, disorder: u64, delay: i64) -> Vec<Row> {
    let mut watermark = NO_WATERMARK;
    let mut now = 0;
    (0..rows)
        .map(|n| {
            now += random.below(3) as i64;
            let time = now - random.below(disorder + 1) as i64;
            let before = watermark;
            watermark = watermark.max(time - delay - 1);
            let key = (random.below(12) > 0).then(|| random.below(keys) as i64);
            Row { key, time, value: n as i64, kind: RowKind::Insert, before, after: watermark }
        })
        .collect()
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, true),
        Field::new("t", DataType::Timestamp(TimeUnit::Millisecond, None), true),
        Field::new("v", DataType::Int64, true),
    ]))
}

fn joined(form: JoinForm) -> SchemaRef {
    let fields = schema().fields().iter().cloned().collect::<Vec<_>>();
    let right = if matches!(form, JoinForm::Semi | JoinForm::Anti) { Vec::new() } else { fields.clone() };
    Arc::new(Schema::new(fields.into_iter().chain(right).collect::<Vec<_>>()))
}

fn side() -> JoinSide {
    JoinSide { schema: schema(), keys: vec![Arc::new(Column::new("k", 0)) as Expr], time: 1, shift_ms: 0 }
}

/// (left v + right v) % 3 <> 0
fn residual() -> Residual {
    let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("lv", DataType::Int64, true), Field::new("rv", DataType::Int64, true)]));
    let sum = binary(Arc::new(Column::new("lv", 0)), Symbol::Plus, Arc::new(Column::new("rv", 1)), &schema).unwrap();
    let rest = binary(sum, Symbol::Modulo, lit(3i64), &schema).unwrap();
    let predicate = binary(rest, Symbol::NotEq, lit(0i64), &schema).unwrap();
    Residual { predicate, columns: vec![2, 5], schema }
}

fn passes(left: &Row, right: &Row, with_residual: bool) -> bool {
    !with_residual || (left.value + right.value) % 3 != 0
}

fn block(rows: &[Row]) -> Block {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|r| r.key).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|r| Some(r.time)).collect::<TimestampMillisecondArray>()),
        Arc::new(rows.iter().map(|r| Some(r.value)).collect::<Int64Array>()),
    ];
    let batch = RecordBatch::try_new(schema(), columns).unwrap();
    let mut block = if rows.iter().all(|r| r.kind == RowKind::Insert) {
        Block::inserts(batch, 0)
    } else {
        Block::changelog(batch, rows.iter().map(|r| r.kind).collect(), 0)
    };
    block.row_watermarks = Some(rows.iter().map(|r| r.before).collect());
    block
}

type Make<'a> = &'a dyn Fn() -> Box<dyn Operator>;
type Pairs = Vec<(Option<i64>, Option<i64>)>;

struct Run<'a> {
    make: Make<'a>,
    operators: Vec<Box<dyn Operator>>,
    found: Pairs,
    /// The watermark sent last.
    watermark: i64,
    /// Columns of the output that are event time.
    times: &'a [usize],
    shift_ms: i64,
}

impl Run<'_> {
    fn take(&mut self, at: usize, out: Output) {
        let reached = self.operators[at].output_watermark(self.watermark);
        for block in out.blocks {
            let columns = block.batch.columns();
            let value = |c: usize, row: usize| {
                let column = columns.get(c)?.as_primitive::<Int64Type>();
                column.is_valid(row).then(|| column.value(row))
            };
            for row in 0..block.rows() {
                self.found.push((value(2, row), value(5, row)));
                for time in self.times.iter().filter_map(|c| columns.get(*c)) {
                    let time = time.as_primitive::<TimestampMillisecondType>();
                    assert!(time.is_null(row) || time.value(row) + self.shift_ms > reached, "a row behind the output's watermark");
                }
            }
        }
    }

    fn rows(&mut self, input: usize, rows: &[Row]) {
        let block = block(rows);
        let mut hashes = Vec::new();
        hash::rows(&block.batch.columns()[..1], rows.len(), &mut hashes).unwrap();
        let shards = self.operators.len();
        for at in 0..shards {
            let mine: Vec<u32> = (0..rows.len() as u32).filter(|r| hash::shard(hashes[*r as usize], shards) == at).collect();
            if !mine.is_empty() {
                let mut out = Output::default();
                self.operators[at].on_block(input, block.take(&UInt32Array::from(mine)).unwrap(), &mut out).unwrap();
                self.take(at, out);
            }
        }
    }

    fn watermark(&mut self, watermark: i64) {
        for at in 0..self.operators.len() {
            loop {
                let mut out = Output::default();
                let progress = self.operators[at].on_watermark(watermark, &mut out).unwrap();
                self.take(at, out);
                if progress == Progress::Done {
                    break;
                }
            }
        }
        self.watermark = watermark;
    }

    fn resume(&mut self, shards: usize) {
        let tables: Vec<_> = self.operators.iter_mut().flat_map(|o| o.snapshot().unwrap()).collect();
        self.operators = (0..shards).map(|_| (self.make)()).collect();
        for (shard, operator) in self.operators.iter_mut().enumerate() {
            operator.restore(tables.iter().map(|t| t.of_shard(shard, shards).unwrap()).collect()).unwrap();
        }
    }
}

/// Runs both inputs through `shards[0]` operators, then through `shards[1]`.
fn run(make: Make<'_>, inputs: [&[Row]; 2], times: &[usize], shift_ms: i64, seed: u64, block_rows: u64, shards: [usize; 2]) -> Pairs {
    let mut random = Random(seed);
    let mut run =
        Run { make, operators: (0..shards[0]).map(|_| make()).collect(), found: Vec::new(), watermark: NO_WATERMARK, times, shift_ms };
    let (mut at, mut resumed) = ([0, 0], false);
    let total = inputs[0].len() + inputs[1].len();
    while at[0] + at[1] < total {
        let mut input = random.below(2) as usize;
        if at[input] == inputs[input].len() {
            input = 1 - input;
        }
        let rows = (1 + random.below(block_rows) as usize).min(inputs[input].len() - at[input]);
        run.rows(input, &inputs[input][at[input]..at[input] + rows]);
        at[input] += rows;
        let reached = |side: usize| match at[side] {
            0 => NO_WATERMARK,
            n if n == inputs[side].len() => WATERMARK_END,
            n => inputs[side][n - 1].after,
        };
        let watermark = reached(0).min(reached(1));
        if watermark > run.watermark && watermark != WATERMARK_END && random.below(2) == 0 {
            run.watermark(watermark);
        }
        if !resumed && at[0] + at[1] > total / 2 {
            resumed = true;
            run.resume(shards[1]);
        }
    }
    run.watermark(WATERMARK_END);
    for operator in &run.operators {
        assert!(operator.stats().entries <= 5, "state is left at the end: {:?}", operator.stats());
    }
    run.found.sort_unstable();
    run.found
}

fn in_time(rows: &[Row], shift_ms: i64) -> Vec<Row> {
    rows.iter().filter(|r| r.time + shift_ms > r.before).cloned().collect()
}

/// The result of a join of rows that match where `matches` says so.
fn reference(form: JoinForm, left: &[Row], right: &[Row], matches: &dyn Fn(&Row, &Row) -> bool) -> Pairs {
    let mut pairs = Vec::new();
    let mut hit = vec![false; right.len()];
    for l in left {
        let mut any = false;
        for (n, r) in right.iter().enumerate() {
            if l.key.is_some() && l.key == r.key && matches(l, r) {
                (any, hit[n]) = (true, true);
                if !matches!(form, JoinForm::Semi | JoinForm::Anti) {
                    pairs.push((Some(l.value), Some(r.value)));
                }
            }
        }
        let alone = match form {
            JoinForm::Semi => any,
            JoinForm::Left | JoinForm::Full | JoinForm::Anti => !any,
            _ => false,
        };
        if alone {
            pairs.push((Some(l.value), None));
        }
    }
    if matches!(form, JoinForm::Right | JoinForm::Full) {
        pairs.extend(right.iter().zip(hit).filter(|(_, hit)| !hit).map(|(r, _)| (None, Some(r.value))));
    }
    pairs.sort_unstable();
    pairs
}

const BLOCKS: [(u64, [usize; 2]); 4] = [(1, [1, 1]), (7, [2, 3]), (300, [3, 1]), (5000, [1, 2])];

#[test]
fn interval_joins() {
    for seed in 0..40u64 {
        let mut random = Random(seed);
        let disorder = random.below(30);
        let delay = [0, disorder as i64, 5][random.below(3) as usize];
        let keys = 1 + random.below(20);
        let (left, right) = (stream(&mut random, 400, keys, disorder, delay), stream(&mut random, 300, keys, disorder, delay));
        let low = random.below(60) as i64 - 40;
        let high = low + random.below(40) as i64 - 1;
        let (form, with_residual) = (FORMS[seed as usize % 6], random.below(2) == 0);
        let make = || -> Box<dyn Operator> {
            let spec = IntervalSpec {
                form,
                sides: [side(), side()],
                key_types: vec![DataType::Int64],
                null_equals: false,
                low_ms: low,
                high_ms: high,
                residual: with_residual.then(residual),
                schema: joined(form),
            };
            Box::new(IntervalJoin::new(spec).unwrap())
        };
        let matches = |l: &Row, r: &Row| (low..=high).contains(&(l.time - r.time)) && passes(l, r, with_residual);
        let expect = reference(form, &in_time(&left, 0), &in_time(&right, 0), &matches);
        for (block_rows, shards) in BLOCKS {
            let found = run(&make, [&left, &right], &[1, 4], 0, seed, block_rows, shards);
            assert!(found == expect, "{form:?} {low}..={high}, seed {seed}, blocks of {block_rows}: {} of {}", found.len(), expect.len());
        }
    }
}

#[test]
fn window_joins() {
    for seed in 0..24u64 {
        let mut random = Random(seed);
        let mut windowed = |rows| {
            let mut rows = stream(&mut random, rows, 8, 12, 6);
            rows.iter_mut().for_each(|r| r.time = r.time.div_euclid(10) * 10 + 10);
            rows
        };
        let (left, right) = (windowed(300), windowed(400));
        let form = FORMS[seed as usize % 6];
        let make = || -> Box<dyn Operator> {
            let side = || WindowSide { schema: schema(), keys: side().keys, end: 1 };
            let spec = WindowJoinSpec {
                form,
                sides: [side(), side()],
                key_types: vec![DataType::Int64],
                null_equals: false,
                residual: Some(residual()),
                schema: joined(form),
            };
            Box::new(WindowJoin::new(spec).unwrap())
        };
        let matches = |l: &Row, r: &Row| l.time == r.time && passes(l, r, true);
        let expect = reference(form, &in_time(&left, -1), &in_time(&right, -1), &matches);
        for (block_rows, shards) in BLOCKS {
            let found = run(&make, [&left, &right], &[1, 4], -1, seed, block_rows, shards);
            assert!(found == expect, "{form:?}, seed {seed}, blocks of {block_rows}: {} of {}", found.len(), expect.len());
        }
    }
}

#[test]
fn temporal_joins() {
    for seed in 0..40u64 {
        let mut random = Random(seed);
        let disorder = random.below(20);
        let keys = 1 + random.below(5);
        let left = stream(&mut random, 400, keys, disorder, 4);
        let mut right = stream(&mut random, 300, keys, disorder, 4);
        for row in &mut right {
            row.kind = [RowKind::Insert, RowKind::UpdateAfter, RowKind::Delete, RowKind::UpdateBefore][random.below(4) as usize];
        }
        let (outer, with_residual) = (seed % 2 == 0, random.below(2) == 0);
        let make = || -> Box<dyn Operator> {
            let spec = TemporalSpec {
                outer,
                sides: [side(), side()],
                key_types: vec![DataType::Int64],
                residual: with_residual.then(residual),
                schema: joined(JoinForm::Left),
            };
            Box::new(TemporalJoin::new(spec).unwrap())
        };
        let versions = in_time(&right, 0);
        let mut expect: Pairs = Vec::new();
        for l in in_time(&left, 0) {
            let known = versions
                .iter()
                .filter(|v| v.kind != RowKind::UpdateBefore && l.key.is_some() && v.key == l.key && v.time <= l.time)
                .max_by_key(|v| (v.time, v.value));
            match known.filter(|v| v.kind != RowKind::Delete && passes(&l, v, with_residual)) {
                Some(version) => expect.push((Some(l.value), Some(version.value))),
                None if outer => expect.push((Some(l.value), None)),
                None => {}
            }
        }
        expect.sort_unstable();
        for (block_rows, shards) in BLOCKS {
            let found = run(&make, [&left, &right], &[1], 0, seed, block_rows, shards);
            assert!(found == expect, "outer {outer}, seed {seed}, blocks of {block_rows}: {} of {}", found.len(), expect.len());
        }
    }
}

/// Keys that fall silent leave nothing behind but, in a temporal join, their last version.
#[test]
fn state_is_bounded() {
    let interval = || -> Box<dyn Operator> {
        let spec = IntervalSpec {
            form: JoinForm::Full,
            sides: [side(), side()],
            key_types: vec![DataType::Int64],
            null_equals: false,
            low_ms: -10,
            high_ms: 10,
            residual: None,
            schema: joined(JoinForm::Full),
        };
        Box::new(IntervalJoin::new(spec).unwrap())
    };
    let temporal = || -> Box<dyn Operator> {
        let spec = TemporalSpec {
            outer: true,
            sides: [side(), side()],
            key_types: vec![DataType::Int64],
            residual: None,
            schema: joined(JoinForm::Left),
        };
        Box::new(TemporalJoin::new(spec).unwrap())
    };
    for (make, keys, entries_max) in [(&interval as Make<'_>, 1_000_000, 60), (&temporal as Make<'_>, 3, 30)] {
        let mut operator = make();
        let mut memory = Vec::new();
        for step in 0..3000i64 {
            for input in 0..2 {
                let row =
                    Row { key: Some(step % keys), time: step, value: step, kind: RowKind::Insert, before: step - 10, after: step - 9 };
                operator.on_block(input, block(&[row]), &mut Output::default()).unwrap();
            }
            while operator.on_watermark(step - 9, &mut Output::default()).unwrap() == Progress::More {}
            assert!(operator.stats().entries <= entries_max, "{} rows kept", operator.stats().entries);
            memory.push(operator.stats().memory);
        }
        let early = memory[500..1000].iter().max();
        assert!(memory[2500..].iter().max() <= early.map(|m| m * 2).as_ref(), "memory grows: {early:?} to {:?}", memory.last());
    }
}
