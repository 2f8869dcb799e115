//! `adapter` and `publish`: rows of connectors into streams of a server, and the other way.
//!
//! Publishing is `tidemill_remote`'s loop; a stream that is read becomes a job of one insert.

mod metrics_file;

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use arrow::datatypes::Schema;
use serde_json::{Value, json};
use tidemill_connect::{ConnectError, listeners, siddhi_tcp};
use tidemill_format::options::RawOptions;
use tidemill_format::types::{plain_type, type_name};
use tidemill_remote::adapter::{Adapter, Progress, name_of, parse_block_size, parse_options};
use tidemill_remote::flight::options::FlightOptions;
use tidemill_runtime::job::ProgressReport;
use tidemill_runtime::metrics::{Monitor, peak_bytes, process_usage};
use tidemill_runtime::script::{Script, Step, render};
use tidemill_runtime::{JobError, JobOptions};

use self::metrics_file::MetricsFile;
use crate::args::{AdapterArgs, Input, PublishArgs, RemoteArgs};
use crate::end::interrupted;
use crate::run::{pair, stop_on_signals};
use crate::show::{self, Live, count};
use crate::{Failure, files};

/// A failure of publishing or subscribing, beyond what was typed.
pub fn failed(error: ConnectError) -> Failure {
    Failure { message: format!("error: {error}"), code: 1 }
}

fn is_stream(text: &str) -> bool {
    let text = text.trim_start().to_ascii_lowercase();
    text.starts_with("flight://") || text.starts_with("flight+tls://")
}

/// What a table of connector `flight` would have as options.
fn pairs(url: &str, remote: &RemoteArgs) -> Vec<(String, String)> {
    let given = [
        ("url", Some(url.to_string())),
        ("token", remote.token.clone()),
        ("ca-file", remote.ca_file.clone()),
        ("reconnect.attempts", remote.reconnect.map(|n| n.to_string())),
    ];
    given.into_iter().filter_map(|(key, value)| Some((key.to_string(), value?))).collect()
}

/// The options of a stream on the command line; `more` are those of the command.
pub fn flight_options(url: &str, remote: &RemoteArgs, more: Vec<(String, String)>) -> Result<FlightOptions, Failure> {
    let mut raw = RawOptions::new(format!("'{url}'"), pairs(url, remote).into_iter().chain(more));
    FlightOptions::checked(&mut raw).map_err(|e| Failure::usage(e.to_string()))
}

fn options(text: &str, argument: &str) -> Result<Vec<(String, String)>, Failure> {
    parse_options(text).map_err(|why| Failure::usage(format!("{argument}: {why}")))
}

/// What `--block-size` says.
pub fn block_rows(text: Option<&String>) -> Result<Option<usize>, Failure> {
    let Some(text) = text else { return Ok(None) };
    parse_block_size(text).map_err(|why| Failure::usage(format!("--block-size {text}: {why}")))
}

/// Ctrl-C and SIGTERM end in good order, saying `what` that is; the second time at once.
pub fn stop_flag(what: &'static str) -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let handler = stop.clone();
    let mut signals = signal_hook::iterator::Signals::new([signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM])
        .map_err(|e| Failure { message: format!("error: listening for signals: {e}"), code: 1 })?;
    std::thread::spawn(move || {
        for _ in signals.forever() {
            if handler.swap(true, Ordering::Relaxed) {
                let _ = writeln!(std::io::stderr(), "\nstopped at once");
                interrupted();
            }
            let _ = writeln!(std::io::stderr(), "\nstopping: {what} (once more to stop at once)");
        }
    });
    Ok(stop)
}

pub fn adapter(args: &AdapterArgs) -> Result<(), Failure> {
    match (is_stream(&args.from), is_stream(&args.to)) {
        (_, true) if !args.set.is_empty() => {
            Err(Failure::usage("--set: only what reads a stream is a job; options of the connector stand in --from"))
        }
        (_, true) => {
            let from: Vec<(String, String)> = if is_stream(&args.from) {
                let flight = [("connector".to_string(), "flight".to_string())];
                flight.into_iter().chain(pairs(&args.from, &args.remote)).collect()
            } else {
                options(&args.from, "--from")?
            };
            let adapter = Adapter {
                from,
                to: flight_options(&args.to, &args.remote, Vec::new())?,
                id: args.id.clone(),
                block_rows: block_rows(args.block_size.as_ref())?,
            };
            feed("adapter", &[adapter], args.quiet, args.metrics.as_deref())
        }
        (true, false) => drain(args),
        (false, false) => Err(Failure::usage("one of --from and --to must be a stream: flight://HOST:PORT/STREAM")),
    }
}

