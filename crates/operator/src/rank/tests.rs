//! Rankings and deduplication against references that sort everything anew each time. A failing
//! case prints its seed.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion_physical_expr::expressions::Column;
use tidemill_block::{Block, RowKind, WATERMARK_END, text};

use super::dedup::KeepFirst;
use super::keep_last::KeepLast;
use super::topn::TopN;
use super::window_topn::WindowTopN;
use super::{RankFunction, RankSpec, Ties, head};
use crate::map::Expr;
use crate::{Operator, Output, Progress};

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        tidemill_state::hash::mix(self.0) % n
    }
}

/// A row: key, time, two values.
type Row = (u64, i64, Option<i64>, i64);

fn input() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("k", DataType::Utf8, true),
        Field::new("t", DataType::Timestamp(TimeUnit::Millisecond, None), true),
        Field::new("x", DataType::Int64, true),
        Field::new("y", DataType::Int64, true),
    ]))
}

fn column(name: &str, index: usize) -> Expr {
    Arc::new(Column::new(name, index))
}

fn spec(function: RankFunction, (from, to): (u64, u64), ties: Ties, retracts: bool, rank_column: bool) -> RankSpec {
    let mut fields: Vec<Field> = input().fields().iter().map(|f| f.as_ref().clone()).collect();
    if rank_column {
        fields.push(Field::new("rn", DataType::Int64, true));
    }
    RankSpec {
        keys: vec![column("k", 0)],
        key_types: vec![DataType::Utf8],
        order: vec![(column("x", 2), SortOptions { descending: true, nulls_first: false })],
        order_types: vec![DataType::Int64],
        function,
        from,
        to,
        ties,
        retracts,
        rank_column,
        input: input(),
        schema: Arc::new(Schema::new(fields)),
    }
}

fn random_row(random: &mut Random, t: i64) -> Row {
    let x = (random.below(9) > 0).then(|| random.below(6) as i64 - 2);
    (random.below(3), t, x, random.below(3) as i64)
}

fn words(row: &Row) -> String {
    text::format(&block(&[(RowKind::Insert, *row)])).trim().trim_start_matches("+I ").to_string()
}

fn block(rows: &[(RowKind, Row)]) -> Block {
    let numbers = Arc::new(Schema::new(vec![
        Field::new("k", DataType::Utf8, true),
        Field::new("t", DataType::Int64, true),
        Field::new("x", DataType::Int64, true),
        Field::new("y", DataType::Int64, true),
    ]));
    let line =
        |(kind, (k, t, x, y)): &(RowKind, Row)| format!("{} k{k} {t} {} {y}\n", kind.short(), x.map_or("NULL".into(), |x| x.to_string()));
    let plain = text::parse(&numbers, &rows.iter().map(line).collect::<String>());
    let mut columns = plain.batch.columns().to_vec();
    columns[1] = arrow::compute::cast(&columns[1], input().field(1).data_type()).unwrap();
    plain.with_batch(arrow::array::RecordBatch::try_new(input(), columns).unwrap())
}

/// The table that a changelog describes; a row may be taken back only if it is there.
#[derive(Default, PartialEq, Debug)]
struct Folded(BTreeMap<String, usize>);

impl Folded {
    #[track_caller]
    fn apply(&mut self, out: &mut Output, seed: u64) {
        for block in out.blocks.drain(..) {
            for line in text::format(&block).lines() {
                let (kind, row) = line.split_once(' ').unwrap();
                if RowKind::from_short(kind).unwrap().adds() {
                    *self.0.entry(row.to_string()).or_default() += 1;
                } else {
                    let count = self.0.get_mut(row).unwrap_or_else(|| panic!("seed {seed}: {line} takes back what is not there"));
                    *count -= 1;
                    self.0.retain(|_, count| *count > 0);
                }
            }
        }
    }

    fn of(rows: impl Iterator<Item = String>) -> Self {
        let mut folded = Folded::default();
        rows.for_each(|row| *folded.0.entry(row).or_default() += 1);
        folded
    }
}

