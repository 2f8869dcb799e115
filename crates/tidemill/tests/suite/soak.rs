//! The soak: joins, patterns and windows over keys that never come again, with idle phases. What they
//! keep goes when time passes, and memory ends where it began.
//!
//! Busy and idle phases of a second take turns: in the idle ones the source goes on and its rows are
//! filtered out. `SOAK_SECONDS` says for how long, 10 unless it is set.

use std::io::{BufRead, BufReader};
use std::sync::mpsc::channel;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Background, PATIENCE, Scratch, tidemill};
use crate::not_run::not_run;

/// Rows of a busy phase, which has a third as many keys. A pattern cannot end for a tenth of the keys, a row
/// of the left side finds no partner for a quarter.
const PHASE_ROWS: u64 = 30_000;

/// `pulse` shows when a second of event time is over.
const JOB: &str = "
CREATE TABLE ev (id BIGINT, rt TIMESTAMP(3), k AS id / 3, kind AS MOD(id, 3), WATERMARK FOR rt AS rt)
WITH ('connector' = 'datagen', 'rows-per-second' = '30000', 'start-time' = '2024-01-01 00:00:00', 'fields.id.kind' = 'sequence');
CREATE VIEW busy AS SELECT * FROM ev WHERE id < ${ROWS} AND MOD(id / 30000, 2) = 0;
CREATE VIEW opened AS SELECT * FROM busy WHERE kind = 0;
CREATE VIEW closed AS SELECT * FROM busy WHERE kind = 1 AND MOD(k, 4) <> 0;

CREATE TABLE pulse (second TIMESTAMP(3), n BIGINT) WITH ('connector' = 'print');
CREATE TABLE joined (k BIGINT, id BIGINT) WITH ('connector' = 'blackhole');
CREATE TABLE found (k BIGINT, n BIGINT) WITH ('connector' = 'blackhole');
CREATE TABLE counted (k BIGINT, n BIGINT) WITH ('connector' = 'blackhole');

INSERT INTO pulse
SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE ev, DESCRIPTOR(rt), INTERVAL '1' SECOND)) GROUP BY window_start, window_end;
INSERT INTO joined
SELECT o.k, c.id FROM opened AS o LEFT JOIN closed AS c ON o.k = c.k AND c.rt BETWEEN o.rt AND o.rt + INTERVAL '0.2' SECOND;
INSERT INTO found
SELECT k, n FROM busy
MATCH_RECOGNIZE (
  PARTITION BY k
  ORDER BY rt, id
  MEASURES COUNT(*) AS n
  AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A B+ C) WITHIN INTERVAL '0.2' SECOND
  DEFINE A AS kind = 0, B AS kind = 1, C AS kind = 2 AND MOD(k, 10) <> 0
) AS m;
INSERT INTO counted
SELECT k, COUNT(*) FROM TABLE(TUMBLE(TABLE busy, DESCRIPTOR(rt), INTERVAL '0.1' SECOND)) GROUP BY k, window_start, window_end;
";

/// The second in which the job of a long run is stopped, and for how long: two phases' rows come together then. In a short one
/// what that takes is not given back before its end, and would hide what is never given back.
const STOPPED_AT: u64 = 3;
const LONG_PHASES: u64 = 60;
const STOPPED: Duration = Duration::from_secs(2);

/// The windows of `pulse` that are open, in two shards.
const ENTRIES_MAX: u64 = 4;