pub fn publish(args: &PublishArgs) -> Result<(), Failure> {
    let to = flight_options(&args.url, &args.remote, Vec::new())?;
    let block_rows = block_rows(args.block_size.as_ref())?;
    let one = |path: Option<&String>| {
        let format = args.format.unwrap_or_else(|| path.map_or(Input::Csv, |path| by_extension(path)));
        let mut from = match path {
            Some(path) => vec![("connector", "filesystem".to_string()), ("path", path.clone())],
            None => vec![("connector", "stdin".to_string())],
        };
        let name = if format == Input::Csv { "csv" } else { "json" };
        from.push(("format", name.to_string()));
        if args.header && format == Input::Csv {
            from.push(("csv.header", "true".to_string()));
        }
        if args.skip_errors {
            from.push(("on-error", "skip".to_string()));
        }
        let from = from.into_iter().map(|(key, value)| (key.to_string(), value)).collect();
        Adapter { from, to: to.clone(), id: args.id.clone(), block_rows }
    };
    let adapters: Vec<Adapter> = if args.files.is_empty() { vec![one(None)] } else { args.files.iter().map(|f| one(Some(f))).collect() };
    feed("publish", &adapters, args.quiet, args.metrics.as_deref())
}

fn by_extension(path: &str) -> Input {
    // The extension below that of a compression.
    let name = ["gz", "zst"].iter().find_map(|e| path.strip_suffix(&format!(".{e}"))).unwrap_or(path);
    match Path::new(name).extension().and_then(|e| e.to_str()) {
        Some("json" | "jsonl" | "ndjson") => Input::Json,
        _ => Input::Csv,
    }
}

/// Publishes one after the other.
fn feed(mode: &str, adapters: &[Adapter], quiet: bool, metrics: Option<&Path>) -> Result<(), Failure> {
    usage();
    let stop = stop_flag("waiting for the acknowledgement of what was sent")?;
    // Rows are read and encoded on this thread, and go out on one connection: a second thread would only take turns
    // with the first, at the price of waking each other.
    tidemill_connect::io::set_threads(1);
    let name = match adapters {
        [one] => one.id.clone().unwrap_or_else(|| name_of(&one.from)),
        _ => mode.to_string(),
    };
    let mut line = Line::new(quiet);
    let mut file = MetricsFile::new(metrics);
    let mut all = Progress { finished: true, ..Progress::default() };
    for adapter in adapters {
        let (before, began) = (all, Instant::now());
        let done = adapter.run(stop.clone(), |now| {
            // Not finished before the last one is, and only then is it said.
            all = Progress { finished: false, ..add(&before, now) };
            line.show(&all);
            file.update(|| report(&name, mode, &all));
        });
        line.end();
        match done {
            Ok(done) => all = add(&before, &done),
            Err(error) => {
                all = Progress { finished: false, elapsed: before.elapsed + began.elapsed(), ..all };
                // The error says more than one about this.
                let _ = file.finish(&report(&name, mode, &all));
                return Err(failed(error));
            }
        }
        if !all.finished {
            break;
        }
    }
    if !quiet {
        summary(&name, &all);
    }
    file.finish(&report(&name, mode, &all))
}

/// User and system time since this was first asked, in seconds: as that of a job it does not have the start of the process.
fn usage() -> (f64, f64) {
    static BEGAN: OnceLock<(f64, f64)> = OnceLock::new();
    let (user_s, sys_s) = process_usage();
    let began = BEGAN.get_or_init(|| (user_s, sys_s));
    (user_s - began.0, sys_s - began.1)
}

