//! Against the join of changelogs, which can do the same, after every block.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Date32Array, Float64Array, Int8Array, Int64Array, TimestampMillisecondArray, UInt64Array};
use arrow::datatypes::{Field, Int64Type, Schema, TimeUnit};
use datafusion_expr::Operator as BinaryOperator;
use datafusion_physical_expr::expressions::{BinaryExpr, Column};
use tidemill_block::text;

use super::*;
use crate::join::regular::Join;
use crate::join::testing::{Random, block, counted, feed, moved, schema};
use crate::map::Expr;

fn spec(keys: bool, null_equal: bool, residual: bool) -> JoinSpec {
    let null = |field: &Arc<Field>| field.as_ref().clone().with_nullable(true);
    let fields: Vec<Field> = schema().fields().iter().chain(schema().fields()).map(null).collect();
    let key = || if keys { vec![Arc::new(Column::new("k", 0)) as Expr] } else { Vec::new() };
    let less = BinaryExpr::new(Arc::new(Column::new("v", 1)), BinaryOperator::Lt, Arc::new(Column::new("v", 4)));
    JoinSpec {
        kind: JoinKind::Pairs { keep: [false, false] },
        keys: [key(), key()],
        key_types: if keys { vec![DataType::Int64] } else { Vec::new() },
        inputs: [schema(), schema()],
        updating: [false, false],
        residual: residual.then(|| Arc::new(less) as Expr),
        null_equal,
        ttl_ms: None,
        schema: Arc::new(Schema::new(fields)),
    }
}

fn lines(operator: &mut dyn Operator, input: usize, block: Block) -> Vec<String> {
    let mut out = Output::default();
    operator.on_block(input, block, &mut out).unwrap();
    out.blocks.iter().flat_map(|b| text::format(b).lines().map(str::to_string).collect::<Vec<_>>()).collect()
}

#[test]
fn as_the_join_of_changelogs() {
    for (keys, null_equal) in [(false, false), (true, false), (true, true)] {
        for residual in [false, true] {
            for seed in 0..20 {
                let spec = spec(keys, null_equal, residual);
                let make = || AppendJoin::new(spec.clone(), None).unwrap();
                let (mut random, mut join, mut plain) = (Random(seed), make(), Join::new(spec.clone()).unwrap());
                let mut result: [BTreeMap<String, i64>; 2] = Default::default();
                for step in 0..24 {
                    let input = random.below(2) as usize;
                    let changes = random.changes(&mut Vec::new(), false, false);
                    if step < 12 {
                        // Not only the same rows, but in the same order.
                        let (got, expect) =
                            (lines(&mut join, input, block(&changes, false)), lines(&mut plain, input, block(&changes, false)));
                        assert_eq!(got, expect, "seed {seed}, step {step}, keys {keys}, residual {residual}");
                    } else {
                        feed(&mut join, input, block(&changes, false), &mut result[0]);
                        feed(&mut plain, input, block(&changes, false), &mut result[1]);
                        assert_eq!(result[0], result[1], "seed {seed}, step {step}, keys {keys}, residual {residual}");
                    }
                    if step == 11 && keys {
                        join = moved(&mut join, make);
                    }
                }
            }
        }
    }
}

