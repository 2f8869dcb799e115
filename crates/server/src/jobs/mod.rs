//! The jobs of a server: added, started, stopped, removed, and kept over a restart.
//!
//! - [`slot`]: one job, its thread and its retries
//! - [`store`]: jobs on disk
//! - [`rest`]: the HTTP interface; [`view`]: what it shows
//!
//! Everything here blocks: handlers call it from a thread that may wait. How a job runs is the runtime's.

pub mod rest;
mod slot;
mod store;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidemill_format::options::nearest;
use tidemill_hub::{Hub, HubError};
use tidemill_runtime::JobError;
use tidemill_runtime::metrics::{NodeReport, Summary};
use tidemill_runtime::script::{Script, render, streams_written};
use tidemill_sql::{FileResolver, Outcome};

use crate::error::ApiError;
use crate::limits::{JOB_TEXT_BYTES_MAX, JOBS_MAX, NAME_BYTES_MAX};
use crate::log;
use slot::Slot;
use store::Store;
pub use store::stored_names;
pub use view::{JobView, ProgressView, State};

/// How long a request waits for a job's last checkpoint; then it is told that the job is stopping.
const STOP_WAIT: Duration = Duration::from_secs(30);

/// Whether a job is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Wanted {
    Running,
    Stopped,
}

/// What is kept of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    /// The text; a file of its own.
    #[serde(skip)]
    sql: String,
    wanted: Wanted,
    /// Whether all its input was read, so that it need not run again.
    #[serde(default)]
    finished: bool,
    /// Settings given with the job.
    #[serde(default)]
    settings: BTreeMap<String, String>,
}

/// A request to add a job.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewJob {
    /// Its name: letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Its text.
    pub sql: String,
    /// Settings; they win over the server's and those in the text.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// Whether to start it.
    #[serde(default = "yes")]
    pub start: bool,
    /// Whether to take the place of a job of that name. Its checkpoints stay: what is the same in both
    /// texts goes on where it was.
    #[serde(default)]
    pub replace: bool,
}

fn yes() -> bool {
    true
}

/// What the threads of jobs share.
struct Context {
    store: Option<Store>,
    /// Settings for all jobs.
    settings: BTreeMap<String, String>,
    files: Option<FileResolver>,
}

impl Context {
    fn script(&self, name: &str, spec: &Spec) -> Script {
        let mut settings = self.settings.clone();
        settings.extend(spec.settings.clone());
        let mut script = Script::new(name, spec.sql.clone(), settings);
        if let Some(files) = &self.files {
            script.resolve_files(files.clone());
        }
        script
    }

    fn state_of(&self, name: &str) -> Option<PathBuf> {
        self.store.as_ref().map(|s| s.state_of(name))
    }

    fn render(&self, error: &JobError, name: &str, sql: &str) -> String {
        render(error, &format!("{name}.sql"), sql, false).trim_end().to_string()
    }

    fn write_wanted(&self, name: &str, spec: &Spec) -> Result<(), String> {
        self.store.as_ref().map_or(Ok(()), |s| s.write_wanted(name, spec))
    }

    /// The plan as text.
    fn plan(&self, name: &str, spec: &Spec) -> Result<String, JobError> {
        let mut script = self.script(name, spec);
        let (inserts, settings) = script.served()?;
        script.explain(Outcome::Inserts(inserts), &settings)
    }

    /// The streams that the job writes.
    fn streams(&self, name: &str, spec: &Spec) -> Result<BTreeSet<String>, JobError> {
        let (inserts, _) = self.script(name, spec).served()?;
        Ok(streams_written(&inserts))
    }
}

/// The jobs of a server.
pub struct Jobs {
    context: Arc<Context>,
    slots: RwLock<BTreeMap<String, Arc<Slot>>>,
    /// Set when the server stops: from then on nothing is started.
    closing: AtomicBool,
}

impl Jobs {
    /// The jobs that the state directory holds, none of them started. Takes the directory for as long as
    /// this lives; without one jobs are forgotten at the end.
    ///
    /// # Errors
    /// The directory cannot be read or written, or another server has it.
    pub fn open(state_dir: Option<&Path>, settings: BTreeMap<String, String>, files: Option<FileResolver>) -> Result<Self, String> {
        let store = state_dir.map(Store::open).transpose()?;
        let stored = store.as_ref().map(Store::load).transpose()?.unwrap_or_default();
        let slots = stored.into_iter().map(|(name, spec)| (name.clone(), Arc::new(Slot::new(name, spec)))).collect();
        Ok(Jobs { context: Arc::new(Context { store, settings, files }), slots: RwLock::new(slots), closing: AtomicBool::new(false) })
    }

