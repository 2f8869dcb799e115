//! What a job measures while it runs, and the summary at its end.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;
use tidemill_block::{NO_WATERMARK, clock};
use tidemill_connect::Arrived;
use tidemill_connect::filesystem::cache::Origins;
use tidemill_connect::listeners::ListenerStats;
use tidemill_operator::DiskStats;
use tidemill_operator::call::CallStats;

use crate::parallel::Found;
use crate::parallel::readers::Readers;

/// Counts of one node in one worker; updated once a block.
pub struct NodeMetrics {
    /// Rows read (source), written (sink) or taken in (operator).
    pub rows: AtomicU64,
    /// Bytes read or written.
    pub bytes: AtomicU64,
    /// Records that could not be read.
    pub bad_rows: AtomicU64,
    /// Files that were not read since by their names no row in them was wanted.
    pub files_left_out: AtomicU64,
    /// Rows dropped as late.
    pub late_rows: AtomicU64,
    /// Rows to be taken back that were not there.
    pub unknown_rows: AtomicU64,
    /// Partial matches of a pattern that are held.
    pub partial_matches: AtomicU64,
    /// Partial matches of a pattern that were given up at the bound.
    pub dropped_matches: AtomicU64,
    /// Keys or rows in state.
    pub entries: AtomicU64,
    /// Bytes of state.
    pub memory: AtomicU64,
    /// The watermark that reached the node, ms.
    pub watermark: AtomicI64,
    calls: Mutex<Option<CallStats>>,
    disk: Mutex<Option<DiskStats>>,
    laggard: Mutex<Option<Laggard>>,
    readers: Mutex<Option<Arc<Readers>>>,
    latency: Mutex<Histogram<u64>>,
}

/// Latencies beyond this are counted as this: ten minutes.
const LATENCY_NS_MAX: u64 = 600_000_000_000;

impl Default for NodeMetrics {
    fn default() -> Self {
        NodeMetrics {
            rows: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            bad_rows: AtomicU64::new(0),
            files_left_out: AtomicU64::new(0),
            late_rows: AtomicU64::new(0),
            unknown_rows: AtomicU64::new(0),
            partial_matches: AtomicU64::new(0),
            dropped_matches: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            memory: AtomicU64::new(0),
            watermark: AtomicI64::new(NO_WATERMARK),
            calls: Mutex::new(None),
            disk: Mutex::new(None),
            laggard: Mutex::new(None),
            readers: Mutex::new(None),
            latency: Mutex::new(Histogram::new_with_bounds(1, LATENCY_NS_MAX, 2).expect("valid bounds")),
        }
    }
}

impl NodeMetrics {
    /// Replaces the counts of what was asked outside.
    pub fn record_calls(&self, stats: CallStats) {
        *self.calls.lock().expect("no panic while held") = Some(stats);
    }

    /// Replaces the counts of state on disk.
    pub fn record_disk(&self, stats: DiskStats) {
        *self.disk.lock().expect("no panic while held") = Some(stats);
    }

    /// Replaces what holds back the watermark of this source.
    pub(crate) fn record_laggard(&self, laggard: Option<Laggard>) {
        *self.laggard.lock().expect("no panic while held") = laggard;
    }

    /// Records how long ago rows arrived that are written, or visible, now. Those of unknown arrival (0) are not
    /// counted.
    pub fn record_latencies(&self, arrived: impl Iterator<Item = Arrived>) {
        let now = clock::now_ns();
        let mut latency = self.latency.lock().expect("no panic while held");
        for Arrived { arrival_ns, rows } in arrived.filter(|a| a.arrival_ns > 0 && a.rows > 0) {
            // Within the bounds, so it cannot fail.
            let _ = latency.record_n(now.saturating_sub(arrival_ns).clamp(1, LATENCY_NS_MAX), rows);
        }
    }

    /// Says who reads the rows of this node.
    pub(crate) fn read_by(&self, readers: Arc<Readers>) {
        *self.readers.lock().expect("no panic while held") = Some(readers);
    }
}

/// What a node asked outside, summed over its workers.
#[derive(Clone, Copy, Debug, Default, Serialize, PartialEq, Eq)]
pub struct CallSummary {
    /// Calls under way.
    pub in_flight: u64,
    /// Calls that may be under way at once.
    pub limit: u64,
    /// Calls made, further attempts included.
    pub calls: u64,
    /// Further attempts.
    pub retries: u64,
    /// Calls that failed for good or took too long.
    pub failures: u64,
    /// Rows that asked for a key.
    pub asked: u64,
    /// Of them those that a cache or a call that was under way already answered.
    pub hits: u64,
}

