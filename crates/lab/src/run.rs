//! One run of a job as a process of its own, or as two: a server and an adapter that feeds it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde::Deserialize;

use crate::{Adapter, Bench};

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

#[cfg(test)]
impl Measured {
    /// A run that took so long; the other figures follow from that, and are exact in binary for powers of two.
    pub(crate) fn of(elapsed_s: f64) -> Self {
        Measured {
            elapsed_s,
            user_s: elapsed_s / 2.0,
            sys_s: elapsed_s / 4.0,
            rows_per_s: 2e6 / elapsed_s,
            rows_in: 2_000_000,
            rows_out: 7,
            peak_memory_bytes: (elapsed_s * 100.0) as u64 * 1_048_576,
            latency_ms: LatencyMs { p50: 10.0 * elapsed_s, p99: 20.0 * elapsed_s, p999: 30.0 * elapsed_s },
        }
    }
}

/// Runs the job once with these values.
pub(crate) fn run(bench: &Bench, values: &[String]) -> Result<Measured, String> {
    let mut arguments = bench.arguments.clone();
    let mut block_size = None;
    for (vary, value) in bench.vary.iter().zip(values) {
        arguments.extend(match vary.key.as_str() {
            "parallelism" => ["--parallelism".to_string(), value.clone()],
            "memory" => ["--memory".to_string(), value.clone()],
            key => ["--set".to_string(), format!("{key}={value}")],
        });
        if vary.key == "block.size" {
            block_size = Some(value.as_str());
        }
    }
    match &bench.adapter {
        None => run_job(&bench.job, &arguments),
        Some(adapter) => run_served(&bench.job, &arguments, adapter, block_size),
    }
}

fn program() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|e| format!("finding this program: {e}"))
}

/// A file or directory for this process alone.
fn temporary(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("tidemill-bench-{}-{name}", std::process::id()))
}

fn read_metrics(path: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("reading the metrics of a run: {e}"))?;
    let _ = std::fs::remove_file(path);
    Ok(text)
}

/// Runs a command to its end.
fn finish(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|e| format!("starting a run: {e}"))?;
    if !output.status.success() {
        return Err(format!("a run failed ({}):\n{}", output.status, String::from_utf8_lossy(&output.stderr)));
    }
    Ok(())
}

/// Runs a job once with these arguments.
pub(crate) fn run_job(job: &Path, arguments: &[String]) -> Result<Measured, String> {
    let metrics = temporary("run.json");
    finish(Command::new(program()?).arg("run").arg(job).arg("--quiet").arg("--metrics").arg(&metrics).args(arguments))?;
    serde_json::from_str(&read_metrics(&metrics)?)
        .map_err(|e| format!("reading the metrics of a run (a benchmark job must be a single job): {e}"))
}

/// A server that is ended when nobody needs it any more.
struct Server {
    process: Child,
    directory: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        // A server that ended by itself cannot be killed, and need not be.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// What `serve --metrics` writes.
#[derive(Deserialize)]
struct Served {
    jobs: Vec<Measured>,
}

/// Serves the job, lets an adapter feed it to the end of its input, and adds up what both cost. The
/// time is the adapter's: it ends when all its rows are acknowledged, that is, when the job's sinks
/// have committed what came of them.
fn run_served(job: &Path, arguments: &[String], adapter: &Adapter, block_size: Option<&str>) -> Result<Measured, String> {
    let (directory, served, fed) = (temporary("state"), temporary("serve.json"), temporary("adapter.json"));
    let _ = std::fs::remove_dir_all(&directory);
    let mut command = Command::new(program()?);
    command.arg("serve").arg(job).args(["--listen", "127.0.0.1:0"]).arg("--metrics").arg(&served);
    if adapter.keeps_state {
        command.arg("--state-dir").arg(&directory);
    }
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::null());
    let process = command.spawn().map_err(|e| format!("starting a server: {e}"))?;
    let mut server = Server { process, directory };
    let address = address(&mut server.process)?;
    let mut command = Command::new(program()?);
    command.args(["adapter", "--from", &adapter.from, "--to", &format!("flight://{address}/{}", adapter.stream)]);
    command.args(["--block-size", block_size.unwrap_or("auto"), "--reconnect", "5", "--quiet", "--metrics"]).arg(&fed);
    finish(&mut command)?;
    let mut total: Measured = serde_json::from_str(&read_metrics(&fed)?).map_err(|e| format!("reading the metrics of the adapter: {e}"))?;
    interrupt(&server.process)?;
    let status = server.process.wait().map_err(|e| format!("waiting for the server to end: {e}"))?;
    if !status.success() {
        return Err(format!("the server ended with {status}"));
    }
    let served: Served = serde_json::from_str(&read_metrics(&served)?).map_err(|e| format!("reading the metrics of the server: {e}"))?;
    total.latency_ms = LatencyMs { p50: 0.0, p99: 0.0, p999: 0.0 };
    total.rows_out = 0;
    for job in served.jobs {
        total.user_s += job.user_s;
        total.sys_s += job.sys_s;
        total.rows_out += job.rows_out;
        total.peak_memory_bytes += job.peak_memory_bytes;
        let (all, one) = (&mut total.latency_ms, job.latency_ms);
        *all = LatencyMs { p50: all.p50.max(one.p50), p99: all.p99.max(one.p99), p999: all.p999.max(one.p999) };
    }
    Ok(total)
}

/// The address in a server's first line, `serving on http://HOST:PORT, …`; the rest of what it says is
/// read and dropped.
fn address(process: &mut Child) -> Result<String, String> {
    let output = process.stdout.take().ok_or("a server without an output")?;
    let mut lines = BufReader::new(output).lines();
    let line = lines.next().and_then(Result::ok).ok_or("the server ended before it was ready; run it by hand to see why")?;
    std::thread::spawn(move || lines.for_each(drop));
    let address = line.split_once("://").map(|(_, rest)| rest.split([',', ' ', '/']).next().unwrap_or_default().to_string());
    address.filter(|a| !a.is_empty()).ok_or_else(|| format!("the server said no address but: {line}"))
}

fn interrupt(process: &Child) -> Result<(), String> {
    finish(Command::new("kill").args(["-INT", &process.id().to_string()]))
}
