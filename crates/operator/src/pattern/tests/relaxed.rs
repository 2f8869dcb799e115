//! Siddhi's patterns and sequences: other rows between, one match only, several inputs, absence; on random rows against
//! the reference matchers, and by hand.

use super::*;

/// What a random case is of; what is counted of runs.
const KINDS: [&str; 7] = ["relaxed", "once", "inputs", "or, and", "not for", "not and", "not first"];

fn any(pattern: &Pattern, is: &dyn Fn(&Pattern) -> bool) -> bool {
    let inside = match pattern {
        Pattern::Concat(parts) | Pattern::Alternate(parts) | Pattern::Permute(parts) => parts.iter().any(|p| any(p, is)),
        Pattern::Repeat { inner, .. } | Pattern::Exclude(inner) => any(inner, is),
        _ => false,
    };
    inside || is(pattern)
}

fn absent(symbol: usize, for_ms: Option<i64>) -> Pattern {
    Pattern::Absent { symbol, for_ms }
}

fn begins_absent(pattern: &Pattern) -> bool {
    match pattern {
        Pattern::Absent { .. } => true,
        Pattern::Concat(parts) => parts.first().is_some_and(begins_absent),
        Pattern::Alternate(parts) => parts.iter().any(begins_absent),
        _ => false,
    }
}

impl Case {
    fn kinds(&self) -> [bool; 7] {
        let has = |is: &dyn Fn(&Pattern) -> bool| any(&self.pattern, is);
        [
            self.contiguity == Contiguity::Relaxed,
            !self.every,
            self.inputs.is_some(),
            has(&|p| matches!(p, Pattern::Alternate(_) | Pattern::Permute(_))),
            has(&|p| matches!(p, Pattern::Absent { for_ms: Some(_), .. })),
            has(&|p| matches!(p, Pattern::Absent { for_ms: None, .. })),
            begins_absent(&self.pattern),
        ]
    }
}

impl Random {
    /// A pattern without `^` and `$`.
    fn free_pattern(&mut self, depth: u64, exclude: bool) -> Pattern {
        loop {
            let pattern = self.pattern(depth, exclude);
            if !any(&pattern, &|p| matches!(p, Pattern::Start | Pattern::End)) {
                return pattern;
            }
        }
    }

    /// A pattern with an absence in it.
    fn absence(&mut self, exclude: bool) -> Pattern {
        let absence = {
            let x = self.below(3) as usize;
            absent(x, Some(1 + self.below(12) as i64))
        };
        let none = absent(self.below(3) as usize, None);
        let row = symbol(self.below(3) as usize);
        let part = |this: &mut Self| {
            let depth = this.below(2);
            this.free_pattern(depth, exclude)
        };
        let (before, behind) = (part(self), part(self));
        Pattern::Concat(match self.below(10) {
            0 => vec![before, absence],
            1 | 2 => vec![row, absence, behind],
            3 => vec![row, none, before, behind],
            4 => vec![row, none, absence, behind],
            5 => vec![absence, row, behind],
            6 => vec![none, row, behind],
            7 => vec![before, Pattern::Alternate(vec![row, absence]), behind],
            8 => vec![before, many(Pattern::Concat(vec![row, absence]), 1, Some(3), self.chance(2)), behind],
            _ => vec![Pattern::Alternate(vec![Pattern::Concat(vec![absence, row]), behind]), before],
        })
    }

    fn siddhi_case(&mut self) -> Case {
        let mut case = self.case();
        if let RowsPerMatch::All { unmatched, .. } = &mut case.rows {
            *unmatched = false;
        }
        let exclude = case.running();
        case.pattern = match self.below(4) {
            0 | 1 => self.absence(exclude),
            2 => self.free_pattern(2, exclude),
            _ => {
                let both = vec![symbol(self.below(3) as usize), symbol(self.below(3) as usize)];
                let pair = if self.chance(2) { Pattern::Permute(both) } else { Pattern::Alternate(both) };
                Pattern::Concat(vec![pair, self.free_pattern(1, exclude)])
            }
        };
        if !self.chance(4) {
            case.contiguity = Contiguity::Relaxed;
        }
        case.every = !self.chance(3);
        if self.chance(3) {
            case.inputs = Some((0..case.tests.len()).map(|_| self.below(2) as usize).collect());
        }
        case
    }
}

