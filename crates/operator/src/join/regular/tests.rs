//! Random changelogs against nested loops, after every block.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion_expr::Operator as BinaryOperator;
use datafusion_physical_expr::expressions::{BinaryExpr, Column};

use super::*;
use crate::join::testing::{Random, Row, block, counted, feed, moved, schema, shown};

const KINDS: [JoinKind; 10] = [
    JoinKind::Pairs { keep: [false, false] },
    JoinKind::Pairs { keep: [true, false] },
    JoinKind::Pairs { keep: [false, true] },
    JoinKind::Pairs { keep: [true, true] },
    JoinKind::Semi(0),
    JoinKind::Semi(1),
    JoinKind::Anti(0),
    JoinKind::Anti(1),
    JoinKind::Mark(0),
    JoinKind::Mark(1),
];

/// What the keys are.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Keys {
    None,
    Equal,
    NullsEqual,
}

fn spec(kind: JoinKind, keys: Keys, updating: [bool; 2], residual: bool) -> JoinSpec {
    let side = schema();
    let null = |field: &Arc<Field>| field.as_ref().clone().with_nullable(true);
    let mut fields: Vec<Field> = side.fields().iter().map(null).collect();
    match kind {
        JoinKind::Pairs { .. } => fields.extend(side.fields().iter().map(null)),
        JoinKind::Mark(_) => fields.push(Field::new("mark", DataType::Boolean, false)),
        _ => {}
    }
    let key = || if keys == Keys::None { Vec::new() } else { vec![Arc::new(Column::new("k", 0)) as Expr] };
    let less = BinaryExpr::new(Arc::new(Column::new("v", 1)), BinaryOperator::Lt, Arc::new(Column::new("v", 4)));
    JoinSpec {
        kind,
        keys: [key(), key()],
        key_types: if keys == Keys::None { Vec::new() } else { vec![DataType::Int64] },
        inputs: [schema(), schema()],
        updating,
        residual: residual.then(|| Arc::new(less) as Expr),
        null_equal: keys == Keys::NullsEqual,
        ttl_ms: None,
        schema: Arc::new(Schema::new(fields)),
    }
}

fn nested_loops(tables: &[Vec<Row>; 2], spec: &JoinSpec, keys: Keys) -> BTreeMap<String, i64> {
    let meets = |l: &Row, r: &Row| {
        let equal = match keys {
            Keys::None => true,
            Keys::Equal => l.0.is_some() && l.0 == r.0,
            Keys::NullsEqual => l.0 == r.0,
        };
        equal && (spec.residual.is_none() || l.1 < r.1)
    };
    let matched =
        |side: usize, row: &Row| tables[1 - side].iter().any(|other| if side == 0 { meets(row, other) } else { meets(other, row) });
    let mut rows = Vec::new();
    match spec.kind {
        JoinKind::Pairs { keep } => {
            for l in &tables[0] {
                rows.extend(tables[1].iter().filter(|r| meets(l, r)).map(|r| format!("{} {}", shown(*l), shown(*r))));
            }
            let alone = |side: usize| tables[side].iter().filter(move |row| keep[side] && !matched(side, row));
            rows.extend(alone(0).map(|l| format!("{} NULL NULL NULL", shown(*l))));
            rows.extend(alone(1).map(|r| format!("NULL NULL NULL {}", shown(*r))));
        }
        JoinKind::Semi(side) => rows.extend(tables[side].iter().filter(|row| matched(side, row)).map(|row| shown(*row))),
        JoinKind::Anti(side) => rows.extend(tables[side].iter().filter(|row| !matched(side, row)).map(|row| shown(*row))),
        JoinKind::Mark(side) => rows.extend(tables[side].iter().map(|row| format!("{} {}", shown(*row), matched(side, row)))),
    }
    counted(rows)
}

