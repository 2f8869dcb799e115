//! Patterns on random rows against the reference matcher, and cases by hand.

mod groups;
mod relaxed;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, TimestampMillisecondArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimeUnit};
use datafusion_common::{Result as DfResult, ScalarValue, not_impl_err};
use datafusion_expr::function::AccumulatorArgs;
use datafusion_expr::{Accumulator as NativeAccumulator, AggregateUDF, AggregateUDFImpl, Operator as Op, Signature, Volatility};
use datafusion_physical_expr::aggregate::AggregateExprBuilder;
use datafusion_physical_expr::expressions::{BinaryExpr, Column as Bound, lit};
use tidemill_block::{Block, NO_WATERMARK, WATERMARK_END};
use tidemill_plan::pattern::{AfterMatchSkip, AtBound, Bounds, Contiguity, End, Pattern, RowsPerMatch};

use super::reference::expand::Expansion;
use super::reference::{Match, Row, Search, Stop, Test};
use super::{MatchNavigation, MatchNavigationKind, MatchSymbol, PatternMatch, PatternMatchSpec};
use crate::aggregate::AggregateCall;
use crate::map::Expr;
use crate::{Operator, OperatorError, Output, Progress};

/// Names a function whose typed kernels stand in this crate; DataFusion's own is not at hand here.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Named {
    name: &'static str,
    signature: Signature,
}

impl AggregateUDFImpl for Named {
    fn name(&self) -> &str {
        self.name
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Int64)
    }
    fn accumulator(&self, _: AccumulatorArgs<'_>) -> DfResult<Box<dyn NativeAccumulator>> {
        not_impl_err!("{} has a kernel", self.name)
    }
}

const ID: usize = 0;
const KEY: usize = 1;
const TIME: usize = 2;
const VALUE: usize = 3;
const INPUT: usize = 4;
const WIDTH: usize = 5;

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("k", DataType::Int64, true),
        Field::new("t", DataType::Timestamp(TimeUnit::Millisecond, None), false),
        Field::new("v", DataType::Int64, true),
        Field::new("i", DataType::Int64, false),
    ]))
}

fn column(index: usize) -> Expr {
    Arc::new(Bound::new("c", index))
}

fn binary(left: Expr, op: Op, right: Expr) -> Expr {
    Arc::new(BinaryExpr::new(left, op, right))
}

fn call(name: &'static str) -> AggregateCall {
    let udf = AggregateUDF::new_from_impl(Named { name, signature: Signature::any(1, Volatility::Immutable) });
    let function = AggregateExprBuilder::new(Arc::new(udf), vec![column(VALUE)]).schema(schema()).alias(name).build().unwrap();
    AggregateCall {
        output: function.field(),
        function: Arc::new(function),
        name: name.into(),
        arguments: vec![column(VALUE)],
        argument_types: vec![DataType::Int64],
        filter: None,
        distinct: false,
    }
}

fn value(argument: usize, end: End, offset: usize, shift: i64, symbols: Option<Vec<usize>>, running: bool) -> MatchNavigation {
    let kind = MatchNavigationKind::Value { argument: column(argument), end, offset, shift };
    MatchNavigation { kind, symbols, running, data_type: DataType::Int64 }
}

fn aggregate(name: &'static str, symbols: Option<Vec<usize>>, running: bool) -> MatchNavigation {
    MatchNavigation { kind: MatchNavigationKind::Aggregate(call(name)), symbols, running, data_type: DataType::Int64 }
}

/// A pattern under test: what the machine and the reference are both made of.
#[derive(Clone, Debug)]
struct Case {
    tests: Vec<Test>,
    pattern: Pattern,
    within: Option<i64>,
    skip: AfterMatchSkip,
    rows: RowsPerMatch,
    /// Which of the outputs are wanted; fewer leave more for the machine to pass over.
    outputs: Vec<Wanted>,
    contiguity: Contiguity,
    every: bool,
    /// Which input the rows of each symbol come from, if there are two.
    inputs: Option<Vec<usize>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Wanted {
    Number,
    FirstId,
    LastId,
    LastOf(usize),
    SecondOf(usize),
    CountOf(usize),
    SumAll,
    Classifier,
    NextId,
}

impl Case {
    fn running(&self) -> bool {
        self.rows != RowsPerMatch::One
    }