/// What several adapters have done, one after the other.
fn add(a: &Progress, b: &Progress) -> Progress {
    Progress {
        elapsed: a.elapsed + b.elapsed,
        rows: a.rows + b.rows,
        bytes_in: a.bytes_in + b.bytes_in,
        bytes_out: a.bytes_out + b.bytes_out,
        blocks: a.blocks + b.blocks,
        bad_rows: a.bad_rows + b.bad_rows,
        reconnects: a.reconnects + b.reconnects,
        splits_done: a.splits_done + b.splits_done,
        finished: a.finished && b.finished,
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1_048_576.0)
}

fn rate(progress: &Progress) -> f64 {
    progress.rows as f64 / progress.elapsed.as_secs_f64().max(1e-9)
}

fn summary(name: &str, done: &Progress) {
    let (user_s, sys_s) = usage();
    let how = if done.finished { "finished" } else { "stopped; the same command goes on from here if its source can be read again" };
    let bad = if done.bad_rows > 0 { format!(", {} unreadable", done.bad_rows) } else { String::new() };
    eprintln!("{name}: {how}");
    eprintln!(
        "  {} rows published{bad}, {} read, {} sent in {} messages, {} reconnects",
        done.rows,
        megabytes(done.bytes_in),
        megabytes(done.bytes_out),
        done.blocks,
        done.reconnects
    );
    eprintln!(
        "  {:.2} s, {} rows/s, CPU {user_s:.2} s user {sys_s:.2} s system, peak memory {}",
        done.elapsed.as_secs_f64(),
        count(rate(done) as u64),
        megabytes(peak_bytes())
    );
    eprint!("{}", show::strangers(&listeners::stats(), &unknown_channels()));
}

/// Frames of Siddhi's transport for channels that are not read.
fn unknown_channels() -> BTreeMap<String, u64> {
    siddhi_tcp::unknown_channels().into_iter().collect()
}

/// The same keys as `run --metrics` where they mean the same. An adapter knows no latency: rows are
/// at their end in the job that reads the stream.
fn report(name: &str, mode: &str, done: &Progress) -> Value {
    let (user_s, sys_s) = usage();
    with_listeners(json!({
        "job": name,
        "mode": mode,
        "parallelism": 1,
        "finished": done.finished,
        "elapsed_s": done.elapsed.as_secs_f64(),
        "user_s": user_s,
        "sys_s": sys_s,
        "peak_memory_bytes": peak_bytes(),
        "rows_in": done.rows + done.bad_rows,
        "rows_out": done.rows,
        "rows_per_s": rate(done),
        "latency_ms": {"p50": 0.0, "p99": 0.0, "p999": 0.0, "max": 0.0},
        "bad_rows": done.bad_rows,
        "bytes_in": done.bytes_in,
        "bytes_out": done.bytes_out,
        "blocks": done.blocks,
        "reconnects": done.reconnects,
        "splits": done.splits_done,
    }))
}

/// What a job that has not ended well, or not yet, can say of what its summary would.
fn running(name: &str, shards: usize, now: &ProgressReport, monitor: &Monitor) -> Value {
    let (user_s, sys_s) = usage();
    let elapsed_s = now.elapsed.as_secs_f64();
    with_listeners(json!({
        "job": name,
        "mode": "streaming",
        "parallelism": shards,
        "finished": false,
        "elapsed_s": elapsed_s,
        "user_s": user_s,
        "sys_s": sys_s,
        "peak_memory_bytes": peak_bytes(),
        "rows_in": now.rows_in,
        "rows_out": now.rows_out,
        "rows_per_s": now.rows_in as f64 / elapsed_s.max(1e-9),
        "latency_ms": now.latency_ms,
        "nodes": monitor.nodes(),
    }))
}

fn with_listeners(mut report: Value) -> Value {
    let (listeners, unknown_channels) = (listeners::stats(), unknown_channels());
    if !listeners.is_empty() {
        report["listeners"] = json!(listeners);
    }
    if !unknown_channels.is_empty() {
        report["unknown_channels"] = json!(unknown_channels);
    }
    report
}

/// The live line: rewritten in place on a terminal, a line every ten seconds elsewhere.
struct Line {
    quiet: bool,
    terminal: bool,
    next_s: f64,
    shown: bool,
}

