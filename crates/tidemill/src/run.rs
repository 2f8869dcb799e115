//! `run`, `sql` and `explain`.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Read, Write};
use std::path::Path;
use std::sync::Arc;

use tidemill_runtime::metrics::raise_open_files;
use tidemill_runtime::script::{Script, Step, render};
use tidemill_runtime::{JobError, JobOptions, Stop, batch::BatchRunner};

use crate::args::{Output, RunArgs, SqlArgs};
use crate::end::interrupted;
use crate::show::{self, Live};
use crate::{Failure, define, files, prompt};

/// `KEY=VALUE`.
pub fn pair(text: &str, option: &str) -> Result<(String, String), Failure> {
    text.split_once('=')
        .map(|(k, v)| (k.trim().to_string(), v.trim().to_string()))
        .ok_or_else(|| Failure::usage(format!("{option} {text}: expected KEY=VALUE")))
}

fn overrides(args: &RunArgs) -> Result<BTreeMap<String, String>, Failure> {
    let mut map = BTreeMap::new();
    for text in &args.set {
        let (key, value) = pair(text, "--set")?;
        map.insert(key, value);
    }
    if let Some(n) = args.parallelism {
        map.insert("parallelism.default".into(), n.to_string());
    }
    if let Some(memory) = &args.memory {
        map.insert("memory.limit".into(), memory.clone());
    }
    Ok(map)
}

/// The job's text with `${NAME}` replaced.
pub fn text(job: &Path, define: &[String]) -> Result<String, Failure> {
    let text = if job == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(|e| Failure::usage(format!("reading the job from standard input: {e}")))?;
        text
    } else {
        std::fs::read_to_string(job).map_err(|e| Failure::usage(format!("reading the job '{}': {e}", job.display())))?
    };
    let values = define.iter().map(|d| pair(d, "--define")).collect::<Result<BTreeMap<_, _>, _>>()?;
    define::substitute(&text, &values).map_err(|e| failure(&JobError::from(e), &job.display().to_string(), &text))
}

fn script(args: &RunArgs) -> Result<Script, Failure> {
    let name = args.job.file_stem().map_or_else(|| "job".into(), |s| s.to_string_lossy().into_owned());
    let mut script = Script::new(name, text(&args.job, &args.define)?, overrides(args)?);
    script.resolve_files(Arc::new(files::resolve));
    Ok(script)
}

/// The end of the process that an error of a job is; errors of SQL point at the text.
pub fn failure(error: &JobError, file: &str, text: &str) -> Failure {
    let color = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let code = if matches!(error, JobError::Failed(_)) { 1 } else { 2 };
    Failure { message: render(error, file, text, color), code }
}

/// Ctrl-C and SIGTERM stop the job with a last checkpoint; the second time at once.
pub fn stop_on_signals() -> Result<Stop, Failure> {
    let stop = Stop::default();
    let handler = stop.clone();
    let mut signals = signal_hook::iterator::Signals::new([signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM])
        .map_err(|e| Failure { message: format!("error: listening for signals: {e}"), code: 1 })?;
    std::thread::spawn(move || {
        for _ in signals.forever() {
            // A server may have lost whoever read its log: that must not keep it from stopping.
            let say = |text: &str| drop(writeln!(std::io::stderr(), "\n{text}"));
            if handler.requested() {
                say("stopped at once; what the last checkpoint holds is kept");
                interrupted();
            }
            handler.stop();
            say("stopping: taking a last checkpoint (once more to stop at once)");
        }
    });
    Ok(stop)
}

