//! One job: its thread, where it stands, and when it is tried again.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidemill_runtime::job::ProgressReport;
use tidemill_runtime::metrics::{Monitor, NodeReport, Summary};
use tidemill_runtime::settings::RuntimeMode;
use tidemill_runtime::{JobError, JobOptions, Stop};

use super::view::{JobView, ProgressView, State};
use super::{Context, Spec};
use crate::error::ApiError;
use crate::limits::{RETRY_MAX, RETRY_MIN, RETRY_RESET};
use crate::log;

/// In so long a running job has opened its sources, unless the machine is very busy.
const OPENING: Duration = Duration::from_secs(1);

/// A job and its thread, if it has one.
pub(super) struct Slot {
    name: String,
    /// Held by whoever starts, stops or changes the job, so that two who do so take turns.
    pub operation: Mutex<()>,
    /// Held while what is kept of the job changes, until it is on disk. `inner` is not: threads of the server look at it, which
    /// must not wait for disks.
    keeping: Mutex<()>,
    inner: Mutex<Inner>,
    /// Woken when the thread ended, or shall end.
    changed: Condvar,
    monitor: Monitor,
}

struct Inner {
    spec: Spec,
    state: State,
    /// Since when it is in that state.
    entered: Instant,
    error: Option<String>,
    restarts: u64,
    retry_at: Option<Instant>,
    started_ms: Option<u64>,
    progress: ProgressReport,
    /// Of the last run that ended well.
    summary: Option<Summary>,
    stop: Stop,
    /// Whether there is a thread.
    alive: bool,
    /// Whether the job is being, or was, taken out.
    removed: bool,
}

/// Why a run ended.
struct Failure {
    /// With its place in the text, many lines.
    rendered: String,
    /// In one line, for the log.
    line: String,
    /// Whether the same run may succeed later.
    again: bool,
}

impl Slot {
    pub fn new(name: String, spec: Spec) -> Self {
        let state = if spec.finished { State::Finished } else { State::Stopped };
        Slot {
            name,
            operation: Mutex::new(()),
            keeping: Mutex::new(()),
            inner: Mutex::new(Inner {
                spec,
                state,
                entered: Instant::now(),
                error: None,
                restarts: 0,
                retry_at: None,
                started_ms: None,
                progress: ProgressReport::default(),
                summary: None,
                stop: Stop::default(),
                alive: false,
                removed: false,
            }),
            changed: Condvar::new(),
            monitor: Monitor::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no panic while held")
    }

    pub fn spec(&self) -> Spec {
        self.lock().spec.clone()
    }

    /// Changes what is kept of the job, once it is written.
    pub fn change(&self, change: impl FnOnce(&mut Spec), write: impl FnOnce(&Spec) -> Result<(), String>) -> Result<(), String> {
        let _turn = self.keeping.lock().expect("no panic while held");
        let mut spec = self.spec();
        change(&mut spec);
        write(&spec)?;
        let mut inner = self.lock();
        if inner.state == State::Finished && !spec.finished {
            inner.state = State::Stopped;
        }
        inner.spec = spec;
        Ok(())
    }

    pub fn remove(&self) {
        self.lock().removed = true;
    }

    pub fn removed(&self) -> bool {
        self.lock().removed
    }

    /// Whether there is a thread.
    pub fn alive(&self) -> bool {
        self.lock().alive
    }

    /// Whether the thread was asked to end.
    pub fn stopping(&self) -> bool {
        self.lock().stop.requested()
    }

    /// Whether its sources and sinks may not be open yet: workers open them a moment after they run. What the job tells of
    /// itself does not say that, since a batch tells nothing.
    pub fn starting(&self) -> bool {
        let inner = self.lock();
        match inner.state {
            State::Starting => true,
            State::Running => inner.entered.elapsed() < OPENING,
            _ => false,
        }
    }

    /// Has it being started for as long as a test likes.
    #[cfg(test)]
    pub fn stay_starting(&self) {
        self.enter(&mut self.lock(), State::Starting);
    }

    pub fn nodes(&self) -> Vec<NodeReport> {
        self.monitor.nodes()
    }

    /// What the last run that ended well did.
    pub fn summary(&self) -> Option<Summary> {
        self.lock().summary.clone()
    }

    /// Starts the thread, unless there is one. The caller holds `operation`.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(self: &Arc<Self>, context: &Arc<Context>, fresh: bool) -> Result<(), ApiError> {
        let mut inner = self.lock();
        if inner.alive {
            return Ok(());
        }
        let stop = Stop::default();
        inner.stop = stop.clone();
        inner.alive = true;
        inner.restarts = 0;
        inner.error = None;
        self.enter(&mut inner, State::Starting);
        drop(inner);
        let (slot, context) = (self.clone(), context.clone());
        let thread = std::thread::Builder::new().name(format!("job-{}", self.name)).spawn(move || {
            let _ended = Ended(&slot);
            // Let go before the end is told: whoever waits for it may want the state directory.
            let shared = context;
            slot.keep_running(&shared, &stop, fresh);
        });
        if let Err(e) = thread {
            let mut inner = self.lock();
            inner.alive = false;
            let text = format!("starting a thread for job '{}': {e}", self.name);
            inner.error = Some(text.clone());
            self.enter(&mut inner, State::Failed);
            return Err(ApiError::internal(text));
        }
        Ok(())
    }

