//! What people see: the live line, the summary, rows of a query.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};

use arrow::array::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use tidemill_block::Block;
use tidemill_connect::listeners::ListenerStats;
use tidemill_format::options::RawOptions;
use tidemill_format::text::TextFormat;
use tidemill_plan::message;
use tidemill_runtime::batch::BatchRunner;
use tidemill_runtime::job::ProgressReport;
use tidemill_runtime::metrics::Summary;
use tidemill_runtime::{JobError, LogicalPlan, Stop};

use crate::args::Output;

/// What makes a terminal forget the line that it shows.
const CLEAR_LINE: &str = "\r\x1b[2K";

/// The live line of a running job: rewritten in place on a terminal, a line every ten seconds
/// elsewhere.
pub struct Live {
    quiet: bool,
    terminal: bool,
    last: (f64, u64),
    next_line_s: f64,
    shown: bool,
}

impl Live {
    pub fn new(quiet: bool) -> Self {
        Live { quiet, terminal: std::io::stderr().is_terminal(), last: (0.0, 0), next_line_s: 10.0, shown: false }
    }

    pub fn show(&mut self, report: &ProgressReport) {
        if let Some(text) = self.next(report) {
            let mut err = std::io::stderr().lock();
            // Who cannot be told how far the job is does not keep it from going on.
            let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
            self.shown = true;
        }
    }

    /// What is to be written now, if anything.
    fn next(&mut self, report: &ProgressReport) -> Option<String> {
        if self.quiet {
            return None;
        }
        let now = report.elapsed.as_secs_f64();
        let rate = (report.rows_in - self.last.1) as f64 / (now - self.last.0).max(1e-3);
        if !self.terminal {
            if now < self.next_line_s {
                return None;
            }
            self.next_line_s = now + 10.0;
        }
        self.last = (now, report.rows_in);
        let mut watermark = report.watermark.map_or(String::new(), |ms| format!("  watermark {}", time(ms)));
        if let Some(laggard) = &report.laggard {
            let head = if watermark.is_empty() { "  watermark" } else { "" };
            watermark += &format!("{head} held back by {}, silent for {:.0} s", laggard.split, laggard.silent_s);
        }
        let dropped = if report.dropped > 0 { format!("  dropped {}", count(report.dropped)) } else { String::new() };
        let p99 = report.latency_ms.p99;
        let latency = if p99 > 0.0 { format!("  p99 {p99:.1} ms") } else { String::new() };
        let line = format!(
            "{:>6.1} s  in {}  out {}  {}/s{latency}{watermark}{dropped}  memory {}",
            now,
            count(report.rows_in),
            count(report.rows_out),
            count(rate as u64),
            bytes(report.memory)
        );
        Some(if self.terminal { format!("{CLEAR_LINE}{line}") } else { line + "\n" })
    }

    pub fn end(&self) {
        if self.terminal && self.shown {
            eprint!("{CLEAR_LINE}");
        }
    }
}

fn time(ms: i64) -> String {
    let mut out = Vec::new();
    tidemill_block::value::write_timestamp(&mut out, ms, arrow::datatypes::TimeUnit::Millisecond, 0);
    String::from_utf8_lossy(&out).into_owned()
}

/// 1,234,567 as `1.23 M`.
pub fn count(n: u64) -> String {
    match n {
        0..=99_999 => n.to_string(),
        100_000..=999_999 => format!("{:.0} k", n as f64 / 1e3),
        1_000_000..=999_999_999 => format!("{:.2} M", n as f64 / 1e6),
        _ => format!("{:.2} G", n as f64 / 1e9),
    }
}

/// 12,345,678 bytes as `11.8 MB`.
pub fn bytes(n: u64) -> String {
    match n {
        0..=9_999 => format!("{n} B"),
        10_000..=9_999_999 => format!("{:.0} KB", n as f64 / 1024.0),
        10_000_000..=9_999_999_999 => format!("{:.1} MB", n as f64 / 1_048_576.0),
        _ => format!("{:.1} GB", n as f64 / (1u64 << 30) as f64),
    }
}

/// What peers of listeners did that concerns no table: lines of a summary.
pub fn strangers(listeners: &BTreeMap<String, ListenerStats>, unknown_channels: &BTreeMap<String, u64>) -> String {
    let mut out = String::new();
    for (address, stats) in listeners {
        let (away, silent, refused) = (stats.turned_away, stats.silent, stats.refused);
        out += &format!(
            "  listener {address}: {away} connections turned away, {silent} closed for their silence, {refused} requests refused\n"
        );
    }
    for (channel, frames) in unknown_channels {
        out += &format!("  channel {channel}: {frames} frames that no table reads\n");
    }
    out
}

