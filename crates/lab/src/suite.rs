//! A directory of jobs: each is run, and one table compares them.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::run::{self, Measured};
use crate::table::{grouped, median};

/// A suite of jobs.
#[derive(Clone, Debug)]
pub struct Suite {
    /// The directory; its `.sql` files are the jobs, each a single one.
    pub directory: PathBuf,
    /// Further arguments of every run.
    pub arguments: Vec<String>,
    /// How many events each job is given, if that is not the number of rows that its sources read.
    pub events: Option<u64>,
    /// Runs of each job.
    pub runs: usize,
    /// Where `results.csv` and `results.md` go, if anywhere.
    pub out: Option<PathBuf>,
}

/// What became of a suite.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The table, as Markdown.
    pub table: String,
    /// Jobs that failed, with what they said.
    pub failures: Vec<String>,
}

/// All runs of one job.
struct Query {
    name: String,
    job: PathBuf,
    runs: Vec<Measured>,
    failed: bool,
}

impl Suite {
    /// Runs every job; `note` is told of each run. A job that fails is left out from then on.
    ///
    /// # Errors
    /// A directory without jobs, a file that cannot be written.
    pub fn run(&self, note: &mut dyn FnMut(String)) -> Result<Outcome, String> {
        let mut queries = self.queries()?;
        let mut failures = Vec::new();
        // Round after round, so that a machine whose speed drifts is unfair to none.
        for round in 0..self.runs {
            for query in queries.iter_mut().filter(|q| !q.failed) {
                match run::run_job(&query.job, &self.arguments) {
                    Ok(measured) => {
                        note(format!("run {}/{}  {}  {:.3} s", round + 1, self.runs, query.name, measured.elapsed_s));
                        query.runs.push(measured);
                    }
                    Err(why) => {
                        note(format!("run {}/{}  {}  failed", round + 1, self.runs, query.name));
                        query.failed = true;
                        failures.push(format!("{}: {why}", query.name));
                    }
                }
            }
        }
        let table = self.markdown(&queries);
        if let Some(dir) = &self.out {
            let failed = |e: std::io::Error| format!("writing results to '{}': {e}", dir.display());
            std::fs::create_dir_all(dir).map_err(failed)?;
            std::fs::write(dir.join("results.csv"), self.csv(&queries)).map_err(failed)?;
            std::fs::write(dir.join("results.md"), &table).map_err(failed)?;
        }
        Ok(Outcome { table, failures })
    }

    /// The jobs of the directory, in the order of the numbers in their names.
    fn queries(&self) -> Result<Vec<Query>, String> {
        let failed = |e: std::io::Error| format!("reading the directory '{}': {e}", self.directory.display());
        let mut jobs = Vec::new();
        for entry in std::fs::read_dir(&self.directory).map_err(failed)? {
            let job = entry.map_err(failed)?.path();
            if job.extension().is_some_and(|e| e == "sql") && job.is_file() {
                jobs.push(job);
            }
        }
        if jobs.is_empty() {
            return Err(format!("the directory '{}' has no jobs (files with the ending .sql)", self.directory.display()));
        }
        let name = |job: &PathBuf| job.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
        jobs.sort_by_cached_key(|job| natural(&name(job)));
        Ok(jobs.into_iter().map(|job| Query { name: name(&job), job, runs: Vec::new(), failed: false }).collect())
    }

    fn events(&self, run: &Measured) -> u64 {
        self.events.unwrap_or(run.rows_in)
    }

    /// The figures of a run, in the order of [`HEAD`].
    fn figures(&self, run: &Measured) -> [f64; 7] {
        let events = self.events(run) as f64;
        let cpu_s = run.user_s + run.sys_s;
        [
            run.elapsed_s,
            cpu_s,
            events / run.elapsed_s.max(1e-9),
            events / cpu_s.max(1e-9),
            run.latency_ms.p99,
            run.peak_memory_bytes as f64 / 1_048_576.0,
            run.rows_out as f64,
        ]
    }

    /// Medians over the runs of each job.
    fn markdown(&self, queries: &[Query]) -> String {
        let mut out = format!("| query | events | {} |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|\n", HEAD.join(" | "));
        for query in queries {
            let Some(first) = query.runs.first().filter(|_| !query.failed) else {
                let _ = writeln!(out, "| {} | failed | | | | | | | |", query.name);
                continue;
            };
            let median_of = |figure: usize| median(&query.runs, |run| self.figures(run)[figure]);
            let _ = writeln!(
                out,
                "| {} | {} | {:.2} | {:.2} | {} | {} | {:.1} | {:.0} | {} |",
                query.name,
                grouped(self.events(first)),
                median_of(0),
                median_of(1),
                grouped(median_of(2) as u64),
                grouped(median_of(3) as u64),
                median_of(4),
                median_of(5),
                grouped(median_of(6) as u64),
            );
        }
        out
    }

    /// Every run as a line.
    fn csv(&self, queries: &[Query]) -> String {
        let names = HEAD.map(|name| name.replace([' ', '/'], "_"));
        let mut out = format!("query,run,events,{}\n", names.join(","));
        for query in queries {
            for (number, run) in query.runs.iter().enumerate() {
                let figures = self.figures(run).map(|figure| format!("{figure:.6}"));
                let _ = writeln!(out, "{},{},{},{}", query.name, number + 1, self.events(run), figures.join(","));
            }
        }
        out
    }
}

const HEAD: [&str; 7] = ["seconds", "CPU s", "events/s", "events/s per core", "p99 ms", "memory MB", "rows out"];

/// A key by which `q2` comes before `q10`: texts and numbers in turn.
fn natural(name: &str) -> Vec<(String, u64)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let text = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let digits = rest[text..].find(|c: char| !c.is_ascii_digit()).map_or(rest.len(), |end| text + end);
        parts.push((rest[..text].to_string(), rest[text..digits].parse().unwrap_or(0)));
        rest = &rest[digits..];
    }
    parts
}

#[cfg(test)]
mod tests;