/// Rows (of one key, in order of arrival) with their ranks, by sorting.
fn ranked(rows: &[Row], spec: &RankSpec) -> Vec<(u64, Row)> {
    let mut sorted = rows.to_vec();
    match spec.ties {
        Ties::First => {}
        Ties::Last => sorted.reverse(),
        // Only the key, which is shared, stands before the time.
        Ties::Contents => sorted.sort(),
    }
    sorted.sort_by_key(|row| std::cmp::Reverse(row.2));
    let (mut number, mut dense) = (0, 0);
    let mut out: Vec<(u64, Row)> = Vec::new();
    for (i, row) in sorted.iter().enumerate() {
        if i == 0 || sorted[i - 1].2 != row.2 {
            number = i as u64 + 1;
            dense += 1;
        }
        let rank = match spec.function {
            RankFunction::RowNumber => i as u64 + 1,
            RankFunction::Rank => number,
            RankFunction::DenseRank => dense,
        };
        if (spec.from..=spec.to).contains(&rank) {
            out.push((rank, *row));
        }
    }
    out
}

fn expected(rows: &[Row], spec: &RankSpec) -> Folded {
    let mut groups: BTreeMap<u64, Vec<Row>> = BTreeMap::new();
    rows.iter().for_each(|row| groups.entry(row.0).or_default().push(*row));
    let ranked = groups.values().flat_map(|rows| ranked(rows, spec));
    Folded::of(ranked.map(|(rank, row)| if spec.rank_column { format!("{} {rank}", words(&row)) } else { words(&row) }))
}

#[test]
fn top_n_is_what_sorting_gives() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let function =
            [RankFunction::RowNumber, RankFunction::RowNumber, RankFunction::Rank, RankFunction::DenseRank][random.below(4) as usize];
        let from = if random.below(3) == 0 { 1 + random.below(3) } else { 1 };
        let retracts = random.below(2) == 0;
        let ties = if retracts { Ties::Contents } else { [Ties::First, Ties::Last, Ties::Contents][random.below(3) as usize] };
        let spec = spec(function, (from, from + random.below(4)), ties, retracts, random.below(2) == 0);
        let fold = random.below(2) == 0;
        let make = || TopN::new(spec.clone(), fold, true).unwrap();
        let (mut operator, mut out) = (make(), Output::default());
        let (mut rows, mut table): (Vec<Row>, Folded) = Default::default();
        for step in 0..40 {
            let mut changes = Vec::new();
            for _ in 0..=random.below(6) {
                if retracts && !rows.is_empty() && random.below(5) < 2 {
                    let row = rows.remove(random.below(rows.len() as u64) as usize);
                    changes.push((if random.below(2) == 0 { RowKind::Delete } else { RowKind::UpdateBefore }, row));
                } else {
                    // Few times, so that some rows are the same.
                    let t = random.below(3) as i64;
                    let row = random_row(&mut random, t);
                    rows.push(row);
                    changes.push((RowKind::Insert, row));
                }
            }
            if retracts && random.below(5) == 0 {
                // Never seen.
                changes.push((RowKind::Delete, (random.below(5), 99, Some(1), 1)));
            }
            operator.on_block(0, block(&changes), &mut out).unwrap();
            table.apply(&mut out, seed);
            assert_eq!(table, expected(&rows, &spec), "seed {seed}, after block {step}");
            if random.below(10) == 0 {
                let tables = operator.snapshot().unwrap();
                operator = make();
                operator.restore(tables).unwrap();
            }
        }
        if retracts {
            assert_eq!(operator.stats().entries, rows.len() as u64, "seed {seed}");
            let all: Vec<(RowKind, Row)> = rows.drain(..).map(|row| (RowKind::Delete, row)).collect();
            if !all.is_empty() {
                operator.on_block(0, block(&all), &mut out).unwrap();
            }
            table.apply(&mut out, seed);
            assert_eq!((table, operator.stats().entries), (Folded::default(), 0), "seed {seed}: all rows taken back");
        }
    }
}