/// What a node keeps on disk, summed over its workers.
#[derive(Clone, Copy, Debug, Default, Serialize, PartialEq)]
pub struct DiskSummary {
    /// Bytes of files.
    pub bytes: u64,
    /// Keys read back.
    pub reads: u64,
    /// Keys written, those of checkpoints too.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written, again by compaction too.
    pub written_bytes: u64,
    /// Rows whose key was in memory.
    pub hits: u64,
    /// Rows whose key had to be read.
    pub misses: u64,
    /// The share of hits: 0 to 1. Rows of new keys are neither.
    pub hit_rate: f64,
}

/// The split that holds back the watermark of its source: of those that are neither idle nor at their end the one that lags most.
#[derive(Clone, Debug, Serialize, PartialEq)]
pub struct Laggard {
    /// Its name: a partition (`topic:0`), a file, a connection.
    pub split: String,
    /// Its watermark, ms; none before it gave a row.
    pub watermark: Option<i64>,
    /// How long it has given no rows, seconds.
    pub silent_s: f64,
}

/// Counts that few nodes have are left out where there is nothing to count.
fn is_none(count: &u64) -> bool {
    *count == 0
}

/// A node of a job summed over its workers.
#[derive(Clone, Debug, Serialize, PartialEq)]
pub struct NodeSummary {
    /// `Source trades`, `Over`, `Sink out`.
    pub name: String,
    /// Rows read, taken in or written.
    pub rows: u64,
    /// Bytes read or written.
    pub bytes: u64,
    /// Records that could not be read.
    pub bad_rows: u64,
    /// Files that were not read since by their names no row in them was wanted.
    #[serde(skip_serializing_if = "is_none")]
    pub files_left_out: u64,
    /// Rows dropped as late.
    pub late_rows: u64,
    /// Rows to be taken back that were not there, never seen or no longer kept; they changed nothing.
    #[serde(skip_serializing_if = "is_none")]
    pub unknown_rows: u64,
    /// Partial matches of a pattern that are held at the end.
    #[serde(skip_serializing_if = "is_none")]
    pub partial_matches: u64,
    /// Partial matches of a pattern that were given up at the bound.
    #[serde(skip_serializing_if = "is_none")]
    pub dropped_matches: u64,
    /// Keys or rows in state at the end.
    pub state_entries: u64,
    /// Bytes of state at the end.
    pub state_bytes: u64,
    /// What of its state is on disk, if any is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskSummary>,
    /// What it asked outside, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<CallSummary>,
    /// What holds back its watermark, if it is a source with event time that has not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub laggard: Option<Laggard>,
    /// How many read it at once and what held them back, if it is a source of files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readers: Option<Found>,
}

/// What a job did, as `--metrics` writes it.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The job's name.
    pub job: String,
    /// `streaming` or `batch`.
    pub mode: String,
    /// Shards.
    pub parallelism: usize,
    /// Whether all input was read.
    pub finished: bool,
    /// Whether an earlier run had finished the job, so that this one did nothing.
    pub already_finished: bool,
    /// Wall-clock seconds.
    pub elapsed_s: f64,
    /// CPU seconds in user code.
    pub user_s: f64,
    /// CPU seconds in the kernel.
    pub sys_s: f64,
    /// Most memory the process ever held, bytes.
    pub peak_memory_bytes: u64,
    /// Where the bytes of files came from while the job ran: all that the process read of them.
    pub read: Origins,
    /// Rows read by all sources.
    pub rows_in: u64,
    /// Rows written by all sinks.
    pub rows_out: u64,
    /// Rows read a second of wall-clock time.
    pub rows_per_s: f64,
    /// Latency from arrival to sink, of databases to the commit, milliseconds.
    pub latency_ms: Latency,
    /// Checkpoints taken.
    pub checkpoints: u64,
    /// Every node.
    pub nodes: Vec<NodeSummary>,
    /// What listeners have refused since the process began, by address; those that have refused something.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub listeners: BTreeMap<String, ListenerStats>,
    /// Frames of Siddhi's transport since the process began for channels that no table reads: `host:port/channel`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unknown_channels: BTreeMap<String, u64>,
}

/// Percentiles of latency, milliseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Latency {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Largest.
    pub max: f64,
}

/// A node of a running job as it stands.
#[derive(Clone, Debug, Serialize)]
pub struct NodeReport {
    /// Its counts.
    #[serde(flatten)]
    pub counts: NodeSummary,
    /// The lowest watermark that reached it, ms, if there is event time.
    pub watermark: Option<i64>,
    /// Latency from arrival to here since the job began; sinks only.
    pub latency_ms: Option<Latency>,
}

/// A view of a job's nodes from another thread. It costs the job nothing until somebody looks, and keeps
/// the last figures when the job has ended.
#[derive(Clone, Default)]
pub struct Monitor(Arc<Mutex<Vec<(String, Vec<Arc<NodeMetrics>>)>>>);

