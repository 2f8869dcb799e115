//! `tidemill sql` on a terminal: statements are typed, with history and completion ([`complete`]), and end with a
//! semicolon; long results go through a pager.

mod complete;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Editor};
use tidemill_runtime::batch::BatchRunner;
use tidemill_runtime::script::{Script, Step};
use tidemill_runtime::{JobError, JobOptions, Stop};
use tidemill_sql::FileRequest;
use tidemill_sql::types::flink_type;

use self::complete::Typed;
use crate::args::{Output, SqlArgs};
use crate::end::interrupted;
use crate::run::{failure, session};
use crate::{Failure, files, show};

/// Statements that the history keeps.
const HISTORY_MAX: usize = 10_000;

/// The commands of the prompt itself.
const COMMANDS: &[(&str, &str)] = &[
    (".help", "show this"),
    (".tables", "list tables and views"),
    (".schema [NAME | 'FILE']", "show how a table was created, or the columns of a file"),
    (".timing on|off", "show how long statements take"),
    (".output table|csv|json", "how rows are shown"),
    (".quit", "leave; Ctrl-D does, too"),
];

/// Whether a pager has the terminal: Ctrl-C is then for the pager.
static PAGING: AtomicBool = AtomicBool::new(false);

/// A session of statements that are typed.
struct Prompt {
    script: Script,
    timing: bool,
    output: Output,
    /// Stops the statement that runs.
    stop: Arc<Mutex<Stop>>,
}

/// Asks for statements until there are no more.
pub fn prompt(args: &SqlArgs) -> Result<(), Failure> {
    let broken = |e: ReadlineError| Failure { message: format!("error: the terminal: {e}"), code: 1 };
    let config = Config::builder().completion_type(CompletionType::List).max_history_size(HISTORY_MAX).map_err(broken)?.build();
    let mut editor: Editor<Typed, FileHistory> = Editor::with_config(config).map_err(broken)?;
    editor.set_helper(Some(Typed::new()));
    let history = history_file();
    if let Some(path) = &history {
        // The first session has none.
        let _ = editor.load_history(path);
    }
    let mut prompt = Prompt { script: session("", args)?, timing: false, output: args.output, stop: Arc::default() };
    stop_on_interrupt(&prompt.stop)?;
    println!("tidemill {}; statements end with ';', .help shows more", env!("CARGO_PKG_VERSION"));
    loop {
        match editor.readline("tidemill> ") {
            Ok(text) if text.trim().is_empty() => {}
            Ok(text) => {
                let _ = editor.add_history_entry(text.trim());
                if let Some(path) = &history {
                    // Written at once: a session may end in any way.
                    let _ = editor.append_history(path);
                }
                let size = editor.dimensions().map(|(columns, rows)| (usize::from(columns), usize::from(rows)));
                if text.trim_start().starts_with('.') {
                    if !prompt.command(text.trim(), size) {
                        return Ok(());
                    }
                } else {
                    prompt.statements(&text, size);
                }
                if let Some(typed) = editor.helper_mut() {
                    typed.relations = prompt.script.relations();
                }
            }
            // Ctrl-C throws away what was typed.
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => return Ok(()),
            Err(e) => return Err(broken(e)),
        }
    }
}

/// Where the history is kept: as the XDG base directory specification has it for state.
fn history_file() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")))?;
    let directory = state.join("tidemill");
    std::fs::create_dir_all(&directory).ok()?;
    Some(directory.join("history"))
}

/// Ctrl-C while a statement runs stops it; once more ends the process.
fn stop_on_interrupt(stop: &Arc<Mutex<Stop>>) -> Result<(), Failure> {
    let stop = stop.clone();
    let mut signals = signal_hook::iterator::Signals::new([signal_hook::consts::SIGINT])
        .map_err(|e| Failure { message: format!("error: listening for signals: {e}"), code: 1 })?;
    std::thread::spawn(move || {
        for _ in signals.forever() {
            if PAGING.load(Ordering::Acquire) {
                continue;
            }
            let stop = stop.lock().unwrap_or_else(PoisonError::into_inner);
            if stop.requested() {
                interrupted();
            }
            stop.stop();
            let _ = writeln!(std::io::stderr(), "\nstopping (once more to leave)");
        }
    });
    Ok(())
}

impl Prompt {
    /// Runs statements; what is wrong with them is shown.
    fn statements(&mut self, text: &str, size: Option<(usize, usize)>) {
        let begun = Instant::now();
        let stop = Stop::default();
        *self.stop.lock().unwrap_or_else(PoisonError::into_inner) = stop.clone();
        self.script.go_on(text);
        let result = self.script.steps().and_then(|steps| steps.into_iter().try_for_each(|step| self.step(step, &stop, size)));
        if let Err(e) = result {
            eprintln!("{}", failure(&e, "query", text).message);
        }
        // What interrupts from here on interrupts nothing that was asked for before.
        *self.stop.lock().unwrap_or_else(PoisonError::into_inner) = Stop::default();
        if self.timing {
            println!("{:.3} s", begun.elapsed().as_secs_f64());
        }
    }