    /// Starts every job that is wanted running and has not finished.
    pub fn start_wanted(&self) {
        for (name, slot) in self.all() {
            let spec = slot.spec();
            if spec.wanted == Wanted::Running
                && !spec.finished
                && let Err(e) = slot.start(&self.context, false)
            {
                log(format_args!("job '{name}': {e}"));
            }
        }
    }

    /// Adds a job, or takes another text for it, after the text has been planned.
    ///
    /// # Errors
    /// 400 with the place in the text if it cannot be planned, 409 if there is such a job already, 503 if
    /// the one there does not stop.
    pub fn put(&self, new: NewJob) -> Result<JobView, ApiError> {
        self.place(new, true)
    }

    /// As [`Jobs::put`], but the job is left to [`Jobs::start_wanted`]. One whose text is the same and that
    /// has finished stays finished.
    ///
    /// # Errors
    /// As [`Jobs::put`].
    pub fn put_for_later(&self, new: NewJob) -> Result<JobView, ApiError> {
        self.place(new, false)
    }

    fn place(&self, new: NewJob, now: bool) -> Result<JobView, ApiError> {
        check_name(&new.name)?;
        if new.sql.len() > JOB_TEXT_BYTES_MAX {
            return Err(ApiError::too_large(format!("the text of job '{}' is longer than {JOB_TEXT_BYTES_MAX} bytes", new.name)));
        }
        self.check_open()?;
        if !new.replace && self.slots.read().expect("no panic while held").contains_key(&new.name) {
            return Err(exists(&new.name));
        }
        let wanted = if new.start { Wanted::Running } else { Wanted::Stopped };
        let spec = Spec { sql: new.sql, wanted, finished: false, settings: new.settings };
        // So that an error is the answer to this request, not a state to be asked for later.
        self.context.plan(&new.name, &spec).map_err(|e| ApiError::bad_request(self.context.render(&e, &new.name, &spec.sql)))?;
        let made = Arc::new(Slot::new(new.name.clone(), spec.clone()));
        let (slot, added) = {
            let mut slots = self.slots.write().expect("no panic while held");
            match slots.get(&new.name) {
                Some(_) if !new.replace => return Err(exists(&new.name)),
                Some(slot) => (slot.clone(), false),
                None if slots.len() >= JOBS_MAX => {
                    return Err(ApiError::exhausted(format!("the server has {JOBS_MAX} jobs, the most that it takes")));
                }
                None => {
                    slots.insert(new.name.clone(), made.clone());
                    (made, true)
                }
            }
        };
        let _turn = slot.operation.lock().expect("no panic while held");
        if slot.removed() {
            return Err(ApiError::conflict(format!("job '{}' was removed at this moment", new.name)).with_help("try again"));
        }
        if let Err(e) = self.keep(&new.name, &slot, spec, now) {
            if added {
                slot.remove();
                self.slots.write().expect("no panic while held").remove(&new.name);
            }
            return Err(e);
        }
        if new.start && now {
            slot.start(&self.context, false)?;
        }
        Ok(slot.view(true))
    }

    /// Ends the job's thread, if it has one, and gives it this text.
    fn keep(&self, name: &str, slot: &Slot, spec: Spec, now: bool) -> Result<(), ApiError> {
        self.check_open()?;
        self.end(name, slot)?;
        let write = |spec: &Spec| self.context.store.as_ref().map_or(Ok(()), |s| s.write(name, spec));
        let change = |old: &mut Spec| {
            let finished = old.finished && old.sql == spec.sql && !now;
            *old = Spec { finished, ..spec };
        };
        slot.change(change, write).map_err(ApiError::internal)
    }

    /// Starts a job that does not run; with `fresh` from the beginning of its input.
    ///
    /// # Errors
    /// 404 if there is no such job, 409 if it runs and is to begin anew.
    pub fn start(&self, name: &str, fresh: bool) -> Result<JobView, ApiError> {
        self.check_open()?;
        let slot = self.slot(name)?;
        let _turn = self.turn(name, &slot)?;
        self.start_in_turn(name, &slot, fresh)?;
        Ok(slot.view(true))
    }