    fn spec(&self) -> PatternMatchSpec {
        let mut navigations: Vec<MatchNavigation> = Vec::new();
        let mut navigation = |n: MatchNavigation| {
            navigations.push(n);
            column(WIDTH + navigations.len() - 1)
        };
        let v = || column(VALUE);
        let mut symbols = Vec::new();
        for (i, test) in self.tests.iter().enumerate() {
            let (mut simple, mut looking) = (Vec::new(), Vec::new());
            match *test {
                Test::Always => {}
                Test::Below(n) => simple.push(binary(v(), Op::Lt, lit(n))),
                Test::AtLeast(n) => simple.push(binary(v(), Op::GtEq, lit(n))),
                Test::Rises => looking.push(binary(v(), Op::Gt, navigation(value(VALUE, End::Last, 0, -1, Some(vec![i]), true)))),
                Test::WillRise => looking.push(binary(v(), Op::Lt, navigation(value(VALUE, End::Last, 0, 1, None, true)))),
                Test::NotBelowLast(s) => {
                    looking.push(binary(v(), Op::GtEq, navigation(value(VALUE, End::Last, 0, 0, Some(vec![s]), true))));
                }
                Test::NotFirst(s) => {
                    looking.push(binary(v(), Op::NotEq, navigation(value(VALUE, End::First, 0, 0, Some(vec![s]), true))));
                }
                Test::SumBelow(s, n) => looking.push(binary(navigation(aggregate("sum", Some(vec![s]), true)), Op::Lt, lit(n))),
                Test::EvenAndFew(s, n) => {
                    simple.push(binary(binary(v(), Op::Modulo, lit(2i64)), Op::Eq, lit(0i64)));
                    looking.push(binary(navigation(aggregate("count", Some(vec![s]), true)), Op::LtEq, lit(n)));
                }
                Test::BelowMax(s) => looking.push(binary(navigation(aggregate("max", Some(vec![s]), true)), Op::Gt, v())),
            }
            symbols.push(MatchSymbol { name: NAMES[i].into(), input: self.inputs.as_ref().map_or(0, |inputs| inputs[i]), simple, looking });
        }
        let running = self.running();
        let mut output = vec![column(KEY)];
        let mut fields = vec![Field::new("k", DataType::Int64, true)];
        if running {
            output.push(column(ID));
            fields.push(Field::new("id", DataType::Int64, true));
        }
        for (i, wanted) in self.outputs.iter().enumerate() {
            let mut data_type = DataType::Int64;
            output.push(navigation(match *wanted {
                Wanted::Number => {
                    MatchNavigation { kind: MatchNavigationKind::MatchNumber, symbols: None, running, data_type: DataType::Int64 }
                }
                Wanted::FirstId => value(ID, End::First, 0, 0, None, running),
                Wanted::LastId => value(ID, End::Last, 0, 0, None, running),
                Wanted::LastOf(s) => value(ID, End::Last, 0, 0, Some(vec![s]), running),
                Wanted::SecondOf(s) => value(ID, End::First, 1, 0, Some(vec![s]), running),
                Wanted::CountOf(s) => aggregate("count", Some(vec![s]), false),
                Wanted::SumAll => aggregate("sum", None, running),
                Wanted::NextId => value(ID, End::Last, 0, 1, None, running),
                Wanted::Classifier => {
                    data_type = DataType::Utf8;
                    let kind = MatchNavigationKind::Classifier { end: End::Last, offset: 0, shift: 0 };
                    MatchNavigation { kind, symbols: None, running, data_type: DataType::Utf8 }
                }
            }));
            fields.push(Field::new(format!("m{i}"), data_type, true));
        }
        PatternMatchSpec {
            input: schema(),
            schema: Arc::new(Schema::new(fields)),
            time: TIME,
            order: Vec::new(),
            in_order: false,
            keys: vec![column(KEY)],
            key_types: vec![DataType::Int64],
            input_column: self.inputs.as_ref().map(|_| INPUT),
            symbols,
            pattern: self.pattern.clone(),
            contiguity: self.contiguity,
            every: self.every,
            skip: self.skip.clone(),
            within_ms: self.within,
            rows: self.rows,
            navigations,
            output,
            bounds: Bounds { partial_matches_max: 2_000, at_bound: AtBound::Fail },
        }
    }