impl Monitor {
    /// From now on shows these nodes.
    pub(crate) fn watch(&self, nodes: Vec<(String, Vec<Arc<NodeMetrics>>)>) {
        *self.0.lock().expect("no panic while held") = nodes;
    }

    /// Every node as it stands, in the order of the plan.
    pub fn nodes(&self) -> Vec<NodeReport> {
        let nodes = self.0.lock().expect("no panic while held").clone();
        let report = |(name, parts): &(String, Vec<Arc<NodeMetrics>>)| {
            let watermark = parts.iter().map(|p| p.watermark.load(Ordering::Relaxed)).min();
            let latency = latency(parts.iter());
            NodeReport {
                counts: node_summary(name, parts),
                watermark: watermark.filter(|w| *w != NO_WATERMARK && *w != i64::MAX),
                latency_ms: (latency.max > 0.0).then_some(latency),
            }
        };
        nodes.iter().map(report).collect()
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Monitor")
    }
}

/// Sums a node's counts over workers.
pub(crate) fn node_summary(name: &str, parts: &[std::sync::Arc<NodeMetrics>]) -> NodeSummary {
    let sum = |f: fn(&NodeMetrics) -> &AtomicU64| parts.iter().map(|p| f(p).load(Ordering::Relaxed)).sum();
    NodeSummary {
        name: name.to_string(),
        rows: sum(|m| &m.rows),
        bytes: sum(|m| &m.bytes),
        bad_rows: sum(|m| &m.bad_rows),
        files_left_out: sum(|m| &m.files_left_out),
        late_rows: sum(|m| &m.late_rows),
        unknown_rows: sum(|m| &m.unknown_rows),
        partial_matches: sum(|m| &m.partial_matches),
        dropped_matches: sum(|m| &m.dropped_matches),
        state_entries: sum(|m| &m.entries),
        state_bytes: sum(|m| &m.memory),
        disk: disk(parts),
        calls: calls(parts),
        laggard: laggard(parts),
        // All workers share them.
        readers: parts.iter().find_map(|p| p.readers.lock().expect("no panic while held").as_ref()?.found()),
    }
}

/// Of the splits that hold back the source in their workers the one that lags most.
pub(crate) fn laggard(parts: &[Arc<NodeMetrics>]) -> Option<Laggard> {
    let laggards = parts.iter().filter_map(|p| p.laggard.lock().expect("no panic while held").clone());
    laggards.min_by_key(|l| l.watermark)
}

/// Sums what is on disk over workers; `None` if nothing is.
fn disk(parts: &[std::sync::Arc<NodeMetrics>]) -> Option<DiskSummary> {
    let stats: Vec<DiskStats> = parts.iter().filter_map(|p| *p.disk.lock().expect("no panic while held")).collect();
    let sum = |f: fn(&DiskStats) -> u64| stats.iter().map(f).sum::<u64>();
    let (hits, misses) = (sum(|s| s.hits), sum(|s| s.misses));
    (!stats.is_empty()).then(|| DiskSummary {
        bytes: sum(|s| s.bytes),
        reads: sum(|s| s.reads),
        writes: sum(|s| s.writes),
        read_bytes: sum(|s| s.read_bytes),
        written_bytes: sum(|s| s.written_bytes),
        hits,
        misses,
        hit_rate: if hits + misses == 0 { 1.0 } else { hits as f64 / (hits + misses) as f64 },
    })
}

/// Sums what was asked outside over workers; `None` if none of them asks.
fn calls(parts: &[std::sync::Arc<NodeMetrics>]) -> Option<CallSummary> {
    let stats: Vec<CallStats> = parts.iter().filter_map(|p| *p.calls.lock().expect("no panic while held")).collect();
    let sum = |f: fn(&CallStats) -> u64| stats.iter().map(f).sum();
    (!stats.is_empty()).then(|| CallSummary {
        in_flight: sum(|s| s.in_flight),
        limit: sum(|s| s.limit),
        calls: sum(|s| s.calls),
        retries: sum(|s| s.retries),
        failures: sum(|s| s.failures),
        asked: sum(|s| s.asked),
        hits: sum(|s| s.hits),
    })
}

/// Percentiles over all the given sinks since the job began.
pub(crate) fn latency<'a>(sinks: impl Iterator<Item = &'a Arc<NodeMetrics>>) -> Latency {
    Latency::of(&histogram(sinks))
}

/// The latencies of all the given sinks since the job began, ns.
fn histogram<'a>(sinks: impl Iterator<Item = &'a Arc<NodeMetrics>>) -> Histogram<u64> {
    let mut all: Histogram<u64> = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 2).expect("valid bounds");
    for sink in sinks {
        let _ = all.add(&*sink.latency.lock().expect("no panic while held"));
    }
    all
}

