//! Grouping sets beside other keys: `GROUP BY k, ROLLUP (s)` becomes one list of sets,
//! `GROUPING SETS ((k, s), (k))`. DataFusion adds columns that depend on a plain key (`s`, where the
//! input is itself grouped by `k`) to the group, which would make the sets alike.

use sqlparser::ast::Expr;

/// The most sets that a `GROUP BY` is written out to; more are left to the planner.
const SETS_MAX: usize = 4096;

/// Writes a `GROUP BY` that has grouping sets beside other keys as one list of sets.
pub(super) fn rewrite(keys: &mut Vec<Expr>) {
    let grouped = |e: &Expr| matches!(e, Expr::Rollup(_) | Expr::Cube(_) | Expr::GroupingSets(_));
    if keys.len() < 2 || !keys.iter().any(grouped) {
        return;
    }
    let mut sets: Vec<Vec<Expr>> = vec![Vec::new()];
    for key in keys.iter() {
        let choices = choices(key);
        if sets.len() * choices.len() > SETS_MAX {
            return;
        }
        sets = sets.iter().flat_map(|set| choices.iter().map(|choice| joined(set, choice))).collect();
    }
    *keys = vec![Expr::GroupingSets(sets)];
}

/// The sets that one element of a `GROUP BY` stands for.
fn choices(key: &Expr) -> Vec<Vec<Expr>> {
    match key {
        Expr::GroupingSets(sets) => sets.clone(),
        Expr::Rollup(parts) => (0..=parts.len()).rev().map(|n| parts[..n].concat()).collect(),
        Expr::Cube(parts) if parts.len() < 12 => (0..1usize << parts.len())
            .rev()
            .map(|picks| {
                // The first part is the highest bit, so that the full set comes first.
                let picked = |i: &usize| picks & (1 << (parts.len() - 1 - i)) != 0;
                (0..parts.len()).filter(picked).flat_map(|i| parts[i].clone()).collect()
            })
            .collect(),
        plain => vec![vec![plain.clone()]],
    }
}

fn joined(set: &[Expr], more: &[Expr]) -> Vec<Expr> {
    let mut all = set.to_vec();
    for expr in more {
        if !all.contains(expr) {
            all.push(expr.clone());
        }
    }
    all
}
