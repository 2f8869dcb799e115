//! Waits for a copy and sums of a table that is followed to be what the table and its sums are; if they do not become so, what
//! keeps them from it is said.

use std::time::{Duration, Instant};

use crate::harness::{Background, PATIENCE};

/// How long the differences may stay as they are. A slow machine makes some progress.
const STILL_MAX: Duration = PATIENCE;
/// How long they may take to go, however they change.
const ALL_MAX: Duration = Duration::from_secs(900);
/// How often they are counted, which costs the server more than the job does.
const COUNT_EVERY: Duration = Duration::from_millis(100);

/// How many rows are on one side only.
pub type Differences = [u64; 4];

/// What these rows are.
pub const SIDES: [&str; 4] =
    ["rows that the copy lacks", "rows of the copy that the table lacks", "sums that are lacking", "sums that are wrong"];

/// A query that counts the rows of queries.
pub fn count(sides: &[String; 4]) -> String {
    let counts: Vec<String> = sides.iter().map(|side| format!("(SELECT COUNT(*) FROM ({side}) d)")).collect();
    format!("SELECT {}", counts.join(", "))
}

/// What [`count`] gives, as a client shows it; none if it is something else.
pub fn counted(line: &str, separator: char) -> Option<Differences> {
    let counts: Vec<u64> = line.trim().split(separator).map(|n| n.parse::<u64>().ok()).collect::<Option<_>>()?;
    counts.try_into().ok()
}

/// Queries for some rows of each query, with what these are.
pub fn some(sides: &[String; 4]) -> Vec<(&'static str, String)> {
    SIDES.into_iter().zip(sides).map(|(title, side)| (title, format!("SELECT * FROM ({side}) d LIMIT 5"))).collect()
}

/// A part of a report: lines, or that nobody answers.
pub fn part(title: &str, lines: Option<Vec<String>>) -> String {
    let lines = lines.unwrap_or_else(|| vec!["no answer".into()]);
    format!("{title}:\n{}", lines.iter().map(|line| format!("  {line}\n")).collect::<String>())
}

/// Waits until nothing differs while the job runs. It is given up when the differences have stayed as they are for five minutes, or
/// have not gone after fifteen; none: the server does not answer. `report` says what the server knows.
#[track_caller]
pub fn wait_for_copy(
    what: &str,
    running: &mut Background,
    history: &[String],
    mut differences: impl FnMut() -> Option<Differences>,
    report: impl FnOnce() -> String,
) {
    let begun = Instant::now();
    let (mut found, mut changed) = (None, begun);
    let why = loop {
        if let Some(status) = running.0.try_wait().expect("waiting for the job") {
            break format!("the job ended with {status}");
        }
        let now = differences();
        if now == Some([0; 4]) {
            return;
        }
        if now.is_some() && now != found {
            (found, changed) = (now, Instant::now());
        }
        if changed.elapsed() > STILL_MAX {
            break format!("nothing has changed for {:.0?}", changed.elapsed());
        }
        if begun.elapsed() > ALL_MAX {
            break "what differs has changed again and again".to_string();
        }
        std::thread::sleep(COUNT_EVERY);
    };
    // While the job has its connections.
    let report = report();
    let _ = running.0.kill();
    let (_, said) = running.end();
    let found = match found {
        Some(counts) => SIDES.iter().zip(counts).map(|(side, count)| format!("{count} {side}")).collect::<Vec<_>>().join(", "),
        None => "the server has not answered".to_string(),
    };
    panic!("waited {:.0?} for {what}: {why}; {found}; after {}\nthe job said:\n{said}\n{report}", begun.elapsed(), history.join("; "));
}
