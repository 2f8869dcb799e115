//! `GET /metrics`: everything that is counted, as text for Prometheus (exposition format 0.0.4).
//!
//! Nothing is gathered between two requests: the figures are those that jobs and streams keep anyway.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Extension;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use tidemill_connect::listeners::ListenerStats;
use tidemill_hub::Refusal;
use tidemill_runtime::metrics::{peak_bytes, process_usage, resident_bytes};

use crate::auth::Access;
use crate::error::ApiError;
use crate::jobs::State as JobState;
use crate::state::{AppState, REFUSALS};

/// Answers the request; the names of jobs and streams are for those who may see all of them.
pub async fn page(State(state): State<Arc<AppState>>, Extension(access): Extension<Access>) -> Result<Response, ApiError> {
    if !access.may_read_all() {
        access.require_manage()?;
    }
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text(&state)).into_response())
}

/// What kind of figure a family holds.
#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
    Summary,
}

/// The page being written: families in order, each with its help once.
#[derive(Default)]
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: Kind, help: &str) -> Family<'_> {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Summary => "summary",
        };
        // A write to a String cannot fail.
        let _ = write!(self.0, "# HELP tidemill_{name} {help}\n# TYPE tidemill_{name} {kind}\n");
        Family { out: &mut self.0, name: name.to_string() }
    }
}

/// A family of figures that differ in their labels.
struct Family<'p> {
    out: &'p mut String,
    name: String,
}

impl Family<'_> {
    fn add(&mut self, labels: &[(&str, &str)], value: f64) -> &mut Self {
        self.add_suffixed("", labels, value)
    }

    fn add_suffixed(&mut self, suffix: &str, labels: &[(&str, &str)], value: f64) -> &mut Self {
        let _ = write!(self.out, "tidemill_{}{suffix}", self.name);
        for (i, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.out, "{}{label}=\"{}\"", if i == 0 { '{' } else { ',' }, escaped(text));
        }
        let _ = writeln!(self.out, "{} {value}", if labels.is_empty() { "" } else { "}" });
        self
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The whole page.
fn text(state: &AppState) -> String {
    let mut page = Page::default();
    process(&mut page, state);
    connections(&mut page, state);
    listeners(&mut page);
    jobs(&mut page, state);
    streams(&mut page, state);
    page.0
}

fn process(page: &mut Page, state: &AppState) {
    let (user, system) = process_usage();
    page.family("up_seconds", Kind::Gauge, "Since the server began.").add(&[], state.begun.elapsed().as_secs_f64());
    page.family("cpu_seconds_total", Kind::Counter, "Processor time of the process.")
        .add(&[("mode", "user")], user)
        .add(&[("mode", "system")], system);
    page.family("memory_bytes", Kind::Gauge, "Memory that the process holds.").add(&[], resident_bytes() as f64);
    page.family("memory_peak_bytes", Kind::Gauge, "Most memory that the process ever held.").add(&[], peak_bytes() as f64);
}

/// What came to listeners of tables and concerns none of them: nobody else would count it.
fn listeners(page: &mut Page) {
    let listeners = tidemill_connect::listeners::stats();
    type Value = fn(&ListenerStats) -> u64;
    let families: [(&str, &str, Value); 3] = [
        ("listener_turned_away_total", "Connections to tables that listen that were turned away.", |s| s.turned_away),
        ("listener_silent_total", "Connections to tables that listen that were closed for their silence.", |s| s.silent),
        ("listener_refused_total", "Requests and handshakes to tables that listen that were refused.", |s| s.refused),
    ];
    for (name, help, value) in families {
        let mut family = page.family(name, Kind::Counter, help);
        for (address, stats) in &listeners {
            family.add(&[("address", address.as_str())], value(stats) as f64);
        }
    }
    let mut family =
        page.family("siddhi_unknown_channel_frames_total", Kind::Counter, "Frames of Siddhi's transport for channels that no table names.");
    for (channel, frames) in tidemill_connect::siddhi_tcp::unknown_channels() {
        family.add(&[("channel", &channel)], frames as f64);
    }
}