    /// Whether it is one that SQL can write.
    fn is_sql(&self) -> bool {
        let names = self.pattern.to_sql(&|s| NAMES[s].to_string());
        self.contiguity == Contiguity::Strict && self.every && self.inputs.is_none() && !names.contains("not ")
    }

    /// The matches in a partition.
    fn matches(&self, rows: &[Row]) -> Result<Vec<(usize, Match)>, Stop> {
        let (tests, pattern, skip) = (&self.tests, &self.pattern, &self.skip);
        let search = Search { rows, tests, pattern, within: self.within, skip, steps: Cell::new(0) };
        if self.is_sql() {
            return search.matches();
        }
        let relaxed = self.contiguity == Contiguity::Relaxed;
        Expansion { search, relaxed, every: self.every, inputs: self.inputs.as_deref() }.matches()
    }

    /// The rows that the reference finds, as text, sorted.
    fn expected(&self, rows: &[Row]) -> Result<Vec<String>, Stop> {
        let mut partitions: BTreeMap<i64, Vec<Row>> = BTreeMap::new();
        for row in rows {
            partitions.entry(row.key).or_default().push(*row);
        }
        let mut lines = Vec::new();
        for (key, rows) in &mut partitions {
            rows.sort_by_key(|r| r.time);
            let rows: &[Row] = rows;
            let matches = self.matches(rows)?;
            let text = |v: Option<i64>| v.map_or("null".to_string(), |v| v.to_string());
            let line = |number: usize, taken: &[(usize, usize, bool)], upto: usize, current: usize| {
                let running = self.running();
                let seen = if running { &taken[..upto] } else { taken };
                let mut line = vec![key.to_string()];
                if running {
                    line.push(rows[current].id.to_string());
                }
                let id = |t: Option<&(usize, usize, bool)>| text(t.map(|t| rows[t.0].id));
                for wanted in &self.outputs {
                    line.push(match *wanted {
                        Wanted::Number => number.to_string(),
                        Wanted::FirstId => id(seen.first()),
                        Wanted::LastId => id(seen.last()),
                        Wanted::LastOf(s) => id(seen.iter().rfind(|t| t.1 == s)),
                        Wanted::SecondOf(s) => id(seen.iter().filter(|t| t.1 == s).nth(1)),
                        Wanted::CountOf(s) => taken.iter().filter(|t| t.1 == s && rows[t.0].value.is_some()).count().to_string(),
                        Wanted::SumAll => {
                            text(seen.iter().filter_map(|t| rows[t.0].value).fold(None, |sum: Option<i64>, v| Some(sum.unwrap_or(0) + v)))
                        }
                        Wanted::Classifier => seen.last().map_or("null".to_string(), |t| NAMES[t.1].to_string()),
                        Wanted::NextId => text(seen.last().and_then(|t| rows.get(t.0 + 1)).map(|r| r.id)),
                    });
                }
                line.join(",")
            };
            let mut covered = vec![false; rows.len()];
            let mut begun = vec![false; rows.len()];
            for (number, (start, taken)) in matches.iter().enumerate() {
                begun[*start] = true;
                taken.iter().for_each(|t| covered[t.0] = true);
                match self.rows {
                    RowsPerMatch::All { empty: false, .. } if taken.is_empty() => {}
                    RowsPerMatch::One => lines.push(line(number + 1, taken, taken.len(), *start)),
                    RowsPerMatch::All { .. } if taken.is_empty() => lines.push(line(number + 1, taken, 0, *start)),
                    RowsPerMatch::All { .. } => {
                        for (i, t) in taken.iter().enumerate().filter(|(_, t)| !t.2) {
                            lines.push(line(number + 1, taken, i + 1, t.0));
                        }
                    }
                }
            }
            if matches!(self.rows, RowsPerMatch::All { unmatched: true, .. }) {
                for row in (0..rows.len()).filter(|i| !covered[*i] && !begun[*i]).map(|i| &rows[i]) {
                    let mut line = vec![key.to_string(), row.id.to_string()];
                    line.extend(self.outputs.iter().map(|_| "null".to_string()));
                    lines.push(line.join(","));
                }
            }
        }
        lines.sort();
        Ok(lines)
    }
}

const NAMES: [&str; 4] = ["A", "B", "C", "D"];

/// A small generator: the numbers of splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        tidemill_state::hash::mix(self.0) % n
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    fn test(&mut self) -> Test {
        let s = self.below(3) as usize;
        match self.below(16) {
            0..=2 => Test::Always,
            3..=5 => Test::Below(self.below(10) as i64),
            6..=8 => Test::AtLeast(self.below(10) as i64),
            9 => Test::Rises,
            10 => Test::WillRise,
            11 => Test::NotBelowLast(s),
            12 => Test::NotFirst(s),
            13 => Test::SumBelow(s, self.below(25) as i64),
            14 => Test::EvenAndFew(s, self.below(4) as i64),
            _ => Test::BelowMax(s),
        }
    }

