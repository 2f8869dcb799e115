//! The jobs of `examples/databases`, which every database runs alike.

use std::process::Command;

use crate::harness::{Scratch, finish, root, text, tidemill};

/// A database and how it is asked without us.
pub struct Database<'a> {
    /// What `-D` says of it.
    pub defines: Vec<String>,
    /// The number that a statement gives.
    pub number: &'a dyn Fn(&str) -> i64,
    /// Runs a statement.
    pub run: &'a dyn Fn(&str),
}

impl Database<'_> {
    fn job(&self, name: &str, more: &[&str]) -> Command {
        let mut command = tidemill();
        command.arg("run").arg(root().join("examples/databases").join(name)).arg("--quiet");
        for define in self.defines.iter().map(String::as_str).chain(more.iter().copied()) {
            command.args(["-D", define]);
        }
        command
    }

    /// Both jobs, on tables that are not there yet.
    pub fn check(&self) {
        self.events_are_inserted();
        self.events_are_updated();
    }

    fn events_are_inserted(&self) {
        let scratch = Scratch::new("database-insert");
        let (state, metrics) = (scratch.at("state"), scratch.at("metrics.json"));
        let count = || (self.number)("SELECT COUNT(*) FROM process_events");
        let once = || {
            succeeds(self.job("insert.sql", &["EVENTS=20000"]).args(["--state-dir", &state, "--metrics", &metrics]));
            let summary = std::fs::read_to_string(&metrics).expect("the metrics");
            let summary: serde_json::Value = serde_json::from_str(&summary).expect("JSON");
            summary["latency_ms"]["max"].as_f64().expect("a number")
        };
        assert!(once() > 0.0, "commits are noted");
        assert_eq!(count(), 20_000);
        let good = "event_id BETWEEN 0 AND 19999 AND length(message) = 84 AND cpu BETWEEN 0 AND 100";
        assert_eq!((self.number)(&format!("SELECT COUNT(DISTINCT event_id) FROM process_events WHERE {good}")), 20_000);
        let first = "SELECT COUNT(*) FROM process_events WHERE event_time = '2024-01-01 00:00:00.000' AND event_id = 0";
        assert_eq!((self.number)(first), 1);
        // A job that is finished stays so; without a state directory it is another one.
        once();
        assert_eq!(count(), 20_000);
        succeeds(&mut self.job("insert.sql", &["EVENTS=100"]));
        assert_eq!(count(), 20_100);
    }

    fn events_are_updated(&self) {
        succeeds(&mut self.job("fill.sql", &["ROWS=5000"]));
        let count = || (self.number)("SELECT COUNT(*) FROM process_states");
        assert_eq!(count(), 5_000);
        (self.run)("CREATE TABLE states_before AS SELECT * FROM process_states");
        succeeds(&mut self.job("update.sql", &["LAST=4999", "EVENTS=20000"]));
        assert_eq!(count(), 5_000);
        let both = "process_states AS s JOIN states_before AS b ON s.event_id = b.event_id";
        let changed = (self.number)(&format!("SELECT COUNT(*) FROM {both} WHERE s.message <> b.message"));
        // Of 20,000 draws from 5,000 a key is missed by all with a chance of one in 55.
        assert!((4700..5000).contains(&changed), "{changed} rows were updated");
    }
}

#[track_caller]
fn succeeds(command: &mut Command) {
    let output = finish(command);
    assert!(output.status.success(), "{command:?}\n{}", text(&output));
}
