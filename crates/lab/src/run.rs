//! One run of a job as a process of its own.

use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use crate::Bench;

/// What one run cost, from the job's own summary.
#[derive(Clone, Debug, Deserialize)]
pub struct Measured {
    /// Wall-clock seconds.
    pub elapsed_s: f64,
    /// CPU seconds in user code.
    pub user_s: f64,
    /// CPU seconds in the kernel.
    pub sys_s: f64,
    /// Rows read a second.
    pub rows_per_s: f64,
    /// Rows read.
    pub rows_in: u64,
    /// Rows written.
    pub rows_out: u64,
    /// Most memory ever held, bytes.
    pub peak_memory_bytes: u64,
    /// Latency percentiles, ms.
    pub latency_ms: LatencyMs,
}

/// Percentiles of latency, ms.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct LatencyMs {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
}

/// Runs the job once with these values.
pub(crate) fn run(bench: &Bench, values: &[String]) -> Result<Measured, String> {
    let mut arguments = bench.arguments.clone();
    for (vary, value) in bench.vary.iter().zip(values) {
        arguments.extend(match vary.key.as_str() {
            "parallelism" => ["--parallelism".to_string(), value.clone()],
            "memory" => ["--memory".to_string(), value.clone()],
            key => ["--set".to_string(), format!("{key}={value}")],
        });
    }
    run_job(&bench.job, &arguments)
}

/// Runs a job once with these arguments.
pub(crate) fn run_job(job: &Path, arguments: &[String]) -> Result<Measured, String> {
    let program = std::env::current_exe().map_err(|e| format!("finding this program: {e}"))?;
    let metrics = std::env::temp_dir().join(format!("tidemill-bench-{}.json", std::process::id()));
    let mut command = Command::new(program);
    command.arg("run").arg(job).arg("--quiet").arg("--metrics").arg(&metrics).args(arguments);
    let output = command.output().map_err(|e| format!("starting a run: {e}"))?;
    if !output.status.success() {
        return Err(format!("a run failed ({}):\n{}", output.status, String::from_utf8_lossy(&output.stderr)));
    }
    let text = std::fs::read_to_string(&metrics).map_err(|e| format!("reading the metrics of a run: {e}"))?;
    let _ = std::fs::remove_file(&metrics);
    serde_json::from_str(&text).map_err(|e| format!("reading the metrics of a run (a benchmark job must be a single job): {e}"))
}