    /// Stops a job with a last checkpoint. It may still be stopping when this returns.
    ///
    /// # Errors
    /// 404 if there is no such job.
    pub fn stop(&self, name: &str) -> Result<JobView, ApiError> {
        let slot = self.slot(name)?;
        let _turn = self.turn(name, &slot)?;
        self.want(name, &slot, Wanted::Stopped, None)?;
        slot.ask_to_stop();
        slot.wait_for_end(Some(STOP_WAIT));
        Ok(slot.view(true))
    }

    /// Stops a job and starts it again, from its last checkpoint.
    ///
    /// # Errors
    /// 404 if there is no such job, 503 if it does not stop.
    pub fn restart(&self, name: &str, fresh: bool) -> Result<JobView, ApiError> {
        self.check_open()?;
        let slot = self.slot(name)?;
        let _turn = self.turn(name, &slot)?;
        self.end(name, &slot)?;
        self.start_in_turn(name, &slot, fresh)?;
        Ok(slot.view(true))
    }

    /// Stops a job and forgets it and its checkpoints; and the logs and contents of the streams that only
    /// it writes, unless `keep_streams`.
    ///
    /// # Errors
    /// 404 if there is no such job, 503 if it does not stop, 500 if its files cannot be removed.
    pub fn remove(&self, name: &str, keep_streams: bool) -> Result<(), ApiError> {
        let slot = self.slot(name)?;
        let _turn = self.turn(name, &slot)?;
        self.end(name, &slot)?;
        let streams = if keep_streams { BTreeSet::new() } else { self.streams_of(name, &slot) };
        if let Some(store) = &self.context.store {
            store.remove(name).map_err(ApiError::internal)?;
        }
        slot.remove();
        self.slots.write().expect("no panic while held").remove(name);
        log(format_args!("job '{name}': removed"));
        // Last: what a crash leaves of them costs disk only, and a job without its streams could not run.
        for stream in streams {
            match Hub::global().remove(&stream) {
                Ok(true) => log(format_args!("stream '{stream}': removed")),
                Ok(false) => {}
                // Another job has begun to write it.
                Err(HubError::Refused(why)) => log(format_args!("{why}")),
                Err(e) => return Err(ApiError::internal(format!("job '{name}' is removed, but not all of its streams: {e}"))),
            }
        }
        Ok(())
    }

    /// The streams that a job writes and no other one does.
    fn streams_of(&self, name: &str, slot: &Slot) -> BTreeSet<String> {
        let mut streams = match self.context.streams(name, &slot.spec()) {
            Ok(streams) => streams,
            Err(e) => {
                log(format_args!("job '{name}': its streams stay, since it can no longer be planned: {e}"));
                return BTreeSet::new();
            }
        };
        for (other, slot) in self.all().iter().filter(|(other, _)| other != name) {
            let spec = slot.spec();
            // A look at the text is cheaper than a plan.
            let text = spec.sql.to_lowercase();
            if streams.iter().any(|stream| text.contains(&stream.to_lowercase()))
                // One that can no longer be planned writes nothing.
                && let Ok(theirs) = self.context.streams(other, &spec)
            {
                streams.retain(|stream| !theirs.contains(stream));
            }
        }
        streams
    }

    /// A job with its text and nodes.
    ///
    /// # Errors
    /// 404 if there is no such job.
    pub fn get(&self, name: &str) -> Result<JobView, ApiError> {
        Ok(self.slot(name)?.view(true))
    }

    /// All jobs by name, without their texts and nodes.
    pub fn list(&self) -> Vec<JobView> {
        self.all().iter().map(|(_, slot)| slot.view(false)).collect()
    }

    /// Whether a job may not have opened its streams yet.
    pub(crate) fn starting(&self) -> bool {
        // Asked again and again by those who wait.
        self.slots.read().expect("no panic while held").values().any(|slot| slot.starting())
    }

    /// Has a job that is being started for as long as a test likes.
    #[cfg(test)]
    pub(crate) fn stay_starting(&self) {
        let spec = Spec { sql: String::new(), wanted: Wanted::Running, finished: false, settings: BTreeMap::new() };
        let slot = Slot::new("begins".to_string(), spec);
        slot.stay_starting();
        self.slots.write().expect("no panic while held").insert("begins".to_string(), Arc::new(slot));
    }

    /// All jobs by name, with their nodes, for metrics.
    pub(crate) fn figures(&self) -> Vec<(JobView, Vec<NodeReport>)> {
        self.all().iter().map(|(_, slot)| (slot.view(false), slot.nodes())).collect()
    }

    /// What each job did in its last run that ended well, by name.
    pub fn summaries(&self) -> Vec<Summary> {
        self.all().iter().filter_map(|(_, slot)| slot.summary()).collect()
    }