/// Whatever is left out, the best pair of each key is there.
#[test]
fn the_best_pairs_come() {
    for seed in 0..50 {
        let spec = spec(true, false, seed % 2 == 0);
        let mut random = Random(seed);
        let options = SortOptions { descending: random.below(2) == 0, nulls_first: random.below(2) == 0 };
        let column = [1, 4][random.below(2) as usize];
        let make = || AppendJoin::new(spec.clone(), Some(Best { column, options })).unwrap();
        let (mut join, mut plain) = (make(), Join::new(spec.clone()).unwrap());
        let (mut some, mut all): (Vec<String>, Vec<String>) = Default::default();
        for step in 0..30 {
            let input = random.below(2) as usize;
            let changes = random.changes(&mut Vec::new(), false, false);
            some.extend(lines(&mut join, input, block(&changes, false)));
            all.extend(lines(&mut plain, input, block(&changes, false)));
            if step == 15 {
                join = moved(&mut join, make);
            }
        }
        // By key the best value and the first line that has it.
        let best = |lines: &[String]| {
            let mut best: BTreeMap<String, (i64, String)> = BTreeMap::new();
            for line in lines {
                let words: Vec<&str> = line.split(' ').collect();
                let value: i64 = words[1 + column].parse().unwrap();
                let rank = if options.descending { -value } else { value };
                let found = best.entry(words[1].to_string()).or_insert((rank, line.clone()));
                if rank < found.0 {
                    *found = (rank, line.clone());
                }
            }
            best
        };
        assert_eq!(best(&some), best(&all), "seed {seed}");
        let (some, mut rest) = (counted(some), counted(all));
        for (line, count) in some {
            let left = rest.get_mut(&line).unwrap_or_else(|| panic!("seed {seed}: {line} is no pair"));
            *left -= count;
            assert!(*left >= 0, "seed {seed}: {line} comes too often");
        }
    }
}

#[test]
fn large_output_comes_in_blocks() {
    let mut join = AppendJoin::new(spec(true, false, false), None).unwrap();
    let many: Vec<(bool, (Option<i64>, i64))> = (0..3 * BLOCK_ROWS_MAX as i64).map(|v| (true, (Some(1), v))).collect();
    let mut out = Output::default();
    join.on_block(0, block(&many, false), &mut out).unwrap();
    join.on_block(1, block(&[(true, (Some(1), 0)), (true, (None, 0))], false), &mut out).unwrap();
    let rows: Vec<usize> = out.blocks.iter().map(Block::rows).collect();
    assert_eq!(rows, [BLOCK_ROWS_MAX; 3]);
    let values = out.blocks[0].column(1).as_primitive::<Int64Type>().values().clone();
    assert_eq!(values[..2], [3 * BLOCK_ROWS_MAX as i64 - 1, 3 * BLOCK_ROWS_MAX as i64 - 2], "the newest first");
    assert_eq!(join.stats().entries, 3 * BLOCK_ROWS_MAX as u64 + 1);
}

/// Numbers in place of values sort as the values do.
#[test]
fn ranks_order_as_values_do() {
    #[track_caller]
    fn check(ascending: ArrayRef) {
        for (descending, nulls_first) in [(false, false), (false, true), (true, false), (true, true)] {
            let ranks = ranked(&ascending, SortOptions { descending, nulls_first });
            let last = ascending.len() - 1;
            assert!(ranks[..last].windows(2).all(|w| if descending { w[0] > w[1] } else { w[0] < w[1] }), "{ranks:?}");
            assert_eq!(ranks[last], if nulls_first { 0 } else { u64::MAX });
        }
        assert!(Best::serves(ascending.data_type()));
    }
    check(Arc::new(Int64Array::from(vec![Some(i64::MIN + 1), Some(-1), Some(0), Some(7), None])));
    check(Arc::new(Int8Array::from(vec![Some(-128), Some(0), Some(127), None])));
    check(Arc::new(UInt64Array::from(vec![Some(1), Some(u64::MAX - 1), None])));
    check(Arc::new(Date32Array::from(vec![Some(-3), Some(0), Some(5), None])));
    check(Arc::new(TimestampMillisecondArray::from(vec![Some(-3), Some(0), Some(5), None])));
    check(Arc::new(Float64Array::from(vec![Some(f64::NEG_INFINITY), Some(-0.5), Some(-0.0), Some(0.0), Some(2.0), Some(f64::NAN), None])));
    assert!(Best::serves(&DataType::Timestamp(TimeUnit::Second, None)) && !Best::serves(&DataType::Utf8));
}