fn connections(page: &mut Page, state: &AppState) {
    let counts = &state.counts;
    page.family("connections", Kind::Gauge, "Open connections.").add(&[], counts.open.load(Ordering::Relaxed) as f64);
    page.family("connections_max", Kind::Gauge, "Connections that are taken at once.").add(&[], state.limits.connections as f64);
    let help = "Bytes of blocks that are on their way or wait for a job to take them.";
    page.family("pending_bytes", Kind::Gauge, help).add(&[], state.pending.bytes() as f64);
    let help = "How many these may be, a block for each stream left out.";
    page.family("pending_bytes_max", Kind::Gauge, help).add(&[], state.limits.pending_bytes as f64);
    let families = [
        ("connections_accepted_total", &counts.accepted, "Connections accepted, refused ones too."),
        ("connections_refused_total", &counts.refused, "Connections turned away because there were too many."),
        ("connections_broken_total", &counts.broken, "Connections that ended with an error: TLS, silence, a peer that was gone."),
        ("received_bytes_total", &counts.received_bytes, "Bytes read from connections, after TLS."),
        ("sent_bytes_total", &counts.sent_bytes, "Bytes written to connections, before TLS."),
        ("requests_unauthenticated_total", &counts.unauthenticated, "Requests and calls without a token that is good."),
        ("requests_forbidden_total", &counts.forbidden, "Requests without the right, or from pages of other machines."),
    ];
    for (name, counter, help) in families {
        page.family(name, Kind::Counter, help).add(&[], counter.load(Ordering::Relaxed) as f64);
    }
    let help = "Answers that were errors, and streams that ended with one, by HTTP status; those of Flight by the one that means the same.";
    let mut family = page.family("request_errors_total", Kind::Counter, help);
    for (status, counter) in REFUSALS.iter().zip(&counts.refusals) {
        family.add(&[("status", &status.to_string())], counter.load(Ordering::Relaxed) as f64);
    }
}

fn jobs(page: &mut Page, state: &AppState) {
    let jobs = state.jobs.figures();
    let mut family = page.family("job_state", Kind::Gauge, "1 for the state that the job is in.");
    for (job, _) in &jobs {
        for one in JobState::ALL {
            family.add(&[("job", job.name.as_str()), ("state", one.name())], if job.state == one { 1.0 } else { 0.0 });
        }
    }
    let mut family = page.family("job_restarts_total", Kind::Counter, "Tries after a failure.");
    for (job, _) in &jobs {
        family.add(&[("job", job.name.as_str())], job.restarts as f64);
    }
    // Two operators of a job may have one name, so each has its place in the plan as well.
    let nodes: Vec<_> = jobs
        .iter()
        .flat_map(|(job, nodes)| nodes.iter().enumerate().map(move |(i, node)| (job.name.as_str(), i.to_string(), node)))
        .collect();
    type Value = fn(&tidemill_runtime::metrics::NodeReport) -> Option<f64>;
    let families: [(&str, Kind, &str, Value); 17] = [
        ("node_rows_total", Kind::Counter, "Rows read, taken in or written since the job's start.", |n| Some(n.counts.rows as f64)),
        ("node_bytes_total", Kind::Counter, "Bytes read or written since the job's start.", |n| Some(n.counts.bytes as f64)),
        ("node_bad_rows_total", Kind::Counter, "Records that could not be read.", |n| Some(n.counts.bad_rows as f64)),
        ("node_late_rows_total", Kind::Counter, "Rows dropped as late.", |n| Some(n.counts.late_rows as f64)),
        ("node_unknown_rows_total", Kind::Counter, "Rows to be taken back that were not there.", |n| Some(n.counts.unknown_rows as f64)),
        ("node_partial_matches", Kind::Gauge, "Partial matches of a pattern.", |n| Some(n.counts.partial_matches as f64)),
        ("node_dropped_matches_total", Kind::Counter, "Partial matches given up at the bound.", |n| Some(n.counts.dropped_matches as f64)),
        ("node_state_entries", Kind::Gauge, "Keys or rows in state.", |n| Some(n.counts.state_entries as f64)),
        ("node_state_bytes", Kind::Gauge, "Bytes of state in memory.", |n| Some(n.counts.state_bytes as f64)),
        ("node_state_disk_bytes", Kind::Gauge, "Bytes of state on disk.", |n| n.counts.disk.map(|d| d.bytes as f64)),
        ("node_state_reads_total", Kind::Counter, "Keys read from the disk.", |n| n.counts.disk.map(|d| d.reads as f64)),
        ("node_state_writes_total", Kind::Counter, "Keys written to the disk.", |n| n.counts.disk.map(|d| d.writes as f64)),
        ("node_state_read_bytes_total", Kind::Counter, "Bytes of state read.", |n| n.counts.disk.map(|d| d.read_bytes as f64)),
        ("node_state_written_bytes_total", Kind::Counter, "Bytes of state written.", |n| n.counts.disk.map(|d| d.written_bytes as f64)),
        ("node_state_hits_total", Kind::Counter, "Rows whose key was in memory.", |n| n.counts.disk.map(|d| d.hits as f64)),
        ("node_state_misses_total", Kind::Counter, "Rows whose key had to be read.", |n| n.counts.disk.map(|d| d.misses as f64)),
        ("node_watermark_seconds", Kind::Gauge, "Lowest watermark, since 1970.", |n| n.watermark.map(|ms| ms as f64 / 1e3)),
    ];
    for (name, kind, help, value) in families {
        let mut family = page.family(name, kind, help);
        for (job, place, node) in &nodes {
            if let Some(value) = value(node) {
                family.add(&[("job", *job), ("node", node.counts.name.as_str()), ("place", place.as_str())], value);
            }
        }
    }
    let help = "How long the split that lags most, and so holds back the watermark, has given no rows.";
    let mut family = page.family("node_laggard_silent_seconds", Kind::Gauge, help);
    for (job, place, node) in &nodes {
        let Some(laggard) = &node.counts.laggard else { continue };
        let labels = [("job", *job), ("node", node.counts.name.as_str()), ("place", place.as_str()), ("split", laggard.split.as_str())];
        family.add(&labels, laggard.silent_s);
    }
    let mut family = page.family("sink_latency_seconds", Kind::Summary, "From arrival of a row to the sink, since the job's start.");
    for (job, place, node) in &nodes {
        let Some(latency) = node.latency_ms else { continue };
        for (quantile, ms) in [("0.5", latency.p50), ("0.99", latency.p99), ("0.999", latency.p999), ("1", latency.max)] {
            let labels = [("job", *job), ("node", node.counts.name.as_str()), ("place", place.as_str()), ("quantile", quantile)];
            family.add(&labels, ms / 1e3);
        }
        let labels = [("job", *job), ("node", node.counts.name.as_str()), ("place", place.as_str())];
        family.add_suffixed("_count", &labels, node.counts.rows as f64);
    }
}

