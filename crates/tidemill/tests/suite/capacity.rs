//! `tidemill capacity`: what a month costs, by the prices that are built in and by those of a file.

use std::process::Output;

use crate::failures::expect;
use crate::harness::{Scratch, finish, tidemill};

/// What a command printed that ended well.
#[track_caller]
fn printed(output: &Output) -> String {
    expect(output, 0, &[]);
    String::from_utf8(output.stdout.clone()).expect("output in UTF-8")
}

#[test]
fn the_prices_that_are_printed_are_those_that_are_used() {
    let scratch = Scratch::new("capacity");
    let prices = printed(&finish(tidemill().args(["capacity", "prices"])));
    let month = ["capacity", "cost", "--stored", "csv=2560GB", "--class-a", "1000000", "--class-b", "1000000"];
    let bill = printed(&finish(tidemill().args(month)));
    assert!(bill.contains("\nbucket   csv     2560.0 GB   51.20        5.40     0.00     0.00   56.60\n"), "{bill}");
    let file = scratch.write("prices.toml", &prices);
    assert_eq!(printed(&finish(tidemill().args(month).args(["--prices", &file]))), bill);
    let file = scratch.write("edited.toml", prices.replace("gb-month = 0.020", "gb-month = 0,020"));
    expect(
        &finish(tidemill().args(month).args(["--prices", &file])),
        2,
        &["edited.toml", "line ", "expected a number such as 0.05", "'0,020'"],
    );
}

#[test]
fn the_summary_of_a_run_says_what_it_needs() {
    let scratch = Scratch::new("capacity-run");
    let job = "CREATE TABLE s WITH ('connector' = 'filesystem', 'path' = '${OUT}', 'format' = 'csv')
        AS SELECT * FROM (VALUES (1), (2)) AS v (a);";
    let (job, summary) = (scratch.write("job.sql", job), scratch.at("summary.json"));
    let out = format!("OUT={}", scratch.at("out"));
    expect(&finish(tidemill().args(["run", &job, "-q", "-D", &out, "--metrics", &summary])), 0, &[]);
    let bill = printed(&finish(tidemill().args(["capacity", "cost", "--summary", &summary, "--runs", "3"])));
    // Two rows of a digit and a line end each, three times; a part and four operations more, three times.
    for part in ["output", "12 bytes stored", "15 operations of class A"] {
        assert!(bill.contains(part), "{part} is not in:\n{bill}");
    }
}
