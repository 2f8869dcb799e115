//! Jobs whose state does not fit in their share of memory: the rows are those of the same job with all of it in
//! memory, also after it was killed and went on with other shards; and what damage to the files does.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::failures::{SmallDisk, expect};
use crate::harness::{Scratch, finish, fold, newest_checkpoint, sink_lines, text, tidemill};
use crate::not_run::not_run;

/// Some hundred kilobytes for all shards, of several megabytes of state.
const LITTLE: [&str; 4] = ["--memory", "1GB", "--set", "state.memory-share=0.0004"];

const TABLE: &str = "CREATE TABLE t (a BIGINT, v BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '0',
  'number-of-rows' = '60000', 'fields.a.min' = '0', 'fields.a.max' = '19999', 'fields.v.min' = '0', 'fields.v.max' = '9');";

fn run(job: &str, arguments: &[&str]) -> Command {
    let mut command = tidemill();
    command.args(["run", job, "--quiet"]).args(arguments);
    command
}

#[track_caller]
fn succeeds(command: &mut Command) -> String {
    let output = finish(command);
    assert!(output.status.success(), "{command:?}\n{}", text(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The job's state on disk, by its metrics.
fn disk(metrics: &str) -> BTreeMap<String, Value> {
    let summary: Value = serde_json::from_slice(&std::fs::read(metrics).expect("the metrics")).expect("JSON");
    let nodes = summary["nodes"].as_array().expect("nodes").clone();
    let on_disk = nodes.into_iter().filter(|node| node["disk"].is_object());
    on_disk.map(|node| (node["name"].as_str().expect("a name").to_string(), node["disk"].clone())).collect()
}

#[test]
fn groups_beyond_their_memory() {
    let scratch = Scratch::new("spill-groups");
    let job = scratch.write(
        "job.sql",
        format!(
            "{TABLE} CREATE TABLE s (k STRING, c BIGINT, total BIGINT, most BIGINT) WITH ('connector' = 'print', 'print-identifier' = 's');
             INSERT INTO s SELECT CONCAT('a key of some length, number ', CAST(a AS STRING)) AS k, COUNT(*), SUM(v), MAX(v) FROM t
             GROUP BY CONCAT('a key of some length, number ', CAST(a AS STRING));"
        ),
    );
    let expect = fold(&succeeds(&mut run(&job, &["--set", "execution.runtime-mode=batch"])), "s");
    assert!(expect.len() > 15_000, "most keys come");
    let metrics = scratch.at("metrics.json");
    for parallelism in ["1", "3"] {
        let found = succeeds(run(&job, &["--parallelism", parallelism, "--metrics", &metrics]).args(LITTLE));
        assert!(fold(&found, "s") == expect, "other rows in {parallelism} shards");
        let used = disk(&metrics);
        let stats = used.get("GroupAggregate").unwrap_or_else(|| panic!("nothing left memory: {used:?}"));
        for key in ["writes", "reads", "bytes", "misses", "hits"] {
            assert!(stats[key].as_u64().is_some_and(|n| n > 0), "{key} of {stats}");
        }
    }
    // With all of it in memory nothing goes to the disk.
    succeeds(&mut run(&job, &["--memory", "1GB", "--metrics", &metrics]));
    assert!(disk(&metrics).is_empty());
}

/// Much less memory than state, in two shards: what the process holds beside state is not known beforehand, and state gives way to it.
#[test]
fn many_keys_near_the_limit() {
    const ROWS: u64 = 8_000_000;
    let scratch = Scratch::new("spill-limit");
    let job = scratch.write(
        "job.sql",
        format!(
            "CREATE TABLE t (k STRING) WITH ('connector' = 'datagen', 'rows-per-second' = '0', 'number-of-rows' = '{ROWS}',
               'fields.k.length' = '100');
             CREATE TABLE s (k STRING, c BIGINT) WITH ('connector' = 'blackhole');
             INSERT INTO s SELECT k, COUNT(*) FROM t GROUP BY k;"
        ),
    );
    let metrics = scratch.at("metrics.json");
    succeeds(&mut run(&job, &["--memory", "256MB", "--parallelism", "2", "--metrics", &metrics]));
    let summary: Value = serde_json::from_slice(&std::fs::read(&metrics).expect("the metrics")).expect("JSON");
    assert_eq!(summary["rows_out"].as_u64(), Some(ROWS), "{summary}");
    let peak = summary["peak_memory_bytes"].as_u64().expect("a number");
    // A job that holds a sixteenth more than the limit ends when that is seen; what it held between two looks is only measured.
    assert!(peak < (256 << 20) / 8 * 9, "{peak} bytes at the peak");
}

/// DISTINCT emits each key once: one that a checkpoint forgot would come twice, and one that it knew too early
/// never.
#[test]
fn killed_with_state_on_disk() {
    let scratch = Scratch::new("spill-killed");
    let job = scratch.write(
        "job.sql",
        format!(
            "{TABLE} CREATE TABLE s (k STRING, v BIGINT) WITH ('connector' = 'filesystem', 'path' = '{}', 'format' = 'csv');
             INSERT INTO s SELECT DISTINCT CONCAT('a key of some length, number ', CAST(a AS STRING)), v FROM t;",
            scratch.at("out")
        ),
    );
    let out = scratch.path().join("out");
    succeeds(&mut run(&job, &["--set", "execution.runtime-mode=batch"]));
    let expect = sink_lines(&out);
    std::fs::remove_dir_all(&out).expect("the rows of the batch");
    let (state, metrics) = (scratch.at("state"), scratch.at("metrics.json"));
    let mut kills = 0;
    loop {
        let mut command = run(&job, &LITTLE);
        command.args(["--state-dir", &state, "--metrics", &metrics, "--parallelism", ["2", "3", "1", "1"][kills % 4]]);
        command.args(["--set", "block.size=1000", "--set", "debug.checkpoint-blocks=1"]);
        // The first ends near its first block. One that takes two checkpoints may have read everything at the second, if
        // the disk is slow to take the first.
        command.args(["--set", ["debug.abort-after-checkpoints=1", "debug.abort-after-checkpoints=2"][kills % 2]]);
        let output = finish(&mut command);
        match output.status.code() {
            Some(137) => kills += 1,
            Some(0) => break,
            _ => panic!("failed after {kills} kills\n{}", text(&output)),
        }
        assert!(kills < 200, "no progress");
    }
    assert!(kills > 1, "killed {kills} times only");
    let found = sink_lines(&out);
    assert_eq!(found.len(), expect.len());
    assert!(found == expect, "other rows after {kills} kills");
    assert!(!disk(&metrics).is_empty(), "state was on disk");
    assert!(!Path::new(&state).join("local").exists(), "what is local goes with the job");
}

/// A file of state that is cut, lost or changed is named, and what to do.
#[test]
fn damage_is_named() {
    let scratch = Scratch::new("spill-damage");
    let job = scratch.write(
        "job.sql",
        format!(
            "{TABLE} CREATE TABLE s (k STRING) WITH ('connector' = 'filesystem', 'path' = '{}', 'format' = 'csv');
             INSERT INTO s SELECT DISTINCT CONCAT('a key of some length, number ', CAST(a AS STRING)) FROM t;",
            scratch.at("out")
        ),
    );
    let state = scratch.path().join("state");
    let command = |more: &[&str]| {
        let mut command = run(&job, &LITTLE);
        command.arg("--state-dir").arg(&state).args(["--parallelism", "1", "--set", "block.size=1000"]).args(more);
        command
    };
    let killed = finish(&mut command(&["--set", "debug.checkpoint-blocks=20", "--set", "debug.abort-after-checkpoints=1"]));
    assert_eq!(killed.status.code(), Some(137), "{}", text(&killed));
    let checkpoint = state.join(format!("chk-{}", newest_checkpoint(&state).expect("a checkpoint")));
    let files = std::fs::read_dir(&checkpoint).expect("the checkpoint").map(|e| e.expect("an entry").path());
    let runs: Vec<_> = files.filter(|path| path.extension().is_some_and(|e| e == "run")).collect();
    let path = runs.first().expect("state on disk");
    let whole = std::fs::read(path).expect("the file");
    let name = path.file_name().expect("a name").to_string_lossy().into_owned();
    let mut changed = whole.clone();
    *changed.last_mut().expect("not empty") ^= 1;
    for damaged in [Some(&whole[..whole.len() / 2]), Some(&changed[..]), None] {
        std::fs::remove_file(path).expect("the file");
        if let Some(bytes) = damaged {
            std::fs::write(path, bytes).expect("the file");
        }
        let output = finish(&mut command(&[]));
        let said = text(&output);
        assert!(!output.status.success() && said.contains(&name) && said.contains("--fresh"), "{said}");
        if damaged.is_none() {
            std::fs::write(path, &whole).expect("the file");
        }
    }
    succeeds(&mut command(&[]));
    let keys = sink_lines(&scratch.path().join("out"));
    let mut once = keys.clone();
    once.dedup();
    assert!(keys.len() > 15_000 && keys == once, "each key once");
}

/// Keys once each, as files below `out`.
fn distinct(scratch: &Scratch) -> String {
    scratch.write(
        "job.sql",
        format!(
            "{TABLE} CREATE TABLE s (k STRING) WITH ('connector' = 'filesystem', 'path' = '{}', 'format' = 'csv');
             INSERT INTO s SELECT DISTINCT CONCAT('a key of some length, number ', CAST(a AS STRING)) FROM t;",
            scratch.at("out")
        ),
    )
}

/// What people read at the end, where they did not ask for quiet.
#[test]
fn the_summary_says_how_much_was_on_the_disk() {
    let scratch = Scratch::new("spill-summary");
    let job = distinct(&scratch);
    let output = finish(tidemill().args(["run", &job, "--parallelism", "1"]).args(LITTLE));
    expect(&output, 0, &[" keys ", " in memory, ", " on disk; keys read ", "% of rows found theirs in memory"]);
}

/// State that finds no room ends the job, which says where and what to do, and shows no rows; with room it runs.
#[test]
fn a_full_disk_is_named() {
    let scratch = Scratch::new("spill-full");
    let at = scratch.path().join("disk");
    let Some(disk) = SmallDisk::mount(&at) else {
        not_run("state on a full disk (mounting a small one takes a superuser)");
        return;
    };
    let job = distinct(&scratch);
    let place = format!("state.local-dir={}", at.display());
    let command = || {
        let mut command = run(&job, &LITTLE);
        command.args(["--set", &place, "--parallelism", "1"]);
        command
    };
    expect(&finish(&mut command()), 1, &["spill-full/disk/", "No space left", "free some space"]);
    let out = scratch.path().join("out");
    assert!(sink_lines(&out).is_empty(), "a job that failed shows no rows");
    disk.grow();
    succeeds(&mut command());
    let keys = sink_lines(&out);
    let mut once = keys.clone();
    once.dedup();
    assert!(keys.len() > 15_000 && keys == once, "each key once");
}

#[test]
fn directories_that_cannot_be_written_are_named() {
    let scratch = Scratch::new("spill-sealed");
    let at = scratch.path().join("disk");
    let Some(disk) = SmallDisk::mount(&at) else {
        not_run("state on a disk that cannot be written (mounting one takes a superuser)");
        return;
    };
    let job = distinct(&scratch);
    let state = scratch.at("disk/state");
    std::fs::create_dir(&state).expect("a state directory");
    disk.seal();
    let place = format!("state.local-dir={}", at.display());
    expect(&finish(run(&job, &LITTLE).args(["--set", &place])), 1, &["for state on disk", "Read-only file system"]);
    expect(&finish(run(&job, &[]).args(["--state-dir", &state])), 1, &["state directory", "disk/state", "Read-only file system"]);
}