/// What Flink emits, row by row.
#[test]
fn changes_are_those_of_flink() {
    #[track_caller]
    fn check(bounds: (u64, u64), rank_column: bool, update_before: bool, xs: &[i64], expect: &str) {
        let spec = spec(RankFunction::RowNumber, bounds, Ties::First, false, rank_column);
        let mut operator = TopN::new(spec, false, update_before).unwrap();
        let rows: Vec<(RowKind, Row)> = xs.iter().map(|x| (RowKind::Insert, (1, 0, Some(*x), 7))).collect();
        let mut out = Output::default();
        operator.on_block(0, block(&rows), &mut out).unwrap();
        let lines: Vec<String> = out.blocks.iter().flat_map(|b| text::format(b).lines().map(str::to_string).collect::<Vec<_>>()).collect();
        let short = lines.iter().map(|l| l.replace(" k1 1970-01-01T00:00:00", "").replace(" 7", "")).collect::<Vec<_>>();
        assert_eq!(short.join(", "), expect);
    }
    check((1, 2), false, true, &[5, 3, 9, 1], "+I 5, +I 3, -D 3, +I 9");
    check((1, 2), true, true, &[5, 3, 9], "+I 5 1, +I 3 2, -U 5 1, +U 9 1, -U 3 2, +U 5 2");
    check((1, 2), true, false, &[5, 3, 9], "+I 5 1, +I 3 2, +U 9 1, +U 5 2");
    check((2, 3), false, true, &[5, 3, 9, 4], "+I 3, +I 5, -D 3, +I 4");
    check((2, 2), true, true, &[5, 3, 9], "+I 3 2, -U 3 2, +U 5 2");
    // Of rows that sort alike the first stays.
    check((1, 1), false, true, &[5, 5, 6, 6], "+I 5, -D 5, +I 6");
}

fn by_time(ties: Ties, rank_column: bool) -> RankSpec {
    RankSpec { order: Vec::new(), order_types: Vec::new(), ..spec(RankFunction::RowNumber, (1, 1), ties, false, rank_column) }
}

#[track_caller]
fn advance(operator: &mut dyn Operator, watermark: i64, out: &mut Output) {
    while operator.on_watermark(watermark, out).unwrap() == Progress::More {}
}

#[test]
fn the_first_and_the_last_row_by_time() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let ties = if random.below(2) == 0 { Ties::First } else { Ties::Contents };
        let (rank_column, fold) = (random.below(2) == 0, random.below(2) == 0);
        let last = random.below(2) == 0;
        let make = || -> Box<dyn Operator> {
            let spec = by_time(ties, rank_column);
            if last { Box::new(KeepLast::new(spec, 1, fold, true).unwrap()) } else { Box::new(KeepFirst::new(spec, 1).unwrap()) }
        };
        let (mut operator, mut out) = (make(), Output::default());
        let mut table = Folded::default();
        let mut best: BTreeMap<u64, Row> = BTreeMap::new();
        let (mut now, mut late) = (0, 0);
        for _ in 0..30 {
            let mut changes = Vec::new();
            for _ in 0..=random.below(5) {
                let t = now + random.below(8) as i64 - 2;
                let row = random_row(&mut random, t);
                changes.push((RowKind::Insert, row));
                if !last && t < now && now > 0 {
                    late += 1;
                    continue;
                }
                best.entry(row.0)
                    .and_modify(|b| {
                        let better = if last { t > b.1 } else { t < b.1 };
                        let wins = if ties == Ties::Contents { row < *b } else { last };
                        if better || (t == b.1 && wins) {
                            *b = row;
                        }
                    })
                    .or_insert(row);
            }
            operator.on_block(0, block(&changes), &mut out).unwrap();
            if random.below(3) == 0 {
                now += random.below(6) as i64;
                if now > 0 {
                    advance(operator.as_mut(), now - 1, &mut out);
                }
            }
            if !last {
                assert!(out.blocks.iter().all(|b| b.kinds.is_none()));
                assert_eq!(operator.stats().late_rows, late, "seed {seed}");
            }
            table.apply(&mut out, seed);
            let row = |row: &Row| if rank_column { format!("{} 1", words(row)) } else { words(row) };
            let settled = best.values().filter(|b| last || (now > 0 && b.1 < now)).map(row);
            assert_eq!(table, Folded::of(settled), "seed {seed}");
            if random.below(8) == 0 {
                let tables = operator.snapshot().unwrap();
                operator = make();
                operator.restore(tables).unwrap();
                // A source that goes on tells its watermark first.
                if now > 0 {
                    advance(operator.as_mut(), now - 1, &mut out);
                }
                late = 0;
            }
        }
        advance(operator.as_mut(), WATERMARK_END, &mut out);
        table.apply(&mut out, seed);
        let row = |row: &Row| if rank_column { format!("{} 1", words(row)) } else { words(row) };
        assert_eq!(table, Folded::of(best.values().map(row)), "seed {seed}");
    }
}

