//! Tables that are asked again and again for what they have grown by, over servers: every row comes once, also to a job that was
//! killed in between.

use crate::harness::{Background, Scratch, tidemill, wait_for};

/// A database that is asked without us.
pub struct Polled<'a> {
    /// What stands behind the columns of a table of this name, with more options.
    pub with: &'a dyn Fn(&str, &str) -> String,
    /// The database's type for `TIMESTAMP(3)`.
    pub timestamp: &'a str,
    /// Runs a statement.
    pub run: &'a dyn Fn(&str),
    /// The number that a statement gives.
    pub number: &'a dyn Fn(&str) -> i64,
}

/// Rows that come at once.
const STEP: u64 = 500;

impl Polled<'_> {
    /// By a number, and by a time.
    pub fn check(&self) {
        self.by("id");
        self.by("seen");
    }

    fn by(&self, column: &str) {
        for table in ["growing", "grown"] {
            (self.run)(&format!("CREATE TABLE {table} (id BIGINT, seen {})", self.timestamp));
        }
        let scratch = Scratch::new("polled");
        let columns = "id BIGINT, seen TIMESTAMP(3)";
        let polled = format!(", 'scan.poll.column' = '{column}', 'scan.poll.interval' = '10 ms'");
        let sql = format!(
            "SET 'execution.checkpointing.interval' = '30 ms';\n\
             CREATE TABLE growing ({columns}) {};\nCREATE TABLE grown ({columns}) {};\nINSERT INTO grown SELECT * FROM growing;\n",
            (self.with)("growing", &polled),
            (self.with)("grown", ""),
        );
        let (job, state) = (scratch.write("job.sql", sql), scratch.at("state"));
        let start = || Background::start(tidemill().args(["run", &job, "--quiet", "--state-dir", &state]));
        let grow = |step: u64| {
            let row = |id: u64| format!("({id}, '2024-01-01 00:00:{:02}.{:03}')", id / 1000, id % 1000);
            let rows: Vec<String> = (step * STEP..(step + 1) * STEP).map(row).collect();
            (self.run)(&format!("INSERT INTO growing VALUES {}", rows.join(", ")));
        };
        let copied = |running: &mut Background, rows: u64| {
            wait_for(&format!("{rows} rows by {column}"), || {
                let ended = running.0.try_wait().expect("waiting for the job").is_some();
                assert!(!ended, "{rows} rows by {column}: {}", running.end().1);
                (self.number)("SELECT COUNT(*) FROM grown") >= rows as i64
            });
        };
        grow(0);
        let mut running = start();
        copied(&mut running, STEP);
        // Perhaps it sees some of these, and its checkpoint not all of what it sees.
        grow(1);
        drop(running);
        let mut running = start();
        copied(&mut running, 2 * STEP);
        grow(2);
        copied(&mut running, 3 * STEP);
        drop(running);
        let both = "SELECT COUNT(*) FROM growing AS g JOIN grown AS c ON g.id = c.id AND g.seen = c.seen";
        let counts = ["SELECT COUNT(*) FROM grown", "SELECT COUNT(DISTINCT id) FROM grown", both].map(|sql| (self.number)(sql) as u64);
        assert_eq!(counts, [3 * STEP; 3], "by {column}");
        ["growing", "grown"].iter().for_each(|table| (self.run)(&format!("DROP TABLE {table}")));
    }
}