pub fn run(args: &RunArgs) -> Result<(), Failure> {
    let mut script = script(args)?;
    let file = args.job.display().to_string();
    let text = script.text().to_string();
    let fail = |e: JobError| failure(&e, &file, &text);
    let steps = script.steps().map_err(fail)?;
    let jobs = steps.iter().filter(|s| matches!(s, Step::Run(..))).count();
    if steps.is_empty() {
        return Err(Failure::usage(format!("'{file}' runs nothing: it has neither an INSERT nor a query")));
    }
    // Tables that listen may have many peers, and many files may be read at once.
    raise_open_files();
    let stop = stop_on_signals()?;
    let mut summaries = Vec::new();
    let mut number = 0;
    for step in &steps {
        match step {
            Step::Show(text) => println!("{text}"),
            Step::Query(plan, settings) => {
                let runner = BatchRunner::new(settings).map_err(fail)?;
                show::rows(&runner, plan, Output::Table).map_err(fail)?;
            }
            Step::Run(inserts, settings) => {
                // Several jobs of one file keep their checkpoints apart.
                number += 1;
                let state_dir = args.state_dir.as_ref().map(|d| if jobs > 1 { d.join(number.to_string()) } else { d.clone() });
                let options = JobOptions { state_dir, fresh: args.fresh, monitor: None };
                let mut live = Live::new(args.quiet);
                let summary = script.run(inserts, settings, &options, &stop, |report| live.show(report));
                live.end();
                let summary = summary.map_err(fail)?;
                if !args.quiet {
                    show::summary(&summary, args.state_dir.is_some());
                }
                let finished = summary.finished;
                summaries.push(summary);
                if !finished {
                    break;
                }
            }
        }
    }
    if let Some(path) = &args.metrics {
        let json = match summaries.as_slice() {
            [one] => serde_json::to_vec_pretty(one),
            many => serde_json::to_vec_pretty(many),
        };
        let written = json.map_err(std::io::Error::other).and_then(|j| std::fs::write(path, j));
        written.map_err(|e| Failure { message: format!("error: writing the metrics to '{}': {e}", path.display()), code: 1 })?;
    }
    Ok(())
}

pub fn explain(args: &RunArgs) -> Result<(), Failure> {
    let mut script = script(args)?;
    let file = args.job.display().to_string();
    let text = script.text().to_string();
    let fail = |e: JobError| failure(&e, &file, &text);
    for step in script.steps().map_err(fail)? {
        let (what, settings) = match step {
            Step::Show(text) => {
                println!("{text}");
                continue;
            }
            Step::Run(inserts, settings) => (tidemill_sql::session::Outcome::Inserts(inserts), settings),
            Step::Query(plan, settings) => (tidemill_sql::session::Outcome::Query(plan), settings),
        };
        print!("{}", script.explain(what, &settings).map_err(fail)?);
    }
    Ok(())
}

/// The session of `tidemill sql`.
pub fn session(text: &str, args: &SqlArgs) -> Result<Script, Failure> {
    let mut map = BTreeMap::new();
    for setting in &args.set {
        let (key, value) = pair(setting, "--set")?;
        map.insert(key, value);
    }
    map.insert("execution.runtime-mode".into(), "batch".into());
    let mut script = Script::new("sql", text, map);
    script.resolve_files(Arc::new(files::resolve));
    Ok(script)
}

pub fn sql(args: &SqlArgs) -> Result<(), Failure> {
    let text = match &args.sql {
        Some(sql) => sql.clone(),
        None if std::io::stdin().is_terminal() => return prompt::prompt(args),
        None => {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .map_err(|e| Failure::usage(format!("reading statements from standard input: {e}")))?;
            text
        }
    };
    let mut script = session(&text, args)?;
    let fail = |e: JobError| failure(&e, "query", &text);
    let stop = stop_on_signals()?;
    for step in script.steps().map_err(fail)? {
        match step {
            Step::Show(text) => println!("{text}"),
            Step::Query(plan, settings) => {
                let runner = BatchRunner::new(&settings).map_err(fail)?;
                show::rows(&runner, &plan, args.output).map_err(fail)?;
            }
            Step::Run(inserts, settings) => {
                let summary = script.run(&inserts, &settings, &JobOptions::default(), &stop, |_| {}).map_err(fail)?;
                let _ = writeln!(std::io::stderr(), "{} rows written", summary.rows_out);
            }
        }
    }
    Ok(())
}