fn streams(page: &mut Page, state: &AppState) {
    let stats: Vec<_> = state.hub.streams().iter().map(|stream| (stream.name().to_string(), stream.stats())).collect();
    type Value = fn(&tidemill_hub::StreamStats) -> u64;
    let families: [(&str, Kind, &str, Value); 11] = [
        ("stream_published_rows_total", Kind::Counter, "Rows taken from publishers.", |s| s.published_rows),
        ("stream_published_bytes_total", Kind::Counter, "Bytes of these rows.", |s| s.published_bytes),
        ("stream_delivered_rows_total", Kind::Counter, "Rows handed to subscribers, counted for each.", |s| s.delivered_rows),
        ("stream_delivered_bytes_total", Kind::Counter, "Bytes of these rows.", |s| s.delivered_bytes),
        ("stream_publishers", Kind::Gauge, "Publishers connected.", |s| s.publishers),
        ("stream_subscribers", Kind::Gauge, "Subscribers connected.", |s| s.subscribers),
        ("stream_dropped_subscribers_total", Kind::Counter, "Subscribers dropped for being slow.", |s| s.dropped_subscribers),
        ("stream_duplicate_rows_total", Kind::Counter, "Rows that were sent again and cut off.", |s| s.duplicates_rows),
        ("stream_log_bytes", Kind::Gauge, "Bytes of the log on disk.", |s| s.log_bytes),
        ("stream_next_offset", Kind::Gauge, "Number of the next row that leaves.", |s| s.next_offset),
        ("stream_queue_bytes", Kind::Gauge, "Bytes that wait for the job.", |s| s.queue_bytes),
    ];
    for (name, kind, help, value) in families {
        let mut family = page.family(name, kind, help);
        for (stream, stats) in &stats {
            family.add(&[("stream", stream.as_str())], value(stats) as f64);
        }
    }
    let mut family = page.family("stream_refused_total", Kind::Counter, "Publishers' rows that were refused, by reason.");
    for (stream, stats) in &stats {
        for why in Refusal::ALL {
            family.add(&[("stream", stream.as_str()), ("reason", why.name())], stats.refused(why) as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_and_labels() {
        let mut page = Page::default();
        page.family("a_total", Kind::Counter, "All.").add(&[], 3.0).add(&[("x", "a\"b\\"), ("y", "")], 0.5);
        page.family("b", Kind::Summary, "Some.").add_suffixed("_count", &[("z", "\n")], 7.0);
        let expect = "# HELP tidemill_a_total All.\n# TYPE tidemill_a_total counter\ntidemill_a_total 3\n\
                      tidemill_a_total{x=\"a\\\"b\\\\\",y=\"\"} 0.5\n\
                      # HELP tidemill_b Some.\n# TYPE tidemill_b summary\ntidemill_b_count{z=\"\\n\"} 7\n";
        assert_eq!(page.0, expect);
    }
}