fn run(seed: u64, spec: &JoinSpec, keys: Keys) {
    let make = || Join::new(spec.clone()).unwrap();
    let (mut random, mut join) = (Random(seed), make());
    let mut tables: [Vec<Row>; 2] = [Vec::new(), Vec::new()];
    let mut result = BTreeMap::new();
    for step in 0..24 {
        let input = random.below(2) as usize;
        // A side that only counts the rows of a key takes any row for one of them.
        let unknown = keys != Keys::None || join.keeps[input];
        let changes = random.changes(&mut tables[input], spec.updating[input], unknown);
        feed(&mut join, input, block(&changes, spec.updating[input]), &mut result);
        let what = || format!("seed {seed}, {:?}, {keys:?}, updating {:?}, residual {}", spec.kind, spec.updating, spec.residual.is_some());
        assert_eq!(result, nested_loops(&tables, spec, keys), "after step {step}: {}", what());
        if step == 11 {
            // A join without keys lives in one shard.
            join = if keys == Keys::None {
                let mut whole = make();
                whole.restore(join.snapshot().unwrap()).unwrap();
                whole
            } else {
                moved(&mut join, make)
            };
        }
    }
    if spec.updating == [true, true] {
        for input in 0..2 {
            let all: Vec<(bool, Row)> = tables[input].drain(..).map(|row| (false, row)).collect();
            feed(&mut join, input, block(&all, true), &mut result);
        }
        assert!(result.is_empty());
        assert_eq!((join.stats().entries, join.table.len()), (0, 0), "state is left: seed {seed}, {:?}", spec.kind);
    }
}

#[test]
fn as_nested_loops() {
    for kind in KINDS {
        for keys in [Keys::None, Keys::Equal, Keys::NullsEqual] {
            for updating in [[false, false], [true, false], [false, true], [true, true]] {
                for residual in [false, true] {
                    (0..6).for_each(|seed| run(seed, &spec(kind, keys, updating, residual), keys));
                }
            }
        }
    }
}

/// An expiring join that nothing expires from is the same join, though it counts matches by row.
#[test]
fn expiry_changes_nothing_before_its_time() {
    for kind in KINDS {
        for updating in [[false, false], [true, true]] {
            for residual in [false, true] {
                let spec = JoinSpec { ttl_ms: Some(1 << 40), ..spec(kind, Keys::Equal, updating, residual) };
                (0..6).for_each(|seed| run(seed, &spec, Keys::Equal));
            }
        }
    }
}

thread_local! {
    static NOW: Cell<i64> = const { Cell::new(0) };
}

#[test]
fn rows_expire() {
    let spec = JoinSpec { ttl_ms: Some(100), ..spec(JoinKind::Pairs { keep: [true, false] }, Keys::Equal, [true, false], false) };
    let mut join = Join::new(spec).unwrap();
    join.expiry.clock = || NOW.with(Cell::get);
    let mut result = BTreeMap::new();
    let mut at = |now: i64, input: usize, changes: &[(bool, Row)], expect: &[&str]| {
        NOW.with(|n| n.set(now));
        feed(&mut join, input, block(changes, input == 0), &mut result);
        assert_eq!(result, counted(expect.iter().map(ToString::to_string)), "at {now}");
        join.stats().entries
    };
    let (alone, pair) = ("1 1 t1 NULL NULL NULL", "1 1 t1 1 2 t2");
    assert_eq!(at(1000, 0, &[(true, (Some(1), 1))], &[alone]), 1);
    assert_eq!(at(1050, 1, &[(true, (Some(1), 2))], &[pair]), 2);
    // The left row changed when its match came. What has expired is forgotten without a word.
    assert_eq!(at(1149, 1, &[(true, (Some(2), 2))], &[pair]), 3);
    assert_eq!(at(1151, 1, &[(true, (Some(1), 3))], &[pair]), 4);
    // Taking it back finds nothing: a row never seen. That the time is over is seen when it is looked
    // for; the others wait for the next sweep.
    assert_eq!(at(1152, 0, &[(false, (Some(1), 1))], &[pair]), 3);
    assert_eq!(join.stats().unknown_rows, 1);
    NOW.with(|n| n.set(2000));
    assert_eq!(join.on_watermark(0, &mut Output::default()).unwrap(), Progress::Done);
    assert_eq!((join.stats().entries, join.table.len()), (0, 0));
}

/// What one row makes is cut into blocks.
#[test]
fn large_output_comes_in_blocks() {
    let spec = spec(JoinKind::Pairs { keep: [false, false] }, Keys::Equal, [false, false], false);
    let mut join = Join::new(spec).unwrap();
    let many: Vec<(bool, Row)> = (0..3 * BLOCK_ROWS_MAX as i64).map(|v| (true, (Some(1), v))).collect();
    let mut out = Output::default();
    join.on_block(0, block(&many, false), &mut out).unwrap();
    join.on_block(1, block(&[(true, (Some(1), 0)), (true, (None, 0))], false), &mut out).unwrap();
    let rows: Vec<usize> = out.blocks.iter().map(Block::rows).collect();
    assert_eq!((rows.iter().sum::<usize>(), rows.iter().max()), (3 * BLOCK_ROWS_MAX, Some(&BLOCK_ROWS_MAX)));
}
