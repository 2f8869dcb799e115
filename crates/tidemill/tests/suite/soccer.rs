//! The pattern over the sensors of a soccer match finds the goals that the generator lists.

use crate::harness::{Scratch, finish, fold, root, text, tidemill};

/// The rows of an example, folded and sorted. The match lasts 104 seconds and has a goal in each 20.
fn rows(example: &str, arguments: &[&str]) -> Vec<String> {
    let scratch = Scratch::new("soccer");
    let sql = std::fs::read_to_string(root().join(example)).expect("the example");
    let printed = sql.replace("'${SINK:-blackhole}'", "'print', 'print-identifier' = 'out'");
    assert_ne!(sql, printed, "{example} has a sink that can be chosen");
    let job = scratch.write("job.sql", printed);
    let mut command = tidemill();
    command.args(["run", &job, "--quiet", "-D", "ROWS=1500000", "-D", "INTERVAL=20 s", "-D", "SEED=7"]);
    let output = finish(command.args(["--set", "debug.check-operators=true"]).args(arguments));
    assert!(output.status.success(), "{example} {arguments:?}: {}", text(&output));
    fold(&String::from_utf8_lossy(&output.stdout), "out")
}

#[test]
fn the_pattern_finds_the_goals() {
    let listed = rows("examples/soccer/goals_listed.sql", &[]);
    assert_eq!(listed.len(), 5, "{listed:#?}");
    let ways: [&[&str]; 4] = [
        &["--parallelism", "1"],
        &["--parallelism", "2"],
        &["--parallelism", "3", "--set", "block.size=1000"],
        &["--parallelism", "2", "--set", "block.size=7"],
    ];
    for way in ways {
        let found = rows("examples/soccer/goals.sql", way);
        let goals: Vec<String> = found.iter().map(|row| row.split(", ").take(4).collect::<Vec<_>>().join(", ")).collect();
        assert_eq!(goals, listed, "{way:?}");
        for row in &found {
            let fields: Vec<&str> = row.split(", ").collect();
            let number = |index: usize| fields[index].parse::<i64>().expect("a number");
            // The ball was last seen beside the posts less than two seconds before.
            assert!((1..2_000_000_000_000).contains(&(number(2) - number(4))), "{row}");
        }
    }
}
