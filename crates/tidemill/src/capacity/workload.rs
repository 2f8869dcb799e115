//! What is done in a month: as the command line says, and where it does not, as summaries of runs say.

use std::path::Path;
use std::str::FromStr;

use serde_json::Value;
use tidemill_format::options::{ByteSize, OptionValue};

use crate::args::CostArgs;

/// Bytes that one request of a reader asks for, and of one part of an upload (`store.read-size`, `store.part-size`).
const READ_BYTES: u64 = 4 << 20;
const PART_BYTES: u64 = 8 << 20;
/// Operations of an upload beside its parts: begin, complete, a mark that names it and its removal.
const UPLOAD_OPERATIONS: u64 = 4;

/// `parquet=2GB`, or a size alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// What the bytes are, for people.
    pub format: String,
    pub bytes: u64,
}

impl FromStr for Stored {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (format, size) = text.split_once('=').unwrap_or(("files", text));
        let ByteSize(bytes) = ByteSize::parse(size)?;
        Ok(Stored { format: format.trim().to_string(), bytes })
    }
}

/// A month.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workload {
    /// What is kept, each on its own: the same data in other formats.
    pub stored: Vec<Stored>,
    /// Operations that write or list.
    pub class_a: u64,
    /// Operations that read.
    pub class_b: u64,
    /// Bytes that leave the storage.
    pub egress: u64,
    /// Hours of machines.
    pub hours: f64,
    /// How figures were found that nobody gave.
    pub notes: Vec<String>,
}

impl Workload {
    /// The workload that the options say.
    ///
    /// # Errors
    /// A summary that is none; nothing that is stored.
    pub fn of(args: &CostArgs) -> Result<Workload, String> {
        let mut ran = Ran::default();
        for path in &args.summary {
            ran.add(&read(path)?).map_err(|why| format!("the summary '{}': {why}", path.display()))?;
        }
        let ran = ran.times(args.runs);
        let mut notes = Vec::new();
        let mut found = |given: Option<u64>, of_runs: u64, note: &str| {
            if given.is_none() && of_runs > 0 {
                notes.push(format!("{of_runs} {note}"));
            }
            given.unwrap_or(of_runs)
        };
        let class_a =
            found(args.class_a, ran.class_a, "operations of class A: estimated, parts of 8 MB of what was written, and 4 for each sink");
        let class_b =
            found(args.class_b, ran.class_b, "operations of class B: estimated, pieces of 4 MB of what was read over the network");
        let egress =
            found(args.egress.map(|size| size.0), ran.network, "bytes out: what was read over the network; within a region --egress 0");
        let mut stored = args.stored.clone();
        if stored.is_empty() && ran.written > 0 {
            notes.push(format!("{} bytes stored: what was written", ran.written));
            stored.push(Stored { format: "output".to_string(), bytes: ran.written });
        }
        if stored.is_empty() {
            return Err("nothing is stored: say how much, as in --stored parquet=200GB, or name the summary of a run that wrote something"
                .to_string());
        }
        Ok(Workload { stored, class_a, class_b, egress, hours: args.hours.unwrap_or(ran.hours), notes })
    }
}

/// What runs did, by their summaries.
#[derive(Clone, Debug, Default, PartialEq)]
struct Ran {
    hours: f64,
    network: u64,
    written: u64,
    class_a: u64,
    class_b: u64,
}

impl Ran {
    /// Adds a summary, or a list of them.
    fn add(&mut self, summary: &Value) -> Result<(), String> {
        if let Some(jobs) = summary.as_array() {
            return jobs.iter().try_for_each(|job| self.add(job));
        }
        let lacks = |what: &str| format!("it has no '{what}'; it shall be what `tidemill run --metrics FILE` has written");
        let seconds = summary["elapsed_s"].as_f64().ok_or_else(|| lacks("elapsed_s"))?;
        let nodes = summary["nodes"].as_array().ok_or_else(|| lacks("nodes"))?;
        self.hours += seconds / 3600.0;
        let network = summary["read"]["network"].as_u64().unwrap_or(0);
        self.network += network;
        self.class_b += network.div_ceil(READ_BYTES);
        for sink in nodes.iter().filter(|node| node["name"].as_str().is_some_and(|name| name.starts_with("Sink "))) {
            let bytes = sink["bytes"].as_u64().unwrap_or(0);
            if bytes > 0 {
                self.written += bytes;
                self.class_a += bytes.div_ceil(PART_BYTES) + UPLOAD_OPERATIONS;
            }
        }
        Ok(())
    }

    /// As often as it runs in a month.
    fn times(self, runs: u64) -> Ran {
        Ran {
            hours: self.hours * runs as f64,
            network: self.network.saturating_mul(runs),
            written: self.written.saturating_mul(runs),
            class_a: self.class_a.saturating_mul(runs),
            class_b: self.class_b.saturating_mul(runs),
        }
    }
}

fn read(path: &Path) -> Result<Value, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("reading the summary '{}': {e}", path.display()))?;
    serde_json::from_str(&text).map_err(|e| format!("the summary '{}' is no JSON: {e}", path.display()))
}