#[test]
fn windows_are_ranked_once_at_their_end() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let function = [RankFunction::RowNumber, RankFunction::Rank, RankFunction::DenseRank][random.below(3) as usize];
        let ties = [Ties::First, Ties::Last, Ties::Contents][random.below(3) as usize];
        let from = 1 + random.below(2);
        let spec = spec(function, (from, from + random.below(3)), ties, false, random.below(2) == 0);
        // The end of the window stands in the time column: windows of 10 ms.
        let make = || WindowTopN::new(spec.clone(), 1).unwrap();
        let (mut operator, mut out) = (make(), Output::default());
        let mut table = Folded::default();
        let mut windows: BTreeMap<i64, Vec<Row>> = BTreeMap::new();
        let (mut watermark, mut late) = (0, 0);
        for _ in 0..30 {
            let mut changes = Vec::new();
            for _ in 0..=random.below(8) {
                let end = (watermark / 10 + random.below(4) as i64) * 10;
                let row = random_row(&mut random, end);
                changes.push((RowKind::Insert, row));
                if end - 1 <= watermark && watermark > 0 {
                    late += 1;
                } else {
                    windows.entry(end).or_default().push(row);
                }
            }
            operator.on_block(0, block(&changes), &mut out).unwrap();
            assert!(out.blocks.is_empty(), "seed {seed}: a window speaks only at its end");
            assert_eq!(operator.stats().late_rows, late, "seed {seed}");
            if random.below(3) == 0 {
                watermark += random.below(15) as i64;
                if watermark > 0 {
                    advance(&mut operator, watermark, &mut out);
                }
                table.apply(&mut out, seed);
                let mut expect = Folded::default();
                for (_, rows) in windows.iter().filter(|(end, _)| watermark > 0 && **end - 1 <= watermark) {
                    expected(rows, &spec).0.into_iter().for_each(|(row, count)| *expect.0.entry(row).or_default() += count);
                }
                assert_eq!(table, expect, "seed {seed} at {watermark}");
            }
            if random.below(8) == 0 {
                let tables = operator.snapshot().unwrap();
                operator = make();
                operator.restore(tables).unwrap();
                if watermark > 0 {
                    advance(&mut operator, watermark, &mut out);
                }
                late = 0;
            }
        }
        advance(&mut operator, WATERMARK_END, &mut out);
        assert_eq!(operator.stats().entries, 0, "seed {seed}: nothing is kept of a window that is over");
    }
}

/// A head never says that a greater key is smaller.
#[test]
fn heads_order_as_keys_do() {
    let mut random = Random(5);
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for _ in 0..3000 {
        let byte = |random: &mut Random| [0, 1, 2, 3, 0x7f, 0xfc, 0xfd, 0xfe, 0xff][random.below(9) as usize];
        let length = random.below(11) as usize;
        keys.push((0..length).map(|_| byte(&mut random)).collect());
    }
    keys.sort();
    for pair in keys.windows(2) {
        assert!(head(&pair[0]) <= head(&pair[1]), "{pair:?}");
    }
}