    fn pattern(&mut self, depth: u64, exclude: bool) -> Pattern {
        let parts = |this: &mut Self, most: u64| (0..2 + this.below(most)).map(|_| this.pattern(depth - 1, exclude)).collect::<Vec<_>>();
        if depth == 0 {
            return Pattern::Symbol(self.below(3) as usize);
        }
        match self.below(12) {
            0..=3 => Pattern::Concat(parts(self, 2)),
            4 => Pattern::Alternate(parts(self, 2)),
            5 => Pattern::Permute(parts(self, 2)),
            6..=8 => {
                let (min, max) = match self.below(6) {
                    0 => (0, None),
                    1 => (1, None),
                    2 => (0, Some(1)),
                    3 => (2, Some(2)),
                    4 => (1, Some(3)),
                    _ => (2, None),
                };
                let greedy = !self.chance(2);
                Pattern::Repeat { inner: Box::new(self.pattern(depth - 1, exclude)), min, max, greedy }
            }
            9 if exclude => Pattern::Exclude(Box::new(self.pattern(depth - 1, exclude))),
            10 if self.chance(4) => match self.below(3) {
                0 => Pattern::Empty,
                1 => Pattern::Concat(vec![Pattern::Start, self.pattern(depth - 1, exclude)]),
                _ => Pattern::Concat(vec![self.pattern(depth - 1, exclude), Pattern::End]),
            },
            _ => Pattern::Symbol(self.below(3) as usize),
        }
    }

    fn case(&mut self) -> Case {
        let rows = match self.below(4) {
            0 | 1 => RowsPerMatch::One,
            _ => RowsPerMatch::All { empty: self.chance(2), unmatched: self.chance(3) },
        };
        let rows = match rows {
            // WITH UNMATCHED ROWS shows empty matches too.
            RowsPerMatch::All { unmatched: true, .. } => RowsPerMatch::All { empty: true, unmatched: true },
            other => other,
        };
        let skip = match self.below(8) {
            0..=2 => AfterMatchSkip::PastLastRow,
            3..=5 => AfterMatchSkip::ToNextRow,
            6 => AfterMatchSkip::ToFirst(vec![self.below(3) as usize]),
            _ => AfterMatchSkip::ToLast(vec![1, 2]),
        };
        let mut outputs = Vec::new();
        for _ in 0..1 + self.below(4) {
            let s = self.below(3) as usize;
            outputs.push(match self.below(10) {
                0 => Wanted::Number,
                1 | 2 => Wanted::FirstId,
                3 | 4 => Wanted::LastId,
                5 => Wanted::LastOf(s),
                6 => Wanted::SecondOf(s),
                7 => Wanted::CountOf(s),
                8 => {
                    if self.chance(2) {
                        Wanted::SumAll
                    } else {
                        Wanted::Classifier
                    }
                }
                _ => Wanted::NextId,
            });
        }
        let depth = 1 + self.below(3);
        Case {
            tests: (0..3).map(|_| self.test()).collect(),
            pattern: self.pattern(depth, rows != RowsPerMatch::One),
            within: (!self.chance(2)).then(|| 1 + self.below(30) as i64),
            skip,
            rows,
            outputs,
            contiguity: Contiguity::Strict,
            every: true,
            inputs: None,
        }
    }

