//! Runs the binary and collects what it wrote.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use crate::crash::Random;
use crate::not_run::not_run;

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the crate lies in the repository")
}

/// A directory of its own for a test; removed when dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let dir = std::env::temp_dir().join(format!("tidemill-test-{}-{number}-{name}", std::process::id()));
            match std::fs::create_dir(&dir) {
                Ok(()) => return Scratch(dir),
                // Left by a run that was killed and had this process number: its files are none of this test's.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => panic!("a temporary directory, {}: {e}", dir.display()),
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A path below, as text.
    pub fn at(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Writes a file below and returns its path.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        std::fs::write(self.0.join(name), content).expect("writing a test's file");
        self.at(name)
    }

    /// Puts other content into a file that somebody else may be reading, who sees the one or the other.
    pub fn replace(&self, name: &str, content: impl AsRef<[u8]>) {
        let new = self.write(&format!("{name}.new"), content);
        std::fs::rename(new, self.0.join(name)).expect("replacing a test's file");
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// How long a test waits for what must come. Not a bound on time: what takes longer hangs, even on a slow machine that has
/// more to do.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// A port that is free, for somebody else to listen on. It is below those that the system gives to clients and to who asks
/// for any, so that nobody has it before it is used, or while a server is away; and no other test gets it.
pub fn free_port() -> u16 {
    const EACH: u16 = 200;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 15_000 + (std::process::id() % 75) as u16 * EACH + number % EACH;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// The command line under test.
pub fn tidemill() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill"));
    command.env("NO_COLOR", "1");
    command
}

/// Runs a command to its end; one that hangs is killed and fails the test.
pub fn finish(command: &mut Command) -> Output {
    let shown = format!("{command:?}");
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starting tidemill");
    let id = child.id() as i32;
    let (done, watch) = std::sync::mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        let hung = watch.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout);
        if hung {
            let _ = Command::new("kill").args(["-9", &id.to_string()]).status();
        }
        hung
    });
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let mut errors = child.stderr.take().expect("piped");
    let reader = std::thread::spawn(move || {
        let _ = errors.read_to_end(&mut stderr);
        stderr
    });
    let _ = child.stdout.take().expect("piped").read_to_end(&mut stdout);
    let status = child.wait().expect("waiting for tidemill");
    let _ = done.send(());
    assert!(!watchdog.join().expect("the watchdog"), "hung for {PATIENCE:?}: {shown}");
    Output { status, stdout, stderr: reader.join().expect("the reader") }
}

/// What a run printed.
pub fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The lines of all part files in a sink's directory, sorted; hidden files are not visible output.
pub fn sink_lines(dir: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let Ok(entries) = std::fs::read_dir(dir) else { return lines };
    for entry in entries {
        let path = entry.expect("a directory entry").path();
        if path.file_name().is_some_and(|n| n.to_string_lossy().starts_with('.')) {
            continue;
        }
        let content = std::fs::read_to_string(&path).expect("a part file in UTF-8");
        lines.extend(content.lines().map(str::to_string));
    }
    lines.sort();
    lines
}

/// Folds the changelog that the `print` sink `name` wrote (`name> +I[a, 1]`, `name:2> -U[a, 1]`) to
/// the final rows, sorted.
pub fn fold(stdout: &str, name: &str) -> Vec<String> {
    let mut rows: BTreeMap<String, i64> = BTreeMap::new();
    for line in stdout.lines() {
        let Some((who, change)) = line.split_once("> ") else { panic!("not a line of a print sink: {line:?}") };
        if who.split(':').next() != Some(name) {
            continue;
        }
        let (kind, row) = change.split_at(2);
        let row = row.strip_prefix('[').and_then(|r| r.strip_suffix(']')).unwrap_or_else(|| panic!("not a row of a changelog: {line:?}"));
        *rows.entry(row.to_string()).or_default() += if matches!(kind, "+I" | "+U") { 1 } else { -1 };
    }
    let mut out = Vec::new();
    for (row, count) in rows {
        assert!(count >= 0, "row {row:?} was retracted {} times more than it was there", -count);
        out.extend(std::iter::repeat_n(row, count as usize));
    }
    out.sort();
    out
}

