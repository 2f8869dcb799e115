//! The files of a checkpoint: runs, and a list that says which rows of them count.
//!
//! A run may serve several stores: after a job was started again with twice the shards, both halves of a shard
//! use the same files, each its own rows. If one of them then deletes a key and merges the file away, while the other
//! still names it, the key must not come back when they are one store again. Therefore each store says, in a list
//! beside its runs, for which ranges of hashes it vouches for each run.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

use super::error::ColdError;
use super::place::Place;
use super::ranges::Ranges;
use super::run::Run;
use super::system::{Advice, advise};
use crate::checksum::Checksum;
use crate::removal;

/// Version of the lists.
const VERSION: u32 = 1;

/// A file that a checkpoint needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateFile {
    /// Where it is now.
    pub path: PathBuf,
    /// Its name, given once and never again.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Stands for its content.
    pub checksum: String,
}

#[derive(Serialize, Deserialize)]
struct List {
    version: u32,
    runs: Vec<Listed>,
}

#[derive(Serialize, Deserialize)]
struct Listed {
    name: String,
    bytes: u64,
    checksum: String,
    /// Which rows count, if not all of them do.
    ranges: Option<Vec<(u64, u64)>>,
}

/// What a run is called in a list.
pub(crate) fn state_file(run: &Run) -> StateFile {
    StateFile { path: run.path.clone(), name: run.name.clone(), bytes: run.bytes, checksum: format!("{:016x}", run.checksum) }
}

/// Writes the list of these runs.
///
/// # Errors
/// The file system's.
pub(crate) fn write(place: &Place, runs: &[Arc<Run>]) -> Result<StateFile, ColdError> {
    let listed = |run: &Arc<Run>| {
        let StateFile { name, bytes, checksum, .. } = state_file(run);
        Listed { name, bytes, checksum, ranges: run.keep.as_ref().map(|k| k.ranges.pairs().to_vec()) }
    };
    let list = List { version: VERSION, runs: runs.iter().map(listed).collect() };
    let text = serde_json::to_vec(&list).map_err(|e| ColdError::new(format!("internal error: a list of state files: {e}")))?;
    let name = place.file_name("list");
    let path = place.directory.join(&name);
    let written = File::create_new(&path).and_then(|mut file| {
        file.write_all(&text)?;
        file.sync_all()
    });
    if let Err(error) = written {
        let _ = fs::remove_file(&path);
        return Err(ColdError::io("writing the list of state files", &path, &error));
    }
    Ok(StateFile { path, name, bytes: text.len() as u64, checksum: checksum(&text) })
}

fn checksum(text: &[u8]) -> String {
    format!("{:016x}", Checksum::of(text))
}

/// Reads a list and checks it.
///
/// # Errors
/// A list that is missing, damaged or of another version.
pub(crate) fn check(file: &StateFile) -> Result<(), ColdError> {
    read(file).map(|_| ())
}

fn read(file: &StateFile) -> Result<List, ColdError> {
    let text = fs::read(&file.path).map_err(|e| ColdError::io("reading the list of state files", &file.path, &e))?;
    if text.len() as u64 != file.bytes || checksum(&text) != file.checksum {
        return Err(ColdError::damaged(&file.path, "its checksum does not agree"));
    }
    let list: List = serde_json::from_slice(&text).map_err(|e| ColdError::damaged(&file.path, e))?;
    if list.version != VERSION {
        let what = format!("it was written by another version (layout {}, this one reads {VERSION})", list.version);
        return Err(ColdError::foreign(&file.path, what));
    }
    Ok(list)
}

/// Which rows count of the runs among `files`; those that no list names are left out, unless there is no list.
///
/// # Errors
/// A list that is damaged, or names a run that is not there.
pub(crate) fn valid(files: &[StateFile]) -> Result<Vec<(&StateFile, Ranges)>, ColdError> {
    let is_list = |file: &&StateFile| file.name.ends_with(".list");
    let (lists, runs): (Vec<&StateFile>, Vec<&StateFile>) = files.iter().partition(is_list);
    if lists.is_empty() {
        return Ok(runs.into_iter().map(|run| (run, Ranges::all())).collect());
    }
    let mut known: HashMap<(u64, String), Option<Ranges>> = runs.iter().map(|run| ((run.bytes, run.checksum.clone()), None)).collect();
    for file in lists {
        let list = read(file)?;
        for run in list.runs {
            let Some(valid) = known.get_mut(&(run.bytes, run.checksum)) else {
                return Err(ColdError::damaged(&file.path, format!("it names '{}', which is not there", run.name)));
            };
            let ranges = run.ranges.map_or_else(Ranges::all, Ranges::new);
            *valid = Some(valid.take().map_or_else(|| ranges.clone(), |v| v.or(&ranges)));
        }
    }
    let mut counted = Vec::new();
    for run in runs {
        // The same content under two names counts once.
        let ranges = known.remove(&(run.bytes, run.checksum.clone())).flatten();
        counted.extend(ranges.map(|ranges| (run, ranges)));
    }
    Ok(counted)
}

/// Puts a run that was opened into the directory of the store under a name of its own: a hard link, or else a copy.
/// A file that is there already, under such a name, stays.
///
/// # Errors
/// The file system's.
pub(crate) fn adopt(place: &Place, file: &StateFile, run: &mut Run) -> Result<(), ColdError> {
    let is_here = file.path.parent() == Some(place.directory.as_path());
    if let Some(name) = file.path.file_name().and_then(|n| n.to_str()).filter(|name| is_here && place.is_own(name)) {
        run.name = name.to_owned();
        return Ok(());
    }
    let name = place.file_name("run");
    let path = place.directory.join(&name);
    if fs::hard_link(&file.path, &path).is_err() {
        // Another file system, or one without links.
        let copied = fs::copy(&file.path, &path).and_then(|_| File::open(&path));
        run.file = Arc::new(copied.map_err(|error| {
            let _ = fs::remove_file(&path);
            ColdError::io(&format!("copying the state file '{}' to", file.path.display()), &path, &error)
        })?);
        run.synced = AtomicBool::new(false);
        advise(&run.file, 0, 0, Advice::Random);
    }
    (run.path, run.name) = (path, name);
    Ok(())
}

/// Removes files that a store of this name left behind, other than `keep`.
///
/// # Errors
/// The directory cannot be read.
pub(crate) fn clean(place: &Place, keep: &[&Path]) -> Result<(), ColdError> {
    let failed = |e: std::io::Error| ColdError::io("reading the directory for state", &place.directory, &e);
    for entry in fs::read_dir(&place.directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_name().to_str().is_some_and(|name| place.is_own(name)) && !keep.contains(&entry.path().as_path()) {
            // One that cannot be removed costs space, nothing else.
            let _ = removal::file(&entry.path());
        }
    }
    Ok(())
}