/// The summary at the end of a job.
pub fn summary(summary: &Summary, resumable: bool) {
    if summary.already_finished {
        eprintln!(
            "{}: an earlier run with this state directory finished the job, so nothing was read or written; --fresh begins anew",
            summary.job
        );
        return;
    }
    let mut out = String::new();
    let how = match (summary.finished, resumable) {
        (true, _) => "finished",
        (false, true) => "stopped; the next run goes on from here",
        (false, false) => "stopped",
    };
    out += &format!("{} ({}, parallelism {}): {how}\n", summary.job, summary.mode, summary.parallelism);
    let sources = summary.nodes.iter().filter(|n| n.name.starts_with("Source") || n.name.starts_with("Sink"));
    for node in sources {
        let bad = if node.bad_rows > 0 { format!("  {} unreadable", node.bad_rows) } else { String::new() };
        out += &format!("  {:<32} {:>12} rows  {:>10}{bad}\n", node.name, node.rows, bytes(node.bytes));
    }
    out += &strangers(&summary.listeners, &summary.unknown_channels);
    for node in summary.nodes.iter().filter(|n| n.files_left_out > 0) {
        out += &format!("  {:<32} {:>12} files not read, by their names\n", node.name, node.files_left_out);
    }
    for node in summary.nodes.iter().filter(|n| n.late_rows > 0) {
        out += &format!("  {:<32} {:>12} rows dropped as late\n", node.name, node.late_rows);
    }
    for node in summary.nodes.iter().filter(|n| n.unknown_rows > 0) {
        out += &format!("  {:<32} {:>12} rows to be taken back that were not there\n", node.name, node.unknown_rows);
    }
    for node in summary.nodes.iter().filter(|n| n.dropped_matches > 0) {
        out += &format!("  {:<32} {:>12} partial matches given up at the bound\n", node.name, node.dropped_matches);
    }
    for node in &summary.nodes {
        let Some(disk) = &node.disk else { continue };
        out += &format!(
            "  {:<32} {:>12} keys  {} in memory, {} on disk; keys read {}, written {}; {:.1} % of rows found theirs in memory\n",
            node.name,
            node.state_entries,
            bytes(node.state_bytes),
            bytes(disk.bytes),
            count(disk.reads),
            count(disk.writes),
            disk.hit_rate * 100.0
        );
    }
    for (name, calls) in summary.nodes.iter().filter_map(|n| Some((&n.name, n.calls?))) {
        let percent = calls.hits as f64 * 100.0 / calls.asked.max(1) as f64;
        out += &format!("  {name:<32} {:>12} calls, {:.1} % of {} rows answered without one", calls.calls, percent, calls.asked);
        if calls.retries + calls.failures > 0 {
            out += &format!(", {} tried again, {} failed", calls.retries, calls.failures);
        }
        out.push('\n');
    }
    for (name, readers) in summary.nodes.iter().filter_map(|n| Some((&n.name, n.readers?))) {
        out += &format!("  {name:<32} {readers}\n");
    }
    out += &format!(
        "  {:.2} s, {} rows/s, CPU {:.2} s user {:.2} s system, peak memory {}\n",
        summary.elapsed_s,
        count(summary.rows_per_s as u64),
        summary.user_s,
        summary.sys_s,
        bytes(summary.peak_memory_bytes)
    );
    let read = summary.read;
    if (read.cache, read.disk, read.network) != (0, 0, 0) {
        let some = |n: u64| if n == 0 { "0".to_string() } else { bytes(n) };
        let (cache, disk, network) = (some(read.cache), some(read.disk), some(read.network));
        out += &format!("  read: {cache} from the cache, {disk} from disk, {network} from the network\n");
    }
    let l = summary.latency_ms;
    if l.max > 0.0 {
        out += &format!(
            "  latency from arrival to sink: p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms, max {:.2} ms\n",
            l.p50, l.p99, l.p999, l.max
        );
    }
    if summary.rows_in > 0 && summary.rows_out == 0 && summary.mode == "streaming" {
        out += "  note: rows came in and none went out; look at the filters, and whether the event-time column and its watermark are what you mean\n";
    }
    eprint!("{out}");
}