#[test]
fn random_patterns_find_what_the_reference_finds() {
    let (mut matched, mut other) = ([0usize; 7], [0usize; 3]);
    for seed in 0..6_000u64 {
        let mut random = Random(seed.wrapping_mul(0x7654_3210_fedc_ba91));
        let case = random.siddhi_case();
        let kinds = case.kinds();
        for _ in 0..2 {
            let mut rows = random.rows();
            if seed % 2 == 0 {
                rows.sort_by_key(|r| r.time);
            }
            let expected = case.expected(&rows);
            for size in [1, 3, 100] {
                let blocks = rows.len().div_ceil(size).max(1);
                let restart_at = random.chance(2).then(|| random.below(blocks as u64) as usize);
                let pattern = || case.pattern.to_sql(&|s| NAMES[s].to_string());
                let what = || format!("seed {seed}, blocks of {size}, restart {restart_at:?}, {} {case:#?}\n{rows:#?}", pattern());
                match (&expected, found(&case, &rows, size, restart_at)) {
                    (_, Err(e)) if e.to_string().contains("absence") => other[0] += 1,
                    (Err(Stop::TooLong), _) => other[1] += 1,
                    (_, Err(e)) if e.to_string().contains("partial matches") => other[1] += 1,
                    (Err(Stop::Nowhere), Err(e)) if e.to_string().contains("AFTER MATCH SKIP") => other[2] += 1,
                    (Ok(expected), Ok(found)) => {
                        assert!(*expected == found, "expected\n{}\nfound\n{}\n{}", expected.join("\n"), found.join("\n"), what());
                        if !found.is_empty() {
                            matched.iter_mut().zip(kinds).for_each(|(count, is)| *count += usize::from(is));
                        }
                    }
                    (_, result) => panic!("expected {expected:?}, found {result:?}: {}", what()),
                }
            }
        }
    }
    let enough = matched.iter().all(|count| *count > 300) && other[0] + other[1] < 6_000;
    let counts: Vec<_> = KINDS.iter().zip(matched).collect();
    assert!(enough, "runs with matches: {counts:?}; refused, too long, without a place to skip to: {other:?}: not much of a test");
}

#[test]
fn the_references_agree() {
    let mut matched = 0;
    for seed in 0..2_000u64 {
        let mut random = Random(seed.wrapping_mul(0x0bad_cafe_dead_beef));
        let mut case = random.case();
        case.pattern = random.free_pattern(2, case.running());
        let mut rows = random.rows();
        rows.sort_by_key(|r| r.time);
        let (tests, pattern, skip) = (&case.tests, &case.pattern, &case.skip);
        let search = || Search { rows: &rows, tests, pattern, within: case.within, skip, steps: Cell::new(0) };
        let expansion = Expansion { search: search(), relaxed: false, every: true, inputs: None };
        let (one, other) = (search().matches(), expansion.matches());
        if one != Err(Stop::TooLong) && other != Err(Stop::TooLong) {
            assert_eq!(one, other, "{case:#?}\n{rows:#?}");
            matched += usize::from(one.is_ok_and(|matches| !matches.is_empty()));
        }
    }
    assert!(matched > 300, "{matched} cases had matches: not much of a test");
}

/// `A` is a row of 1, `B` of 9, `C` of 5; with the last rows of these.
fn siddhi(parts: Vec<Pattern>) -> Case {
    let tests = [Test::Below(2), Test::AtLeast(8), Test::Below(6)];
    let mut case = one(Pattern::Concat(parts), &tests, None, &[Wanted::LastOf(0), Wanted::LastOf(1), Wanted::LastOf(2)]);
    case.contiguity = Contiguity::Relaxed;
    case
}