    /// Rows in order of arrival, not quite in order of time.
    fn rows(&mut self) -> Vec<Row> {
        let keys = 1 + self.below(3);
        let count = self.below(26);
        let mut time = 0i64;
        let mut rows: Vec<(i64, Row)> = Vec::new();
        for id in 0..count as i64 {
            time += self.below(6) as i64;
            let value = (!self.chance(12)).then(|| self.below(10) as i64);
            let row = Row { id, key: self.below(keys) as i64, time, value };
            rows.push((time + self.below(8) as i64, row));
        }
        rows.sort_by_key(|(arrival, _)| *arrival);
        rows.into_iter().map(|(_, row)| row).collect()
    }
}

fn block(rows: &[Row]) -> Block {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|r| r.id).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|r| r.key).collect::<Int64Array>()),
        Arc::new(TimestampMillisecondArray::from(rows.iter().map(|r| r.time).collect::<Vec<_>>())),
        Arc::new(rows.iter().map(|r| r.value).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|r| r.input() as i64).collect::<Int64Array>()),
    ];
    Block::inserts(RecordBatch::try_new(schema(), columns).unwrap(), 0)
}

/// An operator under test, its output so far, and how far its watermark has come.
struct Run {
    spec: PatternMatchSpec,
    operator: PatternMatch,
    lines: Vec<String>,
    reached: i64,
    times: Vec<i64>,
    /// The column that names a row whose time must not lie behind the watermark.
    timed: Option<usize>,
    /// What is run, for messages.
    what: String,
}

impl Run {
    fn new(spec: PatternMatchSpec) -> Result<Self, OperatorError> {
        let operator = PatternMatch::new(spec.clone())?;
        Ok(Run { spec, operator, lines: Vec::new(), reached: NO_WATERMARK, times: Vec::new(), timed: None, what: String::new() })
    }

    fn feed(&mut self, rows: &[Row], watermark: i64) -> Result<(), OperatorError> {
        let mut out = Output::default();
        if !rows.is_empty() {
            self.operator.on_block(0, block(rows), &mut out)?;
        }
        while self.operator.on_watermark(watermark, &mut out)? == Progress::More {}
        for block in &out.blocks {
            for row in 0..block.rows() {
                let cell = |c: usize| {
                    let value = ScalarValue::try_from_array(block.column(c), row).unwrap();
                    if value.is_null() { "null".to_string() } else { value.to_string() }
                };
                self.lines.push((0..block.batch.num_columns()).map(cell).collect::<Vec<_>>().join(","));
                // An empty match has no last row.
                if let Some(timed) = self.timed.filter(|t| block.column(*t).is_valid(row)) {
                    let id = block.column(timed).as_primitive::<Int64Type>();
                    let time = self.times[id.value(row) as usize];
                    assert!(time > self.reached, "a row of time {time} behind the watermark {}: {}", self.reached, self.what);
                }
            }
        }
        let reached = self.operator.output_watermark(watermark);
        assert!(reached >= self.reached && reached <= watermark, "the watermark went from {} to {reached}", self.reached);
        self.reached = reached;
        Ok(())
    }

    /// As after a restart at another parallelism.
    fn restart(&mut self) -> Result<(), OperatorError> {
        let mut tables = Vec::new();
        for table in self.operator.snapshot()? {
            tables.push(table.of_shard(1, 2)?);
            tables.push(table.of_shard(0, 2)?);
        }
        let attempts_min = self.operator.built.machine.grouping.attempts_min;
        self.operator = PatternMatch::new(self.spec.clone())?;
        self.operator.built.machine.grouping.attempts_min = attempts_min;
        self.operator.restore(tables)
    }
}

