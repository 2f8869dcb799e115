//! The file of `--metrics`: written anew while an adapter runs, and at its end, whatever that is. What stands in it is not
//! decided here.

use std::fs::{self, File};
use std::io::{Error, ErrorKind, Result as IoResult, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::Failure;

/// How often it is written: often enough for who draws curves, and of no weight beside the work.
const INTERVAL: Duration = Duration::from_secs(10);

/// The file, if one is wanted.
pub struct MetricsFile<'a> {
    path: Option<&'a Path>,
    next: Instant,
}

impl<'a> MetricsFile<'a> {
    /// Nothing is written yet.
    pub fn new(path: Option<&'a Path>) -> Self {
        MetricsFile { path, next: Instant::now() }
    }

    /// How it stands, if the file is that old. That it cannot be written now is no reason to end: that is said at the end.
    pub fn update<T: Serialize>(&mut self, report: impl FnOnce() -> T) {
        let now = Instant::now();
        if let Some(path) = self.path
            && now >= self.next
        {
            self.next = now + INTERVAL;
            let _ = serde_json::to_vec_pretty(&report()).map_err(Error::other).and_then(|text| replace(path, &text));
        }
    }

    /// How it ended.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(&self, report: &impl Serialize) -> Result<(), Failure> {
        let Some(path) = self.path else { return Ok(()) };
        // A pipe cannot be replaced, nor a file of a directory that is not ours.
        let written = serde_json::to_vec_pretty(report)
            .map_err(Error::other)
            .and_then(|text| replace(path, &text).or_else(|_| fs::write(path, text)));
        written.map_err(|e| Failure { message: format!("error: writing the metrics to '{}': {e}", path.display()), code: 1 })
    }
}

/// Puts a new file in the place of another, so that nobody sees half of one.
fn replace(path: &Path, text: &[u8]) -> IoResult<()> {
    // What a link names is replaced, not the link.
    let path = match fs::metadata(path) {
        Ok(there) if there.is_file() => fs::canonicalize(path)?,
        Ok(_) => return Err(ErrorKind::Unsupported.into()),
        Err(e) if e.kind() == ErrorKind::NotFound => path.to_path_buf(),
        Err(e) => return Err(e),
    };
    // Of our own name, since two adapters may have been told the same file.
    let mut fresh = path.clone().into_os_string();
    fresh.push(format!(".{}.new", std::process::id()));
    // One that was killed may have left its file, and others may write into the directory: a link of theirs is not followed.
    match fs::remove_file(&fresh) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file = File::create_new(&fresh)?;
    let written = file.write_all(text).and_then(|()| fs::rename(&fresh, &path));
    if written.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_behind_its_link() {
        let directory = std::env::temp_dir().join(format!("tidemill-metrics-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let (path, link) = (directory.join("m.json"), directory.join("link"));
        std::os::unix::fs::symlink(&path, &link).unwrap();
        for (value, given) in [(1, &path), (2, &link), (3, &link)] {
            let mut file = MetricsFile::new(Some(given.as_path()));
            file.update(|| value);
            assert_eq!(fs::read_to_string(&path).unwrap(), value.to_string());
            // Too young to be written again.
            file.update(|| 0);
            assert_eq!(fs::read_to_string(&path).unwrap(), value.to_string());
            assert!(file.finish(&(value * 10)).is_ok());
            assert_eq!(fs::read_to_string(&path).unwrap(), (value * 10).to_string());
        }
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 2, "nothing is left beside them");
        fs::remove_dir_all(&directory).unwrap();
    }

    /// What a link of that name led to was overwritten.
    #[test]
    fn a_link_beside_it_is_not_followed() {
        let directory = std::env::temp_dir().join(format!("tidemill-metrics-link-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let (path, other) = (directory.join("m.json"), directory.join("other"));
        fs::write(&other, "mine").unwrap();
        std::os::unix::fs::symlink(&other, directory.join(format!("m.json.{}.new", std::process::id()))).unwrap();
        assert!(MetricsFile::new(Some(path.as_path())).finish(&5).is_ok());
        assert_eq!(fs::read_to_string(&other).unwrap(), "mine");
        assert_eq!(fs::read_to_string(&path).unwrap(), "5");
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        fs::remove_dir_all(&directory).unwrap();
    }

    /// Two that were told the same file wrote to one new file, or removed each other's.
    #[test]
    fn what_another_process_writes_is_left_alone() {
        let directory = std::env::temp_dir().join(format!("tidemill-metrics-two-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let others = directory.join(format!("m.json.{}.new", std::process::id() + 1));
        fs::write(&others, "half of i").unwrap();
        assert!(MetricsFile::new(Some(directory.join("m.json").as_path())).finish(&5).is_ok());
        assert_eq!(fs::read_to_string(&others).unwrap(), "half of i");
        // A directory is not replaced, and the new file does not stay.
        let taken = directory.join("taken");
        fs::create_dir(&taken).unwrap();
        assert!(MetricsFile::new(Some(taken.as_path())).finish(&5).is_err());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 3);
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_place_that_is_not_there_is_named_at_the_end() {
        let path = std::env::temp_dir().join(format!("tidemill-metrics-{}-none/m.json", std::process::id()));
        let mut file = MetricsFile::new(Some(path.as_path()));
        file.update(|| 1);
        let failure = file.finish(&1).expect_err("there is no such directory");
        assert!(failure.message.contains("none/m.json") && failure.code == 1, "{}", failure.message);
        assert!(MetricsFile::new(None).finish(&1).is_ok());
    }
}