/// What is found in rows of one key, (time, value), whatever the blocks and restarts are.
#[track_caller]
fn check(case: &Case, of: &[(i64, i64)], expect: &str) {
    for size in [1, 2, 100] {
        for restart_at in [None, Some(0), Some(1)] {
            let lines = found(case, &rows(of), size, restart_at).unwrap();
            assert_eq!(lines.join(" "), expect, "blocks of {size}, restart {restart_at:?}");
        }
    }
    assert_eq!(case.expected(&rows(of)).unwrap().join(" "), expect, "the reference");
}

#[test]
fn an_absence_is_over_when_the_watermark_says_so() {
    // A -> not B for 10 ms: a row of time 10 would not end it.
    let case = siddhi(vec![symbol(0), absent(1, Some(10))]);
    let mut run = Run::new(case.spec()).unwrap();
    run.feed(&rows(&[(0, 1), (4, 5)]), 8).unwrap();
    // What leaves later is of time 0.
    assert_eq!((run.lines.len(), run.reached), (0, -1));
    run.restart().unwrap();
    run.feed(&[], 8).unwrap();
    assert!(run.lines.is_empty());
    run.feed(&[], 9).unwrap();
    assert_eq!((run.lines.join(" "), run.reached), ("7,0,null,null".to_string(), 9));
    assert_eq!((run.operator.stats().entries, run.operator.built.machine.chains.len()), (0, 0));
}

#[test]
fn an_absence_is_timed_by_events() {
    let case = siddhi(vec![symbol(0), absent(1, Some(10))]);
    check(&case, &[(0, 1), (9, 9), (30, 5)], "");
    check(&case, &[(0, 1), (10, 9)], "7,0,null,null");
    // Nothing comes behind the end.
    check(&case, &[(0, 1)], "7,0,null,null");
    // What it is in time for: less than WITHIN.
    check(&Case { within: Some(11), ..case.clone() }, &[(0, 1), (50, 5)], "7,0,null,null");
    check(&Case { within: Some(10), ..case.clone() }, &[(0, 1), (50, 5)], "");
    // Strict: rows in the time of an absence are passed over all the same.
    check(&Case { contiguity: Contiguity::Strict, ..case.clone() }, &[(0, 1), (5, 5), (10, 9)], "7,0,null,null");
    // Every A: each has its own time.
    let every = Case { skip: AfterMatchSkip::ToNextRow, ..case };
    check(&every, &[(0, 1), (3, 1), (12, 9), (20, 1), (21, 9)], "7,0,null,null");
    let once = Case { every: false, ..every };
    check(&once, &[(0, 1), (30, 1), (60, 1)], "7,0,null,null");
}

#[test]
fn an_absence_in_the_middle() {
    // A -> not B for 5 ms -> C: a C counts when the time is over.
    let case = siddhi(vec![symbol(0), absent(1, Some(5)), symbol(2)]);
    check(&case, &[(0, 1), (3, 5), (5, 5)], "7,0,null,2");
    check(&case, &[(0, 1), (3, 9), (7, 5)], "");
    check(&case, &[(0, 1), (5, 9), (6, 5)], "7,0,null,2");
    // One after the other.
    let case = siddhi(vec![symbol(0), absent(1, Some(5)), absent(2, Some(5))]);
    check(&case, &[(0, 1), (4, 5), (5, 9), (10, 5)], "7,0,null,null");
    check(&case, &[(0, 1), (7, 3)], "");
    // C, or no B for 5 ms; then B.
    let either = Pattern::Alternate(vec![symbol(2), absent(1, Some(5))]);
    let case = siddhi(vec![symbol(0), either, symbol(1)]);
    check(&case, &[(0, 1), (3, 5), (4, 9)], "7,0,2,1");
    check(&case, &[(0, 1), (6, 9)], "7,0,1,null");
    check(&case, &[(0, 1), (3, 9)], "");
}

#[test]
fn not_before_a_row() {
    // A -> not B and C.
    let case = siddhi(vec![symbol(0), absent(1, None), symbol(2)]);
    check(&case, &[(0, 1), (3, 7), (50, 5)], "7,0,null,2");
    check(&case, &[(0, 1), (3, 9), (50, 5)], "");
}