/// Folds lines of changes in Debezium's form to the rows that they leave, sorted. The changes lie in files of several
/// shards and attempts, so their order is not looked at.
pub fn fold_changes(lines: &[String]) -> Vec<String> {
    let mut rows: BTreeMap<String, i64> = BTreeMap::new();
    for line in lines {
        let change: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("not a change: {line:?}: {e}"));
        for (side, by) in [("before", -1), ("after", 1)] {
            if !change[side].is_null() {
                *rows.entry(change[side].to_string()).or_default() += by;
            }
        }
    }
    let mut out = Vec::new();
    for (row, count) in rows {
        assert!(count >= 0, "row {row} was retracted {} times more than it was there", -count);
        out.extend(std::iter::repeat_n(row, count as usize));
    }
    out
}

/// A process in the background; killed when dropped.
pub struct Background(pub std::process::Child);

impl Background {
    /// Starts a command without standard input; what it writes can be read from the pipes.
    pub fn start(command: &mut Command) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starting tidemill");
        Background(child)
    }

    /// Sends a signal by its name, such as `INT`.
    pub fn signal(&self, name: &str) {
        let id = self.0.id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &id]).status().expect("the command `kill`");
        assert!(sent.success(), "no process {id} to send SIG{name} to");
    }

    /// Waits for the end and gives the exit code (none if a signal ended it) and standard error. For
    /// processes that write little.
    pub fn end(&mut self) -> (Option<i32>, String) {
        let mut status = None;
        wait_for("the process to end", || {
            status = self.0.try_wait().expect("waiting for tidemill");
            status.is_some()
        });
        let mut errors = Vec::new();
        let _ = self.0.stderr.take().expect("piped, and read once").read_to_end(&mut errors);
        (status.and_then(|s| s.code()), String::from_utf8_lossy(&errors).into_owned())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Jobs that are killed at any moment and go on.
pub struct Kills {
    random: Random,
    wanted: u64,
    /// How often a job was killed so far.
    pub done: u64,
}

impl Kills {
    /// So many, at moments that `random` gives.
    pub fn new(wanted: u64, random: Random) -> Self {
        Kills { random, wanted, done: 0 }
    }

    /// Whether more are wanted. A job may finish before it was killed often enough: then another begins anew.
    pub fn left(&self) -> bool {
        self.done < self.wanted
    }

    /// Lets a job run to its end, with its checkpoints in `state`: killed within `longest_ms`, again and again until there are
    /// enough kills or it was faster. `command` makes a run, and says what it is like. Returns what happened, for messages.
    pub fn run(&mut self, state: &Path, longest_ms: u64, mut command: impl FnMut(&mut Random) -> (Command, String)) -> Vec<String> {
        let (mut within_ms, mut before, mut history) = (longest_ms, None, Vec::new());
        loop {
            let (mut command, how) = command(&mut self.random);
            let delay_ms = 1 + self.random.below(within_ms);
            history.push(format!("{how}, {delay_ms} ms"));
            if !self.left() {
                let output = finish(&mut command);
                assert!(output.status.success(), "{command:?} after {history:#?}\n{}", text(&output));
                return history;
            }
            let mut running = Background::start(&mut command);
            std::thread::sleep(Duration::from_millis(delay_ms));
            let _ = running.0.kill();
            match running.end() {
                (None, _) => self.done += 1,
                (Some(0), _) => return history,
                (code, errors) => panic!("ended with {code:?} after {history:#?}\n{errors}"),
            }
            // Without a new checkpoint there was no progress: more time, until there is.
            let now = newest_checkpoint(state);
            within_ms = if now > before { longest_ms } else { within_ms + within_ms / 3 };
            before = now;
        }
    }
}

/// Waits until something is so; fails the test after [`PATIENCE`].
#[track_caller]
pub fn wait_for(what: &str, mut ready: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !ready() {
        assert!(begun.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The number of the newest complete checkpoint in a state directory.
pub fn newest_checkpoint(state: &Path) -> Option<u64> {
    let entries = std::fs::read_dir(state).ok()?;
    entries.filter_map(|e| e.ok()?.file_name().to_str()?.strip_prefix("chk-")?.parse().ok()).max()
}

/// How many connections a test opens at once: `few`, or what the environment variable TIDEMILL_TEST_CONNECTIONS says
/// (10000 takes a minute). `None`, with a word, where the system lets a process open too few files.
pub fn many_connections(few: u64) -> Option<u64> {
    let wanted = std::env::var("TIDEMILL_TEST_CONNECTIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(few);
    if tidemill_runtime::metrics::raise_open_files() < 2 * wanted + 200 {
        not_run(&format!("{wanted} connections (this system lets a process open too few)"));
        return None;
    }
    Some(wanted)
}