impl Line {
    fn new(quiet: bool) -> Self {
        Line { quiet, terminal: std::io::stderr().is_terminal(), next_s: 10.0, shown: false }
    }

    fn show(&mut self, now: &Progress) {
        let seconds = now.elapsed.as_secs_f64();
        if self.quiet || (!self.terminal && seconds < self.next_s) {
            return;
        }
        self.next_s = seconds + 10.0;
        let text = format!("{seconds:>6.1} s  {} rows  {}/s  {} sent", count(now.rows), count(rate(now) as u64), megabytes(now.bytes_out));
        let mut err = std::io::stderr().lock();
        let _ = if self.terminal { write!(err, "\r\x1b[2K{text}") } else { writeln!(err, "{text}") };
        let _ = err.flush();
        self.shown = true;
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.shown) && self.terminal {
            eprint!("\r\x1b[2K");
        }
    }
}

/// The settings of a job that reads a stream. A stream has no end, and many sinks show their rows, and the
/// server forgets what it kept of them, with a checkpoint: one a second unless it is set otherwise.
fn settings(args: &AdapterArgs) -> Result<BTreeMap<String, String>, Failure> {
    let mut settings = BTreeMap::from([("execution.checkpointing.interval".to_string(), "1 s".to_string())]);
    for text in &args.set {
        let (key, value) = pair(text, "--set")?;
        settings.insert(key, value);
    }
    if let Some(size) = &args.block_size {
        settings.insert("block.size".to_string(), size.clone());
    }
    Ok(settings)
}

/// Writes a stream's rows by a connector: a job of one insert.
fn drain(args: &AdapterArgs) -> Result<(), Failure> {
    usage();
    let settings = settings(args)?;
    let to = options(&args.to, "--to")?;
    if !to.iter().any(|(key, _)| key == "connector") {
        return Err(Failure::usage("--to: option 'connector' is required, such as connector=filesystem"));
    }
    let flight = flight_options(&args.from, &args.remote, Vec::new())?;
    let client = flight.client().map_err(failed)?;
    let stop = stop_on_signals()?;
    let info = client.describe(flight.reconnect(), Arc::default()).map_err(failed)?;
    let schema = info.schema.clone().ok_or_else(|| failed(ConnectError::new(format!("'{}': the server says no columns", args.from))))?;
    let name = args.id.clone().unwrap_or_else(|| name_of(&to));
    let mut from = pairs(&args.from, &args.remote);
    from.push(("connector".to_string(), "flight".to_string()));
    if info.updating() {
        from.push(("changes".to_string(), "as-column".to_string()));
    }
    if args.id.is_some() || info.exactly_once() == Some(true) {
        from.push(("name".to_string(), name.clone()));
    }
    let text = job(&schema, &from, &to);
    let mut script = Script::new(name.clone(), text.clone(), settings);
    script.resolve_files(Arc::new(files::resolve));
    let fail = |e: JobError| {
        let code = if matches!(e, JobError::Failed(_)) { 1 } else { 2 };
        Failure { message: render(&e, "the adapter's job", &text, false), code }
    };
    for step in script.steps().map_err(fail)? {
        let Step::Run(inserts, settings) = step else { continue };
        let monitor = Monitor::default();
        let options = JobOptions { state_dir: args.state_dir.clone(), monitor: Some(monitor.clone()), ..JobOptions::default() };
        let mut live = Live::new(args.quiet);
        let mut file = MetricsFile::new(args.metrics.as_deref());
        let mut last = ProgressReport::default();
        let done = script.run(&inserts, &settings, &options, &stop, |report| {
            live.show(report);
            last = report.clone();
            file.update(|| running(&name, settings.shards(), report, &monitor));
        });
        live.end();
        let done = match done {
            Ok(done) => done,
            Err(error) => {
                // The error says more than one about this.
                let _ = file.finish(&running(&name, settings.shards(), &last, &monitor));
                return Err(fail(error));
            }
        };
        if !args.quiet {
            show::summary(&done, args.state_dir.is_some());
        }
        file.finish(&done)?;
    }
    Ok(())
}