#[test]
fn an_absence_at_the_beginning() {
    // not B for 10 ms -> A: since the first row, the last B, the last match.
    let case = siddhi(vec![absent(1, Some(10)), symbol(0)]);
    check(&case, &[(0, 1), (9, 1)], "");
    check(&case, &[(0, 5), (10, 1), (12, 1), (20, 1)], "7,1,null,null 7,3,null,null");
    check(&case, &[(0, 5), (8, 9), (17, 1), (18, 1)], "7,3,null,null");
    // Of every A the same is asked.
    let every = Case { skip: AfterMatchSkip::ToNextRow, ..case };
    check(&every, &[(0, 5), (10, 1), (12, 1), (20, 9), (21, 1)], "7,1,null,null 7,2,null,null");
    // not B and A: a B costs the next A.
    let case = siddhi(vec![absent(1, None), symbol(0)]);
    check(&case, &[(0, 1), (1, 9), (2, 1), (3, 1)], "7,0,null,null 7,3,null,null");
}

#[test]
fn a_beginning_outlives_a_quiet_key() {
    // Nothing waits for the key between its rows, and still its first row is known.
    let case = siddhi(vec![absent(1, Some(10)), symbol(0)]);
    let mut run = Run::new(case.spec()).unwrap();
    for (id, (time, value)) in [(0, 5), (100, 1), (105, 1), (111, 1)].into_iter().enumerate() {
        run.feed(&[Row { id: id as i64, key: 7, time, value: Some(value) }], time).unwrap();
        run.restart().unwrap();
    }
    assert_eq!(run.lines, ["7,1,null,null", "7,3,null,null"]);
}

#[test]
fn inputs_part_the_symbols() {
    // Ids 0, 2, 4 … are of the first input, and the conditions are all true.
    let mut case =
        one(Pattern::Concat(vec![symbol(0), symbol(1)]), &[Test::Always, Test::Always], None, &[Wanted::FirstId, Wanted::LastId]);
    case.inputs = Some(vec![0, 1]);
    let all = [(0, 0), (1, 0), (2, 0), (3, 0)];
    check(&case, &all, "7,0,1 7,2,3");
    case.inputs = Some(vec![1, 0]);
    check(&case, &all, "7,1,2");
    case.inputs = Some(vec![0, 0]);
    check(&case, &all, "");
    case.contiguity = Contiguity::Relaxed;
    check(&case, &all, "7,0,2");
    // No row of the second input for 2 ms.
    case.inputs = Some(vec![0, 1]);
    case.pattern = Pattern::Concat(vec![symbol(0), absent(1, Some(2))]);
    check(&case, &all, "");
    check(&case, &[(0, 0), (5, 0), (6, 0), (7, 0)], "7,0,0");
}

#[test]
fn waiting_for_an_absence_is_bounded() {
    let mut case = siddhi(vec![symbol(0), absent(1, Some(1_000))]);
    case.skip = AfterMatchSkip::ToNextRow;
    let all: Vec<(i64, i64)> = (0..30).map(|t| (t, 1)).collect();
    let mut spec = case.spec();
    spec.bounds = Bounds { partial_matches_max: 20, at_bound: AtBound::Fail };
    let error = Run::new(spec.clone()).unwrap().feed(&rows(&all), 29).unwrap_err().to_string();
    assert!(error.contains("more than 20 partial matches") && error.contains("'B'"), "{error}");
    spec.bounds.at_bound = AtBound::DropOldest;
    let mut run = Run::new(spec).unwrap();
    run.feed(&rows(&all), 29).unwrap();
    assert_eq!(run.operator.stats().dropped_matches, 10);
    run.feed(&[], 2_000).unwrap();
    // In the order of their first rows.
    assert_eq!(run.lines, (10..30).map(|a| format!("7,{a},null,null")).collect::<Vec<_>>());
    assert_eq!(run.operator.stats().entries, 0);
}
