//! Attempts that are moved together find what each finds alone, in the same order; and when they are moved together.

use super::*;

/// What is seen of a run.
#[derive(Debug, PartialEq)]
struct Seen {
    /// In the order in which they came.
    lines: Vec<String>,
    /// After each block: the watermark, and what is held.
    after: Vec<(i64, u64)>,
    dropped: u64,
    /// Links that are left at the end.
    links: usize,
}

/// How rows come.
#[derive(Clone, Copy, Debug)]
struct Course {
    size: usize,
    restart_at: Option<usize>,
}

fn sizes(run: &Run) -> Vec<usize> {
    let mut sizes: Vec<usize> = run.operator.keys.iter().filter_map(|k| k.groups.as_ref()).flat_map(|g| g.sizes()).collect();
    sizes.sort();
    sizes
}

/// A run in which attempts are moved together where a key has `attempts_min`, and the size of its largest group.
fn seen(spec: &PatternMatchSpec, attempts_min: usize, rows: &[Row], course: Course) -> Result<(Seen, usize), OperatorError> {
    let mut run = Run::new(spec.clone())?;
    run.operator.built.machine.grouping.attempts_min = attempts_min;
    let (mut after, mut dropped, mut largest) = (Vec::new(), 0, 0);
    for (number, chunk) in rows.chunks(course.size).enumerate() {
        let rest = &rows[(number * course.size + chunk.len()).min(rows.len())..];
        let watermark = rest.iter().map(|r| r.time - 1).min().unwrap_or(chunk[chunk.len() - 1].time);
        run.feed(chunk, watermark)?;
        after.push((run.reached, run.operator.stats().entries));
        largest = largest.max(sizes(&run).into_iter().max().unwrap_or(0));
        if course.restart_at == Some(number) {
            dropped += run.operator.stats().dropped_matches;
            run.restart()?;
            after.push((run.reached, run.operator.stats().entries));
        }
    }
    run.feed(&[], WATERMARK_END)?;
    after.push((run.reached, run.operator.stats().entries));
    dropped += run.operator.stats().dropped_matches;
    let links = run.operator.built.machine.chains.len();
    Ok((Seen { lines: run.lines, after, dropped, links }, largest))
}

impl Random {
    /// A pattern of which many matches wait at once.
    fn waiting(&mut self) -> PatternMatchSpec {
        let mut case = self.case();
        case.skip = AfterMatchSkip::ToNextRow;
        case.outputs.retain(|w| *w != Wanted::Number);
        if case.outputs.is_empty() {
            case.outputs.push(Wanted::LastId);
        }
        if let RowsPerMatch::All { unmatched, .. } = &mut case.rows {
            *unmatched = false;
        }
        if !self.chance(3) {
            case.pattern = match self.below(6) {
                0 | 1 => Pattern::Concat(vec![symbol(0), symbol(1), symbol(2)]),
                2 => Pattern::Concat(vec![symbol(0), many(symbol(1), 0, None, true), symbol(2)]),
                3 => Pattern::Concat(vec![symbol(0), many(symbol(1), 0, None, false), symbol(2)]),
                4 => Pattern::Concat(vec![symbol(0), many(symbol(1), 1, Some(3), self.chance(2)), symbol(2), symbol(0)]),
                _ => Pattern::Concat(vec![symbol(0), Pattern::Alternate(vec![symbol(1), symbol(2)]), many(symbol(1), 1, None, true)]),
            };
            case.tests[0] = Test::Below(4 + self.below(6) as i64);
            if self.chance(2) {
                case.tests[1] = if self.chance(2) { Test::Always } else { Test::AtLeast(self.below(9) as i64) };
            }
            if self.chance(2) {
                case.tests[2] = Test::AtLeast(6 + self.below(4) as i64);
            }
        }
        let contiguity = if self.chance(2) { Contiguity::Relaxed } else { Contiguity::Strict };
        let partial_matches_max = if self.chance(4) { 1 + self.below(12) as usize } else { 300 };
        let at_bound = if self.chance(4) { AtBound::Fail } else { AtBound::DropOldest };
        PatternMatchSpec { contiguity, bounds: Bounds { partial_matches_max, at_bound }, in_order: self.chance(2), ..case.spec() }
    }

