//! The thread that writes full buffers as runs, and makes the files of a checkpoint safe.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::pace::{Pace, REST_BYTES};
use super::{Files, STOP_ROWS, Shared, discard};
use crate::disk::buffer::Buffer;
use crate::disk::error::ColdError;
use crate::disk::list::{self, StateFile};
use crate::disk::merge::{Cursor, merge};
use crate::disk::run::Run;
use crate::disk::system;
use crate::disk::writer::{Plan, RunWriter};
use crate::removal;

/// By how much the thread stands back behind those that work on rows: a checkpoint waits for it, the rows only if a further buffer is
/// full before it is done.
const NICE_WRITE: i32 = 5;

impl Shared {
    /// Writes what these have as one run, at this pace if there is one; none if the store ended before.
    pub(super) fn write(&self, cursors: Vec<Cursor>, plan: Plan, bottom: bool, mut pace: Option<Pace>) -> Result<Option<Run>, ColdError> {
        let mut writer = RunWriter::create(&self.place, plan, &self.stop)?;
        let (mut rows, mut bytes) = (0, 0);
        merge(&self.place, cursors, bottom, |hash, row, deleted| {
            writer.push(hash, row, deleted)?;
            rows += 1;
            bytes += row.len();
            if rows < STOP_ROWS && bytes < REST_BYTES {
                return Ok(true);
            }
            self.rest_if_due(&mut pace, bytes as u64);
            (rows, bytes) = (0, 0);
            Ok(!writer.stopped())
        })?;
        if writer.stopped() { Ok(None) } else { writer.finish() }
    }

    fn write_buffer(&self, buffer: &Buffer, sequence: u64, bottom: bool) -> Result<Option<Run>, ColdError> {
        let hashes = buffer.hashes();
        let plan = Plan {
            rows: hashes.len(),
            first: hashes.iter().copied().min().unwrap_or(0),
            last: hashes.iter().copied().max().unwrap_or(0),
            sequence,
            // The store may be waiting for room, and a checkpoint makes it safe.
            sync: false,
        };
        self.write(Cursor::buffer(buffer).into_iter().collect(), plan, bottom, None)
    }

    /// Makes all runs safe on disk, and a list of them. They stay until the next time.
    fn list(&self) -> Result<Vec<StateFile>, ColdError> {
        let (runs, before) = {
            let mut state = self.lock();
            // From now on no merge removes them.
            let before = state.listed.clone();
            let all = state.runs.iter().map(|run| run.path.clone()).collect::<Vec<_>>();
            state.listed.extend(all);
            (state.runs.clone(), before)
        };
        for run in runs.iter().filter(|_| !self.stopped()) {
            run.sync()?;
        }
        let list = if runs.is_empty() { None } else { Some(list::write(&self.place, &runs)?) };
        let files: Vec<StateFile> = runs.iter().map(|run| list::state_file(run)).chain(list).collect();
        let mut state = self.lock();
        state.listed = files.iter().map(|file| file.path.clone()).collect();
        let needed = |path: &PathBuf| state.listed.contains(path) || state.runs.iter().any(|run| run.path == *path);
        let gone: Vec<PathBuf> = before.into_iter().filter(|path| !needed(path)).collect();
        drop(state);
        for path in gone {
            // What cannot be removed costs space, nothing else.
            let _ = removal::file(&path);
        }
        Ok(files)
    }
}

/// The thread that writes buffers, and makes the files of a checkpoint safe.
pub(super) fn write_buffers(shared: &Shared) {
    system::step_back(NICE_WRITE);
    loop {
        let (buffer, sequence, bottom) = {
            let mut state = shared.lock();
            loop {
                if shared.stopped() {
                    return;
                }
                if let Some(buffer) = state.frozen.as_ref().filter(|_| !state.write_failed) {
                    break (buffer.clone(), state.sequence + 1, state.runs.is_empty());
                }
                if let Files::Wanted(asked) = state.files
                    && state.frozen.is_none()
                {
                    drop(state);
                    let written = shared.list();
                    state = shared.lock();
                    match written {
                        // After an error elsewhere nobody wants these any more.
                        Ok(files) if matches!(state.files, Files::Wanted(now) if now == asked) => state.files = Files::Written(files),
                        Ok(_) => {}
                        Err(error) => (state.files, state.error) = (Files::None, Some(error)),
                    }
                    shared.changed();
                    continue;
                }
                state = shared.wait(state);
            }
        };
        let written = shared.write_buffer(&buffer, sequence, bottom);
        if shared.durable.load(Ordering::Relaxed) {
            written.iter().flatten().for_each(Run::begin_sync);
        }
        let rows = buffer.len() as u64;
        let reads = shared.place.counters.reads.load(Ordering::Relaxed);
        if shared.stopped() {
            written.iter().flatten().for_each(discard);
            return;
        }
        let mut state = shared.lock();
        match written {
            Ok(run) => {
                state.arrived += run.as_ref().map_or(0, |run| run.bytes);
                let mut runs = state.runs.to_vec();
                runs.extend(run.map(Arc::new));
                state.runs = Arc::new(runs);
                state.recent.written(rows, reads);
                state.sequence = sequence;
                state.frozen = None;
                // Unless somebody still reads it.
                state.spare = Arc::into_inner(buffer).map(|mut buffer| {
                    buffer.clear();
                    buffer
                });
                state.merge_failed = false;
            }
            Err(error) => {
                state.error = Some(error);
                state.write_failed = true;
            }
        }
        drop(state);
        shared.changed();
    }
}