/// What the machine finds, as text, sorted.
fn found(case: &Case, rows: &[Row], size: usize, restart_at: Option<usize>) -> Result<Vec<String>, OperatorError> {
    let mut spec = case.spec();
    // Taken when they come, or when the watermark has passed them: it makes no difference.
    spec.in_order = size != 3 && rows.is_sorted_by_key(|r| r.time);
    let mut run = Run::new(spec)?;
    // Moved together from so many on.
    run.operator.built.machine.grouping.attempts_min = size;
    run.what = format!("blocks of {size}, restart {restart_at:?}, {case:#?}\n{rows:#?}");
    run.times = vec![0; rows.len()];
    rows.iter().for_each(|r| run.times[r.id as usize] = r.time);
    run.timed = if case.running() {
        Some(1)
    } else {
        // An empty match has no last row.
        let last = case.outputs.iter().position(|w| *w == Wanted::LastId).map(|i| 1 + i);
        let lines = case.expected(rows).unwrap_or_default();
        last.filter(|l| lines.iter().all(|line| line.split(',').nth(*l) != Some("null")))
    };
    for (number, chunk) in rows.chunks(size).enumerate() {
        let rest = &rows[(number * size + chunk.len()).min(rows.len())..];
        let watermark = rest.iter().map(|r| r.time - 1).min().unwrap_or(rows.iter().map(|r| r.time).max().unwrap_or(0));
        run.feed(chunk, watermark)?;
        if restart_at == Some(number) {
            run.restart()?;
        }
    }
    run.feed(&[], WATERMARK_END)?;
    let stats = run.operator.stats();
    assert_eq!(stats.late_rows, 0, "late rows");
    let mut lines = run.lines;
    lines.sort();
    Ok(lines)
}

#[test]
fn random_patterns_find_what_the_reference_finds() {
    let (mut matched, mut failed, mut too_long) = (0, 0, 0);
    for seed in 0..4_000u64 {
        let mut random = Random(seed.wrapping_mul(0x1234_5678_9abc_def1));
        let case = random.case();
        for _ in 0..3 {
            let mut rows = random.rows();
            if seed % 2 == 0 {
                rows.sort_by_key(|r| r.time);
            }
            let expected = case.expected(&rows);
            for size in [1, 3, 100] {
                let blocks = rows.len().div_ceil(size).max(1);
                let restart_at = random.chance(2).then(|| random.below(blocks as u64) as usize);
                let what = || format!("seed {seed}, blocks of {size}, restart {restart_at:?}, {case:#?}\n{rows:#?}");
                match (&expected, found(&case, &rows, size, restart_at)) {
                    (Err(Stop::TooLong), _) => too_long += 1,
                    (_, Err(e)) if e.to_string().contains("partial matches") => too_long += 1,
                    (Ok(expected), Ok(found)) => {
                        assert!(*expected == found, "expected\n{}\nfound\n{}\n{}", expected.join("\n"), found.join("\n"), what());
                        matched += usize::from(!found.is_empty());
                    }
                    (Err(Stop::Nowhere), Err(e)) if e.to_string().contains("AFTER MATCH SKIP") => failed += 1,
                    (_, result) => panic!("expected {expected:?}, found {result:?}: {}", what()),
                }
            }
        }
    }
    let enough = matched > 3_000 && failed > 50 && too_long < matched / 10;
    assert!(enough, "{matched} runs had matches, {failed} failed to skip, {too_long} took too long: not much of a test");
}

fn symbol(s: usize) -> Pattern {
    Pattern::Symbol(s)
}

fn many(inner: Pattern, min: u32, max: Option<u32>, greedy: bool) -> Pattern {
    Pattern::Repeat { inner: Box::new(inner), min, max, greedy }
}

