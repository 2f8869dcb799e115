//! Files that are open in this process: each once, however many connections there are.
//!
//! DuckDB locks a file against other processes, but not against its own: two instances over one file would destroy
//! it. So whoever wants a connection gets one of the instance that is open, and the last one closes it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::error::db_error;
use super::ffi::{Database, Session, library};
use crate::driver::DbError;

/// Links that lead to links.
const LINKS_MAX: usize = 40;

/// A file that is open.
struct Open {
    database: Database,
    parameters: Vec<(String, String)>,
    /// Connections.
    users: usize,
}

static ALL: Mutex<Option<HashMap<PathBuf, Open>>> = Mutex::new(None);

fn all() -> MutexGuard<'static, Option<HashMap<PathBuf, Open>>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection's part in its instance; to be dropped after the session.
pub struct User(PathBuf);

/// The file's name that is the same however its place is written, before there is a file and after.
pub fn identity(path: &str) -> PathBuf {
    let mut path = PathBuf::from(path);
    for _ in 0..LINKS_MAX {
        if let Ok(known) = path.canonicalize() {
            return known;
        }
        // A link may lead to a file that is not there yet.
        let Ok(to) = path.read_link() else { break };
        path = path.parent().map_or_else(|| to.clone(), |directory| directory.join(&to));
    }
    let directory = path.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (directory.canonicalize(), path.file_name()) {
        (Ok(directory), Some(name)) => directory.join(name),
        _ => path.clone(),
    }
}

/// The log of changes that DuckDB keeps beside a file.
fn log_of(path: &Path) -> PathBuf {
    let mut log = path.as_os_str().to_os_string();
    log.push(".wal");
    log.into()
}

/// A session with a file, which is opened if it is not yet.
///
/// # Errors
/// There is no library; the file cannot be opened; it is open with other parameters.
pub fn connect(path: &str, parameters: &[(String, String)]) -> Result<(Session, User), DbError> {
    let library = library().map_err(DbError::fatal)?;
    let doing = format!("opening '{path}'");
    let failed = |failure| db_error(&doing, failure);
    // Opened by its own name: DuckDB looks for its log beside the name it is given, and whoever came by another name would not
    // find what was committed there.
    let own = identity(path);
    if let Some(directory) = own.parent().filter(|d| !d.as_os_str().is_empty() && !d.exists()) {
        return Err(DbError::fatal(format!("{doing}: there is no directory '{}'", directory.display())));
    }
    let (stray, log) = (log_of(Path::new(path)), log_of(&own));
    if stray.exists() && stray.canonicalize().ok() != log.canonicalize().ok() {
        return Err(DbError::fatal(format!(
            "{doing}: it is a link to '{}', and '{}' holds changes that are not in that file yet; open it by the link with DuckDB itself \
             and run CHECKPOINT, or move that log to '{}'",
            own.display(),
            stray.display(),
            log.display()
        )));
    }
    // Held while the file is opened or closed, so that no two instances of it overlap.
    let mut all = all();
    let files = all.get_or_insert_default();
    let key = identity(path);
    if let Some(open) = files.get_mut(&key) {
        if open.parameters != parameters {
            return Err(DbError::fatal(format!(
                "{doing}: another table of this process has it open with other parameters in its URL; give both the same"
            )));
        }
        let session = open.database.connect().map_err(failed)?;
        open.users += 1;
        return Ok((session, User(key)));
    }
    let database = Database::open(library, key.to_str().unwrap_or(path), parameters).map_err(failed)?;
    let session = database.connect().map_err(failed)?;
    files.insert(key.clone(), Open { database, parameters: parameters.to_vec(), users: 1 });
    Ok((session, User(key)))
}

impl Drop for User {
    fn drop(&mut self) {
        let mut all = all();
        let Some(files) = all.as_mut() else { return };
        if let Some(open) = files.get_mut(&self.0) {
            open.users -= 1;
            if open.users == 0 {
                files.remove(&self.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_name() {
        let directory = tempfile::TempDir::new().unwrap();
        let plain = directory.path().join("a.db");
        let detour = directory.path().join("..").join(directory.path().file_name().unwrap()).join("a.db");
        let names = || [&plain, &detour].map(|p| identity(p.to_str().unwrap()));
        let [before, same] = names();
        assert_eq!(before, same);
        std::fs::write(&plain, "").unwrap();
        assert_eq!(names(), [before.clone(), before.clone()]);
        // A link to a link, before there is a file and after.
        std::fs::remove_file(&plain).unwrap();
        let links = [("one.db", "a.db"), ("two.db", "one.db")];
        links.iter().for_each(|(link, to)| std::os::unix::fs::symlink(to, directory.path().join(link)).unwrap());
        let behind = || identity(directory.path().join("two.db").to_str().unwrap());
        assert_eq!(behind(), before);
        std::fs::write(&plain, "").unwrap();
        assert_eq!(behind(), before);
    }
}