    fn step(&self, step: Step, stop: &Stop, size: Option<(usize, usize)>) -> Result<(), JobError> {
        match step {
            Step::Show(text) => page(&format!("{text}\n"), size),
            Step::Query(plan, settings) => {
                let runner = BatchRunner::new(&settings)?;
                match self.output {
                    // At most some thousand rows, which a pager may show.
                    Output::Table => {
                        let mut text = Vec::new();
                        show::rows_to(&mut text, &runner, &plan, Output::Table, stop)?;
                        page(&String::from_utf8_lossy(&text), size);
                    }
                    other => show::rows_to(&mut std::io::stdout().lock(), &runner, &plan, other, stop)?,
                }
            }
            Step::Run(inserts, settings) => {
                let summary = self.script.run(&inserts, &settings, &JobOptions::default(), stop, |_| {})?;
                println!("{} rows written", summary.rows_out);
            }
        }
        Ok(())
    }

    /// Carries out a command; false to leave.
    fn command(&mut self, text: &str, size: Option<(usize, usize)>) -> bool {
        let (name, argument) = text.split_once(char::is_whitespace).map_or((text, ""), |(name, rest)| (name, rest.trim()));
        let argument = argument.trim_end_matches(';');
        match (name.trim_end_matches(';'), argument) {
            (".help", _) => {
                let width = COMMANDS.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
                COMMANDS.iter().for_each(|(name, help)| println!("{name:<width$}  {help}"));
                println!("Tab completes keywords, tables, columns and, in quotes, files. $PAGER shows what is longer than the window.");
            }
            (".tables", _) => self.statements("SHOW TABLES;", size),
            (".schema", "") => {
                let tables: Vec<String> = self.script.relations().into_iter().map(|(name, _)| name).collect();
                if tables.is_empty() {
                    println!("(no tables)");
                }
                tables.iter().for_each(|name| self.statements(&format!("SHOW CREATE TABLE `{}`;", name.replace('`', "``")), size));
            }
            (".schema", file) if file.starts_with('\'') => match files::resolve(&request_of(file)) {
                Ok(tables) => {
                    let columns = tables.iter().flat_map(|t| &t.columns);
                    let rows: Vec<Vec<String>> = columns.map(|c| vec![c.name.clone(), flink_type(&c.data_type)]).collect();
                    page(&show::columns(&["column", "type"], &rows, &[false, false]), size);
                }
                Err(e) => eprintln!("error: {e}"),
            },
            (".schema", name) => self.statements(&format!("SHOW CREATE TABLE `{}`;", name.trim_matches('`').replace('`', "``")), size),
            (".timing", "on") => self.timing = true,
            (".timing", "off") => self.timing = false,
            (".output", "table") => self.output = Output::Table,
            (".output", "csv") => self.output = Output::Csv,
            (".output", "json") => self.output = Output::Json,
            (".quit" | ".exit", _) => return false,
            (known @ (".timing" | ".output"), _) => {
                let usage = COMMANDS.iter().find(|(name, _)| name.starts_with(known)).map_or("", |(name, _)| *name);
                eprintln!("error: write {usage}");
            }
            (other, _) => {
                let names: Vec<&str> = COMMANDS.iter().map(|(name, _)| name.split(' ').next().unwrap_or(name)).collect();
                eprintln!("error: there is no command {other}: {}", tidemill_format::options::one_of(other, &names));
            }
        }
        true
    }
}

/// The file that stands in quotes.
fn request_of(quoted: &str) -> FileRequest {
    let inner = quoted.strip_prefix('\'').unwrap_or(quoted);
    FileRequest::path(inner.strip_suffix('\'').unwrap_or(inner).replace("''", "'"))
}

/// Shows a text; through `$PAGER`, or `less`, if it is larger than the window.
fn page(text: &str, size: Option<(usize, usize)>) {
    let larger = size.is_some_and(|(columns, rows)| {
        // The prompt wants a line, too.
        text.lines().count() + 1 > rows || text.lines().any(|line| line.chars().count() > columns)
    });
    if larger && std::io::stdout().is_terminal() && through_pager(text) {
        return;
    }
    // A terminal that is gone ends the session at the next prompt.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

/// Whether a pager has shown a text.
fn through_pager(text: &str) -> bool {
    let mut command = match std::env::var("PAGER") {
        Ok(pager) if pager.trim().is_empty() => return false,
        Ok(pager) => {
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(pager);
            shell
        }
        // Long lines are not wrapped, and what fits is not paged.
        Err(_) => {
            let mut less = Command::new("less");
            less.arg("-SFRX");
            less
        }
    };
    PAGING.store(true, Ordering::Release);
    let shown = fed(command.stdin(Stdio::piped()), text);
    PAGING.store(false, Ordering::Release);
    shown
}

/// Starts a pager and waits for it; whether it could be started.
fn fed(command: &mut Command, text: &str) -> bool {
    let Ok(mut pager) = command.spawn() else { return false };
    if let Some(mut input) = pager.stdin.take() {
        // Who leaves the pager early has seen enough.
        let _ = input.write_all(text.as_bytes());
    }
    pager.wait().is_ok_and(|status| status.code() != Some(127))
}