/// Rows shown before the rest is only counted.
const TABLE_ROWS_MAX: usize = 10_000;

/// Runs a query and shows its rows.
pub fn rows(runner: &BatchRunner, plan: &LogicalPlan, output: Output) -> Result<(), JobError> {
    rows_to(&mut std::io::stdout().lock(), runner, plan, output, &Stop::default())
}

/// Runs a query and writes its rows as people or programs read them, until it is stopped.
pub fn rows_to(out: &mut dyn Write, runner: &BatchRunner, plan: &LogicalPlan, output: Output, stop: &Stop) -> Result<(), JobError> {
    let stopped = || if stop.requested() { Err(JobError::failed("stopped")) } else { Ok(()) };
    let broken = |e: std::io::Error| JobError::Failed(format!("writing to standard output: {e}"));
    match output {
        Output::Table => {
            let mut batches: Vec<RecordBatch> = Vec::new();
            let (mut kept, mut all) = (0, 0);
            runner.query(plan, |batch| {
                stopped()?;
                all += batch.num_rows();
                let take = batch.num_rows().min(TABLE_ROWS_MAX - kept);
                kept += take;
                if take > 0 {
                    batches.push(batch.slice(0, take));
                }
                Ok(())
            })?;
            let names: Vec<String> = plan.schema().fields().iter().map(|f| f.name().clone()).collect();
            out.write_all(table(&names, &batches)?.as_bytes()).map_err(broken)?;
            if all > kept {
                writeln!(out, "… {} rows in all, {kept} shown", count(all as u64)).map_err(broken)?;
            }
            Ok(())
        }
        Output::Csv | Output::Json => {
            let (name, options) = match output {
                Output::Csv => ("csv", vec![("csv.header".to_string(), "skip".to_string())]),
                _ => ("json", Vec::new()),
            };
            let format = TextFormat::take(name, &mut RawOptions::new("standard output", options))?;
            let schema = std::sync::Arc::new(plan.schema().as_arrow().clone());
            let mut encoder = format.encoder(&schema)?;
            let mut buffer = Vec::new();
            encoder.begin(&mut buffer);
            runner.query(plan, |batch| {
                stopped()?;
                encoder.encode(&Block::inserts(batch, 0), &mut buffer)?;
                out.write_all(&buffer).map_err(broken)?;
                buffer.clear();
                Ok(())
            })?;
            out.write_all(&buffer).map_err(broken)
        }
    }
}

/// Rows as a table with columns as wide as their widest value.
fn table(names: &[String], batches: &[RecordBatch]) -> Result<String, JobError> {
    let options = FormatOptions::new().with_null("NULL").with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"));
    let mut cells: Vec<Vec<String>> = vec![names.to_vec()];
    let mut right: Vec<bool> = vec![false; names.len()];
    for batch in batches {
        let columns = batch
            .columns()
            .iter()
            .map(|c| ArrayFormatter::try_new(c.as_ref(), &options))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| JobError::Failed(message::of_arrow(&e)))?;
        batch.columns().iter().enumerate().for_each(|(i, c)| right[i] = c.data_type().is_numeric());
        for row in 0..batch.num_rows() {
            cells.push(columns.iter().map(|c| c.value(row).to_string()).collect());
        }
    }
    Ok(aligned(&cells, &right))
}

/// Cells below their heads, in columns as wide as their widest cell; `right` says which are aligned to the right.
pub fn columns(heads: &[&str], rows: &[Vec<String>], right: &[bool]) -> String {
    let mut cells: Vec<Vec<String>> = vec![heads.iter().map(|head| head.to_string()).collect()];
    cells.extend(rows.iter().cloned());
    aligned(&cells, right)
}

/// Rows of cells, the first of them the heads.
fn aligned(cells: &[Vec<String>], right: &[bool]) -> String {
    let width = |c: usize| cells.iter().map(|r| r[c].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..cells[0].len()).map(width).collect();
    let mut out = String::new();
    for (number, row) in cells.iter().enumerate() {
        for (i, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[i] - cell.chars().count());
            let gap = if i > 0 { "  " } else { "" };
            out += &if right[i] { format!("{gap}{pad}{cell}") } else { format!("{gap}{cell}{pad}") };
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
        if number == 0 {
            out += &widths.iter().map(|w| "-".repeat(*w)).collect::<Vec<_>>().join("  ");
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests;