    fn many_rows(&mut self) -> Vec<Row> {
        let (keys, mut time) = (1 + self.below(2), 0i64);
        (0..20 + self.below(25) as i64)
            .map(|id| {
                time += self.below(3) as i64;
                let value = (!self.chance(12)).then(|| self.below(10) as i64);
                Row { id, key: self.below(keys) as i64, time, value }
            })
            .collect()
    }
}

#[test]
fn together_is_as_alone() {
    let (mut grouped, mut matched, mut failed) = (0, 0, 0);
    for seed in 0..1_500u64 {
        let mut random = Random(seed.wrapping_mul(0x0fed_cba9_8765_4321));
        let (spec, rows) = (random.waiting(), random.many_rows());
        for size in [1, 6, 100] {
            let blocks = rows.len().div_ceil(size) as u64;
            let course = Course { size, restart_at: random.chance(2).then(|| random.below(blocks) as usize) };
            let alone = seen(&spec, usize::MAX, &rows, course);
            for attempts_min in [1, 3] {
                let together = seen(&spec, attempts_min, &rows, course);
                let what = || {
                    let names = |s: usize| NAMES[s].to_string();
                    let (pattern, looking) = (spec.pattern.to_sql(&names), spec.symbols.iter().map(|s| (&s.simple, &s.looking)));
                    let looking: Vec<_> = looking.collect();
                    let (within, rows_per) = (spec.within_ms, spec.rows);
                    format!(
                        "seed {seed}, {course:?}, together from {attempts_min}\n{pattern} {:?} within {within:?}, {rows_per:?}, {:?}\n{looking:#?}\n{rows:#?}",
                        spec.contiguity, spec.bounds
                    )
                };
                match (&alone, together) {
                    (Ok((alone, none)), Ok((together, largest))) => {
                        assert_eq!(*none, 0, "groups where there must be none");
                        assert!(*alone == together, "alone\n{alone:#?}\ntogether\n{together:#?}\n{}", what());
                        grouped += usize::from(largest > 1);
                        matched += usize::from(largest > 1 && !alone.lines.is_empty());
                    }
                    // Which of the attempts is named that are at the bound may differ.
                    (Err(_), Err(_)) => failed += 1,
                    (alone, together) => panic!("alone {alone:?}, together {together:?}: {}", what()),
                }
            }
        }
    }
    let enough = grouped > 1_000 && matched > 500 && failed > 20;
    assert!(enough, "{grouped} runs had groups, {matched} of them matches, {failed} failed: not much of a test");
}

/// `A W* B`, the one after the other, and where W may be A.
fn between(within: Option<i64>, outputs: &[Wanted]) -> PatternMatchSpec {
    let pattern = Pattern::Concat(vec![symbol(0), many(symbol(2), 0, None, true), symbol(1)]);
    let mut case = one(pattern, &[Test::Below(5), Test::AtLeast(9), Test::Below(5)], within, outputs);
    case.skip = AfterMatchSkip::ToNextRow;
    case.spec()
}

/// `A -> B -> C`, every A.
fn follows(tests: &[Test]) -> PatternMatchSpec {
    let outputs = [Wanted::LastOf(0), Wanted::LastOf(1), Wanted::LastOf(2)];
    let mut case = one(Pattern::Concat(vec![symbol(0), symbol(1), symbol(2)]), tests, None, &outputs);
    case.skip = AfterMatchSkip::ToNextRow;
    PatternMatchSpec { contiguity: Contiguity::Relaxed, ..case.spec() }
}

/// Rows of these values, a millisecond apart.
fn each_ms(values: impl IntoIterator<Item = i64>) -> Vec<Row> {
    rows(&values.into_iter().enumerate().map(|(time, value)| (time as i64, value)).collect::<Vec<_>>())
}

#[test]
fn many_wait_as_one() {
    let mut run = Run::new(between(None, &[Wanted::FirstId, Wanted::LastId])).unwrap();
    let all = each_ms((0..100).map(|_| 1).chain([9, 1]));
    run.feed(&all[..7], 6).unwrap();
    assert!(sizes(&run).is_empty(), "a few are moved one by one");
    run.feed(&all[7..100], 99).unwrap();
    assert_eq!(sizes(&run), [100]);
    // The rows, and a partial match for each.
    assert_eq!(run.operator.stats().entries, 200);
    run.restart().unwrap();
    assert_eq!((sizes(&run), run.operator.stats().entries), (vec![100], 200));
    run.feed(&all[100..], 101).unwrap();
    assert_eq!(run.lines, (0..100).map(|a| format!("7,{a},100")).collect::<Vec<_>>());
    assert_eq!((sizes(&run), run.operator.stats().entries), (vec![], 2));
}

