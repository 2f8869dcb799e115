//! The file of `--metrics`: written anew while an adapter runs, and at its end, whatever that is. What stands in it is not
//! decided here.

use std::fs::{self, File};
use std::io::{Error, ErrorKind, Result as IoResult, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::Failure;

/// How often it is written: often enough for who draws curves, and of no weight beside the work.
const INTERVAL: Duration = Duration::from_secs(10);
/// A new file that is so old is of a process that was killed: it is there for as long as it takes to write it.
const LEFT_AFTER: Duration = Duration::from_secs(60);

/// The file, if one is wanted.
pub struct MetricsFile<'a> {
    path: Option<&'a Path>,
    /// What the name of a new file ends with. Two adapters may have been told the same file, and in containers that share it
    /// both have the same process number.
    ending: String,
    next: Instant,
}

impl<'a> MetricsFile<'a> {
    /// Nothing is written yet. What processes that were killed have left beside the file goes.
    pub fn new(path: Option<&'a Path>) -> Self {
        if let Some(path) = path.and_then(|path| place(path).ok()) {
            // Who may not read the directory, or remove what is in it, may write the file all the same.
            let _ = tidy(&path);
        }
        let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        MetricsFile { path, ending: format!(".{}-{started:x}.new", std::process::id()), next: Instant::now() }
    }

    /// How it stands, if the file is that old. That it cannot be written now is no reason to end: that is said at the end.
    pub fn update<T: Serialize>(&mut self, report: impl FnOnce() -> T) {
        let now = Instant::now();
        if let Some(path) = self.path
            && now >= self.next
        {
            self.next = now + INTERVAL;
            let _ = serde_json::to_vec_pretty(&report()).map_err(Error::other).and_then(|text| replace(path, &self.ending, &text));
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
            .and_then(|text| replace(path, &self.ending, &text).or_else(|_| fs::write(path, text)));
        written.map_err(|e| Failure { message: format!("error: writing the metrics to '{}': {e}", path.display()), code: 1 })
    }
}

/// The file that is replaced: what a link names, not the link.
fn place(path: &Path) -> IoResult<PathBuf> {
    match fs::metadata(path) {
        Ok(there) if there.is_file() => fs::canonicalize(path),
        Ok(_) => Err(ErrorKind::Unsupported.into()),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(path.to_path_buf()),
        Err(e) => Err(e),
    }
}

/// Whether a file beside one of this name is a new one, of whatever process.
fn is_fresh(beside: &str, name: &str) -> bool {
    let middle = beside.strip_prefix(name).and_then(|rest| rest.strip_prefix('.')?.strip_suffix(".new"));
    let Some((process, started)) = middle.and_then(|middle| middle.split_once('-')) else { return false };
    let made_of = |text: &str, radix: u32| !text.is_empty() && text.chars().all(|c| c.is_digit(radix));
    made_of(process, 10) && made_of(started, 16)
}

/// Removes new files that were left beside this one.
fn tidy(path: &Path) -> IoResult<()> {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return Ok(()) };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|beside| is_fresh(beside, name))
            && let Ok(meta) = entry.metadata()
            && meta.is_file()
            && meta.modified()?.elapsed().is_ok_and(|age| age > LEFT_AFTER)
        {
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

/// Puts a new file, whose name ends so, in the place of another, so that nobody sees half of one.
fn replace(path: &Path, ending: &str, text: &[u8]) -> IoResult<()> {
    let path = place(path)?;
    let mut fresh = path.clone().into_os_string();
    fresh.push(ending);
    // It may be there still, and others may write into the directory: a link of theirs is not followed.
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
        let file = MetricsFile::new(Some(path.as_path()));
        std::os::unix::fs::symlink(&other, directory.join(format!("m.json{}", file.ending))).unwrap();
        assert!(file.finish(&5).is_ok());
        assert_eq!(fs::read_to_string(&other).unwrap(), "mine");
        assert_eq!(fs::read_to_string(&path).unwrap(), "5");
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        fs::remove_dir_all(&directory).unwrap();
    }

    /// Two that were told the same file wrote to one new file, or removed each other's: in two containers both are process 1.
    #[test]
    fn what_another_process_writes_is_left_alone() {
        let directory = std::env::temp_dir().join(format!("tidemill-metrics-two-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let path = directory.join("m.json");
        let (one, two) = (MetricsFile::new(Some(path.as_path())), MetricsFile::new(Some(path.as_path())));
        let others = directory.join(format!("m.json{}", two.ending));
        fs::write(&others, "half of i").unwrap();
        assert!(one.finish(&5).is_ok());
        assert_eq!(fs::read_to_string(&others).unwrap(), "half of i");
        // A directory is not replaced, and the new file does not stay.
        let taken = directory.join("taken");
        fs::create_dir(&taken).unwrap();
        assert!(MetricsFile::new(Some(taken.as_path())).finish(&5).is_err());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 3);
        fs::remove_dir_all(&directory).unwrap();
    }

    /// What a process that was killed left stayed for ever, since no other has its name.
    #[test]
    fn what_was_left_goes() {
        let directory = std::env::temp_dir().join(format!("tidemill-metrics-left-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let long_ago = SystemTime::now() - 2 * LEFT_AFTER;
        let names = ["m.json.1-18c.new", "m.json.2-18c.new", "m.json.old.new", "m.json.1-18c.bak", "other.json.1-18c.new"];
        for name in names {
            let file = File::create_new(directory.join(name)).unwrap();
            // It may be about to become the file.
            if name != "m.json.2-18c.new" {
                file.set_modified(long_ago).unwrap();
            }
        }
        assert!(MetricsFile::new(Some(directory.join("m.json").as_path())).finish(&5).is_ok());
        let left: Vec<_> = names.into_iter().filter(|name| directory.join(name).exists()).collect();
        assert_eq!(left, names[1..]);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), names.len());
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
