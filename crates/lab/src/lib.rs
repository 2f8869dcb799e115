//! Benchmarks: a job over every combination of some settings, or a directory of jobs, several times,
//! interleaved.
//!
//! Each run is a process of its own, so that CPU time and peak memory are its own. Results are a
//! table for people, `results.csv` with every single run, `summary.csv` with medians and ranges, and
//! `plot.svg`. What does not live here: anything that runs a job.

mod plot;
mod run;
mod suite;
mod table;

use std::path::PathBuf;

pub use run::Measured;
pub use suite::{Outcome, Suite};

/// A setting and the values it is swept over.
#[derive(Clone, Debug)]
pub struct Vary {
    /// The setting, or `parallelism`.
    pub key: String,
    /// Its values as text.
    pub values: Vec<String>,
}

/// An adapter that feeds the job, which then runs in a server.
#[derive(Clone, Debug)]
pub struct Adapter {
    /// What it reads: the options of a connector, as `tidemill adapter --from` takes them.
    pub from: String,
    /// The stream that it publishes into.
    pub stream: String,
    /// The server keeps checkpoints. Without, nothing is written that a job fed by a connector, which begins
    /// anew after a crash, would not write either.
    pub keeps_state: bool,
}

/// A sweep.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The job file.
    pub job: PathBuf,
    /// Further arguments of every run.
    pub arguments: Vec<String>,
    /// Feed the job through an adapter; the cost of both processes is added up.
    pub adapter: Option<Adapter>,
    /// What is swept.
    pub vary: Vec<Vary>,
    /// Runs of each combination.
    pub runs: usize,
    /// Where `results.csv`, `results.txt`, `summary.csv` and `plot.svg` go, if anywhere.
    pub out: Option<PathBuf>,
}

/// All runs of one combination.
#[derive(Clone, Debug)]
pub struct Combination {
    /// The values, in the order of [`Bench::vary`].
    pub values: Vec<String>,
    /// The runs.
    pub runs: Vec<Measured>,
}

impl Bench {
    /// Runs everything; `note` is told of each run. The table is returned.
    ///
    /// # Errors
    /// A run that fails (with its message), a file that cannot be written.
    pub fn run(&self, note: &mut dyn FnMut(String)) -> Result<String, String> {
        let mut combinations: Vec<Combination> =
            self.combinations().into_iter().map(|values| Combination { values, runs: Vec::new() }).collect();
        // Round after round, so that a machine whose speed drifts is unfair to none.
        for round in 0..self.runs {
            for combination in &mut combinations {
                let measured = run::run(self, &combination.values)?;
                note(format!("run {}/{}  {}  {:.3} s", round + 1, self.runs, self.label(&combination.values), measured.elapsed_s));
                combination.runs.push(measured);
            }
        }
        let keys: Vec<&str> = self.vary.iter().map(|v| v.key.as_str()).collect();
        if let Some(dir) = &self.out {
            let failed = |e: std::io::Error| format!("writing results to '{}': {e}", dir.display());
            std::fs::create_dir_all(dir).map_err(failed)?;
            std::fs::write(dir.join("results.csv"), table::csv(&keys, &combinations)).map_err(failed)?;
            std::fs::write(dir.join("summary.csv"), table::summary(&keys, &combinations)).map_err(failed)?;
            std::fs::write(dir.join("results.txt"), table::text(&keys, &combinations)).map_err(failed)?;
            std::fs::write(dir.join("plot.svg"), plot::svg(&self.title(), &keys, &combinations)?).map_err(failed)?;
        }
        Ok(table::text(&keys, &combinations))
    }

    fn title(&self) -> String {
        self.job.file_stem().map_or_else(|| "job".into(), |s| s.to_string_lossy().into_owned())
    }

    fn label(&self, values: &[String]) -> String {
        self.vary.iter().zip(values).map(|(v, value)| format!("{}={value}", v.key)).collect::<Vec<_>>().join(" ")
    }

    /// Every combination of values, the first setting varying slowest.
    fn combinations(&self) -> Vec<Vec<String>> {
        let mut all: Vec<Vec<String>> = vec![Vec::new()];
        for vary in &self.vary {
            all = all
                .iter()
                .flat_map(|head| vary.values.iter().map(|v| [head.as_slice(), std::slice::from_ref(v)].concat()).collect::<Vec<_>>())
                .collect();
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_combinations_in_order() {
        let vary = |key: &str, values: &[&str]| Vary { key: key.into(), values: values.iter().map(|s| s.to_string()).collect() };
        let bench = Bench {
            job: "j.sql".into(),
            arguments: vec![],
            adapter: None,
            vary: vec![vary("a", &["1", "2"]), vary("b", &["x", "y"])],
            runs: 1,
            out: None,
        };
        assert_eq!(bench.combinations(), [["1", "x"], ["1", "y"], ["2", "x"], ["2", "y"]]);
    }
}
