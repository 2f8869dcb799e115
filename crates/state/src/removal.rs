//! Removes files of state that may be large, a piece at a time.
//!
//! To free the blocks of a file of some GB takes about a second where the file system tells the disk of each (`discard`), and all
//! that is read meanwhile waits behind that. So the names go at once, and what they named is cut from its end by a thread of the
//! process, which rests after each piece. Whatever ends the process, the system frees the rest then: it has no name any more.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::disk::system;

/// What is cut at once: some two milliseconds of a disk's time.
const PIECE: u64 = 8 << 20;
/// How many times as long the thread rests as it works.
const REST: u32 = 2;

/// How often the thread looks whether what somebody still has open has been closed.
const LOOK: Duration = Duration::from_millis(100);
/// After so long it waits no more, nor where the system does not tell: then the last one who closes the file frees it as a whole.
const PATIENCE: Duration = Duration::from_secs(10);

/// Removes a file. Who has it open, or has another name for it, can go on to read it.
///
/// # Errors
/// The file system's; the name is still there.
pub(crate) fn file(path: &Path) -> io::Result<()> {
    let small = fs::symlink_metadata(path).is_ok_and(|told| !told.is_file() || told.len() <= PIECE);
    // One that cannot be opened can still be removed.
    let opened = if small { None } else { File::options().write(true).open(path).ok() };
    fs::remove_file(path)?;
    if let Some(file) = opened
        && !has_name(&file)
        && let Some(queue) = queue()
    {
        // The thread never ends; if it did, the file would be closed here.
        let _ = queue.send(file);
    }
    Ok(())
}

/// Removes a directory and all that is in it.
///
/// # Errors
/// The file system's.
pub(crate) fn directory(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() { directory(&entry.path())? } else { file(&entry.path())? }
    }
    fs::remove_dir(path)
}

fn has_name(file: &File) -> bool {
    file.metadata().is_ok_and(|told| told.nlink() > 0)
}

/// Where files without a name are put; none where the system has no thread for them.
fn queue() -> Option<&'static Sender<File>> {
    static QUEUE: OnceLock<Option<Sender<File>>> = OnceLock::new();
    let start = || {
        let (sender, receiver) = channel();
        thread::Builder::new().name("state-remove".into()).spawn(move || cut_all(&receiver)).ok()?;
        Some(sender)
    };
    QUEUE.get_or_init(start).as_ref()
}

/// The thread.
fn cut_all(files: &Receiver<File>) {
    // Those that somebody has open.
    let mut open: Vec<(File, Instant)> = Vec::new();
    loop {
        let came = if open.is_empty() { files.recv().map_err(RecvTimeoutError::from) } else { files.recv_timeout(LOOK) };
        match came {
            Ok(file) => open.push((file, Instant::now())),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        open.extract_if(.., |(file, _)| system::is_open_once(file)).for_each(|(file, _)| cut(&file));
        open.retain(|(_, since)| since.elapsed() < PATIENCE);
    }
}

/// Cuts a file until nothing is left of it.
fn cut(file: &File) {
    let mut left = file.metadata().map_or(0, |told| told.len());
    while left > 0 {
        left = left.saturating_sub(PIECE);
        let begun = Instant::now();
        if file.set_len(left).is_err() {
            // It is freed as a whole when it is closed.
            return;
        }
        thread::sleep(begun.elapsed() * REST);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    fn large(path: &Path) {
        File::create(path).unwrap().write_all(&vec![7; PIECE as usize * 2 + 1]).unwrap();
    }

    /// A file that has another name, or is open, stays whole for who has it.
    #[test]
    fn only_what_nobody_has_is_cut() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("a"), dir.path().join("b"));
        large(&path);
        fs::hard_link(&path, &other).unwrap();
        file(&path).unwrap();
        assert!(!path.exists());
        let mut reader = File::open(&other).unwrap();
        let second = File::open(&other).unwrap();
        assert!(has_name(&reader) && !system::is_open_once(&reader));
        drop(second);
        file(&other).unwrap();
        assert!(!other.exists() && !has_name(&reader));
        // The thread has looked at it, and left it alone.
        thread::sleep(LOOK * 3);
        let mut content = Vec::new();
        reader.read_to_end(&mut content).unwrap();
        assert_eq!(content.len() as u64, PIECE * 2 + 1);
    }

    #[test]
    fn what_is_cut_is_gone() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; PIECE as usize + 1]).unwrap();
        assert!(system::is_open_once(&file));
        let held = file.try_clone().unwrap();
        cut(&held);
        assert_eq!(file.metadata().unwrap().len(), 0);
    }

    /// The names are gone when the call returns, whatever they named, and what a link names stays.
    #[test]
    fn a_directory_goes_with_all_that_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let (path, kept) = (dir.path().join("chk"), dir.path().join("kept"));
        fs::create_dir_all(path.join("inner")).unwrap();
        large(&path.join("large"));
        fs::write(path.join("inner/small"), "small").unwrap();
        large(&kept);
        std::os::unix::fs::symlink(&kept, path.join("inner/link")).unwrap();
        directory(&path).unwrap();
        assert!(!path.exists());
        assert_eq!(fs::metadata(&kept).unwrap().len(), PIECE * 2 + 1);
        assert_eq!(directory(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
