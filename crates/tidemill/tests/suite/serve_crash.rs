//! A server, a publisher, an adapter and a subscriber, each killed at any moment and started again:
//! every row that was published is exactly once in the job's files, in what the subscriber wrote, and
//! in the job's state.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::crash::Random;
use crate::harness::{Background, PATIENCE, Scratch, finish, free_port, sink_lines, text, tidemill, wait_for};

/// Files of each of the two publishers. A file begins when the one before it is acknowledged, so a
/// round cannot be over before as many checkpoints were taken.
const FILES: usize = 20;
/// Rows of each file.
const ROWS: usize = 300;

/// Those who run and are killed.
struct Member {
    name: &'static str,
    /// It ends by itself when there is nothing left to do.
    ends: bool,
    running: Option<Background>,
    done: bool,
}

/// A round: all four from the first row to the last.
struct Round {
    scratch: Scratch,
    port: u16,
    members: [Member; 4],
    history: Vec<String>,
}

impl Round {
    fn new() -> Self {
        let scratch = Scratch::new("serve-crash");
        let port = free_port();
        for name in ["publisher", "adapter"] {
            std::fs::create_dir(scratch.path().join(name)).expect("a directory for input");
            for (part, lines) in parts(name) {
                scratch.write(&format!("{name}/{part}.csv"), lines.concat());
            }
        }
        scratch.write(
            "copying.sql",
            format!(
                "SET 'execution.checkpointing.interval' = '100 ms';
                 CREATE TABLE numbers (part STRING, n BIGINT) WITH ('connector' = 'stream', 'stream.queue-bytes' = '4 kb');
                 CREATE TABLE files (part STRING, n BIGINT) WITH ('connector' = 'filesystem', 'path' = '{}', 'format' = 'csv');
                 CREATE TABLE copies (part STRING, n BIGINT)
                   WITH ('connector' = 'stream', 'stream.delivery' = 'exactly-once', 'stream.retention-bytes' = '1 kb');
                 CREATE VIEW totals AS SELECT part, COUNT(*) AS c, SUM(n) AS s FROM numbers GROUP BY part;
                 EXECUTE STATEMENT SET BEGIN
                   INSERT INTO files SELECT part, n FROM numbers;
                   INSERT INTO copies SELECT part, n FROM numbers;
                 END;",
                scratch.at("files")
            ),
        );
        scratch.write(
            "subscriber.sql",
            format!(
                "SET 'execution.checkpointing.interval' = '100 ms';
                 CREATE TABLE copies (part STRING, n BIGINT) WITH ('connector' = 'flight', 'url' = 'flight://127.0.0.1:{port}/copies',
                   'name' = 'subscriber', 'reconnect.backoff-max' = '200 ms');
                 CREATE TABLE taken (part STRING, n BIGINT) WITH ('connector' = 'filesystem', 'path' = '{}', 'format' = 'csv');
                 INSERT INTO taken SELECT part, n FROM copies;",
                scratch.at("taken")
            ),
        );
        let member = |name: &'static str, ends: bool| Member { name, ends, running: None, done: false };
        let members = [member("server", false), member("publisher", true), member("adapter", true), member("subscriber", false)];
        Round { scratch, port, members, history: Vec::new() }
    }

    fn command(&self, name: &str, random: &mut Random) -> Command {
        let at = |path: &str| self.scratch.at(path);
        let url = format!("flight://127.0.0.1:{}/numbers", self.port);
        let mut command = tidemill();
        match name {
            "server" => {
                command.args(["serve", &at("copying.sql"), "--listen", &format!("127.0.0.1:{}", self.port)]);
                command.args(["--state-dir", &at("server-state"), "--parallelism", random.of(&["1", "2", "3"])]);
            }
            "publisher" => {
                command.args(["publish", &url, &at("publisher"), "--format", "csv", "--quiet"]);
                command.args(["--block-size", random.of(&["1", "7", "64", "auto"])]);
            }
            "adapter" => {
                let from = format!("connector=filesystem,format=csv,path={}", at("adapter"));
                command.args(["adapter", "--from", &from, "--to", &url, "--quiet"]);
                command.args(["--block-size", random.of(&["1", "7", "64", "auto"])]);
            }
            "subscriber" => {
                command.args(["run", &at("subscriber.sql"), "--state-dir", &at("subscriber-state"), "--quiet", "--parallelism", "1"]);
            }
            other => unreachable!("nobody is called {other}"),
        }
        command
    }