fn one(pattern: Pattern, tests: &[Test], within: Option<i64>, outputs: &[Wanted]) -> Case {
    Case {
        tests: tests.to_vec(),
        pattern,
        within,
        skip: AfterMatchSkip::PastLastRow,
        rows: RowsPerMatch::One,
        outputs: outputs.to_vec(),
        contiguity: Contiguity::Strict,
        every: true,
        inputs: None,
    }
}

/// Rows of one key, (time, value); ids count from 0.
fn rows(of: &[(i64, i64)]) -> Vec<Row> {
    of.iter().enumerate().map(|(id, (time, value))| Row { id: id as i64, key: 7, time: *time, value: Some(*value) }).collect()
}

#[test]
fn a_greedy_tail_ends_when_the_watermark_passes_its_time() {
    // A B* WITHIN 10 ms: the match stands when nothing within 10 ms can follow.
    let case = one(
        Pattern::Concat(vec![symbol(0), many(symbol(1), 0, None, true)]),
        &[Test::Below(1), Test::AtLeast(1)],
        Some(10),
        &[Wanted::FirstId, Wanted::LastId],
    );
    let mut run = Run::new(case.spec()).unwrap();
    run.feed(&rows(&[(0, 0), (5, 1), (8, 2)]), 8).unwrap();
    // A row of time 5 or later may still be put out.
    assert_eq!((run.lines.len(), run.reached), (0, 4));
    run.feed(&[], 9).unwrap();
    assert_eq!((run.lines.join(" "), run.reached), ("7,0,2".to_string(), 9));
    assert_eq!(run.operator.stats().entries, 0);
}

#[test]
fn within_is_exclusive() {
    let case = one(Pattern::Concat(vec![symbol(0), symbol(1)]), &[Test::Below(1), Test::AtLeast(1)], Some(10), &[Wanted::LastId]);
    let check = |second: i64, expect: usize| {
        assert_eq!(found(&case, &rows(&[(0, 0), (second, 1)]), 1, None).unwrap().len(), expect, "{second} ms");
    };
    check(9, 1);
    check(10, 0);
}

#[test]
fn rows_that_matter_to_nobody_are_not_held() {
    // A X*? B WITHIN 1 s, nothing asks for X: rows between A and B leave no trace.
    let case = one(
        Pattern::Concat(vec![symbol(0), many(symbol(2), 0, None, false), symbol(1)]),
        &[Test::Below(1), Test::AtLeast(9), Test::Always],
        Some(1_000),
        &[Wanted::LastOf(0), Wanted::LastOf(1)],
    );
    let mut run = Run::new(case.spec()).unwrap();
    let between: Vec<(i64, i64)> = (1..500).map(|t| (t, 5)).collect();
    let mut all = vec![(0, 0)];
    all.extend(between);
    run.feed(&rows(&all), 499).unwrap();
    assert_eq!(run.operator.stats().entries, 2);
    run.feed(&rows(&[(500, 9)]), 500).unwrap();
    assert_eq!(run.lines, ["7,0,0"]);
    assert_eq!(run.operator.stats().entries, 0);
    // A partial match alone is gone when its time is over.
    run.feed(&rows(&[(600, 0)]), 700).unwrap();
    assert_eq!(run.operator.stats().entries, 2);
    run.feed(&[], 1_599).unwrap();
    assert_eq!(run.operator.stats().entries, 0);
}

#[test]
fn a_pattern_without_end_is_refused_by_name() {
    let case = one(
        Pattern::Concat(vec![symbol(0), many(symbol(1), 1, None, true), symbol(2)]),
        &[Test::Below(1), Test::AtLeast(1), Test::AtLeast(100)],
        None,
        &[Wanted::LastId],
    );
    let all: Vec<(i64, i64)> = (0..50).map(|t| (t, t)).collect();
    let mut spec = case.spec();
    spec.bounds = Bounds { partial_matches_max: 20, at_bound: AtBound::Fail };
    let error = Run::new(spec.clone()).unwrap().feed(&rows(&all), 100).unwrap_err().to_string();
    assert!(error.contains("'B' can go on without end") && error.contains("A B+ C"), "{error}");
    spec.bounds.at_bound = AtBound::DropOldest;
    let mut run = Run::new(spec).unwrap();
    run.feed(&rows(&all), 100).unwrap();
    let stats = run.operator.stats();
    assert_eq!((stats.dropped_matches, stats.partial_matches, stats.entries), (1, 0, 0));
}