    /// Asks the thread to take a last checkpoint and end.
    pub fn ask_to_stop(&self) {
        let mut inner = self.lock();
        inner.stop.stop();
        if matches!(inner.state, State::Starting | State::Running) {
            self.enter(&mut inner, State::Stopping);
        }
        self.changed.notify_all();
    }

    /// Waits for the end of the thread; whether it has ended.
    pub fn wait_for_end(&self, longest: Option<Duration>) -> bool {
        let begun = Instant::now();
        let mut inner = self.lock();
        while inner.alive {
            inner = match longest {
                None => self.changed.wait(inner).expect("no panic while held"),
                Some(longest) => {
                    let left = longest.saturating_sub(begun.elapsed());
                    if left.is_zero() {
                        return false;
                    }
                    self.changed.wait_timeout(inner, left).expect("no panic while held").0
                }
            };
        }
        true
    }

    pub fn view(&self, whole: bool) -> JobView {
        let inner = self.lock();
        let retry = inner.retry_at.map(|at| at.saturating_duration_since(Instant::now()).as_millis() as u64);
        let p = &inner.progress;
        JobView {
            name: self.name.clone(),
            state: inner.state,
            error: inner.error.clone(),
            retry_in_ms: retry,
            restarts: inner.restarts,
            started_ms: inner.started_ms,
            progress: ProgressView {
                elapsed_s: p.elapsed.as_secs_f64(),
                rows_in: p.rows_in,
                rows_out: p.rows_out,
                watermark: p.watermark,
                dropped: p.dropped,
            },
            settings: inner.spec.settings.clone(),
            sql: whole.then(|| inner.spec.sql.clone()),
            nodes: whole.then(|| self.monitor.nodes()),
        }
    }

    /// Changes the state, and says so.
    fn enter(&self, inner: &mut Inner, state: State) {
        if inner.state == state && state != State::Failed {
            return;
        }
        (inner.state, inner.entered) = (state, Instant::now());
        inner.retry_at = None;
        if state != State::Failed {
            log(format_args!("job '{}': {}", self.name, state.name()));
        }
    }