/// Memory of its own that a process holds now, bytes, so without the pages of its program, which come
/// in as they are first run; none where the system does not say.
fn own_bytes(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// Runs the job for so many phases: the memory that it held at each second. What it gave and what is left in its state is
/// looked at here.
fn soak(phases: u64) -> Vec<u64> {
    let scratch = Scratch::new("soak");
    let (job, metrics) = (scratch.write("soak.sql", JOB), scratch.at("metrics.json"));
    let mut command = tidemill();
    command.args(["run", &job, "--quiet", "--parallelism", "2", "--metrics", &metrics, "--state-dir", &scratch.at("state")]);
    command.args(["--set", "execution.checkpointing.interval=500ms", "-D", &format!("ROWS={}", 2 * phases * PHASE_ROWS)]);
    let mut running = Background::start(&mut command);
    let process = running.0.id();

    let output = BufReader::new(running.0.stdout.take().expect("piped"));
    let (sender, pulse) = channel();
    std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let mut memory: Vec<u64> = Vec::new();
    // The last phase is followed by a second more, in which all bounds of time pass.
    for second in 1..=2 * phases + 1 {
        if second == STOPPED_AT && phases >= LONG_PHASES {
            // As a busy machine does at any time: behind it come the fullest blocks, and buffers get the size that these need,
            // which they keep. What is held from then on is compared.
            running.signal("STOP");
            std::thread::sleep(STOPPED);
            running.signal("CONT");
            memory.clear();
        }
        if let Err(e) = pulse.recv_timeout(PATIENCE) {
            panic!("second {second}: {e}: {:?}", running.end());
        }
        memory.extend(own_bytes(process));
    }
    running.signal("INT");
    let (code, errors) = running.end();
    assert_eq!(code, Some(0), "{errors}");

    let written = std::fs::read_to_string(&metrics).expect("the metrics");
    let summary: Value = serde_json::from_str(&written).expect("the metrics are JSON");
    let nodes = summary["nodes"].as_array().expect("nodes");
    let rows = |name: &str| nodes.iter().find(|n| n["name"] == name).and_then(|n| n["rows"].as_u64());
    let keys = phases * PHASE_ROWS / 3;
    assert_eq!(rows("Sink joined"), Some(keys), "{written}");
    assert_eq!(rows("Sink found"), Some(keys / 10 * 9), "{written}");
    assert!(rows("Sink counted") >= Some(keys), "{written}");
    let entries: u64 = nodes.iter().filter_map(|n| n["state_entries"].as_u64()).sum();
    assert!(entries <= ENTRIES_MAX, "{entries} keys or rows are left in state: {written}");
    memory
}

/// Whether less is given back than was taken: by the median of each third, which may grow by a quarter, or the most, which
/// may double. What is held moves up and down with the phases, and rises when other work keeps the job from its rows for longer
/// than ever before. What is never given back shows in the median.
fn grows(phases: u64, memory: &[u64]) -> bool {
    // The first sample may be of a job that has hardly begun.
    let memory = &memory[memory.len().min(2) - 1..];
    let mut thirds: Vec<Vec<u64>> = memory.chunks(memory.len().div_ceil(3)).map(<[u64]>::to_vec).collect();
    thirds.iter_mut().for_each(|third| third.sort_unstable());
    let of = |place: fn(usize) -> usize| thirds.iter().map(|third| third[place(third.len())]).collect::<Vec<u64>>();
    let (least, median, most) = (of(|_| 0), of(|length| length / 2), of(|length| length - 1));
    println!("{phases} phases of {PHASE_ROWS} rows: memory in each third: least {least:?}, median {median:?}, most {most:?} B");
    let grown = |of: &[u64], most: u64| of[of.len() - 1] > of[0] / 4 * most;
    grown(&median, 5) || grown(&most, 8)
}

#[test]
fn memory_ends_where_it_began() {
    let seconds: u64 = std::env::var("SOAK_SECONDS")
        .map_or(10, |text| text.parse().unwrap_or_else(|_| panic!("SOAK_SECONDS={text}: expected a whole number")));
    let mut phases = (seconds / 2).max(1);
    // In a few seconds the allocator keeps what a moment without a core made the job hold. That is no more of a run of twice
    // the length, and what is never given back is twice as much: it grows in all of them.
    let mut tries = if seconds <= 60 { 3 } else { 1 };
    loop {
        let memory = soak(phases);
        if memory.is_empty() {
            not_run("memory (this system has no /proc)");
            return;
        }
        if !grows(phases, &memory) {
            return;
        }
        tries -= 1;
        assert!(tries > 0, "memory grows in {phases} phases: what it was in each third is said above");
        phases *= 2;
    }
}
