//! Tests of `set`.

use super::*;
use crate::join::testing::{Random, Row, block, counted, feed, moved, schema, shown};
use std::collections::BTreeMap;

#[test]
fn as_counts_say() {
    for kind in [SetKind::Intersect, SetKind::IntersectAll, SetKind::Except, SetKind::ExceptAll] {
        for seed in 0..40 {
            let make = || SetOperation::new(kind, schema(), None).unwrap();
            let (mut random, mut operator) = (Random(seed), make());
            let mut tables: [Vec<Row>; 2] = [Vec::new(), Vec::new()];
            let mut result = BTreeMap::new();
            for step in 0..30 {
                let input = random.below(2) as usize;
                let changes = random.changes(&mut tables[input], true, true);
                feed(&mut operator, input, block(&changes, true), &mut result);
                let mut counts: BTreeMap<String, [i64; 2]> = BTreeMap::new();
                for (side, table) in tables.iter().enumerate() {
                    table.iter().for_each(|row| counts.entry(shown(*row)).or_default()[side] += 1);
                }
                let expect = counts.into_iter().flat_map(|(row, [l, r])| {
                    let n = match kind {
                        SetKind::Intersect if l > 0 && r > 0 => 1,
                        SetKind::Except if l > 0 && r == 0 => 1,
                        SetKind::IntersectAll => l.min(r),
                        SetKind::ExceptAll => (l - r).max(0),
                        _ => 0,
                    };
                    std::iter::repeat_n(row, n as usize)
                });
                assert_eq!(result, counted(expect), "{kind:?}, seed {seed}, step {step}");
                if step == 14 {
                    operator = moved(&mut operator, make);
                }
            }
            for (input, table) in tables.iter().enumerate() {
                let all: Vec<(bool, Row)> = table.iter().map(|row| (false, *row)).collect();
                feed(&mut operator, input, block(&all, true), &mut result);
            }
            assert_eq!(operator.stats().entries, 0, "{kind:?}, seed {seed}");
        }
    }
}