    /// Starts server and subscriber, and waits until the server knows the subscriber's name: what comes
    /// before is kept only for those whom it knows.
    fn begin(&mut self, random: &mut Random) {
        for at in 0..self.members.len() {
            if !self.members[at].ends {
                let mut command = self.command(self.members[at].name, random);
                self.members[at].running = Some(Background::start(&mut command));
            }
        }
        wait_for("the subscription", || {
            self.ask("/v1/streams/copies").is_some_and(|stream| stream["subscriptions"]["subscriber"].is_u64())
        });
    }

    /// Starts who does not run and is not done, and looks whether anybody has failed.
    fn tend(&mut self, random: &mut Random) {
        for at in 0..self.members.len() {
            let Member { name, ends, done, .. } = self.members[at];
            if done {
                continue;
            }
            let Some(running) = &mut self.members[at].running else {
                let mut command = self.command(name, random);
                self.members[at].running = Some(Background::start(&mut command));
                continue;
            };
            if running.0.try_wait().expect("waiting for tidemill").is_none() {
                continue;
            }
            let (code, errors) = running.end();
            assert!(ends && code == Some(0), "{name} ended with {code:?} after {:#?}\n{errors}", self.history);
            (self.members[at].running, self.members[at].done) = (None, true);
        }
    }

    /// Kills one of those who run.
    fn kill(&mut self, random: &mut Random) {
        let running: Vec<usize> = (0..self.members.len()).filter(|at| self.members[*at].running.is_some()).collect();
        let member = &mut self.members[random.of(&running)];
        let mut process = member.running.take().expect("chosen among those who run");
        // Whoever has just ended by itself is started once more, and finds nothing to do.
        let _ = process.0.kill();
        let _ = process.0.wait();
        let name = member.name;
        self.history.push(name.to_string());
    }

    /// Rows in the files of the job, and in those of the subscriber.
    fn seen(&self) -> (usize, usize) {
        (sink_lines(&self.scratch.path().join("files")).len(), sink_lines(&self.scratch.path().join("taken")).len())
    }

    /// What the server says at a path; nothing while it does not.
    fn ask(&self, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(60))).ok()?;
        write!(stream, "GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nconnection: close\r\n\r\n", self.port).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    }

    /// Stops who still runs, in good order.
    fn stop(&mut self) {
        for name in ["subscriber", "server"] {
            let member = self.members.iter_mut().find(|m| m.name == name).expect("a member");
            let mut running = member.running.take().unwrap_or_else(|| panic!("{name} runs to the end"));
            running.signal("INT");
            let (code, errors) = running.end();
            assert_eq!(code, Some(0), "{name} after {:#?}\n{errors}", self.history);
        }
    }
}

/// The files of a publisher: their names, and their lines.
fn parts(publisher: &str) -> BTreeMap<String, Vec<String>> {
    let part = |file: usize| format!("{publisher}-{file:02}");
    (0..FILES).map(|file| (part(file), (0..ROWS).map(|n| format!("{},{n}\n", part(file))).collect())).collect()
}

/// The lines of a sink as they were written: its part files in the order in which runs began them.
fn in_order(dir: &Path) -> Vec<String> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a sink's directory") {
        let path = entry.expect("a directory entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        // part-<ms of the start>-<process>-<shard>-<number>.csv
        let pieces: Vec<&str> = name.trim_end_matches(".csv").split('-').collect();
        let [_, began_ms, _, _, number] = pieces[..] else { panic!("not the name of a part file: {name}") };
        let began_ms = u64::from_str_radix(began_ms, 16).expect("the time of a start");
        files.push((began_ms, number.parse::<u64>().expect("a number"), path));
    }
    files.sort();
    let texts = files.iter().map(|(.., path)| std::fs::read_to_string(path).expect("a part file"));
    texts.collect::<String>().lines().map(str::to_string).collect()
}

/// Looks that a sink holds every row once, those of each file in their order.
fn check(what: &str, dir: &Path, history: &[String]) {
    let lines = in_order(dir);
    let mut next: BTreeMap<&str, usize> = BTreeMap::new();
    let mut wrong = String::new();
    for line in &lines {
        let (part, n) = line.split_once(',').expect("two columns");
        let n: usize = n.parse().expect("a number");
        let due = next.entry(part).or_default();
        if n != *due {
            let _ = writeln!(wrong, "{part}: row {n} where row {due} is due");
        }
        *due = n + 1;
    }
    let expect: BTreeMap<String, usize> =
        ["publisher", "adapter"].into_iter().flat_map(parts).map(|(part, lines)| (part, lines.len())).collect();
    for (part, rows) in &expect {
        let there = next.get(part.as_str()).copied().unwrap_or(0);
        if there != *rows {
            let _ = writeln!(wrong, "{part}: ends at row {there} of {rows}");
        }
    }
    assert!(wrong.is_empty(), "{what}, {} rows instead of {}:\n{wrong}after {history:#?}", lines.len(), expect.values().sum::<usize>());
}