/// The job that writes what a stream gives.
fn job(schema: &Schema, from: &[(String, String)], to: &[(String, String)]) -> String {
    let column = |field: &arrow::datatypes::FieldRef| {
        let null = if field.is_nullable() { "" } else { " NOT NULL" };
        format!("  `{}` {}{null}", field.name().replace('`', "``"), type_name(&plain_type(field.data_type())))
    };
    let columns = schema.fields().iter().map(column).collect::<Vec<_>>().join(",\n");
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let with = |options: &[(String, String)]| {
        let all: Vec<_> = options.iter().map(|(key, value)| format!("  {} = {}", quoted(key), quoted(value))).collect();
        all.join(",\n")
    };
    format!(
        "CREATE TABLE source_stream (\n{columns}\n) WITH (\n{}\n);\nCREATE TABLE target (\n{columns}\n) WITH (\n{}\n);\n\
         INSERT INTO target SELECT * FROM source_stream;\n",
        with(from),
        with(to)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::{DataType, Field, TimeUnit};
    use clap::Parser;

    use crate::args::{Cli, Command};

    fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
    }

    #[test]
    fn a_stream_becomes_a_job() {
        let schema = Schema::new(vec![
            Field::new("a`b", DataType::Int64, false),
            Field::new("t", DataType::Timestamp(TimeUnit::Millisecond, None), true),
            Field::new("s", DataType::LargeUtf8, true),
        ]);
        let text = job(&schema, &owned(&[("connector", "flight")]), &owned(&[("connector", "print"), ("print-identifier", "it's")]));
        assert_eq!(
            text,
            "CREATE TABLE source_stream (\n  `a``b` BIGINT NOT NULL,\n  `t` TIMESTAMP(3),\n  `s` STRING\n) \
             WITH (\n  'connector' = 'flight'\n);\n\
             CREATE TABLE target (\n  `a``b` BIGINT NOT NULL,\n  `t` TIMESTAMP(3),\n  `s` STRING\n) \
             WITH (\n  'connector' = 'print',\n  'print-identifier' = 'it''s'\n);\nINSERT INTO target SELECT * FROM source_stream;\n"
        );
    }

    #[test]
    fn settings_of_a_job() {
        let parsed = |from: &str, to: &str, more: &[&str]| {
            let words = ["tidemill", "adapter", "--from", from, "--to", to].into_iter().chain(more.iter().copied());
            match Cli::try_parse_from(words).unwrap().command {
                Command::Adapter(args) => args,
                _ => panic!("another command"),
            }
        };
        let check = |more: &[&str], expect: Result<&[(&str, &str)], &str>| {
            let found = settings(&parsed("flight://h:1/s", "connector=print", more));
            match (found, expect) {
                (Ok(found), Ok(expect)) => assert_eq!(found.into_iter().collect::<Vec<_>>(), owned(expect)),
                (Err(failure), Err(part)) => assert!(failure.message.contains(part), "{}", failure.message),
                (found, _) => panic!("{more:?}: {:?}", found.map_err(|failure| failure.message)),
            }
        };
        check(&[], Ok(&[("execution.checkpointing.interval", "1 s")]));
        let set = ["--set", "execution.checkpointing.interval=5 s", "--set", "parallelism.default=1", "--block-size", "64"];
        check(&set, Ok(&[("block.size", "64"), ("execution.checkpointing.interval", "5 s"), ("parallelism.default", "1")]));
        check(&["--set", "parallelism"], Err("--set parallelism: expected KEY=VALUE"));
        let feeds = parsed("connector=stdin,format=csv", "flight://h:1/s", &["--set", "parallelism.default=1"]);
        assert_eq!(adapter(&feeds).err().map(|failure| failure.code), Some(2));
    }

    #[test]
    fn formats_by_extension() {
        for (path, csv) in [("a.csv", true), ("a.json", false), ("b/a.ndjson.gz", false), ("a", true), ("a.csv.zst", true)] {
            assert_eq!(by_extension(path) == Input::Csv, csv, "{path}");
        }
    }

    #[test]
    fn streams_are_told_from_options() {
        assert!(is_stream("flight://h:1/s") && is_stream("Flight+TLS://h:1/s") && !is_stream("connector=flight,url=flight://h:1/s"));
    }
}