#[test]
fn groups_become_one() {
    let mut run = Run::new(follows(&[Test::Below(2), Test::AtLeast(5), Test::AtLeast(9)])).unwrap();
    let ones = |n: usize| std::iter::repeat_n(1, n);
    let all = each_ms(ones(20).chain([5]).chain(ones(20)).chain([5]).chain(ones(10)).chain([9]));
    let mut fed = 0;
    let mut check = |upto: usize, expect: &[usize], lines: &[String]| {
        run.feed(&all[fed..upto], upto as i64 - 1).unwrap();
        fed = upto;
        assert_eq!((sizes(&run), run.lines.as_slice()), (expect.to_vec(), lines), "after {upto} rows");
        run.restart().unwrap();
        assert_eq!(sizes(&run), expect, "after {upto} rows and a restart");
    };
    check(20, &[20], &[]);
    check(41, &[20, 20], &[]);
    check(42, &[40], &[]);
    check(52, &[10, 40], &[]);
    let lines: Vec<String> = (0..20).map(|a| format!("7,{a},20,52")).chain((21..41).map(|a| format!("7,{a},41,52"))).collect();
    // The C is a B, too.
    check(53, &[10], &lines);
}

#[test]
fn a_condition_that_looks_back_parts_them() {
    let mut run = Run::new(follows(&[Test::Below(2), Test::AtLeast(5), Test::NotFirst(0)])).unwrap();
    let all = each_ms((0..10).map(|id| id % 2).chain([5, 1, 0]));
    run.feed(&all[..10], 9).unwrap();
    assert_eq!(sizes(&run), [10]);
    run.feed(&all[10..11], 10).unwrap();
    assert_eq!((sizes(&run), run.operator.stats().entries), (vec![], 21));
    run.feed(&all[11..], 12).unwrap();
    let even = (0..5).map(|n| format!("7,{},10,11", 2 * n));
    let odd = (0..5).map(|n| format!("7,{},10,12", 2 * n + 1));
    assert_eq!(run.lines, even.chain(odd).collect::<Vec<_>>());
}

#[test]
fn what_is_over_leaves_a_group() {
    // Each row begins a match and is counted by all that wait: what those took that are over must go.
    let mut run = Run::new(between(Some(50), &[Wanted::CountOf(2)])).unwrap();
    let all = each_ms((0..5_000).map(|_| 1).chain([9]));
    for (number, chunk) in all[..5_000].chunks(50).enumerate() {
        run.feed(chunk, chunk[49].time).unwrap();
        let links = run.operator.built.machine.chains.len();
        assert!(links < 250, "{links} links after {number} blocks");
        assert!(sizes(&run).iter().all(|s| *s <= 50));
        if number == 50 {
            run.restart().unwrap();
        }
    }
    run.feed(&all[5_000..], 5_000).unwrap();
    assert_eq!(run.lines, (4_951..5_000).map(|a| format!("7,{}", 4_999 - a)).collect::<Vec<_>>());
    assert_eq!((run.operator.stats().entries, run.operator.built.machine.chains.len()), (0, 0));
}

#[test]
fn the_bound_counts_all_that_wait() {
    let mut spec = between(None, &[Wanted::FirstId, Wanted::LastId]);
    let all = each_ms((0..30).map(|_| 1).chain([9]));
    spec.bounds = Bounds { partial_matches_max: 20, at_bound: AtBound::DropOldest };
    let mut run = Run::new(spec.clone()).unwrap();
    run.feed(&all[..30], 29).unwrap();
    assert_eq!((sizes(&run), run.operator.stats().dropped_matches), (vec![20], 10));
    run.feed(&all[30..], 30).unwrap();
    assert_eq!(run.lines, (10..30).map(|a| format!("7,{a},30")).collect::<Vec<_>>());
    spec.bounds.at_bound = AtBound::Fail;
    let mut run = Run::new(spec).unwrap();
    run.feed(&all[..20], 19).unwrap();
    let error = run.feed(&all[20..21], 20).unwrap_err().to_string();
    assert!(error.contains("more than 20 partial matches") && error.contains("'C' can go on without end"), "{error}");
}