impl Latency {
    /// Of nanoseconds; zeros if there are none.
    fn of(all: &Histogram<u64>) -> Self {
        if all.is_empty() {
            return Latency::default();
        }
        let ms = |q: f64| all.value_at_quantile(q) as f64 / 1e6;
        Latency { p50: ms(0.5), p99: ms(0.99), p999: ms(0.999), max: all.max() as f64 / 1e6 }
    }
}

/// How long figures of the live line reach back, at least.
const RECENT: Duration = Duration::from_secs(1);

/// The latency of the last second or so, for who looks now and then.
#[derive(Default)]
pub(crate) struct RecentLatency(Mutex<Option<Looked>>);

struct Looked {
    at: Instant,
    /// All that there was then.
    all: Histogram<u64>,
    latency: Latency,
}

impl RecentLatency {
    /// Of rows that were written between the two newest looks that lie [`RECENT`] apart; the first look begins.
    pub fn look<'a>(&self, sinks: impl Iterator<Item = &'a Arc<NodeMetrics>>) -> Latency {
        let mut looked = self.0.lock().expect("no panic while held");
        let now = Instant::now();
        if let Some(looked) = looked.as_ref().filter(|looked| now.duration_since(looked.at) < RECENT) {
            return looked.latency;
        }
        let all = histogram(sinks);
        let latency = looked.as_ref().map_or_else(Latency::default, |looked| {
            let mut since = all.clone();
            // What was there then is there now.
            let _ = since.subtract(&looked.all);
            Latency::of(&since)
        });
        *looked = Some(Looked { at: now, all, latency });
        latency
    }
}

/// User and system CPU seconds of the process so far.
pub fn process_usage() -> (f64, f64) {
    let usage = usage();
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    (seconds(usage.ru_utime), seconds(usage.ru_stime))
}

/// Most memory that the process ever held, bytes. `getrusage(2)` would say it, too, but its figure outlives `execve(2)`: it begins
/// with the most that the process had held which started this one.
pub fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    // Linux gives kilobytes.
    high_water(&status).unwrap_or_else(|| usage().ru_maxrss as u64 * 1024)
}

/// As [`peak_bytes`], of the text of `/proc/self/status` (`proc_pid_status(5)`), if it says it.
fn high_water(status: &str) -> Option<u64> {
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().strip_suffix("kB")?;
    kilobytes.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

fn usage() -> libc::rusage {
    // SAFETY: getrusage fills the struct that it is given; all-zero is a valid rusage.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    }
}

/// Lets the process open as many files and sockets as the system allows it, and says how many that is.
/// Sessions often begin with 1,024, for the sake of programs that use `select`.
pub fn raise_open_files() -> u64 {
    // SAFETY: both calls only read or fill the struct that they are given; all-zero is a valid rlimit.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) != 0 {
            return 0;
        }
        if limit.rlim_cur < limit.rlim_max {
            let wanted = libc::rlimit { rlim_cur: limit.rlim_max, rlim_max: limit.rlim_max };
            if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const wanted) == 0 {
                return wanted.rlim_cur;
            }
        }
        limit.rlim_cur
    }
}

/// Memory that the process holds now, bytes.
pub fn resident_bytes() -> u64 {
    held().0
}

/// What of it is its own, bytes: pages of mapped files are counted with those who map them, but the system takes them back
/// whenever it wants to.
pub(crate) fn own_bytes() -> u64 {
    let (resident, shared) = held();
    resident.saturating_sub(shared)
}

/// All that the process holds, and what of it are pages of files, bytes.
fn held() -> (u64, u64) {
    pages(&std::fs::read_to_string("/proc/self/statm").unwrap_or_default())
}

/// As [`held`], of the text of `/proc/self/statm` (`proc_pid_statm(5)`), which counts pages.
fn pages(statm: &str) -> (u64, u64) {
    let mut counts = statm.split_whitespace().skip(1).map(|count| count.parse::<u64>().unwrap_or(0) * 4096);
    (counts.next().unwrap_or(0), counts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::{high_water, pages};

    #[test]
    fn the_peak_is_found_among_other_figures() {
        let status = "Name:\ttidemill\nVmPeak:\t 2031616 kB\nVmHWM:\t   13500 kB\nVmRSS:\t   12000 kB\nThreads:\t4\n";
        assert_eq!(high_water(status), Some(13500 * 1024));
        assert_eq!((high_water(""), high_water("VmHWM:\tmuch\n")), (None, None), "a system without it");
    }

    #[test]
    fn pages_of_files_are_told_apart() {
        assert_eq!(pages("5000 300 120 9 0 77 0\n"), (300 * 4096, 120 * 4096));
        assert_eq!(pages(""), (0, 0), "a system without it");
    }
}