    /// How the job would run now, as text.
    ///
    /// # Errors
    /// 404 if there is no such job, 409 if it can no longer be planned.
    pub fn plan(&self, name: &str) -> Result<String, ApiError> {
        let spec = self.slot(name)?.spec();
        self.context.plan(name, &spec).map_err(|e| ApiError::conflict(self.context.render(&e, name, &spec.sql)))
    }

    /// Stops all jobs with their last checkpoints and waits for them. What is wanted of them stays, so that
    /// the next server starts them again.
    pub fn stop_all(&self) {
        self.closing.store(true, Ordering::Release);
        let slots = self.all();
        // Whoever starts a job at this moment holds its turn, and has seen `closing` or is seen here.
        slots.iter().for_each(|(_, slot)| slot.ask_to_stop());
        let turns: Vec<_> = slots.iter().map(|(_, slot)| slot.operation.lock().unwrap_or_else(|p| p.into_inner())).collect();
        slots.iter().for_each(|(_, slot)| slot.ask_to_stop());
        for (_, slot) in &slots {
            slot.wait_for_end(None);
        }
        drop(turns);
    }

    fn all(&self) -> Vec<(String, Arc<Slot>)> {
        self.slots.read().expect("no panic while held").iter().map(|(name, slot)| (name.clone(), slot.clone())).collect()
    }

    fn slot(&self, name: &str) -> Result<Arc<Slot>, ApiError> {
        let slots = self.slots.read().expect("no panic while held");
        slots.get(name).cloned().ok_or_else(|| {
            let known: Vec<&str> = slots.keys().map(String::as_str).collect();
            let error = ApiError::not_found(format!("there is no job '{name}'"));
            match nearest(name, &known) {
                Some(near) => error.with_help(format!("did you mean '{near}'?")),
                None => error.with_help("GET /v1/jobs lists them"),
            }
        })
    }

    /// Waits for the turn to change the job.
    fn turn<'s>(&self, name: &str, slot: &'s Slot) -> Result<std::sync::MutexGuard<'s, ()>, ApiError> {
        let turn = slot.operation.lock().expect("no panic while held");
        if slot.removed() {
            return Err(ApiError::not_found(format!("there is no job '{name}'; it was removed at this moment")));
        }
        Ok(turn)
    }

    fn start_in_turn(&self, name: &str, slot: &Arc<Slot>, fresh: bool) -> Result<(), ApiError> {
        self.check_open()?;
        if slot.alive() {
            if fresh || slot.stopping() {
                return Err(ApiError::conflict(format!("job '{name}' runs")).with_help("stop it first, or restart it"));
            }
            return Ok(());
        }
        self.want(name, slot, Wanted::Running, Some(false))?;
        slot.start(&self.context, fresh)
    }

    /// Ends the job's thread.
    fn end(&self, name: &str, slot: &Slot) -> Result<(), ApiError> {
        slot.ask_to_stop();
        if slot.wait_for_end(Some(STOP_WAIT)) {
            return Ok(());
        }
        Err(ApiError::unavailable(format!("job '{name}' is still stopping: it takes its last checkpoint")).with_help("try again"))
    }

    /// Keeps what is wanted of the job.
    fn want(&self, name: &str, slot: &Slot, wanted: Wanted, finished: Option<bool>) -> Result<(), ApiError> {
        let change = |spec: &mut Spec| {
            spec.wanted = wanted;
            spec.finished = finished.unwrap_or(spec.finished);
        };
        slot.change(change, |spec| self.context.write_wanted(name, spec)).map_err(ApiError::internal)
    }

    fn check_open(&self) -> Result<(), ApiError> {
        if self.closing.load(Ordering::Acquire) {
            return Err(ApiError::unavailable("the server is stopping"));
        }
        Ok(())
    }
}

/// A name is a directory, a part of an address and a label.
fn check_name(name: &str) -> Result<(), ApiError> {
    let known = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.starts_with('.') || !name.chars().all(known) {
        return Err(ApiError::bad_request(format!("'{name}' cannot name a job"))
            .with_help(format!("letters, digits, '-', '_' and '.' can, up to {NAME_BYTES_MAX} of them, and no '.' at the beginning")));
    }
    Ok(())
}

fn exists(name: &str) -> ApiError {
    ApiError::conflict(format!("there is a job '{name}' already"))
        .with_help("with \"replace\": true it gets the new text and keeps its state; DELETE removes both")
}

#[cfg(test)]
mod tests;