#[test]
fn other_rows_may_lie_between() {
    // Siddhi's vectors: every A -> B, every (A -> B), A -> B, A and B, on values 1 1 2 1 2.
    let check = |pattern: Pattern, contiguity: Contiguity, every: bool, skip: AfterMatchSkip, expect: &str| {
        let mut case = one(pattern, &[Test::Below(2), Test::AtLeast(2)], None, &[Wanted::LastOf(0), Wanted::LastOf(1)]);
        case.skip = skip;
        let spec = PatternMatchSpec { contiguity, every, ..case.spec() };
        let mut run = Run::new(spec).unwrap();
        for (id, row) in rows(&[(1, 1), (2, 1), (3, 2), (4, 1), (5, 2)]).iter().enumerate() {
            run.feed(&[*row], id as i64 + 1).unwrap();
            run.restart().unwrap();
        }
        run.feed(&[], WATERMARK_END).unwrap();
        assert_eq!(run.lines.join(" "), expect);
    };
    let follows = || Pattern::Concat(vec![symbol(0), symbol(1)]);
    check(follows(), Contiguity::Relaxed, true, AfterMatchSkip::ToNextRow, "7,0,2 7,1,2 7,3,4");
    check(follows(), Contiguity::Relaxed, true, AfterMatchSkip::PastLastRow, "7,0,2 7,3,4");
    check(follows(), Contiguity::Relaxed, false, AfterMatchSkip::PastLastRow, "7,0,2");
    check(follows(), Contiguity::Strict, true, AfterMatchSkip::ToNextRow, "7,1,2 7,3,4");
    let both = Pattern::Permute(vec![symbol(1), symbol(0)]);
    check(both, Contiguity::Relaxed, true, AfterMatchSkip::PastLastRow, "7,0,2 7,3,4");
}

#[test]
fn rows_of_one_time_have_an_order() {
    let tests = [Test::Below(1), Test::AtLeast(1)];
    let case = one(Pattern::Concat(vec![symbol(0), symbol(1)]), &tests, None, &[Wanted::FirstId, Wanted::LastId]);
    let mut spec = case.spec();
    spec.order = vec![(VALUE, arrow::compute::SortOptions { descending: false, nulls_first: true })];
    let mut run = Run::new(spec).unwrap();
    run.feed(&rows(&[(1, 5), (1, 0), (2, 4), (2, 0)]), 5).unwrap();
    assert_eq!(run.lines, ["7,1,0", "7,3,2"]);
}

#[test]
fn late_rows_are_counted() {
    let case = one(symbol(0), &[Test::Always], None, &[Wanted::FirstId]);
    let mut run = Run::new(case.spec()).unwrap();
    run.feed(&rows(&[(10, 0)]), 10).unwrap();
    run.feed(&rows(&[(10, 0), (11, 0)]), 11).unwrap();
    assert_eq!((run.lines.len(), run.operator.stats().late_rows), (2, 1));
}

#[test]
fn rows_in_order_do_not_wait() {
    let tests = [Test::Below(1), Test::AtLeast(1)];
    let case = one(Pattern::Concat(vec![symbol(0), symbol(1)]), &tests, None, &[Wanted::FirstId, Wanted::LastId]);
    for (in_order, lines) in [(true, 1), (false, 0)] {
        let mut run = Run::new(PatternMatchSpec { in_order, ..case.spec() }).unwrap();
        run.feed(&rows(&[(3, 0), (3, 1)]), 2).unwrap();
        assert_eq!(run.lines.len(), lines);
        // Another of the same time is none too late.
        let more = Row { id: 2, key: 7, time: 3, value: Some(0) };
        run.feed(&[more, Row { id: 3, value: Some(1), ..more }], WATERMARK_END).unwrap();
        assert_eq!((run.lines.join(" "), run.operator.stats().late_rows), ("7,0,1 7,2,3".to_string(), 0));
    }
}