    /// Runs the job until it ends for good: finished, stopped, or failed so that another try is of no use.
    fn keep_running(&self, context: &Context, stop: &Stop, mut fresh: bool) {
        let mut pause = RETRY_MIN;
        loop {
            let begun = Instant::now();
            let ended = self.run_once(context, stop, fresh);
            // What was to be forgotten has been.
            fresh = false;
            if begun.elapsed() >= RETRY_RESET {
                pause = RETRY_MIN;
            }
            let failure = match ended {
                Ok(summary) => return self.ended(context, summary),
                Err(failure) => failure,
            };
            let mut inner = self.lock();
            inner.error = Some(failure.rendered);
            self.enter(&mut inner, State::Failed);
            if !failure.again || stop.requested() {
                return log(format_args!("job '{}': failed: {}", self.name, failure.line));
            }
            log(format_args!("job '{}': failed: {}; trying again in {} s", self.name, failure.line, pause.as_secs()));
            let at = Instant::now() + pause;
            pause = (pause * 2).min(RETRY_MAX);
            inner.retry_at = Some(at);
            while !stop.requested() {
                let left = at.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                inner = self.changed.wait_timeout(inner, left).expect("no panic while held").0;
            }
            if stop.requested() {
                return self.enter(&mut inner, State::Stopped);
            }
            inner.restarts += 1;
            self.enter(&mut inner, State::Starting);
        }
    }

    fn ended(&self, context: &Context, summary: Summary) {
        let _turn = self.keeping.lock().expect("no panic while held");
        let mut inner = self.lock();
        let finished = summary.finished;
        inner.summary = Some(summary);
        if !finished {
            return self.enter(&mut inner, State::Stopped);
        }
        // So that the next start of the server does not begin it anew.
        inner.spec.finished = true;
        inner.error = None;
        let (spec, removed) = (inner.spec.clone(), inner.removed);
        drop(inner);
        // Before anybody is told that it has finished.
        if !removed && let Err(e) = context.write_wanted(&self.name, &spec) {
            log(format_args!("{e}"));
        }
        self.enter(&mut self.lock(), State::Finished);
    }

    fn run_once(&self, context: &Context, stop: &Stop, fresh: bool) -> Result<Summary, Failure> {
        let spec = {
            let mut inner = self.lock();
            inner.progress = ProgressReport::default();
            inner.started_ms = Some(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64));
            inner.spec.clone()
        };
        let failure = |e: JobError, again: bool| Failure {
            rendered: context.render(&e, &self.name, &spec.sql),
            line: one_line(&e.to_string()),
            again: again && matches!(e, JobError::Failed(_)),
        };
        let run = || -> Result<Summary, Failure> {
            let mut script = context.script(&self.name, &spec);
            let (inserts, settings) = script.served().map_err(|e| failure(e, false))?;
            if settings.runtime_mode == RuntimeMode::Batch {
                // A batch tells nothing until it ends.
                self.report(&ProgressReport::default());
            }
            let options = JobOptions { state_dir: context.state_of(&self.name), fresh, monitor: Some(self.monitor.clone()) };
            script.run(&inserts, &settings, &options, stop, |report| self.report(report)).map_err(|e| failure(e, true))
        };
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            let text = format!("internal error: the job's thread panicked: {}", panic_text(&*panic));
            // Its workers may still run: not again on the same state.
            Err(Failure { rendered: format!("error: {text}"), line: one_line(&text), again: false })
        })
    }

    fn report(&self, report: &ProgressReport) {
        let mut inner = self.lock();
        inner.progress = report.clone();
        if inner.state == State::Starting {
            self.enter(&mut inner, State::Running);
        }
    }
}

/// Says that the thread has ended, however it did.
struct Ended<'s>(&'s Slot);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        // A panic while the lock was held must not hide that the thread is gone.
        let mut inner = self.0.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        inner.alive = false;
        self.0.changed.notify_all();
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "",
    }
}

/// The log has a line for each change.
fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|l| !l.is_empty()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::Wanted;
    use super::*;

    /// While a batch ran, whoever asked for a stream that there is not waited for it, and was told to ask again.
    #[test]
    fn a_batch_that_runs_is_not_being_started() {
        let spec = Spec { sql: String::new(), wanted: Wanted::Running, finished: false, settings: BTreeMap::new() };
        let slot = Slot::new("batch".to_string(), spec);
        assert!(!slot.starting());
        slot.enter(&mut slot.lock(), State::Starting);
        assert!(slot.starting());
        slot.report(&ProgressReport::default());
        assert_eq!(slot.view(false).state, State::Running);
        slot.lock().entered -= OPENING;
        assert!(!slot.starting());
    }
}