/// Files below a directory that only somebody who was killed could have left.
fn leftovers(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a directory of the round") {
            let path = entry.expect("a directory entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            if name.starts_with('.') || [".tmp", ".new", ".next", ".inprogress"].iter().any(|end| name.ends_with(end)) {
                found.push(path.display().to_string());
            } else if path.is_dir() {
                folders.push(path);
            }
        }
    }
    found
}

/// One round with up to so many kills; how many there were.
fn round(random: &mut Random, kills_max: usize) -> usize {
    let mut round = Round::new();
    round.begin(random);
    let total = 2 * FILES * ROWS;
    let mut kills = 0;
    let mut longest_ms = 300;
    let (mut seen, mut moved) = ((0, 0), Instant::now());
    loop {
        round.tend(random);
        let now = round.seen();
        if now != seen {
            // Without new rows there was no progress: more time, until there is.
            (longest_ms, seen, moved) = (300, now, Instant::now());
        }
        if round.members.iter().all(|m| m.done || !m.ends) && now.1 >= total {
            break;
        }
        let stuck = moved.elapsed() > PATIENCE;
        assert!(!stuck, "{PATIENCE:?} without a new row, at {seen:?} of {total} after {:#?}", round.history);
        std::thread::sleep(Duration::from_millis(1 + random.below(longest_ms)));
        if kills < kills_max {
            longest_ms += longest_ms / 10;
            // Sometimes two are away at once.
            let victims = if random.below(4) == 0 { 2.min(kills_max - kills) } else { 1 };
            (0..victims).for_each(|_| round.kill(random));
            kills += victims;
            std::thread::sleep(Duration::from_millis(random.below(100)));
        }
    }
    let mut expect: Vec<Value> = Vec::new();
    for (part, lines) in ["publisher", "adapter"].into_iter().flat_map(parts) {
        expect.push(serde_json::json!({"part": part, "c": lines.len(), "s": lines.len() * (lines.len() - 1) / 2}));
    }
    expect.sort_by_key(|row| row["part"].to_string());
    let mut totals = Value::Null;
    wait_for("the totals of all rows", || {
        totals = round.ask("/v1/streams/totals/rows").unwrap_or_default();
        if let Value::Array(rows) = &mut totals {
            rows.sort_by_key(|row| row["part"].to_string());
        }
        let too_many = |row: &Value| row["c"].as_u64() > Some(ROWS as u64);
        totals == Value::Array(expect.clone()) || totals.as_array().is_some_and(|rows| rows.iter().any(too_many))
    });
    assert_eq!(totals, Value::Array(expect), "after {:#?}", round.history);
    // Server and subscriber may just have been started again: the one must have its log, the other be known to be there.
    let mut copies = Value::Null;
    wait_for("the log of all rows, and its subscriber", || {
        copies = round.ask("/v1/streams/copies").unwrap_or_default();
        copies["stats"]["next_offset"].as_u64() >= Some(total as u64) && copies["stats"]["subscribers"] == 1
    });
    assert_eq!(copies["stats"]["next_offset"], total, "after {:#?}\n{copies:#}", round.history);
    // Whoever is done can be started again: there is nothing to do.
    for name in ["publisher", "adapter"] {
        let again = finish(&mut round.command(name, random));
        assert!(again.status.success(), "{name} again: {}", text(&again));
    }
    round.stop();
    for (what, dir) in [("the job's files", "files"), ("what the subscriber took", "taken")] {
        check(what, &round.scratch.path().join(dir), &round.history);
    }
    let left = leftovers(round.scratch.path());
    assert!(left.is_empty(), "left behind: {left:#?} after {:#?}", round.history);
    kills
}

#[test]
fn everybody_is_killed_and_every_row_arrives_once() {
    let wanted: usize = std::env::var("SERVE_KILLS").map_or(12, |n| n.parse().expect("SERVE_KILLS is a number"));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    let seed = std::env::var("SERVE_SEED").map_or(now, |n| n.parse().expect("SERVE_SEED is a number"));
    println!("SERVE_SEED={seed}");
    let mut random = Random(seed);
    let (mut kills, mut rounds) = (0, 0);
    while kills < wanted {
        kills += round(&mut random, wanted - kills);
        rounds += 1;
    }
    println!("{kills} kills in {rounds} rounds");
}
